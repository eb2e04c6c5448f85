//! What takes its time and keeps nobody waiting: a complete file gets its name, its sum and its
//! sidecar; what need not be kept is deleted; what a crash left behind is repaired.

use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use aulos_core::{Instant, Span};
use aulos_engine::recorder::{SegmentEnd, UnixTime};
use aulos_io::SystemClock;
use aulos_io::disk::SyncHandle;
use aulos_proto::Marker;
use aulos_rt::channel::{Receiver, TryRecvError};

use super::clock;
use super::file::{PART, end_of, part};
use super::format::{RepairError, Repaired, repair, write_markers};
use super::job::{MAX_SAME, candidate};
use super::marker::{Turn, put_sidecar};
use super::note::{Known, MAX_SIDECAR, Note, Sum, sidecar};
use super::report::{Doing, Trouble, What};
use super::retain::{Item, doomed};
use super::shared::Shared;
use super::store::{Entry, Store, read_all};

/// Work for the thread that finishes.
pub(super) enum Task {
    /// The first thing for a recorder: repairs what was left behind, and looks what there is.
    Mend { store: Arc<dyn Store>, shared: Arc<Shared> },
    /// The sidecar of a file that has been begun.
    Begin { store: Arc<dyn Store>, sidecar: String, text: Vec<u8>, turn: Arc<Mutex<Turn>> },
    /// A file is complete.
    Finish(Box<Finish>),
    /// Deletes what need not be kept.
    Tidy { store: Arc<dyn Store>, shared: Arc<Shared>, free: Option<u64> },
    /// Nothing more comes of this recorder.
    Last(Arc<Shared>),
}

/// A complete file, on its way to its name.
pub(super) struct Finish {
    pub(super) shared: Arc<Shared>,
    pub(super) store: Arc<dyn Store>,
    /// To be made to last; none where that is not wished, or done.
    pub(super) lasting: Option<Box<dyn SyncHandle>>,
    pub(super) name: String,
    pub(super) note: Note,
    pub(super) closing: SegmentEnd,
    /// Who writes its sidecar.
    pub(super) turn: Arc<Mutex<Turn>>,
    /// It has been removed by somebody.
    pub(super) gone: bool,
    /// Its markers are in it.
    pub(super) marked: bool,
    /// Its markers are to survive a loss of power.
    pub(super) durable: bool,
    /// It has its name.
    pub(super) named: bool,
}

/// The thread's own knowledge.
#[derive(Default)]
pub(super) struct Finisher {
    /// The complete files of each recorder, oldest first.
    libraries: Vec<(Arc<Shared>, Vec<Item>)>,
    /// What did not go, and is tried again.
    again: Vec<Again>,
}

struct Again {
    task: Task,
    due: Instant,
    tries: u32,
}

impl Finisher {
    /// Runs until nobody can ask for anything and all is done, or `give_up` is set.
    pub(super) fn run(mut self, mut tasks: Receiver<Task>, give_up: &AtomicBool) {
        let mut open = true;
        while open || (!self.again.is_empty() && !give_up.load(SeqCst)) {
            match tasks.recv_timeout(TICK) {
                Ok(task) => self.try_it(task, 0),
                Err(TryRecvError::Closed) => {
                    if open {
                        open = false;
                    } else {
                        SystemClock::sleep_until(SystemClock::now() + Span::from_millis(50));
                    }
                }
                Err(TryRecvError::Empty) => {}
            }
            self.retry(SystemClock::now());
        }
    }

    /// Tries again what is due.
    pub(super) fn retry(&mut self, now: Instant) {
        let (due, later) =
            std::mem::take(&mut self.again).into_iter().partition(|it| it.due <= now);
        self.again = later;
        let due: Vec<Again> = due;
        for Again { task, tries, .. } in due {
            self.try_it(task, tries);
        }
    }

