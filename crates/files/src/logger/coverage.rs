//! Which frames of which files were played at which time, and what is missing.

use aulos_core::{Frames, SampleRate, Span};
use aulos_engine::recorder::UnixTime;
use serde_json::Value;

use super::gap::{LogGap, LogGapCause};
use super::index_line::{LoggedFile, later};
use crate::record::ParsedSidecar;

/// Frames of a file within a range of time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundRange {
    /// Path of the file in the folder.
    pub file: String,
    /// Position of the first frame in the file.
    pub position: Frames,
    /// Number of frames.
    pub frames: Frames,
    /// Frames per second.
    pub rate: SampleRate,
    /// Time of the first frame.
    pub from: UnixTime,
}

/// A piece of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExportPart {
    /// Frames of a file.
    Sound(FoundRange),
    /// Silence of this length, for a time without a file.
    Silence(Frames),
}

/// Frames of one file of which each has the time of the frame before it and one frame more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CoveredSpan {
    pub(super) position: u64,
    pub(super) frames: u64,
    pub(super) t0: i64,
    /// The time at which the next span takes over.
    pub(super) end: i64,
}

/// A file with its spans and the gaps that its sidecar lists.
#[derive(Clone, Debug)]
pub(super) struct CoveredFile {
    pub(super) file: LoggedFile,
    pub(super) spans: Vec<CoveredSpan>,
    pub(super) gaps: Vec<LogGap>,
    /// The number of its segment in its run, and why it ended.
    pub(super) segment: Option<u64>,
    pub(super) is_stopped: bool,
    /// For how long before it the folder could not be used.
    pub(super) waited_nanos: i64,
    /// Why it cannot be read, if so.
    pub(super) absence: Option<LogGapCause>,
}

impl CoveredFile {
    pub(super) fn new(file: LoggedFile, sidecar: Option<&ParsedSidecar>) -> Self {
        let none = Value::Null;
        let json = sidecar.map_or(&none, ParsedSidecar::json);
        let (spans, gaps) = (spans_of(&file, json), Vec::new());
        let (segment, ended_by) = (json["segment"].as_u64(), json["ended_by"].as_str());
        let is_stopped = ended_by == Some("stop");
        let waited_nanos = nanos_of(&json["waited_s"]);
        let absence = None;
        let mut covered = Self { file, spans, gaps, segment, is_stopped, waited_nanos, absence };
        covered.gaps = gaps_of(&covered, json);
        covered
    }

    /// Time of a position in the file.
    fn time_of(&self, position: u64) -> i64 {
        let span = self.spans.iter().rfind(|span| span.position <= position);
        span.map_or(self.file.t0.as_nanos(), |span| {
            after(span.t0, self.file.rate, position - span.position)
        })
    }

    /// Whether the gap before a span is one of those that the sidecar lists.
    fn lists_gap_before(&self, number: usize, span: &CoveredSpan) -> bool {
        number > 0 && self.gaps.iter().any(|gap| !gap.is_silence && gap.to.as_nanos() == span.t0)
    }

    /// The range of a span whose times are in `from..to`; empty ranges give `None`.
    fn range_in(&self, span: &CoveredSpan, from: i64, to: i64) -> Option<FoundRange> {
        if from >= span.end || to <= span.t0 {
            return None;
        }
        let first = frame_at(span, self.file.rate, from);
        let end = if to >= span.end { span.frames } else { frame_at(span, self.file.rate, to) };
        (end > first).then(|| FoundRange {
            file: self.file.file.clone(),
            position: Frames(span.position + first),
            frames: Frames(end - first),
            rate: self.file.rate,
            from: UnixTime::from_nanos(after(span.t0, self.file.rate, first)),
        })
    }
}

/// Joins files that continue each other, so that a range loses no frame between them.
pub(super) fn join(files: &mut [CoveredFile]) {
    for at in 1..files.len() {
        let (before, rest) = files.split_at_mut(at);
        let (Some(last), Some(next)) = (before.last_mut(), rest.first()) else { continue };
        if let (Some(span), Some(first)) = (last.spans.last_mut(), next.spans.first())
            && next.file.continues(&last.file, span.end)
        {
            span.end = first.t0;
        }
    }
}

/// The ranges of files within `from..to`, in the order of their times.
pub(super) fn find(files: &[CoveredFile], from: UnixTime, to: UnixTime) -> Vec<FoundRange> {
    let (from, to) = (from.as_nanos(), to.as_nanos());
    let present = spans_by_time(files).into_iter().filter(|(file, ..)| file.absence.is_none());
    present.filter_map(|(file, _, span)| file.range_in(span, from, to)).collect()
}

