//! The monotonic clock and thread priorities, for threads that the caller provides. The state
//! machines of this crate take `now` as an argument; only their `run` functions use this module.

use std::fmt;
use std::time::Duration;

use crate::sys;

/// The system's monotonic clock in nanoseconds (`CLOCK_MONOTONIC` on Linux).
///
/// # Real-time
/// No system call where the kernel maps its clock into the process, as Linux does on x86-64 and
/// Arm; some 20 ns.
#[must_use]
pub fn now() -> u64 {
    sys::now()
}

/// The time `span` from now.
pub(crate) fn deadline_after(span: Duration) -> u64 {
    now().saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

/// Time remaining until `at`; zero if `at` is past.
pub(crate) fn remaining(at: u64) -> Duration {
    Duration::from_nanos(at.saturating_sub(now()))
}

/// Scheduling priority of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThreadPriority {
    /// `SCHED_FIFO` with a priority from 1 to 99: preempts every thread that is not real-time.
    Fifo(u8),
    /// Normal scheduling, with a nice value from -20 (highest priority) to 19.
    Nice(i8),
}

impl ThreadPriority {
    /// Requests this priority for the calling thread, and a precise sleep timer.
    ///
    /// Not for a real-time thread: makes system calls. Call it before the real-time work begins.
    ///
    /// # Errors
    /// [`PriorityError`], whose text fits on one log line; the thread keeps its priority.
    pub fn request(self) -> Result<(), PriorityError> {
        sys::precise_sleep();
        let asked = match self {
            Self::Fifo(priority) => sys::set_fifo(priority),
            Self::Nice(nice) => sys::set_nice(nice),
        };
        asked.map_err(|code| PriorityError { requested: self, code })
    }
}

/// For the log: "real-time priority 50".
impl fmt::Display for ThreadPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fifo(priority) => write!(f, "real-time priority {priority}"),
            Self::Nice(nice) => write!(f, "nice value {nice}"),
        }
    }
}

/// Error: the system did not grant a [`ThreadPriority`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PriorityError {
    /// The requested priority.
    pub requested: ThreadPriority,
    /// The system's error number; 0 if the system does not support priorities.
    pub code: i32,
}

impl fmt::Display for PriorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} refused (error {}); raise the limit `rtprio` or `nice` of this user",
            self.requested, self.code
        )
    }
}

impl std::error::Error for PriorityError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_does_not_go_back() {
        let times = [now(), now(), now()];
        assert!(times.is_sorted());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_grant_is_in_force() {
        let request = || {
            ThreadPriority::Fifo(7)
                .request()
                .map(|()| std::fs::read_to_string("/proc/thread-self/stat"))
        };
        // Of a thread of its own, which the others do not wait for.
        let scheduling = std::thread::scope(|scope| scope.spawn(request).join());
        match scheduling.unwrap() {
            Ok(stat) => {
                let stat = stat.unwrap();
                let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
                // Fields 40 and 41 of proc(5), of which two are before the parenthesis.
                assert_eq!(fields[37..39], ["7", "1"], "priority and SCHED_FIFO");
            }
            // Without the right, the kernel's own answer, not that of a function which is missing.
            Err(refused) => assert_eq!(refused.code, 1, "EPERM: {refused}"),
        }
    }

    #[test]
    fn a_refusal_is_one_clear_line() {
        // An invalid priority on every system.
        let refused = ThreadPriority::Fifo(200).request().unwrap_err();
        let text = refused.to_string();
        assert!(text.starts_with("real-time priority 200 refused (error "), "{text}");
        assert!(!text.contains('\n'));
        assert_eq!(ThreadPriority::Nice(-5).to_string(), "nice value -5");
    }
}
