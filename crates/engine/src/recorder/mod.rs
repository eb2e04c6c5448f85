//! When a station is recorded, from which frame to which, and into how many segments.
//!
//! The recorder counts frames and touches none: it hears that there are some, and says which go
//! where. Whoever drives it keeps the samples, makes bytes of them and puts these into files. So
//! the joints between two segments are integers, and a test of a thousand of them takes no disk.
//!
//! ```text
//!  station -> Pickup =ring=> Spool -> marks -> Recorder -> Open, Write, Silence, Skip, Close
//!  (real time)                  `---> samples, kept from `Recorder::keep` on ----^
//! ```
//!
//! A command is for an exact frame: one that has gone by, as far back as the pre-roll reaches, one
//! that sounds now, or one to come. A recorder that pauses or rests waits with the silence, or with
//! forgetting, for as long as its pre-roll is, so that it can go on in the past as well.

mod pickup;
mod plan;
mod wall;
mod wish;

use std::collections::VecDeque;

use aulos_core::{Frames, Instant, MediaTime, SampleRate, Span, Timeline};

pub use pickup::{DEFAULT_ROOM, Mark, Pickup, Side, Spool, pickup};
use plan::{Mode, Plan};
pub use wall::{Align, UnixTime, Wall, Zone};
pub use wish::{
    Cause, Closing, Command, Config, DEFAULT_PRE_ROLL, Gap, MAX_PLANNED, MAX_PRE_ROLL, MIN_BYTES,
    MIN_SEGMENT, Missing, Opening, Output, Refused, Rotation, State, When,
};

/// Decides what is recorded. One mutation, then [`Recorder::poll_output`] until it gives nothing.
///
/// # Examples
/// ```
/// use aulos_core::{Frames, Instant, MediaTime, SampleRate, Span, Timeline};
/// use aulos_engine::recorder::{Command, Config, Mark, Output, Recorder, UnixTime, Wall, When};
///
/// let now = Instant::ZERO + Span::from_secs(100);
/// let line = Timeline::new(MediaTime::ZERO, now, SampleRate::STUDIO);
/// let wall = Wall { local: now, utc: UnixTime::from_nanos(0), offset: Span::ZERO };
/// let mut recorder = Recorder::new(Config::default());
/// recorder.heard(Mark { pts: MediaTime::ZERO, frames: Frames(960), line }, wall);
/// assert_eq!(recorder.poll_output(), None);
///
/// // What has been heard is not lost.
/// let now = now + Span::from_millis(20);
/// let first = recorder.tell(now, Command::Start, When::Ago(Span::from_millis(10)));
/// assert_eq!(first, Ok(Some(MediaTime(480))));
/// assert!(matches!(recorder.poll_output(), Some(Output::Open(it)) if it.at == MediaTime(480)));
/// let frames = Frames(480);
/// assert_eq!(recorder.poll_output(), Some(Output::Write { from: MediaTime(480), frames }));
/// assert_eq!(recorder.poll_output(), None);
/// ```
#[derive(Debug)]
pub struct Recorder {
    config: Config,
    /// How the media time of what was heard last becomes local time; none is nothing yet.
    line: Option<Timeline>,
    wall: Wall,
    /// What has been heard and may still be written, oldest first, without a hole.
    runs: VecDeque<Run>,
    /// The frame behind the last one heard.
    position: MediaTime,
    stage: Stage,
    plan: Plan,
    /// What was heard and does not go on where the last ended; waits until that is all out.
    broken: Option<Mark>,
    /// What is heard next is of another line, whatever its time.
    renewed: bool,
    /// The number of the next segment.
    number: u64,
    ready: VecDeque<Output>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    to: MediaTime,
    /// It was heard, and not lost.
    sound: bool,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Idle {
        /// The oldest frame with which a recording could begin.
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
        gap: Gap,
        segment: Segment,
        /// The next frame to be passed over.
        next: MediaTime,
    },
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    number: u64,
    start: MediaTime,
    frames: Frames,
    bytes: u64,
    /// Which piece of the clock's it is.
    piece: i64,
}

