//! The server's clock, as the client measures it.
//!
//! The specification suggests a Kalman filter. Here each exchange gives two bounds of the offset
//! ([`ClockBounds`]), as with Snapcast: a burst of delays moves an average, and no bound.

use aulos_core::{ClockBounds, ClockLine, Instant, Span};

use crate::sendspin::frame::{instant, micros};

/// Asks the server for its time, in bursts of questions one after another.
#[derive(Debug)]
pub(super) struct ServerClock {
    bounds: ClockBounds,
    timer: ClockTimer,
    /// Questions that are left of this burst.
    burst: u32,
    bursts: u32,
    exchanges: u32,
    answered: Instant,
}

#[derive(Clone, Copy, Debug)]
enum ClockTimer {
    /// The next question is due.
    Ask(Instant),
    /// The answer to the question of the first time has not come by the second one.
    Await { asked: Instant, deadline: Instant },
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClockAction {
    /// Send a question.
    Ask,
    /// The server does not answer.
    ServerTimedOut,
}

impl ServerClock {
    /// The first question is due at `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            bounds: ClockBounds::new(MAX_BOUNDS),
            timer: ClockTimer::Ask(now),
            burst: BURST,
            bursts: 0,
            exchanges: 0,
            answered: now,
        }
    }

    /// Asks at `now`, after a time in which nothing was asked.
    pub(super) const fn resume(&mut self, now: Instant) {
        self.timer = ClockTimer::Ask(now);
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) -> Option<ClockAction> {
        match self.timer {
            ClockTimer::Ask(at) if at <= now => {
                self.timer = ClockTimer::Await { asked: now, deadline: now + ANSWER_TIMEOUT };
                Some(ClockAction::Ask)
            }
            ClockTimer::Await { deadline, .. } if deadline <= now => {
                Some(ClockAction::ServerTimedOut)
            }
            ClockTimer::Ask(_) | ClockTimer::Await { .. } => None,
        }
    }

    pub(super) const fn poll_timeout(&self) -> Instant {
        match self.timer {
            ClockTimer::Ask(at) => at,
            ClockTimer::Await { deadline, .. } => deadline,
        }
    }

    /// The question is written at `now`; returns its stamp.
    pub(super) fn ask(&mut self, now: Instant) -> i64 {
        if let ClockTimer::Await { asked, .. } = &mut self.timer {
            *asked = now;
        }
        micros(now)
    }

    /// Takes the answer that arrived at `now`, with the stamps of the question, of its arrival at the
    /// server and of the answer. False for one to no question, or with impossible stamps.
    pub(super) fn answer(&mut self, now: Instant, [question, received, sent]: [i64; 3]) -> bool {
        let ClockTimer::Await { asked, .. } = self.timer else { return false };
        let stamps = instant(received).zip(instant(sent));
        let Some((received, sent)) = stamps.filter(|(received, sent)| received <= sent) else {
            return false;
        };
        if question != micros(asked) || now < asked {
            return false;
        }
        if now - self.answered >= STALE_AFTER {
            self.bounds.clear();
        }
        self.answered = now;
        self.bounds.push_upper(asked, received - asked);
        self.bounds.push_lower(now, sent - now);
        self.bounds.update();
        self.exchanges = self.exchanges.saturating_add(1);
        self.burst -= 1;
        let next = match self.burst {
            0 => {
                self.burst = BURST;
                self.bursts = self.bursts.saturating_add(1);
                let interval =
                    if self.bursts < QUICK_BURSTS { QUICK_INTERVAL } else { BURST_INTERVAL };
                now + interval
            }
            _ => now,
        };
        self.timer = ClockTimer::Ask(next);
        true
    }

    /// The estimate; `None` before the first burst is over, and after a minute without an answer.
    pub(super) fn line_at(&self, now: Instant) -> Option<ClockLine> {
        let is_known = self.exchanges >= BURST && now.since(self.answered) < STALE_AFTER;
        self.bounds.line().filter(|_| is_known)
    }
}

/// Questions of a burst, as the specification suggests.
const BURST: u32 = 8;

/// From the end of a burst to the next one, at first and then: several lines of the drift soon, then
/// few messages.
const QUICK_INTERVAL: Span = Span::from_millis(500);
const BURST_INTERVAL: Span = Span::from_secs(5);
const QUICK_BURSTS: u32 = 10;

/// Bounds of each kind: those of about five minutes.
const MAX_BOUNDS: usize = 512;

/// A server that has not answered for so long is gone.
const ANSWER_TIMEOUT: Span = Span::from_secs(15);

/// After so long without an answer the estimate counts no more.
const STALE_AFTER: Span = Span::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: i64) -> Instant {
        Instant::ZERO + Span::from_micros(micros)
    }

    /// The exchanges of the vectors of the specification's filter: the line is within the largest
    /// error of what that filter gives for them.
    #[test]
    fn the_line_agrees_with_the_filter_of_the_specification() {
        let mut clock = ServerClock::new(at(0));
        let exchanges = [
            [1_000_000, 6_000_346, 6_000_396, 1_000_831],
            [11_000_000, 16_000_764, 16_000_814, 11_000_747],
            [21_000_000, 26_001_318, 26_001_368, 21_000_787],
        ];
        // A burst of each: the same exchange again is no other bound.
        for [question, received, sent, arrived] in exchanges {
            clock.timer = ClockTimer::Await { asked: at(question), deadline: at(arrived + 1) };
            assert!(clock.answer(at(arrived), [question, received, sent]));
        }
        assert_eq!(clock.line_at(at(21_000_787)), None);
        clock.exchanges = BURST;
        let line = clock.line_at(at(21_000_787)).unwrap();
        for (own, server) in [(22_000_388, 27_001_368), (22_000_787, 27_001_767)] {
            let error = (line.own_time(at(server)) - at(own)).abs();
            assert!(error <= Span::from_micros(390), "{error:?}");
            assert!((line.peer_time(at(own)) - at(server)).abs() <= Span::from_micros(390));
        }
    }

    #[test]
    fn a_server_is_asked_in_bursts_and_given_up_without_an_answer() {
        let (mut clock, mut now, mut asked) = (ServerClock::new(at(0)), at(0), Vec::new());
        while now < at(30_000_000) {
            now = clock.poll_timeout();
            assert_eq!(clock.handle_timeout(now), Some(ClockAction::Ask));
            let question = clock.ask(now);
            asked.push(question);
            let there = question + 7_000_000_200;
            assert!(!clock.answer(now, [question + 1, there, there]), "another question");
            assert!(!clock.answer(now, [question, there, there - 1]), "sent before it came");
            assert!(!clock.answer(now, [question, -1, i64::MAX]), "no time");
            now += Span::from_micros(400);
            assert!(clock.answer(now, [question, there, there]));
            assert!(!clock.answer(now, [question, there, there]), "twice");
        }
        assert_eq!(clock.line_at(now).unwrap().offset_at(now), Span::from_micros(7_000_000_000));
        let rate = asked.len();
        assert!((8 * 10..8 * 17).contains(&rate), "{rate}");
        assert_eq!(clock.line_at(now + STALE_AFTER), None);
        now = clock.poll_timeout();
        assert_eq!(clock.handle_timeout(now), Some(ClockAction::Ask));
        assert_eq!(clock.handle_timeout(now), None);
        now = clock.poll_timeout();
        assert_eq!(clock.handle_timeout(now), Some(ClockAction::ServerTimedOut));
    }
}
