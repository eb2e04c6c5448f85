//! A Sendspin client.
//!
//! Its header, and mostly its cipher, are its own, so its bytes are made for it at the moment of
//! sending, from the chunks that all clients share.

use std::sync::Arc;

use aulos_core::{Instant, Span};
use aulos_engine::fanout::ChunkCursor;
use aulos_proto::sendspin::{
    ArtworkUpdate, AudioChunk, ClientHello, ClientSession, ClientSessionEvent, ClientSessionOutput,
    MessageCipher, RoomState, SessionMessage, SupportedFormat,
};
use aulos_proto::snap::session::CloseReason;
use aulos_proto::snap::wire::{Hello, ServerSettings};
use aulos_proto::ws::{FrameKind, WsMessage, WsReader, WsWriter};

use super::wire::{PeerEvent, Wire};
use crate::SystemClock;
use crate::reactor::SessionEndCause;
use crate::reactor::outbox::WriteStatus;
use crate::reactor::stations::ReactorStation;
use crate::reactor::tls::MediaSocket;

/// A Sendspin client that has been let in, with its socket.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "what its maker has")]
pub struct SendspinSocket {
    /// The connection.
    pub socket: MediaSocket,
    /// Who it is, and the cipher of the connection.
    pub client: (ClientHello, Option<Box<dyn MessageCipher>>),
    /// Reads its frames; may have a part of one.
    pub reader: WsReader,
    /// Writes frames to it.
    pub writer: WsWriter,
    /// What was read behind the last message, often nothing.
    pub unread: Vec<u8>,
    /// Kept until the connection has ended.
    pub alive: Arc<()>,
}

/// Its session and its frames.
#[derive(Debug)]
pub(super) struct SendspinLink {
    session: ClientSession,
    /// `None` while bytes are handled.
    reader: Option<Box<WsReader>>,
    writer: WsWriter,
    /// Bytes of a picture that are perhaps still queued.
    artwork_queued: usize,
    /// Tells whoever made the connection that it is there.
    _alive: Arc<()>,
}

impl SendspinLink {
    pub(super) fn new(
        (hello, cipher): (ClientHello, Option<Box<dyn MessageCipher>>),
        reader: WsReader,
        (writer, alive): (WsWriter, Arc<()>),
        now: Instant,
    ) -> Self {
        let session = ClientSession::new(hello, cipher, now);
        Self { session, reader: Some(Box::new(reader)), writer, artwork_queued: 0, _alive: alive }
    }

    /// The client as one of Snapcast, so that it is one more client of a station.
    fn hello(&self) -> Box<Hello> {
        let client = self.session.hello();
        let device = &client.device;
        let mut hello = Hello::new(&client.client_id);
        hello.host_name.clone_from(&client.name);
        hello.version.clone_from(&device.version);
        hello.os.clone_from(&device.product);
        hello.mac.clone_from(&device.mac);
        CLIENT_NAME.clone_into(&mut hello.client_name);
        Box::new(hello)
    }

    pub(super) fn formats(&self) -> Arc<[SupportedFormat]> {
        let player = self.session.hello().player.as_ref();
        player.map(|player| Arc::from(&player.formats[..])).unwrap_or_default()
    }

    pub(super) fn handle_bytes(
        &mut self,
        wire: &mut Wire<'_>,
        mut bytes: &[u8],
        now: Instant,
        events: &mut Vec<PeerEvent>,
    ) -> Result<(), SessionEndCause> {
        let Some(mut reader) = self.reader.take() else { return Ok(()) };
        let broken = |_| SessionEndCause::Protocol(CloseReason::Malformed);
        while let Some(message) = reader.next(&mut bytes).map_err(broken)? {
            match message {
                WsMessage::Binary(message) => self.session.receive(now, false, message),
                WsMessage::Text(message) => self.session.receive(now, true, message),
                WsMessage::Ping(payload) => {
                    self.session.heard(now);
                    wire.send_frame(&mut self.writer, FrameKind::Pong, payload)?;
                }
                WsMessage::Close(payload) => {
                    wire.send_frame(&mut self.writer, FrameKind::Close, payload)?;
                    return Err(SessionEndCause::Closed);
                }
                _ => self.session.heard(now),
            }
            // As for Snapcast: the answers go out before the next message is read.
            self.drain(wire, events)?;
        }
        self.reader = Some(reader);
        self.drain(wire, events)
    }

    pub(super) fn set_settings(
        &mut self,
        wire: &mut Wire<'_>,
        settings: ServerSettings,
    ) -> Result<(), SessionEndCause> {
        self.session.set_settings(SystemClock::now(), settings);
        self.drain(wire, &mut Vec::new())
    }

    pub(super) fn set_room(
        &mut self,
        wire: &mut Wire<'_>,
        room: Arc<RoomState>,
    ) -> Result<(), SessionEndCause> {
        self.session.set_room(room);
        self.drain(wire, &mut Vec::new())
    }

    pub(super) fn set_artwork(
        &mut self,
        wire: &mut Wire<'_>,
        update: &ArtworkUpdate,
    ) -> Result<(), SessionEndCause> {
        self.session.set_artwork(update);
        self.drain(wire, &mut Vec::new())
    }

