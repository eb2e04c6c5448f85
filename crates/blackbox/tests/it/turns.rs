//! The machine's time: which tests run beside which.
//!
//! Tests in real time mostly wait, so they run side by side as far as they do not disturb each
//! other. With as many threads as tests (`scripts/test`) those that share run first and those that
//! run alone last, so that neither waits for the other between; any number of threads is correct.
//! The longest of a kind begin first: at its end the others then fill the time beside them.
//!
//! A test prints its own duration, without the wait for its turn: `turn: Alone 12.3 s NAME`.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::retry;

/// What a test needs of the machine, in the order of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Shared,
    Quiet,
    Timed,
    Alone,
}

const NEEDS: usize = 4;

impl Need {
    /// How many of them run at once. Two cores carry these beside their peers and encoders.
    const fn limit(self) -> usize {
        match self {
            Self::Shared => 10,
            Self::Quiet => 6,
            Self::Timed => 3,
            Self::Alone => 1,
        }
    }
}

/// Tests by their need.
struct Machine {
    waiting: [usize; NEEDS],
    /// Those of them that are long.
    long: [usize; NEEDS],
    running: [usize; NEEDS],
}

impl Machine {
    /// Whether a test may start: beside its own kind only, after those of the kinds before, and
    /// after the long ones of its kind.
    fn has_room(&self, need: Need, is_long: bool) -> bool {
        let kind = need as usize;
        let others = self.running.iter().enumerate().filter(|(other, _)| *other != kind);
        self.running[kind] < need.limit()
            && others.map(|(_, count)| count).sum::<usize>() == 0
            && self.waiting[..kind].iter().all(|count| *count == 0)
            && (is_long || self.long[kind] == 0)
    }
}

static MACHINE: Mutex<Machine> =
    Mutex::new(Machine { waiting: [0; NEEDS], long: [0; NEEDS], running: [0; NEEDS] });
static CHANGED: Condvar = Condvar::new();

fn machine() -> MutexGuard<'static, Machine> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Use of the machine until it is dropped, by a failed test too.
#[derive(Debug)]
#[must_use]
pub(crate) struct Turn {
    need: Need,
    start: Instant,
}

impl Turn {
    fn take(need: Need, is_long: bool) -> Self {
        let mut machine = machine();
        machine.waiting[need as usize] += 1;
        machine.long[need as usize] += usize::from(is_long);
        while !machine.has_room(need, is_long) {
            machine = CHANGED.wait(machine).unwrap_or_else(PoisonError::into_inner);
        }
        machine.waiting[need as usize] -= 1;
        machine.long[need as usize] -= usize::from(is_long);
        machine.running[need as usize] += 1;
        drop(machine);
        CHANGED.notify_all();
        retry::begin();
        Self { need, start: Instant::now() }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        machine().running[self.need as usize] -= 1;
        CHANGED.notify_all();
        // libtest's threads have the names of their tests.
        let (thread, seconds) = (std::thread::current(), self.start.elapsed().as_secs_f64());
        println!("turn: {:?} {seconds:.1} s {}", self.need, thread.name().unwrap_or("?"));
    }
}

/// Exclusive use of the machine: for a test that measures microseconds, loads the machine, or needs
/// one of its ports.
pub(crate) fn turn() -> Turn {
    Turn::take(Need::Alone, false)
}

/// Use beside two others of the same kind: for a test that compares each frame or the times at
/// which they sound, and whose programs together need a small part of a core.
pub(crate) fn timed_turn() -> Turn {
    Turn::take(Need::Timed, false)
}

/// [`timed_turn`] for a test of 15 s or more.
pub(crate) fn long_timed_turn() -> Turn {
    Turn::take(Need::Timed, true)
}

/// Use beside a few tests of the same kind: for one that hardly loads the machine, and whose
/// foreign client corrects its clock when it is run late. A snapserver does so sooner:
/// [`timed_turn`].
pub(crate) fn quiet_turn() -> Turn {
    Turn::take(Need::Quiet, false)
}

/// Use beside other tests that share it.
pub(crate) fn shared_turn() -> Turn {
    Turn::take(Need::Shared, false)
}

/// [`quiet_turn`] for a test of 30 s or more.
pub(crate) fn long_quiet_turn() -> Turn {
    Turn::take(Need::Quiet, true)
}

/// [`shared_turn`] for a test of 15 s or more.
pub(crate) fn long_shared_turn() -> Turn {
    Turn::take(Need::Shared, true)
}
