//! Every method, its answer and what others hear of it, word for word in `tests/golden/rpc.txt`.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::common::{FakeBackend, TWO_STATIONS, golden, hello, resolve, scratch, script, settings};
use aulos_control::access::Role;
use aulos_control::backend::{
    ClientSound, KickReason, Loudness, ReactorEvent, SessionCommand, SessionId, StationReport,
    StationState,
};
use aulos_control::registry::store::SavedState;
use aulos_control::{
    Caller, Control, ControlOptions, ControlParts, HostInfo, Inbox, Notification, registry_for,
};
use aulos_core::Lufs;
use aulos_io::reactor::SessionEndCause;
use aulos_proto::snap::wire::ClientInfo;
use aulos_server::relay::RtpRelayManager;
use serde_json::{Value, json};

#[test]
fn a_reset_of_loudness_reaches_the_station_that_it_names_and_no_other() {
    let (backend, control) = control();
    let integrated = Some(Lufs::new(-20.0));
    let loudness = Loudness { integrated, ..Loudness::NONE };
    let mut status = StationReport::default();
    status.machine.loudness = loudness;
    *backend.stations.lock().unwrap() = vec![status.clone(), status];
    let read = |station: &str| {
        let params = json!({ "station": station });
        call(&control, "Aulos.GetLoudness", &params)["result"]["loudness"]["integrated_lufs"]
            .clone()
    };
    assert_eq!((read("default"), read("kitchen radio")), (json!(-20.0), json!(-20.0)));
    call(&control, "Aulos.ResetLoudness", &json!({ "station": "kitchen radio" }));
    assert_eq!((read("default"), read("kitchen radio")), (json!(-20.0), Value::Null));
}

/// Permission to name a control script ends at this machine, whatever the caller's role.
#[test]
fn only_callers_on_this_machine_name_control_scripts() {
    let dir = scratch();
    script(&dir.join("a.sh"), "exit 0\n");
    let text = "plugins_by_rpc = true\nplugin_dir";
    let (_, control) = control_of(&format!("[streams]\n{text} = {dir:?}\n{TWO_STATIONS}"));
    let add = |from: &str, uri: &str| -> Value {
        let caller = Caller::new(from.parse().unwrap(), Role::Admin);
        let line = json!({ "jsonrpc": "2.0", "id": 1, "method": "Stream.AddStream",
            "params": { "streamUri": uri } });
        serde_json::from_str(&answer_to(&control, caller, &line).unwrap()).unwrap()
    };
    for from in ["192.0.2.7", "::ffff:192.0.2.7", "2001:db8::7"] {
        let refused = add(from, "tcp://127.0.0.1:0?name=x&controlscript=a.sh");
        let why = refused["error"]["data"].as_str().unwrap();
        assert!(why.starts_with("`controlscript` is allowed in calls from this machine"), "{why}");
        let plain = add(from, &format!("tcp://127.0.0.1:0?name={}", from.replace(':', "-")));
        assert!(plain.get("result").is_some(), "{plain}");
    }
    for (number, from) in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"].iter().enumerate() {
        let added = add(from, &format!("tcp://127.0.0.1:0?name={number}&controlscript=a.sh"));
        assert!(added.get("result").is_some(), "{from}: {added}");
    }
    let missing = add("::1", "tcp://127.0.0.1:0?name=y&controlscript=b.sh");
    let why = missing["error"]["data"].as_str().unwrap();
    assert!(why.starts_with("`controlscript` is \"b.sh\": No such file"), "{why}");
}

/// Between two calls of a list whatever else waits has its turn, and the lock of the state is free.
#[test]
fn a_batch_of_calls_does_not_block_other_controllers() {
    let (_, control) = control();
    control.handle_event(hello(1, "a"));
    let one = json!({ "jsonrpc": "2.0", "id": 1, "method": "Client.SetVolume",
        "params": { "id": "a", "volume": { "percent": 7 } } });
    let line = Value::from(vec![one; 256]).to_string();
    let mut caller = Caller::internal();
    let mut list = pin!(control.request(&mut caller, line.as_bytes()));
    let mut context = Context::from_waker(Waker::noop());
    let mut turns = 0;
    let answer = loop {
        match list.as_mut().poll(&mut context) {
            Poll::Ready(answer) => break answer.unwrap(),
            // A lock that were still held would wait here for ever.
            Poll::Pending => turns += usize::from(control.status().contains("stations")),
        }
    };
    assert!(turns >= 255, "{turns} turns");
    assert_eq!(answer.matches("\"percent\":7").count(), 256);
}

