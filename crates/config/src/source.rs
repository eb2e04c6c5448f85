//! Parses source URIs.

use std::path::PathBuf;

use aulos_core::{Db, SampleSpec};
use aulos_io::SourcePath;
use aulos_proto::http::HttpUrl;
use aulos_proto::uri::{Uri, UriError};

use super::limits::TONE_DBFS;
use super::mounts::{self, Mount};
use super::problem::{ConfigValue, Problems, did_you_mean, quoted_list};
use super::resolve::{Endpoint, endpoint};
use super::rtp::{self, ReceptionSettings, RtpSource};

/// A parsed source. For raw sources, the spec is that of the incoming samples.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceConfig {
    /// The built-in demo programme.
    Demo {
        /// The generated spec.
        spec: SampleSpec,
    },
    /// A sine tone.
    Tone {
        /// Frequency, below half the rate.
        hz: f64,
        /// Peak level.
        dbfs: Db,
        /// The generated spec.
        spec: SampleSpec,
    },
    /// Raw samples from standard input.
    Stdin {
        /// The incoming spec.
        spec: SampleSpec,
    },
    /// Raw samples from a FIFO.
    Pipe {
        /// The path.
        path: SourcePath,
        /// Whether the FIFO is created.
        mode: PipeMode,
        /// The incoming spec.
        spec: SampleSpec,
    },
    /// A file.
    File {
        /// The path.
        path: SourcePath,
        /// Whether it is played in a loop.
        repeat: bool,
        /// The spec of raw samples; none for a file with a header.
        spec: Option<SampleSpec>,
    },
    /// Raw samples from the standard output of a child process.
    Process {
        /// The program.
        path: PathBuf,
        /// Its arguments in one string, as written.
        params: String,
        /// The incoming spec.
        spec: SampleSpec,
        /// Whether its standard error is logged.
        log_stderr: bool,
        /// The FIFO for its titles.
        titles: Option<TitleFifo>,
    },
    /// Web radio, or a file on a web server.
    Http {
        /// The URL.
        url: HttpUrl,
    },
    /// The programme of another station, before announcements.
    Station {
        /// Its name.
        name: String,
    },
    /// Raw samples from a TCP client.
    TcpServer {
        /// The address to listen on.
        address: Endpoint,
        /// The incoming spec.
        spec: SampleSpec,
    },
    /// Raw samples from a TCP server.
    TcpClient {
        /// The address to connect to; the port is never 0.
        address: Endpoint,
        /// The incoming spec.
        spec: SampleSpec,
    },
    /// A live source on a mount.
    Icecast(Mount),
    /// RTP packets.
    Rtp(RtpSource),
    /// RTP packets according to an SDP file.
    Sdp {
        /// The path of the SDP file.
        path: SourcePath,
        /// Reception settings.
        reception: ReceptionSettings,
    },
}

/// The FIFO through which a player reports its titles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TitleFifo {
    /// The format of the data.
    pub kind: TitleFormat,
    /// The path; empty until the source belongs to a station.
    pub fifo: PathBuf,
}

/// Formats of title reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TitleFormat {
    /// librespot's log.
    Librespot,
    /// shairport-sync's metadata pipe.
    Airplay,
}

/// Whether a FIFO is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipeMode {
    /// The server creates it, for its user only (0600).
    Create,
    /// Another program creates it.
    Read,
}

impl SourceConfig {
    /// Restricts the source to paths below these directories.
    pub fn confine(&mut self, roots: &[PathBuf]) {
        if let Self::File { path, .. } | Self::Pipe { path, .. } | Self::Sdp { path, .. } = self {
            *path = path.clone().confined_to(roots);
        }
    }

