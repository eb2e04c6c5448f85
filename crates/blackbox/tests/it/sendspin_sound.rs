//! Sendspin players that cannot play the encoding of their station: what is encoded for them has
//! their announcements, plays, test tones and sound, as for every client.

use std::collections::HashMap;
use std::f64::consts::TAU;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::time::Duration;

use aulos_blackbox::peer::{Snapclient, find_or_skip};
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::sendspin::{Dialect, SendspinPeer, SendspinProcess, SendspinTools};
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::signal::{Frame, RATE, SampleWidth, write_wav};
use serde_json::{Value, json};

use crate::rpc::Rpc;
use crate::sendspin::approve;
use crate::{shared_turn, text, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);

/// Tones of the programme in the left and the right channel.
const LEFT: f64 = 500.0;
const RIGHT: f64 = 2_000.0;
/// Tones of an announcement to the group, of one to the first player alone, and of what the second
/// player plays in place of the programme; and the test tone.
const GROUP: f64 = 700.0;
const ALONE: f64 = 1_100.0;
const PLAY: f64 = 1_500.0;
const TEST: f64 = 1_000.0;

/// The level of all tones but the test tone.
const DBFS: f64 = -12.0;

/// Every tone has whole periods in it.
const WINDOW: usize = RATE / 20;

/// Frames of a chunk.
const CHUNK: usize = RATE / 50;

/// A station in FLAC, a snapclient, and two players of PCM in its group.
struct MixedGroup {
    scratch: ScratchDir,
    server: AulosServer,
    rpc: Rpc,
    room: Snapclient,
    players: [SendspinProcess; 2],
    ids: [String; 2],
}

impl MixedGroup {
    fn start(tools: &SendspinTools, snapclient: &Path) -> Self {
        let scratch = ScratchDir::new("sendspin-sound").unwrap();
        write_tones(&scratch.join("programme.wav"), [LEFT, RIGHT], RATE);
        for (name, hz) in [("group", GROUP), ("alone", ALONE), ("play", PLAY)] {
            write_tones(&scratch.join(format!("{name}.wav")), [hz, hz], RATE / 2);
        }
        let port = free_port().unwrap();
        let root = text(scratch.path());
        let config = format!(
            "[sendspin]\nenabled = true\nlisten = \"127.0.0.1:{port}\"\ndiscover = false\n\
             [streams]\nroots = [\"{root}\"]\n[[station]]\nname = \"house\"\ncodec = \"flac\"\n\
             buffer_ms = 600\nsources = [\"file://{root}/programme.wav?loop=true\"]\n"
        );
        let server = AulosServer::start(&scratch, &config).unwrap();
        let mut rpc = Rpc::connect(server.control);
        let room = Snapclient::start(snapclient, server.stream.port(), &scratch, "room").unwrap();
        let players = ["kitchen", "hall"].map(|name| {
            let url = format!("ws://127.0.0.1:{port}/sendspin");
            let options = ["--url", &*url, "--unpaired", "--format", "pcm:48000:16:2"];
            let dialect = Dialect::Current;
            SendspinProcess::client(tools, dialect, &scratch, name, &options).unwrap()
        });
        let ids = players.each_ref().map(|player| {
            let id = player.ready["client_id"].as_str().unwrap().to_owned();
            approve(&mut rpc, &id);
            id
        });
        let mut group = Self { scratch, server, rpc, room, players, ids };
        for player in &mut group.players {
            player.wait_for_chunks(20, PATIENCE).unwrap();
        }
        wait_for("the snapclient", PATIENCE, || {
            std::fs::metadata(&group.room.sound).is_ok_and(|file| file.len() > 100_000)
        });
        let id = group.rpc.group_of("room").unwrap()["id"].clone();
        let members = json!({ "id": id, "clients": ["room", group.ids[0], group.ids[1]] });
        group.rpc.call("Group.SetClients", &members);
        group
    }

    fn uri(&self, name: &str) -> String {
        format!("file://{}", text(&self.scratch.join(format!("{name}.wav"))))
    }

