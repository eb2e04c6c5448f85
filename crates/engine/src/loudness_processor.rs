//! Loudness processing of a station: an equalizer and a normalizer between the switch and the
//! announcements, and a limiter after the announcements, because an announcement and a programme
//! that each keep the ceiling can exceed it together.
//!
//! ```text
//!  control:  StationHandle      settings; creates and frees normalizers   (may allocate and free)
//!              | ProcessorCommand
//!              v                          ^ replaced normalizers
//!  station:  LoudnessProcessor  switch -> equalizer -> normalizer -+-> announcements -> limiter
//!                                                     (real-time)  +-> taps: other stations
//! ```
//!
//! Settings change while audio runs, at the normalizer's own slopes. Another mode has another
//! look-ahead, so a new chain processes the programme in parallel to the old one until its
//! look-ahead is full and its gain has settled; then the two are cross-faded. If the new latency is
//! longer, that much audio is heard twice; if it is shorter, that much is skipped. Starting with an
//! empty look-ahead was rejected: that is three seconds of silence on air.

mod real_frames;

use std::collections::VecDeque;

use aulos_core::{ChannelLayout, Db, Frames, Lufs, SampleRate, Span};
use aulos_dsp::equalizer::{Equalizer, EqualizerBand};
use aulos_dsp::normalize::{
    LookAhead, LoudnessStats, Normalizer, NormalizerError, NormalizerStats, Settings,
};
use aulos_dsp::{Crossfade, GainRamp, Limiter, mix_in};

pub(crate) use real_frames::RealFrameHistory;

/// Configuration of a station's normalizer.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "constructed as a whole by its users")]
pub struct NormalizerConfig {
    /// Look-ahead of the gain control.
    pub mode: LookAhead,
    /// Loudness target and limits of the output.
    pub settings: Settings,
}

/// State of a station's normalizer; a plain copy.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct NormalizerStatus {
    /// Exact latency added to the audio.
    pub latency: Frames,
    /// The programme is bypassed: it plays unprocessed, at one fixed gain.
    pub bypassed: bool,
    /// The gain of the bypass: the current one, or the one it would have.
    pub matching_gain: Db,
    /// Strongest gain reduction of the limiters in the last 100 ms; zero or less.
    pub reduction: Db,
    /// Samples clipped after the limiters; expected to stay zero.
    pub clamped: u64,
    /// Statistics of the programme, before announcements, since the normalizer was inserted.
    pub programme_stats: NormalizerStats,
}

/// A change of the loudness processing.
#[derive(Debug)]
pub(crate) enum ProcessorCommand {
    Set(Settings),
    Replace(Option<Box<Chain>>),
    Bypass(bool),
}

