//! A limiter that keeps the true peak below a ceiling by construction.
//!
//! ```text
//!  samples -+-> peak at and between samples -> required gain -> Envelope -+
//!           +-> delay of 5 ms --------------------------------------------x--> samples
//! ```
//!
//! State machines of attack, hold and release fail in their transitions
//! (`docs/decisions/limiter.md`). Here the gain is the moving average of a sliding minimum: it
//! cannot be too high, and it has no corners (see [`envelope`]). As long as no sample comes near
//! the ceiling, the only work is to find the greatest sample and to copy.

mod envelope;

use aulos_core::{ChannelLayout, Db, Frames, SampleRate};

use crate::simd::{self, IntersampleInterpolator, SimdLevel};
use envelope::GainEnvelope;

/// A true-peak limiter with a look-ahead of 5 ms; all channels get the same gain.
///
/// Peaks between samples are found by four times oversampling, below 32 kHz by eight times, above
/// 96 kHz by two times. A peak is reduced smoothly in advance; afterwards the gain never falls and
/// is back, to 0.1 dB, after 75 to 150 ms. It rises at once after an isolated peak; in dense
/// limiting it is held for 20 ms more, so that it does not follow the cycles of a bass tone. A
/// sample that is not finite becomes silence.
///
/// # Real-time
/// Allocates at construction only.
///
/// # Examples
/// ```
/// use aulos_core::{ChannelLayout, Db, SampleRate};
/// use aulos_dsp::Limiter;
///
/// let mut limiter = Limiter::new(SampleRate::HZ_48000, ChannelLayout::MONO, Db::new(-1.0));
/// let mut block: Vec<f32> = (0..4_800).map(|n| 1.5 * (0.05 * n as f32).sin()).collect();
/// limiter.process(&mut block);
/// let peak = block.iter().fold(0.0, |peak: f32, x| peak.max(x.abs()));
/// assert!(Db::from_amplitude(peak.into()).get() < -1.0);
/// assert_eq!(limiter.latency().0, 240);
/// ```
#[derive(Clone, Debug)]
pub struct Limiter {
    channels: usize,
    level: SimdLevel,
    interpolator: IntersampleInterpolator,
    envelope: GainEnvelope,
    /// Target of the reduction, and the clip level of the final clamp.
    target: f32,
    clamp: f32,
    margin_db: f64,
    /// The clip level once the frames that were measured with another ceiling have left, and the
    /// number of frames until then.
    next_clamp: f32,
    until: usize,
    /// The last `latency` frames, then a run.
    delay_line: Box<[f32]>,
    latency: usize,
    /// For each sample of a block, the greatest magnitude at and after it.
    peaks: Box<[f32]>,
    /// The greatest sample of each block of a run; one more before and one after.
    block_peaks: [f32; RUN / BLOCK + 3],
    deepest: f32,
    clamped: u64,
}

impl Limiter {
    /// A limiter whose delay line holds silence. A ceiling above full scale is possible; one that
    /// is not finite means full scale.
    #[must_use]
    pub fn new(rate: SampleRate, layout: ChannelLayout, ceiling: Db) -> Self {
        Self::with_level(rate, layout, ceiling, best_level())
    }

    fn with_level(rate: SampleRate, layout: ChannelLayout, ceiling: Db, level: SimdLevel) -> Self {
        let channels = layout.channels();
        let (reach, attack) = (IntersampleInterpolator::HALF, attack_frames(rate));
        let latency = attack + 2 * reach - 1;
        let mut new = Self {
            channels,
            level,
            interpolator: IntersampleInterpolator::new(points(rate)),
            envelope: GainEnvelope::new(rate, attack, reach),
            margin_db: if rate.hz() < 32_000 { LOW_RATE_MARGIN_DB } else { MARGIN_DB },
            target: 1.0,
            clamp: 1.0,
            next_clamp: 1.0,
            until: 0,
            delay_line: vec![0.0; (latency + RUN) * channels].into(),
            latency,
            peaks: vec![0.0; BLOCK * channels].into(),
            block_peaks: [0.0; RUN / BLOCK + 3],
            deepest: 1.0,
            clamped: 0,
        };
        new.set_ceiling(ceiling);
        new.clamp = new.next_clamp;
        new.until = 0;
        new
    }

    /// Delay of the output: 5 ms, below 19 kHz 95 frames.
    #[must_use]
    pub const fn latency(&self) -> Frames {
        Frames(self.latency as u64)
    }

    /// Sets another ceiling from the next frame on; the gain changes as smoothly as for any peak.
    #[allow(clippy::cast_possible_truncation, reason = "levels are applied in f32")]
    pub fn set_ceiling(&mut self, ceiling: Db) {
        let db = if ceiling.get().is_finite() { ceiling.get() } else { 0.0 };
        self.target = Db::new(db - self.margin_db).amplitude() as f32;
        self.next_clamp = Db::new(db).amplitude() as f32;
        self.clamp = self.clamp.max(self.next_clamp);
        self.until = self.latency;
    }

    /// Limits a block in place; the output is delayed by [`Limiter::latency`] frames. An incomplete
    /// frame at the end stays as it is.
    ///
    /// # Real-time
    /// Does not allocate. A frame near the ceiling costs some 100 products per channel.
    pub fn process(&mut self, block: &mut [f32]) {
        self.deepest = 1.0;
        let whole = block.len() / self.channels * self.channels;
        for run in block[..whole].chunks_mut(RUN * self.channels) {
            self.run(run);
        }
    }

