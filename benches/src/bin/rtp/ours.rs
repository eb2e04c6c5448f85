//! Ours: one shared thread, in each of the three ways.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use aulos_core::Instant;
use aulos_io::udp::{SharedPortConfig, SocketOptions, UdpConfig, UdpContext, bind_socket};
use aulos_session::datagram::{Machine, Outbox, Packet, Packets};

/// Looks how late each packet is handed over, and drops it.
struct Drain;

impl Machine for Drain {
    type Command = ();
    type Report = ();

    fn handle_packets(&mut self, now: Instant, packets: &mut Packets<'_>, _: &mut Outbox<'_>) {
        for packet in packets {
            let Some(stamp) = packet.bytes.get(12..).and_then(|rest| rest.first_chunk()) else {
                continue;
            };
            let sent = Instant::from_nanos(u64::from_be_bytes(*stamp));
            let step = usize::try_from(now.since(sent).as_micros()).unwrap_or(0) / STEP_US;
            LATE[step.min(STEPS - 1)].fetch_add(1, Relaxed);
        }
    }

    fn handle_timeout(&mut self, _: Instant, _: &mut Outbox<'_>) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_command(&mut self, _: Instant, (): (), _: &mut Outbox<'_>) {}

    fn report(&self) {}
}

/// How many packets were so late, in steps.
static LATE: [AtomicU64; STEPS] = [const { AtomicU64::new(0) }; STEPS];
const STEPS: usize = 2_000;
const STEP_US: usize = 100;

pub(crate) fn receive(role: &str, streams: usize, first: u16, until_stop: impl FnOnce()) {
    let mut config = UdpConfig::default();
    config.threads = 1;
    config.bind_v4 = [127, 0, 0, 1].into();
    let mut context = UdpContext::start(&config).expect("a context");
    let mut port = first;
    match role {
        "sockets" | "silent" => {
            for stream in 0..streams {
                let to = first + u16::try_from(stream).expect("a port");
                let address = ([127, 0, 0, 1], to).into();
                let socket = bind_socket(address, &SocketOptions::default()).expect("a free port");
                context.add(Some(socket), Drain).expect("a socket");
            }
        }
        _ => {
            let mut wish = SharedPortConfig::new(([127, 0, 0, 1], 0).into());
            wish.joined = role == "trunk";
            let make = |_: Instant, _, _: &Packet<'_>| Some(Drain);
            port = context.open(&wish, |_| make).expect("a port").address.port();
        }
    }
    // The last of them is in when its thread has answered.
    context.stream_reports();
    println!("{port}");
    until_stop();
    context.stop();
    let counts: Vec<u64> = LATE.iter().map(|count| count.load(Relaxed)).collect();
    let total: u64 = counts.iter().sum();
    let quantile = |percent: u64| {
        let mut left = (total * percent).div_ceil(100);
        let found = counts.iter().position(|count| {
            let is_here = *count >= left;
            left = left.saturating_sub(*count);
            is_here
        });
        (found.unwrap_or(0) * STEP_US) as f64 / 1e3
    };
    println!("{total} {} {}", quantile(50), quantile(99));
}
