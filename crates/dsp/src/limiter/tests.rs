#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "test signals")]

use super::*;

fn noise(seed: u32, count: usize, level: f32) -> Vec<f32> {
    let mut state = seed;
    let mut draw = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..count).map(|_| level * draw()).collect()
}

fn limiter(hz: u32, channels: usize, ceiling: f64) -> Limiter {
    let layout = ChannelLayout::new(channels).unwrap();
    Limiter::new(SampleRate::new(hz).unwrap(), layout, Db::new(ceiling))
}

#[test]
fn a_signal_below_the_ceiling_is_only_delayed_by_the_stated_latency() {
    for hz in [8_000, 44_100, 48_000, 96_000, 192_000] {
        let mut limiter = limiter(hz, 2, -1.0);
        let input = noise(1, 2 * 5_000, 0.3);
        let mut block = input.clone();
        for part in block.chunks_mut(2 * 777) {
            limiter.process(part);
        }
        let late = 2 * limiter.latency().as_usize();
        assert!(block[..late].iter().all(|x| *x == 0.0));
        assert_eq!(block[late..], input[..input.len() - late]);
        assert!(hz < 44_100 || limiter.latency().0 == u64::from(hz) / 200);
    }
}

#[test]
fn the_size_of_calls_and_the_kernel_change_nothing() {
    let input: Vec<f32> =
        noise(2, 6 * 9_000, 1.0).iter().enumerate().map(|(n, x)| x * (n / 7_000) as f32).collect();
    let mut whole = input.clone();
    let make = |level| {
        let layout = ChannelLayout::SURROUND_5_1;
        Limiter::with_level(SampleRate::HZ_48000, layout, Db::new(-1.0), level)
    };
    make(best_level()).process(&mut whole);
    for calls in [1, 5, 16, 97, 1_500] {
        let mut limiter = make(best_level());
        let mut parts = input.clone();
        parts.chunks_mut(6 * calls).for_each(|part| limiter.process(part));
        assert_eq!(parts, whole, "{calls}");
    }
    let mut plain = input;
    make(SimdLevel::Scalar).process(&mut plain);
    assert!(plain.iter().zip(&whole).all(|(a, b)| (a - b).abs() < 1e-4));
}

#[test]
fn all_channels_get_one_gain() {
    let mut limiter = limiter(48_000, 2, -6.0);
    let mut block: Vec<f32> = noise(3, 48_000, 2.0).iter().flat_map(|x| [*x, -0.5 * x]).collect();
    limiter.process(&mut block);
    assert!(limiter.reduction() < Db::new(-6.0));
    for frame in block.chunks(2) {
        assert!((frame[0] + 2.0 * frame[1]).abs() <= 1e-6 * frame[0].abs());
    }
}

#[test]
fn nothing_is_ever_clamped_not_even_when_the_ceiling_moves() {
    let mut limiter = limiter(48_000, 2, 0.0);
    for (index, ceiling) in [0.0, -9.0, -1.0, -3.0, 0.0, -9.0].into_iter().enumerate() {
        limiter.set_ceiling(Db::new(ceiling));
        let mut block = noise(index as u32, 2 * 2_345, 4.0);
        limiter.process(&mut block);
        let late = 2 * limiter.latency().as_usize();
        let peak = block[late..].iter().fold(0.0_f32, |peak, x| peak.max(x.abs()));
        assert!(Db::from_amplitude(peak.into()).get() <= ceiling, "{ceiling}: {peak}");
    }
    assert_eq!(limiter.clamped(), 0);
}

#[test]
fn absurd_samples_pass_and_a_second_later_all_is_well() {
    let mut limiter = limiter(48_000, 1, -1.0);
    let mut block = noise(4, 48_000, 0.2);
    let clean = block.clone();
    (block[100], block[200], block[300], block[400]) = (f32::NAN, f32::INFINITY, 1e4, -3e38);
    limiter.process(&mut block);
    assert!(block.iter().all(|x| x.is_finite() && x.abs() < 0.9));
    assert_eq!(block[30_000..], clean[30_000 - 240..48_000 - 240]);
}
