//! RED (RFC 2198): a payload that repeats the payloads of earlier packets, so that the next packet
//! recovers a lost one.
//!
//! ```text
//!  4 bytes per redundant block:  1 | type 7 | timestamp offset 14 | length 10
//!  1 byte for the primary block: 0 | type 7          then all blocks, the primary one last
//! ```

use core::fmt;

/// Maximum number of blocks in a payload. RFC 2198 has no limit, but more are not useful.
pub const MAX_BLOCKS: usize = 8;
/// Maximum timestamp offset of a block, in units of the clock: 14 bits.
pub const MAX_OFFSET: u16 = 0x3fff;
/// Maximum length of a redundant block in bytes: 10 bits.
pub const MAX_BLOCK: usize = 0x3ff;

/// A block of a payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the wire has these three and no others")]
pub struct RedBlock<'a> {
    /// Payload type of the data.
    pub payload_type: u8,
    /// How much earlier its timestamp is than the packet's; 0 for the primary block.
    pub timestamp_offset: u16,
    /// Payload of the original packet; may be empty.
    pub data: &'a [u8],
}

/// Reason why a payload is not valid RED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedError {
    /// The headers exceed the payload.
    Headers,
    /// The blocks exceed the payload.
    Blocks,
    /// More than [`MAX_BLOCKS`].
    TooMany,
}

impl fmt::Display for RedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Headers => "the RED headers exceed the payload",
            Self::Blocks => "the RED blocks exceed the payload",
            Self::TooMany => "more than eight RED blocks",
        })
    }
}

impl core::error::Error for RedError {}

/// Blocks of a payload, the oldest first and the primary block last.
#[derive(Clone, Copy, Debug)]
pub struct RedBlocks<'a> {
    blocks: [RedBlock<'a>; MAX_BLOCKS],
    len: usize,
}

impl<'a> RedBlocks<'a> {
    /// Parses a payload and checks every length in it.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    ///
    /// # Errors
    /// The first violation.
    pub fn parse(payload: &'a [u8]) -> Result<Self, RedError> {
        let mut heads = payload;
        let mut lengths = [0; MAX_BLOCKS];
        let mut blocks = [RedBlock::default(); MAX_BLOCKS];
        let mut len = 0;
        loop {
            let first = *heads.first().ok_or(RedError::Headers)?;
            let slot = blocks.get_mut(len).zip(lengths.get_mut(len));
            let (block, length) = slot.ok_or(RedError::TooMany)?;
            block.payload_type = first & 0x7f;
            len += 1;
            if first & FOLLOW_BIT == 0 {
                heads = heads.get(1..).unwrap_or_default();
                break;
            }
            let ([_, a, b, c], rest) = heads.split_first_chunk::<4>().ok_or(RedError::Headers)?;
            block.timestamp_offset = u16::from_be_bytes([*a, *b]) >> 2;
            *length = usize::from(u16::from_be_bytes([b & 3, *c]));
            heads = rest;
        }
        let mut data = heads;
        let repeated = blocks.iter_mut().zip(lengths).take(len - 1);
        for (block, length) in repeated {
            (block.data, data) = data.split_at_checked(length).ok_or(RedError::Blocks)?;
        }
        if let Some(own) = blocks.get_mut(len - 1) {
            own.data = data;
        }
        Ok(Self { blocks, len })
    }

    /// All blocks in the order of the payload, the oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = RedBlock<'a>> + use<'a, '_> {
        self.blocks.iter().copied().take(self.len)
    }

    /// The primary block.
    #[must_use]
    pub fn primary(&self) -> RedBlock<'a> {
        self.iter().last().unwrap_or_default()
    }
}

