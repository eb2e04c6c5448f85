//! Icecast's interfaces for mounts: what `AzuraCast` and players ask, and who may listen.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::mounts::{
    MountListener, check_frames, complaints, on_air, send, tone_file, two_sources,
};
use crate::retry::retry_after_stall;
use crate::rpc::Rpc;
use crate::{shared_turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

/// `echo -n admin:topsecret | base64`
const ADMIN: &str = "Authorization: Basic YWRtaW46dG9wc2VjcmV0\r\n";

const ADMIN_USER: &str = "[access]\nanonymous = \"listen\"\n\
     [[user]]\nname = \"admin\"\nrole = \"admin\"\npassword = \"topsecret\"\n";

/// The whole response to a request without a body.
fn ask(http: SocketAddr, line: &str, fields: &str) -> String {
    let mut socket = TcpStream::connect(http).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(socket, "{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n")
        .unwrap();
    let mut response = Vec::new();
    socket.read_to_end(&mut response).unwrap();
    String::from_utf8_lossy(&response).into_owned()
}

/// The text between the tags of the first element of this name.
fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    rest.split_once("</").map(|(text, _)| text)
}

#[test]
#[allow(clippy::too_many_lines, reason = "one conversation")]
fn what_azuracast_calls_is_answered_for_a_mount() {
    let name = "mount_admin::what_azuracast_calls_is_answered_for_a_mount";
    retry_after_stall(name, || {
        let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
        let _turn = shared_turn();
        let scratch = ScratchDir::new("mount-admin").unwrap();
        let port = free_port().unwrap();
        let server = AulosServer::start(&scratch, &(two_sources(port) + ADMIN_USER)).unwrap();
        let file = tone_file(&ffmpeg, &scratch, 440, "-c:a libmp3lame -b:a 128k");
        let url = format!("icecast://source:any@127.0.0.1:{port}/first");
        let _sender = send(&ffmpeg, &file, &url, &scratch, "a");
        let admin = |path: &str| ask(server.http, &format!("GET /admin/{path}"), ADMIN);
        let (mut listener, _) = MountListener::connect(
            server.http,
            "/live.mp3",
            "Icy-MetaData: 1\r\nUser-Agent: VLC\r\n",
        );
        listener.read_for(Duration::from_secs(2));
        // Without the password nobody sees addresses, or changes anything.
        for path in ["stats", "listclients?mount=/live.mp3", "killsource?mount=/live.mp3"] {
            let refused = ask(server.http, &format!("GET /admin/{path}"), "");
            assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
        }
        let stats = admin("stats");
        assert!(stats.contains("<source mount=\"/live.mp3\">"), "{stats}");
        let mounts = admin("listmounts");
        assert!(mounts.contains("/live.mp3"), "{mounts}");
        let clients = admin("listclients?mount=%2Flive.mp3");
        assert_eq!(element(&clients, "Listeners"), Some("1"), "{clients}");
        assert_eq!(element(&clients, "UserAgent"), Some("VLC"), "{clients}");
        let id = element(&clients, "ID").unwrap();
        // The source is accepted within some seconds.
        let title = "metadata?mount=/live.mp3&mode=updinfo&song=News+-+At+Noon";
        wait_for("a title", PATIENCE, || {
            let answer = admin(title);
            element(&answer, "return") == Some("1")
        });
        let told = b"StreamTitle='News - At Noon';";
        let mut heard = 0;
        while !listener.bytes.windows(told.len()).any(|piece| piece == told) {
            listener.read();
            heard += 1;
            assert!(heard < 1_000, "no title");
        }
        let status: Value = {
            let answer = ask(server.http, "GET /status-json.xsl?mount=/live.mp3", "");
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            let head = head.to_ascii_lowercase();
            assert!(head.contains("\r\naccess-control-allow-origin: *"), "{head}");
            serde_json::from_str(body).unwrap()
        };
        assert_eq!(status["icestats"]["source"]["title"], "At Noon", "{status}");
        assert_eq!(status["icestats"]["source"]["artist"], "News", "{status}");
        // Another site's page cannot make the calls, even with the password.
        let fields = format!("{ADMIN}Origin: http://evil.example\r\n");
        let refused = ask(server.http, "GET /admin/killsource?mount=/live.mp3", &fields);
        assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
        let unknown = admin("killclient?mount=/live.mp3&id=999999");
        assert_eq!(element(&unknown, "return"), Some("0"), "{unknown}");
        let answer = admin(&format!("killclient?mount=/live.mp3&id={id}"));
        assert_eq!(element(&answer, "return"), Some("1"), "{answer}");
        let mut piece = [0; 8_192];
        while listener.socket.read(&mut piece).is_ok_and(|count| count > 0) {}
        wait_for("the end of the listener", PATIENCE, || {
            let clients = admin("listclients?mount=/live.mp3");
            element(&clients, "Listeners") == Some("0")
        });
        assert!(admin("killclient?mount=/none&id=1").starts_with("HTTP/1.1 404"));
        let mut rpc = Rpc::connect(server.control);
        wait_for("the source", PATIENCE, || on_air(&mut rpc).0 == "first");
        let answer = admin("killsource?mount=/live.mp3");
        assert_eq!(element(&answer, "return"), Some("1"), "{answer}");
        wait_for("another source", PATIENCE, || on_air(&mut rpc).0 != "first");
        server.stop().unwrap();
    });
}

