//! Snapcast in the simulation: one server with one station, and its peers.
//!
//! The server is a minimal version of the driver in `aulos-io`: it reads what has arrived, drains
//! the session, stamps at the last moment, and sends every chunk to all clients. The audio is chunk
//! numbers, so that players can detect missing chunks, or what a test makes of them.

use std::collections::VecDeque;
use std::sync::Arc;

use aulos_core::{Codec, HEADROOM, Instant, SampleSpec, Span};
use aulos_proto::snap::session::{self, CloseReason};
use aulos_proto::snap::sync::OffsetFilter;
use aulos_proto::snap::wire::{Hello, ServerSettings, codec_header, write_chunk_header};
use aulos_proto::snap::{Session, SnapcastClient, client};

use crate::{Link, LocalClock, StreamLink};

/// Interval between chunks.
pub const CHUNK: Span = Span::from_millis(20);

/// Time from a chunk's timestamp to its playout.
pub const BUFFER: Span = Span::from_secs(1);

/// A server and its connections.
#[derive(Debug)]
pub struct SimServer {
    now: Instant,
    clock: LocalClock,
    codec_header: Arc<[u8]>,
    payload: fn(u64) -> Vec<u8>,
    next_chunk: u64,
    connections: Vec<Connection>,
}

impl SimServer {
    /// A server with this clock, at the start of the simulation.
    #[must_use]
    pub fn new(clock: LocalClock) -> Self {
        Self::with_audio(clock, SampleSpec::DEFAULT, |number| {
            let mut payload = number.to_le_bytes().to_vec();
            payload.resize(300, 0);
            payload
        })
    }

    /// A server that sends PCM of this spec. `payload` makes the chunk of a number.
    #[must_use]
    pub fn with_audio(clock: LocalClock, spec: SampleSpec, payload: fn(u64) -> Vec<u8>) -> Self {
        let codec_header = codec_header(Codec::Pcm, spec, &[]).unwrap_or_default();
        Self {
            now: Instant::ZERO,
            clock,
            payload,
            codec_header: codec_header.into(),
            next_chunk: 0,
            connections: Vec::new(),
        }
    }

    /// Connects a peer now, over the links `up` and `down`; returns the connection's number.
    pub fn connect(&mut self, mut peer: Peer, up: Link, down: Link, seed: u64) -> usize {
        match &mut peer {
            Peer::Player(player) => player.connect(self.now),
            Peer::Other(other) => other.connect(self.now),
            Peer::Script(_) => {}
        }
        self.connections.push(Connection {
            up: StreamLink::new(up, seed),
            down: StreamLink::new(down, !seed),
            session: Session::new(self.clock.read(self.now)),
            peer,
            ended: None,
            is_cut: false,
        });
        self.connections.len() - 1
    }

    /// Ends a connection without a word to either end. Its peer lives on.
    pub fn disconnect(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        connection.up.cut();
        connection.down.cut();
        connection.is_cut = true;
    }

    /// Connects the peer of an ended connection again.
    pub fn reconnect(&mut self, number: usize, up: Link, down: Link, seed: u64) {
        let connection = &mut self.connections[number];
        connection.up = StreamLink::new(up, seed);
        connection.down = StreamLink::new(down, !seed);
        connection.session = Session::new(self.clock.read(self.now));
        connection.is_cut = false;
    }

    /// The simulated time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Runs the simulation until `end`.
    pub fn run_until(&mut self, end: Instant) {
        self.step();
        while let Some(next) = self.poll_timeout().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.step();
        }
        self.now = self.now.max(end);
    }

    /// The connection with that number.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn connection(&self, number: usize) -> &Connection {
        &self.connections[number]
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let chunk = self.clock.world_at(self.timestamp(self.next_chunk + 1));
        let timers = self.connections.iter().filter_map(|each| each.poll_timeout(self.clock));
        timers.chain([chunk]).min()
    }

    fn step(&mut self) {
        let chunk = self.take_chunk();
        for connection in &mut self.connections {
            connection.run_session(self.now, self.clock, &self.codec_header);
            if let Some(bytes) = &chunk
                && !connection.is_cut
                && connection.session.is_ready_for_audio()
            {
                connection.down.send(self.now, bytes);
            }
            connection.run_peer(self.now, self.clock);
        }
    }

    /// A chunk is sent when its last frame has been captured.
    fn take_chunk(&mut self) -> Option<Vec<u8>> {
        let now = self.clock.read(self.now);
        if self.timestamp(self.next_chunk + 1) > now {
            return None;
        }
        let mut bytes = vec![0; HEADROOM];
        bytes.extend((self.payload)(self.next_chunk));
        let (headroom, payload) = bytes.split_at_mut(HEADROOM);
        let timestamp = self.timestamp(self.next_chunk);
        let used = write_chunk_header(headroom, now, timestamp, payload.len());
        self.next_chunk += 1;
        Some(bytes.split_off(HEADROOM - used))
    }

    fn timestamp(&self, chunk: u64) -> Instant {
        let number = i64::try_from(chunk).unwrap_or(i64::MAX);
        self.clock.read(Instant::ZERO) + CHUNK * number
    }
}

