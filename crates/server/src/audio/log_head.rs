//! When the hash of a log's last line is reported, to be kept on another machine.

use std::sync::Arc;

use aulos_control::backend::LogHead;
use aulos_core::{Instant, Span};
use aulos_files::logger::LoggerIndex;
use aulos_io::SystemClock;

/// Reports the head of a log at the start and once a day, if it has changed.
#[derive(Debug)]
pub(super) struct DailyHead {
    index: Arc<LoggerIndex>,
    reported: Option<(Instant, String)>,
}

impl DailyHead {
    pub(super) const fn new(index: Arc<LoggerIndex>) -> Self {
        Self { index, reported: None }
    }

    /// The head, if it is to be reported now.
    pub(super) fn poll(&mut self) -> Option<LogHead> {
        self.poll_at(SystemClock::now(), self.index.head())
    }

    fn poll_at(&mut self, now: Instant, head: Option<(String, u64)>) -> Option<LogHead> {
        let (hash, lines) = head.filter(|(_, lines)| *lines > 0)?;
        let is_due =
            self.reported.as_ref().is_none_or(|(at, last)| now >= *at + INTERVAL && *last != hash);
        is_due.then(|| {
            self.reported = Some((now, hash.clone()));
            LogHead { hash, lines }
        })
    }
}

/// The last lines of a log are as safe as the last report that was kept.
const INTERVAL: Span = Span::from_secs(86_400);

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_head_is_reported_at_the_start_and_then_once_a_day() {
        let index = LoggerIndex::new(Path::new("/nonexistent"), "hall", |_| {});
        let mut daily = DailyHead::new(Arc::new(index));
        let head = |lines: u64| Some((format!("hash {lines}"), lines));
        let at = |hours: i64| Instant::ZERO + Span::from_secs(hours * 3_600);
        assert_eq!(daily.poll(), None);
        assert_eq!(daily.poll_at(at(0), head(0)), None);
        let reports: Vec<u64> = (1..=72)
            .filter_map(|hour| daily.poll_at(at(hour), head(hour.unsigned_abs())))
            .map(|head| head.lines)
            .collect();
        assert_eq!(reports, [1, 25, 49]);
        assert_eq!(daily.poll_at(at(100), head(49)), None);
    }
}
