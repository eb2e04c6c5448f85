//! Tests in which the frames are their own numbers, so that each one can be checked.

#![allow(clippy::cast_possible_truncation, reason = "a few thousand frames")]

use proptest::prelude::*;

use super::*;

/// A station of 1,000 Hz whose frame 0 is at second 10, and a driver that checks every output.
struct World {
    recorder: Recorder,
    line: Timeline,
    wall: WallClock,
    /// For each frame, whether it was received.
    heard: Vec<bool>,
    segments: Vec<FinishedSegment>,
    open: Option<FinishedSegment>,
    changes: Vec<(MediaTime, ClockChange)>,
    /// Before the next frames.
    stall: Span,
    stalled: Vec<(MediaTime, Frames)>,
    /// Frames before the next ones that the source does not send.
    interrupted: u64,
    /// Silence that was not sent, and frames that were left out.
    gaps: Vec<(MediaTime, Frames, GapReason)>,
}

#[derive(Clone, Debug)]
struct FinishedSegment {
    opening: SegmentStart,
    /// The frame at each position; `None` is silence.
    frames: Vec<Option<u64>>,
    skipped: u64,
    /// Silence that takes no media time.
    stalled: u64,
    closing: Option<SegmentEnd>,
}

fn rate() -> SampleRate {
    SampleRate::new(1_000).unwrap()
}

fn start_of_line() -> Instant {
    Instant::ZERO + Span::from_secs(10)
}

impl World {
    fn new(config: RecorderConfig) -> Self {
        let local = start_of_line();
        Self {
            recorder: Recorder::new(config),
            line: Timeline::new(MediaTime::ZERO, local, rate()),
            wall: WallClock {
                local,
                utc: UnixTime::from_nanos(0),
                offset: Span::ZERO,
                ..WallClock::default()
            },
            heard: Vec::new(),
            segments: Vec::new(),
            open: None,
            changes: Vec::new(),
            stall: Span::ZERO,
            stalled: Vec::new(),
            interrupted: 0,
            gaps: Vec::new(),
        }
    }

    fn receive(&mut self, frames: u64) {
        let pts = MediaTime(self.heard.len() as u64);
        self.heard.resize(self.heard.len() + frames as usize, true);
        self.recorder.handle_frames(
            FrameRun {
                pts,
                frames: Frames(frames),
                timeline: self.line,
                stall: core::mem::take(&mut self.stall),
                interrupted: Frames(core::mem::take(&mut self.interrupted)),
            },
            self.wall,
        );
        self.drain();
    }

    fn lose(&mut self, frames: u64) {
        self.heard.resize(self.heard.len() + frames as usize, false);
        self.interrupted = 0;
    }

    fn interrupt(&mut self, frames: u64) {
        self.heard.resize(self.heard.len() + frames as usize, false);
        self.interrupted += frames;
    }

    fn now(&self) -> Instant {
        self.line.local_at(MediaTime(self.heard.len() as u64))
    }

    fn command(
        &mut self,
        command: RecorderCommand,
        when: CommandTime,
    ) -> Result<Option<MediaTime>, CommandError> {
        let told = self.recorder.handle_command(self.now(), command, when);
        self.drain();
        told
    }

    fn drain(&mut self) {
        while let Some(output) = self.recorder.poll_output() {
            match output {
                RecorderOutput::Open(opening) => {
                    assert!(self.open.is_none());
                    let (frames, closing) = (Vec::new(), None);
                    self.open =
                        Some(FinishedSegment { opening, frames, skipped: 0, stalled: 0, closing });
                }
                RecorderOutput::Write { from, frames } => {
                    for frame in from.0..from.0 + frames.0 {
                        assert!(self.heard[frame as usize], "frame {frame} is not there");
                        self.put(frame, Some(frame));
                    }
                }
                RecorderOutput::Silence { from, frames, cause: GapReason::Stalled } => {
                    assert_eq!(from.0, self.next());
                    let open = self.open.as_mut().unwrap();
                    open.frames.extend((0..frames.0).map(|_| None));
                    open.stalled += frames.0;
                }
                RecorderOutput::Silence { from, frames, cause } => {
                    self.gaps.push((from, frames, cause));
                    for frame in from.0..from.0 + frames.0 {
                        let lost = !self.heard[frame as usize];
                        assert!(lost || cause == GapReason::Paused, "frame {frame} is there");
                        self.put(frame, None);
                    }
                }
                RecorderOutput::Skip { from, frames, cause } => {
                    assert_eq!(from.0, self.next());
                    self.gaps.push((from, frames, cause));
                    self.open.as_mut().unwrap().skipped += frames.0;
                }
                RecorderOutput::Stalled { at, frames } => self.stalled.push((at, frames)),
                RecorderOutput::ClockChanged { at, change } => self.changes.push((at, change)),
                RecorderOutput::Close(closing) => {
                    assert_eq!(closing.end.0, self.next());
                    let mut done = self.open.take().unwrap();
                    assert_eq!(closing.number, done.opening.number);
                    assert_eq!(closing.frames.0, done.frames.len() as u64);
                    done.closing = Some(closing);
                    self.segments.push(done);
                }
            }
        }
        assert!(self.recorder.oldest_needed() <= self.recorder.position());
    }

