//! The views for operation (events, recordings, relays, system) and the overlay in a real browser,
//! their accessibility, and the HTTP API behind them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use aulos_blackbox::browser::Browser;
use aulos_blackbox::http;
use aulos_blackbox::peer::{find_or_skip, skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::{Value, json};

use crate::rpc::Rpc;
use crate::{long_shared_turn, shared_turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

/// A station with a source that fails and a recorder, one with outputs, and a relay.
fn config(scratch: &ScratchDir, more: &str) -> String {
    let dir = scratch.join("recordings");
    format!(
        "[[station]]\nname = \"hall\"\nsources = [\"tcp://127.0.0.1:9?mode=client&name=studio\", \
         \"demo://\"]\nrecord = [{{ name = \"air\", dir = \"{}\", format = \"flac\", \
         start = false }}]\n\
         [[station]]\nname = \"stage\"\nsources = [\"tone://\"]\n\
         rtp = [{{ dest = \"rtp://127.0.0.1:25998\", payload = \"l16\" }}]\n\
         [[relay]]\nname = \"trunk\"\nlisten = \"udp://127.0.0.1:0\"\nfrom = \"pcmu\"\n\
         to = \"pcma\"\ndest = \"udp://127.0.0.1:25996\"\n{more}",
        dir.display()
    )
}

pub(crate) fn until(browser: &mut Browser, expression: &str) {
    wait_for(expression, PATIENCE, || browser.run(expression).unwrap() == true);
}

pub(crate) fn says(browser: &mut Browser, text: &str) {
    until(browser, &format!("(document.body?.innerText ?? '').includes({})", json!(text)));
}

/// Presses the first button whose label begins so, once it is there.
pub(crate) fn click(browser: &mut Browser, label: &str) {
    let button = format!(
        "[...document.querySelectorAll('button')].find(one => one.textContent.startsWith({}))",
        json!(label)
    );
    until(browser, &format!("!!{button}"));
    browser.run(&format!("{button}.click()")).unwrap();
}

fn get(server: &AulosServer, path: &str) -> (u16, Value) {
    let (status, body) = http::get(server.http, path).unwrap();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

/// Records a file of more than a second in `air`, and waits until it is complete.
fn record(server: &AulosServer) {
    let mut rpc = Rpc::connect(server.control);
    rpc.call("Aulos.StartRecording", &json!({ "recorder": "air" }));
    std::thread::sleep(Duration::from_millis(2_500));
    rpc.call("Aulos.StopRecording", &json!({ "recorder": "air" }));
    wait_for("a complete file", PATIENCE, || {
        let (_, list) = get(server, "/api/v1/recordings");
        !list["recorders"][0]["files"].as_array().unwrap().is_empty()
    });
}

/// axe-core, a checker of accessibility, as `scripts/test-setup` has fetched it.
pub(crate) fn axe_or_skip() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = std::env::var_os("AULOS_TEST_AXE")
        .map_or_else(|| root.join("../../target/test-tools/axe.min.js"), PathBuf::from);
    let found = std::fs::read_to_string(file).ok();
    if found.is_none() {
        skip("axe-core");
    }
    found
}

/// What axe finds in the page, as texts; all impacts but the least.
pub(crate) const FINDINGS: &str = "(async () => {
    const { violations } = await axe.run(document, { resultTypes: ['violations'] });
    return violations.filter(one => one.impact !== 'minor').flatMap(one =>
        one.nodes.map(node => `${one.impact} ${one.id}: ${node.html.slice(0, 160)} ${node.failureSummary}`));
})()";

/// The views, and a text that each shows when it is complete.
const VIEWS: [(&str, &str); 9] = [
    ("#/", "1 of 2 stations needs attention"),
    ("#/station/hall", "Recorders"),
    ("#/rooms", "Presets"),
    ("#/recordings", "Download"),
    ("#/relays", "Outputs of stage"),
    ("#/events", "source failed"),
    ("#/system", "Configuration"),
    ("meter/hall?show=name,bars,scale,numbers", "hall"),
    ("meter/nowhere", "There is no station nowhere"),
];

