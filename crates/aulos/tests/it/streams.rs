//! Streams that controllers add and remove, and streams with a control script.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use crate::common::{Server, TWO_STATIONS, eventually, player, resolve, scratch, script};
use aulos_control::backend::{ClientSound, SessionCommand, SessionId, StationReport};
use serde_json::{Value, json};

fn stream(server: &Server, id: &str) -> Option<Value> {
    let status = server.controller().call("Server.GetStatus", json!({}));
    let streams = status["result"]["server"]["streams"].as_array().unwrap().clone();
    streams.into_iter().find(|stream| stream["id"] == id)
}

fn add(server: &Server, uri: &str) -> Value {
    server.controller().call("Stream.AddStream", json!({ "streamUri": uri }))
}

#[test]
fn music_assistant_adds_plays_and_removes_a_stream() {
    let server = Server::start();
    server.hello(1, "a");
    let (mut one, mut two) = (server.controller(), server.controller());
    two.call("Server.GetRPCVersion", json!({}));
    let uri = "tcp://127.0.0.1:0?sampleformat=48000:16:2&idle_threshold=60000\
               &controlscript=control.py&controlscriptparams=--queueid=a%20b&\
               name=Music Assistant - osmc4";
    let id = "Music Assistant - osmc4";
    let added = one.call("Stream.AddStream", json!({ "streamUri": uri }));
    assert_eq!(added["result"], json!({ "id": id, "stream_id": id }));
    let update = two.notice_of("Server.OnUpdate");
    assert_eq!(update["params"]["server"]["streams"].as_array().unwrap().len(), 3);
    // It pushes its sound to `uri.host`, so that has the port that was chosen.
    let shown = stream(&server, id).unwrap();
    let host = shown["uri"]["host"].as_str().unwrap();
    let port: u16 = host.strip_prefix("127.0.0.1:").unwrap().parse().unwrap();
    assert!(port > 0 && shown["uri"]["raw"].as_str().unwrap().contains(&port.to_string()));
    assert_eq!(shown["uri"]["query"]["name"], id);
    assert_eq!(shown["uri"]["query"]["idle_threshold"], "60000");

    let status = one.call("Server.GetStatus", json!({}));
    let group = status["result"]["server"]["groups"][0]["id"].clone();
    one.call("Group.SetStream", json!({ "id": group, "stream_id": id }));
    let moved = |station| SessionCommand::MoveClient {
        session: SessionId(1),
        station,
        sound: ClientSound::default(),
        continues: false,
    };
    assert_eq!(server.backend.commands.lock().unwrap().last(), Some(&moved(2)));
    // Removed while it is played: whoever plays it goes to the default one, and hears of it.
    let removed = one.call("Stream.RemoveStream", json!({ "id": id }));
    assert_eq!(removed["result"], json!({ "id": id, "stream_id": id }));
    assert_eq!(server.backend.commands.lock().unwrap().last(), Some(&moved(0)));
    assert!(server.backend.added.lock().unwrap().is_empty());
    assert_eq!(two.notice_of("Group.OnStreamChanged")["params"]["stream_id"], id);
    assert_eq!(two.notice_of("Group.OnStreamChanged")["params"]["stream_id"], "default");
    assert!(stream(&server, id).is_none());
    let again = one.call("Stream.RemoveStream", json!({ "id": id }));
    assert!(again.get("error").is_none(), "{again}");
}

#[test]
fn a_used_port_is_reported_at_once() {
    let server = Server::start();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let refused = add(&server, &format!("tcp://{address}?name=x"));
    assert!(refused.get("result").is_none(), "{refused}");
    assert!(refused["error"]["data"].as_str().unwrap().contains("in use"), "{refused}");
    drop(taken);
    assert_eq!(add(&server, &format!("tcp://{address}?name=x"))["result"]["id"], "x");
    let twice = add(&server, "tcp://127.0.0.1:0?name=x");
    assert!(twice["error"]["data"].as_str().unwrap().contains("already exists"), "{twice}");
}

