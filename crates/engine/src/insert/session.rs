//! The other end of an insert: what a program is given, what it has returned, and whether it does
//! what it must.
//!
//! It counts frames and decides; crate `io` runs the program. In the order of a run:
//!
//! ```text
//!  Idle -> Starting: silence and a burst; nothing has come back yet
//!       -> Probing: the programme; the output is searched for the burst
//!       -> Proving: for a second, the frames on the way are counted
//!       -> Running: the output goes to the station
//! ```

use aulos_core::{Block, Frames, Instant, MediaTime, Span};
use aulos_rt::ring::{Consumer, Producer};
use aulos_rt::{Pool, Pooled};

use super::config::InsertConfig;
use super::probe::{LatencyProbe, MAX_DELAY, ProbeResult};

/// Why a program is ended, or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InsertFault {
    /// It could not be started.
    NotStarted,
    /// It has ended.
    Exited,
    /// It has written nothing for [`InsertFault::SILENCE_LIMIT`], although it was given frames.
    NoOutput,
    /// Its output is no WAVE file, or one of another rate or other channels.
    Format,
    /// It writes more frames than it reads.
    TooManyFrames,
    /// It writes fewer frames than it reads.
    TooFewFrames,
    /// Its output has nothing in common with its input.
    Unrecognized,
    /// It did not read, so that a part of the programme was not given to it.
    NotReading,
}

impl InsertFault {
    /// Every fault, in the order of the counters.
    pub const ALL: [Self; 8] = [
        Self::NotStarted,
        Self::Exited,
        Self::NoOutput,
        Self::Format,
        Self::TooManyFrames,
        Self::TooFewFrames,
        Self::Unrecognized,
        Self::NotReading,
    ];

    /// How long a program may write nothing.
    pub const SILENCE_LIMIT: Span = Span::from_millis(500);

    /// Its name in the API and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotStarted => "not_started",
            Self::Exited => "exited",
            Self::NoOutput => "no_output",
            Self::Format => "format",
            Self::TooManyFrames => "too_many_frames",
            Self::TooFewFrames => "too_few_frames",
            Self::Unrecognized => "unrecognized",
            Self::NotReading => "not_reading",
        }
    }
}

/// State of a session; a plain copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionStatus {
    /// The delay of the program's sound against its input, once it is known.
    pub delay: Option<i64>,
    /// Frames that the program was given and has not returned.
    pub on_the_way: u64,
    /// Processed blocks that the station did not take.
    pub blocks_lost: u64,
}

/// The end of the thread that has the program.
#[derive(Debug)]
pub struct InsertSession {
    config: InsertConfig,
    dry: Consumer<Pooled<Block>>,
    pool: Pool<Block>,
    processed: Producer<Pooled<Block>>,
    phase: Phase,
    /// Frames given to the program in this run, those given when it last wrote, and frames that it
    /// has returned.
    given: u64,
    answered: u64,
    returned: u64,
    /// Position in the programme of frame 0 of the output, once the programme is given.
    origin: Option<i64>,
    /// Position of the next quantum of the programme.
    next: Option<MediaTime>,
    delay: Option<i64>,
    /// Since when nothing has come back, in time in which the program could run.
    silent_for: Span,
    checked_at: Option<Instant>,
    fault: Option<InsertFault>,
    count: FrameCount,
    blocks_lost: u64,
}

#[derive(Debug)]
enum Phase {
    Idle,
    Starting(LatencyProbe),
    Probing(LatencyProbe),
    Proving,
    Running,
}

impl InsertSession {
    pub(super) fn new(
        config: InsertConfig,
        dry: Consumer<Pooled<Block>>,
        pool: Pool<Block>,
        processed: Producer<Pooled<Block>>,
    ) -> Self {
        Self {
            config,
            dry,
            pool,
            processed,
            phase: Phase::Idle,
            given: 0,
            answered: 0,
            returned: 0,
            origin: None,
            next: None,
            delay: None,
            silent_for: Span::ZERO,
            checked_at: None,
            fault: None,
            count: FrameCount::default(),
            blocks_lost: 0,
        }
    }

    /// Its configuration.
    #[must_use]
    pub const fn config(&self) -> &InsertConfig {
        &self.config
    }

