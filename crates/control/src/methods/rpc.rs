//! One line of JSON-RPC, split into calls.
//!
//! The framing is that of [`aulos_proto::snap::control`]. This module adds a cost limit for batches
//! and snapserver's error texts. Calls are handed out one at a time, so that the caller can yield
//! between two of them.

use std::pin::Pin;

use aulos_proto::snap::control::{IncomingMessage, Reply, Request, RpcError, code, parse_incoming};
use serde_json::Value;

use crate::clients::registry::NotFound;
use crate::names::NameError;

/// Cost limit of one batch in bytes: the JSON that it renders in answers and notifications, and
/// [`crate::methods::method::CallCost::bytes`] of each call. It is twice the status of a full
/// server, which has four million bytes; calls without an id cost the same.
pub(crate) const MAX_BATCH_COST: usize = 8 << 20;

/// What a method returns.
pub(crate) type MethodResult = Result<CallOutput, RpcError>;

/// The answer of a method. A long one is rendered without the lock of the state, and only if the
/// call has an id.
pub(crate) enum CallOutput {
    /// A JSON tree.
    Tree(Value),
    /// JSON that was rendered already.
    Text(String),
    /// A view of the state, which renders the JSON.
    View(Box<dyn FnOnce() -> String + Send>),
    /// An answer that is known later.
    Later(LaterAnswer),
}

/// An answer that is known later.
pub(crate) type LaterAnswer = Pin<Box<dyn Future<Output = Result<Value, RpcError>> + Send>>;

impl CallOutput {
    pub(crate) fn view(render: impl FnOnce() -> String + Send + 'static) -> Self {
        Self::View(Box::new(render))
    }

    pub(crate) fn later(
        answer: impl Future<Output = Result<Value, RpcError>> + Send + 'static,
    ) -> Self {
        Self::Later(Box::pin(answer))
    }
}

impl From<Value> for CallOutput {
    fn from(tree: Value) -> Self {
        Self::Tree(tree)
    }
}

/// The remaining calls of one line, and the answers so far.
pub(crate) struct CallBatch {
    remaining: std::vec::IntoIter<Result<Request, Reply>>,
    is_batch: bool,
    /// The answer to a single call, or those to a batch in brackets; built in place, without a
    /// second copy.
    answer: String,
    cost: usize,
    refused: usize,
}

