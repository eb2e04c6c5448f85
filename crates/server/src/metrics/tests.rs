//! The table of metrics: its rules, its reference page, and the number of series.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::time::SystemTime;

use aulos_config::{ConfigFile, Environment, StationSettings};
use aulos_control::backend::{
    ConnectionHealth, InputHealth, InputState, Loudness, PushState, RadioState,
    RtpDestinationStatus, SourceState, StationReport, StationStatus,
};
use aulos_control::registry::Client;
use aulos_control::{ClientSnapshot, Histogram, ServerSnapshot, StationActivity, StationSnapshot};
use aulos_core::{Instant, Lufs, Span};
use aulos_proto::snap::wire::PlayerReport;
use aulos_session::rtp::RtpInputStatus;
use serde_json::json;

use super::sections::{self, SECTIONS};
use super::table::{Metric, MetricKind, Values};
use super::text::{TextFormat, render};
use super::{ProcessStatistics, RequestCount, Scrape};

/// The most series of each subject. A new metric must not exceed them unnoticed: they are promised
/// in the reference.
const MOST_SERIES: [(&str, usize); 9] = [
    ("the server, without the rows below", 222),
    ("a station", 110),
    ("a source", 55),
    ("a recorder", 20),
    ("a push", 6),
    ("an RTP output", 5),
    ("a relay", 6),
    ("a hook", 5),
    ("a client, while there are no more than `per_client_limit`", 9),
];

fn subject(metric: &Metric) -> usize {
    match metric.values {
        Values::Server(_) | Values::Counters(_) | Values::ServerHistogram(_) => 0,
        Values::Station(_) | Values::StationHistogram(_) => 1,
        Values::Source(_) => 2,
        Values::Recorder(_) => 3,
        Values::Push(_) => 4,
        Values::RtpOutput(_) => 5,
        Values::Relay(_) => 6,
        Values::Hook(_) => 7,
        Values::Client(_) => 8,
    }
}

/// A station's configuration with one of everything.
fn station(name: &str) -> StationSettings {
    let text = format!(
        "[[station]]\nname = \"{name}\"\nnormalize = \"r128\"\n\
         sources = [\"tone://?hz=440\", \"rtp://127.0.0.1:5006?payload=opus\"]\n\
         push = [{{ url = \"icecast://127.0.0.1:9/a\", password = \"secret12\" }}]\n\
         rtp = [{{ dest = \"rtp://127.0.0.1:5004\" }}]\nrecord = {{ dir = \"/tmp/recordings\" }}\n"
    );
    let file = ConfigFile { name: "aulos.toml", text: &text };
    let config = aulos_config::load(Some(file), &[], &Environment::of_process());
    config.unwrap().stations.remove(0)
}

fn snapshot(station: StationSettings) -> StationSnapshot {
    let loudness = Loudness {
        measured: Span::from_secs(10),
        momentary: None,
        short_term: Some(Lufs::new(-23.5)),
        integrated: Some(Lufs::new(-23.0)),
        ..Loudness::NONE
    };
    let health = InputHealth::Healthy { since: Instant::ZERO };
    let input = InputState { health, has_started: true, loudness, ..InputState::NEW };
    let mut machine = StationStatus { loudness, ..StationStatus::new(Instant::ZERO) };
    machine.inputs.fill(input);
    let count = station.sources.len();
    let status = StationReport {
        sources: vec![SourceState::Ready; count],
        machine,
        radios: vec![Some(RadioState::default()); count],
        live_inputs: vec![Some(Default::default()); count],
        rtp_inputs: vec![Some(RtpInputStatus::default()); count],
        pushes: vec![PushState::default(); station.pushes.len()],
        rtp_outputs: vec![
            RtpDestinationStatus { state: Some(Default::default()), problem: None };
            station.rtp.len()
        ],
        ..StationReport::default()
    };
    StationSnapshot {
        station: station.into(),
        status,
        clients: 0,
        listeners: 0,
        activity: StationActivity::default(),
    }
}

fn scrape(stations: Vec<StationSnapshot>, clients: Option<Vec<ClientSnapshot>>) -> Scrape {
    let server = ServerSnapshot {
        started: SystemTime::UNIX_EPOCH,
        reload_succeeded: true,
        configured_at: SystemTime::UNIX_EPOCH,
        certificate_expires: Some(SystemTime::UNIX_EPOCH),
        counters: counters().map(|(_, name)| (name, 1)).collect(),
        stations,
        clients,
        controllers: 0,
        hooks: Vec::new(),
        relays: json!([{ "name": "r", "streams": 1, "received": 2, "sent": 2, "lost": 0 }]),
        calls: vec![("Server.GetStatus", 3)],
        call_seconds: Histogram::new(&aulos_control::CALL_SECONDS),
    };
    let requests = vec![RequestCount { route: "/metrics".to_owned(), code: 200, count: 1 }];
    Scrape { server, process: ProcessStatistics::default(), requests }
}

