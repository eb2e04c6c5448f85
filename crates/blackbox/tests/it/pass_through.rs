//! A server that passes the chunks of another one on: their bytes, their time, and what follows
//! when the other one is gone.
//!
//! Both servers stamp chunks with the clock of this machine, so playout times can be compared
//! without a player: a stamp plus the buffer of its server.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use aulos_blackbox::nats::NatsServer;
use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::wire::{self, ChunkCodec, HEADER, MessageHeader, kind};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::retry::retry_after_stall;
use crate::rpc::Rpc;
use crate::{long_quiet_turn, quiet_turn, soak, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);

/// From the first passed chunk until its stamps have reached those of the origin: half a chunk at
/// 0.5 ms per second, with a margin. Chunks of 40 ms are left to the long form.
fn settling(chunk_ms: u32) -> Duration {
    Duration::from_secs(u64::from(chunk_ms) + 4)
}

const CAPTURE: Duration = Duration::from_secs(5);

/// Both servers buffer differently.
const ORIGIN_BUFFER_US: i64 = 1_000_000;
const EDGE_BUFFER_US: i64 = 650_000;

/// What a client without a decoder has received.
#[derive(Default)]
struct Capture {
    headers: Vec<Vec<u8>>,
    chunks: Vec<CapturedChunk>,
}

struct CapturedChunk {
    stamp_us: i64,
    /// By the header that came last before it.
    frames: u32,
    payload: Vec<u8>,
}

/// A client that only reads.
struct RawClient {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Capture>,
}

