//! Limits the number and the rate of connections per address.
//!
//! A single machine that opens connections without end could use up every descriptor of the server.
//! The limiter has to learn of every end of a connection, and connections end on other threads. So
//! each session carries a permit, a counted reference, and the reference count is the number of
//! connections: no message and no lock is needed.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use aulos_core::{Instant, Span, TokenBucket};

/// Limits of one address. Loopback is not limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressLimits {
    /// Simultaneous connections; also the size of a burst.
    pub per_address: u32,
    /// Connections per second after the burst.
    pub per_second: u32,
}

impl Default for AddressLimits {
    /// A building behind one router has fewer than 1,024 connections, and all of them return at
    /// once after a power cut.
    fn default() -> Self {
        Self { per_address: 1_024, per_second: 100 }
    }
}

/// Counts the connections of each address.
#[derive(Debug)]
pub struct ConnectionLimiter {
    addresses: HashMap<u128, AddressEntry>,
    limits: AddressLimits,
    /// When there are more addresses than this, the ones without connections are removed.
    sweep_at: usize,
}

#[derive(Debug)]
struct AddressEntry {
    permit: Arc<()>,
    arrivals: TokenBucket,
}

/// Permission for one connection from an address, returned on drop. Loopback needs none.
#[derive(Debug, Default)]
pub struct AddressPermit(
    #[allow(dead_code, reason = "it is its being there that counts")] Option<Arc<()>>,
);

/// Why a connection is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmitError {
    /// The address has too many connections.
    TooMany,
    /// The address opens connections too fast.
    TooFast,
}

impl ConnectionLimiter {
    /// A limiter without connections.
    #[must_use]
    pub fn new(limits: AddressLimits) -> Self {
        Self { addresses: HashMap::new(), limits, sweep_at: SWEEP_AT }
    }

    /// Changes the limits for new connections; open connections stay.
    pub fn set_limits(&mut self, limits: AddressLimits) {
        self.limits = limits;
        // Rates are counted anew; the number of connections is kept.
        self.addresses.retain(|_, known| Arc::strong_count(&known.permit) > 1);
        for known in self.addresses.values_mut() {
            known.arrivals = arrival_bucket(limits, Instant::ZERO);
        }
    }

    /// A permit for one more connection from `address`.
    ///
    /// # Errors
    /// [`AdmitError`], when there are too many connections or they come too fast.
    pub fn admit(&mut self, address: IpAddr, now: Instant) -> Result<AddressPermit, AdmitError> {
        let address = address.to_canonical();
        if address.is_loopback() {
            return Ok(AddressPermit(None));
        }
        if self.addresses.len() >= self.sweep_at {
            self.addresses.retain(|_, known| {
                Arc::strong_count(&known.permit) > 1 || !known.arrivals.is_full(now)
            });
            self.sweep_at = SWEEP_AT.max(2 * self.addresses.len());
        }
        let limits = self.limits;
        let known = self.addresses.entry(address_key(address)).or_insert_with(|| AddressEntry {
            permit: Arc::default(),
            arrivals: arrival_bucket(limits, now),
        });
        // One of the references is the limiter's own.
        if Arc::strong_count(&known.permit) > limits.per_address as usize {
            return Err(AdmitError::TooMany);
        }
        if !known.arrivals.try_take(now) {
            return Err(AdmitError::TooFast);
        }
        Ok(AddressPermit(Some(Arc::clone(&known.permit))))
    }
}

fn arrival_bucket(limits: AddressLimits, now: Instant) -> TokenBucket {
    let interval = Span::from_secs(1).as_nanos() / i64::from(limits.per_second.max(1));
    TokenBucket::new(limits.per_address, Span::from_nanos(interval), now)
}

/// The key that stands for one address: an IPv6 host can use any address of its /64 network, so the
/// whole network counts as one address.
#[must_use]
pub const fn address_key(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits() as u128,
        IpAddr::V6(address) => address.to_bits() & !(u64::MAX as u128),
    }
}

const SWEEP_AT: usize = 1_024;

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const NOW: Instant = Instant::ZERO;

    fn limiter_of(per_address: u32) -> ConnectionLimiter {
        ConnectionLimiter::new(AddressLimits { per_address, per_second: 1_000 })
    }

    /// Late enough for every address to connect again.
    const LATER: Instant = Instant::from_nanos(10_000_000_000);

    #[test]
    fn connections_per_address_are_limited_and_freed_when_one_closes() {
        let mut limiter = limiter_of(3);
        let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let mapped = IpAddr::V6(Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped());
        let mut tickets: Vec<_> =
            [address, mapped, address].map(|from| limiter.admit(from, NOW).unwrap()).into();
        assert_eq!(limiter.admit(address, LATER).unwrap_err(), AdmitError::TooMany);
        assert!(limiter.admit(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), LATER).is_ok());
        drop(tickets.pop());
        assert!(limiter.admit(address, LATER).is_ok());
    }

    #[test]
    fn loopback_is_not_counted_and_one_network_of_ipv6_is_one_address() {
        let mut limiter = limiter_of(1);
        for address in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            let tickets: Vec<_> = (0..10).map(|_| limiter.admit(address, NOW)).collect();
            assert!(tickets.iter().all(Result::is_ok));
        }
        let in_net = |net, host| Ipv6Addr::new(0x2001, 0xdb8, 0, net, 0, 0, 0, host).into();
        let guest = limiter.admit(in_net(1, 1), NOW).unwrap();
        assert_eq!(limiter.admit(in_net(1, 2), LATER).unwrap_err(), AdmitError::TooMany);
        assert!(limiter.admit(in_net(2, 1), LATER).is_ok());
        drop(guest);
        assert!(limiter.admit(in_net(1, 3), LATER + Span::from_secs(1)).is_ok());
    }

    #[test]
    fn one_address_may_connect_in_a_burst_and_then_at_a_limited_rate() {
        let mut limiter = ConnectionLimiter::new(AddressLimits::default());
        let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        // The connections end at once.
        for _ in 0..1_024 {
            drop(limiter.admit(address, NOW).unwrap());
        }
        assert_eq!(limiter.admit(address, NOW).unwrap_err(), AdmitError::TooFast);
        let second = Instant::from_nanos(1_000_000_000);
        let let_in = (0..500).filter(|_| limiter.admit(address, second).is_ok()).count();
        assert_eq!(let_in, 100);
    }

    #[test]
    fn new_limits_apply_at_once_and_keep_current_connections() {
        let mut limiter = limiter_of(2);
        let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let _both = [limiter.admit(address, NOW).unwrap(), limiter.admit(address, NOW).unwrap()];
        limiter.set_limits(AddressLimits { per_address: 3, per_second: 1_000 });
        let _third = limiter.admit(address, LATER).unwrap();
        assert_eq!(limiter.admit(address, LATER).unwrap_err(), AdmitError::TooMany);
    }

    #[test]
    fn addresses_without_connections_are_removed() {
        let mut limiter = limiter_of(1);
        let _stays = limiter.admit(Ipv4Addr::from_bits(1).into(), NOW).unwrap();
        for number in 2..10_000_u32 {
            let now = Instant::from_nanos(u64::from(number) * 1_000_000);
            drop(limiter.admit(Ipv4Addr::from_bits(number).into(), now).unwrap());
        }
        assert!(limiter.addresses.len() <= SWEEP_AT);
        let crowded = limiter.admit(Ipv4Addr::from_bits(1).into(), LATER);
        assert_eq!(crowded.unwrap_err(), AdmitError::TooMany);
    }
}
