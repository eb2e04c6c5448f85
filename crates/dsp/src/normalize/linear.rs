//! One constant gain for a programme that was measured before.

use aulos_core::{Db, Lufs};

use super::Settings;

/// The constant gain that brings a programme to its target loudness.
///
/// Dynamics are not changed: if the target cannot be reached with a constant gain, the gain is the
/// closest that is allowed, and [`LinearGain::limit`] states the reason.
///
/// # Examples
/// ```
/// use aulos_core::{Db, Lufs};
/// use aulos_dsp::normalize::{GainLimit, LinearGain, Settings};
///
/// let settings = Settings { target: Lufs::new(-14.0), ..Settings::default() };
/// let plan = LinearGain::plan(Lufs::new(-20.0), Db::new(-3.0), &settings);
/// assert_eq!((plan.requested, plan.gain), (Db::new(6.0), Db::new(2.0)));
/// assert_eq!(plan.limit, Some(GainLimit::Ceiling));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LinearGain {
    /// Gain that reaches the target.
    pub requested: Db,
    /// Gain within the limits.
    pub gain: Db,
    /// Why the two differ.
    pub limit: Option<GainLimit>,
}

/// Reason why a programme does not reach its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GainLimit {
    /// The true peak would exceed the ceiling.
    Ceiling,
    /// [`Settings::max_gain`].
    MaxGain,
    /// [`Settings::min_gain`].
    MinGain,
    /// The programme is silent, or its measurement is not a number.
    Silence,
}

impl LinearGain {
    /// The gain for a programme of this integrated loudness and true peak (in dBTP).
    #[must_use]
    pub fn plan(integrated: Lufs, true_peak: Db, settings: &Settings) -> Self {
        let requested = settings.target - integrated;
        if !requested.get().is_finite() {
            return Self { requested: Db::ZERO, gain: Db::ZERO, limit: Some(GainLimit::Silence) };
        }
        let headroom = settings.ceiling - true_peak;
        let mut plan = Self { requested, gain: requested, limit: None };
        for (max_gain, limit) in
            [(settings.max_gain, GainLimit::MaxGain), (headroom, GainLimit::Ceiling)]
        {
            if plan.gain > max_gain {
                (plan.gain, plan.limit) = (max_gain, Some(limit));
            }
        }
        if plan.gain < settings.min_gain && plan.limit != Some(GainLimit::Ceiling) {
            (plan.gain, plan.limit) = (settings.min_gain, Some(GainLimit::MinGain));
        }
        plan
    }

    /// Applies the gain.
    ///
    /// # Real-time
    /// One multiplication per sample.
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
    fn the_gain_reaches_the_target_or_reports_its_limit() {
        let settings = Settings::default();
        let plan = |lufs, peak| LinearGain::plan(Lufs::new(lufs), Db::new(peak), &settings);
        assert_eq!(plan(-30.0, -20.0).gain, Db::new(7.0));
        assert_eq!(plan(-30.0, -20.0).limit, None);
        assert_eq!(plan(-30.0, -5.0).gain, Db::new(4.0));
        assert_eq!(plan(-30.0, -5.0).limit, Some(GainLimit::Ceiling));
        assert_eq!(plan(-60.0, -50.0).limit, Some(GainLimit::MaxGain));
        assert_eq!(plan(30.0, 20.0).limit, Some(GainLimit::MinGain));
        assert_eq!(plan(-23.0, 45.0).gain, Db::new(-46.0));
        for silent in [f64::NEG_INFINITY, f64::INFINITY, f64::NAN] {
            assert_eq!(plan(silent, -3.0).limit, Some(GainLimit::Silence));
        }
    }

    #[test]
    fn a_silent_peak_does_not_limit_the_gain() {
        let plan = LinearGain::plan(Lufs::new(-30.0), Db::SILENCE, &Settings::default());
        assert_eq!((plan.gain, plan.limit), (Db::new(7.0), None));
    }
}
