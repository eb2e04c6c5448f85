//! The player of the page in a real browser: its modules in virtual time, and its sound.
//!
//! `tap.js` records what goes to the loudspeakers. The modules below audio and network are tested
//! by the scripts `*_test.js`, which run in the page because there is no other JavaScript here.

mod sync;

use std::path::Path;
use std::time::{Duration, Instant};

use aulos_blackbox::browser::Browser;
use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::reload::Listeners;
use crate::rpc::Rpc;
use crate::{long_quiet_turn, quiet_turn, shared_turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

const TAP: &str = include_str!("tap.js");

/// The bar of the player.
const BAR: &str = "(document.querySelector('.player.sync')?.innerText ?? '')";

/// Waits until the bar of the player shows a text.
fn bar_says(browser: &mut Browser, text: &str) {
    let shown = format!("{BAR}.includes({})", json!(text));
    let start = Instant::now();
    while browser.run(&shown).unwrap() != true {
        assert!(start.elapsed() < PATIENCE, "{text}: the bar says {}", browser.run(BAR).unwrap());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The button of the view, or of the bar, whose label begins with a text.
fn button(text: &str) -> String {
    format!(
        "[...document.querySelectorAll('main button, .player button')]
            .find(one => one.textContent.trim().startsWith({}))",
        json!(text)
    )
}

/// Opens the view of a station, and presses the button that plays it here.
fn play(browser: &mut Browser, station: &str) {
    browser.run(&format!("location.hash = '#/station/{station}'")).unwrap();
    let is_shown = format!(
        "document.querySelector('h1')?.textContent === {} && !!{}",
        json!(station),
        button("Play in sync")
    );
    wait_for("the button", PATIENCE, || browser.run(&is_shown).unwrap() == true);
    browser.run(&format!("{}.click()", button("Play in sync"))).unwrap();
}

/// Opens a page whose audio is recorded.
fn open_tapped(browser: &mut Browser, url: &str) {
    // The recorder is a module that the page's policy would refuse.
    browser.call("Page.setBypassCSP", &json!({ "enabled": true })).unwrap();
    browser.watch(url).unwrap();
    let is_there = "document.readyState === 'complete' && !!document.querySelector('main')";
    wait_for("the page", PATIENCE, || browser.run(is_there).unwrap_or_default() == true);
    browser.run(TAP).unwrap();
}

/// Level in dB of the mean square, frequency, and the largest second difference of what is heard.
#[derive(Clone, Copy, Debug)]
struct HeardTone {
    db: f64,
    hz: f64,
    bend: f64,
}

fn measure(browser: &mut Browser, seconds: f64) -> HeardTone {
    let found = browser.run(&format!("tap.measure({seconds})")).unwrap();
    let number = |key: &str| found[key].as_f64().unwrap_or(f64::NEG_INFINITY);
    assert!(number("seconds") > seconds * 0.5, "{found}");
    HeardTone { db: number("db"), hz: number("hz"), bend: number("bend") }
}

/// Waits until a tone is heard.
fn hears(browser: &mut Browser, hz: f64) {
    wait_for("the tone", PATIENCE, || (measure(browser, 0.5).hz - hz).abs() < hz * 0.01);
}

/// A steady tone of this frequency and peak level, without a click. A recorder that is run late
/// leaves out a block, which no attempt to measure again shows.
fn expect_tone(browser: &mut Browser, hz: f64, peak_db: f64) {
    let radians = std::f64::consts::TAU * hz / 48_000.0;
    let smooth = 10.0_f64.powf(peak_db / 20.0) * radians * radians + 0.001;
    let mut last = None;
    let is_right = (0..3).any(|_| {
        let tone = measure(browser, 2.0);
        last = Some(tone);
        let level = (tone.db - (peak_db - 3.0103)).abs();
        level < 0.1 && (tone.hz - hz).abs() < 0.5 && tone.bend < 2.0 * smooth
    });
    assert!(is_right, "{hz} Hz at {peak_db} dB: {last:?}, {:?}", browser.run(BAR));
    println!("{hz} Hz at {peak_db} dB: {last:?}");
}

/// Runs a script that gets modules of the page.
fn run_script(browser: &mut Browser, script: &str, module: &str, more: &Value) -> Value {
    let call = format!(
        "(async () => ({script})(await import(new URL('aulos/player/{module}.js', document.baseURI).href), {more}))()",
        script = script.trim().trim_end_matches(';'),
    );
    browser.run(&call).unwrap_or_else(|error| panic!("{module}: {error}"))
}

/// The vectors of the protocol's own tests.
fn vectors() -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/tests/vectors");
    let names = [
        "client_info",
        "codec_header_opus",
        "codec_header_pcm",
        "error",
        "hello",
        "server_settings",
        "time_reply",
        "time_reply_negative",
        "time_request",
        "wire_chunk",
    ];
    let bytes = |name: &str| -> Vec<u8> {
        let text = std::fs::read_to_string(folder.join(format!("{name}.hex"))).unwrap();
        text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
    };
    names.into_iter().map(|name| (name.to_owned(), json!(bytes(name)))).collect()
}

#[test]
fn the_modules_of_the_player_are_right_in_virtual_time() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("web-player-modules").unwrap();
    let config = "[[station]]\nname = \"default\"\nsources = [\"tone://\"]\n";
    let server = AulosServer::start(&scratch, config).unwrap();
    let url = format!("http://{}/", server.http);
    let mut browser = Browser::open(&program, &scratch, &url).unwrap();
    wait_for("the page", PATIENCE, || {
        browser.run("!!document.querySelector('main')").unwrap() == true
    });
    for (module, script, more) in [
        ("clock", include_str!("clock_test.js"), Value::Null),
        ("protocol", include_str!("protocol_test.js"), vectors()),
        ("schedule", include_str!("schedule_test.js"), Value::Null),
    ] {
        println!("{module}: {}", run_script(&mut browser, script, module, &more));
    }
    drop(browser);
    server.stop().unwrap();
}

const STATIONS: &str = r#"
[http]
names = ["aulos.test"]
[[station]]
name = "default"
codec = "flac"
sources = ["tone://?hz=440&dbfs=-12"]
[[station]]
name = "pcm"
codec = "pcm"
sources = ["tone://?hz=1000&dbfs=-20"]
[[station]]
name = "opus"
codec = "opus"
sources = ["tone://?hz=600&dbfs=-20"]
[[station]]
name = "deep"
codec = "pcm"
spec = "44100:24:2"
sources = ["tone://?hz=600&dbfs=-20"]
"#;

/// Starts the server, perhaps again, with the state and the addresses of before.
fn start_again(scratch: &ScratchDir, before: Option<&AulosServer>) -> AulosServer {
    let file = scratch.join("aulos.toml");
    std::fs::write(&file, STATIONS).unwrap();
    AulosServer::start_with(scratch, |command| {
        command.arg("--config").arg(&file);
        for (key, address) in
            before.iter().flat_map(|one| [("http", one.http), ("control", one.control)])
        {
            command.args(["--set", &format!("listen.{key}={address}")]);
        }
    })
    .unwrap()
}

/// The group, and the id, of the browser.
fn browser_client(rpc: &mut Rpc) -> Option<(Value, Value)> {
    let status = rpc.call("Server.GetStatus", &json!({}));
    let groups = status["server"]["groups"].as_array()?.clone();
    groups.iter().find_map(|group| {
        let client = group["clients"].as_array()?.iter().find(|client| {
            client["host"]["name"].as_str().is_some_and(|name| name.starts_with("Browser"))
        })?;
        // The name by which the server knows the clients that it forgets by itself.
        assert_eq!(client["snapclient"]["name"], "aulos web player");
        Some((group["id"].clone(), client["id"].clone()))
    })
}

#[test]
fn the_page_plays_in_sync_and_follows_groups_volumes_and_restarts() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = long_quiet_turn();
    let scratch = ScratchDir::new("web-player").unwrap();
    let server = start_again(&scratch, None);
    let clients = Listeners::start(&server, 1..2);
    let url = format!("http://{}/", server.http);
    let mut browser = Browser::open(&program, &scratch, "about:blank").unwrap();
    it_is_loaded_when_pressed_and_nothing_is_reported_as_wrong(&mut browser, &url);
    open_tapped(&mut browser, &url);
    for (station, hz, level) in
        [("default", 440.0, -12.0), ("pcm", 1_000.0, -20.0), ("opus", 600.0, -20.0), DEEP]
    {
        play(&mut browser, station);
        bar_says(&mut browser, station);
        hears(&mut browser, hz);
        expect_tone(&mut browser, hz, level);
    }
    it_follows_the_server(&mut browser, &mut Rpc::connect(server.control));

    let process = Pid::from_raw(i32::try_from(server.id()).unwrap()).unwrap();
    kill_process(process, Signal::KILL).unwrap();
    bar_says(&mut browser, "connection lost");
    wait_for("silence", PATIENCE, || measure(&mut browser, 0.5).db < -100.0);
    let again = start_again(&scratch, Some(&server));
    drop(server);
    bar_says(&mut browser, "in time");
    hears(&mut browser, 440.0);
    expect_tone(&mut browser, 440.0, -12.0);
    browser.run(&format!("{}.click()", button("Stop"))).unwrap();
    let mut rpc = Rpc::connect(again.control);
    wait_for("it disconnects", PATIENCE, || {
        !is_connected(&rpc.call("Server.GetStatus", &json!({})))
    });
    drop(browser);
    clients.end();
    again.stop().unwrap();
}

