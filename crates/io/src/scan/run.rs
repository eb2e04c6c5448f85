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

use super::find::Found;
use super::measure::{Options, Report, measure_counted};
use super::progress::{Counter, Progress};

/// What [`run`] tells.
#[derive(Debug)]
pub enum Event {
    /// So much has been heard of all files: some times a second, and after each file.
    Heard(Progress),
    /// A file has been measured, perhaps before others whose report comes first.
    Measured,
    /// The next file's report. Each file has one, in the order of the files.
    Report(Box<Report>),
}

/// Measures `files` on `jobs` threads; with one job, on the caller's alone, which tells how far it
/// is after each file.
///
/// `each` is always called on the caller's thread. When it breaks, no further file is begun.
///
/// # Errors
/// When the system gives no threads.
pub fn run(
    files: Vec<Found>,
    jobs: NonZeroUsize,
    options: &Options,
    mut each: impl FnMut(Event) -> ControlFlow<()>,
) -> io::Result<()> {
    // One long file keeps several threads busy; a few short ones do not.
    let processors = available_parallelism().map_or(1, NonZeroUsize::get);
    let jobs = jobs.get().min(files.len().max(processors));
    if jobs <= 1 || files.is_empty() {
        let heard = Counter::default();
        // A break is the caller's wish, which the caller knows.
        let _: ControlFlow<()> = files.into_iter().try_for_each(|file| {
            let report = measure_counted(file, options, &heard);
            each(Event::Heard(heard.read()))?;
            each(Event::Measured)?;
            each(Event::Report(Box::new(report)))
        });
        return Ok(());
    }
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(jobs)
        .thread_name(|n| format!("aulos-scan-{n}"))
        .build()
        .map_err(io::Error::other)?;
    let (stop, heard) = (AtomicBool::new(false), Counter::default());
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
        if pass_on(&mut receiver, heard, &mut each).is_break() {
            stop.store(true, Ordering::Relaxed);
        }
    });
    Ok(())
}

/// Puts reports back into order; those that came too early wait.
fn pass_on(
    receiver: &mut Receiver<(usize, Report)>,
    heard: &Counter,
    each: &mut impl FnMut(Event) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let (mut early, mut next) = (BTreeMap::new(), 0);
    loop {
        let received = receiver.recv_timeout(PATIENCE);
        each(Event::Heard(heard.read()))?;
        match received {
            Ok((n, report)) => {
                each(Event::Measured)?;
                early.insert(n, report);
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Closed) => return ControlFlow::Continue(()),
        }
        while let Some(report) = early.remove(&next) {
            each(Event::Report(Box::new(report)))?;
            next += 1;
        }
    }
}

/// How long a progress bar may stand still.
const PATIENCE: Duration = Duration::from_millis(200);
