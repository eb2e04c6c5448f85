//! The loop's side of its tasks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;

/// A task that is to be polled once.
pub(super) type Runnable = async_task::Runnable<Arc<TaskState>>;

/// The loop's state of a task.
#[derive(Debug)]
pub(super) struct TaskState {
    /// The future was dropped.
    is_finished: AtomicBool,
    /// Index in [`Tasks`]; used by the loop's thread only.
    slot: AtomicUsize,
}

const NO_SLOT: usize = usize::MAX;

/// Stored in the future, so it is dropped with it.
pub(super) struct FinishGuard(Arc<TaskState>);

impl Drop for FinishGuard {
    fn drop(&mut self) {
        self.0.is_finished.store(true, Ordering::Release);
    }
}

pub(super) fn new_task_state() -> (Arc<TaskState>, FinishGuard) {
    let (is_over, place) = (AtomicBool::new(false), AtomicUsize::new(NO_SLOT));
    let mark = Arc::new(TaskState { is_finished: is_over, slot: place });
    (mark.clone(), FinishGuard(mark))
}

/// Tasks that have run and are not finished: the loop has to drop them when it is dropped.
#[derive(Default)]
pub(super) struct Tasks {
    slots: Vec<Option<(Waker, Arc<TaskState>)>>,
    free: Vec<usize>,
}

impl Tasks {
    /// Polls a task once.
    pub(super) fn run(&mut self, runnable: Runnable) {
        let mark = runnable.metadata().clone();
        if mark.slot.load(Ordering::Relaxed) == NO_SLOT {
            self.insert(runnable.waker(), &mark);
        }
        // Also runs if the future panics.
        let _after = RemoveIfFinished { tasks: self, mark };
        runnable.run();
    }

    /// Wakes all tasks, so that each is queued once more, to be dropped.
    pub(super) fn wake_all(&self) {
        for (waker, _) in self.slots.iter().flatten() {
            waker.wake_by_ref();
        }
    }

    /// Whether a task that has run is not finished.
    pub(super) fn has_unfinished(&self) -> bool {
        self.slots.iter().flatten().any(|(_, mark)| !mark.is_finished.load(Ordering::Acquire))
    }

    fn insert(&mut self, waker: Waker, mark: &Arc<TaskState>) {
        let entry = Some((waker, mark.clone()));
        let place = self.free.pop().unwrap_or(self.slots.len());
        match self.slots.get_mut(place) {
            Some(free) => *free = entry,
            None => self.slots.push(entry),
        }
        mark.slot.store(place, Ordering::Relaxed);
    }

    fn remove(&mut self, mark: &TaskState) {
        let place = mark.slot.load(Ordering::Relaxed);
        if let Some(taken) = self.slots.get_mut(place) {
            *taken = None;
            self.free.push(place);
        }
    }
}

struct RemoveIfFinished<'a> {
    tasks: &'a mut Tasks,
    mark: Arc<TaskState>,
}

impl Drop for RemoveIfFinished<'_> {
    fn drop(&mut self) {
        if self.mark.is_finished.load(Ordering::Acquire) {
            self.tasks.remove(&self.mark);
        }
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let there = self.slots.len() - self.free.len();
        f.debug_struct("Tasks").field("there", &there).finish()
    }
}
