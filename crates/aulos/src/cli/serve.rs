//! `aulos serve`: runs the server.

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use aulos_config::{ResolvedConfig, SourceConfig};
use aulos_io::mdns::{Announcer, Browser, DiscoveredServer};
use aulos_io::memory::map_large_allocations;
use aulos_proto::uri::percent_encode;
use aulos_server::access::Role;
use aulos_server::audio::Audio;
use aulos_server::exit::{Exit, Failure};
use aulos_server::mdns::{self, AnnouncedPorts};
use aulos_server::server::{self, BoundPorts, ServerContext};
use aulos_server::state_lock;
use aulos_server::systemd::{InheritedSockets, Supervisor};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::print;

/// Runs the configuration that `read` returns until a signal ends it, and reads it again on SIGHUP.
/// `head` is printed before the startup message.
pub(super) fn run(
    read: impl Fn(LoadReason) -> Result<ResolvedConfig, Failure> + Send + Sync + 'static,
    head: &str,
) -> Result<Exit, Failure> {
    raise_file_limit();
    if !map_large_allocations() {
        tracing::debug!("the allocator decides when large blocks are given back");
    }
    let resolved = read(LoadReason::First)?;
    let mut given = InheritedSockets::from_env()?;
    let bound = server::bind(&resolved.listen, &mut given)?;
    server::make_state_dir(&resolved.state_dir)?;
    let _lock = state_lock::lock(&resolved.state_dir)?;
    let policy = server::listen_policy(&resolved)?;
    let bound = bound.with_listen_policy(policy.clone());
    let resolved = Arc::new(resolved);
    let internal = |error: io::Error| Failure::new(Exit::Internal, error.to_string());
    let runtime = control_runtime().map_err(internal)?;
    let (listener, stream) = server::bind_port("stream", &resolved.listen.stream, &mut given)?;
    given.close_unused();
    let bound = bound.with_relays(&resolved.relays)?;
    let (events, event_receiver) = mpsc::channel(aulos_server::backend::EVENT_QUEUE);
    let running = Arc::new(Audio::start(&resolved, listener, &policy, events).map_err(internal)?);
    let audio = server::AudioHandles {
        backend: Arc::clone(&running) as _,
        listen_sink: Arc::clone(&running) as _,
        events: event_receiver,
        stream: Some(stream),
    };
    let ports = ports(&resolved, &bound, stream);
    let text =
        head.to_owned() + &startup_message(&resolved, &bound, audio.stream, policy.tls.is_some());
    runtime.block_on(async {
        // Installed before anything is printed, because the reader may send a signal at once.
        let mut interrupt = signal(SignalKind::interrupt()).map_err(internal)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(internal)?;
        let (mut terminal, hangups) = hangups().map_err(internal)?;
        print(text.as_bytes())?;
        let announcer = mdns::start(&resolved.mdns, ports);
        let (server_list, neighbours) = watch::channel(Vec::new());
        let stop = async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                () = report_mdns(announcer.as_ref(), server_list) => {}
                Some(TerminalClosed) = terminal.recv() => {}
            }
            // The announcement is withdrawn first, so that no new client connects to a stopping
            // server.
            if let Some(announcer) = announcer {
                announcer.stop();
            }
        };
        let reread = move || read(LoadReason::Again).map_err(|failure| failure.message);
        let supervisor = Supervisor::from_env();
        let outside = ServerContext {
            reload_config: Box::new(reread),
            reload_requests: hangups,
            supervisor,
            neighbors: neighbours,
        };
        server::run(resolved, bound, audio, outside, stop).await.map_err(internal)
    })?;
    // A task that blocks on a slow disk must not delay the exit.
    runtime.shutdown_background();
    running.stop();
    Ok(Exit::Ok)
}

/// The runtime of the control plane: one thread, and a fixed number of threads for blocking work.
fn control_runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name("aulos-control")
        // The threads exist from start to end, so that their number does not change while the
        // server runs.
        .max_blocking_threads(server::BLOCKING_THREADS)
        .thread_keep_alive(Duration::MAX)
        .build()
}

/// Why the configuration is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoadReason {
    /// At startup.
    First,
    /// For a reload.
    Again,
}

/// The terminal from which the server was started has been closed.
struct TerminalClosed;

/// SIGHUP reloads the configuration. A closing terminal sends it too; then the server ends like any
/// other program.
fn hangups() -> io::Result<(mpsc::Receiver<TerminalClosed>, mpsc::Receiver<()>)> {
    let mut hangup = signal(SignalKind::hangup())?;
    let (closed, terminal) = mpsc::channel(1);
    let (ask, asked) = mpsc::channel(1);
    let had_terminal = io::stderr().is_terminal();
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            if had_terminal && !io::stderr().is_terminal() {
                closed.send(TerminalClosed).await.ok();
            } else {
                // A full channel holds a request that will see this change as well.
                ask.try_send(()).ok();
            }
        }
    });
    Ok((terminal, asked))
}

