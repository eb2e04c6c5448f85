//! `record` of a station: recorders, their file formats and retention.

use std::path::PathBuf;
use std::time::SystemTime;

use aulos_core::{SampleFormat, Span};
use aulos_engine::recorder::{
    ClockAlignment, ClockZone, DEFAULT_PRE_ROLL, MAX_PRE_ROLL, MIN_BYTES, MIN_SEGMENT,
    RecorderConfig as Keeping, Rotation,
};
use aulos_files::record::format::{self, FileFormat, FileMetadata, WavEncoding};
use aulos_files::record::{
    DEFAULT_PATTERN, Durability, FileNamePattern, MAX_RECORDER_NAME_BYTES, MIN_SYNC_INTERVAL,
    RetentionRules, SyncPolicy,
};

use super::env::Environment;
use super::limits::MAX_RECORDERS;
use super::model::Config;
use super::problem::{ConfigLocation, ConfigValue, Problems, did_you_mean};
use super::read::{TableReader, report_missing};
use super::resolve::{self, Station};
use super::tree::{Node, Value};
use super::units::{bytes_key, span_key};
use super::upload::{self, UploadConfig, UploadTarget};

/// One table of `record` as written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordConfig {
    /// Location of the table.
    pub at: ConfigLocation,
    /// The recorder's name; by default the station's, followed by that of the source.
    pub name: Option<ConfigValue<String>>,
    /// The recorded source; by default the station's output.
    pub source: Option<ConfigValue<String>>,
    /// The folder; required.
    pub dir: Option<ConfigValue<String>>,
    /// The pattern of file names.
    pub file: Option<ConfigValue<String>>,
    /// `wav`, `flac` or `opus`.
    pub format: Option<ConfigValue<String>>,
    /// Bits per sample, for formats that have them.
    pub bits: Option<ConfigValue<u32>>,
    /// Bit rate in kbit/s, for formats that have one.
    pub kbps: Option<ConfigValue<u32>>,
    /// Length of a file after which a new one begins.
    pub rotate: Option<ConfigValue<Span>>,
    /// Size of a file in bytes after which a new one begins.
    pub rotate_size: Option<ConfigValue<u64>>,
    /// Whether `rotate` follows the wall clock.
    pub align: bool,
    /// `utc` or `local`.
    pub time: Option<ConfigValue<String>>,
    /// How far back in time a recording can begin.
    pub pre_roll: Option<ConfigValue<Span>>,
    /// Whether recording starts at once.
    pub start: Option<bool>,
    /// Retention: age of the oldest file.
    pub keep_for: Option<ConfigValue<Span>>,
    /// Retention: number of files.
    pub keep_files: Option<ConfigValue<u32>>,
    /// Retention: total size in bytes.
    pub keep_size: Option<ConfigValue<u64>>,
    /// Free space in bytes to leave on the disk.
    pub keep_free: Option<ConfigValue<u64>>,
    /// Interval of syncs to disk; none leaves them to the system.
    pub sync: Option<ConfigValue<Option<Span>>>,
    /// Where complete files are uploaded.
    pub upload: Option<UploadConfig>,
}

/// A recorder of a station.
#[derive(Clone, Debug, PartialEq)]
pub struct RecorderSettings {
    /// Its name, unique in the server.
    pub name: String,
    /// The index of the recorded source; none is the station's output.
    pub source: Option<usize>,
    /// The folder.
    pub dir: PathBuf,
    /// The pattern of file names.
    pub pattern: FileNamePattern,
    /// The file format.
    pub format: FileFormat,
    /// Pre-roll and rotation.
    pub keeping: Keeping,
    /// When files are deleted.
    pub retention: RetentionRules,
    /// When files are synced to disk.
    pub durability: Durability,
    /// Whether recording starts at once.
    pub start: bool,
    /// Where complete files are uploaded.
    pub upload: Option<UploadTarget>,
}

impl RecorderSettings {
    /// Whether a running recorder can continue as `other`: only the rules for its files differ.
    #[must_use]
    pub fn is_continued_by(&self, other: &Self) -> bool {
        let keeping = Keeping { rotation: other.keeping.rotation, ..self.keeping };
        let rules =
            Self { keeping, retention: other.retention, start: other.start, ..self.clone() };
        rules == *other
    }
}

