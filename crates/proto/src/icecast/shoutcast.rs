//! The Shoutcast v1 source protocol: a line with the password, the answer `OK2`, fields up to an
//! empty line, and the stream. Titles come as `GET /admin.cgi?mode=updinfo&pass=...&song=...`.
//!
//! Programs connect to the port after the configured one for the stream, and to the configured one
//! for titles.

use crate::http::decode_text;

/// The first line of a source client's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FirstLine {
    /// It has no end yet.
    Incomplete,
    /// A request of HTTP or Icecast, or neither.
    Request,
    /// A password.
    Password {
        /// The password.
        text: String,
        /// Length of the line in bytes, with its end.
        length: usize,
    },
}

impl FirstLine {
    /// Classifies the first bytes of a connection.
    #[must_use]
    pub fn of(read: &[u8]) -> Self {
        let Some(end) = read.iter().position(|byte| *byte == b'\n') else {
            return Self::Incomplete;
        };
        let line = read.get(..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.iter().any(u8::is_ascii_control) {
            return Self::Request;
        }
        let text = decode_text(line);
        let is_request = METHODS.iter().any(|method| text.starts_with(method))
            || [" HTTP/", " ICE/"].iter().any(|version| text.contains(version));
        let is_text = (1..=MAX_PASSWORD).contains(&text.len()) && !text.contains(char::is_control);
        if is_request || !is_text {
            return Self::Request;
        }
        Self::Password { text, length: end + 1 }
    }
}

/// Completes the fields behind the password to the head of a request; `None` while their final
/// empty line is missing.
#[must_use]
pub fn complete_head(fields: &[u8]) -> Option<(Vec<u8>, usize)> {
    let length = if fields.starts_with(b"\r\n") {
        2
    } else if fields.starts_with(b"\n") {
        1
    } else {
        crate::http::head_length(fields)?
    };
    let mut head = b"SOURCE / ICE/1.0\r\n".to_vec();
    head.extend_from_slice(fields.get(..length).unwrap_or_default());
    Some((head, length))
}

/// The answer to the right password. The client sends its fields and its stream after it.
pub const PASSWORD_ACCEPTED: &[u8] = b"OK2\r\nicy-caps:11\r\n\r\n";

/// The media type of a stream without `content-type`.
pub const DEFAULT_CONTENT_TYPE: &str = "audio/mpeg";

/// Longest password in bytes.
const MAX_PASSWORD: usize = 256;

/// How the first line of HTTP begins. With one of these, a line is never taken for a password, so
/// that no scanner of the network counts as a failed login.
const METHODS: [&str; 8] =
    ["GET ", "HEAD ", "POST ", "PUT ", "SOURCE ", "OPTIONS ", "STATS ", "CONNECT "];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_no_request_is_a_password() {
        let password = |text: &str, length| FirstLine::Password { text: text.to_owned(), length };
        assert_eq!(FirstLine::of(b"hackme"), FirstLine::Incomplete);
        assert_eq!(FirstLine::of(b"hackme\r\nicy-name:x"), password("hackme", 8));
        assert_eq!(FirstLine::of("pässword one\n".as_bytes()), password("pässword one", 14));
        assert_eq!(FirstLine::of(b"p\xe4ss\n"), password("p\u{e4}ss", 5));
        for request in [
            &b"PUT /live HTTP/1.1\r\n"[..],
            b"FOO bar HTTP/9\r\n",
            b"SOURCE /live ICE/1.0\r\n",
            b"GET /\r\n",
            b"\r\n",
            b"\x16\x03\x01\r\n",
            b"\xff\xfe\n",
            &[&[b'x'; 257][..], b"\n"].concat(),
        ] {
            assert_eq!(FirstLine::of(request), FirstLine::Request, "{request:?}");
        }
    }

    #[test]
    fn fields_are_complete_with_their_empty_line_and_may_be_none() {
        let length = |fields: &[u8]| complete_head(fields).map(|(_, length)| length);
        assert_eq!(length(b"icy-name:x\r\nicy-br:128\r\n"), None);
        assert_eq!(length(b"icy-name:x\r\n\r\nsound"), Some(14));
        assert_eq!((length(b"\r\nsound"), length(b"\n"), length(b"")), (Some(2), Some(1), None));
        let (head, _) =
            complete_head(b"icy-name:Evening\r\ncontent-type:audio/aacp\r\n\r\n").unwrap();
        let crate::icecast::RequestKind::Source(source) =
            crate::icecast::IcecastRequest::parse(&head).unwrap().kind
        else {
            panic!("no source request");
        };
        assert_eq!(source.name.as_deref(), Some("Evening"));
        assert_eq!(source.content_type, "audio/aacp");
        assert_eq!(source.framing, crate::http::BodyFraming::UntilClosed);
    }
}
