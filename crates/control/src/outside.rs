//! What every subject may use besides its own state.

use crate::backend::AudioBackend;
use crate::control::clock::Clock;
use crate::control::counters::Counters;
use crate::events::EventLog;
use crate::hooks::Hooks;
use crate::listeners::Listeners;

/// The audio, the log, the hooks, the counters, the clock and the web listeners.
#[derive(Clone, Copy)]
pub(crate) struct Outside<'a> {
    pub(crate) backend: &'a dyn AudioBackend,
    pub(crate) events: &'a EventLog,
    pub(crate) hooks: &'a Hooks,
    pub(crate) counters: &'a Counters,
    pub(crate) clock: &'a Clock,
    pub(crate) listeners: &'a Listeners,
}
