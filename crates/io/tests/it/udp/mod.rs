//! The UDP threads with real sockets. No test depends on durations: each waits for its condition,
//! up to a minute.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod bad;
mod life;
mod shared;
mod trunk;

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use aulos_core::{Instant, Span};
use aulos_io::SystemClock;
use aulos_io::udp::{SocketOptions, StreamEndCause, StreamId, UdpConfig, UdpContext, bind_socket};
use aulos_session::datagram::{Machine, Outbox, Packets, Route, StreamKey};

/// Records its packets, and forwards them.
#[derive(Debug, Default)]
struct Probe {
    seen: Vec<SeenDatagram>,
    /// Where it forwards them.
    route: Option<Route>,
    timer: Option<Instant>,
    fired: Vec<(Instant, Instant)>,
    last_words: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SeenDatagram {
    bytes: Vec<u8>,
    received: Instant,
    read: Instant,
    from: SocketAddr,
    is_answer: bool,
    is_second: bool,
}

/// The commands of a probe.
enum ProbeCommand {
    /// Request a timer.
    Wake(Instant),
    Send(Vec<(Route, Vec<u8>)>),
    End,
    Claim(StreamKey),
}

impl Machine for Probe {
    type Command = ProbeCommand;
    type Report = usize;

    fn handle_packets(&mut self, now: Instant, packets: &mut Packets<'_>, out: &mut Outbox<'_>) {
        for packet in packets {
            if let Some(route) = self.route {
                assert!(out.send(route, packet.bytes));
            }
            self.seen.push(SeenDatagram {
                bytes: packet.bytes.to_vec(),
                received: packet.received,
                read: now,
                from: packet.from,
                is_answer: packet.is_answer,
                is_second: packet.is_second,
            });
        }
    }

    fn handle_timeout(&mut self, now: Instant, _: &mut Outbox<'_>) {
        self.fired.extend(self.timer.take().map(|at| (at, now)));
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timer
    }

    fn handle_command(&mut self, _: Instant, order: ProbeCommand, out: &mut Outbox<'_>) {
        match order {
            ProbeCommand::Wake(at) => self.timer = Some(at),
            ProbeCommand::Send(all) => {
                all.iter().for_each(|(route, bytes)| assert!(out.send(*route, bytes)));
            }
            ProbeCommand::End => out.end(),
            ProbeCommand::Claim(key) => out.claim(key),
        }
    }

    fn report(&self) -> usize {
        self.seen.len()
    }

