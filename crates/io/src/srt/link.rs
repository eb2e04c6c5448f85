//! One end of a connection, with its socket.

use core::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use aulos_core::{Instant, ReconnectBackoff};
use aulos_proto::srt::RejectCode;
use aulos_rt::channel::{Receiver, TryRecvError};
use aulos_session::srt::{
    SrtCloseReason, SrtConfig, SrtEndpoint, SrtListenerConfig, SrtOutput, SrtStatus,
};
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::RetryTime;
use crate::feed::{StreamError, begin_resolve};
use crate::udp::{SocketOptions, bind_socket};

/// How a link connects.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "settings")]
pub struct SrtLinkConfig {
    /// Which end it is.
    pub role: SrtRole,
    /// `host:port`: what a caller calls, and what a listener listens on.
    pub address: String,
    /// Latency, passphrase, stream id.
    pub settings: SrtConfig,
}

/// Which end a link is.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_enums, reason = "a connection has two ends")]
pub enum SrtRole {
    /// It calls, again and again.
    Caller,
    /// It waits for one caller at a time.
    Listener(SrtListenerConfig),
}

/// A link, which is polled and never waits. A caller that fails calls again after a pause; a
/// listener waits for the next caller.
#[derive(Debug)]
pub struct SrtLink {
    config: SrtLinkConfig,
    state: State,
    backoff: ReconnectBackoff,
    /// Counts calls, so that each uses the next address of the name.
    calls: usize,
    problem: Option<SrtProblem>,
    refusal: Option<(SocketAddr, RejectCode)>,
    /// Sums over the sockets before this one.
    past: SrtStatus,
    retry: RetryTime,
    scratch: Vec<u8>,
}

#[derive(Debug)]
enum State {
    /// Closed, until a retry is due.
    Closed,
    /// The name is looked up.
    Resolving(Receiver<io::Result<Vec<SocketAddr>>>),
    Open(Box<OpenSocket>),
}

#[derive(Debug)]
struct OpenSocket {
    socket: UdpSocket,
    endpoint: SrtEndpoint,
}

/// What a poll has brought.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "what there is to know of a link")]
pub enum SrtLinkEvent {
    /// A connection begins.
    Connected,
    /// A payload, at its time.
    Payload(Vec<u8>),
    /// The connection is over.
    Ended(SrtCloseReason),
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SrtProblem {
    /// The name has no address.
    Unresolved,
    /// The socket cannot be opened; the system's error number.
    Socket(i32),
    /// The last connection has ended, or the last call has failed.
    Closed(SrtCloseReason),
    /// What came cannot be played.
    Unplayable(StreamError),
}

impl fmt::Display for SrtProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unresolved => f.write_str("the name of the server has no address"),
            Self::Socket(number) => f.write_str(&crate::feed::system_error_text(*number)),
            Self::Closed(reason) => write!(f, "{reason}"),
            Self::Unplayable(error) => write!(f, "the stream cannot be played: {error}"),
        }
    }
}

/// The status of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SrtLinkStatus {
    /// The peer and the counters, over all connections.
    pub srt: SrtStatus,
    /// Why there is no connection; the last reason, for a listener.
    pub problem: Option<SrtProblem>,
    /// The last caller that was refused.
    pub refusal: Option<(SocketAddr, RejectCode)>,
}

impl SrtLink {
    /// A link that opens its socket with the first poll. `seed` is of the pauses between calls.
    #[must_use]
    pub fn new(config: SrtLinkConfig, seed: u64) -> Self {
        Self {
            config,
            state: State::Closed,
            backoff: ReconnectBackoff::new(seed),
            calls: 0,
            problem: None,
            refusal: None,
            past: SrtStatus::default(),
            retry: RetryTime::default(),
            scratch: vec![0; MAX_DATAGRAM],
        }
    }

    /// Receives, sends and tells what has happened. To be called every few milliseconds while
    /// [`SrtLink::is_open`].
    pub fn poll(&mut self, now: Instant, mut on: impl FnMut(SrtLinkEvent)) {
        match core::mem::replace(&mut self.state, State::Closed) {
            State::Closed if self.backoff.is_due(now) => self.begin(now),
            State::Closed => {}
            State::Resolving(mut answer) => match answer.try_recv() {
                Err(TryRecvError::Empty) => self.state = State::Resolving(answer),
                Ok(Ok(found)) if !found.is_empty() => self.open_one_of(&found, now),
                Ok(_) | Err(TryRecvError::Closed) => self.fail(SrtProblem::Unresolved, now),
            },
            State::Open(mut open) => {
                receive(&mut open, &mut self.scratch, now);
                self.state = State::Open(open);
            }
        }
        self.drain(now, &mut on);
    }

    /// Sends a payload; false without a connection, or if it is too long.
    pub fn send(&mut self, now: Instant, payload: &[u8]) -> bool {
        let State::Open(open) = &mut self.state else { return false };
        open.endpoint.send(now, payload)
    }

    /// Ends the connection because what comes cannot be played. A caller calls again after a pause.
    pub fn refuse(&mut self, error: StreamError, now: Instant) {
        let State::Open(open) = &mut self.state else { return };
        open.endpoint.close(now);
        flush(open);
        self.problem = Some(SrtProblem::Unplayable(error));
        if self.is_caller() {
            self.pause(true, now);
            self.close_socket();
        }
    }

    /// Ends the connection and closes the socket; the next poll opens it again.
    pub fn close(&mut self, now: Instant) {
        if let State::Open(open) = &mut self.state {
            open.endpoint.close(now);
            flush(open);
        }
        self.problem = None;
        self.retry.set(None);
        self.close_socket();
    }

