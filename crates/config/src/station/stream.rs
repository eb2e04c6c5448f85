//! Snapcast's stream URIs, `TYPE://host/path?name=N&codec=...`, which describe a station and its
//! source in one line.
//!
//! They come from controllers (`Stream.AddStream`) and from `snapserver.conf`; both get the same
//! station for the same line.

use aulos_core::{Codec, SampleFormat, SampleRate, SampleSpec};
use aulos_engine::source::BLOCK_SAMPLES;
use aulos_proto::uri::{Uri, UriError, percent_encode};

use crate::limits::SILENCE_S;
use crate::model::{SilenceConfig, SourceEntry, StationConfig};
use crate::problem::{ConfigLocation, ConfigValue, Problems};
use crate::source::{self, Scheme, SourceConfig};
use crate::station;
use crate::station::StationSettings;
use crate::station::codec;

/// A parsed stream URI.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamUri {
    /// The stream's id.
    pub name: String,
    /// The URI as given.
    pub uri: Uri,
    /// The URI of its source in our syntax.
    pub source: String,
    /// `flac`, `pcm`, `opus` or an unsupported codec, in lower case, with encoder settings as in
    /// `flac:5` or `opus:bitrate:96000`; absent, the server's default.
    pub codec: Option<String>,
    /// The spec of the source, and of the station if the codec supports it; absent, the server's
    /// default.
    pub spec: Option<String>,
    /// Milliseconds per chunk; absent, the server's default.
    pub chunk_ms: Option<u32>,
    /// Milliseconds of silence after which the stream is idle.
    pub idle_ms: Option<u32>,
    /// The control script and its arguments.
    pub script: Option<(String, String)>,
    /// Ignored keys.
    pub ignored_keys: Vec<String>,
}

/// Why a text is not a stream URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamUriError {
    /// It is not a URI.
    Uri(UriError),
    /// It has no `name`.
    NoName,
    /// Problems of the station that it describes.
    Station(String),
}

impl std::fmt::Display for StreamUriError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Uri(error) => error.fmt(f),
            Self::NoName => f.write_str("a stream requires a name: add ?name=NAME"),
            Self::Station(problems) => f.write_str(problems),
        }
    }
}

impl std::error::Error for StreamUriError {}

impl StreamUri {
    /// Parses a stream URI; `spec` is the default for raw samples.
    ///
    /// # Errors
    /// [`StreamUriError::Uri`], [`StreamUriError::NoName`].
    pub fn parse(text: &str, spec: SampleSpec) -> Result<Self, StreamUriError> {
        let uri: Uri = text.parse().map_err(StreamUriError::Uri)?;
        let name = uri.get("name").map(str::trim).filter(|name| !name.is_empty());
        let name = name.ok_or(StreamUriError::NoName)?.to_owned();
        let own = |key: &str| uri.get(key).map(str::to_owned).filter(|value| !value.is_empty());
        let number = |key| own(key).and_then(|value| value.parse().ok());
        let codec = own("codec").map(|codec| codec.to_ascii_lowercase());
        let mut stream = Self {
            source: String::new(),
            codec,
            spec: own("sampleformat"),
            chunk_ms: number("chunk_ms"),
            idle_ms: number("idle_threshold"),
            script: own("controlscript")
                .map(|script| (script, own("controlscriptparams").unwrap_or_default())),
            ignored_keys: Vec::new(),
            name,
            uri,
        };
        stream.source = stream.source(spec);
        // The whole query of a web address belongs to the server.
        if !stream.is_web_address() {
            let keys = stream.uri.query.iter().map(|(key, _)| key.as_str());
            let unknown =
                keys.filter(|key| !SNAPCAST_KEYS.contains(key) && !stream.is_source_key(key));
            stream.ignored_keys = unknown.map(str::to_owned).collect();
        }
        Ok(stream)
    }

    fn is_web_address(&self) -> bool {
        matches!(&self.uri.scheme[..], "http" | "https")
    }

