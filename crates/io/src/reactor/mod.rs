//! The reactor of the house: a few threads, each with one epoll, that serve every socket.
//!
//! A thread per client would cost a stack and two context switches per chunk; an async runtime
//! would put a scheduler between a Time request and its answer. Here a session is a small machine
//! in a slab: it is read as soon as it is readable and answered in the same wake; chunks go out
//! once per *wait*, all that are due in one call, the same bytes to everyone.

mod connection;
mod connection_limiter;
mod greeting;
mod media_stream;
mod outbox;
mod peer;
mod push;
mod run;
mod send_wheel;
mod stations;
mod stats;
mod tls;
mod web;
mod zerocopy;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use aulos_core::Span;
use aulos_engine::fanout::TimedChunk;
use aulos_proto::snap::session::{CloseReason, Refusal};
use aulos_proto::snap::wire::{ClientInfo, Hello, ServerSettings};
use aulos_rt::LatestReader;
use aulos_rt::channel::{FdReceiver, RealtimeSender, ReceiverWaker, Sender, bounded};
use aulos_rt::ring::Consumer;

use crate::feed::Feeder;
pub use connection_limiter::{
    AddressLimits, AddressPermit, AdmitError, ConnectionLimiter, address_key,
};
pub use greeting::Greeting;
pub use media_stream::MediaStream;
pub use push::{PushMonitor, PushReporter, push_channel};
pub use stations::StationDescriptor;
pub use stats::ReactorStats;
pub use tls::{LazyTlsConfig, ListenPolicy, MediaSocket, TLS_FIRST_BYTE};
pub use web::{ListenerOptions, media_type, response_head};
#[cfg_attr(not(target_os = "linux"), allow(unused_imports))]
pub(crate) use zerocopy::QueuedError;

/// The reactor threads, and how to give them work.
pub struct ReactorPool {
    mailboxes: Arc<[Mailbox]>,
    threads: Vec<JoinHandle<()>>,
    stats: Vec<LatestReader<ReactorStats>>,
    next: usize,
}

impl ReactorPool {
    /// Starts `threads` reactors that report to `events`.
    ///
    /// # Errors
    /// When the system gives no more threads or descriptors.
    pub fn start(threads: usize, events: &Arc<dyn EventSink>) -> io::Result<Self> {
        let threads = threads.clamp(1, MAX_REACTORS);
        let (mailboxes, inboxes): (Vec<_>, Vec<_>) = (0..threads)
            .map(|_| Mailbox::new())
            .collect::<io::Result<Vec<_>>>()?
            .into_iter()
            .unzip();
        let mailboxes: Arc<[Mailbox]> = mailboxes.into();
        reserve_descriptors(inboxes[0].as_fd());
        let mut context =
            Self { mailboxes: Arc::clone(&mailboxes), threads: vec![], stats: vec![], next: 0 };
        for (index, inbox) in inboxes.into_iter().enumerate() {
            let (publisher, reader) = aulos_rt::latest(ReactorStats::default());
            let all = Arc::clone(&mailboxes);
            let reactor = run::Reactor::new(index, all, inbox, Arc::clone(events), publisher)?;
            let name = format!("aulos-net-{index}");
            context.threads.push(std::thread::Builder::new().name(name).spawn(|| reactor.run())?);
            context.stats.push(reader);
        }
        Ok(context)
    }

    /// How many reactors there are: a station needs one ring for each.
    #[must_use]
    pub fn reactors(&self) -> usize {
        self.mailboxes.len()
    }

    /// Serves a station; `chunks` has one ring's end for each reactor. Stations are numbered in the
    /// order in which they are added.
    pub fn add_station(&self, channel: &StationDescriptor, chunks: Vec<Consumer<TimedChunk>>) {
        for (mailbox, chunks) in self.mailboxes.iter().zip(chunks) {
            mailbox.post(ReactorCommand::AddStation(Box::new((channel.clone(), chunks))));
        }
    }

    /// Serves another station under the number of one that was there before. Whoever plays that
    /// number gets the new codec header and goes on; its web listeners end.
    pub fn replace_station(
        &self,
        station: usize,
        channel: &StationDescriptor,
        chunks: Vec<Consumer<TimedChunk>>,
    ) {
        for (mailbox, chunks) in self.mailboxes.iter().zip(chunks) {
            mailbox
                .post(ReactorCommand::ReplaceStation(station, Box::new((channel.clone(), chunks))));
        }
    }

