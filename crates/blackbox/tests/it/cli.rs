//! The command line interface for scripts: exit codes, and remedies in its messages.

use std::io::Read as _;
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use aulos_blackbox::http;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::{AulosServer, binary};

use crate::{text, wait_for};

/// Runs it to its end, which must come by itself.
fn run(command: &mut Command) -> Output {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(10) {
            child.kill().unwrap();
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("it runs on: {said}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

#[test]
fn a_port_in_use_is_named_with_the_remedy() {
    let scratch = ScratchDir::new("port").unwrap();
    for key in ["stream", "control", "http"] {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let mut command = Command::new(binary());
        command.arg("serve").arg("--state-dir").arg(scratch.join("state"));
        command.env("XDG_RUNTIME_DIR", scratch.path());
        for other in ["stream", "control", "http"] {
            let address = if other == key { &address } else { "127.0.0.1:0" };
            command.args(["--set", &format!("listen.{other}={address}")]);
        }
        let output = run(&mut command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(69), "{said}");
        assert!(said.contains(&address), "which port: {said}");
        assert!(said.contains(&format!("--set listen.{key}=")), "the remedy: {said}");
    }
}

#[test]
fn check_reports_every_problem_with_its_position() {
    let scratch = ScratchDir::new("check").unwrap();
    let file = scratch.join("bad.toml");
    std::fs::write(
        &file,
        "[listen]\nstream = \"nowhere\"\n\n[[station]]\nname = \"a\"\ncodek = \"flac\"\n\
         spec = \"48000:17:2\"\nsources = [\"demo://\"]\n",
    )
    .unwrap();
    let output = run(Command::new(binary()).arg("check").arg("--config").arg(&file));
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert_eq!(output.status.code(), Some(78), "{said}");
    for place in ["2:", "6:", "7:"] {
        let place = format!("{}:{place}", text(&file));
        let column = said.split(&place).nth(1).and_then(|rest| rest.chars().next());
        assert!(column.is_some_and(|c| c.is_ascii_digit()), "no {place}COLUMN in {said}");
    }
    assert!(said.contains("codec"), "did you mean codec? {said}");
}

#[test]
fn check_is_silent_about_a_good_file() {
    let scratch = ScratchDir::new("good").unwrap();
    let file = scratch.join("good.toml");
    std::fs::write(&file, "[[station]]\nname = \"a\"\nsources = [\"demo://\"]\n").unwrap();
    let output = run(Command::new(binary()).arg("check").arg("--config").arg(&file));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn serving_an_invalid_file_fails_as_check_does() {
    let scratch = ScratchDir::new("bad").unwrap();
    let file = scratch.join("bad.toml");
    std::fs::write(&file, "[[station]]\nname = \"a\"\n").unwrap();
    let output = run(Command::new(binary()).arg("serve").arg("--config").arg(&file));
    assert_eq!(output.status.code(), Some(78), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_source_that_cannot_be_opened_leaves_the_station_running() {
    let scratch = ScratchDir::new("missing").unwrap();
    let config =
        "[[station]]\nname = \"default\"\nsources = [\"file:///no/such/file.flac\", \"demo://\"]\n";
    let server = AulosServer::start(&scratch, config).unwrap();
    wait_for("the status says why", Duration::from_secs(5), || {
        let (_, body) = http::get(server.http, "/api/v1/status").unwrap();
        let body = String::from_utf8_lossy(&body).to_lowercase();
        body.contains("no such file") || body.contains("not found")
    });
    server.stop().unwrap();
}

#[test]
fn two_servers_live_side_by_side() {
    let (one, two) = (ScratchDir::new("one").unwrap(), ScratchDir::new("two").unwrap());
    let config = "[[station]]\nname = \"default\"\nsources = [\"demo://\"]\n";
    let (a, b) =
        (AulosServer::start(&one, config).unwrap(), AulosServer::start(&two, config).unwrap());
    assert_ne!(a.stream, b.stream);
    a.stop().unwrap();
    b.stop().unwrap();
}
