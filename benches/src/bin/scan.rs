//! What does it cost to measure files, and arrays from Python?
//!
//! `aulos scan --true-peak --jobs 1` beside loudgain (which measures the same: integrated, range, true
//! peak) and beside ffmpeg's `ebur128=peak=true` less what ffmpeg takes to decode, on `s=600` seconds
//! of programme at 48 kHz, 16 bit, stereo, as WAV and FLAC; then the Python package beside pyloudnorm
//! on a contiguous float32 array. Columns are seconds of user CPU time, the smallest of `reps=5`
//! rounds in which all take turns. "All cores" is wall time beside that of one thread, eight files at
//! once: it means something only on a quiet machine.
//! `AULOS_BIN` is the program, `AULOS_PYTHON` a Python with aulos and pyloudnorm.
//! Bad would be: less than the ratios of the targets.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use aulos_benches::{Row, argument, report};

const PROGRAMME: &str = "anoisesrc=r=48000:c=pink:seed=5:a=0.6,tremolo=f=0.3:d=0.9";

fn main() {
    let (reps, seconds) = (argument("reps", 5), argument("s", 600));
    let aulos = std::env::var_os("AULOS_BIN").unwrap_or_else(|| "target/release/aulos".into());
    let mut rows = Vec::new();
    for (name, loudgain) in [("wav", 25.0), ("flac", 5.0)] {
        let file = sound(name, seconds);
        files(&mut rows, &aulos, name, &file, loudgain, reps);
        cores(&mut rows, &aulos, name, &file, reps);
    }
    match std::env::var_os("AULOS_PYTHON") {
        Some(python) => rows.extend(from_python(&python, reps)),
        None => println!("skipped: no AULOS_PYTHON"),
    }
    report(&rows);
}

/// One thread beside the peers.
fn files(
    rows: &mut Vec<Row>,
    aulos: &OsString,
    name: &str,
    file: &Path,
    loudgain: f64,
    reps: usize,
) {
    let program = |name: &str, words: &str| {
        let mut command = Command::new(name);
        command.args(
            words
                .split(' ')
                .map(|word| if word == "FILE" { file.as_os_str() } else { word.as_ref() }),
        );
        command
    };
    let mut best = [f64::INFINITY; 4];
    for _ in 0..reps {
        let mut ours = Command::new(aulos);
        ours.args(["scan", "--true-peak", "--jobs", "1", "--json"]).arg(file);
        let times = [
            cost(ours).user,
            cost(program("loudgain", "-s s -q -O FILE")).user,
            cost(program(
                "ffmpeg",
                "-v error -threads 1 -i FILE -af ebur128=peak=true:framelog=verbose -f null -",
            ))
            .user,
            cost(program("ffmpeg", "-v error -threads 1 -i FILE -f null -")).user,
        ];
        for (best, time) in best.iter_mut().zip(times) {
            *best = best.min(time);
        }
    }
    let [ours, theirs, filtered, decoded] = best;
    let label = |peer| format!("{name}, one thread, s / {peer}");
    rows.push(Row::against("scan", label("loudgain"), ours, theirs, Some(1.0 / loudgain)));
    rows.push(Row::against("scan", label("ffmpeg ebur128, whole"), ours, filtered, None));
    rows.push(Row::against(
        "scan",
        label("the same less decoding"),
        ours,
        filtered - decoded,
        None,
    ));
}

/// All cores beside one, eight files.
fn cores(rows: &mut Vec<Row>, aulos: &OsString, name: &str, file: &Path, reps: usize) {
    let folder = file.with_extension(format!("{name}.d"));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    for copy in 0..8 {
        let link = folder.join(format!("{copy}.{name}"));
        if !link.exists() {
            std::fs::hard_link(file, link).expect("a file can be linked");
        }
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let run = |jobs: usize, path: &Path| {
        let mut command = Command::new(aulos);
        command.args(["scan", "--true-peak", "--json", "--jobs"]).arg(jobs.to_string()).arg(path);
        cost(command).wall
    };
    for (what, path) in [("8 files", folder.as_path()), ("one file", file)] {
        let (mut all, mut one) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..reps {
            all = all.min(run(cores, path));
            one = one.min(run(1, path));
        }
        let label = format!("{name}, {what}, {cores} threads, wall s / one thread");
        rows.push(Row::against("scan", label, all, one, None));
    }
}

/// The rows that the script prints, one a line: case, ours, peer, how many times faster it must be.
fn from_python(python: &OsString, reps: usize) -> Vec<Row> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin/scan.py");
    let output = Command::new(python).arg(script).arg(reps.to_string()).output();
    let output = output.expect("python can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let row = |line: &str| {
        let words: Vec<&str> = line.split('\t').collect();
        let number = |at: usize| words[at].parse::<f64>().expect("a number");
        let target = (number(3) > 0.0).then(|| 1.0 / number(3));
        Row::against("python", words[0].into(), number(1), number(2), target)
    };
    said.lines().map(row).collect()
}

struct Cost {
    user: f64,
    wall: f64,
}

fn cost(mut command: Command) -> Cost {
    let children = || {
        // SAFETY: the kernel fills plain data in.
        unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
            usage.ru_utime.tv_sec as f64 + usage.ru_utime.tv_usec as f64 * 1e-6
        }
    };
    let (start, before) = (Instant::now(), children());
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null()).status();
    assert!(status.is_ok_and(|status| status.success()), "{command:?}");
    Cost { user: children() - before, wall: start.elapsed().as_secs_f64() }
}

fn sound(extension: &str, seconds: usize) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench-sound");
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let file = folder.join(format!("programme-{seconds}.{extension}"));
    if !file.exists() {
        let mut ffmpeg = Command::new("ffmpeg");
        ffmpeg.args(["-v", "error", "-f", "lavfi", "-i", PROGRAMME, "-t", &seconds.to_string()]);
        ffmpeg.args(["-ac", "2", "-sample_fmt", "s16"]).arg(&file);
        assert!(ffmpeg.status().is_ok_and(|status| status.success()), "ffmpeg makes the sound");
    }
    file
}
