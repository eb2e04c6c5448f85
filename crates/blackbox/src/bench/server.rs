//! The cost of an idle server.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bench::row::{BenchRow, BenchTarget};
use crate::bench::setting;
use crate::process_usage;
use crate::scratch::ScratchDir;
use crate::server::{AulosServer, binary};

/// Duration of one measurement of the idle server.
const IDLE_PERIOD: Duration = Duration::from_secs(10);

/// Start time, CPU, memory and size; the minimum of several starts.
///
/// # Errors
/// If the server does not run.
pub fn rows() -> io::Result<Vec<BenchRow>> {
    let (mut started, mut cpu, mut resident) = (f64::MAX, f64::MAX, f64::MAX);
    for _ in 0..setting("AULOS_BENCH_ROUNDS", 5) {
        let scratch = ScratchDir::new("bench")?;
        let server = AulosServer::start_with(&scratch, |command| {
            command.env("XDG_RUNTIME_DIR", scratch.path());
        })?;
        started = started.min(server.started_in.as_secs_f64() * 1e3);
        std::thread::sleep(Duration::from_secs(2));
        let before = process_usage::read(server.id())?;
        std::thread::sleep(IDLE_PERIOD);
        let after = process_usage::read(server.id())?;
        cpu = cpu.min((after.cpu - before.cpu).as_secs_f64() / IDLE_PERIOD.as_secs_f64() * 100.0);
        #[expect(clippy::cast_precision_loss, reason = "a process has less than 2^53 bytes")]
        let megabytes = after.resident as f64 / 1e6;
        resident = resident.min(megabytes);
        server.stop()?;
    }
    let row = |case: &str, ours, most| BenchRow {
        part: "server",
        case: case.to_owned(),
        ours,
        peer: None,
        target: BenchTarget::AtMost(most),
    };
    let [status, answered] = measure_status_cost()?;
    let [station_cpu, station_resident] = measure_idle_stations()?;
    let mut rows = vec![
        row("Server.GetStatus, 5,000 clients, ms of CPU", status, 50.0),
        row("Server.GetStatus, 5,000 clients, ms until it is read", answered, 50.0),
        row("start to listening, ms", started, 100.0),
        row("idle, one station, % of a core", cpu, 1.5),
        row("idle, one station, MB resident", resident, 15.0),
        row("idle, each of 200 stations, % of a core", station_cpu, 0.1),
        row("idle, each of 200 stations, MB resident", station_resident, 1.0),
    ];
    if let Some(size) = stripped_megabytes()? {
        rows.push(row("release binary stripped, MB", size, 20.0));
    } else {
        eprintln!("aulos-bench: no strip: the binary's size is left out");
    }
    Ok(rows)
}

/// What each of 200 stations costs that nobody listens to, in the default codec: percent of a core
/// and megabytes, beyond a server with one.
fn measure_idle_stations() -> io::Result<[f64; 2]> {
    let mut used = [[0.0; 2]; 2];
    for (used, stations) in used.iter_mut().zip([1, IDLE_STATIONS + 1]) {
        let scratch = ScratchDir::new("stations")?;
        let station =
            |number| format!("[[station]]\nname = \"s{number}\"\nsources = [\"tone://?hz=300\"]\n");
        let config: String = (0..stations).map(station).collect();
        let server = AulosServer::start(&scratch, &config)?;
        std::thread::sleep(Duration::from_secs(4));
        let before = process_usage::read(server.id())?;
        std::thread::sleep(IDLE_PERIOD);
        let after = process_usage::read(server.id())?;
        let cpu = (after.cpu - before.cpu).as_secs_f64() / IDLE_PERIOD.as_secs_f64() * 100.0;
        #[expect(clippy::cast_precision_loss, reason = "a process has less than 2^53 bytes")]
        let megabytes = after.resident as f64 / 1e6;
        *used = [cpu, megabytes];
        server.stop()?;
    }
    let [one, many] = used;
    Ok([0, 1].map(|figure| (many[figure] - one[figure]) / f64::from(IDLE_STATIONS)))
}

