//! Failing inputs: last resorts, long fades, preferences and stand-by.

use super::*;
use crate::generate::LoopSource;
use crate::standby::{self, Standby, StandbyHandle};
use crate::status::StationOutput;
use crate::switch::SwitchCause;

impl World {
    fn with_fade(sources: Vec<Box<dyn Source>>, millis: i64) -> Self {
        let mut world = Self::new(sources);
        world.station.config.crossfade = Span::from_millis(millis);
        world
    }
}

/// A constant level from a live sender.
fn send_level(feed: &mut LiveSender, now: Instant, millis: u64, level: f32) {
    let mut block = feed.pool.take().expect("a block");
    block.reset(feed.rate, SPEC.layout);
    block.resize(feed.rate.frames(Span::from_millis(i64::try_from(millis).unwrap())));
    block.received = now;
    block.samples_mut().fill(level);
    feed.items.push(SourceItem::Block(block)).expect("room");
}

fn greatest_step(samples: &[f32]) -> f32 {
    samples.windows(2).map(|pair| (pair[1] - pair[0]).abs()).fold(0.0, f32::max)
}

fn longest_silence(samples: &[f32]) -> usize {
    let runs = samples.split(|sample| sample.abs() > 1e-5);
    runs.map(<[f32]>::len).max().unwrap_or(0)
}

fn last_resort(level: f32) -> Input {
    let sound = LoopSource::new(vec![level; 700], SPEC.rate, SPEC.layout).unwrap();
    Input::new(Box::new(sound), SPEC.rate, SPEC.layout, InputConfig::default())
}

#[test]
fn the_last_resort_is_there_from_the_first_frame_and_fades_both_ways() {
    let (mut feed, source) = live_source();
    let mut world = World::new(vec![source]);
    world.station.set_last_resort(last_resort(0.25));
    let mut out = world.run(500);
    assert_eq!(world.handle.status().output, StationOutput::LastResort);
    for _ in 0..100 {
        send_level(&mut feed, world.now, 20, 0.5);
        out.extend(world.step());
    }
    assert_eq!(world.handle.status().output, StationOutput::Active(0));
    out.extend(world.run(2_000));
    let start = 3 * latency();
    // Faded out and in; never a millisecond of silence.
    assert!(longest_silence(&out[start..]) < 48);
    // The sender starts with a step of its own, early in the fade.
    assert!(greatest_step(&out[start..]) < 0.04, "{}", greatest_step(&out[start..]));
    let status = *world.handle.status();
    assert_eq!(status.output, StationOutput::LastResort);
    assert_eq!((status.switches, status.silent_frames), (2, 0));
    assert!(status.last_resort_frames > 48_000, "{}", status.last_resort_frames);
    let mut causes: Vec<SwitchCause> = Vec::new();
    world.handle.handle_timeout(world.now, |event| {
        if let StationEvent::Switched(event) = event {
            causes.push(event.change.cause);
        }
    });
    assert_eq!(causes, [SwitchCause::First, SwitchCause::Late]);
    assert_eq!(status.switches_by[SwitchCause::Late as usize], 1);
}

#[test]
fn a_long_fade_from_a_sender_that_dies_is_over_before_its_sound() {
    let (mut feed, source) = live_source();
    let (mut other, second) = live_source();
    let mut world = World::with_fade(vec![source, second], 10_000);
    let mut out = Vec::new();
    for step in 0..200 {
        if step < 100 {
            send_level(&mut feed, world.now, 20, 0.5);
        }
        send_level(&mut other, world.now, 20, 0.5);
        out.extend(world.step());
    }
    let heard = &out[48_000..];
    let least = heard.iter().fold(1.0f32, |least, sample| least.min(*sample));
    assert!(least > 0.49, "a hole down to {least}");
    assert!(greatest_step(heard) < 0.003, "a click of {}", greatest_step(heard));
    assert_eq!(world.handle.status().output, StationOutput::Active(1), "not ten seconds later");
}

