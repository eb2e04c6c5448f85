//! Checks `Station::handle_timeout`: after warm-up, a chunk allocates nothing, from a sender's
//! block to a session's cursor, whatever comes and goes.

use std::sync::Arc;

use aulos_blackbox::alloc::calls_during;
use aulos_core::{
    Block, ChannelLayout, ChannelMap, Codec, Db, Frames, HEADROOM, Instant, Lufs, SampleRate,
    SampleSpec, Span,
};
use aulos_dsp::equalizer::{EqualizerBand, FilterType};
use aulos_dsp::normalize::{LookAhead, Settings};
use aulos_dsp::silence::SilenceConfig;
use aulos_dsp::sound::{Headroom, SoundChain, SoundPreset, SoundProgram};
use aulos_engine::announce::{self, DEFAULT_DUCK, Ducking, Layer, QueueEvent};
use aulos_engine::encode::make_encoder;
use aulos_engine::fanout::{ChunkCursor, ChunkLog, TimedChunk};
use aulos_engine::generate::{Demo, LoopSource};
use aulos_engine::input::{Input, InputConfig};
use aulos_engine::loudness_processor::NormalizerConfig;
use aulos_engine::output_bus::StationTap;
use aulos_engine::overlay::Overlay;
use aulos_engine::ready_chunk::{PassThroughState, ready_chunks};
use aulos_engine::recorder::{TapPoint, air_tap, record_tap};
use aulos_engine::rendition::Rendition;
use aulos_engine::source::{BLOCK_SAMPLES, Pacing, RingSource, Source, SourceItem};
use aulos_engine::standby::{self, LinkState, Standby, StandbyHandle};
use aulos_engine::station::{Station, StationConfig, StationEvent, StationHandle};
use aulos_engine::swappable_source::swappable_source;
use aulos_engine::switch::{ScheduledChange, SwitchConfig};
use aulos_rt::Pool;
use aulos_rt::ring::{Consumer, Producer, ring};

/// A sender of a tone, ten milliseconds at a time.
struct Sender {
    items: Producer<SourceItem>,
    pool: Pool<Block>,
    rate: SampleRate,
    layout: ChannelLayout,
    sent: u64,
    muted: bool,
}

impl Sender {
    fn new(rate: SampleRate, layout: ChannelLayout) -> (Self, Box<dyn Source>) {
        let (items, consumer) = ring(128);
        let pool = Pool::new(128, || Block::with_capacity(rate, layout, BLOCK_SAMPLES));
        let sender = Self { items, pool, rate, layout, sent: 0, muted: false };
        (sender, Box::new(RingSource::new(consumer, Pacing::Live)))
    }

    fn send(&mut self, now: Instant) {
        let Some(mut block) = self.pool.take() else { return };
        block.reset(self.rate, self.layout);
        block.resize(self.rate.frames(Span::from_millis(10)));
        block.received = now;
        for frame in block.samples_mut().chunks_exact_mut(self.layout.channels()) {
            #[allow(clippy::cast_precision_loss, reason = "a minute of frames fits")]
            let gain = if self.muted { 0.0 } else { 0.4 };
            frame.fill(gain * (self.sent as f32 * 0.03).sin());
            self.sent = (self.sent + 1) % 1_000_000;
        }
        drop(self.items.push(SourceItem::Block(block)));
    }
}

/// A reactor's view: a log, and sessions that each read at their own pace.
struct ReactorStub {
    chunks: Consumer<TimedChunk>,
    log: ChunkLog,
    sessions: [(ChunkCursor, u64); 3],
    read: u64,
    lagged: u64,
}

impl ReactorStub {
    fn new(chunks: Consumer<TimedChunk>) -> Self {
        let log = ChunkLog::new(50);
        let start = log.cursor_at_end();
        // The last one reads less often than the log is long.
        Self { chunks, log, sessions: [(start, 1), (start, 5), (start, 160)], read: 0, lagged: 0 }
    }

