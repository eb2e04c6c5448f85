//! The protocol of a client: what differs between Snapcast and Sendspin.

use std::sync::Arc;

use aulos_core::{Instant, Span};
use aulos_engine::fanout::ChunkCursor;
use aulos_proto::sendspin::{ArtworkUpdate, RoomState};
use aulos_proto::snap::session::Refusal;
use aulos_proto::snap::wire::{PlayerReport, ServerSettings};

use super::sendspin::SendspinLink;
use super::snapcast::SnapcastLink;
use super::wire::{PeerEvent, Wire};
use crate::reactor::SessionEndCause;
use crate::reactor::outbox::WriteStatus;
use crate::reactor::stations::ReactorStation;

/// The protocol machine of a client.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "of thousands of clients nearly all are Snapcast's")]
pub(super) enum Link {
    Snapcast(SnapcastLink),
    Sendspin(Box<SendspinLink>),
}

impl Link {
    /// Handles bytes that have been read.
    pub(super) fn handle_bytes(
        &mut self,
        wire: &mut Wire<'_>,
        bytes: &[u8],
        now: Instant,
        events: &mut Vec<PeerEvent>,
    ) -> Result<(), SessionEndCause> {
        match self {
            Self::Snapcast(link) => link.handle_bytes(wire, bytes, now, events),
            Self::Sendspin(link) => link.handle_bytes(wire, bytes, now, events),
        }
    }

    pub(super) fn set_settings(
        &mut self,
        wire: &mut Wire<'_>,
        settings: ServerSettings,
    ) -> Result<(), SessionEndCause> {
        match self {
            Self::Snapcast(link) => link.set_settings(wire, settings),
            Self::Sendspin(link) => link.set_settings(wire, settings),
        }
    }

    pub(super) fn refuse(
        &mut self,
        wire: &mut Wire<'_>,
        refusal: Refusal,
    ) -> Result<(), SessionEndCause> {
        match self {
            Self::Snapcast(link) => link.refuse(wire, refusal),
            Self::Sendspin(_) => Err(SessionEndCause::Kicked),
        }
    }

    /// Snapcast clients know nothing of groups.
    pub(super) fn set_room(
        &mut self,
        wire: &mut Wire<'_>,
        room: Arc<RoomState>,
    ) -> Result<(), SessionEndCause> {
        match self {
            Self::Snapcast(_) => Ok(()),
            Self::Sendspin(link) => link.set_room(wire, room),
        }
    }

    /// What the channels of the client are to show.
    pub(super) fn set_artwork(
        &mut self,
        wire: &mut Wire<'_>,
        update: &ArtworkUpdate,
    ) -> Result<(), SessionEndCause> {
        match self {
            Self::Snapcast(_) => Ok(()),
            Self::Sendspin(link) => link.set_artwork(wire, update),
        }
    }

    /// Sends a part of a picture, where nothing else waits.
    pub(super) fn send_artwork(&mut self, wire: &mut Wire<'_>) -> Result<(), SessionEndCause> {
        match self {
            Self::Snapcast(_) => Ok(()),
            Self::Sendspin(link) => link.send_artwork(wire),
        }
    }

    /// A stream begins with the payload of its codec header; what the client has is dropped.
    pub(super) fn begin_stream(
        &mut self,
        wire: &mut Wire<'_>,
        header: &Arc<[u8]>,
        now: Instant,
    ) -> Result<(), SessionEndCause> {
        match self {
            Self::Snapcast(link) => link.begin_stream(wire, header, now),
            Self::Sendspin(link) => link.begin_stream(wire, header),
        }
    }

    /// The next chunks have another codec header.
    pub(super) fn change_stream(
        &mut self,
        wire: &mut Wire<'_>,
        header: &Arc<[u8]>,
        now: Instant,
    ) -> Result<(), SessionEndCause> {
        match self {
            Self::Snapcast(link) => link.begin_stream(wire, header, now),
            Self::Sendspin(link) => link.change_stream(wire, header),
        }
    }

    /// Its station is gone.
    pub(super) fn end_stream(&mut self, wire: &mut Wire<'_>) -> Result<(), SessionEndCause> {
        match self {
            Self::Snapcast(_) => Ok(()),
            Self::Sendspin(link) => link.end_stream(wire),
        }
    }

    /// Whether chunks may be sent to a client with a station.
    pub(super) fn is_ready_for_audio(&self) -> bool {
        match self {
            Self::Snapcast(_) => true,
            Self::Sendspin(link) => link.is_ready_for_audio(),
        }
    }

    /// How long before its time sound has to be at the client.
    pub(super) fn lead(&self) -> Span {
        match self {
            Self::Snapcast(_) => Span::ZERO,
            Self::Sendspin(link) => link.lead(),
        }
    }

    /// Sends chunks from `cursor` on, about `limit` bytes. Besides their number: whether the client
    /// has no room for more at present.
    pub(super) fn send_chunks(
        &mut self,
        wire: Wire<'_>,
        tap: &ReactorStation,
        cursor: &mut ChunkCursor,
        (now, limit): (Instant, usize),
    ) -> Result<(WriteStatus, usize, bool), SessionEndCause> {
        match self {
            Self::Snapcast(_) => {
                let sent = wire.outbox.send_chunks(wire.connection, &tap.log, cursor, limit);
                let (flow, sent) = sent.map_err(|_| SessionEndCause::Network)?;
                Ok((flow, sent, false))
            }
            Self::Sendspin(link) => link.send_chunks(wire, tap, cursor, (now, limit)),
        }
    }

    pub(super) fn handle_timeout(
        &mut self,
        wire: &mut Wire<'_>,
        now: Instant,
        events: &mut Vec<PeerEvent>,
    ) -> Result<(), SessionEndCause> {
        match self {
            Self::Snapcast(link) => link.handle_timeout(wire, now),
            Self::Sendspin(link) => link.handle_timeout(wire, now, events),
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Snapcast(link) => link.session.poll_timeout(),
            Self::Sendspin(link) => link.poll_timeout(),
        }
    }

    pub(super) const fn time_requested_at(&self) -> Option<Instant> {
        match self {
            Self::Snapcast(link) => link.session.time_requested_at(),
            Self::Sendspin(link) => link.time_requested_at(),
        }
    }

    pub(super) const fn report(&self) -> Option<PlayerReport> {
        match self {
            Self::Snapcast(link) => link.session.report(),
            Self::Sendspin(_) => None,
        }
    }
}
