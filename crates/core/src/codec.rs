//! The codecs of chunks: one row of facts for each, so that all others ask and none compares.

use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;

use crate::{SampleFormat, SampleSpec};

/// Encoding of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Interleaved little-endian samples.
    Pcm,
    /// Whole FLAC frames (RFC 9639).
    Flac,
    /// One Opus packet (RFC 6716).
    Opus,
    /// Whole MPEG audio layer III frames (ISO/IEC 11172-3 and 13818-3).
    Mp3,
    /// Whole ADTS frames of AAC LC (ISO/IEC 14496-3).
    Aac,
}

/// Container of a codec's chunks in a stream over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "every writer of streams handles all")]
pub enum StreamContainer {
    /// The codec's own stream header, then the chunks as they are.
    Native,
    /// RIFF/WAVE without a length.
    Wave,
    /// Ogg pages, which also carry titles.
    Ogg,
}

/// What the program knows of a codec besides its encoder.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CodecInfo {
    /// The codec of this row.
    pub codec: Codec,
    /// Name in configuration files and in the Snapcast protocol.
    pub name: &'static str,
    /// Container over HTTP.
    pub container: StreamContainer,
    /// Names of the container in addresses and settings; the first is the usual one.
    pub extensions: &'static [&'static str],
    /// Media type of the container.
    pub media_type: &'static str,
    /// Whether Snapcast clients play it and its encoder may run on a station's real-time thread.
    /// Others are for web listeners, pushes and recordings, and are encoded on the codec pool.
    pub is_for_stations: bool,
    /// Whether nearly every player of web streams has it: playlists name it.
    pub is_for_playlists: bool,
    /// Sample rates in Hz, both ends included.
    pub rate_range: RangeInclusive<u32>,
    /// The rates of the range in Hz, if not all are possible.
    pub only_rates: Option<&'static [u32]>,
    /// Maximum number of channels.
    pub max_channels: usize,
    /// Sample formats of a station with this codec, in ascending size.
    pub formats: &'static [SampleFormat],
    /// Chunk durations in milliseconds, if not all are possible.
    pub chunk_ms: Option<&'static [u32]>,
    /// Supported chunks, for messages: `opus supports ...`.
    pub chunks: &'static str,
    /// What a sample spec must be, for messages: `opus requires ...`.
    pub requires: &'static str,
}

/// All codecs.
pub static CODECS: [CodecInfo; 5] = [
    CodecInfo {
        codec: Codec::Flac,
        name: "flac",
        container: StreamContainer::Native,
        extensions: &["flac"],
        media_type: "audio/flac",
        is_for_stations: true,
        is_for_playlists: false,
        // What a frame header can have; above 65,535 Hz not every rate (RFC 9639, section 9.1.2).
        rate_range: 1..=655_350,
        only_rates: None,
        max_channels: 8,
        formats: &[SampleFormat::S16Le, SampleFormat::S24In32Le],
        chunk_ms: None,
        chunks: "chunks of 16 to 65535 samples per channel",
        requires: "16 or 24 bit and 1 to 8 channels",
    },
    CodecInfo {
        codec: Codec::Opus,
        name: "opus",
        container: StreamContainer::Ogg,
        extensions: &["ogg", "opus", "oga"],
        media_type: "audio/ogg",
        is_for_stations: true,
        is_for_playlists: false,
        rate_range: 48_000..=48_000,
        only_rates: None,
        max_channels: 2,
        formats: &[SampleFormat::S16Le],
        // RFC 6716, section 2.1.4; 2.5 and 5 ms are too short for a message each.
        chunk_ms: Some(&[10, 20, 40, 60]),
        chunks: "chunks of 10, 20, 40 or 60 ms",
        requires: "48000 Hz, 16 bit and 1 or 2 channels",
    },
    CodecInfo {
        codec: Codec::Pcm,
        name: "pcm",
        container: StreamContainer::Wave,
        extensions: &["wav"],
        media_type: "audio/wav",
        is_for_stations: true,
        is_for_playlists: false,
        rate_range: 1..=u32::MAX,
        only_rates: None,
        max_channels: usize::MAX,
        formats: &[SampleFormat::S16Le, SampleFormat::S24In32Le, SampleFormat::S32Le],
        chunk_ms: None,
        chunks: "chunks of any duration",
        requires: "16, 24 or 32 bit",
    },
    CodecInfo {
        codec: Codec::Mp3,
        name: "mp3",
        container: StreamContainer::Native,
        extensions: &["mp3"],
        media_type: "audio/mpeg",
        is_for_stations: false,
        is_for_playlists: true,
        rate_range: 16_000..=48_000,
        // MPEG 2 and MPEG 1; the rates of MPEG 2.5 are no standard.
        only_rates: Some(&[16_000, 22_050, 24_000, 32_000, 44_100, 48_000]),
        max_channels: 2,
        // The encoder takes floats; the format is what decoders put out.
        formats: &[SampleFormat::S16Le],
        chunk_ms: None,
        chunks: "chunks of any duration",
        requires: "16000, 22050, 24000, 32000, 44100 or 48000 Hz and 1 or 2 channels",
    },
    CodecInfo {
        codec: Codec::Aac,
        name: "aac",
        container: StreamContainer::Native,
        extensions: &["aac"],
        media_type: "audio/aac",
        is_for_stations: false,
        is_for_playlists: false,
        rate_range: 8_000..=96_000,
        // ISO/IEC 14496-3, table 1.18, without the rates that nothing else has.
        only_rates: Some(&[
            8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 64_000, 88_200,
            96_000,
        ]),
        max_channels: 2,
        // The encoder takes floats; the format is what decoders put out.
        formats: &[SampleFormat::S16Le],
        chunk_ms: None,
        chunks: "chunks of any duration",
        requires: "8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000, 64000, 88200 or \
             96000 Hz and 1 or 2 channels",
    },
];