#[test]
fn a_change_during_a_fade_causes_no_step() {
    let feeds: Vec<_> = (0..3).map(|_| live_source()).collect();
    let (mut feeds, sources): (Vec<_>, Vec<_>) = feeds.into_iter().unzip();
    let mut world = World::with_fade(sources, 1_000);
    let mut out = Vec::new();
    for step in 0..500u32 {
        for (feed, level) in feeds.iter_mut().zip([0.2, 0.3, 0.5]) {
            send_level(feed, world.now, 20, level);
        }
        match step {
            100 => world.handle.set_preference(Some((1, None))),
            120 => world.handle.set_preference(Some((2, None))),
            135 => world.handle.set_preference(Some((1, None))),
            150 => world.handle.set_preference(None),
            300 => world.handle.set_preference(Some((2, Some(Span::from_millis(600))))),
            _ => {}
        }
        out.extend(world.step());
    }
    let heard = &out[48_000..];
    assert!(greatest_step(heard) < 0.002, "a click of {}", greatest_step(heard));
    let status = *world.handle.status();
    assert_eq!((status.active, status.preference), (Some(0), None));
    assert_eq!(status.switches_by[SwitchCause::Manual as usize], 4, "{:?}", status.switches_by);
}

/// Mean levels of 10 ms each, in dB relative to a sine of 0.5.
fn levels_db(samples: &[f32]) -> Vec<f64> {
    let power = |part: &[f32]| part.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
    samples.chunks_exact(480).map(|part| 10.0 * (power(part) / 480.0 / 0.125).log10()).collect()
}

#[test]
fn the_same_programme_from_another_source_is_as_loud_during_the_fade() {
    for millis in [20, 1_000] {
        let feeds: Vec<_> = (0..2).map(|_| live_source()).collect();
        let (mut feeds, sources): (Vec<_>, Vec<_>) = feeds.into_iter().unzip();
        let mut world = World::with_fade(sources, millis);
        let mut out = Vec::new();
        for step in 0..250u32 {
            for feed in &mut feeds {
                let mut block = feed.pool.take().expect("a block");
                block.reset(feed.rate, SPEC.layout);
                block.resize(Frames(960));
                block.received = world.now;
                for (n, sample) in block.samples_mut().iter_mut().enumerate() {
                    // 1 kHz: every block is the same.
                    let turn = f64::from(u32::try_from(n % 48).unwrap()) / 48.0;
                    #[allow(clippy::cast_possible_truncation, reason = "a test signal")]
                    let value = (0.5 * (turn * core::f64::consts::TAU).sin()) as f32;
                    *sample = value;
                }
                feed.items.push(SourceItem::Block(block)).expect("room");
            }
            if step == 100 {
                world.handle.set_preference(Some((1, None)));
            }
            out.extend(world.step());
        }
        assert_eq!(world.handle.status().output, StationOutput::Active(1));
        for (index, level) in levels_db(&out[48_000..]).into_iter().enumerate() {
            assert!(level.abs() < 0.5, "{millis} ms: {level} dB at {index}0 ms");
        }
    }
}

/// A file with stand-by: a counter that restarts whenever it is opened.
struct StandbySource {
    counter: Counter,
    open: bool,
}

impl Source for StandbySource {
    fn pull(&mut self, now: Instant, into: &mut Block) -> PullResult {
        if self.open { self.counter.pull(now, into) } else { PullResult::Pending }
    }
    fn pacing(&self) -> Pacing {
        Pacing::Live
    }
}

