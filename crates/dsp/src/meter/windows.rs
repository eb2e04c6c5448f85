//! The energies of the last seconds, from which any window can be read at any frame.
//!
//! Three resolutions are stored: frames, slots of a tenth of a hop, and hops of 100 ms. A window is
//! then a few hops, a few slots and at most one partial slot of frames; nothing is squared or
//! filtered twice.

use super::energy_ring::EnergyRing;
use crate::simd::sum;

/// Sliding windows over the weighted energy of each frame.
#[derive(Clone, Debug)]
pub(super) struct SlidingWindows {
    /// Frames per 100 ms.
    hop: usize,
    /// Hops in the longest window.
    longest: usize,
    /// One energy per frame: a ring of `longest + 1` hops, or the current hop.
    frames: EnergyRing,
    /// One energy per slot, in the same ring.
    slots: Box<[f64]>,
    /// One energy per hop, in the same ring.
    hops: Box<[f64]>,
    /// The current slot, and its frames and energy so far.
    slot: usize,
    filled: usize,
    energy: f64,
    /// The energies, per slot of the hop, of the frames that were written last.
    pieces: [f64; SLOTS],
    /// Unit of all these energies.
    unit: f64,
    /// Maximum energies over complete slots; `None` without
    /// [`MeterMode::MAXIMA`](super::MeterMode::MAXIMA).
    maxima: Option<Maxima>,
}

/// The maximum energies of windows of 4 and 30 hops, ending at any frame.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Maxima {
    pub(super) momentary: f64,
    pub(super) short_term: f64,
}

impl Maxima {
    fn times(self, factor: f64) -> Self {
        Self { momentary: self.momentary * factor, short_term: self.short_term * factor }
    }
}

impl SlidingWindows {
    /// Windows of up to `longest` hops, with energies in units of `unit`.
    pub(super) fn new(hop: usize, longest: usize, maxima: bool, unit: f64, coarse: bool) -> Self {
        let hops = longest + 1;
        let mut new = Self {
            hop,
            longest,
            frames: EnergyRing::new(hop, hops, coarse),
            slots: vec![0.0; hops * SLOTS].into(),
            hops: vec![0.0; hops].into(),
            slot: 0,
            filled: 0,
            energy: 0.0,
            pieces: [0.0; SLOTS],
            unit,
            maxima: maxima.then(Maxima::default),
        };
        new.skip_empty_slots();
        new
    }

    /// Clears the windows; maxima stay.
    pub(super) fn clear(&mut self) {
        // The frames of a slot without energy are not read.
        self.slots.fill(0.0);
        self.hops.fill(0.0);
        (self.slot, self.filled, self.energy) = (0, 0, 0.0);
        self.skip_empty_slots();
    }

    pub(super) fn set_maxima(&mut self, new: Maxima) {
        self.maxima = self.maxima.map(|_| new.times(1.0 / self.unit));
    }

    /// Frames until the hop is complete: the maximum for [`SlidingWindows::push`].
    pub(super) fn frames_until_hop(&self) -> usize {
        (self.slot / SLOTS + 1) * self.hop - self.write_position()
    }

    /// Buffer for the energies of the next frames: at most [`SlidingWindows::frames_until_hop`] of
    /// them.
    pub(super) fn write_buffer(&mut self, frames: usize) -> &mut [f64] {
        let start = self.write_position();
        self.frames.next(start..start + frames)
    }

    /// The energy of the frames that have been written to [`SlidingWindows::write_buffer`].
    pub(super) fn sum_written(&mut self, frames: usize) -> f64 {
        let mut start = self.write_position();
        let end = start + frames;
        let mut energy = 0.0;
        for slot in self.slot.. {
            let stop = self.slot_start(slot + 1).min(end);
            let piece = sum(self.frames.newest(start..stop));
            self.pieces[slot % SLOTS] = piece;
            energy += piece;
            start = stop;
            if start == end {
                break;
            }
        }
        energy
    }

    /// Appends the frames of [`SlidingWindows::sum_written`]; true if that completes a hop. With
    /// `measure`, maxima are updated.
    pub(super) fn push(&mut self, frames: usize, measure: bool) -> bool {
        let hop = self.slot / SLOTS;
        let mut left = frames;
        while left > 0 {
            let taken = left.min(self.slot_frames(self.slot) - self.filled);
            self.energy += self.pieces[self.slot % SLOTS];
            self.filled += taken;
            left -= taken;
            if self.filled == self.slot_frames(self.slot) {
                self.finish_slot(measure);
            }
        }
        if self.slot < (hop + 1) * SLOTS {
            return false;
        }
        self.hops[hop] = sum(&self.slots[hop * SLOTS..(hop + 1) * SLOTS]);
        self.slot %= self.slots.len();
        self.skip_empty_slots();
        true
    }

