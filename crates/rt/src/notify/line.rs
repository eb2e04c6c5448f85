//! One real-time thread's line to the dispatcher.

use std::time::Duration;

use crate::bell::Bell;
use crate::limits::{LINE, MOST_LINES};
use crate::ring::Producer;
use crate::spsc::Line;
use crate::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// One callback of a dispatcher. Plain data: copy it to wherever it is announced. After the
/// callback was removed it means nothing any more, and announcing it does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    pub(super) index: u32,
    /// Never 0; tells the users of one index apart.
    pub(super) generation: u32,
}

/// The real-time side: one thread's line to the dispatcher. Made by
/// [`Dispatcher::notifier`](super::Dispatcher::notifier).
///
/// One cache line long: an announcement must find little, because it finds it cold.
#[derive(Debug)]
#[repr(align(64))]
pub struct Notifier {
    own: Arc<Own>,
    shared: Arc<Common>,
    /// Which line this is.
    index: usize,
    /// Where the next announcement goes.
    tail: usize,
    /// How far the dispatcher had read when it was looked at last.
    head: usize,
    /// Number of the latest announcement.
    ticket: u64,
}

impl Notifier {
    /// Rehearses an announcement: does all that [`Notifier::notify`] does, but announces nothing.
    /// Called first in a callback it brings code and memory of the announcement into the caches
    /// while the callback works: between two periods other programs have thrown them out, and
    /// fetching them costs some 100 ns. Keep the [`Target`] beside the notifier, for the same reason.
    /// Nothing depends on it.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call; what it costs is what it saves later.
    #[inline]
    pub fn begin(&mut self) {
        if self.tail.wrapping_sub(self.head) > LINE / 2 {
            self.look_at_head();
        }
        self.announce(NOBODY, 0);
    }

    /// Announces a target: its callback will run once for this and all other announcements of it
    /// that come before it runs. (A target of [`Dispatcher::on_each`](super::Dispatcher::on_each)
    /// runs for each, up to 256 that were not served yet.)
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call, some nanoseconds: it stores into memory that only
    /// it writes, and looks only at numbers that other lines write.
    #[inline]
    pub fn notify(&mut self, target: Target) {
        self.announce(target, 1);
    }

    /// Announces `times`, which is once, or not at all but for show. Not inlined, and without a
    /// branch on `times`: the code that was rehearsed is the code that runs. Short, because each
    /// cache line of code costs as much as one of memory.
    #[inline(never)]
    fn announce(&mut self, target: Target, times: usize) {
        let alone = self.own.hot.0.lines.load(Ordering::Relaxed) <= 1;
        if alone && self.tail.wrapping_sub(self.head) < LINE {
            self.put(target, times);
        } else {
            self.announce_with_care(target, times);
        }
    }

