//! Whatever live senders do, a station with a fallback plays without gaps, and plays the active
//! sender frame by frame.

use crate::station_sim::{Sender, SentContent, StationSim, seconds};
use aulos_core::{Rng, SampleRate, Span};
use aulos_engine::input::InputConfig;
use aulos_engine::source::Pacing;
use aulos_engine::status::InputState;
use aulos_engine::switch::InputHealth;
use aulos_engine::switch::SwitchConfig;

/// Senders that fail at random, with an endless recording as fallback.
struct FailureRun {
    sim: StationSim,
    random: Rng,
    /// How often a sender was followed by the next one while it was still being played. Between
    /// them, only the end of the one and the beginning of the other are on air.
    joins: usize,
    flapped: u32,
    /// Frames of silence before the first sender was there.
    waited: u64,
    /// Without a hold-in every sender comes back at once, and may flap.
    hold_in: Span,
}

impl FailureRun {
    fn new(senders: usize, hold_in: Span, seed: u64) -> Self {
        let switch = SwitchConfig { failback_delay: hold_in, ..SwitchConfig::default() };
        let mut input_config = InputConfig::default();
        input_config.silence.duration = Span::from_millis(500);
        input_config.silence.dead_channel = Some(Span::from_millis(500));
        let configs = (switch, input_config, Pacing::Live);
        let mut sim =
            StationSim::with_config(SampleRate::HZ_48000, &vec![0; senders], true, !seed, configs);
        sim.run(Span::from_secs(2));
        sim.analyzer.reset();
        let waited = sim.status().silent_frames;
        Self { sim, random: Rng::new(seed), joins: 0, flapped: 0, waited, hold_in }
    }

    fn fail(&mut self) {
        let now = self.sim.now;
        let span = seconds(self.random.exponential(1.5));
        // Prefers senders of high priority, because they are on air.
        let mut victim = 0;
        while victim + 1 < self.sim.senders.len() && self.random.chance(0.4) {
            victim += 1;
        }
        let sender = &mut self.sim.senders[victim];
        match self.random.next_u64() % 22 {
            0..6 => sender.stop_for(now, span),
            6..10 => sender.stall_for(now, span),
            10..13 => {
                self.joins += usize::from(span < Span::from_secs(1));
                sender.end_for(now, span);
            }
            13 => {
                self.joins += 1;
                sender.end_for(now, Span::ZERO);
            }
            14..16 => sender.lose_for(now, span),
            16..21 => {
                let content = match self.random.next_u64() % 3 {
                    0 => SentContent::Silence,
                    1 => SentContent::Stuck,
                    _ => SentContent::Half,
                };
                sender.set_content(now, content);
                self.sim.run(span);
                let now = self.sim.now;
                self.sim.senders[victim].set_content(now, SentContent::Sound);
            }
            _ => return self.flap(victim),
        }
        let pause = seconds(self.random.exponential(2.0));
        self.sim.run(pause);
    }

    /// A sender that comes and goes once a second while all others work.
    fn flap(&mut self, victim: usize) {
        if self.hold_in == Span::ZERO {
            return;
        }
        for _ in 0..200 {
            self.sim.run(Span::from_secs(1));
            if self.all_is_well() {
                break;
            }
        }
        let before = self.sim.status();
        assert!(self.all_is_well() && before.active == Some(0), "after quiet minutes");
        for _ in 0..5 {
            self.sim.senders[victim].stop_for(self.sim.now, Span::from_millis(500));
            self.sim.run(Span::from_secs(1));
        }
        let after = self.sim.status();
        let switches = after.switches - before.switches;
        assert!(switches <= u64::from(victim == 0), "{switches} while input {victim} flaps");
        self.flapped += 1;
    }

    fn all_is_well(&mut self) -> bool {
        let status = self.sim.status();
        let healthy = |input: &InputState| matches!(input.health, InputHealth::Healthy { .. });
        let count = self.sim.senders.len();
        status.inputs[..count].iter().all(healthy)
            && self.sim.senders.iter().all(Sender::is_playing)
    }

    fn check(mut self, failures: u64) {
        let status = self.sim.status();
        let (analyzer, decisions) = (&self.sim.analyzer, &self.sim.decision_times);
        println!(
            "{} s, {} senders, {} switches by cause {:?}, {} underruns, {} flapped; silence {}, sent as \
             such {}, bent by {:.0} ppm, {} slips in {} joins; decided {} after the time-out, silence \
             noticed {} to {} after its time; heard {:?}",
            analyzer.frames / 48_000,
            self.sim.senders.len(),
            status.switches,
            status.switches_by,
            status.underruns,
            self.flapped,
            analyzer.silence(),
            analyzer.sent_silence(),
            analyzer.max_drift_ppm,
            analyzer.slips.len(),
            self.joins,
            decisions.latest,
            decisions.silence.0,
            decisions.silence.1,
            analyzer.frames_by_source
        );
        assert!(analyzer.silence() <= Span::from_millis(1), "{}", analyzer.silence());
        // Half a second is detected on input, 0.4 s before it would be played.
        assert!(analyzer.sent_silence() <= Span::from_millis(650), "{}", analyzer.sent_silence());
        assert!(
            analyzer.slips.len() <= self.joins,
            "frames left out or repeated: {:?}",
            analyzer.slips
        );
        // The resampler's ringing at a join is 40 frames, and no frame of a sender is missing.
        assert!(
            analyzer.slips.iter().all(|(_, by)| (40.0 + by).abs() < 1.1),
            "{:?}",
            analyzer.slips
        );
        // The drift servo's limit, and the ringing of a join in the next chunk.
        assert!(analyzer.max_drift_ppm < 515.0);
        // A quantum, plus the worker's lateness.
        assert!(decisions.latest <= Span::from_millis(23), "{}", decisions.latest);
        let (least, most) = decisions.silence;
        assert!(least >= -Span::from_millis(100) && most <= Span::from_millis(100));
        assert!(analyzer.changes <= status.switches);
        let counts = (status.silent_frames - self.waited, status.pool_exhausted, status.stalls);
        assert_eq!(counts, (0, 0, 0));
        if self.hold_in == Span::ZERO {
            // Switching away and back.
            assert!(status.switches >= failures / 4, "{} switches", status.switches);
            assert!(
                analyzer.frames_by_source[..2].iter().all(|frames| frames * 20 > analyzer.frames),
                "{:?}",
                analyzer.frames_by_source
            );
        }
    }
}

fn failures(count: u64, senders: usize, hold_in_s: i64, seed: u64) {
    let mut trial = FailureRun::new(senders, Span::from_secs(hold_in_s), seed);
    (0..count).for_each(|_| trial.fail());
    trial.check(count);
}

#[test]
fn of_one_sender() {
    failures(150, 1, 5, 1);
}

#[test]
fn of_two_senders() {
    failures(250, 2, 5, 2);
}

#[test]
fn two_senders_that_return_at_once() {
    failures(250, 2, 0, 3);
}

#[test]
fn three_senders_that_return_at_once() {
    failures(200, 3, 0, 4);
}

#[test]
fn of_four_senders() {
    failures(150, 4, 5, 5);
}