    /// Does one thing, for the `tries`th time.
    pub(super) fn try_it(&mut self, task: Task, tries: u32) {
        let (task, shared, trouble) = match task {
            Task::Begin { store, sidecar, text, turn } => {
                return drop(put_sidecar(&turn, Turn::Begun, &*store, (&sidecar, &text)));
            }
            Task::Mend { store, shared } => return self.mend(&store, shared),
            Task::Tidy { store, shared, free } => return self.tidy(&*store, &shared, free),
            Task::Last(shared) => {
                if self.has_work_for(&shared) {
                    return self.later(Task::Last(shared), tries);
                }
                self.libraries.retain(|(other, _)| !Arc::ptr_eq(other, &shared));
                return shared.finish();
            }
            Task::Finish(mut finish) => match self.finish(&mut finish) {
                Ok(()) => return,
                Err(trouble) => (Task::Finish(finish.clone_handles()), finish.shared, trouble),
            },
        };
        if tries == 0 || tries == MAX_TRIES {
            shared.tell(What::Trouble(trouble));
        }
        if tries < MAX_TRIES {
            self.later(task, tries + 1);
        }
    }

    fn has_work_for(&self, shared: &Arc<Shared>) -> bool {
        self.again
            .iter()
            .any(|again| matches!(&again.task, Task::Finish(it) if Arc::ptr_eq(&it.shared, shared)))
    }

    fn later(&mut self, task: Task, tries: u32) {
        let pause = (FIRST_PAUSE * i64::from(1_u32 << tries.min(5))).min(LONGEST_PAUSE);
        self.again.push(Again { task, due: SystemClock::now() + pause, tries });
    }

    fn finish(&mut self, it: &mut Finish) -> Result<(), Trouble> {
        let store = it.store.clone();
        if it.closing.frames.0 == 0 || it.gone {
            *it.turn.lock().unwrap_or_else(PoisonError::into_inner) = Turn::Closed;
            // There is nothing in it, or nothing of it.
            drop(store.remove(&part(&it.name)));
            drop(store.remove(&sidecar(&it.name)));
            return Ok(());
        }
        let failed = |doing, name: &str, error: io::Error| {
            let path = store.path().join(name);
            Trouble { doing, path, error: Arc::new(error) }
        };
        if let Some(lasting) = &it.lasting {
            lasting.sync().map_err(|error| failed(Doing::Sync, &part(&it.name), error))?;
        }
        if !it.marked {
            it.mark().map_err(|error| failed(Doing::Write, &part(&it.name), error))?;
            it.marked = true;
        }
        // Until now nobody else can have it.
        it.lasting = None;
        if !it.named {
            let name = publish(&*store, &it.name)
                .map_err(|error| failed(Doing::Name, &part(&it.name), error))?;
            if name != it.name {
                drop(store.remove(&sidecar(&it.name)));
                it.name = name;
            }
            it.named = true;
        }
        let noted = |error| failed(Doing::Note, &it.name, error);
        let (bytes, sum) = sum(&*store, &it.name).map_err(noted)?;
        let closed = it.note.report(&store.path().join(&it.name), it.closing, bytes, sum);
        if it.shared.sidecar {
            let text = it.note.closed(&it.name, &closed);
            store.put(&sidecar(&it.name), &text).map_err(noted)?;
        } else {
            drop(store.remove(&sidecar(&it.name)));
        }
        tell_heir(&*store, &it.shared, &it.name);
        let end = end_of(&it.note.opening, it.closing.frames);
        self.library(&it.shared).push(Item { name: it.name.clone(), bytes, end });
        it.shared.tell(What::Closed(Box::new(closed)));
        self.tidy(&*store, &it.shared, store.free().ok());
        Ok(())
    }

    fn library(&mut self, shared: &Arc<Shared>) -> &mut Vec<Item> {
        let at = self.libraries.iter().position(|(other, _)| Arc::ptr_eq(other, shared));
        let at = at.unwrap_or_else(|| {
            self.libraries.push((shared.clone(), Vec::new()));
            self.libraries.len() - 1
        });
        &mut self.libraries[at].1
    }