    /// The same, where there are other lines, or this one is full by what is known.
    #[inline(never)]
    fn announce_with_care(&mut self, target: Target, times: usize) {
        self.ticket = self.ticket.max(self.shared.latest_ticket());
        if self.has_room() {
            self.put(target, times);
        } else if times > 0 {
            self.ticket += 1;
            self.shared.tickets[self.index % MOST_LINES].store(self.ticket, Ordering::Relaxed);
            self.note_missed(target);
        }
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a call would be another cache line of code")]
    fn put(&mut self, target: Target, times: usize) {
        self.ticket += times as u64;
        // Nobody looks at this slot before the position has passed it.
        self.own.slots[self.tail % LINE].put(self.ticket, target);
        self.tail = self.tail.wrapping_add(times);
        // Release: who sees the position sees the slot, and all that was done before.
        self.own.hot.0.tail.store(self.tail, Ordering::Release);
        self.shared.tickets[self.index % MOST_LINES].store(self.ticket, Ordering::Relaxed);
    }

    /// Hands a value to `values` and announces a target that was made with
    /// [`Dispatcher::on_each`](super::Dispatcher::on_each): its callback, which has the other end of
    /// `values`, runs once for every value.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call.
    ///
    /// # Errors
    /// Gives the value back when there is no room for it or for its announcement; then nothing
    /// happened.
    #[inline]
    pub fn send<T>(&mut self, target: Target, values: &mut Producer<T>, value: T) -> Result<(), T> {
        if !self.has_room() {
            return Err(value);
        }
        values.push(value)?;
        self.notify(target);
        Ok(())
    }

    /// Says that the callback ends now, at `now` on the clock that the dispatcher is polled with.
    /// It is what [`Strategy::PhaseLocked`](super::Strategy::PhaseLocked) learns from; call it last.
    ///
    /// # Real-time
    /// Wait-free, one store.
    #[inline]
    pub fn beat(&mut self, now: u64) {
        self.own.beat.0.store(now, Ordering::Release);
    }

    /// Wakes the dispatcher, if it sleeps and something is announced.
    ///
    /// Not real-time safe: calls the system, and may lose the processor to whoever it wakes (7 us
    /// on average, and 3 ms were seen). For threads that may do that, or after the buffer was given
    /// to the device. [`Strategy::Event`](super::Strategy::Event) needs it.
    pub fn wake(&self) {
        self.shared.bell.ring(|| true);
    }

    /// Looks at what the dispatcher writes only when the line was full by what is known.
    #[inline]
    fn has_room(&mut self) -> bool {
        if self.tail.wrapping_sub(self.head) < LINE {
            return true;
        }
        self.look_at_head();
        self.tail.wrapping_sub(self.head) < LINE
    }

    #[inline]
    fn look_at_head(&mut self) {
        // Acquire: the dispatcher has read what is overwritten next.
        self.head = self.own.head.0.load(Ordering::Acquire);
    }

    /// The line is full: order is lost, the announcement is not.
    #[cold]
    fn note_missed(&self, target: Target) {
        if let Some(missed) = self.own.missed.get(target.index as usize) {
            // Swaps, as on the other side: then the two have one order for sure.
            missed.swap(target.generation, Ordering::Release);
            self.own.any_missed.swap(true, Ordering::Release);
        }
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.own.gone.store(true, Ordering::Release);
    }
}

/// For whom a rehearsal is: no generation is 0.
const NOBODY: Target = Target { index: 0, generation: 0 };

/// What the dispatcher has of a line.
#[derive(Debug)]
pub(super) struct Source {
    own: Arc<Own>,
    pub(super) index: usize,
    pub(super) period: Option<Duration>,
}

impl Source {
    /// Line number `index`, for `targets` callbacks.
    pub(super) fn new(
        shared: &Arc<Common>,
        index: usize,
        targets: usize,
        period: Option<Duration>,
    ) -> (Notifier, Self) {
        let own = Arc::new(Own::new(targets));
        let ticket = shared.tickets[index].load(Ordering::Relaxed);
        let (theirs, shared) = (own.clone(), shared.clone());
        let notifier = Notifier { own: theirs, shared, index, tail: 0, head: 0, ticket };
        (notifier, Self { own, index, period })
    }

    /// Tells the line how many there are.
    pub(super) fn set_lines(&self, lines: usize) {
        self.own.hot.0.lines.store(lines, Ordering::Release);
    }

    /// Takes the oldest announcement.
    pub(super) fn pop(&self) -> Option<Announcement> {
        let head = self.own.head.0.load(Ordering::Relaxed);
        if self.own.hot.0.tail.load(Ordering::Acquire) == head {
            return None;
        }
        let announcement = self.own.slots[head % LINE].get();
        self.own.head.0.store(head.wrapping_add(1), Ordering::Release);
        Some(announcement)
    }

    /// When the callback ended last; 0 if it never did.
    pub(super) fn beat(&self) -> u64 {
        self.own.beat.0.load(Ordering::Acquire)
    }

    /// Gives every target that did not fit into the line to `each`.
    pub(super) fn take_missed(&self, mut each: impl FnMut(Target)) {
        if !self.own.any_missed.swap(false, Ordering::AcqRel) {
            return;
        }
        for (index, missed) in (0..).zip(&self.own.missed) {
            // The mark is down before the looking begins, so that a late store is found next time.
            let generation = missed.swap(0, Ordering::AcqRel);
            if generation != 0 {
                each(Target { index, generation });
            }
        }
    }