    /// The scheme of its URI.
    #[must_use]
    pub const fn scheme(&self) -> &'static str {
        match self {
            Self::Demo { .. } => "demo",
            Self::Tone { .. } => "tone",
            Self::Stdin { .. } => "stdin",
            Self::Pipe { .. } => "pipe",
            Self::File { .. } => "file",
            Self::Process { .. } => "process",
            Self::Http { url } => {
                if url.secure {
                    "https"
                } else {
                    "http"
                }
            }
            Self::Station { .. } => "meta",
            Self::TcpServer { .. } | Self::TcpClient { .. } => "tcp",
            Self::Icecast(_) => "icecast",
            Self::Rtp(_) => "rtp",
            Self::Sdp { .. } => "sdp",
        }
    }

    /// Whether it delivers on demand, without a pace of its own.
    #[must_use]
    pub const fn is_on_demand(&self) -> bool {
        matches!(self, Self::Demo { .. } | Self::Tone { .. } | Self::File { .. })
    }

    /// The incoming spec; `None` if the data has its own header, and for another station.
    #[must_use]
    pub const fn spec(&self) -> Option<SampleSpec> {
        match self {
            Self::File { spec, .. } => *spec,
            Self::Http { .. }
            | Self::Station { .. }
            | Self::Icecast(_)
            | Self::Rtp(_)
            | Self::Sdp { .. } => None,
            Self::Demo { spec }
            | Self::Tone { spec, .. }
            | Self::Stdin { spec }
            | Self::Pipe { spec, .. }
            | Self::Process { spec, .. }
            | Self::TcpServer { spec, .. }
            | Self::TcpClient { spec, .. } => Some(*spec),
        }
    }
}

/// Parses a URI; returns the sources and the name in its query. There is one source, or several for
/// `meta:`. Problems are reported; `None` if there is no usable source.
pub(super) fn parse(
    text: &ConfigValue<String>,
    problems: &Problems,
) -> Option<(Vec<SourceConfig>, Option<String>)> {
    let uri = match text.value.parse::<Uri>() {
        Ok(uri) => uri,
        Err(UriError::NoScheme) => {
            let path = text.value.starts_with('/');
            let hint = if path { "file:// plus the path, or pipe:// for a FIFO" } else { SCHEMES };
            problems.add_with_hint(text.at, format!("\"{}\" is not a source", text.value), hint);
            return None;
        }
        Err(error) => {
            let start: String = text.value.chars().take(60).collect();
            problems.add_with_hint(
                text.at,
                format!("\"{start}\" is not a source"),
                error.to_string(),
            );
            return None;
        }
    };
    let mut query = UriQuery { uri: &uri, at: text, known_keys: Vec::new(), problems };
    let name = query.text("name").map(str::to_owned);
    let sources = match uri.scheme.as_str() {
        "meta" => stations(&query)?,
        // The whole query belongs to the server; a `name` in it is used as well.
        "http" | "https" => {
            return match text.value.parse::<HttpUrl>() {
                Ok(url) => Some((vec![SourceConfig::Http { url }], name)),
                Err(error) => {
                    let hint = "as in http://radio.example/live";
                    problems.add_with_hint(text.at, format!("\"{uri}\": {error}"), hint);
                    None
                }
            };
        }
        _ => vec![scheme(&mut query)?],
    };
    query.finish();
    Some((sources, name))
}

/// The stations of `meta:///a/b`, in order of priority. As in snapserver, empty parts are skipped,
/// and a name in place of the host counts.
fn stations(query: &UriQuery<'_>) -> Option<Vec<SourceConfig>> {
    let uri = query.uri;
    let host = uri.authority();
    let names = std::iter::once(host.as_str()).chain(uri.path.split('/'));
    let names: Vec<String> =
        names.map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if names.is_empty() {
        query.refuse(
            format!("\"{}\" names no station", uri.raw),
            "the names of stations in order of priority, as in meta:///kitchen/radio",
        );
        return None;
    }
    Some(names.into_iter().map(|name| SourceConfig::Station { name }).collect())
}

