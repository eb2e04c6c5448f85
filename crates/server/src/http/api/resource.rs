//! What a resource of the HTTP API is: its parameters, their check, and its part of the
//! `OpenAPI` document.

use aulos_control::access::Role;
use aulos_proto::uri::percent_decode;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use serde_json::{Map, Value, json};

use crate::http::app_state::AppState;

/// A resource, which is read with GET.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) path: &'static str,
    /// The least role of a reader.
    pub(crate) role: Role,
    /// An imperative without a full stop.
    pub(crate) about: &'static str,
    pub(crate) parameters: &'static [Parameter],
    pub(crate) contents: &'static [Content],
    pub(crate) changes: &'static [Change],
    pub(crate) route: fn() -> MethodRouter<AppState>,
}

/// A method by which a resource is changed. It requires the role of the resource.
#[derive(Debug)]
pub(crate) struct Change {
    /// In lower case.
    pub(crate) method: &'static str,
    /// An imperative without a full stop.
    pub(crate) about: &'static str,
}

/// A parameter of a resource, in its path or in the query.
#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) kind: ParameterKind,
    pub(crate) about: &'static str,
}

/// Where a parameter is, and what it may be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ParameterKind {
    /// A part of the path.
    Path,
    /// Text in the query.
    Text,
    /// A whole number in this range.
    Integer(u64, u64),
    /// A time in Unix seconds, or relative to now if it is not positive.
    Time,
    /// One of these words.
    Word(&'static [&'static str]),
}

/// A form of a response.
#[derive(Debug)]
pub(crate) enum Content {
    /// A JSON object with these members: names, and JSON types separated by `|`.
    Members(&'static [(&'static str, &'static str)]),
    /// Something else of this media type, and what.
    Media(&'static str, &'static str),
}

/// The values of a query.
#[derive(Debug)]
pub(crate) struct Query(Vec<(&'static str, String)>);

impl Query {
    /// Parses the query of a resource with these parameters.
    ///
    /// # Errors
    /// The response to a query with an unknown parameter or a wrong value.
    #[allow(clippy::result_large_err, reason = "it is made once a request")]
    pub(crate) fn parse(parameters: &'static [Parameter], uri: &Uri) -> Result<Self, Response> {
        let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let values = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode(&value.replace('+', " "));
            let known = parameters.iter().find(|one| one.name == name && !one.is_in_path());
            let Some(parameter) = known else {
                let names = parameters.iter().filter(|one| !one.is_in_path()).map(|one| one.name);
                let names = names.collect::<Vec<_>>().join(", ");
                let name: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
                return Err(format!("unknown parameter `{name}`; the parameters are: {names}\n"));
            };
            parameter.check(&value).map(|()| (parameter.name, value))
        });
        let values = values.collect::<Result<_, _>>();
        values.map(Self).map_err(|text| (StatusCode::BAD_REQUEST, text).into_response())
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn time(&self, name: &str) -> Option<i64> {
        self.text(name)?.parse().ok()
    }

    pub(crate) fn integer(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }
}

impl Parameter {
    pub(crate) const fn is_in_path(&self) -> bool {
        matches!(self.kind, ParameterKind::Path)
    }

    fn check(&self, value: &str) -> Result<(), String> {
        let name = self.name;
        match self.kind {
            ParameterKind::Path | ParameterKind::Text => Ok(()),
            ParameterKind::Integer(min, max) => match value.parse::<u64>() {
                Ok(number) if (min..=max).contains(&number) => Ok(()),
                _ if max == u64::MAX => Err(format!("`{name}` must be a number from {min}\n")),
                _ => Err(format!("`{name}` must be a number from {min} to {max}\n")),
            },
            ParameterKind::Time if value.parse::<i64>().is_ok() => Ok(()),
            ParameterKind::Time => Err(format!("`{name}` must be a whole number\n")),
            ParameterKind::Word(words) if words.contains(&value) => Ok(()),
            ParameterKind::Word(words) => {
                Err(format!("`{name}` must be one of: {}\n", words.join(", ")))
            }
        }
    }

    fn openapi(&self) -> Value {
        let schema = match self.kind {
            ParameterKind::Path | ParameterKind::Text => json!({ "type": "string" }),
            ParameterKind::Integer(min, u64::MAX) => json!({ "type": "integer", "minimum": min }),
            ParameterKind::Integer(min, max) => {
                json!({ "type": "integer", "minimum": min, "maximum": max })
            }
            ParameterKind::Time => json!({ "type": "integer", "format": "int64" }),
            ParameterKind::Word(words) => json!({ "type": "string", "enum": words }),
        };
        json!({
            "name": self.name,
            "in": if self.is_in_path() { "path" } else { "query" },
            "required": self.is_in_path(),
            "description": self.about,
            "schema": schema,
        })
    }
}

impl Content {
    fn openapi(&self) -> (String, Value) {
        match self {
            Self::Members(members) => {
                let properties = members.iter().map(|(name, types)| {
                    let types: Vec<&str> = types.split('|').collect();
                    ((*name).to_owned(), json!({ "type": types }))
                });
                let properties: Map<_, _> = properties.collect();
                let required: Vec<&str> = members.iter().map(|(name, _)| *name).collect();
                let schema =
                    json!({ "type": "object", "properties": properties, "required": required });
                ("application/json".to_owned(), json!({ "schema": schema }))
            }
            Self::Media(kind, what) => {
                let schema = json!({ "type": "string", "description": what });
                ((*kind).to_owned(), json!({ "schema": schema }))
            }
        }
    }
}

impl Resource {
    pub(crate) fn openapi_operations(&self) -> Value {
        let mut operations = Map::new();
        operations.insert("get".to_owned(), self.openapi_read());
        for change in self.changes {
            operations.insert(change.method.to_owned(), self.openapi_change(change));
        }
        operations.into()
    }

    fn openapi_read(&self) -> Value {
        let contents: Map<_, _> = self.contents.iter().map(Content::openapi).collect();
        let mut responses = json!({
            "200": { "description": "OK", "content": contents },
            "401": { "description": ROLE_REFUSAL },
        });
        if self.parameters.iter().any(|one| !one.is_in_path()) {
            let about = "the query has an unknown parameter or a wrong value";
            responses["400"] = json!({ "description": about });
        }
        if self.parameters.iter().any(Parameter::is_in_path) {
            responses["206"] = json!({ "description": "a part", "content": contents });
            responses["404"] = json!({ "description": "there is none of this name" });
            responses["416"] = json!({ "description": "the range is behind the end" });
        }
        self.openapi_operation(&self.operation_id(), self.about, &responses)
    }

    fn openapi_change(&self, change: &Change) -> Value {
        let responses = json!({
            "2XX": { "description": "done" },
            "401": { "description": ROLE_REFUSAL },
            "4XX": { "description": "the body says why it was refused" },
            "5XX": { "description": "the body says what the server lacks" },
        });
        let id = format!("{}_{}", change.method, self.operation_id());
        self.openapi_operation(&id, change.about, &responses)
    }

    fn operation_id(&self) -> String {
        let name = self.path.trim_start_matches("/api/v1/");
        let words =
            name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        words.collect::<Vec<_>>().join("_")
    }

    fn openapi_operation(&self, id: &str, about: &str, responses: &Value) -> Value {
        json!({
            "operationId": id,
            "summary": about,
            "x-role": self.role.name(),
            "parameters": self.parameters.iter().map(Parameter::openapi).collect::<Vec<_>>(),
            "responses": responses,
        })
    }
}

const ROLE_REFUSAL: &str = "the role of the caller is not sufficient; a login is required";
