//! Keeping what others announce.

use core::fmt;
use core::net::IpAddr;

use aulos_core::{Instant, Span};

use super::{SapError, SapPacket};
use crate::sdp::{self, SessionDescription};

/// A session that was not announced for so many of its periods is over (RFC 2974, 4).
pub const EXPIRY_PERIODS: i64 = 10;
/// No session is over before it was not announced for so long (RFC 2974, 4).
pub const MIN_LIFETIME: Span = Span::from_secs(3_600);
/// Sessions of one sender; the largest AES67 machines have 64 streams.
pub const MAX_PER_SENDER: usize = 128;

/// Wishes for a [`Listener`].
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "wishes, made with Default and changed")]
pub struct ListenerConfig {
    /// Sessions at once; up to 2 kB each with usual descriptions, and never more than 64 kB.
    pub capacity: usize,
    /// The shortest time for which a session is believed: [`MIN_LIFE`].
    pub min_lifetime: Span,
}

impl Default for ListenerConfig {
    fn default() -> Self {
        Self { capacity: 512, min_lifetime: MIN_LIFETIME }
    }
}

/// What has changed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum AnnouncementEvent<'a> {
    /// A session that was not there.
    Announced(&'a SessionDescription),
    /// A session that was there is different now.
    Changed(&'a SessionDescription),
    /// A session is over, or was not announced for too long.
    Removed(&'a SessionDescription),
}

/// Why an announcement is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejectReason {
    /// It is no announcement.
    Malformed(SapError),
    /// Its description cannot be read.
    Description(sdp::Error),
    /// The session belongs to somebody else.
    NotOwner,
    /// The sender has announced [`MAX_PER_SENDER`] sessions.
    TooManyFromSender,
    /// There is no room for more sessions.
    TableFull,
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(why) => write!(f, "no announcement: {why}"),
            Self::Description(why) => write!(f, "a description that cannot be read: {why}"),
            Self::NotOwner => f.write_str("the session was announced from another address"),
            Self::TooManyFromSender => {
                write!(f, "its sender announces more than {MAX_PER_SENDER} sessions")
            }
            Self::TableFull => f.write_str("there is no room for more sessions"),
        }
    }
}

impl core::error::Error for RejectReason {}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenerStats {
    /// Announcements and deletions that were believed.
    pub accepted: u64,
    /// Datagrams that are no announcements.
    pub malformed: u64,
    /// Descriptions that cannot be read.
    pub unreadable: u64,
    /// Announcements and deletions of somebody else's session.
    pub not_owner: u64,
    /// Announcements for which there was no room.
    pub refused: u64,
    /// Sessions that were not announced for too long.
    pub expired: u64,
}

/// The sessions that others announce.
///
/// Its table is searched from front to back: announcements are a few in a second at most.
#[derive(Debug)]
pub struct Listener {
    config: ListenerConfig,
    entries: Vec<SessionEntry>,
    tally: ListenerStats,
}

#[derive(Debug)]
struct SessionEntry {
    from: IpAddr,
    origin: IpAddr,
    hash: u16,
    heard: Instant,
    /// The longest time between two announcements.
    period: Span,
    session: SessionDescription,
}

impl Listener {
    /// Nothing has been heard yet.
    #[must_use]
    pub const fn new(config: ListenerConfig) -> Self {
        Self {
            config,
            entries: Vec::new(),
            tally: ListenerStats {
                accepted: 0,
                malformed: 0,
                unreadable: 0,
                not_owner: 0,
                refused: 0,
                expired: 0,
            },
        }
    }

