//! Sendspin players of other implementations at a running server, in all three dialects.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::capture_check::tone_share;
use aulos_blackbox::client::ListenerClient;
use aulos_blackbox::peer::{find_or_skip, skip};
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::sendspin::{
    Dialect, SendspinPage, SendspinPeer, SendspinProcess, SendspinTools,
};
use aulos_blackbox::server::AulosServer;
use serde_json::{Value, json};

use crate::music_assistant::python_with_snapcast;
use crate::rpc::Rpc;
use crate::{shared_turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);

/// The buffer of the station.
const BUFFER_US: i64 = 1_000_000;

struct Fixture {
    scratch: ScratchDir,
    server: Option<AulosServer>,
    stream: SocketAddr,
    rpc: Rpc,
    port: u16,
}

impl Fixture {
    fn start(name: &str, codec: &str, sendspin: &str) -> Self {
        let scratch = ScratchDir::new(name).unwrap();
        let port = free_port().unwrap();
        let server = Self::start_server(&scratch, port, codec, sendspin);
        let rpc = Rpc::connect(server.control);
        Self { scratch, stream: server.stream, server: Some(server), rpc, port }
    }

    fn start_server(scratch: &ScratchDir, port: u16, codec: &str, sendspin: &str) -> AulosServer {
        let config = format!(
            "[sendspin]\nenabled = true\nlisten = \"127.0.0.1:{port}\"\ndiscover = false\n{sendspin}\n\
             [[station]]\nname = \"house\"\ncodec = \"{codec}\"\nsources = [\"tone://?hz=1000\"]\n\
             [[station]]\nname = \"other\"\ncodec = \"{codec}\"\nsources = [\"tone://?hz=400\"]\n"
        );
        AulosServer::start(scratch, &config).unwrap()
    }

    fn url(&self) -> String {
        format!("ws://127.0.0.1:{}/sendspin", self.port)
    }

    /// A player that connects and lets itself be used without pairing.
    fn player(
        &self,
        tools: &SendspinTools,
        dialect: Dialect,
        name: &str,
        more: &[&str],
    ) -> SendspinProcess {
        let (url, key) = (self.url(), self.scratch.join(format!("{name}.key")));
        let mut options = vec!["--url", &*url, "--unpaired", "--identity", key.to_str().unwrap()];
        options.extend(more);
        SendspinProcess::client(tools, dialect, &self.scratch, name, &options).unwrap()
    }

    fn approve(&mut self, player: &SendspinProcess) -> String {
        let id = player.ready["client_id"].as_str().unwrap().to_owned();
        approve(&mut self.rpc, &id);
        id
    }

    fn client(&mut self, id: &str) -> Value {
        self.rpc.call("Client.GetStatus", &json!({ "id": id }))["client"].clone()
    }
}

/// Approves a player once it waits.
pub(crate) fn approve(rpc: &mut Rpc, id: &str) {
    wait_for("the player to wait", PATIENCE, || {
        let clients = rpc.call("Aulos.GetSendspinClients", &Value::Null)["clients"].clone();
        clients.as_array().unwrap().iter().any(|one| one["id"] == *id && one["waiting"] == true)
    });
    rpc.call("Aulos.ApproveSendspinClient", &json!({ "client": id }));
}

/// The time stamps of the chunks that a Snapcast client gets while `act` runs.
fn snapcast_stamps(server: SocketAddr, act: impl FnOnce()) -> BTreeSet<i64> {
    let mut client = ListenerClient::connect(server, 1).unwrap();
    act();
    let (mut stamps, mut room) = (BTreeSet::new(), vec![0; 1 << 16]);
    client.read(&mut room, &mut |_, stamp| {
        stamps.insert(stamp);
    });
    stamps
}

fn samples(player: &SendspinProcess) -> Vec<[i32; 2]> {
    let bytes = std::fs::read(&player.sound).unwrap();
    let sample = |pair: &[u8; 2]| i32::from(i16::from_le_bytes(*pair));
    let all: Vec<i32> = bytes.as_chunks::<2>().0.iter().map(sample).collect();
    all.as_chunks::<2>().0.to_vec()
}

#[test]
fn players_of_both_encrypted_dialects_play_what_snapcast_clients_play() {
    let _turn = shared_turn();
    let Some(tools) = SendspinTools::find_or_skip() else { return };
    let mut fixture = Fixture::start("sendspin-play", "flac", "");
    // FLAC as the station has it, and PCM, which is encoded for this player alone.
    for (dialect, name, format) in [
        (Dialect::Current, "current", "flac:48000:16:2"),
        (Dialect::FirstNoise, "first", "pcm:48000:16:2"),
    ] {
        let mut player = fixture.player(&tools, dialect, name, &["--format", format]);
        let id = fixture.approve(&player);
        let stream =
            player.wait_for("a stream", PATIENCE, |event| event.named("stream_start")).unwrap();
        assert!(format.starts_with(stream["player"]["codec"].as_str().unwrap()), "{stream}");
        let stamps = snapcast_stamps(fixture.stream, || {
            player.wait_for_chunks(150, PATIENCE).unwrap();
        });
        let received = player.received();
        assert_eq!(received.breaks(), [], "{name}");
        let common = received.chunks.iter().filter(|chunk| {
            let stamp = chunk.server_us - BUFFER_US;
            stamps.range(stamp - 1..=stamp + 1).next().is_some()
        });
        assert!(common.count() >= 20, "{name}: {:?} {stamps:?}", received.chunks.first());
        let late = received.chunks.iter().filter(|chunk| chunk.at_us > chunk.server_us).count();
        assert_eq!(late, 0, "{name}");
        let share = tone_share(&samples(&player)[9_600..], 1_000.0, 48_000.0);
        assert!(share > 0.999, "{name}: {share}");
        assert_eq!(fixture.client(&id)["snapclient"]["name"], "Sendspin");
        assert!(player.received().complaints.is_empty(), "{:?}", player.received().complaints);
        player.quit().unwrap();
        wait_for("the end", PATIENCE, || fixture.client(&id)["connected"] == false);
    }
}

