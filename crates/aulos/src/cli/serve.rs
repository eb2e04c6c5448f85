//! `aulos serve`: runs the server.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use aulos_config::source::PipeSource;
use aulos_config::{ResolvedConfig, SourceConfig};
use aulos_control::access::Role;
use aulos_io::udp::source_address_for;
use aulos_proto::uri::percent_encode;
use aulos_server::exit::{Exit, Failure};
use aulos_server::log_loss::count_lost_log_lines;
use aulos_server::server::{Addresses, MAX_PORT_CONNECTIONS, Server};
use aulos_server::systemd::{InheritedSockets, Supervisor};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::output::console::{self, StartupMessage};

/// The handler of SIGHUP, with the runtime that it belongs to.
///
/// It is installed before the arguments are parsed: a program that starts a server may send the
/// signal at once, to have it read a configuration that has just been written, and without a
/// handler the signal would end the server.
pub(super) struct HangupHandler {
    runtime: Runtime,
    hangup: Signal,
}

impl HangupHandler {
    /// Installs the handler.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub(super) fn install() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let hangup = {
            let _inside = runtime.enter();
            signal(SignalKind::hangup())?
        };
        Ok(Self { runtime, hangup })
    }

    /// Whether these arguments, without the name of the program, start a server.
    pub(super) fn is_needed(arguments: &[OsString]) -> bool {
        let is_option = |text: &OsString| text.as_encoded_bytes().starts_with(b"-");
        let command = arguments.iter().find(|text| !is_option(text));
        command.is_some_and(|command| command == "serve" || command == "snapserver")
    }
}

/// Runs the configuration that `read` returns until a signal ends it, and reads it again on SIGHUP.
/// `head` is printed before the startup message, which shows `network_command` while the ports are
/// on loopback.
pub(super) fn run(
    handler: Option<HangupHandler>,
    read: impl Fn(LoadReason) -> Result<ResolvedConfig, Failure> + Send + Sync + 'static,
    head: &str,
    network_command: &str,
) -> Result<Exit, Failure> {
    let internal = |error: io::Error| Failure::new(Exit::Internal, error.to_string());
    let HangupHandler { runtime, hangup } =
        handler.map_or_else(HangupHandler::install, Ok).map_err(internal)?;
    raise_file_limit();
    let resolved = read(LoadReason::First)?;
    warn_of_low_file_limit(&resolved);
    let sockets = InheritedSockets::from_env()?;
    runtime.block_on(async {
        // Installed before anything is printed, because the reader may send a signal at once.
        let mut interrupt = signal(SignalKind::interrupt()).map_err(internal)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(internal)?;
        let (mut terminal, mut hangups) = split_hangups(hangup);
        count_lost_log_lines(console::lost_lines);
        let mut server = Server::new()
            .with_config_loader(move || read(LoadReason::Again).map_err(|failure| failure.message))
            .with_supervisor(Supervisor::from_env())
            .with_inherited_sockets(sockets)
            .start(resolved.clone())?;
        let message = startup_message(&resolved, server.addresses(), network_command);
        let _startup_message = StartupMessage::print(head.to_owned() + &message);
        loop {
            tokio::select! {
                _ = interrupt.recv() => break,
                _ = terminate.recv() => break,
                Some(TerminalClosed) = terminal.recv() => break,
                Some(()) = hangups.recv() => server.request_reload(),
                () = server.wait_until_ended() => break,
            }
        }
        server.stop()
    })?;
    Ok(Exit::Ok)
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
fn split_hangups(mut hangup: Signal) -> (mpsc::Receiver<TerminalClosed>, mpsc::Receiver<()>) {
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
    (terminal, asked)
}

/// The startup message: addresses, state and first steps.
fn startup_message(
    resolved: &ResolvedConfig,
    addresses: &Addresses,
    network_command: &str,
) -> String {
    let mut text = format!("aulos {}\n", env!("CARGO_PKG_VERSION"));
    let mut line = |key: &str, value: &str| text += &format!("  {key:<8} {value}\n");
    let security = &resolved.security;
    let local = |address: SocketAddr| address.ip().is_loopback();
    let is_local = local(addresses.http) && local(addresses.control);
    let scheme = if security.tls.require { "https" } else { "http" };
    line("page", &format!("{scheme}://{}/", connectable_address(addresses.http)));
    let stream = connectable_address(addresses.stream);
    let (host, port) = (stream.ip(), stream.port());
    line("stream", &format!("{stream}    snapclient -h {host} -p {port}"));
    line("control", &addresses.control.to_string());
    if addresses.has_tls {
        let own = resolved.state_dir.join("tls/cert.pem");
        let certificate = security.tls.identity.as_ref().map_or(&own, |identity| &identity.cert);
        let how = if security.tls.require { "required" } else { "optional" };
        line("tls", &format!("{how} on every port; certificate {}", certificate.display()));
    }
    let rules = &security.access;
    if rules.anonymous < Role::Admin {
        let users = rules.users.len();
        line("access", &format!("{users} user(s); role without login: {}", rules.anonymous));
    } else if !is_local {
        line("access", "no login: every peer that reaches a port has all permissions");
    }
    if resolved.streams.plugins_by_rpc {
        line("scripts", "calls from this machine may start the scripts of `plugin_dir`");
    }
    line("state", &resolved.state_dir.display().to_string());
    for station in &resolved.stations {
        let mut sources: Vec<&str> =
            station.sources.iter().map(|source| source.uri.as_str()).collect();
        // A `meta:` of several stations is several sources with the same URI.
        sources.dedup();
        let (kind, codec) = match &station.mount {
            Some(mount) => ("mount", mount.format.codec.to_string()),
            None => ("station", station.codec.to_string()),
        };
        let sources = sources.join(", then ");
        line(kind, &format!("{}: {codec} {} from {sources}", station.name, station.spec));
    }
    for (name, listen, dest) in &addresses.relays {
        line("relay", &format!("{name}: {listen} -> {dest}"));
    }
    let mut sources = resolved.stations.iter().flat_map(|station| &station.sources);
    if let Some(recipe) = sources.find_map(|source| example_command(&source.config)) {
        text += &format!("Send audio to it:\n  {recipe}\n");
    }
    if is_local {
        text += &format!("Accept connections from the network:\n  {network_command}\n");
    }
    text
}

/// An address to connect to: a wildcard becomes the address of this machine in its network, or
/// loopback without one.
fn connectable_address(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        let local = match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let mut remote = REMOTE_ADDRESSES.into_iter().filter(|remote| {
            // The IPv6 wildcard includes IPv4.
            address.is_ipv6() || remote.is_ipv4()
        });
        let own = remote.find_map(|remote| source_address_for((remote, 9).into()).ok());
        address.set_ip(own.unwrap_or(local));
    }
    address
}

