//! A few threads for thousands of datagram streams.
//!
//! ```text
//!   socket per stream ---+                        +--- Machine --+
//!   socket per stream ---+--> one poll per wait --+--- Machine --+--> Outbox --> 64 in a call
//!   shared port ---------+    (epoll, recvmmsg)   +--- Machine --+
//!   trunk (joined) ------+                        +--- Machine --+
//! ```
//!
//! A thread per stream would wake for each packet, which is most of the load
//! (`docs/decisions/datagram-threads.md`). Here a thread has many streams and polls all of them at
//! once, at most once per *wait* (5 ms). It reads what has arrived, passes it to the machines,
//! fires expired timers, and sends what the machines have written, 64 messages per call. The kernel
//! stamps each packet on arrival, so polling late adds delay but no apparent jitter. When nothing
//! arrives at all, the thread sleeps until something does: silent streams cost nothing.
//!
//! Between two polls no lock, channel or allocation is needed per packet. Control talks to the
//! threads through a channel that is read between two batches.
//!
//! # Three kinds of input
//! * **A socket per stream** ([`UdpContext::add`]): the usual case in telephony and with SDP. Half
//!   of its cost is the system call for each packet.
//! * **A shared port** ([`UdpContext::open`]): many streams on one port, distinguished by SSRC or
//!   by sender. Each thread has a socket of its own on the port.
//! * **A trunk**: a shared port with [`SharedPortConfig::joined`], whose peer is a context that
//!   joins datagrams to the same destination ([`UdpConfig::join_sends`]). Dozens of packets then
//!   pass both kernels as one.
//!
//! # Limits
//! A machine must not block: see [`Machine`].
//!
//! # Examples
//! ```
//! use aulos_core::Instant;
//! use aulos_io::udp::{UdpConfig, UdpContext, bind_socket};
//! use aulos_session::datagram::{Machine, Outbox, Packets, Route};
//!
//! /// Sends every packet back to its sender.
//! struct Echo(u64);
//!
//! impl Machine for Echo {
//!     type Command = ();
//!     type Report = u64;
//!
//!     fn handle_packets(&mut self, _: Instant, packets: &mut Packets<'_>, out: &mut Outbox<'_>) {
//!         for packet in packets {
//!             let route = Route::to(packet.from).from_own_socket();
//!             self.0 += u64::from(out.send(route, packet.bytes));
//!         }
//!     }
//!
//!     fn handle_timeout(&mut self, _: Instant, _: &mut Outbox<'_>) {}
//!
//!     fn poll_timeout(&self) -> Option<Instant> {
//!         None
//!     }
//!
//!     fn handle_command(&mut self, _: Instant, (): (), _: &mut Outbox<'_>) {}
//!
//!     fn report(&self) -> u64 {
//!         self.0
//!     }
//! }
//!
//! let mut context = UdpContext::start(&UdpConfig::default())?;
//! let socket = bind_socket("127.0.0.1:0".parse().unwrap(), &Default::default())?;
//! let address = socket.local_addr()?;
//! context.add(Some(socket), Echo(0))?;
//!
//! let peer = std::net::UdpSocket::bind("127.0.0.1:0")?;
//! peer.send_to(b"is anybody there?", address)?;
//! let mut answer = [0; 100];
//! let (len, from) = peer.recv_from(&mut answer)?;
//! assert_eq!((&answer[..len], from), (&b"is anybody there?"[..], address));
//! assert_eq!(context.stop()[0].machine.0, 1);
//! # std::io::Result::Ok(())
//! ```

mod arrival;
mod command;
mod config;
mod flush;
mod interface;
mod load;
mod report;
mod run;
mod shared;
mod slots;
mod socket;
mod stats;
mod stream;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::thread::JoinHandle;
use std::time::Duration;

use aulos_core::Span;
use aulos_rt::LatestReader;
use aulos_rt::channel::{Receiver, SendError, Sender, bounded};
use aulos_session::datagram::{Machine, MachineFactory};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

pub use config::{AnswerKeyFn, UdpConfig};
pub use interface::{Interface, InterfaceTable, interface_networks, source_address_for};
pub use report::{EndedStream, StreamEndCause, StreamId, StreamReport};
pub use shared::{Demux, OpenPort, PortId, SharedPortConfig};
pub(crate) use slots::{DatagramInfo, SMALL_SLOT_BYTES, Slots};
pub use socket::{SocketOptions, bind_socket, granted_receive_buffer};
pub use stats::{StreamStats, UdpStats};

use crate::{SystemClock, sys};
use command::ThreadCommand;
use load::ThreadLoads;
use run::{INBOX, ThreadInit, UdpThread};
use shared::StreamTable;
use stream::HandedOverStream;