    fn serve(&mut self, step: u64) {
        while let Some(chunk) = self.chunks.pop() {
            self.log.push(chunk);
        }
        for (cursor, every) in &mut self.sessions {
            if !step.is_multiple_of(*every) {
                continue;
            }
            loop {
                match self.log.get(*cursor, 0) {
                    Ok(Some(stamped)) => {
                        self.read += u64::from(!stamped.chunk.payload().is_empty());
                        cursor.advance(1);
                    }
                    Ok(None) => break,
                    Err(_) => {
                        self.lagged += 1;
                        *cursor = self.log.cursor_from(Instant::ZERO);
                    }
                }
            }
        }
    }
}

struct World {
    now: Instant,
    station: Station,
    near: Sender,
    far: Sender,
    desks: [ReactorStub; 2],
    handle: StationHandle,
    keepers: Vec<StandbyHandle>,
}

impl World {
    /// A sender in the station's own format, one of another rate and layout, and the demo.
    fn new(codec: Codec) -> Self {
        Self::before(codec, None)
    }

    /// The same with a source of higher priority.
    fn before(codec: Codec, better: Option<Box<dyn Source>>) -> Self {
        Self::levelled(codec, better, None)
    }

    /// The same with a normalizer in front of each source.
    fn levelled(codec: Codec, better: Option<Box<dyn Source>>, mode: Option<LookAhead>) -> Self {
        let spec = SampleSpec::DEFAULT;
        let quantum = Frames(960);
        let now = Instant::ZERO + Span::from_secs(5);
        let (near, first) = Sender::new(spec.rate, spec.layout);
        let (far, second) = Sender::new(SampleRate::HZ_44100, ChannelLayout::MONO);
        let own: [Box<dyn Source>; 3] = [first, second, Box::new(Demo::new(spec.rate, quantum))];
        let sources = better.into_iter().chain(own);
        let silence = SilenceConfig {
            duration: Span::from_millis(500),
            dead_channel: Some(Span::from_millis(500)),
            ..SilenceConfig::default()
        };
        let wishes = InputConfig { silence, standby: Standby::Warm, ..InputConfig::default() };
        let mut keepers = Vec::new();
        let mut input = |source| {
            let input = Input::new(source, spec.rate, spec.layout, wishes);
            let settings = Settings::default();
            let input = match mode {
                Some(mode) => {
                    input.with_normalizer(&NormalizerConfig { mode, settings }).expect("defaults")
                }
                None => input,
            };
            if input.facts().pacing == Pacing::OnDemand {
                return input;
            }
            let (gate, keeper) = standby::standby_channel(Standby::Warm);
            keepers.push(keeper);
            input.with_standby(gate)
        };
        let inputs = sources.map(&mut input).collect();
        let (there, here): (Vec<_>, Vec<_>) = (0..2).map(|_| ring(64)).unzip();
        let config = StationConfig {
            quantum,
            // Every failure is followed by a recovery, so that there are many.
            switch: SwitchConfig { failback_delay: Span::ZERO, ..SwitchConfig::default() },
            crossfade: Span::from_millis(20),
        };
        let samples = quantum.as_usize() * spec.layout.channels();
        let encoder = make_encoder(codec, spec, quantum).expect("an encoder");
        let pool = Pool::new(256, || Vec::with_capacity(HEADROOM + 4 * samples + 64));
        let main = Rendition::new(encoder, pool, there, |_, _, _, _| 26);
        let (mut station, handle) = Station::new(config, now, inputs, main);
        let mut desks = here.into_iter().map(ReactorStub::new);
        let desks = [(); 2].map(|()| desks.next().expect("two rings"));
        let loops = LoopSource::new(vec![0.1; 9_000], SampleRate::HZ_44100, ChannelLayout::MONO);
        let resort = Box::new(loops.expect("whole frames"));
        station.set_last_resort(Input::new(resort, spec.rate, spec.layout, wishes));
        Self { now, station, near, far, desks, handle, keepers }
    }

    /// The control thread's part, which may free memory; returns the announcements played.
    fn poll(&mut self) -> u64 {
        let (mut played, was_played) = (0, announce::AnnouncementEnd::Played);
        self.handle.handle_timeout(self.now, |event| {
            let ended = matches!(event, StationEvent::Announcement(QueueEvent::Ended(_, end)) if end == was_played);
            played += u64::from(ended);
        });
        played
    }

