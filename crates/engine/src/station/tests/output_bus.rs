//! A station that plays another one, and renditions that come and go.

use aulos_core::ChannelMap;
use aulos_dsp::sound::{Headroom, SoundChain, SoundProgram};

use super::*;
use crate::output_bus::{MAX_BUS_OUTPUTS, StationTap, TooManyOutputs};
use crate::source::BLOCK_SAMPLES;
use crate::swappable_source::{SwappableSourceHandle, swappable_source};
use crate::tapped_rendition::TappedRendition;

/// Makes `patch` play the station of `handle`.
fn swap_in(handle: &mut StationHandle, patch: &mut SwappableSourceHandle) {
    let pool = Pool::new(16, || Block::with_capacity(SPEC.rate, SPEC.layout, BLOCK_SAMPLES));
    let (items, consumer) = ring(17);
    assert!(patch.swap(consumer, pool.clone()));
    handle.add_output(StationTap::new(pool, items)).expect("room");
}

/// Two stations: the second plays the first, or counts from half a million.
struct StationPair {
    first: World,
    second: World,
    patch: SwappableSourceHandle,
}

impl StationPair {
    fn new(first: Vec<Box<dyn Source>>) -> Self {
        let mut first = World::new(first);
        let (mut patch, source) = swappable_source();
        swap_in(&mut first.handle, &mut patch);
        let second =
            World::new(vec![Box::new(source), Box::new(Counter { next: 0, base: 500_000 })]);
        Self { first, second, patch }
    }

    fn run(&mut self, millis: u64) -> Vec<f32> {
        (0..millis / 20)
            .flat_map(|_| {
                self.first.step();
                self.second.step()
            })
            .collect()
    }
}

#[test]
fn another_station_is_played_bit_by_bit_and_keeps_its_distance() {
    let mut pair = StationPair::new(vec![Box::new(Counter { next: 0, base: 0 })]);
    pair.run(1_000);
    assert_eq!(pair.second.handle.status().active, Some(0));
    let out = pair.run(20_000);
    let first = (0..96_000).find(|frame| (number(*frame) - out[0]).abs() == 0.0).expect("its own");
    expect_run(&out, first);
    // Its delay is its buffer; it neither grows nor shrinks.
    let buffered = pair.second.handle.status().inputs[0].buffered;
    assert!((380..=440).contains(&buffered.as_millis()), "{buffered:?}");
    assert_eq!(pair.second.handle.status().underruns, 0);
}

#[test]
fn blocks_that_the_other_station_misses_are_counted() {
    let mut pair = StationPair::new(vec![Box::new(Counter { next: 0, base: 0 })]);
    pair.run(1_000);
    assert_eq!(pair.first.handle.status().tap_blocks_lost, 0);
    // The second one stands still until its 16 blocks are used up, and misses the next 20.
    let before = pair.second.handle.status().chunks;
    let mut ahead = 0;
    while pair.first.handle.status().tap_blocks_lost < 20 {
        pair.first.step();
        ahead += 1;
        assert!(ahead < 100, "nothing is counted");
    }
    assert!((20..=36).contains(&ahead), "{ahead}");
    pair.run(200);
    assert!(pair.second.handle.status().chunks > before, "it plays on");
}

#[test]
fn a_station_without_active_sources_falls_back_and_returns() {
    let (mut feed, source) = live_source();
    let mut pair = StationPair::new(vec![source]);
    let mut play = |pair: &mut StationPair| {
        for _ in 0..100 {
            feed.send(pair.first.now, 20);
            pair.run(20);
        }
    };
    play(&mut pair);
    assert_eq!(pair.second.handle.status().active, Some(0));
    // Its sender stops: silence there is no source here.
    let out = pair.run(2_000);
    assert_eq!(pair.second.handle.status().active, Some(1));
    let hole = out.windows(48).any(|window| window.iter().all(|sample| *sample == 0.0));
    assert!(!hole, "a millisecond of silence");
    // The failure, and the failback delay with it, is in the first station; here the source ended
    // cleanly.
    pair.run(200);
    for _ in 0..400 {
        feed.send(pair.first.now, 20);
        pair.run(20);
    }
    assert_eq!(pair.second.handle.status().active, Some(0));
}

