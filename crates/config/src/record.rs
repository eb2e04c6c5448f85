//! `record` of a station: what of it is kept on the disk, as what, and for how long.

use std::path::PathBuf;
use std::time::SystemTime;

use aulos_core::{SampleFormat, Span};
use aulos_engine::recorder::{
    ClockAlignment, ClockZone, DEFAULT_PRE_ROLL, MAX_PRE_ROLL, MIN_BYTES, MIN_SEGMENT,
    RecorderConfig as Keeping, Rotation,
};
use aulos_io::record::format::{self, About, FileFormat, WavSamples};
use aulos_io::record::{DEFAULT_PATTERN, MAX_NAME, MIN_SYNC, Pattern, Retention, Safety, Sync};

use super::env::Environment;
use super::limits::MAX_RECORDERS;
use super::model::Config;
use super::problem::{ConfigLocation, ConfigValue, Problems, did_you_mean};
use super::read::{TableReader, report_missing};
use super::resolve::{self, Station};
use super::tree::{Node, Value};
use super::units::{bytes_key, span_key};
use super::upload::{self, UploadConfig, UploadTarget};

/// One table of `record`, as it was written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordConfig {
    /// Where it begins.
    pub at: ConfigLocation,
    /// What the recorder is called; absent, as its station, and its source where it has one.
    pub name: Option<ConfigValue<String>>,
    /// The source that is recorded; absent, what goes out.
    pub source: Option<ConfigValue<String>>,
    /// The folder; required.
    pub dir: Option<ConfigValue<String>>,
    /// What the files are called.
    pub file: Option<ConfigValue<String>>,
    /// `wav`, `flac` or `opus`.
    pub format: Option<ConfigValue<String>>,
    /// Bits of a sample, where the format has such.
    pub bits: Option<ConfigValue<u32>>,
    /// Kilobits per second, where the format has such.
    pub kbps: Option<ConfigValue<u32>>,
    /// A new file after so much sound ...
    pub rotate: Option<ConfigValue<Span>>,
    /// ... or bytes.
    pub rotate_size: Option<ConfigValue<u64>>,
    /// Whether `rotate` is by the clock on the wall.
    pub align: bool,
    /// `utc` or `local`.
    pub time: Option<ConfigValue<String>>,
    /// How far back a recording can begin.
    pub pre_roll: Option<ConfigValue<Span>>,
    /// Whether it records at once.
    pub start: Option<bool>,
    /// What is kept at most: by age, files, bytes.
    pub keep_for: Option<ConfigValue<Span>>,
    /// As above.
    pub keep_files: Option<ConfigValue<u32>>,
    /// As above.
    pub keep_size: Option<ConfigValue<u64>>,
    /// Bytes of the disk that are left free.
    pub keep_free: Option<ConfigValue<u64>>,
    /// How often the file is made to last; none is as the system likes.
    pub sync: Option<ConfigValue<Option<Span>>>,
    /// Where complete files go.
    pub upload: Option<UploadConfig>,
}

/// A recorder of a station.
#[derive(Clone, Debug, PartialEq)]
pub struct RecorderSettings {
    /// What it is called; no other of the server is called so.
    pub name: String,
    /// The index of the source that is recorded; none is what goes out.
    pub source: Option<usize>,
    /// The folder.
    pub dir: PathBuf,
    /// What the files are called.
    pub pattern: Pattern,
    /// What they are.
    pub format: FileFormat,
    /// Pre-roll and rotation.
    pub keeping: Keeping,
    /// What is deleted.
    pub retention: Retention,
    /// What a crash costs.
    pub safety: Safety,
    /// Whether it records at once.
    pub start: bool,
    /// Where complete files go.
    pub upload: Option<UploadTarget>,
}

