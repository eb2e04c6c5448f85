//! Once the buffer has adapted, exactly the lost packets are concealed.

#![allow(clippy::cast_precision_loss, clippy::unwrap_used, reason = "small numbers in a test")]

use std::fmt::Write;

use crate::call_sim::{
    CallResult, FixedDelayPlayout, GOOD, JitterBufferPlayout, SimulatedCall, simulate,
};
use aulos_core::{Ppm, Span};
use aulos_proto::rtp::jitter::DelayPolicy;
use aulos_sim::Link;

/// The networks of the table. Those that are `bounded` have a maximum delay that is not rare: a
/// buffer can play every packet that arrives.
fn networks() -> [(&'static str, bool, SimulatedCall); 10] {
    let ms = Span::from_millis;
    let jitter = |mean, most| Link { jitter: ms(mean), max_jitter: ms(most), ..GOOD };
    let fast =
        |ppm| SimulatedCall { drift: Ppm::from_ppm(ppm), ..SimulatedCall::over(jitter(5, 20)) };
    let all = Link { loss: 0.05, detours: 0.05, duplicates: 0.02, ..jitter(20, 50) };
    [
        ("nothing", true, SimulatedCall::over(GOOD)),
        ("1 % loss", true, SimulatedCall::over(Link { loss: 0.01, ..GOOD })),
        ("10 % loss", true, SimulatedCall::over(Link { loss: 0.1, ..GOOD })),
        ("50 ms of jitter", true, SimulatedCall::over(jitter(50, 50))),
        ("jitter without end", false, SimulatedCall::over(jitter(15, 10_000))),
        ("5 % reordered", true, SimulatedCall::over(Link { detours: 0.05, ..GOOD })),
        ("5 % twice", true, SimulatedCall::over(Link { duplicates: 0.05, ..GOOD })),
        ("+100 ppm", true, fast(100)),
        ("-100 ppm", true, fast(-100)),
        (
            "all of it",
            false,
            SimulatedCall { drift: Ppm::from_ppm(40), ..SimulatedCall::over(all) },
        ),
    ]
}

#[test]
fn concealed_equals_lost() {
    let mut table = String::from(HEAD);
    for (name, bounded, call) in networks() {
        let ours = simulate(call, &mut JitterBufferPlayout::new(DelayPolicy::ADAPTIVE));
        row(&mut table, name, "adaptive", &ours);
        assert_eq!(ours.concealed, ours.lost + ours.late, "{name}");
        if bounded {
            assert_eq!(ours.late, 0, "{name}: underruns after half a minute");
        } else {
            assert!(ours.late as f64 <= 0.006 * ours.latencies.len() as f64, "{name}");
        }
        for latency in [40, 100] {
            let latency = Span::from_millis(latency);
            let naive = simulate(call, &mut FixedDelayPlayout::new(latency));
            let kind = format!("fixed {} ms", latency.as_millis());
            row(&mut table, "", &kind, &naive);
            let worse = naive.concealed > ours.concealed;
            let slower = naive.latency(0.5) > ours.latency(0.5);
            assert!(worse || slower || (naive.late, ours.late) == (0, 0), "{name}: {kind}");
        }
    }
    judge(&table);
}

fn row(table: &mut String, network: &str, buffer: &str, heard: &CallResult) {
    let (p50, p99) = (heard.latency(0.5), heard.latency(0.99));
    let CallResult { lost, concealed, late, .. } = heard;
    let written = writeln!(
        table,
        "{network:<20} {buffer:<13} {p50:>7.0} {p99:>7.0} {lost:>7} {concealed:>9} {late:>6}"
    );
    assert!(written.is_ok());
}

/// Compares the table with the one beside this file; `AULOS_BLESS=1` rewrites it.
#[allow(clippy::disallowed_methods, reason = "the table is written anew by hand")]
fn judge(table: &str) {
    println!("{table}");
    if std::env::var_os("AULOS_BLESS").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/telephone/networks.txt");
        std::fs::write(file, table).unwrap();
    } else {
        assert_eq!(table, include_str!("call_sim/networks.txt"), "AULOS_BLESS=1 writes it anew");
    }
}

/// An hour of packets of 20 ms over a link of 20 ms. Latencies are end-to-end, in milliseconds;
/// lost, concealed and late are packets, after the first half minute.
const HEAD: &str = "network              buffer            p50     p99    lost concealed   late\n";
