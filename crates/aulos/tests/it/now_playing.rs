//! Titles that automation reports, and the list of what was played.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::common::{ANY_PORTS, PATIENCE, Playing, eventually, resolve};
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
