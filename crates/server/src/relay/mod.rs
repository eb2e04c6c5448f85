//! Relays: configuration, running streams and their counters.
//!
//! The streams run on the shared threads of [`aulos_io::udp`]; this module only starts, ends and
//! surveys them. Nothing here runs per packet.

mod destination;
mod manager;
mod status;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use aulos_config::limits::MAX_RELAYS;
use aulos_config::{PortRange, RelaySettings};
use aulos_core::{Instant, Span};
use aulos_io::SystemClock;
use aulos_io::udp::{
    self, OpenPort, SharedPortConfig, SocketOptions, StreamId, UdpContext, bind_socket,
};
use aulos_proto::rtp::rtcp::NtpTime;
use aulos_session::datagram::{Machine, Packet, StreamKey};
use aulos_session::relay::{
    RelayPlan, RelayReport, RelayStream as Stream, RelayStreamLabel, TranscodeError,
};

use crate::exit::{Exit, Failure};
pub use manager::RtpRelayManager;
pub use status::{
    DroppedCounts, ForeignCounts, RecoveredCounts, RelayCounters, RelaySnapshot, RelayStatus,
    StreamStatus, encoding_name,
};

/// All running relays.
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

/// A running relay.
struct RunningRelay {
    number: u32,
    config: RelaySettings,
    /// Its streams, when each has a port of its own.
    streams: Vec<StreamId>,
    /// Its port, when all streams share one.
    shared: Option<OpenPort>,
    /// Local addresses of a single stream with its own port: the first path and the redundant one.
    own_addresses: Option<(SocketAddr, Option<SocketAddr>)>,
    /// Counters of the streams that have ended.
    ended_counts: RelayCounters,
    ended: u64,
}

/// Allocates a unique SSRC for each stream (RFC 3550, 8): an odd step reaches all of them once.
struct SsrcAllocator {
    first: u32,
    count: AtomicU32,
}

impl SsrcAllocator {
    fn next(&self) -> u32 {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        self.first.wrapping_add(count.wrapping_mul(0x9e37_79b1)) & !TRUNK_BIT
    }

    /// The SSRC of a stream on a trunk: it contains `place`, the index of its port in the relay's
    /// range, for the receiver of the trunk.
    const fn on_trunk(&self, relay: u32, place: u16) -> u32 {
        TRUNK_BIT | ((self.first >> 16).wrapping_add(relay) << 16) | place as u32
    }
}

