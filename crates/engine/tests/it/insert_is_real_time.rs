//! Checks that a station with an insert allocates nothing and calls nothing of the system, while
//! the program works, stalls and comes back.

use std::collections::VecDeque;
use std::sync::mpsc::channel;

use aulos_blackbox::alloc::calls_during;
use aulos_blackbox::syscalls::{NONE, guarded};
use aulos_core::{Codec, Frames, HEADROOM, Instant, SampleSpec, Span};
use aulos_engine::encode::make_encoder;
use aulos_engine::generate::Demo;
use aulos_engine::input::{Input, InputConfig};
use aulos_engine::insert::{InsertConfig, InsertSession, insert};
use aulos_engine::rendition::Rendition;
use aulos_engine::station::{Station, StationConfig, StationHandle};
use aulos_engine::switch::SwitchConfig;
use aulos_rt::Pool;
use aulos_rt::ring::{Consumer, ring};

const QUANTUM: Frames = Frames(960);

/// The thread of the program, and a program that passes samples on.
struct ProgramStub {
    session: InsertSession,
    on_the_way: VecDeque<f32>,
    piece: Vec<f32>,
}

impl ProgramStub {
    /// What it does between two steps of the station. It allocates nothing itself, unless it starts
    /// again.
    fn run(&mut self, now: Instant, stalls: bool) {
        self.piece.clear();
        while self.on_the_way.len() < PIPE && self.session.poll_input(&mut self.piece) {
            self.on_the_way.extend(self.piece.drain(..));
        }
        while !stalls && !self.on_the_way.is_empty() {
            let count = self.on_the_way.len().min(PIPE);
            self.piece.extend(self.on_the_way.drain(..count));
            self.session.handle_output(&self.piece);
            self.piece.clear();
        }
        if self.session.handle_timeout(now).is_err() {
            self.on_the_way.clear();
            self.session.start(now);
        }
    }
}

/// Samples in a pipe, and in a piece of the session.
const PIPE: usize = 16_384;

struct World {
    now: Instant,
    station: Station,
    handle: StationHandle,
    program: ProgramStub,
    chunks: Consumer<aulos_engine::fanout::TimedChunk>,
}

fn world() -> World {
    let (spec, now) = (SampleSpec::DEFAULT, Instant::ZERO + Span::from_secs(5));
    let demo = Box::new(Demo::new(spec.rate, QUANTUM));
    let demo = Input::new(demo, spec.rate, spec.layout, InputConfig::default());
    let config = StationConfig {
        quantum: QUANTUM,
        switch: SwitchConfig::default(),
        crossfade: Span::from_millis(20),
    };
    let (there, chunks) = ring(64);
    let encoder = make_encoder(Codec::Pcm, spec, QUANTUM).expect("an encoder");
    let pool = Pool::new(256, || Vec::with_capacity(HEADROOM + 4 * 1_920 + 64));
    let main = Rendition::new(encoder, pool, vec![there], |_, _, _, _| 26);
    let (mut station, handle) = Station::new(config, now, vec![demo], main);
    let (rate, layout) = (spec.rate, spec.layout);
    let config = InsertConfig { rate, layout, quantum: QUANTUM, latency: None, delay: None };
    let (stage, mut session) = insert(config);
    session.start(now);
    station.set_insert(stage);
    let (on_the_way, piece) = (VecDeque::with_capacity(4 * PIPE), Vec::with_capacity(4 * PIPE));
    World { now, station, handle, program: ProgramStub { session, on_the_way, piece }, chunks }
}

impl World {
    /// Twenty milliseconds. Returns what the allocator was called for by the station.
    fn step(&mut self, step: u64) -> u64 {
        self.now += Span::from_millis(20);
        // Stalls of a quarter of a second, and at times of two seconds.
        let stalls = matches!(step % 1_500, 400..412 | 900..1_000);
        self.program.run(self.now, stalls);
        let calls = calls_during(|| self.station.handle_timeout(self.now));
        while self.chunks.pop().is_some() {}
        calls
    }
}

#[test]
fn its_steps_allocate_nothing() {
    let mut world = world();
    for step in 0..1_000 {
        world.step(step);
    }
    let calls: u64 = (1_000..5_000).map(|step| world.step(step)).sum();
    let status = *world.handle.status();
    let insert = status.insert.expect("an insert");
    println!("{insert:?}, {calls} allocations and frees");
    assert_eq!((calls, status.pool_exhausted, status.fanout_full), (0, 0, 0));
    // It was bypassed and came back.
    assert!(insert.bypasses >= 4 && insert.processed_frames > 1_000_000, "{insert:?}");
}

#[test]
fn its_steps_make_no_system_call() {
    assert_ne!(guarded(std::thread::yield_now), NONE);
    let mut world = world();
    for step in 0..350 {
        world.step(step);
    }
    let before = world.handle.status().insert.expect("an insert");
    assert!(before.is_processing);
    let (sender, receiver) = channel();
    sender.send(None).expect("it allocates");
    let report = guarded(move || {
        // A stall of a quarter of a second, and the return.
        for step in 350..600 {
            world.step(step);
        }
        let after = world.handle.status().insert;
        sender.send(after).ok();
        std::mem::forget((world, sender));
    });
    let after = receiver.iter().flatten().next().expect("an insert");
    println!("{report:?} {after:?}");
    assert_eq!(report, NONE);
    assert_eq!((after.bypasses, after.is_processing), (before.bypasses + 1, true));
}
