//! Status of a station: a plain copy, published after every step.

use aulos_core::{Db, Instant, MediaTime, Ppm, SampleRate, Span, Timeline};
use aulos_dsp::LevelMeter;
use aulos_dsp::silence::SilenceVerdict;

use crate::insert::InsertStatus;
use crate::loudness::Loudness;
use crate::loudness_processor::NormalizerStatus;
use crate::ready_chunk::PassThroughState;
use crate::standby::Standby;
use crate::switch::{FailureCounts, InputChange, InputHealth, Preference, SwitchCause};

/// Maximum number of sources of a station.
pub const MAX_SOURCES: usize = 32;

/// Maximum number of channels with a reported level.
pub const MAX_LEVELS: usize = 8;

/// A snapshot of a station.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StationStatus {
    /// Start time of the station.
    pub started: Instant,
    /// Media time of the next chunk.
    pub position: MediaTime,
    /// Mapping of media time to local time; `None` before the first step.
    pub timeline: Option<Timeline>,
    /// The input on air; `None` is the last resort.
    pub active: Option<usize>,
    /// Time at which it went on air.
    pub since: Instant,
    /// Why it went on air.
    pub cause: Option<SwitchCause>,
    /// What is audible.
    pub output: StationOutput,
    /// The preferred input, and when the preference expires.
    pub preference: Option<Preference>,
    /// The input to which the schedule gives precedence.
    pub scheduled: Option<usize>,
    /// Level of the output.
    pub level: Levels,
    /// Loudness of the output, since the start or the last reset.
    pub loudness: Loudness,
    /// Status of the insert; `None` without one.
    pub insert: Option<InsertStatus>,
    /// Status of the normalizer, updated ten times a second; `None` without one.
    pub normalizer: Option<NormalizerStatus>,
    /// State of each input, in order of priority.
    pub inputs: [InputState; MAX_SOURCES],
    /// Whether ready chunks of the source on air are passed.
    pub pass_through: PassThroughState,
    /// Chunks encoded and sent.
    pub chunks: u64,
    /// Ready chunks of a source, sent in place of encoded ones.
    pub chunks_passed: u64,
    /// Payload bytes of all these chunks.
    pub payload_bytes: u64,
    /// How often the passing of chunks ended because one was missing.
    pub pass_interruptions: u64,
    /// Underruns of the input on air.
    pub underruns: u64,
    /// Frames of silence that no source has sent.
    pub silent_frames: u64,
    /// Frames of the last resort's sound.
    pub last_resort_frames: u64,
    /// Changes of the input on air.
    pub switches: u64,
    /// The same by cause, in the order of [`SwitchCause::ALL`].
    pub switches_by: [u64; SwitchCause::ALL.len()],
    /// Changes of the input on air that were not reported, because the reports were not read.
    pub switch_events_lost: u64,
    /// Blocks of the programme that stations playing this one missed, because they read too late.
    pub tap_blocks_lost: u64,
    /// Stalls of the whole process that were so long that the timeline had to move.
    pub stalls: u64,
    /// Chunks not produced because every buffer was in use.
    pub pool_exhausted: u64,
    /// Chunks not produced because the codec refused.
    pub encode_errors: u64,
    /// Panics of codec libraries. Each time a new encoder encoded the block again.
    pub codec_panics: u64,
    /// Chunks that a reactor did not take in time.
    pub fanout_full: u64,
    /// How long its steps took.
    pub steps: StepTimes,
}

/// How long the steps of a station took, counted by fixed bounds: everything from reading its
/// inputs to handing chunks to the reactors, with the time in which the scheduler ran something
/// else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepTimes {
    /// The number of steps up to each of [`StepTimes::BOUNDS`], but above the one before; the last
    /// number is that of longer steps.
    pub counts: [u64; Self::BOUNDS.len() + 1],
    /// The time of all steps.
    pub total: Span,
}

impl StepTimes {
    /// The bounds. A step is due every 5 to 20 ms, and has to take a small part of that.
    pub const BOUNDS: [Span; 9] = [
        Span::from_micros(50),
        Span::from_micros(100),
        Span::from_micros(250),
        Span::from_micros(500),
        Span::from_micros(1_000),
        Span::from_micros(2_500),
        Span::from_micros(5_000),
        Span::from_micros(10_000),
        Span::from_micros(25_000),
    ];

    /// Counts a step.
    ///
    /// # Real-time
    /// Does not wait, lock, allocate or call the system.
    pub const fn record(&mut self, took: Span) {
        let mut at = 0;
        while at < Self::BOUNDS.len() && took.as_nanos() > Self::BOUNDS[at].as_nanos() {
            at += 1;
        }
        self.counts[at] += 1;
        self.total = Span::from_nanos(self.total.as_nanos().saturating_add(took.as_nanos()));
    }
}

