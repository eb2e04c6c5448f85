//! The Icecast source protocol: requests of source clients (DJs), and the same requests from this
//! server to other servers ([`IcecastUrl`]).
//!
//! Current source clients send `PUT /mount HTTP/1.1`, old ones `SOURCE /mount ICE/1.0`. Metadata
//! updates are separate requests, `GET /admin/metadata?mode=updinfo&mount=/mount&song=...`.
//! Programs of Shoutcast's time use [`shoutcast`].
//!
//! Sources: Icecast's documentation ("Icecast protocol specification", "Admin interface"), RFC 9110
//! and 9112.

mod client;
pub mod shoutcast;

use core::fmt;

pub use client::{
    IcecastUrl, IcecastUrlError, InvalidResponse, SourceMethod, SourceResponse, StreamMetadata,
};

use encoding_rs::{Encoding, UTF_8};

use crate::http::{BodyFraming, InvalidHead, ReceivedHead, decode_text, decode_text_in};
use crate::titles::{TitleCharset, TrackMetadata, clean_text};
use crate::uri::{percent_decode, percent_decode_bytes};

/// Head of a source client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IcecastRequest {
    /// What the client requests.
    pub kind: RequestKind,
    /// `Authorization`, unchanged.
    pub authorization: Option<String>,
    /// `User-Agent`, without control characters.
    pub agent: Option<String>,
    /// The request comes from a web page in a browser (`Origin`, `Referer` or `Sec-Fetch-Site` is
    /// set). Source clients do not send these headers.
    pub from_browser: bool,
    /// `Host`, unchanged.
    pub host: Option<String>,
}

/// Kind of a request to a source port.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestKind {
    /// Start a stream.
    Source(SourceRequest),
    /// Update the metadata.
    Metadata {
        /// Mount, with its leading slash; empty when the request has none.
        mount: String,
        /// Metadata of the current track; empty when the track has no name.
        title: ReceivedTitle,
        /// Password in the query, as Shoutcast's programs send it.
        password: Option<String>,
    },
    /// Query the capabilities (`OPTIONS`).
    Options,
    /// Query the number of listeners (`/status-json.xsl`).
    Status,
    /// Any other request; not supported.
    Other,
}

/// Request to start a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceRequest {
    /// Mount, with its leading slash.
    pub mount: String,
    /// Whether the client waits for `100 Continue`.
    pub expects_continue: bool,
    /// Framing of the stream.
    pub framing: BodyFraming,
    /// `Content-Type`; empty when absent.
    pub content_type: String,
    /// `Ice-Name`: name of the programme.
    pub name: Option<String>,
}

/// A title as a source client has sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedTitle {
    /// Both in one.
    song: Option<Vec<u8>>,
    title: Option<Vec<u8>>,
    artist: Option<Vec<u8>>,
    /// The charset that the client names, unless it may be any.
    charset: Option<&'static Encoding>,
}

impl ReceivedTitle {
    /// Its text. `default` is the charset of one that names none and is not UTF-8.
    #[must_use]
    pub fn decode(&self, default: TitleCharset) -> TrackMetadata {
        let text = |bytes: &Vec<u8>| match self.charset {
            Some(charset) => charset.decode(bytes).0.into_owned(),
            None => decode_text_in(bytes, default),
        };
        let clean = |bytes: &Option<Vec<u8>>| clean_text(bytes.as_ref().map(text)?.as_bytes());
        match &self.song {
            Some(song) => TrackMetadata::from_stream_title(&text(song)),
            None => TrackMetadata {
                title: clean(&self.title),
                artist: clean(&self.artist),
                ..TrackMetadata::default()
            },
        }
    }
}

/// Reason why bytes are not a valid request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// The first line is not method, target and version.
    Line,
    /// An invalid length, or a length together with chunked encoding.
    Length,
    /// The charset of a title is unknown.
    Charset,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Line => "not a valid HTTP or Icecast source request",
            Self::Length => "the length of the request body is invalid",
            Self::Charset => "the charset is not one of the Encoding Standard",
        })
    }
}

impl core::error::Error for RequestError {}

