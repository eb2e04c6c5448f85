//! Announcements on a copy of the station's output: times, samples, ceiling, and what comes and
//! goes.

use super::announce::{ConstantSource, HalfScaleSource, announcement_source, envelope};
use super::*;
use crate::announce::{AnnouncementEnd, DEFAULT_DUCK, Ducking, QueueEvent};
use crate::loudness_processor::NormalizerConfig;
use crate::output_bus::TooManyOutputs;
use crate::overlay::{MAX_OVERLAYS, Overlay};
use aulos_core::ChannelMap;
use aulos_dsp::normalize::{LookAhead, Settings};

/// A chunk: its media time, its timestamp and its samples.
type PlayedChunk = (MediaTime, Instant, Vec<f32>);

fn read(chunks: &mut Consumer<TimedChunk>) -> Vec<PlayedChunk> {
    core::iter::from_fn(|| chunks.pop())
        .map(|TimedChunk { chunk, timestamp, .. }| {
            let samples = chunk.payload().as_chunks::<4>().0.iter();
            let samples = samples.map(|bytes| f32::from_le_bytes(*bytes)).collect();
            (chunk.pts, timestamp, samples)
        })
        .collect()
}

fn rendition() -> (Rendition, Consumer<TimedChunk>) {
    let (producer, chunks) = ring(64);
    let pool = Pool::new(64, || Vec::with_capacity(HEADROOM + 960 * 4));
    let encoder = Box::new(PcmEncoder::new(SPEC));
    (Rendition::new(encoder, pool, vec![producer], |_, _, _, _| 0), chunks)
}

/// A station and its overlay.
struct OverlayHarness {
    world: World,
    overlay: u64,
    chunks: Consumer<TimedChunk>,
    events: Vec<QueueEvent>,
}

impl OverlayHarness {
    fn new(programme: Box<dyn Source>) -> Self {
        let mut world = World::new(vec![programme]);
        world.run(100);
        let (rendition, chunks) = rendition();
        let overlay = world.handle.add_output(Overlay::new(rendition, Frames(960))).expect("room");
        Self { world, overlay, chunks, events: Vec::new() }
    }

    fn announce(&mut self, id: u64, source: Box<dyn Source>, gain: Db) {
        let queue = self.world.handle.overlay_announcements(self.overlay).expect("attached");
        queue.add(id, source, Ducking::by(DEFAULT_DUCK)).expect("room");
        queue.set_gain(id, gain);
    }

    /// Runs for this long; returns the chunks of the station and those of the overlay.
    fn run(&mut self, millis: u64) -> (Vec<PlayedChunk>, Vec<PlayedChunk>) {
        let (mut own, mut mixed) = (Vec::new(), Vec::new());
        for step in 0..millis / 20 {
            if step % 5 == 0 {
                self.poll();
            }
            self.world.now = self.world.station.poll_timeout();
            self.world.station.handle_timeout(self.world.now);
            own.extend(read(&mut self.world.chunks));
            mixed.extend(read(&mut self.chunks));
        }
        self.poll();
        (own, mixed)
    }

    fn poll(&mut self) {
        self.world.handle.handle_timeout(self.world.now, |event| {
            if let StationEvent::Announcement(event) = event {
                self.events.push(event);
            }
        });
    }
}

fn samples(chunks: &[PlayedChunk]) -> Vec<f32> {
    chunks.iter().flat_map(|(_, _, samples)| samples).copied().collect()
}

fn times(chunks: &[PlayedChunk]) -> Vec<(MediaTime, Instant)> {
    chunks.iter().map(|(pts, timestamp, _)| (*pts, *timestamp)).collect()
}

fn bits(samples: &[f32]) -> Vec<u32> {
    samples.iter().map(|sample| sample.to_bits()).collect()
}

#[test]
fn an_overlay_has_the_times_and_outside_an_announcement_the_samples_of_its_station() {
    let counter = || Box::new(Counter { next: 0, base: 0 });
    let mut twin = World::new(vec![counter()]);
    twin.run(100);
    let mut one = OverlayHarness::new(counter());
    let (before, mixed) = one.run(500);
    assert_eq!((times(&before), bits(&samples(&before))), (times(&mixed), bits(&samples(&mixed))));
    one.announce(1, announcement_source(0.3, 100), Db::ZERO);
    let (own, mixed) = one.run(2_000);
    assert_eq!(times(&own), times(&mixed));
    let (own, mixed) = (samples(&own), samples(&mixed));
    let differs = |at: &usize| own[*at].to_bits() != mixed[*at].to_bits();
    let last = (0..own.len()).rev().find(differs).unwrap();
    // 100 ms of signal, the delays of its resampler and its limiter, 200 ms before and a second
    // after it.
    assert!((62_600..62_900).contains(&last), "{last}");
    assert_eq!(one.events, [QueueEvent::Began(1), QueueEvent::Ended(1, AnnouncementEnd::Played)]);
    let (after, mixed) = one.run(500);
    assert_eq!(bits(&samples(&after)), bits(&samples(&mixed)));
    let all = [samples(&before), own, samples(&after)].concat();
    assert_eq!(bits(&all), bits(&twin.run(3_000)), "the station's own clients hear no difference");
}

