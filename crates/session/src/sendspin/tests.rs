//! Servers in virtual time, whose samples count frames, and servers that lie.

use std::collections::BTreeMap;

use aulos_core::{Codec, Ppm, SampleSpec};
use aulos_engine::source::SourceItem;
use aulos_proto::sendspin::{
    Admission, AdmissionInput, AdmissionOutput, ArtworkFormat, ArtworkRendition, ArtworkUpdate,
    AudioChunk, ClientSession, ClientSessionEvent, ClientSessionOutput, ControllerCommand,
    ControllerState, RoomState, ServerInfo, SessionMessage, SupportedFormat, TransportCommand,
    Trust,
};
use aulos_proto::snap::wire::{ServerSettings, codec_header};
use aulos_proto::ws::{FrameKind, WsMessage, WsReader};
use aulos_rt::LatestReader;
use aulos_rt::ring::{Consumer, Producer};
use aulos_sim::LocalClock;

use super::*;

const CHUNK: Span = Span::from_millis(20);
const FRAMES: i64 = 960;
const DELAY: Span = Span::from_millis(1_400);

fn millis(millis: i64) -> Span {
    Span::from_millis(millis)
}

/// A server and its end of a connection.
struct Server {
    clock: LocalClock,
    admission: Admission,
    session: Option<ClientSession>,
    commands: Vec<ControllerCommand>,
    is_gone: bool,
}

struct World {
    input: SendspinInput,
    items: Consumer<SourceItem>,
    status: LatestReader<SendspinInputStatus>,
    commands: Producer<SourceCommand>,
    now: Instant,
    servers: BTreeMap<u32, Server>,
    connects: u32,
    samples: Vec<f32>,
    /// From the time at which the first sample counts as received to that of the last.
    received: Vec<(Instant, usize)>,
    lost: u32,
}

impl World {
    fn new() -> Self {
        let (sink, handles) = SendspinInputSink::new();
        let SendspinInputHandles { items, status, commands } = handles;
        let pcm = SupportedFormat { codec: Codec::Pcm, channels: 2, hz: 48_000, bits: 16 };
        let config = SendspinInputConfig {
            identity: Arc::new(ClientIdentity::new([6; 32])),
            hello: PlayerHello {
                name: "house".to_owned(),
                version: "1".to_owned(),
                formats: vec![pcm],
                buffer_capacity: 2_000_000,
                unpaired_access: true,
            },
            delay: DELAY,
            connects: true,
            seed: [3; 32],
        };
        let now = Instant::ZERO + Span::from_secs(1_000);
        Self {
            input: SendspinInput::new(config, sink, now),
            items,
            status,
            commands,
            now,
            servers: BTreeMap::new(),
            connects: 0,
            samples: Vec::new(),
            received: Vec::new(),
            lost: 0,
        }
    }

    /// A server that plays, whose clock runs fast by `ppm`.
    fn playing(ppm: i32) -> Self {
        let mut world = Self::new();
        world.connect(1, ppm);
        world.run(200);
        world.start_stream(1);
        world
    }

    fn connect(&mut self, number: u32, ppm: i32) {
        let clock = LocalClock::new(Instant::ZERO + Span::from_secs(70), Ppm::from_ppm(ppm));
        let info = Arc::new(ServerInfo::new(format!("server {number}"), [7; 32]));
        let [seed, ..] = number.to_le_bytes();
        let admission = Admission::new(info, [seed; 32], clock.read(self.now));
        let server =
            Server { clock, admission, session: None, commands: Vec::new(), is_gone: false };
        self.servers.insert(number, server);
        assert!(self.input.connected(self.now, number));
    }

    fn start_stream(&mut self, number: u32) {
        let header = codec_header(Codec::Pcm, SampleSpec::DEFAULT, &[]).unwrap();
        self.session(number).set_stream(&header);
        self.run(0);
    }

    fn session(&mut self, number: u32) -> &mut ClientSession {
        self.servers.get_mut(&number).unwrap().session.as_mut().unwrap()
    }

