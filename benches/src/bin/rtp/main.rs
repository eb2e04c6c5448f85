//! What does it cost to receive thousands of streams of RTP and throw them away, and what to turn
//! PCMU into PCMA and send it on?
//!
//! Each receiver is a process of its own on one shared thread: ours with a socket for each stream,
//! with one port for all, and at the end of a trunk; GStreamer with `udpsrc ! fakesink` and with
//! `ts-udpsrc context-wait=20 ! fakesink` for each stream (with `--features gstreamer`). This process
//! sends every stream a packet of 172 bytes (20 ms of PCMU) each 20 ms, spread over 20 slots of 1 ms,
//! with the time in it.
//! The whole job is `relay` (a socket for each stream) and `relay-port` (one port for all), both with
//! jitter buffer and RTCP; `gst-job` is `udpsrc ! rtpjitterbuffer ! ... ! udpsink`, `ts-job` is
//! `ts-udpsrc ! ... ! ts-udpsink` without a jitter buffer, since its crate has none. Everything goes to
//! one port, where it is counted.
//! `relay-opus` turns a hundred streams of PCMU into Opus, and is compared with the codec alone.
//! Columns: processor (run time of all threads of the receiver, % of one core), the same for each
//! packet, context switches, threads, memory, packets lost, and how long a packet took until it was
//! handed over. On loopback the kernel's work of receiving is charged to the sender.
//! `streams=1000` runs one size, `secs=4` is how long each is measured, `reps=1` how often, of which
//! the median counts; receivers are interleaved.
//! Bad would be: a packet lost, more than half of ts-udpsrc, a growth per stream, p99 above 6 ms.

mod generator;
mod job;
mod opus;
mod ours;
#[cfg(feature = "gstreamer")]
mod peers;
#[cfg(not(feature = "gstreamer"))]
#[path = "no_peers.rs"]
mod peers;
mod watch;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use aulos_benches::{Row, argument, median, report};
use aulos_io::udp::{SocketOptions, bind_socket};
use generator::Generator;
use watch::Usage;

fn main() {
    raise_descriptors();
    if let Some(role) =
        std::env::args().find_map(|word| Some(word.strip_prefix("role=")?.to_owned()))
    {
        return receive(&role);
    }
    let sizes = match argument("streams", 0) {
        0 => vec![200, 500, 1_000, 3_000],
        one => vec![one],
    };
    let (secs, reps) = (argument("secs", 4), argument("reps", 1));
    println!("{HEAD}");
    let mut all = Vec::new();
    for &streams in &sizes {
        let mut runs: Vec<Vec<Run>> = ROLES.iter().map(|_| Vec::new()).collect();
        for _ in 0..reps.max(1) {
            for (role, runs) in ROLES.iter().zip(&mut runs) {
                match run(role, streams, secs as u64) {
                    Ok(run) => {
                        println!("{}", run.line(role, streams));
                        runs.push(run);
                    }
                    Err(why) => println!("{:>12} {streams:>6}   {why}", role),
                }
            }
        }
        all.push((streams, runs));
    }
    let silent = run("silent", 3_000, secs as u64);
    let mut rows = rows(&all, silent);
    rows.extend(opus_row(secs, reps));
    report(&rows);
}

/// PCMU to Opus, the whole process against the codec alone, in turns; the least of each counts.
fn opus_row(secs: usize, reps: usize) -> Option<Row> {
    let (mut whole, mut bare) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..reps.max(5) {
        match run("relay-opus", OPUS_STREAMS, secs as u64) {
            Ok(run) => {
                println!("{}", run.line("relay-opus", OPUS_STREAMS));
                whole = whole.min(run.us_per_packet);
            }
            Err(why) => println!("  relay-opus {OPUS_STREAMS:>6}   {why}"),
        }
        bare = bare.min(opus::bare(OPUS_STREAMS, secs));
    }
    let case = format!("us per packet, {OPUS_STREAMS} streams, PCMU to Opus: relay / bare codec");
    whole.is_finite().then(|| Row::against("rtp", case, whole, bare, Some(1.15)))
}

/// Half of what one processor can do.
const OPUS_STREAMS: usize = 100;

/// The receivers, as they are called on the command line.
const ROLES: [&str; 9] =
    ["sockets", "port", "trunk", "udpsrc", "ts-udpsrc", "relay", "relay-port", "gst-job", "ts-job"];

const JOBS: [&str; 5] = ["relay", "relay-port", "relay-opus", "gst-job", "ts-job"];

const HEAD: &str = "    receiver streams    cpu %  us/packet   csw/s threads  RSS kB     sent    lost   \
    p50 ms   p99 ms";

