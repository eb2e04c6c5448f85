//! The program as it is typed: what it prints, and how it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};

use crate::common::scratch;
use serde_json::Value;

pub(crate) fn aulos(arguments: &[&str]) -> Command {
    let home = scratch();
    let mut command = Command::new(env!("CARGO_BIN_EXE_aulos"));
    command.args(arguments).env("HOME", &home).env("XDG_RUNTIME_DIR", &home);
    command.env_remove("XDG_STATE_HOME").stdin(Stdio::null());
    command
}

pub(crate) fn run(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = aulos(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

const FREE: [&str; 6] = [
    "--set",
    "listen.stream=127.0.0.1:0",
    "--set",
    "listen.control=127.0.0.1:0",
    "--set",
    "listen.http=127.0.0.1:0",
];

/// A running server, and what it printed first.
pub(crate) struct Running {
    child: Child,
    pub(crate) lines: Vec<String>,
}

impl Running {
    pub(crate) fn start(more: &[&str]) -> Self {
        let arguments: Vec<&str> = [&["serve"][..], &FREE, more].concat();
        let mut child =
            aulos(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut lines = Vec::new();
        while !lines.iter().any(|line: &String| line.contains("--set listen.address")) {
            let mut line = String::new();
            assert!(out.read_line(&mut line).unwrap() > 0, "it ended: {lines:?}");
            lines.push(line.trim_end().to_owned());
        }
        Self { child, lines }
    }

    pub(crate) fn value(&self, key: &str) -> &str {
        let line = self.lines.iter().find_map(|line| line.trim().strip_prefix(key));
        line.unwrap_or_else(|| panic!("no {key} in {:?}", self.lines)).trim()
    }

    pub(crate) fn end(mut self, signal: rustix::process::Signal) -> (i32, String) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
        let code = self.child.wait().unwrap().code().expect("it ended by itself");
        let mut error = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        (code, error)
    }
}

#[test]
fn a_server_logs_its_addresses_and_ends_on_both_signals() {
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let server = Running::start(&[]);
        assert!(server.value("page").starts_with("http://127.0.0.1:"));
        assert!(server.value("station").starts_with("default: flac 48000:16:2 from pipe://"));
        assert!(
            server.lines.iter().any(|line| line.contains("ffmpeg -re -i")),
            "{:?}",
            server.lines
        );
        let (code, error) = server.end(signal);
        assert_eq!((code, error.as_str()), (0, ""));
    }
}

#[test]
fn a_running_server_is_called_with_rpc() {
    let server = Running::start(&[]);
    let control = server.value("control").to_owned();
    let (code, out, error) = run(&["rpc", "Server.GetStatus", "--server", &control]);
    assert_eq!((code, error.as_str()), (0, ""));
    let status: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(status["server"]["streams"][0]["id"], "default");
    let (code, out, error) =
        run(&["rpc", "Client.GetStatus", r#"{"id":"x"}"#, "--server", &control]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(error.contains("Client not found"), "{error}");
    assert_eq!(run(&["rpc", "Server.GetStatus", "{", "--server", &control]).0, 2);
    server.end(rustix::process::Signal::TERM);
    let (code, _, error) = run(&["rpc", "Server.GetStatus", "--server", &control]);
    assert_eq!(code, 69, "{error}");
    assert!(error.contains("is the server running?"), "{error}");
}

#[test]
fn a_port_in_use_is_named_and_another_is_offered() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for key in ["control", "http"] {
        let set = format!("listen.{key}={address}");
        let arguments: Vec<&str> = [&["serve"][..], &FREE, &["--set", &set]].concat();
        let (code, out, error) = run(&arguments);
        assert_eq!((code, out.as_str()), (69, ""), "{error}");
        assert!(error.contains(&format!("the {key} port {address} is in use")), "{error}");
        assert!(error.contains(&format!("--set listen.{key}=")), "{error}");
    }
}

#[test]
fn check_prints_every_problem_on_standard_output() {
    let file = format!("{}/../config/tests/golden/broken.toml", env!("CARGO_MANIFEST_DIR"));
    let (code, out, error) = run(&["check", "--config", &file]);
    assert_eq!((code, error.as_str()), (78, ""));
    assert!(out.contains("broken.toml:14:9: `flak` is not a codec"), "{out}");
    assert!(out.lines().filter(|line| line.contains("broken.toml:")).count() > 25, "{out}");
    let (code, out, error) = run(&["serve", "--config", &file]);
    assert_eq!((code, out.as_str()), (78, ""));
    assert!(error.contains("broken.toml:14:9"), "{error}");
    let (code, out, error) = run(&["check"]);
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(error.contains("no problem"), "{error}");
    assert_eq!(run(&["check", "--config", "/nowhere/a.toml"]).0, 66);
}

#[test]
fn check_fix_renames_old_keys_in_the_file_and_says_what_it_changed() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = scratch();
    let (file, link) = (dir.join("kitchen.toml"), dir.join("link.toml"));
    let text = "[[station]] # comeback\nname = \"a\"\nsources = [\"demo://\"]\n\
        switch = { hold_in_s = 7,  comeback = \"never\" }\n";
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let path = link.to_str().unwrap();
    let (code, out, _) = run(&["check", "--config", path]);
    assert!(code == 0 && out.contains("link.toml:4:12: warning: `hold_in_s`"), "{out}");
    let (code, out, _) = run(&["check", "--config", path, "--fix"]);
    let renamed = ["4:12: renamed `hold_in_s` to `failback_delay_s`", "4:28: renamed `comeback`"];
    assert!(code == 0 && renamed.iter().all(|line| out.contains(line)), "{code}: {out}");
    let new = text.replace("hold_in_s", "failback_delay_s").replace("comeback =", "failback =");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), new);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(link.is_symlink() && !dir.join("kitchen.toml.part").exists());
    let (code, out, _) = run(&["check", "--config", path, "--fix"]);
    assert_eq!((code, out.as_str()), (0, ""));
    assert_eq!(run(&["check", "--config", "-", "--fix"]).0, 2);
    assert_eq!(run(&["check", "--fix"]).0, 2);
}

