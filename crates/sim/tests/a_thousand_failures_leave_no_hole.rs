//! Whatever two live senders do, a station with something to fall back on sounds on, and plays
//! whoever is on air frame by frame.

mod studio;

use aulos_core::{SampleRate, Span};
use aulos_engine::status::InputState;
use aulos_engine::switch::Health;
use aulos_sim::Random;
use studio::{Sender, Studio, seconds};

/// Two senders that fail at random over a recording without end.
struct Trial {
    studio: Studio,
    random: Random,
    /// How often a sender was followed by the next one while it was still being played. Nothing is
    /// on air between them but the end of the one and the beginning of the other.
    joins: usize,
    flapped: u32,
}

impl Trial {
    fn new(seed: u64) -> Self {
        let mut studio = Studio::new(SampleRate::STUDIO, &[0, 0], true, !seed);
        studio.run(Span::from_secs(2));
        studio.ear.forget();
        Self { studio, random: Random::new(seed), joins: 0, flapped: 0 }
    }

    fn fail(&mut self) {
        let now = self.studio.now;
        let span = seconds(self.random.exponential(1.5));
        let victim = usize::from(self.random.chance(0.4));
        let sender = &mut self.studio.senders[victim];
        match self.random.bits() % 16 {
            0..6 => sender.stop_for(now, span),
            6..11 => sender.stall_for(now, span),
            11..14 => {
                self.joins += usize::from(span < Span::from_secs(1));
                sender.end_for(now, span);
            }
            14 => {
                self.joins += 1;
                sender.end_for(now, Span::ZERO);
            }
            _ => return self.flap(victim),
        }
        let pause = seconds(self.random.exponential(2.0));
        self.studio.run(pause);
    }

    /// A sender that comes and goes once a second while all else is well.
    fn flap(&mut self, victim: usize) {
        for _ in 0..60 {
            self.studio.run(Span::from_secs(1));
            if self.all_is_well() {
                break;
            }
        }
        let before = self.studio.status();
        assert!(self.all_is_well() && before.active == Some(0), "after a quiet minute");
        for _ in 0..5 {
            self.studio.senders[victim].stop_for(self.studio.now, Span::from_millis(500));
            self.studio.run(Span::from_secs(1));
        }
        let after = self.studio.status();
        let switches = after.switches - before.switches;
        assert!(switches <= u64::from(victim == 0), "{switches} while input {victim} flaps");
        self.flapped += 1;
    }

    fn all_is_well(&mut self) -> bool {
        let status = self.studio.status();
        let healthy = |input: &InputState| input.health == Health::Healthy;
        status.inputs[..2].iter().all(healthy) && self.studio.senders.iter().all(Sender::is_playing)
    }

    fn judge(mut self, failures: u64) {
        let status = self.studio.status();
        let ear = &self.studio.ear;
        println!(
            "{} s, {} switches, {} underruns, {} flapped; silence {}, bent by {:.0} ppm, {} slips in {} \
             joins; heard {:?}",
            ear.frames / 48_000,
            status.switches,
            status.underruns,
            self.flapped,
            ear.silence(),
            ear.bent,
            ear.slips.len(),
            self.joins,
            ear.heard
        );
        assert!(ear.silence() <= Span::from_millis(1), "{}", ear.silence());
        assert!(ear.slips.len() <= self.joins, "frames left out or repeated: {:?}", ear.slips);
        // What rings out of the resampler at a join are 40 frames, and none of a sender's is missing.
        assert!(ear.slips.iter().all(|(_, by)| (40.0 + by).abs() < 1.1), "{:?}", ear.slips);
        // The servo's limit, and the ringing of a join in the next chunk.
        assert!(ear.bent < 515.0);
        // Away and back.
        assert!(ear.changes <= status.switches && status.switches <= 2 + 2 * failures);
        assert_eq!((status.silent_frames, status.pool_exhausted, status.stalls), (0, 0, 0));
        assert!(ear.heard[..3].iter().all(|frames| frames * 20 > ear.frames), "{:?}", ear.heard);
    }
}

fn failures(count: u64, seed: u64) {
    let mut trial = Trial::new(seed);
    (0..count).for_each(|_| trial.fail());
    trial.judge(count);
}

#[test]
fn the_first_half() {
    failures(500, 1);
}

#[test]
fn the_second_half() {
    failures(500, 2);
}
