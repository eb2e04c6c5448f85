//! One line of JSON-RPC, answered by a function that answers one call.
//!
//! The framing is [`aulos_proto::snap::control`]'s; what is added here is a bound on the answers to
//! a batch, and the errors in the words that snapserver uses.

use std::fmt;

use aulos_proto::snap::control::{Incoming, Notification, Request, RpcError, code, parse};
use serde_json::Value;

/// Bytes of all answers to one line. The status of a full house has four million.
const MAX_REPLY: usize = 8 << 20;

/// What a call gives.
pub(super) enum Outcome {
    /// As a tree.
    Tree(Value),
    /// As JSON.
    Text(String),
}

/// Answers one line. `None` when nothing in it wants an answer: calls without an id are carried
/// out in silence (section 4.1 of the specification).
///
/// # Errors
/// The answer to what is neither a request nor a batch.
pub(super) fn answer(
    line: &[u8],
    mut call: impl FnMut(&str, &Value) -> Result<Outcome, RpcError>,
) -> Result<Option<String>, String> {
    let mut run = |request: Request| match call(&request.method, &request.params) {
        Ok(Outcome::Text(result)) => request.reply_text(&result),
        Ok(Outcome::Tree(result)) => request.reply(Ok(result)).map(|reply| reply.to_json()),
        Err(error) => request.reply(Err(error)).map(|reply| reply.to_json()),
    };
    let calls = match parse(line) {
        Incoming::One(Ok(request)) => return Ok(run(request)),
        Incoming::One(Err(refusal)) => return Err(refusal.to_json()),
        Incoming::Batch(calls) => calls,
        // We ask controllers nothing.
        _ => return Ok(None),
    };
    let mut replies: Vec<String> = Vec::new();
    let mut bytes = 0;
    for call in calls {
        let reply = match call {
            Ok(request) if bytes > MAX_REPLY => {
                let error = internal("the answers to this batch are too long");
                request.reply(Err(error)).map(|reply| reply.to_json())
            }
            Ok(request) => run(request),
            Err(refusal) => Some(refusal.to_json()),
        };
        if let Some(reply) = reply {
            bytes += reply.len();
            replies.push(reply);
        }
    }
    Ok((!replies.is_empty()).then(|| format!("[{}]", replies.join(","))))
}

/// A notification as text; `params` are JSON.
pub(super) fn notification(method: &'static str, params: &impl fmt::Display) -> String {
    Notification::with_text(method, params)
}

/// The call is good and cannot be carried out. snapserver has the fact in `data`.
pub(super) fn internal(fact: impl Into<String>) -> RpcError {
    let data = Some(Value::String(fact.into()));
    RpcError { data, ..RpcError::new(code::INTERNAL_ERROR, "Internal error") }
}

/// There is no such method; snapserver does not repeat its name.
pub(super) fn no_method() -> RpcError {
    RpcError::new(code::METHOD_NOT_FOUND, "Method not found")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo(line: &str) -> Option<String> {
        answer(line.as_bytes(), |method, params| match method {
            "Echo" => Ok(Outcome::Tree(params.clone())),
            "Big" => Ok(Outcome::Text(format!("\"{}\"", "x".repeat(MAX_REPLY)))),
            _ => Err(no_method()),
        })
        .unwrap_or_else(Some)
    }

    #[test]
    fn what_wants_no_answer_gets_none() {
        assert_eq!(echo(r#"{"jsonrpc":"2.0","method":"Echo"}"#), None);
        assert_eq!(echo(r#"{"jsonrpc":"2.0","method":"Nope"}"#), None);
        assert_eq!(echo(r#"[{"jsonrpc":"2.0","method":"Echo"}]"#), None);
        assert_eq!(echo(r#"{"jsonrpc":"2.0","id":1,"result":5}"#), None);
    }

    #[test]
    fn a_batch_is_answered_as_a_batch() {
        let one = r#"{"jsonrpc":"2.0","id":1,"method":"Echo","params":[7]}"#;
        let replies = echo(&format!("[{one},5,{one}]")).unwrap();
        let replies: Vec<Value> = serde_json::from_str(&replies).unwrap();
        assert_eq!(replies[0]["result"], replies[2]["result"]);
        assert_eq!(replies[1]["error"]["code"], -32_600);
    }

    #[test]
    fn a_batch_cannot_ask_for_more_than_a_few_megabytes() {
        let big = r#"{"jsonrpc":"2.0","id":1,"method":"Big"}"#;
        let reply = echo(&format!("[{}]", [big; 100].join(","))).unwrap();
        assert!(reply.len() < 3 * MAX_REPLY);
    }
}
