//! The events of hooks, and the form in which hooks receive them.

use aulos_config::HookEventKind;
use aulos_core::{Db, Span};
use serde_json::{Map, Value, json};

use crate::backend::SwitchCause;

/// An event of a station, with its cause and figures. Sources are given by name.
#[derive(Clone, Debug, PartialEq)]
pub enum HookEvent {
    /// A source failed; `None` in `to` is the last resort.
    Fallback {
        /// The source that failed.
        from: Option<String>,
        /// The source that plays now.
        to: Option<String>,
        /// Why it failed.
        cause: SwitchCause,
    },
    /// A better source has recovered; `complete` means as good as before the failure, which was
    /// `after` ago.
    Recovered {
        /// The source that played before.
        from: Option<String>,
        /// The source that plays now.
        to: Option<String>,
        /// The cause of the switch.
        cause: SwitchCause,
        /// Time since the failure.
        after: Span,
        /// Whether the source that failed plays again, or a better one.
        complete: bool,
    },
    /// The output has been silent for this long.
    Silence {
        /// The source on air.
        source: Option<String>,
        /// Why nothing is audible.
        cause: &'static str,
        /// Duration so far.
        lasted: Span,
    },
    /// The output is audible again, after this long.
    Sound {
        /// The source on air.
        source: Option<String>,
        /// Duration of the silence.
        lasted: Span,
    },
    /// The highest peak since the last report, and the number of polls that found one.
    OverCeiling {
        /// The source on air.
        source: Option<String>,
        /// The highest true peak, in dBTP.
        peak: Db,
        /// The permitted true peak, in dBTP.
        ceiling: Db,
        /// The number of polls that found a peak above the ceiling.
        times: u64,
    },
    /// The programme is played without the insert.
    InsertBypassed {
        /// The fault of the program, or `late`.
        cause: &'static str,
        /// The same for users.
        reason: String,
    },
    /// The insert processes the programme again.
    InsertRecovered {
        /// Time since the bypass.
        after: Span,
        /// Latency of the insert.
        latency: Span,
    },
    /// An entry of the schedule has begun.
    ScheduleBegan {
        /// The source that has precedence.
        source: String,
        /// The time of the entry, as written.
        at: String,
        /// When it ends, after RFC 3339; `None` if it lasts until another one begins.
        until: Option<String>,
    },
    /// An entry of the schedule has ended, or another one counts.
    ScheduleEnded {
        /// The source that had precedence.
        source: String,
        /// The time of the entry, as written.
        at: String,
    },
    /// An event of a recorder: its kind, text and figures.
    Recorder {
        /// Its kind.
        kind: HookEventKind,
        /// Its description for users.
        text: String,
        /// An object of further fields.
        figures: Value,
    },
    /// A test.
    Test,
}

impl HookEvent {
    pub(super) const fn kind(&self) -> HookEventKind {
        match self {
            Self::Fallback { .. } => HookEventKind::Fallback,
            Self::Recovered { .. } => HookEventKind::Recovered,
            Self::Silence { .. } => HookEventKind::Silence,
            Self::Sound { .. } => HookEventKind::Sound,
            Self::OverCeiling { .. } => HookEventKind::OverCeiling,
            Self::InsertBypassed { .. } => HookEventKind::InsertBypassed,
            Self::InsertRecovered { .. } => HookEventKind::InsertRecovered,
            Self::ScheduleBegan { .. } => HookEventKind::ScheduleBegan,
            Self::ScheduleEnded { .. } => HookEventKind::ScheduleEnded,
            Self::Recorder { kind, .. } => *kind,
            Self::Test => HookEventKind::Test,
        }
    }

    /// Description for users.
    pub(crate) fn text(&self) -> String {
        let named = |source: &Option<String>| {
            source.clone().unwrap_or_else(|| "the last resort".to_owned())
        };
        match self {
            Self::Fallback { from, to, cause } => {
                format!("{} failed ({}); playing {}", named(from), cause.name(), named(to))
            }
            Self::Recovered { to, after, complete, .. } => {
                let part = if *complete { "" } else { ", but not the source that failed" };
                format!("playing {} after {:.1} s{part}", named(to), after.as_secs_f64())
            }
            Self::Silence { lasted, .. } => {
                format!("silence for {:.1} s", lasted.as_secs_f64())
            }
            Self::Sound { lasted, .. } => {
                format!("audio again after {:.1} s of silence", lasted.as_secs_f64())
            }
            Self::OverCeiling { peak, ceiling, .. } => {
                let (peak, ceiling) = (peak.get(), ceiling.get());
                format!("true peak {peak:+.1} dBTP exceeds the ceiling of {ceiling:+.1} dBTP")
            }
            Self::InsertBypassed { reason, .. } => format!("insert bypassed: {reason}"),
            Self::InsertRecovered { after, latency } => {
                let (after, latency) = (after.as_secs_f64(), latency.as_millis());
                format!("insert processes again after {after:.1} s, with a latency of {latency} ms")
            }
            Self::ScheduleBegan { source, at, until } => match until {
                Some(until) => format!("{source} is scheduled until {until} ({at})"),
                None => format!("{source} is scheduled ({at})"),
            },
            Self::ScheduleEnded { source, at } => format!("{source} is not scheduled now ({at})"),
            Self::Recorder { text, .. } => text.clone(),
            Self::Test => "test event".to_owned(),
        }
    }

    pub(super) fn figures(&self) -> Value {
        match self {
            Self::Fallback { from, to, cause } => {
                json!({ "from": from, "to": to, "cause": cause.name() })
            }
            Self::Recovered { from, to, cause, after, complete } => json!({
                "from": from,
                "to": to,
                "cause": cause.name(),
                "after_s": tenths(after.as_secs_f64()),
                "complete": complete,
            }),
            Self::Silence { source, cause, lasted } => json!({
                "source": source,
                "cause": cause,
                "silent_s": tenths(lasted.as_secs_f64()),
            }),
            Self::Sound { source, lasted } => {
                json!({ "source": source, "silent_s": tenths(lasted.as_secs_f64()) })
            }
            Self::OverCeiling { source, peak, ceiling, times } => json!({
                "source": source,
                "true_peak_dbtp": tenths(peak.get()),
                "ceiling_dbtp": tenths(ceiling.get()),
                "times": times,
            }),
            Self::InsertBypassed { cause, reason } => json!({ "cause": cause, "reason": reason }),
            Self::InsertRecovered { after, latency } => json!({
                "after_s": tenths(after.as_secs_f64()),
                "latency_ms": latency.as_millis(),
            }),
            Self::ScheduleBegan { source, at, until } => {
                json!({ "source": source, "at": at, "until": until })
            }
            Self::ScheduleEnded { source, at } => json!({ "source": source, "at": at }),
            Self::Recorder { figures, .. } => figures.clone(),
            Self::Test => json!({}),
        }
    }
}

/// An event in the form that hooks receive.
#[derive(Debug)]
pub(crate) struct HookMessage {
    pub(super) kind: HookEventKind,
    pub(super) station: Option<String>,
    /// Unique across servers.
    pub(super) id: String,
    /// Everything that is the same for all hooks.
    pub(super) body: Map<String, Value>,
}

/// Rounded to one decimal place.
pub(super) fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
