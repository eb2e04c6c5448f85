//! Telephone calls through the built relay, with a check of every packet.

use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

use aulos_blackbox::peer::Process;
use aulos_blackbox::rtp_calls::{Call, CallChange, PacketKind, number_of};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::binary;
use serde_json::Value;

use crate::{soak, turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);

/// The packets that a receiver got.
#[derive(Default)]
struct Relayed {
    packets: Vec<Vec<u8>>,
    byes: usize,
}

#[test]
fn every_packet_of_many_calls_is_relayed_once_in_order_and_counted() {
    let _turn = turn();
    let scratch = ScratchDir::new("calls").unwrap();
    let (count, packets) = if soak() { (200, 600) } else { (40, 120) };
    let calls: Vec<Call> = (0..count).map(|number| Call::new(number, packets)).collect();
    // As many consecutive ports, twice: received packets wait in the socket buffers, seconds of
    // them.
    let listeners = ports(calls.len(), 21_000);
    let first = listeners[0].local_addr().unwrap().port();
    let entries = ports(calls.len(), usize::from(first) + calls.len());
    let entry = entries[0].local_addr().unwrap().port();
    drop(entries);
    let mut relay = start(&scratch, (entry, first), calls.len());
    let heard = std::thread::scope(|scope| {
        scope.spawn(|| send(&calls, entry));
        // A BYE takes effect when nothing has come for two seconds; then the receiver has it.
        let mut heard: Vec<Relayed> = calls.iter().map(|_| Relayed::default()).collect();
        wait_for("the end of all calls", PATIENCE, || {
            listeners.iter().zip(&mut heard).for_each(|(socket, heard)| listen(socket, heard));
            heard.iter().all(|heard| heard.byes > 0)
        });
        heard
    });
    relay.terminate(PATIENCE).unwrap();
    let said = std::fs::read_to_string(scratch.join("relay.out")).unwrap();
    let came: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    for (number, (call, heard)) in calls.iter().zip(&heard).enumerate() {
        compare(number, call, heard);
    }
    add_up(&calls, &came);
}

/// Each packet is the one that was sent, in the other encoding.
fn compare(number: usize, call: &Call, heard: &Relayed) {
    let wanted: Vec<_> = call.media().collect();
    assert_eq!(heard.packets.len(), wanted.len(), "call {number}");
    let ssrc = &heard.packets[0][8..12];
    for (at, (sent, came)) in wanted.iter().zip(&heard.packets).enumerate() {
        let what = format!("call {number} {:?}, packet {at}, {:?}", call.change, sent.kind);
        assert_eq!(came[2..8], sent.bytes[2..8], "{what}: its number and its time");
        assert_eq!(came[1] & 0x80, sent.bytes[1] & 0x80, "{what}: its marker");
        assert_eq!(&came[8..12], ssrc, "{what}: its source");
        let (kind, payload) = (came[1] & 0x7f, &came[12..]);
        match sent.kind {
            PacketKind::Sound => {
                assert_eq!((kind, payload.len()), (8, 160), "{what}");
                assert_eq!(number_of(payload), number_of(&sent.bytes[12..]), "{what}");
                assert_ne!(payload, &sent.bytes[12..], "{what}: another law");
            }
            PacketKind::Noise => assert_eq!((kind, payload), (13, &sent.bytes[12..]), "{what}"),
            _ => assert_eq!((kind, payload), (97, &sent.bytes[12..]), "{what}"),
        }
    }
    let sounds = wanted.iter().filter(|sent| sent.kind == PacketKind::Sound);
    let numbers: Vec<_> = sounds.map(|sent| number_of(&sent.bytes[12..])).collect();
    let all = u32::try_from(numbers.len()).unwrap();
    assert_eq!(numbers, (1..=all).map(Some).collect::<Vec<_>>(), "the calls are made right");
}

