//! What the control ports do.

use crate::host::{Host, linked};
use crate::{bits, programme};

const STEREO: &str = "urn:aulos:normalizer:stereo";

/// A tone of 100 Hz, whose steps are small: a click is a larger one.
fn tone(seconds: f32) -> Vec<f32> {
    let frames = programme(seconds, 1).len();
    let sample =
        |frame: usize| 0.1 * (frame as f32 * 100.0 / 48_000.0 * std::f32::consts::TAU).sin();
    (0..frames).flat_map(|frame| [sample(frame); 2]).collect()
}

fn largest_step(samples: &[f32]) -> f32 {
    let left: Vec<f32> = samples.iter().step_by(2).copied().collect();
    left.windows(2).map(|pair| (pair[1] - pair[0]).abs()).fold(0.0, f32::max)
}

#[test]
fn each_mode_reports_its_latency_at_once_and_after_a_change() {
    let mut host = Host::new(linked(), STEREO);
    for (mode, frames) in [(2.0, 240.0..=300.0), (0.0, 144_000.0..=144_000.0)] {
        *host.control("mode") = mode;
        host.activate();
        host.run_connected(0);
        assert!(frames.contains(host.control("latency")), "{mode}: {}", host.control("latency"));
    }
    *host.control("mode") = 3.0;
    host.play(&programme(0.1, 2), &[64]);
    assert!(*host.control("latency") <= 0.0);
}

#[test]
fn what_is_bypassed_comes_out_as_it_went_in_after_the_delay() {
    let sound = programme(1.0, 2);
    let mut host = Host::new(linked(), STEREO);
    *host.control("enabled") = 0.0;
    let out = host.play(&sound, &[100]);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "240 or so")]
    let delay = 2 * *host.control("latency") as usize;
    assert!(delay > 0);
    assert!(bits(&out[delay..]) == bits(&sound[..sound.len() - delay]));
}

#[test]
fn nothing_clicks_when_it_is_bypassed_or_the_look_ahead_changes() {
    let mut host = Host::new(linked(), STEREO);
    let sound = tone(0.5);
    // 100 Hz at an amplitude of 0.1, by at most the maximum gain.
    let allowed = 0.1 * 100.0 / 48_000.0 * std::f32::consts::TAU * 1.5;
    host.play(&sound, &[480]);
    for (symbol, value) in
        [("enabled", 0.0), ("enabled", 1.0), ("mode", 3.0), ("mode", 1.0), ("mode", 2.0)]
    {
        *host.control(symbol) = value;
        let out = host.play(&sound, &[1, 480, 33]);
        let step = largest_step(&out);
        assert!(step < allowed, "{symbol} {value}: a step of {step}, allowed are {allowed}");
        assert!(out[out.len() - 9_600..].iter().any(|sample| sample.abs() > 0.01), "{symbol}");
    }
}

#[test]
fn the_target_and_the_ceiling_are_kept() {
    let mut host = Host::new(linked(), STEREO);
    for (symbol, value) in [("target", -14.0), ("ceiling", -6.0), ("range", 1.0)] {
        *host.control(symbol) = value;
    }
    host.play(&tone(20.0), &[1_024]);
    let loudness = *host.control("short_term");
    assert!((loudness + 14.0).abs() < 0.6, "{loudness} LUFS");
    let peak = *host.control("true_peak");
    assert!(peak <= -5.9, "{peak} dBTP");
    assert!(*host.control("reduction") <= 0.0 && *host.control("gain") != 0.0);
}

#[test]
fn a_change_of_the_look_ahead_ends_while_another_control_is_automated() {
    let mut host = Host::new(linked(), STEREO);
    let sound = tone(0.2);
    host.play(&sound, &[64]);
    *host.control("mode") = 3.0;
    for (index, block) in sound.chunks(2 * 64).enumerate() {
        *host.control("target") = if index % 2 == 0 { -20.0 } else { -21.0 };
        host.play(block, &[64]);
    }
    assert!(*host.control("latency") <= 0.0);
}

/// All that a host saves are the control ports.
#[test]
fn an_instance_with_the_same_controls_plays_the_same() {
    let sound = programme(1.5, 2);
    let mut first = Host::new(linked(), STEREO);
    let mut second = Host::new(linked(), STEREO);
    for (symbol, value) in [("target", -16.0), ("mode", 3.0), ("max_gain", 9.0), ("fall", 20.0)] {
        *first.control(symbol) = value;
    }
    let once = first.play(&sound, &[256]);
    for port in second.plugin.inputs() {
        *second.control(port.symbol) = *first.control(port.symbol);
    }
    assert!(bits(&second.play(&sound, &[333])) == bits(&once));
    // A used instance starts anew when it is activated again, or reset.
    first.activate();
    assert!(bits(&first.play(&sound, &[64])) == bits(&once));
    *first.control("reset") = 1.0;
    assert!(bits(&first.play(&sound, &[64])) == bits(&once));
    assert!(bits(&first.play(&sound, &[64])) != bits(&once), "a trigger acts once");
}

#[test]
fn dual_mono_counts_twice() {
    let sound: Vec<f32> = tone(20.0).iter().step_by(2).copied().collect();
    let mut loudness = [0.0, 1.0].map(|dual| {
        let mut host = Host::new(linked(), "urn:aulos:normalizer:mono");
        *host.control("dual_mono") = dual;
        *host.control("range") = 1.0;
        let out = host.play(&sound, &[512]);
        out[out.len() - 48_000..].iter().map(|sample| sample * sample).sum::<f32>()
    });
    loudness[1] *= 2.0;
    assert!((loudness[0] / loudness[1] - 1.0).abs() < 0.1, "{loudness:?}");
}
