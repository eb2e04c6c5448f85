//! Origins in virtual time, whose samples count frames.

use aulos_core::{Codec, Frames, MediaTime, Ppm, SampleSpec};
use aulos_engine::source::SourceItem;
use aulos_proto::nats::ChunkHeader;
use aulos_proto::snap::wire::codec_header;
use aulos_rt::ring::Consumer;
use aulos_sim::LocalClock;

use super::*;

const CHUNK: Span = Span::from_millis(20);
const BUFFER: Span = Span::from_millis(1_000);

/// An origin of the stream.
struct Origin {
    node: &'static str,
    clock: LocalClock,
    epoch: u32,
    /// The number of the next chunk, and its time on the origin's clock.
    next: (u64, Instant),
    is_sending: bool,
    is_leased: bool,
}

impl Origin {
    fn new(node: &'static str, ahead: i64, epoch: u32, now: Instant) -> Self {
        let clock = LocalClock::new(Instant::ZERO + Span::from_secs(ahead), Ppm::from_ppm(40));
        Self { node, epoch, next: (0, clock.read(now)), clock, is_sending: true, is_leased: false }
    }

    fn record(&self) -> Vec<u8> {
        let header = codec_header(Codec::Pcm, SampleSpec::DEFAULT, &[]).unwrap();
        let record = StreamRecord {
            epoch: self.epoch,
            is_leased: self.is_leased,
            buffer: BUFFER,
            chunk: Frames(960),
            spec: SampleSpec::DEFAULT,
            node: self.node,
            codec: "pcm",
            // Behind the lengths and the name.
            codec_header: &header[11..],
        };
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        bytes
    }

    fn chunk(&self, sequence: u64, recorded: Instant) -> Vec<u8> {
        let header = ChunkHeader {
            origin: origin_tag(self.node),
            epoch: self.epoch,
            sequence,
            first_frame: MediaTime(sequence * 960),
            recorded,
            wall_nanos: 0,
            frames: Frames(960),
        };
        let sample = |frame: u64| i16::try_from((sequence * 960 + frame) % 30_000).unwrap();
        let payload: Vec<u8> =
            (0..960).flat_map(|frame| [sample(frame).to_le_bytes(); 2].concat()).collect();
        let mut bytes = Vec::new();
        ChunkMessage { header, payload: &payload }.write(&mut bytes);
        bytes
    }

    /// The chunks that are complete.
    fn chunks(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut chunks = Vec::new();
        while self.next.1 + CHUNK <= self.clock.read(now) {
            if self.is_sending {
                chunks.push(self.chunk(self.next.0, self.next.1));
            }
            self.next = (self.next.0 + 1, self.next.1 + CHUNK);
        }
        chunks
    }

    /// The last chunk that was sent.
    fn last(&self) -> Vec<u8> {
        self.chunk(self.next.0 - 1, self.next.1 - CHUNK)
    }
}

struct World {
    input: NatsInput,
    items: Consumer<SourceItem>,
    now: Instant,
    origins: Vec<Origin>,
    samples: Vec<f32>,
    lost: u32,
    repairs: Vec<RepairRequest>,
}

impl World {
    /// A source and its origin, five seconds after they have connected.
    fn new() -> Self {
        let (sink, items, _) = SnapcastInputSink::new();
        let now = Instant::ZERO + Span::from_secs(1_000);
        let mut world = Self {
            input: NatsInput::new(
                NatsInputConfig { seed: 3, ..NatsInputConfig::default() },
                sink,
                now,
            ),
            items,
            now,
            origins: vec![Origin::new("one", 70, 9, now)],
            samples: Vec::new(),
            lost: 0,
            repairs: Vec::new(),
        };
        world.input.handle_input(now, NatsInputEvent::Connected);
        world.run(100);
        let record = world.origins[0].record();
        world.receive(NatsInputEvent::Record(&record));
        world.run(4_900);
        world
    }

    fn run(&mut self, millis: i64) {
        for _ in 0..millis / 10 {
            self.now += Span::from_millis(10);
            for origin in &mut self.origins {
                for chunk in origin.chunks(self.now) {
                    self.input.handle_input(self.now, NatsInputEvent::Chunk(&chunk));
                }
            }
            self.input.handle_timeout(self.now);
            while let Some(output) = self.input.poll_output() {
                let (node, id) = match output {
                    NatsInputOutput::AskTime { node, id } => (node, id),
                    NatsInputOutput::Repair(request) => {
                        self.repairs.push(request);
                        continue;
                    }
                };
                let asked = self.origins.iter().find(|origin| origin.node == node);
                let Some(origin) = asked.filter(|origin| origin.is_sending) else { continue };
                let sent = origin.clock.read(self.now);
                let reply = ClockReply { id, latency: sent - self.now, sent };
                let mut bytes = Vec::new();
                reply.write(&mut bytes);
                self.input.handle_input(self.now, NatsInputEvent::ClockReply(&bytes));
            }
            while let Some(item) = self.items.pop() {
                match item {
                    SourceItem::Block(block) => self.samples.extend(block.samples()),
                    SourceItem::Lost => self.lost += 1,
                    SourceItem::End => panic!("a live origin does not end"),
                }
            }
        }
    }

