//! Publishes a station: its chunks, its record, and the time of this node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::{Client, Subscriber};
use aulos_core::{Span, TokenBucket};
use aulos_engine::fanout::TimedChunk;
use aulos_io::SystemClock;
use aulos_proto::nats::{
    ChunkHeader, ChunkMessage, ClockReply, ClockRequest, RepairRequest, StreamRecord,
    audio_subject, clock_subject, lease_key, meta_subject, origin_tag, record_key, repair_subject,
};
use aulos_proto::snap::wire::{
    MessageFrame, MessageHeader, MessageKind, MessageStamp, ServerMessage,
};
use aulos_session::nats::LeaseConfig;
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, timeout};

use super::history::{ChunkHistory, CopiedChunk, WithheldChunks};
use super::lease::{BucketError, LeaseDriver, open_bucket};
use super::link::{Link, is_connected};
use super::replicas::{BucketReplicas, raise_replicas};
use super::{NatsCounters, PublicationState, PublishedStation};

/// What the origins of this server share.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) site: String,
    pub(super) node: String,
    /// The last epoch that was used.
    pub(super) epoch: Arc<AtomicU32>,
    /// A random number of this process.
    pub(super) process: u64,
    /// For how long a lease lasts.
    pub(super) lease_ttl: Span,
    /// Copies of records and leases.
    pub(super) replicas: BucketReplicas,
    /// Set when the server ends, so that leases are given back.
    pub(super) is_ending: Arc<AtomicBool>,
    pub(super) state: PublicationState,
    pub(super) counters: Arc<NatsCounters>,
}

/// A station on its way to NATS.
struct Publisher {
    client: Client,
    station: PublishedStation,
    counters: Arc<NatsCounters>,
    lease: LeaseDriver,
    audio: String,
    origin: u16,
    /// That of the last chunk.
    epoch: Option<u32>,
    /// The number of the next chunk.
    sequence: u64,
    message: Vec<u8>,
    buffer: BytesMut,
    history: ChunkHistory,
    /// What was not sent, for the moment at which the lease is acquired.
    withheld: WithheldChunks,
    /// How many chunks may be sent again.
    repairs: TokenBucket,
}

impl Origin {
    /// Publishes a station until its ring is abandoned.
    pub(super) async fn run(self, link: Arc<Link>, station: PublishedStation) {
        let Some((codec, codec_header)) = codec_header(&station.codec_header) else { return };
        let client = client(&link).await;
        let mut publisher = Publisher {
            audio: audio_subject(&self.site, &station.name, &codec),
            client: client.clone(),
            lease: self.lease(&client, &station.name),
            station,
            counters: Arc::clone(&self.counters),
            origin: origin_tag(&self.node),
            epoch: None,
            sequence: 0,
            message: Vec::new(),
            buffer: BytesMut::new(),
            history: ChunkHistory::default(),
            withheld: WithheldChunks::default(),
            repairs: TokenBucket::new(REPAIR_BURST, REPAIR_INTERVAL, SystemClock::now()),
        };
        let mut requests =
            client.subscribe(repair_subject(&self.site, &publisher.station.name)).await.ok();
        let mut tick = ticks();
        let mut announcer = Announcer {
            meta: meta_subject(&self.site, &publisher.station.name),
            key: record_key(&self.site, &publisher.station.name),
            codec: (codec, codec_header),
            announced: None,
            stored: None,
        };
        let mut was_connected = false;
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                Some(request) = next_request(&mut requests) => {
                    publisher.repair(&request).await;
                    continue;
                }
            }
            publisher.lease.handle_timeout();
            let connected = is_connected(&client);
            if !connected {
                announcer.forget();
            } else if let Some(epoch) = publisher.lease.epoch(SystemClock::now()) {
                let lease = &publisher.lease;
                let (is_leased, is_confirmed) = (lease.is_leased(), lease.is_confirmed());
                if announcer.is_due(epoch, is_confirmed) {
                    let codec = (&*announcer.codec.0, &*announcer.codec.1);
                    let record = self.record(&publisher.station, (epoch, is_leased), codec);
                    let to = (&client, self.replicas);
                    announcer.announce(to, (epoch, is_confirmed), record).await;
                }
            }
            if connected && !was_connected && publisher.epoch.is_some() {
                publisher.publish_again().await;
            }
            was_connected = connected;
            if !publisher.publish_all(connected).await || self.is_ending.load(Ordering::Relaxed) {
                return publisher.lease.release().await;
            }
        }
    }

    fn lease(&self, client: &Client, station: &str) -> LeaseDriver {
        // A later run of a station has a higher number.
        let run = self.epoch.fetch_add(1, Ordering::Relaxed) + 1;
        let config = LeaseConfig {
            node: self.node.clone(),
            process: self.process,
            run,
            ttl: self.lease_ttl,
            first_epoch: run,
        };
        let about = (client.clone(), station.to_owned(), lease_key(&self.site, station));
        LeaseDriver::new(
            config,
            about,
            (self.state.clone(), self.replicas),
            Arc::clone(&self.counters),
        )
    }

    fn record(
        &self,
        station: &PublishedStation,
        (epoch, is_leased): (u32, bool),
        (codec, codec_header): (&str, &[u8]),
    ) -> Bytes {
        let PublishedStation { buffer, chunk, spec, .. } = *station;
        let node = &self.node;
        let record =
            StreamRecord { epoch, is_leased, buffer, chunk, spec, node, codec, codec_header };
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        bytes.into()
    }
}

