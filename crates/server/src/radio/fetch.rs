//! From an address to the beginning of a body: one request after the other, each stage in its time.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::Duration;

use aulos_io::feed::{BodyFault, HttpBody};
use aulos_proto::http::{
    AddressClass, Body, Framing, HeadError, HttpUrl, MAX_PLAYLIST, PlaylistError, RequestHead,
    entries, is_playlist_type, words,
};
use aulos_proto::packets::Hint;
#[cfg(test)]
use rustls::ClientConfig;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::failure::Failure;
use super::scope::Scope;
use super::{About, Totals, Watch};
use crate::dial::{DialError, Dialer, Wire};

/// Makes requests.
#[derive(Debug)]
pub(super) struct Fetcher {
    dialer: Dialer,
    /// A test has no public network, and calls another one so.
    class_of: fn(IpAddr) -> AddressClass,
}

impl Default for Fetcher {
    fn default() -> Self {
        Self { dialer: Dialer::default(), class_of: AddressClass::of }
    }
}

/// A body that begins.
pub(super) struct Opened {
    pub(super) body: HttpBody,
    pub(super) about: About,
    /// Where it was found.
    pub(super) url: HttpUrl,
}

/// What a server answered.
enum Answer {
    Moved(HttpUrl),
    /// Addresses in order.
    List(Vec<HttpUrl>),
    Sound(Box<Opened>),
}

/// What is still to be tried.
struct Lead {
    url: HttpUrl,
    scope: Scope,
    redirects: usize,
    lists: usize,
}

impl Fetcher {
    /// One that trusts whom a test trusts.
    #[cfg(test)]
    pub(super) fn trusting(config: ClientConfig) -> Self {
        Self { dialer: Dialer::trusting(config), ..Self::default() }
    }

    /// One for which names and classes of addresses are what a test says.
    #[cfg(test)]
    pub(super) fn in_world(dialer: Dialer, class_of: fn(IpAddr) -> AddressClass) -> Self {
        Self { dialer, class_of }
    }

    /// Follows redirects and playlists from `first` to a body; addresses in `refused` are left out.
    pub(super) async fn open(
        &self,
        first: &HttpUrl,
        refused: &HashSet<HttpUrl>,
        watch: &Watch,
        totals: &Totals,
    ) -> Result<Opened, Failure> {
        let first = Lead { url: first.clone(), scope: Scope::Any, redirects: 0, lists: 0 };
        let mut leads = VecDeque::from([first]);
        let (mut seen, mut failure) = (HashSet::new(), None);
        for _ in 0..MAX_REQUESTS {
            let Some(Lead { url, scope, redirects, lists }) = leads.pop_front() else { break };
            if refused.contains(&url) {
                failure.get_or_insert(Failure::NothingElse);
                continue;
            }
            // What may not be reached from one server may be reached from another.
            if !seen.insert((url.clone(), scope)) {
                failure = Some(Failure::Loop);
                continue;
            }
            let (stream, class) = match self.connect(&url, scope).await {
                Ok(connected) => connected,
                Err(why) => {
                    failure = Some(why);
                    continue;
                }
            };
            let scope = scope.behind(class);
            match ask(stream, &url).await {
                Ok(Answer::Sound(opened)) => return Ok(*opened),
                Ok(Answer::Moved(_)) if redirects >= MAX_REDIRECTS => {
                    failure = Some(Failure::TooManyRedirects);
                }
                Ok(Answer::Moved(url)) => {
                    watch.change(|state| state.redirects += 1);
                    totals.redirects.fetch_add(1, Ordering::Relaxed);
                    leads.push_front(Lead { url, scope, redirects: redirects + 1, lists });
                }
                Ok(Answer::List(_)) if lists >= MAX_LISTS => failure = Some(Failure::TooDeep),
                Ok(Answer::List(urls)) => {
                    for url in urls.into_iter().rev() {
                        leads.push_front(Lead { url, scope, redirects, lists: lists + 1 });
                    }
                }
                Err(why) => failure = Some(why),
            }
        }
        Err(failure.unwrap_or(Failure::Empty))
    }

    /// Reaches one of the addresses of a host that may be reached, and says of which class it is.
    async fn connect(&self, url: &HttpUrl, scope: Scope) -> Result<(Wire, AddressClass), Failure> {
        let found = self.dialer.find(&url.host, url.port);
        let found = within(RESOLVE, "to be found by its name", found).await?;
        let found = found.map_err(|error| failure_of(error, url))?;
        let mut failure = Failure::Name(url.host.clone());
        for address in scope.admitted(&url.host, found, self.class_of)? {
            let class = (self.class_of)(address.ip());
            match within(CONNECT, "to be reached", dial(address)).await {
                Ok(Ok(socket)) if url.secure => {
                    return Ok((self.secure(url, socket).await?, class));
                }
                Ok(Ok(socket)) => return Ok((Wire::Plain(socket), class)),
                Ok(Err(error)) => failure = Failure::Connect(error.kind()),
                Err(late) => failure = late,
            }
        }
        Err(failure)
    }

