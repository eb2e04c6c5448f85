//! Parameters of control calls: their declared types, and access to the values of a call.
//!
//! A row of the method table declares each parameter once. The declaration checks the values of a
//! call, and the reference page and the OpenRPC document are rendered from it. Deserializing into a
//! struct per method was rejected: its errors name neither the accepted values nor a similar name,
//! and the reference would need the same facts a second time.

use std::fmt;

use aulos_config::did_you_mean;
use aulos_proto::snap::control::RpcError;
use serde_json::{Map, Value, json};

use crate::message_text::{alternatives, quoted_list, shorten};
use crate::methods::rpc::internal_error;
use crate::names::NamedKind;

/// The declaration of a parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Param {
    pub(crate) name: &'static str,
    pub(crate) kind: ParamType,
    pub(crate) presence: Presence,
    /// A noun phrase for the reference; empty where name and type say it all.
    pub(crate) about: &'static str,
}

/// Whether a call has to have a parameter, and which value a missing one has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Presence {
    Required,
    Optional,
    /// The default.
    Bool(bool),
    /// The default.
    Number(f64),
    /// The default.
    Text(&'static str),
}

/// The type of a parameter, with its range where it has one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ParamType {
    Text,
    Bool,
    /// A number; a fraction is rounded.
    Integer,
    /// An integer from 0.
    Count,
    Number {
        min: f64,
        max: f64,
    },
    Seconds {
        min: f64,
        max: f64,
    },
    /// One of some words.
    Word(&'static [&'static str]),
    /// A name or a list of names.
    Names,
    /// The id of something, its name, or the beginning of either: the method gets the id.
    Id(NamedKind),
    /// A list of these.
    Ids(NamedKind),
    /// One or a list of them.
    IdOrIds(NamedKind),
    /// An object with these members, and its description.
    Object(&'static [Param], &'static str),
    /// A value that the method checks by itself: its description, and its JSON types, separated by
    /// `|`.
    Checked(&'static str, &'static str),
}

impl Param {
    pub(crate) const fn required(name: &'static str, kind: ParamType, about: &'static str) -> Self {
        Self { name, kind, presence: Presence::Required, about }
    }

    pub(crate) const fn optional(name: &'static str, kind: ParamType, about: &'static str) -> Self {
        Self { name, kind, presence: Presence::Optional, about }
    }

    /// An optional parameter with a default.
    pub(crate) const fn default(
        name: &'static str,
        kind: ParamType,
        default: Presence,
        about: &'static str,
    ) -> Self {
        Self { name, kind, presence: default, about }
    }

    /// The JSON schema of its values.
    pub(crate) fn schema(&self) -> Value {
        let mut schema = self.kind.schema();
        let default = match self.presence {
            Presence::Required | Presence::Optional => return schema,
            Presence::Bool(value) => json!(value),
            Presence::Number(value) => json!(value),
            Presence::Text(value) => json!(value),
        };
        schema["default"] = default;
        schema
    }
}

impl ParamType {
    fn accepts(&self, value: &Value) -> bool {
        match self {
            Self::Text | Self::Id(_) => value.is_string(),
            Self::Bool => value.is_boolean(),
            Self::Integer => value.is_number(),
            Self::Count => value.is_u64(),
            Self::Number { min, max } | Self::Seconds { min, max } => {
                value.as_f64().is_some_and(|number| (*min..=*max).contains(&number))
            }
            Self::Word(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Self::Ids(_) => is_list_of_texts(value),
            Self::Names | Self::IdOrIds(_) => {
                value.is_string() || is_list_of_texts(value) && value.as_array() != Some(&vec![])
            }
            Self::Object(..) => value.is_object(),
            Self::Checked(_, types) => types.split('|').any(|name| has_type(value, name)),
        }
    }

    /// The JSON schema of the type.
    fn schema(&self) -> Value {
        match self {
            Self::Text | Self::Id(_) => json!({ "type": "string" }),
            Self::Bool => json!({ "type": "boolean" }),
            Self::Integer => json!({ "type": "number" }),
            Self::Count => json!({ "type": "integer", "minimum": 0 }),
            Self::Number { min, max } | Self::Seconds { min, max } => {
                json!({ "type": "number", "minimum": min, "maximum": max })
            }
            Self::Word(words) => json!({ "type": "string", "enum": words }),
            Self::Ids(_) => {
                json!({ "type": "array", "items": { "type": "string" } })
            }
            Self::Names | Self::IdOrIds(_) => {
                json!({ "type": ["string", "array"], "items": { "type": "string" } })
            }
            Self::Object(members, _) => {
                let members = members.iter().map(|one| (one.name.to_owned(), one.schema()));
                json!({ "type": "object", "properties": members.collect::<Map<_, _>>() })
            }
            Self::Checked(_, types) => type_schema(types),
        }
    }
}

/// What a value must be: "`x` must be" and this.
impl fmt::Display for ParamType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text | Self::Id(_) => f.write_str("text"),
            Self::Bool => f.write_str("true or false"),
            Self::Integer => f.write_str("a number"),
            Self::Count => f.write_str("a whole number from 0"),
            Self::Number { min, max } => write!(f, "a number from {min} to {max}"),
            Self::Seconds { min, max } => write!(f, "a number of seconds from {min} to {max}"),
            Self::Word(words) => f.write_str(&alternatives(words)),
            Self::Ids(kind) => write!(f, "a list of {}", kind.ids()),
            Self::Names | Self::IdOrIds(_) => f.write_str("a name or a list of names"),
            Self::Object(_, about) | Self::Checked(about, _) => f.write_str(about),
        }
    }
}

