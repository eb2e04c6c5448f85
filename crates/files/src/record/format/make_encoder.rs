//! The encoder of each format.

use core::fmt;

use aulos_engine::encode::UnsupportedFormat;

use super::{FileEncoder, FileFormat, FileMetadata, flac, mp3, opus, wave};

/// Begins a file: appends its header to `out`.
///
/// # Errors
/// [`UnsupportedFileFormat`] when the format cannot store the sound.
///
/// # Examples
/// ```
/// use aulos_core::{ChannelLayout, Frames, SampleRate};
/// use aulos_files::record::format::{FileFormat, FileMetadata, make_file_encoder};
///
/// let format: FileFormat = "flac:24".parse()?;
/// let start = std::time::UNIX_EPOCH;
/// let metadata = FileMetadata::new(SampleRate::HZ_48000, ChannelLayout::STEREO, "Hall", start);
/// let (mut file, mut out, mut patches) = (Vec::new(), Vec::new(), Vec::new());
/// let mut encoder = make_file_encoder(format, &metadata, &mut out)?;
/// for round in 0..50 {
///     encoder.write(&[0.25; 2 * 960], &mut out)?;
///     if round % 10 == 9 {
///         encoder.flush(&mut out, &mut patches);
///     }
///     file.append(&mut out);
///     for patch in patches.drain(..) {
///         let at = patch.at() as usize;
///         file[at..at + patch.bytes().len()].copy_from_slice(patch.bytes());
///     }
/// }
/// assert_eq!(encoder.frames(), Frames(48_000));
/// encoder.finish(&mut out, &mut patches)?;
/// let next = metadata.after(Frames(48_000));
/// assert_eq!(next.time_reference, Frames(48_000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn make_file_encoder(
    format: FileFormat,
    metadata: &FileMetadata,
    out: &mut Vec<u8>,
) -> Result<Box<dyn FileEncoder>, UnsupportedFileFormat> {
    let unsupported = |reason| UnsupportedFileFormat { format, reason };
    Ok(match format {
        FileFormat::Wav(samples) => Box::new(wave::make_encoder(samples, metadata, out)),
        FileFormat::Flac { bits } => {
            Box::new(flac::FlacFileEncoder::new(bits, metadata, out).map_err(unsupported)?)
        }
        FileFormat::Opus { bits_per_second } => {
            Box::new(opus::make_encoder(bits_per_second, metadata, out).map_err(unsupported)?)
        }
        FileFormat::Mp3(config) => {
            Box::new(mp3::Mp3FileEncoder::new(config, metadata, out).map_err(unsupported)?)
        }
    })
}

/// A format that cannot store the sound of a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnsupportedFileFormat {
    /// The format.
    pub format: FileFormat,
    /// Reason.
    pub reason: UnsupportedFormat,
}

impl fmt::Display for UnsupportedFileFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instead = match (self.format, self.reason) {
            (FileFormat::Opus { .. }, UnsupportedFormat::Rate(_)) => {
                "record flac or wav, or run the station at 48000 Hz"
            }
            (FileFormat::Opus { .. } | FileFormat::Mp3(_), _) => "record flac or wav",
            _ => "record wav",
        };
        write!(f, "{}: {instead}", self.reason)
    }
}

impl core::error::Error for UnsupportedFileFormat {}
