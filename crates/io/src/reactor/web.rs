//! A web listener: an HTTP response that never ends, or a request that never ends to a server that we
//! push to.

use std::io::{self, Read as _};
use std::sync::Arc;

use aulos_core::{Codec, Frames, Instant, SampleFormat, SampleSpec, Span};
use aulos_engine::fanout::Cursor;
use aulos_proto::http::icy::{self, Titled};
use aulos_proto::{ogg, wav};

use super::LeaveCause;
use super::connection_limiter::AddressPermit;
use super::line::{Line, Tally};
use super::outbox::{Flow, Outbox, Part};
use super::push::PushLine;
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
    /// It asked for titles between the sound.
    titled: Option<Titled>,
    /// What the present link of a chained stream calls itself.
    link: (u32, Arc<str>),
    wish: ListenWish,
    pub(super) blocked: bool,
    pub(super) scheduled: bool,
    pub(super) phase: u16,
    pub(super) watches_out: bool,
    /// It waits for its next slice.
    pub(super) queued: bool,
    _permit: AddressPermit,
    last_progress: Instant,
    pub(super) chunks: u64,
}

/// How somebody listens.
#[derive(Clone, Debug, Default)]
#[allow(clippy::exhaustive_structs, reason = "what a request says")]
pub struct ListenWish {
    /// Whether titles are wanted between the sound (`Icy-MetaData: 1`).
    pub titles: bool,
    /// What is counted for as long as somebody listens: the rendition that is made for him.
    pub keeps: Option<Arc<()>>,
    /// He did not come to us: we came to him, and all has been said that comes before the sound.
    pub push: Option<PushLine>,
}

/// The head of the response to somebody who listens.
#[must_use]
pub fn response_head(channel: &Channel, titles: bool) -> String {
    let Some(media) = content_type(channel) else { return NOT_ACCEPTABLE.to_owned() };
    let mut head = HEAD.replace("{}", media);
    // A line break would end the line; names have none, but for what Snapcast's callers send.
    let name = channel.name.replace(char::is_control, " ");
    head += &format!("icy-name: {name}\r\n");
    if let Some(kbps) = kbps(channel) {
        head += &format!("icy-br: {kbps}\r\n");
    }
    if titles {
        head += &format!("icy-metaint: {}\r\n", icy::INTERVAL);
    }
    head + "\r\n"
}

/// Kilobits a second, where that does not depend on the sound.
fn kbps(channel: &Channel) -> Option<u32> {
    match channel.codec {
        Codec::Pcm => {
            let second = channel.spec.bytes(channel.spec.rate.frames(Span::from_secs(1)));
            u32::try_from(second * 8 / 1_000).ok()
        }
        Codec::Opus | Codec::Flac => channel.bitrate.map(|bitrate| bitrate / 1_000),
    }
}

/// The media type of a station's stream, none where no browser could play it.
#[must_use]
fn content_type(channel: &Channel) -> Option<&'static str> {
    match channel.codec {
        Codec::Opus if channel.spec.layout.channels() > 2 => None,
        // On Snapcast's wire 24 bit samples lie in 4 bytes, which no WAVE header describes.
        Codec::Pcm if channel.spec.format == SampleFormat::S24In32Le => None,
        codec => Some(media_type(codec)),
    }
}

/// What the container of a codec is called.
#[must_use]
pub const fn media_type(codec: Codec) -> &'static str {
    match codec {
        Codec::Flac => "audio/flac",
        Codec::Opus => "audio/ogg",
        Codec::Pcm => "audio/wav",
    }
}

