//! Analysis of a station's output.

use aulos_core::{Frames, Instant, MediaTime, SampleRate, Span};
use aulos_engine::fanout::TimedChunk;

use super::{FRAMES_PER_TURN, RADIUS};

/// Checks every frame for continuity.
#[derive(Debug)]
pub(crate) struct ContinuityAnalyzer {
    rate: SampleRate,
    next: Option<(MediaTime, Instant)>,
    /// Frames analyzed.
    pub(crate) frames: u64,
    /// Length of the current silence in frames, and of the longest one.
    silence: u64,
    longest: u64,
    /// The longest silence that a sender has sent itself.
    longest_sent: u64,
    is_exempt: bool,
    /// The previous frame, if the next one must be its neighbour.
    last: Option<[f64; 2]>,
    counted: u64,
    /// Chunks that may still contain a counted switch.
    fading: u8,
    /// The last frame of them.
    faded: MediaTime,
    /// Discontinuities without a counted switch: their time, and their size in frames.
    pub(crate) slips: Vec<(MediaTime, f64)>,
    /// Distance covered in the current chunk in frames of its source, and the number of steps.
    advance: (f64, u32),
    /// Maximum deviation of a chunk's speed from its source, in ppm.
    pub(crate) max_drift_ppm: f64,
    /// The source that seems to be on air, and for how many frames.
    candidate: (Option<usize>, u64),
    /// The source that was on air last, and the number of changes.
    current: Option<usize>,
    pub(crate) changes: u64,
    /// Frames of each source outside switches.
    pub(crate) frames_by_source: [u64; 6],
}

impl ContinuityAnalyzer {
    pub(crate) fn new(rate: SampleRate) -> Self {
        Self {
            rate,
            next: None,
            frames: 0,
            silence: 0,
            longest: 0,
            longest_sent: 0,
            is_exempt: false,
            last: None,
            counted: 0,
            fading: 0,
            faded: MediaTime::ZERO,
            slips: Vec::new(),
            advance: (0.0, 0),
            max_drift_ppm: 0.0,
            candidate: (None, 0),
            current: None,
            changes: 0,
            frames_by_source: [0; 6],
        }
    }

    /// Analyzes a chunk; `counted` is the number of switches and underruns that the station
    /// reports. While the sender itself is at fault (`spoilt`), only the silence is measured.
    pub(crate) fn push(&mut self, stamped: &TimedChunk, counted: u64, spoilt: bool) {
        let chunk = &stamped.chunk;
        if let Some((pts, timestamp)) = self.next {
            assert_eq!(chunk.pts, pts, "media time");
            assert_eq!(stamped.timestamp, timestamp, "time stamp");
        }
        let end = self.rate.span(chunk.duration);
        self.next = Some((chunk.pts + chunk.duration, stamped.timestamp + end));
        if counted != self.counted {
            self.counted = counted;
            // A crossfade of one chunk may begin in the middle of this one.
            self.fading = 2;
            // The resampler rings at the end of a signal, which may have been in the last chunk.
            self.slips.pop_if(|(at, _)| chunk.pts.since(*at) < RINGING);
        }
        if spoilt || self.is_exempt {
            self.fading = self.fading.max(2);
        }
        if spoilt != self.is_exempt {
            self.silence = 0;
        }
        self.is_exempt = spoilt;
        let samples = chunk.payload().as_chunks::<4>().0;
        assert_eq!(samples.len(), 2 * chunk.duration.as_usize());
        let mut at = chunk.pts;
        for frame in samples.as_chunks::<2>().0 {
            self.push_frame(at, frame.map(|sample| f64::from(f32::from_le_bytes(sample))));
            at += Frames(1);
        }
        self.fading = self.fading.saturating_sub(1);
        let (way, steps) = core::mem::take(&mut self.advance);
        if u64::from(steps) == chunk.duration.0 {
            self.max_drift_ppm = self.max_drift_ppm.max((way / f64::from(steps) - 1.0).abs() * 1e6);
        }
    }