/// Reads `record` of a station: a table, or a list of them.
pub(super) fn read(table: &mut TableReader<'_>, problems: &Problems) -> Vec<RecordConfig> {
    match table.node("record") {
        None => Vec::new(),
        Some(Node { value: Value::List(items), .. }) => {
            items.iter().map(|node| read_one(node, problems)).collect()
        }
        Some(node) => vec![read_one(node, problems)],
    }
}

fn read_one(node: &Node, problems: &Problems) -> RecordConfig {
    let mut table = TableReader::new(node, "`record`", problems);
    let record = RecordConfig {
        at: node.at,
        name: table.text("name"),
        source: table.text("source"),
        dir: table.text("dir"),
        file: table.text("file"),
        format: table.text("format"),
        bits: table.number("bits", "bits", 16..=32),
        kbps: table.number("kbps", "kbit/s", 6..=510),
        rotate: span_key(&mut table, "rotate", problems),
        rotate_size: bytes_key(&mut table, "rotate_size", problems),
        align: table.flag("align").unwrap_or(false),
        time: table.text("time"),
        pre_roll: span_key(&mut table, "pre_roll", problems),
        start: table.flag("start"),
        keep_for: span_key(&mut table, "keep_for", problems),
        keep_files: table.number("keep_files", "files", 1..=u32::MAX),
        keep_size: bytes_key(&mut table, "keep_size", problems),
        keep_free: bytes_key(&mut table, "keep_free", problems),
        sync: read_sync(&mut table, problems),
        upload: table.node("upload").map(|node| upload::read(node, problems)),
    };
    table.finish();
    if record.dir.is_none() && node.get("dir").is_none() {
        report_missing(problems, node.at, "dir", "`record`", "record = { dir = \"/srv/rec\" }");
    }
    record
}

fn read_sync(
    table: &mut TableReader<'_>,
    problems: &Problems,
) -> Option<ConfigValue<Option<Span>>> {
    if let Some(Node { value: Value::Text(text), at, .. }) = table.node("sync")
        && text == "never"
    {
        return Some(ConfigValue { value: None, at: *at });
    }
    span_key(table, "sync", problems)
        .map(|ConfigValue { value, at }| ConfigValue { value: Some(value), at })
}

/// Validates the recorders of every station.
pub(super) fn complete(
    config: &Config,
    all: &mut [Station],
    env: &Environment,
    problems: &Problems,
) {
    let mut seen: Vec<String> = Vec::new();
    for (config, station) in config.stations.iter().zip(all) {
        if let Some(record) = config.record.get(MAX_RECORDERS) {
            let message = format!("a station has at most {MAX_RECORDERS} tables of `record`");
            problems.add(record.at, message);
        }
        for entry in &config.record {
            let Some(record) = resolve(entry, station, env, problems) else { continue };
            if seen.contains(&record.name) {
                let message = format!("two recorders are called `{}`", record.name);
                problems.add_with_hint(entry.at, message, "give one of them another `name`");
            }
            seen.push(record.name.clone());
            station.records.push(record);
        }
    }
}

/// Validates one recorder; none when that is impossible.
pub(super) fn resolve(
    config: &RecordConfig,
    station: &Station,
    env: &Environment,
    problems: &Problems,
) -> Option<RecorderSettings> {
    let source = config.source.as_ref().map(|name| source(name, station, problems));
    let name = match (&config.name, &config.source) {
        (Some(name), _) => name.clone(),
        (None, Some(source)) => {
            ConfigValue::default_value(format!("{}-{}", station.name, source.value))
        }
        (None, None) => ConfigValue::default_value(station.name.clone()),
    };
    if name.value.is_empty() || name.value.len() > MAX_RECORDER_NAME_BYTES {
        let message = format!("`name` of a recorder has 1 to {MAX_RECORDER_NAME_BYTES} bytes");
        let at = if config.name.is_some() { name.at } else { config.at };
        problems.add_with_hint(at, message, "record = { name = \"hall\", dir = \"/srv/rec\" }");
    }
    let zone = zone(config, problems);
    // Every key is checked before the first `?`, so that all problems are reported.
    let dir = config.dir.as_ref().map(|dir| resolve::absolute_path("dir", dir, problems));
    let pattern = pattern(config, zone, problems);
    let format = file_format(config, station, problems);
    let keeping = Keeping {
        pre_roll: pre_roll(config, problems),
        rotation: rotation(config, zone, problems),
    };
    let durability = Durability { sync: sync(config, problems), ..Durability::default() };
    let upload = config.upload.as_ref();
    let upload = upload.and_then(|it| upload::resolve(it, &station.name, env, problems));
    Some(RecorderSettings {
        name: name.value,
        source: source.flatten(),
        dir: dir?,
        pattern: pattern?,
        format,
        keeping,
        retention: RetentionRules {
            max_age: config.keep_for.map(|at| at.value),
            max_files: config.keep_files.map(|at| u64::from(at.value)),
            max_bytes: config.keep_size.map(|at| at.value),
            keep_free: config.keep_free.map_or(DEFAULT_KEEP_FREE, |at| at.value),
        },
        durability,
        start: config.start.unwrap_or(true),
        upload,
    })
}

