//! A Sendspin source of a station: a player of another server, which feeds every room of the station.
//!
//! ```text
//!  messages -> proto::sendspin::SendspinClient -> queue (encoded) --when due--> decoder -> blocks
//!                        |                                    ^
//!                the server's clock ------ timestamp - output delay
//! ```
//!
//! The server is told an output delay of all that the station adds until its players sound. A chunk
//! goes to the station so long before its timestamp, so the rooms of the station play together with
//! the server's other players. The samples are not changed: the source has no volume.

mod peers;
mod sink;
mod status;
mod stream;
#[cfg(test)]
mod tests;

use core::fmt;
use std::collections::VecDeque;
use std::sync::Arc;

use aulos_core::{Backoff, ClockLine, Frames, Instant, Span};
use aulos_engine::standby::StandbyRequest;
use aulos_proto::sendspin::{
    ClientIdentity, PlaybackState, PlayerDelays, PlayerHello, SendspinClientError,
    SendspinClientEvent, SendspinClientOutput, SendspinOutgoing, TrackInfo, TransportCommands,
    next_seed,
};
use aulos_proto::ws::WsWriter;

pub use crate::timed_chunk::MAX_UNUSABLE;
use crate::timed_chunk::{
    ChunkFate, ChunkJudge, DecodedChunk, MAX_RELEASES, MAX_STREAMS, POLL_INTERVAL, Placement,
    ReleasedEnd, place,
};
pub use peers::MAX_PEERS;
use peers::{Admitted, Peers};
pub use sink::{SendspinInputHandles, SendspinInputSink, SourceCommand};
pub use status::{SendspinInputCounts, SendspinInputError, SendspinInputStatus, SendspinServer};
use stream::{FADE, InputStream, MAX_AHEAD, fade_out, take_chunk};

/// Configuration of a Sendspin source.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "what the caller chooses")]
pub struct SendspinInputConfig {
    /// Its keys.
    pub identity: Arc<ClientIdentity>,
    /// What it says of itself.
    pub hello: PlayerHello,
    /// From the time at which sound goes to the station until players of the station sound.
    pub delay: Span,
    /// Whether it connects to a server; otherwise servers connect.
    pub connects: bool,
    /// Random bytes for its keys, different in each run.
    pub seed: [u8; 32],
}

/// What the source wants from the program around it.
#[derive(Debug)]
#[non_exhaustive]
pub enum SendspinInputOutput {
    /// Connect to the server; then call [`SendspinInput::connected`] or
    /// [`SendspinInput::disconnected`].
    Connect,
    /// Send this message on the connection of this number, encoded by [`SendspinInput::write`] at the
    /// moment of the write.
    Send(u32, SendspinOutgoing),
    /// Close the connection of this number after everything sent so far.
    Disconnect(u32),
}

/// The source without its sockets.
pub struct SendspinInput {
    config: SendspinInputConfig,
    peers: Peers,
    backoff: Backoff,
    /// An attempt to connect is under way.
    is_connecting: bool,
    /// The present stream, and the one that follows it.
    streams: VecDeque<InputStream>,
    decoded: DecodedChunk,
    /// The last known clock of the server that has the source.
    clock: Option<ClockLine>,
    /// The end of what was released last; `None` where the next chunk continues nothing.
    released: Option<ReleasedEnd>,
    /// The timestamp of the last chunk that was taken.
    taken: Option<Instant>,
    chunk_judge: ChunkJudge,
    /// What plays from a time of the server on.
    tracks: VecDeque<(Instant, TrackInfo)>,
    /// The picture from a time of the server on.
    artwork: Option<(Instant, Option<Arc<[u8]>>)>,
    demand: StandbyRequest,
    outputs: VecDeque<SendspinInputOutput>,
    handled_at: Instant,
    status: SendspinInputStatus,
    sink: SendspinInputSink,
}

