//! What the kernel says of a process.

use std::fs;

/// Up to some moment.
pub(crate) struct Usage {
    /// Nanoseconds on a processor, of all its threads.
    pub(crate) run_ns: u64,
    pub(crate) wall_ns: u64,
    pub(crate) switches: u64,
    pub(crate) threads: usize,
    pub(crate) rss_kb: u64,
}

impl Usage {
    pub(crate) fn of(process: u32) -> Result<Self, String> {
        let mut usage = Self {
            run_ns: 0,
            wall_ns: aulos_rt::clock::now(),
            switches: 0,
            threads: 0,
            rss_kb: number(&format!("/proc/{process}/status"), "VmRSS:"),
        };
        let threads = fs::read_dir(format!("/proc/{process}/task")).map_err(|e| e.to_string())?;
        for thread in threads.flatten() {
            let path = thread.path();
            let times = fs::read_to_string(path.join("schedstat")).unwrap_or_default();
            let run = times.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
            usage.run_ns += run.unwrap_or(0);
            let status = path.join("status").display().to_string();
            usage.switches += number(&status, "voluntary_ctxt_switches:")
                + number(&status, "nonvoluntary_ctxt_switches:");
            usage.threads += 1;
        }
        Ok(usage)
    }

    /// What was used between two moments.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            run_ns: self.run_ns.saturating_sub(before.run_ns),
            wall_ns: self.wall_ns.saturating_sub(before.wall_ns).max(1),
            switches: self.switches.saturating_sub(before.switches),
            ..*self
        }
    }
}

/// The number behind a word at the beginning of a line.
fn number(path: &str, word: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(word));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
