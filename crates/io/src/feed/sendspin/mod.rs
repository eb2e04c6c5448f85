//! Performs the I/O of a [`SendspinInput`]: connects to a server, or waits for servers that connect.
//!
//! As with every feeder, sockets are read on the tick of a reactor. The kernel stamps what arrives, so
//! that a tick does not blur the comparison of the clocks.

mod socket;
#[cfg(test)]
mod tests;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aulos_core::{Backoff, Instant, Rng, Span};
use aulos_session::sendspin::{
    MAX_PEERS, SendspinInput, SendspinInputCounts, SendspinInputError, SendspinInputOutput,
};

use super::connect::{ConnectAttempt, ConnectFailure};
use super::{Feeder, NextPoll};
use crate::SystemClock;
use socket::{WsEvent, WsSocket};

/// Where a source and its server meet.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "what the caller chooses")]
pub struct SendspinEndpoint {
    /// `host:port`, to connect to or to listen on.
    pub address: String,
    /// The path of the WebSocket.
    pub path: String,
    /// Whether the source waits for servers that connect.
    pub listens: bool,
}

/// What happened to all Sendspin sources.
#[derive(Debug, Default)]
#[allow(clippy::exhaustive_structs, reason = "plain counters")]
pub struct SendspinCounters {
    /// Connections that have failed or could not be made.
    pub failures: AtomicU64,
    /// Connections that were refused while another server played, or one too many.
    pub refused: AtomicU64,
    /// Messages that do not decrypt.
    pub forged: AtomicU64,
    /// Messages that were passed over because their content makes no sense.
    pub malformed: AtomicU64,
    /// Chunks that were played.
    pub played: AtomicU64,
    /// Chunks that came too late to be played.
    pub late: AtomicU64,
    /// Chunks whose time is too far in the future.
    pub early: AtomicU64,
    /// Chunks whose time is not after that of the one before.
    pub repeated: AtomicU64,
    /// Chunks that could not be decoded.
    pub damaged: AtomicU64,
    /// Chunks that were dropped while they waited.
    pub dropped: AtomicU64,
    /// Gaps that were filled with silence.
    pub gaps: AtomicU64,
}

impl SendspinCounters {
    /// The counters and their stable names.
    #[must_use]
    pub fn named(&self) -> [(&'static str, &AtomicU64); 11] {
        [
            ("sendspin_sources_failed", &self.failures),
            ("sendspin_servers_refused", &self.refused),
            ("sendspin_messages_forged", &self.forged),
            ("sendspin_messages_malformed", &self.malformed),
            ("sendspin_chunks_played", &self.played),
            ("sendspin_chunks_late", &self.late),
            ("sendspin_chunks_early", &self.early),
            ("sendspin_chunks_repeated", &self.repeated),
            ("sendspin_chunks_damaged", &self.damaged),
            ("sendspin_chunks_dropped", &self.dropped),
            ("sendspin_gaps_filled", &self.gaps),
        ]
    }

    /// Adds what has happened to a source since `before`.
    pub fn add(&self, counts: SendspinInputCounts, before: SendspinInputCounts) {
        let values = |of: SendspinInputCounts| {
            [
                of.failures,
                of.refused,
                of.forged,
                of.malformed,
                of.played,
                of.late,
                of.early,
                of.repeated,
                of.damaged,
                of.dropped,
                of.gaps,
            ]
        };
        let differences = values(counts).into_iter().zip(values(before));
        for ((_, counter), (count, before)) in self.named().into_iter().zip(differences) {
            counter.fetch_add(count - before, Ordering::Relaxed);
        }
    }
}

/// Connects a [`SendspinInput`] with its servers.
#[derive(Debug)]
pub struct SendspinFeeder {
    endpoint: SendspinEndpoint,
    input: SendspinInput,
    listener: Option<TcpListener>,
    /// For the port.
    backoff: Backoff,
    attempt: Option<ConnectAttempt>,
    links: Vec<Link>,
    /// The number of the last connection.
    number: u32,
    masks: Rng,
    counters: Arc<SendspinCounters>,
    counted: SendspinInputCounts,
    scratch: Vec<u8>,
}

/// A connection.
#[derive(Debug)]
struct Link {
    number: u32,
    socket: WsSocket,
    /// Until the WebSocket is open.
    deadline: Option<Instant>,
}

impl SendspinFeeder {
    /// A feeder that connects when `input` wants it, or listens from its first tick on. `masks` should
    /// not be guessable.
    #[must_use]
    pub fn new(
        endpoint: SendspinEndpoint,
        input: SendspinInput,
        masks: Rng,
        counters: Arc<SendspinCounters>,
    ) -> Self {
        Self {
            endpoint,
            input,
            listener: None,
            backoff: Backoff::exact(LISTEN_PAUSE, LISTEN_PAUSE),
            attempt: None,
            links: Vec::new(),
            number: 0,
            masks,
            counters,
            counted: SendspinInputCounts::default(),
            scratch: vec![0; READ_BYTES],
        }
    }

