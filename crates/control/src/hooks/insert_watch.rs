//! The bypass of a station's insert as events.

use aulos_core::{Instant, Span};

use super::HookEvent;
use crate::backend::{InsertReport, InsertState};

/// Watches the insert of one station.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InsertWatch {
    /// Since when it is bypassed.
    since: Option<Instant>,
    is_reported: bool,
}

impl InsertWatch {
    /// Handles a report, `None` without an insert; returns the event that follows.
    pub(super) fn handle_report(
        &mut self,
        now: Instant,
        report: Option<&InsertReport>,
    ) -> Option<HookEvent> {
        let Some(report) = report else {
            *self = Self::default();
            return None;
        };
        match report.state() {
            InsertState::Starting => None,
            InsertState::Processing => {
                let since = self.since.take();
                let was_reported = core::mem::take(&mut self.is_reported);
                let since = since.filter(|_| was_reported)?;
                let (after, latency) = (now.since(since), report.latency);
                Some(HookEvent::InsertRecovered { after, latency })
            }
            InsertState::Bypassed => {
                let since = *self.since.get_or_insert(now);
                // The fault of a program that stalls is known some time after the bypass.
                let is_known = !report.program.is_running || now.since(since) >= CAUSE_GRACE;
                if self.is_reported || !is_known {
                    return None;
                }
                self.is_reported = true;
                let (cause, reason) = (report.cause(), report.reason());
                Some(HookEvent::InsertBypassed { cause, reason })
            }
        }
    }
}

/// Longer than a program may write nothing.
const CAUSE_GRACE: Span = Span::from_millis(700);

#[cfg(test)]
mod tests {
    use aulos_engine::insert::InsertFault;

    use super::*;

    /// The names of the events of these reports, which come ten times a second.
    fn events(reports: &[(usize, InsertReport)]) -> Vec<(usize, String)> {
        let (mut watch, mut now, mut events) = (InsertWatch::default(), Instant::ZERO, Vec::new());
        let all = reports.iter().flat_map(|(count, report)| std::iter::repeat_n(report, *count));
        for (number, report) in all.enumerate() {
            now += Span::from_millis(100);
            let event = watch.handle_report(now, Some(report));
            events.extend(event.map(|event| (number, event.text())));
        }
        events
    }

    fn report(is_processing: bool, bypasses: u64, fault: Option<InsertFault>) -> InsertReport {
        let mut report = InsertReport::default();
        (report.stage.is_processing, report.stage.bypasses) = (is_processing, bypasses);
        (report.program.fault, report.program.is_running) = (fault, fault.is_none());
        report.problem = fault.map(|fault| fault.name().to_owned());
        report.latency = Span::from_millis(120);
        report
    }

    #[test]
    fn a_bypass_is_reported_once_with_its_cause_and_its_end() {
        let stalled = report(false, 1, Some(InsertFault::NoOutput));
        let reports = [
            (20, report(false, 0, None)),
            (20, report(true, 0, None)),
            (5, report(false, 1, None)),
            (20, stalled),
            // It runs again, and is not heard yet.
            (10, report(false, 1, None)),
            (10, report(true, 1, None)),
        ];
        let recovered = "insert processes again after 3.5 s, with a latency of 120 ms";
        assert_eq!(
            events(&reports),
            [(45, "insert bypassed: no_output".to_owned()), (75, recovered.to_owned())]
        );
        let late = [(20, report(true, 0, None)), (20, report(false, 1, None))];
        assert_eq!(events(&late), [(27, "insert bypassed: the program is late".to_owned())]);
    }

    #[test]
    fn a_program_that_never_works_is_reported_from_the_start() {
        let reports = [(30, report(false, 0, Some(InsertFault::NotStarted)))];
        assert_eq!(events(&reports), [(0, "insert bypassed: not_started".to_owned())]);
    }
}
