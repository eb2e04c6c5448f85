//! The kinds of values that keys have, and how each is read and written.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use aulos_core::{SampleSpec, Span};

use crate::keys::{
    ConfigRead, FromDefault, Key, NamedEnum, ReadContext, Table, TableReader, ValueKind, hint_for,
};
use crate::problem::ConfigValue;
use crate::tree::{Node, Value};
use crate::units::{format_bytes, format_span, parse_bytes, parse_span};

impl<T: NamedEnum> ConfigRead for T {
    const KIND: &'static ValueKind = &ValueKind::Choice(T::names);

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        let text = String::from_node(node, context)?;
        let found = Self::values().into_iter().find(|(name, _)| *name == text);
        match found {
            Some((_, value)) => Some(value),
            None => context.refuse(node, &text, hint_for(&text, &Self::names())),
        }
    }

    fn toml(&self) -> Option<String> {
        let named = Self::values().into_iter().find(|(_, value)| value == self);
        named.map(|(name, _)| quoted(name))
    }
}

impl ConfigRead for String {
    const KIND: &'static ValueKind = &ValueKind::Text;

    /// Any value of a `--set` or of a URI is accepted as text.
    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        let scalar = !matches!(node.value, Value::List(_) | Value::Table(_));
        match (&node.value, &node.raw) {
            (Value::Text(text), _) => Some(text.clone()),
            (_, Some(raw)) if scalar => Some(raw.clone()),
            _ => context.wrong_kind(node, "text in quotes"),
        }
    }

    fn toml(&self) -> Option<String> {
        (!self.is_empty()).then(|| quoted(self))
    }
}

impl ConfigRead for bool {
    const KIND: &'static ValueKind = &ValueKind::Flag;

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        match (&node.value, node.raw.as_deref()) {
            (Value::Flag(flag), _) => Some(*flag),
            (_, Some(digit @ ("0" | "1"))) => Some(digit == "1"),
            _ => context.wrong_kind(node, "true or false"),
        }
    }

    fn toml(&self) -> Option<String> {
        Some(self.to_string())
    }
}

macro_rules! integers {
    ($($ty:ty)+) => {$(
        impl ConfigRead for $ty {
            const KIND: &'static ValueKind = &ValueKind::Integer;

            fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
                let Value::Integer(number) = node.value else {
                    return context.wrong_kind(node, "a whole number");
                };
                // Numbers that an `f64` cannot hold exactly are out of every range.
                #[allow(clippy::cast_precision_loss, reason = "see above")]
                let value = in_limits(number as f64, node, context);
                value.and_then(|_| Self::try_from(number).ok())
            }

            fn toml(&self) -> Option<String> {
                Some(self.to_string())
            }
        }
    )+};
}
integers!(u8 u16 u32);

impl ConfigRead for f64 {
    const KIND: &'static ValueKind = &ValueKind::Number;

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        let value = match node.value {
            Value::Float(number) => number,
            #[allow(clippy::cast_precision_loss, reason = "as for integers")]
            Value::Integer(number) => number as Self,
            _ => return context.wrong_kind(node, "a number"),
        };
        in_limits(value, node, context)
    }

    fn toml(&self) -> Option<String> {
        Some(self.to_string())
    }
}

fn in_limits(value: f64, node: &Node, context: &ReadContext<'_>) -> Option<f64> {
    let Some(limits) = context.key.limits else { return Some(value) };
    if (limits.low..=limits.high).contains(&value) {
        return Some(value);
    }
    let message = format!("`{}` is {value}: it must be {limits}", context.key.name);
    context.problems.add(node.at, message);
    None
}

/// Reads a text and parses it; the error says what is wrong or expected.
pub(crate) fn parsed<T, E: std::fmt::Display>(
    node: &Node,
    context: &ReadContext<'_>,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Option<T> {
    let text = String::from_node(node, context)?;
    let ReadContext { key, problems, .. } = context;
    let report = |why: E| {
        let message = format!("`{}` is \"{}\": {why}", key.name, text.escape_debug());
        problems.add_example(node.at, message, key.example);
    };
    parse(&text).map_err(report).ok()
}

impl ConfigRead for Span {
    const KIND: &'static ValueKind = &ValueKind::Duration;

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        parsed(node, context, parse_span)
    }

    fn toml(&self) -> Option<String> {
        Some(quoted(&format_span(*self)))
    }
}

