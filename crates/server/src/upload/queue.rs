//! The upload queue: names of waiting files, and the pauses after failures.
//!
//! It uses no clock and no disk. It holds [`MAX_LISTED`] names; further ones are listed again from
//! the journal, in the journal's order: a failed file goes to its end.

use std::collections::VecDeque;

use aulos_core::{Backoff, Instant};

use super::UploadTiming;

/// Maximum number of names held, both waiting and deferred.
pub(super) const MAX_LISTED: usize = 256;

/// The queue of one recording.
#[derive(Debug)]
pub(super) struct UploadQueue {
    ready: VecDeque<String>,
    active: Vec<String>,
    /// Files that failed on their own account, and when they are tried again.
    deferred: VecDeque<(String, Instant)>,
    /// The journal may hold entries that are not here.
    incomplete: bool,
    concurrency: usize,
    timing: UploadTiming,
    backoff: Backoff,
    /// Nothing has been uploaded since the server failed: only one attempt at a time.
    failing: bool,
}

/// The next action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum QueueAction {
    /// Upload this file.
    Start(String),
    /// List the journal, and call [`UploadQueue::extend`].
    ListJournal,
    /// Wait, until this time if there is one.
    Wait(Option<Instant>),
}

/// What a failure concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureScope {
    /// The network or the server; `permanent` needs a user's attention.
    Server {
        /// Whether an early retry is pointless.
        permanent: bool,
    },
    /// This file alone.
    File,
}

impl UploadQueue {
    /// A queue whose first action is to list the journal.
    pub(super) const fn new(concurrency: usize, timing: UploadTiming, seed: u64) -> Self {
        Self {
            ready: VecDeque::new(),
            active: Vec::new(),
            deferred: VecDeque::new(),
            incomplete: true,
            concurrency,
            timing,
            backoff: Backoff::full_jitter(timing.first_pause, timing.longest_pause, seed),
            failing: false,
        }
    }

    /// A file was added to the journal.
    pub(super) fn push(&mut self, name: &str) {
        if self.incomplete || self.ready.len() >= MAX_LISTED {
            // Older entries of the journal come first.
            self.incomplete = true;
        } else if self.accepts(name, Instant::ZERO) {
            self.ready.push_back(name.to_owned());
        }
    }

    /// More files were added than were reported.
    pub(super) const fn mark_incomplete(&mut self) {
        self.incomplete = true;
    }

    /// Whether this file can be queued now.
    pub(super) fn accepts(&self, name: &str, now: Instant) -> bool {
        !self.active.iter().any(|other| other == name)
            && !self.deferred.iter().any(|(other, until)| other == name && *until > now)
            && !self.ready.iter().any(|other| other == name)
    }

    /// Adds listed names, oldest first; `more` says whether the journal has more.
    pub(super) fn extend(&mut self, names: Vec<String>, more: bool) {
        self.incomplete = more;
        self.ready.extend(names);
    }

    /// The next action.
    pub(super) fn next(&mut self, now: Instant) -> QueueAction {
        let due = self.deferred.front().is_some_and(|(_, until)| *until <= now);
        if due {
            self.deferred.retain(|(_, until)| *until > now);
            self.incomplete = true;
        }
        let at_once = if self.failing { 1 } else { self.concurrency };
        if self.active.len() >= at_once {
            return QueueAction::Wait(None);
        }
        if !self.backoff.is_due(now) {
            return QueueAction::Wait(Some(self.backoff.retry_at()));
        }
        if let Some(name) = self.ready.pop_front() {
            self.active.push(name.clone());
            return QueueAction::Start(name);
        }
        if self.incomplete {
            return QueueAction::ListJournal;
        }
        QueueAction::Wait(self.deferred.front().map(|(_, until)| *until))
    }

    /// A file was uploaded, or no longer needs to be.
    pub(super) fn done(&mut self, name: &str) {
        self.remove_active(name);
        if self.failing {
            self.record_progress();
        }
    }

    /// An attempt has failed.
    pub(super) fn failed(&mut self, now: Instant, name: &str, fault: FailureScope) {
        self.remove_active(name);
        match fault {
            FailureScope::File => {
                if self.deferred.len() >= MAX_LISTED {
                    self.deferred.pop_front();
                    self.incomplete = true;
                }
                self.deferred.push_back((name.to_owned(), now + self.timing.file_pause));
            }
            FailureScope::Server { permanent } => {
                // Transfers that ran together fail together, which counts once.
                if self.backoff.is_due(now) {
                    if permanent {
                        self.backoff.refused(now)
                    } else {
                        self.backoff.failed(now)
                    };
                }
                self.failing = true;
                // It is at the end of the journal.
                self.incomplete = true;
            }
        }
    }

    /// A part was uploaded before the failure: retry soon.
    pub(super) fn record_progress(&mut self) {
        self.failing = false;
        self.backoff.reset();
    }

    /// Time of the next attempt after a server failure.
    pub(super) fn retry_at(&self, now: Instant) -> Option<Instant> {
        (!self.backoff.is_due(now)).then(|| self.backoff.retry_at())
    }

