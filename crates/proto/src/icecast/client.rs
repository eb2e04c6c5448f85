//! Client side of the Icecast source protocol: the requests that this server sends to the server
//! that it pushes to, and the responses. The counterpart of
//! [`IcecastRequest`](super::IcecastRequest).

use core::fmt;
use core::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::http::{HeadError, InvalidHead, ReceivedHead, RequestHead, decode_text, head_length};
use crate::uri::{MAX_URI, percent_decode};

/// Mount on a server, `icecast://USER@HOST:PORT/MOUNT`. The password is configured separately,
/// because URLs are shown to users.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct IcecastUrl {
    /// Use TLS (`icecasts:`).
    pub secure: bool,
    /// User name; `source` by default.
    pub user: String,
    /// Host, without the brackets of IPv6.
    pub host: String,
    /// Port; the default port of the scheme when the URL has none.
    pub port: u16,
    /// Mount, encoded for the request line; begins with a slash.
    pub mount: String,
}

/// Description of a stream, sent to the server with the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what a request says")]
pub struct StreamMetadata {
    /// Media type of the stream.
    pub content_type: String,
    /// Name of the programme.
    pub name: Option<String>,
    /// Description of the programme.
    pub description: Option<String>,
    /// Genre of the programme.
    pub genre: Option<String>,
    /// Web page of the programme.
    pub site: Option<String>,
    /// Whether the server may list the stream in public directories.
    pub public: bool,
    /// Audio parameters, such as `ice-samplerate=...`.
    pub audio_info: String,
}

/// HTTP method that starts a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceMethod {
    /// `PUT` with `Expect: 100-continue`.
    #[default]
    Put,
    /// `SOURCE`, which servers before Icecast 2.4 require.
    Source,
}

/// Server's response to a request to start a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceResponse {
    /// The stream may begin.
    Accepted,
    /// 401: wrong user name or password.
    Unauthorized,
    /// Another source is connected to the mount.
    MountInUse,
    /// The server does not support the method.
    MethodNotSupported,
    /// Refused: status code and reason text.
    Refused(u16, String),
}

impl IcecastUrl {
    /// Value of the `Host` header.
    #[must_use]
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Head of the request that starts a stream.
    ///
    /// # Errors
    /// [`HeadError`] when a value contains a line break.
    pub fn source_request(
        &self,
        way: SourceMethod,
        password: Option<&str>,
        about: &StreamMetadata,
        agent: &str,
    ) -> Result<String, HeadError> {
        let (method, version, expect) = match way {
            SourceMethod::Put => ("PUT", "1.1", Some("100-continue")),
            SourceMethod::Source => ("SOURCE", "1.0", None),
        };
        let mut head = self
            .fields(RequestHead::new(method, &self.mount, version), password, agent)
            .field("Content-Type", &without_controls(&about.content_type))
            .optional("Expect", expect);
        let public = if about.public { "1" } else { "0" };
        for (name, value) in [
            ("Ice-Public", Some(public)),
            ("Ice-Name", about.name.as_deref()),
            ("Ice-Description", about.description.as_deref()),
            ("Ice-Genre", about.genre.as_deref()),
            ("Ice-URL", about.site.as_deref()),
            ("Ice-Audio-Info", Some(about.audio_info.as_str())),
        ] {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                head = head.field(name, &without_controls(value));
            }
        }
        head.finish()
    }

    /// Complete request that updates the metadata, for streams that cannot carry it.
    ///
    /// # Errors
    /// As for [`source_request`](Self::source_request).
    pub fn metadata_request(
        &self,
        password: Option<&str>,
        song: &str,
        agent: &str,
    ) -> Result<String, HeadError> {
        let (mount, song) = (query_escape(&percent_decode(&self.mount)), query_escape(song));
        let target =
            format!("/admin/metadata?mode=updinfo&charset=UTF-8&mount={mount}&song={song}");
        self.fields(RequestHead::new("GET", &target, "1.0"), password, agent)
            .field("Connection", "close")
            .finish()
    }

    /// Adds the headers that both requests have in common.
    fn fields(&self, head: RequestHead, password: Option<&str>, agent: &str) -> RequestHead {
        let login = password.map(|password| {
            format!("Basic {}", STANDARD.encode(format!("{}:{password}", self.user)))
        });
        head.field("Host", &self.authority())
            .field("User-Agent", agent)
            .optional("Authorization", login.as_deref())
    }
}

/// Without the user name, because the URL is shown to users.
impl fmt::Display for IcecastUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "icecasts" } else { "icecast" };
        write!(f, "{scheme}://{}{}", self.authority(), self.mount)
    }
}

impl FromStr for IcecastUrl {
    type Err = IcecastUrlError;

