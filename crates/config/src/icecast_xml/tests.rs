use std::path::Path;

use super::*;
use crate::tests::load_text;

const FILE: &str = r#"<?xml version="1.0"?>
<!-- A comment -->
<icecast>
    <location>Earth</location>
    <limits><clients>100</clients><burst-size>65535</burst-size></limits>
    <authentication>
        <source-password>hackme</source-password>
        <admin-user>admin</admin-user><admin-password>topsecret</admin-password>
    </authentication>
    <hostname>radio.example.org</hostname>
    <listen-socket><port>8000</port></listen-socket>
    <listen-socket><port>8443</port><ssl>1</ssl></listen-socket>
    <relay>
        <server>127.0.0.1</server><port>8001</port>
        <mount>/example.mp3</mount><local-mount>/different.mp3</local-mount>
    </relay>
    <mount type="normal">
        <mount-name>/live.mp3</mount-name>
        <username>dj</username><password>second&amp;secret</password>
        <max-listeners>10</max-listeners><max-listener-duration>3600</max-listener-duration>
        <intro>/hello.mp3</intro><fallback-mount>/second.ogg</fallback-mount>
        <hidden>1</hidden><burst-size>100000</burst-size>
        <stream-name>My "radio"</stream-name><genre>Jazz</genre><public>1</public>
        <bitrate>128</bitrate>
        <authentication type="url">
            <option name="mount_add" value="http://127.0.0.1/a"/>
            <option name="listener_add" value="http://127.0.0.1/add"/>
        </authentication>
        <on-connect>/home/a.sh</on-connect>
    </mount>
    <mount>
        <mount-name>/second.ogg</mount-name><fallback-mount>/silence.ogg</fallback-mount>
    </mount>
    <mount><mount-name>/admin</mount-name></mount>
    <paths><logdir>/var/log/icecast2</logdir><webroot>/usr/share/icecast2/web</webroot></paths>
    <logging><accesslog>access.log</accesslog><loglevel>3</loglevel></logging>
    <security><chroot>0</chroot></security>
</icecast>
"#;

fn none(_: &Path) -> bool {
    false
}

#[test]
fn the_result_passes_the_check() {
    let silence = |file: &Path| file == Path::new("/usr/share/icecast2/web/silence.ogg");
    let ConversionResult { toml, notes } = convert(FILE, silence).unwrap();
    let resolved = load_text(&toml, &[]).unwrap();
    let mounts: Vec<_> = resolved.stations.iter().filter(|one| one.mount.is_some()).collect();
    let names: Vec<_> = mounts.iter().map(|mount| mount.name.as_str()).collect();
    assert_eq!(names, ["live.mp3", "second.ogg", "different.mp3"], "{toml}");
    let live = mounts[0].mount.as_ref().unwrap();
    assert_eq!((live.max_listeners, live.hidden, live.burst), (Some(10), true, 98 * 1_024));
    assert_eq!(mounts[0].icy.name.as_deref(), Some("My \"radio\""));
    assert_eq!((mounts[0].icy.public, mounts[0].icy.bitrate_kbps), (Some(true), Some(128)));
    let sources: Vec<_> = mounts[0].sources.iter().map(|source| source.uri.as_str()).collect();
    assert_eq!(sources, ["icecast://dj@0.0.0.0:8001/live.mp3", "meta:///second.ogg"]);
    assert_eq!(mounts[1].sources[1].uri, "file:///usr/share/icecast2/web/silence.ogg?loop=true");
    assert_eq!(mounts[2].sources[0].uri, "http://127.0.0.1:8001/example.mp3");
    let http = &resolved.http;
    assert_eq!(http.names, ["radio.example.org"]);
    assert_eq!(http.access_log.as_deref(), Some(Path::new("/var/log/icecast2/access.log")));
    assert!(http.listener_auth.is_some());
    assert_eq!(resolved.listen.http.port, 8_000);
    assert!(!resolved.security.access.users.is_empty());
    // Each key that is not taken has one note, and no note has a password.
    for key in [
        "location = Earth",
        "limits.clients = 100",
        "mount.on-connect",
        "logging.loglevel = 3",
        "security",
        "option mount_add",
        "/live.mp3: intro = /hello.mp3",
        "mount-name = /admin",
        "listen-socket 8443",
    ] {
        let found = notes.iter().filter(|note| note.contains(key)).count();
        assert_eq!(found, 1, "{key}: {notes:#?}");
    }
    assert!(!notes.iter().any(|note| note.contains("secret")), "{notes:#?}");
}

#[test]
fn the_shortest_file_gives_a_configuration() {
    let ConversionResult { toml, notes } = convert("<icecast/>", none).unwrap();
    let resolved = load_text(&toml, &[]).unwrap();
    assert!(resolved.stations.iter().any(|station| station.name == "stream.mp3"), "{toml}");
    assert!(notes.iter().any(|note| note.contains("no mount is listed")), "{notes:?}");
}

#[test]
fn another_file_is_an_error_with_its_line() {
    for (text, line, expected) in [
        ("\n<snapserver/>", 2, "expected `<icecast>`"),
        ("<icecast>\n<mount>\n</icecast>", 3, "mount"),
        ("<icecast>\n&lol;</icecast>", 2, "not expanded"),
    ] {
        let error = convert(text, none).unwrap_err();
        assert!(error.line == line && error.message.contains(expected), "{text}: {error}");
    }
    assert!(is_icecast("\u{feff}\n <icecast>") && !is_icecast("[server]\n"));
}
