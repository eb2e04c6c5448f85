//! Quiet passages that are no quieter programme (fades, room tone, pauses), and those that are.

use aulos_core::{Db, Lufs};
use aulos_dsp::normalize::{LookAhead, Settings};

use super::bounds::gains;
use super::material::shaped;
use super::sound::Sound;

const LIVE: [LookAhead; 3] = [LookAhead::Full, LookAhead::Mid, LookAhead::Low];

/// A target so low that the limiter never acts, so that the gain can be computed.
fn quiet() -> Settings {
    Settings { target: Lufs::new(-30.0), ..Settings::default() }
}

/// Programmes of 80 s that are steady after the first 20 s.
fn programmes() -> Vec<(&'static str, Sound)> {
    let speech = Sound::speech().part(0.0, 40.0);
    let music = Sound::music("introzik").part(6.0, 26.0);
    let music = music.clone().then(&music);
    vec![
        ("noise", Sound::noise(48_000, 2, 80.0, |_| -26.0)),
        ("speech", speech.clone().then(&speech)),
        ("music", music.clone().then(&music)),
    ]
}

fn top(gains: &[f64], from: f64, to: f64) -> f64 {
    let part = &gains[(1e3 * from) as usize..(1e3 * to) as usize];
    part.iter().copied().filter(|gain| gain.is_finite()).fold(f64::NEG_INFINITY, f64::max)
}

fn mean(gains: &[f64], from: f64, to: f64) -> f64 {
    let part = gains[(1e3 * from) as usize..(1e3 * to) as usize].iter();
    let part: Vec<f64> = part.copied().filter(|gain| gain.is_finite()).collect();
    part.iter().sum::<f64>() / part.len() as f64
}

#[test]
fn a_fade_out_is_not_raised_and_the_gain_after_it_is_unchanged() {
    for (name, sound) in programmes() {
        let undisturbed = LIVE.map(|mode| gains(&sound, mode, &quiet()));
        for seconds in [3.0, 12.0, 30.0] {
            let end = 30.0 + seconds;
            let inside = move |time: f64| (30.0..end).contains(&time);
            let faded =
                shaped(&sound, |t| if inside(t) { -40.0 * (t - 30.0) / seconds } else { 0.0 });
            for (mode, without) in LIVE.into_iter().zip(&undisturbed) {
                let with = gains(&faded, mode, &quiet());
                let rise = top(&with, 30.0, end) - mean(&with, 29.0, 30.0);
                let back = mean(&with, end, end + 0.5) - mean(without, end, end + 0.5);
                println!("{name}, {seconds} s, {mode:?}: {rise:+.1} dB, afterwards {back:+.1} dB");
                assert!(rise <= 5.0, "{name}, {seconds} s, {mode:?}: rises by {rise} dB");
                // The quiet part within the range was averaged, the longer the more.
                let most = if seconds > 20.0 { 2.5 } else { 1.5 };
                assert!(back <= most, "{name}, {seconds} s, {mode:?}: {back:+} dB afterwards");
            }
        }
    }
}

#[test]
fn a_fade_of_speech_is_no_step_whose_slope_its_words_hide() {
    let speech = Sound::speech().part(0.0, 40.0);
    let speech = speech.clone().then(&speech);
    for (seconds, start) in [(12.0, 36.5), (12.0, 40.0), (14.0, 29.0), (14.0, 64.5)] {
        let end = start + seconds;
        let faded = shaped(&speech, |t| {
            if t < start || t >= end { 0.0 } else { -40.0 * (t - start) / seconds }
        });
        let gains = gains(&faded.part(0.0, end), LookAhead::Full, &quiet());
        let rise = top(&gains, start, end) - mean(&gains, start - 1.0, start);
        println!("{seconds} s from {start} s: {rise:+.1} dB");
        assert!(rise <= 5.0, "{seconds} s from {start} s: rises by {rise} dB");
    }
}

