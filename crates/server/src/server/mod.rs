//! The server as a library: [`Server::start`] runs one in this process, as many as wanted beside
//! each other.
//!
//! A server owns its threads, ports and state directory. What belongs to the process stays with the
//! program: signals, the log, the limit of open files, standard output.

mod bind;
mod metadata;
mod persist;
mod run;
mod server_id;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, io};

use aulos_config::{ListenEndpoints, ResolvedConfig, SourceConfig};
use aulos_control::ConfigLoader;
use aulos_control::backend::EVENT_QUEUE;
use aulos_io::mdns::{Announcer, Browser, DiscoveredServer, SNAPCAST_SERVICE};
use aulos_io::memory::map_large_allocations;
use aulos_proto::sendspin::CLIENT_SERVICE;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot, watch};

pub use self::bind::{ControlPlaneSockets, bind, bind_port, listen_policy, make_state_dir};
pub use self::run::{AudioHandles, ServerContext, run};
use crate::audio::Audio;
use crate::exit::{Exit, Failure};
use crate::mdns::{self, AnnouncedPlayer, AnnouncedPorts};
use crate::state_lock::{self, StateLock};
use crate::systemd::{InheritedSockets, Supervisor};

/// A server that has not been started: the parts of the process that it may use.
///
/// # Examples
/// ```no_run
/// use aulos_config::{Environment, load};
/// use aulos_server::server::Server;
///
/// // The embedded default: a FIFO, and a demo programme until something is written to it.
/// let config = load(None, &[], &Environment::of_process())?;
/// let server = Server::new().start(config)?;
/// println!("snapclient -h 127.0.0.1 -p {}", server.addresses().stream.port());
/// server.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a server runs only when it is started"]
pub struct Server {
    config_loader: ConfigLoader,
    supervisor: Supervisor,
    sockets: InheritedSockets,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("supervisor", &self.supervisor).finish_non_exhaustive()
    }
}

/// Connections that all ports accept at once, without Snapcast clients and listeners, which are
/// limited by address.
pub const MAX_PORT_CONNECTIONS: usize = 2 * crate::tcp::MAX_CONTROLLERS
    + crate::http::MAX_CONNECTIONS
    + crate::icecast::MAX_SOURCE_CLIENTS;

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

impl Server {
    /// A server without a service manager, without inherited sockets, whose configuration cannot be
    /// loaded again.
    pub fn new() -> Self {
        let no_file = || Err("this server was started without a configuration file".to_owned());
        Self {
            config_loader: Box::new(no_file),
            supervisor: Supervisor::default(),
            sockets: InheritedSockets::default(),
        }
    }

    /// Sets how [`ServerHandle::request_reload`] and the control API load the configuration again;
    /// the error is the message for the log and the caller.
    pub fn with_config_loader(
        self,
        loader: impl Fn() -> Result<ResolvedConfig, String> + Send + Sync + 'static,
    ) -> Self {
        Self { config_loader: Box::new(loader), ..self }
    }

    /// Reports readiness, reloads and the watchdog's heartbeat to this service manager.
    pub fn with_supervisor(self, supervisor: Supervisor) -> Self {
        Self { supervisor, ..self }
    }

    /// Uses these listening sockets where the configuration names their ports; the others are
    /// closed.
    pub fn with_inherited_sockets(self, sockets: InheritedSockets) -> Self {
        Self { sockets, ..self }
    }

