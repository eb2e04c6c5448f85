//! Splits a byte stream into lines.

use core::fmt;

use super::MAX_LINE;

/// Reassembles lines from bytes that are split anywhere.
#[derive(Debug)]
pub struct LineSplitter {
    limit: usize,
    buffer: Vec<u8>,
    /// Start of the next line.
    start: usize,
    /// End of the part that contains no line end.
    searched: usize,
}

impl Default for LineSplitter {
    fn default() -> Self {
        Self::with_limit(MAX_LINE)
    }
}

impl LineSplitter {
    /// Limits lines to `limit` bytes; the default is [`MAX_LINE`].
    #[must_use]
    pub const fn with_limit(limit: usize) -> Self {
        Self { limit, buffer: Vec::new(), start: 0, searched: 0 }
    }

    /// Changes the limit for the following lines.
    pub const fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Appends bytes. Call [`LineSplitter::next_line`] until it returns `None` before the next
    /// call; the buffer then holds no more than the limit and one piece.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start.min(self.buffer.len()));
        self.searched = self.searched.saturating_sub(self.start);
        self.start = 0;
        if self.buffer.is_empty() && self.buffer.capacity() > IDLE_BYTES {
            self.buffer = Vec::new();
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next line that is not empty, without its line end; `None` while it is incomplete.
    ///
    /// # Errors
    /// [`LineError::TooLong`]; the connection cannot be read any further.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, LineError> {
        loop {
            let behind = self.buffer.get(self.searched..).unwrap_or_default();
            let Some(length) = behind.iter().position(|byte| *byte == b'\n') else {
                self.searched = self.buffer.len();
                let too_long = self.buffer.len() - self.start > self.limit;
                return if too_long { Err(LineError::TooLong) } else { Ok(None) };
            };
            let (from, end) = (self.start, self.searched + length);
            self.start = end + 1;
            self.searched = self.start;
            if end - from > self.limit {
                return Err(LineError::TooLong);
            }
            let line = self.buffer.get(from..end).unwrap_or_default().trim_ascii();
            if !line.is_empty() {
                // Sliced again, because returning the first borrow would extend it over the loop.
                return Ok(self.buffer.get(from..end).map(<[u8]>::trim_ascii));
            }
        }
    }
}

/// Reason why no more lines can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineError {
    /// A line exceeds the limit.
    TooLong,
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the line is too long")
    }
}

impl core::error::Error for LineError {}

/// Buffer capacity that an idle connection keeps.
const IDLE_BYTES: usize = 4 * 1024;
