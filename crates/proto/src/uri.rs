//! URIs of sources, in the form that users and control clients write them.
//!
//! Music Assistant sends names with bare spaces, and configuration files contain paths with umlauts
//! and port ranges. A strict parser of RFC 3986 refuses most of these, so this one only splits at
//! the separators and decodes the parts. It keeps the raw text, because control clients compare it.

use core::fmt;
use core::str::FromStr;

/// Maximum length of a URI in bytes; those of Music Assistant have about 300.
pub const MAX_URI: usize = 8_192;

/// Maximum number of `key=value` pairs in a URI.
pub const MAX_PAIRS: usize = 128;

/// `scheme://user@host:port/path?key=value&key=value#fragment`; every part except the scheme is
/// optional.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Uri {
    /// The URI as given, without surrounding white space.
    pub raw: String,
    /// Scheme in lower case.
    pub scheme: String,
    /// User part before `@`, decoded.
    pub user: Option<String>,
    /// Host without port, and without the brackets of IPv6.
    pub host: String,
    /// Port, or the first port of a range.
    pub port: Option<u16>,
    /// Last port of a range, as in `udp://0.0.0.0:6000-6999`.
    pub last_port: Option<u16>,
    /// Path with its leading slash, decoded; for `alsa` and `pulse` all that is in front of the
    /// query.
    pub path: String,
    /// Query pairs in their order, decoded; keys may repeat. `+` stays a plus, because names
    /// contain it.
    pub query: Vec<(String, String)>,
    /// Fragment after `#`, decoded.
    pub fragment: String,
}

impl Uri {
    /// Value of `key`; of a repeated key the last value, as Snapcast does it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.query.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Host and port as in the URI. Music Assistant sends its audio to this address, so the port
    /// must be preserved.
    #[must_use]
    pub fn authority(&self) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match (self.port, self.last_port) {
            (Some(port), Some(last)) => format!("{host}:{port}-{last}"),
            (Some(port), None) => format!("{host}:{port}"),
            (None, _) => host,
        }
    }
}

/// Schemes whose URIs name a device where others have a host, as in `alsa://hw:1,0`: it is the
/// path.
const DEVICE_SCHEMES: [&str; 2] = ["alsa", "pulse"];

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        let raw = text.trim();
        if raw.len() > MAX_URI {
            return Err(UriError::TooLong);
        }
        let (scheme, rest) = raw.split_once(':').ok_or(UriError::NoScheme)?;
        if !is_scheme(scheme) {
            return Err(UriError::NoScheme);
        }
        let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let scheme = scheme.to_ascii_lowercase();
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) if DEVICE_SCHEMES.contains(&&*scheme) => ("", rest),
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None => ("", rest),
        };
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(percent_decode(user)), place),
            None => (None, authority),
        };
        let (host, ports) = split_port(place);
        // The decoded host is checked. Blanks are allowed: in `meta:` URIs the host is a station
        // name.
        let host = percent_decode(host);
        if host.contains(char::is_control) {
            return Err(UriError::BadHost);
        }
        let (port, last_port) = parse_ports(ports)?;
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        if pairs.clone().count() > MAX_PAIRS {
            return Err(UriError::TooLong);
        }
        Ok(Self {
            raw: raw.to_owned(),
            scheme,
            user,
            host,
            port,
            last_port,
            path: percent_decode(path),
            query: pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(key, value)| (percent_decode(key), percent_decode(value)))
                .collect(),
            fragment: percent_decode(fragment),
        })
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.raw)
    }
}

/// Reason why a text is not a URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UriError {
    /// It does not begin with a scheme and a colon.
    NoScheme,
    /// The text after the host's colon is neither a port nor a port range.
    BadPort,
    /// The host contains a control character, possibly percent-encoded.
    BadHost,
    /// Longer than [`MAX_URI`], or more pairs than [`MAX_PAIRS`].
    TooLong,
}

impl fmt::Display for UriError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoScheme => f.write_str("a URI starts with a scheme, as in file:///music"),
            Self::BadPort => {
                f.write_str("a port is a number from 0 to 65535, or a range as in 6000-6999")
            }
            Self::BadHost => f.write_str("a host contains no control characters"),
            Self::TooLong => write!(f, "a URI has at most {MAX_URI} bytes"),
        }
    }
}

