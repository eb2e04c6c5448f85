//! The sidecar: metadata of a file in JSON beside it. It is written before its file is complete, so
//! that a repair after a crash knows the recorder and the start time; and it identifies the files
//! that a recorder may delete.

use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use aulos_core::{ChannelLayout, Frames, MediaTime, SampleRate, Span};
use aulos_engine::recorder::{ClockChange, GapReason, SegmentEnd, SegmentStart, UnixTime};
use ring::digest::{Context, SHA256};
use serde_json::{Value, json};

use super::file_name::rfc3339;
use super::marker::{MAX_MARKERS, Marker, is_valid_label};
use super::report::{ClosedSegment, SegmentLoudness};
use super::store::RecordingStore;

/// Metadata of a segment.
#[derive(Clone, Debug)]
pub(super) struct Sidecar {
    pub(super) recorder: String,
    pub(super) start: SegmentStart,
    pub(super) layout: ChannelLayout,
    pub(super) gaps: Vec<SegmentGap>,
    /// Sorted by position.
    pub(super) markers: Vec<Marker>,
    /// Changes of the wall clock, each with the first frame after it.
    pub(super) clock_changes: Vec<(MediaTime, ClockChange)>,
    pub(super) lost: Frames,
    /// For how long before the file its folder could not be used.
    pub(super) waited: Option<Span>,
    pub(super) loudness: SegmentLoudness,
}

/// Frames of a segment that differ from the station's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentGap {
    pub(super) frame: MediaTime,
    pub(super) frames: Frames,
    /// Its position in the file.
    pub(super) position: Frames,
    pub(super) cause: GapReason,
    /// The file has silence of that length; otherwise the frames are left out.
    pub(super) is_silence: bool,
}

impl Sidecar {
    /// Adds a gap, merged with the last one if they are adjacent.
    pub(super) fn add_gap(&mut self, gap: SegmentGap) {
        match self.gaps.last_mut() {
            Some(last)
                if (last.cause, last.is_silence) == (gap.cause, gap.is_silence)
                    && last.end() == gap.frame =>
            {
                last.frames += gap.frames;
            }
            _ => {
                if self.gaps.len() < MAX_GAPS {
                    self.gaps.push(gap);
                }
            }
        }
    }

    /// Adds a change of the wall clock.
    pub(super) fn add_clock_change(&mut self, at: MediaTime, change: ClockChange) {
        if self.clock_changes.len() < MAX_CLOCK_CHANGES {
            self.clock_changes.push((at, change));
        } else if let Some((_, last)) = self.clock_changes.last_mut() {
            last.set_by += change.set_by;
            last.suspended += change.suspended;
        }
    }

    /// UTC of a frame of the station, by the wall clock as it was at that frame.
    pub(super) fn utc_of(&self, frame: MediaTime) -> UnixTime {
        let played = self.start.rate.span(frame.since(self.start.at));
        let changes = self.clock_changes.iter().filter(|(at, _)| *at <= frame);
        let since = changes.fold(played, |since, (_, change)| since + change.total());
        let stalls = self.gaps.iter().filter(|gap| gap.cause == GapReason::Stalled);
        let stalled = stalls.filter(|gap| gap.frame <= frame).map(|gap| gap.frames);
        let since = stalled.fold(since, |since, frames| since + self.start.rate.span(frames));
        UnixTime::from_nanos(self.start.utc.as_nanos().saturating_add(since.as_nanos()))
    }

    /// Adds a marker; `false` if the maximum is reached.
    pub(super) fn add_marker(&mut self, marker: &Marker) -> bool {
        if self.markers.len() >= MAX_MARKERS {
            return false;
        }
        let at = self.markers.partition_point(|other| other.position <= marker.position);
        self.markers.insert(at, marker.clone());
        true
    }

    /// The sidecar of a file that is being written.
    pub(super) fn recording_json(&self, file: &str) -> Vec<u8> {
        let mut json = self.common_fields(file);
        json["state"] = json!("recording");
        to_json_bytes(&json)
    }

    /// The sidecar of a complete file.
    pub(super) fn closed_json(&self, file: &str, closed: &ClosedSegment) -> Vec<u8> {
        let mut json = self.common_fields(file);
        json["state"] = json!("closed");
        json["end_frame"] = json!(closed.end.0);
        json["frames"] = json!(closed.frames.0);
        json["lost_frames"] = json!(closed.lost.0);
        json["gaps"] = self.gaps.iter().map(|gap| gap.json_value(self.start.rate)).collect();
        json["ended_by"] = json!(format!("{:?}", closed.cause).to_lowercase());
        let SegmentLoudness { integrated, range, true_peak, max_momentary, max_short_term } =
            self.loudness;
        json["loudness"] = json!({
            "integrated_lufs": integrated.map(|value| round_to_hundredths(value.get())),
            "range_lu": range.map(|value| round_to_hundredths(value.get())),
            "true_peak_dbtp": true_peak.map(|value| round_to_hundredths(value.get())),
            "max_momentary_lufs": max_momentary.map(|value| round_to_hundredths(value.get())),
            "max_short_term_lufs": max_short_term.map(|value| round_to_hundredths(value.get())),
        });
        json["bytes"] = json!(closed.bytes);
        json["sha256"] = json!(closed.sha256);
        to_json_bytes(&json)
    }

