//! Audio over TCP, as a server or as a client.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aulos_core::{Backoff, Instant, ReconnectBackoff, Span};
use aulos_engine::standby::StandbyRequest;
use rustix::net::sockopt;

use super::connect::{ConnectAttempt, ConnectFailure};
use super::fifo::{DrainStatus, READ_BYTES, drain};
use super::{ByteFeed, FeedState, Feeder, NextPoll};

/// Listens and plays one sender at a time; further connections are rejected while it sends.
///
/// A sender that vanished without closing its connection must not keep others out: with a sender
/// that is silent, connections are accepted, and the first of them that sends audio takes its
/// place. Connections that send nothing at all, as checks of the port do, are closed after a while.
///
/// A connection that begins as an HTTP request or as TLS is closed: a web page can make a browser
/// send either to any port, which would be played as noise and block the real sender.
#[derive(Debug)]
pub struct TcpServerFeeder {
    address: String,
    timeout: Option<Span>,
    listener: Option<TcpListener>,
    sender: Option<TcpSender>,
    /// Connections that have not sent audio yet, oldest first.
    newcomers: Vec<Newcomer>,
    /// Connections that were closed because of their first bytes.
    refused: Arc<AtomicU64>,
    backoff: Backoff,
    feed: ByteFeed,
    scratch: Vec<u8>,
}

/// A connection that has not sent audio yet.
#[derive(Debug)]
struct Newcomer {
    stream: TcpStream,
    since: Instant,
}

impl TcpServerFeeder {
    /// A feeder that listens on `address` (`host:port`) from its first tick on. A sender is
    /// disconnected when nothing has arrived for `timeout`.
    #[must_use]
    pub fn new(address: String, timeout: Option<Span>, feed: ByteFeed) -> Self {
        Self {
            address,
            timeout,
            listener: None,
            sender: None,
            newcomers: Vec::with_capacity(MAX_NEWCOMERS),
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

    /// Whether another sender may begin.
    fn is_vacant(&self, now: Instant) -> bool {
        self.sender.as_ref().is_none_or(|sender| sender.silence(now) >= VACANT_AFTER)
    }

    fn accept(&mut self, now: Instant) {
        let Some(listener) = &self.listener else { return };
        let is_vacant = self.is_vacant(now);
        // A limit per tick, so that a flood of connections cannot block the thread.
        for _ in 0..MAX_ACCEPTS {
            let Ok((stream, _)) = listener.accept() else { return };
            if is_vacant && prepare(&stream).is_ok() {
                if self.newcomers.len() == MAX_NEWCOMERS {
                    self.newcomers.remove(0);
                }
                self.newcomers.push(Newcomer { stream, since: now });
            }
        }
    }

    /// Lets the first newcomer that sends audio begin, and disconnects those that never will.
    fn admit(&mut self, now: Instant) {
        if !self.is_vacant(now) {
            return self.newcomers.clear();
        }
        let mut at = 0;
        while let Some(newcomer) = self.newcomers.get(at) {
            let mut first = [0; OPENING_BYTES];
            match newcomer.stream.peek(&mut first) {
                Ok(count @ 1..) => match classify_opening(&first[..count]) {
                    OpeningBytes::Sound => {
                        let stream = self.newcomers.remove(at).stream;
                        self.newcomers.clear();
                        self.end_sender(ByteFeed::mark_lost);
                        self.sender = Some(TcpSender { stream, heard_at: now });
                        return;
                    }
                    OpeningBytes::Request => {
                        self.refused.fetch_add(1, Ordering::Relaxed);
                        self.newcomers.remove(at);
                        continue;
                    }
                    OpeningBytes::Unknown => {}
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // It has gone.
                Ok(_) | Err(_) => {
                    self.newcomers.remove(at);
                    continue;
                }
            }
            if now.since(newcomer.since) >= FIRST_BYTE_TIMEOUT {
                self.newcomers.remove(at);
            } else {
                at += 1;
            }
        }
    }

    fn end_sender(&mut self, mark: impl FnOnce(&mut ByteFeed)) {
        if self.sender.take().is_some() {
            mark(&mut self.feed);
            self.feed.report(FeedState::Waiting);
        }
    }
}

/// A connected sender.
#[derive(Debug)]
struct TcpSender {
    stream: TcpStream,
    /// When something arrived last, or was held back by us.
    heard_at: Instant,
}

impl TcpSender {
    /// Reads what is available; false when the sender has closed the connection. A sender from
    /// which nothing has arrived for `timeout` has failed.
    fn receive(
        &mut self,
        feed: &mut ByteFeed,
        scratch: &mut [u8],
        (now, timeout): (Instant, Option<Span>),
    ) -> io::Result<bool> {
        match drain(&mut self.stream, feed, scratch, now)? {
            DrainStatus::End => return Ok(false),
            DrainStatus::Empty if timeout.is_some_and(|timeout| self.silence(now) >= timeout) => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            DrainStatus::Empty => {}
            DrainStatus::Some | DrainStatus::Full => {
                self.heard_at = now;
                feed.report(FeedState::Running);
            }
        }
        Ok(true)
    }

    fn silence(&self, now: Instant) -> Span {
        now.since(self.heard_at)
    }
}

/// Makes reads return at once, and the kernel notice a peer that is gone without a word: its
/// machine lost power, or the network between is cut.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    Ok(sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?)
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
            self.feed.will_retry(self.backoff.retry_at());
            return NextPoll::Later;
        }
        self.accept(now);
        self.admit(now);
        let Some(sender) = &mut self.sender else { return NextPoll::Later };
        let limit = (now, self.timeout);
        match sender.receive(&mut self.feed, &mut self.scratch, limit) {
            Ok(true) if self.feed.is_refused() => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                self.end_sender(ByteFeed::mark_lost);
            }
            Ok(true) => {}
            Ok(false) => self.end_sender(ByteFeed::mark_ended),
            Err(_) => self.end_sender(ByteFeed::mark_lost),
        }
        NextPoll::Soon
    }
}

