//! Who is told when a station is in trouble: by calls, across a reload, and with a station that
//! plays.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aulos_config::ResolvedConfig;
use aulos_control::backend::{InputChange, SwitchCause};

use crate::common::{
    Controller, Playing, Server, TWO_STATIONS, eventually, resolve, scratch, script,
};
use serde_json::{Value, json};

/// A program that keeps what it is told in `log` beside it.
fn recorder(folder: &Path) -> String {
    let path = folder.join("alarm");
    script(&path, "cat >> log\n");
    path.display().to_string()
}

fn told(folder: &Path) -> Vec<Value> {
    let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn events(folder: &Path) -> Vec<String> {
    told(folder).iter().map(|one| one["event"].as_str().unwrap().to_owned()).collect()
}

fn shown(caller: &mut Controller) -> Value {
    caller.call("Aulos.GetStatus", json!({}))["result"]["hooks"].clone()
}

fn next(server: &Server, text: &str) -> ResolvedConfig {
    ResolvedConfig { state_dir: server.state_dir.clone(), ..resolve(text) }
}

#[test]
fn a_hook_test_reports_its_result() {
    let folder = scratch();
    let hook =
        format!("{TWO_STATIONS}\n[[hook]]\nname = \"mail\"\nrun = \"{}\"", recorder(&folder));
    let server = Server::of(resolve(&hook));
    let mut caller = server.controller();
    let answer = caller.call("Aulos.TestHook", json!({ "hook": "mail" }));
    let id = answer["result"]["id"].clone();
    assert_eq!(answer["result"], json!({ "hook": "mail", "id": id }));
    eventually(|| shown(&mut caller)[0]["delivered"] == 1);
    let told = told(&folder);
    assert_eq!((&told[0]["event"], &told[0]["id"]), (&json!("test"), &id));
    let status = shown(&mut caller);
    assert_eq!(status[0]["last_event"]["event"], "test");
    assert_eq!(status[0]["last_error"], Value::Null);
    for (wrong, code) in [(json!("nobody"), -32_603), (json!(7), -32_603), (json!([]), -32_602)] {
        let answer = caller.call("Aulos.TestHook", json!({ "hook": wrong }));
        assert_eq!(answer["error"]["code"], code, "{answer}");
    }
}

#[test]
fn a_reload_adds_changes_and_removes_hooks_and_touches_no_station() {
    let folder = scratch();
    let program = recorder(&folder);
    let server = Server::of(resolve(TWO_STATIONS));
    let mut caller = server.controller();
    let reload = |caller: &mut Controller, hooks: &str| {
        *server.next.lock().unwrap() = Ok(next(&server, &format!("{TWO_STATIONS}\n{hooks}")));
        let done = caller.call("Aulos.Reload", json!({}))["result"].clone();
        assert_eq!(done["changed"], json!([]), "{done}");
        done["settings"].clone()
    };
    let fall = || {
        let switched = InputChange { from: Some(0), to: Some(1), cause: SwitchCause::Late };
        server.backend.switches.lock().unwrap().push((0, switched));
    };
    let back = || {
        let switched = InputChange { from: Some(1), to: Some(0), cause: SwitchCause::Better };
        server.backend.switches.lock().unwrap().push((0, switched));
    };
    assert_eq!(shown(&mut caller), json!([]));
    let hook = format!("[[hook]]\nrun = \"{program}\"\non = [\"fallback\"]");
    assert_eq!(reload(&mut caller, &hook), json!(["hook"]));
    fall();
    eventually(|| shown(&mut caller)[0]["delivered"] == 1);
    let [first] = &told(&folder)[..] else { panic!("{:?}", told(&folder)) };
    assert_eq!((&first["station"], &first["from"]), (&json!("default"), &json!("pipe")));
    assert_eq!((&first["to"], &first["cause"]), (&json!("demo"), &json!("late")));
    // Another one under the same name; what was lost before is known still.
    let other = format!("[[hook]]\nrun = \"{program}\"\non = [\"recovered\"]");
    assert_eq!(reload(&mut caller, &other), json!(["hook"]));
    assert_eq!(reload(&mut caller, &other), json!([]));
    back();
    fall();
    eventually(|| shown(&mut caller)[0]["delivered"] == 2);
    assert_eq!(events(&folder), ["fallback", "recovered"]);
    assert_eq!(reload(&mut caller, ""), json!(["hook"]));
    assert_eq!(shown(&mut caller), json!([]));
    assert!(server.backend.replaced.lock().unwrap().is_empty());
    assert!(server.backend.removed.lock().unwrap().is_empty());
}

#[test]
fn failure_and_return_of_a_source_are_notified() {
    let folder = scratch();
    let fifo = folder.join("studio.fifo");
    let server = Playing::start(resolve(&format!(
        "[listen]\nstream = 0\ncontrol = 0\nhttp = 0\n\
         [[station]]\nname = \"hall\"\nswitch = {{ failback_delay_s = 0 }}\n\
         sources = [\"pipe://{}?name=studio\", \"tone://?dbfs=-20\"]\n\
         [[hook]]\nrun = \"{}\"\non = [\"fallback\", \"recovered\"]\nstations = [\"hall\"]",
        fifo.display(),
        recorder(&folder)
    )));
    let mut caller = server.controller();
    let active = |caller: &mut Controller| {
        let status = caller.call("Aulos.GetStatus", json!({}));
        status["result"]["stations"][0]["active"].clone()
    };
    eventually(|| active(&mut caller) == "tone");
    let sounds = Arc::new(AtomicBool::new(true));
    let ends = Arc::new(AtomicBool::new(false));
    let (sound, end) = (Arc::clone(&sounds), Arc::clone(&ends));
    // It stays there, as a studio does whose programme has stopped.
    let studio = std::thread::spawn(move || {
        let mut fifo = OpenOptions::new().write(true).open(fifo).unwrap();
        let block: Vec<u8> = (0..19_200u32).map(|n| (n * 37 % 64) as u8).collect();
        while !end.load(Ordering::Relaxed) {
            if sound.load(Ordering::Relaxed) {
                fifo.write_all(&block).unwrap();
            } else {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    });
    eventually(|| active(&mut caller) == "studio");
    sounds.store(false, Ordering::Relaxed);
    eventually(|| events(&folder).contains(&"fallback".to_owned()));
    sounds.store(true, Ordering::Relaxed);
    eventually(|| events(&folder).contains(&"recovered".to_owned()));
    ends.store(true, Ordering::Relaxed);
    studio.join().unwrap();
    let told = told(&folder);
    let first = |event: &str| told.iter().find(|one| one["event"] == event).unwrap();
    let (lost, back) = (first("fallback"), first("recovered"));
    assert_eq!((&lost["from"], &lost["to"]), (&json!("studio"), &json!("tone")));
    assert_eq!((&back["from"], &back["to"]), (&json!("tone"), &json!("studio")));
    assert_eq!((&lost["cause"], &back["complete"]), (&json!("late"), &json!(true)));
    assert!(back["after_s"].as_f64().unwrap() >= 0.0, "{back}");
}

#[test]
fn output_that_is_too_quiet_or_too_loud_is_notified_with_figures() {
    let folder = scratch();
    let server = Playing::start(resolve(&format!(
        "[listen]\nstream = 0\ncontrol = 0\nhttp = 0\n\
         [[station]]\nname = \"quiet\"\nsources = [\"tone://?dbfs=-40\"]\n\
         silence = {{ below_dbfs = -20, for_s = 0.5 }}\n\
         [[station]]\nname = \"loud\"\nsources = [{{ uri = \"tone://?dbfs=-1\", gain_db = 6 }}]\n\
         [[hook]]\nrun = \"{}\"",
        recorder(&folder)
    )));
    let mut caller = server.controller();
    eventually(|| shown(&mut caller)[0]["delivered"] == 2);
    let told = told(&folder);
    let of = |station: &str| told.iter().find(|one| one["station"] == station).unwrap();
    let (quiet, loud) = (of("quiet"), of("loud"));
    assert_eq!((&quiet["event"], &quiet["source"]), (&json!("silence"), &json!("tone")));
    assert!(quiet["silent_s"].as_f64().unwrap() >= 0.5, "{quiet}");
    assert_eq!((&loud["event"], &loud["ceiling_dbtp"]), (&json!("over-ceiling"), &json!(0.0)));
    // A sine of -1 dBFS, by 6 dB louder.
    assert!((loud["true_peak_dbtp"].as_f64().unwrap() - 5.0).abs() <= 0.2, "{loud}");
}
