//! Decides when a station is recorded, from which frame to which, and into how many segments.
//!
//! The recorder counts frames and touches none: it learns that frames exist, and outputs where each
//! one belongs. Its driver keeps the samples, encodes them and writes the files. So segment
//! boundaries are integers, and a test of a thousand of them needs no disk.
//!
//! ```text
//!  station -> RecordTap =ring=> RecordTapReader -> FrameRun -> Recorder -> Open, Write, Silence,
//!  (real time)                       |                                     Skip, Close
//!                                    `---> samples, kept from `Recorder::oldest_needed` on
//! ```
//!
//! A command applies to an exact frame: in the past, as far back as the pre-roll reaches, now, or
//! in the future. An idle or paused recorder delays the decision about old frames by its pre-roll,
//! so that it can resume in the past as well.

mod air_tap;
mod cut_times;
mod plan;
mod record_tap;
mod stall_silence;
mod stalls;
mod types;
mod wall_clock;

use std::collections::VecDeque;

use aulos_core::{Frames, Instant, MediaTime, SampleRate, Span, Timeline};

pub(crate) use air_tap::OnAir;
pub use air_tap::{AirMark, AirTap, AirTapReader, CAPACITY as AIR_TAP_CAPACITY, air_tap};
use plan::{CommandPlan, RecorderMode};
pub use record_tap::{
    DEFAULT_CAPACITY, FrameRun, RecordTap, RecordTapReader, TapPoint, record_tap,
};
use stalls::Stalls;
pub use types::{
    CommandError, CommandTime, DEFAULT_PRE_ROLL, GapReason, MARKER_AHEAD, MARKER_EARLY,
    MAX_PLANNED, MAX_PRE_ROLL, MIN_BYTES, MIN_SEGMENT, PauseMode, RecorderCommand, RecorderConfig,
    RecorderOutput, RecordingState, Rotation, SegmentEnd, SegmentReason, SegmentStart,
};
pub use wall_clock::{
    ClockAlignment, ClockChange, ClockMonitor, ClockZone, MIN_CLOCK_CHANGE, OffsetChange, UnixTime,
    WallClock,
};

/// Decides what is recorded. One mutation, then [`Recorder::poll_output`] until it returns `None`.
///
/// # Examples
/// ```
/// use aulos_core::{Frames, Instant, MediaTime, SampleRate, Span, Timeline};
/// use aulos_engine::recorder::{
///     CommandTime, FrameRun, Recorder, RecorderCommand, RecorderConfig, RecorderOutput, UnixTime,
///     WallClock,
/// };
///
/// let now = Instant::ZERO + Span::from_secs(100);
/// let timeline = Timeline::new(MediaTime::ZERO, now, SampleRate::HZ_48000);
/// let wall = WallClock { local: now, utc: UnixTime::from_nanos(0), ..WallClock::default() };
/// let mut recorder = Recorder::new(RecorderConfig::default());
/// let (pts, frames, stall) = (MediaTime::ZERO, Frames(960), Span::ZERO);
/// let interrupted = Frames::ZERO;
/// recorder.handle_frames(FrameRun { pts, frames, timeline, stall, interrupted }, wall);
/// assert_eq!(recorder.poll_output(), None);
///
/// // Received frames are not lost.
/// let now = now + Span::from_millis(20);
/// let time = CommandTime::Ago(Span::from_millis(10));
/// let first = recorder.handle_command(now, RecorderCommand::Start, time);
/// assert_eq!(first, Ok(Some(MediaTime(480))));
/// let output = recorder.poll_output();
/// assert!(matches!(output, Some(RecorderOutput::Open(it)) if it.at == MediaTime(480)));
/// let frames = Frames(480);
/// let write = RecorderOutput::Write { from: MediaTime(480), frames };
/// assert_eq!(recorder.poll_output(), Some(write));
/// assert_eq!(recorder.poll_output(), None);
/// ```
#[derive(Debug)]
pub struct Recorder {
    config: RecorderConfig,
    /// Mapping of the media time of the last frames to local time; `None` before the first frames.
    timeline: Option<Timeline>,
    clock: WallClock,
    clock_monitor: ClockMonitor,
    /// Frames that were received and may still be written, oldest first, without a gap.
    runs: VecDeque<BufferedRun>,
    /// Stalls before frames that may still be written, oldest first.
    stalls: Stalls,
    /// The frame after the last one received.
    position: MediaTime,
    stage: Stage,
    plan: CommandPlan,
    /// Frames that do not continue the previous ones; pending until those are all output.
    discontinuity: Option<FrameRun>,
    /// The next frames belong to another timeline, whatever their media time.
    timeline_restarted: bool,
    /// The number of the next segment.
    number: u64,
    outputs: VecDeque<RecorderOutput>,
}

