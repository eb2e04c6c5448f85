//! From a URL to the start of a body: a sequence of requests, each stage with a time-out.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::Duration;

use aulos_io::feed::{HttpBody, HttpBodyError};
use aulos_proto::http::{
    AddressClass, BodyDecoder, BodyFraming, HeadError, HttpUrl, InvalidHead, MAX_PLAYLIST_BYTES,
    PlaylistError, ReceivedHead, RequestHead, decode_text, head_length, is_playlist_type,
    playlist_entries,
};
use aulos_proto::packets::FormatHint;
#[cfg(test)]
use rustls::ClientConfig;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::error::RadioError;
use super::scope::AddressScope;
use super::{RadioCounters, RadioInfo, RadioStatusHandle};
use crate::dial::{DialError, DialedStream, Dialer};

/// Makes requests.
#[derive(Debug)]
pub(super) struct StreamFetcher {
    dialer: Dialer,
    /// Classifies addresses; a test, which has no public network, replaces it.
    class_of: fn(IpAddr) -> AddressClass,
}

impl Default for StreamFetcher {
    fn default() -> Self {
        Self { dialer: Dialer::default(), class_of: AddressClass::of }
    }
}

/// A stream whose body starts.
pub(super) struct OpenedStream {
    pub(super) body: HttpBody,
    pub(super) about: RadioInfo,
    /// Its final URL.
    pub(super) url: HttpUrl,
}

/// The answer of a server.
enum FetchResponse {
    Redirect(HttpUrl),
    /// URLs in order.
    Playlist(Vec<HttpUrl>),
    Stream(Box<OpenedStream>),
}

/// A URL still to be tried.
struct Candidate {
    url: HttpUrl,
    scope: AddressScope,
    redirects: usize,
    playlists: usize,
}

impl StreamFetcher {
    /// A fetcher with a test's TLS configuration.
    #[cfg(test)]
    pub(super) fn with_tls(config: ClientConfig) -> Self {
        Self { dialer: Dialer::with_tls(config), ..Self::default() }
    }

    /// A fetcher with a test's names and address classes.
    #[cfg(test)]
    pub(super) fn with_address_classes(
        dialer: Dialer,
        class_of: fn(IpAddr) -> AddressClass,
    ) -> Self {
        Self { dialer, class_of }
    }

    /// Follows redirects and playlists from `first` to a body; URLs in `refused` are skipped.
    pub(super) async fn open(
        &self,
        first: &HttpUrl,
        refused: &HashSet<HttpUrl>,
        watch: &RadioStatusHandle,
        totals: &RadioCounters,
    ) -> Result<OpenedStream, RadioError> {
        let first =
            Candidate { url: first.clone(), scope: AddressScope::Any, redirects: 0, playlists: 0 };
        let mut candidates = VecDeque::from([first]);
        let (mut visited, mut failure) = (HashSet::new(), None);
        for _ in 0..MAX_REQUESTS {
            let Some(Candidate { url, scope, redirects, playlists: lists }) =
                candidates.pop_front()
            else {
                break;
            };
            if refused.contains(&url) {
                failure.get_or_insert(RadioError::NothingPlayable);
                continue;
            }
            // An address that one server may not lead to may be allowed for another.
            if !visited.insert((url.clone(), scope)) {
                failure = Some(RadioError::RedirectLoop);
                continue;
            }
            let (stream, class) = match self.connect(&url, scope).await {
                Ok(connected) => connected,
                Err(why) => {
                    failure = Some(why);
                    continue;
                }
            };
            let scope = scope.after(class);
            match send_request(stream, &url).await {
                Ok(FetchResponse::Stream(opened)) => return Ok(*opened),
                Ok(FetchResponse::Redirect(_)) if redirects >= MAX_REDIRECTS => {
                    failure = Some(RadioError::TooManyRedirects);
                }
                Ok(FetchResponse::Redirect(url)) => {
                    watch.change(|state| state.redirects += 1);
                    totals.redirects.fetch_add(1, Ordering::Relaxed);
                    candidates.push_front(Candidate {
                        url,
                        scope,
                        redirects: redirects + 1,
                        playlists: lists,
                    });
                }
                Ok(FetchResponse::Playlist(_)) if lists >= MAX_NESTED_PLAYLISTS => {
                    failure = Some(RadioError::TooDeep);
                }
                Ok(FetchResponse::Playlist(urls)) => {
                    for url in urls.into_iter().rev() {
                        candidates.push_front(Candidate {
                            url,
                            scope,
                            redirects,
                            playlists: lists + 1,
                        });
                    }
                }
                Err(why) => failure = Some(why),
            }
        }
        Err(failure.unwrap_or(RadioError::Empty))
    }