    /// Ten milliseconds of everything.
    fn step(&mut self, step: u64) {
        self.now += Span::from_millis(10);
        let second = step / 100;
        // Sixteen seconds: it stops for three seconds and must regain trust; it ends cleanly and
        // returns a second later; it pauses for less than its time-out, and its buffer refills.
        match second % 16 {
            1..4 => {}
            12 if step.is_multiple_of(100) => drop(self.near.items.push(SourceItem::End)),
            12 => {}
            15 if step % 100 < 25 => {}
            _ => self.near.send(self.now),
        }
        // The far one stops every second time that the near one does, and is slow by 500 ppm.
        if second % 32 > 4 && !step.is_multiple_of(2_000) {
            self.far.send(self.now);
        }
        // The first one is silent for a second, and breaks off. The second one is preferred at
        // times, and so is the demo, which is not needed otherwise.
        self.near.muted = second % 16 == 7;
        match step % 1_600 {
            920 => drop(self.near.items.push(SourceItem::Lost)),
            1_050 => self.handle.set_preference(Some((1, Some(Span::from_millis(500))))),
            1_120 => self.handle.set_preference(Some((self.keepers.len(), None))),
            1_170 => self.handle.set_preference(None),
            // An entry of the schedule begins and ends inside a quantum.
            1_250 => {
                let change = |millis: i64, input, begins| {
                    let at = self.now + Span::from_micros(millis * 1_000 + 123);
                    Some(ScheduledChange { at, input, begins })
                };
                let begins = Some(step);
                self.handle.set_schedule([change(100, Some(1), begins), change(900, None, None)]);
            }
            _ => {}
        }
        let told = if step % 700 < 10 { LinkState::Broken } else { LinkState::Healthy };
        self.keepers.iter_mut().for_each(|keeper| keeper.report(told));
        if step == RESET_AT {
            self.handle.reset_loudness();
        }
        if self.now >= self.station.poll_timeout() {
            self.station.handle_timeout(self.now);
        }
        self.desks.iter_mut().for_each(|desk| desk.serve(step));
    }
}

/// Allocations and frees in a minute of virtual time, after a warm-up of twenty seconds.
fn calls_in_a_minute(codec: Codec) -> u64 {
    let mut world = World::new(codec);
    let step = |world: &mut World, step| {
        world.step(step);
        world.poll();
    };
    (0..2_000).for_each(|number| step(&mut world, number));
    let before = *world.handle.status();
    let calls = calls_during(|| (2_000..8_000).for_each(|number| step(&mut world, number)));
    let after = *world.handle.status();

    let chunks = after.chunks - before.chunks;
    let switches = after.switches - before.switches;
    println!("{codec:?}: {chunks} chunks, {switches} switches, {calls} allocations and frees");
    assert_eq!(chunks, 3_000);
    assert!((40..60).contains(&switches), "{switches} switches");
    let kinds = after.switches_by.iter().zip(before.switches_by).filter(|(a, b)| **a > *b).count();
    assert!(kinds >= 5, "{:?}", after.switches_by);
    assert_eq!((after.pool_exhausted, after.fanout_full, after.encode_errors), (0, 0, 0));
    assert_eq!(after.switch_events_lost, 0);
    // The meters were running, and were reset on the way.
    let since = Span::from_millis(10) * i64::try_from(8_000 - RESET_AT).expect("a few thousand");
    assert!((since - after.loudness.measured).as_millis().abs() <= 100, "{:?}", after.loudness);
    assert!(after.inputs[..2].iter().all(|input| input.loudness.integrated.is_some()));
    for desk in &world.desks {
        assert!(desk.read > 8_000 && desk.lagged > 40, "{} {}", desk.read, desk.lagged);
    }
    calls
}

/// The step at which the loudness measurement is reset.
const RESET_AT: u64 = 5_005;

