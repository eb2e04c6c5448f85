//! What an operator types and reads, besides the configuration.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use rustix::process::Signal;

use crate::command_line::{Running, run};
use crate::common::{eventually, scratch, wave};

fn config(folder: &Path, sources: &str) -> String {
    let path = folder.join("aulos.toml");
    let text = format!("[[station]]\nname = \"kitchen\"\nsources = [{sources}]\n");
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn check_takes_a_path_and_warns_about_what_is_missing() {
    let folder = scratch();
    let file = config(&folder, "\"librespot:///no-such-program\", \"demo://\"");
    let (code, out, error) = run(&["check", &file]);
    assert_eq!(code, 0, "{out}{error}");
    assert!(
        out.contains("aulos.toml:3:12: warning: there is no program `no-such-program`"),
        "{out}"
    );
    assert!(error.contains("warnings=1"), "{error}");
    let (code, out, _) = run(&["check", &file, "--offline"]);
    assert_eq!((code, out.as_str()), (0, ""));
    assert_eq!(run(&["check", &file, "--config", &file]).0, 2);
}

#[test]
fn the_command_for_the_network_keeps_the_configuration() {
    let folder = scratch();
    let file = config(&folder, "\"demo://\"");
    let server = Running::start(&["--config", &file, "--state-dir", folder.to_str().unwrap()]);
    let command = server.lines.last().unwrap().trim();
    let start =
        format!("aulos serve --config {file} --state-dir {} --set listen.", folder.display());
    assert!(command.starts_with(&start), "{command}");
    assert!(command.ends_with(" --set listen.address=0.0.0.0"), "{command}");
    server.end(Signal::TERM);
}

#[test]
fn a_server_on_every_network_prints_the_address_of_this_machine() {
    let server = Running::start(&["--set", "listen.stream=0.0.0.0:0"]);
    let stream = server.value("stream");
    assert!(!stream.starts_with("0.0.0.0"), "{stream}");
    // Without a network, loopback is the only address.
    let address = aulos_io::udp::source_address_for("192.0.2.1:9".parse().unwrap());
    let address = address.map_or_else(|_| "127.0.0.1".to_owned(), |address| address.to_string());
    assert!(stream.starts_with(&format!("{address}:")), "{stream}");
    server.end(Signal::TERM);
}

#[test]
fn status_reload_and_announce_are_commands() {
    let folder = scratch();
    let file = config(&folder, "\"file:///nowhere.flac\", \"demo://\"");
    let server = Running::start(&["--config", &file]);
    let control = server.value("control").to_owned();
    let call = |arguments: &[&str]| run(&[arguments, &["--server", &control]].concat());
    eventually(|| {
        let (_, out, _) = call(&["status"]);
        out.contains("kitchen: playing demo") && out.contains("file             failed: ")
    });
    let (code, out, _) = call(&["status", "--json"]);
    assert!(code == 0 && out.contains("\"uptime_s\""), "{out}");
    assert_eq!(call(&["reload"]).1, "nothing has changed\n");
    config(&folder, "\"demo://\"");
    assert_eq!(call(&["reload"]).1, "restarted        kitchen\n");
    fs::write(&file, "[clients]\ninitial_volume = 101\n").unwrap();
    let (code, out, error) = call(&["reload"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(error.contains("aulos.toml:2:18: `initial_volume` is 101"), "{error}");
    assert!(!error.contains("Internal error"), "{error}");
    let (code, _, error) = call(&["announce", "kitchen", "/srv/bells/door.wav"]);
    assert_eq!(code, 1);
    assert!(error.contains("[streams] roots = [\"/srv/bells\"]"), "{error}");
    let (_, _, error) = call(&["announce", "attic", "/srv/bells/door.wav"]);
    assert!(error.contains("there is no station `attic`; there is `kitchen`"), "{error}");
    let page = server.value("page").trim_start_matches("http://").trim_end_matches('/').to_owned();
    let (code, _, error) = run(&["status", "--server", &page]);
    assert_eq!(code, 69);
    assert!(error.contains("port of the page") && error.contains("1705"), "{error}");
    let (_, log) = server.end(Signal::TERM);
    assert!(log.contains("configuration read again: changed kitchen"), "{log}");
}

#[test]
fn announce_waits_until_it_has_been_heard() {
    let folder = scratch();
    fs::write(folder.join("bell.wav"), wave(&[1_000; 4_800])).unwrap();
    let file = config(&folder, "\"demo://\"");
    let roots = format!("\n[streams]\nroots = [\"{}\"]\n", folder.display());
    fs::write(&file, fs::read_to_string(&file).unwrap() + &roots).unwrap();
    let server = Running::start(&["--config", &file]);
    let control = server.value("control").to_owned();
    let call = |arguments: &[&str]| run(&[arguments, &["--server", &control]].concat());
    let bell = folder.join("bell.wav");
    let begun = std::time::Instant::now();
    let (code, out, error) = call(&["announce", "kitchen", bell.to_str().unwrap(), "--wait"]);
    assert_eq!(
        (code, &out[..]),
        (0, "announcement 1 on kitchen: 0 before it\nplayed\n"),
        "{error}"
    );
    assert!(begun.elapsed() >= std::time::Duration::from_millis(1_000), "the default buffer");
    let url = "http://127.0.0.1:9/token";
    let (code, out, _) = call(&["announce", "kitchen", url, "--wait", "--volume", "50"]);
    assert_eq!(code, 1);
    assert!(out.contains("failed: 127.0.0.1 may not be contacted"), "{out}");
    assert!(!out.contains("token"), "{out}");
    let (code, _, error) = call(&["announce", "--group", "attic", bell.to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(error.contains("`group`: there is no group `attic`"), "{error}");
    assert_eq!(call(&["announce", bell.to_str().unwrap()]).0, 2);
    let (_, log) = server.end(Signal::TERM);
    assert!(!log.contains("token"), "{log}");
}

#[test]
fn the_log_tells_with_a_time_what_fails_and_what_plays() {
    let folder = scratch();
    let file = config(&folder, "\"file:///nowhere.flac\", \"demo://\"");
    let server = Running::start(&["--config", &file]);
    let control = server.value("control").to_owned();
    eventually(|| run(&["status", "--server", &control]).1.contains("failed: "));
    // The log follows the status ten times a second.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let (_, log) = server.end(Signal::TERM);
    let line = log.lines().find(|line| line.contains("source failed: ")).expect(&log);
    assert!(line.contains("station=\"kitchen\" source=\"file\""), "{line}");
    assert!(line.contains(" WARN "), "{line}");
    // 2026-11-23T02:44:10.123Z
    let time = line.split(' ').next().unwrap();
    assert_eq!((time.len(), &time[10..11], &time[23..]), (24, "T", "Z"), "{line}");
}

#[test]
fn a_manual_page_keeps_its_examples_as_lines() {
    let (code, page, _) = run(&["man", "check"]);
    assert_eq!(code, 0);
    let examples = page.split(".SH EXAMPLES\n.nf\n").nth(1).expect(&page);
    let first = examples.lines().find(|line| line.contains("aulos check")).unwrap();
    assert_eq!(first, "\\&  aulos check aulos.toml");
    assert!(examples.contains("\n.fi\n"), "{examples}");
    assert!(!page.contains("EXTRA"), "{page}");
}

#[test]
fn a_path_is_a_source_of_meter_and_record() {
    let folder = scratch();
    let made = folder.join("tone.wav");
    let out = made.to_str().unwrap();
    let (code, _, error) = run(&["record", "tone://?dbfs=-20", out, "--for", "1s"]);
    assert_eq!(code, 0, "{error}");
    let (code, text, error) = run(&["meter", out, "--no-pace"]);
    assert_eq!(code, 0, "{error}");
    assert!(text.contains("-20.0"), "{text}");
    let (code, _, error) = run(&["meter", "no-such-file.wav"]);
    assert!(code == 2 && error.contains("no-such-file.wav"), "{error}");
}

#[test]
fn the_page_of_listeners_has_an_address_for_every_station() {
    let folder = scratch();
    let file = config(&folder, "\"demo://\"");
    let server = Running::start(&["--config", &file]);
    let page = server.value("page").trim_start_matches("http://").trim_end_matches('/').to_owned();
    let mut wire = TcpStream::connect(&page).unwrap();
    let request = format!("GET /listen/ HTTP/1.1\r\nHost: {page}\r\nConnection: close\r\n\r\n");
    wire.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    wire.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("href=\"/listen/kitchen.flac\""), "{answer}");
    server.end(Signal::TERM);
}

#[test]
fn a_conversion_numbers_the_lines_of_what_it_prints() {
    let folder = scratch();
    let theirs = folder.join("snapserver.conf");
    fs::write(&theirs, "[stream]\nsource = pipe:///x?name=a\nsource = jack:///?name=b\n").unwrap();
    let (code, toml, said) = run(&["convert", theirs.to_str().unwrap()]);
    assert_eq!(code, 78);
    let place = said.lines().find_map(|line| line.strip_prefix("aulos.toml:")).expect(&said);
    let line: usize = place.split(':').next().unwrap().parse().unwrap();
    assert!(toml.lines().nth(line - 1).unwrap().contains("jack:"), "{place}: {toml}");
}
