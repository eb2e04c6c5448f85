//! The calls of Home Assistant, Music Assistant and PipeWire, one by one, in their order, with
//! their parameters; checked are the fields that each of them reads without testing for their
//! presence.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::{Value, json};

use crate::reload::Listeners;
use crate::rpc::Rpc;
use crate::{shared_turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

const CONFIG: &str = r#"
[[station]]
name = "default"
sources = ["demo://"]
[[station]]
name = "kitchen radio"
codec = "opus"
buffer_ms = 400
sources = ["tone://?hz=440"]
"#;

/// The transports; python-snapcast uses the first, newer controllers the second.
const WAYS: [fn(&AulosServer) -> Rpc; 2] =
    [|server| Rpc::connect(server.control), |server| Rpc::over_websocket(server.http)];

#[test]
fn home_assistant_sees_and_moves_every_speaker_and_finds_them_after_a_restart() {
    let _turn = shared_turn();
    for way in WAYS {
        let scratch = ScratchDir::new("home-assistant").unwrap();
        let server = AulosServer::start(&scratch, CONFIG).unwrap();
        let speakers = Listeners::start(&server, 1..3);
        speakers.go_on();
        let (mut ha, mut phone) = (way(&server), way(&server));
        phone.call("Server.GetRPCVersion", &json!({}));
        let server_status = status(&mut ha);
        let clients = clients(&server_status);
        assert_eq!(clients.len(), 2, "{server_status:#}");
        let [first, second] = [&clients[0]["id"], &clients[1]["id"]];

        sliders_and_names(&mut ha, &mut phone, first);
        grouping(&mut ha, &mut phone, first, second);
        come_and_go(&mut ha, &server, &speakers);

        // Home Assistant or the server restarts: it connects and requests the status again.
        let before = status(&mut ha);
        drop((ha, phone));
        speakers.end();
        server.stop().unwrap();
        let server = AulosServer::start(&scratch, CONFIG).unwrap();
        let after = status(&mut way(&server));
        let known = |server_status: &Value| -> Vec<(Value, Vec<Value>)> {
            let groups = server_status["groups"].as_array().unwrap().iter();
            let ids = |group: &Value| {
                let clients = group["clients"].as_array().unwrap().iter();
                clients.map(|one| json!([one["id"], one["config"]])).collect()
            };
            groups.map(|group| (group["id"].clone(), ids(group))).collect()
        };
        assert_eq!(known(&after), known(&before));
        server.stop().unwrap();
    }
}

/// Volume, mute, latency and name, with the services `snapshot` and `restore`. Other controllers
/// are notified, the caller is not.
fn sliders_and_names(ha: &mut Rpc, phone: &mut Rpc, client: &Value) {
    for (muted, percent) in [(false, 37), (true, 37), (false, 90), (true, 37)] {
        let volume = json!({ "muted": muted, "percent": percent });
        let params = json!({ "id": client, "volume": volume });
        assert_eq!(ha.call("Client.SetVolume", &params)["volume"], volume);
        let told = phone.hear("Client.OnVolumeChanged");
        assert_eq!(told, json!({ "id": client, "volume": volume }));
    }
    let latency = json!({ "id": client, "latency": 120 });
    assert_eq!(ha.call("Client.SetLatency", &latency)["latency"], 120);
    assert_eq!(phone.hear("Client.OnLatencyChanged"), latency);
    let name = json!({ "id": client, "name": "Küche" });
    assert_eq!(ha.call("Client.SetName", &name)["name"], "Küche");
    assert_eq!(phone.hear("Client.OnNameChanged"), name);
    let shown = ha.call("Client.GetStatus", &json!({ "id": client }))["client"].clone();
    assert_eq!(shown["config"]["volume"], json!({ "muted": true, "percent": 37 }));
    assert_eq!(
        (&shown["config"]["latency"], &shown["config"]["name"]),
        (&json!(120), &name["name"])
    );
    let own = ["Client.OnVolumeChanged", "Client.OnLatencyChanged", "Client.OnNameChanged"];
    let heard = ha.told.iter().find(|told| own.contains(&told["method"].as_str().unwrap()));
    assert!(heard.is_none(), "it hears of what it did itself: {heard:?}");
}

/// Another source, the group's mute and name, and the calls of `join` and `unjoin`: the new clients
/// of the group, and then the whole status.
fn grouping(ha: &mut Rpc, phone: &mut Rpc, first: &Value, second: &Value) {
    let group = group_of(&status(ha), first)["id"].clone();
    let source = json!({ "id": group, "stream_id": "kitchen radio" });
    assert_eq!(ha.call("Group.SetStream", &source)["stream_id"], "kitchen radio");
    assert_eq!(phone.hear("Group.OnStreamChanged"), source);
    for mute in [true, false] {
        let params = json!({ "id": group, "mute": mute });
        assert_eq!(ha.call("Group.SetMute", &params)["mute"], mute);
        assert_eq!(phone.hear("Group.OnMute"), params);
    }
    let name = json!({ "id": group, "name": "downstairs" });
    assert_eq!(ha.call("Group.SetName", &name)["name"], "downstairs");
    assert_eq!(phone.hear("Group.OnNameChanged"), name);

    let join = json!({ "id": group, "clients": [first, second] });
    let answer = ha.call("Group.SetClients", &join)["server"].clone();
    judge(&answer);
    judge(&phone.hear("Server.OnUpdate")["server"]);
    let joined = status(ha);
    assert_eq!(group_of(&joined, second)["id"], group);
    assert_eq!(joined["groups"].as_array().unwrap().len(), 1);
    let leave = json!({ "id": group, "clients": [first] });
    judge(&ha.call("Group.SetClients", &leave)["server"]);
    let left = status(ha);
    let own = group_of(&left, second);
    assert_ne!(own["id"], group, "who is left out comes back in a new group");
    assert_eq!(own["stream_id"], "kitchen radio");
    assert_eq!(
        ha.call("Group.GetStatus", &json!({ "id": group }))["group"],
        group_of(&left, first)
    );
}

/// A new speaker gives a server update, a known one connect and disconnect notifications.
fn come_and_go(ha: &mut Rpc, server: &AulosServer, speakers: &Listeners) {
    ha.told.clear();
    for (round, method) in ["Server.OnUpdate", "Client.OnConnect"].iter().enumerate() {
        let third = Listeners::start(server, 77..78);
        let told = ha.hear(method);
        let id = if round == 0 {
            judge(&told["server"]);
            clients(&told["server"]).last().unwrap()["id"].clone()
        } else {
            judge_client(&told["client"]);
            told["id"].clone()
        };
        assert_eq!(id, "02:00:00:00:00:4d");
        third.go_on();
        third.end();
        let told = ha.hear("Client.OnDisconnect");
        assert_eq!((&told["id"], &told["client"]["connected"]), (&id, &json!(false)));
    }
    let gone = json!({ "id": "02:00:00:00:00:4d" });
    judge(&ha.call("Server.DeleteClient", &gone)["server"]);
    assert_eq!(clients(&status(ha)).len(), 2);
    speakers.go_on();
}

/// Music Assistant over one lasting connection: a stream per player on a port that it chooses
/// itself, pushed into by ffmpeg, left again when it is idle; announcements by another stream;
/// players in sync.
#[test]
fn music_assistant_plays_announces_and_groups() {
    let _turn = shared_turn();
    for way in WAYS {
        let scratch = ScratchDir::new("music-assistant-calls").unwrap();
        let server = AulosServer::start(&scratch, CONFIG).unwrap();
        let speakers = Listeners::start(&server, 1..3);
        speakers.go_on();
        let mut ma = way(&server);
        let server_status = status(&mut ma);
        let players: Vec<Value> =
            clients(&server_status).iter().map(|one| one["id"].clone()).collect();
        let group = group_of(&server_status, &players[0])["id"].clone();

        let music = Queue::start(&mut ma, "Music Assistant - kitchen", &group);
        let mut push = music.push();
        ma.call("Group.SetClients", &json!({ "id": group, "clients": players }));
        assert_eq!(group_of(&status(&mut ma), &players[1])["stream_id"], music.id);
        ma.call("Group.SetName", &json!({ "id": group, "name": "party" }));
        for player in &players {
            let volume = json!({ "muted": false, "percent": 20 });
            ma.call("Client.SetVolume", &json!({ "id": player, "volume": volume }));
        }

        // A doorbell: the group plays another stream meanwhile, and then the music again.
        let bell = Queue::start(&mut ma, "MA announcement", &group);
        let ring = bell.push();
        bell.wait_for(&mut ma, "playing");
        drop(ring);
        bell.wait_for(&mut ma, "idle");
        ma.call("Group.SetStream", &json!({ "id": group, "stream_id": music.id }));
        bell.remove(&mut ma);
        push.write_all(&sound()).unwrap();
        music.wait_for(&mut ma, "playing");

        drop(push);
        music.wait_for(&mut ma, "idle");
        ma.call("Group.SetStream", &json!({ "id": group, "stream_id": "default" }));
        music.remove(&mut ma);
        assert_eq!(group_of(&status(&mut ma), &players[1])["stream_id"], "default");
        ma.call("Group.SetClients", &json!({ "id": group, "clients": [players[0]] }));
        judge(&status(&mut ma));
        speakers.go_on();
        let heard = speakers.end();
        assert!(heard.iter().all(|one| !one.cut && one.strange == 0), "{heard:?}");
        server.stop().unwrap();
    }
}

/// A stream of Music Assistant's.
struct Queue {
    id: &'static str,
    host: String,
}

impl Queue {
    /// Tries ports until one is free, and assigns the stream to a group.
    fn start(ma: &mut Rpc, id: &'static str, group: &Value) -> Self {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let busy = taken.local_addr().unwrap().port();
        let mut port = busy;
        for attempt in 0..50 {
            // Spaces as they are, and the control script that it requests.
            let uri = format!(
                "tcp://127.0.0.1:{port}?sampleformat=48000:16:2&idle_threshold=60000\
                 &controlscript=control.py&controlscriptparams=--queueid=x%20--api-port=1&name={id}"
            );
            let answer = ma.answer("Stream.AddStream", &json!({ "streamUri": uri }));
            if answer["result"]["id"] == *id {
                assert!(attempt > 0, "the port was taken");
                break;
            }
            // Anything but a response with an id is an error, and the next port is tried.
            assert!(answer["error"].is_object() && answer["result"]["id"].is_null(), "{answer}");
            port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        }
        let server_status = status(ma);
        let stream = stream(&server_status, id);
        // It pushes to `uri.path`, or else to `uri.host`, which must contain the port.
        let host = stream["uri"]["host"].as_str().unwrap().to_owned();
        assert_eq!(
            (host.as_str(), &stream["uri"]["path"]),
            (&*format!("127.0.0.1:{port}"), &json!(""))
        );
        let play = json!({ "id": group, "stream_id": id });
        assert_eq!(ma.call("Group.SetStream", &play)["stream_id"], id);
        Self { id, host }
    }

    /// Pushes like ffmpeg; retries while the port is not open yet.
    fn push(&self) -> TcpStream {
        let mut socket = None;
        wait_for("its port", PATIENCE, || {
            socket = TcpStream::connect(&self.host).ok();
            socket.is_some()
        });
        let mut socket = socket.unwrap();
        socket.write_all(&sound()).unwrap();
        socket
    }

    /// It gets its stream's state by notifications, without polling.
    fn wait_for(&self, ma: &mut Rpc, wanted: &str) {
        let now = stream(&status(ma), self.id)["status"].clone();
        if now == wanted {
            return;
        }
        loop {
            let told = ma.hear("Stream.OnUpdate");
            judge_stream(&told["stream"]);
            if told["id"] == self.id && told["stream"]["status"] == wanted {
                return;
            }
        }
    }

    fn remove(&self, ma: &mut Rpc) {
        assert_eq!(ma.call("Stream.RemoveStream", &json!({ "id": self.id }))["id"], self.id);
        let server_status = status(ma);
        assert!(
            server_status["streams"].as_array().unwrap().iter().all(|one| one["id"] != self.id)
        );
    }
}

/// PipeWire finds a server and sends three calls at once, without waiting for a response: the
/// version, the removal of an old stream of its own, and a stream that the server fetches from it.
#[test]
fn pipewire_asks_three_things_at_once_and_is_fetched_from() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("pipewire").unwrap();
    let server = AulosServer::start(&scratch, CONFIG).unwrap();
    let desk = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = desk.local_addr().unwrap();
    let uri = format!(
        "tcp://{address}?name=PipeWire-desk&sampleformat=48000:16:2&mode=client&codec=pcm&chunk_ms=20"
    );
    let call = |id: u8, method: &str, params: Value| {
        json!({ "id": id, "jsonrpc": "2.0", "method": method, "params": params }).to_string()
    };
    let mut rpc = Rpc::connect(server.control);
    rpc.line(
        &[
            call(0, "Server.GetRPCVersion", json!({})),
            call(1, "Stream.RemoveStream", json!({ "id": "PipeWire-desk" })),
            call(2, "Stream.AddStream", json!({ "streamUri": uri })),
        ]
        .join("\r\n"),
    );
    let mut answers = Vec::new();
    while answers.len() < 3 {
        let message = rpc.read();
        if message.get("id").is_some() {
            answers.push(message);
        }
    }
    let ids: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, [0, 1, 2]);
    assert!(answers[1].get("error").is_none(), "{}", answers[1]);
    assert_eq!(answers[2]["result"]["id"], "PipeWire-desk");
    let (mut desk, _) = desk.accept().unwrap();
    desk.write_all(&sound()).unwrap();
    wait_for("sound", PATIENCE, || {
        rpc.stream("PipeWire-desk").is_some_and(|stream| stream["status"] == "playing")
    });
    drop(desk);
    server.stop().unwrap();
}