    /// Connects to a permitted address of a host; returns the address's class as well.
    async fn connect(
        &self,
        url: &HttpUrl,
        scope: AddressScope,
    ) -> Result<(DialedStream, AddressClass), RadioError> {
        let addresses = self.dialer.resolve(&url.host, url.port);
        let addresses = with_timeout(RESOLVE, "resolving the host name", addresses).await?;
        let addresses = addresses.map_err(|error| error_from_dial(error, url))?;
        let mut failure = RadioError::Name(url.host.clone());
        for address in scope.filter(&url.host, addresses, self.class_of)? {
            let class = (self.class_of)(address.ip());
            match with_timeout(CONNECT, "connecting to the server", connect_socket(address)).await {
                Ok(Ok(socket)) if url.secure => {
                    return Ok((self.start_tls(url, socket).await?, class));
                }
                Ok(Ok(socket)) => return Ok((DialedStream::Plain(socket), class)),
                Ok(Err(error)) => failure = RadioError::Connect(error.kind()),
                Err(late) => failure = late,
            }
        }
        Err(failure)
    }

    async fn start_tls(
        &self,
        url: &HttpUrl,
        socket: TcpStream,
    ) -> Result<DialedStream, RadioError> {
        let hello = self.dialer.start_tls(&url.host, socket);
        match with_timeout(HANDSHAKE, "TLS handshake", hello).await? {
            Ok(stream) => Ok(DialedStream::Tls(Box::new(stream))),
            Err(error) => Err(error_from_dial(error, url)),
        }
    }
}

/// Sends one request and reads its answer.
async fn send_request(
    mut stream: DialedStream,
    url: &HttpUrl,
) -> Result<FetchResponse, RadioError> {
    let request = request_head(url).map_err(RadioError::Request)?;
    let asked = stream.write_all(request.as_bytes());
    with_timeout(REQUEST, "sending the request", asked)
        .await?
        .map_err(|e| RadioError::Io(e.kind()))?;
    let (head, rest) =
        with_timeout(HEAD, "waiting for the answer", read_head(&mut stream)).await??;
    match head.status {
        300..=399 => {
            let to = head.location.as_deref().ok_or(RadioError::Head)?;
            return url.join(to).map(FetchResponse::Redirect).map_err(RadioError::InvalidAddress);
        }
        200..=299 => {}
        status => return Err(RadioError::Status(status)),
    }
    let mut body = ResponseBody { stream, unread: rest, ended: false };
    let front = with_timeout(FIRST_BYTES, "waiting for audio", body.first_bytes(&head)).await??;
    if front.is_empty() {
        return Err(RadioError::Empty);
    }
    if is_list(url, &head, &front) {
        let text =
            with_timeout(LIST, "receiving the playlist", body.playlist_bytes(&head)).await??;
        let entries = playlist_entries(&text).map_err(RadioError::Playlist)?;
        let urls: Vec<_> = entries.iter().filter_map(|entry| url.join(entry).ok()).collect();
        if urls.is_empty() {
            return Err(RadioError::Playlist(PlaylistError::Empty));
        }
        return Ok(FetchResponse::Playlist(urls));
    }
    body.into_opened(url, head).map(Box::new).map(FetchResponse::Stream)
}

fn error_from_dial(error: DialError, url: &HttpUrl) -> RadioError {
    match error {
        DialError::Name => RadioError::Name(url.host.clone()),
        DialError::Busy => RadioError::Busy,
        DialError::Connect(kind) => RadioError::Connect(kind),
        DialError::Tls(why) => RadioError::Tls(why),
    }
}

/// Limits the kernel's receive buffer, which would add delay.
async fn connect_socket(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.connect(address).await
}

async fn with_timeout<T>(
    limit: Duration,
    what: &'static str,
    work: impl Future<Output = T>,
) -> Result<T, RadioError> {
    timeout(limit, work).await.map_err(|_| RadioError::TimedOut(what))
}

fn request_head(url: &HttpUrl) -> Result<String, HeadError> {
    // HTTP/1.0: nearly all servers then send an endless body without chunks.
    RequestHead::new("GET", &url.target, "1.0")
        .field("Host", &url.authority())
        .field("User-Agent", concat!("aulos/", env!("CARGO_PKG_VERSION")))
        .field("Accept", "*/*")
        .field("Accept-Encoding", "identity")
        .field("Icy-MetaData", "1")
        .optional("Authorization", url.authorization().as_deref())
        .field("Connection", "close")
        .finish()
}

/// The relevant fields of a response head.
#[derive(Debug, Default)]
struct ResponseHead {
    status: u16,
    location: Option<String>,
    length: Option<u64>,
    chunked: bool,
    icy_metaint: Option<usize>,
    about: RadioInfo,
}

/// Reads to the end of the head; also returns the bytes read after it.
async fn read_head(stream: &mut DialedStream) -> Result<(ResponseHead, Vec<u8>), RadioError> {
    let mut bytes = Vec::with_capacity(2_048);
    loop {
        let mut piece = [0; 2_048];
        let count = stream.read(&mut piece).await.map_err(|error| RadioError::Io(error.kind()))?;
        if count == 0 {
            return Err(RadioError::Head);
        }
        bytes.extend_from_slice(piece.get(..count).unwrap_or_default());
        match ResponseHead::parse(&bytes)? {
            Some((head, length)) => return Ok((head, bytes.split_off(length))),
            None if bytes.len() > MAX_HEAD => return Err(RadioError::Head),
            None => {}
        }
    }
}

