//! Requests, replies and notifications.

use core::fmt;
use std::borrow::Cow;

use serde_json::{Map, Number, Value, json};

use crate::json::{self, JsonError};

/// Maximum number of calls in a batch.
pub const MAX_BATCH: usize = 256;

/// Message from a client or a plug-in.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum IncomingMessage {
    /// A single request, or the reply to an invalid one.
    Single(Result<Request, Reply>),
    /// A batch; its replies are sent as a batch as well.
    Batch(Vec<Result<Request, Reply>>),
    /// Reply to a request that was sent to a plug-in.
    Reply(Reply),
}

/// Request to call a method.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Request {
    /// Id; without one, no reply is sent.
    pub id: Option<RequestId>,
    /// Name of the method.
    pub method: String,
    /// Parameters; an empty object when absent.
    pub params: Value,
}

impl Request {
    /// The reply to this request; `None` when it has no id.
    #[must_use]
    pub fn reply(self, outcome: Result<Value, RpcError>) -> Option<Reply> {
        self.id.map(|id| Reply { id, outcome })
    }

    /// The encoded reply with a result that is JSON already; `None` when the request has no id.
    #[must_use]
    pub fn reply_text(self, result: &str) -> Option<String> {
        self.id.map(|id| success(&id, &result))
    }
}

/// Id of a request, as its sender wrote it.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "JSON-RPC 2.0, section 4, has these three")]
pub enum RequestId {
    /// No id could be parsed, or it was `null`.
    Null,
    /// A number.
    Number(Number),
    /// A string.
    Text(String),
}

impl RequestId {
    fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Number(number) => Value::Number(number.clone()),
            Self::Text(text) => Value::String(text.clone()),
        }
    }
}

/// Reply to a request.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "JSON-RPC 2.0, section 5")]
pub struct Reply {
    /// Id of the request.
    pub id: RequestId,
    /// Result or error.
    pub outcome: Result<Value, RpcError>,
}

/// Error of a request.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "JSON-RPC 2.0, section 5.1")]
pub struct RpcError {
    /// One of [`code`], or a positive one of Snapcast's own.
    pub code: i64,
    /// Error message.
    pub message: Cow<'static, str>,
    /// Details.
    pub data: Option<Value>,
}

