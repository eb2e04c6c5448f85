//! A station of another server of the cluster as a source, through NATS.
//!
//! ```text
//!  records of the origin -> epoch, sequence -> SnapcastInput -> blocks for the station
//!  times of the origin ----------------------------^
//! ```
//!
//! An origin says with other bytes what a Snapcast server says: a codec, chunks with their times,
//! the delay to their playout, and its clock. So a [`NatsInput`] checks what has come and
//! translates it; everything after that, the clock's line, the queue until a chunk is due, gaps and
//! the decoder, is [`SnapcastInput`], and both kinds of sources behave alike.
//!
//! What TCP guarantees between two machines, NATS does not: anyone with the right to publish can
//! send, a message may be repeated, and two origins may believe that they have the stream. A chunk
//! is played only if its epoch and node are those of the stream's record and its number has not
//! been seen. Of two origins, that with the higher epoch is played. If it ends, the other one is:
//! with a [`Lease`], once that has a still higher epoch; without one, after a time without chunks.

mod lease;
mod nodes;
mod sequence;
mod settings;
mod status;
#[cfg(test)]
mod tests;

use core::fmt;
use std::collections::VecDeque;

use aulos_core::{Instant, Span};
use aulos_proto::nats::{
    ChunkMessage, ClockReply, RecordError, RepairRequest, StreamRecord, origin_tag,
};
use aulos_proto::snap::client::{ClientInput, ClientOutgoing};
use aulos_proto::snap::wire::{Hello, MessageStamp, ServerMessage, ServerSettings, WireTime};

use crate::snapcast::{
    PassConfig, SnapcastInput, SnapcastInputConfig, SnapcastInputCounts, SnapcastInputError,
    SnapcastInputOutput, SnapcastInputSink,
};
pub use lease::{
    Lease, LeaseConfig, LeaseOperation, LeaseOutput, LeaseReply, LeaseRequest, LeaseState,
    LeaseValue, MAX_LEASE_TTL, MIN_LEASE_TTL,
};
pub use nodes::{
    FORGET_AFTER, KnownNode, MAX_DOCUMENT_BYTES, MAX_NODES, NodeTable, NodeTableCounts,
    NodeTableOutput, REUSE, ROUND,
};
use sequence::{SequenceFilter, SequenceVerdict};
pub use settings::{
    COALESCE, MAX_REQUESTS, MAX_SETTINGS_KEYS, REQUEST_TIMEOUT, SettingsCounts, SettingsEvent,
    SettingsOperation, SettingsOutput, SettingsReply, SettingsValue, SharedSettings,
    WRITE_INTERVAL,
};
pub use status::NatsInputCounts;

/// How a source plays.
#[derive(Clone, Debug, Default)]
#[allow(clippy::exhaustive_structs, reason = "what the caller chooses")]
pub struct NatsInputConfig {
    /// How much earlier than at the origin it plays; negative for later. It corrects a difference
    /// between the two directions of the network, which no comparison of clocks can see.
    pub latency: Span,
    /// What its chunks need in order to be passed, if they are to be.
    pub pass: Option<PassConfig>,
    /// Determines the random pauses between retries.
    pub seed: u64,
}

/// What has come for a source.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum NatsInputEvent<'a> {
    /// The connection to NATS is made.
    Connected,
    /// It is lost, for this reason.
    Disconnected(std::io::ErrorKind),
    /// A message on the subject of the records, or the value from the bucket.
    Record(&'a [u8]),
    /// A message on the subject of the chunks.
    Chunk(&'a [u8]),
    /// An answer to a request for the time.
    ClockReply(&'a [u8]),
    /// This many messages were lost because they were not taken in time.
    Overflow(u64),
}

/// What the source wants from the program around it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NatsInputOutput {
    /// Ask this node for its time, with a request that is stamped at the moment of the write.
    AskTime {
        /// The node.
        node: String,
        /// The id of the request.
        id: u16,
    },
    /// Ask the origin of the station for these chunks, which did not arrive.
    Repair(RepairRequest),
}

/// The source without its connection.
pub struct NatsInput {
    input: SnapcastInput,
    link: Link,
    stream: Option<Stream>,
    /// Since when the connection is lost, while the session goes on without it.
    lost: Option<Instant>,
    /// The last time a chunk of the stream was accepted.
    accepted: Option<Instant>,
    /// The highest epoch of a lease that has brought chunks: nothing lower is ever played.
    fence: Option<u32>,
    outputs: VecDeque<NatsInputOutput>,
    counts: NatsInputCounts,
    /// A translated message.
    scratch: Vec<u8>,
}

/// The connection to NATS, and what [`SnapcastInput`] takes for its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// Not connected.
    Down { is_wanted: bool },
    /// Connected; there is no session, because it is not wanted or no record has come.
    Up { is_wanted: bool },
    /// A session with the origin of the stream.
    Open,
}

/// What the last record says.
struct Stream {
    epoch: u32,
    is_leased: bool,
    /// The bytes of the record.
    record: Vec<u8>,
    node: String,
    origin: u16,
    sequence: SequenceFilter,
}

