//! Packets of a sender that may follow the current one.

use aulos_core::Instant;

/// The first packets of another sender, held until the current one is known to be gone: a sender
/// that begins anew, with another SSRC, sequence and time, loses nothing.
#[derive(Debug, Default)]
pub(super) struct SuccessorQueue {
    ssrc: u32,
    /// The next sequence number.
    next: u16,
    /// The packets; those from `len` on are memory that is used again.
    packets: Vec<HeldPacket>,
    len: usize,
}

/// A datagram and the instant of its arrival.
#[derive(Debug)]
struct HeldPacket {
    received: Instant,
    bytes: Vec<u8>,
}

impl SuccessorQueue {
    /// Whether the packet continues those that are held.
    pub(super) const fn is_continued_by(&self, ssrc: u32, sequence: u16) -> bool {
        self.len > 0 && self.ssrc == ssrc && self.next == sequence
    }

    /// Holds a packet, in place of all before it if it does not continue them, or if there is no
    /// room. Returns how many packets are dropped for it.
    pub(super) fn hold(
        &mut self,
        ssrc: u32,
        sequence: u16,
        received: Instant,
        bytes: &[u8],
    ) -> u64 {
        let is_continued = self.is_continued_by(ssrc, sequence);
        let dropped = if is_continued && self.len < MAX_HELD { 0 } else { self.clear() };
        (self.ssrc, self.next) = (ssrc, sequence.wrapping_add(1));
        match self.packets.get_mut(self.len) {
            Some(held) => {
                held.received = received;
                held.bytes.clear();
                held.bytes.extend_from_slice(bytes);
            }
            None => self.packets.push(HeldPacket { received, bytes: bytes.to_vec() }),
        }
        self.len += 1;
        dropped
    }

    /// Drops the packets; returns their number.
    pub(super) const fn clear(&mut self) -> u64 {
        core::mem::replace(&mut self.len, 0) as u64
    }

    /// The packets, in order.
    pub(super) fn packets(&self) -> impl Iterator<Item = (Instant, &[u8])> {
        self.packets.iter().take(self.len).map(|held| (held.received, held.bytes.as_slice()))
    }
}

/// Packets of 20 ms cover the longest wait; of shorter ones the last are held.
const MAX_HELD: usize = 16;
