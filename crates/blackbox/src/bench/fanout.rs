//! CPU time of the server process per delivered chunk, compared with a real snapserver in the same
//! run.
//!
//! Both play the same FIFO, written by the same writer, to the same clients. They alternate, and
//! the minimum of several rounds counts, because noise only adds.

use std::fs::OpenOptions;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::bench::row::{BenchRow, BenchTarget};
use crate::bench::setting;
use crate::load::{LoadPhase, LoadTest};
use crate::paced_writer::PacedWriter;
use crate::peer::{Snapserver, find_or_skip};
use crate::process_usage::{self, ProcessUsage};
use crate::scratch::ScratchDir;
use crate::server::AulosServer;
use crate::signal::{RATE, SampleWidth, programme};

/// One round of one server.
#[derive(Clone, Debug)]
struct FanoutRun {
    us_per_chunk: f64,
    threads: usize,
    kilobytes_per_client: f64,
    report: Value,
}

/// pcm, flac and opus, with delay, clock errors and threads.
///
/// # Errors
/// If a server does not run.
pub fn rows() -> io::Result<Vec<BenchRow>> {
    let counts = match setting("AULOS_BENCH_CLIENTS", 0) {
        0 => vec![500, 2_000],
        clients => vec![clients],
    };
    let rows = counts.into_iter().map(rows_of).collect::<io::Result<Vec<_>>>()?;
    Ok(rows.into_iter().flatten().collect())
}

fn rows_of(clients: usize) -> io::Result<Vec<BenchRow>> {
    let snapserver = find_or_skip("snapserver");
    let mut rows = Vec::new();
    for codec in ["pcm", "flac", "opus"] {
        let (mut ours, mut peers) = (Vec::new(), Vec::new());
        for round in 0..setting("AULOS_BENCH_ROUNDS", 5) {
            ours.push(run_ours(codec, clients)?);
            if let Some(program) = &snapserver {
                peers.push(run_snapserver(program, codec, clients)?);
            }
            let last = |runs: &[FanoutRun]| runs.last().map(|run| run.us_per_chunk);
            eprintln!("{codec} {round}: {:.2?} us, peer {:.2?} us", last(&ours), last(&peers));
        }
        let best = |runs: &[FanoutRun]| {
            runs.iter().min_by(|a, b| a.us_per_chunk.total_cmp(&b.us_per_chunk)).cloned()
        };
        if let Some(best_of_ours) = best(&ours) {
            rows.extend(compare(codec, clients, &best_of_ours, best(&peers).as_ref()));
        }
        rows.push(first_chunk(codec, clients, &ours, &peers));
    }
    Ok(rows)
}

fn compare(
    codec: &str,
    clients: usize,
    ours: &FanoutRun,
    peer: Option<&FanoutRun>,
) -> Vec<BenchRow> {
    let row = |case: &str, figure: &dyn Fn(&FanoutRun) -> f64, target| BenchRow {
        part: "fan-out",
        case: format!("{codec}, {clients} clients, {case}"),
        ours: figure(ours),
        peer: peer.map(figure),
        target,
    };
    let of = |run: &FanoutRun, group: &str, key: &str, unit: f64| {
        run.report[group][key].as_f64().unwrap_or(f64::NAN) / unit
    };
    let count = |run: &FanoutRun, key: &str| run.report[key].as_f64().unwrap_or(f64::NAN);
    vec![
        row("us of CPU per chunk", &|t| t.us_per_chunk, BenchTarget::Ratio(1.0 / 6.0)),
        row(
            "delivery delay p99, ms",
            &|t| of(t, "delay_us", "p99", 1e3),
            BenchTarget::AtMost(150.0),
        ),
        row(
            "error of a client's clock p99, us",
            &|t| of(t, "clock_error_us", "p99", 1.0),
            BenchTarget::AtMost(200.0),
        ),
        row(
            "gaps and clients cut",
            &|t| count(t, "gaps") + count(t, "cut"),
            BenchTarget::AtMost(0.0),
        ),
        row("kB per client", &|t| t.kilobytes_per_client, BenchTarget::AtMost(4.0)),
        #[expect(clippy::cast_precision_loss, reason = "a handful of threads")]
        row("threads", &|t| t.threads as f64, BenchTarget::None),
    ]
}

