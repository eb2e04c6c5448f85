//! Many streams between two contexts, in few pieces.

use std::net::Ipv4Addr;

use aulos_blackbox::net::NetNamespaces;
use aulos_blackbox::peer::skip;
use aulos_io::udp::UdpStats;

use super::shared::{numbers, port, take};
use super::*;

#[test]
fn a_trunk_carries_many_streams_in_few_pieces() {
    carry(&config(1), Ipv4Addr::LOCALHOST, true, |context| context(), |context| context());
}

/// The sender's kernel cannot join datagrams, or the sender is not a context.
#[test]
fn a_trunk_accepts_packets_one_by_one() {
    let mut sending = config(1);
    sending.join_sends = false;
    carry(&sending, Ipv4Addr::LOCALHOST, false, |context| context(), |context| context());
}

#[test]
fn a_trunk_carries_them_from_one_machine_to_another() {
    let Some(net) = NetNamespaces::new().inspect_err(|e| println!("{e}")).ok() else {
        return skip("network namespaces");
    };
    let [here, there] = [1, 2].map(|end| Ipv4Addr::new(10, 77, 0, end));
    let mut sending = config(1);
    (sending.bind_v4, sending.bind_v6) = (here, std::net::Ipv6Addr::UNSPECIFIED);
    carry(
        &sending,
        there,
        true,
        |start| net.run_inside(0, start),
        |start| net.run_inside(1, start),
    );
}

const STREAMS: u32 = 300;
const PACKETS: u16 = 10;

/// Now and then a packet is shorter, as at the end of a phrase, or longer.
fn length(ssrc: u32) -> usize {
    if ssrc % 50 == 7 {
        92
    } else if ssrc % 70 == 9 {
        300
    } else {
        172
    }
}

type StartContext<'a> = &'a (dyn Fn() -> UdpContext<Probe> + Sync);

/// Sends from one context to another one with three threads at `there`. `at_home` and `abroad`
/// start them, for example in different network namespaces.
fn carry(
    sending: &UdpConfig,
    there: Ipv4Addr,
    joins: bool,
    at_home: impl FnOnce(StartContext<'_>) -> UdpContext<Probe>,
    abroad: impl FnOnce(StartContext<'_>) -> UdpContext<Probe>,
) {
    let mut port = port();
    port.address = (there, 0).into();
    port.joined = true;
    let to = std::sync::Mutex::new(None);
    let mut receiver = abroad(&|| {
        let mut context = UdpContext::start(&config(3)).unwrap();
        *to.lock().unwrap() = Some(context.open(&port, |_| take).unwrap().address);
        context
    });
    let to = to.into_inner().unwrap().unwrap();
    let mut sender = at_home(&|| UdpContext::start(sending).unwrap());
    let stream = sender.add(None, Probe::default()).unwrap();
    for number in 0..PACKETS {
        let all = (0..STREAMS)
            .map(|place| {
                // The first packet of a piece varies.
                let ssrc = (place + 37 * u32::from(number)) % STREAMS;
                let mut bytes = packet(ssrc, number);
                bytes.resize(length(ssrc), 1);
                (Route::to(to), bytes)
            })
            .collect();
        assert!(sender.send_command(stream, ProbeCommand::Send(all)).is_ok());
        wait_for_packets(&receiver, usize::from(number + 1) * STREAMS as usize);
    }
    let count = u64::from(STREAMS) * u64::from(PACKETS);
    let (mut sent, mut received) = (sum(&mut sender), sum(&mut receiver));
    wait_for("the figures", || {
        (sent, received) = (sum(&mut sender), sum(&mut receiver));
        (sent.sent, received.packets) == (count, count)
    });
    println!("{sent:?}\n{received:?}");
    if joins {
        assert!(sent.sent_joined > count / 2, "this kernel does not take them joined");
        assert!(received.joined > count / 2, "this kernel does not give them joined");
    } else {
        assert_eq!(sent.sent_joined, 0);
    }
    assert_eq!((received.bytes, received.truncated), (sent.sent_bytes, 0));
    sender.stop();
    let ended = receiver.stop();
    let numbers = numbers(&ended);
    assert_eq!(numbers.len(), STREAMS as usize);
    assert!(numbers.values().all(|numbers| *numbers == (0..PACKETS).collect::<Vec<_>>()));
    for stream in &ended {
        let ssrc = u32::from_be_bytes(stream.machine.seen[0].bytes[8..12].try_into().unwrap());
        assert!(stream.machine.seen.iter().all(|seen| seen.bytes.len() == length(ssrc)), "{ssrc}");
    }
}

/// The counters of all threads of a context.
fn sum(context: &mut UdpContext<Probe>) -> UdpStats {
    let mut sum = UdpStats::default();
    context.stats().iter().for_each(|stats| sum.add(stats));
    sum
}
