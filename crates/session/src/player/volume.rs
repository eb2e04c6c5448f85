//! Volume and fades, without clicks.

use aulos_core::{SampleRate, Span};

/// The gain of a client, which changes as a ramp.
#[derive(Clone, Debug)]
pub(super) struct VolumeRamp {
    gain: f32,
    target: f32,
    /// Change per frame.
    step: f32,
}

impl VolumeRamp {
    pub(super) fn new(rate: SampleRate) -> Self {
        Self { gain: 1.0, target: 1.0, step: 1.0 / length(rate, VOLUME_RAMP) }
    }

    /// Sets the volume in percent. The curve is that of Snapcast's clients, so that one group has
    /// one loudness: (10^v - 1) / 9.
    pub(super) fn set(&mut self, percent: u8, is_muted: bool) {
        let volume = f32::from(percent.min(100)) / 100.0;
        let gain = (10.0_f32.powf(volume) - 1.0) / 9.0;
        self.target = if is_muted {
            0.0
        } else if percent >= 100 {
            1.0
        } else {
            gain
        };
    }

    /// The ramp at its end.
    pub(super) const fn settled(mut self) -> Self {
        self.gain = self.target;
        self
    }

    /// Applies the gain; at full volume the samples stay as they are.
    #[allow(clippy::float_cmp, reason = "a ramp ends at its very target")]
    pub(super) fn apply(&mut self, channels: usize, samples: &mut [f32]) {
        for frame in samples.chunks_exact_mut(channels) {
            if self.gain != self.target {
                let change = (self.target - self.gain).clamp(-self.step, self.step);
                self.gain = if change.abs() < self.step { self.target } else { self.gain + change };
            } else if self.gain == 1.0 {
                return;
            }
            frame.iter_mut().for_each(|sample| *sample *= self.gain);
        }
    }
}

/// The fade at the beginning of sound.
#[derive(Clone, Debug)]
pub(super) struct Fade {
    length: usize,
    done: usize,
}

impl Fade {
    pub(super) fn new(rate: SampleRate) -> Self {
        let length = rate.frames(FADE).as_usize();
        Self { length, done: length }
    }

    /// Frames of a fade.
    pub(super) const fn length(&self) -> usize {
        self.length
    }

    pub(super) const fn begin(&mut self) {
        self.done = 0;
    }

    pub(super) fn apply(&mut self, channels: usize, samples: &mut [f32]) {
        for frame in samples.chunks_exact_mut(channels) {
            if self.done >= self.length {
                return;
            }
            let gain = ratio(self.done, self.length);
            frame.iter_mut().for_each(|sample| *sample *= gain);
            self.done += 1;
        }
    }
}

/// From full level to silence.
pub(super) fn fade_out(channels: usize, samples: &mut [f32]) {
    let frames = samples.len() / channels;
    for (number, frame) in samples.chunks_exact_mut(channels).enumerate() {
        let gain = ratio(frames - number - 1, frames);
        frame.iter_mut().for_each(|sample| *sample *= gain);
    }
}

#[allow(clippy::cast_precision_loss, reason = "some hundred frames")]
fn ratio(part: usize, whole: usize) -> f32 {
    part as f32 / whole.max(1) as f32
}

#[allow(clippy::cast_precision_loss, reason = "some thousand frames")]
fn length(rate: SampleRate, span: Span) -> f32 {
    rate.frames(span).as_usize().max(1) as f32
}

/// Full scale takes this long.
const VOLUME_RAMP: Span = Span::from_millis(20);

const FADE: Span = Span::from_millis(5);
