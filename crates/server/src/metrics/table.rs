//! The table of metrics: its columns, and how the rows of a subject are read.

use aulos_control::backend::{PushState, RecorderState, RtpDestinationStatus};
use aulos_control::hooks::HookSnapshot;
use aulos_control::{ClientSnapshot, Histogram, ServerSnapshot, StationSnapshot};
use serde_json::Value;

use super::process::ProcessStatistics;

/// What all metrics are read from.
#[derive(Debug)]
pub(crate) struct Scrape {
    pub(crate) server: ServerSnapshot,
    pub(crate) process: ProcessStatistics,
    pub(crate) requests: Vec<RequestCount>,
}

/// The number of HTTP requests of a route with a status code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestCount {
    pub(crate) route: String,
    pub(crate) code: u16,
    pub(crate) count: u64,
}

/// A row of the table.
#[derive(Debug)]
pub(super) struct Metric {
    /// Its name; that of a counter ends with `_total`.
    pub(super) name: &'static str,
    pub(super) kind: MetricKind,
    /// The labels besides those of its subject.
    pub(super) labels: &'static [Label],
    /// One sentence, with the unit.
    pub(super) help: &'static str,
    pub(super) values: Values,
}

/// A label, and its values where they are the same in every server.
pub(super) type Label = (&'static str, &'static [&'static str]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

/// How the values of a metric are read, by its subject.
#[derive(Debug)]
pub(super) enum Values {
    Server(fn(&Scrape, &mut Series<'_>)),
    /// From counters of the status: each with the values of the labels.
    Counters(&'static [(&'static str, &'static [&'static str])]),
    ServerHistogram(fn(&Scrape) -> &Histogram),
    Hook(fn(&HookSnapshot, &mut Series<'_>)),
    Relay(fn(&Value, &mut Series<'_>)),
    Station(fn(&StationSnapshot, &mut Series<'_>)),
    StationHistogram(fn(&StationSnapshot) -> &Histogram),
    Source(fn(&SourceView<'_>, &mut Series<'_>)),
    Recorder(fn(&RecorderView<'_>, &mut Series<'_>)),
    Push(fn(&PushState, &mut Series<'_>)),
    RtpOutput(fn(&RtpDestinationStatus, &mut Series<'_>)),
    Client(fn(&ClientSnapshot, &mut Series<'_>)),
}

/// A source of a station.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceView<'a> {
    pub(super) station: &'a StationSnapshot,
    pub(super) index: usize,
}

/// A recorder of a station.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecorderView<'a> {
    pub(super) station: &'a StationSnapshot,
    pub(super) state: &'a RecorderState,
}

/// Takes the values of the subject's labels, those of the metric's own labels, and the value.
pub(super) type SeriesSink<'a> = dyn FnMut(&[&str], &[&str], f64) + 'a;

/// Takes the values of one metric.
pub(super) struct Series<'a> {
    /// The values of the subject's labels.
    pub(super) subject: &'a [&'a str],
    pub(super) sink: &'a mut SeriesSink<'a>,
}

impl Series<'_> {
    /// Adds a value; a missing one adds no series.
    pub(super) fn set(&mut self, value: impl MetricValue) {
        self.with(&[], value);
    }

    /// Adds a value with values of the metric's own labels.
    pub(super) fn with(&mut self, labels: &[&str], value: impl MetricValue) {
        if let Some(value) = value.metric_value().filter(|value| !value.is_nan()) {
            (self.sink)(self.subject, labels, value);
        }
    }

    /// Adds 1 for the label value that applies, and 0 for every other one.
    pub(super) fn one_of(&mut self, values: &[&str], current: Option<&str>) {
        for value in values {
            self.with(&[value], current == Some(value));
        }
    }
}

/// What can be the value of a metric.
pub(super) trait MetricValue {
    fn metric_value(self) -> Option<f64>;
}

impl MetricValue for f64 {
    fn metric_value(self) -> Option<f64> {
        Some(self)
    }
}

impl MetricValue for bool {
    fn metric_value(self) -> Option<f64> {
        Some(f64::from(u8::from(self)))
    }
}

impl MetricValue for u64 {
    // Prometheus has 64-bit floats too; counts are exact up to 2^53.
    #[allow(clippy::cast_precision_loss, reason = "see above")]
    fn metric_value(self) -> Option<f64> {
        Some(self as f64)
    }
}

impl MetricValue for usize {
    fn metric_value(self) -> Option<f64> {
        (self as u64).metric_value()
    }
}

impl<T: MetricValue> MetricValue for Option<T> {
    fn metric_value(self) -> Option<f64> {
        self.and_then(T::metric_value)
    }
}

impl Values {
    /// The labels of the subject.
    pub(super) const fn subject_labels(&self) -> &'static [&'static str] {
        match self {
            Self::Server(_) | Self::Counters(_) | Self::ServerHistogram(_) => &[],
            Self::Hook(_) => &["hook"],
            Self::Relay(_) => &["relay"],
            Self::Station(_) | Self::StationHistogram(_) => &["station"],
            Self::Source(_) => &["station", "source"],
            Self::Recorder(_) => &["station", "recorder"],
            Self::Push(_) => &["station", "push"],
            Self::RtpOutput(_) => &["station", "output"],
            Self::Client(_) => &["client"],
        }
    }
}

impl Metric {
    pub(super) const fn counter(name: &'static str, help: &'static str, values: Values) -> Self {
        Self { name, kind: MetricKind::Counter, labels: &[], help, values }
    }

    pub(super) const fn gauge(name: &'static str, help: &'static str, values: Values) -> Self {
        Self { name, kind: MetricKind::Gauge, labels: &[], help, values }
    }

    pub(super) const fn histogram(name: &'static str, help: &'static str, values: Values) -> Self {
        Self { name, kind: MetricKind::Histogram, labels: &[], help, values }
    }

    pub(super) const fn labels(self, labels: &'static [Label]) -> Self {
        Self { labels, ..self }
    }

    /// Calls `sink` for each series, with the values of the subject's labels and of the metric's
    /// own ones. Histograms have no such series.
    pub(super) fn for_each(&self, scrape: &Scrape, sink: &mut SeriesSink<'_>) {
        match &self.values {
            Values::Server(read) => read(scrape, &mut Series { subject: &[], sink }),
            Values::Counters(rows) => {
                for (counter, labels) in *rows {
                    let known = scrape.server.counters.iter().find(|(name, _)| name == counter);
                    let mut series = Series { subject: &[], sink: &mut *sink };
                    series.with(labels, known.map(|(_, count)| *count));
                }
            }
            Values::Hook(read) => {
                for hook in &scrape.server.hooks {
                    read(hook, &mut Series { subject: &[&hook.name], sink: &mut *sink });
                }
            }
            Values::Relay(read) => {
                for relay in scrape.server.relays.as_array().into_iter().flatten() {
                    let name = relay["name"].as_str().unwrap_or_default();
                    read(relay, &mut Series { subject: &[name], sink: &mut *sink });
                }
            }
            Values::Client(read) => {
                for one in scrape.server.clients.iter().flatten() {
                    read(one, &mut Series { subject: &[&one.client.id], sink: &mut *sink });
                }
            }
            Values::ServerHistogram(_) | Values::StationHistogram(_) => {}
            _ => {
                for station in &scrape.server.stations {
                    self.for_station(station, sink);
                }
            }
        }
    }

    fn for_station(&self, one: &StationSnapshot, sink: &mut SeriesSink<'_>) {
        let name = one.station.name.as_str();
        match &self.values {
            Values::Station(read) => read(one, &mut Series { subject: &[name], sink }),
            Values::Source(read) => {
                for (index, source) in one.station.sources.iter().enumerate() {
                    let view = SourceView { station: one, index };
                    let subject = &[name, source.name.as_str()];
                    read(&view, &mut Series { subject, sink: &mut *sink });
                }
            }
            Values::Recorder(read) => {
                for (config, state) in one.station.records.iter().zip(&one.status.recorders) {
                    let view = RecorderView { station: one, state };
                    let subject = &[name, config.recording.name.as_str()];
                    read(&view, &mut Series { subject, sink: &mut *sink });
                }
            }
            Values::Push(read) => {
                for (number, state) in (1_u32..).zip(&one.status.pushes) {
                    let subject = &[name, &*number.to_string()];
                    read(state, &mut Series { subject, sink: &mut *sink });
                }
            }
            Values::RtpOutput(read) => {
                for (number, status) in (1_u32..).zip(&one.status.rtp_outputs) {
                    let subject = &[name, &*number.to_string()];
                    read(status, &mut Series { subject, sink: &mut *sink });
                }
            }
            _ => {}
        }
    }

    /// The histograms, each with the values of its subject's labels.
    pub(super) fn histograms<'a>(&self, scrape: &'a Scrape) -> Vec<(Vec<&'a str>, &'a Histogram)> {
        match &self.values {
            Values::ServerHistogram(read) => vec![(Vec::new(), read(scrape))],
            Values::StationHistogram(read) => {
                let stations = scrape.server.stations.iter();
                stations.map(|one| (vec![one.station.name.as_str()], read(one))).collect()
            }
            _ => Vec::new(),
        }
    }
}
