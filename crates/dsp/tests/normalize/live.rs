//! Latency, length, and what changes while it runs.

use aulos_core::{ChannelLayout, Db, Lufs, SampleRate};
use aulos_dsp::normalize::{CannotNormalise, Memory, Mode, Normaliser, Settings};

use crate::judge::judge;
use crate::sound::Sound;

const MODES: [Mode; 4] = [Mode::Full, Mode::Mid, Mode::Low, Mode::GainOnly];

/// Gain one, so that sound can be recognised.
fn transparent() -> Settings {
    Settings { min_gain: Db::ZERO, max_gain: Db::ZERO, ..Settings::default() }
}

#[test]
fn the_latency_is_what_is_said_to_the_frame() {
    for hz in [8_000, 11_025, 44_100, 48_000, 96_000] {
        for (mode, ms) in MODES.into_iter().zip([3_000, 400, 5, 0]) {
            let sound = Sound::noise(hz, 2, 7.0, |_| -20.0);
            let mut normaliser = sound.normaliser(mode, &transparent());
            let latency = normaliser.latency().as_usize();
            let usual = hz as usize * ms / 1_000;
            // Hops of 100 ms are whole frames; at low rates the limiter has 95 at least.
            let usual = if mode == Mode::Low { usual.max(95) } else { usual };
            assert!(latency.abs_diff(usual) <= 15, "{hz} {mode:?}: {latency}");
            assert!(hz == 11_025 || latency == usual, "{hz} {mode:?}: {latency}");
            let mut out = sound.samples.clone();
            out.chunks_mut(2 * 441).for_each(|block| normaliser.process(block));
            assert!(out[..2 * latency].iter().all(|x| *x == 0.0));
            assert_eq!(out[2 * latency..], sound.samples[..out.len() - 2 * latency]);
        }
    }
}

#[test]
fn as_many_frames_come_out_as_went_in_whatever_the_length() {
    for mode in MODES {
        for frames in [0, 1, 480, 4_800, 139_200, 144_000, 148_800] {
            let seconds = f64::from(frames) / 48_000.0 + 1e-9;
            let sound = Sound::noise(48_000, 2, seconds, |_| -20.0);
            assert_eq!(sound.frames(), frames as usize);
            let mut normaliser = sound.normaliser(mode, &transparent());
            for _ in 0..2 {
                let (out, statistics) = sound.through(&mut normaliser, 960);
                assert_eq!(out.samples, sound.samples, "{mode:?} {frames}");
                assert_eq!(statistics.clamped, 0);
            }
        }
    }
}

#[test]
fn the_size_of_calls_makes_no_difference() {
    let step = |time| if time < 5.0 { -35.0 } else { -3.0 };
    let sound = Sound::noise(48_000, 2, 10.0, step);
    for mode in MODES {
        let settings = Settings { target: Lufs::new(-8.0), ..Settings::default() };
        let whole = sound.through(&mut sound.normaliser(mode, &settings), 48_000).0;
        for calls in [37, 960, 7_001] {
            let parts = sound.through(&mut sound.normaliser(mode, &settings), calls).0;
            for (a, b) in parts.samples.iter().zip(&whole.samples) {
                assert!((a - b).abs() < 1e-5, "{mode:?} in calls of {calls}");
            }
        }
    }
}

