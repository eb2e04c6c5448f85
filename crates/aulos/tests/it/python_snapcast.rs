//! python-snapcast, which Home Assistant and Music Assistant use, against our control port.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::Server;

#[test]
fn home_assistants_library_is_at_home_here() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let venv = std::env::var_os("AULOS_TEST_VENV")
        .map_or_else(|| root.join("../../target/test-venv"), PathBuf::from);
    let python = venv.join("bin/python");
    assert!(
        python.exists(),
        "{} is missing: set AULOS_TEST_VENV to a venv with `pip install snapcast==2.3.8`, or run \
         the set-up of the tests, which makes target/test-venv",
        python.display()
    );
    let server = Server::start();
    server.hello(1, "a");
    server.hello(2, "b");
    let output = Command::new(python)
        .arg(root.join("tests/python_snapcast.py"))
        .arg(server.control.port().to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().ends_with("ok"), "{said}\n{error}");
}
