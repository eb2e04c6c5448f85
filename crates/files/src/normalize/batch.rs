//! Normalizes many files: selection, naming, and parallel execution.

use core::num::NonZeroUsize;
use core::ops::ControlFlow;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use aulos_dsp::meter::Measurement;
use aulos_rt::channel::{Receiver, TryRecvError, UnboundedSender, unbounded};

use super::{
    NormalizeConfig, NormalizeError, NormalizeMethod, NormalizeOutcome, NormalizeTask,
    OutputContainer, normalize_file,
};
use crate::scan::{self, LoudnessSummary, ScanFile};

/// A file to normalize, or why it cannot be.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "a pair")]
pub struct NormalizeItem {
    /// The file and its target.
    pub task: NormalizeTask,
    /// An error that is known in advance.
    pub error: Option<NormalizeError>,
}

/// The result for one file.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "a pair")]
pub struct NormalizeResult {
    /// The file and its target.
    pub task: NormalizeTask,
    /// The outcome.
    pub result: Result<NormalizeOutcome, NormalizeError>,
}

/// Progress of [`run`].
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "there are no other events")]
pub enum NormalizeEvent {
    /// The completed share of the work, 0 to 1, and the number of completed files.
    Progress(f64, usize),
    /// The result of the next file. Each file has one, in the order of the files.
    Finished(Box<NormalizeResult>),
}

/// Plans to normalize the files of the folder `from` to the same structure below `to`. Each becomes
/// a `format`; without one it keeps its format, or becomes FLAC if that cannot be written. Existing
/// files in `to` are excluded, in case it is inside `from`.
#[must_use]
pub fn plan_folder(from: &Path, to: &Path, format: Option<OutputContainer>) -> Vec<NormalizeItem> {
    let inside = fs::canonicalize(to).ok();
    let found = scan::find_files(&[from.to_owned()]).into_iter().filter(|found| {
        let real = fs::canonicalize(&found.path).ok();
        real.zip(inside.as_ref()).is_none_or(|(real, inside)| !real.starts_with(inside))
    });
    let found: Vec<ScanFile> = found.collect();
    let mut taken = BTreeSet::new();
    // Files that keep their names come first; others avoid those names.
    let mut names: Vec<Option<PathBuf>> = found
        .iter()
        .map(|found| {
            let name = found.path.strip_prefix(from).ok()?;
            let keeps =
                OutputContainer::from_path(name).is_some_and(|is| format.is_none_or(|to| to == is));
            (keeps && taken.insert(name.to_owned())).then(|| name.to_owned())
        })
        .collect();
    for (found, name) in found.iter().zip(&mut names).filter(|(_, name)| name.is_none()) {
        *name =
            output_name(found.path.strip_prefix(from).unwrap_or(&found.path), format, &mut taken);
    }
    let items = found.into_iter().zip(names).map(|(ScanFile { path, error }, name)| {
        let is_double = name.is_none();
        let to = name.map_or_else(|| to.to_owned(), |name| to.join(name));
        let error = error.map(NormalizeError::Find);
        let error = error.or_else(|| is_double.then_some(NormalizeError::SameName));
        NormalizeItem {
            task: NormalizeTask {
                from: path,
                to,
                in_place: false,
                create_folders: true,
                container: None,
            },
            error,
        }
    });
    items.collect()
}

/// A name with another extension; appended to the old one where the short name is taken.
fn output_name(
    name: &Path,
    format: Option<OutputContainer>,
    taken: &mut BTreeSet<PathBuf>,
) -> Option<PathBuf> {
    let container =
        format.or_else(|| OutputContainer::from_path(name)).unwrap_or(OutputContainer::Flac);
    let short = name.with_extension(container.extension());
    let mut long = name.as_os_str().to_owned();
    long.push(".");
    long.push(container.extension());
    [short, long.into()].into_iter().find(|name| taken.insert(name.clone()))
}

/// Plans to replace the files that `paths` select, by the same rules as `aulos scan`.
#[must_use]
pub fn plan_in_place(paths: &[PathBuf]) -> Vec<NormalizeItem> {
    let mut seen = BTreeSet::new();
    let items = scan::find_files(paths).into_iter().map(|ScanFile { path, error }| {
        let error = error.map(NormalizeError::Find);
        let real = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        NormalizeItem {
            task: NormalizeTask {
                to: path.clone(),
                from: path,
                in_place: true,
                create_folders: false,
                container: None,
            },
            error,
        }
        .deduplicate(real, &mut seen)
    });
    items.flatten().collect()
}

impl NormalizeItem {
    /// A file with two names, through a link, counts once.
    fn deduplicate(self, real: PathBuf, seen: &mut BTreeSet<PathBuf>) -> Option<Self> {
        (self.error.is_some() || seen.insert(real)).then_some(self)
    }
}