#[derive(Clone, Copy, Debug)]
struct BufferedRun {
    to: MediaTime,
    /// Why the frames are missing; `None` if they were received.
    missing: Option<GapReason>,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Idle {
        /// The oldest frame with which a recording can start.
        oldest: MediaTime,
    },
    Recording {
        since: MediaTime,
        segment: Segment,
        /// The next frame to be written.
        next: MediaTime,
    },
    Paused {
        since: MediaTime,
        paused: MediaTime,
        gap: PauseMode,
        segment: Segment,
        /// The next frame to be skipped.
        next: MediaTime,
    },
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    number: u64,
    start: MediaTime,
    frames: Frames,
    bytes: u64,
    /// A moment in the slot of clock-aligned rotation to which it belongs.
    slot_time: UnixTime,
}

impl Recorder {
    /// A recorder without any frames. Values in `config` that are out of range are clamped.
    #[must_use]
    pub fn new(config: RecorderConfig) -> Self {
        let Rotation { duration, bytes, clock } = config.rotation;
        let rotation = Rotation {
            duration: duration.map(|span| span.max(MIN_SEGMENT)),
            bytes: bytes.map(|bytes| bytes.max(MIN_BYTES)),
            clock,
        };
        let pre_roll = config.pre_roll.max(Span::ZERO).min(MAX_PRE_ROLL);
        Self {
            config: RecorderConfig { pre_roll, rotation, ..config },
            timeline: None,
            clock: WallClock::default(),
            clock_monitor: ClockMonitor::default(),
            runs: VecDeque::new(),
            stalls: Stalls::default(),
            position: MediaTime::ZERO,
            stage: Stage::Idle { oldest: MediaTime::ZERO },
            plan: CommandPlan::default(),
            discontinuity: None,
            timeline_restarted: false,
            number: 0,
            outputs: VecDeque::new(),
        }
    }

    /// Adds received frames; `wall` is the current reading of the clocks. Frames missing before
    /// them were lost.
    pub fn handle_frames(&mut self, run: FrameRun, wall: WallClock) {
        debug_assert!(self.discontinuity.is_none(), "poll_output was not drained");
        self.handle_clock(run.pts, wall);
        let renewed = core::mem::take(&mut self.timeline_restarted);
        let goes_on = |line: Timeline| {
            !renewed && line.rate() == run.timeline.rate() && run.pts >= self.position
        };
        match self.timeline.map(goes_on) {
            None => self.begin_timeline(run),
            Some(true) if self.stalls.note(&run) => {
                self.timeline = Some(run.timeline);
                self.append_run(run);
            }
            Some(_) => self.discontinuity = Some(run),
        }
    }

    /// Schedules a command; returns the exact frame at which it applies: the requested one, or the
    /// nearest possible one, because written and discarded frames cannot change. `None` before the
    /// first frames: it is resolved with the first block.
    ///
    /// # Errors
    /// [`CommandError`] says why nothing has changed.
    pub fn handle_command(
        &mut self,
        now: Instant,
        command: RecorderCommand,
        when: CommandTime,
    ) -> Result<Option<MediaTime>, CommandError> {
        let place =
            plan::CommandPosition::resolve(when, now, self.timeline).at_least(self.oldest_needed());
        self.plan.add(self.mode(), command, place)?;
        Ok(place.frame())
    }

    /// The frame of a marker for `when`, and the number of the current segment. The frame may turn
    /// out to be in a later segment, never in an earlier one. A time before the segment by at most
    /// [`MARKER_EARLY`] becomes its first frame.
    ///
    /// # Errors
    /// [`CommandError`] when nothing is recorded at that frame, or it is further away.
    pub fn marker(
        &self,
        now: Instant,
        when: CommandTime,
    ) -> Result<(MediaTime, u64), CommandError> {
        let (segment, paused) = match self.stage {
            Stage::Idle { .. } => return Err(CommandError::Idle),
            Stage::Recording { segment, .. } => (segment, None),
            Stage::Paused { segment, paused, .. } => (segment, Some(paused)),
        };
        let at = plan::CommandPosition::resolve(when, now, self.timeline)
            .frame()
            .ok_or(CommandError::Idle)?;
        if segment.start.since(at) > self.rate().frames(MARKER_EARLY) {
            return Err(CommandError::Skipped);
        }
        if at.since(self.position) > self.rate().frames(MARKER_AHEAD) {
            return Err(CommandError::Ahead);
        }
        if paused.is_some_and(|paused| at >= paused) {
            return Err(CommandError::Paused);
        }
        Ok((at.max(segment.start), segment.number))
    }

