//! Names, paths and addresses: the checks that several tables share.

use std::fmt;
use std::path::PathBuf;

use crate::limits::MAX_NAME;
use crate::problem::{ConfigValue, Problems};

/// A host and a port; with port 0 the system chooses one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// An IP address without brackets, or a name.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Parses `HOST:PORT`, `:PORT`, `PORT` or `HOST`; the last three need a default for the missing
/// part.
pub(crate) fn endpoint(text: &str, host: Option<&str>, port: Option<u16>) -> Option<Endpoint> {
    let text = text.trim();
    let (host_text, port_text) = match text.rsplit_once(':') {
        Some((host, _)) if host.contains(':') && !host.ends_with(']') => (text, ""),
        Some((host, port)) if !port.contains(']') => (host, port),
        _ if host.is_some() && text.bytes().all(|byte| byte.is_ascii_digit()) => ("", text),
        _ => (text, ""),
    };
    let name = if host_text.is_empty() { host? } else { without_brackets(host_text) };
    let port = if port_text.is_empty() { port? } else { port_text.parse().ok()? };
    let plain = |c: char| c.is_alphanumeric() || ".-_:%".contains(c);
    (name.chars().all(plain) && !name.is_empty()).then(|| Endpoint { host: name.to_owned(), port })
}

/// An IPv6 address without its brackets; anything else as it is.
pub(crate) fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Checks that a path is absolute.
pub(crate) fn absolute_path(key: &str, dir: &ConfigValue<String>, problems: &Problems) -> PathBuf {
    let path = PathBuf::from(&dir.value);
    if !path.is_absolute() {
        let message = format!("`{key}` is \"{}\": it must be an absolute path", dir.value);
        problems.add_with_hint(dir.at, message, "begin it with a slash");
    }
    path
}

/// Checks the name of a station, source, relay or hook.
pub(crate) fn check_name(name: &ConfigValue<String>, problems: &Problems) -> String {
    let text = &name.value;
    let clean = !text.contains(['/', '\\']) && !text.chars().any(char::is_control);
    if text.is_empty() || text.len() > MAX_NAME || text.trim() != text || !clean {
        let message = format!("`{}` is not a valid name", text.escape_debug());
        let hint = format!(
            "1 to {MAX_NAME} bytes without slashes and line breaks, no space at either end"
        );
        problems.add_with_hint(name.at, message, hint);
    }
    text.clone()
}

/// Reports a name that another `kind` of thing has already.
pub(crate) fn report_duplicate(kind: &str, name: &ConfigValue<String>, problems: &Problems) {
    let message = format!("duplicate {kind} name `{}`", name.value);
    problems.add_with_hint(name.at, message, "give one of them another name");
}