/// The schema of JSON types that are separated by `|`.
pub(crate) fn type_schema(types: &str) -> Value {
    let types: Vec<&str> = types.split('|').collect();
    if let [one] = types[..] { json!({ "type": one }) } else { json!({ "type": types }) }
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => value.is_null(),
    }
}

fn is_list_of_texts(value: &Value) -> bool {
    value.as_array().is_some_and(|list| list.iter().all(Value::is_string))
}

/// The values of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Params<'a> {
    declared: &'static [Param],
    values: &'a Value,
    policy: ParamPolicy,
    /// In front of names: the object that these values are members of, with a point.
    prefix: &'static str,
}

/// How the values of a call are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParamPolicy {
    /// As snapserver does: unknown names are ignored, and a value is checked when it is used, so
    /// that an unknown client is reported before a wrong value.
    Snapcast,
    /// All names and values are checked before the method runs.
    Strict,
    /// By the method itself, because the parameters are the keys of a configuration table.
    Method,
}

impl<'a> Params<'a> {
    pub(crate) const fn new(
        declared: &'static [Param],
        values: &'a Value,
        policy: ParamPolicy,
    ) -> Self {
        Self { declared, values, policy, prefix: "" }
    }

    /// Checks all names and values, where the policy requires it.
    ///
    /// # Errors
    /// The first wrong parameter.
    pub(crate) fn check(&self) -> Result<(), RpcError> {
        if self.policy != ParamPolicy::Strict {
            return Ok(());
        }
        match self.values {
            Value::Null => {}
            Value::Object(values) => {
                if let Some(unknown) = values.keys().find(|name| self.find(name).is_none()) {
                    return Err(self.unknown(unknown));
                }
            }
            Value::Array(list) if list.is_empty() => {}
            other => {
                let found = found_text(other);
                let text = format!("the parameters must be an object, not {found}");
                return Err(RpcError::invalid_params(&text));
            }
        }
        self.declared.iter().try_for_each(|param| self.checked(param.name).map(drop))
    }