#[test]
fn the_counter_counts() {
    assert_eq!(calls_during(|| drop(vec![1])), 2);
}

#[test]
fn chunks_of_pcm() {
    assert_eq!(calls_in_a_minute(Codec::Pcm), 0);
}

#[test]
fn chunks_of_flac() {
    assert_eq!(calls_in_a_minute(Codec::Flac), 0);
}

#[test]
fn chunks_of_opus() {
    assert_eq!(calls_in_a_minute(Codec::Opus), 0);
}

/// A minute of ready chunks, with changes to the encoder and back, and of another header.
#[test]
fn chunks_that_are_passed() {
    let (spec, quantum) = (SampleSpec::DEFAULT, Frames(960));
    let (mut near, source) = Sender::new(spec.rate, spec.layout);
    let (mut sink, queue) = ready_chunks(256, 1_000);
    let buffer = Span::from_millis(100);
    let config = InputConfig { buffer, ..InputConfig::default() };
    let input = Input::new(source, spec.rate, spec.layout, config).with_ready_chunks(queue);
    let demo = Box::new(Demo::new(spec.rate, quantum));
    let demo = Input::new(demo, spec.rate, spec.layout, InputConfig::default());
    let mut now = Instant::ZERO + Span::from_secs(5);
    let config = StationConfig {
        quantum,
        switch: SwitchConfig { failback_delay: Span::ZERO, ..SwitchConfig::default() },
        crossfade: Span::from_millis(20),
    };
    let (main, mut desk) = rendition(Codec::Flac);
    let (mut station, mut handle) = Station::new(config, now, vec![input, demo], main);
    let headers: [Arc<[u8]>; 2] = [Arc::new([1; 40]), Arc::new([2; 40])];
    let mut run = |steps: core::ops::Range<u64>| {
        for step in steps {
            now += Span::from_millis(10);
            near.send(now);
            if step.is_multiple_of(2) {
                let stamp = now + buffer - Span::from_millis(20);
                let header = &headers[usize::from(step % 600 > 300)];
                assert!(sink.push((stamp, quantum), None, Some(header), &[7; 900]));
            }
            match step % 500 {
                100 => handle.set_preference(Some((1, None))),
                200 => handle.set_preference(None),
                _ => {}
            }
            station.handle_timeout(now);
            handle.handle_timeout(now, |_| {});
            desk.serve(step);
        }
        *handle.status()
    };
    let before = run(0..2_000);
    let mut after = before;
    let calls = calls_during(|| after = run(2_000..8_000));
    println!("{} passed, {} encoded", after.chunks_passed, after.chunks);
    assert_eq!((calls, after.pass_through), (0, PassThroughState::Passing));
    assert!(after.chunks_passed - before.chunks_passed > 1_500);
    assert!(after.chunks - before.chunks > 500 && after.switches - before.switches == 24);
    assert_eq!((after.pool_exhausted, after.fanout_full), (0, 0));
}

fn rendition(codec: Codec) -> (Rendition, ReactorStub) {
    let (there, here) = ring(64);
    let encoder = make_encoder(codec, SampleSpec::DEFAULT, Frames(960)).expect("an encoder");
    let pool = Pool::new(256, || Vec::with_capacity(HEADROOM + 4 * 1_920 + 64));
    (Rendition::new(encoder, pool, vec![there], |_, _, _, _| 26), ReactorStub::new(here))
}

#[test]
fn announcements_of_any_rate() {
    assert_eq!(announcements_and_calls(None, Layer::Announcement), (12, 0));
}

#[test]
fn plays_of_any_rate_and_announcements_over_them() {
    // None waits for the other, so none is cancelled before it has been played.
    assert_eq!(announcements_and_calls(None, Layer::Play), (24, 0));
    // Three overlays are removed while they play; each cancels its sounds.
    assert_eq!(announcements_and_calls(Some(Codec::Pcm), Layer::Play), (18, 0));
}

#[test]
fn announcements_of_any_rate_on_changing_overlays() {
    // Three overlays are removed while they play; each cancels its announcements.
    assert_eq!(announcements_and_calls(Some(Codec::Pcm), Layer::Announcement), (9, 0));
    assert_eq!(announcements_and_calls(Some(Codec::Flac), Layer::Announcement), (9, 0));
}