    /// Serves a station no longer. Its web listeners end; a session that still plays it, because
    /// nobody has let it play another before, hears nothing until somebody does.
    pub fn remove_station(&self, station: usize) {
        for mailbox in &*self.mailboxes {
            mailbox.post(ReactorCommand::RemoveStation(station));
        }
    }

    /// Lets whoever plays a station throw away what it has buffered: it gets the codec header anew
    /// and what is made from now on.
    pub fn flush_station(&self, station: usize) {
        for mailbox in &*self.mailboxes {
            mailbox.post(ReactorCommand::FlushStation(station));
        }
    }

    /// Accepts Snapcast clients from `listener`.
    ///
    /// # Errors
    /// When the listener cannot be made non-blocking.
    pub fn listen(&self, listener: TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        lengthen_backlog(&listener)?;
        self.mailboxes[0].post(ReactorCommand::AddAcceptor(listener));
        Ok(())
    }

    /// Sends `station`'s sound, without end, as the body of an HTTP response to `socket`, whose
    /// request has been read; or of our own request, where it is pushed.
    pub fn add_web_listener(&mut self, socket: MediaSocket, station: usize, wish: ListenerOptions) {
        let mailbox = self.next_mailbox();
        self.mailboxes[mailbox]
            .post(ReactorCommand::AddWebListener(Box::new((socket, wish)), station));
    }

    /// Tells listeners of a station, as far as they asked for it, what is played.
    pub fn set_title(&self, station: usize, title: &Arc<str>) {
        for mailbox in &*self.mailboxes {
            mailbox.post(ReactorCommand::SetTitle(station, Arc::clone(title)));
        }
    }

    /// Serves a Snapcast client behind a WebSocket, whose handshake is done; `read` is what has been
    /// read behind it.
    pub fn add_websocket_client(&mut self, socket: MediaSocket, read: Vec<u8>) {
        let mailbox = self.next_mailbox();
        self.mailboxes[mailbox].post(ReactorCommand::AddWebSocketClient(Box::new(socket), read));
    }

    /// Says what connections have to be from now on; who is here already stays.
    pub fn set_listen_policy(&self, door: &ListenPolicy) {
        for mailbox in &*self.mailboxes {
            mailbox.post(ReactorCommand::SetListenPolicy(Box::new(door.clone())));
        }
    }

    /// Runs `feeder` on one of the reactors.
    pub fn add_feeder(&mut self, feeder: Box<dyn Feeder>) {
        let mailbox = self.next_mailbox();
        self.mailboxes[mailbox].post(ReactorCommand::AddFeeder(feeder));
    }

    /// Tells a session its settings; the first ones answer its Hello. False when the reactor is
    /// thousands of commands behind: try again.
    #[must_use]
    pub fn set_settings(&self, session: SessionId, settings: ServerSettings) -> bool {
        self.post(session, ReactorCommand::SetSettings(session, settings))
    }

    /// Lets a session play a station from now on; the first one starts its sound. False as above.
    #[must_use]
    pub fn set_station(&self, session: SessionId, station: usize) -> bool {
        self.post(session, ReactorCommand::SetStation(session, station))
    }

    /// Says how a client is to be greeted from now on, or that it is a newcomer like any other; every
    /// reactor then answers its Hello at once. False when a reactor is thousands of commands
    /// behind: try again, whoever has heard it may hear it twice.
    #[must_use]
    pub fn set_greeting(&self, client: &Arc<str>, greeting: Option<Greeting>) -> bool {
        self.post_all(|| ReactorCommand::SetGreeting(Some(Arc::clone(client)), greeting))
    }

    /// Says how clients are to be greeted that have no greeting of their own. Before it is told,
    /// and when there is none, a reactor answers nobody by itself. False as above.
    #[must_use]
    pub fn set_default_greeting(&self, greeting: Option<Greeting>) -> bool {
        self.post_all(|| ReactorCommand::SetGreeting(None, greeting))
    }

    /// Answers a Hello with a refusal and ends the session. False as above.
    #[must_use]
    pub fn refuse(&self, session: SessionId, refusal: Refusal) -> bool {
        self.post(session, ReactorCommand::Refuse(session, refusal))
    }

