//! The lease of a stream: which of several origins sends it.
//!
//! It is the value of one key in a bucket, written by compare-and-set of the key's revision. The
//! epoch rises with each other holder, so it is also the fencing number in the header of each
//! chunk. There is no time in it: each reader measures with its own clock how long a revision
//! stands.

use aulos_core::Span;

use super::crc::crc32;
use super::{RecordError, put_head, read_head};
use crate::bytes::{Reader, put_blob};

/// Maximum length of a lease in bytes: the name of a node is the largest part.
pub const MAX_LEASE: usize = 1_024;

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what the holder fills in")]
pub struct LeaseRecord {
    /// The epoch of the chunks that the holder sends.
    pub epoch: u32,
    /// A random number of the holder's process: two processes may have the same name by mistake.
    pub process: u64,
    /// The run of the station in that process; a later run follows an earlier one without waiting.
    pub run: u32,
    /// For how long the lease lasts from the moment at which its revision was written, in whole
    /// milliseconds.
    pub ttl: Span,
    /// Whether the holder has ended and given it back.
    pub is_released: bool,
    /// The name of the holder's node, for operators.
    pub node: String,
}

impl LeaseRecord {
    /// Parses a lease.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        if bytes.len() > MAX_LEASE {
            return Err(RecordError::TooLarge);
        }
        let mut reader = Reader::new(bytes);
        read_head(&mut reader, MAGIC)?;
        let checksum = reader.u32().ok_or(RecordError::Truncated)?;
        if crc32(&[reader.rest()]) != checksum {
            return Err(RecordError::Checksum);
        }
        Self::read(&mut reader).ok_or(RecordError::Truncated)?
    }

    /// Appends the encoded lease.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        put_head(out, MAGIC, 0);
        out.extend_from_slice(&[0; 4]);
        let body = out.len();
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.process.to_le_bytes());
        out.extend_from_slice(&self.run.to_le_bytes());
        let ttl = u32::try_from(self.ttl.as_millis().max(0)).unwrap_or(u32::MAX);
        out.extend_from_slice(&ttl.to_le_bytes());
        out.push(self.is_released.into());
        put_blob(out, self.node.as_bytes());
        let checksum = crc32(&[out.get(body..).unwrap_or_default()]);
        if let Some(place) = out.get_mut(start + 8..body) {
            place.copy_from_slice(&checksum.to_le_bytes());
        }
    }

    fn read(reader: &mut Reader<'_>) -> Option<Result<Self, RecordError>> {
        let epoch = reader.u32()?;
        let process = u64::from_le_bytes(reader.array()?);
        let (run, ttl) = (reader.u32()?, reader.u32()?);
        let [released] = reader.array()?;
        let node = core::str::from_utf8(reader.blob()?);
        let (Ok(node), 0..=1, true) = (node, released, reader.rest().is_empty()) else {
            return Some(Err(RecordError::Field));
        };
        Some(Ok(Self {
            epoch,
            process,
            run,
            ttl: Span::from_millis(ttl.into()),
            is_released: released == 1,
            node: node.to_owned(),
        }))
    }
}

const MAGIC: [u8; 4] = *b"AULl";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(lease: &LeaseRecord) -> Vec<u8> {
        let mut bytes = Vec::new();
        lease.write(&mut bytes);
        bytes
    }

    fn lease() -> LeaseRecord {
        LeaseRecord {
            epoch: 7,
            process: 11,
            run: 2,
            ttl: Span::from_secs(2),
            is_released: false,
            node: "studio".to_owned(),
        }
    }

    #[test]
    fn a_lease_with_impossible_fields_is_refused() {
        let patched = |at: usize, value: u8| {
            let mut bytes = encode(&lease());
            bytes[at] = value;
            let checksum = crc32(&[&bytes[12..]]).to_le_bytes();
            bytes[8..12].copy_from_slice(&checksum);
            LeaseRecord::parse(&bytes)
        };
        // Neither held nor released, a node that is no text, and one that is longer than the
        // record.
        assert_eq!(patched(32, 2), Err(RecordError::Field));
        assert_eq!(patched(37, 0xff), Err(RecordError::Field));
        assert_eq!(patched(33, 200), Err(RecordError::Truncated));
        let long = LeaseRecord { node: "n".repeat(MAX_LEASE), ..lease() };
        assert_eq!(LeaseRecord::parse(&encode(&long)), Err(RecordError::TooLarge));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            (epoch, process, run) in (any::<u32>(), any::<u64>(), any::<u32>()),
            (ttl, is_released, node) in (any::<u32>(), any::<bool>(), ".{0,40}"),
        ) {
            let ttl = Span::from_millis(ttl.into());
            let lease = LeaseRecord { epoch, process, run, ttl, is_released, node };
            prop_assert_eq!(LeaseRecord::parse(&encode(&lease)), Ok(lease));
        }

        #[test]
        fn a_changed_or_shortened_lease_is_refused(
            at in any::<prop::sample::Index>(),
            bit in 0_u8..8,
        ) {
            let mut bytes = encode(&lease());
            let at = at.index(bytes.len());
            prop_assert!(LeaseRecord::parse(&bytes[..at]).is_err());
            bytes[at] ^= 1 << bit;
            // Flags and the two bytes behind them are not covered and have no meaning.
            prop_assert!(LeaseRecord::parse(&bytes).is_err() || (5..8).contains(&at));
        }
    }
}
