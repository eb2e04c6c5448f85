//! The state of the control plane and its lock.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use aulos_config::ResolvedConfig;
use aulos_io::mdns::DiscoveredServer;
use tokio::sync::{Notify, mpsc, watch};

use super::access_log::AccessLog;
use super::announcement_list::AnnouncementList;
use super::art::ArtCache;
use super::counters::Counters;
use super::event_history::EventHistory;
use super::event_log::LogLimit;
use super::greetings::GreetingSync;
use super::history_sampler::{HistoryRequest, HistorySampler};
use super::listener_table::ListenerTable;
use super::long_calls::LongCalls;
use super::outbox::Outbox;
use super::peers::Peers;
use super::pending_update::PendingUpdate;
use super::relay_watch::RelayWatch;
use super::run_statistics::RunStatistics;
use super::settings_sync::SettingsSync;
use super::station_slot::StationSlot;
use crate::access::{AccessControl, AddressBuckets};
use crate::backend::{AudioBackend, KickReason, RelayControl, StationStatus};
use crate::cluster::ClusterLink;
use crate::hooks::Hooks;
use crate::refusals::RefusalFilter;
use crate::registry::Registry;

/// The monotonic clock of the control plane.
pub type Clock = Box<dyn Fn() -> Instant + Send + Sync>;

/// The control plane. All methods take `&self` and return at once.
pub struct Control {
    /// Replaced as a whole by a reload.
    pub(super) resolved: Mutex<Arc<ResolvedConfig>>,
    pub(super) config_loader: ConfigLoader,
    pub(super) discovered_servers: watch::Receiver<Vec<DiscoveredServer>>,
    /// The other nodes of its cluster, if it is in one.
    pub(super) cluster: Option<Arc<dyn ClusterLink>>,
    pub(super) tasks_changed: Notify,
    pub(super) backend: Arc<dyn AudioBackend>,
    pub(super) host: HostInfo,
    /// The base URL of pictures: `http://HOST:PORT`.
    pub(super) base_url: String,
    /// Requests to the history, if one is kept.
    pub(super) history: Option<mpsc::Sender<HistoryRequest>>,
    pub(super) clock: Clock,
    pub(super) started: Instant,
    pub(super) inner: Mutex<ControlState>,
    /// The order of calls whose work grows with the number of clients; separate from the lock of
    /// the state.
    pub(super) long_calls: LongCalls,
    /// Web listeners, and the log of those that have ended.
    pub(super) listeners: ListenerTable,
    pub(super) access_log: AccessLog,
    /// Relays are independent of stations.
    pub(super) relays: Mutex<Box<dyn RelayControl>>,
    pub(super) relay_watch: Mutex<RelayWatch>,
    /// Incremented with every change that a page shows.
    pub(super) revision: watch::Sender<u64>,
    /// Users and permissions.
    pub access: AccessControl,
    /// Event hooks.
    pub hooks: Hooks,
    /// Connections and requests that were cut or refused.
    pub counters: Counters,
    /// The newest events.
    pub(super) events: EventHistory,
    pub(super) log_limit: LogLimit,
    pub(super) refused_clients: RefusalFilter<KickReason>,
    pub(super) statistics: RunStatistics,
}

#[derive(Debug)]
pub(super) struct ControlState {
    pub(super) registry: Registry,
    pub(super) peers: Peers,
    pub(super) outbox: Outbox,
    pub(super) greetings: GreetingSync,
    pub(super) settings: SettingsSync,
    pub(super) history: HistorySampler,
    /// Rate limit for unknown clients, per address: ids are free to invent, and each one is
    /// remembered.
    pub(super) new_clients: AddressBuckets,
    /// Indexed by station number; none where a station was removed.
    pub(super) slots: Vec<Option<StationSlot>>,
    pub(super) art: ArtCache,
    pub(super) announcements: AnnouncementList,
    /// Each station's status at the last notification, without levels and times.
    pub(super) last_shown: Vec<StationStatus>,
    /// A new client has connected and controllers have not been notified yet. At startup a thousand
    /// clients may connect at once, and one full status for each would delay them all.
    pub(super) update_pending: PendingUpdate,
    /// The time of the first client health report that pages have not shown yet.
    pub(super) health_changed_at: Option<Instant>,
    /// When browsers that are gone were last looked for.
    pub(super) browsers_checked_at: Instant,
    /// The time of the oldest unsaved change.
    pub(super) unsaved_since: Option<Instant>,
    /// Former names of methods whose use has been logged.
    pub(super) logged_aliases: BTreeSet<&'static str>,
    /// Control scripts that calls have named since the start.
    pub(super) named_plugins: u64,
    /// Bytes of JSON rendered since the start, in answers and notifications; the cost of a batch is
    /// measured with it.
    pub(super) rendered_bytes: usize,
}

/// Reads the configuration again; the error is the text that `aulos check` prints.
pub type ConfigLoader = Box<dyn Fn() -> Result<ResolvedConfig, String> + Send + Sync>;

/// The machine that the server runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostInfo {
    /// Its host name.
    pub name: String,
    /// Its operating system.
    pub os: String,
    /// Its processor.
    pub arch: String,
}

impl HostInfo {
    /// Reads it from the system.
    #[must_use]
    pub fn of_machine() -> Self {
        let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
        let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
        Self {
            name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            os: pretty.unwrap_or(std::env::consts::OS).trim_matches('"').to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
        }
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("counters", &self.counters).finish_non_exhaustive()
    }
}

impl Control {
    /// A poisoned lock is taken all the same: the panic has been logged, and the state is
    /// consistent enough to continue.
    pub(super) fn lock(&self) -> MutexGuard<'_, ControlState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
