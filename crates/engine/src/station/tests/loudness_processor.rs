//! Loudness processing of a station; the crate `ebur128` is the reference for loudness and peaks.

use aulos_dsp::equalizer::{EqualizerBand, FilterType};
use aulos_dsp::normalize::{LookAhead, Settings};

use super::*;
use crate::announce::{DEFAULT_DUCK, Ducking};
use crate::loudness_processor::NormalizerConfig;
use crate::output_bus::StationTap;

/// A source computed frame by frame.
struct FunctionSource<F> {
    frame: u64,
    until: u64,
    of: F,
}

impl<F: FnMut(u64) -> f32 + Send> Source for FunctionSource<F> {
    fn pull(&mut self, _now: Instant, into: &mut Block) -> PullResult {
        if self.frame >= self.until {
            return PullResult::Ended;
        }
        into.reset(SPEC.rate, SPEC.layout);
        into.resize(Frames(480.min(self.until - self.frame)));
        for sample in into.samples_mut() {
            *sample = (self.of)(self.frame);
            self.frame += 1;
        }
        PullResult::Block
    }
    fn pacing(&self) -> Pacing {
        Pacing::OnDemand
    }
}

fn sound(of: impl FnMut(u64) -> f32 + Send + 'static) -> Box<dyn Source> {
    Box::new(FunctionSource { frame: 0, until: u64::MAX, of })
}