impl core::error::Error for UriError {}

/// RFC 3986, section 3.1.
fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|char| char.is_ascii_alphanumeric() || "+-._".contains(char))
}

/// Splits host and port; a bare IPv6 address has no port.
fn split_port(place: &str) -> (&str, &str) {
    if let Some((host, behind)) = place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (host, behind.strip_prefix(':').unwrap_or(behind));
    }
    match place.split_once(':') {
        Some((_, behind)) if behind.contains(':') => (place, ""),
        Some(parts) => parts,
        None => (place, ""),
    }
}

fn parse_ports(text: &str) -> Result<(Option<u16>, Option<u16>), UriError> {
    if text.is_empty() {
        return Ok((None, None));
    }
    let number = |text: &str| text.trim().parse::<u16>().map_err(|_| UriError::BadPort);
    match text.split_once('-') {
        None => Ok((Some(number(text)?), None)),
        Some((first, last)) => match (number(first)?, number(last)?) {
            (first, last) if first <= last => Ok((Some(first), Some(last))),
            _ => Err(UriError::BadPort),
        },
    }
}

/// Decodes percent-escapes; a percent sign without two hexadecimal digits is kept.
pub fn percent_decode(text: &str) -> String {
    String::from_utf8_lossy(&percent_decode_bytes(text)).into_owned()
}

/// Like [`percent_decode`], for bytes in any character encoding.
pub(crate) fn percent_decode_bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let decoded = behind.first_chunk().filter(|_| first == b'%').and_then(hex);
        bytes.push(decoded.unwrap_or(first));
        rest = if decoded.is_some() { behind.get(2..).unwrap_or_default() } else { behind };
    }
    bytes
}

/// Escapes a path or a value so that parsing it as part of a [`Uri`] returns it unchanged. Letters
/// that are not ASCII stay readable, as in a configuration.
#[must_use]
pub fn percent_encode(text: &str) -> String {
    encode(text, |c| ESCAPED.contains(c) || c.is_control() || c.is_whitespace())
}

/// Escapes a path or a value as a part of a URL for other programs, which is ASCII (RFC 3986,
/// section 2).
#[must_use]
pub fn percent_encode_url(text: &str) -> String {
    encode(text, |c| ESCAPED.contains(c) || "[]".contains(c) || !c.is_ascii_graphic())
}

fn encode(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_escaped(c) {
            out.extend(c.encode_utf8(&mut [0; 4]).bytes().map(|byte| format!("%{byte:02X}")));
        } else {
            out.push(c);
        }
    }
    out
}

/// Delimiters of a URI, and characters that it must not have (RFC 3986, appendix A).
const ESCAPED: &str = "%?#&=+@\"<>\\^`{|}";

