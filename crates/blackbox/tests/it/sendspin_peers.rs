//! The peers of Sendspin with each other, without this program: a peer that is broken is told apart
//! from a server that is.

use std::fs::File;
use std::time::Duration;

use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::sendspin::{
    Dialect, Event, Received, SendspinPage, SendspinPeer, SendspinProcess, SendspinTools,
};
use aulos_blackbox::signal::{Frame, SampleWidth, programme, write_wav};
use serde_json::{Value, json};

use crate::shared_turn;

const PATIENCE: Duration = Duration::from_secs(60);

/// Chunks of 25 ms (PCM) or 96 ms (FLAC).
const ENOUGH: usize = 20;

/// A server that plays a second of sound over and over.
fn server(
    tools: &SendspinTools,
    scratch: &ScratchDir,
    dialect: Dialect,
    options: &[&str],
) -> (SendspinProcess, Vec<Frame>) {
    let signal = programme(48_000, SampleWidth::B16, 5);
    let wav = scratch.join("signal.wav");
    write_wav(File::create(&wav).unwrap(), &signal, SampleWidth::B16).unwrap();
    (SendspinProcess::server(tools, dialect, scratch, &wav, options).unwrap(), signal)
}

/// The sound is the signal from some frame on, again and again, without a fault.
fn is_signal(sound: &[Frame], signal: &[Frame]) -> bool {
    let (Some(head), length) = (sound.get(..16), signal.len()) else { return false };
    let at = |from: usize| signal.iter().cycle().skip(from);
    let start = (0..length).find(|from| at(*from).zip(head).all(|(one, two)| one == two));
    start.is_some_and(|from| at(from).zip(sound).all(|(one, two)| one == two))
}

fn assert_in_sync(received: &Received) {
    assert_eq!(received.breaks(), []);
    assert!(!received.plays.is_empty());
    // Both clocks are this machine's.
    for play in &received.plays {
        assert!((play.play_us - play.server_us).abs() < 1_000, "{play:?}");
    }
}

fn volume(event: &Event, volume: i64) -> Option<Value> {
    event.named("command").filter(|command| command["volume"] == volume)
}

/// A server and two clients of aiosendspin in a group, in PCM and in FLAC.
fn plays_in_a_group(dialect: Dialect) {
    let Some(tools) = SendspinTools::find_or_skip() else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("sendspin").unwrap();
    let (mut server, signal) = server(&tools, &scratch, dialect, &["--trust", "--hold"]);
    let url = server.url();
    let mut clients = ["pcm", "flac"].map(|codec| {
        let format = format!("{codec}:48000:16:2");
        let options = ["--url", &url, "--unpaired", "--format", &format];
        SendspinProcess::client(&tools, dialect, &scratch, codec, &options).unwrap()
    });
    for client in &mut clients {
        server.wait_for("a client", PATIENCE, |event| event.named("admitted")).unwrap();
        client.wait_for("its clock", PATIENCE, |event| event.named("synchronized")).unwrap();
    }
    server.command("play", json!({})).unwrap();
    for (client, codec) in clients.iter_mut().zip(["pcm", "flac"]) {
        let start = client.wait_for("a stream", PATIENCE, |event| event.named("stream_start"));
        assert_eq!(start.unwrap()["player"]["codec"], codec);
        client.wait_for_chunks(ENOUGH, PATIENCE).unwrap();
        client.wait_for("a play time", PATIENCE, |event| event.named("play")).unwrap();
    }
    let set = json!({ "command": "volume", "volume": 40 });
    clients[0].command("control", set).unwrap();
    for client in &mut clients {
        client.wait_for("the volume", PATIENCE, |event| volume(event, 40)).unwrap();
    }
    for client in clients {
        let sound = client.sound.clone();
        let received = client.quit().unwrap();
        assert_in_sync(&received);
        assert_eq!(received.complaints, Vec::<String>::new());
        let sound = SampleWidth::B16.frames(&std::fs::read(sound).unwrap());
        assert!(is_signal(&sound, &signal), "{} frames", sound.len());
        let goodbye = |event: &Event| {
            event.named("client").filter(|event| event["goodbye_reason"] == "shutdown")
        };
        server.wait_for("the goodbye", PATIENCE, goodbye).unwrap();
    }
    server.quit().unwrap();
}

