//! A request for chunks that were lost on the way.
//!
//! Core NATS repeats nothing: what it would have carried while a server of its cluster fails is
//! missing. The origin keeps the chunks that can still be played, and sends them again to whoever
//! asks.

use super::{RecordError, put_head, read_head};
use crate::bytes::Reader;

/// Which chunks are missing. The origin answers with each of them that it has, as it was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what the sender fills in")]
pub struct RepairRequest {
    /// The epoch of the chunks.
    pub epoch: u32,
    /// The number of the first one.
    pub first: u64,
    /// How many.
    pub count: u16,
}

impl RepairRequest {
    /// Parses a request.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::new(bytes);
        let count = read_head(&mut reader, MAGIC)?;
        let epoch = u32::from_le_bytes(reader.array().ok_or(RecordError::Truncated)?);
        let first = u64::from_le_bytes(reader.array().ok_or(RecordError::Truncated)?);
        let request = Self { epoch, first, count };
        if reader.rest().is_empty() { Ok(request) } else { Err(RecordError::TooLarge) }
    }

    /// Appends the encoded request.
    pub fn write(&self, out: &mut Vec<u8>) {
        put_head(out, MAGIC, self.count);
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.first.to_le_bytes());
    }

    /// Whether a chunk is one of them.
    #[must_use]
    pub const fn contains(&self, epoch: u32, sequence: u64) -> bool {
        epoch == self.epoch && sequence >= self.first && sequence - self.first < self.count as u64
    }
}

const MAGIC: [u8; 4] = *b"AUn?";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(epoch: u32, first: u64, count: u16, cut in 0_usize..20) {
            let request = RepairRequest { epoch, first, count };
            let mut bytes = Vec::new();
            request.write(&mut bytes);
            prop_assert_eq!(RepairRequest::parse(&bytes), Ok(request));
            prop_assert!(RepairRequest::parse(&bytes[..cut.min(bytes.len() - 1)]).is_err());
            bytes.push(0);
            prop_assert!(RepairRequest::parse(&bytes).is_err());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            RepairRequest::parse(&bytes).ok();
        }
    }

    #[test]
    fn it_contains_the_chunks_of_its_epoch() {
        let request = RepairRequest { epoch: 4, first: u64::MAX - 1, count: 2 };
        assert!(request.contains(4, u64::MAX) && !request.contains(5, u64::MAX));
        assert!(!request.contains(4, u64::MAX - 2) && !request.contains(4, 0));
    }
}
