//! Bounded map from SSRCs to values, which allocates only when it is created.
//!
//! `HashMap` reads the system's random numbers and occasionally rehashes everything; a list is slow
//! with thousands of entries. This map uses open addressing with two index entries per slot. The
//! hash is keyed, because the senders choose the SSRCs. Two lists order the slots by their last
//! packet: one of the validated sources, one of the others.

use core::mem;

use aulos_core::Rng;

/// An empty index entry, or the end of a list.
const NONE: u32 = u32::MAX;
/// Maximum capacity of a map; twice the number of slots must fit into 32 bits.
pub(super) const MAX_SLOTS: usize = 1 << 20;

#[derive(Clone, Debug)]
pub(super) struct SsrcMap<T> {
    slots: Vec<Slot<T>>,
    /// Slot numbers by hash; a power of two of entries, at most half full.
    index: Box<[u32]>,
    /// First unused slot; the others are linked through `newer`.
    free: u32,
    /// LRU lists of the unvalidated and of the validated sources.
    lists: [LruList; 2],
    len: usize,
    key: u64,
}

#[derive(Clone, Copy, Debug)]
struct LruList {
    oldest: u32,
    newest: u32,
}

#[derive(Clone, Debug)]
struct Slot<T> {
    ssrc: u32,
    older: u32,
    newer: u32,
    proven: bool,
    value: Option<T>,
}