    /// Reads a datagram that came from `from` at `now`, and tells what it changes.
    ///
    /// # Errors
    /// Why it is not believed; that is counted.
    pub fn handle_input(
        &mut self,
        now: Instant,
        from: IpAddr,
        datagram: &[u8],
        tell: impl FnMut(AnnouncementEvent<'_>),
    ) -> Result<(), RejectReason> {
        let done = self.apply_packet(now, from, datagram, tell);
        let count = match done {
            Ok(()) => &mut self.tally.accepted,
            Err(RejectReason::Malformed(_)) => &mut self.tally.malformed,
            Err(RejectReason::Description(_)) => &mut self.tally.unreadable,
            Err(RejectReason::NotOwner) => &mut self.tally.not_owner,
            Err(RejectReason::TooManyFromSender | RejectReason::TableFull) => {
                &mut self.tally.refused
            }
        };
        *count += 1;
        done
    }

    /// Forgets what has not been announced for too long.
    pub fn handle_timeout(&mut self, now: Instant, mut tell: impl FnMut(AnnouncementEvent<'_>)) {
        let life = self.config.min_lifetime;
        let expired = self.entries.extract_if(.., |entry| entry.expires_at(life) <= now);
        for entry in expired {
            self.tally.expired += 1;
            tell(AnnouncementEvent::Removed(&entry.session));
        }
    }

    /// When to call [`Listener::handle_timeout`]; none when nothing is known.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.entries.iter().map(|entry| entry.expires_at(self.config.min_lifetime)).min()
    }

    /// The sessions that are on.
    pub fn sessions(&self) -> impl ExactSizeIterator<Item = &SessionDescription> {
        self.entries.iter().map(|entry| &entry.session)
    }

    /// What has happened so far.
    #[must_use]
    pub const fn stats(&self) -> ListenerStats {
        self.tally
    }

    fn apply_packet(
        &mut self,
        now: Instant,
        from: IpAddr,
        datagram: &[u8],
        mut tell: impl FnMut(AnnouncementEvent<'_>),
    ) -> Result<(), RejectReason> {
        let packet = SapPacket::parse(datagram).map_err(RejectReason::Malformed)?;
        let same =
            |entry: &SessionEntry| (entry.origin, entry.hash) == (packet.origin, packet.hash);
        let known = self.entries.iter().position(same);
        if known.and_then(|at| self.entries.get(at)).is_some_and(|entry| entry.from != from) {
            return Err(RejectReason::NotOwner);
        }
        if packet.deletion {
            if let Some(at) = known {
                tell(AnnouncementEvent::Removed(&self.entries.swap_remove(at).session));
            }
            return Ok(());
        }
        if let Some(entry) = known.and_then(|at| self.entries.get_mut(at)) {
            entry.period = entry.period.max(now.since(entry.heard));
            entry.heard = now;
            return Ok(());
        }
        let session =
            SessionDescription::parse(packet.payload).map_err(RejectReason::Description)?;
        let fresh = |session| SessionEntry {
            from,
            origin: packet.origin,
            hash: packet.hash,
            heard: now,
            period: Span::ZERO,
            session,
        };
        // The same session under a new hash is a change of it.
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.is_same_session(&session)) {
            if entry.from != from {
                return Err(RejectReason::NotOwner);
            }
            *entry = fresh(session);
            tell(AnnouncementEvent::Changed(&entry.session));
            return Ok(());
        }
        if self.entries.iter().filter(|entry| entry.from == from).count() >= MAX_PER_SENDER {
            return Err(RejectReason::TooManyFromSender);
        }
        if self.entries.len() >= self.config.capacity {
            return Err(RejectReason::TableFull);
        }
        tell(AnnouncementEvent::Announced(&session));
        self.entries.push(fresh(session));
        Ok(())
    }
}

impl SessionEntry {
    /// Whether that is a version of the same session: user, number and address name it.
    fn is_same_session(&self, other: &SessionDescription) -> bool {
        let (a, b) = (&self.session.origin, &other.origin);
        (&a.user, &a.id, &a.address) == (&b.user, &b.id, &b.address)
    }

    fn expires_at(&self, life: Span) -> Instant {
        self.heard + (self.period * EXPIRY_PERIODS).max(life)
    }
}
