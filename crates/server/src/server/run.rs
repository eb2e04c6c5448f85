//! The control plane while it runs: its tasks, and the order in which they start and end.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use aulos_config::ResolvedConfig;
use aulos_control::backend::{AudioBackend, ListenPolicy, ListenSink, ReactorEvent, RelayControl};
use aulos_control::cluster::{ClusterHandle, StatusRequest};
use aulos_control::{
    Clock, ConfigLoader, Control, ControlOptions, ControlParts, HISTORY_QUEUE, HostInfo,
    SOUND_START_STEP, SOUND_START_TIME, TICK, registry_for, serve_cluster, start_sounds,
};
use aulos_core::{Instant, Span};
use aulos_io::SystemClock;
use aulos_io::mdns::DiscoveredServer;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use super::bind::{ControlPlaneSockets, listen_policy};
use super::metadata::MetadataTasks;
use super::persist::{load_state, save_changes};
use super::server_id::server_id;
use crate::saver::Saver;
use crate::sendspin::{self, SendspinPort};
use crate::systemd::{Liveness, Supervisor};
use crate::{codec_panics, history, hook_runner, http, icecast, input_budget, mqtt, tcp};

/// The running audio side, for [`run`].
pub struct AudioHandles {
    /// Commands and status.
    pub backend: Arc<dyn AudioBackend>,
    /// Takes over web listeners.
    pub listen_sink: Arc<dyn ListenSink>,
    /// Receiver of audio events; a queue of [`EVENT_QUEUE`](aulos_control::backend::EVENT_QUEUE).
    pub events: mpsc::Receiver<ReactorEvent>,
    /// Address for Snapcast clients; `None` without such a port.
    pub stream: Option<SocketAddr>,
}

impl std::fmt::Debug for AudioHandles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Audio").field("stream", &self.stream).finish_non_exhaustive()
    }
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
    /// Sendspin players on the network.
    pub players: watch::Receiver<Vec<DiscoveredServer>>,
    /// The other nodes of the cluster, if there is one.
    pub cluster: Option<ClusterHandle>,
}

impl std::fmt::Debug for ServerContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerContext")
            .field("supervisor", &self.supervisor)
            .finish_non_exhaustive()
    }
}

/// Runs the control plane until `stop`, and saves what changed.
///
/// # Errors
/// When the runtime cannot register the ports.
pub async fn run(
    resolved: Arc<ResolvedConfig>,
    bound: ControlPlaneSockets,
    audio: AudioHandles,
    outside: ServerContext,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let AudioHandles { backend: audio, listen_sink: listen, mut events, stream: _ } = audio;
    let (dir, settings) = (resolved.state_dir.clone(), resolved.history);
    let sendspin = SendspinPort::of(&resolved, bound.sendspin, outside.players);
    let ServerContext {
        reload_config, mut reload_requests, supervisor, neighbors, cluster, ..
    } = outside;
    let (cluster, nodes) = cluster.map(|ClusterHandle { link, requests }| (link, requests)).unzip();
    let history_requests = settings.enabled.then(|| mpsc::channel(HISTORY_QUEUE)).unzip();
    let id = server_id(&resolved.state_dir);
    let host = HostInfo { id, ..HostInfo::of_machine() };
    let options = ControlOptions {
        clock: Clock::default(),
        base_url: Some(base_url(&host, bound.http_address)),
        discovered_servers: neighbors,
        cluster,
        history: history_requests.0.clone(),
        config_loader: reload_config,
    };
    let parts = control_parts(resolved, Arc::clone(&audio), Box::new(bound.relays), host);
    let control = Arc::new(Control::new(parts, options));
    let (policy_sender, policy) = watch::channel(bound.listen_policy);
    if let Some(requests) = history_requests.1 {
        history::spawn(dir.clone(), settings, &control, requests)?;
    }
    let mut configured = ConfiguredTasks::new(bound.http_address.port());
    configured.update(&control).await;
    let listeners = [bound.control, bound.http];
    let tasks = spawn_servers(listeners, (nodes, sendspin), &control, &audio, listen, policy)?;
    let (last_save, stopped) = oneshot::channel();
    let saver = tokio::spawn(save_changes(Arc::clone(&control), Saver::start(dir)?, stopped));
    start_blocking_threads(&control.config());
    let mut ticks = ControlTicks::new();
    tokio::pin!(stop);
    supervisor.notify_ready(&summary(&control));
    let mut heartbeat = Heartbeat::new(&supervisor);
    loop {
        tokio::select! {
            () = &mut stop => break,
            // In this loop and not in a task of its own, because the heartbeat proves that the loop
            // runs.
            () = heartbeat.due() => heartbeat.beat(&control, &supervisor),
            () = ticks.work(&control) => {}
            Some(event) = events.recv() => handle_events(&control, event, &mut events).await,
            Some(()) = reload_requests.recv() => reload(&control, &supervisor),
            () = control.tasks_changed.notified() => {
                update_listen_policy(&control.config(), &*audio, &policy_sender);
                configured.update(&control).await;
            }
        }
    }
    supervisor.notify_stopping();
    tasks.iter().for_each(JoinHandle::abort);
    control.relays.end();
    let ConfiguredTasks { metadata, hooks, mut mqtt } = configured;
    mqtt.end();
    metadata.end_all().await;
    drop(last_save);
    // Neither a slow disk nor a slow hook delays the shutdown.
    let last_save = timeout(FINAL_SAVE_TIMEOUT, saver);
    tokio::join!(last_save, hooks.end(), history::finish(history_requests.0)).0.ok();
    Ok(())
}

