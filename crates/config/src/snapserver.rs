//! Conversion of snapserver's configuration.
//!
//! `aulos convert` prints the result and `aulos snapserver` runs it; both use the same text, so
//! that the output of the first shows what the second does. Whatever the file says and the result
//! does not is reported: a setting without a counterpart, and a value that another replaces.

use std::fmt::Write;

use aulos_core::{Codec, SampleSpec};
use aulos_proto::uri::percent_encode;

use crate::keys::values::quoted;
use crate::limits::{BUFFER_MS, CHUNK_MS};
use crate::station::stream::{StreamUri, carried_spec};

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

    /// The last non-empty value of these keys as a number; a text that is none is noted.
    fn number(&self, keys: &[&str], out: &mut ConversionResult) -> Option<u32> {
        let text = self.get(keys)?;
        let number = text.parse().ok();
        if number.is_none() {
            let key = keys.first().copied().unwrap_or_default();
            out.note(&format!("{key} = {text}: expected a number; left out"));
        }
        number
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
    if let Some(volume) = ini.number(&["streaming_client.initial_volume"], &mut out) {
        out.toml += "\n[clients]\n";
        line(&mut out.toml, "initial_volume", &volume.to_string());
    }
    stations(ini, &mut out);
    notes_of_keys(ini, &mut out);
    out
}

/// Notes keys without a counterpart, and values that do not count.
fn notes_of_keys(ini: &IniFile, out: &mut ConversionResult) {
    for (at, (key, value)) in ini.0.iter().enumerate() {
        let later = |(other, value): &(String, String)| other == key && !value.is_empty();
        if let Some((_, why)) = UNSUPPORTED_KEYS.iter().find(|(known, _)| key == known) {
            out.note(&format!("{key} = {value}: {why}"));
        } else if !is_known_key(key) {
            out.note(&format!("{key} = {value}: not known, left out"));
        } else if !may_repeat(key) && !value.is_empty() && ini.0.iter().skip(at + 1).any(later) {
            out.note(&format!("{key} = {value}: a later line of the same key counts"));
        } else if is_switch(key) && !value.is_empty() && !is_switch_value(value) {
            out.note(&format!("{key} = {value}: expected true or false; taken as true"));
        }
    }
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
        if let Some(others) = hosts.get(1..).filter(|others| !others.is_empty()) {
            let others = others.join(", ");
            out.note(&format!("{ours}: only {host} is listened on, and not {others}"));
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
    let spec = ini.get(&["stream.sampleformat"]).map(|text| (text, text.parse::<SampleSpec>()));
    if let Some((text, Err(error))) = &spec {
        out.note(&format!("stream.sampleformat = {text}: {error}; left out"));
    }
    let spec = spec.and_then(|(_, spec)| spec.ok()).unwrap_or(SampleSpec::DEFAULT);
    let defaults = StreamDefaults {
        codec: ini.get(&["stream.codec"]).unwrap_or("flac"),
        spec,
        chunk_ms: ini.number(&["stream.chunk_ms", "stream.stream_buffer"], out),
        buffer_ms: buffer(ini, out),
    };
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
        station(&defaults, stream, &of, out);
    }
}

/// What holds for streams that do not say it themselves.
struct StreamDefaults<'a> {
    codec: &'a str,
    spec: SampleSpec,
    chunk_ms: Option<u32>,
    buffer_ms: Option<u32>,
}

/// The buffer of all stations, within our limits.
fn buffer(ini: &IniFile, out: &mut ConversionResult) -> Option<u32> {
    let wanted = ini.number(&["stream.buffer"], out)?;
    let fitting = wanted.clamp(*BUFFER_MS.start(), *BUFFER_MS.end());
    if fitting != wanted {
        out.note(&format!(
            "stream.buffer = {wanted} is {fitting} now, the nearest possible buffer"
        ));
    }
    Some(fitting)
}