/// The parts of an export: what was found, and silence where nothing was.
pub(super) fn export_parts(files: &[CoveredFile], from: UnixTime, to: UnixTime) -> Vec<ExportPart> {
    let mut parts = Vec::new();
    // Silence ends at a frame of the output and not after a length: lengths that are rounded one by
    // one would add up.
    let slot = |rate: SampleRate, at: i64| {
        rate.frames(Span::from_nanos(at.saturating_sub(from.as_nanos()))).0
    };
    let (mut cursor, mut written, mut last_rate) = (from.as_nanos(), 0, None);
    let silence = |parts: &mut Vec<ExportPart>, until: u64, written: &mut u64| {
        if until > *written {
            parts.push(ExportPart::Silence(Frames(until - *written)));
            *written = until;
        }
    };
    for found in find(files, from, to) {
        let rate = found.rate;
        if found.from.as_nanos() > cursor.saturating_add(ROUNDING_NANOS) {
            silence(&mut parts, slot(rate, found.from.as_nanos()), &mut written);
        }
        cursor = cursor.max(after(found.from.as_nanos(), rate, found.frames.0));
        // A file that continues this one may begin up to a second later by a corrected clock.
        let joined = joined_end(files, &found);
        (cursor, last_rate) = (cursor.max(joined), Some(rate));
        written += found.frames.0;
        parts.push(ExportPart::Sound(found));
    }
    if let Some(rate) = last_rate.filter(|_| to.as_nanos() > cursor) {
        silence(&mut parts, slot(rate, to.as_nanos()), &mut written);
    }
    parts
}

/// Where the next span takes over, if the range reaches to the end of its span.
fn joined_end(files: &[CoveredFile], found: &FoundRange) -> i64 {
    let file = files.iter().find(|it| it.file.file == found.file);
    let end = found.position.0 + found.frames.0;
    let spans = file.into_iter().flat_map(|file| &file.spans);
    let span = spans.into_iter().find(|span| span.position + span.frames == end);
    span.map_or(i64::MIN, |span| span.end)
}

/// What is missing between `from` and `to`, sorted by time.
pub(super) fn gaps(files: &[CoveredFile], from: UnixTime, to: UnixTime) -> Vec<LogGap> {
    let (from, to) = (from.as_nanos(), to.as_nanos());
    let mut found = Vec::new();
    let mut add = |start: i64, end: i64, cause, is_silence| {
        let (start, end) = (start.max(from), end.min(to));
        if end - start >= MIN_GAP_NANOS {
            let [from, to] = [start, end].map(UnixTime::from_nanos);
            found.push(LogGap { from, to, cause, is_silence });
        }
    };
    let (mut cursor, mut last): (i64, Option<&CoveredFile>) = (i64::MIN, None);
    for (file, number, span) in spans_by_time(files) {
        if span.t0 > cursor && !file.lists_gap_before(number, span) {
            let cause = match number {
                0 => cause_before(last, file, span.t0.saturating_sub(cursor)),
                _ => LogGapCause::ClockSet,
            };
            let waited = if cause == LogGapCause::ServerDown { file.waited_nanos } else { 0 };
            let since = span.t0.saturating_sub(waited).max(cursor);
            add(cursor, since, cause, false);
            add(since, span.t0, LogGapCause::Disk, false);
        }
        if let Some(cause) = file.absence {
            add(span.t0.max(cursor), span.end, cause, false);
        }
        (cursor, last) = (cursor.max(span.end), Some(file));
    }
    for file in files.iter().filter(|file| file.absence.is_none()) {
        for gap in &file.gaps {
            add(gap.from.as_nanos(), gap.to.as_nanos(), gap.cause, gap.is_silence);
        }
    }
    add(cursor, i64::MAX, LogGapCause::NotRecorded, false);
    found.sort_by_key(|gap| (gap.from.as_nanos(), gap.to.as_nanos()));
    found
}

/// Every span with its file and its number there. A file that was begun before the clock was set
/// has spans before and after those of other files.
fn spans_by_time(files: &[CoveredFile]) -> Vec<(&CoveredFile, usize, &CoveredSpan)> {
    let spans = files.iter().flat_map(|file| {
        file.spans.iter().enumerate().map(move |(number, span)| (file, number, span))
    });
    let mut spans: Vec<_> = spans.collect();
    spans.sort_by_key(|(.., span)| span.t0);
    spans
}

/// Why there is nothing between `last` and `next` for `gap` nanoseconds.
fn cause_before(last: Option<&CoveredFile>, next: &CoveredFile, gap: i64) -> LogGapCause {
    let Some(last) = last else { return LogGapCause::NotRecorded };
    // The numbers of segments begin anew with each run.
    let (Some(number), Some(before)) = (next.segment, last.segment) else {
        return LogGapCause::ServerDown;
    };
    if number <= before {
        return LogGapCause::ServerDown;
    }
    if last.is_stopped {
        return LogGapCause::Stopped;
    }
    if number > before + 1 {
        // The files between them were removed while they were written.
        return LogGapCause::FileMissing;
    }
    let end = last.file.first_frame.saturating_add(last.file.frames.0);
    let missing = next.file.rate.span(Frames(next.file.first_frame.saturating_sub(end)));
    match next.file.first_frame >= last.file.first_frame {
        true if missing.as_nanos() > gap / 2 => LogGapCause::Disk,
        true => LogGapCause::ClockSet,
        false => LogGapCause::ServerDown,
    }
}