#[test]
fn volume_group_and_station_are_those_of_every_client() {
    let _turn = shared_turn();
    let Some(tools) = SendspinTools::find_or_skip() else { return };
    let mut fixture = Fixture::start("sendspin-group", "flac", "");
    let mut player = fixture.player(&tools, Dialect::Current, "kitchen", &["--volume", "60"]);
    let id = fixture.approve(&player);
    player.wait_for_chunks(20, PATIENCE).unwrap();
    // It is new, and keeps its volume.
    let own = json!({ "percent": 60, "muted": false });
    assert_eq!(fixture.client(&id)["config"]["volume"], own);
    let volume = json!({ "id": id, "volume": { "percent": 35, "muted": true } });
    fixture.rpc.call("Client.SetVolume", &volume);
    let has = |key: &'static str, value: Value| {
        move |event: &aulos_blackbox::sendspin::Event| {
            event.named("command").filter(|command| command[key] == value)
        }
    };
    player.wait_for("its volume", PATIENCE, has("volume", json!(35))).unwrap();
    // The user turns it up at the player.
    player.command("state", json!({ "volume": 70, "muted": false })).unwrap();
    wait_for("the volume of the player", PATIENCE, || {
        fixture.client(&id)["config"]["volume"] == json!({ "percent": 70, "muted": false })
    });
    // A controller sets the volume of the group.
    player.command("control", json!({ "command": "volume", "volume": 20 })).unwrap();
    player.wait_for("the group's volume", PATIENCE, has("volume", json!(20))).unwrap();
    // Another station: what is buffered is dropped, and the new sound comes.
    let groups = fixture.rpc.call("Server.GetStatus", &Value::Null)["server"]["groups"].clone();
    let group = groups[0]["id"].clone();
    fixture.rpc.call("Group.SetStream", &json!({ "id": group, "stream_id": "other" }));
    player.wait_for("the switch", PATIENCE, |event| event.named("stream_clear")).unwrap();
    let before = samples(&player).len();
    let chunks = player.received().chunks.len();
    player.wait_for_chunks(chunks + 60, PATIENCE).unwrap();
    let heard = &samples(&player)[before + 9_600..];
    assert!(tone_share(heard, 400.0, 48_000.0) > 0.999);
    let name = json!({ "id": group, "name": "Upstairs" });
    fixture.rpc.call("Group.SetName", &name);
    player
        .wait_for("the name", PATIENCE, |event| {
            event.named("group").filter(|group| group["group_name"] == "Upstairs")
        })
        .unwrap();
    assert!(player.received().complaints.is_empty(), "{:?}", player.received().complaints);
}

/// Prints the clients that python-snapcast finds, and sets the volume of each.
const PYTHON_SNAPCAST: &str = "
import asyncio, sys, snapcast.control
async def main():
    loop = asyncio.get_running_loop()
    server = await snapcast.control.create_server(loop, '127.0.0.1', int(sys.argv[1]))
    for client in server.clients:
        print(client.friendly_name, client.connected, client.group.stream, client.volume)
        await client.set_volume(33)
asyncio.run(main())
";

#[test]
fn python_snapcast_sees_a_player_as_a_client() {
    let Some(python) = python_with_snapcast() else { return skip("python-packages") };
    let Some(tools) = SendspinTools::find_or_skip() else { return };
    let _turn = shared_turn();
    let mut fixture = Fixture::start("sendspin-python", "flac", "");
    let mut player = fixture.player(&tools, Dialect::Current, "kitchen", &[]);
    fixture.approve(&player);
    player.wait_for_chunks(20, PATIENCE).unwrap();
    let port = fixture.server.as_ref().unwrap().control.port().to_string();
    let run = Command::new(python).args(["-c", PYTHON_SNAPCAST, &port]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&run.stdout), "kitchen True house 100\n", "{run:?}");
    let set = |event: &aulos_blackbox::sendspin::Event| {
        event.named("command").filter(|command| command["volume"] == 33)
    };
    player.wait_for("its volume", PATIENCE, set).unwrap();
}

