//! A few threads for thousands of streams of datagrams.
//!
//! ```text
//!   socket per stream ---+                        +--- Machine --+
//!   socket per stream ---+--> one look per wait --+--- Machine --+--> Outbox --> 64 in a call
//!   shared port ---------+    (epoll, recvmmsg)   +--- Machine --+
//!   trunk (joined) ------+                        +--- Machine --+
//! ```
//!
//! A thread for each stream wakes for each packet: at a thousand streams of telephony these are
//! 50,000 wakes a second, and most of what the processor does. Here a thread has many streams, and
//! looks at all of them at once, at most once per *wait* (5 ms): it takes what the kernel has, gives
//! it to the streams' machines, calls those whose time has come, and sends what they have written, 64
//! messages in a call. The kernel notes when each packet came, so looking late costs delay, but
//! nobody sees jitter that there was not. When nothing comes at all, the thread sleeps until
//! something does: silent streams cost nothing.
//!
//! Between two looks no lock, channel or allocation is touched for a packet. Control speaks to the
//! threads through a channel that is read between two batches.
//!
//! # Three ways in
//! * **A socket per stream** ([`Context::add`]): what telephony and SDP are made for. Half of its
//!   price is the system call for each packet.
//! * **A shared port** ([`Context::open`]): many streams on one port, told apart by their SSRC or by
//!   whom they come from. Each thread has a socket of its own on it.
//! * **A trunk**: a shared port with [`SharedPort::joined`], and at the other end a context that
//!   joins what goes to one place ([`Config::join_sends`]). Dozens of packets then pass the kernels
//!   of both as one.
//!
//! # What does not belong here
//! A machine that waits: see [`Machine`].
//!
//! # Examples
//! ```
//! use aulos_core::Instant;
//! use aulos_io::udp::{Config, Context, Machine, Outbox, Packets, Route, bind_socket};
//!
//! /// Sends everything back to where it came from.
//! struct Echo(u64);
//!
//! impl Machine for Echo {
//!     type Order = ();
//!     type Report = u64;
//!
//!     fn packets(&mut self, _: Instant, packets: &mut Packets<'_>, out: &mut Outbox<'_>) {
//!         for packet in packets {
//!             self.0 += u64::from(out.send(Route::to(packet.from).own(), packet.bytes));
//!         }
//!     }
//!
//!     fn handle_timeout(&mut self, _: Instant, _: &mut Outbox<'_>) {}
//!
//!     fn poll_timeout(&self) -> Option<Instant> {
//!         None
//!     }
//!
//!     fn obey(&mut self, _: Instant, (): (), _: &mut Outbox<'_>) {}
//!
//!     fn report(&self) -> u64 {
//!         self.0
//!     }
//! }
//!
//! let mut context = Context::start(&Config::default())?;
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
//!
//! # Rejected
//! `io_uring`: no faster in this shape, often forbidden in containers, and then everything is needed
//! twice. Edge-triggered epoll: one lost edge silences a stream for ever. An async runtime: a task
//! and two system calls for each packet.

mod load;
mod machine;
mod outbox;
mod run;
mod shared;
mod slots;
mod socket;
mod stats;
mod stream;
#[cfg(test)]
pub(crate) mod testing;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::thread::JoinHandle;
use std::time::Duration;

use aulos_core::Span;
use aulos_rt::LatestReader;
use aulos_rt::channel::{Receiver, SendError, Sender, bounded};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::{SystemClock, sys};
use load::ThreadLoads;
pub use machine::{Machine, MachineFactory, Packet, Packets, StreamKey};
pub use outbox::{Outbox, PACE_AHEAD, Route};
use run::{INBOX, ThreadInit, UdpThread};
use shared::StreamTable;
pub use shared::{Demux, OpenPort, PortId, SharedPortConfig};
pub(crate) use slots::{DatagramInfo, SMALL_SLOT_BYTES, Slots};
pub use socket::{SocketOptions, bind_socket, granted_receive_buffer};
pub use stats::{StreamStats, UdpStats};
use stream::MovingStream;