/// Stations that are measured together.
const IDLE_STATIONS: u32 = 200;

/// The cost of the status with thousands of clients, and the time until a controller has read it:
/// milliseconds, the minimum of several rounds of twenty.
fn measure_status_cost() -> io::Result<[f64; 2]> {
    let scratch = ScratchDir::new("status")?;
    std::fs::create_dir(scratch.join("state"))?;
    std::fs::write(scratch.join("state/server.json"), state_with_clients(5_000).to_string())?;
    let server = AulosServer::start_with(&scratch, |command| {
        command.env("XDG_RUNTIME_DIR", scratch.path());
    })?;
    let socket = TcpStream::connect(server.control)?;
    let mut reader = BufReader::with_capacity(1 << 20, socket);
    let mut answer = String::new();
    let (mut best, mut known) = ([f64::MAX; 2], Value::Null);
    for _ in 0..setting("AULOS_BENCH_ROUNDS", 5) {
        let before = process_usage::read(server.id())?;
        for _ in 0..STATUS_CALLS {
            let start = Instant::now();
            let call = "{\"id\":1,\"jsonrpc\":\"2.0\",\"method\":\"Server.GetStatus\"}\n";
            reader.get_mut().write_all(call.as_bytes())?;
            // Between responses the server sends notifications of its station.
            while !answer.starts_with("{\"id\":1,") {
                answer.clear();
                if reader.read_line(&mut answer)? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            best[1] = best[1].min(start.elapsed().as_secs_f64() * 1e3);
            known = serde_json::from_str(&answer)?;
            answer.clear();
        }
        let cpu = process_usage::read(server.id())?.cpu - before.cpu;
        best[0] = best[0].min(cpu.as_secs_f64() * 1e3 / f64::from(STATUS_CALLS));
    }
    let groups = known["result"]["server"]["groups"].as_array().map_or(0, Vec::len);
    if groups != 5_000 {
        return Err(io::Error::other(format!("the status has {groups} groups")));
    }
    server.stop()?;
    Ok(best)
}

/// Enough to make the station's own cost negligible.
const STATUS_CALLS: u32 = 20;

/// snapserver's state file with this number of clients, each in its own group.
fn state_with_clients(clients: u32) -> Value {
    let group = |n: u32| {
        json!({
            "id": format!("00000000-0000-4000-8000-{n:012}"),
            "name": "",
            "stream_id": "default",
            "muted": false,
            "clients": [{
                "id": format!("02:00:00:00:{:02x}:{:02x}", n >> 8, n & 255),
                "connected": false,
                "config": { "instance": 1, "latency": 0, "name": format!("room {n}"),
                    "volume": { "muted": false, "percent": n % 101 } },
                "host": { "arch": "armv7l", "ip": "192.0.2.1", "mac": "02:00:00:00:00:00",
                    "name": format!("player-{n}"), "os": "Debian GNU/Linux 12 (bookworm)" },
                "lastSeen": { "sec": 1_700_000_000, "usec": n },
                "snapclient": { "name": "Snapclient", "protocolVersion": 2, "version": "0.34.0" },
            }],
        })
    };
    json!({ "ConfigVersion": 2, "Groups": (0..clients).map(group).collect::<Vec<_>>() })
}

/// Size of a stripped copy; `None` without `strip`.
fn stripped_megabytes() -> io::Result<Option<f64>> {
    let scratch = ScratchDir::new("strip")?;
    let copy = scratch.join("aulos");
    let stripped = Command::new("strip").arg("-o").arg(&copy).arg(binary()).status();
    if !stripped.is_ok_and(|status| status.success()) {
        return Ok(None);
    }
    #[expect(clippy::cast_precision_loss, reason = "a file of megabytes")]
    let size = std::fs::metadata(copy)?.len() as f64 / 1e6;
    Ok(Some(size))
}
