//! Ready chunks of a source: passed unchanged, and encoded whenever something alters the samples.

use std::cell::RefCell;

use aulos_core::Ppm;

use super::announce::announcement_source;
use super::*;
use crate::announce::{DEFAULT_DUCK, Ducking};
use crate::ready_chunk::{PassThroughState, ReadyChunkSink, ready_chunks};

const BUFFER: Span = Span::from_millis(100);

/// A source whose frames have their own numbers, as samples and in the payloads of its chunks.
struct Origin {
    feed: LiveSender,
    chunks: ReadyChunkSink,
    /// The stamp of its frame 0.
    start: Instant,
    drift: Ppm,
    duration: u64,
    next: u64,
    /// Chunks that it withholds, and how many it sends twice.
    lost: Range<u64>,
    doubles: u64,
    sends: bool,
}

impl Origin {
    fn stamp(&self, frame: u64) -> Instant {
        let nanos = f64::from(u32::try_from(frame).unwrap()) / 48_000.0 * 1e9;
        let nanos = nanos * (1.0 - f64::from(self.drift.as_ppb()) * 1e-9);
        #[allow(clippy::cast_possible_truncation, reason = "minutes")]
        let span = Span::from_nanos(nanos as i64);
        self.start + span
    }

    /// Sends what is due at `now`.
    fn send(&mut self, now: Instant) {
        loop {
            let (stamp, end) = (self.stamp(self.next), self.stamp(self.next + self.duration));
            let received = end - BUFFER;
            if received > now {
                return;
            }
            self.feed.next = self.next;
            if self.sends {
                for _ in 0..2 {
                    let mut block = self.feed.pool.take().unwrap();
                    block.reset(SPEC.rate, SPEC.layout);
                    block.resize(Frames(self.duration / 2));
                    block.received = received;
                    for sample in block.samples_mut() {
                        *sample = number(self.feed.next);
                        self.feed.next += 1;
                    }
                    assert!(self.feed.items.push(SourceItem::Block(block)).is_ok());
                }
                let number = self.next / self.duration;
                let count = if self.lost.contains(&number) { 0 } else { 1 + self.doubles };
                for _ in 0..count {
                    let times = (stamp, Frames(self.duration));
                    assert!(self.chunks.push(times, None, None, &self.next.to_le_bytes()));
                }
            }
            self.next += self.duration;
        }
    }
}

/// A chunk as a client gets it.
#[derive(Clone, Copy, Debug)]
struct Sent {
    stamp: Instant,
    end: Instant,
    is_passed: bool,
    /// The number of its first frame, multiplied where it is a sample of the other source.
    frame: u64,
}

struct PassWorld {
    world: World,
    origin: Origin,
    sent: Vec<Sent>,
}

impl PassWorld {
    /// A station on whose grid the chunks of the origin are late by `phase`.
    fn new(phase: Span, drift: i32, duration: u64) -> Self {
        let (feed, source) = live_source();
        let (chunks, queue) = ready_chunks(200, 64);
        let queue = RefCell::new(Some(queue));
        let config = InputConfig {
            buffer: BUFFER,
            timeout: Span::from_millis(80),
            ..InputConfig::default()
        };
        let sources: Vec<Box<dyn Source>> =
            vec![source, Box::new(Counter { next: 0, base: 500_000 })];
        let world = World::with(sources, |source| {
            let is_live = source.pacing() == Pacing::Live;
            let input = Input::new(source, SPEC.rate, SPEC.layout, config);
            match queue.borrow_mut().take_if(|_| is_live) {
                Some(queue) => input.with_ready_chunks(queue),
                None => input,
            }
        });
        // The other source plays first.
        let start = world.now + Span::from_millis(500) + phase;
        let drift = Ppm::from_ppm(drift);
        let (next, lost, doubles, sends) = (0, 0..0, 0, true);
        let origin = Origin { feed, chunks, start, drift, duration, next, lost, doubles, sends };
        Self { world, origin, sent: Vec::new() }
    }

    fn run(&mut self, millis: u64) {
        for _ in 0..millis / 20 {
            let due = self.world.station.poll_timeout();
            // A feeder comes every ten milliseconds.
            self.origin.send(due - Span::from_millis(10));
            self.origin.send(due);
            self.world.now = due;
            self.world.station.handle_timeout(due);
            while let Some(TimedChunk { chunk, timestamp, .. }) = self.world.chunks.pop() {
                let bytes = chunk.payload();
                let is_passed = bytes.len() == 8;
                let frame = if is_passed {
                    u64::from_le_bytes(bytes.try_into().unwrap())
                } else {
                    let first = f32::from_le_bytes(bytes[..4].try_into().unwrap());
                    #[allow(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "small"
                    )]
                    let frame = (first * 1_048_576.0).max(0.0) as u64;
                    frame
                };
                let end = timestamp + SPEC.rate.span(chunk.duration);
                self.sent.push(Sent { stamp: timestamp, end, is_passed, frame });
            }
        }
    }

    fn state(&mut self) -> PassThroughState {
        self.world.handle.status().pass_through
    }

    /// Every chunk begins where the one before ends, by what clients can follow.
    fn check_stamps(&self) {
        for pair in self.sent.windows(2) {
            let gap = pair[1].stamp - pair[0].end;
            assert!(gap.abs() <= Span::from_micros(15), "{gap:?} between {pair:?}");
        }
    }

    fn changes(&self) -> usize {
        self.sent.windows(2).filter(|pair| pair[0].is_passed != pair[1].is_passed).count()
    }

    /// By how much content is ahead of the origin's time for it.
    fn error(&self, sent: &Sent) -> Span {
        sent.stamp - self.origin.stamp(sent.frame)
    }
}

