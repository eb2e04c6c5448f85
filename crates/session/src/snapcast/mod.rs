//! A Snapcast source of a station: another server's stream, played as one of its clients would.
//!
//! ```text
//!  bytes -> snap::SnapcastClient -> queue (encoded) --when due--> decoder -> blocks for the station
//!                |                              ^
//!        the server's clock ----- when its clients play a chunk
//! ```
//!
//! A chunk goes to the station at the time at which the server's own clients play it. So the
//! server's buffer covers a network that stalls, and the station sees a sender that is exact by the
//! server's clock, however the network delays it; its servo follows that clock. The samples are not
//! changed: volume and mute that the server sets for this client are for loudspeakers.
//!
//! With [`PassConfig`] the station gets each chunk as it was sent, besides its samples, and both so
//! early that its clients play them when those of the server do.

mod pass;
mod sink;
mod status;
#[cfg(test)]
mod tests;

use core::fmt;
use std::collections::VecDeque;
use std::sync::Arc;

use aulos_core::{Backoff, ClockLine, Frames, Instant, Span};
use aulos_engine::fanout::OriginTime;
use aulos_engine::standby::StandbyRequest;
use aulos_proto::snap::client::{ClientInput, ClientOutgoing, ClientOutput};
use aulos_proto::snap::wire::{Hello, ServerSettings};

use crate::player::connection::Connection;
use crate::player::decoder::ChunkDecoder;
use crate::player::queue::ChunkQueue;
use crate::player::{StreamFormat, UnsupportedStream};
pub use crate::timed_chunk::MAX_UNUSABLE;
use crate::timed_chunk::{
    ChunkFate, ChunkJudge, DecodedChunk, MAX_RELEASES, MAX_STREAMS, POLL_INTERVAL, Placement,
    ReleasedEnd, place,
};

use pass::ChunkPass;
pub use pass::{EdgeChunk, PassConfig, PassObstacle};
pub use sink::SnapcastInputSink;
pub use status::{SnapcastInputCounts, SnapcastInputError, SnapcastInputStatus};

/// Configuration of a Snapcast source.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "what the caller chooses")]
pub struct SnapcastInputConfig {
    /// How the source introduces itself to the server.
    pub hello: Hello,
    /// How much earlier than the server's other clients it plays, besides the latency that the
    /// server has for this client.
    pub latency: Span,
    /// The station, if chunks are to be passed to its clients.
    pub pass: Option<PassConfig>,
    /// Determines the random pauses between retries; it should differ for each source.
    pub seed: u64,
}

/// What the source wants from the program around it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapcastInputOutput {
    /// Connect to the server; then call [`SnapcastInput::connected`] or
    /// [`SnapcastInput::disconnected`].
    Connect,
    /// Send this message, encoded at the moment of the write.
    Send(ClientOutgoing),
    /// Close the connection.
    Disconnect,
}

/// The source without its socket.
pub struct SnapcastInput {
    config: SnapcastInputConfig,
    connection: Connection,
    /// Whether messages to and from the server may be lost.
    is_lossy: bool,
    backoff: Backoff,
    settings: ServerSettings,
    /// The present stream, and the one that follows it.
    streams: VecDeque<InputStream>,
    decoded: DecodedChunk,
    pass: Option<ChunkPass>,
    /// The end of what was released last; `None` where the next chunk continues nothing.
    released: Option<ReleasedEnd>,
    chunk_judge: ChunkJudge,
    /// Whether this connection has brought a chunk.
    has_received: bool,
    /// Whether the last connection has lasted until the clock was known.
    knows_clock: bool,
    demand: StandbyRequest,
    outputs: VecDeque<SnapcastInputOutput>,
    handled_at: Instant,
    status: SnapcastInputStatus,
    sink: SnapcastInputSink,
}

/// One stream: what a codec header begins.
struct InputStream {
    format: StreamFormat,
    /// What clients need to decode its chunks, unless that is the station's own header.
    codec_header: Option<Arc<[u8]>>,
    decoder: ChunkDecoder,
    queue: ChunkQueue,
}

