//! WebSocket connections: control at `/jsonrpc`, audio at `/stream`.
//!
//! Control connections stay on tokio. Audio connections go to the media reactors after the
//! handshake, with all bytes read so far.

use std::sync::Arc;
use std::time::Duration;

use aulos_control::access::Role;
use aulos_control::backend::{ListenSink, MediaSocket};
use aulos_control::{Caller, Control, Inbox, Subscription, count};
use axum::extract::ws::{Message, WebSocket};
use axum::http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::time::{sleep, timeout};
use tungstenite::handshake::derive_accept_key;

use super::app_state::SocketPermits;
use super::events::EventFeed;
use super::heartbeat::{PingedSocket, SocketEnd};
use super::socket::RewindSocket;
use super::subscription::{FeedMessages, SubscribedFeed};
use crate::connections::ConnectionPermit;
use crate::tcp::{LOGIN_TIMEOUT, WRITE_TIMEOUT, establish, max_line_length};
use crate::tls::PeerWatch;

/// Answers calls and sends notifications and what is subscribed until the peer closes or stops
/// reading.
pub(super) async fn serve_control(
    socket: WebSocket,
    control: Arc<Control>,
    feed: EventFeed,
    mut caller: Caller,
    (permits, watch): (SocketPermits, PeerWatch),
) {
    caller.subscription = Some(Subscription::default());
    let (peer, mut inbox) = control.join(caller.role);
    caller.peer = Some(peer);
    let mut socket = PingedSocket::new(socket);
    let served = async {
        // An aborted connection is not an error.
        let feed = SubscribedFeed::new(feed);
        let mut session =
            ControlSession { socket: &mut socket, control: &control, watch, inbox: &mut inbox };
        session.run(&mut caller, feed, &permits.slot).await.ok();
    };
    permits.slot.run_until_revoked(served, &control.counters.controllers_cut_unfinished).await;
    control.leave(peer);
}

/// A connection for control and what serves it.
struct ControlSession<'a> {
    socket: &'a mut PingedSocket,
    control: &'a Control,
    watch: PeerWatch,
    inbox: &'a mut Inbox,
}

impl ControlSession<'_> {
    async fn run(
        &mut self,
        caller: &mut Caller,
        mut feed: SubscribedFeed,
        slot: &ConnectionPermit,
    ) -> Result<(), ConnectionClosed> {
        let control = self.control;
        let too_late = sleep(LOGIN_TIMEOUT);
        tokio::pin!(too_late);
        loop {
            tokio::select! {
                biased;
                () = &mut too_late, if caller.role == Role::None => {
                    count(&control.counters.controllers_cut_without_login);
                    return Err(ConnectionClosed);
                }
                // An answer does not wait for the full status that a change by others has queued.
                message = self.socket.receive() => {
                    // A ping may be within a message; it counts until that is complete.
                    match message {
                        Ok(call) => self.send_reply(caller, &call).await?,
                        Err(end) => {
                            match end {
                                SocketEnd::Closed => {}
                                SocketEnd::Silent => count(&control.counters.controllers_cut_slow),
                                SocketEnd::OutOfMemory => {
                                    count(&control.counters.controllers_cut_memory);
                                }
                            }
                            return Err(ConnectionClosed);
                        }
                    }
                    self.watch.complete_input();
                    establish(caller, slot, control).map_err(|_| ConnectionClosed)?;
                    if let Some(subscription) = &caller.subscription {
                        feed.set(subscription, control);
                    }
                },
                notice = self.inbox.next() => match notice {
                    Some(notice) => {
                        let text = Message::text(notice.to_json());
                        self.send(text, WRITE_TIMEOUT).await?;
                        self.inbox.sent();
                    }
                    None => return Err(ConnectionClosed),
                },
                FeedMessages { first, second, permit: _permit }
                    = feed.next(control, caller.from) =>
                {
                    for message in [Some(first), second].into_iter().flatten() {
                        self.send(message, FEED_TIMEOUT).await?;
                    }
                }
            }
        }
    }

    async fn send_reply(
        &mut self,
        caller: &mut Caller,
        call: &[u8],
    ) -> Result<(), ConnectionClosed> {
        if call.len() > max_line_length(caller) {
            count(&self.control.counters.controllers_cut_long_line);
            return Err(ConnectionClosed);
        }
        let answer = self.watch.while_open(self.control.request(caller, call)).await;
        if let Some(answer) = answer.ok_or(ConnectionClosed)? {
            let (answer, _permit) = answer.into_parts();
            self.send(Message::text(answer), WRITE_TIMEOUT).await?;
        }
        // A controller's series of calls must not delay the others.
        tokio::task::yield_now().await;
        Ok(())
    }

    async fn send(&mut self, message: Message, limit: Duration) -> Result<(), ConnectionClosed> {
        tokio::select! {
            biased;
            sent = timeout(limit, self.socket.send(message)) => match sent {
                Ok(sent) => sent.map_err(|_| ConnectionClosed),
                Err(_) => {
                    count(&self.control.counters.controllers_cut_slow);
                    Err(ConnectionClosed)
                }
            },
            // The code that cut the connection has counted it.
            () = self.inbox.cut() => Err(ConnectionClosed),
        }
    }
}

