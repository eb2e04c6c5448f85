//! Futures on the loop. What a task is comes from the `async-task` crate; the run queue is the
//! loop's inbox.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use async_task::{Builder, FallibleTask};

use super::Command;
use super::handle::Shared;

/// A future that runs on a loop. As a future itself it gives what that one gave, or `None` if that
/// one panicked or the loop is gone.
///
/// Dropping it cancels it.
#[must_use = "a task that is dropped is cancelled: detach it, or keep it"]
pub struct Task<T> {
    inner: FallibleTask<T, Arc<TaskState>>,
}

impl<T> Task<T> {
    /// Lets the future run on without this handle.
    pub fn detach(self) {
        self.inner.detach();
    }

    /// The future has ended, in whatever way.
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

/// A task that wants to be polled once.
pub(super) type Runnable = async_task::Runnable<Arc<TaskState>>;

/// What the loop knows of a task beside it.
#[derive(Debug)]
pub(super) struct TaskState {
    /// Its future was dropped.
    is_finished: AtomicBool,
    /// Its place in [`Tasks`]; only the loop's thread looks.
    slot: AtomicUsize,
}

const NO_SLOT: usize = usize::MAX;

/// Lives in the future, and so dies with it.
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
    // What comes back from a loop that is gone was made on another thread, and is dropped there.
    move |runnable| drop(shared.send(Command::Run(runnable)))
}

/// The tasks that have run and are not over: those that the loop must drop when it goes.
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
        // Also when the future panics.
        let _after = RemoveIfFinished { tasks: self, mark };
        runnable.run();
    }

    /// Wakes all, so that each comes once more, to be dropped.
    pub(super) fn wake_all(&self) {
        for (waker, _) in self.slots.iter().flatten() {
            waker.wake_by_ref();
        }
    }

    /// Some that have run are not over.
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
