//! Push to talk on the page: a real browser, whose microphone is a file.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::time::Duration;

use aulos_blackbox::browser::Browser;
use aulos_blackbox::capture_check::peaks_of_10_ms;
use aulos_blackbox::client::clock_us;
use aulos_blackbox::peer::{Snapclient, find_or_skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::signal::{SampleWidth, write_wav};
use serde_json::{Value, json};

use crate::announce::RecordingClient;
use crate::page_operation::{FINDINGS, axe_or_skip, says, until};
use crate::rpc::Rpc;
use crate::{quiet_turn, text, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);

/// What is promised from the microphone to the room, besides the buffer.
const MOST_MS: i64 = 600;

/// The level from which a sample is the voice: the programme is far below, and an echo canceller
/// that settles lowers the voice for a while.
const LOUD: i16 = 2_000;

/// Notes when the page gets the first loud samples of its microphone, in its clock; silence between
/// two of them makes the next one the first again. A frame is noted once it is complete, and holds
/// the time before.
const NOTE_ONSETS: &str = "(() => {
    const Worklet = globalThis.AudioWorkletNode, { send } = WebSocket.prototype;
    let quiet = Infinity;
    globalThis.onsets = [];
    globalThis.formats = [];
    if (!Worklet) return;
    const note = (samples, rate) => {
        const first = samples.findIndex(sample => Math.abs(sample) > 0.06);
        if (first < 0) { quiet += samples.length / rate; return; }
        if (quiet > 0.3) onsets.push(performance.now() - 1e3 * (samples.length - first) / rate);
        quiet = 0;
    };
    globalThis.AudioWorkletNode = class extends Worklet {
        constructor(context, name, options) {
            super(context, name, options);
            this.port.addEventListener('message', ({ data }) => note(data, context.sampleRate));
        }
    };
    WebSocket.prototype.send = function (data) {
        const { format } = typeof data === 'string' ? JSON.parse(data) : {};
        if (format) formats.push(format);
        return send.call(this, data);
    };
})()";

/// A voice of 0.3 s behind a second of silence, again and again.
fn write_voice(scratch: &ScratchDir) -> String {
    let path = scratch.join("voice.wav");
    let frames: Vec<[i32; 2]> = (0..4 * 48_000)
        .map(|at| {
            let (pause, at) = (at % 48_000 < 33_600, f64::from(at) / 48_000.0);
            // A gliding sound, which no suppressor of steady noise takes away.
            let phase = 2.0 * std::f64::consts::PI * (500.0 * at + 400.0 * at * at);
            let value = if pause { 0.0 } else { 16_000.0 * phase.sin() };
            #[allow(clippy::cast_possible_truncation, reason = "16 bits")]
            [value as i32; 2]
        })
        .collect();
    write_wav(BufWriter::new(File::create(&path).unwrap()), &frames, SampleWidth::B16).unwrap();
    text(&path).to_owned()
}

/// The page's clock subtracted from the machine's, in microseconds: that of the shortest of some
/// questions.
fn clock_offset(browser: &mut Browser) -> i64 {
    let asked = (0..10).map(|_| {
        let before = clock_us();
        let page = browser.run("performance.now()").unwrap().as_f64().unwrap();
        let after = clock_us();
        #[allow(clippy::cast_possible_truncation, reason = "microseconds")]
        let page = (1e3 * page) as i64;
        (after - before, (before + after) / 2 - page)
    });
    asked.min().unwrap().1
}

/// The middle of the button that is held, in the page.
fn button(browser: &mut Browser) -> (f64, f64) {
    until(browser, "!!document.querySelector('.talk button:not(:disabled)')");
    let middle = "(() => { const button = document.querySelector('.talk button');
        button.scrollIntoView({ block: 'center' });
        const { x, y, width, height } = button.getBoundingClientRect();
        return [x + width / 2, y + height / 2]; })()";
    let found = browser.run(middle).unwrap();
    (found[0].as_f64().unwrap(), found[1].as_f64().unwrap())
}

fn mouse(browser: &mut Browser, kind: &str, (x, y): (f64, f64)) {
    let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
    browser.call("Input.dispatchMouseEvent", &event).unwrap();
}

fn key(browser: &mut Browser, kind: &str) {
    let event = json!({ "type": kind, "key": " ", "code": "Space", "text": " ",
        "windowsVirtualKeyCode": 32 });
    browser.call("Input.dispatchKeyEvent", &event).unwrap();
}

