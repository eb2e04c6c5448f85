//! A control plane over an audio backend that plays nothing, and calls to it.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of tests fails as a test does; clippy excepts only test functions"
)]

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use aulos_blackbox::scratch::ScratchDir;
use aulos_config::{
    Endpoint, Environment, Mount, ProcessingSettings, PushSettings, RecorderSettings,
    ResolvedConfig, RtpOutputSettings, StationSettings,
};
use aulos_control::backend::{
    ActiveSound, Announcement, AudioBackend, BackgroundTask, CommandQueueFull, DjInfo,
    DjMountPermit, EVENT_QUEUE, Greeting, GreetingSink, Hello, InputChange, ListenPolicy,
    ListenSink, ListenerRequest, Loudness, MediaSocket, ProgrammeEvent, ReactorEvent,
    SendspinSocket, ServerSettings, SessionCommand, SessionId, StationPosition,
    StationRecorderEvent, StationReport, TargetSessions,
};
use aulos_core::{MediaTime, Span};
use aulos_engine::recorder::{CommandTime, RecorderCommand};
use aulos_engine::switch::SwitchSchedule;
use aulos_files::record::MarkerRequest;
use aulos_proto::sendspin::{ArtworkUpdate, RoomState, SupportedFormat};
use aulos_proto::titles::TrackMetadata;
use aulos_server::server::{self, AudioHandles, ServerContext};
use aulos_server::systemd::{InheritedSockets, Supervisor};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};

/// Longer than anything here takes; what hangs fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What a station is wished to play, and for how long.
pub type Wish = Option<(usize, Option<Span>)>;

/// An audio backend with the stations that a test sets. It records the calls that it gets.
#[derive(Debug, Default)]
pub struct FakeBackend {
    pub commands: Mutex<Vec<SessionCommand>>,
    pub stations: Mutex<Vec<StationReport>>,
    pub full: Mutex<bool>,
    pub added: Mutex<Vec<usize>>,
    pub replaced: Mutex<Vec<usize>>,
    pub removed: Mutex<Vec<usize>>,
    pub flushed: Mutex<Vec<usize>>,
    pub preferences: Mutex<Vec<(usize, Wish)>>,
    pub schedules: Mutex<Vec<(usize, SwitchSchedule)>>,
    pub switches: Mutex<Vec<(usize, InputChange)>>,
    /// The stations and sources whose file was skipped.
    pub skips: Mutex<Vec<(usize, usize)>>,
    /// How often a station was asked how it is.
    pub asked: AtomicU64,
}

impl GreetingSink for FakeBackend {
    fn set_greeting(&self, _: &str, _: Option<Greeting>) -> bool {
        true
    }

    fn set_default_greeting(&self, _: Option<Greeting>) -> bool {
        true
    }
}

impl AudioBackend for FakeBackend {
    fn set_player_formats(&self, _: SessionId, _: Option<&Arc<[SupportedFormat]>>) {}

    fn set_room(&self, _: SessionId, _: &Arc<RoomState>) -> bool {
        true
    }

    fn set_artwork(&self, _: SessionId, _: &Arc<ArtworkUpdate>) -> bool {
        true
    }

    fn command(&self, command: SessionCommand) -> Result<(), CommandQueueFull> {
        if *self.full.lock().unwrap() {
            return Err(CommandQueueFull(command));
        }
        self.commands.lock().unwrap().push(command);
        Ok(())
    }

    fn status(&self, station: usize) -> StationReport {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.stations.lock().unwrap().get(station).cloned().unwrap_or_default()
    }

    fn reset_loudness(&self, station: usize) {
        let mut stations = self.stations.lock().unwrap();
        if let Some(status) = stations.get_mut(station) {
            status.machine.loudness = Loudness::NONE;
            status.machine.inputs.iter_mut().for_each(|input| input.loudness = Loudness::NONE);
        }
    }

    fn add_station(&self, _: &StationSettings) -> std::io::Result<usize> {
        let mut numbers = self.added.lock().unwrap();
        // The configuration has two.
        let free = (2..).find(|number| !numbers.contains(number)).unwrap();
        numbers.push(free);
        Ok(free)
    }

    fn flush(&self, number: usize) {
        self.flushed.lock().unwrap().push(number);
    }

    fn skip_track(&self, station: usize, source: usize) -> bool {
        self.skips.lock().unwrap().push((station, source));
        true
    }

    fn set_preferred_source(&self, station: usize, wish: Wish) {
        self.preferences.lock().unwrap().push((station, wish));
    }

