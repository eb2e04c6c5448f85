//! What a disk's thread does for one recorder: takes sound out of the ring, asks the machine what
//! becomes of it, and writes. Whatever fails is tried again, and the sound waits where it is: in
//! the file's own buffer, and behind that in the ring.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use aulos_core::{Frames, Instant, MediaTime, Span};
use aulos_engine::recorder::{
    CommandTime, RecordTapReader, RecorderCommand, RecorderOutput, RecordingState, SegmentEnd,
    SegmentReason, SegmentStart, SilenceReason, WallClock,
};
use aulos_io::disk::Syncer;
use aulos_rt::channel::Sender;

use super::file::{self, Ahead, Writing, part};
use super::finish::{Finish, Task};
use super::format::About;
use super::kept::Kept;
use super::marker::Markers;
use super::note::{Gap, sidecar};
use super::report::{Doing, Segment, Status, Trouble, What};
use super::shared::Shared;
use super::store::Store;
use super::wish::{MAX_FLUSH, MIN_SYNC, Sync, Wish};

/// One recorder on its thread.
pub(super) struct Job {
    pub(super) shared: Arc<Shared>,
    store: Arc<dyn Store>,
    wish: Wish,
    spool: RecordTapReader,
    kept: Kept,
    file: Option<Writing>,
    ahead: Option<Ahead>,
    /// What the machine wants and is not done yet.
    todo: Option<RecorderOutput>,
    hold: Option<Hold>,
    /// The head of the last file, and where that began.
    last: Option<(About, SegmentStart)>,
    finisher: Sender<Task>,
    syncer: Arc<Syncer>,
    sync: Arc<Syncing>,
    sync_due: Instant,
    look_due: Instant,
    free: Option<u64>,
    status: Status,
    scratch: Vec<f32>,
    markers: Markers,
}

/// After an error: until when, and for how long the next time.
#[derive(Clone, Copy)]
struct Hold {
    until: Instant,
    pause: Span,
    doing: Doing,
    kind: io::ErrorKind,
}

/// Whether a file is being made to last, and whether that went wrong.
#[derive(Default)]
struct Syncing {
    busy: AtomicBool,
    failed: std::sync::Mutex<Option<io::Error>>,
}

