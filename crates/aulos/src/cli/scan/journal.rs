//! The journal of `--resume`: measured files, so that the next run can skip them.
//!
//! A line is written per measured file, and read back only if file and options are unchanged. An
//! incomplete line of a killed run is skipped. Failed files are not written, so that they are tried
//! again.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use aulos_core::{ChannelLayout, Db, Lufs, SampleRate};
use aulos_dsp::meter::{Measurement, RangeHop};
use aulos_files::scan::{AudioProperties, LoudnessCurve, LoudnessSummary, ScanOptions, ScanReport};
use serde_json::{Value, json};

use super::warnings;

#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    known: HashMap<String, Value>,
    options: Value,
    keep: bool,
    /// Whether files are tagged after they have been noted.
    tags_follow: bool,
}

impl Journal {
    /// Whether a file that starts with these bytes is a journal.
    pub(super) fn is_one(start: &[u8]) -> bool {
        let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
        line.starts_with(b"{\"") && line.windows(MARK.len()).any(|part| part == MARK)
    }

    /// Opens or creates the file. A file that is no journal is emptied.
    pub(super) fn open(path: &Path, options: &ScanOptions, tags_follow: bool) -> io::Result<Self> {
        let mut start = Vec::new();
        if path.is_file() {
            File::open(path)?.take(MARK_WITHIN).read_to_end(&mut start)?;
        }
        if !start.is_empty() && !Self::is_one(&start) {
            OpenOptions::new().write(true).truncate(true).open(path)?;
        }
        let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let hop = matches!(options.range_hop, RangeHop::Tenth);
        let marks = json!([VERSION, options.true_peak, options.dual_mono, hop]);
        let mut new = Self {
            file,
            known: HashMap::new(),
            options: marks,
            keep: options.keep_measurement,
            tags_follow,
        };
        new.read()?;
        Ok(new)
    }

    fn read(&mut self) -> io::Result<()> {
        let mut ends = true;
        let mut reader = BufReader::new(&self.file);
        let mut line = Vec::new();
        loop {
            line.clear();
            if reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            ends = line.ends_with(b"\n");
            let Ok(value) = serde_json::from_slice::<Value>(&line) else { continue };
            if let (Some(path), true) = (value["path"].as_str(), value["how"] == self.options) {
                self.known.insert(path.into(), value);
            }
        }
        if !ends {
            self.file.write_all(b"\n")?;
        }
        self.file.seek(SeekFrom::End(0))?;
        Ok(())
    }

    /// The report of a measured file that has not changed.
    pub(super) fn recall(&self, path: &Path) -> Option<ScanReport> {
        let line = self.known.get(path.to_str()?)?;
        (line["id"] == identity(path)?).then_some(())?;
        let number = |key: &str| line[key].as_f64();
        let (db, lufs) = (|key| number(key).map(Db::new), |key| number(key).map(Lufs::new));
        let kept = match (self.keep, line["measurement"].as_str()) {
            (false, _) => None,
            (true, text) => Some(Box::new(Measurement::from_bytes(&bytes(text?)?).ok()?)),
        };
        let rate = u32::try_from(line["rate"].as_u64()?).ok()?;
        let layout = usize::try_from(line["channels"].as_u64()?).ok()?;
        Some(ScanReport {
            path: path.into(),
            error: None,
            shape: Some(AudioProperties {
                rate: SampleRate::new(rate).ok()?,
                layout: ChannelLayout::new(layout).ok()?,
                seconds: number("seconds")?,
            }),
            loudness: LoudnessSummary {
                integrated: lufs("integrated"),
                range: db("range"),
                max_momentary: lufs("max_momentary"),
                max_short_term: lufs("max_short_term"),
                true_peak: db("true_peak"),
                sample_peak: db("sample_peak"),
                relative_threshold: lufs("relative_threshold"),
            },
            measurement: kept,
            curve: LoudnessCurve::default(),
            warnings: warnings::from_json(&line["warnings"]),
        })
    }

    /// Writes a report.
    pub(super) fn note(&mut self, report: &ScanReport) -> io::Result<()> {
        let (None, Some(shape), Some(path)) = (report.error, report.shape, report.path.to_str())
        else {
            return Ok(());
        };
        let Some(id) = identity(&report.path) else { return Ok(()) };
        let LoudnessSummary { integrated, range, max_momentary, max_short_term, .. } =
            report.loudness;
        let LoudnessSummary { true_peak, sample_peak, relative_threshold, .. } = report.loudness;
        let (db, lufs) =
            (|value: Option<Db>| value.map(Db::get), |value: Option<Lufs>| value.map(Lufs::get));
        let line = json!({
            "path": path,
            "id": id,
            "how": self.options,
            "rate": shape.rate.hz(),
            "channels": shape.layout.channels(),
            "seconds": shape.seconds,
            "integrated": lufs(integrated),
            "range": db(range),
            "max_momentary": lufs(max_momentary),
            "max_short_term": lufs(max_short_term),
            "true_peak": db(true_peak),
            "sample_peak": db(sample_peak),
            "relative_threshold": lufs(relative_threshold),
            "warnings": warnings::to_json(&report.warnings),
            "measurement": report.measurement.as_ref().map(|kept| text(&kept.to_bytes())),
        });
        self.file.write_all(format!("{line}\n").as_bytes())?;
        if self.tags_follow {
            self.known.insert(path.into(), line);
        }
        Ok(())
    }

    /// Notes that only the tags of a file have changed, so that its measurement stays valid.
    pub(super) fn tagged(&mut self, path: &Path) -> io::Result<()> {
        let line = path.to_str().and_then(|name| self.known.remove(name));
        let (Some(mut line), Some(id)) = (line, identity(path)) else { return Ok(()) };
        line["id"] = id;
        self.file.write_all(format!("{line}\n").as_bytes())
    }
}

/// Size, times and inode. Programs set the modification time of a file back, but not the time of
/// its last change; and a file that replaces another has its own inode.
fn identity(path: &Path) -> Option<Value> {
    let it = path.metadata().ok()?;
    Some(json!([it.len(), it.mtime(), it.mtime_nsec(), it.ctime(), it.ctime_nsec(), it.ino()]))
}

fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().as_chunks::<2>().0.iter();
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// Version of the line format; lines of other versions are ignored.
const VERSION: u32 = 2;

/// What each line has near its start, in front of a path of any length.
const MARK: &[u8] = b"\"how\":[";

/// The first line has the mark within these bytes.
const MARK_WITHIN: u64 = 4 << 10;

/// Longest line: the measurement of a day of audio.
const MAX_LINE: u64 = 64 << 20;
