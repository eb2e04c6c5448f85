//! Server-sent events: levels at up to ten per second, and the full status when it changes.
//!
//! One task renders for all browsers. A slow browser skips events: only the newest of each kind
//! waits for it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::control::{Control, TICK};

/// The newest event of each kind.
#[derive(Clone, Debug)]
pub(super) struct EventFeed {
    levels: watch::Sender<Bytes>,
    status: watch::Sender<Bytes>,
}

/// Interval of comments on an idle stream, so that a proxy does not close the connection.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

impl EventFeed {
    /// Starts the rendering task; it ends with the runtime.
    pub(super) fn start(control: Arc<Control>) -> Self {
        let feed = Self { levels: watch::Sender::default(), status: watch::Sender::default() };
        tokio::spawn(render(control, feed.clone()));
        feed
    }

    /// The events for one browser, the status first.
    pub(super) fn subscribe(&self, control: &Control) -> EventStream {
        let (sender, events) = mpsc::channel(1);
        let (mut levels, mut status) = (self.levels.subscribe(), self.status.subscribe());
        let mut rules = control.access.changes();
        let mut next = event("status", &control.status());
        levels.mark_unchanged();
        status.mark_unchanged();
        tokio::spawn(async move {
            loop {
                if sender.send(next).await.is_err() {
                    return;
                }
                let newer = timeout(KEEPALIVE_INTERVAL, async {
                    tokio::select! {
                        biased;
                        changed = status.changed() => changed.map(|()| status.borrow_and_update().clone()),
                        changed = levels.changed() => changed.map(|()| levels.borrow_and_update().clone()),
                        () = sender.closed() => Ok(Bytes::new()),
                    }
                });
                let newer = tokio::select! {
                    newer = newer => newer,
                    // The browser reconnects, and its permissions are checked again.
                    _ = rules.changed() => return,
                };
                next = match newer {
                    Ok(Ok(event)) => event,
                    Ok(Err(_)) => return,
                    Err(_) => Bytes::from_static(b":\n\n"),
                };
            }
        });
        EventStream(events)
    }
}

/// Renders changes while a browser is subscribed.
async fn render(control: Arc<Control>, feed: EventFeed) {
    let EventFeed { levels, status } = feed;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut revision = control.revision();
    loop {
        ticks.tick().await;
        // The status of a server with thousands of clients is a megabyte; it is not rendered
        // without a subscriber.
        if levels.receiver_count() == 0 {
            continue;
        }
        if revision.has_changed().unwrap_or(false) {
            revision.mark_unchanged();
            status.send_replace(event("status", &control.status()));
        }
        let newest = event("levels", &control.levels().to_string());
        levels.send_if_modified(|held| {
            let changed = *held != newest;
            *held = newest;
            changed
        });
    }
}

fn event(name: &str, data: &str) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

/// A response body without an end.
#[derive(Debug)]
pub(super) struct EventStream(mpsc::Receiver<Bytes>);

impl Stream for EventStream {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|event| event.map(Ok))
    }
}