impl Listener {
    pub(super) fn new(
        mut socket: MediaSocket,
        wish: ListenWish,
        station: usize,
        tap: &Tap,
        phase: u16,
        now: Instant,
    ) -> Self {
        let mut outbox = Outbox::new(Part::Payload);
        let channel = &tap.channel;
        if wish.push.is_none() {
            outbox.queue(response_head(channel, wish.titles).as_bytes());
        }
        let (mut ogg, mut titled) = (None, wish.titles.then(Titled::new));
        let mut begin = Vec::new();
        match channel.codec {
            Codec::Flac => begin.extend_from_slice(&channel.stream_header),
            Codec::Pcm => begin = wave_header(channel.spec),
            Codec::Opus => ogg = begin_ogg(channel, &tap.title, &mut begin),
        }
        queue(&begin, &mut titled, &tap.title, &mut outbox);
        let cursor = match &wish.push {
            // What a browser wants to have before it starts: a burst of the most recent sound.
            None => tap.log.cursor_from(now - BURST),
            // Its own listeners have had that from us, or from nobody.
            Some(_) => tap.log.cursor_at_end(),
        };
        let permit = core::mem::take(&mut socket.permit);
        Self {
            line: Line::of(socket, Line::new),
            station,
            outbox,
            cursor,
            ogg,
            titled,
            link: (SERIAL, Arc::clone(&tap.title)),
            wish,
            blocked: false,
            scheduled: false,
            phase,
            // It begins with a response to write.
            watches_out: true,
            queued: false,
            _permit: permit,
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
        let pushed = self.is_pushed();
        let gone = |error: io::Error| cause(&error, pushed);
        self.blocked = true;
        if self.outbox.finish(&mut self.line).map_err(gone)? == Flow::Blocked {
            return Ok(false);
        }
        if content_type(&tap.channel).is_none() {
            return Err(LeaveCause::Closed);
        }
        if tap.log.get(self.cursor, 0).is_err() {
            let present = tap.log.cursor_from(now - BURST);
            if let Some(push) = &self.wish.push {
                push.lagged(self.cursor.distance(present));
            }
            self.cursor = present;
        }
        let (flow, sent) = if self.ogg.is_none() && self.titled.is_none() {
            let Self { outbox, line, cursor, .. } = self;
            outbox.send_chunks(line, &tap.log, cursor, limit).map_err(gone)?
        } else {
            let sent = self.queue_copies(tap);
            (self.outbox.finish(&mut self.line).map_err(gone)?, sent)
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
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                Err(cause(&error, self.is_pushed()))
            }
            Ok(count) => {
                let said = scratch.get(..count).unwrap_or_default();
                match &self.wish.push {
                    Some(push) if push.hear(said) => Err(LeaveCause::Closed),
                    _ => Ok(()),
                }
            }
            Err(_) => Ok(()),
        }
    }

    pub(super) fn maintain(&self, now: Instant) -> Result<(), LeaveCause> {
        let patience = match &self.wish.push {
            Some(push) if push.is_unwanted() => return Err(LeaveCause::Kicked),
            Some(_) => PUSH_STALL,
            // A player that has paused does not read, and that is its right for a while.
            None => PAUSE,
        };
        let stalled = self.blocked && now.since(self.last_progress) > patience;
        if stalled { Err(LeaveCause::NotReading) } else { Ok(()) }
    }

    /// Whether it is we who came.
    pub(super) const fn is_pushed(&self) -> bool {
        self.wish.push.is_some()
    }

    /// What went out since the last time.
    pub(super) fn take_tally(&mut self) -> Tally {
        let tally = self.line.take_tally();
        if let Some(push) = &self.wish.push {
            push.sent(tally.bytes);
        }
        tally
    }

    /// It is over.
    pub(super) fn end(&self, cause: LeaveCause) {
        if let Some(push) = &self.wish.push {
            push.end(cause);
        }
    }

    /// Pages are a listener's own, because their numbers count from where it joined, and so are
    /// titles, because they stand after so many bytes of what it got.
    fn queue_copies(&mut self, tap: &Tap) -> usize {
        let (mut pages, mut sent) = (Vec::new(), 0);
        while let Ok(Some(stamped)) = tap.log.get(self.cursor, 0) {
            let chunk = &stamped.chunk;
            pages.clear();
            let bytes = match self.ogg.take() {
                Some(stream) => {
                    let packet = (chunk.payload(), chunk.duration);
                    self.ogg = go_on(stream, packet, tap, &self.wish, &mut self.link, &mut pages);
                    &pages[..]
                }
                None => chunk.payload(),
            };
            queue(bytes, &mut self.titled, &tap.title, &mut self.outbox);
            self.cursor.advance(1);
            sent += 1;
            // The rest when this has gone: a log of seconds is not copied at once.
            if self.outbox.queued() > COPIED_AT_ONCE {
                return sent;
            }
        }
        if let Some(stream) = &mut self.ogg {
            pages.clear();
            stream.caught_up(&mut pages);
            queue(&pages, &mut self.titled, &tap.title, &mut self.outbox);
        }
        sent
    }

