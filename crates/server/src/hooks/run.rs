//! The tasks of the hooks: each makes the attempts of its queue, one after the other.

use std::sync::Arc;
use std::time::Duration;

use aulos_config::HookAction;
use aulos_io::SystemClock;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::queue::{Delivery, DeliveryError, QueueInput};
use super::{HookState, Hooks, command, post};
use crate::dial::Dialer;

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
    pub(super) fn with_dialer(dialer: Dialer) -> Self {
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
            state.push(QueueInput::Stop);
        }
        for (state, mut task) in self.running {
            if timeout_at(deadline, &mut task).await.is_err() {
                abort_and_wait(task).await;
            }
            let queue = state.queue();
            let (hook, left) = (&queue.hook().name, queue.waiting());
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
    loop {
        let now = SystemClock::now();
        let (delivery, pause) = {
            let mut queue = state.queue();
            queue.handle_timeout(now);
            if queue.is_over() {
                return;
            }
            (queue.poll_output(), queue.poll_timeout().map(|until| until.since(now)))
        };
        match (delivery, pause) {
            (Some(delivery), _) => {
                let outcome = deliver(&dialer, &delivery).await;
                state.queue().handle_input(SystemClock::now(), QueueInput::Finished(outcome));
            }
            (None, Some(pause)) => {
                tokio::select! {
                    () = sleep(pause.into()) => {}
                    () = state.wake.notified() => {}
                }
            }
            (None, None) => state.wake.notified().await,
        }
    }
}

/// Makes one attempt.
async fn deliver(dialer: &Dialer, delivery: &Delivery) -> Result<(), DeliveryError> {
    let hook = &delivery.hook;
    let mut body = delivery.event.body.clone();
    body.insert("hook".to_owned(), json!(hook.name));
    body.insert("dropped".to_owned(), json!(delivery.dropped));
    match &hook.action {
        HookAction::Run { program, arguments } => {
            command::run(&hook.name, program, arguments, &body, hook.timeout_s).await
        }
        HookAction::Post(to) => {
            let limit = Duration::from_secs(u64::from(hook.timeout_s));
            let sent = post::post(dialer, to, &delivery.event.id, Value::Object(body).to_string());
            timeout(limit, sent).await.unwrap_or(Err(DeliveryError::TimedOut(hook.timeout_s)))
        }
    }
}
