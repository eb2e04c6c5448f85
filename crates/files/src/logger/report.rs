//! What a log has of a range of time: the text beside an export, and its JSON.

use std::fmt::Write as _;

use aulos_engine::recorder::UnixTime;
use serde_json::{Value, json};

use super::catalog::LoggerCatalog;
use super::coverage::FoundRange;
use super::gap::LogGap;
use super::holds::Hold;
use super::local_time::{LocalTimeError, local_text};

/// The files and gaps of a range of time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogReport {
    /// The recorder.
    pub station: String,
    /// The range; its end is not included.
    pub range: (UnixTime, UnixTime),
    /// From the first frame of the log to behind the last frame of its last complete file.
    pub log: (UnixTime, UnixTime),
    /// What was found, each with the SHA-256 of its file.
    pub files: Vec<(FoundRange, String)>,
    /// What is missing.
    pub gaps: Vec<LogGap>,
    /// Files and gaps that [`truncate`](Self::truncate) has removed.
    pub left_out: usize,
}

impl LogReport {
    /// The report of a range of time.
    #[must_use]
    pub fn new(catalog: &LoggerCatalog, range: (UnixTime, UnixTime)) -> Self {
        let hash = |name: &str| catalog.file(name).map_or("", |file| &file.sha256).to_owned();
        let files = catalog.find(range.0, range.1).into_iter();
        Self {
            station: catalog.station().to_owned(),
            range,
            log: catalog.range(),
            files: files.map(|found| (found.clone(), hash(&found.file))).collect(),
            gaps: catalog.gaps(range.0, range.1),
            left_out: 0,
        }
    }

    /// Keeps at most `most` files and as many gaps.
    pub fn truncate(&mut self, most: usize) {
        let count = self.files.len() + self.gaps.len();
        self.files.truncate(most);
        self.gaps.truncate(most);
        self.left_out += count - self.files.len() - self.gaps.len();
    }

    /// Lines of text, with times in `zone`; without one, in that of the system.
    ///
    /// # Errors
    /// [`LocalTimeError::UnknownZone`].
    pub fn text(&self, zone: Option<&str>) -> Result<String, LocalTimeError> {
        let time = |at| local_text(at, zone);
        let (from, to) = (time(self.range.0)?, time(self.range.1)?);
        let mut text = format!("station {}\nrange {from} to {to}\n", self.station);
        for (found, sha256) in &self.files {
            let FoundRange { file, frames, position, .. } = found;
            let at = time(found.from)?;
            let (frames, position) = (frames.0, position.0);
            let _ = writeln!(
                text,
                "file {file} frames {frames} from {position} at {at} sha256 {sha256}"
            );
        }
        for gap in &self.gaps {
            let silence = if gap.is_silence { ", silent in the file" } else { "" };
            let (from, to) = (time(gap.from)?, time(gap.to)?);
            let _ = writeln!(text, "gap {from} to {to}: {}{silence}", gap.cause);
        }
        Ok(text)
    }

    /// An object with `station`, `from`, `to`, `log`, `files`, `gaps` and `left_out`. Times are
    /// texts in `zone`, and Unix time in nanoseconds where a name ends with `_ns`.
    ///
    /// # Errors
    /// [`LocalTimeError::UnknownZone`].
    pub fn json(&self, zone: Option<&str>) -> Result<Value, LocalTimeError> {
        let time = |at| local_text(at, zone);
        let files = self.files.iter().map(|(found, sha256)| {
            Ok(json!({
                "file": found.file, "position": found.position.0, "frames": found.frames.0,
                "rate": found.rate.hz(), "from": time(found.from)?,
                "from_ns": found.from.as_nanos(), "sha256": sha256,
            }))
        });
        let gaps = self.gaps.iter().map(|gap| {
            Ok(json!({
                "from": time(gap.from)?, "to": time(gap.to)?, "from_ns": gap.from.as_nanos(),
                "to_ns": gap.to.as_nanos(), "cause": gap.cause.to_string(),
                "silence": gap.is_silence,
            }))
        });
        Ok(json!({
            "station": self.station,
            "from": time(self.range.0)?,
            "to": time(self.range.1)?,
            "log": { "from": time(self.log.0)?, "to": time(self.log.1)? },
            "files": files.collect::<Result<Vec<_>, _>>()?,
            "gaps": gaps.collect::<Result<Vec<_>, _>>()?,
            "left_out": self.left_out,
        }))
    }
}

impl Hold {
    /// An object with `hold`, `from`, `to`, `why` and `until`, with times in `zone`.
    ///
    /// # Errors
    /// [`LocalTimeError::UnknownZone`].
    pub fn json(&self, zone: Option<&str>) -> Result<Value, LocalTimeError> {
        let until = self.until.map(|until| local_text(until, zone)).transpose()?;
        let (from, to) = (local_text(self.from, zone)?, local_text(self.to, zone)?);
        Ok(json!({ "hold": self.id, "from": from, "to": to, "why": self.why, "until": until }))
    }
}