#[test]
fn every_view_is_accessible_in_light_and_dark_and_reports_nothing_wrong() {
    let Some(program) = find_or_skip("chromium") else { return };
    let axe = axe_or_skip();
    let _turn = long_shared_turn();
    let scratch = ScratchDir::new("axe").unwrap();
    let server = AulosServer::start(&scratch, &config(&scratch, "")).unwrap();
    record(&server);
    let mut browser = Browser::open(&program, &scratch, "about:blank").unwrap();
    let mut findings = Vec::new();
    for scheme in ["light", "dark"] {
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser.call("Emulation.setEmulatedMedia", &media).unwrap();
        for (address, text) in VIEWS {
            // Another address of the same document would not be loaded.
            browser.call("Page.navigate", &json!({ "url": "about:blank" })).unwrap();
            browser.watch(&format!("http://{}/{address}", server.http)).unwrap();
            says(&mut browser, text);
            let wide = "document.documentElement.scrollWidth <= innerWidth";
            assert_eq!(browser.run(wide).unwrap(), true, "{address} is wider than its window");
            if address == "#/recordings" {
                click(&mut browser, "Listen");
                until(&mut browser, "!!document.querySelector('canvas.waveform')");
            }
            if let Some(axe) = &axe {
                browser.run(&format!("{axe}; 0")).unwrap();
                let found = browser.run(FINDINGS).unwrap();
                let found = found.as_array().unwrap().iter();
                findings.extend(found.map(|one| format!("{scheme} {address}: {one}")));
            }
            assert_eq!(browser.faults().unwrap(), Vec::<String>::new(), "{address}");
        }
    }
    assert_eq!(findings, Vec::<String>::new());
    if axe.is_some() {
        // Control experiment: a button without a name is a finding.
        browser.run("document.body.append(document.createElement('button')); 0").unwrap();
        let found = browser.run(FINDINGS).unwrap();
        assert!(found[0].as_str().is_some_and(|one| one.contains("button-name")), "{found}");
    }
    drop(browser);
    server.stop().unwrap();
}

#[test]
fn events_come_to_the_page_and_stay_until_they_are_acknowledged() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("events").unwrap();
    let server = AulosServer::start(&scratch, &config(&scratch, "")).unwrap();
    wait_for("the failure of the source", PATIENCE, || {
        let (_, list) = get(&server, "/api/v1/events?kind=source&station=hall");
        list["events"].as_array().unwrap().iter().any(|one| one["subject"] == "studio")
    });
    let mut browser = Browser::open(&program, &scratch, "about:blank").unwrap();
    browser.watch(&format!("http://{}/#/events", server.http)).unwrap();
    says(&mut browser, "source failed");
    until(&mut browser, "!!document.querySelector('nav .badge')");
    // What happens now comes without a question.
    record(&server);
    says(&mut browser, "s recorded: air-");
    click(&mut browser, "Acknowledge");
    until(&mut browser, "!document.querySelector('nav .badge')");
    let (_, list) = get(&server, "/api/v1/events?severity=warning");
    assert_eq!(list["unacknowledged"], 0, "{list}");
    assert!(list["events"].as_array().unwrap().iter().all(|one| one["acknowledged"] == true));
    // The next page starts after the last event.
    let newest = list["newest"].as_u64().unwrap();
    let (_, next) = get(&server, &format!("/api/v1/events?after={newest}"));
    assert_eq!(next["events"], json!([]), "{next}");
    assert_eq!(get(&server, "/api/v1/events?limit=0").0, 400);
    assert_eq!(browser.faults().unwrap(), Vec::<String>::new());
    drop(browser);
    server.stop().unwrap();
}

/// Whether the canvas of a recording has both colors: what was heard, and the rest.
const WAVEFORM_IS_DRAWN: &str = "(() => {
    const canvas = document.querySelector('canvas.waveform');
    if (!canvas?.width) return false;
    // Of a copy: Chromium warns when the same canvas is read twice, and the page must cause no
    // warning.
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d');
    copy.drawImage(canvas, 0, 0);
    const { data } = copy.getImageData(0, canvas.height / 2 | 0, canvas.width, 1);
    const colors = new Set();
    for (let at = 0; at < data.length; at += 4) if (data[at + 3] > 200) colors.add(data.slice(at, at + 3).join());
    return colors.size >= 2;
})()";

