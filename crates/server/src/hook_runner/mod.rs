//! Delivery of the events of hooks: a task per hook runs its command or sends its request.
//!
//! What is reported, and when an attempt is repeated, is decided by [`aulos_control::hooks`].

mod command;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use aulos_config::HookAction;
use aulos_control::hooks::{Delivery, DeliveryError, DeliveryStep, HookState, Hooks};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use self::command::BackgroundJobs;
use crate::dial::Dialer;
use crate::post::{PostBody, post};

/// Time for deliveries in progress at shutdown; then they are aborted. A server ends within a
/// second.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// All tasks.
#[derive(Debug, Default)]
pub struct HookRunner {
    dialer: Arc<Dialer>,
    running: Vec<(Arc<HookState>, JoinHandle<()>)>,
}

impl HookRunner {
    /// A runner with this dialer.
    #[cfg(test)]
    fn with_dialer(dialer: Dialer) -> Self {
        Self { dialer: Arc::new(dialer), running: Vec::new() }
    }

    /// Starts and ends tasks to match the configured hooks.
    pub async fn update(&mut self, hooks: &Hooks) {
        let wanted = hooks.states();
        let is_wanted =
            |state: &Arc<HookState>| wanted.iter().any(|other| Arc::ptr_eq(state, other));
        let (stay, go): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.running).into_iter().partition(|(state, _)| is_wanted(state));
        self.running = stay;
        for (_, task) in go {
            abort_and_wait(task).await;
        }
        for state in wanted {
            if !self.running.iter().any(|(running, _)| Arc::ptr_eq(running, &state)) {
                let task = tokio::spawn(serve(Arc::clone(&state), Arc::clone(&self.dialer)));
                self.running.push((state, task));
            }
        }
    }

    /// Starts no more attempts, and waits at most [`SHUTDOWN_TIMEOUT`] for those in progress.
    pub async fn end(self) {
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        for (state, _) in &self.running {
            state.stop();
        }
        for (state, mut task) in self.running {
            if timeout_at(deadline, &mut task).await.is_err() {
                abort_and_wait(task).await;
            }
            let (hook, left) = (state.name(), state.waiting());
            if left > 0 {
                tracing::warn!(hook, events = left, "undelivered events discarded at shutdown");
            }
        }
    }
}

/// A program is killed when its task is dropped, at the task's last await.
async fn abort_and_wait(task: JoinHandle<()>) {
    task.abort();
    task.await.ok();
}

async fn serve(state: Arc<HookState>, dialer: Arc<Dialer>) {
    let mut jobs = BackgroundJobs::default();
    loop {
        match state.next_step() {
            DeliveryStep::Deliver(delivery) => {
                state.finish(deliver(&dialer, &delivery, &mut jobs).await);
            }
            DeliveryStep::Wait(Some(pause)) => {
                tokio::select! {
                    () = sleep(pause.into()) => {}
                    () = state.changed() => {}
                }
            }
            DeliveryStep::Wait(None) => state.changed().await,
            DeliveryStep::End => return jobs.end().await,
        }
    }
}

/// Makes one attempt.
async fn deliver(
    dialer: &Dialer,
    delivery: &Delivery,
    jobs: &mut BackgroundJobs,
) -> Result<(), DeliveryError> {
    let (hook, body) = (delivery.hook(), delivery.body());
    match &hook.action {
        HookAction::Run { program, arguments } => {
            command::run(&hook.name, program, arguments, &body, hook.timeout_s, jobs).await
        }
        HookAction::Post(to) => {
            let limit = Duration::from_secs(u64::from(hook.timeout_s));
            let content = Value::Object(body).to_string().into_bytes();
            let id = Some(delivery.id());
            let body = PostBody { content_type: "application/json", id, content };
            let sent = timeout(limit, post(dialer, to, body)).await;
            sent.unwrap_or(Err(DeliveryError::TimedOut(hook.timeout_s))).map(drop)
        }
    }
}
