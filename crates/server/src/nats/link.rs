//! The connection to the NATS servers of a cluster.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Event, ServerAddr};
use aulos_config::{NatsLogin, NatsServer};
use aulos_core::{Backoff, Instant, Span};
use tokio::sync::OnceCell;

use super::NatsCounters;

/// A connection, made when it is first used. It connects again by itself.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) config: LinkConfig,
    client: OnceCell<Client>,
    counters: Arc<NatsCounters>,
}

/// What to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LinkConfig {
    pub(super) servers: Vec<NatsServer>,
    pub(super) login: NatsLogin,
    pub(super) ca: Option<PathBuf>,
    /// The name that the server shows for the connection.
    pub(super) name: String,
}

impl Link {
    pub(super) fn new(config: LinkConfig, counters: Arc<NatsCounters>) -> Self {
        Self { config, client: OnceCell::new(), counters }
    }

    /// The client, which may still be connecting.
    ///
    /// # Errors
    /// If the configuration cannot be used.
    pub(super) async fn client(&self) -> io::Result<&Client> {
        self.client.get_or_try_init(|| self.connect()).await
    }

    async fn connect(&self) -> io::Result<Client> {
        let addresses = self.config.servers.iter().map(|server| {
            let scheme = if server.tls { "tls" } else { "nats" };
            format!("{scheme}://{}", server.address).parse::<ServerAddr>()
        });
        let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
        let options = match self.config.login.clone() {
            NatsLogin::Anonymous => ConnectOptions::new(),
            NatsLogin::User(user, password) => {
                ConnectOptions::with_user_and_password(user, password.0)
            }
            NatsLogin::Token(token) => ConnectOptions::with_token(token.0),
            NatsLogin::NKey(seed) => ConnectOptions::with_nkey(seed.0),
        };
        let options = match &self.config.ca {
            Some(ca) => options.add_root_certificates(ca.clone()),
            None => options,
        };
        let counters = Arc::clone(&self.counters);
        let pauses = Mutex::new(Backoff::half_jitter(
            FIRST_PAUSE,
            LONGEST_PAUSE,
            RandomState::new().hash_one(&self.config.name),
        ));
        let options = options
            .name(&self.config.name)
            // The login is for the configured servers alone.
            .ignore_discovered_servers()
            .retry_on_initial_connect()
            .ping_interval(PING_INTERVAL)
            .client_capacity(COMMANDS)
            .subscription_capacity(MESSAGES)
            .request_timeout(Some(REQUEST_TIMEOUT))
            .reconnect_delay_callback(move |attempts| {
                let mut pauses = pauses.lock().unwrap_or_else(PoisonError::into_inner);
                if attempts <= 1 {
                    pauses.reset();
                }
                pauses.failed(Instant::ZERO).into()
            })
            .event_callback(move |event| {
                count(&counters, &event);
                std::future::ready(())
            });
        options.connect(addresses).await.map_err(io::Error::other)
    }
}

/// Whether the client is connected now.
pub(super) fn is_connected(client: &Client) -> bool {
    client.connection_state() == State::Connected
}

fn count(counters: &NatsCounters, event: &Event) {
    match event {
        Event::Connected => {
            counters.connected.fetch_add(1, Ordering::Relaxed);
            tracing::info!(target: "nats", "connected");
        }
        Event::Disconnected => {
            // An attempt that never was a connection may end with this event too.
            let less = |count: u64| count.checked_sub(1);
            counters.connected.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok();
            counters.disconnects.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(target: "nats", "disconnected; connecting again");
        }
        Event::SlowConsumer(_) => {
            counters.overflow.fetch_add(1, Ordering::Relaxed);
        }
        Event::ServerError(error) => tracing::warn!(target: "nats", %error, "the server reports"),
        Event::ClientError(error) => tracing::warn!(target: "nats", %error, "cannot connect"),
        _ => {}
    }
}

/// The pauses between attempts to connect: a dead server is over soon, and a hundred clients of it
/// do not return at the same moment.
const FIRST_PAUSE: Span = Span::from_millis(50);
const LONGEST_PAUSE: Span = Span::from_secs(2);

/// A server that does not answer two of them is dead: silence of a broken network is noticed after
/// 6 s at most.
const PING_INTERVAL: Duration = Duration::from_secs(2);

/// Messages that wait to be written: more than a second of the chunks of five stations.
const COMMANDS: usize = 256;

/// Messages that wait in a subscription: two seconds of chunks of 10 ms.
const MESSAGES: usize = 200;

/// For requests to `JetStream`.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
