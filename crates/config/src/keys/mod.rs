//! The table of configuration keys: a row of [`keys!`] is the single source of a key's name, old
//! names, type, range, default and meaning.
//!
//! The macro turns rows into a plain struct with `Default`, its reader and a [`Table`]; help,
//! reference page, JSON Schema and `aulos check --fix` are made from the tables. serde's derive was
//! rejected: it stops at the first error and does not know where a value of `--set` comes from.

pub(crate) mod old_keys;
pub(crate) mod redact;
pub(crate) mod reference;
pub(crate) mod values;

use std::fmt::Write as _;

use crate::problem::{ConfigLocation, ConfigValue, Problems, did_you_mean, quoted_list};
use crate::tree::{Node, TableEntry, Value};

/// A table of keys.
#[derive(Debug)]
pub(crate) struct Table {
    /// What the table configures.
    pub doc: &'static str,
    /// Its keys, in the order of the reference.
    pub keys: &'static [Key],
    /// The key for which a text stands that is written in place of the table.
    pub text_key: Option<&'static str>,
    /// The defaults of the keys as TOML, in the same order.
    pub defaults: fn() -> Vec<Option<String>>,
}

/// A key of a table.
#[derive(Debug)]
pub(crate) struct Key {
    /// Its name.
    pub name: &'static str,
    /// Its former names, which are still read.
    pub aliases: &'static [&'static str],
    /// What it means.
    pub doc: &'static str,
    /// The kind of its value.
    pub kind: &'static ValueKind,
    /// The range of a number.
    pub limits: Option<Limits>,
    /// For a required key, an example.
    pub example: Option<&'static str>,
    /// The default in words, where it depends on something else.
    pub default_doc: Option<&'static str>,
}

impl Key {
    /// The names under which it is written: three for a secret.
    #[must_use]
    pub(crate) fn names(&self) -> Vec<String> {
        match self.kind {
            ValueKind::Secret => {
                ["", "_file", "_env"].map(|end| format!("{}{end}", self.name)).into()
            }
            _ => vec![self.name.to_owned()],
        }
    }
}

/// The range of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limits {
    /// The least value.
    pub low: f64,
    /// The greatest value.
    pub high: f64,
    /// The unit of both; may be empty.
    pub unit: &'static str,
}

impl std::fmt::Display for Limits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { low, high, unit } = self;
        write!(f, "{low} to {high}{}{unit}", if unit.is_empty() { "" } else { " " })
    }
}

