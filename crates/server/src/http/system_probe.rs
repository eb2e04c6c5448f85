//! What the server runs on and what it uses.
//!
//! The kernel's figures are read when they are requested, and at most once a second, however many
//! pages look at them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aulos_control::Control;
use aulos_core::Utc;
use serde_json::{Map, Value, json};
use tracing::level_filters::LevelFilter;

use crate::metrics::ProcessStatistics;

/// The figures of the process, and those before them.
#[derive(Clone, Debug, Default)]
pub(super) struct SystemProbe(Arc<Mutex<Option<Sample>>>);

#[derive(Debug)]
struct Sample {
    at: Instant,
    process: ProcessStatistics,
    json: Value,
}

impl SystemProbe {
    /// The figures now, or a moment ago.
    pub(super) fn read(&self, control: &Control) -> Value {
        // A poisoned lock is taken all the same: the sample is replaced as a whole.
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let age = |sample: &Sample| now.saturating_duration_since(sample.at);
        if let Some(sample) = last.as_ref().filter(|sample| age(sample) < MAX_AGE) {
            return sample.json.clone();
        }
        let process = ProcessStatistics::read();
        let before = last.as_ref().map(|sample| (&sample.process, age(sample)));
        let json = system_json(control, &process, before);
        *last = Some(Sample { at: now, process, json: json.clone() });
        json
    }
}

/// How old the figures may be.
const MAX_AGE: Duration = Duration::from_secs(1);

fn system_json(
    control: &Control,
    process: &ProcessStatistics,
    before: Option<(&ProcessStatistics, Duration)>,
) -> Value {
    let snapshot = control.views().snapshot(0);
    let uptime = SystemTime::now().duration_since(snapshot.started).unwrap_or_default();
    let percent = |now: f64, then: f64, passed: Duration| {
        ((now - then).max(0.0) / passed.as_secs_f64() * 1_000.0).round() / 10.0
    };
    let all = process
        .cpu_seconds
        .zip(before)
        .and_then(|(now, (old, passed))| Some(percent(now, old.cpu_seconds?, passed)));
    let threads = process.thread_cpu_seconds.iter().map(|(name, seconds)| {
        let busy = before.and_then(|(old, passed)| {
            Some(percent(*seconds, *old.thread_cpu_seconds.get(name)?, passed))
        });
        json!({ "name": name, "cpu_s": (seconds * 100.0).round() / 100.0, "cpu_percent": busy })
    });
    let host = &control.host;
    let clients: usize = snapshot.stations.iter().map(|station| station.clients).sum();
    let listeners: usize = snapshot.stations.iter().map(|station| station.listeners).sum();
    let counters = snapshot.counters.iter();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "host": { "name": host.name, "os": host.os, "arch": host.arch },
        "started": utc(snapshot.started),
        "uptime_s": uptime.as_secs(),
        "log_level": LevelFilter::current().to_string(),
        "features": FEATURES.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| name)
            .collect::<Vec<_>>(),
        "process": {
            "cpu_s": process.cpu_seconds,
            "cpu_percent": all,
            "resident_bytes": process.resident_bytes,
            "virtual_bytes": process.virtual_bytes,
            "open_files": process.open_fds,
            "max_open_files": process.max_fds,
            "threads": process.threads,
        },
        "threads": threads.collect::<Vec<_>>(),
        "connections": {
            "clients": clients,
            "listeners": listeners,
            "controllers": snapshot.controllers,
        },
        "counters": counters.map(|(name, count)| ((*name).to_owned(), json!(count)))
            .collect::<Map<_, _>>(),
    })
}

/// Features of the program that can be left out.
const FEATURES: [(&str, bool); 2] =
    [("nats", cfg!(feature = "nats")), ("s3", cfg!(feature = "s3"))];

/// A time in seconds, in UTC.
pub(super) fn utc(time: SystemTime) -> String {
    Utc::from_unix(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()).to_string()
}
