//! From a URL to the start of a body: a sequence of requests, each stage with a time-out.

use core::net::{IpAddr, SocketAddr};
use std::collections::{HashSet, VecDeque};

use aulos_core::{Instant, Span};
use aulos_proto::http::{
    AddressClass, BodyDecoder, BodyFraming, HttpUrl, MAX_PLAYLIST_BYTES, PlaylistError,
    playlist_entries,
};
use aulos_proto::m3u8::ByteRange;
use aulos_proto::packets::FormatHint;

use super::response::{ResponseHead, is_list, request_head};
use super::scope::AddressScope;
use super::{RadioError, RadioInfo};
use crate::hls_source::{HlsAddress, HlsRequest};

/// The configuration of a fetch.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "what was asked for")]
pub struct FetchConfig {
    /// The user agent of the requests.
    pub agent: &'static str,
    /// Classifies addresses; a test, which has no public network, replaces it.
    pub class_of: fn(IpAddr) -> AddressClass,
    /// The time-outs of the head, of the first bytes of audio, and of a playlist.
    pub answer_timeout: Span,
    /// Maximum redirects in a row.
    pub max_redirects: usize,
    /// Maximum playlists that lead to one another.
    pub max_playlists: usize,
    /// Request an endless stream with titles, as from a radio station, and not a sound that ends.
    pub is_live: bool,
    /// Playlists are followed to the stream behind them; otherwise every body is the resource.
    pub follows_playlists: bool,
}

impl FetchConfig {
    /// A fetch of a web radio station.
    #[must_use]
    pub const fn radio(agent: &'static str) -> Self {
        Self {
            agent,
            class_of: AddressClass::of,
            answer_timeout: Span::from_secs(10),
            max_redirects: 8,
            max_playlists: 3,
            is_live: true,
            follows_playlists: true,
        }
    }

    /// A fetch of one sound.
    #[must_use]
    pub const fn clip(agent: &'static str) -> Self {
        Self { max_redirects: 3, max_playlists: 0, is_live: false, ..Self::radio(agent) }
    }

    /// A fetch of one resource of an HLS stream.
    #[must_use]
    pub const fn resource(agent: &'static str) -> Self {
        Self { is_live: false, follows_playlists: false, ..Self::radio(agent) }
    }
}

/// What has happened.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "what a connection can report")]
pub enum FetchInput<'a> {
    /// The addresses of the host.
    Resolved(Vec<SocketAddr>),
    /// [`FetchOutput::Connect`] is done, with this address.
    Connected(SocketAddr),
    /// [`FetchOutput::StartTls`] or [`FetchOutput::Send`] is done.
    Done,
    /// What was to be done has failed, or the answer cannot be read.
    Failed(RadioError),
    /// Bytes of the answer; none when the server has closed the connection.
    Received(&'a [u8]),
}

/// What to do.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "whoever opens connections does each of them")]
pub enum FetchOutput {
    /// Look up a host. Earlier connections are closed.
    Resolve(HttpUrl),
    /// Connect to one of these addresses of a host; see
    /// [`AddressRace`](crate::connect::AddressRace).
    Connect(Vec<SocketAddr>),
    /// Perform a TLS handshake with this host on the connection.
    StartTls(HttpUrl),
    /// Send a request.
    Send(String),
    /// The server redirects; for counters.
    Redirected,
    /// The connection delivers a stream. The fetch is over.
    Opened(Box<FetchedStream>),
    /// The address is that of an HLS playlist. The fetch is over.
    Hls(HlsAddress),
    /// There is no stream. The fetch is over.
    Failed(RadioError),
}

/// A stream whose body starts.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "it is there to be taken apart")]
pub struct FetchedStream {
    /// The parser of chunked encoding and titles.
    pub body: BodyDecoder,
    /// Bytes of the body that have been read already.
    pub unread: Vec<u8>,
    /// The format according to the server.
    pub hint: FormatHint,
    /// How the end of the body is known. With a length (a file) an earlier end is an error.
    pub framing: BodyFraming,
    /// What the station reports about itself.
    pub about: RadioInfo,
    /// Its final URL.
    pub url: HttpUrl,
    /// A public server was involved.
    pub is_public: bool,
    /// The body is the requested range, and not the whole.
    pub is_partial: bool,
}

