//! Many files: which ones, what each is going to be called, and some at a time.

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

use super::{Container, Manner, NormalizeError, Outcome, Task, Wishes, file};
use crate::scan::{self, Found, Loudness};

/// A file that is to be normalised, or why that is not even tried.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "a pair")]
pub struct Item {
    /// The file, and what becomes of it.
    pub task: Task,
    /// What is known already to be wrong.
    pub error: Option<NormalizeError>,
}

/// What became of one file.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "a pair")]
pub struct Row {
    /// The file, and what became of it.
    pub task: Task,
    /// How that went.
    pub result: Result<Outcome, NormalizeError>,
}

/// What [`run`] tells.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "there is nothing else to tell")]
pub enum Event {
    /// So much of all work is done, 0 to 1, and so many files.
    Done(f64, usize),
    /// The next file's row. Each file has one, in the order of the files.
    Row(Box<Row>),
}

/// The files of the folder `from`, to be put in the same order below `to`. Each becomes a `format`;
/// without one it stays what it is, or, if that is not written here, becomes FLAC. What lies in `to`
/// already is none of the files, should that be a part of `from`.
#[must_use]
pub fn folder(from: &Path, to: &Path, format: Option<Container>) -> Vec<Item> {
    let inside = fs::canonicalize(to).ok();
    let found = scan::find(&[from.to_owned()]).into_iter().filter(|found| {
        let real = fs::canonicalize(&found.path).ok();
        real.zip(inside.as_ref()).is_none_or(|(real, inside)| !real.starts_with(inside))
    });
    let found: Vec<Found> = found.collect();
    let mut taken = BTreeSet::new();
    // Those that keep their names come first; others give way to them.
    let mut names: Vec<Option<PathBuf>> = found
        .iter()
        .map(|found| {
            let name = found.path.strip_prefix(from).ok()?;
            let keeps = Container::of(name).is_some_and(|is| format.is_none_or(|to| to == is));
            (keeps && taken.insert(name.to_owned())).then(|| name.to_owned())
        })
        .collect();
    for (found, name) in found.iter().zip(&mut names).filter(|(_, name)| name.is_none()) {
        *name = renamed(found.path.strip_prefix(from).unwrap_or(&found.path), format, &mut taken);
    }
    let items = found.into_iter().zip(names).map(|(Found { path, error }, name)| {
        let is_double = name.is_none();
        let to = name.map_or_else(|| to.to_owned(), |name| to.join(name));
        let error = error.map(NormalizeError::Find);
        let error = error.or_else(|| is_double.then_some(NormalizeError::SameName));
        Item {
            task: Task { from: path, to, in_place: false, folders: true, container: None },
            error,
        }
    });
    items.collect()
}

/// A name with another ending; behind the old one where the short name is taken.
fn renamed(
    name: &Path,
    format: Option<Container>,
    taken: &mut BTreeSet<PathBuf>,
) -> Option<PathBuf> {
    let container = format.or_else(|| Container::of(name)).unwrap_or(Container::Flac);
    let short = name.with_extension(container.ending());
    let mut long = name.as_os_str().to_owned();
    long.push(".");
    long.push(container.ending());
    [short, long.into()].into_iter().find(|name| taken.insert(name.clone()))
}

/// The files that `paths` mean, as `aulos scan` finds them, each to be replaced.
#[must_use]
pub fn in_place(paths: &[PathBuf]) -> Vec<Item> {
    let mut seen = BTreeSet::new();
    let items = scan::find(paths).into_iter().map(|Found { path, error }| {
        let error = error.map(NormalizeError::Find);
        let real = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        Item {
            task: Task {
                to: path.clone(),
                from: path,
                in_place: true,
                folders: false,
                container: None,
            },
            error,
        }
        .unless_seen(real, &mut seen)
    });
    items.flatten().collect()
}

impl Item {
    /// A file that has two names, by a link, is one file.
    fn unless_seen(self, real: PathBuf, seen: &mut BTreeSet<PathBuf>) -> Option<Self> {
        (self.error.is_some() || seen.insert(real)).then_some(self)
    }
}