    fn next(&self) -> u64 {
        let open = self.open.as_ref().unwrap();
        open.opening.at.0 + open.frames.len() as u64 + open.skipped - open.stalled
    }

    fn put(&mut self, frame: u64, what: Option<u64>) {
        assert_eq!(frame, self.next());
        self.open.as_mut().unwrap().frames.push(what);
    }

    /// The segments of the last recording, one after the other.
    fn joined(&self) -> Vec<Option<u64>> {
        self.segments.iter().flat_map(|segment| segment.frames.iter().copied()).collect()
    }

    fn bounds(&self) -> Vec<(u64, u64)> {
        let end = |done: &FinishedSegment| done.closing.unwrap().end.0;
        self.segments.iter().map(|done| (done.opening.at.0, end(done))).collect()
    }
}

fn seconds(seconds: i64) -> RecorderConfig {
    let rotation = Rotation { duration: Some(Span::from_secs(seconds)), ..Rotation::default() };
    RecorderConfig { rotation, ..RecorderConfig::default() }
}

#[test]
fn a_recording_begins_in_the_past_as_far_back_as_the_pre_roll_reaches() {
    let mut world = World::new(RecorderConfig::default());
    (0..200).for_each(|_| world.receive(100));
    assert_eq!(world.recorder.oldest_needed(), MediaTime(10_000));
    let ago = CommandTime::Ago(Span::from_secs(4));
    assert_eq!(world.command(RecorderCommand::Start, ago), Ok(Some(MediaTime(16_000))));
    assert_eq!(world.command(RecorderCommand::Stop, CommandTime::Now), Ok(Some(MediaTime(20_000))));
    assert_eq!(world.bounds(), [(16_000, 20_000)]);
    // Written frames are not written again, and frames older than the pre-roll cannot be had.
    assert_eq!(world.command(RecorderCommand::Start, ago), Ok(Some(MediaTime(20_000))));
    assert_eq!(world.command(RecorderCommand::Stop, CommandTime::Now), Ok(Some(MediaTime(20_000))));
    (0..200).for_each(|_| world.receive(100));
    let ago = CommandTime::Ago(Span::from_secs(60));
    assert_eq!(world.command(RecorderCommand::Start, ago), Ok(Some(MediaTime(30_000))));
}

#[test]
fn scheduled_commands_take_effect_on_their_exact_frame() {
    let mut world = World::new(RecorderConfig::default());
    world.receive(70);
    let start = CommandTime::Local(start_of_line() + Span::from_millis(255));
    assert_eq!(world.command(RecorderCommand::Start, start), Ok(Some(MediaTime(255))));
    assert_eq!(
        world.command(RecorderCommand::Stop, CommandTime::Frame(MediaTime(333))),
        Ok(Some(MediaTime(333)))
    );
    assert_eq!(world.recorder.state(), RecordingState::Waiting { start: Some(MediaTime(255)) });
    (0..10).for_each(|_| world.receive(70));
    assert_eq!(world.bounds(), [(255, 333)]);
    assert_eq!(world.recorder.state(), RecordingState::Idle);
    // A stop cancels what was scheduled for later, once.
    let later = CommandTime::Frame(MediaTime(5_000));
    assert_eq!(world.command(RecorderCommand::Start, later), Ok(Some(MediaTime(5_000))));
    assert_eq!(world.command(RecorderCommand::Stop, CommandTime::Now), Ok(Some(MediaTime(770))));
    assert_eq!(world.command(RecorderCommand::Stop, CommandTime::Now), Err(CommandError::Idle));
    assert_eq!(world.recorder.state(), RecordingState::Idle);
}

