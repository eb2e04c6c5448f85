//! A day over a bad network, with a speaker whose clock drifts: the latency of the last hour is
//! that of the first, the concealed packets are the lost ones, and once the buffer has adapted no
//! packet is late.

use crate::call_sim::{GOOD, JitterBufferPlayout, SimulatedCall, simulate};
use aulos_core::{Ppm, Span};
use aulos_proto::rtp::jitter::DelayPolicy;
use aulos_sim::Link;

const JITTER: Link =
    Link { jitter: Span::from_millis(50), max_jitter: Span::from_millis(50), ..GOOD };

/// The network faults.
const NETWORKS: [(&str, Link); 5] = [
    ("1 % loss", Link { loss: 0.01, ..GOOD }),
    ("10 % loss", Link { loss: 0.1, ..GOOD }),
    ("50 ms of jitter", JITTER),
    ("5 % reordered", Link { detours: 0.05, ..GOOD }),
    ("5 % twice", Link { duplicates: 0.05, ..GOOD }),
];

fn day(name: &str, link: Link, ppm: i32) {
    // The first five minutes do not count.
    let (length, settling) = (Span::from_secs(86_400), Span::from_secs(300));
    let call = SimulatedCall { link, drift: Ppm::from_ppm(ppm), length, settling, stalls: None };
    let result = simulate(call, &mut JitterBufferPlayout::new(DelayPolicy::ADAPTIVE));
    let (first, last) = result.first_and_last_hour();
    let (p50, p99) = (result.latency(0.5), result.latency(0.99));
    let (lost, concealed, late) = (result.lost, result.concealed, result.late);
    println!(
        "{name}, {ppm} ppm: {first:.1} ms, {last:.1} ms; p50 {p50:.0}, p99 {p99:.0}; \
         {lost} lost, {concealed} concealed, {late} late; {:?}",
        result.stats.drift
    );
    assert!((first - last).abs() < 2.0, "{name}, {ppm} ppm: {first} ms, then {last} ms");
    assert!(p99 - p50 < 10.0, "{name}, {ppm} ppm: mostly {p50} ms, but {p99} ms too");
    assert_eq!(concealed, lost + late, "{name}, {ppm} ppm");
    assert_eq!(late, 0, "{name}, {ppm} ppm: underruns");
}

/// Each fault by itself, with a fast and a slow speaker in turn.
#[test]
fn of_one_kind() {
    for ((name, link), ppm) in NETWORKS.into_iter().zip([100, -100].into_iter().cycle()) {
        day(name, link, ppm);
    }
}

#[test]
fn of_all_kinds_at_once() {
    let all = Link { loss: 0.1, detours: 0.05, duplicates: 0.05, ..JITTER };
    day("all of it", all, 100);
    day("all of it", all, -100);
}