/// Addresses outside of every local network (RFC 5737, RFC 3849), whose route leads through the
/// network that other machines share with this one. Nothing is sent to them.
const REMOTE_ADDRESSES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];

/// An ffmpeg command for a FIFO or a mount. FFmpeg has no name for 24 bit in 32.
fn example_command(source: &SourceConfig) -> Option<String> {
    use aulos_core::SampleFormat as F;
    if let Some(mount) = source.mount() {
        let password = if mount.password.is_some() { "PASSWORD" } else { "any" };
        let (user, path) = (percent_encode(&mount.user), percent_encode(&mount.path));
        let mut address = mount.address.clone();
        if address.host == "0.0.0.0" || address.host == "::" {
            address.host = "HOST".to_owned();
        }
        return Some(format!(
            "ffmpeg -re -i song.flac -content_type audio/mpeg -f mp3 \
             icecast://{user}:{password}@{address}{path}"
        ));
    }
    let SourceConfig::Pipe(PipeSource { path, spec, .. }) = source else { return None };
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
    let path = shell_word(&path.to_string_lossy());
    Some(format!("ffmpeg -re -i song.flac -f {format} -ar {rate} -ac {channels} - > {path}"))
}

/// A text as one word for a shell.
pub(super) fn shell_word(text: &str) -> String {
    let plain = text.chars().all(|c| c.is_alphanumeric() || "/._-=:,".contains(c));
    if plain && !text.is_empty() {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Raises the limit of open files: every client is one, and shells set 1,024.
pub(super) fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, limit = ?limit.current, "cannot raise the limit of open files");
    }
}

/// Warns if the ports accept more connections than there may be open files.
fn warn_of_low_file_limit(resolved: &ResolvedConfig) {
    use rustix::process::{Resource, getrlimit};
    let clients = resolved.security.limits.per_address as usize;
    let needed = MAX_PORT_CONNECTIONS + clients;
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < needed as u64 => tracing::warn!(
            limit,
            needed,
            "the limit of open files is below the sum of the ports' limits; clients will be \
             refused when it is reached. Raise it: `LimitNOFILE=` of systemd, `ulimit -n` of a shell"
        ),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use aulos_config::{Endpoint, Mount};
    use aulos_proto::titles::TitleCharset;

    use super::*;

    #[test]
    fn a_live_source_is_shown_with_its_content_type() {
        let mount = Mount {
            address: Endpoint { host: "0.0.0.0".to_owned(), port: 8_000 },
            path: "/live".to_owned(),
            user: "source".to_owned(),
            password: None,
            shoutcast: false,
            charset: TitleCharset::default(),
        };
        let command = example_command(&SourceConfig::Icecast(mount)).unwrap();
        let end = "-content_type audio/mpeg -f mp3 icecast://source:any@HOST:8000/live";
        assert!(command.ends_with(end), "{command}");
    }

    #[test]
    fn the_handler_of_hangups_is_installed_for_servers_only() {
        let is_needed = |line: &str| {
            HangupHandler::is_needed(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
        };
        assert!(
            is_needed("serve") && is_needed("-v serve --config x") && is_needed("snapserver -d")
        );
        assert!(!is_needed("scan serve") && !is_needed("") && !is_needed("--help"));
    }

    #[test]
    fn a_path_is_one_word_for_a_shell() {
        assert_eq!(shell_word("/etc/aulos.toml"), "/etc/aulos.toml");
        assert_eq!(shell_word("a b"), "'a b'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word(""), "''");
    }
}
