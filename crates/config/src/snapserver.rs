//! Conversion of snapserver's configuration.
//!
//! `aulos convert` prints the result and `aulos snapserver` runs it; both use the same text, so
//! that the output of the first shows what the second does. A setting without a counterpart is
//! reported.

use std::fmt::Write;

use aulos_core::{Codec, SampleSpec};
use aulos_proto::uri::percent_encode;

use crate::limits::{BUFFER_MS, CHUNK_MS};
use crate::stream::{StreamUri, carried_spec};
use crate::values::quoted;

/// snapserver's keys and values, in order; keys are `section.key`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IniFile(Vec<(String, String)>);

impl IniFile {
    /// Parses `snapserver.conf`; also returns the lines that are neither a section nor
    /// `key = value`.
    #[must_use]
    pub fn parse(text: &str) -> (Self, Vec<usize>) {
        let (mut ini, mut odd, mut section) = (Self::default(), Vec::new(), String::new());
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                name.trim().clone_into(&mut section);
            } else if let Some((key, value)) = line.split_once('=') {
                ini.0.push((format!("{section}.{}", key.trim()), value.trim().to_owned()));
            } else {
                odd.push(number + 1);
            }
        }
        (ini, odd)
    }

    /// Replaces values of the file by those of the command line (`section.key`).
    pub fn override_with(&mut self, given: Vec<(String, String)>) {
        self.0.retain(|(key, _)| given.iter().all(|(other, _)| other != key));
        self.0.extend(given);
    }

    /// The last non-empty value of these keys.
    fn get(&self, keys: &[&str]) -> Option<&str> {
        let known =
            |(key, value): &&(String, String)| keys.contains(&key.as_str()) && !value.is_empty();
        self.0.iter().rev().find(known).map(|(_, value)| value.as_str())
    }

    fn all(&self, keys: &[&str]) -> Vec<&str> {
        let known =
            self.0.iter().filter(|(key, value)| keys.contains(&key.as_str()) && !value.is_empty());
        known.map(|(_, value)| value.as_str()).collect()
    }
}

/// The result of a conversion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConversionResult {
    /// The contents of `aulos.toml`.
    pub toml: String,
    /// Differences from snapserver, as sentences.
    pub notes: Vec<String>,
}

/// Converts a configuration; `address` is snapserver's default listen address.
#[must_use]
pub fn convert(ini: &IniFile, address: &str) -> ConversionResult {
    let mut out = ConversionResult::default();
    if let Some(dir) = ini.get(&["server.datadir"]) {
        line(&mut out.toml, "state_dir", &quoted(dir));
    } else {
        out.note(
            "groups and volumes: copy snapserver's server.json (often in /var/lib/snapserver) \
                  into the state directory, it is read as it is",
        );
    }
    listen(ini, address, &mut out);
    mdns(ini, &mut out.toml);
    if let Some(root) = ini.get(&["http.doc_root"]) {
        out.toml += "\n[http]\n";
        line(&mut out.toml, "doc_root", &quoted(root));
    }
    if let Some(dir) = ini.get(&["stream.plugin_dir"]) {
        out.toml += "\n[streams]\n";
        line(&mut out.toml, "plugin_dir", &quoted(dir));
    }
    if let Some(volume) = ini.get(&["streaming_client.initial_volume"]) {
        out.toml += "\n[clients]\n";
        line(&mut out.toml, "initial_volume", volume);
    }
    stations(ini, &mut out);
    for (key, value) in &ini.0 {
        if let Some((_, why)) = UNSUPPORTED_KEYS.iter().find(|(known, _)| key == known) {
            out.note(&format!("{key} = {value}: {why}"));
        } else if !is_known_key(key) {
            out.note(&format!("{key} = {value}: not known, left out"));
        }
    }
    out
}

