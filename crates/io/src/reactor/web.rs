//! A web listener: an HTTP response without an end, or, for a push, a request without an end.
//!
//! A stream begins where its listener joins: FLAC frames and Ogg pages are numbered from there.
//! With a station's own numbers, a player would take the station's uptime for its position.

use std::io::{self, Read as _};
use std::sync::Arc;

use aulos_core::{Codec, Frames, Instant, SampleFormat, SampleSpec, Span, StreamContainer};
use aulos_engine::fanout::{ChunkCursor, ChunkLog};
use aulos_proto::flac::FrameRenumberer;
use aulos_proto::http::icy::IcyWriter;
use aulos_proto::{ogg, wav};
use aulos_session::mount::JoinSplice;

use super::SessionEndCause;
use super::connection::{MediaConnection, SendCounts};
use super::connection_limiter::AddressPermit;
use super::listener_session::ListenerSession;
use super::outbox::{ChunkFraming, Outbox, WriteStatus};
use super::push::PushReporter;
use super::send_wheel::TICK;
use super::stations::{ReactorStation, StationDescriptor};
use super::tls::MediaSocket;

/// A connection that gets the audio of a station in the natural container of its codec: FLAC as it
/// is, PCM behind a WAVE header, Opus in Ogg.
#[derive(Debug)]
pub(super) struct WebListener {
    pub(super) connection: MediaConnection,
    pub(super) station: usize,
    outbox: Outbox,
    cursor: ChunkCursor,
    ogg: Option<ogg::OpusStream>,
    /// The header of the chunk of a mount that was sent last.
    header: Option<Arc<[u8]>>,
    flac: Option<FrameRenumberer>,
    /// Inserts titles into the stream, if the listener requested them.
    icy_titles: Option<IcyWriter>,
    /// The serial number and the title of the current link of a chained stream.
    link: (u32, Arc<str>),
    options: ListenerOptions,
    pub(super) blocked: bool,
    pub(super) scheduled: bool,
    pub(super) phase: u16,
    /// Ticks between two sends.
    pub(super) wait_ticks: usize,
    pub(super) watches_out: bool,
    /// It is queued for its next slice.
    pub(super) queued: bool,
    _permit: AddressPermit,
    last_progress: Instant,
    part: ListenerPart,
    /// When it is disconnected.
    ends_at: Option<Instant>,
    pub(super) chunks: u64,
}

/// Where a listener is.
#[derive(Debug)]
enum ListenerPart {
    /// It gets the intro of its mount.
    Intro,
    /// It gets the first frames behind the intro, which may need bytes of frames that it did not
    /// get.
    Joint(JoinSplice),
    Stream,
}

impl ListenerPart {
    /// What follows frames of another stream.
    fn after_joint(tap: &ReactorStation) -> Self {
        match &tap.descriptor.mount {
            Some(mount) if mount.has_reservoir => Self::Joint(JoinSplice::default()),
            _ => Self::Stream,
        }
    }
}

/// Options of a web listener.
#[derive(Clone, Debug, Default)]
#[allow(clippy::exhaustive_structs, reason = "what a request says")]
pub struct ListenerOptions {
    /// Whether the listener requested titles (`Icy-MetaData: 1`).
    pub titles: bool,
    /// The value of `Access-Control-Allow-Origin`; without it pages of other sites may not read.
    pub allow_origin: Option<Arc<str>>,
    /// A reference that keeps the rendition of this listener alive.
    pub rendition_guard: Option<Arc<()>>,
    /// Its entry in the table of listeners.
    pub session: Option<Arc<ListenerSession>>,
    /// Set for a push: the connection was opened by the server, and the request head has been sent.
    pub push: Option<PushReporter>,
}

