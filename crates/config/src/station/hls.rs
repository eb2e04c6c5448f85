//! `hls` of a station: its programme as HTTP Live Streaming.

use std::path::PathBuf;

use aulos_core::{Frames, SampleSpec, Span};
use aulos_engine::encode::{CodecConfig, RateControl};
use aulos_session::hls::HlsFormat;

use crate::env::Environment;
use crate::keys::keys;
use crate::limits::{HLS_SEGMENT_MS, MAX_HLS_RENDITIONS, MAX_HLS_WINDOW};
use crate::names::absolute_path;
use crate::problem::{ConfigLocation, ConfigValue, Problems};
use crate::security::secrets::SecretConfig;
use crate::station::storage::{self, StorageKeys, StorageTarget};

keys! {
    /// A station's programme as HTTP Live Streaming, at `/hls/NAME/index.m3u8`.
    pub(crate) struct HlsConfig {
        /// Renditions with encoder settings, as in `aac:128k`, `opus:96k` or `flac`. Players begin
        /// with the first one.
        renditions: Vec<ConfigValue<CodecConfig>>, required "hls = { renditions = [\"aac:128k\", \"flac\"] }";
        /// Duration of a segment: a whole number of frames, which have 20 ms, and 1,024 samples in
        /// AAC. `1.92s`, `3.84s` and `5.76s` fit all.
        segment: ConfigValue<Span> = DEFAULT_SEGMENT;
        /// Duration of a playlist: how far back a listener can go. Segments are kept in memory for
        /// twice as long.
        window: ConfigValue<Span> = DEFAULT_WINDOW;
        /// Another server makes the same segments from the same origin, behind one load balancer;
        /// Opus needs a constant bit rate for that, as in `opus:96k,cbr`.
        /// A segment with audio that had to be filled in is refused with 503, so that the load
        /// balancer asks the other server.
        paired: bool = false;
        /// Packed audio (`.aac`) in place of fragmented MP4, for old players; every rendition is then
        /// AAC. Titles are at the head of the segments that begin in them.
        packed: bool = false;
        /// Folder into which playlists and segments are written too, as a web server serves them;
        /// created if it is missing. What is no longer in a playlist is removed.
        folder: Option<ConfigValue<String>>, default_doc "none";
        /// S3-compatible storage to which they are uploaded too.
        upload: Option<HlsUploadConfig>, default_doc "none";
    }

    /// HLS in S3-compatible storage, with the same bytes and names as in `folder`.
    pub(crate) struct HlsUploadConfig {
        /// Bucket and prefix: `s3://BUCKET/PREFIX`. `{station}` is the station's name.
        url: Option<ConfigValue<String>>, required "upload = { url = \"s3://BUCKET/PREFIX\", region = \"eu-central-1\", access_key = \"ID\", secret_key_file = \"FILE\" }";
        /// Server: `https://HOST`.
        endpoint: Option<ConfigValue<String>>, default_doc "Amazon's for `region`";
        /// Region of signatures.
        region: Option<ConfigValue<String>>, default_doc "with `endpoint` `us-east-1`";
        /// Id of the access key.
        access_key: Option<ConfigValue<String>>, required "access_key = \"ID\"";
        /// Secret access key.
        secret_key: Option<SecretConfig>, required "secret_key_file = \"FILE\"";
        /// Write the bucket into the path instead of the host name.
        path_style: Option<bool>, default_doc "`true` with `endpoint`";
        /// Storage class.
        storage_class: Option<ConfigValue<String>>, default_doc "the server's";
    }
}

/// HLS of a station.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HlsSettings {
    /// The renditions; players begin with the first one.
    pub renditions: Vec<HlsFormat>,
    /// Samples in a segment.
    pub segment: Frames,
    /// Segments in a playlist.
    pub listed: usize,
    /// Another server makes the same segments.
    pub paired: bool,
    /// Where they are written too.
    pub folder: Option<PathBuf>,
    /// Where they are uploaded too.
    pub upload: Option<StorageTarget>,
}