    fn server_now(&self, number: u32) -> Instant {
        self.servers[&number].clock.read(self.now)
    }

    /// Sends the chunk with these frames, due `ahead` from now.
    fn send(&mut self, number: u32, (first, ahead): (i64, Span)) -> Instant {
        let at = self.server_now(number) + ahead;
        self.send_at(number, at, &payload(first));
        at
    }

    /// Lets the server show a picture, or none, at a time `ahead` from now.
    fn show_picture(&mut self, number: u32, picture: Option<&[u8]>, ahead: Span) {
        let jpeg = ArtworkRendition { format: ArtworkFormat::Jpeg, width: 640, height: 640 };
        let renditions = [Some(jpeg), None, None, None];
        let pictures = [picture.map(Arc::from), None, None, None];
        let at = self.server_now(number) + ahead;
        let (mut frames, mut writer) = (Vec::new(), WsWriter::default());
        let session = self.session(number);
        session.set_artwork(&ArtworkUpdate { renditions, pictures });
        while session.write_artwork(at, &mut writer, &mut frames) {}
        assert!(!frames.is_empty());
        self.push_to_input(number, &frames);
    }

    fn send_at(&mut self, number: u32, at: Instant, payload: &[u8]) {
        let buffer = ServerSettings::default().buffer;
        let now = self.server_now(number);
        let mut frames = Vec::new();
        let chunk = AudioChunk { timestamp: at - buffer, duration: CHUNK, payload };
        let session = self.session(number);
        session.write_chunk(chunk, now, &mut WsWriter::default(), &mut frames);
        self.push_to_input(number, &frames);
    }

    /// Sends chunks of frames from `first` on, the first due `ahead` from now, while they sound.
    fn play(&mut self, number: u32, first: i64, chunks: i64, ahead: Span) -> Instant {
        let begin = self.server_now(number) + ahead;
        for chunk in 0..chunks {
            self.send_at(number, begin + CHUNK * chunk, &payload(first + chunk * FRAMES));
            self.run(20);
        }
        begin
    }

    fn run(&mut self, duration: i64) {
        let end = self.now + millis(duration);
        loop {
            self.input.handle_timeout(self.now);
            while self.carry() {}
            self.take();
            if self.now >= end {
                return;
            }
            self.now += millis(5);
        }
    }

    fn take(&mut self) {
        while let Some(item) = self.items.pop() {
            match item {
                SourceItem::Block(block) => {
                    self.received.push((block.received, self.samples.len() / 2));
                    self.samples.extend(block.samples());
                }
                SourceItem::Lost => self.lost += 1,
                _ => {}
            }
        }
    }

    fn carry(&mut self) -> bool {
        let mut is_busy = false;
        while let Some(output) = self.input.poll_output() {
            is_busy = true;
            match output {
                SendspinInputOutput::Connect => self.connects += 1,
                SendspinInputOutput::Disconnect(number) => {
                    self.servers.entry(number).and_modify(|server| server.is_gone = true);
                }
                SendspinInputOutput::Send(number, message) => {
                    let mut frames = Vec::new();
                    let message = (number, message);
                    self.input.write(message, self.now, &mut WsWriter::default(), &mut frames);
                    let Some(server) = self.servers.get_mut(&number) else { continue };
                    let now = server.clock.read(self.now);
                    messages(&frames, |is_text, message| server.receive(now, is_text, message));
                }
            }
        }
        for number in self.servers.keys().copied().collect::<Vec<_>>() {
            let server = self.servers.get_mut(&number).unwrap();
            let frames = server.answers(server.clock.read(self.now));
            is_busy |= !frames.is_empty();
            self.push_to_input(number, &frames);
        }
        is_busy
    }

    fn push_to_input(&mut self, number: u32, frames: &[u8]) {
        if !self.servers[&number].is_gone {
            messages(frames, |is_text, message| {
                self.input.handle_message(self.now, number, is_text, message);
            });
        }
    }