impl<T> SsrcMap<T> {
    /// A map for `capacity` sources, at least one and at most [`MAX_SLOTS`].
    pub(super) fn new(capacity: usize, key: u64) -> Self {
        let capacity = u32::try_from(capacity.clamp(1, MAX_SLOTS)).unwrap_or(1);
        let slot = |number: u32| Slot {
            ssrc: 0,
            older: NONE,
            newer: if number + 1 < capacity { number + 1 } else { NONE },
            proven: false,
            value: None,
        };
        Self {
            slots: (0..capacity).map(slot).collect(),
            index: vec![NONE; 2 * capacity.next_power_of_two() as usize].into_boxed_slice(),
            free: 0,
            lists: [LruList { oldest: NONE, newest: NONE }; 2],
            len: 0,
            key,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn capacity(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn find(&self, ssrc: u32) -> Option<u32> {
        let mut at = self.first_index(ssrc);
        loop {
            let number = *self.index.get(at)?;
            let slot = self.slots.get(number as usize)?;
            if slot.ssrc == ssrc {
                return Some(number);
            }
            at = self.next_index(at);
        }
    }

    /// Inserts a source that is not in the map; `None` when the map is full.
    pub(super) fn insert(&mut self, ssrc: u32, value: T) -> Option<u32> {
        let number = self.free;
        let slot = self.slots.get_mut(number as usize)?;
        self.free = slot.newer;
        *slot = Slot { ssrc, older: NONE, newer: NONE, proven: false, value: Some(value) };
        self.len += 1;
        let mut at = self.first_index(ssrc);
        while self.index.get(at).is_some_and(|number| *number != NONE) {
            at = self.next_index(at);
        }
        self.set(at, number);
        self.append(number);
        Some(number)
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<(u32, T)> {
        let value = self.slots.get_mut(number as usize)?.value.take()?;
        self.unlink(number);
        let ssrc = self.ssrc(number);
        let mut at = self.first_index(ssrc);
        while self.index.get(at).is_some_and(|there| *there != number) {
            at = self.next_index(at);
        }
        self.remove_index(at);
        if let Some(slot) = self.slots.get_mut(number as usize) {
            slot.newer = mem::replace(&mut self.free, number);
        }
        self.len -= 1;
        Some((ssrc, value))
    }

    /// Moves the source to the end of its list, because a packet was received.
    pub(super) fn touch(&mut self, number: u32) {
        let newest = self.list(number).map(|list| list.newest);
        if newest.is_some_and(|newest| newest != number) {
            self.unlink(number);
            self.append(number);
        }
    }

    /// Moves the source to the list of validated sources.
    pub(super) fn mark_valid(&mut self, number: u32) {
        if self.slot(number).is_some_and(|slot| !slot.proven && slot.value.is_some()) {
            self.unlink(number);
            if let Some(slot) = self.slots.get_mut(number as usize) {
                slot.proven = true;
            }
            self.append(number);
        }
    }

    /// The least recently received source of the validated ones or of the others.
    pub(super) fn least_recent(&self, proven: bool) -> Option<u32> {
        let [unproven, the_proven] = self.lists;
        let number = if proven { the_proven } else { unproven }.oldest;
        (number != NONE).then_some(number)
    }

    pub(super) fn ssrc(&self, number: u32) -> u32 {
        self.slot(number).map_or(0, |slot| slot.ssrc)
    }

    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.slot(number)?.value.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.slots.get_mut(number as usize)?.value.as_mut()
    }

    /// Memory per slot, including its share of the index at the lowest load.
    #[cfg(test)]
    pub(super) const fn bytes_each() -> usize {
        size_of::<Slot<T>>() + 4 * size_of::<u32>()
    }

    /// All slot numbers.
    pub(super) fn numbers(&self) -> core::ops::Range<u32> {
        0..u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().filter_map(|slot| Some((slot.ssrc, slot.value.as_ref()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.slots.iter_mut().filter_map(|slot| Some((slot.ssrc, slot.value.as_mut()?)))
    }

    /// All sources, beginning with those in the slots after `number`.
    pub(super) fn iter_mut_after(&mut self, number: u32) -> impl Iterator<Item = (u32, &mut T)> {
        let middle = (number as usize).saturating_add(1).min(self.slots.len());
        let (front, behind) = self.slots.split_at_mut(middle);
        let all = behind.iter_mut().chain(front);
        all.filter_map(|slot| Some((slot.ssrc, slot.value.as_mut()?)))
    }

    fn slot(&self, number: u32) -> Option<&Slot<T>> {
        self.slots.get(number as usize)
    }

    fn list(&mut self, number: u32) -> Option<&mut LruList> {
        let proven = self.slot(number)?.proven;
        self.lists.get_mut(usize::from(proven))
    }

    fn append(&mut self, number: u32) {
        let Some(list) = self.list(number) else { return };
        let before = mem::replace(&mut list.newest, number);
        if before == NONE {
            list.oldest = number;
        }
        if let Some(slot) = self.slots.get_mut(before as usize) {
            slot.newer = number;
        }
        if let Some(slot) = self.slots.get_mut(number as usize) {
            (slot.older, slot.newer) = (before, NONE);
        }
    }

    fn unlink(&mut self, number: u32) {
        let Some(slot) = self.slot(number) else { return };
        let (older, newer) = (slot.older, slot.newer);
        match self.slots.get_mut(older as usize) {
            Some(slot) => slot.newer = newer,
            None => _ = self.list(number).map(|list| list.oldest = newer),
        }
        match self.slots.get_mut(newer as usize) {
            Some(slot) => slot.older = older,
            None => _ = self.list(number).map(|list| list.newest = older),
        }
    }

    /// Removes an index entry and moves up displaced entries behind it.
    fn remove_index(&mut self, mut hole: usize) {
        let mut at = self.next_index(hole);
        while let Some(number) = self.index.get(at).copied().filter(|number| *number != NONE) {
            let home = self.first_index(self.ssrc(number));
            let mask = self.mask();
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.set(hole, number);
                hole = at;
            }
            at = self.next_index(at);
        }
        self.set(hole, NONE);
    }

    fn set(&mut self, at: usize, number: u32) {
        if let Some(place) = self.index.get_mut(at) {
            *place = number;
        }
    }

    const fn mask(&self) -> usize {
        self.index.len() - 1
    }

    const fn next_index(&self, at: usize) -> usize {
        (at + 1) & self.mask()
    }

    /// First index position of an SSRC.
    #[allow(clippy::cast_possible_truncation, reason = "the lower bits are what is meant")]
    const fn first_index(&self, ssrc: u32) -> usize {
        Rng::new(self.key ^ ssrc as u64).next_u64() as usize & self.mask()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compared with a map, and a list ordered by the last packet.
        #[test]
        fn as_a_map_and_a_list(
            capacity in 1_usize..20,
            key: u64,
            ops in proptest::collection::vec((0_u32..30, 0_u8..8), 0..400),
        ) {
            let mut slots = SsrcMap::new(capacity, key);
            let mut map: HashMap<u32, usize> = HashMap::new();
            let (mut lists, mut value) = ([Vec::new(), Vec::new()], 0);
            for (ssrc, op) in ops {
                let found = slots.find(ssrc);
                prop_assert_eq!(found.and_then(|found| slots.get(found)), map.get(&ssrc));
                match (found, op) {
                    (Some(number), 0) => {
                        prop_assert_eq!(slots.remove(number), map.remove(&ssrc).map(|of| (ssrc, of)));
                        prop_assert_eq!(slots.remove(number), None);
                        lists.iter_mut().for_each(|list| list.retain(|other| *other != ssrc));
                    }
                    (Some(number), 1) => {
                        slots.mark_valid(number);
                        if let Some(at) = lists[0].iter().position(|other| *other == ssrc) {
                            lists[0].remove(at);
                            lists[1].push(ssrc);
                        }
                    }
                    (Some(number), _) => {
                        slots.touch(number);
                        for list in &mut lists {
                            if let Some(at) = list.iter().position(|other| *other == ssrc) {
                                list.remove(at);
                                list.push(ssrc);
                            }
                        }
                    }
                    (None, _) => {
                        value += 1;
                        let entered = slots.insert(ssrc, value);
                        prop_assert_eq!(entered.is_some(), map.len() < capacity);
                        if entered.is_some() {
                            map.insert(ssrc, value);
                            lists[0].push(ssrc);
                        }
                    }
                }
                prop_assert_eq!(slots.len(), map.len());
                for (proven, list) in lists.iter().enumerate() {
                    let oldest = slots.least_recent(proven == 1).map(|number| slots.ssrc(number));
                    prop_assert_eq!(oldest, list.first().copied());
                }
                let mut all: Vec<_> = slots.iter().map(|(ssrc, _)| ssrc).collect();
                let mut keys: Vec<_> = map.keys().copied().collect();
                all.sort_unstable();
                keys.sort_unstable();
                prop_assert_eq!(all, keys);
            }
        }
    }
}
