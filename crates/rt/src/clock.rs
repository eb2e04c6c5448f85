//! The monotonic clock, and how urgent a thread is: what a thread that the caller gives needs to
//! keep time. The machines of this crate take `now` as an argument and never come here; only their
//! `run` functions do.

use std::fmt;
use std::time::Duration;

use crate::sys;

/// Nanoseconds on the system's monotonic clock (`CLOCK_MONOTONIC` on Linux).
///
/// # Real-time
/// No system call where the kernel maps its clock into the process, as Linux does on x86-64 and
/// Arm; some 20 ns.
#[must_use]
pub fn now() -> u64 {
    sys::now()
}

/// The instant that is `span` from now.
pub(crate) fn deadline_after(span: Duration) -> u64 {
    now().saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

/// The time until `at`; zero when that is over.
pub(crate) fn remaining(at: u64) -> Duration {
    Duration::from_nanos(at.saturating_sub(now()))
}

/// How urgent a thread should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThreadPriority {
    /// `SCHED_FIFO` with a priority from 1 to 99: runs before everything that is not real-time.
    Fifo(u8),
    /// Normal, with a nice value from -20 (most urgent) to 19.
    Nice(i8),
}

impl ThreadPriority {
    /// Asks the system to make the calling thread this urgent, and its sleeps exact.
    ///
    /// Not for a real-time thread: calls the system. Do it before the work begins.
    ///
    /// # Errors
    /// [`Refused`], whose text is one line for the log; the thread goes on as it was.
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

/// The system did not grant an [`Urgency`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PriorityError {
    /// What was asked for.
    pub requested: ThreadPriority,
    /// The system's error number, 0 where it knows no such thing.
    pub code: i32,
}

impl fmt::Display for PriorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} refused (error {}); allow it with a limit of rtprio or nice for this user",
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
    fn a_refusal_is_one_clear_line() {
        // No system knows this priority.
        let refused = ThreadPriority::Fifo(200).request().unwrap_err();
        let text = refused.to_string();
        assert!(text.starts_with("real-time priority 200 refused (error "), "{text}");
        assert!(!text.contains('\n'));
        assert_eq!(ThreadPriority::Nice(-5).to_string(), "nice value -5");
    }
}