    /// The first of the samples that came since `from`, as frame numbers.
    fn frames(&self, from: usize) -> Vec<i64> {
        #[allow(clippy::cast_possible_truncation, reason = "16 bits")]
        let number = |sample: f32| (sample * 32_768.0).round() as i64;
        self.samples.chunks(2).skip(from).map(|frame| number(frame[0])).collect()
    }
}

impl Server {
    fn receive(&mut self, now: Instant, is_text: bool, message: &[u8]) {
        match (&mut self.session, is_text) {
            (Some(session), _) => session.receive(now, is_text, message),
            (None, true) => self.admission.handle_input(now, AdmissionInput::Text(message)),
            (None, false) => self.admission.handle_input(now, AdmissionInput::Binary(message)),
        }
    }

    fn answers(&mut self, now: Instant) -> Vec<u8> {
        let (mut frames, mut writer) = (Vec::new(), WsWriter::default());
        while let Some(output) = self.admission.poll_output() {
            match output {
                AdmissionOutput::SendText(text) => {
                    writer.write(FrameKind::Text, text.as_bytes(), &mut frames);
                }
                AdmissionOutput::SendBinary(message) => {
                    writer.write(FrameKind::Binary, &message, &mut frames);
                }
                AdmissionOutput::Ask(_) => {
                    let trust = Trust { is_approved: true, ..Trust::default() };
                    self.admission.handle_input(now, AdmissionInput::Trust(trust));
                }
                AdmissionOutput::Done(client) => {
                    let mut session = ClientSession::new(client.hello, client.cipher, now);
                    session.set_settings(now, ServerSettings::default());
                    session.set_room(Arc::new(room("one")));
                    self.session = Some(session);
                }
                _ => {}
            }
        }
        while let Some(session) = &mut self.session
            && let Some(output) = session.poll_output()
        {
            match output {
                ClientSessionOutput::Send(message) => {
                    session.write(&message, now, &mut writer, &mut frames);
                }
                ClientSessionOutput::Event(ClientSessionEvent::Command(command)) => {
                    self.commands.push(command);
                }
                _ => {}
            }
        }
        frames
    }
}

fn messages(mut frames: &[u8], mut handle: impl FnMut(bool, &[u8])) {
    let mut reader = WsReader::from_server();
    while let Some(message) = reader.next(&mut frames).unwrap() {
        match message {
            WsMessage::Text(text) => handle(true, text),
            WsMessage::Binary(bytes) => handle(false, bytes),
            other => panic!("{other:?}"),
        }
    }
}

/// A chunk whose samples are the numbers of its frames.
fn payload(first: i64) -> Vec<u8> {
    let frame = |number: i64| i16::try_from(number % 30_000).unwrap().to_le_bytes();
    (first..first + FRAMES).flat_map(|number| [frame(number), frame(number)].concat()).collect()
}

fn room(title: &str) -> RoomState {
    RoomState {
        group_id: "group".to_owned(),
        group_name: "Group".to_owned(),
        playback: PlaybackState::Playing,
        track: TrackInfo { title: Some(title.to_owned()), ..TrackInfo::default() },
        controller: ControllerState { can_skip: true, ..ControllerState::default() },
    }
}

#[test]
fn sound_goes_to_the_station_the_delay_before_its_time() {
    for ppm in [0, 80, -80] {
        let mut world = World::playing(ppm);
        let begin = world.play(1, 0, 300, millis(1_600));
        let end = begin + CHUNK * 300;
        while world.server_now(1) < end {
            world.run(5);
        }
        let frames = world.frames(0);
        let expected: Vec<i64> = (0..300 * FRAMES).map(|frame| frame % 30_000).collect();
        assert!(frames == expected, "{} of {}", frames.len(), expected.len());
        // A block counts as received when it is complete, as sound of the own clock.
        let clock = world.servers[&1].clock;
        for (received, first) in &world.received {
            let chunk = i64::try_from(*first).unwrap() / FRAMES;
            let sounds = *received + DELAY - CHUNK;
            let error = clock.read(sounds) - (begin + CHUNK * chunk);
            assert!(error.abs() < Span::from_micros(100), "{ppm} ppm: {error:?} at {first}");
        }
        let status = world.status.read();
        assert_eq!((status.counts.played, status.counts.late, status.counts.gaps), (300, 0, 0));
        assert_eq!(status.track.as_ref().unwrap().title.as_deref(), Some("one"));
        assert_eq!(status.server.as_ref().unwrap().name, "server 1");
        assert_eq!(world.session(1).lead().output_delay, DELAY);
    }
}

