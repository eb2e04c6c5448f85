//! How many may come from one address.
//!
//! One machine that opens connections without end would take every descriptor of the house. Whoever
//! counts must also hear of each end, and ends happen on other threads; so a session carries a
//! ticket, a counted reference, and what is out is what the count says. No message, no lock.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Counts the guests of each address.
#[derive(Debug)]
pub(super) struct Doorman {
    tickets: HashMap<u128, Arc<()>>,
    most: usize,
    /// When there are more addresses than this, those with no guest are forgotten.
    sweep_at: usize,
}

/// A guest's right to be here, given back by being dropped. Loopback needs none.
pub(super) type Ticket = Option<Arc<()>>;

/// Too many have come from this address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crowded;

impl Doorman {
    pub(super) fn new(most: usize) -> Self {
        Self { tickets: HashMap::new(), most, sweep_at: SWEEP_AT }
    }

    /// A ticket for one more guest from `address`.
    pub(super) fn admit(&mut self, address: IpAddr) -> Result<Ticket, Crowded> {
        let address = address.to_canonical();
        if address.is_loopback() {
            return Ok(None);
        }
        if self.tickets.len() >= self.sweep_at {
            self.tickets.retain(|_, ticket| Arc::strong_count(ticket) > 1);
            self.sweep_at = SWEEP_AT.max(2 * self.tickets.len());
        }
        let ticket = self.tickets.entry(house_of(address)).or_default();
        // One of the references is ours.
        if Arc::strong_count(ticket) > self.most {
            return Err(Crowded);
        }
        Ok(Some(Arc::clone(ticket)))
    }
}

/// A machine with IPv6 has as many addresses as it likes, but all in one network of 64 bits.
fn house_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits() & !u128::from(u64::MAX),
    }
}

const SWEEP_AT: usize = 1_024;

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn an_address_has_so_many_guests_and_a_place_again_when_one_goes() {
        let mut doorman = Doorman::new(3);
        let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let mapped = IpAddr::V6(Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped());
        let mut tickets: Vec<_> =
            [address, mapped, address].map(|from| doorman.admit(from).unwrap()).into();
        assert_eq!(doorman.admit(mapped), Err(Crowded));
        assert!(doorman.admit(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2))).is_ok());
        drop(tickets.pop());
        assert!(doorman.admit(address).is_ok());
    }

    #[test]
    fn loopback_is_not_counted_and_one_network_of_ipv6_is_one_address() {
        let mut doorman = Doorman::new(1);
        for address in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            assert!((0..10).all(|_| doorman.admit(address) == Ok(None)));
        }
        let in_net = |net, host| Ipv6Addr::new(0x2001, 0xdb8, 0, net, 0, 0, 0, host).into();
        let guest = doorman.admit(in_net(1, 1)).unwrap();
        assert_eq!(doorman.admit(in_net(1, 2)), Err(Crowded));
        assert!(doorman.admit(in_net(2, 1)).is_ok());
        drop(guest);
        assert!(doorman.admit(in_net(1, 3)).is_ok());
    }

    #[test]
    fn addresses_without_guests_are_forgotten() {
        let mut doorman = Doorman::new(1);
        let _stays = doorman.admit(Ipv4Addr::from_bits(1).into()).unwrap();
        for number in 2..10_000 {
            drop(doorman.admit(Ipv4Addr::from_bits(number).into()).unwrap());
        }
        assert!(doorman.tickets.len() <= SWEEP_AT);
        assert_eq!(doorman.admit(Ipv4Addr::from_bits(1).into()), Err(Crowded));
    }
}
