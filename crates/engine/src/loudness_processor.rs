//! Keeps a station at one loudness: between the switch and the announcements stand an equaliser and
//! a normaliser, and behind the announcements a limiter, because a voice and a programme that keep
//! the ceiling alone pass it together.
//!
//! ```text
//!  control:  Knobs     what is wished; makes normalisers, frees them     (may allocate and free)
//!              | ring: normalisers that are ready, new settings
//!              v                          ^ bin: normalisers that have been replaced
//!  station:  Leveller  switch -> equaliser -> normaliser -+-> announcements -> limiter -> meters
//!                                                         +-> taps: other stations  (real-time)
//! ```
//!
//! Settings change while sound runs, at the normaliser's own slopes. Another mode has another
//! look-ahead, so a new chain hears the programme beside the old one until its look-ahead is full
//! and its gain has settled, and is then cross-faded in. By what it is later, sound is heard twice;
//! by what it is earlier, sound is left out. To begin with its empty look-ahead was rejected: that is
//! three seconds of silence on the air.

use std::collections::VecDeque;

use aulos_core::{ChannelLayout, Db, Frames, Lufs, SampleRate, Span};
use aulos_dsp::equalizer::{Equalizer, EqualizerBand, FilterType, InvalidBand, MAX_BANDS};
use aulos_dsp::normalize::{CannotNormalise, Figures, Mode, Normaliser, Settings, Statistics};
use aulos_dsp::{Crossfade, GainRamp, Limiter, mix_in};
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_rt::{DropCollector, DropQueue, LatestPublisher, LatestReader, drop_queue, latest};

/// How a station is normalised.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "a wish is written down as a whole")]
pub struct NormalizerConfig {
    /// How far ahead the gain hears.
    pub mode: Mode,
    /// What comes out.
    pub settings: Settings,
}

/// What the normaliser of a station does; a plain copy.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct NormalizerStatus {
    /// By how much sound is later than without it, exactly.
    pub latency: Frames,
    /// The programme is heard as it came, at one gain.
    pub bypassed: bool,
    /// The gain that is, or would be, heard then.
    pub matching_gain: Db,
    /// The deepest that the limiters went in the last 100 ms; zero or less.
    pub reduction: Db,
    /// Samples that had to be clipped behind the limiters; there is no reason for any.
    pub clamped: u64,
    /// Of the programme, before announcements, since the normaliser was put in.
    pub programme_stats: Statistics,
}

/// The two ends for a station of this rate, layout and quantum.
#[must_use]
pub(crate) fn loudness_processor(
    rate: SampleRate,
    layout: ChannelLayout,
    quantum: Frames,
) -> (LoudnessControl, LoudnessProcessor) {
    let (orders, told) = ring(MAX_COMMANDS);
    // Each order can throw one out, and so can the change that is under way.
    let (bin, gone) = drop_queue(MAX_COMMANDS + 2);
    let samples = quantum.as_usize() * layout.channels();
    let (bands, new_bands) = latest([None; MAX_BANDS]);
    let waiting = VecDeque::new();
    let knobs = LoudnessControl {
        rate,
        layout,
        quantum,
        mode: None,
        unsent: waiting,
        commands: orders,
        replaced: gone,
        bands,
    };
    let leveller = LoudnessProcessor {
        rate,
        channels: layout.channels(),
        commands: told,
        bin,
        bands: new_bands,
        equalizer: Equalizer::new(rate, layout),
        chain: None,
        transition: None,
        started: false,
        other: vec![0.0; samples].into(),
        real_frames: RealFrameHistory::new(rate, quantum),
    };
    (knobs, leveller)
}

/// Control's end: not for a real-time thread.
#[derive(Debug)]
pub struct LoudnessControl {
    rate: SampleRate,
    layout: ChannelLayout,
    quantum: Frames,
    mode: Option<Mode>,
    /// What found no place in the ring; never more than one of each kind.
    unsent: VecDeque<ProcessorCommand>,
    commands: Producer<ProcessorCommand>,
    replaced: DropCollector<Box<Chain>>,
    bands: LatestPublisher<BandRow>,
}

