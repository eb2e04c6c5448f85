//! The log of a station over HTTP and by calls, and who may have it.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::{Value, json};

use crate::logger::{PATIENCE, logger, seconds, verify};
use crate::rpc::Rpc;
use crate::{shared_turn, text, wait_for};

/// A request with a login; the status and the body.
fn ask(http: SocketAddr, user: &str, path: &str) -> (String, Vec<u8>) {
    let url = format!("http://{http}{path}");
    let arguments = ["-s", "-g", "-m", "30", "-u", user, "-w", "\n%{http_code}", &url];
    let output = Command::new("curl").args(arguments).output().unwrap();
    let split = output.stdout.iter().rposition(|byte| *byte == b'\n').unwrap();
    let code = String::from_utf8_lossy(&output.stdout[split + 1..]).into_owned();
    (code, output.stdout[..split].to_vec())
}

fn login(server: &AulosServer, user: &str) -> Rpc {
    let mut rpc = Rpc::connect(server.control);
    rpc.call("Server.Authenticate", &json!({ "scheme": "Plain", "param": user }));
    rpc
}

/// Samples of a file, as 16-bit integers.
fn samples(path: &Path) -> Vec<u8> {
    let arguments = ["-v", "error", "-i", text(path), "-f", "s16le", "-"];
    let output = Command::new("ffmpeg").args(arguments).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{}", path.display());
    output.stdout
}

const COMPLAINTS: &str = "complaints:of listeners";
const ANNA: &str = "anna:administrates";

