//! Text output of the meter: JSON for programs, one line per second for people, and a summary.

use std::io::{self, Write};

use aulos_core::{Db, Lufs, Span};
use aulos_engine::loudness::Loudness;
use aulos_server::exit::Failure;
use serde_json::Value;

use crate::cli::output::console::write_error;
use crate::cli::output::figures::{clock, db, lufs};
use crate::cli::output::print;

/// Prints readings to standard output, line by line.
#[derive(Debug)]
pub(super) struct MeterOutput {
    json: bool,
}

impl MeterOutput {
    pub(super) const fn new(json: bool) -> Self {
        Self { json }
    }

    /// Prints and flushes, because the reader may be waiting.
    pub(super) fn print(&self, loudness: &Loudness) -> io::Result<()> {
        let line = if self.json {
            json(loudness)
        } else if loudness.measured.as_millis() % 1_000 == 0 {
            plain(loudness)
        } else {
            return Ok(());
        };
        let mut out = io::stdout().lock();
        out.write_all(line.as_bytes())?;
        out.flush()
    }
}

/// The documented keys, in their order.
fn values(read: &Loudness) -> [(&'static str, Value); 9] {
    let figure = |value: Option<f64>| value.map_or(Value::Null, |value| hundredth(value).into());
    let lufs = |value: Option<Lufs>| figure(value.map(Lufs::get));
    let db = |value: Option<Db>| figure(value.map(Db::get));
    [
        ("time_s", figure(Some(seconds(read.measured)))),
        ("momentary_lufs", lufs(read.momentary)),
        ("short_term_lufs", lufs(read.short_term)),
        ("integrated_lufs", lufs(read.integrated)),
        ("loudness_range_lu", db(read.range)),
        ("true_peak_dbtp", db(read.true_peak)),
        ("max_momentary_lufs", lufs(read.max_momentary)),
        ("max_short_term_lufs", lufs(read.max_short_term)),
        ("sample_peak_dbfs", db(read.sample_peak)),
    ]
}

fn json(read: &Loudness) -> String {
    let fields = values(read).map(|(key, value)| format!("\"{key}\":{value}"));
    format!("{{{}}}\n", fields.join(","))
}

fn plain(read: &Loudness) -> String {
    format!(
        "{}  M {:>5}  S {:>5}  I {:>5} LUFS  LRA {:>4} LU  TP {:>5} dBTP\n",
        clock(read.measured),
        lufs(read.momentary),
        lufs(read.short_term),
        lufs(read.integrated),
        db(read.range),
        db(read.true_peak),
    )
}

/// Prints the final values, if anything was measured. With JSON they go to standard error.
pub(super) fn summary(uri: &str, read: &Loudness, json: bool, quiet: bool) -> Result<(), Failure> {
    if read.measured == Span::ZERO || json && quiet {
        return Ok(());
    }
    let mut text = format!("{uri}  {}\n", clock(read.measured));
    for (name, figure, unit) in [
        ("integrated", lufs(read.integrated), "LUFS"),
        ("loudness range", db(read.range), "LU"),
        ("maximum momentary", lufs(read.max_momentary), "LUFS"),
        ("maximum short-term", lufs(read.max_short_term), "LUFS"),
        ("true peak", db(read.true_peak), "dBTP"),
        ("sample peak", db(read.sample_peak), "dBFS"),
    ] {
        text += &format!("  {name:<20} {figure:>5} {unit}\n");
    }
    if json {
        write_error(text);
        return Ok(());
    }
    print(text.as_bytes()).map(|_| ())
}

#[allow(clippy::cast_precision_loss, reason = "years of milliseconds fit")]
fn seconds(span: Span) -> f64 {
    span.as_millis() as f64 / 1_000.0
}

fn hundredth(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// The result of a measurement.
pub(super) struct MeterResult {
    pub(super) loudness: Loudness,
    pub(super) result: Result<(), Failure>,
    /// Whether the reader of standard output has closed it.
    pub(super) pipe_closed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_exist_is_null_and_a_dash() {
        let read = Loudness { measured: Span::from_millis(3_661_000), ..Loudness::NONE };
        assert_eq!(
            json(&read),
            "{\"time_s\":3661.0,\"momentary_lufs\":null,\"short_term_lufs\":null,\
             \"integrated_lufs\":null,\"loudness_range_lu\":null,\"true_peak_dbtp\":null,\
             \"max_momentary_lufs\":null,\"max_short_term_lufs\":null,\"sample_peak_dbfs\":null}\n"
        );
        assert_eq!(
            plain(&read),
            "01:01:01  M     -  S     -  I     - LUFS  LRA    - LU  TP     - dBTP\n"
        );
    }

    #[test]
    fn figures_have_two_decimals_in_json_and_one_in_text() {
        let read = Loudness {
            measured: Span::from_millis(2_000),
            momentary: Some(Lufs::new(-23.456)),
            range: Some(Db::new(-0.0)),
            true_peak: Some(Db::new(0.25)),
            ..Loudness::NONE
        };
        let line: Value = serde_json::from_str(&json(&read)).unwrap();
        assert_eq!(
            (&line["momentary_lufs"], &line["true_peak_dbtp"]),
            (&(-23.46).into(), &0.25.into())
        );
        assert_eq!(
            plain(&read),
            "00:00:02  M -23.5  S     -  I     - LUFS  LRA  0.0 LU  TP   0.2 dBTP\n"
        );
    }
}
