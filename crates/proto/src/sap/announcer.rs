//! Announces one session periodically.

use core::net::IpAddr;

use aulos_core::{Instant, Rng, Span};

use super::{SapPacket, description_hash};
use crate::sdp::MAX_BYTES;

/// Default interval between two announcements. RFC 2974 requires 300 s or more, to limit the
/// traffic of a global group; AES67 devices announce every 30 s and expect the same of others.
pub const INTERVAL: Span = Span::from_secs(30);

/// Configuration of an [`SapAnnouncer`].
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "wishes, made with Default and changed")]
pub struct AnnouncerConfig {
    /// Time between two announcements, randomized by a third in both directions.
    pub interval: Span,
    /// Bandwidth limit of all announcements in the group together, in bits per second.
    pub bandwidth: u32,
    /// Seed of the random intervals; differs between announcers.
    pub seed: u64,
}

impl Default for AnnouncerConfig {
    fn default() -> Self {
        Self { interval: INTERVAL, bandwidth: 4_000, seed: 0 }
    }
}

/// Announces one session: at once, then periodically, and sends a deletion at the end.
///
/// # Examples
/// ```
/// use aulos_core::Instant;
/// use aulos_proto::sap::{SapAnnouncer, AnnouncerConfig, SapPacket};
///
/// let config = AnnouncerConfig::default();
/// let mut announcer = SapAnnouncer::new(config, [192, 0, 2, 1].into(), Instant::ZERO);
/// announcer.set(Instant::ZERO, "v=0\r\n");
/// let mut out = [0; 1_500];
/// let length = announcer.poll_output(&mut out).unwrap_or(0);
/// assert_eq!(SapPacket::parse(&out[..length])?.payload, b"v=0\r\n");
/// assert!(announcer.poll_timeout().is_some(), "when to say it again");
/// # Ok::<(), aulos_proto::sap::SapError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SapAnnouncer {
    config: AnnouncerConfig,
    origin: IpAddr,
    rng: Rng,
    /// The announced description, and one whose deletion is pending.
    current: Option<String>,
    withdrawn: Option<String>,
    due: bool,
    next: Instant,
    others: usize,
}

impl SapAnnouncer {
    /// An announcer without a session. `origin` is the local address.
    #[must_use]
    pub fn new(config: AnnouncerConfig, origin: IpAddr, now: Instant) -> Self {
        Self {
            config,
            origin,
            rng: Rng::new(config.seed),
            current: None,
            withdrawn: None,
            due: false,
            next: now,
            others: 0,
        }
    }

    /// Announces `sdp` from now on and deletes the previous announcement. A description longer than
    /// [`MAX_BYTES`] is ignored, because receivers do not accept it.
    pub fn set(&mut self, now: Instant, sdp: &str) {
        if self.current.as_deref() == Some(sdp) || sdp.len() > MAX_BYTES {
            return;
        }
        self.withdraw();
        self.current = Some(sdp.to_owned());
        self.due = true;
        self.schedule_next(now);
    }

    /// Ends the session: its deletion is sent next.
    pub fn withdraw(&mut self) {
        self.withdrawn = self.current.take().or_else(|| self.withdrawn.take());
        self.due = false;
    }

    /// Sets the number of other announcements in the group; the interval grows with it.
    pub const fn set_other_announcements(&mut self, others: usize) {
        self.others = others;
    }

    /// Handles what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.current.is_some() && self.next <= now {
            self.due = true;
            self.schedule_next(now);
        }
    }

    /// Writes the next packet into `out` and returns its length in bytes; `None` when nothing is
    /// due or `out` is too short.
    pub fn poll_output(&mut self, out: &mut [u8]) -> Option<usize> {
        let (sdp, deletion) = match self.withdrawn.take() {
            Some(withdrawn) => (withdrawn, true),
            None if self.due => {
                self.due = false;
                (self.current.clone()?, false)
            }
            None => return None,
        };
        let (hash, payload) = (description_hash(sdp.as_bytes()), sdp.as_bytes());
        SapPacket { deletion, hash, origin: self.origin, payload }.write(out)
    }

    /// Time at which to call [`SapAnnouncer::handle_timeout`]; `None` without a session.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.current.is_some().then_some(self.next)
    }

    /// RFC 2974, 3.1: the time that all announcements need at the bandwidth limit, or the
    /// configured interval if that is longer, randomized by up to a third.
    #[allow(clippy::cast_precision_loss, reason = "a wait")]
    fn schedule_next(&mut self, now: Instant) {
        let bits =
            8 * (self.others as u64 + 1) * self.current.as_ref().map_or(0, String::len) as u64;
        let needed = bits as f64 / f64::from(self.config.bandwidth.max(1));
        let seconds = self.config.interval.as_secs_f64().max(needed);
        let wait = seconds * (2.0 / 3.0 + self.rng.next_f64() * 2.0 / 3.0);
        self.next = now + Span::from_secs_f64(wait).max(Span::from_secs(1));
    }
}
