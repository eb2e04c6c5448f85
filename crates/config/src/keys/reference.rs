//! The reference page and the JSON Schema, both made from the tables of keys.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};

use crate::keys::{Key, KeyTable as _, Table, ValueKind};
use crate::model::Config;
use crate::problem::quoted_list;
use crate::source::{RemoteUse, SCHEMES, Scheme};

/// The reference of the configuration as Markdown.
#[must_use]
pub fn reference() -> String {
    let mut out = HEAD.to_owned();
    section(&mut out, "", Config::TABLE);
    out += SCHEMES_HEAD;
    for scheme in SCHEMES {
        scheme_section(&mut out, scheme);
    }
    out
}

/// The JSON Schema of the configuration, for editors.
#[must_use]
pub fn json_schema() -> String {
    let mut schema = table_schema(Config::TABLE);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("aulos.toml");
    format!("{schema:#}\n")
}

/// A table of keys, and then the tables in it.
fn section(out: &mut String, path: &str, table: &'static Table) {
    if !path.is_empty() {
        let is_root = !path.contains('.');
        write!(out, "\n{} {path}\n\n{}\n", if is_root { "##" } else { "###" }, table.doc.trim())
            .ok();
    }
    rows(out, path, table);
    for key in table.keys {
        if let Some(inner) = table_in(key.kind) {
            section(out, &join(path, key.name), inner);
        }
    }
}

fn rows(out: &mut String, path: &str, table: &'static Table) {
    *out += "\n| key | type | default | values | meaning |\n|---|---|---|---|---|\n";
    for (key, default) in table.keys.iter().zip((table.defaults)()) {
        let names: Vec<String> = key.names().iter().map(|name| format!("`{name}`")).collect();
        let default = match (key.example, key.default_doc, default, table_in(key.kind)) {
            (Some(_), ..) => "required".to_owned(),
            (_, Some(words), ..) => words.to_owned(),
            (_, _, Some(value), _) => format!("`{value}`"),
            (.., Some(_)) => String::new(),
            _ => "none".to_owned(),
        };
        let mut meaning = key.doc.trim().to_owned();
        if table_in(key.kind).is_some() {
            let anchor = join(path, key.name).replace('.', "");
            write!(meaning, " See [{}](#{anchor}).", join(path, key.name)).ok();
        }
        for old in key.aliases {
            write!(meaning, " Old name: `{old}`.").ok();
        }
        let cells = [names.join(", "), kind_name(key.kind), default, values(key), meaning];
        for cell in cells.map(|cell| cell.replace('|', "\\|")) {
            write!(out, "| {cell}{}", if cell.is_empty() { "" } else { " " }).ok();
        }
        *out += "|\n";
    }
}

fn scheme_section(out: &mut String, scheme: &Scheme) {
    write!(out, "\n### {}\n\n{}", scheme.name, scheme.doc.trim()).ok();
    if !scheme.aliases.is_empty() {
        write!(out, " Also {}.", quoted_list(scheme.aliases, "and")).ok();
    }
    *out += match scheme.remote {
        RemoteUse::Allowed => " Controllers may add it.",
        RemoteUse::IfListed => " Controllers may add it if `streams.schemes` has it.",
        RemoteUse::Never => " Controllers cannot add it.",
    };
    write!(out, "\n\n```text\n{}\n```\n", scheme.example).ok();
    if !scheme.params.keys.is_empty() {
        rows(out, scheme.name, scheme.params);
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The table that a value is, or is a list of.
pub(crate) fn table_in(kind: &ValueKind) -> Option<&'static Table> {
    match kind {
        ValueKind::Table(table) => Some(table),
        ValueKind::List(inner) => table_in(inner),
        ValueKind::AnyOf(kinds) => kinds.iter().find_map(|kind| table_in(kind)),
        _ => None,
    }
}

fn kind_name(kind: &ValueKind) -> String {
    match kind {
        ValueKind::Text | ValueKind::Choice(_) => "text".to_owned(),
        ValueKind::Flag => "boolean".to_owned(),
        ValueKind::Integer => "integer".to_owned(),
        ValueKind::Number => "number".to_owned(),
        ValueKind::Duration => "duration".to_owned(),
        ValueKind::Size => "size".to_owned(),
        ValueKind::Secret => "secret".to_owned(),
        ValueKind::Texts => "table of texts".to_owned(),
        ValueKind::Table(Table { text_key: Some(_), .. }) => "text or table".to_owned(),
        ValueKind::Table(_) => "table".to_owned(),
        ValueKind::List(inner) => match kind_name(inner).as_str() {
            "text or table" => "list of texts or tables".to_owned(),
            inner => format!("list of {inner}s"),
        },
        ValueKind::AnyOf(kinds) => {
            kinds.iter().map(|kind| kind_name(kind)).collect::<Vec<_>>().join(" or ")
        }
    }
}

fn values(key: &Key) -> String {
    let limits = key.limits.map(|limits| limits.to_string());
    let choices = choices_in(key.kind).map(|names| quoted_list(&names, "or"));
    limits.or(choices).unwrap_or_default()
}

fn choices_in(kind: &ValueKind) -> Option<Vec<&'static str>> {
    match kind {
        ValueKind::Choice(names) => Some(names()),
        ValueKind::List(inner) => choices_in(inner),
        ValueKind::AnyOf(kinds) => kinds.iter().find_map(|kind| choices_in(kind)),
        _ => None,
    }
}

