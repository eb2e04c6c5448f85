//! The text formats of Prometheus: its classic one, and OpenMetrics 1.0.

use std::fmt::Write as _;

use super::sections;
use super::table::{Metric, MetricKind, Scrape};

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextFormat {
    /// The exposition format 0.0.4, which every scraper understands.
    Classic,
    /// OpenMetrics, for scrapers that ask for it.
    OpenMetrics,
}

impl TextFormat {
    /// The format for this value of `Accept`.
    pub(crate) fn for_accept(accept: &str) -> Self {
        let is_open = |range: &str| {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let refused = |part: &str| {
                part.strip_prefix("q=").is_some_and(|q| q.parse::<f32>().is_ok_and(|q| q <= 0.0))
            };
            media.eq_ignore_ascii_case("application/openmetrics-text") && !parts.any(refused)
        };
        if accept.split(',').any(is_open) { Self::OpenMetrics } else { Self::Classic }
    }

    /// The value of `Content-Type`.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// All metrics as text.
pub(crate) fn render(scrape: &Scrape, format: TextFormat) -> String {
    let mut out = String::new();
    for metric in sections::all() {
        render_metric(metric, scrape, format, &mut out);
    }
    if format == TextFormat::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

/// A metric without a series has no header either.
fn render_metric(metric: &Metric, scrape: &Scrape, format: TextFormat, out: &mut String) {
    let before = out.len();
    header(metric, format, out);
    let begin = out.len();
    metric.for_each(scrape, &mut |subject, own, value| {
        let labels = all_labels(metric, subject, own);
        sample(metric.name, "", &labels, value, out);
    });
    for (subject, histogram) in metric.histograms(scrape) {
        let labels = all_labels(metric, &subject, &[]);
        let mut total = 0;
        for (bound, count) in histogram.cumulative() {
            let bound = number(bound);
            let mut labels = labels.clone();
            labels.push(("le", &bound));
            #[allow(clippy::cast_precision_loss, reason = "counts are exact up to 2^53")]
            sample(metric.name, "_bucket", &labels, count as f64, out);
            total = count;
        }
        sample(metric.name, "_sum", &labels, histogram.sum(), out);
        #[allow(clippy::cast_precision_loss, reason = "counts are exact up to 2^53")]
        sample(metric.name, "_count", &labels, total as f64, out);
    }
    if out.len() == begin {
        out.truncate(before);
    }
}

fn header(metric: &Metric, format: TextFormat, out: &mut String) {
    // OpenMetrics names the family of a counter without the suffix of its samples.
    let family = match (format, metric.kind) {
        (TextFormat::OpenMetrics, MetricKind::Counter) => metric.name.trim_end_matches("_total"),
        _ => metric.name,
    };
    let kind = match metric.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    };
    // Writing to a string does not fail. No help has a character that would need an escape.
    writeln!(out, "# HELP {family} {}", metric.help).ok();
    writeln!(out, "# TYPE {family} {kind}").ok();
}

fn all_labels<'a>(
    metric: &Metric,
    subject: &[&'a str],
    own: &[&'a str],
) -> Vec<(&'static str, &'a str)> {
    let names = metric.values.subject_labels().iter().copied();
    let names = names.chain(metric.labels.iter().map(|(name, _)| *name));
    debug_assert_eq!(subject.len(), metric.values.subject_labels().len(), "{}", metric.name);
    debug_assert_eq!(own.len(), metric.labels.len(), "{}", metric.name);
    names.zip(subject.iter().chain(own).copied()).collect()
}

fn sample(name: &str, suffix: &str, labels: &[(&str, &str)], value: f64, out: &mut String) {
    out.push_str(name);
    out.push_str(suffix);
    for (at, (label, text)) in labels.iter().enumerate() {
        out.push(if at == 0 { '{' } else { ',' });
        out.push_str(label);
        out.push_str("=\"");
        escape(text, out);
        out.push('"');
    }
    out.push_str(if labels.is_empty() { " " } else { "} " });
    out.push_str(&number(value));
    out.push('\n');
}

/// Names of clients and groups come from outside.
fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
}

fn number(value: f64) -> String {
    match value {
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_the_one_that_is_asked_for() {
        let of = TextFormat::for_accept;
        assert_eq!(of(""), TextFormat::Classic);
        assert_eq!(of("text/plain;version=0.0.4;q=0.5,*/*;q=0.1"), TextFormat::Classic);
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;q=0.4";
        assert_eq!(of(prometheus), TextFormat::OpenMetrics);
        assert_eq!(of("application/openmetrics-text;q=0"), TextFormat::Classic);
    }

    #[test]
    fn samples_are_escaped_and_have_no_infinity_of_rust() {
        let mut out = String::new();
        sample("a", "", &[("b", "q\"\\\n"), ("c", "")], f64::NEG_INFINITY, &mut out);
        sample("a", "_sum", &[], 0.25, &mut out);
        assert_eq!(out, "a{b=\"q\\\"\\\\\\n\",c=\"\"} -Inf\na_sum 0.25\n");
    }
}
