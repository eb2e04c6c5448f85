//! Sample rate conversion and drift correction with one filter.
//!
//! A windowed sinc in polyphase form. Both tasks are the same here - a step through the input that
//! is not one frame long - so a source that needs conversion *and* drift correction is filtered
//! once. Alternatives: `docs/decisions/clock-recovery.md`.
//!
//! The position in the input is an integer, in fractions of one output step, so it stays exact: 160
//! frames out of 147 in, without accumulated error. See J. O. Smith, "Digital Audio Resampling",
//! for the method, and J. F. Kaiser (1974) for the window.

mod table;

use core::fmt;
use std::sync::{Arc, OnceLock};

use aulos_core::{Frames, Ppm, SampleRate};

use table::{FilterTable, LANES, SincDesign};

/// Converts interleaved f32 from one rate to another and follows clock drift.
///
/// * Equal rates without drift: a bit-exact copy, delayed by [`latency`](Self::latency). A drift
///   that is set later starts without a click, and when it is zero again the position glides to the
///   nearest whole frame, after which the output is a copy again.
/// * Different rates: flat to 90.7 % of half of the lower rate (20 kHz at 44.1 kHz), and 110 dB
///   down from half of the lower rate on, so that neither images nor aliases are audible.
///
/// The first output frame is `latency` before the first input frame: missing input is silence.
///
/// # Examples
/// ```
/// use aulos_core::{Frames, SampleRate};
/// use aulos_dsp::Resampler;
///
/// let mut resampler = Resampler::new(2, SampleRate::HZ_44100, SampleRate::HZ_48000);
/// let (input, mut output) = ([0.5; 2 * 441], [0.0; 2 * 960]);
/// let progress = resampler.process(&input, &mut output);
/// assert_eq!(progress.consumed, Frames(441));
/// assert_eq!(progress.produced, Frames(480));
/// ```
#[derive(Clone)]
pub struct Resampler {
    table: Arc<FilterTable>,
    channels: usize,
    /// One run of `capacity` frames per channel; `len` of them are filled.
    history: Vec<f32>,
    capacity: usize,
    len: usize,
    /// Start of the filter for the next output frame in the history; may lie beyond `len`.
    start: usize,
    /// The next output frame is `fraction / unit` input frames after a whole one.
    fraction: u64,
    unit: u64,
    /// Input frames per output frame in units: the present value, the target for the drift, and the
    /// value without drift.
    step: u64,
    target: u64,
    nominal: u64,
    /// `step / unit` and `step % unit`.
    whole: usize,
    rest: u64,
    /// There is no drift any more, and the position glides to a whole frame.
    aligns: bool,
}

/// Result of one call of [`Resampler::process`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResampleProgress {
    /// Frames taken from the front of the input.
    pub consumed: Frames,
    /// Frames written to the front of the output.
    pub produced: Frames,
}

impl Resampler {
    /// A resampler for frames of `channels` channels.
    ///
    /// Takes up to 1 MiB for its filter, and some milliseconds to design it. Clones share the
    /// filter; between equal rates all resamplers share one of 0.2 MiB.
    ///
    /// # Panics
    /// If `channels` is 0, which no [`aulos_core::ChannelLayout`] is.
    #[must_use]
    pub fn new(channels: usize, from: SampleRate, to: SampleRate) -> Self {
        let divisor = greatest_common_divisor(from.hz(), to.hz());
        let (from, to) = (from.hz() / divisor, to.hz() / divisor);
        let design = || Arc::new(table(&SincDesign::new(f64::from(from) / f64::from(to)), to));
        let table = if from == to { EQUAL_RATES.get_or_init(design).clone() } else { design() };
        Self::with_table(channels, (from, to), table)
    }

