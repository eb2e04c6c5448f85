//! Webhooks: the event as the body of a POST request.

use std::pin::pin;

use aulos_config::Webhook;
use axum::body::Body;
use hyper::Request;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper_util::rt::TokioIo;

use super::queue::DeliveryError;
use crate::dial::{DialError, Dialer};

/// Sends the request and reads the head of the response; the rest does not matter.
pub(super) async fn post(
    dialer: &Dialer,
    to: &Webhook,
    id: &str,
    body: String,
) -> Result<(), DeliveryError> {
    let stream = dialer.dial(to.secure, &to.host, to.port).await?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|_| DeliveryError::Broken)?;
    let answer = sender.send_request(request(to, id, body)?);
    let (mut answer, mut connection) = (pin!(answer), pin!(connection));
    let answer = tokio::select! {
        biased;
        answer = &mut answer => answer,
        // The connection may have ended after the response.
        _ = &mut connection => answer.await,
    };
    match answer.map_err(|_| DeliveryError::Broken)?.status() {
        status if status.is_success() => Ok(()),
        status => Err(DeliveryError::Status(status.as_u16())),
    }
}

fn request(to: &Webhook, id: &str, body: String) -> Result<Request<Body>, DeliveryError> {
    let mut request = Request::post(to.target.as_str())
        .header(HOST, &to.authority)
        .header(USER_AGENT, concat!("aulos/", env!("CARGO_PKG_VERSION")))
        .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .header(CONNECTION, HeaderValue::from_static("close"))
        // Allows receivers to detect repeated attempts.
        .header("idempotency-key", id);
    for (name, value) in &to.headers {
        request = request.header(name, value);
    }
    // All of it was validated with the configuration.
    request.body(Body::from(body)).map_err(|_| DeliveryError::Broken)
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
