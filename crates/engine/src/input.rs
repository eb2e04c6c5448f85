//! Adapts a source to its station: sample rate, channels, clock and buffering.
//!
//! All differences between a source and its station end here. The station reads whole quanta at its
//! own rate and layout, and only learns how many of the frames are real.

mod arrival;
mod earlier_rates;
mod normalizer;
mod staged;
mod timing;

use aulos_core::{Block, ChannelLayout, Db, Frames, Instant, MediaTime, Ppm, SampleRate, Span};
use aulos_dsp::meter::MeterHistory;
use aulos_dsp::normalize::NormalizerError;
use aulos_dsp::silence::{SilenceConfig, SilenceDetector};
use aulos_dsp::{ResampleProgress, apply_gain};

use crate::loudness::{Loudness, LoudnessMeter};
use crate::loudness_processor::NormalizerConfig;
use crate::ready_chunk::ReadyChunkQueue;
use crate::recorder::RecordTap;
use crate::servo::Servo;
use crate::source::{BLOCK_SAMPLES, Pacing, PullResult, Source};
use crate::standby::{LinkState, Standby, StandbyControl, StandbyRequest};
use crate::switch::InputFacts;
use normalizer::InputNormalizer;
use staged::StagedAudio;
use timing::InputTiming;

/// Configuration of an input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InputConfig {
    /// Delay of a live source, which covers its jitter.
    pub buffer: Span,
    /// Time without data after which a live source counts as failed; shorter than the buffer.
    pub timeout: Span,
    /// Gain applied to its audio.
    pub gain: Db,
    /// Criteria of silence.
    pub silence: SilenceConfig,
    /// Readiness while the source is not needed.
    pub standby: Standby,
}

impl Default for InputConfig {
    fn default() -> Self {
        let (buffer, timeout) = (Span::from_millis(400), Span::from_millis(300));
        let (silence, standby) = (SilenceConfig::default(), Standby::Hot);
        Self { buffer, timeout, gain: Db::ZERO, silence, standby }
    }
}

/// A source with everything needed to play it on a station.
pub struct Input {
    source: Box<dyn Source>,
    rate: SampleRate,
    layout: ChannelLayout,
    timing: InputTiming,
    gain: f32,
    /// Buffer for the source's next block.
    block: Block,
    /// `block` has another rate, and waits until older audio is played: the rate has changed too
    /// often within the buffer.
    block_pending: bool,
    remixed: Vec<f32>,
    staged: StagedAudio,
    servo: Servo,
    ended: bool,
    lost: bool,
    full: bool,
    last_arrival: Option<Instant>,
    /// Media time of the source after the last frame that has arrived.
    arrived: MediaTime,
    /// No audio of the current sender has been read or discarded yet.
    at_sender_start: bool,
    silence: SilenceConfig,
    detector: SilenceDetector,
    /// The source is silent, or its buffer still has what came before it was known to sound.
    holds_onset: bool,
    meter: LoudnessMeter,
    /// Recorders of the incoming audio.
    record_taps: Vec<(u64, Box<RecordTap>)>,
    normalizer: Option<InputNormalizer>,
    /// The same audio, encoded.
    ready_chunks: Option<ReadyChunkQueue>,
    /// Its frames have their time.
    is_timed: bool,
    standby: Standby,
    /// Connection to the thread that opens and closes the source; without it the source is always
    /// open.
    standby_control: Option<StandbyControl>,
    link: LinkState,
    /// The source is not needed, and its audio is discarded.
    suspended: bool,
}

impl Input {
    /// Creates an input that plays `source` at `rate` and `layout`.
    #[must_use]
    pub fn new(
        source: Box<dyn Source>,
        rate: SampleRate,
        layout: ChannelLayout,
        config: InputConfig,
    ) -> Self {
        let InputConfig { buffer, timeout, gain, silence, standby } = config;
        #[allow(clippy::cast_possible_truncation, reason = "a gain needs no more than f32")]
        let gain = gain.amplitude() as f32;
        let timing = InputTiming { pacing: source.pacing(), buffer, timeout };
        let is_timed = source.is_timed();
        let most = timing.max_frames_in_silence(rate);
        let keeps = (timing.pacing == Pacing::Streamed).then_some(buffer + buffer * 3 / 4);
        Self {
            source,
            rate,
            layout,
            timing,
            gain,
            block: Block::with_capacity(rate, layout, BLOCK_SAMPLES),
            block_pending: false,
            // Not zeroed: most sources have the station's channels, and never touch these pages.
            remixed: Vec::with_capacity(BLOCK_SAMPLES * layout.channels()),
            staged: StagedAudio::new(staging_frames(most), layout.channels(), rate),
            servo: Servo::new(buffer, keeps),
            ended: false,
            lost: false,
            full: false,
            last_arrival: None,
            arrived: MediaTime::ZERO,
            at_sender_start: true,
            silence,
            detector: SilenceDetector::new(silence, rate, layout.channels()),
            holds_onset: false,
            meter: LoudnessMeter::new(rate, layout, MeterHistory::Histogram),
            record_taps: Vec::with_capacity(MAX_RECORD_TAPS),
            normalizer: None,
            ready_chunks: None,
            is_timed,
            standby,
            standby_control: None,
            link: LinkState::Healthy,
            suspended: false,
        }
    }