#[test]
fn a_standby_source_is_notified_when_needed_and_plays_nothing_old() {
    let (mut feed, first) = live_source();
    let (mut other, second) = live_source();
    let (gate, mut keeper): (_, StandbyHandle) = standby::standby_channel(Standby::Warm);
    let mut world = World::new(vec![first]);
    let wishes = InputConfig { standby: Standby::Warm, ..InputConfig::default() };
    let input = Input::new(second, SPEC.rate, SPEC.layout, wishes).with_standby(gate);
    world.station.inputs.push(input);
    world.station.switch = Switch::new(SwitchConfig::default(), 2);
    let mut out = Vec::new();
    let mut first_wanted = None;
    for step in 0..600u64 {
        if !(150..=250).contains(&step) {
            send_level(&mut feed, world.now, 20, 0.25);
        }
        let wish = keeper.request();
        if wish == standby::StandbyRequest::Play {
            first_wanted.get_or_insert(step);
            other.send(world.now, 20);
        } else {
            // Audio that arrives late, or before it is needed, is not kept.
            other.next = 900_000;
            other.send(world.now, 20);
            other.next = 0;
        }
        out.extend(world.step());
    }
    // It failed after 300 ms with 100 ms left; the other one took 400 ms to fill.
    assert!(first_wanted.is_some_and(|step| (164..168).contains(&step)), "{first_wanted:?}");
    let stale = out.iter().any(|sample| (sample - number(900_000)).abs() < 0.01);
    assert!(!stale, "something old was heard");
    assert!(longest_silence(&out[24_000..]) <= 48 * 360, "{}", longest_silence(&out[24_000..]));
    assert_eq!(keeper.request(), standby::StandbyRequest::StayOpen, "the first one is back");
}

#[test]
fn a_gate_without_a_sound_behind_it_plays_nothing() {
    let (gate, mut keeper) = standby::standby_channel(Standby::Cold);
    assert_eq!(keeper.request(), standby::StandbyRequest::Close);
    let source = StandbySource { counter: Counter { next: 0, base: 0 }, open: false };
    let wishes = InputConfig { standby: Standby::Cold, ..InputConfig::default() };
    let input = Input::new(Box::new(source), SPEC.rate, SPEC.layout, wishes).with_standby(gate);
    let mut world = World::new(vec![]);
    world.station.inputs.push(input);
    world.station.switch = Switch::new(SwitchConfig::default(), 1);
    world.run(100);
    assert_eq!(keeper.request(), standby::StandbyRequest::Play, "it is all there is");
    keeper.report(standby::LinkState::Broken);
    world.run(100);
    assert_eq!(world.handle.status().inputs[0].health, InputHealth::Backoff);
}

/// A tone of 500 Hz whose amplitude counts its frames, from a quarter of full scale on.
fn counted(frame: u64) -> f32 {
    let size = 0.25 + number(frame);
    if frame % 96 < 48 { size } else { -size }
}

/// A player plays for 20 s, in front of another source or alone, and pauses, with its pipe closed
/// or open. Returns the time from the first block that it sends then to its first audible frame, in
/// milliseconds.
fn heard_again(pause: u64, closes: bool, alone: bool) -> f64 {
    let (mut feed, source) = live_source();
    let mut sources: Vec<Box<dyn Source>> = vec![source];
    if !alone {
        let wave = (0..96).map(|frame| if frame < 48 { 0.1 } else { -0.1 }).collect();
        sources.push(Box::new(LoopSource::new(wave, SPEC.rate, SPEC.layout).unwrap()));
    }
    let mut world = World::new(sources);
    for _ in 0..1_000 {
        feed.send_with(world.now, 20, |frame| counted(frame % 96));
        world.step();
    }
    if closes {
        feed.items.push(SourceItem::End).expect("room");
    }
    world.run(pause);
    assert_eq!(world.handle.status().active, (!alone).then_some(1));
    let underruns = world.handle.status().underruns;
    feed.next = 0;
    let mut out = Vec::new();
    for _ in 0..400 {
        feed.send_with(world.now, 20, counted);
        out.extend(world.step());
    }
    assert_eq!(world.handle.status().underruns, underruns, "it stays");
    let first = out.iter().position(|sample| sample.abs() > 0.2).expect("heard again");
    // After its fade-in and its older rest it plays as it was sent.
    let settled = first + 10 * 960;
    let is_it = |frame: &u64| (counted(*frame) - out[settled]).abs() < 3e-7;
    let index = (0..out.len() as u64).find(is_it).expect("its own frame");
    for (sample, frame) in out[settled..].iter().zip(index..) {
        assert!((sample - counted(frame)).abs() < 3e-7, "frame {frame} is {sample}");
    }
    let start = settled.checked_sub(usize::try_from(index).unwrap());
    let start = start.expect("frames at its beginning are lost");
    assert!(start + 960 >= first, "heard from its first frame on");
    f64::from(u32::try_from(start).unwrap()) / 48.0
}

