//! Output of a run: a table for one file, a row per file for many, JSON lines for programs.

use aulos_core::{Db, Lufs};
use aulos_dsp::normalize::{GainLimit, LinearGain};
use aulos_files::normalize::{NormalizeOutcome, NormalizeResult, OutputContainer, OutputFileState};
use aulos_files::scan::LoudnessSummary;
use clap::ValueEnum;
use serde_json::{Value, json};

use super::args::NormalizeArgs;
use crate::cli::scan::plain;

/// Remarks about the new file that its figures do not show.
pub(super) fn remarks(outcome: &NormalizeOutcome, args: &NormalizeArgs) -> Vec<String> {
    let target = args.target.lufs();
    let mut lines = Vec::new();
    if let Some(LinearGain { requested, gain, limit: Some(limit), .. }) = outcome.linear {
        lines.push(limit_remark(outcome, limit, requested, gain));
    } else if let (Some(lufs), false) =
        (missed_loudness(outcome.after.integrated, target), args.album)
    {
        lines.push(format!("the result is {lufs}, the target {target}"));
    }
    if let Some(reduction) =
        outcome.reduction.filter(|it| outcome.linear.is_some() && it.get() < -0.05)
    {
        lines.push(format!("the limiter reduced peaks by up to {:.1} dB", -reduction.get()));
    }
    if let (Some(peak), OutputFileState::Written) = (outcome.after.true_peak, outcome.state)
        && (peak - args.true_peak).get() > 0.1
    {
        lines.push(format!(
            "the true peak is {:.1} dBTP, above the limit of {:.1} dBTP",
            peak.get(),
            args.true_peak.get()
        ));
    }
    let [from, to] = outcome.rates;
    if from != to {
        lines.push(format!(
            "resampled from {} Hz to {} Hz, the only rate of Opus",
            from.hz(),
            to.hz()
        ));
    }
    if !outcome.tags_lost.is_empty() {
        let names: Vec<_> = outcome.tags_lost.iter().map(|name| plain(name)).collect();
        lines.push(format!("tags that could not be kept: {}", names.join(", ")));
    }
    if outcome.rejected > 0 {
        lines.push(format!(
            "{} samples are not finite or above +20 dBFS and were replaced by silence",
            outcome.rejected
        ));
    }
    lines.extend(outcome.warnings.iter().map(|warning| format!("the input: {warning}")));
    // Otherwise it is an error.
    if outcome.damaged > 0 && args.keep_going {
        lines.push(damage(outcome));
    }
    lines
}

/// What is missing in the new file.
pub(super) fn damage(outcome: &NormalizeOutcome) -> String {
    let action = if outcome.state == OutputFileState::Written { "written" } else { "measured" };
    format!(
        "the input is damaged at {} position(s); only its readable part was {action}",
        outcome.damaged
    )
}

/// Why the gain is not the requested one.
fn limit_remark(outcome: &NormalizeOutcome, limit: GainLimit, requested: Db, gain: Db) -> String {
    match limit {
        GainLimit::Silence => {
            let what = if outcome.seconds < SHORTEST_S {
                "shorter than 400 ms, so it has no loudness"
            } else {
                "silent, so it has no loudness"
            };
            let copy = if outcome.state == OutputFileState::Written {
                "; copied without gain"
            } else {
                ""
            };
            format!("{what}{copy}")
        }
        GainLimit::Ceiling => format!(
            "the peaks allow a gain of {gain} instead of {requested}: the result is {} below the \
             target; --limit reaches it by limiting the peaks",
            requested - gain
        ),
        _ => format!("the gain is {gain} instead of {requested}"),
    }
}

/// The table for one file, before and after.
pub(super) fn table(outcome: &NormalizeOutcome) -> String {
    let mut text = format!("{:20} {:>12} {:>12}\n", "", "before", "after");
    let mut row = |name: &str, pick: fn(&LoudnessSummary) -> Option<f64>, unit: &str| {
        let [before, after] = [&outcome.before, &outcome.after].map(|side| {
            pick(side).map_or_else(|| "-".to_owned(), |value| format!("{value:.1} {unit}"))
        });
        text += &format!("{name:20} {before:>12} {after:>12}\n");
    };
    row("integrated loudness", |side| side.integrated.map(Lufs::get), "LUFS");
    row("loudness range", |side| side.range.map(Db::get), "LU");
    row("loudest 3 s", |side| side.max_short_term.map(Lufs::get), "LUFS");
    row("true peak", |side| side.true_peak.map(Db::get), "dBTP");
    if let Some(linear) = outcome.linear {
        text += &format!("{:20} {:>25}\n", "gain", format!("{:+.1} dB", tidy(linear.gain.get())));
    }
    if outcome.damaged > 0 {
        text += &format!("{:20} {:>25}\n", "input", "damaged");
    }
    if outcome.state != OutputFileState::Written {
        text += &format!("{:20} {:>25}\n", "file", state(outcome.state));
    }
    text
}

