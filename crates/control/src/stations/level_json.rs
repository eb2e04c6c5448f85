//! Levels, loudness and the state of a normalizer as JSON.

use aulos_core::{Db, Lufs, SampleRate, Span};
use aulos_dsp::normalize::LoudnessStats;
use serde_json::{Value, json};

use crate::backend::{Loudness, NormalizerStatus};

/// Levels in tenths of a decibel; silence is null, because JSON has no infinity.
pub(crate) fn levels(levels: &[Db]) -> Value {
    let tenth = |level: &Db| {
        let db = level.get();
        if db.is_finite() { json!((db * 10.0).round() / 10.0) } else { Value::Null }
    };
    levels.iter().map(tenth).collect()
}

/// Loudness values, rounded to hundredths; missing ones are null.
pub(crate) fn loudness(loudness: &Loudness) -> Value {
    let lufs = |value: Option<Lufs>| value.map(|value| round_to_hundredths(value.get()));
    let db = |value: Option<Db>| value.map(|value| round_to_hundredths(value.get()));
    json!({
        "measured_s": (loudness.measured.as_millis() / 100) as f64 / 10.0,
        "momentary_lufs": lufs(loudness.momentary),
        "short_term_lufs": lufs(loudness.short_term),
        "integrated_lufs": lufs(loudness.integrated),
        "loudness_range_lu": db(loudness.range),
        "max_momentary_lufs": lufs(loudness.max_momentary),
        "max_short_term_lufs": lufs(loudness.max_short_term),
        "true_peak_dbtp": db(loudness.true_peak),
        "sample_peak_dbfs": db(loudness.sample_peak),
        "current_true_peak_dbtp": db(loudness.current_true_peak),
        "current_sample_peak_dbfs": db(loudness.current_sample_peak),
    })
}

/// A time that is waited for, in seconds: not zero before it is over.
pub(crate) fn whole_seconds(left: Span) -> i64 {
    (left.max(Span::ZERO).as_millis() + 999) / 1_000
}

pub(crate) fn round_to_hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// The state of a normalizer, rounded to hundredths; missing values are null.
pub(crate) fn normalizer_json(status: Option<&NormalizerStatus>, rate: SampleRate) -> Value {
    let Some(status) = status else { return Value::Null };
    let programme = &status.programme_stats;
    json!({
        "latency_frames": status.latency.0,
        "latency_ms": round_to_hundredths(rate.span(status.latency).as_nanos() as f64 / 1e6),
        "compare": status.bypassed,
        "matching_gain_db": db(status.matching_gain),
        "gain_db": db(programme.gain),
        "reduction_db": db(status.reduction),
        "level_lufs": lufs(programme.level),
        "clamped": status.clamped,
        "rejected": programme.rejected,
        "input": figures(&programme.input),
        "output": figures(&programme.output),
    })
}

fn figures(figures: &LoudnessStats) -> Value {
    json!({
        "momentary_lufs": lufs(figures.momentary),
        "short_term_lufs": lufs(figures.short_term),
        "integrated_lufs": lufs(figures.integrated),
        "loudness_range_lu": db(figures.range),
        "true_peak_dbtp": db(figures.true_peak),
    })
}

fn lufs(value: Lufs) -> Option<f64> {
    Some(round_to_hundredths(value.get())).filter(|value| value.is_finite())
}

fn db(value: Db) -> Option<f64> {
    // Avoids -0.0 in the output.
    Some(round_to_hundredths(value.get()) + 0.0).filter(|value| value.is_finite())
}
