//! What follows the volume that the server sets.

use core::fmt;
use core::str::FromStr;
use std::path::PathBuf;

/// How volume and mute are applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mixer {
    /// The player scales the samples.
    #[default]
    Software,
    /// Nothing: the samples stay as they are.
    None,
    /// A program, which is called as `PATH --volume 0.5 --mute false`.
    Script(PathBuf),
}

impl FromStr for Mixer {
    type Err = InvalidMixer;

    /// Parses `software`, `none` or `script:PATH`.
    fn from_str(text: &str) -> Result<Self, InvalidMixer> {
        match text.split_once(':') {
            None if text == "software" => Ok(Self::Software),
            None if text == "none" => Ok(Self::None),
            Some(("script", path)) if !path.is_empty() => Ok(Self::Script(path.into())),
            _ => Err(InvalidMixer(text.to_owned())),
        }
    }
}

/// This text does not name a mixer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidMixer(String);

impl fmt::Display for InvalidMixer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown mixer `{}`; expected software, none or script:PATH", self.0)
    }
}

impl core::error::Error for InvalidMixer {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixers_are_parsed_and_others_are_refused() {
        assert_eq!("software".parse(), Ok(Mixer::Software));
        assert_eq!("none".parse(), Ok(Mixer::None));
        assert_eq!("script:/bin/vol:1".parse(), Ok(Mixer::Script("/bin/vol:1".into())));
        for text in ["", "script", "script:", "hardware", "none:1"] {
            assert_eq!(text.parse::<Mixer>(), Err(InvalidMixer(text.to_owned())));
        }
    }
}
