//! The server as a whole, with nobody listening: what it costs to have it.

use std::io;
use std::process::Command;
use std::time::Duration;

use crate::account;
use crate::bench::row::{Row, Target};
use crate::bench::setting;
use crate::scratch::Scratch;
use crate::server::{Aulos, binary};

/// How long one look at the idle server takes.
const LOOK: Duration = Duration::from_secs(10);

/// Start, CPU, memory and size; the least of several starts.
///
/// # Errors
/// When the server does not run.
pub fn rows() -> io::Result<Vec<Row>> {
    let (mut started, mut cpu, mut resident) = (f64::MAX, f64::MAX, f64::MAX);
    for _ in 0..setting("AULOS_BENCH_ROUNDS", 5) {
        let scratch = Scratch::new("bench")?;
        let server = Aulos::start_with(&scratch, |command| {
            command.env("XDG_RUNTIME_DIR", scratch.path());
        })?;
        started = started.min(server.started_in.as_secs_f64() * 1e3);
        std::thread::sleep(Duration::from_secs(2));
        let before = account::of(server.id())?;
        std::thread::sleep(LOOK);
        let after = account::of(server.id())?;
        cpu = cpu.min((after.cpu - before.cpu).as_secs_f64() / LOOK.as_secs_f64() * 100.0);
        #[expect(clippy::cast_precision_loss, reason = "a process has less than 2^53 bytes")]
        let megabytes = after.resident as f64 / 1e6;
        resident = resident.min(megabytes);
        server.stop()?;
    }
    let row = |case: &str, ours, most| Row {
        part: "server",
        case: case.to_owned(),
        ours,
        peer: None,
        target: Target::Most(most),
    };
    let mut rows = vec![
        row("start to listening, ms", started, 100.0),
        row("idle, one station, % of a core", cpu, 1.5),
        row("idle, one station, MB resident", resident, 15.0),
    ];
    if let Some(size) = stripped_megabytes()? {
        rows.push(row("release binary stripped, MB", size, 20.0));
    } else {
        eprintln!("aulos-bench: no strip: the binary's size is left out");
    }
    Ok(rows)
}

/// Size of a stripped copy; nothing where there is no `strip`.
fn stripped_megabytes() -> io::Result<Option<f64>> {
    let scratch = Scratch::new("strip")?;
    let copy = scratch.join("aulos");
    let stripped = Command::new("strip").arg("-o").arg(&copy).arg(binary()).status();
    if !stripped.is_ok_and(|status| status.success()) {
        return Ok(None);
    }
    #[expect(clippy::cast_precision_loss, reason = "a file of megabytes")]
    let size = std::fs::metadata(copy)?.len() as f64 / 1e6;
    Ok(Some(size))
}
