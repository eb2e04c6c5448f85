//! A station, the reactors, and Snapcast clients over loopback.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod tls;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aulos_core::{Block, Codec, Instant, SampleSpec, Span};
use aulos_engine::encode::{EncodeError, Encoder};
use aulos_engine::fanout::{Demand, TimedChunk};
use aulos_engine::input::Input;
use aulos_engine::input::InputConfig;
use aulos_engine::rendition::Rendition;
use aulos_engine::source::{Pacing, PullResult, Source};
use aulos_engine::station::{Station, StationConfig, StationHandle};
use aulos_engine::switch::SwitchConfig;
use aulos_io::reactor::{
    EventSink, Greeting, PendingMoves, ReactorEvent, ReactorPool, SessionEndCause, SessionId,
    StationDescriptor,
};
use aulos_io::{SystemClock, Workers};
use aulos_proto::snap::client::{self, ClientOutput, SnapcastClient};
use aulos_proto::snap::session::CloseReason;
use aulos_proto::snap::sync::OffsetFilter;
use aulos_proto::snap::wire::{self, Auth, Hello, ServerSettings};
use aulos_rt::Pool;
use aulos_rt::ring::{Consumer, ring};

const SPEC: SampleSpec = SampleSpec::DEFAULT;

/// Counts frames, so that a client can verify that it got each one.
struct FrameCounterSource(u16);

impl Source for FrameCounterSource {
    fn pull(&mut self, _now: Instant, into: &mut Block) -> PullResult {
        into.reset(SPEC.rate, SPEC.layout);
        into.resize(SPEC.rate.frames(Span::from_millis(20)));
        for frame in into.samples_mut().chunks_exact_mut(2) {
            frame.fill(f32::from(self.0) / 65_536.0);
            self.0 = self.0.wrapping_add(1);
        }
        PullResult::Block
    }
    fn pacing(&self) -> Pacing {
        Pacing::OnDemand
    }
}

/// Writes the samples of the left channel to both, shifted by an offset in the right one.
struct PcmEncoder(u16);

impl Encoder for PcmEncoder {
    fn codec(&self) -> Codec {
        Codec::Pcm
    }
    fn spec(&self) -> SampleSpec {
        SPEC
    }
    fn encode(&mut self, block: &Block, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        for sample in block.samples().iter().step_by(2) {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counted")]
            let sample = (sample * 65_536.0) as u16;
            out.extend_from_slice(&sample.to_le_bytes());
            out.extend_from_slice(&sample.wrapping_add(self.0).to_le_bytes());
        }
        Ok(())
    }
}

