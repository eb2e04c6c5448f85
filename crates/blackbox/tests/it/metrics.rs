//! `/metrics` as Prometheus reads it, the alert rules, the dashboard, and the number of series.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use aulos_blackbox::http;
use aulos_blackbox::load::{LoadPhase, LoadTest};
use aulos_blackbox::peer::{Process, find_or_skip};
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::{AulosServer, binary};
use serde_json::{Value, json};

use crate::rpc::Rpc;
use crate::{long_or_short, shared_turn, turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

fn contrib(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib").join(name)
}

fn text_of(server: &AulosServer) -> String {
    let (code, body) = http::get(server.http, "/metrics").unwrap();
    assert_eq!(code, 200);
    String::from_utf8(body).unwrap()
}

/// The samples, by name and labels.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.map(|line| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        (series.to_owned(), value.replace("Inf", "inf").parse().unwrap())
    });
    pairs.collect()
}

/// The names of the samples, without the suffixes of histograms.
fn families(text: &str) -> BTreeSet<String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

/// Runs promtool with this input; the error is what it prints.
fn promtool(program: &Path, arguments: &[&str], input: &str) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    if output.status.success() { Ok(()) } else { Err(printed) }
}

/// A server with two stations, a recorder, an insert, and a player that reports its error.
struct Scene {
    server: AulosServer,
    player: Process,
    // Dropped last.
    scratch: ScratchDir,
}

impl Scene {
    fn start() -> Self {
        let scratch = ScratchDir::new("metrics").unwrap();
        let config = format!(
            "[[station]]\nname = \"music\"\nnormalize = \"r128\"\nrecord = {{ dir = \"{}\" }}\n\
             sources = [\"pipe://{}\", \"demo://\"]\n\
             [[station]]\nname = \"a \\\"quoted\\\" one\"\nsources = [\"demo://\"]\n\
             insert = \"process:///bin/cat\"\n\
             hls = {{ renditions = [\"aac:96k\"], folder = \"{}\" }}\n",
            scratch.join("recordings").display(),
            scratch.join("fifo").display(),
            scratch.join("hls").display(),
        );
        let server = AulosServer::start(&scratch, &config).unwrap();
        // So that there is a call to be counted.
        Rpc::connect(server.control).call("Server.GetRPCVersion", &json!({}));
        let mut command = Command::new(binary());
        command.args(["play", &format!("tcp://{}", server.stream), "--output", "null", "--quiet"]);
        let (out, err) = (scratch.join("player.out"), scratch.join("player.err"));
        let player = Process::start(&mut command, &out, &err).unwrap();
        Self { server, player, scratch }
    }

    /// The metrics, once the player has reported.
    fn complete(&self) -> String {
        let mut text = String::new();
        wait_for("a report of the player", PATIENCE, || {
            text = text_of(&self.server);
            text.contains("\naulos_client_sync_error_seconds{")
                && text.contains("window=\"short_term\"")
                && text.contains("aulos_station_true_peak_dbtp{station=\"music\"}")
        });
        text
    }

    fn stop(mut self) {
        self.player.terminate(Duration::from_secs(5)).unwrap();
        self.server.stop().unwrap();
    }
}