/// The UDP threads and the handle to them. Dropping it ends the threads as [`Self::stop`] does, but
/// without waiting for them. A machine that panics ends its thread and the streams on it.
pub struct UdpContext<M: Machine> {
    threads: Vec<ThreadHandle<M>>,
    /// The threads of the streams with sockets of their own. The ids of other streams contain their
    /// thread.
    threads_by_stream: HashMap<StreamId, usize>,
    /// Streams that [`Self::balance`] does not move.
    pinned_streams: HashSet<StreamId>,
    loads: ThreadLoads,
    ended: Receiver<Box<EndedStream<M>>>,
    next: u64,
    next_port: u64,
}

struct ThreadHandle<M: Machine> {
    commands: Sender<ThreadCommand<M>>,
    stats: LatestReader<UdpStats>,
    thread: JoinHandle<Vec<EndedStream<M>>>,
}

impl<M: Machine> UdpContext<M> {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system has no threads, descriptors or sockets left.
    pub fn start(config: &UdpConfig) -> io::Result<Self> {
        let config = UdpConfig {
            threads: config.threads.clamp(1, MAX_THREADS),
            wait: config.wait.clamp(Span::from_millis(1), Span::from_millis(20)),
            max_datagram: config.max_datagram.clamp(SMALL_SLOT_BYTES, 65_507),
            ..config.clone()
        };
        let (sender, ended) = bounded(MAX_ENDED);
        let mut context = Self {
            threads: Vec::new(),
            threads_by_stream: HashMap::new(),
            pinned_streams: HashSet::new(),
            loads: ThreadLoads::new(config.threads, SystemClock::now()),
            ended,
            next: 0,
            next_port: 0,
        };
        for index in 0..config.threads {
            let handle = start_thread(index, &config, sender.clone())?;
            context.threads.push(handle);
        }
        Ok(context)
    }

    /// Adds a stream with a socket of its own, on the least loaded thread. Without a socket the
    /// stream has timers and sends from the context's socket. Its routes select the socket that it
    /// sends from.
    ///
    /// # Errors
    /// When the socket cannot be configured. A stream whose socket cannot be watched ends with
    /// [`StreamEndCause::WatchFailed`].
    pub fn add(&mut self, socket: Option<UdpSocket>, machine: M) -> io::Result<StreamId> {
        self.add_stream(socket, None, machine)
    }

    /// Adds a stream that arrives over two networks, each on a socket of its own;
    /// [`Packet::is_second`](aulos_session::datagram::Packet::is_second) says over which. The
    /// stream sends from the first socket.
    ///
    /// # Errors
    /// As with [`Self::add`].
    pub fn add_redundant(&mut self, sockets: [UdpSocket; 2], machine: M) -> io::Result<StreamId> {
        let [first, second] = sockets;
        self.add_stream(Some(first), Some(second), machine)
    }

    fn add_stream(
        &mut self,
        socket: Option<UdpSocket>,
        second: Option<UdpSocket>,
        machine: M,
    ) -> io::Result<StreamId> {
        for socket in socket.iter().chain(&second) {
            socket::prepare(socket)?;
        }
        let id = StreamId(self.next);
        self.next += 1;
        self.update_loads();
        let thread = self.loads.assign_stream();
        self.threads_by_stream.insert(id, thread);
        let stats = StreamStats::default();
        let second = second.map(|socket| (socket, 0));
        let moving = HandedOverStream { id, machine, socket, lost: 0, second, claim: None, stats };
        self.post(thread, ThreadCommand::Add(Box::new(moving)));
        Ok(id)
    }

    /// Opens a port for many streams. Each thread has a socket on it and a machine factory of its
    /// own, which `factory` makes from the number of the thread. A trunk
    /// ([`SharedPortConfig::joined`]) belongs to one thread, the least loaded one: a joined piece
    /// holds packets of many streams, and the kernel would deliver it by its first packet.
    ///
    /// # Errors
    /// When the port is in use, or cannot be shared.
    pub fn open<F: MachineFactory<M>>(
        &mut self,
        config: &SharedPortConfig,
        mut factory: impl FnMut(usize) -> F,
    ) -> io::Result<OpenPort> {
        let threads: Vec<usize> = if config.joined {
            self.update_loads();
            vec![self.loads.assign_stream()]
        } else {
            (0..self.threads.len()).collect()
        };
        let count = threads.len();
        let mut options = config.options.clone();
        // Without `reuse_port` no other process can take a share of the port.
        options.reuse_port |= count > 1;
        let mut address = config.address;
        let mut sockets = Vec::new();
        for _ in &threads {
            let socket = bind_socket(address, &options)?;
            socket::prepare(&socket)?;
            address = socket.local_addr()?;
            sockets.push(socket);
        }
        if let (Demux::Ssrc, [first, _, ..]) = (config.demux, &sockets[..]) {
            sys::share_by_ssrc(first.as_fd(), u32::try_from(count).unwrap_or(1))?;
        }
        let receive_buffer = granted_receive_buffer(&sockets[0])?;
        let id = PortId(self.next_port);
        self.next_port += 1;
        for (thread, socket) in threads.into_iter().zip(sockets) {
            let table = StreamTable::new(id, config, count, Box::new(factory(thread)));
            self.post(thread, ThreadCommand::OpenPort(Box::new((socket, table))));
        }
        Ok(OpenPort { id, address, receive_buffer })
    }