/// Calls whose work grows with the number of clients wait for each other; a short one waits for
/// none of them.
#[test]
fn a_short_call_is_answered_while_long_ones_wait() {
    let (_, control) = control();
    let list = |method: &str, count| {
        let one = json!({ "jsonrpc": "2.0", "id": 1, "method": method });
        Value::from(vec![one; count]).to_string()
    };
    let (long, short) = (list("Server.GetStatus", 8), list("Server.GetRPCVersion", 8));
    let mut callers = [Caller::internal(), Caller::internal(), Caller::internal()];
    let [first, second, third] = &mut callers;
    let mut first = pin!(control.request(first, long.as_bytes()));
    let mut second = pin!(control.request(second, long.as_bytes()));
    let mut third = pin!(control.request(third, short.as_bytes()));
    let mut context = Context::from_waker(Waker::noop());
    // The first has its turn and is between two calls; the second waits for it, and not the third.
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!((0..20).all(|_| second.as_mut().poll(&mut context).is_pending()));
    let answered = (0..20).any(|_| third.as_mut().poll(&mut context).is_ready());
    assert!(answered, "the short calls waited");
    // In turns, both come to their end.
    let (mut one, mut two) = (false, false);
    for _ in 0..200 {
        one = one || first.as_mut().poll(&mut context).is_ready();
        two = two || second.as_mut().poll(&mut context).is_ready();
    }
    assert!(one && two);
}

/// Each call changes what controllers are told with half a megabyte. They are told once, and again
/// with the next tick.
#[test]
fn calls_without_an_id_cannot_make_the_server_write_without_a_bound() {
    let (_, control) = control();
    (0..1_500).for_each(|number| control.handle_event(hello(number, &format!("client-{number}"))));
    control.tick();
    let (peer, mut inbox) = control.join(Role::Admin);
    let group = group_of(&control, "client-0");
    let change = json!({ "jsonrpc": "2.0", "method": "Group.SetClients",
        "params": { "id": group, "clients": ["client-0"] } });
    let last = json!({ "jsonrpc": "2.0", "id": 1, "method": "Server.GetRPCVersion" });
    let mut list = vec![change; 40];
    list.push(last);
    let answer = answer(&control, &Value::from(list)).unwrap();
    control.tick();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (mut told, mut most) = (0, 0);
    while let Some(text) = next_now(&runtime, &mut inbox) {
        (told, most) = (told + 1, most.max(text.to_json().len()));
    }
    control.leave(peer);
    assert!(answer.contains("\"major\":23"), "{answer:.200}");
    assert!(told > 0 && most > 400_000, "{told} of {most} bytes");
    // What the answers of a list have in sum is limited too.
    let one = json!({ "jsonrpc": "2.0", "id": 1, "method": "Server.GetStatus" });
    let refused = self::answer(&control, &Value::from(vec![one; 40])).unwrap();
    assert!(refused.contains("-32603") && refused.contains("8388608"), "{refused:.200}");
    // A list of its own has a budget of its own.
    assert_eq!(call(&control, "Server.GetRPCVersion", &json!({}))["result"]["major"], 23);
    let status: Value = serde_json::from_str(&control.status()).unwrap();
    assert_eq!(status["counters"]["batches_over_budget"], 1);
    // One that does not read in between gets the newest in place of those that it would have got.
    let written = told + status["counters"]["notifications_superseded"].as_u64().unwrap();
    assert_eq!(written, 2);
}

/// What waits in an inbox now.
fn next_now(runtime: &tokio::runtime::Runtime, inbox: &mut Inbox) -> Option<Arc<Notification>> {
    let next = async { tokio::time::timeout(std::time::Duration::ZERO, inbox.next()).await };
    runtime.block_on(next).ok().flatten()
}

fn control() -> (Arc<FakeBackend>, Control) {
    control_of(TWO_STATIONS)
}