    /// The energy of the last `frames` frames, at most the longest window; frames before the first
    /// are silent.
    pub(super) fn energy(&self, frames: usize) -> f64 {
        let mut left = frames.min(self.longest * self.hop);
        if left < self.filled {
            let end = self.slot_start(self.slot) + self.filled;
            return sum(self.frames.newest(end - left..end)) * self.unit;
        }
        left -= self.filled;
        (self.energy + self.energy_before(self.slot, left)) * self.unit
    }

    /// The maxima up to the last frame.
    pub(super) fn maxima(&self) -> Option<Maxima> {
        let mut maxima = self.maxima?;
        self.raise_maxima(&mut maxima);
        Some(maxima.times(self.unit))
    }

    pub(super) fn longest_frames(&self) -> usize {
        self.longest * self.hop
    }

    fn finish_slot(&mut self, measure: bool) {
        self.slots[self.slot] = self.energy;
        if measure && let Some(mut maxima) = self.maxima {
            self.raise_maxima(&mut maxima);
            self.maxima = Some(maxima);
        }
        (self.filled, self.energy) = (0, 0.0);
        self.slot += 1;
        self.skip_empty_slots();
    }

    /// Position of the next frame in the ring.
    fn write_position(&self) -> usize {
        self.slot_start(self.slot) + self.filled
    }

    /// The energy of the `left` frames before `slot`.
    fn energy_before(&self, mut slot: usize, mut left: usize) -> f64 {
        let mut energy = 0.0;
        while left > 0 {
            if slot == 0 {
                slot = self.slots.len();
            }
            if slot.is_multiple_of(SLOTS) && left >= self.hop {
                slot -= SLOTS;
                energy += self.hops[slot / SLOTS];
                left -= self.hop;
                continue;
            }
            slot -= 1;
            let length = self.slot_frames(slot);
            if left >= length {
                energy += self.slots[slot];
                left -= length;
            } else {
                let end = self.slot_start(slot) + length;
                if self.slots[slot] != 0.0 {
                    let here = slot / SLOTS == self.slot / SLOTS;
                    #[allow(clippy::cast_precision_loss, reason = "a few hundred frames")]
                    let share = || self.slots[slot] * left as f64 / length as f64;
                    energy += self.frames.sum(end - left..end, here).unwrap_or_else(share);
                }
                left = 0;
            }
        }
        energy
    }

    /// Raises the maxima to all windows that end inside the current slot; if only slots are kept,
    /// to those that end with it.
    fn raise_maxima(&self, maxima: &mut Maxima) {
        for (hops, greatest) in
            [(MOMENTARY_HOPS, &mut maxima.momentary), (SHORT_TERM_HOPS, &mut maxima.short_term)]
        {
            if hops > self.longest {
                continue;
            }
            let before = self.energy_before(self.slot, hops * self.hop);
            // No window that ends here can exceed the energy before plus the new energy.
            if before + self.energy <= *greatest {
                continue;
            }
            let slots = self.slots.len();
            let old = (self.slot + slots - hops * SLOTS) % slots;
            if self.slots[old] == 0.0 {
                *greatest = before + self.energy;
                continue;
            }
            let [start, leaving] = [self.slot, old].map(|slot| self.slot_start(slot));
            let top = self.frames.greatest_sum(before, start, leaving, self.filled);
            let at_end = || {
                let length = self.slot_frames(old);
                let rest = self.energy_before(self.slot, hops * self.hop - length);
                if self.filled == length { rest + self.energy } else { 0.0 }
            };
            *greatest = top.unwrap_or_else(at_end).max(*greatest);
        }
    }

    fn slot_start(&self, slot: usize) -> usize {
        slot / SLOTS * self.hop + slot % SLOTS * self.hop / SLOTS
    }

    fn slot_frames(&self, slot: usize) -> usize {
        self.slot_start(slot + 1) - self.slot_start(slot)
    }