    /// Opens the ports, locks the state directory, and runs the configuration on threads of its
    /// own until [`ServerHandle::stop`]. The ports accept connections when this returns.
    ///
    /// # Errors
    /// [`Exit::Unavailable`] or [`Exit::Permission`] for a port; [`Exit::CannotCreate`] or
    /// [`Exit::Permission`] for the state directory, [`Exit::Unavailable`] when another server uses
    /// it; [`Exit::Config`] for a configured certificate; [`Exit::Internal`] when the system
    /// refuses a thread.
    pub fn start(mut self, config: ResolvedConfig) -> Result<ServerHandle, Failure> {
        if !map_large_allocations() {
            tracing::debug!("cannot set the allocator's mmap threshold");
        }
        let (bound, lock) = self.open(&config)?;
        let (listener, stream) = bind_port("stream", &config.listen.stream, &mut self.sockets)?;
        let bound = bound.with_sendspin(config.sendspin.as_ref(), &mut self.sockets)?;
        self.sockets.close_unused();
        let bound = bound.with_relays(&config.relays)?;
        let config = Arc::new(config);
        let (events, event_receiver) = mpsc::channel(EVENT_QUEUE);
        let audio = Audio::start(&config, listener, bound.listen_policy(), events);
        let audio = Arc::new(audio.map_err(internal)?);
        let addresses = Addresses {
            stream,
            control: bound.control_address,
            http: bound.http_address,
            sendspin: bound.sendspin_address,
            relays: bound.relays().addresses(),
            has_tls: bound.listen_policy().tls.is_some(),
        };
        let (stop, stopped) = oneshot::channel();
        let (reload, reload_requests) = mpsc::channel(1);
        let (alive, ended) = oneshot::channel();
        let control_plane = ControlPlane {
            config,
            bound,
            audio,
            event_receiver,
            stream,
            config_loader: self.config_loader,
            supervisor: self.supervisor,
            reload_requests,
        };
        let thread = thread::Builder::new()
            .name("aulos-control".to_owned())
            .spawn(move || {
                // Held until the end, also when it panics.
                let _held = (lock, alive);
                control_plane.run(stopped)
            })
            .map_err(internal)?;
        Ok(ServerHandle { addresses, reload, stop: Some(stop), ended, thread: Some(thread) })
    }

    /// Opens the ports of controllers and browsers, and locks the state directory.
    fn open(
        &mut self,
        config: &ResolvedConfig,
    ) -> Result<(ControlPlaneSockets, StateLock), Failure> {
        let listen: &ListenEndpoints = &config.listen;
        let bound = bind(listen, &mut self.sockets)?;
        let dir: &Path = &config.state_dir;
        make_state_dir(dir)?;
        let lock = state_lock::lock(dir)?;
        Ok((bound.with_listen_policy(listen_policy(config)?), lock))
    }
}

/// Where a running server is reached.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// Snapcast clients.
    pub stream: SocketAddr,
    /// Controllers: JSON-RPC over TCP.
    pub control: SocketAddr,
    /// Browsers: page, JSON-RPC over HTTP and WebSocket, audio over HTTP.
    pub http: SocketAddr,
    /// Sendspin players, if they are served.
    pub sendspin: Option<SocketAddr>,
    /// The relays of the configuration: name, listening address, destination.
    pub relays: Vec<(String, String, String)>,
    /// Whether the ports speak TLS.
    pub has_tls: bool,
}

/// A running server. Dropping the handle stops it as [`stop`](Self::stop) does.
#[derive(Debug)]
pub struct ServerHandle {
    addresses: Addresses,
    reload: mpsc::Sender<()>,
    stop: Option<oneshot::Sender<()>>,
    ended: oneshot::Receiver<()>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl ServerHandle {
    /// The addresses, with the port that the system chose where the configuration says 0.
    #[must_use]
    pub const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Requests a reload of the configuration. Its outcome goes to the log and to the service
    /// manager; after an invalid configuration the running one stays.
    pub fn request_reload(&self) {
        // A full queue holds a request that will see this change as well.
        self.reload.try_send(()).ok();
    }

    /// Waits until the server has ended by itself, which it does only after an internal error;
    /// [`stop`](Self::stop) then returns that error.
    pub async fn wait_until_ended(&mut self) {
        (&mut self.ended).await.ok();
    }

    /// Stops the server: withdraws the announcement, saves the state, ends hooks, clients, stations
    /// and recordings. Takes a second at most, however slow the disk is.
    ///
    /// # Errors
    /// [`Exit::Internal`] when the server had ended by itself.
    pub fn stop(mut self) -> Result<(), Failure> {
        self.join()
    }

    fn join(&mut self) -> Result<(), Failure> {
        drop(self.stop.take());
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let panicked = |_| io::Error::other("the control plane panicked");
        thread.join().map_err(panicked).flatten().map_err(internal)
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        if let Err(failure) = self.join() {
            tracing::error!("{}", failure.message);
        }
    }
}

/// What the control thread owns.
struct ControlPlane {
    config: Arc<ResolvedConfig>,
    bound: ControlPlaneSockets,
    audio: Arc<Audio>,
    event_receiver: mpsc::Receiver<aulos_control::backend::ReactorEvent>,
    stream: SocketAddr,
    config_loader: ConfigLoader,
    supervisor: Supervisor,
    reload_requests: mpsc::Receiver<()>,
}

impl ControlPlane {
    /// The runtime is made and dropped on this thread: a program may start and stop servers in an
    /// asynchronous context, where no runtime may be dropped.
    fn run(self, stopped: oneshot::Receiver<()>) -> io::Result<()> {
        let audio = Arc::clone(&self.audio);
        let result = control_runtime().and_then(|runtime| {
            let result = runtime.block_on(self.control(stopped));
            // A task that blocks on a slow disk must not delay the end.
            runtime.shutdown_background();
            result
        });
        audio.stop();
        result
    }

