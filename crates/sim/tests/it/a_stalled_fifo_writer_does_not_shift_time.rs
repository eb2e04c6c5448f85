//! A stalling writer does not affect the timeline: chunks are contiguous to the nanosecond, and
//! what it has written is played, or another source is.

use crate::station_sim::StationSim;
use aulos_core::{Rng, SampleRate, Span};

/// Some minutes of a real-time writer that stalls every second or so, for at most `longest`, and
/// then writes everything that is overdue. The analyzer checks the timestamps.
fn minutes(count: u64, longest: Span, loops: bool, seed: u64) -> StationSim {
    let mut random = Rng::new(seed);
    let mut sim = StationSim::new(SampleRate::HZ_48000, &[0], loops, !seed);
    sim.run(Span::from_secs(1));
    sim.analyzer.reset();
    while sim.analyzer.frames < 48_000 * 60 * count {
        let stall = crate::station_sim::seconds(random.next_f64() * longest.as_secs_f64());
        sim.senders[0].stall_for(sim.now, stall);
        sim.run(stall + crate::station_sim::seconds(random.exponential(0.5)));
    }
    let status = sim.status();
    println!(
        "up to {longest}, seed {seed}: {} switches, {} underruns, silence {}, bent by {:.0} ppm",
        status.switches,
        status.underruns,
        sim.analyzer.silence(),
        sim.analyzer.max_drift_ppm
    );
    sim
}

#[test]
fn a_stall_shorter_than_the_timeout_plays_to_the_last_frame() {
    for (loops, seed) in [(true, 1), (false, 2)] {
        let mut sim = minutes(3, Span::from_millis(280), loops, seed);
        let status = sim.status();
        assert_eq!((status.active, status.underruns), (Some(0), 0));
        assert_eq!(status.switches, 1, "it came on air and stayed");
        assert_eq!(sim.analyzer.slips, [], "frames left out or repeated");
        assert_eq!(sim.analyzer.frames_by_source[0], sim.analyzer.frames);
        assert!(sim.analyzer.max_drift_ppm < 2.0, "its clock is ours");
    }
}

#[test]
fn a_longer_stall_is_covered_by_a_fallback() {
    for (millis, seed) in [(300, 3), (500, 4), (500, 5)] {
        let mut sim = minutes(3, Span::from_millis(millis), true, seed);
        assert!(sim.status().switches > 2, "a time-out");
        assert_eq!(sim.analyzer.slips, [], "frames left out or repeated");
        assert!(sim.analyzer.silence() <= Span::from_millis(1), "{}", sim.analyzer.silence());
    }
}
