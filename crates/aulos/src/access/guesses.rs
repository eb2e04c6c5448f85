//! Who has been wrong too often.

use std::collections::HashMap;
use std::net::IpAddr;

use aulos_core::{Budget, Instant, Span};
use aulos_io::reactor::house_of;

/// Wrong guesses per address, a bounded number of them.
#[derive(Debug)]
pub(super) struct Guesses {
    known: HashMap<u128, (Budget, Instant)>,
    /// At once, and a minute.
    allowed: u32,
}

impl Guesses {
    pub(super) fn new(allowed: u32) -> Self {
        Self { known: HashMap::new(), allowed: allowed.max(1) }
    }

    /// From now on; what was counted is forgotten where the number is another.
    pub(super) fn allow(&mut self, allowed: u32) {
        if allowed.max(1) != self.allowed {
            *self = Self::new(allowed);
        }
    }

    /// Whether an address has a guess left. Loopback always has: behind a proxy on this machine it
    /// would be everybody's address.
    pub(super) fn may_guess(&mut self, from: IpAddr, now: Instant) -> bool {
        let from = from.to_canonical();
        let known = self.known.get_mut(&house_of(from));
        from.is_loopback() || known.is_none_or(|(budget, _)| budget.has(now))
    }

    /// One guess less.
    pub(super) fn was_wrong(&mut self, from: IpAddr, now: Instant) {
        let from = from.to_canonical();
        if from.is_loopback() {
            return;
        }
        if self.known.len() >= MAX_ADDRESSES {
            self.known.retain(|_, (budget, _)| !budget.is_full(now));
        }
        if self.known.len() >= MAX_ADDRESSES
            && let Some(oldest) = self.known.iter().min_by_key(|(_, (_, at))| *at)
        {
            let oldest = *oldest.0;
            self.known.remove(&oldest);
        }
        let interval = Span::from_nanos(Span::from_secs(60).as_nanos() / i64::from(self.allowed));
        let fresh = || (Budget::new(self.allowed, interval, now), now);
        let (budget, at) = self.known.entry(house_of(from)).or_insert_with(fresh);
        budget.take(now);
        *at = now;
    }
}

/// Addresses of which it is known that they guessed: a quarter of a megabyte.
const MAX_ADDRESSES: usize = 4_096;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn however_many_addresses_guess_the_list_stays_short() {
        let mut guesses = Guesses::new(2);
        let at = |number: u32| Instant::from_nanos(u64::from(number));
        for number in 1..10_000 {
            guesses.was_wrong(Ipv4Addr::from_bits(number).into(), at(number));
        }
        assert!(guesses.known.len() <= MAX_ADDRESSES);
        let last = IpAddr::from(Ipv4Addr::from_bits(9_999));
        guesses.was_wrong(last, at(10_000));
        assert!(!guesses.may_guess(last, at(10_000)));
    }
}
