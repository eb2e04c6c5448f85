//! Rows of the scan: a table for people, JSON lines and CSV for programs.

use std::io::{self, Write};
use std::path::Path;

use aulos_core::{Db, Lufs};
use aulos_files::decode::FileWarning;
use aulos_files::scan::LoudnessSummary;
use serde_json::Value;

use super::warnings;
use crate::cli::output::console::{flush, write_error, write_now};

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RowFormat {
    Json,
    Csv,
    Table {
        true_peak: bool,
        /// To which the gains lead.
        target: Lufs,
    },
}

/// One file or album.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) path: &'a Path,
    pub(super) error: Option<String>,
    pub(super) sample_rate: Option<u32>,
    pub(super) channels: Option<usize>,
    pub(super) seconds: Option<f64>,
    pub(super) loudness: LoudnessSummary,
    pub(super) gain: Option<Db>,
    /// By how much the peak limits the gain.
    pub(super) lowered: Option<Db>,
    pub(super) warnings: Vec<FileWarning>,
}

/// Writes rows to standard output.
#[derive(Debug)]
pub(super) struct RowWriter(RowFormat);

impl RowWriter {
    pub(super) const fn new(format: RowFormat) -> Self {
        Self(format)
    }

    /// Writes the header of the format.
    pub(super) fn header(&self) -> io::Result<()> {
        match self.0 {
            RowFormat::Json => Ok(()),
            RowFormat::Csv => write(&(KEYS.join(",") + "\n")),
            RowFormat::Table { true_peak, target } => {
                let gain = format!("to {}", target.get());
                let peak = if true_peak { "TP dBTP" } else { "peak dB" };
                write(&format!(
                    "{:>7} {:>6} {:>7} {:>7} {peak:>7} {gain:>7}  path\n",
                    "I LUFS", "LRA LU", "max M", "max S"
                ))
            }
        }
    }

    /// Prints a row and flushes, because the reader may be waiting. An error of a file also goes to
    /// standard error, unless the table shows it.
    pub(super) fn print(&self, row: &Row<'_>) -> io::Result<()> {
        if !matches!(self.0, RowFormat::Table { .. }) {
            let name = plain(&row.path.to_string_lossy());
            if let Some(error) = &row.error {
                write_now(format_args!("{name}: {error}"));
            }
            for warning in &row.warnings {
                write_now(format_args!("{name}: warning: {warning}"));
            }
        }
        write(&match self.0 {
            RowFormat::Json => json(row),
            RowFormat::Csv => csv(row),
            RowFormat::Table { true_peak, .. } => table(row, true_peak),
        })
    }
}

