//! Conversion of Icecast's configuration, of versions 2.4 and 2.5.
//!
//! Each mount of the file becomes a `[[mount]]`, and so does each relay. Whatever the file says and
//! the result does not is reported, one note for each key.

mod mount;
#[cfg(test)]
mod tests;
mod xml;

use std::path::{Path, PathBuf};

use crate::keys::values::quoted;
use crate::limits::MIN_PASSWORD;
use crate::snapserver::{ConversionResult, line};
use mount::MountConverter;
use xml::Element;
pub use xml::XmlError;

/// Whether a text is Icecast's configuration, and not one of snapserver.
#[must_use]
pub fn is_icecast(text: &str) -> bool {
    text.trim_start_matches('\u{feff}').trim_start().starts_with('<')
}

/// Converts a configuration. `exists` says whether this machine has a file: one that is missing is
/// noted and left out.
///
/// # Errors
/// [`XmlError`] for a text that is no XML.
pub fn convert(text: &str, exists: impl Fn(&Path) -> bool) -> Result<ConversionResult, XmlError> {
    let root = xml::parse(text.trim_start_matches('\u{feff}'))?;
    if root.name != "icecast" {
        let message = format!("expected `<icecast>`, found `<{}>`", root.name);
        return Err(XmlError { line: root.line, message });
    }
    let mut out = ConversionResult::default();
    let port = listen(&root, &mut out);
    http(&root, &mut out);
    access(&root, &mut out);
    MountConverter { root: &root, source_port: port.saturating_add(1), exists: &exists }
        .convert(&mut out);
    note_keys(&root, "", &mut out);
    Ok(out)
}

/// Writes the port of listeners, and returns it.
fn listen(root: &Element, out: &mut ConversionResult) -> u16 {
    let sockets: Vec<&Element> = root.all("listen-socket").collect();
    let is_tls = |socket: &&&Element| {
        let key = socket.text_of("tls").or_else(|| socket.text_of("ssl"));
        key.is_some_and(|value| !matches!(value, "0" | "false" | "disabled"))
    };
    let first = sockets.iter().find(|socket| !is_tls(socket)).or_else(|| sockets.first());
    let text = |name| first.and_then(|socket| socket.text_of(name));
    let port = text("port").or_else(|| root.text_of("port"));
    let port = port.and_then(|port| port.parse().ok()).unwrap_or(DEFAULT_PORT);
    let host = text("bind-address").or_else(|| root.text_of("bind-address")).unwrap_or("::");
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    out.toml += "[listen]\n";
    line(&mut out.toml, "http", &quoted(&format!("{host}:{port}")));
    let next = port.saturating_add(1);
    out.note(&format!(
        "source clients connect to port {next} and listeners to {port}: a port has one of the two"
    ));
    for socket in &sockets {
        let is_first = first.is_some_and(|first| std::ptr::eq(*first, *socket));
        let port = socket.text_of("port").unwrap_or_default();
        if is_tls(&socket) {
            out.note(&format!(
                "line {}: listen-socket {port} with TLS: see [tls], which is for the same port",
                socket.line
            ));
        } else if !is_first {
            out.note(&format!("line {}: listen-socket {port}: there is one port", socket.line));
        }
    }
    port
}

fn http(root: &Element, out: &mut ConversionResult) {
    let mut lines = String::new();
    if let Some(name) = root.text_of("hostname").filter(|name| is_public_name(name)) {
        line(&mut lines, "names", &format!("[{}]", quoted(name)));
    }
    if let Some(file) = access_log(root) {
        line(&mut lines, "access_log", &quoted(&file.to_string_lossy()));
    }
    let mounts = root.all("mount");
    let logins = mounts.flat_map(|mount| mount.all("authentication"));
    let mut options =
        logins.filter(|login| login.attribute("type") == Some("url")).flat_map(|it| {
            let pair = |option: &Element| {
                let name = option.attribute("name")?.to_owned();
                Some((option.line, name, option.attribute("value")?.to_owned()))
            };
            it.all("option").filter_map(pair).collect::<Vec<_>>()
        });
    let options: Vec<_> = options.by_ref().collect();
    for key in AUTH_KEYS {
        let mut of_key = options.iter().filter(|(_, name, _)| name == key);
        let Some((_, _, url)) = of_key.next() else { continue };
        line(&mut lines, key, &quoted(url));
        if let Some((line, ..)) = of_key.find(|(_, _, other)| other != url) {
            out.note(&format!("line {line}: {key}: one URL is asked for all mounts: {url}"));
        }
    }
    for (line, name, _) in &options {
        if !AUTH_KEYS.contains(&name.as_str()) {
            out.note(&format!("line {line}: option {name}: not supported, left out"));
        }
    }
    if !lines.is_empty() {
        out.toml += "\n[http]\n";
        out.toml += &lines;
    }
}

