//! Push to talk: a WebSocket on which a microphone speaks to rooms.
//!
//! ```text
//!  client                                       server
//!  {"station": "hall", "format": "opus"}   ->
//!                                          <-   {"id": 7, "station": "hall", "before": 0}
//!  frames, as they are spoken              ->
//!  close, when the button is released      ->
//!                                          <-   {"error": "..."} and close, if it ends earlier
//! ```
//!
//! One connection is one talk, so nothing has to be remembered between two presses of the button.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use aulos_control::backend::LiveSound;
use aulos_control::talk::{AdmittedTalk, admit};
use aulos_control::{Caller, Control, Counters, count};
use aulos_io::SystemClock;
use aulos_session::talk::{MAX_FRAME_BYTES, Talk, TalkError, TalkSink};
use axum::Extension;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::header::UPGRADE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, interval_at, sleep, timeout};
use tungstenite::Error as WsError;
use tungstenite::error::CapacityError;

use crate::http::app_state::AppState;
use crate::http::heartbeat::PING_INTERVAL;
use crate::http::login::ConnectionIdentity;
use crate::tcp::{WRITE_TIMEOUT, establish};
use crate::tls::PeerWatch;

/// `GET /api/v1/talk`.
pub(crate) async fn talk(
    State(app): State<AppState>,
    Extension(caller): Extension<Caller>,
    Extension(identity): Extension<ConnectionIdentity>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    if let Some(refusal) = app.refuse_cross_site(&headers) {
        return refusal;
    }
    let Ok(upgrade) = upgrade else {
        let text = "this path is a WebSocket for a microphone; the page is at /\n";
        return (StatusCode::UPGRADE_REQUIRED, [(UPGRADE, "websocket")], text).into_response();
    };
    let permits = match app.admit_socket(&caller, &identity) {
        Ok(permits) => permits,
        Err(refusal) => return refusal,
    };
    if establish(&caller, &permits.slot, &app.control).is_err() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    // A frame that is a little too large is refused with its reason.
    let upgrade = upgrade.max_message_size(2 * MAX_FRAME_BYTES).max_frame_size(2 * MAX_FRAME_BYTES);
    upgrade.on_upgrade(async move |socket| {
        let connection = TalkConnection { socket, watch: identity.watch };
        match Arc::clone(&app.talks).try_acquire_owned() {
            Ok(_permit) => serve(connection, &app.control, caller).await,
            Err(_) => {
                count(&app.control.counters.talks_refused_full);
                let why = format!("{MAX_TALKS} talks are spoken already; try again later");
                connection.refuse(&why).await;
            }
        }
        drop(permits);
    })
}

/// Serves a connection until its sound has been handed over.
async fn serve(mut connection: TalkConnection, control: &Control, mut caller: Caller) {
    let mut rules = control.access.changes();
    let (sink, sound) = TalkSink::new();
    let admitted = match connection.receive_request().await {
        Ok(request) => admit(control, &mut caller, &request, LiveSound::new(sound)),
        Err(RequestError::Closed) => return,
        Err(RequestError::Refused(why)) => Err(why.to_owned()),
    };
    let AdmittedTalk { id, station, before, format } = match admitted {
        Ok(admitted) => admitted,
        Err(why) => {
            count(&control.counters.talks_refused_request);
            return connection.refuse(&why).await;
        }
    };
    tracing::info!(id, station, from = %caller.name(), "talk begins");
    let mut talk = Talk::new(sink, format, SystemClock::now());
    let answer = json!({ "id": id, "station": station, "before": before });
    if connection.send(&answer).await.is_err() {
        talk.end(SystemClock::now(), Some(TalkError::Lost));
    }
    connection.listen(&mut talk, &mut rules).await;
    let problem = talk.problem();
    if let Some(problem) = problem {
        count_problem(&control.counters, problem);
        tracing::warn!(id, "talk ended: {problem}");
    }
    let why = match problem {
        Some(problem) => Some(problem.to_string()),
        None if talk.is_abandoned() => Some(ABANDONED.to_owned()),
        None => None,
    };
    // The rest is handed over meanwhile.
    let farewell = async {
        match why {
            Some(why) => connection.refuse(&why).await,
            None => connection.close().await,
        }
    };
    tokio::join!(farewell, drain(talk));
}

/// Hands the rest of a talk over that has ended.
async fn drain(mut talk: Talk) {
    while let Some(at) = talk.poll_timeout() {
        sleep(at.since(SystemClock::now()).into()).await;
        talk.handle_timeout(SystemClock::now());
    }
}

