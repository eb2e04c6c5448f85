//! The loudness that a gain leads to.

use std::str::FromStr;

use aulos_core::{Db, Lufs};

/// A target, as a number or by the name of who asks for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Target(Lufs);

impl Target {
    /// What a programme of this loudness has to be changed by.
    pub(super) fn gain(self, integrated: Option<Lufs>) -> Option<Db> {
        integrated.map(|integrated| self.0 - integrated)
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((_, lufs)) = PRESETS.iter().find(|(name, _)| *name == text) {
            return Ok(Self(Lufs::new(*lufs)));
        }
        match text.parse() {
            Ok(lufs) if (LOWEST..=HIGHEST).contains(&lufs) => Ok(Self(Lufs::new(lufs))),
            Ok(_) => Err(format!("a target lies between {LOWEST} and {HIGHEST} LUFS")),
            Err(_) => {
                let names: Vec<_> = PRESETS.iter().map(|(name, _)| *name).collect();
                Err(format!("neither a number of LUFS nor one of {}", names.join(", ")))
            }
        }
    }
}

/// ReplayGain 2.0, EBU R 128, ATSC A/85, ARIB TR-B32, Free TV Australia OP-59.
const PRESETS: [(&str, f64); 5] =
    [("replaygain", -18.0), ("ebu", -23.0), ("atsc", -24.0), ("arib", -24.0), ("op59", -24.0)];

/// The absolute gate, below which nothing is measured, and full scale.
const LOWEST: f64 = -70.0;
const HIGHEST: f64 = 0.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_number_or_a_name() {
        let lufs = |text: &str| text.parse::<Target>().map(|target| target.0.get());
        assert_eq!(lufs("-23"), Ok(-23.0));
        assert_eq!(lufs("-16.5"), Ok(-16.5));
        assert_eq!(lufs("ebu"), Ok(-23.0));
        for wrong in ["", "loud", "NaN", "inf", "-inf", "-71", "1", "-18 LUFS"] {
            assert!(lufs(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn silence_has_no_gain() {
        let target: Target = "-18".parse().unwrap();
        assert_eq!(target.gain(None), None);
        let gain = target.gain(Some(Lufs::new(-23.0))).unwrap().get();
        assert!((gain - 5.0).abs() < 1e-12);
    }
}