    fn receive(&mut self, event: NatsInputEvent<'_>) {
        self.input.handle_input(self.now, event);
    }

    /// What has been played since the last call is so long, and its samples count on without a gap.
    #[allow(clippy::cast_possible_truncation, reason = "samples of 16 bits")]
    fn check_played(&mut self, millis: std::ops::Range<i64>) {
        let frames: Vec<i32> =
            self.samples.iter().step_by(2).map(|sample| (sample * 32_768.0) as i32).collect();
        let played = i64::try_from(frames.len()).unwrap() / 48;
        assert!(millis.contains(&played), "{played} ms, {:?}", self.input);
        for pair in frames.windows(2) {
            assert_eq!(pair[1], (pair[0] + 1) % 30_000, "a gap");
        }
        self.samples.clear();
    }
}

#[test]
fn a_stream_is_played_bit_for_bit() {
    let mut world = World::new();
    // Its first chunk comes with the record, and is played a buffer later.
    world.check_played(3_700..4_000);
    world.run(60_000);
    world.check_played(59_900..60_100);
    let counts = world.input.counts();
    // Before the record had come.
    assert!((1..=5).contains(&counts.foreign), "{counts:?}");
    assert_eq!(counts.accepted + counts.foreign, world.origins[0].next.0);
    assert_eq!(world.input.playout_counts().gaps, 0);
}

#[test]
fn what_is_not_the_next_chunk_of_the_stream_is_counted_by_its_cause() {
    let mut world = World::new();
    let before = world.input.counts();
    world.samples.clear();
    for _ in 0..100 {
        world.run(30);
        let origin = &world.origins[0];
        let chunk = origin.last();
        let mut damaged = chunk.clone();
        damaged[60] ^= 1;
        let (sequence, recorded) = origin.next;
        let ahead = origin.chunk(sequence + 1_000_000, recorded);
        let foreign = Origin { epoch: 8, ..Origin::new("two", 90, 8, world.now) };
        let (other, older) = (foreign.chunk(sequence, recorded), foreign.record());
        world.receive(NatsInputEvent::Chunk(&chunk));
        world.receive(NatsInputEvent::Chunk(&damaged));
        world.receive(NatsInputEvent::Chunk(&chunk[..51]));
        world.receive(NatsInputEvent::Chunk(&ahead));
        world.receive(NatsInputEvent::Chunk(&other));
        world.receive(NatsInputEvent::Record(&older));
        world.receive(NatsInputEvent::ClockReply(&chunk));
        world.receive(NatsInputEvent::Overflow(2));
    }
    world.check_played(2_980..3_020);
    let counts = world.input.counts();
    let since: Vec<_> =
        counts.named().into_iter().zip(before.named()).map(|(a, b)| (a.0, a.1 - b.1)).collect();
    assert_eq!(
        since[1..],
        [
            ("malformed", 200),
            ("checksum", 100),
            ("foreign", 0),
            ("fenced", 200),
            ("repeated", 100),
            ("out_of_order", 0),
            ("implausible", 100),
            ("missing", 0),
            ("overflow", 200),
        ]
    );
}

/// A NATS server dies and another one carries on: the session with the origin survives, and what
/// was lost between is asked for and played at its time.
#[test]
fn what_nats_has_lost_is_repaired_without_a_gap() {
    let mut world = World::new();
    world.samples.clear();
    world.receive(NatsInputEvent::Disconnected(std::io::ErrorKind::ConnectionReset));
    world.now += Span::from_millis(200);
    let lost = world.origins[0].chunks(world.now);
    world.receive(NatsInputEvent::Connected);
    world.run(60);
    let [request] = world.repairs[..] else { panic!("{:?}", world.repairs) };
    assert_eq!(usize::from(request.count), lost.len());
    for (number, chunk) in lost.iter().enumerate() {
        let ChunkMessage { header, .. } = ChunkMessage::parse(chunk).unwrap();
        assert!(request.contains(header.epoch, header.sequence), "{number} {request:?}");
        // NATS may bring them twice.
        world.receive(NatsInputEvent::Chunk(chunk));
        world.receive(NatsInputEvent::Chunk(chunk));
    }
    world.run(5_000);
    world.check_played(5_200..5_300);
    let counts = world.input.counts();
    assert_eq!((counts.missing, counts.out_of_order), (lost.len() as u64, lost.len() as u64));
    assert_eq!((world.lost, world.input.playout_counts().gaps), (0, 0));
}

