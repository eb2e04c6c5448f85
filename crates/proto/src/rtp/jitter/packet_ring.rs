//! Where packets stand: a ring of fixed slots, found by sequence number, with a bit for each.

use aulos_core::Instant;

/// What stands in a slot.
#[derive(Debug)]
pub(super) struct HeldPacket<P> {
    /// Where its media begins, in units of the buffer's own time line.
    pub(super) at: i64,
    /// As the sender wrote it.
    pub(super) sequence: u64,
    /// As the sender wrote it.
    pub(super) timestamp: u64,
    pub(super) received: Instant,
    pub(super) units: u32,
    pub(super) marker: bool,
    pub(super) begins_run: bool,
    pub(super) payload: P,
}

#[derive(Debug)]
pub(super) struct PacketRing<P> {
    slots: Box<[Option<HeldPacket<P>>]>,
    /// A bit for each slot, so that the next one that is taken is found 64 at a time.
    present: Box<[u64]>,
    mask: u64,
    held: usize,
    /// The lowest and the highest that are held, while any is.
    first: u64,
    last: u64,
}

impl<P> PacketRing<P> {
    /// Room for `slots` packets, rounded up to a power of two.
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

    /// Whether `seq` can stand beside what is held.
    pub(super) fn fits(&self, seq: u64) -> bool {
        self.held == 0 || self.last.max(seq) - self.first.min(seq) <= self.mask
    }

    /// Puts a packet in, which must fit and not be there.
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

    /// Takes the packet with the lowest number out.
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

    /// The lowest number from `seq` on that is held; there is one.
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
