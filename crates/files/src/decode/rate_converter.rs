//! Converts the frames of a file to another sample rate.

use core::convert::Infallible;

use aulos_core::SampleRate;
use aulos_dsp::Resampler;
use aulos_engine::source::BLOCK_SAMPLES;

/// A resampler that keeps the beginning and the end of the audio in place.
#[derive(Debug)]
pub(crate) struct RateConverter {
    resampler: Resampler,
    channels: usize,
    from: SampleRate,
    to: SampleRate,
    /// Frames before the beginning that have yet to be skipped.
    frames_to_skip: u64,
    frames_in: u64,
    frames_out: u64,
    scratch: Vec<f32>,
}

impl RateConverter {
    pub(crate) fn new(channels: usize, from: SampleRate, to: SampleRate) -> Self {
        let mut new = Self {
            resampler: Resampler::new(channels, from, to),
            channels,
            from,
            to,
            frames_to_skip: 0,
            frames_in: 0,
            frames_out: 0,
            scratch: vec![0.0; BLOCK_SAMPLES / channels * channels],
        };
        // Silence in front makes the filter's delay a whole number of output frames as well.
        let grid = u64::from(from.hz() / greatest_common_divisor(from.hz(), to.hz()));
        let delay = new.resampler.latency().0;
        let silence = delay.next_multiple_of(grid) - delay;
        new.frames_to_skip = converted_frames(delay + silence, from, to);
        let silence = vec![0.0; usize::try_from(silence).unwrap_or(0) * channels];
        // All of its output lies before the beginning and is skipped.
        let _nothing = new.convert(&silence, u64::MAX, &mut |_| Ok::<(), Infallible>(()));
        new
    }

    /// Converts frames, and passes them to `put`.
    pub(crate) fn process<E>(
        &mut self,
        samples: &[f32],
        put: &mut impl FnMut(&mut [f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.frames_in += (samples.len() / self.channels) as u64;
        self.convert(samples, u64::MAX, put)
    }

    /// Flushes the resampler, up to the exact length of the output.
    pub(crate) fn drain<E>(
        &mut self,
        put: &mut impl FnMut(&mut [f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let all = converted_frames(self.frames_in, self.from, self.to);
        let silence = vec![0.0; BLOCK_SAMPLES / self.channels * self.channels];
        while self.frames_out < all {
            self.convert(&silence, all, put)?;
        }
        Ok(())
    }

    fn convert<E>(
        &mut self,
        samples: &[f32],
        end: u64,
        put: &mut impl FnMut(&mut [f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = samples;
        loop {
            let done = self.resampler.process(rest, &mut self.scratch);
            rest = &rest[done.consumed.as_usize() * self.channels..];
            let early = self.frames_to_skip.min(done.produced.0);
            self.frames_to_skip -= early;
            let frames = (done.produced.0 - early).min(end - self.frames_out);
            let [from, count] = [early, frames].map(|n| usize::try_from(n).unwrap_or(0));
            let from = from * self.channels;
            if count > 0 {
                put(&mut self.scratch[from..from + count * self.channels])?;
            }
            self.frames_out += frames;
            if done.produced.as_usize() * self.channels < self.scratch.len() && rest.is_empty() {
                return Ok(());
            }
        }
    }
}

/// Converts a number of frames to another rate, rounded.
pub(crate) fn converted_frames(frames: u64, from: SampleRate, to: SampleRate) -> u64 {
    let [from, to] = [from, to].map(|rate| u128::from(rate.hz()));
    u64::try_from((u128::from(frames) * to + from / 2) / from).unwrap_or(u64::MAX)
}

const fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use core::f64::consts::TAU;

    use super::*;

    /// A tone with a varying level, as a function of seconds.
    fn tone(time: f64) -> f64 {
        let place = (time - 0.5) / 0.2;
        0.5 * (TAU * 997.0 * time).sin() * (-place * place).exp()
    }

    #[test]
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a second")]
    fn resampling_keeps_every_frame_in_place() {
        for hz in [8_000, 11_025, 22_050, 32_000, 44_100, 96_000, 192_000] {
            let (from, to) = (SampleRate::new(hz).unwrap(), SampleRate::HZ_48000);
            for frames in [hz, hz + 1, hz + 7, 1, 0] {
                let mut conversion = RateConverter::new(1, from, to);
                let at = |n: u32| tone(f64::from(n) / f64::from(hz)) as f32;
                let samples: Vec<f32> = (0..frames).map(at).collect();
                let mut out = Vec::new();
                let mut put = |part: &mut [f32]| {
                    out.extend_from_slice(part);
                    Ok::<(), Infallible>(())
                };
                for part in samples.chunks(441) {
                    conversion.process(part, &mut put).unwrap();
                }
                conversion.drain(&mut put).unwrap();
                assert_eq!(
                    out.len() as u64,
                    converted_frames(frames.into(), from, to),
                    "{hz} {frames}"
                );
                if frames < hz {
                    continue;
                }
                for (n, sample) in out.iter().enumerate() {
                    let wanted = tone(n as f64 / 48_000.0);
                    assert!((f64::from(*sample) - wanted).abs() < 2e-3, "{hz} {n}: {sample}");
                }
            }
        }
    }
}
