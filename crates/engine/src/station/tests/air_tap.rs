//! What is on air, as a mount learns it.

use super::*;
use crate::recorder::{AIR_TAP_CAPACITY, AirTapReader, air_tap};

impl World {
    fn attach_air_tap(&mut self) -> AirTapReader {
        let (tap, reader) = air_tap(SPEC.rate, SPEC.layout, Frames(960));
        self.handle.add_output(tap).unwrap();
        reader
    }
}

/// The frame number of a sample of [`number`].
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
fn frame_of(sample: f32) -> u64 {
    (sample * 1_048_576.0).round() as u64
}

#[test]
fn the_position_is_that_of_the_audio_in_the_quantum() {
    let (mut first, first_source) = live_source();
    let (mut second, second_source) = live_source();
    second.next = 500_000;
    let mut world = World::new(vec![first_source, second_source]);
    let mut air = world.attach_air_tap();
    let (mut active, mut checked) = (Vec::new(), 0);
    for step in 0..400 {
        if step < 200 {
            first.send(world.now, 20);
        }
        second.send(world.now, 20);
        world.step();
        let mut samples = Vec::new();
        while let Some((mark, run)) = air.read(&mut samples) {
            assert_eq!((mark.pts, run.frames), (run.pts, Frames(960)));
            assert_eq!(samples.len(), 960);
            active.push(mark.input);
            let Some(input) = mark.input else { continue };
            let sample = samples[959];
            // Not in a fade, and not after it on the way to the next source.
            let is_run =
                samples[900..].windows(2).all(|two| frame_of(two[1]) == frame_of(two[0]) + 1);
            if is_run {
                let read = frame_of(sample) + 1 + latency() as u64;
                let position = mark.positions[input].0;
                assert!(position.abs_diff(read) <= 2, "step {step}: {position}, not {read}");
                checked += 1;
            }
            samples.clear();
        }
    }
    active.dedup();
    let order: Vec<_> = active.into_iter().flatten().collect();
    assert_eq!(order, [0, 1]);
    assert!(checked > 250, "{checked}");
}

#[test]
fn a_source_off_air_is_read_on() {
    let (mut first, first_source) = live_source();
    let (mut second, second_source) = live_source();
    let mut world = World::new(vec![first_source, second_source]);
    let mut air = world.attach_air_tap();
    let (mut samples, mut last) = (Vec::new(), None);
    for _ in 0..300 {
        first.send(world.now, 20);
        second.send(world.now, 20);
        world.step();
        while let Some((mark, _)) = air.read(&mut samples) {
            last = Some(mark);
        }
    }
    let last = last.unwrap();
    assert_eq!(last.input, Some(0));
    assert!(last.positions[1].0.abs_diff(last.positions[0].0) < 4_800, "{last:?}");
}

#[test]
fn what_is_not_read_is_lost_in_whole_quanta() {
    let mut world = World::new(vec![Box::new(Counter { next: 0, base: 0 })]);
    let mut air = world.attach_air_tap();
    world.run(5_000);
    let (mut samples, mut quanta, mut end) = (Vec::new(), 0, MediaTime::ZERO);
    while let Some((_, run)) = air.read(&mut samples) {
        assert_eq!(run.pts, end);
        (quanta, end) = (quanta + 1, run.end());
    }
    assert_eq!(quanta, AIR_TAP_CAPACITY.as_millis() / 20);
    world.run(20);
    let (_, run) = air.read(&mut samples).unwrap();
    assert_eq!(run.pts, MediaTime(240_000), "those between are missing");
    drop(air);
    world.run(40);
    assert!(world.handle.add_output(air_tap(SPEC.rate, SPEC.layout, Frames(960)).0).is_ok());
}