/// Normalises all of them on `jobs` threads. `each` is called on the caller's; when it breaks, what
/// is under way ends soon, and nothing of it is left.
///
/// # Errors
/// When the system gives no threads.
pub fn run(
    items: Vec<Item>,
    jobs: NonZeroUsize,
    wishes: &Wishes,
    mut each: impl FnMut(Event) -> ControlFlow<()>,
) -> std::io::Result<()> {
    let albums = wishes.album && !matches!(wishes.manner, Manner::Live(_));
    let meter = Shared::new(&items, if albums { 2 } else { 1 });
    let albums = if albums {
        match measure_albums(&items, jobs, wishes, &meter, &mut each)? {
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
            let worker = move || work(items, next, wishes, albums, meter, &sender);
            thread::Builder::new()
                .name(format!("aulos-normalize-{n}"))
                .spawn_scoped(scope, worker)?;
        }
        drop(sender);
        if pass_on(&mut receiver, &meter, &mut each).is_break() {
            meter.stop.store(true, Ordering::Relaxed);
        }
        Ok(())
    })
}

/// One file after the other, whoever is free.
fn work(
    items: &[Item],
    next: &AtomicUsize,
    wishes: &Wishes,
    albums: &Albums,
    meter: &Shared,
    sender: &UnboundedSender<(usize, Row)>,
) {
    loop {
        let n = next.fetch_add(1, Ordering::Relaxed);
        let Some(item) = items.get(n) else { return };
        let mut share = Share { all: meter, bytes: meter.sizes[n], told: 0 };
        let result = one(item, wishes, albums, &mut share);
        // It is over anyway.
        let _: ControlFlow<()> = share.tell(1.0);
        meter.files.fetch_add(1, Ordering::Relaxed);
        // Nobody listens any more after a break.
        sender.send((n, Row { task: item.task.clone(), result })).ok();
    }
}

fn one(
    item: &Item,
    wishes: &Wishes,
    albums: &Albums,
    share: &mut Share<'_>,
) -> Result<Outcome, NormalizeError> {
    if let Some(error) = &item.error {
        return Err(error.again());
    }
    if share.all.stop.load(Ordering::Relaxed) {
        return Err(NormalizeError::Stopped);
    }
    let album = match albums.get(folder_of(&item.task)) {
        None => None,
        Some(Some(album)) => Some(album),
        Some(None) => return Err(NormalizeError::Album),
    };
    if !wishes.dry_run
        && item.task.folders
        && let Some(folder) = item.task.to.parent()
    {
        fs::create_dir_all(folder).map_err(NormalizeError::Save)?;
    }
    let tried =
        catch_unwind(AssertUnwindSafe(|| file(&item.task, wishes, album, |done| share.tell(done))));
    tried.unwrap_or(Err(NormalizeError::Internal))
}

impl NormalizeError {
    /// The same once more, of those that are known before work begins.
    fn again(&self) -> Self {
        match self {
            Self::Find(error) => Self::Find(*error),
            _ => Self::SameName,
        }
    }
}

/// The figures of each folder; `None` for one of which a file failed.
type Albums = BTreeMap<PathBuf, Option<Loudness>>;

fn folder_of(task: &Task) -> &Path {
    task.from.parent().unwrap_or_else(|| Path::new(""))
}