impl ResponseHead {
    /// `None` while it is incomplete.
    fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, RadioError> {
        let agrees = |line: &[u8]| bytes.iter().zip(line).all(|(found, wanted)| found == wanted);
        if !STATUS_LINES.iter().any(|line| agrees(line)) {
            return Err(RadioError::Head);
        }
        let Some(length) = head_length(bytes) else { return Ok(None) };
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

    const fn framing(&self) -> BodyFraming {
        match (self.chunked, self.length) {
            (true, _) => BodyFraming::Chunked,
            (false, Some(length)) => BodyFraming::Length(length),
            (false, None) => BodyFraming::UntilClosed,
        }
    }

    fn body(&self) -> BodyDecoder {
        BodyDecoder::new(self.framing(), self.icy_metaint)
    }
}

/// A header's text, cut to a readable length.
fn header_text(bytes: &[u8]) -> String {
    decode_text(bytes).trim().chars().filter(|c| !c.is_control()).take(MAX_HEADER_TEXT).collect()
}

/// A body whose first bytes are inspected.
struct ResponseBody {
    stream: DialedStream,
    /// Body bytes read so far, unparsed.
    unread: Vec<u8>,
    ended: bool,
}

impl ResponseBody {
    /// The first bytes without chunk headers and titles; fewer than requested if the body is
    /// shorter.
    async fn first_bytes(&mut self, head: &ResponseHead) -> Result<Vec<u8>, RadioError> {
        self.read_until(head, PROBE_BYTES).await
    }

    /// The body, up to the maximum length of a playlist.
    async fn playlist_bytes(&mut self, head: &ResponseHead) -> Result<Vec<u8>, RadioError> {
        self.read_until(head, MAX_PLAYLIST_BYTES).await
    }

    async fn read_until(
        &mut self,
        head: &ResponseHead,
        wanted: usize,
    ) -> Result<Vec<u8>, RadioError> {
        let (mut body, mut out, mut taken) = (head.body(), Vec::new(), 0);
        loop {
            let fresh = self.unread.get(taken..).unwrap_or_default();
            body.push(fresh, |bytes| out.extend_from_slice(bytes), |_| {})
                .map_err(|_| RadioError::Body(HttpBodyError::InvalidChunks))?;
            taken = self.unread.len();
            if out.len() >= wanted || body.is_finished() || self.ended {
                return Ok(out);
            }
            let mut piece = [0; 4_096];
            let read = self.stream.read(&mut piece).await;
            let count = read.map_err(|error| RadioError::Io(error.kind()))?;
            self.ended = count == 0;
            self.unread.extend_from_slice(piece.get(..count).unwrap_or_default());
            // Chunks with nothing but extensions, titles with nothing but zeroes.
            if self.unread.len() > MAX_PLAYLIST_BYTES * 2 {
                return Ok(out);
            }
        }
    }

    fn into_opened(self, url: &HttpUrl, head: ResponseHead) -> Result<OpenedStream, RadioError> {
        let broke = |error: io::Error| RadioError::Io(error.kind());
        let (socket, tls) = self.stream.into_parts().map_err(broke)?;
        let about = RadioInfo { url: Some(url.to_string()), ..head.about.clone() };
        let kind = about.content_type.as_deref().unwrap_or_default();
        let body = HttpBody {
            socket,
            tls,
            body: head.body(),
            unread: self.unread,
            hint: FormatHint::from_content_type(kind),
            finite: matches!(head.framing(), BodyFraming::Length(_)),
        };
        Ok(OpenedStream { body, about, url: url.clone() })
    }
}

/// Whether it is a playlist, by its type, its name or its first words; audio that is labelled as a
/// playlist is audio.
fn is_list(url: &HttpUrl, head: &ResponseHead, front: &[u8]) -> bool {
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

/// Maximum redirects in a row, nested playlists, and requests in total.
pub(super) const MAX_REDIRECTS: usize = 8;
const MAX_NESTED_PLAYLISTS: usize = 3;
const MAX_REQUESTS: usize = 64;

/// Time-outs of the stages.
const RESOLVE: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(5);
const HANDSHAKE: Duration = Duration::from_secs(10);
const REQUEST: Duration = Duration::from_secs(5);
const HEAD: Duration = test_scaled(10);
const FIRST_BYTES: Duration = test_scaled(10);
const LIST: Duration = test_scaled(10);

/// Shorter in tests.
const fn test_scaled(seconds: u64) -> Duration {
    Duration::from_secs(if cfg!(test) { seconds.div_ceil(4) } else { seconds })
}

/// Beginnings of a response; the second is that of old Shoutcast servers, which continue as in HTTP.
const STATUS_LINES: [&[u8]; 2] = [b"HTTP/1.", b"ICY "];

/// Maximum bytes of a head, and characters of one value.
const MAX_HEAD: usize = 32 * 1024;
const MAX_HEADER_TEXT: usize = 1_024;

/// Bytes that suffice to recognize a playlist.
const PROBE_BYTES: usize = 24;

/// Receive buffer of the kernel.
const RECEIVE_BUFFER: u32 = 64 * 1024;
