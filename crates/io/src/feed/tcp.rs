//! Sound over a TCP connection, in either direction of connecting.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;

use aulos_core::{Instant, Span};
use aulos_engine::standby::Wish;
use aulos_rt::channel::{Receiver, TryRecvError, bounded};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with, sockopt};
use rustix::time::Timespec;

use super::fifo::{Drained, READ_BYTES, drain};
use super::{Backoff, ByteFeed, FeedState, Feeder, Next};

/// Listens, and plays one sender at a time; whoever comes while one is playing is turned away.
#[derive(Debug)]
pub struct TcpServer {
    address: String,
    listener: Option<TcpListener>,
    sender: Option<TcpStream>,
    backoff: Backoff,
    feed: ByteFeed,
    scratch: Vec<u8>,
}

impl TcpServer {
    /// A feeder that listens on `address` (`host:port`) from its first tick on.
    #[must_use]
    pub fn new(address: String, feed: ByteFeed) -> Self {
        Self {
            address,
            listener: None,
            sender: None,
            backoff: feed.backoff(),
            feed,
            scratch: vec![0; READ_BYTES],
        }
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
        // A bounded number per tick, so that a flood of connections cannot hold the thread.
        for _ in 0..MAX_ACCEPTS {
            let Ok((stream, _)) = listener.accept() else { return };
            if self.sender.is_none() && stream.set_nonblocking(true).is_ok() {
                self.sender = Some(stream);
            }
        }
    }
}

impl Feeder for TcpServer {
    fn tick(&mut self, now: Instant) -> Next {
        if self.feed.is_abandoned() {
            return Next::Never;
        }
        // Whether it is needed or not, it goes on listening.
        self.feed.wish();
        if let Err(error) = self.listen(now) {
            self.feed.report(FeedState::Failed(error.raw_os_error().unwrap_or(0)));
            self.backoff.failed(now);
            return Next::Later;
        }
        self.accept();
        let Some(sender) = &mut self.sender else { return Next::Later };
        match receive(sender, &mut self.feed, &mut self.scratch, now) {
            Ok(true) => return Next::Soon,
            Ok(false) => self.feed.end(),
            Err(_) => self.feed.lose(),
        }
        self.sender = None;
        self.feed.report(FeedState::Waiting);
        Next::Soon
    }
}

/// Connects to a server and plays what it sends; tries again for ever.
#[derive(Debug)]
pub struct TcpClient {
    server: String,
    link: Link,
    backoff: Backoff,
    feed: ByteFeed,
    scratch: Vec<u8>,
}

#[derive(Debug)]
enum Link {
    Down,
    /// A name is being looked up on a thread of its own, for that can take as long as it likes.
    Resolving(Receiver<io::Result<SocketAddr>>),
    Connecting(OwnedFd, Instant),
    Up(TcpStream),
}

impl TcpClient {
    /// A feeder that connects to `server` (`host:port`) at its first tick.
    #[must_use]
    pub fn new(server: String, feed: ByteFeed) -> Self {
        let scratch = vec![0; READ_BYTES];
        Self { server, link: Link::Down, backoff: feed.backoff(), feed, scratch }
    }

    fn resolve(&self) -> io::Result<Link> {
        if let Ok(address) = self.server.parse() {
            return start_connecting(address);
        }
        let (done, answer) = bounded(1);
        let server = self.server.clone();
        std::thread::Builder::new().name("aulos-resolve".into()).spawn(move || {
            let first = server
                .to_socket_addrs()
                .and_then(|mut found| found.next().ok_or_else(|| io::ErrorKind::NotFound.into()));
            // The feeder may have gone in the meantime.
            drop(done.try_send(first));
        })?;
        Ok(Link::Resolving(answer))
    }

    fn step(&mut self, now: Instant) -> io::Result<Link> {
        match core::mem::replace(&mut self.link, Link::Down) {
            Link::Down if self.backoff.is_due(now) => self.resolve(),
            Link::Down => Ok(Link::Down),
            Link::Resolving(mut answer) => match answer.try_recv() {
                Ok(address) => start_connecting(address?),
                Err(TryRecvError::Empty) => Ok(Link::Resolving(answer)),
                Err(TryRecvError::Closed) => Err(io::ErrorKind::NotFound.into()),
            },
            Link::Connecting(socket, since) => finish_connecting(socket, since, now),
            Link::Up(mut stream) => {
                self.backoff.succeeded(now);
                match receive(&mut stream, &mut self.feed, &mut self.scratch, now) {
                    Ok(true) => Ok(Link::Up(stream)),
                    Ok(false) => {
                        self.feed.end();
                        Err(io::ErrorKind::ConnectionReset.into())
                    }
                    Err(error) => Err(error),
                }
            }
        }
    }
}

impl Feeder for TcpClient {
    fn tick(&mut self, now: Instant) -> Next {
        if self.feed.is_abandoned() {
            return Next::Never;
        }
        if self.feed.wish() == Wish::Close {
            self.link = Link::Down;
            self.feed.end();
            self.feed.report(FeedState::Waiting);
            return Next::Later;
        }
        match self.step(now) {
            Ok(link) => self.link = link,
            Err(error) => {
                self.link = Link::Down;
                self.feed.lose();
                self.feed.report(FeedState::Failed(error.raw_os_error().unwrap_or(0)));
                self.backoff.failed(now);
            }
        }
        if matches!(self.link, Link::Up(_)) { Next::Soon } else { Next::Later }
    }
}

/// Takes what has come; false when the sender has closed the connection.
fn receive(
    stream: &mut TcpStream,
    feed: &mut ByteFeed,
    scratch: &mut [u8],
    now: Instant,
) -> io::Result<bool> {
    match drain(stream, feed, scratch, now)? {
        Drained::End => return Ok(false),
        Drained::Empty => {}
        Drained::Some | Drained::Full => feed.report(FeedState::Running),
    }
    Ok(true)
}

fn start_connecting(address: SocketAddr) -> io::Result<Link> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(Link::Connecting(socket, Instant::ZERO)),
        Err(error) => Err(error.into()),
    }
}

fn finish_connecting(socket: OwnedFd, since: Instant, now: Instant) -> io::Result<Link> {
    let since = if since == Instant::ZERO { now } else { since };
    let mut fds = [PollFd::new(&socket, PollFlags::OUT)];
    if poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? == 0 {
        return if now.since(since) > CONNECT_TIMEOUT {
            Err(io::ErrorKind::TimedOut.into())
        } else {
            Ok(Link::Connecting(socket, since))
        };
    }
    sockopt::socket_error(&socket)??;
    Ok(Link::Up(TcpStream::from(socket)))
}

const MAX_ACCEPTS: usize = 16;
const CONNECT_TIMEOUT: Span = Span::from_secs(10);
