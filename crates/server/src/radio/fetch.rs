//! Performs the I/O of a [`StreamFetch`]: name lookup, TCP, TLS, the request and its answer.

use std::collections::HashSet;
use std::future::Future;
#[cfg(test)]
use std::net::IpAddr;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use aulos_core::Span;
use aulos_io::SystemClock;
use aulos_io::feed::HttpBody;
#[cfg(test)]
use aulos_proto::http::AddressClass;
use aulos_proto::http::{BodyFraming, HttpUrl};
use aulos_session::hls_source::{HlsAddress, HlsError, HlsInput, HlsRequest};
use aulos_session::radio::{
    FetchConfig, FetchInput, FetchOutput, FetchedStream, HostAllowList, RadioError, RadioInfo,
    StreamFetch,
};
#[cfg(test)]
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::dial::{DialError, DialedStream, Dialer, connect_to_any};

/// Makes requests.
#[derive(Debug)]
pub(super) struct StreamFetcher {
    dialer: Dialer,
    config: FetchConfig,
}

impl Default for StreamFetcher {
    fn default() -> Self {
        let config = FetchConfig::radio(AGENT);
        let answer_timeout = Span::from_secs(if cfg!(test) { 3 } else { 10 });
        Self { dialer: Dialer::default(), config: FetchConfig { answer_timeout, ..config } }
    }
}

/// A stream whose body starts.
pub(super) struct OpenedStream {
    pub(super) body: HttpBody,
    pub(super) about: RadioInfo,
    /// Its final URL.
    pub(super) url: HttpUrl,
}

/// Where a fetch has led to.
pub(super) enum FetchResult {
    Stream(Box<FetchedStream>, DialedStream),
    /// The playlist of an HLS stream.
    Hls(HlsAddress),
}

/// What is under way.
enum Activity<'a> {
    Idle,
    Resolving(Task<'a, Vec<SocketAddr>>),
    Connecting(Task<'a, (SocketAddr, TcpStream)>),
    /// The TLS handshake, or the request.
    Sending(Task<'a, DialedStream>),
    Open(DialedStream),
}

type Task<'a, T> = Pin<Box<dyn Future<Output = Result<T, RadioError>> + Send + 'a>>;

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
        let config = FetchConfig { class_of, ..Self::default().config };
        Self { dialer, config }
    }

    /// A fetcher of sounds that end.
    pub(super) fn of_clips() -> Self {
        Self { dialer: Dialer::default(), config: FetchConfig::clip(AGENT) }
    }

    /// A fetcher of the resources of HLS streams.
    pub(super) fn of_resources() -> Self {
        Self { dialer: Dialer::default(), config: FetchConfig::resource(AGENT) }
    }

    /// Follows redirects and playlists from `first` to a body; URLs in `refused` are skipped, and
    /// `redirected` is called for each redirect. With `hosts`, only those on the list are
    /// contacted.
    pub(super) async fn open(
        &self,
        first: &HttpUrl,
        refused: &HashSet<HttpUrl>,
        hosts: Option<&HostAllowList>,
        redirected: &mut (dyn FnMut() + Send),
    ) -> Result<FetchResult, RadioError> {
        let now = SystemClock::now();
        let fetch = StreamFetch::new(self.config, first.clone(), refused.clone(), now);
        self.run(fetch, hosts, redirected).await
    }

    /// Fetches a whole resource of an HLS stream.
    pub(super) async fn fetch_resource(&self, request: &HlsRequest) -> HlsInput {
        match timeout(RESOURCE_TIMEOUT, self.read_resource(request)).await {
            Ok(Ok(input)) => input,
            Ok(Err(error)) => HlsInput::Failed(error),
            Err(_) => HlsInput::Failed(RadioError::TimedOut("receiving a segment")),
        }
    }

    async fn read_resource(&self, request: &HlsRequest) -> Result<HlsInput, RadioError> {
        let fetch = StreamFetch::resource(self.config, request, SystemClock::now());
        let FetchResult::Stream(opened, mut stream) = self.run(fetch, None, &mut || ()).await?
        else {
            return Err(RadioError::TooDeep);
        };
        let FetchedStream { mut body, unread, framing, url, is_public, is_partial, .. } = *opened;
        let mut bytes = Vec::new();
        let mut piece = [0; 16 * 1024];
        let mut decode = |fresh: &[u8], bytes: &mut Vec<u8>| {
            let decoded = body.push(fresh, |part| bytes.extend_from_slice(part), |_| {});
            decoded.map_err(|_| RadioError::InvalidChunks)?;
            if bytes.len() > request.max_bytes {
                return Err(RadioError::Hls(HlsError::TooLarge));
            }
            Ok(body.is_finished())
        };
        let mut is_whole = decode(&unread, &mut bytes)?;
        while !is_whole {
            let count = stream.read(&mut piece).await;
            let count = count.map_err(|error| RadioError::Io(error.kind()))?;
            match (count, framing) {
                (0, BodyFraming::UntilClosed) => break,
                (0, _) => return Err(RadioError::HungUp),
                _ => {}
            }
            is_whole = decode(piece.get(..count).unwrap_or_default(), &mut bytes)?;
        }
        Ok(HlsInput::Fetched { url, is_public, is_partial, bytes })
    }

    async fn run(
        &self,
        mut fetch: StreamFetch,
        hosts: Option<&HostAllowList>,
        redirected: &mut (dyn FnMut() + Send),
    ) -> Result<FetchResult, RadioError> {
        let mut activity = Activity::Idle;
        let mut piece = [0; 4_096];
        loop {
            while let Some(output) = fetch.poll_output() {
                activity = match (output, activity) {
                    (FetchOutput::Resolve(url), _) => {
                        Activity::Resolving(Box::pin(self.resolve(url, hosts)))
                    }
                    (FetchOutput::Connect(addresses), _) => {
                        Activity::Connecting(Box::pin(connect(addresses)))
                    }
                    (FetchOutput::StartTls(url), Activity::Open(stream)) => {
                        Activity::Sending(Box::pin(self.start_tls(url, stream)))
                    }
                    (FetchOutput::Send(request), Activity::Open(stream)) => {
                        Activity::Sending(Box::pin(send(request, stream)))
                    }
                    (FetchOutput::Opened(opened), Activity::Open(stream)) => {
                        return Ok(FetchResult::Stream(opened, stream));
                    }
                    (FetchOutput::Hls(address), _) => return Ok(FetchResult::Hls(address)),
                    (FetchOutput::Failed(error), _) => return Err(error),
                    (FetchOutput::Redirected, activity) => {
                        redirected();
                        activity
                    }
                    (_, activity) => activity,
                };
            }
            let timeout =
                fetch.poll_timeout().map_or(Span::ZERO, |at| at.since(SystemClock::now()));
            let pause = Duration::from_nanos(u64::try_from(timeout.as_nanos()).unwrap_or(0));
            tokio::select! {
                input = activity.run(&mut piece) => fetch.handle_input(SystemClock::now(), input),
                () = sleep(pause) => fetch.handle_timeout(SystemClock::now()),
            }
        }
    }

    async fn resolve(
        &self,
        url: HttpUrl,
        hosts: Option<&HostAllowList>,
    ) -> Result<Vec<SocketAddr>, RadioError> {
        let addresses = self.dialer.resolve(&url.host, url.port).await;
        let addresses = addresses.map_err(|error| error_from_dial(error, &url))?;
        match hosts {
            Some(hosts) => hosts.filter(&url.host, addresses),
            None => Ok(addresses),
        }
    }

    async fn start_tls(
        &self,
        url: HttpUrl,
        stream: DialedStream,
    ) -> Result<DialedStream, RadioError> {
        let DialedStream::Plain(socket) = stream else { return Ok(stream) };
        match self.dialer.start_tls(&url.host, socket).await {
            Ok(stream) => Ok(DialedStream::Tls(Box::new(stream))),
            Err(error) => Err(error_from_dial(error, &url)),
        }
    }
}

