//! Between two talk spurts the playout delay adapts to the network, and no spurt is torn.

#![allow(clippy::cast_precision_loss, reason = "for means")]

use crate::call_sim::{FRAME, GOOD, PACKET, RATE, TICK, arrival};
use aulos_core::{Instant, Span};
use aulos_proto::rtp::jitter::{
    Arrival, DelayPolicy, GapCause, JitterBuffer, JitterConfig, JitterMode, JitterOutput,
};
use aulos_sim::{DatagramLink, Link};

#[test]
fn it_shrinks_when_the_network_gets_better_and_grows_when_it_gets_worse() {
    let ms = Span::from_millis;
    let bad = Link { jitter: ms(50), max_jitter: ms(80), ..GOOD };
    let mode = JitterMode::Playout(DelayPolicy::ADAPTIVE);
    let config = JitterConfig { clock_rate: RATE, slots: 32, mode };
    let mut buffer = JitterBuffer::new(config);
    let mut network = DatagramLink::new(GOOD, 5);
    let (mut slot, mut sequence, mut now) = (0_i64, 0_u64, Instant::ZERO);
    let (mut delays, mut torn, mut concealed) = (Vec::new(), 0, 0);
    let mut due = Instant::ZERO;
    let mut slots = Vec::new();
    while slot < 13_000 {
        // A minute with a good link, a minute with a bad one, and a good one again. A second of
        // talk, then half a second of silence.
        let link = if (3_000..6_000).contains(&slot) { bad } else { GOOD };
        network.set(link);
        while Instant::ZERO + PACKET * slot <= now {
            if slot % 75 < 50 {
                network.send(Instant::ZERO + PACKET * slot, &sequence.to_be_bytes());
                slots.push(slot);
                sequence += 1;
            }
            slot += 1;
        }
        while let Some((received, sequence)) = arrival(&mut network, now) {
            let slot = slots[usize::try_from(sequence).unwrap()];
            let _ = buffer.insert(
                Arrival {
                    sequence,
                    timestamp: slot.unsigned_abs() * FRAME,
                    ticks: 160,
                    marker: slot % 75 == 0,
                    received,
                },
                slot,
            );
        }
        loop {
            match buffer.poll(now) {
                JitterOutput::Packet(packet) => {
                    // Within a spurt, packets are played at their interval, within a tick.
                    let is_first = packet.payload % 75 == 0;
                    torn += u64::from(!is_first && (now - due).abs() > TICK + TICK);
                    due = now + PACKET;
                    delays.push((packet.payload, now - Instant::ZERO - PACKET * packet.payload));
                }
                JitterOutput::Missing(missing) => {
                    due += PACKET;
                    concealed += u64::from(missing.cause == GapCause::Lost);
                }
                JitterOutput::Skip(packet) => panic!("{packet:?}"),
                JitterOutput::Wait(_) => break,
            }
        }
        now += TICK;
    }
    // The last twenty seconds of each; the link's delay is 20 ms.
    let (good, bad, again) = (mean(&delays, 2_000), mean(&delays, 5_000), mean(&delays, 12_000));
    println!("{good:.0} ms, {bad:.0} ms, {again:.0} ms; {torn} torn, {concealed} concealed");
    let stats = buffer.stats();
    assert!(good < 35.0 && (90.0..125.0).contains(&bad) && again < 35.0);
    // Only at the transition to the bad link.
    assert!(torn <= 10, "{torn}");
    assert!(stats.late < 40 && stats.lost == 0, "{stats:?}");
}

/// Mean over twenty seconds from slot `from` on, in milliseconds.
fn mean(delays: &[(i64, Span)], from: i64) -> f64 {
    let of = delays.iter().filter(|(slot, _)| (from..from + 1_000).contains(slot));
    let of: Vec<_> = of.map(|(_, delay)| delay.as_secs_f64() * 1e3).collect();
    of.iter().sum::<f64>() / of.len() as f64
}