    /// Cuts a session. False as above.
    #[must_use]
    pub fn kick(&self, session: SessionId) -> bool {
        self.post(session, ReactorCommand::Kick(session))
    }

    /// The counters of every reactor, added up.
    pub fn stats(&mut self) -> ReactorStats {
        let mut sum = ReactorStats::default();
        for reader in &mut self.stats {
            sum.add(reader.read());
        }
        sum
    }

    /// Ends every session and thread.
    pub fn stop(&mut self) {
        for mailbox in &*self.mailboxes {
            mailbox.post(ReactorCommand::Stop);
        }
        for thread in self.threads.drain(..) {
            // A reactor that panicked has already said so on standard error.
            drop(thread.join());
        }
    }

    fn post(&self, session: SessionId, command: ReactorCommand) -> bool {
        self.mailboxes.get(session.reactor()).is_none_or(|mailbox| mailbox.try_post(command))
    }

    fn post_all(&self, command: impl Fn() -> ReactorCommand) -> bool {
        self.mailboxes.iter().all(|mailbox| mailbox.try_post(command()))
    }

    fn next_mailbox(&mut self) -> usize {
        self.next = (self.next + 1) % self.mailboxes.len();
        self.next
    }
}

impl fmt::Debug for ReactorPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("reactors", &self.reactors()).finish_non_exhaustive()
    }
}

/// Where reactors report what happens on the wire. Called on a reactor thread: must not wait.
pub trait EventSink: Send + Sync {
    /// Takes an event.
    ///
    /// # Errors
    /// Gives the event back when there is no room; it is offered again a little later.
    fn push(&self, event: ReactorEvent) -> Result<(), ReactorEvent>;
}

/// What happens on the wire.
#[derive(Debug)]
pub enum ReactorEvent {
    /// A client has said who it is. Unless it has been answered, it waits for [`Context::set`] and
    /// [`Context::play`], in that order, or for [`Context::refuse`], for two seconds at most.
    Hello {
        /// The session.
        session: SessionId,
        /// What the client says of itself.
        hello: Box<Hello>,
        /// Where it comes from.
        address: SocketAddr,
        /// Somebody else than itself says that it may listen: HTTP, or a certificate that was good.
        authorized: bool,
        /// What it has been told already.
        answered: Option<Greeting>,
    },
    /// A client has changed its own volume.
    ClientInfo {
        /// The session.
        session: SessionId,
        /// What has changed.
        info: ClientInfo,
    },
    /// How a client does, every two seconds or, in a large house, less often. The only event that
    /// is not offered again when there was no room for it.
    Health {
        /// The session.
        session: SessionId,
        /// How it does.
        health: ConnectionHealth,
    },
    /// A session that had said hello is over.
    SessionEnded {
        /// The session.
        session: SessionId,
        /// Why.
        cause: SessionEndCause,
    },
}

/// What can be known of a client's connection from this end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionHealth {
    /// How long it can play with what it has been sent; none before the first chunk, less than zero
    /// when it is late.
    pub buffered: Option<Span>,
    /// From a segment to its acknowledgement, smoothed, as TCP measures it.
    pub round_trip: Span,
    /// By how much that varies, on average.
    pub jitter: Span,
    /// Bytes that wait in this machine.
    pub unsent: u64,
    /// Segments that had to be sent again since the connection began.
    pub retransmitted: u64,
    /// Chunks that it was too slow for, and that were left out.
    pub skipped: u64,
    /// How long ago the last of them was left out.
    pub since_skip: Option<Span>,
}

/// One connection of one client: the reactor, and a number that it never uses twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(u64);

impl SessionId {
    /// The session with this number, as [`SessionId::number`] gave it.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// A number that no other session of this house has.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    const fn new(reactor: usize, token: u64) -> Self {
        Self((reactor as u64) << TOKEN_BITS | token)
    }

    #[allow(clippy::cast_possible_truncation, reason = "eight bits")]
    const fn reactor(self) -> usize {
        (self.0 >> TOKEN_BITS) as usize
    }

    const fn token(self) -> u64 {
        self.0 & ((1 << TOKEN_BITS) - 1)
    }
}

