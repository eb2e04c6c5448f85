//! Controllers: snapserver's responses compared with ours, and many at once.

use std::net::SocketAddr;
use std::time::Duration;

use aulos_blackbox::client::ListenerClient;
use aulos_blackbox::peer::{Snapserver, find_or_skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::{Value, json};

use crate::rpc::Rpc;
use crate::{hear, id_of, shared_turn, turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);

/// The same calls to snapserver and to this server. The responses are compared without what must
/// differ: ids, times, the machine, versions.
#[test]
fn we_answer_as_snapserver_does() {
    let Some(program) = find_or_skip("snapserver") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("differential").unwrap();
    let fifo = scratch.fifo("in").unwrap();
    let theirs = Snapserver::start(&program, &scratch, &fifo, "flac", "48000:16:2").unwrap();
    let config = format!(
        "[[station]]\nname = \"default\"\nsources = [\"pipe://{}?mode=read\"]\n",
        fifo.display()
    );
    let ours = AulosServer::start(&scratch, &config).unwrap();
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

/// Many controllers that do not wait for responses, each in its own way, all with the same client.
/// Each gets its responses in the order of its calls, and all see the same changes in the same
/// order.
#[test]
fn controllers_that_talk_all_at_once_are_answered_in_order_and_see_one_order() {
    let _turn = turn();
    let scratch = ScratchDir::new("pipelining").unwrap();
    let config = "[[station]]\nname = \"default\"\nsources = [\"demo://\"]\n";
    let server = AulosServer::start(&scratch, config).unwrap();
    let mut client = ListenerClient::connect(server.stream, 7).unwrap();
    let mut rpc = Rpc::connect(server.control);
    let id = id_of(&mut client, &mut rpc, PATIENCE);
    drop(client);
    let mut watchers =
        [Rpc::connect(server.control), Rpc::over_websocket(server.http)].map(|mut watcher| {
            watcher.call("Server.GetRPCVersion", &json!({}));
            watcher
        });
    let talkers: Vec<_> = (0..6)
        .map(|number| {
            let (control, http, id) = (server.control, server.http, id.clone());
            std::thread::spawn(move || {
                let rpc =
                    if number % 2 == 0 { Rpc::connect(control) } else { Rpc::over_websocket(http) };
                talk(rpc, number, &id);
            })
        })
        .collect();
    talkers.into_iter().for_each(|talker| talker.join().unwrap());
    let [one, two] = watchers.each_mut().map(|watcher| {
        let names = (0..6 * NAMES).map(|_| watcher.hear("Client.OnNameChanged")["name"].clone());
        names.collect::<Vec<Value>>()
    });
    assert_eq!(one, two);
    for number in 0..6 {
        let own = one.iter().filter(|name| name.as_str().unwrap().starts_with(&talker(number)));
        assert!(own.eq(&names(number)), "talker {number} is out of order: {one:?}");
    }
    let shown = rpc.call("Client.GetStatus", &json!({ "id": id }));
    assert_eq!(Some(&shown["client"]["config"]["name"]), one.last());
    server.stop().unwrap();
}

/// Names that each of them gives the client.
const NAMES: usize = 40;

fn talker(number: usize) -> String {
    format!("talker {number}: ")
}

fn names(number: usize) -> Vec<Value> {
    (0..NAMES).map(|n| json!(format!("{}{n}", talker(number)))).collect()
}

/// Calls and batches alternately, all of them before the first response is read.
fn talk(mut rpc: Rpc, number: usize, id: &Value) {
    let names = names(number);
    let call = |id: Value, method: &str, params: Value| json!({ "id": id, "jsonrpc": "2.0", "method": method, "params": params });
    let set = |n: usize| call(json!(n), "Client.SetName", json!({ "id": id, "name": names[n] }));
    let batch = |n: usize| {
        json!([
            set(n),
            call(json!(format!("text {n}")), "Server.GetRPCVersion", json!({})),
            call(Value::Null, "Nothing.AtAll", json!({})),
            7,
            set(n + 1),
            { "jsonrpc": "2.0", "method": "Server.GetRPCVersion" },
        ])
    };
    for n in (0..NAMES).step_by(4) {
        rpc.line(&set(n).to_string());
        rpc.line(&batch(n + 1).to_string());
        rpc.line(&set(n + 3).to_string());
    }
    let mut answer = || loop {
        let message = rpc.read();
        if message.is_array() || message.get("id").is_some() {
            return message;
        }
    };
    let is_set = |answer: &Value, n: usize| {
        assert_eq!((&answer["id"], &answer["result"]["name"]), (&json!(n), &names[n]), "{answer}");
    };
    for n in (0..NAMES).step_by(4) {
        is_set(&answer(), n);
        let answers = answer();
        let ids: Vec<&Value> = answers.as_array().unwrap().iter().map(|one| &one["id"]).collect();
        let text = json!(format!("text {}", n + 1));
        assert_eq!(ids, [&json!(n + 1), &text, &Value::Null, &Value::Null, &json!(n + 2)]);
        is_set(&answers[0], n + 1);
        assert_eq!(answers[2]["error"]["code"], -32_601);
        assert_eq!(answers[3]["error"]["code"], -32_600);
        is_set(&answers[4], n + 2);
        is_set(&answer(), n + 3);
    }
}

/// Reads what a client is sent, so that it is not disconnected. Returns the responses to one caller
/// and the notifications to another.
fn exchange(stream: SocketAddr, control: SocketAddr) -> Vec<(String, Value)> {
    let (mut one, mut two) = (Rpc::connect(control), Rpc::connect(control));
    two.call("Server.GetRPCVersion", &json!({}));
    let mut client = ListenerClient::connect(stream, 7).unwrap();
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
    // A batch, and an invalid call.
    let version = |id: u8| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "Client.GetStatus",
        "params": { "id": "nobody" } })
    };
    one.line(&json!([version(1), version(2)]).to_string());
    all.push(("a batch".to_owned(), one.read()));
    // The second controller has got each change, in this order; stream states are not compared.
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

/// The calls, in this order.
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
        ("Client.GetStatus", json!({})),
        ("Client.GetStatus", json!({ "id": 7 })),
        ("Client.SetVolume", json!({ "id": id })),
        ("Client.SetVolume", json!({ "id": "nobody", "volume": { "percent": 3 } })),
        ("Client.SetVolume", json!({ "id": id, "volume": {} })),
        ("Client.SetLatency", json!({ "id": id })),
        ("Client.SetName", json!({ "id": id, "name": "" })),
        ("Group.SetMute", json!({ "id": group })),
        ("Group.SetClients", json!({ "id": group })),
        ("Group.SetClients", json!({ "id": "nope", "clients": [id] })),
        ("Group.SetClients", json!({ "id": group, "clients": [id, id, "nobody"] })),
        ("Group.SetClients", json!({ "id": group, "clients": [] })),
        ("Stream.Control", json!({ "id": "default" })),
        ("Server.DeleteClient", json!({ "id": "nobody" })),
    ]
}

/// Removes what must differ, and what only one of the two has: our source addresses, properties of
/// later versions, the message and code for a missing parameter.
fn mask(value: &mut Value) {
    match value {
        Value::Object(map) => {
            // For a missing parameter snapserver reports where its program failed, this server what
            // it expects.
            let stumbled = map.get("data").and_then(Value::as_str).is_some_and(|data| {
                data == "map::at"
                    || data.starts_with("[json.exception")
                    || data.contains("` must be")
            });
            if stumbled && map.contains_key("code") {
                *map = [("code".to_owned(), json!("refused"))].into_iter().collect();
            }
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
