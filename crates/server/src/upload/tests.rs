//! Uploads to a real S3 server that checks signatures and digests (s3s-fs): its files are compared
//! with the originals, byte by byte. A proxy between the two injects faults.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests are tests; clippy sees only functions that are marked as such"
)]

mod faults;
mod kill;
mod objects;
mod plain;
mod reference_server;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aulos_config::{RedactedDebug, StorageTarget, UploadTarget};
use aulos_core::{Rng, Span};

use super::uploader::Uploader;
use super::{UploadTiming, UploadWorker};
use aulos_blackbox::scratch::ScratchDir;
use reference_server::Server;

const KEY: &str = "AKIDEXAMPLE";
const SECRET: &str = "not much of a secret";
/// The minimum part size of S3.
const PART: usize = 5 << 20;

/// Timing for tests, with this stall time-out.
const fn pace(stall: Duration) -> UploadTiming {
    UploadTiming {
        first_pause: Span::from_millis(20),
        longest_pause: Span::from_millis(200),
        file_pause: Span::from_millis(200),
        stall_timeout: stall,
    }
}

fn config(endpoint: &str) -> UploadTarget {
    UploadTarget {
        storage: StorageTarget {
            endpoint: endpoint.to_owned(),
            region: "us-east-1".to_owned(),
            bucket: "tapes".to_owned(),
            prefix: "radio/roof".to_owned(),
            path_style: true,
            access_key: KEY.to_owned(),
            secret_key: RedactedDebug(SECRET.to_owned()),
            storage_class: None,
        },
        keep_local: false,
        concurrency: 2,
        part_bytes: PART as u64,
    }
}

/// A recording's directory, and its running uploads.
struct RecordingHarness {
    dir: PathBuf,
    uploader: Uploader,
    porter: UploadWorker,
}

impl RecordingHarness {
    fn start(dir: &Path, config: &UploadTarget) -> Self {
        Self::start_with(dir, config, Duration::from_secs(60))
    }

    fn start_with(dir: &Path, config: &UploadTarget, stall: Duration) -> Self {
        let (spool, root) = (dir.join("spool"), dir.join("rec"));
        std::fs::create_dir_all(&root).unwrap();
        let (uploader, chore) =
            Uploader::with_timing(config, &root, &spool, pace(stall), Arc::default()).unwrap();
        let mut porter = UploadWorker::default();
        porter.spawn(chore).unwrap();
        Self { dir: dir.to_owned(), uploader, porter }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join("rec").join(name)
    }

    /// Writes a file with these bytes, and adds it.
    fn record(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        self.uploader.add(&path, None).unwrap();
    }

    /// Waits until no file waits.
    fn wait_until_idle(&self) {
        wait(
            "everything is uploaded",
            || self.uploader.state().waiting == 0,
            || format!("{:?}", self.uploader.state()),
        );
    }

    /// Stops as a server does.
    fn stop(self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(self.uploader.end());
        drop(self.porter);
    }
}

/// Waits for a condition, long enough for the slowest machine.
fn wait(what: &str, mut is: impl FnMut() -> bool, tell: impl Fn() -> String) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(120), "{what}: not yet; {}", tell());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Incompressible, unique bytes.
fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

/// A server and an empty directory; `None`, with a message, if it is not installed.
fn server(name: &str) -> Option<(Server, ScratchDir)> {
    let dir = ScratchDir::new(name).unwrap();
    let server = Server::start(&dir.join("s3"))?;
    Some((server, dir))
}

/// Whether the server has this file, under its name or, if an incomplete or apparent object of that
/// name existed, with a tag.
fn has(server: &Server, name: &str, bytes: &[u8]) -> bool {
    let tagged = format!("radio/roof/{}-", name.strip_suffix(".wav").unwrap());
    let plain = format!("radio/roof/{name}");
    let mut names = server.objects().into_iter();
    names.any(|key| {
        (key == plain || key.starts_with(&tagged)) && server.object(&key).as_deref() == Some(bytes)
    })
}