/// The head of the response to a web listener.
#[must_use]
pub fn response_head(channel: &StationDescriptor, options: &ListenerOptions) -> String {
    let Some(media) = content_type(channel) else { return NOT_ACCEPTABLE.to_owned() };
    let mut head = RESPONSE_HEAD.replace("{}", media);
    head += &channel.icy.header_lines(&channel.name, channel.bitrate);
    if let Some(origin) = &options.allow_origin {
        head += &format!("Access-Control-Allow-Origin: {origin}\r\n{EXPOSED_HEADERS}");
    }
    if options.titles && sends_titles(channel) {
        head += &format!("icy-metaint: {}\r\n", channel.icy.metaint());
    }
    head + "\r\n"
}

/// Whether titles can be inserted into the stream.
fn sends_titles(channel: &StationDescriptor) -> bool {
    channel.mount.as_ref().is_none_or(|mount| !mount.has_titles)
}

/// The media type of a station's stream; `None` where no browser could play it.
#[must_use]
fn content_type(channel: &StationDescriptor) -> Option<&'static str> {
    if let Some(mount) = &channel.mount {
        return Some(mount.media_type);
    }
    let (info, spec) = (channel.codec.info(), channel.spec);
    // On Snapcast's wire, 24-bit samples occupy 4 bytes, which no WAVE header describes.
    let padded = info.container == StreamContainer::Wave && spec.format == SampleFormat::S24In32Le;
    (spec.layout.channels() <= info.max_channels && !padded).then_some(info.media_type)
}

impl WebListener {
    pub(super) fn new(
        mut socket: MediaSocket,
        options: ListenerOptions,
        station: usize,
        tap: &ReactorStation,
        phase: u16,
        now: Instant,
    ) -> Self {
        let mut outbox = Outbox::new(ChunkFraming::Payload);
        let channel = &tap.descriptor;
        if options.push.is_none() {
            outbox.queue(response_head(channel, &options).as_bytes());
        }
        let titles = options.titles && sends_titles(channel);
        let (mut ogg, mut icy_titles) =
            (None, titles.then(|| IcyWriter::every(channel.icy.metaint())));
        let mut begin = Vec::new();
        match channel.codec.info().container {
            // A chunk has its header.
            _ if channel.mount.is_some() => {}
            StreamContainer::Native => begin.extend_from_slice(&channel.stream_header),
            StreamContainer::Wave => begin = wave_header(channel.spec),
            StreamContainer::Ogg => ogg = start_ogg(channel, &tap.title, &mut begin),
        }
        queue_with_titles(&begin, &mut icy_titles, &tap.title, &mut outbox);
        let cursor = match (&options.push, &channel.mount) {
            (None, Some(mount)) if !mount.intro.is_empty() => tap.intro.cursor_at_start(),
            (None, Some(mount)) => tap.log.cursor_before_end(mount.burst as usize),
            // Browsers start only after a burst, so the most recent audio is sent first.
            (None, None) => tap.log.cursor_from(now - START_BURST),
            // The server that is pushed to provides the burst to its own listeners.
            (Some(_), _) => tap.log.cursor_at_end(),
        };
        if let Some(session) = &options.session {
            session.begin();
        }
        let permit = core::mem::take(&mut socket.permit);
        let wait_ticks = wait_ticks(tap, cursor);
        Self {
            connection: MediaConnection::from_media_socket(socket, MediaConnection::new),
            station,
            outbox,
            cursor,
            ogg,
            header: None,
            flac: (channel.codec == Codec::Flac).then(FrameRenumberer::default),
            icy_titles,
            link: (OGG_SERIAL, Arc::clone(&tap.title)),
            options,
            blocked: false,
            scheduled: false,
            phase,
            wait_ticks,
            // The response head is still unsent.
            watches_out: true,
            queued: false,
            _permit: permit,
            last_progress: now,
            part: match &channel.mount {
                Some(mount) if !mount.intro.is_empty() => ListenerPart::Intro,
                _ => ListenerPart::Stream,
            },
            ends_at: channel.mount.as_ref().and_then(|mount| Some(now + mount.max_duration?)),
            chunks: 0,
        }
    }