    async fn secure(&self, url: &HttpUrl, socket: TcpStream) -> Result<Wire, Failure> {
        let hello = self.dialer.secure(&url.host, socket);
        match within(HANDSHAKE, "to shake hands", hello).await? {
            Ok(stream) => Ok(Wire::Secure(Box::new(stream))),
            Err(error) => Err(failure_of(error, url)),
        }
    }
}

/// One request and its answer.
async fn ask(mut stream: Wire, url: &HttpUrl) -> Result<Answer, Failure> {
    let request = request(url).map_err(Failure::Request)?;
    let asked = stream.write_all(request.as_bytes());
    within(REQUEST, "to take the request", asked).await?.map_err(|e| Failure::Io(e.kind()))?;
    let (head, rest) = within(HEAD, "to answer", read_head(&mut stream)).await??;
    match head.status {
        300..=399 => {
            let to = head.location.as_deref().ok_or(Failure::Head)?;
            return url.join(to).map(Answer::Moved).map_err(Failure::Address);
        }
        200..=299 => {}
        status => return Err(Failure::Status(status)),
    }
    let mut begun = Begun { stream, unread: rest, ended: false };
    let front = within(FIRST_BYTES, "to send sound", begun.front(&head)).await??;
    if front.is_empty() {
        return Err(Failure::Empty);
    }
    if is_list(url, &head, &front) {
        let text = within(LIST, "to send its playlist", begun.whole(&head)).await??;
        let entries = entries(&text).map_err(Failure::Playlist)?;
        let urls: Vec<_> = entries.iter().filter_map(|entry| url.join(entry).ok()).collect();
        if urls.is_empty() {
            return Err(Failure::Playlist(PlaylistError::Empty));
        }
        return Ok(Answer::List(urls));
    }
    begun.hand_over(url, head).map(Box::new).map(Answer::Sound)
}

fn failure_of(error: DialError, url: &HttpUrl) -> Failure {
    match error {
        DialError::Name => Failure::Name(url.host.clone()),
        DialError::Busy => Failure::Busy,
        DialError::Connect(kind) => Failure::Connect(kind),
        DialError::Tls(why) => Failure::Tls(why),
    }
}

/// The kernel's buffer is bounded: what it holds is a delay that nobody asked for.
async fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.connect(address).await
}

async fn within<T>(
    limit: Duration,
    what: &'static str,
    work: impl Future<Output = T>,
) -> Result<T, Failure> {
    timeout(limit, work).await.map_err(|_| Failure::TimedOut(what))
}

