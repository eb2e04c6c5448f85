//! The record of a stream: what an edge must know before it can play a chunk.

use aulos_core::{Frames, SampleSpec, Span};

use super::crc::crc32;
use super::{RecordError, put_flagged_head, read_flagged_head};
use crate::bytes::{Reader, put_blob};

/// Maximum length of a record in bytes; headers of codecs have some hundred.
pub const MAX_RECORD: usize = 16 * 1024;

/// The record of a stream; a view of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what the sender fills in")]
pub struct StreamRecord<'a> {
    /// The epoch of the chunks that it describes.
    pub epoch: u32,
    /// Whether the origin holds the lease of the stream: then no lower epoch is ever sent again.
    pub is_leased: bool,
    /// From the time of a chunk to its playout, in whole milliseconds.
    pub buffer: Span,
    /// Frames per chunk.
    pub chunk: Frames,
    /// The format that the chunks decode to.
    pub spec: SampleSpec,
    /// The node whose clock the times of the chunks are of.
    pub node: &'a str,
    /// The name of the codec.
    pub codec: &'a str,
    /// The header for its decoder, as in Snapcast's protocol.
    pub codec_header: &'a [u8],
}

impl<'a> StreamRecord<'a> {
    /// Parses a record.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RecordError> {
        if bytes.len() > MAX_RECORD {
            return Err(RecordError::TooLarge);
        }
        let mut reader = Reader::new(bytes);
        let (flags, _) = read_flagged_head(&mut reader, MAGIC)?;
        let checksum = reader.u32().ok_or(RecordError::Truncated)?;
        if crc32(&[reader.rest()]) != checksum {
            return Err(RecordError::Checksum);
        }
        Self::read(&mut reader, flags).ok_or(RecordError::Truncated)?
    }

    /// Appends the encoded record. The buffer is rounded down to milliseconds.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        put_flagged_head(out, MAGIC, if self.is_leased { LEASED } else { 0 }, 0);
        out.extend_from_slice(&[0; 4]);
        let body = out.len();
        out.extend_from_slice(&self.epoch.to_le_bytes());
        let buffer = u32::try_from(self.buffer.as_millis().max(0)).unwrap_or(u32::MAX);
        out.extend_from_slice(&buffer.to_le_bytes());
        out.extend_from_slice(&u32::try_from(self.chunk.0).unwrap_or(u32::MAX).to_le_bytes());
        put_blob(out, self.spec.to_string().as_bytes());
        put_blob(out, self.node.as_bytes());
        put_blob(out, self.codec.as_bytes());
        put_blob(out, self.codec_header);
        let checksum = crc32(&[out.get(body..).unwrap_or_default()]);
        if let Some(place) = out.get_mut(start + 8..body) {
            place.copy_from_slice(&checksum.to_le_bytes());
        }
    }

    fn read(reader: &mut Reader<'a>, flags: u8) -> Option<Result<Self, RecordError>> {
        let (epoch, buffer, chunk) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let [spec, node, codec] = [reader.blob()?, reader.blob()?, reader.blob()?];
        let codec_header = reader.blob()?;
        let text = |bytes| core::str::from_utf8(bytes).map_err(|_| RecordError::Field);
        let fields = || {
            let spec = text(spec)?.parse().map_err(|_| RecordError::Field)?;
            let (node, codec) = (text(node)?, text(codec)?);
            if node.is_empty() || chunk == 0 || !reader.rest().is_empty() {
                return Err(RecordError::Field);
            }
            let buffer = Span::from_millis(buffer.into());
            let chunk = Frames(chunk.into());
            let is_leased = flags & LEASED != 0;
            Ok(Self { epoch, is_leased, buffer, chunk, spec, node, codec, codec_header })
        };
        Some(fields())
    }
}

const MAGIC: [u8; 4] = *b"AULs";

/// Flag: the origin holds the lease. Programs that do not know it see an origin without one.
const LEASED: u8 = 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(record: &StreamRecord<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        bytes
    }

    const RECORD: StreamRecord<'_> = StreamRecord {
        epoch: 7,
        is_leased: true,
        buffer: Span::from_secs(1),
        chunk: Frames(960),
        spec: SampleSpec::DEFAULT,
        node: "studio",
        codec: "flac",
        codec_header: b"fLaC",
    };

    #[test]
    fn a_record_with_impossible_fields_is_refused() {
        for record in
            [StreamRecord { node: "", ..RECORD }, StreamRecord { chunk: Frames::ZERO, ..RECORD }]
        {
            assert_eq!(StreamRecord::parse(&encode(&record)), Err(RecordError::Field));
        }
        let large = vec![0; MAX_RECORD];
        let record = StreamRecord { codec_header: &large, ..RECORD };
        assert_eq!(StreamRecord::parse(&encode(&record)), Err(RecordError::TooLarge));
    }

    #[test]
    fn lengths_beyond_the_end_and_bytes_behind_it_are_refused() {
        let mut bytes = encode(&RECORD);
        bytes.push(0);
        let checksum = crc32(&[&bytes[12..]]).to_le_bytes();
        bytes[8..12].copy_from_slice(&checksum);
        assert_eq!(StreamRecord::parse(&bytes), Err(RecordError::Field));
        bytes[24..28].copy_from_slice(&u32::MAX.to_le_bytes());
        let checksum = crc32(&[&bytes[12..]]).to_le_bytes();
        bytes[8..12].copy_from_slice(&checksum);
        assert_eq!(StreamRecord::parse(&bytes), Err(RecordError::Truncated));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            (epoch, buffer, chunk) in (any::<u32>(), any::<u32>(), 1..=u32::MAX),
            is_leased in any::<bool>(),
            (node, codec) in (".{1,40}", ".{0,10}"),
            codec_header in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let record = StreamRecord {
                epoch,
                is_leased,
                buffer: Span::from_millis(buffer.into()),
                chunk: Frames(chunk.into()),
                spec: SampleSpec::DEFAULT,
                node: &node,
                codec: &codec,
                codec_header: &codec_header,
            };
            let bytes = encode(&record);
            prop_assert_eq!(StreamRecord::parse(&bytes), Ok(record));
        }

        #[test]
        fn a_changed_or_shortened_record_is_refused(
            at in any::<prop::sample::Index>(),
            bit in 0_u8..8,
        ) {
            let mut bytes = encode(&RECORD);
            let at = at.index(bytes.len());
            prop_assert!(StreamRecord::parse(&bytes[..at]).is_err());
            bytes[at] ^= 1 << bit;
            // Flags and the two bytes behind them are not covered.
            prop_assert!(StreamRecord::parse(&bytes).is_err() || (5..8).contains(&at));
        }
    }
}