    /// Something waits to be served.
    pub(super) fn has_announced(&self) -> bool {
        let tail = self.own.hot.0.tail.load(Ordering::Acquire);
        tail != self.own.head.0.load(Ordering::Relaxed)
            || self.own.any_missed.load(Ordering::Acquire)
    }

    /// The real-time side is gone and everything of it was served.
    pub(super) fn is_finished(&self) -> bool {
        self.own.gone.load(Ordering::Acquire) && !self.has_announced()
    }
}

/// What all lines of a dispatcher share.
///
/// Announcements are numbered as L. Lamport's clocks are (1978): each gets a number above all that
/// its thread can know of. So "announced before" becomes "has a lower number", also across threads,
/// and equal numbers belong to announcements of which neither was first. A counter that all threads
/// add to was rejected: the addition waits until the counter's cache line has come over, 100 ns and
/// more after the dispatcher has looked at it.
#[derive(Debug)]
pub(super) struct Common {
    /// Number of the latest announcement of each line. Close together, because announcing reads
    /// all that are in use.
    tickets: [AtomicU64; MOST_LINES],
    /// Highest number of lines that were ever in use.
    pub(super) lines: AtomicUsize,
    pub(super) bell: Bell,
    pub(super) stop: AtomicBool,
}

impl Default for Common {
    fn default() -> Self {
        Self {
            tickets: std::array::from_fn(|_| AtomicU64::new(0)),
            lines: AtomicUsize::new(0),
            bell: Bell::default(),
            stop: AtomicBool::new(false),
        }
    }
}

impl Common {
    /// The highest number of any line that this thread can know of.
    fn latest_ticket(&self) -> u64 {
        let lines = self.lines.load(Ordering::Relaxed).min(MOST_LINES);
        // Relaxed is enough: a store that happened before this load is seen by it, or a higher one.
        self.tickets[..lines].iter().map(|ticket| ticket.load(Ordering::Relaxed)).max().unwrap_or(0)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Announcement {
    pub(super) ticket: u64,
    pub(super) target: Target,
}

/// One line. It has a ring of its own kind, because the general one costs an announcement two more
/// cache misses: a callback comes once in a period, and finds everything cold.
#[derive(Debug)]
struct Own {
    hot: Line<Hot>,
    slots: [Slot; LINE],
    /// How far the dispatcher has read.
    head: Line<AtomicUsize>,
    beat: Line<AtomicU64>,
    gone: AtomicBool,
    any_missed: AtomicBool,
    /// Per target its generation, or 0.
    missed: Box<[AtomicU32]>,
}

/// What the announcing thread shows, and what it must know.
#[derive(Debug, Default)]
struct Hot {
    tail: AtomicUsize,
    /// How many lines the dispatcher has; changes when one is made.
    lines: AtomicUsize,
}

#[derive(Debug, Default)]
struct Slot {
    ticket: AtomicU64,
    index: AtomicU32,
    generation: AtomicU32,
}

impl Slot {
    #[inline]
    fn put(&self, ticket: u64, target: Target) {
        self.ticket.store(ticket, Ordering::Relaxed);
        self.index.store(target.index, Ordering::Relaxed);
        self.generation.store(target.generation, Ordering::Relaxed);
    }

    fn get(&self) -> Announcement {
        let index = self.index.load(Ordering::Relaxed);
        let generation = self.generation.load(Ordering::Relaxed);
        let ticket = self.ticket.load(Ordering::Relaxed);
        Announcement { ticket, target: Target { index, generation } }
    }
}

impl Own {
    fn new(targets: usize) -> Self {
        Self {
            hot: Line::default(),
            slots: std::array::from_fn(|_| Slot::default()),
            head: Line::default(),
            beat: Line::default(),
            gone: AtomicBool::new(false),
            any_missed: AtomicBool::new(false),
            missed: (0..targets).map(|_| AtomicU32::new(0)).collect(),
        }
    }
}
