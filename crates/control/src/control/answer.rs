//! Answers of the control API, and how many large ones are in memory at once.
//!
//! The answer to a batch may have twelve megabytes, and it stays in memory until its caller has read
//! it. With a thousand connections that read nothing, answers would fill the machine's memory, so an
//! answer that may be large needs a permit before it is rendered, and holds it until it is sent.

use std::ops::Deref;

use tokio::sync::OwnedSemaphorePermit;

/// Bytes from which an answer is large.
pub(super) const LARGE_ANSWER: usize = 64 << 10;

/// Large answers in memory for one address: enough for the pages behind one proxy, some of which may
/// have stopped reading.
pub(super) const LARGE_ANSWERS_PER_ADDRESS: usize = 8;

/// Large answers in memory for all addresses.
pub(super) const MAX_LARGE_ANSWERS: usize = 32;

/// The right to keep a large answer in memory, until it is dropped.
#[derive(Debug)]
pub struct AnswerPermit {
    _address: OwnedSemaphorePermit,
    _server: OwnedSemaphorePermit,
}

impl AnswerPermit {
    pub(super) const fn new(address: OwnedSemaphorePermit, server: OwnedSemaphorePermit) -> Self {
        Self { _address: address, _server: server }
    }
}

/// The answer to a line of JSON-RPC or to a request of the status.
#[derive(Debug)]
pub struct Answer {
    text: String,
    permit: Option<AnswerPermit>,
}

impl Answer {
    /// An answer; a small one returns its permit.
    pub(super) fn new(text: String, permit: Option<AnswerPermit>) -> Self {
        let permit = permit.filter(|_| text.len() >= LARGE_ANSWER);
        Self { text, permit }
    }

    /// Another text made of this one, with its permit.
    #[must_use]
    pub fn with_text(self, text: String) -> Self {
        Self { text, ..self }
    }

    /// The text, and the permit to be kept until the text is sent; none for a small answer.
    #[must_use]
    pub fn into_parts(self) -> (String, Option<AnswerPermit>) {
        (self.text, self.permit)
    }
}

impl Deref for Answer {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl From<String> for Answer {
    fn from(text: String) -> Self {
        Self { text, permit: None }
    }
}