    /// A resampler between equal rates with a short filter, for a player that follows a clock: 110
    /// dB clean up to 0.38 of the rate (18 kHz at 48 kHz), with a latency of 16 frames. The filter
    /// of [`new`](Self::new) reaches to 0.45 of the rate, takes 40 frames and two and a half times
    /// as long.
    ///
    /// # Panics
    /// If `channels` is 0.
    #[must_use]
    pub fn for_drift(channels: usize) -> Self {
        Self::with_table(channels, (1, 1), Arc::new(table(&SincDesign::SHORT, 1)))
    }

    fn with_table(channels: usize, (from, to): (u32, u32), table: Arc<FilterTable>) -> Self {
        assert!(channels > 0, "a frame has at least one channel");
        let unit = u64::from(to) << DRIFT_BITS;
        let nominal = u64::from(from) << DRIFT_BITS;
        let capacity = table.taps() + HISTORY_SLACK_FRAMES;
        let mut resampler = Self {
            table,
            channels,
            history: vec![0.0; capacity * channels],
            capacity,
            len: 0,
            start: 0,
            fraction: 0,
            unit,
            step: nominal,
            target: nominal,
            nominal,
            whole: 0,
            rest: 0,
            aligns: false,
        };
        resampler.reset();
        resampler
    }

    /// Follows a source whose clock is off by `drift`: positive for a fast clock, so that more
    /// input is consumed.
    ///
    /// The step glides to its new length with a time constant of 1,024 output frames.
    ///
    /// # Real-time
    /// A few multiplications.
    pub fn set_drift(&mut self, drift: Ppm) {
        let change = i128::from(self.nominal) * i128::from(drift.as_ppb()) / 1_000_000_000;
        // |drift| is at most a tenth and `nominal` has 62 bits at most: this always fits.
        self.target = u64::try_from(i128::from(self.nominal) + change).unwrap_or(self.nominal);
        self.aligns &= self.target == self.unit;
    }

    /// Takes frames from the front of `input` and writes frames to the front of `output`, until one
    /// of them is used up; an incomplete frame at the end of either is ignored.
    ///
    /// Only as much input is taken as the output needs: the rest must be passed again. With input
    /// and output left there is always progress.
    ///
    /// # Real-time
    /// Does not allocate. For each output frame: one pass over the filter.
    pub fn process(&mut self, input: &[f32], output: &mut [f32]) -> ResampleProgress {
        let room = output.len() / self.channels;
        let mut consumed = 0;
        let mut produced = 0;
        loop {
            let taken = self.take(&input[consumed * self.channels..], room - produced);
            consumed += taken;
            let made = self.render(&mut output[produced * self.channels..]);
            produced += made;
            if produced == room || (taken == 0 && made == 0) {
                return ResampleProgress { consumed: consumed.into(), produced: produced.into() };
            }
        }
    }

    /// Clears all audio and the drift: the state after [`Resampler::new`].
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn reset(&mut self) {
        self.history.fill(0.0);
        self.len = self.table.taps() - 1;
        self.start = 0;
        self.fraction = 0;
        self.aligns = false;
        self.target = self.nominal;
        self.set_step(self.nominal);
    }

    /// Delay of the output, in input frames.
    #[must_use]
    pub fn latency(&self) -> Frames {
        Frames::from(self.table.taps() / 2)
    }

    /// Input frames from the position of the next output frame to the end of the input that has
    /// been taken, with a fraction: the time of that position, for a caller that knows the time of
    /// the input.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "fractions of a frame, and the history's length")]
    pub fn pending(&self) -> f64 {
        let center = (self.start + self.table.center()) as f64;
        self.len as f64 - center - self.fraction as f64 / self.unit as f64
    }

