//! Runs a chain, and changes to another one without a click.
//!
//! As in the equalizer, the old and the new chain both process the signal during a change. Two
//! channels are filtered side by side, and a sample passes all bands before the next one: several
//! samples are then under way in different bands at once, where one band after the other would wait
//! for each result.

use aulos_core::{ChannelLayout, Db, Frames, SampleRate, Span};

use super::chain::{ChannelChain, Headroom, MAX_DELAY, SoundChain};
use crate::equalizer::{Biquad, INAUDIBLE, MAX_BANDS, RUN};
use crate::{Crossfade, Limiter};

/// The coefficients of a chain at one sample rate.
///
/// It is computed outside the audio thread, and copied into a [`SoundProcessor`] there.
#[derive(Clone, Copy, Debug)]
pub struct SoundProgram {
    /// Gains of left and right.
    gains: [f64; 2],
    filters: [BiquadPair; MAX_BANDS],
    count: usize,
    /// Frames by which left and right are delayed; one of them is zero.
    delays: [usize; 2],
    /// Whether further channels get the filters, gain and delay of left.
    is_uniform: bool,
    /// The gain of further channels otherwise.
    preamp: f64,
    ceiling: Option<Db>,
}

/// A filter for each of two channels.
#[derive(Clone, Copy, Debug)]
struct BiquadPair {
    b: [[f64; 2]; 3],
    a: [[f64; 2]; 2],
}

impl BiquadPair {
    fn new(left: Biquad, right: Biquad) -> Self {
        let pair = |of: fn(&Biquad) -> f64| [of(&left), of(&right)];
        Self {
            b: [pair(|one| one.b[0]), pair(|one| one.b[1]), pair(|one| one.b[2])],
            a: [pair(|one| one.a[0]), pair(|one| one.a[1])],
        }
    }
}

impl SoundProgram {
    /// The coefficients of a valid chain; bands that do not exist at this rate are left out. A
    /// limiter keeps to `ceiling`.
    #[must_use]
    pub fn new(chain: &SoundChain, rate: SampleRate, ceiling: Db) -> Self {
        let preamp = chain.effective_preamp(rate);
        let sides = [&chain.left, &chain.right];
        let mut filters = [BiquadPair::new(Biquad::PASS, Biquad::PASS); MAX_BANDS];
        let designed = sides.map(|side| designs(side, rate));
        for (at, pair) in filters.iter_mut().enumerate() {
            let filter = |side: &[Biquad]| side.get(at).copied().unwrap_or(Biquad::PASS);
            *pair = BiquadPair::new(filter(&designed[0]), filter(&designed[1]));
        }
        // What delays both channels would only take the client out of sync.
        let common = chain.left.delay.min(chain.right.delay);
        let limited = chain.headroom == Headroom::Limiter;
        Self {
            gains: sides.map(|side| Db::new(preamp.get() + side.gain.get()).amplitude()),
            filters,
            count: designed[0].len().max(designed[1].len()),
            delays: sides.map(|side| rate.frames((side.delay - common).min(MAX_DELAY)).as_usize()),
            is_uniform: chain.left == chain.right,
            preamp: preamp.amplitude(),
            ceiling: limited.then_some(ceiling),
        }
    }

    /// The program that changes nothing.
    #[must_use]
    pub fn identity() -> Self {
        Self {
            gains: [1.0; 2],
            filters: [BiquadPair::new(Biquad::PASS, Biquad::PASS); MAX_BANDS],
            count: 0,
            delays: [0; 2],
            is_uniform: true,
            preamp: 1.0,
            ceiling: None,
        }
    }

    #[allow(clippy::float_cmp, reason = "the gain of 0 dB is one exactly")]
    fn is_identity(&self) -> bool {
        self.gains == [1.0; 2]
            && self.preamp == 1.0
            && self.count == 0
            && self.delays == [0; 2]
            && self.ceiling.is_none()
    }
}

fn designs(side: &ChannelChain, rate: SampleRate) -> Vec<Biquad> {
    side.bands_at(rate).map(|band| Biquad::design(band, f64::from(rate.hz()))).collect()
}

