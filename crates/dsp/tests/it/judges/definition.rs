//! BS.1770-4, Tech 3341 and 3342 implemented literally: one sample after the other, every energy
//! stored, every window summed at each reading. Slow, short, and shares no code with the meter.

use core::f64::consts::PI;
use std::collections::VecDeque;

use super::case::{StreamFormat, weight};

/// Stores everything since the last change.
pub(crate) struct Definition {
    shelf: [f64; 5],
    pass: [f64; 2],
    /// Two sections for each channel, each with two past inputs and outputs.
    states: Vec<[[f64; 4]; 2]>,
    weights: Vec<f64>,
    hop: usize,
    rate: u32,
    tenth: bool,
    /// One energy for each frame.
    energies: Vec<f64>,
    /// One for each complete hop.
    hops: Vec<f64>,
    blocks: VecDeque<f64>,
    ranges: VecDeque<f64>,
    limits: [usize; 2],
    maxima: [f64; 2],
    sliding: [f64; 2],
}

/// Hops in 400 ms and in 3 s.
const WINDOWS: [usize; 2] = [4, 30];

impl Definition {
    pub(crate) fn new(shape: &StreamFormat, tenth: bool) -> Self {
        let hz = f64::from(shape.rate);
        // Corner frequencies stay below 0.45 of the rate: specific to this meter, below 4 kHz.
        let corner = |f: f64| (PI * f.min(0.45 * hz) / hz).tan();
        let (k, q) = (corner(1681.974450955533), 0.7071752369554196);
        let high = 10f64.powf(3.999843853973347 / 20.0);
        let band = high.powf(0.4996667741545416);
        let a0 = 1.0 + k / q + k * k;
        let shelf = [
            (high + band * k / q + k * k) / a0,
            2.0 * (k * k - high) / a0,
            (high - band * k / q + k * k) / a0,
            2.0 * (k * k - 1.0) / a0,
            (1.0 - k / q + k * k) / a0,
        ];
        let (k, q) = (corner(38.13547087602444), 0.5003270373238773);
        let a0 = 1.0 + k / q + k * k;
        let pass = [2.0 * (k * k - 1.0) / a0, (1.0 - k / q + k * k) / a0];
        Self {
            shelf,
            pass,
            states: vec![[[0.0; 4]; 2]; shape.map.len()],
            weights: shape.map.iter().map(|&number| weight(number)).collect(),
            hop: (shape.rate as usize + 5) / 10,
            rate: shape.rate,
            tenth,
            energies: Vec::new(),
            hops: Vec::new(),
            blocks: VecDeque::new(),
            ranges: VecDeque::new(),
            limits: [usize::MAX; 2],
            maxima: [0.0; 2],
            sliding: [0.0; 2],
        }
    }

    /// Continues with another format.
    pub(crate) fn change(&mut self, shape: &StreamFormat) {
        let old = std::mem::replace(self, Self::new(shape, self.tenth));
        (self.blocks, self.ranges, self.limits) = (old.blocks, old.ranges, old.limits);
    }

    pub(crate) fn clear_windows(&mut self) {
        (self.energies, self.hops, self.sliding) = (Vec::new(), Vec::new(), [0.0; 2]);
    }

    pub(crate) fn set_history(&mut self, ms: u32) {
        self.limits = [ms as usize / 100, ms as usize / if self.tenth { 300 } else { 3_000 }];
        self.forget();
    }

    /// Takes over another instance's history limits.
    pub(crate) fn limits_of(&mut self, other: &Self) {
        self.limits = other.limits;
    }

