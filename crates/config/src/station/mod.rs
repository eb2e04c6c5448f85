//! A station as resolved: its settings, and the checks of codec, sample spec and sources.

pub(crate) mod codec;
pub(crate) mod fallback;
pub(crate) mod hls;
pub(crate) mod icy;
pub(crate) mod insert;
pub(crate) mod intro;
pub(crate) mod logger;
pub(crate) mod mount;
pub(crate) mod now_playing;
pub(crate) mod output;
pub(crate) mod push;
pub(crate) mod record;
pub(crate) mod rtp;
pub(crate) mod schedule;
pub(crate) mod sound;
pub(crate) mod storage;
pub(crate) mod stream;
pub(crate) mod upload;

use std::path::PathBuf;

use aulos_core::{Codec, Frames, SampleSpec, Span};
use aulos_dsp::normalize::LookAhead;
use aulos_dsp::silence::SilenceConfig;
use aulos_engine::encode::CodecConfig;
use aulos_engine::input::InputConfig;
use aulos_engine::loudness_processor::NormalizerConfig;
use aulos_engine::switch::SwitchConfig;
use aulos_proto::http::icy::IcyInfo;
use aulos_session::hls_source::InvalidVariantChoice;

use crate::keys::values::bounds;
use crate::limits::{MAX_SOURCES, MAX_STATION_CHANNELS, STATION_RATE};
use crate::model::{PluginConfig, SourceEntry, StationConfig};
use crate::names::{check_name, report_duplicate};
use crate::problem::{ConfigLocation, ConfigValue, Problems};
use crate::source::{self, SourceConfig};
use crate::station::codec::check_library;
use crate::station::hls::HlsSettings;
use crate::station::insert::InsertSettings;
use crate::station::mount::MountSettings;
use crate::station::now_playing::NowPlayingSettings;
use crate::station::push::PushSettings;
use crate::station::record::RecorderSettings;
use crate::station::rtp::RtpOutputSettings;
use crate::station::schedule::ScheduleSettings;
use crate::station::sound::{
    ProcessingSettings, default_normalizer_config, resolve_equalizer, resolve_normalize,
};

/// A station.
#[derive(Clone, Debug, PartialEq)]
pub struct StationSettings {
    /// Unique; also the id of the Snapcast stream.
    pub name: String,
    /// Codec and encoder settings.
    pub codec: CodecConfig,
    /// Settings of codecs that are not for clients.
    pub codecs: Vec<CodecConfig>,
    /// Sample spec of the output.
    pub spec: SampleSpec,
    /// Milliseconds per chunk.
    pub chunk_ms: u32,
    /// Milliseconds from capture to play-out.
    pub buffer_ms: u32,
    /// In order of priority; at least one, with unique names.
    pub sources: Vec<StationSource>,
    /// Failover between sources.
    pub switch: SwitchConfig,
    /// Length of the cross-fade between sources; zero cuts.
    pub crossfade: Span,
    /// Sources that have precedence at their times.
    pub schedule: Option<ScheduleSettings>,
    /// Silence detection.
    pub silence: SilenceConfig,
    /// A program that processes the programme first.
    pub insert: Option<InsertSettings>,
    /// Normalizer and equalizer.
    pub sound: ProcessingSettings,
    /// What plays when no source has sound; none is silence.
    pub last_resort: Option<SourceConfig>,
    /// The control script.
    pub plugin: Option<Plugin>,
    /// Pushes to other servers.
    pub pushes: Vec<PushSettings>,
    /// Whether it is published to other servers of the cluster.
    pub publish: bool,
    /// HTTP Live Streaming.
    pub hls: Option<HlsSettings>,
    /// RTP outputs.
    pub rtp: Vec<RtpOutputSettings>,
    /// Recorders.
    pub records: Vec<RecorderSettings>,
    /// Where titles come from besides the sources, and what is told of them.
    pub now_playing: NowPlayingSettings,
    /// What web listeners and directories are told of it.
    pub icy: IcyInfo,
    /// Set for a mount, which passes the frames of its sources to web listeners.
    pub mount: Option<MountSettings>,
}

impl StationSettings {
    /// The settings of this codec: the station's own if it has that codec, those of a key of its
    /// own, or the default ones.
    #[must_use]
    pub fn codec_settings(&self, codec: Codec) -> CodecConfig {
        let own = self.codecs.iter().find(|own| own.codec() == codec);
        own.copied().unwrap_or_else(|| self.codec.or_default_of(codec))
    }
}

/// A control script: a program that speaks JSON-RPC on standard input and output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// The program; relative to `plugin_dir` unless it is absolute.
    pub script: PathBuf,
    /// Its arguments in one string, as written.
    pub params: String,
    /// Number of the call that named it, unique until the server ends; absent for a script of the
    /// configuration. A script that a call named must lie in `plugin_dir`.
    pub call: Option<u64>,
}

