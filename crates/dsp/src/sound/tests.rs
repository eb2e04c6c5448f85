//! Imports beside the vectors of Equalizer APO's formulas, and the processor beside its response.

use core::f64::consts::{FRAC_1_SQRT_2, PI};

use aulos_core::{ChannelLayout, ChannelMap, Db, Frames, SampleRate, Span};
use proptest::prelude::*;

use super::*;
use crate::equalizer::{EqualizerBand, FilterType, MAX_BANDS};

const RATE: SampleRate = SampleRate::HZ_48000;
const STRICT: ImportOptions = ImportOptions { rate: RATE, lenient: false };
const CEILING: Db = Db::new(-1.0);

fn chain(text: &str) -> SoundChain {
    let imported = import(text, STRICT).unwrap_or_else(|why| panic!("{text}: {why:?}"));
    imported.chain.validate(RATE).unwrap();
    imported.chain
}

fn band(text: &str) -> EqualizerBand {
    chain(text).left.bands[0]
}

fn problems(text: &str) -> Vec<String> {
    import(text, STRICT).unwrap_err().iter().map(ToString::to_string).collect()
}

fn warnings(text: &str, options: ImportOptions) -> Vec<(usize, String)> {
    let warnings = import(text, options).unwrap().warnings;
    warnings.iter().map(|warning| (warning.line, warning.reason.to_string())).collect()
}

fn near(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() <= tolerance, "{found}, expected {expected}");
}

/// The response of left without preamplification.
fn response(text: &str, hz: f64) -> f64 {
    let mut chain = chain(text);
    chain.preamp = Some(Db::ZERO);
    chain.response(hz, RATE)[0].get()
}

#[test]
fn widths_become_quality_factors() {
    for (text, q) in [
        ("Filter 1: ON PK Fc 1000 Hz Gain -3 dB BW Oct 1", 1.410_02),
        ("Filter 1: ON PK Fc 100 Hz Gain -3 dB BW Oct 0.167", 8.633_82),
        ("Filter 1: ON PK Fc 10000 Hz Gain -3 dB BW Oct 1", 1.026_43),
        ("Filter 1: ON PK Fc 1000 Hz Gain -3 dB BW/60 60", 1.410_02),
        ("Filter 1: ON LSC Fc 100 Hz Gain 6 dB", 0.668_81),
        ("Filter 1: ON LS Fc 100 Hz Gain 6 dB", 0.668_81),
        ("Filter 1: ON LSC 10.8 dB Fc 100 Hz Gain 5 dB", 0.669_43),
        ("Filter 1: ON HSC 12dB Fc 100 Hz Gain 5 dB", FRAC_1_SQRT_2),
        ("Filter 1: ON LP Fc 100 Hz", FRAC_1_SQRT_2),
        ("Filter 1: ON HPQ Fc 100 Hz Q 0.5", 0.5),
        ("Filter 1: ON AP Fc 100 Hz Q 2", 2.0),
    ] {
        near(band(text).q, q, 0.000_005);
    }
}

#[test]
fn the_corner_of_a_shelf_becomes_its_center() {
    near(band("Filter: ON LS 12dB Fc 100 Hz Gain 6 dB").hz, 118.850, 0.000_5);
    near(band("Filter: ON HS 12dB Fc 118.850 Hz Gain 6 dB").hz, 100.0, 0.000_5);
    near(band("Filter: ON LS Fc 100 Hz Gain 6 dB Q 0.7").hz, 119.246, 0.000_5);
    near(band("Filter: ON LS Fc 100 Hz Gain 6 dB").hz, 100.0, 0.0);
    near(band("Filter: ON LSC Fc 100 Hz Gain 6 dB Q 0.7").hz, 100.0, 0.0);
}

#[test]
fn responses_are_those_of_equalizer_apo() {
    let peak = "Filter 1: ON PK Fc 100 Hz Gain -3 dB Q 1";
    let low = "Filter 1: ON LSC Fc 105 Hz Gain 5 dB Q 0.7";
    let high = "Filter 1: ON HSC Fc 10000 Hz Gain -1.5 dB Q 0.7";
    for (text, hz, db) in [
        (peak, 50.0, -0.928),
        (peak, 100.0, -3.0),
        (peak, 200.0, -0.928),
        (low, 20.0, 4.989),
        (low, 105.0, 2.5),
        (low, 1_000.0, 0.002),
        (high, 10_000.0, -0.75),
        (high, 20_000.0, -1.496),
    ] {
        near(response(text, hz), db, 0.000_6);
    }
}