#[test]
fn before_the_first_block_a_command_waits_for_it() {
    let mut world = World::new(RecorderConfig::default());
    let at = |millis| CommandTime::Local(start_of_line() + Span::from_millis(millis));
    assert_eq!(world.command(RecorderCommand::Start, at(30)), Ok(None));
    assert_eq!(world.command(RecorderCommand::Stop, at(130)), Ok(None));
    assert_eq!(world.recorder.state(), RecordingState::Waiting { start: None });
    assert_eq!(world.command(RecorderCommand::Start, at(60)), Err(CommandError::Recording));
    world.receive(200);
    assert_eq!(world.bounds(), [(30, 130)]);
}

#[test]
fn invalid_commands_are_rejected_and_change_nothing() {
    let mut world = World::new(RecorderConfig::default());
    world.receive(100);
    for command in [
        RecorderCommand::Stop,
        RecorderCommand::Pause(PauseMode::Closed),
        RecorderCommand::Resume,
        RecorderCommand::Cut,
    ] {
        assert_eq!(world.command(command, CommandTime::Now), Err(CommandError::Idle));
    }
    world.command(RecorderCommand::Start, CommandTime::Now).unwrap();
    assert_eq!(
        world.command(RecorderCommand::Start, CommandTime::Now),
        Err(CommandError::Recording)
    );
    assert_eq!(
        world.command(RecorderCommand::Resume, CommandTime::Now),
        Err(CommandError::NotPaused)
    );
    world.command(RecorderCommand::Pause(PauseMode::Silence), CommandTime::Now).unwrap();
    assert_eq!(
        world.command(RecorderCommand::Pause(PauseMode::Silence), CommandTime::Now),
        Err(CommandError::Paused)
    );
    assert_eq!(world.command(RecorderCommand::Cut, CommandTime::Now), Err(CommandError::Paused));
    world.command(RecorderCommand::Resume, CommandTime::Now).unwrap();
    let mut told = Ok(None);
    for later in 0..=MAX_PLANNED as u64 {
        told = world.command(RecorderCommand::Cut, CommandTime::Frame(MediaTime(1_000 + later)));
    }
    assert_eq!(told, Err(CommandError::Busy));
    world.recorder.clear_plan();
    assert!(world.command(RecorderCommand::Cut, CommandTime::Frame(MediaTime(1_000))).is_ok());
}

#[test]
fn stations_of_any_rate_begin_at_the_same_instant() {
    let instant = Instant::from_nanos(77_123_456_789);
    for hz in [8_000, 44_100, 48_000, 96_000] {
        let rate = SampleRate::new(hz).unwrap();
        // The recorder is a day old, and received its last block at an odd time.
        let line = Timeline::new(MediaTime::ZERO, Instant::from_nanos(12_345_678_901), rate);
        let mut recorder = Recorder::new(RecorderConfig::default());
        let pts = line.media_at(instant) - Frames(977);
        let wall = WallClock {
            local: instant,
            utc: UnixTime::from_nanos(0),
            offset: Span::ZERO,
            ..WallClock::default()
        };
        recorder.handle_frames(
            FrameRun {
                pts,
                frames: Frames(480),
                timeline: line,
                stall: Span::ZERO,
                interrupted: Frames::ZERO,
            },
            wall,
        );
        let told = recorder
            .handle_command(instant, RecorderCommand::Start, CommandTime::Local(instant))
            .unwrap()
            .unwrap();
        assert!(line.local_at(told) <= instant && line.local_at(told + Frames(1)) > instant);
        recorder.handle_frames(
            FrameRun {
                pts: pts + Frames(480),
                frames: Frames(960),
                timeline: line,
                stall: Span::ZERO,
                interrupted: Frames::ZERO,
            },
            wall,
        );
        let Some(RecorderOutput::Open(opening)) = recorder.poll_output() else {
            panic!("no segment")
        };
        assert_eq!((opening.at, opening.rate), (told, rate));
        let off = (wall.utc_at(line.local_at(told)).as_nanos() - opening.utc.as_nanos()).abs();
        assert_eq!(off, 0);
    }
}

