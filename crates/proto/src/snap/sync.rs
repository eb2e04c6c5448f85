//! Estimates the server's clock on the client.
//!
//! Each exchange measures two one-way times with two clocks. Snapcast's client takes half of their
//! difference for the offset, and the median of 200 of them. When the clocks drift, that is the
//! offset of 100 s ago: at 100 ppm, an error of 10 ms. [`OffsetFilter::Bounds`] takes each one-way
//! time for what it is, a bound ([`ClockBounds`]).

use std::collections::VecDeque;

use aulos_core::{ClockBounds, ClockLine, Instant, Ppm, Span};

use super::wire::{MessageStamp, WireTime};

/// Number of exchanges of which Snapcast's client takes the median.
pub const MEDIAN_WINDOW: usize = 200;

/// Number of bounds of each direction that [`OffsetFilter::Bounds`] keeps: those of five minutes,
/// the nearest of each [`BOUNDS_INTERVAL`].
pub const BOUNDS_WINDOW: usize = 1_200;

/// Number of exchanges at the beginning of a connection that follow each other immediately.
pub const QUICK_EXCHANGES: u32 = 50;

/// Time from a reply to the next request during the initial exchanges.
pub const QUICK_INTERVAL: Span = Span::from_micros(100);

/// Time between two requests afterwards: as Snapcast's client, or with more exchanges, which reduce
/// the error more than any filter.
pub const MEDIAN_INTERVAL: Span = Span::from_secs(1);
/// See [`MEDIAN_INTERVAL`].
pub const BOUNDS_INTERVAL: Span = Span::from_millis(250);
/// See [`MEDIAN_INTERVAL`]: while the network's jitter leaves an error of more than
/// [`COARSE_ERROR`].
pub const COARSE_INTERVAL: Span = Span::from_millis(20);

/// An estimated error that more exchanges would make smaller.
pub const COARSE_ERROR: Span = Span::from_micros(25);

/// Time without a reply after which the server counts as dead.
pub const REPLY_TIMEOUT: Span = Span::from_secs(2);

/// After this time without a reply another request is sent, where messages may be lost.
pub const LOSSY_RETRY: Span = Span::from_millis(500);

/// Where messages may be lost, the initial requests do not wait for replies: they follow each other
/// after this time.
pub const LOSSY_SPACING: Span = Span::from_millis(10);

/// So many of them may be open at once.
pub const MAX_OPEN: usize = 64;

/// Time without any reply after which the server counts as dead, where messages may be lost.
pub const LOSSY_TIMEOUT: Span = Span::from_secs(10);

/// Time without a reply after which the offset is no longer valid.
pub const STALE_AFTER: Span = Span::from_secs(60);

/// How the offset is computed from the exchanges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OffsetFilter {
    /// Plain median, as in Snapcast's client.
    Median,
    /// The line with the widest margin to all one-way times, which does not lag.
    #[default]
    Bounds,
}

/// Action that [`TimeSync`] requests.
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
    estimator: Estimator,
    timer: SyncTimer,
    quick_left: u32,
    next_id: u16,
    line: Option<ClockLine>,
    answered: Instant,
    /// The beginning of the connection.
    begun: Instant,
    /// Where messages may be lost: the initial requests without a reply, the oldest first.
    open: Option<Vec<(u16, Instant)>>,
    output: Option<SyncAction>,
}

impl TimeSync {
    /// Begins the initial exchanges at `now`.
    #[must_use]
    pub fn new(filter: OffsetFilter, now: Instant) -> Self {
        Self {
            estimator: Estimator::new(filter),
            timer: SyncTimer::NextRequest(now),
            quick_left: QUICK_EXCHANGES,
            next_id: FIRST_ID,
            line: None,
            answered: now,
            begun: now,
            open: None,
            output: None,
        }
    }

    /// Messages may be lost, other than on TCP: initial requests do not wait for each other
    /// ([`LOSSY_SPACING`]), a later one without a reply is followed by another one after
    /// [`LOSSY_RETRY`], and the server counts as dead after [`LOSSY_TIMEOUT`].
    #[must_use]
    pub fn lossy(self) -> Self {
        Self { open: Some(Vec::with_capacity(MAX_OPEN)), ..self }
    }

