//! `record` of a station: recorders, their file formats and retention.

use std::time::SystemTime;

use aulos_core::{SampleFormat, Span};
use aulos_engine::recorder::{
    ClockAlignment, ClockZone, DEFAULT_PRE_ROLL, MAX_PRE_ROLL, MIN_BYTES, MIN_SEGMENT,
    RecorderConfig, Rotation,
};
use aulos_files::record::format::{
    self, FILE_FORMATS, FileFormat, FileFormatInfo, FileMetadata, FormatSettings,
};
use aulos_files::record::{
    DEFAULT_PATTERN, Durability, FileNamePattern, MAX_RECORDER_NAME_BYTES, MIN_SYNC_INTERVAL,
    RecordingConfig, RetentionRules, SyncPolicy,
};

use crate::env::Environment;
use crate::keys::values::{is_word, quoted};
use crate::keys::{ConfigRead, NamedEnum, ReadContext, ValueKind, hint_for, keys};
use crate::limits::{KEEP_FILES, MAX_RECORDERS, RECORD_BITS, RECORD_KBPS};
use crate::names::{absolute_path, report_duplicate};
use crate::problem::{ConfigLocation, ConfigValue, Problems};
use crate::station::output::StationOutput;
use crate::station::upload::{self, UploadConfig, UploadTarget};
use crate::tree::Node;

keys! {
    /// A recorder. One recorder is a table, several are a list of tables.
    pub(crate) struct RecordConfig {
        /// Name, unique in the server.
        name: Option<ConfigValue<String>>, default_doc "the station's; with `source`, `STATION-SOURCE`";
        /// Source that is recorded, before the switch, its gain and its normalizer.
        source: Option<ConfigValue<String>>, default_doc "the station's output";
        /// Directory of the files; created if it is missing.
        dir: Option<ConfigValue<String>>, required "record = { dir = \"/srv/rec\" }";
        /// Pattern of file names: codes of strftime, `{name}`, `{index}`; `/` creates directories.
        file: Option<ConfigValue<String>>, default_doc "`{name}-%Y-%m-%dT%H%M%SZ`; with local time without the `Z`";
        /// File format: `wav`, `flac`, `opus` in Ogg, `mp3`, or `m4a`, AAC in MP4.
        format: ConfigValue<String> = "flac";
        /// Bits per sample: 16 or 24, of `wav` also 32 (floating point).
        bits: Option<ConfigValue<u32>>, range RECORD_BITS, "bits", default_doc "the station's";
        /// Bit rate of `opus`, `mp3` and `m4a`; the default is transparent for two channels.
        kbps: Option<ConfigValue<u32>>, range RECORD_KBPS, "kbit/s", default_doc "160 with `opus`; that of the station's `mp3` with `mp3`, of its `aac` with `m4a`";
        /// Duration of a file, after which a new one begins.
        rotate: Option<ConfigValue<Span>>, default_doc "unlimited";
        /// Size of a file, after which a new one begins.
        rotate_size: Option<ConfigValue<u64>>, default_doc "unlimited";
        /// `rotate` follows the clock: with `1h` a file begins at every full hour.
        align: bool = false;
        /// Time zone of file names and `align`.
        time: ClockZone = ClockZone::Utc;
        /// Sound kept from before the start of a recording, up to 10 minutes.
        pre_roll: ConfigValue<Span> = DEFAULT_PRE_ROLL;
        /// Start recording at once; `false` waits for a call.
        start: bool = true;
        /// Age beyond which files are deleted.
        keep_for: Option<Span>, default_doc "unlimited";
        /// Number of files beyond which the oldest are deleted.
        keep_files: Option<u32>, range KEEP_FILES, "files", default_doc "unlimited";
        /// Total size beyond which the oldest files are deleted.
        keep_size: Option<u64>, default_doc "unlimited";
        /// Free space on the disk for which the oldest files are deleted.
        keep_free: u64 = DEFAULT_KEEP_FREE;
        /// Interval at which a file is made to survive a loss of power, or `never`.
        sync: ConfigValue<SyncPolicy> = Durability::default().sync;
        /// Uploads of complete files to S3-compatible storage.
        upload: Option<UploadConfig>;
    }
}

impl NamedEnum for ClockZone {
    fn values() -> Vec<(&'static str, Self)> {
        vec![("utc", Self::Utc), ("local", Self::Local)]
    }
}

