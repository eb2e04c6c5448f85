//! The words of one filter line.

use super::import_problem::ImportReason;
use super::width::{DEFAULT_SLOPE, center_of_corner, q_of_bandwidth, q_of_slope, slope_of_q};
use crate::equalizer::FilterType;

/// A filter line, read but not checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FilterLine {
    pub(super) filter_type: FilterType,
    pub(super) hz: f64,
    pub(super) gain_db: f64,
    pub(super) q: f64,
    /// No width is given, and the type has a default.
    pub(super) has_default_q: bool,
}

/// How wide a filter is, as written.
#[derive(Clone, Copy, Debug)]
enum Width {
    Q(f64),
    Octaves(f64),
    /// In dB per octave.
    Slope(f64),
}

/// Shape and width rule of a type in Equalizer APO.
#[derive(Clone, Copy)]
enum Shape {
    /// The width has to be given.
    Fixed(FilterType),
    /// The width has this default.
    WithDefault(FilterType, f64),
    /// A shelf whose frequency is its corner where a width is given.
    Corner(FilterType),
    /// A shelf whose frequency is its center.
    Center(FilterType),
}

/// Reads what follows `Filter N:`. `None` for a filter that is off or unused.
pub(super) fn parse_filter(words: &str, rate: f64) -> Result<Option<FilterLine>, ImportReason> {
    let mut words = Words::new(words);
    match words.next() {
        Some(word) if is(word, "OFF") => return Ok(None),
        Some(word) if is(word, "ON") => {}
        other => return Err(ImportReason::NoState(quote(other.unwrap_or_default()))),
    }
    let name = words.next().unwrap_or_default();
    if is(name, "None") {
        return Ok(None);
    }
    let shape = shape_of(name)?;
    let mut width = None;
    if let Some(slope) = words.peek().and_then(slope) {
        words.next();
        words.skip_unit("dB");
        width = Some(Width::Slope(slope));
    }
    let (mut hz, mut gain) = (None, None);
    while let Some(word) = words.next() {
        if is(word, "Fc") {
            hz = Some(words.number("Fc")?);
            words.skip_unit("Hz");
        } else if is(word, "Gain") {
            gain = Some(words.number("Gain")?);
            words.skip_unit("dB");
        } else if is(word, "Q") {
            width = Some(Width::Q(words.number("Q")?));
        } else if is(word, "BW") {
            words.skip_unit("Oct");
            width = Some(Width::Octaves(words.number("BW")?));
        } else if is(word, "BW/60") {
            width = Some(Width::Octaves(words.number("BW/60")? / 60.0));
        } else if is(word, "T60") {
            // The quality factor beside it says the same.
            words.skip_unit("target");
            words.number("T60")?;
            words.skip_unit("ms");
        } else {
            return Err(ImportReason::UnknownWord(quote(word)));
        }
    }
    let hz = hz.ok_or(ImportReason::Missing("Fc"))?;
    shape.line(hz, gain, width, rate).map(Some)
}

impl Shape {
    fn line(
        self,
        hz: f64,
        gain: Option<f64>,
        width: Option<Width>,
        rate: f64,
    ) -> Result<FilterLine, ImportReason> {
        let (Self::Fixed(filter_type)
        | Self::WithDefault(filter_type, _)
        | Self::Corner(filter_type)
        | Self::Center(filter_type)) = self;
        let gain_db = match gain {
            Some(gain) if filter_type.has_gain() => gain,
            None if filter_type.has_gain() => return Err(ImportReason::Missing("Gain")),
            _ => 0.0,
        };
        let is_shelf = matches!(self, Self::Corner(_) | Self::Center(_));
        let q = match (width, self) {
            (Some(Width::Q(q)), _) => q,
            (Some(Width::Octaves(octaves)), _) => q_of_bandwidth(octaves, hz, rate),
            (Some(Width::Slope(slope)), _) if is_shelf => q_of_slope(slope / 12.0, gain_db),
            (Some(Width::Slope(_)), _) => return Err(ImportReason::SlopeOfNoShelf),
            (None, Self::WithDefault(_, q)) => q,
            (None, Self::Corner(_) | Self::Center(_)) => q_of_slope(DEFAULT_SLOPE, gain_db),
            (None, Self::Fixed(_)) => return Err(ImportReason::Missing("Q")),
        };
        let slope = match width {
            Some(Width::Slope(slope)) => slope / 12.0,
            _ => slope_of_q(q, gain_db),
        };
        let hz = match (self, width) {
            (Self::Corner(FilterType::HighShelf), Some(_)) => hz / center_of_corner(slope, gain_db),
            (Self::Corner(_), Some(_)) => hz * center_of_corner(slope, gain_db),
            _ => hz,
        };
        let has_default_q = width.is_none();
        Ok(FilterLine { filter_type, hz, gain_db, q, has_default_q })
    }
}

