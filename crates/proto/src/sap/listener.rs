//! Collects the sessions that other hosts announce.

use core::fmt;
use core::net::IpAddr;

use aulos_core::{Instant, Span};

use super::{SapError, SapPacket};
use crate::sdp::{self, SessionDescription};

/// A session expires after this many intervals without an announcement (RFC 2974, 4).
pub const EXPIRY_PERIODS: i64 = 10;
/// Minimum time without an announcement before a session expires (RFC 2974, 4).
pub const MIN_LIFETIME: Span = Span::from_secs(3_600);
/// Maximum number of sessions per sender; the largest AES67 devices have 64 streams.
pub const MAX_PER_SENDER: usize = 128;

/// Configuration of a [`Listener`].
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "wishes, made with Default and changed")]
pub struct ListenerConfig {
    /// Maximum number of sessions; up to 2 kB each for usual descriptions, at most 64 kB each.
    pub capacity: usize,
    /// Minimum lifetime of a session: [`MIN_LIFETIME`].
    pub min_lifetime: Span,
}

impl Default for ListenerConfig {
    fn default() -> Self {
        Self { capacity: 512, min_lifetime: MIN_LIFETIME }
    }
}

/// Change in the list of sessions.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum SapEvent<'a> {
    /// New session.
    Announced(&'a SessionDescription),
    /// Changed description of a known session.
    Changed(&'a SessionDescription),
    /// Session deleted or expired.
    Removed(&'a SessionDescription),
}

/// Reason why an announcement is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejectReason {
    /// Not a SAP packet.
    Malformed(SapError),
    /// Invalid description.
    Description(sdp::Error),
    /// The session was announced by another host.
    NotOwner,
    /// The sender already announces [`MAX_PER_SENDER`] sessions.
    TooManyFromSender,
    /// The session table is full.
    TableFull,
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(why) => write!(f, "invalid SAP announcement: {why}"),
            Self::Description(why) => write!(f, "invalid SDP: {why}"),
            Self::NotOwner => f.write_str("the session was announced from another address"),
            Self::TooManyFromSender => {
                write!(f, "the sender announces more than {MAX_PER_SENDER} sessions")
            }
            Self::TableFull => f.write_str("the session table is full"),
        }
    }
}

impl core::error::Error for RejectReason {}

/// Counters of a [`Listener`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenerStats {
    /// Accepted announcements and deletions.
    pub accepted: u64,
    /// Datagrams that are not SAP packets.
    pub malformed: u64,
    /// Invalid descriptions.
    pub unreadable: u64,
    /// Announcements and deletions of sessions of another host.
    pub not_owner: u64,
    /// Announcements rejected because of a limit.
    pub refused: u64,
    /// Expired sessions.
    pub expired: u64,
}

/// Table of the sessions that other hosts announce.
///
/// The table is searched linearly: at most a few announcements arrive per second.
#[derive(Debug)]
pub struct Listener {
    config: ListenerConfig,
    entries: Vec<SessionEntry>,
    stats: ListenerStats,
}

#[derive(Debug)]
struct SessionEntry {
    from: IpAddr,
    origin: IpAddr,
    hash: u16,
    last_announced: Instant,
    /// Longest time between two announcements so far.
    period: Span,
    session: SessionDescription,
}

impl Listener {
    /// A listener without sessions.
    #[must_use]
    pub const fn new(config: ListenerConfig) -> Self {
        Self {
            config,
            entries: Vec::new(),
            stats: ListenerStats {
                accepted: 0,
                malformed: 0,
                unreadable: 0,
                not_owner: 0,
                refused: 0,
                expired: 0,
            },
        }
    }

    /// Processes a datagram from `from` received at `now`, and reports the change it causes.
    ///
    /// # Errors
    /// The reason for rejecting the datagram, which is also counted.
    pub fn handle_input(
        &mut self,
        now: Instant,
        from: IpAddr,
        datagram: &[u8],
        emit: impl FnMut(SapEvent<'_>),
    ) -> Result<(), RejectReason> {
        let done = self.apply_packet(now, from, datagram, emit);
        let count = match done {
            Ok(()) => &mut self.stats.accepted,
            Err(RejectReason::Malformed(_)) => &mut self.stats.malformed,
            Err(RejectReason::Description(_)) => &mut self.stats.unreadable,
            Err(RejectReason::NotOwner) => &mut self.stats.not_owner,
            Err(RejectReason::TooManyFromSender | RejectReason::TableFull) => {
                &mut self.stats.refused
            }
        };
        *count += 1;
        done
    }

    /// Removes expired sessions.
    pub fn handle_timeout(&mut self, now: Instant, mut emit: impl FnMut(SapEvent<'_>)) {
        let life = self.config.min_lifetime;
        let expired = self.entries.extract_if(.., |entry| entry.expires_at(life) <= now);
        for entry in expired {
            self.stats.expired += 1;
            emit(SapEvent::Removed(&entry.session));
        }
    }

    /// Time at which to call [`Listener::handle_timeout`]; `None` without sessions.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.entries.iter().map(|entry| entry.expires_at(self.config.min_lifetime)).min()
    }

    /// The current sessions.
    pub fn sessions(&self) -> impl ExactSizeIterator<Item = &SessionDescription> {
        self.entries.iter().map(|entry| &entry.session)
    }

    /// The counters.
    #[must_use]
    pub const fn stats(&self) -> ListenerStats {
        self.stats
    }

    fn apply_packet(
        &mut self,
        now: Instant,
        from: IpAddr,
        datagram: &[u8],
        mut emit: impl FnMut(SapEvent<'_>),
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
                emit(SapEvent::Removed(&self.entries.swap_remove(at).session));
            }
            return Ok(());
        }
        if let Some(entry) = known.and_then(|at| self.entries.get_mut(at)) {
            entry.period = entry.period.max(now.since(entry.last_announced));
            entry.last_announced = now;
            return Ok(());
        }
        let session =
            SessionDescription::parse(packet.payload).map_err(RejectReason::Description)?;
        let fresh = |session| SessionEntry {
            from,
            origin: packet.origin,
            hash: packet.hash,
            last_announced: now,
            period: Span::ZERO,
            session,
        };
        // A known session with a new hash is a new version of it.
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.is_same_session(&session)) {
            if entry.from != from {
                return Err(RejectReason::NotOwner);
            }
            *entry = fresh(session);
            emit(SapEvent::Changed(&entry.session));
            return Ok(());
        }
        if self.entries.iter().filter(|entry| entry.from == from).count() >= MAX_PER_SENDER {
            return Err(RejectReason::TooManyFromSender);
        }
        if self.entries.len() >= self.config.capacity {
            return Err(RejectReason::TableFull);
        }
        emit(SapEvent::Announced(&session));
        self.entries.push(fresh(session));
        Ok(())
    }
}

impl SessionEntry {
    /// Whether `other` is a version of the same session: user, id and address identify a session.
    fn is_same_session(&self, other: &SessionDescription) -> bool {
        let (a, b) = (&self.session.origin, &other.origin);
        (&a.user, &a.id, &a.address) == (&b.user, &b.id, &b.address)
    }

    fn expires_at(&self, life: Span) -> Instant {
        self.last_announced + (self.period * EXPIRY_PERIODS).max(life)
    }
}