/// Says what the station is: to the edges that are there, and in a bucket for those to come.
struct Announcer {
    meta: String,
    key: String,
    /// Its name and header.
    codec: (String, Vec<u8>),
    /// When the last record was sent, with which epoch.
    announced: Option<(Instant, u32)>,
    /// The epoch of the record that was put into the bucket.
    stored: Option<u32>,
}

impl Announcer {
    fn is_due(&self, epoch: u32, is_confirmed: bool) -> bool {
        self.is_unsaid(epoch) || self.is_unstored(epoch, is_confirmed)
    }

    fn is_unsaid(&self, epoch: u32) -> bool {
        self.announced.is_none_or(|(at, before)| before != epoch || at.elapsed() >= RECORD_INTERVAL)
    }

    /// Of two origins that send, the one that is superseded must not replace the record.
    fn is_unstored(&self, epoch: u32, is_confirmed: bool) -> bool {
        is_confirmed && self.stored != Some(epoch)
    }

    async fn announce(
        &mut self,
        (client, replicas): (&Client, BucketReplicas),
        (epoch, is_confirmed): (u32, bool),
        record: Bytes,
    ) {
        if self.is_unstored(epoch, is_confirmed) {
            self.stored = Some(epoch);
            let put = (self.key.clone(), record.clone());
            tokio::spawn(store_record(client.clone(), replicas, put));
        }
        if self.is_unsaid(epoch) {
            self.announced = Some((Instant::now(), epoch));
            // A record that is lost comes again.
            timeout(MAX_WAIT, client.publish(self.meta.clone(), record)).await.ok();
        }
    }

    /// Without a connection: another server, or another bucket, may be the next.
    const fn forget(&mut self) {
        (self.announced, self.stored) = (None, None);
    }
}

impl Publisher {
    /// Publishes what is in the ring; false once nothing more can come.
    async fn publish_all(&mut self, connected: bool) -> bool {
        let is_over = self.station.chunks.is_abandoned();
        while let Some(chunk) = self.station.chunks.pop() {
            // A process that was stopped meanwhile must not send what it could have sent before.
            let now = SystemClock::now();
            let epoch = self.lease.epoch(now);
            // The chunk returns to its pool, whatever the connection does.
            let chunk = self.copy(&chunk);
            let Some(epoch) = epoch else {
                let unsent = [&self.counters.unconnected, &self.counters.withheld];
                unsent[usize::from(connected)].fetch_add(1, Ordering::Relaxed);
                self.withheld.push(chunk, now, self.station.buffer);
                continue;
            };
            if self.epoch != Some(epoch) {
                (self.epoch, self.sequence) = (Some(epoch), 0);
                // Edges play these in the place of what the origin before has not sent any more.
                for chunk in self.withheld.take(now, self.station.buffer) {
                    self.publish(epoch, &chunk, connected).await;
                }
            }
            self.publish(epoch, &chunk, connected).await;
        }
        !is_over
    }

