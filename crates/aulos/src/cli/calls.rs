//! `aulos status`, `aulos reload` and `aulos announce`: control calls with readable results.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aulos_control::names::client_name;
use aulos_core::Span;
use aulos_proto::uri::percent_encode;
use aulos_server::exit::{Exit, Failure};
use clap::Args;
use serde_json::{Value, json};

use super::output::figures;
use super::output::print;
use super::rpc::{ServerArgs, call, call_and_wait};
use super::scan::plain;

pub(super) const STATUS_EXAMPLES: &str = "\
Examples:
  aulos status
  aulos status --server kitchen.local --json | jq '.stations[].active'";

pub(super) const RELOAD_EXAMPLES: &str = "\
Examples:
  aulos reload
  aulos reload --server kitchen.local --login /etc/aulos/login \\
      --tls-ca kitchen.pem";

pub(super) const ANNOUNCE_EXAMPLES: &str = "\
Examples:
  aulos announce kitchen /srv/bells/door.wav
  aulos announce kitchen door.wav --duck-db -30 --no-normalize
  aulos announce kitchen http://ha.local:8123/local/door.mp3 --volume 60 --wait
  aulos announce --client kitchen /srv/bells/timer.wav
  aulos announce --group downstairs dinner.wav --chime
  aulos announce kitchen door.wav --priority 8

A name or the beginning of one suffices, if no other begins the same.

The server may read the file if it is below a folder of the key
`streams.roots`, and a URL of the hosts in `streams.announce_hosts`.";

#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// Print the whole status as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
pub(super) struct ReloadArgs {
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
#[command(allow_missing_positional = true)]
pub(super) struct AnnounceArgs {
    /// Name of the station
    #[arg(required_unless_present_any = ["group", "client"], conflicts_with_all = ["group", "client"])]
    station: Option<String>,
    /// Sound file on the server's machine, a path or a file: URI; or an http: or https: URL
    #[arg(value_name = "FILE")]
    file: String,
    /// Name or id of a group whose clients alone hear it, in place of STATION
    #[arg(long, value_name = "GROUP", conflicts_with = "client")]
    group: Option<String>,
    /// Name or id of a client that alone hears it, in place of STATION
    #[arg(long, value_name = "CLIENT")]
    client: Option<String>,
    /// Volume of the announcement in percent, on the curve of a client's volume [default: 100]
    #[arg(long, value_name = "PERCENT")]
    volume: Option<f64>,
    /// Loudness of the announcement, in LUFS [default: that of a normalized station]
    #[arg(long, value_name = "LUFS", allow_negative_numbers = true)]
    loudness_lufs: Option<f64>,
    /// Replace announcements to the same clients that wait with the same key
    #[arg(long, value_name = "TEXT")]
    key: Option<String>,
    /// Play the built-in chime before it
    #[arg(long, conflicts_with = "before")]
    chime: bool,
    /// Sound to play before it, as FILE
    #[arg(long, value_name = "FILE")]
    before: Option<String>,
    /// Priority from 0 to 9: it interrupts announcements of a lower one [default: 5]
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(0..=9))]
    priority: Option<u8>,
    /// Wait until the clients have heard it; exits with 1 if it is not played to its end
    #[arg(long)]
    wait: bool,
    /// Gain of the programme meanwhile, in dB [default: that of `Aulos.Announce`]
    #[arg(long, value_name = "DB", allow_negative_numbers = true)]
    duck_db: Option<f64>,
    /// Time in which the programme returns to its level, in seconds, up to 10 [default: 1]
    #[arg(long, value_name = "SECONDS")]
    release_s: Option<f64>,
    /// Gain of the announcement, in dB [default: 0]
    #[arg(long, value_name = "DB", allow_negative_numbers = true)]
    gain_db: Option<f64>,
    /// Play the file as loud as it is, instead of as loud as a normalized station
    #[arg(long)]
    no_normalize: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) fn status(args: &StatusArgs) -> Result<Exit, Failure> {
    let status = call(&args.server, "Aulos.GetStatus", &json!({}))?;
    let text = if args.json { format!("{status:#}\n") } else { status_text(&status) };
    print(text.as_bytes())
}