    fn finish(&mut self, now: Instant, out: &mut Outbox<'_>) {
        for number in 0..self.last_words {
            if let Some(route) = self.route {
                out.send(
                    route.not_before(now + Span::from_millis(i64::from(number % 20))),
                    b"farewell",
                );
            }
        }
    }
}

fn config(threads: usize) -> UdpConfig {
    let mut config = UdpConfig::default();
    config.threads = threads;
    config.bind_v4 = [127, 0, 0, 1].into();
    config.bind_v6 = std::net::Ipv6Addr::LOCALHOST;
    config
}

/// A socket on loopback, with its address.
fn socket() -> (UdpSocket, SocketAddr) {
    let options = SocketOptions { receive_buffer: 4 << 20, ..SocketOptions::default() };
    let socket = bind_socket("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// A socket whose reads wait.
fn listener() -> (UdpSocket, SocketAddr) {
    let (socket, address) = socket();
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    (socket, address)
}

/// An RTP packet with 160 bytes of G.711.
fn packet(ssrc: u32, sequence: u16) -> Vec<u8> {
    let mut bytes = vec![0x80, 0];
    bytes.extend(sequence.to_be_bytes());
    bytes.extend((u32::from(sequence) * 160).to_be_bytes());
    bytes.extend(ssrc.to_be_bytes());
    bytes.resize(172, 0xD5);
    bytes
}

fn sequence(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[2], bytes[3]])
}

/// Waits at most a minute.
fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    for _ in 0..6_000 {
        if happened() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it did not happen: {what}");
}

/// Waits until all streams together have received `count` packets.
fn wait_for_packets(context: &UdpContext<Probe>, count: usize) {
    let seen = || context.stream_reports().iter().map(|stream| stream.report).sum::<usize>();
    wait_for(&format!("{count} packets"), || seen() >= count);
}

/// Removes a stream and returns its machine.
fn machine_of(context: &mut UdpContext<Probe>, stream: StreamId) -> Probe {
    context.remove(stream);
    let mut found = None;
    wait_for("the end of a stream", || {
        found = context.poll_ended();
        found.is_some()
    });
    let ended = found.unwrap();
    assert_eq!((ended.id, ended.cause), (stream, StreamEndCause::Removed));
    ended.machine
}

/// The kernel stamps packets only some time after the first socket has requested it.
fn wait_for_stamps(context: &mut UdpContext<Probe>) {
    let (source, _) = socket();
    wait_for("a packet that came before it was read", || {
        let (own, to) = socket();
        let stream = context.add(Some(own), Probe::default()).unwrap();
        source.send_to(&packet(0, 0), to).unwrap();
        let sent = SystemClock::now();
        wait_for_packets(context, 1);
        machine_of(context, stream).seen[0].received <= sent
    });
}

#[test]
fn packets_of_many_streams_arrive_in_order_with_their_times() {
    const STREAMS: u32 = 200;
    const PACKETS: u16 = 20;
    let mut context = UdpContext::start(&config(2)).unwrap();
    let (sink, to) = listener();
    let (source, from) = socket();
    wait_for_stamps(&mut context);
    let streams: Vec<(StreamId, SocketAddr)> = (0..STREAMS)
        .map(|_| {
            let (socket, address) = socket();
            let probe = Probe { route: Some(Route::to(to)), ..Probe::default() };
            (context.add(Some(socket), probe).unwrap(), address)
        })
        .collect();
    let mut sent = Vec::new();
    let mut counts = vec![0; STREAMS as usize];
    for number in 0..PACKETS {
        let before = SystemClock::now();
        for (ssrc, (_, to)) in (0..).zip(&streams) {
            source.send_to(&packet(ssrc, number), to).unwrap();
        }
        sent.push((before, SystemClock::now()));
        for _ in 0..STREAMS {
            let mut bytes = [0; 2_000];
            let (len, _) = sink.recv_from(&mut bytes).unwrap();
            let ssrc = u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
            assert_eq!(bytes[..len], packet(ssrc, counts[ssrc as usize]));
            counts[ssrc as usize] += 1;
        }
    }
    assert!(counts.iter().all(|count| *count == PACKETS));
    let mut ended = context.stop();
    ended.sort_by_key(|stream| stream.id);
    for (ssrc, (stream, (id, _))) in (0..).zip(ended.iter().zip(&streams)) {
        assert_eq!((stream.id, stream.cause), (*id, StreamEndCause::Stopped));
        assert_eq!(stream.stats.packets, u64::from(PACKETS));
        assert_eq!(stream.stats.bytes, 172 * u64::from(PACKETS));
        for ((number, seen), (before, after)) in (0..).zip(&stream.machine.seen).zip(&sent) {
            assert_eq!(seen.bytes, packet(ssrc, number));
            assert_eq!(seen.from, from);
            // The time stamps use the wall clock, which NTP slews.
            let slack = Span::from_micros(100);
            let (early, late) = (*before - seen.received, seen.received - *after);
            assert!(early <= slack && late <= slack, "{early} too early, {late} too late");
            assert!(seen.received <= seen.read);
        }
    }
}

#[test]
fn a_peer_that_replies_from_its_own_socket_is_received() {
    let mut context = UdpContext::start(&config(1)).unwrap();
    let (peer, to) = listener();
    let (socket, own) = socket();
    let probe = Probe { route: Some(Route::to(to).from_own_socket()), ..Probe::default() };
    context.add(Some(socket), probe).unwrap();
    peer.send_to(&packet(1, 1), own).unwrap();
    let mut bytes = [0; 2_000];
    assert_eq!(peer.recv_from(&mut bytes).unwrap(), (172, own));
    context.stop();
}

#[test]
fn a_socket_of_ipv6_speaks_both() {
    let mut context = UdpContext::start(&config(1)).unwrap();
    let options = SocketOptions::default();
    let Ok(socket) = bind_socket("[::]:0".parse().unwrap(), &options) else {
        // No test needs IPv6, which many containers lack.
        return context.stop().clear();
    };
    let port = socket.local_addr().unwrap().port();
    let (peer, to) = listener();
    let probe = Probe { route: Some(Route::to(to).from_own_socket()), ..Probe::default() };
    context.add(Some(socket), probe).unwrap();
    peer.send_to(&packet(1, 1), ("127.0.0.1", port)).unwrap();
    let mut bytes = [0; 2_000];
    let (len, from) = peer.recv_from(&mut bytes).unwrap();
    assert_eq!((len, from.port()), (172, port));
    let [stream] = &context.stop()[..] else { panic!("one stream") };
    assert_eq!(stream.machine.seen[0].from, to);
}

#[test]
fn multicast_is_received_by_members_with_its_dscp() {
    // Loopback is the first interface everywhere.
    let card = SocketOptions { multicast_interface: 1, ..SocketOptions::default() };
    let group = [239, 255, 77, 77].into();
    let joined = SocketOptions { groups: vec![group], ..card };
    let mut context = UdpContext::start(&config(1)).unwrap();
    let first = bind_socket("0.0.0.0:0".parse().unwrap(), &joined).unwrap();
    let to = SocketAddr::new(group, first.local_addr().unwrap().port());
    // Like another program on the same machine.
    let second = bind_socket(to, &joined).unwrap();
    for socket in [first, second] {
        context.add(Some(socket), Probe::default()).unwrap();
    }
    let loud = SocketOptions { multicast_loop: true, multicast_hops: 4, dscp: 46, ..card };
    let source = bind_socket("127.0.0.1:0".parse().unwrap(), &loud).unwrap();
    assert_eq!(rustix::net::sockopt::ip_tos(&source).unwrap(), 46 << 2);
    assert_eq!(rustix::net::sockopt::ip_multicast_ttl(&source).unwrap(), 4);
    source.send_to(&packet(1, 1), to).unwrap();
    wait_for_packets(&context, 2);
    let ended = context.stop();
    assert!(ended.iter().all(|stream| stream.machine.seen.len() == 1));
}

#[test]
fn a_stream_continues_with_another_socket() {
    let mut context = UdpContext::start(&config(1)).unwrap();
    let options = SocketOptions::default();
    let bind = || bind_socket("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let (first, second) = (bind(), bind());
    let ports = [&first, &second].map(|socket| socket.local_addr().unwrap());
    let (peer, to) = listener();
    let probe = Probe { route: Some(Route::to(to).from_own_socket()), ..Probe::default() };
    let stream = context.add(Some(first), probe).unwrap();
    let exchange = |number: u16, port: SocketAddr| {
        peer.send_to(&packet(1, number), port).unwrap();
        let mut bytes = [0; 2_000];
        let (_, from) = peer.recv_from(&mut bytes).unwrap();
        assert_eq!(from, port);
    };
    exchange(1, ports[0]);
    context.replace_socket(stream, second).unwrap();
    exchange(2, ports[1]);
    // The first one is closed: its port is free.
    drop(bind_socket(ports[0], &options).unwrap());
    let [stream] = &context.stop()[..] else { panic!("one stream") };
    assert_eq!(stream.machine.seen.len(), 2);
}
