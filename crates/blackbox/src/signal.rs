//! Test programmes that never repeat, so that every frame has a unique position.

use std::f64::consts::TAU;
use std::io::{self, Write};

/// One stereo frame, as integers of the programme's width.
pub type Frame = [i32; 2];

/// The rate of all programmes.
pub const RATE: usize = 48_000;

/// Sample width of a programme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleWidth {
    /// 16 bits in 2 bytes.
    B16,
    /// 24 bits: packed into 3 bytes in a WAV file, in 4 in the Snapcast protocol and in its
    /// clients.
    B24,
}

impl SampleWidth {
    /// The width in bits.
    #[must_use]
    pub const fn count(self) -> u16 {
        match self {
            Self::B16 => 16,
            Self::B24 => 24,
        }
    }

    /// The largest sample.
    #[must_use]
    pub const fn full_scale(self) -> i32 {
        (1 << (self.count() - 1)) - 1
    }

    /// Parses the output of a Snapcast client.
    #[must_use]
    pub fn frames(self, bytes: &[u8]) -> Vec<Frame> {
        match self {
            Self::B16 => bytes
                .chunks_exact(4)
                .map(|b| [[b[0], b[1]], [b[2], b[3]]].map(|b| i16::from_le_bytes(b).into()))
                .collect(),
            // The content of the fourth byte is unspecified: the sign is taken from the third.
            Self::B24 => bytes
                .chunks_exact(8)
                .map(|b| {
                    [[0, b[0], b[1], b[2]], [0, b[4], b[5], b[6]]]
                        .map(|b| i32::from_le_bytes(b) >> 8)
                })
                .collect(),
        }
    }

    /// Serializes frames as in the Snapcast protocol.
    #[must_use]
    pub fn bytes(self, frames: &[Frame]) -> Vec<u8> {
        let width = if self == Self::B16 { 2 } else { 4 };
        frames.iter().flatten().flat_map(|s| s.to_le_bytes().into_iter().take(width)).collect()
    }
}

/// Sweeping tones with a little noise, using every bit of the width.
///
/// The noise makes each run of sixteen frames unique; the tones occupy a codec's predictor.
#[must_use]
pub fn programme(frames: usize, bits: SampleWidth, seed: u64) -> Vec<Frame> {
    let mut noise = NoiseRng(seed | 1);
    let scale = f64::from(bits.full_scale());
    (0..frames)
        .map(|n| {
            let [left, right] = tones(n);
            [left, right].map(|x| round(scale * (0.7 * x + 0.01 * noise.sample())))
        })
        .collect()
}

/// The same without noise, for measuring a lossy codec sample by sample.
#[must_use]
pub fn tonal(frames: usize, bits: SampleWidth) -> Vec<Frame> {
    let scale = f64::from(bits.full_scale());
    (0..frames).map(|n| tones(n).map(|x| round(scale * 0.5 * x))).collect()
}

/// Three slow sweeps per channel, at frame `n`; within -1..1, and not 0 at the beginning.
fn tones(n: usize) -> [f64; 2] {
    #[expect(clippy::cast_precision_loss, reason = "hours of frames fit into a double")]
    let t = n as f64 / RATE as f64;
    // The sweeps' periods have no common multiple, so the sum does not repeat.
    let sweep = |hz: f64, depth: f64, period: f64| {
        let phase = hz * t - hz * depth * period / TAU * (TAU * t / period).cos();
        (TAU * phase + 1.0).sin()
    };
    let swell = 0.6 + 0.4 * (TAU * t / 3.7).cos();
    [
        swell
            * (0.5 * sweep(220.0, 0.3, 7.3)
                + 0.3 * sweep(663.0, 0.2, 5.1)
                + 0.2 * sweep(1511.0, 0.1, 2.9)),
        swell
            * (0.5 * sweep(277.0, 0.3, 6.7)
                + 0.3 * sweep(831.0, 0.2, 4.3)
                + 0.2 * sweep(1873.0, 0.1, 3.1)),
    ]
}

#[expect(clippy::cast_possible_truncation, reason = "the arguments are within full scale")]
const fn round(x: f64) -> i32 {
    x.round() as i32
}

/// `xorshift64*` (Vigna 2016): the same noise on every machine.
#[derive(Debug)]
pub struct NoiseRng(pub u64);

impl NoiseRng {
    /// 64 random bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Uniform in -1..1.
    pub fn sample(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
        let x = (self.next_u64() >> 11) as f64;
        x / 4_503_599_627_370_496.0 - 1.0
    }
}

/// Writes a WAV file; 24 bits are packed.
///
/// # Errors
/// The error of the file system.
pub fn write_wav(mut out: impl Write, frames: &[Frame], bits: SampleWidth) -> io::Result<()> {
    let width = bits.count() / 8;
    let block = width * 2;
    let len = u32::try_from(frames.len() * usize::from(block)).map_err(io::Error::other)?;
    let rate = 48_000_u32;
    out.write_all(b"RIFF")?;
    out.write_all(&(36 + len).to_le_bytes())?;
    out.write_all(b"WAVEfmt \x10\0\0\0\x01\0\x02\0")?;
    out.write_all(&rate.to_le_bytes())?;
    out.write_all(&(rate * u32::from(block)).to_le_bytes())?;
    out.write_all(&block.to_le_bytes())?;
    out.write_all(&bits.count().to_le_bytes())?;
    out.write_all(b"data")?;
    out.write_all(&len.to_le_bytes())?;
    let sound: Vec<u8> = frames
        .iter()
        .flatten()
        .flat_map(|s| s.to_le_bytes().into_iter().take(usize::from(width)))
        .collect();
    out.write_all(&sound)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_signal_never_repeats_and_never_clips() {
        let sound = programme(3 * RATE, SampleWidth::B16, 1);
        let stretches: HashSet<_> = sound.windows(16).collect();
        assert_eq!(stretches.len(), sound.len() - 15);
        assert!(sound.iter().flatten().all(|s| s.abs() < 32_000));
        assert_ne!(sound[0], [0, 0]);
        assert_ne!(tonal(1, SampleWidth::B16)[0], [0, 0]);
    }

    #[test]
    fn what_is_written_is_read() {
        for bits in [SampleWidth::B16, SampleWidth::B24] {
            let sound = programme(100, bits, 2);
            assert_eq!(bits.frames(&bits.bytes(&sound)), sound);
        }
        let mut wav = Vec::new();
        write_wav(&mut wav, &[[1, -2]], SampleWidth::B24).unwrap();
        assert_eq!(&wav[40..], [6, 0, 0, 0, 1, 0, 0, 0xFE, 0xFF, 0xFF]);
    }
}
