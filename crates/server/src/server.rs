//! The running control plane: ports, tasks, and the order in which they start and end.

use std::fs::DirBuilder;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use aulos_config::{Endpoint, ListenEndpoints, Plugin, RelaySettings, ResolvedConfig, TitleFifo};
use aulos_io::mdns::DiscoveredServer;
use aulos_io::reactor::lengthen_backlog;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use crate::backend::{AudioBackend, AudioEvent, ListenPolicy, ListenSink};
use crate::control::{ConfigLoader, Control, HostInfo, TICK, plugin, registry_for, titles};
use crate::exit::{Exit, Failure};
use crate::registry::store::{self, LoadOutcome, SavedState};
use crate::relay::RelayManager;
use crate::saver::Saver;
use crate::systemd::{InheritedSockets, Liveness, Supervisor};
use crate::{control, hooks, http, icecast, tls};

/// The running audio side, for [`run`].
pub struct AudioHandles {
    /// Commands and status.
    pub backend: Arc<dyn AudioBackend>,
    /// Takes over web listeners.
    pub listen_sink: Arc<dyn ListenSink>,
    /// Receiver of audio events; a queue of [`EVENT_QUEUE`](crate::backend::EVENT_QUEUE).
    pub events: mpsc::Receiver<AudioEvent>,
    /// Address for Snapcast clients; `None` without such a port.
    pub stream: Option<SocketAddr>,
}

impl std::fmt::Debug for AudioHandles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Audio").field("stream", &self.stream).finish_non_exhaustive()
    }
}

/// The open ports of the control plane.
#[derive(Debug)]
pub struct BoundPorts {
    control: TcpListener,
    http: TcpListener,
    listen_policy: ListenPolicy,
    relays: RelayManager,
    /// Address for controllers.
    pub control_address: SocketAddr,
    /// Address for browsers.
    pub http_address: SocketAddr,
}

impl BoundPorts {
    /// Sets the policy for connections to these ports; the default accepts everything.
    #[must_use]
    pub fn with_listen_policy(self, policy: ListenPolicy) -> Self {
        Self { listen_policy: policy, ..self }
    }

    /// Starts these relays beside the control plane; by default there are none at the start.
    ///
    /// # Errors
    /// [`Exit::Unavailable`] or [`Exit::Permission`] when a port cannot be opened.
    pub fn with_relays(self, relays: &[RelaySettings]) -> Result<Self, Failure> {
        Ok(Self { relays: RelayManager::start(relays)?, ..self })
    }

    /// The relays.
    #[must_use]
    pub const fn relays(&self) -> &RelayManager {
        &self.relays
    }
}

/// The policy for connections. If TLS is not explicitly configured and no certificate can be had,
/// the server runs without TLS.
///
/// # Errors
/// [`Exit::Config`] when the configured TLS cannot be set up.
pub fn listen_policy(resolved: &ResolvedConfig) -> Result<ListenPolicy, Failure> {
    let security = &resolved.security;
    tls::listen_policy(&security.tls, security.limits, &resolved.state_dir).or_else(|error| {
        if security.tls.is_required() {
            return Err(Failure::new(Exit::Config, format!("TLS: {error}")));
        }
        tracing::warn!("there is no TLS: {error}");
        Ok(ListenPolicy { limits: security.limits, ..ListenPolicy::default() })
    })
}

/// Everything the control plane needs from the process that runs it.
pub struct ServerContext {
    /// Reads the configuration again.
    pub reload_config: ConfigLoader,
    /// Requests to read it again; never any if the sender is dropped.
    pub reload_requests: mpsc::Receiver<()>,
    /// The service manager to notify.
    pub supervisor: Supervisor,
    /// Other servers on the network.
    pub neighbors: watch::Receiver<Vec<DiscoveredServer>>,
}

impl std::fmt::Debug for ServerContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outside").field("supervisor", &self.supervisor).finish_non_exhaustive()
    }
}

/// Opens the ports except inherited ones; reports every port that cannot be opened, with a hint how
/// to choose another.
///
/// # Errors
/// [`Exit::Unavailable`], or [`Exit::Permission`] when none of them is allowed.
pub fn bind(listen: &ListenEndpoints, given: &mut InheritedSockets) -> Result<BoundPorts, Failure> {
    let control = bind_port("control", &listen.control, given);
    let http = bind_port("http", &listen.http, given);
    match (control, http) {
        (Ok((control, control_address)), Ok((http, http_address))) => {
            let (listen_policy, relays) = (ListenPolicy::default(), RelayManager::default());
            Ok(BoundPorts { control, http, listen_policy, relays, control_address, http_address })
        }
        (Err(first), Err(second)) => {
            let exit = if second.exit == Exit::Permission { first.exit } else { second.exit };
            Err(Failure::new(exit, format!("{}\n{}", first.message, second.message)))
        }
        (Err(failure), _) | (_, Err(failure)) => Err(failure),
    }
}