/// Answers every Hello that no reactor has answered, like the control plane, and records the
/// events.
#[derive(Default)]
struct ControlStub {
    context: Mutex<Option<ReactorPool>>,
    seen: Mutex<Vec<SeenEvent>>,
    /// The clients, and whether each was authorized.
    vouched: Mutex<Vec<(String, bool)>>,
    /// Refuses every client.
    refuse: AtomicBool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SeenEvent {
    Hello(String, SessionId),
    Left(SessionId, SessionEndCause),
}

impl EventSink for ControlStub {
    fn push(&self, event: ReactorEvent) -> Result<(), ReactorEvent> {
        match event {
            ReactorEvent::Hello { session, hello, authorized: vouched, answered, .. } => {
                self.vouched.lock().unwrap().push((hello.client_id(), vouched));
                self.seen.lock().unwrap().push(SeenEvent::Hello(hello.client_id(), session));
                if answered.is_some() {
                    return Ok(());
                }
                let context = self.context.lock().unwrap();
                let context = context.as_ref().expect("a context");
                if self.refuse.load(SeqCst) {
                    assert!(context.refuse(session, tls::REFUSAL));
                    return Ok(());
                }
                assert!(context.set_settings(session, ServerSettings::default()));
                assert!(context.set_station(session, 0));
            }
            ReactorEvent::SessionEnded { session, cause } => {
                self.seen.lock().unwrap().push(SeenEvent::Left(session, cause));
            }
            _ => {}
        }
        Ok(())
    }
}

struct TestServer {
    control: Arc<ControlStub>,
    workers: Workers,
    address: SocketAddr,
    handle: StationHandle,
    channel: StationDescriptor,
}

impl TestServer {
    fn start() -> Self {
        let control = Arc::new(ControlStub::default());
        let sink: Arc<dyn EventSink> = control.clone();
        let context = ReactorPool::start(2, &sink).unwrap();
        let chunk = Span::from_millis(20);
        let quantum = SPEC.rate.frames(chunk);
        let channel = StationDescriptor {
            name: "default".into(),
            codec: Codec::Pcm,
            bitrate: None,
            spec: SPEC,
            stream_header: vec![],
            codec_header: wire::codec_header(Codec::Pcm, SPEC, &[]).unwrap().into(),
            buffer: Span::from_secs(1),
            chunk,
            demand: Demand::none(),
            icy: Arc::default(),
            mount: None,
        };
        let (outputs, taps) = (0..context.reactors()).map(|_| ring(64)).unzip();
        context.add_station(&channel, taps);
        let now = SystemClock::now();
        let input = Input::new(
            Box::new(FrameCounterSource(0)),
            SPEC.rate,
            SPEC.layout,
            InputConfig::default(),
        );
        let config = StationConfig {
            quantum,
            switch: SwitchConfig::default(),
            crossfade: Span::from_millis(20),
        };
        let pool = Pool::new(256, || Vec::with_capacity(8_192));
        let main = Rendition::new(Box::new(PcmEncoder(0)), pool, outputs, wire::write_chunk_header);
        let (station, handle) = Station::new(config, now, vec![input], main);
        let mut workers = Workers::start(1).unwrap();
        workers.add(station);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        context.listen(listener).unwrap();
        *control.context.lock().unwrap() = Some(context);
        Self { control, workers, address, handle, channel }
    }

    /// Adds a rendition that marks its samples; returns its number on the station.
    fn add_rendition(&mut self, header: Arc<[u8]>) -> u64 {
        self.add_observed_rendition(header).0
    }

    /// The same, and what it encodes.
    fn add_observed_rendition(&mut self, header: Arc<[u8]>) -> (u64, Consumer<TimedChunk>) {
        let channel = StationDescriptor { codec_header: header, ..self.channel.clone() };
        let context = self.control.context.lock().unwrap();
        let context = context.as_ref().unwrap();
        let (mut outputs, taps): (Vec<_>, Vec<_>) =
            (0..context.reactors()).map(|_| ring(64)).unzip();
        context.add_station(&channel, taps);
        let (output, encoded) = ring(64);
        outputs.push(output);
        let pool = Pool::new(256, || Vec::with_capacity(8_192));
        let encoder = Box::new(PcmEncoder(MARK));
        let rendition = Rendition::new(encoder, pool, outputs, wire::write_chunk_header);
        (self.handle.add_output(rendition).unwrap(), encoded)
    }

    fn continue_on(&self, session: SessionId, from: usize, to: usize) {
        let context = self.control.context.lock().unwrap();
        assert!(context.as_ref().unwrap().continue_on(session, from, to));
    }

    fn session_of(&self, id: &str) -> SessionId {
        let seen = self.control.seen.lock().unwrap();
        let of = |seen: &SeenEvent| match seen {
            SeenEvent::Hello(client, session) if client == id => Some(*session),
            _ => None,
        };
        seen.iter().find_map(of).expect("its Hello")
    }

    fn stop(mut self) {
        let context = self.control.context.lock().unwrap().take();
        let mut context = context.expect("a context");
        context.stop();
        self.workers.stop();
    }

