//! How much of a programme is missing after an interruption.

use aulos_core::{Instant, Span};

/// Follows a live programme by the sound that arrives.
///
/// The time between two blocks says nothing: a server sends some seconds in advance when a listener
/// connects, and the programme goes on while the connection is down. What is missing is the time
/// by which the clock has passed the end of all sound received. It is looked at after interruptions
/// only, because the clock of a server is never exactly that of this machine.
#[derive(Debug, Default)]
pub(super) struct ProgrammeClock {
    /// When the sound received so far ends, if it is played from its arrival on; `None` before the
    /// first.
    end: Option<Instant>,
}

impl ProgrammeClock {
    /// Sound of this length arrives at `now`, after an interruption if it `resumes`. Returns the
    /// length of the programme that is missing before it.
    pub(super) fn receive(&mut self, now: Instant, length: Span, resumes: bool) -> Span {
        let missing = if resumes { self.missing_at(now) } else { Span::ZERO };
        self.end = Some(self.end.unwrap_or(now) + missing + length);
        missing
    }

    /// What would be missing if sound came at `now`, after an interruption.
    pub(super) fn missing_at(&self, now: Instant) -> Span {
        self.end.map_or(Span::ZERO, |end| now.since(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Instant {
        Instant::ZERO + Span::from_millis(100_000 + millis)
    }

    /// Receives blocks of 100 ms: `ahead` of them at once, then one each 100 ms until `to`.
    fn play(clock: &mut ProgrammeClock, from: i64, to: i64, ahead: i64) -> Span {
        let block = Span::from_millis(100);
        let missing = clock.receive(at(from), block, true);
        for _ in 1..ahead {
            assert_eq!(clock.receive(at(from), block, false), Span::ZERO);
        }
        for millis in (from + 100..to).step_by(100) {
            assert_eq!(clock.receive(at(millis), block, false), Span::ZERO);
        }
        missing
    }

    #[test]
    fn the_programme_that_no_sound_covers_is_missing() {
        for (ahead, missing) in [(1, 3_000), (21, 1_000), (60, 0)] {
            let mut clock = ProgrammeClock::default();
            assert_eq!(play(&mut clock, 0, 10_000, ahead), Span::ZERO);
            // With what was sent in advance, the sound lasts until then.
            let found = play(&mut clock, 13_000, 20_000, ahead);
            assert_eq!(found, Span::from_millis(missing), "{ahead} blocks in advance");
        }
    }

    #[test]
    fn sound_that_is_late_but_whole_is_not_missing() {
        let mut clock = ProgrammeClock::default();
        let second = Span::from_secs(1);
        assert_eq!(clock.receive(at(0), second, false), Span::ZERO);
        assert_eq!(clock.receive(at(5_000), second, false), Span::ZERO);
        assert_eq!(clock.receive(at(5_000), second, false), Span::ZERO);
        assert_eq!(clock.missing_at(at(7_500)), Span::from_millis(4_500));
    }
}