/// What a context is to be.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UdpConfig {
    /// How many threads: one for each processor that there is to spare. More than that cost and gain
    /// nothing.
    pub threads: usize,
    /// How long a packet may wait to be looked at, 1 to 20 ms. Up to so much delay is added, half of
    /// it on average.
    pub wait: Span,
    /// The longest datagram that is taken, 256 to 65,507 bytes; what is longer is counted and lost.
    pub max_datagram: usize,
    /// Whether datagrams of one length that go to one place one behind the other are given to the
    /// kernel as one. The receiver does not see it.
    pub join_sends: bool,
    /// From where the context sends, with a port of the kernel's choice.
    pub bind_v4: Ipv4Addr,
    /// The same for IPv6; a machine without IPv6 does without.
    pub bind_v6: Ipv6Addr,
    /// What the sockets are to be that it sends from.
    pub send: SocketOptions,
    /// What makes the key of a packet that comes to one of these sockets: the SSRC that RTCP reports
    /// about. See [`Outbox::claim`].
    pub answer_key: AnswerKeyFn,
}

/// A function that finds the key of an answer.
pub type AnswerKeyFn = fn(&[u8], SocketAddr) -> Option<StreamKey>;

impl Default for UdpConfig {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            threads: cores.min(MAX_DEFAULT_THREADS),
            wait: Span::from_millis(5),
            max_datagram: 9_216,
            join_sends: true,
            bind_v4: Ipv4Addr::UNSPECIFIED,
            bind_v6: Ipv6Addr::UNSPECIFIED,
            send: SocketOptions { send_buffer: SEND_BUFFER, ..SocketOptions::default() },
            answer_key: |bytes, _| StreamKey::reported_ssrc(bytes),
        }
    }
}

/// A stream, for control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(u64);

/// A stream that is no more.
#[derive(Debug)]
#[non_exhaustive]
pub struct EndedStream<M> {
    /// Which it was.
    pub id: StreamId,
    /// What ran it.
    pub machine: M,
    /// What it came to.
    pub stats: StreamStats,
    /// Why.
    pub cause: StreamEndCause,
}

/// Why a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamEndCause {
    /// [`Context::remove`], or its shared port was closed.
    Removed,
    /// Its machine said so ([`Outbox::end`]).
    Machine,
    /// It was silent for longer than its shared port allows.
    Silent,
    /// The system could not watch its socket.
    WatchFailed,
    /// The context has stopped.
    Stopped,
}

/// A stream, when all of them are asked for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StreamReport<R> {
    /// Which.
    pub id: StreamId,
    /// What came for it.
    pub stats: StreamStats,
    /// What its machine says.
    pub report: R,
}

/// The threads, and how to give them work. When it is dropped the threads end as after
/// [`Self::stop`], but nobody waits for them. A machine that panics takes its thread with it, and the
/// streams that are there.
pub struct UdpContext<M: Machine> {
    threads: Vec<ThreadHandle<M>>,
    /// Where the streams with sockets of their own are. Others have the thread in their number.
    threads_by_stream: HashMap<StreamId, usize>,
    /// Those that [`Self::balance`] leaves where they are.
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

enum ThreadCommand<M: Machine> {
    Add(Box<MovingStream<M>>),
    OpenPort(Box<(UdpSocket, StreamTable<M>)>),
    ClosePort(PortId),
    ToStream(StreamId, M::Command),
    Remove(StreamId),
    Detach(StreamId, Sender<Option<Box<MovingStream<M>>>>),
    Report(Vec<StreamReport<M::Report>>, Sender<Vec<StreamReport<M::Report>>>),
    Stop,
}

impl<M: Machine> UdpContext<M> {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system gives no more threads, descriptors or sockets.
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

