//! A server in virtual time, whose samples count frames, and one that lies.

use aulos_core::{Block, ChannelLayout, Codec, Ppm, SampleRate, SampleSpec};
use aulos_engine::codec_guard::{CodecLibrary, fault};
use aulos_engine::encode::make_encoder;
use aulos_engine::ready_chunk::ReadyChunkSink;
use aulos_engine::source::SourceItem;
use aulos_engine::standby::{Standby, StandbyControl, standby_channel};
use aulos_proto::snap::client::DisconnectReason;
use aulos_proto::snap::wire::{MessageStamp, ServerMessage, WireTime, codec_header};
use aulos_rt::LatestReader;
use aulos_rt::ring::Consumer;
use aulos_sim::LocalClock;

use super::*;

mod pass;

const CHUNK_MS: i64 = 20;
const FRAMES: u64 = 960;
const DELAY: Span = Span::from_millis(1_000);

fn millis(millis: i64) -> Span {
    Span::from_millis(millis)
}

/// A source and its server.
struct World {
    input: SnapcastInput,
    items: Consumer<SourceItem>,
    state: LatestReader<SnapcastInputStatus>,
    standby: StandbyControl,
    now: Instant,
    clock: LocalClock,
    settings: ServerSettings,
    spec: SampleSpec,
    is_reachable: bool,
    is_connected: bool,
    /// Whether it sends chunks, and from when on what it has sent arrives.
    is_sending: bool,
    stalled_until: Instant,
    /// The next chunk.
    chunk: u64,
    stalled: Vec<u8>,
    attempts: u32,
    received: Vec<ReceivedBlock>,
    lost: u32,
}

/// A block, as the station gets it.
struct ReceivedBlock {
    received: Instant,
    pulled: Instant,
    rate: SampleRate,
    samples: Vec<f32>,
}

impl World {
    /// A source whose server's clock runs fast by `drift`, five seconds after they have connected.
    fn new(drift: i32) -> Self {
        Self::with(drift, None)
    }

    /// The same with a station to which chunks are passed.
    fn with(drift: i32, pass: Option<(PassConfig, ReadyChunkSink)>) -> Self {
        let (sink, items, state) = SnapcastInputSink::new();
        let (pass, sink) = match pass {
            Some((config, chunks)) => (Some(config), sink.with_ready_chunks(chunks)),
            None => (None, sink),
        };
        let (mut standby, handle) = standby_channel(Standby::Warm);
        standby.set_request(StandbyRequest::Play);
        let config =
            SnapcastInputConfig { hello: Hello::new("relay"), latency: Span::ZERO, pass, seed: 3 };
        let now = Instant::ZERO + Span::from_secs(1_000);
        let mut world = Self {
            input: SnapcastInput::new(config, sink.with_standby(Some(handle)), now),
            items,
            state,
            standby,
            now,
            clock: LocalClock::new(Instant::ZERO + Span::from_secs(70), Ppm::from_ppm(drift)),
            settings: ServerSettings { buffer: DELAY, ..ServerSettings::default() },
            spec: SampleSpec::DEFAULT,
            is_reachable: true,
            is_connected: false,
            is_sending: true,
            stalled_until: now,
            chunk: 0,
            stalled: Vec::new(),
            attempts: 0,
            received: Vec::new(),
            lost: 0,
        };
        world.chunk = world.current_chunk();
        world
    }

    /// A connected source without a stream, which has compared its clock.
    fn silent() -> Self {
        let mut world = Self::new(0);
        world.is_sending = false;
        world.run(1_000);
        world
    }

    fn server_now(&self) -> Instant {
        self.clock.read(self.now)
    }

    fn current_chunk(&self) -> u64 {
        u64::try_from(self.server_now().since(Instant::ZERO).as_millis() / CHUNK_MS).unwrap()
    }

    fn timestamp(chunk: u64) -> Instant {
        Instant::ZERO + millis(CHUNK_MS * i64::try_from(chunk).unwrap())
    }

    /// What a chunk holds: the low bits of the frame numbers.
    fn audio(&self, chunk: u64) -> Vec<u8> {
        let frames = u64::from(self.spec.rate.hz()) / 50;
        let frame = |number: u64| i16::try_from((chunk * frames + number) % 30_000).unwrap();
        let sample = |number| [frame(number).to_le_bytes(); 2].concat();
        (0..frames).flat_map(sample).collect()
    }

    fn run(&mut self, span: i64) {
        for _ in 0..span / 10 {
            self.now += millis(10);
            self.serve();
            self.input.handle_timeout(self.now);
            self.obey();
            self.pull();
        }
    }

