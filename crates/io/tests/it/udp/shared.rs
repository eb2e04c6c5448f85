//! Many streams on one port.

use std::collections::{HashMap, HashSet};
use std::sync::mpsc::Receiver;

use aulos_io::udp::{Demux, EndedStream, SharedPortConfig};
use aulos_session::datagram::{Packet, StreamKey};

use super::*;

pub(super) fn port() -> SharedPortConfig {
    SharedPortConfig::new("127.0.0.1:0".parse().unwrap())
}

/// Accepts every stream.
pub(super) fn take(_: Instant, _: StreamKey, _: &Packet<'_>) -> Option<Probe> {
    Some(Probe::default())
}

/// The sequence numbers of each stream; each stream must have had a single machine.
pub(super) fn numbers(ended: &[EndedStream<Probe>]) -> HashMap<StreamKey, Vec<u16>> {
    let mut found = HashMap::new();
    for stream in ended {
        let numbers = stream.machine.seen.iter().map(|seen| sequence(&seen.bytes)).collect();
        let key = StreamKey::ssrc(&stream.machine.seen[0].bytes).unwrap();
        assert!(stream.machine.seen.iter().all(|seen| StreamKey::ssrc(&seen.bytes) == Some(key)));
        assert_eq!(found.insert(key, numbers), None, "two machines for {key:?}");
    }
    found
}

#[test]
fn streams_of_one_port_are_distinguished_by_ssrc_and_distributed() {
    const STREAMS: u32 = 1_000;
    const PACKETS: u16 = 20;
    let mut context = UdpContext::start(&config(3)).unwrap();
    let open = context.open(&port(), |_| take).unwrap();
    assert!(open.receive_buffer > 0);
    println!("granted receive buffer: {} bytes", open.receive_buffer);
    let (source, _) = socket();
    for number in 0..PACKETS {
        for ssrc in 0..STREAMS {
            source.send_to(&packet(ssrc, number), open.address).unwrap();
            // No more at once than the smallest buffer holds.
            if ssrc % 100 == 99 {
                let sent = usize::from(number) * STREAMS as usize + ssrc as usize + 1;
                wait_for_packets(&context, sent);
            }
        }
    }
    let per_thread: Vec<u64> = context.stats().iter().map(|thread| thread.streams).collect();
    println!("streams on each thread: {per_thread:?}");
    let ended = context.stop();
    let numbers = numbers(&ended);
    assert_eq!(numbers.len(), STREAMS as usize);
    assert!(numbers.values().all(|numbers| *numbers == (0..PACKETS).collect::<Vec<_>>()));
    // The id of a stream contains its thread: every thread has some.
    let threads: HashSet<u64> = ended.iter().map(|stream| thread_of(stream.id)).collect();
    assert_eq!(threads.len(), 3);
}

fn thread_of(stream: StreamId) -> u64 {
    let text = format!("{stream:?}");
    let number: u64 = text.trim_start_matches("StreamId(").trim_end_matches(')').parse().unwrap();
    number >> 48
}

#[test]
fn streams_of_one_port_are_distinguished_by_address_and_answered() {
    const STREAMS: usize = 50;
    let mut context = UdpContext::start(&config(2)).unwrap();
    let mut port = port();
    port.demux = Demux::Sender;
    let echo = |_: Instant, key, _: &Packet<'_>| {
        let StreamKey::Sender(from) = key else { return None };
        Some(Probe { route: Some(Route::to(from).from_own_socket()), ..Probe::default() })
    };
    let open = context.open(&port, |_| echo).unwrap();
    let peers: Vec<_> = (0..STREAMS).map(|_| listener()).collect();
    for number in 0..5 {
        for (peer, _) in &peers {
            // All have the same SSRC.
            peer.send_to(&packet(1, number), open.address).unwrap();
        }
        for (peer, _) in &peers {
            let mut bytes = [0; 2_000];
            assert_eq!(peer.recv_from(&mut bytes).unwrap(), (172, open.address));
            assert_eq!(bytes[..172], packet(1, number));
        }
    }
    let ended = context.stop();
    assert_eq!(ended.len(), STREAMS);
    assert!(ended.iter().all(|stream| stream.machine.seen.len() == 5));
}

