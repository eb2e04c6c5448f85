//! Concealment of lost packets by repetition of the last pitch period.
//!
//! This is the method of ITU-T G.711 Appendix I, for any rate and any number of channels. Speech
//! stays nearly periodic for some hundredths of a second. So for the first 10 ms the last period is
//! repeated, then the last two, then three, so that it does not buzz; from 10 ms on the level falls
//! by a fifth every 10 ms, and after 60 ms there is silence. Transitions are cross-faded over a
//! quarter of a period. For that the last samples must not have been output yet: all output is
//! [`Concealer::delay`] late, 3.75 ms.
//!
//! All channels share one period: a voice in the middle must not fall apart into two.

/// Records decoded audio, and continues it where packets are lost.
#[derive(Clone, Debug)]
pub struct Concealer {
    channels: usize,
    spans: FrameLengths,
    /// Past audio, newest last, and its state when the loss began. 16 bits are enough for a guess,
    /// and keep a stream small.
    history: Box<[i16]>,
    frozen: Box<[i16]>,
    /// Audio that has not been output yet: a ring.
    delayed: Box<[f32]>,
    at: usize,
    state: ConcealState,
}

/// Lengths in frames.
#[derive(Clone, Copy, Debug)]
struct FrameLengths {
    /// The shortest and the longest pitch period.
    min_period: usize,
    max_period: usize,
    /// A quarter of the longest.
    delay: usize,
    /// Window of the correlation that finds the period.
    window: usize,
    ten_ms: usize,
    history: usize,
    /// Step of the coarse search for the period.
    stride: usize,
}

#[derive(Clone, Copy, Debug)]
enum ConcealState {
    /// Packets arrive.
    Receiving,
    /// A packet is lost.
    Concealing(PitchRepeat),
    /// Packets arrive again: `over` of the `of` frames of the cross-fade are done.
    Resuming { voice: PitchRepeat, over: usize, of: usize },
}

/// A repeated pitch period.
#[derive(Clone, Copy, Debug)]
struct PitchRepeat {
    period: usize,
    /// Its duration in frames.
    age: usize,
    now: RepeatPosition,
    /// The state before the last change, which is faded out.
    before: RepeatPosition,
}

/// Position in the repeated section, which is this many periods long.
#[derive(Clone, Copy, Debug)]
struct RepeatPosition {
    periods: usize,
    offset: usize,
}

impl Concealer {
    /// A concealer for frames of `channels` samples at `hz`.
    #[must_use]
    pub fn new(hz: u32, channels: usize) -> Self {
        let spans = FrameLengths::new(hz);
        let (channels, history) = (channels.max(1), spans.history * channels.max(1));
        Self {
            channels,
            spans,
            history: vec![0; history].into(),
            frozen: vec![0; history].into(),
            delayed: vec![0.0; spans.delay * channels].into(),
            at: 0,
            state: ConcealState::Receiving,
        }
    }

    /// Delay of the output in frames.
    #[must_use]
    pub const fn delay(&self) -> usize {
        self.spans.delay
    }

