//! Answers of the control API.
//!
//! The answer to a batch may have megabytes, and it stays in memory until its caller has read it.
//! With a thousand connections that read nothing, answers would fill the machine's memory, so an
//! answer that may be large needs a permit for its bytes before it is rendered, and holds it until
//! it is sent.

use std::ops::Deref;

use crate::peers::long_calls::AnswerPermit;

/// The answer to a line of JSON-RPC or to a request of the status.
#[derive(Debug)]
pub struct Answer {
    text: String,
    permit: Option<AnswerPermit>,
}

impl Answer {
    pub(crate) const fn new(text: String, permit: Option<AnswerPermit>) -> Self {
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