/// The destination port of a stream from a shared port, by its SSRC. In a range it follows from the
/// index in the SSRC; `None` if that is outside the range.
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
    /// A port cannot be opened.
    Listen(String, SocketAddr, io::Error),
    /// The destination's name cannot be resolved.
    Destination(String, String, io::Error),
    /// The encodings cannot be converted into each other.
    Media(String, TranscodeError),
    /// The name is in use.
    DuplicateName(String),
    /// The maximum number of relays is reached.
    TooManyRelays,
    /// The system provides no threads or sockets.
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
                        write!(
                            f,
                            "\n    hint: ss -ulpn 'sport = :{port}' shows the program that uses it"
                        )
                    }
                    io::ErrorKind::AddrNotAvailable => f.write_str(
                        "\n    hint: use an address of this machine, or 0.0.0.0 for all of them",
                    ),
                    _ => Ok(()),
                }
            }
            Self::Destination(name, host, error) => write!(
                f,
                "relay `{name}`: dest {host}: {error}\n    hint: write the address in place of the name"
            ),
            Self::Media(name, error) => write!(f, "relay `{name}`: {error}"),
            Self::DuplicateName(name) => {
                write!(f, "duplicate relay name `{name}`\n    hint: use another name")
            }
            Self::TooManyRelays => write!(f, "the maximum of {MAX_RELAYS} relays is reached"),
            Self::Threads(error) => write!(f, "cannot start the threads of the relays: {error}"),
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
    /// Starts the threads for relays, without any relay.
    ///
    /// # Errors
    /// When the system provides no more threads or sockets.
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

    /// Starts a relay.
    ///
    /// # Errors
    /// [`RelayError`]; no part of it runs then.
    pub fn add(&mut self, config: &RelaySettings) -> Result<(), RelayError> {
        let name = || config.name.clone();
        if self.running.iter().any(|running| running.config.name == config.name) {
            return Err(RelayError::DuplicateName(name()));
        }
        let dest = destination::resolve(&config.dest, config.listen.host)
            .map_err(|error| RelayError::Destination(name(), config.dest.host.clone(), error))?;
        let mut stream_config = config.stream_config();
        stream_config.clock = wall_clock();
        if !config.rtcp {
            stream_config.cname = None;
        }
        let plan =
            RelayPlan::new(stream_config).map_err(|error| RelayError::Media(name(), error))?;
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

    /// Ends a relay: buffered packets are sent, and its ports are free when this returns. Waits
    /// some milliseconds for the threads. Returns false for an unknown name.
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
        // A thread answers this after its earlier commands.
        drop(self.context.stream_reports());
        self.maintain();
    }

    /// Collects streams that have ended, and balances the threads. Call about once a second.
    pub fn maintain(&mut self) {
        while let Some(ended) = self.context.poll_ended() {
            let report = Machine::report(&ended.machine);
            let owner =
                self.running.iter_mut().find(|running| running.number == report.label.relay);
            if let Some(running) = owner {
                running.ended_counts.add(&RelayCounters::of(&report));
                running.ended += 1;
            }
        }
        self.context.balance();
    }

    /// The running relays and their counters. Waits some milliseconds for the threads.
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

    /// Name, listen address and destination of each running relay.
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

    /// Shared ports whose receive buffer is smaller than requested, with its size.
    pub fn short_buffers(&self) -> Vec<(String, usize)> {
        let short = |running: &RunningRelay| {
            let port = running.shared.as_ref()?;
            let wanted = SharedPortConfig::new(port.address).options.receive_buffer;
            (port.receive_buffer < wanted)
                .then(|| (running.config.name.clone(), port.receive_buffer))
        };
        self.running.iter().filter_map(short).collect()
    }

    /// Ends everything: buffered packets are sent. Returns the final counters.
    pub fn stop(mut self) -> RelaySnapshot {
        let mut status = self.status();
        let threads = self.context.stats();
        for ended in self.context.stop() {
            let report = Machine::report(&ended.machine);
            // Packets sent during the shutdown are in none of the earlier figures.
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
            let ssrcs = &self.ssrcs;
            let on_trunk = || ssrcs.on_trunk(running.number, place);
            let ssrc = if trunk { on_trunk() } else { ssrcs.next() };
            let stream = Stream::new(Arc::clone(plan), label, to, ssrc, u64::from(ssrc));
            let added = match second {
                Some(second) => self.context.add_redundant([socket, second], stream),
                None => self.context.add(Some(socket), stream),
            };
            let stream = added.map_err(fail)?;
            if trunk {
                // The receiver of a trunk accepts one sender address at a time, and another thread
                // has another port.
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
        // The threads share the port with each other, and another program of this user could share
        // it as well: only an exclusive socket shows whether it is free.
        drop(bind_socket(address, &SocketOptions::default()).map_err(|error| (address, error))?);
        let mut port_config = SharedPortConfig::new(address);
        (port_config.max_streams, port_config.idle) =
            (running.config.max_streams, running.config.idle);
        port_config.joined = running.config.listen.trunk;
        let relay = running.number;
        let opened = self.context.open(&port_config, |_| {
            let (plan, ssrcs) = (Arc::clone(plan), Arc::clone(&self.ssrcs));
            let label = RelayStreamLabel { relay, port: address.port() };
            let ports = running.config.dest.clone();
            move |_: Instant, key: StreamKey, _: &Packet<'_>| {
                let StreamKey::Ssrc(from) = key else { return None };
                let to = SocketAddr::new(dest.ip(), port_of(&ports, from)?);
                let ssrc = ssrcs.next();
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
            // The requested port may have been 0.
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

/// This bit marks the SSRC of a stream on a trunk.
const TRUNK_BIT: u32 = 1 << 31;

/// Opens the port of the redundant path that belongs to index `place` of the first.
fn bind_second_path(
    also: &PortRange<IpAddr>,
    place: u16,
) -> Result<UdpSocket, (SocketAddr, io::Error)> {
    let at = SocketAddr::new(also.host, also.first.saturating_add(place));
    bind_socket(at, &SocketOptions::default()).map_err(|error| (at, error))
}

/// The time of day, for RTCP reports.
pub fn wall_clock() -> (Instant, NtpTime) {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_nanos()).ok());
    (SystemClock::now(), NtpTime::from_unix(Span::from_nanos(since.unwrap_or(0))))
}
