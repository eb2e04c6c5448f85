//! Notifications as the bytes that controllers get: made once, in pieces, and shared by everybody for
//! whom they wait.
//!
//! The status of a full house has four megabytes. A crowd of controllers that read slowly holds one
//! text together, not a copy each, and pieces of one size leave no holes in the heap when some of them
//! are given back. What all texts have together is counted while they live, so that there can be a
//! bound on it.

use std::fmt::{self, Write as _};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aulos_proto::snap::control::write_json;
use serde::Serialize;

/// Bytes of a piece.
const PIECE: usize = 64 << 10;

/// What a notification says, as far as one can stand for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotificationKind {
    /// The status of the whole house.
    WholeStatus,
    /// Something that the status of the whole house says as well.
    PartOfStatus,
    /// Anything else.
    Other,
}

/// The bytes of all notifications that wait or are being sent. A text that several controllers get
/// counts once.
#[derive(Clone, Debug, Default)]
pub(super) struct LiveBytes(Arc<AtomicUsize>);

impl LiveBytes {
    pub(super) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn remove(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A notification: a line of JSON in ASCII that ends in CRLF.
#[derive(Debug)]
pub struct Notification {
    /// All but the last are full.
    pieces: Vec<Vec<u8>>,
    bytes: usize,
    live: LiveBytes,
}

impl Notification {
    /// Renders one; `params` are JSON.
    pub(super) fn new(method: &str, params: &impl fmt::Display, live: &LiveBytes) -> Self {
        let mut line = LineWriter::default();
        // Memory takes all.
        line.head(method).and_then(|()| write!(line, "{params}")).ok();
        line.finish(live)
    }

    /// Renders one whose parameters are written as they are serialized: they never stand as one text.
    pub(super) fn of(method: &str, params: &impl Serialize, live: &LiveBytes) -> Self {
        let mut line = LineWriter::default();
        line.head(method).ok();
        // Keys are texts and numbers finite, and memory takes all.
        serde_json::to_writer(&mut line, params).ok();
        line.finish(live)
    }

    /// The line, in order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(Vec::as_slice)
    }

    /// The JSON without the end of the line, as one text.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = self.pieces.concat();
        text.truncate(self.bytes - LINE_END.len());
        // It is ASCII.
        String::from_utf8(text).unwrap_or_default()
    }

    /// Bytes of the line.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Notification {
    fn drop(&mut self) {
        self.live.remove(self.bytes);
    }
}

const LINE_END: &str = "\r\n";

/// A line that is being written.
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
        while !bytes.is_empty() {
            let room = self.pieces.last().map_or(0, |last| PIECE - last.len());
            if room == 0 {
                // A short line takes what it needs; the pieces of a long one are all alike.
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

/// What a line has room for at first: most are about the volume of one client.
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
        // serde_json writes whole characters.
        let text = std::str::from_utf8(bytes).map_err(io::Error::other)?;
        self.write_str(text).map_err(io::Error::other)?;
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
