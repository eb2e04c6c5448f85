//! `aulos play` and its ways to a server: WebSocket, TLS, logins, mDNS; the hooks; snapclient's
//! arguments.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aulos_blackbox::capture_check::compare;
use aulos_blackbox::net::NetNamespaces;
use aulos_blackbox::peer::{Process, Snapserver, find_or_skip, skip};
use aulos_blackbox::process_usage;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::{AulosServer, binary};
use aulos_blackbox::signal::{SampleWidth, programme};

use crate::play::{LEAD_S, Player, TAIL_S, frames, playing, serve, through_snapserver};
use crate::retry::retry_after_stall;
use crate::{long_shared_turn, mdns, quiet_turn, shared_turn, text, timed_turn, turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

const TONE: &str =
    "[[station]]\nname = \"default\"\ncodec = \"pcm\"\nsources = [\"tone://?hz=440\"]\n";

const USERS: &str = "[[user]]\nname = \"kitchen\"\nrole = \"listen\"\npassword = \"p@ss of: it\"\n\
    [[user]]\nname = \"anna\"\nrole = \"admin\"\npassword = \"pass of anna\"\n";

fn certificate(scratch: &ScratchDir) -> PathBuf {
    scratch.join("state/tls/cert.pem")
}

fn is_playing(player: &Player) -> bool {
    player.statuses().last().is_some_and(|status| {
        status["playing"] == true && status["error_us"].as_f64().is_some_and(|us| us.abs() < 2e3)
    })
}

/// Waits until the player has printed these words.
fn wait_for_words(player: &Player, words: &str) {
    wait_for(words, PATIENCE, || {
        assert!(player.messages().len() < 10_000, "{}", player.messages());
        player.messages().contains(words)
    });
}

#[test]
fn every_transport_delivers_the_same_samples() {
    // Three players, each of which corrects its start by changed samples if it comes late: alone.
    retry_after_stall("play_network::every_transport_delivers_the_same_samples", || {
        let _turn = timed_turn();
        let scratch = ScratchDir::new("play-transports").unwrap();
        let sound = programme(frames(), SampleWidth::B16, 7);
        let server = serve(&scratch, "flac", SampleWidth::B16, &sound);
        let (stream, http) = (server.stream.port(), server.http.port());
        let trust = certificate(&scratch);
        let urls = [
            format!("ws://127.0.0.1:{http}"),
            format!("wss://localhost:{http}"),
            format!("tls://localhost:{stream}"),
        ];
        let mut players = urls.map(|url| {
            let name = url.split_once(':').unwrap().0.to_owned();
            let more = ["--server-cert", text(&trust)];
            let more = if name == "ws" { &[][..] } else { &more[..] };
            (Player::start_at(&url, &scratch, &name, more), url)
        });
        std::thread::sleep(Duration::from_secs(LEAD_S + TAIL_S) + playing());
        for (player, url) in &mut players {
            let statuses = player.statuses();
            let errors: Vec<_> = statuses.iter().map(|status| &status["error_us"]).collect();
            let captured = SampleWidth::B16.frames(&player.stop());
            let faults: Vec<_> =
                compare(&sound, &captured).iter().map(ToString::to_string).collect();
            let (last, said) = (statuses.last(), player.messages());
            assert!(faults.is_empty(), "{url}: {faults:?} {errors:?} {last:#?} {said}");
        }
        server.stop().unwrap();
    });
}

#[test]
fn a_websocket_of_snapserver_is_played_bit_by_bit() {
    retry_after_stall("play_network::a_websocket_of_snapserver_is_played_bit_by_bit", || {
        let Some(program) = find_or_skip("snapserver") else { return };
        let _turn = timed_turn();
        let sound = programme(frames(), SampleWidth::B16, 3);
        through_snapserver(SampleWidth::B16, &sound, |scratch, fifo| {
            let server = Snapserver::start_with_http(&program, scratch, fifo).unwrap();
            let url = format!("ws://127.0.0.1:{}", server.http.unwrap());
            (server, url)
        });
    });
}

#[test]
fn an_untrusted_server_and_one_without_tls_are_named() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("play-trust").unwrap();
    let server = AulosServer::start(&scratch, TONE).unwrap();
    let trust = certificate(&scratch);
    let url = format!("wss://localhost:{}", server.http.port());
    let other = openssl_certificate(&scratch, "other");
    let other: Vec<_> = other.iter().flat_map(|(cert, _)| ["--server-cert", text(cert)]).collect();
    for more in [&[][..], &other] {
        let mut player = Player::start_at(&url, &scratch, "player", more);
        wait_for_words(&player, "the certificate of the server is not trusted; name it");
        assert!(!is_playing(&player));
        player.stop();
    }
    // A port with another protocol.
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tls://localhost:{}", plain.local_addr().unwrap().port());
    let thread = std::thread::spawn(move || {
        let (mut socket, _) = plain.accept().unwrap();
        drop(socket.write_all(b"SSH-2.0-OpenSSH_9.2\r\n"));
        socket
    });
    let mut player = Player::start_at(&url, &scratch, "player", &["--server-cert", text(&trust)]);
    wait_for_words(&player, "the server does not speak TLS on this port");
    player.stop();
    drop(thread.join());
    // Files that are none.
    let output = Command::new(binary())
        .args(["play", "wss://localhost", "--server-cert", "/nonexistent/ca.pem"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(66), "{said}");
    assert!(said.contains("/nonexistent/ca.pem: "), "{said}");
    server.stop().unwrap();
}

/// A certificate of its own, and its key.
fn openssl_certificate(scratch: &ScratchDir, name: &str) -> Option<(PathBuf, PathBuf)> {
    let openssl = find_or_skip("openssl")?;
    let [cert, key] = ["pem", "key"].map(|end| scratch.join(format!("{name}.{end}")));
    let done = Command::new(openssl)
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-subj", &format!("/CN={name}"), "-addext", &format!("subjectAltName=DNS:{name}")])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-days", "2", "-keyout"])
        .args([&key, Path::new("-out"), &cert])
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Some((cert, key))
}