    /// An upper bound of the input frames needed for the next `output_frames`.
    #[must_use]
    pub fn input_needed(&self, output_frames: Frames) -> Frames {
        if output_frames == Frames::ZERO {
            return Frames::ZERO;
        }
        let longest = self.step.max(self.target) + (self.unit >> ALIGN_BITS);
        let way = u128::from(longest) * u128::from(output_frames.0 - 1) + u128::from(self.fraction);
        let way = u64::try_from(way / u128::from(self.unit)).unwrap_or(u64::MAX);
        let first = (self.start + self.table.taps()).saturating_sub(self.len);
        let spare = self.len.saturating_sub(self.start + self.table.taps());
        Frames(way) + Frames::from(first) - Frames::from(spare)
    }

    /// Moves input into the history: at most what fits and what `output_frames` need.
    fn take(&mut self, input: &[f32], output_frames: usize) -> usize {
        let needed = self.input_needed(Frames::from(output_frames)).as_usize();
        let frames = needed.min(input.len() / self.channels);
        if frames == 0 {
            return 0;
        }
        // A block of outputs reads beyond the last frame that it needs.
        let end = self.capacity - LANES;
        if self.len + frames > end {
            self.drop_used();
        }
        let frames = frames.min(end - self.len);
        let input = &input[..frames * self.channels];
        let runs = self.history.chunks_exact_mut(self.capacity);
        for (channel, run) in runs.enumerate() {
            let run = &mut run[self.len..self.len + frames];
            deinterleave(input, channel, self.channels, run);
        }
        self.len += frames;
        frames
    }

    /// Moves the frames that the filter still needs to the front of the history.
    fn drop_used(&mut self) {
        let used = self.start.min(self.len);
        for run in self.history.chunks_exact_mut(self.capacity) {
            run.copy_within(used..self.len, 0);
        }
        self.len -= used;
        self.start -= used;
    }

    fn render(&mut self, output: &mut [f32]) -> usize {
        if self.is_copy() {
            return self.copy(output);
        }
        let mut made = 0;
        while self.start + self.table.taps() <= self.len {
            let Some(rest) = output.get_mut(made * self.channels..) else { break };
            let Some((frame, _)) = rest.split_at_mut_checked(self.channels) else { break };
            if self.nominal == self.unit {
                made += self.render_block(rest);
                continue;
            }
            let phase = self.table.phase(self.fraction);
            phase.filter(&self.history[self.start..], self.capacity, frame);
            self.advance();
            made += 1;
        }
        made
    }

    /// Renders up to [`LANES`] frames whose positions lie between the same two rows of the table.
    /// Between equal rates that is the rule: the fraction changes by a part per thousand at most.
    ///
    /// Never inlined, because its caller can be in a crate that is optimized for size.
    #[inline(never)]
    fn render_block(&mut self, output: &mut [f32]) -> usize {
        let ready = self.len + 1 - self.start - self.table.taps();
        let most = ready.min(output.len() / self.channels).min(LANES);
        let (first, row) = (self.start, self.table.phase(self.fraction).index);
        let (mut weights, mut count) = ([0.0; LANES], 0);
        while count < most && self.start == first + count {
            let phase = self.table.phase(self.fraction);
            if phase.index != row {
                break;
            }
            weights[count] = phase.weight;
            count += 1;
            self.advance();
        }
        let block = self.table.block(row, &weights);
        let output = &mut output[..count * self.channels];
        block.filter(&self.history[first..], self.capacity, self.channels, output);
        count
    }

    /// Whether the next output frames are input frames unchanged.
    const fn is_copy(&self) -> bool {
        self.step == self.unit && self.target == self.unit && self.fraction == 0
    }

    fn copy(&mut self, output: &mut [f32]) -> usize {
        let ready = (self.len + 1).saturating_sub(self.start + self.table.taps());
        let frames = ready.min(output.len() / self.channels);
        let center = self.start + self.table.center();
        let output = &mut output[..frames * self.channels];
        for (channel, run) in self.history.chunks_exact(self.capacity).enumerate() {
            interleave(&run[center..center + frames], channel, self.channels, output);
        }
        self.start += frames;
        frames
    }