/// The station whose rate and width are not the usual ones, and its tone.
const DEEP: (&str, f64, f64) = ("deep", 600.0, -20.0);

/// With the page's policy in force.
fn it_is_loaded_when_pressed_and_nothing_is_reported_as_wrong(browser: &mut Browser, url: &str) {
    browser.watch(url).unwrap();
    let is_there = "!!document.querySelector('main')";
    wait_for("the page", PATIENCE, || browser.run(is_there).unwrap_or_default() == true);
    let loaded = "performance.getEntriesByType('resource')
        .filter(one => one.name.includes('/player/')).length";
    assert_eq!(browser.run(loaded).unwrap(), 0);
    play(browser, "default");
    bar_says(browser, "in time");
    assert_eq!(browser.run(loaded).unwrap(), 6);
    browser.run("location.hash = '#/rooms'").unwrap();
    let health = "[...document.querySelectorAll('.client')]
        .find(one => one.innerText.includes('Browser'))
        ?.querySelector('.health').textContent.startsWith('in time')";
    wait_for("its sync in the rooms", PATIENCE, || browser.run(health).unwrap() == true);
    assert_eq!(browser.faults().unwrap(), Vec::<String>::new());
}

/// Volume, mute, station, group and latency, set while it plays [`DEEP`].
fn it_follows_the_server(browser: &mut Browser, rpc: &mut Rpc) {
    let (group, id) = browser_client(rpc).unwrap();
    let mut set = |method: &str, params: Value| rpc.call(method, &params);
    set("Client.SetVolume", json!({ "id": id, "volume": { "percent": 50 } }));
    bar_says(browser, "50 %");
    // The curve of Snapcast's clients.
    let half = 20.0 * ((10.0_f64.sqrt() - 1.0) / 9.0).log10();
    expect_tone(browser, DEEP.1, DEEP.2 + half);
    set("Client.SetVolume", json!({ "id": id, "volume": { "muted": true } }));
    wait_for("silence", PATIENCE, || measure(browser, 0.5).db < -100.0);
    set("Client.SetVolume", json!({ "id": id, "volume": { "percent": 100, "muted": false } }));
    // Another station for its group, and another group.
    set("Group.SetStream", json!({ "id": group, "stream_id": "pcm" }));
    hears(browser, 1_000.0);
    let status = set("Server.GetStatus", json!({}));
    let groups = status["server"]["groups"].as_array().unwrap();
    let other = groups.iter().find(|one| one["id"] != group).unwrap();
    let listener = &other["clients"][0]["id"];
    set("Group.SetClients", json!({ "id": other["id"], "clients": [listener, id] }));
    hears(browser, 440.0);
    expect_tone(browser, 440.0, -12.0);
    // A latency moves the sound, and the bar shows it.
    set("Client.SetLatency", json!({ "id": id, "latency": 120 }));
    bar_says(browser, "120 ms");
    bar_says(browser, "in time");
    expect_tone(browser, 440.0, -12.0);
}

