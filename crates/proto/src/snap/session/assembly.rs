//! Reassembly of messages from the bytes of a socket.

use crate::snap::wire::{
    FrameError, HEADER_LEN, MessageFrame, MessageHeader, ParsedMessage, parse_message,
};

/// Reassembles messages from bytes that are split anywhere.
///
/// A message that is complete in the input is parsed in place; only a partial one at the end is
/// copied. At most one message of [`MAX_READ`] is held: larger ones are skipped by counting their
/// bytes.
#[derive(Debug, Default)]
pub(super) struct MessageAssembler {
    partial: Vec<u8>,
    /// The message in `partial` was returned; the next call clears it.
    returned: bool,
    /// Remaining bytes of a message that is skipped.
    skipping: Option<usize>,
}

impl MessageAssembler {
    /// Returns the next complete message and removes its bytes from `bytes`; `None` when all bytes
    /// are consumed.
    pub(super) fn next<'s, 'b: 's>(
        &'s mut self,
        bytes: &mut &'b [u8],
        limit: usize,
    ) -> Result<Option<AssembledMessage<'s>>, FrameError> {
        if self.returned {
            self.partial.clear();
            self.returned = false;
        }
        if let Some(left) = self.skipping.take() {
            return Ok(self.skip(left, bytes));
        }
        if self.partial.is_empty() {
            return self.next_in_place(bytes, limit);
        }
        loop {
            // The message is parsed twice: returning the first borrow from `self` would extend it
            // over the loop.
            match parse_message(&self.partial, limit)? {
                ParsedMessage::Message(_) => break,
                ParsedMessage::Incomplete { needed, header } => {
                    let missing = needed - self.partial.len();
                    if is_too_large(header) {
                        self.partial.clear();
                        return Ok(self.skip(missing, bytes));
                    }
                    if bytes.is_empty() {
                        return Ok(None);
                    }
                    let here = missing.min(bytes.len());
                    self.partial.extend(bytes.split_off(..here).unwrap_or_default());
                }
            }
        }
        self.returned = true;
        match parse_message(&self.partial, limit)? {
            ParsedMessage::Message(frame) => Ok(Some(AssembledMessage::Message(frame))),
            ParsedMessage::Incomplete { .. } => Ok(None),
        }
    }

    /// Frees the memory of a large message, so that ten thousand idle sessions stay small.
    pub(super) fn shrink(&mut self) {
        if self.returned {
            self.partial.clear();
            self.returned = false;
        }
        if self.partial.is_empty() && self.partial.capacity() > IDLE_BYTES {
            self.partial = Vec::new();
        }
    }

    /// Bytes allocated.
    #[cfg(test)]
    pub(super) const fn capacity(&self) -> usize {
        self.partial.capacity()
    }

    fn next_in_place<'b>(
        &mut self,
        bytes: &mut &'b [u8],
        limit: usize,
    ) -> Result<Option<AssembledMessage<'b>>, FrameError> {
        match parse_message(bytes, limit)? {
            ParsedMessage::Message(frame) => {
                *bytes = bytes.get(HEADER_LEN + frame.payload.len()..).unwrap_or_default();
                let large = frame.payload.len() > MAX_READ;
                Ok(Some(if large {
                    AssembledMessage::Skipped
                } else {
                    AssembledMessage::Message(frame)
                }))
            }
            ParsedMessage::Incomplete { needed, header } => {
                if is_too_large(header) {
                    self.skipping = Some(needed - bytes.len());
                } else {
                    self.partial.extend_from_slice(bytes);
                }
                *bytes = &[];
                Ok(None)
            }
        }
    }

    fn skip(&mut self, left: usize, bytes: &mut &[u8]) -> Option<AssembledMessage<'static>> {
        let here = left.min(bytes.len());
        *bytes = bytes.get(here..).unwrap_or_default();
        self.skipping = Some(left - here).filter(|left| *left > 0);
        self.skipping.is_none().then_some(AssembledMessage::Skipped)
    }
}

/// Result of [`MessageAssembler`].
#[derive(Debug)]
pub(super) enum AssembledMessage<'a> {
    /// A complete message.
    Message(MessageFrame<'a>),
    /// The end of a skipped message.
    Skipped,
}

fn is_too_large(header: Option<MessageHeader>) -> bool {
    header.is_some_and(|header| header.size as usize > MAX_READ)
}

/// Capacity that an idle session keeps for the next partial message; a Time request has 34 bytes.
const IDLE_BYTES: usize = 256;

/// Maximum payload of a received message in bytes; a Hello has about 300. After the Hello, larger
/// messages within [`MAX_MESSAGE`](crate::snap::wire::MAX_MESSAGE) are skipped.
pub const MAX_READ: usize = 64 * 1024;