    /// Advances by one output frame.
    const fn advance(&mut self) {
        if self.aligns {
            return self.align();
        }
        if self.step != self.target {
            self.glide();
        }
        self.start += self.whole;
        self.fraction += self.rest;
        if self.fraction >= self.unit {
            self.fraction -= self.unit;
            self.start += 1;
        }
    }

    const fn glide(&mut self) {
        let way = self.target.abs_diff(self.step) >> GLIDE_BITS;
        let step = if way == 0 {
            // Only a copy has steps of one frame.
            self.aligns = self.target == self.unit && self.nominal == self.unit;
            self.target
        } else if self.target > self.step {
            self.step + way
        } else {
            self.step - way
        };
        self.set_step(step);
    }

    /// Advances by one output frame, and moves the position closer to a whole input frame.
    const fn align(&mut self) {
        let little = self.unit >> ALIGN_BITS;
        self.start += 1;
        if self.fraction > self.unit / 2 {
            self.fraction += little;
            if self.fraction >= self.unit {
                self.fraction = 0;
                self.start += 1;
            }
        } else {
            self.fraction = self.fraction.saturating_sub(little);
        }
        self.aligns = self.fraction > 0;
    }

    const fn set_step(&mut self, step: u64) {
        self.step = step;
        // While the step glides this is done for each frame, and a division would take longer than
        // a third of the filter.
        let rest = step.wrapping_sub(self.whole as u64 * self.unit);
        if rest < self.unit {
            self.rest = rest;
            return;
        }
        #[allow(clippy::cast_possible_truncation, reason = "at most the ratio of the two rates")]
        let whole = (step / self.unit) as usize;
        self.whole = whole;
        self.rest = step % self.unit;
    }
}

impl fmt::Debug for Resampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resampler")
            .field("channels", &self.channels)
            .field("taps", &self.table.taps())
            .field("step", &self.step)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

fn deinterleave(input: &[f32], channel: usize, channels: usize, run: &mut [f32]) {
    match channels {
        1 => run.copy_from_slice(input),
        2 => {
            for (to, frame) in run.iter_mut().zip(input.as_chunks::<2>().0) {
                *to = frame[channel];
            }
        }
        _ => {
            for (to, frame) in run.iter_mut().zip(input.chunks_exact(channels)) {
                *to = frame[channel];
            }
        }
    }
}

fn interleave(run: &[f32], channel: usize, channels: usize, output: &mut [f32]) {
    match channels {
        1 => output.copy_from_slice(run),
        2 => {
            for (frame, &from) in output.as_chunks_mut::<2>().0.iter_mut().zip(run) {
                frame[channel] = from;
            }
        }
        _ => {
            for (frame, &from) in output.chunks_exact_mut(channels).zip(run) {
                frame[channel] = from;
            }
        }
    }
}

const fn greatest_common_divisor(mut a: u32, mut b: u32) -> u32 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The filter of a design for a ratio of `to` positions between two input frames.
fn table(design: &SincDesign, to: u32) -> FilterTable {
    FilterTable::new(design, to as usize, u64::from(to) << DRIFT_BITS)
}

/// The filter between equal rates, which most inputs of a server have: a constant, computed once.
static EQUAL_RATES: OnceLock<Arc<FilterTable>> = OnceLock::new();

/// Fractional bits of a position: a rate has at most 22, so 40 more fit into 64 with a drift of
/// a tenth; one part per billion is a thousand of the smallest units.
const DRIFT_BITS: u32 = 40;

/// Without drift the position goes to a whole frame by 2^-14 of a frame (61 ppm) at a time: within
/// a fifth of a second at 48 kHz.
const ALIGN_BITS: u32 = 14;

/// Each output frame moves the step by 1/1,024 of the difference towards its target.
const GLIDE_BITS: u32 = 10;

/// Frames of history beyond the filter: determines how often its contents are moved to the front.
const HISTORY_SLACK_FRAMES: usize = 1_024;

#[cfg(test)]
mod tests;
