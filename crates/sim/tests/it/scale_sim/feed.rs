//! What connects an edge with its origins: NATS, or a Snapcast connection.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use aulos_core::{Backoff, HEADROOM, Instant, Rng, Span};
use aulos_proto::nats::{ClockReply, ClockRequest, RepairRequest};
use aulos_proto::snap::Session;
use aulos_proto::snap::client::ClientInput;
use aulos_proto::snap::session::{SessionEvent, SessionInput, SessionOutput};
use aulos_proto::snap::wire::{Hello, ServerSettings, write_chunk_header};
use aulos_session::nats::{NatsInput, NatsInputConfig, NatsInputEvent, NatsInputOutput};
use aulos_session::snapcast::{
    PassConfig, SnapcastInput, SnapcastInputConfig, SnapcastInputOutput, SnapcastInputSink,
};
use aulos_sim::{Link, LocalClock, StreamLink};

use super::origin::payload;
use super::{ORIGIN_BUFFER, OriginNode, TICK, stream_header};

/// The network between the origins and one edge.
#[derive(Clone, Debug)]
pub(crate) struct SitePath {
    /// One-way delays to the edge and back, and the mean of what is added at random.
    pub(crate) down: Span,
    pub(crate) up: Span,
    pub(crate) jitter: Span,
    pub(crate) outages: Vec<Outage>,
}

/// The edge's connection to NATS breaks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    pub(crate) from: Instant,
    /// From then on a new connection can be made.
    pub(crate) until: Instant,
    /// When the edge knows of it, if no new connection could be made by then.
    pub(crate) noticed_after: Span,
}

/// Messages in order.
#[derive(Debug)]
struct MessageLink<T> {
    delay: Span,
    jitter: Span,
    random: Rng,
    in_flight: VecDeque<(Instant, T)>,
}

impl<T> MessageLink<T> {
    fn new(delay: Span, jitter: Span, seed: u64) -> Self {
        Self { delay, jitter, random: Rng::new(seed), in_flight: VecDeque::new() }
    }

    fn send(&mut self, now: Instant, message: T) {
        let jitter = self.random.exponential(self.jitter.as_nanos() as f64) as i64;
        let arrival = now + self.delay + Span::from_nanos(jitter);
        let behind = self.in_flight.back().map_or(Instant::ZERO, |(last, _)| *last);
        self.in_flight.push_back((arrival.max(behind), message));
    }

    fn receive(&mut self, now: Instant) -> Option<(Instant, T)> {
        if self.in_flight.front()?.0 > now {
            return None;
        }
        self.in_flight.pop_front()
    }
}

/// A message to an edge.
#[derive(Debug)]
enum Message {
    Record(Vec<u8>),
    Chunk(Vec<u8>),
    ClockReply(Vec<u8>),
}

/// A message from an edge.
#[derive(Debug)]
enum UpMessage {
    /// A request for the time of this node.
    Time(String, Vec<u8>),
    Repair(RepairRequest),
}

/// A source `nats:` with its connection and what the origins publish there.
#[derive(Debug)]
pub(crate) struct NatsFeed {
    input: NatsInput,
    path: SitePath,
    down: MessageLink<Message>,
    up: MessageLink<UpMessage>,
    /// Each with its next chunk and the time of its next record.
    origins: Vec<(OriginNode, u64, Instant)>,
    connection: NatsConnection,
    backoff: Backoff,
}

/// The state of the connection, as the edge sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NatsConnection {
    /// The next attempt is due.
    Down(Instant),
    /// The connection is being made.
    Connecting(Instant),
    Up,
}

impl NatsFeed {
    pub(crate) fn new(
        (sink, pass): (SnapcastInputSink, Option<PassConfig>),
        (path, origins): (SitePath, &[OriginNode]),
        (now, local): (Instant, Instant),
        seed: u64,
    ) -> Self {
        let publishing = |origin: &OriginNode| (*origin, origin.next_chunk(now), now);
        Self {
            input: NatsInput::new(NatsInputConfig { latency: Span::ZERO, pass, seed }, sink, local),
            down: MessageLink::new(path.down, path.jitter, seed),
            up: MessageLink::new(path.up, path.jitter, !seed),
            path,
            origins: origins.iter().map(publishing).collect(),
            connection: NatsConnection::Down(now),
            backoff: Backoff::half_jitter(NATS_FIRST_PAUSE, NATS_LONGEST_PAUSE, seed),
        }
    }