    /// Closes a shared port and ends its streams.
    pub fn close(&self, port: PortId) {
        (0..self.threads.len())
            .for_each(|thread| self.post(thread, ThreadCommand::ClosePort(port)));
    }

    /// Sends a command to a stream, which gets it within a wait. Commands to a stream that has
    /// ended are dropped.
    ///
    /// # Errors
    /// Returns the command when the thread is thousands of commands behind, in which case the
    /// caller can try again, and when there is no such stream.
    pub fn send_command(&self, stream: StreamId, command: M::Command) -> Result<(), M::Command> {
        let Some(handle) = self.threads.get(self.thread_of(stream)) else { return Err(command) };
        match handle.commands.try_send(ThreadCommand::ToStream(stream, command)) {
            Err(
                SendError::Full(ThreadCommand::ToStream(_, command))
                | SendError::Closed(ThreadCommand::ToStream(_, command)),
            ) => Err(command),
            _ => Ok(()),
        }
    }

    /// Ends a stream: its machine sends what is left, its socket is closed, and
    /// [`Self::poll_ended`] returns it.
    pub fn remove(&mut self, stream: StreamId) {
        self.post(self.thread_of(stream), ThreadCommand::Remove(stream));
    }

    /// Gives a stream with a socket of its own another one, and closes the previous one: for a
    /// network interface that was removed and made again, because a socket keeps to the one that is
    /// gone.
    ///
    /// # Errors
    /// When the socket cannot be configured.
    pub fn replace_socket(&self, stream: StreamId, socket: UdpSocket) -> io::Result<()> {
        socket::prepare(&socket)?;
        self.post(self.thread_of(stream), ThreadCommand::ReplaceSocket(stream, socket));
        Ok(())
    }

    /// Moves a stream to another thread, with the packets in its socket. What it sends from the
    /// context's socket has another source port afterwards. Blocks for about a wait. False when
    /// there is no such stream or thread, or the stream belongs to a shared port: those streams
    /// stay where the kernel delivers their packets.
    pub fn move_to(&mut self, stream: StreamId, thread: usize) -> bool {
        let from = self.thread_of(stream);
        if thread == from || thread >= self.threads.len() {
            return thread == from && self.threads_by_stream.contains_key(&stream);
        }
        let (sender, mut reply) = bounded(1);
        self.post(from, ThreadCommand::Detach(stream, sender));
        // The stream arrives, unless its thread has ended.
        let Some(Some(moving)) = reply.recv() else { return false };
        self.post(thread, ThreadCommand::Add(moving));
        self.threads_by_stream.insert(stream, thread);
        self.loads.add_streams(from, -1);
        self.loads.add_streams(thread, 1);
        true
    }

    /// Moves streams from the busiest thread to the least loaded one if that is worthwhile, and
    /// returns their number. Call it every few seconds.
    pub fn balance(&mut self) -> usize {
        self.update_loads();
        let Some((from, to, count)) = self.loads.imbalance() else { return 0 };
        let here =
            self.threads_by_stream.iter().filter(|(_, place)| **place == from).map(|(id, _)| *id);
        let here = here.filter(|stream| !self.pinned_streams.contains(stream));
        let streams: Vec<StreamId> = here.take(count.min(MAX_MOVES)).collect();
        streams.into_iter().filter(|stream| self.move_to(*stream, to)).count()
    }

    /// Keeps a stream on its thread: for a stream that sends from the context's socket to a peer
    /// that identifies it by the source port. [`Self::balance`] skips it.
    pub fn pin(&mut self, stream: StreamId) {
        self.pinned_streams.insert(stream);
    }

