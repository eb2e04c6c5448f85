//! Pictures of titles at Sendspin players of other implementations, in all three dialects. The
//! colours are those that Pillow and Chromium decode.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::sendspin::{
    Dialect, SendspinPage, SendspinPeer, SendspinProcess, SendspinTools,
};
use aulos_blackbox::server::AulosServer;
use serde_json::{Value, json};

use crate::rpc::Rpc;
use crate::{shared_turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);

type Color = [u8; 3];
const RED: Color = [250, 10, 10];
const GREEN: Color = [10, 200, 10];
const BLUE: Color = [10, 10, 250];
const BLACK: Color = [0, 0, 0];

/// A station whose control script says what the test writes into a file.
struct Fixture {
    scratch: ScratchDir,
    _server: AulosServer,
    rpc: Rpc,
    port: u16,
    lines: PathBuf,
}

impl Fixture {
    fn start(name: &str) -> Self {
        let scratch = ScratchDir::new(name).unwrap();
        let (script, lines) = (scratch.join("titles.sh"), scratch.join("titles"));
        let ready = json!({ "jsonrpc": "2.0", "method": "Plugin.Stream.Ready" });
        std::fs::write(&lines, format!("{ready}\n")).unwrap();
        let text = format!("#!/bin/sh\nexec tail -n +1 -f '{}'\n", lines.display());
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let port = free_port().unwrap();
        let config = format!(
            "[streams]\nplugin_dir = \"{}\"\n\
             [sendspin]\nenabled = true\nlisten = \"127.0.0.1:{port}\"\ndiscover = false\n\
             legacy = [\"*\"]\n\
             [[station]]\nname = \"house\"\ncodec = \"flac\"\nsources = [\"tone://?hz=1000\"]\n\
             plugin = {{ script = \"titles.sh\" }}\n",
            scratch.display()
        );
        let server = AulosServer::start(&scratch, &config).unwrap();
        let rpc = Rpc::connect(server.control);
        Self { scratch, _server: server, rpc, port, lines }
    }

    fn url(&self) -> String {
        format!("ws://127.0.0.1:{}/sendspin", self.port)
    }

    /// The script reports a title with a picture, a bitmap of 80 x 40 with these colours side by
    /// side, or without one.
    fn title(&self, title: &str, colors: Option<[Color; 2]>) {
        self.title_with(title, colors.map(|colors| bitmap(80, 40, colors)));
    }

    fn title_with(&self, title: &str, picture: Option<Vec<u8>>) {
        let mut metadata = json!({ "title": title });
        if let Some(picture) = picture {
            metadata["artData"] = json!({ "data": base64(&picture), "extension": "bmp" });
        }
        let params = json!({ "playbackStatus": "playing", "metadata": metadata });
        let line = json!({ "jsonrpc": "2.0", "method": "Plugin.Stream.Player.Properties",
            "params": params });
        let mut file = OpenOptions::new().append(true).open(&self.lines).unwrap();
        writeln!(file, "{line}").unwrap();
    }

    fn player(
        &mut self,
        tools: &SendspinTools,
        dialect: Dialect,
        name: &str,
        more: &[&str],
    ) -> SendspinProcess {
        let url = self.url();
        let options = [&["--url", &*url, "--unpaired"][..], more].concat();
        let player =
            SendspinProcess::client(tools, dialect, &self.scratch, name, &options).unwrap();
        let id = player.ready["client_id"].clone();
        let is_waiting = |rpc: &mut Rpc| {
            let clients = rpc.call("Aulos.GetSendspinClients", &Value::Null)["clients"].clone();
            clients.as_array().unwrap().iter().any(|one| one["id"] == id && one["waiting"] == true)
        };
        wait_for("the player to wait", PATIENCE, || is_waiting(&mut self.rpc));
        self.rpc.call("Aulos.ApproveSendspinClient", &json!({ "client": id }));
        player
    }

    fn counter(&mut self, name: &str) -> u64 {
        self.rpc.call("Aulos.GetStatus", &json!({}))["counters"][name].as_u64().unwrap()
    }
}

/// A bitmap with two colours side by side (bottom-up, 24 bits, rows of a multiple of four bytes).
fn bitmap(width: u32, height: u32, colors: [Color; 2]) -> Vec<u8> {
    let row = width * 3;
    assert_eq!(row % 4, 0);
    let mut out = b"BM".to_vec();
    for number in [54 + row * height, 0, 54, 40, width, height, 1 | 24 << 16, 0, 0, 0, 0, 0, 0] {
        out.extend(number.to_le_bytes());
    }
    for _ in 0..height {
        for x in 0..width {
            let [red, green, blue] = colors[usize::from(x >= width / 2)];
            out.extend([blue, green, red]);
        }
    }
    out
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let value = three.iter().fold(0_usize, |value, byte| value << 8 | usize::from(*byte));
        let value = value << (8 * (3 - three.len()));
        for digit in 0..4 {
            let letter = char::from(DIGITS[value >> (18 - 6 * digit) & 63]);
            write!(out, "{}", if digit <= three.len() { letter } else { '=' }).unwrap();
        }
    }
    out
}