    /// Whether a source URI of this scheme has the key, besides those of Snapcast.
    fn is_source_key(&self, key: &str) -> bool {
        key != "sampleformat"
            && key != "loop"
            && Scheme::find(&self.uri.scheme).is_some_and(|scheme| scheme.has_param(key))
    }

    /// Whether samples of 24 bits come in 3 bytes, as Music Assistant sends them.
    fn is_packed(&self) -> bool {
        PACKED_KEYS.iter().any(|key| matches!(self.uri.get(key), Some("true" | "1")))
    }

    /// The source URI for the parser of sources.
    fn source(&self, default: SampleSpec) -> String {
        let uri = &self.uri;
        if self.is_web_address() {
            return strip_snapcast_keys(&uri.raw);
        }
        let mut pairs: Vec<String> = uri
            .query
            .iter()
            .filter(|(key, _)| self.is_source_key(key))
            .map(|(key, value)| format!("{key}={}", percent_encode(value)))
            .collect();
        // snapserver treats every file as raw samples and plays it in a loop; a file with a header
        // is decoded here.
        let says = [".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a", ".aac", ".aiff", ".mka"];
        let path = uri.path.to_ascii_lowercase();
        let decoded = uri.scheme == "file" && says.iter().any(|end| path.ends_with(end));
        if uri.scheme == "file" {
            pairs.push("loop=true".to_owned());
        }
        // The demo has the station's spec; an unknown scheme is kept, so that its check names it.
        let sampled = Scheme::find(&uri.scheme)
            .is_none_or(|scheme| scheme.name != "demo" && scheme.has_param("sampleformat"));
        if sampled && !decoded {
            let spec = self.spec.clone().unwrap_or_else(|| default.to_string());
            let spec = if self.is_packed() { packed(spec) } else { spec };
            pairs.push(format!("sampleformat={spec}"));
        }
        let query = if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) };
        let user =
            uri.user.as_ref().map_or_else(String::new, |user| format!("{}@", percent_encode(user)));
        format!("{}://{user}{}{}{query}", uri.scheme, uri.authority(), percent_encode(&uri.path))
    }

    /// The same stream with the port that the system chose for port 0.
    #[must_use]
    pub fn with_port(&self, port: u16, spec: SampleSpec) -> Self {
        let mut stream = self.clone();
        stream.uri.port = Some(port);
        let place = |uri: &Uri| format!("{}://{}", uri.scheme, uri.authority());
        let behind = self.uri.raw.find(['?', '#']).map_or("", |at| &self.uri.raw[at..]);
        stream.uri.raw = format!("{}{}{behind}", place(&stream.uri), stream.uri.path);
        stream.source = stream.source(spec);
        stream
    }

    /// Seconds of silence after which the stream is idle, as in a configuration.
    #[must_use]
    pub fn idle_s(&self) -> Option<f64> {
        self.idle_ms.map(|idle| (f64::from(idle) / 1e3).clamp(*SILENCE_S.start(), *SILENCE_S.end()))
    }

    /// The station of this stream; other settings are copied from `like`.
    ///
    /// # Errors
    /// [`StreamUriError::Station`] with every problem.
    pub fn station(&self, like: &StationSettings) -> Result<StationSettings, StreamUriError> {
        let codec = self.codec.clone().unwrap_or_else(|| like.codec.to_string());
        let wanted: SampleSpec =
            self.spec.as_ref().and_then(|spec| spec.parse().ok()).unwrap_or(like.spec);
        let problems = Problems::default();
        let parsed = codec::parse(&codec).unwrap_or_else(|(message, hint)| {
            problems.add_with_hint(ConfigLocation::Default, message, hint);
            like.codec
        });
        let default = ConfigValue::default_value;
        let spec = carried_spec(&codec, wanted);
        let inherited_chunk = like.chunk_ms.min(longest_chunk_ms(spec));
        let config = StationConfig {
            name: Some(ConfigValue::default_value(self.name.clone())),
            spec: ConfigValue::default_value(spec),
            codec: ConfigValue::default_value(parsed),
            chunk_ms: default(self.chunk_ms.unwrap_or(inherited_chunk)),
            buffer_ms: default(like.buffer_ms),
            sources: vec![SourceEntry {
                uri: ConfigValue::default_value(self.source.clone()),
                name: Some(ConfigValue::default_value(self.uri.scheme.clone())),
                ..SourceEntry::default()
            }],
            silence: SilenceConfig {
                for_s: self.idle_s().unwrap_or_else(|| SilenceConfig::default().for_s),
                ..SilenceConfig::default()
            },
            ..StationConfig::default()
        };
        let station = station::resolve(&config, &problems);
        if problems.is_empty() {
            return Ok(station);
        }
        Err(StreamUriError::Station(problems.errors_as_line()))
    }
}