impl SnapcastInput {
    /// A source that wants to connect at `now`.
    #[must_use]
    pub fn new(config: SnapcastInputConfig, sink: SnapcastInputSink, now: Instant) -> Self {
        Self {
            connection: Connection::new(now),
            is_lossy: false,
            backoff: Backoff::new(config.seed),
            pass: config.pass.clone().map(ChunkPass::new),
            config,
            settings: ServerSettings::default(),
            streams: VecDeque::new(),
            decoded: DecodedChunk::new(),
            released: None,
            chunk_judge: ChunkJudge::default(),
            has_received: false,
            knows_clock: false,
            demand: StandbyRequest::Play,
            outputs: VecDeque::new(),
            handled_at: now,
            status: SnapcastInputStatus::default(),
            sink,
        }
    }

    /// Messages to and from the server may be lost, other than on a connection of TCP: an
    /// unanswered request for the time is repeated.
    #[must_use]
    pub fn lossy(self) -> Self {
        Self { is_lossy: true, ..self }
    }

    /// The connection is made: the source introduces itself.
    pub fn connected(&mut self, now: Instant) {
        self.connection.begin(self.config.hello.clone(), self.is_lossy, now);
        (self.status.is_connected, self.knows_clock) = (true, false);
        self.drain(now);
    }

    /// The connection, or the attempt, has failed. What has arrived is played, and the source wants
    /// to connect again after a pause.
    pub fn disconnected(&mut self, now: Instant, why: SnapcastInputError) {
        if why.is_permanent() {
            self.backoff.refused(now);
        } else {
            self.backoff.failed(now);
        }
        self.connection.end(self.backoff.retry_at());
        self.status.counts.failures += 1;
        (self.status.is_connected, self.status.error) = (false, Some(why));
        self.status.retry_at = Some(self.backoff.retry_at());
        (self.chunk_judge, self.has_received) = (ChunkJudge::default(), false);
        if self.released.is_none() && !self.knows_clock {
            // It may never be known when these are due.
            self.drop_streams();
        }
    }

    /// The next connection is to a server with another clock. What has arrived is due by the clock
    /// before, so it is dropped; the source wants to connect at once.
    pub fn forget_clock(&mut self, now: Instant) {
        self.connection = Connection::new(now);
        self.backoff.reset();
        (self.status.is_connected, self.knows_clock, self.released) = (false, false, None);
        self.drop_streams();
    }

    /// Processes what the server has sent; `now` is the instant of its arrival.
    pub fn handle_input(&mut self, now: Instant, input: ClientInput<'_>) {
        if let Some(client) = self.connection.client() {
            client.handle_input(now, input);
        }
        self.drain(now);
    }

    /// Takes a chunk that later ones have overtaken; [`handle_input`](Self::handle_input) takes
    /// those in order. One whose time is over is counted as late.
    pub fn insert_chunk(&mut self, timestamp: Instant, payload: &[u8]) {
        if self.demand == StandbyRequest::Play
            && let Some(stream) = self.streams.back_mut()
        {
            let before = stream.queue.stats.no_room;
            stream.queue.insert(timestamp, payload, true);
            self.status.counts.dropped += stream.queue.stats.no_room - before;
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.handled_at = now;
        self.poll_demand();
        if self.demand != StandbyRequest::Close && self.connection.wants_to_connect(now) {
            self.outputs.push_back(SnapcastInputOutput::Connect);
        }
        if let Some(client) = self.connection.client() {
            client.handle_timeout(now);
        }
        self.drain(now);
        self.knows_clock |=
            self.connection.knows_time(now) || self.connection.knows_time_within(now, EARLY_ERROR);
        self.release(now);
        if !self.status.is_connected && self.server_clock(now).is_none() {
            self.drop_streams();
        }
        if !self.status.is_connected && self.is_played_out() {
            self.released = None;
            self.streams.clear();
            self.sink.blocks.mark_lost();
        }
        self.sink.publish(&self.status);
    }

    /// The next output.
    pub fn poll_output(&mut self) -> Option<SnapcastInputOutput> {
        self.outputs.pop_front()
    }

    /// When to call [`SnapcastInput::handle_timeout`]. `None`, without a connection and audio to
    /// play, is now and then: the station may need the source again.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let is_active = self.connection.is_connected() || !self.is_played_out();
        is_active.then(|| self.handled_at + POLL_INTERVAL)
    }

