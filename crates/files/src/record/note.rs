//! The sidecar: what a file is, in JSON beside it. It stands there before its file is complete, so
//! that who repairs one after a crash knows whose it is and when it began; and it is how a recorder
//! knows the files that it may delete.

use std::path::Path;

use aulos_core::{ChannelLayout, Frames, MediaTime, SampleRate};
use aulos_engine::recorder::{SegmentEnd, SegmentStart, SilenceReason, UnixTime};
use ring::digest::{Context, SHA256};
use serde_json::{Value, json};

use super::marker::{MAX_MARKERS, Marker, is_label};
use super::name::rfc3339;
use super::report::{Closed, Measured};

/// What is known of a segment.
#[derive(Clone, Debug)]
pub(super) struct Note {
    pub(super) recorder: String,
    pub(super) opening: SegmentStart,
    pub(super) layout: ChannelLayout,
    pub(super) gaps: Vec<Gap>,
    /// In the order of their positions.
    pub(super) markers: Vec<Marker>,
    pub(super) lost: Frames,
    pub(super) loudness: Measured,
}

/// Where a segment is not what was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) at: MediaTime,
    pub(super) frames: Frames,
    /// Why there is silence; none is that the frames are left out.
    pub(super) silence: Option<SilenceReason>,
}

impl Note {
    /// Remembers a gap, joined to the last one where it can be.
    pub(super) fn gap(&mut self, gap: Gap) {
        match self.gaps.last_mut() {
            Some(last) if last.silence == gap.silence && last.at + last.frames == gap.at => {
                last.frames += gap.frames;
            }
            _ => {
                if self.gaps.len() < MAX_GAPS {
                    self.gaps.push(gap);
                }
            }
        }
    }

    /// Remembers a marker; false where there are as many as there can be.
    pub(super) fn mark(&mut self, marker: &Marker) -> bool {
        if self.markers.len() >= MAX_MARKERS {
            return false;
        }
        let at = self.markers.partition_point(|other| other.position <= marker.position);
        self.markers.insert(at, marker.clone());
        true
    }

    /// The sidecar of a file that is being written.
    pub(super) fn begun(&self, file: &str) -> Vec<u8> {
        let mut note = self.head(file);
        note["state"] = json!("recording");
        text(&note)
    }

    /// The sidecar of a complete file.
    pub(super) fn closed(&self, file: &str, closed: &Closed) -> Vec<u8> {
        let mut note = self.head(file);
        note["state"] = json!("closed");
        note["end_frame"] = json!(closed.end.0);
        note["frames"] = json!(closed.frames.0);
        note["lost_frames"] = json!(closed.lost.0);
        note["gaps"] = self.gaps.iter().map(Gap::json).collect();
        note["ended_by"] = json!(format!("{:?}", closed.cause).to_lowercase());
        let Measured { integrated, range, true_peak, max_momentary, max_short_term } =
            self.loudness;
        note["loudness"] = json!({
            "integrated_lufs": integrated.map(|value| round(value.get())),
            "range_lu": range.map(|value| round(value.get())),
            "true_peak_dbtp": true_peak.map(|value| round(value.get())),
            "max_momentary_lufs": max_momentary.map(|value| round(value.get())),
            "max_short_term_lufs": max_short_term.map(|value| round(value.get())),
        });
        note["bytes"] = json!(closed.bytes);
        note["sha256"] = json!(closed.sha256);
        text(&note)
    }

    /// The report of a complete file.
    pub(super) fn report(
        &self,
        path: &Path,
        closing: SegmentEnd,
        bytes: u64,
        sha256: String,
    ) -> Closed {
        Closed {
            path: path.to_owned(),
            number: self.opening.number,
            start: self.opening.at,
            end: closing.end,
            utc: self.opening.utc,
            frames: closing.frames,
            rate: self.opening.rate,
            layout: self.layout,
            bytes,
            lost: self.lost,
            cause: closing.cause,
            loudness: self.loudness,
            sha256,
        }
    }

    fn head(&self, file: &str) -> Value {
        let file = file.rsplit('/').next().unwrap_or(file);
        json!({
            "written_by": WRITER,
            "recorder": self.recorder,
            "file": file,
            "segment": self.opening.number,
            "start_frame": self.opening.at.0,
            "start_utc": rfc3339(self.opening.utc),
            "start_unix_ns": self.opening.utc.as_nanos(),
            "rate": self.opening.rate.hz(),
            "channels": self.layout.channels(),
            "markers": self.markers.iter().map(marker_json).collect::<Value>(),
        })
    }
}

