//! The side that runs callbacks.

use std::fmt;
use std::time::Duration;

use super::line::{Announcement, Common, Notifier, Source, Target};
use super::phase::Phase;
use crate::limits::{LINE, MOST_LINES, MOST_TARGETS};
use crate::sync::{Arc, Ordering};
use crate::{clock, sys};

/// When a dispatcher looks for announcements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Strategy {
    /// 25 times a second, as a user interface would: 20 ms late on average.
    Timer,
    /// Every 5 ms: 2.5 ms late on average.
    HighResolution,
    /// At this interval.
    Every(Duration),
    /// Just after the end of each stream's callback, which it learns from [`Notifier::beat`]; like
    /// [`Strategy::HighResolution`] for lines without a period. Late by some tens of microseconds.
    PhaseLocked,
    /// When [`Notifier::wake`] is called, which is not real-time safe.
    Event,
}

/// Runs callbacks that other threads have announced, on the thread that polls it.
///
/// `F` is the kind of callback: with the default the dispatcher can move to another thread, with
/// `dyn FnMut()` callbacks may hold what belongs to one thread. Nothing here is real-time safe.
pub struct Dispatcher<F: ?Sized + FnMut() = dyn FnMut() + Send> {
    shared: Arc<Common>,
    interval: Option<u64>,
    phase_locked: bool,
    sources: Vec<(Source, Option<Phase>)>,
    slots: Vec<Slot<F>>,
    /// Announced and not served yet, in order. Kept, so that polling does not allocate for long.
    waiting: Vec<Announcement>,
    /// Just taken from the lines.
    new: Vec<Announcement>,
    next_look: Option<u64>,
}

impl<F: ?Sized + FnMut()> Dispatcher<F> {
    /// A dispatcher without callbacks or lines.
    #[must_use]
    pub fn new(strategy: Strategy) -> Self {
        let interval = match strategy {
            Strategy::Timer => Some(Duration::from_millis(40)),
            Strategy::HighResolution | Strategy::PhaseLocked => Some(Duration::from_millis(5)),
            Strategy::Every(interval) => Some(interval),
            Strategy::Event => None,
        };
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self {
            shared: Arc::default(),
            interval: interval.map(nanos),
            phase_locked: strategy == Strategy::PhaseLocked,
            sources: Vec::new(),
            slots: Vec::new(),
            waiting: Vec::with_capacity(LINE),
            new: Vec::with_capacity(LINE),
            next_look: None,
        }
    }

    /// Adds a callback that runs once for all announcements that were made before it runs.
    ///
    /// # Errors
    /// [`Full`].
    pub fn on(&mut self, callback: Box<F>) -> Result<Target, Full> {
        self.add(callback, true)
    }

    /// Adds a callback that runs once for every announcement; see [`Notifier::send`].
    ///
    /// # Errors
    /// [`Full`].
    pub fn on_each(&mut self, callback: Box<F>) -> Result<Target, Full> {
        self.add(callback, false)
    }

    fn add(&mut self, callback: Box<F>, coalesce: bool) -> Result<Target, Full> {
        let free = self.slots.iter().position(|slot| slot.callback.is_none());
        let index = free.unwrap_or(self.slots.len());
        if index == MOST_TARGETS {
            return Err(Full::Targets);
        }
        if free.is_none() {
            self.slots.push(Slot { callback: None, generation: 0, coalesce, pending: false });
        }
        let slot = &mut self.slots[index];
        slot.callback = Some(callback);
        slot.coalesce = coalesce;
        slot.pending = false;
        slot.generation = slot.generation.wrapping_add(1).max(1);
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        Ok(Target { index, generation: slot.generation })
    }

    /// Takes a callback away; it will not run again, whatever was or will be announced.
    pub fn remove(&mut self, target: Target) -> Option<Box<F>> {
        self.cancel(target);
        self.slot(target)?.callback.take()
    }