    fn from_str(text: &str) -> Result<Self, IcecastUrlError> {
        if text.len() > MAX_URI {
            return Err(IcecastUrlError::TooLong);
        }
        let (scheme, rest) = text.trim().split_once("://").ok_or(IcecastUrlError::NotIcecast)?;
        let (secure, usual) = match &scheme.to_ascii_lowercase()[..] {
            "icecast" => (false, PORT),
            "icecasts" => (true, SECURE_PORT),
            _ => return Err(IcecastUrlError::NotIcecast),
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, _)) if user.contains(':') => return Err(IcecastUrlError::Password),
            Some((user, place)) => (percent_decode(user), place),
            None => (USER.to_owned(), authority),
        };
        if user.is_empty() || user.contains(':') || user.chars().any(char::is_control) {
            return Err(IcecastUrlError::User);
        }
        let (host, port) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':').unwrap_or(port)),
            None => place.split_once(':').unwrap_or((place, "")),
        };
        let in_host = |c: char| c.is_alphanumeric() || "-._:".contains(c);
        if host.is_empty() || !host.chars().all(in_host) {
            return Err(IcecastUrlError::NoHost);
        }
        let port = match port {
            "" => usual,
            port => port.parse().ok().filter(|port| *port > 0).ok_or(IcecastUrlError::BadPort)?,
        };
        let bare = |c: char| c.is_control() || c.is_whitespace() || c == '?' || c == '#';
        if path.len() < 2 || path.contains(bare) {
            return Err(IcecastUrlError::NoMount);
        }
        // Escapes characters that are not allowed in a request line; existing escapes remain.
        let mount = path.bytes().map(|byte| match byte {
            b if b.is_ascii_graphic() => char::from(b).to_string(),
            b => format!("%{b:02X}"),
        });
        Ok(Self { secure, user, host: host.to_owned(), port, mount: mount.collect() })
    }
}

/// Reason why a text is not an Icecast URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IcecastUrlError {
    /// It does not begin with `icecast://` or `icecasts://`.
    NotIcecast,
    /// It contains a password.
    Password,
    /// The part before `@` is not a user name.
    User,
    /// It has no host.
    NoHost,
    /// Its port is not a number above 0.
    BadPort,
    /// It has no mount, or the mount has a query.
    NoMount,
    /// It is longer than [`MAX_URI`].
    TooLong,
}

impl fmt::Display for IcecastUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotIcecast => "does not start with icecast:// or icecasts://",
            Self::Password => "contains a password, but URLs are shown to users",
            Self::User => "has no user name before `@`",
            Self::NoHost => "has no host",
            Self::BadPort => "has a port that is not a number from 1 to 65535",
            Self::NoMount => "has no mount",
            Self::TooLong => "is too long",
        })
    }
}

impl core::error::Error for IcecastUrlError {}

impl SourceResponse {
    /// Parses a response; `None` while its head is incomplete. `asked` is the method of the
    /// request.
    ///
    /// # Errors
    /// [`InvalidResponse`] when the bytes are not an HTTP or ICY response.
    pub fn parse(read: &[u8], asked: SourceMethod) -> Result<Option<Self>, InvalidResponse> {
        let Some(length) = head_length(read) else {
            return if read.len() > MAX_RESPONSE_BYTES { Err(InvalidResponse) } else { Ok(None) };
        };
        let (head, body) = read.split_at(length);
        let head = ReceivedHead::parse(head).map_err(|InvalidHead| InvalidResponse)?;
        let (_, status, reason) = head.status_line().ok_or(InvalidResponse)?;
        let said = || response_text(body, &reason);
        Ok(Some(match status {
            100 | 200..=299 => Self::Accepted,
            401 => Self::Unauthorized,
            400 | 405 | 501 if asked == SourceMethod::Put => Self::MethodNotSupported,
            403 | 409 => {
                let said = said();
                let taken = ["in use", "taken", "on air", "already"];
                let small = said.to_ascii_lowercase();
                if taken.iter().any(|word| small.contains(word)) {
                    Self::MountInUse
                } else {
                    Self::Refused(status, said)
                }
            }
            _ => Self::Refused(status, said()),
        }))
    }
}

/// The bytes are not a response of an Icecast server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "there is nothing to add")]
pub struct InvalidResponse;

impl fmt::Display for InvalidResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the answer is not that of an Icecast server")
    }
}

impl core::error::Error for InvalidResponse {}

