//! The log lines of this process that were lost. The log belongs to the program and not to a
//! server, so the program says where the count is.

use std::sync::OnceLock;

static COUNT: OnceLock<fn() -> u64> = OnceLock::new();

/// Sets the function that counts the lost lines of the program's log, for the metrics. The first
/// call counts.
pub fn count_lost_log_lines(count: fn() -> u64) {
    COUNT.get_or_init(|| count);
}

/// The lines that were lost, if the program counts them.
pub(crate) fn lost_log_lines() -> Option<u64> {
    COUNT.get().map(|count| count())
}
