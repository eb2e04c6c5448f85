//! A web listener: an HTTP response that never ends.

use std::io::{self, Read as _};

use aulos_core::{Codec, Instant, SampleFormat, SampleSpec, Span};
use aulos_engine::fanout::Cursor;
use aulos_proto::{ogg, wav};

use super::LeaveCause;
use super::doorman::Ticket;
use super::line::Line;
use super::outbox::{Flow, Outbox, Part};
use super::stations::{Channel, Tap};
use super::tls::MediaSocket;

/// A socket that gets a station's sound in the container that its codec has by nature: FLAC as it
/// is, PCM behind a WAVE header, Opus in Ogg.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) line: Line,
    pub(super) station: usize,
    outbox: Outbox,
    cursor: Cursor,
    ogg: Option<ogg::OpusStream>,
    pub(super) blocked: bool,
    pub(super) scheduled: bool,
    pub(super) phase: u16,
    pub(super) watches_out: bool,
    /// It waits for its next slice.
    pub(super) queued: bool,
    _ticket: Ticket,
    last_progress: Instant,
    pub(super) chunks: u64,
}

/// The media type of a station's stream, none where no browser could play it.
#[must_use]
fn content_type(channel: &Channel) -> Option<&'static str> {
    match channel.codec {
        Codec::Flac => Some("audio/flac"),
        Codec::Opus if channel.spec.layout.channels() > 2 => None,
        Codec::Opus => Some("audio/ogg"),
        // On Snapcast's wire 24 bit samples lie in 4 bytes, which no WAVE header describes.
        Codec::Pcm if channel.spec.format == SampleFormat::S24In32Le => None,
        Codec::Pcm => Some("audio/wav"),
    }
}

impl Listener {
    pub(super) fn new(
        mut socket: MediaSocket,
        station: usize,
        tap: &Tap,
        phase: u16,
        now: Instant,
    ) -> Self {
        let mut outbox = Outbox::new(Part::Payload);
        let channel = &tap.channel;
        match content_type(channel) {
            Some(media) => {
                outbox.queue(HEAD.replace("{}", media).as_bytes());
            }
            None => outbox.queue(NOT_ACCEPTABLE.as_bytes()),
        }
        let mut ogg = None;
        match channel.codec {
            Codec::Flac => outbox.queue(&channel.stream_header),
            Codec::Pcm => outbox.queue(&wave_header(channel.spec)),
            Codec::Opus => {
                let mut pages = Vec::new();
                ogg = begin_ogg(channel, &mut pages);
                outbox.queue(&pages);
            }
        }
        // What a browser wants to have before it starts: a burst of the most recent sound.
        let cursor = tap.log.cursor_from(now - BURST);
        let ticket = core::mem::take(&mut socket.ticket);
        Self {
            line: Line::of(socket, Line::new),
            station,
            outbox,
            cursor,
            ogg,
            blocked: false,
            scheduled: false,
            phase,
            // It begins with a response to write.
            watches_out: true,
            queued: false,
            _ticket: ticket,
            last_progress: now,
            chunks: 0,
        }
    }

    /// Writes what there is. True when the listener has all of it.
    pub(super) fn pump(
        &mut self,
        tap: &Tap,
        now: Instant,
        limit: usize,
    ) -> Result<bool, LeaveCause> {
        let gone = |_| LeaveCause::Network;
        self.blocked = true;
        if self.outbox.finish(&mut self.line).map_err(gone)? == Flow::Blocked {
            return Ok(false);
        }
        if content_type(&tap.channel).is_none() {
            return Err(LeaveCause::Closed);
        }
        if tap.log.get(self.cursor, 0).is_err() {
            self.cursor = tap.log.cursor_from(now - BURST);
        }
        let (flow, sent) = match &mut self.ogg {
            Some(stream) => {
                let sent = queue_pages(stream, &mut self.outbox, tap, &mut self.cursor);
                (self.outbox.finish(&mut self.line).map_err(gone)?, sent)
            }
            None => self
                .outbox
                .send_chunks(&mut self.line, &tap.log, &mut self.cursor, limit)
                .map_err(gone)?,
        };
        self.note(now, sent);
        // Whatever is left goes when the kernel has sent this.
        self.blocked = flow == Flow::Blocked || self.cursor != tap.log.cursor_at_end();
        Ok(!self.blocked)
    }

    /// A browser says nothing more after its request; when it closes we see it here.
    pub(super) fn receive(&mut self, scratch: &mut [u8]) -> Result<(), LeaveCause> {
        match self.line.read(scratch) {
            Ok(0) => Err(LeaveCause::Closed),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(LeaveCause::Network),
            _ => Ok(()),
        }
    }

    pub(super) fn maintain(&self, now: Instant) -> Result<(), LeaveCause> {
        // A player that has paused does not read, and that is its right for a while.
        let stalled = self.blocked && now.since(self.last_progress) > PAUSE;
        if stalled { Err(LeaveCause::NotReading) } else { Ok(()) }
    }

    fn note(&mut self, now: Instant, sent: usize) {
        self.chunks += sent as u64;
        if sent > 0 {
            self.last_progress = now;
        }
    }
}

/// None for what Ogg Opus cannot say; that has no content type, so it does not get any further.
fn begin_ogg(channel: &Channel, pages: &mut Vec<u8>) -> Option<ogg::OpusStream> {
    let (layout, rate) = (channel.spec.layout, channel.spec.rate);
    ogg::OpusStream::begin(SERIAL, layout, rate, &channel.name, pages).ok()
}

/// Pages are a listener's own: their numbers count from where it joined.
fn queue_pages(
    stream: &mut ogg::OpusStream,
    outbox: &mut Outbox,
    tap: &Tap,
    cursor: &mut Cursor,
) -> usize {
    let mut pages = Vec::new();
    let mut sent = 0;
    while let Ok(Some(stamped)) = tap.log.get(*cursor, 0) {
        stream.write(stamped.chunk.payload(), stamped.chunk.duration, &mut pages);
        cursor.advance(1);
        sent += 1;
    }
    outbox.queue(&pages);
    sent
}

fn wave_header(spec: SampleSpec) -> Vec<u8> {
    // What WAVE cannot say has no content type, so it does not come here.
    wav::header(spec, wav::Length::Endless).map(Vec::from).unwrap_or_default()
}

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nCache-Control: no-store\r\n\
    Connection: close\r\nX-Content-Type-Options: nosniff\r\n\r\n";
const NOT_ACCEPTABLE: &str = "HTTP/1.1 406 Not Acceptable\r\nContent-Type: text/plain\r\n\
    Connection: close\r\n\r\nThis station sends 24 bit PCM, which browsers cannot play: \
    set codec = \"flac\".\n";
const SERIAL: u32 = 0x6175_6C6F;
const BURST: Span = Span::from_millis(1_000);
const PAUSE: Span = Span::from_secs(60);
