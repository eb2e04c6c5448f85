//! Figures compared with those of the crate `ebur128`, at random times.

use proptest::prelude::*;

use super::super::{Meter, MeterKernel, MeterMode, NonFinitePolicy};
use super::{KERNELS, config, meter, noise, programme};

/// The reference meter, with the same channel positions as ours.
fn reference_meter(hz: u32, channels: usize) -> ebur128::EbuR128 {
    use ebur128::Channel::{Center, Left, LeftSurround, Mp090, Mp135, Mp180, Right, RightSurround};
    use ebur128::Channel::{Mm090, Mm135, Unused};
    let mut judge = ebur128::EbuR128::new(channels as u32, hz, ebur128::Mode::all()).unwrap();
    let map: &[ebur128::Channel] = match channels {
        1 => &[Center],
        2 => &[Left, Right],
        3 => &[Left, Right, Center],
        4 => &[Left, Right, LeftSurround, RightSurround],
        5 => &[Left, Right, Center, LeftSurround, RightSurround],
        6 => &[Left, Right, Center, Unused, LeftSurround, RightSurround],
        7 => &[Left, Right, Center, Unused, Mp180, Mp090, Mm090],
        _ => &[Left, Right, Center, Unused, Mp135, Mm135, Mp090, Mm090],
    };
    judge.set_channel_map(map).unwrap();
    judge
}

/// 1e-9 LU up to 48 kHz. Above, the reference's single section of fourth order loses precision with
/// the fourth power of the rate, which two sections of second order do not: errors of loud passages
/// then show in quiet ones after them, the more the quieter those are.
fn assert_close(what: &str, hz: u32, ours: f64, theirs: f64) {
    let ratio = f64::from(hz) / 48_000.0;
    let tolerance = if ratio > 1.0 { 4e-9 * ratio.powi(4) } else { 1e-9 };
    let off = (ours - theirs).abs();
    let same = ours == theirs || off < tolerance || (ours < -180.0 && theirs < -180.0);
    assert!(same, "{what} at {hz}: {ours} {theirs} {off:e}");
}

fn compare_windows(ours: &Meter, theirs: &ebur128::EbuR128) {
    let hz = theirs.rate();
    let m = theirs.loudness_momentary().unwrap();
    assert_close("momentary", hz, ours.momentary().unwrap().get(), m);
    let s = theirs.loudness_shortterm().unwrap();
    assert_close("short-term", hz, ours.short_term().unwrap().get(), s);
    let w = theirs.loudness_window(1234).unwrap();
    assert_close("window", hz, ours.window(1234).unwrap().get(), w);
}

fn compare(ours: &Meter, theirs: &ebur128::EbuR128, channels: usize) {
    compare_windows(ours, theirs);
    let hz = theirs.rate();
    let i = theirs.loudness_global().unwrap();
    assert_close("integrated", hz, ours.integrated().unwrap().get(), i);
    assert_close("range", hz, ours.range().unwrap().get(), theirs.loudness_range().unwrap());
    let threshold = ours.relative_threshold().unwrap().get();
    assert_close("threshold", hz, threshold, theirs.relative_threshold().unwrap());
    for channel in 0..channels {
        let (sample, between) =
            (ours.sample_peak(channel).unwrap(), ours.true_peak(channel).unwrap());
        assert_close("sample peak", hz, sample, theirs.sample_peak(channel as u32).unwrap());
        let peak = theirs.true_peak(channel as u32).unwrap();
        assert!((between - peak).abs() <= 4e-6 * peak, "true peak: {between} {peak}");
    }
}

fn run_both(
    hz: u32,
    channels: usize,
    kernel: MeterKernel,
    seed: u64,
    seconds: f64,
    largest: usize,
) {
    let frames = (f64::from(hz) * seconds) as usize;
    let signal = programme(seed, hz, channels, frames);
    let histogram = seed.is_multiple_of(5);
    let mut theirs = reference_meter(hz, channels);
    if !histogram {
        let map: Vec<_> = theirs.channel_map().to_vec();
        let modes = ebur128::Mode::all() - ebur128::Mode::HISTOGRAM;
        theirs = ebur128::EbuR128::new(channels as u32, hz, modes).unwrap();
        theirs.set_channel_map(&map).unwrap();
    }
    let mut ours = config(hz, channels, MeterMode::ALL);
    ours.kernel = kernel;
    if histogram {
        ours.history = super::super::MeterHistory::Histogram;
    }
    let mut ours = Meter::new(ours).unwrap();
    let mut draw = noise(seed + 1);
    let (mut rest, mut unread) = (&signal[..], 0);
    // The reference sums whole windows at every reading: after few frames that is slow.
    let spacing = if largest < 64 { hz as usize / 100 } else { 0 };
    while !rest.is_empty() {
        let frames = 1 + (draw().abs() * largest as f64) as usize;
        let (call, behind) = rest.split_at((frames * channels).min(rest.len()));
        ours.add(call);
        theirs.add_frames_f32(call).unwrap();
        rest = behind;
        unread += frames;
        if draw() > 0.7 && unread >= spacing {
            compare_windows(&ours, &theirs);
            unread = 0;
        }
    }
    compare(&ours, &theirs, channels);
}