/// Validates HLS of a station.
pub(crate) fn resolve(
    config: &HlsConfig,
    spec: SampleSpec,
    problems: &Problems,
) -> Option<HlsSettings> {
    let ConfigValue { value: span, at } = config.segment;
    let (low, high) = (HLS_SEGMENT_MS.start(), HLS_SEGMENT_MS.end());
    if !HLS_SEGMENT_MS.contains(&span.as_millis()) {
        let message = format!("`segment` must last {low} to {high} ms");
        problems.add_with_hint(at, message, "segment = \"5.76s\"");
        return None;
    }
    let segment = spec.rate.frames(span);
    if config.renditions.is_empty() && config.at != ConfigLocation::Default {
        let hint = "renditions = [\"aac:128k\", \"flac\"]";
        problems.add_with_hint(config.at, "`renditions` is empty", hint);
    }
    if let Some(more) = config.renditions.get(MAX_HLS_RENDITIONS) {
        let message = format!("a station has at most {MAX_HLS_RENDITIONS} renditions");
        problems.add(more.at, message);
    }
    let folder = config.folder.as_ref().map(|folder| absolute_path("folder", folder, problems));
    let mut renditions: Vec<HlsFormat> = Vec::new();
    for ConfigValue { value: codec, at } in &config.renditions {
        let format = HlsFormat::new(*codec, spec, segment);
        match format.and_then(|format| if config.packed { format.packed() } else { Ok(format) }) {
            Ok(format) if renditions.iter().any(|other| other.name() == format.name()) => {
                problems.add(*at, format!("duplicate rendition `{codec}`"));
            }
            Ok(_) if config.paired && is_variable(*codec) => {
                let message = format!("`paired` requires a constant bit rate: `{codec}`");
                problems.add_with_hint(*at, message, format!("\"{codec},cbr\""));
            }
            Ok(format) => renditions.push(format),
            Err(error) => {
                let hint = "renditions = [\"flac\"], segment = \"5.76s\" and spec = \"48000:16:2\"";
                problems.add_with_hint(*at, error.to_string(), hint);
            }
        }
    }
    let ConfigValue { value: window, at } = config.window;
    let listed = window.as_nanos() / span.as_nanos().max(1);
    let least = i64::try_from(aulos_session::hls::WindowConfig::MIN_LISTED).unwrap_or(1);
    if listed < least || window > MAX_HLS_WINDOW {
        let hours = MAX_HLS_WINDOW.as_millis() / 3_600_000;
        let message =
            format!("`window` must have {least} segments at least, and {hours} h at most");
        problems.add_with_hint(at, message, "window = \"10min\"");
        return None;
    }
    let listed = usize::try_from(listed).ok()?;
    Some(HlsSettings { renditions, segment, listed, paired: config.paired, folder, upload: None })
        .filter(|settings| !settings.renditions.is_empty())
}

/// Validates the storage and reads its secret.
pub(crate) fn resolve_upload(
    config: &HlsConfig,
    station: &str,
    env: &Environment,
    problems: &Problems,
) -> Option<StorageTarget> {
    let upload = config.upload.as_ref()?;
    let keys = StorageKeys {
        at: upload.at,
        url: upload.url.as_ref(),
        endpoint: upload.endpoint.as_ref(),
        region: upload.region.as_ref(),
        access_key: upload.access_key.as_ref(),
        secret_key: upload.secret_key.as_ref(),
        path_style: upload.path_style,
        storage_class: upload.storage_class.as_ref(),
    };
    storage::resolve(cfg!(feature = "s3"), &keys, station, env, problems)
}

/// Reports a storage that two stations upload to, as [`check_folders`] does.
pub(crate) fn check_uploads<'a>(
    all: impl Iterator<Item = (&'a HlsConfig, &'a HlsSettings)>,
    problems: &Problems,
) {
    let mut seen: Vec<(&str, String)> = Vec::new();
    for (config, settings) in all {
        let Some(upload) = &settings.upload else { continue };
        let target = (&*upload.endpoint, upload.url());
        if seen.contains(&target) {
            let message = format!("two stations upload HLS to `{}`", target.1);
            problems.add_with_hint(config.at, message, "url = \"s3://BUCKET/{station}\"");
        }
        seen.push(target);
    }
}

/// Reports a folder that two stations write to: each would remove what the other has written.
pub(crate) fn check_folders<'a>(all: impl Iterator<Item = &'a HlsConfig>, problems: &Problems) {
    let mut seen: Vec<PathBuf> = Vec::new();
    for ConfigValue { value, at } in all.filter_map(|hls| hls.folder.as_ref()) {
        // Without dots and slashes that name the same folder.
        let folder: PathBuf = PathBuf::from(value).components().collect();
        if seen.contains(&folder) {
            let message = format!("two stations write HLS to `{value}`");
            problems.add_with_hint(*at, message, "a folder for each, such as /srv/hls/NAME");
        }
        seen.push(folder);
    }
}

/// Whether the encoder's choices depend on all that it has encoded: two servers never make the same.
fn is_variable(codec: CodecConfig) -> bool {
    matches!(codec, CodecConfig::Opus(opus) if opus.rate_control == RateControl::Vbr)
}

/// 288 packets of Opus, and whole numbers of frames of all codecs of HLS.
const DEFAULT_SEGMENT: ConfigValue<Span> =
    ConfigValue { value: Span::from_millis(5_760), at: ConfigLocation::Default };

const DEFAULT_WINDOW: ConfigValue<Span> =
    ConfigValue { value: Span::from_secs(600), at: ConfigLocation::Default };