impl ConfigRead for SyncPolicy {
    const KIND: &'static ValueKind =
        &ValueKind::AnyOf(&[&ValueKind::Duration, &ValueKind::Choice(|| vec![NO_SYNC])]);

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        if is_word(node, NO_SYNC) {
            Some(Self::Never)
        } else {
            Span::from_node(node, context).map(Self::Every)
        }
    }

    fn toml(&self) -> Option<String> {
        match self {
            Self::Never => Some(quoted(NO_SYNC)),
            Self::Every(span) => span.toml(),
        }
    }
}

/// A recorder of a station.
#[derive(Clone, Debug, PartialEq)]
pub struct RecorderSettings {
    /// The index of the recorded source; none is the station's output.
    pub source: Option<usize>,
    /// The recorder and its files; its name is unique in the server.
    pub recording: RecordingConfig,
    /// Whether recording starts at once.
    pub start: bool,
    /// Where complete files are uploaded.
    pub upload: Option<UploadTarget>,
    /// Whether it is a log, with an index and holds.
    pub is_logger: bool,
}

impl RecorderSettings {
    /// Whether a running recorder can continue as `other`: only the rules for its files differ.
    #[must_use]
    pub fn is_continued_by(&self, other: &Self) -> bool {
        let mut rules = Self { start: other.start, ..self.clone() };
        rules.recording.recorder.rotation = other.recording.recorder.rotation;
        rules.recording.retention = other.recording.retention;
        rules == *other
    }
}

/// Validates the recorders of a station. `seen` has the names of all recorders so far.
pub(crate) fn resolve(
    configs: &[RecordConfig],
    station: &StationOutput,
    seen: &mut Vec<String>,
    env: &Environment,
    problems: &Problems,
) -> Vec<RecorderSettings> {
    if let Some(record) = configs.get(MAX_RECORDERS) {
        let message = format!("a station has at most {MAX_RECORDERS} tables of `record`");
        problems.add(record.at, message);
    }
    let mut all = Vec::new();
    for config in configs {
        let Some(record) = resolve_one(config, station, env, problems) else { continue };
        let name = &record.recording.name;
        if seen.contains(name) {
            let name = ConfigValue { value: name.clone(), at: config.at };
            report_duplicate("recorder", &name, problems);
        }
        seen.push(name.clone());
        all.push(record);
    }
    all
}

/// Validates one recorder; none when that is impossible.
fn resolve_one(
    config: &RecordConfig,
    station: &StationOutput,
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
    // Every key is checked before the first `?`, so that all problems are reported.
    let dir = config.dir.as_ref().map(|dir| absolute_path("dir", dir, problems));
    let pattern = pattern(config, problems);
    let format = file_format(config, station, problems);
    let recorder = RecorderConfig {
        pre_roll: pre_roll(config, problems),
        rotation: rotation(config, problems),
        ..RecorderConfig::default()
    };
    let durability = Durability { sync: sync(config, problems), ..Durability::default() };
    let upload = config.upload.as_ref();
    let upload = upload.and_then(|it| upload::resolve(it, &station.name, env, problems));
    let recording = RecordingConfig {
        name: name.value,
        folder: dir?,
        pattern: pattern?,
        format,
        recorder,
        retention: RetentionRules {
            max_age: config.keep_for,
            max_files: config.keep_files.map(u64::from),
            max_bytes: config.keep_size,
            keep_free: config.keep_free,
        },
        durability,
        must_be_mounted: false,
        waited: None,
        keep_sidecar: true,
    };
    Some(RecorderSettings {
        source: source.flatten(),
        recording,
        start: config.start,
        upload,
        is_logger: false,
    })
}

fn source(
    name: &ConfigValue<String>,
    station: &StationOutput,
    problems: &Problems,
) -> Option<usize> {
    let found = station.sources.iter().position(|other| *other == name.value);
    if found.is_none() {
        let message = format!("station `{}` has no source `{}`", station.name, name.value);
        let names: Vec<&str> = station.sources.iter().map(String::as_str).collect();
        problems.add_with_hint(name.at, message, hint_for(&name.value, &names));
    }
    found
}