/// Processes the sound of a client.
///
/// With a program that changes nothing, the signal passes bit-exact. Samples that are not finite
/// become silence otherwise.
///
/// # Real-time
/// Allocates at construction only.
///
/// # Examples
/// ```
/// use aulos_core::{ChannelLayout, Db, SampleRate};
/// use aulos_dsp::sound::{ChannelChain, SoundChain, SoundProcessor, SoundProgram};
///
/// let quieter = ChannelChain { gain: Db::new(-20.0), ..ChannelChain::default() };
/// let chain = SoundChain { left: quieter, ..SoundChain::default() };
/// let rate = SampleRate::HZ_48000;
/// let program = SoundProgram::new(&chain, rate, Db::new(-1.0));
/// let mut processor = SoundProcessor::new(rate, ChannelLayout::STEREO, &program);
/// let mut sound = [0.5, 0.5];
/// processor.process(&mut sound);
/// assert_eq!(sound, [0.05, 0.5]);
/// ```
#[derive(Clone, Debug)]
pub struct SoundProcessor {
    rate: SampleRate,
    channels: usize,
    current: ChainState,
    /// The chain before the present change.
    outgoing: ChainState,
    fade: Option<ChainFade>,
    /// The program that follows the present change.
    next: Option<SoundProgram>,
    /// Some frames of the outgoing chain's output.
    scratch: Box<[f32]>,
}

#[derive(Clone, Debug)]
struct ChainFade {
    /// Frames for which the new chain still runs muted, so that its filters and delays are filled.
    warm: Frames,
    curve: Crossfade,
}

impl SoundProcessor {
    /// A processor that runs this program from the first frame on.
    #[must_use]
    pub fn new(rate: SampleRate, layout: ChannelLayout, program: &SoundProgram) -> Self {
        let channels = layout.channels();
        let current = ChainState::new(rate, layout, program);
        Self {
            rate,
            channels,
            outgoing: current.clone(),
            current,
            fade: None,
            next: None,
            scratch: vec![0.0; RUN * channels].into(),
        }
    }

    /// Changes to another program from the next frame on: it runs muted for 100 ms, and is then
    /// faded in within 100 ms. A change during a change follows it; only the last one counts.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn set(&mut self, program: &SoundProgram) {
        if self.fade.is_some() {
            self.next = Some(*program);
        } else {
            self.begin_fade(program);
        }
    }

    /// Processes interleaved frames in place. An incomplete frame at the end stays as it is.
    ///
    /// # Real-time
    /// Does not allocate; some ten operations per sample and band, twice as many during a change.
    pub fn process(&mut self, block: &mut [f32]) {
        if self.is_idle() {
            return;
        }
        let whole = block.len() / self.channels * self.channels;
        for run in block[..whole].chunks_mut(RUN * self.channels) {
            self.run(run);
        }
    }

    /// Frames by which the output is late: those of the limiter. A delay between the channels does
    /// not count.
    #[must_use]
    pub fn latency(&self) -> Frames {
        match &self.fade {
            Some(fade) if fade.warm > Frames::ZERO => self.outgoing.latency(),
            _ => self.current.latency(),
        }
    }

    /// Whether the signal passes unchanged.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.fade.is_none() && self.current.program.is_identity()
    }

    fn begin_fade(&mut self, program: &SoundProgram) {
        core::mem::swap(&mut self.current, &mut self.outgoing);
        self.current.load(program);
        let (warm, frames) = (self.rate.frames(WARM_UP), self.rate.frames(FADE));
        self.fade = Some(ChainFade { warm, curve: Crossfade::linear(frames) });
    }

    fn run(&mut self, run: &mut [f32]) {
        run.iter_mut().filter(|x| !x.is_finite()).for_each(|x| *x = 0.0);
        let Some(fade) = &mut self.fade else { return self.current.process(run) };
        let going = &mut self.scratch[..run.len()];
        going.copy_from_slice(run);
        self.outgoing.process(going);
        self.current.process(run);
        let unheard = fade.warm.as_usize().saturating_mul(self.channels).min(run.len());
        run[..unheard].copy_from_slice(&going[..unheard]);
        fade.warm -= Frames::from(unheard / self.channels);
        fade.curve.mix(&going[unheard..], &mut run[unheard..], self.channels);
        if fade.curve.remaining() == Frames::ZERO {
            self.fade = None;
            if let Some(next) = self.next.take() {
                self.begin_fade(&next);
            }
        }
    }
}