/// The spans of a file: a new one begins where frames were left out or the clock was set.
fn spans_of(file: &LoggedFile, json: &Value) -> Vec<CoveredSpan> {
    let mut steps = vec![(0, 0_i64)];
    for gap in list(json, "gaps").filter(|gap| gap["silence"] == false) {
        let frames = gap["frames"].as_u64().unwrap_or(0);
        steps.push((
            gap["position"].as_u64().unwrap_or(0),
            file.rate.span(Frames(frames)).as_nanos(),
        ));
    }
    for change in list(json, "clock_changes") {
        let nanos = nanos_of(&change["set_by_s"]).saturating_add(nanos_of(&change["suspended_s"]));
        steps.push((position_of(file, json, change["at_frame"].as_u64().unwrap_or(0)), nanos));
    }
    steps.sort_unstable();
    let mut shift = 0_i64;
    let mut spans: Vec<CoveredSpan> = Vec::new();
    for (position, step) in steps {
        let position = position.min(file.frames.0);
        shift = shift.saturating_add(step);
        let t0 = after(file.t0.as_nanos(), file.rate, position).saturating_add(shift);
        if let Some(last) = spans.last_mut() {
            last.frames = position - last.position;
        }
        spans.push(CoveredSpan { position, frames: file.frames.0 - position, t0, end: 0 });
    }
    spans.retain(|span| span.frames > 0);
    for span in &mut spans {
        span.end = after(span.t0, file.rate, span.frames);
    }
    spans
}

/// The position in a file of a frame of the station.
fn position_of(file: &LoggedFile, json: &Value, frame: u64) -> u64 {
    let mut position = frame.saturating_sub(file.first_frame);
    for gap in
        list(json, "gaps").filter(|gap| gap["at_frame"].as_u64().is_some_and(|at| at < frame))
    {
        let frames = gap["frames"].as_u64().unwrap_or(0);
        match (gap["silence"] == true, gap["kind"] == "stalled") {
            // A stall takes no frame of the station.
            (true, true) => position = position.saturating_add(frames),
            (false, false) => position = position.saturating_sub(frames),
            _ => {}
        }
    }
    position
}

/// The gaps that a sidecar lists.
fn gaps_of(covered: &CoveredFile, json: &Value) -> Vec<LogGap> {
    let gap = |gap: &Value| {
        let position = gap["position"].as_u64()?.min(covered.file.frames.0);
        let length = covered.file.rate.span(Frames(gap["frames"].as_u64()?));
        let is_silence = gap["silence"] == true;
        let cause = match gap["kind"].as_str()? {
            "lost" => LogGapCause::Disk,
            "interrupted" => LogGapCause::Source,
            "stalled" => LogGapCause::Stalled,
            _ => LogGapCause::Stopped,
        };
        let at = UnixTime::from_nanos(covered.time_of(position));
        // Frames that are left out end where the next span begins.
        let before = UnixTime::from_nanos(at.as_nanos().saturating_sub(length.as_nanos()));
        let (from, to) = if is_silence { (at, later(at, length)) } else { (before, at) };
        Some(LogGap { from, to, cause, is_silence })
    };
    list(json, "gaps").filter_map(gap).collect()
}

/// Seconds of a sidecar, which have whole milliseconds.
fn nanos_of(seconds: &Value) -> i64 {
    let millis = (seconds.as_f64().unwrap_or(0.0) * 1e3).round().clamp(-9e12, 9e12);
    #[allow(clippy::cast_possible_truncation, reason = "clamped")]
    (millis as i64).saturating_mul(1_000_000)
}

fn list<'a>(json: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    json[key].as_array().into_iter().flatten().take(MAX_LIST)
}

/// The time `frames` after `t0`.
fn after(t0: i64, rate: SampleRate, frames: u64) -> i64 {
    t0.saturating_add(rate.span(Frames(frames)).as_nanos())
}

/// The first frame of a span that is played at `at` or later.
fn frame_at(span: &CoveredSpan, rate: SampleRate, at: i64) -> u64 {
    let nanos = u128::try_from(i128::from(at) - i128::from(span.t0)).unwrap_or(0);
    let frame = (nanos * u128::from(rate.hz())).div_ceil(1_000_000_000);
    u64::try_from(frame).unwrap_or(u64::MAX).min(span.frames)
}

/// Spans that continue each other may differ by the rounding of their times.
const ROUNDING_NANOS: i64 = 1_000;

/// Less is the rounding of times and the drift of the card against the clock.
const MIN_GAP_NANOS: i64 = 20_000_000;

/// Entries of a list of a sidecar that are read: the recorder writes no more.
const MAX_LIST: usize = 10_000;
