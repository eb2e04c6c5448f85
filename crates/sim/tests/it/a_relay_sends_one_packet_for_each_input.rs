//! A relay sends one packet for each that it receives, in order where it can, and with little
//! delay.

#![allow(clippy::panic, reason = "a test fails by panicking, its helpers too")]

use crate::call_sim::{FRAME, GOOD, PACKET, RATE, TICK, arrival};
use aulos_core::{Instant, Span};
use aulos_proto::rtp::jitter::{
    Arrival, InsertOutcome, JitterBuffer, JitterConfig, JitterMode, JitterOutput,
};
use aulos_sim::{DatagramLink, Link};

/// The result of relaying ten minutes.
#[derive(Debug, Default)]
struct RelayResult {
    /// Numbers in the order of sending.
    sent: Vec<u64>,
    /// The delay of each packet in the relay.
    waits: Vec<Span>,
    came: u64,
    late: u64,
}

fn relay(link: Link) -> RelayResult {
    let mode = JitterMode::Relay { hold: Span::from_millis(60) };
    let mut buffer = JitterBuffer::new(JitterConfig { clock_rate: RATE, slots: 32, mode });
    let mut network = DatagramLink::new(link, 21);
    let mut relayed = RelayResult::default();
    let packets = 30_000;
    for number in 0..packets {
        network.send(Instant::ZERO + PACKET * number, &number.to_be_bytes());
    }
    let mut now = Instant::ZERO;
    while now < Instant::ZERO + PACKET * packets + Span::from_secs(1) {
        now += TICK;
        while let Some((received, sequence)) = arrival(&mut network, now) {
            let timestamp = sequence * FRAME;
            let packet = Arrival { sequence, timestamp, ticks: 160, marker: false, received };
            match buffer.insert(packet, ()) {
                InsertOutcome::Held => relayed.came += 1,
                // It is forwarded as it is.
                InsertOutcome::Late(()) => {
                    relayed.came += 1;
                    relayed.late += 1;
                    relayed.sent.push(sequence);
                }
                InsertOutcome::Duplicate(()) => {}
                other => panic!("{other:?}"),
            }
        }
        loop {
            match buffer.poll(now) {
                JitterOutput::Packet(packet) => {
                    assert_eq!(packet.timestamp, packet.sequence * FRAME, "timestamps are kept");
                    relayed.sent.push(packet.sequence);
                    relayed.waits.push(now - packet.received);
                }
                JitterOutput::Missing(_) => {}
                JitterOutput::Skip(packet) => panic!("{packet:?}"),
                JitterOutput::Wait(_) => break,
            }
        }
    }
    relayed
}

#[test]
fn over_a_bad_network() {
    let ms = Span::from_millis;
    let link = Link { loss: 0.02, detours: 0.05, duplicates: 0.02, ..GOOD };
    for link in [link, Link { jitter: ms(10), max_jitter: ms(50), ..link }] {
        let mut relayed = relay(link);
        assert_eq!(relayed.sent.len() as u64, relayed.came, "one for each");
        let behind = relayed.sent.windows(2).filter(|pair| pair[1] < pair[0]).count() as u64;
        assert!(behind <= relayed.late, "{behind} out of order, {} late", relayed.late);
        assert!(relayed.late * 500 < relayed.came, "{} late", relayed.late);
        relayed.sent.sort_unstable();
        relayed.sent.dedup();
        assert_eq!(relayed.sent.len() as u64, relayed.came, "none twice");
        relayed.waits.sort_unstable();
        let at = |part: usize| relayed.waits[relayed.waits.len() * part / 1_000];
        assert!(at(500) <= TICK && at(999) <= ms(65), "{} {}", at(500), at(999));
    }
}

#[test]
fn over_a_good_network_nothing_waits_longer_than_a_tick() {
    let relayed =
        relay(Link { jitter: Span::from_millis(5), max_jitter: Span::from_millis(15), ..GOOD });
    assert_eq!((relayed.sent.len(), relayed.late), (30_000, 0));
    assert!(relayed.waits.iter().all(|&wait| wait <= TICK));
}