    /// Sends the chunks that are complete.
    fn serve(&mut self) {
        let mut bytes = Vec::new();
        while self.chunk < self.current_chunk() {
            if self.is_connected && self.is_sending {
                let payload = self.audio(self.chunk);
                let timestamp = WireTime::from_instant(Self::timestamp(self.chunk));
                ServerMessage::WireChunk { timestamp, payload: &payload }
                    .write(MessageStamp::default(), &mut bytes);
            }
            self.chunk += 1;
        }
        self.stalled.extend(bytes);
        if self.now >= self.stalled_until {
            let bytes = core::mem::take(&mut self.stalled);
            self.input.handle_input(self.now, ClientInput::Received(&bytes));
        }
    }

    fn obey(&mut self) {
        while let Some(output) = self.input.poll_output() {
            match output {
                SnapcastInputOutput::Connect => {
                    self.attempts += 1;
                    if self.is_reachable {
                        self.is_connected = true;
                        self.input.connected(self.now);
                    } else {
                        let why = SnapcastInputError::Io(std::io::ErrorKind::ConnectionRefused);
                        self.input.disconnected(self.now, why);
                    }
                }
                SnapcastInputOutput::Send(ClientOutgoing::Hello { id, .. }) => {
                    self.message(id, ServerMessage::Settings(self.settings));
                    self.begin_stream(self.spec);
                }
                SnapcastInputOutput::Send(ClientOutgoing::Time { id }) => {
                    let server = WireTime::from_instant(self.server_now());
                    let local = WireTime::from_instant(self.now);
                    let latency = WireTime::from_micros(server.as_micros() - local.as_micros());
                    let stamp = MessageStamp {
                        refers_to: id,
                        sent: server,
                        received: server,
                        ..MessageStamp::default()
                    };
                    let mut bytes = Vec::new();
                    ServerMessage::Time { latency }.write(stamp, &mut bytes);
                    self.input.handle_input(self.now, ClientInput::Received(&bytes));
                }
                SnapcastInputOutput::Send(other) => panic!("{other:?}"),
                SnapcastInputOutput::Disconnect => self.is_connected = false,
            }
        }
    }

    fn pull(&mut self) {
        while let Some(item) = self.items.pop() {
            match item {
                SourceItem::Block(block) => self.received.push(ReceivedBlock {
                    received: block.received,
                    pulled: self.now,
                    rate: block.rate(),
                    samples: block.samples().to_vec(),
                }),
                SourceItem::Lost => self.lost += 1,
                SourceItem::End => panic!("a live server does not end"),
            }
        }
    }

    fn message(&mut self, refers_to: u16, message: ServerMessage<'_>) {
        let mut bytes = Vec::new();
        message.write(MessageStamp { refers_to, ..MessageStamp::default() }, &mut bytes);
        self.input.handle_input(self.now, ClientInput::Received(&bytes));
    }

    fn begin_stream(&mut self, spec: SampleSpec) {
        self.spec = spec;
        let message = codec_header(Codec::Pcm, spec, &[]).unwrap();
        // Behind the name and two lengths.
        self.message(0, ServerMessage::CodecHeader { codec: b"pcm", header: &message[11..] });
    }

    fn send(&mut self, timestamp: Instant, payload: &[u8]) {
        let timestamp = WireTime::from_instant(timestamp);
        self.message(0, ServerMessage::WireChunk { timestamp, payload });
    }

    /// The server is gone.
    fn break_off(&mut self) {
        (self.is_connected, self.is_reachable) = (false, false);
        self.stalled.clear();
        self.input.disconnected(self.now, SnapcastInputError::Closed);
    }

    fn status(&mut self) -> SnapcastInputStatus {
        self.state.read().clone()
    }

    fn error(&mut self) -> Option<SnapcastInputError> {
        self.status().error
    }

    /// All samples of the first channel, as they were sent.
    fn frames(&self) -> Vec<i64> {
        let samples = self.received.iter().flat_map(|block| block.samples.iter().step_by(2));
        #[allow(clippy::cast_possible_truncation, reason = "16 bits")]
        samples.map(|sample| (sample * 32_768.0) as i64).collect()
    }

    /// How often frame numbers do not follow each other.
    fn breaks(&self) -> usize {
        let frames = self.frames();
        frames.windows(2).filter(|pair| (pair[0] + 1) % 30_000 != pair[1]).count()
    }
}