#[test]
fn promtool_accepts_the_metrics_and_they_agree_with_the_status() {
    let _turn = shared_turn();
    let Some(program) = find_or_skip("promtool") else { return };
    let scene = Scene::start();
    let text = scene.complete();
    promtool(&program, &["check", "metrics"], &text).unwrap_or_else(|why| panic!("{why}"));
    let before = samples(&text);
    let (_, body) = http::get(scene.server.http, "/api/v1/status").unwrap();
    let status: Value = serde_json::from_slice(&body).unwrap();
    let after = samples(&text_of(&scene.server));
    // Nothing is in between that a counter of the same name did not show.
    for (series, counter) in [
        ("aulos_stream_bytes_total", "bytes_sent"),
        ("aulos_stream_connections_total", "connections_accepted"),
        ("aulos_stream_sends_total{kind=\"all\"}", "sends"),
        ("aulos_stream_chunks_total{result=\"sent\"}", "chunks_sent"),
    ] {
        let value = status["counters"][counter].as_f64().unwrap();
        let range = before[series]..=after[series];
        assert!(range.contains(&value), "{series}: {value} is not in {range:?}");
    }
    let sum = |samples: &BTreeMap<String, f64>, name: &str| -> f64 {
        samples.iter().filter(|(series, _)| series.starts_with(name)).map(|(_, value)| value).sum()
    };
    let name = "aulos_station_chunks_total{";
    let chunks = status["counters"]["chunks_made"].as_f64().unwrap();
    assert!((sum(&before, name)..=sum(&after, name)).contains(&chunks));
    let known = |name: &str| status["counters"].as_object().unwrap().contains_key(name);
    assert!(known("radio_failures_tls") && known("push_failures_tls"));
    for (series, expected) in [
        ("aulos_station_state{station=\"music\",state=\"playing\"}", 1.0),
        ("aulos_station_state{station=\"a \\\"quoted\\\" one\",state=\"silent\"}", 0.0),
        ("aulos_source_active{station=\"music\",source=\"demo\"}", 1.0),
        ("aulos_station_target_lufs{station=\"music\"}", -23.0),
        ("aulos_record_state{station=\"music\",recorder=\"music\",state=\"recording\"}", 1.0),
        ("aulos_clients", 1.0),
        ("aulos_config_last_reload_successful", 1.0),
    ] {
        let value = after.get(series);
        assert_eq!(value, Some(&expected), "{series}\n{text}");
    }
    let loudness = status["stations"][1]["loudness"]["short_term_lufs"].as_f64().unwrap();
    let series = "aulos_station_loudness_lufs{station=\"a \\\"quoted\\\" one\",point=\"out\",\
                  window=\"short_term\"}";
    assert!((after[series] - loudness).abs() < 6.0, "{} and {loudness}", after[series]);
    assert!(after["process_resident_memory_bytes"] > 1e6 && after["process_open_fds"] > 10.0);
    assert!(after["aulos_start_time_seconds"] > 1.6e9);
    scene.stop();
}

/// Every query of the dashboard and of the alerts is valid, and every metric in them exists.
#[test]
fn dashboard_and_alerts_use_metrics_that_exist() {
    let _turn = shared_turn();
    let Some(program) = find_or_skip("promtool") else { return };
    let scene = Scene::start();
    let known = families(&scene.complete());
    scene.stop();
    let text = std::fs::read_to_string(contrib("grafana/aulos.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    for key in ["title", "uid", "schemaVersion", "time", "refresh"] {
        assert!(!dashboard[key].is_null(), "{key}");
    }
    let mut queries = Vec::new();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        assert!(panel["title"].is_string() && panel["gridPos"]["w"].is_u64(), "{panel}");
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries.push(target["expr"].as_str().unwrap().to_owned());
        }
    }
    assert!(queries.len() > 30);
    let mut rules = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    for (number, query) in queries.iter().enumerate() {
        let query = query.replace("$__rate_interval", "1m").replace("$station", "x");
        let query = query.replace("$instance", "x");
        assert!(!query.contains('$'), "{query}");
        rules += &format!("  - record: q{number}\n    expr: {}\n", Value::from(query));
    }
    let scratch = ScratchDir::new("metrics-rules").unwrap();
    let file = scratch.join("rules.yml");
    std::fs::write(&file, rules).unwrap();
    let check = |arguments: &[&str]| {
        promtool(&program, arguments, "").unwrap_or_else(|why| panic!("{arguments:?}: {why}"));
    };
    let alerts = contrib("prometheus/alerts.yml");
    check(&["check", "rules", crate::text(&file)]);
    check(&["check", "rules", crate::text(&alerts)]);
    check(&["test", "rules", crate::text(&contrib("prometheus/alerts_test.yml"))]);
    let rules = std::fs::read_to_string(alerts).unwrap();
    let exprs = rules.lines().filter(|line| !line.trim_start().starts_with(['#', 's', 'd']));
    for text in queries.iter().map(String::as_str).chain(exprs) {
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let is_metric = |word: &&str| word.starts_with("aulos_") || word.starts_with("process_");
        for word in words.filter(is_metric) {
            let of_histogram =
                ["_bucket", "_count", "_sum"].iter().find_map(|end| word.strip_suffix(end));
            let exists =
                known.contains(word) || of_histogram.is_some_and(|name| known.contains(name));
            assert!(exists, "{word} is not in /metrics");
        }
    }
}

