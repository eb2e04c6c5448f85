//! Encodes request heads; all of them are written here.
//!
//! A URL is validated when it is parsed, but a part may be decoded later, or come from another
//! place in a later version. So every part is checked again when it becomes bytes. A part that
//! would break its line is an error and is not repaired: no unintended request is sent.

use core::fmt;

/// Builder of a request head.
#[derive(Debug)]
pub struct RequestHead {
    text: String,
    error: Option<HeadError>,
}

impl RequestHead {
    /// Begins with the request line; `version` is `1.0` or `1.1`.
    #[must_use]
    pub fn new(method: &str, target: &str, version: &str) -> Self {
        let text = format!("{method} {target} HTTP/{version}\r\n");
        let is_word = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        let error = if !is_word(method) || !is_word(version) {
            Some(HeadError { part: "the request line" })
        } else if !is_word(target) {
            Some(HeadError { part: "the request target" })
        } else {
            None
        };
        Self { text, error }
    }

    /// Adds a header.
    #[must_use]
    pub fn field(mut self, name: &'static str, value: &str) -> Self {
        let is_token = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        let is_name = !name.is_empty() && name.bytes().all(is_token);
        // RFC 9110, section 5.5: a value consists of visible characters, blanks and tabs.
        if !is_name || value.chars().any(|c| c.is_control() && c != '\t') {
            self.error.get_or_insert(HeadError { part: name });
        }
        self.text.push_str(name);
        self.text.push_str(": ");
        self.text.push_str(value);
        self.text.push_str("\r\n");
        self
    }

    /// Adds a header if there is a value.
    #[must_use]
    pub fn optional(self, name: &'static str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.field(name, value),
            None => self,
        }
    }

    /// The head with its final empty line.
    ///
    /// # Errors
    /// [`HeadError`] when a part contains a character that would break its line.
    pub fn finish(mut self) -> Result<String, HeadError> {
        match self.error {
            Some(error) => Err(error),
            None => {
                self.text.push_str("\r\n");
                Ok(self.text)
            }
        }
    }
}

/// A part of a request head contains an invalid character. The value is not kept, because it may be
/// a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeadError {
    /// Name of the header, or part of the request line.
    pub part: &'static str,
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} contains a character that is not allowed", self.part)
    }
}

impl core::error::Error for HeadError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_head_parses_to_its_fields() {
        let head = RequestHead::new("GET", "/a?b", "1.0")
            .field("Host", "h:81")
            .optional("Authorization", None)
            .optional("Accept", Some("*/*"));
        let expected = "GET /a?b HTTP/1.0\r\nHost: h:81\r\nAccept: */*\r\n\r\n";
        assert_eq!(head.finish().as_deref(), Ok(expected));
    }

    #[test]
    fn every_part_is_checked_and_named() {
        for bad in ["\r", "\n", "\0", "\u{7f}", "\u{85}"] {
            let refused = |head: RequestHead| head.finish().unwrap_err().part;
            let target = RequestHead::new("GET", &format!("/a{bad}b"), "1.0");
            assert_eq!(refused(target), "the request target", "{bad:?}");
            let method = RequestHead::new(&format!("GET{bad}"), "/", "1.0");
            assert_eq!(refused(method), "the request line", "{bad:?}");
            let value = RequestHead::new("GET", "/", "1.0").field("Host", &format!("a{bad}"));
            let behind = value.field("Accept", "*/*");
            assert_eq!(refused(behind), "Host", "{bad:?}");
        }
        assert!(RequestHead::new("GET", "/a b", "1.0").finish().is_err());
        assert!(RequestHead::new("GET", "/", "1.0").field("A b", "c").finish().is_err());
    }

    proptest! {
        #[test]
        fn a_request_head_has_exactly_the_given_lines(target: String, value: String) {
            let head = RequestHead::new("GET", &target, "1.1").field("Host", &value).finish();
            if let Ok(head) = head {
                prop_assert_eq!(head.matches(['\r', '\n']).count(), 6);
                prop_assert_eq!(head.matches("\r\n").count(), 3);
                prop_assert!(!head.contains('\0'));
            }
        }
    }
}