    /// All values, unchecked.
    pub(crate) const fn values(&self) -> &'a Value {
        self.values
    }

    /// A value that the method checks by itself; null if it is missing.
    pub(crate) fn value(&self, name: &str) -> Result<&'a Value, RpcError> {
        Ok(self.checked(name)?.unwrap_or(&Value::Null))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        !self.values[name].is_null()
    }

    /// The name of the only one of these parameters that is given.
    ///
    /// # Errors
    /// When none or several are given.
    pub(crate) fn only_one(&self, names: &[&'static str]) -> Result<&'static str, RpcError> {
        self.at_most_one(names)?.ok_or_else(|| exclusive(names))
    }

    /// The same, or `None` when none is given.
    ///
    /// # Errors
    /// When several are given.
    pub(crate) fn at_most_one(
        &self,
        names: &[&'static str],
    ) -> Result<Option<&'static str>, RpcError> {
        let mut given = names.iter().filter(|name| self.has(name));
        let first = given.next().copied();
        if given.next().is_some() { Err(exclusive(names)) } else { Ok(first) }
    }

    pub(crate) fn text(&self, name: &str) -> Result<&'a str, RpcError> {
        self.optional_text(name)?.ok_or_else(|| self.missing(name))
    }

    pub(crate) fn optional_text(&self, name: &str) -> Result<Option<&'a str>, RpcError> {
        let default = match self.find(name).map(|param| param.presence) {
            Some(Presence::Text(default)) => Some(default),
            _ => None,
        };
        Ok(self.checked(name)?.and_then(Value::as_str).or(default))
    }

    pub(crate) fn bool(&self, name: &str) -> Result<bool, RpcError> {
        self.optional_bool(name)?.ok_or_else(|| self.missing(name))
    }

    pub(crate) fn optional_bool(&self, name: &str) -> Result<Option<bool>, RpcError> {
        let default = match self.find(name).map(|param| param.presence) {
            Some(Presence::Bool(default)) => Some(default),
            _ => None,
        };
        Ok(self.checked(name)?.and_then(Value::as_bool).or(default))
    }

    /// A rounded number, limited to 64 bits.
    pub(crate) fn integer(&self, name: &str) -> Result<i64, RpcError> {
        self.optional_integer(name)?.ok_or_else(|| self.missing(name))
    }

    pub(crate) fn optional_integer(&self, name: &str) -> Result<Option<i64>, RpcError> {
        // The cast saturates; the callers limit the number to a much smaller range.
        #[allow(clippy::cast_possible_truncation, reason = "see above")]
        let rounded = |number: f64| number.round() as i64;
        let value = self.checked(name)?;
        Ok(value.and_then(|value| value.as_i64().or_else(|| value.as_f64().map(rounded))))
    }

    /// An integer from 0.
    pub(crate) fn count(&self, name: &str) -> Result<u64, RpcError> {
        self.checked(name)?.and_then(Value::as_u64).ok_or_else(|| self.missing(name))
    }

    pub(crate) fn number(&self, name: &str) -> Result<f64, RpcError> {
        self.optional_number(name)?.ok_or_else(|| self.missing(name))
    }

    pub(crate) fn optional_number(&self, name: &str) -> Result<Option<f64>, RpcError> {
        let default = match self.find(name).map(|param| param.presence) {
            Some(Presence::Number(default)) => Some(default),
            _ => None,
        };
        Ok(self.checked(name)?.and_then(Value::as_f64).or(default))
    }

    /// A list of texts; a single text is a list of one.
    pub(crate) fn optional_texts(&self, name: &str) -> Result<Option<Vec<&'a str>>, RpcError> {
        Ok(self.checked(name)?.map(|value| match value {
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            other => other.as_str().into_iter().collect(),
        }))
    }

    pub(crate) fn texts(&self, name: &str) -> Result<Vec<&'a str>, RpcError> {
        self.optional_texts(name)?.ok_or_else(|| self.missing(name))
    }

    /// The members of an object; `prefix` is its name with a point.
    pub(crate) fn object(&self, name: &str, prefix: &'static str) -> Result<Self, RpcError> {
        let values = self.checked(name)?.ok_or_else(|| self.missing(name))?;
        let declared = match self.find(name).map(|param| param.kind) {
            Some(ParamType::Object(members, _)) => members,
            _ => &[],
        };
        Ok(Self { declared, values, prefix, ..*self })
    }

    /// The error for a parameter that does not fulfil `expected`.
    pub(crate) fn invalid(&self, name: &str, expected: &impl fmt::Display) -> RpcError {
        let prefix = self.prefix;
        let text = match (self.policy, &self.values[name]) {
            (ParamPolicy::Snapcast, _) => format!("`{prefix}{name}` must be {expected}"),
            (_, Value::Null) => format!("`{prefix}{name}` is missing; it must be {expected}"),
            (_, value) => {
                format!("`{prefix}{name}` must be {expected}, not {}", found_text(value))
            }
        };
        RpcError::invalid_params(&text)
    }

    fn missing(&self, name: &str) -> RpcError {
        match self.find(name) {
            Some(param) => self.invalid(name, &param.kind),
            None => undeclared(name),
        }
    }

    /// A value of the declared type; `None` if it is missing and need not be given.
    fn checked(&self, name: &str) -> Result<Option<&'a Value>, RpcError> {
        let param = self.find(name).ok_or_else(|| undeclared(name))?;
        match self.values.get(name).filter(|value| !value.is_null()) {
            None if param.presence == Presence::Required => Err(self.missing(name)),
            None => Ok(None),
            Some(value) if param.kind.accepts(value) => Ok(Some(value)),
            Some(_) => Err(self.invalid(name, &param.kind)),
        }
    }

    fn find(&self, name: &str) -> Option<&'static Param> {
        self.declared.iter().find(|param| param.name == name)
    }

    fn unknown(&self, name: &str) -> RpcError {
        let names: Vec<&str> = self.declared.iter().map(|param| param.name).collect();
        let hint = match (did_you_mean(name, &names), &names[..]) {
            (Some(similar), _) => format!("did you mean `{similar}`?"),
            (None, []) => "this method has no parameters".to_owned(),
            (None, names) => format!("the parameters are {}", quoted_list(names)),
        };
        RpcError::invalid_params(&format!("unknown parameter `{}`, {hint}", shorten(name)))
    }
}