    /// Whether it has a socket, and so has to be polled soon.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Whether there is a connection.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        matches!(&self.state, State::Open(open) if open.endpoint.is_connected())
    }

    /// Whether it calls.
    #[must_use]
    pub const fn is_caller(&self) -> bool {
        matches!(self.config.role, SrtRole::Caller)
    }

    /// When it calls again, if it has failed.
    #[must_use]
    pub fn retry_time(&self) -> RetryTime {
        self.retry.clone()
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> SrtLinkStatus {
        let srt = match &self.state {
            State::Open(open) => self.past.plus(open.endpoint.status()),
            _ => self.past,
        };
        SrtLinkStatus { srt, problem: self.problem, refusal: self.refusal }
    }

    fn begin(&mut self, now: Instant) {
        if let Ok(address) = self.config.address.parse() {
            return self.open(address, now);
        }
        match begin_resolve(&self.config.address) {
            Ok(answer) => self.state = State::Resolving(answer),
            Err(error) => self.fail(socket_problem(&error), now),
        }
    }

    fn open_one_of(&mut self, found: &[SocketAddr], now: Instant) {
        let at = self.calls % found.len().max(1);
        self.calls = self.calls.wrapping_add(1);
        if let Some(address) = found.get(at) {
            self.open(*address, now);
        }
    }

    fn open(&mut self, address: SocketAddr, now: Instant) {
        match self.try_open(address, now) {
            Ok(open) => {
                if !self.is_caller() {
                    self.problem = None;
                    self.retry.set(None);
                }
                self.state = State::Open(Box::new(open));
            }
            Err(error) => self.fail(socket_problem(&error), now),
        }
    }

    fn try_open(&self, address: SocketAddr, now: Instant) -> io::Result<OpenSocket> {
        let mut seed = [0; 32];
        SystemRandom::new().fill(&mut seed).map_err(|_| io::ErrorKind::Other)?;
        let settings = self.config.settings.clone();
        let options = SocketOptions { receive_buffer: RECEIVE_BUFFER, ..SocketOptions::default() };
        let (local, endpoint) = match &self.config.role {
            SrtRole::Caller => {
                let local = match address {
                    SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                    SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
                };
                (local, SrtEndpoint::caller(settings, address, seed, now))
            }
            SrtRole::Listener(listener) => {
                (address, SrtEndpoint::listener(settings, listener.clone(), seed, now))
            }
        };
        Ok(OpenSocket { socket: bind_socket(local, &options)?, endpoint })
    }

    fn drain(&mut self, now: Instant, on: &mut impl FnMut(SrtLinkEvent)) {
        let State::Open(open) = &mut self.state else { return };
        if open.endpoint.is_connected() {
            self.backoff.succeeded(now);
        }
        let mut end = None;
        while let Some(output) = open.endpoint.poll_output() {
            match output {
                SrtOutput::Transmit { to, bytes } => transmit(&open.socket, to, &bytes),
                SrtOutput::Payload(payload) => on(SrtLinkEvent::Payload(payload)),
                SrtOutput::Connected { .. } => {
                    self.problem = None;
                    self.retry.set(None);
                    on(SrtLinkEvent::Connected);
                }
                SrtOutput::Refused { from, code } => self.refusal = Some((from, code)),
                SrtOutput::Closed(reason) => end = Some(reason),
                _ => {}
            }
        }
        let Some(reason) = end else { return };
        on(SrtLinkEvent::Ended(reason));
        self.problem = Some(SrtProblem::Closed(reason));
        if self.is_caller() {
            self.pause(matches!(reason, SrtCloseReason::Refused(_)), now);
            self.close_socket();
        }
    }

    fn fail(&mut self, problem: SrtProblem, now: Instant) {
        self.problem = Some(problem);
        self.pause(false, now);
    }

    /// Waits before the next call, longer if the peer has refused this one.
    fn pause(&mut self, is_refused: bool, now: Instant) {
        if is_refused {
            self.backoff.refused(now);
        } else {
            self.backoff.failed(now);
        }
        self.retry.set(Some(self.backoff.retry_at()));
    }

    fn close_socket(&mut self) {
        if let State::Open(open) = core::mem::replace(&mut self.state, State::Closed) {
            self.past = self.past.plus(open.endpoint.status());
            self.past.peer = None;
        }
    }
}

/// Reads what has arrived, and does what is due.
fn receive(open: &mut OpenSocket, scratch: &mut [u8], now: Instant) {
    for _ in 0..MAX_READS {
        match open.socket.recv_from(scratch) {
            Ok((length, from)) => {
                open.endpoint.handle_input(now, from, scratch.get(..length).unwrap_or_default());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            // An ICMP message about an earlier datagram.
            Err(_) => {}
        }
    }
    if open.endpoint.poll_timeout().is_some_and(|at| at <= now) {
        open.endpoint.handle_timeout(now);
    }
}

/// Sends what is left.
fn flush(open: &mut OpenSocket) {
    while let Some(output) = open.endpoint.poll_output() {
        if let SrtOutput::Transmit { to, bytes } = output {
            transmit(&open.socket, to, &bytes);
        }
    }
}

/// What the kernel does not take is lost, as on the network, and sent again.
fn transmit(socket: &UdpSocket, to: SocketAddr, bytes: &[u8]) {
    drop(socket.send_to(bytes, to));
}

fn socket_problem(error: &io::Error) -> SrtProblem {
    SrtProblem::Socket(error.raw_os_error().unwrap_or(libc::EIO))
}

/// Nothing longer is a packet of SRT.
const MAX_DATAGRAM: usize = 2_048;

/// Datagrams per poll: 25,000 a second.
const MAX_READS: usize = 256;

/// A second of 8 Mbit/s.
const RECEIVE_BUFFER: usize = 1 << 20;