/// The kind of a value.
#[derive(Debug)]
pub(crate) enum ValueKind {
    /// A string.
    Text,
    /// A boolean.
    Flag,
    /// An integer.
    Integer,
    /// A number, with or without a fraction.
    Number,
    /// A duration with a unit, as text.
    Duration,
    /// A size in bytes with a unit, as text.
    Size,
    /// One of these texts.
    Choice(fn() -> Vec<&'static str>),
    /// A secret: the key holds it, or `KEY_file` or `KEY_env` names where it is.
    Secret,
    /// A table of texts with any keys.
    Texts,
    /// A list.
    List(&'static Self),
    /// A table.
    Table(&'static Table),
    /// One of these kinds.
    AnyOf(&'static [&'static Self]),
}

/// A value that can be read from a configuration.
pub(crate) trait ConfigRead: Sized {
    /// The kind of the value.
    const KIND: &'static ValueKind;

    /// Reads the value; reports a problem and returns `None` if it is not one.
    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self>;

    /// Reads the value of a key, which may be missing.
    fn from_table(table: &TableReader<'_>, key: &'static Key) -> Option<Self> {
        let node = table.node(key)?;
        Self::from_node(node, &table.context(key))
    }

    /// The value as TOML; `None` if there is none.
    fn toml(&self) -> Option<String> {
        None
    }
}

/// A struct with a table of keys; implemented by [`keys!`].
pub(crate) trait KeyTable: Default + 'static {
    /// Its keys.
    const TABLE: &'static Table;

    /// Reads every key.
    fn read_keys(&mut self, table: &TableReader<'_>);
}

/// An enumeration whose values have names in configurations.
pub(crate) trait NamedEnum: Copy + PartialEq + 'static {
    /// The values with their names.
    fn values() -> Vec<(&'static str, Self)>;

    /// The names.
    fn names() -> Vec<&'static str> {
        Self::values().into_iter().map(|(name, _)| name).collect()
    }
}

/// A default from the literal in a row.
pub(crate) trait FromDefault<D> {
    fn from_default(default: D) -> Self;
}

impl<T> FromDefault<T> for T {
    fn from_default(default: T) -> Self {
        default
    }
}

impl<T> FromDefault<T> for ConfigValue<T> {
    fn from_default(default: T) -> Self {
        Self::default_value(default)
    }
}

impl FromDefault<&str> for String {
    fn from_default(default: &str) -> Self {
        default.to_owned()
    }
}

impl FromDefault<&str> for ConfigValue<String> {
    fn from_default(default: &str) -> Self {
        Self::default_value(default.to_owned())
    }
}

/// Declares structs with their tables of keys. A row is
/// `field: Type = default, range RANGE, "unit", required "example", default_doc "default in words",
/// alias "old_name", key "name that is no identifier";`, where all after the type may be left out.
macro_rules! keys {
    ($(
        $(#[doc = $doc:literal])+
        $vis:vis struct $name:ident $((text is $text:literal))? {$(
            $(#[doc = $about:literal])+
            $field:ident: $ty:ty $(= $default:expr)? $(, range $range:expr, $unit:literal)?
                $(, required $example:literal)? $(, default_doc $words:literal)?
                $(, alias $alias:literal)* $(, key $key:literal)?;
        )*}
    )+) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $name {
            /// Location of the table.
            pub at: $crate::problem::ConfigLocation,
            $($(#[doc = $about])+ pub $field: $ty,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    at: $crate::problem::ConfigLocation::Default,
                    $($field: keys!(@default $ty $(, $default)?),)*
                }
            }
        }

        impl $crate::keys::KeyTable for $name {
            const TABLE: &'static $crate::keys::Table = &$crate::keys::Table {
                doc: concat!($($doc),+),
                keys: &[$($crate::keys::Key {
                    name: keys!(@name $field $($key)?),
                    aliases: &[$($alias),*],
                    doc: concat!($($about),+),
                    kind: <$ty as $crate::keys::ConfigRead>::KIND,
                    limits: keys!(@limits $($range, $unit)?),
                    example: keys!(@option $($example)?),
                    default_doc: keys!(@option $($words)?),
                }),*],
                text_key: keys!(@option $($text)?),
                defaults: || {
                    let _default = Self::default();
                    vec![$($crate::keys::ConfigRead::toml(&_default.$field)),*]
                },
            };

            fn read_keys(&mut self, table: &$crate::keys::TableReader<'_>) {
                self.at = table.at;
                #[allow(unused_mut, reason = "a table may have no rows")]
                let mut _keys = Self::TABLE.keys.iter();
                $(if let Some(key) = _keys.next() {
                    table.read(key, &mut self.$field);
                })*
            }
        }

        impl $crate::keys::ConfigRead for $name {
            const KIND: &'static $crate::keys::ValueKind =
                &$crate::keys::ValueKind::Table(<Self as $crate::keys::KeyTable>::TABLE);

            fn from_node(
                node: &$crate::tree::Node,
                context: &$crate::keys::ReadContext<'_>,
            ) -> Option<Self> {
                $crate::keys::table_from_node(node, context)
            }
        }
    )+};
    (@default $ty:ty, $default:expr) => {
        <$ty as $crate::keys::FromDefault<_>>::from_default($default)
    };
    (@default $ty:ty) => { <$ty as Default>::default() };
    (@name $field:ident $key:literal) => { $key };
    (@name $field:ident) => { stringify!($field) };
    (@limits $range:expr, $unit:literal) => {
        Some($crate::keys::Limits {
            low: *$range.start() as f64,
            high: *$range.end() as f64,
            unit: $unit,
        })
    };
    (@limits) => { None };
    (@option $value:literal) => { Some($value) };
    (@option) => { None };
}
pub(crate) use keys;