impl RpcError {
    /// An error without details.
    #[must_use]
    pub fn new(code: i64, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// A standard error with its standard message, and details.
    fn standard(code: i64, data: &str) -> Self {
        let message = match code {
            code::PARSE_ERROR => "Parse error",
            code::INVALID_REQUEST => "Invalid Request",
            code::METHOD_NOT_FOUND => "Method not found",
            code::INVALID_PARAMS => "Invalid params",
            _ => "Internal error",
        };
        Self { data: Some(data.into()), ..Self::new(code, message) }
    }

    /// [`code::METHOD_NOT_FOUND`].
    #[must_use]
    pub fn method_not_found(method: &str) -> Self {
        Self::standard(code::METHOD_NOT_FOUND, method)
    }

    /// [`code::INVALID_PARAMS`] with details.
    #[must_use]
    pub fn invalid_params(what: &str) -> Self {
        Self::standard(code::INVALID_PARAMS, what)
    }

    /// [`code::INTERNAL_ERROR`], which Snapcast also uses for an unknown client, group or stream;
    /// `what` is the message.
    #[must_use]
    pub fn not_found(what: &'static str) -> Self {
        Self::new(code::INTERNAL_ERROR, what)
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl core::error::Error for RpcError {}

/// Error codes of JSON-RPC 2.0, section 5.1.
pub mod code {
    /// Not JSON, or nested too deeply.
    pub const PARSE_ERROR: i64 = -32_700;
    /// JSON, but not a valid request.
    pub const INVALID_REQUEST: i64 = -32_600;
    /// Unknown method.
    pub const METHOD_NOT_FOUND: i64 = -32_601;
    /// Invalid parameters.
    pub const INVALID_PARAMS: i64 = -32_602;
    /// The request failed.
    pub const INTERNAL_ERROR: i64 = -32_603;
}

impl Reply {
    /// The encoded reply.
    #[must_use]
    pub fn to_json(&self) -> String {
        match &self.outcome {
            Ok(result) => success(&self.id, result),
            Err(_) => self.to_value().to_string(),
        }
    }

    /// The encoded replies to a batch; `None` when there are none.
    #[must_use]
    pub fn batch_to_json(all: &[Self]) -> Option<String> {
        let values: Vec<_> = all.iter().map(Self::to_value).collect();
        (!values.is_empty()).then(|| Value::Array(values).to_string())
    }

    fn to_value(&self) -> Value {
        let id = self.id.to_value();
        match &self.outcome {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(error) => {
                let mut body = json!({ "code": error.code, "message": error.message });
                if let (Some(data), Value::Object(map)) = (&error.data, &mut body) {
                    map.insert("data".into(), data.clone());
                }
                json!({ "jsonrpc": "2.0", "id": id, "error": body })
            }
        }
    }
}

/// Formatted directly: the server's status can have megabytes, and `json!` copies its arguments.
fn success(id: &RequestId, result: &impl fmt::Display) -> String {
    format!("{{\"id\":{},\"jsonrpc\":\"2.0\",\"result\":{result}}}", id.to_value())
}

/// Parses a line, HTTP body or WebSocket message.
///
/// For invalid input, the result contains the error reply that JSON-RPC requires. The caller limits
/// the length ([`MAX_LINE`](super::MAX_LINE)); nesting depth and number of calls are limited here.
#[must_use]
pub fn parse_incoming(bytes: &[u8]) -> IncomingMessage {
    match json::parse(bytes) {
        Ok(Value::Array(calls)) if calls.is_empty() => {
            invalid(RequestId::Null, "the batch is empty")
        }
        Ok(Value::Array(calls)) if calls.len() > MAX_BATCH => {
            invalid(RequestId::Null, "the batch has more than 256 calls")
        }
        Ok(Value::Array(calls)) => IncomingMessage::Batch(calls.into_iter().map(request).collect()),
        Ok(Value::Object(map)) if !map.contains_key("method") && is_reply(&map) => {
            IncomingMessage::Reply(reply(map))
        }
        Ok(value) => IncomingMessage::Single(request(value)),
        Err(error) => IncomingMessage::Single(Err(Reply {
            id: RequestId::Null,
            outcome: Err(RpcError::standard(code::PARSE_ERROR, error_text(error))),
        })),
    }
}

const fn error_text(error: JsonError) -> &'static str {
    match error {
        JsonError::Syntax => "not valid JSON",
        JsonError::Depth => "nested too deeply",
    }
}

fn invalid(id: RequestId, what: &str) -> IncomingMessage {
    IncomingMessage::Single(Err(invalid_reply(id, what)))
}

fn invalid_reply(id: RequestId, what: &str) -> Reply {
    Reply { id, outcome: Err(RpcError::standard(code::INVALID_REQUEST, what)) }
}

fn request(value: Value) -> Result<Request, Reply> {
    let Value::Object(mut map) = value else {
        return Err(invalid_reply(RequestId::Null, "the call is not an object"));
    };
    let id = match map.remove("id") {
        None => None,
        Some(value) => Some(read_id(value).ok_or_else(|| {
            invalid_reply(RequestId::Null, "`id` must be a number, a string or null")
        })?),
    };
    let refuse =
        |id: Option<RequestId>, what| Err(invalid_reply(id.unwrap_or(RequestId::Null), what));
    if map.get("jsonrpc").is_some_and(|version| version != "2.0") {
        return refuse(id, "`jsonrpc` must be \"2.0\"");
    }
    let Some(Value::String(method)) = map.remove("method") else {
        return refuse(id, "`method` must be a string");
    };
    let params = match map.remove("params") {
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(params @ (Value::Object(_) | Value::Array(_))) => params,
        Some(_) => return refuse(id, "`params` must be an object or an array"),
    };
    Ok(Request { id, method, params })
}

fn is_reply(map: &Map<String, Value>) -> bool {
    map.contains_key("result") || map.contains_key("error")
}

fn reply(mut map: Map<String, Value>) -> Reply {
    let id = map.remove("id").and_then(read_id).unwrap_or(RequestId::Null);
    let Some(error) = map.remove("error") else {
        return Reply { id, outcome: Ok(map.remove("result").unwrap_or(Value::Null)) };
    };
    let code = error.get("code").and_then(Value::as_i64).unwrap_or(code::INTERNAL_ERROR);
    let message = error.get("message").and_then(Value::as_str).unwrap_or_default().to_owned();
    let data = error.get("data").cloned();
    Reply { id, outcome: Err(RpcError { code, message: Cow::Owned(message), data }) }
}

fn read_id(value: Value) -> Option<RequestId> {
    match value {
        Value::Null => Some(RequestId::Null),
        Value::Number(number) => Some(RequestId::Number(number)),
        Value::String(text) => Some(RequestId::Text(text)),
        _ => None,
    }
}