fn scheme(query: &mut UriQuery<'_>) -> Option<SourceConfig> {
    let uri = query.uri;
    Some(match uri.scheme.as_str() {
        "demo" => SourceConfig::Demo { spec: query.spec()? },
        "tone" => return tone(query),
        "stdin" => SourceConfig::Stdin { spec: query.spec()? },
        "pipe" => {
            let mode = match query.choice("mode", &["create", "read"]) {
                Some("read") => PipeMode::Read,
                _ => PipeMode::Create,
            };
            SourceConfig::Pipe { path: query.path()?.into(), mode, spec: query.spec()? }
        }
        "file" => {
            let path = query.path()?;
            let raw = query.uri.get("sampleformat").is_some()
                || path.extension().is_some_and(|end| end == "raw" || end == "pcm");
            let spec = query.spec()?;
            let repeat = query.flag("loop");
            SourceConfig::File { path: path.into(), repeat, spec: raw.then_some(spec) }
        }
        "process" => SourceConfig::Process {
            path: query.path()?,
            params: query.text("params").unwrap_or_default().to_owned(),
            spec: query.spec()?,
            log_stderr: query.flag("log_stderr"),
            titles: None,
        },
        "tcp" => return tcp(query),
        "icecast" => return mounts::parse(query).map(SourceConfig::Icecast),
        "rtp" => return rtp::parse_source(query),
        "sdp" => return rtp::parse_description(query),
        "librespot" | "spotify" => librespot(query)?,
        "airplay" => airplay(query)?,
        other => {
            report_unknown_scheme(other, query);
            return None;
        }
    })
}

fn tone(query: &mut UriQuery<'_>) -> Option<SourceConfig> {
    let spec = query.spec()?;
    let top = f64::from(spec.rate.hz()) / 2.0;
    let hz = query.real("hz", 997.0);
    if !(hz > 0.0 && hz < top) {
        query.refuse(format!("hz={hz}: a tone is above 0 and below {top} Hz"), "hz=997");
    }
    let dbfs = query.real("dbfs", -20.0);
    if !TONE_DBFS.contains(&dbfs) {
        query.refuse(format!("dbfs={dbfs}: a level is -120 to 0 dBFS"), "dbfs=-20");
    }
    Some(SourceConfig::Tone { hz, dbfs: Db::new(dbfs), spec })
}

fn tcp(query: &mut UriQuery<'_>) -> Option<SourceConfig> {
    let client = query.choice("mode", &["server", "client"]) == Some("client");
    let spec = query.spec()?;
    let host = if client { None } else { Some("0.0.0.0") };
    let authority = query.uri.authority();
    let Some(address) = endpoint(&authority, host, Some(TCP_PORT)) else {
        let message = format!("\"{authority}\" is not HOST:PORT");
        query.refuse(message, "as in tcp://0.0.0.0:4953, or tcp://HOST:4953?mode=client");
        return None;
    };
    if client && address.port == 0 {
        query.refuse("nobody can be reached at port 0".to_owned(), "name the port");
    }
    Some(if client {
        SourceConfig::TcpClient { address, spec }
    } else {
        SourceConfig::TcpServer { address, spec }
    })
}

/// The parameters of `librespot:`.
pub(super) const LIBRESPOT: [&str; 12] = [
    "devicename",
    "bitrate",
    "volume",
    "username",
    "password",
    "cache",
    "disable_audio_cache",
    "normalize",
    "autoplay",
    "onevent",
    "params",
    "titles",
];
/// The parameters of `airplay:`.
pub(super) const AIRPLAY: [&str; 5] = ["devicename", "port", "password", "params", "titles"];