/// Writes the station of a stream. A source is a URI, with the stream that it is; there is no such
/// stream where another station is played.
fn station(
    defaults: &StreamDefaults<'_>,
    stream: &StreamUri,
    sources: &[(String, Option<&StreamUri>)],
    out: &mut ConversionResult,
) {
    let wanted = stream.codec.as_deref().unwrap_or(defaults.codec);
    let codec = match wanted.split(':').next().unwrap_or_default() {
        "null" => "flac",
        "ogg" => {
            let name = &stream.name;
            out.note(&format!("`{name}`: Vorbis is not sent; {wanted} is opus now"));
            "opus"
        }
        _ => wanted,
    };
    if wanted == "null" && stream.codec.is_none() {
        out.note(&format!("`{}`: every station sends; stream.codec = null is flac", stream.name));
    }
    let spec = stream.spec.as_ref().and_then(|text| text.parse().ok()).unwrap_or(defaults.spec);
    let carried = carried_spec(codec, spec);
    if carried != spec {
        let name = &stream.name;
        out.note(&format!("`{name}`: sampleformat {spec} is {carried} in {codec}"));
    }
    let toml = &mut out.toml;
    *toml += "\n[[station]]\n";
    line(toml, "name", &quoted(&stream.name));
    line(toml, "codec", &quoted(codec));
    line(toml, "spec", &quoted(&carried.to_string()));
    if let Some(chunk) = stream.chunk_ms.or(defaults.chunk_ms) {
        chunk_duration(stream, codec, chunk, out);
    }
    let toml = &mut out.toml;
    if let Some(buffer) = defaults.buffer_ms {
        line(toml, "buffer_ms", &buffer.to_string());
    }
    let entries: Vec<String> =
        sources.iter().map(|(source, member)| source_entry(stream, source, *member)).collect();
    line(toml, "sources", &format!("[{}]", entries.join(", ")));
    if let Some(seconds) = stream.idle_s() {
        line(toml, "silence", &format!("{{ for_s = {seconds:?} }}"));
    }
    let members = || {
        let members = sources.iter().filter_map(|(_, member)| *member);
        members.filter(|member| member.name != stream.name)
    };
    if let Some((script, params)) = control_script(stream, members(), out) {
        let params = if params.is_empty() {
            String::new()
        } else {
            format!(", params = {}", quoted(params))
        };
        let toml = &mut out.toml;
        line(toml, "plugin", &format!("{{ script = {}{params} }}", quoted(script)));
    }
    notes_of_stream(stream, out);
    for member in members() {
        notes_of_stream(member, out);
        // These belong to a station, and the member is none.
        for key in ["chunk_ms", "idle_threshold"] {
            if let Some(value) = member.uri.get(key) {
                let (own, station) = (&member.name, &stream.name);
                out.note(&format!("`{own}`: {key} = {value} is lost; it is a part of `{station}`"));
            }
        }
    }
}

/// A source as an entry of `sources`; the part of a meta stream keeps its name.
fn source_entry(stream: &StreamUri, uri: &str, member: Option<&StreamUri>) -> String {
    match member {
        Some(member) if member.name != stream.name => {
            format!("{{ uri = {}, name = {} }}", quoted(uri), quoted(&member.name))
        }
        _ => quoted(uri),
    }
}

/// The control script of a station: its own, or that of the first part that has one. A station has
/// one script.
fn control_script<'a>(
    stream: &'a StreamUri,
    members: impl Iterator<Item = &'a StreamUri>,
    out: &mut ConversionResult,
) -> Option<&'a (String, String)> {
    let mut taken = stream.script.as_ref();
    for (member, script) in members.filter_map(|member| Some((member, member.script.as_ref()?))) {
        let (own, station) = (&member.name, &stream.name);
        let words = format!("{} {}", script.0, script.1);
        let words = words.trim_end();
        if taken.is_none() {
            out.note(&format!(
                "`{own}`: its control script {words} is that of `{station}` now, whatever source \
                 plays; for titles of this source alone, make it a [[station]] of its own and play \
                 meta:///{} here",
                percent_encode(own)
            ));
            taken = Some(script);
        } else {
            out.note(&format!(
                "`{own}`: its control script {words} is lost, because `{station}` has another one"
            ));
        }
    }
    taken
}

