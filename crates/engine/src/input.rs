//! Adapts one source to its station: rate, channels, clock, buffer.
//!
//! Everything that differs between a source and its station ends here. The station reads whole
//! quanta in its own rate and layout and only learns how many frames were real.

mod normalizer;

use std::collections::VecDeque;

use aulos_core::{Block, ChannelLayout, Db, Frames, Instant, Ppm, SampleRate, Span};
use aulos_dsp::meter::MeterHistory;
use aulos_dsp::normalize::CannotNormalise;
use aulos_dsp::silence::{self, SilenceDetector};
use aulos_dsp::{Resampler, apply_gain, remix};

use crate::loudness::{Loudness, LoudnessMeter};
use crate::loudness_processor::NormalizerConfig;
use crate::recorder::RecordTap;
use crate::servo::Servo;
use crate::source::{BLOCK_SAMPLES, Pacing, PullResult, Source};
use crate::standby::{LinkState, Standby, StandbyControl, StandbyRequest};
use crate::switch::InputFacts;
use normalizer::InputNormalizer;

/// The wishes of an input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// How long a live source is delayed, so that it may be late.
    pub buffer: Span,
    /// How long a live source may send nothing until it counts as failed; shorter than the buffer.
    pub timeout: Span,
    /// What its sound is changed by.
    pub gain: Db,
    /// What counts as silence.
    pub silence: silence::Config,
    /// How ready it is kept while it is not needed.
    pub standby: Standby,
}

impl Default for Config {
    fn default() -> Self {
        let (buffer, timeout) = (Span::from_millis(400), Span::from_millis(300));
        let (silence, standby) = (silence::Config::default(), Standby::Hot);
        Self { buffer, timeout, gain: Db::ZERO, silence, standby }
    }
}

/// A source with what it takes to play it on a station.
pub struct Input {
    source: Box<dyn Source>,
    rate: SampleRate,
    layout: ChannelLayout,
    buffer: Span,
    timeout: Span,
    gain: f32,
    /// Where the source puts its next block.
    block: Block,
    /// The block has another rate than the resampler: it waits until the old sound is out.
    block_pending: bool,
    remixed: Vec<f32>,
    /// Frames in the station's layout at the source's rate, oldest first.
    staged: VecDeque<f32>,
    resampler: Resampler,
    source_rate: SampleRate,
    servo: Servo,
    drift: Ppm,
    ended: bool,
    lost: bool,
    full: bool,
    last_arrival: Option<Instant>,
    /// Nothing of what the present sender sent has been read or thrown away.
    at_sender_start: bool,
    silence: silence::Config,
    detector: SilenceDetector,
    meter: LoudnessMeter,
    /// The recorders of what comes in.
    record_taps: Vec<(u64, Box<RecordTap>)>,
    normalizer: Option<InputNormalizer>,
    standby: Standby,
    /// The line to whoever opens it; without one it is always open.
    standby_control: Option<StandbyControl>,
    link: LinkState,
    /// It is not needed, and what comes is thrown away.
    suspended: bool,
}

impl Input {
    /// Plays `source` at `rate` and `layout`.
    #[must_use]
    pub fn new(
        source: Box<dyn Source>,
        rate: SampleRate,
        layout: ChannelLayout,
        config: Config,
    ) -> Self {
        let Config { buffer, timeout, gain, silence, standby } = config;
        #[allow(clippy::cast_possible_truncation, reason = "a gain needs no more than f32")]
        let gain = gain.amplitude() as f32;
        let staged = staging_capacity(limit(source.pacing(), rate, buffer), layout);
        let keeps = (source.pacing() == Pacing::Streamed).then_some(buffer + buffer * 3 / 4);
        Self {
            source,
            rate,
            layout,
            buffer,
            timeout,
            gain,
            block: Block::with_capacity(rate, layout, BLOCK_SAMPLES),
            block_pending: false,
            remixed: vec![0.0; BLOCK_SAMPLES * layout.channels()],
            staged: VecDeque::with_capacity(staged),
            resampler: Resampler::new(layout.channels(), rate, rate),
            source_rate: rate,
            servo: Servo::new(buffer, keeps),
            drift: Ppm::ZERO,
            ended: false,
            lost: false,
            full: false,
            last_arrival: None,
            at_sender_start: true,
            silence,
            detector: SilenceDetector::new(silence, rate, layout.channels()),
            meter: LoudnessMeter::new(rate, layout, MeterHistory::Histogram),
            record_taps: Vec::with_capacity(MAX_RECORD_TAPS),
            normalizer: None,
            standby,
            standby_control: None,
            link: LinkState::Open,
            suspended: false,
        }
    }

