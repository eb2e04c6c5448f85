//! Relays: what is configured, what runs, and what it came to.
//!
//! The streams run on the shared threads of [`aulos_io::udp`]; here they are only begun, ended and
//! asked. Nothing in here is called for a packet.

mod keeper;
mod sum;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use aulos_config::limits::MAX_RELAYS;
use aulos_config::{Ports, Relay};
use aulos_core::{Instant, Span};
use aulos_io::SystemClock;
use aulos_io::relay::{CannotTranscode, Label, Plan, Relay as Stream, Report};
use aulos_io::udp::{
    self, Context, Key, OpenPort, SharedPort, SocketOptions, StreamId, bind_socket,
};
use aulos_proto::rtp::rtcp::Ntp;

use crate::exit::{Exit, Failure};
pub use keeper::Keeper;
pub use keeper::RelayChanges;
pub use sum::{Counts, Dropped, Foreign, Recovered, Row, Status, Total, encoding};

/// Everything that is relayed.
pub struct Relays {
    context: Context<Stream>,
    running: Vec<Running>,
    next: u32,
    numbers: Arc<Numbers>,
}

impl fmt::Debug for Relays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relays").field("running", &self.running.len()).finish_non_exhaustive()
    }
}

/// A relay that runs.
struct Running {
    number: u32,
    config: Relay,
    /// Its streams, when each has a port of its own.
    streams: Vec<StreamId>,
    /// Its port, when all of them share one.
    shared: Option<OpenPort>,
    /// Where a single stream with a port of its own listens, and the second way of it.
    own: Option<(SocketAddr, Option<SocketAddr>)>,
    /// What the streams that have ended came to.
    past: Counts,
    ended: u64,
}

/// Gives each stream a number that no other one has (RFC 3550, 8): steps of an odd length reach all
/// of them once.
struct Numbers {
    first: u32,
    count: AtomicU32,
}

impl Numbers {
    fn next(&self) -> u32 {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        self.first.wrapping_add(count.wrapping_mul(0x9e37_79b1)) & !ON_TRUNK
    }

    /// The number of a stream that goes through a trunk and came to the port of `place` in its relay's
    /// range: the other end finds the place in it.
    const fn on_trunk(&self, relay: u32, place: u16) -> u32 {
        ON_TRUNK | ((self.first >> 16).wrapping_add(relay) << 16) | place as u32
    }
}

/// The port to which a stream goes that came to a single port under this number. Of a range, it is that
/// of its place; none where it has no place there.
fn port_of(ports: &Ports<String>, ssrc: u32) -> Option<u16> {
    if ports.count() == 1 {
        return Some(ports.first);
    }
    let [.., high, low] = ssrc.to_be_bytes();
    let place = (ssrc & ON_TRUNK > 0).then(|| u16::from_be_bytes([high, low]));
    ports.first.checked_add(place?).filter(|port| *port <= ports.last)
}

/// Why a relay cannot run.
#[derive(Debug)]
pub enum RelayError {
    /// A port cannot be had.
    Listen(String, SocketAddr, io::Error),
    /// Nobody is known under the name of the destination.
    Dest(String, String, io::Error),
    /// There is no way from the one encoding to the other.
    Media(String, CannotTranscode),
    /// There is one of that name.
    Taken(String),
    /// There are as many as there may be.
    Full,
    /// The system gives no threads or sockets for them.
    Threads(io::Error),
}

impl fmt::Display for RelayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(name, at, error) => {
                write!(f, "relay `{name}`: udp://{at}: {error}")?;
                match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        let port = at.port();
                        write!(f, "\n    hint: ss -ulpn 'sport = :{port}' says who listens there")
                    }
                    io::ErrorKind::AddrNotAvailable => {
                        write!(
                            f,
                            "\n    hint: this machine does not have that address; 0.0.0.0 is all"
                        )
                    }
                    _ => Ok(()),
                }
            }
            Self::Dest(name, host, error) => write!(
                f,
                "relay `{name}`: dest {host}: {error}\n    hint: write its address in place of the name"
            ),
            Self::Media(name, error) => write!(f, "relay `{name}`: {error}"),
            Self::Taken(name) => {
                write!(f, "there is a relay `{name}` already\n    hint: give it another name")
            }
            Self::Full => write!(f, "there are {MAX_RELAYS} relays, and no more"),
            Self::Threads(error) => write!(f, "the threads of relays: {error}"),
        }
    }
}

