//! What a client is told when it says hello, known before it comes.
//!
//! The control plane decides how a client plays, and one thread of it would be the door through
//! which a whole house has to pass after a power cut. So each reactor has a table of what to say,
//! and answers in the wake in which it reads the Hello. The rules that keep table and registry one:
//!
//! * The registry is the only writer; what it writes goes through the command queue, to every
//!   reactor. A reactor never changes its table by itself.
//! * Until it knows how newcomers play, a reactor answers nobody: that comes last, after all that
//!   was remembered. Until then, as for a station that it does not have, the registry answers.
//! * [`Event::Hello`](super::Event::Hello) carries the answer that was given. The registry compares
//!   it with its own and sends what differs, so the table may be late and the last word is right.
//! * Whoever is to be refused is cut after the answer. It says nothing that is secret: a house with
//!   passwords leaves the table empty.

use std::collections::HashMap;
use std::sync::Arc;

use aulos_proto::snap::wire::ServerSettings;

/// How a client plays, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// How.
    pub settings: ServerSettings,
    /// The number of its station.
    pub station: usize,
}

/// One reactor's copy of what the registry would say.
#[derive(Debug, Default)]
pub(super) struct GreetingTable {
    /// Clients that are not greeted as newcomers are.
    clients: HashMap<Arc<str>, Greeting>,
    default: Option<Greeting>,
}

impl GreetingTable {
    pub(super) fn set(&mut self, client: Option<Arc<str>>, greeting: Option<Greeting>) {
        match (client, greeting) {
            (None, greeting) => self.default = greeting,
            (Some(client), Some(greeting)) => drop(self.clients.insert(client, greeting)),
            (Some(client), None) => drop(self.clients.remove(&client)),
        }
    }

    /// What to say to `client`; none when the registry has to be asked.
    pub(super) fn for_client(&self, client: &str) -> Option<Greeting> {
        self.default.map(|newcomers| self.clients.get(client).copied().unwrap_or(newcomers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_greeted_before_the_registry_has_said_how() {
        let greeting = |station| Some(Greeting { settings: ServerSettings::default(), station });
        let mut greetings = GreetingTable::default();
        greetings.set(Some("kitchen".into()), greeting(3));
        assert_eq!(greetings.for_client("kitchen"), None);
        greetings.set(None, greeting(1));
        assert_eq!(
            (greetings.for_client("kitchen"), greetings.for_client("hall")),
            (greeting(3), greeting(1))
        );
        greetings.set(Some("kitchen".into()), None);
        assert_eq!(greetings.for_client("kitchen"), greeting(1));
        greetings.set(None, None);
        assert_eq!(greetings.for_client("hall"), None);
    }
}
