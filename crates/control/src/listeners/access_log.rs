//! The access log: a line for each web listener that has ended.
//!
//! Lines go through a bounded queue to a blocking thread, so a slow disk delays nothing; what does
//! not fit is counted. The file is opened for each batch, so that it can be renamed at any time.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc::{Receiver, Sender, channel};

/// The writing end; without a configured file nothing is written.
#[derive(Debug)]
pub(super) struct AccessLog {
    lines: Sender<String>,
    receiver: std::sync::Mutex<Option<Receiver<String>>>,
    is_enabled: AtomicBool,
}

impl Default for AccessLog {
    fn default() -> Self {
        let (lines, receiver) = channel(MAX_LINES);
        Self { lines, receiver: Some(receiver).into(), is_enabled: AtomicBool::new(false) }
    }
}

impl AccessLog {
    pub(super) fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    pub(super) fn write(&self, line: String) {
        if self.lines.try_send(line).is_err() {
            tracing::warn!("a line of the access log was left out: its disk is too slow");
        }
    }

    /// Writes lines into the file that is configured at the time, until the future is dropped.
    pub(super) async fn run(&self, configured: impl Fn() -> Option<PathBuf>) {
        let receiver = self.receiver.lock().ok().and_then(|mut receiver| receiver.take());
        let Some(mut receiver) = receiver else { return };
        let mut has_failed = false;
        let mut batch = Vec::new();
        loop {
            let path = configured();
            self.is_enabled.store(path.is_some(), Ordering::Relaxed);
            let wait =
                tokio::time::timeout(CONFIG_INTERVAL, receiver.recv_many(&mut batch, MAX_LINES));
            if wait.await.is_err() {
                continue;
            }
            let (Some(path), text) = (path, std::mem::take(&mut batch).concat()) else { continue };
            let shown = path.display().to_string();
            let written = tokio::task::spawn_blocking(move || append(&path, &text)).await;
            let result = written.unwrap_or_else(|error| Err(io::Error::other(error)));
            if let (Err(error), false) = (&result, has_failed) {
                tracing::warn!(file = shown, %error, "cannot write the access log");
            }
            has_failed = result.is_err();
        }
    }
}

fn append(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).mode(0o640).open(path)?;
    file.write_all(text.as_bytes())
}

/// Lines that wait for the disk.
const MAX_LINES: usize = 4_096;

/// How soon a changed configuration is used.
const CONFIG_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_appended_to_a_file_that_may_be_renamed_meanwhile() {
        let folder = std::env::temp_dir().join(format!("aulos-log-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("access.log");
        append(&path, "a\n").unwrap();
        append(&path, "b\n").unwrap();
        std::fs::rename(&path, folder.join("old")).unwrap();
        append(&path, "c\n").unwrap();
        assert_eq!(std::fs::read_to_string(folder.join("old")).unwrap(), "a\nb\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "c\n");
        assert!(append(&folder, "d\n").is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