impl NatsInput {
    /// A source that puts its sound into `sink`, and its chunks too if they are to be passed.
    #[must_use]
    pub fn new(config: NatsInputConfig, sink: SnapcastInputSink, now: Instant) -> Self {
        let NatsInputConfig { latency, pass, seed } = config;
        let config = SnapcastInputConfig { hello: Hello::new("nats"), latency, pass, seed };
        Self {
            input: SnapcastInput::new(config, sink, now).lossy(),
            link: Link::Down { is_wanted: false },
            stream: None,
            lost: None,
            accepted: None,
            fence: None,
            outputs: VecDeque::new(),
            counts: NatsInputCounts::default(),
            scratch: Vec::new(),
        }
    }

    /// Processes what has come; `now` is the instant of its arrival.
    pub fn handle_input(&mut self, now: Instant, event: NatsInputEvent<'_>) {
        match event {
            NatsInputEvent::Connected => {
                self.lost = None;
                if let Link::Down { is_wanted } = self.link {
                    self.link = Link::Up { is_wanted };
                }
            }
            NatsInputEvent::Disconnected(_) if self.link == Link::Open => {
                self.lost = Some(now);
            }
            NatsInputEvent::Disconnected(why) => self.disconnect(now, why),
            NatsInputEvent::Record(bytes) => self.handle_record(now, bytes),
            NatsInputEvent::Chunk(bytes) => self.handle_chunk(now, bytes),
            NatsInputEvent::ClockReply(bytes) => self.handle_reply(now, bytes),
            NatsInputEvent::Overflow(count) => self.counts.overflow += count,
        }
        self.drain(now);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.lost.is_some_and(|at| now.since(at) >= MAX_RECONNECT) {
            self.disconnect(now, std::io::ErrorKind::NotConnected);
        }
        self.input.handle_timeout(now);
        self.drain(now);
    }

    /// The next output.
    pub fn poll_output(&mut self) -> Option<NatsInputOutput> {
        self.outputs.pop_front()
    }

