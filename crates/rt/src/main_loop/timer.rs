//! Timers: futures that the loop completes at their time.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;

use super::shared::{Command, Shared};
use super::timer_heap::{ArmedTimer, TimerExpiry, TimerState, nanos};

/// Completes at a time of a loop. Made by
/// [`LoopHandle::sleep_until`](super::LoopHandle::sleep_until) and
/// [`LoopHandle::sleep`](super::LoopHandle::sleep).
///
/// If the loop is gone it completes at once, because its time can never come.
#[must_use = "a sleep does nothing unless it is awaited"]
pub struct Sleep {
    shared: Arc<Shared>,
    state: Arc<TimerState>,
    is_armed: bool,
}

impl Sleep {
    pub(super) fn new(shared: Arc<Shared>, expiry: TimerExpiry) -> Self {
        Self { shared, state: Arc::new(TimerState::new(expiry)), is_armed: false }
    }

    /// The planned and the actual end; `None` if the loop is gone.
    fn poll_times(&mut self, context: &Context<'_>) -> Poll<Option<(u64, u64)>> {
        if !self.state.has_ended() {
            self.state.register(context.waker());
            if !self.is_armed {
                self.is_armed = true;
                // If the loop is gone, the returned command is dropped, which ends the timer.
                drop(self.shared.send(Command::ArmTimer(ArmedTimer::new(self.state.clone()))));
            }
            // It may have ended before the waker was registered.
            if !self.state.has_ended() {
                return Poll::Pending;
            }
        }
        Poll::Ready(self.state.times())
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.poll_times(context).map(|_| ())
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("wish", &self.state.expiry()).finish_non_exhaustive()
    }
}

/// Ticks with a fixed period. Made by [`LoopHandle::every`](super::LoopHandle::every). The ticks
/// stay on the grid of the first one, whatever the delays; it is also a [`Stream`].
#[must_use = "an interval does nothing unless it is awaited"]
pub struct Interval {
    shared: Arc<Shared>,
    /// In nanoseconds, not 0.
    period: u64,
    sleep: Sleep,
}

impl Interval {
    pub(super) fn new(shared: Arc<Shared>, period: Duration) -> Self {
        let period = nanos(period).max(1);
        Self { sleep: Sleep::new(shared.clone(), TimerExpiry::In(period)), shared, period }
    }

    /// Waits for the next tick and returns the number of periods that it covers: one, or more if
    /// the loop was late. `None` if the loop is gone.
    pub async fn tick(&mut self) -> Option<u64> {
        poll_fn(|context| self.poll_tick(context)).await
    }

    /// Poll function of [`Interval::tick`].
    pub fn poll_tick(&mut self, context: &mut Context<'_>) -> Poll<Option<u64>> {
        let Some((planned, ended)) = ready!(self.sleep.poll_times(context)) else {
            return Poll::Ready(None);
        };
        let periods = ended.saturating_sub(planned) / self.period + 1;
        let next = planned.saturating_add(periods.saturating_mul(self.period));
        self.sleep = Sleep::new(self.shared.clone(), TimerExpiry::At(next));
        Poll::Ready(Some(periods))
    }
}

impl Stream for Interval {
    type Item = u64;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<u64>> {
        self.get_mut().poll_tick(context)
    }
}

impl fmt::Debug for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interval").field("period", &self.period).finish_non_exhaustive()
    }
}