impl CallBatch {
    /// Parses one line.
    ///
    /// # Errors
    /// The answer to a line that is neither a request nor a batch.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, String> {
        let (calls, is_batch) = match parse_incoming(line) {
            IncomingMessage::Single(Ok(request)) => (vec![Ok(request)], false),
            IncomingMessage::Single(Err(refusal)) => return Err(refusal.to_json()),
            IncomingMessage::Batch(calls) => (calls, true),
            // The server sends no requests to controllers, so it expects no replies.
            _ => (Vec::new(), false),
        };
        Ok(Self {
            remaining: calls.into_iter(),
            is_batch,
            answer: String::new(),
            cost: 0,
            refused: 0,
        })
    }

    pub(crate) const fn is_batch(&self) -> bool {
        self.is_batch
    }

    /// The next call to execute. Invalid calls and calls beyond the cost limit are answered here.
    pub(crate) fn next(&mut self) -> Option<Request> {
        loop {
            match self.remaining.next()? {
                Ok(request) if self.is_over_budget() => {
                    let error = internal_error(format!(
                        "the batch exceeds the limit of {MAX_BATCH_COST} bytes; send fewer calls in one \
                         batch"
                    ));
                    self.answer(request, Err(error), 0);
                    self.refused += 1;
                }
                Ok(request) => return Some(request),
                Err(refusal) => self.push(refusal.to_json()),
            }
        }
    }

    /// Whether the batch has reached its cost limit. A single call has none.
    const fn is_over_budget(&self) -> bool {
        self.is_batch && self.cost >= MAX_BATCH_COST
    }

    /// Number of calls refused because of the cost limit.
    pub(crate) const fn refused(&self) -> usize {
        self.refused
    }

    /// Bytes of the answer so far.
    pub(crate) const fn answer_length(&self) -> usize {
        self.answer.len()
    }

    /// Records the result of a call and its cost besides the answer. Calls without an id get no
    /// answer (JSON-RPC 2.0, 4.1).
    pub(crate) fn answer(
        &mut self,
        request: Request,
        outcome: Result<CallOutput, RpcError>,
        cost: usize,
    ) {
        let reply = match outcome {
            Ok(CallOutput::Text(result)) => request.reply_text(&result),
            Ok(CallOutput::View(render)) => {
                if request.id.is_some() {
                    request.reply_text(&render())
                } else {
                    None
                }
            }
            // The caller has waited for it, unless nobody wants it.
            Ok(CallOutput::Later(_)) => None,
            Ok(CallOutput::Tree(result)) => request.reply(Ok(result)).map(|reply| reply.to_json()),
            Err(error) => request.reply(Err(error)).map(|reply| reply.to_json()),
        };
        self.cost = self.cost.saturating_add(cost);
        if let Some(reply) = reply {
            self.cost = self.cost.saturating_add(reply.len());
            self.push(reply);
        }
    }

    fn push(&mut self, reply: String) {
        if !self.is_batch {
            self.answer = reply;
            return;
        }
        self.answer.push(if self.answer.is_empty() { '[' } else { ',' });
        self.answer.push_str(&reply);
    }

    /// The answer to the line; `None` when no call needs one.
    pub(crate) fn into_answer(mut self) -> Option<String> {
        if self.answer.is_empty() {
            return None;
        }
        if self.is_batch {
            self.answer.push(']');
        }
        Some(self.answer)
    }
}

/// An error of a valid call; snapserver puts the reason into `data`.
pub(crate) fn internal_error(fact: impl Into<String>) -> RpcError {
    let data = Some(Value::String(fact.into()));
    RpcError { data, ..RpcError::new(code::INTERNAL_ERROR, "Internal error") }
}

/// The error for an unknown method; snapserver does not repeat its name.
pub(crate) fn method_not_found() -> RpcError {
    RpcError::new(code::METHOD_NOT_FOUND, "Method not found")
}

impl From<NotFound> for RpcError {
    fn from(error: NotFound) -> Self {
        internal_error(error.to_string())
    }
}

impl From<NameError> for RpcError {
    fn from(error: NameError) -> Self {
        internal_error(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &str, mut call: impl FnMut(&str)) -> Option<String> {
        let mut calls = match CallBatch::parse(line.as_bytes()) {
            Ok(calls) => calls,
            Err(refusal) => return Some(refusal),
        };
        while let Some(request) = calls.next() {
            call(&request.method);
            let outcome = match request.method.as_str() {
                "Echo" => Ok(CallOutput::Tree(request.params.clone())),
                "Big" => Ok(CallOutput::Text(format!("\"{}\"", "x".repeat(MAX_BATCH_COST)))),
                "Notify" => Ok(CallOutput::Tree(Value::Null)),
                _ => Err(method_not_found()),
            };
            let cost = if request.method == "Notify" { MAX_BATCH_COST / 4 } else { 0 };
            calls.answer(request, outcome, cost);
        }
        calls.into_answer()
    }

    fn echo(line: &str) -> Option<String> {
        run(line, |_| ())
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
        assert!(reply.len() < 3 * MAX_BATCH_COST);
    }

    #[test]
    fn calls_without_an_id_are_within_the_budget_too_and_the_error_names_the_limit() {
        let (notify, echo) = (
            r#"{"jsonrpc":"2.0","method":"Notify"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"Echo"}"#,
        );
        let mut made = 0;
        let line = format!("[{},{echo}]", [notify; 255].join(","));
        let reply = run(&line, |_| made += 1).unwrap();
        assert_eq!(made, 4);
        assert!(reply.contains("-32603") && reply.contains(&MAX_BATCH_COST.to_string()), "{reply}");
    }
}
