//! Audio over TCP, as a server or as a client.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aulos_core::{Backoff, Instant, Span};
use aulos_engine::standby::StandbyRequest;
use aulos_rt::channel::{Receiver, TryRecvError, bounded};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with, sockopt};
use rustix::time::Timespec;

use super::fifo::{DrainStatus, READ_BYTES, drain};
use super::{ByteFeed, FeedState, Feeder, NextPoll};

/// Listens and plays one sender at a time; further connections are rejected meanwhile.
///
/// A connection that begins as an HTTP request or as TLS is closed: a web page can make a browser
/// send either to any port, which would be played as noise and block the real sender.
#[derive(Debug)]
pub struct TcpServerFeeder {
    address: String,
    listener: Option<TcpListener>,
    sender: Option<TcpStream>,
    /// The sender's first bytes have been checked.
    recognized: bool,
    /// Connections that were closed because of their first bytes.
    refused: Arc<AtomicU64>,
    backoff: Backoff,
    feed: ByteFeed,
    scratch: Vec<u8>,
}

impl TcpServerFeeder {
    /// A feeder that listens on `address` (`host:port`) from its first tick on.
    #[must_use]
    pub fn new(address: String, feed: ByteFeed) -> Self {
        Self {
            address,
            listener: None,
            sender: None,
            recognized: false,
            refused: Arc::default(),
            backoff: feed.backoff(),
            feed,
            scratch: vec![0; READ_BYTES],
        }
    }

    /// Counts connections that are closed because of their first bytes.
    #[must_use]
    pub fn with_refusal_counter(mut self, refused: Arc<AtomicU64>) -> Self {
        self.refused = refused;
        self
    }

    fn listen(&mut self, now: Instant) -> io::Result<()> {
        if self.listener.is_none() && self.backoff.is_due(now) {
            let listener = TcpListener::bind(&self.address)?;
            listener.set_nonblocking(true)?;
            self.backoff.succeeded(now);
            self.feed.report(FeedState::Waiting);
            self.listener = Some(listener);
        }
        Ok(())
    }

    fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        // A limit per tick, so that a flood of connections cannot block the thread.
        for _ in 0..MAX_ACCEPTS {
            let Ok((stream, _)) = listener.accept() else { return };
            if self.sender.is_none() && stream.set_nonblocking(true).is_ok() {
                self.sender = Some(stream);
                self.recognized = false;
            }
        }
    }

    /// Checks the first bytes of a new sender: true once they are known to be audio. Other senders
    /// are disconnected.
    fn recognize(&mut self) -> bool {
        let Some(sender) = self.sender.as_ref().filter(|_| !self.recognized) else { return true };
        let mut first = [0; OPENING_BYTES];
        match sender.peek(&mut first).map(|count| classify_opening(&first[..count])) {
            Ok(OpeningBytes::Unknown) => return false,
            Ok(OpeningBytes::Request) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                self.sender = None;
                return false;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            // The next read reports a socket error.
            Ok(OpeningBytes::Sound) | Err(_) => {}
        }
        self.recognized = true;
        true
    }
}

/// The classification of a connection's first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpeningBytes {
    /// Audio, or the end of the connection.
    Sound,
    /// An HTTP request line, or a TLS handshake.
    Request,
    /// Too few bytes to decide.
    Unknown,
}

/// Audio begins like this by chance in one of four billion cases.
fn classify_opening(first: &[u8]) -> OpeningBytes {
    let begins = |method: &&[u8]| first.starts_with(method);
    // RFC 8446, 5.1 and 4: a handshake record that contains a ClientHello.
    let is_tls = matches!(first, [0x16, 3, 0..=4, _, _, 1, ..]);
    if METHODS.iter().any(begins) || is_tls {
        return OpeningBytes::Request;
    }
    let may_be = |method: &&[u8]| !first.is_empty() && method.starts_with(first);
    let may_be_tls = first.len() < 6 && matches!(first, [0x16] | [0x16, 3, ..]);
    if METHODS.iter().any(may_be) || may_be_tls {
        OpeningBytes::Unknown
    } else {
        OpeningBytes::Sound
    }
}

/// The methods of RFC 9110, 9.3, and of RFC 5789.
const METHODS: [&[u8]; 9] = [
    b"GET ",
    b"POST ",
    b"HEAD ",
    b"PUT ",
    b"OPTIONS ",
    b"DELETE ",
    b"PATCH ",
    b"CONNECT ",
    b"TRACE ",
];

/// The length of the longest method.
const OPENING_BYTES: usize = 8;