fn shape_of(name: &str) -> Result<Shape, ImportReason> {
    let upper = name.to_ascii_uppercase();
    Ok(match upper.as_str() {
        "PK" | "PEQ" | "MODAL" => Shape::Fixed(FilterType::Peaking),
        "AP" => Shape::Fixed(FilterType::AllPass),
        "LP" | "LPQ" => Shape::WithDefault(FilterType::LowPass, BUTTERWORTH),
        "HP" | "HPQ" => Shape::WithDefault(FilterType::HighPass, BUTTERWORTH),
        "NO" => Shape::WithDefault(FilterType::Notch, NOTCH_Q),
        "LS" => Shape::Corner(FilterType::LowShelf),
        "HS" => Shape::Corner(FilterType::HighShelf),
        "LSC" | "LSQ" => Shape::Center(FilterType::LowShelf),
        "HSC" | "HSQ" => Shape::Center(FilterType::HighShelf),
        "BP" => return Err(ImportReason::BandPass),
        _ => return Err(ImportReason::UnknownType(quote(name))),
    })
}

/// The slope of `12dB`, or of `10.8` before `dB`.
fn slope(word: &str) -> Option<f64> {
    let end = word.len().saturating_sub(2);
    let is_unit = word.get(end..).is_some_and(|unit| is(unit, "dB"));
    number(if is_unit { &word[..end] } else { word })
}

/// The words of a line.
pub(super) struct Words<'a>(core::iter::Peekable<core::str::SplitWhitespace<'a>>);

impl<'a> Words<'a> {
    pub(super) fn new(line: &'a str) -> Self {
        Self(line.split_whitespace().peekable())
    }

    pub(super) fn next(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    fn peek(&mut self) -> Option<&'a str> {
        self.0.peek().copied()
    }

    /// The number after a word.
    pub(super) fn number(&mut self, name: &'static str) -> Result<f64, ImportReason> {
        let word = self.next().ok_or(ImportReason::Missing(name))?;
        number(word).ok_or_else(|| ImportReason::NoNumber(name, quote(word)))
    }

    /// Passes a unit that may be left out.
    pub(super) fn skip_unit(&mut self, unit: &str) {
        self.0.next_if(|word| is(word, unit));
    }
}

/// A finite number, with a point or a comma as decimal mark.
pub(super) fn number(word: &str) -> Option<f64> {
    let is_plain = word.bytes().all(|c| c.is_ascii_digit() || b"+-.,eE".contains(&c));
    let value: f64 = if is_plain { word.replace(',', ".").parse().ok()? } else { return None };
    value.is_finite().then_some(value)
}

pub(super) fn is(word: &str, other: &str) -> bool {
    word.eq_ignore_ascii_case(other)
}

/// A word of the text, for a message.
pub(super) fn quote(word: &str) -> String {
    word.chars().filter(|c| !c.is_control()).take(MAX_QUOTED).collect()
}

/// The quality factor of a filter without a resonance, as Equalizer APO has it.
const BUTTERWORTH: f64 = core::f64::consts::FRAC_1_SQRT_2;
/// The quality factor of a notch without a given one.
const NOTCH_Q: f64 = 30.0;
/// Characters of a word in a message.
const MAX_QUOTED: usize = 40;
