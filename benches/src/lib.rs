//! What every bench needs: rows, the table, the file.
//!
//! A row compares ours with one peer of the same run. `scripts/bench` joins the rows of all programs
//! to one table.

use serde::Serialize;

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub part: String,
    pub case: String,
    pub ours: f64,
    pub peer: Option<f64>,
    /// Ours by the peer's.
    pub ratio: Option<f64>,
    /// What must hold, in words; absent in rows that only report.
    pub target: Option<String>,
    pub met: Option<bool>,
}

impl Row {
    /// Ours against a peer; `target` is the highest ratio.
    pub fn against(part: &str, case: String, ours: f64, peer: f64, target: Option<f64>) -> Self {
        let ratio = ours / peer;
        Self {
            part: part.into(),
            case,
            ours,
            peer: Some(peer),
            ratio: Some(ratio),
            target: target.map(|target| format!("ratio <= {target:.3}")),
            met: target.map(|target| ratio <= target),
        }
    }

    /// Ours against a fixed limit.
    pub fn limit(part: &str, case: String, ours: f64, limit: f64) -> Self {
        let (target, met) = (Some(format!("<= {limit}")), Some(ours <= limit));
        Self { target, met, ..Self::figure(part, case, ours) }
    }

    /// For those who want to know.
    pub fn figure(part: &str, case: String, ours: f64) -> Self {
        Self { part: part.into(), case, ours, peer: None, ratio: None, target: None, met: None }
    }
}

/// Prints the rows; with `--rows FILE`, as `scripts/bench` calls its programs, puts them there too.
pub fn report(rows: &[Row]) {
    println!(
        "{:8} {:62} {:>10} {:>10} {:>7} {:>14} met",
        "part", "case", "ours", "peer", "ratio", "target"
    );
    let number =
        |value: Option<f64>| value.map_or(String::from("-"), |value| format!("{value:.5}"));
    for row in rows {
        let (peer, ratio) = (number(row.peer), row.ratio.map_or("-".into(), |r| format!("{r:.3}")));
        let target = row.target.as_deref().unwrap_or("-");
        let met = row.met.map_or("-", |met| if met { "yes" } else { "NO" });
        println!(
            "{:8} {:62} {:10.5} {peer:>10} {ratio:>7} {target:>14} {met}",
            row.part, row.case, row.ours
        );
    }
    let words: Vec<String> = std::env::args().collect();
    if let Some(pair) = words.windows(2).find(|pair| pair[0] == "--rows") {
        let text = serde_json::to_string_pretty(rows).expect("numbers and strings");
        std::fs::write(&pair[1], text).expect("the file for the rows can be written");
    }
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