/// White noise between -1 and 1.
#[allow(clippy::cast_precision_loss, reason = "24 bits")]
fn white() -> impl FnMut() -> f32 {
    let mut seed = 1_u32;
    move || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// The same without its highest octaves, like music, and with an RMS level that follows `db` (of
/// seconds).
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a test signal")]
fn noise(db: impl Fn(f64) -> f64 + Send + 'static) -> Box<dyn Source> {
    let (mut white, mut low, share) = (white(), 0.0, 0.3);
    // The filter leaves this much of the noise's variance, one third.
    let rms = (share / (2.0 - share) / 3.0_f64).sqrt();
    sound(move |frame| {
        low += share * (f64::from(white()) - low);
        (low / rms * 10f64.powf(db(frame as f64 / 48_000.0) / 20.0)) as f32
    })
}

/// 997 Hz.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a test signal")]
fn sine(amplitude: f64) -> Box<dyn Source> {
    sound(move |frame| {
        (amplitude * (core::f64::consts::TAU * 997.0 * frame as f64 / 48_000.0).sin()) as f32
    })
}

fn normalizer_config(mode: LookAhead, target: f64) -> NormalizerConfig {
    let settings = Settings { target: Lufs::new(target), ..Settings::default() };
    NormalizerConfig { mode, settings }
}

/// Unity gain, so that every frame can be identified.
fn transparent(mode: LookAhead) -> NormalizerConfig {
    let settings = Settings { min_gain: Db::ZERO, max_gain: Db::ZERO, ..Settings::default() };
    NormalizerConfig { mode, settings }
}

/// A world with a normalizer on every input.
fn with_normalizer(sources: Vec<Box<dyn Source>>, wish: &NormalizerConfig) -> World {
    World::with(sources, |source| {
        let input = Input::new(source, SPEC.rate, SPEC.layout, InputConfig::default());
        input.with_normalizer(wish).unwrap()
    })
}

fn station(source: Box<dyn Source>, wish: Option<&NormalizerConfig>) -> World {
    let mut world = World::new(vec![source]);
    world.handle.set_normalizer(wish).unwrap();
    world
}

/// Integrated loudness and true peak.
fn loudness_and_peak(samples: &[f32]) -> (f64, f64) {
    let mode = ebur128::Mode::I | ebur128::Mode::TRUE_PEAK;
    let mut judge = ebur128::EbuR128::new(1, 48_000, mode).unwrap();
    judge.add_frames_f32(samples).unwrap();
    (judge.loudness_global().unwrap(), 20.0 * judge.true_peak(0).unwrap().log10())
}

fn greatest_step(samples: &[f32]) -> f32 {
    samples.windows(2).map(|pair| (pair[1] - pair[0]).abs()).fold(0.0, f32::max)
}

/// The longest run of silent frames.
fn longest_silence(samples: &[f32]) -> usize {
    samples.split(|sample| sample.abs() > 1e-6).map(<[f32]>::len).max().unwrap_or(0)
}

const MODES: [LookAhead; 4] =
    [LookAhead::Full, LookAhead::Mid, LookAhead::Low, LookAhead::GainOnly];

#[test]
fn sound_is_complete_and_delayed_by_the_stated_latency() {
    for (mode, usual) in MODES.into_iter().zip([144_240, 19_440, 480, 0]) {
        let counter = Box::new(Counter { next: 0, base: 0 });
        let mut world = station(counter, Some(&transparent(mode)));
        let out = world.run(5_000);
        let said = world.handle.status().normalizer.unwrap().latency.as_usize();
        assert_eq!(said, usual, "{mode:?}");
        assert_eq!(out.len(), 5 * 48_000);
        let late = said + latency();
        assert!(out[..late].iter().all(|sample| *sample == 0.0), "{mode:?}");
        expect_run(&out[late..], 0);
    }
}

#[test]
fn the_output_has_the_target_loudness() {
    // A level that differs by 20 LU from one section to the next.
    let pieces = |time: f64| match time % 45.0 {
        ..15.0 => -34.0,
        15.0..30.0 => -14.0,
        _ => -24.0,
    };
    for mode in [LookAhead::Full, LookAhead::Mid, LookAhead::Low] {
        let mut world = station(noise(|_| -33.0), Some(&normalizer_config(mode, -20.0)));
        let out = world.run(60_000);
        let (lufs, peak) = loudness_and_peak(&out);
        assert!((lufs + 20.0).abs() <= 0.5, "{mode:?}: {lufs}");
        assert!(peak <= -0.9, "{mode:?}: {peak}");
        let steady = world.handle.status().normalizer.unwrap();
        assert_eq!((steady.clamped, steady.programme_stats.rejected), (0, 0));
        assert!((steady.programme_stats.output.integrated.get() - lufs).abs() < 0.2, "{steady:?}");
    }
    let mut world = station(noise(pieces), Some(&normalizer_config(LookAhead::Full, -18.0)));
    let (lufs, peak) = loudness_and_peak(&world.run(90_000));
    assert!((lufs + 18.0).abs() <= 0.5 && peak <= -0.9, "{lufs} {peak}");
}

#[test]
fn a_fade_is_not_undone_and_room_tone_is_not_raised() {
    let level = |time: f64| match time {
        30.0..42.0 => -26.0 - 40.0 * (time - 30.0) / 12.0,
        54.0..62.0 => -26.0 - 27.0,
        _ => -26.0,
    };
    for mode in [LookAhead::Full, LookAhead::Mid, LookAhead::Low] {
        let mut world = station(noise(level), Some(&normalizer_config(mode, -30.0)));
        let out = world.run(70_000);
        let late = world.handle.status().normalizer.unwrap().latency.as_usize() + latency();
        // The gain in dB of this tenth of a second.
        let gain = |tenth: u32| {
            let from = late + tenth as usize * 4_800;
            let power: f64 = out[from..from + 4_800].iter().map(|x| f64::from(x * x)).sum();
            10.0 * (power / 4_800.0).log10() - level((f64::from(tenth) + 0.5) / 10.0)
        };
        let most = |from, to| (from..to).map(gain).fold(f64::NEG_INFINITY, f64::max);
        let before = gain(290);
        // Tenths of a second of noise differ by half a decibel.
        assert!(most(300, 415) - before <= 5.0, "{mode:?}: {}", most(300, 415) - before);
        assert!(most(420, 425) - before <= 1.5, "{mode:?}: {}", most(420, 425) - before);
        assert!(most(541, 619) - before <= 2.0, "{mode:?}: {}", most(541, 619) - before);
        assert!(most(620, 625) - before <= 1.5, "{mode:?}: {}", most(620, 625) - before);
    }
}

#[test]
fn a_loud_voice_over_a_loud_programme_keeps_the_ceiling() {
    for mode in [LookAhead::Full, LookAhead::Mid, LookAhead::Low] {
        let mut wish = normalizer_config(mode, -6.0);
        wish.settings.ceiling = Db::new(-3.0);
        let mut world = station(noise(|_| -8.0), Some(&wish));
        let mut out = world.run(5_000);
        for id in 0..3 {
            // Above full scale, as in a bad file.
            let square = |frame: u64| if (frame / 40).is_multiple_of(2) { 1.4 } else { -1.4 };
            let bell = FunctionSource { frame: 0, until: 48_000, of: square };
            world
                .handle
                .announcements()
                .add(id, Box::new(bell), Ducking::by(Db::new(-6.0)))
                .unwrap();
        }
        for _ in 0..60 {
            world.handle.handle_timeout(world.now, |_| {});
            out.extend(world.run(100));
        }
        let (_, peak) = loudness_and_peak(&out);
        // 0.2 above the ceiling is what another interpolator may find in noise; ffmpeg reads -3.0.
        assert!(peak <= -2.8, "{mode:?}: {peak}");
        assert!(peak > -4.0, "{mode:?}: it was quiet: {peak}");
        let steady = world.handle.status().normalizer.unwrap();
        assert_eq!(steady.clamped, 0, "{mode:?}");
        // The normalizer is not affected by the announcement.
        assert!(steady.programme_stats.output.true_peak.get() <= -2.8);
    }
}

#[test]
fn a_pause_takes_effect_at_once_despite_the_look_ahead() {
    let (mut feed, source) = live_source();
    feed.next = 300_000;
    let mut world = station(source, Some(&transparent(LookAhead::Full)));
    let feeding = |world: &mut World, feed: &mut LiveSender, millis: u64| -> Vec<f32> {
        (0..millis / 20)
            .flat_map(|_| {
                feed.send(world.now, 20);
                world.step()
            })
            .collect()
    };
    let out = feeding(&mut world, &mut feed, 6_000);
    assert!(*out.last().unwrap() > 0.2);
    world.handle.flush();
    let last = world.step();
    assert!(last[0] > 0.2 && last[959].abs() < 1e-4, "{} {}", last[0], last[959]);
    assert!(greatest_step(&[&out[out.len() - 960..], &last].concat()) < 0.002, "a click");
    let after = world.run(4_000);
    assert!(after.iter().all(|sample| *sample == 0.0), "something came late");
    // What follows has the same latency as before.
    let again = feeding(&mut world, &mut feed, 6_000);
    assert!(*again.last().unwrap() > 0.2);
    assert!(longest_silence(&again) >= 144_240, "{}", longest_silence(&again));
}

#[test]
fn a_change_of_mode_causes_no_gap_and_no_step() {
    let mut world = station(sine(0.1), None);
    let mut out = world.run(1_000);
    assert_eq!(world.handle.status().normalizer, None);
    for mode in [
        Some(LookAhead::Full),
        Some(LookAhead::Low),
        Some(LookAhead::Mid),
        Some(LookAhead::GainOnly),
        None,
    ] {
        world.handle.set_normalizer(mode.map(transparent).as_ref()).unwrap();
        out.extend(world.run(5_000));
        world.handle.handle_timeout(world.now, |_| {});
    }
    assert_eq!(out.len(), 26 * 48_000);
    assert_eq!(world.handle.status().normalizer, None);
    // There was no audio yet where it began.
    let out = &out[latency() + 1..];
    // A sine of this amplitude and frequency moves by 0.013 a frame.
    assert!(greatest_step(out) < 0.014, "a click of {}", greatest_step(out));
    assert!(longest_silence(out) < 3, "a hole of {}", longest_silence(out));
    // During the cross-fade the two can cancel, for 50 ms; before and after it the sine is
    // complete.
    let weak = out.chunks(480).filter(|part| part.iter().all(|x| x.abs() < 0.09)).count();
    assert!(weak <= 5 * 5, "{weak}");
}

#[test]
fn settings_change_while_playing_and_the_gain_follows() {
    let mut world = station(sine(0.05), Some(&normalizer_config(LookAhead::Low, -30.0)));
    world.run(20_000);
    world.handle.set_normalizer(Some(&normalizer_config(LookAhead::Low, -24.0))).unwrap();
    let out = world.run(20_000);
    // -24 LUFS in one channel; at most 3 dB per second, which is far below a step of the sine.
    let (lufs, _) = loudness_and_peak(&out[10 * 48_000..]);
    assert!((lufs + 24.0).abs() < 0.3, "{lufs}");
    let loudest = out.iter().fold(0.0f32, |top, sample| top.max(sample.abs()));
    assert!(greatest_step(&out) <= 0.131 * loudest, "a click");
    let mut low = normalizer_config(LookAhead::Low, -24.0);
    low.settings.ceiling = Db::new(-9.0);
    low.settings.target = Lufs::new(-5.0);
    world.handle.set_normalizer(Some(&low)).unwrap();
    world.run(10_000);
    let out = world.run(5_000);
    let loudest = out.iter().fold(0.0f32, |top, sample| top.max(sample.abs()));
    assert!((0.34..0.355).contains(&loudest), "not -9 dBFS: {loudest}");
    low.settings.target = Lufs::new(1.0);
    assert!(world.handle.set_normalizer(Some(&low)).is_err());
}

#[test]
fn compared_are_two_sounds_that_are_equally_loud_without_a_click_between_them() {
    let pieces = |time: f64| if (time / 8.0) % 2.0 < 1.0 { -40.0 } else { -26.0 };
    for mode in [LookAhead::Full, LookAhead::Low] {
        let mut world = station(noise(pieces), Some(&normalizer_config(mode, -18.0)));
        world.run(48_000);
        let (normalized, _) = loudness_and_peak(&world.run(48_000));
        world.handle.set_bypass(true);
        let plain = world.run(48_000);
        let (compared, _) = loudness_and_peak(&plain);
        assert!((normalized - compared).abs() <= 1.0, "{mode:?}: {normalized} {compared}");
        let steady = world.handle.status().normalizer.unwrap();
        assert!(steady.bypassed && steady.matching_gain > Db::ZERO, "{steady:?}");
        // One gain: quiet and loud are 14 dB apart, as in the source.
        let seconds = plain[48_000..].chunks_exact(48_000);
        let level = |part: &[f32]| 10.0 * part.iter().map(|x| x * x).sum::<f32>().log10();
        let (least, most) = seconds
            .map(level)
            .fold((99.0f32, -99.0f32), |(least, most), level| (least.min(level), most.max(level)));
        let apart = most - least;
        assert!((apart - 14.0).abs() < 0.5, "{mode:?}: {apart}");
    }
    let mut world = station(sine(0.02), Some(&normalizer_config(LookAhead::Mid, -23.0)));
    world.run(20_000);
    let mut out = Vec::new();
    for on in [true, false, true, false, false, true] {
        world.handle.set_bypass(on);
        // Shorter than the fade, and longer.
        out.extend(world.run(if on { 40 } else { 1_000 }));
    }
    let loudest = out.iter().fold(0.0f32, |top, sample| top.max(sample.abs()));
    assert!(greatest_step(&out) <= 0.135 * loudest, "a click of {}", greatest_step(&out));
    world.handle.set_bypass(false);
    world.run(200);
    assert!(!world.handle.status().normalizer.unwrap().bypassed);
}

/// Attaches a tap to a station.
fn tap(world: &mut World) -> Consumer<SourceItem> {
    let (items, heard) = ring(600);
    let block = || Block::with_capacity(SPEC.rate, SPEC.layout, source::BLOCK_SAMPLES);
    world.handle.add_output(StationTap::new(Pool::new(599, block), items)).unwrap();
    heard
}

#[test]
fn another_station_gets_the_normalized_programme_its_end_and_no_announcement() {
    let wish = normalizer_config(LookAhead::Full, -30.0);
    let mut noise = white();
    let programme = FunctionSource { frame: 0, until: 5 * 48_000, of: move |_| 0.3 * noise() };
    let mut world = station(Box::new(programme), Some(&wish));
    let mut heard = tap(&mut world);
    for step in 0..100 {
        if step == 40 {
            let bell = FunctionSource { frame: 0, until: 9_600, of: |_| 0.9 };
            world.handle.announcements().add(1, Box::new(bell), Ducking::by(DEFAULT_DUCK)).unwrap();
        }
        world.handle.handle_timeout(world.now, |_| {});
        world.run(100);
    }
    let (mut sound, mut ends) = (Vec::new(), 0);
    while let Some(item) = heard.pop() {
        match item {
            SourceItem::Block(block) => sound.extend_from_slice(block.samples()),
            SourceItem::End => ends += 1,
            SourceItem::Lost => panic!("nothing was lost"),
        }
    }
    assert_eq!(ends, 1);
    // The silence before it is the delay of its resampler.
    let length = 5 * 48_000 + latency();
    assert!((length..length + 960).contains(&sound.len()), "{} {length}", sound.len());
    let (lufs, _) = loudness_and_peak(&sound);
    assert!((lufs + 30.0).abs() < 0.5, "{lufs}");
    assert!(sound.iter().all(|sample| sample.abs() < 0.2), "an announcement");
}

#[test]
fn equalizer_bands_act_before_the_normalizer_without_a_step() {
    let mut world = station(sine(0.1), None);
    world.run(1_000);
    let band =
        EqualizerBand { filter_type: FilterType::Peaking, hz: 997.0, gain: Db::new(6.0), q: 1.0 };
    world.handle.set_equalizer(&[band]).unwrap();
    let out = world.run(2_000);
    let loudest = out[48_000..].iter().fold(0.0f32, |top, sample| top.max(sample.abs()));
    assert!((loudest - 0.1995).abs() < 0.001, "{loudest}");
    assert!(greatest_step(&out) <= 0.131 * loudest, "a click");
    assert!(world.handle.set_equalizer(&[EqualizerBand { q: 0.0, ..band }]).is_err());
    // The normalizer reduces it.
    world.handle.set_normalizer(Some(&normalizer_config(LookAhead::Low, -23.0))).unwrap();
    world.run(10_000);
    let (lufs, _) = loudness_and_peak(&world.run(5_000));
    assert!((lufs + 23.0).abs() < 0.3, "{lufs}");
}

#[test]
fn a_quiet_fallback_is_normalized_to_the_same_loudness() {
    let (mut feed, source) = live_source();
    // The live one is 15 LU louder than the file, which has lower priority.
    let mut world =
        with_normalizer(vec![source, noise(|_| -38.0)], &normalizer_config(LookAhead::Mid, -23.0));
    let mut white = white();
    let mut out = [Vec::new(), Vec::new()];
    for step in 0..3_000 {
        if step < 1_500 {
            feed.send_with(world.now, 20, |_| 0.3 * white());
        }
        let on_air = usize::from(step >= 1_500);
        out[on_air].extend(world.step());
    }
    assert_eq!(world.handle.status().active, Some(1));
    let [live, file] = out.map(|out| loudness_and_peak(&out[10 * 48_000..]).0);
    assert!((live + 23.0).abs() < 0.5 && (file - live).abs() <= 1.0, "{live} {file}");
    let heard = world.handle.status().inputs[0].loudness.integrated.unwrap().get();
    assert!((heard + 13.0).abs() < 3.0, "it is shown as it comes in: {heard}");
}

#[test]
fn a_normalized_source_is_played_completely_from_first_to_last_frame() {
    for mode in MODES {
        let wish = transparent(mode);
        // A file, and a fast sender that closes; the second one is shorter than any look-ahead.
        let mut world = with_normalizer(vec![Box::new(Counter { next: 0, base: 0 })], &wish);
        let out = world.run(8_000);
        let first = out.iter().position(|sample| *sample > 0.0).unwrap() - 1;
        assert!(first < 48_000, "{mode:?}: it was pulled ahead, and begins with {first}");
        expect_run(&out[first..], 0);
        assert_eq!(world.handle.status().underruns, 0);
        for length in [100, 2_000] {
            let (mut feed, source) = live_source();
            let mut world = with_normalizer(vec![source], &wish);
            feed.next = 1;
            feed.send(world.now, length);
            feed.items.push(SourceItem::End).expect("room");
            let out = world.run(8_000);
            let first = out.iter().position(|sample| *sample > 0.0).expect("sound");
            let frames = usize::try_from(length).unwrap() * 48;
            expect_run(&out[first..first + frames], 1);
            assert!(out[first + frames..].iter().all(|sample| *sample == 0.0));
        }
    }
}

#[test]
fn a_normalized_sender_plays_to_its_end_and_returns_in_order() {
    let (mut feed, source) = live_source();
    feed.next = 200_000;
    let mut world = with_normalizer(vec![source], &transparent(LookAhead::Mid));
    let mut out = Vec::new();
    for step in 0..400 {
        // It pauses for two seconds; no other source can play.
        if !(150..250).contains(&step) {
            feed.send(world.now, 20);
        }
        out.extend(world.step());
    }
    let sent = feed.next;
    // Faded frames do not increase by one any more.
    let one = number(1).to_bits();
    let follow = |pair: &&[f32]| (pair[1] - pair[0]).to_bits() == one;
    let heard: Vec<f32> = out.windows(2).filter(follow).map(|pair| pair[0]).collect();
    assert!(heard.windows(2).all(|pair| pair[0] < pair[1]), "not in order");
    // All of the first part except the faded frames, and all of the second except what is still
    // buffered.
    let waits = u64::try_from(heard.len()).unwrap() + 2 * (400 + 400) * 48;
    assert!(waits > sent - 200_000 - 48 * 100, "{} of {}", heard.len(), sent - 200_000);
    assert_eq!(world.handle.status().underruns, 1);
}

#[test]
fn a_normalized_sender_that_pauses_is_silent_at_once() {
    let (mut feed, source) = live_source();
    feed.next = 200_000;
    let mut world = with_normalizer(vec![source], &transparent(LookAhead::Full));
    for _ in 0..300 {
        feed.send(world.now, 20);
        world.step();
    }
    world.handle.flush();
    world.step();
    let paused = feed.next;
    assert!(world.run(2_000).iter().all(|sample| *sample == 0.0), "something came late");
    let mut out = Vec::new();
    for _ in 0..300 {
        feed.send(world.now, 20);
        out.extend(world.step());
    }
    let begins = out.iter().position(|sample| *sample > 0.1).expect("it plays again");
    // After the fade.
    let first = out[begins + 960];
    assert!(first >= number(paused), "old sound: {first}");
}

#[test]
fn a_sender_that_follows_another_at_once_leaves_no_hole() {
    for mode in [LookAhead::Full, LookAhead::Low] {
        let (mut feed, source) = live_source();
        feed.next = 100_000;
        let mut world = with_normalizer(vec![source], &transparent(mode));
        let mut out = Vec::new();
        for step in 0..700 {
            if step == 300 {
                feed.items.push(SourceItem::End).expect("room");
            }
            feed.send(world.now, 20);
            out.extend(world.step());
        }
        let begins = out.iter().position(|sample| *sample > 0.0).expect("sound");
        // The rest in the first one's resampler comes out before the second.
        assert!(longest_silence(&out[begins + 960..]) <= latency(), "{mode:?}");
        assert_eq!(world.handle.status().underruns, 0, "{mode:?}");
    }
}

#[test]
fn what_waits_for_a_station_that_does_not_run_stays_small() {
    let mut world = World::new(vec![]);
    let config = |mode| NormalizerConfig { mode, settings: Settings::default() };
    for _ in 0..50 {
        for mode in [LookAhead::Low, LookAhead::Mid] {
            world.handle.set_normalizer(Some(&config(mode))).unwrap();
            world.handle.set_normalizer(Some(&config(mode))).unwrap();
            world.handle.set_bypass(true);
        }
    }
    assert!(world.handle.waiting() <= 3, "{:?}", world.handle.waiting());
    for _ in 0..20 {
        world.step();
        world.handle.handle_timeout(world.now, |_| {});
    }
    assert_eq!(world.handle.waiting(), 0);
    // 400 ms of look-ahead and 5 ms after the announcements, as in the last configuration.
    world.run(4_000);
    assert_eq!(world.handle.status().normalizer.unwrap().latency, Frames(19_200 + 240));
    let set = |handle: &mut StationHandle, mode, settings: &Settings| {
        handle.set_normalizer(Some(&NormalizerConfig { mode, settings: settings.clone() }))
    };
    let wrong = Settings { dual_mono: true, target: Lufs::new(9.0), ..Settings::default() };
    assert!(set(&mut world.handle, LookAhead::Mid, &wrong).is_err());
    let spec = SampleSpec { layout: ChannelLayout::STEREO, ..SPEC };
    let main = Rendition::new(
        Box::new(PcmEncoder::new(spec)),
        Pool::new(1, Vec::new),
        vec![],
        |_, _, _, _| 0,
    );
    let (_, mut stereo) = Station::new(world.station.config, world.now, vec![], main);
    set(&mut stereo, LookAhead::Low, &Settings::default()).unwrap();
    let twice = Settings { dual_mono: true, ..Settings::default() };
    assert!(set(&mut stereo, LookAhead::Low, &twice).is_err());
}
