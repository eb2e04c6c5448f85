//! Control scripts: child processes that report what a stream plays, and control it.
//!
//! Snapserver's scripts work unchanged: JSON-RPC in lines on standard input and output, log lines
//! on standard error. Each script is one task; a script that exits is restarted with a growing
//! delay.

use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use aulos_config::{Plugin, StationSettings};
use aulos_core::{Backoff, Span};
use aulos_io::confined_open::{is_outside_root, open_regular_beneath, open_root};
use aulos_io::feed::{isolate_child, split_arguments};
use aulos_proto::snap::control::{IncomingMessage, LineSplitter, Request, parse_incoming};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::control::state::Control;
use crate::stations::slot::{PluginHandle, ScriptEvent};

/// Calls that may wait for a script.
const MAX_QUEUED_CALLS: usize = 64;
/// Longest line of a script, in bytes: a picture of 4 MB in base64.
const MAX_SCRIPT_LINE: usize = 6 << 20;
/// Delay before a restart, doubled from the first to the second value.
const MIN_RESTART_DELAY: Span = Span::from_secs(1);
const MAX_RESTART_DELAY: Span = Span::from_secs(60);
/// How long the rest of a script's standard error is read after its end.
const LOG_DRAIN: Duration = Duration::from_millis(200);
/// How long a script may take to read a call.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Keeps the script of a stream running until the future is dropped.
pub async fn run(control: Arc<Control>, stream: String, plugin: Plugin, http_port: u16) {
    let dir = control.config().streams.plugin_dir.clone();
    let program = dir.join(&plugin.script);
    let mut backoff = Backoff::exact(MIN_RESTART_DELAY, MAX_RESTART_DELAY);
    loop {
        let mut command = Command::new(&program);
        command
            .args(split_arguments(&plugin.params))
            .arg(format!("--stream={stream}"))
            .arg(format!("--snapcast-port={http_port}"))
            .arg("--snapcast-host=localhost")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        isolate_child(command.as_std_mut());
        backoff.succeeded(control.clock.local());
        // The file may have changed since the call that named it.
        let allowed = match plugin.call {
            Some(_) => find_script(&dir, &plugin.script),
            None => Ok(()),
        };
        match allowed.and_then(|()| command.spawn()) {
            Ok(child) => {
                let group = ProcessGroup(child.id());
                let why = serve(&control, &stream, child).await;
                drop(group);
                tracing::warn!(
                    stream,
                    "the control script {} has exited: {why}",
                    program.display()
                );
            }
            Err(error) => {
                tracing::warn!(stream, "the control script {}: {error}", program.display());
            }
        }
        script_ended(&control, &stream);
        let pause = backoff.failed(control.clock.local());
        tokio::time::sleep(pause.into()).await;
    }
}

/// The control scripts to run, each with its stream. Those that calls have named need the
/// permission `by_rpc`.
pub fn scripts(stations: &[Arc<StationSettings>], by_rpc: bool) -> Vec<(String, Plugin)> {
    let all = stations.iter().filter_map(|station| {
        let plugin = station.plugin.clone()?;
        (plugin.call.is_none() || by_rpc).then(|| (station.name.clone(), plugin))
    });
    all.collect()
}

/// The control script of a stream has ended.
pub fn script_ended(control: &Control, stream: &str) {
    control.handle_script(stream, ScriptEvent::Ended);
}

/// Checks that a script is an executable file directly in `dir`: its name is not a path, and a link
/// does not lead out of the directory. The program is started by its name afterwards, because an
/// interpreter needs one; only an owner of the directory can change the file in between.
///
/// # Errors
/// Errors of the file system, with what was expected where the system's text does not say it.
pub(crate) fn find_script(dir: &Path, name: &Path) -> io::Result<()> {
    let expected = |kind, text| Err(io::Error::new(kind, text));
    if name.file_name() != Some(name.as_os_str()) {
        return expected(ErrorKind::InvalidInput, "expected the name of a file, without a path");
    }
    let file = match open_regular_beneath(open_root(dir)?, name) {
        Err(error) if is_outside_root(&error) => {
            return expected(ErrorKind::PermissionDenied, "it is a link out of the directory");
        }
        opened => opened?,
    };
    if file.metadata()?.permissions().mode() & 0o111 == 0 {
        return expected(ErrorKind::PermissionDenied, "it is not executable; run chmod +x");
    }
    Ok(())
}