/// When the control plane does its regular work.
struct ControlTicks {
    ticks: Interval,
    /// The start of sounds, for some time after a call that adds one.
    steps: Interval,
    steps_until: Instant,
}

impl ControlTicks {
    fn new() -> Self {
        let (ticks, steps) = (delayed_interval(TICK), delayed_interval(SOUND_START_STEP));
        Self { ticks, steps, steps_until: SystemClock::now() }
    }

    /// Waits for the next work, and does it. Nothing is lost if the future is dropped.
    async fn work(&mut self, control: &Control) {
        tokio::select! {
            _ = self.ticks.tick() => control.tick(),
            _ = self.steps.tick(), if SystemClock::now() < self.steps_until => {
                start_sounds(control);
            }
            () = control.sound_added.notified() => {
                self.steps_until = SystemClock::now() + SOUND_START_TIME;
            }
        }
    }
}

/// Tasks that follow the configuration.
struct ConfiguredTasks {
    metadata: MetadataTasks,
    hooks: hook_runner::HookRunner,
    mqtt: mqtt::MqttTask,
}

impl ConfiguredTasks {
    /// None yet; `port` is that of the page.
    fn new(port: u16) -> Self {
        let metadata = MetadataTasks::new(port);
        Self {
            metadata,
            hooks: hook_runner::HookRunner::default(),
            mqtt: mqtt::MqttTask::default(),
        }
    }

    /// Starts and ends tasks to match the configuration.
    async fn update(&mut self, control: &Arc<Control>) {
        self.metadata.update(control).await;
        self.hooks.update(&control.hooks).await;
        self.mqtt.update(control);
    }
}

/// Handles an event and those behind it, for a limited time: a burst of Hellos must not delay the
/// connections of others.
async fn handle_events(
    control: &Control,
    first: ReactorEvent,
    events: &mut mpsc::Receiver<ReactorEvent>,
) {
    let begin = SystemClock::now();
    control.handle_event(first);
    while SystemClock::now() - begin < EVENT_TIME
        && let Ok(event) = events.try_recv()
    {
        control.handle_event(event);
    }
    yield_now().await;
}

/// Writes the access log until the future is dropped.
async fn log_listeners(control: &Control) {
    control.listeners.write_access_log(|| control.config().http.access_log.clone()).await;
}

/// The running stations in one line.
fn summary(control: &Control) -> String {
    let stations = control.stations();
    let names: Vec<&str> = stations.iter().map(|station| &*station.name).collect();
    format!("{} station(s): {}", names.len(), names.join(", "))
}

