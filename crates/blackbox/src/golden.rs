//! Texts that users read, compared with files in the repository.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of tests fails as a test does; clippy excepts only test functions"
)]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;

/// Compares `found` with `tests/golden/NAME` of the crate whose manifest is in `crate_dir`
/// (`env!("CARGO_MANIFEST_DIR")`). With `AULOS_BLESS=1` it writes the file instead; `git diff` then
/// shows what changes for users.
///
/// # Panics
/// If the two differ, or the file cannot be read.
pub fn compare(crate_dir: &str, name: &str, found: &str) {
    let path = Path::new(crate_dir).join("tests/golden").join(name);
    if env::var_os("AULOS_BLESS").is_some() {
        fs::write(&path, found).unwrap();
    }
    let expected = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; AULOS_BLESS=1 writes it", path.display()));
    assert!(expected == found, "{name} differs; AULOS_BLESS=1 writes it anew. Now:\n{found}");
}

/// An empty folder for one test.
///
/// # Panics
/// If it cannot be made.
#[must_use]
pub fn scratch(name: &str) -> PathBuf {
    let dir = env::temp_dir().join(format!("aulos-{}-{name}", process::id()));
    drop(fs::remove_dir_all(&dir));
    fs::create_dir_all(&dir).unwrap();
    dir
}
