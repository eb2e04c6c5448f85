//! When the media of fetched segments is due.
//!
//! Segments arrive in bursts, and a playlist shows a new one up to a reload late, so the times of
//! arrivals say little about the sender's clock. What says more is the least reserve between two
//! arrivals: where both clocks agree, its minimum over minutes stays where it was at the
//! beginning. The pace follows the deviation from that in proportion, by at most
//! 300 ppm, which the input behind it takes for the drift of a sender.

use std::collections::VecDeque;

use aulos_core::{Instant, Span};

/// Follows the sender's clock by the reserve of segments.
#[derive(Debug)]
pub struct SegmentPacer {
    target: Span,
    state: State,
    /// The least reserve of each of the last ten minutes, the newest last.
    minima: VecDeque<Span>,
    window_end: Instant,
    /// The least reserve in the first minutes.
    set_point: Option<Span>,
    /// Parts per million by which media is released faster than our clock runs.
    pace_ppm: f64,
    dry_runs: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Collecting a reserve of so much, after everything was released at this time.
    Filling(Span, Option<Instant>),
    /// Media is due up to `media` at `at`, in nanoseconds since the start.
    Running { at: Instant, media: f64 },
}

impl SegmentPacer {
    /// A pacer for segments of at most `target`.
    #[must_use]
    pub fn new(target: Span, now: Instant) -> Self {
        Self {
            target,
            state: State::Filling(target * 3 / 2, None),
            minima: VecDeque::with_capacity(WINDOWS),
            window_end: now + WINDOW,
            set_point: None,
            pace_ppm: 0.0,
            dry_runs: 0,
        }
    }

    /// The media that is due at `now`, counted from the start, of which `released` has been
    /// released and `reserve` more is there; `is_complete` when no more will come.
    pub fn due(&mut self, now: Instant, released: Span, reserve: Span, is_complete: bool) -> Span {
        match self.state {
            State::Filling(wanted, dry_at) if reserve >= wanted || is_complete => {
                // What has been played meanwhile of the lead.
                let ahead = dry_at.map_or(LEAD, |at| now.since(at).min(LEAD));
                self.state = State::Running { at: now, media: nanos(released + ahead) };
            }
            State::Filling(..) => return released,
            State::Running { .. } => {}
        }
        let State::Running { at, media } = &mut self.state else { return released };
        let elapsed = now.since(*at).max(Span::ZERO);
        *at = (*at).max(now);
        *media += nanos(elapsed) * (1.0 + self.pace_ppm * 1e-6);
        #[allow(clippy::cast_possible_truncation, reason = "nanoseconds of at most centuries")]
        let due = Span::from_nanos(*media as i64);
        if reserve == Span::ZERO && due > released && !is_complete {
            // Nothing is left: what comes next begins a new reserve.
            self.state = State::Filling(self.target / 2, Some(now));
            self.dry_runs += 1;
            (self.set_point, self.pace_ppm) = (None, 0.0);
            self.minima.clear();
            self.window_end = now + WINDOW;
            return released;
        }
        self.follow(now, reserve);
        due
    }

    /// How often no reserve was left.
    #[must_use]
    pub const fn dry_runs(&self) -> u64 {
        self.dry_runs
    }

    /// Parts per million by which media is released faster than our clock runs.
    #[must_use]
    pub const fn pace_ppm(&self) -> f64 {
        self.pace_ppm
    }

    fn follow(&mut self, now: Instant, reserve: Span) {
        match self.minima.back_mut() {
            Some(least) if now < self.window_end => {
                *least = (*least).min(reserve);
                return;
            }
            _ => {}
        }
        if self.minima.len() == WINDOWS {
            self.minima.pop_front();
        }
        if !self.minima.is_empty() {
            let least = self.minima.iter().copied().min().unwrap_or(reserve);
            if self.set_point.is_none() && self.minima.len() >= SETTLING {
                self.set_point = Some(least);
            }
            if let Some(set_point) = self.set_point {
                let error = (least - set_point).as_secs_f64() / self.target.as_secs_f64();
                self.pace_ppm = (error * PPM_PER_TARGET).clamp(-MAX_PACE_PPM, MAX_PACE_PPM);
            }
        }
        self.minima.push_back(reserve);
        self.window_end = now + WINDOW;
    }
}

#[allow(clippy::cast_precision_loss, reason = "exact for a hundred days, then to nanoseconds")]
fn nanos(span: Span) -> f64 {
    span.as_nanos() as f64
}

/// How far ahead of its time media is released: what an input of a network source holds.
const LEAD: Span = Span::from_millis(2_500);

/// The reserve is looked at in minutes, and over ten of them: a playlist that is read by chance
/// just before it changes is read so several times in a row.
const WINDOW: Span = Span::from_secs(60);
const WINDOWS: usize = 10;

/// Minutes before the reserve counts as usual.
const SETTLING: usize = 5;

/// The pace for a reserve that is off by one target duration, and the greatest.
const PPM_PER_TARGET: f64 = 300.0;
const MAX_PACE_PPM: f64 = 300.0;
