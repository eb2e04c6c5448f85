//! An insert with a program of a few lines, in virtual time.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use aulos_core::Instant;

const QUANTUM: Frames = Frames(960);
/// A session is polled as often as feeders are.
const TICK: Span = Span::from_millis(10);

/// What a program makes of its input.
#[derive(Clone, Copy, Debug)]
struct Program {
    /// It delays the sound by so many frames.
    delay: usize,
    /// It writes so many frames of silence before it reads.
    ahead: usize,
    /// It works on so many frames at once.
    block: usize,
    gain: f32,
    /// Of so many frames it omits or doubles one; 0 keeps all.
    omits: usize,
    doubles: usize,
}

const PASS: Program = Program { delay: 0, ahead: 0, block: 1, gain: 1.0, omits: 0, doubles: 0 };

struct World {
    insert: Insert,
    session: InsertSession,
    now: Instant,
    program: Program,
    input: Vec<f32>,
    handled: usize,
    delayed: VecDeque<f32>,
    output: VecDeque<f32>,
    is_stopped: bool,
    /// Everything that the station has put in and got out; the programme is a sine.
    dry: Vec<f32>,
    out: Vec<f32>,
    faults: Vec<InsertFault>,
}

impl World {
    fn new(program: Program, latency: Option<Span>) -> Self {
        let (rate, layout) = (SampleRate::HZ_48000, ChannelLayout::MONO);
        let config = InsertConfig { rate, layout, quantum: QUANTUM, latency, delay: None };
        let (insert, session) = insert(config);
        let mut world = Self {
            insert,
            session,
            now: Instant::ZERO + Span::from_secs(1),
            program,
            input: Vec::new(),
            handled: 0,
            delayed: VecDeque::new(),
            output: VecDeque::new(),
            is_stopped: false,
            dry: Vec::new(),
            out: Vec::new(),
            faults: Vec::new(),
        };
        world.restart(program);
        world
    }

    fn restart(&mut self, program: Program) {
        self.program = program;
        self.input.clear();
        self.handled = 0;
        self.delayed = std::iter::repeat_n(0.0, program.delay).collect();
        self.output = std::iter::repeat_n(0.0, program.ahead).collect();
        self.session.start(self.now);
    }

