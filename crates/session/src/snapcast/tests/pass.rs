//! Chunks that are passed: their bytes, their time on the own clock, and what prevents them.

use aulos_core::Rng;
use aulos_engine::ready_chunk::{ReadyChunk, ReadyChunkQueue, ready_chunks};

use super::*;

const BUFFER: Span = Span::from_millis(600);
const INPUT: Span = Span::from_millis(150);

/// A source that passes its chunks, and what the station gets.
struct PassWorld {
    world: World,
    queue: ReadyChunkQueue,
    passed: Vec<PassedChunk>,
}

struct PassedChunk {
    stamp: Instant,
    pulled: Instant,
    has_header: bool,
    /// The number of its chunk at the server.
    number: u64,
}

impl PassWorld {
    fn new(drift: i32, change: impl FnOnce(&mut PassConfig)) -> Self {
        let spec = SampleSpec::DEFAULT;
        let mut config = PassConfig {
            codec: Codec::Pcm,
            spec,
            codec_header: codec_header(Codec::Pcm, spec, &[]).unwrap().into(),
            chunk: millis(CHUNK_MS),
            buffer: BUFFER,
            input_buffer: INPUT,
        };
        change(&mut config);
        let (sink, queue) = ready_chunks(200, 3_840);
        Self { world: World::with(drift, Some((config, sink))), queue, passed: Vec::new() }
    }

    fn run(&mut self, span: i64) {
        for _ in 0..span / 10 {
            self.world.run(10);
            while let Some(chunk) = self.queue.pop() {
                self.take(&chunk);
            }
        }
    }

    fn take(&mut self, chunk: &ReadyChunk) {
        assert_eq!(chunk.duration, Frames(FRAMES));
        // The first sample tells chunks of about this time apart.
        let payload = chunk.payload();
        let first = u64::from(u16::from_le_bytes([payload[0], payload[1]]));
        let near = self.world.chunk;
        let mut numbers = near.saturating_sub(120)..near + 10;
        let number = numbers.find(|number| number * FRAMES % 30_000 == first).unwrap();
        assert_eq!(payload, self.world.audio(number));
        let (pulled, has_header) = (self.world.now, chunk.codec_header.is_some());
        self.passed.push(PassedChunk { stamp: chunk.stamp, pulled, has_header, number });
    }

    /// How much later the station's clients play a chunk than those of the server.
    fn error(&self, chunk: &PassedChunk) -> Span {
        let playout = World::timestamp(chunk.number) + DELAY;
        self.world.clock.read(chunk.stamp + BUFFER) - playout
    }

    fn obstacle(&mut self) -> Option<PassObstacle> {
        self.world.status().pass_obstacle
    }

    /// Whether each chunk follows the one before.
    fn is_continuous(&self) -> bool {
        self.passed.windows(2).all(|pair| pair[1].number == pair[0].number + 1)
    }
}

#[test]
fn chunks_keep_their_bytes_and_are_played_when_the_servers_clients_play_them() {
    for drift in [-100, 0, 100] {
        let mut world = PassWorld::new(drift, |_| ());
        // Nothing to two stalls of the network, which the server's buffer covers.
        let mut random = Rng::new(7);
        for _ in 0..120 {
            let stall = i64::try_from(random.next_u64() % 90).unwrap();
            world.world.stalled_until = world.world.now + millis(stall);
            world.run(1_000);
        }
        assert!(world.passed.len() > 5_900 && world.is_continuous(), "{}", world.passed.len());
        assert_eq!((world.obstacle(), world.world.breaks(), world.world.lost), (None, 0, 0));
        let mut errors: Vec<_> =
            world.passed.iter().map(|chunk| world.error(chunk).abs()).collect();
        errors.sort_unstable();
        let p99 = errors[errors.len() * 99 / 100];
        println!("{drift} ppm: p99 {p99:?}, max {:?}", errors.last());
        assert!(p99 < Span::from_micros(200), "{drift} ppm: {p99:?}");
        for chunk in &world.passed {
            // Early enough for the station, and no earlier than it has room for.
            let ahead = chunk.stamp + millis(CHUNK_MS) - chunk.pulled;
            assert!((INPUT - millis(12)..=INPUT + millis(2)).contains(&ahead), "{ahead:?}");
            assert!(!chunk.has_header);
        }
        // Samples have the same time: a block ends with its chunk, less the input's buffer.
        let last = (world.world.received.last().unwrap(), world.passed.last().unwrap());
        let distance = last.0.received - (last.1.stamp + millis(CHUNK_MS) - INPUT);
        assert!(distance.abs() < Span::from_micros(10), "{distance:?}");
    }
}

