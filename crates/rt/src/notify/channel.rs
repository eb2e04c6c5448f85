//! One real-time thread's line to the dispatcher.

use std::time::Duration;

use crate::limits::{MAX_NOTIFIERS, NOTIFIER_CAPACITY};
use crate::ring::Producer;
use crate::spsc::CachePadded;
use crate::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::wake::WaitCell;

/// One callback of a dispatcher. Plain data: copy it to wherever it is announced. After the
/// callback was removed it means nothing any more, and announcing it does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallbackId {
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
    own: Arc<NotificationRing>,
    shared: Arc<DispatcherShared>,
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
    pub fn prefetch(&mut self) {
        if self.tail.wrapping_sub(self.head) > NOTIFIER_CAPACITY / 2 {
            self.refresh_head();
        }
        self.enqueue(NO_CALLBACK, 0);
    }

    /// Announces a target: its callback will run once for this and all other announcements of it
    /// that come before it runs. (A target of [`Dispatcher::on_each`](super::Dispatcher::on_each)
    /// runs for each, up to 256 that were not served yet.)
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call, some nanoseconds: it stores into memory that only
    /// it writes, and looks only at numbers that other lines write.
    #[inline]
    pub fn notify(&mut self, target: CallbackId) {
        self.enqueue(target, 1);
    }

    /// Announces `times`, which is once, or not at all but for show. Not inlined, and without a
    /// branch on `times`: the code that was rehearsed is the code that runs. Short, because each
    /// cache line of code costs as much as one of memory.
    #[inline(never)]
    fn enqueue(&mut self, target: CallbackId, times: usize) {
        let alone = self.own.hot.0.notifier_count.load(Ordering::Relaxed) <= 1;
        if alone && self.tail.wrapping_sub(self.head) < NOTIFIER_CAPACITY {
            self.enqueue_fast(target, times);
        } else {
            self.enqueue_slow(target, times);
        }
    }

    /// The same, where there are other lines, or this one is full by what is known.
    #[inline(never)]
    fn enqueue_slow(&mut self, target: CallbackId, times: usize) {
        self.ticket = self.ticket.max(self.shared.latest_ticket());
        if self.has_room() {
            self.enqueue_fast(target, times);
        } else if times > 0 {
            self.ticket += 1;
            self.shared.tickets[self.index % MAX_NOTIFIERS].store(self.ticket, Ordering::Relaxed);
            self.record_missed(target);
        }
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a call would be another cache line of code")]
    fn enqueue_fast(&mut self, target: CallbackId, times: usize) {
        self.ticket += times as u64;
        // Nobody looks at this slot before the position has passed it.
        self.own.slots[self.tail % NOTIFIER_CAPACITY].put(self.ticket, target);
        self.tail = self.tail.wrapping_add(times);
        // Release: who sees the position sees the slot, and all that was done before.
        self.own.hot.0.tail.store(self.tail, Ordering::Release);
        self.shared.tickets[self.index % MAX_NOTIFIERS].store(self.ticket, Ordering::Relaxed);
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
    pub fn send<T>(
        &mut self,
        target: CallbackId,
        values: &mut Producer<T>,
        value: T,
    ) -> Result<(), T> {
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
    pub fn callback_ended(&mut self, now: u64) {
        self.own.callback_end.0.store(now, Ordering::Release);
    }

    /// Wakes the dispatcher, if it sleeps and something is announced.
    ///
    /// Not real-time safe: calls the system, and may lose the processor to whoever it wakes (7 us
    /// on average, and 3 ms were seen). For threads that may do that, or after the buffer was given
    /// to the device. [`Strategy::Event`](super::Strategy::Event) needs it.
    pub fn wake(&self) {
        self.shared.wait.wake(|| true);
    }

    /// Looks at what the dispatcher writes only when the line was full by what is known.
    #[inline]
    fn has_room(&mut self) -> bool {
        if self.tail.wrapping_sub(self.head) < NOTIFIER_CAPACITY {
            return true;
        }
        self.refresh_head();
        self.tail.wrapping_sub(self.head) < NOTIFIER_CAPACITY
    }

    #[inline]
    fn refresh_head(&mut self) {
        // Acquire: the dispatcher has read what is overwritten next.
        self.head = self.own.head.0.load(Ordering::Acquire);
    }

    /// The line is full: order is lost, the announcement is not.
    #[cold]
    fn record_missed(&self, target: CallbackId) {
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
const NO_CALLBACK: CallbackId = CallbackId { index: 0, generation: 0 };

/// What the dispatcher has of a line.
#[derive(Debug)]
pub(super) struct NotificationReceiver {
    own: Arc<NotificationRing>,
    pub(super) index: usize,
    pub(super) period: Option<Duration>,
}

impl NotificationReceiver {
    /// Line number `index`, for `targets` callbacks.
    pub(super) fn new(
        shared: &Arc<DispatcherShared>,
        index: usize,
        targets: usize,
        period: Option<Duration>,
    ) -> (Notifier, Self) {
        let own = Arc::new(NotificationRing::new(targets));
        let ticket = shared.tickets[index].load(Ordering::Relaxed);
        let (theirs, shared) = (own.clone(), shared.clone());
        let notifier = Notifier { own: theirs, shared, index, tail: 0, head: 0, ticket };
        (notifier, Self { own, index, period })
    }

    /// Tells the line how many there are.
    pub(super) fn set_notifier_count(&self, lines: usize) {
        self.own.hot.0.notifier_count.store(lines, Ordering::Release);
    }

    /// Takes the oldest announcement.
    pub(super) fn pop(&self) -> Option<Notification> {
        let head = self.own.head.0.load(Ordering::Relaxed);
        if self.own.hot.0.tail.load(Ordering::Acquire) == head {
            return None;
        }
        let announcement = self.own.slots[head % NOTIFIER_CAPACITY].get();
        self.own.head.0.store(head.wrapping_add(1), Ordering::Release);
        Some(announcement)
    }

    /// When the callback ended last; 0 if it never did.
    pub(super) fn last_callback_end(&self) -> u64 {
        self.own.callback_end.0.load(Ordering::Acquire)
    }

    /// Gives every target that did not fit into the line to `each`.
    pub(super) fn take_missed(&self, mut each: impl FnMut(CallbackId)) {
        if !self.own.any_missed.swap(false, Ordering::AcqRel) {
            return;
        }
        for (index, missed) in (0..).zip(&self.own.missed) {
            // The mark is down before the looking begins, so that a late store is found next time.
            let generation = missed.swap(0, Ordering::AcqRel);
            if generation != 0 {
                each(CallbackId { index, generation });
            }
        }
    }

    /// Something waits to be served.
    pub(super) fn has_pending(&self) -> bool {
        let tail = self.own.hot.0.tail.load(Ordering::Acquire);
        tail != self.own.head.0.load(Ordering::Relaxed)
            || self.own.any_missed.load(Ordering::Acquire)
    }

    /// The real-time side is gone and everything of it was served.
    pub(super) fn is_finished(&self) -> bool {
        self.own.gone.load(Ordering::Acquire) && !self.has_pending()
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
pub(super) struct DispatcherShared {
    /// Number of the latest announcement of each line. Close together, because announcing reads
    /// all that are in use.
    tickets: [AtomicU64; MAX_NOTIFIERS],
    /// Highest number of lines that were ever in use.
    pub(super) notifier_count: AtomicUsize,
    pub(super) wait: WaitCell,
    pub(super) stop: AtomicBool,
}

impl Default for DispatcherShared {
    fn default() -> Self {
        Self {
            tickets: std::array::from_fn(|_| AtomicU64::new(0)),
            notifier_count: AtomicUsize::new(0),
            wait: WaitCell::default(),
            stop: AtomicBool::new(false),
        }
    }
}

impl DispatcherShared {
    /// The highest number of any line that this thread can know of.
    fn latest_ticket(&self) -> u64 {
        let lines = self.notifier_count.load(Ordering::Relaxed).min(MAX_NOTIFIERS);
        // Relaxed is enough: a store that happened before this load is seen by it, or a higher one.
        self.tickets[..lines].iter().map(|ticket| ticket.load(Ordering::Relaxed)).max().unwrap_or(0)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Notification {
    pub(super) ticket: u64,
    pub(super) target: CallbackId,
}

/// One line. It has a ring of its own kind, because the general one costs an announcement two more
/// cache misses: a callback comes once in a period, and finds everything cold.
#[derive(Debug)]
struct NotificationRing {
    hot: CachePadded<NotifierState>,
    slots: [NotificationSlot; NOTIFIER_CAPACITY],
    /// How far the dispatcher has read.
    head: CachePadded<AtomicUsize>,
    callback_end: CachePadded<AtomicU64>,
    gone: AtomicBool,
    any_missed: AtomicBool,
    /// Per target its generation, or 0.
    missed: Box<[AtomicU32]>,
}

/// What the announcing thread shows, and what it must know.
#[derive(Debug, Default)]
struct NotifierState {
    tail: AtomicUsize,
    /// How many lines the dispatcher has; changes when one is made.
    notifier_count: AtomicUsize,
}

#[derive(Debug, Default)]
struct NotificationSlot {
    ticket: AtomicU64,
    index: AtomicU32,
    generation: AtomicU32,
}

impl NotificationSlot {
    #[inline]
    fn put(&self, ticket: u64, target: CallbackId) {
        self.ticket.store(ticket, Ordering::Relaxed);
        self.index.store(target.index, Ordering::Relaxed);
        self.generation.store(target.generation, Ordering::Relaxed);
    }

    fn get(&self) -> Notification {
        let index = self.index.load(Ordering::Relaxed);
        let generation = self.generation.load(Ordering::Relaxed);
        let ticket = self.ticket.load(Ordering::Relaxed);
        Notification { ticket, target: CallbackId { index, generation } }
    }
}

impl NotificationRing {
    fn new(targets: usize) -> Self {
        Self {
            hot: CachePadded::default(),
            slots: std::array::from_fn(|_| NotificationSlot::default()),
            head: CachePadded::default(),
            callback_end: CachePadded::default(),
            gone: AtomicBool::new(false),
            any_missed: AtomicBool::new(false),
            missed: (0..targets).map(|_| AtomicU32::new(0)).collect(),
        }
    }
}
