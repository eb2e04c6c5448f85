//! The integration of Home Assistant (`contrib/packaging/home-assistant/integration`) in the
//! package `homeassistant`, with its own test harness, against running servers and real players.
//!
//! The tests are in Python beside this file; their `conftest.py` starts what they need.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::peer::{Process, find_or_skip, skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::binary;

use crate::shared_turn;

/// Several times what a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(300);

fn passes(name: &str) {
    let Some(tools) = tools() else { return skip("home-assistant") };
    let Some(snapclient) = find_or_skip("snapclient") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("home-assistant").unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tests = here.join("tests/it/home_assistant");
    let integration = here.join("../../contrib/packaging/home-assistant/integration");
    let paths = [&integration, &tools.join("site")];
    let mut command = Command::new(tools.join("python"));
    command
        .args(["-m", "pytest", "--rootdir"])
        .arg(&tests)
        .arg("--basetemp")
        .arg(scratch.join("pytest"))
        .arg(tests.join(name))
        .current_dir(&tests)
        .env("PYTHONPATH", std::env::join_paths(paths).unwrap())
        .env("AULOS_BIN", binary())
        .env("AULOS_INTEGRATION", &integration)
        .env("AULOS_VERSION", env!("CARGO_PKG_VERSION"))
        .env("SNAPCLIENT", snapclient);
    let [out, err] = [scratch.join("pytest.out"), scratch.join("pytest.err")];
    let status = Process::start(&mut command, &out, &err).unwrap().wait(PATIENCE);
    let [out, err] = [out, err].map(|file| std::fs::read_to_string(file).unwrap());
    println!("{out}");
    // pytest ends with another status than 0 also where it finds no test.
    assert!(status.unwrap().success(), "{out}\n{err}");
}

/// Python and the packages that `scripts/test-setup` has installed.
fn tools() -> Option<PathBuf> {
    let tools = std::env::var_os("AULOS_TEST_HOME_ASSISTANT").map(PathBuf::from)?;
    ["python", "site/homeassistant"].iter().all(|it| tools.join(it).exists()).then_some(tools)
}

#[test]
fn the_integration_of_home_assistant_is_complete() {
    passes("test_files.py");
}

#[test]
fn home_assistant_finds_a_server_and_logs_in() {
    passes("test_flow.py");
}

#[test]
fn home_assistant_plays_announces_and_groups() {
    passes("test_players.py");
}

#[test]
fn home_assistant_survives_a_server_that_talks_nonsense() {
    passes("test_bad_input.py");
}
