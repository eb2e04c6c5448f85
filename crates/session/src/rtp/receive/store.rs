//! Payloads of queued packets in one allocation.
//!
//! The jitter buffer holds handles. The bytes lie here, in slots as long as the longest payload so
//! far. The payloads of a telephony stream have a constant length, so its memory is allocated once
//! and has the minimal size.

/// A stored payload. It has to be released.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct PayloadHandle {
    slot: u16,
    length: u16,
}

/// Slots for payloads.
#[derive(Debug)]
pub(crate) struct PayloadStore {
    bytes: Vec<u8>,
    /// Bytes per slot.
    slot_bytes: usize,
    free: Vec<u16>,
}

impl PayloadStore {
    /// A store with `places` slots for payloads of a length that is not known yet.
    pub(crate) fn new(places: usize) -> Self {
        let places = u16::try_from(places).unwrap_or(u16::MAX);
        Self { bytes: Vec::new(), slot_bytes: 0, free: (0..places).rev().collect() }
    }

    /// Stores a copy of `payload`; `None` when every slot is in use.
    ///
    /// # Real-time
    /// Allocates only for a payload that is longer than all before it.
    pub(crate) fn put(&mut self, payload: &[u8]) -> Option<PayloadHandle> {
        let length = u16::try_from(payload.len()).ok()?;
        let place = self.free.pop()?;
        if payload.len() > self.slot_bytes {
            self.widen_slots(payload.len());
        }
        let at = usize::from(place) * self.slot_bytes;
        self.bytes[at..at + payload.len()].copy_from_slice(payload);
        Some(PayloadHandle { slot: place, length })
    }

    pub(crate) fn get(&self, handle: &PayloadHandle) -> &[u8] {
        let at = usize::from(handle.slot) * self.slot_bytes;
        &self.bytes[at..at + usize::from(handle.length)]
    }

    pub(crate) fn release(&mut self, handle: PayloadHandle) {
        self.free.push(handle.slot);
    }

    /// Widens every slot to `length` and keeps the contents.
    fn widen_slots(&mut self, length: usize) {
        let places = self.free.capacity();
        let size = length.next_multiple_of(SLOT_GRANULARITY);
        let mut bytes = vec![0; places * size];
        if self.slot_bytes > 0 {
            for (old, new) in self.bytes.chunks(self.slot_bytes).zip(bytes.chunks_mut(size)) {
                new[..old.len()].copy_from_slice(old);
            }
        }
        (self.bytes, self.slot_bytes) = (bytes, size);
    }
}

/// 160 bytes of telephony are a multiple of it.
const SLOT_GRANULARITY: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_of_any_length_are_stored_and_slots_are_reused() {
        let mut store = PayloadStore::new(3);
        let one = store.put(b"one").unwrap();
        let long: Vec<u8> = (0..200).collect();
        let two = store.put(&long).unwrap();
        let three = store.put(b"").unwrap();
        assert_eq!(store.put(b"four"), None);
        assert_eq!((store.get(&one), store.get(&two)), (&b"one"[..], &long[..]));
        assert_eq!(store.get(&three), b"");
        store.release(one);
        let four = store.put(b"four").unwrap();
        assert_eq!((store.get(&four), store.get(&two)), (&b"four"[..], &long[..]));
        assert_eq!(store.put(&vec![0; 70_000]), None);
    }
}
