//! A live sender with its own clock is followed for hours.

use crate::station_sim::{QUANTUM, StationSim};
use aulos_core::{SampleRate, Span};

/// Measurements over some hours with a sender.
#[derive(Debug)]
struct Report {
    /// Maximum deviation of the fill from its target, in milliseconds.
    max_fill_error_ms: f64,
    /// Maximum error of the reported drift after half an hour, in ppm.
    wrong: f64,
    /// Maximum time stretch of the audio, in ppm.
    max_drift_ppm: f64,
}

/// Runs for `hours` a sender whose card is off by `ppm`; its audio is read at once, or by a reader
/// that polls every ten milliseconds. At a low rate, because only the test's duration depends on
/// it.
fn follow(hours: u32, ppm: i32, looked_at: bool) -> Report {
    let Ok(rate) = SampleRate::new(2_000) else { unreachable!("a rate") };
    let mut sim = StationSim::new(rate, &[ppm], false, 7);
    if looked_at {
        sim.senders[0].poll_every(Span::from_millis(10));
    }
    sim.run(Span::from_secs(1));
    sim.analyzer.reset();
    let mut report = Report { max_fill_error_ms: 0.0, wrong: 0.0, max_drift_ppm: 0.0 };
    for quantum in 0..hours * 3_600 * 50 {
        sim.run(QUANTUM);
        let input = sim.status().inputs[0];
        let fill = input.buffered - Span::from_millis(400);
        report.max_fill_error_ms = report.max_fill_error_ms.max(fill.as_secs_f64().abs() * 1e3);
        if quantum > 1_800 * 50 {
            let wrong = f64::from(input.drift.as_ppb()) * 1e-3 - f64::from(ppm);
            report.wrong = report.wrong.max(wrong.abs());
        }
    }
    report.max_drift_ppm = sim.analyzer.max_drift_ppm;
    println!("{ppm} ppm, looked at: {looked_at}: {report:.1?}");
    let status = sim.status();
    assert_eq!((status.underruns, status.switches), (0, 1));
    assert_eq!(sim.analyzer.slips, [], "frames left out or repeated");
    report
}

#[test]
fn off_by_a_hundred_ppm() {
    for ppm in [-100, 100] {
        let report = follow(6, ppm, false);
        assert!(
            report.max_fill_error_ms <= 40.0 && report.wrong < 5.0 && report.max_drift_ppm <= 501.0,
            "{report:?}"
        );
    }
}

/// The reader's interval beats with the sender's, so that its arrival times seem to vary by ten
/// milliseconds.
#[test]
fn off_by_a_hundred_ppm_through_a_pipe() {
    for ppm in [-100, 100] {
        let report = follow(2, ppm, true);
        assert!(
            report.max_fill_error_ms <= 40.0 && report.wrong < 5.0 && report.max_drift_ppm <= 501.0,
            "{report:?}"
        );
    }
}

/// The analyzer's accuracy is two ppm over a chunk.
#[test]
fn in_step_it_is_left_as_it_is() {
    for looked_at in [false, true] {
        let report = follow(1, 0, looked_at);
        assert!(
            report.max_fill_error_ms <= 40.0 && report.wrong < 0.001 && report.max_drift_ppm < 2.0,
            "{report:?}"
        );
    }
}

/// A simulation at a low rate with senders with these drifts, a second after they are on air.
fn sim(senders: &[i32]) -> StationSim {
    let Ok(rate) = SampleRate::new(2_000) else { unreachable!("a rate") };
    let mut sim = StationSim::new(rate, senders, false, 7);
    sim.run(Span::from_secs(2));
    sim.analyzer.reset();
    sim
}

/// Runs `count` seconds of the first sender; `wrong` is the drift error at the end.
fn seconds(sim: &mut StationSim, count: u32, ppm: i32) -> Report {
    sim.analyzer.max_drift_ppm = 0.0;
    let mut report = Report { max_fill_error_ms: 0.0, wrong: 0.0, max_drift_ppm: 0.0 };
    for _ in 0..count * 50 {
        sim.run(QUANTUM);
        let fill = sim.status().inputs[0].buffered - Span::from_millis(400);
        report.max_fill_error_ms = report.max_fill_error_ms.max(fill.as_secs_f64().abs() * 1e3);
    }
    let drift = sim.status().inputs[0].drift;
    report.wrong = (f64::from(drift.as_ppb()) * 1e-3 - f64::from(ppm)).abs();
    report.max_drift_ppm = sim.analyzer.max_drift_ppm;
    println!("{ppm} ppm, {count} s: {report:.1?}");
    report
}