    /// When to call [`NatsInput::handle_timeout`]; `None` is now and then.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.input.poll_timeout()
    }

    /// Whether the station is gone, so that nothing will be taken any more.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.input.is_abandoned()
    }

    /// Whether the station needs the source, so that it should be subscribed.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        self.input.is_needed()
    }

    /// Messages by what became of them, since the beginning.
    #[must_use]
    pub const fn counts(&self) -> NatsInputCounts {
        self.counts
    }

    /// What became of the accepted chunks.
    #[must_use]
    pub const fn playout_counts(&self) -> SnapcastInputCounts {
        self.input.counts()
    }

    fn disconnect(&mut self, now: Instant, why: std::io::ErrorKind) {
        self.lost = None;
        if self.link == Link::Open {
            self.input.disconnected(now, SnapcastInputError::Io(why));
        }
        let is_wanted = self.link == Link::Up { is_wanted: true };
        self.link = Link::Down { is_wanted };
        if let Some(stream) = &mut self.stream {
            stream.sequence = SequenceFilter::default();
        }
    }

    /// A record with a higher epoch is that of a stream that begins anew or has another origin. One
    /// with a lower epoch is that of an origin that has lost the stream; but an epoch that brings
    /// no chunks does not keep it, unless a lease has fenced the lower one off.
    fn handle_record(&mut self, now: Instant, bytes: &[u8]) {
        let record = match StreamRecord::parse(bytes) {
            Ok(record) => record,
            Err(error) => return self.counts.count_refused(error),
        };
        let is_live = self.accepted.is_some_and(|at| now.since(at) < MAX_QUIET);
        if let Some(stream) = &self.stream {
            if stream.record == bytes {
                return;
            }
            let is_over = self.fence.is_some_and(|fence| record.epoch < fence);
            if is_over || record.epoch <= stream.epoch && is_live {
                self.counts.fenced += u64::from(record.epoch < stream.epoch);
                self.counts.foreign += u64::from(record.epoch >= stream.epoch);
                return;
            }
        }
        let is_other_clock = self.stream.as_ref().is_some_and(|stream| stream.node != record.node);
        if is_other_clock {
            self.input.forget_clock(now);
        }
        if self.link == Link::Open {
            if is_other_clock {
                self.link = Link::Up { is_wanted: true };
            } else {
                self.announce(now, &record, None);
            }
        }
        self.stream = Some(Stream {
            epoch: record.epoch,
            is_leased: record.is_leased,
            record: bytes.to_vec(),
            node: record.node.to_owned(),
            origin: origin_tag(record.node),
            sequence: SequenceFilter::default(),
        });
    }

    fn handle_chunk(&mut self, now: Instant, bytes: &[u8]) {
        let ChunkMessage { header, payload } = match ChunkMessage::parse(bytes) {
            Ok(chunk) => chunk,
            Err(error) => return self.counts.count_refused(error),
        };
        let sender = (header.epoch, header.origin);
        let Some(stream) = &mut self.stream else {
            self.counts.foreign += 1;
            return;
        };
        if (stream.epoch, stream.origin) != sender {
            let is_over = header.epoch < stream.epoch;
            self.counts.fenced += u64::from(is_over);
            self.counts.foreign += u64::from(!is_over);
            return;
        }
        let is_live = self.accepted.is_some_and(|at| now.since(at) < MAX_QUIET);
        match stream.sequence.insert(header.sequence, is_live) {
            SequenceVerdict::Next { missing } => {
                self.counts.missing += missing;
                if let Ok(count @ 1..=MAX_REPAIR) = u16::try_from(missing) {
                    let first = header.sequence - missing;
                    let request = RepairRequest { epoch: header.epoch, first, count };
                    self.outputs.push_back(NatsInputOutput::Repair(request));
                }
            }
            SequenceVerdict::Repeated => {
                self.counts.repeated += 1;
                return;
            }
            // A repaired one: it is played at its time, if that is not over.
            SequenceVerdict::OutOfOrder => {
                self.counts.out_of_order += 1;
                if self.link == Link::Open {
                    self.input.insert_chunk(header.recorded, payload);
                }
                return;
            }
            SequenceVerdict::Implausible => {
                self.counts.implausible += 1;
                return;
            }
        }
        if stream.is_leased {
            self.fence = self.fence.max(Some(stream.epoch));
        }
        self.accepted = Some(now);
        self.counts.accepted += 1;
        if self.link == Link::Open {
            let timestamp = WireTime::from_instant(header.recorded);
            self.translate(now, 0, &ServerMessage::WireChunk { timestamp, payload });
        }
    }

    fn handle_reply(&mut self, now: Instant, bytes: &[u8]) {
        let reply = match ClockReply::parse(bytes) {
            Ok(reply) => reply,
            Err(error) => return self.counts.count_refused(error),
        };
        if self.link != Link::Open {
            return;
        }
        let latency = WireTime::from_span(reply.latency);
        let stamp = MessageStamp {
            refers_to: reply.id,
            sent: WireTime::from_instant(reply.sent),
            ..MessageStamp::default()
        };
        self.scratch.clear();
        ServerMessage::Time { latency }.write(stamp, &mut self.scratch);
        self.input.handle_input(now, ClientInput::Received(&self.scratch));
    }

    /// Handles everything that the source wants from its server.
    fn drain(&mut self, now: Instant) {
        loop {
            self.open_if_possible(now);
            let Some(output) = self.input.poll_output() else { return };
            match output {
                SnapcastInputOutput::Connect => match &mut self.link {
                    Link::Down { is_wanted } | Link::Up { is_wanted } => *is_wanted = true,
                    Link::Open => {}
                },
                SnapcastInputOutput::Disconnect => {
                    if self.link == Link::Open {
                        self.link = Link::Up { is_wanted: false };
                    }
                    if let Link::Down { is_wanted } | Link::Up { is_wanted } = &mut self.link {
                        *is_wanted = false;
                    }
                }
                SnapcastInputOutput::Send(ClientOutgoing::Hello { id, .. }) => {
                    let stream = self.stream.take();
                    if let Some(stream) = &stream
                        && let Ok(record) = StreamRecord::parse(&stream.record)
                    {
                        self.announce(now, &record, Some(id));
                    }
                    self.stream = stream;
                }
                SnapcastInputOutput::Send(ClientOutgoing::Time { id }) => {
                    if let Some(stream) = &self.stream {
                        let node = stream.node.clone();
                        self.outputs.push_back(NatsInputOutput::AskTime { node, id });
                    }
                }
                SnapcastInputOutput::Send(_) => {}
            }
        }
    }

    fn open_if_possible(&mut self, now: Instant) {
        if self.link == (Link::Up { is_wanted: true }) && self.stream.is_some() {
            self.link = Link::Open;
            self.input.connected(now);
        }
    }

    /// What a server sends at the beginning of a session, in answer to the Hello `id`, or of a
    /// stream.
    fn announce(&mut self, now: Instant, record: &StreamRecord<'_>, id: Option<u16>) {
        let settings = ServerSettings { buffer: record.buffer, ..ServerSettings::default() };
        self.translate(now, id.unwrap_or(0), &ServerMessage::Settings(settings));
        let (codec, header) = (record.codec.as_bytes(), record.codec_header);
        self.translate(now, 0, &ServerMessage::CodecHeader { codec, header });
    }

    fn translate(&mut self, now: Instant, refers_to: u16, message: &ServerMessage<'_>) {
        self.scratch.clear();
        message.write(MessageStamp { refers_to, ..MessageStamp::default() }, &mut self.scratch);
        self.input.handle_input(now, ClientInput::Received(&self.scratch));
    }
}

impl fmt::Debug for NatsInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsInput").field("link", &self.link).finish_non_exhaustive()
    }
}

/// How long the session with an origin survives without NATS: a client that connects to another
/// server of its cluster is back sooner, the origin's clock is the same, and what has arrived lasts
/// for as long.
const MAX_RECONNECT: Span = Span::from_millis(800);

/// Most chunks that are asked for again: the filter of their numbers has seen no earlier ones.
const MAX_REPAIR: u16 = 62;

/// An epoch without chunks for so long can be followed by a lower one, and its numbers begin anew:
/// an origin sends every few milliseconds.
const MAX_QUIET: Span = Span::from_secs(3);
