//! A client's idea of its server's clock.
//!
//! Each exchange gives two one-way times by two clocks; half their difference is the offset, off by
//! half the difference of the two ways. The median over many throws the bad ones away. A median
//! alone, which is what Snapcast's own client takes, lags behind when the clocks drift: with 200
//! exchanges, one a second, it is the offset of 100 s ago, and at 100 ppm that is 10 ms. Therefore
//! [`Filter::Line`] listens only to the quarter of the exchanges with the shortest round trips, as
//! NTP does (RFC 5905, section 10), and takes the drift out before it takes the median. A
//! least-squares line was rejected: one late packet moves it.

use core::ops::RangeBounds;
use std::collections::VecDeque;

use aulos_core::{Instant, Ppm, Span};

use super::wire::{MessageStamp, WireTime};

/// Exchanges that are remembered.
pub const WINDOW: usize = 200;

/// How many exchanges begin a connection, one as soon as the last is over.
pub const QUICK_EXCHANGES: u32 = 50;

/// From a reply to the next request while there are quick ones.
pub const QUICK_INTERVAL: Span = Span::from_micros(100);

/// From a request to the next.
pub const INTERVAL: Span = Span::from_secs(1);

/// A server that does not answer within this is gone.
pub const REPLY_TIMEOUT: Span = Span::from_secs(2);

/// After so long without a reply, what was known about the offset is worth nothing.
pub const STALE_AFTER: Span = Span::from_secs(60);

/// How the offset is taken from the exchanges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OffsetFilter {
    /// The plain median, as Snapcast's client does it.
    Median,
    /// The median of the quickest quarter around a robust line, which does not lag.
    #[default]
    DriftCorrected,
}

/// What [`TimeSync::handle_timeout`] wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncAction {
    /// A Time request with this number is to be sent.
    Request(u16),
    /// The server has not answered for [`REPLY_TIMEOUT`].
    ServerTimedOut,
}

/// A client's idea of its server's clock.
#[derive(Debug)]
pub struct TimeSync {
    filter: OffsetFilter,
    timer: SyncTimer,
    quick_left: u32,
    next_id: u16,
    exchanges: VecDeque<Exchange>,
    scratch: Vec<i64>,
    line: Option<ClockModel>,
}

impl TimeSync {
    /// Begins with the quick requests at `now`.
    #[must_use]
    pub fn new(filter: OffsetFilter, now: Instant) -> Self {
        Self {
            filter,
            timer: SyncTimer::NextRequest(now),
            quick_left: QUICK_EXCHANGES,
            next_id: FIRST_ID,
            exchanges: VecDeque::with_capacity(WINDOW),
            scratch: Vec::with_capacity(WINDOW),
            line: None,
        }
    }

    /// Puts the first request to `now`: the connection is only ready now.
    pub const fn begin(&mut self, now: Instant) {
        self.timer = SyncTimer::NextRequest(now);
    }