/// Normalizes all files on `jobs` threads. `each` is called on the caller's thread; when it breaks,
/// running work ends soon and its output is deleted.
///
/// # Errors
/// When the system has no threads left.
pub fn run(
    items: Vec<NormalizeItem>,
    jobs: NonZeroUsize,
    config: &NormalizeConfig,
    mut each: impl FnMut(NormalizeEvent) -> ControlFlow<()>,
) -> std::io::Result<()> {
    let albums = config.album && !matches!(config.method, NormalizeMethod::Live(_));
    let meter = BatchProgress::new(&items, if albums { 2 } else { 1 });
    let albums = if albums {
        match measure_albums(&items, jobs, config, &meter, &mut each)? {
            Some(albums) => albums,
            None => return Ok(()),
        }
    } else {
        BTreeMap::new()
    };
    let next = AtomicUsize::new(0);
    let (sender, mut receiver) = unbounded();
    thread::scope(|scope| {
        for n in 0..jobs.get().min(items.len()) {
            let (sender, meter, next, items, albums) =
                (sender.clone(), &meter, &next, &items, &albums);
            let worker = move || run_worker(items, next, config, albums, meter, &sender);
            thread::Builder::new()
                .name(format!("aulos-normalize-{n}"))
                .spawn_scoped(scope, worker)?;
        }
        drop(sender);
        if emit_in_order(&mut receiver, &meter, &mut each).is_break() {
            meter.stop.store(true, Ordering::Relaxed);
        }
        Ok(())
    })
}

/// Takes one file after another.
fn run_worker(
    items: &[NormalizeItem],
    next: &AtomicUsize,
    config: &NormalizeConfig,
    albums: &Albums,
    meter: &BatchProgress,
    sender: &UnboundedSender<(usize, NormalizeResult)>,
) {
    loop {
        let n = next.fetch_add(1, Ordering::Relaxed);
        let Some(item) = items.get(n) else { return };
        let mut share = FileProgress { all: meter, bytes: meter.sizes[n], reported: 0 };
        let result = normalize_item(item, config, albums, &mut share);
        // It is complete anyway.
        let _: ControlFlow<()> = share.report(1.0);
        meter.files.fetch_add(1, Ordering::Relaxed);
        // After a break the receiver is gone.
        sender.send((n, NormalizeResult { task: item.task.clone(), result })).ok();
    }
}

fn normalize_item(
    item: &NormalizeItem,
    config: &NormalizeConfig,
    albums: &Albums,
    share: &mut FileProgress<'_>,
) -> Result<NormalizeOutcome, NormalizeError> {
    if let Some(error) = &item.error {
        return Err(error.duplicate());
    }
    if share.all.stop.load(Ordering::Relaxed) {
        return Err(NormalizeError::Stopped);
    }
    let album = match albums.get(folder_of(&item.task)) {
        None => None,
        Some(Some(album)) => Some(album),
        Some(None) => return Err(NormalizeError::Album),
    };
    if !config.dry_run
        && item.task.create_folders
        && let Some(folder) = item.task.to.parent()
    {
        fs::create_dir_all(folder).map_err(NormalizeError::Save)?;
    }
    let tried = catch_unwind(AssertUnwindSafe(|| {
        normalize_file(&item.task, config, album, |done| share.report(done))
    }));
    tried.unwrap_or(Err(NormalizeError::Internal))
}

impl NormalizeError {
    /// A copy of an error that is known before the work begins.
    fn duplicate(&self) -> Self {
        match self {
            Self::Find(error) => Self::Find(*error),
            _ => Self::SameName,
        }
    }
}

/// The loudness of each folder; `None` if one of its files failed.
type Albums = BTreeMap<PathBuf, Option<LoudnessSummary>>;

fn folder_of(task: &NormalizeTask) -> &Path {
    task.from.parent().unwrap_or_else(|| Path::new(""))
}

