//! Test signals.

use core::f64::consts::TAU;

/// Random numbers, reproducible by the seed.
#[derive(Clone, Debug)]
pub(crate) struct TestRng(u64);

impl TestRng {
    pub(crate) fn new(seed: u64) -> Self {
        let mut new = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d);
        let _ = (new.next_u64(), new.next_u64());
        new
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        let mixed = self.0 ^ (self.0 >> 29);
        mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11
    }

    /// 0 .. 1
    pub(crate) fn next_f64(&mut self) -> f64 {
        self.next_u64() as f64 / (1u64 << 53) as f64
    }

    /// -1 .. 1
    pub(crate) fn noise(&mut self) -> f64 {
        2.0 * self.next_f64() - 1.0
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next_f64() * n as f64) as usize
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// True once in `n` times on average.
    pub(crate) fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Uniformly distributed over orders of magnitude.
    pub(crate) fn magnitude(&mut self, low: f64, high: f64) -> f64 {
        (low.ln() + self.next_f64() * (high / low).ln()).exp()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum TestSignal {
    Silence,
    Constant,
    Tone(f64),
    Noise,
    /// Noise whose level changes several times a second.
    Speech,
    /// Occasional loud samples.
    Impulses,
    /// Full scale, alternating sign.
    Square(usize),
    /// So faint that squares underflow.
    Faint,
    /// Noise with NaN and infinite values.
    Dirty,
}

impl TestSignal {
    pub(crate) fn random(draw: &mut TestRng) -> Self {
        match draw.below(16) {
            0 => Self::Silence,
            1 => Self::Constant,
            2..=4 => Self::Tone(draw.magnitude(0.0005, 0.5)),
            5 | 6 => Self::Noise,
            7..=10 => Self::Speech,
            11 => Self::Impulses,
            12 => Self::Square(1 + draw.below(200)),
            13 => Self::Faint,
            _ => Self::Dirty,
        }
    }

    /// `frames` interleaved frames around `level`.
    pub(crate) fn make(
        self,
        draw: &mut TestRng,
        rate: u32,
        channels: usize,
        frames: usize,
        level: f64,
    ) -> Vec<f64> {
        let turn = (rate as usize / 7).max(1);
        let mut out = Vec::with_capacity(frames * channels);
        let mut now = level;
        for frame in 0..frames {
            if frame % turn == 0 {
                now = level * 10f64.powf(-2.5 * draw.next_f64());
            }
            for channel in 0..channels {
                out.push(match self {
                    Self::Silence => 0.0,
                    Self::Constant => level,
                    Self::Tone(pitch) => {
                        level * ((frame as f64 * pitch + channel as f64 * 0.1) * TAU).sin()
                    }
                    Self::Noise => level * draw.noise(),
                    Self::Speech => now * draw.noise(),
                    Self::Impulses => {
                        if draw.once_in(997) {
                            3.0 * level
                        } else {
                            1e-4 * level * draw.noise()
                        }
                    }
                    Self::Square(half) => {
                        if frame / half % 2 == 0 {
                            level
                        } else {
                            -level
                        }
                    }
                    Self::Faint => 1e-160 * draw.noise() * draw.noise().powi(20),
                    Self::Dirty => match draw.below(1_500) {
                        0 => f64::NAN,
                        1 => f64::INFINITY,
                        2 => f64::NEG_INFINITY,
                        _ => level * draw.noise(),
                    },
                });
            }
        }
        out
    }
}
