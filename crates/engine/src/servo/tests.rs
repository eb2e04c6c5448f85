//! The servo in a closed loop: a sender with its own clock, a buffer, and its reader.

use std::collections::VecDeque;

use aulos_core::Rng;

use super::*;

/// What happens to the audio of a stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stall {
    /// All of it arrives at once after the stall.
    CatchesUp,
    /// It never arrives.
    Loses,
}

/// A sender, the buffer of its input and its servo, in steps of one quantum.
struct World {
    now: Instant,
    servo: Servo,
    /// Drift of the sender, in ppm.
    ppm: f64,
    /// Period of its deliveries, and their maximum delay.
    period: Span,
    jitter: Span,
    /// It sends as much as fits.
    paced_by_us: bool,
    chance: Rng,
    /// Capture time of the next period, in seconds.
    capture: f64,
    /// Arrival times of the captured periods.
    underway: VecDeque<Instant>,
    stalled_until: Instant,
    /// Received, and not yet in the buffer.
    ring: VecDeque<Instant>,
    /// In the buffer, in seconds.
    staged: f64,
    last_arrival: Instant,
    on_air: bool,
    /// The input may be on air.
    wanted: bool,
    drift: f64,
    underruns: u32,
}

impl World {
    fn new(ppm: f64) -> Self {
        Self::of(ppm, Span::from_millis(10), Servo::new(TARGET, None))
    }

    fn of(ppm: f64, period: Span, servo: Servo) -> Self {
        let now = Instant::ZERO + Span::from_secs(1);
        Self {
            now,
            servo,
            ppm,
            period,
            jitter: Span::ZERO,
            paced_by_us: false,
            chance: Rng::new(1),
            capture: 1.0,
            underway: VecDeque::new(),
            stalled_until: Instant::ZERO,
            ring: VecDeque::new(),
            staged: 0.0,
            last_arrival: now,
            on_air: false,
            wanted: true,
            drift: 0.0,
            underruns: 0,
        }
    }

    fn target(&self) -> f64 {
        self.servo.target
    }

    /// Distance of the sender below the target fill.
    fn error_ms(&self) -> f64 {
        (self.fill().as_secs_f64() - self.target()) * 1e3
    }

    fn fill(&self) -> Span {
        Span::from_secs_f64(self.staged) + (self.now - self.last_arrival)
    }

    fn stall(&mut self, length: Span, stall: Stall) {
        match stall {
            Stall::CatchesUp => self.stalled_until = self.now + length,
            Stall::Loses => self.capture += length.as_secs_f64(),
        }
    }

    /// A random number from 0 to 1.
    fn unit(&mut self) -> f64 {
        let bits = u32::try_from(self.chance.next_u64() >> 32).unwrap_or(0);
        f64::from(bits) / f64::from(u32::MAX)
    }

    fn send(&mut self) {
        while self.capture <= (self.now - Instant::ZERO).as_secs_f64() {
            let unit = self.unit();
            let late = Span::from_secs_f64(unit * self.jitter.as_secs_f64());
            let arrival = Instant::ZERO + Span::from_secs_f64(self.capture) + late;
            let last = self.underway.back().copied().unwrap_or(Instant::ZERO);
            self.underway.push_back(arrival.max(last).max(self.stalled_until));
            self.capture += self.period.as_secs_f64() / (1.0 + self.ppm * 1e-6);
        }
        while self.ring.len() < RING && self.paced_by_us {
            self.ring.push_back(self.now);
        }
        while self.ring.len() < RING
            && let Some(arrival) = self.underway.pop_front_if(|arrival| *arrival <= self.now)
        {
            // If the ring is full, it is received when there is room.
            let waited = self.ring.len() > RING / 2;
            self.ring.push_back(if waited { self.now } else { arrival });
        }
    }

    /// Runs one quantum; returns the drift at which it is read, in ppm.
    fn step(&mut self) -> f64 {
        self.now += QUANTUM;
        if self.now >= self.stalled_until {
            self.send();
        }
        let (target, period) = (self.target(), self.period.as_secs_f64());
        let mut full = false;
        loop {
            if self.staged >= 2.0 * target {
                full = true;
                self.servo.mark_full(self.now);
                break;
            }
            let Some(received) = self.ring.pop_front() else { break };
            let rate = SampleRate::HZ_48000;
            self.servo.push_arrival(received, rate.frames(self.period), rate);
            self.staged += period;
            self.last_arrival = received;
        }
        if !self.wanted {
            self.on_air = false;
            self.staged = self.staged.min(target);
        } else if !self.on_air && self.staged >= target {
            self.on_air = true;
            self.servo.restart();
        }
        if self.on_air {
            let read = QUANTUM.as_secs_f64() * (1.0 + self.drift * 1e-6);
            if self.staged < read {
                (self.on_air, self.staged) = (false, 0.0);
                self.underruns += 1;
            } else {
                self.staged -= read;
                let fill = self.fill();
                let drift = if full {
                    self.servo.update_full(fill, QUANTUM)
                } else {
                    self.servo.update(fill, QUANTUM)
                };
                self.drift = f64::from(drift.as_ppb()) * 1e-3;
            }
        }
        self.drift
    }

