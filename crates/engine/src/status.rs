//! What a station tells the world about itself: a plain copy, published after every step.

use aulos_core::{Db, Instant, MediaTime, Ppm, SampleRate, Span, Timeline};
use aulos_dsp::Level;

use crate::loudness::Loudness;
use crate::steady::Steadiness;
use crate::switch::{Cause, Changed, Health};

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
    pub cause: Option<Cause>,
    /// Level of what goes out.
    pub level: Levels,
    /// Loudness of what goes out, since the start or since it was last reset.
    pub loudness: Loudness,
    /// What the normaliser does, looked at ten times a second; none while there is none.
    pub steadiness: Option<Steadiness>,
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
    /// Changes of the input on air.
    pub switches: u64,
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
    pub health: Health,
    /// What it sends cannot be heard.
    pub silent: bool,
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
            level: Levels {
                channels: 0,
                peak: [Db::SILENCE; MAX_LEVELS],
                rms: [Db::SILENCE; MAX_LEVELS],
            },
            loudness: Loudness::NONE,
            steadiness: None,
            inputs: [InputState {
                health: Health::Idle,
                silent: false,
                buffered: Span::ZERO,
                drift: Ppm::ZERO,
                rate: SampleRate::STUDIO,
                channels: 0,
                loudness: Loudness::NONE,
            }; MAX_SOURCES],
            chunks: 0,
            payload_bytes: 0,
            underruns: 0,
            silent_frames: 0,
            switches: 0,
            stalls: 0,
            pool_exhausted: 0,
            encode_errors: 0,
            fanout_full: 0,
        }
    }

    pub(crate) const fn switched(&mut self, now: Instant, changed: Changed) {
        self.since = now;
        self.cause = Some(changed.cause);
        self.switches += 1;
    }
}

impl Levels {
    pub(crate) fn read(&mut self, level: &Level, channels: usize) {
        self.channels = channels.min(MAX_LEVELS);
        for channel in 0..self.channels {
            self.peak[channel] = level.peak(channel);
            self.rms[channel] = level.rms(channel);
        }
    }
}
