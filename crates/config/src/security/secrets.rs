//! Secrets: passwords, tokens and keys, from the configuration, a file or the environment.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};

use crate::env::Environment;
use crate::keys::{ConfigRead, Key, ReadContext, TableReader, ValueKind};
use crate::limits::MAX_SECRET;
use crate::problem::{ConfigLocation, ConfigValue, Problems, quoted_list};
use crate::security::users::SecretDigest;
use crate::tree::Node;

/// The source of a secret.
#[derive(Clone, PartialEq)]
pub(crate) enum SecretConfig {
    /// The configuration itself.
    Inline(ConfigValue<String>),
    /// A file.
    File(ConfigValue<String>),
    /// An environment variable.
    Variable(ConfigValue<String>),
}

impl fmt::Debug for SecretConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(_) => f.write_str("Inline([redacted])"),
            Self::File(path) => write!(f, "File({:?})", path.value),
            Self::Variable(name) => write!(f, "Variable({:?})", name.value),
        }
    }
}

impl ConfigRead for SecretConfig {
    const KIND: &'static ValueKind = &ValueKind::Secret;

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        ConfigValue::from_node(node, context).map(Self::Inline)
    }

    /// Reads the one of the three keys that is written.
    fn from_table(table: &TableReader<'_>, key: &'static Key) -> Option<Self> {
        let names = key.names();
        let kinds = [Self::Inline, Self::File, Self::Variable];
        let mut found: Option<Self> = None;
        for (name, kind) in names.iter().zip(kinds) {
            let Some(entry) = table.entry(name) else { continue };
            let Some(text) = ConfigValue::from_node(&entry.node, &table.context(key)) else {
                continue;
            };
            let at = text.at;
            if found.replace(kind(text)).is_some() {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let message = format!("`{}` has two of {}", table.path, quoted_list(&names, "and"));
                table.problems.add_with_hint(at, message, "keep the one that holds the secret");
            }
        }
        found
    }
}

impl SecretConfig {
    /// Where it is configured.
    pub(crate) const fn location(&self) -> ConfigLocation {
        match self {
            Self::Inline(value) | Self::File(value) | Self::Variable(value) => value.at,
        }
    }

    /// The digest of the secret, which has at least `shortest` bytes.
    pub(crate) fn digest(
        &self,
        shortest: usize,
        env: &Environment,
        problems: &Problems,
    ) -> Option<SecretDigest> {
        self.text(shortest, env, problems).map(|text| SecretDigest::new(&text))
    }

    /// The secret as text, for use with other servers; a digest would not do.
    pub(crate) fn text(
        &self,
        shortest: usize,
        env: &Environment,
        problems: &Problems,
    ) -> Option<String> {
        let (at, text) = match self {
            Self::Inline(text) => (text.at, Ok(text.value.clone())),
            Self::File(ConfigValue { value: path, at }) => {
                let line = read_file(path).map_err(|error| format!("{path}: {error}"));
                if line.as_ref().is_ok_and(|line| line.trim().len() < line.len()) {
                    let message = format!("{path}: the secret begins or ends with a blank");
                    let hint = "remove it from the file, unless it belongs to the secret";
                    problems.warn(*at, message, hint.to_owned());
                }
                (*at, line)
            }
            Self::Variable(ConfigValue { value: name, at }) => {
                let value = env.variables.0.get(name).cloned();
                (*at, value.ok_or_else(|| format!("the environment has no variable `{name}`")))
            }
        };
        let checked = text.and_then(|text| match text.len() {
            length if length < shortest => Err(format!("a secret of {length} bytes is too short")),
            length if length > MAX_SECRET => Err(format!("a secret of {length} bytes is too long")),
            _ => Ok(text),
        });
        let hint = || format!("{shortest} to {MAX_SECRET} bytes in one line");
        checked.map_err(|message| problems.add_with_hint(at, message, hint())).ok()
    }
}

/// The first line of a file, without the byte-order mark that some editors write.
fn read_file(path: &str) -> io::Result<String> {
    let mut bytes = Vec::new();
    // The longest secret may stand behind a byte-order mark, and be followed by a line break.
    File::open(path)?.take(MAX_SECRET as u64 + 6).read_to_end(&mut bytes)?;
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        let text = "it is UTF-16; save it as UTF-8";
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let not_text = || io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8");
    let line = str::from_utf8(line).map_err(|_| not_text())?;
    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
}

/// Hides a value in `Debug` output.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RedactedDebug<T>(pub T);

impl<T> fmt::Debug for RedactedDebug<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}