    /// The event of a complete file.
    pub(super) fn closed_segment(
        &self,
        path: &Path,
        end: SegmentEnd,
        bytes: u64,
        sha256: String,
    ) -> ClosedSegment {
        ClosedSegment {
            path: path.to_owned(),
            number: self.start.number,
            start: self.start.at,
            end: end.end,
            utc: self.start.utc,
            frames: end.frames,
            rate: self.start.rate,
            layout: self.layout,
            bytes,
            lost: self.lost,
            cause: end.cause,
            loudness: self.loudness,
            sha256,
        }
    }

    fn common_fields(&self, file: &str) -> Value {
        let file = file.rsplit('/').next().unwrap_or(file);
        let mut json = json!({
            "written_by": WRITER,
            "recorder": self.recorder,
            "file": file,
            "segment": self.start.number,
            "start_frame": self.start.at.0,
            "start_utc": rfc3339(self.start.utc),
            "start_unix_ns": self.start.utc.as_nanos(),
            "rate": self.start.rate.hz(),
            "channels": self.layout.channels(),
            "clock_changes": self.clock_changes.iter().map(clock_change_to_json).collect::<Value>(),
            "markers": self.markers.iter().map(marker_to_json).collect::<Value>(),
        });
        if let Some(waited) = self.waited {
            json["waited_s"] = json!(round_to_millis(waited));
        }
        json
    }
}

impl SegmentGap {
    /// The frame of the station after it.
    fn end(&self) -> MediaTime {
        match self.cause {
            GapReason::Stalled => self.frame,
            _ => self.frame + self.frames,
        }
    }

    fn json_value(&self, rate: SampleRate) -> Value {
        let kind = match self.cause {
            GapReason::Paused if !self.is_silence => "left out",
            GapReason::Lost => "lost",
            GapReason::Interrupted => "interrupted",
            GapReason::Paused => "paused",
            GapReason::Stalled => "stalled",
        };
        json!({
            "at_frame": self.frame.0,
            "frames": self.frames.0,
            "kind": kind,
            "position": self.position.0,
            "seconds": round_to_millis(rate.span(self.frames)),
            "silence": self.is_silence,
        })
    }
}

fn clock_change_to_json((at, change): &(MediaTime, ClockChange)) -> Value {
    json!({
        "at_frame": at.0,
        "set_by_s": round_to_millis(change.set_by),
        "suspended_s": round_to_millis(change.suspended),
    })
}

fn marker_to_json(marker: &Marker) -> Value {
    json!({
        "frame": marker.frame.0,
        "position": marker.position.0,
        "time": rfc3339(marker.utc),
        "label": marker.label,
    })
}

/// A parsed sidecar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParsedSidecar {
    pub(crate) recorder: String,
    /// Whether its file is complete.
    pub(crate) is_closed: bool,
    pub(crate) start: UnixTime,
    /// End time, if the length is known, otherwise the start time.
    pub(crate) end: UnixTime,
    json: Value,
}

