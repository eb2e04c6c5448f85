//! Filter texts of Equalizer APO, REW and `AutoEq`, and back.
//!
//! The format is that of Equalizer APO's configuration, which the others write parts of: a line is
//! `Command: parameters`. What would change the sound and is not understood is refused, because a
//! correction of which a part is missing is worse than none; every other line is passed over with a
//! warning.

use core::fmt::Write as _;

use aulos_core::{ChannelMap, Db, SampleRate, Span};

use super::chain::{ChannelChain, MAX_CHANNEL_GAIN, MAX_DELAY, MAX_PREAMP, SoundChain};
use super::import_problem::{
    ImportProblem, ImportReason, ImportWarning, MAX_TEXT_BYTES, MAX_TEXT_LINES,
};
use super::text_line::{FilterLine, Words, is, number, parse_filter, quote};
use crate::equalizer::{EqualizerBand, FilterType, GAIN_DB, HIGHEST, InvalidBand, MAX_BANDS, Q};

/// How a text is read.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "all options are written down")]
pub struct ImportOptions {
    /// The sample rate for which widths in octaves and delays in samples are converted.
    pub rate: SampleRate,
    /// Whether gains and quality factors out of range are limited, with a warning.
    pub lenient: bool,
}

/// What a text contains.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "a chain and the remarks on it")]
pub struct ImportedChain {
    /// The chain; it is valid.
    pub chain: SoundChain,
    /// What was passed over or changed, in the order of the lines.
    pub warnings: Vec<ImportWarning>,
}

/// Reads a filter text.
///
/// # Errors
/// Every problem, in the order of the lines, of which there is at least one.
///
/// # Examples
/// ```
/// use aulos_core::SampleRate;
/// use aulos_dsp::sound::{ImportOptions, import};
///
/// let text = "Preamp: -6.1 dB\nFilter 1: ON LSC Fc 105 Hz Gain 5.0 dB Q 0.70\n";
/// let options = ImportOptions { rate: SampleRate::HZ_48000, lenient: false };
/// let chain = import(text, options).unwrap().chain;
/// assert_eq!((chain.left.bands.len(), chain.right.bands[0].hz), (1, 105.0));
/// ```
pub fn import(text: &str, options: ImportOptions) -> Result<ImportedChain, Vec<ImportProblem>> {
    let refuse = |line, reason| Err(vec![ImportProblem { line, reason }]);
    if text.len() > MAX_TEXT_BYTES {
        return refuse(1, ImportReason::TooLong);
    }
    if text.contains('\0') {
        return refuse(1, ImportReason::Binary);
    }
    if text.lines().nth(MAX_TEXT_LINES).is_some() {
        return refuse(MAX_TEXT_LINES + 1, ImportReason::TooManyLines);
    }
    let mut importer = Importer::new(options);
    let mut problems = Vec::new();
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        importer.line = index + 1;
        if let Err(reason) = importer.parse_line(line.trim()) {
            problems.push(ImportProblem { line: index + 1, reason });
        }
    }
    if problems.is_empty() { Ok(importer.finish()) } else { Err(problems) }
}

struct Importer {
    options: ImportOptions,
    chain: SoundChain,
    warnings: Vec<ImportWarning>,
    line: usize,
    /// Whether the following commands are for left and right.
    selected: [bool; 2],
    /// The line of the last delay.
    delay_line: Option<usize>,
}

impl Importer {
    fn new(options: ImportOptions) -> Self {
        let (chain, warnings) = (SoundChain::default(), Vec::new());
        Self { options, chain, warnings, line: 0, selected: [true; 2], delay_line: None }
    }

    fn parse_line(&mut self, line: &str) -> Result<(), ImportReason> {
        if line.is_empty() || line.starts_with(['#', '*']) {
            return Ok(());
        }
        let Some((command, words)) = line.split_once(':') else {
            if !HEADERS.iter().any(|header| line.starts_with(header)) {
                self.warn(ImportReason::UnknownLine(quote(line)));
            }
            return Ok(());
        };
        // `Filter 1` is the command `Filter`.
        let name = command.split_whitespace().next().unwrap_or_default();
        if let Some((command, why)) = REFUSED.iter().find(|(command, _)| is(command, name)) {
            return Err(ImportReason::Refused((*command).to_owned(), why));
        }
        match name.to_ascii_lowercase().as_str() {
            "preamp" => self.preamp(words),
            "filter" => self.filter(words),
            "channel" => self.channel(words),
            "delay" => self.delay(words),
            "copy" => self.copy(words),
            "filters" | "pipeline" | "devices" => Err(ImportReason::CamillaDsp),
            _ => {
                if !HEADERS.iter().any(|header| line.starts_with(header)) {
                    self.warn(ImportReason::UnknownLine(quote(line)));
                }
                Ok(())
            }
        }
    }