/// `None` when `each` requested a stop.
fn measure_albums(
    items: &[NormalizeItem],
    jobs: NonZeroUsize,
    config: &NormalizeConfig,
    meter: &BatchProgress,
    each: &mut impl FnMut(NormalizeEvent) -> ControlFlow<()>,
) -> std::io::Result<Option<Albums>> {
    let options = scan::ScanOptions {
        true_peak: true,
        keep_measurement: true,
        dual_mono: config.settings.dual_mono,
        ..scan::ScanOptions::default()
    };
    let found = items.iter().map(|item| ScanFile {
        path: item.task.from.clone(),
        error: match item.error {
            Some(NormalizeError::Find(error)) => Some(error),
            _ => None,
        },
    });
    let mut wholes: BTreeMap<PathBuf, Option<(Measurement, f64)>> = BTreeMap::new();
    let mut items = items.iter();
    let mut stopped = false;
    scan::scan_files(found.collect(), jobs, &options, |event| {
        let told = match event {
            scan::ScanEvent::Progress(heard) => {
                meter.measured.store(heard.bytes, Ordering::Relaxed);
                each(meter.event())
            }
            scan::ScanEvent::Measured => ControlFlow::Continue(()),
            scan::ScanEvent::Report(report) => {
                if let Some(item) = items.next() {
                    let seconds = report.shape.map_or(0.0, |shape| shape.seconds);
                    // A file without loudness is silent, and does not affect the others.
                    let short = report.error == Some(scan::ScanError::Short);
                    merge_into_album(
                        &mut wholes,
                        folder_of(&item.task),
                        report.measurement.map(|it| *it),
                        seconds,
                        short,
                    );
                }
                ControlFlow::Continue(())
            }
        };
        stopped |= told.is_break();
        told
    })?;
    let options = scan::ScanOptions { true_peak: true, ..scan::ScanOptions::default() };
    let figures = |whole: Option<(Measurement, f64)>| {
        whole.map(|(whole, seconds)| LoudnessSummary::from_measurement(&whole, seconds, &options))
    };
    let albums = wholes.into_iter().map(|(folder, whole)| (folder, figures(whole))).collect();
    Ok((!stopped).then_some(albums))
}

fn merge_into_album(
    wholes: &mut BTreeMap<PathBuf, Option<(Measurement, f64)>>,
    folder: &Path,
    part: Option<Measurement>,
    seconds: f64,
    skip: bool,
) {
    match (wholes.get_mut(folder), part) {
        _ if skip => {}
        (Some(None), _) => {}
        (Some(whole), None) => *whole = None,
        (Some(Some((whole, all))), Some(part)) => {
            // All histories are of the same kind.
            if whole.merge(&part).is_ok() {
                *all += seconds;
            }
        }
        (None, part) => drop(wholes.insert(folder.to_owned(), part.map(|part| (part, seconds)))),
    }
}

/// Restores the order of the results; early ones wait.
fn emit_in_order(
    receiver: &mut Receiver<(usize, NormalizeResult)>,
    meter: &BatchProgress,
    each: &mut impl FnMut(NormalizeEvent) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let (mut early, mut next) = (BTreeMap::new(), 0);
    loop {
        let received = receiver.recv_timeout(PROGRESS_INTERVAL);
        each(meter.event())?;
        match received {
            Ok((n, row)) => drop(early.insert(n, row)),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Closed) => return ControlFlow::Continue(()),
        }
        while let Some(row) = early.remove(&next) {
            each(NormalizeEvent::Finished(Box::new(row)))?;
            next += 1;
        }
    }
}

/// Progress of all threads, in bytes of input files.
struct BatchProgress {
    sizes: Vec<u64>,
    all: u64,
    /// Bytes measured for albums.
    measured: AtomicU64,
    written: AtomicU64,
    files: AtomicUsize,
    stop: AtomicBool,
}

impl BatchProgress {
    fn new(items: &[NormalizeItem], times: u64) -> Self {
        let size = |item: &NormalizeItem| {
            let file = fs::metadata(&item.task.from).ok().filter(fs::Metadata::is_file);
            // A missing file takes no time, but it counts as a file.
            file.map_or(1, |file| file.len().max(1))
        };
        let sizes: Vec<u64> = items.iter().map(size).collect();
        Self {
            all: sizes.iter().sum::<u64>() * times,
            sizes,
            measured: AtomicU64::new(0),
            written: AtomicU64::new(0),
            files: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "a part of all")]
    fn event(&self) -> NormalizeEvent {
        let [heard, written] = [&self.measured, &self.written].map(|it| it.load(Ordering::Relaxed));
        let part = (heard + written) as f64 / self.all.max(1) as f64;
        NormalizeEvent::Progress(part.min(1.0), self.files.load(Ordering::Relaxed))
    }
}

/// One file's share of the progress.
struct FileProgress<'a> {
    all: &'a BatchProgress,
    bytes: u64,
    reported: u64,
}

impl FileProgress<'_> {
    /// The work may turn out larger than estimated; reported progress never decreases.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a file"
    )]
    fn report(&mut self, done: f64) -> ControlFlow<()> {
        let now = ((self.bytes as f64 * done) as u64).min(self.bytes);
        if now > self.reported {
            self.all.written.fetch_add(now - self.reported, Ordering::Relaxed);
            self.reported = now;
        }
        if self.all.stop.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

/// The longest delay of a progress update and of a stop.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