#[test]
fn a_pause_is_silence_or_left_out_and_can_end_in_the_past() {
    for gap in [PauseMode::Silence, PauseMode::Closed] {
        let mut world = World::new(seconds(3_600));
        world.receive(1_000);
        world.command(RecorderCommand::Start, CommandTime::Frame(MediaTime(500))).unwrap();
        let paused =
            world.command(RecorderCommand::Pause(gap), CommandTime::Frame(MediaTime(1_200)));
        assert_eq!(paused, Ok(Some(MediaTime(1_200))));
        (0..50).for_each(|_| world.receive(1_000));
        assert_eq!(
            world.recorder.state(),
            RecordingState::Paused { since: MediaTime(1_200), mode: gap }
        );
        let resumed = world.command(RecorderCommand::Resume, CommandTime::Ago(Span::from_secs(5)));
        assert_eq!(resumed, Ok(Some(MediaTime(46_000))));
        world.receive(1_000);
        assert_eq!(
            world.command(RecorderCommand::Stop, CommandTime::Now),
            Ok(Some(MediaTime(52_000)))
        );
        let length = if gap == PauseMode::Silence { 51_500 } else { 6_700 };
        let joined = world.joined();
        assert_eq!(joined.len(), length);
        assert_eq!(joined[699], Some(1_199));
        assert_eq!(joined[length - 6_000], Some(46_000));
        assert_eq!(joined.iter().filter(|frame| frame.is_none()).count(), length - 6_700);
    }
}

#[test]
fn segments_end_by_length_by_size_by_command_and_a_loss_keeps_its_length() {
    let mut world = World::new(seconds(1));
    world.receive(10);
    world.command(RecorderCommand::Start, CommandTime::Now).unwrap();
    world.command(RecorderCommand::Cut, CommandTime::Frame(MediaTime(300))).unwrap();
    world.receive(1_000);
    world.lose(777);
    world.receive(500);
    world.recorder.set_rotation(Rotation { bytes: Some(MIN_BYTES), ..Rotation::default() });
    world.recorder.set_segment_bytes(MIN_BYTES);
    world.receive(5);
    world.receive(5);
    world.recorder.finish();
    world.drain();
    assert_eq!(world.bounds(), [(10, 300), (300, 1_300), (1_300, 2_287), (2_287, 2_297)]);
    let joined = world.joined();
    assert_eq!(joined.len(), 2_287);
    assert_eq!(joined.iter().filter(|frame| frame.is_none()).count(), 777);
}

#[test]
fn the_clock_cuts_at_full_minutes_of_its_zone_and_survives_being_set() {
    for (zone, first) in [(ClockZone::Utc, 35), (ClockZone::Local, 5)] {
        let clock = ClockAlignment::new(Span::from_secs(60), zone);
        let mut world = World::new(RecorderConfig {
            rotation: Rotation { clock, ..Rotation::default() },
            ..seconds(1)
        });
        // 12:00:25, and half a minute later in this zone (some zones had such an offset).
        let noon = 12 * 3_600 + 25;
        world.wall.utc = UnixTime::from_nanos(noon * 1_000_000_000);
        world.wall.offset = Span::from_secs(3_630);
        world.receive(100);
        world.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
        (0..100).for_each(|_| world.receive(1_000));
        let cuts: Vec<_> = world.bounds().iter().map(|(_, end)| *end).collect();
        assert_eq!(cuts, [first * 1_000, (first + 60) * 1_000]);
        // An hour back: the segment ends about when it would have, and the next is in step again.
        world.wall.utc = UnixTime::from_nanos((noon - 3_600) * 1_000_000_000);
        (0..200).for_each(|_| world.receive(1_000));
        let longest = world.bounds().iter().map(|(from, to)| to - from).max().unwrap();
        assert!(longest <= 62_000, "{longest}");
        assert_eq!(world.bounds().last().unwrap().1 % 60_000, first * 1_000);
        // A second back at the wrong moment makes no file of a second.
        let before = world.segments.len();
        world.wall.utc = UnixTime::from_nanos((noon - 3_601) * 1_000_000_000);
        (0..180).for_each(|_| world.receive(1_000));
        assert!(world.bounds()[before..].iter().all(|(from, to)| to - from > 50_000));
    }
    assert!(ClockAlignment::new(Span::from_secs(7 * 60), ClockZone::Utc).is_none());
    assert!(ClockAlignment::new(Span::from_secs(30), ClockZone::Utc).is_none());
    assert!(ClockAlignment::new(Span::ZERO, ClockZone::Utc).is_none());
}