#[test]
fn a_picture_is_shown_at_its_time_and_goes_with_its_server() {
    let mut world = World::playing(0);
    let shown = |world: &mut World| world.status.read().artwork.clone();
    world.show_picture(1, Some(&[7; 90_000]), Span::ZERO);
    world.run(10);
    assert_eq!(shown(&mut world).as_deref(), Some(&[7; 90_000][..]));
    // One that is to be shown with sound that has not come yet.
    world.show_picture(1, Some(&[8; 10]), DELAY + millis(500));
    world.run(450);
    assert_eq!(shown(&mut world).as_deref(), Some(&[7; 90_000][..]));
    world.run(100);
    assert_eq!(shown(&mut world).as_deref(), Some(&[8; 10][..]));
    world.show_picture(1, None, Span::ZERO);
    world.run(10);
    assert_eq!(shown(&mut world), None);
    world.show_picture(1, Some(&[9; 10]), Span::ZERO);
    world.run(10);
    assert!(shown(&mut world).is_some());
    world.input.disconnected(world.now, Some(1), SendspinInputError::Closed);
    world.run(10);
    assert_eq!(shown(&mut world), None);
}

/// aiosendspin sends what it keeps twice to a player that joins while it plays.
#[test]
fn what_is_sent_twice_is_played_once() {
    let mut world = World::playing(0);
    let begin = world.server_now(1) - millis(300);
    for _ in 0..2 {
        for chunk in 0..150 {
            world.send_at(1, begin + CHUNK * chunk, &payload(chunk * FRAMES));
        }
    }
    world.run(3_000);
    let frames = world.frames(0);
    // What was over already is left out, and nothing else.
    let first = frames[0];
    assert!(frames.iter().copied().eq((first..).take(frames.len()).map(|frame| frame % 30_000)));
    let counts = world.status.read().counts;
    assert_eq!((counts.repeated, counts.late + counts.played), (150, 150));
    assert!(counts.late >= 80 && counts.late <= 90, "{counts:?}");
}

#[test]
fn a_cleared_stream_fades_and_goes_on_and_an_ended_one_is_lost() {
    let mut world = World::playing(0);
    world.play(1, 0, 100, millis(1_600));
    let before = world.samples.len() / 2;
    // The server begins anew, and the queue has what is not due.
    world.session(1).set_stream(&codec_header(Codec::Pcm, SampleSpec::DEFAULT, &[]).unwrap());
    world.run(5);
    let frames = world.frames(before);
    assert_eq!(frames.len(), 480);
    assert!(frames[0] > 0 && frames[479] == 0, "{:?}", (frames[0], frames[479]));
    let dropped = world.status.read().counts.dropped;
    assert!(dropped > 0);
    let before = world.samples.len() / 2;
    world.play(1, 5_000, 100, millis(1_600));
    world.run(300);
    let frames = world.frames(before);
    assert!(frames.iter().copied().eq((5_000..).take(frames.len()).map(|frame| frame % 30_000)));
    assert_eq!(world.lost, 0);
    world.session(1).end_stream();
    world.run(50);
    assert_eq!((world.lost, world.status.read().stream), (1, None));
    assert!(world.status.read().server.is_some());
}

#[test]
fn a_server_that_goes_is_played_out_and_contacted_again() {
    let mut world = World::playing(0);
    world.play(1, 0, 50, millis(1_600));
    let before = world.connects;
    world.servers.get_mut(&1).unwrap().is_gone = true;
    world.input.disconnected(world.now, Some(1), SendspinInputError::Closed);
    assert_eq!(world.lost, 0);
    world.run(2_000);
    assert_eq!((world.lost, world.samples.len() / 2), (1, 50 * 960));
    let status = world.status.read();
    assert_eq!((&status.error, &status.server), (&Some(SendspinInputError::Closed), &None));
    assert!(world.connects > before);
    world.connect(2, 0);
    world.run(200);
    world.start_stream(2);
    world.play(2, 0, 100, millis(1_600));
    assert_eq!(world.status.read().error, None);
}