/// A program with its memory.
#[derive(Clone, Debug)]
struct ChainState {
    program: SoundProgram,
    channels: usize,
    /// Two values for each of two channels, by band and pair of channels.
    states: Box<[[[f64; 2]; 2]]>,
    /// The last frames, as long as the longest delay.
    ring: Box<[f32]>,
    /// Where the next frame goes.
    position: usize,
    limiter: Limiter,
}

impl ChainState {
    fn new(rate: SampleRate, layout: ChannelLayout, program: &SoundProgram) -> Self {
        let channels = layout.channels();
        let delay = rate.frames(MAX_DELAY).as_usize() + 1;
        let mut new = Self {
            program: *program,
            channels,
            states: vec![[[0.0; 2]; 2]; MAX_BANDS * channels.div_ceil(2)].into(),
            ring: vec![0.0; delay * channels].into(),
            position: 0,
            limiter: Limiter::new(rate, layout, Db::ZERO),
        };
        new.load(program);
        new
    }

    fn load(&mut self, program: &SoundProgram) {
        self.program = *program;
        self.states.fill([[0.0; 2]; 2]);
        self.ring.fill(0.0);
        if let Some(ceiling) = program.ceiling {
            self.limiter.set_ceiling(ceiling);
        }
    }

    fn latency(&self) -> Frames {
        if self.program.ceiling.is_some() { self.limiter.latency() } else { Frames::ZERO }
    }

    fn process(&mut self, run: &mut [f32]) {
        for pair in 0..self.channels.div_ceil(2) {
            self.filter(pair, run);
        }
        if self.program.delays != [0; 2] {
            self.delay(run);
        }
        if self.program.ceiling.is_some() {
            self.limiter.process(run);
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "sound is f32")]
    fn filter(&mut self, pair: usize, run: &mut [f32]) {
        let program = &self.program;
        let processes = pair == 0 || program.is_uniform;
        let gains = if processes { program.gains } else { [program.preamp; 2] };
        let filters = &program.filters[..if processes { program.count } else { 0 }];
        let states = &mut self.states[pair * MAX_BANDS..][..filters.len()];
        let first = 2 * pair;
        // A channel without a partner is its own.
        let second = (first + 1).min(self.channels - 1);
        for frame in run.chunks_exact_mut(self.channels) {
            let mut x = [f64::from(frame[first]) * gains[0], f64::from(frame[second]) * gains[1]];
            for (filter, [one, two]) in filters.iter().zip(states.iter_mut()) {
                let BiquadPair { b, a } = filter;
                let mut y = [0.0; 2];
                for lane in 0..2 {
                    y[lane] = b[0][lane] * x[lane] + one[lane];
                    one[lane] = (b[1][lane] * x[lane] + two[lane]) - a[0][lane] * y[lane];
                    two[lane] = b[2][lane] * x[lane] - a[1][lane] * y[lane];
                }
                x = y;
            }
            frame[second] = x[1] as f32;
            frame[first] = x[0] as f32;
        }
        // The decay would end in denormal numbers, which are a hundred times slower.
        let values = states.iter_mut().flatten().flatten();
        for value in values.filter(|value| value.abs() < INAUDIBLE) {
            *value = 0.0;
        }
    }

    fn delay(&mut self, run: &mut [f32]) {
        let (channels, length) = (self.channels, self.ring.len() / self.channels);
        for frame in run.chunks_exact_mut(channels) {
            self.ring[self.position * channels..][..channels].copy_from_slice(frame);
            for (channel, frames) in self.program.delays.iter().enumerate().take(channels) {
                let at = (self.position + length - frames) % length;
                frame[channel] = self.ring[at * channels + channel];
            }
            self.position = (self.position + 1) % length;
        }
    }
}

/// How long a new program runs muted: as long as the longest delay.
const WARM_UP: Span = MAX_DELAY;
/// How long the crossfade then takes.
const FADE: Span = Span::from_millis(100);
