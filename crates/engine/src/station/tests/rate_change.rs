//! A source that changes its sample rate while it plays.

use core::f64::consts::TAU;

use aulos_dsp::normalize::{LookAhead, Settings};

use super::*;
use crate::loudness_processor::NormalizerConfig;

const TONE_HZ: f64 = 500.0;

/// A sender of a tone whose phase continues from rate to rate, and a source with it.
struct ToneSender {
    feed: LiveSender,
    phase: f64,
}

impl ToneSender {
    fn new(pacing: Pacing) -> (Self, Box<dyn Source>) {
        let (items, consumer) = ring(256);
        let pool =
            Pool::new(256, || Block::with_capacity(SPEC.rate, SPEC.layout, source::BLOCK_SAMPLES));
        let feed = LiveSender { rate: SPEC.rate, items, pool, next: 0 };
        (Self { feed, phase: 0.0 }, Box::new(RingSource::new(consumer, pacing)))
    }

    #[allow(clippy::cast_possible_truncation, reason = "a sample")]
    fn send(&mut self, now: Instant, hz: u32, millis: u64) {
        self.feed.rate = SampleRate::new(hz).unwrap();
        let phase = &mut self.phase;
        self.feed.send_with(now, millis, |_| {
            *phase += TAU * TONE_HZ / f64::from(hz);
            (0.25 * phase.sin()) as f32
        });
    }
}

/// The longest run of frames without the tone, in milliseconds.
fn longest_hole_ms(samples: &[f32]) -> usize {
    let quiet = |sample: &&f32| sample.abs() < 0.02;
    let mut longest = 0;
    for at in 0..samples.len() {
        longest = longest.max(samples[at..].iter().take(2_000).take_while(quiet).count());
    }
    longest * 1_000 / 48_000
}

/// Plays `rates`, each for `millis`, after three seconds of the first one, and returns what is
/// heard of them.
fn played(
    pacing: Pacing,
    rates: &[u32],
    millis: u64,
    input: impl Fn(Box<dyn Source>) -> Input,
) -> (Vec<f32>, StationStatus) {
    let (mut sender, source) = ToneSender::new(pacing);
    let mut world = World::with(vec![source, Box::new(Counter { next: 0, base: 0 })], input);
    sender.send(world.now, rates[0], 400);
    let mut play = |hz: u32, millis: u64| -> Vec<f32> {
        let step = |_| {
            sender.send(world.now, hz, 20);
            world.step()
        };
        (0..millis / 20).flat_map(step).collect()
    };
    play(rates[0], 3_000);
    let heard: Vec<f32> = rates.iter().flat_map(|hz| play(*hz, millis)).collect();
    (heard, *world.handle.status())
}

fn expect_no_interruption(heard: &[f32], status: &StationStatus, what: &str) {
    assert_eq!(status.active, Some(0), "{what}");
    let failures = status.inputs[0].failures;
    assert_eq!((failures.late, failures.error, status.underruns), (0, 0, 0), "{what}");
    assert!(longest_hole_ms(heard) < 5, "{what}: a hole of {} ms", longest_hole_ms(heard));
}

#[test]
fn a_source_that_changes_its_rate_stays_on_air_without_a_hole() {
    let plain = |source| Input::new(source, SPEC.rate, SPEC.layout, InputConfig::default());
    for pacing in [Pacing::Live, Pacing::Streamed] {
        let rates = [48_000, 44_100, 48_000, 22_050, 96_000];
        let (heard, status) = played(pacing, &rates, 2_000, plain);
        expect_no_interruption(&heard, &status, &format!("{pacing:?}"));
        assert_eq!(status.inputs[0].rate.hz(), 96_000);
        let expected = 0.25_f64 / 2.0_f64.sqrt();
        let power: f64 = heard.iter().map(|sample| f64::from(*sample).powi(2)).sum();
        #[allow(clippy::cast_precision_loss, reason = "a number of frames")]
        let rms = (power / heard.len() as f64).sqrt();
        assert!((rms / expected - 1.0).abs() < 0.01, "{pacing:?}: {rms}");
    }
}

#[test]
fn a_normalized_source_changes_its_rate_without_a_hole() {
    let normalized = |source| {
        let config = NormalizerConfig { mode: LookAhead::Mid, settings: Settings::default() };
        Input::new(source, SPEC.rate, SPEC.layout, InputConfig::default())
            .with_normalizer(&config)
            .unwrap()
    };
    let (heard, status) = played(Pacing::Streamed, &[48_000, 44_100, 48_000], 3_000, normalized);
    expect_no_interruption(&heard, &status, "normalized");
}

#[test]
fn more_changes_than_the_buffer_can_hold_wait_and_lose_nothing() {
    let config = InputConfig { buffer: Span::from_secs(1), ..InputConfig::default() };
    let plain = move |source| Input::new(source, SPEC.rate, SPEC.layout, config);
    let rates: Vec<u32> = [48_000, 44_100, 32_000].into_iter().cycle().take(60).collect();
    let (heard, status) = played(Pacing::Streamed, &rates, 60, plain);
    expect_no_interruption(&heard, &status, "twenty changes a second");
}

#[test]
fn a_source_that_is_off_air_stays_current_across_changes() {
    let (mut sender, source) = ToneSender::new(Pacing::Live);
    let first = Box::new(Counter { next: 0, base: 0 });
    let mut world = World::new(vec![first, source]);
    sender.send(world.now, 48_000, 400);
    for hz in [48_000, 44_100, 8_000, 192_000, 48_000] {
        for _ in 0..60 {
            sender.send(world.now, hz, 20);
            world.step();
        }
        let status = world.handle.status();
        let (buffered, health) = (status.inputs[1].buffered, status.inputs[1].health);
        assert!(matches!(health, InputHealth::Healthy { .. }), "{hz}: {health:?}");
        let usual = Span::from_millis(350)..Span::from_millis(450);
        assert!(usual.contains(&buffered), "{hz} Hz: {buffered:?}");
    }
}
