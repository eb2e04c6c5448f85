//! A station in virtual time, tested frame by frame.

mod air_tap;
mod announce;
mod codec_panics;
mod fallback;
mod loudness_processor;
mod output_bus;
mod overlay;
mod pass_through;
mod play;
mod priority;
mod rate_change;
mod recorder;
mod schedule;

use aulos_core::{Db, HEADROOM, Lufs, SampleFormat, SampleSpec};
use aulos_dsp::Resampler;
use aulos_rt::Pool;
use aulos_rt::ring::{Consumer, Producer, ring};

use super::*;
use crate::encode::PcmEncoder;
use crate::fanout::TimedChunk;
use crate::generate::Tone;
use crate::input::InputConfig;
use crate::loudness::Loudness;
use crate::source::{Pacing, PullResult, RingSource, Source, SourceItem};

/// Counts upwards: every frame is its own number divided by a million, so that each one can be
/// identified.
struct Counter {
    next: u64,
    base: u64,
}

impl Source for Counter {
    fn pull(&mut self, _now: Instant, into: &mut Block) -> PullResult {
        into.reset(SampleRate::HZ_48000, ChannelLayout::MONO);
        into.resize(Frames(480));
        for sample in into.samples_mut() {
            *sample = number(self.base + self.next);
            self.next += 1;
        }
        PullResult::Block
    }
    fn pacing(&self) -> Pacing {
        Pacing::OnDemand
    }
}

#[allow(clippy::cast_precision_loss, reason = "small numbers, exact in f32")]
fn number(frame: u64) -> f32 {
    (frame % 1_000_000) as f32 / 1_048_576.0
}

const SPEC: SampleSpec = SampleSpec {
    rate: SampleRate::HZ_48000,
    format: SampleFormat::F32,
    layout: ChannelLayout::MONO,
};

struct World {
    now: Instant,
    station: Station,
    chunks: Consumer<TimedChunk>,
    handle: StationHandle,
}

impl World {
    fn new(sources: Vec<Box<dyn Source>>) -> Self {
        Self::of(sources, InputConfig::default())
    }

    /// With the same configuration for every input.
    fn of(sources: Vec<Box<dyn Source>>, wishes: InputConfig) -> Self {
        Self::with(sources, |source| Input::new(source, SPEC.rate, SPEC.layout, wishes))
    }

    fn with(sources: Vec<Box<dyn Source>>, input: impl Fn(Box<dyn Source>) -> Input) -> Self {
        let config = StationConfig {
            quantum: Frames(960),
            switch: SwitchConfig { startup_wait: Some(Span::ZERO), ..SwitchConfig::default() },
            crossfade: Span::from_millis(20),
        };
        let now = Instant::ZERO + Span::from_secs(5);
        let inputs = sources.into_iter().map(input).collect();
        let (producer, chunks) = ring(64);
        let pool = Pool::new(64, || Vec::with_capacity(HEADROOM + 960 * 4));
        let outputs = vec![producer];
        let main = Rendition::new(Box::new(PcmEncoder::new(SPEC)), pool, outputs, |_, _, _, _| 0);
        let (station, handle) = Station::new(config, now, inputs, main);
        Self { now, station, chunks, handle }
    }

    /// Runs one quantum and returns its samples.
    fn step(&mut self) -> Vec<f32> {
        self.now = self.station.poll_timeout();
        self.station.handle_timeout(self.now);
        self.samples()
    }

    fn samples(&mut self) -> Vec<f32> {
        let mut samples = Vec::new();
        while let Some(stamped) = self.chunks.pop() {
            let bytes = stamped.chunk.payload();
            samples.extend(bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
        }
        samples
    }

    fn run(&mut self, millis: u64) -> Vec<f32> {
        (0..millis / 20).flat_map(|_| self.step()).collect()
    }
}

/// A live sender that the test feeds.
struct LiveSender {
    rate: SampleRate,
    items: Producer<SourceItem>,
    pool: Pool<Block>,
    next: u64,
}

fn live_source() -> (LiveSender, Box<dyn Source>) {
    let (items, consumer) = ring(256);
    let pool =
        Pool::new(256, || Block::with_capacity(SPEC.rate, SPEC.layout, source::BLOCK_SAMPLES));
    (
        LiveSender { rate: SPEC.rate, items, pool, next: 0 },
        Box::new(RingSource::new(consumer, Pacing::Live)),
    )
}

impl LiveSender {
    fn send(&mut self, now: Instant, millis: u64) {
        self.send_with(now, millis, number);
    }

