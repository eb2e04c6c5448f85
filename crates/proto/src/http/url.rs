//! HTTP URLs.

use core::fmt;
use core::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::uri::{MAX_URI, percent_decode};

/// HTTP URL, `http://user:password@host:port/path?query`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct HttpUrl {
    /// Use TLS.
    pub secure: bool,
    /// User and password before `@`, decoded.
    pub user: Option<String>,
    /// Host, without the brackets of IPv6.
    pub host: String,
    /// Port; the default port of the scheme when the URL has none.
    pub port: u16,
    /// Path and query, encoded for the request line; begins with a slash.
    pub target: String,
}

impl HttpUrl {
    /// Resolves `reference` against this URL (RFC 3986, section 5.2). The credentials are not
    /// passed on to another host.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn join(&self, reference: &str) -> Result<Self, UrlError> {
        let reference = reference.trim();
        if let Some((scheme, _)) = reference.split_once("://")
            && scheme.chars().all(|c| c.is_ascii_alphanumeric())
        {
            let mut url: Self = reference.parse()?;
            if url.user.is_none() && (url.secure, &url.host, url.port) == self.origin() {
                url.user.clone_from(&self.user);
            }
            return Ok(url);
        }
        if reference.starts_with("//") {
            let scheme = if self.secure { "https:" } else { "http:" };
            return format!("{scheme}{reference}").parse();
        }
        let reference = reference.split('#').next().unwrap_or_default();
        let path = self.target.split('?').next().unwrap_or_default();
        let target = if reference.is_empty() {
            self.target.clone()
        } else if reference.starts_with('/') {
            reference.to_owned()
        } else if reference.starts_with('?') {
            format!("{path}{reference}")
        } else {
            let folder = path.rfind('/').and_then(|at| path.get(..=at)).unwrap_or("/");
            format!("{folder}{reference}")
        };
        if target.len() > MAX_URI {
            return Err(UrlError::TooLong);
        }
        Ok(Self { target: escape_target(&target), ..self.clone() })
    }

    /// Value of the `Host` header.
    #[must_use]
    pub fn authority(&self) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let usual = if self.secure { 443 } else { 80 };
        if self.port == usual { host } else { format!("{host}:{}", self.port) }
    }

    /// Value of the `Authorization` header, if the URL has credentials (RFC 7617).
    #[must_use]
    pub fn authorization(&self) -> Option<String> {
        self.user.as_ref().map(|user| format!("Basic {}", STANDARD.encode(user)))
    }

    fn origin(&self) -> (bool, &String, u16) {
        (self.secure, &self.host, self.port)
    }
}

impl FromStr for HttpUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let text = text.trim();
        if text.len() > MAX_URI {
            return Err(UrlError::TooLong);
        }
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::NotHttp)?;
        let secure = match &scheme.to_ascii_lowercase()[..] {
            "http" | "icy" => false,
            "https" => true,
            _ => return Err(UrlError::NotHttp),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(percent_decode(user)), place),
            None => (None, authority),
        };
        let (host, port) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':').unwrap_or(port)),
            None => place.split_once(':').unwrap_or((place, "")),
        };
        // The decoded host is validated, because it is sent decoded.
        let host = percent_decode(host);
        if !is_host(&host) {
            return Err(UrlError::NoHost);
        }
        let port = match port {
            "" if secure => 443,
            "" => 80,
            port => port.parse().ok().filter(|port| *port > 0).ok_or(UrlError::BadPort)?,
        };
        let slash = if target.starts_with('/') { "" } else { "/" };
        let target = escape_target(&format!("{slash}{target}"));
        Ok(Self { secure, user, host, port, target })
    }
}

/// Without the credentials.
impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.target)
    }
}

/// Whether a decoded text is a valid host: a name, or an address with an optional zone after a
/// percent sign (RFC 6874).
pub(crate) fn is_host(text: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || "-._~:".contains(c);
    let (name, zone) = match text.split_once('%') {
        Some((address, zone)) if address.contains(':') => (address, Some(zone)),
        Some(_) => return false,
        None => (text, None),
    };
    let is_part = |part: &str| !part.is_empty() && part.chars().all(fits);
    is_part(name) && zone.is_none_or(is_part)
}