fn pattern(config: &RecordConfig, problems: &Problems) -> Option<FileNamePattern> {
    let usual = if config.time == ClockZone::Local { LOCAL_PATTERN } else { DEFAULT_PATTERN };
    let usual = ConfigValue::default_value(usual.to_owned());
    let file = config.file.as_ref().unwrap_or(&usual);
    match FileNamePattern::new(&file.value, config.time) {
        Ok(pattern) => Some(pattern),
        Err(why) => {
            problems.add_with_hint(file.at, format!("`file`: {why}"), FILE_EXAMPLE);
            None
        }
    }
}

fn rotation(config: &RecordConfig, problems: &Problems) -> Rotation {
    if let Some(size) = config.rotate_size.filter(|size| size.value < MIN_BYTES) {
        problems.add(size.at, format!("`rotate_size` must be at least {} KiB", MIN_BYTES >> 10));
    }
    match config.rotate {
        Some(rotate) if !config.align && rotate.value < MIN_SEGMENT => {
            problems.add(rotate.at, "`rotate` must be at least 1s");
        }
        None if config.align => {
            problems.add_with_hint(config.at, "`align` requires `rotate`", "add rotate = \"1h\"");
        }
        _ => {}
    }
    let (every, size) = (config.rotate.map(|at| at.value), config.rotate_size.map(|at| at.value));
    rotation_for(every, config.align, size, config.time).unwrap_or_else(|| {
        let message = "with `align`, `rotate` must be at least 1min and divide a day";
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
fn file_format(config: &RecordConfig, station: &StationOutput, problems: &Problems) -> FileFormat {
    let name = config.format.value.as_str();
    let at = match config.format.at {
        ConfigLocation::Default => config.at,
        given => given,
    };
    let own = match station.spec.format {
        SampleFormat::S16Le => 16,
        SampleFormat::F32 => 32,
        _ => 24,
    };
    let bits = config.bits.map(|bits| bits.value);
    let Some(row) = FileFormatInfo::of_name(name) else {
        let message = format!("`format` is \"{name}\", which is not supported");
        let names = FILE_FORMATS.each_ref().map(|row| row.name);
        problems.add_with_hint(at, message, hint_for(name, &names));
        return FileFormat::Flac { bits: 16 };
    };
    let kbps = config.kbps.map(|kbps| kbps.value);
    let settings = FormatSettings { bits, usual_bits: own, kbps, codecs: &station.codecs };
    let format = row.with(settings).unwrap_or_else(|hint| {
        let (key, value) = match (config.bits, config.kbps) {
            (None, Some(kbps)) => ("kbps", kbps),
            (bits, _) => ("bits", bits.unwrap_or(ConfigValue { value: own, at })),
        };
        let message = format!("`{key}` is {}, which {name} does not support", value.value);
        problems.add_with_hint(value.at, message, hint);
        FileFormat::Flac { bits: 16 }
    });
    let (rate, layout) = (station.spec.rate, station.spec.layout);
    let metadata = FileMetadata::new(rate, layout, &station.name, SystemTime::UNIX_EPOCH);
    if let Err(why) = format::make_file_encoder(format, &metadata, &mut Vec::new()) {
        problems.add(at, format!("`format`: {why}"));
    }
    format
}

fn pre_roll(config: &RecordConfig, problems: &Problems) -> Span {
    let ConfigValue { value, at } = config.pre_roll;
    if value > MAX_PRE_ROLL {
        let most = MAX_PRE_ROLL.as_millis() / 60_000;
        problems.add(at, format!("`pre_roll` must be at most {most}min: it is kept in memory"));
    }
    value
}

fn sync(config: &RecordConfig, problems: &Problems) -> SyncPolicy {
    let ConfigValue { value, at } = config.sync;
    if matches!(value, SyncPolicy::Every(span) if span < MIN_SYNC_INTERVAL) {
        let message = format!("`sync` must be at least {}ms", MIN_SYNC_INTERVAL.as_millis());
        problems.add_with_hint(at, message, "or \"never\"");
    }
    value
}

/// `sync` for files that the system writes when it likes.
const NO_SYNC: &str = "never";

/// The default of `file` in local time: without the `Z` of UTC.
const LOCAL_PATTERN: &str = "{name}-%Y-%m-%dT%H%M%S";

const FILE_EXAMPLE: &str = "as in file = \"%Y-%m-%d/{name}-%H%M%S\"";

/// Default free space: a full disk affects more than the recorder.
pub(crate) const DEFAULT_KEEP_FREE: u64 = 256 << 20;