    fn tidy(&mut self, store: &dyn Store, shared: &Arc<Shared>, free: Option<u64>) {
        let (rules, now) = (shared.retention(), clock::wall().utc);
        let items = self.library(shared);
        let mut why = doomed(items, &rules, now, free.unwrap_or(u64::MAX));
        if let Some(heir) = &shared.heir {
            let needed = |item: &Item| heir.needs(&store.path().join(&item.name));
            why.truncate(items.iter().position(needed).unwrap_or(usize::MAX));
        }
        for (item, why) in items.drain(..why.len()).zip(why) {
            let path = store.path().join(&item.name);
            match store.remove(&item.name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    let (doing, error) = (Doing::Delete, Arc::new(error));
                    shared.tell(What::Trouble(Trouble { doing, path, error }));
                    continue;
                }
                // Somebody else was faster.
                Err(_) => {}
                Ok(()) => shared.tell(What::Deleted { path, why }),
            }
            drop(store.remove(&sidecar(&item.name)));
        }
    }

    /// Repairs what was left behind, and learns which files are this recorder's.
    fn mend(&mut self, store: &Arc<dyn Store>, shared: Arc<Shared>) {
        let entries = match store.list(MAX_FILES) {
            Ok(entries) => entries,
            Err(error) => {
                let (doing, path) = (Doing::Look, store.path().to_owned());
                let error = Arc::new(error);
                return shared.tell(What::Trouble(Trouble { doing, path, error }));
            }
        };
        let parts = entries.iter().filter(|entry| entry.name.ends_with(PART));
        for entry in parts {
            mend_one(&**store, &shared, &entry.name);
        }
        for name in entries.iter().filter_map(|entry| entry.name.strip_suffix(".json")) {
            note_again(&**store, &shared, name);
        }
        let mut items: Vec<_> = entries
            .iter()
            .filter_map(|entry| known_item(&**store, &shared.name, entry, &entries))
            .collect();
        items.append(self.library(&shared));
        items.sort_by_key(|item| item.end);
        // Between a file's name and its heir there is a moment in which a kill may fall.
        for item in items.iter().rev().take(TOLD_AGAIN) {
            tell_heir(&**store, &shared, &item.name);
        }
        *self.library(&shared) = items;
        self.tidy(&**store, &shared, store.free().ok());
    }
}

impl Finish {
    /// Puts the markers into the file, and before that into the sidecar: from now on no other thread
    /// writes that, so all of them have to be in it.
    fn mark(&self) -> io::Result<()> {
        let text = self.note.begun(&self.name);
        put_sidecar(&self.turn, Turn::Closed, &*self.store, (&sidecar(&self.name), &text))?;
        let markers = self.note.markers.iter().map(|marker| (marker.position.0, &*marker.label));
        put_markers(&self.store.open(&part(&self.name))?, markers, self.durable)
    }

    /// The same, to be tried again.
    fn clone_handles(&mut self) -> Box<Self> {
        Box::new(Self {
            shared: self.shared.clone(),
            store: self.store.clone(),
            lasting: self.lasting.take(),
            name: self.name.clone(),
            note: self.note.clone(),
            closing: self.closing,
            turn: self.turn.clone(),
            gone: self.gone,
            marked: self.marked,
            durable: self.durable,
            named: self.named,
        })
    }
}

fn put_markers<'a>(
    file: &File,
    markers: impl Iterator<Item = (u64, &'a str)>,
    durable: bool,
) -> io::Result<()> {
    let markers: Vec<_> = markers.map(|(position, label)| Marker { position, label }).collect();
    write_markers(file, &markers, durable)
}

/// Lets whoever has a use for it know of a file that is complete.
fn tell_heir(store: &dyn Store, shared: &Shared, name: &str) {
    if let Some(heir) = &shared.heir {
        heir.completes(&store.path().join(name), &store.path().join(sidecar(name)));
    }
}

