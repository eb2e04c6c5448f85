//! Lines out of a stream of bytes.

use core::fmt;

use super::MAX_LINE;

/// Puts lines together from pieces.
#[derive(Debug)]
pub struct LineSplitter {
    limit: usize,
    buffer: Vec<u8>,
    /// Where the next line begins.
    start: usize,
    /// Up to where no end of line has been found.
    searched: usize,
}

impl Default for LineSplitter {
    fn default() -> Self {
        Self::with_limit(MAX_LINE)
    }
}

impl LineSplitter {
    /// Lines of at most `limit` bytes; the default is [`MAX_LINE`].
    #[must_use]
    pub const fn with_limit(limit: usize) -> Self {
        Self { limit, buffer: Vec::new(), start: 0, searched: 0 }
    }

    /// Another limit, for the lines that come next.
    pub const fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Takes bytes as they come. [`Lines::next_line`] is to be drained before the next piece; then
    /// no more than the limit and one piece is held.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start.min(self.buffer.len()));
        self.searched = self.searched.saturating_sub(self.start);
        self.start = 0;
        if self.buffer.is_empty() && self.buffer.capacity() > IDLE_BYTES {
            self.buffer = Vec::new();
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next line that is not empty, without its end; none until more has come.
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
                // Asked again, because a borrow that is returned would last through the loop.
                return Ok(self.buffer.get(from..end).map(<[u8]>::trim_ascii));
            }
        }
    }
}

/// Why there are no more lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineError {
    /// A line above the limit.
    TooLong,
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a line that is too long")
    }
}

impl core::error::Error for LineError {}

/// Room that an idle connection keeps.
const IDLE_BYTES: usize = 4 * 1024;