impl From<RelayError> for Failure {
    fn from(error: RelayError) -> Self {
        let exit = match &error {
            RelayError::Listen(_, _, error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Exit::Permission
            }
            RelayError::Listen(..) | RelayError::Dest(..) => Exit::Unavailable,
            RelayError::Media(..) | RelayError::Taken(_) | RelayError::Full => Exit::Usage,
            RelayError::Threads(_) => Exit::Internal,
        };
        Self::new(exit, error.to_string())
    }
}

impl Relays {
    /// Threads for relays, and none of them yet.
    ///
    /// # Errors
    /// When the system gives no more threads or sockets.
    pub fn start(threads: Option<usize>) -> io::Result<Self> {
        let mut config = udp::Config::default();
        config.threads = threads.unwrap_or(config.threads);
        let seed = RandomState::new().hash_one(std::process::id());
        let first = u32::try_from(seed >> 32).unwrap_or(0);
        Ok(Self {
            context: Context::start(&config)?,
            running: Vec::new(),
            next: 0,
            numbers: Arc::new(Numbers { first, count: AtomicU32::new(0) }),
        })
    }

    /// Begins a relay.
    ///
    /// # Errors
    /// [`RelayError`]; nothing of it runs then.
    pub fn add(&mut self, config: &Relay) -> Result<(), RelayError> {
        let name = || config.name.clone();
        if self.running.iter().any(|running| running.config.name == config.name) {
            return Err(RelayError::Taken(name()));
        }
        let dest = resolve(&config.dest)
            .map_err(|error| RelayError::Dest(name(), config.dest.host.clone(), error))?;
        let mut wishes = config.wishes();
        wishes.clock = wall();
        if !config.rtcp {
            wishes.cname = None;
        }
        let plan = Plan::new(wishes).map_err(|error| RelayError::Media(name(), error))?;
        let plan = Arc::new(plan);
        let number = self.next;
        let mut running = Running {
            number,
            config: config.clone(),
            streams: Vec::new(),
            shared: None,
            own: None,
            past: Counts::default(),
            ended: 0,
        };
        let opened = if config.listen.count() == 1 && config.also.is_none() {
            self.open_port(&mut running, &plan, dest)
        } else {
            self.open_range(&mut running, &plan, dest)
        };
        if let Err((at, error)) = opened {
            self.remove_running(running);
            return Err(RelayError::Listen(name(), at, error));
        }
        self.next += 1;
        self.running.push(running);
        Ok(())
    }

    /// Ends a relay: what its streams still have is sent, and its ports are free when this returns.
    /// Waits for the threads, for some milliseconds. False when there is none of that name.
    pub fn remove(&mut self, name: &str) -> bool {
        let Some(at) = self.running.iter().position(|running| running.config.name == name) else {
            return false;
        };
        let running = self.running.remove(at);
        self.remove_running(running);
        true
    }

    fn remove_running(&mut self, running: Running) {
        for stream in running.streams {
            self.context.remove(stream);
        }
        if let Some(port) = running.shared {
            self.context.close(port.id);
        }
        // A thread answers this when it has done what it was told before.
        drop(self.context.survey());
        self.tend();
    }

    /// Sees to streams that have ended, and to threads that have more to do than others. To be called
    /// every second or so.
    pub fn tend(&mut self) {
        while let Some(ended) = self.context.ended() {
            let report = udp::Machine::report(&ended.machine);
            let owner =
                self.running.iter_mut().find(|running| running.number == report.label.relay);
            if let Some(running) = owner {
                running.past.add(&Counts::of(&report));
                running.ended += 1;
            }
        }
        self.context.balance();
    }

