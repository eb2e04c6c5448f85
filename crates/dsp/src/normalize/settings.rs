//! What a normaliser is asked for.

use core::fmt;
use core::str::FromStr;

use aulos_core::{Db, Lufs};

/// How far ahead a normaliser hears, which is by how much it delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// 3 s: the gain is there before a loud passage is.
    Full,
    /// 400 ms: for what is answered, but not played along with.
    Mid,
    /// 5 ms, those of the limiter: for live sound. The gain follows what has been heard.
    Low,
    /// Nothing: the same gain as [`Mode::Low`] and no limiter, so peaks can pass the ceiling.
    GainOnly,
}

/// How much of the programme counts as its loudness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Memory {
    /// The last so many seconds that were not silent, 10 to 600.
    Sliding {
        /// Seconds.
        seconds: u32,
    },
    /// All since the level last changed for good. After hours the gain hardly moves any more.
    Endless,
}

/// Wishes for a normaliser. Each can be changed while it runs.
///
/// # Examples
/// ```
/// use aulos_core::Lufs;
/// use aulos_dsp::normalize::{Preset, Settings};
///
/// let settings = Settings { target: Lufs::new(-20.0), ..Preset::Podcast.settings() };
/// assert!(settings.check().is_ok());
/// let wrong = Settings { target: Lufs::new(3.0), ..settings };
/// let why = wrong.check().unwrap_err().to_string();
/// assert_eq!(why, "target: 3 LUFS is not between -70 and -5");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "written with `..Settings::default()`")]
pub struct Settings {
    /// The loudness that comes out, -70 to -5 LUFS. Default: -23.
    pub target: Lufs,
    /// How much quieter than the target a passage may stay, and half of it louder, before the gain
    /// goes there: 1 to 50 LU. A programme whose loudness range is smaller keeps it. Default: 7.
    pub range: Db,
    /// The highest true peak that comes out, -9 to 0 dBTP. Default: -1.
    pub ceiling: Db,
    /// The least gain, -60 to 0 dB. Default: -40.
    pub min_gain: Db,
    /// The greatest gain, 0 to 60 dB. Default: +20.
    pub max_gain: Db,
    /// How much the gain may rise in a second, 0.1 to 20 dB; twice as much within ten seconds after
    /// the level has changed for good. Default: 3.
    pub rise: Db,
    /// How much the gain may fall in a second, 0.1 to 60 dB. Default: 9.
    pub fall: Db,
    /// Below this momentary loudness, -70 to -20 LUFS, sound is silence, and the gain is held.
    /// Default: -50.
    pub gate: Lufs,
    /// How much of the programme counts. Default: the last 60 s.
    pub memory: Memory,
    /// Whether a mono programme is going to be heard from two loudspeakers, and counts twice.
    /// Default: no.
    pub dual_mono: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            target: Lufs::new(-23.0),
            range: Db::new(7.0),
            ceiling: Db::new(-1.0),
            min_gain: Db::new(-40.0),
            max_gain: Db::new(20.0),
            rise: Db::new(3.0),
            fall: Db::new(9.0),
            gate: Lufs::new(-50.0),
            memory: Memory::Sliding { seconds: 60 },
            dual_mono: false,
        }
    }
}

impl Settings {
    /// Whether all values lie where they may.
    ///
    /// # Errors
    /// [`InvalidSettings`] names the first that does not, and its bounds.
    pub fn check(&self) -> Result<(), InvalidSettings> {
        let numbers = [
            ("target", self.target.get(), TARGET, "LUFS"),
            ("range", self.range.get(), RANGE, "LU"),
            ("ceiling", self.ceiling.get(), CEILING, "dBTP"),
            ("min_gain", self.min_gain.get(), (-MOST_GAIN, 0.0), "dB"),
            ("max_gain", self.max_gain.get(), (0.0, MOST_GAIN), "dB"),
            ("rise", self.rise.get(), RISE, "dB/s"),
            ("fall", self.fall.get(), FALL, "dB/s"),
            ("gate", self.gate.get(), GATE, "LUFS"),
        ];
        for (name, value, (least, most), unit) in numbers {
            if !(least..=most).contains(&value) {
                return Err(InvalidSettings { name, value, least, most, unit });
            }
        }
        if let Memory::Sliding { seconds } = self.memory
            && !(MEMORY_S.0..=MEMORY_S.1).contains(&seconds)
        {
            let [value, least, most] = [seconds, MEMORY_S.0, MEMORY_S.1].map(f64::from);
            return Err(InvalidSettings { name: "memory", value, least, most, unit: "s" });
        }
        Ok(())
    }
}

