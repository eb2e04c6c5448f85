//! Settings of a normalizer.

use core::fmt;
use core::str::FromStr;

use aulos_core::{Db, Lufs};

/// Look-ahead of a normalizer, which is also its delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LookAhead {
    /// 3 s: a change of the level is known before it is heard.
    Full,
    /// 400 ms: for interactive use without playing along.
    Mid,
    /// 5 ms, the limiter's look-ahead: for live sound. The gain follows the input so far.
    Low,
    /// No delay: the gain of [`LookAhead::Low`] without a limiter, so peaks can exceed the ceiling.
    GainOnly,
}

/// The part of the programme whose loudness is normalized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Memory {
    /// The last seconds that were not silent, 10 to 600.
    Sliding {
        /// Seconds.
        seconds: u32,
    },
    /// All since the last permanent change of level. After hours the gain hardly moves any more.
    Endless,
}

/// Settings of a normalizer. Each can be changed while it runs.
///
/// # Examples
/// ```
/// use aulos_core::Lufs;
/// use aulos_dsp::normalize::{NormalizerPreset, Settings};
///
/// let settings = Settings { target: Lufs::new(-20.0), ..NormalizerPreset::Podcast.settings() };
/// assert!(settings.validate().is_ok());
/// let wrong = Settings { target: Lufs::new(3.0), ..settings };
/// let why = wrong.validate().unwrap_err().to_string();
/// assert_eq!(why, "target: 3 LUFS is not between -70 and -5");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "constructed with `..Settings::default()`")]
pub struct Settings {
    /// Target loudness, -70 to -5 LUFS. Default: -23.
    pub target: Lufs,
    /// How much quieter than the target a passage may be, and half of it how much louder, before
    /// the gain follows: 1 to 50 LU. A programme with a smaller loudness range keeps it. Default:
    /// 7.
    pub tolerance: Db,
    /// Maximum true peak of the output, -9 to 0 dBTP. Default: -1.
    pub ceiling: Db,
    /// Minimum gain, -60 to 0 dB. Default: -40.
    pub min_gain: Db,
    /// Maximum gain, 0 to 60 dB. Default: +20.
    pub max_gain: Db,
    /// Maximum rise of the gain per second, 0.1 to 20 dB; twice as much within ten seconds after a
    /// permanent change of level. Default: 3.
    pub max_rise: Db,
    /// Maximum fall of the gain per second, 0.1 to 60 dB, unless a louder programme has certainly
    /// begun: then it is done within half a second. Default: 9.
    pub max_fall: Db,
    /// Momentary loudness, -70 to -20 LUFS, below which sound counts as silence and the gain is
    /// held. Default: -50.
    pub gate: Lufs,
    /// The part of the programme that counts. Default: the last 60 s.
    pub memory: Memory,
    /// Whether a mono programme is played by two loudspeakers, so that its energy counts twice.
    /// Default: no.
    pub dual_mono: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            target: Lufs::new(-23.0),
            tolerance: Db::new(7.0),
            ceiling: Db::new(-1.0),
            min_gain: Db::new(-40.0),
            max_gain: Db::new(20.0),
            max_rise: Db::new(3.0),
            max_fall: Db::new(9.0),
            gate: Lufs::new(-50.0),
            memory: Memory::Sliding { seconds: 60 },
            dual_mono: false,
        }
    }
}

impl Settings {
    /// Checks that all values are in range.
    ///
    /// # Errors
    /// [`InvalidSetting`] with the first that is not, and its range.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        let numbers = [
            ("target", self.target.get(), TARGET_RANGE, "LUFS"),
            ("tolerance", self.tolerance.get(), TOLERANCE_RANGE, "LU"),
            ("ceiling", self.ceiling.get(), CEILING_RANGE, "dBTP"),
            ("min_gain", self.min_gain.get(), (-MAX_GAIN, 0.0), "dB"),
            ("max_gain", self.max_gain.get(), (0.0, MAX_GAIN), "dB"),
            ("max_rise", self.max_rise.get(), MAX_RISE_RANGE, "dB/s"),
            ("max_fall", self.max_fall.get(), MAX_FALL_RANGE, "dB/s"),
            ("gate", self.gate.get(), GATE_RANGE, "LUFS"),
        ];
        for (name, value, (min, max), unit) in numbers {
            if !(min..=max).contains(&value) {
                return Err(InvalidSetting { name, value, min, max, unit });
            }
        }
        if let Memory::Sliding { seconds } = self.memory
            && !(MEMORY_RANGE_S.0..=MEMORY_RANGE_S.1).contains(&seconds)
        {
            let [value, min, max] = [seconds, MEMORY_RANGE_S.0, MEMORY_RANGE_S.1].map(f64::from);
            return Err(InvalidSetting { name: "memory", value, min, max, unit: "s" });
        }
        Ok(())
    }
}

/// Settings of common standards and platforms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NormalizerPreset {
    /// EBU R 128: -23 LUFS, -1 dBTP.
    R128,
    /// ATSC A/85: -24 LUFS, -2 dBTP.
    A85,
    /// Louder music services: -14 LUFS, -1 dBTP.
    Stream14,
    /// AES TD1008 and quieter music services: -16 LUFS, -1 dBTP.
    Stream16,
    /// Speech for mobile devices: -16 LUFS, -1 dBTP, a range of 5 LU.
    Podcast,
    /// `ReplayGain` 2.0: -18 LUFS, -1 dBTP.
    ReplayGain,
}