impl Recorder {
    /// A recorder that has heard nothing. What is out of bounds in `config` is brought into them.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let Rotation { duration, bytes, clock } = config.rotation;
        let rotation = Rotation {
            duration: duration.map(|span| span.max(MIN_SEGMENT)),
            bytes: bytes.map(|bytes| bytes.max(MIN_BYTES)),
            clock,
        };
        let pre_roll = config.pre_roll.max(Span::ZERO).min(MAX_PRE_ROLL);
        Self {
            config: Config { pre_roll, rotation },
            line: None,
            wall: Wall { local: Instant::ZERO, utc: UnixTime::default(), offset: Span::ZERO },
            runs: VecDeque::new(),
            position: MediaTime::ZERO,
            stage: Stage::Idle { oldest: MediaTime::ZERO },
            plan: Plan::default(),
            broken: None,
            renewed: false,
            number: 0,
            ready: VecDeque::new(),
        }
    }

    /// Frames have been heard, and `wall` is what the clocks show. What is missing before them was
    /// lost.
    pub fn heard(&mut self, mark: Mark, wall: Wall) {
        debug_assert!(self.broken.is_none(), "poll_output was not drained");
        self.wall = wall;
        let renewed = core::mem::take(&mut self.renewed);
        let goes_on = |line: Timeline| {
            !renewed && line.rate() == mark.line.rate() && mark.pts >= self.position
        };
        match self.line {
            None => self.begin(mark),
            Some(line) if goes_on(line) => {
                self.line = Some(mark.line);
                self.hear(mark);
            }
            Some(_) => self.broken = Some(mark),
        }
    }

    /// Tells it to do something, and gives the exact frame at which that happens: the one that was
    /// meant, or the nearest that is possible, since what is written or forgotten is so. None: it
    /// has heard nothing yet, and will know with the first block.
    ///
    /// # Errors
    /// [`Refused`] says why nothing has changed.
    pub fn tell(
        &mut self,
        now: Instant,
        command: Command,
        when: When,
    ) -> Result<Option<MediaTime>, Refused> {
        let place = plan::Place::of(when, now, self.line).at_least(self.keep());
        self.plan.add(self.mode(), command, place)?;
        Ok(place.frame())
    }

    /// Forgets every command that waits for its time.
    pub fn forget_plans(&mut self) {
        self.plan.clear();
    }

    /// Nothing more comes, or nothing more is wanted: writes all that was heard, and stops. What was
    /// planned is forgotten.
    pub fn end(&mut self) {
        self.plan.clear();
        if self.mode() != Mode::Idle {
            // A stop is never refused while something is recorded.
            let _ = self.plan.add(self.mode(), Command::Stop, plan::Place::Frame(self.position));
        }
    }

    /// What is heard next comes from a station that has begun anew: it is the beginning of another
    /// segment, whatever its time is.
    pub const fn renew(&mut self) {
        self.renewed = true;
    }

    /// Nothing has come since `since`, and perhaps nothing will: what was to end, pause or go on at
    /// a frame that should have sounded by then does so behind the last one heard. A source that
    /// has fallen silent would hold it up for ever.
    pub fn rest(&mut self, since: Instant) {
        if let Some(line) = self.line
            && self.mode() != Mode::Idle
        {
            self.plan.hasten(line.media_at(since), self.position);
        }
    }

    /// The segment has so many bytes now.
    pub const fn wrote(&mut self, total: u64) {
        if let Stage::Recording { segment, .. } | Stage::Paused { segment, .. } = &mut self.stage {
            segment.bytes = total;
        }
    }

    /// The rules by which segments end from now on.
    pub fn set_rotation(&mut self, rotation: Rotation) {
        let config = Config { rotation, ..self.config };
        self.config = Self::new(config).config;
    }

    /// What is to be done next.
    pub fn poll_output(&mut self) -> Option<Output> {
        loop {
            if let Some(output) = self.ready.pop_front() {
                return Some(output);
            }
            let stepped = self.obey()
                || match self.stage {
                    Stage::Idle { .. } => self.forget(),
                    Stage::Recording { segment, next, .. } => self.write(segment, next),
                    Stage::Paused { gap, segment, next, .. } => self.pass(gap, segment, next),
                }
                || self.mend();
            if !stepped {
                return None;
            }
        }
    }

    /// What it does.
    #[must_use]
    pub fn state(&self) -> State {
        match self.stage {
            Stage::Idle { .. } => match self.plan.first() {
                Some((Command::Start, place)) => State::Waiting { start: place.frame() },
                _ => State::Idle,
            },
            Stage::Recording { since, .. } => State::Recording { since },
            Stage::Paused { paused, gap, .. } => State::Paused { since: paused, gap },
        }
    }

    /// The oldest frame that may still be asked for: older ones can go.
    #[must_use]
    pub const fn keep(&self) -> MediaTime {
        match self.stage {
            Stage::Idle { oldest } => oldest,
            Stage::Recording { next, .. } | Stage::Paused { next, .. } => next,
        }
    }

    /// The frame behind the last one heard.
    #[must_use]
    pub const fn position(&self) -> MediaTime {
        self.position
    }

    /// How media time becomes local time at present; none before the first block.
    #[must_use]
    pub const fn line(&self) -> Option<Timeline> {
        self.line
    }

    /// The segment that follows the present one by length or by the clock, if nothing else comes
    /// before: so that there is time to prepare it.
    #[must_use]
    pub fn upcoming(&self) -> Option<Opening> {
        let Stage::Recording { segment, next, .. } = self.stage else { return None };
        let (at, cause) = self.timed_cut(&segment, next)?;
        self.plan.first().is_none().then(|| self.opening(segment.number + 1, at.max(next), cause))
    }

    fn begin(&mut self, mark: Mark) {
        self.line = Some(mark.line);
        self.runs.clear();
        self.position = mark.pts;
        if let Stage::Idle { oldest } = &mut self.stage {
            *oldest = mark.pts;
        }
        self.plan.resolve(mark.line, mark.pts);
        self.hear(mark);
    }

    fn hear(&mut self, mark: Mark) {
        for (to, sound) in [(mark.pts, false), (mark.end(), true)] {
            if to <= self.position {
                continue;
            }
            match self.runs.back_mut() {
                Some(run) if run.sound == sound => run.to = to,
                _ => self.runs.push_back(Run { to, sound }),
            }
            self.position = to;
        }
    }

    /// Does what is to be done at the next frame, if something is.
    fn obey(&mut self) -> bool {
        let due = self.reached().and_then(|reached| self.plan.due(reached));
        let Some((command, at)) = due else { return false };
        let at = at.max(self.keep());
        match (command, self.stage) {
            (Command::Start, Stage::Idle { .. }) => self.open(at, at, Cause::Start),
            (Command::Stop, Stage::Recording { segment, next, .. })
            | (Command::Stop, Stage::Paused { segment, next, .. }) => {
                self.close(segment, next, Cause::Stop);
                self.stage = Stage::Idle { oldest: next };
            }
            (Command::Pause(gap), Stage::Recording { since, segment, next }) => {
                self.stage = Stage::Paused { since, paused: next, gap, segment, next };
            }
            (Command::Resume, Stage::Paused { since, segment, next, .. }) => {
                self.stage = Stage::Recording { since, segment, next };
            }
            (Command::Cut, Stage::Recording { segment, next, .. }) => {
                self.cut(segment, next, Cause::Command);
            }
            // It was refused when it was told.
            _ => {}
        }
        true
    }

    /// The frame whose commands can be obeyed; none as long as no frame is known.
    fn reached(&self) -> Option<MediaTime> {
        self.line?;
        Some(match self.stage {
            Stage::Idle { .. } => self.position,
            Stage::Recording { next, .. } | Stage::Paused { next, .. } => next,
        })
    }

    fn forget(&mut self) -> bool {
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
        let Some(&run) = self.runs.front() else { return false };
        let due = self.due(&segment, next);
        if let Some((_, cause)) = due.filter(|(at, _)| *at <= next) {
            self.cut(segment, next, cause);
            return true;
        }
        let ends = [self.plan.next_frame(), due.map(|(at, _)| at)];
        let end = ends.into_iter().flatten().fold(run.to, Ord::min);
        let (from, frames) = (next, end.since(next));
        segment.frames += frames;
        self.moved_on(segment, end);
        self.ready.push_back(match run.sound {
            true => Output::Write { from, frames },
            false => Output::Silence { from, frames, cause: Missing::Lost },
        });
        true
    }

    /// Passes over what is paused, as far as nobody can go back any more.
    fn pass(&mut self, gap: Gap, mut segment: Segment, next: MediaTime) -> bool {
        let limit = match (self.plan.next_frame(), self.broken) {
            (Some(frame), _) if frame <= self.position => frame,
            (_, Some(_)) => self.position,
            _ => self.position - self.pre_roll(),
        };
        if limit <= next {
            return false;
        }
        let (from, frames, end) = match gap {
            Gap::Closed => (next, limit.since(next), limit),
            Gap::Silence => {
                let due = self.due(&segment, next);
                if let Some((_, cause)) = due.filter(|(at, _)| *at <= next) {
                    self.cut(segment, next, cause);
                    return true;
                }
                let end = due.map_or(limit, |(at, _)| at.min(limit));
                segment.frames += end.since(next);
                (next, end.since(next), end)
            }
        };
        self.moved_on(segment, end);
        self.drop_runs(end);
        self.ready.push_back(match gap {
            Gap::Closed => Output::Skip { from, frames },
            Gap::Silence => Output::Silence { from, frames, cause: Missing::Paused },
        });
        true
    }

    /// Goes on with what does not belong to what came before, once that is all out.
    fn mend(&mut self) -> bool {
        let Some(mark) = self.broken.take() else { return false };
        if let Some(old) = self.line {
            self.plan.move_to(old, mark.line);
        }
        match self.stage {
            Stage::Idle { .. } => {
                self.stage = Stage::Idle { oldest: mark.pts };
                self.begin(mark);
            }
            Stage::Recording { segment, next, .. } => {
                self.close(segment, next, Cause::Break);
                self.begin(mark);
                self.open(mark.pts, mark.pts, Cause::Break);
            }
            Stage::Paused { gap, segment, next, .. } => {
                self.close(segment, next, Cause::Break);
                self.begin(mark);
                self.open(mark.pts, mark.pts, Cause::Break);
                if let Stage::Recording { since, segment, next } = self.stage {
                    self.stage = Stage::Paused { since, paused: next, gap, segment, next };
                }
            }
        }
        true
    }

    fn cut(&mut self, segment: Segment, at: MediaTime, cause: Cause) {
        let (since, pause) = match self.stage {
            Stage::Idle { .. } => return,
            Stage::Recording { since, .. } => (since, None),
            Stage::Paused { since, paused, gap, .. } => (since, Some((paused, gap))),
        };
        if segment.frames == Frames::ZERO {
            // There is nothing to cut off.
            let segment = Segment { piece: self.piece(at), bytes: 0, ..segment };
            return self.moved_on(segment, at);
        }
        self.close(segment, at, cause);
        self.open(since, at, cause);
        if let (Some((paused, gap)), Stage::Recording { segment, next, .. }) = (pause, self.stage) {
            self.stage = Stage::Paused { since, paused, gap, segment, next };
        }
    }

    fn open(&mut self, since: MediaTime, at: MediaTime, cause: Cause) {
        let number = self.number;
        self.number += 1;
        self.ready.push_back(Output::Open(self.opening(number, at, cause)));
        let piece = self.piece(at);
        let segment = Segment { number, start: at, frames: Frames::ZERO, bytes: 0, piece };
        self.stage = Stage::Recording { since, segment, next: at };
    }

    fn close(&mut self, segment: Segment, end: MediaTime, cause: Cause) {
        let Segment { number, frames, .. } = segment;
        self.ready.push_back(Output::Close(Closing { number, end, frames, cause }));
    }

    fn moved_on(&mut self, now: Segment, to: MediaTime) {
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
    }

    /// When the segment ends, and why; what has gone by is now.
    fn due(&self, segment: &Segment, next: MediaTime) -> Option<(MediaTime, Cause)> {
        if self.config.rotation.bytes.is_some_and(|limit| segment.bytes >= limit) {
            return Some((next, Cause::Size));
        }
        self.timed_cut(segment, next)
    }

    fn timed_cut(&self, segment: &Segment, next: MediaTime) -> Option<(MediaTime, Cause)> {
        let rotation = &self.config.rotation;
        let duration = rotation.duration.map(|span| {
            let left = self.rate().frames(span) - segment.frames;
            (next + left, Cause::Duration)
        });
        let clock = rotation.clock.map(|align| (self.next_piece(align, segment), Cause::Clock));
        duration.into_iter().chain(clock).min_by_key(|(at, _)| *at)
    }

    /// The first frame of the clock's next piece. When somebody has put the clock back, a segment is
    /// no longer than a piece for that.
    fn next_piece(&self, align: Align, segment: &Segment) -> MediaTime {
        let Some(line) = self.line else { return segment.start };
        let local = self.wall.local_at(align.beginning(&self.wall, segment.piece + 1));
        let frame = line.media_at(local);
        let early = if line.local_at(frame) < local { Frames(1) } else { Frames::ZERO };
        let longest = line.rate().frames(align.every() + SHORT_PIECE);
        (frame + early).min(segment.start + longest)
    }

    /// The clock's piece to which a segment belongs that begins with this frame: just before the
    /// next one it is that.
    fn piece(&self, at: MediaTime) -> i64 {
        let Some(align) = self.config.rotation.clock else { return 0 };
        let utc = self.utc(at).as_nanos().saturating_add(SHORT_PIECE.as_nanos());
        align.piece(&self.wall, UnixTime::from_nanos(utc))
    }

    fn opening(&self, number: u64, at: MediaTime, cause: Cause) -> Opening {
        Opening { number, at, utc: self.utc(at), rate: self.rate(), cause }
    }

    fn utc(&self, at: MediaTime) -> UnixTime {
        self.line.map_or(self.wall.utc, |line| self.wall.utc_at(line.local_at(at)))
    }

    fn rate(&self) -> SampleRate {
        self.line.map_or(SampleRate::STUDIO, Timeline::rate)
    }

    fn pre_roll(&self) -> Frames {
        self.rate().frames(self.config.pre_roll)
    }

    const fn mode(&self) -> Mode {
        match self.stage {
            Stage::Idle { .. } => Mode::Idle,
            Stage::Recording { .. } => Mode::Recording,
            Stage::Paused { .. } => Mode::Paused,
        }
    }
}

/// What begins less than this before a full hour is a part of that: clocks are set by fractions of
/// a second, and nobody wants a file of one.
const SHORT_PIECE: Span = Span::from_secs(2);

#[cfg(test)]
mod tests;
