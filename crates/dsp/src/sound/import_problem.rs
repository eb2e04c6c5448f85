//! Why a filter text is refused, and what is to be said about one that is not.

use core::fmt;

use super::chain::{MAX_CHANNEL_GAIN, MAX_DELAY, MAX_PREAMP};
use crate::equalizer::{InvalidBand, MAX_BANDS};

/// Longest text, in bytes: a hundred times what a room needs.
pub const MAX_TEXT_BYTES: usize = 256 * 1024;

/// Maximum number of lines, empty ones included.
pub const MAX_TEXT_LINES: usize = 512;

/// A remark on a line.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "a place and a fact")]
pub struct ImportWarning {
    /// The line, from 1.
    pub line: usize,
    /// What was passed over or changed.
    pub reason: ImportReason,
}

/// Why a text is refused.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "a place and a fact")]
pub struct ImportProblem {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: ImportReason,
}

impl fmt::Display for ImportProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl core::error::Error for ImportProblem {}

/// What is wrong with a line, or worth a remark. Texts are at most 40 characters of it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ImportReason {
    /// More than [`MAX_TEXT_BYTES`].
    TooLong,
    /// More than [`MAX_TEXT_LINES`].
    TooManyLines,
    /// No text: a file of REW's own (`.mdat`, `.req`), say.
    Binary,
    /// A configuration of `CamillaDSP`.
    CamillaDsp,
    /// A command that would change the sound, and why it is not possible.
    Refused(String, &'static str),
    /// An unknown line, passed over.
    UnknownLine(String),
    /// A filter that is neither on nor off.
    NoState(String),
    /// An unknown filter type.
    UnknownType(String),
    /// A band-pass filter.
    BandPass,
    /// An unknown word in a filter.
    UnknownWord(String),
    /// A value is missing.
    Missing(&'static str),
    /// A word in place of a number.
    NoNumber(&'static str, String),
    /// A slope in dB of a filter that is no shelf.
    SlopeOfNoShelf,
    /// A value out of range.
    OutOfRange(InvalidBand),
    /// The same, limited.
    Limited(InvalidBand),
    /// A band near or above half of the sample rate, left out.
    AboveRate(f64),
    /// More than [`MAX_BANDS`] bands on a channel.
    TooManyBands,
    /// A gain above [`MAX_PREAMP`] or, of a channel, above [`MAX_CHANNEL_GAIN`].
    Gain(f64),
    /// A channel other than left and right.
    UnknownChannel(String),
    /// A delay that is negative or longer than [`MAX_DELAY`].
    Delay(String),
    /// A delay of both channels, which would only take the client out of sync; removed.
    CommonDelay,
    /// A mix of channels other than a swap, a copy or the average.
    UnknownMix,
    /// A mix of channels after filters.
    LateMix,
}

impl fmt::Display for ImportReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "the text has more than {MAX_TEXT_BYTES} bytes"),
            Self::TooManyLines => write!(f, "the text has more than {MAX_TEXT_LINES} lines"),
            Self::Binary => f.write_str("this is no text; export the filters as text"),
            Self::CamillaDsp => {
                f.write_str("this is a configuration of CamillaDSP; filters as text are expected")
            }
            Self::Refused(command, why) => write!(f, "`{command}` is not possible: {why}"),
            Self::UnknownLine(line) => write!(f, "unknown line, ignored: `{line}`"),
            Self::NoState(word) => write!(f, "expected `ON` or `OFF`, found `{word}`"),
            Self::UnknownType(name) => write!(f, "unknown filter type `{name}`"),
            Self::BandPass => f.write_str("a band-pass filter is not possible: use `HP` and `LP`"),
            Self::UnknownWord(word) => write!(f, "unknown word `{word}` in a filter"),
            Self::Missing(name) => write!(f, "`{name}` is missing"),
            Self::NoNumber(name, word) => write!(f, "`{name}` needs a number, not `{word}`"),
            Self::SlopeOfNoShelf => f.write_str("only a shelf has a slope in dB"),
            Self::OutOfRange(wrong) => write!(f, "{wrong}"),
            Self::Limited(wrong) => write!(f, "{wrong}; the nearest value is used"),
            Self::AboveRate(hz) => {
                write!(f, "{hz} Hz is above 0.45 times the sample rate; the band is left out")
            }
            Self::TooManyBands => write!(f, "a channel has at most {MAX_BANDS} bands"),
            Self::Gain(db) => write!(
                f,
                "{db} dB: a gain is at most {} dB, of a channel {}",
                MAX_PREAMP.get(),
                MAX_CHANNEL_GAIN.get()
            ),
            Self::UnknownChannel(name) => write!(f, "channel `{name}`: use L, R or all"),
            Self::Delay(text) => {
                write!(f, "delay `{text}`: use 0 to {} ms, or samples", MAX_DELAY.as_millis())
            }
            Self::CommonDelay => f.write_str(
                "the delay that both channels have is left out, because clients play in sync",
            ),
            Self::UnknownMix => {
                f.write_str("only a swap, a copy or the average of left and right is possible")
            }
            Self::LateMix => f.write_str("channels can only be mixed before the first filter"),
        }
    }
}