    fn set_schedule(&self, station: usize, schedule: SwitchSchedule) {
        self.schedules.lock().unwrap().push((station, schedule));
    }

    fn programme_events(&self) -> Vec<ProgrammeEvent> {
        let switches = std::mem::take(&mut *self.switches.lock().unwrap());
        switches.into_iter().map(|(number, to)| ProgrammeEvent::Switched(number, to)).collect()
    }

    fn replace_station(&self, number: usize, _: &StationSettings) -> std::io::Result<()> {
        self.replaced.lock().unwrap().push(number);
        Ok(())
    }

    fn remove_station(&self, number: usize) {
        self.removed.lock().unwrap().push(number);
        self.added.lock().unwrap().retain(|other| *other != number);
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("fake", 1)]
    }

    fn set_listen_policy(&self, _: &ListenPolicy) {}

    fn set_sound(&self, _: usize, _: &ProcessingSettings) -> Result<(), String> {
        Ok(())
    }

    fn set_pushes(&self, _: usize, _: &[PushSettings]) {}

    fn set_rtp(&self, _: usize, _: &[RtpOutputSettings]) {}

    fn sdp(&self, _: usize, _: usize) -> Option<String> {
        None
    }

    fn set_records(&self, _: usize, _: &[RecorderSettings]) {}

    fn record(
        &self,
        _: usize,
        _: usize,
        _: RecorderCommand,
        _: CommandTime,
    ) -> Result<Option<MediaTime>, String> {
        Err("recording is not available".to_owned())
    }

    fn mark(
        &self,
        _: usize,
        _: usize,
        _: &str,
        _: CommandTime,
    ) -> Result<Arc<MarkerRequest>, String> {
        Err("recording is not available".to_owned())
    }

    fn recorder_events(&self) -> Vec<StationRecorderEvent> {
        Vec::new()
    }

    fn set_bypass(&self, _: usize, _: bool) {}

    fn announce(&self, _: usize, _: &Announcement, _: &TargetSessions<'_>) -> Result<(), String> {
        Err("announcements are not available".to_owned())
    }

    fn move_announced(&self, _: &TargetSessions<'_>) {}

    fn cancel_announcement(&self, _: usize, _: u64) {}

    fn retain_sounds(&self, _: &dyn Fn() -> Vec<ActiveSound>) {}

    fn take_background_tasks(&self) -> Vec<BackgroundTask> {
        Vec::new()
    }

    fn set_dj_address(&self, _: &Endpoint, _: Result<SocketAddr, &std::io::Error>) {}

    fn set_title(&self, _: usize, _: &str) {}

    fn reap_ended(&self) {}

    fn positions(&self) -> Vec<StationPosition> {
        Vec::new()
    }
}

/// Keeps the listeners that were handed over.
#[derive(Debug, Default)]
pub struct FakeSink(pub Mutex<Vec<(MediaSocket, Vec<u8>)>>, pub Mutex<Vec<(MediaSocket, Vec<u8>)>>);

impl ListenSink for FakeSink {
    fn accept_sendspin(&self, _: SendspinSocket) {}

    fn accept_listener(&self, socket: MediaSocket, request: ListenerRequest) {
        self.0.lock().unwrap().push((socket, request.head));
    }

    fn accept_websocket(&self, socket: MediaSocket, read: Vec<u8>) {
        self.1.lock().unwrap().push((socket, read));
    }

    fn acquire_mount(&self, _: &str, _: &Mount, _: DjInfo) -> Option<DjMountPermit> {
        None
    }

    fn set_live_title(&self, _: &str, _: &Mount, _: TrackMetadata) -> bool {
        false
    }

    fn disconnect_source(&self, _: &str, _: &Mount) -> bool {
        false
    }
}

/// The head of a configuration whose ports are any that are free.
pub const ANY_PORTS: &str = "[listen]\nstream = 0\ncontrol = 0\nhttp = 0\n";

