//! What the normaliser promises, judged by others.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "test signals and helpers of tests"
)]

mod judge;
mod sound;

use aulos_core::Db;
use aulos_dsp::normalize::{Mode, Settings};
use aulos_sim::Programme;
use judge::judge;
use sound::Sound;

#[test]
fn explore() {
    let alternate = |a: &Sound, b: &Sound, s: f64| {
        let mut out = Sound::new(48_000, 2, vec![]);
        for k in 0..4 {
            let (from, to) = (f64::from(k) * s, f64::from(k + 1) * s);
            out = out.then(&a.part(from, to)).then(&b.part(from, to));
        }
        out
    };
    let speech = Sound::speech();
    let music = Sound::music("frozen-mainzik-1p");
    let mut all: Vec<(String, Sound)> =
        Programme::ALL.iter().map(|p| (format!("{p:?}"), Sound::programme(*p))).collect();
    all.push(("alternate".into(), alternate(&speech, &music.clone().gain(-3.0), 10.0)));
    all.push(("alternate 12".into(), alternate(&speech.clone().gain(-15.0), &music, 10.0)));
    all.push(("speech".into(), speech));
    for name in ["frozen-mainzik-1p", "frozen-mainzik-2p", "introzik"] {
        all.push((name.into(), Sound::music(name)));
    }
    all.push(("noise".into(), Sound::noise(48_000, 2, 60.0, |_| -30.0)));
    all.push((
        "orchestra".into(),
        Sound::noise(48_000, 2, 96.0, |t| -25.0 + 6.0 * (t / 24.0 * std::f64::consts::TAU).sin()),
    ));
    all.push((
        "up 12".into(),
        Sound::noise(48_000, 2, 60.0, |t| if t < 30.0 { -32.0 } else { -20.0 }),
    ));
    all.push((
        "down 12".into(),
        Sound::noise(48_000, 2, 60.0, |t| if t < 30.0 { -20.0 } else { -32.0 }),
    ));
    let only = std::env::var("ONLY").unwrap_or_default();
    for (name, sound) in all.into_iter().filter(|(name, _)| name.contains(&only)) {
        let before = judge(&sound);
        println!(
            "{name}: in {:.1} s I {:.2} LRA {:.1} TP {:.2}",
            sound.seconds(),
            before.integrated,
            before.range,
            before.peak
        );
        for mode in [Mode::Full, Mode::Mid, Mode::Low] {
            let settings = Settings { max_gain: Db::new(30.0), ..Settings::default() };
            let (out, statistics) = sound.normalised(mode, &settings);
            assert_eq!(out.samples.len(), sound.samples.len());
            let after = judge(&out);
            println!(
                "   {mode:?} I {:.2} ({:+.2}) LRA {:.1} TP {:.3} (2nd {:.3}) clamped {} ours I {:.2} TP {:.3}",
                after.integrated,
                after.integrated + 23.0,
                after.range,
                after.peak,
                judge::second_peak(&out),
                statistics.clamped,
                statistics.output.integrated.get(),
                statistics.output.true_peak.get()
            );
            if std::env::var("CURVE").is_ok() {
                for (n, s) in after.short_term.iter().enumerate().filter(|(n, _)| n % 5 == 4) {
                    print!("{:.1}:{s:.1} ", (n + 1) as f64 / 10.0);
                }
                println!();
            }
        }
    }
}
