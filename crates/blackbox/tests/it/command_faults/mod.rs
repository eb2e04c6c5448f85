//! Commands that write, while their disk, their standard streams or a signal fails them.

mod matrix;

use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::binary;
use rustix::process::{Pid, Signal, kill_process};

use crate::{shared_turn, text, wait_for};

/// A small WAVE file of a 16-bit tone, mono, at 8 kHz.
fn write_song(path: &Path, seconds: u32) {
    let samples = (0..seconds * 8_000).map(|at| if at / 10 % 2 == 0 { 4_000_i16 } else { -4_000 });
    let sound: Vec<u8> = samples.flat_map(i16::to_le_bytes).collect();
    let bytes = u32::try_from(sound.len()).unwrap();
    let mut file = Vec::from(*b"RIFF");
    file.extend((bytes + 36).to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    file.extend(8_000_u32.to_le_bytes());
    file.extend(16_000_u32.to_le_bytes());
    file.extend(b"\x02\0\x10\0data");
    file.extend(bytes.to_le_bytes());
    file.extend(sound);
    fs::write(path, file).unwrap();
}

fn aulos(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments).current_dir(folder).env("XDG_CONFIG_HOME", folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// A standard output that takes nothing: a full disk, or a pipe without a reader.
fn broken_output(is_full: bool) -> Stdio {
    if is_full {
        return OpenOptions::new().write(true).open("/dev/full").unwrap().into();
    }
    std::io::pipe().unwrap().1.into()
}

fn end_of(child: &mut Child, what: &str) -> ExitStatus {
    wait_for(what, Duration::from_secs(10), || child.try_wait().unwrap().is_some());
    child.wait().unwrap()
}

/// Runs a script of the shell in a mount namespace with a disk of its own at `disk`. `None` where
/// the system does not allow it.
fn on_small_disk(folder: &Path, script: &str) -> Option<Command> {
    let spaces = if rustix::process::geteuid().is_root() { "-m" } else { "-Urm" };
    let mount = "mkdir -p disk && mount -t tmpfs -o size=64k none disk";
    let tried =
        Command::new("unshare").args([spaces, "sh", "-c", mount]).current_dir(folder).status();
    if !tried.is_ok_and(|status| status.success()) {
        println!("skipped: no mount namespace");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args([spaces, "sh", "-c", &format!("{mount} && {script}"), "sh"]).arg(binary());
    command.current_dir(folder).stdin(Stdio::null());
    Some(command)
}

#[test]
fn the_first_signal_ends_a_recording_on_a_full_disk_and_its_file_is_readable() {
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("full-record").unwrap();
    write_song(&scratch.join("song.wav"), 600);
    let record = [
        ("TERM", "'tone://?hz=440' disk/take.wav"),
        ("INT", "'tone://?hz=440' disk/take.wav --rotate 10s --sidecar --json"),
        ("HUP", "demo:// disk/take.flac --bits 24"),
        // The reader waits for the disk.
        ("TERM", "../song.wav disk/take.wav --no-pace"),
    ];
    let run = |(number, (signal, arguments)): (usize, &(&str, &str))| {
        let folder = scratch.join(number.to_string());
        fs::create_dir(&folder).unwrap();
        // A second is enough for the disk to be full.
        let script = format!(
            "{{ \"$1\" record {arguments} & record=$!; sleep 1; kill -s {signal} $record; \
             wait $record; code=$?; cp disk/* .; exit $code; }}"
        );
        let mut command = on_small_disk(&folder, &script)?;
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Some((folder, child))
    };
    let children: Option<Vec<_>> = record.iter().enumerate().map(run).collect();
    let Some(children) = children else { return };
    for ((folder, mut child), (signal, arguments)) in children.into_iter().zip(record) {
        let begin = Instant::now();
        end_of(&mut child, arguments);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(74), "{signal} {arguments}: {said}");
        assert!(begin.elapsed() < Duration::from_secs(8), "{said}");
        assert!(said.contains("No space left on device") && said.contains(".part"), "{said}");
        assert!(!said.contains("retention") && !said.contains("server"), "{said}");
        let mut files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let part = files.find(|path| text(path).ends_with(".part")).expect("a file");
        let decoded = Command::new(&ffmpeg)
            .args(["-v", "error", "-i"])
            .arg(&part)
            .args(["-f", "s16le", "-"])
            .output()
            .unwrap();
        assert!(decoded.stdout.len() > 20_000, "{arguments}: {}", decoded.stdout.len());
    }
}

#[test]
fn a_read_only_disk_is_reported_before_anything_is_recorded() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("read-only-record").unwrap();
    let script = "mount -o remount,ro disk && \"$1\" record 'tone://?hz=440' disk/take.wav";
    let Some(mut command) = on_small_disk(scratch.path(), script) else { return };
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(73), "{said}");
    assert!(said.contains("Read-only file system") && !said.contains("server"), "{said}");
}

