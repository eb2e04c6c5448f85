//! Movement of the gain. Where nothing is limited, the output is the input times the gain, so the
//! gain of every frame can be computed from the two.

use aulos_core::{Db, Lufs};
use aulos_dsp::normalize::{LookAhead, Settings};

use super::sound::Sound;

/// The gain in dB of each millisecond, computed at its greatest sample.
pub(crate) fn gains(sound: &Sound, mode: LookAhead, settings: &Settings) -> Vec<f64> {
    let (out, _) = sound.normalized(mode, settings);
    let each = sound.channels * sound.hz as usize / 1_000;
    let pairs = sound.samples.chunks(each).zip(out.samples.chunks(each));
    pairs
        .map(|(before, after)| {
            let at = (0..before.len()).max_by(|a, b| before[*a].abs().total_cmp(&before[*b].abs()));
            let at = at.unwrap();
            20.0 * f64::from(after[at] / before[at]).log10()
        })
        .collect()
}

/// A target so low that the limiter never acts.
fn quiet() -> Settings {
    Settings { target: Lufs::new(-38.0), ..Settings::default() }
}

/// Where [`steps`] begins or becomes louder, in seconds.
const LOUDER: [f64; 4] = [0.0, 15.0, 45.0, 60.0];

fn steps() -> Sound {
    let level = |time: f64| [-40.0, -20.0, -47.0, -30.0, -22.0][(time / 15.0) as usize];
    Sound::noise(48_000, 2, 74.9, level)
}

#[test]
fn the_gain_respects_its_rates_and_its_range() {
    for mode in [LookAhead::Full, LookAhead::Mid, LookAhead::Low] {
        for (rise, fall) in [(3.0, 9.0), (1.0, 2.0), (10.0, 40.0)] {
            let settings = Settings { max_rise: Db::new(rise), max_fall: Db::new(fall), ..quiet() };
            let gains = gains(&steps(), mode, &settings);
            for (index, pair) in gains.windows(101).enumerate() {
                let change = 10.0 * (pair[100] - pair[0]);
                assert!(change <= 2.04 * rise + 0.1, "{mode:?} {index}: {change} dB/s");
                // A louder passage that is certain is followed within less than a second: in `full`
                // when it begins, otherwise once it has lasted for a second.
                let since_louder = |start: f64| index as f64 / 1e3 - start;
                let is_certain =
                    LOUDER.iter().any(|start| (-0.1..2.5).contains(&since_louder(*start)));
                let limit = if is_certain { fall.max(100.0) } else { fall };
                assert!(change >= -1.02 * limit - 0.1, "{mode:?} {index}: {change} dB/s");
            }
            // There is no step within a millisecond either.
            assert!(gains.windows(2).all(|pair| (pair[1] - pair[0]).abs() < 0.2), "{mode:?}");
            let (min, max) = (settings.min_gain.get(), settings.max_gain.get());
            assert!(gains.iter().all(|gain| (min - 0.01..max + 0.01).contains(gain)));
        }
    }
}

#[test]
fn long_after_a_change_of_level_the_gain_rises_at_the_usual_rate() {
    // After a passage that is quieter by less than the range, no section is detected and the usual
    // rate applies.
    let sound = Sound::noise(48_000, 2, 60.0, |time| if time < 30.0 { -20.0 } else { -25.5 });
    let gains = gains(&sound, LookAhead::Full, &Settings::default());
    for (index, pair) in gains[20_000..].windows(101).enumerate() {
        let change = 10.0 * (pair[100] - pair[0]);
        assert!(change <= 3.1, "{index}: {change} dB/s");
    }
}

#[test]
fn silence_holds_the_gain_and_noise_in_a_pause_is_not_raised() {
    for (floor, seconds, most) in [(-70.0, 30.0, 1.0), (-59.0, 30.0, 1.0), (-48.0, 4.5, 0.5)] {
        // White noise reads 3 LU above its peak in dB, in stereo; the programme is at -20.
        let inside = move |time: f64| (20.0..20.0 + seconds).contains(&time);
        let level = move |time: f64| if inside(time) { floor } else { -20.0 };
        let sound = Sound::noise(48_000, 2, 60.0, level);
        for mode in [LookAhead::Full, LookAhead::Mid, LookAhead::Low] {
            let gains = gains(&sound, mode, &Settings::default());
            let before = gains[18_000];
            let pause = &gains[20_000..20_000 + (seconds * 1e3) as usize];
            let top = pause.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            assert!(top - before <= most, "{mode:?}, {floor}: from {before} to {top} dB");
        }
    }
}

#[test]
fn a_gap_does_not_change_the_gain() {
    let sound = Sound::noise(48_000, 2, 50.0, |time| {
        if (20.0..30.0).contains(&time) { f64::NEG_INFINITY } else { -33.0 }
    });
    for mode in [LookAhead::Full, LookAhead::Mid, LookAhead::Low] {
        let gains = gains(&sound, mode, &Settings::default());
        let (before, after) = (gains[19_990], gains[30_005]);
        assert!((after - before).abs() < 0.3, "{mode:?}: {before} and {after} dB");
    }
}

#[test]
fn both_channels_get_the_same_gain() {
    let mut sound = Sound::noise(48_000, 2, 40.0, |time| if time < 20.0 { -40.0 } else { -12.0 });
    sound.samples.chunks_mut(2).for_each(|frame| frame[1] = 0.5 * frame[0]);
    let (out, _) = sound.normalized(LookAhead::Full, &Settings::default());
    assert!(out.samples.chunks(2).all(|frame| (frame[0] - 2.0 * frame[1]).abs() < 1e-6));
}