#[test]
fn a_file_of_rew_is_read_in_both_locales() {
    let text = "Filter Settings file\n\nRoom EQ V5.20\nDated: 22-Nov-2026 18:00:00\n\n\
        Notes:L, at the sofa\n\nEqualiser: Generic\nAverage 1\n\
        Filter  1: ON  PK       Fc   100,0 Hz  Gain  -3,0 dB  Q  1,00\n\
        Filter  2: ON  Modal    Fc   35.5 Hz  Gain -10.0 dB  Q  4.20  T60 target  300 ms\n\
        Filter  3: OFF PK       Fc   200.0 Hz  Gain  -3.0 dB  Q  1.00\n\
        Filter  4: ON  None   \n";
    assert_eq!(warnings(text, STRICT), []);
    let bands = chain(text).left.bands;
    let facts = bands.iter().map(|band| (band.hz, band.gain.get(), band.q));
    assert_eq!(facts.collect::<Vec<_>>(), [(100.0, -3.0, 1.0), (35.5, -10.0, 4.2)]);
}

#[test]
fn channels_delays_gains_and_maps_are_read() {
    let text = "\u{feff}Copy: L=R R=L\r\nPreamp: -2 dB\r\nPreamp: -1,5 dB\r\n\
        Channel: L\r\nPreamp: -1 dB\r\nDelay: 96 samples\r\nFilter: ON NO Fc 50 Hz Q 10\r\n\
        Channel: r\r\nDelay: 0.5 ms\r\nChannel: all\r\nFilter: ON HP Fc 30 Hz\r\n";
    let chain = chain(text);
    assert_eq!((chain.map, chain.preamp), (ChannelMap::Swap, Some(Db::new(-3.5))));
    assert_eq!((chain.left.gain, chain.right.gain), (Db::new(-1.0), Db::ZERO));
    assert_eq!((chain.left.bands.len(), chain.right.bands.len()), (2, 1));
    let delays = [chain.left.delay, chain.right.delay];
    assert_eq!(delays, [Span::from_micros(1_500), Span::ZERO], "an offset");
    assert_eq!(warnings(text, STRICT)[0].0, 9, "{:?}", warnings(text, STRICT));
    for (mix, map) in [
        ("R=L", ChannelMap::Left),
        ("L=R", ChannelMap::Right),
        ("L=0.5*L+0.5*R R=0.5*L+0.5*R", ChannelMap::Mono),
        ("1=0.501*1+0.501*2 2=0.501*1+0.501*2", ChannelMap::Mono),
        ("L=L", ChannelMap::Stereo),
    ] {
        assert_eq!(self::chain(&format!("Copy: {mix}")).map, map, "{mix}");
    }
}