/// A URL still to be tried.
#[derive(Debug)]
struct Candidate {
    url: HttpUrl,
    scope: AddressScope,
    redirects: usize,
    playlists: usize,
}

/// The requests from a URL to the body behind it.
#[derive(Debug)]
pub struct StreamFetch {
    config: FetchConfig,
    /// URLs that are skipped.
    refused: HashSet<HttpUrl>,
    range: Option<ByteRange>,
    candidates: VecDeque<Candidate>,
    visited: HashSet<(HttpUrl, AddressScope)>,
    /// The error of the last candidate.
    failure: Option<RadioError>,
    /// Candidates that may still be tried.
    left: usize,
    request: Option<Request>,
    outputs: VecDeque<FetchOutput>,
}

/// The request that is under way.
#[derive(Debug)]
struct Request {
    candidate: Candidate,
    stage: Stage,
    deadline: Instant,
}

#[derive(Debug)]
enum Stage {
    /// The host is looked up.
    Resolving,
    /// The addresses of the host are being connected to.
    Connecting,
    /// The TLS handshake is performed.
    Securing,
    /// The request is being sent.
    Sending,
    /// The head is being read.
    Head(Vec<u8>),
    /// The first bytes show whether the body is a playlist.
    Probe(Box<ResponseBody>),
    /// A playlist is being read.
    Playlist(Box<ResponseBody>),
}

/// A body whose first bytes are inspected.
#[derive(Debug)]
struct ResponseBody {
    head: ResponseHead,
    /// Body bytes read so far.
    unread: Vec<u8>,
    /// How many of them have been decoded.
    taken: usize,
    decoder: BodyDecoder,
    /// The decoded bytes, without chunk headers and titles.
    decoded: Vec<u8>,
}

/// What the bytes so far mean for a request.
enum Progress {
    /// More bytes are needed.
    Pending,
    /// The next stage has begun.
    Stage(Stage),
    Redirect(HttpUrl),
    /// URLs in order.
    Playlist(Vec<HttpUrl>),
    Opened(Box<FetchedStream>),
}

impl StreamFetch {
    /// A fetch of `url` that begins at `now`; URLs in `refused` are skipped.
    #[must_use]
    pub fn new(config: FetchConfig, url: HttpUrl, refused: HashSet<HttpUrl>, now: Instant) -> Self {
        let first = Candidate { url, scope: AddressScope::Any, redirects: 0, playlists: 0 };
        Self::begin(config, first, refused, None, now)
    }

    /// A fetch of a resource of an HLS stream, or of a part of it. Where a public server has led to
    /// it, only public addresses are permitted.
    #[must_use]
    pub fn resource(config: FetchConfig, request: &HlsRequest, now: Instant) -> Self {
        let scope = if request.is_public { AddressScope::Public } else { AddressScope::Any };
        let url = request.url.clone();
        let first = Candidate { url, scope, redirects: 0, playlists: 0 };
        Self::begin(config, first, HashSet::new(), request.range, now)
    }

    fn begin(
        config: FetchConfig,
        first: Candidate,
        refused: HashSet<HttpUrl>,
        range: Option<ByteRange>,
        now: Instant,
    ) -> Self {
        let mut fetch = Self {
            config,
            range,
            refused,
            candidates: VecDeque::from([first]),
            visited: HashSet::new(),
            failure: None,
            left: MAX_REQUESTS,
            request: None,
            outputs: VecDeque::new(),
        };
        fetch.start_next(now);
        fetch
    }