/// Exits with 1 if a part of the new configuration could not be started.
pub(super) fn reload(args: &ReloadArgs) -> Result<Exit, Failure> {
    let report = call(&args.server, "Aulos.Reload", &json!({}))?;
    print(reload_text(&report).as_bytes())?;
    let failed = [&report["failed"], &report["relays"]["failed"]];
    let has_failed = failed.iter().any(|list| list.as_array().is_some_and(|list| !list.is_empty()));
    Ok(if has_failed { Exit::Negative } else { Exit::Ok })
}

pub(super) fn announce(args: &AnnounceArgs) -> Result<Exit, Failure> {
    let mut params = json!({ "uri": file_uri(&args.file)? });
    for (key, value) in [
        ("station", args.station.as_ref().map(|name| json!(name))),
        ("group", args.group.as_ref().map(|id| json!(id))),
        ("client", args.client.as_ref().map(|id| json!(id))),
        ("duck_db", args.duck_db.map(|gain| json!(gain))),
        ("release_s", args.release_s.map(|seconds| json!(seconds))),
        ("gain_db", args.gain_db.map(|gain| json!(gain))),
        ("volume", args.volume.map(|percent| json!(percent))),
        ("loudness_lufs", args.loudness_lufs.map(|loudness| json!(loudness))),
        ("key", args.key.as_ref().map(|key| json!(key))),
        ("chime", args.chime.then_some(json!(true))),
        ("before", args.before.as_deref().map(file_uri).transpose()?.map(|uri| json!(uri))),
        ("priority", args.priority.map(|level| json!(level))),
        ("normalize", args.no_normalize.then_some(json!(false))),
    ] {
        if let Some(value) = value {
            params[key] = value;
        }
    }
    if !args.wait {
        let answer = call(&args.server, "Aulos.Announce", &params)?;
        return print(announced_text(&answer).as_bytes());
    }
    let method = ("Aulos.Announce", &params);
    let (answer, end) = call_until_played(&args.server, method, "Aulos.OnAnnouncement", MAX_WAIT)?;
    print(announced_text(&answer).as_bytes())?;
    end.print()
}

/// How an announcement or a play has ended.
pub(super) struct PlayEnd(Value);

impl PlayEnd {
    /// Prints the cause; exits with 1 if it was not played to its end.
    pub(super) fn print(&self) -> Result<Exit, Failure> {
        let cause = plain(self.0["cause"].as_str().unwrap_or_default());
        let reason = self.0["reason"].as_str().map(|why| format!(": {}", plain(why)));
        print(format!("{cause}{}\n", reason.unwrap_or_default()).as_bytes())?;
        Ok(if cause == "played" { Exit::Ok } else { Exit::Negative })
    }
}

/// Makes a call that plays a sound, and waits for the `notice` of its end, at most `most`.
pub(super) fn call_until_played(
    server: &ServerArgs,
    method: (&str, &Value),
    notice: &str,
    most: Duration,
) -> Result<(Value, PlayEnd), Failure> {
    let is_end = |answer: &Value, message: &Value| {
        let params = &message["params"];
        message["method"] == notice && params["id"] == answer["id"] && params["state"] == "ended"
    };
    let (answer, end) = call_and_wait(server, method, most, is_end)?;
    Ok((answer, PlayEnd(end)))
}

fn announced_text(answer: &Value) -> String {
    let (id, before) = (&answer["id"], &answer["before"]);
    let station = plain(answer["station"].as_str().unwrap_or_default());
    format!("announcement {id} on {station}: {before} before it\n")
}

/// Longer than a full queue of the longest announcements.
const MAX_WAIT: Duration = Duration::from_secs(3_600);

/// The URI of a file; a relative path starts at the current directory.
pub(super) fn file_uri(file: &str) -> Result<String, Failure> {
    if file.contains("://") {
        return Ok(file.to_owned());
    }
    let absolute: PathBuf = std::path::absolute(Path::new(file))
        .map_err(|error| Failure::new(Exit::Usage, format!("{file}: {error}")))?;
    Ok(format!("file://{}", percent_encode(&absolute.to_string_lossy())))
}

