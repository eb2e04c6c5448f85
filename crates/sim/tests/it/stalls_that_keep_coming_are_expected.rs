//! A link that stalls now and then: the first stall is audible, later ones are not.

use crate::call_sim::{GOOD, JitterBufferPlayout, SimulatedCall, simulate};
use aulos_core::Span;
use aulos_proto::rtp::jitter::DelayPolicy;

fn stalls(every: Span, length: Span) -> SimulatedCall {
    let call = SimulatedCall { stalls: Some((every, length)), ..SimulatedCall::over(GOOD) };
    SimulatedCall { length: Span::from_secs(600), settling: Span::from_secs(90), ..call }
}

#[test]
fn rare_and_frequent_stalls_are_expected() {
    for seconds in [2, 8, 20] {
        let call = stalls(Span::from_secs(seconds), Span::from_millis(120));
        let result = simulate(call, &mut JitterBufferPlayout::new(DelayPolicy::ADAPTIVE));
        let (p50, stats) = (result.latency(0.5), result.stats);
        println!("every {seconds} s: {} late, p50 {p50} ms, {stats:?}", result.late);
        assert_eq!(result.late, 0, "every {seconds} s");
        assert!(p50 < 20.0 + 120.0 + 30.0, "every {seconds} s: {p50} ms");
    }
}

/// The delay is not adapted to an event that occurs once in two minutes.
#[test]
fn what_is_too_rare_to_be_expected_costs_no_latency() {
    let call = stalls(Span::from_secs(120), Span::from_millis(120));
    let result = simulate(call, &mut JitterBufferPlayout::new(DelayPolicy::ADAPTIVE));
    let p50 = result.latency(0.5);
    println!("{} late, p50 {p50} ms", result.late);
    assert!(p50 < 60.0, "{p50} ms");
    // For each stall, the packets later than the delay.
    assert!(result.late > 0 && result.late <= 6 * 4, "{}", result.late);
}

/// Three seconds exceed the maximum delay: what was sent during the stall is lost, and what follows
/// is unaffected.
#[test]
fn a_long_stall_loses_what_was_sent_during_it() {
    let call = stalls(Span::from_secs(120), Span::from_secs(3));
    let result = simulate(call, &mut JitterBufferPlayout::new(DelayPolicy::ADAPTIVE));
    println!(
        "{} late, p50 {} ms, p99 {} ms",
        result.late,
        result.latency(0.5),
        result.latency(0.99)
    );
    assert_eq!(result.concealed, result.late + result.lost);
    // Four of them, of 150 packets each.
    assert!((560..=600).contains(&result.late), "{}", result.late);
    assert!(result.latency(0.99) < 20.0 + 200.0 + 10.0, "{} ms", result.latency(0.99));
}