#[test]
fn what_would_change_the_sound_is_refused_with_its_line() {
    for (text, why) in [
        ("\nConvolution: room.wav", "line 2: `Convolution` is not possible: impulse"),
        ("GraphicEQ: 20 -9.9; 21 -10", "line 1: `GraphicEQ` is not possible"),
        ("Device: Speakers", "`Device` is not possible"),
        ("If: true", "`If` is not possible"),
        ("Filter: ON BP Fc 100 Hz Q 1", "band-pass filter is not possible"),
        ("Filter: ON XY Fc 100 Hz Q 1", "unknown filter type `XY`"),
        ("Filter: PK Fc 100 Hz", "expected `ON` or `OFF`, found `PK`"),
        ("Filter: ON PK Fc 100 Hz Gain 3 dB", "`Q` is missing"),
        ("Filter: ON PK Fc 100 Hz Q 1", "`Gain` is missing"),
        ("Filter: ON PK Gain 3 dB Q 1", "`Fc` is missing"),
        ("Filter: ON PK Fc x Hz Gain 3 dB Q 1", "`Fc` needs a number, not `x`"),
        ("Filter: ON PK Fc 1,000.0 Hz Gain 3 dB Q 1", "needs a number, not `1,000.0`"),
        ("Filter: ON PK Fc 100 Hz Gain 3 dB Q 1 Foo 2", "unknown word `Foo`"),
        ("Filter: ON PK 12dB Fc 100 Hz Gain 3 dB", "only a shelf has a slope"),
        ("Filter: ON PK Fc 100 Hz Gain 25 dB Q 1", "gain_db: 25 dB is not between -24 and 24"),
        ("Filter: ON PK Fc 100 Hz Gain 3 dB Q 21", "q: 21 is not between 0.1 and 20"),
        ("Filter: ON PK Fc 5 Hz Gain 3 dB Q 1", "hz: 5 Hz is not between"),
        ("Filter: ON PK Fc 0 Hz Gain 3 dB BW Oct 1", "hz: 0 Hz is not between"),
        ("Preamp: 41 dB", "41 dB: a gain is at most 40 dB"),
        ("Channel: C", "channel `C`: use L, R or all"),
        ("Channel:", "`Channel` is missing"),
        ("Delay: 101 ms", "delay `101 ms`: use 0 to 100 ms"),
        ("Delay: -1 samples", "delay `-1 samples`"),
        ("Delay: 1", "delay `1`"),
        ("Copy: L=L+R R=L+R", "only a swap, a copy or the average"),
        ("Copy: L=C", "only a swap"),
        ("Filter: ON HP Fc 30 Hz\nCopy: L=R", "line 2: channels can only be mixed before"),
        ("filters:\n  eq:", "a configuration of CamillaDSP"),
        ("PK\0\u{1}", "this is no text"),
    ] {
        let found = problems(text);
        assert!(found[0].contains(why), "{text}: {found:?}");
    }
    let many = "Filter: ON HP Fc 30 Hz\n".repeat(MAX_BANDS + 2);
    let found = problems(&many);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("line 17: a channel has at most 16 bands"), "{found:?}");
}

#[test]
fn what_is_passed_over_is_reported_with_its_line() {
    let text = "Hello\nFilter: ON PK Fc 22000 Hz Gain 3 dB Q 1\nName: x\nFilter: ON NO Fc 60 Hz";
    let found = warnings(text, STRICT);
    assert_eq!(found.iter().map(|one| one.0).collect::<Vec<_>>(), [1, 2, 3, 4], "{found:?}");
    assert!(found[1].1.contains("0.45 times the sample rate; the band is left out"));
    assert!(found[3].1.contains("q: 30 is not between 0.1 and 20; the nearest"));
    let lenient = ImportOptions { lenient: true, ..STRICT };
    let text = "Filter: ON PK Fc 100 Hz Gain 60 dB Q 100";
    assert_eq!(warnings(text, lenient).len(), 2);
    let band = import(text, lenient).unwrap().chain.left.bands[0];
    assert_eq!((band.gain, band.q), (Db::new(24.0), 20.0));
}

#[test]
fn a_text_beyond_the_limits_is_refused() {
    assert!(import(&"\n".repeat(MAX_TEXT_LINES), STRICT).is_ok());
    assert!(problems(&"\n".repeat(MAX_TEXT_LINES + 1))[0].contains("more than 512 lines"));
    assert!(import(&"#".repeat(MAX_TEXT_BYTES), STRICT).is_ok());
    assert!(problems(&"#".repeat(MAX_TEXT_BYTES + 1))[0].contains("more than 262144 bytes"));
}

fn bands() -> impl Strategy<Value = Vec<EqualizerBand>> {
    let types = prop::sample::select(&FilterType::ALL[..]);
    let band = (types, 10.0..20_000.0f64, -24.0..24.0f64, 0.1..20.0f64);
    let band = band.prop_map(|(filter_type, hz, gain, q)| EqualizerBand {
        filter_type,
        hz,
        gain: if filter_type.has_gain() { Db::new(gain) } else { Db::ZERO },
        q,
    });
    prop::collection::vec(band, 0..=MAX_BANDS)
}

fn channels() -> impl Strategy<Value = ChannelChain> {
    let gain = prop_oneof![Just(0.0), -24.0..24.0f64];
    (gain, bands()).prop_map(|(gain, bands)| ChannelChain {
        gain: Db::new(gain),
        delay: Span::ZERO,
        bands,
    })
}