#[test]
fn every_kernel_agrees_at_common_rates_and_layouts() {
    for (index, hz) in [44_100, 48_000, 96_000, 192_000, 8_000, 22_050].into_iter().enumerate() {
        for kernel in KERNELS {
            let seconds = if hz > 50_000 { 4.5 } else { 9.3 };
            run_both(hz, 2, kernel, index as u64 + 1, seconds, 9_000);
        }
    }
    for channels in 1..=8 {
        for kernel in KERNELS {
            run_both(48_000, channels, kernel, channels as u64 + 20, 3.7, 3_000);
        }
    }
}

/// 50 LU below the passage before it, the reference is 1.3e-8 LU off.
#[test]
fn a_quiet_passage_at_a_high_rate_agrees() {
    run_both(81_502, 2, MeterKernel::Best, 272_699, 5.0, 64);
}

#[test]
fn kernels_agree_with_each_other_at_all_rates() {
    for hz in [8_000, 44_100, 48_000, 93_965, 192_000, 768_000] {
        let signal = programme(u64::from(hz), hz, 3, 2 * hz as usize);
        let mut meters = KERNELS.map(|kernel| {
            let mut config = config(hz, 3, MeterMode::ALL);
            config.kernel = kernel;
            Meter::new(config).unwrap()
        });
        for call in signal.chunks(3 * 1_777) {
            let read = meters.each_mut().map(|meter| {
                meter.add(call);
                meter.momentary().unwrap().get()
            });
            assert!((read[1] - read[0]).abs() < 2e-10, "{hz} {read:?}");
            assert!((read[2] - read[0]).abs() < 2e-10, "{hz} {read:?}");
        }
        let peaks = meters.each_ref().map(|meter| [0, 1, 2].map(|c| meter.true_peak(c)));
        assert_eq!((&peaks[1], &peaks[2]), (&peaks[0], &peaks[0]), "{hz}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn random_programmes_in_ragged_calls_agree(
        hz in 4_000u32..100_000,
        channels in 1usize..=8,
        seed in 1u64..1_000_000,
        largest in prop::sample::select(vec![1usize, 7, 64, 480, 5_000, 50_000]),
    ) {
        run_both(hz, channels, MeterKernel::Best, seed, 5.0, largest);
    }
}

#[test]
fn all_sample_types_and_planes_agree() {
    let narrow = programme(3, 48_000, 2, 200_000);
    let short: Vec<i16> = narrow.iter().map(|x| (x * 30_000.0) as i16).collect();
    let from_short: Vec<f32> = short.iter().map(|&x| f32::from(x) / 32_768.0).collect();
    let long: Vec<i32> = short.iter().map(|&x| i32::from(x) << 16).collect();
    let wide: Vec<f64> = from_short.iter().map(|&x| f64::from(x)).collect();
    let mut meters: Vec<Meter> = (0..8).map(|_| meter(48_000, 2, MeterMode::ALL)).collect();
    meters[0].add(&short);
    meters[1].add(&from_short);
    meters[2].add(&long);
    meters[3].add(&wide);
    macro_rules! planar {
        ($meter:expr, $all:expr) => {
            let planes = [0, 1]
                .map(|channel| $all.iter().skip(channel).step_by(2).copied().collect::<Vec<_>>());
            $meter.add_planar(&[&planes[0], &planes[1]]);
        };
    }
    planar!(meters[4], short);
    planar!(meters[5], from_short);
    planar!(meters[6], long);
    planar!(meters[7], wide);
    let first = meters[0].measurement();
    for other in &meters[1..] {
        let other = other.measurement();
        let (ours, theirs) = (other.integrated().get(), first.integrated().get());
        assert!((ours - theirs).abs() < 1e-11, "{ours} {theirs}");
        assert_eq!(other.sample_peak(), first.sample_peak());
        assert_eq!(other.true_peak(), first.true_peak());
        assert!((other.max_momentary() - first.max_momentary()).get().abs() < 1e-11);
    }
}

#[test]
fn what_is_not_finite_is_silence_and_is_counted() {
    for kernel in KERNELS {
        let mut config = config(48_000, 2, MeterMode::ALL);
        config.kernel = kernel;
        let mut dirty = programme(4, 48_000, 2, 240_000);
        for (index, value) in
            [(777, f32::NAN), (50_001, f32::INFINITY), (399_999, f32::NEG_INFINITY)]
        {
            dirty[index] = value;
        }
        let clean: Vec<f32> = dirty.iter().map(|x| if x.is_finite() { *x } else { 0.0 }).collect();
        let mut meters = [config.clone(), config].map(|config| Meter::new(config).unwrap());
        meters[0].add(&dirty);
        meters[1].add(&clean);
        assert_eq!((meters[0].rejected(), meters[1].rejected()), (3, 0));
        assert_eq!(meters[0].integrated(), meters[1].integrated());
        assert_eq!(meters[0].true_peak(0), meters[1].true_peak(0));
        assert_eq!(meters[0].momentary(), meters[1].momentary());
        let mut wide = Meter::new(meters[0].config().clone()).unwrap();
        wide.add(&[f64::MAX; 96_000]);
        wide.add(&(0..96_000).map(|n| 0.1 * (f64::from(n) * 0.3).sin()).collect::<Vec<_>>());
        assert_eq!(wide.rejected(), 96_000);
        assert!(wide.momentary().unwrap().get().is_finite());
    }
}

#[test]
fn what_is_not_finite_is_counted_in_channels_that_do_not_count() {
    let clean = programme(4, 48_000, 6, 96_000);
    for kernel in KERNELS {
        for at in [0, 100, 4_799, 5_000, 9_601, 50_000, 95_999] {
            let mut config = config(48_000, 6, MeterMode::ALL);
            config.kernel = kernel;
            let mut meters = [config.clone(), config].map(|config| Meter::new(config).unwrap());
            let mut dirty = clean.clone();
            dirty[6 * at + 3] = f32::INFINITY;
            for (meter, signal) in meters.iter_mut().zip([&dirty, &clean]) {
                signal.chunks(6 * 9_700).for_each(|call| meter.add(call));
            }
            assert_eq!((meters[0].rejected(), meters[1].rejected()), (1, 0), "{at}");
            assert_eq!(meters[0].integrated(), meters[1].integrated());
            assert!(meters[0].true_peak(3).unwrap() < 2.0);
        }
    }
}

#[test]
fn a_non_finite_value_affects_later_values_as_in_libebur128() {
    for kernel in KERNELS {
        let mut config = config(48_000, 2, MeterMode::ALL);
        (config.kernel, config.non_finite) = (kernel, NonFinitePolicy::Propagate);
        let mut meter = Meter::new(config).unwrap();
        meter.add(&programme(5, 48_000, 2, 96_000));
        let before = meter.integrated();
        meter.add(&[f32::NAN, 0.5]);
        meter.add(&programme(6, 48_000, 2, 96_000));
        assert_eq!(meter.integrated(), before);
        assert!(meter.window_energy(19_200).unwrap().is_nan());
    }
}

#[test]
fn last_true_peak_is_that_of_the_last_call() {
    for kernel in KERNELS {
        let mut ours = config(48_000, 2, MeterMode::TRUE_PEAK);
        (ours.kernel, ours.call_peaks) = (kernel, true);
        let mut ours = Meter::new(ours).unwrap();
        let mode = ebur128::Mode::TRUE_PEAK;
        let mut theirs = ebur128::EbuR128::new(2, 48_000, mode).unwrap();
        for (index, call) in programme(7, 48_000, 2, 30_000).chunks(2 * 1_234).enumerate() {
            ours.add(call);
            theirs.add_frames_f32(call).unwrap();
            for channel in 0..2 {
                let ours = ours.last_true_peak(channel).unwrap();
                let theirs = theirs.prev_true_peak(channel as u32).unwrap();
                assert!((ours - theirs).abs() <= 4e-6 * theirs, "{index}: {ours} {theirs}");
            }
        }
    }
}

#[test]
fn modes_that_are_not_enabled_return_none() {
    let mut peaks = meter(48_000, 2, MeterMode::SAMPLE_PEAK);
    peaks.add(&[0.25f32, -0.5]);
    assert_eq!((peaks.sample_peak(0), peaks.sample_peak(1)), (Some(0.25), Some(0.5)));
    assert_eq!((peaks.sample_peak(2), peaks.true_peak(0)), (None, None));
    assert_eq!((peaks.momentary(), peaks.integrated(), peaks.range()), (None, None, None));
    let momentary = meter(48_000, 2, MeterMode::MOMENTARY);
    assert!(momentary.momentary().is_some() && momentary.short_term().is_none());
    assert!(momentary.max_momentary().is_none());
}
