//! CPU time and memory of the server process with many listeners of one MP3 mount, compared with a
//! real icecast2 in the same run.
//!
//! Both get the same file of 128 kbit/s from the same source client, and have the same listeners.
//! They alternate, and the minimum of several rounds counts, because noise only adds.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::bench::row::{BenchRow, BenchTarget};
use crate::bench::setting;
use crate::icecast;
use crate::load::LoadPhase;
use crate::paced_writer::PacedWriter;
use crate::peer::find_or_skip;
use crate::ports::free_port;
use crate::process_usage::{self, ProcessUsage};
use crate::scratch::ScratchDir;
use crate::server::AulosServer;
use crate::stream_load::{StreamLoad, StreamReport};

/// One round of one server.
#[derive(Clone, Copy, Debug)]
struct MountRun {
    /// With a source, before the first listener.
    alone: ProcessUsage,
    alone_cpu: f64,
    cpu: f64,
    resident: u64,
    report: StreamReport,
}

/// CPU, memory, listeners cut.
///
/// # Errors
/// If a server does not run.
pub fn rows() -> io::Result<Vec<BenchRow>> {
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return Ok(Vec::new()) };
    let icecast = find_or_skip("icecast2");
    let scratch = ScratchDir::new("bench-mounts")?;
    let file = encode(&ffmpeg, &scratch)?;
    let listeners = setting("AULOS_BENCH_CLIENTS", 2_000);
    let (mut ours, mut peers) = (Vec::new(), Vec::new());
    for round in 0..setting("AULOS_BENCH_ROUNDS", 5) {
        ours.push(run_ours(&file, listeners)?);
        if let Some(program) = &icecast {
            peers.push(run_icecast(program, &file, listeners)?);
        }
        eprintln!("{round}: {:?}\n{round}: peer {:?}", ours.last(), peers.last());
    }
    Ok(compare(listeners, &ours, &peers))
}

fn compare(listeners: usize, ours: &[MountRun], peers: &[MountRun]) -> Vec<BenchRow> {
    let row = |case: &str, figure: &dyn Fn(&MountRun) -> f64, target| {
        let least = |runs: &[MountRun]| runs.iter().map(figure).min_by(f64::total_cmp);
        BenchRow {
            part: "mounts",
            case: format!("{listeners} listeners, {case}"),
            ours: least(ours).unwrap_or(f64::NAN),
            peer: least(peers),
            target,
        }
    };
    #[expect(clippy::cast_precision_loss, reason = "counts and bytes below 2^53")]
    let rows = vec![
        row("% of a core", &|run| run.cpu, BenchTarget::Ratio(1.0 / 3.0)),
        row("of it before the first listener", &|run| run.alone_cpu, BenchTarget::None),
        row("MB resident", &|run| run.resident as f64 / 1e6, BenchTarget::Ratio(1.0 / 4.0)),
        row(
            "of it before the first listener",
            &|run| run.alone.resident as f64 / 1e6,
            BenchTarget::None,
        ),
        row(
            "kB resident per listener",
            &|run| {
                let more = run.resident.saturating_sub(run.alone.resident);
                more as f64 / 1e3 / listeners.max(1) as f64
            },
            BenchTarget::Ratio(1.0 / 4.0),
        ),
        // The worst of all rounds, unlike the others.
        BenchRow {
            part: "mounts",
            case: format!("{listeners} listeners, cut"),
            ours: ours.iter().map(|run| run.report.cut).max().unwrap_or(0) as f64,
            peer: peers.iter().map(|run| run.report.cut as f64).max_by(f64::total_cmp),
            target: BenchTarget::AtMost(0.0),
        },
        BenchRow {
            part: "mounts",
            case: format!("{listeners} listeners, seconds that a player lacks"),
            ours: lack(ours).unwrap_or(f64::NAN),
            peer: lack(peers),
            target: BenchTarget::AtMost(0.0),
        },
    ];
    rows
}

/// For how long the worst player of all rounds has had nothing to play; negative is the reserve
/// that each has had.
fn lack(runs: &[MountRun]) -> Option<f64> {
    runs.iter().map(|run| -run.report.reserve_s).max_by(f64::total_cmp)
}

fn run_ours(file: &Path, listeners: usize) -> io::Result<MountRun> {
    let scratch = ScratchDir::new("bench-ours")?;
    let port = free_port()?;
    // Without a station of its own the server would play its demo.
    let config = format!(
        "[limits]\nsessions_per_address = 100000\nconnections_per_second = 100000\n\
         [[station]]\nname = \"default\"\nsources = [\"pipe://{}\"]\n\
         [[mount]]\nname = \"live.mp3\"\nsources = [\"icecast://127.0.0.1:{port}/live.mp3\"]\n",
        scratch.join("silent").display()
    );
    let server = AulosServer::start(&scratch, &config)?;
    let source = SourceClient::start(port, file)?;
    let run = run_load(server.id(), server.http, listeners)?;
    source.stop();
    server.stop()?;
    Ok(run)
}