    /// Runs for `time`; returns its figures.
    fn run(&mut self, time: Span) -> Report {
        let mut report = Report { least: f64::MAX, most: f64::MIN, ..Report::default() };
        let end = self.now + time;
        let start = self.now;
        while self.now < end {
            let before = self.drift;
            let drift = self.step();
            if !self.on_air {
                continue;
            }
            report.least = report.least.min(drift);
            report.most = report.most.max(drift);
            report.slew = report.slew.max((drift - before).abs() / QUANTUM.as_secs_f64());
            report.astray = report.astray.max(self.error_ms().abs());
            if self.error_ms().abs() > 5.0 {
                report.settled = self.now - start;
            }
        }
        report.rate = f64::from(self.servo.drift().as_ppb()) * 1e-3;
        report
    }
}

/// Figures of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Report {
    /// The drifts at which the audio was read, in ppm.
    least: f64,
    most: f64,
    /// Their fastest change, in ppm per second.
    slew: f64,
    /// The largest distance of the fill from its target, in milliseconds.
    astray: f64,
    /// Time when the fill was last farther than 5 ms from its target.
    settled: Span,
    /// The sender's estimated drift at the end, in ppm.
    rate: f64,
}

const QUANTUM: Span = Span::from_millis(20);
const TARGET: Span = Span::from_millis(400);
const RING: usize = 64;
const MINUTE: Span = Span::from_secs(60);

#[test]
fn an_exact_sender_is_not_corrected_despite_jitter() {
    for jitter in [0, 1, 10, 50] {
        let mut world = World::new(0.0);
        world.jitter = Span::from_millis(jitter);
        let report = world.run(MINUTE * 240);
        println!("jitter {jitter} ms: {report:?}");
        assert!(report.rate == 0.0, "{jitter} ms: {report:?}");
        // A fill above the target, from late blocks at the start, is drained.
        let most = if jitter > 20 { 401.0 } else { 0.0 };
        assert!(report.most <= most && report.least >= -most, "{jitter} ms: {report:?}");
        assert_eq!(world.underruns, 0);
        let later = world.run(MINUTE * 60);
        assert!(later.most == 0.0 && later.least == 0.0, "{jitter} ms: {later:?}");
    }
}

#[test]
fn a_sender_is_followed_from_the_first_seconds_on() {
    for ppm in [50.0, 100.0, 700.0, 2_000.0] {
        for (ppm, jitter) in [(ppm, 0), (-ppm, 0), (ppm, 50), (-ppm, 50)] {
            let mut world = World::new(ppm);
            world.jitter = Span::from_millis(jitter);
            let first = world.run(MINUTE * 10);
            let later = world.run(MINUTE * 110);
            println!("{ppm} ppm, jitter {jitter} ms: {first:.1?}, then {later:.1?}");
            assert_eq!(world.underruns, 0);
            let late = if jitter == 0 { 0.0 } else { 50.0 };
            assert!(first.astray <= 35.0 + late, "{ppm} ppm, {jitter} ms: {first:?}");
            assert!(later.astray <= 2.0 + late, "{ppm} ppm, {jitter} ms: {later:?}");
            assert!((first.rate - ppm).abs() <= 5.0, "{ppm} ppm, {jitter} ms: {first:?}");
            assert!((later.rate - ppm).abs() <= 2.0, "{ppm} ppm, {jitter} ms: {later:?}");
            // While jitter hides the drift, the rate is wrong by some ppm.
            let (least, most) = (ppm.min(0.0) - 450.0, ppm.max(0.0) + 450.0);
            assert!(first.least >= least && first.most <= most, "{ppm} ppm: {first:?}");
            let wobble = (later.least - ppm).abs().max((later.most - ppm).abs());
            assert!(wobble <= if jitter == 0 { 25.0 } else { 100.0 }, "{ppm} ppm: {later:?}");
            assert!(first.slew <= 201.0 && later.slew <= 201.0, "{first:?}");
        }
    }
}