    /// Whether the station is gone.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.dry.is_abandoned()
    }

    /// Whether the output goes to the station.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    /// Its state.
    #[must_use]
    pub const fn status(&self) -> SessionStatus {
        let on_the_way = self.given.saturating_sub(self.returned);
        SessionStatus { delay: self.delay, on_the_way, blocks_lost: self.blocks_lost }
    }

    /// A program has been started.
    pub fn start(&mut self, now: Instant) {
        self.stop();
        self.phase = Phase::Starting(LatencyProbe::new(self.config.rate));
        self.checked_at = Some(now);
    }

    /// There is no program now.
    pub fn stop(&mut self) {
        self.phase = Phase::Idle;
        (self.given, self.answered, self.returned) = (0, 0, 0);
        (self.origin, self.next, self.delay) = (None, None, None);
        (self.silent_for, self.checked_at) = (Span::ZERO, None);
        self.fault = None;
        self.count = FrameCount::default();
        self.discard_programme();
    }

    /// Appends the next samples for the program, interleaved, at most a tenth of a second; returns
    /// whether there were any. Call it when the program has taken what came before.
    pub fn poll_input(&mut self, into: &mut Vec<f32>) -> bool {
        let channels = self.config.layout.channels();
        match &self.phase {
            Phase::Idle => false,
            Phase::Starting(probe) => {
                // What does not put out anything until it has been given so much never will.
                let limit = probe.frames() + self.config.rate.frames(MAX_DELAY);
                let piece = self.config.rate.frames(PIECE).min(limit - Frames(self.given));
                for frame in 0..piece.as_usize() {
                    let sample = probe.sample(Frames(self.given).as_usize() + frame);
                    into.extend(std::iter::repeat_n(sample, channels));
                }
                self.given += piece.0;
                piece > Frames::ZERO
            }
            Phase::Probing(_) | Phase::Proving | Phase::Running => {
                let Some(block) = self.dry.pop() else { return false };
                if self.next.is_some_and(|next| next != block.pts) {
                    self.fault = self.fault.or(Some(InsertFault::NotReading));
                }
                self.next = Some(block.pts + block.frames());
                self.origin.get_or_insert_with(|| offset(block.pts.0, self.given));
                into.extend_from_slice(block.samples());
                self.given += block.frames().0;
                true
            }
        }
    }

    /// Takes samples that the program has returned, interleaved, in whole frames.
    pub fn handle_output(&mut self, samples: &[f32]) {
        let channels = self.config.layout.channels();
        if samples.is_empty() {
            return;
        }
        (self.silent_for, self.answered) = (Span::ZERO, self.given);
        let first = self.returned;
        self.returned += Frames::from(samples.len() / channels).0;
        // What is delayed may come early: some programs begin with silence of their own.
        let longest = offset(self.config.rate.frames(MAX_DELAY).0, 0);
        let ahead = self.delay.map_or(longest, |delay| delay.max(0) + self.tolerance());
        if offset(self.returned, self.given) > ahead {
            self.fault = self.fault.or(Some(InsertFault::TooManyFrames));
            return;
        }
        self.phase = match core::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Starting(probe) | Phase::Probing(probe) => self.search(probe, samples),
            Phase::Running => {
                self.pass_on(first, samples);
                Phase::Running
            }
            phase => phase,
        };
    }

    fn search(&mut self, mut probe: LatencyProbe, samples: &[f32]) -> Phase {
        let declared = self.config.delay.map(|delay| offset(delay.0, 0));
        let found = probe.push(samples, self.config.layout.channels());
        self.delay = match (declared, found) {
            // The burst has gone through all the same.
            (Some(delay), Some(_)) | (None, Some(ProbeResult::Delay(delay))) => Some(delay),
            (None, Some(ProbeResult::Unrecognized)) => {
                self.fault = self.fault.or(Some(InsertFault::Unrecognized));
                None
            }
            (_, None) => None,
        };
        if self.delay.is_some() { Phase::Proving } else { Phase::Probing(probe) }
    }

    /// Passes frames of the output to the station, the first of which has this number.
    fn pass_on(&mut self, first: u64, samples: &[f32]) {
        let (Some(origin), Some(delay)) = (self.origin, self.delay) else { return };
        let InsertConfig { rate, layout, quantum, .. } = self.config;
        let channels = layout.channels();
        let mut position = i64::try_from(first).unwrap_or(i64::MAX) + origin - delay;
        for piece in samples.chunks(quantum.as_usize() * channels) {
            let frames = Frames::from(piece.len() / channels);
            // Before the programme there was the burst.
            if let Ok(pts) = u64::try_from(position) {
                match self.pool.take() {
                    Some(mut block) => {
                        block.reset(rate, layout);
                        block.resize(frames);
                        block.samples_mut().copy_from_slice(piece);
                        block.pts = MediaTime(pts);
                        self.blocks_lost += u64::from(self.processed.push(block).is_err());
                    }
                    None => self.blocks_lost += 1,
                }
            }
            position += i64::try_from(frames.0).unwrap_or(0);
        }
    }

    fn discard_programme(&mut self) {
        while self.dry.pop().is_some() {}
    }

    /// Frames by which counts may differ because of the scheduler.
    fn tolerance(&self) -> i64 {
        offset(self.config.rate.frames(TOLERANCE).0, 0)
    }

    /// Checks the program; call it after each turn of writing and reading, and regularly while there
    /// is none.
    ///
    /// # Errors
    /// Why the program must be ended.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), InsertFault> {
        let before = self.checked_at.replace(now).unwrap_or(now);
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let limit = match self.phase {
            Phase::Idle => {
                self.discard_programme();
                return Ok(());
            }
            Phase::Starting(_) => {
                // It will be given the programme of then.
                self.discard_programme();
                START_LIMIT
            }
            Phase::Probing(_) | Phase::Proving | Phase::Running => InsertFault::SILENCE_LIMIT,
        };
        // While this thread does not run, the program may not have run either.
        let passed = now.since(before).min(TURN);
        if self.given > self.answered || matches!(self.phase, Phase::Starting(_)) {
            self.silent_for += passed;
        }
        if self.silent_for >= limit {
            return Err(InsertFault::NoOutput);
        }
        if matches!(self.phase, Phase::Proving | Phase::Running) {
            let on_the_way = offset(self.given, self.returned);
            if self.count.add(on_the_way, passed, self.tolerance()) {
                return Err(InsertFault::TooFewFrames);
            }
            if matches!(self.phase, Phase::Proving) && self.count.windows >= PROVING_WINDOWS {
                self.phase = Phase::Running;
            }
        }
        Ok(())
    }
}

