//! What is kept of clients and presets, and the pages of a folder, as they are seen from outside:
//! no caller makes the server busy, forgetful, or wait for a disk.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::common::{PATIENCE, Server, TWO_STATIONS, eventually, resolve};
use aulos_control::backend::{KickReason, ReactorEvent, SessionCommand, SessionId};
use aulos_control::registry::{MAX_CLIENTS, MAX_PRESETS, MAX_PRESETS_BYTES};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

/// A new client from one of many addresses.
fn hello_from(peer: IpAddr, session: u64) -> ReactorEvent {
    let mut event = crate::common::hello(session, &format!("c{session}"));
    let ReactorEvent::Hello { address, .. } = &mut event else { panic!() };
    *address = (peer, 0).into();
    event
}

fn counter(server: &Server, name: &str) -> u64 {
    let status = server.controller().call("Aulos.GetStatus", json!({}));
    status["result"]["counters"][name].as_u64().unwrap_or_else(|| panic!("{name}: {status}"))
}

#[test]
fn presets_with_many_groups_are_bounded_and_responses_short() {
    let server = Server::start();
    for number in 0..MAX_CLIENTS as u64 {
        let peer = Ipv4Addr::from_bits(0xc633_0000 + u32::try_from(number).unwrap());
        server.event(hello_from(peer.into(), number));
    }
    // Each gets its settings and its station.
    eventually(|| server.backend.commands.lock().unwrap().len() >= 2 * MAX_CLIENTS);
    let mut controller = server.controller();
    let mut saved = 0;
    for number in 0..MAX_PRESETS {
        let name = format!("preset {number}");
        let answer = controller.call("Aulos.SavePreset", json!({ "name": name }));
        let size = answer.to_string().len();
        assert!(size < 16 << 10, "{size} bytes");
        if let Some(why) = answer["error"]["data"].as_str() {
            assert!(why.contains("16 MiB"), "{why}");
            break;
        }
        saved += 1;
        let newest = answer["result"]["presets"].as_array().unwrap().last().unwrap().clone();
        let counts = (newest["group_count"].as_u64(), newest["client_count"].as_u64());
        assert_eq!(counts, (Some(MAX_CLIENTS as u64), Some(MAX_CLIENTS as u64)), "{newest}");
    }
    assert!((4..MAX_PRESETS).contains(&saved), "{saved} presets");
    // One by its name comes with what is in it.
    let one = controller.call("Aulos.GetPresets", json!({ "name": "preset 1" }));
    let groups = one["result"]["presets"][0]["groups"].as_array().unwrap();
    assert_eq!(groups.len(), MAX_CLIENTS);
    assert_eq!(groups[0]["clients"][0]["volume"], json!({ "percent": 100, "muted": false }));
    let none = controller.call("Aulos.GetPresets", json!({ "name": "nope" }));
    assert_eq!(none["error"]["data"], "Preset not found");
    let state = server.state_dir.join("server.json");
    // Clients, groups and a few presets: larger than without presets, and smaller than all allowed.
    let size = || std::fs::metadata(&state).map_or(0, |about| about.len());
    eventually(|| size() > MAX_PRESETS_BYTES as u64 / 2);
    assert!(size() < 2 * MAX_PRESETS_BYTES as u64, "{} bytes", size());
}

#[test]
fn new_ids_from_one_address_are_refused_after_a_building_and_counted() {
    let server = Server::start();
    let known = |session| hello_from(Ipv4Addr::new(198, 51, 100, 1).into(), session);
    for session in 0..1_200 {
        server.event(known(session));
    }
    eventually(|| counter(&server, "clients_refused_new") >= 100);
    let commands = server.backend.commands.lock().unwrap().clone();
    let refused = |command: &&SessionCommand| {
        matches!(command, SessionCommand::Kick { cause: KickReason::RateLimited, .. })
    };
    assert!(commands.iter().filter(refused).count() >= 100);
    // A known client comes back, and another address is not meant.
    let other = hello_from(Ipv4Addr::new(198, 51, 100, 2).into(), 5_000);
    let (mut again, second) = (known(0), SessionId(6_000));
    let ReactorEvent::Hello { session, .. } = &mut again else { panic!() };
    *session = second;
    for event in [other, again] {
        server.event(event);
    }
    eventually(|| {
        let commands = server.backend.commands.lock().unwrap();
        [SessionId(5_000), second].iter().all(|wanted| {
            let moved = |command: &SessionCommand| matches!(command, SessionCommand::MoveClient { session, .. } if session == wanted);
            commands.iter().any(moved)
        })
    });
}