fn run_icecast(program: &Path, file: &Path, listeners: usize) -> io::Result<MountRun> {
    let scratch = ScratchDir::new("bench-peer")?;
    let port = free_port()?;
    let mut server = icecast::start(program, port, 2 * listeners, &scratch)?;
    let source = SourceClient::start(port, file)?;
    let run = run_load(server.id(), ([127, 0, 0, 1], port).into(), listeners)?;
    source.stop();
    server.terminate(Duration::from_secs(10))?;
    Ok(run)
}

fn run_load(pid: u32, server: SocketAddr, listeners: usize) -> io::Result<MountRun> {
    // The burst is complete by then.
    std::thread::sleep(Duration::from_secs(6));
    let before = process_usage::read(pid)?;
    std::thread::sleep(ALONE);
    let alone = process_usage::read(pid)?;
    let percent = |cpu: Duration, time: Duration| cpu.as_secs_f64() / time.as_secs_f64() * 100.0;
    let (mut begin, mut end) = (ProcessUsage::default(), ProcessUsage::default());
    let load = StreamLoad {
        server,
        path: "/live.mp3",
        listeners,
        bytes_per_second: BYTES_PER_SECOND,
        settle: Duration::from_secs(6),
        listen: Duration::from_secs(12),
    };
    let report = load.run(|mark| {
        // If the usage cannot be read, the server has ended, which shows in the missing bytes.
        let now = process_usage::read(pid).unwrap_or_default();
        *(if mark == LoadPhase::Begin { &mut begin } else { &mut end }) = now;
    })?;
    if report.bytes == 0 || end.threads == 0 {
        return Err(io::Error::other(format!("no bytes: {report:?}")));
    }
    Ok(MountRun {
        alone,
        alone_cpu: percent(alone.cpu.saturating_sub(before.cpu), ALONE),
        cpu: percent(end.cpu.saturating_sub(begin.cpu), report.elapsed),
        resident: end.resident,
        report,
    })
}

/// A minute of 128 kbit/s, 44,100 Hz, stereo.
fn encode(ffmpeg: &Path, scratch: &ScratchDir) -> io::Result<PathBuf> {
    let file = scratch.join("sound.mp3");
    let sound = "anoisesrc=color=pink:sample_rate=44100:duration=60:amplitude=0.3";
    let status = Command::new(ffmpeg)
        .args(["-nostdin", "-v", "error", "-f", "lavfi", "-i", sound, "-ac", "2"])
        .args(["-c:a", "libmp3lame", "-b:a", "128k", "-write_xing", "0", "-id3v2_version", "0"])
        .arg(&file)
        .status()?;
    if !status.success() {
        return Err(io::Error::other(format!("ffmpeg: {status}")));
    }
    Ok(file)
}

/// Sends a file again and again, in real time.
struct SourceClient {
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl SourceClient {
    fn start(port: u16, file: &Path) -> io::Result<Self> {
        let bytes = std::fs::read(file)?;
        let mut socket = connect(port)?;
        // printf 'source:secret' | base64
        write!(
            socket,
            "SOURCE /live.mp3 HTTP/1.0\r\nAuthorization: Basic c291cmNlOnNlY3JldA==\r\n\
             Content-Type: audio/mpeg\r\n\r\n"
        )?;
        let over = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let over = Arc::clone(&over);
            move || {
                let mut writer = PacedWriter::steady(socket, BYTES_PER_SECOND as usize);
                // Some at a time, so that the end is soon; without a reader it is over too.
                for piece in bytes.chunks(BYTES_PER_SECOND as usize / 2).cycle() {
                    if over.load(Ordering::Relaxed) || writer.write(piece).is_err() {
                        break;
                    }
                }
            }
        });
        Ok(Self { over, thread })
    }

    fn stop(self) {
        self.over.store(true, Ordering::Relaxed);
        drop(self.thread.join());
    }
}

/// The port of source clients is opened after the others.
fn connect(port: u16) -> io::Result<TcpStream> {
    let connect = || TcpStream::connect(("127.0.0.1", port));
    for _ in 0..100 {
        if let Ok(socket) = connect() {
            return Ok(socket);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    connect()
}

const BYTES_PER_SECOND: u32 = 16_000;

/// Duration of the measurement before the first listener.
const ALONE: Duration = Duration::from_secs(5);
