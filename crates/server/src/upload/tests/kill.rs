//! Uploads under kill -9.
//!
//! The killed process is this test program, started again for this one test.

use std::process::{Command, Stdio};

use super::*;

const CHILD: &str = "AULOS_UPLOAD_CHILD";
const NAME: &str = "upload::tests::kill::pending_uploads_survive_a_kill_at_any_time";

/// Uploads until it is killed.
fn child(dir: &Path, endpoint: &str) {
    let station = RecordingHarness::start(dir, &config(endpoint));
    station.wait_until_idle();
    std::fs::write(dir.join("finished"), b"").unwrap();
}

#[test]
fn pending_uploads_survive_a_kill_at_any_time() {
    if let Ok(told) = std::env::var(CHILD) {
        let (endpoint, dir) = told.split_once(' ').unwrap();
        return child(Path::new(dir), endpoint);
    }
    let Some((server, dir)) = server("upload-kill") else { return };
    let nowhere = config("http://127.0.0.1:1");
    let station = RecordingHarness::start(&dir, &nowhere);
    let mut files = Vec::new();
    for number in 0..40 {
        let size = if number % 5 == 4 { 2 * PART + 1 } else { 40_000 };
        files.push((format!("{number}.wav"), noise(number, size)));
    }
    for (name, bytes) in &files {
        station.record(name, bytes);
    }
    station.stop();
    let told = format!("{} {}", server.endpoint(), dir.display());
    let mut chance = noise(77, 1_000).into_iter();
    let mut kills = 0;
    while !dir.join("finished").exists() {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(CHILD, &told)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // The later it is killed, the more it has done; the last one may finish.
        let lives = u64::from(chance.next().unwrap_or(255)) + 20 * kills;
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(lives) && child.try_wait().unwrap().is_none()
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().ok();
        child.wait().unwrap();
        kills += 1;
        for (name, bytes) in &files {
            let here = dir.join("rec").join(name).exists();
            assert!(here || has(&server, name, bytes), "{name} is lost after {kills} kills");
        }
        assert!(kills < 500, "it gets nowhere");
    }
    for (name, bytes) in &files {
        assert!(has(&server, name, bytes), "{name}");
        assert!(!dir.join("rec").join(name).exists(), "{name}");
    }
    assert!(kills > 1, "it was never killed: the files are too few for this machine");
}