    /// The greatest gain reduction of the last block; zero or less.
    #[must_use]
    pub fn reduction(&self) -> Db {
        Db::from_amplitude(self.deepest.into())
    }

    /// Number of samples that the gain left above the ceiling and that were clipped. It stays 0;
    /// any other value is a bug.
    #[must_use]
    pub const fn clamped(&self) -> u64 {
        self.clamped
    }

    /// Clears all audio; the ceiling and the count stay.
    pub fn reset(&mut self) {
        self.delay_line.fill(0.0);
        self.envelope.reset();
        (self.clamp, self.until, self.deepest) = (self.next_clamp, 0, 1.0);
    }

    fn run(&mut self, run: &mut [f32]) {
        let (channels, history) = (self.channels, self.latency * self.channels);
        let end = history + run.len();
        let new = &mut self.delay_line[history..end];
        new.copy_from_slice(run);
        if !simd::all_finite(self.level, new) {
            new.iter_mut().filter(|x| !x.is_finite()).for_each(|x| *x = 0.0);
        }
        let frames = run.len() / channels;
        self.find_block_peaks(frames);
        let mut frame = 0;
        for block in 0..frames.div_ceil(BLOCK) {
            let count = BLOCK.min(frames - frame);
            let out = &mut run[frame * channels..(frame + count) * channels];
            let top = self.block_peaks[block..block + 3].iter().copied().fold(0.0, f32::max);
            self.block(frame, top * self.interpolator.gain() <= self.target, out);
            frame += count;
        }
        self.delay_line.copy_within(end - history..end, 0);
    }

    /// The greatest samples of the blocks whose peaks can be computed now, from the block before
    /// the first to the one after the last.
    fn find_block_peaks(&mut self, frames: usize) {
        let first = self.latency - 2 * IntersampleInterpolator::HALF;
        let last = (self.latency + frames) * self.channels;
        for block in 0..frames.div_ceil(BLOCK) + 2 {
            let start = (first + block * BLOCK) * self.channels;
            let samples =
                &self.delay_line[start.min(last)..(start + BLOCK * self.channels).min(last)];
            // As integers, magnitudes compare in the same order, and this vectorizes.
            let top =
                samples.iter().fold(0, |top: i32, x| top.max(x.abs().to_bits().cast_signed()));
            self.block_peaks[block] = f32::from_bits(top.cast_unsigned());
        }
    }

    /// Limits the frames from `frame` of the run on.
    fn block(&mut self, frame: usize, harmless: bool, out: &mut [f32]) {
        let channels = self.channels;
        let frames = out.len() / channels;
        let delayed = &self.delay_line[frame * channels..frame * channels + out.len()];
        if harmless && self.envelope.is_idle() && self.until == 0 {
            self.envelope.skip(frames);
            out.copy_from_slice(delayed);
            return;
        }
        let peaks = &mut self.peaks[..out.len()];
        if harmless {
            peaks.fill(0.0);
        } else {
            let start = (self.latency + frame + 1 - 2 * IntersampleInterpolator::HALF) * channels;
            let end = (self.latency + frame + frames) * channels;
            self.interpolator.greatest(self.level, &self.delay_line[start..end], channels, peaks);
        }
        for ((out, delayed), peaks) in out
            .chunks_exact_mut(channels)
            .zip(delayed.chunks_exact(channels))
            .zip(peaks.chunks_exact(channels))
        {
            let peak = peaks.iter().copied().fold(0.0, f32::max);
            let gain =
                self.envelope.next(if peak > self.target { self.target / peak } else { 1.0 });
            self.deepest = self.deepest.min(gain);
            for (out, x) in out.iter_mut().zip(delayed) {
                *out = x * gain;
                if out.abs() > self.clamp {
                    *out = out.clamp(-self.clamp, self.clamp);
                    self.clamped += 1;
                }
            }
            if self.until > 0 {
                self.until -= 1;
                self.clamp = if self.until == 0 { self.next_clamp } else { self.clamp };
            }
        }
    }
}

fn best_level() -> SimdLevel {
    SimdLevel::available().last().copied().unwrap_or(SimdLevel::Scalar)
}

/// Oversampling factor of the peak search. At low rates reference meters oversample more than four
/// times, to 192 kHz, and peaks between four points are up to 0.3 dB higher.
const fn points(rate: SampleRate) -> usize {
    match rate.hz() {
        ..32_000 => 8,
        32_000..=96_000 => 4,
        _ => 2,
    }
}

/// Frames in which the gain falls: the rest of 5 ms after the interpolator's share.
fn attack_frames(rate: SampleRate) -> usize {
    let look_ahead = Frames(u64::from(rate.hz()) * LOOK_AHEAD_MS / 1000).as_usize();
    (look_ahead + 1).saturating_sub(2 * IntersampleInterpolator::HALF).max(SHORTEST_ATTACK)
}

/// Long enough for a gain drop of 12 dB not to click, short enough for live monitoring.
const LOOK_AHEAD_MS: u64 = 5;
/// A gain that changes within fewer frames would distort the peaks that it reduces.
const SHORTEST_ATTACK: usize = 64;
/// Distance of reduced peaks below the ceiling: covers peaks between the points of the search.
const MARGIN_DB: f64 = 0.1;
/// Reference meters search three times as closely at low rates.
const LOW_RATE_MARGIN_DB: f64 = 0.2;
/// Frames that are appended to the past at once.
const RUN: usize = 1024;
/// Frames that are checked together; the interpolator reaches as far.
const BLOCK: usize = IntersampleInterpolator::HALF;

#[cfg(test)]
mod tests;
