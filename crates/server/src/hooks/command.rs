//! A hook that is a program: the event on its standard input and in its environment.
//!
//! It runs in a process group of its own, which ends as a whole when it takes too long: a shell that
//! is killed alone leaves its children behind, and one more of them with every alarm.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use aulos_io::feed::isolate_child;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Map, Value};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::queue::DeliveryError;

/// Lines of one run that go to the log; the rest is read and forgotten.
const MAX_LOG_LINES: usize = 32;
/// A longer line is logged in pieces.
const MAX_LOG_LINE: u64 = 512;

/// Runs it to its end, or to the end of its time.
pub(super) async fn run(
    name: &str,
    program: &Path,
    arguments: &[String],
    body: &Map<String, Value>,
    seconds: u32,
) -> Result<(), DeliveryError> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(body.iter().map(variable))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    isolate_child(command.as_std_mut());
    let mut child = command.spawn().map_err(|error| DeliveryError::Start(error.kind()))?;
    let group = ProcessGroup(child.id());
    let text = Value::Object(body.clone()).to_string();
    let limit = Duration::from_secs(u64::from(seconds));
    let ended = match timeout(limit, communicate(name, &mut child, text)).await {
        Ok(status) => {
            // What has let go of our pipes is not ours any more.
            group.release();
            Some(status?)
        }
        // It may have ended in time, and a child of its own has not; `group` ends that.
        Err(_) => child.try_wait().ok().flatten(),
    };
    match ended {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(DeliveryError::Exit(status)),
        None => Err(DeliveryError::TimedOut(seconds)),
    }
}

/// Tells a program what happened, and hears it out.
async fn communicate(
    name: &str,
    child: &mut Child,
    text: String,
) -> Result<ExitStatus, DeliveryError> {
    let (input, output, error) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let tell = async {
        if let Some(mut input) = input {
            // One that does not want to know need not read.
            input.write_all(text.as_bytes()).await.ok();
            input.write_all(b"\n").await.ok();
        }
    };
    let (_, (), (), status) =
        tokio::join!(tell, log_output(name, output), log_output(name, error), child.wait());
    status.map_err(|error| DeliveryError::Start(error.kind()))
}

/// What it says goes into the log, as far as anybody would read it.
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
                    tracing::info!(hook = name, "(what else it says is left out)");
                }
            }
            Ok(_) => {}
        }
    }
}

/// `from` is `AULOS_FROM`; what is null is empty.
fn variable((key, value): (&String, &Value)) -> (String, String) {
    let text = match value {
        Value::Null => String::new(),
        // No system takes a variable with a zero byte.
        Value::String(text) => text.replace('\0', ""),
        other => other.to_string(),
    };
    (format!("AULOS_{}", key.to_ascii_uppercase()), text)
}

/// A program and its children, which end with this.
struct ProcessGroup(Option<u32>);

impl ProcessGroup {
    fn release(mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let group = self.0.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        // They may have ended by themselves; then there is nobody to end.
        group.map(|group| kill_process_group(group, Signal::KILL)).transpose().ok();
    }
}
