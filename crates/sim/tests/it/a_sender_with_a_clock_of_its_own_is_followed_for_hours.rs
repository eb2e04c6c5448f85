//! A live sender with a clock of its own is followed for hours.

use crate::studio::{QUANTUM, Studio};
use aulos_core::{SampleRate, Span};

/// What some hours with a sender were like.
#[derive(Debug)]
struct Report {
    /// The farthest that the fill was from its target, in milliseconds.
    astray: f64,
    /// The farthest that the reported drift was from the real one after half an hour, in ppm.
    wrong: f64,
    /// The most that the sound was stretched or squeezed, in ppm.
    bent: f64,
}

/// So many hours of a sender whose card is off by `ppm`; it is heard at once, or by a reader who looks
/// every ten milliseconds. At a low rate, because nothing here depends on it but the time it takes.
fn follow(hours: u32, ppm: i32, looked_at: bool) -> Report {
    let Ok(rate) = SampleRate::new(2_000) else { unreachable!("a rate") };
    let mut studio = Studio::new(rate, &[ppm], false, 7);
    if looked_at {
        studio.senders[0].look_every(Span::from_millis(10));
    }
    studio.run(Span::from_secs(1));
    studio.ear.forget();
    let mut report = Report { astray: 0.0, wrong: 0.0, bent: 0.0 };
    for quantum in 0..hours * 3_600 * 50 {
        studio.run(QUANTUM);
        let input = studio.status().inputs[0];
        let fill = input.buffered - Span::from_millis(400);
        report.astray = report.astray.max(fill.as_secs_f64().abs() * 1e3);
        if quantum > 1_800 * 50 {
            let wrong = f64::from(input.drift.as_ppb()) * 1e-3 - f64::from(ppm);
            report.wrong = report.wrong.max(wrong.abs());
        }
    }
    report.bent = studio.ear.bent;
    println!("{ppm} ppm, looked at: {looked_at}: {report:.1?}");
    let status = studio.status();
    assert_eq!((status.underruns, status.switches), (0, 1));
    assert_eq!(studio.ear.slips, [], "frames left out or repeated");
    report
}

#[test]
fn off_by_a_hundred_ppm() {
    for ppm in [-100, 100] {
        let report = follow(6, ppm, false);
        assert!(report.astray <= 40.0 && report.wrong < 5.0 && report.bent <= 501.0, "{report:?}");
    }
}

/// The reader's clock beats with the sender's, so that it seems to come and go by ten milliseconds.
#[test]
fn off_by_a_hundred_ppm_through_a_pipe() {
    for ppm in [-100, 100] {
        let report = follow(2, ppm, true);
        assert!(report.astray <= 40.0 && report.wrong < 5.0 && report.bent <= 501.0, "{report:?}");
    }
}

/// The ear itself is good to two ppm over a chunk.
#[test]
fn in_step_it_is_left_as_it_is() {
    for looked_at in [false, true] {
        let report = follow(1, 0, looked_at);
        assert!(report.astray <= 40.0 && report.wrong < 0.001 && report.bent < 2.0, "{report:?}");
    }
}