impl SendspinInput {
    /// A source that has no connection at `now`.
    #[must_use]
    pub fn new(config: SendspinInputConfig, sink: SendspinInputSink, now: Instant) -> Self {
        let hello = Arc::new(config.hello.clone());
        let identity = Some(Arc::clone(&config.identity));
        let status = SendspinInputStatus { identity, ..SendspinInputStatus::default() };
        let [a, b, c, d, e, f, g, h, ..] = config.seed;
        Self {
            peers: Peers::new(Arc::clone(&config.identity), hello, stated_delays(config.delay)),
            backoff: Backoff::new(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
            config,
            is_connecting: false,
            streams: VecDeque::new(),
            decoded: DecodedChunk::new(),
            clock: None,
            released: None,
            taken: None,
            chunk_judge: ChunkJudge::default(),
            tracks: VecDeque::new(),
            artwork: None,
            demand: StandbyRequest::Play,
            outputs: VecDeque::new(),
            handled_at: now,
            status,
            sink,
        }
    }

    /// The WebSocket of a connection is open. The driver numbers connections, none twice. False if
    /// there are too many: it is to be closed.
    pub fn connected(&mut self, now: Instant, number: u32) -> bool {
        self.is_connecting = false;
        self.config.seed = next_seed(&self.config.seed);
        let is_added = self.is_needed() && self.peers.add(number, self.config.seed, now);
        self.drain(now, number);
        self.status.counts.refused += u64::from(!is_added);
        is_added
    }

    /// The connection of this number, or without one the attempt to connect, has failed. What has
    /// arrived is played.
    pub fn disconnected(&mut self, now: Instant, number: Option<u32>, why: SendspinInputError) {
        if number.is_none_or(|number| self.peers.get_mut(number).is_some()) {
            self.lose(now, number, why);
            number.into_iter().for_each(|number| self.peers.remove(number));
        }
    }

    /// Processes a message that arrived at `now`.
    pub fn handle_message(&mut self, now: Instant, number: u32, is_text: bool, message: &[u8]) {
        if let Some(peer) = self.peers.get_mut(number) {
            peer.client.handle_message(now, is_text, message);
        }
        self.drain(now, number);
    }

    /// Appends a message as a frame of the WebSocket that is sent at `now`.
    pub fn write(
        &mut self,
        (number, message): (u32, SendspinOutgoing),
        now: Instant,
        writer: &mut WsWriter,
        out: &mut Vec<u8>,
    ) {
        if let Some(peer) = self.peers.get_mut(number) {
            peer.client.write(message, now, writer, out);
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.handled_at = now;
        self.poll_demand(now);
        let may_connect = self.config.connects && self.demand != StandbyRequest::Close;
        if may_connect && !self.is_connecting && self.peers.is_empty() && self.backoff.is_due(now) {
            self.is_connecting = true;
            self.outputs.push_back(SendspinInputOutput::Connect);
        }
        self.poll_commands(now);
        for number in self.peers.numbers() {
            if let Some(peer) = self.peers.get_mut(number) {
                peer.client.handle_timeout(now);
            }
            self.drain(now, number);
        }
        if let Some(line) = self.peers.admitted().and_then(|peer| peer.client.clock(now)) {
            self.clock = Some(line);
        }
        self.release(now);
        self.show_tracks(now);
        if self.is_played_out() && (self.peers.admitted().is_none() || self.streams.is_empty()) {
            self.released = None;
            self.streams.clear();
            self.sink.blocks.mark_lost();
        }
        self.status.connections = self.peers.count();
        self.sink.publish(&self.status);
    }

    /// The next output.
    pub fn poll_output(&mut self) -> Option<SendspinInputOutput> {
        let output = self.outputs.pop_front()?;
        if let SendspinInputOutput::Disconnect(number) = output {
            self.peers.remove(number);
        }
        Some(output)
    }

    /// When to call [`SendspinInput::handle_timeout`]. `None`, without a connection and audio to play,
    /// is now and then: the station may need the source again.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let is_active = !self.peers.is_empty() || !self.is_played_out();
        is_active.then(|| self.handled_at + POLL_INTERVAL)
    }

    /// Whether the station is gone, so that nothing will be taken any more.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.sink.blocks.is_abandoned()
    }