    /// Begins the initial exchanges of another connection at `now`. Earlier ones still count.
    pub fn begin_connection(&mut self, now: Instant) {
        (self.timer, self.begun) = (SyncTimer::NextRequest(now), now);
        self.quick_left = QUICK_EXCHANGES;
        if let Some(open) = &mut self.open {
            open.clear();
        }
    }

    /// Moves the first request to `now`, when the connection becomes ready.
    pub const fn begin(&mut self, now: Instant) {
        (self.timer, self.begun) = (SyncTimer::NextRequest(now), now);
    }

    /// Does what is due.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn handle_timeout(&mut self, now: Instant) {
        match self.timer {
            SyncTimer::NextRequest(at) if at <= now => self.output = Some(self.request(now)),
            SyncTimer::AwaitReply { asked, .. } if asked + self.reply_timeout() <= now => {
                self.output = Some(match self.open {
                    Some(_) => self.request(now),
                    None => SyncAction::ServerTimedOut,
                });
            }
            SyncTimer::NextRequest(_) | SyncTimer::AwaitReply { .. } => {}
        }
    }

    /// The next action.
    pub const fn poll_output(&mut self) -> Option<SyncAction> {
        self.output.take()
    }

    /// Processes a Time reply received at `now`; returns false for a reply without an open request.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn handle_reply(&mut self, now: Instant, stamp: MessageStamp, latency: WireTime) -> bool {
        let Some(asked) = self.take_open(stamp.refers_to) else { return false };
        self.quick_left = self.quick_left.saturating_sub(1);
        let interval = self.estimator.interval(self.line);
        let next = match (self.quick_left, self.timer) {
            (0, _) => asked + interval,
            (_, SyncTimer::NextRequest(at)) => at.min(now + LOSSY_SPACING),
            (_, SyncTimer::AwaitReply { .. }) => now + QUICK_INTERVAL,
        };
        self.timer = SyncTimer::NextRequest(next);
        if now - self.answered >= STALE_AFTER {
            self.estimator.clear();
        }
        self.answered = now;
        let there = Span::from_micros(latency.as_micros());
        let back = WireTime::from_instant(now).as_micros() - stamp.sent.as_micros();
        let is_quick = self.quick_left > 0;
        self.line = self.estimator.push((asked, there), (now, Span::from_micros(back)), is_quick);
        true
    }

    /// Time at which to call [`TimeSync::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        match self.timer {
            SyncTimer::NextRequest(at) => at,
            SyncTimer::AwaitReply { asked, .. } => asked + self.reply_timeout(),
        }
    }

    /// Server time minus local time at the local time `local`; `None` before the first reply, and
    /// after a minute without one.
    #[must_use]
    pub fn offset(&self, local: Instant) -> Option<Span> {
        self.line_at(local).map(|line| line.offset_at(local))
    }

    /// Estimated drift of the server's clock relative to the local one; positive when it is faster.
    #[must_use]
    pub fn drift(&self) -> Ppm {
        self.line.map_or(Ppm::ZERO, |line| line.drift)
    }

    /// The whole estimate, with its error; `None` as for [`offset`](Self::offset).
    #[must_use]
    pub fn line_at(&self, local: Instant) -> Option<ClockLine> {
        self.line.filter(|_| local - self.answered < STALE_AFTER)
    }

    /// Server time at the local time `local`.
    #[must_use]
    pub fn server_time(&self, local: Instant) -> Option<Instant> {
        self.line_at(local).map(|line| line.peer_time(local))
    }

    /// Local time at the server time `server`.
    #[must_use]
    pub fn local_time(&self, server: Instant) -> Option<Instant> {
        let local = self.line?.own_time(server);
        self.line_at(local).map(|_| local)
    }

    /// Whether a request is open. The instant at which its reply is read counts.
    #[must_use]
    pub fn is_awaiting_reply(&self) -> bool {
        matches!(self.timer, SyncTimer::AwaitReply { .. })
            || self.open.as_ref().is_some_and(|open| !open.is_empty())
    }

    /// Whether the regular pace of exchanges is enough: jitter leaves no error of more than
    /// [`COARSE_ERROR`].
    #[must_use]
    pub fn is_precise(&self) -> bool {
        self.estimator.interval(self.line) != COARSE_INTERVAL
    }

    /// Number of exchanges behind the estimate.
    #[must_use]
    pub fn exchanges(&self) -> usize {
        match &self.estimator {
            Estimator::Median { offsets, .. } => offsets.len(),
            Estimator::Bounds(bounds) => bounds.exchanges,
        }
    }

    /// Whether the initial exchanges are over.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.quick_left == 0
    }

    const fn reply_timeout(&self) -> Span {
        if self.open.is_some() { LOSSY_RETRY } else { REPLY_TIMEOUT }
    }

    fn request(&mut self, now: Instant) -> SyncAction {
        let is_quick = self.quick_left > 0;
        let id = self.take_id();
        self.timer = SyncTimer::AwaitReply { id, asked: now };
        if let Some(open) = &mut self.open {
            if now - self.answered.max(self.begun) >= LOSSY_TIMEOUT {
                return SyncAction::ServerTimedOut;
            }
            open.retain(|(_, asked)| now - *asked < REPLY_TIMEOUT);
            if is_quick {
                if open.len() < MAX_OPEN {
                    open.push((id, now));
                }
                self.timer = SyncTimer::NextRequest(now + LOSSY_SPACING);
            }
        }
        SyncAction::Request(id)
    }

    /// When the request with this id was sent, if it is open.
    fn take_open(&mut self, id: u16) -> Option<Instant> {
        if let SyncTimer::AwaitReply { id: awaited, asked } = self.timer
            && awaited == id
        {
            return Some(asked);
        }
        let open = self.open.as_mut()?;
        let place = open.iter().position(|(one, _)| *one == id)?;
        Some(open.remove(place).1)
    }

    fn take_id(&mut self) -> u16 {
        let id = self.next_id;
        self.next_id = if id >= LAST_ID { 1 } else { id + 1 };
        id
    }
}

