//! Rendered notifications, stored in pieces and shared by all controllers that get them.
//!
//! The status of a full server has four megabytes. Many controllers that read slowly share one
//! copy, and pieces of equal size do not fragment the heap. The bytes of all live notifications are
//! counted, so that they can be limited.

use std::fmt::{self, Write as _};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aulos_proto::snap::control::write_json;
use serde::Serialize;

/// Size of a piece in bytes.
const PIECE: usize = 64 << 10;

/// What a notification replaces or is replaced by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotificationKind {
    /// The full status.
    WholeStatus,
    /// A change that the full status includes.
    PartOfStatus,
    /// Anything else.
    Other,
}

/// The bytes of all notifications that are queued or being sent. A notification for several
/// controllers counts once.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveBytes(Arc<AtomicUsize>);

impl LiveBytes {
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn remove(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A notification (JSON-RPC 2.0, section 4.1): a line of JSON in ASCII, with CRLF at its end. It has
/// no id, because python-snapcast would take it for a reply.
#[derive(Debug)]
pub struct Notification {
    /// All pieces but the last are full.
    pieces: Vec<Vec<u8>>,
    bytes: usize,
    live: LiveBytes,
}

impl Notification {
    /// Renders a notification; `params` are JSON.
    pub(crate) fn new(method: &str, params: &impl fmt::Display, live: &LiveBytes) -> Self {
        let mut line = LineWriter::default();
        // Writing to memory cannot fail.
        line.head(method).and_then(|()| write!(line, "{params}")).ok();
        line.finish(live)
    }

    /// Renders a notification while its parameters are serialized, without an intermediate text.
    pub(crate) fn of(method: &str, params: &impl Serialize, live: &LiveBytes) -> Self {
        let mut line = LineWriter::default();
        line.head(method).ok();
        // Keys are texts and numbers finite, and memory takes all.
        serde_json::to_writer(&mut line, params).ok();
        line.finish(live)
    }

    /// The pieces of the line, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(Vec::as_slice)
    }

    /// The JSON as one text, without the end of the line.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = self.pieces.concat();
        text.truncate(self.bytes - LINE_END.len());
        // The text is ASCII.
        String::from_utf8(text).unwrap_or_default()
    }

    /// Length of the line in bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Notification {
    fn drop(&mut self) {
        self.live.remove(self.bytes);
    }
}

const LINE_END: &str = "\r\n";

/// A line in the making.
#[derive(Default)]
struct LineWriter {
    pieces: Vec<Vec<u8>>,
    bytes: usize,
}

impl LineWriter {
    fn head(&mut self, method: &str) -> fmt::Result {
        let method = serde_json::Value::from(method);
        write!(self, "{{\"jsonrpc\":\"2.0\",\"method\":{method},\"params\":")
    }

    fn finish(mut self, live: &LiveBytes) -> Notification {
        self.push(b"}");
        self.push(LINE_END.as_bytes());
        if let Some(last) = self.pieces.last_mut() {
            last.shrink_to_fit();
        }
        live.add(self.bytes);
        Notification { pieces: self.pieces, bytes: self.bytes, live: live.clone() }
    }

    fn push(&mut self, mut bytes: &[u8]) {
        self.bytes += bytes.len();
        // Most are a few bytes of a long line.
        if let Some(last) = self.pieces.last_mut().filter(|last| PIECE - last.len() >= bytes.len())
        {
            return last.extend_from_slice(bytes);
        }
        while !bytes.is_empty() {
            let room = self.pieces.last().map_or(0, |last| PIECE - last.len());
            if room == 0 {
                // A short line takes what it needs; all pieces of a long one have the same size.
                let capacity = if self.pieces.is_empty() { FIRST } else { PIECE };
                self.pieces.push(Vec::with_capacity(capacity));
                continue;
            }
            let (now, later) = bytes.split_at(bytes.len().min(room));
            if let Some(last) = self.pieces.last_mut() {
                last.extend_from_slice(now);
            }
            bytes = later;
        }
    }
}

/// First capacity of a line; most are about the volume of one client.
const FIRST: usize = 256;

impl fmt::Write for LineWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if text.is_ascii() {
            self.push(text.as_bytes());
        } else {
            let mut escaped = Vec::with_capacity(2 * text.len());
            write_json(text, &mut escaped);
            self.push(&escaped);
        }
        Ok(())
    }
}

impl io::Write for LineWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_ascii() {
            self.push(bytes);
        } else {
            // `serde_json` writes whole characters.
            let text = std::str::from_utf8(bytes).map_err(io::Error::other)?;
            self.write_str(text).map_err(io::Error::other)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_notification_is_one_line_of_ascii_in_pieces_of_one_size() {
        let live = LiveBytes::default();
        let params = json!({ "name": "Küche 🎵".repeat(20_000) });
        let texts =
            [Notification::new("On", &params, &live), Notification::of("On", &params, &live)];
        for text in &texts {
            let pieces: Vec<&[u8]> = text.pieces().collect();
            assert!(pieces.len() > 5, "{}", pieces.len());
            assert!(pieces[..pieces.len() - 1].iter().all(|piece| piece.len() == PIECE));
            let line = pieces.concat();
            assert!(line.is_ascii() && line.ends_with(b"}\r\n"));
            let whole = json!({ "jsonrpc": "2.0", "method": "On", "params": params });
            assert_eq!(serde_json::from_slice::<Value>(&line).unwrap(), whole);
            assert_eq!(serde_json::from_str::<Value>(&text.to_json()).unwrap(), whole);
        }
        assert_eq!(live.get(), 2 * texts[0].bytes());
        drop(texts);
        assert_eq!(live.get(), 0);
    }

    #[test]
    fn a_short_notification_takes_little() {
        let text = Notification::new("On", &json!({ "volume": 7 }), &LiveBytes::default());
        assert_eq!(text.pieces.len(), 1);
        assert!(text.pieces[0].capacity() <= FIRST, "{}", text.pieces[0].capacity());
    }
}
