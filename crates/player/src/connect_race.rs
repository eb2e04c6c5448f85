//! The sockets of a race between the addresses of a server.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use aulos_core::{Instant, Span};
use aulos_session::connect::AddressRace;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with, sockopt};
use rustix::time::Timespec;

/// Connects to the first address of a server that answers.
#[derive(Debug)]
pub(crate) struct ConnectRace {
    race: AddressRace,
    sockets: Vec<OwnedFd>,
    /// The error of the last attempt that failed.
    failure: Option<io::Error>,
    /// When the older sockets are looked at again: the thread waits for the newest alone.
    poll_at: Instant,
}

impl ConnectRace {
    pub(crate) fn new(found: Vec<SocketAddr>) -> Self {
        let race = AddressRace::new(found).within(CONNECT_TIMEOUT);
        Self { race, sockets: Vec::new(), failure: None, poll_at: Instant::ZERO }
    }

    /// Continues it; `None` as long as it is undecided.
    pub(crate) fn step(&mut self, now: Instant) -> Option<io::Result<OwnedFd>> {
        self.poll_at = now + POLL_INTERVAL;
        // The next attempt follows a failure at once.
        while let Some(address) = self.race.poll_output(now) {
            match start(address) {
                Ok(socket) => self.sockets.push(socket),
                Err(error) => self.fail(error),
            }
            if let Some(socket) = self.connected() {
                return Some(Ok(socket));
            }
        }
        if let Some(socket) = self.connected() {
            return Some(Ok(socket));
        }
        if self.race.is_lost() {
            let unknown = || io::Error::other("the name has no address");
            return Some(Err(self.failure.take().unwrap_or_else(unknown)));
        }
        self.race.is_expired(now).then(|| Err(Errno::TIMEDOUT.into()))
    }

    /// The first socket that is connected; those that have failed are dropped.
    fn connected(&mut self) -> Option<OwnedFd> {
        for socket in core::mem::take(&mut self.sockets) {
            match is_connected(&socket) {
                Ok(true) => return Some(socket),
                Ok(false) => self.sockets.push(socket),
                Err(error) => self.fail(error),
            }
        }
        None
    }

    /// The socket to wait for: writable when it is connected.
    pub(crate) fn newest(&self) -> Option<BorrowedFd<'_>> {
        self.sockets.last().map(|socket| socket.as_fd())
    }

    /// When to call [`step`](Self::step) at the latest.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let race = self.race.poll_timeout();
        if self.sockets.len() > 1 { race.map(|at| at.min(self.poll_at)) } else { race }
    }

    fn fail(&mut self, error: impl Into<io::Error>) {
        self.race.handle_failure();
        self.failure = Some(error.into());
    }
}

/// A socket that is connecting.
fn start(address: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    // A Time request must leave at the instant that it names.
    sockopt::set_tcp_nodelay(&socket, true)?;
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

fn is_connected(socket: &OwnedFd) -> rustix::io::Result<bool> {
    let mut fds = [PollFd::new(socket, PollFlags::OUT)];
    if poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? == 0 {
        return Ok(false);
    }
    sockopt::socket_error(socket)??;
    Ok(true)
}

/// For all addresses together; then the name is looked up again.
const CONNECT_TIMEOUT: Span = Span::from_secs(4);

/// How often the older sockets are looked at.
const POLL_INTERVAL: Span = Span::from_millis(20);

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, TcpListener};

    use crate::clock;

    use super::*;

    #[test]
    fn a_server_on_one_of_two_addresses_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        // Nothing listens there: in the other family, and at another address.
        let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, here.port()));
        let v4 = SocketAddr::from(([127, 0, 0, 2], here.port()));
        let run = |found: Vec<SocketAddr>| {
            let mut race = ConnectRace::new(found);
            for _ in 0..4_000 {
                if let Some(done) = race.step(clock::now()) {
                    return done;
                }
                assert!(race.poll_timeout().is_some());
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            panic!("it neither connects nor fails");
        };
        for found in [vec![v6, here], vec![v4, v6, here], vec![here, v6]] {
            let socket = std::net::TcpStream::from(run(found).unwrap());
            assert_eq!(socket.peer_addr().unwrap(), here);
        }
        assert_eq!(run(vec![v6, v4]).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert!(run(vec![]).unwrap_err().to_string().contains("no address"));
    }
}