/// The number of announcements that a minute has played, and its allocations and frees. They play
/// on overlays of this codec, or on the station itself; every second one is a sound of this layer.
fn announcements_and_calls(overlays: Option<Codec>, second: Layer) -> (u64, u64) {
    let mut world = World::new(Codec::Pcm);
    (0..2_000).for_each(|step| world.step(step));
    let (mut calls, mut played, mut kept) = (0, 0, Vec::new());
    let mut overlay: Option<(u64, ReactorStub)> = None;
    for step in 2_000..8_000 {
        if let Some(codec) = overlays.filter(|_| step % 1_500 == 530) {
            let (rendition, desk) = rendition(codec);
            let new = Overlay::new(rendition, Frames(960));
            let number = world.handle.add_output(new).expect("room");
            if let Some((old, _)) = overlay.replace((number, desk)) {
                world.handle.remove_output(old);
            }
        }
        if step % 500 == 0 {
            // Half a second in another rate and layout, and one that is cancelled.
            let both = [(step, 44_100, Layer::Announcement), (step + 1, 22_050, second)];
            for (id, hz, layer) in both {
                let rate = SampleRate::new(hz).expect("a rate");
                let (mut voice, _) = Sender::new(rate, ChannelLayout::MONO);
                let (items, consumer) = ring(128);
                voice.items = items;
                (0..50).for_each(|_| voice.send(world.now));
                drop(voice.items.push(SourceItem::End));
                // Blocks return to their pool: their decoder keeps it.
                kept.push(voice.pool);
                let source = Box::new(RingSource::new(consumer, Pacing::OnDemand));
                let number = overlay.as_ref().map(|(number, _)| *number);
                let queue = world.handle.queue(number, layer).expect("attached");
                queue.add(id, source, Ducking::by(DEFAULT_DUCK)).expect("room");
            }
        }
        if step % 500 == 120 {
            world.handle.cancel_announcement(step - 119);
        }
        played += world.poll();
        calls += calls_during(|| {
            world.step(step);
            if let Some((_, desk)) = &mut overlay {
                desk.serve(step);
            }
        });
    }
    (played, calls)
}

#[test]
fn a_station_that_plays_another_and_changing_renditions() {
    let (mut patch, source) = swappable_source();
    let mut world = World::new(Codec::Flac);
    let mut other = World::before(Codec::Pcm, Some(Box::new(source)));
    let spec = SampleSpec::DEFAULT;
    let (mut calls, mut hung) = (0, None);
    for step in 0..8_000 {
        if step % 1_500 == 0 {
            // As after a reload: another ring, while the old one still runs.
            let block = || Block::with_capacity(spec.rate, spec.layout, BLOCK_SAMPLES);
            let (pool, (items, consumer)) = (Pool::new(16, block), ring(17));
            assert!(patch.swap(consumer, pool.clone()));
            world.handle.add_output(StationTap::new(pool, items)).expect("room");
        }
        if step % 500 == 250 {
            let (rendition, desk) = rendition(Codec::Flac);
            let rendition = rendition
                .with_channel_map(ChannelMap::Mono, Frames(960))
                .with_sound(&SoundProgram::identity(), Frames(960));
            let number = world.handle.add_output(rendition).expect("room");
            if let Some((old, _)) = hung.replace((number, desk)) {
                world.handle.remove_output(old);
            }
        }
        if step % 70 == 30
            && let Some((number, _)) = &hung
        {
            // Sometimes while the last one is still faded in, with and without a limiter.
            let headroom = Headroom::ALL[(step / 70 % 2) as usize];
            let preset = SoundPreset::ALL[(step / 70) as usize % 6].chain().unwrap_or_default();
            let chain = SoundChain { headroom, ..preset };
            let program = SoundProgram::new(&chain, SampleRate::HZ_48000, Db::new(-1.0));
            world.handle.set_sound(*number, program);
        }
        world.poll();
        let made = calls_during(|| {
            world.step(step);
            other.step(step);
            if let Some((_, desk)) = &mut hung {
                desk.serve(step);
            }
        });
        if step >= 3_000 && step % 500 != 250 {
            calls += made;
        }
    }
    assert_eq!(calls, 0);
    assert_eq!(other.handle.status().active, Some(0));
    assert!(hung.is_some_and(|(_, desk)| desk.read > 0));
}