fn counters() -> impl Iterator<Item = (&'static str, &'static str)> {
    let rows = sections::all().filter_map(|metric| match metric.values {
        Values::Counters(rows) => Some(rows.iter().map(|(name, _)| (metric.name, *name))),
        _ => None,
    });
    rows.flatten()
}

fn client(id: &str) -> ClientSnapshot {
    let sync_error = Some(Span::from_micros(-20));
    let health = Some(ConnectionHealth {
        buffered: Some(Span::from_millis(900)),
        report: Some(PlayerReport { sync_error, ..PlayerReport::default() }),
        ..ConnectionHealth::default()
    });
    let client = Client {
        id: id.to_owned(),
        name: "Küche \"links\"\n".to_owned(),
        health,
        ..Client::default()
    };
    ClientSnapshot { client, group: "g".to_owned(), station: "s".to_owned() }
}

/// The series of each metric.
fn series(scrape: &Scrape) -> BTreeMap<&'static str, usize> {
    let count = |metric: &'static Metric| {
        let mut count = 0;
        metric.for_each(scrape, &mut |_, _, _| count += 1);
        let histograms = metric.histograms(scrape);
        let buckets = histograms.iter().map(|(_, one)| one.bounds().len() + 3);
        (metric.name, count + buckets.sum::<usize>())
    };
    sections::all().map(count).collect()
}

#[test]
fn names_units_and_help_follow_the_rules_of_prometheus() {
    let mut names = BTreeSet::new();
    for metric in sections::all() {
        let name = metric.name;
        assert!(names.insert(name), "{name} is there twice");
        assert_eq!(name.ends_with("_total"), metric.kind == MetricKind::Counter, "{name}");
        assert!(name.starts_with("aulos_") || name.starts_with("process_"), "{name}");
        assert!(name.bytes().all(|c| c.is_ascii_lowercase() || c == b'_'), "{name}");
        assert!(metric.help.ends_with('.') && !metric.help.contains(['\\', '"', '\n']), "{name}");
    }
}

#[test]
fn label_values_are_those_of_the_table() {
    let one = scrape(vec![snapshot(station("a"))], Some(vec![client("c")]));
    for metric in sections::all() {
        metric.for_each(&one, &mut |_, own, _| {
            for ((label, values), value) in metric.labels.iter().zip(own) {
                let is_known = values.is_empty() || values.contains(value);
                assert!(is_known, "{}: {label}=\"{value}\"", metric.name);
            }
        });
    }
}

