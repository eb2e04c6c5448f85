//! The configuration as it is written, without its secrets, for a page and for reports of faults.
//!
//! A key knows whether it is a secret, so a new secret needs no change here. Credentials can also
//! be part of a text: the user of a URI, parameters in its query, the path of a webhook, the
//! arguments of a program. Where it is not certain that a part is harmless, it is left out.

use serde_json::{Map, Value as Json, json};

use crate::keys::{Key, Table, ValueKind};
use crate::tree::{Node, Value};

/// What stands in place of a secret.
const REDACTED: &str = "[redacted]";

/// A table and all in it as JSON.
pub(crate) fn redacted(node: &Node, table: &Table) -> Json {
    let Value::Table(entries) = &node.value else { return value_json(node, "") };
    let entries = entries.iter().map(|entry| {
        let key = table.keys.iter().find(|key| {
            key.names().contains(&entry.key) || key.aliases.contains(&entry.key.as_str())
        });
        (entry.key.clone(), key.map_or_else(|| json!(REDACTED), |key| of_key(key, entry)))
    });
    Json::Object(entries.collect::<Map<_, _>>())
}

fn of_key(key: &Key, entry: &crate::tree::TableEntry) -> Json {
    match key.kind {
        // The name of the file or of the variable says where the secret is.
        ValueKind::Secret if entry.key != key.name => value_json(&entry.node, key.name),
        ValueKind::Secret | ValueKind::Texts => json!(REDACTED),
        kind => of_kind(kind, &entry.node, key.name),
    }
}

fn of_kind(kind: &ValueKind, node: &Node, name: &str) -> Json {
    match (kind, &node.value) {
        (ValueKind::Table(table), Value::Table(_)) => redacted(node, table),
        (ValueKind::List(inner), Value::List(items)) => {
            items.iter().map(|item| of_kind(inner, item, name)).collect()
        }
        (ValueKind::AnyOf(kinds), value) => {
            let fits = |kind: &&&ValueKind| match (kind, value) {
                (ValueKind::Table(_), Value::Table(_)) | (ValueKind::List(_), Value::List(_)) => {
                    true
                }
                (ValueKind::Table(_) | ValueKind::List(_), _) => false,
                (_, value) => !matches!(value, Value::Table(_) | Value::List(_)),
            };
            kinds.iter().find(fits).map_or_else(|| json!(REDACTED), |one| of_kind(one, node, name))
        }
        // The keys of a table of any other kind are not known.
        (_, Value::Table(_)) => json!(REDACTED),
        // Of a list of tables, one alone may be written.
        (_, Value::List(items)) => items.iter().map(|item| of_kind(kind, item, name)).collect(),
        _ => value_json(node, name),
    }
}

fn value_json(node: &Node, name: &str) -> Json {
    match &node.value {
        Value::Text(text) => json!(redacted_text(text, name)),
        Value::Integer(number) => json!(number),
        Value::Float(number) => json!(number),
        Value::Flag(flag) => json!(flag),
        Value::List(_) | Value::Table(_) | Value::Other(_) => json!(REDACTED),
    }
}

/// A text without what may be a secret in the value of this key.
fn redacted_text(text: &str, name: &str) -> String {
    if PROGRAM_KEYS.contains(&name) {
        let (program, arguments) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = if arguments.is_empty() { String::new() } else { format!(" {REDACTED}") };
        return format!("{program}{rest}");
    }
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    // The last one: a password may have an `@` that is not encoded.
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    // The same with a slash in the password.
    let host = if host == authority && path.contains('@') { REDACTED } else { host };
    if WEBHOOK_KEYS.contains(&name) && scheme.starts_with("http") {
        let path = if path.len() > 1 { format!("/{REDACTED}") } else { String::new() };
        return format!("{scheme}://{host}{path}");
    }
    if host == REDACTED {
        return format!("{scheme}://{REDACTED}");
    }
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let pairs = query.split('&').map(redacted_pair).collect::<Vec<_>>().join("&");
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{scheme}://{host}{path}{mark}{pairs}")
}

/// A parameter of a query: those that are known to be harmless keep their values.
fn redacted_pair(pair: &str) -> String {
    match pair.split_once('=') {
        Some((name, _)) if !PLAIN_PARAMETERS.contains(&name) => format!("{name}={REDACTED}"),
        _ => pair.to_owned(),
    }
}