#[test]
fn changing_recorders_and_one_that_lags() {
    let (spec, room) = (SampleSpec::DEFAULT, Span::from_secs(2));
    let mut world = World::new(Codec::Pcm);
    let (pickup_behind, behind) = record_tap(TapPoint::Output, spec.rate, spec.layout, room);
    world.handle.add_output(pickup_behind).expect("room");
    let (tap, mut air) = air_tap(spec.rate, spec.layout, Frames(480));
    world.handle.add_output(tap).expect("room");
    let (mut calls, mut hung, mut heard) = (0, Vec::new(), Vec::new());
    for step in 0..8_000 {
        if step % 500 == 250 {
            // One output is removed, the reader of the other is dropped, and a new one is attached.
            if let Some((number, spool)) = hung.pop() {
                drop(spool);
                if step % 1_000 != 250 {
                    world.handle.remove_output(number);
                }
            }
            let side =
                [TapPoint::Output, TapPoint::Input(0), TapPoint::Input(1), TapPoint::Input(99)];
            let side = side[(step / 500) as usize % 4];
            let (pickup, spool) = record_tap(side, spec.rate, spec.layout, room);
            hung.push((world.handle.add_output(pickup).expect("room"), spool));
        }
        world.poll();
        let made = calls_during(|| world.step(step));
        if step >= 2_000 {
            calls += made;
        }
        for (_, spool) in &mut hung {
            heard.clear();
            while spool.read(&mut heard).is_some() {}
        }
        // Half of the time it is full.
        if step % 1_000 < 500 {
            heard.clear();
            while air.read(&mut heard).is_some() {}
        }
    }
    assert_eq!(calls, 0);
    // The backlog is full, and holds no frame more than fits.
    assert!(behind.buffered() >= Frames(96_000), "{}", behind.buffered());
}

#[test]
fn a_normalizer_with_other_settings_other_modes_comparisons_and_bands() {
    let mut world = World::levelled(Codec::Pcm, None, Some(LookAhead::Mid));
    let (mut calls, mut latencies) = (0, Vec::new());
    for step in 0..8_000_u64 {
        // The control thread's part, which may allocate: every five seconds another mode, or none,
        // and between them settings, bypasses, bands, a pause.
        let mode = [
            Some(LookAhead::Full),
            Some(LookAhead::Mid),
            None,
            Some(LookAhead::Low),
            Some(LookAhead::GainOnly),
        ][(step / 500) as usize % 5];
        let target = if step % 200 < 100 { -20.0 } else { -28.0 };
        if step % 50 == 0 {
            let settings = Settings { target: Lufs::new(target), ..Settings::default() };
            let wish = mode.map(|mode| NormalizerConfig { mode, settings });
            world.handle.set_normalizer(wish.as_ref()).expect("what can be");
            world.handle.set_bypass(step % 300 < 150);
            let band = EqualizerBand {
                filter_type: FilterType::Peaking,
                hz: 100.0,
                gain: Db::new(target + 24.0),
                q: 1.0,
            };
            world
                .handle
                .set_equalizer(&[band; 16][..(step / 50) as usize % 17])
                .expect("bands that can be");
            if step % 1_000 == 950 {
                world.handle.flush();
            }
        }
        world.poll();
        let made = calls_during(|| world.step(step));
        if step >= 2_000 {
            calls += made;
        }
        if let Some(steady) = world.handle.status().normalizer {
            latencies.push(steady.latency.0);
        }
    }
    assert_eq!(calls, 0);
    latencies.sort_unstable();
    latencies.dedup();
    assert_eq!(latencies, [0, 480, 19_440, 144_240], "every mode was heard");
}
