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
    compare_file(&Path::new(crate_dir).join("tests/golden").join(name), found);
}

/// The same for any file, such as a page of the documentation that is rendered from a table.
///
/// # Panics
/// When they differ, or the file cannot be read.
pub fn compare_file(path: &Path, found: &str) {
    if env::var_os("AULOS_BLESS").is_some() {
        fs::write(path, found).unwrap();
    }
    let name = path.display();
    let expected = fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("{name}: {error}; AULOS_BLESS=1 writes it"));
    assert!(expected == found, "{name} differs; AULOS_BLESS=1 writes it anew. Now:\n{found}");
}
