//! Servers of aiosendspin that play into a station, in both dialects with Noise.

use std::fs::File;
use std::time::{Duration, Instant};

use aulos_blackbox::capture_check::tone_share;
use aulos_blackbox::http;
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::sendspin::{
    Chunk, Dialect, Received, SendspinPeer, SendspinProcess, SendspinTools,
};
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::signal::{Frame, SampleWidth, programme, write_wav};
use serde_json::{Value, json};

use crate::rpc::Rpc;
use crate::{shared_turn, wait_for};

/// A source that has failed several times is preferred again only after some twenty seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A station with a Sendspin source and a tone for when that is silent, heard by a Sendspin player.
struct SourceRig {
    scratch: ScratchDir,
    server: AulosServer,
    rpc: Rpc,
    player: SendspinProcess,
    signal: Vec<Frame>,
}

impl SourceRig {
    fn start(tools: &SendspinTools, name: &str, source: &str) -> Self {
        let scratch = ScratchDir::new(name).unwrap();
        let port = free_port().unwrap();
        let config = format!(
            "[sendspin]\nenabled = true\nlisten = \"127.0.0.1:{port}\"\ndiscover = false\n\
             [[station]]\nname = \"house\"\ncodec = \"pcm\"\nspec = \"48000:16:2\"\n\
             buffer_ms = 600\n\
             sources = [{{ uri = \"{source}\", input_buffer_ms = 200, timeout_ms = 150 }}, \
             \"tone://?hz=400&dbfs=-20\"]\n"
        );
        let server = AulosServer::start(&scratch, &config).unwrap();
        let mut rpc = Rpc::connect(server.control);
        let url = format!("ws://127.0.0.1:{port}/sendspin");
        let options = ["--url", &*url, "--unpaired", "--roles", "player,artwork"];
        let options = [&options[..], &["--artwork", "album:png:160:80"]].concat();
        let player =
            SendspinProcess::client(tools, Dialect::Current, &scratch, "room", &options).unwrap();
        let id = player.ready["client_id"].clone();
        wait_for("the player", PATIENCE, || {
            let clients = rpc.call("Aulos.GetSendspinClients", &Value::Null)["clients"].clone();
            clients.as_array().unwrap().iter().any(|one| one["id"] == id && one["waiting"] == true)
        });
        rpc.call("Aulos.ApproveSendspinClient", &json!({ "client": id }));
        let signal = programme(48_000, SampleWidth::B16, 21);
        let wav = scratch.join("signal.wav");
        write_wav(File::create(&wav).unwrap(), &signal, SampleWidth::B16).unwrap();
        Self { scratch, server, rpc, player, signal }
    }

    fn music(&self, tools: &SendspinTools, dialect: Dialect, options: &[&str]) -> SendspinProcess {
        let wav = self.scratch.join("signal.wav");
        SendspinProcess::server(tools, dialect, &self.scratch, &wav, options).unwrap()
    }

    fn source(&mut self) -> Value {
        let status = self.rpc.call("Aulos.GetStatus", &json!({}));
        status["stations"][0]["sources"][0].clone()
    }

    fn wait_for_source(&mut self, is_on_air: bool) {
        let wanted = usize::from(!is_on_air);
        let rpc = &mut self.rpc;
        wait_for(&format!("source {wanted}"), PATIENCE, || {
            let station = rpc.call("Aulos.GetStatus", &json!({}))["stations"][0].clone();
            station["active"] == station["sources"][wanted]["name"]
        });
    }

    /// What the player hears from now on, for this long.
    fn hear(&mut self, time: Duration) -> Vec<Frame> {
        let sound = self.player.sound.clone();
        let read = || SampleWidth::B16.frames(&std::fs::read(&sound).unwrap());
        let before = read().len();
        // What it received while nobody asked.
        while self.player.next_event(Instant::now()).unwrap().is_some() {}
        let chunks = self.player.received().chunks.len();
        let more = usize::try_from(time.as_millis() / 20).unwrap();
        self.player.wait_for_chunks(chunks + more, PATIENCE).unwrap();
        read().split_off(before)
    }

    fn properties(&mut self) -> Value {
        self.rpc.stream("house").unwrap()["properties"].clone()
    }
}