/// Local time in a zone whose clock is changed at 01:00 UTC of the second day, which is hour 25.
#[test]
fn local_time_cuts_where_the_zones_offset_changes() {
    const HOUR: i64 = 3_600;
    const STEP: i64 = 10;
    let hours = |count: i64| Span::from_secs(count * HOUR);
    let utc = |seconds: i64| UnixTime::from_nanos(seconds * 1_000_000_000);
    for (every, before, after, expected) in [
        // Back from 03:00 to 02:00: the hour from 02:00 comes twice.
        (1, 2, 1, &[21, 22, 23, 24, 25, 26, 27, 28][..]),
        // On from 02:00 to 03:00.
        (1, 1, 2, &[21, 22, 23, 24, 25, 26, 27, 28]),
        // From even hours: 00, 02, then 03 becomes 02, and 04.
        (2, 2, 1, &[22, 24, 25, 27, 29]),
        (2, 1, 2, &[21, 23, 25, 26, 28]),
        // Days of 25 and 23 hours begin at midnight, and have a cut at the change.
        (24, 2, 1, &[22, 25, 47, 71]),
        (24, 1, 2, &[23, 25, 46, 70]),
    ] {
        let clock = ClockAlignment::new(hours(every), ClockZone::Local);
        let rotation = Rotation { clock, ..Rotation::default() };
        let mut world = World::new(RecorderConfig { rotation, ..RecorderConfig::default() });
        let change =
            OffsetChange { at: utc(25 * HOUR), before: hours(before), after: hours(after) };
        let begin = 20 * HOUR + 30 * 60;
        world.wall.utc = utc(begin);
        world.wall.offset_changes = [None, Some(change)];
        world.receive(1_000);
        world.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
        let (mut cuts, mut pts) = (Vec::new(), MediaTime(1_000));
        for second in (begin..expected.last().unwrap() * HOUR).step_by(STEP as usize) {
            // The frames of the change may come with a reading of the clocks before it, or after.
            if second > 25 * HOUR - before * STEP {
                world.wall.offset_changes = [Some(change), None];
            }
            let frames = Frames(STEP as u64 * 1_000);
            let run = FrameRun {
                pts,
                frames,
                timeline: world.line,
                stall: Span::ZERO,
                interrupted: Frames::ZERO,
            };
            world.recorder.handle_frames(run, world.wall);
            pts += frames;
            while let Some(output) = world.recorder.poll_output() {
                if let RecorderOutput::Open(opening) = output {
                    cuts.push(begin * 1_000 + opening.at.0 as i64);
                }
            }
        }
        let expected: Vec<i64> = expected.iter().map(|hour| hour * HOUR * 1_000).collect();
        assert_eq!(cuts, expected, "every {every} h, {before} to {after}");
    }
}

#[test]
fn a_segment_that_starts_just_before_an_hour_belongs_to_it() {
    let clock = ClockAlignment::new(Span::from_secs(3_600), ClockZone::Utc);
    let rotation = Rotation { clock, ..Rotation::default() };
    let mut world = World::new(RecorderConfig { rotation, ..RecorderConfig::default() });
    world.wall.utc = UnixTime::from_nanos(3_599 * 1_000_000_000);
    world.receive(10);
    world.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    (0..3_590).for_each(|_| world.receive(1_000));
    assert_eq!(world.recorder.upcoming().unwrap().at, MediaTime(3_601_000));
    assert_eq!(world.recorder.upcoming().unwrap().utc, UnixTime::from_nanos(7_200 * 1_000_000_000));
    (0..20).for_each(|_| world.receive(1_000));
    assert_eq!(world.bounds(), [(0, 3_601_000)]);
}

