//! The command queue of a reactor.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use aulos_engine::fanout::TimedChunk;
use aulos_proto::sendspin::{ArtworkUpdate, RoomState};
use aulos_proto::snap::session::Refusal;
use aulos_proto::snap::wire::ServerSettings;
use aulos_rt::channel::{FdReceiver, RealtimeSender, ReceiverWaker, Sender, bounded};
use aulos_rt::ring::Consumer;

use super::connection_limiter::AddressPermit;
use super::event::SessionId;
use super::greeting::Greeting;
use super::moves::PendingMoves;
use super::peer::SendspinSocket;
use super::srt_push::SrtPush;
use super::stations::StationDescriptor;
use super::tls::{ListenPolicy, MediaSocket};
use super::web::ListenerOptions;
use crate::feed::Feeder;

pub(super) enum ReactorCommand {
    /// Boxed, because a mailbox allocates room for thousands of commands at the start.
    AddStation(Box<(StationDescriptor, Consumer<TimedChunk>)>),
    ReplaceStation(usize, Box<(StationDescriptor, Consumer<TimedChunk>)>),
    RemoveStation(usize),
    FlushStation(usize),
    AddAcceptor(TcpListener),
    AddSnapcastClient(TcpStream, SocketAddr, AddressPermit),
    AddWebSocketClient(Box<MediaSocket>, Vec<u8>),
    AddSendspinClient(Box<SendspinSocket>),
    /// What a Sendspin client is told of its group.
    SetRoom(SessionId, Arc<RoomState>),
    /// What the channels of a Sendspin client are to show.
    SetArtwork(SessionId, Arc<ArtworkUpdate>),
    AddWebListener(Box<(MediaSocket, ListenerOptions)>, usize),
    /// The web listeners of a mount get another one from now on.
    MoveListeners {
        from: usize,
        to: usize,
    },
    SetTitle(usize, Arc<str>),
    SetListenPolicy(Box<ListenPolicy>),
    AddFeeder(Box<dyn Feeder>),
    AddSrtPush(Box<SrtPush>),
    SetSettings(SessionId, ServerSettings),
    SetStation(SessionId, usize),
    ContinueOn {
        session: SessionId,
        from: usize,
        to: usize,
        pending: PendingMoves,
    },
    Refuse(SessionId, Refusal),
    Kick(SessionId),
    /// `None` for the client: the default.
    SetGreeting(Option<Arc<str>>, Option<Greeting>),
    Stop,
}

/// The sending side of a reactor's command queue.
pub(super) struct Mailbox {
    commands: Sender<ReactorCommand>,
    /// Queues commands without waking the reactor.
    non_waking_sender: RealtimeSender<ReactorCommand>,
    wake_handle: ReceiverWaker<ReactorCommand>,
}

/// The receiving side.
pub(super) type Inbox = FdReceiver<ReactorCommand>;

impl Mailbox {
    pub(super) fn new() -> io::Result<(Self, Inbox)> {
        let (commands, inbox) = bounded(MAX_COMMANDS);
        let mailbox =
            Self { non_waking_sender: commands.realtime(), wake_handle: inbox.waker(), commands };
        Ok((mailbox, inbox.into_fd().map_err(|none| none.error)?))
    }

    /// Blocks only when the reactor is thousands of commands behind; never called on an audio path.
    pub(super) fn post(&self, command: ReactorCommand) {
        // A reactor that has ended takes no commands.
        drop(self.commands.send(command));
    }

    /// Like `post` without blocking: two reactors that wait for each other would deadlock.
    pub(super) fn try_post(&self, command: ReactorCommand) -> bool {
        self.commands.try_send(command).is_ok()
    }

    /// Queues a command without waking the reactor, for callers that queue many.
    pub(super) fn enqueue(&self, command: ReactorCommand) -> bool {
        self.non_waking_sender.push(command).is_ok()
    }

    /// Wakes the reactor.
    pub(super) fn wake(&self) {
        self.wake_handle.wake();
    }
}

const MAX_COMMANDS: usize = 4_096;
