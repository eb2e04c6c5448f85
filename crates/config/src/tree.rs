//! The configuration as a tree of values with locations.
//!
//! The embedded default, the file and each `--set` are merged before anything is read. Reading
//! therefore does not depend on the origin of a value, and a problem still has its location.

use serde_json::Value as Json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::problem::{ConfigLocation, Problems, quoted_list};

/// A value with its location.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) at: ConfigLocation,
    /// The text on the command line, for keys that need a string: `--set station.0.name=5`.
    pub(super) raw: Option<String>,
}

/// A configuration value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Flag(bool),
    List(Vec<Node>),
    Table(Vec<TableEntry>),
    /// A TOML type that no key uses.
    Other(&'static str),
}

/// A key of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TableEntry {
    pub(super) key: String,
    pub(super) at: ConfigLocation,
    pub(super) node: Node,
}

impl Node {
    /// A value with its location.
    pub(super) const fn new(value: Value, at: ConfigLocation) -> Self {
        Self { value, at, raw: None }
    }

    /// The kind of the value, for messages.
    pub(super) const fn kind(&self) -> &'static str {
        match &self.value {
            Value::Text(_) => "text",
            Value::Integer(_) => "a whole number",
            Value::Float(_) => "a number with a fraction",
            Value::Flag(_) => "true or false",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
            Value::Other(kind) => kind,
        }
    }

    /// A number as the text that stands for it; anything else as it is.
    pub(super) fn number_as_text(&self) -> Self {
        match self.value {
            Value::Integer(number) => Self::new(Value::Text(number.to_string()), self.at),
            _ => self.clone(),
        }
    }

    /// The value of `key` in a table.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let Value::Table(entries) = &self.value else { return None };
        entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }
}

/// Parses TOML; reports errors and returns what is readable: nothing if a bracket or a quote is not
/// closed, because all that follows would be read as a part of it. `place` converts byte offsets to
/// locations.
pub(super) fn parse(
    text: &str,
    place: &impl Fn(usize) -> ConfigLocation,
    problems: &Problems,
) -> Node {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut errors: Vec<(usize, String)> = errors
        .iter()
        .map(|error| (error.span().map_or(0, |span| span.start), one_line(error.message())))
        .collect();
    errors.sort_by_key(|(start, _)| *start);
    let is_unclosed = errors.iter().any(|(_, text)| text.starts_with("unclosed"));
    if let Some(last) = errors.iter().position(|(_, text)| text.starts_with("unclosed array,")) {
        // The list ends where the comma is missing, and not where the file ends.
        let first = errors.iter().position(|(_, text)| text.starts_with("missing comma"));
        let first = first.map_or(last, |first| first.min(last));
        let text = errors[last].1.clone();
        errors.truncate(first + 1);
        errors[first].1 = text;
    }
    for (start, text) in errors {
        let hint = REMEDIES.iter().find(|(begin, _)| text.starts_with(begin));
        let message = format!("invalid TOML: {text}");
        match hint {
            Some((_, hint)) => problems.add_with_hint(place(start), message, *hint),
            None => problems.add(place(start), message),
        }
    }
    if is_unclosed {
        return Node::new(Value::Table(Vec::new()), place(0));
    }
    Node::new(Value::Table(from_table(table.get_ref(), place)), place(0))
}

/// What to do about errors of TOML, by the beginning of their text.
const REMEDIES: [(&str, &str); 4] = [
    ("unclosed table,", "end the line with `]`, as in [listen]"),
    ("unclosed array table,", "end the line with `]]`, as in [[station]]"),
    ("unclosed array,", "end the list with `]`, and separate its values with commas"),
    ("invalid basic string,", "end the text with `\"`"),
];

/// Sets `KEY=VALUE` in the tree.
pub(super) fn set(root: &mut Node, index: usize, text: &str, problems: &Problems) {
    let at = ConfigLocation::Set(index);
    let Some((path, value)) = text.split_once('=') else {
        return problems.add_with_hint(at, "`=` is missing", "as in --set listen.http=8080");
    };
    let path: Vec<&str> = path.trim().split('.').collect();
    if path.len() > MAX_DEPTH || path.iter().any(|key| key.is_empty()) {
        let hint = "as in listen.http or station.default.codec";
        return problems.add_with_hint(at, "the key is not a path", hint);
    }
    let value = command_line_value(value, at);
    if let Err((message, hint)) = set_at(root, &path, value, at) {
        problems.add_with_hint(at, message, hint);
    }
}