#[test]
fn a_restarted_station_or_another_rate_begins_a_segment() {
    let mut world = World::new(RecorderConfig::default());
    world.receive(500);
    world.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    let stop = CommandTime::Local(start_of_line() + Span::from_millis(1_500));
    assert_eq!(world.command(RecorderCommand::Stop, stop), Ok(Some(MediaTime(1_500))));
    // At its second 1 the station restarts at another rate, and the stop keeps its moment.
    world.lose(500);
    let local = start_of_line() + Span::from_secs(1);
    let line = Timeline::new(MediaTime::ZERO, local, SampleRate::new(2_000).unwrap());
    world.recorder.handle_frames(
        FrameRun {
            pts: MediaTime::ZERO,
            frames: Frames(100),
            timeline: line,
            stall: Span::ZERO,
            interrupted: Frames::ZERO,
        },
        world.wall,
    );
    let mut seen = Vec::new();
    while let Some(output) = world.recorder.poll_output() {
        seen.push(output);
    }
    assert!(
        matches!(
            seen[..],
            [
                RecorderOutput::Close(SegmentEnd {
                    end: MediaTime(500),
                    cause: SegmentReason::Break,
                    ..
                }),
                RecorderOutput::Open(SegmentStart {
                    at: MediaTime(0),
                    cause: SegmentReason::Break,
                    number: 1,
                    ..
                }),
                RecorderOutput::Write { from: MediaTime(0), frames: Frames(100) },
            ]
        ),
        "{seen:?}"
    );
    let mark = FrameRun {
        pts: MediaTime(100),
        frames: Frames(1_900),
        timeline: line,
        stall: Span::ZERO,
        interrupted: Frames::ZERO,
    };
    world.recorder.handle_frames(mark, world.wall);
    assert!(matches!(
        world.recorder.poll_output(),
        Some(RecorderOutput::Write { from: MediaTime(100), frames: Frames(900) })
    ));
}