    /// Connects the input to the thread that opens the source. Only a source with this connection
    /// supports warm and cold stand-by.
    #[must_use]
    pub fn with_standby(mut self, control: StandbyControl) -> Self {
        self.standby_control = Some(control);
        self
    }

    /// Sets whether the source is needed now. When it is no longer needed, its buffered audio is
    /// discarded, so that old audio is never played later.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn set_needed(&mut self, now: Instant, wanted: bool) {
        let Some(control) = &mut self.standby_control else { return };
        let request = if wanted { StandbyRequest::Play } else { self.standby.idle_request() };
        self.suspended = request != StandbyRequest::Play;
        let differs = control.set_request(request);
        self.link = control.link();
        if self.suspended || differs {
            self.discard_all(now);
        }
        if differs {
            self.detector =
                SilenceDetector::new(self.silence, self.staged.rate(), self.layout.channels());
            (self.last_arrival, self.at_sender_start) = (None, true);
            (self.ended, self.lost) = (false, false);
        }
    }

    /// Normalizes the source's loudness as it arrives. The buffer then has room for the look-ahead.
    /// Silence, loudness and levels are measured before the normalizer.
    ///
    /// # Errors
    /// [`NormalizerError`] when a setting is out of range.
    pub fn with_normalizer(mut self, config: &NormalizerConfig) -> Result<Self, NormalizerError> {
        self.normalizer =
            Some(InputNormalizer::new(config.clone(), self.staged.rate(), self.layout)?);
        self.reserve_staging();
        Ok(self)
    }

    /// Adds the source's audio in the encoding of the station; see [`crate::ready_chunk`]. Its frames
    /// keep to their time, as those of [`Source::is_timed`].
    #[must_use]
    pub fn with_ready_chunks(mut self, chunks: ReadyChunkQueue) -> Self {
        self.ready_chunks = Some(chunks);
        self.is_timed = true;
        self
    }

    /// Reads what has arrived, up to the buffer limit.
    ///
    /// # Real-time
    /// Does not allocate, except when the source changes its sample rate.
    pub fn refill(&mut self, now: Instant) {
        let surplus =
            self.staged.frames() > self.timing.max_frames(self.staged.rate()) && !self.full;
        self.holds_onset =
            self.keeps_onset() && (self.detector.is_silent() || (self.holds_onset && surplus));
        // A block that waits holds up its sender.
        self.full = self.block_pending;
        self.normalizer.iter_mut().for_each(InputNormalizer::begin_refill);
        while !self.block_pending && !self.suspended {
            if self
                .normalizer
                .as_ref()
                .is_some_and(|normalizer| normalizer.is_busy(self.staged.rate()))
            {
                return;
            }
            // The look-ahead is filled before it outputs anything, so it does not count as
            // buffered.
            let ahead = self.normalizer.as_ref().map_or(0, InputNormalizer::frames_until_output);
            let most = match self.holds_onset {
                true => self.timing.max_frames_in_silence(self.staged.rate()),
                false => self.timing.max_frames(self.staged.rate()),
            };
            if self.staged.frames() >= most + ahead {
                self.full = true;
                self.servo.mark_full(now);
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

    /// Adjusts the resampler to the source's clock. `due` is the time at which the frames read so
    /// far were due, `elapsed` the time since the last call.
    pub fn update_drift(&mut self, due: Instant, elapsed: Span) {
        // The rest of a sender that has ended is played at the last rate.
        if !self.timing.has_clock() || self.ended || self.lost {
            return;
        }
        // The sender continues between two arrivals. Without that part the fill level would be a
        // sawtooth whose beat with our quanta looks like drift, and every pause would look like an
        // underrun.
        let on_the_way = self.last_arrival.map_or(Span::ZERO, |last| due - last);
        let fill = self.buffered() + on_the_way;
        let drift = if self.ready_chunks.is_some() {
            self.servo.follow(fill + self.latency(), elapsed)
        } else if self.full {
            self.servo.update_full(fill, elapsed)
        } else {
            self.servo.update(fill, elapsed)
        };
        self.staged.set_drift(drift);
    }

    /// Restarts the fill estimate, because the source goes on air.
    pub const fn restart_servo(&mut self) {
        self.servo.restart();
    }

    /// Going on air, discards audio or begins with silence, so that a frame is read when it is due;
    /// nothing if frames have no time. `due` is the time at which the next `frames` are
    /// read, `ahead` what the resampler has of older audio.
    ///
    /// # Real-time
    /// Does not allocate.
    pub(crate) fn align(&mut self, due: Instant, frames: Frames, ahead: Span) {
        let Some(last) = self.last_arrival.filter(|_| self.is_timed) else { return };
        let fill = self.buffered() + (due - last) + ahead;
        let surplus = fill - self.rate.span(frames) - self.timing.buffer;
        self.staged.discard(self.staged.rate().frames(surplus));
        self.staged.push_silence_front((-surplus).min(MAX_SILENT_START));
    }

    /// The source's audio in the encoding of the station.
    pub(crate) const fn ready_chunks(&mut self) -> Option<&mut ReadyChunkQueue> {
        self.ready_chunks.as_mut()
    }

    /// Whether it changes the samples of its source.
    pub(crate) fn is_transparent(&self) -> bool {
        self.normalizer.is_none() && self.gain.to_bits() == 1.0_f32.to_bits()
    }

    /// Fills `out` (interleaved, the station's rate and layout) from its front.
    ///
    /// # Real-time
    /// Does not allocate, except when the source changes its sample rate.
    pub fn read(&mut self, now: Instant, out: &mut [f32]) -> InputRead {
        let channels = self.layout.channels();
        let wanted = out.len() / channels;
        let mut produced = 0;
        self.at_sender_start = false;
        while produced < wanted {
            let step = self.staged.resample(&mut out[produced * channels..]);
            produced += step.produced.as_usize();
            if step == ResampleProgress::default() && !self.finish_earlier_rate(now) {
                break;
            }
        }
        apply_gain(&mut out[..produced * channels], self.gain);
        InputRead { frames: produced, starved: produced < wanted && !self.ended }
    }

    /// Discards the oldest `frames` (at the station's rate), so that an input that is off air stays
    /// as current as one on air. The rest of a sender that has ended is discarded completely.
    pub fn skip(&mut self, now: Instant, frames: Frames) {
        let keep = match () {
            () if self.block_pending || self.ended || self.lost => Span::ZERO,
            // What is discarded could not be played when it turns out to be sound.
            () if self.keeps_onset() && self.detector.is_silent() => {
                self.timing.buffer.max(SilenceDetector::ONSET)
            }
            () => self.timing.buffer,
        };
        let surplus = Frames::from(self.staged.frames()) - self.staged.rate().frames(keep);
        let frames = self.staged.rate().frames(self.rate.span(frames)).min(surplus);
        self.at_sender_start &= frames == Frames::ZERO;
        self.staged.discard(frames);
        self.finish_earlier_rate(now);
    }

    /// Discards all audio that a sender has sent; a source that is paced on demand is left alone.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn clear(&mut self, now: Instant) {
        if self.timing.pacing != Pacing::OnDemand {
            self.discard_all(now);
        }
    }

    /// Rewinds a sound that supports it: the next frame is its first one. `scratch` receives the
    /// resampler's older output.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn rewind(&mut self, now: Instant, scratch: &mut [f32]) {
        self.source.rewind();
        (self.block_pending, self.ended) = (false, false);
        self.staged.clear();
        self.normalizer.iter_mut().for_each(InputNormalizer::interrupt);
        self.refill(now);
        self.discard_resampler_tail(now, scratch);
    }

    /// Starts in the middle of a sound: discards the older audio in the resampler, with `scratch`
    /// as a buffer.
    ///
    /// # Real-time
    /// As [`Input::read`].
    pub fn discard_resampler_tail(&mut self, now: Instant, scratch: &mut [f32]) {
        let latency = self.rate.frames(self.latency()).as_usize() * self.layout.channels();
        let length = latency.min(scratch.len());
        self.read(now, &mut scratch[..length]);
    }

    /// How much audio can still be read if nothing more arrives.
    #[must_use]
    pub fn remaining(&self) -> Span {
        (self.buffered() - self.latency()).max(Span::ZERO)
    }

    /// The sender has ended or was lost: nothing more arrives.
    #[must_use]
    pub const fn has_stopped(&self) -> bool {
        self.ended || self.lost
    }

    /// Whether only the reserve for a click-free fade-out is left.
    #[must_use]
    pub fn is_running_dry(&self, next: Frames) -> bool {
        !self.ended && self.buffered() < self.rate.span(next) + FADE_RESERVE
    }

    /// Whether the next frame read is the first one of its sender.
    #[must_use]
    pub const fn is_at_sender_start(&self) -> bool {
        self.at_sender_start
    }

    /// Adds a recorder; returns it when there are too many.
    pub(crate) fn attach_record_tap(
        &mut self,
        number: u64,
        tap: Box<RecordTap>,
    ) -> Option<Box<RecordTap>> {
        if self.record_taps.len() == MAX_RECORD_TAPS {
            return Some(tap);
        }
        self.record_taps.push((number, tap));
        None
    }

    /// Removes and returns one recorder that matches `which`.
    pub(crate) fn detach_record_tap(
        &mut self,
        which: &impl Fn(u64, &RecordTap) -> bool,
    ) -> Option<(u64, Box<RecordTap>)> {
        let at = self.record_taps.iter().position(|(number, tap)| which(*number, tap))?;
        Some(self.record_taps.swap_remove(at))
    }

    /// The facts on which the switch decides.
    #[must_use]
    pub fn facts(&self) -> InputFacts {
        InputFacts {
            pacing: self.timing.pacing,
            buffered: self.buffered(),
            prime_target: self.timing.buffer,
            full: self.full,
            ended: self.ended,
            last_arrival: self.last_arrival,
            timeout: self.timing.timeout,
            lost: self.lost,
            verdict: self.detector.verdict(),
            standby: if self.standby_control.is_some() { self.standby } else { Standby::Hot },
            link: self.link,
        }
    }

    /// The buffered audio.
    #[must_use]
    pub fn buffered(&self) -> Span {
        self.staged.duration()
    }

    /// Loudness of the source as it arrives, in the station's channels and before its gain.
    #[must_use]
    pub fn loudness(&self, now: Instant) -> Loudness {
        match self.last_arrival {
            Some(last) if now.since(last) < self.timing.max_gap() => self.meter.loudness(),
            _ => self.meter.loudness_in_silence(),
        }
    }

    /// Restarts the loudness measurement.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn reset_loudness(&mut self) {
        self.meter.reset();
    }

    /// Estimated drift of the source's clock.
    #[must_use]
    pub const fn drift(&self) -> Ppm {
        self.servo.drift()
    }

    /// What the source sends, and how far that has been read.
    #[must_use]
    pub fn source_progress(&self) -> SourceProgress {
        let waiting = self.staged.frames() as u64;
        SourceProgress {
            rate: self.staged.rate(),
            layout: self.block.layout(),
            position: MediaTime(self.arrived.0.saturating_sub(waiting)),
        }
    }

    /// How much audio its resampler holds.
    pub(crate) fn latency(&self) -> Span {
        self.staged.latency()
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
        self.ready_chunks.iter_mut().for_each(ReadyChunkQueue::clear);
        self.normalizer.iter_mut().for_each(InputNormalizer::interrupt);
        self.servo.mark_discontinuity();
    }

    /// Whether it may play later than its buffer says, so that a sound after silence is complete.
    /// Frames that have their time keep to it.
    const fn keeps_onset(&self) -> bool {
        !self.is_timed
    }
}

