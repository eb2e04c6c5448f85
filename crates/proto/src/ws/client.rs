//! The client's side of a WebSocket: the handshake, frames with masks, and the server's messages.

use core::fmt;

use aulos_core::Rng;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::sha1::sha1;
use super::{FrameKind, WsError, WsMessage, WsReader, WsWriter};
use crate::http::head_length;
use crate::snap::wire::Auth;

/// Maximum length of the head of the server's response.
pub const MAX_RESPONSE_HEAD: usize = 8_192;

/// The client of a WebSocket. Pass everything that is received to [`next`](Self::next); send
/// [`request`](Self::request) first, and what [`write`](Self::write) encodes once it is open.
#[derive(Debug)]
pub struct WsClient {
    key: String,
    /// The response's head so far; none after the handshake.
    head: Option<Vec<u8>>,
    reader: WsReader,
    writer: WsWriter,
}

/// What was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WsClientEvent<'a> {
    /// The server has accepted the handshake.
    Open,
    /// A message or control frame of the server.
    Message(WsMessage<'a>),
}

/// Why the connection cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WsClientError {
    /// The response has no end within [`MAX_RESPONSE_HEAD`] bytes, or is not HTTP.
    BadResponse,
    /// The server answers with this status in place of 101.
    Status(u16),
    /// The response has not the fields of a WebSocket, or the answer to another key.
    BadHandshake,
    /// A frame violates the protocol.
    Frame(WsError),
}

impl fmt::Display for WsClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadResponse => f.write_str("the server does not answer as a web server does"),
            Self::Status(401 | 403) => f.write_str(
                "the server requires a login that it accepts; put USER:PASSWORD@ in front of the \
                 host",
            ),
            Self::Status(status) => {
                write!(f, "the server answers with HTTP status {status}; expected a WebSocket")
            }
            Self::BadHandshake => f.write_str("the server does not answer with a WebSocket"),
            Self::Frame(error) => write!(f, "the server violates the WebSocket protocol: {error}"),
        }
    }
}

impl core::error::Error for WsClientError {}

impl WsClient {
    /// A client that has sent nothing. `seed` should not be guessable: key and masks follow from
    /// it.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Rng::new(seed);
        let key = [random.next_u64(), random.next_u64()].map(u64::to_ne_bytes).concat();
        Self {
            key: STANDARD.encode(key),
            head: Some(Vec::new()),
            reader: WsReader::from_server(),
            writer: WsWriter::for_client(random),
        }
    }

    /// The request that begins the handshake. `host` is the server's name and port, `path` begins
    /// with a slash; neither may have line breaks.
    #[must_use]
    pub fn request(&self, host: &str, path: &str, auth: Option<&Auth>) -> String {
        let auth = auth.map(|auth| format!("Authorization: {} {}\r\n", auth.scheme, auth.param));
        format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: {}\r\nSec-WebSocket-Version: 13\r\n{}\r\n",
            self.key,
            auth.unwrap_or_default()
        )
    }

    /// Returns the next event and removes its bytes from `bytes`; `None` when all bytes are
    /// consumed.
    ///
    /// # Errors
    /// [`WsClientError`]; the connection cannot be read any further.
    pub fn next<'s>(
        &'s mut self,
        bytes: &mut &[u8],
    ) -> Result<Option<WsClientEvent<'s>>, WsClientError> {
        if let Some(head) = &mut self.head {
            let before = head.len();
            let (now, later) = bytes.split_at(bytes.len().min(MAX_RESPONSE_HEAD - before));
            head.extend_from_slice(now);
            let Some(length) = head_length(head) else {
                *bytes = later;
                let is_full = head.len() == MAX_RESPONSE_HEAD;
                return if is_full { Err(WsClientError::BadResponse) } else { Ok(None) };
            };
            *bytes = bytes.get(length.saturating_sub(before)..).unwrap_or_default();
            head.truncate(length);
            check_response(head, &self.key)?;
            self.head = None;
            return Ok(Some(WsClientEvent::Open));
        }
        let message = self.reader.next(bytes).map_err(WsClientError::Frame)?;
        Ok(message.map(WsClientEvent::Message))
    }

    /// Appends a frame with a mask.
    pub fn write(&mut self, kind: FrameKind, payload: &[u8], out: &mut Vec<u8>) {
        self.writer.write(kind, payload, out);
    }

    /// What reads and writes the frames of an open connection.
    #[must_use]
    pub fn into_parts(self) -> (WsReader, WsWriter) {
        (self.reader, self.writer)
    }
}

