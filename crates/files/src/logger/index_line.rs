//! One line of the index, and its hash.

use aulos_core::{Frames, SampleRate, Span};
use aulos_engine::recorder::UnixTime;
use serde_json::{Value, json};

use crate::record::{FileDigest, ParsedSidecar};

/// A closed file of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoggedFile {
    /// Its path in the folder.
    pub file: String,
    /// The recorder, which is named after its station unless configured otherwise.
    pub station: String,
    /// Time of its first frame.
    pub t0: UnixTime,
    /// Its length.
    pub frames: Frames,
    /// Frames per second.
    pub rate: SampleRate,
    /// The station's frame at its start.
    pub first_frame: u64,
    /// Files with the same number are one timeline: each begins at the frame at which the one
    /// before it ends.
    pub epoch: u64,
    /// Lost frames, which are silent or left out.
    pub lost: Frames,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of its contents, in hexadecimal digits.
    pub sha256: String,
}

/// What a line records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum IndexEntry {
    /// A file was closed.
    Closed(LoggedFile),
    /// Retention has deleted a file.
    Deleted { file: String, reason: String, at: UnixTime },
}

/// A line that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IndexLine {
    pub(super) seq: u64,
    pub(super) entry: IndexEntry,
    pub(super) prev: String,
    pub(super) hash: String,
    /// The hash fits the text of the line.
    pub(super) is_intact: bool,
}

impl LoggedFile {
    /// The time behind its last frame, if no frames were left out and no clock was set.
    #[must_use]
    pub fn end(&self) -> UnixTime {
        later(self.t0, self.rate.span(self.frames))
    }

    /// The file of a sidecar, in the epoch of `last`, if it continues that file.
    pub(super) fn from_sidecar(
        file: &str,
        sidecar: &ParsedSidecar,
        last: Option<&(u64, Self)>,
    ) -> Option<(u64, Self)> {
        let json = sidecar.json();
        let number = |key: &str| json[key].as_u64();
        let first_frame = number("start_frame").unwrap_or(0);
        let segment = number("segment").unwrap_or(0);
        let mut logged = Self {
            file: file.to_owned(),
            station: sidecar.recorder.clone(),
            t0: sidecar.start,
            frames: Frames(number("frames")?),
            rate: SampleRate::new(u32::try_from(number("rate")?).ok()?).ok()?,
            first_frame,
            epoch: 0,
            lost: Frames(number("lost_frames").unwrap_or(0)),
            bytes: number("bytes")?,
            sha256: json["sha256"].as_str()?.to_owned(),
        };
        // The number of the segment begins anew with each run of the program.
        logged.epoch = match last {
            Some((before, last))
                if segment == before + 1
                    && first_frame == last.first_frame.saturating_add(last.frames.0)
                    && logged.rate == last.rate =>
            {
                last.epoch
            }
            Some((_, last)) => last.epoch + 1,
            None => 0,
        };
        Some((segment, logged))
    }

    /// Whether this file continues `last`, which ended at `end`, in time and frames.
    pub(super) fn continues(&self, last: &Self, end: i64) -> bool {
        let step = self.t0.as_nanos().saturating_sub(end);
        self.rate == last.rate
            && self.first_frame == last.first_frame.saturating_add(last.frames.0)
            && step.unsigned_abs() <= MAX_JOIN_NANOS
    }
}

impl IndexEntry {
    /// The whole line, with its newline, and its hash.
    pub(super) fn line(&self, seq: u64, prev: &str) -> (String, String) {
        let text = |text: &str| json!(text).to_string();
        let fields = match self {
            Self::Closed(it) => format!(
                r#""file":{},"station":{},"t0_ns":{},"frames":{},"rate":{},"first_frame":{},"epoch":{},"lost":{},"bytes":{},"sha256":{}"#,
                text(&it.file),
                text(&it.station),
                it.t0.as_nanos(),
                it.frames.0,
                it.rate.hz(),
                it.first_frame,
                it.epoch,
                it.lost.0,
                it.bytes,
                text(&it.sha256),
            ),
            Self::Deleted { file, reason, at } => format!(
                r#""deleted":{},"reason":{},"at_ns":{}"#,
                text(file),
                text(reason),
                at.as_nanos()
            ),
        };
        let hashed = format!(r#"{{"seq":{seq},{fields},"prev":"{prev}""#);
        let hash = digest(&hashed);
        (format!("{hashed}{HASH_KEY}{hash}\"}}\n"), hash)
    }
}

impl IndexLine {
    /// Parses a line without its newline; `None` if it is not one.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let json: Value = serde_json::from_str(line).ok()?;
        let number = |key: &str| json[key].as_u64();
        let text = |key: &str| json[key].as_str().map(str::to_owned);
        let entry = match text("deleted") {
            Some(file) => IndexEntry::Deleted {
                file,
                reason: text("reason")?,
                at: UnixTime::from_nanos(json["at_ns"].as_i64()?),
            },
            None => IndexEntry::Closed(LoggedFile {
                file: text("file")?,
                station: text("station")?,
                t0: UnixTime::from_nanos(json["t0_ns"].as_i64()?),
                frames: Frames(number("frames").filter(|frames| *frames < MAX_FRAMES)?),
                rate: SampleRate::new(u32::try_from(number("rate")?).ok()?).ok()?,
                first_frame: number("first_frame")?,
                epoch: number("epoch")?,
                lost: Frames(number("lost")?),
                bytes: number("bytes")?,
                sha256: text("sha256")?,
            }),
        };
        let (hashed, _) = line.rsplit_once(HASH_KEY)?;
        let hash = text("hash")?;
        let is_intact = digest(hashed) == hash;
        Some(Self { seq: number("seq")?, entry, prev: text("prev")?, hash, is_intact })
    }
}

/// SHA-256 of a text, in hexadecimal digits.
fn digest(text: &str) -> String {
    let mut digest = FileDigest::new();
    digest.update(text.as_bytes());
    digest.hex()
}

/// `at`, and `span` later.
pub(super) const fn later(at: UnixTime, span: Span) -> UnixTime {
    UnixTime::from_nanos(at.as_nanos().saturating_add(span.as_nanos()))
}

/// What separates the hash from the text of which it is the hash.
const HASH_KEY: &str = ",\"hash\":\"";

/// The hash before the first line.
pub(super) const FIRST_PREV: &str =
    "0000000000000000000000000000000000000000000000000000000000000000";

/// Two files are joined although the clock was corrected by this much between them.
const MAX_JOIN_NANOS: u64 = 1_000_000_000;

/// 190 years at 48 kHz, so that sums of a few do not overflow.
const MAX_FRAMES: u64 = 1 << 48;