#[test]
fn a_source_that_has_fallen_silent_holds_no_stop_up() {
    let mut world = World::new(RecorderConfig::default());
    world.receive(500);
    world.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    let at = |millis| start_of_line() + Span::from_millis(millis);
    let mut tell = |command, millis| {
        world.recorder.handle_command(at(900), command, CommandTime::Local(at(millis))).unwrap()
    };
    assert_eq!(tell(RecorderCommand::Stop, 900), Some(MediaTime(900)));
    assert_eq!(tell(RecorderCommand::Start, 950), Some(MediaTime(950)));
    world.recorder.handle_idle(at(899));
    world.drain();
    assert!(world.open.is_some());
    world.recorder.handle_idle(at(5_000));
    world.drain();
    assert_eq!(world.bounds(), [(0, 500)]);
    // A recording starts with audio.
    world.recorder.handle_idle(at(5_000));
    world.drain();
    assert_eq!(world.recorder.state(), RecordingState::Waiting { start: Some(MediaTime(950)) });
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Hear(u64),
    Lose(u64),
    Interrupt(u64),
    Tell(RecorderCommand, i64),
    Wrote(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let command = prop_oneof![
        3 => Just(RecorderCommand::Start),
        2 => Just(RecorderCommand::Stop),
        6 => Just(RecorderCommand::Cut),
        2 => Just(RecorderCommand::Pause(PauseMode::Silence)),
        2 => Just(RecorderCommand::Pause(PauseMode::Closed)),
        3 => Just(RecorderCommand::Resume),
    ];
    let op = prop_oneof![
        8 => (1..700_u64).prop_map(Op::Hear),
        1 => (1..900_u64).prop_map(Op::Lose),
        1 => (1..4_000_u64).prop_map(Op::Interrupt),
        4 => (command, -3_000..2_000_i64).prop_map(|(command, at)| Op::Tell(command, at)),
        1 => (0..2 * MIN_BYTES).prop_map(Op::Wrote),
    ];
    prop::collection::vec(op, 1..120)
}

proptest! {
    /// [`World`] checks at each output that it continues exactly where the last ended, that written
    /// frames were received, and that silence was lost or paused.
    #[test]
    fn segments_joined_are_the_stream(
        ops in ops(), pre_roll in 0..4_i64, duration in prop::option::of(1..3_i64),
        leave_out in any::<bool>(),
    ) {
        let rotation = Rotation {
            duration: duration.map(Span::from_secs),
            bytes: Some(MIN_BYTES),
            clock: None,
        };
        let interruptions = if leave_out { PauseMode::Closed } else { PauseMode::Silence };
        let pre_roll = Span::from_secs(pre_roll);
        let mut world = World::new(RecorderConfig { pre_roll, rotation, interruptions });
        world.receive(10);
        // Frames at which recordings were commanded to start and to end.
        for op in ops {
            match op {
                Op::Hear(frames) => world.receive(frames),
                Op::Lose(frames) => world.lose(frames),
                Op::Interrupt(frames) => world.interrupt(frames),
                Op::Wrote(bytes) => world.recorder.set_segment_bytes(bytes),
                Op::Tell(command, at) => {
                    let when = CommandTime::Frame(MediaTime((world.heard.len() as u64).saturating_add_signed(at)));
                    let oldest = world.recorder.oldest_needed();
                    if let Ok(Some(at)) = world.command(command, when) {
                        prop_assert!(at >= oldest);
                    }
                }
            }
        }
        world.receive(5_000);
        world.recorder.finish();
        world.drain();
        prop_assert!(world.open.is_none());
        for pair in world.segments.windows(2) {
            let (one, two) = (&pair[0], &pair[1]);
            let end = one.closing.unwrap();
            prop_assert_eq!(two.opening.number, one.opening.number + 1);
            if end.cause == SegmentReason::Stop {
                prop_assert_eq!(two.opening.cause, SegmentReason::Start);
                prop_assert!(two.opening.at >= end.end);
            } else {
                prop_assert_eq!(two.opening.cause, end.cause);
                prop_assert_eq!(two.opening.at, end.end);
            }
        }
        for segment in &world.segments {
            let most = duration.map_or(u64::MAX, |seconds| seconds.unsigned_abs() * 1_000);
            prop_assert!(segment.frames.len() as u64 <= most);
        }
    }
}

#[test]
fn a_marker_is_for_a_frame_of_the_segment_that_is_written_or_is_refused() {
    let mut world = World::new(seconds(5));
    let frame = |at| CommandTime::Frame(MediaTime(at));
    let marker = |world: &World, when| world.recorder.marker(world.now(), when);
    assert_eq!(marker(&world, CommandTime::Now), Err(CommandError::Idle));
    (0..20).for_each(|_| world.receive(100));
    assert_eq!(marker(&world, CommandTime::Now), Err(CommandError::Idle));
    world.command(RecorderCommand::Start, frame(0)).unwrap();
    assert_eq!(marker(&world, CommandTime::Now), Ok((MediaTime(2_000), 0)));
    assert_eq!(marker(&world, CommandTime::Ago(Span::from_millis(1_500))), Ok((MediaTime(500), 0)));
    assert_eq!(marker(&world, frame(3_000)), Ok((MediaTime(3_000), 0)));
    assert_eq!(marker(&world, frame(3_001)), Err(CommandError::Ahead));
    (0..40).for_each(|_| world.receive(100));
    // The second segment starts at 5,000: a marker for the moment before applies there.
    assert_eq!(marker(&world, frame(4_000)), Ok((MediaTime(5_000), 1)));
    assert_eq!(marker(&world, frame(3_999)), Err(CommandError::Skipped));
    world.command(RecorderCommand::Pause(PauseMode::Closed), frame(6_500)).unwrap();
    (0..10).for_each(|_| world.receive(100));
    assert_eq!(marker(&world, frame(6_499)), Ok((MediaTime(6_499), 1)));
    assert_eq!(marker(&world, CommandTime::Now), Err(CommandError::Paused));
}

#[test]
fn a_stall_becomes_silence_of_its_length_and_a_long_one_begins_a_segment() {
    for pre_roll in [false, true] {
        let mut world = World::new(seconds(10));
        world.receive(500);
        if !pre_roll {
            world.command(RecorderCommand::Start, CommandTime::Frame(MediaTime(0))).unwrap();
        }
        let stall = |world: &mut World, span: Span| {
            world.line = world.line.delayed(span);
            world.wall.local += span;
            world.wall.utc = UnixTime::from_nanos(world.wall.utc.as_nanos() + span.as_nanos());
            world.stall = span;
        };
        stall(&mut world, Span::from_secs(12));
        world.receive(1_500);
        if pre_roll {
            world.command(RecorderCommand::Start, CommandTime::Frame(MediaTime(0))).unwrap();
        }
        stall(&mut world, Span::from_secs(90));
        world.receive(500);
        world.command(RecorderCommand::Stop, CommandTime::Now).unwrap();
        let sound = |from: u64, to: u64| (from..to).map(Some);
        let mut expected: Vec<_> = sound(0, 500).collect();
        expected.extend([None; 12_000]);
        expected.extend(sound(500, 2_500));
        assert_eq!(world.joined(), expected);
        // Ten seconds each, by duration; and one after the long stall.
        let lengths: Vec<_> = world.segments.iter().map(|it| it.frames.len()).collect();
        assert_eq!(lengths, [10_000, 4_000, 500], "{pre_roll}");
        let starts = world.segments.iter().map(|it| it.opening.utc.as_nanos() / 1_000_000);
        assert_eq!(starts.collect::<Vec<_>>(), [0, 10_000, 14_000 + 90_000], "{pre_roll}");
        let long = Frames(90_000);
        assert_eq!(world.stalled, [(MediaTime(500), Frames(12_000)), (MediaTime(2_000), long)]);
    }
}

#[test]
fn a_stall_in_a_pause_is_part_of_it() {
    for (gap, silence) in [(PauseMode::Silence, 3_400), (PauseMode::Closed, 0)] {
        let config = RecorderConfig { pre_roll: Span::ZERO, ..RecorderConfig::default() };
        let mut world = World::new(config);
        world.receive(500);
        world.command(RecorderCommand::Start, CommandTime::Frame(MediaTime(0))).unwrap();
        world.command(RecorderCommand::Pause(gap), CommandTime::Frame(MediaTime(500))).unwrap();
        world.receive(100);
        world.line = world.line.delayed(Span::from_secs(3));
        world.stall = Span::from_secs(3);
        world.receive(300);
        world.command(RecorderCommand::Resume, CommandTime::Frame(MediaTime(900))).unwrap();
        world.receive(100);
        world.command(RecorderCommand::Stop, CommandTime::Now).unwrap();
        let silent = world.joined().iter().filter(|frame| frame.is_none()).count();
        assert_eq!(silent, silence, "{gap:?}");
    }
}

#[test]
fn an_interruption_of_the_source_is_no_loss_of_the_disk() {
    for (interruptions, length) in [(PauseMode::Silence, 2_000), (PauseMode::Closed, 1_200)] {
        let mut world = World::new(RecorderConfig { interruptions, ..RecorderConfig::default() });
        world.receive(500);
        world.command(RecorderCommand::Start, CommandTime::Frame(MediaTime(0))).unwrap();
        world.lose(200);
        world.interrupt(800);
        world.receive(500);
        world.command(RecorderCommand::Stop, CommandTime::Now).unwrap();
        let gap = |from, frames, cause| (MediaTime(from), Frames(frames), cause);
        let expected = [gap(500, 200, GapReason::Lost), gap(700, 800, GapReason::Interrupted)];
        assert_eq!(world.gaps, expected, "{interruptions:?}");
        assert_eq!(world.joined().len(), length, "{interruptions:?}");
        assert_eq!(world.bounds(), [(0, 2_000)]);
    }
}

#[test]
fn an_interruption_that_is_left_out_leaves_no_empty_segments() {
    let clock = ClockAlignment::new(Span::from_secs(60), ClockZone::Utc);
    let rotation = Rotation { clock, ..Rotation::default() };
    let interruptions = PauseMode::Closed;
    let config = RecorderConfig { rotation, interruptions, ..RecorderConfig::default() };
    let mut world = World::new(config);
    world.receive(500);
    world.command(RecorderCommand::Start, CommandTime::Frame(MediaTime(0))).unwrap();
    world.interrupt(3_600_000);
    world.receive(500);
    world.command(RecorderCommand::Stop, CommandTime::Now).unwrap();
    let lengths: Vec<_> = world.segments.iter().map(|it| it.frames.len()).collect();
    assert_eq!(lengths, [500, 500]);
}
