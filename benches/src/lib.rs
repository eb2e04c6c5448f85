//! What every bench needs: rows, the table, the file.
//!
//! A row compares ours with one peer of the same run. The table is printed, and kept in the file that
//! `--rows` names; without it in `target/bench.json` at the root of the repository, where each binary
//! replaces the rows of its parts.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// One comparison. `ratio` is ours / peer; below `target` it is met.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Row {
    pub part: String,
    pub case: String,
    pub ours: f64,
    pub peer: f64,
    pub ratio: f64,
    /// The highest ratio, or, without a peer, the highest value of ours; absent in rows that only
    /// report.
    pub target: Option<f64>,
    pub met: Option<bool>,
}

impl Row {
    /// Ours against a peer.
    pub fn against(part: &str, case: String, ours: f64, peer: f64, target: Option<f64>) -> Self {
        let ratio = ours / peer;
        let met = target.map(|target| ratio <= target);
        Self { part: part.into(), case, ours, peer, ratio, target, met }
    }

    /// Ours against a fixed limit.
    pub fn limit(part: &str, case: String, ours: f64, limit: f64) -> Self {
        let (peer, ratio) = (limit, ours / limit);
        Self {
            part: part.into(),
            case,
            ours,
            peer,
            ratio,
            target: Some(1.0),
            met: Some(ours <= limit),
        }
    }
}

/// Prints the rows and puts them into the file.
pub fn report(rows: &[Row]) {
    println!(
        "{:8} {:58} {:>11} {:>11} {:>7} {:>7} met",
        "part", "case", "ours", "peer", "ratio", "target"
    );
    for row in rows {
        let target = row.target.map_or(String::from("-"), |target| format!("{target:.2}"));
        let met = row.met.map_or("-", |met| if met { "yes" } else { "NO" });
        println!(
            "{:8} {:58} {:11.5} {:11.5} {:7.3} {:>7} {met}",
            row.part, row.case, row.ours, row.peer, row.ratio, target
        );
    }
    let mut words = std::env::args().skip_while(|word| word != "--rows").skip(1);
    if let Some(file) = words.next() {
        let text = serde_json::to_string_pretty(rows).expect("numbers and strings");
        return std::fs::write(file, text).expect("the file for rows can be written");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench.json");
    let mut all: Vec<Row> = std::fs::read(&path)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    all.retain(|old| rows.iter().all(|new| new.part != old.part));
    all.extend_from_slice(rows);
    let _ = std::fs::create_dir_all(path.parent().expect("it has a folder"));
    let text = serde_json::to_string_pretty(&all).expect("numbers and strings");
    std::fs::write(&path, text).expect("target/ can be written");
}

/// The value in the middle.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The smallest value.
pub fn minimum(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::MAX, f64::min)
}

/// A number from the command line: `name=7`.
pub fn argument(name: &str, default: usize) -> usize {
    std::env::args()
        .find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
        .unwrap_or(default)
}

/// Keeps this thread on one processor, where the system lets us.
pub fn pin(processor: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: the set is plain data, and its size is told.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}
