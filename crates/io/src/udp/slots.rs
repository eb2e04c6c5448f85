//! The memory for received datagrams.
//!
//! A telephony datagram has 172 bytes, a studio one 300, and few have more than 1,472; but 9,000
//! are possible. So the beginning of each goes into a small slot, and only the rest of a longer one
//! into a large slot: the usual case stays compact in the L1 cache. A large slot has room in front
//! for the beginning, which is copied there when needed.

use std::net::{Ipv4Addr, SocketAddr};
use std::slice::ChunksExactMut;

/// Buffers for datagrams, and what is known of the received ones.
#[derive(Debug)]
pub(crate) struct Slots {
    pub(crate) small: Box<[u8]>,
    pub(crate) large: Box<[u8]>,
    pub(crate) largest: usize,
    pub(crate) datagrams: Box<[DatagramInfo]>,
}

/// The kernel's information on a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatagramInfo {
    /// Without the part that did not fit.
    pub(crate) len: usize,
    pub(crate) truncated: bool,
    pub(crate) from: SocketAddr,
    /// The time of arrival, in nanoseconds of the wall clock.
    pub(crate) stamp: Option<u64>,
    /// How many datagrams the socket has dropped so far because its buffer was full.
    pub(crate) lost: Option<u32>,
    /// Set for joined datagrams: the length of each; the last one may be shorter.
    pub(crate) segment: Option<usize>,
}

impl Slots {
    /// Buffers for `count` datagrams of up to `largest` bytes.
    pub(crate) fn new(count: usize, largest: usize) -> Self {
        let largest = largest.max(SMALL_SLOT_BYTES);
        Self {
            small: vec![0; count * SMALL_SLOT_BYTES].into(),
            large: vec![0; count * largest].into(),
            largest,
            datagrams: vec![DatagramInfo::EMPTY; count].into(),
        }
    }

    /// The number of slots.
    pub(crate) const fn count(&self) -> usize {
        self.datagrams.len()
    }

    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    /// The two buffers of datagram `index`.
    pub(crate) fn room(&mut self, index: usize) -> [&mut [u8]; 2] {
        let large = &mut self.large[index * self.largest..][..self.largest];
        [
            &mut self.small[index * SMALL_SLOT_BYTES..][..SMALL_SLOT_BYTES],
            &mut large[SMALL_SLOT_BYTES..],
        ]
    }

    /// The first `count` datagrams with their bytes.
    pub(crate) fn received(&mut self, count: usize) -> ReceivedDatagrams<'_> {
        ReceivedDatagrams {
            arrived: self.datagrams[..count].iter(),
            small: self.small.chunks_exact_mut(SMALL_SLOT_BYTES),
            large: self.large.chunks_exact_mut(self.largest),
        }
    }
}

/// Received datagrams, each with its bytes.
pub(crate) struct ReceivedDatagrams<'a> {
    arrived: std::slice::Iter<'a, DatagramInfo>,
    small: ChunksExactMut<'a, u8>,
    large: ChunksExactMut<'a, u8>,
}

impl<'a> Iterator for ReceivedDatagrams<'a> {
    type Item = (DatagramInfo, &'a mut [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let arrived = *self.arrived.next()?;
        let (small, large) = (self.small.next()?, self.large.next()?);
        let bytes = if arrived.len <= SMALL_SLOT_BYTES { small } else { join_parts(small, large) };
        Some((arrived, &mut bytes[..arrived.len]))
    }
}

impl DatagramInfo {
    /// No datagram.
    pub(crate) const EMPTY: Self = Self {
        len: 0,
        truncated: false,
        from: SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        stamp: None,
        lost: None,
        segment: None,
    };

    /// Whether it can be delivered: neither empty nor truncated.
    #[inline]
    pub(super) const fn is_deliverable(&self) -> bool {
        self.len > 0 && !self.truncated
    }
}

/// Copies the beginning in front of the rest.
fn join_parts<'a>(small: &[u8], large: &'a mut [u8]) -> &'a mut [u8] {
    large[..SMALL_SLOT_BYTES].copy_from_slice(small);
    large
}

/// The size of a small slot: 20 ms of G.711 and most studio packets, with header.
pub(crate) const SMALL_SLOT_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(at: usize) -> u8 {
        u8::try_from(at % 251).unwrap()
    }

    #[test]
    fn small_and_large_datagrams_are_whole() {
        let mut slots = Slots::new(4, 2_000);
        for (index, len) in [172, 256, 257, 2_000].into_iter().enumerate() {
            let [small, rest] = slots.room(index);
            let mut bytes = (0..len).map(|at| pattern(at + index));
            small.iter_mut().chain(rest).zip(&mut bytes).for_each(|(to, from)| *to = from);
            slots.datagrams[index].len = len;
        }
        let lengths: Vec<usize> = slots
            .received(4)
            .enumerate()
            .map(|(index, (_, bytes))| {
                assert!(bytes.iter().enumerate().all(|(at, b)| *b == pattern(at + index)));
                bytes.len()
            })
            .collect();
        assert_eq!(lengths, [172, 256, 257, 2_000]);
    }
}
