//! Where frames begin in raw samples, judged by their smoothness.
//!
//! Raw samples have no mark at which a reader could synchronize. But neighbouring samples of sound
//! are alike, and bytes that are read across the boundaries of samples are not: the lowest byte of
//! one, which is noise, becomes the highest byte of the next.

use aulos_core::{SampleFormat, SampleSpec};

use crate::convert;

/// The more likely beginning of the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameStart {
    /// The first byte.
    First,
    /// The later byte.
    Later,
    /// The bytes are the same either way, as in digital silence.
    Undecided,
}

/// Whether the frames in `bytes` begin with the first byte or `later` bytes after it.
///
/// The later one is chosen unless the first one gives clearly smoother samples: a shift by whole
/// samples exchanges channels, which cannot be told apart. It needs `later` bytes and
/// [`COMPARED_FRAMES`] frames; with fewer it is less certain.
///
/// # Real-time
/// Does not allocate.
#[must_use]
pub fn compare_frame_starts(spec: SampleSpec, bytes: &[u8], later: usize) -> FrameStart {
    let shifted = bytes.get(later..).unwrap_or_default();
    let (first, later) =
        (roughness(spec, bytes, shifted.len()), roughness(spec, shifted, shifted.len()));
    if first.to_bits() == later.to_bits() {
        FrameStart::Undecided
    } else if first * CLEARLY < later {
        FrameStart::First
    } else {
        FrameStart::Later
    }
}

/// The sum of the steps between the samples of each channel in the first `length` bytes.
fn roughness(spec: SampleSpec, bytes: &[u8], length: usize) -> f64 {
    let channels = spec.layout.channels();
    let frames = (length / spec.frame_bytes()).min(COMPARED_FRAMES).min(MAX_SAMPLES / channels);
    let mut samples = [0.0; MAX_SAMPLES];
    let samples = &mut samples[..frames * channels];
    let format = match spec.format {
        // The padding is the highest byte, which is not rough.
        SampleFormat::S24In32Le => SampleFormat::S32Le,
        format => format,
    };
    convert::decode(format, bytes, samples);
    let next = samples.iter().skip(channels);
    // Floats may be far above full scale, and the difference of two of them infinite.
    next.zip(samples.iter()).map(|(to, from)| f64::from((to - from).abs().min(MAX_STEP))).sum()
}

/// Frames that are compared: a millisecond, in which sound is smooth and noise is not.
pub const COMPARED_FRAMES: usize = 64;

/// How many times as rough the other reading must be.
const CLEARLY: f64 = 2.0;

/// From one end of the scale to the other.
const MAX_STEP: f32 = 2.0;

/// 64 frames of 32 channels, as a buffer on the stack.
const MAX_SAMPLES: usize = 2_048;

#[cfg(test)]
mod tests {
    use super::*;

    /// `frames` of a tone in the first channel, with half of the lowest bit of noise.
    fn tone(spec: SampleSpec, level: f32, frames: usize) -> Vec<u8> {
        let channels = spec.layout.channels();
        let mut seed = 1_u32;
        let samples: Vec<f32> = (0..frames * channels)
            .map(|index| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let noise = (seed >> 16) as f32 / 65_536.0 / 32_768.0;
                let tone = ((index / channels) as f32 * 0.13).sin() * level;
                if index % channels == 0 { tone + noise } else { noise }
            })
            .collect();
        let mut bytes = vec![0; frames * spec.frame_bytes()];
        convert::encode(spec.format, &samples, &mut bytes);
        bytes
    }

    #[test]
    fn the_right_beginning_is_found_in_every_format_at_every_level() {
        for spec in
            ["48000:16:2", "44100:24:2", "96000:24:1", "48000:32:2", "48000:f:2", "48000:16:6"]
        {
            let spec: SampleSpec = spec.parse().unwrap();
            let width = spec.format.bytes();
            for level in [1.0, 0.1, 0.001] {
                let sound = tone(spec, level, 200);
                for torn in (1..spec.frame_bytes()).filter(|torn| torn % width != 0) {
                    // A frame that goes on after a pause.
                    let found = compare_frame_starts(spec, &sound, torn);
                    assert_eq!(found, FrameStart::First, "{spec} {level} {torn}");
                    // A torn one, and a new sender.
                    let new = [&sound[400..400 + torn], &sound].concat();
                    let found = compare_frame_starts(spec, &new, torn);
                    assert_eq!(found, FrameStart::Later, "{spec} {level} {torn}");
                }
            }
        }
    }

    #[test]
    fn silence_is_undecided_and_exchanged_channels_are_a_new_sender() {
        let spec = SampleSpec::DEFAULT;
        assert_eq!(spec.format, SampleFormat::S16Le);
        assert_eq!(compare_frame_starts(spec, &[0; 400], 3), FrameStart::Undecided);
        assert_eq!(compare_frame_starts(spec, &[], 3), FrameStart::Undecided);
        assert_eq!(compare_frame_starts(spec, &tone(spec, 0.5, 200), 2), FrameStart::Later);
    }
}
