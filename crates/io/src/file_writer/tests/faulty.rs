//! A disk with short writes, interruptions, lack of space, delays or failures, determined by a
//! seed.

use std::io::{self, ErrorKind, IoSlice};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use aulos_core::Rng;

use crate::disk::{AppendFile, SyncHandle};

/// The faults of a disk.
#[derive(Default)]
pub(super) struct FaultPlan {
    seed: u64,
    is_bad: bool,
    /// After this many calls every call fails.
    breaks_after: Option<u64>,
    panics: bool,
}

impl FaultPlan {
    /// Short writes, interruptions, full for a while, slow for a while; now and then normal.
    pub(super) fn bad(seed: u64) -> Self {
        Self { seed, is_bad: true, ..Self::default() }
    }

    /// The same until it fails permanently.
    pub(super) fn breaks(seed: u64) -> Self {
        Self { breaks_after: Some(seed % 7), ..Self::bad(seed) }
    }

    pub(super) fn panics() -> Self {
        Self { panics: true, ..Self::default() }
    }
}

pub(super) struct FaultyDisk {
    plan: FaultPlan,
    calls: u64,
    random: Rng,
    faults: FaultControl,
}

/// The test's view of the disk: its contents, and the switches for faults.
#[derive(Clone, Default)]
pub(super) struct FaultControl(Arc<(Mutex<DiskState>, Condvar)>);

#[derive(Default)]
struct DiskState {
    file: Vec<u8>,
    synced: usize,
    syncs: usize,
    is_syncing: bool,
    full: Option<ErrorKind>,
    hangs: bool,
    syncs_hang: bool,
    /// The next sync fails with this error.
    sync_error: Option<i32>,
    is_closed: bool,
}

impl FaultyDisk {
    pub(super) fn new(plan: FaultPlan) -> (Self, FaultControl) {
        let faults = FaultControl::default();
        let random = Rng::new(plan.seed);
        (Self { plan, calls: 0, random, faults: faults.clone() }, faults)
    }
}

impl AppendFile for FaultyDisk {
    fn append(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        assert!(parts.len() <= 1024 && parts.iter().all(|part| !part.is_empty()));
        if self.plan.panics {
            // A panic without a message.
            std::panic::resume_unwind(Box::new("as planned"));
        }
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let mut most = total;
        self.calls += 1;
        if self.plan.breaks_after.is_some_and(|after| self.calls > after) {
            return Err(broken());
        }
        if self.plan.is_bad {
            match self.random.below(10) {
                0 => return Err(ErrorKind::Interrupted.into()),
                1 => return Err(ErrorKind::StorageFull.into()),
                2 => most = 1,
                3..=6 => most = 1 + self.random.below(total),
                7 => std::thread::park_timeout(std::time::Duration::from_millis(
                    self.random.below(3) as u64,
                )),
                _ => {}
            }
        }
        let mut state = self.faults.wait_while(|state| state.hangs);
        if let Some(kind) = state.full {
            return Err(kind.into());
        }
        let all: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        state.file.extend_from_slice(&all[..most]);
        Ok(most)
    }

    fn patch(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn sync_handle(&self) -> io::Result<Box<dyn SyncHandle>> {
        Ok(Box::new(self.faults.clone()))
    }
}

impl Drop for FaultyDisk {
    fn drop(&mut self) {
        self.faults.change(|state| state.is_closed = true);
    }
}

impl SyncHandle for FaultControl {
    fn sync(&self) -> io::Result<()> {
        let length = self.lock().file.len();
        self.change(|state| state.is_syncing = true);
        let mut state = self.wait_while(|state| state.syncs_hang);
        state.is_syncing = false;
        if let Some(code) = state.sync_error.take() {
            return Err(io::Error::from_raw_os_error(code));
        }
        state.synced = length;
        state.syncs += 1;
        Ok(())
    }
}

impl FaultControl {
    pub(super) fn file(&self) -> Vec<u8> {
        self.lock().file.clone()
    }

    /// Bytes that would survive a power failure.
    pub(super) fn synced(&self) -> usize {
        self.lock().synced
    }

    pub(super) fn syncs(&self) -> usize {
        self.lock().syncs
    }

    pub(super) fn fill_up(&self, kind: ErrorKind) {
        self.change(|state| state.full = Some(kind));
    }

    pub(super) fn make_room(&self) {
        self.change(|state| state.full = None);
    }

    pub(super) fn hang(&self) {
        self.change(|state| state.hangs = true);
    }

    pub(super) fn hang_syncs(&self) {
        self.change(|state| state.syncs_hang = true);
    }

    pub(super) fn fail_next_sync(&self, code: i32) {
        self.change(|state| state.sync_error = Some(code));
    }

    pub(super) fn go_on(&self) {
        self.change(|state| (state.hangs, state.syncs_hang) = (false, false));
    }

    pub(super) fn wait_until_syncing(&self) {
        drop(self.wait_while(|state| !state.is_syncing));
    }

    pub(super) fn wait_until_closed(&self) {
        drop(self.wait_while(|state| !state.is_closed));
    }

    fn change(&self, change: impl FnOnce(&mut DiskState)) {
        change(&mut self.lock());
        self.0.1.notify_all();
    }

    fn wait_while(
        &self,
        mut condition: impl FnMut(&DiskState) -> bool,
    ) -> MutexGuard<'_, DiskState> {
        self.0.1.wait_while(self.lock(), |state| condition(state)).unwrap()
    }

    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.0.0.lock().unwrap()
    }
}

fn broken() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}
