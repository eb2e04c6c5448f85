//! `now_playing` of a station: a file with its title, and what is told of its titles.

use std::path::PathBuf;

use aulos_core::Span;
use aulos_proto::titles::{TemplateError, TitleCharset, TitleTemplate};

use crate::hooks::{Webhook, resolve_url};
use crate::keys::{NamedEnum, keys};
use crate::limits::{MAX_TITLE_INTERVAL, MAX_TITLE_OUTPUTS, MAX_TITLE_TEMPLATE, UECP_ADDRESS};
use crate::names::{Endpoint, absolute_path, endpoint};
use crate::problem::{ConfigValue, Problems};

keys! {
    /// What a station plays: a text file that says it, and outputs that are told, such as encoders
    /// of RDS and DAB+.
    pub(crate) struct NowPlayingConfig {
        /// Text file of automation with `Artist - Title` in its first line. It is read again when it
        /// changes; the latest of file, request and source is shown.
        file: Option<ConfigValue<String>>, default_doc "none";
        /// Charset of the file if it is not UTF-8: a label of the Encoding Standard.
        charset: Option<ConfigValue<String>>, default_doc "windows-1252";
        /// Outputs that get each title.
        outputs: Vec<TitleOutputConfig>;
    }

    /// An output that gets each title as a text: a file, an encoder, or a program.
    pub(crate) struct TitleOutputConfig {
        /// Receiver: `file:///PATH`, which is replaced, `udp://HOST:PORT`, `tcp://HOST:PORT`, whose
        /// connection is kept, or `http://` and `https://`. In the path and query of a web address
        /// the fields of `format` are replaced, percent-encoded.
        url: Option<ConfigValue<String>>, required "outputs = [{ url = \"tcp://192.0.2.7:5001\" }]";
        /// Text with fields in braces: `{song}` (artist and title, without them the station's name),
        /// `{artist}`, `{title}`, `{album}`, `{duration}` in seconds, `{station}`, `{next}`; `{{` is
        /// a brace. A web address with `format` gets it in a POST request, without it a GET request.
        format: Option<ConfigValue<String>>, default_doc "`{song}`, and a line end over TCP";
        /// Form of the text: itself, a frame of UECP with the radio text of RDS, or the file of
        /// ODR-PadEnc with tags of DL Plus.
        protocol: ConfigValue<TitleProtocol> = TitleProtocol::Text;
        /// Charset: `utf-8`, `latin-1`, or `rds`, which has no accents and is that of UECP.
        charset: Option<ConfigValue<OutputCharset>>, default_doc "`utf-8`, and `rds` with UECP";
        /// Programme service name for UECP, of at most 8 letters, with fields as in `format`.
        ps: Option<ConfigValue<String>>, default_doc "not sent";
        /// Address for UECP: that of the site times 64, and that of the encoder; 0 is every encoder.
        address: u32 = 0, range UECP_ADDRESS, "";
        /// Least time from one text to the next; of titles that come meanwhile the newest is sent.
        interval: Option<ConfigValue<Span>>, default_doc "none";
    }
}

/// What a station's titles come from besides its sources, and what is told of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NowPlayingSettings {
    /// The file of automation.
    pub file: Option<PathBuf>,
    /// Its charset if it is not UTF-8.
    pub charset: TitleCharset,
    /// The outputs.
    pub outputs: Vec<TitleOutputSettings>,
}

/// An output for titles.
#[derive(Clone, Debug, PartialEq)]
pub struct TitleOutputSettings {
    /// The receiver.
    pub target: TitleTarget,
    /// The text.
    pub format: TitleTemplate,
    /// The form of the text.
    pub protocol: TitleProtocol,
    /// The letters of the text.
    pub charset: OutputCharset,
    /// The programme service name for UECP.
    pub service_name: Option<TitleTemplate>,
    /// The address for UECP.
    pub address: u16,
    /// Least time from one text to the next.
    pub interval: Span,
}

/// What receives a station's titles.
#[derive(Clone, Debug, PartialEq)]
pub enum TitleTarget {
    /// A file, which is replaced.
    File(PathBuf),
    /// A datagram for each text.
    Udp(Endpoint),
    /// A connection that is kept.
    Tcp(Endpoint),
    /// A request for each text.
    Http {
        /// The server; its target is `path` without fields replaced.
        server: Webhook,
        /// Path and query.
        path: TitleTemplate,
        /// Whether the text is sent in the body of a POST request.
        has_body: bool,
    },
}

/// The form of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TitleProtocol {
    /// The text itself.
    #[default]
    Text,
    /// Frames of the Universal Encoder Communication Protocol.
    Uecp,
    /// A dynamic label with tags of DL Plus.
    DlPlus,
}

/// The letters of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputCharset {
    /// UTF-8.
    #[default]
    Utf8,
    /// ISO 8859-1; other letters lose their accents.
    Latin1,
    /// Letters without accents.
    Rds,
}

impl NamedEnum for TitleProtocol {
    fn values() -> Vec<(&'static str, Self)> {
        vec![("text", Self::Text), ("uecp", Self::Uecp), ("dl-plus", Self::DlPlus)]
    }
}

impl NamedEnum for OutputCharset {
    fn values() -> Vec<(&'static str, Self)> {
        vec![("utf-8", Self::Utf8), ("latin-1", Self::Latin1), ("rds", Self::Rds)]
    }
}

impl TitleTarget {
    /// The receiver for messages: without the path and query of a web address, which may be secret.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => format!("file://{}", path.display()),
            Self::Udp(to) => format!("udp://{to}"),
            Self::Tcp(to) => format!("tcp://{to}"),
            Self::Http { server, .. } => server.origin(),
        }
    }
}

