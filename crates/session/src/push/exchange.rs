//! One request to an Icecast server, up to its answer.

use std::io;

use aulos_core::{Instant, Span};
use aulos_proto::icecast::{SourceMethod, SourceResponse};

use super::PushError;

/// A request that has been made, and what has been read of the answer.
#[derive(Debug)]
pub(super) struct Exchange {
    method: SourceMethod,
    read: Vec<u8>,
    /// A refusal whose body, the reason, is still being read.
    refusal: Option<SourceResponse>,
    deadline: Instant,
}

impl Exchange {
    pub(super) fn new(method: SourceMethod, now: Instant) -> Self {
        Self { method, read: Vec::new(), refusal: None, deadline: now + CONNECT_TIMEOUT }
    }

    pub(super) const fn method(&self) -> SourceMethod {
        self.method
    }

    pub(super) const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The request has been sent.
    pub(super) fn handle_requested(&mut self, now: Instant, timeout: Span) {
        self.deadline = now + timeout;
    }

    /// Handles bytes of the answer, none at its end; returns the result once it is known.
    pub(super) fn handle_bytes(
        &mut self,
        now: Instant,
        bytes: &[u8],
    ) -> Option<Result<SourceResponse, PushError>> {
        self.read.extend_from_slice(bytes);
        let Ok(answer) = SourceResponse::parse(&self.read, self.method) else {
            return Some(Err(PushError::InvalidAnswer));
        };
        match answer {
            None if bytes.is_empty() => Some(Err(PushError::InvalidAnswer)),
            None => None,
            Some(answer @ SourceResponse::Refused(..))
                if !bytes.is_empty() && self.read.len() < MAX_REASON_BYTES =>
            {
                self.refusal = Some(answer);
                self.deadline = self.deadline.min(now + REASON_TIMEOUT);
                None
            }
            Some(answer) => Some(Ok(answer)),
        }
    }

    /// The answer cannot be read. The status of a refusal counts, however reading the body ends.
    pub(super) fn handle_error(
        &mut self,
        now: Instant,
        kind: io::ErrorKind,
    ) -> Option<Result<SourceResponse, PushError>> {
        if self.refusal.is_some() {
            return self.handle_bytes(now, &[]);
        }
        Some(Err(PushError::Io(kind)))
    }

    /// The deadline has passed.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
    ) -> Option<Result<SourceResponse, PushError>> {
        if self.refusal.is_some() {
            return self.handle_bytes(now, &[]);
        }
        Some(Err(PushError::TimedOut))
    }
}

/// Time-out of the connection, TLS and the sending of the request included.
const CONNECT_TIMEOUT: Span = Span::from_secs(10);

/// Time-out and maximum length of the body of a refusal.
const REASON_TIMEOUT: Span = Span::from_secs(1);
const MAX_REASON_BYTES: usize = 4 << 10;