/// Removes the keys that only snapserver reads from an HTTP URL; the rest of the query belongs to
/// the web server.
fn strip_snapcast_keys(raw: &str) -> String {
    let plain = raw.split('#').next().unwrap_or_default();
    let Some((address, query)) = plain.split_once('?') else { return plain.to_owned() };
    let theirs = query.split('&').filter(|pair| {
        let key = pair.split('=').next().unwrap_or_default();
        !pair.is_empty() && !SNAPCAST_KEYS.contains(&key)
    });
    let theirs: Vec<_> = theirs.collect();
    if theirs.is_empty() { address.to_owned() } else { format!("{address}?{}", theirs.join("&")) }
}

/// The longest chunk that a station of this spec can have, in whole milliseconds.
fn longest_chunk_ms(spec: SampleSpec) -> u32 {
    let samples = u64::from(spec.rate.hz()) * spec.layout.channels() as u64;
    u32::try_from(BLOCK_SAMPLES as u64 * 1_000 / samples.max(1)).unwrap_or(u32::MAX)
}

/// The same spec with 24 bits in 3 bytes, if it has 24 bits.
fn packed(text: String) -> String {
    match text.parse::<SampleSpec>() {
        Ok(spec) if spec.format == SampleFormat::S24In32Le => {
            SampleSpec { format: SampleFormat::S24Le, ..spec }.to_string()
        }
        _ => text,
    }
}

/// The key for 24 bits in 3 bytes, and its alias.
const PACKED_KEYS: [&str; 2] = ["packed_s24le", "packed_s24"];

/// The keys of a stream URI that belong to the stream and not to its source.
const SNAPCAST_KEYS: [&str; 9] = [
    "name",
    "codec",
    "sampleformat",
    "chunk_ms",
    "idle_threshold",
    "controlscript",
    "controlscriptparams",
    PACKED_KEYS[0],
    PACKED_KEYS[1],
];

/// The parsed URI of an announced file.
#[derive(Clone, Debug, PartialEq)]
pub struct AnnouncementUri {
    /// The URI as given.
    pub uri: Uri,
    /// A file that ends.
    pub config: SourceConfig,
}

/// Parses the URI of an announced file.
///
/// # Errors
/// What is wrong with it, for display.
pub fn parse_announcement(text: &str) -> Result<AnnouncementUri, String> {
    let problems = Problems::default();
    let parsed = source::parse(&ConfigValue::default_value(text.to_owned()), &problems);
    let parsed = parsed.and_then(|(mut sources, _)| sources.pop());
    match (parsed, text.parse()) {
        (Some(config), Ok(uri)) if problems.is_empty() => match config {
            config if config.ends() => Ok(AnnouncementUri { uri, config }),
            SourceConfig::File(_) => {
                Err("the sound must be a file that ends: remove loop=true".to_owned())
            }
            _ => {
                Err("the sound must be a file or a URL: file:///path, http://host/path".to_owned())
            }
        },
        _ => Err(problems.errors_as_line()),
    }
}

