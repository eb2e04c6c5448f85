//! What a WebSocket is sent by subscription.
//!
//! Each connection reads the newest status, the newest meters and the events since the last ones
//! when it is ready to send, so a slow one skips what it missed and nothing queues for it.

use std::future::pending;
use std::net::IpAddr;
use std::sync::Arc;

use aulos_control::{
    AnswerPermit, Control, MeterFrames, MeterSnapshot, Subscription, status_notification,
};
use axum::extract::ws::{Message, Utf8Bytes};
use tokio::sync::watch;

use super::events::EventFeed;

/// The subscription of one WebSocket, and what has been sent of it.
pub(super) struct SubscribedFeed {
    feed: EventFeed,
    current: Subscription,
    /// The changes of the status, and whether the first status has been sent.
    status: Option<(watch::Receiver<Utf8Bytes>, bool)>,
    meters: Option<watch::Receiver<Arc<MeterSnapshot>>>,
    frames: MeterFrames,
    /// The changes of the event history, and the revision up to which they have been sent.
    events: Option<(watch::Receiver<u64>, u64)>,
}

/// One or two messages of a feed; the second follows the first.
pub(super) struct FeedMessages {
    pub(super) first: Message,
    pub(super) second: Option<Message>,
    /// Kept until they are sent.
    pub(super) permit: Option<AnswerPermit>,
}

impl From<Message> for FeedMessages {
    fn from(first: Message) -> Self {
        Self { first, second: None, permit: None }
    }
}

impl SubscribedFeed {
    pub(super) fn new(feed: EventFeed) -> Self {
        let (current, frames) = (Subscription::default(), MeterFrames::default());
        Self { feed, current, status: None, meters: None, frames, events: None }
    }

    /// Takes the subscription of the last call; without a change nothing starts anew.
    pub(super) fn set(&mut self, subscription: &Subscription, control: &Control) {
        if *subscription == self.current {
            return;
        }
        if subscription.status != self.current.status {
            self.status = subscription.status.then(|| (self.feed.subscribe_status(), false));
        }
        if subscription.meters.is_none() {
            self.meters = None;
        } else if self.meters.is_none() {
            self.meters = Some(self.feed.subscribe_meters());
        }
        if subscription.events.is_none() {
            self.events = None;
        } else if self.events.is_none() {
            let mut changes = control.events.changes();
            let revision = *changes.borrow_and_update();
            self.events = Some((changes, revision));
        }
        self.current = subscription.clone();
    }

    /// The notification of the events that have not been sent.
    fn next_events(&mut self, control: &Control) -> Option<String> {
        let ((_, sent), role) = (self.events.as_mut()?, self.current.events?);
        let (revision, notification) = control.events.notification(*sent, role);
        *sent = revision;
        notification
    }

    /// The next messages; waits without end while nothing is subscribed. May be dropped while it
    /// waits.
    pub(super) async fn next(&mut self, control: &Control, from: IpAddr) -> FeedMessages {
        if let Some((changes, is_sent @ false)) = &mut self.status {
            let status = control.status_after_long_calls(from).await;
            changes.mark_unchanged();
            *is_sent = true;
            let first = Message::text(status_notification(&status));
            return FeedMessages { first, second: None, permit: status.into_parts().1 };
        }
        loop {
            tokio::select! {
                biased;
                messages = newest_status(self.status.as_mut(), control, from) => return messages,
                snapshot = newest(self.meters.as_mut()) => {
                    let Some(wanted) = &self.current.meters else { continue };
                    match self.frames.next(&snapshot, wanted) {
                        Some((Some(layout), frame)) => {
                            return FeedMessages {
                                first: Message::text(layout),
                                second: Some(Message::binary(frame)),
                                permit: None,
                            };
                        }
                        Some((None, frame)) => return Message::binary(frame).into(),
                        None => {}
                    }
                }
                () = more_events(self.events.as_mut()) => {
                    if let Some(events) = self.next_events(control) {
                        return Message::text(events).into();
                    }
                }
            }
        }
    }
}

/// Waits for a change of the event history that has not been sent; without end if none is wanted.
async fn more_events(events: Option<&mut (watch::Receiver<u64>, u64)>) {
    let Some((changes, sent)) = events else { return pending().await };
    if changes.wait_for(|revision| revision > sent).await.is_err() {
        // The history ends with the server.
        pending::<()>().await;
    }
}

/// The newest status, once it has changed; never without a subscription. May be dropped while it
/// waits.
async fn newest_status(
    status: Option<&mut (watch::Receiver<Utf8Bytes>, bool)>,
    control: &Control,
    from: IpAddr,
) -> FeedMessages {
    let Some((changes, _)) = status else { return pending().await };
    changed(changes).await;
    // The wait for the permit may be dropped.
    changes.mark_changed();
    let length = changes.borrow().len();
    let permit = control.answer_permit(from, length).await;
    let first = Message::Text(changes.borrow_and_update().clone());
    FeedMessages { first, second: None, permit }
}

/// The newest value of a channel, once it has changed; never without a channel.
async fn newest<T: Clone>(changes: Option<&mut watch::Receiver<T>>) -> T {
    let Some(changes) = changes else { return pending().await };
    changed(changes).await;
    changes.borrow_and_update().clone()
}

async fn changed<T>(changes: &mut watch::Receiver<T>) {
    if changes.changed().await.is_err() {
        // The feed ends with the runtime.
        pending::<()>().await;
    }
}