/// A source of a station.
#[derive(Clone, Debug, PartialEq)]
pub struct StationSource {
    /// The URI as written.
    pub uri: String,
    /// Unique in its station.
    pub name: String,
    /// The parsed URI.
    pub config: SourceConfig,
    /// Loudness normalization before the gain; none is off.
    pub normalize: Option<NormalizerConfig>,
    /// Buffer, time-out, gain, silence detection and standby.
    pub input: InputConfig,
}

/// Validates a station without its outputs.
pub(crate) fn resolve(config: &StationConfig, problems: &Problems) -> StationSettings {
    let name = config.name.as_ref().map_or_else(String::new, |name| check_name(name, problems));
    let (codec, spec) = (config.codec.value, config.spec.value);
    check_spec(config, codec.codec(), spec, problems);
    let codecs = config.codecs();
    for ConfigValue { value, at } in std::iter::once(&config.codec).chain(&codecs) {
        check_library(*value, *at, problems);
    }
    let ConfigValue { value: buffer_ms, at } = config.buffer_ms;
    let chunk_ms = config.chunk_ms.value;
    if buffer_ms < chunk_ms {
        let message = format!("`buffer_ms` is {buffer_ms}: a chunk has {chunk_ms} ms");
        problems.add_with_hint(at, message, "20 chunks or more are usual");
    }
    let base = default_normalizer_config(LookAhead::Full);
    let sources = sources(config, spec, problems);
    StationSettings {
        name,
        codec,
        codecs: codecs.into_iter().map(|codec| codec.value).collect(),
        spec,
        chunk_ms,
        buffer_ms,
        schedule: schedule::resolve(
            &config.schedule,
            config.timezone.as_ref(),
            &sources.iter().map(|source| source.name.as_str()).collect::<Vec<_>>(),
            problems,
        ),
        sources,
        switch: fallback::switch(&config.switch),
        crossfade: Span::from_millis(i64::from(config.switch.crossfade_ms)),
        silence: fallback::silence(&config.silence),
        last_resort: fallback::last_resort(&config.switch.last_resort, problems),
        insert: config.insert.as_ref().and_then(|one| insert::resolve(one, spec, problems)),
        sound: ProcessingSettings {
            normalize: resolve_normalize(config.normalize.as_ref(), base, spec, problems),
            equalizer: resolve_equalizer(&config.equalizer, spec, problems),
        },
        plugin: config.plugin.as_ref().and_then(|plugin| resolve_plugin(plugin, problems)),
        pushes: Vec::new(),
        publish: config.publish.value,
        hls: config.hls.as_ref().and_then(|hls| hls::resolve(hls, spec, problems)),
        rtp: Vec::new(),
        records: Vec::new(),
        now_playing: now_playing::resolve(config.now_playing.as_ref(), problems),
        icy: icy::resolve(&config.icy, problems),
        mount: None,
    }
}

fn resolve_plugin(config: &PluginConfig, problems: &Problems) -> Option<Plugin> {
    let ConfigValue { value: script, at } = config.script.as_ref()?;
    if script.is_empty() {
        problems.add_with_hint(*at, "`script` is empty", "script = \"meta_mpd.py\"");
    }
    Some(Plugin { script: PathBuf::from(script), params: config.params.clone(), call: None })
}

/// Checks that clients can play the spec with this codec.
fn check_spec(config: &StationConfig, codec: Codec, spec: SampleSpec, problems: &Problems) {
    let refuse =
        |message: String, hint: &str| problems.add_with_hint(config.spec.at, message, hint);
    let (rate, channels) = (spec.rate.hz(), spec.layout.channels());
    let info = codec.info();
    if !info.is_for_stations {
        let message = format!("`codec` is \"{codec}\", which Snapcast clients do not support");
        let extension = info.extensions.first().unwrap_or(&info.name);
        let hint = format!(
            "every station has {codec} at /listen/NAME.{extension}; clients get flac, opus or pcm"
        );
        return problems.add_with_hint(config.codec.at, message, hint);
    }
    if !info.supports(spec) && channels <= MAX_STATION_CHANNELS && STATION_RATE.contains(&rate) {
        let message = format!("{codec} requires {}: `spec` is {spec}", info.requires);
        let hint = if info.formats.contains(&spec.format) {
            "spec = \"48000:16:2\", or codec = \"flac\""
        } else {
            "the format of a source is its own: ?sampleformat=44100:f32:2"
        };
        refuse(message, hint);
    }
    let chunk_ms = config.chunk_ms.value;
    if !info.supports_chunk(chunk_ms) {
        let message = format!("`chunk_ms` is {chunk_ms}: {codec} supports {}", info.chunks);
        problems.add_with_hint(config.chunk_ms.at, message, "20 is usual");
    }
    if !STATION_RATE.contains(&rate) {
        let range = bounds(&STATION_RATE);
        refuse(format!("the sample rate is {rate}: it must be {range} Hz"), "48000 is usual");
    } else if spec.rate.frames(Span::from_millis(i64::from(config.chunk_ms.value))) == Frames(0) {
        refuse(format!("a chunk of {} ms has no frame", config.chunk_ms.value), "48000 is usual");
    }
    if channels > MAX_STATION_CHANNELS {
        let message =
            format!("`spec` has {channels} channels: it must have 1 to {MAX_STATION_CHANNELS}");
        refuse(message, "2 are usual");
    }
    let samples = rate as usize * config.chunk_ms.value as usize / 1_000 * channels;
    if samples > aulos_engine::source::BLOCK_SAMPLES {
        let message = format!(
            "a chunk of {} ms at {spec} has {samples} samples: it must have at most {}",
            config.chunk_ms.value,
            aulos_engine::source::BLOCK_SAMPLES
        );
        problems.add_with_hint(config.chunk_ms.at, message, "use a shorter chunk_ms");
    }
}

