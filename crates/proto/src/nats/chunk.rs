//! One chunk: a header of 52 bytes and the encoded frames.

use core::ops::Range;

use aulos_core::{Frames, Instant, MediaTime};

use super::crc::crc32;
use super::{RecordError, put_head, read_head};
use crate::bytes::Reader;

/// Length of the header in bytes.
pub const CHUNK_HEADER_LEN: usize = field::CHECKSUM.end;

/// Maximum length of the encoded frames: the longest chunk of a station, 60 ms of eight channels of
/// 192 kHz in 32 bits, with room for the overhead of a codec.
pub const MAX_CHUNK_PAYLOAD: usize = 400_000;

/// The fields of a chunk's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what the sender fills in")]
pub struct ChunkHeader {
    /// The [`origin_tag`] of the node that sends it.
    pub origin: u16,
    /// The epoch of the stream: it rises when the stream begins anew or another origin takes over.
    pub epoch: u32,
    /// The number of the chunk in its epoch; the next one has the next number.
    pub sequence: u64,
    /// The media time of the first frame.
    pub first_frame: MediaTime,
    /// The time of the first frame on the origin's monotonic clock.
    pub recorded: Instant,
    /// The same on the origin's wall clock, in nanoseconds since 1970. It is for logs: wall clocks
    /// are set, and nothing is played by them.
    pub wall_nanos: i64,
    /// How many frames the payload decodes to.
    pub frames: Frames,
}

/// A chunk; a view of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what the sender fills in")]
pub struct ChunkMessage<'a> {
    /// Its header.
    pub header: ChunkHeader,
    /// Encoded frames.
    pub payload: &'a [u8],
}

impl<'a> ChunkMessage<'a> {
    /// Parses a message; it has no other bytes behind the payload.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RecordError> {
        if bytes.len() > CHUNK_HEADER_LEN + MAX_CHUNK_PAYLOAD {
            return Err(RecordError::TooLarge);
        }
        let header = ChunkHeader::parse(bytes)?;
        let (head, payload) =
            bytes.split_at_checked(CHUNK_HEADER_LEN).ok_or(RecordError::Truncated)?;
        let (covered, checksum) = head.split_at(field::CHECKSUM.start);
        if crc32(&[covered, payload]).to_le_bytes() != checksum {
            return Err(RecordError::Checksum);
        }
        if header.frames == Frames::ZERO || payload.is_empty() {
            return Err(RecordError::Field);
        }
        Ok(Self { header, payload })
    }

    /// Appends the encoded message.
    pub fn write(&self, out: &mut Vec<u8>) {
        let ChunkHeader { origin, epoch, sequence, first_frame, recorded, wall_nanos, frames } =
            self.header;
        let start = out.len();
        put_head(out, MAGIC, origin);
        out.extend_from_slice(&epoch.to_le_bytes());
        out.extend_from_slice(&sequence.to_le_bytes());
        out.extend_from_slice(&first_frame.0.to_le_bytes());
        out.extend_from_slice(&recorded.as_nanos().to_le_bytes());
        out.extend_from_slice(&wall_nanos.to_le_bytes());
        out.extend_from_slice(&u32::try_from(frames.0).unwrap_or(u32::MAX).to_le_bytes());
        let checksum = crc32(&[out.get(start..).unwrap_or_default(), self.payload]);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(self.payload);
    }
}

impl ChunkHeader {
    fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let origin = read_head(&mut Reader::new(bytes), MAGIC)?;
        let field = |range: Range<usize>| bytes.get(range).ok_or(RecordError::Truncated);
        let long = |range| Ok(u64::from_le_bytes(fixed(field(range)?)?));
        let short = |range| Ok(u32::from_le_bytes(fixed(field(range)?)?));
        let recorded = long(field::RECORDED)?;
        if i64::try_from(recorded).is_err() {
            return Err(RecordError::Field);
        }
        Ok(Self {
            origin,
            epoch: short(field::EPOCH)?,
            sequence: long(field::SEQUENCE)?,
            first_frame: MediaTime(long(field::FIRST_FRAME)?),
            recorded: Instant::from_nanos(recorded),
            wall_nanos: i64::from_le_bytes(fixed(field(field::WALL)?)?),
            frames: Frames(short(field::FRAMES)?.into()),
        })
    }
}

