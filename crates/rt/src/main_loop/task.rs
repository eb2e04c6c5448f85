//! Futures on the loop. Tasks come from the `async-task` crate; the run queue is the loop's inbox.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use async_task::{Builder, FallibleTask};

use super::Command;
use super::handle::Shared;

/// A future that runs on a loop. Awaiting it gives that future's output, or `None` if the future
/// panicked or the loop is gone.
///
/// Dropping it cancels the future.
#[must_use = "a task that is dropped is cancelled: detach it, or keep it"]
pub struct Task<T> {
    inner: FallibleTask<T, Arc<TaskState>>,
}

impl<T> Task<T> {
    /// Lets the future run on without this handle.
    pub fn detach(self) {
        self.inner.detach();
    }

    /// Whether the future has ended, in whatever way.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }
}

impl<T> Future for Task<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        Pin::new(&mut self.inner).poll(context)
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("finished", &self.is_finished()).finish_non_exhaustive()
    }
}

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
struct FinishGuard(Arc<TaskState>);

impl Drop for FinishGuard {
    fn drop(&mut self) {
        self.0.is_finished.store(true, Ordering::Release);
    }
}

pub(super) fn spawn<F>(shared: &Arc<Shared>, future: F) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let (mark, life) = new_task_state();
    let body = |_: &Arc<TaskState>| with_finish_guard(life, future);
    let (runnable, task) = Builder::new().metadata(mark).spawn(body, schedule(shared));
    runnable.schedule();
    Task { inner: task.fallible() }
}

pub(super) fn spawn_local<F>(shared: &Arc<Shared>, future: F) -> Task<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let (mark, life) = new_task_state();
    let body = |_: &Arc<TaskState>| with_finish_guard(life, future);
    let (runnable, task) = Builder::new().metadata(mark).spawn_local(body, schedule(shared));
    runnable.schedule();
    Task { inner: task.fallible() }
}

async fn with_finish_guard<F: Future>(life: FinishGuard, future: F) -> F::Output {
    let _life = life;
    future.await
}

fn new_task_state() -> (Arc<TaskState>, FinishGuard) {
    let (is_over, place) = (AtomicBool::new(false), AtomicUsize::new(NO_SLOT));
    let mark = Arc::new(TaskState { is_finished: is_over, slot: place });
    (mark.clone(), FinishGuard(mark))
}

fn schedule(shared: &Arc<Shared>) -> impl Fn(Runnable) + Send + Sync + 'static {
    let shared = shared.clone();
    // A runnable that a destroyed loop returns was made on another thread, and is dropped there.
    move |runnable| drop(shared.send(Command::Run(runnable)))
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