/// Ports. Listeners that cannot be disabled are moved to loopback.
fn listen(ini: &IniFile, default: &str, out: &mut ConversionResult) {
    out.toml += "\n[listen]\n";
    for (ours, sections, port) in [
        ("stream", ["tcp-streaming", "stream"], "1704"),
        ("control", ["tcp-control", "tcp"], "1705"),
        ("http", ["http", "http"], "1780"),
    ] {
        let keys = |key: &str| sections.map(|section| format!("{section}.{key}"));
        let of = |key: &str| {
            let [one, two] = keys(key);
            ini.all(&[&one, &two])
        };
        let hosts = of("bind_to_address");
        let host = hosts.first().copied().unwrap_or(default);
        if hosts.len() > 1 {
            out.note(&format!("{ours}: only the first of several addresses is listened on"));
        }
        let host = match host {
            // The wildcard: `::` includes IPv4.
            "*" => default,
            host => host,
        };
        let port = of("port").last().copied().unwrap_or(port);
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        if of("enabled").last().is_some_and(|value| is_disabled(value)) {
            out.note(&format!("{ours}: cannot be switched off; it listens on this machine only"));
            line(&mut out.toml, ours, &quoted("127.0.0.1:0"));
        } else {
            line(&mut out.toml, ours, &quoted(&format!("{host}:{port}")));
        }
    }
}

/// Disabled announcements; as in snapserver, the default is to announce.
fn mdns(ini: &IniFile, toml: &mut String) {
    let off = |keys: &[&str]| ini.get(keys).is_some_and(is_disabled);
    let mut head = "\n[mdns]\n";
    for (ours, keys) in [
        ("enabled", &["server.mdns_enabled"][..]),
        ("stream", &["tcp-streaming.publish"]),
        ("control", &["tcp-control.publish", "tcp.publish"]),
        ("http", &["http.publish_http"]),
        ("https", &["http.publish_https"]),
    ] {
        if off(keys) {
            *toml += std::mem::take(&mut head);
            line(toml, ours, "false");
        }
    }
}