/// A handler has used a name that its row does not declare.
fn undeclared(name: &str) -> RpcError {
    internal_error(format!("the parameter `{name}` is not declared"))
}

fn exclusive(names: &[&str]) -> RpcError {
    let only = if names.len() > 2 { "only one of them" } else { "not both" };
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    RpcError::invalid_params(&format!("give {}, {only}", alternatives(&names)))
}

/// A value for an error message.
fn found_text(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) => format!("\"{}\"", shorten(text)),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARED: &[Param] = &[
        Param::required("station", ParamType::Text, ""),
        Param::default("volumes", ParamType::Bool, Presence::Bool(false), ""),
        Param::optional("for_s", ParamType::Seconds { min: 0.5, max: 10.0 }, ""),
        Param::optional("map", ParamType::Word(&["left", "right", "mono"]), ""),
        Param::optional("recorder", ParamType::Names, ""),
    ];

    fn error(values: &Value, policy: ParamPolicy) -> String {
        let params = Params::new(DECLARED, values, policy);
        let error = params.check().and_then(|()| params.text("station").map(drop)).unwrap_err();
        assert_eq!(error.code, -32_602);
        error.data.unwrap().as_str().unwrap().to_owned()
    }

    #[test]
    fn an_error_names_the_parameter_and_what_was_expected_and_found() {
        for (values, expected) in [
            (json!({ "staton": "a" }), "unknown parameter `staton`, did you mean `station`?"),
            (
                json!({ "station": "a", "x": 1 }),
                "unknown parameter `x`, the parameters are `station`, `volumes`, `for_s`, `map` and \
                 `recorder`",
            ),
            (json!({}), "`station` is missing; it must be text"),
            (json!({ "station": 7 }), "`station` must be text, not 7"),
            (json!({ "station": [1] }), "`station` must be text, not a list"),
            (
                json!({ "station": "a", "volumes": "yes" }),
                "`volumes` must be true or false, not \"yes\"",
            ),
            (
                json!({ "station": "a", "for_s": 11 }),
                "`for_s` must be a number of seconds from 0.5 to 10, not 11",
            ),
            (
                json!({ "station": "a", "map": "up" }),
                "`map` must be left, right or mono, not \"up\"",
            ),
            (
                json!({ "station": "a", "recorder": [] }),
                "`recorder` must be a name or a list of names, not a list",
            ),
            (json!([1]), "the parameters must be an object, not a list"),
        ] {
            assert_eq!(error(&values, ParamPolicy::Strict), expected, "{values}");
        }
        let long = json!({ "x".repeat(100_000): 1 });
        assert!(error(&long, ParamPolicy::Strict).len() < 200);
    }

    #[test]
    fn snapcasts_calls_ignore_unknown_names_and_have_snapservers_texts() {
        let values = json!({ "staton": 1, "station": "a", "volumes": 7 });
        let params = Params::new(DECLARED, &values, ParamPolicy::Snapcast);
        params.check().unwrap();
        assert_eq!(params.text("station").unwrap(), "a");
        let wrong = params.bool("volumes").unwrap_err().data.unwrap();
        assert_eq!(wrong, "`volumes` must be true or false");
        for values in [json!({}), json!([1]), Value::Null] {
            assert_eq!(error(&values, ParamPolicy::Snapcast), "`station` must be text");
        }
    }

    #[test]
    fn a_missing_parameter_has_its_default_and_null_counts_as_missing() {
        let values = json!({ "station": "a", "volumes": null, "recorder": "one" });
        let params = Params::new(DECLARED, &values, ParamPolicy::Strict);
        params.check().unwrap();
        assert!(!params.bool("volumes").unwrap());
        assert_eq!(params.optional_number("for_s").unwrap(), None);
        assert_eq!(params.optional_texts("recorder").unwrap(), Some(vec!["one"]));
        assert!(params.text("undeclared").is_err());
        assert_eq!(params.only_one(&["map", "recorder"]).unwrap(), "recorder");
        let both = params.only_one(&["station", "recorder"]).unwrap_err().data.unwrap();
        assert_eq!(both, "give `station` or `recorder`, not both");
    }
}