/// Checks status and fields of the response to a request with this key (section 4.1).
fn check_response(head: &[u8], key: &str) -> Result<(), WsClientError> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.lines();
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1."));
    let status = status.and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
    match status {
        Some(101) => {}
        Some(status) => return Err(WsClientError::Status(status)),
        None => return Err(WsClientError::BadResponse),
    }
    let field = |wanted: &str| {
        lines.clone().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case(wanted).then(|| value.trim())
        })
    };
    let has = |name: &str, word: &str| {
        let mut words = field(name).unwrap_or_default().split(',');
        words.any(|part| part.trim().eq_ignore_ascii_case(word))
    };
    let answer = answer_to_key(key);
    let is_right = has("upgrade", "websocket")
        && has("connection", "upgrade")
        && field("sec-websocket-accept") == Some(&*answer);
    if is_right { Ok(()) } else { Err(WsClientError::BadHandshake) }
}

/// What a server answers to a key (section 1.3).
pub(super) fn answer_to_key(key: &str) -> String {
    STANDARD.encode(sha1(format!("{key}{KEY_SUFFIX}").as_bytes()))
}

/// What a server appends to the key (section 1.3).
const KEY_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

#[cfg(test)]
mod tests {
    use super::super::{BINARY, FIN, MASKED, WsFrameHeader};
    use super::*;

    /// A response to the key of the standard's example (section 1.3).
    const RESPONSE: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
        Connection: keep-alive, Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

    fn client() -> WsClient {
        WsClient { key: "dGhlIHNhbXBsZSBub25jZQ==".to_owned(), ..WsClient::new(1) }
    }

    /// The events in `bytes`, which are passed in pieces of `size`.
    fn read(bytes: &[u8], size: usize) -> Result<Vec<String>, WsClientError> {
        let (mut client, mut found) = (client(), Vec::new());
        for mut piece in bytes.chunks(size) {
            while let Some(event) = client.next(&mut piece)? {
                found.push(match event {
                    WsClientEvent::Open => "open".to_owned(),
                    WsClientEvent::Message(WsMessage::Binary(bytes)) => bytes.len().to_string(),
                    WsClientEvent::Message(other) => format!("{other:?}"),
                });
            }
        }
        Ok(found)
    }

    fn frame(length: usize) -> Vec<u8> {
        let header = WsFrameHeader::new(FrameKind::Binary, length);
        [header.as_bytes(), &vec![7; length]].concat()
    }

    #[test]
    fn the_handshake_and_messages_are_read_from_any_segmentation() {
        let long = super::super::MAX_SERVER_MESSAGE;
        let bytes = [RESPONSE.as_bytes(), &frame(4), b"\x02\x01x\x89\x01?\x80\x01y", &frame(long)];
        let bytes = bytes.concat();
        let expected = ["open", "4", "Ping([63])", "2", &long.to_string()];
        for size in [1, 3, 130, bytes.len()] {
            assert_eq!(read(&bytes, size).unwrap(), expected, "pieces of {size}");
        }
    }

    #[test]
    fn wrong_answers_are_refused() {
        let with = |from: &str, to: &str| RESPONSE.replace(from, to).into_bytes();
        let endless = [&b"HTTP/1.1 101 x\r\n"[..], &[b'a'; MAX_RESPONSE_HEAD]].concat();
        let masked = [RESPONSE.as_bytes(), &[FIN | BINARY, MASKED | 1]].concat();
        let huge = [RESPONSE.as_bytes(), &[FIN | BINARY, 127], &[0x7f; 8]].concat();
        for (bytes, error) in [
            (with("101", "401"), WsClientError::Status(401)),
            (with("HTTP/1.1", "SSH-2.0"), WsClientError::BadResponse),
            (with("s3p", "t3p"), WsClientError::BadHandshake),
            (with(", Upgrade", ""), WsClientError::BadHandshake),
            (with("websocket", "h2c"), WsClientError::BadHandshake),
            (endless, WsClientError::BadResponse),
            (masked, WsClientError::Frame(WsError::Masked)),
            (huge, WsClientError::Frame(WsError::TooLarge)),
        ] {
            for size in [1, bytes.len()] {
                assert_eq!(read(&bytes, size), Err(error), "{}", String::from_utf8_lossy(&bytes));
            }
        }
    }

    /// A server's reader gets what the client writes.
    #[test]
    fn frames_are_masked_and_can_be_read() {
        for length in [0, 125, 126, 65_535, 65_536] {
            let (mut client, mut bytes, payload) = (client(), Vec::new(), vec![9; length]);
            client.write(FrameKind::Binary, &payload, &mut bytes);
            let mut rest = &bytes[..];
            let mut reader = WsReader::default();
            let is_same = reader.next(&mut rest) == Ok(Some(WsMessage::Binary(&payload)));
            assert!(is_same, "{length} bytes");
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn the_request_is_complete() {
        let auth = Auth::basic("me", "secret");
        let request = client().request("kitchen:1780", "/stream", Some(&auth));
        assert!(request.starts_with("GET /stream HTTP/1.1\r\nHost: kitchen:1780\r\n"), "{request}");
        assert!(request.contains("\r\nAuthorization: Basic bWU6c2VjcmV0\r\n"), "{request}");
        assert!(request.ends_with("\r\n\r\n"), "{request}");
        assert_ne!(WsClient::new(1).key, WsClient::new(2).key);
    }
}