impl RecorderSettings {
    /// Whether a recorder that runs can go on as `other`: only the rules for its files differ.
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

/// Gives every station its recorders, and reports those that cannot be as they are.
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
        for wish in &config.record {
            let Some(record) = resolve(wish, station, env, problems) else { continue };
            if seen.contains(&record.name) {
                let message = format!("two recorders are called `{}`", record.name);
                problems.add_with_hint(wish.at, message, "give one of them another `name`");
            }
            seen.push(record.name.clone());
            station.records.push(record);
        }
    }
}

/// The recorder that `wish` asks for; none where that cannot be.
pub(super) fn resolve(
    wish: &RecordConfig,
    station: &Station,
    env: &Environment,
    problems: &Problems,
) -> Option<RecorderSettings> {
    let source = wish.source.as_ref().map(|name| source(name, station, problems));
    let name = match (&wish.name, &wish.source) {
        (Some(name), _) => name.clone(),
        (None, Some(source)) => {
            ConfigValue::default_value(format!("{}-{}", station.name, source.value))
        }
        (None, None) => ConfigValue::default_value(station.name.clone()),
    };
    if name.value.is_empty() || name.value.len() > MAX_NAME {
        let message = format!("`name` of a recorder has 1 to {MAX_NAME} bytes");
        let at = if wish.name.is_some() { name.at } else { wish.at };
        problems.add_with_hint(at, message, "record = { name = \"hall\", dir = \"/srv/rec\" }");
    }
    let zone = zone(wish, problems);
    // All of it is looked at, so that every problem is told; then it may be none.
    let dir = wish.dir.as_ref().map(|dir| resolve::absolute_path("dir", dir, problems));
    let pattern = pattern(wish, zone, problems);
    let format = file_format(wish, station, problems);
    let keeping =
        Keeping { pre_roll: pre_roll(wish, problems), rotation: rotation(wish, zone, problems) };
    let safety = Safety { sync: sync(wish, problems), ..Safety::default() };
    let upload = wish.upload.as_ref();
    let upload = upload.and_then(|it| upload::resolve(it, &station.name, env, problems));
    Some(RecorderSettings {
        name: name.value,
        source: source.flatten(),
        dir: dir?,
        pattern: pattern?,
        format,
        keeping,
        retention: Retention {
            age: wish.keep_for.map(|at| at.value),
            count: wish.keep_files.map(|at| u64::from(at.value)),
            bytes: wish.keep_size.map(|at| at.value),
            keep_free: wish.keep_free.map_or(DEFAULT_KEEP_FREE, |at| at.value),
        },
        safety,
        start: wish.start.unwrap_or(true),
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

fn zone(wish: &RecordConfig, problems: &Problems) -> ClockZone {
    match wish.time.as_ref().map(|time| (time.value.as_str(), time.at)) {
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

fn pattern(wish: &RecordConfig, zone: ClockZone, problems: &Problems) -> Option<Pattern> {
    let local = ConfigValue::default_value(LOCAL_PATTERN.to_owned());
    let usual = ConfigValue::default_value(DEFAULT_PATTERN.to_owned());
    let usual = if zone == ClockZone::Local { local } else { usual };
    let file = wish.file.as_ref().unwrap_or(&usual);
    match Pattern::new(&file.value, zone) {
        Ok(pattern) => Some(pattern),
        Err(why) => {
            problems.add_with_hint(file.at, format!("`file`: {why}"), FILE_EXAMPLE);
            None
        }
    }
}

fn rotation(wish: &RecordConfig, zone: ClockZone, problems: &Problems) -> Rotation {
    if let Some(size) = wish.rotate_size.filter(|size| size.value < MIN_BYTES) {
        problems.add(size.at, format!("`rotate_size` is at least {} KiB", MIN_BYTES >> 10));
    }
    match wish.rotate {
        Some(rotate) if !wish.align && rotate.value < MIN_SEGMENT => {
            problems.add(rotate.at, "`rotate` is a second or more");
        }
        None if wish.align => {
            problems.add_with_hint(
                wish.at,
                "`align` is how `rotate` is meant",
                "add rotate = \"1h\"",
            );
        }
        _ => {}
    }
    let (every, size) = (wish.rotate.map(|at| at.value), wish.rotate_size.map(|at| at.value));
    rotation_for(every, wish.align, size, zone).unwrap_or_else(|| {
        let message = "`rotate` by the clock is a minute or more, a whole number of times a day";
        let at = wish.rotate.map_or(wish.at, |rotate| rotate.at);
        problems.add_with_hint(at, message, "rotate = \"15min\", \"1h\" or \"1d\", or no `align`");
        Rotation::default()
    })
}

/// New files after so much sound or, with `align`, so often by the clock, and at this size; none
/// where the clock does not have such pieces.
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

/// What the station's clients get is what is kept, unless other bits are asked for.
fn file_format(wish: &RecordConfig, station: &Station, problems: &Problems) -> FileFormat {
    let (name, at) = match &wish.format {
        Some(format) => (format.value.as_str(), format.at),
        None => ("flac", wish.at),
    };
    let own = match station.spec.format {
        SampleFormat::S16Le => 16,
        SampleFormat::F32 => 32,
        _ => 24,
    };
    let (bits, kbps) = (wish.bits.map(|at| at.value), wish.kbps.map(|at| at.value));
    let format = match file_format_by_name(name, bits, own, kbps) {
        Ok(format) => format,
        Err(why) => {
            let at = wish.bits.map_or(at, |bits| bits.at);
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
    let about = About::new(rate, layout, &station.name, SystemTime::UNIX_EPOCH);
    if let Err(why) = format::open(format, &about, &mut Vec::new()) {
        problems.add(at, format!("`format`: {why}"));
    }
    format
}

/// Why there is no such format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// Nothing of that name is made.
    Name,
    /// It does not have so many bits; and what to write instead.
    Bits(u32, &'static str),
}

/// A format by its name, with so many bits, or as far as it can the `usual` ones.
///
/// # Errors
/// [`NotMade`].
pub fn file_format_by_name(
    name: &str,
    bits: Option<u32>,
    usual: u32,
    kbps: Option<u32>,
) -> Result<FileFormat, FormatError> {
    match (name, bits) {
        ("wav", bits) => match bits.unwrap_or(usual) {
            16 => Ok(FileFormat::Wav(WavSamples::S16)),
            24 => Ok(FileFormat::Wav(WavSamples::S24)),
            32 => Ok(FileFormat::Wav(WavSamples::F32)),
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

fn pre_roll(wish: &RecordConfig, problems: &Problems) -> Span {
    let Some(pre_roll) = wish.pre_roll else { return DEFAULT_PRE_ROLL };
    if pre_roll.value > MAX_PRE_ROLL {
        let most = MAX_PRE_ROLL.as_millis() / 60_000;
        problems.add(
            pre_roll.at,
            format!("`pre_roll` is at most {most} minutes: it is kept in memory"),
        );
    }
    pre_roll.value
}

fn sync(wish: &RecordConfig, problems: &Problems) -> Sync {
    match wish.sync {
        None => Safety::default().sync,
        Some(ConfigValue { value: None, .. }) => Sync::Never,
        Some(ConfigValue { value: Some(span), at }) => {
            if span < MIN_SYNC {
                let least = MIN_SYNC.as_millis();
                problems.add_with_hint(at, format!("`sync` is {least}ms or more"), "or \"never\"");
            }
            Sync::Every(span)
        }
    }
}

/// The default of `file` where times are local: no `Z` behind them.
const LOCAL_PATTERN: &str = "{name}-%Y-%m-%dT%H%M%S";

const FILE_EXAMPLE: &str = "as in file = \"%Y-%m-%d/{name}-%H%M%S\"";

/// What a recorder leaves to others unless it is told otherwise: a full disk stops more than it.
const DEFAULT_KEEP_FREE: u64 = 256 << 20;

const FORMATS: [&str; 3] = ["wav", "flac", "opus"];

/// Kilobits per second of Opus: no listener tells two channels of it from the original.
const DEFAULT_KBPS: u32 = 160;