/// Compares the frames on the way in windows of time. Their least number stays about the same,
/// unless a program returns fewer than it was given. It may fall, after a start with many.
#[derive(Debug, Default)]
struct FrameCount {
    /// The least number in the window so far, and its time.
    window: Option<i64>,
    passed: Span,
    /// The least number in all windows.
    least: Option<i64>,
    windows: u32,
}

impl FrameCount {
    /// Returns whether a window has ended that never had so few frames on the way as the others.
    fn add(&mut self, on_the_way: i64, passed: Span, tolerance: i64) -> bool {
        let window = self.window.map_or(on_the_way, |least| least.min(on_the_way));
        self.window = Some(window);
        self.passed += passed;
        if self.passed < WINDOW {
            return false;
        }
        (self.window, self.passed) = (None, Span::ZERO);
        self.windows += 1;
        let least = self.least.map_or(window, |least| least.min(window));
        self.least = Some(least);
        window > least + tolerance
    }
}

/// The difference of two counts of frames, both far below 2^63.
fn offset(one: u64, other: u64) -> i64 {
    one.wrapping_sub(other).cast_signed()
}

/// A program has to be loaded, and some ask a server for their licence.
const START_LIMIT: Span = Span::from_secs(10);
/// More than this does not count for one turn.
const TURN: Span = Span::from_millis(100);
/// Silence and burst are given in pieces of this length.
const PIECE: Span = Span::from_millis(100);
/// Longer than the blocks in which programs work.
const WINDOW: Span = Span::from_millis(500);
const PROVING_WINDOWS: u32 = 2;
const TOLERANCE: Span = Span::from_millis(100);
