//! What is refused again and again is logged once.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// The last refusal of each address. A program that is refused tries again every second; only a
/// refusal for another reason, or after a success, is news.
#[derive(Debug)]
pub struct RefusalFilter<R>(Mutex<Vec<(IpAddr, R)>>);

impl<R> Default for RefusalFilter<R> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<R: PartialEq> RefusalFilter<R> {
    /// Whether this refusal differs from the last one of its address. The oldest of more than
    /// `MAX_ADDRESSES` addresses is forgotten.
    pub fn is_new(&self, from: IpAddr, reason: R) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.iter().any(|(address, known)| *address == from && *known == reason) {
            return false;
        }
        last.retain(|(address, _)| *address != from);
        if last.len() >= MAX_ADDRESSES {
            last.remove(0);
        }
        last.push((from, reason));
        true
    }

    /// A peer at this address was accepted.
    pub fn forget(&self, from: IpAddr) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.retain(|(address, _)| *address != from);
    }
}

/// Addresses whose last refusal is known.
const MAX_ADDRESSES: usize = 64;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_refusal_is_new_when_it_changes_and_after_success() {
        let filter = RefusalFilter::default();
        let from = |number| IpAddr::V4(Ipv4Addr::new(192, 0, 2, number));
        assert!(filter.is_new(from(1), "password"));
        assert!(!filter.is_new(from(1), "password"));
        assert!(filter.is_new(from(1), "full"));
        assert!(filter.is_new(from(2), "full"));
        assert!(!filter.is_new(from(1), "full"));
        filter.forget(from(1));
        assert!(filter.is_new(from(1), "full"));
        assert_eq!((0..255).filter(|number| filter.is_new(from(*number), "mount")).count(), 255);
        assert_eq!(filter.0.lock().unwrap().len(), MAX_ADDRESSES);
    }
}