fn source(name: &ConfigValue<String>, station: &Station, problems: &Problems) -> Option<usize> {
    let names: Vec<&str> = station.sources.iter().map(|source| source.name.as_str()).collect();
    let found = names.iter().position(|other| *other == name.value);
    if found.is_none() {
        let message = format!("station `{}` has no source `{}`", station.name, name.value);
        let hint = match did_you_mean(&name.value, &names) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("there is {}", names.join(", ")),
        };
        problems.add_with_hint(name.at, message, hint);
    }
    found
}

fn zone(config: &RecordConfig, problems: &Problems) -> ClockZone {
    match config.time.as_ref().map(|time| (time.value.as_str(), time.at)) {
        None | Some(("utc", _)) => ClockZone::Utc,
        Some(("local", _)) => ClockZone::Local,
        Some((other, at)) => {
            problems.add_with_hint(
                at,
                format!("`time` is \"{other}\""),
                "time = \"utc\" or \"local\"",
            );
            ClockZone::Utc
        }
    }
}

fn pattern(config: &RecordConfig, zone: ClockZone, problems: &Problems) -> Option<FileNamePattern> {
    let local = ConfigValue::default_value(LOCAL_PATTERN.to_owned());
    let usual = ConfigValue::default_value(DEFAULT_PATTERN.to_owned());
    let usual = if zone == ClockZone::Local { local } else { usual };
    let file = config.file.as_ref().unwrap_or(&usual);
    match FileNamePattern::new(&file.value, zone) {
        Ok(pattern) => Some(pattern),
        Err(why) => {
            problems.add_with_hint(file.at, format!("`file`: {why}"), FILE_EXAMPLE);
            None
        }
    }
}

fn rotation(config: &RecordConfig, zone: ClockZone, problems: &Problems) -> Rotation {
    if let Some(size) = config.rotate_size.filter(|size| size.value < MIN_BYTES) {
        problems.add(size.at, format!("`rotate_size` is at least {} KiB", MIN_BYTES >> 10));
    }
    match config.rotate {
        Some(rotate) if !config.align && rotate.value < MIN_SEGMENT => {
            problems.add(rotate.at, "`rotate` is a second or more");
        }
        None if config.align => {
            problems.add_with_hint(
                config.at,
                "`align` is how `rotate` is meant",
                "add rotate = \"1h\"",
            );
        }
        _ => {}
    }
    let (every, size) = (config.rotate.map(|at| at.value), config.rotate_size.map(|at| at.value));
    rotation_for(every, config.align, size, zone).unwrap_or_else(|| {
        let message = "`rotate` by the clock is a minute or more, a whole number of times a day";
        let at = config.rotate.map_or(config.at, |rotate| rotate.at);
        problems.add_with_hint(at, message, "rotate = \"15min\", \"1h\" or \"1d\", or no `align`");
        Rotation::default()
    })
}

/// The rotation by length (by the clock with `align`) and by size; none if the clock cannot be
/// divided like this.
pub fn rotation_for(
    every: Option<Span>,
    align: bool,
    bytes: Option<u64>,
    zone: ClockZone,
) -> Option<Rotation> {
    Some(match every {
        Some(every) if align => {
            Rotation { bytes, clock: Some(ClockAlignment::new(every, zone)?), duration: None }
        }
        duration => Rotation { bytes, duration, clock: None },
    })
}

