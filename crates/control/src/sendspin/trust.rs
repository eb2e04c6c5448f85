//! Which Sendspin clients may speak, and with which key.
//!
//! Calls change it, and the connections read it; whoever keeps the file is told of each change.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use aulos_proto::sendspin::{Key, PairingToken, Psk, Trust};
use tokio::sync::watch;

/// What is known of Sendspin clients.
pub struct SendspinTrust {
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    records: BTreeMap<String, ClientRecord>,
    /// Tokens that an operator has entered and that have not been used.
    tokens: BTreeMap<String, Psk>,
    /// Clients that are connected and wait for an operator.
    waiting: BTreeMap<String, WaitingClient>,
}

/// What is kept of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a record of the file")]
pub struct ClientRecord {
    /// Its name when it was last here.
    pub name: String,
    /// An operator lets it in without pairing.
    pub is_approved: bool,
    /// The key of its pairing.
    pub paired: Option<Psk>,
}

/// A client that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what is shown of it")]
pub struct WaitingClient {
    /// Its name.
    pub name: String,
    /// Whether it lets itself be used without pairing.
    pub unpaired_access: bool,
}

impl Default for SendspinTrust {
    fn default() -> Self {
        Self { state: Mutex::default(), changed: watch::Sender::new(0) }
    }
}

impl fmt::Debug for SendspinTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendspinTrust").finish_non_exhaustive()
    }
}

impl SendspinTrust {
    /// Changes with every change of what is known.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// What is to be kept, by id.
    #[must_use]
    pub fn records(&self) -> BTreeMap<String, ClientRecord> {
        self.lock().records.clone()
    }

    /// Takes over what was kept.
    pub fn restore(&self, records: BTreeMap<String, ClientRecord>) {
        self.lock().records = records;
        self.note();
    }

    /// What is known of a client; whether it may speak without encryption is not.
    #[must_use]
    pub fn of(&self, client: &str) -> Trust {
        let state = self.lock();
        let record = state.records.get(client);
        Trust {
            paired: record.and_then(|record| record.paired),
            pairing: state.tokens.get(client).copied(),
            is_approved: record.is_some_and(|record| record.is_approved),
            allows_legacy: false,
        }
    }

    /// A client has been paired with this key. False without room for another client.
    pub fn set_paired(&self, client: &str, psk: Psk) -> bool {
        let mut state = self.lock();
        state.tokens.remove(client);
        let Some(record) = state.record(client) else { return false };
        record.paired = Some(psk);
        drop(state);
        self.note();
        true
    }

    /// A client is connected and waits, or does not any more.
    pub fn set_waiting(&self, client: &str, waiting: Option<WaitingClient>) {
        let mut state = self.lock();
        match waiting {
            Some(client_info) if state.waiting.len() < MAX_WAITING => {
                state.waiting.insert(client.to_owned(), client_info);
            }
            Some(_) => {}
            None => drop(state.waiting.remove(client)),
        }
    }

    /// The name of a client that has been let in.
    pub fn set_name(&self, client: &str, name: &str) {
        let mut state = self.lock();
        let Some(record) = state.records.get_mut(client) else { return };
        if record.name != name {
            name.clone_into(&mut record.name);
            drop(state);
            self.note();
        }
    }

    /// Lets a client in without pairing, or no more. False without room for another client.
    pub(crate) fn set_approved(&self, client: &str, is_approved: bool) -> bool {
        let mut state = self.lock();
        let name = state.waiting.get(client).map(|waiting| waiting.name.clone());
        let Some(record) = state.record(client) else { return false };
        record.is_approved = is_approved;
        if let Some(name) = name {
            record.name = name;
        }
        if !is_approved && record.paired.is_none() {
            state.records.remove(client);
        }
        drop(state);
        self.note();
        true
    }

    /// An operator has entered a token. False with too many that are not used.
    pub(crate) fn add_token(&self, token: &PairingToken) -> bool {
        let mut state = self.lock();
        let is_full = state.tokens.len() >= MAX_TOKENS;
        if is_full && !state.tokens.contains_key(&token.client.to_string()) {
            return false;
        }
        state.tokens.insert(token.client.to_string(), Psk(token.psk));
        drop(state);
        self.note();
        true
    }

    /// Forgets a client. False if it is not known.
    pub(crate) fn forget(&self, client: &str) -> bool {
        let mut state = self.lock();
        let was_known = state.records.remove(client).is_some();
        let had_token = state.tokens.remove(client).is_some();
        drop(state);
        self.note();
        was_known || had_token
    }

    /// Every client that is known or waits, for the status.
    pub(crate) fn list(&self) -> Vec<(String, ClientRecord, Option<WaitingClient>)> {
        let state = self.lock();
        let mut all: BTreeMap<_, _> =
            state.records.iter().map(|(id, record)| (id.clone(), (record.clone(), None))).collect();
        for (id, waiting) in &state.waiting {
            let entry = all.entry(id.clone()).or_default();
            entry.1 = Some(waiting.clone());
        }
        all.into_iter().map(|(id, (record, waiting))| (id, record, waiting)).collect()
    }

    fn note(&self) {
        self.changed.send_modify(|number| *number += 1);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The record of a client; a new one if there is room.
    fn record(&mut self, client: &str) -> Option<&mut ClientRecord> {
        if !self.records.contains_key(client) && self.records.len() >= MAX_RECORDS {
            return None;
        }
        Some(self.records.entry(client.to_owned()).or_default())
    }
}

/// Whether a text can be the id of a client whose key is known.
pub(crate) fn is_key(client: &str) -> bool {
    Key::parse(client).is_some()
}

/// Clients that are kept: more than a house has.
pub(crate) const MAX_RECORDS: usize = 1_024;
/// Tokens that are not used.
pub(crate) const MAX_TOKENS: usize = 64;
/// Clients that wait and are shown; anybody can connect.
const MAX_WAITING: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_approved_paired_and_forgotten() {
        let trust = SendspinTrust::default();
        let mut changes = trust.changes();
        let waiting = WaitingClient { name: "Kitchen".to_owned(), unpaired_access: true };
        trust.set_waiting("k", Some(waiting));
        assert!(!trust.of("k").is_approved);
        assert!(trust.set_approved("k", true) && trust.of("k").is_approved);
        assert!(changes.has_changed().unwrap());
        assert_eq!(trust.records()["k"].name, "Kitchen");
        changes.mark_unchanged();
        let token = PairingToken { client: Key([1; 32]), psk: [2; 32] };
        let id = token.client.to_string();
        assert!(trust.add_token(&token));
        assert_eq!(trust.of(&id).pairing, Some(Psk([2; 32])));
        assert!(trust.set_paired(&id, Psk([3; 32])));
        let known = trust.of(&id);
        assert_eq!((known.paired, known.pairing), (Some(Psk([3; 32])), None));
        // Approval that ends leaves nothing of a client that is not paired.
        assert!(trust.set_approved("k", false));
        assert_eq!(trust.list().len(), 2, "it is still connected");
        trust.set_waiting("k", None);
        assert_eq!(trust.list().len(), 1);
        assert!(trust.forget(&id) && !trust.forget(&id));
    }

    #[test]
    fn whoever_connects_takes_a_bounded_place() {
        let trust = SendspinTrust::default();
        for number in 0..10_000 {
            trust.set_waiting(&number.to_string(), Some(WaitingClient::default()));
            trust.set_approved(&number.to_string(), true);
        }
        assert_eq!(trust.records().len(), MAX_RECORDS);
        assert!(!trust.set_approved("one more", true));
    }
}