impl Job {
    pub(super) fn new(
        shared: Arc<Shared>,
        store: Arc<dyn Store>,
        mut wish: Wish,
        spool: RecordTapReader,
        finisher: Sender<Task>,
        syncer: Arc<Syncer>,
    ) -> Self {
        wish.safety.flush = wish.safety.flush.max(Span::from_millis(10)).min(MAX_FLUSH);
        let status = shared.status();
        Self {
            kept: Kept::new(spool.layout().channels()),
            shared,
            store,
            wish,
            spool,
            file: None,
            ahead: None,
            todo: None,
            hold: None,
            last: None,
            finisher,
            syncer,
            sync: Arc::default(),
            sync_due: Instant::ZERO,
            look_due: Instant::ZERO,
            free: None,
            status,
            scratch: Vec::new(),
            markers: Markers::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn is_syncing(&self) -> bool {
        self.sync.busy.load(SeqCst) || self.markers.is_writing()
    }

    /// Does what can be done now. True: nothing is left to do, ever.
    pub(super) fn step(&mut self, wall: WallClock) -> bool {
        let now = wall.local;
        self.look(now);
        if self.hold.is_none_or(|hold| hold.until <= now) {
            let done = self.work(now, wall);
            match done {
                Ok(()) => self.recovered(),
                Err(trouble) => self.hold(now, trouble),
            }
        }
        self.report();
        self.is_finished()
    }

    fn work(&mut self, now: Instant, wall: WallClock) -> Result<(), Trouble> {
        // Asked first: what is found then is all that will ever be.
        let closing = self.shared.is_closing();
        while self.write(now)? || self.hear(wall) {}
        if closing {
            self.shared.machine().finish();
        } else {
            self.shared.machine().handle_idle(now - PATIENCE);
        }
        while self.write(now)? {}
        self.mark(now);
        self.prepare();
        self.flush(now)?;
        self.make_last(now);
        Ok(())
    }

    /// Takes one run out of the ring.
    fn hear(&mut self, wall: WallClock) -> bool {
        let Some(mark) = self.kept.take(&mut self.spool) else {
            let Some(next) = self.shared.replacement().take() else { return false };
            self.kept = Kept::new(next.layout().channels());
            self.spool = next;
            self.shared.machine().restart_timeline();
            return true;
        };
        self.shared.machine().handle_frames(mark, wall);
        true
    }

    /// Does the next thing that the machine wants; false when there is none.
    fn write(&mut self, now: Instant) -> Result<bool, Trouble> {
        if self.file.as_ref().is_some_and(Writing::is_full) {
            self.put()?;
        }
        let begun = self.todo.take();
        let next = begun.or_else(|| self.shared.machine().poll_output());
        let Some(output) = next else {
            let keep = self.shared.machine().oldest_needed();
            self.kept.drop_below(keep);
            return Ok(false);
        };
        if let (None, RecorderOutput::Silence { from, frames, cause: SilenceReason::Lost }) =
            (begun, output)
        {
            self.status.lost += frames;
            self.shared.tell(What::Lost { at: from, frames });
        }
        // It stays until it is done.
        self.todo = Some(output);
        self.todo = match output {
            RecorderOutput::Open(opening) => {
                self.open(now, opening)?;
                None
            }
            RecorderOutput::Write { from, frames } => {
                let done = self.kept.read(from, frames.min(PIECE), &mut self.scratch);
                // What is not there is our own mistake; silence keeps the time.
                let done = if done > Frames::ZERO { done } else { self.silence(frames) };
                self.take();
                let (from, frames) = (from + done, frames - done);
                self.reach(from);
                (frames > Frames::ZERO).then_some(RecorderOutput::Write { from, frames })
            }
            RecorderOutput::Silence { from, frames, cause } => {
                let done = self.silence(frames);
                self.take();
                self.gap(Gap { at: from, frames: done, silence: Some(cause) });
                let (from, frames) = (from + done, frames - done);
                self.reach(from);
                (frames > Frames::ZERO).then_some(RecorderOutput::Silence { from, frames, cause })
            }
            RecorderOutput::Skip { from, frames } => {
                self.gap(Gap { at: from, frames, silence: None });
                if let Some(file) = &mut self.file {
                    file.skip_to(from + frames);
                }
                None
            }
            RecorderOutput::Close(closing) => {
                self.close(closing)?;
                None
            }
        };
        Ok(true)
    }

    fn silence(&mut self, frames: Frames) -> Frames {
        let frames = frames.min(PIECE);
        self.scratch.clear();
        let new = self.spool.layout();
        let layout = self.file.as_ref().map_or(new, |file| file.note.layout);
        self.scratch.resize(frames.as_usize() * layout.channels(), 0.0);
        frames
    }

    fn take(&mut self) {
        let Some(file) = &mut self.file else { return };
        let frames = self.scratch.len() / file.note.layout.channels();
        self.status.frames += Frames::from(frames);
        if !file.take(&self.scratch) {
            let error = io::Error::other("the codec failed");
            let trouble = file.trouble(Doing::Encode, &*self.store, error);
            self.shared.tell(What::Trouble(trouble));
        }
        self.shared.machine().set_segment_bytes(file.bytes());
    }

    const fn reach(&mut self, frame: MediaTime) {
        if let Some(file) = &mut self.file {
            file.reach(frame);
        }
    }

    /// Gives markers their places in the file, and has its sidecar name them.
    fn mark(&mut self, now: Instant) {
        if let Some(file) = &mut self.file {
            let path = self.store.path().join(&file.name);
            self.markers.place(&self.shared, file, &path, now);
        }
        self.markers.write(&self.shared, self.file.as_ref(), &self.store, &self.syncer);
    }

    fn gap(&mut self, gap: Gap) {
        let Some(file) = &mut self.file else { return };
        if gap.silence == Some(SilenceReason::Lost) {
            file.note.lost += gap.frames;
        }
        file.note.gap(gap);
    }

    fn open(&mut self, now: Instant, opening: SegmentStart) -> Result<(), Trouble> {
        let fits = |ahead: &mut Ahead| {
            (ahead.opening.number, ahead.opening.at) == (opening.number, opening.at)
        };
        let ahead = match self.ahead.take_if(fits) {
            Some(ahead) => ahead,
            None => {
                // It was for a cut that came to nothing.
                self.forget_ahead();
                self.create(opening)?
            }
        };
        let layout = self.spool.layout();
        let goes_on = !matches!(opening.cause, SegmentReason::Start | SegmentReason::Break);
        let last = self.last.as_ref().filter(|_| goes_on);
        let about = file::about(&opening, layout, &self.wish.name, last);
        let name = &self.wish.name;
        let begun = Writing::begin(ahead, opening, self.wish.format, about, name, layout);
        let mut file = begun.map_err(|refused| {
            let error = Arc::new(io::Error::other(refused));
            Trouble { doing: Doing::Encode, path: self.store.path().to_owned(), error }
        })?;
        file.flush_due = now + self.wish.safety.flush;
        self.sync_due = now + self.sync_every().unwrap_or(Span::ZERO);
        self.last = Some((file.about.clone(), opening));
        let path = self.store.path().join(&file.name);
        self.shared.tell(What::Opened { path, at: opening.at, utc: opening.utc });
        // Without it a repair knows less; so it is not worth waiting for.
        drop(self.finisher.try_send(Task::Begin {
            store: self.store.clone(),
            sidecar: sidecar(&file.name),
            text: file.note.begun(&file.name),
            turn: file.turn.clone(),
        }));
        self.file = Some(file);
        Ok(())
    }

    /// A file under the first name that is free.
    fn create(&self, opening: SegmentStart) -> Result<Ahead, Trouble> {
        let failed = |name: &str, error| {
            let path = self.store.path().join(name);
            Trouble { doing: Doing::Create, path, error: Arc::new(error) }
        };
        let stem = self.wish.pattern.name(&self.wish.name, &opening);
        let stem = stem.map_err(|bad| failed("", io::Error::other(bad)))?;
        let extension = self.wish.format.extension();
        for number in 1..=MAX_SAME {
            let name = candidate(&stem, number, extension);
            if self.store.has(&name) || self.store.has(&sidecar(&name)) {
                continue;
            }
            match self.store.create(&part(&name)) {
                Ok(medium) => return Ok(Ahead { opening, name, medium }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(&part(&name), error)),
            }
        }
        Err(failed(&stem, io::ErrorKind::AlreadyExists.into()))
    }

    fn close(&mut self, closing: SegmentEnd) -> Result<(), Trouble> {
        if let Some(file) = &mut self.file {
            let path = self.store.path().join(&file.name);
            self.markers.close(&self.shared, file, &path, &closing);
            // The thread that completes the file may have others to do first.
            self.markers.write(&self.shared, Some(file), &self.store, &self.syncer);
            file.end().map_err(|error| file.trouble(Doing::Write, &*self.store, error))?;
        }
        let Some(file) = self.file.take() else { return Ok(()) };
        let finish = Finish {
            shared: self.shared.clone(),
            store: self.store.clone(),
            lasting: (self.wish.safety.sync != Sync::Never)
                .then(|| file.medium.sync_handle().ok())
                .flatten(),
            name: file.name.clone(),
            note: file.note.clone(),
            closing,
            turn: file.turn.clone(),
            gone: file.gone,
            marked: file.note.markers.is_empty(),
            durable: self.wish.safety.sync != Sync::Never,
            named: false,
        };
        if let Err(error) = self.finisher.try_send(Task::Finish(Box::new(finish))) {
            drop(error);
            let busy = io::Error::other("too many files wait to be completed");
            let trouble = file.trouble(Doing::Name, &*self.store, busy);
            self.file = Some(file);
            return Err(trouble);
        }
        self.status.bytes += file.bytes();
        Ok(())
    }

    fn put(&mut self) -> Result<(), Trouble> {
        let keep_free = self.shared.retention().keep_free;
        let Some(file) = &mut self.file else { return Ok(()) };
        let full = self.free.is_some_and(|free| free < keep_free);
        let done = if full { Err(io::ErrorKind::StorageFull.into()) } else { file.put() };
        done.map_err(|error| file.trouble(Doing::Write, &*self.store, error))
    }

    fn flush(&mut self, now: Instant) -> Result<(), Trouble> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.flush(now, self.wish.safety.flush)
            .map_err(|error| file.trouble(Doing::Write, &*self.store, error))
    }

    fn sync_every(&self) -> Option<Span> {
        match self.wish.safety.sync {
            Sync::Never => None,
            Sync::Every(span) => Some(span.max(MIN_SYNC)),
        }
    }

    /// Asks for the file to be made to last, and hears how that went the last time.
    fn make_last(&mut self, now: Instant) {
        let (Some(every), Some(file)) = (self.sync_every(), &mut self.file) else { return };
        let failed = self.sync.failed.lock().ok().and_then(|mut failed| failed.take());
        if let Some(error) = failed {
            let trouble = file.trouble(Doing::Sync, &*self.store, error);
            self.shared.tell(What::Trouble(trouble));
        }
        if now < self.sync_due || !file.unsynced || self.sync.busy.load(SeqCst) {
            return;
        }
        let Ok(lasting) = file.medium.sync_handle() else { return };
        self.sync.busy.store(true, SeqCst);
        let sync = self.sync.clone();
        let done = Box::new(move |result: io::Result<()>| {
            if let (Err(error), Ok(mut failed)) = (result, sync.failed.lock()) {
                *failed = Some(error);
            }
            sync.busy.store(false, SeqCst);
        });
        if self.syncer.sync(lasting, done).is_err() {
            // The disk is far behind: next time.
            self.sync.busy.store(false, SeqCst);
            return;
        }
        (file.unsynced, self.sync_due) = (false, now + every);
    }

    /// Makes the next file before it is needed, where it is known when that is. What fails is tried
    /// again when it is.
    fn prepare(&mut self) {
        let (upcoming, position) = {
            let machine = self.shared.machine();
            (machine.upcoming(), machine.position())
        };
        let Some(next) = upcoming.filter(|next| next.at.since(position) < next.rate.frames(AHEAD))
        else {
            return;
        };
        match &self.ahead {
            Some(ahead) if ahead.opening.number == next.number => return,
            _ => self.forget_ahead(),
        }
        self.ahead = self.create(next).ok();
    }

    fn forget_ahead(&mut self) {
        if let Some(ahead) = self.ahead.take() {
            // An empty file that stays is removed by the next start.
            drop(self.store.remove(&part(&ahead.name)));
        }
    }

    /// Looks after the folder now and then: how much room there is, and whether the file is there.
    fn look(&mut self, now: Instant) {
        if now < self.look_due {
            return;
        }
        self.look_due = now + LOOK;
        self.free = self.store.free().ok();
        self.status.free = self.free;
        let (store, shared) = (self.store.clone(), self.shared.clone());
        drop(self.finisher.try_send(Task::Tidy { store, shared, free: self.free }));
        let Some(file) = &mut self.file else { return };
        let path = self.store.path().join(part(&file.name));
        if !file.gone && !self.store.has(&part(&file.name)) {
            file.gone = true;
            self.shared.tell(What::Vanished { path });
            let mut machine = self.shared.machine();
            let at = CommandTime::Frame(machine.oldest_needed());
            // What is paused goes on in the file that nobody can see; the next one is another.
            let _ = machine.handle_command(now, RecorderCommand::Cut, at);
        }
    }

    fn hold(&mut self, now: Instant, trouble: Trouble) {
        let kind = trouble.error.kind();
        let same = self.hold.filter(|hold| hold.doing == trouble.doing && hold.kind == kind);
        let pause = same.map_or(FIRST_PAUSE, |hold| (hold.pause * 2).min(LONGEST_PAUSE));
        self.hold = Some(Hold { until: now + pause, pause, doing: trouble.doing, kind });
        if same.is_none() {
            self.shared.tell(What::Trouble(trouble.clone()));
        }
        self.status.trouble = Some(trouble);
    }

    fn recovered(&mut self) {
        if self.hold.take().is_some() {
            self.status.trouble = None;
            self.shared.tell(What::Recovered);
        }
    }

    fn report(&mut self) {
        self.status.waiting = self.spool.buffered();
        self.status.segment = self.file.as_ref().map(|file| Segment {
            path: self.store.path().join(&file.name),
            number: file.note.opening.number,
            start: file.note.opening.at,
            utc: file.note.opening.utc,
            frames: file.frames,
            rate: file.note.opening.rate,
            bytes: file.bytes(),
        });
        let mut status = self.status.clone();
        status.bytes += self.file.as_ref().map_or(0, Writing::bytes);
        self.shared.set_status(status);
    }

    fn is_finished(&mut self) -> bool {
        let idle = self.shared.machine().state() == RecordingState::Idle;
        let finished = self.shared.is_closing()
            && idle
            && self.todo.is_none()
            && self.file.is_none()
            && !self.markers.is_writing()
            && self.spool.peek().is_none();
        if finished {
            self.forget_ahead();
            let shared = self.shared.clone();
            // The last thing that is asked of the other thread: after it, all is done.
            if self.finisher.try_send(Task::Last(shared)).is_err() {
                return false;
            }
            self.markers.refuse_all(&self.shared);
        }
        finished
    }
}

/// The `number`th name for the same moment.
pub(super) fn candidate(stem: &str, number: u32, extension: &str) -> String {
    match number {
        1 => format!("{stem}.{extension}"),
        _ => format!("{stem}-{number}.{extension}"),
    }
}

/// Names that are tried for one moment.
pub(super) const MAX_SAME: u32 = 9_999;

/// Frames that are written at once.
const PIECE: Frames = Frames(4_096);

/// How long a frame may be late until a command does not wait for it.
const PATIENCE: Span = Span::from_secs(2);

/// How long before it is needed a file is made.
const AHEAD: Span = Span::from_secs(3);

/// How often the folder is looked after.
const LOOK: Span = Span::from_secs(5);

/// The first pause after an error; each is twice the one before.
const FIRST_PAUSE: Span = Span::from_millis(100);

/// The longest.
const LONGEST_PAUSE: Span = Span::from_secs(5);
