//! A speaker with a drifting clock is played with the same latency after a day, without omissions.

use crate::call_sim::{FixedDelayPlayout, GOOD, JitterBufferPlayout, SimulatedCall, simulate};
use aulos_core::{Ppm, Span};
use aulos_proto::rtp::jitter::DelayPolicy;
use aulos_sim::Link;

fn day(ppm: i32) -> SimulatedCall {
    let jitter = Span::from_millis(5);
    let link = Link { jitter, max_jitter: Span::from_millis(20), loss: 0.001, ..GOOD };
    let (length, settling) = (Span::from_secs(86_400), Span::from_secs(60));
    SimulatedCall { link, drift: Ppm::from_ppm(ppm), length, settling, stalls: None }
}

#[test]
fn off_by_a_hundred_ppm() {
    let fixed = DelayPolicy::Fixed(Span::from_millis(60));
    for (ppm, delay) in [(-100, DelayPolicy::ADAPTIVE), (100, DelayPolicy::ADAPTIVE), (100, fixed)]
    {
        let result = simulate(day(ppm), &mut JitterBufferPlayout::new(delay));
        let (first, last) = result.first_and_last_hour();
        let (p50, p99) = (result.latency(0.5), result.latency(0.99));
        let drift = result.stats.drift;
        println!(
            "{ppm} ppm, {delay:?}: {first:.1} ms, {last:.1} ms; p50 {p50:.0}, p99 {p99:.0}; {drift:?}"
        );
        assert!((first - last).abs() < 2.0, "{ppm} ppm, {delay:?}: {first} ms, then {last} ms");
        assert!(p99 - p50 <= 6.0, "{ppm} ppm, {delay:?}");
        assert_eq!(result.late, 0, "{ppm} ppm, {delay:?}: underruns");
        assert_eq!(result.concealed, result.lost, "{ppm} ppm, {delay:?}");
        let wrong = f64::from(drift.as_ppb()) * 1e-3 - f64::from(ppm);
        assert!(wrong.abs() < 3.0, "{ppm} ppm seem to be {drift:?}");
    }
}

/// Control experiment: without drift compensation, a day is eight seconds off.
#[test]
fn who_does_not_follow_is_eight_seconds_off() {
    let result = simulate(day(100), &mut FixedDelayPlayout::new(Span::from_millis(60)));
    let (first, last) = result.first_and_last_hour();
    assert!(last - first > 8_000.0, "{first} ms, then {last} ms");
    let result = simulate(day(-100), &mut FixedDelayPlayout::new(Span::from_millis(60)));
    assert!(result.late > 4_000_000, "{}", result.late);
}
