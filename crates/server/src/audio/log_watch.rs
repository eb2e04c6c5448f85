//! What is reported of a log while it is written: its head once a day, and gaps as they happen.

use std::sync::Arc;

use aulos_control::backend::{LogHead, RecordingEventKind};
use aulos_core::{Instant, MediaTime, SampleRate, Span};
use aulos_engine::recorder::UnixTime;
use aulos_files::logger::{IndexState, LogGap, LogGapCause, LoggerIndex};
use aulos_files::record::{LossCause, RecorderEvent, RecorderEventKind};

/// Watches the log of one recorder.
#[derive(Debug)]
pub(super) struct LogWatch {
    index: Arc<LoggerIndex>,
    head: DailyHead,
    gaps: GapWatch,
}

impl LogWatch {
    /// `waited` is for how long the folder could not be used before.
    pub(super) fn new(index: Arc<LoggerIndex>, waited: Option<Span>) -> Self {
        Self { index, head: DailyHead::default(), gaps: GapWatch { waited, ..GapWatch::default() } }
    }

    /// Takes an event of the recorder; the gap that it shows.
    pub(super) fn handle_event(&mut self, event: &RecorderEvent) -> Option<RecordingEventKind> {
        self.gaps.handle_event(event).map(RecordingEventKind::LogGap)
    }

    /// What is to be reported now.
    pub(super) fn poll(&mut self, now: Instant) -> Vec<RecordingEventKind> {
        let Some(state) = self.index.state() else { return Vec::new() };
        let gap = self.gaps.poll(&state).map(RecordingEventKind::LogGap);
        let head = self.head.poll(now, &state).map(RecordingEventKind::LogHead);
        [gap, head].into_iter().flatten().collect()
    }
}

/// Reports the head of a log at the start and once a day, if it has changed.
#[derive(Debug, Default)]
struct DailyHead {
    reported: Option<(Instant, String)>,
}

impl DailyHead {
    fn poll(&mut self, now: Instant, state: &IndexState) -> Option<LogHead> {
        let IndexState { head: hash, lines, .. } = state;
        let is_due =
            self.reported.as_ref().is_none_or(|(at, last)| now >= *at + INTERVAL && last != hash);
        (is_due && *lines > 0).then(|| {
            self.reported = Some((now, hash.clone()));
            LogHead { hash: hash.clone(), lines: *lines }
        })
    }
}

/// Finds gaps of more than [`MIN_GAP`] in the events of a recorder. The reports of the log are
/// exact and later: they need complete files.
#[derive(Debug, Default)]
struct GapWatch {
    waited: Option<Span>,
    /// The start of the first file, until it is known where the log ended before.
    first: Option<UnixTime>,
    has_begun: bool,
    /// A frame and its time.
    anchor: Option<(MediaTime, UnixTime)>,
}

impl GapWatch {
    fn handle_event(&mut self, event: &RecorderEvent) -> Option<LogGap> {
        match &event.kind {
            RecorderEventKind::SegmentOpened { frame, utc, .. } => {
                if !self.has_begun {
                    (self.has_begun, self.first) = (true, Some(*utc));
                }
                self.anchor = Some((*frame, *utc));
                None
            }
            RecorderEventKind::FramesLost { frame, frames, rate, cause } => {
                let length = rate.span(*frames);
                let from = self.time_of(*frame, *rate, event.utc);
                let cause = match cause {
                    LossCause::Disk => LogGapCause::Disk,
                    LossCause::Source => LogGapCause::Source,
                    _ => LogGapCause::Stalled,
                };
                if cause == LogGapCause::Stalled {
                    // It takes no media time.
                    self.set_forward(length);
                }
                gap(from, later(from, length), cause)
            }
            RecorderEventKind::ClockChanged { change, .. } => {
                self.set_forward(change.set_by);
                let from = later(event.utc, Span::ZERO - change.set_by);
                gap(from, event.utc, LogGapCause::ClockSet)
            }
            RecorderEventKind::FileRemoved { .. } => {
                let (_, from) = self.anchor?;
                gap(from, event.utc, LogGapCause::FileMissing)
            }
            _ => None,
        }
    }

    /// The gap before the first file, once the index is open.
    fn poll(&mut self, state: &IndexState) -> Option<LogGap> {
        let to = self.first.take()?;
        let from = state.last_end?;
        let waited = self.waited.filter(|waited| *waited > MIN_GAP);
        let cause = waited.map_or(LogGapCause::ServerDown, |_| LogGapCause::Disk);
        gap(from, to, cause)
    }

    fn set_forward(&mut self, by: Span) {
        if let Some((_, utc)) = &mut self.anchor {
            *utc = later(*utc, by);
        }
    }

    /// The time of a frame; without a file, that of its event.
    fn time_of(&self, frame: MediaTime, rate: SampleRate, event: UnixTime) -> UnixTime {
        let anchor = self.anchor.filter(|(at, _)| *at <= frame);
        anchor.map_or(event, |(at, utc)| later(utc, rate.span(frame.since(at))))
    }
}

fn gap(from: UnixTime, to: UnixTime, cause: LogGapCause) -> Option<LogGap> {
    let gap = LogGap::new(from, to, cause);
    (gap.length() > MIN_GAP).then_some(gap)
}

fn later(at: UnixTime, span: Span) -> UnixTime {
    UnixTime::from_nanos(at.as_nanos().saturating_add(span.as_nanos()))
}

