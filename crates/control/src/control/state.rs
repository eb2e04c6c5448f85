//! The state of the control plane and its lock.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use aulos_config::ResolvedConfig;
use aulos_io::mdns::DiscoveredServer;
use tokio::sync::{Notify, mpsc, watch};

use crate::access::{AccessControl, AddressBuckets};
use crate::announcements::list::AnnouncementList;
use crate::backend::{AudioBackend, KickReason, RelayControl, StationStatus};
use crate::clients::greetings::GreetingSync;
use crate::clients::outbox::Outbox;
use crate::clients::registry::Registry;
use crate::cluster::ClusterLink;
use crate::cluster::settings_sync::SettingsSync;
use crate::control::counters::Counters;
use crate::events::history::EventHistory;
use crate::history::sampler::{HistoryRequest, HistorySampler};
use crate::hooks::Hooks;
use crate::listeners::access_log::AccessLog;
use crate::listeners::table::ListenerTable;
use crate::peers::Peers;
use crate::peers::long_calls::LongCalls;
use crate::peers::pending_update::PendingUpdate;
use crate::refusals::RefusalFilter;
use crate::relays::watch::RelayWatch;
use crate::stations::art::ArtCache;
use crate::stations::event_log::LogLimit;
use crate::stations::slot::StationSlot;
use crate::views::run_statistics::RunStatistics;

/// The monotonic clock of the control plane.
pub type Clock = Box<dyn Fn() -> Instant + Send + Sync>;

/// The control plane. All methods take `&self` and return at once.
pub struct Control {
    /// Replaced as a whole by a reload.
    pub(crate) resolved: Mutex<Arc<ResolvedConfig>>,
    pub(crate) config_loader: ConfigLoader,
    pub(crate) discovered_servers: watch::Receiver<Vec<DiscoveredServer>>,
    /// The other nodes of its cluster, if it is in one.
    pub(crate) cluster: Option<Arc<dyn ClusterLink>>,
    pub(crate) tasks_changed: Notify,
    pub(crate) backend: Arc<dyn AudioBackend>,
    pub(crate) host: HostInfo,
    /// The base URL of pictures: `http://HOST:PORT`.
    pub(crate) base_url: String,
    /// Requests to the history, if one is kept.
    pub(crate) history: Option<mpsc::Sender<HistoryRequest>>,
    pub(crate) clock: Clock,
    pub(crate) started: Instant,
    pub(crate) inner: Mutex<ControlState>,
    /// The order of calls whose work grows with the number of clients; separate from the lock of
    /// the state.
    pub(crate) long_calls: LongCalls,
    /// Web listeners, and the log of those that have ended.
    pub(crate) listeners: ListenerTable,
    pub(crate) access_log: AccessLog,
    /// Relays are independent of stations.
    pub(crate) relays: Mutex<Box<dyn RelayControl>>,
    pub(crate) relay_watch: Mutex<RelayWatch>,
    /// Incremented with every change that a page shows.
    pub(crate) revision: watch::Sender<u64>,
    /// Users and permissions.
    pub access: AccessControl,
    /// Event hooks.
    pub hooks: Hooks,
    /// Connections and requests that were cut or refused.
    pub counters: Counters,
    /// The newest events.
    pub(crate) events: EventHistory,
    pub(crate) log_limit: LogLimit,
    pub(crate) refused_clients: RefusalFilter<KickReason>,
    pub(crate) statistics: RunStatistics,
}

#[derive(Debug)]
pub(crate) struct ControlState {
    pub(crate) registry: Registry,
    pub(crate) peers: Peers,
    pub(crate) outbox: Outbox,
    pub(crate) greetings: GreetingSync,
    pub(crate) settings: SettingsSync,
    pub(crate) history: HistorySampler,
    /// Rate limit for unknown clients, per address: ids are free to invent, and each one is
    /// remembered.
    pub(crate) new_clients: AddressBuckets,
    /// Indexed by station number; none where a station was removed.
    pub(crate) slots: Vec<Option<StationSlot>>,
    pub(crate) art: ArtCache,
    pub(crate) announcements: AnnouncementList,
    /// Each station's status at the last notification, without levels and times.
    pub(crate) last_shown: Vec<StationStatus>,
    /// A new client has connected and controllers have not been notified yet. At startup a thousand
    /// clients may connect at once, and one full status for each would delay them all.
    pub(crate) update_pending: PendingUpdate,
    /// The time of the first client health report that pages have not shown yet.
    pub(crate) health_changed_at: Option<Instant>,
    /// When browsers that are gone were last looked for.
    pub(crate) browsers_checked_at: Instant,
    /// The time of the oldest unsaved change.
    pub(crate) unsaved_since: Option<Instant>,
    /// Former names of methods whose use has been logged.
    pub(crate) logged_aliases: BTreeSet<&'static str>,
    /// Control scripts that calls have named since the start.
    pub(crate) named_plugins: u64,
    /// Bytes of JSON rendered since the start, in answers and notifications; the cost of a batch is
    /// measured with it.
    pub(crate) rendered_bytes: usize,
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
    pub(crate) fn lock(&self) -> MutexGuard<'_, ControlState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