    /// Lets whoever opens the source know when it is needed. Only a source with a gate can stand by
    /// in another way than hot.
    #[must_use]
    pub fn with_standby(mut self, gate: StandbyControl) -> Self {
        self.standby_control = Some(gate);
        self
    }

    /// Says whether the source is needed now. What it has sent is thrown away when it is not needed
    /// any more, so that nobody hears it later.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn set_needed(&mut self, now: Instant, wanted: bool) {
        let Some(gate) = &mut self.standby_control else { return };
        let wish = if wanted { StandbyRequest::Play } else { self.standby.idle_request() };
        self.suspended = wish != StandbyRequest::Play;
        let differs = gate.set_request(wish);
        self.link = gate.link();
        if self.suspended || differs {
            self.discard_all(now);
        }
        if differs {
            self.detector =
                SilenceDetector::new(self.silence, self.source_rate, self.layout.channels());
            (self.last_arrival, self.at_sender_start) = (None, true);
            (self.ended, self.lost) = (false, false);
        }
    }

    /// Brings the source to one loudness as it comes in. What waits here is then normalised and has
    /// room for the look-ahead; silence, loudness and levels are judged before.
    ///
    /// # Errors
    /// [`CannotNormalise`] when a wish is out of its bounds.
    pub fn with_normalizer(mut self, wish: &NormalizerConfig) -> Result<Self, CannotNormalise> {
        self.normalizer = Some(InputNormalizer::new(wish.clone(), self.source_rate, self.layout)?);
        self.reserve_staging();
        Ok(self)
    }

    /// Takes in what has arrived, up to the bound of the buffer.
    ///
    /// # Real-time
    /// Does not allocate, but for what another rate of the source needs.
    pub fn refill(&mut self, now: Instant) {
        self.full = false;
        self.normalizer.iter_mut().for_each(InputNormalizer::begin_refill);
        while !self.block_pending && !self.suspended {
            if self.normalizer.as_ref().is_some_and(|arrival| arrival.is_busy(self.source_rate)) {
                return;
            }
            // What a look-ahead takes in before it gives anything does not wait here.
            let ahead = self.normalizer.as_ref().map_or(0, InputNormalizer::frames_until_output);
            if self.staged_frames() >= self.limit() + ahead {
                self.full = true;
                self.servo.hold(now);
                return;
            }
            match self.source.pull(now, &mut self.block) {
                PullResult::Block => self.accept(now),
                PullResult::Pending => return self.drain_if_idle(now),
                PullResult::Ended => {
                    self.flush();
                    self.ended = true;
                    return;
                }
                PullResult::Lost => {
                    self.drain();
                    self.lost = true;
                    return;
                }
            }
        }
    }

    /// Follows the source's clock; `due` is when the frames read so far were to be read, `elapsed`
    /// the time since the last call.
    pub fn update_drift(&mut self, due: Instant, elapsed: Span) {
        // What is left of a sender that has gone is played as it was before.
        if !self.has_clock() || self.ended || self.lost {
            return;
        }
        // Between two arrivals the sender goes on. Without what it has by now the fill would be a
        // saw, whose beat with our quanta looks like drift, and every pause like a lack of sound.
        let on_the_way = self.last_arrival.map_or(Span::ZERO, |last| due - last);
        let fill = self.buffered() + on_the_way;
        let drift = if self.full {
            self.servo.update_held(fill, elapsed)
        } else {
            self.servo.update(fill, elapsed)
        };
        if drift != self.drift {
            self.drift = drift;
            self.resampler.set_drift(drift);
        }
    }

    /// The source goes on air: its fill is judged anew.
    pub const fn restart_servo(&mut self) {
        self.servo.restart();
    }

    /// Fills `out` (interleaved, the station's rate and layout) from its front.
    ///
    /// # Real-time
    /// Does not allocate, but for what another rate of the source needs.
    pub fn read(&mut self, now: Instant, out: &mut [f32]) -> ReadResult {
        let channels = self.layout.channels();
        let wanted = out.len() / channels;
        let mut produced = 0;
        self.at_sender_start = false;
        while produced < wanted {
            let (front, _) = self.staged.as_slices();
            let step = self.resampler.process(front, &mut out[produced * channels..]);
            self.staged.drain(..step.consumed.as_usize() * channels);
            produced += step.produced.as_usize();
            if step.consumed == Frames::ZERO
                && step.produced == Frames::ZERO
                && !self.switch_pending_rate(now)
            {
                break;
            }
        }
        apply_gain(&mut out[..produced * channels], self.gain);
        ReadResult { frames: produced, starved: produced < wanted && !self.ended }
    }

    /// Throws the oldest `frames` away (of the station's rate): an input that is not on air stays
    /// as fresh as one that is. What is left of a sender that has ended, or has another rate than
    /// what comes behind it, goes altogether.
    pub fn skip(&mut self, now: Instant, frames: Frames) {
        let keep =
            if self.block_pending || self.ended || self.lost { Span::ZERO } else { self.buffer };
        let surplus = Frames::from(self.staged_frames()) - self.source_rate.frames(keep);
        let frames = self.source_rate.frames(self.rate.span(frames)).min(surplus);
        let samples = frames.as_usize() * self.layout.channels();
        self.at_sender_start &= samples == 0;
        self.staged.drain(..samples.min(self.staged.len()));
        self.switch_pending_rate(now);
    }

    /// Throws away all that a sender has sent; of what gives when it is asked, nothing has to be.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn clear(&mut self, now: Instant) {
        if self.source.pacing() != Pacing::OnDemand {
            self.discard_all(now);
        }
    }

    /// Lets a sound that can begin again do so: the next frame is its first one. `scratch` is for
    /// what comes out of the resampler before it.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn rewind(&mut self, now: Instant, scratch: &mut [f32]) {
        self.source.rewind();
        (self.block_pending, self.ended) = (false, false);
        self.staged.clear();
        self.normalizer.iter_mut().for_each(InputNormalizer::interrupt);
        self.reset_resampler();
        self.refill(now);
        self.discard_resampler_tail(now, scratch);
    }

    /// Begins in the middle of a sound: what the resampler still holds is older, and thrown away
    /// with the help of `scratch`.
    ///
    /// # Real-time
    /// As [`Input::read`].
    pub fn discard_resampler_tail(&mut self, now: Instant, scratch: &mut [f32]) {
        let latency = self.rate.frames(self.latency()).as_usize() * self.layout.channels();
        let length = latency.min(scratch.len());
        self.read(now, &mut scratch[..length]);
    }

    /// How much can still be read when nothing more comes.
    #[must_use]
    pub fn remaining(&self) -> Span {
        (self.buffered() - self.latency()).max(Span::ZERO)
    }

    /// Nothing more comes of what waits here.
    #[must_use]
    pub const fn has_stopped(&self) -> bool {
        self.ended || self.lost
    }

    /// Whether the reserve that lets a sound end without a click is all that is left.
    #[must_use]
    pub fn is_running_dry(&self, next: Frames) -> bool {
        !self.ended && self.buffered() < self.rate.span(next) + FADE_RESERVE
    }

    /// Whether the next frame read is the first one of its sender.
    #[must_use]
    pub const fn is_at_sender_start(&self) -> bool {
        self.at_sender_start
    }

    /// Lets a recorder listen; gives it back where there are too many.
    pub(crate) fn attach_record_tap(
        &mut self,
        number: u64,
        pickup: Box<RecordTap>,
    ) -> Option<Box<RecordTap>> {
        if self.record_taps.len() == MAX_RECORD_TAPS {
            return Some(pickup);
        }
        self.record_taps.push((number, pickup));
        None
    }

    /// Takes one of those off that `which` means.
    pub(crate) fn detach_record_tap(
        &mut self,
        which: &impl Fn(u64, &RecordTap) -> bool,
    ) -> Option<Box<RecordTap>> {
        let at = self.record_taps.iter().position(|(number, pickup)| which(*number, pickup))?;
        Some(self.record_taps.swap_remove(at).1)
    }

    /// What the switch has to know.
    #[must_use]
    pub fn facts(&self) -> InputFacts {
        InputFacts {
            pacing: self.source.pacing(),
            buffered: self.buffered(),
            prime_target: self.buffer,
            full: self.full,
            ended: self.ended,
            last_arrival: self.last_arrival,
            timeout: self.timeout,
            lost: self.lost,
            verdict: self.detector.verdict(),
            standby: if self.standby_control.is_some() { self.standby } else { Standby::Hot },
            link: self.link,
        }
    }

    /// The sound that waits here.
    #[must_use]
    pub fn buffered(&self) -> Span {
        self.source_rate.span(Frames::from(self.staged_frames()))
    }

    /// How loud the source is as it comes in, in the station's channels and before its gain.
    #[must_use]
    pub fn loudness(&self, now: Instant) -> Loudness {
        match self.last_arrival {
            Some(last) if now.since(last) < self.max_gap() => self.meter.loudness(),
            _ => self.meter.loudness_in_silence(),
        }
    }

    /// Measures anew from now on.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn reset_loudness(&mut self) {
        self.meter.reset();
    }

    /// The drift of the source's clock, as far as it is known.
    #[must_use]
    pub const fn drift(&self) -> Ppm {
        self.servo.drift()
    }

    /// The rate and layout of the source, as last seen.
    #[must_use]
    pub const fn source_spec(&self) -> (SampleRate, ChannelLayout) {
        (self.source_rate, self.block.layout())
    }

    fn latency(&self) -> Span {
        self.source_rate.span(self.resampler.latency())
    }

    fn discard_all(&mut self, now: Instant) {
        for _ in 0..MAX_CLEARED {
            match self.source.pull(now, &mut self.block) {
                PullResult::Block => {}
                PullResult::Pending => break,
                PullResult::Ended => {
                    self.ended = true;
                    break;
                }
                PullResult::Lost => {
                    self.lost = true;
                    break;
                }
            }
        }
        self.block_pending = false;
        self.staged.clear();
        self.normalizer.iter_mut().for_each(InputNormalizer::interrupt);
        self.reset_resampler();
        self.servo.interrupt();
    }

    /// Throws away what the resampler holds, and the drift that it was told.
    fn reset_resampler(&mut self) {
        self.resampler.reset();
        self.drift = Ppm::ZERO;
    }

    fn accept(&mut self, now: Instant) {
        let arrival = if self.block.received == Instant::ZERO { now } else { self.block.received };
        let since_last = self.last_arrival.map(|last| arrival.since(last));
        let pause = since_last.filter(|since| *since >= self.max_gap());
        if pause.is_some() {
            self.meter.interrupt();
        }
        self.last_arrival = Some(arrival);
        self.record(arrival, pause);
        self.update_servo(arrival);
        // A new sender behind an old one whose sound is all out.
        self.at_sender_start |= self.ended && self.staged.is_empty();
        (self.ended, self.lost) = (false, false);
        if self.block.rate() == self.source_rate {
            return self.stage();
        }
        self.drain();
        if self.staged.is_empty() {
            self.adopt_block_rate();
        } else {
            self.flush();
            self.block_pending = true;
        }
    }

    /// Learns the sender's clock from the block.
    fn update_servo(&mut self, arrival: Instant) {
        if !self.has_clock() {
            return;
        }
        if self.ended || self.lost || self.block.rate() != self.source_rate {
            self.servo.interrupt();
        }
        self.servo.push_arrival(arrival, self.block.frames(), self.block.rate());
    }

    fn has_clock(&self) -> bool {
        matches!(self.source.pacing(), Pacing::Live | Pacing::Streamed)
    }

    /// Gives the block to the recorders, as it came.
    fn record(&mut self, received: Instant, pause: Option<Span>) {
        if self.record_taps.is_empty() {
            return;
        }
        let samples = remixed(&self.block, &mut self.remixed, self.layout);
        for (_, pickup) in &mut self.record_taps {
            pickup.push_samples(samples, self.block.rate(), received, pause);
        }
    }

    fn stage(&mut self) {
        let to = self.layout.channels();
        let samples = remixed(&self.block, &mut self.remixed, self.layout);
        self.detector.update(samples, to);
        self.meter.push(samples);
        match &mut self.normalizer {
            Some(arrival) => arrival.push(samples, &mut self.staged),
            None => self.staged.extend(samples),
        }
    }

    /// Hands on what the look-ahead holds: nothing follows for now.
    fn drain(&mut self) {
        if let Some(arrival) = &mut self.normalizer {
            arrival.drain(&mut self.staged);
        }
    }

    /// A live sender that stops for so long may have stopped for good.
    fn drain_if_idle(&mut self, now: Instant) {
        let patience = match self.source.pacing() {
            Pacing::Streamed => self.max_gap(),
            _ => self.timeout.min(self.buffer).max(MIN_DRAIN_DELAY),
        };
        if self.source.pacing() != Pacing::OnDemand
            && self.last_arrival.is_some_and(|last| now.since(last) >= patience)
        {
            self.drain();
        }
    }

    /// Makes room for what may wait here.
    fn reserve_staging(&mut self) {
        let ahead = self.normalizer.as_ref().map_or(0, InputNormalizer::latency);
        let wanted = staging_capacity(self.limit() + ahead, self.layout);
        self.staged.reserve(wanted.saturating_sub(self.staged.len()));
    }

    /// Pushes the last frames out of the resampler's memory.
    fn flush(&mut self) {
        self.drain();
        if !self.ended {
            let tail = self.resampler.latency().as_usize() * self.layout.channels();
            self.staged.extend(core::iter::repeat_n(0.0, tail));
        }
    }

    /// Once the old sound is out, goes on with the rate of the block that waits.
    fn switch_pending_rate(&mut self, now: Instant) -> bool {
        if !self.block_pending || !self.staged.is_empty() {
            return false;
        }
        self.adopt_block_rate();
        self.refill(now);
        true
    }

    /// Takes over the rate of the block, with nothing of another rate left.
    fn adopt_block_rate(&mut self) {
        self.source_rate = self.block.rate();
        self.normalizer.iter_mut().for_each(|arrival| arrival.set_rate(self.block.rate()));
        self.reserve_staging();
        self.resampler = Resampler::new(self.layout.channels(), self.source_rate, self.rate);
        self.detector =
            SilenceDetector::new(self.silence, self.source_rate, self.layout.channels());
        self.meter.set_format(self.source_rate, self.layout);
        self.drift = Ppm::ZERO;
        self.servo.restart();
        self.block_pending = false;
        self.stage();
    }

    /// How long nothing may come until what comes next does not belong to what came last.
    fn max_gap(&self) -> Span {
        match self.source.pacing() {
            Pacing::Streamed => self.timeout.max(self.buffer).max(MOMENTARY),
            _ => self.timeout.max(MOMENTARY),
        }
    }

    fn staged_frames(&self) -> usize {
        self.staged.len() / self.layout.channels()
    }

    fn limit(&self) -> usize {
        limit(self.source.pacing(), self.source_rate, self.buffer)
    }
}

