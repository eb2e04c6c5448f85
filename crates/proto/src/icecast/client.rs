//! The other side of [`Request`](super::Request): what a source says to an Icecast server that it
//! pushes to, and what it is answered.

use core::fmt;
use core::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::head_length;
use crate::http::{HeadError, RequestHead, decode_text};
use crate::uri::{MAX_URI, percent_decode};

/// A mount of a server, `icecast://USER@HOST:PORT/MOUNT`. Its password stands elsewhere, because
/// addresses are shown.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct IcecastUrl {
    /// With TLS (`icecasts:`).
    pub secure: bool,
    /// Who we are; `source` where nobody was named.
    pub user: String,
    /// Without the brackets of IPv6.
    pub host: String,
    /// The usual one where none was named.
    pub port: u16,
    /// As it stands in a request; begins with a slash.
    pub mount: String,
}

/// What a server may know of a programme.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what a request says")]
pub struct StreamMetadata {
    /// The media type of the stream.
    pub content_type: String,
    /// What it is called.
    pub name: Option<String>,
    /// A sentence about it.
    pub description: Option<String>,
    /// What kind of programme it is.
    pub genre: Option<String>,
    /// Its web page.
    pub site: Option<String>,
    /// Whether it may be in public lists.
    pub public: bool,
    /// `ice-samplerate=...` and the like.
    pub audio_info: String,
}

/// How a stream is announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceMethod {
    /// `PUT`, and the server says that it may begin.
    #[default]
    Put,
    /// `SOURCE`, which servers before Icecast 2.4 want.
    Source,
}

/// What a server says to that.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceResponse {
    /// The stream may begin.
    Accepted,
    /// 401: the name or the password is wrong.
    Unauthorized,
    /// Somebody sends there already.
    MountInUse,
    /// It does not know this way of asking.
    MethodNotSupported,
    /// It says no: the status, and its words.
    Refused(u16, String),
}

impl IcecastUrl {
    /// What is told as `Host`.
    #[must_use]
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// The head of the request that a stream follows.
    ///
    /// # Errors
    /// [`HeadError`] when a part of it would end its line.
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

    /// A whole request that tells what is played, for streams that cannot carry it.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
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

    /// What both requests say of us.
    fn fields(&self, head: RequestHead, password: Option<&str>, agent: &str) -> RequestHead {
        let login = password.map(|password| {
            format!("Basic {}", STANDARD.encode(format!("{}:{password}", self.user)))
        });
        head.field("Host", &self.authority())
            .field("User-Agent", agent)
            .optional("Authorization", login.as_deref())
    }
}

/// Without the name: it is shown to everybody.
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
        // As a request line can have it; what was encoded stays as it is.
        let mount = path.bytes().map(|byte| match byte {
            b if b.is_ascii_graphic() => char::from(b).to_string(),
            b => format!("%{b:02X}"),
        });
        Ok(Self { secure, user, host: host.to_owned(), port, mount: mount.collect() })
    }
}

/// Why a text is not a place to push to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IcecastUrlError {
    /// It does not begin with `icecast://` or `icecasts://`.
    NotIcecast,
    /// A password is in it.
    Password,
    /// What stands before `@` is no name.
    User,
    /// It names no host.
    NoHost,
    /// Its port is no number above 0.
    BadPort,
    /// It names no mount, or one with a query.
    NoMount,
    /// It is longer than [`MAX_URI`].
    TooLong,
}

impl fmt::Display for IcecastUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotIcecast => "does not begin with icecast:// or icecasts://",
            Self::Password => "has a password in it, and addresses are shown",
            Self::User => "has no name before its @",
            Self::NoHost => "names no host",
            Self::BadPort => "has a port that is no number above 0",
            Self::NoMount => "names no mount",
            Self::TooLong => "is too long",
        })
    }
}

impl core::error::Error for IcecastUrlError {}

impl SourceResponse {
    /// Reads an answer as far as it is here; `None` while its head is not whole. `asked` is how it
    /// was asked for.
    ///
    /// # Errors
    /// [`NoAnswer`] for bytes that no server says.
    pub fn parse(read: &[u8], asked: SourceMethod) -> Result<Option<Self>, InvalidResponse> {
        let Some(length) = head_length(read) else {
            return if read.len() > MAX_ANSWER { Err(InvalidResponse) } else { Ok(None) };
        };
        let (head, body) = read.split_at(length);
        let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = decode_text(line.trim_ascii());
        let (version, rest) = line.split_once(' ').ok_or(InvalidResponse)?;
        let (status, reason) = rest.trim_start().split_at_checked(3).ok_or(InvalidResponse)?;
        let status: u16 = status.parse().map_err(|_| InvalidResponse)?;
        if !["HTTP/", "ICE/", "ICY"].iter().any(|known| version.starts_with(known)) {
            return Err(InvalidResponse);
        }
        let said = || response_text(body, reason);
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

/// What came is no answer of an Icecast server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "there is nothing to add")]
pub struct InvalidResponse;

impl fmt::Display for InvalidResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server does not answer as Icecast does")
    }
}

impl core::error::Error for InvalidResponse {}

/// The words of a page without what makes it one, or else those of the status line.
fn response_text(body: &[u8], reason: &str) -> String {
    let mut text = String::new();
    let (mut in_tag, mut title) = (false, false);
    for piece in decode_text(body).split_inclusive(['<', '>']) {
        let (inner, end) = piece
            .strip_suffix(['<', '>'])
            .map_or((piece, ' '), |inner| (inner, if piece.ends_with('<') { '<' } else { '>' }));
        if in_tag {
            // A page says in its title what it says below.
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

/// A value that ends no line but its own.
fn without_controls(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// All but what no server misunderstands.
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

/// Bytes of an answer that has no end, and letters of it that are shown.
const MAX_ANSWER: usize = 8 << 10;
const MAX_REASON_CHARS: usize = 160;

/// What Icecast's sources call themselves.
const USER: &str = "source";

/// Icecast's port, and that of TLS.
const PORT: u16 = 8000;
const SECURE_PORT: u16 = 443;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{IcecastRequest, RequestKind};
    use super::*;

    fn target(text: &str) -> IcecastUrl {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_says_where_to() {
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
    fn what_is_said_is_what_our_own_port_for_djs_understands() {
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
        let RequestKind::Metadata { mount, title } =
            IcecastRequest::parse(head.as_bytes()).unwrap().kind
        else {
            panic!("{head}")
        };
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
        fn an_address_with_anything_encoded_makes_one_head(
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
    fn answers_are_told_apart() {
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
        let ours = "HTTP/1.1 403 Forbidden\r\n\r\nsomebody is on air at this mount; try later\n";
        assert_eq!(answer(ours), Ok(Some(SourceResponse::MountInUse)));
        let old = "HTTP/1.0 501 Not Implemented\r\n\r\n";
        assert_eq!(answer(old), Ok(Some(SourceResponse::MethodNotSupported)));
        let refused = SourceResponse::Refused(501, "Not Implemented".to_owned());
        assert_eq!(SourceResponse::parse(old.as_bytes(), SourceMethod::Source), Ok(Some(refused)));
        for bad in ["hello\r\n\r\n", "SSH-2.0 200 x\r\n\r\n", "HTTP/1.1 \r\n\r\n", "\r\n\r\n"] {
            assert_eq!(answer(bad), Err(InvalidResponse), "{bad:?}");
        }
        assert_eq!(
            SourceResponse::parse(&vec![b'x'; MAX_ANSWER + 1], SourceMethod::Put),
            Err(InvalidResponse)
        );
    }
}