    /// Handles what has happened.
    pub fn handle_input(&mut self, now: Instant, input: FetchInput<'_>) {
        let Some(request) = &mut self.request else { return };
        let result = match input {
            FetchInput::Resolved(found) => match request.candidate.select(found, &self.config) {
                Ok(addresses) if addresses.is_empty() => {
                    Err(RadioError::Name(request.candidate.url.host.clone()))
                }
                Ok(addresses) => {
                    request.enter(now, Stage::Connecting, &self.config);
                    return self.outputs.push_back(FetchOutput::Connect(addresses));
                }
                Err(error) => Err(error),
            },
            FetchInput::Connected(address) => {
                let class = (self.config.class_of)(address.ip());
                request.candidate.scope = request.candidate.scope.after(class);
                return self.step(now);
            }
            FetchInput::Done => return self.step(now),
            FetchInput::Failed(error) => Err(error),
            FetchInput::Received(bytes) => request.receive(bytes, &self.config),
        };
        self.proceed(now, result);
    }

    /// Ends the stage that takes too long.
    pub fn handle_timeout(&mut self, now: Instant) {
        let Some(request) = self.request.as_ref().filter(|request| request.deadline <= now) else {
            return;
        };
        let (_, what) = request.stage.limit(&self.config);
        self.proceed(now, Err(RadioError::TimedOut(what)));
    }

    /// What is to be done next.
    pub fn poll_output(&mut self) -> Option<FetchOutput> {
        self.outputs.pop_front()
    }

    /// When to call [`StreamFetch::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.request.as_ref().map(|request| request.deadline)
    }

    fn proceed(&mut self, now: Instant, result: Result<Progress, RadioError>) {
        let Some(request) = &mut self.request else { return };
        match result {
            Ok(Progress::Pending) => {}
            Ok(Progress::Stage(stage)) => {
                request.enter(now, stage, &self.config);
                // The bytes so far may suffice.
                let result = request.inspect(false, &self.config);
                self.proceed(now, result);
            }
            done => self.end(now, done),
        }
    }

    /// What was to be done is done.
    fn step(&mut self, now: Instant) {
        let Some(request) = &mut self.request else { return };
        match request.step(now, &self.config, self.range) {
            Ok(output) => self.outputs.extend(output),
            Err(error) => self.end(now, Err(error)),
        }
    }

    /// Ends a request, and starts the next one.
    fn end(&mut self, now: Instant, result: Result<Progress, RadioError>) {
        let Some(Request { candidate, .. }) = self.request.take() else { return };
        let Candidate { url, scope, redirects, playlists } = candidate;
        match result {
            Ok(Progress::Opened(stream)) => {
                return self.outputs.push_back(FetchOutput::Opened(stream));
            }
            Ok(Progress::Redirect(_)) if redirects >= self.config.max_redirects => {
                self.failure = Some(RadioError::TooManyRedirects);
            }
            Ok(Progress::Redirect(url)) => {
                self.outputs.push_back(FetchOutput::Redirected);
                let redirects = redirects + 1;
                self.candidates.push_front(Candidate { url, scope, redirects, playlists });
            }
            Err(RadioError::Playlist(PlaylistError::Hls)) if self.config.is_live => {
                let is_public = scope == AddressScope::Public;
                return self.outputs.push_back(FetchOutput::Hls(HlsAddress { url, is_public }));
            }
            Ok(Progress::Playlist(_)) if playlists >= self.config.max_playlists => {
                self.failure = Some(RadioError::TooDeep);
            }
            Ok(Progress::Playlist(urls)) => {
                let playlists = playlists + 1;
                for url in urls.into_iter().rev() {
                    self.candidates.push_front(Candidate { url, scope, redirects, playlists });
                }
            }
            Ok(Progress::Pending | Progress::Stage(_)) => {}
            Err(error) => self.failure = Some(error),
        }
        self.start_next(now);
    }

    fn start_next(&mut self, now: Instant) {
        while self.left > 0
            && let Some(candidate) = self.candidates.pop_front()
        {
            self.left -= 1;
            if self.refused.contains(&candidate.url) {
                self.failure.get_or_insert(RadioError::NothingPlayable);
                continue;
            }
            // An address that one server may not lead to may be allowed for another.
            if !self.visited.insert((candidate.url.clone(), candidate.scope)) {
                self.failure = Some(RadioError::RedirectLoop);
                continue;
            }
            self.outputs.push_back(FetchOutput::Resolve(candidate.url.clone()));
            let deadline = now + RESOLVE;
            self.request = Some(Request { candidate, stage: Stage::Resolving, deadline });
            return;
        }
        let failure = self.failure.take().unwrap_or(RadioError::Empty);
        self.outputs.push_back(FetchOutput::Failed(failure));
    }
}

