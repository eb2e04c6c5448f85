//! The reactors: a few threads, each with one epoll instance, that serve every media socket.
//!
//! Neither a thread per client nor an async runtime serves a media socket
//! (`docs/decisions/reactors.md`). A session is a small state machine in a slab. It is read as soon
//! as it is readable and answered in the same wake-up. Chunks go out once per *wait*: all that are
//! due in one call, the same bytes for every client.

mod connection;
mod connection_limiter;
mod event;
mod greeting;
mod listener_session;
mod mailbox;
mod media_stream;
mod moves;
mod outbox;
mod peer;
mod push;
mod run;
mod send_wheel;
mod srt_push;
mod stations;
mod stats;
mod tls;
mod web;
mod zerocopy;

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use aulos_engine::fanout::TimedChunk;
use aulos_proto::sendspin::{ArtworkUpdate, RoomState};
use aulos_proto::snap::session::Refusal;
use aulos_proto::snap::wire::ServerSettings;
use aulos_rt::LatestReader;
use aulos_rt::ring::Consumer;

use crate::feed::Feeder;
pub use connection_limiter::{
    AddressLimits, AddressPermit, AdmitError, ConnectionLimiter, address_key,
};
pub use event::{ConnectionHealth, EventSink, ReactorEvent, SessionEndCause, SessionId};
pub use greeting::Greeting;
pub use listener_session::ListenerSession;
pub use media_stream::MediaStream;
pub use moves::PendingMoves;
pub use peer::SendspinSocket;
pub use push::{PushMonitor, PushReporter, push_channel};
pub use srt_push::{SrtPush, SrtPushMonitor, SrtPushProgress};
pub use stations::{MountStreamInfo, StationDescriptor};
pub use stats::ReactorStats;
pub use tls::{LazyTlsConfig, ListenPolicy, MediaSocket, TLS_FIRST_BYTE};
pub use web::{ListenerOptions, response_head};
#[cfg_attr(not(target_os = "linux"), allow(unused_imports))]
pub(crate) use zerocopy::QueuedError;

use mailbox::{Mailbox, ReactorCommand};

