//! The state survives whatever happens to the server and to its disk: a kill during a save, a full
//! disk, a folder that cannot be written, a corrupt file.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::client::ListenerClient;
use aulos_blackbox::peer::skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::{AulosServer, binary};
use aulos_blackbox::signal::NoiseRng;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::hostile::counter;
use crate::rpc::Rpc;
use crate::{hear, id_of, shared_turn, soak, text, wait_for};

const CONFIG: &str = "[[station]]\nname = \"default\"\nsources = [\"demo://\"]\n";

/// Several times the delay between a change and its save.
const PATIENCE: Duration = Duration::from_secs(30);

/// Enough that a save takes a while.
const CLIENTS: usize = 2_000;

#[test]
fn a_kill_in_the_middle_of_a_save_leaves_the_old_state_or_the_new_one() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("kill").unwrap();
    let folder = scratch.join("state");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("server.json"), saved_state("round 0").to_string()).unwrap();
    let mut noise = NoiseRng(11);
    let mut known = "round 0".to_owned();
    let (mut old, mut new) = (0, 0);
    for round in 1..=if soak() { 600 } else { 30 } {
        let server = AulosServer::start(&scratch, CONFIG).unwrap();
        let mut rpc = Rpc::connect(server.control);
        assert_eq!(name_of_first(&rpc.status()["groups"]), known, "round {round}");
        let next = format!("round {round}");
        rpc.call("Client.SetName", &json!({ "id": "c0", "name": next }));
        // The server saves when it ends; the kill comes at some time before or after.
        let pid = Pid::from_raw(i32::try_from(server.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        std::thread::sleep(Duration::from_micros((noise.next_u64() >> 16) % 60_000));
        drop(server);
        let saved = saved(&folder.join("server.json"));
        assert_eq!(saved.as_array().unwrap().len(), CLIENTS, "round {round}");
        let name = name_of_first(&saved);
        assert!(name == known || name == next, "round {round}: {name} after {known}");
        *(if name == known { &mut old } else { &mut new }) += 1;
        known = name;
    }
    println!("killed: the old state {old} times, the new one {new} times");
    let names = fs::read_dir(&folder).unwrap();
    let mut names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    println!("{names:?}");
    // A file that is being replaced has one name for its successor, `.new`. No kill leaves the lock
    // and the id, of which there is one each.
    names
        .retain(|name| !["server.lock", "server-id"].contains(&&**name) && !name.ends_with(".new"));
    assert!(names.len() <= 4, "{names:?}: what kills have left behind is piling up");
}

#[test]
fn a_full_disk_and_one_that_cannot_be_written_cost_no_sound_and_are_caught_up_with() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("full").unwrap();
    fs::create_dir(scratch.join("state")).unwrap();
    let Some(server) = on_a_disk_of_its_own(&scratch, CONFIG) else {
        return skip("mount namespaces");
    };
    let disk = PathBuf::from(format!("/proc/{}/root", server.id()))
        .join(scratch.join("state").strip_prefix("/").unwrap());
    let mut client = ListenerClient::connect(server.stream, 1).unwrap();
    let mut rpc = Rpc::connect(server.control);
    let id = id_of(&mut client, &mut rpc, PATIENCE);
    let mut name = |name: &str| rpc.call("Client.SetName", &json!({ "id": id, "name": name }));
    let is_saved = |name: &str| {
        let file = disk.join("server.json");
        file.exists() && name_of_first(&saved(&file)) == name
    };
    let failures = || counter(server.http, "state_not_saved");

    name("before");
    wait_for("the first save", PATIENCE, || hear(&mut client) && is_saved("before"));
    fill(&disk.join("filler"));
    name("while it is full");
    wait_for("a save that fails", PATIENCE, || hear(&mut client) && failures() > 0);
    assert!(is_saved("before"), "the old state is gone");
    assert!(!disk.join("server.json.new").exists(), "half a file keeps the disk full");
    fs::remove_file(disk.join("filler")).unwrap();
    wait_for("room", PATIENCE, || hear(&mut client) && is_saved("while it is full"));

    let before = failures();
    remount(&server, &scratch.join("state"), "ro");
    name("while it is closed");
    wait_for("a save that fails", PATIENCE, || hear(&mut client) && failures() > before);
    assert!(is_saved("while it is full"), "the old state is gone");
    remount(&server, &scratch.join("state"), "rw");
    wait_for("a way in", PATIENCE, || hear(&mut client) && is_saved("while it is closed"));

    // The line is written when the file is.
    let said = |what: &str| server.printed().unwrap().matches(what).count();
    wait_for("the last line", PATIENCE, || {
        hear(&mut client) && said("saving the state works again") == 2
    });
    assert_eq!(said("cannot save groups and volumes"), 2);
    assert_eq!((client.stats.gaps, client.stats.cut), (0, false), "{:?}", client.stats);
    server.stop().unwrap();
}

#[test]
fn what_was_saved_before_is_used_as_long_as_the_newest_is_broken() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("broken").unwrap();
    let folder = scratch.join("state");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("server.json"), "{\"Groups\":[{").unwrap();
    fs::write(folder.join("server.json.previous"), saved_state("from before").to_string()).unwrap();
    // Twice, because the first start sets the corrupt one aside.
    for _ in 0..2 {
        let server = AulosServer::start(&scratch, CONFIG).unwrap();
        let groups = Rpc::connect(server.control).status()["groups"].clone();
        assert_eq!(name_of_first(&groups), "from before");
        assert_eq!(groups.as_array().unwrap().len(), CLIENTS);
        server.stop().unwrap();
    }
    assert!(folder.join("server.json.broken").exists());
}