#[test]
fn a_paused_player_is_back_within_half_a_second_from_its_first_frame() {
    for alone in [true, false] {
        for closes in [true, false] {
            for pause in [5_500, 60_000] {
                let millis = heard_again(pause, closes, alone);
                println!("alone: {alone}, closes: {closes}, {pause} ms: after {millis:.0} ms");
                assert!(millis <= 440.0, "alone: {alone}, closes: {closes}: {millis} ms");
            }
        }
    }
}

#[test]
fn switches_that_are_not_read_in_time_are_counted() {
    let counter = |base| -> Box<dyn Source> { Box::new(Counter { next: 0, base }) };
    let mut world = World::new(vec![counter(0), counter(500_000)]);
    for step in 0..400 {
        world.handle.set_preference(Some((step % 2, None)));
        world.step();
    }
    let mut read = 0;
    world.handle.handle_timeout(world.now, |event| {
        read += u64::from(matches!(event, StationEvent::Switched(_)));
    });
    let status = *world.handle.status();
    assert!(read >= MAX_SWITCH_EVENTS as u64 && status.switch_events_lost > 0, "{read}");
    assert_eq!(read + status.switch_events_lost, status.switches);
}

/// Plays a sender until it is silent and replaced, then lets it sound; returns what is played from
/// then on, and the station.
fn sound_after_silence(buffer: i64, sounds: fn(u64) -> f32) -> (Vec<f32>, World) {
    let (mut feed, source) = live_source();
    let wishes = InputConfig {
        buffer: Span::from_millis(buffer),
        timeout: Span::from_millis(buffer * 3 / 4),
        ..InputConfig::default()
    };
    let bed = Box::new(Counter { next: 0, base: 0 });
    let mut world = World::of(vec![source, bed], wishes);
    let mut send = |world: &mut World, millis: u64, of: &dyn Fn(u64) -> f32| {
        let mut out = Vec::new();
        for _ in 0..millis / 20 {
            feed.send_with(world.now, 20, of);
            out.extend(world.step().iter().map(|sample| if *sample < 0.0 { *sample } else { 0.0 }));
        }
        out
    };
    send(&mut world, 12_000, &|frame| if frame % 48 < 24 { -0.25 } else { 0.25 });
    assert_eq!(world.handle.status().active, Some(0));
    send(&mut world, 14_990, &|_| 0.0);
    assert_eq!(world.handle.status().active, Some(1), "{buffer}");
    let begin = (12_000 + 14_980) * 48;
    let out = send(&mut world, 4_000, &|frame| sounds(frame - begin));
    assert_eq!(world.handle.status().active, Some(0));
    (out, world)
}

#[test]
fn a_source_that_was_silent_is_played_from_its_first_sound() {
    // A square wave, whose negative half the other source does not have: loud for 100 ms.
    let sounds = |frame: u64| {
        let level = if frame < 4_800 { 0.5 } else { 0.25 };
        if frame % 48 < 24 { -level } else { level }
    };
    for buffer in [40, 100, 200, 400, 1_000] {
        let (out, _) = sound_after_silence(buffer, sounds);
        let loud = out.iter().filter(|sample| **sample < -0.4).count();
        assert!((2_390..2_500).contains(&loud), "{buffer} ms: {loud} of 2,400 frames");
    }
}