    /// Does what has happened until `now`: one tick.
    pub(crate) fn tick(&mut self, now: Instant, clock: LocalClock) {
        self.connect(now, clock.read(now));
        // Before the chunks of this tick: what is sent later must not arrive first.
        while let Some((arrived, message)) = self.up.receive(now) {
            match message {
                UpMessage::Time(node, request) => self.answer(arrived, &node, &request),
                UpMessage::Repair(missing) => self.repair(arrived, missing),
            }
        }
        self.publish(now);
        while let Some((arrived, message)) = self.down.receive(now) {
            let event = match &message {
                Message::Record(bytes) => NatsInputEvent::Record(bytes),
                Message::Chunk(bytes) => NatsInputEvent::Chunk(bytes),
                Message::ClockReply(bytes) => NatsInputEvent::ClockReply(bytes),
            };
            self.input.handle_input(clock.read(arrived), event);
        }
        let local = clock.read(now);
        self.input.handle_timeout(local);
        while let Some(output) = self.input.poll_output() {
            let message = match output {
                NatsInputOutput::AskTime { node, id } => {
                    let mut bytes = Vec::new();
                    ClockRequest { id, sent: local }.write(&mut bytes);
                    UpMessage::Time(node, bytes)
                }
                NatsInputOutput::Repair(missing) => UpMessage::Repair(missing),
                _ => continue,
            };
            if self.connection == NatsConnection::Up && !self.is_out(now) {
                self.up.send(now, message);
            }
        }
    }

    fn is_out(&self, now: Instant) -> bool {
        self.path.outages.iter().any(|outage| (outage.from..outage.until).contains(&now))
    }

    /// The chunks and records that are due, once per tick of the origins' thread.
    fn publish(&mut self, now: Instant) {
        let is_up = self.connection == NatsConnection::Up && !self.is_out(now);
        for (origin, next, record_at) in &mut self.origins {
            if *record_at <= now {
                *record_at += RECORD_INTERVAL;
                if is_up && origin.is_alive(now) {
                    self.down.send(now, Message::Record(origin.record()));
                }
            }
            loop {
                let since = origin.complete_at(*next) - Instant::ZERO;
                let tick = PUBLISH_TICK.as_nanos();
                let ticks = (since.as_nanos() + tick - 1) / tick;
                let sent = Instant::ZERO + PUBLISH_TICK * ticks;
                if sent > now {
                    break;
                }
                if is_up && origin.is_alive(sent) {
                    self.down.send(sent, Message::Chunk(origin.message(*next)));
                }
                *next += 1;
            }
        }
    }

    fn connect(&mut self, now: Instant, local: Instant) {
        let has_broken = |outage: &Outage| {
            outage.from <= now && now >= outage.from + outage.noticed_after && {
                now - outage.from - outage.noticed_after < TICK
            }
        };
        if self.path.outages.iter().any(has_broken) && self.connection == NatsConnection::Up {
            let why = io::ErrorKind::NotConnected;
            self.input.handle_input(local, NatsInputEvent::Disconnected(why));
            self.down.in_flight.clear();
            self.up.in_flight.clear();
            self.backoff.reset();
            self.connection = NatsConnection::Down(now + self.backoff.failed(now));
        }
        match self.connection {
            NatsConnection::Down(at) if at <= now && self.is_out(now) => {
                self.connection = NatsConnection::Down(now + self.backoff.failed(now));
            }
            NatsConnection::Down(at) if at <= now => {
                let trip = self.path.up + self.path.down;
                self.connection = NatsConnection::Connecting(now + trip * ROUND_TRIPS);
            }
            NatsConnection::Connecting(at) if at <= now => {
                self.connection = NatsConnection::Up;
                self.input.handle_input(local, NatsInputEvent::Connected);
                // The record that was stored last is that of the highest epoch.
                let newest = self.origins.iter().map(|(origin, ..)| origin);
                if let Some(newest) = newest.max_by_key(|origin| origin.epoch) {
                    let record = Message::Record(newest.record());
                    self.down.send(now + self.path.up, record);
                }
            }
            _ => {}
        }
    }

    /// Each origin sends again what it has sent with this epoch and can still be played.
    fn repair(&mut self, now: Instant, missing: RepairRequest) {
        for (origin, next, _) in &self.origins {
            let is_kept = |chunk: &u64| now - origin.complete_at(*chunk) <= ORIGIN_BUFFER;
            let asked = missing.first..missing.first + u64::from(missing.count);
            let is_sender = origin.epoch == missing.epoch && origin.is_alive(now);
            for chunk in asked.filter(|chunk| is_sender && chunk < next && is_kept(chunk)) {
                self.down.send(now, Message::Chunk(origin.message(chunk)));
            }
        }
    }

    fn answer(&mut self, now: Instant, node: &str, request: &[u8]) {
        let origin = self.origins.iter().map(|(origin, ..)| origin).find(|one| one.name == node);
        let (Some(origin), Ok(request)) = (origin, ClockRequest::parse(request)) else { return };
        if !origin.is_alive(now) || self.is_out(now) {
            return;
        }
        let received = origin.clock.read(now);
        let mut bytes = Vec::new();
        ClockReply { id: request.id, latency: received - request.sent, sent: received }
            .write(&mut bytes);
        self.down.send(now, Message::ClockReply(bytes));
    }
}

/// A source `snapcast:` that passes chunks, and its session at the origin.
#[derive(Debug)]
pub(crate) struct SnapcastFeed {
    input: SnapcastInput,
    origin: OriginNode,
    session: Option<Session>,
    down: StreamLink,
    up: StreamLink,
    links: (Link, Link, u64),
    next: u64,
    /// The tick of its sends among those of a wait.
    phase: u64,
}