impl CodecInfo {
    /// The row of the container of this name, as in `ogg` or `wav`.
    #[must_use]
    pub fn of_extension(extension: &str) -> Option<&'static Self> {
        CODECS.iter().find(|row| row.extensions.contains(&extension))
    }

    /// The names of all containers, in the order of the table.
    pub fn all_extensions() -> impl Iterator<Item = &'static str> {
        CODECS.iter().flat_map(|row| row.extensions).copied()
    }

    /// True if a chunk may have this duration in milliseconds.
    #[must_use]
    pub fn supports_chunk(&self, ms: u32) -> bool {
        self.chunk_ms.is_none_or(|possible| possible.contains(&ms))
    }

    /// True if the codec can encode this rate in Hz.
    #[must_use]
    pub fn supports_rate(&self, hz: u32) -> bool {
        self.rate_range.contains(&hz) && self.only_rates.is_none_or(|rates| rates.contains(&hz))
    }

    /// True if a programme of this spec can have this codec.
    #[must_use]
    pub fn supports(&self, spec: SampleSpec) -> bool {
        self.supports_rate(spec.rate.hz())
            && spec.layout.channels() <= self.max_channels
            && self.formats.contains(&spec.format)
    }

    /// True if the codec can encode a programme of this spec in some format.
    #[must_use]
    pub fn can_encode(&self, spec: SampleSpec) -> bool {
        self.supports(SampleSpec { format: self.nearest_format(spec.format), ..spec })
    }

    /// The format of the codec that loses least of `format`: itself, the next larger one, or the
    /// largest.
    #[must_use]
    pub fn nearest_format(&self, format: SampleFormat) -> SampleFormat {
        let enough = self.formats.iter().find(|own| own.bits() >= format.bits());
        enough.or_else(|| self.formats.last()).copied().unwrap_or(format)
    }
}

impl Codec {
    /// The row of this codec.
    #[must_use]
    pub fn info(self) -> &'static CodecInfo {
        // Every codec has a row: a test says so.
        CODECS.iter().find(|row| row.codec == self).unwrap_or(&CODECS[0])
    }

    /// Name in configuration files and in the Snapcast protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.info().name
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Codec {
    type Err = UnknownCodec;

    fn from_str(text: &str) -> Result<Self, UnknownCodec> {
        CODECS.iter().find(|row| row.name == text).map(|row| row.codec).ok_or(UnknownCodec)
    }
}

/// Error: the text names no known codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownCodec;

impl fmt::Display for UnknownCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown codec: use one of")?;
        CODECS.iter().try_for_each(|row| write!(f, " {}", row.name))
    }
}

impl core::error::Error for UnknownCodec {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_codec_has_one_row_and_no_name_means_two() {
        for codec in [Codec::Pcm, Codec::Flac, Codec::Opus, Codec::Mp3, Codec::Aac] {
            assert_eq!(codec.info().codec, codec);
            assert_eq!(codec.to_string().parse(), Ok(codec));
        }
        let mut names: Vec<_> = CodecInfo::all_extensions().collect();
        names.sort_unstable();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
        assert!(CODECS.iter().all(|row| row.supports(SampleSpec::DEFAULT)));
        assert!("vorbis".parse::<Codec>().unwrap_err().to_string().contains("flac opus pcm"));
    }

    #[test]
    fn the_nearest_format_loses_least() {
        use SampleFormat::{F32, S8, S16Le, S24In32Le, S24Le, S32Le};
        let nearest =
            |codec: Codec| [S8, S16Le, S24Le, S32Le, F32].map(|f| codec.info().nearest_format(f));
        assert_eq!(nearest(Codec::Pcm), [S16Le, S16Le, S24In32Le, S32Le, S32Le]);
        assert_eq!(nearest(Codec::Flac), [S16Le, S16Le, S24In32Le, S24In32Le, S24In32Le]);
        assert_eq!(nearest(Codec::Opus), [S16Le; 5]);
        let mp3 = Codec::Mp3.info();
        assert!(
            mp3.supports_rate(44_100) && !mp3.supports_rate(40_000) && !mp3.supports_rate(96_000)
        );
    }
}
