//! What is to be published, and what has been.
//!
//! The newest payload of each topic is kept, so that a broker that is away or slow costs no memory
//! and gets the present state: a queue of messages was rejected. Events are the exception, which
//! are few and have no present state.

use std::collections::{BTreeMap, VecDeque};

/// A message to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MqttMessage {
    /// The topic.
    pub topic: String,
    /// The payload; empty to remove a retained message.
    pub payload: String,
    /// Whether the broker keeps it for later subscribers.
    pub is_retained: bool,
}

/// The retained messages of all topics, and the events.
#[derive(Debug, Default)]
pub(super) struct MqttOutbox {
    topics: BTreeMap<String, RetainedTopic>,
    /// Topics that are to be published; each once.
    due: VecDeque<String>,
    events: VecDeque<MqttMessage>,
    is_open: bool,
    pub(super) dropped_events: u64,
}

#[derive(Debug)]
struct RetainedTopic {
    payload: String,
    is_due: bool,
    /// Whether it comes before the others: a description precedes what it describes.
    is_first: bool,
}

/// Limit of events that wait.
const MAX_EVENTS: usize = 64;

impl MqttOutbox {
    /// Takes everything as not published; until the next [`close`](Self::close) it is given out.
    pub(super) fn open(&mut self) {
        self.is_open = true;
        self.publish_all();
    }

    /// Gives nothing out, and forgets events.
    pub(super) fn close(&mut self) {
        self.is_open = false;
        self.dropped_events += self.events.len() as u64;
        self.events.clear();
        self.due.clear();
        self.topics.retain(|_, topic| !topic.payload.is_empty());
        self.topics.values_mut().for_each(|topic| topic.is_due = false);
    }

    /// Publishes every topic again.
    pub(super) fn publish_all(&mut self) {
        if !self.is_open {
            return;
        }
        self.due.clear();
        for is_first in [true, false] {
            let of = self.topics.iter_mut().filter(|(_, topic)| topic.is_first == is_first);
            for (name, topic) in of {
                topic.is_due = true;
                self.due.push_back(name.clone());
            }
        }
    }

    /// Sets the retained payload of a topic; published if it is another one, or if `always`.
    pub(super) fn set(&mut self, name: &str, payload: String, is_first: bool, always: bool) {
        let Some(topic) = self.topics.get_mut(name) else {
            let topic = RetainedTopic { payload, is_due: self.is_open, is_first };
            if self.is_open {
                self.due.push_back(name.to_owned());
            }
            self.topics.insert(name.to_owned(), topic);
            return;
        };
        if topic.payload == payload && !always {
            return;
        }
        topic.payload = payload;
        if self.is_open && !std::mem::replace(&mut topic.is_due, true) {
            self.due.push_back(name.to_owned());
        }
    }

    /// Removes the retained messages of all topics that begin so, or have this name.
    pub(super) fn remove(&mut self, prefix: &str) {
        let below = format!("{prefix}/");
        let names: Vec<String> = self.topics.keys().cloned().collect();
        for name in names.iter().filter(|name| *name == prefix || name.starts_with(&below)) {
            self.set(name, String::new(), false, false);
        }
        if !self.is_open {
            self.topics.retain(|_, topic| !topic.payload.is_empty());
        }
    }

    /// Queues an event; dropped without a connection or without room.
    pub(super) fn push_event(&mut self, topic: String, payload: String) {
        if self.is_open && self.events.len() < MAX_EVENTS {
            self.events.push_back(MqttMessage { topic, payload, is_retained: false });
        } else {
            self.dropped_events += 1;
        }
    }

    /// The next message.
    pub(super) fn next(&mut self) -> Option<MqttMessage> {
        if let Some(name) = self.due.pop_front() {
            let topic = self.topics.get_mut(&name)?;
            topic.is_due = false;
            let payload = topic.payload.clone();
            if payload.is_empty() {
                self.topics.remove(&name);
            }
            return Some(MqttMessage { topic: name, payload, is_retained: true });
        }
        self.events.pop_front()
    }
}
