//! The side that runs callbacks.

use std::fmt;
use std::time::Duration;

use super::channel::{CallbackId, DispatcherShared, Notification, NotificationReceiver, Notifier};
use super::phase::PhaseTracker;
use crate::limits::{MAX_CALLBACKS, MAX_NOTIFIERS, NOTIFIER_CAPACITY};
use crate::sync::{Arc, Ordering};
use crate::{clock, sys};

/// When a dispatcher polls for notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PollStrategy {
    /// 25 times a second, as a user interface would: 20 ms late on average.
    Timer,
    /// Every 5 ms: 2.5 ms late on average.
    HighResolution,
    /// At this interval.
    Every(Duration),
    /// Just after the end of each stream's callback, which it learns from
    /// [`Notifier::callback_ended`]; like [`PollStrategy::HighResolution`] for notifiers without a
    /// period. Late by some tens of microseconds.
    PhaseLocked,
    /// When [`Notifier::wake`] is called, which is not real-time safe.
    Event,
}

/// Runs callbacks for notifications from other threads, on the thread that polls it.
///
/// `F` is the type of the callbacks: with the default the dispatcher can move to another thread,
/// with `dyn FnMut()` callbacks need not be `Send`. Nothing here is real-time safe.
pub struct Dispatcher<F: ?Sized + FnMut() = dyn FnMut() + Send> {
    shared: Arc<DispatcherShared>,
    interval: Option<u64>,
    phase_locked: bool,
    notifiers: Vec<(NotificationReceiver, Option<PhaseTracker>)>,
    slots: Vec<CallbackSlot<F>>,
    /// Notifications not served yet, in order. Reused, so that polling soon stops allocating.
    waiting: Vec<Notification>,
    /// Just taken from the notifiers.
    new: Vec<Notification>,
    next_poll: Option<u64>,
}

impl<F: ?Sized + FnMut()> Dispatcher<F> {
    /// A dispatcher without callbacks or notifiers.
    #[must_use]
    pub fn new(strategy: PollStrategy) -> Self {
        let interval = match strategy {
            PollStrategy::Timer => Some(Duration::from_millis(40)),
            PollStrategy::HighResolution | PollStrategy::PhaseLocked => {
                Some(Duration::from_millis(5))
            }
            PollStrategy::Every(interval) => Some(interval),
            PollStrategy::Event => None,
        };
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self {
            shared: Arc::default(),
            interval: interval.map(nanos),
            phase_locked: strategy == PollStrategy::PhaseLocked,
            notifiers: Vec::new(),
            slots: Vec::new(),
            waiting: Vec::with_capacity(NOTIFIER_CAPACITY),
            new: Vec::with_capacity(NOTIFIER_CAPACITY),
            next_poll: None,
        }
    }

    /// Adds a callback that runs once for all notifications that came before it runs.
    ///
    /// # Errors
    /// [`DispatcherFull`].
    pub fn on(&mut self, callback: Box<F>) -> Result<CallbackId, DispatcherFull> {
        self.add(callback, true)
    }

    /// Adds a callback that runs once for every notification; see [`Notifier::send`].
    ///
    /// # Errors
    /// [`DispatcherFull`].
    pub fn on_each(&mut self, callback: Box<F>) -> Result<CallbackId, DispatcherFull> {
        self.add(callback, false)
    }

    fn add(&mut self, callback: Box<F>, coalesce: bool) -> Result<CallbackId, DispatcherFull> {
        let free = self.slots.iter().position(|slot| slot.callback.is_none());
        let index = free.unwrap_or(self.slots.len());
        if index == MAX_CALLBACKS {
            return Err(DispatcherFull::Callbacks);
        }
        if free.is_none() {
            self.slots.push(CallbackSlot {
                callback: None,
                generation: 0,
                coalesce,
                pending: false,
            });
        }
        let slot = &mut self.slots[index];
        slot.callback = Some(callback);
        slot.coalesce = coalesce;
        slot.pending = false;
        slot.generation = slot.generation.wrapping_add(1).max(1);
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        Ok(CallbackId { index, generation: slot.generation })
    }

    /// Removes a callback; it does not run again, whatever notifications were or will be sent.
    pub fn remove(&mut self, target: CallbackId) -> Option<Box<F>> {
        self.cancel(target);
        self.slot(target)?.callback.take()
    }