/// Connects to a server and plays what it sends; reconnects without end.
#[derive(Debug)]
pub struct TcpClientFeeder {
    server: String,
    timeout: Option<Span>,
    link: TcpLink,
    backoff: ReconnectBackoff,
    feed: ByteFeed,
    scratch: Vec<u8>,
}

#[derive(Debug)]
enum TcpLink {
    Down,
    Connecting(ConnectAttempt),
    Up(TcpSender),
}

impl TcpClientFeeder {
    /// A feeder that connects to `server` (`host:port`) at its first tick, and again when nothing
    /// has arrived for `timeout`.
    #[must_use]
    pub fn new(server: String, timeout: Option<Span>, feed: ByteFeed) -> Self {
        let scratch = vec![0; READ_BYTES];
        Self {
            server,
            timeout,
            link: TcpLink::Down,
            backoff: feed.reconnect_backoff(),
            feed,
            scratch,
        }
    }

    fn step(&mut self, now: Instant) -> Result<TcpLink, ConnectFailure> {
        match core::mem::replace(&mut self.link, TcpLink::Down) {
            TcpLink::Down if self.backoff.is_due(now) => {
                Ok(TcpLink::Connecting(ConnectAttempt::begin(&self.server)?))
            }
            TcpLink::Down => Ok(TcpLink::Down),
            TcpLink::Connecting(attempt) => Ok(match attempt.step(now)? {
                ConnectAttempt::Connected(stream) => {
                    prepare(&stream)?;
                    TcpLink::Up(TcpSender { stream, heard_at: now })
                }
                attempt => TcpLink::Connecting(attempt),
            }),
            TcpLink::Up(mut sender) => {
                self.backoff.succeeded(now);
                let limit = (now, self.timeout);
                match sender.receive(&mut self.feed, &mut self.scratch, limit) {
                    Ok(true) => Ok(TcpLink::Up(sender)),
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
            Ok(_) if self.feed.is_refused() => {
                self.link = TcpLink::Down;
                self.feed.mark_lost();
                // The feed names the format in its place.
                self.feed.report(FeedState::Waiting);
                self.backoff.refused(now);
                self.feed.will_retry(self.backoff.retry_at());
            }
            Ok(link) => self.link = link,
            Err(failure) => {
                self.link = TcpLink::Down;
                self.feed.mark_lost();
                self.feed.report(failure.state());
                self.backoff.failed(now);
                self.feed.will_retry(self.backoff.retry_at());
            }
        }
        if matches!(self.link, TcpLink::Up(_)) { NextPoll::Soon } else { NextPoll::Later }
    }
}

const MAX_ACCEPTS: usize = 16;

/// Connections that may wait to send: the next sender and some checks of the port.
const MAX_NEWCOMERS: usize = 4;

/// A sender connects in order to send; a check of the port does not.
const FIRST_BYTE_TIMEOUT: Span = Span::from_secs(10);

/// Longer than a network in trouble pauses, and soon enough for a sender that was started anew.
const VACANT_AFTER: Span = Span::from_secs(2);

/// Together 25 s until a peer that does not answer is gone, without a packet while audio flows.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::SocketAddr;

    use aulos_core::SampleSpec;

    use super::*;

    /// `.invalid` is reserved for names that do not exist (RFC 6761, 6.4).
    #[test]
    fn a_name_without_address_is_said() {
        let (publisher, mut state) = aulos_rt::latest(FeedState::Waiting);
        let (feed, _items) = ByteFeed::new(SampleSpec::DEFAULT, publisher, 1);
        let retry = feed.retry_time();
        let mut feeder = TcpClientFeeder::new("nothing.invalid:1".to_owned(), None, feed);
        let begin = std::time::Instant::now();
        while *state.read() == FeedState::Waiting {
            assert!(begin.elapsed().as_secs() < 30, "no answer to a lookup");
            feeder.tick(Instant::ZERO);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(*state.read(), FeedState::Unresolved);
        assert!(retry.get().is_some());
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

    /// A listening feeder at a time of its own.
    struct Fixture {
        server: TcpServerFeeder,
        address: SocketAddr,
        items: aulos_rt::ring::Consumer<aulos_engine::source::SourceItem>,
        state: aulos_rt::LatestReader<FeedState>,
        now: Instant,
    }

    impl Fixture {
        fn new(timeout: Option<Span>) -> Self {
            let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let (publisher, state) = aulos_rt::latest(FeedState::Waiting);
            let (feed, items) = ByteFeed::new(SampleSpec::DEFAULT, publisher, 1);
            let server = TcpServerFeeder::new(address.to_string(), timeout, feed);
            let mut all = Self { server, address, items, state, now: Instant::ZERO };
            all.after(0);
            all
        }

        fn connect(&self) -> TcpStream {
            let stream = TcpStream::connect(self.address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            stream
        }

        /// Ticks some seconds later; returns whether audio was played.
        fn after(&mut self, seconds: i64) -> bool {
            self.now += Span::from_secs(seconds);
            for _ in 0..3 {
                assert_ne!(self.server.tick(self.now), NextPoll::Never);
            }
            core::iter::from_fn(|| self.items.pop())
                .filter(|item| matches!(item, aulos_engine::source::SourceItem::Block(_)))
                .count()
                > 0
        }
    }

    fn is_closed(mut stream: &TcpStream) -> bool {
        !stream.read(&mut [0]).is_ok_and(|count| count > 0)
    }

    #[test]
    fn a_sender_that_is_silent_is_replaced_by_one_that_sends() {
        let mut fixture = Fixture::new(None);
        let mut vanished = fixture.connect();
        vanished.write_all(&[0x55; 4_000]).unwrap();
        assert!(fixture.after(0));
        // While it sends, others are turned away.
        let turned_away = fixture.connect();
        assert!(!fixture.after(1) && is_closed(&turned_away));
        fixture.after(2);
        // A check of the port replaces nobody, and does not keep the next sender out.
        let checks: Vec<TcpStream> = (0..9).map(|_| fixture.connect()).collect();
        fixture.after(0);
        assert_eq!(*fixture.state.read(), FeedState::Running);
        let mut next = fixture.connect();
        next.write_all(&[0x55; 4_000]).unwrap();
        assert!(fixture.after(0), "the next sender is not played");
        assert!(is_closed(&vanished));
        checks.iter().for_each(|check| assert!(is_closed(check)));
    }

    #[test]
    fn a_sender_that_pauses_stays_until_another_one_sends() {
        let mut fixture = Fixture::new(None);
        let mut paused = fixture.connect();
        paused.write_all(&[0x55; 4_000]).unwrap();
        assert!(fixture.after(0));
        let _check = fixture.connect();
        fixture.after(3_000);
        paused.write_all(&[0x55; 4_000]).unwrap();
        assert!(fixture.after(0));
    }

    #[test]
    fn there_is_a_limit_to_the_first_byte_and_between_bytes() {
        let mut fixture = Fixture::new(Some(Span::from_secs(60)));
        let check = fixture.connect();
        fixture.after(0);
        fixture.after(10);
        assert!(is_closed(&check));
        let mut sender = fixture.connect();
        for _ in 0..3 {
            sender.write_all(&[0x55; 4_000]).unwrap();
            assert!(fixture.after(0));
            fixture.after(59);
            assert_eq!(*fixture.state.read(), FeedState::Running);
        }
        fixture.after(1);
        assert!(is_closed(&sender));
        assert_eq!(*fixture.state.read(), FeedState::Waiting);
    }

    #[test]
    fn the_kernel_asks_whether_the_sender_is_still_there() {
        let mut fixture = Fixture::new(None);
        let mut sender = fixture.connect();
        sender.write_all(&[0x55; 4_000]).unwrap();
        assert!(fixture.after(0));
        let stream = &fixture.server.sender.as_ref().unwrap().stream;
        assert!(sockopt::socket_keepalive(stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(stream).unwrap(), KEEPALIVE_IDLE);
    }

    #[test]
    fn a_browsers_request_is_rejected_and_frees_the_slot_for_a_sender() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (publisher, _state) = aulos_rt::latest(FeedState::Waiting);
        let (feed, mut items) = ByteFeed::new(SampleSpec::DEFAULT, publisher, 1);
        let refused = Arc::new(AtomicU64::new(0));
        let mut server = TcpServerFeeder::new(port.to_string(), None, feed)
            .with_refusal_counter(Arc::clone(&refused));
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
        page.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert!(!page.read(&mut [0]).is_ok_and(|count| count > 0));
        let mut sender = TcpStream::connect(port).unwrap();
        sender.write_all(&[0x55; 4_000]).unwrap();
        tick(3);
        assert!(items.pop().is_some(), "a sender is played");
    }
}
