//! Futures on the loop. Tasks come from the `async-task` crate; the run queue is the loop's inbox.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_task::{Builder, FallibleTask};

use super::shared::{Command, Shared};
use super::task_list::{FinishGuard, Runnable, TaskState, new_task_state};

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

fn schedule(shared: &Arc<Shared>) -> impl Fn(Runnable) + Send + Sync + 'static {
    let shared = shared.clone();
    // A runnable that a destroyed loop returns was made on another thread, and is dropped there.
    move |runnable| drop(shared.send(Command::Run(runnable)))
}
