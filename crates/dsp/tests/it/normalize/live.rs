//! Latency, length, and changes of the settings while running.

use aulos_core::{ChannelLayout, Db, Lufs, SampleRate};
use aulos_dsp::normalize::{LookAhead, Memory, Normalizer, NormalizerError, Settings};

use super::reference::measure;
use super::sound::Sound;

const MODES: [LookAhead; 4] =
    [LookAhead::Full, LookAhead::Mid, LookAhead::Low, LookAhead::GainOnly];

/// Unity gain, so that input and output can be compared.
fn transparent() -> Settings {
    Settings { min_gain: Db::ZERO, max_gain: Db::ZERO, ..Settings::default() }
}

#[test]
fn the_stated_latency_is_exact_to_the_frame() {
    for hz in [8_000, 11_025, 44_100, 48_000, 96_000] {
        for (mode, ms) in MODES.into_iter().zip([3_000, 400, 5, 0]) {
            let sound = Sound::noise(hz, 2, 7.0, |_| -20.0);
            let mut normalizer = sound.normalizer(mode, &transparent());
            let latency = normalizer.latency().as_usize();
            let usual = hz as usize * ms / 1_000;
            // Hops of 100 ms are whole frames; at low rates the limiter has at least 95.
            let usual = if mode == LookAhead::Low { usual.max(95) } else { usual };
            assert!(latency.abs_diff(usual) <= 15, "{hz} {mode:?}: {latency}");
            assert!(hz == 11_025 || latency == usual, "{hz} {mode:?}: {latency}");
            let mut out = sound.samples.clone();
            out.chunks_mut(2 * 441).for_each(|block| normalizer.process(block));
            assert!(out[..2 * latency].iter().all(|x| *x == 0.0));
            assert_eq!(out[2 * latency..], sound.samples[..out.len() - 2 * latency]);
        }
    }
}

#[test]
fn output_has_as_many_frames_as_input_for_any_length() {
    for mode in MODES {
        for frames in [0, 1, 480, 4_800, 139_200, 144_000, 148_800] {
            let seconds = f64::from(frames) / 48_000.0 + 1e-9;
            let sound = Sound::noise(48_000, 2, seconds, |_| -20.0);
            assert_eq!(sound.frames(), frames as usize);
            let mut normalizer = sound.normalizer(mode, &transparent());
            for _ in 0..2 {
                let (out, statistics) = sound.through(&mut normalizer, 960);
                assert_eq!(out.samples, sound.samples, "{mode:?} {frames}");
                assert_eq!(statistics.clamped, 0);
            }
        }
    }
}

#[test]
fn the_size_of_calls_does_not_change_the_output() {
    let step = |time| if time < 5.0 { -35.0 } else { -3.0 };
    let sound = Sound::noise(48_000, 2, 10.0, step);
    for mode in MODES {
        let settings = Settings { target: Lufs::new(-8.0), ..Settings::default() };
        let whole = sound.through(&mut sound.normalizer(mode, &settings), 48_000).0;
        for calls in [37, 960, 7_001] {
            let parts = sound.through(&mut sound.normalizer(mode, &settings), calls).0;
            for (a, b) in parts.samples.iter().zip(&whole.samples) {
                assert!((a - b).abs() < 1e-5, "{mode:?} in calls of {calls}");
            }
        }
    }
}

