//! Record taps of a station's output and inputs: bit-exact and in time.

use super::*;
use crate::recorder::{FrameRun, RecordTapReader, TapPoint, record_tap};

const ROOM: Span = Span::from_secs(12);

fn attach_record_tap(world: &mut World, side: TapPoint) -> RecordTapReader {
    let (pickup, spool) = record_tap(side, SPEC.rate, SPEC.layout, ROOM);
    world.handle.add_output(pickup).expect("room");
    spool
}

fn take_all(spool: &mut RecordTapReader) -> (Vec<FrameRun>, Vec<f32>) {
    let (mut marks, mut samples) = (Vec::new(), Vec::new());
    while let Some(mark) = spool.read(&mut samples) {
        marks.push(mark);
    }
    (marks, samples)
}

#[test]
fn the_output_tap_is_bit_exact_with_the_stations_times() {
    let mut world = World::new(vec![Box::new(Counter { next: 0, base: 0 })]);
    world.run(100);
    let mut spool = attach_record_tap(&mut world, TapPoint::Output);
    let out = world.run(3_000);
    let (marks, samples) = take_all(&mut spool);
    assert_eq!(samples, out);
    let line = world.station.timeline();
    for (index, mark) in marks.iter().enumerate() {
        let pts = MediaTime(5 * 960 + 960 * index as u64);
        assert_eq!(
            *mark,
            FrameRun {
                pts,
                frames: Frames(960),
                timeline: line,
                stall: Span::ZERO,
                interrupted: Frames::ZERO
            }
        );
    }
}

#[test]
fn frames_without_room_are_missing_between_two_runs() {
    let mut world = World::new(vec![Box::new(Counter { next: 0, base: 0 })]);
    let (pickup, mut spool) =
        record_tap(TapPoint::Output, SPEC.rate, SPEC.layout, Span::from_millis(1_000));
    world.handle.add_output(pickup).expect("room");
    let mut out = world.run(3_000);
    let (first, mut samples) = take_all(&mut spool);
    out.extend(world.run(1_000));
    let (then, more) = take_all(&mut spool);
    let held = first.last().expect("marks").end();
    assert_eq!(samples[..], out[..samples.len()]);
    assert!(held >= MediaTime(48_000) && held < MediaTime(140_000), "{held}");
    assert_eq!(then[0].pts, MediaTime(144_000));
    samples.resize(144_000, 0.0);
    samples.extend(more);
    assert_eq!(samples[144_000..], out[144_000..]);
}

#[test]
fn an_input_tap_records_before_the_gain_even_when_off_air() {
    let (mut feed, source) = live_source();
    let gain = Db::new(-20.0);
    let wishes = InputConfig { gain, ..InputConfig::default() };
    let better = Box::new(Counter { next: 0, base: 500_000 });
    let mut world = World::of(vec![better, source], wishes);
    let mut spool = attach_record_tap(&mut world, TapPoint::Input(1));
    for _ in 0..100 {
        world.step();
        feed.send(world.now, 20);
    }
    world.step();
    // A second without audio is a second of the recording.
    world.run(1_000);
    feed.send(world.now, 20);
    world.step();
    let (marks, samples) = take_all(&mut spool);
    expect_run(&samples, 0);
    assert_eq!(samples.len(), 101 * 960);
    let jumps: Vec<_> = marks.windows(2).filter(|two| two[1].pts != two[0].end()).collect();
    assert_eq!(jumps.len(), 1);
    let jump = jumps[0][1].pts.since(jumps[0][0].end());
    assert!(SPEC.rate.span(jump).as_millis() >= 980, "{jump}");
    assert_eq!(jumps[0][1].interrupted, jump);
    // Its own timeline gives the arrival time.
    let last = marks.last().expect("marks");
    assert!((last.timeline.local_at(last.end()) - world.now).abs() <= Span::from_millis(20));
}
