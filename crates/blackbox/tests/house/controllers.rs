//! Those who control: Music Assistant from start to stop, and snapserver's answers beside ours.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::client::Client;
use aulos_blackbox::peer::{Process, Snapserver, find_or_skip};
use aulos_blackbox::scratch::Scratch;
use aulos_blackbox::server::{Aulos, binary};
use serde_json::{Value, json};

use crate::rpc::Rpc;
use crate::{turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);

/// What Music Assistant does with the server that it starts: wait for a line, connect, and for each
/// play add a stream, push sound into it, send a group to it and back, and remove it.
#[test]
fn music_assistant_finds_a_snapserver() {
    let _turn = turn();
    let scratch = Scratch::new("music-assistant").unwrap();
    let (mut process, stream, control) = start_as_snapserver(&scratch);
    let mut rpc = Rpc::connect(control);
    let mut client = Client::connect(stream, 0).unwrap();
    let mut group = None;
    wait_for("the client", PATIENCE, || {
        hear(&mut client);
        group = rpc.status()["groups"].as_array().unwrap().first().cloned();
        group.is_some()
    });
    let group = group.unwrap();
    assert_eq!(group["clients"][0]["config"]["volume"]["percent"], 20);
    let open = || std::fs::read_dir(format!("/proc/{}/fd", process.id())).unwrap().count();
    let mut before = None;
    for round in 0..5 {
        play_once(&mut rpc, &mut client, &group["id"]);
        let now = open();
        assert!(before.is_none_or(|before| now <= before), "round {round}: {now} > {before:?}");
        before.get_or_insert(now);
    }
    assert!(!client.heard.cut);
    process.terminate(PATIENCE).unwrap();
}

/// Starts it with Music Assistant's arguments, but for the ports; gives where it listens.
fn start_as_snapserver(scratch: &Scratch) -> (Process, SocketAddr, SocketAddr) {
    let program = scratch.join("snapserver");
    std::os::unix::fs::symlink(binary(), &program).unwrap();
    let [out, err] = [scratch.join("out"), scratch.join("err")];
    let path = |name: &str| scratch.join(name).display().to_string();
    let mut process = Process::start(
        Command::new(&program)
            .args(["--config=", "--http.enabled", "--http.port=0", "--tcp-control.enabled"])
            .args(["--tcp-control.port=0", "--tcp-streaming.port=0", "--stream.codec=flac"])
            .args(["--stream.sampleformat=48000:16:2", "--stream.buffer=1000"])
            .args(["--stream.chunk_ms=26", "--stream.send_to_muted=true"])
            .arg("--streaming_client.initial_volume=20")
            .arg(format!("--server.datadir={}", path("data")))
            .arg(format!("--http.doc_root={}", path("nothing")))
            .arg(format!("--stream.plugin_dir={}", path("")))
            .arg(format!("--stream.source=pipe://{}?name=default", path("fifo"))),
        &out,
        &err,
    )
    .unwrap();
    let address = |key: &str| -> Option<SocketAddr> {
        let text = std::fs::read_to_string(&out).ok()?;
        let line = text.lines().find(|line| line.trim_start().starts_with(key))?;
        let port = line.split_whitespace().nth(1)?.rsplit(':').next()?.parse().ok()?;
        Some(SocketAddr::from(([127, 0, 0, 1], port)))
    };
    wait_for("its ports", PATIENCE, || {
        assert!(process.ended().unwrap().is_none(), "{}", std::fs::read_to_string(&err).unwrap());
        address("control").is_some() && address("stream").is_some()
    });
    assert!(std::fs::read_to_string(&out).unwrap().contains("(Snapserver) Version 0."));
    (process, address("stream").unwrap(), address("control").unwrap())
}