    fn finish(mut self) -> ImportedChain {
        let SoundChain { left, right, .. } = &mut self.chain;
        let common = left.delay.min(right.delay);
        if let Some(line) = self.delay_line.filter(|_| common > Span::ZERO) {
            left.delay -= common;
            right.delay -= common;
            self.warnings.push(ImportWarning { line, reason: ImportReason::CommonDelay });
            self.warnings.sort_by_key(|warning| warning.line);
        }
        ImportedChain { chain: self.chain, warnings: self.warnings }
    }

    fn warn(&mut self, reason: ImportReason) {
        self.warnings.push(ImportWarning { line: self.line, reason });
    }

    fn preamp(&mut self, words: &str) -> Result<(), ImportReason> {
        let db = Words::new(words).number("Preamp")?;
        if self.selected == [true; 2] {
            let sum = self.chain.preamp.unwrap_or(Db::ZERO).get() + db;
            self.chain.preamp = Some(in_range(sum, MAX_PREAMP)?);
            return Ok(());
        }
        for channel in self.selected() {
            channel.gain = in_range(channel.gain.get() + db, MAX_CHANNEL_GAIN)?;
        }
        Ok(())
    }

    fn filter(&mut self, words: &str) -> Result<(), ImportReason> {
        let rate = f64::from(self.options.rate.hz());
        let Some(line) = parse_filter(words, rate)? else { return Ok(()) };
        if line.hz > HIGHEST * rate {
            self.warn(ImportReason::AboveRate(line.hz));
            return Ok(());
        }
        let band = self.limit(line);
        band.validate(self.options.rate).map_err(ImportReason::OutOfRange)?;
        if self.selected().any(|channel| channel.bands.len() == MAX_BANDS) {
            return Err(ImportReason::TooManyBands);
        }
        self.selected().for_each(|channel| channel.bands.push(band));
        Ok(())
    }

    /// The band of a line; limits its values where that is allowed, and the default of a notch,
    /// which nobody has written.
    fn limit(&mut self, line: FilterLine) -> EqualizerBand {
        let FilterLine { filter_type, hz, mut gain_db, mut q, has_default_q } = line;
        let limits = [("gain_db", &mut gain_db, (-GAIN_DB, GAIN_DB), "dB"), ("q", &mut q, Q, "")];
        for (name, value, (min, max), unit) in limits {
            let may = self.options.lenient || (name == "q" && has_default_q);
            if may && !(min..=max).contains(value) {
                let wrong = InvalidBand { name, value: *value, min, max, unit };
                *value = value.clamp(min, max);
                let reason = ImportReason::Limited(wrong);
                self.warnings.push(ImportWarning { line: self.line, reason });
            }
        }
        EqualizerBand { filter_type, hz, gain: Db::new(gain_db), q }
    }

    fn channel(&mut self, words: &str) -> Result<(), ImportReason> {
        let mut selected = [false; 2];
        let mut words = Words::new(words);
        while let Some(word) = words.next() {
            match word.to_ascii_lowercase().as_str() {
                "l" | "1" => selected[0] = true,
                "r" | "2" => selected[1] = true,
                "all" => selected = [true; 2],
                _ => return Err(ImportReason::UnknownChannel(quote(word))),
            }
        }
        if selected == [false; 2] {
            return Err(ImportReason::Missing("Channel"));
        }
        self.selected = selected;
        Ok(())
    }

    fn delay(&mut self, text: &str) -> Result<(), ImportReason> {
        let wrong = || ImportReason::Delay(quote(text.trim()));
        let mut words = Words::new(text);
        let value = words.number("Delay")?;
        let seconds = match words.next() {
            Some(unit) if is(unit, "ms") => value / 1e3,
            Some(unit) if is(unit, "samples") => value / f64::from(self.options.rate.hz()),
            _ => return Err(wrong()),
        };
        if !(0.0..=MAX_DELAY.as_secs_f64()).contains(&seconds) {
            return Err(wrong());
        }
        for channel in self.selected() {
            channel.delay += ChannelChain::delay_of_ms(seconds * 1e3);
            if channel.delay > MAX_DELAY {
                return Err(wrong());
            }
        }
        self.delay_line = Some(self.line);
        Ok(())
    }

    fn copy(&mut self, words: &str) -> Result<(), ImportReason> {
        let plain = ChannelChain::default();
        if self.chain.map != ChannelMap::Stereo
            || self.chain.left != plain
            || self.chain.right != plain
        {
            return Err(ImportReason::LateMix);
        }
        self.chain.map = mix(words).ok_or(ImportReason::UnknownMix)?;
        Ok(())
    }

    fn selected(&mut self) -> impl Iterator<Item = &mut ChannelChain> {
        let SoundChain { left, right, .. } = &mut self.chain;
        let channels = [left, right].into_iter().zip(self.selected);
        channels.filter_map(|(channel, is_selected)| is_selected.then_some(channel))
    }
}

fn in_range(db: f64, most: Db) -> Result<Db, ImportReason> {
    if db.abs() <= most.get() { Ok(Db::new(db)) } else { Err(ImportReason::Gain(db)) }
}

