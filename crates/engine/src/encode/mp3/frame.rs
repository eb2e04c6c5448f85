//! What makes MP3 frames, and the form of the frames of a stream.

use aulos_core::{Codec, Frames, SampleSpec};

use super::super::encoder::{EncodeError, UnsupportedFormat};
use super::super::mp3_config::{MP3_KBPS, Mp3Config};

/// Makes MP3 frames of a constant bit rate.
pub trait Mp3FrameEncoder: Send {
    /// Encodes one frame: as many samples of each channel as a frame has, all within -1 to 1.
    /// Appends whole frames or parts of them to `out`; a library may be late.
    ///
    /// # Errors
    /// [`EncodeError`] when the library refuses.
    fn encode(&mut self, channels: &[Vec<f32>], out: &mut Vec<u8>) -> Result<(), EncodeError>;

    /// Delay of the encoder, without that of a decoder.
    fn delay(&self) -> Frames;

    /// See [`Encoder::panics`](crate::encode::Encoder::panics).
    fn panics(&self) -> u64 {
        0
    }
}

/// What the frames of a stream have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mp3FrameShape {
    /// Frames per second.
    pub hz: u32,
    /// Number of channels, 1 or 2.
    pub channels: usize,
    /// Bit rate in kbit/s.
    pub kbps: u32,
}

impl Mp3FrameShape {
    /// The frames of this spec at this bit rate, or the highest that the sample rate permits.
    ///
    /// # Errors
    /// [`UnsupportedFormat`] for another rate than 16, 22.05, 24, 32, 44.1 or 48 kHz, or more than
    /// two channels.
    pub fn new(spec: SampleSpec, config: Mp3Config) -> Result<Self, UnsupportedFormat> {
        let (info, hz, channels) = (Codec::Mp3.info(), spec.rate.hz(), spec.layout.channels());
        if !info.supports_rate(hz) {
            return Err(UnsupportedFormat::Rate(Codec::Mp3));
        }
        if channels > info.max_channels {
            return Err(UnsupportedFormat::Channels(Codec::Mp3));
        }
        Ok(Self { hz, channels, kbps: config.bitrate_at(spec.rate) / 1_000 })
    }

    /// Number of samples of each channel in a frame: 1,152, with MPEG 2 half of it.
    #[must_use]
    pub const fn frames(self) -> Frames {
        Frames(self.length() as u64)
    }

    const fn length(self) -> u32 {
        if self.hz < Mp3Config::MPEG_1_HZ { 576 } else { 1_152 }
    }

    /// Length of a frame without padding, in bytes, and the remainder that padding makes up for.
    pub(super) const fn bytes(self) -> (usize, u32) {
        let bits = self.length() / 8 * self.kbps * 1_000;
        ((bits / self.hz) as usize, bits % self.hz)
    }

    /// Length of the frame that begins with these bytes; `None` if it is none of this stream.
    pub(super) fn frame_bytes(self, begin: [u8; 4]) -> Option<usize> {
        let [sync, version, rates, mode] = begin;
        // MPEG 1 or 2 (the fourth bit), layer III, no checksum.
        let (expected, table, hz) = match self.length() {
            576 => (0xf3, &MPEG_2_KBPS, self.hz * 2),
            _ => (0xfb, &MP3_KBPS, self.hz),
        };
        let kbps = usize::from(rates >> 4).checked_sub(1).and_then(|row| table.get(row));
        let same = sync == 0xff
            && version == expected
            && kbps == Some(&self.kbps)
            && RATES.get(usize::from(rates >> 2 & 3)) == Some(&hz)
            && (mode >> 6 == 3) == (self.channels == 1);
        same.then(|| self.bytes().0 + usize::from(rates >> 1 & 1))
    }
}

/// The bit rates of MPEG 2 in kbit/s, and the sample rates of MPEG 1 in Hz, by their numbers in a
/// frame's header (ISO/IEC 13818-3, 2.4.2.3, and 11172-3, 2.4.2.3).
const MPEG_2_KBPS: [u32; 14] = [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160];
const RATES: [u32; 3] = [44_100, 48_000, 32_000];