/// Bands on their way; nothing of them is on the heap.
type BandRow = [Option<EqualizerBand>; MAX_BANDS];

impl LoudnessControl {
    /// Normalises from now on, otherwise than before, or not any more. Settings alone take effect at
    /// once, at the slopes that they allow; on, off and another mode within some seconds, while
    /// sound goes on. What is told before the first quantum holds from the first frame.
    ///
    /// # Errors
    /// [`CannotNormalise`] when a value is out of its bounds; nothing has changed then.
    pub fn set_normalizer(
        &mut self,
        wish: Option<&NormalizerConfig>,
    ) -> Result<(), CannotNormalise> {
        match wish {
            Some(NormalizerConfig { mode, settings }) if Some(*mode) == self.mode => {
                // Only a normaliser knows all bounds, those of its channels too.
                Normaliser::check(settings, self.layout)?;
                self.send(ProcessorCommand::Set(settings.clone()));
            }
            Some(wish) => {
                let chain = Chain::new(wish, self.rate, self.layout, self.quantum)?;
                self.mode = Some(wish.mode);
                self.send(ProcessorCommand::Replace(Some(Box::new(chain))));
            }
            None if self.mode.take().is_some() => self.send(ProcessorCommand::Replace(None)),
            None => {}
        }
        Ok(())
    }

    /// Lets the programme be heard as it comes, late by as much and at the one gain that makes it as
    /// loud as it was when normalised; or ends that. Goes over within 50 ms.
    pub fn set_bypass(&mut self, on: bool) {
        self.send(ProcessorCommand::Bypass(on));
    }

    /// Sends the programme through these bands from now on, before it is normalised; the old ones are
    /// faded out. Those above [`MAX_BANDS`] are left out.
    ///
    /// # Errors
    /// [`InvalidBand`] for the first that cannot be; nothing has changed then.
    pub fn set_equalizer(&mut self, bands: &[EqualizerBand]) -> Result<(), InvalidBand> {
        bands.iter().try_for_each(|band| band.validate(self.rate))?;
        let mut row = [None; MAX_BANDS];
        row.iter_mut().zip(bands).for_each(|(place, band)| *place = Some(*band));
        self.bands.publish(row);
        Ok(())
    }

    /// Frees what has been replaced, and tells what found no place before. To be called about ten
    /// times a second.
    pub fn tidy(&mut self) {
        self.replaced.collect();
        while let Some(order) = self.unsent.pop_front() {
            if let Err(order) = self.commands.push(order) {
                self.unsent.push_front(order);
                break;
            }
        }
    }

    fn send(&mut self, order: ProcessorCommand) {
        self.unsent.retain(|old| !order.supersedes(old));
        self.unsent.push_back(order);
        self.tidy();
    }
}

#[derive(Debug)]
enum ProcessorCommand {
    Set(Settings),
    Replace(Option<Box<Chain>>),
    Bypass(bool),
}

impl ProcessorCommand {
    /// Whether nothing is left of an older order behind this one.
    const fn supersedes(&self, old: &Self) -> bool {
        match old {
            Self::Set(_) => matches!(self, Self::Set(_) | Self::Replace(_)),
            Self::Replace(_) => matches!(self, Self::Replace(_)),
            Self::Bypass(_) => matches!(self, Self::Bypass(_) | Self::Replace(_)),
        }
    }
}

/// The station's end.
#[derive(Debug)]
pub(crate) struct LoudnessProcessor {
    rate: SampleRate,
    channels: usize,
    commands: Consumer<ProcessorCommand>,
    bin: DropQueue<Box<Chain>>,
    bands: LatestReader<BandRow>,
    equalizer: Equalizer,
    chain: Option<Box<Chain>>,
    transition: Option<ChainTransition>,
    started: bool,
    /// A quantum of the chain that comes.
    other: Box<[f32]>,
    real_frames: RealFrameHistory,
}