#[test]
fn a_restarted_station_is_played_again() {
    let mut pair = StationPair::new(vec![Box::new(Counter { next: 0, base: 0 })]);
    pair.run(1_000);
    let now = pair.first.now;
    pair.first = World::new(vec![Box::new(Counter { next: 0, base: 250_000 })]);
    while pair.first.now < now {
        pair.first.step();
    }
    swap_in(&mut pair.first.handle, &mut pair.patch);
    pair.run(1_000);
    let status = *pair.second.handle.status();
    assert_eq!((status.active, status.silent_frames), (Some(0), 0));
    assert!(!pair.patch.is_abandoned());
    drop(pair.second);
    assert!(pair.patch.is_abandoned());
}

#[test]
fn a_rendition_has_the_times_of_its_station_and_ends_on_command() {
    let mut world = World::new(vec![Box::new(Counter { next: 0, base: 0 })]);
    world.run(200);
    let (producer, mut chunks) = ring(64);
    let pool = Pool::new(64, || Vec::with_capacity(HEADROOM + 960 * 4));
    let encoder = Box::new(PcmEncoder::new(SPEC));
    let rendition = Rendition::new(encoder, pool, vec![producer], |_, _, _, _| 0);
    let rendition = rendition.with_channel_map(ChannelMap::Left, Frames(960));
    let number = world.handle.add_output(rendition).expect("room");
    let mut main = Vec::new();
    for _ in 0..20 {
        world.now = world.station.poll_timeout();
        world.station.handle_timeout(world.now);
        while let Some(stamped) = world.chunks.pop() {
            main.push((stamped.chunk.pts, stamped.timestamp, stamped.chunk.payload().to_vec()));
        }
    }
    for (pts, timestamp, payload) in &main {
        let other = chunks.pop().expect("as many");
        assert_eq!((other.chunk.pts, other.timestamp), (*pts, *timestamp));
        assert_eq!(other.chunk.payload(), payload, "one channel is every channel");
    }
    world.handle.remove_output(number);
    world.run(100);
    assert!(chunks.pop().is_none());
    world.handle.handle_timeout(world.now, |_| {});
    assert!(chunks.is_abandoned(), "freed");
}

#[test]
fn a_rendition_with_a_limiter_is_stamped_earlier_by_its_latency() {
    let mut world = World::new(vec![Box::new(Counter { next: 0, base: 0 })]);
    let (producer, mut chunks) = ring(64);
    let pool = Pool::new(64, || Vec::with_capacity(HEADROOM + 960 * 4));
    let encoder = Box::new(PcmEncoder::new(SPEC));
    let rendition = Rendition::new(encoder, pool, vec![producer], |_, _, _, _| 0);
    let rendition = rendition.with_sound(&SoundProgram::identity(), Frames(960));
    let number = world.handle.add_output(rendition).expect("room");
    let (mut main, mut last) = (Vec::new(), None);
    for step in 0..40 {
        if step == 10 {
            let chain = SoundChain { headroom: Headroom::Limiter, ..SoundChain::default() };
            let program = SoundProgram::new(&chain, SPEC.rate, Db::ZERO);
            world.handle.set_sound(number, program);
        }
        world.now = world.station.poll_timeout();
        world.station.handle_timeout(world.now);
        world.handle.handle_timeout(world.now, |_| {});
        let own = world.chunks.pop().expect("a chunk");
        let other = chunks.pop().expect("a chunk");
        main.push((own.timestamp - other.timestamp, own.chunk.payload() == other.chunk.payload()));
        assert!(last.is_none_or(|last| other.timestamp > last), "stamps do not go back");
        last = Some(other.timestamp);
    }
    assert!(main[..10].iter().all(|one| *one == (Span::ZERO, true)), "the identity is exact");
    assert_eq!(main[39].0, Span::from_millis(5), "{main:?}");
}

