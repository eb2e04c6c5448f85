//! A connection to a broker: MQTT 3.1.1 over TCP or TLS.
//!
//! The packets and the state of acknowledgements are `rumqttc`'s. Its event loop was not taken: it
//! looks names up on the runtime's blocking threads, which belong to the disk, has TLS with an older
//! webpki, and queues messages, of which the newest of each topic are enough here.

use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aulos_config::MqttSettings;
use aulos_control::access::{Login, Role};
use aulos_control::mqtt::{MqttBridge, MqttCall, MqttInput, MqttMessage, MqttTopics};
use aulos_control::{Caller, Control, count};
use aulos_io::SystemClock;
use bytes::BytesMut;
use rumqttc::{
    Connect, ConnectReturnCode, LastWill, MqttState, Packet, PingReq, Publish, QoS, Request,
    Subscribe, SubscribeFilter,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf, split};
use tokio::time::{MissedTickBehavior, interval};

use crate::dial::{DialError, DialedStream, Dialer};

/// Time after which the broker takes this client as gone and publishes the last will.
const KEEP_ALIVE_S: u16 = 20;

/// Interval of pings; a broker that has not answered one when the next is due is gone.
const PING_INTERVAL: Duration = Duration::from_secs(8);

/// How often the server is read.
const FACTS_INTERVAL: Duration = Duration::from_millis(500);

/// Published messages that are not acknowledged yet: a slow broker costs no more memory than these.
const MAX_UNACKNOWLEDGED: u16 = 16;

/// The longest packet from the broker: commands are short.
const MAX_INCOMING: usize = 16 << 10;

/// The longest packet to the broker: the description of a station with the most sources.
const MAX_OUTGOING: usize = 1 << 20;

/// Bytes that are read between two reads of the server; a flood waits in the kernel meanwhile, and
/// then at the broker.
const READ_PER_INTERVAL: usize = 64 << 10;

/// Clients that are published: more are no home.
const MAX_CLIENTS: usize = 256;

/// A connection whose login was accepted.
#[derive(Debug)]
pub(super) struct BrokerConnection {
    reader: ReadHalf<DialedStream>,
    writer: WriteHalf<DialedStream>,
    received: BytesMut,
    unsent: BytesMut,
    /// TLS keeps what has been written until it is flushed.
    needs_flush: bool,
    state: MqttState,
}

impl BrokerConnection {
    /// Connects and logs in. The caller limits the time.
    ///
    /// # Errors
    /// Why not, without secrets.
    pub(super) async fn open(
        settings: &MqttSettings,
        topics: &MqttTopics,
        dialer: &Dialer,
    ) -> Result<Self, String> {
        let broker = &settings.broker;
        let dialed = dialer.dial(settings.tls, &broker.host, broker.port).await;
        let (reader, writer) = split(dialed.map_err(|error| dial_text(&error))?);
        let mut connection = Self {
            reader,
            writer,
            received: BytesMut::new(),
            unsent: BytesMut::new(),
            needs_flush: false,
            state: MqttState::new(2 * MAX_UNACKNOWLEDGED, false),
        };
        let mut connect = Connect::new(topics.client_id());
        connect.keep_alive = KEEP_ALIVE_S;
        connect.last_will =
            Some(LastWill::new(topics.availability(), "offline", QoS::AtLeastOnce, true));
        if let Some((user, password)) = &settings.login {
            connect.set_login(user, &password.0);
        }
        connection.push(&Packet::Connect(connect))?;
        connection.write_all().await?;
        match connection.read_packet().await? {
            Packet::ConnAck(answer) if answer.code == ConnectReturnCode::Success => {}
            Packet::ConnAck(answer) => return Err(refusal_text(answer.code).to_owned()),
            _ => return Err(NOT_MQTT.to_owned()),
        }
        let filters = topics.subscriptions().into_iter().chain(topics.markers());
        let filters = filters.map(|topic| SubscribeFilter::new(topic, QoS::AtMostOnce));
        connection.send(Request::Subscribe(Subscribe::new_many(filters)))?;
        Ok(connection)
    }