/// A slope is significant when it has moved the buffer by 12 ms.
#[test]
fn a_large_drift_is_known_within_seconds() {
    for (ppm, within) in [(2_000.0, 9), (700.0, 20), (100.0, 130), (50.0, 260)] {
        for ppm in [ppm, -ppm] {
            let mut world = World::new(ppm);
            let known = (1..=within).find(|_| {
                let report = world.run(Span::from_secs(1));
                (report.rate - ppm).abs() <= 0.05 * ppm.abs()
            });
            println!("{ppm} ppm are known after {known:?} s");
            assert!(known.is_some(), "{ppm} ppm after {within} s");
        }
    }
}

#[test]
fn a_fast_or_slow_sender_is_followed_for_a_day() {
    for ppm in [-300.0, -100.0, 100.0, 300.0] {
        let mut world = World::new(ppm);
        world.jitter = Span::from_millis(if ppm > 0.0 { 40 } else { 0 });
        world.run(MINUTE * 60 * 12);
        let report = world.run(MINUTE * 60 * 12);
        let late = if ppm > 0.0 { 40.0 } else { 0.0 };
        assert!(report.astray <= 2.0 + late, "{ppm} ppm: {report:?}");
        assert!((report.rate - ppm).abs() <= 1.0, "{ppm} ppm: {report:?}");
        assert_eq!(world.underruns, 0);
    }
}

#[test]
fn a_stall_that_is_caught_up_with_is_not_drift() {
    for ppm in [0.0, 700.0, -700.0] {
        let mut world = World::new(ppm);
        world.run(MINUTE * 30);
        for _ in 0..10 {
            world.stall(Span::from_millis(200), Stall::CatchesUp);
            let report = world.run(MINUTE * 2);
            println!("{ppm} ppm: {report:.1?}");
            // It is never off its target by more than two periods: late audio is not missing.
            assert!(report.astray <= 21.0, "{ppm} ppm: {report:?}");
            assert!((report.least - ppm).abs() <= 25.0 && (report.most - ppm).abs() <= 25.0);
            assert!((report.rate - ppm).abs() <= 2.0, "{ppm} ppm: {report:?}");
        }
        assert_eq!(world.underruns, 0);
    }
}

#[test]
fn a_stall_longer_than_the_buffer_leaves_a_backlog_with_a_known_end() {
    for ppm in [0.0, 700.0, -700.0] {
        for seconds in [1, 2, 5] {
            let mut world = World::new(ppm);
            world.run(MINUTE * 10);
            world.stall(Span::from_secs(seconds), Stall::CatchesUp);
            // Everything but the buffered audio waits for as long as nothing was heard.
            let surplus = seconds as f64 - 0.4;
            let end = Span::from_secs_f64(surplus / 400e-6) + MINUTE * 5;
            let report = world.run(end);
            println!("{ppm} ppm, {seconds} s: {report:.1?}");
            assert_eq!(world.underruns, 1);
            assert!(report.least >= ppm - 26.0 && report.most <= ppm + 401.0, "{report:?}");
            assert!((report.rate - ppm).abs() <= 2.0, "{ppm} ppm, {seconds} s: {report:?}");
            assert!(world.error_ms().abs() <= 13.0, "{} ms", world.error_ms());
            let rest = world.run(MINUTE * 10);
            assert!(rest.astray <= 13.0, "it does not swing: {rest:?}");
            assert!((rest.least - ppm).abs() <= 30.0 && (rest.most - ppm).abs() <= 30.0);
            assert_eq!(world.underruns, 1);
        }
    }
}

#[test]
fn what_a_stall_has_lost_changes_the_fill_but_not_the_rate() {
    for ppm in [0.0, 100.0, -700.0] {
        let mut world = World::new(ppm);
        world.run(MINUTE * 30);
        world.stall(Span::from_millis(200), Stall::Loses);
        // 200 ms at 400 ppm, and the last 30 of them more slowly.
        let report = world.run(Span::from_secs(500) + MINUTE * 5);
        println!("{ppm} ppm: {report:.1?}");
        assert!(report.least >= ppm - 401.0 && report.most <= ppm + 26.0, "{report:?}");
        assert!((report.rate - ppm).abs() <= 5.0, "{ppm} ppm: {report:?}");
        assert!(world.error_ms().abs() <= 5.0, "{} ms", world.error_ms());
        let rest = world.run(MINUTE * 10);
        assert!(rest.astray <= 13.0 && (rest.most - ppm).abs() <= 30.0, "no swing: {rest:?}");
        assert_eq!(world.underruns, 0);
    }
}