#[test]
fn settings_change_without_a_click() {
    let sound = Sound::noise(48_000, 2, 40.0, |_| -26.0);
    for mode in MODES {
        let mut normaliser = sound.normaliser(mode, &Settings::default());
        let mut samples = sound.samples.clone();
        for (index, block) in samples.chunks_mut(2 * 960).enumerate() {
            let default = Settings::default;
            let settings = match index {
                300 => Settings { target: Lufs::new(-33.0), ..default() },
                600 => Settings { target: Lufs::new(-20.0), range: Db::new(3.0), ..default() },
                900 => Settings { max_gain: Db::new(1.0), rise: Db::new(6.0), ..default() },
                1_200 => Settings { memory: Memory::Endless, gate: Lufs::new(-60.0), ..default() },
                1_500 => Settings { memory: Memory::Sliding { seconds: 10 }, ..default() },
                _ => {
                    normaliser.process(block);
                    continue;
                }
            };
            normaliser.set(settings).unwrap();
            normaliser.process(block);
        }
        let late = 2 * normaliser.latency().as_usize();
        let pairs = sound.samples.chunks(2).zip(samples[late..].chunks(2));
        let mut last: Option<f64> = None;
        for (before, after) in pairs.filter(|(before, _)| before[0].abs() > 0.005).skip(2_000) {
            let gain = 20.0 * f64::from(after[0] / before[0]).log10();
            let step = last.map_or(0.0, |last| gain - last);
            assert!(step.abs() < 0.02, "{mode:?}: {step} dB from one frame to the next");
            last = Some(gain);
        }
        let lufs = normaliser.statistics().output.short_term.get();
        assert!((lufs + 23.0).abs() < 0.5, "{mode:?}: {lufs}");
    }
}

#[test]
fn after_a_change_of_rate_or_channels_the_gain_goes_on() {
    let level = -35.0;
    for mode in MODES {
        let sound = Sound::noise(48_000, 2, 20.0, |_| level);
        let mut old = sound.normaliser(mode, &Settings::default());
        sound.through(&mut old, 960);
        let rate = SampleRate::new(44_100).unwrap();
        let mut new = old.successor(rate, ChannelLayout::SURROUND_5_1).unwrap();
        assert_eq!(new.statistics().gain, old.statistics().gain);
        // As loud as before in six channels, of which one does not count and two count more.
        let sound = Sound::noise(44_100, 6, 10.0, |_| level - 4.5);
        let (out, _) = sound.through(&mut new, 960);
        let gain = |at: usize| f64::from(out.samples[at] / sound.samples[at]);
        let before = old.statistics().gain.get();
        for at in [600, 6_000, 60_000, 600_000] {
            let now = 20.0 * gain(at).log10();
            assert!((now - before).abs() < 1.2, "{mode:?}: {before} dB, then {now} dB at {at}");
        }
    }
}

#[test]
fn a_lower_ceiling_holds_for_all_that_is_not_yet_limited() {
    let sound = Sound::noise(48_000, 2, 6.0, |_| 0.0);
    let settings = Settings { target: Lufs::new(-5.0), ..Settings::default() };
    let mut normaliser = sound.normaliser(Mode::Low, &settings);
    let mut samples = sound.samples;
    let (before, after) = samples.split_at_mut(2 * 144_000);
    normaliser.process(before);
    normaliser.set(Settings { ceiling: Db::new(-6.0), ..settings }).unwrap();
    normaliser.process(after);
    let peak = after[2 * 240..].iter().fold(0.0_f32, |peak, x| peak.max(x.abs()));
    assert!(peak <= 0.5012, "{peak}");
    assert_eq!(normaliser.statistics().clamped, 0);
}

#[test]
fn statistics_tell_both_sides() {
    let sound = Sound::noise(48_000, 2, 20.0, |_| -30.0);
    let (_, statistics) = sound.normalised(Mode::Low, &Settings::default());
    let (input, output) = (statistics.input, statistics.output);
    assert!((input.integrated - output.integrated + statistics.gain).get().abs() < 0.6);
    assert!((statistics.level - input.integrated).get().abs() < 0.1);
    assert!(input.momentary < output.momentary && input.true_peak < output.true_peak);
    assert_eq!((statistics.rejected, statistics.clamped), (0, 0));
    let loud = Settings { target: Lufs::new(-5.0), max_gain: Db::new(40.0), ..Settings::default() };
    let mut clicks = sound.samples.clone();
    clicks.iter_mut().step_by(2_000).for_each(|x| *x = 0.9);
    let mut normaliser = sound.normaliser(Mode::Low, &loud);
    normaliser.process(&mut clicks);
    assert!(normaliser.statistics().reduction.get() < -1.0);
    normaliser.reset();
    assert_eq!(normaliser.statistics().input.integrated, Lufs::SILENCE);
}