#[test]
fn off_by_seven_hundred_and_by_two_thousand_ppm() {
    for ppm in [700, -700, 2_000, -2_000] {
        let mut sim = sim(&[ppm]);
        let first = seconds(&mut sim, 30, ppm);
        assert!(first.wrong <= 35.0, "known within half a minute: {first:?}");
        let rest = seconds(&mut sim, 1_200, ppm);
        assert!(
            first.max_fill_error_ms <= 60.0 && rest.max_fill_error_ms <= 60.0,
            "{first:?} {rest:?}"
        );
        // At this rate the analyzer's accuracy is ten ppm.
        assert!(
            rest.wrong <= 2.0 && rest.max_drift_ppm <= f64::from(ppm.abs()) + 410.0,
            "{rest:?}"
        );
        let end = seconds(&mut sim, 60, ppm);
        assert!(end.max_fill_error_ms <= 22.0, "at its target: {end:?}");
        let status = sim.status();
        assert_eq!((status.underruns, status.switches), (0, 1));
        assert_eq!(sim.analyzer.slips, [], "frames left out or repeated");
    }
}

#[test]
fn held_up_for_a_fifth_of_a_second_it_is_neither_hurried_nor_slowed() {
    for ppm in [0, 700] {
        let mut sim = sim(&[ppm]);
        seconds(&mut sim, 600, ppm);
        for _ in 0..10 {
            sim.senders[0].stall_for(sim.now, Span::from_millis(200));
            // It waits for late data only.
            sim.run(Span::from_secs(1));
            let report = seconds(&mut sim, 120, ppm);
            assert!(report.max_fill_error_ms <= 40.0 && report.wrong <= 2.0, "{report:?}");
            assert!(report.max_drift_ppm <= f64::from(ppm) + 30.0, "{report:?}");
        }
        let status = sim.status();
        assert_eq!((status.underruns, status.switches), (0, 1));
        assert_eq!(sim.analyzer.slips, [], "frames left out or repeated");
    }
}

#[test]
fn what_it_sent_late_is_played_and_its_delay_drained_to_a_known_end() {
    let mut sim = sim(&[0]);
    seconds(&mut sim, 60, 0);
    sim.senders[0].stall_for(sim.now, Span::from_secs(2));
    sim.run(Span::from_secs(5));
    assert_eq!(sim.status().active, Some(0));
    sim.analyzer.reset();
    // 1.6 s were silence; at 400 ppm the delay is drained in 4,000 s.
    let draining = seconds(&mut sim, 3_900, 0);
    assert!((390.0..=410.0).contains(&draining.max_drift_ppm), "{draining:?}");
    seconds(&mut sim, 500, 0);
    let settled = seconds(&mut sim, 600, 0);
    assert!(settled.max_fill_error_ms <= 40.0 && settled.max_drift_ppm <= 2.0, "{settled:?}");
    assert_eq!((sim.status().underruns, sim.status().switches), (1, 3));
    assert_eq!(sim.analyzer.slips, [], "frames left out or repeated");
}

#[test]
fn its_clock_is_known_when_it_is_back() {
    let mut sim = sim(&[700, -300]);
    seconds(&mut sim, 600, 700);
    // Once its data stops and once it closes the connection; the other one is on air meanwhile.
    for closes in [false, true] {
        match closes {
            false => sim.senders[0].stop_for(sim.now, Span::from_secs(60)),
            true => sim.senders[0].end_for(sim.now, Span::from_secs(60)),
        }
        sim.run(Span::from_secs(50));
        assert_eq!(sim.status().active, Some(1));
        let other = f64::from(sim.status().inputs[1].drift.as_ppb()) * 1e-3;
        assert!((other + 300.0).abs() <= 5.0, "{other} ppm");
        sim.run(Span::from_secs(12));
        assert_eq!(sim.status().active, Some(0));
        let back = seconds(&mut sim, 5, 700);
        assert!(back.wrong <= 2.0 && back.max_fill_error_ms <= 40.0, "{back:?}");
        let later = seconds(&mut sim, 300, 700);
        assert!(later.wrong <= 2.0 && later.max_fill_error_ms <= 40.0, "{later:?}");
    }
    assert_eq!(sim.analyzer.slips, [], "frames left out or repeated");
}