/// Spotify, played by librespot to standard output.
fn librespot(query: &mut UriQuery<'_>) -> Option<SourceConfig> {
    let mut line = String::from("--backend pipe --name ");
    line += &quote(query.text("devicename").unwrap_or("Snapcast"));
    line += &format!(" --bitrate {}", quote(query.text("bitrate").unwrap_or("320")));
    line += &format!(" --initial-volume {}", quote(query.text("volume").unwrap_or("100")));
    for (key, option) in [
        ("username", "--username"),
        ("password", "--password"),
        ("cache", "--cache"),
        ("onevent", "--onevent"),
    ] {
        if let Some(value) = query.text(key).filter(|value| !value.is_empty()) {
            line += &format!(" {option} {}", quote(value));
        }
    }
    for (key, option) in [
        ("disable_audio_cache", "--disable-audio-cache"),
        ("normalize", "--enable-volume-normalisation"),
        ("autoplay", "--autoplay"),
    ] {
        if query.flag(key) {
            line += &format!(" {option}");
        }
    }
    player_process(query, line, TitleFormat::Librespot)
}

/// `AirPlay`, played by shairport-sync to standard output.
fn airplay(query: &mut UriQuery<'_>) -> Option<SourceConfig> {
    let mut line = String::from("--output=stdout ");
    line += &quote(&format!("--name={}", query.text("devicename").unwrap_or("Snapcast")));
    line += &format!(" {}", quote(&format!("--port={}", query.text("port").unwrap_or("5000"))));
    if let Some(password) = query.text("password").filter(|password| !password.is_empty()) {
        line += &format!(" {}", quote(&format!("--password={password}")));
    }
    player_process(query, line, TitleFormat::Airplay)
}

/// A player process with 44.1 kHz output; without a slash it is looked up in `PATH`.
fn player_process(
    query: &mut UriQuery<'_>,
    mut params: String,
    kind: TitleFormat,
) -> Option<SourceConfig> {
    if let Some(more) = query.text("params") {
        params += &format!(" {more}");
    }
    let path = query.path()?;
    let name = path.strip_prefix("/").ok().filter(|rest| rest.components().count() == 1);
    let path = name.map_or_else(|| path.clone(), PathBuf::from);
    let spec = "44100:16:2".parse().unwrap_or(SampleSpec::DEFAULT);
    // A shairport-sync built without metadata support does not start with these options.
    let titles = query.choice("titles", &["true", "false"]) != Some("false");
    let titles = titles.then(|| TitleFifo { kind, fifo: PathBuf::new() });
    Some(SourceConfig::Process { path, params, spec, log_stderr: false, titles })
}

/// Quotes one argument for [`aulos_io::feed::split_arguments`].
fn quote(argument: &str) -> String {
    format!("\"{}\"", argument.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Snapcast's default port of TCP sources.
const TCP_PORT: u16 = 4953;

fn report_unknown_scheme(scheme: &str, query: &UriQuery<'_>) {
    let later = PLANNED_SCHEMES.iter().find(|(name, _)| *name == scheme);
    if let Some((_, instead)) = later {
        query.refuse(format!("`{scheme}://` is not built yet in this version"), instead);
        return;
    }
    let hint = match did_you_mean(scheme, &KNOWN_SCHEMES) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => SCHEMES.to_owned(),
    };
    query.refuse(format!("`{scheme}` is not a kind of source"), &hint);
}

const KNOWN_SCHEMES: [&str; 15] = [
    "demo",
    "tone",
    "stdin",
    "pipe",
    "file",
    "process",
    "tcp",
    "http",
    "https",
    "icecast",
    "rtp",
    "sdp",
    "meta",
    "librespot",
    "airplay",
];
const SCHEMES: &str = "a source begins with demo: tone: stdin: pipe: file: process: tcp: http: https: icecast: rtp: sdp: or meta:";

/// Planned schemes, and today's alternative.
const PLANNED_SCHEMES: [(&str, &str); 7] = [
    ("pulse", "process:///usr/bin/parec?params=--format=s16le --rate=48000 --channels=2"),
    ("alsa", "process:///usr/bin/arecord?params=-t raw -f S16_LE -r 48000 -c 2"),
    ("pipewire", "process:///usr/bin/pw-record?params=--rate 48000 -"),
    ("jack", "let jack write to a FIFO, and read it with pipe://"),
    ("snapcast", "process:///usr/bin/snapclient?params=-h HOST --player file"),
    ("nats", "send raw samples to tcp://0.0.0.0:4953"),
    ("udp", "send raw samples to tcp://0.0.0.0:4953"),
];

/// Reads the query of a URI, and reports unknown keys.
pub(super) struct UriQuery<'a> {
    pub(super) uri: &'a Uri,
    at: &'a ConfigValue<String>,
    known_keys: Vec<&'static str>,
    problems: &'a Problems,
}