#[test]
fn long_commands_go_on_when_standard_output_takes_nothing() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("broken-status").unwrap();
    let relay = "relay udp://127.0.0.1:0 --from pcmu --to pcma --dest udp://127.0.0.1:9 --json";
    let play = "play --json --output null tcp://127.0.0.1:1";
    let mut running = Vec::new();
    for is_full in [true, false] {
        for arguments in [relay, play] {
            let arguments: Vec<&str> = arguments.split(' ').collect();
            let mut command = aulos(scratch.path(), &arguments);
            running.push((is_full, command.stdout(broken_output(is_full)).spawn().unwrap()));
        }
    }
    // A line a second: each has failed to print one.
    std::thread::sleep(Duration::from_millis(1_500));
    for (is_full, mut child) in running {
        assert!(child.try_wait().unwrap().is_none(), "it goes on");
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let status = end_of(&mut child, "the signal");
        assert_eq!(status.code(), Some(if is_full { 74 } else { 0 }));
    }
}

#[test]
fn files_are_written_when_standard_output_takes_nothing() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("broken-output").unwrap();
    for is_full in [true, false] {
        let folder = scratch.join(if is_full { "full" } else { "closed" });
        fs::create_dir(&folder).unwrap();
        write_song(&folder.join("song.wav"), 5);
        let song = folder.join("song.wav");
        let song = text(&song);
        // A command, and the end of the names of the files that are there afterwards.
        for (arguments, ending, count) in [
            (format!("record file://{song} take-%S.wav --rotate 1s --no-pace --json"), ".wav", 6),
            ("scan song.wav --report page.html".to_owned(), "page.html", 1),
            ("scan song.wav --resume journal".to_owned(), "journal", 1),
            ("normalize song.wav new.flac".to_owned(), "new.flac", 1),
        ] {
            let words: Vec<&str> = arguments.split(' ').collect();
            let mut command = aulos(&folder, &words);
            let mut child = command.stdout(broken_output(is_full)).spawn().unwrap();
            let status = end_of(&mut child, words[0]);
            assert_eq!(status.code(), Some(if is_full { 74 } else { 0 }), "{arguments}");
            let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
            let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
            let found = names.iter().filter(|name| name.ends_with(ending)).count();
            assert_eq!(found, count, "{arguments}: {names:?}");
        }
    }
}

#[test]
fn a_file_that_an_option_did_not_write_is_kept() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("kept").unwrap();
    let (first, second) = (scratch.join("1.wav"), scratch.join("2.wav"));
    write_song(&first, 1);
    write_song(&second, 1);
    let song = fs::read(&first).unwrap();
    let code = |arguments: &[&str]| {
        let output = aulos(scratch.path(), arguments).stderr(Stdio::piped()).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for arguments in [
        // The name of the report was forgotten.
        &["scan", "--report", "1.wav", "2.wav"][..],
        &["scan", "--resume", "1.wav", "2.wav"],
        &["normalize", "2.wav", "1.wav"],
        &["play", "--output", "file:1.wav", "tcp://127.0.0.1:1"],
        &["record", "--for", "1s", "demo://", "1.wav"],
    ] {
        let (exit, said) = code(arguments);
        assert_eq!(exit, 73, "{arguments:?}: {said}");
        assert!(said.contains("1.wav") && said.contains("exists"), "{arguments:?}: {said}");
        assert_eq!(fs::read(&first).unwrap(), song, "{arguments:?}");
    }
    // Their own files are written again, and others with --force.
    for arguments in [["--report", "page"], ["--resume", "journal"]] {
        for _ in 0..2 {
            assert_eq!(code(&[&["scan", "2.wav"][..], &arguments].concat()).0, 0, "{arguments:?}");
        }
        let other = scratch.join(arguments[1]);
        fs::write(&other, "a letter").unwrap();
        assert_eq!(code(&[&["scan", "2.wav", "--force"][..], &arguments].concat()).0, 0);
        assert!(!fs::read(&other).unwrap().starts_with(b"a letter"));
        assert_eq!(code(&[&["scan", "2.wav"][..], &arguments].concat()).0, 0, "it is its own now");
    }
    assert_eq!(code(&["normalize", "2.wav", "1.wav", "--force"]).0, 0);
    assert_ne!(fs::read(&first).unwrap(), song);
    drop(File::create(scratch.join("empty.wav")).unwrap());
    assert_eq!(code(&["normalize", "2.wav", "empty.wav"]).0, 0);
}