/// Prometheus itself asks for OpenMetrics, and takes every sample.
#[test]
fn prometheus_scrapes_the_server() {
    let _turn = shared_turn();
    let Some(program) = find_or_skip("prometheus") else { return };
    let scene = Scene::start();
    let classic = samples(&scene.complete()).len();
    let (scratch, port) = (&scene.scratch, free_port().unwrap());
    let file = scratch.join("prometheus.yml");
    let config = format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [\"{}\"]\n\
         scrape_configs:\n- job_name: aulos\n  static_configs: [{{ targets: [\"{}\"] }}]\n",
        contrib("prometheus/alerts.yml").display(),
        scene.server.http,
    );
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(program);
    command.arg(format!("--config.file={}", file.display()));
    command.arg(format!("--storage.tsdb.path={}", scratch.join("tsdb").display()));
    command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let (out, err) = (scratch.join("prometheus.out"), scratch.join("prometheus.err"));
    let mut prometheus = Process::start(&mut command, &out, &err).unwrap();
    let address = ([127, 0, 0, 1], port).into();
    let query = |query: &str| -> Option<f64> {
        let (code, body) = http::get(address, &format!("/api/v1/query?query={query}")).ok()?;
        let answer: Value = serde_json::from_slice(&body).ok().filter(|_| code == 200)?;
        answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()
    };
    wait_for("a scrape", PATIENCE, || query("up") == Some(1.0));
    let taken = query("scrape_samples_scraped").unwrap();
    #[allow(clippy::cast_precision_loss, reason = "some hundred")]
    let expected = classic as f64;
    // Routes and causes may occur for the first time in between.
    assert!((taken - expected).abs() <= 10.0, "{taken} samples of {expected}");
    assert_eq!(query("aulos_clients"), Some(1.0));
    prometheus.terminate(Duration::from_secs(10)).unwrap();
    scene.stop();
}

/// 1,000 clients have no series of their own, and a scrape stays small and fast.
#[test]
fn a_thousand_clients_stay_within_the_stated_number_of_series() {
    let _turn = turn();
    let scratch = ScratchDir::new("metrics-crowd").unwrap();
    let config = "[[station]]\nname = \"default\"\ncodec = \"opus\"\nsources = [\"demo://\"]\n";
    let server = AulosServer::start(&scratch, config).unwrap();
    let load = LoadTest {
        server: server.stream,
        clients: 1_000,
        settle: long_or_short(10, 3),
        listen: long_or_short(10, 3),
    };
    let mut text = String::new();
    load.run(|phase| {
        if phase == LoadPhase::End {
            text = text_of(&server);
        }
    })
    .unwrap();
    let found = samples(&text);
    assert_eq!(found["aulos_clients"].to_string(), "1000");
    assert!(!text.contains("aulos_client_info"));
    let observed = found["aulos_station_client_ahead_seconds_count{station=\"default\"}"];
    assert!(observed >= 1_000.0, "{observed} reports");
    // One station with one source: docs/reference/metrics.md has the sums.
    assert!(found.len() < 181 + 79 + 30 + 150, "{} series", found.len());
    assert!(text.len() < 64 << 10, "{} bytes", text.len());
    server.stop().unwrap();
}

/// `/healthz` and `/readyz` tell a server that works from one whose station has lost its source.
#[test]
fn a_missing_source_is_not_unready_unless_that_is_asked_for() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("readiness").unwrap();
    let missing = scratch.join("missing.flac");
    let config = format!(
        "[[station]]\nname = \"news\"\nsources = [\"file://{}\"]\n\
         [[user]]\nname = \"a\"\npassword = \"long secret\"\nrole = \"admin\"\n\
         [access]\nanonymous = \"none\"\n",
        missing.display()
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let get = |path: &str| {
        let (code, body) = http::get(server.http, path).unwrap();
        (code, String::from_utf8(body).unwrap())
    };
    assert_eq!(get("/healthz"), (200, "ok\n".to_owned()));
    wait_for("readiness", PATIENCE, || get("/readyz") == (200, "ready\n".to_owned()));
    assert_eq!(
        get("/readyz?strict"),
        (503, "not ready\n".to_owned()),
        "no details without a login"
    );
    assert_eq!(get("/metrics").0, 401);
    let curl = Command::new("curl")
        .args(["-s", "-u", "a:long secret", &format!("http://{}/readyz?strict", server.http)])
        .output();
    let told = curl.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let told = told.unwrap_or_else(|_| panic!("curl is one of the peers of these tests"));
    assert!(told.contains("station `news` is silent") && told.contains("has failed: "), "{told}");
    server.stop().unwrap();
}