    /// What is due at `now`, if anything.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<SyncAction> {
        match self.timer {
            SyncTimer::NextRequest(at) if at <= now => {
                let id = self.take_id();
                self.timer = SyncTimer::AwaitReply { id, asked: now };
                Some(SyncAction::Request(id))
            }
            SyncTimer::AwaitReply { asked, .. } if asked + REPLY_TIMEOUT <= now => {
                Some(SyncAction::ServerTimedOut)
            }
            SyncTimer::NextRequest(_) | SyncTimer::AwaitReply { .. } => None,
        }
    }

    /// Takes a Time reply that was read at `now`; one that answers no open request is not taken.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn handle_reply(&mut self, now: Instant, stamp: MessageStamp, latency: WireTime) -> bool {
        let SyncTimer::AwaitReply { id, asked } = self.timer else { return false };
        if stamp.refers_to != id {
            return false;
        }
        self.quick_left = self.quick_left.saturating_sub(1);
        let next = if self.quick_left > 0 { now + QUICK_INTERVAL } else { asked + INTERVAL };
        self.timer = SyncTimer::NextRequest(next);
        let there = latency.as_micros();
        let back = WireTime::from_instant(now).as_micros() - stamp.sent.as_micros();
        let offset = Span::from_micros((there - back) / 2);
        self.record(Exchange { at: now, offset, round_trip: there + back });
        true
    }

    /// When [`TimeSync::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        match self.timer {
            SyncTimer::NextRequest(at) => at,
            SyncTimer::AwaitReply { asked, .. } => asked + REPLY_TIMEOUT,
        }
    }

    /// Server time minus own time at the own time `local`; none before the first reply and after
    /// a minute without one.
    #[must_use]
    pub fn offset(&self, local: Instant) -> Option<Span> {
        self.line.filter(|line| local - line.at < STALE_AFTER).map(|line| line.offset_at(local))
    }

    /// How much faster the server's clock runs than the own one, as far as is known.
    #[must_use]
    pub fn drift(&self) -> Ppm {
        let ppb = self.line.map_or(0, |line| line.drift);
        Ppm::from_ppb(i32::try_from(ppb).unwrap_or(0))
    }

    /// The server's time at the own time `local`.
    #[must_use]
    pub fn server_time(&self, local: Instant) -> Option<Instant> {
        self.offset(local).map(|offset| local + offset)
    }

    /// The own time at the server's time `server`.
    #[must_use]
    pub fn local_time(&self, server: Instant) -> Option<Instant> {
        let line = self.line?;
        // The offset changes so slowly that it is the same at a guess which is off by itself.
        let guess = server - line.offset_at(line.at);
        self.offset(guess).map(|offset| server - offset)
    }

    /// How many exchanges the offset rests on.
    #[must_use]
    pub fn exchanges(&self) -> usize {
        self.exchanges.len()
    }

    fn take_id(&mut self) -> u16 {
        let id = self.next_id;
        self.next_id = if id >= LAST_ID { 1 } else { id + 1 };
        id
    }

    fn record(&mut self, exchange: Exchange) {
        if self.exchanges.back().is_some_and(|last| exchange.at - last.at >= STALE_AFTER) {
            self.exchanges.clear();
        }
        if self.exchanges.len() == WINDOW {
            self.exchanges.pop_front();
        }
        self.exchanges.push_back(exchange);
        let drift = match self.filter {
            OffsetFilter::Median => 0,
            OffsetFilter::DriftCorrected => self.measure_drift(),
        };
        let at = exchange.at;
        let offset = self.median(.., |exchange| {
            let moved = drift_over(drift, at - exchange.at);
            (exchange.offset + moved).as_nanos()
        });
        self.line = Some(ClockModel { at, offset: Span::from_nanos(offset), drift });
    }

    /// From the median of the older half to the median of the younger half. Offsets that lie on a
    /// line have the median that belongs to the median time, however they are spaced.
    fn measure_drift(&mut self) -> i64 {
        let half = self.exchanges.len() / 2;
        let old_at = self.median(..half, Exchange::nanos);
        let new_at = self.median(half.., Exchange::nanos);
        let apart = Span::from_nanos(new_at.saturating_sub(old_at));
        if apart < DRIFT_AFTER {
            return 0;
        }
        let offset = |exchange: &Exchange| exchange.offset.as_nanos();
        let old = self.median(..half, offset);
        let new = self.median(half.., offset);
        let ppb =
            i128::from(new.saturating_sub(old)) * 1_000_000_000 / i128::from(apart.as_nanos());
        i64::try_from(ppb).unwrap_or(0).clamp(-MAX_DRIFT, MAX_DRIFT)
    }

    fn median(&mut self, range: impl RangeBounds<usize>, value: impl Fn(&Exchange) -> i64) -> i64 {
        let chosen = self.exchanges.range(range);
        let slowest = match self.filter {
            OffsetFilter::Median => i64::MAX,
            OffsetFilter::DriftCorrected => {
                self.scratch.clear();
                self.scratch.extend(chosen.clone().map(|exchange| exchange.round_trip));
                let place = self.scratch.len() / QUICKEST_FRACTION;
                nth(&mut self.scratch, place)
            }
        };
        let quick = chosen.filter(|exchange| exchange.round_trip <= slowest);
        self.scratch.clear();
        self.scratch.extend(quick.map(value));
        let count = self.scratch.len();
        // Of an even number the mean of both in the middle: only then does it not matter whether
        // the offsets rise or fall, which at the gap after the quick exchanges is half a minute.
        let upper = nth(&mut self.scratch, count / 2);
        let lower = nth(&mut self.scratch, count.saturating_sub(1) / 2);
        lower.midpoint(upper)
    }
}

#[derive(Clone, Copy, Debug)]
enum SyncTimer {
    /// When it fires, the next request is due.
    NextRequest(Instant),
    /// A request is open; when it fires, the server is dead.
    AwaitReply { id: u16, asked: Instant },
}

#[derive(Clone, Copy, Debug)]
struct Exchange {
    at: Instant,
    offset: Span,
    /// Microseconds; the offset is off by at most half of what this is above the shortest possible.
    round_trip: i64,
}

impl Exchange {
    fn nanos(&self) -> i64 {
        (self.at - Instant::ZERO).as_nanos()
    }
}

#[derive(Clone, Copy, Debug)]
struct ClockModel {
    at: Instant,
    offset: Span,
    /// Parts per billion.
    drift: i64,
}

impl ClockModel {
    fn offset_at(self, local: Instant) -> Span {
        self.offset + drift_over(self.drift, local - self.at)
    }
}