    /// Writes what there is. True when the listener has all of it.
    pub(super) fn pump(
        &mut self,
        tap: &ReactorStation,
        now: Instant,
        limit: usize,
    ) -> Result<bool, SessionEndCause> {
        let pushed = self.is_pushed();
        let gone = |error: io::Error| write_error_cause(&error, pushed);
        self.blocked = true;
        if self.outbox.finish(&mut self.connection).map_err(gone)? == WriteStatus::Blocked {
            return Ok(false);
        }
        if content_type(&tap.descriptor).is_none() {
            return Err(SessionEndCause::Closed);
        }
        let log = if self.is_in_intro() { &tap.intro } else { &tap.log };
        if log.get(self.cursor, 0).is_err() {
            let present = tap.log.cursor_from(now - START_BURST);
            if let Some(push) = &self.options.push {
                push.add_lagged(self.cursor.distance(present));
            }
            self.cursor = present;
            self.wait_ticks = wait_ticks(tap, present);
            self.part = ListenerPart::Stream;
        }
        let log = if self.is_in_intro() { &tap.intro } else { &tap.log };
        let is_plain = self.ogg.is_none() && self.flac.is_none() && self.icy_titles.is_none();
        let mount = tap.descriptor.mount.as_ref();
        let is_shared = is_plain
            && mount.is_none_or(|mount| !mount.has_titles)
            && !matches!(self.part, ListenerPart::Joint(_));
        let (flow, sent) = if is_shared {
            let Self { outbox, connection, cursor, .. } = self;
            outbox.send_chunks(connection, log, cursor, limit).map_err(gone)?
        } else {
            let sent = self.queue_copies(tap, log);
            (self.outbox.finish(&mut self.connection).map_err(gone)?, sent)
        };
        self.note_progress(now, sent);
        // The rest follows when the kernel has sent this.
        let is_behind = self.cursor != log.cursor_at_end() || self.end_intro(tap);
        self.blocked = flow == WriteStatus::Blocked || is_behind;
        Ok(!self.blocked)
    }

    /// Continues with the next frames of another mount, of the same format. Its own frames so far
    /// are the reserve of the player, so it gets no burst.
    pub(super) fn move_to(&mut self, station: usize, tap: &ReactorStation) {
        (self.station, self.cursor) = (station, tap.log.cursor_at_end());
        self.part = ListenerPart::after_joint(tap);
    }