fn chains() -> impl Strategy<Value = SoundChain> {
    let maps = prop::sample::select(&ChannelMap::ALL[..5]);
    let delay = 0..=MAX_DELAY.as_nanos();
    let preamp = prop::option::of(-40.0..40.0f64);
    (maps, preamp, channels(), prop::option::of(channels()), delay).prop_map(
        |(map, preamp, left, right, delay)| {
            let mut chain = SoundChain { map, preamp: preamp.map(Db::new), ..Default::default() };
            chain.right = right.unwrap_or_else(|| left.clone());
            chain.left = left;
            chain.right.delay = Span::from_nanos(delay);
            chain
        },
    )
}

proptest! {
    #[test]
    fn an_exported_chain_is_read_back(chain in chains()) {
        let text = export(&chain);
        let again = import(&text, STRICT).map(|one| (one.chain, one.warnings));
        prop_assert_eq!(again, Ok((chain, vec![])), "{}", text);
    }

    #[test]
    fn any_text_is_survived(
        text in "(Filter|Preamp|Copy|Delay|Channel)?[ :0-9a-zA-Z=+*.,/\n-]{0,120}",
    ) {
        for lenient in [false, true] {
            if let Ok(imported) = import(&text, ImportOptions { rate: RATE, lenient }) {
                prop_assert!(imported.chain.validate(RATE).is_ok());
                let _program = SoundProgram::new(&imported.chain, RATE, CEILING);
            }
        }
    }

    #[test]
    fn without_a_preamp_no_response_is_above_full_scale(
        mut chain in chains(),
        hz in 20.0..20_000f64,
    ) {
        chain.preamp = None;
        // Between its points the search can miss the top of several narrow bands by a little.
        for db in chain.response(hz, RATE) {
            prop_assert!(db.get() < 0.5, "{} dB at {hz} Hz", db.get());
        }
        chain.headroom = Headroom::Limiter;
        prop_assert_eq!(chain.effective_preamp(RATE), Db::ZERO);
    }
}

/// The level of a sine of this frequency in each channel, after it has settled, in dB.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a test signal")]
fn measured(chain: &SoundChain, layout: ChannelLayout, hz: f64) -> Vec<f64> {
    let program = SoundProgram::new(chain, RATE, CEILING);
    let mut processor = SoundProcessor::new(RATE, layout, &program);
    let channels = layout.channels();
    let sine = |frame: usize| (2.0 * PI * hz / 48_000.0 * frame as f64).sin_cos();
    let frames = 96_000;
    let mut sound: Vec<f32> =
        (0..frames).flat_map(|frame| vec![0.25 * sine(frame).0 as f32; channels]).collect();
    processor.process(&mut sound);
    let level = |channel: usize| {
        let (mut re, mut im) = (0.0, 0.0);
        for frame in frames / 2..frames {
            let (sin, cos) = sine(frame);
            let sample = f64::from(sound[frame * channels + channel]);
            re += sample * sin;
            im += sample * cos;
        }
        20.0 * (re.hypot(im) / (frames as f64 / 2.0) * 8.0).log10()
    };
    (0..channels).map(level).collect()
}

#[test]
fn the_processor_has_the_response_of_the_chain_on_every_layout() {
    let text = "Channel: L\nPreamp: -2 dB\nFilter: ON PK Fc 100 Hz Gain 6 dB Q 1\n\
        Filter: ON HSC Fc 2000 Hz Gain -4 dB Q 0.7\nFilter: ON NO Fc 50 Hz Q 5\n\
        Channel: R\nFilter: ON HP Fc 300 Hz Q 0.7";
    let chain = chain(text);
    assert!(chain.effective_preamp(RATE).get() < -3.0, "the peak is lowered");
    for hz in [100.0, 1_000.0, 9_000.0] {
        let [left, right] = chain.response(hz, RATE).map(Db::get);
        let stereo = measured(&chain, ChannelLayout::STEREO, hz);
        near(stereo[0], left, 0.000_5);
        near(stereo[1], right, 0.000_5);
        near(measured(&chain, ChannelLayout::MONO, hz)[0], left, 0.000_5);
        let three = measured(&chain, ChannelLayout::new(3).unwrap(), hz);
        near(three[2], chain.effective_preamp(RATE).get(), 0.000_5);
        let same = SoundChain::of_bands(chain.left.bands.clone());
        let five = measured(&same, ChannelLayout::new(5).unwrap(), hz);
        near(five[4], same.response(hz, RATE)[0].get(), 0.000_5);
    }
}

