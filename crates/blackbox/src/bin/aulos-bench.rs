//! `aulos-bench [PART]... --rows FILE`: measures the whole server and compares it with others.
//! `aulos-bench --table FILE...`: joins files of rows into one JSON list on stdout, and prints the
//! table on stderr.
//!
//! `AULOS_BENCH_ROUNDS` (5), `AULOS_BENCH_CLIENTS` (500, then 2,000) and `AULOS_BENCH_SRT_SECONDS`
//! (600) allow a shorter run. The part `srt` takes that long, and runs where it is named only.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use aulos_blackbox::bench::{fanout, mounts, row, server, srt};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.split_first() {
        Some((first, files)) if first == "--table" => row::join(files),
        _ => measure(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("aulos-bench: {e}");
            ExitCode::from(70)
        }
    }
}

fn measure(args: &[String]) -> std::io::Result<()> {
    let file = args.windows(2).find(|pair| pair[0] == "--rows").map(|pair| PathBuf::from(&pair[1]));
    let parts: Vec<&str> =
        args.iter().take_while(|arg| *arg != "--rows").map(String::as_str).collect();
    let wanted = |part: &str| parts.is_empty() || parts.contains(&part);
    let mut rows = Vec::new();
    if wanted("server") {
        rows.extend(server::rows()?);
    }
    if wanted("fan-out") {
        rows.extend(fanout::rows()?);
    }
    if wanted("mounts") {
        rows.extend(mounts::rows()?);
    }
    if parts.contains(&"srt") {
        rows.extend(srt::rows()?);
    }
    match file {
        Some(file) => std::fs::write(file, row::json(&rows).to_string()),
        None => {
            row::print(&rows);
            Ok(())
        }
    }
}