fn sources(config: &StationConfig, spec: SampleSpec, problems: &Problems) -> Vec<StationSource> {
    if let Some(source) = config.sources.get(MAX_SOURCES) {
        problems.add(source.uri.at, format!("a station has at most {MAX_SOURCES} sources"));
    }
    fallback::check_timeouts(config, problems);
    let mut names: Vec<String> = Vec::new();
    let mut all = Vec::new();
    for entry in &config.sources {
        // Without a URI, which has been reported.
        if entry.uri.value.is_empty() && entry.uri.at == ConfigLocation::Default {
            continue;
        }
        let Some((configs, from_uri)) = source::parse(&entry.uri, problems) else { continue };
        let several = configs.len() > 1;
        for mut config_of in configs {
            set_charset(entry, &mut config_of, problems);
            set_variant(entry, &mut config_of, problems);
            let name = match config_of.station() {
                // Several stations in one URI: each source is named after its station.
                Some(name) if several => unique_name(
                    ConfigValue { value: name.to_owned(), at: entry.uri.at },
                    &names,
                    problems,
                ),
                _ => source_name(entry, from_uri.clone(), &config_of, &names, problems),
            };
            names.push(name.clone());
            let input = fallback::input(entry, &config_of, config);
            all.push(StationSource {
                uri: config_of.display_uri().unwrap_or_else(|| entry.uri.value.clone()),
                name,
                config: config_of,
                // The look-ahead of a mode with high latency would delay this source against the
                // others.
                normalize: resolve_normalize(
                    entry.normalize.as_ref(),
                    default_normalizer_config(LookAhead::Mid),
                    spec,
                    problems,
                ),
                input,
            });
        }
    }
    if let (true, Some(last)) = (all.len() > MAX_SOURCES, config.sources.last())
        && config.sources.len() <= MAX_SOURCES
    {
        problems.add(last.uri.at, format!("a station has at most {MAX_SOURCES} sources"));
    }
    all
}

/// Sets the charset of a source's titles.
fn set_charset(entry: &SourceEntry, config: &mut SourceConfig, problems: &Problems) {
    let Some(label) = &entry.charset else { return };
    let Some(known) = now_playing::title_charset(label, problems) else { return };
    match config.charset_mut() {
        Some(charset) => *charset = known,
        None => {
            let users = source::schemes_with(|source| source.charset_mut().is_some()).join(": or ");
            let message = format!("`charset` requires an {users}: source");
            problems.add_with_hint(label.at, message, "leave it out");
        }
    }
}

/// Sets the variant of an HLS stream.
fn set_variant(entry: &SourceEntry, config: &mut SourceConfig, problems: &Problems) {
    let Some(text) = &entry.variant else { return };
    match (config.variant_mut(), text.value.parse()) {
        (Some(variant), Ok(choice)) => *variant = choice,
        (Some(_), Err(InvalidVariantChoice)) => {
            let message = format!("unknown variant \"{}\"", text.value);
            problems.add_with_hint(text.at, message, InvalidVariantChoice.to_string());
        }
        (None, _) => {
            let message = "`variant` requires an http: source".to_owned();
            problems.add_with_hint(text.at, message, "leave it out");
        }
    }
}

fn source_name(
    entry: &SourceEntry,
    from_uri: Option<String>,
    config: &SourceConfig,
    used: &[String],
    problems: &Problems,
) -> String {
    let given = entry
        .name
        .clone()
        .or_else(|| from_uri.map(|value| ConfigValue { value, at: entry.uri.at }));
    if let Some(given) = given {
        return unique_name(given, used, problems);
    }
    let own = config.station().map_or_else(
        || {
            let scheme = entry.uri.value.split(':').next().unwrap_or_default();
            scheme.trim().to_ascii_lowercase()
        },
        str::to_owned,
    );
    let mut name = own.clone();
    let mut number = 1;
    while used.contains(&name) {
        number += 1;
        name = format!("{own}-{number}");
    }
    name
}

fn unique_name(given: ConfigValue<String>, used: &[String], problems: &Problems) -> String {
    let name = check_name(&given, problems);
    if used.contains(&name) {
        report_duplicate("source", &given, problems);
    }
    name
}
