//! Storage of packets: a ring of fixed slots indexed by sequence number, with a bitmap.

use aulos_core::Instant;

/// A stored packet.
#[derive(Debug)]
pub(super) struct HeldPacket<P> {
    /// Media time in ticks, on the buffer's own time line.
    pub(super) at: i64,
    /// Sequence number of the sender.
    pub(super) sequence: u64,
    /// Timestamp of the sender.
    pub(super) timestamp: u64,
    pub(super) received: Instant,
    pub(super) ticks: u32,
    pub(super) marker: bool,
    pub(super) begins_run: bool,
    pub(super) payload: P,
}

#[derive(Debug)]
pub(super) struct PacketRing<P> {
    slots: Box<[Option<HeldPacket<P>>]>,
    /// One bit per slot, so that the next occupied one is found 64 at a time.
    present: Box<[u64]>,
    mask: u64,
    held: usize,
    /// Lowest and highest number stored; valid while the ring is not empty.
    first: u64,
    last: u64,
}

impl<P> PacketRing<P> {
    /// A ring of `slots` packets, rounded up to a power of two.
    pub(super) fn new(slots: usize) -> Self {
        let slots = slots.next_power_of_two();
        Self {
            slots: (0..slots).map(|_| None).collect(),
            present: vec![0; slots.div_ceil(WORD)].into(),
            mask: slots as u64 - 1,
            held: 0,
            first: 0,
            last: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.held
    }

    pub(super) const fn capacity(&self) -> u64 {
        self.mask + 1
    }

    /// Whether `seq` fits into the ring together with the stored packets.
    pub(super) fn fits(&self, seq: u64) -> bool {
        self.held == 0 || self.last.max(seq) - self.first.min(seq) <= self.mask
    }

    /// Inserts a packet, which must fit and must not be present.
    pub(super) fn insert(&mut self, seq: u64, packet: HeldPacket<P>) {
        debug_assert!(self.fits(seq));
        let index = self.index(seq);
        let Some(slot) = self.slots.get_mut(index) else { return };
        debug_assert!(slot.is_none());
        *slot = Some(packet);
        if let Some(word) = self.present.get_mut(index / WORD) {
            *word |= 1 << (index % WORD);
        }
        if self.held == 0 {
            (self.first, self.last) = (seq, seq);
        } else {
            (self.first, self.last) = (self.first.min(seq), self.last.max(seq));
        }
        self.held += 1;
    }

    /// The packet with the lowest number.
    pub(super) fn first(&self) -> Option<(u64, &HeldPacket<P>)> {
        if self.held == 0 {
            return None;
        }
        Some((self.first, self.slots.get(self.index(self.first))?.as_ref()?))
    }

    /// Removes the packet with the lowest number.
    pub(super) fn take_first(&mut self) -> Option<HeldPacket<P>> {
        if self.held == 0 {
            return None;
        }
        let index = self.index(self.first);
        let packet = self.slots.get_mut(index)?.take()?;
        if let Some(word) = self.present.get_mut(index / WORD) {
            *word &= !(1 << (index % WORD));
        }
        self.held -= 1;
        if self.held > 0 {
            self.first = self.next_present(self.first + 1);
        }
        Some(packet)
    }

    /// Lowest stored number from `seq` on; there must be one.
    fn next_present(&self, mut seq: u64) -> u64 {
        while seq <= self.last {
            let index = self.index(seq);
            let word = self.present.get(index / WORD).copied().unwrap_or(0) >> (index % WORD);
            if word != 0 {
                return seq + u64::from(word.trailing_zeros());
            }
            seq += (WORD - index % WORD).min(self.slots.len() - index) as u64;
        }
        self.last
    }

    #[allow(clippy::cast_possible_truncation, reason = "the mask is smaller than a usize")]
    const fn index(&self, seq: u64) -> usize {
        (seq & self.mask) as usize
    }
}

const WORD: usize = 64;