    pub(crate) fn add(&mut self, samples: &[f64]) {
        for frame in samples.chunks_exact(self.weights.len()) {
            let mut energy = 0.0;
            for ((x, state), weight) in frame.iter().zip(&mut self.states).zip(&self.weights) {
                let y = section(&mut state[0], *x, &self.shelf);
                let z = section(&mut state[1], y, &[1.0, -2.0, 1.0, self.pass[0], self.pass[1]]);
                energy += weight * z * z;
            }
            self.energies.push(energy);
            let end = self.energies.len();
            for (index, hops) in WINDOWS.into_iter().enumerate() {
                let leaving =
                    end.checked_sub(hops * self.hop + 1).map_or(0.0, |n| self.energies[n]);
                self.sliding[index] += energy - leaving;
                self.maxima[index] = self.maxima[index].max(self.sliding[index]);
            }
            if end.is_multiple_of(self.hop) {
                self.end_hop();
            }
        }
    }

    /// Mean square of the last `frames` frames.
    pub(crate) fn energy(&self, frames: usize) -> f64 {
        let start = self.energies.len().saturating_sub(frames);
        self.energies[start..].iter().sum::<f64>() / frames as f64
    }

    pub(crate) fn momentary(&self) -> f64 {
        lufs(self.energy(4 * self.hop))
    }

    pub(crate) fn short_term(&self) -> f64 {
        lufs(self.energy(30 * self.hop))
    }

    pub(crate) fn window(&self, ms: u32) -> f64 {
        lufs(self.energy((u64::from(self.rate) * u64::from(ms) / 1000) as usize))
    }

    /// The greatest momentary and short-term loudness at any frame.
    pub(crate) fn maxima(&self) -> [f64; 2] {
        [0, 1].map(|n| lufs(self.maxima[n] / (WINDOWS[n] * self.hop) as f64))
    }

    pub(crate) fn threshold(&self) -> f64 {
        self.gate().map_or(-70.0, lufs)
    }

    pub(crate) fn integrated(&self) -> f64 {
        let gate = self.gate().unwrap_or(0.0).max(absolute());
        mean(self.blocks.iter().filter(|&&block| block >= gate)).map_or(f64::NEG_INFINITY, lufs)
    }

    pub(crate) fn range(&self) -> f64 {
        let Some(mean) = mean(self.ranges.iter()) else { return 0.0 };
        let mut kept: Vec<f64> =
            self.ranges.iter().copied().filter(|&energy| energy >= mean / 100.0).collect();
        kept.sort_by(f64::total_cmp);
        let at = |part: f64| lufs(kept[((kept.len() - 1) as f64 * part + 0.5) as usize]);
        if kept.is_empty() { 0.0 } else { at(0.95) - at(0.10) }
    }

    fn gate(&self) -> Option<f64> {
        mean(self.blocks.iter().filter(|&&block| block >= absolute())).map(|mean| mean / 10.0)
    }

    fn end_hop(&mut self) {
        let end = self.energies.len();
        self.hops.push(self.energies[end - self.hop..].iter().sum());
        let last = |hops: usize| {
            let sum: f64 = self.hops[self.hops.len() - hops..].iter().sum();
            sum / (hops * self.hop) as f64
        };
        let done = self.hops.len();
        if done >= 4 && last(4) >= absolute() {
            self.blocks.push_back(last(4));
        }
        if done >= 30 && (self.tenth || done.is_multiple_of(10)) && last(30) >= absolute() {
            self.ranges.push_back(last(30));
        }
        self.forget();
    }

    fn forget(&mut self) {
        for (list, limit) in [&mut self.blocks, &mut self.ranges].into_iter().zip(self.limits) {
            list.drain(..list.len().saturating_sub(limit));
        }
    }
}

/// Direct form I, as drawn in the recommendation.
fn section(past: &mut [f64; 4], x: f64, [b0, b1, b2, a1, a2]: &[f64; 5]) -> f64 {
    let [x1, x2, y1, y2] = *past;
    let y = b0 * x + b1 * x1 + b2 * x2 - a1 * y1 - a2 * y2;
    *past = [x, x1, y, y1];
    y
}

fn absolute() -> f64 {
    10f64.powf((-70.0 + 0.691) / 10.0)
}

fn lufs(energy: f64) -> f64 {
    10.0 * energy.log10() - 0.691
}

fn mean<'a>(values: impl Iterator<Item = &'a f64>) -> Option<f64> {
    let (count, sum) = values.fold((0, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}
