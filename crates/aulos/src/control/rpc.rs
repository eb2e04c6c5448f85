//! JSON-RPC 2.0 around a function that answers one call.
//!
//! By hand: three transports share it, and the libraries at hand bring a server of their own.

use serde_json::{Value, json};

/// A call in a request or a batch.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) method: &'a str,
    pub(super) params: &'a Value,
}

/// An error as JSON-RPC has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcError {
    /// -32700 to -32600, or 1 to 7 for streams that cannot be controlled.
    pub code: i32,
    /// What kind it is.
    pub message: &'static str,
    /// The fact.
    pub data: Option<String>,
}

impl RpcError {
    const fn of(code: i32, message: &'static str) -> Self {
        Self { code, message, data: None }
    }

    /// Not JSON, or nothing that could be a request.
    pub(super) fn parse(data: impl Into<String>) -> Self {
        Self { data: Some(data.into()), ..Self::of(-32_700, "Parse error") }
    }

    /// JSON that is no request.
    pub(super) fn request(data: impl Into<String>) -> Self {
        Self { data: Some(data.into()), ..Self::of(-32_600, "Invalid request") }
    }

    /// No such method.
    pub(super) const fn method() -> Self {
        Self::of(-32_601, "Method not found")
    }

    /// A parameter is missing or of the wrong kind.
    pub(super) fn params(data: impl Into<String>) -> Self {
        Self { data: Some(data.into()), ..Self::of(-32_602, "Invalid params") }
    }

    /// The call is good and cannot be carried out.
    pub(super) fn internal(data: impl Into<String>) -> Self {
        Self { data: Some(data.into()), ..Self::of(-32_603, "Internal error") }
    }

    /// Snapcast's errors of stream control, 1 to 7.
    pub(super) const fn stream(code: i32, message: &'static str) -> Self {
        Self::of(code, message)
    }

    fn reply(&self, id: &Value) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            error["data"] = json!(data);
        }
        json!({ "jsonrpc": "2.0", "id": id, "error": error })
    }
}

/// Calls in one batch; Home Assistant sends one, snapcast's own programs at most a few.
pub(super) const MAX_BATCH: usize = 100;
/// Bytes of all answers to one line. The status of a full house has two million.
pub(super) const MAX_REPLY: usize = 8 << 20;

/// Answers one line. `None` when nothing in it wants an answer: calls without an id are carried
/// out in silence (section 4.1 of the specification).
///
/// # Errors
/// The answer to what is neither a request nor a batch.
pub(super) fn answer(
    line: &[u8],
    mut call: impl FnMut(&Call<'_>) -> Result<Value, RpcError>,
) -> Result<Option<String>, String> {
    let refuse = |error: RpcError| Err(error.reply(&Value::Null).to_string());
    // serde_json ends at a depth of 128, so that no line can exhaust the stack.
    let parsed: Value = match serde_json::from_slice(line) {
        Ok(parsed) => parsed,
        Err(error) => return refuse(RpcError::parse(error.to_string())),
    };
    let calls = match &parsed {
        Value::Array(calls) => calls,
        Value::Object(_) => return Ok(one(&parsed, &mut call).map(|reply| reply.to_string())),
        _ => return refuse(RpcError::request("a request is an object")),
    };
    if calls.is_empty() || calls.len() > MAX_BATCH {
        return refuse(RpcError::request(format!("a batch has 1 to {MAX_BATCH} calls")));
    }
    let mut replies: Vec<String> = Vec::new();
    let mut bytes = 0;
    for item in calls {
        let reply = if bytes > MAX_REPLY {
            let error = RpcError::internal("the answers to this batch are too long");
            item.get("id").map(|id| error.reply(id))
        } else {
            one(item, &mut call)
        };
        if let Some(reply) = reply {
            let reply = reply.to_string();
            bytes += reply.len();
            replies.push(reply);
        }
    }
    Ok((!replies.is_empty()).then(|| format!("[{}]", replies.join(","))))
}

/// A notification: it never has an id, because clients would take it for an answer.
pub(super) fn notification(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()
}

fn one(
    value: &Value,
    call: &mut impl FnMut(&Call<'_>) -> Result<Value, RpcError>,
) -> Option<Value> {
    let id = value.get("id");
    let usable = matches!(id, None | Some(Value::Null | Value::String(_) | Value::Number(_)));
    let shape = value["jsonrpc"] == "2.0" && usable;
    let (true, Some(method)) = (shape, value["method"].as_str()) else {
        let id = id.filter(|_| usable).unwrap_or(&Value::Null);
        let text = "a request has \"jsonrpc\": \"2.0\", \"method\" and \"id\"";
        return Some(RpcError::request(text).reply(id));
    };
    let result = call(&Call { method, params: &value["params"] });
    let id = id?;
    Some(match result {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(error) => error.reply(id),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo(line: &str) -> Option<String> {
        answer(line.as_bytes(), |call| match call.method {
            "Echo" => Ok(call.params.clone()),
            "Big" => Ok(Value::String("x".repeat(MAX_REPLY))),
            _ => Err(RpcError::method()),
        })
        .unwrap_or_else(Some)
    }

    #[test]
    fn ids_come_back_as_they_were() {
        for id in ["1", "\"a\"", "null", "-7", "1.5"] {
            let reply =
                echo(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"Echo","params":[1]}}"#));
            assert_eq!(reply.unwrap(), format!(r#"{{"id":{id},"jsonrpc":"2.0","result":[1]}}"#));
        }
        assert_eq!(echo(r#"{"jsonrpc":"2.0","method":"Echo"}"#), None);
        assert_eq!(echo(r#"{"jsonrpc":"2.0","method":"Nope"}"#), None);
    }

    #[test]
    fn what_is_no_request_is_answered_with_why() {
        for (line, code) in [
            ("", -32_700),
            ("{", -32_700),
            (&"[".repeat(100_000), -32_700),
            ("[]", -32_600),
            ("5", -32_600),
            ("{}", -32_600),
            (r#"{"id":1,"method":"Echo"}"#, -32_600),
            (r#"{"jsonrpc":"2.0","id":{},"method":"Echo"}"#, -32_600),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, -32_600),
            (r#"{"jsonrpc":"2.0","id":1,"method":"Nope"}"#, -32_601),
        ] {
            let reply: Value = serde_json::from_str(&echo(line).unwrap()).unwrap();
            assert_eq!(reply["error"]["code"], code, "{line}");
        }
    }

    #[test]
    fn a_batch_is_answered_as_a_batch() {
        let echoes =
            r#"{"jsonrpc":"2.0","id":1,"method":"Echo"},{"jsonrpc":"2.0","method":"Echo"}"#;
        let reply = echo(&format!("[{echoes},5]")).unwrap();
        let reply: Vec<Value> = serde_json::from_str(&reply).unwrap();
        assert_eq!((reply.len(), &reply[1]["error"]["code"]), (2, &json!(-32_600)));
        assert_eq!(echo(&format!("[{}]", r#"{"jsonrpc":"2.0","method":"Echo"}"#)), None);
        assert!(echo(&format!("[{}]", vec!["1"; MAX_BATCH + 1].join(","))).unwrap().len() < 200);
    }

    #[test]
    fn a_batch_cannot_ask_for_more_than_a_few_megabytes() {
        let big = r#"{"jsonrpc":"2.0","id":1,"method":"Big"}"#;
        let reply = echo(&format!("[{}]", [big; MAX_BATCH].join(","))).unwrap();
        assert!(reply.len() < 3 * MAX_REPLY);
    }
}
