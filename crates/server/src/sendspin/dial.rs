//! Connections to players that announce themselves, or that the configuration names.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use aulos_config::Endpoint;
use aulos_core::{Backoff, Rng, Span};
use aulos_io::SystemClock;
use aulos_io::mdns::DiscoveredServer;
use aulos_io::reactor::AddressPermit;
use aulos_proto::sendspin::{AdmissionError, Goodbye, PATH};
use aulos_proto::ws::{WsClient, WsClientEvent};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::admit::{AdmitError, Connection, admit};
use super::context::SendspinContext;
use super::store::random_key;
use crate::tcp::keep_alive;

/// Keeps a connection to a player, until it is dropped.
pub(super) async fn keep_connected(player: Endpoint, context: SendspinContext) {
    let mut backoff = Backoff::exact(FIRST_PAUSE, MAX_PAUSE);
    let mut logged = String::new();
    loop {
        match connect(&player, &context).await {
            Ok(alive) => {
                backoff = Backoff::exact(FIRST_PAUSE, MAX_PAUSE);
                logged.clear();
                // The reactor keeps the other one.
                while Arc::strong_count(&alive) > 1 {
                    sleep(ALIVE_INTERVAL).await;
                }
            }
            Err(AdmitError::Refused(AdmissionError::Goodbye(reason))) if is_final(reason) => {
                sleep(MAX_PAUSE.into()).await;
                continue;
            }
            Err(error) => {
                let text = error.to_string();
                if text != logged {
                    tracing::info!(target: "sendspin", %player, "cannot reach a player: {text}");
                    logged = text;
                }
            }
        }
        let now = SystemClock::now();
        backoff.failed(now);
        while !backoff.is_due(SystemClock::now()) {
            sleep(ALIVE_INTERVAL).await;
        }
    }
}

/// Whether a player wants to be left alone for a while.
const fn is_final(reason: Goodbye) -> bool {
    matches!(reason, Goodbye::AnotherServer | Goodbye::Shutdown | Goodbye::UserRequest)
}

async fn connect(player: &Endpoint, context: &SendspinContext) -> Result<Arc<()>, AdmitError> {
    let late = |_| AdmitError::Io(io::Error::from(io::ErrorKind::TimedOut));
    let connection = timeout(CONNECT_TIMEOUT, open(player)).await.map_err(late)??;
    admit(connection, context).await
}

async fn open(player: &Endpoint) -> io::Result<Connection> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in lookup_host((&*player.host, player.port)).await?.take(MAX_ADDRESSES) {
        match TcpStream::connect(address).await {
            Ok(socket) => return open_websocket(socket, address, player).await,
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn open_websocket(
    mut socket: TcpStream,
    address: SocketAddr,
    player: &Endpoint,
) -> io::Result<Connection> {
    keep_alive(&socket)?;
    let [a, b, c, d, e, f, g, h, ..] = random_key()?;
    let mut client =
        WsClient::new(Rng::new(u64::from_ne_bytes([a, b, c, d, e, f, g, h])).next_u64());
    let request = client.request(&player.to_string(), PATH, None);
    socket.write_all(request.as_bytes()).await?;
    let mut read = Vec::new();
    loop {
        if socket.read_buf(&mut read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = &read[..];
        let event = client.next(&mut bytes).map_err(io::Error::other)?;
        let is_open = matches!(event, Some(WsClientEvent::Open));
        read = bytes.to_vec();
        if is_open {
            let (reader, writer) = client.into_parts();
            let permit = AddressPermit::default();
            return Ok(Connection { socket, address, permit, reader, writer, read });
        }
    }
}

/// Connects to every player that is found, until it is dropped.
pub(super) async fn connect_to_found(
    mut players: watch::Receiver<Vec<DiscoveredServer>>,
    context: SendspinContext,
) {
    let mut tasks: HashMap<String, (Endpoint, JoinHandle<()>)> = HashMap::new();
    loop {
        let found: HashMap<String, Endpoint> =
            players.borrow_and_update().iter().take(MAX_FOUND).filter_map(endpoint).collect();
        tasks.retain(|name, (player, task)| {
            let stays = found.get(name) == Some(player);
            if !stays {
                task.abort();
            }
            stays
        });
        for (name, player) in found {
            tasks.entry(name).or_insert_with(|| {
                let task = tokio::spawn(keep_connected(player.clone(), context.clone()));
                (player, task)
            });
        }
        if players.changed().await.is_err() {
            break;
        }
    }
    tasks.values().for_each(|(_, task)| task.abort());
}

fn endpoint(player: &DiscoveredServer) -> Option<(String, Endpoint)> {
    let address = player.addresses.first()?;
    let endpoint = Endpoint { host: address.to_string(), port: player.port };
    Some((player.name.clone(), endpoint))
}

/// Pauses between attempts to reach a player.
const FIRST_PAUSE: Span = Span::from_secs(1);
const MAX_PAUSE: Span = Span::from_secs(300);

/// How often it is looked whether a connection still is.
const ALIVE_INTERVAL: Duration = Duration::from_millis(500);

/// Time to reach a player and to open its WebSocket.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Addresses of a name that are tried.
const MAX_ADDRESSES: usize = 4;

/// Players that are connected to; anybody can announce one.
const MAX_FOUND: usize = 64;