impl IcecastRequest {
    /// Parses a complete head ([`head_length`](crate::http::head_length)).
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn parse(head: &[u8]) -> Result<Self, RequestError> {
        let head = ReceivedHead::parse(head).map_err(|InvalidHead| RequestError::Line)?;
        let line = head.request_line().or_else(|| title_request_line(&head));
        let (method, target, version) = line.ok_or(RequestError::Line)?;
        if !["HTTP/", "ICE/"].iter().any(|known| version.starts_with(known)) {
            return Err(RequestError::Line);
        }
        let mut fields = Fields::default();
        head.fields().for_each(|(name, value)| fields.set(name, value));
        let (authority, target) = split_absolute_form(target);
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let wish = match method {
            "POST" if fields.is_form() => RequestKind::Other,
            "PUT" | "POST" | "SOURCE" => RequestKind::Source(
                fields.source_request(method == "SOURCE", percent_decode(path))?,
            ),
            "OPTIONS" => RequestKind::Options,
            "GET" if METADATA_PATHS.contains(&path) => metadata_request(query)?,
            "GET" if path == "/status-json.xsl" => RequestKind::Status,
            _ => RequestKind::Other,
        };
        let Fields { authorization, agent, from_page, host, .. } = fields;
        // RFC 9112, 3.2.2: `Host` is ignored then.
        let host = authority.map(str::to_owned).or(host);
        Ok(Self { kind: wish, authorization, agent, from_browser: from_page, host })
    }
}

/// The header fields that are used.
#[derive(Debug, Default)]
struct Fields {
    authorization: Option<String>,
    agent: Option<String>,
    content_type: String,
    name: Option<String>,
    expects: bool,
    chunked: bool,
    from_page: bool,
    host: Option<String>,
    length: Option<Result<u64, RequestError>>,
}

impl Fields {
    fn set(&mut self, name: &str, value: &[u8]) {
        let words = || String::from_utf8_lossy(value).into_owned();
        match name {
            "authorization" => self.authorization = Some(words()),
            "user-agent" => self.agent = clean_text(value),
            "content-type" => self.content_type = clean_text(value).unwrap_or_default(),
            "origin" | "referer" => self.from_page = true,
            "host" => self.host = Some(words()),
            "sec-fetch-site" => self.from_page |= value != b"none",
            "ice-name" | "icy-name" => self.name = clean_text(value),
            "expect" => self.expects = value.eq_ignore_ascii_case(b"100-continue"),
            "transfer-encoding" => self.chunked = value.eq_ignore_ascii_case(b"chunked"),
            "content-length" => {
                self.length = Some(words().parse().map_err(|_| RequestError::Length));
            }
            _ => {}
        }
    }

    /// Whether the body is what a form of any web page can send, and no sound.
    fn is_form(&self) -> bool {
        let kind = self.content_type.split(';').next().unwrap_or_default().trim();
        FORM_TYPES.iter().any(|form| kind.eq_ignore_ascii_case(form))
    }

    fn source_request(&self, old: bool, mount: String) -> Result<SourceRequest, RequestError> {
        let framing = match (old, self.chunked, self.length) {
            // `SOURCE` requests have neither a length nor chunks.
            (true, ..) | (false, false, None) => BodyFraming::UntilClosed,
            (false, true, None) => BodyFraming::Chunked,
            (false, true, Some(_)) => return Err(RequestError::Length),
            // Some source clients announce a length of 0 and then send an endless stream.
            (false, false, Some(Ok(0))) => BodyFraming::UntilClosed,
            (false, false, Some(length)) => BodyFraming::Length(length?),
        };
        Ok(SourceRequest {
            mount,
            expects_continue: self.expects,
            framing,
            content_type: self.content_type.clone(),
            name: self.name.clone(),
        })
    }
}

/// The encodings of HTML forms, which browsers send to other sites without asking them.
const FORM_TYPES: [&str; 3] =
    ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"];

/// The paths of a title: of Icecast, of its page for administrators, and of Shoutcast.
const METADATA_PATHS: [&str; 3] = ["/admin/metadata", "/admin/metadata.xsl", "/admin.cgi"];

/// The authority and the rest of a target in absolute form (RFC 9112, 3.2.2), which programs send
/// that are set up for a proxy.
fn split_absolute_form(target: &str) -> (Option<&str>, &str) {
    let Some((scheme, rest)) = target.split_once("://") else { return (None, target) };
    if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return (None, target);
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
    (Some(authority), if path.is_empty() { "/" } else { path })
}

