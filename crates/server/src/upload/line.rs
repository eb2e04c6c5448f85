//! Who is next: the names of files that wait, and the pauses when uploads fail.
//!
//! It knows no clock and no disk. It remembers [`MAX_LISTED`] names; what waits beyond that is found
//! again in the folder of the journal, whose order is that of the line: whoever fails goes to its
//! end.

use std::collections::VecDeque;

use aulos_core::Instant;
use aulos_io::feed::Backoff;

use super::Pace;

/// Names that are remembered at once, of those that wait and of those that are put off.
pub(super) const MAX_LISTED: usize = 256;

/// The line.
#[derive(Debug)]
pub(super) struct Line {
    ready: VecDeque<String>,
    active: Vec<String>,
    /// Files that failed for their own sake, and until when they are left alone.
    held: VecDeque<(String, Instant)>,
    /// The folder may hold some that are not here.
    more: bool,
    at_once: usize,
    pace: Pace,
    seed: u64,
    backoff: Backoff,
    /// Nothing has been uploaded since the server failed: one asks for all.
    failing: bool,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Upload this one.
    Start(String),
    /// Look into the folder, and tell by [`Line::found`].
    Look,
    /// Nothing before that.
    Wait(Option<Instant>),
}

/// Who was at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The way or the server; `lasting` is for somebody to mend.
    Server {
        /// Whether asking again soon will hardly help.
        lasting: bool,
    },
    /// This file alone.
    File,
}

impl Line {
    /// One that begins with a look into the folder.
    pub(super) const fn new(at_once: usize, pace: Pace, seed: u64) -> Self {
        Self {
            ready: VecDeque::new(),
            active: Vec::new(),
            held: VecDeque::new(),
            more: true,
            at_once,
            pace,
            seed,
            backoff: Backoff::between(pace.first, pace.longest, seed),
            failing: false,
        }
    }

    /// A file has been added to the folder.
    pub(super) fn offer(&mut self, name: &str) {
        if self.more || self.ready.len() >= MAX_LISTED {
            // Others came before it.
            self.more = true;
        } else if self.wants(name, Instant::ZERO) {
            self.ready.push_back(name.to_owned());
        }
    }

    /// More have been added than were told.
    pub(super) const fn look(&mut self) {
        self.more = true;
    }

    /// Whether this one can be in the line now.
    pub(super) fn wants(&self, name: &str, now: Instant) -> bool {
        !self.active.iter().any(|other| other == name)
            && !self.held.iter().any(|(other, until)| other == name && *until > now)
            && !self.ready.iter().any(|other| other == name)
    }

    /// What the folder has that is wanted, oldest first, and whether it has more.
    pub(super) fn found(&mut self, names: Vec<String>, more: bool) {
        self.more = more;
        self.ready.extend(names);
    }

    /// What is to be done.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        let due = self.held.front().is_some_and(|(_, until)| *until <= now);
        if due {
            self.held.retain(|(_, until)| *until > now);
            self.more = true;
        }
        let at_once = if self.failing { 1 } else { self.at_once };
        if self.active.len() >= at_once {
            return Next::Wait(None);
        }
        if !self.backoff.is_due(now) {
            return Next::Wait(Some(self.backoff.retry_at()));
        }
        if let Some(name) = self.ready.pop_front() {
            self.active.push(name.clone());
            return Next::Start(name);
        }
        if self.more {
            return Next::Look;
        }
        Next::Wait(self.held.front().map(|(_, until)| *until))
    }

    /// One is uploaded, or need not be any more.
    pub(super) fn done(&mut self, name: &str) {
        self.ended(name);
        if self.failing {
            self.progress();
        }
    }

    /// One has failed.
    pub(super) fn failed(&mut self, now: Instant, name: &str, fault: Fault) {
        self.ended(name);
        match fault {
            Fault::File => {
                if self.held.len() >= MAX_LISTED {
                    self.held.pop_front();
                    self.more = true;
                }
                self.held.push_back((name.to_owned(), now + self.pace.held));
            }
            Fault::Server { lasting } => {
                // Those that were under way together fail together, which counts once.
                if self.backoff.is_due(now) {
                    if lasting { self.backoff.refused(now) } else { self.backoff.failed(now) }
                }
                self.failing = true;
                // It is in the folder, at its end.
                self.more = true;
            }
        }
    }

    /// A part of a file got through before it failed: it is worth while to ask again soon.
    pub(super) fn progress(&mut self) {
        self.failing = false;
        // Another seed, because the same one would give the same pauses.
        self.seed = self.seed.wrapping_add(1);
        self.backoff = Backoff::between(self.pace.first, self.pace.longest, self.seed);
    }

    /// When the server is asked again, if it failed.
    pub(super) fn retry_at(&self, now: Instant) -> Option<Instant> {
        (!self.backoff.is_due(now)).then(|| self.backoff.retry_at())
    }

    /// How many are under way.
    pub(super) const fn active(&self) -> usize {
        self.active.len()
    }

    fn ended(&mut self, name: &str) {
        self.active.retain(|other| other != name);
    }
}