/// The header of the rows.
pub(super) fn row_header() -> String {
    format!("{:>7} {:>7} {:>7} {:>7} {:>9}  path\n", "I LUFS", "I new", "TP new", "gain dB", "")
}

/// One of many rows.
pub(super) fn format_row(row: &NormalizeResult) -> String {
    let cell = |value: Option<f64>| match value {
        Some(value) => format!("{value:>7.1}"),
        None => format!("{:>7}", "-"),
    };
    let (figures, state, note) = match &row.result {
        Ok(it) => {
            let figures = [
                it.before.integrated.map(Lufs::get),
                it.after.integrated.map(Lufs::get),
                it.after.true_peak.map(Db::get),
                it.linear.map(|plan| tidy(plan.gain.get())),
            ];
            let note = if it.damaged > 0 { ": damaged" } else { "" };
            (figures, state(it.state), note.to_owned())
        }
        Err(error) => ([None; 4], "failed", format!(": {error}")),
    };
    let path = if row.result.is_ok() { &row.task.to } else { &row.task.from };
    let path = plain(&path.to_string_lossy());
    format!("{} {state:>9}  {path}{note}\n", figures.map(cell).join(" "))
}

const fn state(state: OutputFileState) -> &'static str {
    match state {
        OutputFileState::Written => "written",
        OutputFileState::Unchanged => "unchanged",
        _ => "to write",
    }
}

/// Every key is in every row; missing values are null.
pub(super) fn json(row: &NormalizeResult, args: &NormalizeArgs, remarks: &[String]) -> String {
    let outcome = row.result.as_ref().ok();
    let damage = outcome.filter(|it| it.damaged > 0 && !args.keep_going).map(damage);
    let error = row.result.as_ref().err().map(ToString::to_string).or(damage);
    let linear = outcome.and_then(|it| it.linear);
    let limit = linear.and_then(|plan| plan.limit).map(|limit| match limit {
        GainLimit::Ceiling => "ceiling",
        GainLimit::Silence => "silence",
        _ => "gain",
    });
    let state = outcome.map_or("failed", |it| match it.state {
        OutputFileState::Written => "written",
        OutputFileState::Unchanged => "unchanged",
        _ => "planned",
    });
    let format = outcome.map(|it| match it.container {
        OutputContainer::Wave => "wav",
        OutputContainer::Flac => "flac",
        _ => "opus",
    });
    let object = json!({
        "path": row.task.from.to_string_lossy(),
        "out": row.task.to.to_string_lossy(),
        "ok": error.is_none(),
        "error": error,
        "state": state,
        "format": format,
        "mode": args.mode.to_possible_value().map(|value| value.get_name().to_owned()),
        "target_lufs": args.target.lufs().get(),
        "seconds": outcome.map(|it| it.seconds),
        "sample_rate": outcome.map(|it| it.rates[1].hz()),
        "wanted_db": linear.map(|plan| plan.requested.get()),
        "gain_db": linear.map(|plan| plan.gain.get()),
        "bound": limit,
        "limited_db": outcome.and_then(|it| it.reduction).map(|it| -it.get()),
        "before": side(&outcome.map_or_else(LoudnessSummary::default, |it| it.before)),
        "after": side(&outcome.map_or_else(LoudnessSummary::default, |it| it.after)),
        "rejected": outcome.map(|it| it.rejected),
        "damaged": outcome.map(|it| it.damaged),
        "tags_lost": outcome.map(|it| it.tags_lost.clone()),
        "remarks": remarks,
    });
    object.to_string() + "\n"
}

fn side(side: &LoudnessSummary) -> Value {
    json!({
        "integrated_lufs": side.integrated.map(Lufs::get),
        "loudness_range_lu": side.range.map(Db::get),
        "max_momentary_lufs": side.max_momentary.map(Lufs::get),
        "max_short_term_lufs": side.max_short_term.map(Lufs::get),
        "true_peak_dbtp": side.true_peak.map(Db::get),
        "sample_peak_dbfs": side.sample_peak.map(Db::get),
    })
}

/// Rounds to one decimal place, without -0.0.
fn tidy(value: f64) -> f64 {
    (value * 10.0).round() / 10.0 + 0.0
}

/// The length of a gating block.
const SHORTEST_S: f64 = 0.4;

/// Smallest deviation from the target that is reported, in LU: the tolerance of EBU R 128.
const REPORTED_ERROR_LU: f64 = 0.5;

/// The reached loudness, if it deviates from the target by a reportable amount.
fn missed_loudness(after: Option<Lufs>, target: Lufs) -> Option<Lufs> {
    after.filter(|lufs| (*lufs - target).get().abs() > REPORTED_ERROR_LU)
}
