//! The 44-byte header in front of a stream.

use core::fmt;

use aulos_core::{SampleFormat, SampleSpec};

/// The header of a WAVE file or stream of `spec`; the samples follow.
///
/// A 44-byte header cannot state the loudspeakers of more than two channels. All readers known to
/// us assume the order of WAVE, which is also ours.
///
/// # Errors
/// [`UnsupportedWavFormat`] for [`SampleFormat::S8`] and [`SampleFormat::S24In32Le`].
pub fn header(
    spec: SampleSpec,
    length: DataLength,
) -> Result<[u8; HEADER_LEN], UnsupportedWavFormat> {
    let format_tag = format_tag(spec.format)?;
    let (riff, data) = match length {
        DataLength::Bytes(bytes) => (bytes.saturating_add(RIFF_SIZE_WITHOUT_DATA), bytes),
        DataLength::Endless => (u32::MAX, u32::MAX),
    };
    Ok(RawHeader::new(format_tag, spec, riff, data).emit())
}

/// The format tag of a sample format.
pub(super) const fn format_tag(format: SampleFormat) -> Result<u16, UnsupportedWavFormat> {
    match format {
        SampleFormat::S8 | SampleFormat::S24In32Le => Err(UnsupportedWavFormat(format)),
        SampleFormat::F32 => Ok(TAG_FLOAT),
        _ => Ok(TAG_PCM),
    }
}

/// Length of the samples behind a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a length is known or not")]
pub enum DataLength {
    /// So many bytes.
    Bytes(u32),
    /// Unknown. Both sizes are 4,294,967,295, which players take for "read until the end".
    Endless,
}

/// A sample format that WAVE cannot store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsupportedWavFormat(pub SampleFormat);

impl fmt::Display for UnsupportedWavFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WAVE cannot store the sample format {}", self.0)
    }
}

impl core::error::Error for UnsupportedWavFormat {}

/// The fields of the 44 bytes. Snapcast's PCM header fills them differently.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawHeader {
    pub(crate) format_tag: u16,
    pub(crate) channels: u16,
    pub(crate) rate: u32,
    pub(crate) bits: u16,
    pub(crate) riff_size: u32,
    pub(crate) data_size: u32,
}

impl RawHeader {
    pub(crate) fn new(format_tag: u16, spec: SampleSpec, riff_size: u32, data_size: u32) -> Self {
        Self {
            format_tag,
            channels: u16::try_from(spec.layout.channels()).unwrap_or(u16::MAX),
            rate: spec.rate.hz(),
            bits: spec.format.bits(),
            riff_size,
            data_size,
        }
    }

    pub(crate) fn emit(&self) -> [u8; HEADER_LEN] {
        let block_align = self.channels * (self.bits / 8);
        let bytes_per_second = self.rate.saturating_mul(u32::from(block_align));
        let mut bytes = [0; HEADER_LEN];
        let mut rest: &mut [u8] = &mut bytes;
        let mut put = |field: &[u8]| {
            if let Some(field_bytes) = rest.split_off_mut(..field.len()) {
                field_bytes.copy_from_slice(field);
            }
        };
        put(b"RIFF");
        put(&self.riff_size.to_le_bytes());
        put(b"WAVEfmt ");
        put(&16_u32.to_le_bytes());
        put(&self.format_tag.to_le_bytes());
        put(&self.channels.to_le_bytes());
        put(&self.rate.to_le_bytes());
        put(&bytes_per_second.to_le_bytes());
        put(&block_align.to_le_bytes());
        put(&self.bits.to_le_bytes());
        put(b"data");
        put(&self.data_size.to_le_bytes());
        bytes
    }
}

pub(crate) const TAG_PCM: u16 = 1;
pub(crate) const TAG_FLOAT: u16 = 3;
/// `WAVEFORMATEXTENSIBLE`: the tag is in the GUID, behind valid bits and channel mask.
pub(super) const TAG_EXTENSIBLE: u16 = 0xfffe;
/// The rest of the GUID behind the tag.
pub(super) const SUB_FORMAT_TAIL: [u8; 14] =
    [0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71];

/// What the RIFF size counts beside the samples: everything behind its own field.
#[allow(clippy::cast_possible_truncation, reason = "44")]
pub(crate) const RIFF_SIZE_WITHOUT_DATA: u32 = HEADER_LEN as u32 - 8;

/// Bytes of the header that [`header`] returns.
pub const HEADER_LEN: usize = 44;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_stream_has_the_greatest_value_in_both_sizes() {
        let bytes = header(SampleSpec::DEFAULT, DataLength::Endless).unwrap();
        assert_eq!(bytes[4..8], [0xff; 4]);
        assert_eq!(bytes[40..], [0xff; 4]);
    }

    #[test]
    fn fields_are_at_their_usual_offsets() {
        let bytes = header("96000:s24:2".parse().unwrap(), DataLength::Bytes(6)).unwrap();
        assert_eq!(&bytes[..16], b"RIFF\x2a\0\0\0WAVEfmt ");
        assert_eq!(bytes[16..28], [16, 0, 0, 0, 1, 0, 2, 0, 0x00, 0x77, 0x01, 0]);
        assert_eq!(bytes[28..36], [0x00, 0xca, 0x08, 0, 6, 0, 24, 0]);
        assert_eq!(&bytes[36..], b"data\x06\0\0\0");
    }

    #[test]
    fn formats_that_wave_cannot_store_are_rejected() {
        let spec = "48000:24:2".parse().unwrap();
        assert_eq!(
            header(spec, DataLength::Endless),
            Err(UnsupportedWavFormat(SampleFormat::S24In32Le))
        );
    }
}
