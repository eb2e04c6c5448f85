//! Another configuration for a running server: what changes, what does not, and what is reported.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use aulos_config::ResolvedConfig;
use aulos_control::backend::{ClientSound, SessionCommand, SessionId};

use crate::common::{Server, TWO_STATIONS, eventually, resolve, scratch, settings};
use serde_json::{Value, json};

/// A configuration as a reload reads it: with the folder that this server began with.
fn next(server: &Server, text: &str) -> ResolvedConfig {
    ResolvedConfig { state_dir: server.state_dir.clone(), ..resolve(text) }
}

fn reload(server: &Server, text: &str) -> Value {
    *server.next.lock().unwrap() = Ok(next(server, text));
    server.controller().call("Aulos.Reload", json!({}))["result"].clone()
}

fn names(server: &Server) -> Vec<String> {
    let status = server.controller().call("Server.GetStatus", json!({}));
    let streams = status["result"]["server"]["streams"].as_array().unwrap().clone();
    streams.iter().map(|stream| stream["id"].as_str().unwrap().to_owned()).collect()
}

fn touched(server: &Server) -> (Vec<usize>, Vec<usize>, Vec<usize>) {
    let backend = &server.backend;
    let [added, replaced, removed] = [&backend.added, &backend.replaced, &backend.removed]
        .map(|list| list.lock().unwrap().clone());
    (added, replaced, removed)
}

const NOTHING: &str = r#"{"added":[],"changed":[],"adjusted":[],"removed":[],"settings":[],"needs_restart":[],"failed":[],"relays":{"added":[],"changed":[],"removed":[],"failed":[]}}"#;

fn nothing_but(changes: Value) -> Value {
    let mut answer: Value = serde_json::from_str(NOTHING).unwrap();
    let Value::Object(changes) = changes else { panic!("{changes}") };
    answer.as_object_mut().unwrap().extend(changes);
    answer
}

const ATTIC: &str = "[[station]]\nname = \"attic\"\nsources = [\"demo://\"]\n";

#[test]
fn the_same_configuration_touches_nothing() {
    let server = Server::start();
    server.hello(1, "a");
    let told = server.backend.commands.lock().unwrap().len();
    let comments = format!("# nothing new\n{TWO_STATIONS}\n");
    assert_eq!(reload(&server, &comments), nothing_but(json!({})));
    assert_eq!(touched(&server), (vec![], vec![], vec![]));
    assert_eq!(server.backend.commands.lock().unwrap().len(), told);
}

#[test]
fn clients_of_a_removed_station_move_to_the_default_station() {
    let server = Server::start();
    server.hello(1, "a");
    let mut other = server.controller();
    other.call("Server.GetRPCVersion", json!({}));
    let more = format!("{TWO_STATIONS}{ATTIC}");
    assert_eq!(reload(&server, &more), nothing_but(json!({ "added": ["attic"] })));
    assert_eq!(names(&server), ["default", "kitchen radio", "attic"]);
    let update = other.notice_of("Server.OnUpdate");
    assert_eq!(update["params"]["server"]["streams"].as_array().unwrap().len(), 3);

    let mut one = server.controller();
    let status = one.call("Server.GetStatus", json!({}));
    let group = status["result"]["server"]["groups"][0]["id"].clone();
    one.call("Group.SetStream", json!({ "id": group, "stream_id": "attic" }));
    let moved = |station| SessionCommand::MoveClient {
        session: SessionId(1),
        station,
        sound: ClientSound::default(),
        continues: false,
    };
    assert_eq!(server.backend.commands.lock().unwrap().last(), Some(&moved(2)));
    assert_eq!(reload(&server, TWO_STATIONS), nothing_but(json!({ "removed": ["attic"] })));
    assert_eq!(server.backend.commands.lock().unwrap().last(), Some(&moved(0)));
    assert_eq!(other.notice_of("Group.OnStreamChanged")["params"]["stream_id"], "attic");
    assert_eq!(other.notice_of("Group.OnStreamChanged")["params"]["stream_id"], "default");
    assert_eq!(names(&server), ["default", "kitchen radio"]);
    assert_eq!(touched(&server), (vec![], vec![], vec![2]));
}