/// Writes `repeated`, the oldest first, and the packet's own payload to the front of `out` and
/// returns the length in bytes. `None` when `out` is too short, when a block exceeds [`MAX_BLOCK`]
/// or [`MAX_OFFSET`], or when there are too many.
///
/// # Real-time
/// Neither allocates nor waits.
///
/// # Examples
/// ```
/// use aulos_proto::rtp::red::{RedBlock, RedBlocks, write};
///
/// let before = RedBlock { payload_type: 0, timestamp_offset: 160, data: &[1; 160] };
/// let mut out = [0; 400];
/// let length = write(&mut out, &[before], 0, &[2; 160]).unwrap_or(0);
/// let blocks = RedBlocks::parse(&out[..length])?;
/// assert_eq!(blocks.iter().next(), Some(before));
/// assert_eq!(blocks.primary().data, [2; 160]);
/// # Ok::<(), aulos_proto::rtp::red::RedError>(())
/// ```
#[must_use = "nothing is written to a buffer that is too short"]
pub fn write(
    out: &mut [u8],
    repeated: &[RedBlock<'_>],
    payload_type: u8,
    payload: &[u8],
) -> Option<usize> {
    let sum = repeated.iter().map(|block| 4 + block.data.len()).sum::<usize>();
    let total = sum + 1 + payload.len();
    let fits = |block: &RedBlock<'_>| {
        block.timestamp_offset <= MAX_OFFSET && block.data.len() <= MAX_BLOCK
    };
    if repeated.len() >= MAX_BLOCKS || !repeated.iter().all(fits) {
        return None;
    }
    let (mut heads, data) = out.get_mut(..total)?.split_at_mut_checked(4 * repeated.len() + 1)?;
    let mut data = data;
    for block in repeated {
        let length = u16::try_from(block.data.len()).ok()?;
        let [a, b] = (block.timestamp_offset << 2 | length >> 8).to_be_bytes();
        let [_, c] = length.to_be_bytes();
        let (head, rest) = heads.split_first_chunk_mut()?;
        *head = [FOLLOW_BIT | block.payload_type & 0x7f, a, b, c];
        heads = rest;
        let (place, rest) = data.split_at_mut_checked(block.data.len())?;
        place.copy_from_slice(block.data);
        data = rest;
    }
    *heads.first_mut()? = payload_type & 0x7f;
    data.copy_from_slice(payload);
    Some(total)
}

const FOLLOW_BIT: u8 = 0x80;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A shortened example of RFC 2198, 5: a DVI4 packet with LPC of the previous packet, whose
    /// timestamp is 160 earlier.
    #[test]
    fn a_payload_by_hand() {
        let payload = [0x80 | 7, 0x02, 0x80, 0x03, 5, 0xa1, 0xa2, 0xa3, 0xb1];
        let blocks = RedBlocks::parse(&payload).unwrap();
        let before = RedBlock { payload_type: 7, timestamp_offset: 160, data: &[0xa1, 0xa2, 0xa3] };
        let own = RedBlock { payload_type: 5, timestamp_offset: 0, data: &[0xb1] };
        assert_eq!(blocks.iter().collect::<Vec<_>>(), [before, own]);
        let mut out = [0; 9];
        assert_eq!(write(&mut out, &[before], 5, &[0xb1]), Some(9));
        assert_eq!(out, payload);
        assert_eq!(write(&mut out[..8], &[before], 5, &[0xb1]), None);
    }

    #[test]
    fn lies() {
        assert_eq!(RedBlocks::parse(&[]).unwrap_err(), RedError::Headers);
        assert_eq!(RedBlocks::parse(&[0x80, 0, 0]).unwrap_err(), RedError::Headers);
        assert_eq!(RedBlocks::parse(&[0x80, 0, 0, 0]).unwrap_err(), RedError::Headers);
        assert_eq!(RedBlocks::parse(&[0x80, 0, 0, 1, 0]).unwrap_err(), RedError::Blocks);
        assert_eq!(RedBlocks::parse(&[0x80; 99]).unwrap_err(), RedError::TooMany);
        assert!(RedBlocks::parse(&[0]).unwrap().primary().data.is_empty());
        let far = RedBlock { timestamp_offset: MAX_OFFSET + 1, ..RedBlock::default() };
        assert_eq!(write(&mut [0; 99], &[far], 0, &[]), None);
        assert_eq!(write(&mut [0; 99], &[RedBlock::default(); MAX_BLOCKS], 0, &[]), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            repeated in proptest::collection::vec(
                (0_u8..128, 0..=MAX_OFFSET, proptest::collection::vec(any::<u8>(), 0..=MAX_BLOCK)),
                0..MAX_BLOCKS,
            ),
            own in proptest::collection::vec(any::<u8>(), 0..2_000),
        ) {
            let blocks: Vec<_> = repeated
                .iter()
                .map(|(payload_type, offset, data)| RedBlock { payload_type: *payload_type, timestamp_offset: *offset, data })
                .collect();
            let mut out = vec![0; 12_000];
            let length = write(&mut out, &blocks, 96, &own).unwrap();
            let read = RedBlocks::parse(&out[..length]).unwrap();
            prop_assert_eq!(read.primary().data, &own[..]);
            prop_assert_eq!(read.iter().take(blocks.len()).collect::<Vec<_>>(), blocks);
        }
    }
}