#[test]
fn a_second_server_with_the_same_state_is_rejected_until_the_first_ends() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("lock").unwrap();
    let first = AulosServer::start(&scratch, CONFIG).unwrap();
    let pid = first.id().to_string();
    let folder = scratch.join("state");
    let mut second = Command::new(binary());
    second.arg("serve").arg("--state-dir").arg(&folder);
    second.arg("--config").arg(scratch.join("aulos.toml"));
    for key in ["stream", "control", "http"] {
        second.args(["--set", &format!("listen.{key}=127.0.0.1:0")]);
    }
    let second = second.output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(69), "{said}");
    for part in [&pid, text(&folder), "aulos", "--state-dir"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // Nothing else is affected.
    let mut check = Command::new(binary());
    check.arg("check").arg("--config").arg(scratch.join("aulos.toml"));
    assert!(check.output().unwrap().status.success());
    let first_id = Pid::from_raw(i32::try_from(first.id()).unwrap()).unwrap();
    kill_process(first_id, Signal::KILL).unwrap();
    drop(first);
    let again = AulosServer::start(&scratch, CONFIG).unwrap();
    let holder = fs::read_to_string(scratch.join("state/server.lock")).unwrap();
    assert_eq!(holder.trim(), again.id().to_string());
    assert_ne!(holder.trim(), pid);
    again.stop().unwrap();
}

#[test]
fn two_clients_with_one_id_both_play_as_one_client() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("twins").unwrap();
    let server = AulosServer::start(&scratch, CONFIG).unwrap();
    let mut rpc = Rpc::connect(server.control);
    let mut first = ListenerClient::connect(server.stream, 5).unwrap();
    wait_for("the first", PATIENCE, || hear(&mut first) && first.stats.chunks > 10);
    let mut second = ListenerClient::connect(server.stream, 5).unwrap();
    let chunks = first.stats.chunks;
    wait_for("both", PATIENCE, || {
        hear(&mut first);
        hear(&mut second) && second.stats.chunks > 50 && first.stats.chunks > chunks + 50
    });
    for client in [&first, &second] {
        assert_eq!((client.stats.gaps, client.stats.cut), (0, false));
    }
    let status = rpc.status();
    let groups = status["groups"].as_array().unwrap();
    assert_eq!((groups.len(), groups[0]["clients"].as_array().unwrap().len()), (1, 1));
    assert_eq!(groups[0]["clients"][0]["connected"], true);
    // With the newer one gone, the other one is the client.
    drop(second);
    let chunks = first.stats.chunks;
    wait_for("the first alone", PATIENCE, || hear(&mut first) && first.stats.chunks > chunks + 50);
    assert_eq!(rpc.status()["groups"][0]["clients"][0]["connected"], true);
    drop(first);
    wait_for("the end", PATIENCE, || rpc.status()["groups"][0]["clients"][0]["connected"] == false);
    server.stop().unwrap();
}

/// A server whose state is on a separate disk of 256 kB.
pub(crate) fn on_a_disk_of_its_own(scratch: &ScratchDir, contents: &str) -> Option<AulosServer> {
    let config = scratch.join("aulos.toml");
    fs::write(&config, contents).unwrap();
    let mut through = Command::new("unshare");
    // Root in a separate mount namespace, if required.
    through.args(if rustix::process::geteuid().is_root() { &["-m"][..] } else { &["-Urm"] });
    let mount = format!("mount -t tmpfs -o size=256k none {}", text(&scratch.join("state")));
    through.args(["sh", "-c", &format!("{mount} && exec \"$@\""), "sh"]);
    let server = AulosServer::start_through(scratch, through, |command| {
        command.arg("--config").arg(&config);
    });
    server.inspect_err(|e| println!("{e}")).ok()
}

pub(crate) fn remount(server: &AulosServer, at: &Path, how: &str) {
    let done = Command::new("nsenter")
        .args(["-t", &server.id().to_string(), "-m"])
        .args(if rustix::process::geteuid().is_root() { &[][..] } else { &["-U"] })
        .args(["mount", "-o", &format!("remount,{how}"), text(at)])
        .status();
    assert!(done.unwrap().success());
}

/// Writes until there is no space left.
pub(crate) fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    let full = (0..10_000).find_map(|_| file.write_all(&[0; 512]).err()).expect("it never fills");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull, "{full}");
}

/// The groups in a saved state, which must be complete.
fn saved(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text:.200}"));
    value["Groups"].clone()
}

fn name_of_first(groups: &Value) -> String {
    groups[0]["clients"][0]["config"]["name"].as_str().unwrap_or_default().to_owned()
}

/// A state as snapserver saves it; its first client has this name.
fn saved_state(name: &str) -> Value {
    let group = |n: usize| {
        json!({
            "id": format!("group-{n}"), "name": "", "stream_id": "default", "muted": false,
            "clients": [{
                "id": format!("c{n}"),
                "connected": false,
                "config": { "instance": 1, "latency": 0, "name": if n == 0 { name } else { "" },
                    "volume": { "muted": false, "percent": 50 } },
                "host": { "arch": "", "ip": "192.0.2.1", "mac": "", "name": "player", "os": "" },
                "lastSeen": { "sec": 1_700_000_000, "usec": 0 },
                "snapclient": { "name": "Snapclient", "protocolVersion": 2, "version": "0.34.0" },
            }],
        })
    };
    json!({ "ConfigVersion": 2, "Groups": (0..CLIENTS).map(group).collect::<Vec<_>>() })
}