impl<'a> UriQuery<'a> {
    pub(super) fn text(&mut self, key: &'static str) -> Option<&'a str> {
        self.known_keys.push(key);
        self.uri.get(key)
    }

    fn spec(&mut self) -> Option<SampleSpec> {
        let Some(text) = self.text("sampleformat") else { return Some(SampleSpec::DEFAULT) };
        match text.parse() {
            Ok(spec) => Some(spec),
            Err(error) => {
                self.refuse(format!("sampleformat={text}"), &format!("{error}"));
                None
            }
        }
    }

    pub(super) fn path(&self) -> Option<PathBuf> {
        let uri = self.uri;
        if uri.authority().is_empty() && uri.path.len() > 1 && !uri.path.contains('\0') {
            return Some(PathBuf::from(&uri.path));
        }
        let scheme = &uri.scheme;
        let hint = format!("three slashes and a path, as in {scheme}:///srv/music");
        self.refuse(format!("\"{}\" names no path", uri.raw), &hint);
        None
    }

    pub(super) fn choice(&mut self, key: &'static str, of: &[&str]) -> Option<&'a str> {
        let text = self.text(key)?;
        if of.contains(&text) {
            return Some(text);
        }
        self.refuse(format!("{key}={text}"), &format!("it can be {}", quoted_list(of)));
        None
    }

    fn flag(&mut self, key: &'static str) -> bool {
        matches!(self.choice(key, &["true", "false", "1", "0"]), Some("true" | "1"))
    }

    fn real(&mut self, key: &'static str, default: f64) -> f64 {
        let Some(text) = self.text(key) else { return default };
        text.parse().ok().filter(|number: &f64| number.is_finite()).unwrap_or_else(|| {
            self.refuse(format!("{key}={text} is not a number"), &format!("{key}={default}"));
            default
        })
    }

    pub(super) fn refuse(&self, message: String, hint: &str) {
        self.problems.add_with_hint(self.at.at, message, hint);
    }

    fn finish(self) {
        for (key, _) in &self.uri.query {
            if self.known_keys.contains(&key.as_str()) {
                continue;
            }
            let station = STATION_KEYS.iter().find(|(theirs, _)| theirs == key);
            let hint = match (station, did_you_mean(key, &self.known_keys)) {
                (Some((_, ours)), _) => (*ours).to_owned(),
                (None, Some(meant)) => format!("did you mean `{meant}`?"),
                (None, None) => format!("there is {}", quoted_list(&self.known_keys)),
            };
            self.refuse(format!("`{}:` has no parameter `{key}`", self.uri.scheme), &hint);
        }
    }
}

/// Keys that other programs write into the source URI, and where they belong here.
const STATION_KEYS: [(&str, &str); 9] = [
    ("codec", "write `codec` into the [[station]]"),
    ("chunk_ms", "write `chunk_ms` into the [[station]]"),
    ("buffer_ms", "write `buffer_ms` into the [[station]]"),
    ("latency", "a table with a buffer: { uri = \"rtp://...\", input_buffer_ms = 200 }"),
    ("ptime", "leave it out: each packet says how long it is"),
    ("localaddr", "write `interface`, the card's name or its address"),
    ("idle_threshold", "write `silence = { below_dbfs = -60.0, for_s = 10 }`"),
    ("controlscript", "write `plugin = { script = \"...\" }` into the [[station]]"),
    ("controlscriptparams", "write `plugin = { script = \"...\", params = \"...\" }`"),
];