#[test]
fn every_frame_arrives_unchanged_at_the_pace_of_the_servers_clock() {
    for drift in [-200, 0, 100] {
        let mut world = World::new(drift);
        // The volume is for loudspeakers.
        (world.settings.volume, world.settings.muted) = (10, true);
        world.run(120_000);
        assert_eq!((world.breaks(), world.lost, world.error()), (0, 0, None));
        let frames = world.frames().len() as u64;
        assert!(frames >= FRAMES * 50 * 118, "{frames}");
        // After the clock is known, arrivals are exact in the server's time.
        let blocks = &world.received[500..];
        let (first, last) = (&blocks[0], blocks.last().unwrap());
        let sent = millis(CHUNK_MS * i64::try_from(blocks.len() - 1).unwrap());
        let took = world.clock.read(last.received) - world.clock.read(first.received);
        assert!((took - sent).abs() < Span::from_micros(50), "{took:?} {sent:?}");
        for block in blocks {
            let late = block.pulled - block.received;
            assert!((Span::ZERO..=millis(10)).contains(&late), "{late:?}");
        }
    }
}

#[test]
fn a_stalled_network_is_covered_by_the_servers_buffer() {
    let mut world = World::new(20);
    for stall in [200, 900] {
        world.run(5_000);
        world.stalled_until = world.now + millis(stall);
    }
    world.run(5_000);
    assert_eq!((world.breaks(), world.lost), (0, 0));
    // A longer one is not: what is too late is not played, and the rest is in time again.
    world.stalled_until = world.now + millis(2_000);
    world.run(5_000);
    assert_eq!((world.breaks(), world.status().counts.late >= 30), (1, true));
    let last = world.received.last().unwrap();
    assert!(last.pulled - last.received <= millis(10));
    assert_eq!(world.error(), None);
}

#[test]
fn what_is_missing_after_a_short_interruption_is_silence_of_the_same_length() {
    let mut world = World::new(0);
    world.run(5_000);
    world.input.disconnected(world.now, SnapcastInputError::Closed);
    world.is_connected = false;
    world.run(5_000);
    let status = world.status();
    assert_eq!((status.counts.gaps, status.counts.failures, world.lost), (1, 1, 0), "{status:?}");
    assert_eq!(status.error, None);
    let frames = world.frames();
    let silent = frames.windows(2).filter(|pair| *pair == [0, 0]).count();
    assert!((100..=24_000).contains(&silent), "{silent}");
    // The timeline goes on behind the gap.
    let begin = frames.iter().position(|frame| *frame > 0).unwrap();
    let count = i64::try_from(frames.len() - begin).unwrap();
    assert_eq!(frames.last().unwrap(), &((frames[begin] + count - 1) % 30_000));
}

#[test]
fn a_lost_server_is_played_to_its_end_and_is_asked_again_ever_more_rarely() {
    let mut world = World::new(0);
    world.run(5_000);
    world.break_off();
    let before = world.received.len();
    world.run(900);
    assert_eq!((world.lost, world.received.len() - before), (0, 45));
    world.run(200);
    assert_eq!(world.lost, 1);
    let refused = SnapcastInputError::Io(std::io::ErrorKind::ConnectionRefused);
    world.run(120_000);
    assert_eq!(world.error(), Some(refused));
    assert!((6..30).contains(&world.attempts), "{}", world.attempts);
    world.is_reachable = true;
    // A clock that has begun again, as that of another machine.
    world.clock = LocalClock::new(Instant::ZERO, Ppm::ZERO);
    world.chunk = world.current_chunk();
    let before = world.received.len();
    world.run(40_000);
    assert!(world.received.len() - before > 200 && world.error().is_none());
    assert_eq!(world.lost, 1);
}

#[test]
fn another_stream_begins_when_the_one_before_is_played() {
    let mut world = World::new(0);
    world.run(5_000);
    assert_eq!(world.breaks(), 0);
    world.begin_stream("44100:16:2".parse().unwrap());
    world.run(3_000);
    // A stream that is replaced before it begins is not played.
    world.begin_stream("22050:16:2".parse().unwrap());
    world.begin_stream("32000:16:2".parse().unwrap());
    world.run(5_000);
    let mut seconds = [0.0; 3];
    for block in &world.received {
        let found = [48_000, 44_100, 32_000].iter().position(|hz| *hz == block.rate.hz());
        seconds[found.unwrap()] += block.samples.len() as f64 / 2.0 / f64::from(block.rate.hz());
    }
    for (seconds, least) in seconds.into_iter().zip([4.9, 2.9, 3.9]) {
        assert!(seconds >= least && seconds < least + 0.2, "{seconds} of {least}");
    }
    let times: Vec<_> = world.received.iter().map(|block| block.received).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= millis(CHUNK_MS + 1)));
    assert_eq!(world.status().stream.map(|stream| stream.spec.rate.hz()), Some(32_000));
}

