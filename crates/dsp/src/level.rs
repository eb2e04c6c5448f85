//! Peak and RMS levels for status displays.
//!
//! Sample peak and RMS only, at very low cost. Loudness and true peaks are measured by the R128
//! meter ([`crate::meter`]).

#![allow(clippy::cast_precision_loss, reason = "a few thousand frames")]

use aulos_core::{Db, SampleRate};

/// Measures peak and RMS of each channel.
///
/// Samples are summed in slots of 10 ms, so that the result does not depend on block sizes.
/// * **peak**: the highest absolute sample value; it rises at once and falls by 20 dB in 1.7 s, as
///   a type I programme meter (IEC 60268-10).
/// * **RMS**: over the last 300 ms in complete slots; a full-scale sine reads -3.0 dB.
///
/// A sample that is not finite reads as silence.
#[derive(Clone, Debug)]
pub struct LevelMeter {
    channels: Vec<ChannelLevel>,
    slot_frames: usize,
    /// Frames in the current slot.
    filled: usize,
    /// Index of the next slot.
    slot: usize,
}

#[derive(Clone, Debug)]
struct ChannelLevel {
    /// Mean squares of the last slots.
    slots: [f64; SLOTS],
    /// Sum of squares and peak of the current slot.
    sum: f64,
    current: f32,
    /// The decaying peak.
    held: f32,
}

impl LevelMeter {
    /// A meter that reads silence.
    #[must_use]
    pub fn new(rate: SampleRate, channels: usize) -> Self {
        let silent = ChannelLevel { slots: [0.0; SLOTS], sum: 0.0, current: 0.0, held: 0.0 };
        let slot_frames = usize::try_from(rate.hz() / SLOTS_PER_S).unwrap_or(1).max(1);
        Self { channels: vec![silent; channels], slot_frames, filled: 0, slot: 0 }
    }

    /// Measures interleaved frames with the meter's number of channels.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn update(&mut self, samples: &[f32]) {
        let count = self.channels.len().max(1);
        let mut rest = samples;
        while rest.len() >= count {
            let frames = (rest.len() / count).min(self.slot_frames - self.filled);
            let (run, behind) = rest.split_at(frames * count);
            for (index, channel) in self.channels.iter_mut().enumerate() {
                channel.add(run.iter().skip(index).step_by(count));
            }
            self.filled += frames;
            if self.filled == self.slot_frames {
                self.close_slot();
            }
            rest = behind;
        }
    }

    /// Resets the meter to silence.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn reset(&mut self) {
        for channel in &mut self.channels {
            *channel = ChannelLevel { slots: [0.0; SLOTS], sum: 0.0, current: 0.0, held: 0.0 };
        }
        self.filled = 0;
    }

    /// The decaying peak of a channel; silence for a channel that does not exist.
    #[must_use]
    pub fn peak(&self, channel: usize) -> Db {
        self.channels.get(channel).map_or(Db::SILENCE, |channel| {
            Db::from_amplitude(f64::from(channel.held.max(channel.current)))
        })
    }

    /// The RMS of a channel over 300 ms; silence for a channel that does not exist.
    #[must_use]
    pub fn rms(&self, channel: usize) -> Db {
        self.channels.get(channel).map_or(Db::SILENCE, |channel| {
            let mean = channel.slots.iter().sum::<f64>() / SLOTS as f64;
            Db::from_amplitude(mean.sqrt())
        })
    }

    fn close_slot(&mut self) {
        for channel in &mut self.channels {
            channel.slots[self.slot] = channel.sum / self.slot_frames as f64;
            channel.held = channel.current.max(channel.held * DECAY);
            channel.sum = 0.0;
            channel.current = 0.0;
        }
        self.filled = 0;
        self.slot = (self.slot + 1) % SLOTS;
    }
}

impl ChannelLevel {
    fn add<'a>(&mut self, samples: impl Iterator<Item = &'a f32>) {
        let (mut peak, mut sum) = (self.current, 0.0f32);
        for sample in samples {
            let size = sample.abs();
            let size = if size < f32::INFINITY { size } else { 0.0 };
            peak = peak.max(size);
            sum += size * size;
        }
        self.current = peak;
        self.sum += f64::from(sum);
    }
}

const SLOTS_PER_S: u32 = 100;
/// 300 ms.
const SLOTS: usize = 30;
/// 20 dB in 1.7 s: 10^(-1 / 170) per 10 ms.
const DECAY: f32 = 0.986_546_6;

#[cfg(test)]
mod tests {
    use super::*;

    fn sine(frames: u32) -> Vec<f32> {
        (0..frames).flat_map(|n| [(n as f32 * 0.13).sin(), 0.1 * (n as f32 * 0.13).sin()]).collect()
    }

    #[test]
    fn a_full_scale_sine_reads_0_and_minus_3() {
        let mut level = LevelMeter::new(SampleRate::HZ_48000, 2);
        level.update(&sine(48_000));
        assert!(level.peak(0).get().abs() < 0.01);
        assert!((level.rms(0).get() + 3.01).abs() < 0.02, "{}", level.rms(0));
        assert!((level.peak(1).get() + 20.0).abs() < 0.01);
        assert!((level.rms(1).get() + 23.01).abs() < 0.02);
        assert_eq!(level.peak(2), Db::SILENCE);
    }

    #[test]
    fn the_peak_falls_20_db_in_1_7_s_and_the_rms_decays_in_300_ms() {
        let mut level = LevelMeter::new(SampleRate::HZ_44100, 1);
        level.update(&[0.5; 44_100]);
        level.update(&[0.0; 13_230]);
        assert_eq!(level.rms(0), Db::SILENCE);
        level.update(&[0.0; 61_740]);
        assert!((level.peak(0).get() + 26.02).abs() < 0.15, "{}", level.peak(0));
    }

    #[test]
    fn one_sample_shows_at_once() {
        let mut level = LevelMeter::new(SampleRate::HZ_48000, 1);
        level.update(&[-0.5]);
        assert!((level.peak(0).get() + 6.02).abs() < 0.01);
    }

    #[test]
    fn nan_samples_are_ignored() {
        let mut level = LevelMeter::new(SampleRate::HZ_48000, 1);
        level.update(&[0.5; 24_000]);
        level.update(&[f32::NAN, 0.5, f32::INFINITY, -0.5]);
        assert!((level.rms(0).get() + 6.02).abs() < 0.01);
        assert!((level.peak(0).get() + 6.02).abs() < 0.01, "{}", level.peak(0));
    }

    #[test]
    fn block_sizes_do_not_matter() {
        let sound = sine(20_000);
        let (mut whole, mut cut) =
            (LevelMeter::new(SampleRate::HZ_48000, 2), LevelMeter::new(SampleRate::HZ_48000, 2));
        whole.update(&sound);
        for block in sound.chunks(2 * 77) {
            cut.update(block);
        }
        assert!((whole.rms(0).get() - cut.rms(0).get()).abs() < 1e-4);
        assert_eq!(whole.peak(1), cut.peak(1));
    }
}