impl Candidate {
    /// The addresses that may be connected to.
    fn select(
        &self,
        found: Vec<SocketAddr>,
        config: &FetchConfig,
    ) -> Result<Vec<SocketAddr>, RadioError> {
        self.scope.filter(&self.url.host, found, config.class_of)
    }
}

impl Request {
    fn enter(&mut self, now: Instant, stage: Stage, config: &FetchConfig) {
        self.deadline = now + stage.limit(config).0;
        self.stage = stage;
    }

    /// What was to be done is done: the next step.
    fn step(
        &mut self,
        now: Instant,
        config: &FetchConfig,
        range: Option<ByteRange>,
    ) -> Result<Option<FetchOutput>, RadioError> {
        let url = &self.candidate.url;
        let (stage, output) = match &self.stage {
            Stage::Connecting if url.secure => {
                (Stage::Securing, FetchOutput::StartTls(url.clone()))
            }
            Stage::Connecting => (Stage::Sending, send(url, config, range)?),
            Stage::Securing => (Stage::Sending, send(url, config, range)?),
            Stage::Sending => {
                self.enter(now, Stage::Head(Vec::with_capacity(2_048)), config);
                return Ok(None);
            }
            _ => return Ok(None),
        };
        self.enter(now, stage, config);
        Ok(Some(output))
    }

    fn receive(&mut self, bytes: &[u8], config: &FetchConfig) -> Result<Progress, RadioError> {
        match &mut self.stage {
            Stage::Head(read) => {
                if bytes.is_empty() {
                    return Err(RadioError::Head);
                }
                read.extend_from_slice(bytes);
                let Some((head, length)) = ResponseHead::parse(read)? else {
                    return Ok(Progress::Pending);
                };
                let unread = read.split_off(length);
                begin_body(&self.candidate.url, head, unread)
            }
            Stage::Probe(body) | Stage::Playlist(body) => {
                body.unread.extend_from_slice(bytes);
                self.inspect(bytes.is_empty(), config)
            }
            _ => Ok(Progress::Pending),
        }
    }

    /// Decides what the body is once there is enough of it.
    fn inspect(&mut self, ended: bool, config: &FetchConfig) -> Result<Progress, RadioError> {
        let url = &self.candidate.url;
        let is_playlist = |body: &ResponseBody| {
            config.follows_playlists && is_list(url, &body.head, &body.decoded)
        };
        let (body, wanted) = match &mut self.stage {
            Stage::Probe(body) => (body, PROBE_BYTES),
            Stage::Playlist(body) => (body, MAX_PLAYLIST_BYTES),
            _ => return Ok(Progress::Pending),
        };
        if !body.decode(wanted)? && !ended {
            return Ok(Progress::Pending);
        }
        match core::mem::replace(&mut self.stage, Stage::Resolving) {
            Stage::Probe(body) if body.decoded.is_empty() => Err(RadioError::Empty),
            Stage::Probe(body) if is_playlist(&body) => {
                if ended {
                    return playlist_urls(url, &body.decoded).map(Progress::Playlist);
                }
                Ok(Progress::Stage(Stage::Playlist(body)))
            }
            Stage::Probe(body) => {
                let is_public = self.candidate.scope == AddressScope::Public;
                Ok(Progress::Opened(Box::new(body.into_stream(url, is_public))))
            }
            Stage::Playlist(body) => playlist_urls(url, &body.decoded).map(Progress::Playlist),
            _ => Ok(Progress::Pending),
        }
    }
}

