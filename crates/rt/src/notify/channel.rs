//! The queue from one real-time thread to the dispatcher.

use std::time::Duration;

use crate::limits::{MAX_NOTIFIERS, NOTIFIER_CAPACITY};
use crate::ring::Producer;
use crate::spsc::CachePadded;
use crate::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::wake::WaitCell;

/// Identifies a callback of a dispatcher. Plain data: copy it to the threads that notify the
/// callback. After the callback was removed the id is stale, and notifying it has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallbackId {
    pub(super) index: u32,
    /// Never 0; distinguishes successive callbacks with the same index.
    pub(super) generation: u32,
}

impl CallbackId {
    /// The id as a number other than 0, for what can hold no Rust type.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The id of such a number. A number that [`CallbackId::to_bits`] did not return is the id of
    /// no callback, or of another one.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        #[allow(clippy::cast_possible_truncation, reason = "the two halves")]
        let (index, generation) = (bits as u32, (bits >> 32) as u32);
        Self { index, generation }
    }
}

/// The real-time side: one thread's queue to the dispatcher. Made by
/// [`Dispatcher::notifier`](super::Dispatcher::notifier).
///
/// One cache line long: a notification finds it cold, so it must touch little memory.
#[derive(Debug)]
#[repr(align(64))]
pub struct Notifier {
    own: Arc<NotificationRing>,
    shared: Arc<DispatcherShared>,
    /// Number of this notifier.
    index: usize,
    /// Position of the next notification.
    tail: usize,
    /// The dispatcher's read position as last seen.
    head: usize,
    /// Number of the latest notification.
    ticket: u64,
}

impl Notifier {
    /// Dry run of [`Notifier::notify`]: executes the same code but notifies no callback. Called
    /// first in a callback, it brings code and memory of a notification into the caches while the
    /// callback works: between two periods other programs have evicted them, and fetching them
    /// costs some 100 ns. Keep the [`CallbackId`] beside the notifier, for the same reason.
    /// Optional.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call; its cost is what it saves later.
    #[inline]
    pub fn prefetch(&mut self) {
        if self.tail.wrapping_sub(self.head) > NOTIFIER_CAPACITY / 2 {
            self.refresh_head();
        }
        self.enqueue(NO_CALLBACK, 0);
    }

    /// Notifies a callback: it will run once for this and all other notifications of it that come
    /// before it runs. (A callback added by [`Dispatcher::on_each`](super::Dispatcher::on_each)
    /// runs for each, up to 256 that were not served yet.)
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call, some nanoseconds: it writes memory that only it
    /// writes, and reads only numbers of other notifiers.
    #[inline]
    pub fn notify(&mut self, target: CallbackId) {
        self.enqueue(target, 1);
    }

    /// Sends `times` notifications: one, or none for a dry run. Not inlined, and without a branch
    /// on `times`, so that a dry run executes the same code. Short, because each cache line of code
    /// costs as much as one of memory.
    #[inline(never)]
    fn enqueue(&mut self, target: CallbackId, times: usize) {
        let alone = self.own.hot.0.notifier_count.load(Ordering::Relaxed) <= 1;
        if alone && self.tail.wrapping_sub(self.head) < NOTIFIER_CAPACITY {
            self.enqueue_fast(target, times);
        } else {
            self.enqueue_slow(target, times);
        }
    }