#[test]
fn changed_settings_cause_no_step_of_the_gain() {
    let sound = Sound::noise(48_000, 2, 40.0, |_| -26.0);
    for mode in MODES {
        let mut normalizer = sound.normalizer(mode, &Settings::default());
        let mut samples = sound.samples.clone();
        for (index, block) in samples.chunks_mut(2 * 960).enumerate() {
            let default = Settings::default;
            let settings = match index {
                300 => Settings { target: Lufs::new(-33.0), ..default() },
                600 => Settings { target: Lufs::new(-20.0), tolerance: Db::new(3.0), ..default() },
                900 => Settings { max_gain: Db::new(1.0), max_rise: Db::new(6.0), ..default() },
                1_200 => Settings { memory: Memory::Endless, gate: Lufs::new(-60.0), ..default() },
                1_500 => Settings { memory: Memory::Sliding { seconds: 10 }, ..default() },
                _ => {
                    normalizer.process(block);
                    continue;
                }
            };
            normalizer.set_settings(settings).unwrap();
            normalizer.process(block);
        }
        let late = 2 * normalizer.latency().as_usize();
        let pairs = sound.samples.chunks(2).zip(samples[late..].chunks(2));
        let mut last: Option<f64> = None;
        for (before, after) in pairs.filter(|(before, _)| before[0].abs() > 0.005).skip(2_000) {
            let gain = 20.0 * f64::from(after[0] / before[0]).log10();
            let step = last.map_or(0.0, |last| gain - last);
            assert!(step.abs() < 0.02, "{mode:?}: {step} dB from one frame to the next");
            last = Some(gain);
        }
        let lufs = normalizer.statistics().output.short_term.get();
        assert!((lufs + 23.0).abs() < 0.5, "{mode:?}: {lufs}");
    }
}

