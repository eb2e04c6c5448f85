//! Programs that the server starts: what they get, and that they end with the server.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::peer::Process;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::{AulosServer, binary};
use serde_json::json;

use crate::rpc::Rpc;
use crate::{script, shared_turn, text, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn a_killed_server_leaves_no_child_behind() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("children").unwrap();
    let [source, script] = ["source", "script"].map(|name| idler(&scratch, name));
    let config = format!(
        "[[station]]\nname = \"default\"\nsources = [\"process://{source}\"]\n\
         plugin = {{ script = \"{script}\" }}\n"
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let children = ["source", "script"].map(|name| {
        let mut id = None;
        wait_for(name, PATIENCE, || {
            id = id_of(&scratch, name);
            id.is_some_and(lives)
        });
        id.unwrap()
    });
    // Dropped, not stopped: that is SIGKILL, so the server cannot clean up.
    drop(server);
    for child in children {
        wait_for("its end", PATIENCE, || !lives(child));
    }
}

#[test]
fn a_program_gets_nothing_by_which_the_service_manager_addresses_the_server() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("inherited").unwrap();
    let programs = ["source", "script", "hook"].map(|name| {
        let path = scratch.join(name);
        script(&path, &format!("#!/bin/sh\n{}\nexec sleep 600\n", report(&scratch, name)));
        path
    });
    let [source, plugin, hook] = programs.each_ref().map(|path| text(path));
    let config = scratch.join("aulos.toml");
    let sources = format!("[\"process://{source}\", \"tone://\"]");
    let stations = format!(
        "[[station]]\nname = \"default\"\nsources = {sources}\nplugin = {{ script = \"{plugin}\" }}\n\
         [[hook]]\nname = \"h\"\nrun = \"{hook}\"\n"
    );
    std::fs::write(&config, stations).unwrap();
    let server = AulosServer::start_with(&scratch, |command| {
        supervised(command.arg("--config").arg(&config));
    })
    .unwrap();
    Rpc::connect(server.control).call("Aulos.TestHook", &json!({ "hook": "h" }));
    let mut player = Command::new(binary());
    player.arg("play").arg(format!("tcp://{}", server.stream)).args(["--output", "null"]);
    player.args(["--on-start", &report(&scratch, "player")]);
    let log = scratch.join("player.log");
    let player = Process::start(supervised(&mut player), &log, &log).unwrap();
    for name in ["source", "script", "hook", "player"] {
        let file = scratch.join(format!("{name}.env"));
        let mut env = String::new();
        wait_for(name, PATIENCE, || {
            env = std::fs::read_to_string(&file).unwrap_or_default();
            env.ends_with("end\n")
        });
        assert!(env.contains("PATH="), "{name}: {env}");
        for variable in SUPERVISION {
            assert!(!env.contains(variable), "{name}: {env}");
        }
    }
    drop(player);
    server.stop().unwrap();
}

/// A line of a shell that writes the environment into a file.
fn report(scratch: &ScratchDir, name: &str) -> String {
    let file = scratch.join(format!("{name}.env"));
    format!("env >{0}; echo end >>{0}", text(&file))
}

/// Variables of a service manager; none of them is for this process, which must not use them.
fn supervised(command: &mut Command) -> &mut Command {
    command.envs(SUPERVISION.map(|name| (name, "1"))).env("NOTIFY_SOCKET", "@aulos-no-manager")
}

const SUPERVISION: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
];

/// A program that writes its process id to a file, and then neither reads, writes nor ends.
fn idler(scratch: &ScratchDir, name: &str) -> String {
    let path = scratch.join(name);
    let number = scratch.join(format!("{name}.pid"));
    std::fs::write(&path, format!("#!/bin/sh\necho $$ >{}\nexec sleep 600\n", text(&number)))
        .unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    text(&path).to_owned()
}

fn id_of(scratch: &ScratchDir, name: &str) -> Option<u32> {
    std::fs::read_to_string(scratch.join(format!("{name}.pid"))).ok()?.trim().parse().ok()
}

/// A zombie counts as ended.
fn lives(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}