fn stations(ini: &IniFile, out: &mut ConversionResult) {
    let spec = ini.get(&["stream.sampleformat"]).and_then(|text| text.parse().ok());
    let spec: SampleSpec = spec.unwrap_or(SampleSpec::DEFAULT);
    let mut sources = ini.all(&["stream.source", "stream.stream"]);
    if sources.is_empty() {
        sources.push("pipe:///tmp/snapfifo?name=default");
    }
    let mut streams = Vec::new();
    for text in sources {
        match StreamUri::parse(text, spec) {
            Ok(stream) => streams.push(stream),
            Err(error) => out.note(&format!("{text}: {error}")),
        }
    }
    let members = |stream: &StreamUri| -> Vec<String> {
        if stream.uri.scheme != "meta" {
            return Vec::new();
        }
        stream.uri.path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    let inside: Vec<String> = streams.iter().flat_map(members).collect();
    let is_silent = |stream: &StreamUri| codec_name(stream) == Some("null");
    // A hidden stream that only one `meta:` stream uses becomes a source of that station.
    let is_part = |stream: &StreamUri| {
        is_silent(stream) && inside.iter().filter(|name| **name == stream.name).count() == 1
    };
    for stream in streams.iter().filter(|stream| !is_part(stream)) {
        if is_silent(stream) {
            if !inside.contains(&stream.name) {
                out.note(&format!("`{}`: the codec null sends nothing; left out", stream.name));
                continue;
            }
            out.note(&format!("`{}` is a stream now: several others play it", stream.name));
        }
        let mut of = Vec::new();
        for name in members(stream) {
            match streams.iter().find(|other| other.name == name) {
                Some(member) if is_part(member) => {
                    of.push((member.source.clone(), Some(member)));
                }
                Some(_) => of.push((format!("meta:///{}", percent_encode(&name)), None)),
                None => out.note(&format!("`{}`: there is no stream `{name}`", stream.name)),
            }
        }
        if stream.uri.scheme != "meta" {
            of.push((stream.source.clone(), Some(stream)));
        }
        station(ini, stream, &of, spec, out);
    }
}

fn station(
    ini: &IniFile,
    stream: &StreamUri,
    sources: &[(String, Option<&StreamUri>)],
    default: SampleSpec,
    out: &mut ConversionResult,
) {
    let codec = stream.codec.as_deref().or_else(|| ini.get(&["stream.codec"])).unwrap_or("flac");
    let name = codec.split(':').next().unwrap_or_default();
    let codec = match name {
        "null" => "flac",
        "ogg" => {
            out.note(&format!("`{}`: Vorbis is not sent; it is opus now", stream.name));
            "opus"
        }
        _ => codec,
    };
    let spec = stream.spec.as_ref().and_then(|text| text.parse().ok()).unwrap_or(default);
    let number = |key: &str| ini.get(&[key]).and_then(|value| value.parse::<u32>().ok());
    let toml = &mut out.toml;
    *toml += "\n[[station]]\n";
    line(toml, "name", &quoted(&stream.name));
    line(toml, "codec", &quoted(codec));
    line(toml, "spec", &quoted(&carried_spec(codec, spec).to_string()));
    if let Some(chunk) = stream.chunk_ms.or_else(|| number("stream.chunk_ms")) {
        chunk_duration(stream, codec, chunk, out);
    }
    let toml = &mut out.toml;
    if let Some(buffer) = number("stream.buffer") {
        line(toml, "buffer_ms", &buffer.clamp(*BUFFER_MS.start(), *BUFFER_MS.end()).to_string());
    }
    let entries: Vec<String> = sources.iter().map(|(source, _)| quoted(source)).collect();
    line(toml, "sources", &format!("[{}]", entries.join(", ")));
    if let Some(seconds) = stream.idle_s() {
        line(toml, "silence", &format!("{{ for_s = {seconds:?} }}"));
    }
    if let Some((script, params)) = &stream.script {
        let params = if params.is_empty() {
            String::new()
        } else {
            format!(", params = {}", quoted(params))
        };
        line(toml, "plugin", &format!("{{ script = {}{params} }}", quoted(script)));
    }
    for source in sources.iter().filter_map(|(_, source)| *source) {
        for key in &source.ignored_keys {
            out.note(&format!("`{}`: `{key}` has no counterpart, left out", source.name));
        }
        if source.uri.scheme == "pipe" && source.uri.get("mode") != Some("read") {
            out.note(&format!(
                "`{}`: the FIFO is made for this user alone; where another one writes to it, add \
                 mode=0666, or group=GROUP, to its URI",
                source.name
            ));
        }
    }
}

/// Writes the nearest chunk duration that the codec can have.
fn chunk_duration(stream: &StreamUri, codec: &str, chunk: u32, out: &mut ConversionResult) {
    // Limits of clients, and the durations of packets.
    let name = codec.split(':').next().unwrap_or_default();
    let possible = name.parse::<Codec>().ok().and_then(|codec| codec.info().chunk_ms);
    let nearest = possible.unwrap_or_default().iter().min_by_key(|ms| ms.abs_diff(chunk));
    let clamped = chunk.clamp(*CHUNK_MS.start(), *CHUNK_MS.end());
    let fitting = nearest.copied().unwrap_or(clamped);
    line(&mut out.toml, "chunk_ms", &fitting.to_string());
    if fitting != chunk {
        let why = format!("`{}`: chunk_ms = {chunk} is {fitting} now", stream.name);
        out.notes.push(format!("{why}, the nearest duration that `{codec}` can have"));
    }
}

/// The codec of a stream, without encoder settings.
fn codec_name(stream: &StreamUri) -> Option<&str> {
    stream.codec.as_deref().and_then(|codec| codec.split(':').next())
}

impl ConversionResult {
    fn note(&mut self, note: &str) {
        self.notes.push(note.to_owned());
    }
}

fn line(toml: &mut String, key: &str, value: &str) {
    // Writing to a string cannot fail.
    writeln!(toml, "{key:<9} = {value}").ok();
}

fn is_disabled(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "false" | "0" | "no" | "off")
}

