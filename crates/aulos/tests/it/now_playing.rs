//! Titles that automation reports, and the list of what was played.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};

use crate::common::{ANY_PORTS, PATIENCE, Playing, eventually, resolve, scratch};
use serde_json::{Value, json};

const STATIONS: &str = r#"
[[station]]
name = "radio"
codec = "pcm"
sources = ["tone://"]
"#;

/// The whole response to a request.
fn ask(server: &Playing, first: &str, body: &str) -> String {
    let mut socket = TcpStream::connect(server.http).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    write!(
        socket,
        "{first} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut response = String::new();
    socket.read_to_string(&mut response).unwrap();
    response
}

fn body(response: &str) -> &str {
    response.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

#[test]
fn reported_titles_reach_listeners_and_the_list() {
    let server = Playing::start(resolve(&(ANY_PORTS.to_owned() + STATIONS)));
    let mut controller = server.controller();
    let set = ask(&server, "GET /nowplaying/radio?artist=Alma&title=Rain+%26+sun&duration=215", "");
    assert!(set.starts_with("HTTP/1.1 200 "), "{set}");
    let notice = controller.notice_of("Stream.OnProperties");
    let metadata = &notice["params"]["properties"]["metadata"];
    assert_eq!(*metadata, json!({ "title": "Rain & sun", "artist": ["Alma"], "duration": 215.0 }));
    // As Icecast's status shows it to directories.
    eventually(|| {
        let status = ask(&server, "GET /status-json.xsl", "");
        let status: Value = serde_json::from_str(body(&status)).unwrap();
        let source = status["icestats"]["source"].to_string();
        source.contains("\"artist\":\"Alma\"") && source.contains("\"title\":\"Rain & sun\"")
    });
    let posts = [r#"{ "artist": "Bela", "title": "Two", "album": "A, b" }"#, "title=Three"];
    for post in posts {
        let set = ask(&server, "POST /nowplaying/radio", post);
        assert!(set.starts_with("HTTP/1.1 200 "), "{set}");
    }
    let titles: Value =
        serde_json::from_str(body(&ask(&server, "GET /nowplaying/radio", ""))).unwrap();
    assert_eq!(titles["now"]["title"], "Three");
    assert_eq!(titles["played"][1]["album"], "A, b");
    assert!(titles["played"][0]["at"].as_i64().unwrap() > 1_700_000_000);
    let hour = ask(&server, "GET /nowplaying/radio?from=-3600&format=csv", "");
    let lines: Vec<&str> = body(&hour).lines().collect();
    assert_eq!(lines.len(), 4, "{hour}");
    assert!(lines[1].ends_with(",\"Alma\",\"Rain & sun\",\"\",215"), "{hour}");
    // An empty report shows nothing; the list stays.
    ask(&server, "POST /nowplaying/radio", "{}");
    let none = controller.call("Aulos.GetNowPlaying", json!({ "station": "radio" }));
    assert_eq!(none["result"]["played"].as_array().unwrap().len(), 3, "{none}");
}

#[test]
fn a_wrong_report_is_refused_with_the_reason() {
    let server = Playing::start(resolve(&(ANY_PORTS.to_owned() + STATIONS)));
    for (first, post, status, reason) in [
        ("GET /nowplaying/none?title=x", "", "400", "none"),
        ("GET /nowplaying/radio?name=x", "", "400", "`name`"),
        ("GET /nowplaying/radio?title=x&duration=long", "", "400", "duration"),
        ("POST /nowplaying/radio", "{\"title\": 5}", "400", "title"),
        ("POST /nowplaying/radio", "{\"title\"", "400", "not an object"),
        ("POST /nowplaying/radio", "{\"genre\": \"x\"}", "400", "genre"),
        ("DELETE /nowplaying/radio", "", "405", ""),
    ] {
        let response = ask(&server, first, post);
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{first}: {response}");
        assert!(response.contains(reason), "{first}: {response}");
    }
}

/// Two frames of UECP: the service name and the radio text.
fn frames(socket: &mut TcpStream) -> Vec<u8> {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = Vec::new();
    while bytes.iter().filter(|byte| **byte == 0xFF).count() < 2 {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
    bytes
}

#[test]
fn outputs_are_told_of_each_title_and_an_absent_one_holds_nothing_up() {
    let dir = scratch();
    let file = dir.join("now.txt");
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (encoder, web) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let absent = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = format!(
        r#"{ANY_PORTS}{STATIONS}
now_playing = {{ outputs = [
    {{ url = "tcp://{absent}" }},
    {{ url = "file://{}", protocol = "dl-plus" }},
    {{ url = "udp://{}", format = "TEXT={{song}}\r", charset = "rds" }},
    {{ url = "tcp://{}", protocol = "uecp", ps = "Radio" }},
    {{ url = "http://{}/set?a={{artist}}&t={{title}}&n={{next}}" }},
] }}
"#,
        file.display(),
        datagrams.local_addr().unwrap(),
        encoder.local_addr().unwrap(),
        web.local_addr().unwrap(),
    );
    let server = Playing::start(resolve(&text));
    ask(&server, "GET /nowplaying/radio?artist=Bj%C3%B6rk&title=J%C3%B3ga&next=A+%26+b", "");
    datagrams.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut buffer = [0; 256];
    let length = datagrams.recv(&mut buffer).unwrap();
    assert_eq!(buffer[..length], *b"TEXT=Bjork - Joga\r");
    let label = || std::fs::read_to_string(&file).unwrap_or_default();
    eventually(|| label().ends_with("DL_PLUS_TAG=1 8 3\n##### parameters } #####\nBjörk - Jóga\n"));
    let mut request = String::new();
    let mut from_us = BufReader::new(web.accept().unwrap().0);
    from_us.read_line(&mut request).unwrap();
    assert_eq!(request, "GET /set?a=Bj%C3%B6rk&t=J%C3%B3ga&n=A%20%26%20b HTTP/1.1\r\n");
    write!(from_us.get_mut(), "HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    let has = |bytes: &[u8], text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
    let mut kept = encoder.accept().unwrap().0;
    let first = frames(&mut kept);
    assert!(has(&first, b"Radio   ") && has(&first, b"Bjork - Joga"), "{first:x?}");
    // An encoder that restarts gets the title again, and the next one over the same connection.
    drop(kept);
    let mut kept = encoder.accept().unwrap().0;
    assert!(has(&frames(&mut kept), b"Bjork - Joga"));
    ask(&server, "GET /nowplaying/radio?title=Two", "");
    assert!(has(&frames(&mut kept), b"Two"));
    let length = datagrams.recv(&mut buffer).unwrap();
    assert_eq!(buffer[..length], *b"TEXT=Two\r");
    let status = server.controller().call("Aulos.GetStatus", json!({}));
    let counters = &status["result"]["counters"];
    assert!(counters["title_outputs_sent"].as_u64() >= Some(7), "{counters}");
    assert!(counters["title_outputs_failed"].as_u64() >= Some(2), "{counters}");
    let events = server.controller().call("Aulos.GetEvents", json!({ "kind": "output" }));
    assert!(events.to_string().contains(&format!("tcp://{absent}")), "{events}");
}

#[test]
fn a_text_file_of_automation_is_followed() {
    let dir = scratch();
    let file = dir.join("now.txt");
    let keys = format!("now_playing = {{ file = \"{}\" }}\n", file.display());
    let server = Playing::start(resolve(&(ANY_PORTS.to_owned() + STATIONS + &keys)));
    let shows = |artist: &str, title: &str| {
        eventually(|| {
            let now: Value =
                serde_json::from_str(body(&ask(&server, "GET /nowplaying/radio", ""))).unwrap();
            now["now"]["artist"] == artist && now["now"]["title"] == title
        });
    };
    std::fs::write(&file, "Alma - One\n").unwrap();
    shows("Alma", "One");
    std::fs::write(&file, b"Bj\xF6rk - J\xF3ga").unwrap();
    shows("Björk", "Jóga");
    std::fs::write(dir.join("new"), "C - Three").unwrap();
    std::fs::rename(dir.join("new"), &file).unwrap();
    shows("C", "Three");
    // The latest counts, whatever it comes from.
    std::fs::remove_file(&file).unwrap();
    ask(&server, "GET /nowplaying/radio?artist=D&title=Four", "");
    shows("D", "Four");
    std::fs::write(&file, "E - Five").unwrap();
    shows("E", "Five");
}

#[test]
fn titles_are_kept_over_a_restart() {
    let dir = scratch();
    let text = format!("state_dir = \"{}\"\n{ANY_PORTS}{STATIONS}", dir.display());
    let server = Playing::start(resolve(&text));
    for title in ["One", "Two"] {
        ask(&server, &format!("GET /nowplaying/radio?artist=A&title={title}"), "");
    }
    let lines = || std::fs::read_to_string(dir.join("titles/radio.jsonl")).unwrap_or_default();
    eventually(|| lines().lines().count() == 3);
    drop(server);
    let server = Playing::start(resolve(&text));
    ask(&server, "GET /nowplaying/radio?title=Three", "");
    let titles: Value =
        serde_json::from_str(body(&ask(&server, "GET /nowplaying/radio", ""))).unwrap();
    let played = titles["played"].as_array().unwrap();
    let names: Vec<_> = played.iter().map(|one| one["title"].as_str().unwrap()).collect();
    assert_eq!(names, ["One", "Two", "Three"]);
    assert_eq!(played[0]["end"], played[1]["at"]);
    assert_eq!(played[1]["end"], played[2]["at"]);
    assert_eq!(played[2]["listeners"], 0);
    let report = ask(&server, "GET /nowplaying/radio?format=report", "");
    let rows: Vec<&str> = body(&report).lines().collect();
    assert_eq!(rows[0], "start,end,played_s,artist,title,album,duration_s,listeners");
    assert!(rows[1].ends_with(",\"A\",\"One\",\"\",,0"), "{report}");
}

#[test]
fn web_sites_follow_titles_as_events() {
    let server = Playing::start(resolve(&(ANY_PORTS.to_owned() + STATIONS)));
    ask(&server, "GET /nowplaying/radio?title=One", "");
    let mut socket = TcpStream::connect(server.http).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        socket,
        "GET /nowplaying/radio/events?delay_ms=0 HTTP/1.1\r\nHost: localhost\r\n\
         Origin: https://radio.example\r\nSec-Fetch-Site: cross-site\r\n\r\n"
    )
    .unwrap();
    let mut lines = BufReader::new(socket).lines().map(|line| line.unwrap());
    let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    let head = head.join("\n").to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    assert!(head.contains("access-control-allow-origin: *"), "{head}");
    let mut event = || -> Value {
        let line = lines.find(|line| line.starts_with("data: ")).unwrap();
        serde_json::from_str(&line[6..]).unwrap()
    };
    let first = event();
    assert_eq!((&first["title"], &first["station"]), (&json!("One"), &json!("radio")));
    ask(&server, "GET /nowplaying/radio?title=Two&artist=B&duration=60", "");
    let second = event();
    assert_eq!(second["title"], "Two");
    assert_eq!((&second["artist"], &second["duration_s"]), (&json!("B"), &json!(60.0)));
    assert!(second["frame"].as_i64() >= first["frame"].as_i64(), "{second}");
    assert_eq!((&second["rate"], &second["at"]), (&json!(48_000), &second["sounds_at"]));
    for (first, status, part) in [
        ("GET /nowplaying/none/events", "404", "unknown station"),
        ("GET /nowplaying/radio/events?delay_ms=x", "400", "delay_ms"),
    ] {
        let response = ask(&server, first, "");
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{response}");
        assert!(response.contains(part), "{response}");
    }
}
