//! In which order, and when, the addresses of a host are connected to (RFC 8305 in small).
//!
//! A name may have addresses of both families while the service listens on one of them, or one
//! family is not routed at all. So the addresses are tried in turn, the next one as soon as an
//! attempt fails or has not succeeded within a quarter of a second; attempts that have begun go on.

use std::collections::VecDeque;

use core::net::SocketAddr;

use aulos_core::{Instant, Span};

/// Decides which address is connected to next. The caller opens the sockets and reports failures;
/// the first attempt that succeeds wins, and the others are closed.
///
/// # Examples
/// ```
/// use aulos_core::Instant;
/// use aulos_session::connect::AddressRace;
///
/// let found = vec!["[::1]:80".parse().unwrap(), "127.0.0.1:80".parse().unwrap()];
/// let (now, mut race) = (Instant::ZERO, AddressRace::new(found));
/// assert_eq!(race.poll_output(now), Some("[::1]:80".parse().unwrap()));
/// assert_eq!(race.poll_output(now), None);
/// race.handle_failure();
/// assert_eq!(race.poll_output(now), Some("127.0.0.1:80".parse().unwrap()));
/// ```
#[derive(Clone, Debug)]
pub struct AddressRace {
    waiting: VecDeque<SocketAddr>,
    /// Attempts that have begun and not failed.
    pending: usize,
    next_at: Instant,
    limit: Span,
    deadline: Option<Instant>,
}

impl AddressRace {
    /// A race between the first [`MAX_ADDRESSES`] addresses of a host, in the resolver's order, but
    /// with alternating families (RFC 8305, 4).
    #[must_use]
    pub fn new(found: Vec<SocketAddr>) -> Self {
        let first_is_v6 = found.first().is_some_and(SocketAddr::is_ipv6);
        let (preferred, others): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|address| address.is_ipv6() == first_is_v6);
        let (mut preferred, mut others) = (preferred.into_iter(), others.into_iter());
        let mut waiting = VecDeque::new();
        while waiting.len() < MAX_ADDRESSES {
            let before = waiting.len();
            waiting.extend(preferred.next());
            waiting.extend(others.next());
            if waiting.len() == before {
                break;
            }
        }
        waiting.truncate(MAX_ADDRESSES);
        let (next_at, limit) = (Instant::ZERO, CONNECT_TIMEOUT);
        Self { waiting, pending: 0, next_at, limit, deadline: None }
    }

    /// The same, with another limit of all attempts together than ten seconds.
    #[must_use]
    pub const fn within(mut self, limit: Span) -> Self {
        self.limit = limit;
        self
    }

    /// The address to connect to now, if another attempt is due.
    pub fn poll_output(&mut self, now: Instant) -> Option<SocketAddr> {
        self.deadline.get_or_insert(now + self.limit);
        if self.pending > 0 && now < self.next_at {
            return None;
        }
        let address = self.waiting.pop_front()?;
        self.pending += 1;
        self.next_at = now + ATTEMPT_DELAY;
        Some(address)
    }

    /// When to poll again: another attempt is due, or the time is over.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match (self.waiting.is_empty(), self.pending) {
            (true, _) => self.deadline,
            (false, 0) => Some(Instant::ZERO),
            (false, _) => Some(self.next_at),
        }
    }

    /// An attempt has failed.
    pub const fn handle_failure(&mut self) {
        self.pending = self.pending.saturating_sub(1);
    }

    /// Whether every attempt has failed.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.pending == 0 && self.waiting.is_empty()
    }

    /// Whether the time for all attempts together is over.
    #[must_use]
    pub fn is_expired(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

/// Addresses that are tried.
pub const MAX_ADDRESSES: usize = 8;

/// RFC 8305, 5: the recommended delay between two attempts.
const ATTEMPT_DELAY: Span = Span::from_millis(250);

/// The limit of all attempts together.
const CONNECT_TIMEOUT: Span = Span::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn race(addresses: &[&str]) -> AddressRace {
        AddressRace::new(addresses.iter().map(|text| text.parse().unwrap()).collect())
    }

    fn next(race: &mut AddressRace, millis: i64) -> Option<String> {
        let now = Instant::ZERO + Span::from_millis(millis);
        race.poll_output(now).map(|address| address.to_string())
    }

    #[test]
    fn the_next_address_follows_a_failure_at_once_and_silence_after_a_while() {
        let mut race = race(&["[2001:db8::1]:1", "[2001:db8::2]:1", "192.0.2.1:1", "192.0.2.2:1"]);
        assert_eq!(next(&mut race, 0).as_deref(), Some("[2001:db8::1]:1"));
        assert_eq!(next(&mut race, 100), None);
        race.handle_failure();
        assert_eq!(race.poll_timeout(), Some(Instant::ZERO), "at once");
        assert_eq!(next(&mut race, 100).as_deref(), Some("192.0.2.1:1"), "the other family");
        assert_eq!(next(&mut race, 349), None);
        assert_eq!(next(&mut race, 350).as_deref(), Some("[2001:db8::2]:1"));
        assert_eq!(race.poll_timeout(), Some(Instant::ZERO + Span::from_millis(600)));
        assert_eq!(next(&mut race, 600).as_deref(), Some("192.0.2.2:1"));
        assert_eq!(race.poll_timeout(), Some(Instant::ZERO + CONNECT_TIMEOUT));
        assert_eq!(next(&mut race, 9_000), None);
        for _ in 0..3 {
            assert!(!race.is_lost());
            race.handle_failure();
        }
        assert!(race.is_lost());
    }

    #[test]
    fn attempts_are_bounded_in_number_and_time() {
        let many: Vec<_> = (0..100).map(|host| SocketAddr::from(([192, 0, 2, host], 1))).collect();
        let mut race = AddressRace::new(many);
        let begun = (0..10_000).filter(|millis| next(&mut race, *millis).is_some()).count();
        assert_eq!(begun, MAX_ADDRESSES);
        let at = |millis| Instant::ZERO + Span::from_millis(millis);
        assert!(!race.is_expired(at(9_999)) && race.is_expired(at(10_000)));
        assert!(AddressRace::new(Vec::new()).is_lost());
        let mut short = AddressRace::new(vec![]).within(Span::from_secs(4));
        assert_eq!(next(&mut short, 0), None);
        assert!(!short.is_expired(at(3_999)) && short.is_expired(at(4_000)));
    }
}