/// A script's process group, terminated on drop.
struct ProcessGroup(Option<u32>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        use rustix::process::{Pid, Signal, kill_process_group};
        let group = self.0.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        // The group may have exited by itself.
        group.map(|group| kill_process_group(group, Signal::TERM)).transpose().ok();
    }
}

/// Runs the protocol with one script process; returns the reason of its end.
async fn serve(control: &Control, stream: &str, mut child: Child) -> String {
    let (Some(mut input), Some(mut output), Some(log)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return "it has no standard input or output".to_owned();
    };
    let mut log = tokio::spawn(forward_log(stream.to_owned(), log));
    let (calls, mut waiting) = mpsc::channel(MAX_QUEUED_CALLS);
    let handle = PluginHandle(calls);
    let mut lines = LineSplitter::with_limit(MAX_SCRIPT_LINE);
    let mut block = vec![0; 16 << 10];
    let why = 'talk: loop {
        tokio::select! {
            read = output.read(&mut block) => match read {
                Ok(0) => break match child.wait().await {
                    Ok(status) => status.to_string(),
                    Err(error) => error.to_string(),
                },
                Ok(count) => {
                    lines.push(&block[..count]);
                    loop {
                        match lines.next_line() {
                            Ok(Some(line)) => handle_line(control, stream, &handle, line),
                            Ok(None) => break,
                            Err(error) => break 'talk format!("it sent {error}"),
                        }
                    }
                }
                Err(error) => break error.to_string(),
            },
            Some(call) = waiting.recv() => {
                let line = call + "\n";
                let written = tokio::time::timeout(WRITE_TIMEOUT, input.write_all(line.as_bytes()));
                match written.await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => break error.to_string(),
                    Err(_) => break "it does not read its standard input".to_owned(),
                }
            }
        }
    };
    // A traceback ends with the reason. A child of the script may still hold its standard error.
    match tokio::time::timeout(LOG_DRAIN, &mut log).await {
        Ok(Ok(last)) if !last.is_empty() => format!("{why}; it wrote last: {last}"),
        _ => {
            log.abort();
            why
        }
    }
}

fn handle_line(control: &Control, stream: &str, handle: &PluginHandle, line: &[u8]) {
    match parse_incoming(line) {
        IncomingMessage::Single(Ok(Request { method, params, .. })) => match method.as_str() {
            "Plugin.Stream.Ready" => {
                control.handle_script(stream, ScriptEvent::Ready(handle.clone()));
                handle.call("Plugin.Stream.Player.GetProperties", &json!({}));
            }
            "Plugin.Stream.Player.Properties" => {
                if let Value::Object(properties) = params {
                    control.handle_script(stream, ScriptEvent::Properties(properties));
                }
            }
            "Plugin.Stream.Log" => {
                let text = |key| params[key].as_str().unwrap_or_default();
                tracing::info!(
                    stream,
                    severity = text("severity"),
                    "{}",
                    sanitize(text("message"))
                );
            }
            other => tracing::debug!(
                stream,
                "the control script called an unknown method: {}",
                sanitize(other)
            ),
        },
        // The answer to GetProperties contains the properties; other answers are "ok" or an error.
        IncomingMessage::Reply(reply) => match reply.outcome {
            Ok(Value::Object(properties)) => {
                control.handle_script(stream, ScriptEvent::Properties(properties));
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(stream, "the control script: {}", sanitize(&error.message));
            }
        },
        _ => tracing::debug!(stream, "the control script sent a line that is not JSON-RPC"),
    }
}

/// Forwards a script's standard error to the log, line by line; returns the last line with a text.
async fn forward_log(stream: String, log: tokio::process::ChildStderr) -> String {
    let mut log = BufReader::new(log);
    let (mut line, mut last) = (Vec::new(), String::new());
    loop {
        line.clear();
        match (&mut log).take(MAX_LOG_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return last,
            Ok(_) => {
                let text = sanitize(String::from_utf8_lossy(&line).trim_end());
                tracing::debug!(stream, "control script: {text}");
                if !text.is_empty() {
                    last = text;
                }
            }
        }
    }
}

