//! The RTP relays, as the control plane sees them.

use aulos_config::RelaySettings;
use serde_json::{Value, json};

/// The running relays. The methods may wait some milliseconds for the threads of the relays, so
/// they are for the control thread and never for an audio thread.
pub trait RelayControl: Send {
    /// Starts a relay for an API call, without affecting others. Returns its listen address.
    ///
    /// # Errors
    /// The reason, in one line for users to read; no part of it runs then.
    fn add(&mut self, relay: &RelaySettings) -> Result<String, String>;

    /// Ends a relay: buffered packets are sent, its ports are freed. Returns false for an unknown
    /// name.
    fn remove(&mut self, name: &str) -> bool;

    /// Applies a reloaded configuration. Relays added by API calls stay, unless the configuration
    /// now has their name.
    fn reload(&mut self, wanted: &[RelaySettings]) -> RelayChanges;

    /// The running relays and their counters, in the format of `aulos relay --json`; with
    /// `streams`, each stream.
    fn json(&mut self, streams: bool) -> Value;

    /// Each relay with its totals, at most a second old, for frequent requests.
    fn summary(&mut self) -> Value;

    /// Collects streams that have ended, and balances the threads; does nothing within a second of
    /// the last call.
    fn maintain(&mut self);

    /// Ends everything: buffered packets are sent.
    fn end(&mut self);
}

/// Changes of relays by a reload, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayChanges {
    /// Added relays.
    pub added: Vec<String>,
    /// Relays with a changed configuration.
    pub changed: Vec<String>,
    /// Removed relays.
    pub removed: Vec<String>,
    /// Relays that failed to start, and why; an existing one continues unchanged.
    pub failed: Vec<String>,
}

impl RelayChanges {
    /// As control calls answer it.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "added": self.added,
            "changed": self.changed,
            "removed": self.removed,
            "failed": self.failed,
        })
    }
}