    /// At the lowest rates some slots hold no frame.
    fn skip_empty_slots(&mut self) {
        while self.slot < self.slots.len() && self.slot_frames(self.slot) == 0 {
            self.slots[self.slot] = 0.0;
            self.slot += 1;
        }
    }
}

/// Hops in the momentary window, 400 ms (EBU Tech 3341).
pub(super) const MOMENTARY_HOPS: usize = 4;
/// Hops in the short-term window, 3 s (EBU Tech 3341).
pub(super) const SHORT_TERM_HOPS: usize = 30;

/// Slots per hop. More of them make partial slots shorter and maxima easier to rule out, fewer make
/// runs longer.
const SLOTS: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition: all frames ever pushed, summed from the end.
    fn naive(all: &[f64], window: usize) -> f64 {
        all[all.len().saturating_sub(window)..].iter().sum()
    }

    #[test]
    fn any_window_at_any_frame_is_the_plain_sum() {
        for hop in [2, 3, 9, 10, 441, 800] {
            let mut windows = SlidingWindows::new(hop, 30, true, 1.0, false);
            let mut all = Vec::new();
            let mut greatest = Maxima::default();
            let mut seed = 1u64;
            for step in 0..4000 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let n = (1 + (seed >> 33) as usize % 97).min(windows.frames_until_hop());
                #[allow(clippy::cast_precision_loss, reason = "test noise")]
                let level = if step / 500 % 2 == 0 { 1.0 } else { 0.01 } * (seed >> 40) as f64;
                let energies = vec![level; n];
                all.extend(&energies);
                windows.write_buffer(n).copy_from_slice(&energies);
                windows.sum_written(n);
                windows.push(n, true);
                for end in all.len() - n..all.len() {
                    let (m, s) = (naive(&all[..=end], 4 * hop), naive(&all[..=end], 30 * hop));
                    greatest.momentary = greatest.momentary.max(m);
                    greatest.short_term = greatest.short_term.max(s);
                    if hop > 100 {
                        break;
                    }
                }
                for window in [1, hop / 2, hop, 4 * hop, 7 * hop + 1, 30 * hop] {
                    let (ours, plain) = (windows.energy(window), naive(&all, window));
                    assert!((ours - plain).abs() <= 1e-12 * plain, "{hop} {window} {ours} {plain}");
                }
                let maxima = windows.maxima().unwrap();
                if hop < 100 {
                    let close = |a: f64, b: f64| (a - b).abs() <= 1e-12 * b;
                    assert!(close(maxima.momentary, greatest.momentary), "{hop} {step}");
                    assert!(close(maxima.short_term, greatest.short_term), "{hop} {step}");
                }
            }
        }
    }

    #[test]
    fn coarse_windows_are_exact_where_a_slot_ends() {
        for hop in [10, 441, 800] {
            let [mut exact, mut coarse] =
                [false, true].map(|coarse| SlidingWindows::new(hop, 30, true, 1.0, coarse));
            let mut seed = 1u64;
            let mut greatest = Maxima::default();
            let mut all = Vec::new();
            for step in 0..2_000 {
                let frames = exact.slot_frames(exact.slot);
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                #[allow(clippy::cast_precision_loss, reason = "test noise")]
                let level = if step / 500 % 2 == 0 { 1.0 } else { 0.01 } * (seed >> 40) as f64;
                // In two pieces: only the end of the slot counts.
                for frames in [frames / 2, frames - frames / 2].into_iter().filter(|n| *n > 0) {
                    all.extend(vec![level; frames]);
                    for windows in [&mut exact, &mut coarse] {
                        windows.write_buffer(frames).fill(level);
                        windows.sum_written(frames);
                        windows.push(frames, true);
                    }
                }
                let close = |a: f64, b: f64| (a - b).abs() <= 1e-12 * b;
                greatest.momentary = greatest.momentary.max(naive(&all, 4 * hop));
                greatest.short_term = greatest.short_term.max(naive(&all, 30 * hop));
                for window in [4 * hop, 30 * hop] {
                    assert!(close(coarse.energy(window), exact.energy(window)), "{hop} {step}");
                }
                let (maxima, top) = (coarse.maxima().unwrap(), exact.maxima().unwrap());
                assert!(close(maxima.momentary, greatest.momentary), "{hop} {step}");
                assert!(close(maxima.short_term, greatest.short_term), "{hop} {step}");
                assert!(maxima.momentary <= top.momentary * (1.0 + 1e-12));
            }
        }
    }
}
