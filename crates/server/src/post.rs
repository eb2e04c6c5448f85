//! Requests to other servers: the events of hooks, questions about web listeners, and titles.

use std::pin::pin;

use aulos_config::Webhook;
use aulos_control::hooks::DeliveryError;
use axum::body::Body;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::http::request::Builder;
use hyper::{HeaderMap, Request};
use hyper_util::rt::TokioIo;

use crate::dial::{DialError, Dialer};

/// What is sent.
#[derive(Debug)]
pub(crate) struct PostBody<'a> {
    pub(crate) content_type: &'static str,
    /// Allows receivers to detect repeated attempts.
    pub(crate) id: Option<&'a str>,
    pub(crate) content: Vec<u8>,
}

/// Sends the request and reads the head of the response; its body does not matter.
///
/// # Errors
/// [`DeliveryError`], also for a status that is not one of success.
pub(crate) async fn post(
    dialer: &Dialer,
    to: &Webhook,
    body: PostBody<'_>,
) -> Result<HeaderMap, DeliveryError> {
    exchange(dialer, to, request(to, body)?).await
}

/// Sends a GET request, as [`post`].
///
/// # Errors
/// As [`post`].
pub(crate) async fn get(dialer: &Dialer, to: &Webhook) -> Result<HeaderMap, DeliveryError> {
    let request = with_headers(Request::get(to.target.as_str()), to).body(Body::empty());
    exchange(dialer, to, request.map_err(|_| DeliveryError::Broken)?).await
}

async fn exchange(
    dialer: &Dialer,
    to: &Webhook,
    request: Request<Body>,
) -> Result<HeaderMap, DeliveryError> {
    let stream = dialer.dial(to.secure, &to.host, to.port).await?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|_| DeliveryError::Broken)?;
    let answer = sender.send_request(request);
    let (mut answer, mut connection) = (pin!(answer), pin!(connection));
    let answer = tokio::select! {
        biased;
        answer = &mut answer => answer,
        // The connection may have ended after the response.
        _ = &mut connection => answer.await,
    };
    let (head, _) = answer.map_err(|_| DeliveryError::Broken)?.into_parts();
    match head.status {
        status if status.is_success() => Ok(head.headers),
        status => Err(DeliveryError::Status(status.as_u16())),
    }
}

fn request(to: &Webhook, body: PostBody<'_>) -> Result<Request<Body>, DeliveryError> {
    let mut request = with_headers(Request::post(to.target.as_str()), to)
        .header(CONTENT_TYPE, HeaderValue::from_static(body.content_type));
    if let Some(id) = body.id {
        request = request.header("idempotency-key", id);
    }
    // All of it was validated with the configuration.
    request.body(Body::from(body.content)).map_err(|_| DeliveryError::Broken)
}

fn with_headers(request: Builder, to: &Webhook) -> Builder {
    let request = request
        .header(HOST, &to.authority)
        .header(USER_AGENT, concat!("aulos/", env!("CARGO_PKG_VERSION")))
        .header(CONNECTION, HeaderValue::from_static("close"));
    to.headers.iter().fold(request, |request, (name, value)| request.header(name, value))
}

impl From<DialError> for DeliveryError {
    fn from(error: DialError) -> Self {
        match error {
            DialError::Name => Self::Name,
            DialError::Busy => Self::Busy,
            DialError::Connect(kind) => Self::Connect(kind),
            DialError::Tls(why) => Self::Tls(why),
        }
    }
}