/// The reactor threads and the handle to them.
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
    /// When the system has no threads or descriptors left.
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

    /// The number of reactors: a station needs one ring for each.
    #[must_use]
    pub fn reactors(&self) -> usize {
        self.mailboxes.len()
    }

    /// Serves a station. `chunks` holds one consumer for each reactor. Stations are numbered in the
    /// order in which they are added.
    pub fn add_station(&self, channel: &StationDescriptor, chunks: Vec<Consumer<TimedChunk>>) {
        for (mailbox, chunks) in self.mailboxes.iter().zip(chunks) {
            mailbox.post(ReactorCommand::AddStation(Box::new((channel.clone(), chunks))));
        }
    }

    /// Serves another station under the number of an earlier one. Sessions that play it get the new
    /// codec header and continue; its web listeners end.
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

    /// Stops serving a station. Its web listeners end. A session that still plays it gets no audio
    /// until it is assigned another station, or joins the one on which it was to continue.
    pub fn remove_station(&self, station: usize) {
        for mailbox in &*self.mailboxes {
            mailbox.post(ReactorCommand::RemoveStation(station));
        }
    }

    /// Makes clients of a station discard what they have buffered: they get the codec header again
    /// and then new chunks.
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

    /// Sends the audio of `station` on `socket`, without end: as the body of an HTTP response whose
    /// request has been read, or as the body of our own request for a push.
    pub fn add_web_listener(
        &mut self,
        socket: MediaSocket,
        station: usize,
        options: ListenerOptions,
    ) {
        let mailbox = self.next_mailbox();
        self.mailboxes[mailbox]
            .post(ReactorCommand::AddWebListener(Box::new((socket, options)), station));
    }

    /// Sends the stream of the mount `to` to the web listeners of the mount `from`, which has the
    /// same format, from its next frames on.
    pub fn move_listeners(&self, from: usize, to: usize) {
        for mailbox in &*self.mailboxes {
            mailbox.post(ReactorCommand::MoveListeners { from, to });
        }
    }

    /// Sets the current title, for listeners that requested titles.
    pub fn set_title(&self, station: usize, title: &Arc<str>) {
        for mailbox in &*self.mailboxes {
            mailbox.post(ReactorCommand::SetTitle(station, Arc::clone(title)));
        }
    }

    /// Serves a Snapcast client behind a WebSocket whose handshake is complete; `read` holds the
    /// bytes that were read after it.
    pub fn add_websocket_client(&mut self, socket: MediaSocket, read: Vec<u8>) {
        let mailbox = self.next_mailbox();
        self.mailboxes[mailbox].post(ReactorCommand::AddWebSocketClient(Box::new(socket), read));
    }

    /// Serves a Sendspin client that has been let in.
    pub fn add_sendspin_client(&mut self, client: SendspinSocket) {
        let mailbox = self.next_mailbox();
        self.mailboxes[mailbox].post(ReactorCommand::AddSendspinClient(Box::new(client)));
    }

    /// Tells a Sendspin client of its group. False as for [`Self::set_settings`].
    #[must_use]
    pub fn set_room(&self, session: SessionId, room: &Arc<RoomState>) -> bool {
        self.post(session, ReactorCommand::SetRoom(session, Arc::clone(room)))
    }

    /// Tells a Sendspin client what its channels are to show; false as for [`Self::set_settings`].
    #[must_use]
    pub fn set_artwork(&self, session: SessionId, update: &Arc<ArtworkUpdate>) -> bool {
        self.post(session, ReactorCommand::SetArtwork(session, Arc::clone(update)))
    }

    /// Sets the policy for new connections; existing ones stay.
    pub fn set_listen_policy(&self, policy: &ListenPolicy) {
        for mailbox in &*self.mailboxes {
            mailbox.post(ReactorCommand::SetListenPolicy(Box::new(policy.clone())));
        }
    }

    /// Runs a push over SRT on one of the reactors.
    pub fn add_srt_push(&mut self, push: SrtPush) {
        let mailbox = self.next_mailbox();
        self.mailboxes[mailbox].post(ReactorCommand::AddSrtPush(Box::new(push)));
    }

    /// Runs `feeder` on one of the reactors.
    pub fn add_feeder(&mut self, feeder: Box<dyn Feeder>) {
        let mailbox = self.next_mailbox();
        self.mailboxes[mailbox].post(ReactorCommand::AddFeeder(feeder));
    }

    /// Sends its settings to a session; the first ones answer its Hello. False when the reactor is
    /// thousands of commands behind: try again.
    #[must_use]
    pub fn set_settings(&self, session: SessionId, settings: ServerSettings) -> bool {
        self.post(session, ReactorCommand::SetSettings(session, settings))
    }

    /// Assigns a station to a session; the first assignment starts its audio. False as above.
    #[must_use]
    pub fn set_station(&self, session: SessionId, station: usize) -> bool {
        self.post(session, ReactorCommand::SetStation(session, station))
    }

    /// Lets a session that plays `from` continue on `to`, another rendition of the same station
    /// with the same times: no chunk is missed or doubled, and no codec header is sent. It gets the
    /// first chunk that `to` has and it has not, and all later ones, from there. If the codec headers
    /// differ, it joins `to` as with [`Self::set_station`]; if it does not play `from`, nothing
    /// happens. False as above.
    #[must_use]
    pub fn continue_on(&self, session: SessionId, from: usize, to: usize) -> bool {
        self.continue_counted(session, from, to, &PendingMoves::default())
    }

    /// As [`Self::continue_on`]; `moves` counts it until the session has moved, or never will.
    #[must_use]
    pub fn continue_counted(
        &self,
        session: SessionId,
        from: usize,
        to: usize,
        moves: &PendingMoves,
    ) -> bool {
        let pending = moves.clone();
        self.post(session, ReactorCommand::ContinueOn { session, from, to, pending })
    }

    /// Sets the answer to a client's Hello, or resets it to the default. Each reactor answers the
    /// Hello by itself from then on. False when a reactor is thousands of commands behind: try
    /// again; a reactor may get the same command twice.
    #[must_use]
    pub fn set_greeting(&self, client: &Arc<str>, greeting: Option<Greeting>) -> bool {
        self.post_all(|| ReactorCommand::SetGreeting(Some(Arc::clone(client)), greeting))
    }

    /// Sets the answer for clients without an answer of their own. Before it is set, or with
    /// `None`, a reactor answers no unknown client by itself. False as above.
    #[must_use]
    pub fn set_default_greeting(&self, greeting: Option<Greeting>) -> bool {
        self.post_all(|| ReactorCommand::SetGreeting(None, greeting))
    }

    /// Answers a Hello with a refusal and ends the session. False as above.
    #[must_use]
    pub fn refuse(&self, session: SessionId, refusal: Refusal) -> bool {
        self.post(session, ReactorCommand::Refuse(session, refusal))
    }

    /// Ends a session. False as above.
    #[must_use]
    pub fn kick(&self, session: SessionId) -> bool {
        self.post(session, ReactorCommand::Kick(session))
    }

    /// The sum of the counters of all reactors.
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
            // The panic message of the reactor is already on standard error.
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

/// Grows the kernel's descriptor table in advance. The table doubles when it is full, and in a
/// process with threads each growth delays the opening of a descriptor by about 15 ms (an RCU grace
/// period). While many clients connect, all of them would wait for that.
fn reserve_descriptors(any: BorrowedFd<'_>) {
    let mut highest = RESERVED_DESCRIPTORS;
    // Up to the process limit where that is lower.
    while highest > 256 && rustix::io::fcntl_dupfd_cloexec(any, highest).is_err() {
        highest /= 2;
    }
}

/// The limit of the session number's encoding.
const MAX_REACTORS: usize = 64;

/// Enlarges the backlog of a listener. After a power cut all clients connect at once, and a client
/// that finds the standard library's backlog of 128 full retries only after a second.
///
/// # Errors
/// Errors of the system; none are expected for a listener.
pub fn lengthen_backlog(listener: &TcpListener) -> io::Result<()> {
    Ok(rustix::net::listen(listener, BACKLOG)?)
}

/// Connections that may wait to be accepted; the kernel applies its own limit.
const BACKLOG: i32 = 4_096;

/// The highest descriptor number that fits without growing the table: 64 kB of kernel memory.
const RESERVED_DESCRIPTORS: i32 = 8_191;