    /// Whether the station needs the source.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        self.demand != StandbyRequest::Close
    }

    /// Counters over all connections.
    #[must_use]
    pub const fn counts(&self) -> SendspinInputCounts {
        self.status.counts
    }

    fn poll_demand(&mut self, now: Instant) {
        let demand = self.sink.blocks.request();
        if demand == self.demand {
            return;
        }
        self.demand = demand;
        if demand != StandbyRequest::Play {
            self.drop_queue();
            self.decoded.clear();
            self.sink.blocks.discard();
        }
        if demand == StandbyRequest::Close {
            for number in self.peers.numbers() {
                self.peers.close(number, SendspinClientError::NotNeeded);
                self.drain(now, number);
            }
            (self.status.error, self.status.retry_at) = (None, None);
        }
    }

    fn poll_commands(&mut self, now: Instant) {
        while let Some(command) = self.sink.commands.pop() {
            match command {
                SourceCommand::Transport(command) => {
                    if let Some(peer) = self.peers.admitted_mut()
                        && command.is_in(self.status.commands)
                    {
                        peer.client.control(command);
                    }
                }
                SourceCommand::Delay(delay) => {
                    self.config.delay = delay;
                    self.peers.set_delays(now, stated_delays(delay));
                }
            }
        }
    }

    /// Handles everything that a connection has for the source.
    fn drain(&mut self, now: Instant, number: u32) {
        loop {
            let is_admitted = self.peers.is_admitted(number);
            let Some(peer) = self.peers.get_mut(number) else { return };
            let malformed = peer.client.malformed();
            self.status.counts.malformed +=
                malformed - core::mem::replace(&mut peer.malformed, malformed);
            let Some(output) = peer.client.poll_output() else { return };
            match output {
                SendspinClientOutput::Send(message) => {
                    self.outputs.push_back(SendspinInputOutput::Send(number, message));
                }
                SendspinClientOutput::Chunk { timestamp, payload } => {
                    if let Some(stream) = self.streams.back_mut()
                        && is_admitted
                        && self.demand == StandbyRequest::Play
                    {
                        let due = self.clock.map(|line| line.own_time(timestamp));
                        let counts = &mut self.status.counts;
                        take_chunk(
                            stream,
                            (timestamp, payload),
                            (due, now),
                            &mut self.taken,
                            counts,
                        );
                    }
                }
                SendspinClientOutput::Event(event) => self.handle_event(now, number, event),
                _ => {}
            }
        }
    }

    fn handle_event(&mut self, now: Instant, number: u32, event: SendspinClientEvent) {
        match event {
            SendspinClientEvent::Server(name) => {
                if let Some(peer) = self.peers.get_mut(number) {
                    peer.name = name;
                }
                self.show_server();
            }
            SendspinClientEvent::Active { has_roles: true, .. } => self.admit(now, number),
            SendspinClientEvent::Closed(why) => {
                self.status.counts.forged += u64::from(why == SendspinClientError::Forged);
                self.outputs.push_back(SendspinInputOutput::Disconnect(number));
                self.lose(now, Some(number), SendspinInputError::Protocol(why));
            }
            event if self.peers.is_admitted(number) => self.handle_programme(now, event),
            _ => {}
        }
    }

    /// Handles what the server that has the source says of its programme.
    fn handle_programme(&mut self, now: Instant, event: SendspinClientEvent) {
        match event {
            SendspinClientEvent::Stream(format) => match InputStream::new(format) {
                Some(stream) => self.begin_stream(stream),
                None => self.fail(now, SendspinInputError::Unsupported(format)),
            },
            SendspinClientEvent::StreamCleared => self.clear_stream(now),
            SendspinClientEvent::StreamEnded => {
                self.clear_stream(now);
                self.streams.clear();
                self.status.stream = None;
            }
            SendspinClientEvent::Track(at, track) => {
                if self.tracks.len() >= MAX_TRACKS {
                    self.tracks.pop_front();
                }
                self.tracks.push_back((at, track));
            }
            SendspinClientEvent::Artwork(at, picture) => self.artwork = Some((at, picture)),
            SendspinClientEvent::ArtworkDropped => self.artwork = None,
            SendspinClientEvent::ArtworkEnded => (self.artwork, self.status.artwork) = (None, None),
            SendspinClientEvent::Commands(commands) => self.status.commands = commands,
            SendspinClientEvent::Playback(playback) => {
                self.status.is_playing = playback == PlaybackState::Playing;
            }
            _ => {}
        }
    }

    /// A server uses the source: it has it from now on, unless another one keeps it.
    fn admit(&mut self, now: Instant, number: u32) {
        match self.peers.admit(number) {
            Admitted::Same => {}
            Admitted::First => self.forget_programme(now),
            Admitted::InPlaceOf(other) => {
                self.forget_programme(now);
                self.peers.close(other, SendspinClientError::AnotherServer);
                self.drain(now, other);
            }
            Admitted::No => {
                self.status.counts.refused += 1;
                self.peers.close(number, SendspinClientError::Occupied);
                self.drain(now, number);
            }
        }
        self.show_server();
    }

    /// Another server has another clock and another programme.
    fn forget_programme(&mut self, now: Instant) {
        self.clear_stream(now);
        self.streams.clear();
        self.clock = None;
        (self.status.stream, self.status.track, self.status.is_playing) = (None, None, false);
        self.status.commands = TransportCommands::default();
        self.tracks.clear();
        (self.artwork, self.status.artwork) = (None, None);
    }

    fn show_server(&mut self) {
        self.status.server = self.peers.admitted().and_then(|peer| {
            let (dialect, trust) = peer.client.peer();
            let id = peer.client.server()?;
            Some(Arc::new(SendspinServer { name: peer.name.clone(), id, dialect, trust }))
        });
    }

    /// Another format follows the present one. A stream that has not begun is replaced.
    fn begin_stream(&mut self, stream: InputStream) {
        if self.streams.back().is_some_and(|present| present.format == stream.format) {
            return;
        }
        if self.streams.len() == MAX_STREAMS {
            let waiting = self.streams.pop_back().map_or(0, |stream| stream.queue.len());
            self.status.counts.dropped += waiting as u64;
        }
        self.streams.push_back(stream);
    }

    /// Nothing of what waits is played. What would follow next fades out, so that the cut is not
    /// heard as a click.
    fn clear_stream(&mut self, now: Instant) {
        if let (Some(end), Some(line)) = (self.released, self.clock)
            && self.decoded.hand_over(&mut self.sink.blocks)
            && let Some(stream) = self.streams.front_mut()
            && let Some(chunk) = stream.queue.pop()
        {
            let spec = stream.format.spec;
            let is_next = (chunk.timestamp - end.timestamp).abs() <= FADE;
            if is_next
                && stream.decoder.decode(&chunk.payload, &mut self.decoded.samples) > Frames(0)
            {
                fade_out(&mut self.decoded.samples, spec);
                let due = line.own_time(chunk.timestamp) - self.config.delay + stream.chunk;
                self.decoded.begin(spec, (now, due), Span::ZERO);
                self.decoded.hand_over(&mut self.sink.blocks);
            }
        }
        self.decoded.clear();
        self.drop_queue();
    }

    fn drop_queue(&mut self) {
        for stream in &mut self.streams {
            self.status.counts.dropped += stream.queue.len() as u64;
            stream.queue.clear();
        }
        (self.released, self.taken, self.chunk_judge) = (None, None, ChunkJudge::default());
    }

    /// Hands the station every chunk that is due.
    fn release(&mut self, now: Instant) {
        let Some(line) = self.clock else { return };
        for _ in 0..MAX_RELEASES {
            if !self.decoded.hand_over(&mut self.sink.blocks) {
                return;
            }
            let is_last = self.streams.len() < MAX_STREAMS;
            let Some(stream) = self.streams.front_mut() else { return };
            self.status.stream = Some(stream.format);
            let Some(timestamp) = stream.queue.front().map(|chunk| chunk.timestamp) else {
                if is_last {
                    return;
                }
                self.streams.pop_front();
                continue;
            };
            if let Some(next) = stream.queue.second_timestamp()
                && next - timestamp <= MAX_CHUNK
            {
                stream.chunk = next - timestamp;
            }
            // A chunk is complete when it goes to the station.
            let begin = line.own_time(timestamp) - self.config.delay;
            let due = begin + stream.chunk;
            let placement = place(self.released, timestamp, due, (now, MAX_AHEAD));
            if matches!(placement, Placement::Wait) {
                return;
            }
            let Some(chunk) = stream.queue.pop() else { return };
            let spec = stream.format.spec;
            let mut frames = Frames::ZERO;
            if let Placement::Play(silence) = placement {
                frames = stream.decoder.decode(&chunk.payload, &mut self.decoded.samples);
                if frames > Frames::ZERO {
                    let span = spec.rate.span(frames);
                    stream.chunk = span;
                    self.decoded.begin(spec, (now, begin + span), silence);
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

    /// Counts the chunk. False after too long a time without a usable one: the connection is closed.
    fn judge(&mut self, now: Instant, placement: &Placement, frames: Frames) -> bool {
        let (fate, is_useless) = self.chunk_judge.judge(now, placement, frames);
        let counts = &mut self.status.counts;
        let why = match fate {
            ChunkFate::Played => {
                counts.played += 1;
                // What is left of a server that has gone does not make up for it.
                if self.peers.admitted().is_some() {
                    (self.status.error, self.status.retry_at) = (None, None);
                    self.backoff.succeeded(now);
                }
                return true;
            }
            ChunkFate::Damaged => {
                counts.damaged += 1;
                SendspinInputError::Undecodable
            }
            ChunkFate::Early => {
                counts.early += 1;
                SendspinInputError::Timestamps
            }
            ChunkFate::Late => {
                counts.late += 1;
                SendspinInputError::Timestamps
            }
        };
        if matches!(placement, Placement::Late) {
            self.released = None;
        }
        if !is_useless {
            return true;
        }
        self.fail(now, why);
        false
    }

    /// Shows what plays when its sound goes to the station.
    fn show_tracks(&mut self, now: Instant) {
        let Some(line) = self.clock else { return };
        let is_due =
            |at: Instant| line.own_time(at) - self.config.delay <= now + Span::from_millis(5);
        while self.tracks.front().is_some_and(|(at, _)| is_due(*at))
            && let Some((_, track)) = self.tracks.pop_front()
        {
            self.status.track = (track != TrackInfo::default()).then(|| Arc::new(track));
        }
        if let Some((_, picture)) = self.artwork.take_if(|(at, _)| is_due(*at)) {
            self.status.artwork = picture;
        }
    }

    /// Closes the connection of the server that has the source.
    fn fail(&mut self, now: Instant, why: SendspinInputError) {
        let Some(number) = self.peers.admitted().map(|peer| peer.number) else { return };
        self.outputs.push_back(SendspinInputOutput::Disconnect(number));
        self.lose(now, Some(number), why);
    }

    /// A connection or an attempt is over.
    fn lose(&mut self, now: Instant, number: Option<u32>, why: SendspinInputError) {
        let had_source = number.is_some_and(|number| self.peers.release(number));
        self.is_connecting = false;
        let is_wanted = matches!(
            why,
            SendspinInputError::Protocol(
                SendspinClientError::NotNeeded
                    | SendspinClientError::AnotherServer
                    | SendspinClientError::Occupied
            )
        );
        if !is_wanted {
            self.status.counts.failures += 1;
            if why.is_permanent() {
                self.backoff.refused(now);
            } else {
                self.backoff.failed(now);
            }
            // That a server has gone is no fault where servers connect.
            let is_fault = self.config.connects || !matches!(why, SendspinInputError::Closed);
            let is_current = had_source || self.peers.admitted().is_none();
            if is_fault && is_current {
                self.status.error = Some(why);
                self.status.retry_at = self.config.connects.then(|| self.backoff.retry_at());
            }
        }
        if had_source {
            self.tracks.clear();
            (self.status.is_playing, self.status.track) = (false, None);
            (self.artwork, self.status.artwork) = (None, None);
            self.status.commands = TransportCommands::default();
            // What has arrived is still played.
            (self.status.stream, self.chunk_judge) = (None, ChunkJudge::default());
            self.show_server();
        }
    }

    fn is_played_out(&self) -> bool {
        self.decoded.is_empty() && self.streams.iter().all(|stream| stream.queue.len() == 0)
    }
}

/// What a server is told of a delay: at most [`MAX_OUTPUT_DELAY`] as the output delay, the rest as time
/// by which sound has to come earlier.
fn stated_delays(delay: Span) -> PlayerDelays {
    let millis = |span: Span| u32::try_from(span.as_millis()).unwrap_or(0);
    let output = delay.clamp(Span::ZERO, MAX_OUTPUT_DELAY);
    PlayerDelays { output_ms: millis(output), lead_ms: millis(MIN_BUFFER + (delay - output)) }
}

impl fmt::Debug for SendspinInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendspinInput").field("status", &self.status).finish_non_exhaustive()
    }
}

/// The longest output delay of the protocol.
pub const MAX_OUTPUT_DELAY: Span = Span::from_secs(5);

/// Time that sound needs from the server's network card to the queue, with some jitter.
const MIN_BUFFER: Span = Span::from_millis(250);

/// Longer than any chunk of the protocol.
const MAX_CHUNK: Span = Span::from_millis(200);

/// Titles that are still to come.
const MAX_TRACKS: usize = 8;