/// What a reload changed, a line each.
fn reload_text(report: &Value) -> String {
    let mut text = String::new();
    for (key, title) in [
        ("/added", "added"),
        ("/changed", "restarted"),
        ("/adjusted", "adjusted"),
        ("/removed", "removed"),
        ("/settings", "new settings"),
        ("/needs_restart", "needs a restart"),
        ("/failed", "failed"),
        ("/relays/added", "relays added"),
        ("/relays/changed", "relays changed"),
        ("/relays/removed", "relays removed"),
        ("/relays/failed", "relays failed"),
    ] {
        let list = report.pointer(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let names: Vec<String> = list.iter().filter_map(Value::as_str).map(plain).collect();
        if !names.is_empty() {
            writeln!(text, "{title:<16} {}", names.join(", ")).ok();
        }
    }
    if text.is_empty() { "nothing has changed\n".to_owned() } else { text }
}

/// The status of the server, its stations, sources and outputs.
fn status_text(status: &Value) -> String {
    let text = |value: &Value| plain(value.as_str().unwrap_or("-"));
    let seconds = |value: &Value| Span::from_secs(value.as_i64().unwrap_or(0));
    let mut out = format!(
        "aulos {} on {}, up {}\n",
        text(&status["version"]),
        text(&status["host"]),
        figures::clock(seconds(&status["uptime_s"]))
    );
    for station in list(&status["stations"]) {
        let clients = list(&station["clients"]);
        let connected = clients.iter().filter(|client| client["connected"] == true).count();
        let loudness = station["loudness"]["short_term_lufs"].as_f64();
        let loudness = loudness.map_or_else(String::new, |lufs| format!(", {lufs:.1} LUFS"));
        let playing = match station["active"].as_str() {
            Some(source) => format!("{} {}", text(&station["state"]), plain(source)),
            None => format!("{}, no source has sound", text(&station["state"])),
        };
        let name = text(&station["name"]);
        let counts = format!("clients {connected}, web listeners {}", station["listeners"]);
        writeln!(out, "{name}: {playing}{loudness}; {counts}").ok();
        for part in STATION_PARTS {
            for one in list(&station[part.key]) {
                let (name, state) = (text(&one[part.name]), text(&one["state"]));
                // A push keeps its last error when it works again.
                let reason = one[part.reason].as_str().filter(|_| state != "pushing");
                let reason = reason.map_or_else(String::new, |why| format!(": {}", plain(why)));
                let retry = one["retry_in_s"].as_u64();
                let retry = retry.map_or_else(String::new, |s| format!("; next attempt in {s} s"));
                writeln!(out, "  {:<9} {name:<16} {state}{reason}{retry}", part.title).ok();
            }
        }
        for client in clients.iter().filter(|client| client["connected"] == true) {
            let (name, sound) = client_text(client);
            writeln!(out, "  {:<9} {name:<16} {sound}", "client").ok();
        }
    }
    out
}

/// The name of a connected client, and its volume, group and sync.
fn client_text(client: &Value) -> (String, String) {
    let given = client["config"]["name"].as_str().unwrap_or_default();
    let name = plain(client_name(given, client["host"]["name"].as_str().unwrap_or("-")));
    let volume = &client["config"]["volume"];
    let is_muted = volume["muted"] == true || client["group_muted"] == true;
    let mut sound = match volume["percent"].as_u64() {
        _ if is_muted => "muted".to_owned(),
        Some(percent) => format!("volume {percent} %"),
        None => "-".to_owned(),
    };
    if let Some(group) = client["group_name"].as_str().filter(|group| !group.is_empty()) {
        write!(sound, ", in {}", plain(group)).ok();
    }
    // Null in the first seconds of a connection.
    if let health @ Value::Object(_) = &client["health"] {
        write!(sound, ", {}", sync_text(health)).ok();
    }
    (name, sound)
}

/// How a connected client is in time, by its health: how far its sound is ahead of its time, or
/// that it is connected, if it does not report that.
pub(super) fn sync_text(health: &Value) -> String {
    match health["sync"]["error_us"].as_f64() {
        // Avoids -0.0.
        Some(error_us) => format!("{:+.1} ms", (error_us / 100.0).round() / 10.0 + 0.0),
        None => "connected".to_owned(),
    }
}

/// A list of a station in `Aulos.GetStatus`.
#[derive(Clone, Copy)]
struct StationPart {
    key: &'static str,
    title: &'static str,
    /// The keys of name and problem.
    name: &'static str,
    reason: &'static str,
}

const STATION_PARTS: [StationPart; 4] = [
    StationPart { key: "sources", title: "source", name: "name", reason: "reason" },
    StationPart { key: "pushes", title: "output", name: "target", reason: "last_error" },
    StationPart { key: "rtp", title: "output", name: "dest", reason: "reason" },
    StationPart { key: "recorders", title: "recorder", name: "name", reason: "trouble" },
];

/// The elements of a list; none of what is no list.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_a_line_for_each_part_of_a_station() {
        let status = json!({
            "version": "0.1.0", "host": "box", "uptime_s": 3_661,
            "stations": [
                {
                    "name": "kitchen", "state": "playing", "active": "studio", "listeners": 1,
                    "loudness": { "short_term_lufs": -18.25 },
                    "clients": [
                        {
                            "connected": true, "group_muted": false, "host": { "name": "pi" },
                            "config": { "name": "", "volume": { "percent": 80, "muted": false } },
                        },
                        {
                            "connected": true, "group_muted": true, "host": { "name": "pi2" },
                            "config": { "name": "shelf", "volume": { "percent": 80 } },
                        },
                        { "connected": false },
                    ],
                    "sources": [
                        { "name": "studio", "state": "ready", "reason": null },
                        {
                            "name": "loop", "state": "failed", "reason": "no such file",
                            "retry_in_s": 12,
                        },
                    ],
                    "pushes": [
                        {
                            "target": "http://a/b", "state": "retrying", "last_error": "x",
                            "retry_in_s": 7,
                        },
                        { "target": "http://c/d", "state": "pushing", "last_error": "long ago" },
                    ],
                    "rtp": [{ "dest": "rtp://224.0.0.1:5004", "state": "sending", "reason": null }],
                    "recorders": [{ "name": "archive", "state": "recording", "trouble": null }],
                },
                { "name": "hall", "state": "silent", "active": null, "listeners": 0 },
            ],
        });
        assert_eq!(
            status_text(&status),
            "aulos 0.1.0 on box, up 01:01:01\n\
             kitchen: playing studio, -18.2 LUFS; clients 2, web listeners 1\n\
             \x20 source    studio           ready\n\
             \x20 source    loop             failed: no such file; next attempt in 12 s\n\
             \x20 output    http://a/b       retrying: x; next attempt in 7 s\n\
             \x20 output    http://c/d       pushing\n\
             \x20 output    rtp://224.0.0.1:5004 sending\n\
             \x20 recorder  archive          recording\n\
             \x20 client    pi               volume 80 %\n\
             \x20 client    shelf            muted\n\
             hall: silent, no source has sound; clients 0, web listeners 0\n"
        );
    }

    #[test]
    fn a_client_has_its_group_and_how_it_is_in_time() {
        let client = |group: &str, health: &Value| {
            let config = json!({ "volume": { "percent": 7 } });
            let client = json!({
                "group_name": group, "host": { "name": "pi" }, "config": config, "health": health,
            });
            client_text(&client).1
        };
        for (group, health, expected) in [
            ("Kitchen", json!({ "sync": { "error_us": -340 } }), "volume 7 %, in Kitchen, -0.3 ms"),
            ("", json!({ "sync": { "error_us": -49 } }), "volume 7 %, +0.0 ms"),
            ("", json!({ "sync": null }), "volume 7 %, connected"),
            ("", Value::Null, "volume 7 %"),
        ] {
            assert_eq!(client(group, &health), expected);
        }
    }

    #[test]
    fn what_a_server_says_reaches_no_terminal_as_a_command() {
        let evil = "a\x1b]0;x\x07\u{9b}2J\nhall: playing";
        let status = json!({
            "version": evil, "host": evil, "stations": [{
                "name": evil, "state": evil, "active": evil, "listeners": 0,
                "sources": [{ "name": evil, "state": evil, "reason": evil }],
            }],
        });
        let printed = status_text(&status) + &reload_text(&json!({ "added": [evil] }));
        assert_eq!(printed.lines().count(), 4, "{printed:?}");
        let is_command = |c: char| c.is_control() && c != '\n';
        assert!(!printed.contains(is_command), "{printed:?}");
    }

    #[test]
    fn a_reload_prints_what_changed() {
        assert_eq!(reload_text(&json!({ "added": [] })), "nothing has changed\n");
        let report = json!({ "added": ["a", "b"], "relays": { "failed": ["c: in use"] } });
        assert_eq!(reload_text(&report), "added            a, b\nrelays failed    c: in use\n");
    }

    #[test]
    fn a_path_becomes_a_uri_and_a_uri_stays() {
        assert_eq!(file_uri("/srv/a b.wav").unwrap(), "file:///srv/a%20b.wav");
        assert_eq!(file_uri("file:///x").unwrap(), "file:///x");
        assert!(file_uri("bell.wav").unwrap().starts_with("file:///"));
    }
}