/// One connection, with the state of both ends.
#[derive(Debug)]
pub struct Connection {
    up: StreamLink,
    down: StreamLink,
    session: Session,
    peer: Peer,
    ended: Option<(Instant, CloseReason)>,
    is_cut: bool,
}

impl Connection {
    /// When, and why, the server closed the connection.
    #[must_use]
    pub const fn ended(&self) -> Option<(Instant, CloseReason)> {
        self.ended
    }

    /// The server's counters.
    #[must_use]
    pub const fn counts(&self) -> session::SessionStats {
        self.session.stats()
    }

    /// The player at the other end, if it is one.
    #[must_use]
    pub fn player(&self) -> Option<&Player> {
        match &self.peer {
            Peer::Player(player) => Some(player),
            Peer::Script(_) | Peer::Other(_) => None,
        }
    }

    fn poll_timeout(&self, server: LocalClock) -> Option<Instant> {
        let session = self.session.poll_timeout().filter(|_| !self.is_cut);
        let session = session.map(|local| server.world_at(local));
        let peer = match &self.peer {
            Peer::Player(player) => player.poll_timeout(),
            Peer::Other(other) => other.poll_timeout(),
            Peer::Script(script) => script.front().map(|(at, _)| *at),
        };
        let ways = [self.up.poll_timeout(), self.down.poll_timeout()];
        ways.into_iter().chain([session, peer]).flatten().min()
    }

    /// Runs the server's session.
    fn run_session(&mut self, now: Instant, clock: LocalClock, codec_header: &Arc<[u8]>) {
        let local = clock.read(now);
        while let Some(bytes) = self.up.receive(now) {
            self.session.handle_input(local, session::SessionInput::Received(&bytes));
            self.drain(now, local, codec_header);
        }
        if !self.is_cut && self.session.poll_timeout().is_some_and(|due| due <= local) {
            self.session.handle_timeout(local);
            self.drain(now, local, codec_header);
        }
    }

    fn drain(&mut self, now: Instant, local: Instant, codec_header: &Arc<[u8]>) {
        while let Some(output) = self.session.poll_output() {
            match output {
                session::SessionOutput::Event(session::SessionEvent::Hello(_)) => {
                    let settings = ServerSettings { buffer: BUFFER, ..ServerSettings::default() };
                    self.session.handle_input(local, session::SessionInput::Settings(settings));
                    let stream = session::SessionInput::Stream(Arc::clone(codec_header));
                    self.session.handle_input(local, stream);
                }
                session::SessionOutput::Send(outgoing) => {
                    let mut bytes = Vec::new();
                    outgoing.write(local, &mut bytes);
                    self.down.send(now, &bytes);
                }
                session::SessionOutput::Close(cause) => self.ended = Some((now, cause)),
                _ => {}
            }
        }
    }

    /// Runs the peer.
    fn run_peer(&mut self, now: Instant, server: LocalClock) {
        let mut bytes = Vec::new();
        match &mut self.peer {
            Peer::Script(script) => {
                while script.front().is_some_and(|(at, _)| *at <= now) {
                    bytes.extend(script.pop_front().map(|(_, due)| due).unwrap_or_default());
                }
                while self.down.receive(now).is_some() {}
            }
            Peer::Player(player) => {
                while let Some(piece) = self.down.receive(now) {
                    player.receive(now, server, &piece, &mut bytes);
                }
                player.handle_timeout(now, server, &mut bytes);
            }
            Peer::Other(other) => {
                while let Some(piece) = self.down.receive(now) {
                    other.receive(now, &piece, &mut bytes);
                }
                other.handle_timeout(now, &mut bytes);
            }
        }
        if self.ended.is_none() {
            self.up.send(now, &bytes);
        }
    }
}