fn play_once(rpc: &mut Rpc, client: &mut Client, group: &Value) {
    let uri = "tcp://127.0.0.1:0?sampleformat=48000:16:2&idle_threshold=60000\
               &controlscript=control.py&name=Music Assistant - osmc4";
    let id = "Music Assistant - osmc4";
    assert_eq!(rpc.call("Stream.AddStream", &json!({ "streamUri": uri }))["id"], id);
    let host = rpc.stream(id).unwrap()["uri"]["host"].as_str().unwrap().to_owned();
    rpc.call("Group.SetStream", &json!({ "id": group, "stream_id": id }));
    let mut push = None;
    wait_for("its port", PATIENCE, || {
        push = TcpStream::connect(&host).ok();
        push.is_some()
    });
    let mut push = push.unwrap();
    let sound: Vec<u8> = (0..192_000_u32).map(|at| at.wrapping_mul(37).to_le_bytes()[0]).collect();
    push.write_all(&sound).unwrap();
    wait_for("sound", PATIENCE, || {
        hear(client);
        rpc.stream(id).unwrap()["status"] == "playing"
    });
    drop(push);
    wait_for("idle", PATIENCE, || {
        hear(client);
        rpc.stream(id).unwrap()["status"] == "idle"
    });
    rpc.call("Group.SetStream", &json!({ "id": group, "stream_id": "default" }));
    assert_eq!(rpc.call("Stream.RemoveStream", &json!({ "id": id }))["id"], id);
    assert!(rpc.stream(id).is_none());
    // What the stream had open is closed; its address can be had again.
    wait_for("the port", PATIENCE, || TcpStream::connect(&host).is_err());
}

/// The same calls to snapserver and to us. What they answer is compared without what must differ:
/// ids, times, the machine, versions.
#[test]
fn we_answer_as_snapserver_does() {
    let Some(program) = find_or_skip("snapserver") else { return };
    let _turn = turn();
    let scratch = Scratch::new("differential").unwrap();
    let fifo = scratch.fifo("in").unwrap();
    let theirs = Snapserver::start(&program, &scratch, &fifo, "flac", "48000:16:2").unwrap();
    let config = format!(
        "[[station]]\nname = \"default\"\nsources = [\"pipe://{}?mode=read\"]\n",
        fifo.display()
    );
    let ours = Aulos::start(&scratch, &config).unwrap();
    let of = |stream, control| {
        let control = SocketAddr::from(([127, 0, 0, 1], control));
        exchange(SocketAddr::from(([127, 0, 0, 1], stream)), control)
    };
    let (theirs, ours) =
        (of(theirs.port, theirs.control), of(ours.stream.port(), ours.control.port()));
    let differ: Vec<String> = theirs
        .iter()
        .zip(&ours)
        .filter(|((_, theirs), (_, ours))| theirs != ours)
        .map(|((call, theirs), (_, ours))| format!("{call}\n  theirs {theirs}\n  ours   {ours}"))
        .collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert_eq!(theirs.len(), ours.len(), "{theirs:#?}\n{ours:#?}");
}

/// Takes what a client is sent, so that it is not cut.
fn hear(client: &mut Client) {
    client.read(&mut vec![0; 65_536], &mut |_, _| ());
}

/// What a server answers to one caller and tells another one.
fn exchange(stream: SocketAddr, control: SocketAddr) -> Vec<(String, Value)> {
    let (mut one, mut two) = (Rpc::connect(control), Rpc::connect(control));
    two.call("Server.GetRPCVersion", &json!({}));
    let mut client = Client::connect(stream, 7).unwrap();
    let mut group = Value::Null;
    wait_for("the client", PATIENCE, || {
        hear(&mut client);
        group = one.status()["groups"].as_array().unwrap().first().cloned().unwrap_or_default();
        group["clients"][0]["connected"] == true
    });
    let (id, group) = (group["clients"][0]["id"].clone(), group["id"].clone());
    let mut all = Vec::new();
    for (method, params) in calls(&id, &group) {
        let mut answer = one.answer(method, &params);
        mask(&mut answer);
        all.push((format!("{method} {params}"), answer));
    }
    // A batch, and what is no call.
    let version = |id: u8| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "Client.GetStatus",
        "params": { "id": "nobody" } })
    };
    one.line(&json!([version(1), version(2)]).to_string());
    all.push(("a batch".to_owned(), one.read()));
    // The second one has heard of each change, in this order; how streams do is not about calls.
    two.call("Server.GetRPCVersion", &json!({}));
    two.told.retain(|told| {
        let method = told["method"].as_str().unwrap();
        method.starts_with("Client.On") || method.starts_with("Group.On")
    });
    for mut told in std::mem::take(&mut two.told) {
        mask(&mut told);
        all.push(("told".to_owned(), told));
    }
    all
}

