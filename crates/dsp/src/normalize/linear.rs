//! One gain for a whole programme that has been measured before.

use aulos_core::{Db, Lufs};

use super::Settings;

/// The gain that brings a programme to its target and changes nothing else about it.
///
/// It never becomes anything else: where the target cannot be reached so, the gain is what can be
/// had, and [`Linear::bound`] says what stood in the way.
///
/// # Examples
/// ```
/// use aulos_core::{Db, Lufs};
/// use aulos_dsp::normalize::{Bound, Linear, Settings};
///
/// let settings = Settings { target: Lufs::new(-14.0), ..Settings::default() };
/// let plan = Linear::plan(Lufs::new(-20.0), Db::new(-3.0), &settings);
/// assert_eq!((plan.wanted, plan.gain), (Db::new(6.0), Db::new(2.0)));
/// assert_eq!(plan.bound, Some(Bound::Ceiling));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Linear {
    /// What the target asks for.
    pub wanted: Db,
    /// What the programme gets.
    pub gain: Db,
    /// Why these differ.
    pub bound: Option<Bound>,
}

/// What stands between a programme and its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bound {
    /// The true peak would pass the ceiling.
    Ceiling,
    /// [`Settings::max_gain`].
    MaxGain,
    /// [`Settings::min_gain`].
    MinGain,
    /// There is nothing to be heard, or the measurement is not a number.
    Silence,
}

impl Linear {
    /// The gain for a programme of this integrated loudness and true peak (in dBTP).
    #[must_use]
    pub fn plan(integrated: Lufs, true_peak: Db, settings: &Settings) -> Self {
        let wanted = settings.target - integrated;
        if !wanted.get().is_finite() {
            return Self { wanted: Db::ZERO, gain: Db::ZERO, bound: Some(Bound::Silence) };
        }
        let headroom = settings.ceiling - true_peak;
        let mut plan = Self { wanted, gain: wanted, bound: None };
        for (limit, bound) in [(settings.max_gain, Bound::MaxGain), (headroom, Bound::Ceiling)] {
            if plan.gain > limit {
                (plan.gain, plan.bound) = (limit, Some(bound));
            }
        }
        if plan.gain < settings.min_gain && plan.bound != Some(Bound::Ceiling) {
            (plan.gain, plan.bound) = (settings.min_gain, Some(Bound::MinGain));
        }
        plan
    }

    /// Applies the gain.
    ///
    /// # Real-time
    /// One product a sample.
    pub fn apply(&self, samples: &mut [f32]) {
        #[allow(clippy::cast_possible_truncation, reason = "gains are applied in f32")]
        let gain = self.gain.amplitude() as f32;
        samples.iter_mut().for_each(|sample| *sample *= gain);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gain_is_what_the_target_asks_for_or_says_why_not() {
        let settings = Settings::default();
        let plan = |lufs, peak| Linear::plan(Lufs::new(lufs), Db::new(peak), &settings);
        assert_eq!(plan(-30.0, -20.0).gain, Db::new(7.0));
        assert_eq!(plan(-30.0, -20.0).bound, None);
        assert_eq!(plan(-30.0, -5.0).gain, Db::new(4.0));
        assert_eq!(plan(-30.0, -5.0).bound, Some(Bound::Ceiling));
        assert_eq!(plan(-60.0, -50.0).bound, Some(Bound::MaxGain));
        assert_eq!(plan(30.0, 20.0).bound, Some(Bound::MinGain));
        assert_eq!(plan(-23.0, 45.0).gain, Db::new(-46.0));
        for silent in [f64::NEG_INFINITY, f64::INFINITY, f64::NAN] {
            assert_eq!(plan(silent, -3.0).bound, Some(Bound::Silence));
        }
    }

    #[test]
    fn digital_silence_has_no_peak_that_could_bind() {
        let plan = Linear::plan(Lufs::new(-30.0), Db::SILENCE, &Settings::default());
        assert_eq!((plan.gain, plan.bound), (Db::new(7.0), None));
    }
}