    /// Number of files in transfer.
    pub(super) const fn active(&self) -> usize {
        self.active.len()
    }

    fn remove_active(&mut self, name: &str) {
        self.active.retain(|other| other != name);
    }
}

#[cfg(test)]
mod tests {
    use aulos_core::Span;

    use super::*;

    const SERVER: FailureScope = FailureScope::Server { permanent: false };

    fn listed_queue(at_once: usize) -> UploadQueue {
        let mut queue = UploadQueue::new(at_once, UploadTiming::default(), 7);
        assert_eq!(queue.next(Instant::ZERO), QueueAction::ListJournal);
        queue.extend(Vec::new(), false);
        queue
    }

    fn start(name: &str) -> QueueAction {
        QueueAction::Start(name.to_owned())
    }

    #[test]
    fn uploads_run_in_order_up_to_the_concurrency_limit() {
        let (mut queue, now) = (listed_queue(2), Instant::ZERO);
        for name in ["a", "b", "c"] {
            queue.push(name);
            queue.push(name);
        }
        assert_eq!([queue.next(now), queue.next(now)], [start("a"), start("b")]);
        assert_eq!(queue.next(now), QueueAction::Wait(None));
        queue.done("a");
        assert_eq!(queue.next(now), start("c"));
        queue.done("b");
        queue.done("c");
        assert_eq!(queue.next(now), QueueAction::Wait(None));
    }

    #[test]
    fn entries_not_in_memory_are_read_from_the_journal() {
        let (mut queue, now) = (listed_queue(1), Instant::ZERO);
        for number in 0..10_000 {
            queue.push(&number.to_string());
        }
        assert_eq!(queue.ready.len(), MAX_LISTED);
        for number in 0..MAX_LISTED {
            assert_eq!(queue.next(now), start(&number.to_string()));
            queue.done(&number.to_string());
        }
        assert_eq!(queue.next(now), QueueAction::ListJournal);
        queue.extend(vec!["256".to_owned()], true);
        queue.push("10001");
        assert_eq!(queue.next(now), start("256"));
        queue.done("256");
        assert_eq!(
            queue.next(now),
            QueueAction::ListJournal,
            "10001 has no place before those of the folder"
        );
    }

    #[test]
    fn a_failing_server_is_probed_by_one_upload_with_back_off() {
        let (mut queue, mut now) = (listed_queue(2), Instant::ZERO + Span::from_secs(1));
        queue.push("a");
        queue.push("b");
        assert_eq!([queue.next(now), queue.next(now)], [start("a"), start("b")]);
        queue.failed(now, "a", SERVER);
        queue.failed(now, "b", SERVER);
        let mut longest = Span::ZERO;
        for _ in 0..20 {
            if let QueueAction::Wait(Some(until)) = queue.next(now) {
                longest = longest.max(until.since(now));
                assert!(until.since(now) <= Span::from_secs(300));
                now = until;
            }
            assert_eq!(queue.next(now), QueueAction::ListJournal);
            queue.extend(vec!["a".to_owned(), "b".to_owned()], false);
            assert_eq!(queue.next(now), start("a"));
            assert_eq!(queue.next(now), QueueAction::Wait(None), "one asks for both");
            queue.failed(now, "a", SERVER);
            queue.ready.clear();
        }
        assert!(longest > Span::from_secs(60), "{longest:?}");
        let until = queue.retry_at(now).unwrap_or(now);
        queue.extend(vec!["a".to_owned(), "b".to_owned()], false);
        assert_eq!(queue.next(until), start("a"));
        queue.done("a");
        queue.push("c");
        assert_eq!([queue.next(until), queue.next(until)], [start("b"), start("c")]);
        queue.failed(until, "b", SERVER);
        assert!(queue.backoff.retry_at().since(until) <= Span::from_secs(1), "from the beginning");
    }

    #[test]
    fn a_failing_file_does_not_block_others() {
        let (mut queue, now) = (listed_queue(1), Instant::ZERO + Span::from_secs(1));
        queue.push("bad");
        queue.push("good");
        assert_eq!(queue.next(now), start("bad"));
        queue.failed(now, "bad", FailureScope::File);
        assert_eq!(queue.next(now), start("good"));
        queue.done("good");
        assert!(!queue.accepts("bad", now));
        let QueueAction::Wait(Some(until)) = queue.next(now) else { panic!() };
        assert_eq!(until.since(now), Span::from_secs(300));
        assert_eq!(queue.next(until), QueueAction::ListJournal);
        assert!(queue.accepts("bad", until));
    }

    #[test]
    fn thousands_of_failing_files_use_bounded_memory() {
        let (mut queue, now) = (listed_queue(1), Instant::ZERO + Span::from_secs(1));
        for number in 0..5_000 {
            queue.extend(vec![number.to_string()], false);
            assert_eq!(queue.next(now), start(&number.to_string()));
            queue.failed(now, &number.to_string(), FailureScope::File);
        }
        assert!(queue.deferred.len() <= MAX_LISTED && queue.incomplete);
    }
}
