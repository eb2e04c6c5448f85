//! The thread of NATS, and the tasks on it.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aulos_config::source::NatsSource;
use aulos_config::{ClusterSettings, DEFAULT_SITE, NatsLogin, NatsServer};
use aulos_control::cluster::{ClusterHandle, ClusterState};
use aulos_core::Span;
use aulos_io::SystemClock;
use aulos_session::nats::{NatsInput, NatsInputConfig};
use aulos_session::snapcast::{PassConfig, SnapcastInputSink};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::edge::{NatsFeeder, Subjects, edge};
use super::link::{Link, LinkConfig};
use super::nodes::Nodes;
use super::origin::{Origin, answer_clock};
use super::replicas::BucketReplicas;
use super::settings::SettingsSharing;
use super::{NatsCounters, PublicationState, PublishedStation};

/// Publishes stations, and subscribes to those of other servers.
#[derive(Debug)]
pub(crate) struct NatsService {
    cluster: Option<ClusterSettings>,
    node: String,
    counters: Arc<NatsCounters>,
    thread: Option<NatsThread>,
    links: Vec<Arc<Link>>,
    /// The last epoch that was used.
    epoch: Arc<AtomicU32>,
    /// A random number of this process.
    process: u64,
    answers_clock: bool,
}

/// A thread with a runtime; there is none before the first use.
#[derive(Debug)]
struct NatsThread {
    runtime: Handle,
    stop: oneshot::Sender<()>,
    /// Tells origins that they are to give their leases back; each holds a clone of the sender.
    is_ending: Arc<AtomicBool>,
    origins: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl NatsService {
    pub(crate) fn new(cluster: Option<&ClusterSettings>) -> Self {
        let named = cluster.and_then(|cluster| cluster.node.clone());
        let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self {
            node: named.unwrap_or_else(host),
            cluster: cluster.cloned(),
            counters: Arc::default(),
            thread: None,
            links: Vec::new(),
            epoch: Arc::default(),
            process: RandomState::new().hash_one(std::process::id()),
            answers_clock: false,
        }
    }

    /// The counters, for the status.
    pub(crate) fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counters.named()
    }

    /// Publishes a station until its ring is abandoned.
    ///
    /// # Errors
    /// If the thread cannot be started, or there is no `cluster`.
    pub(crate) fn publish(&mut self, station: PublishedStation) -> io::Result<PublicationState> {
        let site = self.site();
        let link = self.link(None)?;
        let runtime = self.runtime()?;
        if !std::mem::replace(&mut self.answers_clock, true) {
            let counters = Arc::clone(&self.counters);
            runtime.spawn(answer_clock(
                Arc::clone(&link),
                site.clone(),
                self.node.clone(),
                counters,
            ));
        }
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.epoch.fetch_max(u32::try_from(seconds).unwrap_or(u32::MAX), Ordering::Relaxed);
        let state = PublicationState::default();
        let lease_ttl = self.cluster.as_ref().map_or(Span::ZERO, |cluster| cluster.lease_ttl);
        let Some(thread) = &self.thread else { return Err(io::Error::other("it has ended")) };
        let guard = thread.origins.clone();
        let origin = Origin {
            site,
            node: self.node.clone(),
            epoch: Arc::clone(&self.epoch),
            process: self.process,
            lease_ttl,
            replicas: self.replicas(),
            is_ending: Arc::clone(&thread.is_ending),
            state: state.clone(),
            counters: Arc::clone(&self.counters),
        };
        runtime.spawn(async move {
            origin.run(link, station).await;
            drop(guard);
        });
        Ok(state)
    }

    fn replicas(&self) -> BucketReplicas {
        BucketReplicas(self.cluster.as_ref().and_then(|cluster| cluster.replicas))
    }

