//! The UDP threads with real sockets: once every stream has started, no packet makes them allocate,
//! whether it arrives alone, on a shared port or joined, and whether it is sent at once, paced or
//! joined.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::counting::{ALLOCATED, COUNTING, FREED};
use crate::exclusive_counts;
use aulos_core::{Instant, Span};
use aulos_io::SystemClock;
use aulos_io::udp::{SharedPortConfig, SocketOptions, UdpConfig, UdpContext, bind_socket};
use aulos_session::datagram::{Machine, Outbox, Packet, Packets, Route};

/// Forwards packets after a delay, like a jitter buffer.
struct Relay {
    to: SocketAddr,
    waiting: Option<(Instant, [u8; 172])>,
}

impl Machine for Relay {
    type Command = ();
    type Report = ();

    fn handle_packets(&mut self, now: Instant, packets: &mut Packets<'_>, out: &mut Outbox<'_>) {
        for packet in packets {
            COUNT.fetch_add(1, SeqCst);
            out.send(Route::to(self.to).not_before(now + Span::from_millis(3)), packet.bytes);
            if let Some(bytes) = packet.bytes.first_chunk() {
                self.waiting = Some((now + Span::from_millis(7), *bytes));
            }
        }
    }

    fn handle_timeout(&mut self, _: Instant, out: &mut Outbox<'_>) {
        if let Some((_, bytes)) = self.waiting.take() {
            out.write(Route::to(self.to).from_own_socket(), bytes.len(), |room| {
                room.copy_from_slice(&bytes);
                bytes.len()
            });
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.waiting.map(|(at, _)| at)
    }

    fn handle_command(&mut self, _: Instant, (): (), _: &mut Outbox<'_>) {}

    fn report(&self) {}
}

static COUNT: AtomicU64 = AtomicU64::new(0);

#[test]
fn two_hundred_streams_are_served_without_a_call() {
    let _turn = exclusive_counts();
    let mut config = UdpConfig::default();
    config.threads = 2;
    config.bind_v4 = [127, 0, 0, 1].into();
    let mut context = UdpContext::start(&config).unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let sink = bind_socket(any, &SocketOptions::default()).unwrap();
    let to = sink.local_addr().unwrap();
    let mut destinations: Vec<SocketAddr> = Vec::new();
    for _ in 0..STREAMS {
        let socket = bind_socket(any, &SocketOptions::default()).unwrap();
        destinations.push(socket.local_addr().unwrap());
        context.add(Some(socket), Relay { to, waiting: None }).unwrap();
    }
    for joined in [false, true] {
        let mut port = SharedPortConfig::new(any);
        port.joined = joined;
        let make = move |_: Instant, _, _: &Packet<'_>| Some(Relay { to, waiting: None });
        let open = context.open(&port, |_| make).unwrap();
        destinations.extend([open.address; STREAMS / 2]);
    }
    let source = bind_socket(any, &SocketOptions::default()).unwrap();
    // Touches the buffers for bursts in advance, because a late thread reads many packets at once.
    for _ in 0..5 {
        play(&source, &destinations, 20, Span::ZERO);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    play(&source, &destinations, 25, Span::from_millis(20));
    let before = COUNT.load(SeqCst);
    COUNTING.store(true, SeqCst);
    play(&source, &destinations, 50, Span::from_millis(20));
    COUNTING.store(false, SeqCst);
    let calls = (ALLOCATED.load(SeqCst), FREED.load(SeqCst));
    let count = COUNT.load(SeqCst) - before;
    println!("{count} packets; {} allocations, {} frees on the shared threads", calls.0, calls.1);
    context.stop();
    assert!(count > 25 * destinations.len() as u64, "{count} packets");
    assert_eq!(calls, (0, 0));
}

/// Sends some packets to every stream.
fn play(source: &UdpSocket, destinations: &[SocketAddr], packets: u16, every: Span) {
    let mut next = SystemClock::now();
    for number in 0..packets {
        for (ssrc, to) in (0u32..).zip(destinations) {
            let mut bytes = [0; 172];
            bytes[0] = 0x80;
            bytes[2..4].copy_from_slice(&number.to_be_bytes());
            bytes[8..12].copy_from_slice(&ssrc.to_be_bytes());
            // A full socket buffer does not matter here.
            drop(source.send_to(&bytes, to));
        }
        next += every;
        SystemClock::sleep_until(next);
    }
}

const STREAMS: usize = 100;
