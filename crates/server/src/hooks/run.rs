//! The tasks of the hooks: each makes the attempts that its line says, one after the other.

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

/// What is under way at the end has so long; then it is cut off. A server ends within a second.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// Every task.
#[derive(Debug, Default)]
pub struct HookRunner {
    dialer: Arc<Dialer>,
    running: Vec<(Arc<HookState>, JoinHandle<()>)>,
}

impl HookRunner {
    /// One that reaches others through this.
    #[cfg(test)]
    pub(super) fn with_dialer(dialer: Dialer) -> Self {
        Self { dialer: Arc::new(dialer), running: Vec::new() }
    }

    /// Starts and ends tasks until those run that are to run.
    pub async fn update(&mut self, hooks: &Hooks) {
        let wanted = hooks.states();
        let is_wanted = |desk: &Arc<HookState>| wanted.iter().any(|other| Arc::ptr_eq(desk, other));
        let (stay, go): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.running).into_iter().partition(|(desk, _)| is_wanted(desk));
        self.running = stay;
        for (_, task) in go {
            abort_and_wait(task).await;
        }
        for desk in wanted {
            if !self.running.iter().any(|(running, _)| Arc::ptr_eq(running, &desk)) {
                let task = tokio::spawn(serve(Arc::clone(&desk), Arc::clone(&self.dialer)));
                self.running.push((desk, task));
            }
        }
    }

    /// Begins nothing more, and waits at most [`LAST_DELIVERY`] for what is under way.
    pub async fn end(self) {
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        for (desk, _) in &self.running {
            desk.push(QueueInput::Stop);
        }
        for (desk, mut task) in self.running {
            if timeout_at(deadline, &mut task).await.is_err() {
                abort_and_wait(task).await;
            }
            let line = desk.queue();
            let (hook, left) = (&line.hook().name, line.waiting());
            if left > 0 {
                tracing::warn!(hook, "{left} event(s) are not delivered: the server ends");
            }
        }
    }
}

/// A program dies with its task, and that with its last await.
async fn abort_and_wait(task: JoinHandle<()>) {
    task.abort();
    task.await.ok();
}

async fn serve(desk: Arc<HookState>, dialer: Arc<Dialer>) {
    loop {
        let now = SystemClock::now();
        let (parcel, pause) = {
            let mut line = desk.queue();
            line.handle_timeout(now);
            if line.is_over() {
                return;
            }
            (line.poll_output(), line.poll_timeout().map(|until| until.since(now)))
        };
        match (parcel, pause) {
            (Some(parcel), _) => {
                let outcome = deliver(&dialer, &parcel).await;
                desk.queue().handle_input(SystemClock::now(), QueueInput::Finished(outcome));
            }
            (None, Some(pause)) => {
                let nanos = u64::try_from(pause.as_nanos()).unwrap_or(0);
                tokio::select! {
                    () = sleep(Duration::from_nanos(nanos)) => {}
                    () = desk.wake.notified() => {}
                }
            }
            (None, None) => desk.wake.notified().await,
        }
    }
}

/// One attempt.
async fn deliver(dialer: &Dialer, parcel: &Delivery) -> Result<(), DeliveryError> {
    let hook = &parcel.hook;
    let mut body = parcel.event.body.clone();
    body.insert("hook".to_owned(), json!(hook.name));
    body.insert("dropped".to_owned(), json!(parcel.dropped));
    match &hook.action {
        HookAction::Run { program, arguments } => {
            command::run(&hook.name, program, arguments, &body, hook.timeout_s).await
        }
        HookAction::Post(to) => {
            let limit = Duration::from_secs(u64::from(hook.timeout_s));
            let sent = post::post(dialer, to, &parcel.event.id, Value::Object(body).to_string());
            timeout(limit, sent).await.unwrap_or(Err(DeliveryError::TimedOut(hook.timeout_s)))
        }
    }
}