    /// Whether the station is gone, so that nothing will be taken any more.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.sink.blocks.is_abandoned()
    }

    /// Whether the station needs the source, so that it should be connected.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        self.demand != StandbyRequest::Close
    }

    /// Counters over all connections.
    #[must_use]
    pub const fn counts(&self) -> SnapcastInputCounts {
        self.status.counts
    }

    fn poll_demand(&mut self) {
        let demand = self.sink.blocks.request();
        if demand == self.demand {
            return;
        }
        self.demand = demand;
        if demand != StandbyRequest::Play {
            self.streams.iter_mut().for_each(|stream| stream.queue.clear());
            self.decoded.clear();
            self.sink.blocks.discard();
            self.released = None;
        }
        if demand == StandbyRequest::Close {
            self.outputs.push_back(SnapcastInputOutput::Disconnect);
            // However often the need changes: a server that has failed is not contacted sooner.
            self.connection.end(self.backoff.retry_at());
            self.streams.clear();
            (self.status.is_connected, self.status.error) = (false, None);
            self.status.retry_at = None;
        }
    }

    /// Handles everything that the client has for the source.
    fn drain(&mut self, now: Instant) {
        loop {
            let Some(output) = self.connection.client().and_then(|client| client.poll_output())
            else {
                return;
            };
            match output {
                ClientOutput::Send(message) => {
                    self.outputs.push_back(SnapcastInputOutput::Send(message));
                }
                ClientOutput::Settings(settings) => {
                    if playout_delay(&settings, &self.config)
                        != playout_delay(&self.settings, &self.config)
                    {
                        self.released = None;
                    }
                    self.settings = settings;
                }
                ClientOutput::Codec { codec, header } => {
                    let passed = self.pass.as_ref();
                    let payload = passed.and_then(|pass| pass.codec_header(codec, header));
                    let stream = StreamFormat::parse(codec, header);
                    match stream.and_then(|format| InputStream::new(format, payload)) {
                        Ok(stream) => self.begin_stream(stream),
                        Err(why) => self.fail(now, SnapcastInputError::Unsupported(why)),
                    }
                }
                ClientOutput::Chunk { timestamp, payload } => {
                    self.has_received = true;
                    if self.demand == StandbyRequest::Play
                        && let Some(stream) = self.streams.back_mut()
                    {
                        let before = stream.queue.stats;
                        stream.queue.push(timestamp, payload, true);
                        let stats = stream.queue.stats;
                        self.status.counts.dropped += stats.no_room - before.no_room;
                        self.status.counts.dropped += stats.replaced - before.replaced;
                    }
                }
                ClientOutput::Close(reason) => {
                    self.fail(now, SnapcastInputError::Protocol(reason));
                }
                _ => {}
            }
        }
    }

    /// Another stream follows the present one. A stream that has not begun is replaced.
    fn begin_stream(&mut self, stream: InputStream) {
        if let Some(last) = self.streams.back_mut().filter(|last| last.format == stream.format) {
            last.codec_header = stream.codec_header;
            return;
        }
        if self.streams.len() == MAX_STREAMS {
            let waiting = self.streams.pop_back().map_or(0, |stream| stream.queue.len());
            self.status.counts.dropped += waiting as u64;
        }
        self.streams.push_back(stream);
    }

    /// Hands the station every chunk that is due.
    fn release(&mut self, now: Instant) {
        let Some(line) = self.server_clock(now) else { return };
        let full_delay = playout_delay(&self.settings, &self.config);
        let lead = self.pass.as_ref().map_or(Span::ZERO, |pass| pass.lead(full_delay));
        let delay = full_delay - lead;
        for _ in 0..MAX_RELEASES {
            if !self.decoded.hand_over(&mut self.sink.blocks) {
                return;
            }
            let Some(stream) = self.streams.front_mut() else { return };
            self.status.stream = Some(stream.format);
            let Some(front) = stream.queue.front() else {
                if self.streams.len() < MAX_STREAMS {
                    return;
                }
                self.streams.pop_front();
                continue;
            };
            let (timestamp, due) = (front.timestamp, line.own_time(front.timestamp) + delay);
            let placement = place(self.released, timestamp, due, (now, delay));
            if matches!(placement, Placement::Wait) {
                return;
            }
            let Some(chunk) = stream.queue.pop() else { return };
            let spec = stream.format.spec;
            let mut frames = Frames::ZERO;
            if let Placement::Play(silence) = placement {
                let panics = stream.decoder.panics();
                frames = stream.decoder.decode(&chunk.payload, &mut self.decoded.samples);
                self.status.counts.codec_panics += stream.decoder.panics() - panics;
                if frames > Frames::ZERO {
                    let span = spec.rate.span(frames);
                    self.decoded.begin(spec, (now, due), silence);
                    if let Some(pass) = &mut self.pass {
                        let playout = due + lead;
                        let stream = (stream.format, stream.codec_header.as_ref());
                        let recorded = line.own_time(timestamp);
                        let origin = OriginTime { timestamp, recorded };
                        let times = (origin, playout, full_delay);
                        if let Some(edge) = pass.chunk(stream, times, frames, &chunk.payload) {
                            let is_passed = self.sink.pass(edge);
                            self.status.counts.passed += u64::from(is_passed);
                            self.status.counts.not_passed += u64::from(!is_passed);
                        }
                        if lead > Span::ZERO {
                            self.decoded.received = pass.received(playout, span);
                        }
                        self.status.pass_obstacle = pass.obstacle();
                    }
                    self.status.counts.gaps += u64::from(silence > Span::ZERO);
                    let end = ReleasedEnd { timestamp: timestamp + span, due: due + span };
                    self.released = Some(end);
                }
            }
            stream.queue.recycle(chunk);
            if !self.judge(now, &placement, frames) {
                return;
            }
        }
    }

    /// Counts the chunk. False after too long a time without a usable one: the connection is
    /// closed.
    fn judge(&mut self, now: Instant, placement: &Placement, frames: Frames) -> bool {
        let (fate, is_useless) = self.chunk_judge.judge(now, placement, frames);
        let counts = &mut self.status.counts;
        let why = match fate {
            ChunkFate::Played => {
                counts.played += 1;
                if self.has_received {
                    (self.status.error, self.status.retry_at) = (None, None);
                    self.backoff.succeeded(now);
                }
                return true;
            }
            ChunkFate::Damaged => {
                counts.damaged += 1;
                SnapcastInputError::Undecodable
            }
            ChunkFate::Early => {
                counts.early += 1;
                SnapcastInputError::Timestamps
            }
            ChunkFate::Late => {
                counts.late += 1;
                SnapcastInputError::Timestamps
            }
        };
        if matches!(placement, Placement::Late) {
            self.released = None;
        }
        if !is_useless || !self.connection.is_connected() {
            return true;
        }
        self.fail(now, why);
        false
    }

    /// The server's clock, once it is known well enough to place a chunk.
    fn server_clock(&self, now: Instant) -> Option<ClockLine> {
        let is_known = self.released.is_some() || self.knows_clock;
        self.connection.sync().filter(|_| is_known)?.line_at(now)
    }

    /// Closes the connection.
    fn fail(&mut self, now: Instant, why: SnapcastInputError) {
        self.outputs.push_back(SnapcastInputOutput::Disconnect);
        self.disconnected(now, why);
    }

    fn is_played_out(&self) -> bool {
        self.decoded.is_empty() && self.streams.iter().all(|stream| stream.queue.len() == 0)
    }

    fn drop_streams(&mut self) {
        let waiting: usize = self.streams.iter().map(|stream| stream.queue.len()).sum();
        self.status.counts.dropped += waiting as u64;
        self.streams.clear();
    }
}

