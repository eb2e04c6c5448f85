//! Schedules the sends of sessions.
//!
//! The chunks of a session go out once per *wait*, all that are due in one call. Sessions are
//! spread over the ticks of that wait, so a Time request never finds more than the sends of one
//! tick ahead of it. Each session returns to its own phase: after a late wake-up, when many
//! sessions are served together, they are spread again at their next turn. Counting the wait from
//! the last turn was rejected, because sessions that once shared a tick would share it for ever.

use aulos_core::{Instant, Span};

use crate::wheel;

/// A timer wheel for sends.
#[derive(Debug)]
pub(super) struct SendWheel {
    wheel: wheel::Wheel,
    /// The phase of the next new session.
    phase: u16,
}

impl SendWheel {
    pub(super) fn new(now: Instant) -> Self {
        Self { wheel: wheel::Wheel::new(now, TICK, SLOTS), phase: 0 }
    }

    /// A phase for a new session; phases are assigned in turn.
    pub(super) const fn next_phase(&mut self) -> u16 {
        self.phase = (self.phase + 1) % PHASES;
        self.phase
    }

    /// Schedules `token`, which is served every `wait` ticks, at the next tick of its phase.
    pub(super) fn add(&mut self, token: u64, phase: u16, wait: usize) {
        let wait = wait.clamp(1, SLOTS - 1);
        let phase = match usize::from(phase) {
            phase if wait > COARSE_WAIT => phase / COARSE_TICKS * COARSE_TICKS,
            phase => phase,
        };
        let ahead = (phase % wait + wait - self.wheel.tick_number() % wait) % wait;
        self.wheel.add(token, ahead);
    }

    /// When the next slot that is not empty expires.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.wheel.poll_timeout()
    }

    /// Moves the tokens that are due at `now` into `due`.
    pub(super) fn take_due(&mut self, now: Instant, due: &mut Vec<u64>) {
        self.wheel.take_due(now, due);
    }
}

/// The resolution of sends. The longest wait is 400 ticks, of listeners of mounts.
pub(super) const TICK: Span = Span::from_millis(5);

const SLOTS: usize = 512;

/// Sessions that wait long share every fourth tick, so that the thread wakes up less often.
const COARSE_WAIT: usize = 100;
const COARSE_TICKS: usize = 4;

/// A multiple of every wait from 1 to 10 ticks, and of 12, 15 and 20; longer ones are uneven.
const PHASES: u16 = 2_520;

#[cfg(test)]
mod tests {
    use super::super::run::SENDS_PER_POLL;
    use super::*;

    /// A hundred sessions that are served every 20 ticks.
    struct PeerSet {
        wheel: SendWheel,
        phases: Vec<u16>,
        due: Vec<u64>,
    }

    impl PeerSet {
        fn new() -> Self {
            let mut wheel = SendWheel::new(Instant::ZERO);
            let phases: Vec<u16> = (0..100).map(|_| wheel.next_phase()).collect();
            (0..).zip(&phases).for_each(|(token, phase)| wheel.add(token, *phase, 20));
            Self { wheel, phases, due: Vec::new() }
        }

        /// Serves the sessions that are due, and returns their number.
        fn serve(&mut self, now: Instant, mut served: impl FnMut(usize)) -> usize {
            self.wheel.take_due(now, &mut self.due);
            let count = self.due.len();
            for token in self.due.drain(..) {
                let number = usize::try_from(token).unwrap();
                served(number);
                self.wheel.add(token, self.phases[number], 20);
            }
            count
        }
    }

    #[test]
    fn everybody_is_due_once_per_wait() {
        let mut now = Instant::ZERO;
        let mut crowd = PeerSet::new();
        let mut served = vec![0; 100];
        for _ in 0..2_000 {
            now += Span::from_millis(1);
            let count = crowd.serve(now, |number| served[number] += 1);
            assert!(count <= 5, "spread over the ticks");
        }
        assert!(served.iter().all(|count| (19..=21).contains(count)), "{served:?}");
    }

    #[test]
    fn who_was_served_late_and_together_is_spread_again() {
        let mut crowd = PeerSet::new();
        for late_ms in [30, 95, 250, 10_000] {
            let mut now = crowd.wheel.wheel.next_tick_at() + Span::from_millis(late_ms);
            assert!(crowd.serve(now, |_| ()) > 5);
            let mut served = vec![0; 100];
            for _ in 0..110 {
                now += Span::from_millis(1);
                assert!(crowd.serve(now, |number| served[number] += 1) <= 5, "{late_ms}");
            }
            assert!(served.iter().all(|count| *count > 0), "{late_ms}: {served:?}");
        }
    }

    /// Time requests come at any moment of a wait of 100 ms, while 500 sessions are sent to at 20
    /// us each. The loop polls after every eighth send. The clock error of a delayed reply is half
    /// of its delay.
    #[test]
    fn a_client_that_asks_for_the_time_during_a_burst_is_wrong_by_less_than_200_us() {
        const SEND_NS: u64 = 20_000;
        let look = SEND_NS * SENDS_PER_POLL as u64;
        // Evenly spread, and all in one tick after a late wake-up.
        for together in [25, 500] {
            let burst = SEND_NS * together;
            let mut errors: Vec<u64> = (0..5_000_000 / 97)
                .map(|n| n * 97)
                .map(|asked| if asked < burst { look.min(burst) - asked % look } else { 0 })
                .map(|waited| waited / 2)
                .collect();
            errors.sort_unstable();
            let (median, most) = (errors[errors.len() / 2], errors[errors.len() - 1]);
            assert!(most <= 100_000, "{together}: {most} ns at worst");
            // A client takes the median of 200 replies.
            assert!(median <= 50_000, "{together}: {median} ns");
        }
    }

    #[test]
    fn every_wait_keeps_its_length() {
        for wait in (1..=20).chain([99, 101, 400]) {
            let mut wheel = SendWheel::new(Instant::ZERO);
            let mut due = Vec::new();
            wheel.add(7, 13, wait);
            let mut turns = vec![];
            for tick in 1..3_000 {
                wheel.take_due(Instant::ZERO + TICK * tick, &mut due);
                for token in due.drain(..) {
                    turns.push(tick);
                    wheel.add(token, 13, wait);
                }
            }
            let wait = i64::try_from(wait).unwrap();
            assert!(turns.windows(2).all(|pair| pair[1] - pair[0] == wait), "{wait}: {turns:?}");
        }
    }

    #[test]
    fn an_empty_wheel_needs_no_wake_up_and_does_not_catch_up() {
        let mut wheel = SendWheel::new(Instant::ZERO);
        assert_eq!(wheel.poll_timeout(), None);
        let later = Instant::ZERO + Span::from_secs(100);
        let mut due = Vec::new();
        wheel.take_due(later, &mut due);
        wheel.add(7, 1, 1);
        assert!(wheel.poll_timeout().is_some_and(|at| at - later <= TICK + TICK));
    }
}
