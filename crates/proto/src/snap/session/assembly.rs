//! Putting messages together from what a socket gave.

use super::MAX_READ;
use crate::snap::wire::{
    FrameError, HEADER_LEN, MessageFrame, MessageHeader, ParsedMessage, parse_message,
};

/// Puts messages together from pieces.
///
/// A message that arrives whole is read where it lies; only the torn one at the end of a read is
/// copied. No more than one message of [`MAX_READ`] is ever held: the rest of a larger one is
/// counted down and not kept.
#[derive(Debug, Default)]
pub(super) struct MessageAssembler {
    torn: Vec<u8>,
    /// The torn message has been handed out and can be forgotten.
    used: bool,
    /// Bytes still to come of a message that is too large to keep.
    passing: Option<usize>,
}

impl MessageAssembler {
    /// The next whole message, taking what it needs off `bytes`; none when they are used up.
    pub(super) fn next<'s, 'b: 's>(
        &'s mut self,
        bytes: &mut &'b [u8],
        limit: usize,
    ) -> Result<Option<AssembledMessage<'s>>, FrameError> {
        if self.used {
            self.torn.clear();
            self.used = false;
        }
        if let Some(left) = self.passing.take() {
            return Ok(self.skip(left, bytes));
        }
        if self.torn.is_empty() {
            return self.next_in_place(bytes, limit);
        }
        loop {
            // Whether the message is whole is asked twice: borrowed from `self` and returned in one
            // go, the compiler would hold the borrow through the loop.
            match parse_message(&self.torn, limit)? {
                ParsedMessage::Message(_) => break,
                ParsedMessage::Incomplete { needed, header } => {
                    let missing = needed - self.torn.len();
                    if is_too_large(header) {
                        self.torn.clear();
                        return Ok(self.skip(missing, bytes));
                    }
                    if bytes.is_empty() {
                        return Ok(None);
                    }
                    let here = missing.min(bytes.len());
                    self.torn.extend(bytes.split_off(..here).unwrap_or_default());
                }
            }
        }
        self.used = true;
        match parse_message(&self.torn, limit)? {
            ParsedMessage::Message(frame) => Ok(Some(AssembledMessage::Message(frame))),
            ParsedMessage::Incomplete { .. } => Ok(None),
        }
    }

    /// Gives back what a large message took, so that ten thousand idle sessions stay small.
    pub(super) fn shrink(&mut self) {
        if self.used {
            self.torn.clear();
            self.used = false;
        }
        if self.torn.is_empty() && self.torn.capacity() > IDLE_BYTES {
            self.torn = Vec::new();
        }
    }

    /// Bytes that are held, in use or not.
    #[cfg(test)]
    pub(super) const fn capacity(&self) -> usize {
        self.torn.capacity()
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
                    self.passing = Some(needed - bytes.len());
                } else {
                    self.torn.extend_from_slice(bytes);
                }
                *bytes = &[];
                Ok(None)
            }
        }
    }

    fn skip(&mut self, left: usize, bytes: &mut &[u8]) -> Option<AssembledMessage<'static>> {
        let here = left.min(bytes.len());
        *bytes = bytes.get(here..).unwrap_or_default();
        self.passing = Some(left - here).filter(|left| *left > 0);
        self.passing.is_none().then_some(AssembledMessage::Skipped)
    }
}

/// What [`Assembly`] has put together.
#[derive(Debug)]
pub(super) enum AssembledMessage<'a> {
    /// A whole message.
    Message(MessageFrame<'a>),
    /// One too large to keep has gone by.
    Skipped,
}

fn is_too_large(header: Option<MessageHeader>) -> bool {
    header.is_some_and(|header| header.size as usize > MAX_READ)
}

/// Bytes that an idle session keeps for the next torn message; a Time request has 34.
const IDLE_BYTES: usize = 256;
