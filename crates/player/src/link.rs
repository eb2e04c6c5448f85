//! The connection to the server: finding it, connecting, and the transport.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use aulos_core::{Instant, Span};
use aulos_proto::snap::client::ClientOutgoing;
use aulos_rt::channel::Sender;
use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::address::ServerAddress;
use crate::clock;
use crate::connect_race::ConnectRace;
use crate::discovery::find;
use crate::inbox::{PlayerCommand, Resolution};
use crate::tls::TlsClient;
use crate::transport::{Transport, TransportEvent};

/// What to connect to.
#[derive(Clone, Debug)]
pub(crate) struct LinkTarget {
    pub(crate) address: ServerAddress,
    /// Name of the server among those that a search finds.
    pub(crate) name: Option<String>,
    pub(crate) tls: Option<TlsClient>,
}

/// The connection, or the attempt.
#[derive(Debug)]
pub(crate) struct Link {
    target: LinkTarget,
    state: LinkState,
    /// Address and host that the present attempt is for: those of the target, or what a search has
    /// found.
    address: ServerAddress,
    /// Whether that is a server that has answered a search.
    is_found: bool,
    /// Searches without a server until now.
    searches: i64,
}

#[derive(Debug, Default)]
enum LinkState {
    #[default]
    Closed,
    /// The name is being looked up.
    LookingUp,
    /// The addresses are being tried.
    Connecting(ConnectRace),
    /// Connected. Until the handshakes are complete there is a deadline.
    Open { transport: Box<Transport>, deadline: Option<Instant> },
}

/// What a call has found.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    Nothing,
    /// The server is connected, and all handshakes are complete.
    Connected,
    /// A search has found a server: its name and address.
    Found(String, ServerAddress),
    /// No server has answered a search.
    Searching(String),
    /// The server has closed the connection, or it or the attempt has failed.
    Failed(io::Error),
}

impl Link {
    pub(crate) fn new(target: LinkTarget) -> Self {
        let address = target.address.clone();
        Self { target, state: LinkState::Closed, address, is_found: false, searches: 0 }
    }

    /// Begins an attempt. A name is looked up and a server is searched for anew each time, by a
    /// thread of its own because that can block for any time; the answer comes as a command.
    pub(crate) fn begin(&mut self, answers: &Sender<PlayerCommand>, now: Instant) -> LinkEvent {
        self.close();
        let address = self.target.address.clone();
        if let Ok(ip) = address.host.parse::<IpAddr>() {
            return self.connect(vec![SocketAddr::new(ip, address.port)], now);
        }
        self.state = LinkState::LookingUp;
        let (name, answers) = (self.target.name.clone(), answers.clone());
        let time = (SEARCH_TIME * (1 + self.searches)).min(MAX_SEARCH_TIME);
        let lookup = move || {
            let found = match address.service() {
                // As after a search in vain: a server on this machine is tried.
                Some(_) if !cfg!(feature = "mdns") => Ok(Resolution::NotFound(Vec::new())),
                Some(service) => find(service, name.as_deref(), time).map(|found| match found {
                    Ok(found) => Resolution::Found(found),
                    Err(others) => Resolution::NotFound(others),
                }),
                None => (address.host.as_str(), address.port)
                    .to_socket_addrs()
                    .map(|found| Resolution::Addresses(found.collect())),
            };
            // Without a player, the answer is not needed.
            drop(answers.try_send(PlayerCommand::Resolved(found)));
        };
        match std::thread::Builder::new().name("aulos-lookup".to_owned()).spawn(lookup) {
            Ok(_) => LinkEvent::Nothing,
            Err(error) => self.fail(error),
        }
    }

    /// Where the server is; connects to it. The second event follows the first one.
    pub(crate) fn resolved(
        &mut self,
        found: io::Result<Resolution>,
        now: Instant,
    ) -> [LinkEvent; 2] {
        if !matches!(self.state, LinkState::LookingUp) {
            return [LinkEvent::Nothing, LinkEvent::Nothing];
        }
        self.address = self.target.address.clone();
        self.is_found = matches!(found, Ok(Resolution::Found(_)));
        match found {
            Ok(Resolution::Addresses(addresses)) => {
                [LinkEvent::Nothing, self.connect(addresses, now)]
            }
            Ok(Resolution::Found(found)) => {
                self.searches = 0;
                let port = found.addresses.first().map_or(0, SocketAddr::port);
                (self.address.host, self.address.port) = (found.host, port);
                let mut shown = self.address.clone();
                if let Some(first) = found.addresses.first() {
                    shown.host = first.ip().to_string();
                }
                [LinkEvent::Found(found.name, shown), self.connect(found.addresses, now)]
            }
            Ok(Resolution::NotFound(others)) => {
                self.searches += 1;
                let event = LinkEvent::Searching(self.search_message(&others));
                // A server that listens on loopback alone does not announce itself.
                let own = SocketAddr::from((Ipv4Addr::LOCALHOST, self.target.address.port));
                self.address.host = own.ip().to_string();
                match self.target.name {
                    None => [event, self.connect(vec![own], now)],
                    Some(_) => [event, self.fail(Errno::HOSTUNREACH.into())],
                }
            }
            Err(error) => [LinkEvent::Nothing, self.fail(error)],
        }
    }