/// Waits until a channel shows a picture of this size with these colours in its middle and black
/// above and below, as of a picture that is twice as wide as high.
fn expect_picture(
    peer: &mut impl SendspinPeer,
    channel: u64,
    size: (u64, u64),
    colors: [Color; 2],
) {
    let shown = peer.wait_for("a picture", PATIENCE, |event| event.named("artwork")).unwrap();
    assert_eq!((&shown["channel"], &shown["width"]), (&json!(channel), &json!(size.0)), "{shown}");
    assert_eq!(shown["height"], size.1, "{shown}");
    let [left, right] = colors;
    let middle = [left, left, right, right];
    let expected = [[BLACK; 4], middle, middle, [BLACK; 4]].concat();
    let pixels = shown["pixels"].as_array().unwrap();
    assert_eq!(pixels.len(), 16);
    for (found, wanted) in pixels.iter().zip(expected) {
        let is_near = |at: usize| found[at].as_u64().unwrap().abs_diff(wanted[at].into()) <= 16;
        assert!((0..3).all(is_near), "{found} is not {wanted:?}: {shown}");
    }
}

fn expect_none(peer: &mut impl SendspinPeer) {
    let is_empty = |event: &aulos_blackbox::sendspin::Event| {
        event.named("artwork").filter(|shown| shown["bytes"] == 0)
    };
    peer.wait_for("no picture", PATIENCE, is_empty).unwrap();
}

#[test]
fn players_of_both_encrypted_dialects_show_the_picture_of_the_title() {
    let _turn = shared_turn();
    let Some(tools) = SendspinTools::find_or_skip() else { return };
    let mut fixture = Fixture::start("sendspin-artwork");
    for (dialect, name, artwork) in [
        (Dialect::Current, "current", "album:jpeg:120:120"),
        (Dialect::FirstNoise, "first", "album:bmp:280:280"),
    ] {
        fixture.title("One", Some([RED, BLUE]));
        let roles = ["--roles", "player,artwork", "--artwork", artwork];
        let mut player = fixture.player(&tools, dialect, name, &roles);
        let side = artwork.rsplit(':').next().unwrap().parse().unwrap();
        let start = |event: &aulos_blackbox::sendspin::Event| {
            event.named("stream_start").filter(|start| start["artwork"].is_object())
        };
        let start = player.wait_for("the channels", PATIENCE, start).unwrap();
        let channel = &start["artwork"]["channels"][0];
        assert_eq!((&channel["width"], &channel["source"]), (&json!(side), &json!("album")));
        expect_picture(&mut player, 0, (side, side), [RED, BLUE]);
        fixture.title("Two", Some([GREEN, RED]));
        expect_picture(&mut player, 0, (side, side), [GREEN, RED]);
        fixture.title("Three", None);
        expect_none(&mut player);
        player.wait_for_chunks(20, PATIENCE).unwrap();
        let received = player.received();
        let late = received.chunks.iter().filter(|chunk| chunk.at_us > chunk.server_us).count();
        assert_eq!((late, received.breaks().len()), (0, 0));
        assert!(received.complaints.is_empty(), "{:?}", received.complaints);
        player.quit().unwrap();
    }
    assert_eq!(fixture.counter("sendspin_artwork_failed"), 0);
}

#[test]
fn a_display_without_sound_changes_its_channels_and_asks_for_too_much() {
    let _turn = shared_turn();
    let Some(tools) = SendspinTools::find_or_skip() else { return };
    let mut fixture = Fixture::start("sendspin-display");
    fixture.title("One", Some([RED, BLUE]));
    let roles = ["--roles", "artwork", "--artwork", "album:png:64:64"];
    let mut display = fixture.player(&tools, Dialect::Current, "display", &roles);
    expect_picture(&mut display, 0, (64, 64), [RED, BLUE]);
    let channels = json!({ "channels": ["artist:jpeg:90:90", "album:png:65535:65535"] });
    display.command("channels", channels).unwrap();
    // There is no picture of the artist.
    expect_none(&mut display);
    expect_picture(&mut display, 1, (1_024, 1_024), [RED, BLUE]);
    assert!(fixture.counter("sendspin_artwork_limited") >= 1);
    for number in 0..200 {
        let channels = json!({ "channels": [format!("album:jpeg:{}:50", 100 + number)] });
        display.command("channels", channels).unwrap();
    }
    // The last one counts.
    let is_last = |event: &aulos_blackbox::sendspin::Event| {
        event.named("artwork").filter(|shown| shown["width"] == 299)
    };
    display.wait_for("the last picture", PATIENCE, is_last).unwrap();
    wait_for("the count", PATIENCE, || fixture.counter("sendspin_artwork_limited") > 100);
    assert!(display.received().complaints.is_empty(), "{:?}", display.received().complaints);
    fixture.title_with("Broken", Some(b"BM is no picture".to_vec()));
    expect_none(&mut display);
    assert_eq!(fixture.counter("sendspin_artwork_failed"), 1);
}

#[test]
fn a_browser_without_encryption_shows_the_picture_of_the_title() {
    let _turn = shared_turn();
    let Some(tools) = SendspinTools::find_or_skip() else { return };
    let Some(chromium) = find_or_skip("chromium") else { return };
    let fixture = Fixture::start("sendspin-artwork-browser");
    fixture.title("One", Some([RED, BLUE]));
    let url = fixture.url();
    let codecs = "pcm&artwork=jpeg:200:200";
    let mut page = SendspinPage::open(&tools, &chromium, &fixture.scratch, &url, codecs).unwrap();
    expect_picture(&mut page, 0, (200, 200), [RED, BLUE]);
    fixture.title("Two", Some([GREEN, BLUE]));
    expect_picture(&mut page, 0, (200, 200), [GREEN, BLUE]);
    fixture.title("Three", None);
    expect_none(&mut page);
    page.wait_for_chunks(20, PATIENCE).unwrap();
    assert_eq!(page.received().breaks(), []);
}