/// A program that decides about listeners: it permits those with `tok=good`. The forms that it got
/// come out of the channel.
fn deciding_program() -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (forms, received) = mpsc::channel();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let mut read = Vec::new();
            let mut piece = [0; 2_048];
            let form = loop {
                let Ok(count @ 1..) = socket.read(&mut piece) else { break String::new() };
                read.extend_from_slice(&piece[..count]);
                let text = String::from_utf8_lossy(&read);
                if let Some((head, body)) = text.split_once("\r\n\r\n") {
                    let head = head.to_ascii_lowercase();
                    let length = head.split("content-length: ").nth(1);
                    let length = length.and_then(|rest| rest.lines().next()?.parse().ok());
                    if body.len() >= length.unwrap_or(0) {
                        break body.to_owned();
                    }
                }
            };
            let user = if form.contains("tok%3Dgood") { "icecast-auth-user: 1\r\n" } else { "" };
            let answer =
                format!("HTTP/1.1 200 OK\r\n{user}Connection: close\r\nContent-Length: 0\r\n\r\n");
            socket.write_all(answer.as_bytes()).ok();
            if forms.send(form).is_err() {
                break;
            }
        }
    });
    (address, received)
}

#[test]
fn listeners_of_a_mount_are_asked_about_denied_and_counted() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("mount-rights").unwrap();
    let (program, forms) = deciding_program();
    let log = scratch.join("access.log");
    let config = |more: &str| {
        format!(
            "[http]\nlistener_add = \"http://{program}/\"\naccess_log = \"{}\"\n\
             deny_agents = [\"*bot*\"]\n{more}\n\
             [[station]]\nname = \"default\"\nsources = [\"tone://\"]\n\
             [[mount]]\nname = \"live.mp3\"\nstation = \"default\"\n",
            log.display()
        )
    };
    let server = AulosServer::start(&scratch, &config("")).unwrap();
    let refused = ask(server.http, "GET /live.mp3", "");
    assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
    let form = forms.recv_timeout(PATIENCE).unwrap();
    assert!(
        form.starts_with("action=listener_add&") && form.contains("&mount=/live.mp3&"),
        "{form}"
    );
    let refused = ask(server.http, "GET /live.mp3?tok=good", "User-Agent: BadBot/1\r\n");
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    let (mut listener, head) = MountListener::connect(server.http, "/live.mp3?tok=good", "");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("\r\nAccess-Control-Allow-Origin: *\r\n"), "{head}");
    listener.read();
    drop(listener);
    wait_for("a line of the access log", PATIENCE, || {
        let lines = std::fs::read_to_string(&log).unwrap_or_default();
        lines.contains("\"GET /live.mp3 HTTP/1.1\" 200 ")
    });
    // A browser asks before it sends a header of its own.
    let preflight = "Origin: https://a.example\r\nAccess-Control-Request-Method: GET\r\n";
    for path in ["/live.mp3", "/listen/default.mp3"] {
        let allowed = ask(server.http, &format!("OPTIONS {path}"), preflight);
        assert!(allowed.starts_with("HTTP/1.1 204"), "{allowed}");
        assert!(allowed.to_ascii_lowercase().contains("\r\naccess-control-allow-origin: *"));
    }
    let refused = ask(server.http, "OPTIONS /jsonrpc", preflight);
    assert!(!refused.to_ascii_lowercase().contains("access-control-allow-origin"), "{refused}");
    // A reload: the address is denied, and no page may read.
    let more = "deny = [\"127.0.0.0/8\", \"::1\"]\nallow_origin = \"\"";
    reload(&server, &scratch, &config(more));
    wait_for("the denial", PATIENCE, || {
        ask(server.http, "GET /live.mp3", "").starts_with("HTTP/1.1 403")
    });
    let refused = ask(server.http, "OPTIONS /live.mp3", preflight);
    assert!(!refused.to_ascii_lowercase().contains("access-control-allow-origin"), "{refused}");
    server.stop().unwrap();
}