    /// Creates a notifier for one real-time thread. `period` is the nominal time between its
    /// callbacks.
    ///
    /// # Errors
    /// [`DispatcherFull`].
    pub fn notifier(&mut self, period: Option<Duration>) -> Result<Notifier, DispatcherFull> {
        let used = |index: usize| self.notifiers.iter().any(|(source, _)| source.index == index);
        let index =
            (0..MAX_NOTIFIERS).find(|&index| !used(index)).ok_or(DispatcherFull::Notifiers)?;
        let (notifier, source) =
            NotificationReceiver::new(&self.shared, index, MAX_CALLBACKS, period);
        self.notifiers.push((source, None));
        // Before the new notifier can send anything: it has not been returned yet.
        let lines = self.shared.notifier_count.load(Ordering::Relaxed).max(index + 1);
        self.shared.notifier_count.store(lines, Ordering::Relaxed);
        for (source, _) in &self.notifiers {
            source.set_notifier_count(lines);
        }
        self.next_poll = None;
        Ok(notifier)
    }

    /// Runs the callbacks of all notifications sent before this call, and returns the time of the
    /// next call; `None` with [`PollStrategy::Event`], unless many notifications are arriving.
    ///
    /// `now` is in nanoseconds on the clock of [`Notifier::callback_ended`]. Calling earlier does
    /// no harm.
    pub fn poll(&mut self, now: u64) -> Option<u64> {
        self.collect();
        for _ in 0..MAX_ROUNDS {
            // A notification that was sent before one that is already here is visible by now, so
            // this call finds it. No notification is missing below the lowest new number; for the
            // new ones themselves that is known only once the next round has found none.
            let limit = self.collect().unwrap_or(u64::MAX);
            self.serve(limit);
            if self.waiting.is_empty() {
                break;
            }
        }
        self.notifiers.retain(|(source, _)| !source.is_finished());
        self.next_poll = self.next(now);
        if self.waiting.is_empty() { self.next_poll } else { Some(now) }
    }

    /// Polls on the calling thread until [`StopHandle::stop`] is called, sleeping in between.
    pub fn run(&mut self) {
        sys::precise_sleep();
        while !self.shared.stop.swap(false, Ordering::Acquire) {
            let next = self.poll(clock::now());
            let limit = next.map(|at| Duration::from_nanos(at.saturating_sub(clock::now())));
            if limit.is_some_and(|limit| limit.is_zero()) {
                continue;
            }
            self.shared.wait.sleep(limit, || {
                let stopped = self.shared.stop.load(Ordering::Relaxed);
                stopped || (self.interval.is_none() && self.has_pending())
            });
        }
    }