/// A second of audio, 48000:16:2.
fn sound() -> Vec<u8> {
    (0..192_000_u32).map(|at| at.wrapping_mul(37).to_le_bytes()[0]).collect()
}

/// The whole status, read as these integrations read it.
fn status(rpc: &mut Rpc) -> Value {
    let status = rpc.call("Server.GetStatus", &json!({}))["server"].clone();
    judge(&status);
    status
}

/// Reads the fields that the integrations read without testing for their presence.
fn judge(server_status: &Value) {
    let version = server_status["server"]["snapserver"]["version"].as_str().unwrap();
    let numbers: Vec<u32> = version.split('.').map(|part| part.parse().unwrap()).collect();
    // Methods are used from 0.16 and 0.26 on; 0.30 is refused, because it had no AddStream.
    assert!(numbers > vec![0, 26] && numbers[1] != 30, "{version}");
    for group in server_status["groups"].as_array().unwrap() {
        for key in ["id", "name", "stream_id"] {
            assert!(group[key].is_string(), "{key} of {group}");
        }
        assert!(group["muted"].is_boolean(), "{group}");
        let clients = group["clients"].as_array().unwrap();
        assert!(!clients.is_empty(), "a group's volume is divided by its clients: {group}");
        clients.iter().for_each(judge_client);
        // A group plays a stream that is listed.
        stream(server_status, group["stream_id"].as_str().unwrap());
    }
    let streams = server_status["streams"].as_array().unwrap();
    assert!(streams.iter().any(|stream| stream["id"] == "default"), "{server_status}");
    streams.iter().for_each(judge_stream);
}