fn reload(server: &AulosServer, scratch: &ScratchDir, config: &str) {
    std::fs::write(scratch.join("aulos.toml"), config).unwrap();
    let id = i32::try_from(server.id()).ok().and_then(Pid::from_raw).unwrap();
    kill_process(id, Signal::HUP).unwrap();
}

/// The head of a response; what there is of it, if the connection ends with a station that is
/// replaced at the moment.
fn head_of(http: SocketAddr, path: &str) -> String {
    let mut socket = TcpStream::connect(http).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && socket.read(&mut byte).is_ok_and(|count| count > 0) {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

#[test]
fn a_reload_turns_a_station_into_a_mount_and_back() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("mount-reload").unwrap();
    let first = "[[station]]\nname = \"default\"\nsources = [\"tone://\"]\n";
    let station = format!("{first}[[station]]\nname = \"x\"\nsources = [\"tone://\"]\n");
    let mount =
        |more: &str| format!("{first}[[mount]]\nname = \"x\"\nstation = \"default\"\n{more}\n");
    let server = AulosServer::start(&scratch, &station).unwrap();
    let head = |path: &str| head_of(server.http, path);
    let has = |path: &str, expected: &str| {
        wait_for(path, PATIENCE, || head(path).starts_with(expected));
    };
    has("/listen/x", "HTTP/1.1 200");
    has("/x", "HTTP/1.1 404");
    reload(&server, &scratch, &mount(""));
    has("/x", "HTTP/1.1 200");
    has("/listen/x", "HTTP/1.1 404");
    let (mut listener, _) = MountListener::connect(server.http, "/x", "");
    listener.read();
    // A changed mount has another codec, and its listeners reconnect.
    reload(&server, &scratch, &mount("codec = \"opus\""));
    wait_for("the new codec", PATIENCE, || head("/x").contains("audio/ogg"));
    reload(&server, &scratch, &station);
    has("/listen/x", "HTTP/1.1 200");
    has("/x", "HTTP/1.1 404");
    server.stop().unwrap();
}

#[test]
fn listeners_move_to_another_mount_of_the_same_format() {
    let name = "mount_admin::listeners_move_to_another_mount_of_the_same_format";
    retry_after_stall(name, || {
        let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
        let Some(mpg123) = find_or_skip("mpg123") else { return };
        let _turn = shared_turn();
        let scratch = ScratchDir::new("mount-move").unwrap();
        let files = [
            tone_file(&ffmpeg, &scratch, 440, "-c:a libmp3lame -q:a 3"),
            tone_file(&ffmpeg, &scratch, 660, "-c:a libmp3lame -q:a 3"),
        ];
        let mount = |name: &str, file: usize| {
            let file = files[file].display();
            format!("[[mount]]\nname = \"{name}\"\nsources = [\"file://{file}?loop=true\"]\n")
        };
        let config = format!(
            "{ADMIN_USER}[[station]]\nname = \"default\"\nsources = [\"tone://\"]\n{}\
             station = \"default\"\n{}{}",
            mount("a.mp3", 0),
            mount("b.mp3", 1),
            mount("c.aac", 1),
        );
        let server = AulosServer::start(&scratch, &config).unwrap();
        let admin = |path: &str| ask(server.http, &format!("GET /admin/{path}"), ADMIN);
        let (mut listener, _) = MountListener::connect(server.http, "/a.mp3", "");
        listener.read_for(Duration::from_secs(3));
        let refused = admin("moveclients?mount=/a.mp3&destination=/c.aac");
        assert_eq!(element(&refused, "return"), Some("0"), "{refused}");
        assert!(admin("moveclients?mount=/a.mp3&destination=/x").starts_with("HTTP/1.1 404"));
        let moved = admin("moveclients?mount=/a.mp3&destination=/b.mp3");
        assert_eq!(element(&moved, "return"), Some("1"), "{moved}");
        assert_eq!(element(&moved, "message"), Some("Clients moved from /a.mp3 to /b.mp3"));
        let count = |mount: &str| {
            let clients = admin(&format!("listclients?mount={mount}"));
            element(&clients, "Listeners").unwrap().parse::<usize>().unwrap()
        };
        assert_eq!([count("/a.mp3"), count("/b.mp3")], [0, 1]);
        listener.read_for(Duration::from_secs(4));
        check_frames(&listener.bytes, &files, [80, 80, 0]);
        assert_eq!(complaints(&ffmpeg, &mpg123, &listener.bytes, &scratch), "");
        // Its fallbacks are its sources.
        for (fallback, is_there) in [("/listen/default", "1"), ("/b.mp3", "0"), ("/x", "0")] {
            let answer = admin(&format!("fallbacks?mount=/a.mp3&fallback={fallback}"));
            assert_eq!(element(&answer, "return"), Some(is_there), "{answer}");
        }
        server.stop().unwrap();
    });
}

#[test]
fn a_source_client_without_the_password_of_its_mount_is_asked_about() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("stream-auth").unwrap();
    let (program, forms) = deciding_program();
    let port = free_port().unwrap();
    let config = format!(
        "[http]\nstream_auth = \"http://{program}/\"\n[[mount]]\nname = \"live.mp3\"\nsources = [\
         {{ uri = \"icecast://0.0.0.0:{port}/own\", password = \"secret\" }},\
         {{ name = \"other\", uri = \"icecast://0.0.0.0:{port}/other\" }}]\n"
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    wait_for("the port of source clients", PATIENCE, || TcpStream::connect(address).is_ok());
    // `echo -n source:secret | base64`, and the same of `dj:tok=good` and `dj:tok=bad`.
    let [own, good, bad] = ["c291cmNlOnNlY3JldA==", "ZGo6dG9rPWdvb2Q=", "ZGo6dG9rPWJhZA=="]
        .map(|login| format!("Authorization: Basic {login}\r\n"));
    let answer = |path: &str, login: &str| {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!(
            "PUT {path} HTTP/1.1\r\nHost: localhost:{port}\r\n{login}Content-Type: audio/mpeg\r\n\r\n"
        );
        socket.write_all(request.as_bytes()).unwrap();
        let mut piece = [0; 12];
        socket.read_exact(&mut piece).unwrap();
        String::from_utf8_lossy(&piece[9..]).into_owned()
    };
    // The own password is enough; whoever says nothing learns the scheme first.
    assert_eq!(answer("/own", &own), "200");
    assert_eq!(answer("/other", ""), "401");
    assert!(forms.try_recv().is_err(), "nothing has been asked so far");
    assert_eq!(answer("/other", &bad), "401");
    let expected = format!(
        "action=stream_auth&mount=/other&ip=127.0.0.1&server=localhost&port={port}&user=dj&\
         pass=tok%3Dbad"
    );
    assert_eq!(forms.recv_timeout(PATIENCE).unwrap(), expected);
    assert_eq!(answer("/other", &good), "200");
    assert!(forms.recv_timeout(PATIENCE).unwrap().ends_with("&user=dj&pass=tok%3Dgood"));
    let title = ask(address, "GET /admin/metadata?mount=/other&mode=updinfo&song=a", &good);
    assert!(title.starts_with("HTTP/1.1 200") || title.starts_with("HTTP/1.1 404"), "{title}");
    assert!(forms.recv_timeout(PATIENCE).unwrap().ends_with("&admin=1"));
    // Without the program only passwords count.
    drop(forms);
    wait_for("the end of the program", PATIENCE, || answer("/other", &good) == "503");
    wait_for("the mount, which the last client has left", PATIENCE, || {
        answer("/own", &own) == "200"
    });
    server.stop().unwrap();
}