    /// What runs, and what it came to. Waits for the threads, for some milliseconds.
    pub fn status(&mut self) -> Status {
        self.tend();
        let surveyed = self.context.survey();
        let mut reports: Vec<Report> = surveyed.into_iter().map(|stream| stream.report).collect();
        reports.sort_by_key(|report| (report.label.relay, report.label.port, report.ssrc));
        let relays = self.running.iter().map(|running| running.total(&reports)).collect();
        Status {
            relays,
            rows: reports.iter().map(|report| self.row(report)).collect(),
            threads: self.context.stats(),
        }
    }

    /// The addresses of what runs: where it listens, and where it sends to.
    pub fn places(&self) -> Vec<(String, String, String)> {
        let place = |running: &Running| {
            let config = &running.config;
            let listen = match &running.shared {
                Some(port) => format!("{}://{}", config.listen.scheme(), port.address),
                None => config.listen.to_string(),
            };
            let listen = match (running.own, &config.also) {
                (Some((first, Some(second))), _) => format!("udp://{first} and udp://{second}"),
                (_, Some(also)) => format!("{listen} and {also}"),
                _ => listen,
            };
            (config.name.clone(), listen, config.dest.to_string())
        };
        self.running.iter().map(place).collect()
    }

    /// How much of what was asked for is kept free for bursts on a shared port, if that is less.
    pub fn short_buffers(&self) -> Vec<(String, usize)> {
        let short = |running: &Running| {
            let port = running.shared.as_ref()?;
            let wanted = SharedPort::new(port.address).options.receive_buffer;
            (port.receive_buffer < wanted)
                .then(|| (running.config.name.clone(), port.receive_buffer))
        };
        self.running.iter().filter_map(short).collect()
    }

    /// Ends everything: what is still there is sent. Gives what it all came to.
    pub fn stop(mut self) -> Status {
        let mut status = self.status();
        let threads = self.context.stats();
        for ended in self.context.stop() {
            let report = udp::Machine::report(&ended.machine);
            // What was sent on the way out is in none of the figures before.
            status.replace(&report);
        }
        status.threads = threads;
        status
    }

    fn open_range(
        &mut self,
        running: &mut Running,
        plan: &Arc<Plan>,
        dest: SocketAddr,
    ) -> Result<(), (SocketAddr, io::Error)> {
        let Ports { host, first, last, .. } = running.config.listen;
        let one = running.config.dest.count() == 1;
        let trunk = running.config.dest.trunk;
        for port in first..=last {
            let place = port - first;
            let at = SocketAddr::new(host, port);
            let fail = |error| (at, error);
            let socket = bind_socket(at, &SocketOptions::default()).map_err(fail)?;
            let mut bound = (socket.local_addr().map_err(fail)?, None);
            let second = running.config.also.map(|also| second(&also, place)).transpose()?;
            if let Some(second) = &second {
                bound.1 = Some(second.local_addr().map_err(fail)?);
            }
            running.own = (first == last).then_some(bound);
            let mut to = dest;
            if !one {
                to.set_port(dest.port().saturating_add(place));
            }
            let label = Label { relay: running.number, port: bound.0.port() };
            let numbers = &self.numbers;
            let on_trunk = || numbers.on_trunk(running.number, place);
            let ssrc = if trunk { on_trunk() } else { numbers.next() };
            let stream = Stream::new(Arc::clone(plan), label, to, ssrc, u64::from(ssrc));
            let added = match second {
                Some(second) => self.context.add_two([socket, second], stream),
                None => self.context.add(Some(socket), stream),
            };
            let stream = added.map_err(fail)?;
            if trunk {
                // The other end hears nobody else for a while, and another thread has another port.
                self.context.pin(stream);
            }
            running.streams.push(stream);
        }
        Ok(())
    }

