//! A station with an RTP source in virtual time: a bad network, clock drift, foreign packets, and a
//! failing sender.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a test signal is made of numbers"
)]

mod codec_panics;
mod delay;
mod fixture;
mod repair;
mod speech;

use aulos_core::{Instant, Span};
use aulos_engine::input::InputConfig;
use aulos_session::rtp::PlayoutDelay;
use aulos_sim::Link;
use fixture::{FRAMES, StationFixture, hum};

const GOOD: Link = Link { delay: Span::from_millis(1), jitter: Span::ZERO, ..Link::CABLE };

const BAD: Link = Link {
    delay: Span::from_millis(3),
    jitter: Span::from_millis(12),
    max_jitter: Span::from_millis(50),
    detours: 0.05,
    duplicates: 0.01,
    ..Link::CABLE
};

#[derive(Debug)]
struct Report {
    /// Latency in milliseconds: minimum, maximum, and the means of the second and the last quarter.
    least: f64,
    most: f64,
    early: f64,
    last: f64,
    /// The greatest error of the reported drift in the last quarter, in ppm.
    wrong: f64,
    lost: u64,
    late: u64,
    concealed: u64,
}

/// Runs for `hours` with a sender whose clock is off by `ppm`.
fn follow(hours: u32, ppm: i32, link: Link) -> Report {
    let mut studio = StationFixture::new(link, ppm, false);
    studio.run(Span::from_secs(2));
    let (mut least, mut most, mut wrong) = (f64::MAX, 0.0_f64, 0.0_f64);
    let quarter = hours * 900 * 50;
    let mut means = [0.0; 4];
    for mean in &mut means {
        for _ in 0..quarter {
            studio.quantum();
            let latency = studio.latency();
            (least, most) = (least.min(latency), most.max(latency));
            *mean += latency / f64::from(quarter);
        }
        let drift = f64::from(studio.status().inputs[0].drift.as_ppb()) * 1e-3;
        wrong = (drift - f64::from(ppm)).abs();
    }
    let counts = studio.intake.state().counts;
    let (lost, late, concealed) = (counts.lost, counts.late, counts.concealed);
    let [_, early, _, last] = means;
    let report = Report { least, most, early, last, wrong, lost, late, concealed };
    println!("{ppm} ppm, loss {}: {report:.1?}", link.loss);
    let status = studio.status();
    assert_eq!((status.underruns, status.switches, status.stalls), (0, 1, 0));
    assert_eq!((counts.overflown, counts.no_room, counts.gaps, counts.left_out), (0, 0, 0, 0));
    // Lost and late packets are concealed, frame by frame.
    assert_eq!(report.concealed, (report.lost + report.late) * FRAMES);
    report
}

/// The latency varies by one packet of 20 ms.
#[test]
fn hours_on_a_lossy_path_keep_the_latency_and_losses_are_concealed() {
    for (ppm, loss) in [(100, 0.01), (-100, 0.1)] {
        let report = follow(2, ppm, Link { loss, ..BAD });
        let sent = 2.0 * 3_600.0 * 50.0;
        let part = report.lost as f64 / sent;
        assert!((part / loss - 1.0).abs() < 0.1, "{part}");
        assert!((report.late as f64) < sent * 0.002, "{report:?}");
        assert!(report.most - report.least < 100.0, "{report:?}");
        assert!((report.last - report.early).abs() < 5.0 && report.most < 500.0, "{report:?}");
        assert!(report.wrong < 10.0, "{report:?}");
    }
}

#[test]
fn late_duplicate_and_reordered_packets_play_in_order() {
    let mut studio = StationFixture::new(BAD, 0, false);
    studio.run(Span::from_secs(60));
    let counts = studio.intake.state().counts;
    assert!(counts.reordered > 50 && counts.duplicates > 10, "{counts:?}");
    assert_eq!((counts.lost, counts.late, counts.concealed), (0, 0, 0));
    let heard = studio.programme();
    assert!(heard.len() as u64 > 58 * 8_000);
    assert!(heard == hum(heard.len()), "the hum is not what was sent");
}

#[test]
fn packets_of_other_senders_are_counted_and_dropped() {
    let mut studio = StationFixture::new(GOOD, 0, false);
    studio.run(Span::from_secs(2));
    let stranger = "192.0.2.66:5004".parse().unwrap();
    for number in 0..500_u16 {
        let now = studio.now;
        let intake = &mut studio.intake;
        // Another sender, a scan, RTP of another version, and a forged BYE.
        intake.handle_packet(now, stranger, &fixture::packet(0x6666_6666, number, 0));
        intake.handle_packet(now, stranger, b"");
        intake.handle_packet(now, stranger, b"GET / HTTP/1.0\r\n\r\n");
        intake.handle_packet(now, stranger, &[0x40; 172]);
        intake.handle_packet(now, stranger, &fixture::bye(fixture::SSRC));
        let mut other_type = fixture::packet(fixture::SSRC, number, 0);
        other_type[1] = 8;
        intake.handle_packet(now, stranger, &other_type);
        // A sender that has guessed the SSRC.
        intake.handle_packet(now, stranger, &fixture::packet(fixture::SSRC, number, 0));
        studio.quantum();
    }
    let counts = studio.intake.state().counts;
    assert_eq!((counts.other_senders, counts.refused), (1_000, 1_500), "{counts:?}");
    assert_eq!((counts.other_types, counts.other_rtcp, counts.forged_byes), (500, 500, 0));
    assert_eq!((counts.lost, counts.changes, studio.status().switches), (0, 0, 1));
    let heard = studio.programme();
    assert!(heard == hum(heard.len()), "a stranger was heard");
}

