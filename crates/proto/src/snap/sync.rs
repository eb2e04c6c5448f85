//! Estimates the server's clock on the client.
//!
//! Each exchange measures two one-way times with two clocks; half of their difference is the
//! offset, with an error of half the difference of the actual times. A median over many exchanges
//! removes outliers. A plain median, as Snapcast's client uses it, lags when the clocks drift: with
//! 200 exchanges, one per second, it is the offset of 100 s ago, which at 100 ppm is an error of 10
//! ms. Therefore [`OffsetFilter::DriftCorrected`] uses only the quarter of the exchanges with the
//! shortest round trips, as NTP does (RFC 5905, section 10), and removes the drift before taking
//! the median. A least-squares line was rejected, because a single late packet changes it.

use core::ops::RangeBounds;
use std::collections::VecDeque;

use aulos_core::{Instant, Ppm, Span};

use super::wire::{MessageStamp, WireTime};

/// Maximum number of stored exchanges.
pub const WINDOW: usize = 200;

/// Number of exchanges at the beginning of a connection that follow each other immediately.
pub const QUICK_EXCHANGES: u32 = 50;

/// Time from a reply to the next request during the initial exchanges.
pub const QUICK_INTERVAL: Span = Span::from_micros(100);

/// Time between two requests afterwards.
pub const INTERVAL: Span = Span::from_secs(1);

/// Time without a reply after which the server counts as dead.
pub const REPLY_TIMEOUT: Span = Span::from_secs(2);

/// Time without a reply after which the offset is no longer valid.
pub const STALE_AFTER: Span = Span::from_secs(60);

/// How the offset is computed from the exchanges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OffsetFilter {
    /// Plain median, as in Snapcast's client.
    Median,
    /// Median of the quickest quarter around a robust line, which does not lag.
    #[default]
    DriftCorrected,
}

/// Action that [`TimeSync::handle_timeout`] requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncAction {
    /// Send a Time request with this id.
    Request(u16),
    /// No reply within [`REPLY_TIMEOUT`].
    ServerTimedOut,
}

/// Estimate of the server's clock.
#[derive(Debug)]
pub struct TimeSync {
    filter: OffsetFilter,
    timer: SyncTimer,
    quick_left: u32,
    next_id: u16,
    exchanges: VecDeque<TimeExchange>,
    scratch: Vec<i64>,
    model: Option<ClockModel>,
}

impl TimeSync {
    /// Begins the initial exchanges at `now`.
    #[must_use]
    pub fn new(filter: OffsetFilter, now: Instant) -> Self {
        Self {
            filter,
            timer: SyncTimer::NextRequest(now),
            quick_left: QUICK_EXCHANGES,
            next_id: FIRST_ID,
            exchanges: VecDeque::with_capacity(WINDOW),
            scratch: Vec::with_capacity(WINDOW),
            model: None,
        }
    }

    /// Moves the first request to `now`, when the connection becomes ready.
    pub const fn begin(&mut self, now: Instant) {
        self.timer = SyncTimer::NextRequest(now);
    }

    /// The action that is due at `now`, if any.
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