pub(crate) fn control_of(text: &str) -> (Arc<FakeBackend>, Control) {
    let resolved = resolve(text);
    let backend = Arc::new(FakeBackend::default());
    let host = HostInfo {
        id: "5a3c".into(),
        name: "box".into(),
        os: "Debian".into(),
        arch: "x86_64".into(),
    };
    let registry = registry_for(&resolved, 1);
    let relays = Box::new(RtpRelayManager::default());
    let (config, saved) = (Arc::new(resolved), SavedState::default());
    let parts = ControlParts { config, backend: backend.clone(), relays, host, registry, saved };
    (backend, Control::new(parts, ControlOptions::default()))
}

pub(crate) fn call(control: &Control, method: &str, params: &Value) -> Value {
    let line = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    serde_json::from_str(&answer(control, &line).unwrap()).unwrap()
}

/// Without a runtime: a request waits for nothing but its turn.
fn answer(control: &Control, line: &Value) -> Option<String> {
    answer_to(control, Caller::internal(), line)
}

fn answer_to(control: &Control, mut caller: Caller, line: &Value) -> Option<String> {
    let line = line.to_string();
    let mut request = pin!(control.request(&mut caller, line.as_bytes()));
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(answer) = request.as_mut().poll(&mut context) {
            return answer.map(|answer| answer.into_parts().0);
        }
    }
}

pub(crate) fn group_of(control: &Control, client: &str) -> Value {
    let status = call(control, "Server.GetStatus", &json!({}));
    let groups = status["result"]["server"]["groups"].as_array().unwrap().clone();
    let holds =
        |group: &&Value| group["clients"].as_array().unwrap().iter().any(|one| one["id"] == client);
    groups.iter().find(holds).unwrap()["id"].clone()
}

/// Wall time is the one thing that differs from run to run.
fn without_time(text: &str) -> String {
    let mut value: Value = serde_json::from_str(text).unwrap();
    fn walk(value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    if key == "lastSeen" {
                        assert!(value["sec"].is_u64() && value["usec"].is_u64(), "{value}");
                        *value = json!("TIME");
                    }
                    walk(value);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut value);
    value.to_string()
}

