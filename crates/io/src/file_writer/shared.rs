//! What the ends of one file have in common.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use aulos_rt::writer_ring::{Door, Refused, Watch};

use super::swap::Swap;
use super::{AddError, Failure, State, Status};

#[derive(Debug)]
pub(super) struct Shared {
    place: Arc<str>,
    pub(super) swap: Swap,
    rings: Mutex<Rings>,
    failure: OnceLock<Failure>,
    pub(super) written: AtomicU64,
    pub(super) synced: AtomicU64,
    pub(super) is_full: AtomicBool,
    is_closed: AtomicBool,
    /// By real-time producers.
    pub(super) dropped_records: AtomicU64,
    pub(super) dropped_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Rings {
    /// Nothing more is accepted.
    is_shut: bool,
    open: Vec<(u64, Watch)>,
    next: u64,
    /// Bytes accepted by rings that are gone.
    gone: u64,
}

impl Shared {
    pub(super) fn new(place: &str, shared_bytes: usize, door: Door) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            place: place.into(),
            swap: Swap::new(shared_bytes, door),
            rings: Mutex::default(),
            failure: OnceLock::new(),
            written: zero(),
            synced: zero(),
            is_full: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            dropped_records: zero(),
            dropped_bytes: zero(),
        }
    }

    /// Enters a ring and hands its number to `attach`, before anybody can shut the file.
    pub(super) fn enter(&self, watch: Watch, attach: impl FnOnce(u64)) -> Result<(), AddError> {
        let mut rings = self.rings();
        if rings.is_shut {
            return Err(self.closed());
        }
        let number = rings.next;
        rings.next += 1;
        rings.open.push((number, watch));
        attach(number);
        Ok(())
    }

    /// A ring is gone, and all that it accepted is written.
    pub(super) fn leave(&self, number: u64) {
        let mut rings = self.rings();
        if let Some(at) = rings.open.iter().position(|(other, _)| *other == number) {
            let (_, watch) = rings.open.swap_remove(at);
            rings.gone += watch.accepted();
        }
    }

    /// Accepts nothing any more, and sends those away who wait for room.
    pub(super) fn shut(&self) {
        let mut rings = self.rings();
        rings.is_shut = true;
        let open: Vec<_> = rings.open.iter().map(|(_, watch)| watch.clone()).collect();
        drop(rings);
        // Not under the lock: it may run wakers of whoever waits.
        open.iter().for_each(Watch::close);
        self.swap.close();
    }

    /// Keeps the first error and shuts the file.
    pub(super) fn fail(&self, error: io::Error) {
        self.failure.get_or_init(|| Failure::new(self.place.clone(), error));
        self.is_full.store(false, Ordering::Release);
        self.shut();
    }

    /// All is written, and the file is closed.
    pub(super) fn finish(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_closed.load(Ordering::Acquire) || self.failure.get().is_some()
    }

    /// What to answer to who asked and was not answered.
    pub(super) fn verdict(&self) -> Result<(), Failure> {
        match self.failure.get() {
            Some(failure) => Err(failure.clone()),
            None if self.is_closed.load(Ordering::Acquire) => Ok(()),
            None => Err(Failure::new(self.place.clone(), thread_gone())),
        }
    }

    pub(super) fn closed(&self) -> AddError {
        self.failure.get().map_or(AddError::Closed, |failure| AddError::Failed(failure.clone()))
    }

    /// A ring's or the swap's answer in our words.
    #[cold]
    pub(super) fn error(&self, refused: Refused, length: usize, capacity: usize) -> AddError {
        match refused {
            Refused::TooLong => AddError::TooLong { length, capacity },
            Refused::Closed => self.closed(),
            _ => AddError::Full,
        }
    }

    pub(super) fn status(&self) -> Status {
        // In this order: each of them is then no more than the next.
        let synced = self.synced.load(Ordering::Acquire);
        let written = self.written.load(Ordering::Acquire);
        let rings = self.rings();
        let open: u64 = rings.open.iter().map(|(_, watch)| watch.accepted()).sum();
        let accepted = rings.gone + open + self.swap.accepted();
        let state = match self.failure.get() {
            Some(failure) => State::Failed(failure.clone()),
            None if self.is_closed.load(Ordering::Acquire) => State::Closed,
            None if self.is_full.load(Ordering::Acquire) => State::DiskFull,
            None if rings.is_shut => State::Closing,
            None => State::Open,
        };
        drop(rings);
        Status {
            accepted,
            written,
            synced,
            dropped_records: self.dropped_records.load(Ordering::Relaxed),
            dropped_bytes: self.dropped_bytes.load(Ordering::Relaxed),
            state,
        }
    }

    fn rings(&self) -> MutexGuard<'_, Rings> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn thread_gone() -> io::Error {
    io::Error::other("the thread that writes this file has ended")
}
