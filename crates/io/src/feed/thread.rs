//! Feeders of libraries that may wait: each has a thread, so that no reactor waits with it.

use std::io;
use std::time::Duration;

use super::{Feeder, NextPoll};
use crate::SystemClock;

/// Runs a feeder on a thread of its own, which ends with the feeder's station.
///
/// # Errors
/// The system has no thread.
pub fn spawn_feeder(mut feeder: Box<dyn Feeder>) -> io::Result<()> {
    let run = move || {
        loop {
            std::thread::sleep(match feeder.tick(SystemClock::now()) {
                NextPoll::Soon => ACTIVE_INTERVAL,
                NextPoll::Later => IDLE_INTERVAL,
                NextPoll::Never => return,
            });
        }
    };
    std::thread::Builder::new().name("aulos-device".into()).spawn(run).map(drop)
}

/// As often as a reactor polls its feeders.
const ACTIVE_INTERVAL: Duration = Duration::from_millis(10);
const IDLE_INTERVAL: Duration = Duration::from_millis(50);
