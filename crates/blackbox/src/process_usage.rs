//! Resource usage of a process, as reported by the kernel.

use std::time::Duration;
use std::{fs, io};

/// Resource usage of a process at one time.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessUsage {
    /// CPU time of all its live threads, to the nanosecond where the kernel provides schedstat.
    pub cpu: Duration,
    /// Number of threads.
    pub threads: usize,
    /// Resident memory, bytes.
    pub resident: u64,
}

/// Reads the resource usage of a running process.
///
/// # Errors
/// If there is no such process, or `/proc` is not that of Linux.
pub fn read(pid: u32) -> io::Result<ProcessUsage> {
    let mut account = ProcessUsage::default();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end between the listing and the read.
        if let Ok(cpu) = cpu_of_thread(&thread?.path()) {
            account.threads += 1;
            account.cpu += cpu;
        }
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let resident = status.lines().find_map(|line| {
        line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    account.resident = resident.unwrap_or(0) * 1024;
    Ok(account)
}

/// Number of open file descriptors of a process.
///
/// # Errors
/// As [`read`].
pub fn descriptors(pid: u32) -> io::Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// `schedstat` counts nanoseconds; without it, `stat` counts ticks of 10 ms (fields 14 and 15 of
/// proc(5), which follow the name in parentheses).
fn cpu_of_thread(thread: &std::path::Path) -> io::Result<Duration> {
    if let Ok(text) = fs::read_to_string(thread.join("schedstat"))
        && let Some(ns) = text.split(' ').next().and_then(|word| word.parse().ok())
    {
        return Ok(Duration::from_nanos(ns));
    }
    let text = fs::read_to_string(thread.join("stat"))?;
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(2).filter_map(|w| w.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(10 * ticks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_in_the_account() {
        let before = read(std::process::id()).unwrap();
        let mut x = 1_u64;
        while read(std::process::id()).unwrap().cpu < before.cpu + Duration::from_millis(30) {
            for _ in 0..10_000 {
                x = std::hint::black_box(x.wrapping_mul(3));
            }
        }
        assert!(before.threads >= 1 && before.resident > 100_000, "{before:?}");
    }
}