/// The spec of the station's output for a source of this spec.
pub(crate) fn carried_spec(codec: &str, wanted: SampleSpec) -> SampleSpec {
    let codec = codec.split(':').next().unwrap_or_default();
    let Ok(codec) = codec.parse::<Codec>() else { return wanted };
    let info = codec.info();
    let rate =
        if info.supports_rate(wanted.rate.hz()) { wanted.rate } else { SampleRate::HZ_48000 };
    SampleSpec { rate, format: info.nearest_format(wanted.format), ..wanted }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn like() -> StationSettings {
        let text = "[[station]]\nname = \"default\"\nsources = [\"demo://\"]\nbuffer_ms = 700";
        let file = crate::ConfigFile { name: "t", text };
        let env = crate::Environment::default();
        crate::load(Some(file), &[], &env).unwrap().stations.remove(0)
    }

    fn stream(text: &str) -> StreamUri {
        StreamUri::parse(text, SampleSpec::DEFAULT).unwrap()
    }

    #[test]
    fn what_music_assistant_adds() {
        let text = "tcp://0.0.0.0:4953?sampleformat=48000:16:2&idle_threshold=60000\
                    &controlscript=control.py&controlscriptparams=--queueid=a%20b&\
                    name=Music Assistant - osmc4";
        let stream = stream(text);
        assert_eq!(stream.name, "Music Assistant - osmc4");
        assert_eq!(stream.source, "tcp://0.0.0.0:4953?sampleformat=48000:16:2");
        assert_eq!(stream.script, Some(("control.py".into(), "--queueid=a b".into())));
        let station = stream.station(&like()).unwrap();
        assert_eq!((station.name.as_str(), station.buffer_ms), ("Music Assistant - osmc4", 700));
        assert_eq!(station.silence.duration, aulos_core::Span::from_secs(60));
    }

    #[test]
    fn packed_samples_of_24_bits_take_three_bytes() {
        for (query, source) in [
            ("sampleformat=48000:24:2&packed_s24le=true", "48000:s24:2"),
            ("packed_s24=true&sampleformat=96000:24:2", "96000:s24:2"),
            ("sampleformat=48000:24:2&packed_s24le=false", "48000:24:2"),
            ("sampleformat=48000:24:2", "48000:24:2"),
            ("sampleformat=48000:16:2&packed_s24le=true", "48000:16:2"),
        ] {
            let stream = stream(&format!("tcp://0.0.0.0:4953?{query}&name=x"));
            assert_eq!(stream.source, format!("tcp://0.0.0.0:4953?sampleformat={source}"));
            assert!(stream.ignored_keys.is_empty(), "{:?}", stream.ignored_keys);
            // The station carries the same values, in the format of its codec.
            let carried = stream.station(&like()).unwrap().spec;
            assert_eq!(Some(carried.to_string()), stream.spec, "{query}");
        }
    }

    /// Music Assistant's rates, beside a station whose chunks are longer than these can have.
    #[test]
    fn chunks_fit_into_every_rate() {
        for codec in ["flac", "pcm"] {
            for (rate, chunk_ms) in [(48_000, 60), (96_000, 42), (192_000, 21)] {
                let like =
                    StationSettings { codec: codec.parse().unwrap(), chunk_ms: 60, ..like() };
                let uri = format!("tcp://0.0.0.0:4953?sampleformat={rate}:24:2&name=x");
                let station = stream(&uri).station(&like).unwrap();
                assert_eq!((station.spec.rate.hz(), station.chunk_ms), (rate, chunk_ms), "{codec}");
            }
        }
        let asked = stream("tcp://0.0.0.0:4953?sampleformat=96000:16:2&chunk_ms=60&name=x");
        asked.station(&like()).unwrap_err();
    }

    #[test]
    fn what_pipewire_adds() {
        let text = "tcp://192.0.2.7:40001?name=box&sampleformat=48000:16:2&mode=client&codec=pcm\
                    &chunk_ms=20";
        let station = stream(text).station(&like()).unwrap();
        assert_eq!((station.codec.codec(), station.chunk_ms), (Codec::Pcm, 20));
        assert_eq!(
            station.sources[0].uri,
            "tcp://192.0.2.7:40001?mode=client&sampleformat=48000:16:2"
        );
    }

    #[test]
    fn a_port_that_the_system_chose_is_shown() {
        let stream = stream("tcp://0.0.0.0:0?name=a b").with_port(4_999, SampleSpec::DEFAULT);
        assert_eq!(stream.uri.raw, "tcp://0.0.0.0:4999?name=a b");
        assert_eq!(stream.uri.authority(), "0.0.0.0:4999");
        assert!(stream.source.starts_with("tcp://0.0.0.0:4999?"));
    }

    #[test]
    fn formats_become_what_the_codec_can_carry() {
        for (text, codec, spec) in [
            ("pipe:///a?name=x&codec=opus&sampleformat=44100:24:2", Codec::Opus, "48000:16:2"),
            ("pipe:///a?name=x&codec=flac:8&sampleformat=96000:32:2", Codec::Flac, "96000:24:2"),
            ("pipe:///a?name=x&codec=pcm&sampleformat=44100:32:1", Codec::Pcm, "44100:32:1"),
        ] {
            let station = stream(text).station(&like()).unwrap();
            let got = (station.codec.codec(), station.spec);
            assert_eq!(got, (codec, spec.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn settings_of_the_encoder_are_kept() {
        for (query, settings) in [
            ("codec=flac:8", "flac:8"),
            ("codec=FLAC:0", "flac:0"),
            ("codec=opus:BITRATE:128000,COMPLEXITY:9", "opus:128k,complexity=9"),
            ("codec=opus", "opus"),
            ("chunk_ms=20", "opus:96k,cbr"),
        ] {
            let like = StationSettings { codec: "opus:96k,cbr".parse().unwrap(), ..like() };
            let station = stream(&format!("pipe:///a?name=x&{query}")).station(&like).unwrap();
            assert_eq!(station.codec.to_string(), settings, "{query}");
        }
        let error = stream("pipe:///a?name=x&codec=flac:9").station(&like()).unwrap_err();
        let wanted = "`codec` is \"flac:9\": the compression level of flac is an integer from \
                      0 to 8 (use flac:0 (least CPU) to flac:8 (smallest), or `flac` alone)";
        assert_eq!(error.to_string(), wanted);
    }

    #[test]
    fn what_is_said_of_rtp_is_kept() {
        let text = "rtp://0.0.0.0:5004?name=x&payload=opus&payload_type=111&red=63&delay=20-200";
        let (stream, source) = (stream(text), "payload=opus&payload_type=111&red=63&delay=20-200");
        assert!(stream.ignored_keys.is_empty(), "{:?}", stream.ignored_keys);
        assert!(source.split('&').all(|key| stream.source.contains(key)), "{}", stream.source);
    }

    #[test]
    fn what_cannot_be_made_says_why() {
        let parse = |text| StreamUri::parse(text, SampleSpec::DEFAULT);
        assert_eq!(parse("pipe:///tmp/x"), Err(StreamUriError::NoName));
        assert_eq!(parse("/tmp/x"), Err(StreamUriError::Uri(UriError::NoScheme)));
        let error = stream("pipe:///a?name=x&codec=ogg").station(&like()).unwrap_err();
        assert!(error.to_string().contains("`ogg` is not a codec"), "{error}");
        let error = stream("jack://x?name=x").station(&like()).unwrap_err();
        assert!(error.to_string().contains("not built yet"), "{error}");
    }

    #[test]
    fn files_are_decoded_where_they_say_what_they_hold() {
        assert_eq!(stream("file:///a b.flac?name=x").source, "file:///a%20b.flac?loop=true");
        let raw = stream("file:///x?name=x&dryout_ms=1");
        assert_eq!(raw.source, "file:///x?loop=true&sampleformat=48000:16:2");
        assert_eq!(raw.ignored_keys, ["dryout_ms"]);
    }
}
