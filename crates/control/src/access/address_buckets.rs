//! Token buckets per address: failed logins, calls before a login, new clients.

use std::collections::HashMap;
use std::net::IpAddr;

use aulos_core::{Instant, Span, TokenBucket};
use aulos_io::reactor::address_key;

/// A token bucket for each address, for a bounded number of addresses.
#[derive(Debug)]
pub(crate) struct AddressBuckets {
    known: HashMap<u128, (TokenBucket, Instant)>,
    /// Size of a full bucket.
    burst: u32,
    /// Time until one token is added.
    interval: Span,
}

impl AddressBuckets {
    pub(crate) fn new(burst: u32, interval: Span) -> Self {
        Self { known: HashMap::new(), burst: burst.max(1), interval }
    }

    /// Allows this many at once, and this many per minute.
    pub(crate) fn per_minute(allowed: u32) -> Self {
        let minute = Span::from_secs(60).as_nanos();
        Self::new(allowed, Span::from_nanos(minute / i64::from(allowed.max(1))))
    }

    /// The same as [`AddressBuckets::per_minute`] from now on; a different number resets the
    /// counts.
    pub(crate) fn set_per_minute(&mut self, allowed: u32) {
        if allowed.max(1) != self.burst {
            *self = Self::per_minute(allowed);
        }
    }

    /// Whether an address has a token left. Loopback always has: behind a local proxy it would be
    /// the address of every client.
    pub(crate) fn has(&mut self, from: IpAddr, now: Instant) -> bool {
        let from = from.to_canonical();
        let known = self.known.get_mut(&address_key(from));
        from.is_loopback() || known.is_none_or(|(budget, _)| budget.has_token(now))
    }

    /// Takes a token; false if the address has none left.
    pub(crate) fn take(&mut self, from: IpAddr, now: Instant) -> bool {
        let from = from.to_canonical();
        if from.is_loopback() {
            return true;
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
        let fresh = || (TokenBucket::new(self.burst, self.interval, now), now);
        let (budget, at) = self.known.entry(address_key(from)).or_insert_with(fresh);
        *at = now;
        budget.try_take(now)
    }
}

/// Maximum number of tracked addresses: a quarter of a megabyte.
const MAX_ADDRESSES: usize = 4_096;

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn an_address_has_a_burst_and_then_one_token_an_interval() {
        let at = |seconds: i64| Instant::ZERO + Span::from_secs(seconds);
        let mut buckets = AddressBuckets::new(1_024, Span::from_secs(1));
        let (one, other) = (Ipv4Addr::new(192, 0, 2, 1).into(), Ipv4Addr::new(192, 0, 2, 2).into());
        assert_eq!((0..8_200).filter(|_| buckets.take(one, at(5))).count(), 1_024);
        assert!(buckets.take(other, at(5)));
        assert!(buckets.take(one, at(6)) && !buckets.take(one, at(6)));
        // One IPv6 network counts as one address, and this machine has no limit.
        let net = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into();
        assert_eq!((0..8_200).filter(|last| buckets.take(net(*last), at(5))).count(), 1_024);
        assert!((0..8_200).all(|_| buckets.take(Ipv4Addr::LOCALHOST.into(), at(5))));
    }

    #[test]
    fn the_table_stays_bounded_for_any_number_of_addresses() {
        let mut buckets = AddressBuckets::per_minute(2);
        let at = |number: u32| Instant::from_nanos(u64::from(number));
        for number in 1..10_000 {
            buckets.take(Ipv4Addr::from_bits(number).into(), at(number));
        }
        assert!(buckets.known.len() <= MAX_ADDRESSES);
        let last = IpAddr::from(Ipv4Addr::from_bits(9_999));
        buckets.take(last, at(10_000));
        assert!(!buckets.has(last, at(10_000)));
    }
}