    /// Serves a stream with a socket of its own, on the thread that has least to do; without a
    /// socket, it has its timers, and sends from the context's. The stream answers from this socket
    /// if its routes say so.
    ///
    /// # Errors
    /// When the socket is not what it should be. A stream that the system cannot watch ends with
    /// [`EndCause::NoRoom`].
    pub fn add(&mut self, socket: Option<UdpSocket>, machine: M) -> io::Result<StreamId> {
        self.add_stream(socket, None, machine)
    }

    /// Serves a stream that comes over two ways, each to a socket of its own: a packet says which it
    /// was ([`Packet::is_second`]). The stream answers from the first one.
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
        let moving = MovingStream { id, machine, socket, lost: 0, second, claim: None, stats };
        self.post(thread, ThreadCommand::Add(Box::new(moving)));
        Ok(id)
    }

    /// Opens a port for many streams. Each thread has a socket on it and gets a factory of its own,
    /// made by `factory` from the thread's number, which makes the machine of each stream that
    /// begins. A trunk ([`SharedPort::joined`]) is one thread's, that which has least to do: packets of
    /// many streams come in one piece, and the kernel would give it to whoever has the first of them.
    ///
    /// # Errors
    /// When the port cannot be had, or not be shared.
    pub fn open<F: MachineFactory<M>>(
        &mut self,
        wish: &SharedPortConfig,
        mut factory: impl FnMut(usize) -> F,
    ) -> io::Result<OpenPort> {
        let threads: Vec<usize> = if wish.joined {
            self.update_loads();
            vec![self.loads.assign_stream()]
        } else {
            (0..self.threads.len()).collect()
        };
        let count = threads.len();
        let mut options = wish.options.clone();
        // Nobody else can then have a share of it.
        options.reuse_port |= count > 1;
        let mut address = wish.address;
        let mut sockets = Vec::new();
        for _ in &threads {
            let socket = bind_socket(address, &options)?;
            socket::prepare(&socket)?;
            address = socket.local_addr()?;
            sockets.push(socket);
        }
        if let (Demux::Ssrc, [first, _, ..]) = (wish.demux, &sockets[..]) {
            sys::share_by_ssrc(first.as_fd(), u32::try_from(count).unwrap_or(1))?;
        }
        let receive_buffer = granted_receive_buffer(&sockets[0])?;
        let id = PortId(self.next_port);
        self.next_port += 1;
        for (thread, socket) in threads.into_iter().zip(sockets) {
            let table = StreamTable::new(id, wish, count, Box::new(factory(thread)));
            self.post(thread, ThreadCommand::OpenPort(Box::new((socket, table))));
        }
        Ok(OpenPort { id, address, receive_buffer })
    }

    /// Closes a shared port and ends its streams.
    pub fn close(&self, port: PortId) {
        (0..self.threads.len())
            .for_each(|thread| self.post(thread, ThreadCommand::ClosePort(port)));
    }

    /// Tells a stream something. It is heard within a wait; a stream that has ended hears nothing.
    ///
    /// # Errors
    /// Gives the order back when the thread is thousands of commands behind: try again. Also when
    /// there is no such stream.
    pub fn send_command(&self, stream: StreamId, order: M::Command) -> Result<(), M::Command> {
        let Some(handle) = self.threads.get(self.thread_of(stream)) else { return Err(order) };
        match handle.commands.try_send(ThreadCommand::ToStream(stream, order)) {
            Err(
                SendError::Full(ThreadCommand::ToStream(_, order))
                | SendError::Closed(ThreadCommand::ToStream(_, order)),
            ) => Err(order),
            _ => Ok(()),
        }
    }

    /// Ends a stream: its machine sends what it still has, its socket is closed, and
    /// [`Self::ended`] gives it back.
    pub fn remove(&mut self, stream: StreamId) {
        self.post(self.thread_of(stream), ThreadCommand::Remove(stream));
    }