#[test]
fn no_call_starts_a_program_or_reads_outside_of_the_roots() {
    let root = scratch();
    let text = format!("[streams]\nroots = [\"{}\"]\n{TWO_STATIONS}", root.display());
    let server = Server::of(resolve(&text));
    for uri in [
        "process:///bin/sh?name=x&params=-c%20id",
        "librespot:///usr/bin/librespot?name=x",
        "airplay:///usr/bin/shairport-sync?name=x",
        "alsa:///?name=x",
        "stdin:?name=x",
        "file:///etc/passwd?name=x",
        "pipe:///tmp/x?name=x",
        "pipe://../x?name=x",
        "tcp://127.0.0.1:0",
        "tcp://127.0.0.1:0?name=",
        "tcp://localhost:0?name=x",
        "tcp://127.0.0.1:0?name=a/b",
        "tcp://127.0.0.1:0?name=x&codec=ogg",
        "nonsense",
        "",
    ] {
        let answer = add(&server, uri);
        assert!(answer["error"]["code"].as_i64().unwrap() <= -32_602, "{uri}: {answer}");
        assert!(answer.get("result").is_none(), "{uri}: {answer}");
    }
    let path = root.join("in.fifo");
    let good = add(&server, &format!("pipe://{}?name=fifo", path.display()));
    assert_eq!(good["result"]["id"], "fifo", "{good}");
    for _ in 0..200 {
        add(&server, &format!("pipe://{}?name={}", path.display(), rand()));
    }
    let status = server.controller().call("Server.GetStatus", json!({}));
    let streams = status["result"]["server"]["streams"].as_array().unwrap().len();
    assert_eq!(streams, 2 + aulos_control::MAX_ADDED);
}

#[test]
fn a_call_names_a_sound_card_and_no_expression_of_alsa() {
    let text = "[streams]\nschemes = [\"alsa\"]\nalsa_devices = [\"studio\"]\n".to_owned();
    let server = Server::of(resolve(&(text + TWO_STATIONS)));
    for uri in [
        "alsa://file:'|id>/tmp/out',raw?name=x",
        "alsa://file:%27%7Cid%3E%2Ftmp%2Fout%27,raw?name=x",
        "alsa://?device=file:'|id',raw&name=x",
        "alsa://?device=tee:null,'|id',raw&name=x",
        "alsa://?device=file:/tmp/out,raw&name=x",
        "alsa:///file:/tmp/out,raw?name=x",
        "ALSA://?device={type%20file}&name=x",
        "alsa://studio:1?name=x",
    ] {
        let answer = add(&server, uri);
        let why = answer["error"]["data"].as_str().unwrap_or_default();
        assert!(
            why.contains("a call may name") && stream(&server, "x").is_none(),
            "{uri}: {answer}"
        );
    }
    assert!(server.backend.added.lock().unwrap().is_empty());
    for (name, device) in [("a", ""), ("b", "hw:1,0"), ("c", "plughw:CARD=Mic"), ("d", "studio")] {
        let answer = add(&server, &format!("alsa://{device}?name={name}"));
        assert_eq!(answer["result"]["id"], name, "{answer}");
    }
}

#[test]
fn the_name_of_an_added_stream_breaks_no_line_and_no_path() {
    let server = Server::start();
    let long = "x".repeat(65);
    for name in ["a%0D%0Ab", "a%0Ab", "a%00b", "a%1B[2Jb", "a%C2%85b", "..%2Fb", "a%5Cb", &long] {
        let answer = add(&server, &format!("tcp://127.0.0.1:0?name={name}"));
        let why = answer["error"]["data"].as_str().unwrap_or_default();
        assert!(why.contains("is not a valid name"), "{name}: {answer}");
    }
}

fn rand() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

#[test]
fn what_was_added_is_there_after_a_restart() {
    let resolved = resolve(TWO_STATIONS);
    let server = Server::of(resolved.clone());
    server.hello(1, "a");
    let uri = "tcp://127.0.0.1:0?name=added&codec=pcm";
    assert_eq!(add(&server, uri)["result"]["id"], "added");
    let raw = stream(&server, "added").unwrap()["uri"]["raw"].clone();
    let mut controller = server.controller();
    let status = controller.call("Server.GetStatus", json!({}));
    let group = status["result"]["server"]["groups"][0]["id"].clone();
    controller.call("Group.SetStream", json!({ "id": group, "stream_id": "added" }));
    controller.call("Aulos.SavePreset", json!({ "name": "night" }));
    drop(controller);
    server.stop();

    let server = Server::of(resolved);
    let shown = stream(&server, "added").unwrap();
    assert_eq!((&shown["uri"]["raw"], &shown["uri"]["query"]["codec"]), (&raw, &json!("pcm")));
    let group = server.controller().call("Group.GetStatus", json!({ "id": group }));
    assert_eq!(group["result"]["group"]["stream_id"], "added");
    let presets = server.controller().call("Aulos.GetPresets", json!({}));
    assert_eq!(presets["result"]["presets"][0]["name"], "night");
}