/// Shorter gaps are in the reports only.
const MIN_GAP: Span = Span::from_secs(1);

/// The last lines of a log are as safe as the last report that was kept.
const INTERVAL: Span = Span::from_secs(86_400);

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use aulos_core::Frames;
    use aulos_engine::recorder::ClockChange;

    use super::*;

    fn state(lines: u64, last_end: Option<i64>) -> IndexState {
        IndexState::new(format!("hash {lines}"), lines, last_end.map(seconds))
    }

    fn seconds(seconds: i64) -> UnixTime {
        UnixTime::from_nanos(seconds * 1_000_000_000)
    }

    fn event(at: i64, kind: RecorderEventKind) -> RecorderEvent {
        RecorderEvent { recorder: "hall".into(), utc: seconds(at), kind }
    }

    fn opened(frame: u64, at: i64) -> RecorderEvent {
        let (path, frame, utc) = (PathBuf::from("a"), MediaTime(frame), seconds(at));
        event(at, RecorderEventKind::SegmentOpened { path, frame, utc })
    }

    fn lost(frame: u64, frames: u64, cause: LossCause, at: i64) -> RecorderEvent {
        let rate = SampleRate::HZ_48000;
        let (frame, frames) = (MediaTime(frame), Frames(frames));
        event(at, RecorderEventKind::FramesLost { frame, frames, rate, cause })
    }

    fn expected(from: i64, to: i64, cause: LogGapCause) -> Option<LogGap> {
        Some(LogGap::new(seconds(from), seconds(to), cause))
    }

    #[test]
    fn a_head_is_reported_at_the_start_and_then_once_a_day() {
        let mut daily = DailyHead::default();
        let at = |hours: i64| Instant::ZERO + Span::from_secs(hours * 3_600);
        assert_eq!(daily.poll(at(0), &state(0, None)), None);
        let reports: Vec<u64> = (1..=72)
            .filter_map(|hour| daily.poll(at(hour), &state(hour.unsigned_abs(), None)))
            .map(|head| head.lines)
            .collect();
        assert_eq!(reports, [1, 25, 49]);
        assert_eq!(daily.poll(at(100), &state(49, None)), None);
        // Nothing is known before the index is open.
        let index = LoggerIndex::new(Path::new("/nonexistent"), "hall", |_| {});
        assert_eq!(LogWatch::new(Arc::new(index), None).poll(at(0)).len(), 0);
    }

    #[test]
    fn the_time_without_the_server_is_a_gap_once_the_index_is_open() {
        let mut watch = GapWatch::default();
        assert_eq!(watch.poll(&state(3, Some(100))), None);
        assert_eq!(watch.handle_event(&opened(0, 160)), None);
        let gap = watch.poll(&state(3, Some(100)));
        assert_eq!(gap, expected(100, 160, LogGapCause::ServerDown));
        // Neither twice, nor for later files, nor for a new log or a second.
        assert_eq!(watch.handle_event(&opened(48_000, 161)), None);
        assert_eq!(watch.poll(&state(3, Some(100))), None);
        for last_end in [None, Some(159), Some(200)] {
            let mut watch = GapWatch::default();
            watch.handle_event(&opened(0, 160));
            assert_eq!(watch.poll(&state(3, last_end)), None, "{last_end:?}");
        }
        let mut watch = GapWatch { waited: Some(Span::from_secs(20)), ..GapWatch::default() };
        watch.handle_event(&opened(0, 160));
        assert_eq!(watch.poll(&state(3, Some(100))), expected(100, 160, LogGapCause::Disk));
    }

    #[test]
    fn lost_frames_have_their_time_and_cause() {
        let mut watch = GapWatch::default();
        watch.handle_event(&opened(48_000, 1_000));
        // Reported when the disk works again.
        let disk = watch.handle_event(&lost(480_000, 240_000, LossCause::Disk, 1_030));
        assert_eq!(disk, expected(1_009, 1_014, LogGapCause::Disk));
        assert_eq!(watch.handle_event(&lost(720_000, 48_000, LossCause::Disk, 1_030)), None);
        let stall = watch.handle_event(&lost(960_000, 96_000, LossCause::Stall, 1_021));
        assert_eq!(stall, expected(1_019, 1_021, LogGapCause::Stalled));
        let source = watch.handle_event(&lost(960_000, 480_000, LossCause::Source, 1_031));
        assert_eq!(source, expected(1_021, 1_031, LogGapCause::Source));
    }

    #[test]
    fn a_clock_that_is_set_and_a_removed_file_are_gaps() {
        let mut watch = GapWatch::default();
        watch.handle_event(&opened(0, 1_000));
        let set = |by| {
            let change = ClockChange { set_by: Span::from_secs(by), suspended: Span::ZERO };
            let frame = MediaTime(480_000);
            event(5_010, RecorderEventKind::ClockChanged { frame, change })
        };
        let forward = watch.handle_event(&set(4_000));
        assert_eq!(forward, expected(1_010, 5_010, LogGapCause::ClockSet));
        assert_eq!(watch.handle_event(&set(-100)), None);
        watch.handle_event(&set(100));
        let removed = event(5_020, RecorderEventKind::FileRemoved { path: PathBuf::from("a") });
        assert_eq!(watch.handle_event(&removed), expected(5_000, 5_020, LogGapCause::FileMissing));
    }
}