fn table_schema(table: &'static Table) -> Json {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (key, default) in table.keys.iter().zip((table.defaults)()) {
        let mut schema = kind_schema(key.kind, key);
        schema["description"] = json!(key.doc.trim());
        // A TOML value of these kinds is JSON as well.
        if let Some(default) = default.and_then(|text| serde_json::from_str::<Json>(&text).ok())
            && key.example.is_none()
        {
            schema["default"] = default;
        }
        if key.example.is_some() && !matches!(key.kind, ValueKind::Secret) {
            required.push(key.name);
        }
        for old in key.aliases {
            let mut schema = schema.clone();
            schema["deprecated"] = json!(true);
            properties.insert((*old).to_owned(), schema);
        }
        for name in key.names() {
            properties.insert(name, schema.clone());
        }
    }
    let mut schema = json!({
        "type": "object",
        "description": table.doc.trim(),
        "properties": properties,
        "additionalProperties": false,
    });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn kind_schema(kind: &ValueKind, key: &Key) -> Json {
    let number = |name: &str| match key.limits {
        Some(limits) => json!({ "type": name, "minimum": limits.low, "maximum": limits.high }),
        None => json!({ "type": name }),
    };
    match kind {
        ValueKind::Text | ValueKind::Duration | ValueKind::Size | ValueKind::Secret => {
            json!({ "type": "string" })
        }
        ValueKind::Flag => json!({ "type": "boolean" }),
        ValueKind::Integer => number("integer"),
        ValueKind::Number => number("number"),
        ValueKind::Choice(names) => json!({ "enum": names() }),
        ValueKind::Texts => {
            json!({ "type": "object", "additionalProperties": { "type": "string" } })
        }
        ValueKind::List(inner) => json!({ "type": "array", "items": kind_schema(inner, key) }),
        ValueKind::Table(table) if table.text_key.is_some() => {
            json!({ "anyOf": [{ "type": "string" }, table_schema(table)] })
        }
        ValueKind::Table(table) => table_schema(table),
        ValueKind::AnyOf(kinds) => {
            let all: Vec<Json> = kinds.iter().map(|kind| kind_schema(kind, key)).collect();
            json!({ "anyOf": all })
        }
    }
}

const HEAD: &str = "\
# Configuration reference

Every key of `aulos.toml`. This page is the output of `aulos config --reference`, and
`aulos config --schema` prints a JSON Schema for editors; both are made from the table from which
the server reads its configuration. `aulos check` reports every problem of a file with its line, and
`aulos check --fix` renames old keys.

A *duration* is a text with units: `90s`, `30min`, `1h30m`, `7d`. A *size* is a text:
`500MB`, `2GiB`. A *secret* has three keys, of which one is written: the text itself, a file whose
first line has it, or an environment variable. `--set KEY=VALUE` sets any key by its path; an
element of a list has its name or its number, from 0: `--set station.kitchen.codec=opus`.
";

const SCHEMES_HEAD: &str = "
## Source URIs

The URIs of `sources`: `SCHEME://HOST:PORT/PATH?PARAMETER=VALUE&PARAMETER=VALUE`. Every scheme has
the parameter `name`, the name of the source; the other parameters follow.
";

#[cfg(test)]
mod tests {
    use super::*;
    use aulos_blackbox::golden;

    #[test]
    fn the_reference_page_is_the_table_of_keys() {
        golden::compare(
            env!("CARGO_MANIFEST_DIR"),
            "../../../../docs/reference/config.md",
            &reference(),
        );
    }

    #[test]
    fn the_schema_is_the_table_of_keys() {
        golden::compare(env!("CARGO_MANIFEST_DIR"), "config_schema.json", &json_schema());
    }

    fn check(path: &str, table: &'static Table) {
        let names: Vec<String> = table.keys.iter().flat_map(Key::names).collect();
        let old = table.keys.iter().flat_map(|key| key.aliases).map(|name| (*name).to_owned());
        let mut all: Vec<String> = names.into_iter().chain(old).collect();
        all.sort();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count, "{path} has a name twice");
        assert!(table.doc.trim().ends_with('.'), "{path}: {}", table.doc);
        assert!(table.doc.starts_with(' ') && !table.doc.contains("  "), "{path}: {}", table.doc);
        let defaults = (table.defaults)();
        assert_eq!(defaults.len(), table.keys.len(), "{path}");
        for (key, default) in table.keys.iter().zip(defaults) {
            let path = join(path, key.name);
            assert!(key.doc.trim().ends_with('.'), "{path}: {}", key.doc);
            assert!(key.limits.is_none_or(|limits| limits.low <= limits.high), "{path}");
            if let (Some(limits), Some(text)) = (key.limits, &default) {
                let value: f64 = text.parse().unwrap();
                assert!((limits.low..=limits.high).contains(&value), "{path}: {text}");
            }
            if let Some(inner) = table_in(key.kind) {
                check(&path, inner);
            }
        }
    }

    #[test]
    fn every_row_of_the_table_is_complete() {
        check("", Config::TABLE);
        let mut names: Vec<&str> = SCHEMES.iter().flat_map(Scheme::names).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        for scheme in SCHEMES {
            check(scheme.name, scheme.params);
            assert!(scheme.doc.ends_with('.'), "{}", scheme.name);
            let problems = crate::problem::Problems::default();
            let example = crate::ConfigValue::default_value(scheme.example.to_owned());
            assert!(crate::source::parse(&example, &problems).is_some(), "{}", scheme.example);
            assert_eq!(problems.into_errors(), [], "{}", scheme.example);
        }
    }
}