#[test]
fn logins_by_password_and_by_certificate_are_accepted_on_every_transport() {
    let _turn = long_shared_turn();
    let scratch = ScratchDir::new("play-login").unwrap();
    let client = openssl_certificate(&scratch, "attic");
    let tls = client.as_ref().map_or_else(String::new, |(cert, _)| {
        format!("[tls]\nclient_ca = \"{}\"\nclient_role = \"listen\"\n", cert.display())
    });
    let server = AulosServer::start(&scratch, &format!("{TONE}{USERS}{tls}")).unwrap();
    let trust = certificate(&scratch);
    let (stream, http) = (server.stream.port(), server.http.port());
    let places = [("tcp", stream), ("ws", http), ("tls", stream), ("wss", http)];
    let trusted = ["--server-cert", text(&trust)];
    for (scheme, port) in places {
        let url = |login: &str| format!("{scheme}://{login}localhost:{port}");
        let name = |what: &str| format!("{scheme}-{what}");
        let login = "kitchen:p%40ss of: it@";
        let mut player = Player::start_at(&url(login), &scratch, &name("user"), &trusted);
        wait_for(scheme, PATIENCE, || is_playing(&player));
        let messages = player.messages();
        assert!(!messages.contains("ss of"), "{messages}");
        player.stop();
        for login in ["", "kitchen:wrong@"] {
            let mut player = Player::start_at(&url(login), &scratch, &name("none"), &trusted);
            wait_for_words(&player, "the server requires a login that it accepts");
            player.stop();
        }
        if let (Some((cert, key)), "tls" | "wss") = (&client, scheme) {
            let files = ["--cert", text(cert), "--cert-key", text(key)];
            let more = [&trusted[..], &files].concat();
            let mut player = Player::start_at(&url(""), &scratch, &name("cert"), &more);
            wait_for(&name("certificate"), PATIENCE, || is_playing(&player));
            player.stop();
        }
    }
    server.stop().unwrap();
}

