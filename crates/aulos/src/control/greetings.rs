//! Keeps what the audio says to clients that come in step with the registry.
//!
//! The whole registry is compared with what was last said, at most ten times a second and only
//! after a change. Telling of each change where it is made was rejected: every method of the
//! registry would have to remember it, and the registry sets right at the Hello what was said too
//! early.

use std::collections::HashMap;

use crate::house::{Greeting, House};
use crate::registry::Registry;

/// What the audio was told last.
#[derive(Debug, Default)]
pub(super) struct Greetings {
    /// Only clients that are not greeted as newcomers are.
    told: HashMap<String, Greeting>,
    newcomers: Option<Greeting>,
    /// Something has changed since.
    pub(super) stale: bool,
}

impl Greetings {
    /// Tells the audio what has changed; what it has no place for is told the next time.
    pub(super) fn refresh(&mut self, registry: &Registry, house: &dyn House) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let Some(newcomers) = registry.newcomers_greeting() else { return };
        let wanted: HashMap<&str, Greeting> =
            registry.greetings().filter(|(_, greeting)| *greeting != newcomers).collect();
        let mut all = true;
        self.told.retain(|client, _| {
            let forgotten = !wanted.contains_key(client.as_str()) && house.greet(client, None);
            all &= forgotten || wanted.contains_key(client.as_str());
            !forgotten
        });
        for (client, greeting) in wanted {
            if self.told.get(client) != Some(&greeting) {
                if house.greet(client, Some(greeting)) {
                    self.told.insert(client.to_owned(), greeting);
                } else {
                    all = false;
                }
            }
        }
        // Last, because it is the sign that the rest is known.
        if all && self.newcomers != Some(newcomers) {
            all = house.greet_newcomers(newcomers);
            self.newcomers = Some(newcomers).filter(|_| all);
        }
        self.stale = !all;
    }
}
