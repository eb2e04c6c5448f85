//! The state of a meter: pieces, albums, serialization, resets.

use aulos_core::{Frames, SampleRate};
use proptest::prelude::*;

use super::super::{
    ChannelPosition, Measurement, Meter, MeterConfig, MeterHistory, MeterMode, RangeHop,
};
use super::{config, meter, programme};

fn measured(config: &MeterConfig, signal: &[f32]) -> Measurement {
    let mut meter = Meter::new(config.clone()).unwrap();
    meter.add(signal);
    meter.measurement()
}

fn assert_same(ours: &Measurement, whole: &Measurement) {
    let close = |a: f64, b: f64| assert!(a == b || (a - b).abs() < 1e-10, "{a} {b}");
    close(ours.integrated().get(), whole.integrated().get());
    close(ours.range().get(), whole.range().get());
    close(ours.max_momentary().get(), whole.max_momentary().get());
    close(ours.max_short_term().get(), whole.max_short_term().get());
    assert_eq!(ours.sample_peak(), whole.sample_peak());
    assert_eq!(ours.true_peak(), whole.true_peak());
    assert_eq!((ours.frames(), ours.rejected()), (whole.frames(), whole.rejected()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn pieces_give_the_whole_in_any_order(
        seed in 1u64..1_000,
        cuts in prop::collection::btree_set(1usize..140, 1..5),
        tenth in any::<bool>(),
        histogram in any::<bool>(),
    ) {
        let hz = 44_100;
        let mut config = config(hz, 2, MeterMode::ALL);
        config.range_hop = if tenth { RangeHop::Tenth } else { RangeHop::Second };
        if histogram {
            config.history = MeterHistory::Histogram;
        }
        let mut signal = programme(seed, hz, 2, 14 * hz as usize + 333);
        signal[9_999] = f32::NAN;
        let whole = measured(&config, &signal);
        let hop = hz as usize / 10;
        let mut edges: Vec<usize> = vec![0];
        edges.extend(cuts.iter().map(|cut| cut * hop));
        edges.push(signal.len() / 2);
        let mut pieces: Vec<Measurement> = edges
            .windows(2)
            .map(|edge| {
                let mut meter = Meter::new(config.clone()).unwrap();
                let before = meter.begin_piece(Frames(edge[0] as u64)).0 as usize;
                meter.seed(&signal[2 * before..2 * edge[0]]);
                meter.add(&signal[2 * edge[0]..2 * edge[1]]);
                meter.measurement()
            })
            .collect();
        if seed % 2 == 0 {
            pieces.reverse();
        }
        let mut merged = pieces.remove(0);
        for piece in &pieces {
            merged.merge(piece).unwrap();
        }
        assert_same(&merged, &whole);
    }

    #[test]
    fn bytes_keep_everything_and_foreign_bytes_are_refused(
        seed in 1u64..1_000,
        histogram in any::<bool>(),
        at in any::<prop::sample::Index>(),
        flip in 1u8..,
    ) {
        let mut config = config(8_000, 3, MeterMode::ALL);
        if histogram {
            config.history = MeterHistory::Histogram;
        }
        let measurement = measured(&config, &programme(seed, 8_000, 3, 40_000));
        let bytes = measurement.to_bytes();
        let read = Measurement::from_bytes(&bytes).unwrap();
        assert_same(&read, &measurement);
        prop_assert_eq!(&read.to_bytes(), &bytes);
        let mut damaged = bytes.clone();
        damaged[at.index(bytes.len())] ^= flip;
        if let Ok(mut read) = Measurement::from_bytes(&damaged) {
            // Whatever its content, reading it works.
            let _ = (read.integrated(), read.range(), read.merge(&measurement));
        }
        prop_assert!(Measurement::from_bytes(&bytes[..at.index(bytes.len())]).is_err());
    }

    #[test]
    fn no_bytes_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut bytes = bytes;
        // The version is right, and the channel count fits.
        for (at, value) in [(0, 1), (33, 1)] {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        prop_assert!(Measurement::from_bytes(&bytes).is_err());
    }
}

#[test]
fn half_minutes_of_a_long_programme_give_the_whole() {
    for channels in [1, 2, 6] {
        let (hz, piece) = (48_000, 30 * 48_000);
        let frames = 2 * piece + 6 * hz + 1_234;
        let signal = programme(channels as u64, hz as u32, channels, frames);
        let config = config(hz as u32, channels, MeterMode::ALL);
        let whole = measured(&config, &signal);
        let pieces = (0..frames).step_by(piece).map(|start| {
            let mut meter = Meter::new(config.clone()).unwrap();
            let before = meter.begin_piece(Frames(start as u64)).0 as usize;
            meter.seed(&signal[channels * before..channels * start]);
            meter.add(&signal[channels * start..channels * frames.min(start + piece)]);
            meter.measurement()
        });
        let joined = Measurement::join(pieces).unwrap().unwrap();
        for (name, part, all) in [
            ("integrated", joined.integrated().get(), whole.integrated().get()),
            ("range", joined.range().get(), whole.range().get()),
            ("momentary", joined.max_momentary().get(), whole.max_momentary().get()),
            ("short-term", joined.max_short_term().get(), whole.max_short_term().get()),
        ] {
            assert!((part - all).abs() < 1e-12, "{channels} channels, {name}: {part} {all}");
        }
        assert_eq!(joined.sample_peak(), whole.sample_peak());
        assert_eq!(joined.true_peak(), whole.true_peak());
        assert_eq!(joined.frames(), frames as u64);
    }
}

#[test]
fn an_album_is_its_tracks_one_after_the_other() {
    let tracks = [(1, 48_000), (2, 44_100), (3, 48_000)].map(|(seed, hz)| {
        let mut meter = meter(hz, 2, MeterMode::ALL);
        meter.add(&programme(seed, hz, 2, 8 * hz as usize));
        meter
    });
    let mut album = tracks[0].measurement();
    for track in &tracks[1..] {
        album.merge(&track.measurement()).unwrap();
    }
    let together = super::super::integrated_of(&tracks).get();
    assert!((album.integrated().get() - together).abs() < 1e-11);
    let range = super::super::range_of(&tracks).get();
    assert!((album.range().get() - range).abs() < 1e-11);
    let mut binned = config(48_000, 2, MeterMode::ALL);
    binned.history = MeterHistory::Histogram;
    assert!(album.merge(&measured(&binned, &[])).is_err());
}

#[test]
fn after_a_reset_nothing_is_left() {
    let signal = programme(9, 48_000, 2, 250_000);
    let fresh = measured(&config(48_000, 2, MeterMode::ALL), &signal);
    let mut meter = meter(48_000, 2, MeterMode::ALL);
    meter.add(&programme(8, 48_000, 2, 190_001));
    meter.reset();
    assert_eq!(meter.integrated().unwrap(), aulos_core::Lufs::SILENCE);
    meter.add(&signal);
    assert_eq!(meter.measurement(), fresh);
}

#[test]
fn a_programme_continues_at_another_rate() {
    let mut meter = meter(48_000, 2, MeterMode::ALL);
    meter.add(&programme(1, 48_000, 2, 480_000));
    let (before, peak) = (meter.integrated(), meter.true_peak(0));
    let stereo = [ChannelPosition::LEFT, ChannelPosition::RIGHT];
    meter.change_format(SampleRate::HZ_44100, &stereo).unwrap();
    assert_eq!((meter.integrated(), meter.true_peak(0)), (before, peak));
    assert!(meter.change_format(SampleRate::HZ_44100, &[]).is_err());
    meter.add(&programme(2, 44_100, 2, 441_000));
    assert_ne!(meter.integrated(), before);
}

#[test]
fn a_bounded_history_drops_the_oldest_blocks() {
    let mut bounded = config(8_000, 1, MeterMode::ALL);
    bounded.history = MeterHistory::Bounded { ms: 4_000 };
    let loud = programme(1, 8_000, 1, 80_000);
    let quiet: Vec<f32> = loud.iter().map(|x| x * 0.01).collect();
    let mut meter = Meter::new(bounded).unwrap();
    meter.add(&loud);
    let before = meter.integrated().unwrap().get();
    meter.add(&quiet);
    assert!((before - meter.integrated().unwrap().get()) > 30.0);
}

#[test]
fn a_longer_window_can_be_enabled() {
    let mut long = config(48_000, 2, MeterMode::MOMENTARY);
    long.max_window_ms = 10_000;
    let mut meter = Meter::new(long).unwrap();
    let signal = programme(5, 48_000, 2, 600_000);
    meter.add(&signal);
    let theirs = {
        let mut judge = ebur128::EbuR128::new(2, 48_000, ebur128::Mode::M).unwrap();
        judge.set_max_window(10_000).unwrap();
        judge.add_frames_f32(&signal).unwrap();
        judge.loudness_window(10_000).unwrap()
    };
    assert!((meter.window(10_000).unwrap().get() - theirs).abs() < 1e-9);
    assert_eq!(meter.window(10_200), None);
    meter.set_max_window(0).unwrap();
    assert_eq!(meter.window(10_000), None);
}

#[test]
fn a_coarse_past_reads_the_same_at_the_end_of_a_hop_and_nearly_so_between() {
    let hz = 48_000;
    let signal = programme(5, hz, 2, 12 * hz as usize);
    let exact = config(hz, 2, MeterMode::ALL);
    let coarse = MeterConfig { coarse: true, ..exact.clone() };
    let [mut exact, mut coarse] = [exact, coarse].map(|config| Meter::new(config).unwrap());
    let close = |a: Option<aulos_core::Lufs>, b: Option<aulos_core::Lufs>, most: f64| {
        let (a, b) = (a.unwrap().get(), b.unwrap().get());
        assert!(a == b || (a - b).abs() < most, "{a} {b}");
    };
    for (n, call) in signal.chunks(2 * 1_200).enumerate() {
        if n == 200 {
            exact.start_at(Frames(0));
            coarse.start_at(Frames(0));
        }
        exact.add(call);
        coarse.add(call);
        let most = if n % 4 == 3 { 1e-9 } else { 0.5 };
        close(coarse.momentary(), exact.momentary(), most);
        close(coarse.short_term(), exact.short_term(), most);
        // The level jumps by 20 dB and more within these windows.
        close(coarse.max_momentary(), exact.max_momentary(), 0.5);
        close(coarse.max_short_term(), exact.max_short_term(), 0.1);
    }
    assert_eq!(coarse.integrated(), exact.integrated());
    assert_eq!(coarse.range(), exact.range());
}

#[test]
fn an_absurd_sample_leaves_a_coarse_past_finite() {
    let mut config = config(48_000, 1, MeterMode::ALL);
    config.coarse = true;
    let mut meter = Meter::new(config).unwrap();
    let mut signal = vec![0.01f32; 48_000];
    signal[30_000] = 1e30;
    meter.add(&signal);
    meter.add(&vec![0.01f32; 5 * 48_000 + 77]);
    assert!(meter.short_term().unwrap().get() < 0.0, "{:?}", meter.short_term());
    assert!(meter.max_short_term().unwrap().get().is_finite());
}