/// An absolute limit, so the best of all rounds: in the others another process had the core.
fn first_chunk(codec: &str, clients: usize, ours: &[FanoutRun], peers: &[FanoutRun]) -> BenchRow {
    let best = |runs: &[FanoutRun]| {
        let all = runs.iter().filter_map(|run| run.report["first_chunk_us"]["p99"].as_f64());
        all.min_by(f64::total_cmp).map(|us| us / 1e3)
    };
    BenchRow {
        part: "fan-out",
        case: format!("{codec}, {clients} clients at once, first chunk after hello p99, ms"),
        ours: best(ours).unwrap_or(f64::NAN),
        peer: best(peers),
        target: BenchTarget::AtMost(5.0),
    }
}

fn run_ours(codec: &str, clients: usize) -> io::Result<FanoutRun> {
    let scratch = ScratchDir::new("bench-ours")?;
    let fifo = scratch.join("in");
    let config = format!(
        "[[station]]\nname = \"default\"\ncodec = \"{codec}\"\nsources = [\"pipe://{}\"]\n",
        fifo.display()
    );
    let server = AulosServer::start(&scratch, &config)?;
    let run = run_load(server.id(), server.stream, &fifo, clients)?;
    server.stop()?;
    Ok(run)
}

fn run_snapserver(program: &Path, codec: &str, clients: usize) -> io::Result<FanoutRun> {
    let scratch = ScratchDir::new("bench-peer")?;
    let fifo = scratch.fifo("in")?;
    let mut server = Snapserver::start(program, &scratch, &fifo, codec, "48000:16:2")?;
    let address = ([127, 0, 0, 1], server.port).into();
    let run = run_load(server.process.id(), address, &fifo, clients)?;
    server.process.terminate(Duration::from_secs(10))?;
    Ok(run)
}

fn run_load(pid: u32, server: SocketAddr, fifo: &Path, clients: usize) -> io::Result<FanoutRun> {
    let pipe = OpenOptions::new().write(true).open(fifo)?;
    let over = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let over = Arc::clone(&over);
        move || {
            let second = SampleWidth::B16.bytes(&programme(10 * RATE, SampleWidth::B16, 1));
            let mut writer = PacedWriter::steady(pipe, 4 * RATE);
            // The run ends when the reader closes the FIFO.
            while !over.load(Ordering::Relaxed) && writer.write(&second[..4 * RATE]).is_ok() {}
        }
    });
    // By then every buffer of the station's pool has been used once, so that later memory use is
    // due to the clients.
    std::thread::sleep(Duration::from_secs(4));
    let alone = process_usage::read(pid)?;
    let (mut begin, mut end) = (ProcessUsage::default(), ProcessUsage::default());
    let load = LoadTest {
        server,
        clients,
        settle: Duration::from_secs(3),
        listen: Duration::from_secs(8),
    };
    let report = load.run(|mark| {
        // If the usage cannot be read, the server has ended, which shows in the missing chunks.
        let now = process_usage::read(pid).unwrap_or_default();
        *(if mark == LoadPhase::Begin { &mut begin } else { &mut end }) = now;
    })?;
    over.store(true, Ordering::Relaxed);
    let report_json = report.json();
    drop(writer.join());
    if report.chunks == 0 || end.threads == 0 {
        return Err(io::Error::other(format!("no chunks: {report_json}")));
    }
    #[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
    Ok(FanoutRun {
        us_per_chunk: (end.cpu - begin.cpu).as_secs_f64() * 1e6 / report.chunks as f64,
        threads: end.threads,
        kilobytes_per_client: end.resident.saturating_sub(alone.resident) as f64
            / 1024.0
            / clients.max(1) as f64,
        report: report_json,
    })
}