/// What is called, in this order.
#[allow(clippy::too_many_lines, reason = "a table")]
fn calls(one: &Value, two: &Value) -> Vec<(&'static str, Value)> {
    vec![
        ("Server.GetRPCVersion", json!({})),
        ("Server.GetStatus", json!({})),
        ("Client.GetStatus", json!({ "id": "a" })),
        ("Client.SetVolume", json!({ "id": "a", "volume": { "percent": 120 } })),
        ("Client.SetVolume", json!({ "id": "a", "volume": { "muted": true } })),
        ("Client.SetVolume", json!({ "id": "a", "volume": { "percent": 7.0, "muted": false } })),
        ("Client.SetVolume", json!({ "id": "a", "volume": 5 })),
        ("Client.SetVolume", json!({ "id": "a", "volume": { "muted": 1 } })),
        ("Client.SetLatency", json!({ "id": "a", "latency": 50_000 })),
        ("Client.SetLatency", json!({ "id": "a", "latency": -1e300 })),
        ("Client.SetName", json!({ "id": "a", "name": "Küche" })),
        ("Client.GetStatus", json!({ "id": "nobody" })),
        ("Client.GetStatus", json!({})),
        ("Client.GetStatus", json!([1])),
        ("Group.GetStatus", json!({ "id": one })),
        ("Group.SetMute", json!({ "id": one, "mute": true })),
        ("Group.SetMute", json!({ "id": one, "mute": 1 })),
        ("Group.SetName", json!({ "id": one, "name": "downstairs" })),
        ("Group.SetStream", json!({ "id": one, "stream_id": "kitchen radio" })),
        ("Group.SetStream", json!({ "id": one, "stream_id": "nope" })),
        ("Group.SetStream", json!({ "id": "nope", "stream_id": "default" })),
        ("Group.SetClients", json!({ "id": one, "clients": ["a", "b", "nobody"] })),
        ("Group.GetStatus", json!({ "id": two })),
        ("Group.SetClients", json!({ "id": one, "clients": ["b"] })),
        ("Group.SetClients", json!({ "id": one, "clients": "b" })),
        ("Stream.Control", json!({ "id": "default", "command": "play" })),
        ("Stream.Control", json!({ "id": "default", "command": "seek", "offset": 1.5 })),
        ("Stream.Control", json!({ "id": "default", "command": "dance" })),
        ("Stream.Control", json!({ "id": "nope", "command": "play" })),
        ("Stream.SetProperty", json!({ "id": "default", "property": "shuffle", "value": true })),
        ("Stream.AddStream", json!({ "streamUri": "pipe:///tmp/x?name=x" })),
        ("Stream.AddStream", json!({ "streamUri": "process:///bin/sh?name=x" })),
        ("Stream.AddStream", json!({ "streamUri": "tcp://192.0.2.1:4953?mode=client" })),
        (
            "Stream.AddStream",
            json!({ "streamUri": "tcp://192.0.2.1:4953?name=a b&mode=client&codec=pcm&chunk_ms=20" }),
        ),
        ("Group.SetStream", json!({ "id": one, "stream_id": "a b" })),
        ("Stream.RemoveStream", json!({ "id": "a b" })),
        ("Stream.RemoveStream", json!({ "id": "nope" })),
        ("Stream.RemoveStream", json!({ "id": "default" })),
        ("Stream.SetMeta", json!({ "id": "default", "meta": {} })),
        ("Server.Authenticate", json!({ "scheme": "Basic", "param": "" })),
        ("General.GetRPCCommands", json!({})),
        ("Aulos.GetInfo", json!({})),
        ("Aulos.GetLoudness", json!({ "station": "default" })),
        ("Aulos.GetLoudness", json!({ "station": "nope" })),
        ("Aulos.GetLoudness", json!({ "staton": "default" })),
        ("Client.GetStatus", json!({ "id": "a", "unknown": 1 })),
        ("Aulos.ResetLoudness", json!({ "station": "kitchen radio" })),
        ("Aulos.ResetLoudness", json!({})),
        ("Aulos.SetVolume", json!({ "client": "a", "delta": -3 })),
        ("Aulos.SetVolume", json!({ "group": one, "percent": 50 })),
        ("Aulos.SetVolume", json!({ "group": one, "percent": 50, "delta": 1 })),
        ("Aulos.SetVolume", json!({ "client": "a" })),
        ("Aulos.SetVolumeCap", json!({ "client": "a", "percent": 40 })),
        ("Aulos.SavePreset", json!({ "name": "night" })),
        ("Aulos.ApplyPreset", json!({ "name": "night", "volumes": true })),
        ("Aulos.ApplyPreset", json!({ "name": "nope" })),
        ("Aulos.GetPresets", json!({})),
        ("Aulos.GetServers", json!({})),
        ("Aulos.DeletePreset", json!({ "name": "night" })),
        ("Aulos.GetRelays", json!({ "streams": true })),
        ("Aulos.GetRelays", json!({ "streams": 1 })),
        ("Aulos.AddRelay", json!([1])),
        ("Aulos.AddRelay", json!({ "name": "desk", "listen": "udp://127.0.0.1:6000-5000" })),
        ("Aulos.RemoveRelay", json!({ "name": "desk" })),
        ("Server.DeleteClient", json!({ "id": "b" })),
        ("Server.DeleteClient", json!({ "id": "b" })),
    ]
}

#[tokio::test]
async fn every_method_word_for_word() {
    let (_house, control) = control();
    let (_me, mut inbox) = control.join(Role::Admin);
    for (session, id) in [(1, "a"), (2, "b")] {
        control.handle_event(hello(session, id));
    }
    control.tick();
    control.handle_event(ended(2));
    control.handle_event(hello(3, "b"));
    control.handle_event(ReactorEvent::ClientInfo {
        session: SessionId(3),
        info: ClientInfo { volume: Some(44), muted: Some(true), report: None },
    });
    let (one, two) = (group_of(&control, "a"), group_of(&control, "b"));
    let mut text = String::new();
    let mut told = async |text: &mut String| {
        while let Ok(Some(notice)) =
            tokio::time::timeout(std::time::Duration::ZERO, inbox.next()).await
        {
            // Read and written again: it comes in ASCII.
            let notice = serde_json::from_str::<Value>(&notice.to_json()).unwrap().to_string();
            assert!(!notice.contains("\"id\":1,\"jsonrpc\""), "a notice with an id: {notice}");
            *text += &format!("  others: {}\n", without_time(&notice));
        }
    };
    told(&mut text).await;
    for (method, params) in calls(&one, &two) {
        text += &format!(
            "{method} {params}\n  {}\n",
            without_time(&call(&control, method, &params).to_string())
        );
        told(&mut text).await;
    }
    golden("rpc.txt", &text);
}

