//! What the kernel says about this process in `/proc/self`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::log_loss::lost_log_lines;

/// What `/proc/self` says; nothing where there is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ProcessStatistics {
    pub(crate) cpu_seconds: Option<f64>,
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) virtual_bytes: Option<u64>,
    pub(crate) open_fds: Option<usize>,
    pub(crate) max_fds: Option<u64>,
    pub(crate) threads: Option<u64>,
    /// Lines that the log of the program has lost.
    pub(crate) lost_log_lines: Option<u64>,
    /// CPU seconds by the name of the threads.
    pub(crate) thread_cpu_seconds: BTreeMap<String, f64>,
}

/// Threads of a process that are read at most. The server has some twenty.
const MAX_THREADS: usize = 256;

impl ProcessStatistics {
    /// Reads it. The files are made by the kernel; no disk is involved.
    pub(crate) fn read() -> Self {
        let proc = Path::new("/proc/self");
        let mut found = Self {
            open_fds: fs::read_dir(proc.join("fd")).ok().map(Iterator::count),
            max_fds: rustix::process::getrlimit(rustix::process::Resource::Nofile).current,
            lost_log_lines: lost_log_lines(),
            ..Self::default()
        };
        if let Some((_, usage)) = usage(proc) {
            found.cpu_seconds = Some(usage.cpu_seconds);
            found.threads = Some(usage.threads);
            found.virtual_bytes = Some(usage.virtual_bytes);
            found.resident_bytes = Some(usage.resident_bytes);
        }
        for thread in fs::read_dir(proc.join("task")).into_iter().flatten().take(MAX_THREADS) {
            let usage = thread.ok().and_then(|thread| usage(&thread.path()));
            if let Some((name, usage)) = usage {
                *found.thread_cpu_seconds.entry(name).or_default() += usage.cpu_seconds;
            }
        }
        found
    }
}

struct Usage {
    cpu_seconds: f64,
    threads: u64,
    virtual_bytes: u64,
    resident_bytes: u64,
}

/// The name and usage of a process or thread (`proc_pid_stat(5)`).
fn usage(dir: &Path) -> Option<(String, Usage)> {
    let stat = fs::read_to_string(dir.join("stat")).ok()?;
    let ticks = rustix::param::clock_ticks_per_second();
    parse_stat(&stat, ticks, rustix::param::page_size() as u64)
}

fn parse_stat(stat: &str, ticks: u64, page: u64) -> Option<(String, Usage)> {
    // The name may have spaces and parentheses itself.
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // The field with number 3 in the manual is the first one here.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
    let cpu_seconds = (field(14)? + field(15)?) as f64 / ticks as f64;
    let usage = Usage {
        cpu_seconds,
        threads: field(20)?,
        virtual_bytes: field(23)?,
        resident_bytes: field(24)? * page,
    };
    Some((name.to_owned(), usage))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_move_the_fields() {
        let fields: Vec<String> = (3..=52).map(|number| number.to_string()).collect();
        let stat = format!("7 (a) (b c)) {}", fields.join(" "));
        let (name, usage) = parse_stat(&stat, 100, 4_096).unwrap();
        assert_eq!(name, "a) (b c)");
        assert!((usage.cpu_seconds - 0.29).abs() < 1e-9);
        assert_eq!((usage.threads, usage.virtual_bytes, usage.resident_bytes), (20, 23, 98_304));
        assert!(parse_stat("7 (a) S 1", 100, 4_096).is_none());
        assert!(parse_stat("", 100, 4_096).is_none());
    }

    #[test]
    fn this_process_has_threads_memory_and_descriptors() {
        let found = ProcessStatistics::read();
        assert!(found.threads.unwrap() >= 1 && found.resident_bytes.unwrap() > 100_000);
        assert!(found.open_fds.unwrap() >= 3 && found.cpu_seconds.is_some());
        assert!(!found.thread_cpu_seconds.is_empty());
    }
}