/// A token has 24 bits of generation and 32 of index; what is above them is the reactor.
const TOKEN_BITS: u32 = 56;

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SessionEndCause {
    /// The peer closed.
    Closed,
    /// The network gave up: reset, or nothing acknowledged for ten seconds.
    Network,
    /// It read nothing for ten seconds.
    NotReading,
    /// It broke the protocol.
    Protocol(CloseReason),
    /// We were told to cut it.
    Kicked,
    /// What it sent was no TLS after all, or broke it.
    TlsFailed,
    /// It began a handshake of TLS and did not end it.
    TlsUnfinished,
    /// It does not speak TLS, and has to.
    PlainRefused,
}

enum ReactorCommand {
    /// Boxed: a mailbox has room for thousands of commands, from the start.
    AddStation(Box<(StationDescriptor, Consumer<TimedChunk>)>),
    ReplaceStation(usize, Box<(StationDescriptor, Consumer<TimedChunk>)>),
    RemoveStation(usize),
    FlushStation(usize),
    AddAcceptor(TcpListener),
    AddSnapcastClient(TcpStream, SocketAddr, AddressPermit),
    AddWebSocketClient(Box<MediaSocket>, Vec<u8>),
    AddWebListener(Box<(MediaSocket, ListenerOptions)>, usize),
    SetTitle(usize, Arc<str>),
    SetListenPolicy(Box<ListenPolicy>),
    AddFeeder(Box<dyn Feeder>),
    SetSettings(SessionId, ServerSettings),
    SetStation(SessionId, usize),
    Refuse(SessionId, Refusal),
    Kick(SessionId),
    /// None: newcomers.
    SetGreeting(Option<Arc<str>>, Option<Greeting>),
    Stop,
}

/// A reactor's door for other threads.
struct Mailbox {
    commands: Sender<ReactorCommand>,
    /// Puts commands in and does not wake the reactor.
    non_waking_sender: RealtimeSender<ReactorCommand>,
    wake_handle: ReceiverWaker<ReactorCommand>,
}

/// The other side of it.
type Inbox = FdReceiver<ReactorCommand>;

impl Mailbox {
    fn new() -> io::Result<(Self, Inbox)> {
        let (commands, inbox) = bounded(MAX_COMMANDS);
        let mailbox =
            Self { non_waking_sender: commands.realtime(), wake_handle: inbox.waker(), commands };
        Ok((mailbox, inbox.into_fd().map_err(|none| none.error)?))
    }

    /// Waits only when a reactor is thousands of commands behind; never called on an audio path.
    fn post(&self, command: ReactorCommand) {
        // A reactor that has ended wants nothing any more.
        drop(self.commands.send(command));
    }

    /// The same without waiting: a reactor must not wait for another one, or two could wait for
    /// each other.
    fn try_post(&self, command: ReactorCommand) -> bool {
        self.commands.try_send(command).is_ok()
    }

    /// The first half of that, for whoever leaves many commands before it rings.
    fn enqueue(&self, command: ReactorCommand) -> bool {
        self.non_waking_sender.push(command).is_ok()
    }

    /// The second half.
    fn wake(&self) {
        self.wake_handle.wake();
    }
}

/// Lets the kernel's table of descriptors grow now. It doubles when it is full, and in a process
/// with threads each time costs whoever opens a descriptor some 15 ms (a grace period of RCU):
/// in the middle of a crowd, all who have yet to be let in would wait for that.
fn reserve_descriptors(any: BorrowedFd<'_>) {
    let mut highest = RESERVED_DESCRIPTORS;
    // Where the limit is lower, as much as it allows.
    while highest > 256 && rustix::io::fcntl_dupfd_cloexec(any, highest).is_err() {
        highest /= 2;
    }
}

/// What the number of a session has room for.
const MAX_REACTORS: usize = 64;

/// Lets many connections wait to be accepted. Clients that come back after a power cut connect all at
/// once, and one that finds the standard library's queue of 128 full tries again after a second.
///
/// # Errors
/// What the system says; a listener has no reason to fail.
pub fn lengthen_backlog(listener: &TcpListener) -> io::Result<()> {
    Ok(rustix::net::listen(listener, BACKLOG)?)
}

/// Connections that wait to be accepted; the kernel cuts it to its own limit.
const BACKLOG: i32 = 4_096;

const MAX_COMMANDS: usize = 4_096;

/// The highest number that a descriptor may have without the table having to grow: 64 kB of the
/// kernel's memory.
const RESERVED_DESCRIPTORS: i32 = 8_191;