impl Gap {
    fn json(&self) -> Value {
        let kind = match self.silence {
            None => "left out",
            Some(SilenceReason::Lost) => "lost",
            Some(SilenceReason::Paused) => "paused",
        };
        json!({ "at_frame": self.at.0, "frames": self.frames.0, "kind": kind })
    }
}

fn marker_json(marker: &Marker) -> Value {
    json!({
        "frame": marker.frame.0,
        "position": marker.position.0,
        "time": rfc3339(marker.utc),
        "label": marker.label,
    })
}

/// What a sidecar says to who comes later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) recorder: String,
    /// Its file is complete.
    pub(super) closed: bool,
    pub(super) start: UnixTime,
    /// When it ended, as far as that is known.
    pub(super) end: UnixTime,
    note: Value,
}

impl Known {
    /// Reads a sidecar of ours; others are nobody's business.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let note: Value = serde_json::from_slice(bytes).ok()?;
        let recorder = note.get("recorder")?.as_str()?.to_owned();
        (note.get("written_by")?.as_str()? == WRITER).then_some(())?;
        let start = note.get("start_unix_ns")?.as_i64()?;
        let closed = note.get("state")?.as_str()? != "recording";
        let frames = note.get("frames").and_then(Value::as_u64).unwrap_or(0);
        let hz = u32::try_from(note.get("rate")?.as_u64()?).ok()?;
        let length = SampleRate::new(hz).ok()?.span(Frames(frames)).as_nanos();
        let end = UnixTime::from_nanos(start.saturating_add(length));
        Some(Self { recorder, closed, start: UnixTime::from_nanos(start), end, note })
    }

    /// The markers that it names, with their positions in a file of so many frames: one that a kill
    /// has cut off with its sound is at the last frame.
    pub(super) fn markers(&self, frames: Frames) -> Vec<(u64, String)> {
        let list = self.note["markers"].as_array().map(Vec::as_slice).unwrap_or_default();
        let last = frames.0.saturating_sub(1);
        let known = list.iter().take(MAX_MARKERS).filter_map(|marker| {
            let label = marker["label"].as_str().filter(|label| is_label(label))?;
            Some((marker["position"].as_u64()?.min(last), label.to_owned()))
        });
        let mut markers: Vec<_> = known.collect();
        markers.sort_by_key(|(position, _)| *position);
        markers
    }

    /// The sidecar of the same file after it was repaired.
    pub(super) fn repaired(mut self, frames: Frames, bytes: u64, sha256: &str) -> Vec<u8> {
        let last = frames.0.saturating_sub(1);
        for marker in self.note["markers"].as_array_mut().into_iter().flatten() {
            if marker["position"].as_u64().is_some_and(|position| position > last) {
                marker["position"] = json!(last);
            }
        }
        self.note["state"] = json!("repaired");
        self.note["frames"] = json!(frames.0);
        let start = self.note["start_frame"].as_u64().unwrap_or(0);
        self.note["end_frame"] = json!(start.saturating_add(frames.0));
        self.note["bytes"] = json!(bytes);
        self.note["sha256"] = json!(sha256);
        text(&self.note)
    }

    /// For a file whose sidecar is missing.
    pub(super) fn guessed(recorder: &str, file: &str, start: UnixTime, rate: SampleRate) -> Self {
        let file = file.rsplit('/').next().unwrap_or(file);
        let note = json!({
            "written_by": WRITER, "recorder": recorder, "file": file, "start_utc": rfc3339(start),
            "start_unix_ns": start.as_nanos(), "rate": rate.hz(),
        });
        Self { recorder: recorder.to_owned(), closed: false, start, end: start, note }
    }
}

/// The sum of a file, over pieces.
pub(super) struct Sum(Context);

impl Sum {
    pub(super) fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// In hexadecimal digits, as `sha256sum` prints it.
    pub(super) fn digits(self) -> String {
        self.0.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The name of a file's sidecar.
pub(super) fn sidecar(file: &str) -> String {
    format!("{file}.json")
}

fn text(note: &Value) -> Vec<u8> {
    format!("{note:#}\n").into_bytes()
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// So that a recorder knows its own.
const WRITER: &str = "aulos";

/// Gaps that a sidecar lists; a disk that is too slow makes one after the other.
const MAX_GAPS: usize = 10_000;

/// The longest sidecar that is read.
pub(super) const MAX_SIDECAR: u64 = 4 << 20;