/// The parts of a title's request line with blanks in its query: some programs do not encode the
/// password.
fn title_request_line(head: &ReceivedHead) -> Option<(&str, &str, &str)> {
    let (method, rest) = core::str::from_utf8(head.first_line()).ok()?.split_once(' ')?;
    let (target, version) = rest.rsplit_once(' ')?;
    (method == "GET" && target.starts_with("/admin.cgi?")).then_some((method, target, version))
}

/// Parses the query of `/admin/metadata`.
fn metadata_request(query: &str) -> Result<RequestKind, RequestError> {
    let pairs = || query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let raw = |wanted: &str| {
        let (_, value) = pairs().find(|(key, _)| *key == wanted)?;
        Some(percent_decode_bytes(&value.replace('+', " ")))
    };
    if raw("mode").is_none_or(|mode| mode != b"updinfo") {
        return Ok(RequestKind::Other);
    }
    let charset = match raw("charset") {
        Some(name) if !name.is_empty() => Some(charset(&name).ok_or(RequestError::Charset)?),
        _ => None,
    };
    let title = ReceivedTitle {
        song: raw("song"),
        title: raw("title"),
        artist: raw("artist"),
        // Some programs name UTF-8 for whatever they send.
        charset: charset.filter(|charset| *charset != UTF_8),
    };
    let text = |key| raw(key).map(|bytes| decode_text(&bytes));
    let mount = text("mount").unwrap_or_default();
    let slash = if mount.is_empty() || mount.starts_with('/') { "" } else { "/" };
    Ok(RequestKind::Metadata { mount: format!("{slash}{mount}"), title, password: text("pass") })
}

/// The title in the query of `/admin/metadata`; `None` for a query of another mode.
///
/// # Errors
/// [`RequestError`] for an unknown charset.
pub fn parse_title_query(query: &str) -> Result<Option<ReceivedTitle>, RequestError> {
    Ok(match metadata_request(query)? {
        RequestKind::Metadata { title, .. } => Some(title),
        _ => None,
    })
}

/// The charset of this name (a label of the Encoding Standard, in any case); none for the names of
/// those that are not decoded for security.
fn charset(name: &[u8]) -> Option<&'static Encoding> {
    let found = Encoding::for_label_no_replacement(name);
    // A name that is not in the standard, but common.
    found.or_else(|| name.eq_ignore_ascii_case(b"latin-1").then_some(encoding_rs::WINDOWS_1252))
}

/// Whether a stream of this content type cannot be played. The type only excludes formats; the
/// actual format is detected from the bytes.
#[must_use]
pub fn is_unsupported_type(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    UNSUPPORTED_PREFIXES.iter().any(|bad| kind.starts_with(bad))
        || UNSUPPORTED_TYPES.contains(&&*kind)
}

/// `video/ogg` is not listed: some clients use it for any Ogg stream.
const UNSUPPORTED_PREFIXES: [&str; 6] =
    ["text/", "image/", "font/", "model/", "video/webm", "video/mp"];