    /// Publishes what the bridge has, and carries out what it is asked for.
    ///
    /// # Errors
    /// Why the connection has ended.
    pub(super) async fn serve(
        mut self,
        bridge: &mut MqttBridge,
        control: &Control,
        has_clients: bool,
    ) -> Result<Infallible, String> {
        let login = Login { role: Role::Control, has_log: false, user: Some("mqtt".into()) };
        let mut caller = Caller::with_login(Ipv4Addr::LOCALHOST.into(), login);
        let [mut facts_due, mut ping_due] = [FACTS_INTERVAL, PING_INTERVAL].map(|period| {
            let mut ticks = interval(period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        ping_due.reset();
        let mut may_read = READ_PER_INTERVAL;
        loop {
            while self.state.inflight() < MAX_UNACKNOWLEDGED
                && let Some(message) = bridge.poll_output()
            {
                self.publish(message)?;
                count(&control.counters.mqtt_published);
            }
            tokio::select! {
                read = self.reader.read_buf(&mut self.received), if may_read > 0 => {
                    let length = read.map_err(|error| error.kind().to_string())?;
                    if length == 0 {
                        return Err("the broker has closed the connection".to_owned());
                    }
                    may_read = may_read.saturating_sub(length);
                    if self.handle_packets(bridge, control, &mut caller).await? {
                        facts_due.reset_immediately();
                    }
                }
                written = write_some(&mut self.writer, &mut self.unsent),
                    if !self.unsent.is_empty() || self.needs_flush =>
                {
                    self.needs_flush = written.map_err(|error| error.kind().to_string())?;
                }
                _ = facts_due.tick() => {
                    may_read = READ_PER_INTERVAL;
                    let clients = if has_clients { MAX_CLIENTS } else { 0 };
                    let now = SystemClock::now();
                    bridge.handle_input(now, MqttInput::Facts(&control.views().mqtt_facts(clients)));
                    bridge.handle_timeout(now);
                    publish_stats(bridge, control);
                }
                _ = ping_due.tick() => self.send(Request::PingReq(PingReq))?,
            }
        }
    }

    /// Handles what has been received; whether calls were made.
    async fn handle_packets(
        &mut self,
        bridge: &mut MqttBridge,
        control: &Control,
        caller: &mut Caller,
    ) -> Result<bool, String> {
        let mut has_called = false;
        while let Some(packet) = parse(&mut self.received)? {
            if let Packet::Publish(Publish { topic, payload, retain, .. }) = &packet {
                let message = MqttInput::Message { topic, payload, is_retained: *retain };
                bridge.handle_input(SystemClock::now(), message);
                if let Some(call) = bridge.poll_call() {
                    has_called = true;
                    carry_out(control, caller, &call).await;
                }
            }
            let answer = self.state.handle_incoming_packet(packet);
            self.state.events.clear();
            if let Some(answer) = answer.map_err(|error| error.to_string())? {
                self.push(&answer)?;
            }
        }
        Ok(has_called)
    }

    fn publish(&mut self, message: MqttMessage) -> Result<(), String> {
        let MqttMessage { topic, payload, is_retained } = message;
        let mut publish = Publish::new(topic, QoS::AtLeastOnce, payload);
        publish.retain = is_retained;
        self.send(Request::Publish(publish))
    }

    fn send(&mut self, request: Request) -> Result<(), String> {
        let packet = self.state.handle_outgoing_packet(request);
        self.state.events.clear();
        let packet = packet.map_err(|error| match error {
            rumqttc::StateError::AwaitPingResp => "the broker does not answer".to_owned(),
            other => other.to_string(),
        })?;
        packet.map_or(Ok(()), |packet| self.push(&packet))
    }

    fn push(&mut self, packet: &Packet) -> Result<(), String> {
        let written = packet.write(&mut self.unsent, MAX_OUTGOING);
        written.map(drop).map_err(|error| error.to_string())
    }

    async fn write_all(&mut self) -> Result<(), String> {
        let written = async {
            self.writer.write_all_buf(&mut self.unsent).await?;
            self.writer.flush().await
        };
        written.await.map_err(|error: io::Error| error.kind().to_string())
    }

    async fn read_packet(&mut self) -> Result<Packet, String> {
        loop {
            if let Some(packet) = parse(&mut self.received)? {
                return Ok(packet);
            }
            match self.reader.read_buf(&mut self.received).await {
                Ok(1..) => {}
                Ok(0) => return Err(CLOSED_AT_LOGIN.to_owned()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(CLOSED_AT_LOGIN.to_owned());
                }
                Err(error) => return Err(error.kind().to_string()),
            }
        }
    }
}

/// Writes what the connection takes, or flushes what TLS keeps; whether there is something to flush
/// then. One step, so that it can be dropped at any time.
async fn write_some(
    writer: &mut WriteHalf<DialedStream>,
    unsent: &mut BytesMut,
) -> io::Result<bool> {
    if unsent.is_empty() {
        return writer.flush().await.map(|()| false);
    }
    writer.write_buf(unsent).await.map(|_| true)
}

/// The next whole packet.
pub(super) fn parse(received: &mut BytesMut) -> Result<Option<Packet>, String> {
    match Packet::read(received, MAX_INCOMING) {
        Ok(packet) => Ok(Some(packet)),
        Err(rumqttc::Error::InsufficientBytes(_)) => Ok(None),
        Err(rumqttc::Error::PayloadSizeLimitExceeded(_)) => {
            Err(format!("the broker has sent a message of more than {MAX_INCOMING} bytes"))
        }
        Err(_) => Err(NOT_MQTT.to_owned()),
    }
}

/// Makes a call as a controller does.
async fn carry_out(control: &Control, caller: &mut Caller, call: &MqttCall) {
    let MqttCall { method, params } = call;
    let line = json!({ "jsonrpc": "2.0", "id": 0, "method": method, "params": params }).to_string();
    let answer = control.request(caller, line.as_bytes()).await;
    let text = answer.map_or_else(String::new, |answer| answer.into_parts().0);
    // A long answer is a good one; its text is not needed.
    let error = if text.len() < MAX_INCOMING {
        serde_json::from_str::<Value>(&text).map_or(Value::Null, |mut reply| reply["error"].take())
    } else {
        Value::Null
    };
    if error.is_null() {
        count(&control.counters.mqtt_commands);
    } else {
        count(&control.counters.mqtt_refused);
        tracing::debug!(target: "mqtt", "{method} was refused: {error}");
    }
}

/// Adds what the bridge has counted since the last time.
fn publish_stats(bridge: &mut MqttBridge, control: &Control) {
    let stats = bridge.take_stats();
    control.counters.mqtt_refused.fetch_add(stats.refused, Ordering::Relaxed);
    control.counters.mqtt_events_dropped.fetch_add(stats.dropped_events, Ordering::Relaxed);
}

const CLOSED_AT_LOGIN: &str =
    "the broker has closed the connection at the login; a port with TLS needs mqtts://";

const NOT_MQTT: &str = "what it sends is not MQTT 3.1.1; a port with TLS needs mqtts://";

fn dial_text(error: &DialError) -> String {
    match error {
        DialError::Name => "the host name has no address".to_owned(),
        DialError::Busy => "too many names are being looked up".to_owned(),
        DialError::Connect(kind) => kind.to_string(),
        DialError::Tls(why) => format!("TLS: {why}"),
    }
}

const fn refusal_text(code: ConnectReturnCode) -> &'static str {
    match code {
        ConnectReturnCode::BadUserNamePassword => "user or password is wrong",
        ConnectReturnCode::NotAuthorized => "the broker refuses this user; check user and password",
        ConnectReturnCode::BadClientId => "the broker refuses the client id; set another `name`",
        ConnectReturnCode::RefusedProtocolVersion => "the broker does not speak MQTT 3.1.1",
        ConnectReturnCode::ServiceUnavailable => "the broker is not available",
        ConnectReturnCode::Success => "the broker accepts",
    }
}
