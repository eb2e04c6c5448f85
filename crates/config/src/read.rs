//! From the tree to plain structs: keys, kinds and ranges.

use std::ops::RangeInclusive;

use super::problem::{At, Place, Problems, did_you_mean, listed};
use super::tree::{Entry, Node, Value};

/// A table that is being read. It remembers which keys were asked for: what is left over at the
/// end is unknown.
#[derive(Debug)]
pub(super) struct Table<'a> {
    entries: &'a [Entry],
    /// What the table is called in messages: "station `default`".
    name: String,
    asked: Vec<&'static str>,
    /// Keys that we know and do not do yet; no hint offers them.
    later: Vec<&'static str>,
    problems: &'a Problems,
}

impl<'a> Table<'a> {
    /// `node` as a table called `name`; anything else is noted and read as an empty table.
    pub(super) fn new(node: &'a Node, name: impl Into<String>, problems: &'a Problems) -> Self {
        let name = name.into();
        let entries = match &node.value {
            Value::Table(entries) => entries.as_slice(),
            _ => {
                problems.add(node.at, format!("{name} is {}, not a table", node.kind()));
                &[]
            }
        };
        Self { entries, name, asked: Vec::new(), later: Vec::new(), problems }
    }

    /// The node under `key`, of whatever kind.
    pub(super) fn node(&mut self, key: &'static str) -> Option<&'a Node> {
        self.asked.push(key);
        self.find(key).map(|entry| &entry.node)
    }

    /// A text; on the command line everything is one.
    pub(super) fn text(&mut self, key: &'static str) -> Option<At<String>> {
        let node = self.node(key)?;
        let scalar = !matches!(node.value, Value::List(_) | Value::Table(_));
        match (&node.value, &node.raw) {
            (Value::Text(text), _) => Some(At { value: text.clone(), at: node.at }),
            (_, Some(raw)) if scalar => Some(At { value: raw.clone(), at: node.at }),
            _ => self.wrong_kind(key, node, "text in quotes"),
        }
    }

    /// Yes or no.
    pub(super) fn flag(&mut self, key: &'static str) -> Option<bool> {
        let node = self.node(key)?;
        match node.value {
            Value::Flag(flag) => Some(flag),
            _ => self.wrong_kind(key, node, "true or false"),
        }
    }

    /// A whole number in `range`.
    pub(super) fn number(
        &mut self,
        key: &'static str,
        unit: &str,
        range: RangeInclusive<u32>,
    ) -> Option<At<u32>> {
        let node = self.node(key)?;
        let Value::Integer(number) = node.value else {
            return self.wrong_kind(key, node, "a whole number");
        };
        match u32::try_from(number).ok().filter(|number| range.contains(number)) {
            Some(value) => Some(At { value, at: node.at }),
            None => {
                let (low, high) = (range.start(), range.end());
                let message = format!("`{key}` is {number}: it must be {low} to {high} {unit}");
                self.problems.add(node.at, message);
                None
            }
        }
    }

    /// A number, with or without a fraction, in `range`.
    pub(super) fn real(
        &mut self,
        key: &'static str,
        unit: &str,
        range: RangeInclusive<f64>,
    ) -> Option<At<f64>> {
        let node = self.node(key)?;
        let value = match node.value {
            Value::Float(number) => number,
            // Numbers that an `f64` cannot hold exactly are far outside of every range of ours.
            #[allow(clippy::cast_precision_loss, reason = "see above")]
            Value::Integer(number) => number as f64,
            _ => return self.wrong_kind(key, node, "a number"),
        };
        if range.contains(&value) {
            return Some(At { value, at: node.at });
        }
        let (low, high) = (range.start(), range.end());
        self.problems
            .add(node.at, format!("`{key}` is {value}: it must be {low} to {high} {unit}"));
        None
    }

    /// The elements of a list, and where the list is.
    pub(super) fn list(&mut self, key: &'static str) -> Option<At<&'a [Node]>> {
        let node = self.node(key)?;
        match &node.value {
            Value::List(items) => Some(At { value: items, at: node.at }),
            _ => self.wrong_kind(key, node, "a list"),
        }
    }

    /// A list of texts; none when there is no such key.
    pub(super) fn texts(&mut self, key: &'static str) -> Vec<At<String>> {
        let Some(items) = self.list(key) else { return Vec::new() };
        let text = |node: &Node| match &node.value {
            Value::Text(text) => Some(At { value: text.clone(), at: node.at }),
            _ => self.wrong_kind(key, node, "a list of texts in quotes"),
        };
        items.value.iter().filter_map(text).collect()
    }

    /// A key that we know and do not do yet: it is refused, never passed over.
    pub(super) fn not_yet(&mut self, key: &'static str, instead: &str) {
        self.later.push(key);
        if let Some(entry) = self.find(key) {
            let message = format!("`{key}` is not built yet in this version");
            self.problems.hint(entry.at, message, instead);
        }
    }

    /// Notes what nobody asked for.
    pub(super) fn finish(self) {
        let known = |key: &str| self.asked.contains(&key) || self.later.contains(&key);
        for entry in self.entries.iter().filter(|entry| !known(&entry.key)) {
            let message = format!("unknown key `{}` in {}", entry.key, self.name);
            let hint = match did_you_mean(&entry.key, &self.asked) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("there is {}", listed(&self.asked)),
            };
            self.problems.hint(entry.at, message, hint);
        }
    }

    fn find(&self, key: &str) -> Option<&'a Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    fn wrong_kind<T>(&self, key: &str, node: &Node, wanted: &str) -> Option<T> {
        self.problems.add(node.at, format!("`{key}` is {}: it must be {wanted}", node.kind()));
        None
    }
}

/// The place of a table, for what is missing in it.
pub(super) fn missing(problems: &Problems, at: Place, key: &str, of: &str, example: &str) {
    problems.hint(at, format!("{of} has no `{key}`"), format!("as in {example}"));
}