    fn wait_for(&self, what: &str, found: impl Fn(&[SeenEvent]) -> bool) {
        for _ in 0..1_500 {
            if found(&self.control.seen.lock().unwrap()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{what} did not happen: {:?}", self.control.seen.lock().unwrap());
    }
}

/// The byte stream of a client.
trait ClientStream: Read + Write {}

impl<T: Read + Write> ClientStream for T {}

/// A client with a socket of its own.
struct TestClient {
    socket: Box<dyn ClientStream>,
    machine: SnapcastClient,
    timestamps: Vec<Instant>,
    samples: Vec<u16>,
    /// The difference of the channels, by chunk.
    marks: Vec<u16>,
    headers: usize,
    first_age: Option<Span>,
    settings: Vec<ServerSettings>,
    closed: bool,
}

impl TestClient {
    fn connect(address: SocketAddr, id: &str) -> Self {
        Self::on(Box::new(plain(address)), id)
    }

    fn connect_with_login(address: SocketAddr, id: &str) -> Self {
        let auth = Some(Auth::basic("kitchen", "wrong"));
        Self::greet(Box::new(plain(address)), Hello { auth, ..Hello::new(id) })
    }

    fn on(socket: Box<dyn ClientStream>, id: &str) -> Self {
        Self::greet(socket, Hello::new(id))
    }

    fn greet(socket: Box<dyn ClientStream>, hello: Hello) -> Self {
        let config = client::ClientConfig { hello, filter: OffsetFilter::default() };
        let machine = SnapcastClient::new(config, SystemClock::now());
        Self {
            socket,
            machine,
            timestamps: vec![],
            samples: vec![],
            marks: vec![],
            headers: 0,
            first_age: None,
            settings: vec![],
            closed: false,
        }
    }

    /// Plays for `span`, or until the server closes the connection.
    fn run(&mut self, span: Span) {
        let end = SystemClock::now() + span;
        let mut scratch = [0; 65_536];
        let mut out = Vec::new();
        while SystemClock::now() < end && !self.closed {
            self.machine.handle_timeout(SystemClock::now());
            match self.socket.read(&mut scratch) {
                Ok(count) => {
                    self.closed = count == 0;
                    let input = client::ClientInput::Received(&scratch[..count]);
                    self.machine.handle_input(SystemClock::now(), input);
                }
                Err(error) => {
                    use std::io::ErrorKind as Kind;
                    let quiet = matches!(
                        error.kind(),
                        Kind::WouldBlock | Kind::TimedOut | Kind::Interrupted
                    );
                    self.closed = !quiet;
                }
            }
            while let Some(output) = self.machine.poll_output() {
                match output {
                    ClientOutput::Send(message) => message.write(SystemClock::now(), &mut out),
                    ClientOutput::Chunk { timestamp, payload, .. } => {
                        let age = SystemClock::now() - timestamp;
                        self.first_age.get_or_insert(age);
                        self.timestamps.push(timestamp);
                        let pairs = payload.as_chunks::<4>().0;
                        self.samples.extend(pairs.iter().map(|f| u16::from_le_bytes([f[0], f[1]])));
                        let right = u16::from_le_bytes([pairs[0][2], pairs[0][3]]);
                        let left = self.samples[self.samples.len() - pairs.len()];
                        self.marks.push(right.wrapping_sub(left));
                    }
                    ClientOutput::Codec { .. } => self.headers += 1,
                    ClientOutput::Settings(settings) => self.settings.push(settings),
                    ClientOutput::Close(_) => self.closed = true,
                    _ => {}
                }
            }
            if !out.is_empty() {
                self.closed |= self.socket.write_all(&out).is_err();
                out.clear();
            }
        }
    }

    fn assert_continuous(&self) {
        for pair in self.timestamps.windows(2) {
            assert_eq!(pair[1] - pair[0], Span::from_millis(20));
        }
        // The resampler of a source returns silence before its first frame.
        let start = self.samples.iter().position(|sample| *sample != 0).unwrap_or(0);
        for pair in self.samples[start..].windows(2) {
            assert_eq!(pair[1], pair[0].wrapping_add(1), "a frame is missing");
        }
    }
}

fn plain(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    socket
}

#[test]
fn a_client_gets_history_at_once_and_then_every_frame_and_its_clock_agrees() {
    let server = TestServer::start();
    std::thread::sleep(Duration::from_millis(1_200));
    let is_wanted = || server.channel.demand.is_valid(SystemClock::now());
    assert!(!is_wanted(), "nobody listens");
    let mut player = TestClient::connect(server.address, "one");
    player.run(Demand::VALIDITY + Span::from_millis(500));
    assert!(is_wanted());
    player.assert_continuous();
    assert!(player.timestamps.len() > 140, "{} chunks", player.timestamps.len());
    let age = player.first_age.expect("a chunk");
    assert!(age > Span::from_millis(800), "history reaches back as far as it can be played: {age}");
    // Server and client share a clock here, so every offset is an error.
    let offset = player.machine.sync().offset(SystemClock::now()).expect("an offset");
    assert!(offset.abs() < Span::from_millis(1), "{offset}");
    drop(player);
    server.wait_for("the client's leaving", |seen| {
        seen.iter().any(|seen| matches!(seen, SeenEvent::Left(_, SessionEndCause::Closed)))
    });
    server.stop();
}

const MARK: u16 = 1_000;

#[test]
fn a_session_continues_on_another_rendition_without_a_missing_or_doubled_chunk() {
    let mut server = TestServer::start();
    std::thread::sleep(Duration::from_millis(1_200));
    let mut player = TestClient::connect(server.address, "one");
    let mut other = TestClient::connect(server.address, "other");
    player.run(Span::from_millis(300));
    other.run(Span::from_millis(10));
    let session = server.session_of("one");
    let header = Arc::clone(&server.channel.codec_header);
    for round in 0..12 {
        let number = server.add_rendition(Arc::clone(&header));
        let rendition = 1 + round;
        server.continue_on(session, 0, rendition);
        // At any time in the rhythm of the sends; also while it still waits for the first chunk.
        player.run(Span::from_millis(37 * i64::try_from(round).unwrap()));
        server.continue_on(session, 99, 0);
        server.continue_on(session, rendition, 0);
        {
            let context = server.control.context.lock().unwrap();
            context.as_ref().unwrap().remove_station(rendition);
        }
        server.handle.remove_output(number);
        player.run(Span::from_millis(150));
        other.run(Span::from_millis(10));
    }
    player.assert_continuous();
    let marked = player.marks.iter().filter(|mark| **mark == MARK).count();
    let moved = player.marks.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(player.marks.iter().all(|mark| [0, MARK].contains(mark)));
    assert!(moved >= 10 && moved % 2 == 0 && marked > 30, "{moved} moves, {marked} chunks");
    assert_eq!((player.headers, player.closed), (1, false));
    // A rendition with another header is joined like any other station.
    server.add_rendition(Arc::from(&header[..]));
    let mut different = header.to_vec();
    different.push(0);
    server.add_rendition(different.into());
    server.continue_on(session, 0, 14);
    player.run(Span::from_millis(300));
    assert_eq!((player.headers, player.marks.last()), (2, Some(&MARK)));
    other.run(Span::from_millis(100));
    other.assert_continuous();
    assert!(other.marks.iter().all(|mark| *mark == 0));
    server.stop();
}

#[test]
fn a_session_that_has_moved_gets_all_that_its_rendition_encodes_from_then_on() {
    let mut server = TestServer::start();
    let mut player = TestClient::connect(server.address, "one");
    player.run(Span::from_millis(300));
    let session = server.session_of("one");
    let header = Arc::clone(&server.channel.codec_header);
    for round in 1..=8 {
        let (number, mut encoded) = server.add_observed_rendition(Arc::clone(&header));
        let moves = PendingMoves::default();
        {
            let context = server.control.context.lock().unwrap();
            let context = context.as_ref().unwrap();
            assert!(context.continue_counted(session, 0, round, &moves));
            assert!(context.continue_counted(session, 99, round, &moves), "no such station");
        }
        while !moves.is_done() {
            player.run(Span::from_millis(1));
        }
        let before: Vec<_> = std::iter::from_fn(|| encoded.pop()).collect();
        player.run(Span::from_millis(200));
        let after = encoded.pop().unwrap().timestamp;
        let first = before.first().map_or(after, |chunk| chunk.timestamp);
        server.continue_on(session, round, 0);
        player.run(Span::from_millis(37 + 10 * i64::try_from(round).unwrap()));
        server.handle.remove_output(number);
        let chunks = || player.timestamps.iter().zip(&player.marks);
        let of_rendition: Vec<_> =
            chunks().filter(|(at, mark)| **mark == MARK && **at >= first).collect();
        let [begin, end] = [0, of_rendition.len() - 1].map(|at| *of_rendition[at].0);
        assert!(begin <= after, "what came after the move is missing");
        assert!(begin - first <= Span::from_millis(20), "it moved late: {}", begin - first);
        assert!(
            chunks().filter(|(at, _)| (begin..=end).contains(at)).all(|(_, mark)| *mark == MARK)
        );
    }
    player.assert_continuous();
    server.stop();
}

#[test]
fn whoever_has_a_greeting_is_answered_at_once_and_newcomers_with_theirs() {
    let server = TestServer::start();
    let quiet = ServerSettings { volume: 30, ..ServerSettings::default() };
    let muted = ServerSettings { muted: true, ..ServerSettings::default() };
    let greeting = |settings| Some(Greeting { settings, station: 0 });
    let greet = |id: &str, how| {
        let context = server.control.context.lock().unwrap();
        assert!(context.as_ref().unwrap().set_greeting(&id.into(), how));
    };
    greet("one", greeting(quiet));
    // The default greeting is not set yet: the control plane answers.
    let heard = |id: &str| {
        let mut player = TestClient::connect(server.address, id);
        player.run(Span::from_millis(500));
        player.assert_continuous();
        assert!(!player.timestamps.is_empty(), "{id}");
        player.settings
    };
    assert_eq!(heard("one"), [ServerSettings::default()]);
    {
        let context = server.control.context.lock().unwrap();
        assert!(context.as_ref().unwrap().set_default_greeting(greeting(muted)));
    }
    assert_eq!((heard("one"), heard("two")), (vec![quiet], vec![muted]));
    // Credentials are checked before anything is sent.
    let mut player = TestClient::connect_with_login(server.address, "two");
    player.run(Span::from_millis(500));
    assert_eq!(player.settings, [ServerSettings::default()]);
    // The control plane handles a station that does not exist.
    greet("one", Some(Greeting { settings: quiet, station: 9 }));
    assert_eq!(heard("one"), [ServerSettings::default()]);
    greet("one", None);
    assert_eq!(heard("one"), [muted]);
    server.stop();
}

#[test]
fn peers_that_violate_the_protocol_are_disconnected_with_a_cause() {
    let server = TestServer::start();
    let mut honest = TestClient::connect(server.address, "honest");
    let mut liar = TestClient::connect(server.address, "liar");
    liar.run(Span::from_millis(200));
    liar.socket.write_all(&[0xFF; 26]).unwrap();
    let mut garbage = TcpStream::connect(server.address).unwrap();
    garbage.write_all(b"GET / HTTP/1.1\r\nHost: example\r\n\r\n").unwrap();
    let silent = TcpStream::connect(server.address).unwrap();
    honest.run(Span::from_secs(6));
    honest.assert_continuous();
    assert!(!honest.closed && honest.timestamps.len() > 280, "{}", honest.timestamps.len());
    server.wait_for("the liar's end", |seen| {
        let cut = |seen: &SeenEvent| {
            matches!(
                seen,
                SeenEvent::Left(
                    _,
                    SessionEndCause::Protocol(CloseReason::BadType | CloseReason::TooLarge)
                )
            )
        };
        seen.iter().any(cut)
    });
    for mut socket in [garbage, silent] {
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let end = socket.read(&mut [0; 16]);
        assert!(
            matches!(end, Ok(0)) || end.is_err_and(|e| e.kind() != std::io::ErrorKind::WouldBlock)
        );
    }
    server.stop();
}

#[test]
fn a_client_that_stops_reading_is_disconnected_without_loss_for_others() {
    let server = TestServer::start();
    let mut stuck = TestClient::connect(server.address, "stuck");
    stuck.run(Span::from_millis(300));
    let mut honest = TestClient::connect(server.address, "honest");
    honest.run(Span::from_secs(4));
    honest.assert_continuous();
    assert!(honest.timestamps.len() > 180);
    server.stop();
}
