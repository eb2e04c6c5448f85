//! Selects the files that retention deletes.
//!
//! The wall clock may be set at any time, by weeks on a machine whose clock has no battery. So the
//! age of a file that this run has written counts on the clock that cannot be set, and times in
//! sidecars of earlier runs count only while the wall clock can be trusted.

use aulos_core::Span;
use aulos_engine::recorder::{ClockMonitor, UnixTime, WallClock};

use super::config::RetentionRules;
use super::report::RetentionReason;

/// A complete file of a recorder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RetainedFile {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) origin: FileOrigin,
}

/// Which run has written a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileOrigin {
    /// This run.
    ThisRun {
        /// The clocks when it ended.
        ended: WallClock,
        /// By how much the wall clock was set afterwards, as far as the sidecar says so.
        noted: Span,
    },
    /// An earlier run.
    Earlier {
        /// The uptime when this run found it: it is at least as old.
        found: Span,
        /// When it ended by the wall clock of that run.
        end: UnixTime,
    },
}

/// The clocks, and what happened to them in this run.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetentionClock {
    now: WallClock,
    monitor: ClockMonitor,
    /// The uptime when it was set last.
    set_at: Option<Span>,
}

impl RetentionClock {
    pub(super) fn new(now: WallClock) -> Self {
        let mut clock = Self { now, monitor: ClockMonitor::default(), set_at: None };
        clock.update(now);
        clock
    }

    /// Takes a reading.
    pub(super) fn update(&mut self, now: WallClock) {
        self.now = now;
        let change = self.monitor.observe(now).unwrap_or_default();
        if change.set_by != Span::ZERO {
            self.set_at = Some(now.uptime());
        }
    }

    pub(super) fn uptime(&self) -> Span {
        self.now.uptime()
    }

    /// By how much the clock was set after the end of a file of this run, where its sidecar does
    /// not say so yet.
    pub(super) fn correction(&self, file: &RetainedFile) -> Option<Span> {
        let FileOrigin::ThisRun { ended, noted } = file.origin else { return None };
        let correction = self.now.set_since(&ended);
        ((correction - noted).abs() >= MIN_CORRECTION).then_some(correction)
    }

    /// The age of a file, or less where it is uncertain.
    fn age(&self, file: &RetainedFile) -> Span {
        match file.origin {
            FileOrigin::ThisRun { ended, .. } => self.uptime() - ended.uptime(),
            FileOrigin::Earlier { found, .. } if !self.is_settled() => self.uptime() - found,
            FileOrigin::Earlier { found, end } => {
                let nanos = self.now.utc.as_nanos().saturating_sub(end.as_nanos());
                Span::from_nanos(nanos).max(self.uptime() - found)
            }
        }
    }

    fn is_settled(&self) -> bool {
        self.set_at.is_none_or(|at| self.uptime() - at >= SETTLE_TIME)
    }
}

/// The reasons for which the first of `files`, which are sorted from the oldest on, are to be
/// deleted. The newest is kept in any case: it may be the only one of the day.
pub(super) fn files_to_delete(
    files: &[RetainedFile],
    rules: &RetentionRules,
    clock: &RetentionClock,
    free: u64,
) -> Vec<RetentionReason> {
    let total: u64 = files.iter().map(|file| file.bytes).sum();
    let (mut left, mut bytes, mut free) = (files.len() as u64, total, free);
    let mut reasons = Vec::new();
    for file in files.iter().take(files.len().saturating_sub(1)) {
        let rule = if rules.max_age.is_some_and(|max| clock.age(file) > max) {
            RetentionReason::Age
        } else if rules.max_files.is_some_and(|max| left > max) {
            RetentionReason::Count
        } else if rules.max_bytes.is_some_and(|max| bytes > max) {
            RetentionReason::Bytes
        } else if free < rules.keep_free {
            RetentionReason::FreeSpace
        } else {
            break;
        };
        reasons.push(rule);
        left -= 1;
        bytes -= file.bytes;
        free = free.saturating_add(file.bytes);
    }
    reasons
}

/// How long the wall clock must not have been set before times of earlier runs count: a time
/// service may set it in several steps, and a wrong time may be noticed and corrected.
const SETTLE_TIME: Span = Span::from_secs(600);

/// A sidecar is not written again for less.
const MIN_CORRECTION: Span = Span::from_secs(60);

#[cfg(test)]
mod tests {
    use aulos_core::Instant;
    use proptest::prelude::*;

    use super::*;

    fn files(count: u64) -> Vec<RetainedFile> {
        let file = |index| RetainedFile {
            name: format!("{index}"),
            bytes: 10,
            origin: earlier(seconds(index)),
        };
        (0..count).map(file).collect()
    }

    /// A file that a run finds at its start, and that ended at this time of the wall clock.
    fn earlier(end: Span) -> FileOrigin {
        FileOrigin::Earlier { found: UPTIME, end: UnixTime::from_nanos(end.as_nanos()) }
    }

    /// A file that ends at this reading.
    fn ended(ended: WallClock) -> RetainedFile {
        RetainedFile {
            origin: FileOrigin::ThisRun { ended, noted: Span::ZERO },
            ..files(1).remove(0)
        }
    }

    fn seconds(seconds: u64) -> Span {
        Span::from_secs(i64::try_from(seconds).unwrap())
    }

    /// When the run starts.
    const UPTIME: Span = Span::from_secs(50);

    /// A reading: the wall clock is `wall` seconds after the start of 1970, `run` after the start
    /// of the run.
    fn reading(run: u64, wall: u64) -> WallClock {
        WallClock {
            local: Instant::ZERO + UPTIME + seconds(run),
            utc: UnixTime::from_nanos(seconds(wall).as_nanos()),
            ..WallClock::default()
        }
    }