    /// Takes decoded frames, and replaces them by the frames to output now.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn push_decoded(&mut self, samples: &mut [f32]) {
        if let ConcealState::Concealing(voice) = self.state {
            let of = self.spans.fade_in_length(voice);
            self.state = ConcealState::Resuming { voice, over: 0, of };
        }
        let channels = self.channels;
        let mut frames = samples.chunks_exact_mut(channels);
        while let ConcealState::Resuming { mut voice, over, of } = self.state {
            if over == of {
                self.state = ConcealState::Receiving;
                break;
            }
            let Some(frame) = frames.next() else { break };
            let weight = fraction(over + 1, of + 1);
            for (channel, sample) in frame.iter_mut().enumerate() {
                let other = voice.sample(&self.frozen, channels, channel, self.spans);
                *sample = *sample * weight + other * (1.0 - weight);
            }
            voice.advance(self.spans);
            self.state = ConcealState::Resuming { voice, over: over + 1, of };
        }
        self.update_history(samples);
        self.delay_line(samples);
    }

    /// Fills `samples` with the replacement for lost packets.
    ///
    /// # Real-time
    /// Does not allocate. The first call searches the period: some ten thousand multiplications at
    /// 8 kHz.
    pub fn conceal(&mut self, samples: &mut [f32]) {
        let mut voice = match self.state {
            ConcealState::Concealing(voice) => voice,
            ConcealState::Receiving | ConcealState::Resuming { .. } => self.begin_concealment(),
        };
        let channels = self.channels;
        for frame in samples.chunks_exact_mut(channels) {
            for (channel, sample) in frame.iter_mut().enumerate() {
                *sample = voice.sample(&self.frozen, channels, channel, self.spans);
            }
            voice.advance(self.spans);
        }
        self.state = ConcealState::Concealing(voice);
        self.update_history(samples);
        self.delay_line(samples);
    }

    /// Clears the history: the next audio is unrelated.
    pub fn reset(&mut self) {
        self.history.fill(0);
        self.delayed.fill(0.0);
        self.state = ConcealState::Receiving;
    }

    /// Finds the period, and cross-fades the pending output into it.
    fn begin_concealment(&mut self) -> PitchRepeat {
        self.frozen.copy_from_slice(&self.history);
        let period = self.period();
        let first = RepeatPosition { periods: 1, offset: 0 };
        let overlap = period / 4;
        let frames = self.delayed.len() / self.channels;
        for back in 0..overlap {
            let weight = fraction(overlap - back, overlap + 1);
            let frame = (self.at + frames - 1 - back) % frames;
            let before = self.spans.history - period - 1 - back;
            for channel in 0..self.channels {
                let sample = &mut self.delayed[frame * self.channels + channel];
                let other = float(self.frozen[before * self.channels + channel]);
                *sample = *sample * (1.0 - weight) + other * weight;
            }
        }
        PitchRepeat { period, age: 0, now: first, before: first }
    }

    /// The lag at which the last 20 ms are most similar to themselves.
    fn period(&self) -> usize {
        let FrameLengths { min_period, max_period, stride, .. } = self.spans;
        let coarse = self.best_period((min_period..=max_period).step_by(stride), stride);
        let around = coarse.saturating_sub(stride - 1).max(min_period)
            ..=(coarse + stride - 1).min(max_period);
        self.best_period(around, 1)
    }

    /// The best of `periods`, comparing every `stride`th frame.
    fn best_period(&self, periods: impl Iterator<Item = usize>, stride: usize) -> usize {
        let (mut best, mut best_likeness) = (self.spans.max_period, f32::MIN);
        let window = (self.spans.history - self.spans.window) * self.channels;
        let step = stride * self.channels;
        let now = &self.frozen[window..];
        for period in periods {
            let then = &self.frozen[window - period * self.channels..];
            let (mut product, mut energy) = (0.0_f32, 1.0_f32);
            for (now, then) in now.chunks(step).zip(then.chunks(step)) {
                for (&now, &then) in now.iter().zip(then).take(self.channels) {
                    product += f32::from(now) * f32::from(then);
                    energy += f32::from(then) * f32::from(then);
                }
            }
            let likeness = product / energy.sqrt();
            if likeness > best_likeness {
                (best, best_likeness) = (period, likeness);
            }
        }
        best
    }

    fn update_history(&mut self, samples: &[f32]) {
        let kept = samples.len().min(self.history.len());
        let start = self.history.len() - kept;
        self.history.copy_within(kept.., 0);
        for (to, &from) in self.history[start..].iter_mut().zip(&samples[samples.len() - kept..]) {
            *to = short(from);
        }
    }

    fn delay_line(&mut self, samples: &mut [f32]) {
        let frames = self.delayed.len() / self.channels;
        for frame in samples.chunks_exact_mut(self.channels) {
            let start = self.at * self.channels;
            frame.swap_with_slice(&mut self.delayed[start..start + self.channels]);
            self.at = (self.at + 1) % frames;
        }
    }
}

