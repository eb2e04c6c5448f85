//! What a link writes to, and what it reports.

use std::os::fd::AsFd as _;

use aulos_proto::sendspin::{ArtworkRequest, ControllerCommand};
use aulos_proto::snap::wire::{ClientInfo, Hello};
use aulos_proto::ws::{FrameKind, WsWriter};

use crate::reactor::SessionEndCause;
use crate::reactor::connection::MediaConnection;
use crate::reactor::outbox::{Outbox, WriteStatus};
use crate::sys;

/// An event from reading a peer.
#[derive(Debug)]
pub(in crate::reactor) enum PeerEvent {
    /// Its hello, and the volume that it has, as far as it says so.
    Hello(Box<Hello>, ClientInfo),
    ClientInfo(ClientInfo),
    /// A command of a client for its group.
    Command(ControllerCommand),
    /// The pictures that a client wants.
    Artwork(ArtworkRequest),
}

/// What a link writes to.
pub(super) struct Wire<'a> {
    pub(super) connection: &'a mut MediaConnection,
    pub(super) outbox: &'a mut Outbox,
    /// Set when the socket accepts no more.
    pub(super) blocked: &'a mut bool,
}

impl Wire<'_> {
    /// Writes what is pending, if there is anything.
    pub(super) fn flush(&mut self) -> Result<(), SessionEndCause> {
        if self.outbox.queued() > 0 {
            let flow = self.outbox.finish(self.connection);
            let flow = flow.map_err(|_| SessionEndCause::Network)?;
            *self.blocked = flow == WriteStatus::Blocked;
        }
        Ok(())
    }

    /// Sends a whole frame of a WebSocket.
    pub(super) fn send_frame(
        &mut self,
        writer: &mut WsWriter,
        kind: FrameKind,
        payload: &[u8],
    ) -> Result<(), SessionEndCause> {
        self.check_queue()?;
        self.outbox.queue_with(|out| writer.write(kind, payload, out));
        self.flush()
    }

    /// Whether a peer that asks may be answered; one that does not read is cut.
    pub(super) fn check_queue(&self) -> Result<(), SessionEndCause> {
        self.check_queue_beside(0)
    }

    /// The same for a peer that may have so many bytes of something else before it.
    pub(super) fn check_queue_beside(&self, other: usize) -> Result<(), SessionEndCause> {
        match self.outbox.queued() > MAX_QUEUED + other {
            true => Err(SessionEndCause::NotReading),
            false => Ok(()),
        }
    }

    /// Whether neither we nor the kernel have something to send. Asks the system.
    pub(super) fn is_idle(&self) -> bool {
        // Where the system does not say it, what is on its way is not known.
        let unsent = || sys::tcp_account(self.connection.as_fd()).map_or(0, |it| it.unsent_bytes);
        !*self.blocked && self.outbox.queued() == 0 && unsent() == 0
    }
}

/// Limit of unsent answers for a peer that sends requests and does not read.
const MAX_QUEUED: usize = 65_536;