    /// Waits until each of these announcements and plays has ended as it should.
    fn wait_for_the_ends(&mut self, mut ids: Vec<Value>) {
        while !ids.is_empty() {
            let message =
                if self.rpc.told.is_empty() { self.rpc.read() } else { self.rpc.told.remove(0) };
            let notice = &message["params"];
            if ["Aulos.OnPlay", "Aulos.OnAnnouncement"]
                .contains(&message["method"].as_str().unwrap())
                && notice["state"] == "ended"
            {
                assert_eq!(notice["cause"], "played", "{notice}");
                ids.retain(|id| *id != notice["id"]);
            }
        }
    }

    fn announce(&mut self, target: &str, id: &str, sound: &str) -> Value {
        let uri = self.uri(sound);
        let params = json!({ target: id, "uri": uri, "duck_db": -60, "normalize": false });
        self.rpc.call("Aulos.Announce", &params)["id"].clone()
    }

    fn set_sound(&mut self, player: usize, mut sound: Value) {
        sound["client"] = json!(self.ids[player]);
        self.rpc.call("Aulos.SetClientSound", &sound);
    }

    fn counter(&mut self, name: &str) -> u64 {
        let status = self.rpc.call("Aulos.GetStatus", &json!({}));
        status["counters"][name].as_u64().unwrap()
    }

    /// Plays on until the last window of a player has these levels.
    fn wait_for_levels(&mut self, player: usize, what: &str, levels: [[f64; 2]; 2]) {
        let player = &mut self.players[player];
        let mut found = [[0.0; 2]; 2];
        for _ in 0..100 {
            let count = player.received().chunks.len();
            player.wait_for_chunks(count + 5, PATIENCE).unwrap();
            let frames = played(player);
            let last = &frames[frames.len() - WINDOW..];
            found = [0, 1].map(|channel| [LEFT, RIGHT].map(|hz| level(last, channel, hz)));
            let pairs = found.iter().flatten().zip(levels.iter().flatten());
            if pairs.into_iter().all(|(is, wanted)| (is.max(-60.0) - wanted.max(-60.0)).abs() < 0.3)
            {
                return;
            }
        }
        panic!("{what}: {found:?}, not {levels:?}");
    }
}

/// A tone for each channel, of this many frames.
fn write_tones(path: &Path, hz: [f64; 2], frames: usize) {
    let amplitude = 32_768.0 * 10.0_f64.powf(DBFS / 20.0);
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "16 bits")]
    let tone = |frame: usize, hz: f64| {
        (amplitude * (TAU * hz * frame as f64 / RATE as f64).sin()).round() as i32
    };
    let tones: Vec<Frame> = (0..frames).map(|frame| hz.map(|hz| tone(frame, hz))).collect();
    write_wav(BufWriter::new(File::create(path).unwrap()), &tones, SampleWidth::B16).unwrap();
}

/// What a player has decoded; it has reported these chunks.
fn played(player: &mut SendspinProcess) -> Vec<Frame> {
    let frames = SampleWidth::B16.frames(&std::fs::read(&player.sound).unwrap());
    player.wait_for_chunks(frames.len() / CHUNK, PATIENCE).unwrap();
    frames
}

/// The level of a tone in a channel, in dBFS of a sine.
#[expect(clippy::cast_precision_loss, reason = "16 bits")]
fn level(frames: &[Frame], channel: usize, hz: f64) -> f64 {
    let (mut re, mut im) = (0.0, 0.0);
    for (at, frame) in frames.iter().enumerate() {
        let (sin, cos) = (TAU * hz * at as f64 / RATE as f64).sin_cos();
        re += f64::from(frame[channel]) * cos;
        im += f64::from(frame[channel]) * sin;
    }
    20.0 * (re.hypot(im) * 2.0 / frames.len() as f64 / 32_768.0).max(1e-9).log10()
}

/// The windows in which the left channel has a tone at its level.
fn windows_with(frames: &[Frame], hz: f64, dbfs: f64) -> Vec<usize> {
    let windows = frames.chunks_exact(WINDOW).map(|window| level(window, 0, hz)).enumerate();
    windows.filter(|(_, found)| (found - dbfs).abs() < 0.3).map(|(at, _)| at).collect()
}