impl Activity<'_> {
    /// Waits for what is under way. It may be dropped and called again.
    async fn run<'b>(&mut self, piece: &'b mut [u8]) -> FetchInput<'b> {
        match self {
            Self::Idle => std::future::pending().await,
            Self::Resolving(task) => match task.await {
                Ok(addresses) => FetchInput::Resolved(addresses),
                Err(error) => FetchInput::Failed(error),
            },
            Self::Connecting(task) => {
                let done = task.await;
                match done {
                    Ok((address, socket)) => {
                        *self = Self::Open(DialedStream::Plain(socket));
                        FetchInput::Connected(address)
                    }
                    Err(error) => FetchInput::Failed(error),
                }
            }
            Self::Sending(task) => {
                let done = task.await;
                match done {
                    Ok(stream) => {
                        *self = Self::Open(stream);
                        FetchInput::Done
                    }
                    Err(error) => FetchInput::Failed(error),
                }
            }
            Self::Open(stream) => match stream.read(piece).await {
                Ok(count) => FetchInput::Received(piece.get(..count).unwrap_or_default()),
                Err(error) => FetchInput::Failed(RadioError::Io(error.kind())),
            },
        }
    }
}

/// Limits the kernel's receive buffer, which would add delay.
async fn connect(addresses: Vec<SocketAddr>) -> Result<(SocketAddr, TcpStream), RadioError> {
    let connected = connect_to_any(addresses, Some(RECEIVE_BUFFER)).await;
    connected.map_err(|error| RadioError::Connect(error.kind()))
}

async fn send(request: String, mut stream: DialedStream) -> Result<DialedStream, RadioError> {
    let sent = stream.write_all(request.as_bytes()).await;
    sent.map(|()| stream).map_err(|error| RadioError::Io(error.kind()))
}

/// Takes the connection of a fetched stream apart for a reactor.
pub(super) fn open_body(
    opened: FetchedStream,
    stream: DialedStream,
) -> Result<OpenedStream, RadioError> {
    let FetchedStream { body, unread, hint, framing, about, url, .. } = opened;
    let finite = matches!(framing, BodyFraming::Length(_));
    let (socket, tls) = stream.into_parts().map_err(|error| RadioError::Io(error.kind()))?;
    Ok(OpenedStream { body: HttpBody { socket, tls, body, unread, hint, finite }, about, url })
}

fn error_from_dial(error: DialError, url: &HttpUrl) -> RadioError {
    match error {
        DialError::Name => RadioError::Name(url.host.clone()),
        DialError::Busy => RadioError::Busy,
        DialError::Connect(kind) => RadioError::Connect(kind),
        DialError::Tls(why) => RadioError::Tls(why),
    }
}

/// The user agent of requests.
const AGENT: &str = concat!("aulos/", env!("CARGO_PKG_VERSION"));

/// The longest time for one resource: several target durations.
const RESOURCE_TIMEOUT: Duration = Duration::from_secs(20);

/// Receive buffer of the kernel.
const RECEIVE_BUFFER: u32 = 64 * 1024;
