//! Cost of a packet in a jitter buffer.
//!
//! A thousand streams with packets of 20 ms, one packet of each at a time, so that no stream is in
//! the cache; up to 9 ms of jitter, and in the second half every tenth packet behind its successor.
//! Columns: the mode, nanoseconds per packet in order and out of order, for insertion and output
//! together. More than 500 would be bad: the kernel takes about 2,000 per packet.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(clippy::cast_precision_loss, reason = "for a mean")]

use std::hint::black_box;

use aulos_core::{Instant, Span};
use aulos_proto::rtp::jitter::{
    Arrival, DelayPolicy, JitterBuffer, JitterConfig, JitterMode, JitterOutput,
};

fn main() {
    let relay = JitterMode::Relay { hold: Span::from_millis(60) };
    for (name, mode) in [("play-out", JitterMode::Playout(DelayPolicy::ADAPTIVE)), ("relay", relay)]
    {
        let [in_order, out_of_order] = [false, true]
            .map(|swaps| (0..5).map(|_| run(mode, swaps)).fold(f64::INFINITY, f64::min));
        println!("{name:10} {in_order:6.0} ns {out_of_order:6.0} ns");
    }
}

/// Nanoseconds per packet.
fn run(mode: JitterMode, swaps: bool) -> f64 {
    let config = JitterConfig { clock_rate: 8_000, slots: 16, mode };
    let mut streams: Vec<JitterBuffer<u32>> =
        (0..STREAMS).map(|_| JitterBuffer::new(config)).collect();
    let begin = std::time::Instant::now();
    for round in 0..ROUNDS {
        let now = Instant::from_nanos(1_000_000_000 + round * 20_000_000);
        let number = match round % 10 {
            3 if swaps => round + 1,
            4 if swaps => round - 1,
            _ => round,
        };
        for (stream, buffer) in (0_u32..).zip(&mut streams) {
            let late = (round * 7_919 + u64::from(stream) * 104_729) % 9_000_000;
            let arrival = Arrival {
                sequence: number,
                timestamp: number * 160,
                ticks: 160,
                marker: false,
                received: Instant::from_nanos(now.as_nanos() + late),
            };
            let _ = black_box(buffer.insert(arrival, stream));
            while !matches!(
                black_box(buffer.poll(now + Span::from_millis(10))),
                JitterOutput::Wait(_)
            ) {}
        }
    }
    begin.elapsed().as_secs_f64() * 1e9 / (ROUNDS * u64::from(STREAMS)) as f64
}

const STREAMS: u32 = 1_000;
const ROUNDS: u64 = 500;
