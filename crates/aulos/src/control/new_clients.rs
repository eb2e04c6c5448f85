//! How many clients that are not known may come from one address.
//!
//! Every new id is remembered, so inventing ids is a way to fill a table. Clients that are known
//! come back as often and as fast as the limits of connections allow.

use std::collections::HashMap;
use std::net::IpAddr;

use aulos_core::{Budget, Instant, Span};
use aulos_io::reactor::house_of;

/// New clients from one address at once: a building behind one router has fewer players, and all of
/// them may come at once when the server is installed.
const BURST: u32 = 1_024;
/// New clients from one address, once those are spent: one per second. Replacing all that can be
/// remembered takes two hours.
const INTERVAL: Span = Span::from_secs(1);
/// Addresses of which it is known how many new clients they sent: a quarter of a megabyte.
const MAX_ADDRESSES: usize = 4_096;

/// New clients per address, for a bounded number of addresses.
#[derive(Debug, Default)]
pub(super) struct NewClients {
    known: HashMap<u128, (Budget, Instant)>,
}

impl NewClients {
    /// Whether one more new client may come from an address. Loopback has no limits: behind a proxy
    /// on this machine it is everybody's address.
    pub(super) fn take(&mut self, from: IpAddr, now: Instant) -> bool {
        let from = from.to_canonical();
        if from.is_loopback() {
            return true;
        }
        let from = house_of(from);
        if !self.known.contains_key(&from) {
            self.make_room(now);
        }
        let fresh = || (Budget::new(BURST, INTERVAL, now), now);
        let (budget, at) = self.known.entry(from).or_insert_with(fresh);
        *at = now;
        budget.take(now)
    }

    /// Forgets addresses that are as if they had never come; or else the one that came least lately.
    fn make_room(&mut self, now: Instant) {
        if self.known.len() < MAX_ADDRESSES {
            return;
        }
        self.known.retain(|_, (budget, _)| !budget.is_full(now));
        if self.known.len() >= MAX_ADDRESSES
            && let Some(oldest) = self.known.iter().min_by_key(|(_, (_, at))| *at)
        {
            let oldest = *oldest.0;
            self.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn an_address_sends_a_building_at_once_and_then_one_client_a_second() {
        let mut clients = NewClients::default();
        let (one, other) = (Ipv4Addr::new(192, 0, 2, 1).into(), Ipv4Addr::new(192, 0, 2, 2).into());
        let taken = (0..8_200).filter(|_| clients.take(one, at(5))).count();
        assert_eq!(taken, BURST as usize);
        assert!(clients.take(other, at(5)));
        assert!(clients.take(one, at(6)) && !clients.take(one, at(6)));
        // One network of IPv6 is one address, and this machine has no limit.
        let net = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into();
        let taken = (0..8_200).filter(|last| clients.take(net(*last), at(5))).count();
        assert_eq!(taken, BURST as usize);
        assert!((0..8_200).all(|_| clients.take(Ipv4Addr::LOCALHOST.into(), at(5))));
    }

    #[test]
    fn however_many_addresses_come_the_list_stays_short() {
        let mut clients = NewClients::default();
        for number in 1..10_000 {
            clients.take(Ipv4Addr::from_bits(number).into(), at(1));
        }
        assert!(clients.known.len() <= MAX_ADDRESSES);
    }
}
