//! The view of logs in a real browser: find, listen, export and hold.

use std::fs;
use std::time::Duration;

use aulos_blackbox::browser::Browser;
use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::{Value, json};

use crate::logger::{PATIENCE, seconds, verify};
use crate::page_operation::{click, says, until};
use crate::rpc::Rpc;
use crate::{shared_turn, wait_for};

/// Writes into the field of this number, as a user does.
fn write(browser: &mut Browser, selector: &str, at: usize, text: &str) {
    let script = format!(
        "(() => {{ const field = document.querySelectorAll({})[{at}]; field.value = {}; \
         field.dispatchEvent(new Event('input', {{ bubbles: true }})); \
         field.dispatchEvent(new Event('change', {{ bubbles: true }})); }})()",
        json!(selector),
        json!(text)
    );
    browser.run(&script).unwrap();
}

#[test]
fn a_range_of_a_log_is_found_heard_exported_and_held() {
    let Some(program) = find_or_skip("chromium") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("page-logs").unwrap();
    let dir = scratch.join("log");
    let config = format!(
        "[[station]]\nname = \"hall\"\ncodec = \"pcm\"\nsources = [\"tone://?hz=997&dbfs=-6\"]\n\
         logger = {{ dir = \"{}\", format = \"flac\" }}\n",
        dir.display()
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let mut rpc = Rpc::connect(server.control);
    wait_for("three seconds", PATIENCE, || seconds(&mut rpc) >= 3.0);
    server.stop().unwrap();
    // The time between the two runs is a gap.
    std::thread::sleep(Duration::from_millis(1_500));
    let server = AulosServer::start(&scratch, &config).unwrap();
    let mut rpc = Rpc::connect(server.control);
    wait_for("a second", PATIENCE, || seconds(&mut rpc) >= 1.0);
    server.stop().unwrap();
    let server = AulosServer::start(&scratch, &config).unwrap();
    wait_for("the index", PATIENCE, || verify(&dir)["lines"] == 2);
    let index = fs::read_to_string(dir.join("hall-log.logger.jsonl")).unwrap();
    let line: Value = serde_json::from_str(index.lines().next().unwrap()).unwrap();
    let start_s = line["t0_ns"].as_i64().unwrap() / 1_000_000_000;

    let mut browser = Browser::open(&program, &scratch, "about:blank").unwrap();
    browser.watch(&format!("http://{}/#/logs", server.http)).unwrap();
    says(&mut browser, "No range is held");
    says(&mut browser, "server down");
    // A range beyond both runs, in UTC.
    let at = |seconds: i64| format!("new Date({seconds} * 1000).toISOString()");
    let from = browser.run(&at(start_s - 5)).unwrap();
    let to = browser.run(&at(start_s + 3)).unwrap();
    write(&mut browser, "form input", 0, from.as_str().unwrap());
    write(&mut browser, "form input", 1, to.as_str().unwrap());
    click(&mut browser, "Find");
    says(&mut browser, "no complete file");
    click(&mut browser, "Listen");
    until(&mut browser, "document.querySelector('audio.range')?.currentTime > 0.2");
    let size = "(async () => (await (await fetch(document.querySelector('a[download]').href)).blob()).size)()";
    assert!(browser.run(size).unwrap().as_u64() > Some(10_000));
    write(&mut browser, "form input", 2, "complaint 7");
    click(&mut browser, "Hold");
    says(&mut browser, "until it is released");
    if let Some(path) = std::env::var_os("AULOS_LOGS_SCREENSHOT") {
        fs::write(path, browser.screenshot().unwrap()).unwrap();
    }
    let holds = fs::read_to_string(dir.join("hall-log.holds.jsonl")).unwrap();
    assert!(holds.contains("complaint 7"), "{holds}");
    click(&mut browser, "Release");
    says(&mut browser, "No range is held");
    // A wrong time is shown with its reason.
    write(&mut browser, "form input", 0, "yesterday");
    click(&mut browser, "Find");
    says(&mut browser, "not a time");
    // The log is not among the recordings.
    browser.run("location.hash = '#/recordings'").unwrap();
    says(&mut browser, "No station has a recorder");
    assert_eq!(browser.faults().unwrap(), Vec::<String>::new());
    drop(browser);
    server.stop().unwrap();
}