/// What is called, in this order.
#[rustfmt::skip]
fn calls(id: &Value, group: &Value) -> Vec<(&'static str, Value)> {
    let control = |command: &str| json!({ "id": "default", "command": command });
    let property = |name: &str, value: Value| {
        json!({ "id": "default", "property": name, "value": value })
    };
    vec![
        ("Server.GetStatus", json!({})),
        ("Client.GetStatus", json!({ "id": id })),
        ("Client.GetStatus", json!({ "id": "nobody" })),
        ("Client.SetVolume", json!({ "id": id, "volume": { "percent": 36 } })),
        ("Client.SetVolume", json!({ "id": id, "volume": { "muted": true } })),
        ("Client.SetVolume", json!({ "id": id, "volume": { "muted": false, "percent": 74 } })),
        ("Client.SetLatency", json!({ "id": id, "latency": 50 })),
        ("Client.SetLatency", json!({ "id": id, "latency": 50_000 })),
        ("Client.SetLatency", json!({ "id": id, "latency": -50_000 })),
        ("Client.SetName", json!({ "id": id, "name": "Küche" })),
        ("Group.GetStatus", json!({ "id": group })),
        ("Group.GetStatus", json!({ "id": "nope" })),
        ("Group.SetMute", json!({ "id": group, "mute": true })),
        ("Group.SetMute", json!({ "id": group, "mute": false })),
        ("Group.SetName", json!({ "id": group, "name": "downstairs" })),
        ("Group.SetStream", json!({ "id": group, "stream_id": "default" })),
        ("Group.SetStream", json!({ "id": group, "stream_id": "nope" })),
        ("Group.SetClients", json!({ "id": group, "clients": [id] })),
        ("Stream.Control", json!({ "id": "nope", "command": "play" })),
        ("Stream.Control", control("play")),
        ("Stream.Control", control("pause")),
        ("Stream.Control", control("playPause")),
        ("Stream.Control", control("stop")),
        ("Stream.Control", control("next")),
        ("Stream.Control", control("previous")),
        ("Stream.Control", control("dance")),
        ("Stream.SetProperty", property("shuffle", json!(true))),
        ("Stream.SetProperty", property("shuffle", json!(1))),
        ("Stream.SetProperty", property("colour", json!(true))),
        ("Nothing.AtAll", json!({})),
        ("Server.DeleteClient", json!({ "id": "nobody" })),
    ]
}

/// Takes out what must differ, and what of the two is only in one: our addresses of sources, the
/// properties that came with later versions, the words beside an error's code.
fn mask(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for key in ["lastSeen", "host", "uri", "properties", "snapserver", "status"] {
                map.entry(key).and_modify(|value| *value = json!("-"));
            }
            if map.contains_key("jsonrpc") && map.get("id").is_some_and(Value::is_number) {
                map.insert("id".to_owned(), json!("-"));
            }
            if map.contains_key("clients") && map.contains_key("stream_id") {
                map.insert("id".to_owned(), json!("GROUP"));
            }
            if map.contains_key("mute") || map.contains_key("stream_id") || map.contains_key("name")
            {
                map.entry("id").and_modify(|value| *value = json!("-"));
            }
            map.values_mut().for_each(mask);
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        _ => {}
    }
}
