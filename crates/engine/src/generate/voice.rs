//! One note of one instrument.
//!
//! Every instrument is a pair of sines, the second modulating the phase of the first (frequency
//! modulation after Chowning, "The Synthesis of Complex Audio Spectra", 1973), or noise: a handful
//! of operations per sample that the compiler vectorizes, where sampled or additive instruments
//! would need memory or ten times the work. Envelopes are computed once per page and are linear in
//! between, so nothing steps.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "phases are numbers modulo a turn, and rounding is meant"
)]

/// Frames computed at a time. Notes begin on pages, 1.3 ms apart at 48 kHz.
pub(super) const PAGE: usize = 64;

/// One page of one channel.
pub(super) type Page = [f32; PAGE];

/// The parameters of an instrument; times in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instrument {
    pub(super) wave: Wave,
    /// From silence to full level, in a straight line.
    pub(super) attack: f32,
    /// The time in which the level falls to 37 % of the way to `sustain`.
    pub(super) decay: f32,
    /// The level that a held note falls to, relative to its peak.
    pub(super) sustain: f32,
    /// The time in which a released note falls to 37 %.
    pub(super) release: f32,
    pub(super) gain: f32,
    /// Send level to the reverb.
    pub(super) reverb: f32,
    /// Send level to the echo.
    pub(super) echo: f32,
}

/// The waveform under the envelope.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wave {
    /// A sine whose phase is modulated by another.
    Modulated {
        /// Frequency of the modulator relative to the note.
        ratio: f32,
        /// Modulation index at the start of a note at full strength, in radians.
        index: f32,
        /// The time in which the index falls to 37 %.
        index_decay: f32,
        /// Final index, relative to its start.
        index_floor: f32,
        /// The time in which the pitch falls to the note from two octaves above; 0: at once.
        drop: f32,
    },
    /// White noise through a difference (1: hiss) or a mean (-1: thud) of neighbouring samples.
    Noise { tilt: f32 },
}

/// A sounding note.
#[derive(Clone, Copy, Debug)]
pub(super) struct Voice {
    pub(super) instrument: Instrument,
    pub(super) left: f32,
    pub(super) right: f32,
    level: f32,
    strength: f32,
    attack_step: f32,
    attacking: bool,
    decay: f32,
    release: f32,
    index: f32,
    index_floor: f32,
    index_decay: f32,
    pitch: f32,
    pitch_decay: f32,
    carrier: Oscillator,
    modulator: Oscillator,
    noise: u32,
    last: f32,
    gate: u32,
}

impl Voice {
    /// A note of `hz` at `strength` (0..=1) and `pan` (-1 left ..= 1 right), held for `gate` pages;
    /// `pages` is pages per second.
    pub(super) fn new(
        instrument: Instrument,
        hz: f32,
        strength: f32,
        pan: f32,
        gate: u32,
        pages: f32,
    ) -> Self {
        let fall =
            |seconds: f32| if seconds > 0.0 { (-1.0 / (seconds * pages)).exp() } else { 0.0 };
        let angle = (pan + 1.0) * core::f32::consts::FRAC_PI_4;
        let gain = instrument.gain * strength;
        let frames = pages * PAGE as f32;
        let (ratio, index, index_decay, floor, drop) = match instrument.wave {
            Wave::Modulated { ratio, index, index_decay, index_floor, drop } => {
                (ratio, index * strength, index_decay, index_floor, drop)
            }
            Wave::Noise { .. } => (0.0, 0.0, 0.0, 0.0, 0.0),
        };
        Self {
            instrument,
            left: gain * angle.cos(),
            right: gain * angle.sin(),
            level: 0.0,
            strength,
            attack_step: 1.0 / (instrument.attack * pages).max(1.0),
            attacking: true,
            decay: fall(instrument.decay),
            release: fall(instrument.release),
            index: index / core::f32::consts::PI,
            index_floor: index * floor / core::f32::consts::PI,
            index_decay: fall(index_decay),
            pitch: if drop > 0.0 { 4.0 } else { 1.0 },
            pitch_decay: fall(drop),
            carrier: Oscillator::new(hz / frames),
            modulator: Oscillator::new(hz * ratio / frames),
            noise: (hz.to_bits() ^ gate).wrapping_mul(0x9E37_79B9) | 1,
            last: 0.0,
            gate,
        }
    }