    async fn control(self, stopped: oneshot::Receiver<()>) -> io::Result<()> {
        let ports = announced_ports(&self.config, &self.bound, self.stream);
        let audio = AudioHandles {
            backend: Arc::clone(&self.audio) as _,
            listen_sink: Arc::clone(&self.audio) as _,
            events: self.event_receiver,
            stream: Some(self.stream),
        };
        let (server_list, neighbors) = watch::channel(Vec::new());
        let (player_list, players) = watch::channel(Vec::new());
        let finds_players = self.config.sendspin.as_ref().is_some_and(|settings| settings.discover);
        let context = ServerContext {
            reload_config: self.config_loader,
            reload_requests: self.reload_requests,
            supervisor: self.supervisor,
            neighbors,
            players,
            cluster: self.audio.join_cluster(),
        };
        let mut announcer = mdns::start(&self.config.mdns, ports);
        let stop = async move {
            tokio::select! {
                _ = stopped => {}
                () = report_mdns(announcer.as_mut(), server_list, (finds_players, player_list)) => {}
            }
            // The announcement is withdrawn first, so that no new client connects to a stopping
            // server.
            if let Some(announcer) = announcer {
                announcer.stop();
            }
        };
        run(self.config, self.bound, audio, context, stop).await
    }
}

/// The runtime of the control plane: one thread, and a fixed number of threads for blocking work.
fn control_runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name("aulos-blocking")
        // The threads exist from start to end, so that their number does not change while the
        // server runs.
        .max_blocking_threads(run::BLOCKING_THREADS)
        .thread_keep_alive(Duration::MAX)
        .build()
}

/// Logs mDNS name changes and publishes the list of other servers. Never returns.
async fn report_mdns(
    announcer: Option<&mut Announcer>,
    server_list: watch::Sender<Vec<DiscoveredServer>>,
    (finds_players, player_list): (bool, watch::Sender<Vec<DiscoveredServer>>),
) {
    let Some(announcer) = announcer else { return std::future::pending().await };
    let mut browser = announcer.browse(SNAPCAST_SERVICE);
    let mut players = finds_players.then(|| announcer.browse(CLIENT_SERVICE)).flatten();
    let mut reported = Vec::new();
    let mut ticks = tokio::time::interval(MDNS_POLL_INTERVAL);
    loop {
        ticks.tick().await;
        mdns::report(announcer, &mut reported);
        if let Some(neighbors) = browser.as_mut().and_then(Browser::poll) {
            server_list.send_replace(neighbors);
        }
        if let Some(found) = players.as_mut().and_then(Browser::poll) {
            player_list.send_replace(found);
        }
    }
}

/// Interval of mDNS polls; a name conflict is not urgent.
const MDNS_POLL_INTERVAL: Duration = Duration::from_secs(1);

fn announced_ports(
    config: &ResolvedConfig,
    bound: &ControlPlaneSockets,
    stream: SocketAddr,
) -> AnnouncedPorts {
    let tls = &config.security.tls;
    AnnouncedPorts {
        stream: Some(stream),
        control: bound.control_address,
        http: bound.http_address,
        sendspin: bound.sendspin_address,
        players: announced_players(config),
        plain: !tls.require,
        secure: tls.enabled && tls.is_required(),
    }
}

/// Sources of the configuration that wait for Sendspin servers.
fn announced_players(config: &ResolvedConfig) -> Vec<AnnouncedPlayer> {
    let all = config.stations.iter().flat_map(|station| {
        station.sources.iter().filter_map(|source| {
            let SourceConfig::Sendspin(player) = &source.config else { return None };
            let listen = Some(&player.address).filter(|_| player.listens)?;
            Some(AnnouncedPlayer {
                name: player.player.clone().unwrap_or_else(|| station.name.clone()),
                listen: SocketAddr::new(listen.host.parse().ok()?, listen.port),
                path: player.path.clone(),
            })
        })
    });
    all.collect()
}

fn internal(error: io::Error) -> Failure {
    Failure::new(Exit::Internal, error.to_string())
}