    /// A browser sends nothing after its request; a read reports when it closes.
    pub(super) fn receive(&mut self, scratch: &mut [u8]) -> Result<(), SessionEndCause> {
        match self.connection.read(scratch) {
            Ok(0) => Err(SessionEndCause::Closed),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                Err(write_error_cause(&error, self.is_pushed()))
            }
            Ok(count) => {
                let said = scratch.get(..count).unwrap_or_default();
                match &self.options.push {
                    Some(push) if push.handle_response(said) => Err(SessionEndCause::Closed),
                    _ => Ok(()),
                }
            }
            Err(_) => Ok(()),
        }
    }

    pub(super) fn maintain(&self, now: Instant) -> Result<(), SessionEndCause> {
        let is_cut = self.options.session.as_ref().is_some_and(|session| session.is_cut());
        if is_cut || self.ends_at.is_some_and(|at| now >= at) {
            return Err(SessionEndCause::Kicked);
        }
        let patience = match &self.options.push {
            Some(push) if push.is_abandoned() => return Err(SessionEndCause::Kicked),
            Some(_) => PUSH_STALL_TIMEOUT,
            // A paused player does not read, which is allowed for a while.
            None => LISTENER_STALL_TIMEOUT,
        };
        let stalled = self.blocked && now.since(self.last_progress) > patience;
        if stalled { Err(SessionEndCause::NotReading) } else { Ok(()) }
    }

    /// Whether this is a push.
    pub(super) const fn is_pushed(&self) -> bool {
        self.options.push.is_some()
    }

    /// The counts since the last call.
    pub(super) fn take_counts(&mut self) -> SendCounts {
        let tally = self.connection.take_counts();
        if let Some(push) = &self.options.push {
            push.add_sent(tally.bytes);
        }
        if let Some(session) = &self.options.session {
            session.add_sent(tally.bytes);
        }
        tally
    }

    /// Reports the end of a push.
    pub(super) fn end(&self, cause: SessionEndCause) {
        if let Some(push) = &self.options.push {
            push.end(cause);
        }
    }

    const fn is_in_intro(&self) -> bool {
        matches!(self.part, ListenerPart::Intro)
    }

    /// Continues with the stream if all of the intro has been sent; true if it does.
    fn end_intro(&mut self, tap: &ReactorStation) -> bool {
        let Some(mount) = tap.descriptor.mount.as_ref().filter(|_| self.is_in_intro()) else {
            return false;
        };
        self.cursor = tap.log.cursor_before_end(mount.burst as usize);
        self.wait_ticks = wait_ticks(tap, self.cursor);
        self.part = ListenerPart::after_joint(tap);
        true
    }

    /// Queues copies: numbers count from where the listener joined, and titles follow a fixed
    /// number of bytes.
    fn queue_copies(&mut self, tap: &ReactorStation, log: &ChunkLog) -> usize {
        let (mut pages, mut sent) = (Vec::new(), 0);
        while let Ok(Some(stamped)) = log.get(self.cursor, 0) {
            let chunk = &stamped.chunk;
            pages.clear();
            let bytes = match (self.ogg.take(), &mut self.flac) {
                (Some(stream), _) => {
                    let packet = (chunk.payload(), chunk.duration);
                    self.ogg = append_packet(
                        stream,
                        packet,
                        tap,
                        &self.options,
                        &mut self.link,
                        &mut pages,
                    );
                    &pages[..]
                }
                (None, Some(flac)) => {
                    flac.write(chunk.payload(), &mut pages);
                    &pages[..]
                }
                (None, None) if let ListenerPart::Joint(splice) = &mut self.part => {
                    if splice.write(chunk.payload(), &mut pages) {
                        self.part = ListenerPart::Stream;
                    }
                    &pages[..]
                }
                (None, None) if stamped.codec_header != self.header => {
                    self.header.clone_from(&stamped.codec_header);
                    pages.extend_from_slice(self.header.as_deref().unwrap_or_default());
                    pages.extend_from_slice(chunk.payload());
                    &pages[..]
                }
                (None, None) => chunk.payload(),
            };
            queue_with_titles(bytes, &mut self.icy_titles, &tap.title, &mut self.outbox);
            self.cursor.advance(1);
            sent += 1;
            // The rest follows when this has been sent; seconds of a log are not copied at once.
            if self.outbox.queued() > COPIED_AT_ONCE {
                return sent;
            }
        }
        if let Some(stream) = &mut self.ogg {
            pages.clear();
            stream.end_batch(&mut pages);
            queue_with_titles(&pages, &mut self.icy_titles, &tap.title, &mut self.outbox);
        }
        sent
    }

    fn note_progress(&mut self, now: Instant, sent: usize) {
        self.chunks += sent as u64;
        if sent > 0 {
            self.last_progress = now;
        }
    }
}

/// Ticks between two sends to a listener that gets the chunks from `cursor` on at once.
///
/// A player of a mount has these in reserve, so it gets few large pieces: a send costs more than
/// the bytes of some chunks. While it waits for one, it plays half of its reserve.
fn wait_ticks(tap: &ReactorStation, cursor: ChunkCursor) -> usize {
    let ticks = (tap.log.span_from(cursor) / 2).as_nanos() / TICK.as_nanos();
    match tap.descriptor.mount {
        Some(_) => usize::try_from(ticks).map_or(0, |t| t.clamp(WEB_WAIT_TICKS, MOUNT_WAIT_TICKS)),
        None => WEB_WAIT_TICKS,
    }
}