    /// Writes the next page, before pan and gain. Returns whether the note still sounds.
    ///
    /// # Real-time
    /// Does not allocate.
    pub(super) fn render(&mut self, out: &mut Page) -> bool {
        let from = self.level;
        let alive = self.advance_level();
        let level = Ramp { from, slope: (self.level - from) / PAGE as f32 };
        match self.instrument.wave {
            Wave::Modulated { .. } => {
                let index = self.index;
                self.index = self.index_floor + (index - self.index_floor) * self.index_decay;
                let index = Ramp { from: index, slope: (self.index - index) / PAGE as f32 };
                let (carrier, modulator) =
                    (self.carrier.page(self.pitch), self.modulator.page(1.0));
                self.pitch = 1.0 + (self.pitch - 1.0) * self.pitch_decay;
                modulate(out, carrier, modulator, level, index);
            }
            Wave::Noise { tilt } => {
                for (i, out) in out.iter_mut().enumerate() {
                    self.noise = self.noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let white = self.noise as i32 as f32 * TURN;
                    *out = level.at(i as f32) * 0.5 * (white - tilt * self.last);
                    self.last = white;
                }
            }
        }
        alive
    }

    /// Moves the envelope by one page. A voice that ends runs down to exactly zero.
    fn advance_level(&mut self) -> bool {
        if self.gate == 0 {
            self.level *= self.release;
        } else if self.attacking {
            self.level = (self.level + self.attack_step).min(1.0);
            self.attacking = self.level < 1.0;
        } else {
            let sustain = self.instrument.sustain;
            self.level = sustain + (self.level - sustain) * self.decay;
        }
        self.gate = self.gate.saturating_sub(1);
        if !self.attacking && self.level * self.strength < INAUDIBLE {
            self.level = 0.0;
            return false;
        }
        // A note may be released during its attack.
        if self.gate == 0 {
            self.attacking = false;
        }
        true
    }
}

/// A phase without rounding errors: a turn is 2^32 steps.
#[derive(Clone, Copy, Debug)]
struct Oscillator {
    phase: u32,
    step: f32,
}

impl Oscillator {
    fn new(turns_per_frame: f32) -> Self {
        Self { phase: 0, step: turns_per_frame * 4_294_967_296.0 }
    }

    /// The phase at the start of a page, and its step per frame; signed, because it is converted to
    /// floats.
    const fn page(&mut self, pitch: f32) -> Phase {
        let (start, step) = (self.phase, (self.step * pitch) as u32);
        self.phase = start.wrapping_add(step.wrapping_mul(PAGE as u32));
        Phase { start: start.cast_signed(), step: step.cast_signed() }
    }
}

/// An oscillator's phase within a page.
#[derive(Clone, Copy)]
struct Phase {
    start: i32,
    step: i32,
}

/// A value that is linear within a page.
#[derive(Clone, Copy)]
struct Ramp {
    from: f32,
    slope: f32,
}

impl Ramp {
    fn at(self, frame: f32) -> f32 {
        self.from + self.slope * frame
    }
}

/// Writes a page of a modulated sine. Inlined into the loop over the voices, the compiler would not
/// vectorize it.
#[inline(never)]
fn modulate(out: &mut Page, carrier: Phase, modulator: Phase, level: Ramp, index: Ramp) {
    let (mut phase, mut modulation) = (carrier.start, modulator.start);
    for (at, out) in (0_i32..).zip(out.iter_mut()) {
        let at = at as f32;
        let bend = index.at(at) * sine(modulation as f32 * TURN);
        *out = level.at(at) * sine(phase as f32 * TURN + bend);
        phase = phase.wrapping_add(carrier.step);
        modulation = modulation.wrapping_add(modulator.step);
    }
}

/// The sine of `x` half turns, for `x` within +-1000, to one part in a thousand: a parabola and its
/// square, refined. Its harmonics are 60 dB down, which is part of the timbre here.
fn sine(x: f32) -> f32 {
    let x = x - 2.0 * ((x * 0.5 + ROUND) - ROUND);
    let y = 4.0 * x * (1.0 - x.abs());
    y + 0.225 * (y * y.abs() - y)
}

/// Adding and subtracting it rounds to the nearest integer, without a function call that baseline
/// x86-64 would need.
const ROUND: f32 = 12_582_912.0;

/// One step of an integer phase, in half turns.
const TURN: f32 = 1.0 / 2_147_483_648.0;

/// The level at which a note ends, and runs to zero within a page: 60 dB below the loudest note.
const INAUDIBLE: f32 = 1e-3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fast_sine_is_a_sine() {
        for i in -4_000..4_000 {
            let x = i as f32 / 1_000.0;
            let exact = (f64::from(x) * core::f64::consts::PI).sin();
            assert!((f64::from(sine(x)) - exact).abs() < 1.2e-3, "{x}");
        }
    }
}
