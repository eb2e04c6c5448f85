//! Jitter buffer and decoder together, as a receiver uses them.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a test signal is made of numbers"
)]

use crate::call_sim::{FRAME, GOOD, PACKET, RATE, TICK, arrival};
use aulos_core::{Instant, Span};
use aulos_dsp::g711::{self, G711Law};
use aulos_engine::decode::{Decoder, G711PacketDecoder};
use aulos_proto::rtp::jitter::{
    Arrival, DelayPolicy, GapCause, JitterBuffer, JitterConfig, JitterMode, JitterOutput,
};
use aulos_sim::{DatagramLink, Link};

/// Packet number `number` of a continuous hum, whose continuity can be checked.
fn hum(number: u64) -> [u8; 160] {
    let samples: [f32; 160] = core::array::from_fn(|at| {
        let time = (number * FRAME + at as u64) as f64 / f64::from(RATE);
        (0.3 * (std::f64::consts::TAU * 125.0 * time).sin()) as f32
    });
    let mut codes = [0; 160];
    g711::encode(G711Law::Mu, &samples, &mut codes);
    codes
}

/// The decoded audio of two minutes.
fn listen(link: Link) -> Vec<f32> {
    let config = JitterConfig {
        clock_rate: RATE,
        slots: 32,
        mode: JitterMode::Playout(DelayPolicy::ADAPTIVE),
    };
    let mut buffer = JitterBuffer::new(config);
    let mut decoder = G711PacketDecoder::new(G711Law::Mu);
    let mut network = DatagramLink::new(link, 77);
    let (mut sound, mut piece) = (Vec::new(), [0.0; 1_600]);
    for number in 0..6_000 {
        network.send(Instant::ZERO + PACKET * number, &number.to_be_bytes());
    }
    let mut now = Instant::ZERO;
    while now < Instant::ZERO + PACKET * 6_000 {
        now += TICK;
        while let Some((received, sequence)) = arrival(&mut network, now) {
            let timestamp = sequence * FRAME;
            let packet = Arrival { sequence, timestamp, ticks: 160, marker: false, received };
            let _ = buffer.insert(packet, hum(sequence));
        }
        loop {
            match buffer.poll(now) {
                JitterOutput::Packet(packet) => {
                    assert_eq!(
                        packet.position,
                        sound.len() as u64,
                        "media time is that of the ear"
                    );
                    assert_eq!(decoder.decode(&packet.payload, &mut piece), Ok(160));
                    sound.extend_from_slice(&piece[..160]);
                }
                JitterOutput::Missing(missing) => {
                    assert!(matches!(missing.cause, GapCause::Lost | GapCause::Underrun));
                    let piece = &mut piece[..usize::try_from(missing.ticks).unwrap_or(0)];
                    decoder.conceal(piece);
                    sound.extend_from_slice(piece);
                }
                JitterOutput::Skip(_) => unreachable!("nothing comes too early"),
                JitterOutput::Wait(_) => break,
            }
        }
    }
    sound
}

#[test]
fn a_hum_continues_without_a_gap() {
    let jitter = Span::from_millis(10);
    let bad = Link { loss: 0.03, detours: 0.02, jitter, max_jitter: Span::from_millis(40), ..GOOD };
    let sound = listen(bad);
    assert!(sound.len() > 119 * 8_000, "{}", sound.len());
    let heard = &sound[8_000..];
    // A period is 64 samples: each has a maximum and a minimum, and no step is steeper than those
    // of the hum.
    let quiet = heard.chunks_exact(64).filter(|period| {
        let top = period.iter().fold(0.0_f32, |top, sample| top.max(sample.abs()));
        top < 0.15
    });
    let quiet = quiet.count();
    let steepest = heard.windows(2).map(|at| (at[1] - at[0]).abs()).fold(0.0, f32::max);
    println!("{quiet} quiet periods of {}, steepest step {steepest:.3}", heard.len() / 64);
    // Where three packets in a row are lost, and the concealment has faded: in fewer than one of
    // 500 periods.
    assert!(quiet * 500 < heard.len() / 64, "{quiet}");
    assert!(steepest < 0.06, "{steepest}");
}