/// Escapes every character that is not allowed in a request line.
fn escape_target(target: &str) -> String {
    let mut out = String::with_capacity(target.len());
    for byte in target.bytes() {
        if byte.is_ascii_graphic() {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Reason why a text is not an HTTP URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UrlError {
    /// It does not begin with `http://` or `https://`.
    NotHttp,
    /// It has no host.
    NoHost,
    /// The text after the host's colon is not a port.
    BadPort,
    /// It is longer than [`MAX_URI`].
    TooLong,
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHttp => f.write_str("the URL does not start with http:// or https://"),
            Self::NoHost => f.write_str("the URL has no host"),
            Self::BadPort => f.write_str("the port of the URL is not a number from 1 to 65535"),
            Self::TooLong => write!(f, "the URL is longer than {MAX_URI} bytes"),
        }
    }
}

impl core::error::Error for UrlError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn url(text: &str) -> HttpUrl {
        text.parse().unwrap()
    }

    #[test]
    fn common_spellings_of_urls_are_parsed() {
        let plain = url("http://radio.example/live?x=1#name=Two");
        assert_eq!((plain.port, &plain.target[..], plain.user), (80, "/live?x=1", None));
        let full = url("HTTPS://dj:s%40cret@[::1]:8443/a b\u{fc}?q");
        assert_eq!(full.authority(), "[::1]:8443");
        assert_eq!(full.target, "/a%20b%C3%BC?q");
        // printf 'dj:s@cret' | base64
        assert_eq!(full.authorization().as_deref(), Some("Basic ZGo6c0BjcmV0"));
        assert_eq!(full.to_string(), "https://[::1]:8443/a%20b%C3%BC?q");
        assert_eq!(url("http://h?x").target, "/?x");
        assert_eq!(url("http://b%C3%BC%2Dcher.example/").host, "b\u{fc}-cher.example");
        assert_eq!(url("http://[fe80::1%25eth0]/").host, "fe80::1%eth0");
        for (text, why) in [
            ("ftp://h/", UrlError::NotHttp),
            ("http:///x", UrlError::NoHost),
            ("http://h:0/", UrlError::BadPort),
            ("http://h:99999/", UrlError::BadPort),
            ("http://a\r\nb/", UrlError::NoHost),
            ("http://a%0d%0aX-Evil:%201/", UrlError::NoHost),
            ("http://a%20b/", UrlError::NoHost),
            ("http://a%00/", UrlError::NoHost),
            ("http://a%2Fb/", UrlError::NoHost),
            ("http://a%40b/", UrlError::NoHost),
            ("http://[::1%0a]/", UrlError::NoHost),
            ("http://[fe80::1%25a%0d]/", UrlError::NoHost),
            ("http://%/", UrlError::NoHost),
        ] {
            assert_eq!(text.parse::<HttpUrl>(), Err(why), "{text}");
        }
    }

    #[test]
    fn relative_addresses_are_those_of_the_standard() {
        let base = url("http://u:p@h:81/a/b?q");
        let joined = |to: &str| base.join(to).unwrap();
        assert_eq!(joined("c.mp3").to_string(), "http://h:81/a/c.mp3");
        assert_eq!(joined("/c?d").to_string(), "http://h:81/c?d");
        assert_eq!(joined("?d").to_string(), "http://h:81/a/b?d");
        assert_eq!(joined("//other/x").to_string(), "http://other/x");
        assert_eq!(joined("https://other/x").user, None, "a password is for its own host");
        assert_eq!(joined("http://h:81/z").user.as_deref(), Some("u:p"));
    }

    /// Texts with all byte values, most of them percent-encoded once or twice.
    fn encoded() -> impl Strategy<Value = String> {
        let byte = (any::<u8>(), 0..4).prop_map(|(byte, how)| match how {
            0 => char::from(byte).to_string(),
            1 => format!("%{byte:02x}"),
            2 => format!("%{byte:02X}"),
            _ => format!("%25{byte:02X}"),
        });
        prop::collection::vec(byte, 0..12).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn encoded_urls_cannot_inject_header_lines(
            user in encoded(), host in encoded(), path in encoded(), reference in encoded()
        ) {
            let base: HttpUrl = "http://h/a".parse().unwrap();
            let urls = [
                format!("http://{host}/{path}").parse(),
                format!("http://{user}@{host}/{path}").parse(),
                format!("http://[{host}]:81/{path}").parse(),
                base.join(&format!("//{host}/{path}")),
                base.join(&format!("https://{host}")),
                base.join(&reference),
            ];
            for url in urls.into_iter().flatten() {
                let line = |text: &str| !text.contains(|c: char| c.is_control() || c == ' ');
                prop_assert!(line(&url.authority()) && line(&url.target), "{url:?}");
                let login = url.authorization();
                prop_assert!(login.is_none_or(|login| !login.contains(char::is_control)));
                prop_assert!(!url.to_string().contains(char::is_control));
            }
        }

        #[test]
        fn no_text_breaks_a_request_line(text: String, reference: String) {
            let url = format!("http://h/{text}").parse::<HttpUrl>().unwrap();
            prop_assert!(url.target.bytes().all(|byte| byte.is_ascii_graphic()));
            if let Ok(joined) = url.join(&reference) {
                prop_assert!(joined.target.bytes().all(|byte| byte.is_ascii_graphic()));
                prop_assert!(!joined.authority().contains(['\r', '\n', ' ']));
            }
        }
    }
}