/// The other end of a connection.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a handful per test")]
#[non_exhaustive]
pub enum Peer {
    /// A well-behaved client.
    Player(Player),
    /// Sends these bytes at these simulated times, whatever the server sends.
    Script(VecDeque<(Instant, Vec<u8>)>),
    /// A client of the test.
    Other(Box<dyn SimPeer>),
}

/// A client that a test brings. All times are simulated; what it appends to `out` is sent.
pub trait SimPeer: core::fmt::Debug {
    /// It is connected.
    fn connect(&mut self, now: Instant);
    /// When it is called next, if nothing arrives before.
    fn poll_timeout(&self) -> Option<Instant>;
    /// Bytes of the server.
    fn receive(&mut self, now: Instant, bytes: &[u8], out: &mut Vec<u8>);
    /// Does what is due.
    fn handle_timeout(&mut self, now: Instant, out: &mut Vec<u8>);
}

/// A client that records when it would play each chunk.
#[derive(Debug)]
pub struct Player {
    clock: LocalClock,
    filter: OffsetFilter,
    name: String,
    client: Option<SnapcastClient>,
    played: Vec<PlayedChunk>,
    ended: Option<client::DisconnectReason>,
}

/// One chunk, as received by a player.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlayedChunk {
    /// Number of the chunk.
    pub chunk: u64,
    /// Simulated time of arrival.
    pub arrived: Instant,
    /// Deviation of its playout from the correct time, positive for late; `None` before the clocks
    /// have been compared.
    pub error: Option<Span>,
    /// Time from arrival to playout; negative if it arrived too late.
    pub early: Option<Span>,
}

impl Player {
    /// A player with this clock, which estimates the server's clock with this filter.
    #[must_use]
    pub fn new(name: &str, clock: LocalClock, filter: OffsetFilter) -> Self {
        Self { clock, filter, name: name.to_owned(), client: None, played: Vec::new(), ended: None }
    }

    /// All chunks received.
    #[must_use]
    pub fn played(&self) -> &[PlayedChunk] {
        &self.played
    }

    /// Why it closed the connection.
    #[must_use]
    pub const fn ended(&self) -> Option<client::DisconnectReason> {
        self.ended
    }

    fn connect(&mut self, now: Instant) {
        let config = client::ClientConfig { hello: Hello::new(&self.name), filter: self.filter };
        self.client = Some(SnapcastClient::new(config, self.clock.read(now)));
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let local = self.client.as_ref()?.poll_timeout()?;
        Some(self.clock.world_at(local))
    }

    fn receive(&mut self, now: Instant, server: LocalClock, bytes: &[u8], out: &mut Vec<u8>) {
        let local = self.clock.read(now);
        if let Some(client) = &mut self.client {
            client.handle_input(local, client::ClientInput::Received(bytes));
        }
        self.drain(now, server, out);
    }

    fn handle_timeout(&mut self, now: Instant, server: LocalClock, out: &mut Vec<u8>) {
        let local = self.clock.read(now);
        if let Some(client) = &mut self.client {
            client.handle_timeout(local);
        }
        self.drain(now, server, out);
    }

    fn drain(&mut self, now: Instant, server: LocalClock, out: &mut Vec<u8>) {
        let local = self.clock.read(now);
        let Some(client) = &mut self.client else { return };
        loop {
            let (timestamp, chunk) = match client.poll_output() {
                None => return,
                Some(client::ClientOutput::Send(outgoing)) => {
                    outgoing.write(local, out);
                    continue;
                }
                Some(client::ClientOutput::Close(cause)) => {
                    self.ended = Some(cause);
                    continue;
                }
                Some(client::ClientOutput::Chunk { timestamp, payload }) => {
                    let number = payload.first_chunk().copied().unwrap_or_default();
                    (timestamp, u64::from_le_bytes(number))
                }
                Some(_) => continue,
            };
            let played = client.playout(timestamp).map(|local| self.clock.world_at(local));
            let wanted = server.world_at(timestamp + BUFFER);
            self.played.push(PlayedChunk {
                chunk,
                arrived: now,
                error: played.map(|played| played - wanted),
                early: played.map(|played| played - now),
            });
        }
    }
}
