//! Two hundred streams from relay to relay through a trunk: on one machine, and from one network
//! namespace to another, with virtual interfaces and the real kernel.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use aulos_blackbox::net::NetNamespaces;
use aulos_blackbox::peer::{Process, skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::binary;
use serde_json::Value;

use crate::{turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);
const STREAMS: u16 = 200;
const PACKETS: u16 = 30;

/// Runs something on the near or on the far machine.
type At<'a> = &'a dyn Fn(usize, &mut (dyn FnMut() + Send));

#[test]
fn two_hundred_streams_pass_a_trunk_and_keep_their_ports() {
    let _turn = turn();
    carry("trunk", Ipv4Addr::LOCALHOST, &|_, act| act());
}

#[test]
fn two_hundred_streams_go_through_a_trunk_from_one_machine_to_another() {
    let _turn = turn();
    let Some(net) = NetNamespaces::new().inspect_err(|e| println!("{e}")).ok() else {
        return skip("network namespaces");
    };
    carry("trunk-veth", Ipv4Addr::new(10, 77, 0, 2), &|end, act| net.run_inside(end, act));
}

fn carry(name: &str, far: Ipv4Addr, at: At<'_>) {
    let scratch = ScratchDir::new(name).unwrap();
    let (mut sinks, mut there, mut here, mut first) = (Vec::new(), None, None, 0);
    at(1, &mut || {
        sinks = free_range().1;
        let dest = format!("udp://127.0.0.1:{}", range(port(&sinks[0])));
        there = Some(Relay::start(&scratch, "there", &format!("trunk://{far}:0"), &dest));
    });
    let there = there.unwrap();
    at(0, &mut || {
        first = free_range().0;
        let listen = format!("udp://127.0.0.1:{}", range(first));
        let dest = format!("trunk://{far}:{}", there.port.unwrap());
        here = Some(Relay::start(&scratch, "here", &listen, &dest));
        send(first);
    });
    let here = here.unwrap().stop();
    // The other end processes the last packets before it is stopped.
    std::thread::sleep(Duration::from_millis(300));
    let there = there.stop();
    let all = u64::from(PACKETS) * u64::from(STREAMS);
    for (end, came) in [("here", &here), ("there", &there)] {
        let total = &came["relays"][0];
        let counted = ["received", "sent", "lost"].map(|key| total[key].as_u64().unwrap());
        assert_eq!(counted, [all, all, 0], "{end}: {came}");
    }
    let wanted: Vec<u16> = (0..PACKETS).collect();
    for (place, sink) in sinks.iter().enumerate() {
        assert_eq!(heard(sink, place), wanted, "the port of place {place}");
    }
    let joined = |came: &Value, key: &str| -> u64 {
        let threads = came["threads"].as_array().unwrap();
        threads.iter().map(|thread| thread[key].as_u64().unwrap()).sum()
    };
    let (sent, came) = (joined(&here, "sent_joined"), joined(&there, "joined"));
    println!("{name}: of {all} packets {sent} were sent joined, and {came} came so");
    assert!(sent > all / 4 && came > all / 4, "{sent} sent joined, {came} came so, of {all}");
}

/// A relay, with its address.
struct Relay {
    process: Process,
    /// Of one that listens on a port chosen by the system.
    port: Option<u16>,
    out: PathBuf,
}

impl Relay {
    fn start(scratch: &ScratchDir, name: &str, listen: &str, dest: &str) -> Self {
        let mut command = Command::new(binary());
        command.args(["relay", listen, "--from", "pcmu", "--to", "pcmu", "--json"]);
        command.args(["--dest", dest]);
        let [out, err] = ["out", "err"].map(|end| scratch.join(format!("{name}.{end}")));
        let process = Process::start(&mut command, &out, &err).unwrap();
        let mut place = String::new();
        wait_for("the relay's place", PATIENCE, || {
            let said = std::fs::read_to_string(&err).unwrap_or_default();
            place = said.split("relay: ").nth(1).unwrap_or_default().to_owned();
            place.contains(" -> ")
        });
        let place = place.split(" -> ").next().unwrap_or_default();
        let port = place.rsplit(':').next().and_then(|port| port.parse().ok());
        Self { process, port, out }
    }

    /// Terminates it, and returns its final statistics.
    fn stop(mut self) -> Value {
        self.process.terminate(PATIENCE).unwrap();
        let said = std::fs::read_to_string(&self.out).unwrap();
        serde_json::from_str(said.lines().last().unwrap()).unwrap()
    }
}

/// As many consecutive ports as there are streams, with sockets on them, and the first of them.
fn free_range() -> (u16, Vec<UdpSocket>) {
    for first in (20_000..32_000).step_by(usize::from(STREAMS)) {
        let bind = |port| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).ok();
        let sockets: Option<Vec<_>> = (first..first + STREAMS).map(bind).collect();
        if let Some(sockets) = sockets {
            sockets.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
            return (first, sockets);
        }
    }
    panic!("no {STREAMS} free ports in a row");
}

fn range(first: u16) -> String {
    format!("{first}-{}", first + STREAMS - 1)
}

fn port(socket: &UdpSocket) -> u16 {
    socket.local_addr().unwrap().port()
}

/// Sends each stream to its port, in real time.
fn send(first: u16) {
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let start = Instant::now();
    for number in 0..PACKETS {
        for place in 0..STREAMS {
            let mut datagram = vec![0xff; 12 + 160];
            datagram[..2].copy_from_slice(&[0x80, 0]);
            datagram[2..4].copy_from_slice(&number.to_be_bytes());
            datagram[4..8].copy_from_slice(&(u32::from(number) * 160).to_be_bytes());
            datagram[8..12].copy_from_slice(&(0x1000 + u32::from(place)).to_be_bytes());
            // The stream's number is part of the audio.
            datagram[12..14].copy_from_slice(&place.to_be_bytes());
            sender.send_to(&datagram, (Ipv4Addr::LOCALHOST, first + place)).unwrap();
        }
        let due = start + Duration::from_millis(20) * u32::from(number + 1);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    // So that the trunk's other end has the packets before this one sends BYE.
    std::thread::sleep(Duration::from_millis(500));
}

/// The sequence numbers received on the port of `place`; all of them must be of that stream.
fn heard(socket: &UdpSocket, place: usize) -> Vec<u16> {
    let (mut numbers, mut datagram) = (Vec::new(), [0; 1_500]);
    loop {
        let length = match socket.recv(&mut datagram) {
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return numbers,
            // That peer has already ended.
            Err(_) => continue,
        };
        // RTCP shares the port (RFC 5761).
        if length < 14 || (192..224).contains(&datagram[1]) {
            continue;
        }
        let of = u16::from_be_bytes([datagram[12], datagram[13]]);
        assert_eq!(usize::from(of), place, "another one's packet");
        numbers.push(u16::from_be_bytes([datagram[2], datagram[3]]));
    }
}
