//! The answer to a client's Hello, known before the client connects.
//!
//! Each reactor has a table of answers and replies in the wake-up in which it reads the Hello, so
//! that the few threads of the control plane are no bottleneck
//! (`docs/decisions/greeting-table.md`). The rules that keep the table and the registry consistent:
//!
//! * The registry is the only writer. Its updates go through the command queue of every reactor. A
//!   reactor never changes its table by itself.
//! * A reactor answers no Hello before the default answer is set. The registry sets it last, after
//!   all remembered clients. Until then, and for a station that the reactor does not have, the
//!   registry answers.
//! * [`ReactorEvent::Hello`](super::ReactorEvent::Hello) carries the answer that was given. The
//!   registry compares it with its own and sends the differences, so the table may be out of date
//!   and the last word is correct.
//! * The registry answers a Hello with credentials, and every Hello where passwords are required:
//!   there the table stays empty.
//! * Another client that is to be refused is cut after the answer, which contains nothing secret.

use std::collections::HashMap;
use std::sync::Arc;

use aulos_proto::snap::wire::ServerSettings;

/// The settings and the station of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The client's settings.
    pub settings: ServerSettings,
    /// The number of its station.
    pub station: usize,
}

impl Greeting {
    /// Instead of a station: the registry answers the Hello, because the station has to be created
    /// first.
    pub const DEFER_TO_CONTROL: usize = usize::MAX;
}

/// A reactor's copy of the registry's answers.
#[derive(Debug, Default)]
pub(super) struct GreetingTable {
    /// Clients with an answer of their own.
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

    /// The answer for `client`; `None` when the registry has to decide.
    pub(super) fn for_client(&self, client: &str) -> Option<Greeting> {
        self.default.map(|newcomers| self.clients.get(client).copied().unwrap_or(newcomers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_client_gets_settings_before_the_registry_provides_them() {
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