/// Settings that people have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Preset {
    /// EBU R 128: -23 LUFS, -1 dBTP.
    R128,
    /// ATSC A/85: -24 LUFS, -2 dBTP.
    A85,
    /// The louder half of music services: -14 LUFS, -1 dBTP.
    Stream14,
    /// AES TD1008 and the quieter half: -16 LUFS, -1 dBTP.
    Stream16,
    /// Speech for phones: -16 LUFS, -1 dBTP, a range of 5 LU.
    Podcast,
    /// `ReplayGain` 2.0: -18 LUFS, -1 dBTP.
    ReplayGain,
}

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 6] =
        [Self::R128, Self::A85, Self::Stream14, Self::Stream16, Self::Podcast, Self::ReplayGain];

    /// What it is called in configurations.
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

    /// The settings; what the preset does not say is the default.
    #[must_use]
    pub fn settings(self) -> Settings {
        let (target, ceiling, range) = match self {
            Self::R128 => (-23.0, -1.0, 7.0),
            Self::A85 => (-24.0, -2.0, 7.0),
            Self::Stream14 => (-14.0, -1.0, 7.0),
            Self::Stream16 => (-16.0, -1.0, 7.0),
            Self::Podcast => (-16.0, -1.0, 5.0),
            Self::ReplayGain => (-18.0, -1.0, 7.0),
        };
        let (target, ceiling, range) = (Lufs::new(target), Db::new(ceiling), Db::new(range));
        Settings { target, ceiling, range, ..Settings::default() }
    }
}

impl FromStr for Preset {
    type Err = UnknownPreset;
    fn from_str(text: &str) -> Result<Self, UnknownPreset> {
        Self::ALL.into_iter().find(|preset| preset.name() == text).ok_or(UnknownPreset)
    }
}

/// No preset has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "there is nothing to add")]
pub struct UnknownPreset;

impl fmt::Display for UnknownPreset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown preset; there are")?;
        Preset::ALL.iter().try_for_each(|preset| write!(f, " {}", preset.name()))
    }
}

impl core::error::Error for UnknownPreset {}

/// A value that a normaliser cannot have.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct InvalidSettings {
    /// Which of the [`Settings`].
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// The lowest that it may have.
    pub least: f64,
    /// The highest.
    pub most: f64,
    /// What all three are counted in.
    pub unit: &'static str,
}

impl fmt::Display for InvalidSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, least, most, unit } = self;
        write!(f, "{name}: {value} {unit} is not between {least} and {most}")
    }
}

impl core::error::Error for InvalidSettings {}

const TARGET: (f64, f64) = (-70.0, -5.0);
const RANGE: (f64, f64) = (1.0, 50.0);
const CEILING: (f64, f64) = (-9.0, 0.0);
const MOST_GAIN: f64 = 60.0;
const RISE: (f64, f64) = (0.1, 20.0);
const FALL: (f64, f64) = (0.1, 60.0);
const GATE: (f64, f64) = (-70.0, -20.0);
const MEMORY_S: (u32, u32) = (10, 600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bound_holds_on_both_sides_and_is_named() {
        type Change = fn(&mut Settings, f64);
        let changes: [(&str, Change, f64, f64); 9] = [
            ("target", |s, x| s.target = Lufs::new(x), -70.0, -5.0),
            ("range", |s, x| s.range = Db::new(x), 1.0, 50.0),
            ("ceiling", |s, x| s.ceiling = Db::new(x), -9.0, 0.0),
            ("min_gain", |s, x| s.min_gain = Db::new(x), -60.0, 0.0),
            ("max_gain", |s, x| s.max_gain = Db::new(x), 0.0, 60.0),
            ("rise", |s, x| s.rise = Db::new(x), 0.1, 20.0),
            ("fall", |s, x| s.fall = Db::new(x), 0.1, 60.0),
            ("gate", |s, x| s.gate = Lufs::new(x), -70.0, -20.0),
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds")]
            ("memory", |s, x| s.memory = Memory::Sliding { seconds: x as u32 }, 10.0, 600.0),
        ];
        for (name, change, least, most) in changes {
            for (value, good) in
                [(least, true), (most, true), (least - 1.0, false), (most + 1.0, false)]
            {
                let mut settings = Settings::default();
                change(&mut settings, value);
                let outcome = settings.check();
                assert_eq!(outcome.is_ok(), good, "{name} {value}");
                assert!(outcome.err().is_none_or(|wrong| wrong.to_string().starts_with(name)));
            }
        }
        let silent = Settings { target: Lufs::new(f64::NAN), ..Settings::default() };
        assert!(silent.check().is_err());
    }

    #[test]
    fn presets_are_found_by_name_and_can_be_had() {
        for preset in Preset::ALL {
            assert_eq!(preset.name().parse(), Ok(preset));
            assert!(preset.settings().check().is_ok());
        }
        let wrong = "loud".parse::<Preset>().unwrap_err().to_string();
        assert!(wrong.ends_with("r128 a85 stream-14 stream-16 podcast replaygain"), "{wrong}");
    }
}