/// Gives a complete file its name, or the next one that is free.
fn publish(store: &dyn Store, name: &str) -> io::Result<String> {
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    for number in 1..=MAX_SAME {
        let to = candidate(stem, number, extension);
        if number > 1 && (store.has(&part(&to)) || store.has(&sidecar(&to))) {
            continue;
        }
        match store.publish(&part(name), &to) {
            Ok(()) => return Ok(to),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn sum(store: &dyn Store, name: &str) -> io::Result<(u64, String)> {
    let mut sum = Sum::new();
    let bytes = read_all(&store.open(name)?, |piece| sum.add(piece))?;
    Ok((bytes, sum.digits()))
}

fn known(store: &dyn Store, name: &str) -> Option<Known> {
    let mut text = Vec::new();
    store.open(name).ok()?.take(MAX_SIDECAR).read_to_end(&mut text).ok()?;
    Known::parse(&text)
}

/// A sidecar's file, when it is complete, there and this recorder's.
fn known_item(store: &dyn Store, recorder: &str, it: &Entry, all: &[Entry]) -> Option<Item> {
    let name = it.name.strip_suffix(".json")?;
    let bytes = all.iter().find(|entry| entry.name == name)?.bytes;
    let known = known(store, &it.name).filter(|known| known.closed)?;
    (known.recorder == recorder).then(|| Item { name: name.to_owned(), bytes, end: known.end })
}

/// Repairs one file, when it is this recorder's or nobody's, and nobody works on it.
fn mend_one(store: &dyn Store, shared: &Shared, left: &str) {
    let Some(name) = left.strip_suffix(PART).filter(|name| is_sound(name)) else { return };
    let known = known(store, &sidecar(name));
    if known.as_ref().is_some_and(|known| known.recorder != *shared.name) {
        return;
    }
    let Ok(file) = store.open(left) else { return };
    if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        return;
    }
    let path = store.path().join(left);
    let mended = match repair(&file) {
        Ok(Repaired { frames, .. }) if frames.0 == 0 => Err(RepairError::Empty),
        other => other,
    };
    match mended {
        Ok(repaired) => match keep(store, shared, name, known, &file, &repaired) {
            Ok(name) => shared.tell(What::Repaired { path: store.path().join(name) }),
            Err(error) => {
                let (doing, error) = (Doing::Name, Arc::new(error));
                shared.tell(What::Trouble(Trouble { doing, path, error }));
            }
        },
        Err(RepairError::Empty) => {
            // While it is locked: whoever has just made it sees that it is gone.
            drop(store.remove(left));
            drop(store.remove(&sidecar(name)));
        }
        Err(error) => shared.tell(What::Unrepaired { path, why: error.to_string() }),
    }
}

/// Ends the sidecar of a file that had its name already when the program was killed.
fn note_again(store: &dyn Store, shared: &Shared, name: &str) {
    let unfinished = |known: &Known| !known.closed && known.recorder == *shared.name;
    if !store.has(name) || store.has(&part(name)) {
        return;
    }
    let Some(known) = known(store, &sidecar(name)).filter(unfinished) else { return };
    let noted = || -> Result<(), RepairError> {
        let repaired = repair(&store.open(name)?)?;
        let (bytes, sum) = sum(store, name)?;
        Ok(store.put(&sidecar(name), &known.repaired(repaired.frames, bytes, &sum))?)
    };
    let path = store.path().join(name);
    match noted() {
        Ok(()) => shared.tell(What::Repaired { path }),
        Err(error) => shared.tell(What::Unrepaired { path, why: error.to_string() }),
    }
}

/// Gives a repaired file its name and its sidecar.
fn keep(
    store: &dyn Store,
    shared: &Shared,
    name: &str,
    known: Option<Known>,
    file: &File,
    repaired: &Repaired,
) -> io::Result<String> {
    file.sync_all()?;
    let rate = repaired.rate;
    if let Some(known) = &known {
        let markers = known.markers(repaired.frames);
        let markers = markers.iter().map(|(position, label)| (*position, &**label));
        put_markers(file, markers, true)?;
    }
    let known = known.unwrap_or_else(|| {
        let start = changed(file).saturating_sub(rate.span(repaired.frames).as_nanos());
        Known::guessed(&shared.name, name, UnixTime::from_nanos(start), rate)
    });
    let to = publish(store, name)?;
    if to != name {
        drop(store.remove(&sidecar(name)));
    }
    if shared.sidecar {
        let (bytes, sum) = sum(store, &to)?;
        store.put(&sidecar(&to), &known.repaired(repaired.frames, bytes, &sum))?;
    } else {
        drop(store.remove(&sidecar(&to)));
    }
    tell_heir(store, shared, &to);
    Ok(to)
}

fn is_sound(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    matches!(extension, Some("wav" | "flac" | "opus"))
}

/// When a file was written to last.
fn changed(file: &File) -> i64 {
    let modified = file.metadata().and_then(|it| it.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let since = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// How often what waits is looked at.
const TICK: Duration = Duration::from_millis(100);

/// The first pause after an error; each is twice the one before.
const FIRST_PAUSE: Span = Span::from_millis(200);

/// The longest.
const LONGEST_PAUSE: Span = Span::from_secs(5);

/// About ten minutes; the file stays with `.part` behind its name, for the next start.
const MAX_TRIES: u32 = 120;

/// Of the files that are there at the start, so many of the newest are told to the heir again.
const TOLD_AGAIN: usize = 4;

/// Files of a folder that are looked at.
const MAX_FILES: usize = 100_000;