    /// Cancels every scheduled command.
    pub fn clear_plan(&mut self) {
        self.plan.clear();
    }

    /// Ends the input: writes all received frames, stops, and cancels scheduled commands.
    pub fn finish(&mut self) {
        self.plan.clear();
        if self.mode() != RecorderMode::Idle {
            // A stop is never refused while a recording runs.
            let _ = self.plan.add(
                self.mode(),
                RecorderCommand::Stop,
                plan::CommandPosition::Frame(self.position),
            );
        }
    }

    /// The station has restarted: the next frames start another segment, whatever their media time.
    pub const fn restart_timeline(&mut self) {
        self.timeline_restarted = true;
    }

    /// Nothing has arrived since `since`. Stops, pauses and resumes for frames that should have
    /// been heard by then apply after the last received frame, because a silent source would delay
    /// them for ever.
    pub fn handle_idle(&mut self, since: Instant) {
        if let Some(line) = self.timeline
            && self.mode() != RecorderMode::Idle
        {
            self.plan.pull_forward(line.media_at(since), self.position);
        }
    }

    /// Sets the number of bytes of the current segment.
    pub const fn set_segment_bytes(&mut self, total: u64) {
        if let Stage::Recording { segment, .. } | Stage::Paused { segment, .. } = &mut self.stage {
            segment.bytes = total;
        }
    }

    /// Sets the rules by which segments end from now on.
    pub fn set_rotation(&mut self, rotation: Rotation) {
        let config = RecorderConfig { rotation, ..self.config };
        self.config = Self::new(config).config;
    }

