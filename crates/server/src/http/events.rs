//! What changes, for all that follow it: server-sent events for scripts, notifications and meters
//! for WebSockets. Levels come up to ten times per second, the full status when it changes.
//!
//! One task renders for all. A slow reader skips events: only the newest of each kind waits for it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use aulos_control::{Control, MeterSnapshot, TICK, status_notification};
use axum::extract::ws::Utf8Bytes;
use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::large_body::{EventBody, permitted};

/// The newest event of each kind.
#[derive(Clone, Debug)]
pub(super) struct EventFeed {
    levels: watch::Sender<Bytes>,
    status: watch::Sender<Bytes>,
    /// The status as a notification of JSON-RPC.
    notification: watch::Sender<Utf8Bytes>,
    meters: watch::Sender<Arc<MeterSnapshot>>,
}

/// Interval of comments on an idle stream, so that a proxy does not close the connection.
pub(super) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

impl EventFeed {
    /// Starts the rendering task; it ends with the runtime.
    pub(super) fn start(control: Arc<Control>) -> Self {
        let feed = Self {
            levels: watch::Sender::default(),
            status: watch::Sender::default(),
            notification: watch::Sender::default(),
            meters: watch::Sender::default(),
        };
        tokio::spawn(render(control, feed.clone()));
        feed
    }

    /// The changes of the status, as notifications of JSON-RPC.
    pub(super) fn subscribe_status(&self) -> watch::Receiver<Utf8Bytes> {
        self.notification.subscribe()
    }

    /// The meters of all stations, once per tick.
    pub(super) fn subscribe_meters(&self) -> watch::Receiver<Arc<MeterSnapshot>> {
        self.meters.subscribe()
    }

    /// The events for one browser, the status first.
    pub(super) fn subscribe(&self, control: &Arc<Control>, from: IpAddr) -> EventBody {
        let (sender, events) = mpsc::channel(1);
        let (mut levels, mut status) = (self.levels.subscribe(), self.status.subscribe());
        let mut rules = control.access.changes();
        levels.mark_unchanged();
        status.mark_unchanged();
        let body = EventBody::new(Arc::clone(control), events);
        let control = Arc::clone(control);
        tokio::spawn(async move {
            let first = tokio::select! {
                first = control.status_after_long_calls(from) => first,
                () = sender.closed() => return,
            };
            let text = event("status", &first);
            let mut next = permitted(text, first.into_parts().1);
            loop {
                if sender.send(next).await.is_err() {
                    return;
                }
                let newer = timeout(KEEPALIVE_INTERVAL, async {
                    tokio::select! {
                        biased;
                        changed = status.changed() => changed.map(|()| Change::Status),
                        changed = levels.changed() => changed.map(|()| Change::Levels),
                        () = sender.closed() => Ok(Change::Closed),
                    }
                });
                let newer = tokio::select! {
                    newer = newer => newer,
                    // The browser reconnects, and its permissions are checked again.
                    _ = rules.changed() => return,
                };
                let newest = match newer {
                    Ok(Ok(Change::Status)) => &mut status,
                    Ok(Ok(Change::Levels)) => &mut levels,
                    Ok(Ok(Change::Closed) | Err(_)) => return,
                    Err(_) => {
                        next = Bytes::from_static(b":\n\n");
                        continue;
                    }
                };
                // Taken after the wait, so that no older event is kept in memory meanwhile.
                let length = newest.borrow().len();
                let permit = tokio::select! {
                    permit = control.answer_permit(from, length) => permit,
                    () = sender.closed() => return,
                };
                next = permitted(newest.borrow_and_update().clone(), permit);
            }
        });
        body
    }
}

/// What ends the wait of a browser.
enum Change {
    Status,
    Levels,
    Closed,
}

/// Renders changes while something is subscribed.
async fn render(control: Arc<Control>, feed: EventFeed) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut revision = control.revision();
    for tick in 0.. {
        ticks.tick().await;
        let is_watched = |events: usize| events > 0;
        let for_events = is_watched(feed.levels.receiver_count());
        let for_sockets = is_watched(feed.notification.receiver_count());
        // The status of a server with thousands of clients is a megabyte; it is not rendered
        // without a subscriber.
        if (for_events || for_sockets) && revision.has_changed().unwrap_or(false) {
            revision.mark_unchanged();
            let status = control.status();
            if for_sockets {
                feed.notification.send_replace(status_notification(&status).into());
            }
            if for_events {
                feed.status.send_replace(event("status", &status));
            }
        }
        if for_events {
            let newest = event("levels", &control.views().levels().to_string());
            feed.levels.send_if_modified(|held| {
                let changed = *held != newest;
                *held = newest;
                changed
            });
        }
        if is_watched(feed.meters.receiver_count()) {
            feed.meters.send_replace(Arc::new(control.views().meters(tick)));
        }
    }
}

fn event(name: &str, data: &str) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}