/// A number for the name of a node: the low half of its CRC-32. Two origins that begin in the same
/// second have the same epoch, and their chunks must not be mixed.
#[must_use]
pub fn origin_tag(node: &str) -> u16 {
    let [a, b, ..] = crc32(&[node.as_bytes()]).to_le_bytes();
    u16::from_le_bytes([a, b])
}

fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N], RecordError> {
    bytes.try_into().map_err(|_| RecordError::Truncated)
}

const MAGIC: [u8; 4] = *b"AULc";

/// Offsets behind magic number (4 bytes), version, flags and the origin (2 bytes).
mod field {
    use core::ops::Range;

    pub(super) const EPOCH: Range<usize> = 8..12;
    pub(super) const SEQUENCE: Range<usize> = 12..20;
    pub(super) const FIRST_FRAME: Range<usize> = 20..28;
    pub(super) const RECORDED: Range<usize> = 28..36;
    pub(super) const WALL: Range<usize> = 36..44;
    pub(super) const FRAMES: Range<usize> = 44..48;
    /// CRC-32 of the bytes before it and of the payload.
    pub(super) const CHECKSUM: Range<usize> = 48..52;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(payload: &[u8]) -> ChunkMessage<'_> {
        let header = ChunkHeader {
            origin: 3,
            epoch: 7,
            sequence: 1_000,
            first_frame: MediaTime(960_000),
            recorded: Instant::from_nanos(20_000_000_000),
            wall_nanos: -5,
            frames: Frames(960),
        };
        ChunkMessage { header, payload }
    }

    fn encode(message: &ChunkMessage<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        bytes
    }

    #[test]
    fn a_chunk_without_sound_is_refused() {
        assert_eq!(ChunkMessage::parse(&encode(&message(&[]))), Err(RecordError::Field));
        let mut no_frames = message(&[1]);
        no_frames.header.frames = Frames::ZERO;
        assert_eq!(ChunkMessage::parse(&encode(&no_frames)), Err(RecordError::Field));
    }

    #[test]
    fn a_foreign_an_old_and_an_oversized_message_have_their_cause() {
        let bytes = encode(&message(&[1; 100]));
        let with = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            ChunkMessage::parse(&bytes).map(|message| message.header)
        };
        assert_eq!(with(0, b'X'), Err(RecordError::Magic));
        assert_eq!(with(4, 2), Err(RecordError::Version(2)));
        assert_eq!(with(5, 1), Err(RecordError::Checksum), "flags are covered by the checksum");
        assert_eq!(with(35, 0x80), Err(RecordError::Field), "a negative time");
        assert_eq!(with(151, 0), Err(RecordError::Checksum));
        let longest = encode(&message(&vec![0; MAX_CHUNK_PAYLOAD]));
        assert!(ChunkMessage::parse(&longest).is_ok());
        let longer = encode(&message(&vec![0; MAX_CHUNK_PAYLOAD + 1]));
        assert_eq!(ChunkMessage::parse(&longer), Err(RecordError::TooLarge));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            (origin, epoch, sequence) in (any::<u16>(), any::<u32>(), any::<u64>()),
            (first, recorded) in (any::<u64>(), 0..=i64::MAX as u64),
            wall_nanos in any::<i64>(),
            frames in 1..=u32::MAX,
            payload in proptest::collection::vec(any::<u8>(), 1..200),
        ) {
            let header = ChunkHeader {
                origin,
                epoch,
                sequence,
                first_frame: MediaTime(first),
                recorded: Instant::from_nanos(recorded),
                wall_nanos,
                frames: Frames(frames.into()),
            };
            let message = ChunkMessage { header, payload: &payload };
            let bytes = encode(&message);
            prop_assert_eq!(ChunkMessage::parse(&bytes), Ok(message));
        }

        #[test]
        fn a_changed_or_shortened_message_is_refused(
            payload in proptest::collection::vec(any::<u8>(), 1..200),
            at in any::<prop::sample::Index>(),
            bit in 0_u8..8,
        ) {
            let mut bytes = encode(&message(&payload));
            let at = at.index(bytes.len());
            prop_assert!(ChunkMessage::parse(&bytes[..at]).is_err());
            bytes[at] ^= 1 << bit;
            prop_assert!(ChunkMessage::parse(&bytes).is_err());
        }
    }
}