fn hex(digits: &[u8; 2]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let [high, low] = *digits;
    Some(digit(high)? << 4 | digit(low)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn uri(text: &str) -> Uri {
        text.parse().unwrap()
    }

    #[test]
    fn what_music_assistant_sends() {
        let raw = "tcp://0.0.0.0:4953?sampleformat=48000:16:2&idle_threshold=60000\
                   &controlscript=control.py&controlscriptparams=--queueid=a%20b&\
                   name=Music Assistant - osmc4";
        let uri = uri(raw);
        assert_eq!(
            (uri.scheme.as_str(), uri.host.as_str(), uri.port),
            ("tcp", "0.0.0.0", Some(4953))
        );
        assert_eq!(uri.authority(), "0.0.0.0:4953");
        assert_eq!(uri.get("name"), Some("Music Assistant - osmc4"));
        assert_eq!(uri.get("sampleformat"), Some("48000:16:2"));
        assert_eq!(uri.get("controlscriptparams"), Some("--queueid=a b"));
        assert_eq!((uri.path.as_str(), uri.raw.as_str()), ("", raw));
    }

    #[test]
    fn what_snapcast_writes() {
        let pipe = uri("pipe:///tmp/snapfifo?name=default&mode=read");
        assert_eq!((pipe.host.as_str(), pipe.path.as_str()), ("", "/tmp/snapfifo"));
        let meta = uri("meta:///a/b%20c?name=x&name=y&flag");
        assert_eq!((meta.path.as_str(), meta.get("name")), ("/a/b c", Some("y")));
        assert_eq!((meta.get("flag"), meta.get("none")), (Some(""), None));
    }

    #[test]
    fn parts_may_be_missing() {
        assert_eq!(uri("stdin:").path, "");
        assert_eq!(uri(" Demo:// ").scheme, "demo");
        assert_eq!(uri("tcp://host").port, None);
        assert_eq!(uri("tcp://host:").port, None);
        assert_eq!(uri("file:/srv/a.wav").path, "/srv/a.wav");
        assert_eq!(uri("tone://?hz=997#left").fragment, "left");
        assert_eq!(uri("http://radio.example/live?a=b=c").get("a"), Some("b=c"));
        assert_eq!(uri("http://me:pw@radio.example:8000/live").user.as_deref(), Some("me:pw"));
    }

    #[test]
    fn hosts_of_every_kind() {
        let six = uri("tcp://[::1]:4953");
        assert_eq!((six.host.as_str(), six.port), ("::1", Some(4953)));
        assert_eq!(six.authority(), "[::1]:4953");
        assert_eq!(uri("tcp://fe80::1").host, "fe80::1");
        let range = uri("udp://0.0.0.0:6000-6999");
        assert_eq!((range.port, range.last_port), (Some(6000), Some(6999)));
        assert_eq!(range.authority(), "0.0.0.0:6000-6999");
    }

    #[test]
    fn a_percent_sign_may_be_just_that() {
        assert_eq!(uri("file:///50%/100%2/%c3%a4%C3%B6?n=%").path, "/50%/100%2/\u{e4}\u{f6}");
        assert_eq!(uri("x:?n=1+1").get("n"), Some("1+1"));
    }

    #[test]
    fn an_invalid_uri_has_its_reason() {
        for text in ["", "/tmp/fifo", "no scheme://x", "://", "4953:tcp"] {
            assert_eq!(text.parse::<Uri>(), Err(UriError::NoScheme), "{text}");
        }
        for text in ["tcp://host:http", "udp://h:9-1", "tcp://h:65536", "tcp://h:-1"] {
            assert_eq!(text.parse::<Uri>(), Err(UriError::BadPort), "{text}");
        }
        for text in ["tcp://a%0d%0ab:1", "tcp://a%00:1", "tcp://[::1%0A]:1", "x://a\tb/"] {
            assert_eq!(text.parse::<Uri>(), Err(UriError::BadHost), "{text}");
        }
        assert_eq!(uri("meta://two%20words/a").host, "two words");
        assert_eq!(("x:".to_owned() + &"a".repeat(9_000)).parse::<Uri>(), Err(UriError::TooLong));
        assert_eq!(("x:?".to_owned() + &"a&".repeat(129)).parse::<Uri>(), Err(UriError::TooLong));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_rejected_and_the_authority_round_trips(text in "[a-z]{1,3}:.{0,80}") {
            if let Ok(first) = text.parse::<Uri>() {
                prop_assert_eq!(&first.raw, text.trim());
                if first.host.chars().all(|char| char.is_ascii_alphanumeric() || char == '.') {
                    let again = uri(&format!("x://{}", first.authority()));
                    prop_assert_eq!((again.host, again.port, again.last_port),
                        (first.host, first.port, first.last_port));
                }
            }
        }

        #[test]
        fn our_encoding_round_trips(value in "\\PC{0,30}") {
            let uri = uri(&format!("x://h/?v={}", percent_encode(&value)));
            prop_assert_eq!(uri.get("v"), Some(value.as_str()));
        }

        #[test]
        fn encoded_values_round_trip(value in "\\PC{0,30}") {
            let encoded: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let uri = uri(&format!("x://h/?v={encoded}"));
            prop_assert_eq!(uri.get("v"), Some(value.as_str()));
        }
    }
}
