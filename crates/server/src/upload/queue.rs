//! Who is next: the names of files that wait, and the pauses when uploads fail.
//!
//! It knows no clock and no disk. It remembers [`MAX_LISTED`] names; what waits beyond that is found
//! again in the folder of the journal, whose order is that of the line: whoever fails goes to its
//! end.

use std::collections::VecDeque;

use aulos_core::Instant;
use aulos_io::feed::Backoff;

use super::UploadTiming;

/// Names that are remembered at once, of those that wait and of those that are put off.
pub(super) const MAX_LISTED: usize = 256;

/// The line.
#[derive(Debug)]
pub(super) struct UploadQueue {
    ready: VecDeque<String>,
    active: Vec<String>,
    /// Files that failed for their own sake, and until when they are left alone.
    deferred: VecDeque<(String, Instant)>,
    /// The folder may hold some that are not here.
    incomplete: bool,
    concurrency: usize,
    timing: UploadTiming,
    seed: u64,
    backoff: Backoff,
    /// Nothing has been uploaded since the server failed: one asks for all.
    failing: bool,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum QueueAction {
    /// Upload this one.
    Start(String),
    /// Look into the folder, and tell by [`Line::found`].
    ListJournal,
    /// Nothing before that.
    Wait(Option<Instant>),
}

/// Who was at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureScope {
    /// The way or the server; `lasting` is for somebody to mend.
    Server {
        /// Whether asking again soon will hardly help.
        lasting: bool,
    },
    /// This file alone.
    File,
}

impl UploadQueue {
    /// One that begins with a look into the folder.
    pub(super) const fn new(concurrency: usize, timing: UploadTiming, seed: u64) -> Self {
        Self {
            ready: VecDeque::new(),
            active: Vec::new(),
            deferred: VecDeque::new(),
            incomplete: true,
            concurrency,
            timing,
            seed,
            backoff: Backoff::between(timing.first_pause, timing.longest_pause, seed),
            failing: false,
        }
    }

    /// A file has been added to the folder.
    pub(super) fn push(&mut self, name: &str) {
        if self.incomplete || self.ready.len() >= MAX_LISTED {
            // Others came before it.
            self.incomplete = true;
        } else if self.accepts(name, Instant::ZERO) {
            self.ready.push_back(name.to_owned());
        }
    }

    /// More have been added than were told.
    pub(super) const fn mark_incomplete(&mut self) {
        self.incomplete = true;
    }

    /// Whether this one can be in the line now.
    pub(super) fn accepts(&self, name: &str, now: Instant) -> bool {
        !self.active.iter().any(|other| other == name)
            && !self.deferred.iter().any(|(other, until)| other == name && *until > now)
            && !self.ready.iter().any(|other| other == name)
    }

    /// What the folder has that is wanted, oldest first, and whether it has more.
    pub(super) fn extend(&mut self, names: Vec<String>, more: bool) {
        self.incomplete = more;
        self.ready.extend(names);
    }

    /// What is to be done.
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

    /// One is uploaded, or need not be any more.
    pub(super) fn done(&mut self, name: &str) {
        self.remove_active(name);
        if self.failing {
            self.record_progress();
        }
    }