/// Reads a table, or the text that stands for one of its keys.
pub(crate) fn table_from_node<T: KeyTable>(node: &Node, context: &ReadContext<'_>) -> Option<T> {
    match (&node.value, T::TABLE.text_key) {
        (Value::Table(_), _) => {}
        (Value::Text(_), Some(key)) => {
            let entry = TableEntry { key: key.to_owned(), at: node.at, node: node.clone() };
            let table = Node::new(Value::Table(vec![entry]), node.at);
            return table_from_node(&table, context);
        }
        (_, Some(_)) => return context.wrong_kind(node, "text in quotes or a table"),
        _ => return context.wrong_kind(node, "a table"),
    }
    Some(table_of(node, &context.path, context.problems))
}

/// Reads a table at this path; anything else reads as an empty table.
pub(crate) fn table_of<T: KeyTable>(node: &Node, path: &str, problems: &Problems) -> T {
    table_of_kind(node, path.to_owned(), ("key", &FOREIGN_KEYS), problems)
}

/// As [`table_of`], with the word for its keys and hints for keys that it does not have.
pub(crate) fn table_of_kind<T: KeyTable>(
    node: &Node,
    path: String,
    (kind, hints): (&str, &[(&str, &str)]),
    problems: &Problems,
) -> T {
    let entries = match &node.value {
        Value::Table(entries) => entries.as_slice(),
        _ => &[],
    };
    let reader = TableReader { entries, table: T::TABLE, at: node.at, path, problems };
    let mut value = T::default();
    value.read_keys(&reader);
    reader.report_unknown(kind, hints);
    value
}

/// Keys that are written by mistake, and what to do instead.
const FOREIGN_KEYS: [(&str, &str); 1] =
    [("https", "leave it out: `http` accepts TLS on the same port")];

/// What messages about a value need.
#[derive(Debug)]
pub(crate) struct ReadContext<'a> {
    pub(crate) key: &'static Key,
    /// The path of the value, as in `--set`.
    pub(crate) path: String,
    pub(crate) problems: &'a Problems,
}

impl ReadContext<'_> {
    /// Reports a value of another kind.
    pub(crate) fn wrong_kind<T>(&self, node: &Node, wanted: &str) -> Option<T> {
        let message = format!("`{}` is {}: it must be {wanted}", self.key.name, node.kind());
        self.problems.add_example(node.at, message, self.key.example);
        None
    }

    /// Reports a value that is wrong for this reason.
    pub(crate) fn refuse<T>(&self, node: &Node, value: &str, hint: impl Into<String>) -> Option<T> {
        let message = format!("`{}` is \"{}\"", self.key.name, value.escape_debug());
        self.problems.add_with_hint(node.at, message, hint);
        None
    }

    /// The context of an element of a list: `path.name`, or with its number.
    pub(crate) fn element(&self, index: usize, node: &Node) -> Self {
        let path = match node.get("name") {
            Some(Node { value: Value::Text(name), .. }) => format!("{}.{name}", self.path),
            _ => format!("{}.{index}", self.path),
        };
        Self { path, ..*self }
    }
}

/// A table that is being read.
#[derive(Debug)]
pub(crate) struct TableReader<'a> {
    pub(crate) entries: &'a [TableEntry],
    /// The keys that it may have.
    pub(crate) table: &'static Table,
    pub(crate) at: ConfigLocation,
    /// The path of the table, as in `--set`; empty for the whole configuration.
    pub(crate) path: String,
    pub(crate) problems: &'a Problems,
}