#[test]
fn a_player_without_an_address_finds_a_server_and_finds_it_again() {
    let _turn = quiet_turn();
    let Some(net) = mdns::network() else { return skip("network namespaces") };
    let scratch = ScratchDir::new("play-mdns").unwrap();
    let [one, two] = [ScratchDir::new("play-up").unwrap(), ScratchDir::new("play-down").unwrap()];
    let sets = ["listen.stream=0.0.0.0:0", "mdns.name=Up. stairs"];
    let upstairs = mdns::start_at(&net, 0, &one, &sets);
    let mut player = search(&net, &scratch, "any", &[]);
    let found = format!("found `Up. stairs` at tcp://10.77.0.1:{}", upstairs.stream.port());
    wait_for_words(&player, &found);
    wait_for("sound", PATIENCE, || is_playing(&player));
    let status = player.statuses().pop().unwrap();
    let address = format!("tcp://10.77.0.1:{}", upstairs.stream.port());
    assert_eq!(status["server"], *address, "{status}");
    // It comes back at another port.
    upstairs.stop().unwrap();
    wait_for_words(&player, "searching, also on this machine");
    let upstairs = mdns::start_at(&net, 0, &one, &sets);
    wait_for_words(&player, &format!("at tcp://10.77.0.1:{}\n", upstairs.stream.port()));
    wait_for("sound again", PATIENCE, || is_playing(&player));
    net.run_inside(1, || player.stop());
    // Once for each absence; the first search may be earlier than the server.
    let absences = player.messages().matches("searching").count();
    assert!((1..=2).contains(&absences), "{}", player.messages());
    // One of two by its name, and one that is not there.
    let sets = ["listen.stream=0.0.0.0:0", "mdns.name=Downstairs"];
    let downstairs = mdns::start_at(&net, 0, &two, &sets);
    let mut named = search(&net, &scratch, "named", &["--server", "downstairs"]);
    wait_for_words(&named, "found `Downstairs` at tcp://10.77.0.1:");
    wait_for("sound by name", PATIENCE, || is_playing(&named));
    named.stop();
    let mut wrong = search(&net, &scratch, "wrong", &["--server", "Attic"]);
    wait_for_words(&wrong, "`Attic` does not answer mDNS queries for _snapcast._tcp, but ");
    assert!(wrong.messages().contains("Downstairs"), "{}", wrong.messages());
    wrong.stop();
    upstairs.stop().unwrap();
    downstairs.stop().unwrap();
}

/// A player in the second namespace, without an address.
fn search(net: &NetNamespaces, scratch: &ScratchDir, name: &str, more: &[&str]) -> Player {
    net.run_inside(1, || Player::start_at("", scratch, name, more))
}

#[test]
fn a_server_of_this_machine_that_announces_nothing_is_found_too() {
    let _turn = quiet_turn();
    let Some(net) = mdns::network() else { return skip("network namespaces") };
    let scratch = ScratchDir::new("play-own").unwrap();
    let mut player = net.run_inside(0, || Player::start_at("", &scratch, "player", &[]));
    wait_for_words(&player, "no server answers mDNS queries for _snapcast._tcp; searching");
    let server = mdns::start_at(&net, 0, &scratch, &["listen.stream=127.0.0.1:1704"]);
    wait_for_words(&player, "found a server at tcp://127.0.0.1:1704\n");
    wait_for("sound", PATIENCE, || is_playing(&player));
    player.stop();
    server.stop().unwrap();
}

/// Answers to a search as fast as they can be sent: damaged ones, and ones that lead to ever more
/// questions.
#[test]
fn a_flood_of_mdns_answers_does_not_hold_the_player_up() {
    let _turn = turn();
    let Some(net) = mdns::network() else { return skip("network namespaces") };
    let scratch = ScratchDir::new("play-flood").unwrap();
    let socket = net.run_inside(0, || {
        let socket = UdpSocket::bind("0.0.0.0:5353").unwrap();
        let group = [Ipv4Addr::new(224, 0, 0, 251), Ipv4Addr::new(10, 77, 0, 1)];
        socket.join_multicast_v4(&group[0], &group[1]).unwrap();
        socket
    });
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let thread = std::thread::spawn(move || {
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let (mut from, mut queries, mut number) = (None, 0_u64, 0_u32);
        while !over.load(Ordering::Relaxed) {
            if number.is_multiple_of(256) || from.is_none() {
                socket.set_nonblocking(from.is_some()).unwrap();
                while let Ok((_, sender)) = socket.recv_from(&mut [0; 9_000]) {
                    queries += 1;
                    from = Some(sender);
                    if queries % 16 == 0 {
                        break;
                    }
                }
            }
            number += 1;
            let Some(from) = from else { continue };
            drop(socket.send_to(&false_answer(number), from));
        }
        queries
    });
    let mut player = search(&net, &scratch, "player", &[]);
    wait_for_words(&player, "no server answers mDNS queries for _snapcast._tcp; searching");
    std::thread::sleep(Duration::from_secs(3));
    let memory = process_usage::read(player.id()).unwrap().resident / 1_024;
    player.stop();
    is_over.store(true, Ordering::Relaxed);
    let queries = thread.join().unwrap();
    println!("{queries} queries, {memory} KiB");
    assert!((2..200).contains(&queries), "{queries} queries");
    assert!(memory < 60_000, "{memory} KiB");
}