/// When the signal begins: the time of the first of its frames, modulo its length of a second, in
/// microseconds of the clock of this machine; and how many frames follow without a fault.
fn begin_of_signal(received: &Received, sound: &[Frame], signal: &[Frame]) -> (i64, usize) {
    let is_here = |at: usize| sound[at..].iter().zip(signal).take(64).all(|(a, b)| a == b);
    // The last whole second: the beginning has another sound.
    // More may be in the file than has been told of.
    let told: i64 = received.chunks.iter().map(|chunk| chunk.frames).sum();
    let told = sound.len().min(usize::try_from(told).unwrap());
    let last = (0..told - 48_000).rev().find(|at| is_here(*at)).unwrap();
    let backwards = signal.iter().rev().cycle();
    let same = sound[..last].iter().rev().zip(backwards).take_while(|(a, b)| a == b).count();
    // The server sends what it holds twice to a player that comes later.
    let mut left = i64::try_from(last).unwrap();
    let is_in = |chunk: &&Chunk| {
        let is_in = left < chunk.frames;
        left -= if is_in { 0 } else { chunk.frames };
        is_in
    };
    let chunk = received.chunks.iter().find(is_in).unwrap();
    let at = chunk.server_us + left * 1_000_000 / 48_000;
    (at.rem_euclid(1_000_000), same)
}

/// A picture of the server reaches the page and the players of the station, and goes again.
fn shows_pictures(rig: &mut SourceRig, music: &mut SendspinProcess) {
    for color in [[200, 30, 30], [30, 30, 200]] {
        music.command("art", json!({ "color": color })).unwrap();
        let is_shown = |event: &aulos_blackbox::sendspin::Event| {
            let found = event.named("artwork")?["pixels"].as_array()?[5].clone();
            let near = |at: usize| found[at].as_i64().unwrap().abs_diff(color[at]) <= 16;
            (0..3).all(near).then_some(())
        };
        rig.player.wait_for("the picture", PATIENCE, is_shown).unwrap();
    }
    let url = rig.properties()["metadata"]["artUrl"].clone();
    let (_, path) = url.as_str().unwrap().split_once("/__image").unwrap();
    let (status, picture) = http::get(rig.server.http, &format!("/__image{path}")).unwrap();
    assert_eq!((status, &picture[..2]), (200, &[0xff, 0xd8][..]), "{url}");
    music.command("art", json!({ "color": null })).unwrap();
    wait_for("no picture", PATIENCE, || rig.properties()["metadata"]["artUrl"].is_null());
}

/// aiosendspin plays into the station: sound, time, title, commands, and what follows when it is gone.
fn plays_into_a_station(dialect: Dialect, name: &str) {
    let Some(tools) = SendspinTools::find_or_skip() else { return };
    let _turn = shared_turn();
    let port = free_port().unwrap().to_string();
    let source = format!("sendspin://127.0.0.1:{port}/sendspin?unpaired=true&player=House");
    let mut rig = SourceRig::start(&tools, name, &source);
    rig.wait_for_source(false);
    let options = ["--trust", "--port", &port, "--title", "First"];
    let mut music = rig.music(&tools, dialect, &options);
    rig.wait_for_source(true);
    // Another player of the same server, which knows when each frame is to sound.
    let url = music.url();
    let options = ["--url", &*url, "--unpaired", "--format", "pcm:48000:16:2"];
    let mut other =
        SendspinProcess::client(&tools, dialect, &rig.scratch, "other", &options).unwrap();
    other.wait_for_chunks(120, PATIENCE).unwrap();
    rig.hear(Duration::from_secs(4));
    let heard = SampleWidth::B16.frames(&std::fs::read(&rig.player.sound).unwrap());
    let (own, exact) = begin_of_signal(rig.player.received(), &heard, &rig.signal);
    let theirs = SampleWidth::B16.frames(&std::fs::read(&other.sound).unwrap());
    let (reference, _) = begin_of_signal(other.received(), &theirs, &rig.signal);
    let error = (own - reference + 1_500_000).rem_euclid(1_000_000) - 500_000;
    let status = rig.source();
    println!("{dialect:?}: {error} us off, {exact} frames exact, {status}");
    assert!(error.abs() <= 1_000, "{error} us, {status:#}");
    assert!(exact > 48_000, "{exact} frames, {status:#}");
    let counters = &status["sendspin"];
    assert_eq!((&counters["damaged"], &counters["forged"]), (&json!(0), &json!(0)), "{status:#}");
    // The title, and commands back.
    wait_for("the title", PATIENCE, || rig.properties()["metadata"]["title"] == "First");
    let properties = rig.properties();
    assert_eq!(properties["metadata"]["artist"], json!(["Artist"]), "{properties:#}");
    assert_eq!(properties["canGoNext"], true, "{properties:#}");
    let next = json!({ "id": "house", "command": "next", "params": {} });
    rig.rpc.call("Stream.Control", &next);
    let is_next = |event: &aulos_blackbox::sendspin::Event| {
        event.named("group").filter(|group| group["kind"] == "ControllerNextEvent")
    };
    music.wait_for("the command", PATIENCE, is_next).unwrap();
    shows_pictures(&mut rig, &mut music);
    music.command("title", json!({ "title": "Second" })).unwrap();
    wait_for("the next title", PATIENCE, || rig.properties()["metadata"]["title"] == "Second");
    let pause = json!({ "id": "house", "command": "pause", "params": {} });
    rig.rpc.call("Stream.Control", &pause);
    rig.wait_for_source(false);
    let play = json!({ "id": "house", "command": "play", "params": {} });
    rig.rpc.call("Stream.Control", &play);
    rig.wait_for_source(true);
    // The server is killed: the next source, and back when it is.
    drop(music);
    rig.wait_for_source(false);
    rig.hear(Duration::from_secs(1));
    let tone = rig.hear(Duration::from_millis(500));
    assert!(tone_share(&tone, 400.0, 48_000.0) > 0.99);
    let options = ["--trust", "--port", &port];
    let _music = rig.music(&tools, dialect, &options);
    rig.wait_for_source(true);
}

