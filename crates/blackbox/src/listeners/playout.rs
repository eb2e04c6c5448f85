//! The buffer of a player, as a calculation: when it has nothing to play.

use std::time::Duration;

/// What one listener heard in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerReport {
    /// Sound that arrived.
    pub sound: Duration,
    /// How often its connection ended, was refused, or was answered with an error.
    pub errors: u32,
    /// How often it had nothing to play.
    pub stalls: u32,
    /// Together, and the longest.
    pub stalled: Duration,
    /// The longest of them.
    pub longest: Duration,
    /// Segments that were no longer there when it came to them.
    pub missed: u64,
    /// Discontinuities in its playlist.
    pub discontinuities: u32,
}

impl ListenerReport {
    fn add_stall(&mut self, length: Duration) {
        self.stalled += length;
        self.longest = self.longest.max(length);
    }
}

/// A player's buffer. Times count from any moment, and do not go back.
#[derive(Debug)]
pub struct Playout {
    reserve: Duration,
    buffer: Buffer,
    heard: ListenerReport,
}

#[derive(Debug)]
enum Buffer {
    /// Before the reserve is there: the sound so far, and since when a listener hears nothing
    /// (never yet: `None`).
    Fills(Duration, Option<Duration>),
    /// It plays, and runs dry at this time.
    Plays(Duration),
}

impl Playout {
    /// One that begins to play with this much sound.
    #[must_use]
    pub fn new(reserve: Duration) -> Self {
        Self {
            reserve,
            buffer: Buffer::Fills(Duration::ZERO, None),
            heard: ListenerReport::default(),
        }
    }

    /// Sound of this length has arrived.
    pub fn arrived(&mut self, now: Duration, sound: Duration) {
        self.heard.sound += sound;
        self.run_dry(now);
        match &mut self.buffer {
            Buffer::Plays(until) => *until += sound,
            Buffer::Fills(so_far, since) => {
                *so_far += sound;
                if *so_far >= self.reserve {
                    if let Some(since) = *since {
                        self.heard.add_stall(now.saturating_sub(since));
                    }
                    self.buffer = Buffer::Plays(now + *so_far);
                }
            }
        }
    }

    /// An error of the connection or of the server.
    pub const fn error(&mut self) {
        self.heard.errors += 1;
    }

    /// So many segments were gone.
    pub const fn missed(&mut self, segments: u64) {
        self.heard.missed += segments;
    }

    /// The playlist has a discontinuity before the next segment.
    pub const fn discontinuity(&mut self) {
        self.heard.discontinuities += 1;
    }

    /// What was heard since the last call. A stall that goes on counts so far.
    pub fn take(&mut self, now: Duration) -> ListenerReport {
        self.run_dry(now);
        if let Buffer::Fills(_, Some(since)) = &mut self.buffer {
            self.heard.add_stall(now.saturating_sub(*since));
            *since = now;
        }
        std::mem::take(&mut self.heard)
    }

    fn run_dry(&mut self, now: Duration) {
        if let Buffer::Plays(until) = self.buffer
            && until < now
        {
            self.heard.stalls += 1;
            self.buffer = Buffer::Fills(Duration::ZERO, Some(until));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_late_arrival_stalls_from_the_end_of_the_buffer_until_the_reserve() {
        let mut playout = Playout::new(ms(200));
        playout.arrived(ms(0), ms(100));
        playout.arrived(ms(500), ms(100));
        assert_eq!(
            playout.take(ms(500)),
            ListenerReport { sound: ms(200), ..ListenerReport::default() }
        );
        // It plays until 700 ms.
        playout.arrived(ms(1_000), ms(100));
        playout.arrived(ms(1_100), ms(100));
        playout.arrived(ms(1_200), ms(500));
        let heard = playout.take(ms(1_300));
        let stall = ListenerReport {
            stalls: 1,
            stalled: ms(400),
            longest: ms(400),
            ..ListenerReport::default()
        };
        assert_eq!(heard, ListenerReport { sound: ms(700), ..stall });
    }

    #[test]
    fn a_stall_over_two_periods_counts_in_both() {
        let mut playout = Playout::new(ms(100));
        playout.arrived(ms(0), ms(100));
        let first = playout.take(ms(300));
        assert_eq!((first.stalls, first.stalled), (1, ms(200)));
        playout.arrived(ms(350), ms(100));
        let second = playout.take(ms(360));
        assert_eq!((second.stalls, second.stalled, second.longest), (0, ms(50), ms(50)));
    }
}