impl RowWriter {
    /// Prints text that is not a row: below the table, or to standard error for the other formats.
    pub(super) fn print_message(&self, text: &str) -> io::Result<()> {
        if matches!(self.0, RowFormat::Table { .. }) {
            return write(text);
        }
        write_error(text.to_owned());
        flush();
        Ok(())
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The documented keys, in their order.
const KEYS: [&str; 15] = [
    "path",
    "ok",
    "error",
    "sample_rate",
    "channels",
    "seconds",
    "integrated_lufs",
    "loudness_range_lu",
    "max_momentary_lufs",
    "max_short_term_lufs",
    "true_peak_dbtp",
    "sample_peak_dbfs",
    "relative_threshold_lufs",
    "gain_db",
    "warnings",
];

fn values(row: &Row<'_>) -> [Value; KEYS.len()] {
    let figure = |value: Option<f64>| value.map_or(Value::Null, |value| rounded(value).into());
    let db = |value: Option<Db>| figure(value.map(Db::get));
    let lufs = |value: Option<Lufs>| figure(value.map(Lufs::get));
    let LoudnessSummary { integrated, range, max_momentary, max_short_term, .. } = row.loudness;
    [
        row.path.to_string_lossy().into(),
        row.error.is_none().into(),
        row.error.as_deref().into(),
        row.sample_rate.into(),
        row.channels.into(),
        figure(row.seconds),
        lufs(integrated),
        db(range),
        lufs(max_momentary),
        lufs(max_short_term),
        db(row.loudness.true_peak),
        db(row.loudness.sample_peak),
        lufs(row.loudness.relative_threshold),
        db(row.gain),
        warnings::to_json(&row.warnings),
    ]
}

/// Rounds to a millionth: finer than the agreement of any two meters, and equal on all processors.
fn rounded(value: f64) -> f64 {
    // Avoids -0.0.
    (value * 1e6).round() / 1e6 + 0.0
}

fn json(row: &Row<'_>) -> String {
    // Written by hand, because a map would sort the keys.
    let pairs = KEYS.iter().zip(values(row)).map(|(key, value)| format!("\"{key}\":{value}"));
    format!("{{{}}}\n", pairs.collect::<Vec<_>>().join(","))
}

/// RFC 4180; missing values are empty.
fn csv(row: &Row<'_>) -> String {
    let quoted = |text: String| {
        if text.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text
        }
    };
    let fields = values(row).map(|value| match value {
        Value::Null => String::new(),
        Value::String(text) => quoted(text),
        Value::Array(_) => quoted(messages(row).join("; ")),
        other => other.to_string(),
    });
    fields.join(",") + "\n"
}

/// The warnings as sentences.
fn messages(row: &Row<'_>) -> Vec<String> {
    row.warnings.iter().map(ToString::to_string).collect()
}

fn table(row: &Row<'_>, true_peak: bool) -> String {
    let cell = |value: Option<f64>, width: usize| match value {
        Some(value) => format!("{value:>width$.1}"),
        None => format!("{:>width$}", "-"),
    };
    let it = &row.loudness;
    let peak = if true_peak { it.true_peak } else { it.sample_peak };
    let cells = [
        cell(it.integrated.map(Lufs::get), 7),
        cell(it.range.map(Db::get), 6),
        cell(it.max_momentary.map(Lufs::get), 7),
        cell(it.max_short_term.map(Lufs::get), 7),
        cell(peak.map(Db::get), 7),
        cell(row.gain.map(Db::get), 7),
    ];
    let path = plain(&row.path.to_string_lossy());
    let error = row.error.as_deref().map_or_else(String::new, |error| format!(": {error}"));
    let lowered = row.lowered.map_or_else(String::new, |lowered| {
        format!("  (gain lowered by {:.1} dB to limit the peak)", lowered.get())
    });
    let warnings = messages(row).into_iter().map(|message| format!("  ({message})"));
    let warnings = warnings.collect::<String>();
    format!("{}  {path}{error}{lowered}{warnings}\n", cells.join(" "))
}

/// Replaces control characters, so that a name cannot move the cursor or break a line.
pub(in crate::cli) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    fn nothing(path: &str) -> Row<'_> {
        Row {
            path: Path::new(path),
            error: None,
            sample_rate: None,
            channels: None,
            seconds: None,
            loudness: LoudnessSummary::default(),
            gain: None,
            lowered: None,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn a_row_of_nothing_has_every_key_in_order() {
        let line = json(&nothing("a \"b\"\n.wav"));
        let read: Map<String, Value> = serde_json::from_str(&line).unwrap();
        assert_eq!(read.len(), KEYS.len());
        assert_eq!(read["path"], "a \"b\"\n.wav");
        let positions: Vec<_> = KEYS.map(|key| line.find(&format!("\"{key}\":")).unwrap()).into();
        assert!(positions.is_sorted() && line.lines().count() == 1, "{line}");
        assert_eq!(read.values().filter(|value| value.is_null()).count(), KEYS.len() - 3);
    }

    #[test]
    fn a_name_with_commas_and_quotes_is_one_field() {
        assert_eq!(csv(&nothing("a, \"b\".wav")), "\"a, \"\"b\"\".wav\",true,,,,,,,,,,,,,\n");
    }

    #[test]
    fn a_name_cannot_write_to_the_terminal() {
        assert!(!table(&nothing("a\x1b[2J\n.wav"), false).trim_end().contains(char::is_control));
    }
}
