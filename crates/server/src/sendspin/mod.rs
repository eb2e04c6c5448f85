//! Sendspin: the port for players that connect, the connections to those that are found, and the
//! file with their keys.
//!
//! A connection is tokio's until its client is let in; then a media reactor serves it as it serves
//! Snapcast's clients.

mod admit;
mod artwork;
mod context;
mod dial;
mod listen;
mod store;

use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;

use aulos_config::{ResolvedConfig, SendspinSettings};
use aulos_control::backend::ListenSink;
use aulos_control::{Control, HostInfo};
use aulos_io::mdns::DiscoveredServer;
use aulos_io::reactor::ListenPolicy;
use aulos_proto::sendspin::ServerInfo;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use context::SendspinContext;
use store::TrustFile;
pub(crate) use store::{key_file, random_key};

/// How players come, by the open port or because they are found, and where their keys are.
pub(crate) struct SendspinPort {
    settings: SendspinSettings,
    dir: PathBuf,
    listener: TcpListener,
    players: watch::Receiver<Vec<DiscoveredServer>>,
}

impl SendspinPort {
    /// The port of a configuration, if it is open.
    pub(crate) fn of(
        config: &ResolvedConfig,
        listener: Option<TcpListener>,
        players: watch::Receiver<Vec<DiscoveredServer>>,
    ) -> Option<Self> {
        let (settings, dir) = (config.sendspin.clone()?, config.state_dir.clone());
        Some(Self { settings, dir, listener: listener?, players })
    }
}

/// Starts what serves Sendspin players.
///
/// # Errors
/// When the keys cannot be read.
pub(crate) fn start(
    SendspinPort { settings, dir, listener, players }: SendspinPort,
    control: &Arc<Control>,
    sink: Arc<dyn ListenSink>,
    policy: watch::Receiver<ListenPolicy>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let private = store::identity(&dir)?;
    let file = Arc::new(TrustFile::new(&dir));
    control.sendspin.restore(file.load()?);
    let server = Arc::new(ServerInfo::new(HostInfo::of_machine().name, private));
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let address = listener.local_addr()?;
    tracing::info!(target: "sendspin", %address, id = %server.id(), "accepting Sendspin players");
    let context = SendspinContext { control: Arc::clone(control), sink, server, file };
    let mut tasks = vec![
        tokio::spawn(listen::serve(listener, context.clone(), policy)),
        tokio::spawn(context.clone().save_changes()),
        tokio::spawn(artwork::render_artwork(Arc::clone(control))),
    ];
    for player in &settings.connect {
        tasks.push(tokio::spawn(dial::keep_connected(player.clone(), context.clone())));
    }
    if settings.discover {
        tasks.push(tokio::spawn(dial::connect_to_found(players, context)));
    }
    Ok(tasks)
}
