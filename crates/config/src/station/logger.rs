//! `logger` of a station: a recorder whose files are a legal log.

use aulos_core::Span;

use crate::env::Environment;
use crate::keys::values::{is_word, quoted};
use crate::keys::{ConfigRead, ReadContext, ValueKind, keys};
use crate::limits::{RECORD_BITS, RECORD_KBPS};
use crate::problem::{ConfigValue, Problems};
use crate::station::output::StationOutput;
use crate::station::record::{self, DEFAULT_KEEP_FREE, RecordConfig, RecorderSettings};
use crate::tree::Node;

keys! {
    /// A log of the output: hourly files with names in UTC and an index that shows later changes.
    /// `aulos logger` finds and exports any time of it.
    pub(crate) struct LoggerConfig {
        /// Name of the recorder, unique in the server.
        name: Option<ConfigValue<String>>, default_doc "`STATION-log`";
        /// Directory of the files; created if it is missing.
        dir: Option<ConfigValue<String>>, required "logger = { dir = \"/srv/log\" }";
        /// Record only while `dir` is on another file system than `/`: a disk that is not mounted
        /// is a fault, and does not leave the log on the disk of the system.
        mounted: bool = false;
        /// Age beyond which files are deleted unless they are held, or a country: `uk` is 42 days,
        /// `fr` 31, `de` 42, `at` 70, `ch` 123, `ca` 28. Ask the regulator.
        keep: KeepTime = KeepTime(DEFAULT_KEEP);
        /// File format: `wav`, `flac`, `opus` in Ogg, or `mp3`.
        format: ConfigValue<String> = "opus";
        /// Bits per sample: 16 or 24, of `wav` also 32 (floating point).
        bits: Option<ConfigValue<u32>>, range RECORD_BITS, "bits", default_doc "the station's";
        /// Bit rate of `opus` and `mp3`.
        kbps: Option<ConfigValue<u32>>, range RECORD_KBPS, "kbit/s", default_doc "160 with `opus`; that of the station's `mp3` with `mp3`";
        /// Free space on the disk for which the oldest files are deleted, unless they are held.
        keep_free: u64 = DEFAULT_KEEP_FREE;
    }
}

/// How long files are kept: a duration, or the name of a country.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeepTime(pub(crate) Span);

impl Default for KeepTime {
    fn default() -> Self {
        Self(DEFAULT_KEEP)
    }
}

impl ConfigRead for KeepTime {
    const KIND: &'static ValueKind = &ValueKind::AnyOf(&[
        &ValueKind::Duration,
        &ValueKind::Choice(|| COUNTRIES.map(|(name, _)| name).to_vec()),
    ]);

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        match COUNTRIES.iter().find(|(name, _)| is_word(node, name)) {
            Some((_, days)) => Some(Self(Span::from_secs(days * DAY_S))),
            None => Span::from_node(node, context).map(Self),
        }
    }

    fn toml(&self) -> Option<String> {
        let days = self.0.as_millis() / 1_000 / DAY_S;
        if self.0 == Span::from_secs(days * DAY_S) {
            Some(quoted(&format!("{days}d")))
        } else {
            self.0.toml()
        }
    }
}

/// The recorder of a log.
pub(crate) fn resolve(
    config: &LoggerConfig,
    station: &StationOutput,
    seen: &mut Vec<String>,
    env: &Environment,
    problems: &Problems,
) -> Option<RecorderSettings> {
    let at = config.at;
    let usual = || ConfigValue { value: format!("{}-log", station.name), at };
    let recorder = RecordConfig {
        at,
        name: Some(config.name.clone().unwrap_or_else(usual)),
        dir: config.dir.clone(),
        format: config.format.clone(),
        bits: config.bits,
        kbps: config.kbps,
        rotate: Some(ConfigValue { value: FILE_LENGTH, at }),
        align: true,
        keep_for: Some(config.keep.0),
        keep_free: config.keep_free,
        ..RecordConfig::default()
    };
    let mut resolved = record::resolve(&[recorder], station, seen, env, problems);
    let mut recorder = RecorderSettings { is_logger: true, ..resolved.pop()? };
    recorder.recording.must_be_mounted = config.mounted;
    Some(recorder)
}

/// Days for which a country wants recordings: Communications Act 2003 licences; convention of
/// Arcom; `LMedienG` of most Länder; `PrR-G` 22; RTVG 20; Radio Regulations 1986 8(5).
const COUNTRIES: [(&str, i64); 6] =
    [("uk", 42), ("fr", 31), ("de", 42), ("at", 70), ("ch", 123), ("ca", 28)];

/// More than most countries want.
const DEFAULT_KEEP: Span = Span::from_secs(92 * DAY_S);

/// Length of a file.
const FILE_LENGTH: Span = Span::from_secs(3_600);

const DAY_S: i64 = 86_400;