/// Another chain takes over.
#[derive(Debug)]
struct ChainTransition {
    to: Option<Box<Chain>>,
    /// What it has to hear before.
    warm_up: Frames,
    /// Of the programme, and of what is heard behind announcements.
    fades: [Crossfade; 2],
}

impl LoudnessProcessor {
    /// Normalises one quantum in place, of which the first `real` frames are somebody's sound; says
    /// of how many that come out this is true.
    ///
    /// # Real-time
    /// Does not allocate or free.
    pub(crate) fn process_programme(&mut self, block: &mut [f32], real: usize) -> usize {
        self.handle_commands();
        self.equalizer.process(block);
        self.started = true;
        self.real_frames.push(real);
        let latency = self.chain.as_ref().map_or(0, |chain| chain.programme_latency());
        let Some(change) = &mut self.transition else {
            run(self.chain.as_deref_mut(), block);
            return self.real_frames.real(latency);
        };
        let other = &mut self.other[..block.len()];
        other.copy_from_slice(block);
        run(change.to.as_deref_mut(), other);
        run(self.chain.as_deref_mut(), block);
        if change.warm_up == Frames::ZERO {
            change.fades[0].mix(block, other, self.channels);
            block.copy_from_slice(other);
        }
        self.real_frames.real(latency)
    }

    /// Brings what is heard, announcements included, below the ceiling.
    ///
    /// # Real-time
    /// Does not allocate or free.
    pub(crate) fn limit(&mut self, block: &mut [f32]) {
        let Some(change) = &mut self.transition else {
            return limit(self.chain.as_deref_mut(), block);
        };
        let other = &mut self.other[..block.len()];
        other.copy_from_slice(block);
        limit(change.to.as_deref_mut(), other);
        limit(self.chain.as_deref_mut(), block);
        if change.warm_up > Frames::ZERO {
            change.warm_up -= change.warm_up.min(Frames::from(block.len() / self.channels));
            return;
        }
        change.fades[1].mix(block, other, self.channels);
        block.copy_from_slice(other);
        if change.fades[1].remaining() == Frames::ZERO {
            let old = core::mem::replace(&mut self.chain, change.to.take());
            self.transition = None;
            self.discard(old);
        }
    }

    /// What is still inside is not heard any more: somebody has pressed pause. The last quantum of
    /// the programme is faded out, and nothing of it comes later.
    ///
    /// # Real-time
    /// Does not allocate.
    pub(crate) fn flush(&mut self, block: &mut [f32]) {
        // What comes late out of the limiter is out as well at the end of this quantum.
        let late = self.chain.as_ref().map_or(0, |chain| chain.limiter_latency()) * self.channels;
        let end = block.len().saturating_sub(late).max(block.len() / 2);
        let end = end / self.channels * self.channels;
        Crossfade::fade_out(&mut block[..end], self.channels);
        block[end..].fill(0.0);
        self.equalizer.reset();
        let to = self.transition.as_mut().and_then(|change| change.to.as_mut());
        for chain in self.chain.iter_mut().chain(to) {
            chain.normalizer.interrupt();
        }
        self.real_frames.clear();
    }

    /// What it does; `None` while it does nothing.
    ///
    /// # Real-time
    /// Passes over a histogram: for ten times a second.
    pub(crate) fn status(&mut self) -> Option<NormalizerStatus> {
        self.chain.as_mut().map(|chain| chain.status())
    }

