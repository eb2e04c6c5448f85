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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::config::Station;
    use crate::house::{Command, Event, Full, Hello, SessionId, StationStatus};
    use crate::registry::{StationInfo, Wall};

    /// Takes so many words, and then none.
    #[derive(Default)]
    struct Audio {
        room: Mutex<usize>,
        known: Mutex<HashMap<String, Greeting>>,
        newcomers: Mutex<Option<Greeting>>,
    }

    impl Audio {
        fn take(&self) -> bool {
            let mut room = self.room.lock().unwrap();
            let taken = *room > 0;
            *room = room.saturating_sub(1);
            taken
        }
    }

    impl House for Audio {
        fn command(&self, _: Command) -> Result<(), Full> {
            Ok(())
        }
        fn greet(&self, client: &str, greeting: Option<Greeting>) -> bool {
            let mut known = self.known.lock().unwrap();
            let taken = self.take();
            match greeting.filter(|_| taken) {
                Some(greeting) => drop(known.insert(client.to_owned(), greeting)),
                None if taken => drop(known.remove(client)),
                None => {}
            }
            taken
        }
        fn greet_newcomers(&self, greeting: Greeting) -> bool {
            let taken = self.take();
            if taken {
                *self.newcomers.lock().unwrap() = Some(greeting);
            }
            taken
        }
        fn status(&self, _: usize) -> StationStatus {
            StationStatus::default()
        }
        fn reset_loudness(&self, _: usize) {}
        fn add_station(&self, _: &Station) -> std::io::Result<usize> {
            Ok(0)
        }
        fn replace_station(&self, _: usize, _: &Station) -> std::io::Result<()> {
            Ok(())
        }
        fn remove_station(&self, _: usize) {}
        fn counters(&self) -> Vec<(&'static str, u64)> {
            vec![]
        }
    }

    #[test]
    fn however_little_the_audio_takes_at_once_it_knows_everybody_in_the_end_and_newcomers_last() {
        let station = StationInfo { name: "default".to_owned(), buffer_ms: 1_000 };
        let mut registry = Registry::new(vec![station], 7);
        for number in 0..20 {
            let hello = Hello { id: format!("c{number}"), instance: 1, ..Hello::default() };
            let (session, peer) = (SessionId(number), [127, 0, 0, 1].into());
            let event = Event::Hello { session, peer, hello: hello.into(), answered: None };
            drop(registry.apply(event, Wall::default()));
            drop(registry.set_volume(&format!("c{number}"), Some(50), None).unwrap());
        }
        let (audio, mut greetings) = (Audio::default(), Greetings::default());
        greetings.stale = true;
        let mut settle = |registry: &Registry| {
            let mut rounds = 0;
            while greetings.stale {
                *audio.room.lock().unwrap() = 3;
                greetings.refresh(registry, &audio);
                let known = audio.known.lock().unwrap().len();
                assert!(known >= 18 || audio.newcomers.lock().unwrap().is_none(), "{known}");
                rounds += 1;
            }
            greetings.stale = true;
            rounds
        };
        assert_eq!(settle(&registry), 7);
        assert_eq!(audio.known.lock().unwrap().len(), 20);
        assert_eq!(*audio.newcomers.lock().unwrap(), registry.newcomers_greeting());
        // Back to what newcomers get, or gone: no words are kept for those.
        drop(registry.set_volume("c3", Some(100), None).unwrap());
        drop(registry.delete_client("c4").unwrap());
        settle(&registry);
        let known = audio.known.lock().unwrap();
        assert!(known.len() == 18 && !known.contains_key("c3") && !known.contains_key("c4"));
    }
}