#[test]
fn a_flush_discards_sent_audio_and_continues() {
    let (mut feed, source) = live_source();
    let mut world = World::new(vec![source]);
    feed.next = 400_000;
    for _ in 0..100 {
        feed.send(world.now, 20);
        world.step();
    }
    world.handle.flush();
    let last = world.step();
    assert!(last[900..].iter().all(|sample| *sample < 0.01), "it ends without a click");
    assert!(world.run(1_000).iter().all(|sample| *sample == 0.0), "nothing of it is left");
    let resumed = feed.next;
    let mut out = Vec::new();
    for _ in 0..100 {
        feed.send(world.now, 20);
        out.extend(world.step());
    }
    let first =
        out.iter().position(|sample| *sample >= number(resumed + 1_000)).expect("it is back");
    assert!(out[..first].iter().all(|sample| *sample < number(resumed + 1_000)), "old sound");
}

#[test]
fn outputs_of_a_station_that_does_not_run_are_bounded_and_none_is_forgotten() {
    let mut world = World::new(vec![]);
    let add = |handle: &mut StationHandle| {
        let (producer, chunks) = ring(4);
        let (encoder, pool) = (Box::new(PcmEncoder::new(SPEC)), Pool::new(1, Vec::new));
        let rendition = Rendition::new(encoder, pool, vec![producer], |_, _, _, _| 0);
        handle.add_output(rendition).map(|number| (number, chunks))
    };
    let outputs: Vec<_> = (0..MAX_BUS_OUTPUTS).map(|_| add(&mut world.handle).unwrap()).collect();
    assert_eq!(add(&mut world.handle).unwrap_err(), TooManyOutputs);
    for _ in 0..3 {
        outputs.iter().for_each(|(number, _)| world.handle.remove_output(*number));
        world.handle.remove_output(99);
        world.handle.flush();
    }
    assert!(world.handle.waiting() < 2 * MAX_BUS_OUTPUTS, "{}", world.handle.waiting());
    for _ in 0..10 {
        world.step();
        world.handle.handle_timeout(world.now, |_| {});
    }
    assert_eq!(world.handle.waiting(), 0);
    assert!(outputs.iter().all(|(_, chunks)| chunks.is_abandoned()), "all are freed");
    assert!(add(&mut world.handle).is_ok());
}

#[test]
fn a_tapped_rendition_has_the_chunks_of_its_station_and_counts_what_it_loses() {
    let mut world = World::new(vec![Box::new(Counter { next: 0, base: 0 })]);
    world.run(200);
    let (producer, mut chunks) = ring(64);
    let pool = Pool::new(64, || Vec::with_capacity(HEADROOM + 960 * 4));
    let encoder = Box::new(PcmEncoder::new(SPEC));
    let rendition = Rendition::new(encoder, pool, vec![producer], |_, _, _, _| 0);
    let (mut rendition, tap) = TappedRendition::new(rendition, Frames(960));
    let number = world.handle.add_output(tap).expect("room");
    let (mut main, mut tapped) = (Vec::new(), Vec::new());
    let step = |world: &mut World, main: &mut Vec<_>| {
        world.now = world.station.poll_timeout();
        world.station.handle_timeout(world.now);
        while let Some(stamped) = world.chunks.pop() {
            main.push((stamped.chunk.pts, stamped.timestamp, stamped.chunk.payload().to_vec()));
        }
    };
    for _ in 0..4 {
        (0..5).for_each(|_| step(&mut world, &mut main));
        assert!(rendition.process(world.now));
        while let Some(stamped) = chunks.pop() {
            tapped.push((stamped.chunk.pts, stamped.timestamp, stamped.chunk.payload().to_vec()));
        }
    }
    assert_eq!((tapped.len(), rendition.lost_chunks()), (20, 0));
    assert_eq!(tapped, main);
    // The reactor takes nothing: the tap fills, and what does not fit it is counted.
    for _ in 0..50 {
        (0..20).for_each(|_| step(&mut world, &mut main));
        assert!(rendition.process(world.now));
    }
    let mut taken = 0;
    while rendition.process(world.now) {
        let Some(_) = chunks.pop() else { break };
        taken += 1;
    }
    (0..5).for_each(|_| step(&mut world, &mut main));
    assert!(rendition.process(world.now));
    taken += std::iter::from_fn(|| chunks.pop()).count() as u64;
    assert_eq!(taken + rendition.lost_chunks(), 1_005);
    assert!(rendition.lost_chunks() > 500, "{}", rendition.lost_chunks());
    world.handle.remove_output(number);
    step(&mut world, &mut main);
    world.handle.handle_timeout(world.now, |_| {});
    assert!(!rendition.process(world.now));
}