#[test]
fn a_pairing_by_token_outlives_the_server() {
    let _turn = shared_turn();
    let Some(tools) = SendspinTools::find_or_skip() else { return };
    let mut fixture = Fixture::start("sendspin-pair", "flac", "");
    let (url, key) = (fixture.url(), fixture.scratch.join("player.key"));
    let store = fixture.scratch.join("player.store");
    let options =
        ["--url", &*url, "--identity", key.to_str().unwrap(), "--store", store.to_str().unwrap()];
    let connected = |wanted: &'static str| {
        move |event: &aulos_blackbox::sendspin::Event| {
            event.named("connected").filter(|now| now["psk"] == wanted)
        }
    };
    let start = |fixture: &Fixture| {
        let (tools, scratch) = (&tools, &fixture.scratch);
        SendspinProcess::client(tools, Dialect::Current, scratch, "player", &options).unwrap()
    };
    let mut player = start(&fixture);
    player.wait_for("the connection", PATIENCE, connected("sentinel")).unwrap();
    let token = player.ready["token"].clone();
    fixture.rpc.call("Aulos.PairSendspinClient", &json!({ "token": token }));
    player.wait_for("the pairing", PATIENCE, connected("long_term")).unwrap();
    player.wait_for_chunks(20, PATIENCE).unwrap();
    player.quit().unwrap();
    // Killed, so that nothing is saved at the end.
    drop(fixture.server.take());
    fixture.server = Some(Fixture::start_server(&fixture.scratch, fixture.port, "flac", ""));
    let mut player = start(&fixture);
    player.wait_for("the paired connection", PATIENCE, connected("long_term")).unwrap();
    player.wait_for_chunks(20, PATIENCE).unwrap();
}

#[test]
fn the_server_connects_to_a_player_that_listens() {
    let _turn = shared_turn();
    let Some(tools) = SendspinTools::find_or_skip() else { return };
    let port = free_port().unwrap();
    let connect = format!("connect = [\"127.0.0.1:{port}\"]");
    let mut fixture = Fixture::start("sendspin-dial", "flac", &connect);
    let text = port.to_string();
    let options = ["--listen", &*text, "--unpaired"];
    let mut player =
        SendspinProcess::client(&tools, Dialect::Current, &fixture.scratch, "hall", &options)
            .unwrap();
    fixture.approve(&player);
    player.wait_for_chunks(20, PATIENCE).unwrap();
    assert_eq!(player.received().breaks(), []);
}

#[test]
fn a_browser_plays_the_opus_of_the_station() {
    let _turn = shared_turn();
    let Some(tools) = SendspinTools::find_or_skip() else { return };
    let Some(chromium) = find_or_skip("chromium") else { return };
    let fixture = Fixture::start("sendspin-opus", "opus", "legacy = [\"*\"]");
    let (scratch, url) = (&fixture.scratch, fixture.url());
    let mut page = SendspinPage::open(&tools, &chromium, scratch, &url, "opus,pcm").unwrap();
    let stream = page.wait_for("a stream", PATIENCE, |event| event.named("stream_start")).unwrap();
    assert_eq!(stream["player"]["codec"], "opus", "{stream}");
    page.wait_for_chunks(100, PATIENCE).unwrap();
    // A decoder gives out less at its start.
    let chunks = &page.received().chunks[10..];
    for pair in chunks.windows(2) {
        let step = pair[1].server_us - pair[0].server_us;
        assert!((step - pair[0].frames * 1_000_000 / pair[0].rate).abs() <= 1, "{pair:?}");
    }
    let sound = page.run("peer.sound()").unwrap();
    let sample = |value: &Value| (value.as_f64().unwrap() * 32_768.0).round();
    #[expect(clippy::cast_possible_truncation, reason = "16 bits")]
    let frames: Vec<[i32; 2]> =
        sound.as_array().unwrap().iter().map(|value| [sample(value) as i32; 2]).collect();
    assert_eq!(frames.len(), 48_000);
    let share = tone_share(&frames, 1_000.0, 48_000.0);
    assert!(share > 0.99, "{share}");
}

#[test]
fn a_browser_without_encryption_plays_by_permission() {
    let _turn = shared_turn();
    let Some(tools) = SendspinTools::find_or_skip() else { return };
    let Some(chromium) = find_or_skip("chromium") else { return };
    let mut fixture = Fixture::start("sendspin-browser", "flac", "legacy = [\"*\"]");
    let url = fixture.url();
    let mut page = SendspinPage::open(&tools, &chromium, &fixture.scratch, &url, "pcm").unwrap();
    page.wait_for_chunks(40, PATIENCE).unwrap();
    assert_eq!(page.received().breaks(), []);
    let groups = fixture.rpc.call("Server.GetStatus", &Value::Null)["server"]["groups"].clone();
    let client = &groups[0]["clients"][0];
    assert_eq!(client["snapclient"]["name"], "Sendspin", "{groups}");
    let id = client["id"].clone();
    let volume = json!({ "id": id, "volume": { "percent": 30, "muted": false } });
    fixture.rpc.call("Client.SetVolume", &volume);
    wait_for("the page's volume", PATIENCE, || page.run("peer.core.volume").unwrap() == json!(30));
}
