//! Which sessions are to be sent to at which tick.
//!
//! A session's chunks go out once per *wait*, all that are due in one call. Sessions are spread over
//! the ticks of that wait, so that a Time request never finds more than one tick's worth of sending
//! in front of it.
//!
//! The slots are lists in one piece of memory. A vector for each was rejected: whenever a late wake
//! throws two slots together, one of them would have to grow.

use aulos_core::{Instant, Span};

/// A ring of slots, one per tick.
#[derive(Debug)]
pub(super) struct Wheel {
    /// The first entry of each slot.
    slots: [Option<usize>; SLOTS],
    entries: Vec<Entry>,
    /// The first entry that nobody uses.
    free: Option<usize>,
    position: usize,
    next: Instant,
    /// Where the next newcomer goes, so that they spread.
    spread: usize,
    len: usize,
}

#[derive(Debug)]
struct Entry {
    token: u64,
    next: Option<usize>,
}

impl Wheel {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            slots: [None; SLOTS],
            entries: Vec::new(),
            free: None,
            position: 0,
            next: now + TICK,
            spread: 0,
            len: 0,
        }
    }

    /// Puts a newcomer that is served every `ticks` ticks somewhere within the first round.
    pub(super) fn add(&mut self, token: u64, ticks: usize) {
        self.spread = self.spread.wrapping_add(1);
        self.add_after(token, self.spread % ticks.clamp(1, SLOTS - 1));
    }

    /// Puts `token` `ticks` ticks ahead.
    pub(super) fn add_after(&mut self, token: u64, ticks: usize) {
        let slot = (self.position + ticks.min(SLOTS - 1)) % SLOTS;
        let entry = Entry { token, next: self.slots[slot] };
        let index = match self.free {
            Some(index) => {
                self.free = self.entries[index].next;
                self.entries[index] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        self.slots[slot] = Some(index);
        self.len += 1;
    }

    /// When the next slot with somebody in it is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if self.len == 0 {
            return None;
        }
        let ahead =
            (0..SLOTS).find(|ahead| self.slots[(self.position + ahead) % SLOTS].is_some())?;
        Some(self.next + TICK * i64::try_from(ahead).unwrap_or(0))
    }

    /// Moves everybody who is due at `now` into `due`.
    pub(super) fn take_due(&mut self, now: Instant, due: &mut Vec<u64>) {
        if self.len == 0 {
            // Nobody waited, so the time since the last call does not count.
            self.next = self.next.max(now);
            return;
        }
        // After a long stop one round finds everybody.
        for _ in 0..SLOTS {
            if now < self.next {
                return;
            }
            self.empty_slot(due);
            self.position = (self.position + 1) % SLOTS;
            self.next += TICK;
        }
        self.next = self.next.max(now);
    }

    /// Moves the tokens of the present slot into `due`.
    fn empty_slot(&mut self, due: &mut Vec<u64>) {
        // All of them may be due at once some day: room for that is made here, and only once.
        due.reserve(self.len);
        let mut first = self.slots[self.position].take();
        while let Some(index) = first {
            let entry = &mut self.entries[index];
            due.push(entry.token);
            first = core::mem::replace(&mut entry.next, self.free);
            self.free = Some(index);
            self.len -= 1;
        }
    }
}

/// The grain of sending. 20 ticks are the longest wait.
pub(super) const TICK: Span = Span::from_millis(5);

const SLOTS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_due_once_per_wait() {
        let mut now = Instant::ZERO;
        let mut wheel = Wheel::new(now);
        for token in 0..100 {
            wheel.add(token, 20);
        }
        let mut served = vec![0; 100];
        let mut due = Vec::new();
        for _ in 0..2_000 {
            now += Span::from_millis(1);
            wheel.take_due(now, &mut due);
            assert!(due.len() <= 5, "spread over the ticks");
            for token in due.drain(..) {
                served[usize::try_from(token).unwrap()] += 1;
                wheel.add_after(token, 19);
            }
        }
        assert!(served.iter().all(|count| (19..=21).contains(count)), "{served:?}");
    }

    #[test]
    fn an_empty_wheel_needs_no_wake_up_and_does_not_catch_up() {
        let mut wheel = Wheel::new(Instant::ZERO);
        assert_eq!(wheel.poll_timeout(), None);
        let later = Instant::ZERO + Span::from_secs(100);
        let mut due = Vec::new();
        wheel.take_due(later, &mut due);
        wheel.add(7, 1);
        assert!(wheel.poll_timeout().is_some_and(|at| at - later <= TICK + TICK));
    }
}