    fn handle_commands(&mut self) {
        if let Some(row) = self.bands.read_new() {
            let mut bands = [NO_BAND; MAX_BANDS];
            let given = bands.iter_mut().zip(row.iter().flatten());
            let count = given.map(|(place, band)| *place = *band).count();
            // Control has looked at the bounds, so nothing is refused.
            let _set = self.equalizer.set(&bands[..count]);
        }
        // Who is on his way in is let in first, which is a matter of three quanta.
        let is_fading = |change: &ChainTransition| change.warm_up == Frames::ZERO;
        while !self.transition.as_ref().is_some_and(is_fading)
            && let Some(order) = self.commands.pop()
        {
            let next = self.transition.as_mut().map_or(&mut self.chain, |change| &mut change.to);
            match order {
                ProcessorCommand::Set(settings) => {
                    if let Some(chain) = next {
                        chain.set(settings);
                    }
                }
                ProcessorCommand::Bypass(on) => {
                    if let Some(chain) = &mut self.chain {
                        chain.set_bypass(on, self.rate.frames(FADE));
                    }
                }
                ProcessorCommand::Replace(chain) if !self.started => {
                    let old = core::mem::replace(&mut self.chain, chain);
                    self.discard(old);
                }
                ProcessorCommand::Replace(to) => self.begin_transition(to),
            }
        }
    }

    fn begin_transition(&mut self, to: Option<Box<Chain>>) {
        let hears = to.as_ref().map_or(Frames::ZERO, |chain| {
            self.rate
                .frames(WARM_UP)
                .max(Frames::from(chain.programme_latency() + chain.limiter_latency()))
        });
        let fade = Crossfade::linear(self.rate.frames(FADE));
        let change = ChainTransition { to, warm_up: hears, fades: [fade.clone(), fade] };
        let old = self.transition.replace(change).and_then(|change| change.to);
        self.discard(old);
    }

    fn discard(&mut self, chain: Option<Box<Chain>>) {
        // Control empties the bin before each order, and there is room for one of each order.
        drop(chain.map(|chain| self.bin.discard(chain)));
    }
}

fn run(chain: Option<&mut Chain>, block: &mut [f32]) {
    if let Some(chain) = chain {
        chain.run(block);
    }
}

fn limit(chain: Option<&mut Chain>, block: &mut [f32]) {
    if let Some(chain) = chain {
        chain.limit(block);
    }
}

/// A normaliser, the way around it, and the limiter behind announcements.
#[derive(Debug)]
struct Chain {
    normalizer: Normaliser,
    /// None where peaks may pass the ceiling anyway, so that there is no latency.
    limiter: Option<Limiter>,
    channels: usize,
    /// A quantum of the programme as it came.
    plain: Box<[f32]>,
    bypassed: bool,
    /// The gain of the plain programme while it is heard.
    bypass_gain: Db,
    /// How much is heard of the one and of the other; together one.
    gains: MixGains,
    max_reduction: Db,
    /// Frames that it has heard, of which windows are not full before they are 3 s.
    processed: Frames,
    rate: SampleRate,
}

#[derive(Debug)]
struct MixGains {
    normalised: GainRamp,
    plain: GainRamp,
}

impl Chain {
    fn new(
        wish: &NormalizerConfig,
        rate: SampleRate,
        layout: ChannelLayout,
        quantum: Frames,
    ) -> Result<Self, CannotNormalise> {
        let limits = wish.mode != Mode::GainOnly;
        let samples = quantum.as_usize() * layout.channels();
        Ok(Self {
            normalizer: Normaliser::new(wish.mode, wish.settings.clone(), rate, layout)?,
            limiter: limits.then(|| Limiter::new(rate, layout, wish.settings.ceiling)),
            channels: layout.channels(),
            plain: vec![0.0; samples].into(),
            bypassed: false,
            bypass_gain: Db::ZERO,
            gains: MixGains { normalised: GainRamp::at(1.0), plain: GainRamp::at(0.0) },
            max_reduction: Db::ZERO,
            processed: Frames::ZERO,
            rate,
        })
    }

    fn set(&mut self, settings: Settings) {
        if let Some(limiter) = &mut self.limiter {
            limiter.set_ceiling(settings.ceiling);
        }
        // Control has looked at the bounds, so nothing is refused.
        let _set = self.normalizer.set(settings);
    }

