//! Repeats a test in which a foreign client corrected its own clock.
//!
//! Such a client, delayed by a busy machine, is no evidence about the server; a fault of the server
//! occurs each time. Only what the client's log explains is repeated, and each repetition prints a
//! line `retried: ...`, which `scripts/test` counts in its last line.

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
    panic!("{name}: the client corrected its clock in every attempt: {failures:#?}");
}
