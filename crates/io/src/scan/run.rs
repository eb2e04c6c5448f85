//! Many files at a time, reported in their order.

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
use super::measure::{ScanOptions, ScanReport, measure_counted};
use super::progress::{ProgressCounter, ScanProgress};

/// What [`run`] tells.
#[derive(Debug)]
pub enum ScanEvent {
    /// So much has been heard of all files: some times a second, and after each file.
    Progress(ScanProgress),
    /// A file has been measured, perhaps before others whose report comes first.
    Measured,
    /// The next file's report. Each file has one, in the order of the files.
    Report(Box<ScanReport>),
}

/// Measures `files` on `jobs` threads; with one job, on the caller's alone, which tells how far it
/// is after each file.
///
/// `each` is always called on the caller's thread. When it breaks, no further file is begun.
///
/// # Errors
/// When the system gives no threads.
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
        // A break is the caller's wish, which the caller knows.
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
            // A bridge hands out one file after the other, whoever is free.
            open.enumerate().par_bridge().for_each_with(sender, |sender, (n, file)| {
                // Nobody listens any more after a break.
                sender.send((n, measure_counted(file, options, heard))).ok();
            });
        });
        if emit_in_order(&mut receiver, heard, &mut each).is_break() {
            stop.store(true, Ordering::Relaxed);
        }
    });
    Ok(())
}

/// Puts reports back into order; those that came too early wait.
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

/// How long a progress bar may stand still.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
