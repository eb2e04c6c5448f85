//! Connects to a host by its name or address, without waiting.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;

use aulos_core::Instant;
use aulos_rt::channel::{Receiver, TryRecvError, bounded};
use aulos_session::connect::AddressRace;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with, sockopt};
use rustix::time::Timespec;

use crate::SystemClock;

/// An attempt to connect to a host, which never waits.
#[derive(Debug)]
pub(super) enum ConnectAttempt {
    /// The name is resolved on a thread of its own, because that may block for an unbounded time.
    Resolving(Receiver<io::Result<Vec<SocketAddr>>>),
    Connecting(ConnectRace),
    Connected(TcpStream),
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

impl ConnectAttempt {
    /// Begins to connect to `server`: `host:port`, an IPv6 address in brackets, which may have a
    /// zone (`[fe80::1%eth0]:4953`).
    pub(super) fn begin(server: &str) -> io::Result<Self> {
        if let Ok(address) = server.parse() {
            return Ok(Self::Connecting(ConnectRace::new(vec![address])));
        }
        Ok(Self::Resolving(begin_resolve(server)?))
    }

    /// Continues it.
    pub(super) fn step(self, now: Instant) -> Result<Self, ConnectFailure> {
        match self {
            Self::Resolving(mut answer) => match answer.try_recv() {
                Ok(Ok(found)) if !found.is_empty() => {
                    Self::Connecting(ConnectRace::new(found)).step(now)
                }
                Err(TryRecvError::Empty) => Ok(Self::Resolving(answer)),
                Ok(_) | Err(TryRecvError::Closed) => Err(ConnectFailure::Unresolved),
            },
            Self::Connecting(race) => Ok(race.step(now)?),
            connected @ Self::Connected(_) => Ok(connected),
        }
    }
}

/// Connects to the first of these addresses that answers, and waits for that.
///
/// # Errors
/// That of the last attempt, if all fail; `NotFound` without any address.
pub fn connect_to_any(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut race = ConnectRace::new(addresses);
    if race.race.is_lost() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the host name has no address"));
    }
    loop {
        race = match race.step(SystemClock::now())? {
            ConnectAttempt::Connected(stream) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            ConnectAttempt::Connecting(race) => race,
            ConnectAttempt::Resolving(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        let mut fds: Vec<_> =
            race.sockets.iter().map(|socket| PollFd::new(socket, PollFlags::OUT)).collect();
        // A signal ends the wait early.
        let _ready = poll(&mut fds, Some(&WAIT));
    }
}

/// Looks up the addresses of a server on a thread of its own.
pub(crate) fn begin_resolve(server: &str) -> io::Result<Receiver<io::Result<Vec<SocketAddr>>>> {
    let (done, answer) = bounded(1);
    let server = server.to_owned();
    std::thread::Builder::new().name("aulos-resolve".into()).spawn(move || {
        // The feeder may be gone meanwhile.
        drop(done.try_send(resolve(&server)));
    })?;
    Ok(answer)
}

/// Looks up the addresses of `host:port`. The resolver knows the names of zones, but no brackets.
fn resolve(server: &str) -> io::Result<Vec<SocketAddr>> {
    let (host, port) = server.rsplit_once(':').ok_or(io::ErrorKind::InvalidInput)?;
    let port: u16 = port.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Ok((host, port).to_socket_addrs()?.collect())
}

/// The sockets of a race between the addresses of a host.
#[derive(Debug)]
pub(super) struct ConnectRace {
    race: AddressRace,
    sockets: Vec<OwnedFd>,
    /// The error of the last attempt that failed.
    error: Option<io::Error>,
}

impl ConnectRace {
    fn new(found: Vec<SocketAddr>) -> Self {
        Self { race: AddressRace::new(found), sockets: Vec::new(), error: None }
    }

    fn step(mut self, now: Instant) -> io::Result<ConnectAttempt> {
        while let Some(address) = self.race.poll_output(now) {
            match start(address) {
                Ok(socket) => self.sockets.push(socket),
                Err(error) => self.fail(error),
            }
        }
        for socket in core::mem::take(&mut self.sockets) {
            match is_connected(&socket) {
                Ok(true) => return Ok(ConnectAttempt::Connected(TcpStream::from(socket))),
                Ok(false) => self.sockets.push(socket),
                Err(error) => self.fail(error),
            }
        }
        if self.race.is_lost() || self.race.is_expired(now) {
            return Err(self.error.unwrap_or_else(|| io::ErrorKind::TimedOut.into()));
        }
        Ok(ConnectAttempt::Connecting(self))
    }

    fn fail(&mut self, error: io::Error) {
        self.race.handle_failure();
        self.error = Some(error);
    }
}

fn start(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

fn is_connected(socket: &OwnedFd) -> io::Result<bool> {
    let mut fds = [PollFd::new(socket, PollFlags::OUT)];
    if poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? == 0 {
        return Ok(false);
    }
    sockopt::socket_error(socket)??;
    Ok(true)
}

/// How long a caller that waits is not told that another attempt is due.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
    use std::time::Duration;

    use super::*;

    fn connected(mut attempt: ConnectAttempt) -> Result<TcpStream, ConnectFailure> {
        for _ in 0..2_000 {
            attempt = match attempt.step(SystemClock::now())? {
                ConnectAttempt::Connected(stream) => return Ok(stream),
                attempt => attempt,
            };
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("it neither connects nor fails");
    }

    #[test]
    fn a_service_on_one_of_two_addresses_is_found() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let here = listener.local_addr().unwrap();
        // Nothing listens there: in the other family, and at another address.
        let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, here.port()));
        let v4 = SocketAddr::from(([127, 0, 0, 2], here.port()));
        for found in [vec![v6, here], vec![v4, v6, here], vec![here, v6]] {
            let stream = connected(ConnectAttempt::Connecting(ConnectRace::new(found))).unwrap();
            assert_eq!(stream.peer_addr().unwrap(), here);
        }
        assert_eq!(connect_to_any(vec![v6, here]).unwrap().peer_addr().unwrap(), here);
        assert_eq!(connect_to_any(vec![]).unwrap_err().kind(), io::ErrorKind::NotFound);
        let failure = connected(ConnectAttempt::Connecting(ConnectRace::new(vec![v6, v4])));
        let Err(ConnectFailure::Io(error)) = failure else { panic!("{failure:?}") };
        assert!(error.raw_os_error().is_some(), "{error}");
    }

    #[test]
    fn an_address_may_have_a_zone() {
        let zone = |server: &str| match resolve(server).as_deref() {
            Ok([SocketAddr::V6(address)]) => Some((address.port(), address.scope_id())),
            _ => None,
        };
        // The loopback interface has the first index.
        assert_eq!(zone("[fe80::1%lo]:4953"), Some((4_953, 1)));
        assert_eq!(zone("[fe80::1%1]:4953"), Some((4_953, 1)));
        assert_eq!(zone("[fe80::1%no-such-interface]:4953"), None);
        assert_eq!(zone("[::1]:4953"), Some((4_953, 0)));
        assert_eq!(resolve("127.0.0.1:1").unwrap(), [SocketAddr::from(([127, 0, 0, 1], 1))]);
        assert!(resolve("127.0.0.1").is_err() && resolve("127.0.0.1:99999").is_err());
    }
}
