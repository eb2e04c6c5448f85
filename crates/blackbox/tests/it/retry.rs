//! Repeats a test that something outside of the server explains: a foreign client that corrected
//! its own clock, or a machine that stood still.
//!
//! Either is no evidence about the server, whose faults occur each time. Only what is explained is
//! repeated, by one loop, and each repetition prints a line `retried: ...`, which `scripts/test`
//! counts in its last line. What is not explained fails here; `scripts/test` runs it once more,
//! alone, if the processors were busy, and counts that too.

use std::cell::Cell;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use aulos_blackbox::capture_check::CaptureFault;
use aulos_blackbox::peer::{RESYNC, lines_with};

/// Attempts of a test.
const ATTEMPTS: usize = 3;

/// A failed attempt: what the client logged about its own clock.
#[derive(Debug)]
pub(crate) struct ClientCorrection(String);

impl ClientCorrection {
    /// The correction that explains a failure. A snapclient logs that it moved by more than a chunk
    /// (`RESYNC`) or that its output was delayed; single frames it omits or repeats without a word.
    ///
    /// # Panics
    /// When the log does not explain the failure: then it is the server's.
    pub(crate) fn explain(failure: &str, log: &str, faults: &[CaptureFault]) -> Self {
        let moved = lines_with(log, &RESYNC);
        let delayed = lines_with(log, &["->full() &&"]);
        let single_frames = !faults.is_empty() && faults.iter().all(|fault| fault.is_soft_sync());
        let explained = single_frames || !moved.is_empty() || !delayed.is_empty();
        assert!(explained, "{failure}, which the client's log does not explain:\n{log}");
        Self(format!("{failure}; the client: {}", [moved, delayed].concat().join("; ")))
    }

    /// A client that the machine did not run for so long that its output stood still.
    pub(crate) const fn host_stall(what: String) -> Self {
        Self(what)
    }
}

/// Runs `attempt` until it succeeds; `name` is the test's.
///
/// # Panics
/// When each attempt failed.
pub(crate) fn retry<T>(name: &str, attempt: impl FnMut() -> Result<T, ClientCorrection>) -> T {
    let mut failures = Vec::new();
    for result in std::iter::repeat_with(attempt).take(ATTEMPTS) {
        match result {
            Ok(value) => return value,
            Err(ClientCorrection(reason)) => {
                println!("retried: {name}: {reason}");
                failures.push(reason);
            }
        }
    }
    panic!("{name}: each attempt was disturbed: {failures:#?}");
}

/// Runs a test in real time again if it failed while the machine stood still; `name` is the test's.
///
/// # Panics
/// As the test, when the machine did not stand still; and when the last attempt failed too.
pub(crate) fn retry_after_stall(name: &str, test: fn()) {
    retry(name, || {
        begin();
        let Err(failure) = catch_unwind(test) else { return Ok(()) };
        let during = stalls() - BEFORE.get();
        if during == 0 {
            resume_unwind(failure);
        }
        Err(ClientCorrection::host_stall(format!("the machine stood still {during} times")))
    });
}

/// Counts stalls from now on for this test: called with its turn, before which it only waits.
pub(crate) fn begin() {
    BEFORE.set(stalls());
}

thread_local! {
    /// The stalls before the test of this thread.
    static BEFORE: Cell<u64> = const { Cell::new(0) };
}

/// How often this process, which only wanted to sleep, has come late by [`STALL`] or more.
fn stalls() -> u64 {
    static STALLS: AtomicU64 = AtomicU64::new(0);
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        std::thread::spawn(|| {
            loop {
                let start = Instant::now();
                std::thread::sleep(NAP);
                if start.elapsed() > NAP + STALL {
                    STALLS.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    });
    STALLS.load(Ordering::Relaxed)
}

/// A delay that programs in real time feel: foreign players and encoders work in blocks of this.
const STALL: Duration = Duration::from_millis(20);

const NAP: Duration = Duration::from_millis(5);