    /// The program takes a pipe's worth at a time.
    fn run_program(&mut self) {
        while self.input.len() - self.handled < 8_192 && self.session.poll_input(&mut self.input) {}
        if self.is_stopped {
            return;
        }
        let Program { block, gain, omits, doubles, .. } = self.program;
        while self.input.len() - self.handled >= block {
            for at in self.handled..self.handled + block {
                self.delayed.push_back(gain * self.input[at]);
                let sample = self.delayed.pop_front().unwrap();
                let is_omitted = omits > 0 && at % omits == omits - 1;
                let is_doubled = doubles > 0 && at % doubles == doubles - 1;
                let count = if is_omitted { 0 } else { 1 + usize::from(is_doubled) };
                self.output.extend(std::iter::repeat_n(sample, count));
            }
            self.handled += block;
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a sine")]
    fn step(&mut self) {
        self.now += TICK;
        self.run_program();
        let output: Vec<f32> = self.output.drain(..).collect();
        if !self.is_stopped {
            self.session.handle_output(&output);
        }
        if let Err(fault) = self.session.handle_timeout(self.now) {
            self.faults.push(fault);
            self.session.stop();
        }
        if (self.now.as_nanos() / 10_000_000).is_multiple_of(2) {
            let start = self.dry.len();
            let sine = (start..start + QUANTUM.as_usize())
                .map(|at| (0.5 * (at as f64 * 0.031).sin()) as f32);
            let mut block: Vec<f32> = sine.collect();
            self.dry.extend(&block);
            let real = block.len();
            self.insert.process(&mut block, real);
            self.out.extend(block);
        }
    }

    fn run(&mut self, span: Span) {
        let end = self.now + span;
        while self.now < end {
            self.step();
        }
    }

    fn status(&self) -> InsertStatus {
        self.insert.status()
    }

    /// The largest step between samples that follow each other, from a frame on.
    fn largest_step(&self, from: usize) -> f32 {
        self.out[from..].windows(2).map(|pair| (pair[1] - pair[0]).abs()).fold(0.0, f32::max)
    }
}

/// Steps of the sine itself.
const SINE_STEP: f32 = 0.5 * 0.031;

#[test]
fn a_program_that_passes_frames_on_is_heard_exact_to_the_frame() {
    for (delay, block) in [(0, 1), (0, 4_096), (1, 1), (4_096, 1_024), (20_000, 333)] {
        let mut world = World::new(Program { delay, block, ..PASS }, None);
        world.run(Span::from_secs(8));
        let InsertStatus { is_processing, latency, bypasses, .. } = world.status();
        assert_eq!(
            (is_processing, bypasses, &world.faults[..]),
            (true, 0, &[][..]),
            "{delay} {block}"
        );
        let expected = i64::try_from(delay).unwrap();
        assert_eq!(world.session.status().delay, Some(expected));
        let (late, last) = (latency.as_usize(), world.out.len() - 48_000);
        assert!(
            late >= delay + block - 1 && late < delay + block + 12_000,
            "{delay} {block}: {late}"
        );
        assert_eq!(world.out[last..], world.dry[last - late..world.dry.len() - late]);
        assert!(world.largest_step(0) < SINE_STEP + 1.0 / 480.0);
    }
}

#[test]
fn a_program_that_begins_with_silence_of_its_own_is_not_late() {
    let mut world = World::new(Program { ahead: 9_000, ..PASS }, None);
    world.run(Span::from_secs(6));
    assert_eq!(world.session.status().delay, Some(9_000));
    let InsertStatus { is_processing, latency, .. } = world.status();
    assert!(is_processing && latency < Frames(6_000), "{latency}");
    let (late, last) = (latency.as_usize(), world.out.len() - 48_000);
    assert_eq!(world.out[last..], world.dry[last - late..world.dry.len() - late]);
}

#[test]
fn a_stall_an_end_and_a_return_move_no_sample() {
    let mut world = World::new(Program { delay: 500, block: 64, ..PASS }, None);
    world.run(Span::from_secs(6));
    let settled = world.out.len();
    let latency = world.status().latency.as_usize();
    assert!(world.status().is_processing);
    // Shorter than the watchdog, then longer.
    for stall in [Span::from_millis(400), Span::from_secs(3)] {
        world.is_stopped = true;
        world.run(stall);
        assert!(!world.status().is_processing, "{stall}");
        world.is_stopped = false;
        if !world.faults.is_empty() {
            assert_eq!(world.faults, [InsertFault::NoOutput]);
            world.restart(world.program);
        }
        world.run(Span::from_secs(12));
        assert!(world.status().is_processing, "{stall} {:?}", world.status());
    }
    assert_eq!(world.status().bypasses, 2);
    assert_eq!(world.status().latency.as_usize(), latency);
    let end = world.out.len();
    let dry = &world.dry[settled - latency..end - latency];
    for (at, (out, dry)) in world.out[settled..end].iter().zip(dry).enumerate() {
        assert!((out - dry).abs() < 1e-6, "frame {at}: {out} {dry}");
    }
}

#[test]
fn a_bypass_is_a_fade_from_what_the_program_makes() {
    let mut world = World::new(Program { gain: 0.2, ..PASS }, Some(Span::from_millis(200)));
    world.run(Span::from_secs(6));
    assert!(world.status().is_processing);
    assert_eq!(world.status().latency, Frames(9_600), "as configured, from the first frame on");
    let from = world.out.len();
    world.is_stopped = true;
    world.run(Span::from_secs(2));
    assert_eq!(world.faults, [InsertFault::NoOutput]);
    assert_eq!(world.status().bypasses, 1);
    // The fade changes the gain from 0.2 to 1 in 480 frames.
    assert!(world.largest_step(0) < SINE_STEP + 0.5 * 0.8 / 480.0 + 1e-4);
    let loudest =
        world.out[from..].chunks(480).map(|part| part.iter().fold(0.0_f32, |m, x| m.max(x.abs())));
    assert!(loudest.fold(1.0_f32, f32::min) > 0.09, "never silent");
}

#[test]
fn a_program_that_is_too_late_for_the_configured_latency_stays_bypassed() {
    let mut world = World::new(Program { delay: 30_000, ..PASS }, Some(Span::from_millis(200)));
    world.run(Span::from_secs(6));
    let InsertStatus { is_processing, needed, bypassed_frames, .. } = world.status();
    assert!(!is_processing && bypassed_frames > 200_000);
    assert!(needed.is_some_and(|needed| (30_000..36_000).contains(&needed.0)), "{needed:?}");
    assert_eq!(world.out[9_600..], world.dry[..world.dry.len() - 9_600]);
}

#[test]
fn a_wrong_count_is_found_before_the_output_is_heard_or_ends_it() {
    for (program, expected) in [
        (Program { omits: 2, ..PASS }, InsertFault::TooFewFrames),
        (Program { doubles: 1, ..PASS }, InsertFault::TooManyFrames),
    ] {
        let mut world = World::new(program, None);
        world.run(Span::from_secs(6));
        // Half of a burst is not recognized.
        let fault = world.faults.first().copied();
        assert!(fault == Some(expected) || fault == Some(InsertFault::Unrecognized), "{fault:?}");
        assert_eq!(world.status().processed_frames, 0);
    }
    for (program, expected) in [
        (Program { omits: 3_000, ..PASS }, InsertFault::TooFewFrames),
        (Program { doubles: 3_000, ..PASS }, InsertFault::TooManyFrames),
    ] {
        let mut world = World::new(program, None);
        world.run(Span::from_secs(700));
        assert_eq!(world.faults.first(), Some(&expected));
        assert!(!world.status().is_processing);
    }
}

#[test]
fn a_program_that_says_nothing_or_never_reads_is_ended() {
    let mut world = World::new(Program { block: 1 << 20, ..PASS }, None);
    world.run(Span::from_secs(15));
    assert_eq!(world.faults, [InsertFault::NoOutput]);
    // While a program is down, the programme is not kept.
    assert_eq!(world.status().blocks_lost, 0);
    assert_eq!(world.out, world.dry);
}

#[test]
fn what_comes_before_a_pause_is_not_played_after_it() {
    let mut world = World::new(Program { delay: 4_000, ..PASS }, None);
    world.run(Span::from_secs(6));
    let (at, latency) = (world.out.len(), world.status().latency.as_usize());
    world.insert.flush();
    world.run(Span::from_secs(1));
    assert!(world.out[at..at + latency].iter().all(|sample| *sample == 0.0));
    assert_eq!(world.out[at + latency..], world.dry[at..world.dry.len() - latency]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever a program does, the station plays the programme, late by at most two seconds, and
    /// no sample is a click.
    #[test]
    fn the_output_is_the_programme_whatever_the_program_does(
        delay in 0_usize..8_000,
        block in 1_usize..5_000,
        acts in proptest::collection::vec((0_u8..4, 10_i64..1_500), 1..8),
    ) {
        let program = Program { delay, block, ..PASS };
        let mut world = World::new(program, Some(Span::from_millis(600)));
        world.run(Span::from_secs(4));
        for (act, millis) in acts {
            match act {
                0 => world.is_stopped = true,
                1 => world.is_stopped = false,
                2 => {
                    world.session.stop();
                    world.restart(program);
                }
                _ => {}
            }
            world.run(Span::from_millis(millis));
        }
        let late = 28_800;
        for (out, dry) in world.out[late..].iter().zip(&world.dry) {
            prop_assert!((out - dry).abs() < 1e-6);
        }
    }
}