/// Opens one port of `[listen]`; `key` is its key there. An inherited port is open already.
///
/// # Errors
/// As [`bind`].
pub fn bind_port(
    key: &str,
    endpoint: &Endpoint,
    given: &mut InheritedSockets,
) -> Result<(TcpListener, SocketAddr), Failure> {
    let mut open = || {
        let listener = match given.take(key, endpoint.port) {
            Some(listener) => listener,
            None => {
                let addresses: Vec<_> =
                    (endpoint.host.as_str(), endpoint.port).to_socket_addrs()?.collect();
                TcpListener::bind(&addresses[..])?
            }
        };
        listener.set_nonblocking(true)?;
        lengthen_backlog(&listener)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    open().map_err(|error: io::Error| {
        let other = Endpoint { port: endpoint.port.saturating_add(1), ..endpoint.clone() };
        let free = Endpoint { port: 0, ..endpoint.clone() };
        let choose = format!(
            "    hint: choose another with --set listen.{key}={other}, or any free one with \
             --set listen.{key}={free}"
        );
        let (exit, fact) = match error.kind() {
            io::ErrorKind::AddrInUse => (Exit::Unavailable, "is in use by another program".into()),
            io::ErrorKind::PermissionDenied => {
                (Exit::Permission, "is not allowed: ports below 1024 are the system's".into())
            }
            io::ErrorKind::AddrNotAvailable => {
                (Exit::Unavailable, "is not an address of this machine".into())
            }
            _ => (Exit::Unavailable, format!("cannot be opened: {error}")),
        };
        Failure::new(exit, format!("the {key} port {endpoint} {fact}\n{choose}"))
    })
}

/// Creates the state directory, for this user alone, if it is missing.
///
/// # Errors
/// [`Exit::CannotCreate`] or [`Exit::Permission`].
pub fn make_state_dir(dir: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| {
        let denied = error.kind() == io::ErrorKind::PermissionDenied;
        let exit = if denied { Exit::Permission } else { Exit::CannotCreate };
        let hint = "choose another with --state-dir DIR";
        Failure::new(
            exit,
            format!("the state directory {}: {error}\n    hint: {hint}", dir.display()),
        )
    })
}

/// Runs the control plane until `stop`, and saves what changed.
///
/// # Errors
/// When the runtime cannot register the ports.
pub async fn run(
    resolved: Arc<ResolvedConfig>,
    bound: BoundPorts,
    audio: AudioHandles,
    outside: ServerContext,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let AudioHandles { backend, listen_sink: listen, mut events, stream: _ } = audio;
    let dir = resolved.state_dir.clone();
    let seed = RandomState::new().hash_one(std::process::id());
    let registry = registry_for(&resolved, seed);
    let saved = load_state(&dir);
    let host = HostInfo::of_machine();
    let base = base_url(&host, bound.http_address);
    let ServerContext { reload_config, mut reload_requests, supervisor, neighbors } = outside;
    let audio = Arc::clone(&backend);
    let control = Control::new(resolved, backend, host, registry, saved)
        .with_base_url(base)
        .with_config_loader(reload_config);
    let control = control.with_neighbours(neighbors).with_initial_relays(bound.relays);
    let (policy_sender, policy) = watch::channel(bound.listen_policy);
    let control = Arc::new(control);
    let mut metadata_tasks = MetadataTasks::new(bound.http_address.port());
    metadata_tasks.update(&control).await;
    let mut hooks = hooks::HookRunner::default();
    hooks.update(&control.hooks).await;
    let listeners = [bound.control, bound.http];
    let tasks = spawn_servers(listeners, &control, &audio, listen, policy)?;
    let (last_save, stopped) = oneshot::channel();
    let saver = tokio::spawn(save_changes(Arc::clone(&control), Saver::start(dir)?, stopped));
    start_blocking_threads(&control.config());
    let mut ticks = delayed_interval(TICK);
    tokio::pin!(stop);
    supervisor.notify_ready(&control.summary());
    let mut heartbeat = Heartbeat::new(&supervisor);
    loop {
        tokio::select! {
            () = &mut stop => break,
            // In this loop and not in a task of its own, because the heartbeat proves that the loop
            // runs.
            () = heartbeat.due() => heartbeat.beat(&control, &supervisor),
            _ = ticks.tick() => control.tick(),
            Some(event) = events.recv() => control.handle_event(event),
            Some(()) = reload_requests.recv() => reload(&control, &supervisor),
            () = control.wait_for_reload() => {
                update_listen_policy(&control.config(), &*audio, &policy_sender);
                metadata_tasks.update(&control).await;
                hooks.update(&control.hooks).await;
            }
        }
    }
    supervisor.notify_stopping();
    tasks.iter().for_each(JoinHandle::abort);
    control.end_relays();
    metadata_tasks.end_all().await;
    drop(last_save);
    // Neither a slow disk nor a slow hook delays the shutdown.
    tokio::join!(timeout(FINAL_SAVE_TIMEOUT, saver), hooks.end()).0.ok();
    Ok(())
}

