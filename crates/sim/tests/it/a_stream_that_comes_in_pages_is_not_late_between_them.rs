//! An encoded stream arrives in pages, some of them late: playback is not affected, nothing is
//! omitted, and another source takes over only when its audio is used up.

use crate::station_sim::StationSim;
use aulos_core::{Rng, SampleRate, Span};
use aulos_engine::input::InputConfig;
use aulos_engine::source::Pacing;
use aulos_engine::switch::SwitchConfig;

/// A sender that delivers a page at a time, before a recording as fallback.
fn sim(page: Span, ppm: i32, seed: u64) -> StationSim {
    let input = InputConfig { buffer: Span::from_secs(2), ..InputConfig::default() };
    let wishes = (SwitchConfig::default(), input, Pacing::Streamed);
    let mut sim = StationSim::with_config(SampleRate::HZ_48000, &[ppm], true, seed, wishes);
    sim.senders[0].poll_every(page);
    // The recording starts after a second.
    sim.run(Span::from_secs(6));
    assert_eq!(sim.status().active, Some(0));
    sim.analyzer.reset();
    sim
}

const SECOND: Span = Span::from_secs(1);
const HALF: Span = Span::from_millis(500);

#[test]
fn pages_of_a_second_one_after_the_other() {
    let mut sim = sim(SECOND, 50, 1);
    let before = sim.status();
    sim.run(Span::from_secs(600));
    let after = sim.status();
    assert_eq!((after.active, after.switches), (Some(0), before.switches));
    assert_eq!((after.underruns, after.inputs[0].failures.late), (before.underruns, 0));
    assert_eq!(sim.analyzer.slips, [], "frames left out or repeated");
    assert_eq!(sim.analyzer.frames_by_source[0], sim.analyzer.frames);
}

#[test]
fn pages_of_half_a_second_that_are_late_by_up_to_a_second() {
    for (ppm, seed) in [(0, 1), (100, 2), (-100, 3)] {
        let mut sim = sim(HALF, ppm, seed);
        let before = sim.status();
        let mut random = Rng::new(seed);
        for _ in 0..250 {
            let stall = crate::station_sim::seconds(0.75 * random.next_f64());
            sim.senders[0].stall_for(sim.now, stall);
            sim.run(stall + crate::station_sim::seconds(1.0 + random.exponential(1.0)));
        }
        let after = sim.status();
        assert_eq!((after.active, after.switches), (Some(0), before.switches), "{ppm} ppm");
        assert_eq!((after.underruns, after.inputs[0].failures.late), (before.underruns, 0));
        assert_eq!(sim.analyzer.slips, [], "frames left out or repeated");
        assert!(sim.analyzer.silence() <= Span::from_millis(1), "{}", sim.analyzer.silence());
    }
}

#[test]
fn a_pause_shorter_than_the_buffer_has_no_effect() {
    let mut sim = sim(HALF, 0, 4);
    let before = sim.status();
    for _ in 0..20 {
        sim.senders[0].stall_for(sim.now, Span::from_millis(900));
        sim.run(Span::from_secs(7));
    }
    assert_eq!(sim.status().switches, before.switches);
    assert_eq!(sim.analyzer.slips, []);
}

#[test]
fn a_source_that_ends_is_replaced_without_a_gap() {
    for seed in 5..25 {
        let mut sim = sim(SECOND, 0, seed);
        let mut random = Rng::new(seed);
        sim.run(crate::station_sim::seconds(3.0 * random.next_f64()));
        sim.senders[0].stop_for(sim.now, Span::from_secs(600));
        sim.run(Span::from_secs(5));
        let after = sim.status();
        assert_eq!((after.active, after.inputs[0].failures.late), (Some(1), 1));
        assert_eq!(sim.analyzer.slips, [], "frames left out or repeated");
        assert!(sim.analyzer.silence() <= Span::from_millis(1), "{}", sim.analyzer.silence());
    }
}

#[test]
fn a_source_slower_than_real_time_is_replaced_without_a_gap() {
    for seed in 40..60 {
        let mut sim = sim(Span::from_millis(20), 0, seed);
        let mut random = Rng::new(seed);
        while sim.status().active == Some(0) {
            sim.senders[0].stop_for(sim.now, crate::station_sim::seconds(0.1 + random.next_f64()));
            sim.run(crate::station_sim::seconds(0.5 + 1.1 * random.next_f64()));
        }
        let after = sim.status();
        assert_eq!((after.active, after.inputs[0].failures.late), (Some(1), 1), "{seed}");
        assert_eq!(sim.analyzer.slips, [], "frames left out or repeated");
        assert!(sim.analyzer.silence() <= Span::from_millis(1), "{}", sim.analyzer.silence());
    }
}

#[test]
fn a_silent_input_off_air_is_not_chosen_for_its_remaining_buffer() {
    let input = InputConfig { buffer: Span::from_secs(2), ..InputConfig::default() };
    let wishes = (SwitchConfig::default(), input, Pacing::Streamed);
    let mut sim = StationSim::with_config(SampleRate::HZ_48000, &[0, 0], true, 30, wishes);
    sim.run(Span::from_secs(6));
    sim.senders[1].stop_for(sim.now, Span::from_secs(600));
    sim.run(Span::from_secs(10));
    sim.senders[0].stop_for(sim.now, Span::from_secs(600));
    sim.run(Span::from_secs(5));
    assert_eq!((sim.status().active, sim.analyzer.frames_by_source[1]), (Some(2), 0));
}
