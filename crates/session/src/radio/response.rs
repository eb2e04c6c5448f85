//! Requests for streams, and the heads of their answers.

use aulos_proto::http::{
    BodyDecoder, BodyFraming, HeadError, HttpUrl, InvalidHead, ReceivedHead, RequestHead,
    decode_text, head_length, is_playlist_type,
};
use aulos_proto::m3u8::ByteRange;

use super::{RadioError, RadioInfo};

/// The request of an endless stream with titles, or of a resource that ends, or a part of it.
pub(super) fn request_head(
    url: &HttpUrl,
    agent: &str,
    is_live: bool,
    range: Option<ByteRange>,
) -> Result<String, HeadError> {
    // HTTP/1.0: nearly all servers then send an endless body without chunks. Of a sound that ends,
    // chunks tell whether it is complete.
    let version = if is_live { "1.0" } else { "1.1" };
    let range = range.map(|ByteRange { offset, length }| {
        format!("bytes={offset}-{}", offset.saturating_add(length).saturating_sub(1))
    });
    RequestHead::new("GET", &url.target, version)
        .field("Host", &url.authority())
        .field("User-Agent", agent)
        .field("Accept", "*/*")
        .field("Accept-Encoding", "identity")
        .optional("Icy-MetaData", is_live.then_some("1"))
        .optional("Range", range.as_deref())
        .optional("Authorization", url.authorization().as_deref())
        .field("Connection", "close")
        .finish()
}

/// The relevant fields of a response head.
#[derive(Debug, Default)]
pub(super) struct ResponseHead {
    pub(super) status: u16,
    pub(super) location: Option<String>,
    length: Option<u64>,
    chunked: bool,
    icy_metaint: Option<usize>,
    pub(super) about: RadioInfo,
}

impl ResponseHead {
    /// The head at the front of `bytes` and its length; `None` while it is incomplete.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, RadioError> {
        let agrees = |line: &[u8]| bytes.iter().zip(line).all(|(found, wanted)| found == wanted);
        if !STATUS_LINES.iter().any(|line| agrees(line)) {
            return Err(RadioError::Head);
        }
        let Some(length) = head_length(bytes) else {
            return if bytes.len() > MAX_HEAD { Err(RadioError::Head) } else { Ok(None) };
        };
        let received = ReceivedHead::parse(bytes).map_err(|InvalidHead| RadioError::Head)?;
        let (_, status, _) = received.status_line().ok_or(RadioError::Head)?;
        let mut head = Self { status, ..Self::default() };
        for (name, value) in received.fields() {
            let value = header_text(value);
            let about = &mut head.about;
            match name {
                "location" => head.location = Some(value),
                "content-length" => head.length = value.parse().ok(),
                "transfer-encoding" => {
                    head.chunked = value.to_ascii_lowercase().contains("chunked");
                }
                "icy-metaint" => head.icy_metaint = value.parse().ok(),
                "content-type" => about.content_type = Some(value),
                "icy-name" => about.name = Some(value).filter(|name| !name.is_empty()),
                "icy-genre" => about.genre = Some(value).filter(|genre| !genre.is_empty()),
                "icy-description" => about.description = Some(value).filter(|it| !it.is_empty()),
                "icy-br" => about.bitrate = Some(value),
                _ => {}
            }
        }
        Ok(Some((head, length)))
    }

    pub(super) const fn framing(&self) -> BodyFraming {
        match (self.chunked, self.length) {
            (true, _) => BodyFraming::Chunked,
            (false, Some(length)) => BodyFraming::Length(length),
            (false, None) => BodyFraming::UntilClosed,
        }
    }

    pub(super) fn body(&self) -> BodyDecoder {
        BodyDecoder::new(self.framing(), self.icy_metaint)
    }
}

/// A header's text, cut to a readable length.
fn header_text(bytes: &[u8]) -> String {
    decode_text(bytes).trim().chars().filter(|c| !c.is_control()).take(MAX_HEADER_TEXT).collect()
}

/// Whether it is a playlist, by its type, its name or its first words; audio that is labelled as a
/// playlist is audio.
pub(super) fn is_list(url: &HttpUrl, head: &ResponseHead, front: &[u8]) -> bool {
    let path = url.target.split('?').next().unwrap_or_default().to_ascii_lowercase();
    let named = [".m3u", ".m3u8", ".pls", ".xspf"].iter().any(|end| path.ends_with(end));
    let typed = head.about.content_type.as_deref().is_some_and(is_playlist_type);
    let text = front.strip_prefix(b"\xef\xbb\xbf").unwrap_or(front).trim_ascii_start();
    let begins =
        |with: &[u8]| text.get(..with.len()).is_some_and(|front| front.eq_ignore_ascii_case(with));
    let looks =
        begins(b"#extm3u") || begins(b"[playlist]") || begins(b"<?xml") || begins(b"http://");
    let is_text = front.iter().all(|byte| *byte >= b' ' || matches!(byte, b'\t' | b'\r' | b'\n'));
    (named || typed || looks) && is_text && !begins(b"<!doctype") && !begins(b"<html")
}

/// Beginnings of a response; the second is that of old Shoutcast servers, which continue as in
/// HTTP.
const STATUS_LINES: [&[u8]; 2] = [b"HTTP/1.", b"ICY "];

/// Maximum bytes of a head, and characters of one value.
const MAX_HEAD: usize = 32 * 1024;
const MAX_HEADER_TEXT: usize = 1_024;