#[test]
fn a_sender_of_another_payload_type_is_named_until_the_right_one_comes() {
    let mut studio = StationFixture::new(GOOD, 0, false);
    studio.cut(true);
    studio.run(Span::from_secs(1));
    let unexpected = |studio: &StationFixture| {
        studio.intake.state().unexpected_type.map(|unexpected| unexpected.to_string())
    };
    assert_eq!(unexpected(&studio), None);
    let mut other_type = fixture::packet(7, 1, 0);
    other_type[1] = 14;
    studio.intake.handle_packet(studio.now, "192.0.2.66:5004".parse().unwrap(), &other_type);
    let told = Some("payload type 14 arrives, 0 is expected".to_owned());
    assert_eq!(unexpected(&studio), told);
    studio.run(Span::from_secs(1));
    assert_eq!(unexpected(&studio), told);
    studio.cut(false);
    studio.run(Span::from_secs(1));
    assert_eq!(unexpected(&studio), None);
}

#[test]
fn a_sender_that_restarts_with_another_ssrc_is_followed() {
    let mut studio = StationFixture::new(GOOD, 0, false);
    studio.run(Span::from_secs(5));
    studio.sender.silent_for(Span::from_millis(280));
    studio.sender.ssrc ^= 0xffff;
    studio.run(Span::from_secs(5));
    let state = studio.intake.state();
    assert_eq!((state.counts.changes, state.ssrc), (1, Some(studio.sender.ssrc)));
    // The first packet revealed another sender, and was played as soon as the next one came.
    assert_eq!(state.counts.other_senders, 0);
    let status = studio.status();
    assert_eq!((status.underruns, status.switches), (0, 1));
}

#[test]
fn a_sender_with_another_ssrc_sequence_and_time_is_heard_without_a_hole() {
    let delay = PlayoutDelay { min: Span::from_millis(20), max: Span::from_millis(200) };
    for (link, delay) in [(GOOD, None), (BAD, None), (GOOD, Some(delay))] {
        let mut studio = StationFixture::with(link, 0, true, delay, InputConfig::default());
        studio.run(Span::from_secs(5));
        for change in 1..=5 {
            studio.sender.ssrc += change;
            // An even number of packets later, the hum has the same phase.
            studio.sender.jump(20_000 + 2 * u64::from(change));
            studio.run(Span::from_secs(3));
        }
        let counts = studio.intake.state().counts;
        assert_eq!((counts.changes, counts.other_senders), (5, 0), "{counts:?}");
        let status = studio.status();
        let failures = status.inputs[0].failures;
        assert_eq!((status.active, failures.late, failures.error), (Some(0), 0, 0));
        let quiet = |frames: &&[f32]| frames.iter().all(|sample| sample.abs() < 0.05);
        let windows: Vec<&[f32]> = studio.programme().chunks(40).collect();
        let holes = windows.split(|window| !quiet(window)).map(<[_]>::len);
        // Five milliseconds a window.
        assert!(holes.max().unwrap_or(0) * 5 <= 60, "{delay:?}");
    }
}

#[test]
fn a_failed_sender_is_replaced_and_accepted_again() {
    for says_bye in [false, true] {
        let mut studio = StationFixture::new(GOOD, 0, true);
        studio.run(Span::from_secs(10));
        assert_eq!(studio.status().active, Some(0));
        let silent = studio.status().silent_frames;
        if says_bye {
            let (now, from) = (studio.now, fixture::SENDER.parse().unwrap());
            studio.intake.handle_packet(now, from, &fixture::bye(fixture::SSRC));
        }
        studio.sender.silent_for(Span::from_secs(20));
        studio.run(Span::from_secs(2));
        assert_eq!(studio.status().active, Some(1), "bye: {says_bye}");
        studio.run(Span::from_secs(30));
        assert_eq!(studio.status().active, Some(0));
        let status = studio.status();
        // Nothing was silent, and media time kept pace.
        assert_eq!((status.silent_frames, status.underruns, status.stalls), (silent, 0, 0));
        let passed = studio.now - status.started;
        assert!((status.position.0 as f64 / 8_000.0 - passed.as_secs_f64()).abs() < 0.05);
    }
}

#[test]
fn a_bye_followed_by_packets_is_ignored() {
    let mut studio = StationFixture::new(GOOD, 0, true);
    studio.run(Span::from_secs(10));
    let from = fixture::SENDER.parse().unwrap();
    for _ in 0..20 {
        let now = studio.now;
        studio.intake.handle_packet(now, from, &fixture::bye(fixture::SSRC));
        studio.run(Span::from_millis(500));
    }
    assert_eq!(studio.intake.state().counts.forged_byes, 20);
    assert_eq!((studio.status().active, studio.status().switches), (Some(0), 1));
}

/// A network outage of seconds is not concealed: the station has switched away meanwhile.
#[test]
fn a_long_gap_is_not_concealed() {
    let mut studio = StationFixture::new(GOOD, 0, true);
    studio.run(Span::from_secs(10));
    studio.cut(true);
    studio.run(Span::from_secs(3));
    assert_eq!(studio.status().active, Some(1));
    studio.cut(false);
    studio.run(Span::from_secs(20));
    let counts = studio.intake.state().counts;
    assert_eq!((counts.gaps, counts.concealed), (1, 0), "{counts:?}");
    assert_eq!((studio.status().active, studio.status().underruns), (Some(0), 0));
    assert!(studio.now > Instant::ZERO);
}