#[test]
#[allow(clippy::too_many_lines, reason = "one server")]
fn a_user_with_the_role_log_finds_exports_and_holds_and_an_administrator_does_not() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("logger-http").unwrap();
    let dir = scratch.join("log");
    let config = format!(
        "[[station]]\nname = \"hall\"\ncodec = \"pcm\"\nsources = [\"tone://?hz=997&dbfs=-6\"]\n\
         logger = {{ dir = \"{}\", format = \"flac\" }}\n\
         [[station]]\nname = \"bare\"\nsources = [\"tone://\"]\n\
         [[user]]\nname = \"anna\"\nrole = \"admin\"\npassword = \"administrates\"\n\
         [[user]]\nname = \"complaints\"\nrole = \"listen\"\nlog = true\n\
         password = \"of listeners\"\n",
        dir.display()
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let mut rpc = login(&server, ANNA);
    wait_for("three seconds", PATIENCE, || seconds(&mut rpc) >= 3.0);
    drop(rpc);
    server.stop().unwrap();
    let server = AulosServer::start(&scratch, &config).unwrap();
    wait_for("the index", PATIENCE, || verify(&dir)["lines"] == 1);
    let index = fs::read_to_string(dir.join("hall-log.logger.jsonl")).unwrap();
    let line: Value = serde_json::from_str(index.lines().next().unwrap()).unwrap();
    let from_s = line["t0_ns"].as_i64().unwrap() / 1_000_000_000 + 1;
    let at = |seconds: i64, zone: &str| {
        let text = ["-d", &format!("@{seconds}"), "+%Y-%m-%dT%H:%M:%S%:z"];
        let output = Command::new("date").env("TZ", zone).args(text).output();
        String::from_utf8(output.unwrap().stdout).unwrap().trim().to_owned()
    };
    let (from, to) = (at(from_s, "Asia/Kolkata"), at(from_s + 1, "UTC"));
    let path = |ending: &str| format!("/log/hall.{ending}?from={from}&to={to}");

    // The roles.
    for (user, code) in [(COMPLAINTS, "200"), (ANNA, "403"), ("anna:wrong", "401")] {
        assert_eq!(ask(server.http, user, &path("json")).0, code, "{user}");
    }
    assert_eq!(ask(server.http, ":", &path("flac")).0, "401");

    // The sound is that of the command line, in WAV and FLAC with the length in the header.
    let exported = scratch.join("cli.wav");
    let range = ["--from", &from, "--to", &to];
    let arguments = [&["export", text(&dir), text(&exported)][..], &range].concat();
    assert!(logger(&arguments).status.success());
    let wanted = samples(&exported);
    assert_eq!(wanted.len(), 48_000 * 4);
    for ending in ["wav", "flac", "opus"] {
        let (code, body) = ask(server.http, COMPLAINTS, &path(ending));
        assert_eq!(code, "200", "{ending}: {}", String::from_utf8_lossy(&body));
        let file = scratch.join(format!("http.{ending}"));
        fs::write(&file, &body).unwrap();
        let found = samples(&file);
        assert_eq!(found.len(), wanted.len(), "{ending}");
        assert!(ending == "opus" || found == wanted, "{ending}");
        if ending == "wav" {
            assert_eq!(body[4..8], u32::try_from(body.len() - 8).unwrap().to_le_bytes());
        }
    }
    let json: Value =
        serde_json::from_slice(&ask(server.http, COMPLAINTS, &path("json")).1).unwrap();
    assert_eq!((&json["files"][0]["sha256"], &json["gaps"]), (&line["sha256"], &json!([])));
    let text_beside = ask(server.http, COMPLAINTS, &path("txt")).1;
    assert!(String::from_utf8_lossy(&text_beside).contains(line["sha256"].as_str().unwrap()));

    // Each export is noted with the user.
    let notes = fs::read_to_string(dir.join("hall-log.exports.jsonl")).unwrap();
    let who: Vec<Value> = notes
        .lines()
        .map(|note| serde_json::from_str::<Value>(note).unwrap()["who"].clone())
        .collect();
    assert_eq!(who.len(), 4);
    assert!(who[1..].iter().all(|who| who == "complaints@127.0.0.1"), "{notes}");

    // Wrong requests.
    let wrong = [
        ("/log/bare.flac?from=2026-01-01T00:00Z&to=2026-01-02T00:00Z", "404"),
        ("/log/hall.flac?from=2020-01-01T00:00Z&to=2020-01-02T00:00Z", "404"),
        ("/log/hall.mid?from=2020-01-01T00:00Z&to=2020-01-02T00:00Z", "404"),
        ("/log/hall.flac?from=2020-01-01T00:00Z&to=2026-01-02T00:00Z", "400"),
        ("/log/hall.flac?from=2020-01-02T00:00Z&to=2020-01-01T00:00Z", "400"),
        ("/log/hall.flac?from=2026-10-25T02:30&to=2026-10-25T03:00&zone=Europe/Berlin", "400"),
        ("/log/hall.flac?from=now&to=later", "400"),
        ("/log/hall.flac", "400"),
        ("/log/hall.flac?till=1", "400"),
        ("/log/..%2fhall?from=1", "404"),
    ];
    for (path, code) in wrong {
        let (found, body) = ask(server.http, COMPLAINTS, path);
        assert_eq!(found, code, "{path}: {}", String::from_utf8_lossy(&body));
    }
    let doubled = ask(server.http, COMPLAINTS, wrong[5].0).1;
    assert!(String::from_utf8_lossy(&doubled).contains("+01:00"));

    // The calls.
    let mut rpc = login(&server, COMPLAINTS);
    let range = json!({ "station": "hall", "from": from, "to": to });
    let found = rpc.call("Aulos.GetLog", &range);
    assert_eq!(found["files"], json["files"]);
    let mut hold = range.clone();
    hold["why"] = json!("complaint 7");
    assert_eq!(rpc.call("Aulos.AddLogHold", &hold)["hold"], 1);
    let holds = rpc.call("Aulos.GetLogHolds", &json!({ "station": "hall", "zone": "UTC" }));
    assert_eq!(holds["holds"][0]["why"], "complaint 7");
    let release = json!({ "station": "hall", "hold": 1 });
    assert_eq!(rpc.call("Aulos.ReleaseLogHold", &release)["hold"], 1);
    assert!(rpc.answer("Aulos.ReleaseLogHold", &release)["error"].is_object());
    assert!(
        rpc.answer("Aulos.GetLog", &json!({ "station": "bare", "from": from, "to": to }))["error"]
            .is_object()
    );
    let mut anna = login(&server, ANNA);
    for (method, params) in
        [("Aulos.GetLog", &range), ("Aulos.AddLogHold", &hold), ("Aulos.ReleaseLogHold", &release)]
    {
        assert_eq!(anna.answer(method, params)["error"]["code"], 403, "{method}");
    }
    let events = anna.call("Aulos.GetEvents", &json!({}))["events"].to_string();
    assert!(events.contains("hold 1 added by complaints@127.0.0.1"), "{events}");
    let counters = anna.call("Aulos.GetStatus", &json!({}))["counters"].clone();
    assert_eq!(counters["log_exports"], 3, "{counters}");
}