#[test]
fn what_cannot_be_is_said_with_its_bounds() {
    let make = |hz, channels, settings| {
        let layout = ChannelLayout::new(channels).unwrap();
        Normaliser::new(Mode::Full, settings, SampleRate::new(hz).unwrap(), layout)
    };
    let rate = make(4_000, 2, Settings::default()).unwrap_err();
    assert_eq!(rate.to_string(), "4000 Hz: a normaliser works from 8000 to 192000 Hz");
    let twice = Settings { dual_mono: true, ..Settings::default() };
    assert_eq!(make(48_000, 2, twice.clone()).unwrap_err(), CannotNormalise::DualMono(2));
    let mut normaliser = make(48_000, 1, twice.clone()).unwrap();
    let wrong = Settings { fall: Db::new(1e3), ..twice };
    let said = normaliser.set(wrong).unwrap_err().to_string();
    assert_eq!(said, "fall: 1000 dB/s is not between 0.1 and 60");
    assert!(normaliser.settings().dual_mono);
}

#[test]
fn beside_the_normalised_sound_there_is_the_plain_one_equally_late() {
    let sound = Sound::noise(48_000, 2, 8.0, |time| if time < 4.0 { -35.0 } else { -12.0 });
    for mode in MODES {
        let mut normaliser = sound.normaliser(mode, &Settings::default());
        let latency = 2 * normaliser.latency().as_usize();
        let alone = sound.through(&mut normaliser.clone(), 960).0;
        let (mut out, mut plain) = (sound.samples.clone(), vec![1.0; sound.samples.len()]);
        for (block, plain) in out.chunks_mut(2 * 333).zip(plain.chunks_mut(2 * 333)) {
            normaliser.process_beside(block, plain);
        }
        assert!(plain[..latency].iter().all(|x| *x == 0.0), "{mode:?}");
        assert_eq!(plain[latency..], sound.samples[..plain.len() - latency], "{mode:?}");
        assert_eq!(out[latency..], alone.samples[..out.len() - latency], "{mode:?}");
    }
}

#[test]
fn with_the_matching_gain_the_plain_sound_is_as_loud_as_the_normalised_one() {
    // Speech and music in turns, 12 LU apart.
    let apart = |time: f64| if (time / 10.0) % 2.0 < 1.0 { -30.0 } else { -18.0 };
    let sound = Sound::noise(48_000, 2, 40.0, apart);
    for mode in [Mode::Full, Mode::Mid, Mode::Low] {
        let settings = Settings { target: Lufs::new(-16.0), ..Settings::default() };
        let mut normaliser = sound.normaliser(mode, &settings);
        let (mut out, mut plain) = (sound.clone(), sound.clone());
        for (block, plain) in out.samples.chunks_mut(1_920).zip(plain.samples.chunks_mut(1_920)) {
            normaliser.process_beside(block, plain);
        }
        let gain = normaliser.matching_gain();
        let [plain, out] = [plain.gain(gain.get()), out].map(|sound| judge(&sound).integrated);
        assert!((plain - out).abs() < 0.5, "{mode:?}: {gain}, {plain} and {out}");
    }
}

#[test]
fn an_interruption_throws_the_sound_away_and_keeps_the_gain() {
    let sound = Sound::noise(48_000, 2, 20.0, |_| -40.0);
    for mode in MODES {
        let mut normaliser = sound.normaliser(mode, &Settings::default());
        let mut first = sound.samples.clone();
        normaliser.process(&mut first);
        let gain = normaliser.statistics().gain;
        normaliser.interrupt();
        assert_eq!(normaliser.statistics().gain, gain, "{mode:?}");
        let latency = 2 * normaliser.latency().as_usize();
        let mut second = sound.samples.clone();
        second.chunks_mut(1_920).for_each(|block| normaliser.process(block));
        assert!(second[..latency].iter().all(|x| *x == 0.0), "{mode:?}: old sound");
        let level = |part: &[f32]| {
            part.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / part.len() as f64
        };
        let before = level(&first[first.len() - 96_000..]);
        let after = level(&second[latency..latency + 96_000]);
        assert!((10.0 * (after / before).log10()).abs() < 0.5, "{mode:?}: {before} {after}");
        assert_eq!(normaliser.statistics().clamped, 0);
    }
}