/// The value at `place` of the sorted values; 0 where there is none.
fn nth(values: &mut [i64], place: usize) -> i64 {
    if place < values.len() { *values.select_nth_unstable(place).1 } else { 0 }
}

fn drift_over(ppb: i64, span: Span) -> Span {
    let nanos = i128::from(span.as_nanos()) * i128::from(ppb) / 1_000_000_000;
    Span::from_nanos(i64::try_from(nanos).unwrap_or(0))
}

/// One exchange in so many is quick enough to be listened to.
const QUICKEST_FRACTION: usize = 4;

/// Below this the jitter of single exchanges would be taken for drift.
const DRIFT_AFTER: Span = Span::from_secs(10);

/// In parts per billion; no quartz is off by more than 500 ppm.
const MAX_DRIFT: i64 = 500_000;

/// The greeting has number 1.
const FIRST_ID: u16 = 2;
const LAST_ID: u16 = 9_999;

#[cfg(test)]
mod tests {
    use super::*;

    /// A server whose clock is `offset` ahead and `ppm` fast, at the end of a way of 1 ms.
    fn run(
        filter: OffsetFilter,
        seconds: i64,
        offset: Span,
        ppm: i64,
    ) -> (TimeSync, Instant, Span) {
        let start = Instant::ZERO + Span::from_secs(100_000);
        let server = |local: Instant| {
            local + offset + Span::from_nanos((local - start).as_nanos() / 1_000_000 * ppm)
        };
        let mut sync = TimeSync::new(filter, start);
        let mut now = start;
        while now - start < Span::from_secs(seconds) {
            now = now.max(sync.poll_timeout());
            let Some(SyncAction::Request(id)) = sync.handle_timeout(now) else {
                panic!("no request")
            };
            let requested = WireTime::from_instant(now);
            now += Span::from_millis(1);
            let received = WireTime::from_instant(server(now));
            let latency = WireTime::from_micros(received.as_micros() - requested.as_micros());
            now += Span::from_millis(1);
            let stamp = MessageStamp { id, refers_to: id, sent: received, received };
            assert!(sync.handle_reply(now, stamp, latency));
        }
        (sync, now, server(now) - now)
    }

    #[test]
    fn a_steady_clock_is_known_to_the_microsecond() {
        for offset in [Span::ZERO, Span::from_secs(-99_000), Span::from_secs(1_000_000)] {
            let (sync, now, truth) = run(OffsetFilter::DriftCorrected, 5, offset, 0);
            assert!((sync.offset(now).unwrap() - truth).abs() <= Span::from_micros(1));
        }
    }

    #[test]
    fn a_drifting_clock_is_followed_by_the_line_and_not_by_the_median() {
        for ppm in [-100, 100] {
            let (sync, now, truth) =
                run(OffsetFilter::DriftCorrected, 400, Span::from_secs(7), ppm);
            assert!((sync.offset(now).unwrap() - truth).abs() <= Span::from_micros(5));
            assert!((sync.drift().as_ppb() - i32::try_from(ppm * 1_000).unwrap()).abs() < 1_000);
            let (sync, now, truth) = run(OffsetFilter::Median, 400, Span::from_secs(7), ppm);
            let lag = (sync.offset(now).unwrap() - truth).abs().as_millis();
            assert!((9..=10).contains(&lag), "{lag} ms");
        }
    }

    #[test]
    fn times_go_both_ways() {
        let (sync, now, _) = run(OffsetFilter::DriftCorrected, 300, Span::from_secs(7), 50);
        let later = now + Span::from_secs(3);
        let back = sync.local_time(sync.server_time(later).unwrap()).unwrap();
        assert!((back - later).abs() <= Span::from_micros(1));
    }

    #[test]
    fn an_old_offset_is_worth_nothing() {
        let (sync, now, _) = run(OffsetFilter::DriftCorrected, 5, Span::ZERO, 0);
        assert!(sync.offset(now + Span::from_secs(59)).is_some());
        assert_eq!(sync.offset(now + STALE_AFTER), None);
    }

    #[test]
    fn a_server_that_does_not_answer_is_dead_and_strangers_answers_are_not_taken() {
        let start = Instant::ZERO;
        let mut sync = TimeSync::new(OffsetFilter::DriftCorrected, start);
        assert_eq!(sync.handle_timeout(start), Some(SyncAction::Request(2)));
        let stranger = MessageStamp { refers_to: 3, ..MessageStamp::default() };
        assert!(!sync.handle_reply(start, stranger, WireTime::ZERO));
        assert_eq!(sync.poll_timeout(), start + REPLY_TIMEOUT);
        assert_eq!(sync.handle_timeout(start + Span::from_millis(1_999)), None);
        assert_eq!(sync.handle_timeout(start + REPLY_TIMEOUT), Some(SyncAction::ServerTimedOut));
    }
}