    /// One message at a time, and none before the kernel has sent all that it has: sound that comes
    /// next waits for no more than that.
    pub(super) fn send_artwork(&mut self, wire: &mut Wire<'_>) -> Result<(), SessionEndCause> {
        if !self.session.has_artwork() || !wire.is_idle() {
            return Ok(());
        }
        let (session, writer) = (&mut self.session, &mut self.writer);
        wire.outbox.queue_with(|out| session.write_artwork(SystemClock::now(), writer, out));
        self.artwork_queued = wire.outbox.queued();
        wire.flush()?;
        self.drain(wire, &mut Vec::new())
    }

    pub(super) fn begin_stream(
        &mut self,
        wire: &mut Wire<'_>,
        header: &[u8],
    ) -> Result<(), SessionEndCause> {
        self.session.set_stream(header);
        self.drain(wire, &mut Vec::new())
    }

    pub(super) fn change_stream(
        &mut self,
        wire: &mut Wire<'_>,
        header: &[u8],
    ) -> Result<(), SessionEndCause> {
        self.session.change_stream(header);
        self.drain(wire, &mut Vec::new())
    }

    pub(super) fn end_stream(&mut self, wire: &mut Wire<'_>) -> Result<(), SessionEndCause> {
        self.session.end_stream();
        self.drain(wire, &mut Vec::new())
    }

    pub(super) fn handle_timeout(
        &mut self,
        wire: &mut Wire<'_>,
        now: Instant,
        events: &mut Vec<PeerEvent>,
    ) -> Result<(), SessionEndCause> {
        self.session.handle_timeout(now);
        self.drain(wire, events)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.session.poll_timeout()
    }

    pub(super) const fn time_requested_at(&self) -> Option<Instant> {
        self.session.time_requested_at()
    }

    pub(super) const fn is_ready_for_audio(&self) -> bool {
        self.session.is_ready_for_audio()
    }

    pub(super) fn lead(&self) -> Span {
        self.session.lead().total()
    }

    pub(super) fn send_chunks(
        &mut self,
        mut wire: Wire<'_>,
        tap: &ReactorStation,
        cursor: &mut ChunkCursor,
        (now, limit): (Instant, usize),
    ) -> Result<(WriteStatus, usize, bool), SessionEndCause> {
        let (mut sent, mut is_full) = (0, false);
        let rate = tap.descriptor.spec.rate;
        let first = tap.log.get(*cursor, 0).ok().flatten();
        let limit = limit.min(MAX_BATCH);
        while wire.outbox.queued() < limit {
            let Some(stamped) = tap.log.get(*cursor, 0).ok().flatten() else { break };
            if first.is_some_and(|first| !stamped.has_header_of(first)) {
                break;
            }
            let chunk = AudioChunk {
                timestamp: stamped.timestamp,
                duration: rate.span(stamped.chunk.duration),
                payload: stamped.chunk.payload(),
            };
            let Self { session, writer, .. } = self;
            let has_room =
                wire.outbox.queue_with(|out| session.write_chunk(chunk, now, writer, out));
            if !has_room {
                is_full = true;
                break;
            }
            cursor.advance(1);
            sent += 1;
        }
        let flow = wire.outbox.finish(wire.connection).map_err(|_| SessionEndCause::Network)?;
        *wire.blocked = flow == WriteStatus::Blocked;
        self.drain(&mut wire, &mut Vec::new())?;
        Ok((flow, sent, is_full))
    }

    /// Writes answers to questions for the time at once, directly after they are stamped.
    fn drain(
        &mut self,
        wire: &mut Wire<'_>,
        events: &mut Vec<PeerEvent>,
    ) -> Result<(), SessionEndCause> {
        if wire.outbox.queued() == 0 {
            self.artwork_queued = 0;
        }
        while let Some(output) = self.session.poll_output() {
            match output {
                ClientSessionOutput::Send(message) => {
                    wire.check_queue_beside(self.artwork_queued)?;
                    let at_once = matches!(message, SessionMessage::Time { .. });
                    if at_once {
                        wire.flush()?;
                    }
                    let (session, writer) = (&mut self.session, &mut self.writer);
                    wire.outbox.queue_with(|out| {
                        session.write(&message, SystemClock::now(), writer, out);
                    });
                    if at_once {
                        wire.flush()?;
                    }
                }
                ClientSessionOutput::Event(ClientSessionEvent::Introduced(info)) => {
                    events.push(PeerEvent::Hello(self.hello(), info));
                }
                ClientSessionOutput::Event(ClientSessionEvent::Volume(info)) => {
                    events.push(PeerEvent::ClientInfo(info));
                }
                ClientSessionOutput::Event(ClientSessionEvent::Command(command)) => {
                    events.push(PeerEvent::Command(command));
                }
                ClientSessionOutput::Event(ClientSessionEvent::Artwork(request)) => {
                    events.push(PeerEvent::Artwork(request));
                }
                ClientSessionOutput::Close(CloseReason::Goodbye) => {
                    return Err(SessionEndCause::Closed);
                }
                ClientSessionOutput::Close(cause) => {
                    wire.flush()?;
                    return Err(SessionEndCause::Protocol(cause));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The name of the program, as controllers show it.
const CLIENT_NAME: &str = "Sendspin";

/// Bytes that are made at once: a part of what the kernel takes.
const MAX_BATCH: usize = 64 * 1_024;