impl core::fmt::Debug for Input {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Input").field("facts", &self.facts()).finish_non_exhaustive()
    }
}

/// The source of an input, as the input sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a plain copy")]
pub struct SourceProgress {
    /// Its latest sample rate.
    pub rate: SampleRate,
    /// Its latest channels.
    pub layout: ChannelLayout,
    /// Media time of the source, in its own frames, up to which it has been read. With frames of an
    /// earlier rate in the buffer, and with a normalizer, it is not exact.
    pub position: MediaTime,
}

/// Result of [`Input::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputRead {
    /// Number of real frames, from the front.
    pub frames: usize,
    /// Underrun: the source neither delivered enough frames nor ended.
    pub starved: bool,
}

/// Frames to reserve for so many buffered ones. The memory is traversed in use, so it is no larger
/// than the rate requires, and a higher rate reserves its own.
const fn staging_frames(limit: usize) -> usize {
    limit + BLOCK_SAMPLES + SLACK_FRAMES
}

/// Reserve of a live source for a fade-out when it stops unexpectedly.
pub(crate) const FADE_RESERVE: Span = Span::from_millis(10);

/// A source with ready chunks waits so long for the time of its first frame.
const MAX_SILENT_START: Span = Span::from_millis(60);

/// Maximum number of recorders on one input.
const MAX_RECORD_TAPS: usize = 8;

/// Blocks that one call discards at most; a feeder's ring holds far fewer.
const MAX_CLEARED: usize = 256;

/// The tail of a resampler, more than once if a sender comes and goes.
const SLACK_FRAMES: usize = 1_024;