#[test]
fn a_recording_is_listed_played_and_downloaded_in_ranges() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("listen-again").unwrap();
    let server = AulosServer::start(&scratch, &config(&scratch, "")).unwrap();
    let mut browser = Browser::open(&program, &scratch, "about:blank").unwrap();
    browser.watch(&format!("http://{}/#/recordings", server.http)).unwrap();
    says(&mut browser, "No file is complete yet");
    // The page starts and stops the recorder, and shows the file when it is complete.
    click(&mut browser, "Record");
    says(&mut browser, "New file");
    std::thread::sleep(Duration::from_millis(2_500));
    click(&mut browser, "Stop");
    says(&mut browser, "Download");
    click(&mut browser, "Listen");
    until(&mut browser, "document.querySelector('.file audio')?.currentTime > 0.2");
    // The waveform is drawn, and is that of the API, which computes it once.
    until(&mut browser, WAVEFORM_IS_DRAWN);
    let duration = browser.run("document.querySelector('.file audio').duration").unwrap();
    let (_, list) = get(&server, "/api/v1/recordings?station=hall&recorder=air");
    let file = &list["recorders"][0]["files"][0];
    let difference = duration.as_f64().unwrap() - file["seconds"].as_f64().unwrap();
    assert!(difference.abs() < 0.01, "{duration} {file}");
    assert!(file["loudness"]["integrated_lufs"].as_f64().is_some_and(|lufs| lufs < 0.0), "{file}");
    let read = "(async () => {
        const url = document.querySelector('a[download]').href;
        const part = await fetch(url, { headers: { range: 'bytes=4-7' } });
        const all = await fetch(url);
        return [part.status, part.headers.get('content-range'), (await all.blob()).size];
    })()";
    let bytes = file["bytes"].as_u64().unwrap();
    let url = format!("/{}", file["url"].as_str().unwrap());
    let (status, waveform) = get(&server, &format!("{url}?view=waveform"));
    assert_eq!((status, &waveform["state"]), (200, &json!("ready")));
    let points = waveform["points"].as_array().unwrap();
    assert!((100..=1_024).contains(&points.len()), "{} points", points.len());
    // Its highest point is the peak that the recorder has measured, in steps of 1/255.
    let highest = points.iter().filter_map(Value::as_f64).fold(0.0, f64::max);
    let peak = file["loudness"]["true_peak_dbtp"].as_f64().unwrap();
    let difference = 20.0 * (highest / 255.0).log10() - peak;
    assert!((-1.5..=0.5).contains(&difference), "{highest} {peak}");
    let length = waveform["seconds"].as_f64().unwrap() - file["seconds"].as_f64().unwrap();
    assert!(length.abs() < 0.01, "{waveform} {file}");
    let kept = scratch.join("recordings").join(format!("{}.peaks", file["name"].as_str().unwrap()));
    assert!(kept.exists(), "{}", kept.display());
    for (query, status) in [("view=waveform&view=other", 400), ("view=spectrum", 400)] {
        assert_eq!(get(&server, &format!("{url}?{query}")).0, status, "{query}");
    }
    let expected = json!([206, format!("bytes 4-7/{bytes}"), bytes]);
    assert_eq!(browser.run(read).unwrap(), expected);
    // Nothing else below the folder, and nothing beside it.
    for other in [
        format!("{url}.json"),
        format!("{url}.peaks"),
        format!("{url}.json?view=waveform"),
        url.replace("/air/", "/other/"),
        url.replace("/air/", "/air/../air/"),
        "/api/v1/recordings/hall/air/..%2faulos.toml".to_owned(),
        "/api/v1/recordings/hall/air//etc/passwd".to_owned(),
    ] {
        assert_eq!(get(&server, &other).0, 404, "{other}");
    }
    assert_eq!(browser.faults().unwrap(), Vec::<String>::new());
    drop(browser);
    server.stop().unwrap();
}