/// A snapshot of one input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InputState {
    /// Its health, as the switch judges it.
    pub health: InputHealth,
    /// Whether its audio is audible.
    pub verdict: SilenceVerdict,
    /// Its failure counts.
    pub failures: FailureCounts,
    /// Whether it has been ready to go on air since the station began.
    pub has_started: bool,
    /// Readiness while it is not needed.
    pub standby: Standby,
    /// Buffered audio.
    pub buffered: Span,
    /// Estimated drift of its clock.
    pub drift: Ppm,
    /// Its own sample rate.
    pub rate: SampleRate,
    /// Its own channel count.
    pub channels: usize,
    /// Loudness of what it sends, in the station's channels and before its gain.
    pub loudness: Loudness,
}

/// What a station plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StationOutput {
    /// No input: silence, or the last resort's sound.
    LastResort,
    /// An input.
    Active(usize),
    /// A cross-fade; `None` is the last resort.
    Fade {
        /// The outgoing input.
        from: Option<usize>,
        /// The incoming input.
        to: Option<usize>,
    },
}

impl InputState {
    /// The state before the first step.
    pub const NEW: Self = Self {
        health: InputHealth::Connecting,
        verdict: SilenceVerdict::Sound,
        failures: FailureCounts::NONE,
        has_started: false,
        standby: Standby::Hot,
        buffered: Span::ZERO,
        drift: Ppm::ZERO,
        rate: SampleRate::HZ_48000,
        channels: 0,
        loudness: Loudness::NONE,
    };

    /// Whether its audio is inaudible.
    #[must_use]
    pub const fn is_silent(&self) -> bool {
        matches!(self.verdict, SilenceVerdict::Silent | SilenceVerdict::Dc)
    }
}

/// Peak and RMS of the first [`MAX_LEVELS`] channels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Levels {
    /// Number of channels.
    pub channels: usize,
    /// Sample peak, decaying.
    pub peak: [Db; MAX_LEVELS],
    /// Root mean square.
    pub rms: [Db; MAX_LEVELS],
}

impl StationStatus {
    /// The status before the first step.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self {
            started: now,
            position: MediaTime::ZERO,
            timeline: None,
            active: None,
            since: now,
            cause: None,
            output: StationOutput::LastResort,
            preference: None,
            scheduled: None,
            level: Levels {
                channels: 0,
                peak: [Db::SILENCE; MAX_LEVELS],
                rms: [Db::SILENCE; MAX_LEVELS],
            },
            loudness: Loudness::NONE,
            insert: None,
            normalizer: None,
            inputs: [InputState::NEW; MAX_SOURCES],
            pass_through: PassThroughState::NoSource,
            chunks: 0,
            payload_bytes: 0,
            chunks_passed: 0,
            pass_interruptions: 0,
            underruns: 0,
            silent_frames: 0,
            last_resort_frames: 0,
            switches: 0,
            switches_by: [0; SwitchCause::ALL.len()],
            switch_events_lost: 0,
            tap_blocks_lost: 0,
            stalls: 0,
            pool_exhausted: 0,
            encode_errors: 0,
            codec_panics: 0,
            fanout_full: 0,
            steps: StepTimes { counts: [0; StepTimes::BOUNDS.len() + 1], total: Span::ZERO },
        }
    }

    pub(crate) const fn record_switch(&mut self, now: Instant, changed: InputChange) {
        self.since = now;
        self.cause = Some(changed.cause);
        self.switches += 1;
        self.switches_by[changed.cause as usize] += 1;
    }
}

impl Levels {
    /// Sample peak of each channel, decaying.
    #[must_use]
    pub fn peaks(&self) -> &[Db] {
        &self.peak[..self.channels.min(MAX_LEVELS)]
    }

    pub(crate) fn update(&mut self, level: &LevelMeter, channels: usize) {
        self.channels = channels.min(MAX_LEVELS);
        for channel in 0..self.channels {
            self.peak[channel] = level.peak(channel);
            self.rms[channel] = level.rms(channel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_counted_by_the_first_bound_that_it_does_not_exceed() {
        let mut steps = StepTimes::default();
        for micros in [0, 50, 51, 25_000, 25_001] {
            steps.record(Span::from_micros(micros));
        }
        assert_eq!(steps.counts, [2, 1, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(steps.total, Span::from_micros(50_102));
    }
}