/// The map of `L=R R=L`, say.
fn mix(words: &str) -> Option<ChannelMap> {
    let channel = |name: &str| match name.to_ascii_lowercase().as_str() {
        "l" | "1" => Some(0),
        "r" | "2" => Some(1),
        _ => None,
    };
    // The factors of left and right, for each output.
    let mut outputs = [[1.0, 0.0], [0.0, 1.0]];
    for assignment in words.split_whitespace() {
        let (to, sum) = assignment.split_once('=')?;
        let mut factors = [0.0; 2];
        for term in sum.split('+') {
            let (factor, from) = term.split_once('*').unwrap_or(("1", term));
            factors[channel(from)?] += number(factor)?;
        }
        outputs[channel(to)?] = factors;
    }
    let is_half = |factor: f64| (factor - 0.5).abs() < MIX_TOLERANCE;
    let is_one = |factor: f64| (factor - 1.0).abs() < MIX_TOLERANCE;
    let kind = |[left, right]: [f64; 2]| match [left, right] {
        _ if is_half(left) && is_half(right) => Some('m'),
        _ if is_one(left) && right.abs() < MIX_TOLERANCE => Some('l'),
        _ if is_one(right) && left.abs() < MIX_TOLERANCE => Some('r'),
        _ => None,
    };
    match [kind(outputs[0])?, kind(outputs[1])?] {
        ['l', 'r'] => Some(ChannelMap::Stereo),
        ['r', 'l'] => Some(ChannelMap::Swap),
        ['l', 'l'] => Some(ChannelMap::Left),
        ['r', 'r'] => Some(ChannelMap::Right),
        ['m', 'm'] => Some(ChannelMap::Mono),
        _ => None,
    }
}

/// Writes a chain as Equalizer APO reads it; [`import`] gives the same chain again, except for what
/// the format has no words for: the limiter, and a single channel of more than two.
#[must_use]
pub fn export(chain: &SoundChain) -> String {
    let mut out = String::new();
    let mix = match chain.map {
        ChannelMap::Swap => "L=R R=L",
        ChannelMap::Left => "R=L",
        ChannelMap::Right => "L=R",
        ChannelMap::Mono => "L=0.5*L+0.5*R R=0.5*L+0.5*R",
        _ => "",
    };
    if !mix.is_empty() {
        // Writing to a String cannot fail; the same holds below.
        let _written = writeln!(out, "Copy: {mix}");
    }
    if let Some(preamp) = chain.preamp {
        let _written = writeln!(out, "Preamp: {} dB", preamp.get());
    }
    // A gain of both channels would be read as the preamplification.
    if chain.left == chain.right && chain.left.gain == Db::ZERO {
        export_channel(&chain.left, &mut out);
        return out;
    }
    for (name, channel) in [("L", &chain.left), ("R", &chain.right)] {
        let _written = writeln!(out, "Channel: {name}");
        export_channel(channel, &mut out);
    }
    out
}

fn export_channel(channel: &ChannelChain, out: &mut String) {
    if channel.gain != Db::ZERO {
        let _written = writeln!(out, "Preamp: {} dB", channel.gain.get());
    }
    if channel.delay != Span::ZERO {
        let _written = writeln!(out, "Delay: {} ms", channel.delay_ms());
    }
    for (index, band) in channel.bands.iter().enumerate() {
        let kind = match band.filter_type {
            FilterType::Peaking => "PK",
            FilterType::LowShelf => "LSC",
            FilterType::HighShelf => "HSC",
            FilterType::HighPass => "HPQ",
            FilterType::LowPass => "LPQ",
            FilterType::Notch => "NO",
            FilterType::AllPass => "AP",
        };
        let _written = write!(out, "Filter {}: ON {kind} Fc {} Hz", index + 1, band.hz);
        if band.filter_type.has_gain() {
            let _written = write!(out, " Gain {} dB", band.gain.get());
        }
        let _written = writeln!(out, " Q {}", band.q);
    }
}

/// How exact the factors of a mix have to be: -6 dB is nearly a half.
const MIX_TOLERANCE: f64 = 0.01;

/// Beginnings of the lines that REW writes above its filters.
const HEADERS: &[&str] = &[
    "Filter Settings file",
    "Room EQ V",
    "Dated",
    "Notes",
    "Equaliser",
    "Average",
    "Filter Settings",
];

/// Commands of Equalizer APO that would change the sound.
const REFUSED: &[(&str, &str)] = &[
    ("Convolution", "impulse responses are for CamillaDSP behind the client"),
    ("GraphicEQ", "a curve needs convolution, which is for CamillaDSP behind the client"),
    ("Include", "a text is imported by itself; paste the other file's lines into it"),
    ("Device", "a chain belongs to one client"),
    ("Stage", "a chain has one stage"),
    ("If", "conditions are not evaluated"),
    ("ElseIf", "conditions are not evaluated"),
    ("Else", "conditions are not evaluated"),
    ("EndIf", "conditions are not evaluated"),
    ("Eval", "expressions are not evaluated"),
    ("VSTPlugin", "plug-ins are not loaded"),
    ("LoudnessCorrection", "a chain does not depend on the volume"),
];