impl InputStream {
    fn new(
        format: StreamFormat,
        codec_header: Option<Arc<[u8]>>,
    ) -> Result<Self, UnsupportedStream> {
        let decoder = ChunkDecoder::new(format.codec, format.spec);
        let decoder = decoder.ok_or(UnsupportedStream::Header(format.codec))?;
        Ok(Self { format, codec_header, decoder, queue: ChunkQueue::new(MAX_QUEUED_BYTES) })
    }
}

impl fmt::Debug for SnapcastInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapcastInput").field("status", &self.status).finish_non_exhaustive()
    }
}

/// From a chunk's timestamp to its playout, on both clocks.
fn playout_delay(settings: &ServerSettings, config: &SnapcastInputConfig) -> Span {
    let delay = settings.buffer - settings.latency - config.latency;
    delay.clamp(Span::ZERO, MAX_DELAY)
}

/// With a clock that is known so well, the first burst of exchanges need not be over: with 40 ms
/// from a question to its answer it lasts for two seconds. What is left of the error the line takes
/// out.
const EARLY_ERROR: Span = Span::from_micros(500);

/// Encoded audio that waits: ten seconds of 192 kHz in 32 bits and stereo, a minute of CD.
const MAX_QUEUED_BYTES: usize = 16 << 20;

/// Servers buffer for a minute at most.
const MAX_DELAY: Span = Span::from_secs(60);