#[test]
fn what_a_role_may_not_do_is_neither_shown_nor_answered() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("roles").unwrap();
    let more = "[access]\nanonymous = \"listen\"\n[[user]]\nname = \"boss\"\nrole = \"admin\"\n\
        token = \"0123456789abcdef\"\n";
    let server = AulosServer::start(&scratch, &config(&scratch, more)).unwrap();
    for (path, status) in [
        ("/api/v1/status", 200),
        ("/api/v1/system", 200),
        ("/api/v1/events?limit=5", 200),
        ("/api/v1/configuration", 401),
        ("/api/v1/diagnostics", 401),
        ("/api/v1/recordings", 401),
        ("/api/v1/recordings/hall/air/a.flac", 401),
        ("/api/v1/sounds", 401),
        ("/api/v1/sounds/gong.wav", 401),
    ] {
        assert_eq!(get(&server, path).0, status, "{path}");
    }
    // A wrong login is an event for administrators alone.
    let wrong = Command::new("curl")
        .args(["-s", "-o", "/dev/null", "-u", "boss:wrong"])
        .arg(format!("http://{}/api/v1/status", server.http))
        .status();
    assert!(wrong.is_ok_and(|status| status.success()));
    let (_, list) = get(&server, "/api/v1/events?kind=login");
    assert_eq!(list["events"], json!([]), "{list}");
    let of_boss = |path: &str| {
        let answer = Command::new("curl")
            .args(["-s", "-H", "Authorization: Bearer 0123456789abcdef"])
            .arg(format!("http://{}{path}", server.http))
            .output()
            .unwrap();
        serde_json::from_slice::<Value>(&answer.stdout).unwrap()
    };
    let list = of_boss("/api/v1/events?kind=login");
    assert_eq!(list["events"].as_array().unwrap().len(), 1, "{list}");
    let diagnostics = of_boss("/api/v1/diagnostics");
    assert_eq!(diagnostics["configuration"]["configuration"]["user"][0]["name"], "boss");
    assert!(!diagnostics.to_string().contains("0123456789abcdef"), "{diagnostics}");
    let mut browser = Browser::open(&program, &scratch, "about:blank").unwrap();
    browser.watch(&format!("http://{}/#/system", server.http)).unwrap();
    says(&mut browser, "Dropped and refused");
    let links = "[...document.querySelectorAll('nav a')].map(one => one.textContent).join()";
    let links = browser.run(links).unwrap();
    assert!(!links.as_str().unwrap().contains("Recordings"), "{links}");
    let text = browser.run("document.body.innerText").unwrap();
    assert!(!text.as_str().unwrap().contains("Reload"), "{text}");
    browser.run("location.hash = '#/events'").unwrap();
    says(&mut browser, "source failed");
    let buttons = "document.querySelectorAll('main button').length";
    assert_eq!(browser.run(buttons).unwrap(), 0);
    assert_eq!(browser.faults().unwrap(), Vec::<String>::new());
    drop(browser);
    server.stop().unwrap();
}

/// Exits with 1 where the document on standard input is not `OpenAPI`.
const VALIDATE: &str = "import json, sys\nfrom openapi_spec_validator import validate\n\
    validate(json.load(sys.stdin))";

#[test]
fn the_openapi_document_is_valid_and_its_paths_answer() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("openapi").unwrap();
    let server = AulosServer::start(&scratch, &config(&scratch, "")).unwrap();
    record(&server);
    let (_, list) = get(&server, "/api/v1/recordings");
    let recording = format!("/{}", list["recorders"][0]["files"][0]["url"].as_str().unwrap());
    let (_, document) = get(&server, "/api/v1/openapi.json");
    for (path, operations) in document["paths"].as_object().unwrap() {
        let contents = &operations["get"]["responses"]["200"]["content"];
        let Some(schema) = contents.get("application/json").map(|json| &json["schema"]) else {
            continue;
        };
        let query = match &path[..] {
            path if path.ends_with("/events") => "?limit=5",
            path if path.ends_with("/{file}") => "?view=waveform",
            _ => "",
        };
        let path = path.replace("{name}", "hall");
        let path = if path.ends_with("/{file}") { &recording } else { &path };
        let (status, answer) = get(&server, &format!("{path}{query}"));
        assert_eq!(status, 200, "{path}");
        for (name, member) in schema["properties"].as_object().unwrap() {
            let kind = match &answer[name] {
                Value::Bool(_) => "boolean",
                Value::Number(number) if number.is_f64() => "number",
                Value::Number(_) => "integer",
                Value::String(_) => "string",
                Value::Array(_) => "array",
                Value::Object(_) => "object",
                Value::Null => "null",
            };
            let types = member["type"].as_array().unwrap();
            // A whole number is a number too.
            let fits = |one: &Value| one == kind || one == "number" && kind == "integer";
            assert!(types.iter().any(fits), "{path} {name}: {kind}");
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let venv = std::env::var_os("AULOS_TEST_VENV")
        .map_or_else(|| root.join("../../target/test-venv"), PathBuf::from);
    let python = venv.join("bin/python");
    let there = Command::new(&python).args(["-c", "import openapi_spec_validator"]).output();
    if !there.is_ok_and(|done| done.status.success()) {
        skip("openapi-spec-validator");
        return server.stop().map(drop).unwrap();
    }
    let file = scratch.join("openapi.json");
    std::fs::write(&file, document.to_string()).unwrap();
    let validate = |input: &Path| {
        let input = std::fs::File::open(input).unwrap();
        Command::new(&python).args(["-c", VALIDATE]).stdin(input).stderr(Stdio::piped()).output()
    };
    let result = validate(&file).unwrap();
    assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr));
    // Control experiment: the validator notices a parameter of the path that is not declared.
    let mut wrong = document;
    wrong["paths"]["/api/v1/wrong/{name}"] = json!({ "get": { "parameters": [] } });
    std::fs::write(&file, wrong.to_string()).unwrap();
    assert!(!validate(&file).unwrap().status.success());
    server.stop().unwrap();
}