/// Depth limit of `--set` paths; the deepest key has five parts.
const MAX_DEPTH: usize = 8;

type SetError = (String, String);

fn set_at(node: &mut Node, path: &[&str], value: Node, at: ConfigLocation) -> Result<(), SetError> {
    let Some((key, rest)) = path.split_first() else {
        *node = value;
        return Ok(());
    };
    match &mut node.value {
        Value::Table(entries) => {
            if let Some(entry) = entries.iter_mut().find(|entry| entry.key == *key) {
                return set_at(&mut entry.node, rest, value, at);
            }
            let mut fresh = Node::new(Value::Table(Vec::new()), at);
            set_at(&mut fresh, rest, value, at)?;
            entries.push(TableEntry { key: (*key).to_owned(), at, node: fresh });
            Ok(())
        }
        Value::List(items) => {
            let index = element_index(items, key)?;
            if index == items.len() {
                items.push(Node::new(Value::Table(Vec::new()), at));
            }
            let item = &mut items[index];
            // `sources = ["demo://"]` can be reached as `sources.0.name`.
            if let (Value::Text(uri), false) = (&item.value, rest.is_empty()) {
                let node = Node::new(Value::Text(uri.clone()), item.at);
                let uri = TableEntry { key: "uri".to_owned(), at: item.at, node };
                item.value = Value::Table(vec![uri]);
            }
            set_at(item, rest, value, at)
        }
        _ => Err((
            format!("`{key}` cannot be set below {}", node.kind()),
            "leave the last part of the path out".to_owned(),
        )),
    }
}

/// The index of a list element, from its number or name in a path.
fn element_index<'a>(items: &'a [Node], key: &str) -> Result<usize, SetError> {
    if let Ok(index) = key.parse::<usize>() {
        return if index <= items.len() {
            Ok(index)
        } else {
            Err((
                format!("index {index} is beyond the end of a list of {}", items.len()),
                format!("the first index is 0; {} appends an element", items.len()),
            ))
        };
    }
    let name = |item: &'a Node| match item.get("name") {
        Some(Node { value: Value::Text(name), .. }) => Some(name.as_str()),
        _ => None,
    };
    items.iter().position(|item| name(item) == Some(key)).ok_or_else(|| {
        let mut names: Vec<&str> = items.iter().filter_map(name).collect();
        names.dedup();
        let hint = match names[..] {
            [] => "use its index, counted from 0".to_owned(),
            _ => format!("use its index, counted from 0, or {}", quoted_list(&names, "or")),
        };
        (format!("the list has no element with the name `{key}`"), hint)
    })
}

/// The value as TOML if it parses, or else as a string, so that `flac` need not be quoted for a
/// shell.
fn command_line_value(text: &str, at: ConfigLocation) -> Node {
    let mut node = match DeValue::parse(text) {
        Ok(value) => from_value(value.get_ref(), &|_| at, at),
        Err(_) => Node::new(Value::Text(text.to_owned()), at),
    };
    node.raw = Some(text.to_owned());
    node
}

fn from_table(table: &DeTable<'_>, place: &impl Fn(usize) -> ConfigLocation) -> Vec<TableEntry> {
    let mut entries: Vec<TableEntry> = table
        .iter()
        .map(|(key, value)| TableEntry {
            key: key.get_ref().to_string(),
            at: place(key.span().start),
            node: spanned(value, place),
        })
        .collect();
    entries.sort_by_key(|entry| entry.at);
    entries
}

fn spanned(value: &Spanned<DeValue<'_>>, place: &impl Fn(usize) -> ConfigLocation) -> Node {
    from_value(value.get_ref(), place, place(value.span().start))
}

fn from_value(
    value: &DeValue<'_>,
    place: &impl Fn(usize) -> ConfigLocation,
    at: ConfigLocation,
) -> Node {
    let value = match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or(Value::Other("a number beyond 64 bits"), Value::Integer),
        DeValue::Float(number) => {
            number.as_str().parse().map_or(Value::Other("no number"), Value::Float)
        }
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Array(items) => {
            Value::List(items.iter().map(|item| spanned(item, place)).collect())
        }
        DeValue::Table(table) => Value::Table(from_table(table, place)),
        DeValue::Datetime(_) => Value::Other("a date"),
    };
    Node::new(value, at)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A table of values that are given as texts, on the command line or in a URI. Of a repeated key