/// How the next announcement has ended.
fn ended(controller: &mut Rpc) -> Value {
    loop {
        let notice = controller.hear("Aulos.OnAnnouncement");
        if notice["state"] == "ended" {
            return notice;
        }
    }
}

/// The times of the machine at which the voice begins in what a client gets, without the buffer.
fn onsets(client: &RecordingClient, since: i64) -> Vec<i64> {
    let (mut found, mut quiet) = (Vec::new(), i64::MAX / 2);
    for chunk in client.recorded().chunks.iter().filter(|chunk| chunk.timestamp > since) {
        let frames = i64::try_from(chunk.samples.len() / 2).unwrap();
        let first = chunk.samples.iter().position(|sample| sample.abs() > LOUD);
        let Some(first) = first else {
            quiet += frames * 1_000 / 48;
            continue;
        };
        if quiet > 300_000 {
            let at = i64::try_from(first / 2).unwrap() * 1_000 / 48;
            found.push(chunk.timestamp + at);
        }
        quiet = 0;
    }
    found
}

/// The longest delay of a voice from the page's microphone to the room, without the buffer.
fn longest_delay(browser: &mut Browser, client: &RecordingClient, since: i64) -> i64 {
    let offset = clock_offset(browser);
    let spoken = browser.run("onsets.splice(0)").unwrap();
    #[allow(clippy::cast_possible_truncation, reason = "microseconds")]
    let spoken: Vec<i64> =
        spoken.as_array().unwrap().iter().map(|at| (1e3 * at.as_f64().unwrap()) as i64).collect();
    let heard = onsets(client, since);
    assert!(spoken.len() >= 2, "{spoken:?}");
    assert_eq!(spoken.len(), heard.len(), "{spoken:?} {heard:?}");
    let delays = spoken.iter().zip(&heard).map(|(spoken, heard)| heard - spoken - offset);
    delays.max().unwrap() / 1_000
}

/// A browser with the page of a station, and a client that records what it is sent.
struct Scene {
    server: AulosServer,
    client: RecordingClient,
    controller: Rpc,
    browser: Browser,
}

impl Scene {
    fn start(program: &Path, scratch: &ScratchDir) -> Self {
        let config = "[[station]]\nname = \"hall\"\ncodec = \"pcm\"\nbuffer_ms = 1000\n\
                      sources = [\"tone://?dbfs=-46\"]\n";
        let server = AulosServer::start(scratch, config).unwrap();
        let voice = format!("--use-file-for-fake-audio-capture={}", write_voice(scratch));
        let device = "--use-fake-device-for-media-stream";
        let options = [device, "--use-fake-ui-for-media-stream", &voice];
        let mut browser = Browser::open_with(program, scratch, "about:blank", &options).unwrap();
        browser.call("Page.enable", &json!({})).unwrap();
        let script = json!({ "source": NOTE_ONSETS });
        browser.call("Page.addScriptToEvaluateOnNewDocument", &script).unwrap();
        browser.watch(&format!("http://{}/#/station/hall", server.http)).unwrap();
        let client = RecordingClient::connect(server.stream, 1);
        let controller = Rpc::connect(server.control);
        Self { server, client, controller, browser }
    }

    /// Talks to the station while a pointer holds the button; returns the longest delay.
    fn hold_by_pointer(&mut self) -> i64 {
        let browser = &mut self.browser;
        let (at, since) = (button(browser), clock_us());
        mouse(browser, "mousePressed", at);
        says(browser, "Speak now");
        until(browser, "document.querySelector('.talk meter')?.value > 0.3");
        if let Some(folder) = std::env::var_os("AULOS_TEST_PICTURES") {
            let image = browser.screenshot().unwrap();
            std::fs::write(Path::new(&folder).join("talk.png"), image).unwrap();
        }
        let state = "document.querySelector('.talk button').getAttribute('aria-pressed')";
        assert_eq!(browser.run(state).unwrap(), "true");
        until(browser, "onsets.length >= 3");
        std::thread::sleep(Duration::from_millis(400));
        mouse(browser, "mouseReleased", at);
        says(browser, "Hold to talk");
        let notice = ended(&mut self.controller);
        assert_eq!((&notice["uri"], &notice["cause"]), (&json!("talk:"), &json!("played")));
        longest_delay(browser, &self.client, since)
    }