fn judge_client(client: &Value) {
    let config = &client["config"];
    assert!(config["name"].is_string() && config["latency"].is_i64(), "{client}");
    let volume = &config["volume"];
    assert!(volume["percent"].as_u64().is_some_and(|percent| percent <= 100), "{client}");
    assert!(volume["muted"].is_boolean() && client["connected"].is_boolean(), "{client}");
    for key in ["name", "ip", "os", "arch"] {
        assert!(client["host"][key].is_string(), "host.{key} of {client}");
    }
    assert!(client["snapclient"]["version"].is_string(), "{client}");
    assert!(client["lastSeen"]["sec"].is_i64() && client["id"].is_string(), "{client}");
}

fn judge_stream(stream: &Value) {
    let status = stream["status"].as_str().unwrap();
    assert!(["idle", "playing", "unknown"].contains(&status), "{stream}");
    assert_eq!(stream["uri"]["query"]["name"], stream["id"], "{stream}");
    assert!(stream["uri"]["path"].is_string() && stream["uri"]["host"].is_string(), "{stream}");
    assert!(stream["properties"].is_object(), "{stream}");
}

fn clients(server_status: &Value) -> Vec<Value> {
    let groups = server_status["groups"].as_array().unwrap().iter();
    groups.flat_map(|group| group["clients"].as_array().unwrap().clone()).collect()
}

fn group_of(server_status: &Value, client: &Value) -> Value {
    let holds = |group: &&Value| {
        group["clients"].as_array().unwrap().iter().any(|one| one["id"] == *client)
    };
    server_status["groups"]
        .as_array()
        .unwrap()
        .iter()
        .find(holds)
        .expect("the client's group")
        .clone()
}

fn stream(server_status: &Value, id: &str) -> Value {
    let mut streams = server_status["streams"].as_array().unwrap().iter();
    streams.find(|one| one["id"] == id).unwrap_or_else(|| panic!("no stream {id}")).clone()
}
