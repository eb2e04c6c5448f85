//! Heads of received requests and responses, for all peers that do not go through hyper.
//!
//! `httparse` parses the fields. The first line is split here, because sources and old servers send
//! some that are no HTTP: `SOURCE /mount ICE/1.0`, `ICY 200 OK`. hyper refuses these, and does not
//! give back a socket in the middle of a body.

use core::fmt;
use core::str;

use super::decode_text;

/// Maximum number of fields; a head with more is invalid.
pub const MAX_FIELDS: usize = 128;

/// Length of the head including its final empty line; `None` while the head is incomplete.
#[must_use]
pub fn head_length(read: &[u8]) -> Option<usize> {
    let end = |mark: &[u8]| read.windows(mark.len()).position(|here| here == mark);
    let (long, short) = (end(b"\r\n\r\n").map(|at| at + 4), end(b"\n\n").map(|at| at + 2));
    long.into_iter().chain(short).min()
}

/// A head: its first line and its fields.
///
/// # Examples
/// ```
/// use aulos_proto::http::ReceivedHead;
///
/// let head = ReceivedHead::parse(b"SOURCE /live ICE/1.0\nIce-Name: Evening\n\nsound").unwrap();
/// assert_eq!(head.request_line(), Some(("SOURCE", "/live", "ICE/1.0")));
/// assert_eq!(head.field("ice-name"), Some(&b"Evening"[..]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedHead {
    first_line: Vec<u8>,
    fields: Vec<(String, Vec<u8>)>,
}

/// The fields of a head cannot be parsed, or there are more than [`MAX_FIELDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "there is nothing to add")]
pub struct InvalidHead;

impl fmt::Display for InvalidHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the head of the message is invalid or has more than {MAX_FIELDS} fields")
    }
}

impl core::error::Error for InvalidHead {}

impl ReceivedHead {
    /// Parses the head at the beginning of `read`. An incomplete head has no fields. A line that is
    /// no field is ignored, as are control characters in a value.
    ///
    /// # Errors
    /// [`InvalidHead`].
    pub fn parse(read: &[u8]) -> Result<Self, InvalidHead> {
        let head = read.get(..head_length(read).unwrap_or(read.len())).unwrap_or_default();
        let end = head.iter().position(|byte| *byte == b'\n').map_or(head.len(), |at| at + 1);
        let (first, rest) = head.split_at_checked(end).unwrap_or_default();
        let mut text = STATUS_LINE.to_vec();
        let is_kept = |byte: &u8| !byte.is_ascii_control() || b"\t\r\n".contains(byte);
        text.extend(rest.iter().copied().filter(is_kept));
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        let parsed = httparse::ParserConfig::default()
            .ignore_invalid_headers_in_responses(true)
            .allow_spaces_after_header_name_in_responses(true)
            .parse_response(&mut response, &text)
            .map_err(|_| InvalidHead)?;
        let owned = |field: &httparse::Header<'_>| {
            (field.name.to_ascii_lowercase(), field.value.trim_ascii().to_vec())
        };
        let fields = match parsed {
            httparse::Status::Complete(_) => response.headers.iter().map(owned).collect(),
            httparse::Status::Partial => Vec::new(),
        };
        Ok(Self { first_line: first.trim_ascii().to_vec(), fields })
    }

    /// The first line, as it was received.
    pub(crate) fn first_line(&self) -> &[u8] {
        &self.first_line
    }

    /// Method, target and version; `None` if the first line does not consist of three words.
    #[must_use]
    pub fn request_line(&self) -> Option<(&str, &str, &str)> {
        let mut words = str::from_utf8(&self.first_line).ok()?.split_ascii_whitespace();
        let line = (words.next()?, words.next()?, words.next()?);
        words.next().is_none().then_some(line)
    }

    /// Protocol, status and reason; `None` if the first line is no status line of HTTP, ICE or ICY.
    #[must_use]
    pub fn status_line(&self) -> Option<(String, u16, String)> {
        let line = decode_text(&self.first_line);
        let (version, rest) = line.split_once(' ')?;
        let (status, reason) = rest.trim_start().split_at_checked(3)?;
        let is_known = ["HTTP/", "ICE/", "ICY"].iter().any(|known| version.starts_with(known));
        let status = status.parse().ok().filter(|_| is_known)?;
        Some((version.to_owned(), status, reason.to_owned()))
    }

    /// The value of the first field of this name in lower case, without blanks around it.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields().find_map(|(known, value)| (known == name).then_some(value))
    }

    /// Names in lower case, and values without blanks around them, in the order of the head.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields.iter().map(|(name, value)| (&**name, &**value))
    }
}

/// Stands for the first line when `httparse` parses the fields; it is more forgiving with responses.
const STATUS_LINE: &[u8] = b"HTTP/1.1 200 \r\n";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_head_ends_with_an_empty_line() {
        assert_eq!(head_length(b"PUT / HTTP/1.1\r\nA: b\r\n"), None);
        assert_eq!(head_length(b"PUT / HTTP/1.1\r\n\r\nbody\n\n"), Some(18));
        assert_eq!(head_length(b"SOURCE / ICE/1.0\n\nbody\r\n\r\n"), Some(18));
    }

    #[test]
    fn lines_that_are_no_fields_cost_only_themselves() {
        let head =
            b"GET / HTTP/1.1\r\nno field\r\nA : 1\r\n: 2\r\nB: \x00x\xff \r\na: 3\r\n\r\nc: 4";
        let head = ReceivedHead::parse(head).unwrap();
        let fields: Vec<_> = head.fields().collect();
        assert_eq!(fields, [("a", &b"1"[..]), ("b", b"x\xff"), ("a", b"3")]);
        assert_eq!((head.field("a"), head.field("c")), (Some(&b"1"[..]), None));
    }

    #[test]
    fn there_are_so_many_fields_and_no_more() {
        let head = |count| format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(count));
        let most = ReceivedHead::parse(head(MAX_FIELDS).as_bytes()).unwrap();
        assert_eq!(most.fields().count(), MAX_FIELDS);
        assert_eq!(ReceivedHead::parse(head(MAX_FIELDS + 1).as_bytes()), Err(InvalidHead));
    }

    #[test]
    fn first_lines_of_every_kind() {
        let head = |line: &str| ReceivedHead::parse(format!("{line}\r\n\r\n").as_bytes()).unwrap();
        assert_eq!(head("PUT /a HTTP/1.1").request_line(), Some(("PUT", "/a", "HTTP/1.1")));
        assert_eq!(head("PUT / a HTTP/1.1").request_line(), None);
        assert_eq!(head("hackme").request_line(), None);
        let ok = |version: &str| Some((version.to_owned(), 200, " OK".to_owned()));
        assert_eq!(head("ICY 200 OK").status_line(), ok("ICY"));
        assert_eq!(head("HTTP/1.0  200 OK").status_line(), ok("HTTP/1.0"));
        assert_eq!(head("SSH-2.0 200 x").status_line(), None);
        assert_eq!(head("HTTP/1.1 ").status_line(), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(
            read in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b':'), any::<u8>()], 0..300),
        ) {
            if let Ok(head) = ReceivedHead::parse(&read) {
                prop_assert!(head.fields().count() <= MAX_FIELDS);
                for (name, value) in head.fields() {
                    prop_assert!(!name.is_empty() && !value.contains(&b'\n'));
                }
            }
        }
    }
}
