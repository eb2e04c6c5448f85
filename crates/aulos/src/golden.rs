//! Texts that users read, compared with checked-in files.

/// Compares `found` with `tests/golden/NAME`; `AULOS_BLESS=1 cargo test -p aulos` writes the files
/// anew, and `git diff` then shows what users will read differently.
///
/// # Panics
/// When they differ, or the file cannot be read.
pub(crate) fn compare(name: &str, found: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("AULOS_BLESS").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let wanted = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; AULOS_BLESS=1 writes it", path.display()));
    assert!(wanted == found, "{name} differs; AULOS_BLESS=1 writes it anew. Now:\n{found}");
}

/// An empty folder for one test.
///
/// # Panics
/// When it cannot be made.
pub(crate) fn scratch(name: &str) -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("aulos-{}-{name}", std::process::id()));
    drop(std::fs::remove_dir_all(&dir));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}