#[test]
fn the_audio_backend_gets_every_change_and_nothing_else() {
    let (backend, control) = control();
    control.handle_event(hello(1, "a"));
    let group = group_of(&control, "a");
    backend.commands.lock().unwrap().clear();
    for (method, params) in [
        ("Client.SetVolume", json!({ "id": "a", "volume": { "percent": 30 } })),
        ("Client.SetName", json!({ "id": "a", "name": "x" })),
        ("Group.SetStream", json!({ "id": group, "stream_id": "kitchen radio" })),
        ("Group.SetMute", json!({ "id": group, "mute": true })),
        ("Server.DeleteClient", json!({ "id": "a" })),
    ] {
        assert!(call(&control, method, &params).get("result").is_some(), "{method}");
    }
    let session = SessionId(1);
    let set = |muted, buffer_ms| SessionCommand::SetSettings {
        session,
        settings: settings(30, muted, buffer_ms),
    };
    assert_eq!(
        *backend.commands.lock().unwrap(),
        [
            set(false, 1_000),
            set(false, 400),
            SessionCommand::MoveClient {
                session,
                station: 1,
                sound: ClientSound::default(),
                continues: false
            },
            set(true, 400),
            SessionCommand::Kick { session, cause: KickReason::Deleted },
        ]
    );
}

#[test]
fn while_the_audio_backend_is_busy_only_the_newest_command_is_kept() {
    let (backend, control) = control();
    *backend.full.lock().unwrap() = true;
    control.handle_event(hello(1, "a"));
    for percent in 0..100 {
        let volume = json!({ "id": "a", "volume": { "percent": percent } });
        assert!(call(&control, "Client.SetVolume", &volume).get("result").is_some());
    }
    control.handle_event(hello(2, "b"));
    control.handle_event(ended(2));
    *backend.full.lock().unwrap() = false;
    control.tick();
    let session = SessionId(1);
    let settings = settings(99, false, 1_000);
    assert_eq!(
        *backend.commands.lock().unwrap(),
        [
            SessionCommand::SetSettings { session, settings },
            SessionCommand::MoveClient {
                session,
                station: 0,
                sound: ClientSound::default(),
                continues: false
            }
        ]
    );
}

const fn ended(session: u64) -> ReactorEvent {
    let (session, cause) = (SessionId(session), SessionEndCause::Closed);
    ReactorEvent::SessionEnded { session, cause }
}

/// Notifications are rendered without the lock under which changes are made.
#[test]
fn changes_of_several_threads_are_notified_in_their_order() {
    let (_, control) = control();
    control.handle_event(hello(1, "a"));
    control.tick();
    let (_, mut inbox) = control.join(Role::Admin);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let control = &control;
            scope.spawn(move || {
                for step in 0..100 {
                    let percent = (thread * 25 + step) % 101;
                    let params = json!({ "id": "a", "volume": { "percent": percent } });
                    call(control, "Client.SetVolume", &params);
                }
            });
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut shown = Vec::new();
    while let Some(text) = next_now(&runtime, &mut inbox) {
        let notice: Value = serde_json::from_str(&text.to_json()).unwrap();
        assert_eq!(notice["method"], "Client.OnVolumeChanged");
        shown.push(notice["params"]["volume"]["percent"].clone());
    }
    let last = call(&control, "Client.GetStatus", &json!({ "id": "a" }));
    let volume = &last["result"]["client"]["config"]["volume"]["percent"];
    assert_eq!((shown.len(), shown.last()), (400, Some(volume)));
}

#[tokio::test]
async fn a_station_that_starts_to_play_is_notified_once() {
    let (backend, control) = control();
    let (_, mut inbox) = control.join(Role::Admin);
    let playing = StationReport { state: StationState::Playing, ..StationReport::default() };
    *backend.stations.lock().unwrap() = vec![playing];
    control.tick();
    control.tick();
    let notice: Value = serde_json::from_str(&inbox.next().await.unwrap().to_json()).unwrap();
    assert_eq!(notice["method"], "Stream.OnUpdate");
    assert_eq!(notice["params"]["id"], "default");
    assert_eq!(notice["params"]["stream"]["status"], "playing");
    let more = tokio::time::timeout(std::time::Duration::ZERO, inbox.next()).await;
    assert!(more.is_err(), "{more:?}");
}