#[test]
fn a_delay_is_one_between_the_channels() {
    let mut chain = SoundChain::default();
    (chain.left.delay, chain.right.delay) = (Span::from_millis(12), Span::from_millis(10));
    let program = SoundProgram::new(&chain, RATE, CEILING);
    let mut processor = SoundProcessor::new(RATE, ChannelLayout::STEREO, &program);
    let mut sound = vec![0.0; 2 * 480];
    sound[..2].fill(1.0);
    processor.process(&mut sound);
    let at = |channel| sound.iter().skip(channel).step_by(2).position(|x| *x > 0.5);
    assert_eq!((at(0), at(1)), (Some(96), Some(0)));
    assert_eq!(processor.latency(), Frames::ZERO);
}

#[test]
fn the_limiter_keeps_the_ceiling_and_its_latency_is_known() {
    let mut chain = chain("Filter: ON LSC Fc 200 Hz Gain 12 dB Q 0.7");
    chain.headroom = Headroom::Limiter;
    let program = SoundProgram::new(&chain, RATE, CEILING);
    let mut processor = SoundProcessor::new(RATE, ChannelLayout::MONO, &program);
    let mut sound: Vec<f32> = (0..48_000u16).map(|n| 0.9 * (f32::from(n) * 0.01).sin()).collect();
    processor.process(&mut sound);
    let peak = sound.iter().fold(0.0f32, |peak, x| peak.max(x.abs()));
    assert!(Db::from_amplitude(peak.into()).get() < CEILING.get());
    assert_eq!(processor.latency(), Frames(240));
    chain.headroom = Headroom::Lower;
    processor.set(&SoundProgram::new(&chain, RATE, CEILING));
    processor.process(&mut [0.0; 9_600]);
    assert_eq!(processor.latency(), Frames::ZERO);
}

#[test]
fn nothing_to_do_passes_bit_by_bit_and_a_change_has_no_step() {
    let mut processor = SoundProcessor::new(RATE, ChannelLayout::STEREO, &SoundProgram::identity());
    let mut sound = [0.1, f32::MIN_POSITIVE / 2.0, -0.0];
    let before = sound.map(f32::to_bits);
    processor.process(&mut sound);
    assert_eq!(sound.map(f32::to_bits), before);
    // A constant is louder by 6 dB after each change: every step is smaller than without a fade.
    let mut last = 0.25;
    for gain in [6.0, -6.0, 0.0] {
        let mut louder = SoundChain { preamp: Some(Db::ZERO), ..SoundChain::default() };
        (louder.left.gain, louder.right.gain) = (Db::new(gain), Db::new(gain));
        processor.set(&SoundProgram::new(&louder, RATE, CEILING));
        let mut sound = vec![0.25; 2 * 9_700];
        processor.process(&mut sound);
        for x in sound {
            assert!((x - last).abs() < 0.000_1, "{last} {x}");
            last = x;
        }
        near(f64::from(last), 0.25 * Db::new(gain).amplitude(), 1e-6);
    }
    assert!(processor.is_idle());
}

#[test]
fn changes_in_a_row_end_in_the_last_and_what_is_not_finite_is_silent() {
    let mut processor = SoundProcessor::new(RATE, ChannelLayout::MONO, &SoundProgram::identity());
    for text in ["Preamp: -1 dB", "Preamp: -2 dB", "Preamp: -20 dB"] {
        processor.set(&SoundProgram::new(&chain(text), RATE, CEILING));
    }
    let mut sound = vec![1.0; 2 * 9_700];
    processor.process(&mut sound);
    near(f64::from(sound[19_399]), 0.1, 1e-7);
    let mut bad = [f32::NAN, f32::INFINITY, 0.5];
    processor.process(&mut bad);
    assert!(bad.iter().all(|x| x.is_finite()));
}

#[test]
fn presets_are_valid_at_every_rate_of_a_station() {
    for preset in SoundPreset::ALL {
        let Some(chain) = preset.chain() else {
            assert_eq!(preset, SoundPreset::Flat);
            continue;
        };
        for hz in [22_050, 44_100, 192_000] {
            chain.validate(SampleRate::new(hz).unwrap()).unwrap();
        }
    }
}