    fn set_bypass(&mut self, on: bool, fade: Frames) {
        if on == self.bypassed {
            return;
        }
        self.bypassed = on;
        if on && self.gains.plain.gain() <= 0.0 {
            self.bypass_gain = self.normalizer.matching_gain();
        }
        let plain = if on { 1.0 } else { 0.0 };
        self.gains.plain.ramp_to(plain, fade);
        self.gains.normalised.ramp_to(1.0 - plain, fade);
    }

    fn run(&mut self, block: &mut [f32]) {
        let Self { normalizer: normaliser, gains: shares, channels, .. } = self;
        let plain = &mut self.plain[..block.len()];
        normaliser.process_beside(block, plain);
        self.max_reduction = min(self.max_reduction, normaliser.reduction());
        self.processed += Frames::from(block.len() / *channels);
        if shares.normalised.is_unity() {
            return;
        }
        shares.normalised.apply(block, *channels);
        shares.plain.apply(plain, *channels);
        #[allow(clippy::cast_possible_truncation, reason = "a gain needs no more than f32")]
        mix_in(plain, self.bypass_gain.amplitude() as f32, block);
    }

    fn limit(&mut self, block: &mut [f32]) {
        if let Some(limiter) = &mut self.limiter {
            limiter.process(block);
            self.max_reduction = min(self.max_reduction, limiter.reduction());
        }
    }

    /// Frames by which the programme is late before announcements.
    fn programme_latency(&self) -> usize {
        self.normalizer.latency().as_usize()
    }

    /// Frames by which all is late behind them.
    fn limiter_latency(&self) -> usize {
        self.limiter.as_ref().map_or(0, |limiter| limiter.latency().as_usize())
    }

    fn status(&mut self) -> NormalizerStatus {
        let mut programme = self.normalizer.statistics();
        for (figures, late) in
            [(&mut programme.input, 0), (&mut programme.output, self.programme_latency())]
        {
            let heard = self.rate.span(self.processed - Frames::from(late).min(self.processed));
            clear_unfilled_windows(figures, heard);
        }
        let heard = self.bypassed || self.gains.plain.remaining() > Frames::ZERO;
        NormalizerStatus {
            latency: Frames::from(self.programme_latency() + self.limiter_latency()),
            bypassed: self.bypassed,
            matching_gain: if heard { self.bypass_gain } else { self.normalizer.matching_gain() },
            reduction: core::mem::replace(&mut self.max_reduction, Db::ZERO),
            clamped: programme.clamped + self.limiter.as_ref().map_or(0, Limiter::clamped),
            programme_stats: programme,
        }
    }
}

/// What is made of windows that are not full does not exist.
fn clear_unfilled_windows(figures: &mut Figures, heard: Span) {
    if heard < MOMENTARY {
        figures.momentary = Lufs::SILENCE;
    }
    if heard < SHORT_TERM {
        (figures.short_term, figures.range) = (Lufs::SILENCE, Db::SILENCE);
    }
}

fn min(one: Db, other: Db) -> Db {
    if other < one { other } else { one }
}

/// What of the last quanta was somebody's sound: an end comes out as late as sound does.
#[derive(Debug)]
struct RealFrameHistory {
    quantum: usize,
    /// Real frames of each quantum, a ring; the newest is before `next`.
    real: Box<[usize]>,
    next: usize,
}

impl RealFrameHistory {
    fn new(rate: SampleRate, quantum: Frames) -> Self {
        let longest = rate.frames(MAX_LATENCY).as_usize() / quantum.as_usize().max(1) + 2;
        Self { quantum: quantum.as_usize(), real: vec![0; longest].into(), next: 0 }
    }

    fn push(&mut self, real: usize) {
        self.real[self.next] = real;
        self.next = (self.next + 1) % self.real.len();
    }

    /// How far the quantum is real that comes out `latency` frames late: up to the last frame that
    /// is.
    fn real(&self, latency: usize) -> usize {
        let (ago, late) = (latency / self.quantum, latency % self.quantum);
        let newer = self.ago(ago);
        if newer > 0 {
            return (late + newer).min(self.quantum);
        }
        // Of the one before, what is left for this one.
        self.ago(ago + 1).saturating_sub(self.quantum - late)
    }