    /// Moves a stream to another thread, with all that its socket holds; what it sends from the
    /// context's socket comes from another port then. Waits for its thread, for about a wait. False when there is no such stream or thread, or it is one of a shared port,
    /// which are where the kernel brings their packets.
    pub fn move_to(&mut self, stream: StreamId, thread: usize) -> bool {
        let from = self.thread_of(stream);
        if thread == from || thread >= self.threads.len() {
            return thread == from && self.threads_by_stream.contains_key(&stream);
        }
        let (sender, mut reply) = bounded(1);
        self.post(from, ThreadCommand::Detach(stream, sender));
        // It either comes, or its thread has ended.
        let Some(Some(moving)) = reply.recv() else { return false };
        self.post(thread, ThreadCommand::Add(moving));
        self.threads_by_stream.insert(stream, thread);
        self.loads.add_streams(from, -1);
        self.loads.add_streams(thread, 1);
        true
    }

    /// Moves streams from the busiest thread to the one that has least to do, if that is worth it;
    /// says how many. Call it every few seconds.
    pub fn balance(&mut self) -> usize {
        self.update_loads();
        let Some((from, to, count)) = self.loads.imbalance() else { return 0 };
        let here =
            self.threads_by_stream.iter().filter(|(_, place)| **place == from).map(|(id, _)| *id);
        let here = here.filter(|stream| !self.pinned_streams.contains(stream));
        let streams: Vec<StreamId> = here.take(count.min(MAX_MOVES)).collect();
        streams.into_iter().filter(|stream| self.move_to(*stream, to)).count()
    }

    /// Lets a stream stay on its thread: for one that sends from the context's socket to somebody who
    /// knows it by the port that it comes from. [`Self::balance`] passes it over.
    pub fn pin(&mut self, stream: StreamId) {
        self.pinned_streams.insert(stream);
    }

    /// What became of streams that have ended, one at a time. Poll it now and then: here their memory
    /// is freed, and not on the threads.
    pub fn poll_ended(&mut self) -> Option<EndedStream<M>> {
        let ended = *self.ended.try_recv().ok()?;
        self.pinned_streams.remove(&ended.id);
        if let Some(place) = self.threads_by_stream.remove(&ended.id) {
            self.loads.add_streams(place, -1);
        }
        Some(ended)
    }

    /// All streams, in no order, with what their machines say. Waits for the threads, for about a
    /// wait, and a second at most.
    pub fn stream_reports(&self) -> Vec<StreamReport<M::Report>> {
        let replies: Vec<_> = (0..self.threads.len())
            .map(|thread| {
                let (sender, reply) = bounded(1);
                // The memory is made here.
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

    /// What each thread has counted, four times a second.
    pub fn stats(&mut self) -> Vec<UdpStats> {
        self.threads.iter_mut().map(|handle| *handle.stats.read()).collect()
    }

    /// Ends: every machine sends what it still has, all that waits is sent, sockets are closed and
    /// the threads joined. Gives back what has not been given back by [`Self::ended`].
    pub fn stop(mut self) -> Vec<EndedStream<M>> {
        for handle in &self.threads {
            drop(handle.commands.send(ThreadCommand::Stop));
        }
        let mut ended = Vec::new();
        for handle in self.threads.drain(..) {
            // A thread that panicked has already said so on standard error.
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

    /// Waits only when a thread is thousands of commands behind.
    fn post(&self, thread: usize, command: ThreadCommand<M>) {
        if let Some(handle) = self.threads.get(thread) {
            // A thread that has ended wants nothing any more.
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
    // The kernel begins to note times a moment after the first socket has asked for it.
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

/// The numbers of streams that a thread makes have its own number, and one, above this.
const THREAD_SHIFT: u32 = 48;

const MAX_THREADS: usize = 64;
const MAX_DEFAULT_THREADS: usize = 4;
const MAX_COMMANDS: usize = 4_096;

/// Streams that have ended and wait to be taken: more than a shared port has, because all of them may
/// go at once. Those behind them wait on their threads.
const MAX_ENDED: usize = 16_384;

/// Streams that move at once.
const MAX_MOVES: usize = 64;

/// A tick's datagrams of thousands of streams, as the kernel counts them.
const SEND_BUFFER: usize = 4 << 20;