#[test]
fn what_differs_is_not_passed_and_the_reason_says_so() {
    let mut other = PassWorld::new(0, |config| config.codec = Codec::Flac);
    other.run(3_000);
    assert!(matches!(other.obstacle(), Some(PassObstacle::Format { .. })));
    let mut short = PassWorld::new(0, |config| config.chunk = millis(40));
    short.run(3_000);
    assert_eq!(short.obstacle(), Some(PassObstacle::ShortChunks(millis(CHUNK_MS))));
    let buffer = millis(900);
    let mut late = PassWorld::new(0, |config| config.buffer = buffer);
    late.run(3_000);
    let most = millis(720);
    assert_eq!(late.obstacle(), Some(PassObstacle::NoRoom { buffer, delay: DELAY, most }));
    // The samples then arrive as without pass-through.
    let block = late.world.received.last().unwrap();
    assert!(block.pulled - block.received <= millis(10));
    for mut world in [other, short, late] {
        assert!(world.passed.is_empty() && world.world.breaks() == 0);
        assert_eq!(world.world.status().error, None);
    }
    // The server's buffer is changed.
    let mut world = PassWorld::new(0, |_| ());
    world.run(3_000);
    let settings = ServerSettings { buffer: millis(700), ..world.world.settings };
    world.world.message(0, ServerMessage::Settings(settings));
    world.run(2_000);
    assert!(matches!(world.obstacle(), Some(PassObstacle::NoRoom { .. })));
    world.world.message(0, ServerMessage::Settings(world.world.settings));
    let before = world.passed.len();
    world.run(3_000);
    assert!(world.obstacle().is_none() && world.passed.len() > before + 80);
}

#[test]
fn another_header_goes_with_the_chunks_and_doubled_and_late_ones_do_not() {
    let mut world = PassWorld::new(0, |config| config.codec_header = Arc::new([1, 2, 3]));
    world.run(4_000);
    assert!(world.passed.len() > 100 && world.passed.iter().all(|chunk| chunk.has_header));
    // Chunks of the past second again, and a clock that is set.
    let payload = world.world.audio(world.world.chunk - 10);
    for ago in [100, 300, 2_000] {
        let stamp = World::timestamp(world.world.chunk) - millis(ago);
        world.world.send(stamp, &payload);
    }
    world.run(4_000);
    let numbers: Vec<_> = world.passed.iter().map(|chunk| chunk.number).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] > pair[0]), "{numbers:?}");
}

#[test]
fn a_server_that_is_gone_and_back_is_passed_again_at_its_new_time() {
    let mut world = PassWorld::new(50, |_| ());
    world.run(5_000);
    world.world.break_off();
    world.run(3_000);
    let before = world.passed.len();
    // Another clock, as after a restart of the machine.
    world.world.clock = LocalClock::new(Instant::ZERO + Span::from_secs(9), Ppm::from_ppm(-50));
    world.world.chunk = world.world.current_chunk();
    world.world.is_reachable = true;
    world.run(40_000);
    assert!(world.passed.len() > before + 500, "{} {before}", world.passed.len());
    let error = world.error(world.passed.last().unwrap());
    assert!(error.abs() < Span::from_micros(200), "{error:?}");
}