/// The URLs of programs that decide, which have the same names here.
const AUTH_KEYS: [&str; 3] = ["listener_add", "listener_remove", "stream_auth"];

/// Roles: a public port is for listeners.
fn access(root: &Element, out: &mut ConversionResult) {
    out.toml += "\n[access]\n";
    line(&mut out.toml, "anonymous", "\"listen\"");
    let login = root.child("authentication");
    let text = |name| login.and_then(|login| login.text_of(name));
    let Some(password) = text("admin-password") else { return };
    if password.len() < MIN_PASSWORD {
        out.note(&format!(
            "admin-password: shorter than {MIN_PASSWORD} bytes; add a [[user]] with another one"
        ));
        return;
    }
    out.toml += "\n[[user]]\n";
    line(&mut out.toml, "name", &quoted(text("admin-user").unwrap_or("admin")));
    line(&mut out.toml, "role", "\"admin\"");
    line(&mut out.toml, "password", &quoted(password));
}

fn access_log(root: &Element) -> Option<PathBuf> {
    let folder = Path::new(root.child("paths")?.text_of("logdir")?);
    let file = folder.join(root.child("logging")?.text_of("accesslog")?);
    file.is_absolute().then_some(file)
}

/// Names of local networks are always accepted.
fn is_public_name(name: &str) -> bool {
    name.contains('.')
        && !name.contains([':', '/', ' '])
        && name.parse::<std::net::IpAddr>().is_err()
}

/// Notes every key that is not taken; `path` is that of the elements around it.
fn note_keys(element: &Element, path: &str, out: &mut ConversionResult) {
    for child in &element.children {
        let key =
            if path.is_empty() { child.name.clone() } else { format!("{path}.{}", child.name) };
        if TAKEN.contains(&key.as_str()) {
            continue;
        }
        if GROUPS.contains(&key.as_str()) {
            note_keys(child, &key, out);
            continue;
        }
        let why = UNSUPPORTED.iter().find(|(known, _)| *known == key);
        let why = why.map_or("no counterpart, left out", |(_, why)| why);
        // Passwords and whole tables are not repeated.
        let is_plain = child.children.is_empty() && !key.contains("password");
        let value = match child.text.as_str() {
            text if is_plain && !text.is_empty() => format!(" = {text}"),
            _ => String::new(),
        };
        out.note(&format!("line {}: {key}{value}: {why}", child.line));
    }
}

/// Icecast's default port.
const DEFAULT_PORT: u16 = 8000;

/// Elements whose keys are noted one by one.
const GROUPS: [&str; 7] =
    ["authentication", "limits", "listen-socket", "logging", "mount", "paths", "relay"];

/// Keys that the result has, or that have a note of their own.
const TAKEN: [&str; 38] = [
    "authentication.admin-password",
    "authentication.admin-user",
    "authentication.source-password",
    "bind-address",
    "hostname",
    "limits.burst-size",
    "listen-socket.bind-address",
    "listen-socket.port",
    "listen-socket.ssl",
    "listen-socket.tls",
    "logging.accesslog",
    "mount.authentication",
    "mount.bitrate",
    "mount.burst-size",
    "mount.fallback-mount",
    "mount.fallback-override",
    "mount.genre",
    "mount.hidden",
    "mount.intro",
    "mount.max-listener-duration",
    "mount.max-listeners",
    "mount.mount-name",
    "mount.password",
    "mount.public",
    "mount.stream-description",
    "mount.stream-name",
    "mount.stream-url",
    "mount.type",
    "mount.username",
    "paths.logdir",
    "paths.webroot",
    "port",
    "relay.local-mount",
    "relay.mount",
    "relay.on-demand",
    "relay.port",
    "relay.relay-shoutcast-metadata",
    "relay.server",
];

/// Keys without a counterpart, with what does the same.
const UNSUPPORTED: [(&str, &str); 16] = [
    ("directory", "streams are not announced to directories"),
    ("limits.clients", "see `max_listeners` of a mount"),
    ("limits.queue-size", "a listener that does not read for 60 s is disconnected"),
    ("limits.source-timeout", "see `switch.timeout_ms` of a mount"),
    ("limits.burst-on-connect", "see `burst_kb` of a mount"),
    ("limits.sources", "every source is configured"),
    ("http-headers", "other headers are not sent"),
    ("mount.http-headers", "other headers are not sent"),
    ("mount.dump-file", "see `record` of a [[station]] that plays the source"),
    ("mount.on-connect", "see [[hook]]"),
    ("mount.on-disconnect", "see [[hook]]"),
    ("mount.charset", "see `charset` of a source"),
    ("paths.ssl-certificate", "see [tls]"),
    ("relays-on-demand", "see `standby` of a source"),
    ("fileserve", "see `http.doc_root`"),
    ("shoutcast-mount", "see `shoutcast=true` of an `icecast:` source"),
];