#[test]
fn a_flood_of_new_ssrcs_finds_a_table_that_is_full() {
    const PLACES: u32 = 100;
    let mut context = UdpContext::start(&config(1)).unwrap();
    let mut port = port();
    port.max_streams = PLACES as usize;
    let open = context.open(&port, |_| take).unwrap();
    let (source, _) = socket();
    let counted = |context: &mut UdpContext<Probe>| {
        let stats = context.stats()[0];
        (stats.packets + stats.refused + stats.lost_in_kernel, stats)
    };
    for ssrc in 0..5_000 {
        source.send_to(&packet(ssrc, 0), open.address).unwrap();
        if ssrc % 100 == 99 {
            // Existing streams stay.
            (0..PLACES).for_each(|ssrc| {
                source.send_to(&packet(ssrc, 1), open.address).unwrap();
            });
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    wait_for("all are counted", || counted(&mut context).0 == 5_000 + 50 * u64::from(PLACES));
    let (_, stats) = counted(&mut context);
    println!("{stats:?}");
    assert!(stats.streams <= u64::from(PLACES) && stats.refused > 0);
    // A call after a second of silence replaces the stream that has been silent for longest.
    std::thread::sleep(Duration::from_millis(1_100));
    source.send_to(&packet(9_999, 0), open.address).unwrap();
    wait_for("a place is made", || counted(&mut context).1.expired == 1);
    let ended = context.stop();
    assert_eq!(ended.iter().filter(|stream| stream.cause == StreamEndCause::Silent).count(), 1);
    assert!(numbers(&ended).contains_key(&StreamKey::Ssrc(9_999)));
}

/// Sends the first packets of these streams at the same moment: joined, so that they fit the
/// smallest buffer and are read in one poll.
fn burst(to: SocketAddr, packets: impl Iterator<Item = (u32, u16)>) {
    let mut sender = UdpContext::start(&config(1)).unwrap();
    let stream = sender.add(None, Probe::default()).unwrap();
    let datagram = |(ssrc, number)| (Route::to(to), packet(ssrc, number)[..20].to_vec());
    assert!(
        sender.send_command(stream, ProbeCommand::Send(packets.map(datagram).collect())).is_ok()
    );
    sender.stop();
}

/// A port of one thread, for bursts.
fn port_for_bursts(places: usize) -> (UdpContext<Probe>, SocketAddr) {
    let mut config = config(1);
    config.wait = Span::from_millis(20);
    let mut context = UdpContext::start(&config).unwrap();
    let mut port = port();
    (port.joined, port.max_streams) = (true, places);
    let open = context.open(&port, |_| take).unwrap();
    (context, open.address)
}

#[test]
fn thousands_of_streams_that_begin_at_once_lose_no_packet() {
    const STREAMS: u32 = 3_000;
    let (mut context, to) = port_for_bursts(10_000);
    burst(to, (0..STREAMS).map(|ssrc| (ssrc, 0)));
    let mut stats = context.stats()[0];
    wait_for("all are counted", || {
        stats = context.stats()[0];
        stats.packets + stats.refused + stats.lost_in_kernel == u64::from(STREAMS)
    });
    println!("{stats:?}");
    assert_eq!((stats.packets, stats.refused), (u64::from(STREAMS), 0));
    assert_eq!(numbers(&context.stop()).len(), STREAMS as usize);
}

#[test]
fn all_slots_of_a_full_table_can_be_reassigned_at_once() {
    const PLACES: u32 = 200;
    let (mut context, to) = port_for_bursts(PLACES as usize);
    burst(to, (0..PLACES).map(|ssrc| (ssrc, 0)));
    wait_for_packets(&context, PLACES as usize);
    std::thread::sleep(Duration::from_millis(1_100));
    burst(to, (1_000..1_000 + PLACES).map(|ssrc| (ssrc, 0)));
    let mut stats = context.stats()[0];
    wait_for("all are counted", || {
        stats = context.stats()[0];
        stats.packets + stats.refused == 2 * u64::from(PLACES)
    });
    let wanted = (2 * u64::from(PLACES), 0, u64::from(PLACES), u64::from(PLACES));
    assert_eq!((stats.packets, stats.refused, stats.expired, stats.streams), wanted);
    assert_eq!(numbers(&context.stop()).len(), 2 * PLACES as usize);
}

#[test]
fn an_evicted_sender_that_returns_keeps_its_new_slot() {
    let (mut context, to) = port_for_bursts(3);
    for ssrc in 1..=3 {
        burst(to, [(ssrc, 0)].into_iter());
        wait_for_packets(&context, usize::try_from(ssrc).unwrap());
    }
    std::thread::sleep(Duration::from_millis(1_100));
    // The fourth replaces the first, and the first replaces the second.
    burst(to, [(4, 0), (1, 1)].into_iter());
    wait_for("two have gone", || context.stats()[0].expired == 2);
    burst(to, [(1, 2)].into_iter());
    wait_for("the last is counted", || context.stats()[0].packets == 6);
    let ended = context.stop();
    let of_first = |stream: &&EndedStream<Probe>| {
        StreamKey::ssrc(&stream.machine.seen[0].bytes) == Some(StreamKey::Ssrc(1))
    };
    let seen = |stream: &EndedStream<Probe>| -> Vec<u16> {
        stream.machine.seen.iter().map(|seen| sequence(&seen.bytes)).collect()
    };
    let mut numbers: Vec<Vec<u16>> = ended.iter().filter(of_first).map(seen).collect();
    numbers.sort();
    assert_eq!(numbers, [vec![0], vec![1, 2]]);
}

#[test]
fn a_silent_stream_of_a_shared_port_ends_and_a_closed_port_ends_all() {
    let mut context = UdpContext::start(&config(2)).unwrap();
    let mut port = port();
    port.idle = Span::from_millis(100);
    let open = context.open(&port, |_| take).unwrap();
    let (source, _) = socket();
    let end_of = |context: &mut UdpContext<Probe>, close: bool| {
        source.send_to(&packet(5, 0), open.address).unwrap();
        if close {
            wait_for_packets(context, 1);
            context.close(open.id);
        }
        let mut found = None;
        wait_for("its end", || {
            found = context.poll_ended();
            found.is_some()
        });
        found.unwrap().cause
    };
    assert_eq!(end_of(&mut context, false), StreamEndCause::Silent);
    assert_eq!(end_of(&mut context, true), StreamEndCause::Removed);
    assert!(context.stop().is_empty());
    // The port is free again.
    bind_socket(open.address, &SocketOptions::default()).unwrap();
}

/// Sends everything twice, when its gate is open.
struct DoublingRelay {
    to: SocketAddr,
    gate: Option<Receiver<()>>,
}

impl Machine for DoublingRelay {
    type Command = ();
    type Report = ();

    fn handle_packets(&mut self, _: Instant, packets: &mut Packets<'_>, out: &mut Outbox<'_>) {
        // Dropping the other end opens the gate.
        let _ = self.gate.take().map(|gate| gate.recv());
        for packet in packets {
            out.send(Route::to(self.to), packet.bytes);
            out.send(Route::to(self.to), packet.bytes);
        }
    }

    fn handle_timeout(&mut self, _: Instant, _: &mut Outbox<'_>) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_command(&mut self, _: Instant, (): (), _: &mut Outbox<'_>) {}

    fn report(&self) {}
}

#[test]
fn what_the_kernel_has_kept_for_a_thread_that_was_late_is_all_sent_on() {
    const STREAMS: u32 = 100;
    const PACKETS: u16 = 100;
    let mut context = UdpContext::start(&config(1)).unwrap();
    // Nothing reads there; the sent packets are counted.
    let (_sink, to) = socket();
    let mut port = port();
    port.joined = true;
    let (open_gate, gate) = std::sync::mpsc::channel();
    let mut gate = Some(gate);
    let open = context
        .open(&port, |_| {
            let mut gate = gate.take();
            move |_: Instant, _, _: &Packet<'_>| Some(DoublingRelay { to, gate: gate.take() })
        })
        .unwrap();
    burst(open.address, [(0, 0)].into_iter());
    burst(open.address, (1..=PACKETS).flat_map(|number| (0..STREAMS).map(move |s| (s, number))));
    drop(open_gate);
    let count = u64::from(STREAMS) * u64::from(PACKETS) + 1;
    let mut stats = context.stats()[0];
    wait_for("all are counted", || {
        stats = context.stats()[0];
        stats.packets + stats.lost_in_kernel == count && stats.sent + stats.send_drops == 2 * count
    });
    println!("{stats:?}");
    assert_eq!((stats.lost_in_kernel, stats.send_drops, stats.sent), (0, 0, 2 * count));
    context.stop();
}