    fn open_port(
        &mut self,
        running: &mut Running,
        plan: &Arc<Plan>,
        dest: SocketAddr,
    ) -> Result<(), (SocketAddr, io::Error)> {
        let address = SocketAddr::new(running.config.listen.host, running.config.listen.first);
        // Each thread shares it with the others, and so would another program of this user: only
        // a socket that shares nothing sees whether it is free.
        drop(bind_socket(address, &SocketOptions::default()).map_err(|error| (address, error))?);
        let mut wish = SharedPort::new(address);
        (wish.max_streams, wish.idle) = (running.config.max_streams, running.config.idle);
        wish.joined = running.config.listen.trunk;
        let relay = running.number;
        let opened = self.context.open(&wish, |_| {
            let (plan, numbers) = (Arc::clone(plan), Arc::clone(&self.numbers));
            let label = Label { relay, port: address.port() };
            let ports = running.config.dest.clone();
            move |_: Instant, key: Key, _: &udp::Packet<'_>| {
                let Key::Ssrc(from) = key else { return None };
                let to = SocketAddr::new(dest.ip(), port_of(&ports, from)?);
                let ssrc = numbers.next();
                Some(Stream::new(Arc::clone(&plan), label, to, ssrc, u64::from(ssrc)))
            }
        });
        running.shared = Some(opened.map_err(|error| (address, error))?);
        Ok(())
    }

    fn row(&self, report: &Report) -> Row {
        let running = self.running.iter().find(|running| running.number == report.label.relay);
        let mut report = *report;
        if let Some(port) = running.and_then(|running| running.shared.as_ref()) {
            // The one that was asked for may have been any.
            report.label.port = port.address.port();
        }
        let relay = running.map_or_else(String::new, |running| running.config.name.clone());
        Row { relay, report }
    }
}

impl Running {
    fn total(&self, reports: &[Report]) -> Total {
        let mut counts = self.past;
        let mut streams = 0;
        for report in reports.iter().filter(|report| report.label.relay == self.number) {
            counts.add(&Counts::of(report));
            streams += usize::from(report.ssrc.is_some());
        }
        Total {
            number: self.number,
            config: self.config.clone(),
            address: match (&self.shared, self.own) {
                (Some(port), _) => Some(port.address),
                (None, own) => own.map(|(first, _)| first),
            },
            also: self.own.and_then(|(_, second)| second),
            streams,
            ended: self.ended,
            counts,
            past: self.past,
        }
    }
}

/// The numbers of streams that go through a trunk have this bit, and others do not.
const ON_TRUNK: u32 = 1 << 31;

/// The port of the second way that belongs to the `place`th of the first.
fn second(also: &Ports<IpAddr>, place: u16) -> Result<UdpSocket, (SocketAddr, io::Error)> {
    let at = SocketAddr::new(also.host, also.first.saturating_add(place));
    bind_socket(at, &SocketOptions::default()).map_err(|error| (at, error))
}

/// The first address of a name, which is looked up on a thread of its own: the system may take as
/// long as it likes, and control waits for no longer than [`LOOK_UP`].
fn resolve(dest: &Ports<String>) -> io::Result<SocketAddr> {
    if let Ok(host) = dest.host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(host, dest.first));
    }
    let (sender, mut answer) = aulos_rt::channel::bounded(1);
    let (host, port) = (dest.host.clone(), dest.first);
    std::thread::Builder::new().name("aulos-look-up".to_owned()).spawn(move || {
        let found = (host.as_str(), port).to_socket_addrs().map(|mut all| all.next());
        // Nobody may wait for it any more.
        drop(sender.send(found));
    })?;
    let slow = || io::Error::new(io::ErrorKind::TimedOut, "looking its name up takes too long");
    let none = || io::Error::new(io::ErrorKind::NotFound, "it has no address");
    answer.recv_timeout(LOOK_UP).map_err(|_| slow())??.ok_or_else(none)
}

/// How long control waits for the address of a name.
const LOOK_UP: Duration = Duration::from_secs(3);

/// The time of day, for reports.
pub fn wall() -> (Instant, Ntp) {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_nanos()).ok());
    (SystemClock::now(), Ntp::from_unix(Span::from_nanos(since.unwrap_or(0))))
}
