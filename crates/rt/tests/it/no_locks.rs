//! The crate contains no lock, held or not. Neither the system call counter nor a sanitizer detects
//! a lock without contention, so this test searches the source: only `sys`, which makes the system
//! calls, may name anything that can block.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test")]

use std::path::Path;

/// Names of what may wait for another thread. `OnceLock` and similar types too: the second caller
/// waits.
const WAITING: [&str; 14] = [
    "Mutex",
    "RwLock",
    "Condvar",
    "Barrier",
    "OnceLock",
    "LazyLock",
    "OnceCell",
    "call_once",
    "mpsc",
    "Semaphore",
    "spin_loop",
    "thread::park",
    "thread::sleep",
    "yield_now",
];

/// The code of a file without comments and without the tests at its end.
fn code(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let line = |line: &str| line.split("//").next().unwrap_or_default().to_owned() + "\n";
    code.lines().map(line).collect()
}

fn locks(text: &str) -> Vec<&'static str> {
    let code = code(text);
    WAITING.into_iter().filter(|word| code.contains(word)).collect()
}

/// Searches every source below `folder` except tests and `sys`; returns their number.
fn scan(folder: &Path, found: &mut Vec<String>) -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "sys" && name != "tests" {
                count += scan(&path, found);
            }
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = std::fs::read_to_string(&path).unwrap();
            found.extend(locks(&text).iter().map(|word| format!("{}: {word}", path.display())));
            count += 1;
        }
    }
    count
}

#[test]
fn no_source_but_sys_names_a_lock() {
    let mut found = Vec::new();
    let count = scan(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert!(count > 20, "only {count} files were found");
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_scan_detects_an_inserted_lock() {
    let source = "//! A Mutex was rejected.\nfn f() {} // no RwLock\n";
    assert!(locks(source).is_empty());
    assert_eq!(locks(&format!("{source}use std::sync::Mutex;\n")), ["Mutex"]);
    let tests = format!("{source}#[cfg(test)]\nmod tests {{ use std::sync::mpsc; }}\n");
    assert!(locks(&tests).is_empty());
}
