//! Command hooks: a program that gets the event on its standard input and in its environment.
//!
//! It runs in a process group of its own, which is killed as a whole on a time-out: killing a shell
//! alone would leave its children behind, more of them with every alarm.
//!
//! The program's own end ends the delivery. Its output may stay open longer, because a job that it
//! left in the background inherits it; such a job has the rest of the time limit.

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use aulos_control::hooks::DeliveryError;
use aulos_io::feed::isolate_child;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Map, Value};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

/// Maximum number of lines logged per run; further output is read and discarded.
const MAX_LOG_LINES: usize = 32;
/// A longer line is logged in pieces.
const MAX_LOG_LINE: u64 = 512;

/// Maximum number of programs of a hook that have ended and left a job behind: one a second for
/// half a minute. At the limit the next event waits for the end of such a job, so that a burst of
/// events does not fill the process table.
const MAX_BACKGROUND_JOBS: usize = 32;
/// How long the output of a program that has ended is read before its result is reported: its last
/// lines are in the pipe already.
const LOG_DRAIN: Duration = Duration::from_millis(50);

/// Jobs that the programs of a hook have left in the background; they are killed when this is
/// dropped.
#[derive(Debug, Default)]
pub(super) struct BackgroundJobs(JoinSet<()>);

impl BackgroundJobs {
    /// Waits until there is room for one more.
    async fn make_room(&mut self) {
        while self.0.try_join_next().is_some() {}
        while self.0.len() >= MAX_BACKGROUND_JOBS {
            self.0.join_next().await;
        }
    }

    /// Kills them.
    pub(super) async fn end(mut self) {
        self.0.shutdown().await;
    }
}

/// Runs it until it ends or times out.
pub(super) async fn run(
    name: &str,
    program: &Path,
    arguments: &[String],
    body: &Map<String, Value>,
    seconds: u32,
    jobs: &mut BackgroundJobs,
) -> Result<(), DeliveryError> {
    jobs.make_room().await;
    let deadline = Instant::now() + Duration::from_secs(u64::from(seconds));
    let mut command = Command::new(program);
    isolate_child(command.as_std_mut());
    command
        .args(arguments)
        .envs(body.iter().map(variable))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| DeliveryError::Start(error.kind()))?;
    let group = ProcessGroup(child.id());
    let text = Value::Object(body.clone()).to_string();
    let mut pipes = Box::pin(exchange(name.to_owned(), &mut child, text));
    let mut are_open = true;
    let ended = {
        let mut wait = pin!(timeout_at(deadline, child.wait()));
        loop {
            tokio::select! {
                () = &mut pipes, if are_open => are_open = false,
                ended = &mut wait => break ended,
            }
        }
    };
    let Ok(status) = ended else { return Err(DeliveryError::TimedOut(seconds)) };
    if are_open && timeout(LOG_DRAIN, &mut pipes).await.is_err() {
        jobs.0.spawn(async move {
            // On a time-out `group` ends the job.
            if timeout_at(deadline, pipes).await.is_ok() {
                group.release();
            }
        });
    } else {
        // Processes that have closed our pipes are no longer ours to kill.
        group.release();
    }
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(DeliveryError::Exit(status)),
        Err(error) => Err(DeliveryError::Start(error.kind())),
    }
}

/// Writes the event to a program and reads its output until the last process has closed it.
fn exchange(name: String, child: &mut Child, text: String) -> impl Future<Output = ()> + use<> {
    let (input, output, error) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write_input = async move {
        if let Some(mut input) = input {
            // A program need not read its input.
            input.write_all(text.as_bytes()).await.ok();
            input.write_all(b"\n").await.ok();
        }
    };
    async move {
        tokio::join!(write_input, log_output(&name, output), log_output(&name, error));
    }
}

/// Logs the program's output, up to a limit.
async fn log_output(name: &str, output: Option<impl AsyncRead + Unpin>) {
    let Some(output) = output else { return };
    let mut output = BufReader::new(output);
    let (mut line, mut lines) = (Vec::new(), 0);
    loop {
        line.clear();
        match (&mut output).take(MAX_LOG_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) if lines < MAX_LOG_LINES => {
                let text = String::from_utf8_lossy(&line);
                let text: String = text.chars().filter(|c| !c.is_control()).collect();
                tracing::info!(hook = name, "{text}");
                lines += 1;
                if lines == MAX_LOG_LINES {
                    tracing::info!(
                        hook = name,
                        "output limit reached; further lines are discarded"
                    );
                }
            }
            Ok(_) => {}
        }
    }
}

/// The environment variable of a field: `from` is `AULOS_FROM`; null is empty.
fn variable((key, value): (&String, &Value)) -> (String, String) {
    let text = match value {
        Value::Null => String::new(),
        // Environment variables cannot contain a zero byte.
        Value::String(text) => text.replace('\0', ""),
        other => other.to_string(),
    };
    (format!("AULOS_{}", key.to_ascii_uppercase()), text)
}

/// A process group, killed when this is dropped.
struct ProcessGroup(Option<u32>);

impl ProcessGroup {
    fn release(mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let group = self.0.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        // The group may have ended already.
        group.map(|group| kill_process_group(group, Signal::KILL)).transpose().ok();
    }
}