    /// Processes a Time reply received at `now`; returns false for a reply without an open request.
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
        self.record(TimeExchange { at: now, offset, round_trip: there + back });
        true
    }

    /// Time at which to call [`TimeSync::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        match self.timer {
            SyncTimer::NextRequest(at) => at,
            SyncTimer::AwaitReply { asked, .. } => asked + REPLY_TIMEOUT,
        }
    }

    /// Server time minus local time at the local time `local`; `None` before the first reply, and
    /// after a minute without one.
    #[must_use]
    pub fn offset(&self, local: Instant) -> Option<Span> {
        self.model
            .filter(|model| local - model.at < STALE_AFTER)
            .map(|model| model.offset_at(local))
    }

    /// Estimated drift of the server's clock relative to the local one; positive when it is faster.
    #[must_use]
    pub fn drift(&self) -> Ppm {
        let ppb = self.model.map_or(0, |model| model.drift);
        Ppm::from_ppb(i32::try_from(ppb).unwrap_or(0))
    }

    /// Server time at the local time `local`.
    #[must_use]
    pub fn server_time(&self, local: Instant) -> Option<Instant> {
        self.offset(local).map(|offset| local + offset)
    }

    /// Local time at the server time `server`.
    #[must_use]
    pub fn local_time(&self, server: Instant) -> Option<Instant> {
        let model = self.model?;
        // The offset changes so slowly that its value at the approximate time is sufficient.
        let guess = server - model.offset_at(model.at);
        self.offset(guess).map(|offset| server - offset)
    }

    /// Number of exchanges behind the estimate.
    #[must_use]
    pub fn exchanges(&self) -> usize {
        self.exchanges.len()
    }

    fn take_id(&mut self) -> u16 {
        let id = self.next_id;
        self.next_id = if id >= LAST_ID { 1 } else { id + 1 };
        id
    }

    fn record(&mut self, exchange: TimeExchange) {
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
        self.model = Some(ClockModel { at, offset: Span::from_nanos(offset), drift });
    }

    /// Slope from the median of the older half to the median of the newer half. For offsets on a
    /// line, the median offset belongs to the median time, whatever the spacing.
    fn measure_drift(&mut self) -> i64 {
        let half = self.exchanges.len() / 2;
        let old_at = self.median(..half, TimeExchange::nanos);
        let new_at = self.median(half.., TimeExchange::nanos);
        let apart = Span::from_nanos(new_at.saturating_sub(old_at));
        if apart < DRIFT_AFTER {
            return 0;
        }
        let offset = |exchange: &TimeExchange| exchange.offset.as_nanos();
        let old = self.median(..half, offset);
        let new = self.median(half.., offset);
        let ppb =
            i128::from(new.saturating_sub(old)) * 1_000_000_000 / i128::from(apart.as_nanos());
        i64::try_from(ppb).unwrap_or(0).clamp(-MAX_DRIFT, MAX_DRIFT)
    }

    fn median(
        &mut self,
        range: impl RangeBounds<usize>,
        value: impl Fn(&TimeExchange) -> i64,
    ) -> i64 {
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
        // For an even count, the mean of the two middle values: otherwise the result depends on
        // whether the offsets rise or fall, which at the gap after the initial exchanges is half a
        // minute.
        let upper = nth(&mut self.scratch, count / 2);
        let lower = nth(&mut self.scratch, count.saturating_sub(1) / 2);
        lower.midpoint(upper)
    }
}

#[derive(Clone, Copy, Debug)]
enum SyncTimer {
    /// Time of the next request.
    NextRequest(Instant),
    /// A request is open; after the timeout, the server counts as dead.
    AwaitReply { id: u16, asked: Instant },
}

#[derive(Clone, Copy, Debug)]
struct TimeExchange {
    at: Instant,
    offset: Span,
    /// Microseconds; the error of the offset is at most half of the excess over the shortest
    /// possible value.
    round_trip: i64,
}

impl TimeExchange {
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

/// The value at index `place` of the sorted values; 0 when out of range.
fn nth(values: &mut [i64], place: usize) -> i64 {
    if place < values.len() { *values.select_nth_unstable(place).1 } else { 0 }
}

fn drift_over(ppb: i64, span: Span) -> Span {
    let nanos = i128::from(span.as_nanos()) * i128::from(ppb) / 1_000_000_000;
    Span::from_nanos(i64::try_from(nanos).unwrap_or(0))
}

/// One of this many exchanges is quick enough to be used.
const QUICKEST_FRACTION: usize = 4;

/// Over shorter times, the jitter of single exchanges would be taken for drift.
const DRIFT_AFTER: Span = Span::from_secs(10);

/// In parts per billion; quartz clocks deviate by less than 500 ppm.
const MAX_DRIFT: i64 = 500_000;

/// The Hello has id 1.
const FIRST_ID: u16 = 2;
const LAST_ID: u16 = 9_999;

#[cfg(test)]
mod tests {
    use super::*;

    /// A server whose clock is `offset` ahead and `ppm` fast, with a one-way time of 1 ms.
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
    fn a_silent_server_times_out_and_foreign_responses_are_ignored() {
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
