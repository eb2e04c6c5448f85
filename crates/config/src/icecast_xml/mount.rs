//! Mounts and relays.

use std::path::Path;

use aulos_proto::uri::percent_encode;
use aulos_session::mount::MountCodec;

use super::xml::Element;
use crate::keys::values::quoted;
use crate::limits::{BURST_KB, ICY_BITRATE_KBPS, MAX_DURATION_S, MAX_LISTENERS};
use crate::snapserver::{ConversionResult, line};
use crate::station::mount::is_mount_name;

/// Converts the mounts of a file.
pub(super) struct MountConverter<'a> {
    pub(super) root: &'a Element,
    /// The port of source clients.
    pub(super) source_port: u16,
    pub(super) exists: &'a dyn Fn(&Path) -> bool,
}

/// A relay, by the name of its mount.
struct Relay<'a> {
    name: String,
    url: String,
    element: &'a Element,
}

impl MountConverter<'_> {
    pub(super) fn convert(&self, out: &mut ConversionResult) {
        let relays: Vec<Relay<'_>> = self.root.all("relay").filter_map(Relay::new).collect();
        let is_default = |mount: &&Element| mount.attribute("type") == Some("default");
        let default = self.root.all("mount").find(is_default);
        let mut names: Vec<String> = Vec::new();
        for mount in self.root.all("mount").filter(|mount| !is_default(mount)) {
            let Some(name) = mount.text_of("mount-name") else {
                out.note(&format!("line {}: mount: without a mount-name, left out", mount.line));
                continue;
            };
            let name = name.trim_start_matches('/');
            if let Err(why) = check_name(name, &names) {
                out.note(&format!("line {}: mount-name = /{name}: {why}, left out", mount.line));
                continue;
            }
            names.push(name.to_owned());
            let relay = relays.iter().find(|relay| relay.name == name);
            self.mount(name, [Some(mount), default], relay, out);
        }
        for relay in &relays {
            if names.contains(&relay.name) {
                continue;
            }
            if let Err(why) = check_name(&relay.name, &names) {
                let (name, line) = (&relay.name, relay.element.line);
                out.note(&format!("line {line}: relay /{name}: {why}, left out"));
                continue;
            }
            names.push(relay.name.clone());
            self.mount(&relay.name, [default, None], Some(relay), out);
        }
        if names.is_empty() {
            out.note("no mount is listed: there is one as an example, because each needs an entry");
            self.mount("stream.mp3", [default, None], None, out);
        } else {
            out.note("mounts that are not listed: each needs a [[mount]] of its own");
        }
        out.note(
            "sample rate and channels of a mount: 44,100 Hz (Opus: 48,000) in stereo, unless `spec` \
             says otherwise",
        );
    }

    /// Writes a mount; the keys of the first of these elements that has them count.
    fn mount(
        &self,
        name: &str,
        of: [Option<&Element>; 2],
        relay: Option<&Relay<'_>>,
        out: &mut ConversionResult,
    ) {
        let key = |name: &str| of.into_iter().flatten().find_map(|mount| mount.text_of(name));
        out.toml += "\n[[mount]]\n";
        line(&mut out.toml, "name", &quoted(name));
        self.codec(name, key("type"), out);
        let mut sources = match relay {
            Some(relay) => vec![quoted(&relay.url)],
            None => vec![self.live_source(name, key("username"), key("password"), out)],
        };
        let mut numbers = vec![
            ("max_listeners", key("max-listeners"), MAX_LISTENERS, 1),
            ("max_duration_s", key("max-listener-duration"), MAX_DURATION_S, 1),
        ];
        let limits = self.root.child("limits");
        let burst = key("burst-size").or_else(|| limits.and_then(|it| it.text_of("burst-size")));
        numbers.push(("burst_kb", burst, BURST_KB, 1_024));
        if let Some(fallback) = key("fallback-mount") {
            self.fallback(name, fallback, &mut sources, out);
        }
        line(&mut out.toml, "sources", &format!("[{}]", sources.join(", ")));
        for (key, text, range, unit) in numbers {
            let Some(text) = text else { continue };
            let number = text.parse::<i64>().ok();
            // Icecast's -1 and 0 are no limit.
            let Some(number) = number.filter(|number| *number > 0) else {
                if number.is_none() {
                    out.note(&format!("/{name}: {text}: expected a number for {key}; left out"));
                }
                continue;
            };
            let number = u32::try_from(number).unwrap_or(u32::MAX).div_ceil(unit);
            let fitting = number.clamp(*range.start(), *range.end());
            line(&mut out.toml, key, &fitting.to_string());
        }
        if key("hidden").is_some_and(is_true) {
            line(&mut out.toml, "hidden", "true");
        }
        if let Some(intro) = key("intro") {
            match self.web_file(intro).filter(|file| (self.exists)(Path::new(file))) {
                Some(file) => line(&mut out.toml, "intro", &quoted(&file)),
                None => out.note(&format!("/{name}: intro = {intro}: there is no such file")),
            }
        }
        icy(name, key, out);
    }

    /// The codec by the media type, or by the ending of the name.
    fn codec(&self, name: &str, media_type: Option<&str>, out: &mut ConversionResult) {
        let ending = name.rsplit_once('.').map(|(_, ending)| ending);
        let codec = match (media_type, ending) {
            (Some("audio/mpeg"), _) => Some(MountCodec::Mp3),
            (Some("audio/aac" | "audio/aacp"), _) => Some(MountCodec::Aac),
            (Some("audio/ogg" | "application/ogg"), _) | (None, Some("ogg" | "oga")) => {
                out.note(&format!("/{name}: taken as Vorbis; `codec` is also opus or flac in Ogg"));
                Some(MountCodec::Vorbis)
            }
            (Some(other), _) => {
                out.note(&format!("/{name}: type = {other}: a mount has no such codec"));
                None
            }
            (None, None) => {
                out.note(&format!("/{name}: taken as MP3; `codec` says another one"));
                None
            }
            (None, Some(_)) => None,
        };
        if let Some(codec) = codec {
            line(&mut out.toml, "codec", &quoted(codec.name()));
        }
    }

    fn live_source(
        &self,
        name: &str,
        user: Option<&str>,
        password: Option<&str>,
        out: &mut ConversionResult,
    ) -> String {
        let login = self.root.child("authentication");
        let password = password.or_else(|| login.and_then(|it| it.text_of("source-password")));
        let user = user.filter(|user| *user != "source");
        let user = user.map(|user| format!("{}@", percent_encode(user))).unwrap_or_default();
        // Without a password a source must be on this machine.
        let host = if password.is_some() { "0.0.0.0" } else { "127.0.0.1" };
        let uri = quoted(&format!("icecast://{user}{host}:{}/{name}", self.source_port));
        match password {
            Some(password) => format!("{{ uri = {uri}, password = {} }}", quoted(password)),
            None => {
                out.note(&format!("/{name}: without a password for sources: on this machine only"));
                uri
            }
        }
    }

    fn fallback(
        &self,
        name: &str,
        fallback: &str,
        sources: &mut Vec<String>,
        out: &mut ConversionResult,
    ) {
        let other = fallback.trim_start_matches('/');
        let mut mounts = self.root.all("mount").filter_map(|mount| mount.text_of("mount-name"));
        if mounts.any(|known| known.trim_start_matches('/') == other) && other != name {
            line(&mut out.toml, "station", &quoted(other));
            out.note(&format!(
                "/{name}: the audio of {fallback} is encoded anew when it takes over"
            ));
            return;
        }
        match self.web_file(fallback).filter(|file| (self.exists)(Path::new(file))) {
            Some(file) => sources.push(quoted(&format!("file://{}?loop=true", file_uri(&file)))),
            None => out.note(&format!(
                "/{name}: fallback-mount = {fallback}: neither a mount nor a file; add a source"
            )),
        }
    }

    /// A file of Icecast's folder for the web.
    fn web_file(&self, path: &str) -> Option<String> {
        let root = self.root.child("paths")?.text_of("webroot")?;
        let path = path.trim_start_matches('/');
        let is_inside = !path.split('/').any(|part| part == "..");
        (root.starts_with('/') && is_inside)
            .then(|| format!("{}/{path}", root.trim_end_matches('/')))
    }
}