impl Stage {
    /// How long it may take, and what takes so long.
    const fn limit(&self, config: &FetchConfig) -> (Span, &'static str) {
        match self {
            Self::Resolving => (RESOLVE, "resolving the host name"),
            Self::Connecting => (CONNECT, "connecting to the server"),
            Self::Securing => (HANDSHAKE, "TLS handshake"),
            Self::Sending => (SEND, "sending the request"),
            Self::Head(_) => (config.answer_timeout, "waiting for the answer"),
            Self::Probe(_) => (config.answer_timeout, "waiting for audio"),
            Self::Playlist(_) => (config.answer_timeout, "receiving the playlist"),
        }
    }
}

impl ResponseBody {
    /// Decodes the new bytes; returns whether there are as many as wanted, or all of them.
    fn decode(&mut self, wanted: usize) -> Result<bool, RadioError> {
        let Self { unread, taken, decoder, decoded, .. } = self;
        let fresh = unread.get(*taken..).unwrap_or_default();
        decoder
            .push(fresh, |bytes| decoded.extend_from_slice(bytes), |_| {})
            .map_err(|_| RadioError::InvalidChunks)?;
        *taken = unread.len();
        // Chunks with nothing but extensions, titles with nothing but zeroes.
        let is_too_long = unread.len() > MAX_PLAYLIST_BYTES * 2;
        Ok(decoded.len() >= wanted || decoder.is_finished() || is_too_long)
    }

    fn into_stream(self, url: &HttpUrl, is_public: bool) -> FetchedStream {
        let (body, framing) = (self.head.body(), self.head.framing());
        let about = RadioInfo { url: Some(url.to_string()), ..self.head.about };
        let kind = about.content_type.as_deref().unwrap_or_default();
        FetchedStream {
            body,
            unread: self.unread,
            hint: FormatHint::from_content_type(kind),
            framing,
            about,
            url: url.clone(),
            is_public,
            is_partial: self.head.status == PARTIAL_CONTENT,
        }
    }
}

fn send(
    url: &HttpUrl,
    config: &FetchConfig,
    range: Option<ByteRange>,
) -> Result<FetchOutput, RadioError> {
    request_head(url, config.agent, config.is_live, range)
        .map(FetchOutput::Send)
        .map_err(RadioError::Request)
}

/// Decides by the head of an answer.
fn begin_body(url: &HttpUrl, head: ResponseHead, unread: Vec<u8>) -> Result<Progress, RadioError> {
    match head.status {
        300..=399 => {
            let to = head.location.as_deref().ok_or(RadioError::Head)?;
            url.join(to).map(Progress::Redirect).map_err(RadioError::InvalidAddress)
        }
        200..=299 => {
            let decoder = head.body();
            let body = ResponseBody { head, unread, taken: 0, decoder, decoded: Vec::new() };
            Ok(Progress::Stage(Stage::Probe(Box::new(body))))
        }
        status => Err(RadioError::Status(status)),
    }
}

fn playlist_urls(url: &HttpUrl, text: &[u8]) -> Result<Vec<HttpUrl>, RadioError> {
    let entries = playlist_entries(text).map_err(RadioError::Playlist)?;
    let urls: Vec<_> = entries.iter().filter_map(|entry| url.join(entry).ok()).collect();
    if urls.is_empty() { Err(RadioError::Playlist(PlaylistError::Empty)) } else { Ok(urls) }
}

/// Maximum requests in total.
const MAX_REQUESTS: usize = 64;

/// Time-outs of the stages before the answer.
const RESOLVE: Span = Span::from_secs(10);
const CONNECT: Span = Span::from_secs(5);
const HANDSHAKE: Span = Span::from_secs(10);
const SEND: Span = Span::from_secs(5);

/// The status of an answer with a part of the resource.
const PARTIAL_CONTENT: u16 = 206;

/// Bytes that suffice to recognize a playlist.
const PROBE_BYTES: usize = 24;
