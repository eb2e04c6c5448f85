//! Loss over SRT: the same stream through the same kind of network into a station and into
//! srt-live-transmit, and what each of them has not delivered.
//!
//! A transport stream of ffmpeg gets a number in each datagram, in a packet that decoders skip.
//! srt-live-transmit sends it to both. `AULOS_BENCH_SRT_SECONDS` (600) is the duration.

use std::collections::HashSet;
use std::io;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::bench::row::{BenchRow, BenchTarget};
use crate::bench::setting;
use crate::lossy_proxy::{Impairment, LossyProxy};
use crate::peer::{Process, find_or_skip};
use crate::ports::free_port;
use crate::scratch::ScratchDir;
use crate::server::AulosServer;

/// Payloads that were lost, ours and srt-live-transmit's; no rows without the peers.
///
/// # Errors
/// If a program does not run.
pub fn rows() -> io::Result<Vec<BenchRow>> {
    let (Some(ffmpeg), Some(transmit)) =
        (find_or_skip("ffmpeg"), find_or_skip("srt-live-transmit"))
    else {
        return Ok(Vec::new());
    };
    let scratch = ScratchDir::new("bench-srt")?;
    let source = UdpSocket::bind("127.0.0.1:0")?;
    let peer_out = UdpSocket::bind("127.0.0.1:0")?;
    let [ours, peer] = [free_port()?, free_port()?];
    let config = format!(
        "[[station]]\nname = \"default\"\n\
         sources = [\"srt://127.0.0.1:{ours}?mode=listener&latency=600\", \"tone://\"]\n"
    );
    let server = AulosServer::start(&scratch, &config)?;
    let out = peer_out.local_addr()?.port();
    let listener =
        format!("srt://127.0.0.1:{peer}?mode=listener&latency=600 udp://127.0.0.1:{out}");
    let mut programs = vec![relay(&transmit, &listener, &scratch, "peer")?];
    let network = Impairment { loss: 0.1, delay: Duration::from_millis(50), seed: 1 };
    let mut inputs = Vec::new();
    let mut proxies = Vec::new();
    for (name, port) in [("to-ours", ours), ("to-peer", peer)] {
        let proxy = LossyProxy::start(port, network)?;
        let input = free_port()?;
        let caller = format!("udp://127.0.0.1:{input} srt://127.0.0.1:{}?latency=600", proxy.port);
        programs.push(relay(&transmit, &caller, &scratch, name)?);
        proxies.push(proxy);
        inputs.push(input);
    }
    let mut encoder = Command::new(ffmpeg);
    encoder.args(
        "-nostdin -loglevel error -re -f lavfi -i sine=440:r=48000 -ac 2 -c:a aac -b:a 128k \
         -muxrate 500k -f mpegts"
            .split_whitespace(),
    );
    encoder.arg(format!("udp://{}?pkt_size=1128", source.local_addr()?));
    programs.push(Process::start(&mut encoder, &scratch.join("f.out"), &scratch.join("f.err"))?);
    let [lost, peer_lost, sent] = transfer(&server, (&source, &peer_out), &inputs)?;
    drop(programs);
    drop(proxies);
    server.stop()?;
    Ok(vec![BenchRow {
        part: "srt",
        case: format!("lost of {sent} payloads: 10 % loss, RTT 100 ms, latency 600 ms"),
        ours: lost,
        peer: Some(peer_lost),
        target: BenchTarget::AtMost(peer_lost),
    }])
}

/// Numbers what comes from the encoder and passes it to both; what each has lost of so many.
fn transfer(
    server: &AulosServer,
    (source, peer_out): (&UdpSocket, &UdpSocket),
    inputs: &[u16],
) -> io::Result<[f64; 3]> {
    let seconds = setting("AULOS_BENCH_SRT_SECONDS", 600) as u64;
    source.set_read_timeout(Some(Duration::from_secs(10)))?;
    peer_out.set_nonblocking(true)?;
    let sender = UdpSocket::bind("127.0.0.1:0")?;
    let (mut number, mut arrived, mut bytes) = (0u64, HashSet::new(), [0; 2_048]);
    let mut begin: Option<(Instant, u64, u64)> = None;
    loop {
        let count = source.recv(&mut bytes)?;
        number += 1;
        let mut datagram = bytes[..count].to_vec();
        datagram.extend(numbered_packet(number));
        for input in inputs {
            sender.send_to(&datagram, ("127.0.0.1", *input))?;
        }
        while let Ok(count) = peer_out.recv(&mut bytes) {
            arrived.extend(number_of(&bytes[..count]));
        }
        match begin {
            // Both are connected, and what was lost before that does not count.
            None if !arrived.is_empty()
                && number.is_multiple_of(50)
                && packets(server, "received")? > 0 =>
            {
                begin = Some((Instant::now(), number, packets(server, "dropped")?));
            }
            Some((at, ..)) if at.elapsed() > Duration::from_secs(seconds) => break,
            _ => {}
        }
    }
    let (_, first, before) = begin.unwrap_or_else(|| (Instant::now(), 0, 0));
    // The last ones are sent again, too.
    std::thread::sleep(Duration::from_secs(2));
    while let Ok(count) = peer_out.recv(&mut bytes) {
        arrived.extend(number_of(&bytes[..count]));
    }
    let last = number - 5;
    let missing = (first + 1..=last).filter(|number| !arrived.contains(number)).count();
    let dropped = packets(server, "dropped")? - before;
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    Ok([dropped as f64, missing as f64, (last - first) as f64])
}

/// A packet of stuffing with a number.
fn numbered_packet(number: u64) -> Vec<u8> {
    let mut packet = vec![0x47, 0x1f, 0xff, 0x10];
    packet.extend(number.to_be_bytes());
    packet.resize(188, 0xff);
    packet
}

fn number_of(datagram: &[u8]) -> Option<u64> {
    let packet = datagram.rchunks_exact(188).next()?;
    Some(u64::from_be_bytes(*packet.get(4..)?.first_chunk()?))
}

/// A count of the packets of our source, by its metrics.
fn packets(server: &AulosServer, result: &str) -> io::Result<u64> {
    let (_, text) = crate::http::get(server.http, "/metrics")?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let label = format!("result=\"{result}\"");
    let line = text
        .lines()
        .find(|line| line.starts_with("aulos_srt_input_packets_total{") && line.contains(&label));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    value.ok_or_else(|| io::Error::other("no metrics of the source"))
}

fn relay(program: &Path, ends: &str, scratch: &ScratchDir, name: &str) -> io::Result<Process> {
    let mut command = Command::new(program);
    command.args(["-loglevel:fatal", "-chunk:1316"]).args(ends.split_whitespace());
    let (out, err) = (format!("{name}.out"), format!("{name}.err"));
    Process::start(&mut command, &scratch.join(&out), &scratch.join(&err))
}