#[test]
fn an_announcement_plays_whole_over_the_ducked_programme() {
    let mut one = OverlayHarness::new(Box::new(HalfScaleSource));
    one.announce(7, announcement_source(0.8, 500), Db::ZERO);
    let (_, mixed) = one.run(2_500);
    let duck = 10f64.powf(-15.0 / 20.0);
    let (down, lag) = (9_600, latency() + 240);
    let (said, up) = (down + lag, down + lag + 24_000);
    for (frame, sample) in samples(&mixed).into_iter().enumerate() {
        // The steps are rounded by the resampler.
        if (said - 50..said + 50).contains(&frame) || (up - 50..up).contains(&frame) {
            continue;
        }
        let expected = match frame {
            _ if frame < down => 0.5 * envelope(1.0, duck, frame, 9_600),
            _ if frame < said => 0.5 * duck,
            _ if frame < up => 0.5 * duck + 0.8 * (1.0 - duck),
            _ if frame < up + 48_000 => 0.5 * envelope(duck, 1.0, frame - up, 48_000),
            _ => 0.5,
        };
        assert!((f64::from(sample) - expected).abs() < 1e-6, "{frame}: {sample}, {expected}");
    }
}

#[test]
fn the_sum_keeps_the_ceiling_however_loud_the_announcement_is() {
    let loud = |ends| Box::new(ConstantSource { value: 1.0, frames: 24_000, rate: 48_000, ends });
    let mut one =
        OverlayHarness::new(Box::new(ConstantSource { frames: u64::MAX, ..*loud(false) }));
    one.announce(1, loud(true), Db::new(40.0));
    let (_, mixed) = one.run(1_500);
    let peak = samples(&mixed).into_iter().fold(0.0, f32::max);
    assert!((0.98..=1.0 + 1e-6).contains(&peak), "{peak}");

    // With a normalizer, the ceiling is that of its settings, also if they come later.
    let mut one = OverlayHarness::new(Box::new(Counter { next: 0, base: 0 }));
    let settings = Settings { ceiling: Db::new(-6.0), ..Settings::default() };
    let normalizer = NormalizerConfig { mode: LookAhead::Low, settings };
    one.world.handle.set_normalizer(Some(&normalizer)).unwrap();
    one.run(5_000);
    one.announce(2, loud(true), Db::new(40.0));
    let (_, mixed) = one.run(1_500);
    let peak = samples(&mixed).into_iter().fold(0.0, f32::max);
    assert!(Db::from_amplitude(peak.into()).get() <= -6.0, "{peak}");
    assert!(peak > 0.4, "{peak}");
}

#[test]
fn a_queue_starts_when_it_may() {
    let mut one = OverlayHarness::new(Box::new(HalfScaleSource));
    let queue = |one: &mut OverlayHarness, at| {
        one.world.handle.overlay_announcements(one.overlay).unwrap().start_at(at);
    };
    queue(&mut one, None);
    one.announce(1, announcement_source(0.3, 100), Db::ZERO);
    one.run(20_000);
    assert_eq!(one.events, []);
    let at = one.world.now + Span::from_millis(250);
    queue(&mut one, Some(at));
    let (own, mixed) = one.run(1_000);
    let untouched = own.iter().zip(&mixed).take_while(|(own, mixed)| own == mixed).count();
    assert_eq!(untouched, 15, "the first poll after 250 ms is at 300 ms");
    assert_eq!(one.events, [QueueEvent::Began(1), QueueEvent::Ended(1, AnnouncementEnd::Played)]);
}

#[test]
fn overlays_are_limited_and_a_removed_one_ends_its_announcements() {
    let mut one = OverlayHarness::new(Box::new(HalfScaleSource));
    // More often than the events have places.
    for round in 0..100 {
        for id in 0..3 {
            one.announce(round * 10 + id, announcement_source(0.3, 5_000), Db::ZERO);
        }
        one.run(300);
        one.world.handle.remove_output(one.overlay);
        one.run(100);
        let mut ended: Vec<_> = core::mem::take(&mut one.events);
        ended.retain(|event| matches!(event, QueueEvent::Ended(_, AnnouncementEnd::Cancelled)));
        assert_eq!(ended.len(), 3, "{ended:?}");
        assert!(one.world.handle.overlay_announcements(one.overlay).is_none());
        let (rendition, chunks) = rendition();
        let overlay = Overlay::new(rendition, Frames(960));
        (one.overlay, one.chunks) = (one.world.handle.add_output(overlay).unwrap(), chunks);
    }
    for number in 1..=MAX_OVERLAYS {
        let added = one.world.handle.add_output(Overlay::new(rendition().0, Frames(960)));
        assert_eq!(added.is_err(), number == MAX_OVERLAYS, "{number}");
    }
    let added = one.world.handle.add_output(Overlay::new(rendition().0, Frames(960)));
    assert_eq!(added, Err(TooManyOutputs));
}

#[test]
fn every_rendition_of_an_overlay_has_the_announcement_and_the_station_has_none() {
    let mut one = OverlayHarness::new(Box::new(HalfScaleSource));
    let ((stereo, _), (left, mut chunks)) = (rendition(), rendition());
    let left = left.with_channel_map(ChannelMap::Left, Frames(960));
    let overlay = Overlay::new(stereo, Frames(960)).with_rendition(left);
    one.overlay = one.world.handle.add_output(overlay).unwrap();
    one.announce(1, announcement_source(0.8, 100), Db::ZERO);
    let (own, _) = one.run(1_000);
    assert!(samples(&own).iter().all(|sample| sample.to_bits() == 0.5f32.to_bits()));
    let mapped = read(&mut chunks);
    assert_eq!(times(&mapped), times(&own));
    assert!(samples(&mapped).into_iter().fold(0.0, f32::max) > 0.7);
}
