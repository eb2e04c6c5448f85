//! The state of the control plane and its lock.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use aulos_config::ResolvedConfig;
use aulos_io::mdns::DiscoveredServer;
use tokio::sync::{Notify, Semaphore, mpsc, watch};

use super::clock::Clock;
use super::counters::Counters;
use super::host::HostInfo;
use crate::access::AccessControl;
use crate::announcements::Announcements;
use crate::backend::{AudioBackend, RelayControl};
use crate::clients::Clients;
use crate::clients::registry::Registry;
use crate::clients::registry::store::SavedState;
use crate::cluster::ClusterLink;
use crate::cluster::settings_sync::SettingsSync;
use crate::events::EventLog;
use crate::history::History;
use crate::history::sampler::HistoryRequest;
use crate::hooks::Hooks;
use crate::listeners::Listeners;
use crate::outside::Outside;
use crate::peers::Peers;
use crate::peers::long_calls::LongCalls;
use crate::peers::updates::{Updates, lock_peers};
use crate::relays::RelaySupervisor;
use crate::sendspin::{ArtworkRenditions, Rooms, SendspinTrust};
use crate::stations::Stations;
use crate::stations::mount_table::MountTable;
use crate::views::run_statistics::RunStatistics;

/// The control plane: a call or an event goes to its subject, and its effects to the outside. All
/// methods take `&self` and return at once.
pub struct Control {
    /// Replaced as a whole by a reload.
    pub(crate) resolved: Mutex<Arc<ResolvedConfig>>,
    /// Its mounts.
    pub(crate) mounts: Mutex<Arc<MountTable>>,
    pub(crate) config_loader: ConfigLoader,
    pub(crate) discovered_servers: watch::Receiver<Vec<DiscoveredServer>>,
    /// The other nodes of its cluster, if it is in one.
    pub(crate) cluster: Option<Arc<dyn ClusterLink>>,
    /// Notified when the tasks that run beside the control plane have to be updated: after a
    /// reload, and when a call adds or removes a stream with a control script.
    pub tasks_changed: Notify,
    /// Notified when a call adds an announcement or a play: [`start_sounds`](crate::start_sounds) is
    /// to be called often for [`SOUND_START_TIME`](crate::SOUND_START_TIME).
    pub sound_added: Notify,
    pub(crate) backend: Arc<dyn AudioBackend>,
    /// The machine that the server runs on.
    pub host: HostInfo,
    pub(crate) clock: Clock,
    pub(crate) started: Instant,
    pub(super) subjects: Mutex<Subjects>,
    pub(crate) peers: Mutex<Peers>,
    /// Held by whoever renders and sends notifications, so that they go out in their order.
    pub(super) delivery: Mutex<()>,
    /// Which Sendspin clients are let in.
    pub sendspin: SendspinTrust,
    /// The pictures that Sendspin clients show.
    pub artwork: ArtworkRenditions,
    /// The order of calls whose work grows with the number of clients.
    pub(super) long_calls: LongCalls,
    /// Incremented with every change that a page shows.
    pub(super) revision: watch::Sender<u64>,
    pub(crate) statistics: RunStatistics,
    /// Web listeners.
    pub listeners: Listeners,
    /// RTP relays.
    pub relays: RelaySupervisor,
    /// Users and permissions.
    pub access: AccessControl,
    /// Event hooks.
    pub hooks: Hooks,
    /// Connections and requests that were cut or refused.
    pub counters: Counters,
    /// The newest events.
    pub events: Arc<EventLog>,
    /// Limits the threads that read legal logs.
    pub(crate) log_reads: Arc<Semaphore>,
}

/// What changes under the lock, by subject. No subject knows another one; what it needs of others
/// is an argument.
#[derive(Debug)]
pub(crate) struct Subjects {
    pub(crate) clients: Clients,
    pub(crate) stations: Stations,
    pub(crate) announcements: Announcements,
    pub(crate) rooms: Rooms,
    pub(crate) shared_settings: SettingsSync,
    pub(crate) history: History,
    pub(crate) updates: Updates,
    /// The time of the oldest unsaved change.
    pub(crate) unsaved_since: Option<Instant>,
    /// Former names of methods whose use has been logged.
    pub(crate) logged_aliases: BTreeSet<&'static str>,
}

/// What a control plane is made of.
pub struct ControlParts {
    /// The configuration.
    pub config: Arc<ResolvedConfig>,
    /// The audio.
    pub backend: Arc<dyn AudioBackend>,
    /// The RTP relays.
    pub relays: Box<dyn RelayControl>,
    /// The machine.
    pub host: HostInfo,
    /// The clients and groups.
    pub registry: Registry,
    /// The saved state, which is restored.
    pub saved: SavedState,
}

/// What a control plane can do without.
pub struct ControlOptions {
    /// The clock.
    pub clock: Clock,
    /// The base URL of pictures, `http://HOST:PORT`; without it that of the configuration.
    pub base_url: Option<String>,
    /// Other servers on the network.
    pub discovered_servers: watch::Receiver<Vec<DiscoveredServer>>,
    /// The other nodes of its cluster.
    pub cluster: Option<Arc<dyn ClusterLink>>,
    /// Where the history is kept; without it there is none.
    pub history: Option<mpsc::Sender<HistoryRequest>>,
    /// Reads the configuration again.
    pub config_loader: ConfigLoader,
}

impl Default for ControlOptions {
    fn default() -> Self {
        Self {
            clock: Clock::default(),
            base_url: None,
            discovered_servers: watch::channel(Vec::new()).1,
            cluster: None,
            history: None,
            config_loader: Box::new(|| {
                Err("this server has no configuration file to read again".to_owned())
            }),
        }
    }
}

/// Reads the configuration again; the error is the text that `aulos check` prints.
pub type ConfigLoader = Box<dyn Fn() -> Result<ResolvedConfig, String> + Send + Sync>;

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("counters", &self.counters).finish_non_exhaustive()
    }
}

impl fmt::Debug for ControlParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlParts").field("host", &self.host).finish_non_exhaustive()
    }
}

impl fmt::Debug for ControlOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlOptions").field("base_url", &self.base_url).finish_non_exhaustive()
    }
}

impl Control {
    /// A poisoned lock is taken all the same: the panic has been logged, and the state is
    /// consistent enough to continue.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Subjects> {
        self.subjects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn peers(&self) -> MutexGuard<'_, Peers> {
        lock_peers(&self.peers)
    }

    /// What every subject may use.
    pub(crate) fn outside(&self) -> Outside<'_> {
        let Self { hooks, counters, clock, listeners, .. } = self;
        Outside { backend: &*self.backend, events: &self.events, hooks, counters, clock, listeners }
    }

    /// The configuration in use.
    #[must_use]
    pub fn config(&self) -> Arc<ResolvedConfig> {
        Arc::clone(&self.resolved.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
