//! `now_playing` of stations and mounts.

use aulos_core::Span;

use super::*;
use crate::{OutputCharset, TitleProtocol, TitleTarget};

fn with(keys: &str) -> String {
    station(&format!("sources = [\"demo://\"]\nnow_playing = {{ {keys} }}"))
}

#[test]
fn a_file_and_outputs_of_every_kind() {
    let keys = r#"file = "/srv/now.txt", charset = "windows-1251", outputs = [
        { url = "file:///run/now.txt" },
        { url = "file:///run/dls.txt", protocol = "dl-plus" },
        { url = "udp://192.0.2.7:5001", format = "PS={station}\rTEXT={song}\r", charset = "rds", interval = "10s" },
        { url = "tcp://rds.example:4001", protocol = "uecp", ps = "RADIO", address = 65 },
        { url = "https://api.example/set?key=1&t={title}" },
    ]"#;
    let resolved = load_text(&with(keys), &[]).unwrap();
    let now_playing = &resolved.stations[0].now_playing;
    assert_eq!(now_playing.file.as_deref(), Some(std::path::Path::new("/srv/now.txt")));
    let outputs = &now_playing.outputs;
    let names: Vec<_> = outputs.iter().map(|output| output.target.name()).collect();
    let expected = [
        "file:///run/now.txt",
        "file:///run/dls.txt",
        "udp://192.0.2.7:5001",
        "tcp://rds.example:4001",
        "https://api.example",
    ];
    assert_eq!(names, expected);
    assert_eq!(
        (outputs[1].protocol, outputs[0].protocol),
        (TitleProtocol::DlPlus, TitleProtocol::Text)
    );
    assert_eq!(
        (outputs[2].charset, outputs[2].interval),
        (OutputCharset::Rds, Span::from_secs(10))
    );
    assert_eq!((outputs[3].charset, outputs[3].address), (OutputCharset::Rds, 65));
    assert!(outputs[3].service_name.is_some());
    assert!(matches!(&outputs[4].target, TitleTarget::Http { has_body: false, .. }));
}

#[test]
fn a_mount_has_the_same() {
    let text = "[[mount]]\nname = \"live.mp3\"\nsources = [\"http://127.0.0.1:9/a\"]\n\
                now_playing = { outputs = [{ url = \"udp://127.0.0.1:9\" }] }";
    let resolved = load_text(text, &[]).unwrap();
    let mount = resolved.stations.iter().find(|station| station.name == "live.mp3").unwrap();
    assert_eq!(mount.now_playing.outputs.len(), 1);
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let out = |keys: &str| format!("outputs = [{{ {keys} }}]");
    for (keys, expected) in [
        ("file = \"now.txt\"".to_owned(), "absolute path"),
        ("charset = \"klingon\"".to_owned(), "unknown charset"),
        (out("format = \"x\""), "url"),
        (out("url = \"mailto:a\""), "`url` does not begin with"),
        (out("url = \"tcp://host\""), "a host and a port"),
        (out("url = \"file://now.txt\""), "absolute path"),
        (out("url = \"http://a:b@host/\""), "name or a password"),
        (out("url = \"http://host/{track}\""), "unknown field {track}"),
        (out("url = \"udp://h:1\", format = \"{title\""), "brace"),
        (out("url = \"udp://h:1\", ps = \"x\""), "requires UECP"),
        (out("url = \"udp://h:1\", protocol = \"uecp\", charset = \"utf-8\""), "is \\\"rds\\\""),
        (out("url = \"udp://h:1\", protocol = \"dl-plus\""), "form of a file"),
        (out("url = \"udp://h:1\", interval = \"2h\""), "at most 3600 s"),
        (out("url = \"udp://h:1\", address = 70000"), "65535"),
    ] {
        let problems = load_text(&with(&keys), &[]).unwrap_err().to_string();
        assert!(problems.contains(&expected.replace("\\\"", "\"")), "{keys}: {problems}");
    }
}