    /// A handle that ends [`Dispatcher::run`] from any thread.
    #[must_use]
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle { shared: self.shared.clone() }
    }

    /// Whether this callback was notified and has not run yet.
    pub fn is_pending(&mut self, target: CallbackId) -> bool {
        self.collect_some();
        self.waiting.iter().any(|waiting| waiting.target == target)
    }

    /// Discards the notifications of this callback so far.
    pub fn cancel(&mut self, target: CallbackId) {
        self.collect_some();
        self.waiting.retain(|waiting| waiting.target != target);
        if let Some(slot) = self.slot(target) {
            slot.pending = false;
        }
    }

    /// Runs this callback now, out of order, if it is pending; returns whether it was. A callback
    /// added by [`Dispatcher::on_each`] runs for all pending notifications.
    pub fn handle_now(&mut self, target: CallbackId) -> bool {
        self.collect_some();
        let times = self.waiting.iter().filter(|waiting| waiting.target == target).count();
        self.waiting.retain(|waiting| waiting.target != target);
        for _ in 0..times {
            self.call(target);
        }
        times > 0
    }

    /// Moves new notifications into `waiting`, in order, each coalescing callback once. Returns the
    /// lowest new number.
    fn collect(&mut self) -> Option<u64> {
        self.fetch();
        let lowest = self.new.iter().map(|new| new.ticket).min();
        let mut new = std::mem::take(&mut self.new);
        for announcement in new.drain(..) {
            let Some(slot) = self.slot(announcement.target) else { continue };
            let again = slot.coalesce && std::mem::replace(&mut slot.pending, true);
            let same = |waiting: &&mut Notification| waiting.target == announcement.target;
            match self.waiting.iter_mut().find(same).filter(|_| again) {
                // The first notification determines the position.
                Some(waiting) => waiting.ticket = waiting.ticket.min(announcement.ticket),
                None => self.waiting.push(announcement),
            }
        }
        self.new = new;
        // Stable: equal numbers come from different notifiers, except for overflowed notifications,
        // which stay last.
        self.waiting.sort_by_key(|announcement| announcement.ticket);
        lowest
    }

    /// The same for calls that serve nothing: a program that makes them and never polls must not
    /// fill the memory. What is not taken waits in the queues of the notifiers.
    fn collect_some(&mut self) {
        if self.waiting.len() < MAX_WAITING {
            self.collect();
        }
    }

    /// Takes the notifications of all notifiers into `new`.
    fn fetch(&mut self) {
        for (source, _) in &mut self.notifiers {
            // At most a full queue, whatever comes in meanwhile.
            for _ in 0..NOTIFIER_CAPACITY {
                let Some(announcement) = source.pop() else { break };
                self.new.push(announcement);
            }
        }
        // Overflowed notifications come after all that fitted.
        let ticket = self.new.iter().map(|new| new.ticket).max().unwrap_or(0);
        for (source, _) in &self.notifiers {
            source.take_missed(|target| self.new.push(Notification { ticket, target }));
        }
    }

    /// Runs callbacks of waiting notifications with a number below `limit`.
    fn serve(&mut self, limit: u64) {
        let mut waiting = std::mem::take(&mut self.waiting);
        let n = waiting.partition_point(|announcement| announcement.ticket < limit);
        for announcement in waiting.drain(..n) {
            self.call(announcement.target);
        }
        self.waiting = waiting;
    }

    fn call(&mut self, target: CallbackId) {
        if let Some(slot) = self.slot(target) {
            // First, so that a notification from now on counts.
            slot.pending = false;
            if let Some(callback) = &mut slot.callback {
                callback();
            }
        }
    }

    fn slot(&mut self, target: CallbackId) -> Option<&mut CallbackSlot<F>> {
        slot_of(&mut self.slots, target)
    }

    fn has_pending(&self) -> bool {
        self.notifiers.iter().any(|(source, _)| source.has_pending())
    }

    fn next(&mut self, now: u64) -> Option<u64> {
        let interval = self.interval?;
        let mut next = u64::MAX;
        let mut all_locked = self.phase_locked && !self.notifiers.is_empty();
        for (source, phase) in &mut self.notifiers {
            match source.period.filter(|_| self.phase_locked) {
                None => all_locked = false,
                Some(period) => {
                    let phase = phase.get_or_insert_with(|| PhaseTracker::new(period, now));
                    next = next.min(phase.poll(now, source.last_callback_end()));
                }
            }
        }
        if !all_locked {
            // Keeps the planned time, unless it is past.
            let planned = self.next_poll.filter(|&at| at > now && at - now <= interval);
            next = next.min(planned.unwrap_or_else(|| now.saturating_add(interval)));
        }
        Some(next)
    }
}

impl<F: ?Sized + FnMut()> fmt::Debug for Dispatcher<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (targets, lines) = (self.slots.len(), self.notifiers.len());
        f.debug_struct("Dispatcher").field("targets", &targets).field("lines", &lines).finish()
    }
}

/// Ends a [`Dispatcher::run`]. If none runs, the next one ends at once.
#[derive(Clone, Debug)]
pub struct StopHandle {
    shared: Arc<DispatcherShared>,
}

impl StopHandle {
    /// Ends the run. Not for a real-time thread: wakes the dispatcher.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wait.wake(|| true);
    }
}

/// Error: the dispatcher's limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DispatcherFull {
    /// There are 256 callbacks already.
    Callbacks,
    /// There are 64 notifiers already.
    Notifiers,
}

impl fmt::Display for DispatcherFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Callbacks => write!(f, "a dispatcher has at most {MAX_CALLBACKS} callbacks"),
            Self::Notifiers => write!(f, "a dispatcher has at most {MAX_NOTIFIERS} notifiers"),
        }
    }
}

impl std::error::Error for DispatcherFull {}

struct CallbackSlot<F: ?Sized> {
    callback: Option<Box<F>>,
    generation: u32,
    coalesce: bool,
    /// In `waiting`.
    pending: bool,
}

fn slot_of<F: ?Sized>(
    slots: &mut [CallbackSlot<F>],
    target: CallbackId,
) -> Option<&mut CallbackSlot<F>> {
    let slot = slots.get_mut(target.index as usize)?;
    (slot.generation == target.generation && slot.callback.is_some()).then_some(slot)
}

/// What all queues hold together.
const MAX_WAITING: usize = MAX_NOTIFIERS * NOTIFIER_CAPACITY;

/// Maximum number of rounds of one poll, each for notifications that came during the previous one;
/// if more come, the notifying threads are faster than this one, and the caller is told to poll
/// again at once.
const MAX_ROUNDS: usize = 4;
