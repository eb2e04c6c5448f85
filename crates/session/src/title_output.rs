//! When a title goes to a receiver, such as an RDS encoder.
//!
//! Only the newest title counts: one that waits for a slow or absent receiver is replaced by the
//! next, so a queue is not needed. A receiver that has lost its connection may have been switched
//! off, and gets the present title again.

use aulos_core::{Backoff, Instant, Span};

/// Decides when titles are sent to one receiver. `T` is what is sent.
///
/// # Examples
/// ```
/// use aulos_core::{Instant, Span};
/// use aulos_session::title_output::{TitleOutput, TitleOutputInput};
///
/// let mut output = TitleOutput::new(Span::from_secs(10), 1);
/// let now = Instant::ZERO;
/// output.handle_input(now, TitleOutputInput::Title("one"));
/// assert_eq!(output.poll_output(), Some("one"));
/// output.handle_input(now, TitleOutputInput::Sent);
/// output.handle_input(now, TitleOutputInput::Title("two"));
/// assert_eq!((output.poll_output(), output.poll_timeout()), (None, Some(now + Span::from_secs(10))));
/// ```
#[derive(Debug)]
pub struct TitleOutput<T> {
    /// Least time from one title to the next.
    interval: Span,
    newest: Option<T>,
    state: OutputState,
    /// The earliest time of the next attempt.
    not_before: Instant,
    backoff: Backoff,
    counts: TitleOutputCounts,
}

/// Of the newest title.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputState {
    /// It has been sent, or there is none.
    Idle,
    /// It waits for its time.
    Waiting,
    /// Its time has come.
    Due,
    /// It is being sent; a newer one has come meanwhile or not.
    Sending { is_outdated: bool },
}

/// What happens to an output.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TitleOutputInput<T> {
    /// Another title is shown.
    Title(T),
    /// The title has been sent.
    Sent,
    /// It could not be sent, or the connection that is kept has ended.
    Failed,
}

/// Counters of an output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "facts, which metrics list")]
pub struct TitleOutputCounts {
    /// Titles sent.
    pub sent: u64,
    /// Failed attempts and ended connections.
    pub failed: u64,
    /// Titles replaced by a newer one before they were sent.
    pub replaced: u64,
}

impl<T: Clone> TitleOutput<T> {
    /// An output without a title. `interval` is the least time from one title to the next; `seed`
    /// randomizes the pauses after failures.
    #[must_use]
    pub const fn new(interval: Span, seed: u64) -> Self {
        Self {
            interval,
            newest: None,
            state: OutputState::Idle,
            not_before: Instant::ZERO,
            backoff: Backoff::half_jitter(FIRST_PAUSE, LONGEST_PAUSE, seed),
            counts: TitleOutputCounts { sent: 0, failed: 0, replaced: 0 },
        }
    }

    /// Handles an input.
    pub fn handle_input(&mut self, now: Instant, input: TitleOutputInput<T>) {
        match (input, self.state) {
            (TitleOutputInput::Title(title), state) => {
                self.newest = Some(title);
                self.state = match state {
                    OutputState::Idle => OutputState::Waiting,
                    OutputState::Sending { .. } => OutputState::Sending { is_outdated: true },
                    waiting => {
                        self.counts.replaced += 1;
                        waiting
                    }
                };
            }
            (TitleOutputInput::Sent, OutputState::Sending { is_outdated }) => {
                self.counts.sent += 1;
                // A receiver that closes its connection after each title must not get it ever faster.
                self.backoff.succeeded(now);
                self.not_before = now + self.interval;
                self.state = if is_outdated { OutputState::Waiting } else { OutputState::Idle };
            }
            (TitleOutputInput::Sent, _) => {}
            (TitleOutputInput::Failed, state) => {
                self.counts.failed += 1;
                if state == (OutputState::Sending { is_outdated: true }) {
                    self.counts.replaced += 1;
                }
                self.not_before = self.not_before.max(now + self.backoff.failed(now));
                let is_known = self.newest.is_some();
                self.state = if is_known { OutputState::Waiting } else { OutputState::Idle };
            }
        }
        self.handle_timeout(now);
    }

