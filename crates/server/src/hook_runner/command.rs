//! Command hooks: a program that gets the event on its standard input and in its environment.
//!
//! It runs in a process group of its own, which is killed as a whole on a time-out: killing a shell
//! alone would leave its children behind, more of them with every alarm.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use aulos_control::hooks::DeliveryError;
use aulos_io::feed::isolate_child;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Map, Value};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Maximum number of lines logged per run; further output is read and discarded.
const MAX_LOG_LINES: usize = 32;
/// A longer line is logged in pieces.
const MAX_LOG_LINE: u64 = 512;

/// Runs it until it ends or times out.
pub(super) async fn run(
    name: &str,
    program: &Path,
    arguments: &[String],
    body: &Map<String, Value>,
    seconds: u32,
) -> Result<(), DeliveryError> {
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
    let limit = Duration::from_secs(u64::from(seconds));
    let ended = match timeout(limit, communicate(name, &mut child, text)).await {
        Ok(status) => {
            // Processes that have closed our pipes are no longer ours to kill.
            group.release();
            Some(status?)
        }
        // It may have ended in time while a child of its own has not; `group` ends that.
        Err(_) => child.try_wait().ok().flatten(),
    };
    match ended {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(DeliveryError::Exit(status)),
        None => Err(DeliveryError::TimedOut(seconds)),
    }
}

/// Writes the event to a program, reads its output, and waits for its end.
async fn communicate(
    name: &str,
    child: &mut Child,
    text: String,
) -> Result<ExitStatus, DeliveryError> {
    let (input, output, error) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write_input = async {
        if let Some(mut input) = input {
            // A program need not read its input.
            input.write_all(text.as_bytes()).await.ok();
            input.write_all(b"\n").await.ok();
        }
    };
    let (_, (), (), status) =
        tokio::join!(write_input, log_output(name, output), log_output(name, error), child.wait());
    status.map_err(|error| DeliveryError::Start(error.kind()))
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