/// The end cause for a write error. The kernel fails the connection when nothing is acknowledged;
/// for a push this is the only sign of a server that does not read.
fn write_error_cause(error: &io::Error, pushed: bool) -> SessionEndCause {
    match error.kind() {
        io::ErrorKind::TimedOut if pushed => SessionEndCause::NotReading,
        _ => SessionEndCause::Network,
    }
}

/// Adds a packet, and a new link after it when the title has changed and the receiver supports
/// chained streams.
fn append_packet(
    mut stream: ogg::OpusStream,
    (packet, duration): (&[u8], Frames),
    tap: &ReactorStation,
    options: &ListenerOptions,
    link: &mut (u32, Arc<str>),
    pages: &mut Vec<u8>,
) -> Option<ogg::OpusStream> {
    let chained = options.push.as_ref().is_some_and(|push| push.chained);
    if !chained || link.1 == tap.title {
        stream.write(packet, duration, pages);
        return Some(stream);
    }
    *link = (link.0.wrapping_add(1), Arc::clone(&tap.title));
    let form = (tap.descriptor.spec.layout, tap.descriptor.spec.rate);
    let title = title_or_station_name(&tap.descriptor, &tap.title);
    stream.chain((packet, duration), link.0, form, title, pages).ok()
}

/// The title, or the station's name without one.
fn title_or_station_name<'a>(channel: &'a StationDescriptor, title: &'a str) -> &'a str {
    if title.is_empty() { &channel.name } else { title }
}

/// `None` for what Ogg Opus cannot represent; such a station has no content type and gets no
/// listeners.
fn start_ogg(
    channel: &StationDescriptor,
    title: &str,
    pages: &mut Vec<u8>,
) -> Option<ogg::OpusStream> {
    let (layout, rate) = (channel.spec.layout, channel.spec.rate);
    ogg::OpusStream::begin(OGG_SERIAL, layout, rate, title_or_station_name(channel, title), pages)
        .ok()
}

/// Queues bytes other than chunks, with titles where they are requested.
fn queue_with_titles(
    bytes: &[u8],
    titled: &mut Option<IcyWriter>,
    title: &str,
    outbox: &mut Outbox,
) {
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
    // A format that WAVE cannot represent has no content type and does not get here.
    wav::header(spec, wav::DataLength::Endless).map(Vec::from).unwrap_or_default()
}

const RESPONSE_HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nCache-Control: no-store\r\n\
    Connection: close\r\nAccept-Ranges: none\r\nX-Content-Type-Options: nosniff\r\n";
/// A page of another site may read all headers of the response.
const EXPOSED_HEADERS: &str = "Access-Control-Expose-Headers: *\r\n";
const NOT_ACCEPTABLE: &str = "HTTP/1.1 406 Not Acceptable\r\nContent-Type: text/plain\r\n\
    Connection: close\r\n\r\nThis station sends 24 bit PCM, which browsers cannot play: \
    set codec = \"flac\".\n";
/// Browsers buffer by themselves, so ten sends per second suffice.
const WEB_WAIT_TICKS: usize = 20;
/// Two seconds: for most streams, half of what is sent at once.
const MOUNT_WAIT_TICKS: usize = 400;
/// Bytes that are copied for one listener per send.
const COPIED_AT_ONCE: usize = 64 * 1_024;
const OGG_SERIAL: u32 = 0x6175_6C6F;
const START_BURST: Span = Span::from_millis(1_000);
const LISTENER_STALL_TIMEOUT: Span = Span::from_secs(60);

/// A server that accepts nothing for this long has failed.
const PUSH_STALL_TIMEOUT: Span = Span::from_secs(10);
