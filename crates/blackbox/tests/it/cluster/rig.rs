//! Two origins, three NATS servers and three edges with players, each edge in a place of its own.

use std::fs::File;
use std::io::BufWriter;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use aulos_blackbox::load::{LoadReport, LoadTest};
use aulos_blackbox::nats_cluster::NatsCluster;
use aulos_blackbox::net::NetNamespaces;
use aulos_blackbox::peer::{Process, before_others};
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::{AulosServer, binary};
use aulos_blackbox::signal::{Frame, SampleWidth, write_wav};
use aulos_blackbox::sync::delayed_network::{DelayedNetwork, LineDelay};
use aulos_blackbox::sync::playout::Playout;
use aulos_blackbox::sync::position_tone::{CYCLE, ToneCapture, frame};
use aulos_blackbox::sync::write_stamps::{StampLibrary, WriteStamp, read_stamps};
use serde_json::{Value, json};

use crate::rpc::Rpc;
use crate::{text, wait_for};

/// The first places are those of NATS and the origins, the others those of the edges.
pub(super) const NATS_NODES: usize = 3;
pub(super) const EDGES: usize = 3;

const PATIENCE: Duration = Duration::from_secs(40);

/// What a rig has.
#[derive(Clone, Copy, Debug)]
pub(super) struct RigConfig<'a> {
    pub(super) nats_server: &'a Path,
    pub(super) compiler: &'a Path,
    pub(super) snapclient: Option<&'a Path>,
    /// By place.
    pub(super) lines: [LineDelay; NATS_NODES + EDGES],
    /// Of the source of each edge, in milliseconds.
    pub(super) latency: [f64; EDGES],
    /// Of each program, at each edge.
    pub(super) players: usize,
}

pub(super) struct Rig<'a> {
    config: RigConfig<'a>,
    net: &'a NetNamespaces,
    pub(super) network: DelayedNetwork,
    pub(super) nats: NatsCluster<'a>,
    origins: Vec<Node>,
    edges: Vec<Node>,
    players: Vec<RunningPlayer>,
    library: StampLibrary,
    scratch: ScratchDir,
}

/// A server of the project.
struct Node {
    name: String,
    place: usize,
    config: String,
    port: u16,
    scratch: ScratchDir,
    server: Option<AulosServer>,
}

/// The clients of an edge that count what arrives.
pub(super) type Crowd = JoinHandle<LoadReport>;

struct RunningPlayer {
    edge: usize,
    process: Process,
    is_ours: bool,
    sound: PathBuf,
    stamps: PathBuf,
}

/// What a player has played.
pub(super) struct PlayedSound {
    pub(super) edge: usize,
    pub(super) is_ours: bool,
    pub(super) playout: Playout,
    pub(super) silences: Vec<Silence>,
}

/// Silence after the first sound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    /// `CLOCK_MONOTONIC` of its begin, in nanoseconds.
    pub(super) at: u64,
    pub(super) duration: Duration,
}

impl<'a> Rig<'a> {
    /// Starts everything; all edges play when this returns.
    pub(super) fn start(config: RigConfig<'a>, net: &'a NetNamespaces) -> Self {
        let network = DelayedNetwork::start(net, &config.lines, 5).unwrap();
        let addresses: Vec<_> = (0..NATS_NODES).map(DelayedNetwork::address).collect();
        let nats = NatsCluster::start(config.nats_server, &addresses, Some(net)).unwrap();
        let scratch = ScratchDir::new("cluster").unwrap();
        let library = StampLibrary::build(config.compiler, &scratch).unwrap();
        let (origins, edges, players) = <_>::default();
        let mut rig =
            Self { config, net, network, nats, origins, edges, players, library, scratch };
        let tone = rig.tone();
        for (place, name) in ["one", "two"].into_iter().enumerate() {
            let station = format!(
                "[[station]]\nname = \"studio\"\npublish = true\ncodec = \"pcm\"\n\
                 spec = \"48000:16:2\"\nsources = [\"file://{}?loop=true\"]\n",
                text(&tone)
            );
            let node = rig.node(name, place, &station);
            rig.origins.push(node);
            let part = ["sending", "standby"][place];
            wait_for(part, PATIENCE, || rig.part(place) == part);
        }
        for edge in 0..EDGES {
            let station = format!(
                "[[station]]\nname = \"default\"\ncodec = \"pcm\"\nspec = \"48000:16:2\"\n\
                 buffer_ms = 400\nsources = [\"nats:///studio?pass=true&latency={}\"]\n",
                rig.config.latency[edge]
            );
            let node = rig.node(&format!("edge{edge}"), NATS_NODES + edge, &station);
            rig.edges.push(node);
        }
        for edge in 0..EDGES {
            wait_for("passed chunks", PATIENCE, || rig.passes(edge));
        }
        rig
    }