#[cfg(test)]
mod tests {
    use aulos_core::Span;

    use super::*;

    const SERVER: Fault = Fault::Server { lasting: false };

    fn line(at_once: usize) -> Line {
        let mut line = Line::new(at_once, Pace::default(), 7);
        assert_eq!(line.next(Instant::ZERO), Next::Look);
        line.found(Vec::new(), false);
        line
    }

    fn start(name: &str) -> Next {
        Next::Start(name.to_owned())
    }

    #[test]
    fn in_the_order_in_which_they_came_and_so_many_at_once() {
        let (mut line, now) = (line(2), Instant::ZERO);
        for name in ["a", "b", "c"] {
            line.offer(name);
            line.offer(name);
        }
        assert_eq!([line.next(now), line.next(now)], [start("a"), start("b")]);
        assert_eq!(line.next(now), Next::Wait(None));
        line.done("a");
        assert_eq!(line.next(now), start("c"));
        line.done("b");
        line.done("c");
        assert_eq!(line.next(now), Next::Wait(None));
    }

    #[test]
    fn what_is_not_remembered_is_looked_up() {
        let (mut line, now) = (line(1), Instant::ZERO);
        for number in 0..10_000 {
            line.offer(&number.to_string());
        }
        assert_eq!(line.ready.len(), MAX_LISTED);
        for number in 0..MAX_LISTED {
            assert_eq!(line.next(now), start(&number.to_string()));
            line.done(&number.to_string());
        }
        assert_eq!(line.next(now), Next::Look);
        line.found(vec!["256".to_owned()], true);
        line.offer("10001");
        assert_eq!(line.next(now), start("256"));
        line.done("256");
        assert_eq!(line.next(now), Next::Look, "10001 has no place before those of the folder");
    }

    #[test]
    fn a_server_that_fails_is_asked_by_one_and_ever_more_seldom() {
        let (mut line, mut now) = (line(2), Instant::ZERO + Span::from_secs(1));
        line.offer("a");
        line.offer("b");
        assert_eq!([line.next(now), line.next(now)], [start("a"), start("b")]);
        line.failed(now, "a", SERVER);
        line.failed(now, "b", SERVER);
        let mut longest = Span::ZERO;
        for _ in 0..20 {
            if let Next::Wait(Some(until)) = line.next(now) {
                longest = longest.max(until.since(now));
                assert!(until.since(now) <= Span::from_secs(300));
                now = until;
            }
            assert_eq!(line.next(now), Next::Look);
            line.found(vec!["a".to_owned(), "b".to_owned()], false);
            assert_eq!(line.next(now), start("a"));
            assert_eq!(line.next(now), Next::Wait(None), "one asks for both");
            line.failed(now, "a", SERVER);
            line.ready.clear();
        }
        assert!(longest > Span::from_secs(60), "{longest:?}");
        let until = line.retry_at(now).unwrap_or(now);
        line.found(vec!["a".to_owned(), "b".to_owned()], false);
        assert_eq!(line.next(until), start("a"));
        line.done("a");
        line.offer("c");
        assert_eq!([line.next(until), line.next(until)], [start("b"), start("c")]);
        line.failed(until, "b", SERVER);
        assert!(line.backoff.retry_at().since(until) <= Span::from_secs(1), "from the beginning");
    }

    #[test]
    fn a_bad_file_does_not_hold_up_the_others() {
        let (mut line, now) = (line(1), Instant::ZERO + Span::from_secs(1));
        line.offer("bad");
        line.offer("good");
        assert_eq!(line.next(now), start("bad"));
        line.failed(now, "bad", Fault::File);
        assert_eq!(line.next(now), start("good"));
        line.done("good");
        assert!(!line.wants("bad", now));
        let Next::Wait(Some(until)) = line.next(now) else { panic!() };
        assert_eq!(until.since(now), Span::from_secs(300));
        assert_eq!(line.next(until), Next::Look);
        assert!(line.wants("bad", until));
    }

    #[test]
    fn thousands_of_bad_files_take_no_more_memory() {
        let (mut line, now) = (line(1), Instant::ZERO + Span::from_secs(1));
        for number in 0..5_000 {
            line.found(vec![number.to_string()], false);
            assert_eq!(line.next(now), start(&number.to_string()));
            line.failed(now, &number.to_string(), Fault::File);
        }
        assert!(line.held.len() <= MAX_LISTED && line.more);
    }
}