#[test]
fn latency_here_and_there_plays_earlier() {
    for (here, there, delay) in [(0, 0, 1_000), (300, 0, 700), (100, 200, 700), (5_000, 0, 0)] {
        let mut world = World::new(0);
        world.input.config.latency = millis(here);
        world.settings.latency = millis(there);
        world.run(5_000);
        let last = world.received.last().unwrap();
        // Without any delay, a chunk is as late as it takes to record it.
        let chunk = i64::try_from(world.chunk).unwrap() - delay / CHUNK_MS;
        #[allow(clippy::cast_possible_truncation, reason = "16 bits")]
        let first = (last.samples[0] * 32_768.0) as i64;
        let number = (chunk * i64::try_from(FRAMES).unwrap()) % 30_000;
        let distance = (first - number).abs();
        assert!(distance <= 960 || distance >= 29_040, "{here} {there}: {first} {number}");
        assert_eq!(world.breaks(), 0);
    }
}

#[test]
fn what_is_not_needed_is_dropped_and_what_is_cold_is_closed() {
    let mut world = World::new(0);
    world.run(3_000);
    world.standby.set_request(StandbyRequest::StayOpen);
    world.run(10);
    let before = world.received.len();
    world.run(5_000);
    assert_eq!((world.received.len(), world.is_connected), (before, true));
    world.standby.set_request(StandbyRequest::Play);
    world.run(2_000);
    assert!(world.received.len() > before + 40);
    world.standby.set_request(StandbyRequest::Close);
    world.run(2_000);
    assert!(!world.is_connected && world.attempts == 1);
    world.standby.set_request(StandbyRequest::Play);
    let before = world.received.len();
    world.run(3_000);
    assert!(world.received.len() > before + 40 && world.attempts == 2 && world.lost == 0);
}

#[test]
fn chunks_of_the_past_and_of_next_year_are_dropped_and_end_the_connection() {
    let year = Span::from_secs(31_536_000);
    for (off, counter) in [(year, 0), (Span::from_secs(-60), 1), (Span::from_secs(-3_000_000), 1)] {
        let mut world = World::silent();
        // A hundred a second.
        for number in 0..600 {
            world.send(world.server_now() + off + millis(number), &[1; 3_840]);
            world.run(10);
        }
        let status = world.status();
        assert_eq!(status.error, Some(SnapcastInputError::Timestamps), "{status:?}");
        let counts = [status.counts.early, status.counts.late];
        assert!(counts[counter] >= 400, "{status:?}");
        assert!(world.received.is_empty() && !world.is_connected);
    }
    // Among others they do not matter.
    let mut world = World::new(0);
    world.run(3_000);
    for _ in 0..100 {
        world.send(world.server_now() + year, &[1; 3_840]);
        world.run(100);
    }
    assert_eq!((world.breaks(), world.error()), (0, None));
}

/// Two sources of one thread, with the same chunks of Opus. The library panics in the first one at
/// a chunk, if one is given.
fn two_sources_of_opus(fault: Option<i64>) -> [World; 2] {
    let mut encoder = make_encoder(Codec::Opus, SampleSpec::DEFAULT, Frames(960)).unwrap();
    let mut block = Block::with_capacity(SampleRate::HZ_48000, ChannelLayout::STEREO, 1_920);
    block.resize(Frames(960));
    block.samples_mut().fill(0.25);
    let mut both = [World::silent(), World::silent()];
    let message = codec_header(Codec::Opus, SampleSpec::DEFAULT, &[]).unwrap();
    for world in &mut both {
        // Behind the name and two lengths.
        world.message(0, ServerMessage::CodecHeader { codec: b"opus", header: &message[12..] });
    }
    for number in 0..150 {
        let mut chunk = Vec::new();
        encoder.encode(&block, &mut chunk).unwrap();
        for (at, world) in both.iter_mut().enumerate() {
            if fault == Some(number) && at == 0 {
                fault::plan(CodecLibrary::UnsafeLibopus, 0);
            }
            world.send(world.server_now(), &chunk);
            world.run(CHUNK_MS);
            assert!(!fault::is_planned() || at == 0, "the neighbour is not hit");
        }
    }
    both.iter_mut().for_each(|world| world.run(2_000));
    both
}

