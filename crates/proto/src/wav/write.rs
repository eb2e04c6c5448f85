//! The 44-byte header.

use core::fmt;

use aulos_core::{SampleFormat, SampleSpec};

use super::HEADER_LEN;

/// The header of a WAVE file or stream of `spec`, after which the samples follow as they are.
///
/// For more than two channels a header of 44 bytes leaves the speaker places open; every reader
/// known to us takes them in the order of WAVE, which is ours.
///
/// # Errors
/// [`NotInWave`] for [`SampleFormat::S8`] and [`SampleFormat::S24In32Le`], which WAVE does not have.
pub fn header(spec: SampleSpec, length: Length) -> Result<[u8; HEADER_LEN], NotInWave> {
    let tag = tag(spec.format)?;
    let (riff, data) = match length {
        Length::Bytes(bytes) => (bytes.saturating_add(RIFF_WITHOUT_DATA), bytes),
        Length::Endless => (u32::MAX, u32::MAX),
    };
    Ok(RawHeader::new(tag, spec, riff, data).emit())
}

/// What WAVE calls a format.
pub(super) const fn tag(format: SampleFormat) -> Result<u16, NotInWave> {
    match format {
        SampleFormat::S8 | SampleFormat::S24In32Le => Err(NotInWave(format)),
        SampleFormat::F32 => Ok(TAG_FLOAT),
        _ => Ok(TAG_PCM),
    }
}

/// How much sound follows a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "known or not")]
pub enum Length {
    /// That many bytes.
    Bytes(u32),
    /// Nobody knows. Both sizes are then 4,294,967,295, which players take for "read until the end".
    Endless,
}

/// A sample format that WAVE has no name for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotInWave(pub SampleFormat);

impl fmt::Display for NotInWave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WAVE has no sample format {}", self.0)
    }
}

impl core::error::Error for NotInWave {}

/// The fields of the 44 bytes. Snapcast's PCM header fills them in its own way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawHeader {
    pub(crate) tag: u16,
    pub(crate) channels: u16,
    pub(crate) rate: u32,
    pub(crate) bits: u16,
    pub(crate) riff_size: u32,
    pub(crate) data_size: u32,
}

impl RawHeader {
    pub(crate) fn new(tag: u16, spec: SampleSpec, riff_size: u32, data_size: u32) -> Self {
        Self {
            tag,
            channels: u16::try_from(spec.layout.channels()).unwrap_or(u16::MAX),
            rate: spec.rate.hz(),
            bits: spec.format.bits(),
            riff_size,
            data_size,
        }
    }

    pub(crate) fn emit(&self) -> [u8; HEADER_LEN] {
        let align = self.channels * (self.bits / 8);
        let bytes_per_second = self.rate.saturating_mul(u32::from(align));
        let mut bytes = [0; HEADER_LEN];
        let mut rest: &mut [u8] = &mut bytes;
        let mut put = |field: &[u8]| {
            if let Some(place) = rest.split_off_mut(..field.len()) {
                place.copy_from_slice(field);
            }
        };
        put(b"RIFF");
        put(&self.riff_size.to_le_bytes());
        put(b"WAVEfmt ");
        put(&16_u32.to_le_bytes());
        put(&self.tag.to_le_bytes());
        put(&self.channels.to_le_bytes());
        put(&self.rate.to_le_bytes());
        put(&bytes_per_second.to_le_bytes());
        put(&align.to_le_bytes());
        put(&self.bits.to_le_bytes());
        put(b"data");
        put(&self.data_size.to_le_bytes());
        bytes
    }
}

pub(crate) const TAG_PCM: u16 = 1;
pub(crate) const TAG_FLOAT: u16 = 3;
/// The tag stands further behind, with bits that mean something and loudspeakers.
pub(super) const TAG_EXTENSIBLE: u16 = 0xfffe;
/// The rest of the identifier that the tag is the beginning of.
pub(super) const SUB_FORMAT_TAIL: [u8; 14] =
    [0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71];

/// What the size of RIFF counts beside the samples: everything behind its own field.
#[allow(clippy::cast_possible_truncation, reason = "44")]
pub(crate) const RIFF_WITHOUT_DATA: u32 = HEADER_LEN as u32 - 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_stream_says_so_in_both_sizes() {
        let bytes = header(SampleSpec::DEFAULT, Length::Endless).unwrap();
        assert_eq!(bytes[4..8], [0xff; 4]);
        assert_eq!(bytes[40..], [0xff; 4]);
    }

    #[test]
    fn the_fields_stand_where_everybody_looks_for_them() {
        let bytes = header("96000:s24:2".parse().unwrap(), Length::Bytes(6)).unwrap();
        assert_eq!(&bytes[..16], b"RIFF\x2a\0\0\0WAVEfmt ");
        assert_eq!(bytes[16..28], [16, 0, 0, 0, 1, 0, 2, 0, 0x00, 0x77, 0x01, 0]);
        assert_eq!(bytes[28..36], [0x00, 0xca, 0x08, 0, 6, 0, 24, 0]);
        assert_eq!(&bytes[36..], b"data\x06\0\0\0");
    }

    #[test]
    fn formats_that_wave_does_not_have_are_refused() {
        let spec = "48000:24:2".parse().unwrap();
        assert_eq!(header(spec, Length::Endless), Err(NotInWave(SampleFormat::S24In32Le)));
    }
}