/// Fails unless a tone is heard for about half a second, or not at all.
fn assert_heard(frames: &[Frame], hz: f64, is_heard: bool, who: &str) {
    let windows = windows_with(frames, hz, DBFS);
    let most = frames.chunks_exact(WINDOW).map(|window| level(window, 0, hz));
    let most = most.fold(f64::NEG_INFINITY, f64::max);
    if is_heard {
        assert!((7..=11).contains(&windows.len()), "{who}, {hz} Hz: {windows:?}, {most} dBFS");
        assert_eq!(windows.last().unwrap() - windows[0] + 1, windows.len(), "{who}, {hz} Hz");
    } else {
        assert!(most < DBFS - 15.0, "{who}, {hz} Hz: {most} dBFS");
    }
}

/// The times of the chunks that both players have, and whether these are equal.
fn compared(players: &[SendspinProcess; 2]) -> Vec<(i64, bool)> {
    let [one, two] = players.each_ref().map(|player| &player.received().chunks);
    let of: HashMap<i64, u32> = two.iter().map(|chunk| (chunk.server_us, chunk.crc32)).collect();
    let both = one.iter().filter_map(|chunk| Some((chunk, of.get(&chunk.server_us)?)));
    both.map(|(chunk, other)| (chunk.server_us, chunk.crc32 == *other)).collect()
}

#[test]
fn players_in_another_encoding_have_their_sound_and_share_one_that_is_equal() {
    let Some(tools) = SendspinTools::find_or_skip() else { return };
    let Some(snapclient) = find_or_skip("snapclient") else { return };
    let _turn = shared_turn();
    let mut group = MixedGroup::start(&tools, &snapclient);
    // A sound that both have is made once. It is faded in, so that nothing begins anew.
    for player in 0..2 {
        group.set_sound(player, json!({ "chain": { "preamp_db": -20 } }));
    }
    let quiet = DBFS - 20.0;
    for player in 0..2 {
        group.wait_for_levels(player, "a preamp", [[quiet, -200.0], [-200.0, quiet]]);
        assert_eq!(group.players[player].received().breaks(), []);
    }
    wait_for("one sound", PATIENCE, || group.counter("client_sounds") == 1);
    group.set_sound(0, json!({ "chain": { "preamp_db": -20, "channels": "swap" } }));
    group.wait_for_levels(0, "a swap", [[-200.0, quiet], [quiet, -200.0]]);
    for player in 0..2 {
        group.set_sound(player, json!({ "preset": "flat" }));
        group.wait_for_levels(player, "no sound", [[DBFS, -200.0], [-200.0, DBFS]]);
    }
    wait_for("the end of sounds", PATIENCE, || {
        group.counter("client_sounds") == 0 && group.counter("listener_codecs") == 1
    });
    // Only another channel map begins anew.
    assert_eq!(group.players[1].received().breaks(), []);
    let sound = SampleWidth::B16.frames(&group.room.stop().unwrap());
    group.server.stop().unwrap();
    let programme = windows_with(&sound, LEFT, DBFS).len();
    assert!(programme > sound.len() / WINDOW / 2, "snapclient: {programme} windows");
}