impl Feeder for TcpServerFeeder {
    fn tick(&mut self, now: Instant) -> NextPoll {
        if self.feed.is_abandoned() {
            return NextPoll::Never;
        }
        // It keeps listening, needed or not.
        self.feed.poll_demand();
        if let Err(error) = self.listen(now) {
            self.feed.report(FeedState::Failed(error.raw_os_error().unwrap_or(0)));
            self.backoff.failed(now);
            return NextPoll::Later;
        }
        self.accept();
        if !self.recognize() {
            return NextPoll::Later;
        }
        let Some(sender) = &mut self.sender else { return NextPoll::Later };
        match receive(sender, &mut self.feed, &mut self.scratch, now) {
            Ok(true) => return NextPoll::Soon,
            Ok(false) => self.feed.mark_ended(),
            Err(_) => self.feed.mark_lost(),
        }
        self.sender = None;
        self.feed.report(FeedState::Waiting);
        NextPoll::Soon
    }
}

/// Connects to a server and plays what it sends; reconnects without end.
#[derive(Debug)]
pub struct TcpClientFeeder {
    server: String,
    link: TcpLink,
    backoff: Backoff,
    feed: ByteFeed,
    scratch: Vec<u8>,
}

#[derive(Debug)]
enum TcpLink {
    Down,
    Connecting(TcpAttempt),
    Up(TcpStream),
}

/// An attempt to connect, which never waits.
#[derive(Debug)]
pub(super) enum TcpAttempt {
    /// The name is resolved on a thread of its own, because that may block for an unbounded time.
    Resolving(Receiver<io::Result<SocketAddr>>),
    Connecting(OwnedFd, Instant),
    Connected(TcpStream),
}

impl TcpAttempt {
    /// Begins to connect to `server` (`host:port`).
    pub(super) fn begin(server: &str) -> io::Result<Self> {
        if let Ok(address) = server.parse() {
            return start_connecting(address);
        }
        let (done, answer) = bounded(1);
        let server = server.to_owned();
        std::thread::Builder::new().name("aulos-resolve".into()).spawn(move || {
            let first = server
                .to_socket_addrs()
                .and_then(|mut found| found.next().ok_or_else(|| io::ErrorKind::NotFound.into()));
            // The feeder may be gone meanwhile.
            drop(done.try_send(first));
        })?;
        Ok(Self::Resolving(answer))
    }

    /// Continues it.
    pub(super) fn step(self, now: Instant) -> Result<Self, ConnectFailure> {
        match self {
            Self::Resolving(mut answer) => match answer.try_recv() {
                Ok(Ok(address)) => Ok(start_connecting(address)?),
                Err(TryRecvError::Empty) => Ok(Self::Resolving(answer)),
                Ok(Err(_)) | Err(TryRecvError::Closed) => Err(ConnectFailure::Unresolved),
            },
            Self::Connecting(socket, since) => Ok(finish_connecting(socket, since, now)?),
            connected @ Self::Connected(_) => Ok(connected),
        }
    }
}

impl TcpClientFeeder {
    /// A feeder that connects to `server` (`host:port`) at its first tick.
    #[must_use]
    pub fn new(server: String, feed: ByteFeed) -> Self {
        let scratch = vec![0; READ_BYTES];
        Self { server, link: TcpLink::Down, backoff: feed.backoff(), feed, scratch }
    }

    fn step(&mut self, now: Instant) -> Result<TcpLink, ConnectFailure> {
        match core::mem::replace(&mut self.link, TcpLink::Down) {
            TcpLink::Down if self.backoff.is_due(now) => {
                Ok(TcpLink::Connecting(TcpAttempt::begin(&self.server)?))
            }
            TcpLink::Down => Ok(TcpLink::Down),
            TcpLink::Connecting(attempt) => Ok(match attempt.step(now)? {
                TcpAttempt::Connected(stream) => TcpLink::Up(stream),
                attempt => TcpLink::Connecting(attempt),
            }),
            TcpLink::Up(mut stream) => {
                self.backoff.succeeded(now);
                match receive(&mut stream, &mut self.feed, &mut self.scratch, now) {
                    Ok(true) => Ok(TcpLink::Up(stream)),
                    Ok(false) => {
                        self.feed.mark_ended();
                        Err(io::Error::from_raw_os_error(libc::ECONNRESET).into())
                    }
                    Err(error) => Err(error.into()),
                }
            }
        }
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum ConnectFailure {
    /// The name has no address.
    Unresolved,
    Io(io::Error),
}

impl From<io::Error> for ConnectFailure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl ConnectFailure {
    /// The state of the source; the only error without a number is our own time-out.
    fn state(&self) -> FeedState {
        match self {
            Self::Unresolved => FeedState::Unresolved,
            Self::Io(error) => FeedState::Failed(error.raw_os_error().unwrap_or(libc::ETIMEDOUT)),
        }
    }
}

impl Feeder for TcpClientFeeder {
    fn tick(&mut self, now: Instant) -> NextPoll {
        if self.feed.is_abandoned() {
            return NextPoll::Never;
        }
        if self.feed.poll_demand() == StandbyRequest::Close {
            self.link = TcpLink::Down;
            self.feed.mark_ended();
            self.feed.report(FeedState::Waiting);
            return NextPoll::Later;
        }
        match self.step(now) {
            Ok(link) => self.link = link,
            Err(failure) => {
                self.link = TcpLink::Down;
                self.feed.mark_lost();
                self.feed.report(failure.state());
                self.backoff.failed(now);
            }
        }
        if matches!(self.link, TcpLink::Up(_)) { NextPoll::Soon } else { NextPoll::Later }
    }
}

/// Reads what is available; false when the sender has closed the connection.
fn receive(
    stream: &mut TcpStream,
    feed: &mut ByteFeed,
    scratch: &mut [u8],
    now: Instant,
) -> io::Result<bool> {
    match drain(stream, feed, scratch, now)? {
        DrainStatus::End => return Ok(false),
        DrainStatus::Empty => {}
        DrainStatus::Some | DrainStatus::Full => feed.report(FeedState::Running),
    }
    Ok(true)
}

fn start_connecting(address: SocketAddr) -> io::Result<TcpAttempt> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(TcpAttempt::Connecting(socket, Instant::ZERO)),
        Err(error) => Err(error.into()),
    }
}