    /// Makes a line for one real-time thread. `period` is the nominal time between its callbacks.
    ///
    /// # Errors
    /// [`Full`].
    pub fn notifier(&mut self, period: Option<Duration>) -> Result<Notifier, Full> {
        let used = |index: usize| self.sources.iter().any(|(source, _)| source.index == index);
        let index = (0..MOST_LINES).find(|&index| !used(index)).ok_or(Full::Lines)?;
        let (notifier, source) = Source::new(&self.shared, index, MOST_TARGETS, period);
        self.sources.push((source, None));
        // Before the new line can announce anything: it is still here.
        let lines = self.shared.lines.load(Ordering::Relaxed).max(index + 1);
        self.shared.lines.store(lines, Ordering::Relaxed);
        for (source, _) in &self.sources {
            source.set_lines(lines);
        }
        self.next_look = None;
        Ok(notifier)
    }

    /// Runs the callbacks of everything that was announced before this call, and answers when to
    /// call again; nothing with [`Strategy::Event`], unless much is announced at this moment.
    ///
    /// `now` is nanoseconds on the clock of [`Notifier::beat`]. Calling earlier than answered does
    /// no harm.
    pub fn poll(&mut self, now: u64) -> Option<u64> {
        self.collect();
        for _ in 0..ROUNDS {
            // What was announced before something that is here already is visible by now, so this
            // finds it. What lies below all that is new has nothing missing before it; of the new
            // itself that is known only when the next look has found nothing more.
            let limit = self.collect().unwrap_or(u64::MAX);
            self.serve(limit);
            if self.waiting.is_empty() {
                break;
            }
        }
        self.sources.retain(|(source, _)| !source.is_finished());
        self.next_look = self.next(now);
        if self.waiting.is_empty() { self.next_look } else { Some(now) }
    }

    /// Polls on the calling thread until [`Stop::stop`] is called, sleeping in between.
    pub fn run(&mut self) {
        sys::precise_sleep();
        while !self.shared.stop.swap(false, Ordering::Acquire) {
            let next = self.poll(clock::now());
            let limit = next.map(|at| Duration::from_nanos(at.saturating_sub(clock::now())));
            if limit.is_some_and(|limit| limit.is_zero()) {
                continue;
            }
            self.shared.bell.sleep(limit, || {
                let stopped = self.shared.stop.load(Ordering::Relaxed);
                stopped || (self.interval.is_none() && self.is_announced())
            });
        }
    }

    /// Ends [`Dispatcher::run`] from any thread.
    #[must_use]
    pub fn stopper(&self) -> Stop {
        Stop { shared: self.shared.clone() }
    }

    /// Something was announced for this target and its callback has not run yet.
    pub fn is_pending(&mut self, target: Target) -> bool {
        self.collect();
        self.waiting.iter().any(|waiting| waiting.target == target)
    }

    /// Forgets what was announced for this target so far.
    pub fn cancel(&mut self, target: Target) {
        self.collect();
        self.waiting.retain(|waiting| waiting.target != target);
        if let Some(slot) = self.slot(target) {
            slot.pending = false;
        }
    }

    /// Runs this target's callback now, out of order, if it is pending; says whether it was. One
    /// that runs for every announcement runs for all that are pending.
    pub fn handle_now(&mut self, target: Target) -> bool {
        self.collect();
        let times = self.waiting.iter().filter(|waiting| waiting.target == target).count();
        self.waiting.retain(|waiting| waiting.target != target);
        for _ in 0..times {
            self.call(target);
        }
        times > 0
    }

    /// Brings what was announced into `waiting`, in order, each coalescing target once. Answers the
    /// lowest number that is new there.
    fn collect(&mut self) -> Option<u64> {
        self.fetch();
        let lowest = self.new.iter().map(|new| new.ticket).min();
        let mut new = std::mem::take(&mut self.new);
        for announcement in new.drain(..) {
            let Some(slot) = self.slot(announcement.target) else { continue };
            let again = slot.coalesce && std::mem::replace(&mut slot.pending, true);
            let same = |waiting: &&mut Announcement| waiting.target == announcement.target;
            match self.waiting.iter_mut().find(same).filter(|_| again) {
                // The first announcement gives the place.
                Some(waiting) => waiting.ticket = waiting.ticket.min(announcement.ticket),
                None => self.waiting.push(announcement),
            }
        }
        self.new = new;
        // Stable: equal numbers are not of one line, but for what did not fit and stays behind.
        self.waiting.sort_by_key(|announcement| announcement.ticket);
        lowest
    }