    /// Talks to the client's group while a key holds its button; returns the longest delay.
    fn hold_by_key(&mut self) -> i64 {
        let Self { client, controller, browser, .. } = self;
        browser.run("location.hash = '#/rooms'; 0").unwrap();
        let group = controller.group_of(&client.id).unwrap();
        let name = json!({ "id": group["id"], "name": "Attic" });
        controller.call("Group.SetName", &name);
        let own = "document.querySelector('.group[aria-label=Attic] .talk button')";
        until(browser, &format!("!!{own}"));
        let since = clock_us();
        browser.run(&format!("{own}.focus(); 0")).unwrap();
        key(browser, "keyDown");
        says(browser, "Speak now");
        until(browser, "onsets.length >= 3");
        std::thread::sleep(Duration::from_millis(400));
        key(browser, "keyUp");
        let notice = ended(controller);
        assert_eq!((&notice["cause"], &notice["clients"]), (&json!("played"), &json!([client.id])));
        longest_delay(browser, client, since)
    }
}

#[test]
fn what_is_said_while_the_button_is_held_is_heard_in_the_rooms() {
    let Some(program) = find_or_skip("chromium") else { return };
    let Some(snapclient) = find_or_skip("snapclient") else { return };
    let _turn = quiet_turn();
    let scratch = ScratchDir::new("page-talk").unwrap();
    let mut scene = Scene::start(&program, &scratch);
    let port = scene.server.stream.port();
    let mut room = Snapclient::start(&snapclient, port, &scratch, "room").unwrap();
    let played = || std::fs::metadata(&room.sound).map_or(0, |file| file.len());
    wait_for("the room plays", PATIENCE, || played() > 2 * 192_000);

    let delay = scene.hold_by_pointer();
    println!("from the microphone to the station: {delay} ms and the buffer");
    assert!(delay <= MOST_MS, "{delay} ms");
    if let Some(axe) = axe_or_skip() {
        scene.browser.run(&format!("{axe}; 0")).unwrap();
        assert_eq!(scene.browser.run(FINDINGS).unwrap(), json!([]));
    }
    // In PCM, as in a browser without an encoder.
    scene.browser.run("delete globalThis.AudioEncoder; 0").unwrap();
    let delay = scene.hold_by_key();
    println!("from the microphone to the group: {delay} ms and the buffer");
    assert!(delay <= MOST_MS, "{delay} ms");
    assert_eq!(scene.browser.run("formats").unwrap(), json!(["opus", "pcm"]));
    assert_eq!(scene.browser.faults().unwrap(), Vec::<String>::new());

    // A real client has played the first one, and not the second.
    let peaks = peaks_of_10_ms(&room.stop().unwrap());
    let first = peaks.iter().position(|peak| *peak > 2_000).unwrap();
    let last = peaks.iter().rposition(|peak| *peak > 2_000).unwrap();
    assert!((220..700).contains(&(last - first)), "{} ms", 10 * (last - first));
    drop(scene.client);
    scene.server.stop().unwrap();
}

/// A browser gives no microphone to a page that is neither over HTTPS nor of its own machine.
#[test]
fn a_page_that_gets_no_microphone_says_why() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = crate::shared_turn();
    let scratch = ScratchDir::new("page-no-talk").unwrap();
    let config = "[[station]]\nname = \"hall\"\nsources = [\"tone://\"]\n";
    let server = AulosServer::start(&scratch, config).unwrap();
    // The name leads to this machine, and its page is not secure.
    let options = ["--host-resolver-rules=MAP aulos.lan 127.0.0.1"];
    let mut browser = Browser::open_with(&program, &scratch, "about:blank", &options).unwrap();
    let address = |host: &str| format!("http://{host}:{}/#/station/hall", server.http.port());
    browser.watch(&address("aulos.lan")).unwrap();
    says(&mut browser, "A browser gives its microphone only to pages over HTTPS");
    assert_eq!(browser.run("document.querySelector('.talk button').disabled").unwrap(), true);
    // A secure one, and a reader who does not permit the microphone.
    browser.watch(&address("localhost")).unwrap();
    until(&mut browser, "document.querySelector('.talk button')?.disabled === false");
    browser
        .run(
            "navigator.mediaDevices.getUserMedia = async () => {
        throw new DOMException('no', 'NotAllowedError'); }; 0",
        )
        .unwrap();
    crate::page_operation::click(&mut browser, "Hold to talk");
    says(&mut browser, "the browser does not permit the microphone to this page");
    // One without a device.
    browser
        .run(
            "navigator.mediaDevices.getUserMedia = async () => {
        throw new DOMException('no', 'NotFoundError'); }; 0",
        )
        .unwrap();
    crate::page_operation::click(&mut browser, "Hold to talk");
    says(&mut browser, "there is no microphone");
    server.stop().unwrap();
}