    /// The same, if there are other notifiers, or this one was full when last checked.
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
        // The dispatcher reads this slot only after the position has passed it.
        self.own.slots[self.tail % NOTIFIER_CAPACITY].put(self.ticket, target);
        self.tail = self.tail.wrapping_add(times);
        // Release: a thread that sees the position sees the slot, and everything done before.
        self.own.hot.0.tail.store(self.tail, Ordering::Release);
        self.shared.tickets[self.index % MAX_NOTIFIERS].store(self.ticket, Ordering::Relaxed);
    }

    /// Pushes a value into `values` and notifies a callback that was added by
    /// [`Dispatcher::on_each`](super::Dispatcher::on_each): the callback, which has the other end
    /// of `values`, runs once for every value.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call.
    ///
    /// # Errors
    /// Returns the value if there is no room for it or for its notification; then nothing was sent.
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

    /// Reports the end of the audio callback, at `now` on the clock that the dispatcher is polled
    /// with. [`PollStrategy::PhaseLocked`](super::PollStrategy::PhaseLocked) depends on it; call it
    /// last.
    ///
    /// # Real-time
    /// Wait-free, one store.
    #[inline]
    pub fn callback_ended(&mut self, now: u64) {
        self.own.callback_end.0.store(now, Ordering::Release);
    }

    /// Wakes the dispatcher, if it sleeps and there is a notification.
    ///
    /// Not real-time safe: makes a system call, and may be preempted by the woken thread (7 us on
    /// average, up to 3 ms measured). For threads that can afford that, or after the buffer was
    /// passed to the device. [`PollStrategy::Event`](super::PollStrategy::Event) needs it.
    pub fn wake(&self) {
        self.shared.wait.wake(|| true);
    }

    /// Reads the dispatcher's position only if the queue was full when last checked.
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
        // Acquire: the dispatcher has read the slots that are overwritten next.
        self.head = self.own.head.0.load(Ordering::Acquire);
    }

    /// The queue is full: the notification loses its order, but is not lost.
    #[cold]
    fn record_missed(&self, target: CallbackId) {
        if let Some(missed) = self.own.missed.get(target.index as usize) {
            // No callback, or one that was removed, must not replace the present one. Only this
            // thread writes generations; the dispatcher takes them.
            if target.generation <= missed.load(Ordering::Relaxed) {
                return;
            }
            // Swaps, as on the other side: so all threads agree on their order.
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

/// Id for dry runs: no callback has generation 0.
const NO_CALLBACK: CallbackId = CallbackId { index: 0, generation: 0 };

/// The dispatcher's end of a notifier.
#[derive(Debug)]
pub(super) struct NotificationReceiver {
    own: Arc<NotificationRing>,
    pub(super) index: usize,
    pub(super) period: Option<Duration>,
}

impl NotificationReceiver {
    /// Creates notifier number `index`, for `targets` callbacks.
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

    /// Stores the number of notifiers.
    pub(super) fn set_notifier_count(&self, lines: usize) {
        self.own.hot.0.notifier_count.store(lines, Ordering::Release);
    }

    /// Takes the oldest notification.
    pub(super) fn pop(&self) -> Option<Notification> {
        let head = self.own.head.0.load(Ordering::Relaxed);
        if self.own.hot.0.tail.load(Ordering::Acquire) == head {
            return None;
        }
        let announcement = self.own.slots[head % NOTIFIER_CAPACITY].get();
        self.own.head.0.store(head.wrapping_add(1), Ordering::Release);
        Some(announcement)
    }

    /// End of the latest audio callback; 0 if there was none.
    pub(super) fn last_callback_end(&self) -> u64 {
        self.own.callback_end.0.load(Ordering::Acquire)
    }

    /// Passes every callback whose notification overflowed to `each`.
    pub(super) fn take_missed(&self, mut each: impl FnMut(CallbackId)) {
        if !self.own.any_missed.swap(false, Ordering::AcqRel) {
            return;
        }
        for (index, missed) in (0..).zip(&self.own.missed) {
            // The flag is cleared before the scan, so that a later store is found by the next scan.
            let generation = missed.swap(0, Ordering::AcqRel);
            if generation != 0 {
                each(CallbackId { index, generation });
            }
        }
    }

    /// Whether a notification waits to be served.
    pub(super) fn has_pending(&self) -> bool {
        let tail = self.own.hot.0.tail.load(Ordering::Acquire);
        tail != self.own.head.0.load(Ordering::Relaxed)
            || self.own.any_missed.load(Ordering::Acquire)
    }

    /// Whether the notifier is gone and all its notifications were served.
    pub(super) fn is_finished(&self) -> bool {
        self.own.gone.load(Ordering::Acquire) && !self.has_pending()
    }
}

/// State that all notifiers of a dispatcher share.
///
/// Notifications have Lamport timestamps (L. Lamport, 1978): each gets a number above all that its
/// thread can have seen. A notification that was sent before another has a lower number, also
/// across threads, and equal numbers belong to concurrent notifications. A shared counter was
/// rejected: an addition waits for the counter's cache line, 100 ns and more after the dispatcher
/// has read it.
#[derive(Debug)]
pub(super) struct DispatcherShared {
    /// Number of the latest notification of each notifier. Adjacent in memory, because a
    /// notification reads all that are in use.
    tickets: [AtomicU64; MAX_NOTIFIERS],
    /// Highest number of notifiers ever in use.
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
    /// The highest number of any notifier that this thread can have seen.
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

/// The queue of one notifier. A special ring, because the general one costs a notification two more
/// cache misses: an audio callback runs once per period, and finds all memory cold.
#[derive(Debug)]
struct NotificationRing {
    hot: CachePadded<NotifierState>,
    slots: [NotificationSlot; NOTIFIER_CAPACITY],
    /// The dispatcher's read position.
    head: CachePadded<AtomicUsize>,
    callback_end: CachePadded<AtomicU64>,
    gone: AtomicBool,
    any_missed: AtomicBool,
    /// Per callback its generation, or 0.
    missed: Box<[AtomicU32]>,
}

/// State of the notifying thread, in one cache line.
#[derive(Debug, Default)]
struct NotifierState {
    tail: AtomicUsize,
    /// Number of notifiers of the dispatcher; updated when one is created.
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