#[test]
fn room_tone_is_not_raised_and_the_gain_after_it_is_unchanged() {
    for (name, sound) in programmes() {
        let level = Sound::noise(48_000, 2, 80.0, |_| -26.0 - 27.0);
        // Two pauses of 8 s.
        let tone = |time: f64| (30.0..38.0).contains(&time) || (50.0..58.0).contains(&time);
        let mut paused = sound.clone();
        let noise = level.samples.chunks(2);
        for (index, (frame, noise)) in paused.samples.chunks_mut(2).zip(noise).enumerate() {
            if tone(index as f64 / 48_000.0) {
                frame.copy_from_slice(noise);
            }
        }
        for mode in LIVE {
            let (with, without) = (gains(&paused, mode, &quiet()), gains(&sound, mode, &quiet()));
            for from in [30.0, 50.0] {
                let rise = top(&with, from, from + 8.0) - mean(&with, from - 1.0, from);
                let after = (from + 8.0, from + 8.5);
                let back = mean(&with, after.0, after.1) - mean(&without, after.0, after.1);
                println!("{name}, {mode:?}: {rise:+.1} dB, afterwards {back:+.1} dB");
                assert!(rise <= 2.0, "{name}, {mode:?}: rises by {rise} dB");
                assert!(back <= 1.5, "{name}, {mode:?}: {back:+} dB afterwards");
            }
        }
    }
}

#[test]
fn a_quieter_programme_is_detected_at_a_step_or_after_twelve_seconds() {
    // Depth of the step, and seconds after which its gain is right with the look-ahead of 3 s.
    for (step, within) in [(8.0, 9.5), (12.0, 3.5), (14.5, 4.0), (20.0, 14.0), (24.0, 15.0)] {
        let level = |time: f64| if time < 30.0 { -20.0 } else { -20.0 - step };
        let sound = Sound::noise(48_000, 2, 60.0, level);
        for (mode, later) in LIVE.into_iter().zip([0.0, 2.7, 3.1]) {
            let gains = gains(&sound, mode, &quiet());
            let (before, after) = (mean(&gains, 28.0, 29.0), 30.0 + within + later);
            let rise = mean(&gains, after, after + 1.0) - before;
            let off = rise - step;
            assert!((-1.0..=1.5).contains(&off), "{step} LU, {mode:?}: {rise:+} dB");
        }
    }
}

#[test]
fn a_fade_in_after_a_programme_is_not_raised() {
    let level = |time: f64| match time {
        ..30.0 => -20.0,
        30.0..32.0 => f64::NEG_INFINITY,
        32.0..44.0 => -20.0 - 40.0 * (44.0 - time) / 12.0,
        _ => -20.0,
    };
    let sound = Sound::noise(48_000, 2, 60.0, level);
    for mode in LIVE {
        let gains = gains(&sound, mode, &quiet());
        let before = mean(&gains, 28.0, 30.0);
        let rise = top(&gains, 32.0, 44.0) - before;
        assert!(rise <= 4.0, "{mode:?}: rises by {rise} dB");
        let back = mean(&gains, 44.0, 44.5) - before;
        assert!(back <= 1.5, "{mode:?}: {back:+} dB afterwards");
    }
}

#[test]
fn after_a_long_pause_the_previous_gain_returns_within_a_second() {
    // Long enough for the room tone to count as a programme.
    let level = |time: f64| if (30.0..55.0).contains(&time) { -46.0 } else { -20.0 };
    let sound = Sound::noise(48_000, 2, 70.0, level);
    let settings = Settings { max_gain: Db::new(30.0), ..quiet() };
    for (mode, seconds) in LIVE.into_iter().zip([0.2, 1.1, 1.5]) {
        let gains = gains(&sound, mode, &settings);
        let before = mean(&gains, 28.0, 29.0);
        assert!(top(&gains, 45.0, 52.0) > before + 10.0, "{mode:?}: never raised");
        let back = mean(&gains, 55.0 + seconds, 56.0 + seconds) - before;
        assert!(back <= 1.5, "{mode:?}: {back:+} dB {seconds} s afterwards");
    }
}
