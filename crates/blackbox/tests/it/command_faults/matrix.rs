//! Every command with every fault of its surroundings: standard output that is full or has no
//! reader, no standard input at all, and each signal. Disks are tested beside it.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::{AulosServer, binary};
use rustix::process::{Pid, Signal, kill_process};

use super::{broken_output, end_of, write_song};
use crate::{shared_turn, wait_for};

/// Commands that print and end. `SERVER` is the control port of a server.
const SHORT: [&str; 12] = [
    "completions bash",
    "config",
    "config --schema",
    "convert snapserver.conf",
    "man",
    "normalize song.wav new.flac --force --json",
    "reload --server SERVER",
    "rpc --server SERVER Server.GetStatus",
    "scan song.wav",
    "scan song.wav --json",
    "status --server SERVER",
    "status --server SERVER --json",
];

/// Commands that run until they are stopped, or for long, and their code after a signal.
const LONG: [(&str, i32); 8] = [
    ("meter tone://?hz=440", 0),
    ("play --output null tcp://127.0.0.1:1", 0),
    ("record tone://?hz=440 take-SIGNAL.flac", 0),
    ("relay udp://127.0.0.1:0 --from pcmu --to pcma --dest udp://127.0.0.9:9", 0),
    ("scan music --jobs 1", 130),
    ("normalize music new-SIGNAL --jobs 1", 130),
    ("serve --config aulos.toml", 0),
    ("snapclient --player file:filename=null -h 127.0.0.1 -p 1", 0),
];

const SIGNALS: [(&str, Signal); 3] =
    [("INT", Signal::INT), ("TERM", Signal::TERM), ("HUP", Signal::HUP)];

/// A shell that starts a command without standard input, which Rust's library would open again.
fn without_input(folder: &Path, arguments: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" <&-"]).arg(binary()).args(arguments.split(' '));
    command.current_dir(folder).env("XDG_CONFIG_HOME", folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// A command that does not outlive a test that fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended, unless the test has failed.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn write_configurations(folder: &Path) {
    let listen = ["stream", "control", "http"].map(|port| format!("{port} = \"127.0.0.1:0\"\n"));
    let station = "[[station]]\nname = \"default\"\nsources = [\"demo://\"]\n";
    let state = format!("state_dir = \"{}\"\n", folder.join("own-state").display());
    let config = format!("{state}[listen]\n{}{station}", listen.concat());
    fs::write(folder.join("aulos.toml"), config).unwrap();
    let config = "[stream]\nsource = pipe:///tmp/snapfifo?name=default\n";
    fs::write(folder.join("snapserver.conf"), config).unwrap();
}

#[test]
fn a_short_command_fails_if_its_output_is_full_and_ends_quietly_without_a_reader() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("short-faults").unwrap();
    write_song(&scratch.join("song.wav"), 1);
    write_configurations(scratch.path());
    let station = "[[station]]\nname = \"default\"\nsources = [\"demo://\"]\n";
    let server = AulosServer::start(&scratch, station).unwrap();
    for arguments in SHORT {
        let arguments = arguments.replace("SERVER", &server.control.to_string());
        // One after the other: each replaces the same files.
        for (output, code) in
            [(Stdio::null(), 0), (broken_output(true), 74), (broken_output(false), 0)]
        {
            let said = scratch.join("said");
            let mut command = without_input(scratch.path(), &arguments);
            command.stdout(output).stderr(File::create(&said).unwrap());
            let status = end_of(&mut command.spawn().unwrap(), &arguments);
            let said = fs::read_to_string(&said).unwrap();
            assert_eq!(status.code(), Some(code), "{arguments}: {said}");
            assert!(code != 74 || said.contains("No space left on device"), "{arguments}: {said}");
        }
    }
    server.stop().unwrap();
}

#[test]
fn each_signal_ends_a_long_command_that_has_no_input_and_no_output() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("long-faults").unwrap();
    write_configurations(scratch.path());
    let music = scratch.join("music");
    fs::create_dir(&music).unwrap();
    write_song(&music.join("0.wav"), 300);
    for number in 1..4_000 {
        fs::hard_link(music.join("0.wav"), music.join(format!("{number}.wav"))).unwrap();
    }
    for (name, signal) in SIGNALS {
        // A server reloads its configuration instead.
        let rows = LONG.iter().filter(|(row, _)| name != "HUP" || !row.starts_with("serve"));
        let running: Vec<(String, i32, Running)> = rows
            .map(|(row, code)| {
                let arguments = row.replace("SIGNAL", name);
                let mut command = without_input(scratch.path(), &arguments);
                // What these print is their purpose: they end without it.
                if !["scan", "meter"].iter().any(|purpose| row.starts_with(purpose)) {
                    command.stdout(broken_output(true));
                }
                (arguments, *code, Running(command.spawn().unwrap()))
            })
            .collect();
        std::thread::sleep(Duration::from_secs(1));
        for (arguments, code, mut child) in running {
            assert!(child.0.try_wait().unwrap().is_none(), "{arguments}: it goes on");
            kill_process(Pid::from_child(&child.0), signal).unwrap();
            let status = end_of(&mut child.0, &arguments);
            // Those that had something to print have failed to.
            let codes = [Some(code), Some(74)];
            // One that has nothing to complete leaves the signal to the system.
            let by_signal = code == 130 && status.signal() == Some(signal.as_raw());
            assert!(by_signal || codes.contains(&status.code()), "{arguments}, {name}: {status}");
        }
        let leftover = |name: &str| name.starts_with('.') || name.ends_with(".part");
        let names = fs::read_dir(&scratch).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = names.filter(|name| leftover(name.to_str().unwrap())).collect();
        assert!(left.is_empty(), "{left:?}");
    }
    wait_for("the last take", Duration::from_secs(1), || scratch.join("take-HUP.flac").exists());
}