    pub(super) fn start_players(&mut self) {
        for number in 0..EDGES * self.config.players {
            self.start_player(number / self.config.players, None);
            if let Some(snapclient) = self.config.snapclient {
                self.start_player(number / self.config.players, Some(snapclient));
            }
        }
    }

    /// The number of the origin that sends.
    pub(super) fn sender(&self) -> Option<usize> {
        let with = |part| (0..self.origins.len()).find(|origin| self.part(*origin) == part);
        with("sending").or_else(|| with("unconfirmed"))
    }

    /// Kills as `kill -9` does.
    pub(super) fn kill_origin(&mut self, origin: usize) {
        self.origins[origin].server = None;
    }

    pub(super) fn kill_edge(&mut self, edge: usize) {
        self.edges[edge].server = None;
    }

    pub(super) fn restart_edge(&mut self, edge: usize) {
        self.edges[edge].start(self.net);
    }

    pub(super) fn passes(&self, edge: usize) -> bool {
        self.edge_status(edge)["stations"][0]["sources"][0]["pass"]["passed"] == true
    }

    pub(super) fn edge_status(&self, edge: usize) -> Value {
        self.edges[edge].status(self.net)
    }

    /// How often clients have connected to the process of an edge.
    pub(super) fn connects(&self, edge: usize) -> usize {
        let printed = self.edges[edge].server.as_ref().unwrap().printed().unwrap();
        printed.lines().filter(|line| line.contains(" client: connected ")).count()
    }

    pub(super) fn players_of_an_edge(&self) -> usize {
        self.config.players * if self.config.snapclient.is_some() { 2 } else { 1 }
    }

    /// The number of the NATS server to which a server with this name of its connection is
    /// connected.
    pub(super) fn nats_node_of(&self, name: &str) -> Option<usize> {
        (0..NATS_NODES).find(|node| {
            let body = self.nats.monitor(*node, "/connz").unwrap_or_default();
            body.contains(&format!("\"aulos {name}\""))
        })
    }

    /// Ends everything, and reads what the players wrote.
    pub(super) fn finish(mut self, epoch: u64) -> Vec<PlayedSound> {
        for player in &mut self.players {
            // Snapclient's status after SIGTERM is not always success.
            player.process.terminate(Duration::from_secs(5)).unwrap();
        }
        self.players.into_iter().map(|player| player.finish(epoch)).collect()
    }

    fn part(&self, origin: usize) -> Value {
        let Some(_) = self.origins[origin].server else { return Value::Null };
        self.origins[origin].status(self.net)["stations"][0]["publication"]["part"].clone()
    }

    /// A file whose end continues at its begin.
    fn tone(&self) -> PathBuf {
        let file = self.scratch.join("tone.wav");
        let frames: Vec<Frame> = (0..CYCLE * 10).map(frame).collect();
        let out = BufWriter::new(File::create(&file).unwrap());
        write_wav(out, &frames, SampleWidth::B16).unwrap();
        file
    }

    fn node(&self, name: &str, place: usize, station: &str) -> Node {
        let nodes = self.nats.nodes().iter();
        let urls: Vec<_> =
            nodes.map(|node| format!("\"nats://{}:{}\"", node.address, node.port)).collect();
        let config = format!(
            "{station}[cluster]\nurl = [{}]\nsite = \"test\"\nnode = \"{name}\"\n",
            urls.join(", ")
        );
        let scratch = ScratchDir::new(name).unwrap();
        let (name, port) = (name.to_owned(), free_port().unwrap());
        let mut node = Node { name, place, config, port, scratch, server: None };
        node.start(self.net);
        node
    }

    /// Connects so many clients to each edge that only count what arrives, for a time.
    pub(super) fn start_crowd(&self, clients: usize, listen: Duration) -> Vec<Crowd> {
        let start = |edge: usize| {
            let server = SocketAddr::from((Ipv4Addr::LOCALHOST, self.edges[edge].port));
            let test = LoadTest { server, clients, settle: Duration::from_secs(5), listen };
            let place = NATS_NODES + edge;
            self.net.run_inside(place, || std::thread::spawn(move || test.run(|_| ()).unwrap()))
        };
        (0..EDGES).map(start).collect()
    }