/// A server whose pages lie in a folder with what a folder can hold.
fn with_pages() -> Server {
    let folder = crate::common::scratch();
    let root = folder.join("www");
    std::fs::create_dir_all(root.join("sub")).unwrap();
    std::fs::write(root.join("index.html"), "<p>a page").unwrap();
    std::fs::write(root.join("sub/index.html"), "<p>another").unwrap();
    let long: Vec<u8> = (0..200_000u32).map(|n| n.to_le_bytes()[0]).collect();
    std::fs::write(root.join("long.bin"), long).unwrap();
    std::fs::write(root.join("empty.txt"), "").unwrap();
    std::fs::write(folder.join("secret.txt"), "the secret").unwrap();
    symlink("../secret.txt", root.join("out.txt")).unwrap();
    symlink(folder.join("secret.txt"), root.join("away.txt")).unwrap();
    symlink("..", root.join("up")).unwrap();
    symlink("index.html", root.join("inside.html")).unwrap();
    mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let text = format!("[http]\ndoc_root = \"{}\"\n{TWO_STATIONS}", root.display());
    Server::of(resolve(&text))
}

/// The status, the head and the body.
fn get(server: &Server, path: &str, more: &str) -> (u16, String, Vec<u8>) {
    request(server, "GET", path, more)
}

fn request(server: &Server, method: &str, path: &str, more: &str) -> (u16, String, Vec<u8>) {
    let mut socket = TcpStream::connect(server.http).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let text = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}\r\n");
    socket.write_all(text.as_bytes()).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap_or_else(|e| panic!("{path}: {e}"));
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap().to_lowercase();
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap();
    (code, head, answer[end + 4..].to_vec())
}

#[test]
fn a_folder_of_pages_has_regular_files_and_no_way_out() {
    let server = with_pages();
    for path in ["/out.txt", "/away.txt", "/up/secret.txt", "/up/www/index.html", "/fifo", "/nope"]
    {
        let (code, _, body) = get(&server, path, "");
        assert_eq!(code, 404, "{path}: {}", String::from_utf8_lossy(&body));
    }
    for (path, text) in [("/", "<p>a page"), ("/inside.html", "<p>a page"), ("/sub/", "<p>another")]
    {
        assert_eq!(get(&server, path, "").2, text.as_bytes(), "{path}");
    }
    let (code, head, _) = get(&server, "//sub", "");
    assert!(code == 307 && head.contains("location: /sub/"), "{head}");
    let (code, head, body) = get(&server, "/empty.txt", "");
    assert!(code == 200 && head.contains("content-length: 0") && body.is_empty(), "{head}");
    assert_eq!(request(&server, "POST", "/index.html", "").0, 405);
}

#[test]
fn a_file_is_served_whole_in_ranges_or_not_modified() {
    let server = with_pages();
    let (code, head, whole) = get(&server, "/long.bin", "");
    assert!(code == 200 && whole.len() == 200_000, "{head}");
    assert!((0..200_000u32).all(|n| whole[n as usize] == n.to_le_bytes()[0]));
    let etag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let (code, head, body) = request(&server, "HEAD", "/long.bin", "");
    assert!(code == 200 && head.contains("content-length: 200000") && body.is_empty(), "{head}");
    let (code, _, body) = get(&server, "/long.bin", &format!("If-None-Match: {etag}\r\n"));
    assert!(code == 304 && body.is_empty());
    let (code, head, body) = get(&server, "/long.bin", "Range: bytes=70000-150000\r\n");
    assert!(code == 206 && head.contains("content-range: bytes 70000-150000/200000"), "{head}");
    assert_eq!(body, whole[70_000..=150_000]);
    let (code, head, _) = get(&server, "/long.bin", "Range: bytes=200000-\r\n");
    assert!(code == 416 && head.contains("content-range: bytes */200000"), "{head}");
    let stale = "Range: bytes=1-2\r\nIf-Range: \"another\"\r\n";
    assert_eq!(get(&server, "/long.bin", stale).2.len(), 200_000);
}

#[test]
fn fifos_among_the_pages_keep_no_state_from_being_saved() {
    let server = with_pages();
    server.hello(1, "c1");
    for _ in 0..8 {
        assert_eq!(get(&server, "/fifo", "").0, 404);
    }
    server.controller().call("Client.SetName", json!({ "id": "c1", "name": "Bad" }));
    let file = server.state_dir.join("server.json");
    eventually(|| name_in(&file).as_deref() == Some("Bad"));
}

fn name_in(file: &Path) -> Option<String> {
    let state: Value = serde_json::from_str(&std::fs::read_to_string(file).ok()?).ok()?;
    Some(state["Groups"][0]["clients"][0]["config"]["name"].as_str()?.to_owned())
}