impl<'a> Relay<'a> {
    fn new(element: &'a Element) -> Option<Self> {
        let server = element.text_of("server")?;
        let mount = element.text_of("mount").unwrap_or("/").trim_start_matches('/');
        let port = element.text_of("port").unwrap_or("8000");
        let name = element.text_of("local-mount").unwrap_or(mount).trim_start_matches('/');
        let url = format!("http://{server}:{port}/{mount}");
        Some(Self { name: name.to_owned(), url, element })
    }
}

/// What listeners are told.
fn icy<'a>(name: &str, key: impl Fn(&str) -> Option<&'a str>, out: &mut ConversionResult) {
    let mut parts = Vec::new();
    for (ours, theirs) in [
        ("name", "stream-name"),
        ("description", "stream-description"),
        ("site", "stream-url"),
        ("genre", "genre"),
    ] {
        if let Some(text) = key(theirs) {
            parts.push(format!("{ours} = {}", quoted(text)));
        }
    }
    // -1 leaves it to the source.
    if let Some(public) = key("public").filter(|text| *text != "-1") {
        parts.push(format!("public = {}", is_true(public)));
    }
    if let Some(text) = key("bitrate") {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        match digits.parse().ok().filter(|kbps| ICY_BITRATE_KBPS.contains(kbps)) {
            Some(kbps) => parts.push(format!("bitrate_kbps = {kbps}")),
            None => out.note(&format!("/{name}: bitrate = {text}: expected kbit/s; left out")),
        }
    }
    if !parts.is_empty() {
        line(&mut out.toml, "icy", &format!("{{ {} }}", parts.join(", ")));
    }
}

fn check_name(name: &str, known: &[String]) -> Result<(), &'static str> {
    if known.iter().any(|other| other == name) {
        Err("there is one of this name")
    } else if is_mount_name(name) {
        Ok(())
    } else {
        Err("not possible as the path of a mount")
    }
}

fn is_true(text: &str) -> bool {
    matches!(text, "1" | "true" | "yes" | "on")
}

/// A path in a URI, whose slashes stay.
fn file_uri(path: &str) -> String {
    path.split('/').map(percent_encode).collect::<Vec<_>>().join("/")
}