#[derive(Debug)]
enum Estimator {
    Median { offsets: VecDeque<i64>, scratch: Vec<i64> },
    Bounds(Box<NearestBounds>),
}

/// A one-way time at a local time: how much more the receiver's clock read at the arrival than the
/// sender's when it sent.
type OneWayTime = (Instant, Span);

impl Estimator {
    fn new(filter: OffsetFilter) -> Self {
        match filter {
            OffsetFilter::Median => Self::Median {
                offsets: VecDeque::with_capacity(MEDIAN_WINDOW),
                scratch: Vec::with_capacity(MEDIAN_WINDOW),
            },
            OffsetFilter::Bounds => Self::Bounds(Box::new(NearestBounds::new())),
        }
    }

    fn interval(&self, line: Option<ClockLine>) -> Span {
        match self {
            Self::Median { .. } => MEDIAN_INTERVAL,
            Self::Bounds(_) if line.is_some_and(|line| line.error > COARSE_ERROR) => {
                COARSE_INTERVAL
            }
            Self::Bounds(_) => BOUNDS_INTERVAL,
        }
    }

    fn clear(&mut self) {
        match self {
            Self::Median { offsets, .. } => offsets.clear(),
            Self::Bounds(bounds) => {
                bounds.line.clear();
                bounds.nearest = None;
                bounds.exchanges = 0;
            }
        }
    }

    /// Adds an exchange: the request at the time at which it was sent, the reply at that of its
    /// arrival.
    fn push(&mut self, there: OneWayTime, back: OneWayTime, is_quick: bool) -> Option<ClockLine> {
        match self {
            Self::Median { offsets, scratch } => {
                if offsets.len() == MEDIAN_WINDOW {
                    offsets.pop_front();
                }
                offsets.push_back(((there.1 - back.1) / 2).as_nanos());
                scratch.clear();
                scratch.extend(offsets.iter());
                let middle = scratch.len() / 2;
                let median = *scratch.select_nth_unstable(middle).1;
                Some(ClockLine::constant(back.0, Span::from_nanos(median)))
            }
            Self::Bounds(bounds) => bounds.push(there, back, is_quick),
        }
    }
}

/// The bounds of all exchanges, of which only the nearest in each [`BOUNDS_INTERVAL`] are kept: a
/// line does not change much in so short a time.
#[derive(Debug)]
struct NearestBounds {
    line: ClockBounds,
    /// The nearest since the last update.
    nearest: Option<(OneWayTime, OneWayTime)>,
    next_update: Instant,
    exchanges: usize,
}

