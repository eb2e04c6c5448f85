//! The reference server: s3s-fs, which keeps objects as files.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{KEY, SECRET};

/// A server that runs until this is dropped.
pub(super) struct Server {
    child: Child,
    root: PathBuf,
    pub(super) address: String,
}

impl Server {
    /// Starts one with a bucket `tapes`; `None`, with a message, if it is not installed.
    pub(super) fn start(root: &Path) -> Option<Self> {
        let Some(program) = find() else {
            // Bypasses the output capture of the test harness: a skip must be visible.
            drop(std::io::stderr().lock().write_all(b"\nskipped: no s3s-fs\n"));
            return None;
        };
        fs::create_dir_all(root.join("tapes")).unwrap();
        let mut child = Command::new(program)
            .args(["--host", "127.0.0.1", "--port", "0"])
            .args(["--access-key", KEY, "--secret-key", SECRET])
            .arg(root)
            .env("RUST_LOG", "s3s_fs=info")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .find_map(|line| Some(line.ok()?.split_once("http://")?.1.trim().to_owned()))
            .expect("it tells where it listens");
        // Its further output is read, so that it never blocks.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self { child, root: root.to_owned(), address })
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The object with this name.
    pub(super) fn object(&self, key: &str) -> Option<Vec<u8>> {
        fs::read(self.root.join("tapes").join(key)).ok()
    }

    /// The names of all objects.
    pub(super) fn objects(&self) -> Vec<String> {
        let (mut all, mut folders) = (Vec::new(), vec![self.root.join("tapes")]);
        while let Some(folder) = folders.pop() {
            for item in fs::read_dir(folder).unwrap() {
                let path = item.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let key = path.strip_prefix(self.root.join("tapes")).unwrap();
                    all.push(key.to_str().unwrap().to_owned());
                }
            }
        }
        all.sort();
        all
    }

    /// Parts that belong to no object.
    pub(super) fn parts(&self) -> usize {
        let parts = fs::read_dir(&self.root).unwrap().map(|item| item.unwrap().file_name());
        parts.filter(|name| name.to_str().unwrap().starts_with(".upload_id-")).count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The directory that scripts/test-setup sets, or the default one below the target directory.
fn find() -> Option<PathBuf> {
    let named = std::env::var_os("AULOS_TEST_TOOLS").map(PathBuf::from);
    let usual = || Some(std::env::current_exe().ok()?.ancestors().nth(3)?.join("test-tools/bin"));
    let path = named.or_else(usual)?.join("s3s-fs");
    path.is_file().then_some(path)
}