#[test]
fn aiosendspin_plays_in_a_group_in_the_current_dialect() {
    plays_in_a_group(Dialect::Current);
}

#[test]
fn aiosendspin_plays_in_a_group_in_the_first_dialect_with_noise() {
    plays_in_a_group(Dialect::FirstNoise);
}

/// A server dials a client, is refused its roles, pairs by the client's token, and plays.
fn pairs(dialect: Dialect) {
    let Some(tools) = SendspinTools::find_or_skip() else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("sendspin-pair").unwrap();
    let (mut server, _) = server(&tools, &scratch, dialect, &[]);
    let port = free_port().unwrap().to_string();
    let options = ["--listen", &port];
    let mut client =
        SendspinProcess::client(&tools, dialect, &scratch, "paired", &options).unwrap();
    let url = format!("ws://127.0.0.1:{port}/sendspin");
    server.command("dial", json!({ "url": url })).unwrap();
    let connected = |event: &Event| event.named("connected");
    let unpaired = client.wait_for("a connection", PATIENCE, connected).unwrap();
    assert_eq!((&unpaired["psk"], &unpaired["roles"]), (&json!("sentinel"), &json!([])));
    server.command("pair", json!({ "token": client.ready["token"] })).unwrap();
    server.wait_for("the pairing", PATIENCE, |event| event.named("paired")).unwrap();
    let is_paired = |event: &Event| {
        connected(event).filter(|event| event["psk"] == "long_term" && event["roles"] != json!([]))
    };
    client.wait_for("roles", PATIENCE, is_paired).unwrap();
    server.command("play", json!({})).unwrap();
    client.wait_for_chunks(ENOUGH, PATIENCE).unwrap();
    assert_eq!(client.quit().unwrap().breaks(), []);
    server.quit().unwrap();
}

#[test]
fn aiosendspin_pairs_in_the_current_dialect() {
    pairs(Dialect::Current);
}

#[test]
fn aiosendspin_pairs_in_the_first_dialect_with_noise() {
    pairs(Dialect::FirstNoise);
}

/// sendspin-js in a browser, in plain text.
#[test]
fn sendspin_js_plays_from_aiosendspin() {
    let Some(tools) = SendspinTools::find_or_skip() else { return };
    let Some(chromium) = find_or_skip("chromium") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("sendspin-js").unwrap();
    let options = ["--trust", "--legacy"];
    let (mut server, signal) = server(&tools, &scratch, Dialect::Current, &options);
    let mut page = SendspinPage::open(&tools, &chromium, &scratch, &server.url(), "pcm").unwrap();
    let start = page.wait_for("a stream", PATIENCE, |event| event.named("stream_start")).unwrap();
    assert_eq!(start["player"]["codec"], "pcm");
    page.wait_for_chunks(ENOUGH, PATIENCE).unwrap();
    let first = page.received().chunks[0];
    assert_eq!(page.received().breaks(), []);
    // The samples of its first chunk are the signal's, from one of the blocks on.
    let frames = usize::try_from(first.frames).unwrap();
    let length = signal.len();
    let is_first = |from: usize| {
        let frames: Vec<_> = signal.iter().cycle().skip(from).take(frames).copied().collect();
        crc32(&SampleWidth::B16.bytes(&frames)) == first.crc32
    };
    assert!((0..length).step_by(240).any(is_first), "{first:?}");
    server.command("volume", json!({ "volume": 40 })).unwrap();
    page.wait_for("the volume", PATIENCE, |event| volume(event, 40)).unwrap();
    page.run("peer.core.disconnect('user_request')").unwrap();
    let goodbye = |event: &Event| {
        event.named("client").filter(|event| event["goodbye_reason"] == "user_request")
    };
    server.wait_for("the goodbye", PATIENCE, goodbye).unwrap();
    server.quit().unwrap();
}

/// CRC-32 as in zlib.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 }
        })
    })
}