/// `None` when `each` wanted no more.
fn measure_albums(
    items: &[Item],
    jobs: NonZeroUsize,
    wishes: &Wishes,
    meter: &Shared,
    each: &mut impl FnMut(Event) -> ControlFlow<()>,
) -> std::io::Result<Option<Albums>> {
    let options = scan::Options {
        true_peak: true,
        keep: true,
        dual_mono: wishes.settings.dual_mono,
        ..scan::Options::default()
    };
    let found = items.iter().map(|item| Found {
        path: item.task.from.clone(),
        error: match item.error {
            Some(NormalizeError::Find(error)) => Some(error),
            _ => None,
        },
    });
    let mut wholes: BTreeMap<PathBuf, Option<(Measurement, f64)>> = BTreeMap::new();
    let mut items = items.iter();
    let mut stopped = false;
    scan::run(found.collect(), jobs, &options, |event| {
        let told = match event {
            scan::Event::Heard(heard) => {
                meter.heard.store(heard.bytes, Ordering::Relaxed);
                each(meter.done())
            }
            scan::Event::Measured => ControlFlow::Continue(()),
            scan::Event::Report(report) => {
                if let Some(item) = items.next() {
                    let seconds = report.shape.map_or(0.0, |shape| shape.seconds);
                    // What has no loudness is silent, and no reason against the others.
                    let short = report.error == Some(scan::ScanError::Short);
                    merge(
                        &mut wholes,
                        folder_of(&item.task),
                        report.kept.map(|it| *it),
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
    let options = scan::Options { true_peak: true, ..scan::Options::default() };
    let figures = |whole: Option<(Measurement, f64)>| {
        whole.map(|(whole, seconds)| Loudness::of(&whole, seconds, &options))
    };
    let albums = wholes.into_iter().map(|(folder, whole)| (folder, figures(whole))).collect();
    Ok((!stopped).then_some(albums))
}

fn merge(
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
            // All have a history of one kind.
            if whole.merge(&part).is_ok() {
                *all += seconds;
            }
        }
        (None, part) => drop(wholes.insert(folder.to_owned(), part.map(|part| (part, seconds)))),
    }
}

/// Puts rows back into order; those that came too early wait.
fn pass_on(
    receiver: &mut Receiver<(usize, Row)>,
    meter: &Shared,
    each: &mut impl FnMut(Event) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let (mut early, mut next) = (BTreeMap::new(), 0);
    loop {
        let received = receiver.recv_timeout(PATIENCE);
        each(meter.done())?;
        match received {
            Ok((n, row)) => drop(early.insert(n, row)),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Closed) => return ControlFlow::Continue(()),
        }
        while let Some(row) = early.remove(&next) {
            each(Event::Row(Box::new(row)))?;
            next += 1;
        }
    }
}

/// What the threads have done, in bytes of the files.
struct Shared {
    sizes: Vec<u64>,
    all: u64,
    /// Bytes of which albums were measured.
    heard: AtomicU64,
    written: AtomicU64,
    files: AtomicUsize,
    stop: AtomicBool,
}

impl Shared {
    fn new(items: &[Item], times: u64) -> Self {
        let size = |item: &Item| {
            let file = fs::metadata(&item.task.from).ok().filter(fs::Metadata::is_file);
            // What is not there is no work, but it is one of the files.
            file.map_or(1, |file| file.len().max(1))
        };
        let sizes: Vec<u64> = items.iter().map(size).collect();
        Self {
            all: sizes.iter().sum::<u64>() * times,
            sizes,
            heard: AtomicU64::new(0),
            written: AtomicU64::new(0),
            files: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "a part of all")]
    fn done(&self) -> Event {
        let [heard, written] = [&self.heard, &self.written].map(|it| it.load(Ordering::Relaxed));
        let part = (heard + written) as f64 / self.all.max(1) as f64;
        Event::Done(part.min(1.0), self.files.load(Ordering::Relaxed))
    }
}

/// One file's part of it.
struct Share<'a> {
    all: &'a Shared,
    bytes: u64,
    told: u64,
}

impl Share<'_> {
    /// Work may turn out to be more than it seemed; what was told is not taken back.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a file"
    )]
    fn tell(&mut self, done: f64) -> ControlFlow<()> {
        let now = ((self.bytes as f64 * done) as u64).min(self.bytes);
        if now > self.told {
            self.all.written.fetch_add(now - self.told, Ordering::Relaxed);
            self.told = now;
        }
        if self.all.stop.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

/// How long a progress bar may stand still, and a wish to stop is not heard.
const PATIENCE: Duration = Duration::from_millis(100);