#[test]
fn a_chunk_that_was_overtaken_is_counted() {
    let mut world = World::new();
    world.origins[0].is_sending = false;
    let (sequence, recorded) = world.origins[0].next;
    let first = world.origins[0].chunk(sequence, recorded);
    let second = world.origins[0].chunk(sequence + 1, recorded + CHUNK);
    world.receive(NatsInputEvent::Chunk(&second));
    world.receive(NatsInputEvent::Chunk(&first));
    assert_eq!(world.input.counts().out_of_order, 1);
    assert_eq!(world.input.counts().missing, 1);
}

#[test]
fn the_sound_is_back_after_nats_was_away() {
    let mut world = World::new();
    world.samples.clear();
    world.receive(NatsInputEvent::Disconnected(std::io::ErrorKind::ConnectionReset));
    world.origins[0].is_sending = false;
    world.run(3_000);
    // What had come is played.
    world.check_played(950..1_050);
    assert_eq!(world.lost, 1);
    world.origins[0].is_sending = true;
    world.receive(NatsInputEvent::Connected);
    world.run(6_000);
    world.check_played(4_000..5_100);
}

#[test]
fn another_origin_takes_over_and_the_first_one_is_fenced_off() {
    let mut world = World::new();
    // The first origin is cut off from its lease and does not know it yet.
    world.samples.clear();
    let mut second = Origin::new("two", 500, 10, world.now);
    second.next.0 = 7;
    let record = second.record();
    world.origins.push(second);
    let accepted = world.input.counts().accepted;
    world.receive(NatsInputEvent::Record(&record));
    world.run(6_000);
    let counts = world.input.counts();
    assert!((299..=301).contains(&(counts.accepted - accepted)), "{counts:?}");
    assert!((299..=306).contains(&counts.fenced), "{counts:?}");
    // Its first chunk is played a buffer later: before that, nothing, and never both.
    world.check_played(4_500..5_050);
    let old = world.origins[0].record();
    world.receive(NatsInputEvent::Record(&old));
    world.run(1_000);
    world.check_played(950..1_050);
}

#[test]
fn an_epoch_without_chunks_does_not_keep_the_stream() {
    let mut world = World::new();
    let forged = Origin::new("forged", 3, u32::MAX, world.now).record();
    world.receive(NatsInputEvent::Record(&forged));
    world.run(4_000);
    world.samples.clear();
    // As the origin does every two seconds.
    let record = world.origins[0].record();
    world.receive(NatsInputEvent::Record(&record));
    world.run(4_000);
    world.check_played(2_000..3_100);
}

/// Two origins began in the same second, with the same epoch.
#[test]
fn chunks_of_two_origins_are_never_mixed() {
    let mut world = World::new();
    world.samples.clear();
    let mut twin = Origin::new("two", 71, 9, world.now);
    twin.next.0 = world.origins[0].next.0;
    let record = twin.record();
    world.origins.push(twin);
    world.receive(NatsInputEvent::Record(&record));
    world.run(10_000);
    world.check_played(9_950..10_050);
    // The first one ends. The other sends its record every two seconds.
    world.origins[0].is_sending = false;
    for _ in 0..3 {
        world.run(2_000);
        world.receive(NatsInputEvent::Record(&record));
    }
    world.samples.clear();
    world.run(5_000);
    world.check_played(4_000..5_050);
}

/// Of two holders of a lease, what the earlier one sends after the later one is never played,
/// however long the later one is quiet.
#[test]
fn an_older_epoch_is_never_played_after_a_newer_one() {
    let mut world = World::new();
    let mut second = Origin::new("two", 500, 10, world.now);
    second.is_leased = true;
    let record = second.record();
    world.origins[0].is_leased = true;
    world.origins.push(second);
    world.receive(NatsInputEvent::Record(&record));
    world.run(5_000);
    // The later holder is dead. The earlier one was stopped, and continues.
    world.origins[1].is_sending = false;
    world.run(5_000);
    world.samples.clear();
    let (accepted, old) = (world.input.counts().accepted, world.origins[0].record());
    for _ in 0..10 {
        world.receive(NatsInputEvent::Record(&old));
        world.run(2_000);
    }
    world.check_played(0..1);
    assert_eq!(world.input.counts().accepted, accepted);
    // The next holder has a higher epoch.
    world.origins[0].epoch = 11;
    world.receive(NatsInputEvent::Record(&world.origins[0].record()));
    world.run(6_000);
    world.check_played(3_500..5_100);
}