    /// Discards all results so far.
    pub(crate) fn reset(&mut self) {
        let (next, counted) = (self.next, self.counted);
        let faded = next.map_or(MediaTime::ZERO, |(pts, _)| pts);
        *self = Self { next, counted, faded, ..Self::new(self.rate) };
    }

    /// The longest silence.
    pub(crate) fn silence(&self) -> Span {
        self.rate.span(Frames(self.longest))
    }

    /// The longest silence that a sender has sent itself.
    pub(crate) fn sent_silence(&self) -> Span {
        self.rate.span(Frames(self.longest_sent))
    }

    fn push_frame(&mut self, at: MediaTime, [x, y]: [f64; 2]) {
        self.frames += 1;
        let silent = x.abs().max(y.abs()) < INAUDIBLE;
        self.silence = if silent { self.silence + 1 } else { 0 };
        if self.is_exempt {
            self.longest_sent = self.longest_sent.max(self.silence);
        } else {
            self.longest = self.longest.max(self.silence);
        }
        let radius = (x * x + y * y).sqrt() / RADIUS;
        let known = radius.round();
        let alone = known > 0.0 && (radius - known).abs() < 0.02;
        // The sum of two fading circles is a circle of any size.
        let one = alone && !self.is_exempt && self.fading == 0;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 6")]
        self.identify(one.then_some(known as usize));
        if self.fading > 0 {
            self.last = None;
            self.faded = at;
            return;
        }
        if let Some(last) = self.last {
            let way = frames_between(last, [x, y]);
            // A resampler at its limit advances 1.0005 frames per frame.
            if (way - 1.0).abs() > 0.01 || !alone {
                self.record_slip(at, way - 1.0);
            } else {
                self.advance = (self.advance.0 + way, self.advance.1 + 1);
            }
        } else if !(alone && self.candidate.1 >= RINGING.0) {
            // A fade may have ended in the middle of a join.
            if at.since(self.faded) < RINGING + RINGING + RINGING {
                return;
            }
            self.record_slip(at, 0.0);
        }
        self.last = Some([x, y]);
    }

    /// Identifies the source on air; it takes some frames to tell it from the ringing of a louder
    /// one.
    fn identify(&mut self, known: Option<usize>) {
        self.candidate = (known, if known == self.candidate.0 { self.candidate.1 + 1 } else { 1 });
        let (Some(number), count) = self.candidate else { return };
        if let Some(heard) = self.frames_by_source.get_mut(number - 1) {
            *heard += u64::from(self.fading == 0);
        }
        if count == RINGING.0 {
            self.changes += u64::from(self.current.is_some_and(|who| who != number));
            self.current = Some(number);
        }
    }

    /// Discontinuities within a short distance are merged.
    fn record_slip(&mut self, at: MediaTime, by: f64) {
        let (when, sum) = match self.slips.pop_if(|(last, _)| at.since(*last) < RINGING + RINGING) {
            Some((_, sum)) => (at, sum + by),
            None => (at, by),
        };
        // A whole turn is indistinguishable from none.
        let turn = f64::from(FRAMES_PER_TURN);
        self.slips.push((when, sum - turn * (sum / turn).round()));
    }
}

/// Distance between two points of the circle, in frames.
fn frames_between(a: [f64; 2], b: [f64; 2]) -> f64 {
    let across = a[0] * b[1] - a[1] * b[0];
    let along = a[0] * b[0] + a[1] * b[1];
    // Almost always they are neighbours, for which the tangent approximates the angle.
    let angle = if along > 20.0 * across.abs() { across / along } else { across.atan2(along) };
    angle / core::f64::consts::TAU * f64::from(FRAMES_PER_TURN)
}

/// The filter length of a resampler between equal rates.
const RINGING: Frames = Frames(80);

/// -100 dBFS.
const INAUDIBLE: f64 = 1e-5;
