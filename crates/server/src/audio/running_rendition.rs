//! A running rendition or overlay of a station, and the sessions that wait for it or play it;
//! `renditions` and `overlays` make them.

use std::sync::Arc;

use aulos_control::backend::{AnnouncementTarget, ClientSound};
use aulos_core::Instant;
use aulos_engine::announce::Priority;
use aulos_engine::encode::CodecConfig;
use aulos_io::reactor::{PendingMoves, SessionId, StationDescriptor};
use aulos_proto::sendspin::SupportedFormat;

/// A running rendition.
#[derive(Debug)]
pub(super) struct RunningRendition {
    /// The number of its station.
    pub(super) station: usize,
    pub(super) kind: RenditionKind,
    /// Its number in the reactors.
    pub(super) number: usize,
    /// Its number on the station's output bus.
    pub(super) output_id: u64,
    pub(super) channel: StationDescriptor,
    pub(super) since: Instant,
    /// Whether its sound can be changed.
    pub(super) has_processor: bool,
    /// A change of its sound, for a client that plays on.
    pub(super) change: Option<SoundChange>,
    pub(super) unused_since: Option<Instant>,
    /// Every web listener holds a clone.
    pub(super) listeners: Arc<()>,
}

impl RunningRendition {
    /// What it makes of its station; `None` if clients do not choose it by that.
    pub(super) const fn key(&self) -> Option<&RenditionKey> {
        match &self.kind {
            RenditionKind::Shared(key) => Some(key),
            RenditionKind::Overlay | RenditionKind::Leaving { .. } => None,
        }
    }

    /// Whether others can share it. One that still has a processor although its sound needs none is
    /// about to be left.
    pub(super) fn matches(&self, station: usize, key: &RenditionKey) -> bool {
        let is_needed = self.has_processor == key.sound.chain.is_some();
        self.station == station && self.key() == Some(key) && is_needed
    }

    /// Whether it has, or will have, what the station's own chunks have.
    pub(super) fn is_as_station(&self) -> bool {
        self.key().is_some_and(RenditionKey::is_station)
    }
}

/// What a rendition makes of its station. All who need the same share it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RenditionKey {
    pub(super) sound: ClientSound,
    /// An encoding other than the station's own.
    pub(super) codec: Option<CodecConfig>,
}

impl RenditionKey {
    /// Whether these are the station's own chunks.
    pub(super) fn is_station(&self) -> bool {
        self.sound.is_plain() && self.codec.is_none()
    }
}

/// A change of a rendition's sound, for a client that plays on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SoundChange {
    /// It fills its filters; afterwards, at this time, its client comes from the rendition `from`.
    Warm { until: Instant, session: SessionId, from: usize },
    /// Its client comes to it; afterwards, at this time, its sound changes.
    Begin(Instant),
    /// Its new sound has been faded in by this time.
    Fade(Instant),
}

/// A session that plays a rendition in place of the station's own chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlayingSession {
    pub(super) session: SessionId,
    /// The number of its station.
    pub(super) station: usize,
    /// The number of its rendition in the reactors.
    pub(super) number: usize,
}

/// How it differs from its station.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RenditionKind {
    /// The sound or the encoding of some clients and listeners.
    Shared(RenditionKey),
    /// Announcements for some clients; its [`RunningOverlay`] has the rest.
    Overlay,
    /// Its clients have been moved to the rendition of this number.
    Leaving { to: usize, sessions: Vec<SessionId> },
}

/// A running overlay.
#[derive(Debug)]
pub(super) struct RunningOverlay {
    /// The number of its station.
    pub(super) station: usize,
    pub(super) target: AnnouncementTarget,
    /// Its number on the station's output bus.
    pub(super) output_id: u64,
    /// Its numbers in the reactors.
    pub(super) numbers: Vec<(RenditionKey, usize)>,
    /// The sessions that have been moved to it.
    pub(super) sessions: Vec<OverlaySession>,
    /// Those of them that have not moved yet.
    pub(super) moves: PendingMoves,
    /// When its announcements wait no longer for them.
    pub(super) moved_by: Instant,
    /// Its announcements wait for sessions to be moved.
    pub(super) is_waiting: bool,
    /// It has plays and no announcements.
    pub(super) only_plays: bool,
    /// The highest priority of its announcements; after the last one, that of the last.
    pub(super) priority: Priority,
    /// Its station has been replaced.
    pub(super) is_ended: bool,
    /// When its sessions are moved back, unless another announcement comes before.
    pub(super) ends_at: Option<Instant>,
}

impl RunningOverlay {
    /// Its number in the reactors for clients that play this.
    pub(super) fn number(&self, key: &RenditionKey) -> Option<usize> {
        self.numbers.iter().find(|(own, _)| own == key).map(|(_, number)| *number)
    }

    pub(super) fn has(&self, session: SessionId) -> bool {
        self.sessions.iter().any(|one| one.session == session)
    }

    /// Forgets a session that is moved elsewhere.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.sessions.retain(|one| one.session != session);
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.ends_at.is_some_and(|at| at <= now)
    }
}

/// A session of an overlay, and what it plays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OverlaySession {
    pub(super) session: SessionId,
    pub(super) key: RenditionKey,
}

/// A Sendspin session, and what its client can play.
#[derive(Debug)]
pub(super) struct PlayerFormats {
    pub(super) session: SessionId,
    pub(super) formats: Arc<[SupportedFormat]>,
    /// The station that it plays, and its sound.
    pub(super) plays: Option<(usize, ClientSound)>,
    /// The station has been replaced, possibly by one with another codec.
    pub(super) is_outdated: bool,
}

/// A session that is to play a rendition.
#[derive(Debug)]
pub(super) struct WantedRendition {
    pub(super) session: SessionId,
    /// The number of its station.
    pub(super) station: usize,
    pub(super) key: RenditionKey,
}