fn request(url: &HttpUrl) -> Result<String, HeadError> {
    // HTTP/1.0: an endless body then comes as it is, from all but the most stubborn.
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

/// What matters in the head of a response.
#[derive(Debug, Default)]
struct Head {
    status: u16,
    location: Option<String>,
    length: Option<u64>,
    chunked: bool,
    interval: Option<usize>,
    about: About,
}

/// Reads up to the end of the head; gives what was read behind it too.
async fn read_head(stream: &mut Wire) -> Result<(Head, Vec<u8>), Failure> {
    let mut bytes = Vec::with_capacity(2_048);
    loop {
        let mut piece = [0; 2_048];
        let count = stream.read(&mut piece).await.map_err(|error| Failure::Io(error.kind()))?;
        if count == 0 {
            return Err(Failure::Head);
        }
        bytes.extend_from_slice(piece.get(..count).unwrap_or_default());
        // Shoutcast's old servers begin otherwise than HTTP does, and go on as it does.
        if let Some(rest) = bytes.strip_prefix(b"ICY ") {
            bytes = [b"HTTP/1.0 ", rest].concat();
        }
        match Head::parse(&bytes)? {
            Some((head, length)) => return Ok((head, bytes.split_off(length))),
            None if bytes.len() > MAX_HEAD => return Err(Failure::Head),
            None => {}
        }
    }
}

impl Head {
    /// `None` while it is not whole.
    fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Failure> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let mut config = httparse::ParserConfig::default();
        config
            .ignore_invalid_headers_in_responses(true)
            .allow_spaces_after_header_name_in_responses(true)
            .allow_multiple_spaces_in_response_status_delimiters(true);
        let length = match config.parse_response(&mut response, bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(Failure::Head),
        };
        let mut head = Self { status: response.code.unwrap_or(0), ..Self::default() };
        for header in response.headers {
            let value = said(header.value);
            let about = &mut head.about;
            match &header.name.to_ascii_lowercase()[..] {
                "location" => head.location = Some(value),
                "content-length" => head.length = value.parse().ok(),
                "transfer-encoding" => {
                    head.chunked = value.to_ascii_lowercase().contains("chunked");
                }
                "icy-metaint" => head.interval = value.parse().ok(),
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

    const fn framing(&self) -> Framing {
        match (self.chunked, self.length) {
            (true, _) => Framing::Chunked,
            (false, Some(length)) => Framing::Length(length),
            (false, None) => Framing::UntilClosed,
        }
    }

    fn body(&self) -> Body {
        Body::new(self.framing(), self.interval)
    }
}

/// What a server says of itself, cut where nobody would read on.
fn said(bytes: &[u8]) -> String {
    words(bytes).trim().chars().filter(|c| !c.is_control()).take(MAX_WORDS).collect()
}

/// A body whose first bytes are looked at.
struct Begun {
    stream: Wire,
    /// What was read of it, as it came.
    unread: Vec<u8>,
    ended: bool,
}

impl Begun {
    /// The first bytes behind chunks and titles; fewer than wanted where the body is shorter.
    async fn front(&mut self, head: &Head) -> Result<Vec<u8>, Failure> {
        self.read_until(head, FRONT).await
    }

    /// As much of the body as a playlist may be long.
    async fn whole(&mut self, head: &Head) -> Result<Vec<u8>, Failure> {
        self.read_until(head, MAX_PLAYLIST).await
    }

    async fn read_until(&mut self, head: &Head, wanted: usize) -> Result<Vec<u8>, Failure> {
        let (mut body, mut out, mut taken) = (head.body(), Vec::new(), 0);
        loop {
            let fresh = self.unread.get(taken..).unwrap_or_default();
            body.push(fresh, |bytes| out.extend_from_slice(bytes), |_| {})
                .map_err(|_| Failure::Body(BodyFault::Chunks))?;
            taken = self.unread.len();
            if out.len() >= wanted || body.is_over() || self.ended {
                return Ok(out);
            }
            let mut piece = [0; 4_096];
            let read = self.stream.read(&mut piece).await;
            let count = read.map_err(|error| Failure::Io(error.kind()))?;
            self.ended = count == 0;
            self.unread.extend_from_slice(piece.get(..count).unwrap_or_default());
            // Chunks of nothing but extensions, titles of nothing but zeroes.
            if self.unread.len() > MAX_PLAYLIST * 2 {
                return Ok(out);
            }
        }
    }

    fn hand_over(self, url: &HttpUrl, head: Head) -> Result<Opened, Failure> {
        let broke = |error: io::Error| Failure::Io(error.kind());
        let (socket, tls) = self.stream.into_parts().map_err(broke)?;
        let about = About { url: Some(url.to_string()), ..head.about.clone() };
        let kind = about.content_type.as_deref().unwrap_or_default();
        let body = HttpBody {
            socket,
            tls,
            body: head.body(),
            unread: self.unread,
            hint: Hint::from_content_type(kind),
            finite: matches!(head.framing(), Framing::Length(_)),
        };
        Ok(Opened { body, about, url: url.clone() })
    }
}

/// Whether it is a list, by its type, its name or its first words; sound that is called a list is
/// sound.
fn is_list(url: &HttpUrl, head: &Head, front: &[u8]) -> bool {
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

/// Redirects in a row, playlists in playlists, and requests in all.
pub(super) const MAX_REDIRECTS: usize = 8;
const MAX_LISTS: usize = 3;
const MAX_REQUESTS: usize = 64;

/// How long each stage may take.
const RESOLVE: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(5);
const HANDSHAKE: Duration = Duration::from_secs(10);
const REQUEST: Duration = Duration::from_secs(5);
const HEAD: Duration = patience(10);
const FIRST_BYTES: Duration = patience(10);
const LIST: Duration = patience(10);

/// A test does not wait so long.
const fn patience(seconds: u64) -> Duration {
    Duration::from_secs(if cfg!(test) { seconds.div_ceil(4) } else { seconds })
}

/// Bytes of a head, its lines, and letters of one value.
const MAX_HEAD: usize = 32 * 1024;
const MAX_HEADERS: usize = 100;
const MAX_WORDS: usize = 1_024;

/// Bytes that show whether it is a list.
const FRONT: usize = 24;

/// Bytes that the kernel keeps of what we have not read.
const RECEIVE_BUFFER: u32 = 64 * 1024;
