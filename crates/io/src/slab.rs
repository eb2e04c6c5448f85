//! A slab for sessions and streams. A token is never reused.

/// Values addressed by tokens that are never reused.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// Inserts the value that `make` returns for its token, and returns the token.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(u64) -> T) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let slot = &mut self.slots[index as usize];
        let token = (u64::from(slot.0) << 32) | u64::from(index);
        slot.1 = Some(make(token));
        token
    }

    pub(crate) fn get(&self, token: u64) -> Option<&T> {
        let (generation, index) = split_token(token);
        let slot = self.slots.get(index)?;
        if slot.0 == generation { slot.1.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, token: u64) -> Option<&mut T> {
        let (generation, index) = split_token(token);
        let slot = self.slots.get_mut(index)?;
        if slot.0 == generation { slot.1.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, token: u64) -> Option<T> {
        let (generation, index) = split_token(token);
        let slot = self.slots.get_mut(index)?;
        if slot.0 != generation {
            return None;
        }
        let taken = slot.1.take()?;
        slot.0 = slot.0.wrapping_add(1) & MAX_GENERATION;
        self.free.push(u32::try_from(index).unwrap_or(u32::MAX));
        Some(taken)
    }

    /// The tokens of all values.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = u64> {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.1.is_some())
            .map(|(index, (generation, _))| (u64::from(*generation) << 32) | index as u64)
    }
}

fn split_token(token: u64) -> (u32, usize) {
    let generation = u32::try_from(token >> 32).unwrap_or(0);
    let index = usize::try_from(token & 0xFFFF_FFFF).unwrap_or(usize::MAX);
    (generation, index)
}

/// 24 bits, the width of the generation in `SessionId`.
const MAX_GENERATION: u32 = 0xFF_FFFF;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_a_removed_entry_finds_nothing() {
        let mut slab = Slab::new();
        let first = slab.insert_with(|_| "first");
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert_with(|_| "second");
        assert_ne!(first, second);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get_mut(second), Some(&mut "second"));
        assert_eq!(slab.tokens().collect::<Vec<_>>(), [second]);
    }
}