impl core::fmt::Debug for Input {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Input").field("facts", &self.facts()).finish_non_exhaustive()
    }
}

/// The answer of [`Input::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadResult {
    /// Frames that are real, from the front.
    pub frames: usize,
    /// There should have been more: the source neither delivered nor ended.
    pub starved: bool,
}

/// What is in the block, in the station's channels.
fn remixed<'a>(block: &'a Block, room: &'a mut [f32], layout: ChannelLayout) -> &'a [f32] {
    let (from, to) = (block.layout().channels(), layout.channels());
    if from == to {
        return block.samples();
    }
    let out = &mut room[..block.frames().as_usize() * to];
    remix(block.samples(), from, out, to);
    out
}

/// Frames that may wait: of what is live twice the buffer, so that a burst can be taken in while
/// its start is still unplayed, and [`LEAST_ROOM`] where that is short or none.
fn limit(pacing: Pacing, rate: SampleRate, buffer: Span) -> usize {
    let span = match pacing {
        Pacing::Live | Pacing::LocalClock | Pacing::Streamed => (buffer + buffer).max(MIN_CAPACITY),
        Pacing::OnDemand => ON_DEMAND_AHEAD,
    };
    rate.frames(span).as_usize()
}

/// Samples that there has to be room for where so many frames may wait. All of it is walked
/// through, so it is no more than a rate needs, and a higher one gets its own.
const fn staging_capacity(limit: usize, layout: ChannelLayout) -> usize {
    (limit + BLOCK_SAMPLES + SLACK_FRAMES) * layout.channels()
}

/// What stays back from a live source so that its end can be faded when it stops without a word.
pub(crate) const FADE_RESERVE: Span = Span::from_millis(10);

/// What was heard longer ago than the shortest window of loudness is not how loud it is now.
const MOMENTARY: Span = Span::from_millis(400);

/// A look-ahead is not given up for less than this.
const MIN_DRAIN_DELAY: Span = Span::from_millis(100);

/// Twice the longest chunk that a station can have: what is played next, and what stays back for a fade,
/// has room however short the buffer is.
const MIN_CAPACITY: Span = Span::from_millis(120);

/// How far files and generators are read ahead.
const ON_DEMAND_AHEAD: Span = Span::from_millis(60);

/// The recorders of one input.
const MAX_RECORD_TAPS: usize = 8;

/// Blocks that are thrown away at once; a feeder's ring has far fewer.
const MAX_CLEARED: usize = 256;

/// The tail of a resampler, more than once if a sender comes and goes.
const SLACK_FRAMES: usize = 1_024;