#[test]
fn every_counter_of_the_status_has_a_metric_or_is_counted_per_station() {
    // A handshake that fails also closes a connection, which has its cause in another metric.
    let (handshakes, others): (Vec<_>, Vec<_>) =
        counters().partition(|(metric, _)| *metric == "aulos_tls_handshakes_total");
    let names = |rows: &[(_, &'static str)]| rows.iter().map(|(_, name)| *name).collect();
    let (results, mut mapped): (BTreeSet<_>, BTreeSet<_>) = (names(&handshakes), names(&others));
    assert_eq!(mapped.len(), others.len(), "a counter is there twice");
    assert_eq!(results.len(), handshakes.len(), "a result is there twice");
    mapped.extend(results);
    for (name, _) in aulos_control::Counters::default().list() {
        assert!(mapped.contains(name), "{name} has no metric");
    }
}

/// 100 stations and 1,000 clients stay within what the reference states.
#[test]
fn the_number_of_series_is_bounded() {
    let one = station("a");
    let stations: Vec<_> = (0..100)
        .map(|number| snapshot(StationSettings { name: format!("s{number}"), ..one.clone() }))
        .collect();
    let (sources, recorders) = (one.sources.len(), one.records.len());
    assert!(sources == 2 && one.pushes.len() == 1 && one.rtp.len() == 1 && recorders == 1);
    // Above the limit there are no series of clients.
    let crowd = scrape(stations.clone(), None);
    let few = scrape(stations, Some((0..100).map(|n| client(&n.to_string())).collect()));
    let text = render(&crowd, TextFormat::Classic);
    assert!(!text.contains("aulos_client_"));
    let counts = series(&few);
    let total: usize = counts.values().sum();
    let [server, station, source, recorder, push, output, relay, _, client] =
        MOST_SERIES.map(|(_, most)| most);
    let stations = station + 2 * source + recorder + push + output;
    let most = server + 100 * stations + relay + 100 * client;
    assert!(total <= most, "{total} series of at most {most}");
    let of_client: usize =
        sections::all().filter(|one| subject(one) == 8).map(|one| counts[one.name]).sum();
    assert_eq!(of_client, 100 * client);
    // What a row of the table can have at most, for each subject.
    for (number, (what, most)) in MOST_SERIES.iter().enumerate() {
        let rows = sections::all().filter(|metric| subject(metric) == number);
        let found: usize = rows.map(most_series).sum();
        assert_eq!(found, *most, "{what}");
    }
    assert!(render(&few, TextFormat::Classic).len() < 4 << 20);
}

/// The most series of one subject. Labels of open sets count once: the reference names them.
fn most_series(metric: &Metric) -> usize {
    let product = |metric: &Metric| {
        metric.labels.iter().map(|(_, values)| values.len().max(1)).product::<usize>()
    };
    match metric.values {
        Values::Counters(rows) => rows.len(),
        Values::ServerHistogram(read) => read(&scrape(Vec::new(), None)).bounds().len() + 3,
        Values::StationHistogram(read) => read(&snapshot(station("a"))).bounds().len() + 3,
        _ => product(metric),
    }
}

#[test]
fn both_formats_have_the_same_samples_and_escape_names() {
    let one = scrape(vec![snapshot(station("a"))], Some(vec![client("c\\1")]));
    let (classic, open) =
        (render(&one, TextFormat::Classic), render(&one, TextFormat::OpenMetrics));
    let samples = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    };
    assert_eq!(samples(&classic), samples(&open));
    assert!(open.ends_with("# EOF\n") && !classic.contains("# EOF"));
    assert!(open.contains("# TYPE aulos_station_chunks counter\naulos_station_chunks_total{"));
    assert!(classic.contains("# TYPE aulos_station_chunks_total counter\n"));
    let name = "aulos_client_info{client=\"c\\\\1\",name=\"Küche \\\"links\\\"\\n\",group=\"g\"";
    assert!(classic.contains(name), "{classic}");
    let silence =
        "aulos_station_loudness_lufs{station=\"a\",point=\"out\",window=\"momentary\"} -Inf";
    assert!(classic.contains(silence) && classic.contains("window=\"short_term\"} -23.5\n"));
    assert!(!classic.contains("point=\"in\""), "it has no normalizer yet");
}

#[test]
fn the_reference_page_is_current() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    aulos_blackbox::golden::compare_file(&file, &reference());
}

fn reference() -> String {
    let mut page = HEAD.to_owned();
    page += "| for | series at most |\n|---|---|\n";
    for (what, most) in MOST_SERIES {
        writeln!(page, "| {what} | {most} |").unwrap();
    }
    page += OPEN_LABELS;
    for (title, metrics) in SECTIONS {
        writeln!(page, "\n## {title}\n\n| metric | type | labels | meaning |\n|---|---|---|---|")
            .unwrap();
        for metric in metrics {
            let Metric { name, help, .. } = metric;
            let kind = format!("{:?}", metric.kind).to_lowercase();
            let labels = labels(metric);
            writeln!(page, "| `{name}` | {kind} | {labels} | {} |", help.trim_end_matches('.'))
                .unwrap();
        }
    }
    page
}

fn labels(metric: &Metric) -> String {
    let subject = metric.values.subject_labels().iter().map(|name| format!("`{name}`"));
    let own = metric.labels.iter().map(|(name, values)| match values {
        [] => format!("`{name}`"),
        values => format!("`{name}` ({})", values.join(", ")),
    });
    subject.chain(own).collect::<Vec<_>>().join(", ")
}

const HEAD: &str = "# Metrics

`/metrics` on the HTTP port has the metrics of the server in Prometheus' text format, or in OpenMetrics if the scraper
asks for it. It requires the role `listen`. [Monitor a server](../how-to/monitor.md) shows how to scrape it, and has alerts
and a dashboard. This page is generated from the table of metrics.

A value that does not exist has no series: a station without a normalizer has no gain. Silence has the loudness `-Inf`.
Counters of a station, a connection or the server begin at 0 when that starts anew, which Prometheus takes into account.
Values are those of the last status, at most a tenth of a second old (client health: two seconds, relays: one second).

Texts from outside (titles, addresses, user agents, paths) are never labels, except for the id, name, group and version
of a client, in series that exist only while at most `metrics.per_client_limit` clients are connected.

## Number of series

";

const OPEN_LABELS: &str = "
Besides, there is one series for each control method that has been called (`method`), for each HTTP route and status code
that has occurred (`route`, `code`), and for each name of a thread (`thread`): some 150 in all. With 10 stations of 3
sources and 50 clients these are about 2,000 series.
";