#[test]
fn pages_of_a_second() {
    for ppm in [0.0, 100.0, -100.0, 700.0] {
        for jitter in [0, 50] {
            let (target, keeps) = (Span::from_secs(2), Span::from_millis(3_500));
            let mut world = World::of(ppm, Span::from_secs(1), Servo::new(target, Some(keeps)));
            world.jitter = Span::from_millis(jitter);
            let first = world.run(MINUTE * 60);
            let later = world.run(MINUTE * 60);
            println!("{ppm} ppm, {jitter} ms: {first:.1?}, then {later:.1?}");
            assert_eq!(world.underruns, 0);
            assert!((later.rate - ppm).abs() <= 5.0, "{ppm} ppm, {jitter} ms: {later:?}");
            assert!(later.astray <= 150.0, "{ppm} ppm, {jitter} ms: {later:?}");
            assert!(first.most <= ppm.max(0.0) + 401.0 && first.least >= ppm.min(0.0) - 401.0);
            assert!(ppm != 0.0 || (first.most == 0.0 && first.least == 0.0), "{first:?}");
        }
    }
}

#[test]
fn a_clock_that_changes_is_followed() {
    for (ppm, jitter) in [(100.0, 0), (100.0, 20), (-700.0, 0)] {
        let mut world = World::new(ppm);
        world.jitter = Span::from_millis(jitter);
        world.run(MINUTE * 60);
        for change in [50.0, -50.0] {
            world.ppm += change;
            let first = world.run(MINUTE * 20);
            let later = world.run(MINUTE * 20);
            println!("to {} ppm: {first:.1?}, then {later:.1?}", world.ppm);
            let late = if jitter == 0 { 0.0 } else { 20.0 };
            assert!(first.astray <= 10.0 + late, "{first:?}");
            assert!((later.rate - world.ppm).abs() <= 10.0, "{later:?}");
        }
        assert_eq!(world.underruns, 0);
    }
}

#[test]
fn the_drift_estimate_survives_switches_and_reconnections() {
    for ppm in [700.0, -150.0] {
        let mut world = World::new(ppm);
        world.run(MINUTE * 20);
        // Another source is on air for a while.
        world.wanted = false;
        world.run(MINUTE);
        world.wanted = true;
        let back = world.run(Span::from_secs(10));
        assert!((back.rate - ppm).abs() <= 2.0 && (back.least - ppm).abs() <= 30.0, "{back:?}");
        // The sender disconnects, and returns with the same card.
        world.servo.mark_discontinuity();
        world.stall(Span::from_secs(20), Stall::Loses);
        let back = world.run(MINUTE);
        println!("{ppm} ppm: {back:.1?}");
        assert!((back.rate - ppm).abs() <= 5.0, "{back:?}");
        let later = world.run(MINUTE * 20);
        assert!((later.rate - ppm).abs() <= 2.0 && later.astray <= 26.0, "{later:?}");
        // The next one has another card.
        world.servo.mark_discontinuity();
        world.ppm = 0.0;
        world.run(MINUTE * 10);
        let exact = world.run(MINUTE * 10);
        assert!(exact.rate.abs() <= 1.0, "{exact:?}");
    }
}

#[test]
fn a_sender_that_waits_for_us_has_our_clock() {
    let mut world = World::new(0.0);
    world.capture = 1e9;
    world.paced_by_us = true;
    let report = world.run(MINUTE * 60);
    assert!(report.most == 0.0 && report.least == 0.0 && world.underruns == 0, "{report:?}");
    // Also after a sender whose clock is known.
    let mut world = World::new(700.0);
    world.run(MINUTE * 10);
    world.servo.mark_discontinuity();
    world.paced_by_us = true;
    world.run(MINUTE);
    let report = world.run(MINUTE * 60);
    assert!(report.most == 0.0 && report.least == 0.0, "{report:?}");
    // And in the middle of a stream.
    let mut world = World::new(700.0);
    world.run(MINUTE * 10);
    world.paced_by_us = true;
    world.run(MINUTE * 60);
    let report = world.run(MINUTE * 10);
    assert!(report.most == 0.0 && report.least == 0.0, "{report:?}");
}

#[test]
fn a_sender_that_stumbles_on_is_not_held_to_be_fast_or_slow() {
    for ppm in [0.0, 100.0] {
        for seed in 0..20 {
            let mut world = World::new(ppm);
            world.chance = Rng::new(seed);
            world.run(MINUTE * 20);
            let mut report = Report::default();
            for _ in 0..300 {
                let unit = world.unit();
                let stall = if world.unit() < 0.5 { Stall::CatchesUp } else { Stall::Loses };
                world.stall(Span::from_secs_f64(2.0 * unit * unit), stall);
                let next = world.run(Span::from_secs_f64(4.0 * unit));
                report.least = report.least.min(next.least - ppm);
                report.most = report.most.max(next.most - ppm);
            }
            println!("{ppm} ppm, {seed}: {:.0} to {:.0} ppm", report.least, report.most);
            assert!(
                report.least >= -450.0 && report.most <= 450.0,
                "{ppm} ppm, {seed}: {report:?}"
            );
        }
    }
}