    async fn publish(&mut self, epoch: u32, chunk: &CopiedChunk, connected: bool) {
        let sequence = self.sequence;
        self.sequence += 1;
        let message = self.encode(chunk, (epoch, sequence));
        self.history.push((epoch, sequence), chunk.recorded, message.clone());
        self.history.forget(SystemClock::now(), self.station.buffer);
        if !connected {
            self.counters.unconnected.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let sent = timeout(MAX_WAIT, self.client.publish(self.audio.clone(), message)).await;
        let counter = match sent {
            Ok(Ok(())) => &self.counters.published,
            Ok(Err(_)) | Err(_) => &self.counters.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn copy(&mut self, chunk: &TimedChunk) -> CopiedChunk {
        self.buffer.extend_from_slice(chunk.chunk.payload());
        CopiedChunk {
            first_frame: chunk.chunk.pts,
            frames: chunk.chunk.duration,
            recorded: chunk.timestamp,
            payload: self.buffer.split().freeze(),
        }
    }

    /// After a connection was lost: what it has not carried, or was made without it. Edges drop
    /// what they have.
    async fn publish_again(&mut self) {
        let Some(epoch) = self.lease.epoch(SystemClock::now()) else { return };
        self.history.forget(SystemClock::now(), self.station.buffer);
        for message in self.history.of_epoch(epoch) {
            let sent = timeout(MAX_WAIT, self.client.publish(self.audio.clone(), message)).await;
            if !matches!(sent, Ok(Ok(()))) {
                return;
            }
            self.counters.again.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends the chunks that an edge has missed to it alone.
    async fn repair(&mut self, request: &async_nats::Message) {
        let (Some(reply_to), Ok(missing)) =
            (&request.reply, RepairRequest::parse(&request.payload))
        else {
            return;
        };
        for message in self.history.requested(missing) {
            let is_allowed = self.repairs.try_take(SystemClock::now());
            let sent = self.client.publish(reply_to.clone(), message);
            if !is_allowed || !matches!(timeout(MAX_WAIT, sent).await, Ok(Ok(()))) {
                return;
            }
            self.counters.again.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn encode(&mut self, chunk: &CopiedChunk, (epoch, sequence): (u32, u64)) -> Bytes {
        let age = Duration::from(SystemClock::now() - chunk.recorded);
        let wall = (SystemTime::now() - age).duration_since(UNIX_EPOCH).unwrap_or_default();
        let header = ChunkHeader {
            origin: self.origin,
            epoch,
            sequence,
            first_frame: chunk.first_frame,
            recorded: chunk.recorded,
            wall_nanos: i64::try_from(wall.as_nanos()).unwrap_or(i64::MAX),
            frames: chunk.frames,
        };
        self.message.clear();
        ChunkMessage { header, payload: &chunk.payload }.write(&mut self.message);
        // The buffer is used again once the messages in it are written and out of the history.
        self.buffer.extend_from_slice(&self.message);
        self.buffer.split().freeze()
    }
}

/// Answers requests for the time of this node, until the runtime ends.
pub(super) async fn answer_clock(
    link: Arc<Link>,
    site: String,
    node: String,
    counters: Arc<NatsCounters>,
) {
    let client = client(&link).await;
    let subject = clock_subject(&site, &node);
    let Ok(mut requests) = client.subscribe(subject).await else { return };
    let mut message = Vec::new();
    while let Some(request) = next(&mut requests).await {
        let received = SystemClock::now();
        let (Some(reply_to), Ok(request)) = (request.reply, ClockRequest::parse(&request.payload))
        else {
            continue;
        };
        let latency = received - request.sent;
        message.clear();
        ClockReply { id: request.id, latency, sent: SystemClock::now() }.write(&mut message);
        let reply = Bytes::copy_from_slice(&message);
        if let Ok(Ok(())) = timeout(MAX_WAIT, client.publish(reply_to, reply)).await {
            counters.times.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The client of a link. What is wrong with the configuration may be set right, such as a file.
pub(super) async fn client(link: &Link) -> Client {
    loop {
        match link.client().await {
            Ok(client) => return client.clone(),
            Err(error) => tracing::error!(target: "nats", %error, "cannot connect"),
        }
        sleep(CONFIG_RETRY).await;
    }
}

fn ticks() -> Interval {
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick
}

/// The next request; never one if there is no subscription.
async fn next_request(requests: &mut Option<Subscriber>) -> Option<async_nats::Message> {
    match requests {
        Some(requests) => next(requests).await,
        None => std::future::pending().await,
    }
}

/// The next message; `None` once the subscription is over.
pub(super) async fn next(messages: &mut Subscriber) -> Option<async_nats::Message> {
    std::future::poll_fn(|context| std::pin::Pin::new(&mut *messages).poll_next(context)).await
}

/// Puts the record into its bucket, which is made if there is none. Without `JetStream` there is no
/// bucket, and edges wait for the record to be sent again.
async fn store_record(client: Client, replicas: BucketReplicas, (key, record): (String, Bytes)) {
    let stored = match open_bucket(client.clone(), replicas).await {
        Ok(bucket) => {
            let stored = bucket.put(key, record).await;
            raise_replicas(client, &bucket, replicas).await;
            stored.map(drop).map_err(|error| error.to_string())
        }
        // Said with the lease.
        Err(BucketError::NoJetStream) => Ok(()),
        Err(BucketError::Failed(error)) => Err(error.to_string()),
    };
    if let Err(error) = stored {
        tracing::warn!(target: "nats", %error, "cannot store the record of a stream in JetStream; a new edge waits for up to 2 s");
    }
}

/// Name and header of the codec from the payload of Snapcast's message.
fn codec_header(payload: &[u8]) -> Option<(String, Vec<u8>)> {
    let size = u32::try_from(payload.len()).ok()?;
    let header =
        MessageHeader { kind: MessageKind::CodecHeader, stamp: MessageStamp::default(), size };
    match ServerMessage::parse(&MessageFrame { header, payload }).ok()? {
        ServerMessage::CodecHeader { codec, header } => {
            Some((String::from_utf8(codec.to_vec()).ok()?, header.to_vec()))
        }
        _ => None,
    }
}

/// How often a ring is looked into: as long as the shortest chunk.
const TICK: Duration = Duration::from_millis(10);

/// How often a record is sent again.
const RECORD_INTERVAL: Duration = Duration::from_secs(2);

/// How long the connection may take a message; the ring holds chunks for longer.
const MAX_WAIT: Duration = Duration::from_millis(200);

/// How many chunks may be sent again at once, and how soon another one: fifty edges that have
/// missed a second. More is no accident.
const REPAIR_BURST: u32 = 2_500;
const REPAIR_INTERVAL: Span = Span::from_millis(1);

/// Until a configuration that cannot be used is tried again.
const CONFIG_RETRY: Duration = Duration::from_secs(10);