#[test]
fn config_prints_the_reference_and_a_schema() {
    let (code, page, error) = run(&["config"]);
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(page.contains("`failback_delay_s`") && page.contains("### tone"), "{page}");
    assert_eq!(run(&["config", "--reference"]).1, page);
    let (code, schema, _) = run(&["config", "--schema"]);
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let chunk = &schema["properties"]["station"]["items"]["properties"]["chunk_ms"];
    assert_eq!((code, &chunk["default"], &chunk["maximum"]), (0, &20.into(), &60.0.into()));
    assert_eq!(run(&["config", "--schema", "--reference"]).0, 2);
}

#[test]
fn what_cannot_be_understood_ends_with_2() {
    for arguments in [&[][..], &["dance"], &["serve", "--colour"], &["check", "-v", "-q"]] {
        assert_eq!(run(arguments).0, 2, "{arguments:?}");
    }
    assert_eq!(run(&["man", "dance"]).0, 2);
    let (code, out, _) = run(&["--help"]);
    assert_eq!(code, 0);
    assert!(out.contains("Examples:"), "{out}");
    assert!(!out.contains('\u{1b}'));
    assert!(run(&["--color=always", "--help"]).1.contains('\u{1b}'));
}

#[test]
fn manual_and_completions_are_printed() {
    assert!(run(&["man"]).1.contains(".TH aulos 1"));
    assert!(run(&["man", "serve"]).1.contains("listen.address"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(&["completions", shell]).1.contains("aulos"), "{shell}");
    }
}

#[test]
fn a_state_directory_that_cannot_be_created_exits_with_73() {
    let arguments: Vec<&str> = [&["serve"][..], &FREE, &["--state-dir", "/dev/null/x"]].concat();
    let (code, _, error) = run(&arguments);
    assert_eq!(code, 73, "{error}");
    assert!(error.contains("--state-dir"), "{error}");
}