#[test]
fn a_panic_of_the_codec_costs_a_chunk_of_one_source() {
    let samples = |world: &World| -> Vec<f32> {
        world.received.iter().flat_map(|block| block.samples.clone()).collect()
    };
    let [_, undisturbed] = two_sources_of_opus(None);
    let [mut hit, mut neighbor] = two_sources_of_opus(Some(120));
    assert!(samples(&neighbor) == samples(&undisturbed), "the neighbour changed");
    assert_eq!(neighbor.status().counts.codec_panics, 0);
    let counts = hit.status().counts;
    assert_eq!((counts.codec_panics, counts.damaged, counts.gaps), (1, 1, 1), "{counts:?}");
    assert_eq!(samples(&hit).len(), samples(&undisturbed).len(), "silence in place of the chunk");
}

#[test]
fn damage_is_counted_and_nothing_but_damage_ends_the_connection() {
    let mut world = World::silent();
    for number in 0..600_i64 {
        let payload: &[u8] = if number < 200 && number % 2 == 0 { &[1; 3_840] } else { &[1; 3] };
        world.send(world.server_now(), payload);
        world.run(CHUNK_MS);
    }
    let status = world.status();
    assert_eq!(status.error, Some(SnapcastInputError::Undecodable), "{status:?}");
    assert!(status.counts.played >= 90 && status.counts.damaged >= 300, "{status:?}");
}

#[test]
fn a_flood_is_bounded() {
    let mut world = World::silent();
    let now = world.server_now();
    for number in 0..20_000_i64 {
        world.send(now + Span::from_micros(number * 10), &[1; 4]);
    }
    for number in 0..100_i64 {
        world.send(now + millis(1_000 + number), &[1; 900_000]);
    }
    assert!(world.input.streams[0].queue.len() <= 6_000);
    assert!(world.input.counts().dropped >= 14_000);
    // Without a station that takes it, nothing grows either.
    for _ in 0..1_000 {
        world.now += millis(10);
        world.input.handle_timeout(world.now);
    }
    assert!(world.input.decoded.samples.len() <= 2 * 65_536);
}

#[test]
fn a_server_that_breaks_the_protocol_is_left_with_a_reason() {
    let lying = {
        let mut bytes = Vec::new();
        let timestamp = WireTime::ZERO;
        ServerMessage::WireChunk { timestamp, payload: &[0; 100] }
            .write(MessageStamp::default(), &mut bytes);
        // The inner length says more than the message has.
        bytes[34..38].copy_from_slice(&u32::MAX.to_le_bytes());
        bytes
    };
    let mut huge = lying.clone();
    huge[22..26].copy_from_slice(&u32::MAX.to_le_bytes());
    for (bytes, reason) in [
        (vec![0xff; 64], DisconnectReason::BadType),
        (lying, DisconnectReason::Malformed),
        (huge, DisconnectReason::TooLarge),
    ] {
        let mut world = World::silent();
        world.input.handle_input(world.now, ClientInput::Received(&bytes));
        world.run(20);
        assert_eq!(world.error(), Some(SnapcastInputError::Protocol(reason)));
        assert!(!world.is_connected);
    }
    let mut world = World::silent();
    let refusal = ServerMessage::Error { code: 401, error: b"no", detail: b"" };
    world.message(0, refusal);
    world.run(20);
    let error = world.error().unwrap();
    assert!(error.to_string().contains("code 401") && error.to_string().contains("password"));
}

#[test]
fn a_stream_that_cannot_be_played_is_named() {
    let header = vec![7; 900_000];
    for (codec, part) in [("ogg", "sends `ogg`"), ("null", "`null`"), ("flac", "flac stream")] {
        let mut world = World::silent();
        world.message(0, ServerMessage::CodecHeader { codec: codec.as_bytes(), header: &header });
        world.run(20);
        let error = world.error().unwrap();
        assert!(error.to_string().contains(part), "{error}");
        assert!(!world.is_connected);
    }
}

#[test]
fn a_server_without_answers_is_left() {
    let mut world = World::new(0);
    world.run(3_000);
    // It accepts connections and says nothing.
    world.is_connected = false;
    for _ in 0..300 {
        world.now += millis(10);
        world.input.handle_timeout(world.now);
        while world.input.poll_output().is_some() {}
        world.pull();
    }
    assert_eq!(world.error(), Some(SnapcastInputError::Protocol(DisconnectReason::NoAnswer)));
    assert_eq!(world.lost, 1);
}