#[test]
fn commands_reach_the_server_that_has_the_source() {
    let mut world = World::playing(0);
    let all = world.status.read().commands;
    assert!(all.next && all.previous && !all.seek);
    for command in [TransportCommand::Next, TransportCommand::Seek(5)] {
        world.commands.push(SourceCommand::Transport(command)).unwrap();
    }
    world.run(20);
    assert_eq!(world.servers[&1].commands, [ControllerCommand::Next]);
    world.commands.push(SourceCommand::Delay(millis(6_100))).unwrap();
    world.run(20);
    let lead = world.session(1).lead();
    assert_eq!((lead.output_delay, lead.min_buffer), (MAX_OUTPUT_DELAY, millis(1_350)));
}

#[test]
fn another_server_that_plays_takes_the_place_and_a_fifth_is_refused() {
    let mut world = World::playing(0);
    world.connect(2, 40);
    world.run(200);
    assert!(world.servers[&1].is_gone && !world.servers[&2].is_gone);
    assert_eq!(world.status.read().server.as_ref().unwrap().name, "server 2");
    assert_eq!(world.status.read().counts.failures, 0);
    world.start_stream(2);
    world.play(2, 0, 100, millis(1_600));
    assert!(world.status.read().counts.played > 0);
    // Strangers that say nothing.
    for number in 10..13 {
        assert!(world.input.connected(world.now, number));
    }
    assert!(!world.input.connected(world.now, 13));
    for number in 10..13 {
        world.input.disconnected(world.now, Some(number), SendspinInputError::Closed);
    }
    world.run(40);
    assert!(world.status.read().error.is_none(), "{:?}", world.status.read().error);
}

#[test]
fn times_that_jump_and_chunks_of_a_wrong_size_are_counted_and_end_the_connection_in_the_end() {
    let mut world = World::playing(0);
    world.play(1, 0, 100, millis(1_600));
    let at = world.send(1, (0, Span::from_secs(3_600)));
    world.send_at(1, at - Span::from_secs(7_200), &payload(0));
    world.send(1, (0, Span::from_secs(2)));
    world.send_at(1, world.server_now(1) + millis(2_020), &[1]);
    world.send_at(1, world.server_now(1) + millis(2_040), &[]);
    world.run(1_500);
    let counts = world.status.read().counts;
    assert_eq!((counts.early, counts.repeated, counts.damaged), (1, 1, 2), "{counts:?}");
    let mut world = World::playing(0);
    let begin = world.now;
    while !world.servers[&1].is_gone {
        let at = world.server_now(1) - Span::from_secs(9);
        world.send_at(1, at, &payload(0));
        world.run(20);
    }
    assert!(world.now - begin >= MAX_UNUSABLE && world.now - begin < MAX_UNUSABLE * 2);
    world.run(20);
    assert_eq!(world.status.read().error, Some(SendspinInputError::Timestamps));
}

#[test]
fn a_flood_of_chunks_and_titles_is_bounded() {
    let mut world = World::playing(0);
    for number in 0..2_000 {
        let title = Arc::new(room(&number.to_string()));
        let message = SessionMessage::Track(title.track.clone());
        let (mut frames, now) = (Vec::new(), world.server_now(1));
        world.session(1).write(&message, now, &mut WsWriter::default(), &mut frames);
        world.push_to_input(1, &frames);
    }
    assert!(world.input.tracks.len() <= MAX_TRACKS);
    let begin = world.server_now(1) + Span::from_secs(5);
    for chunk in 0..40_000 {
        world.send_at(1, begin + Span::from_micros(500) * chunk, &payload(0));
    }
    let queue = &world.input.streams[0].queue;
    assert!(queue.len() <= 6_000, "{}", queue.len());
}
