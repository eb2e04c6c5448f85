//! The schedule, frame by frame.

use super::*;
use crate::switch::{ScheduledChange, SwitchCause};

const BASE: u64 = 500_000;

fn counters() -> Vec<Box<dyn Source>> {
    vec![Box::new(Counter { next: 0, base: 0 }), Box::new(Counter { next: 0, base: BASE })]
}

/// An entry of the second source between two frames of the station.
fn set_schedule(world: &mut World, from: u64, until: u64) {
    let line = world.station.timeline();
    let change = |frame, input: Option<usize>| {
        let begins = input.map(|_| frame);
        Some(ScheduledChange { at: line.local_at(MediaTime(frame)), input, begins })
    };
    world.handle.set_schedule([change(from, Some(1)), change(until, None)]);
}

/// Whether a sample is of the second source.
fn is_second(sample: f32) -> bool {
    sample >= number(BASE)
}

#[test]
fn an_entry_begins_and_ends_at_its_frame_wherever_that_lies_in_a_quantum() {
    for (from, until) in [
        (48_000, 96_000),
        (48_001, 96_001),
        (48_959, 96_777),
        (50_123, 50_124),
        (50_123, 50_600),
        (47_999, 96_960),
    ] {
        let mut world = World::new(counters());
        world.station.config.crossfade = Span::ZERO;
        set_schedule(&mut world, from, until);
        let out = world.run(3_000);
        let inside = usize::try_from(from).unwrap()..usize::try_from(until).unwrap();
        // A source that begins has the delay of its resampler before it.
        let begun = inside.end.min(inside.start + latency());
        for (frame, sample) in out.iter().enumerate().skip(latency()) {
            if (inside.start..begun).contains(&frame) {
                assert!(sample.abs() == 0.0, "{from}: frame {frame}");
            } else {
                assert_eq!(is_second(*sample), inside.contains(&frame), "{from}: frame {frame}");
            }
        }
        let status = *world.handle.status();
        assert_eq!((status.silent_frames, status.underruns), (0, 0));
        assert_eq!(status.switches_by[SwitchCause::Schedule as usize], 2);
        // Nothing of the first source is lost or repeated by the cut itself.
        expect_run(&out[latency()..inside.start], 0);
    }
}

#[test]
fn a_cross_fade_begins_at_the_frame_of_the_entry_and_makes_no_step() {
    for (from, until) in [(50_123, 70_321), (50_123, 50_500), (50_123, 51_300)] {
        let feeds: Vec<_> = (0..2).map(|_| live_source()).collect();
        let (mut feeds, sources): (Vec<_>, Vec<_>) = feeds.into_iter().unzip();
        let mut world = World::new(sources);
        set_schedule(&mut world, from, until);
        let mut out = Vec::new();
        for _ in 0..150 {
            for (feed, level) in feeds.iter_mut().zip([0.25, 0.5]) {
                feed.send_with(world.now, 20, |_| level);
            }
            out.extend(world.step());
        }
        let from = usize::try_from(from).unwrap();
        assert!(out[40_000..from].iter().all(|sample| (sample - 0.25).abs() < 1e-4));
        assert!((out[from + 48] - 0.25).abs() > 1e-3, "{}", out[from + 48]);
        let steps = out[40_000..].windows(2).map(|pair| (pair[1] - pair[0]).abs());
        let greatest = steps.fold(0.0, f32::max);
        assert!(greatest < 0.002, "a step of {greatest} at an entry until {until}");
    }
}

#[test]
fn a_station_that_is_late_keeps_to_the_frame() {
    let mut world = World::new(counters());
    world.station.config.crossfade = Span::ZERO;
    world.run(500);
    // The plan comes after its time, but before the station has played that far.
    world.now = world.station.poll_timeout() + Span::from_millis(500);
    set_schedule(&mut world, 30_011, 200_000);
    world.station.handle_timeout(world.now);
    let out = world.samples();
    let first = out.iter().position(|sample| is_second(*sample)).unwrap();
    assert_eq!(first + 24_000, 30_011 + latency());
}
