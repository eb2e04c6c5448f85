//! HTTP transport of the S3 library: uses the server's own dialer, so that there is one TLS
//! implementation and one name lookup, and detects stalls.
//!
//! The library's default, reqwest, brings a second TLS provider that needs cmake
//! (`docs/decisions/tls.md`).

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use axum::http::header::HOST;
use axum::http::{HeaderMap, Request, Uri};
use bytes::{Bytes, BytesMut};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpService,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{sleep, timeout};

use super::error::UploadError;
use crate::dial::{DialedStream, Dialer};

/// Transport for one upload: requests follow each other over one connection, as long as it lasts.
#[derive(Clone, Debug)]
pub(super) struct S3Transport(Arc<TransportState>);

struct TransportState {
    dialer: Arc<Dialer>,
    secure: bool,
    host: String,
    port: u16,
    stall_timeout: Duration,
    idle: Mutex<Option<HttpConnection>>,
}

impl std::fmt::Debug for TransportState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("host", &self.host).finish_non_exhaustive()
    }
}

/// An idle connection.
struct HttpConnection {
    sender: SendRequest<HttpRequestBody>,
    moved: Arc<AtomicU64>,
}

/// SHA-256 of the object, as reported by the server.
#[derive(Clone, Debug)]
pub(super) struct Checksum(pub(super) String);

impl S3Transport {
    /// A transport to this endpoint. `stall` is the maximum time without progress.
    pub(super) fn new(dialer: Arc<Dialer>, endpoint: &str, stall: Duration) -> Option<Self> {
        let uri = endpoint.parse::<Uri>().ok()?;
        let (authority, secure) = (uri.authority()?, uri.scheme_str() == Some("https"));
        let host = authority.host();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Some(Self(Arc::new(TransportState {
            dialer,
            secure,
            host: bare.to_owned(),
            port: authority.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            stall_timeout: stall,
            idle: Mutex::new(None),
        })))
    }

    async fn open(&self) -> Result<HttpConnection, UploadError> {
        let TransportState { dialer, secure, host, port, stall_timeout: stall, .. } = &*self.0;
        let dialled = timeout(*stall, dialer.dial(*secure, host, *port)).await;
        let stream = dialled.map_err(|_| UploadError::Stalled)?;
        let stream = stream.map_err(|error| UploadError::from_dial(error, host))?;
        let moved = Arc::<AtomicU64>::default();
        let stream = TokioIo::new(CountingStream { stream, moved: Arc::clone(&moved) });
        let (sender, connection) = http1::handshake(stream).await.map_err(broken_connection)?;
        // It ends with its sender, or with the connection; the sender reports errors as well.
        tokio::spawn(connection);
        Ok(HttpConnection { sender, moved })
    }

    /// Waits for a result as long as bytes are transferred.
    async fn with_stall_timeout<T>(
        &self,
        moved: &AtomicU64,
        what: impl Future<Output = T>,
    ) -> Result<T, UploadError> {
        let mut what = std::pin::pin!(what);
        let mut before = moved.load(Ordering::Relaxed);
        loop {
            tokio::select! {
                biased;
                done = &mut what => return Ok(done),
                () = sleep(self.0.stall_timeout) => {
                    let now = moved.load(Ordering::Relaxed);
                    if now == before {
                        return Err(UploadError::Stalled);
                    }
                    before = now;
                }
            }
        }
    }

    async fn exchange(&self, request: HttpRequest) -> Result<HttpResponse, UploadError> {
        let kept = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        let kept = kept.filter(|connection| connection.sender.is_ready());
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.open().await?,
        };
        let answer = connection.sender.send_request(to_origin_form(request)?);
        let answer =
            self.with_stall_timeout(&connection.moved, answer).await?.map_err(broken_connection)?;
        let (mut head, body) = answer.into_parts();
        let body = self.with_stall_timeout(&connection.moved, collect(body)).await??;
        if !head.status.is_success() {
            // The response may be incomplete: the connection is not reused.
            return Err(UploadError::from_response(head.status.as_u16(), &body));
        }
        if let Some(checksum) = header_text(&head.headers, "x-amz-checksum-sha256") {
            head.extensions.insert(Checksum(checksum));
        }
        *self.0.idle.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
        Ok(HttpResponse::from_parts(head, body.into()))
    }
}

#[async_trait]
impl HttpService for S3Transport {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // The uploader decides when to retry, whatever the error.
        self.exchange(request).await.map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))
    }
}

impl HttpConnector for S3Transport {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

/// Converts a request to origin form: the path alone, and the host in a header. The library has
/// signed that header but does not send it; a default port is omitted.
fn to_origin_form(request: HttpRequest) -> Result<Request<HttpRequestBody>, UploadError> {
    let (mut head, body) = request.into_parts();
    let host = head.uri.host().unwrap_or_default().to_ascii_lowercase();
    let default = if head.uri.scheme_str() == Some("https") { 443 } else { 80 };
    let host = match head.uri.port_u16() {
        Some(port) if port != default => format!("{host}:{port}"),
        _ => host,
    };
    head.headers.insert(HOST, host.parse().map_err(|_| UploadError::Name(host))?);
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    head.uri = path.parse().map_err(|_| UploadError::KeyTooLong)?;
    Ok(Request::from_parts(head, body))
}

/// Reads a whole response, which is always short.
async fn collect(mut body: Incoming) -> Result<Bytes, UploadError> {
    let mut all = BytesMut::new();
    let mut body = Pin::new(&mut body);
    while let Some(frame) = std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await
    {
        let Ok(data) = frame.map_err(broken_connection)?.into_data() else { continue };
        if all.len() + data.len() > MAX_RESPONSE_BYTES {
            return Err(UploadError::Answer("the answer is too long".to_owned()));
        }
        all.extend_from_slice(&data);
    }
    Ok(all.freeze())
}

fn header_text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

fn broken_connection(error: hyper::Error) -> UploadError {
    use std::error::Error as _;
    let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    UploadError::Broken(why)
}

/// Counts bytes, so that a stall can be told from a slow connection.
struct CountingStream {
    stream: DialedStream,
    moved: Arc<AtomicU64>,
}

impl CountingStream {
    fn count(&self, bytes: usize) {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl AsyncRead for CountingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let done = Pin::new(&mut self.stream).poll_read(context, into);
        self.count(into.filled().len() - before);
        done
    }
}

impl AsyncWrite for CountingStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = done {
            self.count(count);
        }
        done
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Maximum length of a response: the acknowledgement of 10,000 parts has a few hundred bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