    /// Opens the port, and takes those who connect.
    fn listen(&mut self, now: Instant) -> io::Result<()> {
        if self.listener.is_none() && self.backoff.is_due(now) {
            let listener = TcpListener::bind(&self.endpoint.address)?;
            listener.set_nonblocking(true)?;
            self.listener = Some(listener);
        }
        let Some(listener) = &self.listener else { return Ok(()) };
        for _ in 0..MAX_ACCEPTS {
            let Ok((socket, _)) = listener.accept() else { break };
            let is_full = self.links.len() >= MAX_LINKS;
            if let Ok(socket) = WsSocket::accept(socket, &self.endpoint.path)
                && !is_full
            {
                self.number = self.number.wrapping_add(1);
                let deadline = Some(now + HANDSHAKE_TIMEOUT);
                self.links.push(Link { number: self.number, socket, deadline });
            } else {
                self.counters.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Continues the attempt to connect.
    fn connect(&mut self, now: Instant) -> Result<(), SendspinInputError> {
        let Some(attempt) = self.attempt.take() else { return Ok(()) };
        let next = attempt.step(now).map_err(|failure| match failure {
            ConnectFailure::Unresolved => SendspinInputError::Name,
            ConnectFailure::Io(error) => SendspinInputError::Io(error.kind()),
        })?;
        match next {
            ConnectAttempt::Connected(socket) => {
                let SendspinEndpoint { address, path, .. } = &self.endpoint;
                let socket = WsSocket::ask(socket, (address, path), self.masks.next_u64());
                let socket = socket.map_err(|error| SendspinInputError::Io(error.kind()))?;
                self.number = self.number.wrapping_add(1);
                let deadline = Some(now + HANDSHAKE_TIMEOUT);
                self.links.push(Link { number: self.number, socket, deadline });
            }
            attempt => self.attempt = Some(attempt),
        }
        Ok(())
    }

    /// Reads what has arrived on a connection.
    fn read(&mut self, index: usize, now: Instant) -> Result<(), SendspinInputError> {
        let Self { links, input, scratch, .. } = self;
        let Some(link) = links.get_mut(index) else { return Ok(()) };
        let mut is_taken = true;
        for _ in 0..MAX_READS {
            let number = link.number;
            let deadline = &mut link.deadline;
            let has_more = link.socket.read(scratch, |at, event| match event {
                WsEvent::Open => {
                    *deadline = None;
                    is_taken = input.connected(at, number);
                }
                WsEvent::Message(is_text, message) => {
                    input.handle_message(at, number, is_text, message);
                }
            })?;
            if !has_more || !is_taken {
                break;
            }
        }
        link.socket.flush()?;
        match link.deadline.is_some_and(|deadline| deadline <= now) {
            true => Err(SendspinInputError::Io(io::ErrorKind::TimedOut)),
            false if !is_taken => Err(SendspinInputError::Closed),
            false => Ok(()),
        }
    }

    /// Does what the source wants.
    fn execute(&mut self, now: Instant) {
        while let Some(output) = self.input.poll_output() {
            match output {
                SendspinInputOutput::Connect => {
                    match ConnectAttempt::begin(&self.endpoint.address) {
                        Ok(attempt) => self.attempt = Some(attempt),
                        Err(error) => {
                            let why = SendspinInputError::Io(error.kind());
                            self.input.disconnected(now, None, why);
                        }
                    }
                }
                SendspinInputOutput::Send(number, message) => {
                    let link = self.links.iter_mut().find(|link| link.number == number);
                    let Some(link) = link else { continue };
                    let Some((writer, out)) = link.socket.writer() else { continue };
                    self.input.write((number, message), SystemClock::now(), writer, out);
                    if let Err(why) = link.socket.flush() {
                        self.end(number, now, why);
                    }
                }
                SendspinInputOutput::Disconnect(number) => {
                    if let Some(index) = self.links.iter().position(|link| link.number == number) {
                        self.links.remove(index).socket.close();
                    }
                }
                _ => {}
            }
        }
    }

    /// A connection has failed.
    fn end(&mut self, number: u32, now: Instant, why: SendspinInputError) {
        if let Some(index) = self.links.iter().position(|link| link.number == number) {
            let link = self.links.remove(index);
            let number = link.deadline.is_none().then_some(link.number);
            if number.is_some() || !self.endpoint.listens {
                self.input.disconnected(now, number, why);
            } else {
                self.counters.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Feeder for SendspinFeeder {
    fn tick(&mut self, now: Instant) -> NextPoll {
        if self.input.is_abandoned() {
            return NextPoll::Never;
        }
        if self.endpoint.listens {
            if let Err(error) = self.listen(now) {
                self.backoff.failed(now);
                self.input.disconnected(now, None, SendspinInputError::Io(error.kind()));
            }
        } else if let Err(why) = self.connect(now) {
            self.input.disconnected(now, None, why);
        }
        // What has arrived comes first: its times are before this tick.
        for index in (0..self.links.len()).rev() {
            let number = self.links.get(index).map(|link| link.number);
            if let (Err(why), Some(number)) = (self.read(index, now), number) {
                self.end(number, now, why);
            }
            self.execute(now);
        }
        self.input.handle_timeout(now);
        self.execute(now);
        let counts = self.input.counts();
        self.counters.add(counts, core::mem::replace(&mut self.counted, counts));
        let is_active = !self.links.is_empty() || self.attempt.is_some();
        let is_active = is_active || self.input.poll_timeout().is_some();
        if is_active { NextPoll::Soon } else { NextPoll::Later }
    }
}

/// The size and number of reads per tick: a flood must not block the reactor.
const READ_BYTES: usize = 16 * 1024;
const MAX_READS: usize = 16;

/// Connections at once, those with a handshake under way included.
const MAX_LINKS: usize = 2 * MAX_PEERS;

/// Connections that are taken per tick.
const MAX_ACCEPTS: usize = 4;

/// Time for the handshake of a WebSocket.
const HANDSHAKE_TIMEOUT: Span = Span::from_secs(5);

/// Pause before a port that is taken is tried again.
const LISTEN_PAUSE: Span = Span::from_secs(5);
