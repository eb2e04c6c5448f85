//! What a link writes to, and what it reports.

use aulos_proto::sendspin::ControllerCommand;
use aulos_proto::snap::wire::{ClientInfo, Hello};
use aulos_proto::ws::{FrameKind, WsWriter};

use crate::reactor::SessionEndCause;
use crate::reactor::connection::MediaConnection;
use crate::reactor::outbox::{Outbox, WriteStatus};

/// An event from reading a peer.
#[derive(Debug)]
pub(in crate::reactor) enum PeerEvent {
    Hello(Box<Hello>),
    ClientInfo(ClientInfo),
    /// A command of a client for its group.
    Command(ControllerCommand),
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
        if self.outbox.queued() > MAX_QUEUED { Err(SessionEndCause::NotReading) } else { Ok(()) }
    }
}

/// Limit of unsent answers for a peer that sends requests and does not read.
const MAX_QUEUED: usize = 65_536;