    /// The next action.
    pub fn poll_output(&mut self) -> Option<RecorderOutput> {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            let stepped = self.apply_due_command()
                || match self.stage {
                    Stage::Idle { .. } => self.prune_pre_roll(),
                    Stage::Recording { segment, next, .. } => self.write(segment, next),
                    Stage::Paused { gap, segment, next, .. } => {
                        self.advance_pause(gap, segment, next)
                    }
                }
                || self.handle_discontinuity();
            if !stepped {
                return None;
            }
        }
    }

    /// The recorder's state.
    #[must_use]
    pub fn state(&self) -> RecordingState {
        match self.stage {
            Stage::Idle { .. } => match self.plan.first() {
                Some((RecorderCommand::Start, place)) => {
                    RecordingState::Waiting { start: place.frame() }
                }
                _ => RecordingState::Idle,
            },
            Stage::Recording { since, .. } => RecordingState::Recording { since },
            Stage::Paused { paused, gap, .. } => {
                RecordingState::Paused { since: paused, mode: gap }
            }
        }
    }

    /// The oldest frame that may still be requested: older ones can be freed.
    #[must_use]
    pub const fn oldest_needed(&self) -> MediaTime {
        match self.stage {
            Stage::Idle { oldest } => oldest,
            Stage::Recording { next, .. } | Stage::Paused { next, .. } => next,
        }
    }

    /// The frame after the last one received.
    #[must_use]
    pub const fn position(&self) -> MediaTime {
        self.position
    }

    /// The current mapping of media time to local time; `None` before the first block.
    #[must_use]
    pub const fn timeline(&self) -> Option<Timeline> {
        self.timeline
    }

    /// The segment that will follow the current one by length or by the clock, if no command comes
    /// before: so that it can be prepared.
    #[must_use]
    pub fn upcoming(&self) -> Option<SegmentStart> {
        let Stage::Recording { segment, next, .. } = self.stage else { return None };
        let (at, cause) = self.timed_cut(&segment, next)?;
        self.plan.first().is_none().then(|| self.opening(segment.number + 1, at.max(next), cause))
    }

    /// Takes a reading of the clocks, and outputs what happened to them before the frame `at`.
    fn handle_clock(&mut self, at: MediaTime, wall: WallClock) {
        self.clock = wall;
        if let Some(change) = self.clock_monitor.observe(wall)
            && self.mode() != RecorderMode::Idle
        {
            self.outputs.push_back(RecorderOutput::ClockChanged { at, change });
        }
    }

    fn begin_timeline(&mut self, run: FrameRun) {
        self.timeline = Some(run.timeline);
        self.runs.clear();
        self.stalls.clear();
        self.position = run.pts;
        if let Stage::Idle { oldest } = &mut self.stage {
            *oldest = run.pts;
        }
        self.plan.resolve(run.timeline, run.pts);
        self.append_run(run);
    }

    fn append_run(&mut self, run: FrameRun) {
        for (to, missing) in [
            (run.pts - run.interrupted, Some(GapReason::Lost)),
            (run.pts, Some(GapReason::Interrupted)),
            (run.end(), None),
        ] {
            if to <= self.position {
                continue;
            }
            match self.runs.back_mut() {
                Some(run) if run.missing == missing => run.to = to,
                _ => self.runs.push_back(BufferedRun { to, missing }),
            }
            self.position = to;
        }
    }

    /// Applies the command that is due at the next frame, if there is one.
    fn apply_due_command(&mut self) -> bool {
        let due = self.reached().and_then(|reached| self.plan.due(reached));
        let Some((command, at)) = due else { return false };
        let at = at.max(self.oldest_needed());
        match (command, self.stage) {
            (RecorderCommand::Start, Stage::Idle { .. }) => self.open(at, at, SegmentReason::Start),
            (RecorderCommand::Stop, Stage::Recording { segment, next, .. })
            | (RecorderCommand::Stop, Stage::Paused { segment, next, .. }) => {
                self.close(segment, next, SegmentReason::Stop);
                self.stage = Stage::Idle { oldest: next };
            }
            (RecorderCommand::Pause(gap), Stage::Recording { since, segment, next }) => {
                self.stage = Stage::Paused { since, paused: next, gap, segment, next };
            }
            (RecorderCommand::Resume, Stage::Paused { since, segment, next, .. }) => {
                self.stage = Stage::Recording { since, segment, next };
            }
            (RecorderCommand::Cut, Stage::Recording { segment, next, .. }) => {
                self.cut(segment, next, SegmentReason::Command);
            }
            // It was refused when it was scheduled.
            _ => {}
        }
        true
    }

    /// The frame whose commands can be applied; `None` as long as no frame is known.
    fn reached(&self) -> Option<MediaTime> {
        self.timeline?;
        Some(match self.stage {
            Stage::Idle { .. } => self.position,
            Stage::Recording { next, .. } | Stage::Paused { next, .. } => next,
        })
    }

    fn prune_pre_roll(&mut self) -> bool {
        let floor = self.position - self.pre_roll();
        if let Stage::Idle { oldest } = &mut self.stage {
            *oldest = floor.max(*oldest);
            let oldest = *oldest;
            self.drop_runs(oldest);
        }
        false
    }

    fn write(&mut self, mut segment: Segment, next: MediaTime) -> bool {
        self.drop_runs(next);
        if self.fill_stall(segment, next) {
            return true;
        }
        let Some(&run) = self.runs.front() else { return false };
        let due = self.due(&segment, next);
        if let Some((_, cause)) = due.filter(|(at, _)| *at <= next) {
            self.cut(segment, next, cause);
            return true;
        }
        let ends = [self.plan.next_frame(), due.map(|(at, _)| at), self.stalls.next_after(next)];
        let end = ends.into_iter().flatten().fold(run.to, Ord::min);
        let (from, frames) = (next, end.since(next));
        let output = match run.missing {
            None => RecorderOutput::Write { from, frames },
            Some(cause @ GapReason::Interrupted)
                if self.config.interruptions == PauseMode::Closed =>
            {
                RecorderOutput::Skip { from, frames, cause }
            }
            Some(cause) => RecorderOutput::Silence { from, frames, cause },
        };
        if !matches!(output, RecorderOutput::Skip { .. }) {
            segment.frames += frames;
        }
        self.advance_segment(segment, end);
        self.outputs.push_back(output);
        true
    }

    /// Skips paused frames that are older than the pre-roll.
    fn advance_pause(&mut self, gap: PauseMode, mut segment: Segment, next: MediaTime) -> bool {
        let limit = match (self.plan.next_frame(), self.discontinuity) {
            (Some(frame), _) if frame <= self.position => frame,
            (_, Some(_)) => self.position,
            _ => self.position - self.pre_roll(),
        };
        if limit <= next {
            return false;
        }
        let (from, frames, end) = match gap {
            PauseMode::Closed => (next, limit.since(next), limit),
            PauseMode::Silence if self.fill_stall(segment, next) => return true,
            PauseMode::Silence => {
                let due = self.due(&segment, next);
                if let Some((_, cause)) = due.filter(|(at, _)| *at <= next) {
                    self.cut(segment, next, cause);
                    return true;
                }
                let ends = [due.map(|(at, _)| at), self.stalls.next_after(next)];
                let end = ends.into_iter().flatten().fold(limit, Ord::min);
                segment.frames += end.since(next);
                (next, end.since(next), end)
            }
        };
        self.advance_segment(segment, end);
        self.drop_runs(end);
        let cause = GapReason::Paused;
        self.outputs.push_back(match gap {
            PauseMode::Closed => RecorderOutput::Skip { from, frames, cause },
            PauseMode::Silence => RecorderOutput::Silence { from, frames, cause },
        });
        true
    }

    /// Continues after a discontinuity, once the frames before it are all output.
    fn handle_discontinuity(&mut self) -> bool {
        let Some(run) = self.discontinuity.take() else { return false };
        if let Some(old) = self.timeline {
            self.plan.rebase(old, run.timeline);
        }
        if run.stall > Span::ZERO && self.mode() != RecorderMode::Idle {
            let frames = run.timeline.rate().frames(run.stall);
            self.outputs.push_back(RecorderOutput::Stalled { at: run.pts, frames });
        }
        match self.stage {
            Stage::Idle { .. } => {
                self.stage = Stage::Idle { oldest: run.pts };
                self.begin_timeline(run);
            }
            Stage::Recording { segment, next, .. } => {
                self.close(segment, next, SegmentReason::Break);
                self.begin_timeline(run);
                self.open(run.pts, run.pts, SegmentReason::Break);
            }
            Stage::Paused { gap, segment, next, .. } => {
                self.close(segment, next, SegmentReason::Break);
                self.begin_timeline(run);
                self.open(run.pts, run.pts, SegmentReason::Break);
                if let Stage::Recording { since, segment, next } = self.stage {
                    self.stage = Stage::Paused { since, paused: next, gap, segment, next };
                }
            }
        }
        true
    }

    fn cut(&mut self, segment: Segment, at: MediaTime, cause: SegmentReason) {
        let (since, pause) = match self.stage {
            Stage::Idle { .. } => return,
            Stage::Recording { since, .. } => (since, None),
            Stage::Paused { since, paused, gap, .. } => (since, Some((paused, gap))),
        };
        if segment.frames == Frames::ZERO {
            // The segment is empty: nothing to cut. Limits count from here.
            let slot_time = self.slot_time(at);
            let segment = Segment { start: at, slot_time, bytes: 0, ..segment };
            return self.advance_segment(segment, at);
        }
        self.close(segment, at, cause);
        self.open(since, at, cause);
        if let (Some((paused, gap)), Stage::Recording { segment, next, .. }) = (pause, self.stage) {
            self.stage = Stage::Paused { since, paused, gap, segment, next };
        }
    }

    fn open(&mut self, since: MediaTime, at: MediaTime, cause: SegmentReason) {
        let number = self.number;
        self.number += 1;
        self.outputs.push_back(RecorderOutput::Open(self.opening(number, at, cause)));
        let slot_time = self.slot_time(at);
        let segment = Segment { number, start: at, frames: Frames::ZERO, bytes: 0, slot_time };
        self.stage = Stage::Recording { since, segment, next: at };
    }

    fn close(&mut self, segment: Segment, end: MediaTime, cause: SegmentReason) {
        let Segment { number, frames, .. } = segment;
        self.outputs.push_back(RecorderOutput::Close(SegmentEnd { number, end, frames, cause }));
    }

    fn advance_segment(&mut self, now: Segment, to: MediaTime) {
        if let Stage::Recording { segment, next, .. } | Stage::Paused { segment, next, .. } =
            &mut self.stage
        {
            (*segment, *next) = (now, to);
        }
    }

    fn drop_runs(&mut self, below: MediaTime) {
        while self.runs.front().is_some_and(|run| run.to <= below) {
            self.runs.pop_front();
        }
        self.stalls.drop_before(below);
    }

    fn opening(&self, number: u64, at: MediaTime, cause: SegmentReason) -> SegmentStart {
        let stalled = self.rate().span(self.stalls.frames_since(at));
        let utc = self.utc(at).as_nanos().saturating_sub(stalled.as_nanos());
        let utc = UnixTime::from_nanos(utc);
        SegmentStart { number, at, utc, rate: self.rate(), cause }
    }

    fn utc(&self, at: MediaTime) -> UnixTime {
        self.timeline.map_or(self.clock.utc, |line| self.clock.utc_at(line.local_at(at)))
    }

    fn rate(&self) -> SampleRate {
        self.timeline.map_or(SampleRate::HZ_48000, Timeline::rate)
    }

    fn pre_roll(&self) -> Frames {
        self.rate().frames(self.config.pre_roll)
    }

    const fn mode(&self) -> RecorderMode {
        match self.stage {
            Stage::Idle { .. } => RecorderMode::Idle,
            Stage::Recording { .. } => RecorderMode::Recording,
            Stage::Paused { .. } => RecorderMode::Paused,
        }
    }
}

#[cfg(test)]
mod tests;