    fn ago(&self, quanta: usize) -> usize {
        let length = self.real.len();
        self.real[(self.next + length - 1 - quanta.min(length - 1)) % length]
    }

    fn clear(&mut self) {
        self.real.fill(0);
    }
}

/// What stands in a place that is not used.
const NO_BAND: EqualizerBand =
    EqualizerBand { filter_type: FilterType::Notch, hz: 0.0, gain: Db::ZERO, q: 0.0 };
/// How long one chain is faded into the next, and the normalised programme into the plain one.
const FADE: Span = Span::from_millis(50);
/// What a new chain hears before it takes over: as much as makes one short-term loudness.
const WARM_UP: Span = Span::from_secs(3);
/// The windows of BS.1770 and Tech 3341.
const MOMENTARY: Span = Span::from_millis(400);
const SHORT_TERM: Span = Span::from_secs(3);
/// Longer than any look-ahead.
const MAX_LATENCY: Span = Span::from_millis(3_200);
/// Orders that wait for the next quantum.
const MAX_COMMANDS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_comes_out_as_late_as_the_sound_before_it() {
        let mut trail = RealFrameHistory::new(SampleRate::HZ_48000, Frames(960));
        // Two whole quanta, one that ends in its middle, silence.
        let mut heard = |latency: usize| {
            trail.clear();
            let quanta = [960, 960, 500, 0, 0, 0, 0];
            let mut out = Vec::new();
            for real in quanta {
                trail.push(real);
                out.push(trail.real(latency));
            }
            out
        };
        assert_eq!(heard(0), [960, 960, 500, 0, 0, 0, 0]);
        assert_eq!(heard(960), [0, 960, 960, 500, 0, 0, 0]);
        assert_eq!(heard(240), [960, 960, 740, 0, 0, 0, 0]);
        assert_eq!(heard(500), [960, 960, 960, 40, 0, 0, 0]);
        assert_eq!(heard(1_000), [0, 960, 960, 540, 0, 0, 0]);
        trail.clear();
        assert_eq!(trail.real(144_000), 0);
    }

    #[test]
    fn what_waits_for_a_station_that_does_not_look_stays_small() {
        let (mut knobs, mut leveller) =
            loudness_processor(SampleRate::HZ_48000, ChannelLayout::MONO, Frames(960));
        let wish = |mode| NormalizerConfig { mode, settings: Settings::default() };
        for _ in 0..50 {
            for mode in [Mode::Low, Mode::Mid] {
                knobs.set_normalizer(Some(&wish(mode))).unwrap();
                knobs.set_normalizer(Some(&wish(mode))).unwrap();
                knobs.set_bypass(true);
            }
        }
        assert!(knobs.unsent.len() <= 3, "{:?}", knobs.unsent.len());
        for _ in 0..20 {
            leveller.process_programme(&mut [0.0; 960], 960);
            knobs.tidy();
        }
        assert!(knobs.unsent.is_empty());
        // 400 ms of look-ahead and 5 ms behind announcements: the last wish.
        for _ in 0..200 {
            leveller.process_programme(&mut [0.0; 960], 960);
            leveller.limit(&mut [0.0; 960]);
        }
        assert_eq!(leveller.status().unwrap().latency, Frames(19_200 + 240));
        let wrong = Settings { dual_mono: true, target: Lufs::new(9.0), ..Settings::default() };
        assert!(
            knobs
                .set_normalizer(Some(&NormalizerConfig { mode: Mode::Mid, settings: wrong }))
                .is_err()
        );
        let (mut stereo, _) =
            loudness_processor(SampleRate::HZ_48000, ChannelLayout::STEREO, Frames(960));
        let twice = Settings { dual_mono: true, ..Settings::default() };
        stereo.set_normalizer(Some(&wish(Mode::Low))).unwrap();
        assert!(
            stereo
                .set_normalizer(Some(&NormalizerConfig { mode: Mode::Low, settings: twice }))
                .is_err()
        );
    }
}
