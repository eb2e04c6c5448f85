//! One connection of a source client, up to its stream or its response.

use std::time::Duration;

use aulos_config::{Endpoint, Mount};
use aulos_io::feed::DjStream;
use aulos_io::reactor::MediaStream;
use aulos_proto::http::head_length;
use aulos_proto::icecast::{IcecastRequest, RequestKind, SourceRequest, is_unsupported_type};
use aulos_proto::packets::FormatHint;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::response::Response;
use crate::access::{Credentials, LoginError};
use crate::backend::{DjInfo, ListenSink};
use crate::control::{Control, count};
use crate::http::is_our_host;
use crate::tls::ClientStream;

/// Time-out of the request.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of the request head in bytes.
const MAX_HEAD: usize = 8 << 10;

/// Reads the request, and puts the client on air if it is authorized.
pub(super) async fn serve(
    mut stream: ClientStream,
    address: &Endpoint,
    control: &Control,
    sink: &dyn ListenSink,
) {
    let mut read = Vec::with_capacity(1_024);
    let head = match timeout(REQUEST_TIMEOUT, read_head(&mut stream, &mut read)).await {
        Ok(Some(Some(head))) => head,
        Ok(Some(None)) => {
            count(&control.counters.djs_cut_long_request);
            return stream.try_send_response(Response::HeadTooLong.text().as_bytes());
        }
        // The client has closed.
        Ok(None) => return,
        Err(_) => return count(&control.counters.djs_cut_without_request),
    };
    let unread = read.split_off(head);
    let answer = match IcecastRequest::parse(&read) {
        // A mount on loopback may have no password, and a foreign web page may run in a local
        // browser.
        Ok(IcecastRequest { from_browser: true, .. }) => {
            count(&control.counters.http_cross_site);
            Response::CrossSite
        }
        Ok(IcecastRequest { kind: wish, authorization, agent, host, .. }) => {
            let said = (authorization.as_deref(), host.as_deref());
            let may = |path: &str| authorize(&stream, address, path, said, control);
            match wish {
                RequestKind::Source(push) => match may(&push.mount) {
                    Ok(_) if is_unsupported_type(&push.content_type) => {
                        count(&control.counters.djs_refused_type);
                        Response::UnsupportedType
                    }
                    Ok(place) => {
                        return start_stream((stream, unread), place, (push, agent), control, sink)
                            .await;
                    }
                    Err(answer) => answer,
                },
                RequestKind::Metadata { mount, title } => match may(&mount) {
                    Ok((station, mount)) if sink.set_live_title(&station, &mount, title) => {
                        Response::TitleUpdated
                    }
                    Ok(_) => Response::NotOnAir,
                    Err(answer) => answer,
                },
                RequestKind::Options => Response::Methods,
                _ => Response::NotFound,
            }
        }
        Err(_) => {
            count(&control.counters.djs_not_understood);
            Response::BadRequest
        }
    };
    stream.try_send_response(answer.text().as_bytes());
}

/// Reads to the end of the head and returns its length; `Some(None)` for one that is too long,
/// `None` if the client has closed.
async fn read_head(stream: &mut ClientStream, read: &mut Vec<u8>) -> Option<Option<usize>> {
    loop {
        if let Some(length) = head_length(read) {
            return Some(Some(length));
        }
        if read.len() >= MAX_HEAD {
            return Some(None);
        }
        let rest = MAX_HEAD - read.len();
        if (&mut *stream).take(rest as u64).read_buf(read).await.ok()? == 0 {
            return None;
        }
    }
}

/// The mount of this name and its station, if the client is authorized for it.
fn authorize(
    stream: &ClientStream,
    address: &Endpoint,
    path: &str,
    (authorization, host): (Option<&str>, Option<&str>),
    control: &Control,
) -> Result<(String, Mount), Response> {
    let mounts = control.mounts();
    let here = mounts.into_iter().filter(|(_, mount)| mount.address == *address);
    let Some((station, mount)) = here.into_iter().find(|(_, mount)| mount.path == path) else {
        count(&control.counters.djs_refused_unknown);
        return Err(Response::NoMount);
    };
    let Some(password) = &mount.password else {
        // A page whose own name resolves to this machine (DNS rebinding) sends no `Origin`. If
        // there is a password, the page does not know it.
        if is_our_host(host, &control.config().http.names) {
            return Ok((station, mount));
        }
        count(&control.counters.http_wrong_host);
        return Err(Response::Misdirected);
    };
    // libshout first sends a request without credentials, to learn the scheme.
    let Some(said) = authorization else { return Err(Response::Unauthorized) };
    let right = match Credentials::from_header(said) {
        Credentials::Password(user, said) => {
            password.matches(&crate::access::SecretDigest::new(&said)) & (user == mount.user)
        }
        _ => false,
    };
    match control.record_login_attempt(stream.peer_ip(), right) {
        Ok(()) => Ok((station, mount)),
        Err(LoginError::WrongCredentials) => Err(Response::Unauthorized),
        Err(LoginError::RateLimited) => Err(Response::TooManyAttempts),
    }
}

async fn start_stream(
    (mut stream, unread): (ClientStream, Vec<u8>),
    (station, mount): (String, Mount),
    (push, agent): (SourceRequest, Option<String>),
    control: &Control,
    sink: &dyn ListenSink,
) {
    let about = DjInfo {
        from: Some(stream.peer_ip()),
        agent,
        name: push.name,
        content_type: push.content_type.clone(),
        tls: stream.is_tls(),
    };
    let Some(seat) = sink.acquire_mount(&station, &mount, about) else {
        count(&control.counters.djs_refused_taken);
        return stream.try_send_response(Response::MountInUse.text().as_bytes());
    };
    // A client that does not expect `100 Continue` would take it for the final answer.
    let answer = if push.expects_continue { CONTINUE } else { OK };
    let answered = async {
        stream.write_all(answer).await?;
        stream.flush().await?;
        MediaStream::new(stream.into_media()?)
    };
    match timeout(REQUEST_TIMEOUT, answered).await {
        Ok(Ok(wire)) => {
            let hint = FormatHint::from_content_type(&push.content_type);
            seat.start(DjStream { wire, unread, framing: push.framing, hint });
        }
        gone => tracing::debug!(reason = ?gone, "live source disconnected before its first audio"),
    }
}

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// libshout and similar clients start to send when they have read this.
const OK: &[u8] = b"HTTP/1.0 200 OK\r\n\r\n";