#[test]
fn a_changed_station_keeps_its_id_and_its_clients_get_the_buffer_first() {
    let server = Server::start();
    server.hello(1, "a");
    server.backend.commands.lock().unwrap().clear();
    // The default station, without a word about its buffer before: 1,000 ms.
    let longer =
        TWO_STATIONS.replacen("name = \"default\"", "name = \"default\"\nbuffer_ms = 2000", 1);
    assert_eq!(reload(&server, &longer), nothing_but(json!({ "changed": ["default"] })));
    assert_eq!(touched(&server), (vec![], vec![0], vec![]));
    let settings = settings(100, false, 2_000);
    let told = SessionCommand::SetSettings { session: SessionId(1), settings };
    assert_eq!(*server.backend.commands.lock().unwrap(), [told]);
    // Another codec is no business of the settings.
    server.backend.commands.lock().unwrap().clear();
    let other = longer.replace("\"opus\"", "\"pcm\"");
    assert_eq!(reload(&server, &other), nothing_but(json!({ "changed": ["kitchen radio"] })));
    assert_eq!(touched(&server), (vec![], vec![0, 1], vec![]));
    assert_eq!(*server.backend.commands.lock().unwrap(), []);
}

#[test]
fn what_is_wrong_changes_nothing_and_is_answered() {
    let server = Server::start();
    let problem = "aulos.toml:3:9: `codec` is \"mp4\"";
    *server.next.lock().unwrap() = Err(problem.to_owned());
    let answer = server.controller().call("Aulos.Reload", json!({}));
    assert_eq!(answer["error"]["code"], -32_603);
    assert_eq!(answer["error"]["data"], problem);
    server.hang_up();
    assert_eq!(names(&server), ["default", "kitchen radio"]);
    assert_eq!(touched(&server), (vec![], vec![], vec![]));
    // It goes on, and takes the next one.
    *server.next.lock().unwrap() = Ok(next(&server, &format!("{TWO_STATIONS}{ATTIC}")));
    server.hang_up();
    eventually(|| names(&server).len() == 3);
}

#[test]
fn changes_that_need_a_restart_are_reported_until_it_happens() {
    let server = Server::start();
    let text = format!("state_dir = \"/elsewhere\"\n{TWO_STATIONS}").replacen(
        "control = 0",
        "control = 9",
        1,
    );
    for _ in 0..2 {
        *server.next.lock().unwrap() = Ok(resolve(&text));
        let answer = server.controller().call("Aulos.Reload", json!({}));
        let kept = json!({ "needs_restart": ["state_dir", "listen.control"] });
        assert_eq!(answer["result"], nothing_but(kept));
    }
}

#[test]
fn settings_hold_at_once() {
    let server = Server::start();
    server.hello(1, "loud");
    let root = scratch();
    let text = format!(
        "[clients]\nvolume_cap = 40\n[streams]\nroots = [\"{}\"]\n{TWO_STATIONS}",
        root.display()
    );
    let uri = format!("pipe://{}/x.fifo?name=x", root.display());
    let add = |uri: &str| server.controller().call("Stream.AddStream", json!({ "streamUri": uri }));
    assert!(add(&uri).get("error").is_some());
    let settings = json!({ "settings": ["clients", "streams"] });
    assert_eq!(reload(&server, &text), nothing_but(settings));
    assert_eq!(add(&uri)["result"]["id"], "x");
    let client = server.controller().call("Client.GetStatus", json!({ "id": "loud" }));
    assert_eq!(client["result"]["client"]["config"]["volume"]["percent"], 40);
}

