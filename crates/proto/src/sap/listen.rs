//! Keeping what others announce.

use core::fmt;
use core::net::IpAddr;

use aulos_core::{Instant, Span};

use super::{Malformed, Packet};
use crate::sdp::{self, Session};

/// A session that was not announced for so many of its periods is over (RFC 2974, 4).
pub const PERIODS: i64 = 10;
/// No session is over before it was not announced for so long (RFC 2974, 4).
pub const MIN_LIFE: Span = Span::from_secs(3_600);
/// Sessions of one sender; the largest AES67 machines have 64 streams.
pub const MAX_PER_SENDER: usize = 128;

/// Wishes for a [`Listener`].
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "wishes, made with Default and changed")]
pub struct ListenerConfig {
    /// Sessions at once; up to 2 kB each with usual descriptions, and never more than 64 kB.
    pub capacity: usize,
    /// The shortest time for which a session is believed: [`MIN_LIFE`].
    pub life: Span,
}

impl Default for ListenerConfig {
    fn default() -> Self {
        Self { capacity: 512, life: MIN_LIFE }
    }
}

/// What has changed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum News<'a> {
    /// A session that was not there.
    Announced(&'a Session),
    /// A session that was there is different now.
    Changed(&'a Session),
    /// A session is over, or was not announced for too long.
    Gone(&'a Session),
}

/// Why an announcement is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// It is no announcement.
    Malformed(Malformed),
    /// Its description cannot be read.
    Description(sdp::Error),
    /// The session belongs to somebody else.
    Foreign,
    /// The sender has announced [`MAX_PER_SENDER`] sessions.
    TooMany,
    /// There is no room for more sessions.
    Full,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(why) => write!(f, "no announcement: {why}"),
            Self::Description(why) => write!(f, "a description that cannot be read: {why}"),
            Self::Foreign => f.write_str("the session was announced from another address"),
            Self::TooMany => write!(f, "its sender announces more than {MAX_PER_SENDER} sessions"),
            Self::Full => f.write_str("there is no room for more sessions"),
        }
    }
}

impl core::error::Error for Refusal {}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenerTally {
    /// Announcements and deletions that were believed.
    pub heard: u64,
    /// Datagrams that are no announcements.
    pub malformed: u64,
    /// Descriptions that cannot be read.
    pub unreadable: u64,
    /// Announcements and deletions of somebody else's session.
    pub foreign: u64,
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
    entries: Vec<Entry>,
    tally: ListenerTally,
}

#[derive(Debug)]
struct Entry {
    from: IpAddr,
    origin: IpAddr,
    hash: u16,
    heard: Instant,
    /// The longest time between two announcements.
    period: Span,
    session: Session,
}

impl Listener {
    /// Nothing has been heard yet.
    #[must_use]
    pub const fn new(config: ListenerConfig) -> Self {
        Self {
            config,
            entries: Vec::new(),
            tally: ListenerTally {
                heard: 0,
                malformed: 0,
                unreadable: 0,
                foreign: 0,
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
        tell: impl FnMut(News<'_>),
    ) -> Result<(), Refusal> {
        let done = self.read(now, from, datagram, tell);
        let count = match done {
            Ok(()) => &mut self.tally.heard,
            Err(Refusal::Malformed(_)) => &mut self.tally.malformed,
            Err(Refusal::Description(_)) => &mut self.tally.unreadable,
            Err(Refusal::Foreign) => &mut self.tally.foreign,
            Err(Refusal::TooMany | Refusal::Full) => &mut self.tally.refused,
        };
        *count += 1;
        done
    }

    /// Forgets what has not been announced for too long.
    pub fn handle_timeout(&mut self, now: Instant, mut tell: impl FnMut(News<'_>)) {
        let life = self.config.life;
        let expired = self.entries.extract_if(.., |entry| entry.ends(life) <= now);
        for entry in expired {
            self.tally.expired += 1;
            tell(News::Gone(&entry.session));
        }
    }

    /// When to call [`Listener::handle_timeout`]; none when nothing is known.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.entries.iter().map(|entry| entry.ends(self.config.life)).min()
    }

    /// The sessions that are on.
    pub fn sessions(&self) -> impl ExactSizeIterator<Item = &Session> {
        self.entries.iter().map(|entry| &entry.session)
    }

    /// What has happened so far.
    #[must_use]
    pub const fn tally(&self) -> ListenerTally {
        self.tally
    }

    fn read(
        &mut self,
        now: Instant,
        from: IpAddr,
        datagram: &[u8],
        mut tell: impl FnMut(News<'_>),
    ) -> Result<(), Refusal> {
        let packet = Packet::parse(datagram).map_err(Refusal::Malformed)?;
        let same = |entry: &Entry| (entry.origin, entry.hash) == (packet.origin, packet.hash);
        let known = self.entries.iter().position(same);
        if known.and_then(|at| self.entries.get(at)).is_some_and(|entry| entry.from != from) {
            return Err(Refusal::Foreign);
        }
        if packet.deletion {
            if let Some(at) = known {
                tell(News::Gone(&self.entries.swap_remove(at).session));
            }
            return Ok(());
        }
        if let Some(entry) = known.and_then(|at| self.entries.get_mut(at)) {
            entry.period = entry.period.max(now.since(entry.heard));
            entry.heard = now;
            return Ok(());
        }
        let session = Session::parse(packet.payload).map_err(Refusal::Description)?;
        let fresh = |session| Entry {
            from,
            origin: packet.origin,
            hash: packet.hash,
            heard: now,
            period: Span::ZERO,
            session,
        };
        // The same session under a new hash is a change of it.
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.is(&session)) {
            if entry.from != from {
                return Err(Refusal::Foreign);
            }
            *entry = fresh(session);
            tell(News::Changed(&entry.session));
            return Ok(());
        }
        if self.entries.iter().filter(|entry| entry.from == from).count() >= MAX_PER_SENDER {
            return Err(Refusal::TooMany);
        }
        if self.entries.len() >= self.config.capacity {
            return Err(Refusal::Full);
        }
        tell(News::Announced(&session));
        self.entries.push(fresh(session));
        Ok(())
    }
}

impl Entry {
    /// Whether that is a version of the same session: user, number and address name it.
    fn is(&self, other: &Session) -> bool {
        let (a, b) = (&self.session.origin, &other.origin);
        (&a.user, &a.id, &a.address) == (&b.user, &b.id, &b.address)
    }

    fn ends(&self, life: Span) -> Instant {
        self.heard + (self.period * PERIODS).max(life)
    }
}