const UNSUPPORTED_TYPES: [&str; 9] = [
    "audio/webm",
    "audio/x-matroska",
    "audio/midi",
    "audio/x-ms-wma",
    "audio/mp4",
    "audio/x-m4a",
    "video/x-matroska",
    "application/json",
    "application/x-www-form-urlencoded",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn push(head: &str) -> Result<SourceRequest, RequestError> {
        match IcecastRequest::parse(head.as_bytes())?.kind {
            RequestKind::Source(push) => Ok(push),
            other => panic!("{other:?}"),
        }
    }

    fn song(query: &str) -> (String, Option<String>, Option<String>) {
        let head = format!("GET /admin/metadata?{query} HTTP/1.0\r\n\r\n");
        match IcecastRequest::parse(head.as_bytes()).unwrap().kind {
            RequestKind::Metadata { mount, title, .. } => {
                let title = title.decode(TitleCharset::default());
                (mount, title.artist, title.title)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_ffmpeg_sends() {
        let head = "PUT /live HTTP/1.1\r\nUser-Agent: Lavf/59.27.100\r\nAccept: */*\r\n\
                    Expect: 100-continue\r\nConnection: close\r\nHost: 127.0.0.1:8000\r\n\
                    Content-Type: audio/mpeg\r\nIcy-MetaData: 1\r\nIce-Public: 0\r\n\
                    Authorization: Basic c291cmNlOnNlY3JldA==\r\n\r\n";
        let request = IcecastRequest::parse(head.as_bytes()).unwrap();
        assert_eq!(request.authorization.as_deref(), Some("Basic c291cmNlOnNlY3JldA=="));
        assert_eq!(request.agent.as_deref(), Some("Lavf/59.27.100"));
        assert!(!request.from_browser);
        let page = head.replace("Accept: */*", "Origin: http://evil.example");
        assert!(IcecastRequest::parse(page.as_bytes()).unwrap().from_browser);
        assert_eq!(push(&head.replace("PUT", "POST")), push(head), "Liquidsoap's third method");
        for form in
            ["multipart/form-data; boundary=x", "Text/Plain", "application/x-www-form-urlencoded"]
        {
            let form = head.replace("PUT", "POST").replace("audio/mpeg", form);
            let kind = IcecastRequest::parse(form.as_bytes()).unwrap().kind;
            assert!(matches!(kind, RequestKind::Other), "{kind:?}");
        }
        let push = push(head).unwrap();
        assert_eq!((push.mount.as_str(), push.expects_continue), ("/live", true));
        assert_eq!(
            (push.framing, push.content_type.as_str()),
            (BodyFraming::UntilClosed, "audio/mpeg")
        );
    }

    #[test]
    fn a_target_may_be_absolute() {
        let request = |target: &str| {
            let head = format!("PUT {target} HTTP/1.1\r\nHost: other.example\r\n\r\n");
            let request = IcecastRequest::parse(head.as_bytes()).unwrap();
            let RequestKind::Source(source) = request.kind else { panic!("{target}") };
            (request.host.unwrap(), source.mount)
        };
        let both = |host: &str, mount: &str| (host.to_owned(), mount.to_owned());
        assert_eq!(request("http://radio.example:8000/live"), both("radio.example:8000", "/live"));
        assert_eq!(request("HTTPS://[::1]:8000/a%20b?x"), both("[::1]:8000", "/a b"));
        assert_eq!(request("http://radio.example"), both("radio.example", "/"));
        assert_eq!(request("/live"), both("other.example", "/live"));
        assert_eq!(request("/http://x/live"), both("other.example", "/http://x/live"));
        for target in ["/admin/metadata", "/admin/metadata.xsl", "http://a:1/admin/metadata"] {
            let head = format!("GET {target}?mode=updinfo&mount=/a&song=x HTTP/1.0\r\n\r\n");
            let kind = IcecastRequest::parse(head.as_bytes()).unwrap().kind;
            assert!(matches!(kind, RequestKind::Metadata { .. }), "{target}");
        }
    }

    #[test]
    fn what_an_old_source_sends() {
        let head = "SOURCE /two%20words ICE/1.0\ncontent-length: 5\nice-name: Evening\x07 show\n\n";
        let push = push(head).unwrap();
        assert_eq!(
            (push.mount.as_str(), push.name.as_deref()),
            ("/two words", Some("Evening show"))
        );
        assert_eq!((push.framing, push.expects_continue), (BodyFraming::UntilClosed, false));
    }

    #[test]
    fn a_body_has_its_declared_length() {
        let framing = |fields: &str| {
            push(&format!("PUT /a HTTP/1.1\r\n{fields}\r\n\r\n")).map(|push| push.framing)
        };
        assert_eq!(framing("Transfer-Encoding: chunked"), Ok(BodyFraming::Chunked));
        assert_eq!(framing("Content-Length: 12"), Ok(BodyFraming::Length(12)));
        assert_eq!(framing("Content-Length: 0"), Ok(BodyFraming::UntilClosed));
        assert_eq!(framing("Content-Length: -1"), Err(RequestError::Length));
        let both = "Content-Length: 1\r\nTransfer-Encoding: chunked";
        assert_eq!(framing(both), Err(RequestError::Length));
    }

    #[test]
    fn titles_in_every_writing() {
        let both = |artist: &str, title: &str| {
            ("/live".to_owned(), Some(artist.to_owned()), Some(title.to_owned()))
        };
        let live = "mode=updinfo&mount=/live";
        assert_eq!(song(&format!("{live}&song=Bj%C3%B6rk%20-%20J%C3%B3ga")), both("Björk", "Jóga"));
        assert_eq!(song(&format!("{live}&song=Bj%F6rk+-+J%F3ga")), both("Björk", "Jóga"));
        let latin = format!("{live}&charset=ISO-8859-1&song=%C3%A4%20-%20b");
        assert_eq!(song(&latin), both("Ã¤", "b"));
        assert_eq!(song(&format!("{live}&artist=A&title=B%26C")), both("A", "B&C"));
        let alone = ("/live".to_owned(), None, Some("News".to_owned()));
        assert_eq!(song("song=News&mount=%2Flive&mode=updinfo"), alone);
        assert_eq!(song(&format!("{live}&song=")), ("/live".to_owned(), None, None));
    }

    #[test]
    fn titles_in_every_charset() {
        // Written by Python's codecs.
        for (charset, bytes, title) in [
            ("CP1251", "%CF%F0%E8%E2%E5%F2", "Привет"),
            ("windows-1251", "%CF%F0%E8%E2%E5%F2", "Привет"),
            ("KOI8-R", "%F0%D2%C9%D7%C5%D4", "Привет"),
            ("windows-1250", "%C8esk%E1%20p%EDse%F2", "Česká píseň"),
            ("ISO-8859-2", "%A3%F3d%BC", "Łódź"),
            ("iso8859-1", "%E4", "ä"),
            ("latin-1", "%E4", "ä"),
            ("Shift_JIS", "%93%FA%96%7B", "日本"),
            ("EUC-JP", "%C6%FC%CB%DC", "日本"),
            ("Big5", "%A4%A4", "中"),
            ("gbk", "%D6%D0", "中"),
            ("UTF-16", "%FF%FE%41%04", "с"),
            ("UTF-16BE", "%04%41", "с"),
            ("UTF-8", "%D1%81", "с"),
            // Not UTF-8, whatever it says.
            ("utf8", "J%F3ga", "Jóga"),
            ("", "%FF%FE%41%04", "с"),
            ("", "%EF%BB%BFa", "a"),
            ("", "It%92s", "It\u{2019}s"),
        ] {
            let (_, artist, got) =
                song(&format!("mode=updinfo&mount=/live&charset={charset}&song={bytes}"));
            assert_eq!((artist, got.as_deref()), (None, Some(title)), "{charset}");
        }
        for unknown in ["klingon", "UTF-7", "iso-2022-kr", "x", "%00"] {
            let head = format!(
                "GET /admin/metadata?mode=updinfo&mount=/a&charset={unknown}&song=x HTTP/1.0\r\n\r\n"
            );
            let refused = IcecastRequest::parse(head.as_bytes());
            assert_eq!(refused, Err(RequestError::Charset), "{unknown}");
        }
    }

    #[test]
    fn a_title_may_name_its_mount_without_a_slash_or_not_at_all() {
        assert_eq!(song("mode=updinfo&mount=live&song=x").0, "/live");
        assert_eq!(song("mode=updinfo&song=x").0, "");
        let head = b"GET /admin.cgi?pass=very%20secret&mode=updinfo&song=A HTTP/1.0\r\n\r\n";
        let RequestKind::Metadata { mount, password, .. } =
            IcecastRequest::parse(head).unwrap().kind
        else {
            panic!("no title");
        };
        assert_eq!((&*mount, password.as_deref()), ("", Some("very secret")));
        // As Liquidsoap sends it.
        let head = b"GET /admin.cgi?mode=updinfo&pass=very secret&song=A HTTP/1.0\r\n\r\n";
        let request = IcecastRequest::parse(head).unwrap().kind;
        assert!(matches!(&request, RequestKind::Metadata { password: Some(password), .. }
            if password == "very secret"));
    }

    #[test]
    fn what_is_no_request() {
        for bad in ["", "\r\n\r\n", "hackme\r\n\r\n", "PUT /a\r\n\r\n", "PUT / a HTTP/1.1\r\n\r\n"]
        {
            assert_eq!(IcecastRequest::parse(bad.as_bytes()), Err(RequestError::Line), "{bad:?}");
        }
        let other = IcecastRequest::parse(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(other.kind, RequestKind::Other);
    }

    #[test]
    fn only_content_types_without_audio_are_rejected() {
        for good in ["", "audio/mpeg", "audio/aacp", "application/ogg", "video/ogg", "what/ever"] {
            assert!(!is_unsupported_type(good), "{good}");
        }
        for bad in ["text/html; charset=utf-8", "VIDEO/MP4", "audio/webm;codecs=opus"] {
            assert!(is_unsupported_type(bad), "{bad}");
        }
    }
}