impl ParsedSidecar {
    /// Parses a sidecar written by this program; `None` for others.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let json: Value = serde_json::from_slice(bytes).ok()?;
        let recorder = json.get("recorder")?.as_str()?.to_owned();
        (json.get("written_by")?.as_str()? == WRITER).then_some(())?;
        let start = json.get("start_unix_ns")?.as_i64()?;
        let is_closed = json.get("state")?.as_str()? != "recording";
        let frames = json.get("frames").and_then(Value::as_u64).unwrap_or(0);
        let hz = u32::try_from(json.get("rate")?.as_u64()?).ok()?;
        let length = SampleRate::new(hz).ok()?.span(Frames(frames));
        let changes = json["clock_changes"].as_array().into_iter().flatten();
        let changes = changes.flat_map(|change| [&change["set_by_s"], &change["suspended_s"]]);
        let end = changes
            .chain([&json[CLOCK_SET_LATER]])
            .fold(length, |end, seconds| end + span_of_seconds(seconds));
        let end = UnixTime::from_nanos(start.saturating_add(end.as_nanos()));
        Some(Self { recorder, is_closed, start: UnixTime::from_nanos(start), end, json })
    }

    /// All that it says.
    pub(crate) const fn json(&self) -> &Value {
        &self.json
    }

    /// The markers with their positions in a file of `frames` frames: if the process was killed
    /// before the frame was written, the position is the last frame.
    pub(super) fn markers(&self, frames: Frames) -> Vec<(u64, String)> {
        let list = self.json["markers"].as_array().map(Vec::as_slice).unwrap_or_default();
        let last = frames.0.saturating_sub(1);
        let known = list.iter().take(MAX_MARKERS).filter_map(|marker| {
            let label = marker["label"].as_str().filter(|label| is_valid_label(label))?;
            Some((marker["position"].as_u64()?.min(last), label.to_owned()))
        });
        let mut markers: Vec<_> = known.collect();
        markers.sort_by_key(|(position, _)| *position);
        markers
    }

    /// The sidecar of the same file, whose clock was set by `clock_set_by` after its end.
    pub(super) fn corrected_json(mut self, clock_set_by: Span) -> Vec<u8> {
        self.json[CLOCK_SET_LATER] = json!(round_to_millis(clock_set_by));
        to_json_bytes(&self.json)
    }

    /// The sidecar of the same file after a repair.
    pub(super) fn repaired_json(mut self, frames: Frames, bytes: u64, sha256: &str) -> Vec<u8> {
        let last = frames.0.saturating_sub(1);
        for marker in self.json["markers"].as_array_mut().into_iter().flatten() {
            if marker["position"].as_u64().is_some_and(|position| position > last) {
                marker["position"] = json!(last);
            }
        }
        self.json["state"] = json!("repaired");
        self.json["frames"] = json!(frames.0);
        let start = self.json["start_frame"].as_u64().unwrap_or(0);
        self.json["end_frame"] = json!(start.saturating_add(frames.0));
        self.json["bytes"] = json!(bytes);
        self.json["sha256"] = json!(sha256);
        to_json_bytes(&self.json)
    }

    /// A sidecar for a file that has none.
    pub(super) fn without_sidecar(
        recorder: &str,
        file: &str,
        start: UnixTime,
        rate: SampleRate,
    ) -> Self {
        let file = file.rsplit('/').next().unwrap_or(file);
        let json = json!({
            "written_by": WRITER, "recorder": recorder, "file": file, "start_utc": rfc3339(start),
            "start_unix_ns": start.as_nanos(), "rate": rate.hz(),
        });
        Self { recorder: recorder.to_owned(), is_closed: false, start, end: start, json }
    }
}

/// SHA-256 of a file, computed in pieces.
pub(crate) struct FileDigest(Context);

impl FileDigest {
    pub(crate) fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// In hexadecimal digits, as `sha256sum` prints it.
    pub(crate) fn hex(self) -> String {
        self.0.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The name of a file's sidecar.
pub(crate) fn sidecar_name(file: &str) -> String {
    format!("{file}.json")
}

/// State of a sidecar. Several threads write it; an older state never replaces a newer one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SidecarState {
    /// The file was created.
    #[default]
    Recording,
    /// The file has markers.
    Marked,
    /// The file is being completed.
    Completing,
}

/// Writes the sidecar `name` unless a later state was written.
pub(super) fn put_sidecar(
    now: &Mutex<SidecarState>,
    state: SidecarState,
    store: &dyn RecordingStore,
    (name, text): (&str, &[u8]),
) -> io::Result<()> {
    let mut now = now.lock().unwrap_or_else(PoisonError::into_inner);
    if *now > state {
        return Ok(());
    }
    *now = state;
    store.write_atomic(name, text)
}

fn to_json_bytes(json: &Value) -> Vec<u8> {
    format!("{json:#}\n").into_bytes()
}

/// Seconds of a sidecar, which may have been written by anyone.
fn span_of_seconds(seconds: &Value) -> Span {
    let millis = (seconds.as_f64().unwrap_or(0.0) * 1e3).clamp(-MAX_MILLIS, MAX_MILLIS);
    #[allow(clippy::cast_possible_truncation, reason = "within the limits of MAX_MILLIS")]
    Span::from_millis(millis as i64)
}

fn round_to_millis(span: Span) -> f64 {
    (span.as_secs_f64() * 1e3).round() / 1e3
}

fn round_to_hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Identifies sidecars of this program.
const WRITER: &str = "aulos";

/// Maximum number of gaps in a sidecar; a disk that is too slow causes one after the other.
const MAX_GAPS: usize = 10_000;

/// Maximum number of clock changes in a sidecar; more are added to the last one.
const MAX_CLOCK_CHANGES: usize = 1_000;

/// By how many seconds the wall clock was set after the end of the file.
const CLOCK_SET_LATER: &str = "clock_set_later_s";

/// 290 years; nanoseconds have 64 bits.
const MAX_MILLIS: f64 = 9.2e12;

/// Maximum size of a sidecar that is read.
pub(crate) const MAX_SIDECAR: u64 = 4 << 20;
