//! What a station tells the world about itself: a plain copy, published after every step.

use aulos_core::{Db, Instant, MediaTime, Ppm, SampleRate, Span, Timeline};
use aulos_dsp::LevelMeter;
use aulos_dsp::silence::SilenceVerdict;

use crate::loudness::Loudness;
use crate::loudness_processor::NormalizerStatus;
use crate::standby::Standby;
use crate::switch::{FailureCounts, InputChange, InputHealth, Preference, SwitchCause};

/// The most sources that a station can have.
pub const MAX_SOURCES: usize = 32;

/// The channels whose level is reported.
pub const MAX_LEVELS: usize = 8;

/// A snapshot of a station.
#[derive(Clone, Copy, Debug)]
pub struct StationStatus {
    /// When the station began.
    pub started: Instant,
    /// The media time of the next chunk.
    pub position: MediaTime,
    /// How media time becomes local time; none before the first step.
    pub timeline: Option<Timeline>,
    /// The input on air; none is the last resort.
    pub active: Option<usize>,
    /// Since when it has been on air.
    pub since: Instant,
    /// Why it came on air.
    pub cause: Option<SwitchCause>,
    /// What is heard.
    pub output: StationOutput,
    /// The input that somebody wished, and until when.
    pub preference: Option<Preference>,
    /// Level of what goes out.
    pub level: Levels,
    /// Loudness of what goes out, since the start or since it was last reset.
    pub loudness: Loudness,
    /// What the normaliser does, looked at ten times a second; none while there is none.
    pub normalizer: Option<NormalizerStatus>,
    /// State of each input, in order of priority.
    pub inputs: [InputState; MAX_SOURCES],
    /// Chunks sent.
    pub chunks: u64,
    /// Payload bytes of these chunks.
    pub payload_bytes: u64,
    /// How often the input on air ran dry.
    pub underruns: u64,
    /// Frames of silence that no source has sent.
    pub silent_frames: u64,
    /// Frames of the last resort's sound.
    pub last_resort_frames: u64,
    /// Changes of the input on air.
    pub switches: u64,
    /// The same by cause, in the order of [`Cause::ALL`].
    pub switches_by: [u64; SwitchCause::ALL.len()],
    /// How often the whole process stood still so long that the timeline had to move.
    pub stalls: u64,
    /// Chunks not made because every buffer was in use.
    pub pool_exhausted: u64,
    /// Chunks not made because the codec refused.
    pub encode_errors: u64,
    /// Chunks that a reactor did not take in time.
    pub fanout_full: u64,
}

/// A snapshot of one input.
#[derive(Clone, Copy, Debug)]
pub struct InputState {
    /// What the switch thinks of it.
    pub health: InputHealth,
    /// Whether what it sends can be heard.
    pub verdict: SilenceVerdict,
    /// What has gone wrong with it.
    pub failures: FailureCounts,
    /// How ready it is kept while it is not needed.
    pub standby: Standby,
    /// The sound that waits in it.
    pub buffered: Span,
    /// The drift of its clock, as far as it is known.
    pub drift: Ppm,
    /// Its own rate.
    pub rate: SampleRate,
    /// Its own channel count.
    pub channels: usize,
    /// Loudness of what it sends, in the station's channels and before its gain.
    pub loudness: Loudness,
}

/// What a station gives out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StationOutput {
    /// No input: silence, or the sound for that case.
    LastResort,
    /// An input.
    Active(usize),
    /// One goes over into another; none is the last resort.
    Fade {
        /// Who goes out.
        from: Option<usize>,
        /// Who comes in.
        to: Option<usize>,
    },
}

impl InputState {
    /// Whether nothing that it sends can be heard.
    #[must_use]
    pub const fn is_silent(&self) -> bool {
        matches!(self.verdict, SilenceVerdict::Silent | SilenceVerdict::Dc)
    }
}

/// Peak and RMS of the first [`MAX_LEVELS`] channels.
#[derive(Clone, Copy, Debug)]
pub struct Levels {
    /// How many channels there are.
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
            level: Levels {
                channels: 0,
                peak: [Db::SILENCE; MAX_LEVELS],
                rms: [Db::SILENCE; MAX_LEVELS],
            },
            loudness: Loudness::NONE,
            normalizer: None,
            inputs: [InputState {
                health: InputHealth::Connecting,
                verdict: SilenceVerdict::Sound,
                failures: FailureCounts::NONE,
                standby: Standby::Hot,
                buffered: Span::ZERO,
                drift: Ppm::ZERO,
                rate: SampleRate::HZ_48000,
                channels: 0,
                loudness: Loudness::NONE,
            }; MAX_SOURCES],
            chunks: 0,
            payload_bytes: 0,
            underruns: 0,
            silent_frames: 0,
            last_resort_frames: 0,
            switches: 0,
            switches_by: [0; SwitchCause::ALL.len()],
            stalls: 0,
            pool_exhausted: 0,
            encode_errors: 0,
            fanout_full: 0,
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
    pub(crate) fn update(&mut self, level: &LevelMeter, channels: usize) {
        self.channels = channels.min(MAX_LEVELS);
        for channel in 0..self.channels {
            self.peak[channel] = level.peak(channel);
            self.rms[channel] = level.rms(channel);
        }
    }
}
