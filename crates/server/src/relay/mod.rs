//! Relays: what is configured, what runs, and what it came to.
//!
//! The streams run on the shared threads of [`aulos_io::udp`]; here they are only begun, ended and
//! asked. Nothing in here is called for a packet.

mod manager;
mod status;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use aulos_config::limits::MAX_RELAYS;
use aulos_config::{PortRange, RelaySettings};
use aulos_core::{Instant, Span};
use aulos_io::SystemClock;
use aulos_io::relay::{
    RelayPlan, RelayReport, RelayStream as Stream, RelayStreamLabel, TranscodeError,
};
use aulos_io::udp::{
    self, OpenPort, SharedPortConfig, SocketOptions, StreamId, StreamKey, UdpContext, bind_socket,
};
use aulos_proto::rtp::rtcp::NtpTime;

use crate::exit::{Exit, Failure};
pub use manager::RelayChanges;
pub use manager::RelayManager;
pub use status::{
    DroppedCounts, ForeignCounts, RecoveredCounts, RelayCounters, RelaySnapshot, RelayStatus,
    StreamStatus, encoding_name,
};

/// Everything that is relayed.
pub struct Relays {
    context: UdpContext<Stream>,
    running: Vec<RunningRelay>,
    next: u32,
    ssrcs: Arc<SsrcAllocator>,
}

impl fmt::Debug for Relays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relays").field("running", &self.running.len()).finish_non_exhaustive()
    }
}

/// A relay that runs.
struct RunningRelay {
    number: u32,
    config: RelaySettings,
    /// Its streams, when each has a port of its own.
    streams: Vec<StreamId>,
    /// Its port, when all of them share one.
    shared: Option<OpenPort>,
    /// Where a single stream with a port of its own listens, and the second way of it.
    own_addresses: Option<(SocketAddr, Option<SocketAddr>)>,
    /// What the streams that have ended came to.
    ended_counts: RelayCounters,
    ended: u64,
}

/// Gives each stream a number that no other one has (RFC 3550, 8): steps of an odd length reach all
/// of them once.
struct SsrcAllocator {
    first: u32,
    count: AtomicU32,
}

impl SsrcAllocator {
    fn next(&self) -> u32 {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        self.first.wrapping_add(count.wrapping_mul(0x9e37_79b1)) & !TRUNK_BIT
    }

    /// The number of a stream that goes through a trunk and came to the port of `place` in its relay's
    /// range: the other end finds the place in it.
    const fn on_trunk(&self, relay: u32, place: u16) -> u32 {
        TRUNK_BIT | ((self.first >> 16).wrapping_add(relay) << 16) | place as u32
    }
}

/// The port to which a stream goes that came to a single port under this number. Of a range, it is that
/// of its place; none where it has no place there.
fn port_of(ports: &PortRange<String>, ssrc: u32) -> Option<u16> {
    if ports.count() == 1 {
        return Some(ports.first);
    }
    let [.., high, low] = ssrc.to_be_bytes();
    let place = (ssrc & TRUNK_BIT > 0).then(|| u16::from_be_bytes([high, low]));
    ports.first.checked_add(place?).filter(|port| *port <= ports.last)
}

