//! Other systems: correct, but sleeping threads poll instead of being woken.

use std::io;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::sync::{AtomicU32, Ordering};

/// Not available here: rings use two slices.
#[derive(Debug)]
pub(crate) enum MirroredMapping {}

impl MirroredMapping {
    pub(crate) fn new(_at_least: usize) -> Option<Self> {
        None
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        match *self {}
    }

    pub(crate) fn size(&self) -> usize {
        match *self {}
    }
}

/// Poll interval of a sleeping thread. Long enough not to load a core, short compared with a
/// period.
const SLEEP_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Sleeps briefly if `word` is `expected`; the caller checks its condition again in any case.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    if word.load(Ordering::Acquire) == expected {
        std::thread::park_timeout(timeout.unwrap_or(SLEEP_POLL_INTERVAL).min(SLEEP_POLL_INTERVAL));
    }
}

/// Not available here: a program of a process that is killed goes on.
#[cfg(unix)]
pub(super) fn end_with(_parent: u32) -> io::Result<()> {
    Ok(())
}

/// Not available here: a program gets what this process has inherited itself.
#[cfg(unix)]
pub(super) fn close_others_at_exec() {}

/// Nothing to do: sleeping threads poll.
pub(crate) fn futex_wake(_word: &AtomicU32) {}

/// Nothing to do, as above.
pub(crate) fn futex_wake_one(_word: &AtomicU32) {}

/// Not available here.
#[derive(Debug)]
pub(crate) enum Signal {}

impl Signal {
    pub(crate) fn new() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn raise(&self) {
        match *self {}
    }

    pub(crate) fn clear(&self) {
        match *self {}
    }
}

/// Nanoseconds since the first call.
#[allow(clippy::disallowed_methods, reason = "`rt::sys` is where a clock may be read")]
pub(crate) fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Sleeps are as precise as the system's default.
pub(crate) fn precise_sleep() {}

/// Not available here.
pub(crate) fn set_fifo(_priority: u8) -> Result<(), i32> {
    Err(0)
}

/// Not available here.
pub(crate) fn set_nice(_nice: i8) -> Result<(), i32> {
    Err(0)
}

/// Not available here: there are no stamps.
#[cfg(unix)]
pub(crate) fn stamp_arrivals(_socket: std::os::fd::BorrowedFd<'_>) {}

/// Reads from a socket that does not wait; no stamps here.
#[cfg(unix)]
pub(crate) fn receive_stamped(
    socket: std::os::fd::BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<(usize, Option<u64>)> {
    use std::io::Read as _;
    let socket = std::net::TcpStream::from(socket.try_clone_to_owned()?);
    Ok(((&socket).read(buffer)?, None))
}