/// Keys whose URLs may have a secret path, as those of chat services do.
const WEBHOOK_KEYS: [&str; 4] = ["url", "listener_add", "listener_remove", "stream_auth"];

/// Keys of commands, whose arguments may be secrets.
const PROGRAM_KEYS: [&str; 3] = ["run", "params", "script"];

/// Parameters of source URIs that identify and format; any other one may be a credential.
const PLAIN_PARAMETERS: [&str; 17] = [
    "name",
    "codec",
    "sampleformat",
    "chunk_ms",
    "mode",
    "device",
    "devicename",
    "bitrate",
    "port",
    "encoding",
    "channels",
    "interface",
    "latency_ms",
    "loop",
    "hz",
    "level",
    "dbfs",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeyTable as _;
    use crate::model::Config;
    use crate::problem::{ConfigLocation, Problems};

    fn shown(text: &str) -> Json {
        let root = crate::tree::parse(text, &ConfigLocation::File, &Problems::default());
        redacted(&root, Config::TABLE)
    }

    #[test]
    fn no_secret_is_shown_wherever_it_is_written() {
        let text = "
            state_dir = \"/var/lib/aulos\"
            [http]
            listener_add = \"https://stats.example/hush/add\"
            [[station]]
            name = \"a\"
            codec = \"flac\"
            sources = [
                \"https://me:hush@radio.example/x.mp3?token=hush&name=radio\",
                { uri = \"icecast://:8000/live\", password = \"hush hush\" },
                { uri = \"snapcast://host\", password_file = \"/run/secret\" },
                \"http://me:hu/sh@radio.example/\",
                \"librespot:///usr/bin/librespot?name=s&username=me&password=hush\",
            ]
            [[station.push]]
            url = \"icecast://source:hush@host:8000/mount\"
            [[station.record]]
            dir = \"/srv\"
            upload = { url = \"s3://bucket/prefix\", access_key = \"ID\", secret_key = \"hush\" }
            [[user]]
            name = \"admin\"
            role = \"admin\"
            password = \"hush hush\"
            token_env = \"TOKEN\"
            [[hook]]
            on = [\"silence\"]
            url = \"https://chat.example/services/hush\"
            headers = { X = \"hush\" }
            token = \"hush\"
            [[hook]]
            on = [\"silence\"]
            run = \"/usr/bin/alarm --key hush\"
        ";
        let shown = shown(text);
        assert!(!shown.to_string().contains("hush"), "{shown:#}");
        let station = &shown["station"][0];
        assert_eq!(station["codec"], "flac");
        assert_eq!(
            station["sources"][0],
            "https://radio.example/x.mp3?token=[redacted]&name=radio"
        );
        assert_eq!(station["sources"][1]["password"], REDACTED);
        assert_eq!(station["sources"][2]["password_file"], "/run/secret");
        assert_eq!(station["push"][0]["url"], "icecast://host:8000/mount");
        assert_eq!(station["record"][0]["upload"]["url"], "s3://bucket/prefix");
        assert_eq!(shown["user"][0]["token_env"], "TOKEN");
        assert_eq!(shown["hook"][0]["url"], "https://chat.example/[redacted]");
        assert_eq!(shown["hook"][1]["run"], "/usr/bin/alarm [redacted]");
        assert_eq!(shown["state_dir"], "/var/lib/aulos");
    }

    /// A secret has no other kind in the tables.
    #[test]
    fn keys_that_sound_like_secrets_are_secrets() {
        fn check(path: &str, kind: &ValueKind) {
            match kind {
                ValueKind::Table(table) => {
                    for key in table.keys {
                        let is_secret = matches!(key.kind, ValueKind::Secret);
                        let sounds = ["password", "token", "secret"];
                        let sounds = sounds.iter().any(|word| key.name.contains(word));
                        assert!(is_secret || !sounds, "{path}.{}", key.name);
                        check(&format!("{path}.{}", key.name), key.kind);
                    }
                }
                ValueKind::List(inner) => check(path, inner),
                ValueKind::AnyOf(kinds) => kinds.iter().for_each(|kind| check(path, kind)),
                _ => {}
            }
        }
        check("", &ValueKind::Table(Config::TABLE));
    }
}
