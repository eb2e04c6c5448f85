//! Reads typed values with range checks from the tree.

use std::ops::RangeInclusive;

use super::problem::{ConfigLocation, ConfigValue, Problems, did_you_mean, quoted_list};
use super::tree::{Node, TableEntry, Value};

/// Reads a table and records the requested keys; all others are unknown.
#[derive(Debug)]
pub(super) struct TableReader<'a> {
    entries: &'a [TableEntry],
    /// The table's name in messages: "station `default`".
    name: String,
    known_keys: Vec<&'static str>,
    /// Planned keys, which hints do not offer.
    planned_keys: Vec<&'static str>,
    problems: &'a Problems,
}

impl<'a> TableReader<'a> {
    /// Reads `node` as a table called `name`; anything else is reported and read as an empty table.
    pub(super) fn new(node: &'a Node, name: impl Into<String>, problems: &'a Problems) -> Self {
        let name = name.into();
        let entries = match &node.value {
            Value::Table(entries) => entries.as_slice(),
            _ => {
                problems.add(node.at, format!("{name} is {}, not a table", node.kind()));
                &[]
            }
        };
        Self { entries, name, known_keys: Vec::new(), planned_keys: Vec::new(), problems }
    }

    /// The node of `key`, of any kind.
    pub(super) fn node(&mut self, key: &'static str) -> Option<&'a Node> {
        self.known_keys.push(key);
        self.find(key).map(|entry| &entry.node)
    }

    /// A string; any value of a `--set` is accepted as one.
    pub(super) fn text(&mut self, key: &'static str) -> Option<ConfigValue<String>> {
        let node = self.node(key)?;
        let scalar = !matches!(node.value, Value::List(_) | Value::Table(_));
        match (&node.value, &node.raw) {
            (Value::Text(text), _) => Some(ConfigValue { value: text.clone(), at: node.at }),
            (_, Some(raw)) if scalar => Some(ConfigValue { value: raw.clone(), at: node.at }),
            _ => self.wrong_kind(key, node, "text in quotes"),
        }
    }

    /// A boolean.
    pub(super) fn flag(&mut self, key: &'static str) -> Option<bool> {
        let node = self.node(key)?;
        match node.value {
            Value::Flag(flag) => Some(flag),
            _ => self.wrong_kind(key, node, "true or false"),
        }
    }

    /// An integer in `range`.
    pub(super) fn number(
        &mut self,
        key: &'static str,
        unit: &str,
        range: RangeInclusive<u32>,
    ) -> Option<ConfigValue<u32>> {
        let node = self.node(key)?;
        let Value::Integer(number) = node.value else {
            return self.wrong_kind(key, node, "a whole number");
        };
        match u32::try_from(number).ok().filter(|number| range.contains(number)) {
            Some(value) => Some(ConfigValue { value, at: node.at }),
            None => {
                let (low, high) = (range.start(), range.end());
                let message = format!("`{key}` is {number}: it must be {low} to {high} {unit}");
                self.problems.add(node.at, message);
                None
            }
        }
    }

    /// A number in `range`, with or without a fraction.
    pub(super) fn real(
        &mut self,
        key: &'static str,
        unit: &str,
        range: RangeInclusive<f64>,
    ) -> Option<ConfigValue<f64>> {
        let node = self.node(key)?;
        let value = match node.value {
            Value::Float(number) => number,
            // Numbers that an `f64` cannot hold exactly are out of every range.
            #[allow(clippy::cast_precision_loss, reason = "see above")]
            Value::Integer(number) => number as f64,
            _ => return self.wrong_kind(key, node, "a number"),
        };
        if range.contains(&value) {
            return Some(ConfigValue { value, at: node.at });
        }
        let (low, high) = (range.start(), range.end());
        self.problems
            .add(node.at, format!("`{key}` is {value}: it must be {low} to {high} {unit}"));
        None
    }

    /// The elements of a list, with its location.
    pub(super) fn list(&mut self, key: &'static str) -> Option<ConfigValue<&'a [Node]>> {
        let node = self.node(key)?;
        match &node.value {
            Value::List(items) => Some(ConfigValue { value: items, at: node.at }),
            _ => self.wrong_kind(key, node, "a list"),
        }
    }

    /// A list of strings; empty when the key is missing.
    pub(super) fn texts(&mut self, key: &'static str) -> Vec<ConfigValue<String>> {
        let Some(items) = self.list(key) else { return Vec::new() };
        let text = |node: &Node| match &node.value {
            Value::Text(text) => Some(ConfigValue { value: text.clone(), at: node.at }),
            _ => self.wrong_kind(key, node, "a list of texts in quotes"),
        };
        items.value.iter().filter_map(text).collect()
    }

    /// Refuses a planned key.
    pub(super) fn reject_planned(&mut self, key: &'static str, instead: &str) {
        self.planned_keys.push(key);
        if let Some(entry) = self.find(key) {
            let message = format!("`{key}` is not built yet in this version");
            self.problems.add_with_hint(entry.at, message, instead);
        }
    }

    /// Reports unknown keys.
    pub(super) fn finish(self) {
        let known = |key: &str| self.known_keys.contains(&key) || self.planned_keys.contains(&key);
        for entry in self.entries.iter().filter(|entry| !known(&entry.key)) {
            let message = format!("unknown key `{}` in {}", entry.key, self.name);
            let hint = match did_you_mean(&entry.key, &self.known_keys) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("there is {}", quoted_list(&self.known_keys)),
            };
            self.problems.add_with_hint(entry.at, message, hint);
        }
    }

    fn find(&self, key: &str) -> Option<&'a TableEntry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    fn wrong_kind<T>(&self, key: &str, node: &Node, wanted: &str) -> Option<T> {
        self.problems.add(node.at, format!("`{key}` is {}: it must be {wanted}", node.kind()));
        None
    }
}

/// Reports a missing key.
pub(super) fn report_missing(
    problems: &Problems,
    at: ConfigLocation,
    key: &str,
    of: &str,
    example: &str,
) {
    problems.add_with_hint(at, format!("{of} has no `{key}`"), format!("as in {example}"));
}