fn add_up(calls: &[Call], came: &Value) {
    let sent = |kind: PacketKind| {
        let all = calls.iter().flat_map(|call| &call.datagrams);
        all.filter(|one| one.kind == kind).count() as u64
    };
    let turned = |turn: CallChange| calls.iter().filter(|call| call.change == turn).count() as u64;
    let total = &came["relays"][0];
    let all = sent(PacketKind::Sound) + sent(PacketKind::Noise) + sent(PacketKind::Dtmf);
    for (key, wanted) in [
        ("received", all),
        ("sent", all),
        ("lost", 0),
        ("late", 0),
        ("reordered", 0),
        ("duplicates", 0),
        ("dropped", 0),
        ("recovered", 0),
        ("events", sent(PacketKind::Dtmf)),
        ("noise", sent(PacketKind::Noise)),
        ("restarts", turned(CallChange::Renumbered)),
        ("takeovers", turned(CallChange::Moved)),
        ("foreign", sent(PacketKind::Intruder)),
        ("forged_byes", 0),
    ] {
        assert_eq!(total[key], wanted, "{key}: {total}");
    }
    assert_eq!(total["foreign_by"]["address"], sent(PacketKind::Intruder), "{total}");
    let streams = came["streams"].as_array().unwrap();
    assert_eq!(streams.len(), calls.len());
    assert!(streams.iter().all(|stream| stream["ssrc"].is_null()), "all of them have ended");
    let sum: u64 = streams.iter().map(|stream| stream["sent"].as_u64().unwrap()).sum();
    assert_eq!(sum, all, "and together they are what the relay says");
}

fn start(scratch: &ScratchDir, (entry, first): (u16, u16), count: usize) -> Process {
    let range = |first: u16| {
        let last = usize::from(first) + count - 1;
        format!("udp://127.0.0.1:{first}-{last}")
    };
    let mut command = Command::new(binary());
    command.args(["relay", &range(entry), "--from", "pcmu", "--to", "pcma", "--json"]);
    command.args(["--events", "101:97", "--dest", &range(first)]);
    let logs = [scratch.join("relay.out"), scratch.join("relay.err")];
    let mut relay = Process::start(&mut command, &logs[0], &logs[1]).unwrap();
    wait_for("the relay", PATIENCE, || {
        let said = std::fs::read_to_string(&logs[1]).unwrap_or_default();
        assert!(relay.ended().unwrap().is_none(), "{said}");
        said.contains(" -> ")
    });
    relay
}

/// Sockets on `count` consecutive ports, none of them below `from`.
fn ports(count: usize, from: usize) -> Vec<UdpSocket> {
    let row = |first: usize| -> Option<Vec<UdpSocket>> {
        let port = |port| UdpSocket::bind(("127.0.0.1", u16::try_from(port).ok()?)).ok();
        let row: Vec<UdpSocket> = (first..first + count).map_while(port).collect();
        row.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
        (row.len() == count).then_some(row)
    };
    // Below the range of ephemeral ports.
    (from..32_000).step_by(count).find_map(row).expect("no ports in a row are free")
}

fn listen(socket: &UdpSocket, heard: &mut Relayed) {
    let mut datagram = [0; 2_000];
    while let Ok(length) = socket.recv(&mut datagram) {
        let datagram = &datagram[..length];
        if (192..224).contains(&datagram[1]) {
            heard.byes += usize::from(has_bye(datagram));
        } else {
            heard.packets.push(datagram.to_vec());
        }
    }
}

/// Whether one of the parts of a compound packet is a BYE (RFC 3550, 6.6).
fn has_bye(mut parts: &[u8]) -> bool {
    while let [_, kind, high, low, ..] = *parts {
        if kind == 203 {
            return true;
        }
        let length = 4 * (usize::from(u16::from_be_bytes([high, low])) + 1);
        parts = parts.get(length..).unwrap_or_default();
    }
    false
}

/// Sends every datagram of all calls at its time, each call from its own address.
fn send(calls: &[Call], entry: u16) {
    let socket = || UdpSocket::bind("127.0.0.1:0").unwrap();
    let sockets: Vec<[UdpSocket; 3]> =
        calls.iter().map(|_| [socket(), socket(), socket()]).collect();
    let mut all: Vec<_> = (0_u16..)
        .zip(calls)
        .flat_map(|(number, call)| call.datagrams.iter().map(move |one| (number, one)))
        .collect();
    // Datagrams that are due at the same time keep their order.
    all.sort_by_key(|(_, one)| one.due);
    let begun = Instant::now();
    for (number, one) in all {
        std::thread::sleep((begun + one.due).saturating_duration_since(Instant::now()));
        let socket = &sockets[usize::from(number)][one.from];
        socket.send_to(&one.bytes, ("127.0.0.1", entry + number)).unwrap();
    }
}
