//! One real-time thread's line to the dispatcher.

use std::time::Duration;

use crate::bell::Bell;
use crate::ring::{Consumer, Producer, ring};
use crate::spsc::Line;
use crate::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, Ordering};

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
#[derive(Debug)]
pub struct Notifier {
    announcements: Producer<Announcement>,
    shared: Arc<Common>,
    own: Arc<Own>,
}

impl Notifier {
    /// Announces a target: its callback will run once for this and all other announcements of it
    /// that come before it runs. (A target of [`Dispatcher::on_each`](super::Dispatcher::on_each) runs
    /// for each, up to 256 that were not served yet.)
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call, some nanoseconds: it touches no memory that the
    /// dispatcher writes.
    #[inline]
    pub fn notify(&mut self, target: Target) {
        let announcement = Announcement { ticket: self.shared.ticket(), target };
        if self.announcements.push(announcement).is_err() {
            self.note_missed(target);
        }
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
        if !self.announcements.has_room() {
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

    /// The line is full: order is lost, the announcement is not.
    #[cold]
    fn note_missed(&self, target: Target) {
        if let Some(missed) = self.own.missed.get(target.index as usize) {
            missed.store(target.generation, Ordering::Relaxed);
            self.own.any_missed.store(true, Ordering::Release);
        }
    }
}

/// What the dispatcher has of a line.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) announcements: Consumer<Announcement>,
    own: Arc<Own>,
    pub(super) period: Option<Duration>,
}

impl Source {
    /// A line with room for `announcements` that were not served yet, for `targets` callbacks.
    pub(super) fn new(
        shared: &Arc<Common>,
        announcements: usize,
        targets: usize,
        period: Option<Duration>,
    ) -> (Notifier, Self) {
        let (producer, consumer) = ring(announcements);
        let own = Arc::new(Own {
            beat: Line(AtomicU64::new(0)),
            any_missed: AtomicBool::new(false),
            missed: (0..targets).map(|_| AtomicU32::new(0)).collect(),
        });
        let notifier =
            Notifier { announcements: producer, shared: shared.clone(), own: own.clone() };
        (notifier, Self { announcements: consumer, own, period })
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
        !self.announcements.is_empty() || self.own.any_missed.load(Ordering::Acquire)
    }

    /// The real-time side is gone and everything of it was served.
    pub(super) fn is_finished(&self) -> bool {
        self.announcements.is_abandoned() && !self.has_announced()
    }
}

/// What all lines of a dispatcher share.
#[derive(Debug, Default)]
pub(super) struct Common {
    /// Number of the next announcement. On a line of its own: only announcing threads write it.
    next: Line<AtomicU64>,
    pub(super) bell: Bell,
    pub(super) stop: AtomicBool,
}

impl Common {
    #[inline]
    fn ticket(&self) -> u64 {
        // Release and Acquire, so that "announced before" reaches across threads: who sees this
        // number sees what was announced before it.
        self.next.0.fetch_add(1, Ordering::AcqRel)
    }

    /// Announcements with a lower number were begun before now.
    pub(super) fn bound(&self) -> u64 {
        self.next.0.load(Ordering::Acquire)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Announcement {
    pub(super) ticket: u64,
    pub(super) target: Target,
}

#[derive(Debug)]
struct Own {
    beat: Line<AtomicU64>,
    any_missed: AtomicBool,
    /// Per target its generation, or 0.
    missed: Box<[AtomicU32]>,
}
