//! Six short programmes that are difficult for a loudness normalizer.

#![allow(clippy::cast_precision_loss, reason = "sample counts of a minute")]

use aulos_core::{Db, Rng, SampleRate};

use crate::{Noise, Sine};

/// A programme, the same in both channels of a stereo signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "tests go through all of them")]
pub enum Programme {
    /// Steps of loudness: 20 s each at 0, +20 and -14.5 dB.
    Steps,
    /// Like speech: four syllables a second, three tenths of them silent.
    Speech,
    /// Quiet noise with a click of 2 ms every 1.7 s.
    Clicks,
    /// 15 s of silence, then steady noise.
    LateStart,
    /// Two seconds in all.
    Short,
    /// A tone of a quarter of the rate whose peaks lie between the samples, 3 dB above them.
    InterSample,
}

impl Programme {
    /// All programmes.
    pub const ALL: [Self; 6] =
        [Self::Steps, Self::Speech, Self::Clicks, Self::LateStart, Self::Short, Self::InterSample];

    /// Duration in seconds.
    #[must_use]
    pub const fn seconds(self) -> u32 {
        match self {
            Self::Short => 2,
            Self::InterSample => 40,
            _ => 60,
        }
    }

    /// One channel at `rate`; the other is the same.
    #[must_use]
    pub fn samples(self, rate: SampleRate) -> Vec<f32> {
        let hz = f64::from(rate.hz());
        let count = u64::from(rate.hz()) * u64::from(self.seconds());
        let mut noise = Noise::new(11, Db::ZERO);
        let mut tone = Sine::new(rate, hz / 4.0, Db::new(-5.0)).phase(0.125);
        let mut syllable = Syllables::new();
        let mut sample = |at: u64| {
            let time = at as f64 / hz;
            let noise = f64::from(noise.next().unwrap_or_default());
            match self {
                Self::Steps if time < 20.0 => noise * db(-33.0),
                Self::Steps if time < 40.0 => noise * db(-13.0),
                Self::Steps => noise * db(-47.5),
                Self::Speech => noise * db(-10.0) * syllable.gain(time),
                Self::Clicks if time % 1.7 < 0.002 => noise.signum() * db(-0.5),
                Self::Clicks => noise * db(-30.0),
                Self::LateStart if time < 15.0 => 0.0,
                Self::LateStart => noise * db(-20.0),
                Self::Short => noise * db(-6.0),
                Self::InterSample => f64::from(tone.next().unwrap_or_default()),
            }
        };
        #[allow(clippy::cast_possible_truncation, reason = "samples are f32")]
        (0..count).map(|at| sample(at) as f32).collect()
    }
}

/// Raised cosines of a quarter of a second.
struct Syllables {
    random: Rng,
    number: f64,
    spoken: bool,
}

impl Syllables {
    const fn new() -> Self {
        Self { random: Rng::new(12), number: -1.0, spoken: false }
    }

    fn gain(&mut self, time: f64) -> f64 {
        let number = (time * 4.0).floor();
        if number > self.number {
            self.number = number;
            self.spoken = !self.random.chance(0.3);
        }
        let within = (time * 4.0).fract();
        if self.spoken { 0.5 - 0.5 * (core::f64::consts::TAU * within).cos() } else { 0.0 }
    }
}

fn db(level: f64) -> f64 {
    Db::new(level).amplitude()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rms(samples: &[f32]) -> f64 {
        let power: f64 = samples.iter().map(|sample| f64::from(*sample).powi(2)).sum();
        Db::from_amplitude((power / samples.len() as f64).sqrt()).get()
    }

    #[test]
    fn every_programme_has_its_stated_length_and_range() {
        for programme in Programme::ALL {
            let samples = programme.samples(SampleRate::new(8_000).unwrap());
            assert_eq!(samples.len(), 8_000 * programme.seconds() as usize);
            assert!(samples.iter().all(|sample| sample.abs() <= 1.0));
        }
    }

    #[test]
    fn the_steps_are_twenty_and_thirty_four_and_a_half_decibels() {
        let samples = Programme::Steps.samples(SampleRate::HZ_48000);
        let parts: Vec<_> = samples.chunks(48_000 * 20).map(rms).collect();
        assert!((parts[1] - parts[0] - 20.0).abs() < 0.05);
        assert!((parts[2] - parts[1] + 34.5).abs() < 0.05);
    }

    #[test]
    fn three_tenths_of_the_speech_are_silent_and_the_tone_hides_its_peaks() {
        let speech = Programme::Speech.samples(SampleRate::HZ_48000);
        let silent = speech.chunks(12_000).filter(|part| part.iter().all(|x| *x == 0.0)).count();
        assert!((55..=90).contains(&silent), "{silent} of 240");
        let tone = Programme::InterSample.samples(SampleRate::HZ_48000);
        let peak = tone.iter().fold(0.0_f32, |peak, sample| peak.max(sample.abs()));
        assert!((Db::from_amplitude(peak.into()).get() + 8.01).abs() < 0.01);
    }
}