    /// Joins the nodes of the cluster; `None` without one. To be called once.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn join(&mut self) -> io::Result<Option<ClusterHandle>> {
        let Some(cluster) = &self.cluster else { return Ok(None) };
        let state = ClusterState {
            site: self.site(),
            node: self.node.clone(),
            process: self.process,
            is_connected: false,
        };
        let shares_settings = cluster.share_settings;
        let replicas = self.replicas();
        let link = self.link(None)?;
        let runtime = self.runtime()?;
        let counters = || Arc::clone(&self.counters);
        let settings = shares_settings.then(|| {
            let (sharing, settings) =
                SettingsSharing::new(state.site.clone(), replicas, counters());
            runtime.spawn(sharing.run(Arc::clone(&link)));
            settings
        });
        let (nodes, handle) = Nodes::new(state, settings, counters());
        runtime.spawn(nodes.run(link));
        Ok(Some(handle))
    }

    /// A feeder of a station that another server publishes.
    ///
    /// # Errors
    /// If the thread cannot be started, or there is no server to connect to.
    pub(crate) fn subscribe(
        &mut self,
        source: &NatsSource,
        (sink, pass): (SnapcastInputSink, Option<PassConfig>),
        seed: u64,
    ) -> io::Result<NatsFeeder> {
        let site = source.site.clone().unwrap_or_else(|| self.site());
        let link = self.link(source.server.as_ref())?;
        let runtime = self.runtime()?;
        let config = NatsInputConfig { latency: source.latency, pass, seed };
        let input = NatsInput::new(config, sink, SystemClock::now());
        let (feeder, port) = NatsFeeder::new(input, Arc::clone(&self.counters));
        let subjects = Subjects { site, station: source.station.clone() };
        runtime.spawn(edge(link, subjects, port, Arc::clone(&self.counters)));
        Ok(feeder)
    }

    /// Ends the thread and all connections, after leases were given back.
    pub(crate) fn stop(&mut self) {
        if let Some(NatsThread { stop, thread, is_ending, origins, .. }) = self.thread.take() {
            is_ending.store(true, Ordering::Relaxed);
            drop(origins);
            // It is over already if this fails.
            stop.send(()).ok();
            // The panic message of the thread is already on standard error.
            drop(thread.join());
        }
    }

    fn site(&self) -> String {
        let site = self.cluster.as_ref().map(|cluster| cluster.site.clone());
        site.unwrap_or_else(|| DEFAULT_SITE.to_owned())
    }

    /// The connection to a server. If it is one of the cluster, it is the cluster's connection,
    /// with its login; other servers never get that.
    fn link(&mut self, server: Option<&NatsServer>) -> io::Result<Arc<Link>> {
        let is_own = |cluster: &&ClusterSettings| {
            server.is_none_or(|server| {
                cluster.servers.iter().any(|own| own.address == server.address)
            })
        };
        let config = match (self.cluster.as_ref().filter(is_own), server) {
            (Some(cluster), _) => LinkConfig {
                servers: cluster.servers.clone(),
                login: cluster.login.clone(),
                ca: cluster.ca.clone(),
                name: format!("aulos {}", self.node),
            },
            (None, Some(server)) => LinkConfig {
                servers: vec![server.clone()],
                login: NatsLogin::Anonymous,
                ca: self.cluster.as_ref().and_then(|cluster| cluster.ca.clone()),
                name: format!("aulos {}", self.node),
            },
            (None, None) => return Err(io::Error::other("it requires the table `cluster`")),
        };
        if let Some(link) = self.links.iter().find(|link| link.config == config) {
            return Ok(Arc::clone(link));
        }
        let link = Arc::new(Link::new(config, Arc::clone(&self.counters)));
        self.links.push(Arc::clone(&link));
        Ok(link)
    }

    fn runtime(&mut self) -> io::Result<Handle> {
        if let Some(thread) = &self.thread {
            return Ok(thread.runtime.clone());
        }
        let runtime =
            Builder::new_current_thread().enable_all().max_blocking_threads(LOOKUPS).build()?;
        let (stop, stopped) = oneshot::channel();
        let (origins, mut running) = mpsc::channel(1);
        let handle = runtime.handle().clone();
        let thread =
            std::thread::Builder::new().name("aulos-nats".to_owned()).spawn(move || {
                // An error is a sender that was dropped.
                runtime.block_on(stopped).ok();
                // Until every origin has dropped its sender; one that still connects has no lease.
                let ended = runtime.block_on(async { timeout(END, running.recv()).await });
                drop(ended);
                runtime.shutdown_background();
            })?;
        self.thread = Some(NatsThread {
            runtime: handle.clone(),
            stop,
            is_ending: Arc::default(),
            origins,
            thread,
        });
        Ok(handle)
    }
}

/// How long the end of the server waits for leases to be given back.
const END: Duration = Duration::from_millis(500);

/// Threads that look up names and read certificates while a connection is made.
const LOOKUPS: usize = 2;