    /// One has failed.
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
            FailureScope::Server { lasting } => {
                // Those that were under way together fail together, which counts once.
                if self.backoff.is_due(now) {
                    if lasting { self.backoff.refused(now) } else { self.backoff.failed(now) }
                }
                self.failing = true;
                // It is in the folder, at its end.
                self.incomplete = true;
            }
        }
    }

    /// A part of a file got through before it failed: it is worth while to ask again soon.
    pub(super) fn record_progress(&mut self) {
        self.failing = false;
        // Another seed, because the same one would give the same pauses.
        self.seed = self.seed.wrapping_add(1);
        self.backoff =
            Backoff::between(self.timing.first_pause, self.timing.longest_pause, self.seed);
    }

    /// When the server is asked again, if it failed.
    pub(super) fn retry_at(&self, now: Instant) -> Option<Instant> {
        (!self.backoff.is_due(now)).then(|| self.backoff.retry_at())
    }

    /// How many are under way.
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

    const SERVER: FailureScope = FailureScope::Server { lasting: false };

    fn listed_queue(at_once: usize) -> UploadQueue {
        let mut line = UploadQueue::new(at_once, UploadTiming::default(), 7);
        assert_eq!(line.next(Instant::ZERO), QueueAction::ListJournal);
        line.extend(Vec::new(), false);
        line
    }

    fn start(name: &str) -> QueueAction {
        QueueAction::Start(name.to_owned())
    }

    #[test]
    fn in_the_order_in_which_they_came_and_so_many_at_once() {
        let (mut line, now) = (listed_queue(2), Instant::ZERO);
        for name in ["a", "b", "c"] {
            line.push(name);
            line.push(name);
        }
        assert_eq!([line.next(now), line.next(now)], [start("a"), start("b")]);
        assert_eq!(line.next(now), QueueAction::Wait(None));
        line.done("a");
        assert_eq!(line.next(now), start("c"));
        line.done("b");
        line.done("c");
        assert_eq!(line.next(now), QueueAction::Wait(None));
    }

    #[test]
    fn what_is_not_remembered_is_looked_up() {
        let (mut line, now) = (listed_queue(1), Instant::ZERO);
        for number in 0..10_000 {
            line.push(&number.to_string());
        }
        assert_eq!(line.ready.len(), MAX_LISTED);
        for number in 0..MAX_LISTED {
            assert_eq!(line.next(now), start(&number.to_string()));
            line.done(&number.to_string());
        }
        assert_eq!(line.next(now), QueueAction::ListJournal);
        line.extend(vec!["256".to_owned()], true);
        line.push("10001");
        assert_eq!(line.next(now), start("256"));
        line.done("256");
        assert_eq!(
            line.next(now),
            QueueAction::ListJournal,
            "10001 has no place before those of the folder"
        );
    }

    #[test]
    fn a_server_that_fails_is_asked_by_one_and_ever_more_seldom() {
        let (mut line, mut now) = (listed_queue(2), Instant::ZERO + Span::from_secs(1));
        line.push("a");
        line.push("b");
        assert_eq!([line.next(now), line.next(now)], [start("a"), start("b")]);
        line.failed(now, "a", SERVER);
        line.failed(now, "b", SERVER);
        let mut longest = Span::ZERO;
        for _ in 0..20 {
            if let QueueAction::Wait(Some(until)) = line.next(now) {
                longest = longest.max(until.since(now));
                assert!(until.since(now) <= Span::from_secs(300));
                now = until;
            }
            assert_eq!(line.next(now), QueueAction::ListJournal);
            line.extend(vec!["a".to_owned(), "b".to_owned()], false);
            assert_eq!(line.next(now), start("a"));
            assert_eq!(line.next(now), QueueAction::Wait(None), "one asks for both");
            line.failed(now, "a", SERVER);
            line.ready.clear();
        }
        assert!(longest > Span::from_secs(60), "{longest:?}");
        let until = line.retry_at(now).unwrap_or(now);
        line.extend(vec!["a".to_owned(), "b".to_owned()], false);
        assert_eq!(line.next(until), start("a"));
        line.done("a");
        line.push("c");
        assert_eq!([line.next(until), line.next(until)], [start("b"), start("c")]);
        line.failed(until, "b", SERVER);
        assert!(line.backoff.retry_at().since(until) <= Span::from_secs(1), "from the beginning");
    }

    #[test]
    fn a_bad_file_does_not_hold_up_the_others() {
        let (mut line, now) = (listed_queue(1), Instant::ZERO + Span::from_secs(1));
        line.push("bad");
        line.push("good");
        assert_eq!(line.next(now), start("bad"));
        line.failed(now, "bad", FailureScope::File);
        assert_eq!(line.next(now), start("good"));
        line.done("good");
        assert!(!line.accepts("bad", now));
        let QueueAction::Wait(Some(until)) = line.next(now) else { panic!() };
        assert_eq!(until.since(now), Span::from_secs(300));
        assert_eq!(line.next(until), QueueAction::ListJournal);
        assert!(line.accepts("bad", until));
    }

    #[test]
    fn thousands_of_bad_files_take_no_more_memory() {
        let (mut line, now) = (listed_queue(1), Instant::ZERO + Span::from_secs(1));
        for number in 0..5_000 {
            line.extend(vec![number.to_string()], false);
            assert_eq!(line.next(now), start(&number.to_string()));
            line.failed(now, &number.to_string(), FailureScope::File);
        }
        assert!(line.deferred.len() <= MAX_LISTED && line.incomplete);
    }
}