/// A pointer to another instance each time, without port or address; every other one is damaged.
fn false_answer(number: u32) -> Vec<u8> {
    let label = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let service = [label("_snapcast"), label("_tcp"), label("local"), vec![0]].concat();
    let instance = [label(&number.to_string()), b"\xc0\x0c".to_vec()].concat();
    let length = u8::try_from(instance.len()).unwrap();
    let head = [0, 0, 0x84, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    let fixed = [0, 12, 0, 1, 0, 0, 0, 120, 0, length];
    let mut packet = [&head[..], &service, &fixed, &instance].concat();
    if number.is_multiple_of(2) {
        let at = usize::try_from(number / 2).unwrap() % packet.len();
        packet[at] ^= number.to_le_bytes()[1] | 1;
    }
    packet
}

#[test]
fn hooks_and_a_volume_script_follow_the_sound() {
    use std::os::unix::fs::PermissionsExt as _;
    let _turn = shared_turn();
    let scratch = ScratchDir::new("play-hooks").unwrap();
    let server = AulosServer::start(&scratch, TONE).unwrap();
    let (log, volume) = (scratch.join("log"), scratch.join("volume"));
    let script = format!("#!/bin/sh\necho $* >> {}\n", log.display());
    std::fs::write(&volume, script).unwrap();
    std::fs::set_permissions(&volume, std::fs::Permissions::from_mode(0o755)).unwrap();
    let line = format!("echo $AULOS_EVENT $AULOS_PLAYER $AULOS_SERVER >> {}", log.display());
    let url = format!("tcp://{}", server.stream);
    let mixer = format!("script:{}", volume.display());
    // It may not keep the sound waiting.
    let slow = format!("{line}; sleep 100");
    let more = ["--on-start", &slow, "--on-stop", &line, "--stop-after", "1", "--mixer", &mixer];
    let mut player = Player::start_at(&url, &scratch, "den", &more);
    let has = |words: &str| std::fs::read_to_string(&log).is_ok_and(|log| log.contains(words));
    wait_for("the first hook", PATIENCE, || has(&format!("sound den {url}\n")));
    wait_for("the volume", PATIENCE, || has("--volume 1 --mute false\n"));
    wait_for("sound beside a hook", PATIENCE, || is_playing(&player));
    assert!(!has("silence"));
    server.stop().unwrap();
    // After the slow one was killed.
    wait_for("the second hook", PATIENCE, || has(&format!("silence den {url}\n")));
    assert!(player.messages().contains("was killed after 10 s"), "{}", player.messages());
    player.stop();
    assert_eq!(std::fs::read_to_string(&log).unwrap().matches("silence").count(), 1);
}

#[test]
fn the_name_and_arguments_of_snapclient_play() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("play-snapclient").unwrap();
    let server = AulosServer::start(&scratch, TONE).unwrap();
    let program = scratch.join("snapclient");
    symlink(binary(), &program).unwrap();
    let version = Command::new(&program).arg("--version").output().unwrap();
    assert!(version.stdout.starts_with(b"snapclient v0.34.0"), "{version:?}");
    let help = Command::new(&program).arg("--help").output().unwrap();
    let text = String::from_utf8_lossy(&help.stdout);
    assert!(
        help.status.success() && text.contains("Play with the arguments of snapclient"),
        "{text}"
    );
    let (sound, log) = (scratch.join("sound.pcm"), scratch.join("log"));
    let port = server.stream.port().to_string();
    let mut command = Command::new(&program);
    command.args(["-h", "127.0.0.1", "-p", &port, "--hostID", "attic", "--logsink", "stderr"]);
    command.arg("--player").arg(format!("file:filename={}", sound.display()));
    let mut process = Process::start(&mut command, &scratch.join("out"), &log).unwrap();
    wait_for("sound", PATIENCE, || {
        std::fs::read(&sound).is_ok_and(|bytes| bytes.iter().any(|byte| *byte != 0))
    });
    let status = process.terminate(Duration::from_secs(2)).unwrap();
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(status.success() && said.contains("connected to tcp://127.0.0.1:"), "{status} {said}");
    let refused = Command::new(&program).args(["--user", "snap"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("--user is not supported"), "{said}");
    server.stop().unwrap();
}