/// What a receiver came to.
struct Run {
    cpu: f64,
    us_per_packet: f64,
    switches: f64,
    threads: usize,
    rss_kb: u64,
    sent: u64,
    /// How much of what was to be sent was, while it was measured: a sender that falls behind for
    /// want of processor makes a receiver look better than it is.
    sent_part: f64,
    lost: i64,
    /// Milliseconds, half of all packets and 99 of 100 were no later; peers do not tell.
    latency: Option<(f64, f64)>,
}

impl Run {
    fn line(&self, role: &str, streams: usize) -> String {
        let (p50, p99) = self.latency.map_or(("-".into(), "-".into()), |(p50, p99)| {
            (format!("{p50:.1}"), format!("{p99:.1}"))
        });
        let behind = if self.sent_part < 0.95 && role != "silent" {
            format!("   the sender came to {:.0} % only", self.sent_part * 100.0)
        } else {
            String::new()
        };
        format!(
            "{role:>12} {streams:>6} {:9.2} {:10.3} {:7.0} {:7} {:7} {:8} {:7} {p50:>8} {p99:>8}{behind}",
            self.cpu,
            self.us_per_packet,
            self.switches,
            self.threads,
            self.rss_kb,
            self.sent,
            self.lost
        )
    }
}

/// Runs one receiver and sends to it.
fn run(role: &str, streams: usize, secs: u64) -> Result<Run, String> {
    if let Some(why) = peers::missing(role) {
        return Err(why);
    }
    let first = free_ports(streams);
    let sink = Sink::start();
    let child = Receiver::start(role, streams, first, sink.port)?;
    let port = child.port;
    let mut generator = (role != "silent").then(|| Generator::start(role, streams, port));
    std::thread::sleep(Duration::from_secs(1));
    let (before, sent_before) =
        (Usage::of(child.id())?, generator.as_ref().map_or(0, Generator::sent));
    std::thread::sleep(Duration::from_secs(secs));
    let (after, sent_after) =
        (Usage::of(child.id())?, generator.as_ref().map_or(0, Generator::sent));
    let sent = generator.take().map_or(0, Generator::stop);
    std::thread::sleep(Duration::from_millis(300));
    let said = child.stop()?;
    let heard = sink.stop();
    let used = after.since(&before);
    let mut words = said.split_whitespace().map(|word| word.parse::<f64>().ok());
    let received = words.next().flatten().ok_or_else(|| format!("it said {said:?}"))?;
    let received = if JOBS.contains(&role) { heard as f64 } else { received };
    let latency = words.next().flatten().zip(words.next().flatten());
    let packets = (sent_after - sent_before).max(1) as f64;
    Ok(Run {
        cpu: used.run_ns as f64 / used.wall_ns as f64 * 100.0,
        us_per_packet: used.run_ns as f64 / 1e3 / packets,
        switches: used.switches as f64 / (used.wall_ns as f64 * 1e-9),
        threads: after.threads,
        rss_kb: after.rss_kb,
        sent,
        sent_part: packets / (streams as f64 * 50.0 * used.wall_ns as f64 * 1e-9),
        lost: sent as i64 - received as i64,
        latency,
    })
}

/// The process that receives.
struct Receiver {
    child: Child,
    out: BufReader<ChildStdout>,
    /// The first of its ports.
    port: u16,
}

impl Receiver {
    fn start(role: &str, streams: usize, first: u16, sink: u16) -> Result<Self, String> {
        let own = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut child = Command::new(own)
            .args([format!("role={role}"), format!("streams={streams}"), format!("first={first}")])
            .arg(format!("sink={sink}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())?;
        let mut out = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        let mut line = String::new();
        // It says where it is when everything is open.
        drop(out.read_line(&mut line));
        match line.trim().parse() {
            Ok(port) => Ok(Self { child, out, port }),
            Err(_) => {
                drop(child.kill());
                drop(child.wait());
                Err(format!("it did not start: {}", line.trim()))
            }
        }
    }

    fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it, and gives what it says of itself.
    fn stop(mut self) -> Result<String, String> {
        drop(self.child.stdin.take().map(|mut pipe| pipe.write_all(b"stop\n")));
        let mut said = String::new();
        drop(self.out.read_to_string(&mut said));
        drop(self.child.wait());
        Ok(said)
    }
}

/// In the receiving process.
fn receive(role: &str) {
    let (streams, first) = (argument("streams", 1), argument("first", 0));
    let first = u16::try_from(first).expect("a port");
    let until_stop = || {
        let mut line = String::new();
        drop(std::io::stdin().read_line(&mut line));
    };
    match role {
        "sockets" | "silent" | "port" | "trunk" => ours::receive(role, streams, first, until_stop),
        "relay" | "relay-port" | "relay-opus" => {
            let sink = u16::try_from(argument("sink", 0)).expect("a port");
            job::relay(role, streams, first, sink, until_stop);
        }
        _ => {
            let sink = u16::try_from(argument("sink", 0)).expect("a port");
            peers::receive(role, streams, first, sink, until_stop);
        }
    }
}

/// Where the whole job goes to, and is counted.
struct Sink {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Sink {
    fn start() -> Self {
        let socket = bind_socket(
            ([127, 0, 0, 1], 0).into(),
            &SocketOptions { receive_buffer: 8 << 20, ..SocketOptions::default() },
        )
        .expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket waits");
        socket.set_nonblocking(false).expect("a socket waits");
        let port = socket.local_addr().expect("it has a port").port();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut count, mut datagram) = (0, [0; 2_048]);
            while !stopped.load(SeqCst) {
                if let Ok(2..) = socket.recv(&mut datagram) {
                    // RTCP shares the port (RFC 5761).
                    count += u64::from(!(192..224).contains(&datagram[1]));
                }
            }
            count
        });
        Self { port, stop, thread }
    }