#[test]
fn stations_added_by_calls_stay_unless_the_file_uses_their_name() {
    let server = Server::start();
    let uri = "tcp://127.0.0.1:0?name=attic";
    server.controller().call("Stream.AddStream", json!({ "streamUri": uri }));
    assert_eq!(reload(&server, TWO_STATIONS), nothing_but(json!({})));
    assert_eq!(names(&server), ["default", "kitchen radio", "attic"]);
    let more = format!("{TWO_STATIONS}{ATTIC}");
    assert_eq!(reload(&server, &more), nothing_but(json!({ "changed": ["attic"] })));
    assert_eq!(reload(&server, TWO_STATIONS), nothing_but(json!({ "removed": ["attic"] })));
}

#[test]
fn control_scripts_start_and_end_with_their_stations() {
    let folder = scratch();
    let script = folder.join("script.sh");
    // It notes its arguments and its number, and stays.
    let text =
        format!("#!/bin/sh\necho $1 $$ >> {}/log\nwhile read line; do :; done\n", folder.display());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let log = || std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    let begun = |name: &str| {
        let mut process = None;
        eventually(|| {
            let log = log();
            let line = log.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            process = line.map(|number| Path::new("/proc").join(number));
            process.is_some() && log.ends_with('\n')
        });
        process.unwrap()
    };
    let with = |params: &str| {
        let plugin =
            format!("plugin = {{ script = \"{}\", params = \"{params}\" }}\n", script.display());
        format!("{TWO_STATIONS}{ATTIC}{plugin}")
    };
    let server = Server::start();
    reload(&server, &with("one"));
    let one = begun("one");
    reload(&server, &with("one"));
    assert!(one.exists());
    reload(&server, &with("two"));
    let two = begun("two");
    eventually(|| !one.exists());
    reload(&server, TWO_STATIONS);
    eventually(|| !two.exists());
    assert_eq!(log().lines().count(), 2, "{}", log());
}

#[test]
fn another_schedule_leaves_the_station_running() {
    let server = Server::start();
    let scheduled = |entries: &str| {
        let keys = format!("name = \"default\"\ntimezone = \"UTC\"\nschedule = [{entries}]");
        TWO_STATIONS.replacen("name = \"default\"", &keys, 1)
    };
    let source = |server: &Server| {
        let stations = server.controller().call("Aulos.GetStatus", json!({}));
        let station = &stations["result"]["stations"][0];
        (station["sources"][0]["name"].clone(), station["schedule"].clone())
    };
    let (name, schedule) = source(&server);
    assert_eq!(schedule, Value::Null);
    let name = name.as_str().unwrap();
    // Entries of a week are active at every time.
    let entry = format!("{{ at = \"Mon 00:00\", for = \"7d\", source = \"{name}\" }}");
    let adjusted = nothing_but(json!({ "adjusted": ["default"] }));
    assert_eq!(reload(&server, &scheduled(&entry)), adjusted);
    assert_eq!(touched(&server), (vec![], vec![], vec![]));
    let told = server.backend.schedules.lock().unwrap().pop();
    let Some((0, [Some(now), Some(next)])) = told else { panic!("{told:?}") };
    assert_eq!((now.input, next.input), (Some(0), Some(0)));
    assert!(now.begins.is_some() && now.begins != next.begins, "{now:?} {next:?}");
    let (_, schedule) = source(&server);
    assert_eq!(schedule["active"]["source"], name);
    assert_eq!(schedule["next"].as_array().unwrap().len(), 5);
    let kind = json!({ "kind": "schedule" });
    let events = server.controller().call("Aulos.GetEvents", kind)["result"].clone();
    assert!(events.to_string().contains("is scheduled until"), "{events}");

    assert_eq!(reload(&server, TWO_STATIONS), adjusted);
    assert_eq!(touched(&server), (vec![], vec![], vec![]));
    assert_eq!(server.backend.schedules.lock().unwrap().pop(), Some((0, [None, None])));
    assert_eq!(source(&server).1, Value::Null);
}