    /// Takes what is in the lines into `new`.
    fn fetch(&mut self) {
        for (source, _) in &mut self.sources {
            // As many as a line can hold and no more, whatever comes in meanwhile.
            for _ in 0..LINE {
                let Some(announcement) = source.pop() else { break };
                self.new.push(announcement);
            }
        }
        // What did not fit into a line comes after everything that did.
        let ticket = self.new.iter().map(|new| new.ticket).max().unwrap_or(0);
        for (source, _) in &self.sources {
            source.take_missed(|target| self.new.push(Announcement { ticket, target }));
        }
    }

    /// Runs what waits with a number below `limit`.
    fn serve(&mut self, limit: u64) {
        let mut waiting = std::mem::take(&mut self.waiting);
        let n = waiting.partition_point(|announcement| announcement.ticket < limit);
        for announcement in waiting.drain(..n) {
            self.call(announcement.target);
        }
        self.waiting = waiting;
    }

    fn call(&mut self, target: Target) {
        if let Some(slot) = self.slot(target) {
            // First, so that an announcement made meanwhile counts.
            slot.pending = false;
            if let Some(callback) = &mut slot.callback {
                callback();
            }
        }
    }

    fn slot(&mut self, target: Target) -> Option<&mut Slot<F>> {
        slot_of(&mut self.slots, target)
    }

    fn is_announced(&self) -> bool {
        self.sources.iter().any(|(source, _)| source.has_announced())
    }

    fn next(&mut self, now: u64) -> Option<u64> {
        let interval = self.interval?;
        let mut next = u64::MAX;
        let mut all_locked = self.phase_locked && !self.sources.is_empty();
        for (source, phase) in &mut self.sources {
            match source.period.filter(|_| self.phase_locked) {
                None => all_locked = false,
                Some(period) => {
                    let phase = phase.get_or_insert_with(|| Phase::new(period, now));
                    next = next.min(phase.poll(now, source.beat()));
                }
            }
        }
        if !all_locked {
            // In step with the last look, unless that is over.
            let planned = self.next_look.filter(|&at| at > now && at - now <= interval);
            next = next.min(planned.unwrap_or_else(|| now.saturating_add(interval)));
        }
        Some(next)
    }
}

impl<F: ?Sized + FnMut()> fmt::Debug for Dispatcher<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (targets, lines) = (self.slots.len(), self.sources.len());
        f.debug_struct("Dispatcher").field("targets", &targets).field("lines", &lines).finish()
    }
}

/// Ends a [`Dispatcher::run`]. If none runs, the next one ends at once.
#[derive(Clone, Debug)]
pub struct Stop {
    shared: Arc<Common>,
}

impl Stop {
    /// Ends it. Not for a real-time thread: wakes.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.bell.ring(|| true);
    }
}

/// A dispatcher has no room for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Full {
    /// There are 256 callbacks already.
    Targets,
    /// There are 64 notifiers already.
    Lines,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Targets => write!(f, "a dispatcher has {MOST_TARGETS} callbacks at most"),
            Self::Lines => write!(f, "a dispatcher has {MOST_LINES} notifiers at most"),
        }
    }
}

impl std::error::Error for Full {}

struct Slot<F: ?Sized> {
    callback: Option<Box<F>>,
    generation: u32,
    coalesce: bool,
    /// In `waiting`.
    pending: bool,
}

fn slot_of<F: ?Sized>(slots: &mut [Slot<F>], target: Target) -> Option<&mut Slot<F>> {
    slots.get_mut(target.index as usize).filter(|slot| slot.generation == target.generation)
}

/// How often one poll looks again because of what came in while it looked; more means that the
/// announcing threads are faster than this one, and the caller is told to come back at once.
const ROUNDS: usize = 4;
