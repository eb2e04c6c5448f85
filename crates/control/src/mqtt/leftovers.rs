//! What the broker has retained of stations and clients that were removed while this server was not
//! connected.
//!
//! Of every station and client, one topic that seldom changes is subscribed to. A retained message
//! there tells of a part of the server; if there is no such part, everything of it is removed.
//! Subscribing to the descriptions was rejected: that of every device in the house would come, at
//! any length.

use std::collections::BTreeSet;

use super::facts::ServerFacts;
use super::outbox::MqttOutbox;
use super::topics::{MqttTopics, PARTS, escape};

/// Parts that are looked at in one connection: a broker may retain what it likes.
const MAX_PARTS: usize = 512;

/// The parts of which the broker has told since the connection began.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    /// Those that are not compared with the server yet: kind and escaped id.
    waiting: BTreeSet<(&'static str, String)>,
    count: usize,
}

impl Leftovers {
    /// Takes a part of which a retained message has told.
    pub(super) fn push(&mut self, kind: &'static str, id: &str) {
        if self.count < MAX_PARTS && self.waiting.insert((kind, id.to_owned())) {
            self.count += 1;
        }
    }

    /// Removes the topics of the parts that the server does not have.
    pub(super) fn remove(
        &mut self,
        facts: &ServerFacts,
        topics: &MqttTopics,
        outbox: &mut MqttOutbox,
    ) {
        if self.waiting.is_empty() {
            return;
        }
        let stations = facts.stations.iter().map(|one| ("station", escape(&one.shape.name)));
        let clients = facts.clients.iter().map(|one| ("client", escape(&one.id)));
        let known: BTreeSet<(&str, String)> = stations.chain(clients).collect();
        for (kind, id) in std::mem::take(&mut self.waiting) {
            if known.contains(&(kind, id.clone())) {
                continue;
            }
            let entities = PARTS.iter().filter(|part| part.kind == kind).flat_map(|it| it.entities);
            let states = entities.map(|entity| topics.entity(kind, &id, entity));
            let description = topics.discovery(&topics.device(Some((kind, &id))));
            for topic in description.into_iter().chain(states) {
                outbox.set(&topic, String::new(), false, true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_broker_retains_costs_bounded_memory() {
        let topics = MqttTopics::new("aulos", "box", None);
        let (mut outbox, mut leftovers) = (MqttOutbox::default(), Leftovers::default());
        outbox.open();
        let mut removed = 0;
        for number in 0..10_000 {
            leftovers.push("client", &number.to_string());
            leftovers.remove(&ServerFacts::default(), &topics, &mut outbox);
            removed += std::iter::from_fn(|| outbox.next()).count();
        }
        assert_eq!(removed, MAX_PARTS * 5);
    }
}