#[test]
fn aiosendspin_plays_into_a_station_in_the_current_dialect() {
    plays_into_a_station(Dialect::Current, "sendspin-source-10");
}

#[test]
fn aiosendspin_plays_into_a_station_in_the_first_dialect_with_noise() {
    plays_into_a_station(Dialect::FirstNoise, "sendspin-source-9");
}

/// A server connects to the station, may not play, is paired by the token, and plays.
fn is_paired_by_token(dialect: Dialect, name: &str) {
    let Some(tools) = SendspinTools::find_or_skip() else { return };
    let _turn = shared_turn();
    let port = free_port().unwrap();
    let source = format!("sendspin://127.0.0.1:{port}/sendspin?mode=listener");
    let mut rig = SourceRig::start(&tools, name, &source);
    let store = rig.scratch.join("store");
    let key = rig.scratch.join("server.key");
    let options = ["--store", store.to_str().unwrap(), "--identity", key.to_str().unwrap()];
    let mut music = rig.music(&tools, dialect, &options);
    let url = json!({ "url": format!("ws://127.0.0.1:{port}/sendspin") });
    music.command("dial", url.clone()).unwrap();
    music.wait_for("the source", PATIENCE, |event| event.named("admitted")).unwrap();
    assert_eq!(rig.source()["sendspin"]["connections"], 1);
    assert_eq!(rig.source()["sendspin"]["server"], Value::Null);
    let token = rig.rpc.call("Aulos.GetSendspinSources", &json!({}))["sources"][0].clone();
    assert_eq!(token["station"], "house");
    music.command("pair", json!({ "token": token["token"] })).unwrap();
    music.wait_for("the pairing", PATIENCE, |event| event.named("paired")).unwrap();
    // The group of a client that could not play does not play by itself.
    music.command("play", json!({})).unwrap();
    rig.wait_for_source(true);
    assert_eq!(rig.source()["sendspin"]["server"]["paired"], true);
    music.quit().unwrap();
    rig.wait_for_source(false);
    // It is known from now on.
    let mut music = rig.music(&tools, dialect, &options);
    music.command("dial", url).unwrap();
    rig.wait_for_source(true);
    assert_eq!(rig.source()["sendspin"]["server"]["paired"], true);
}

#[test]
fn aiosendspin_pairs_with_a_station_in_the_current_dialect() {
    is_paired_by_token(Dialect::Current, "sendspin-source-pair-10");
}

#[test]
fn aiosendspin_pairs_with_a_station_in_the_first_dialect_with_noise() {
    is_paired_by_token(Dialect::FirstNoise, "sendspin-source-pair-9");
}