#[test]
fn players_in_another_encoding_have_announcements_plays_and_test_tones() {
    let Some(tools) = SendspinTools::find_or_skip() else { return };
    let Some(snapclient) = find_or_skip("snapclient") else { return };
    let _turn = shared_turn();
    let mut group = MixedGroup::start(&tools, &snapclient);
    let ids = group.ids.clone();
    let id = group.rpc.group_of("room").unwrap()["id"].as_str().unwrap().to_owned();
    // To the first player alone, and a test tone behind it; meanwhile the second plays a file.
    let called = group.announce("client", &ids[0], "alone");
    let tone = json!({ "client": ids[0], "kind": "sine", "seconds": 1 });
    let tone = group.rpc.call("Aulos.TestTone", &tone)["id"].clone();
    let play = json!({ "client": ids[1], "uri": group.uri("play") });
    let play = group.rpc.call("Aulos.Play", &play)["id"].clone();
    group.wait_for_the_ends(vec![called, tone, play]);
    let called = group.announce("group", &id, "group");
    group.wait_for_the_ends(vec![called]);

    let frames = group.players.each_mut().map(played);
    for (player, frames) in frames.iter().enumerate() {
        let name = ["kitchen", "hall"][player];
        assert_eq!(group.players[player].received().breaks(), [], "{name}");
        assert_heard(frames, GROUP, true, name);
        assert_heard(frames, ALONE, player == 0, name);
        assert_heard(frames, PLAY, player == 1, name);
        let tone = windows_with(frames, TEST, -18.0).len();
        assert_eq!((18..=21).contains(&tone), player == 0, "{name}: {tone} windows of the tone");
    }
    // Nothing of the programme is beside what takes its place.
    let last = *windows_with(&frames[1], PLAY, DBFS).last().unwrap();
    assert!(level(&frames[1][(last - 1) * WINDOW..][..WINDOW], 0, LEFT) < -50.0);
    // Both play the same chunks, but for what only one of them hears.
    let compared = compared(&group.players);
    let differing = compared.iter().filter(|(_, is_same)| !is_same).count();
    assert!((100..170).contains(&differing), "{differing} of {}", compared.len());
    let last = compared.iter().rposition(|(_, is_same)| !is_same).unwrap();
    assert!(compared.len() - last > 50, "{last}: the announcement to the group is one");

    for player in &group.players {
        assert!(player.received().complaints.is_empty(), "{:?}", player.received().complaints);
    }

    // The snapclient has heard what was for the group, and the programme.
    let sound = SampleWidth::B16.frames(&group.room.stop().unwrap());
    group.server.stop().unwrap();
    assert_heard(&sound, GROUP, true, "snapclient");
    assert_heard(&sound, ALONE, false, "snapclient");
    assert_heard(&sound, PLAY, false, "snapclient");
}

#[test]
fn a_player_plays_on_when_its_station_gets_a_codec_that_it_cannot_play() {
    let _turn = shared_turn();
    let Some(tools) = SendspinTools::find_or_skip() else { return };
    let scratch = ScratchDir::new("sendspin-codec").unwrap();
    let port = free_port().unwrap();
    let config = |codec: &str| {
        format!(
            "[sendspin]\nenabled = true\nlisten = \"127.0.0.1:{port}\"\ndiscover = false\n\
             [[station]]\nname = \"house\"\ncodec = \"{codec}\"\nsources = [\"tone://?hz=500\"]\n"
        )
    };
    let server = AulosServer::start(&scratch, &config("flac")).unwrap();
    let mut rpc = Rpc::connect(server.control);
    let url = format!("ws://127.0.0.1:{port}/sendspin");
    let options = ["--url", &*url, "--unpaired", "--format", "flac:48000:16:2"];
    let mut player =
        SendspinProcess::client(&tools, Dialect::Current, &scratch, "player", &options).unwrap();
    approve(&mut rpc, player.ready["client_id"].as_str().unwrap());
    player.wait_for_chunks(20, PATIENCE).unwrap();
    for (codec, renditions) in [("opus", 1), ("flac", 0)] {
        std::fs::write(scratch.join("aulos.toml"), config(codec)).unwrap();
        let reloaded = rpc.call("Aulos.Reload", &json!({}));
        assert_eq!(reloaded["changed"], json!(["house"]), "{reloaded}");
        let count = player.received().chunks.len();
        player.wait_for_chunks(count + 100, PATIENCE).unwrap();
        let frames = played(&mut player);
        let last = &frames[frames.len() - WINDOW..];
        assert!(level(last, 0, 500.0) > -40.0, "{codec}: {} dBFS", level(last, 0, 500.0));
        wait_for(codec, PATIENCE, || {
            let counters = rpc.call("Aulos.GetStatus", &json!({}))["counters"].clone();
            counters["listener_codecs"] == renditions
        });
    }
    server.stop().unwrap();
}