impl RawClient {
    fn start(server: SocketAddr, id: usize) -> Self {
        let mut socket = TcpStream::connect(server).unwrap();
        socket.write_all(&wire::hello(id)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            let (mut bytes, mut buffer, mut out) = (Vec::new(), [0; 65_536], Capture::default());
            let mut codec = None;
            while !over.load(Ordering::Relaxed) {
                let Ok(count @ 1..) = socket.read(&mut buffer) else { continue };
                bytes.extend_from_slice(&buffer[..count]);
                while let Some(header) = MessageHeader::parse(&bytes) {
                    let end = HEADER + header.size as usize;
                    if bytes.len() < end {
                        break;
                    }
                    out.take(header.kind, &bytes[HEADER..end], &mut codec);
                    bytes.drain(..end);
                }
            }
            out
        });
        Self { ends, thread }
    }

    fn end(self) -> Capture {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

impl Capture {
    fn take(&mut self, message: u16, payload: &[u8], codec: &mut Option<ChunkCodec>) {
        match message {
            kind::CODEC_HEADER => {
                *codec = ChunkCodec::parse(payload);
                self.headers.push(payload.to_vec());
            }
            kind::WIRE_CHUNK => {
                let stamp_us = wire::time_at(payload, 0).unwrap();
                let payload = payload[12..].to_vec();
                let length = u32::try_from(payload.len()).unwrap();
                let frames = codec.unwrap().frames(&payload, length).unwrap();
                self.chunks.push(CapturedChunk { stamp_us, frames, payload });
            }
            _ => {}
        }
    }

    /// The largest distance, in microseconds, between the end of a chunk and the next one.
    fn largest_gap_us(&self) -> i64 {
        let gap = |pair: &[CapturedChunk]| {
            let span = i64::from(pair[0].frames) * 1_000_000 / 48_000;
            (pair[1].stamp_us - pair[0].stamp_us - span).abs()
        };
        self.chunks.windows(2).map(gap).max().unwrap()
    }
}

fn origin(scratch: &ScratchDir, port: u16, codec: &str, chunk_ms: u32) -> AulosServer {
    let config = format!(
        "[[station]]\nname = \"default\"\ncodec = \"{codec}\"\nchunk_ms = {chunk_ms}\n\
         sources = [\"demo://\"]\n"
    );
    let file = scratch.join("origin.toml");
    std::fs::write(&file, config).unwrap();
    AulosServer::start_with(scratch, |command| {
        let port = format!("listen.stream=127.0.0.1:{port}");
        command.arg("--config").arg(&file).args(["--set", &port]);
    })
    .unwrap()
}

struct Edge {
    server: AulosServer,
    _scratch: ScratchDir,
}

impl Edge {
    fn start(origin: u16, codec: &str, buffer_ms: i64) -> Self {
        Self::of(&format!("snapcast://127.0.0.1:{origin}?id=edge&pass=true"), codec, buffer_ms)
    }

    /// With this source, and a tone as the second one.
    fn of(uri: &str, codec: &str, buffer_ms: i64) -> Self {
        let scratch = ScratchDir::new("edge").unwrap();
        let config = format!(
            "[[station]]\nname = \"default\"\ncodec = \"{codec}\"\nbuffer_ms = {buffer_ms}\n\
             switch = {{ failback_delay_s = 1 }}\n\
             sources = [\"{uri}\", \"tone://440\"]\n"
        );
        let server = AulosServer::start(&scratch, &config).unwrap();
        Self { server, _scratch: scratch }
    }

    fn status(&self) -> Value {
        Rpc::connect(self.server.control).call("Aulos.GetStatus", &json!({}))
    }

    fn pass(&self) -> Value {
        self.status()["stations"][0]["sources"][0]["pass"].clone()
    }

    fn passes(&self) -> bool {
        self.pass()["passed"] == true
    }

    /// Chunks that were encoded, and passed.
    fn counts(&self) -> (u64, u64) {
        let counters = &self.status()["counters"];
        let count = |name: &str| counters[name].as_u64().unwrap();
        (count("chunks_made"), count("chunks_passed"))
    }
}

#[test]
fn chunks_are_passed_byte_by_byte_and_played_at_the_origins_time() {
    retry_after_stall("pass_through::chunks_are_passed_byte_by_byte", || {
        let _turn = long_quiet_turn();
        std::thread::scope(|scope| {
            let long = soak().then_some(("flac", 40));
            for (codec, chunk_ms) in [("flac", 20), ("opus", 20)].into_iter().chain(long) {
                scope.spawn(move || bytes_and_time(codec, chunk_ms));
            }
        });
    });
}

/// The same through NATS.
#[test]
fn chunks_are_passed_through_nats() {
    retry_after_stall("pass_through::chunks_are_passed_through_nats", || {
        let Some(program) = find_or_skip("nats-server") else { return };
        let _turn = long_quiet_turn();
        let nats = NatsServer::start(&program).unwrap();
        std::thread::scope(|scope| {
            for codec in ["flac", "opus"] {
                let port = nats.port;
                scope.spawn(move || {
                    let scratch = ScratchDir::new("pass-origin").unwrap();
                    let config = format!(
                        "[cluster]\nurl = \"nats://127.0.0.1:{port}\"\nsite = \"{codec}\"\n\
                         [[station]]\nname = \"studio\"\npublish = true\ncodec = \"{codec}\"\n\
                         sources = [\"demo://\"]\n"
                    );
                    let origin = AulosServer::start(&scratch, &config).unwrap();
                    let uri = format!("nats://127.0.0.1:{port}/studio?site={codec}&pass=true");
                    let edge = Edge::of(&uri, codec, EDGE_BUFFER_US / 1_000);
                    compare_both(origin, edge, codec, 20);
                });
            }
        });
    });
}

fn bytes_and_time(codec: &str, chunk_ms: u32) {
    let scratch = ScratchDir::new("pass-origin").unwrap();
    let port = free_port().unwrap();
    let origin = origin(&scratch, port, codec, chunk_ms);
    let edge = Edge::start(port, codec, EDGE_BUFFER_US / 1_000);
    compare_both(origin, edge, codec, chunk_ms);
}

fn compare_both(origin: AulosServer, edge: Edge, codec: &str, chunk_ms: u32) {
    let early = RawClient::start(edge.server.stream, 1);
    wait_for("passing", PATIENCE, || edge.passes());
    std::thread::sleep(settling(chunk_ms));
    let early = early.end();
    let before = edge.counts();
    let clients = [origin.stream, edge.server.stream].map(|server| RawClient::start(server, 2));
    std::thread::sleep(CAPTURE);
    let after = edge.counts();
    let [there, here] = clients.map(RawClient::end);
    let label = format!("{codec}, {chunk_ms} ms");
    // Nothing is encoded, and the clients of both get the same header and the same chunks.
    assert_eq!(after.0, before.0, "{label}: chunks were encoded");
    assert!(after.1 - before.1 >= 100, "{label}: {before:?} {after:?}");
    assert_eq!(here.headers, there.headers, "{label}");
    let times: HashMap<_, _> =
        there.chunks.iter().map(|chunk| (&chunk.payload, chunk.stamp_us)).collect();
    let found = here.chunks.iter().filter_map(|chunk| Some((chunk, times.get(&chunk.payload)?)));
    let mut off: Vec<i64> = found
        .map(|(chunk, there)| (chunk.stamp_us + EDGE_BUFFER_US - there - ORIGIN_BUFFER_US).abs())
        .collect();
    // At the ends one of the two has more.
    let shared = here.chunks.len().min(there.chunks.len());
    assert!(off.len() * 10 >= shared * 8, "{label}: {} of {shared} chunks", off.len());
    off.sort_unstable();
    let p99 = off[(off.len() - 1) * 99 / 100];
    println!(
        "{label}: {} chunks, playout differs by p99 {p99} us, max {:?}",
        off.len(),
        off.last()
    );
    assert!(p99 <= 1_000, "{label}: {p99} us");
    // A header for each change: the fallback's, and that of the origin where it differs.
    let headers = early.headers.len();
    assert!(headers <= 1 + usize::from(chunk_ms != 20), "{label}: {headers} headers");
    assert!(here.largest_gap_us() <= 20, "{label}: {}", here.largest_gap_us());
    edge.server.stop().unwrap();
    origin.stop().unwrap();
}

#[test]
fn the_fallback_and_the_return_of_the_origin_leave_no_gap() {
    retry_after_stall("pass_through::the_fallback_and_the_return", || {
        let _turn = quiet_turn();
        let scratch = ScratchDir::new("pass-fallback").unwrap();
        let port = free_port().unwrap();
        let first = origin(&scratch, port, "flac", 20);
        let edge = Edge::start(port, "flac", EDGE_BUFFER_US / 1_000);
        wait_for("passing", PATIENCE, || edge.passes());
        let client = RawClient::start(edge.server.stream, 1);
        std::thread::sleep(Duration::from_secs(2));
        let pid = Pid::from_raw(i32::try_from(first.id()).unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        drop(first);
        wait_for("the fallback", PATIENCE, || {
            let status = edge.status();
            let station = &status["stations"][0];
            station["active"] == station["sources"][1]["name"]
        });
        assert_eq!(edge.pass()["reason"], "the source is not on air");
        std::thread::sleep(Duration::from_secs(2));
        let again = origin(&scratch, port, "flac", 20);
        wait_for("passing again", PATIENCE * 3, || edge.passes());
        std::thread::sleep(Duration::from_secs(2));
        let capture = client.end();
        let (gap, chunks) = (capture.largest_gap_us(), capture.chunks.len());
        println!("{chunks} chunks, largest gap {gap} us, {} headers", capture.headers.len());
        assert!(gap <= 20, "{gap} us between two chunks");
        assert_eq!(capture.headers.len(), 1);
        edge.server.stop().unwrap();
        again.stop().unwrap();
    });
}

/// The status and the log say what to change.
#[test]
fn what_keeps_chunks_from_being_passed_is_said() {
    let _turn = crate::shared_turn();
    let scratch = ScratchDir::new("pass-reasons").unwrap();
    let port = free_port().unwrap();
    let origin = origin(&scratch, port, "flac", 20);
    for (codec, buffer_ms, reason) in [
        ("flac", 1_000, "`buffer_ms` of 1000 leaves no time"),
        ("pcm", 600, "the other server sends flac 48000:16:2, the station pcm 48000:16:2"),
    ] {
        let edge = Edge::start(port, codec, buffer_ms);
        let said = |text: &str| text.contains(reason);
        wait_for(reason, PATIENCE, || edge.pass()["reason"].as_str().is_some_and(said));
        wait_for("the log", PATIENCE, || said(&edge.server.printed().unwrap()));
        assert!(edge.counts().1 == 0 && !edge.passes());
        edge.server.stop().unwrap();
    }
    origin.stop().unwrap();
}