#[test]
fn a_converted_configuration_is_valid_and_lists_what_was_lost() {
    let dir = scratch();
    let (theirs, ours) = (dir.join("snapserver.conf"), dir.join("aulos.toml"));
    std::fs::write(
        &theirs,
        "[stream]\nsource = pipe:///tmp/x?name=one\nsource = jack:///?name=two\n[ssl]\n\
         certificate = /etc/x\n",
    )
    .unwrap();
    let (exit, toml, said) = run(&["convert", theirs.to_str().unwrap()]);
    // A source that is not built is in there as it was, so that the check names its line.
    assert_eq!(exit, 78, "{said}");
    assert!(said.contains("ssl.certificate") && said.contains("jack"), "{said}");
    assert!(toml.contains("# ssl.certificate") && toml.contains("name      = \"one\""), "{toml}");
    std::fs::write(&ours, &toml).unwrap();
    let (exit, out, _) = run(&["check", "--config", ours.to_str().unwrap()]);
    assert!(exit == 78 && out.contains("jack") && out.contains("not built yet"), "{out}");
    std::fs::write(&theirs, "[stream]\nsource = pipe:///tmp/x?name=one\n").unwrap();
    let (exit, toml, _) = run(&["convert", theirs.to_str().unwrap()]);
    std::fs::write(&ours, &toml).unwrap();
    assert_eq!((exit, run(&["check", "--config", ours.to_str().unwrap()]).0), (0, 0), "{toml}");
    assert_eq!(run(&["convert", "/no/such/file"]).0, 66);
}

#[test]
fn what_snapserver_does_not_know_is_a_mistake_here_too() {
    let (exit, _, said) = run(&["snapserver", "--config=", "--nonsense"]);
    assert!(exit == 2 && said.contains("--SECTION.KEY=VALUE"), "{exit}: {said}");
}

/// A program that writes a configuration and starts the server may ask for a reload at once.
#[test]
fn a_hangup_while_the_configuration_is_read_does_not_end_the_server() {
    let folder = scratch();
    let fifo = folder.join("aulos.toml");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let state = format!("state_dir={}", folder.join("state").display());
    let arguments = [&["serve", "--config", fifo.to_str().unwrap(), "--set", &state], &FREE[..]];
    let mut child =
        aulos(&arguments.concat()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Opening it for writing waits until the server reads it.
    let mut writer = std::fs::File::options().write(true).open(&fifo).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    let written = writer.write_all(b"[[station]]\nname = \"default\"\nsources = [\"tone://\"]\n");
    drop(writer);
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(out.any(|line| line.contains("default: flac")), "{written:?}");
    // The file is no regular one, so the reload that was asked for is refused with a message.
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(log.any(|line| line.contains("cannot be read again")));
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_word_that_is_almost_a_command_gets_the_nearest_one() {
    for (word, expected) in
        [("serv", "'serve'"), ("sevre", "'serve'"), ("snapclien", "'snapclient'")]
    {
        let (code, _, error) = run(&[word]);
        assert_eq!(code, 2);
        let tip = error.lines().find(|line| line.contains("tip:")).unwrap_or_default();
        assert!(tip.contains("similar") && tip.ends_with(expected), "{error}");
    }
    let (code, _, error) = run(&["check", "/"]);
    assert_eq!(code, 66);
    assert!(
        error.contains("it is a folder\n    hint: name the file, as in /aulos.toml"),
        "{error}"
    );
}

/// Sound goes on without a reader of the status, and the exit code says at the end that lines were
/// lost.
#[test]
fn a_player_whose_status_cannot_be_written_ends_with_an_error() {
    use rustix::process::{Pid, Signal, kill_process};
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_aulos"))
        .args(["play", "--json", "--quiet", "--output", "null", "tcp://127.0.0.1:1"])
        .stdout(full)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // One line a second.
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(74));
}