/// Spawns the tasks of the control port, of live sources and of the HTTP port.
fn spawn_servers(
    [controllers, browsers]: [TcpListener; 2],
    control: &Arc<Control>,
    audio: &Arc<dyn AudioBackend>,
    listen: Arc<dyn ListenSink>,
    policy: watch::Receiver<ListenPolicy>,
) -> io::Result<[JoinHandle<()>; 3]> {
    let controllers = tokio::net::TcpListener::from_std(controllers)?;
    let browsers = tokio::net::TcpListener::from_std(browsers)?;
    Ok([
        tokio::spawn(control::tcp::serve(controllers, Arc::clone(control), policy.clone())),
        tokio::spawn(icecast::serve(
            Arc::clone(control),
            Arc::clone(audio),
            Arc::clone(&listen),
            policy.clone(),
        )),
        tokio::spawn(http::serve(browsers, Arc::clone(control), listen, policy)),
    ])
}

/// Sends watchdog heartbeats to the service manager, if it expects them.
struct Heartbeat {
    beats: Option<Interval>,
    liveness: Liveness,
}

impl Heartbeat {
    fn new(supervisor: &Supervisor) -> Self {
        Self { beats: supervisor.heartbeat().map(delayed_interval), liveness: Liveness::default() }
    }

    /// Waits for the next heartbeat; for ever, if none is expected.
    async fn due(&mut self) {
        match &mut self.beats {
            Some(beats) => drop(beats.tick().await),
            None => std::future::pending().await,
        }
    }

    fn beat(&mut self, control: &Control, supervisor: &Supervisor) {
        if self.liveness.check(control.positions()) {
            supervisor.notify_alive();
        }
    }
}

