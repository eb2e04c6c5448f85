//! The titles of a station as they are heard: `/nowplaying/STATION/events`, server-sent events for
//! web sites.
//!
//! A title leaves the server with its sound, and players hold that for a while. So each event waits
//! as long: by default for the buffer of synchronised players.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use aulos_control::{Control, ShownTitle, count, titles};
use aulos_core::{Instant, Span};
use aulos_io::SystemClock;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::sleep;

use super::resource::{Parameter, ParameterKind as Kind, Query};
use crate::http::app_state::AppState;
use crate::http::events::KEEPALIVE_INTERVAL;
use crate::http::host::permit_other_sites;
use crate::http::large_body::EventBody;

const PARAMETERS: &[Parameter] = &[
    Parameter { name: "station", kind: Kind::Path, about: "the station" },
    Parameter {
        name: "delay_ms",
        kind: Kind::Integer(0, MAX_DELAY_MS),
        about: "what the player holds, in milliseconds; `buffer_ms` of the station without it",
    },
];

/// The titles from now on, the present one first.
pub(in crate::http) async fn get(
    State(app): State<AppState>,
    Path(station): Path<String>,
    uri: Uri,
) -> Response {
    let query = match Query::parse(PARAMETERS, &uri) {
        Ok(query) => query,
        Err(refusal) => return refusal,
    };
    let Some(shown) = titles::subscribe(&app.control, &station) else {
        return (StatusCode::NOT_FOUND, "unknown station\n").into_response();
    };
    let Ok(permit) = Arc::clone(&app.title_followers).try_acquire_owned() else {
        count(&app.control.counters.title_followers_refused);
        let text = "too many followers of titles; try again later\n";
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    let delay = query.integer("delay_ms").and_then(|ms| i64::try_from(ms).ok());
    let (events, receiver) = mpsc::channel(1);
    let follower = Follower { shown, delay: delay.map(Span::from_millis), events, _permit: permit };
    tokio::spawn(follower.run(Arc::clone(&app.control)));
    let body = EventBody::new(Arc::clone(&app.control), receiver);
    let media = [(CONTENT_TYPE, "text/event-stream")];
    let mut response = (media, Body::from_stream(body)).into_response();
    permit_other_sites(&mut response, &app.control);
    response
}

/// A client that follows the titles of a station.
struct Follower {
    shown: watch::Receiver<Option<Arc<ShownTitle>>>,
    delay: Option<Span>,
    events: mpsc::Sender<Bytes>,
    _permit: OwnedSemaphorePermit,
}

impl Follower {
    async fn run(mut self, control: Arc<Control>) {
        let mut rules = control.access.changes();
        drop(control);
        let mut waiting: VecDeque<(Instant, Bytes)> = VecDeque::new();
        // A client that loses its connection comes back after this time.
        let mut next = Bytes::from_static(b"retry: 3000\n\n");
        self.shown.mark_changed();
        loop {
            if self.events.send(next).await.is_err() {
                return;
            }
            next = loop {
                let now = SystemClock::now();
                let pause = waiting.front().map_or(KEEPALIVE_INTERVAL, |(at, _)| {
                    Duration::from(at.since(now)).min(KEEPALIVE_INTERVAL)
                });
                tokio::select! {
                    biased;
                    () = self.events.closed() => return,
                    // The client reconnects, and its permissions are checked again.
                    _ = rules.changed() => return,
                    changed = self.shown.changed() => {
                        if changed.is_err() {
                            return;
                        }
                        let title = self.shown.borrow_and_update().clone();
                        waiting.extend(title.map(|title| due(&title, self.delay)));
                        if waiting.len() > MAX_WAITING {
                            waiting.pop_front();
                        }
                    }
                    () = sleep(pause) => {
                        let now = SystemClock::now();
                        let is_due = waiting.front().is_some_and(|(at, _)| *at <= now);
                        let event = if is_due { waiting.pop_front() } else { None };
                        break event.map_or(Bytes::from_static(b":\n\n"), |(_, event)| event);
                    }
                }
            };
        }
    }
}

/// When a client is sent a title, and its event.
fn due(title: &ShownTitle, delay: Option<Span>) -> (Instant, Bytes) {
    let delay = delay.unwrap_or(title.buffer);
    let at = Duration::new(u64::try_from(title.at.sec).unwrap_or(0), title.at.usec * 1_000);
    let passed = UNIX_EPOCH.elapsed().unwrap_or_default().saturating_sub(at);
    let left = Duration::from(delay).saturating_sub(passed);
    let left = Span::from_millis(i64::try_from(left.as_millis()).unwrap_or(0));
    (SystemClock::now() + left, event(title, at.as_millis(), delay))
}

/// An event. Times are Unix times in seconds: of the frame when it left the station, and when a
/// player with this delay plays it.
#[allow(clippy::cast_precision_loss, reason = "milliseconds of this age")]
fn event(title: &ShownTitle, at_ms: u128, delay: Span) -> Bytes {
    let playing = &title.playing;
    let seconds = |ms: u128| ms as f64 / 1e3;
    let data = json!({
        "station": playing.station,
        "title": playing.title.title,
        "artist": playing.title.artist,
        "album": playing.title.album,
        "duration_s": playing.title.duration.map(|span| seconds(span.as_millis().unsigned_abs().into())),
        "next": playing.next,
        "at": seconds(at_ms),
        "sounds_at": seconds(at_ms + u128::from(delay.as_millis().unsigned_abs())),
        "frame": title.frame.0,
        "rate": title.rate.hz(),
    });
    format!("event: title\nid: {}\ndata: {data}\n\n", title.frame.0).into()
}

/// Clients at once; each is a task and a connection.
pub(in crate::http) const MAX_FOLLOWERS: usize = 1_000;

/// Longer than the window of a player that does not go back.
const MAX_DELAY_MS: u64 = 600_000;

/// Titles that wait for their time at one client.
const MAX_WAITING: usize = 32;

#[cfg(test)]
mod tests {
    use aulos_control::registry::WallTime;
    use aulos_core::{MediaTime, SampleRate};
    use aulos_proto::titles::{NowPlaying, TrackMetadata};

    use super::*;

    #[test]
    fn an_event_has_the_frame_and_both_times_in_one_line() {
        let title = ShownTitle {
            playing: NowPlaying {
                station: "radio".to_owned(),
                title: TrackMetadata::from_stream_title("A\nb - \"c\""),
                next: None,
            },
            at: WallTime { sec: 100, usec: 250_000 },
            frame: MediaTime(96_000),
            rate: SampleRate::HZ_48000,
            buffer: Span::from_millis(1_500),
        };
        let (_, event) = due(&title, None);
        let text = std::str::from_utf8(&event).unwrap();
        let data = text.strip_prefix("event: title\nid: 96000\ndata: ").unwrap();
        let data = data.strip_suffix("\n\n").unwrap();
        assert!(!data.contains('\n'));
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        let expected = json!({
            "station": "radio", "artist": "Ab", "title": "\"c\"", "album": null,
            "duration_s": null, "next": null, "at": 100.25, "sounds_at": 101.75,
            "frame": 96_000, "rate": 48_000,
        });
        assert_eq!(data, expected);
    }
}