    fn search_message(&self, others: &[String]) -> String {
        let service = &self.target.address.host;
        match &self.target.name {
            _ if !cfg!(feature = "mdns") => {
                "this program was built without the search for servers \
                                             (feature `mdns`); trying this machine, name the \
                                             server for another one"
                    .to_owned()
            }
            None => format!(
                "no server answers mDNS queries for {service}; searching, also on this machine"
            ),
            Some(name) if others.is_empty() => {
                format!("`{name}` does not answer mDNS queries for {service}; searching")
            }
            Some(name) => format!(
                "`{name}` does not answer mDNS queries for {service}, but {} does; searching",
                others.join(", ")
            ),
        }
    }

    /// The address of this machine, if the present attempt tries it for want of another one.
    pub(crate) fn own_machine(&self) -> Option<ServerAddress> {
        let is_own = self.target.address.service().is_some() && !self.is_found;
        is_own.then(|| self.address.clone())
    }

    /// Whether a failed attempt has only tried this machine for want of another one.
    pub(crate) const fn is_searching(&self) -> bool {
        self.searches > 0
    }

    fn connect(&mut self, addresses: Vec<SocketAddr>, now: Instant) -> LinkEvent {
        self.state = LinkState::Connecting(ConnectRace::new(addresses));
        self.progress(now)
    }

    /// Looks whether the attempt has succeeded. Called when the descriptor is ready and at the
    /// deadline.
    pub(crate) fn progress(&mut self, now: Instant) -> LinkEvent {
        match &mut self.state {
            LinkState::Open { deadline: Some(deadline), .. } if *deadline <= now => {
                let text = "the server does not complete the handshake within 5 s";
                self.fail(io::Error::other(text))
            }
            LinkState::Connecting(race) => match race.step(now) {
                None => LinkEvent::Nothing,
                Some(Ok(socket)) => self.open(socket, now),
                Some(Err(error)) => self.fail(error),
            },
            _ => LinkEvent::Nothing,
        }
    }

    /// The socket is connected.
    fn open(&mut self, socket: OwnedFd, now: Instant) -> LinkEvent {
        let host = &self.address.host;
        match Transport::new(socket, &self.address, host, self.target.tls.as_ref()) {
            Ok(transport) if transport.is_ready => {
                self.state = LinkState::Open { transport: Box::new(transport), deadline: None };
                LinkEvent::Connected
            }
            Ok(transport) => {
                let deadline = Some(now + HANDSHAKE_TIMEOUT);
                self.state = LinkState::Open { transport: Box::new(transport), deadline };
                LinkEvent::Nothing
            }
            Err(error) => self.fail(error),
        }
    }

    /// Encodes and sends a message.
    pub(crate) fn send(&mut self, message: ClientOutgoing) -> LinkEvent {
        let LinkState::Open { transport, .. } = &mut self.state else {
            return LinkEvent::Nothing;
        };
        let mut bytes = Vec::new();
        message.write(clock::now(), &mut bytes);
        let result = transport.send(&bytes);
        self.checked(result)
    }

    /// Sends what the socket did not take before.
    pub(crate) fn flush(&mut self) -> LinkEvent {
        let LinkState::Open { transport, .. } = &mut self.state else {
            return LinkEvent::Nothing;
        };
        let result = transport.flush();
        self.checked(result)
    }

    /// A server that closes the connection may have said why: then what has arrived is read first,
    /// and reading reports the end.
    fn checked(&mut self, result: io::Result<()>) -> LinkEvent {
        match result {
            Ok(()) => LinkEvent::Nothing,
            Err(error) if is_closed_by_peer(&error) => LinkEvent::Nothing,
            Err(error) => self.fail(error),
        }
    }

    /// Reads into `buffer` and delivers what that contains; the number of bytes, zero if nothing
    /// was there. After an error the connection is closed.
    pub(crate) fn read(
        &mut self,
        buffer: &mut [u8],
        deliver: &mut dyn FnMut(TransportEvent<'_>),
    ) -> io::Result<usize> {
        let LinkState::Open { transport, deadline } = &mut self.state else { return Ok(0) };
        let result = transport.read(buffer, deliver);
        if transport.is_ready {
            *deadline = None;
            self.searches = 0;
        }
        result.inspect_err(|_| self.close())
    }

    pub(crate) fn close(&mut self) {
        self.state = LinkState::Closed;
    }

    fn fail(&mut self, error: io::Error) -> LinkEvent {
        self.close();
        LinkEvent::Failed(error)
    }

    /// What to wait for.
    pub(crate) fn descriptor(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match &self.state {
            LinkState::Closed | LinkState::LookingUp => None,
            LinkState::Connecting(race) => race.newest().map(|socket| (socket, PollFlags::OUT)),
            LinkState::Open { transport, .. } => {
                let write =
                    if transport.is_blocked() { PollFlags::OUT } else { PollFlags::empty() };
                Some((transport.socket.as_fd(), PollFlags::IN | write))
            }
        }
    }

    /// When to call [`progress`](Self::progress).
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match &self.state {
            LinkState::Connecting(race) => race.poll_timeout(),
            LinkState::Open { deadline, .. } => *deadline,
            LinkState::Closed | LinkState::LookingUp => None,
        }
    }
}

fn is_closed_by_peer(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// TLS and WebSocket together.
const HANDSHAKE_TIMEOUT: Span = Span::from_secs(5);

/// Time for answers to a search; more with each that was in vain, so that the questions become
/// fewer.
const SEARCH_TIME: Span = Span::from_secs(1);
const MAX_SEARCH_TIME: Span = Span::from_secs(5);
