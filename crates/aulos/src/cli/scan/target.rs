//! Target loudness.

use std::str::FromStr;

use aulos_core::{Db, Lufs};

/// A target loudness, as a number or by the name of a recommendation or service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::cli) struct LoudnessTarget(Lufs);

impl LoudnessTarget {
    pub(in crate::cli) const fn lufs(self) -> Lufs {
        self.0
    }

    /// The gain from a measured loudness to the target.
    pub(super) fn gain(self, integrated: Option<Lufs>) -> Option<Db> {
        integrated.map(|integrated| self.0 - integrated)
    }
}

impl FromStr for LoudnessTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((_, lufs)) = PRESETS.iter().find(|(name, _)| *name == text) {
            return Ok(Self(Lufs::new(*lufs)));
        }
        match text.parse() {
            Ok(lufs) if (LOWEST..=HIGHEST).contains(&lufs) => Ok(Self(Lufs::new(lufs))),
            Ok(_) => Err(format!("a target loudness is a number from {LOWEST} to {HIGHEST} LUFS")),
            Err(_) => {
                let names: Vec<_> = PRESETS.iter().map(|(name, _)| *name).collect();
                Err(format!("expected a number of LUFS or one of {}", names.join(", ")))
            }
        }
    }
}

/// Parses a peak ceiling in decibels, at most full scale.
pub(in crate::cli) fn ceiling(text: &str) -> Result<Db, String> {
    match text.parse() {
        Ok(db) if (LOWEST_CEILING..=0.0).contains(&db) => Ok(Db::new(db)),
        _ => Err(format!("a true peak limit is a number from {LOWEST_CEILING} to 0 dBTP")),
    }
}

/// ReplayGain 2.0, EBU R 128, ATSC A/85, ARIB TR-B32, Free TV Australia OP-59, AES TD1008; those of
/// services as known at the time of writing, which may change.
const PRESETS: [(&str, f64); 21] = [
    ("replaygain", -18.0),
    ("rg2", -18.0),
    ("ebu", -23.0),
    ("atsc", -24.0),
    ("a85", -24.0),
    ("arib", -24.0),
    ("op59", -24.0),
    ("podcast", -16.0),
    ("podcast-mono", -19.0),
    ("spotify", -14.0),
    ("spotify-loud", -11.0),
    ("spotify-quiet", -19.0),
    ("apple", -16.0),
    ("youtube", -14.0),
    ("tidal", -14.0),
    ("amazon", -14.0),
    ("deezer", -15.0),
    ("aes-music", -16.0),
    ("aes-album", -14.0),
    ("aes-speech", -18.0),
    ("r128", -23.0),
];

/// From the absolute gate, below which nothing is measured, to full scale.
const LOWEST: f64 = -70.0;
const HIGHEST: f64 = 0.0;

const LOWEST_CEILING: f64 = -30.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_number_or_a_name() {
        let lufs = |text: &str| text.parse::<LoudnessTarget>().map(|target| target.0.get());
        assert_eq!(lufs("-23"), Ok(-23.0));
        assert_eq!(lufs("-16.5"), Ok(-16.5));
        assert_eq!(lufs("ebu"), Ok(-23.0));
        for wrong in ["", "loud", "NaN", "inf", "-inf", "-71", "1", "-18 LUFS"] {
            assert!(lufs(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn target_names_are_unique_and_within_the_range() {
        for (n, (name, lufs)) in PRESETS.iter().enumerate() {
            assert!(PRESETS[..n].iter().all(|(other, _)| other != name), "{name}");
            assert!((LOWEST..=HIGHEST).contains(lufs) && name.parse::<f64>().is_err(), "{name}");
        }
    }

    #[test]
    fn a_ceiling_is_not_above_full_scale() {
        assert_eq!(ceiling("-1"), Ok(Db::new(-1.0)));
        for wrong in ["", "1", "NaN", "-31", "-1 dB"] {
            assert!(ceiling(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn silence_has_no_gain() {
        let target: LoudnessTarget = "-18".parse().unwrap();
        assert_eq!(target.gain(None), None);
        let gain = target.gain(Some(Lufs::new(-23.0))).unwrap().get();
        assert!((gain - 5.0).abs() < 1e-12);
    }
}
