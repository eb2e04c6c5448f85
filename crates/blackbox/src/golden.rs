//! Comparison of user-visible texts with checked-in files.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of tests fails as a test does; clippy excepts only test functions"
)]

use std::env;
use std::fs;
use std::path::Path;

/// Compares `found` with `tests/golden/NAME`; `AULOS_BLESS=1 cargo test -p aulos` rewrites the
/// files, and `git diff` then shows the changes for users.
///
/// # Panics
/// When they differ, or the file cannot be read.
pub fn compare(crate_dir: &str, name: &str, found: &str) {
    let path = Path::new(crate_dir).join("tests/golden").join(name);
    if env::var_os("AULOS_BLESS").is_some() {
        fs::write(&path, found).unwrap();
    }
    let expected = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; AULOS_BLESS=1 writes it", path.display()));
    assert!(expected == found, "{name} differs; AULOS_BLESS=1 writes it anew. Now:\n{found}");
}