impl PitchRepeat {
    /// One sample of the next frame.
    fn sample(&self, frozen: &[i16], channels: usize, channel: usize, spans: FrameLengths) -> f32 {
        let loudness = self.gain(spans);
        if loudness <= 0.0 {
            return 0.0;
        }
        let at = |place: RepeatPosition| self.repeated(frozen, place, channels, channel, spans);
        let (since, overlap) = (self.age % spans.ten_ms, self.period / 4);
        let sample = if self.before.periods != self.now.periods && since < overlap {
            let weight = fraction(since + 1, overlap + 1);
            at(self.before) * (1.0 - weight) + at(self.now) * weight
        } else {
            at(self.now)
        };
        sample * loudness
    }

    /// One sample of a section whose end is cross-faded into what was before its beginning.
    fn repeated(
        &self,
        frozen: &[i16],
        place: RepeatPosition,
        channels: usize,
        channel: usize,
        spans: FrameLengths,
    ) -> f32 {
        let length = place.periods * self.period;
        let overlap = self.period / 4;
        let sample = |back: usize| float(frozen[(spans.history - back) * channels + channel]);
        let back = length - place.offset;
        if back > overlap {
            return sample(back);
        }
        let weight = fraction(overlap + 1 - back, overlap + 1);
        sample(back) * (1.0 - weight) + sample(back + length) * weight
    }

    /// Advances by one frame.
    fn advance(&mut self, spans: FrameLengths) {
        self.age += 1;
        for place in [&mut self.now, &mut self.before] {
            place.offset = (place.offset + 1) % (place.periods * self.period);
        }
        if self.age.is_multiple_of(spans.ten_ms) && self.now.periods < MAX_PERIODS {
            self.before = self.now;
            // In phase, and in the oldest period.
            self.now.offset %= self.period;
            self.now.periods += 1;
        } else if self.age % spans.ten_ms >= self.period / 4 {
            self.before = self.now;
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "frames of a tenth of a second")]
    fn gain(&self, spans: FrameLengths) -> f32 {
        let beyond = self.age.saturating_sub(spans.ten_ms).min(6 * spans.ten_ms);
        1.0 - 0.2 * beyond as f32 / spans.ten_ms as f32
    }
}

impl FrameLengths {
    fn new(hz: u32) -> Self {
        let hz = usize::try_from(hz.clamp(8_000, 384_000)).unwrap_or(8_000);
        let of = |micros: usize| hz * micros / 1_000_000;
        let max_period = of(15_000);
        let delay = max_period / 4;
        Self {
            min_period: of(5_000),
            max_period,
            delay,
            window: of(20_000),
            ten_ms: of(10_000),
            history: MAX_PERIODS * max_period + delay,
            stride: (hz / COARSE_HZ).max(1),
        }
    }

    /// Length of the fade-in when packets arrive again: longer after a longer loss.
    fn fade_in_length(self, voice: PitchRepeat) -> usize {
        let longer = voice.age.saturating_sub(self.ten_ms) * 2 / 5;
        (voice.period / 4 + longer).min(self.ten_ms)
    }
}

#[allow(clippy::cast_precision_loss, reason = "frames of a tenth of a second")]
fn fraction(some: usize, all: usize) -> f32 {
    some as f32 / all as f32
}

fn float(sample: i16) -> f32 {
    f32::from(sample) / 32_768.0
}

#[allow(clippy::cast_possible_truncation, reason = "saturates")]
fn short(sample: f32) -> i16 {
    (sample * 32_768.0) as i16
}

/// The repeated section grows up to this many periods.
const MAX_PERIODS: usize = 3;

/// Sample rate of the coarse search.
const COARSE_HZ: usize = 4_000;