impl SnapcastFeed {
    pub(crate) fn new(
        sink: SnapcastInputSink,
        (pass, latency): (Option<PassConfig>, Span),
        (path, origin): (&SitePath, OriginNode),
        local: Instant,
        seed: u64,
    ) -> Self {
        let config = SnapcastInputConfig { hello: Hello::new("edge"), latency, pass, seed };
        // The detour of a lost segment is not modelled here: NATS has none either.
        let link = |delay| Link { delay, jitter: path.jitter, segment: 65_536, ..Link::CABLE };
        let links = (link(path.down), link(path.up), seed);
        Self {
            input: SnapcastInput::new(config, sink, local),
            origin,
            session: None,
            down: StreamLink::new(links.0, seed),
            up: StreamLink::new(links.1, !seed),
            links,
            next: 0,
            phase: seed % WAIT_TICKS,
        }
    }

    pub(crate) fn tick(&mut self, now: Instant, clock: LocalClock) {
        self.run_origin(now);
        while let Some(arrived) = self.down.poll_timeout().filter(|at| *at <= now) {
            let bytes = self.down.receive(arrived).unwrap_or_default();
            self.input.handle_input(clock.read(arrived), ClientInput::Received(&bytes));
        }
        let local = clock.read(now);
        self.input.handle_timeout(local);
        let mut bytes = Vec::new();
        while let Some(output) = self.input.poll_output() {
            match output {
                SnapcastInputOutput::Connect => {
                    let (down, up, seed) = self.links;
                    self.down = StreamLink::new(down, seed);
                    self.up = StreamLink::new(up, !seed);
                    self.session = Some(Session::new(self.origin.clock.read(now)));
                    self.input.connected(local);
                }
                SnapcastInputOutput::Send(message) => message.write(local, &mut bytes),
                _ => self.session = None,
            }
        }
        if self.session.is_some() {
            self.up.send(now, &bytes);
        }
    }

    fn run_origin(&mut self, now: Instant) {
        let Some(session) = &mut self.session else { return };
        let clock = self.origin.clock;
        while let Some(arrived) = self.up.poll_timeout().filter(|at| *at <= now) {
            let bytes = self.up.receive(arrived).unwrap_or_default();
            let local = clock.read(arrived);
            session.handle_input(local, SessionInput::Received(&bytes));
            while let Some(output) = session.poll_output() {
                match output {
                    SessionOutput::Event(SessionEvent::Hello(_)) => {
                        let settings =
                            ServerSettings { buffer: ORIGIN_BUFFER, ..ServerSettings::default() };
                        session.handle_input(local, SessionInput::Settings(settings));
                        session.handle_input(local, SessionInput::Stream(stream_header()));
                        // With the history that a new client gets.
                        self.next = self.origin.next_chunk(arrived).saturating_sub(HISTORY);
                    }
                    SessionOutput::Send(message) => {
                        let mut bytes = Vec::new();
                        message.write(local, &mut bytes);
                        self.down.send(arrived, &bytes);
                    }
                    _ => {}
                }
            }
        }
        let tick = ((now - Instant::ZERO).as_nanos() / TICK.as_nanos()) as u64;
        if !session.is_ready_for_audio() || tick % WAIT_TICKS != self.phase {
            return;
        }
        let mut bytes = Vec::new();
        while self.origin.complete_at(self.next) <= now {
            let mut headroom = [0; HEADROOM];
            let payload = payload(self.next);
            let stamp = self.origin.stamp(self.next);
            let used = write_chunk_header(&mut headroom, clock.read(now), stamp, payload.len());
            bytes.extend_from_slice(&headroom[HEADROOM - used..]);
            bytes.extend_from_slice(&payload);
            self.next += 1;
        }
        self.down.send(now, &bytes);
    }
}

/// What an edge that passes chunks needs to know of its station.
pub(crate) fn pass_config(buffer: Span, input_buffer: Span, chunk: Span) -> PassConfig {
    PassConfig {
        codec: aulos_core::Codec::Pcm,
        spec: super::spec(),
        codec_header: Arc::clone(&stream_header()),
        chunk,
        buffer,
        input_buffer,
    }
}

/// As in `aulos-server`'s thread of NATS.
const PUBLISH_TICK: Span = Span::from_millis(10);
const RECORD_INTERVAL: Span = Span::from_secs(2);
const NATS_FIRST_PAUSE: Span = Span::from_millis(50);
const NATS_LONGEST_PAUSE: Span = Span::from_secs(2);

/// TCP, the greeting of NATS, its answer, the subscriptions.
const ROUND_TRIPS: i64 = 4;

/// Ticks between two sends to a client with a buffer of a second, as in `aulos-io`'s reactors.
pub(crate) const WAIT_TICKS: u64 = 20;

/// Chunks of history for a new client: its buffer less a margin of a tenth.
const HISTORY: u64 = 45;