/// Notes what the URI of a stream says and the station does not.
fn notes_of_stream(stream: &StreamUri, out: &mut ConversionResult) {
    let name = &stream.name;
    for key in &stream.ignored_keys {
        let value = stream.uri.get(key).unwrap_or_default();
        out.note(&format!("`{name}`: `{key}` = {value} has no counterpart, left out"));
    }
    for (key, is_lost) in [
        ("chunk_ms", stream.chunk_ms.is_none()),
        ("idle_threshold", stream.idle_ms.is_none()),
        ("sampleformat", !stream.spec.as_ref().is_some_and(|text| is_spec(text))),
    ] {
        if let Some(value) = stream.uri.get(key).filter(|value| is_lost && !value.is_empty()) {
            out.note(&format!("`{name}`: {key} = {value} is not understood"));
        }
    }
    if !stream.uri.fragment.is_empty() {
        out.note(&format!("`{name}`: #{} is left out", stream.uri.fragment));
    }
    if stream.uri.scheme == "pipe" && stream.uri.get("mode") != Some("read") {
        out.note(&format!(
            "`{name}`: the FIFO is made for this user alone; where another one writes to it, add \
             mode=0666, or group=GROUP, to its URI"
        ));
    }
}

fn is_spec(text: &str) -> bool {
    text.parse::<SampleSpec>().is_ok()
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
    pub(crate) fn note(&mut self, note: &str) {
        self.notes.push(note.to_owned());
    }
}

/// Writes a key.
pub(crate) fn line(toml: &mut String, key: &str, value: &str) {
    // Writing to a string cannot fail.
    writeln!(toml, "{key:<9} = {value}").ok();
}

fn is_disabled(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "false" | "0" | "no" | "off")
}

/// Whether snapserver takes the key as true or false.
fn is_switch(key: &str) -> bool {
    let name = key.split_once('.').map_or(key, |(_, name)| name);
    matches!(name, "enabled" | "publish" | "publish_http" | "publish_https" | "mdns_enabled")
}

fn is_switch_value(text: &str) -> bool {
    is_disabled(text) || matches!(&text.to_ascii_lowercase()[..], "true" | "1" | "yes" | "on")
}