fn is_known_key(key: &str) -> bool {
    let (section, name) = key.split_once('.').unwrap_or(("", key));
    match section {
        "server" => matches!(name, "datadir" | "mdns_enabled"),
        "http" => {
            let publish = ["publish_http", "publish_https"].contains(&name);
            publish || matches!(name, "enabled" | "bind_to_address" | "port" | "doc_root")
        }
        "tcp" | "tcp-control" | "tcp-streaming" => {
            matches!(name, "enabled" | "bind_to_address" | "port" | "publish")
        }
        "stream" => matches!(
            name,
            "source"
                | "stream"
                | "plugin_dir"
                | "sampleformat"
                | "codec"
                | "chunk_ms"
                | "buffer"
                | "bind_to_address"
                | "port"
                | "enabled"
        ),
        "streaming_client" => name == "initial_volume",
        _ => false,
    }
}

/// Settings of snapserver that are not supported, and what to do instead.
const UNSUPPORTED_KEYS: [(&str, &str); 20] = [
    ("server.threads", "threads follow the machine"),
    ("server.pidfile", "none is written; systemd knows the process"),
    ("server.user", "run it as that user"),
    ("server.group", "run it as that group"),
    ("http.host", "pictures are fetched by the machine's own name"),
    ("http.url_prefix", "pictures are fetched by the machine's own name"),
    ("http.ssl_enabled", "TLS is on every port; `enabled` of [tls] turns it off"),
    ("http.ssl_bind_to_address", "TLS is on the page's own port"),
    ("http.ssl_port", "TLS is on the page's own port"),
    ("ssl.certificate", "write it into `cert` of [tls]; without it one is made"),
    ("ssl.certificate_key", "write it into `key` of [tls]"),
    ("ssl.key_password", "a key with a password cannot be read: openssl pkey -in KEY -out NEW"),
    ("ssl.verify_clients", "`client_ca` of [tls] says whose certificates count"),
    ("ssl.client_cert", "write it into `client_ca` of [tls]"),
    ("stream.send_to_muted", "muted clients get the sound, and are in time when they are unmuted"),
    ("stream.sandbox_dir", "calls can start control scripts of plugin_dir only"),
    ("authorization.enabled", "snapserver reads it and does not use it; users are [[user]] here"),
    ("logging.sink", "messages go to standard error"),
    ("logging.filter", "use -v, -vv or -q"),
    ("logging.debug", "use -v or -vv"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CaptureApi, ConfigFile, Environment, ResolvedConfig, SourceConfig, load};

    fn converted(text: &str) -> (ConversionResult, ResolvedConfig) {
        let (ini, odd) = IniFile::parse(text);
        assert!(odd.is_empty(), "{odd:?}");
        let out = convert(&ini, "::");
        let file = ConfigFile { name: "out", text: &out.toml };
        let resolved = load(Some(file), &[], &Environment::default());
        let resolved = resolved.unwrap_or_else(|error| panic!("{error}\n{}", out.toml));
        (out, resolved)
    }

    #[test]
    fn an_empty_file_is_snapservers_default() {
        let (out, resolved) = converted("# nothing\n[stream]\n");
        assert_eq!(resolved.listen.stream.to_string(), "[::]:1704");
        let station = &resolved.stations[0];
        assert_eq!((station.name.as_str(), station.buffer_ms), ("default", 1_000));
        assert_eq!(station.sources[0].uri, "pipe:///tmp/snapfifo?sampleformat=48000:16:2");
        assert!(out.notes.iter().any(|note| note.contains("server.json")));
    }

    #[test]
    fn a_house_moves_over() {
        let text = "[server]\ndatadir = /var/lib/snapserver\nthreads = -1\n[http]\n\
            doc_root = /usr/share/snapserver/snapweb\nport = 8080\n[tcp]\nenabled = false\n\
            [stream]\nport = 1804\nbuffer = 400\nchunk_ms = 26\ncodec = opus\n\
            source = pipe:///tmp/snapfifo?name=one&mode=read&codec=flac:5&sampleformat=44100:24:2\n\
            source = tcp://0.0.0.0:4953?name=two words&idle_threshold=5000&wd_timeout=3\n\
            source = process:///usr/bin/cat?name=p&params=a%20\"b\"&controlscript=meta_mpd.py\n\
            source = librespot:///librespot?name=Spotify&codec=null&devicename=My Room&bitrate=320\n\
            source = airplay:///shairport-sync?name=Air&port=5001\n\
            source = meta:///p/Spotify?name=best\n\
            [streaming_client]\ninitial_volume = 30\n[ssl]\ncertificate = /x\n[odd]\nkey = 1";
        let text = text.replace("enabled = false", "enabled = false\npublish = false");
        let (out, resolved) = converted(&text);
        let names: Vec<_> = resolved.stations.iter().map(|station| station.name.as_str()).collect();
        assert_eq!(names, ["one", "two words", "p", "Air", "best"]);
        assert_eq!(resolved.clients.initial_volume, 30);
        assert_eq!(resolved.listen.http.to_string(), "[::]:8080");
        assert_eq!(resolved.listen.stream.to_string(), "[::]:1804");
        assert_eq!(resolved.listen.control.to_string(), "127.0.0.1:0");
        let mdns = &resolved.mdns;
        assert_eq!((mdns.stream, mdns.control, mdns.http), (true, false, true));
        let codecs: Vec<_> = resolved.stations.iter().map(|one| one.codec.to_string()).collect();
        assert_eq!(codecs[..2], ["flac:5", "opus"]);
        let best = &resolved.stations[4];
        let sources: Vec<_> = best.sources.iter().map(|source| source.uri.as_str()).collect();
        assert_eq!(sources[0], "meta:///p");
        assert!(sources.len() == 2 && sources[1].starts_with("librespot:///"), "{sources:?}");
        assert_eq!(resolved.stations[0].spec, "44100:24:2".parse().unwrap());
        let chunks: Vec<_> = resolved.stations.iter().map(|one| one.chunk_ms).collect();
        assert_eq!(chunks[..2], [26, 20], "Opus has no packets of 26 ms");
        assert!(out.notes.iter().any(|note| note.contains("chunk_ms = 26 is 20")), "{out:?}");
        for wanted in ["ssl.certificate", "odd.key", "`wd_timeout`", "threads"] {
            assert!(out.notes.iter().any(|note| note.contains(wanted)), "{wanted}: {out:?}");
        }
    }

    #[test]
    fn the_command_line_goes_before_the_file() {
        let (mut ini, odd) = IniFile::parse("[stream]\nsource = pipe:///a?name=a\nnonsense\n");
        assert_eq!(odd, [3]);
        let given = ("stream.source".to_owned(), "pipe:///b?name=b".to_owned());
        ini.override_with(vec![given]);
        let out = convert(&ini, "0.0.0.0");
        assert!(out.toml.contains("name      = \"b\"") && !out.toml.contains("pipe:///a"));
        assert!(out.toml.contains("0.0.0.0:1705"), "{}", out.toml);
    }

    #[test]
    fn a_sound_card_keeps_its_device_and_format() {
        let (out, resolved) = converted(
            "[stream]\nsource = alsa:///?name=line&device=hw:1,0&sampleformat=44100:24:2\n",
        );
        let SourceConfig::Capture { api: CaptureApi::Alsa, device, spec } =
            &resolved.stations[0].sources[0].config
        else {
            panic!("{}", out.toml)
        };
        assert_eq!(device.as_deref(), Some("hw:1,0"));
        assert_eq!(spec.map(|spec| spec.to_string()).as_deref(), Some("44100:24:2"));
        assert!(!out.notes.iter().any(|note| note.contains("device")), "{out:?}");
    }

    #[test]
    fn texts_are_quoted() {
        assert_eq!(quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000A\"");
    }
}