/// A longer line is logged in pieces.
const MAX_LOG_LINE: u64 = 1_024;

/// Removes control characters from a script's text, and limits its length.
fn sanitize(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(500).collect()
}

/// Takes over the properties that a script reports. Metadata that it leaves out stays (it comes
/// once per title), and a picture is replaced by its URL.
pub(crate) fn merge(
    old: &mut Map<String, Value>,
    mut new: Map<String, Value>,
    mut keep_art: impl FnMut(&str, &str) -> Option<String>,
) -> bool {
    if let Some(Value::Object(metadata)) = new.get_mut("metadata") {
        if let Some(art) = metadata.remove("artData") {
            let text = |key| art[key].as_str().unwrap_or_default();
            if let Some(url) = keep_art(text("data"), text("extension")) {
                metadata.insert("artUrl".to_owned(), json!(url));
            }
        }
    } else if let Some(metadata) = old.get("metadata") {
        new.insert("metadata".to_owned(), metadata.clone());
    }
    for key in CAPABILITIES {
        new.entry(key).or_insert(json!(false));
    }
    let changed = *old != new;
    *old = new;
    changed
}

const CAPABILITIES: [&str; 6] =
    ["canControl", "canGoNext", "canGoPrevious", "canPause", "canPlay", "canSeek"];

#[cfg(test)]
mod tests {
    use aulos_blackbox::scratch::ScratchDir;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        let Value::Object(map) = value else { panic!("{value}") };
        map
    }

    #[test]
    fn metadata_stays_until_other_metadata_comes() {
        let mut properties = Map::new();
        let first = map(json!({ "playbackStatus": "playing", "metadata": { "title": "one" } }));
        assert!(merge(&mut properties, first, |_, _| None));
        assert!(merge(&mut properties, map(json!({ "playbackStatus": "paused" })), |_, _| None));
        assert_eq!(properties["metadata"]["title"], "one");
        assert_eq!(properties["canPlay"], false);
        assert!(!merge(&mut properties, map(json!({ "playbackStatus": "paused" })), |_, _| None));
    }

    #[test]
    fn a_script_lies_in_its_directory_or_it_does_not() {
        let folder = ScratchDir::new("scripts").unwrap();
        let dir = folder.join("plug-ins");
        std::fs::create_dir_all(dir.join("sub.py")).unwrap();
        let write = |path: &Path, mode| {
            std::fs::write(path, "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        write(&dir.join("good.py"), 0o755);
        write(&dir.join("plain.py"), 0o644);
        write(&folder.join("outside.py"), 0o755);
        write(&dir.join("sub.py/inner.py"), 0o755);
        std::os::unix::fs::symlink("good.py", dir.join("alias.py")).unwrap();
        std::os::unix::fs::symlink("../outside.py", dir.join("link.py")).unwrap();
        std::os::unix::fs::symlink("/bin/sh", dir.join("sh")).unwrap();
        for good in ["good.py", "alias.py"] {
            find_script(&dir, Path::new(good)).unwrap();
        }
        for (bad, why) in [
            ("sub.py/inner.py", "without a path"),
            ("./good.py", "without a path"),
            ("good.py/", "without a path"),
            ("../outside.py", "without a path"),
            ("/bin/sh", "without a path"),
            ("..", "without a path"),
            (".", "without a path"),
            ("", "without a path"),
            ("link.py", "link out of the directory"),
            ("sh", "link out of the directory"),
            ("plain.py", "not executable"),
            ("sub.py", "directory"),
            ("none.py", "No such file"),
            ("good.py\0", "Invalid argument"),
        ] {
            let error = find_script(&dir, Path::new(bad)).unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn a_picture_becomes_an_address() {
        let mut properties = Map::new();
        let art = json!({ "metadata": { "artData": { "data": "aGk=", "extension": "png" } } });
        merge(&mut properties, map(art), |data, extension| Some(format!("{data}.{extension}")));
        assert_eq!(properties["metadata"], json!({ "artUrl": "aGk=.png" }));
    }
}