    #[test]
    fn each_rule_deletes_the_oldest_files_and_keeps_the_newest() {
        let now = RetentionClock::new(reading(0, 100));
        let none = RetentionRules::default();
        let files_to_delete =
            |rules: RetentionRules, free| files_to_delete(&files(10), &rules, &now, free);
        assert_eq!(files_to_delete(none, 0), []);
        assert_eq!(
            files_to_delete(RetentionRules { max_files: Some(7), ..none }, 0),
            [RetentionReason::Count; 3]
        );
        assert_eq!(
            files_to_delete(RetentionRules { max_files: Some(0), ..none }, 0),
            [RetentionReason::Count; 9]
        );
        assert_eq!(
            files_to_delete(RetentionRules { max_bytes: Some(55), ..none }, 0),
            [RetentionReason::Bytes; 5]
        );
        let age = Some(Span::from_secs(96));
        assert_eq!(
            files_to_delete(RetentionRules { max_age: age, ..none }, 0),
            [RetentionReason::Age; 4]
        );
        assert_eq!(
            files_to_delete(RetentionRules { keep_free: 25, ..none }, 5),
            [RetentionReason::FreeSpace; 2]
        );
        let all =
            RetentionRules { max_age: age, max_files: Some(5), max_bytes: Some(40), keep_free: 70 };
        let (age, count, bytes, free) = (
            RetentionReason::Age,
            RetentionReason::Count,
            RetentionReason::Bytes,
            RetentionReason::FreeSpace,
        );
        assert_eq!(files_to_delete(all, 0), [age, age, age, age, count, bytes, free]);
    }

    const DAY: u64 = 86_400;

    /// How many of two files, the second of which is always kept, are deleted by age.
    fn deleted(clock: &RetentionClock, file: &RetainedFile) -> usize {
        let rules = RetentionRules { max_age: Some(seconds(7 * DAY)), ..RetentionRules::default() };
        files_to_delete(&[file.clone(), file.clone()], &rules, clock, u64::MAX).len()
    }

    #[test]
    fn files_of_this_run_have_their_age_however_the_clock_is_set() {
        let mut clock = RetentionClock::new(reading(0, 20_000 * DAY));
        let file = ended(clock.now);
        for (run, wall) in
            [(1, 20_040 * DAY), (700, 20_041 * DAY), (7 * DAY, 1), (7 * DAY, 90_000 * DAY)]
        {
            clock.update(reading(run, wall));
            assert_eq!(deleted(&clock, &file), 0, "after {run} s, at {wall}");
        }
        clock.update(reading(7 * DAY + 1, 1));
        assert_eq!(deleted(&clock, &file), 1);
    }

    #[test]
    fn files_of_earlier_runs_wait_until_the_clock_was_not_set_for_a_while() {
        let wall = 20_000 * DAY;
        let mut clock = RetentionClock::new(reading(0, wall));
        let file = RetainedFile { origin: earlier(seconds(wall - DAY)), ..files(1).remove(0) };
        assert_eq!(deleted(&clock, &file), 0);
        // A mistake, which is corrected.
        for (run, wall) in [
            (1, wall + 40 * DAY),
            (599, wall + 40 * DAY + 598),
            (600, wall + 600),
            (2_000, wall + 2_000),
        ] {
            clock.update(reading(run, wall));
            assert_eq!(deleted(&clock, &file), 0, "after {run} s, at {wall}");
        }
        // The true time.
        for (run, wall, wanted) in [(3_000, wall + 40 * DAY, 0), (3_601, wall + 40 * DAY + 601, 1)]
        {
            clock.update(reading(run, wall));
            assert_eq!(deleted(&clock, &file), wanted, "after {run} s");
        }
        // A clock that was ahead in an earlier run does not keep its files for ever.
        let ahead = RetainedFile { origin: earlier(seconds(90_000 * DAY)), ..file };
        clock.update(reading(7 * DAY + 1, wall + 47 * DAY));
        assert_eq!(deleted(&clock, &ahead), 1);
    }

    #[test]
    fn a_suspended_machine_is_no_set_clock_and_its_files_age() {
        let mut clock = RetentionClock::new(reading(0, 20_000 * DAY));
        let file = ended(clock.now);
        clock.update(WallClock { suspended: seconds(8 * DAY), ..reading(1, 20_008 * DAY + 1) });
        assert_eq!((clock.set_at, clock.correction(&file)), (None, None));
        assert_eq!(deleted(&clock, &file), 1);
        clock.update(WallClock { suspended: seconds(8 * DAY), ..reading(2, 20_048 * DAY + 2) });
        assert_eq!(clock.correction(&file), Some(seconds(40 * DAY)));
    }

    proptest! {
        #[test]
        fn the_remaining_files_satisfy_every_rule(
            count in 0..20_u64, max in 1..20_u64, bytes in 10..300_u64, free in 0..100_u64,
            keep_free in 0..100_u64,
        ) {
            let rules = RetentionRules { max_age: None, max_files: Some(max), max_bytes: Some(bytes), keep_free };
            let files = files(count);
            let deleted = files_to_delete(&files, &rules, &RetentionClock::new(reading(0, 0)), free).len();
            let left = (files.len() - deleted) as u64;
            prop_assert!(left <= 1 || left <= max);
            prop_assert!(left <= 1 || left * 10 <= bytes);
            prop_assert!(left <= 1 || free + 10 * deleted as u64 >= keep_free);
        }
    }
}