impl NearestBounds {
    fn new() -> Self {
        let line = ClockBounds::new(BOUNDS_WINDOW);
        Self { line, nearest: None, next_update: Instant::ZERO, exchanges: 0 }
    }

    fn push(&mut self, there: OneWayTime, back: OneWayTime, is_quick: bool) -> Option<ClockLine> {
        let now = back.0;
        self.exchanges = self.exchanges.saturating_add(1);
        let nearer = |one: OneWayTime, other: OneWayTime| if other.1 < one.1 { other } else { one };
        let (there, back) = match self.nearest {
            Some(nearest) => (nearer(nearest.0, there), nearer(nearest.1, back)),
            None => (there, back),
        };
        if !is_quick && now < self.next_update {
            self.nearest = Some((there, back));
            return self.line.line();
        }
        self.nearest = None;
        // An exchange at the regular pace is an update.
        self.next_update = now + BOUNDS_INTERVAL - COARSE_INTERVAL;
        self.line.push_upper(there.0, there.1);
        self.line.push_lower(back.0, -back.1);
        self.line.update()
    }
}

#[derive(Clone, Copy, Debug)]
enum SyncTimer {
    /// Time of the next request.
    NextRequest(Instant),
    /// A request is open; after the timeout, the server counts as dead.
    AwaitReply { id: u16, asked: Instant },
}

/// The Hello has id 1.
const FIRST_ID: u16 = 2;
const LAST_ID: u16 = 9_999;

#[cfg(test)]
mod tests {
    use super::*;

    /// What is due at `now`.
    fn action(sync: &mut TimeSync, now: Instant) -> Option<SyncAction> {
        sync.handle_timeout(now);
        sync.poll_output()
    }

