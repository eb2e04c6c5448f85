//! The connection to the MQTT broker of `[mqtt]`, which is opened again for as long as it is
//! configured.
//!
//! What is published and what messages mean is decided by [`aulos_control::mqtt`]. While there is no
//! connection nothing is read of the server. The task is one of the control plane; a broker that
//! sends without end is read at a bounded rate, and one that does not read gets the newest values
//! once it does.

mod connection;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aulos_config::MqttSettings;
use aulos_control::mqtt::{MqttBridge, MqttInput, MqttTopics};
use aulos_control::{Control, count};
use aulos_core::{Backoff, Span};
use aulos_io::SystemClock;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use self::connection::BrokerConnection;
use crate::dial::Dialer;

/// Time for a connection, with TLS and login.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Pauses between attempts: a broker that restarts is missed for a second or two, and one that is
/// away for a week costs a connection a minute.
const FIRST_PAUSE: Span = Span::from_secs(1);
const LONGEST_PAUSE: Span = Span::from_secs(60);

/// The task of the connection, if MQTT is configured.
#[derive(Debug, Default)]
pub(crate) struct MqttTask {
    running: Option<(MqttSettings, JoinHandle<()>)>,
}

impl MqttTask {
    /// Starts, ends or replaces the task to match the configuration.
    pub(crate) fn update(&mut self, control: &Arc<Control>) {
        let wanted = control.config().mqtt.clone();
        if self.running.as_ref().map(|(settings, _)| settings) == wanted.as_ref() {
            return;
        }
        self.end();
        control.counters.mqtt_connected.store(0, Ordering::Relaxed);
        self.running = wanted.map(|settings| {
            let task = serve(Arc::clone(control), settings.clone());
            (settings, tokio::spawn(task))
        });
    }

    /// Ends the task. Its connection is closed without a goodbye, so that the broker publishes the
    /// last will.
    pub(crate) fn end(&mut self) {
        if let Some((_, task)) = self.running.take() {
            task.abort();
        }
    }
}

/// Connects, publishes, and connects again, until the task is aborted.
async fn serve(control: Arc<Control>, settings: MqttSettings) {
    let host = control.host.name.as_str();
    let name = settings.name.as_deref().unwrap_or(host);
    let topics = MqttTopics::new(&settings.base, name, settings.discovery.as_deref());
    let seed = RandomState::new().hash_one(std::process::id());
    let mut bridge = MqttBridge::new(topics.clone(), host, seed, SystemClock::now());
    let mut pauses = Backoff::half_jitter(FIRST_PAUSE, LONGEST_PAUSE, seed);
    let (broker, mut logged) = (&settings.broker, None);
    loop {
        let dialer = settings.ca.as_deref().map_or_else(Dialer::default, Dialer::trusting);
        let opened = timeout(CONNECT_TIMEOUT, BrokerConnection::open(&settings, &topics, &dialer));
        let problem = match opened.await {
            Err(_) => "no answer within 10 s".to_owned(),
            Ok(Err(problem)) => problem,
            Ok(Ok(connection)) => {
                logged = None;
                tracing::info!(target: "mqtt", "connected to the broker {broker}");
                pauses.succeeded(SystemClock::now());
                run(connection, &mut bridge, &control, settings.has_clients).await
            }
        };
        count(&control.counters.mqtt_disconnects);
        // A broker that is away for a week is reported once.
        if logged.as_ref() != Some(&problem) {
            tracing::warn!(target: "mqtt", "no connection to the broker {broker}: {problem}");
            logged = Some(problem);
        }
        sleep(pauses.failed(SystemClock::now()).into()).await;
    }
}

/// Serves a connection until it ends; returns why.
async fn run(
    connection: BrokerConnection,
    bridge: &mut MqttBridge,
    control: &Control,
    has_clients: bool,
) -> String {
    let counters = &control.counters;
    counters.mqtt_connected.store(1, Ordering::Relaxed);
    bridge.handle_input(SystemClock::now(), MqttInput::Connected);
    let Err(problem) = connection.serve(bridge, control, has_clients).await;
    bridge.handle_input(SystemClock::now(), MqttInput::Disconnected);
    counters.mqtt_connected.store(0, Ordering::Relaxed);
    problem
}