impl NormalizerPreset {
    /// Every preset.
    pub const ALL: [Self; 6] =
        [Self::R128, Self::A85, Self::Stream14, Self::Stream16, Self::Podcast, Self::ReplayGain];

    /// Its name in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::R128 => "r128",
            Self::A85 => "a85",
            Self::Stream14 => "stream-14",
            Self::Stream16 => "stream-16",
            Self::Podcast => "podcast",
            Self::ReplayGain => "replaygain",
        }
    }

    /// The settings; values that the preset does not define are the defaults.
    #[must_use]
    pub fn settings(self) -> Settings {
        let (target, ceiling, tolerance) = match self {
            Self::R128 => (-23.0, -1.0, 7.0),
            Self::A85 => (-24.0, -2.0, 7.0),
            Self::Stream14 => (-14.0, -1.0, 7.0),
            Self::Stream16 => (-16.0, -1.0, 7.0),
            Self::Podcast => (-16.0, -1.0, 5.0),
            Self::ReplayGain => (-18.0, -1.0, 7.0),
        };
        let (target, ceiling, tolerance) =
            (Lufs::new(target), Db::new(ceiling), Db::new(tolerance));
        Settings { target, ceiling, tolerance, ..Settings::default() }
    }
}

impl FromStr for NormalizerPreset {
    type Err = UnknownPreset;
    fn from_str(text: &str) -> Result<Self, UnknownPreset> {
        Self::ALL.into_iter().find(|preset| preset.name() == text).ok_or(UnknownPreset)
    }
}

/// The name is not that of a preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "it has no detail")]
pub struct UnknownPreset;

impl fmt::Display for UnknownPreset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown preset; expected one of:")?;
        NormalizerPreset::ALL.iter().try_for_each(|preset| write!(f, " {}", preset.name()))
    }
}

impl core::error::Error for UnknownPreset {}

/// A setting that is out of range.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct InvalidSetting {
    /// Name of the field of [`Settings`].
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
    /// Unit of all three.
    pub unit: &'static str,
}

impl fmt::Display for InvalidSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, min, max, unit } = self;
        write!(f, "{name}: {value} {unit} is not between {min} and {max}")
    }
}

impl core::error::Error for InvalidSetting {}

const TARGET_RANGE: (f64, f64) = (-70.0, -5.0);
const TOLERANCE_RANGE: (f64, f64) = (1.0, 50.0);
const CEILING_RANGE: (f64, f64) = (-9.0, 0.0);
const MAX_GAIN: f64 = 60.0;
const MAX_RISE_RANGE: (f64, f64) = (0.1, 20.0);
const MAX_FALL_RANGE: (f64, f64) = (0.1, 60.0);
const GATE_RANGE: (f64, f64) = (-70.0, -20.0);
const MEMORY_RANGE_S: (u32, u32) = (10, 600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_checked_on_both_sides_and_named_in_the_error() {
        type Change = fn(&mut Settings, f64);
        let changes: [(&str, Change, f64, f64); 9] = [
            ("target", |s, x| s.target = Lufs::new(x), -70.0, -5.0),
            ("tolerance", |s, x| s.tolerance = Db::new(x), 1.0, 50.0),
            ("ceiling", |s, x| s.ceiling = Db::new(x), -9.0, 0.0),
            ("min_gain", |s, x| s.min_gain = Db::new(x), -60.0, 0.0),
            ("max_gain", |s, x| s.max_gain = Db::new(x), 0.0, 60.0),
            ("max_rise", |s, x| s.max_rise = Db::new(x), 0.1, 20.0),
            ("max_fall", |s, x| s.max_fall = Db::new(x), 0.1, 60.0),
            ("gate", |s, x| s.gate = Lufs::new(x), -70.0, -20.0),
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds")]
            ("memory", |s, x| s.memory = Memory::Sliding { seconds: x as u32 }, 10.0, 600.0),
        ];
        for (name, change, min, max) in changes {
            for (value, good) in [(min, true), (max, true), (min - 1.0, false), (max + 1.0, false)]
            {
                let mut settings = Settings::default();
                change(&mut settings, value);
                let outcome = settings.validate();
                assert_eq!(outcome.is_ok(), good, "{name} {value}");
                assert!(outcome.err().is_none_or(|wrong| wrong.to_string().starts_with(name)));
            }
        }
        let silent = Settings { target: Lufs::new(f64::NAN), ..Settings::default() };
        assert!(silent.validate().is_err());
    }

    #[test]
    fn presets_parse_by_name_and_their_settings_are_valid() {
        for preset in NormalizerPreset::ALL {
            assert_eq!(preset.name().parse(), Ok(preset));
            assert!(preset.settings().validate().is_ok());
        }
        let wrong = "loud".parse::<NormalizerPreset>().unwrap_err().to_string();
        assert!(wrong.ends_with("r128 a85 stream-14 stream-16 podcast replaygain"), "{wrong}");
    }
}
