//! Programs that the server starts end with the server.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;

use crate::{shared_turn, text, wait_for};

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