fn with_script(dir: &Path, body: &str) -> Server {
    script(&dir.join("plugin.sh"), body);
    let text = format!(
        "[streams]\nplugin_dir = \"{}\"\n{TWO_STATIONS}\
         plugin = {{ script = \"plugin.sh\", params = \"--a 'b c'\" }}\n",
        dir.display()
    );
    Server::of(resolve(&text))
}

/// Tells what it plays, and keeps what it is told.
const PLAYER: &str = r#"
echo "$@" > arguments
echo '{"jsonrpc":"2.0","method":"Plugin.Stream.Ready"}'
while read -r line; do
  case "$line" in
    *GetProperties*) printf '%s\n' '{"jsonrpc":"2.0","id":1,"result":{"playbackStatus":"playing",
"canControl":true,"canPlay":true,"canPause":true,"canSeek":true,"canGoNext":false,"metadata":
{"title":"One","artist":["A"],"artData":{"data":"iVBORw==","extension":"png"}}}}' | tr -d '\n'; echo ;;
    *) echo "$line" >> calls
       echo '{"jsonrpc":"2.0","id":1,"result":"ok"}' ;;
  esac
done
"#;

#[test]
fn a_control_script_sends_properties_and_gets_commands() {
    let dir = scratch();
    let server = with_script(&dir, PLAYER);
    let id = "kitchen radio";
    eventually(|| stream(&server, id).unwrap()["properties"]["playbackStatus"] == "playing");
    let properties = stream(&server, id).unwrap()["properties"].clone();
    assert_eq!(properties["metadata"]["title"], "One");
    assert_eq!(properties["canGoPrevious"], false);
    let arguments = std::fs::read_to_string(dir.join("arguments")).unwrap();
    let port = server.http.port();
    let wanted = format!(
        "--a b c --stream=kitchen radio --snapcast-port={port} --snapcast-host=localhost\n"
    );
    assert_eq!(arguments, wanted);

    let url = properties["metadata"]["artUrl"].as_str().unwrap();
    is_a_picture(&server, url);
    let mut controller = server.controller();
    for (method, params, wanted) in [
        ("Stream.Control", json!({ "id": id, "command": "play" }), json!("ok")),
        ("Stream.Control", json!({ "id": id, "command": "seek", "offset": 1.5 }), json!("ok")),
        (
            "Stream.Control",
            json!({ "id": id, "command": "setPosition", "params": { "position": 7 } }),
            json!("ok"),
        ),
        ("Stream.Control", json!({ "id": id, "command": "seek" }), json!(-32_602)),
        ("Stream.Control", json!({ "id": id, "command": "next" }), json!(2)),
        (
            "Stream.SetProperty",
            json!({ "id": id, "property": "shuffle", "value": true }),
            json!("ok"),
        ),
        (
            "Stream.SetProperty",
            json!({ "id": id, "property": "shuffle", "value": 1 }),
            json!(-32_602),
        ),
        (
            "Stream.SetProperty",
            json!({ "id": id, "property": "colour", "value": 1 }),
            json!(-32_602),
        ),
        ("Stream.SetProperty", json!({ "id": id, "property": "rate", "value": 1 }), json!(-32_602)),
    ] {
        let answer = controller.call(method, params.clone());
        let found = answer.get("result").unwrap_or_else(|| &answer["error"]["code"]);
        assert_eq!(found, &wanted, "{params}: {answer}");
    }
    let calls = || std::fs::read_to_string(dir.join("calls")).unwrap_or_default();
    eventually(|| calls().lines().count() == 4);
    let calls: Vec<Value> =
        calls().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(calls[0]["method"], "Plugin.Stream.Player.Control");
    assert_eq!(calls[1]["params"], json!({ "command": "seek", "params": { "offset": 1.5 } }));
    assert_eq!(calls[3]["method"], "Plugin.Stream.Player.SetProperty");
    assert_eq!(calls[3]["params"], json!({ "shuffle": true }));
}