impl ProcessorCommand {
    /// Whether this command makes the older one void.
    pub(crate) const fn supersedes(&self, older: &Self) -> bool {
        match older {
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
    /// Commands that wait for the end of a fade.
    deferred: VecDeque<ProcessorCommand>,
    equalizer: Equalizer,
    chain: Option<Box<Chain>>,
    transition: Option<ChainTransition>,
    started: bool,
    /// A quantum of the new chain's output.
    other: Box<[f32]>,
    real_frames: RealFrameHistory,
}

/// A transition to another chain.
#[derive(Debug)]
struct ChainTransition {
    to: Option<Box<Chain>>,
    /// Audio that the new chain has still to process before the fade.
    warm_up: Frames,
    /// Fades of the programme, and of the output after the announcements.
    fades: [Crossfade; 2],
}

impl LoudnessProcessor {
    pub(crate) fn new(rate: SampleRate, layout: ChannelLayout, quantum: Frames) -> Self {
        let samples = quantum.as_usize() * layout.channels();
        Self {
            rate,
            channels: layout.channels(),
            deferred: VecDeque::with_capacity(MAX_DEFERRED),
            equalizer: Equalizer::new(rate, layout),
            chain: None,
            transition: None,
            started: false,
            other: vec![0.0; samples].into(),
            real_frames: RealFrameHistory::new(rate, quantum),
        }
    }

    /// Whether [`Self::handle_command`] may be called.
    pub(crate) fn has_room(&self) -> bool {
        self.deferred.len() < MAX_DEFERRED
    }

    /// Whether samples pass unchanged: no band of the equalizer and no normalizer is active.
    pub(crate) const fn is_transparent(&self) -> bool {
        self.equalizer.is_idle() && self.chain.is_none() && self.transition.is_none()
    }

    /// Takes a command, which is carried out with the next quantum.
    pub(crate) fn handle_command(&mut self, command: ProcessorCommand) {
        self.deferred.push_back(command);
    }

    /// Replaces the bands of the equalizer.
    pub(crate) fn set_bands(&mut self, bands: &[EqualizerBand]) {
        // The control thread has validated the bands, so none is refused.
        let _set = self.equalizer.set(bands);
    }

    /// Processes one quantum in place, of which the first `real` frames come from a source. Returns
    /// how many of the output frames do. Passes replaced chains to `discard`.
    ///
    /// # Real-time
    /// Does not allocate or free.
    pub(crate) fn process_programme(
        &mut self,
        block: &mut [f32],
        real: usize,
        discard: &mut impl FnMut(Box<Chain>),
    ) -> usize {
        self.change_chains(discard);
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

    /// Limits the output, announcements included, to the ceiling.
    ///
    /// # Real-time
    /// Does not allocate or free.
    pub(crate) fn limit(&mut self, block: &mut [f32], discard: &mut impl FnMut(Box<Chain>)) {
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
            old.into_iter().for_each(&mut *discard);
        }
    }

    /// Discards the audio in the look-ahead, because playback was paused. The last quantum of the
    /// programme is faded out, and nothing of it plays later.
    ///
    /// # Real-time
    /// Does not allocate.
    pub(crate) fn flush(&mut self, block: &mut [f32]) {
        // The limiter's latency is played out by the end of this quantum as well.
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

    /// The processor's status; `None` while no normalizer is active.
    ///
    /// # Real-time
    /// Traverses a histogram: for ten calls a second.
    pub(crate) fn status(&mut self) -> Option<NormalizerStatus> {
        self.chain.as_mut().map(|chain| chain.status())
    }

    fn change_chains(&mut self, discard: &mut impl FnMut(Box<Chain>)) {
        // A fade in progress is completed first, which takes three quanta.
        let is_fading = |change: &ChainTransition| change.warm_up == Frames::ZERO;
        while !self.transition.as_ref().is_some_and(is_fading)
            && let Some(command) = self.deferred.pop_front()
        {
            let next = self.transition.as_mut().map_or(&mut self.chain, |change| &mut change.to);
            match command {
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
                    old.into_iter().for_each(&mut *discard);
                }
                ProcessorCommand::Replace(to) => self.begin_transition(to, discard),
            }
        }
    }

    fn begin_transition(&mut self, to: Option<Box<Chain>>, discard: &mut impl FnMut(Box<Chain>)) {
        let hears = to.as_ref().map_or(Frames::ZERO, |chain| {
            self.rate
                .frames(WARM_UP)
                .max(Frames::from(chain.programme_latency() + chain.limiter_latency()))
        });
        let fade = Crossfade::linear(self.rate.frames(FADE));
        let change = ChainTransition { to, warm_up: hears, fades: [fade.clone(), fade] };
        let old = self.transition.replace(change).and_then(|change| change.to);
        old.into_iter().for_each(&mut *discard);
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

/// A normalizer, its bypass, and the limiter after announcements.
#[derive(Debug)]
pub(crate) struct Chain {
    normalizer: Normalizer,
    /// `None` where peaks may exceed the ceiling anyway, so that no latency is added.
    limiter: Option<Limiter>,
    channels: usize,
    /// A quantum of the unprocessed programme.
    plain: Box<[f32]>,
    bypassed: bool,
    /// Gain of the bypass while it is audible.
    bypass_gain: Db,
    /// Gains of the normalized and the bypassed programme; their sum is one.
    gains: MixGains,
    max_reduction: Db,
    /// Frames processed; loudness windows are not full before 3 s.
    processed: Frames,
    rate: SampleRate,
}

#[derive(Debug)]
struct MixGains {
    normalized: GainRamp,
    plain: GainRamp,
}

impl Chain {
    pub(crate) fn new(
        config: &NormalizerConfig,
        rate: SampleRate,
        layout: ChannelLayout,
        quantum: Frames,
    ) -> Result<Self, NormalizerError> {
        let limits = config.mode != LookAhead::GainOnly;
        let samples = quantum.as_usize() * layout.channels();
        Ok(Self {
            normalizer: Normalizer::new(config.mode, config.settings.clone(), rate, layout)?,
            limiter: limits.then(|| Limiter::new(rate, layout, config.settings.ceiling)),
            channels: layout.channels(),
            plain: vec![0.0; samples].into(),
            bypassed: false,
            bypass_gain: Db::ZERO,
            gains: MixGains { normalized: GainRamp::at(1.0), plain: GainRamp::at(0.0) },
            max_reduction: Db::ZERO,
            processed: Frames::ZERO,
            rate,
        })
    }

    fn set(&mut self, settings: Settings) {
        if let Some(limiter) = &mut self.limiter {
            limiter.set_ceiling(settings.ceiling);
        }
        // The control thread has validated the settings, so none is refused.
        let _set = self.normalizer.set_settings(settings);
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
        self.gains.normalized.ramp_to(1.0 - plain, fade);
    }

    fn run(&mut self, block: &mut [f32]) {
        let Self { normalizer, gains, channels, .. } = self;
        let plain = &mut self.plain[..block.len()];
        normalizer.process_with_dry(block, plain);
        self.max_reduction = min(self.max_reduction, normalizer.reduction());
        self.processed += Frames::from(block.len() / *channels);
        if gains.normalized.is_unity() {
            return;
        }
        gains.normalized.apply(block, *channels);
        gains.plain.apply(plain, *channels);
        #[allow(clippy::cast_possible_truncation, reason = "a gain needs no more than f32")]
        mix_in(plain, self.bypass_gain.amplitude() as f32, block);
    }

    fn limit(&mut self, block: &mut [f32]) {
        if let Some(limiter) = &mut self.limiter {
            limiter.process(block);
            self.max_reduction = min(self.max_reduction, limiter.reduction());
        }
    }

    /// Latency of the programme before announcements, in frames.
    fn programme_latency(&self) -> usize {
        self.normalizer.latency().as_usize()
    }

    /// Latency after the announcements, in frames.
    fn limiter_latency(&self) -> usize {
        self.limiter.as_ref().map_or(0, |limiter| limiter.latency().as_usize())
    }

    fn status(&mut self) -> NormalizerStatus {
        let mut programme = self.normalizer.statistics();
        for (figures, late) in
            [(&mut programme.input, 0), (&mut programme.output, self.programme_latency())]
        {
            let measured = self.rate.span(self.processed - Frames::from(late).min(self.processed));
            clear_unfilled_windows(figures, measured);
        }
        let bypass_audible = self.bypassed || self.gains.plain.remaining() > Frames::ZERO;
        NormalizerStatus {
            latency: Frames::from(self.programme_latency() + self.limiter_latency()),
            bypassed: self.bypassed,
            matching_gain: if bypass_audible {
                self.bypass_gain
            } else {
                self.normalizer.matching_gain()
            },
            reduction: core::mem::replace(&mut self.max_reduction, Db::ZERO),
            clamped: programme.clamped + self.limiter.as_ref().map_or(0, Limiter::clamped),
            programme_stats: programme,
        }
    }
}

/// Clears the figures whose windows are not full yet.
fn clear_unfilled_windows(figures: &mut LoudnessStats, measured: Span) {
    if measured < MOMENTARY {
        figures.momentary = Lufs::SILENCE;
    }
    if measured < SHORT_TERM {
        (figures.short_term, figures.range) = (Lufs::SILENCE, Db::SILENCE);
    }
}

fn min(one: Db, other: Db) -> Db {
    if other < one { other } else { one }
}

/// Duration of the cross-fades between chains, and into and out of the bypass.
const FADE: Span = Span::from_millis(50);
/// Audio that a new chain processes before it takes over: one short-term window.
const WARM_UP: Span = Span::from_secs(3);
/// The windows of BS.1770 and Tech 3341.
const MOMENTARY: Span = Span::from_millis(400);
const SHORT_TERM: Span = Span::from_secs(3);
/// Commands that wait for the end of a fade; the station takes no further ones meanwhile.
const MAX_DEFERRED: usize = 16;

/// Chains and bands on the way to the station, in it and on the way back.
pub(crate) const MAX_PARTS: usize = 16;