/// the last one counts, as in Snapcast's URIs.
pub(super) fn from_texts<'a>(
    texts: impl DoubleEndedIterator<Item = (&'a str, &'a str)>,
    at: ConfigLocation,
) -> Node {
    let mut entries: Vec<TableEntry> = Vec::new();
    for (key, text) in texts.rev() {
        if entries.iter().all(|entry| entry.key != key) {
            let value = match (text, text.parse::<i64>(), text.parse::<f64>()) {
                ("true" | "false", ..) => Value::Flag(text == "true"),
                (_, Ok(number), _) => Value::Integer(number),
                (_, _, Ok(number)) if number.is_finite() => Value::Float(number),
                _ => Value::Text(text.to_owned()),
            };
            let node = Node { value, at, raw: Some(text.to_owned()) };
            entries.push(TableEntry { key: key.to_owned(), at, node });
        }
    }
    Node::new(Value::Table(entries), at)
}

/// Converts JSON from a controller.
pub(super) fn from_json(json: &Json) -> Node {
    let value = match json {
        Json::Null => Value::Other("null"),
        Json::Bool(flag) => Value::Flag(*flag),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Value::Integer(integer),
            (None, Some(real)) => Value::Float(real),
            (None, None) => Value::Other("no number"),
        },
        Json::String(text) => Value::Text(text.clone()),
        Json::Array(items) => Value::List(items.iter().map(from_json).collect()),
        Json::Object(entries) => {
            let entry = |(key, value): (&String, &Json)| TableEntry {
                key: key.clone(),
                at: ConfigLocation::Default,
                node: from_json(value),
            };
            Value::Table(entries.iter().map(entry).collect())
        }
    };
    Node::new(value, ConfigLocation::Default)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str, sets: &[&str]) -> (Node, Vec<String>) {
        let problems = Problems::default();
        let mut root = parse(text, &ConfigLocation::File, &problems);
        for (index, text) in sets.iter().enumerate() {
            set(&mut root, index, text, &problems);
        }
        (root, problems.into_errors().into_iter().map(|problem| problem.message).collect())
    }

    #[test]
    fn a_set_reaches_tables_lists_and_names() {
        let (root, problems) = tree(
            "[[station]]\nname = \"a\"\n[[station]]\nname = \"b\"\nsources = [\"demo://\"]",
            &[
                "listen.http=8080",
                "station.b.codec=opus",
                "station.0.switch.crossfade_ms=5",
                "station.1.sources.0.name=x",
                "station.2.name=c",
            ],
        );
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(root.get("listen").unwrap().get("http").unwrap().value, Value::Integer(8080));
        let Value::List(stations) = &root.get("station").unwrap().value else { panic!() };
        assert_eq!(stations[1].get("codec").unwrap().value, Value::Text("opus".to_owned()));
        assert!(stations[0].get("switch").unwrap().get("crossfade_ms").is_some());
        let Value::List(sources) = &stations[1].get("sources").unwrap().value else { panic!() };
        assert_eq!(sources[0].get("uri").unwrap().value, Value::Text("demo://".to_owned()));
        assert_eq!(stations[2].get("name").unwrap().value, Value::Text("c".to_owned()));
    }

    #[test]
    fn a_set_that_cannot_be_placed_says_why() {
        let (_, problems) = tree(
            "state_dir = \"/x\"\n[[station]]\nname = \"a\"",
            &["listen", "a..b=1", "station.z.codec=pcm", "station.7.codec=pcm", "state_dir.x=1"],
        );
        assert_eq!(problems.len(), 5, "{problems:?}");
    }

    #[test]
    fn a_missing_bracket_is_one_error() {
        for (text, place) in [
            ("sources = [\"demo://\"\n[listen]\nhttp = 8080\n[mdns]\nenabled = false\n", 21),
            ("[[station]\nname = \"a\"\n[listen]\nhttp = true\n", 10),
            ("[listen\nhttp = 8080\n[[station]]\nname = \"a\"\n", 7),
        ] {
            let problems = Problems::default();
            parse(text, &ConfigLocation::File, &problems);
            let problems = problems.into_errors();
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].message.contains("unclosed"), "{problems:?}");
            assert_eq!(problems[0].at, ConfigLocation::File(place), "{text}");
        }
    }

    #[test]
    fn every_syntax_error_is_noted() {
        let (_, problems) = tree("a = \nb = 1 1\nc = 2", &[]);
        assert!(problems.len() >= 2, "{problems:?}");
    }
}