/// The file format; by default with the bits per sample of the station.
fn file_format(config: &RecordConfig, station: &Station, problems: &Problems) -> FileFormat {
    let (name, at) = match &config.format {
        Some(format) => (format.value.as_str(), format.at),
        None => ("flac", config.at),
    };
    let own = match station.spec.format {
        SampleFormat::S16Le => 16,
        SampleFormat::F32 => 32,
        _ => 24,
    };
    let (bits, kbps) = (config.bits.map(|at| at.value), config.kbps.map(|at| at.value));
    let format = match file_format_by_name(name, bits, own, kbps) {
        Ok(format) => format,
        Err(why) => {
            let at = config.bits.map_or(at, |bits| bits.at);
            match why {
                FormatError::Bits(bits, hint) => {
                    let message = format!("`bits` is {bits}, which {name} does not have");
                    problems.add_with_hint(at, message, hint);
                }
                FormatError::Name => {
                    let hint = match did_you_mean(name, &FORMATS) {
                        Some(meant) => format!("did you mean `{meant}`?"),
                        None => format!("use {}", FORMATS.join(", ")),
                    };
                    let message = format!("`format` is \"{name}\", which is not made here");
                    problems.add_with_hint(at, message, hint);
                }
            }
            return FileFormat::Flac { bits: 16 };
        }
    };
    let (rate, layout) = (station.spec.rate, station.spec.layout);
    let metadata = FileMetadata::new(rate, layout, &station.name, SystemTime::UNIX_EPOCH);
    if let Err(why) = format::make_file_encoder(format, &metadata, &mut Vec::new()) {
        problems.add(at, format!("`format`: {why}"));
    }
    format
}

/// Why a file format does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// Unknown format.
    Name,
    /// Not available with this number of bits; and what to write instead.
    Bits(u32, &'static str),
}

/// The format of this name with this number of bits, or by default as close as possible to `usual`.
///
/// # Errors
/// An unknown name, or a bit depth that the format does not have.
pub fn file_format_by_name(
    name: &str,
    bits: Option<u32>,
    usual: u32,
    kbps: Option<u32>,
) -> Result<FileFormat, FormatError> {
    match (name, bits) {
        ("wav", bits) => match bits.unwrap_or(usual) {
            16 => Ok(FileFormat::Wav(WavEncoding::S16)),
            24 => Ok(FileFormat::Wav(WavEncoding::S24)),
            32 => Ok(FileFormat::Wav(WavEncoding::F32)),
            other => Err(FormatError::Bits(other, "bits = 16, 24 or 32, which is floating point")),
        },
        ("flac", None) => Ok(FileFormat::Flac { bits: if usual == 16 { 16 } else { 24 } }),
        ("flac", Some(16)) => Ok(FileFormat::Flac { bits: 16 }),
        ("flac", Some(24)) => Ok(FileFormat::Flac { bits: 24 }),
        ("flac", Some(other)) => Err(FormatError::Bits(other, "bits = 16 or 24")),
        ("opus", None) => {
            Ok(FileFormat::Opus { bits_per_second: kbps.unwrap_or(DEFAULT_KBPS) * 1_000 })
        }
        ("opus", Some(other)) => Err(FormatError::Bits(other, "kbps = 96 says how good Opus is")),
        _ => Err(FormatError::Name),
    }
}

fn pre_roll(config: &RecordConfig, problems: &Problems) -> Span {
    let Some(pre_roll) = config.pre_roll else { return DEFAULT_PRE_ROLL };
    if pre_roll.value > MAX_PRE_ROLL {
        let most = MAX_PRE_ROLL.as_millis() / 60_000;
        problems.add(
            pre_roll.at,
            format!("`pre_roll` is at most {most} minutes: it is kept in memory"),
        );
    }
    pre_roll.value
}

fn sync(config: &RecordConfig, problems: &Problems) -> SyncPolicy {
    match config.sync {
        None => Durability::default().sync,
        Some(ConfigValue { value: None, .. }) => SyncPolicy::Never,
        Some(ConfigValue { value: Some(span), at }) => {
            if span < MIN_SYNC_INTERVAL {
                let least = MIN_SYNC_INTERVAL.as_millis();
                problems.add_with_hint(at, format!("`sync` is {least}ms or more"), "or \"never\"");
            }
            SyncPolicy::Every(span)
        }
    }
}

/// The default of `file` in local time: without the `Z` of UTC.
const LOCAL_PATTERN: &str = "{name}-%Y-%m-%dT%H%M%S";

const FILE_EXAMPLE: &str = "as in file = \"%Y-%m-%d/{name}-%H%M%S\"";

/// Default free space: a full disk affects more than the recorder.
const DEFAULT_KEEP_FREE: u64 = 256 << 20;

const FORMATS: [&str; 3] = ["wav", "flac", "opus"];

/// Default bit rate of Opus in kbit/s: transparent for two channels.
const DEFAULT_KBPS: u32 = 160;