#[test]
fn chunks_are_passed_once_in_order_and_reach_the_origins_time() {
    for (phase, drift, duration) in [(0, 0, 960), (7, 100, 960), (13, -100, 960), (3, 50, 1_152)] {
        let mut world = PassWorld::new(Span::from_millis(phase), drift, duration);
        world.run(60_000);
        assert_eq!(world.state(), PassThroughState::Passing);
        assert_eq!(world.changes(), 1, "{phase} {drift}");
        world.check_stamps();
        let passed: Vec<_> = world.sent.iter().filter(|sent| sent.is_passed).collect();
        assert!(passed.windows(2).all(|pair| pair[1].frame == pair[0].frame + duration));
        // Ten milliseconds at most at the beginning, none after 25 s.
        assert!(world.error(passed[0]).abs() <= Span::from_millis(13));
        let late = &passed[passed.len() / 2..];
        assert!(late.iter().all(|sent| world.error(sent).abs() < Span::from_micros(15)));
        let status = *world.world.handle.status();
        assert_eq!((status.pass_interruptions, status.pool_exhausted), (0, 0));
        assert_eq!(status.chunks_passed, passed.len() as u64);
        assert_eq!(status.chunks + status.chunks_passed, world.sent.len() as u64);
    }
}

#[test]
fn whatever_alters_the_samples_is_encoded_at_the_same_time_of_the_content() {
    for (phase, drift) in [(0, 0), (9, 80)] {
        let mut world = PassWorld::new(Span::from_millis(phase), drift, 960);
        world.run(40_000);
        let source = announcement_source(0.0, 500);
        world.world.handle.announcements().add(1, source, Ducking::by(DEFAULT_DUCK)).unwrap();
        world.world.handle.handle_timeout(world.world.now, |_| {});
        world.run(200);
        assert_eq!(world.state(), PassThroughState::Announcement);
        world.run(5_000);
        assert_eq!((world.state(), world.changes()), (PassThroughState::Passing, 3));
        world.check_stamps();
        // The first encoded chunk continues with the frames after the passed ones.
        let mut pairs = world.sent.windows(2);
        let first = pairs.find(|pair| pair[0].is_passed && !pair[1].is_passed).unwrap();
        let off = (first[0].frame + 960) % 1_000_000;
        println!("{} frames off", first[1].frame.cast_signed() - off.cast_signed());
        assert!(off.abs_diff(first[1].frame) < 24, "{off} {first:?} {phase} {drift}");
    }
}

#[test]
fn another_source_and_the_return_are_without_gap() {
    let mut world = PassWorld::new(Span::from_millis(4), 100, 960);
    world.run(10_000);
    world.world.handle.set_preference(Some((1, None)));
    world.run(3_000);
    assert_eq!(world.state(), PassThroughState::NoSource);
    world.world.handle.set_preference(None);
    world.run(10_000);
    assert_eq!((world.state(), world.changes()), (PassThroughState::Passing, 3));
    // The origin is gone, and comes back.
    world.origin.sends = false;
    world.origin.feed.items.push(SourceItem::Lost).unwrap();
    world.run(3_000);
    assert_eq!((world.state(), world.changes()), (PassThroughState::NoSource, 4));
    world.origin.sends = true;
    world.run(20_000);
    assert_eq!((world.state(), world.changes()), (PassThroughState::Passing, 5));
    world.check_stamps();
}

#[test]
fn missing_chunks_are_encoded_and_doubled_ones_are_sent_once() {
    let mut world = PassWorld::new(Span::from_millis(6), -50, 960);
    world.origin.lost = 500..503;
    world.run(9_000);
    assert_eq!(world.changes(), 1);
    world.run(11_000);
    assert_eq!((world.state(), world.changes()), (PassThroughState::Passing, 3));
    assert_eq!(world.world.handle.status().pass_interruptions, 1);
    world.origin.doubles = 1;
    world.run(2_000);
    assert_eq!((world.state(), world.changes()), (PassThroughState::Passing, 3));
    let passed: Vec<_> = world.sent.iter().filter(|sent| sent.is_passed).collect();
    assert!(passed.windows(2).all(|pair| pair[1].frame > pair[0].frame));
    world.check_stamps();
}

#[test]
fn a_clock_that_is_set_is_followed_without_gap() {
    let mut world = PassWorld::new(Span::from_millis(1), 0, 960);
    world.run(10_000);
    for step in [8, -8, 300, -300] {
        world.origin.start += Span::from_millis(step);
        world.run(40_000);
        assert_eq!(world.state(), PassThroughState::Passing);
        world.check_stamps();
        let last = *world.sent.last().unwrap();
        assert!(world.error(&last).abs() < Span::from_micros(50), "{:?}", world.error(&last));
    }
}