/// A control script at `path` that runs in its own folder.
pub fn script(path: &Path, body: &str) {
    std::fs::write(path, format!("#!/bin/sh\ncd \"$(dirname \"$0\")\"\n{body}")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The body of a control script of a player that can be paused. `cases` say for which lines that it
/// is told it tells what: `*pause*) tell paused ;;`.
pub fn player(cases: &str) -> String {
    format!(
        r#"
echo '{{"jsonrpc":"2.0","method":"Plugin.Stream.Ready"}}'
tell() {{
  printf '{{"jsonrpc":"2.0","method":"Plugin.Stream.Player.Properties","params":'
  printf '{{"playbackStatus":"%s","canControl":true,"canPause":true,"canPlay":true}}}}\n' "$1"
}}
while read -r line; do
  case "$line" in
    {cases}
  esac
done
"#
    )
}

pub fn resolve(text: &str) -> ResolvedConfig {
    let env = Environment { home: Some(scratch()), ..Environment::default() };
    aulos_config::load(Some(aulos_config::ConfigFile { name: "test.toml", text }), &[], &env)
        .unwrap()
}

pub const TWO_STATIONS: &str = r#"
[listen]
stream = 0
control = 0
http = 0
[[station]]
name = "default"
sources = ["pipe:///run/x.fifo", "demo://"]
[[station]]
name = "kitchen radio"
codec = "opus"
buffer_ms = 400
sources = ["tcp://0.0.0.0:4953"]
"#;

/// A server of its own, in a thread of its own.
#[derive(Debug)]
pub struct Server {
    pub backend: Arc<FakeBackend>,
    pub sink: Arc<FakeSink>,
    pub control: SocketAddr,
    pub http: SocketAddr,
    pub state_dir: PathBuf,
    events: mpsc::Sender<ReactorEvent>,
    /// What a reload reads.
    pub next: Arc<Mutex<Result<ResolvedConfig, String>>>,
    hangup: mpsc::Sender<()>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start() -> Self {
        Self::of(resolve(TWO_STATIONS))
    }

    pub fn of(resolved: ResolvedConfig) -> Self {
        let bound = server::bind(&resolved.listen, &mut InheritedSockets::default()).unwrap();
        server::make_state_dir(&resolved.state_dir).unwrap();
        let bound = bound.with_listen_policy(server::listen_policy(&resolved).unwrap());
        let bound = bound.with_relays(&resolved.relays).unwrap();
        let (backend, sink) = (Arc::new(FakeBackend::default()), Arc::new(FakeSink::default()));
        let (events, receiver) = mpsc::channel(EVENT_QUEUE);
        let audio = AudioHandles {
            backend: backend.clone(),
            listen_sink: sink.clone(),
            events: receiver,
            stream: None,
        };
        let (control, http) = (bound.control_address, bound.http_address);
        let state_dir = resolved.state_dir.clone();
        let Running { next, hangup, stop, thread } = run(resolved, bound, audio);
        Self { backend, sink, control, http, state_dir, events, next, hangup, stop, thread }
    }

    /// A client comes; returns when the control plane has answered it.
    pub fn hello(&self, session: u64, id: &str) {
        self.events.blocking_send(hello(session, id)).unwrap();
        let session = SessionId(session);
        eventually(|| {
            let commands = self.backend.commands.lock().unwrap();
            commands.iter().any(|command| command.session() == session)
        });
    }

    pub fn event(&self, event: ReactorEvent) {
        self.events.blocking_send(event).unwrap();
    }

    /// As SIGHUP does.
    pub fn hang_up(&self) {
        self.hangup.blocking_send(()).unwrap();
    }

    pub fn controller(&self) -> Controller {
        Controller::connect(self.control)
    }

    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// A control plane in a thread of its own.
struct Running {
    next: Arc<Mutex<Result<ResolvedConfig, String>>>,
    hangup: mpsc::Sender<()>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

fn run(
    resolved: ResolvedConfig,
    bound: server::ControlPlaneSockets,
    audio: AudioHandles,
) -> Running {
    let (stop, stopped) = oneshot::channel::<()>();
    let next = Arc::new(Mutex::new(Ok(resolved.clone())));
    let (hangup, hangups) = mpsc::channel(1);
    let read = Arc::clone(&next);
    let outside = ServerContext {
        players: watch::channel(Vec::new()).1,
        reload_config: Box::new(move || read.lock().unwrap().clone()),
        reload_requests: hangups,
        supervisor: Supervisor::default(),
        neighbors: watch::channel(Vec::new()).1,
        cluster: None,
    };
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stop = async {
            stopped.await.ok();
        };
        runtime.block_on(server::run(Arc::new(resolved), bound, audio, outside, stop)).unwrap();
    });
    Running { next, hangup, stop: Some(stop), thread: Some(thread) }
}

/// A server that plays, in this process.
pub struct Playing {
    pub control: SocketAddr,
    pub http: SocketAddr,
    pub stream: SocketAddr,
    audio: Arc<aulos_server::audio::Audio>,
    control_plane: Running,
}

impl Playing {
    pub fn start(resolved: ResolvedConfig) -> Self {
        let mut given = InheritedSockets::default();
        let bound = server::bind(&resolved.listen, &mut given).unwrap();
        server::make_state_dir(&resolved.state_dir).unwrap();
        let (events, receiver) = mpsc::channel(EVENT_QUEUE);
        let (listener, stream) =
            server::bind_port("stream", &resolved.listen.stream, &mut given).unwrap();
        let audio = aulos_server::audio::Audio::start(
            &resolved,
            listener,
            &ListenPolicy::default(),
            events,
        )
        .unwrap();
        let audio = Arc::new(audio);
        let (control, http) = (bound.control_address, bound.http_address);
        let parts = AudioHandles {
            backend: audio.clone(),
            listen_sink: audio.clone(),
            events: receiver,
            stream: Some(stream),
        };
        let control_plane = run(resolved, bound, parts);
        Self { control, http, stream, audio, control_plane }
    }

    pub fn controller(&self) -> Controller {
        Controller::connect(self.control)
    }

    /// What the control plane runs from now on, once it is told to reload.
    pub fn next(&self, resolved: ResolvedConfig) {
        *self.control_plane.next.lock().unwrap() = Ok(resolved);
    }

    /// Listens to a station of pcm as a browser does; 16 bit samples.
    pub fn listen(&self, station: &str) -> Listening {
        let mut socket = TcpStream::connect(self.http).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(socket, "GET /listen/{station} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut head = Vec::new();
        // The head of the answer, and that of the WAVE file behind it.
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
        socket.read_exact(&mut [0; 44]).unwrap();
        Listening(socket)
    }
}

impl Drop for Playing {
    fn drop(&mut self) {
        drop(self.control_plane.stop.take());
        if let Some(thread) = self.control_plane.thread.take() {
            thread.join().unwrap();
        }
        self.audio.stop();
    }
}

/// The sound of a station, as it goes out.
pub struct Listening(TcpStream);

impl Listening {
    /// The next samples, of full scale.
    pub fn samples(&mut self, count: usize) -> Vec<f32> {
        let mut bytes = vec![0; 2 * count];
        self.0.read_exact(&mut bytes).unwrap();
        let samples = bytes.as_chunks::<2>().0.iter();
        samples.map(|two| f32::from(i16::from_le_bytes(*two)) / 32_768.0).collect()
    }
}

/// A Snapcast client that plays nothing and keeps what it is sent.
pub struct Room(TcpStream);

/// What comes from a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A codec begins, with its header.
    Codec(Vec<u8>),
    /// Sound: microseconds of its first frame, and its bytes.
    Chunk(i64, Vec<u8>),
    /// Something else.
    Other(u16),
}

impl Room {
    pub fn enter(server: SocketAddr, id: &str) -> Self {
        let mut socket = TcpStream::connect(server).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let hello = json!({
            "MAC": "00:00:5e:00:53:02", "HostName": id, "Version": "0.26.0", "ID": id,
            "ClientName": "Snapclient", "OS": "", "Arch": "", "Instance": 1,
            "SnapStreamProtocolVersion": 2,
        });
        let hello = hello.to_string();
        let size = u32::try_from(hello.len()).unwrap();
        let mut message = vec![5, 0, 2, 0];
        message.extend([0; 18]);
        message.extend((size + 4).to_le_bytes());
        message.extend(size.to_le_bytes());
        message.extend(hello.as_bytes());
        socket.write_all(&message).unwrap();
        Self(socket)
    }

    /// The next message.
    pub fn hear(&mut self) -> Heard {
        let mut head = [0; 26];
        self.0.read_exact(&mut head).unwrap();
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
        let mut body = vec![0; word(22) as usize];
        self.0.read_exact(&mut body).unwrap();
        let second =
            |at: usize| i64::from(i32::from_le_bytes(body[at..at + 4].try_into().unwrap()));
        match head[0] {
            1 => Heard::Codec(body),
            2 => Heard::Chunk(second(0) * 1_000_000 + second(4), body[12..].to_vec()),
            other => Heard::Other(other.into()),
        }
    }
}

/// A WAVE file of one channel and 16 bits at 48 kHz.
pub fn wave(samples: &[i16]) -> Vec<u8> {
    waves(samples, 1)
}

/// A WAVE file of interleaved samples of 16 bits at 48 kHz.
pub fn waves(samples: &[i16], channels: u8) -> Vec<u8> {
    let size = u32::try_from(2 * samples.len()).unwrap();
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((36 + size).to_le_bytes());
    bytes.extend(b"WAVEfmt \x10\0\0\0\x01\0");
    bytes.extend([channels, 0]);
    bytes.extend(48_000u32.to_le_bytes());
    bytes.extend((96_000 * u32::from(channels)).to_le_bytes());
    bytes.extend([2 * channels, 0, 16, 0]);
    bytes.extend(b"data");
    bytes.extend(size.to_le_bytes());
    bytes.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    bytes
}

pub fn hello(session: u64, id: &str) -> ReactorEvent {
    let text = |text: &str| text.to_owned();
    let hello = Hello {
        mac: text("00:00:5e:00:53:01"),
        host_name: format!("host-{id}"),
        client_name: text("Snapclient"),
        version: text("0.34.0"),
        os: text("Debian GNU/Linux 12 (bookworm)"),
        arch: text("x86_64"),
        id: text(id),
        instance: 1,
        protocol_version: 2,
        auth: None,
    };
    ReactorEvent::Hello {
        session: SessionId(session),
        hello: hello.into(),
        address: (Ipv4Addr::new(192, 0, 2, 7), 0).into(),
        authorized: false,
        answered: None,
        volume: aulos_proto::snap::wire::ClientInfo::default(),
    }
}

/// What a player is sent that has no latency of its own and is not muted.
pub fn settings(volume: u8, muted: bool, buffer_ms: i64) -> ServerSettings {
    let (buffer, report_interval) = (Span::from_millis(buffer_ms), Some(Span::from_secs(2)));
    ServerSettings { volume, muted, latency: Span::ZERO, buffer, report_interval }
}

/// A controller on the TCP port that reads whole lines.
#[derive(Debug)]
pub struct Controller {
    pub socket: TcpStream,
    read: Vec<u8>,
    next_id: u64,
    /// What came that was no answer.
    pub notices: Vec<Value>,
}

impl Controller {
    pub fn connect(address: SocketAddr) -> Self {
        Self::new(TcpStream::connect(address).unwrap())
    }

    pub fn new(socket: TcpStream) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { socket, read: Vec::new(), next_id: 1, notices: Vec::new() }
    }

    pub fn send(&mut self, line: &str) {
        self.socket.write_all(line.as_bytes()).unwrap();
        self.socket.write_all(b"\r\n").unwrap();
    }

    /// The next line, which ends in CRLF; `None` when the server closed the connection.
    pub fn line(&mut self) -> Option<String> {
        let mut block = [0; 65_536];
        loop {
            if let Some(at) = self.read.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=at).collect();
                let line = String::from_utf8(line).unwrap();
                return Some(line.strip_suffix("\r\n").expect("CRLF").to_owned());
            }
            match self.socket.read(&mut block) {
                Ok(0) => return None,
                Ok(count) => self.read.extend_from_slice(&block[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                // A child of this process ended meanwhile; a read with a time-out is not begun
                // again.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub fn message(&mut self) -> Value {
        serde_json::from_str(&self.line().expect("a message")).unwrap()
    }

    /// Makes a call; what is not its answer is kept in `notices`.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.next_id;
        self.next_id += 1;
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send(&call.to_string());
        loop {
            let message = self.message();
            if message.get("id") == Some(&json!(id)) {
                return message;
            }
            self.notices.push(message);
        }
    }

    /// The next notification of this method; what the client's own coming still brings is passed
    /// over.
    pub fn notice_of(&mut self, method: &str) -> Value {
        loop {
            let notice = self.notice();
            if notice["method"] == method {
                return notice;
            }
        }
    }

    /// The next notification.
    pub fn notice(&mut self) -> Value {
        if self.notices.is_empty() { self.message() } else { self.notices.remove(0) }
    }
}

/// Waits for what another thread does.
pub fn eventually(mut condition: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "it never happened");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An empty folder, which is removed when the test's thread ends: after its server.
pub fn scratch() -> PathBuf {
    thread_local!(static FOLDERS: RefCell<Vec<ScratchDir>> = const { RefCell::new(Vec::new()) });
    let folder = ScratchDir::new("it").unwrap();
    let path = folder.path().to_owned();
    FOLDERS.with_borrow_mut(|folders| folders.push(folder));
    path
}

/// Compares with `tests/golden/NAME`; `AULOS_BLESS=1` writes it anew.
pub fn golden(name: &str, found: &str) {
    aulos_blackbox::golden::compare(env!("CARGO_MANIFEST_DIR"), name, found);
}