    /// The time of the waiting title may have come.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.state == OutputState::Waiting && now >= self.not_before {
            self.state = OutputState::Due;
        }
    }

    /// The title to send now; report what became of it.
    pub fn poll_output(&mut self) -> Option<T> {
        if self.state != OutputState::Due {
            return None;
        }
        self.state = OutputState::Sending { is_outdated: false };
        self.newest.clone()
    }

    /// When the waiting title is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        (self.state == OutputState::Waiting).then_some(self.not_before)
    }

    /// The counters.
    #[must_use]
    pub const fn counts(&self) -> TitleOutputCounts {
        self.counts
    }
}

/// An encoder that restarts is away for seconds.
const FIRST_PAUSE: Span = Span::from_millis(500);
const LONGEST_PAUSE: Span = Span::from_secs(30);

#[cfg(test)]
mod tests {
    use super::TitleOutputInput::{Failed, Sent, Title};
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn of_titles_within_the_interval_only_the_newest_is_sent() {
        let mut output = TitleOutput::new(Span::from_secs(10), 1);
        output.handle_input(at(0), Title(1));
        assert_eq!(output.poll_output(), Some(1));
        assert_eq!(output.poll_output(), None);
        output.handle_input(at(5), Title(2));
        output.handle_input(at(10), Sent);
        assert_eq!((output.poll_output(), output.poll_timeout()), (None, Some(at(10_010))));
        output.handle_input(at(2_000), Title(3));
        output.handle_timeout(at(10_009));
        assert_eq!(output.poll_output(), None);
        output.handle_timeout(at(10_010));
        assert_eq!(output.poll_output(), Some(3));
        output.handle_input(at(10_020), Sent);
        assert_eq!(output.poll_timeout(), None);
        assert_eq!(output.counts(), TitleOutputCounts { sent: 2, failed: 0, replaced: 1 });
    }

    #[test]
    fn an_absent_receiver_is_tried_ever_more_rarely_and_then_gets_the_newest() {
        let mut output = TitleOutput::new(Span::ZERO, 1);
        let (mut now, mut attempts) = (at(0), 0);
        output.handle_input(now, Title(0));
        while now < at(600_000) {
            if let Some(title) = output.poll_output() {
                attempts += 1;
                output.handle_input(now, Title(title + 1));
                output.handle_input(now, Failed);
            }
            now = output.poll_timeout().unwrap();
            output.handle_timeout(now);
        }
        // Six pauses up to half a minute, then 15 to 30 s each.
        assert!((25..=50).contains(&attempts), "{attempts}");
        assert_eq!(output.poll_output(), Some(attempts));
    }

    #[test]
    fn a_receiver_that_closes_after_each_title_does_not_get_it_all_the_time() {
        let mut output = TitleOutput::new(Span::ZERO, 1);
        let mut now = at(0);
        output.handle_input(now, Title("a"));
        while now < at(600_000) {
            if output.poll_output().is_some() {
                output.handle_input(now, Sent);
                output.handle_input(now + Span::from_millis(20), Failed);
            }
            now = output.poll_timeout().unwrap();
            output.handle_timeout(now);
        }
        assert!((25..=50).contains(&output.counts().sent), "{:?}", output.counts());
    }

    #[test]
    fn after_a_lost_connection_the_title_is_sent_again() {
        let mut output = TitleOutput::new(Span::ZERO, 1);
        output.handle_input(at(0), Failed);
        assert_eq!((output.poll_output(), output.poll_timeout()), (None, None));
        output.handle_input(at(60_000), Title("a"));
        assert_eq!(output.poll_output(), Some("a"));
        output.handle_input(at(60_000), Sent);
        output.handle_input(at(90_000), Failed);
        let retry = output.poll_timeout().unwrap();
        assert!(retry > at(90_000) && retry <= at(91_000));
        output.handle_timeout(retry);
        assert_eq!(output.poll_output(), Some("a"));
    }
}