    fn start_player(&mut self, edge: usize, snapclient: Option<&Path>) {
        let number = self.players.len();
        let file = |ending: &str| self.scratch.join(format!("player{number}.{ending}"));
        let (sound, stamps) = (file("pcm"), file("stamps"));
        let (id, port) = (format!("player{number}"), self.edges[edge].port.to_string());
        let mut command = if let Some(snapclient) = snapclient {
            let mut command = before_others(snapclient);
            command.args(["-h", "127.0.0.1", "-p", &port, "--hostID", &id]);
            command.arg("--player").arg(format!("file:filename={}", sound.display()));
            command.args(["--logsink", "stderr"]);
            command
        } else {
            let mut command = before_others(&binary());
            command.arg("play").arg(format!("tcp://127.0.0.1:{port}"));
            command.arg("--output").arg(format!("file:{}", sound.display()));
            command.args(["--id", &id, "--quiet"]);
            command
        };
        self.library.load_into(&mut command, &sound, &stamps, 0);
        let process = self.net.run_inside(NATS_NODES + edge, || {
            Process::start(&mut command, &file("out"), &file("err")).unwrap()
        });
        let is_ours = snapclient.is_none();
        self.players.push(RunningPlayer { edge, process, is_ours, sound, stamps });
    }
}

impl Node {
    fn start(&mut self, net: &NetNamespaces) {
        let file = self.scratch.join("aulos.toml");
        std::fs::write(&file, &self.config).unwrap();
        let stream = format!("listen.stream=127.0.0.1:{}", self.port);
        let start = || {
            AulosServer::start_with(&self.scratch, |command| {
                command.arg("--config").arg(&file).args(["--set", &stream]);
            })
        };
        self.server = Some(net.run_inside(self.place, start).unwrap());
    }

    fn status(&self, net: &NetNamespaces) -> Value {
        let control = self.server.as_ref().unwrap_or_else(|| panic!("{}", self.name)).control;
        net.run_inside(self.place, || Rpc::connect(control).call("Aulos.GetStatus", &json!({})))
    }
}

impl RunningPlayer {
    fn finish(self, epoch: u64) -> PlayedSound {
        let bytes = std::fs::read(&self.sound).unwrap();
        let stamps = of_last_file(read_stamps(&self.stamps).unwrap(), bytes.len());
        let frames = SampleWidth::B16.frames(&bytes);
        let silences = silences(&frames, &stamps);
        let playout = Playout::new(ToneCapture::new(&frames), &stamps, epoch, 0);
        assert!(playout.begin().is_some(), "a player at edge {} played nothing", self.edge);
        PlayedSound { edge: self.edge, is_ours: self.is_ours, playout, silences }
    }
}

/// The stamps of the file that is there: snapclient begins it anew with a new connection.
fn of_last_file(mut stamps: Vec<WriteStamp>, bytes: usize) -> Vec<WriteStamp> {
    let written = stamps.iter().map(|stamp| stamp.bytes).sum::<u64>();
    let mut before = written.saturating_sub(u64::try_from(bytes).unwrap());
    stamps.retain(|stamp| {
        let is_there = before == 0;
        before = before.saturating_sub(stamp.bytes);
        is_there
    });
    stamps
}

/// All silence between two parts of what was played.
fn silences(frames: &[Frame], stamps: &[WriteStamp]) -> Vec<Silence> {
    // The tone is nowhere silent in both channels.
    let is_silent = |frame: &Frame| frame.iter().all(|sample| sample.unsigned_abs() < QUIET);
    let mut found = Vec::new();
    let mut heard = None;
    for (number, _) in frames.iter().enumerate().filter(|(_, frame)| !is_silent(frame)) {
        if let Some(before) = heard.replace(number)
            && number - before > SHORTEST
        {
            let millis = u64::try_from((number - before) * 1_000 / 48_000).unwrap();
            let at = written_at(before, stamps);
            found.push(Silence { at, duration: Duration::from_millis(millis) });
        }
    }
    found
}

/// When a frame was written.
fn written_at(frame: usize, stamps: &[WriteStamp]) -> u64 {
    let mut bytes = u64::try_from(frame * 4).unwrap();
    let found = stamps.iter().find(|stamp| {
        let is_inside = bytes < stamp.bytes;
        bytes = bytes.saturating_sub(stamp.bytes);
        is_inside
    });
    found.map_or(u64::MAX, |stamp| stamp.nanos)
}

const QUIET: u32 = 200;

/// Frames of silence that count: 1 ms.
const SHORTEST: usize = 48;

/// `CLOCK_MONOTONIC` in nanoseconds, as in the stamps.
pub(super) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}