/// Whether each line of the key counts.
fn may_repeat(key: &str) -> bool {
    matches!(key, "stream.source" | "stream.stream") || key.ends_with(".bind_to_address")
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
                | "stream_buffer"
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
    (
        "ssl.verify_clients",
        "`client_ca` of [tls] names the authority whose client certificates are accepted",
    ),
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
    use crate::source::{CaptureApi, CaptureSource};
    use crate::{ConfigFile, Environment, ResolvedConfig, SourceConfig, load};

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

    /// Every key of snapserver.conf as of 0.34 and, where it differs, 0.26: a line with a value
    /// that is not the default, and what the result says of it. Its documentation names no other
    /// key.
    const KEYS: [(&str, &str); 44] = [
        ("server.threads = 3", "threads follow the machine"),
        ("server.pidfile = /run/x.pid", "none is written"),
        ("server.user = snap", "run it as that user"),
        ("server.group = audio", "run it as that group"),
        ("server.datadir = /srv/snap", "state_dir = \"/srv/snap\""),
        ("server.mdns_enabled = false", "[mdns]\nenabled   = false"),
        ("ssl.certificate = /c.pem", "`cert` of [tls]"),
        ("ssl.certificate_key = /k.pem", "`key` of [tls]"),
        ("ssl.key_password = x", "openssl pkey"),
        ("ssl.verify_clients = true", "`client_ca` of [tls]"),
        ("ssl.client_cert = /ca.pem", "`client_ca` of [tls]"),
        ("http.enabled = false", "http: cannot be switched off"),
        ("http.bind_to_address = 192.0.2.1", "http      = \"192.0.2.1:1780\""),
        ("http.port = 8080", ":8080\""),
        ("http.publish_http = false", "[mdns]\nhttp      = false"),
        ("http.publish_https = false", "[mdns]\nhttps     = false"),
        ("http.ssl_enabled = true", "TLS is on every port"),
        ("http.ssl_bind_to_address = ::", "TLS is on the page's own port"),
        ("http.ssl_port = 1788", "TLS is on the page's own port"),
        ("http.doc_root = /srv/web", "doc_root  = \"/srv/web\""),
        ("http.host = box", "the machine's own name"),
        ("http.url_prefix = https://box", "the machine's own name"),
        ("tcp-control.enabled = false", "control: cannot be switched off"),
        ("tcp-control.bind_to_address = 192.0.2.2", "control   = \"192.0.2.2:1705\""),
        ("tcp-control.port = 1805", ":1805\""),
        ("tcp-control.publish = false", "[mdns]\ncontrol   = false"),
        ("tcp.enabled = false", "control: cannot be switched off"),
        ("tcp.bind_to_address = 192.0.2.3", "control   = \"192.0.2.3:1705\""),
        ("tcp.port = 1905", ":1905\""),
        ("tcp-streaming.enabled = false", "stream: cannot be switched off"),
        ("tcp-streaming.bind_to_address = 192.0.2.4", "stream    = \"192.0.2.4:1704\""),
        ("tcp-streaming.port = 1804", ":1804\""),
        ("tcp-streaming.publish = false", "[mdns]\nstream    = false"),
        ("stream.bind_to_address = 192.0.2.5", "stream    = \"192.0.2.5:1704\""),
        ("stream.port = 1904", ":1904\""),
        ("stream.plugin_dir = /srv/plug", "plugin_dir = \"/srv/plug\""),
        ("stream.sandbox_dir = /srv/box", "plugin_dir only"),
        ("stream.sampleformat = 44100:24:2", "spec      = \"44100:24:2\""),
        ("stream.codec = pcm", "codec     = \"pcm\""),
        ("stream.chunk_ms = 30", "chunk_ms  = 30"),
        ("stream.stream_buffer = 30", "chunk_ms  = 30"),
        ("stream.buffer = 700", "buffer_ms = 700"),
        ("stream.send_to_muted = true", "muted clients get the sound"),
        ("streaming_client.initial_volume = 30", "initial_volume = 30"),
    ];

    /// Of lines `section.key = value`: the result and its notes as one text.
    fn result_of(lines: &str) -> String {
        let lines = lines.lines().map(|line| {
            let (section, rest) = line.split_once('.').unwrap();
            format!("[{section}]\n{rest}\n")
        });
        let (out, _) = converted(&lines.collect::<String>());
        format!("{}\n{}", out.toml, out.notes.join("\n"))
    }

    #[test]
    fn no_key_of_snapserver_is_lost() {
        let without = result_of("stream.source = pipe:///a?name=x");
        let further = [
            ("stream.source = tcp://192.0.2.1:5000?name=second&mode=client", "\"second\""),
            ("stream.stream = tcp://192.0.2.1:5000?name=second&mode=client", "\"second\""),
            ("logging.sink = system", "standard error"),
            ("logging.filter = *:debug", "-vv"),
            ("authorization.enabled = true", "[[user]]"),
            ("new.key = 1", "new.key = 1: not known, left out"),
        ];
        for (line, expected) in KEYS.iter().chain(&further) {
            let with = result_of(&format!("stream.source = pipe:///a?name=x\n{line}"));
            assert!(with.contains(expected), "{line}: {with}");
            assert!(!without.contains(expected), "{line}");
        }
    }

    #[test]
    fn no_value_of_a_key_is_replaced_without_a_note() {
        for (lines, expected) in [
            ("stream.buffer = long", "stream.buffer = long: expected a number"),
            ("stream.buffer = 1", "stream.buffer = 1 is 20 now"),
            ("stream.chunk_ms = x", "stream.chunk_ms = x: expected a number"),
            ("stream.sampleformat = loud", "stream.sampleformat = loud: "),
            ("streaming_client.initial_volume = loud", "initial_volume = loud: expected"),
            ("server.datadir = /a\nserver.datadir = /b", "server.datadir = /a: a later line"),
            ("tcp.enabled = maybe", "tcp.enabled = maybe: expected true or false"),
            ("http.bind_to_address = 192.0.2.1\nhttp.bind_to_address = ::1", "and not ::1"),
            ("stream.codec = ogg:VBR:90", "ogg:VBR:90 is opus now"),
            ("stream.codec = null", "stream.codec = null is flac"),
            ("stream.codec = opus\nstream.sampleformat = 44100:16:2", "44100:16:2 is 48000:16:2"),
            ("stream.source = pipe:///b?name=b&chunk_ms=x", "`b`: chunk_ms = x is not understood"),
            ("stream.source = pipe:///b?name=b&idle_threshold=x", "idle_threshold = x is not"),
            ("stream.source = pipe:///b?name=b&sampleformat=x", "sampleformat = x is not"),
            ("stream.source = pipe:///b?name=b&dryout_ms=7", "`dryout_ms` = 7 has no counterpart"),
            ("stream.source = pipe:///b?name=b#part", "`b`: #part is left out"),
            ("stream.source = pipe:///b", "pipe:///b: a stream requires a name"),
            ("stream.source = tcp://192.0.2.1:1?name=b&codec=null", "`b`: the codec null sends"),
            ("stream.source = meta:///x/nobody?name=b&odd=1", "`b`: there is no stream `nobody`"),
            ("stream.source = meta:///x?name=b&odd=1", "`b`: `odd` = 1 has no counterpart"),
        ] {
            let text = format!("stream.source = pipe:///a?name=x&mode=read\n{lines}");
            let (ini, _) = IniFile::parse(
                &text
                    .lines()
                    .map(|line| line.split_once('.').unwrap())
                    .map(|(section, rest)| format!("[{section}]\n{rest}\n"))
                    .collect::<String>(),
            );
            let notes = convert(&ini, "::").notes.join("\n");
            assert!(notes.contains(expected), "{lines}: {notes}");
        }
    }

    #[test]
    fn the_parts_of_a_meta_stream_keep_their_names_and_scripts() {
        let part = |name: &str, more: &str| {
            format!("source = pipe:///tmp/{name}?name={name}&mode=read&codec=null{more}\n")
        };
        let (script, params) = ("&controlscript=meta_a.py", "&controlscriptparams=--host%3Da");
        let text = format!(
            "[stream]\n{}{}{}source = meta:///radio/player/other?name=home\n",
            part("radio", "&chunk_ms=40&idle_threshold=500"),
            part("player", &format!("{script}{params}")),
            part("other", "&controlscript=meta_b.py"),
        );
        let (out, resolved) = converted(&text);
        let [home] = &resolved.stations[..] else { panic!("{}", out.toml) };
        let plugin = home.plugin.as_ref().unwrap();
        assert_eq!(plugin.script.to_str(), Some("meta_a.py"));
        assert_eq!(plugin.params, "--host=a");
        let names: Vec<_> = home.sources.iter().map(|source| &source.name[..]).collect();
        assert_eq!(names, ["radio", "player", "other"]);
        let notes = out.notes.join("\n");
        for expected in [
            "`player`: its control script meta_a.py --host=a is that of `home` now",
            "`other`: its control script meta_b.py is lost, because `home` has another one",
            "`radio`: chunk_ms = 40 is lost; it is a part of `home`",
            "`radio`: idle_threshold = 500 is lost",
        ] {
            assert!(notes.contains(expected), "{expected}: {notes}");
        }
        // A script of the meta stream's own goes before those of its parts.
        let own = text.replace("name=home", "name=home&controlscript=own.py");
        let (out, resolved) = converted(&own);
        let plugin = resolved.stations[0].plugin.as_ref().unwrap();
        assert_eq!(plugin.script.to_str(), Some("own.py"));
        assert_eq!(out.notes.iter().filter(|note| note.contains("is lost, because")).count(), 2);
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
        let SourceConfig::Capture(CaptureSource { api: CaptureApi::Alsa, device, spec }) =
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
