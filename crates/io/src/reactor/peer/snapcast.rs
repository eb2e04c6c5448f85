//! A Snapcast client, on TCP or behind a WebSocket.

use std::sync::Arc;

use aulos_core::Instant;
use aulos_proto::snap::Session;
use aulos_proto::snap::session::{
    CloseReason, Refusal, ServerOutgoing, SessionEvent as SnapEvent, SessionInput, SessionOutput,
};
use aulos_proto::snap::wire::{ClientInfo, ServerSettings};
use aulos_proto::ws;

use super::wire::{PeerEvent, Wire};
use crate::SystemClock;
use crate::reactor::SessionEndCause;
use crate::reactor::outbox::{TimestampedMessage, WriteStatus};

/// Its session, and what reads its frames.
#[derive(Debug)]
pub(super) struct SnapcastLink {
    pub(super) session: Session,
    /// `None` for plain TCP.
    websocket: Option<Box<ws::WsReader>>,
}

impl SnapcastLink {
    pub(super) fn new(is_websocket: bool, now: Instant) -> Self {
        Self { session: Session::new(now), websocket: is_websocket.then(Box::default) }
    }

    pub(super) fn handle_bytes(
        &mut self,
        wire: &mut Wire<'_>,
        bytes: &[u8],
        now: Instant,
        events: &mut Vec<PeerEvent>,
    ) -> Result<(), SessionEndCause> {
        let Some(mut frames) = self.websocket.take() else {
            self.session.handle_input(now, SessionInput::Received(bytes));
            return self.drain(wire, events);
        };
        let result = self.handle_websocket_bytes(wire, &mut frames, bytes, now, events);
        self.websocket = Some(frames);
        result
    }

    fn handle_websocket_bytes(
        &mut self,
        wire: &mut Wire<'_>,
        frames: &mut ws::WsReader,
        mut bytes: &[u8],
        now: Instant,
        events: &mut Vec<PeerEvent>,
    ) -> Result<(), SessionEndCause> {
        let broken = |_| SessionEndCause::Protocol(CloseReason::Malformed);
        while let Some(message) = frames.next(&mut bytes).map_err(broken)? {
            match message {
                ws::WsMessage::Binary(message) => {
                    self.session.handle_input(now, SessionInput::Framed(message));
                    // The answers to one message go out before the next is parsed, so what waits is
                    // bounded.
                    self.drain(wire, events)?;
                }
                ws::WsMessage::Ping(payload) => {
                    wire.send_frame(&mut ws::WsWriter::default(), ws::FrameKind::Pong, payload)?;
                }
                ws::WsMessage::Close(payload) => {
                    wire.send_frame(&mut ws::WsWriter::default(), ws::FrameKind::Close, payload)?;
                    return Err(SessionEndCause::Closed);
                }
                // snapserver ignores text frames as well.
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn set_settings(
        &mut self,
        wire: &mut Wire<'_>,
        settings: ServerSettings,
    ) -> Result<(), SessionEndCause> {
        self.session.handle_input(SystemClock::now(), SessionInput::Settings(settings));
        self.drain(wire, &mut Vec::new())
    }

    pub(super) fn refuse(
        &mut self,
        wire: &mut Wire<'_>,
        refusal: Refusal,
    ) -> Result<(), SessionEndCause> {
        self.session.handle_input(SystemClock::now(), SessionInput::Refuse(refusal));
        self.drain(wire, &mut Vec::new())
    }

    pub(super) fn begin_stream(
        &mut self,
        wire: &mut Wire<'_>,
        header: &Arc<[u8]>,
        now: Instant,
    ) -> Result<(), SessionEndCause> {
        self.session.handle_input(now, SessionInput::Stream(Arc::clone(header)));
        self.drain(wire, &mut Vec::new())
    }

    pub(super) fn handle_timeout(
        &mut self,
        wire: &mut Wire<'_>,
        now: Instant,
    ) -> Result<(), SessionEndCause> {
        self.session.handle_timeout(now);
        self.drain(wire, &mut Vec::new())
    }

    /// Writes Time replies at once and queues other messages.
    fn drain(
        &mut self,
        wire: &mut Wire<'_>,
        events: &mut Vec<PeerEvent>,
    ) -> Result<(), SessionEndCause> {
        while let Some(output) = self.session.poll_output() {
            match output {
                SessionOutput::Send(message) => {
                    wire.check_queue()?;
                    let at_once = matches!(message, ServerOutgoing::Time { .. });
                    let message = FramedMessage { message, web: wire.outbox.is_websocket() };
                    if at_once {
                        let flow = wire
                            .outbox
                            .send_timestamped(wire.connection, &message, SystemClock::now)
                            .map_err(|_| SessionEndCause::Network)?;
                        *wire.blocked = flow == WriteStatus::Blocked;
                    } else {
                        wire.outbox.queue_timestamped(&message, SystemClock::now());
                    }
                }
                SessionOutput::Event(SnapEvent::Hello(hello)) => {
                    events.push(PeerEvent::Hello(hello, ClientInfo::default()));
                }
                SessionOutput::Event(SnapEvent::ClientInfo(info)) => {
                    events.push(PeerEvent::ClientInfo(info));
                }
                SessionOutput::Close(cause) => {
                    // Messages before the end are still sent as far as the socket accepts them.
                    wire.flush()?;
                    return Err(SessionEndCause::Protocol(cause));
                }
                // Outputs that a later version of the session may add are ignored.
                _ => {}
            }
        }
        Ok(())
    }
}

/// A message with the framing of this client.
struct FramedMessage {
    message: ServerOutgoing,
    web: bool,
}

impl TimestampedMessage for FramedMessage {
    fn write(&self, sent: Instant, out: &mut Vec<u8>) {
        let start = out.len();
        self.message.write(sent, out);
        if self.web {
            let head = ws::WsFrameHeader::new(ws::FrameKind::Binary, out.len() - start);
            out.extend_from_slice(head.as_bytes());
            out[start..].rotate_right(head.as_bytes().len());
        }
    }
}