    /// A lost message does not end a session over NATS, and a server that is gone does.
    #[test]
    fn where_messages_may_be_lost_a_request_is_repeated() {
        let start = Instant::ZERO + Span::from_secs(100);
        let reply = |id| MessageStamp { refers_to: id, ..MessageStamp::default() };
        let mut sync = TimeSync::new(OffsetFilter::Bounds, start).lossy();
        // A request is sent every 10 ms, each reply comes after 45 ms, and every fourth is lost.
        let (mut now, mut replies) = (start, VecDeque::new());
        while !sync.is_settled() {
            let due = replies.front().map_or_else(|| sync.poll_timeout(), |(at, _)| *at);
            now = now.max(due.min(sync.poll_timeout()));
            if let Some(SyncAction::Request(id)) = action(&mut sync, now)
                && id % 4 > 0
            {
                replies.push_back((now + Span::from_millis(45), id));
            }
            if let Some((_, id)) = replies.pop_front_if(|(at, _)| *at <= now) {
                assert!(sync.handle_reply(now, reply(id), WireTime::default()));
                assert!(!sync.handle_reply(now, reply(id), WireTime::default()), "a repeated one");
            }
        }
        let settled = now - start;
        assert!(settled > Span::from_millis(600) && settled < Span::from_millis(800), "{settled}");
        // Later ones wait for a reply, for half a second.
        let second = sync.poll_timeout();
        let Some(SyncAction::Request(id)) = action(&mut sync, second) else { unreachable!() };
        assert_eq!(sync.poll_timeout(), second + LOSSY_RETRY);
        let second = second + LOSSY_RETRY;
        assert_eq!(action(&mut sync, second), Some(SyncAction::Request(id + 1)));
        assert!(!sync.handle_reply(second, reply(id), WireTime::default()));
        assert!(sync.handle_reply(second, reply(id + 1), WireTime::default()));
        let mut requests = 0;
        let end = loop {
            let now = sync.poll_timeout();
            match action(&mut sync, now) {
                Some(SyncAction::Request(_)) => requests += 1,
                Some(SyncAction::ServerTimedOut) => break now,
                None => {}
            }
        };
        assert!(end - second >= LOSSY_TIMEOUT && end - second <= LOSSY_TIMEOUT + LOSSY_RETRY);
        assert_eq!(requests, 20);
        // Without loss, no reply means that the server is dead.
        let mut sync = TimeSync::new(OffsetFilter::Bounds, start);
        sync.handle_timeout(start);
        assert_eq!(action(&mut sync, start + REPLY_TIMEOUT), Some(SyncAction::ServerTimedOut));
    }

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
            let Some(SyncAction::Request(id)) = action(&mut sync, now) else {
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
            let (sync, now, truth) = run(OffsetFilter::Bounds, 5, offset, 0);
            assert!((sync.offset(now).unwrap() - truth).abs() <= Span::from_micros(1));
        }
    }

    #[test]
    fn a_drifting_clock_is_followed_by_the_line_and_not_by_the_median() {
        for ppm in [-100, 100] {
            let (sync, now, truth) = run(OffsetFilter::Bounds, 400, Span::from_secs(7), ppm);
            assert!((sync.offset(now).unwrap() - truth).abs() <= Span::from_micros(5));
            assert!((sync.drift().as_ppb() - i32::try_from(ppm * 1_000).unwrap()).abs() < 1_000);
            let (sync, now, truth) = run(OffsetFilter::Median, 400, Span::from_secs(7), ppm);
            let lag = (sync.offset(now).unwrap() - truth).abs().as_millis();
            assert!((9..=10).contains(&lag), "{lag} ms");
        }
    }

    #[test]
    fn times_go_both_ways() {
        let (sync, now, _) = run(OffsetFilter::Bounds, 300, Span::from_secs(7), 50);
        let later = now + Span::from_secs(3);
        let back = sync.local_time(sync.server_time(later).unwrap()).unwrap();
        assert!((back - later).abs() <= Span::from_micros(1));
    }

    /// The last pause between two requests and the error of the estimate, after a minute with
    /// delays of up to `jitter` more than a millisecond in each direction.
    fn pause_and_error(jitter: usize) -> (Span, Span) {
        let mut sync = TimeSync::new(OffsetFilter::Bounds, Instant::ZERO);
        let (mut now, mut random) = (Instant::ZERO, aulos_core::Rng::new(7));
        let mut delay =
            || Span::from_micros(1_000 + i64::try_from(random.below(jitter + 1)).unwrap());
        let (mut asked, mut pause) = (now, Span::ZERO);
        while now < Instant::ZERO + Span::from_secs(60) {
            now = now.max(sync.poll_timeout());
            let Some(SyncAction::Request(id)) = action(&mut sync, now) else {
                panic!("no request")
            };
            (asked, pause) = (now, now - asked);
            let received = WireTime::from_instant(asked + delay());
            let sent = WireTime::from_instant(now);
            let latency = WireTime::from_micros(received.as_micros() - sent.as_micros());
            let stamp = MessageStamp { id, refers_to: id, sent: received, received };
            now = now + Span::from_micros(latency.as_micros()) + delay();
            assert!(sync.handle_reply(now, stamp, latency));
        }
        (pause, sync.line_at(now).unwrap().offset.abs())
    }

    #[test]
    fn jitter_is_met_with_more_exchanges() {
        let (pause, error) = pause_and_error(20);
        assert_eq!(pause, BOUNDS_INTERVAL);
        assert!(error <= Span::from_micros(3), "{error:?}");
        let (pause, error) = pause_and_error(20_000);
        assert!(pause < Span::from_millis(45), "{pause:?}");
        assert!(error <= Span::from_micros(100), "{error:?}");
    }

    #[test]
    fn an_old_offset_is_worth_nothing() {
        let (sync, now, _) = run(OffsetFilter::Bounds, 5, Span::ZERO, 0);
        assert!(sync.offset(now + Span::from_secs(59)).is_some());
        assert_eq!(sync.offset(now + STALE_AFTER), None);
    }

    #[test]
    fn a_silent_server_times_out_and_foreign_responses_are_ignored() {
        let start = Instant::ZERO;
        let mut sync = TimeSync::new(OffsetFilter::Bounds, start);
        assert_eq!(action(&mut sync, start), Some(SyncAction::Request(2)));
        let stranger = MessageStamp { refers_to: 3, ..MessageStamp::default() };
        assert!(!sync.handle_reply(start, stranger, WireTime::ZERO));
        assert_eq!(sync.poll_timeout(), start + REPLY_TIMEOUT);
        assert_eq!(action(&mut sync, start + Span::from_millis(1_999)), None);
        assert_eq!(action(&mut sync, start + REPLY_TIMEOUT), Some(SyncAction::ServerTimedOut));
    }
}