/// Logs mDNS name changes and publishes the list of other servers. Never returns.
async fn report_mdns(
    announcer: Option<&Announcer>,
    server_list: watch::Sender<Vec<DiscoveredServer>>,
) {
    let Some(announcer) = announcer else { return std::future::pending().await };
    let mut browser = announcer.browse();
    let mut reported = Vec::new();
    let mut ticks = tokio::time::interval(MDNS_POLL_INTERVAL);
    loop {
        ticks.tick().await;
        mdns::report(announcer, &mut reported);
        if let Some(neighbours) = browser.as_mut().and_then(Browser::poll) {
            server_list.send_replace(neighbours);
        }
    }
}

/// Interval of mDNS polls; a name conflict is not urgent.
const MDNS_POLL_INTERVAL: Duration = Duration::from_secs(1);

fn ports(resolved: &ResolvedConfig, bound: &BoundPorts, stream: SocketAddr) -> AnnouncedPorts {
    let tls = &resolved.security.tls;
    AnnouncedPorts {
        stream: Some(stream),
        control: bound.control_address,
        http: bound.http_address,
        plain: !tls.require,
        secure: tls.enabled && tls.is_required(),
    }
}

/// The startup message: addresses, state and first steps.
fn startup_message(
    resolved: &ResolvedConfig,
    bound: &BoundPorts,
    stream: Option<SocketAddr>,
    has_tls: bool,
) -> String {
    let mut text = format!("aulos {}\n", env!("CARGO_PKG_VERSION"));
    let mut line = |key: &str, value: &str| text += &format!("  {key:<8} {value}\n");
    let security = &resolved.security;
    let scheme = if security.tls.require { "https" } else { "http" };
    line("page", &format!("{scheme}://{}/", reachable(bound.http_address)));
    match stream {
        Some(address) => {
            let address = reachable(address);
            let (host, port) = (address.ip(), address.port());
            line("stream", &format!("{address}    snapclient -h {host} -p {port}"));
        }
        None => line("stream", "not running in this build"),
    }
    line("control", &bound.control_address.to_string());
    if has_tls {
        let own = resolved.state_dir.join("tls/cert.pem");
        let certificate = security.tls.identity.as_ref().map_or(&own, |identity| &identity.cert);
        let how = if security.tls.require { "and nothing else" } else { "beside plain text" };
        line("tls", &format!("on every port {how}; certificate {}", certificate.display()));
    }
    let rules = &security.access;
    if rules.anonymous < Role::Admin {
        let users = rules.users.len();
        line("access", &format!("{users} user(s); without a login: {}", rules.anonymous));
    }
    line("state", &resolved.state_dir.display().to_string());
    for station in &resolved.stations {
        let mut sources: Vec<&str> =
            station.sources.iter().map(|source| source.uri.as_str()).collect();
        // A `meta:` of several stations is several sources with the same URI.
        sources.dedup();
        let (codec, spec) = (station.codec, station.spec);
        line(
            "station",
            &format!("{}: {codec} {spec} from {}", station.name, sources.join(", then ")),
        );
    }
    for (name, listen, dest) in bound.relays().addresses() {
        line("relay", &format!("{name}: {listen} -> {dest}"));
    }
    let mut sources = resolved.stations.iter().flat_map(|station| &station.sources);
    if let Some(recipe) = sources.find_map(|source| example_command(&source.config)) {
        text += &format!("Send it sound:\n  {recipe}\n");
    }
    let local = |address: SocketAddr| address.ip().is_loopback();
    if local(bound.http_address) && local(bound.control_address) {
        text += "Open it to the network:\n  aulos serve --set listen.address=0.0.0.0\n";
    }
    text
}

/// An address to connect to: a wildcard becomes loopback.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        let local: std::net::IpAddr = match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        };
        address.set_ip(local);
    }
    address
}

/// An ffmpeg command for a FIFO or a mount. FFmpeg has no name for 24 bit in 32.
fn example_command(source: &SourceConfig) -> Option<String> {
    use aulos_core::SampleFormat as F;
    if let SourceConfig::Icecast(mount) = source {
        let password = if mount.password.is_some() { "PASSWORD" } else { "any" };
        let (user, path) = (percent_encode(&mount.user), percent_encode(&mount.path));
        let mut address = mount.address.clone();
        if address.host == "0.0.0.0" || address.host == "::" {
            address.host = "HOST".to_owned();
        }
        return Some(format!(
            "ffmpeg -re -i song.flac -f mp3 icecast://{user}:{password}@{address}{path}"
        ));
    }
    let SourceConfig::Pipe { path, spec, .. } = source else { return None };
    let format = match spec.format {
        F::U8 => "u8",
        F::S8 => "s8",
        F::S16Le => "s16le",
        F::S24Le => "s24le",
        F::S24In32Le => return None,
        F::S32Le => "s32le",
        F::F32 => "f32le",
    };
    let (rate, channels) = (spec.rate.hz(), spec.layout.channels());
    let path = path.to_string_lossy();
    let plain = path.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c));
    let path = if plain { path.into_owned() } else { format!("'{}'", path.replace('\'', r"'\''")) };
    Some(format!("ffmpeg -re -i song.flac -f {format} -ar {rate} -ac {channels} - > {path}"))
}

/// Raises the limit of open files: every client is one, and shells set 1,024.
pub(super) fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the number of open files stays at {:?}", limit.current);
    }
}