impl<'a> TableReader<'a> {
    /// Reads a key into its field; a key that is missing or wrong keeps the default.
    pub(crate) fn read<T: ConfigRead>(&self, key: &'static Key, field: &mut T) {
        if let Some(value) = T::from_table(self, key) {
            *field = value;
        } else if let Some(example) = key.example
            && !key.names().iter().any(|name| self.entry(name).is_some())
            && self.node(key).is_none()
            && !self.is_misspelt(key)
        {
            let message = format!("`{}` has no `{}`", self.path, key.name);
            self.problems.add_example(self.at, message, Some(example));
        }
    }

    /// Whether an unknown key was probably meant to be this one; that it is unknown is said
    /// already.
    fn is_misspelt(&self, key: &Key) -> bool {
        let names = self.known_names();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let unknown = self.entries.iter().filter(|entry| !self.is_known(&entry.key, &names));
        let mut meant = unknown.filter_map(|entry| did_you_mean(&entry.key, &names));
        meant.any(|name| key.names().iter().any(|own| own == name))
    }

    fn known_names(&self) -> Vec<String> {
        self.table.keys.iter().flat_map(Key::names).collect()
    }

    fn is_known(&self, name: &str, names: &[&str]) -> bool {
        names.contains(&name) || self.table.keys.iter().any(|key| key.aliases.contains(&name))
    }

    /// The entry with exactly this name.
    pub(crate) fn entry(&self, name: &str) -> Option<&'a TableEntry> {
        self.entries.iter().find(|entry| entry.key == name)
    }

    /// The value of a key, under its name or an old one. Of two, the one of the later `--set`
    /// counts.
    pub(crate) fn node(&self, key: &Key) -> Option<&'a Node> {
        let named = |name: &&str| self.entry(name);
        let old: Vec<_> = key.aliases.iter().filter_map(named).collect();
        for entry in &old {
            let message = format!("`{}` is an old name of `{}`", entry.key, key.name);
            let hint = format!("write `{}`; `aulos check --fix` does it", key.name);
            self.problems.warn(entry.at, message, hint);
        }
        let all = old.into_iter().chain(self.entry(key.name));
        let latest = all.clone().max_by_key(|entry| entry.node.at)?;
        let is_file = |entry: &TableEntry| matches!(entry.node.at, ConfigLocation::File(_));
        if let Some(other) = all.into_iter().find(|one| one.key != latest.key)
            && is_file(other)
            && is_file(latest)
        {
            let message = format!("`{}` and `{}` are the same key", other.key, latest.key);
            self.problems.add_with_hint(latest.at, message, format!("keep `{}` alone", key.name));
        }
        Some(&latest.node)
    }

    /// The context of a key's value.
    pub(crate) fn context(&self, key: &'static Key) -> ReadContext<'a> {
        let dot = if self.path.is_empty() { "" } else { "." };
        ReadContext {
            key,
            path: format!("{}{dot}{}", self.path, key.name),
            problems: self.problems,
        }
    }

    /// Reports keys that are not in the table. `hints` has further keys and what to write instead.
    fn report_unknown(&self, kind: &str, hints: &[(&str, &str)]) {
        let names = self.known_names();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for entry in self.entries.iter().filter(|entry| !self.is_known(&entry.key, &names)) {
            let mut message = format!("unknown {kind} `{}`", entry.key);
            if !self.path.is_empty() {
                write!(message, " in `{}`", self.path).ok();
            }
            let hint = match hints.iter().find(|(name, _)| *name == entry.key) {
                Some((_, hint)) => (*hint).to_owned(),
                None => hint_for(&entry.key, &names),
            };
            self.problems.add_with_hint(entry.at, message, hint);
        }
    }
}

/// The known word that was meant, or else all of them.
pub(crate) fn hint_for(word: &str, known: &[&str]) -> String {
    match did_you_mean(word, known) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None if known.is_empty() => "leave it out".to_owned(),
        None => format!("use {}", quoted_list(known, "or")),
    }
}