impl ConfigRead for u64 {
    const KIND: &'static ValueKind = &ValueKind::Size;

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        parsed(node, context, parse_bytes)
    }

    fn toml(&self) -> Option<String> {
        Some(quoted(&format_bytes(*self)))
    }
}

impl ConfigRead for SampleSpec {
    const KIND: &'static ValueKind = &ValueKind::Text;

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        parsed(node, context, str::parse::<Self>)
    }

    fn toml(&self) -> Option<String> {
        Some(quoted(&self.to_string()))
    }
}

impl<T: ConfigRead> ConfigRead for ConfigValue<T> {
    const KIND: &'static ValueKind = T::KIND;

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        T::from_node(node, context).map(|value| Self { value, at: node.at })
    }

    fn toml(&self) -> Option<String> {
        self.value.toml()
    }
}

impl<T: ConfigRead> ConfigRead for Option<T> {
    const KIND: &'static ValueKind = T::KIND;

    /// A value that is wrong reads as `None`, so that a check can tell it from one that is missing.
    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        Some(T::from_node(node, context))
    }

    fn from_table(table: &TableReader<'_>, key: &'static Key) -> Option<Self> {
        T::from_table(table, key).map(Some)
    }

    fn toml(&self) -> Option<String> {
        self.as_ref().and_then(T::toml)
    }
}

impl<T: ConfigRead> ConfigRead for Vec<T> {
    const KIND: &'static ValueKind = &ValueKind::List(T::KIND);

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        let Value::List(items) = &node.value else {
            if !matches!((&node.value, T::KIND), (Value::Table(_), ValueKind::Table(_))) {
                // A single value is shown as the list that it would be.
                let takes_text = matches!(
                    T::KIND,
                    ValueKind::Text | ValueKind::Table(Table { text_key: Some(_), .. })
                );
                if let (Value::Text(text), true) = (&node.value, takes_text) {
                    let shown = format!("{} = [{}]", context.key.name, quoted(text));
                    let message = format!("`{}` is text: it must be a list", context.key.name);
                    context.problems.add_example(node.at, message, Some(&shown));
                    return None;
                }
                return context.wrong_kind(node, "a list");
            }
            let message = format!("`{}` is a table: it must be a list of tables", context.path);
            let hint = format!("write [[{}]] with two brackets", context.key.name);
            context.problems.add_with_hint(node.at, message, hint);
            return None;
        };
        if items.is_empty() && context.key.example.is_some() {
            let message = format!("`{}` is empty", context.path);
            context.problems.add_example(node.at, message, context.key.example);
        }
        let element = |(index, node)| T::from_node(node, &context.element(index, node));
        let all: Self = items.iter().enumerate().filter_map(element).collect();
        (items.is_empty() || !all.is_empty()).then_some(all)
    }
}

/// A list, or one value in its place.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OneOrMore<T>(pub(crate) Vec<T>);

impl<T: ConfigRead> ConfigRead for OneOrMore<T> {
    const KIND: &'static ValueKind = &ValueKind::AnyOf(&[T::KIND, <Vec<T> as ConfigRead>::KIND]);

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        match &node.value {
            Value::List(_) => Vec::from_node(node, context).map(Self),
            _ => T::from_node(node, context).map(|one| Self(vec![one])),
        }
    }
}

/// A text, or a number that is taken as one: ports and payload types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextOrNumber(pub(crate) String);

impl ConfigRead for TextOrNumber {
    const KIND: &'static ValueKind = &ValueKind::AnyOf(&[&ValueKind::Integer, &ValueKind::Text]);

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        String::from_node(&node.number_as_text(), context).map(Self)
    }

    fn toml(&self) -> Option<String> {
        let Self(text) = self;
        Some(if text.parse::<u16>().is_ok() { text.clone() } else { quoted(text) })
    }
}

impl FromDefault<&str> for ConfigValue<TextOrNumber> {
    fn from_default(default: &str) -> Self {
        Self::default_value(TextOrNumber(default.to_owned()))
    }
}

/// Whether a value is this word.
pub(crate) fn is_word(node: &Node, word: &str) -> bool {
    matches!(&node.value, Value::Text(text) if text == word)
}

/// The bounds of a range, for messages.
pub(crate) fn bounds<T: std::fmt::Display>(range: &RangeInclusive<T>) -> String {
    format!("{} to {}", range.start(), range.end())
}

/// A TOML string.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                write!(out, "\\u{:04X}", u32::from(c)).ok();
            }
            c => out.push(c),
        }
    }
    out + "\""
}