/// A picture is fetched over HTTP, with the type of a picture.
fn is_a_picture(server: &Server, url: &str) {
    let path = url.strip_prefix(&format!("http://{}", server.http)).expect(url);
    let mut socket = TcpStream::connect(server.http).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    assert!(answer.ends_with(b"\x89PNG"), "{}", String::from_utf8_lossy(&answer));
    assert!(String::from_utf8_lossy(&answer).to_lowercase().contains("content-type: image/png"));
}

/// The configuration with control scripts in `dir`, which calls may name or not.
fn by_rpc(dir: &Path, allowed: bool) -> String {
    let dir = dir.display();
    format!("[streams]\nplugin_dir = \"{dir}\"\nplugins_by_rpc = {allowed}\n{TWO_STATIONS}")
}

const WITH_SCRIPT: &str = "tcp://127.0.0.1:0?controlscript=plugin.sh&\
                           controlscriptparams=--q=a%20-v%20'b%20c'&name=added one";

#[test]
fn a_script_that_a_call_names_lasts_as_long_as_its_stream() {
    let dir = scratch();
    script(&dir.join("plugin.sh"), &format!("echo $$ >> lives\n{PLAYER}"));
    let resolved = resolve(&by_rpc(&dir, true));
    let server = Server::of(resolved.clone());
    let id = "added one";
    let plays = |server: &Server| {
        eventually(|| stream(server, id).unwrap()["properties"]["playbackStatus"] == "playing");
    };
    let lives = || -> Vec<String> {
        let lives = std::fs::read_to_string(dir.join("lives")).unwrap_or_default();
        lives.lines().map(str::to_owned).collect()
    };
    let ended = |number: usize| {
        let stat = format!("/proc/{}/stat", lives()[number]);
        eventually(|| std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z ")));
    };
    assert_eq!(add(&server, WITH_SCRIPT)["result"]["id"], id);
    plays(&server);
    let arguments = std::fs::read_to_string(dir.join("arguments")).unwrap();
    assert!(arguments.starts_with("--q=a -v b c --stream=added one "), "{arguments}");
    let play = json!({ "id": id, "command": "play" });
    assert_eq!(server.controller().call("Stream.Control", play)["result"], "ok");

    // A stream of the same name has a script of its own, however fast it comes.
    let mut controller = server.controller();
    controller.call("Stream.RemoveStream", json!({ "id": id }));
    controller.call("Stream.AddStream", json!({ "streamUri": WITH_SCRIPT }));
    ended(0);
    plays(&server);
    *server.next.lock().unwrap() = Ok(resolve(&by_rpc(&dir, false)));
    server.hang_up();
    ended(1);
    eventually(|| stream(&server, id).unwrap()["properties"]["canControl"] == false);
    assert_eq!(lives().len(), 2);

    // Its arguments belong to the caller's session: after a restart the caller adds it again.
    drop(controller);
    server.stop();
    assert!(stream(&Server::of(resolved), id).is_none());
}

#[test]
fn a_script_is_ignored_unless_calls_may_name_one() {
    let dir = scratch();
    script(&dir.join("plugin.sh"), PLAYER);
    let mut resolved = resolve(&by_rpc(&dir, false));
    let server = Server::of(resolved.clone());
    assert_eq!(add(&server, WITH_SCRIPT)["result"]["id"], "added one");
    server.stop();
    // The state file starts no script either, whatever the configuration is then.
    resolved.streams.plugins_by_rpc = true;
    let server = Server::of(resolved);
    let shown = stream(&server, "added one").unwrap();
    assert!(shown["uri"]["raw"].as_str().unwrap().contains("controlscript"), "as it was given");
    // A script of another stream runs, which is started after those of the saved streams.
    let other = WITH_SCRIPT.replace("added one", "other");
    assert_eq!(add(&server, &other)["result"]["id"], "other");
    eventually(|| stream(&server, "other").unwrap()["properties"]["canControl"] == true);
    let arguments = std::fs::read_to_string(dir.join("arguments")).unwrap();
    assert!(arguments.contains("--stream=other"), "{arguments}");
    assert_eq!(stream(&server, "added one").unwrap()["properties"]["canControl"], false);
}

#[test]
fn a_control_script_that_ends_is_started_again_and_leaves_with_the_server() {
    let dir = scratch();
    let body = "echo $$ >> lives\n\
        echo '{\"jsonrpc\":\"2.0\",\"method\":\"Plugin.Stream.Ready\"}'\n\
        [ $(wc -l < lives) -gt 1 ] || exit 3\nsleep 1000 & wait";
    let server = with_script(&dir, body);
    let lives = || std::fs::read_to_string(dir.join("lives")).unwrap_or_default();
    eventually(|| lives().lines().count() == 2);
    let last = lives().lines().last().unwrap().to_owned();
    let here = || std::fs::read_to_string(format!("/proc/{last}/stat"));
    assert!(here().is_ok());
    server.stop();
    // It may be a zombie until somebody reaps it.
    eventually(|| here().map_or(true, |stat| stat.contains(") Z ")));
}

#[test]
fn invalid_output_of_a_control_script_is_ignored() {
    let dir = scratch();
    let body = "head -c 100000 /dev/urandom\necho\nhead -c 20000000 /dev/zero\n";
    let server = with_script(&dir, &format!("echo x >> lives\n{body}"));
    let lives = || std::fs::read_to_string(dir.join("lives")).unwrap_or_default();
    eventually(|| lives().lines().count() >= 2);
    assert_eq!(stream(&server, "kitchen radio").unwrap()["properties"]["canControl"], false);
}

#[test]
fn a_stream_that_plays_another_has_its_titles_and_controls() {
    let dir = scratch();
    script(&dir.join("plugin.sh"), PLAYER);
    let text = format!(
        "[streams]\nplugin_dir = \"{}\"\n{TWO_STATIONS}plugin = {{ script = \"plugin.sh\" }}\n\
         [[station]]\nname = \"best\"\nsources = [\"meta:///kitchen radio/default\"]\n",
        dir.display()
    );
    let server = Server::of(resolve(&text));
    eventually(|| {
        stream(&server, "kitchen radio").unwrap()["properties"]["playbackStatus"] == "playing"
    });
    assert_eq!(stream(&server, "best").unwrap()["properties"]["canControl"], false);
    let mut controller = server.controller();
    controller.call("Server.GetStatus", json!({}));
    let play = |active| {
        let mut status = StationReport::default();
        status.machine.active = active;
        *server.backend.stations.lock().unwrap() =
            vec![StationReport::default(), StationReport::default(), status];
    };
    play(Some(0));
    let told = loop {
        let told = controller.notice_of("Stream.OnProperties")["params"].clone();
        if told["id"] == "best" {
            break told;
        }
    };
    assert_eq!(told["properties"]["metadata"]["title"], "One");
    let pause = json!({ "id": "best", "command": "pause" });
    assert_eq!(controller.call("Stream.Control", pause.clone())["result"], "ok");
    // The other one has nobody to control it.
    play(Some(1));
    eventually(|| stream(&server, "best").unwrap()["properties"]["canControl"] == false);
    assert_eq!(controller.call("Stream.Control", pause)["error"]["code"], 5);
}

/// Is paused when it begins, and does what it is told.
const PAUSED: &str = "*'\"play\"'*) tell playing ;;
    *) tell paused ;;";

#[test]
fn only_an_active_player_pauses_the_stream() {
    let dir = scratch();
    let server = with_script(&dir, &player(PAUSED));
    let id = "kitchen radio";
    let is = |wanted: &str| {
        eventually(|| stream(&server, id).unwrap()["properties"]["playbackStatus"] == wanted);
    };
    is("paused");
    assert!(server.backend.flushed.lock().unwrap().is_empty(), "something else may be heard");
    let mut controller = server.controller();
    for command in ["play", "pause", "play"] {
        controller.call("Stream.Control", json!({ "id": id, "command": command }));
        is(if command == "play" { "playing" } else { "paused" });
    }
    assert_eq!(*server.backend.flushed.lock().unwrap(), [1], "at the pause, and never else");
}
