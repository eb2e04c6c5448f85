//! Names where ids are expected, through the whole control plane.

use std::sync::Arc;

use aulos_control::Control;
use serde_json::{Value, json};

use crate::common::{FakeBackend, hello};
use crate::rpc::{call, control_of, group_of};

const STATIONS: &str = "[[station]]\nname = \"Hall\"\nsources = [\"demo://\"]\n\
                        [[station]]\nname = \"House music\"\nsources = [\"demo://\"]\n";

/// Two clients, of which the second one's id begins with the first one's.
fn house() -> (Arc<FakeBackend>, Control) {
    let (backend, control) = control_of(STATIONS);
    for (session, id, name) in [(1, "aa:01", "Kitchen"), (2, "aa:01#2", "Kiosk")] {
        control.handle_event(hello(session, id));
        call(&control, "Client.SetName", &json!({ "id": id, "name": name }));
    }
    (backend, control)
}

#[test]
fn a_method_of_aulos_takes_ids_names_and_unique_beginnings() {
    let (_backend, control) = house();
    for (percent, client) in (50..).zip(["aa:01", "kitchen", "KIT", "aa:01#2", "kiosk", "kio"]) {
        let params = json!({ "client": client, "percent": percent });
        let answer = call(&control, "Aulos.SetVolume", &params);
        assert_eq!(answer["result"]["percent"], percent, "{client}: {answer}");
        let id = if percent < 53 { "aa:01" } else { "aa:01#2" };
        let status = call(&control, "Client.GetStatus", &json!({ "id": id }));
        assert_eq!(status["result"]["client"]["config"]["volume"]["percent"], percent, "{client}");
    }
    // A group without a name has that of its client.
    let answer = call(&control, "Aulos.SetVolume", &json!({ "group": "kitc", "percent": 5 }));
    assert_eq!(answer["result"]["percent"], 5, "{answer}");
    let answer = call(&control, "Aulos.GetEqualizer", &json!({ "station": "house" }));
    assert_eq!(answer["result"]["station"], "House music", "{answer}");
    let announce = json!({ "group": "ki", "uri": "file:///x.wav" });
    for (method, params, expected) in [
        (
            "Aulos.SetVolume",
            json!({ "client": "ki", "percent": 5 }),
            "`client`: `ki` names several clients: `Kitchen` (aa:01) or `Kiosk` (aa:01#2)",
        ),
        (
            "Aulos.SetVolumeCap",
            json!({ "client": "attic", "percent": 5 }),
            "`client`: there is no client `attic`; there are `Kitchen` (aa:01) and `Kiosk` \
             (aa:01#2)",
        ),
        ("Aulos.Announce", announce, "`group`: `ki` names several groups: `Kitchen` ("),
        (
            "Aulos.GetEqualizer",
            json!({ "station": "h" }),
            "`h` names several stations: `Hall` or `House music`",
        ),
        (
            "Aulos.StartRecording",
            json!({ "station": ["hall", "attic"] }),
            "there is no station `attic`; there are `Hall` and `House music`",
        ),
    ] {
        let error = call(&control, method, &params)["error"].clone();
        assert_eq!(error["code"], -32_603, "{method} {error}");
        assert!(error["data"].as_str().unwrap().starts_with(expected), "{method} {error}");
    }
}

/// An app that acts on a client which has just been deleted must not reach another one.
#[test]
fn a_method_of_snapcast_takes_whole_names_and_answers_as_snapserver_does() {
    let (_backend, control) = house();
    let groups = ["aa:01", "aa:01#2"].map(|id| group_of(&control, id));
    let set = |id: &str| {
        call(&control, "Client.SetVolume", &json!({ "id": id, "volume": { "percent": 7 } }))
    };
    assert_eq!(set("kitchen")["result"]["volume"]["percent"], 7);
    assert_eq!(set("kit")["error"]["data"], "Client not found");
    let stream = json!({ "id": "kiosk", "stream_id": "house MUSIC" });
    let answer = call(&control, "Group.SetStream", &stream);
    assert_eq!(answer["result"]["stream_id"], "House music");
    let clients = json!({ "id": "kitchen", "clients": ["KITCHEN", "kiosk", "attic", "k"] });
    call(&control, "Group.SetClients", &clients);
    assert!(["aa:01", "aa:01#2"].iter().all(|id| group_of(&control, id) == groups[0]));
    call(&control, "Server.DeleteClient", &json!({ "id": "aa:01" }));
    assert_eq!(set("aa:01")["error"]["data"], "Client not found");
    for (method, params, error) in [
        ("Group.SetName", json!({ "id": groups[1], "name": "x" }), "Group not found"),
        ("Group.SetStream", json!({ "id": groups[0], "stream_id": "Ha" }), "Stream not found"),
    ] {
        assert_eq!(call(&control, method, &params)["error"]["data"], error);
    }
}

#[test]
fn a_list_of_names_is_bounded_and_a_list_of_ids_is_not() {
    let (_backend, control) = house();
    let group = group_of(&control, "aa:01");
    let mut list = vec![json!("aa:01"); 100_000];
    list.extend((0..100).map(|number| json!(format!("gone {number}"))));
    list.push(json!("kiosk"));
    call(&control, "Group.SetClients", &json!({ "id": group, "clients": list }));
    assert_ne!(group_of(&control, "aa:01#2"), group, "more names than are looked up");
    list.push(json!("aa:01#2"));
    call(&control, "Group.SetClients", &json!({ "id": group, "clients": list }));
    assert_eq!(group_of(&control, "aa:01#2"), group);
    let stations: Vec<Value> = (0..65).map(|_| json!("HALL")).collect();
    let answer = call(&control, "Aulos.StartRecording", &json!({ "station": stations }));
    assert_eq!(answer["error"]["data"], "`station`: give ids, or at most 64 names");
}