/// Text of an HTML error page without its tags, or the reason phrase when the page has none.
fn response_text(body: &[u8], reason: &str) -> String {
    let mut text = String::new();
    let (mut in_tag, mut title) = (false, false);
    for piece in decode_text(body).split_inclusive(['<', '>']) {
        let (inner, end) = piece
            .strip_suffix(['<', '>'])
            .map_or((piece, ' '), |inner| (inner, if piece.ends_with('<') { '<' } else { '>' }));
        if in_tag {
            // The title of an error page repeats its text.
            title = inner.eq_ignore_ascii_case("title") || (title && inner != "/title");
        } else if !title {
            text.push_str(inner);
            text.push(' ');
        }
        in_tag = end == '<';
    }
    let text = if text.trim().is_empty() { reason } else { &text };
    let clean: Vec<&str> = text.split_whitespace().collect();
    clean.join(" ").chars().filter(|c| !c.is_control()).take(MAX_REASON_CHARS).collect()
}

/// Replaces control characters by spaces, so that a value cannot break its line.
fn without_controls(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Percent-encodes everything except unreserved characters and slashes.
fn query_escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Maximum size of a response head in bytes, and maximum length of the reason text in characters.
const MAX_RESPONSE_BYTES: usize = 8 << 10;
const MAX_REASON_CHARS: usize = 160;

/// Default user name of Icecast sources.
const USER: &str = "source";

/// Default ports of Icecast, without and with TLS.
const PORT: u16 = 8000;
const SECURE_PORT: u16 = 443;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{IcecastRequest, RequestKind};
    use super::*;
    use crate::titles::TitleCharset;

    fn target(text: &str) -> IcecastUrl {
        text.parse().unwrap()
    }

    #[test]
    fn a_url_parses_to_host_port_and_mount() {
        let plain = target("icecast://radio.example/live.ogg");
        assert_eq!((plain.secure, plain.port, plain.user.as_str()), (false, 8000, "source"));
        let all = target("ICECASTS://me%40home@[::1]:8443/two%20words/ä");
        assert_eq!((all.secure, all.port, all.host.as_str()), (true, 8443, "::1"));
        assert_eq!((all.user.as_str(), all.mount.as_str()), ("me@home", "/two%20words/%C3%A4"));
        assert_eq!(all.to_string(), "icecasts://[::1]:8443/two%20words/%C3%A4");
        assert_eq!(target("icecasts://a/b").port, 443);
        for (text, error) in [
            ("http://a/b", IcecastUrlError::NotIcecast),
            ("/a", IcecastUrlError::NotIcecast),
            ("icecast://source:hackme@a/b", IcecastUrlError::Password),
            ("icecast://@a/b", IcecastUrlError::User),
            ("icecast:///b", IcecastUrlError::NoHost),
            ("icecast://a b/c", IcecastUrlError::NoHost),
            ("icecast://a:0/b", IcecastUrlError::BadPort),
            ("icecast://a:x/b", IcecastUrlError::BadPort),
            ("icecast://a", IcecastUrlError::NoMount),
            ("icecast://a/", IcecastUrlError::NoMount),
            ("icecast://a/b?c", IcecastUrlError::NoMount),
            ("icecast://a/b\r\nX: y", IcecastUrlError::NoMount),
        ] {
            assert_eq!(text.parse::<IcecastUrl>(), Err(error), "{text}");
        }
        let long = format!("icecast://a/{}", "b".repeat(MAX_URI));
        assert_eq!(long.parse::<IcecastUrl>(), Err(IcecastUrlError::TooLong));
    }

    #[test]
    fn a_request_is_accepted_by_our_own_source_client_parser() {
        let about = StreamMetadata {
            content_type: "audio/ogg".to_owned(),
            name: Some("Evening\nX-Evil: 1".to_owned()),
            public: true,
            ..StreamMetadata::default()
        };
        let target = target("icecast://me@h/two%20words");
        for way in [SourceMethod::Put, SourceMethod::Source] {
            let head = target.source_request(way, Some("s3cret"), &about, "aulos/1").unwrap();
            assert_eq!(head_length(head.as_bytes()), Some(head.len()), "one head: {head}");
            let request = IcecastRequest::parse(head.as_bytes()).unwrap();
            // printf me:s3cret | base64
            assert_eq!(request.authorization.as_deref(), Some("Basic bWU6czNjcmV0"));
            let RequestKind::Source(push) = request.kind else { panic!("{head}") };
            assert_eq!(
                (push.mount.as_str(), push.expects_continue),
                ("/two words", way == SourceMethod::Put)
            );
            assert_eq!(push.content_type, "audio/ogg");
            assert_eq!(push.name.as_deref(), Some("Evening X-Evil: 1"));
            assert!(head.contains("\r\nIce-Public: 1\r\n") && !head.contains("Ice-Genre"));
        }
        let without = target.source_request(SourceMethod::Put, None, &about, "a").unwrap();
        assert!(!without.contains("Authorization"));
        let head =
            target.metadata_request(Some("s3cret"), "Björk & Co - Jóga +1", "aulos/1").unwrap();
        let RequestKind::Metadata { mount, title, .. } =
            IcecastRequest::parse(head.as_bytes()).unwrap().kind
        else {
            panic!("{head}")
        };
        let title = title.decode(TitleCharset::default());
        assert_eq!((mount.as_str(), title.artist.as_deref()), ("/two words", Some("Björk & Co")));
        assert_eq!(title.title.as_deref(), Some("Jóga +1"));
    }

    #[test]
    fn what_would_end_a_line_is_not_sent() {
        let about = StreamMetadata::default();
        let fine = target("icecast://me@h/live");
        let broken = IcecastUrl { host: "h\r\nX-Evil: 1".to_owned(), ..fine.clone() };
        let error = broken.source_request(SourceMethod::Put, None, &about, "aulos/1").unwrap_err();
        assert_eq!(error.part, "Host");
        assert!(broken.metadata_request(None, "song", "aulos/1").is_err());
        let broken = IcecastUrl { mount: "/a HTTP/1.1\r\nX: y".to_owned(), ..fine };
        assert!(broken.source_request(SourceMethod::Source, None, &about, "aulos/1").is_err());
    }

    proptest! {
        #[test]
        fn an_encoded_url_gives_exactly_one_request_head(
            parts in prop::collection::vec((any::<u8>(), 0..3usize), 0..24),
            place in 0..3usize
        ) {
            let text: String = parts
                .into_iter()
                .map(|(byte, how)| match how {
                    0 => char::from(byte).to_string(),
                    1 => format!("%{byte:02x}"),
                    _ => format!("%25{byte:02X}"),
                })
                .collect();
            let address = match place {
                0 => format!("icecast://{text}@h/m"),
                1 => format!("icecast://u@{text}/m"),
                _ => format!("icecast://u@h/{text}"),
            };
            if let Ok(target) = address.parse::<IcecastUrl>() {
                for way in [SourceMethod::Put, SourceMethod::Source] {
                    let head = target.source_request(way, Some("p"), &StreamMetadata::default(), "a").unwrap();
                    prop_assert_eq!(head_length(head.as_bytes()), Some(head.len()), "{}", head);
                    let lines = if way == SourceMethod::Put { 8 } else { 7 };
                    prop_assert_eq!(head.matches('\n').count(), lines, "{}", head);
                }
            }
        }
    }

    #[test]
    fn responses_are_distinguished() {
        let answer = |text: &str| SourceResponse::parse(text.as_bytes(), SourceMethod::Put);
        assert_eq!(answer("HTTP/1.1 100 Continue\r\n"), Ok(None));
        assert_eq!(answer("HTTP/1.1 100 Continue\r\n\r\n"), Ok(Some(SourceResponse::Accepted)));
        assert_eq!(answer("HTTP/1.0 200 OK\n\n"), Ok(Some(SourceResponse::Accepted)));
        assert_eq!(answer("HTTP/1.0 401 You need\r\n\r\n"), Ok(Some(SourceResponse::Unauthorized)));
        let page = "HTTP/1.0 403 Forbidden\r\nContent-Type: text/html\r\n\r\n<html><head><title>\
                    Error 403</title></head><body><b>403 - Mountpoint in use</b></body></html>";
        assert_eq!(answer(page), Ok(Some(SourceResponse::MountInUse)));
        let full = page.replace("Mountpoint in use", "too many sources connected\x1b[1m");
        let words = "403 - too many sources connected[1m".to_owned();
        assert_eq!(answer(&full), Ok(Some(SourceResponse::Refused(403, words))));
        let ours = "HTTP/1.1 403 Forbidden\r\n\r\nthe mount is in use by another live source; try again later\n";
        assert_eq!(answer(ours), Ok(Some(SourceResponse::MountInUse)));
        let old = "HTTP/1.0 501 Not Implemented\r\n\r\n";
        assert_eq!(answer(old), Ok(Some(SourceResponse::MethodNotSupported)));
        let refused = SourceResponse::Refused(501, "Not Implemented".to_owned());
        assert_eq!(SourceResponse::parse(old.as_bytes(), SourceMethod::Source), Ok(Some(refused)));
        for bad in ["hello\r\n\r\n", "SSH-2.0 200 x\r\n\r\n", "HTTP/1.1 \r\n\r\n", "\r\n\r\n"] {
            assert_eq!(answer(bad), Err(InvalidResponse), "{bad:?}");
        }
        assert_eq!(
            SourceResponse::parse(&vec![b'x'; MAX_RESPONSE_BYTES + 1], SourceMethod::Put),
            Err(InvalidResponse)
        );
    }
}