    /// The streams that have ended, one per call. Call it regularly: their memory is freed by the
    /// caller and not on the UDP threads.
    pub fn poll_ended(&mut self) -> Option<EndedStream<M>> {
        let ended = *self.ended.try_recv().ok()?;
        self.pinned_streams.remove(&ended.id);
        if let Some(place) = self.threads_by_stream.remove(&ended.id) {
            self.loads.add_streams(place, -1);
        }
        Some(ended)
    }

    /// The status of all streams, in no particular order. Blocks for about a wait, and at most one
    /// second.
    pub fn stream_reports(&self) -> Vec<StreamReport<M::Report>> {
        let replies: Vec<_> = (0..self.threads.len())
            .map(|thread| {
                let (sender, reply) = bounded(1);
                // Allocates here and not on the threads.
                let room = Vec::with_capacity(self.threads_by_stream.len());
                self.post(thread, ThreadCommand::Report(room, sender));
                reply
            })
            .collect();
        replies
            .into_iter()
            .filter_map(|mut reply| reply.recv_timeout(Duration::from_secs(1)).ok())
            .flatten()
            .collect()
    }

    /// The counters of each thread, updated four times a second.
    pub fn stats(&mut self) -> Vec<UdpStats> {
        self.threads.iter_mut().map(|handle| *handle.stats.read()).collect()
    }

    /// Stops the context: every machine sends what is left, all pending datagrams are sent, sockets
    /// are closed and the threads joined. Returns the streams that [`Self::poll_ended`] has not
    /// returned.
    pub fn stop(mut self) -> Vec<EndedStream<M>> {
        for handle in &self.threads {
            drop(handle.commands.send(ThreadCommand::Stop));
        }
        let mut ended = Vec::new();
        for handle in self.threads.drain(..) {
            // The panic message of the thread is already on standard error.
            ended.extend(handle.thread.join().unwrap_or_default());
        }
        while let Ok(one) = self.ended.try_recv() {
            ended.push(*one);
        }
        ended
    }

    fn update_loads(&mut self) {
        let now = SystemClock::now();
        if self.loads.is_due(now) {
            let stats = self.stats();
            self.loads.measure(now, stats.iter());
        }
    }

    fn thread_of(&self, stream: StreamId) -> usize {
        let home = usize::try_from(stream.0 >> THREAD_SHIFT).unwrap_or(0);
        self.threads_by_stream.get(&stream).copied().unwrap_or_else(|| home.wrapping_sub(1))
    }

    /// Blocks only when the thread is thousands of commands behind.
    fn post(&self, thread: usize, command: ThreadCommand<M>) {
        if let Some(handle) = self.threads.get(thread) {
            // A thread that has ended takes no commands.
            drop(handle.commands.send(command));
        }
    }
}

impl<M: Machine> fmt::Debug for UdpContext<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = self.threads.len();
        f.debug_struct("Context").field("threads", &threads).finish_non_exhaustive()
    }
}

fn start_thread<M: Machine>(
    index: usize,
    config: &UdpConfig,
    ended: Sender<Box<EndedStream<M>>>,
) -> io::Result<ThreadHandle<M>> {
    let (commands, inbox) = bounded(MAX_COMMANDS);
    let inbox = inbox.into_fd().map_err(|none| none.error)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &inbox, EventData::new_u64(INBOX), EventFlags::IN)?;
    let v4 = bind_socket(SocketAddr::new(config.bind_v4.into(), 0), &config.send)?;
    let v6 = bind_socket(SocketAddr::new(config.bind_v6.into(), 0), &config.send).ok();
    // The kernel starts to stamp packets shortly after the first socket has requested it.
    sys::stamp_arrivals(v4.as_fd())?;
    let (published, stats) = aulos_rt::latest(UdpStats::default());
    let first = (index as u64 + 1) << THREAD_SHIFT;
    let posts = [Some(v4), v6];
    let seed =
        ThreadInit { epoll, inbox, send_sockets: posts, ended, published, first_stream_id: first };
    let config = config.clone();
    let thread = std::thread::Builder::new()
        .name(format!("aulos-udp-{index}"))
        .spawn(move || UdpThread::new(seed, &config).run())?;
    Ok(ThreadHandle { commands, stats, thread })
}

/// Ids of streams that a thread creates hold the number of the thread plus one above this bit.
const THREAD_SHIFT: u32 = 48;

const MAX_THREADS: usize = 64;
const MAX_COMMANDS: usize = 4_096;

/// Ended streams that wait to be taken: more than a shared port has, because all of them may end at
/// once. Further ones wait on their threads.
const MAX_ENDED: usize = 16_384;

/// Streams that move at the same time.
const MAX_MOVES: usize = 64;