/// Whether the browser is connected, by a status.
fn is_connected(status: &Value) -> bool {
    let groups = status["server"]["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["clients"].as_array().unwrap()).any(|client| {
        client["host"]["name"].as_str().is_some_and(|name| name.starts_with("Browser"))
            && client["connected"] == true
    })
}

/// On a page of plain HTTP there is neither `WebCodecs` nor `AudioWorklet`, and a browser that
/// requires a press before it plays waits for one.
#[test]
fn without_a_secure_origin_flac_plays_after_a_press_and_opus_is_refused() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = quiet_turn();
    let scratch = ScratchDir::new("web-player-plain").unwrap();
    let server = start_again(&scratch, None);
    let url = format!("http://aulos.test:{}/", server.http.port());
    let options = [
        "--host-resolver-rules=MAP aulos.test 127.0.0.1",
        "--autoplay-policy=document-user-activation-required",
    ];
    let mut browser = Browser::open_with(&program, &scratch, "about:blank", &options).unwrap();
    open_tapped(&mut browser, &url);
    assert_eq!(browser.run("isSecureContext || 'AudioDecoder' in window").unwrap(), false);
    play(&mut browser, "default");
    bar_says(&mut browser, "the browser waits for a press");
    let place = browser
        .run(&format!("(() => {{ const box = {}.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; }})()", button("Start sound")))
        .unwrap();
    for kind in ["mousePressed", "mouseReleased"] {
        let event = json!({ "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1 });
        browser.call("Input.dispatchMouseEvent", &event).unwrap();
    }
    bar_says(&mut browser, "in time");
    hears(&mut browser, 440.0);
    expect_tone(&mut browser, 440.0, -12.0);
    play(&mut browser, "opus");
    bar_says(&mut browser, "a browser decodes Opus packets on pages of secure origins only");
    browser.run(&format!("{}.click()", button("Listen without sync"))).unwrap();
    let plays = "document.querySelector('#player').currentTime > 0.5 && !document.querySelector('.player.sync')";
    wait_for("the plain stream", PATIENCE, || browser.run(plays).unwrap() == true);
    drop(browser);
    server.stop().unwrap();
}