/// Validates what a station says of its titles.
pub(crate) fn resolve(
    config: Option<&NowPlayingConfig>,
    problems: &Problems,
) -> NowPlayingSettings {
    let Some(config) = config else { return NowPlayingSettings::default() };
    if let Some(output) = config.outputs.get(MAX_TITLE_OUTPUTS) {
        let message = format!("a station has at most {MAX_TITLE_OUTPUTS} outputs for titles");
        problems.add(output.at, message);
    }
    let charset = config.charset.as_ref().and_then(|label| title_charset(label, problems));
    NowPlayingSettings {
        file: config.file.as_ref().map(|file| absolute_path("file", file, problems)),
        charset: charset.unwrap_or_default(),
        outputs: config.outputs.iter().filter_map(|one| output(one, problems)).collect(),
    }
}

/// The charset of a label of the Encoding Standard.
pub(crate) fn title_charset(
    label: &ConfigValue<String>,
    problems: &Problems,
) -> Option<TitleCharset> {
    let known = TitleCharset::of_label(&label.value);
    if known.is_none() {
        let message = format!("unknown charset \"{}\"", label.value);
        let hint = "a label of the Encoding Standard, such as windows-1251 or KOI8-R";
        problems.add_with_hint(label.at, message, hint);
    }
    known
}

fn output(config: &TitleOutputConfig, problems: &Problems) -> Option<TitleOutputSettings> {
    let url = config.url.as_ref()?;
    let target = target(url, config.format.is_some(), problems);
    let ConfigValue { value: protocol, at } = config.protocol;
    let is_uecp = protocol == TitleProtocol::Uecp;
    if let Some(ps) = config.ps.as_ref().filter(|_| !is_uecp) {
        problems.add_with_hint(ps.at, "`ps` requires UECP", "protocol = \"uecp\"");
    }
    let charset = config.charset.map(|charset| charset.value);
    if let (Some(given), true) = (config.charset, is_uecp && charset != Some(OutputCharset::Rds)) {
        let message = "`charset` of UECP is \"rds\"";
        problems.add_with_hint(given.at, message, "leave it out");
    }
    if let (TitleProtocol::DlPlus, Some(TitleTarget::Udp(_) | TitleTarget::Tcp(_))) =
        (protocol, &target)
    {
        let hint = "url = \"file:///run/aulos/dls.txt\", which is that of odr-padenc -t";
        problems.add_with_hint(at, "`dl-plus` is the form of a file", hint);
    }
    let interval = config.interval.map_or(Span::ZERO, |interval| interval.value);
    if let Some(given) = config.interval.filter(|given| given.value > MAX_TITLE_INTERVAL) {
        let most = MAX_TITLE_INTERVAL.as_millis() / 1_000;
        let message = format!("`interval` must last at most {most} s");
        problems.add_with_hint(given.at, message, "interval = \"10s\"");
    }
    let target = target?;
    let format = match &config.format {
        Some(format) => template("format", format, problems)?,
        // The texts of a connection need an end.
        None if matches!(target, TitleTarget::Tcp(_)) && !is_uecp => "{song}\n".parse().ok()?,
        None => "{song}".parse().ok()?,
    };
    Some(TitleOutputSettings {
        target,
        format,
        protocol,
        charset: charset.unwrap_or(if is_uecp { OutputCharset::Rds } else { OutputCharset::Utf8 }),
        service_name: config.ps.as_ref().and_then(|ps| template("ps", ps, problems)),
        address: u16::try_from(config.address).unwrap_or(0),
        interval,
    })
}

fn target(url: &ConfigValue<String>, has_body: bool, problems: &Problems) -> Option<TitleTarget> {
    let ConfigValue { value: text, at } = url;
    let (scheme, rest) = text.split_once("://").unwrap_or_default();
    let to = || {
        let found = endpoint(rest, None, None);
        if found.is_none() {
            let message = format!("`url` is \"{text}\": it must have a host and a port");
            problems.add_with_hint(*at, message, format!("url = \"{scheme}://192.0.2.7:5001\""));
        }
        found
    };
    match scheme {
        "file" => {
            let path = ConfigValue { value: rest.to_owned(), at: *at };
            Some(TitleTarget::File(absolute_path("url", &path, problems)))
        }
        "udp" => to().map(TitleTarget::Udp),
        "tcp" => to().map(TitleTarget::Tcp),
        "http" | "https" => {
            let server = resolve_url("url", url, "use a secret path or query", problems)?;
            let path = ConfigValue { value: server.target.clone(), at: *at };
            let path = template("url", &path, problems)?;
            Some(TitleTarget::Http { server, path, has_body })
        }
        _ => {
            let message = "`url` does not begin with file://, udp://, tcp://, http:// or https://";
            problems.add_with_hint(*at, message, "url = \"tcp://192.0.2.7:5001\"");
            None
        }
    }
}

fn template(key: &str, text: &ConfigValue<String>, problems: &Problems) -> Option<TitleTemplate> {
    if text.value.len() > MAX_TITLE_TEMPLATE {
        let message = format!("`{key}` has more than {MAX_TITLE_TEMPLATE} bytes");
        problems.add(text.at, message);
    }
    let refused = |error: &TemplateError| {
        let hint = "{song}, {artist}, {title}, {album}, {duration}, {station} or {next}; {{ is a \
                    brace";
        problems.add_with_hint(text.at, format!("`{key}` {error}"), hint);
    };
    text.value.parse().inspect_err(refused).ok()
}