/// The connection of a microphone.
struct TalkConnection {
    socket: WebSocket,
    watch: PeerWatch,
}

/// Why there is no request.
enum RequestError {
    Closed,
    Refused(&'static str),
}

impl TalkConnection {
    /// The first message.
    async fn receive_request(&mut self) -> Result<Bytes, RequestError> {
        let received = timeout(REQUEST_TIMEOUT, async {
            loop {
                match self.receive().await {
                    Some(Ok(Message::Text(text))) => return Ok(text.into()),
                    Some(Ok(Message::Binary(_))) => {
                        return Err(RequestError::Refused("the first message must be a text"));
                    }
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    Some(Ok(Message::Close(_)) | Err(_)) | None => {
                        return Err(RequestError::Closed);
                    }
                }
            }
        });
        received.await.unwrap_or(Err(RequestError::Refused("no request within 10 s")))
    }

    /// Passes frames to the talk until it ends.
    async fn listen(&mut self, talk: &mut Talk, rules: &mut watch::Receiver<()>) {
        // A proxy closes a connection on which the server sends nothing.
        let mut pings = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
        while talk.is_speaking() {
            let now = SystemClock::now();
            let left = talk.poll_timeout().map_or(Duration::ZERO, |at| at.since(now).into());
            tokio::select! {
                message = self.receive() => {
                    let now = SystemClock::now();
                    match message {
                        Some(Ok(Message::Binary(frame))) => talk.handle_frame(now, &frame),
                        Some(Ok(Message::Text(_))) => talk.end(now, Some(TalkError::Text)),
                        Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                        Some(Ok(Message::Close(_))) => talk.end(now, None),
                        Some(Err(error)) if is_too_long(&error) => {
                            talk.end(now, Some(TalkError::FrameTooLong));
                        }
                        Some(Err(_)) | None => talk.end(now, Some(TalkError::Lost)),
                    }
                }
                () = sleep(left) => talk.handle_timeout(SystemClock::now()),
                _ = rules.changed() => {
                    talk.end(SystemClock::now(), Some(TalkError::RulesChanged));
                }
                _ = pings.tick() => {
                    let ping = self.socket.send(Message::Ping(Bytes::new()));
                    if !matches!(timeout(WRITE_TIMEOUT, ping).await, Ok(Ok(()))) {
                        talk.end(SystemClock::now(), Some(TalkError::Lost));
                    }
                }
            }
        }
    }

    async fn receive(&mut self) -> Option<Result<Message, axum::Error>> {
        let message = self.socket.recv().await;
        self.watch.complete_input();
        message
    }

    async fn send(&mut self, message: &Value) -> io::Result<()> {
        let sent = self.socket.send(Message::text(message.to_string()));
        match timeout(WRITE_TIMEOUT, sent).await {
            Ok(sent) => sent.map_err(io::Error::other),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Tells the microphone why it is not heard any more, and closes.
    async fn refuse(mut self, why: &str) {
        if self.send(&json!({ "error": why })).await.is_ok() {
            self.close().await;
        }
    }

    /// Closes; reads on until the peer has closed too, because what is unread would end the
    /// connection before the reason is read.
    async fn close(mut self) {
        let frame = CloseFrame { code: close_code::NORMAL, reason: "".into() };
        let closed = async {
            self.socket.send(Message::Close(Some(frame))).await.ok();
            while let Some(Ok(_)) = self.receive().await {}
        };
        timeout(CLOSE_TIMEOUT, closed).await.ok();
    }
}

/// Whether a message was longer than the library accepts.
fn is_too_long(error: &axum::Error) -> bool {
    let cause = std::error::Error::source(error);
    matches!(
        cause.and_then(|cause| cause.downcast_ref()),
        Some(WsError::Capacity(CapacityError::MessageTooLong { .. }))
    )
}

fn count_problem(counters: &Counters, problem: TalkError) {
    count(match problem {
        TalkError::Stalled | TalkError::Late => &counters.talks_cut_stalled,
        TalkError::TooFast => &counters.talks_cut_too_fast,
        TalkError::TooLong | TalkError::Busy => &counters.talks_cut_too_long,
        TalkError::Lost | TalkError::RulesChanged => &counters.talks_lost,
        // Frames that are no sound.
        _ => &counters.talks_cut_damaged,
    });
}

/// Talks at once: each is decoded by the control runtime, and holds 4 MB at most.
pub(crate) const MAX_TALKS: usize = 8;

/// How long the first message may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the peer may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// What a microphone is told whose announcement has been ended by others.
const ABANDONED: &str = "the announcement was cancelled, or its station has changed";