/// Why a relay cannot run.
#[derive(Debug)]
pub enum RelayError {
    /// A port cannot be had.
    Listen(String, SocketAddr, io::Error),
    /// Nobody is known under the name of the destination.
    Destination(String, String, io::Error),
    /// There is no way from the one encoding to the other.
    Media(String, TranscodeError),
    /// There is one of that name.
    DuplicateName(String),
    /// There are as many as there may be.
    TooManyRelays,
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
            Self::Destination(name, host, error) => write!(
                f,
                "relay `{name}`: dest {host}: {error}\n    hint: write its address in place of the name"
            ),
            Self::Media(name, error) => write!(f, "relay `{name}`: {error}"),
            Self::DuplicateName(name) => {
                write!(f, "there is a relay `{name}` already\n    hint: give it another name")
            }
            Self::TooManyRelays => write!(f, "there are {MAX_RELAYS} relays, and no more"),
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
            RelayError::Listen(..) | RelayError::Destination(..) => Exit::Unavailable,
            RelayError::Media(..) | RelayError::DuplicateName(_) | RelayError::TooManyRelays => {
                Exit::Usage
            }
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
        let mut config = udp::UdpConfig::default();
        config.threads = threads.unwrap_or(config.threads);
        let seed = RandomState::new().hash_one(std::process::id());
        let first = u32::try_from(seed >> 32).unwrap_or(0);
        Ok(Self {
            context: UdpContext::start(&config)?,
            running: Vec::new(),
            next: 0,
            ssrcs: Arc::new(SsrcAllocator { first, count: AtomicU32::new(0) }),
        })
    }

    /// Begins a relay.
    ///
    /// # Errors
    /// [`RelayError`]; nothing of it runs then.
    pub fn add(&mut self, config: &RelaySettings) -> Result<(), RelayError> {
        let name = || config.name.clone();
        if self.running.iter().any(|running| running.config.name == config.name) {
            return Err(RelayError::DuplicateName(name()));
        }
        let dest = resolve(&config.dest)
            .map_err(|error| RelayError::Destination(name(), config.dest.host.clone(), error))?;
        let mut wishes = config.stream_config();
        wishes.clock = wall_clock();
        if !config.rtcp {
            wishes.cname = None;
        }
        let plan = RelayPlan::new(wishes).map_err(|error| RelayError::Media(name(), error))?;
        let plan = Arc::new(plan);
        let number = self.next;
        let mut running = RunningRelay {
            number,
            config: config.clone(),
            streams: Vec::new(),
            shared: None,
            own_addresses: None,
            ended_counts: RelayCounters::default(),
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

    fn remove_running(&mut self, running: RunningRelay) {
        for stream in running.streams {
            self.context.remove(stream);
        }
        if let Some(port) = running.shared {
            self.context.close(port.id);
        }
        // A thread answers this when it has done what it was told before.
        drop(self.context.stream_reports());
        self.maintain();
    }

    /// Sees to streams that have ended, and to threads that have more to do than others. To be called
    /// every second or so.
    pub fn maintain(&mut self) {
        while let Some(ended) = self.context.poll_ended() {
            let report = udp::Machine::report(&ended.machine);
            let owner =
                self.running.iter_mut().find(|running| running.number == report.label.relay);
            if let Some(running) = owner {
                running.ended_counts.add(&RelayCounters::of(&report));
                running.ended += 1;
            }
        }
        self.context.balance();
    }

    /// What runs, and what it came to. Waits for the threads, for some milliseconds.
    pub fn status(&mut self) -> RelaySnapshot {
        self.maintain();
        let surveyed = self.context.stream_reports();
        let mut reports: Vec<RelayReport> =
            surveyed.into_iter().map(|stream| stream.report).collect();
        reports.sort_by_key(|report| (report.label.relay, report.label.port, report.ssrc));
        let relays = self.running.iter().map(|running| running.total(&reports)).collect();
        RelaySnapshot {
            relays,
            rows: reports.iter().map(|report| self.row(report)).collect(),
            threads: self.context.stats(),
        }
    }

    /// The addresses of what runs: where it listens, and where it sends to.
    pub fn addresses(&self) -> Vec<(String, String, String)> {
        let place = |running: &RunningRelay| {
            let config = &running.config;
            let listen = match &running.shared {
                Some(port) => format!("{}://{}", config.listen.scheme(), port.address),
                None => config.listen.to_string(),
            };
            let listen = match (running.own_addresses, &config.also) {
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
        let short = |running: &RunningRelay| {
            let port = running.shared.as_ref()?;
            let wanted = SharedPortConfig::new(port.address).options.receive_buffer;
            (port.receive_buffer < wanted)
                .then(|| (running.config.name.clone(), port.receive_buffer))
        };
        self.running.iter().filter_map(short).collect()
    }

    /// Ends everything: what is still there is sent. Gives what it all came to.
    pub fn stop(mut self) -> RelaySnapshot {
        let mut status = self.status();
        let threads = self.context.stats();
        for ended in self.context.stop() {
            let report = udp::Machine::report(&ended.machine);
            // What was sent on the way out is in none of the figures before.
            status.replace_final(&report);
        }
        status.threads = threads;
        status
    }

    fn open_range(
        &mut self,
        running: &mut RunningRelay,
        plan: &Arc<RelayPlan>,
        dest: SocketAddr,
    ) -> Result<(), (SocketAddr, io::Error)> {
        let PortRange { host, first, last, .. } = running.config.listen;
        let one = running.config.dest.count() == 1;
        let trunk = running.config.dest.trunk;
        for port in first..=last {
            let place = port - first;
            let at = SocketAddr::new(host, port);
            let fail = |error| (at, error);
            let socket = bind_socket(at, &SocketOptions::default()).map_err(fail)?;
            let mut bound = (socket.local_addr().map_err(fail)?, None);
            let second =
                running.config.also.map(|also| bind_second_path(&also, place)).transpose()?;
            if let Some(second) = &second {
                bound.1 = Some(second.local_addr().map_err(fail)?);
            }
            running.own_addresses = (first == last).then_some(bound);
            let mut to = dest;
            if !one {
                to.set_port(dest.port().saturating_add(place));
            }
            let label = RelayStreamLabel { relay: running.number, port: bound.0.port() };
            let numbers = &self.ssrcs;
            let on_trunk = || numbers.on_trunk(running.number, place);
            let ssrc = if trunk { on_trunk() } else { numbers.next() };
            let stream = Stream::new(Arc::clone(plan), label, to, ssrc, u64::from(ssrc));
            let added = match second {
                Some(second) => self.context.add_redundant([socket, second], stream),
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
        running: &mut RunningRelay,
        plan: &Arc<RelayPlan>,
        dest: SocketAddr,
    ) -> Result<(), (SocketAddr, io::Error)> {
        let address = SocketAddr::new(running.config.listen.host, running.config.listen.first);
        // Each thread shares it with the others, and so would another program of this user: only
        // a socket that shares nothing sees whether it is free.
        drop(bind_socket(address, &SocketOptions::default()).map_err(|error| (address, error))?);
        let mut wish = SharedPortConfig::new(address);
        (wish.max_streams, wish.idle) = (running.config.max_streams, running.config.idle);
        wish.joined = running.config.listen.trunk;
        let relay = running.number;
        let opened = self.context.open(&wish, |_| {
            let (plan, numbers) = (Arc::clone(plan), Arc::clone(&self.ssrcs));
            let label = RelayStreamLabel { relay, port: address.port() };
            let ports = running.config.dest.clone();
            move |_: Instant, key: StreamKey, _: &udp::Packet<'_>| {
                let StreamKey::Ssrc(from) = key else { return None };
                let to = SocketAddr::new(dest.ip(), port_of(&ports, from)?);
                let ssrc = numbers.next();
                Some(Stream::new(Arc::clone(&plan), label, to, ssrc, u64::from(ssrc)))
            }
        });
        running.shared = Some(opened.map_err(|error| (address, error))?);
        Ok(())
    }

    fn row(&self, report: &RelayReport) -> StreamStatus {
        let running = self.running.iter().find(|running| running.number == report.label.relay);
        let mut report = *report;
        if let Some(port) = running.and_then(|running| running.shared.as_ref()) {
            // The one that was asked for may have been any.
            report.label.port = port.address.port();
        }
        let relay = running.map_or_else(String::new, |running| running.config.name.clone());
        StreamStatus { relay, report }
    }
}

impl RunningRelay {
    fn total(&self, reports: &[RelayReport]) -> RelayStatus {
        let mut counts = self.ended_counts;
        let mut streams = 0;
        for report in reports.iter().filter(|report| report.label.relay == self.number) {
            counts.add(&RelayCounters::of(report));
            streams += usize::from(report.ssrc.is_some());
        }
        RelayStatus {
            number: self.number,
            config: self.config.clone(),
            address: match (&self.shared, self.own_addresses) {
                (Some(port), _) => Some(port.address),
                (None, own) => own.map(|(first, _)| first),
            },
            also: self.own_addresses.and_then(|(_, second)| second),
            streams,
            ended: self.ended,
            counts,
            ended_counts: self.ended_counts,
        }
    }
}

/// The numbers of streams that go through a trunk have this bit, and others do not.
const TRUNK_BIT: u32 = 1 << 31;

/// The port of the second way that belongs to the `place`th of the first.
fn bind_second_path(
    also: &PortRange<IpAddr>,
    place: u16,
) -> Result<UdpSocket, (SocketAddr, io::Error)> {
    let at = SocketAddr::new(also.host, also.first.saturating_add(place));
    bind_socket(at, &SocketOptions::default()).map_err(|error| (at, error))
}

/// The first address of a name, which is looked up on a thread of its own: the system may take as
/// long as it likes, and control waits for no longer than [`LOOK_UP`].
fn resolve(dest: &PortRange<String>) -> io::Result<SocketAddr> {
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
    answer.recv_timeout(LOOKUP_TIMEOUT).map_err(|_| slow())??.ok_or_else(none)
}

/// How long control waits for the address of a name.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

/// The time of day, for reports.
pub fn wall_clock() -> (Instant, NtpTime) {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_nanos()).ok());
    (SystemClock::now(), NtpTime::from_unix(Span::from_nanos(since.unwrap_or(0))))
}
