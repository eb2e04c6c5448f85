//! The memory that datagrams are received into.
//!
//! A datagram of a telephone call has 172 bytes, one of a studio 300, and few have more than 1,472;
//! but somebody may send 9,000. So the beginning of each goes into a small slot, and only what is
//! longer goes on in a large one: what is usual stays together in the processor's first cache. A
//! large one has room in front for the beginning, which is put there when it is needed.

use std::net::{Ipv4Addr, SocketAddr};
use std::slice::ChunksExactMut;

/// Room for some datagrams, and what is known of those that have come.
#[derive(Debug)]
pub(crate) struct Slots {
    pub(crate) small: Box<[u8]>,
    pub(crate) large: Box<[u8]>,
    pub(crate) largest: usize,
    pub(crate) datagrams: Box<[DatagramInfo]>,
}

/// What the kernel says of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatagramInfo {
    /// Without what did not fit.
    pub(crate) len: usize,
    pub(crate) truncated: bool,
    pub(crate) from: SocketAddr,
    /// When it came to this machine, in nanoseconds of the wall clock.
    pub(crate) stamp: Option<u64>,
    /// How many the socket has lost so far for want of room.
    pub(crate) lost: Option<u32>,
    /// It is several datagrams of this length, of which the last may be shorter.
    pub(crate) segment: Option<usize>,
}

impl Slots {
    /// Room for `count` datagrams of up to `largest` bytes.
    pub(crate) fn new(count: usize, largest: usize) -> Self {
        let largest = largest.max(SMALL_SLOT_BYTES);
        Self {
            small: vec![0; count * SMALL_SLOT_BYTES].into(),
            large: vec![0; count * largest].into(),
            largest,
            datagrams: vec![DatagramInfo::EMPTY; count].into(),
        }
    }

    /// How many there is room for.
    pub(crate) const fn count(&self) -> usize {
        self.datagrams.len()
    }

    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    /// The two pieces that datagram `index` goes into.
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

/// Datagrams that have come, each with its bytes.
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
    /// Nothing, from nowhere.
    pub(crate) const EMPTY: Self = Self {
        len: 0,
        truncated: false,
        from: SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        stamp: None,
        lost: None,
        segment: None,
    };
}

/// Puts the beginning in front of the rest.
fn join_parts<'a>(small: &[u8], large: &'a mut [u8]) -> &'a mut [u8] {
    large[..SMALL_SLOT_BYTES].copy_from_slice(small);
    large
}

/// The size of a small slot: 20 ms of G.711 and most of what studios send, with header.
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