/// As long as a usual long call.
const EVENT_TIME: Span = Span::from_millis(10);

/// Spawns the tasks of the control port, of live sources, of Sendspin, of the HTTP port, of the access log, of
/// panics of codec libraries and of the other nodes of a cluster.
fn spawn_servers(
    [controllers, browsers]: [TcpListener; 2],
    (nodes, sendspin): (Option<mpsc::Receiver<StatusRequest>>, Option<SendspinPort>),
    control: &Arc<Control>,
    audio: &Arc<dyn AudioBackend>,
    listen: Arc<dyn ListenSink>,
    policy: watch::Receiver<ListenPolicy>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let controllers = tokio::net::TcpListener::from_std(controllers)?;
    let browsers = tokio::net::TcpListener::from_std(browsers)?;
    let logging = Arc::clone(control);
    let players =
        sendspin.map(|port| sendspin::start(port, control, Arc::clone(&listen), policy.clone()));
    let mut tasks = vec![
        tokio::spawn(tcp::serve(controllers, Arc::clone(control), policy.clone())),
        tokio::spawn(icecast::serve(
            Arc::clone(control),
            Arc::clone(audio),
            Arc::clone(&listen),
            policy.clone(),
        )),
        tokio::spawn(http::serve(browsers, Arc::clone(control), listen, policy)),
        tokio::spawn(async move { log_listeners(&logging).await }),
        tokio::spawn(codec_panics::log_first_panics()),
        tokio::spawn(input_budget::release_freed_input()),
    ];
    tasks.extend(players.transpose()?.into_iter().flatten());
    tasks.extend(nodes.map(|nodes| tokio::spawn(serve_cluster(Arc::clone(control), nodes))));
    Ok(tasks)
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
        Err(failure) => {
            tracing::error!(
                error = failure.message,
                "cannot reload TLS; keeping the last certificate"
            );
        }
    }
}

/// What the control plane starts with: its registry, and the state that was saved.
fn control_parts(
    config: Arc<ResolvedConfig>,
    backend: Arc<dyn AudioBackend>,
    relays: Box<dyn RelayControl>,
    host: HostInfo,
) -> ControlParts {
    let registry = registry_for(&config, RandomState::new().hash_one(std::process::id()));
    let saved = load_state(&config.state_dir);
    ControlParts { config, backend, relays, host, registry, saved }
}

/// Reloads the configuration on a signal; errors are logged.
fn reload(control: &Control, supervisor: &Supervisor) {
    supervisor.notify_reloading();
    let status = match control.reload() {
        Ok(_) => summary(control),
        // The first line has the location.
        Err(problems) => {
            let first = problems.lines().next().unwrap_or_default();
            format!(
                "{}; reload failed, running with the last configuration: {first}",
                summary(control)
            )
        }
    };
    supervisor.notify_ready(&status);
}

/// Threads for blocking calls that the control thread must not make: the name lookup for a DJ's
/// port, and reading the files of pages and recordings.
pub(super) const BLOCKING_THREADS: usize = 1 + 2 * http::PAGE_READS;

/// Starts the blocking threads now and not while a programme runs: those for pages and recordings
/// only if there are any.
fn start_blocking_threads(resolved: &ResolvedConfig) {
    let has_records = resolved.stations.iter().any(|station| !station.records.is_empty());
    let readers = usize::from(resolved.http.doc_root.is_some()) + usize::from(has_records);
    let count = 1 + readers * http::PAGE_READS;
    // The runtime starts a thread only when none is idle, so all of them wait for the last.
    let all_here = Arc::new(Barrier::new(count));
    for _ in 0..count {
        let all_here = Arc::clone(&all_here);
        drop(tokio::task::spawn_blocking(move || all_here.wait()));
    }
}

/// Time for the last save: a server ends within a second.
const FINAL_SAVE_TIMEOUT: Duration = Duration::from_millis(500);

/// Base URL under which clients can fetch cover art.
fn base_url(host: &HostInfo, address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        format!("http://{}:{}", host.name, address.port())
    } else {
        format!("http://{address}")
    }
}