    fn stop(self) -> u64 {
        self.stop.store(true, SeqCst);
        self.thread.join().expect("it does not panic")
    }
}

/// The first of so many ports that nobody has.
fn free_ports(count: usize) -> u16 {
    (0..50u16)
        .map(|attempt| 20_000 + attempt * 211)
        .find(|first| {
            let ports = usize::from(*first)..usize::from(*first) + count;
            let open: Option<Vec<UdpSocket>> = ports
                .map(|port| {
                    let port = u16::try_from(port).ok()?;
                    UdpSocket::bind(SocketAddr::from(([127, 0, 0, 1], port))).ok()
                })
                .collect();
            open.is_some()
        })
        .expect("free ports from 20000 on")
}

fn raise_descriptors() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is plain data, alive for the call.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: as above.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
}

type Sizes = [(usize, Vec<Vec<Run>>)];

fn rows(all: &Sizes, silent: Result<Run, String>) -> Vec<Row> {
    let mut rows = Vec::new();
    let cost = |runs: &[Run]| {
        let mut values: Vec<f64> = runs.iter().map(|run| run.us_per_packet).collect();
        (!values.is_empty()).then(|| median(&mut values))
    };
    for (streams, runs) in all {
        for (ours, against) in
            [("sockets", [6.0, 2.0]), ("port", [12.0, 4.0]), ("trunk", [60.0, 30.0])]
        {
            let at = |role: &str| {
                let index = ROLES.iter().position(|other| *other == role)?;
                cost(&runs[index])
            };
            let Some(own) = at(ours) else { continue };
            for (peer, by) in ["udpsrc", "ts-udpsrc"].into_iter().zip(against) {
                let case = format!("us per packet, {streams} streams: {ours} / {peer}");
                rows.push(match at(peer) {
                    // The targets are for a thousand.
                    Some(peer) => Row::against(
                        "rtp",
                        case,
                        own,
                        peer,
                        (*streams == 1_000).then_some(1.0 / by),
                    ),
                    None => Row::figure("rtp", format!("{case} (no {peer} here)"), own),
                });
            }
            let index = ROLES.iter().position(|role| *role == ours).unwrap_or(0);
            let lost: i64 = runs[index].iter().map(|run| run.lost).sum();
            let case = format!("packets lost, {streams} streams: {ours}");
            rows.push(Row::limit("rtp", case, lost as f64, 0.0));
            let p99 = runs[index].iter().filter_map(|run| run.latency).map(|(_, p99)| p99);
            if let Some(p99) = p99.reduce(f64::min) {
                let case = format!("p99 latency ms, {streams} streams: {ours}");
                rows.push(Row::limit("rtp", case, p99, 6.0));
            }
        }
    }
    for (streams, runs) in all {
        let at = |role: &str| cost(&runs[ROLES.iter().position(|other| *other == role)?]);
        for ours in ["relay", "relay-port"] {
            let Some(own) = at(ours) else { continue };
            for (peer, by) in [("gst-job", 5.0), ("ts-job", 2.0)] {
                let case = format!("us per packet, {streams} streams: {ours} / {peer}");
                rows.push(match at(peer) {
                    Some(peer) => Row::against("rtp", case, own, peer, Some(1.0 / by)),
                    None => Row::figure("rtp", format!("{case} (no {peer} here)"), own),
                });
            }
        }
    }
    let sockets = |size: usize| cost(&all.iter().find(|(streams, _)| *streams == size)?.1[0]);
    if let (Some(few), Some(many)) = (sockets(500), sockets(3_000)) {
        let case = "us per packet, sockets: 3000 / 500 streams".into();
        rows.push(Row::against("rtp", case, many, few, Some(1.25)));
    }
    if let Ok(silent) = silent {
        let case = "cpu % of 3000 silent streams".into();
        rows.push(Row::limit("rtp", case, silent.cpu, 1.0));
    }
    rows
}
