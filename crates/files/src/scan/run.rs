//! Scans several files at a time and reports them in order.

use core::num::NonZeroUsize;
use core::ops::ControlFlow;
use core::time::Duration;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;

use aulos_rt::channel::{Receiver, TryRecvError, unbounded};
use rayon::iter::{ParallelBridge, ParallelIterator};

use super::find::ScanFile;
use super::measure::{ScanReport, measure_counted};
use super::options::ScanOptions;
use super::progress::{ProgressCounter, ScanProgress};

/// Progress of [`scan_files`].
#[derive(Debug)]
pub enum ScanEvent {
    /// Progress, several times per second and after each file.
    Progress(ScanProgress),
    /// A file has been measured; its report may have to wait for earlier ones.
    Measured,
    /// The report of the next file. Each file has one, in the order of the files.
    Report(Box<ScanReport>),
}

/// Measures `files` on `jobs` threads; with one job only on the caller's thread, with progress
/// after each file.
///
/// `each` is always called on the caller's thread. When it breaks, no further file is started.
///
/// # Errors
/// When the system has no threads left.
pub fn scan_files(
    files: Vec<ScanFile>,
    jobs: NonZeroUsize,
    options: &ScanOptions,
    mut each: impl FnMut(ScanEvent) -> ControlFlow<()>,
) -> io::Result<()> {
    // One long file keeps several threads busy; a few short ones do not.
    let processors = available_parallelism().map_or(1, NonZeroUsize::get);
    let jobs = jobs.get().min(files.len().max(processors));
    if jobs <= 1 || files.is_empty() {
        let heard = ProgressCounter::default();
        // The caller knows that it requested the break.
        let _: ControlFlow<()> = files.into_iter().try_for_each(|file| {
            let report = measure_counted(file, options, &heard);
            each(ScanEvent::Progress(heard.read()))?;
            each(ScanEvent::Measured)?;
            each(ScanEvent::Report(Box::new(report)))
        });
        return Ok(());
    }
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(jobs)
        .thread_name(|n| format!("aulos-scan-{n}"))
        .build()
        .map_err(io::Error::other)?;
    let (stop, heard) = (AtomicBool::new(false), ProgressCounter::default());
    let (sender, mut receiver) = unbounded();
    pool.in_place_scope(|scope| {
        let (stop, heard) = (&stop, &heard);
        scope.spawn(move |_| {
            let open = files.into_iter().take_while(|_| !stop.load(Ordering::Relaxed));
            // A bridge assigns one file after another to free threads.
            open.enumerate().par_bridge().for_each_with(sender, |sender, (n, file)| {
                // After a break the receiver is gone.
                sender.send((n, measure_counted(file, options, heard))).ok();
            });
        });
        if emit_in_order(&mut receiver, heard, &mut each).is_break() {
            stop.store(true, Ordering::Relaxed);
        }
    });
    Ok(())
}

/// Restores the order of the reports; early ones wait.
fn emit_in_order(
    receiver: &mut Receiver<(usize, ScanReport)>,
    heard: &ProgressCounter,
    each: &mut impl FnMut(ScanEvent) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let (mut early, mut next) = (BTreeMap::new(), 0);
    loop {
        let received = receiver.recv_timeout(PROGRESS_INTERVAL);
        each(ScanEvent::Progress(heard.read()))?;
        match received {
            Ok((n, report)) => {
                each(ScanEvent::Measured)?;
                early.insert(n, report);
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Closed) => return ControlFlow::Continue(()),
        }
        while let Some(report) = early.remove(&next) {
            each(ScanEvent::Report(Box::new(report)))?;
            next += 1;
        }
    }
}

/// The longest delay of a progress update.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