    fn send_with(&mut self, now: Instant, millis: u64, mut of: impl FnMut(u64) -> f32) {
        for _ in 0..millis / 10 {
            let mut block = self.pool.take().expect("a block");
            block.reset(self.rate, SPEC.layout);
            block.resize(self.rate.frames(Span::from_millis(10)));
            (block.pts, block.received) = (MediaTime(self.next), now);
            for sample in block.samples_mut() {
                *sample = of(self.next);
                self.next += 1;
            }
            self.items.push(SourceItem::Block(block)).expect("room");
        }
    }
}

/// Delay of a source's frames in its resampler; before them there is silence.
fn latency() -> usize {
    Resampler::new(1, SPEC.rate, SPEC.rate).latency().as_usize()
}

fn expect_run(samples: &[f32], first: u64) {
    for (offset, sample) in samples.iter().enumerate() {
        let expected = number(first + offset as u64);
        assert!((sample - expected).abs() == 0.0, "frame {offset}: {sample} is not {expected}");
    }
}

#[test]
fn a_source_passes_bit_exact_from_its_first_frame() {
    let mut world = World::new(vec![Box::new(Counter { next: 0, base: 0 })]);
    let samples = world.run(2_000);
    assert_eq!(samples.len(), 96_000);
    expect_run(&samples[latency()..], 0);
}

#[test]
fn timestamps_advance_by_exactly_the_frames_sent_however_late_the_worker_is() {
    let mut world = World::new(vec![Box::new(Counter { next: 0, base: 0 })]);
    let mut last = None;
    for step in 0u32..500 {
        let late = Span::from_millis(i64::from(step * 7919 % 97));
        world.now = world.station.poll_timeout() + late;
        world.station.handle_timeout(world.now);
        while let Some(stamped) = world.chunks.pop() {
            if let Some((pts, timestamp)) = last {
                assert_eq!(stamped.chunk.pts, pts + Frames(960));
                assert_eq!(stamped.timestamp - timestamp, Span::from_millis(20));
            }
            last = Some((stamped.chunk.pts, stamped.timestamp));
        }
    }
}

#[test]
fn a_stalled_process_shifts_its_timeline_once_and_reports_it() {
    let mut world = World::new(vec![Box::new(Counter { next: 0, base: 0 })]);
    world.run(100);
    world.now += Span::from_secs(60);
    world.station.handle_timeout(world.now);
    assert_eq!(world.samples().len(), 960, "not three thousand chunks at once");
    assert_eq!(world.handle.status().stalls, 1);
    assert!(world.station.poll_timeout() > world.now);
}

/// The audio starts at once, with gaps.
#[test]
fn a_live_source_with_a_short_buffer_or_none_is_played() {
    for buffer in [0, 1, 5] {
        let (mut feed, source) = live_source();
        let buffer = Span::from_millis(buffer);
        let mut world = World::of(vec![source], InputConfig { buffer, ..InputConfig::default() });
        let mut heard = 0;
        for _ in 0..100 {
            feed.send(world.now, 20);
            heard += world.step().iter().filter(|sample| **sample != 0.0).count();
        }
        assert!(heard > 90_000, "{buffer:?}: {heard} of 96,000 frames");
    }
}

#[test]
fn without_a_source_silence_is_output_on_time() {
    let mut world = World::new(vec![]);
    let samples = world.run(1_000);
    assert_eq!(samples.len(), 48_000);
    assert!(samples.iter().all(|sample| *sample == 0.0));
    assert_eq!(world.handle.status().silent_frames, 48_000);
}

#[test]
fn a_switch_to_a_live_sender_loses_nothing() {
    let (mut feed, source) = live_source();
    let mut world = World::new(vec![source, Box::new(Counter { next: 0, base: 500_000 })]);
    world.run(200);
    let mut out = Vec::new();
    for _ in 0..100 {
        feed.send(world.now, 20);
        out.extend(world.step());
    }
    let switched = out.iter().position(|sample| *sample < number(400_000)).expect("it took over");
    // After the cross-fade the frames are the sender's own, in order, from its 20th millisecond on.
    let start = switched.next_multiple_of(960) + 960;
    let first = out[start];
    let index = (0..96_000).find(|frame| (number(*frame) - first).abs() == 0.0).expect("its own");
    assert!(index <= 1_920, "began with frame {index}");
    expect_run(&out[start..], index);
}

#[test]
fn a_sender_that_dies_leaves_no_hole() {
    let (mut feed, source) = live_source();
    let mut world = World::new(vec![source, Box::new(Counter { next: 0, base: 500_000 })]);
    for _ in 0..100 {
        feed.send(world.now, 20);
        world.step();
    }
    let out = world.run(2_000);
    assert!(out.iter().all(|sample| *sample > 0.0), "a frame of silence");
    let status = *world.handle.status();
    assert_eq!((status.active, status.underruns), (Some(1), 0));
}

#[test]
fn a_lone_sender_that_stops_is_faded_out_and_back_in() {
    let (mut feed, source) = live_source();
    feed.next = 500_000;
    let mut world = World::new(vec![source]);
    // Not a whole number of quanta, so that a rest is left when it runs dry.
    feed.send(world.now, 10);
    for _ in 0..100 {
        feed.send(world.now, 20);
        world.step();
    }
    let mut out = world.run(1_000);
    for _ in 0..100 {
        feed.send(world.now, 20);
        out.extend(world.step());
    }
    let step = out.windows(2).map(|pair| (pair[1] - pair[0]).abs()).fold(0.0, f32::max);
    assert!(step < 0.01, "a click of {step}");
    assert_eq!(world.handle.status().underruns, 1);
}

#[test]
fn a_clean_end_is_followed_by_the_fallback_within_the_same_quantum() {
    let (mut feed, source) = live_source();
    let mut world = World::new(vec![source, Box::new(Counter { next: 0, base: 500_000 })]);
    // The fallback has been on air: it continues in its middle, so it is faded in.
    world.run(100);
    feed.send(world.now, 510);
    feed.items.push(SourceItem::End).expect("room");
    let out = world.run(1_000);
    let end = 510 * 48 + latency();
    expect_run(&out[960..end], 960 - latency() as u64);
    assert!(out[end + 1..].iter().all(|sample| *sample > 0.0), "a frame of silence");
}

#[test]
fn a_fast_sender_is_held_back_and_played_whole() {
    let (mut feed, source) = live_source();
    let mut world = World::new(vec![source]);
    feed.send(world.now, 2_500);
    let out = world.run(2_000);
    let status = *world.handle.status();
    assert_eq!(status.underruns, 0);
    expect_run(&out[latency()..], 0);
}

#[test]
fn senders_of_different_rates_replace_each_other() {
    let (mut feed, source) = live_source();
    let mut world = World::new(vec![source, Box::new(Counter { next: 0, base: 500_000 })]);
    world.run(200);
    for hz in [8_000, 44_100, 192_000] {
        feed.rate = SampleRate::new(hz).unwrap();
        for _ in 0..100 {
            feed.send(world.now, 20);
            world.step();
        }
        assert_eq!(world.handle.status().active, Some(0), "{hz} Hz");
        assert_eq!(world.handle.status().inputs[0].rate, feed.rate);
        // It stops unexpectedly and counts as failed; some of its audio is still buffered.
        world.run(600);
        assert_eq!(world.handle.status().active, Some(1), "after {hz} Hz");
        // Each time it must run for twice as long before it is trusted.
        for _ in 0..1_100 {
            feed.send(world.now, 20);
            world.step();
        }
        feed.items.push(SourceItem::End).expect("room");
        world.run(1_000);
    }
}

/// 997 Hz at -20 dBFS in one channel: BS.1770 reads -23.01 LUFS.
fn tone() -> Box<dyn Source> {
    Box::new(Tone::new(997.0, Db::new(-20.0), SPEC.rate, SPEC.layout, Frames(960)))
}

#[test]
fn loudness_is_measured_before_the_gain_and_at_the_output() {
    let wishes = InputConfig { gain: Db::new(-6.0), ..InputConfig::default() };
    let mut world = World::of(vec![tone(), tone()], wishes);
    world.run(5_000);
    let status = *world.handle.status();
    let near = |value: Option<Lufs>, expected: f64| {
        value.is_some_and(|value| (value.get() - expected).abs() < 0.06)
    };
    let (input, output) = (status.inputs[0].loudness, status.loudness);
    assert!(near(input.momentary, -23.01) && near(input.integrated, -23.01), "{input:?}");
    assert!(near(output.momentary, -29.01) && near(output.short_term, -29.01), "{output:?}");
    // The second one is on stand-by, and is not pulled.
    let standby = status.inputs[1].loudness;
    assert_eq!((standby.momentary, standby.integrated), (None, None));
}

#[test]
fn a_stopped_sender_has_no_momentary_loudness_and_a_reset_clears_integration() {
    let (mut feed, source) = live_source();
    let mut world = World::new(vec![source]);
    feed.next = 400_000;
    for _ in 0..250 {
        feed.send(world.now, 20);
        world.step();
    }
    let playing = world.handle.status().inputs[0].loudness;
    assert!(playing.momentary.is_some() && playing.integrated.is_some(), "{playing:?}");
    world.run(1_000);
    let stopped = world.handle.status().inputs[0].loudness;
    assert_eq!(stopped, Loudness { momentary: None, short_term: None, ..stopped });
    assert_eq!(stopped.integrated, playing.integrated);
    world.handle.reset_loudness();
    world.run(20);
    let status = *world.handle.status();
    assert_eq!(status.inputs[0].loudness, Loudness::NONE);
    assert_eq!(status.loudness, Loudness::NONE);
    world.run(1_000);
    assert_eq!(world.handle.status().loudness.measured, Span::from_secs(1), "once, not for ever");
}