/// How long a page may take for one status or one frame of meters. A phone that changes networks is
/// silent for some seconds, and a page skips what it missed.
const FEED_TIMEOUT: Duration = Duration::from_secs(10);

struct ConnectionClosed;

/// Answers the handshake of an audio client, and hands its socket, as `adopt` returns it, to a
/// reactor.
pub(super) fn stream(
    headers: &HeaderMap,
    upgrade: Option<OnUpgrade>,
    adopt: impl FnOnce(MediaSocket) -> MediaSocket + Send + 'static,
    sink: Arc<dyn ListenSink>,
) -> Response {
    let (Some(key), Some(upgrade)) = (handshake_key(headers), upgrade) else {
        let text = "this path is a WebSocket for players; the page is at /\n";
        return (StatusCode::UPGRADE_REQUIRED, [(UPGRADE, "websocket")], text).into_response();
    };
    tokio::spawn(async move {
        if let Err(error) = hand_over(upgrade, adopt, &*sink).await {
            tracing::debug!(%error, "websocket handshake failed");
        }
    });
    let Ok(accept) = HeaderValue::from_str(&derive_accept_key(key)) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let headers = [
        (CONNECTION, HeaderValue::from_static("Upgrade")),
        (UPGRADE, HeaderValue::from_static("websocket")),
        (SEC_WEBSOCKET_ACCEPT, accept),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
}

/// The key of a handshake (RFC 6455, 4.2.1); none if the request is not one.
fn handshake_key(headers: &HeaderMap) -> Option<&[u8]> {
    let says = |name, word: &str| {
        headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).is_some_and(|value| {
            value.split(',').any(|part| part.trim().eq_ignore_ascii_case(word))
        })
    };
    let asked = says(UPGRADE, "websocket")
        && says(CONNECTION, "upgrade")
        && says(SEC_WEBSOCKET_VERSION, "13");
    headers.get(SEC_WEBSOCKET_KEY).filter(|_| asked).map(HeaderValue::as_bytes)
}

async fn hand_over(
    upgrade: OnUpgrade,
    adopt: impl FnOnce(MediaSocket) -> MediaSocket,
    sink: &dyn ListenSink,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let upgraded: Upgraded = upgrade.await?;
    let parts =
        upgraded.downcast::<TokioIo<RewindSocket>>().map_err(|_| "unexpected connection type")?;
    let (stream, unread) = parts.io.into_inner().into_parts();
    let read = [&parts.read_buf[..], &unread].concat();
    sink.accept_websocket(adopt(stream.into_media()?), read);
    Ok(())
}