fn finish_connecting(socket: OwnedFd, since: Instant, now: Instant) -> io::Result<TcpAttempt> {
    let since = if since == Instant::ZERO { now } else { since };
    let mut fds = [PollFd::new(&socket, PollFlags::OUT)];
    if poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? == 0 {
        return if now.since(since) > CONNECT_TIMEOUT {
            Err(io::ErrorKind::TimedOut.into())
        } else {
            Ok(TcpAttempt::Connecting(socket, since))
        };
    }
    sockopt::socket_error(&socket)??;
    Ok(TcpAttempt::Connected(TcpStream::from(socket)))
}

const MAX_ACCEPTS: usize = 16;
const CONNECT_TIMEOUT: Span = Span::from_secs(10);

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use aulos_core::SampleSpec;

    use super::*;

    /// `.invalid` is reserved for names that do not exist (RFC 6761, 6.4).
    #[test]
    fn a_name_without_address_is_said() {
        let (publisher, mut state) = aulos_rt::latest(FeedState::Waiting);
        let (feed, _items) = ByteFeed::new(SampleSpec::DEFAULT, publisher, 1);
        let mut feeder = TcpClientFeeder::new("nothing.invalid:1".to_owned(), feed);
        let begin = std::time::Instant::now();
        while *state.read() == FeedState::Waiting {
            assert!(begin.elapsed().as_secs() < 30, "no answer to a lookup");
            feeder.tick(Instant::ZERO);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(*state.read(), FeedState::Unresolved);
    }

    #[test]
    fn requests_and_handshakes_are_known_by_their_first_bytes_and_sound_is_not() {
        for request in ["GET / HTTP/1.1", "POST /x", "OPTIONS * ", "\x16\x03\x01\x02\x00\x01"] {
            assert_eq!(classify_opening(request.as_bytes()), OpeningBytes::Request, "{request:?}");
        }
        for torn in ["G", "POS", "OPTIONS", "\x16", "\x16\x03\x01"] {
            assert_eq!(classify_opening(torn.as_bytes()), OpeningBytes::Unknown, "{torn:?}");
        }
        for sound in ["", "\0\0\0\0", "GETX", "PPPP", "\x16\x16", "\x16\x03\x01\x02\x00\x02"] {
            assert_eq!(classify_opening(sound.as_bytes()), OpeningBytes::Sound, "{sound:?}");
        }
    }

    #[test]
    fn a_browsers_request_is_rejected_and_frees_the_slot_for_a_sender() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (publisher, _state) = aulos_rt::latest(FeedState::Waiting);
        let (feed, mut items) = ByteFeed::new(SampleSpec::DEFAULT, publisher, 1);
        let refused = Arc::new(AtomicU64::new(0));
        let mut server =
            TcpServerFeeder::new(port.to_string(), feed).with_refusal_counter(Arc::clone(&refused));
        let mut tick = |times: u64| {
            for _ in 0..times {
                assert_ne!(server.tick(Instant::ZERO), NextPoll::Never);
            }
        };
        tick(1);
        let mut page = TcpStream::connect(port).unwrap();
        page.write_all(b"POS").unwrap();
        tick(3);
        page.write_all(b"T / HTTP/1.1\r\nContent-Length: 4000\r\n\r\n").unwrap();
        page.write_all(&[0x55; 4_000]).unwrap();
        tick(3);
        assert_eq!(refused.load(Ordering::Relaxed), 1);
        assert!(items.pop().is_none(), "a request was played");
        // It is disconnected, whatever it has yet to send.
        page.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        assert!(!page.read(&mut [0]).is_ok_and(|count| count > 0));
        let mut sender = TcpStream::connect(port).unwrap();
        sender.write_all(&[0x55; 4_000]).unwrap();
        tick(3);
        assert!(items.pop().is_some(), "a sender is played");
    }
}