    fn note(&mut self, now: Instant, sent: usize) {
        self.chunks += sent as u64;
        if sent > 0 {
            self.last_progress = now;
        }
    }
}

/// Why a socket does not go on. The kernel gives up where nothing is acknowledged; of a server that we
/// have come to, that is all that we see of it when it does not read.
fn cause(error: &io::Error, pushed: bool) -> LeaveCause {
    match error.kind() {
        io::ErrorKind::TimedOut if pushed => LeaveCause::NotReading,
        _ => LeaveCause::Network,
    }
}

/// One more packet, and a new link behind it where the title is another and the other end wants that.
fn go_on(
    mut stream: ogg::OpusStream,
    (packet, duration): (&[u8], Frames),
    tap: &Tap,
    wish: &ListenWish,
    link: &mut (u32, Arc<str>),
    pages: &mut Vec<u8>,
) -> Option<ogg::OpusStream> {
    let chained = wish.push.as_ref().is_some_and(|push| push.chained);
    if !chained || link.1 == tap.title {
        stream.write(packet, duration, pages);
        return Some(stream);
    }
    *link = (link.0.wrapping_add(1), Arc::clone(&tap.title));
    let form = (tap.channel.spec.layout, tap.channel.spec.rate);
    let title = title_of(&tap.channel, &tap.title);
    stream.chain((packet, duration), link.0, form, title, pages).ok()
}

/// What is played; without it, who plays it.
fn title_of<'a>(channel: &'a Channel, title: &'a str) -> &'a str {
    if title.is_empty() { &channel.name } else { title }
}

/// None for what Ogg Opus cannot say; that has no content type, so it does not get any further.
fn begin_ogg(channel: &Channel, title: &str, pages: &mut Vec<u8>) -> Option<ogg::OpusStream> {
    let (layout, rate) = (channel.spec.layout, channel.spec.rate);
    ogg::OpusStream::begin(SERIAL, layout, rate, title_of(channel, title), pages).ok()
}

/// What goes out besides chunks, with titles where they are wanted.
fn queue(bytes: &[u8], titled: &mut Option<Titled>, title: &str, outbox: &mut Outbox) {
    match titled {
        None => outbox.queue(bytes),
        Some(titled) => {
            let mut out = Vec::with_capacity(bytes.len() + 64);
            titled.write(bytes, title, &mut out);
            outbox.queue(&out);
        }
    }
}

fn wave_header(spec: SampleSpec) -> Vec<u8> {
    // What WAVE cannot say has no content type, so it does not come here.
    wav::header(spec, wav::Length::Endless).map(Vec::from).unwrap_or_default()
}

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nCache-Control: no-store\r\n\
    Connection: close\r\nAccept-Ranges: none\r\nX-Content-Type-Options: nosniff\r\n";
const NOT_ACCEPTABLE: &str = "HTTP/1.1 406 Not Acceptable\r\nContent-Type: text/plain\r\n\
    Connection: close\r\n\r\nThis station sends 24 bit PCM, which browsers cannot play: \
    set codec = \"flac\".\n";
/// Bytes that are copied for one listener before they go out.
const COPIED_AT_ONCE: usize = 64 * 1_024;
const SERIAL: u32 = 0x6175_6C6F;
const BURST: Span = Span::from_millis(1_000);
const PAUSE: Span = Span::from_secs(60);

/// A server that we push to takes what it gets, or it hangs.
const PUSH_STALL: Span = Span::from_secs(10);
