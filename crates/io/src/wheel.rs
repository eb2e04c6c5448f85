//! A timer wheel.
//!
//! Every loop of this crate that sleeps until something is due has one: the reactors for the next
//! send of each session, the UDP threads for the timers of their streams. The grid of the wheel is
//! also the grid of the loop: [`next_tick_at`](Wheel::next_tick_at) is the time of the next poll,
//! and it never drifts.
//!
//! The slots are linked lists in one allocation. A vector per slot was rejected because a late
//! wake-up merges two slots and one vector would have to grow. A tree was rejected because most
//! timers are cancelled, which costs a few writes here and no search.

use aulos_core::{Instant, Span};

/// A ring of slots, one per tick.
#[derive(Debug)]
pub(crate) struct Wheel {
    length: Span,
    /// The first entry of each slot.
    slots: Box<[Option<u32>]>,
    entries: Vec<Entry>,
    /// The head of the free list.
    free: Option<u32>,
    /// The number of the next tick; its slot is this number modulo the number of slots.
    tick: usize,
    next: Instant,
    len: usize,
}

/// A handle to a timer. It becomes invalid when the timer expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timer(u32);

#[derive(Clone, Copy, Debug)]
struct Entry {
    token: u64,
    slot: u32,
    previous: Option<u32>,
    next: Option<u32>,
}

impl Wheel {
    /// A wheel with `slots` ticks of `length` each.
    pub(crate) fn new(now: Instant, length: Span, slots: usize) -> Self {
        Self {
            length,
            slots: vec![None; slots.max(2)].into(),
            entries: Vec::new(),
            free: None,
            tick: 0,
            next: now + length,
            len: 0,
        }
    }

    /// Schedules `token` at the tick that is `ahead` ticks after the next one, limited to the span
    /// of the wheel.
    pub(crate) fn add(&mut self, token: u64, ahead: usize) -> Timer {
        let slot = (self.tick + ahead.min(self.slots.len() - 1)) % self.slots.len();
        let next = self.slots[slot];
        let slot_number = u32::try_from(slot).unwrap_or(u32::MAX);
        let entry = Entry { token, slot: slot_number, previous: None, next };
        let index = match self.free {
            Some(index) => {
                self.free = self.entries[index as usize].next;
                self.entries[index as usize] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
            }
        };
        if let Some(next) = next {
            self.entries[next as usize].previous = Some(index);
        }
        self.slots[slot] = Some(index);
        self.len += 1;
        Timer(index)
    }

    /// Schedules `token` at the first tick not before `at`. A time beyond the span of the wheel
    /// expires early and has to be scheduled again.
    pub(crate) fn add_at(&mut self, token: u64, at: Instant) -> Timer {
        let ahead = at.since(self.next).as_nanos();
        let length = self.length.as_nanos().max(1);
        let ticks = ahead / length + i64::from(ahead % length != 0);
        self.add(token, usize::try_from(ticks).unwrap_or(usize::MAX))
    }

    /// Cancels a timer that has not expired.
    pub(crate) fn remove(&mut self, timer: Timer) {
        let Some(&Entry { slot, previous: before, next, .. }) = self.entries.get(timer.0 as usize)
        else {
            return;
        };
        match before {
            Some(before) => self.entries[before as usize].next = next,
            None => self.slots[slot as usize] = next,
        }
        if let Some(next) = next {
            self.entries[next as usize].previous = before;
        }
        self.free_entry(timer.0);
    }

    /// The time of the next tick, whether or not a timer expires at it.
    pub(crate) const fn next_tick_at(&self) -> Instant {
        self.next
    }

    /// The number of the next tick.
    pub(crate) const fn tick_number(&self) -> usize {
        self.tick
    }

    /// When the next slot that is not empty expires.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if self.len == 0 {
            return None;
        }
        let count = self.slots.len();
        let ahead = (0..count).find(|ahead| self.slots[(self.tick + ahead) % count].is_some())?;
        Some(self.next + self.length * i64::try_from(ahead).unwrap_or(0))
    }

    /// Moves the tokens of all timers that have expired by `now` into `due`.
    pub(crate) fn take_due(&mut self, now: Instant, due: &mut Vec<u64>) {
        // After a long pause one turn of the wheel finds every timer; an empty wheel has none.
        for _ in 0..self.slots.len() {
            if now < self.next || self.len == 0 {
                break;
            }
            self.drain_slot(due);
            self.tick = self.tick.wrapping_add(1);
            self.next += self.length;
        }
        if now >= self.next {
            let missed = now.since(self.next).as_nanos() / self.length.as_nanos().max(1) + 1;
            self.tick = self.tick.wrapping_add(usize::try_from(missed).unwrap_or(0));
            self.next += self.length * missed;
        }
    }

    /// Moves the tokens of the current slot into `due`.
    fn drain_slot(&mut self, due: &mut Vec<u64>) {
        // All timers may expire at once, so the capacity is reserved here, once.
        due.reserve(self.len);
        let slot = self.tick % self.slots.len();
        let mut first = self.slots[slot].take();
        while let Some(index) = first {
            let Entry { token, next, .. } = self.entries[index as usize];
            due.push(token);
            self.free_entry(index);
            first = next;
        }
    }

    fn free_entry(&mut self, index: u32) {
        self.entries[index as usize].next = self.free;
        self.free = Some(index);
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TICK: Span = Span::from_millis(5);

    #[test]
    fn late_polls_do_not_shift_the_grid() {
        let mut wheel = Wheel::new(Instant::ZERO, TICK, 8);
        let mut due = Vec::new();
        for late_us in [0, 1, 4_999, 5_000, 123_456, 10_000_000] {
            wheel.take_due(wheel.next_tick_at() + Span::from_micros(late_us), &mut due);
            assert_eq!(wheel.next_tick_at().as_nanos() % 5_000_000, 0, "{late_us}");
            wheel.add(1, 3);
        }
    }

    proptest! {
        /// Compares with a plain list: no timer expires before its time or later than the first
        /// poll after it, and a cancelled timer never expires.
        #[test]
        fn every_entry_is_due_once_at_the_first_tick_after_its_time(
            steps in prop::collection::vec((0u8..4, 0i64..200_000), 1..200)
        ) {
            let mut wheel = Wheel::new(Instant::ZERO, TICK, 16);
            let mut now = Instant::ZERO;
            let mut waiting: Vec<(u64, Instant, Timer)> = Vec::new();
            let mut due = Vec::new();
            for (token, (what, micros)) in (0u64..).zip(steps) {
                match what {
                    0 | 1 => {
                        // Within the span of the wheel.
                        let at = now + Span::from_micros(micros % 70_000);
                        let timer = wheel.add_at(token, at);
                        waiting.push((token, at, timer));
                    }
                    2 if !waiting.is_empty() => {
                        let (_, _, timer) = waiting.swap_remove(usize::try_from(micros).unwrap() % waiting.len());
                        wheel.remove(timer);
                    }
                    _ => {
                        now += Span::from_micros(micros);
                        wheel.take_due(now, &mut due);
                        for token in due.drain(..) {
                            let at = waiting.iter().position(|(other, ..)| *other == token);
                            prop_assert!(at.is_some(), "{token} was due and should not");
                            let (_, at, _) = waiting.swap_remove(at.unwrap_or(0));
                            prop_assert!(at <= now);
                        }
                        prop_assert!(waiting.iter().all(|(_, at, _)| *at + TICK > now));
                    }
                }
                prop_assert_eq!(wheel.len, waiting.len());
                prop_assert_eq!(wheel.poll_timeout().is_some(), !waiting.is_empty());
            }
        }
    }
}
