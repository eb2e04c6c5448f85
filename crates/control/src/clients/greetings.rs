//! Keeps the reactors' table of Hello answers in step with the registry.
//!
//! The registry marks the clients whose greeting may have changed. Ten times a second those are
//! compared with what was sent last. Comparing all clients was rejected: on a server with thousands
//! of clients each step of a volume slider would look at all of them.

use std::collections::{HashMap, HashSet};

use crate::backend::{Greeting, GreetingSink};
use crate::clients::registry::Registry;

/// The greetings that the audio backend has.
#[derive(Debug, Default)]
pub(super) struct GreetingSync {
    /// Clients whose greeting differs from that of unknown clients.
    sent: HashMap<String, Greeting>,
    /// Clients whose greeting may have to be sent.
    stale: HashSet<String>,
    /// The default greeting at the last full comparison.
    baseline: Option<Greeting>,
    /// The default greeting that the audio backend has.
    newcomer_greeting: Option<Greeting>,
}

impl GreetingSync {
    /// Sends the greetings that changed; those for which the backend's queue is full are sent next
    /// time. Unless the server is `open` without a login, the backend must not answer any Hello by
    /// itself. `changed` are clients whose greeting may have changed.
    pub(super) fn refresh(
        &mut self,
        registry: &Registry,
        changed: HashSet<String>,
        open: bool,
        backend: &(impl GreetingSink + ?Sized),
    ) {
        self.stale.extend(changed);
        if !open {
            if self.newcomer_greeting.is_some() && backend.set_default_greeting(None) {
                self.newcomer_greeting = None;
            }
            return;
        }
        let Some(newcomers) = registry.newcomer_greeting() else { return };
        if self.baseline != Some(newcomers) {
            self.baseline = Some(newcomers);
            let all = registry.table.ids().chain(self.sent.keys().map(String::as_str));
            self.stale.extend(all.map(str::to_owned));
        }
        let sent = &mut self.sent;
        self.stale.retain(|client| {
            let wanted = registry.greeting_of(client).filter(|greeting| *greeting != newcomers);
            if sent.get(client) == wanted.as_ref() {
                return false;
            }
            if !backend.set_greeting(client, wanted) {
                return true;
            }
            match wanted {
                Some(greeting) => drop(sent.insert(client.clone(), greeting)),
                None => drop(sent.remove(client)),
            }
            false
        });
        // Sent last: it marks the table as complete.
        if self.stale.is_empty()
            && self.newcomer_greeting != Some(newcomers)
            && backend.set_default_greeting(Some(newcomers))
        {
            self.newcomer_greeting = Some(newcomers);
        }
    }

    /// Whether the backend has every greeting.
    #[cfg(test)]
    fn is_settled(&self) -> bool {
        self.stale.is_empty()
            && self.newcomer_greeting.is_some()
            && self.newcomer_greeting == self.baseline
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::backend::SessionId;
    use crate::backend::test_events::{arrival, hello_of};
    use crate::clients::registry::{StationInfo, WallTime};

    /// Accepts `room` greetings, then refuses.
    #[derive(Default)]
    struct MockBackend {
        room: Mutex<usize>,
        known: Mutex<HashMap<String, Greeting>>,
        newcomers: Mutex<Option<Greeting>>,
    }

    impl MockBackend {
        fn take(&self) -> bool {
            let mut room = self.room.lock().unwrap();
            let taken = *room > 0;
            *room = room.saturating_sub(1);
            taken
        }
    }

    impl GreetingSink for MockBackend {
        fn set_greeting(&self, client: &str, greeting: Option<Greeting>) -> bool {
            let mut known = self.known.lock().unwrap();
            let taken = self.take();
            match greeting.filter(|_| taken) {
                Some(greeting) => drop(known.insert(client.to_owned(), greeting)),
                None if taken => drop(known.remove(client)),
                None => {}
            }
            taken
        }
        fn set_default_greeting(&self, greeting: Option<Greeting>) -> bool {
            let taken = self.take();
            if taken {
                *self.newcomers.lock().unwrap() = greeting;
            }
            taken
        }
    }

    #[test]
    fn however_little_the_audio_takes_at_once_it_knows_everybody_in_the_end_and_newcomers_last() {
        let station = StationInfo { name: "default".to_owned(), buffer_ms: 1_000 };
        let mut registry = Registry::new(vec![station], 7);
        for number in 0..20 {
            let hello = hello_of(&format!("c{number}"));
            let (session, peer) = (SessionId(number), [127, 0, 0, 1].into());
            let event = arrival(session, peer, hello);
            drop(registry.apply(event, WallTime::default()));
            drop(registry.set_volume(&format!("c{number}"), Some(50), None).unwrap());
        }
        let (audio, mut greetings) = (MockBackend::default(), GreetingSync::default());
        let mut settle = |registry: &mut Registry, least: usize| {
            let mut rounds = 0;
            loop {
                *audio.room.lock().unwrap() = 3;
                {
                    let changed = registry.table.take_changed();
                    greetings.refresh(registry, changed, true, &audio);
                }
                let known = audio.known.lock().unwrap().len();
                assert!(known >= least || audio.newcomers.lock().unwrap().is_none(), "{known}");
                rounds += 1;
                if greetings.is_settled() {
                    return rounds;
                }
            }
        };
        assert_eq!(settle(&mut registry, 20), 7);
        assert_eq!(audio.known.lock().unwrap().len(), 20);
        assert_eq!(*audio.newcomers.lock().unwrap(), registry.newcomer_greeting());
        // Clients that have the default greeting again, or are deleted, need no entry.
        drop(registry.set_volume("c3", Some(100), None).unwrap());
        drop(registry.delete_client("c4").unwrap());
        assert_eq!(settle(&mut registry, 18), 1);
        let known = audio.known.lock().unwrap().clone();
        assert!(known.len() == 18 && !known.contains_key("c3") && !known.contains_key("c4"));
        // With another default greeting, only the other clients are exceptions.
        drop(registry.change_volume_limits(50, 100));
        assert_eq!(settle(&mut registry, 0), 7);
        assert_eq!(audio.known.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_house_that_is_closed_greets_nobody_by_itself() {
        let station = StationInfo { name: "default".to_owned(), buffer_ms: 1_000 };
        let mut registry = Registry::new(vec![station], 7);
        let (audio, mut greetings) = (MockBackend::default(), GreetingSync::default());
        let mut refresh = |open, room| {
            *audio.room.lock().unwrap() = room;
            let changed = registry.table.take_changed();
            greetings.refresh(&registry, changed, open, &audio);
            audio.newcomers.lock().unwrap().is_some()
        };
        assert!(!refresh(false, 1));
        assert!(refresh(true, 1));
        // The backend refuses the update, so it is sent again.
        assert!(refresh(false, 0));
        assert!(!refresh(false, 1));
    }
}