/// An interval without bursts after missed ticks: two checks in a row would find every station at
/// the same position.
fn delayed_interval(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Certificates are read again with every configuration, even under the same names: that is how
/// they are renewed.
fn update_listen_policy(
    resolved: &ResolvedConfig,
    audio: &dyn AudioBackend,
    policy_sender: &watch::Sender<ListenPolicy>,
) {
    match listen_policy(resolved) {
        Ok(policy) => {
            audio.set_listen_policy(&policy);
            policy_sender.send_replace(policy);
        }
        Err(failure) => tracing::error!("{}; the last certificate stays", failure.message),
    }
}

/// Reloads the configuration on a signal; errors are logged.
fn reload(control: &Control, supervisor: &Supervisor) {
    supervisor.notify_reloading();
    let status = match control.reload() {
        Ok(_) => control.summary(),
        // The first line has the location.
        Err(problems) => {
            let first = problems.lines().next().unwrap_or_default();
            format!("{}; the last configuration was not taken over: {first}", control.summary())
        }
    };
    supervisor.notify_ready(&status);
}

/// Tasks that provide stream metadata: control scripts, and readers of programs' titles.
struct MetadataTasks {
    running: Vec<(MetadataTask, JoinHandle<()>)>,
    port: u16,
}

/// A task, with its stream.
#[derive(Clone, PartialEq)]
enum MetadataTask {
    /// A control script, and the directory in which it is looked up.
    Script(String, Plugin, PathBuf),
    /// The FIFO of a program.
    Titles(String, TitleFifo),
}

impl MetadataTasks {
    const fn new(port: u16) -> Self {
        Self { running: Vec::new(), port }
    }

    /// Starts and ends tasks so that the configured ones run.
    async fn update(&mut self, control: &Arc<Control>) {
        let folder = control.config().streams.plugin_dir.clone();
        let script = |(stream, plugin)| MetadataTask::Script(stream, plugin, folder.clone());
        let titles = |(stream, titles)| MetadataTask::Titles(stream, titles);
        let mut wanted: Vec<MetadataTask> = control.scripts().into_iter().map(script).collect();
        wanted.extend(control.title_sources().into_iter().map(titles));
        let (stay, go) = std::mem::take(&mut self.running)
            .into_iter()
            .partition::<Vec<_>, _>(|(metadata_task, _)| wanted.contains(metadata_task));
        self.running = stay;
        for (metadata_task, task) in go {
            abort_and_wait(task).await;
            if let MetadataTask::Script(stream, ..) = metadata_task {
                control.plugin_ended(&stream);
            }
        }
        wanted.retain(|metadata_task| {
            !self.running.iter().any(|(running, _)| running == metadata_task)
        });
        for metadata_task in wanted {
            let control = Arc::clone(control);
            let task = match metadata_task.clone() {
                MetadataTask::Script(stream, plugin, _) => {
                    tokio::spawn(plugin::run(control, stream, plugin, self.port))
                }
                MetadataTask::Titles(stream, titles) => {
                    tokio::spawn(titles::run(control, stream, titles))
                }
            };
            self.running.push((metadata_task, task));
        }
    }

    async fn end_all(self) {
        for (_, task) in &self.running {
            task.abort();
        }
        for (_, task) in self.running {
            abort_and_wait(task).await;
        }
    }
}

/// A script is killed when its task is dropped, at the task's last await.
async fn abort_and_wait(task: JoinHandle<()>) {
    task.abort();
    task.await.ok();
}

/// Threads for blocking calls that the control thread must not make: the name lookup for a DJ's
/// port, and reading the pages' files.
pub const BLOCKING_THREADS: usize = 1 + http::PAGE_READS;

/// Starts the blocking threads now and not while a programme runs: those for pages only if there
/// are pages.
fn start_blocking_threads(resolved: &ResolvedConfig) {
    let count = if resolved.http.doc_root.is_some() { BLOCKING_THREADS } else { 1 };
    // The runtime starts a thread only when none is idle, so all of them wait for the last.
    let all_here = Arc::new(Barrier::new(count));
    for _ in 0..count {
        let all_here = Arc::clone(&all_here);
        drop(tokio::task::spawn_blocking(move || all_here.wait()));
    }
}

/// Delay of a save, to combine changes.
const SAVE_DELAY: Duration = Duration::from_secs(2);
/// Time for the last save: a server ends within a second.
const FINAL_SAVE_TIMEOUT: Duration = Duration::from_millis(500);

/// Saves changes until `stop`, and then the rest. The only writer of the file.
async fn save_changes(control: Arc<Control>, mut saver: Saver, mut stop: oneshot::Receiver<()>) {
    let dir = saver.dir().to_path_buf();
    let mut ticks = interval(SAVE_DELAY / 4);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut failing, mut last) = (false, false);
    while !last {
        let wait = tokio::select! {
            _ = ticks.tick() => SAVE_DELAY,
            _ = &mut stop => Duration::ZERO,
        };
        last = wait.is_zero();
        let Some(deadline) = Instant::now().checked_sub(wait) else { continue };
        let Some(snapshot) = control.take_unsaved(deadline) else { continue };
        // A disk may be slow; controllers do not wait for it.
        match saver.save(snapshot).await {
            Ok(()) => {
                if std::mem::take(&mut failing) {
                    tracing::info!("{}: groups and volumes are saved again", dir.display());
                }
            }
            Err(error) => {
                // It is tried again until it succeeds, and logged once.
                control.save_failed();
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(
                        "{}: groups and volumes could not be saved: {error}\n    hint: make room \
                         there, or let this user write there",
                        dir.display()
                    );
                }
            }
        }
    }
}

/// Base URL under which clients can fetch cover art.
fn base_url(host: &HostInfo, address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        format!("http://{}:{}", host.name, address.port())
    } else {
        format!("http://{address}")
    }
}

fn load_state(dir: &Path) -> SavedState {
    match store::load(dir) {
        Ok(LoadOutcome::Saved(saved)) => saved,
        Ok(LoadOutcome::Nothing) => SavedState::default(),
        Ok(LoadOutcome::Broken(previous)) => {
            let instead = fallback_note(previous.as_ref());
            tracing::warn!("server.json could not be read; it is now server.json.broken{instead}");
            previous.unwrap_or_default()
        }
        Ok(LoadOutcome::Unusable { why, aside, previous }) => {
            let instead = fallback_note(previous.as_ref());
            tracing::warn!("server.json is not used: {why}; it is kept as {aside}{instead}");
            previous.unwrap_or_default()
        }
        Err(error) => {
            tracing::warn!(%error, "server.json could not be read, nor put aside");
            SavedState::default()
        }
    }
}

const fn fallback_note(previous: Option<&SavedState>) -> &'static str {
    if previous.is_some() { ", and what it was before is used" } else { "" }
}