#[test]
fn the_gain_continues_after_a_change_of_rate_or_channels() {
    let level = -35.0;
    for mode in MODES {
        let sound = Sound::noise(48_000, 2, 20.0, |_| level);
        let mut old = sound.normalizer(mode, &Settings::default());
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
fn a_lower_ceiling_holds_for_all_sound_not_yet_limited() {
    let sound = Sound::noise(48_000, 2, 6.0, |_| 0.0);
    let settings = Settings { target: Lufs::new(-5.0), ..Settings::default() };
    let mut normalizer = sound.normalizer(LookAhead::Low, &settings);
    let mut samples = sound.samples;
    let (before, after) = samples.split_at_mut(2 * 144_000);
    normalizer.process(before);
    normalizer.set_settings(Settings { ceiling: Db::new(-6.0), ..settings }).unwrap();
    normalizer.process(after);
    let peak = after[2 * 240..].iter().fold(0.0_f32, |peak, x| peak.max(x.abs()));
    assert!(peak <= 0.5012, "{peak}");
    assert_eq!(normalizer.statistics().clamped, 0);
}

#[test]
fn statistics_cover_input_and_output() {
    let sound = Sound::noise(48_000, 2, 20.0, |_| -30.0);
    let (_, statistics) = sound.normalized(LookAhead::Low, &Settings::default());
    let (input, output) = (statistics.input, statistics.output);
    assert!((input.integrated - output.integrated + statistics.gain).get().abs() < 0.6);
    assert!((statistics.level - input.integrated).get().abs() < 0.1);
    assert!(input.momentary < output.momentary && input.true_peak < output.true_peak);
    assert_eq!((statistics.rejected, statistics.clamped), (0, 0));
    let loud = Settings { target: Lufs::new(-5.0), max_gain: Db::new(40.0), ..Settings::default() };
    let mut clicks = sound.samples.clone();
    clicks.iter_mut().step_by(2_000).for_each(|x| *x = 0.9);
    let mut normalizer = sound.normalizer(LookAhead::Low, &loud);
    normalizer.process(&mut clicks);
    assert!(normalizer.statistics().reduction.get() < -1.0);
    normalizer.reset();
    assert_eq!(normalizer.statistics().input.integrated, Lufs::SILENCE);
}

#[test]
fn invalid_settings_are_reported_with_their_range() {
    let make = |hz, channels, settings| {
        let layout = ChannelLayout::new(channels).unwrap();
        Normalizer::new(LookAhead::Full, settings, SampleRate::new(hz).unwrap(), layout)
    };
    let rate = make(4_000, 2, Settings::default()).unwrap_err();
    assert_eq!(rate.to_string(), "sample rate 4000 Hz is not between 8000 and 192000 Hz");
    let dual_mono_settings = Settings { dual_mono: true, ..Settings::default() };
    assert_eq!(
        make(48_000, 2, dual_mono_settings.clone()).unwrap_err(),
        NormalizerError::DualMono(2)
    );
    let mut normalizer = make(48_000, 1, dual_mono_settings.clone()).unwrap();
    let wrong = Settings { max_fall: Db::new(1e3), ..dual_mono_settings };
    let message = normalizer.set_settings(wrong).unwrap_err().to_string();
    assert_eq!(message, "max_fall: 1000 dB/s is not between 0.1 and 60");
    assert!(normalizer.settings().dual_mono);
}

#[test]
fn the_dry_signal_has_the_same_latency() {
    let sound = Sound::noise(48_000, 2, 8.0, |time| if time < 4.0 { -35.0 } else { -12.0 });
    for mode in MODES {
        let mut normalizer = sound.normalizer(mode, &Settings::default());
        let latency = 2 * normalizer.latency().as_usize();
        let alone = sound.through(&mut normalizer.clone(), 960).0;
        let (mut out, mut plain) = (sound.samples.clone(), vec![1.0; sound.samples.len()]);
        for (block, plain) in out.chunks_mut(2 * 333).zip(plain.chunks_mut(2 * 333)) {
            normalizer.process_with_dry(block, plain);
        }
        assert!(plain[..latency].iter().all(|x| *x == 0.0), "{mode:?}");
        assert_eq!(plain[latency..], sound.samples[..plain.len() - latency], "{mode:?}");
        assert_eq!(out[latency..], alone.samples[..out.len() - latency], "{mode:?}");
    }
}

#[test]
fn the_matching_gain_makes_the_dry_signal_as_loud_as_the_output() {
    // Speech and music alternate, 12 LU apart.
    let apart = |time: f64| if (time / 10.0) % 2.0 < 1.0 { -30.0 } else { -18.0 };
    let sound = Sound::noise(48_000, 2, 40.0, apart);
    for mode in [LookAhead::Full, LookAhead::Mid, LookAhead::Low] {
        let settings = Settings { target: Lufs::new(-16.0), ..Settings::default() };
        let mut normalizer = sound.normalizer(mode, &settings);
        let (mut out, mut plain) = (sound.clone(), sound.clone());
        for (block, plain) in out.samples.chunks_mut(1_920).zip(plain.samples.chunks_mut(1_920)) {
            normalizer.process_with_dry(block, plain);
        }
        let gain = normalizer.matching_gain();
        let [plain, out] = [plain.gain(gain.get()), out].map(|sound| measure(&sound).integrated);
        assert!((plain - out).abs() < 0.5, "{mode:?}: {gain}, {plain} and {out}");
    }
}

#[test]
fn an_interruption_discards_delayed_sound_and_keeps_the_gain() {
    let sound = Sound::noise(48_000, 2, 20.0, |_| -40.0);
    for mode in MODES {
        let mut normalizer = sound.normalizer(mode, &Settings::default());
        let mut first = sound.samples.clone();
        normalizer.process(&mut first);
        let gain = normalizer.statistics().gain;
        normalizer.interrupt();
        assert_eq!(normalizer.statistics().gain, gain, "{mode:?}");
        let latency = 2 * normalizer.latency().as_usize();
        let mut second = sound.samples.clone();
        second.chunks_mut(1_920).for_each(|block| normalizer.process(block));
        assert!(second[..latency].iter().all(|x| *x == 0.0), "{mode:?}: old sound");
        let level = |part: &[f32]| {
            part.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / part.len() as f64
        };
        let before = level(&first[first.len() - 96_000..]);
        let after = level(&second[latency..latency + 96_000]);
        assert!((10.0 * (after / before).log10()).abs() < 0.5, "{mode:?}: {before} {after}");
        assert_eq!(normalizer.statistics().clamped, 0);
    }
}
