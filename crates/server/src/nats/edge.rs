//! Subscribes to a station of another server, and feeds it to a station of this one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_nats::jetstream;
use async_nats::{Client, Message, Subscriber};
use aulos_core::Instant;
use aulos_io::SystemClock;
use aulos_io::feed::{Feeder, NextPoll};
use aulos_proto::nats::{
    ClockRequest, RepairRequest, STREAMS_BUCKET, all_audio_subjects, clock_subject, meta_subject,
    record_key, repair_subject,
};
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_session::nats::{NatsInput, NatsInputCounts, NatsInputEvent, NatsInputOutput};
use aulos_session::snapcast::SnapcastInputCounts;
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::NatsCounters;
use super::link::{Link, is_connected};
use super::origin::{client, next};

/// Whose subjects are subscribed to.
#[derive(Clone, Debug)]
pub(super) struct Subjects {
    pub(super) site: String,
    pub(super) station: String,
}

/// A message on its way to the reactor.
#[derive(Debug)]
struct ReceivedMessage {
    received: Instant,
    kind: MessageKind,
    bytes: Bytes,
}

#[derive(Clone, Copy, Debug)]
enum MessageKind {
    Record,
    Chunk,
    ClockReply,
}

/// What the feeder asks for.
#[derive(Debug)]
enum EdgeRequest {
    Time { node: String, id: u16 },
    Repair(RepairRequest),
}

/// What the feeder and the task tell each other besides messages.
#[derive(Debug, Default)]
struct EdgeState {
    /// By the task: whether NATS is connected.
    is_connected: AtomicBool,
    /// By the feeder: whether the station needs the source.
    is_needed: AtomicBool,
    /// By the task: messages that did not fit into the ring.
    overflow: AtomicU64,
}

/// Passes what has come to the source, on the tick of a reactor.
#[derive(Debug)]
pub(crate) struct NatsFeeder {
    input: NatsInput,
    messages: Consumer<ReceivedMessage>,
    requests: mpsc::Sender<EdgeRequest>,
    state: Arc<EdgeState>,
    was_connected: bool,
    overflow: u64,
    counters: Arc<NatsCounters>,
    counted: (NatsInputCounts, SnapcastInputCounts),
}

/// The task's end of a feeder.
#[derive(Debug)]
pub(super) struct EdgePort {
    messages: Producer<ReceivedMessage>,
    requests: mpsc::Receiver<EdgeRequest>,
    state: Arc<EdgeState>,
}

impl NatsFeeder {
    pub(super) fn new(input: NatsInput, counters: Arc<NatsCounters>) -> (Self, EdgePort) {
        let (producer, messages) = ring(RING_MESSAGES);
        let (requests, receiver) = mpsc::channel(MAX_REQUESTS);
        let state = Arc::<EdgeState>::default();
        state.is_needed.store(true, Ordering::Relaxed);
        let port = EdgePort { messages: producer, requests: receiver, state: Arc::clone(&state) };
        let feeder = Self {
            input,
            messages,
            requests,
            state,
            was_connected: false,
            overflow: 0,
            counters,
            counted: Default::default(),
        };
        (feeder, port)
    }

    fn receive(&mut self, now: Instant) {
        let connected = self.state.is_connected.load(Ordering::Acquire);
        if connected != std::mem::replace(&mut self.was_connected, connected) {
            let lost = NatsInputEvent::Disconnected(io::ErrorKind::NotConnected);
            let event = if connected { NatsInputEvent::Connected } else { lost };
            self.input.handle_input(now, event);
        }
        for _ in 0..RING_MESSAGES {
            let Some(message) = self.messages.pop() else { break };
            let event = match message.kind {
                MessageKind::Record => NatsInputEvent::Record(&message.bytes),
                MessageKind::Chunk => NatsInputEvent::Chunk(&message.bytes),
                MessageKind::ClockReply => NatsInputEvent::ClockReply(&message.bytes),
            };
            self.input.handle_input(message.received, event);
        }
        let overflow = self.state.overflow.load(Ordering::Relaxed);
        let lost = overflow - std::mem::replace(&mut self.overflow, overflow);
        if lost > 0 {
            self.input.handle_input(now, NatsInputEvent::Overflow(lost));
        }
    }
}

impl Feeder for NatsFeeder {
    fn tick(&mut self, now: Instant) -> NextPoll {
        if self.input.is_abandoned() {
            return NextPoll::Never;
        }
        self.receive(now);
        self.input.handle_timeout(now);
        while let Some(output) = self.input.poll_output() {
            let request = match output {
                NatsInputOutput::AskTime { node, id } => EdgeRequest::Time { node, id },
                NatsInputOutput::Repair(request) => EdgeRequest::Repair(request),
                _ => continue,
            };
            // A request for the time that is lost is repeated by the source's own time-out.
            drop(self.requests.try_send(request));
        }
        self.state.is_needed.store(self.input.is_needed(), Ordering::Relaxed);
        let counts = (self.input.counts(), self.input.playout_counts());
        let before = std::mem::replace(&mut self.counted, counts);
        self.counters.add((counts.0, before.0), (counts.1, before.1));
        let is_active = self.input.poll_timeout().is_some();
        if is_active { NextPoll::Soon } else { NextPoll::Later }
    }
}

impl EdgePort {
    /// Passes a message on, with the time of its arrival.
    fn push(&mut self, kind: MessageKind, bytes: Bytes) {
        let message = ReceivedMessage { received: SystemClock::now(), kind, bytes };
        if self.messages.push(message).is_err() {
            self.state.overflow.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What a source is subscribed to while it is needed.
struct Subscriptions {
    audio: Subscriber,
    meta: Subscriber,
    replies: Subscriber,
    repairs: Subscriber,
}

impl Subscriptions {
    async fn new(client: &Client, subjects: &Subjects, inboxes: &[String; 2]) -> Option<Self> {
        let Subjects { site, station } = subjects;
        let audio = client.subscribe(all_audio_subjects(site, station)).await.ok()?;
        let meta = client.subscribe(meta_subject(site, station)).await.ok()?;
        let [replies, repairs] = inboxes.clone();
        let replies = client.subscribe(replies).await.ok()?;
        let repairs = client.subscribe(repairs).await.ok()?;
        Some(Self { audio, meta, replies, repairs })
    }
}

/// The next message of the subscriptions; `None` once they are over. Without subscriptions there is
/// none ever.
async fn next_message(subscriptions: &mut Option<Subscriptions>) -> Option<(MessageKind, Message)> {
    let Some(Subscriptions { audio, meta, replies, repairs }) = subscriptions else {
        return std::future::pending().await;
    };
    tokio::select! {
        biased;
        reply = next(replies) => Some((MessageKind::ClockReply, reply?)),
        // It comes before its chunks, which mean nothing without it.
        record = next(meta) => Some((MessageKind::Record, record?)),
        chunk = next(repairs) => Some((MessageKind::Chunk, chunk?)),
        chunk = next(audio) => Some((MessageKind::Chunk, chunk?)),
    }
}

/// Passes messages to a feeder until it is gone.
pub(super) async fn edge(
    link: Arc<Link>,
    subjects: Subjects,
    mut port: EdgePort,
    counters: Arc<NatsCounters>,
) {
    let client = client(&link).await;
    let inboxes = [client.new_inbox(), client.new_inbox()];
    let mut subscriptions = None;
    let (stored, mut records) = mpsc::channel(1);
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut request = Vec::new();
    loop {
        tokio::select! {
            message = next_message(&mut subscriptions) => match message {
                // What has a status is an answer of NATS itself: the subject has no subscriber.
                Some((_, message)) if message.status.is_some() => {}
                Some((kind, message)) => port.push(kind, message.payload),
                None => subscriptions = None,
            },
            asked = port.requests.recv() => {
                let Some(asked) = asked else { return };
                request.clear();
                let (subject, inbox) = match asked {
                    EdgeRequest::Time { node, id } => {
                        ClockRequest { id, sent: SystemClock::now() }.write(&mut request);
                        (clock_subject(&subjects.site, &node), &inboxes[0])
                    }
                    EdgeRequest::Repair(missing) => {
                        missing.write(&mut request);
                        (repair_subject(&subjects.site, &subjects.station), &inboxes[1])
                    }
                };
                let bytes = Bytes::copy_from_slice(&request);
                let sent = client.publish_with_reply(subject, inbox.clone(), bytes);
                if !matches!(timeout(MAX_WAIT, sent).await, Ok(Ok(()))) {
                    counters.refused.fetch_add(1, Ordering::Relaxed);
                }
            }
            Some(record) = records.recv() => port.push(MessageKind::Record, record),
            _ = tick.tick() => {
                let is_needed = port.state.is_needed.load(Ordering::Relaxed);
                if !is_needed {
                    subscriptions = None;
                } else if subscriptions.is_none() {
                    subscriptions = Subscriptions::new(&client, &subjects, &inboxes).await;
                }
                let connected = is_connected(&client);
                let was_connected = port.state.is_connected.swap(connected, Ordering::AcqRel);
                if connected && !was_connected {
                    tokio::spawn(load_record(client.clone(), subjects.clone(), stored.clone()));
                }
            }
        }
    }
}

/// Reads the record from its bucket. If there is none, it comes within two seconds.
async fn load_record(client: Client, subjects: Subjects, records: mpsc::Sender<Bytes>) {
    let key = record_key(&subjects.site, &subjects.station);
    let bucket = jetstream::new(client).get_key_value(STREAMS_BUCKET).await;
    let record = match bucket {
        Ok(bucket) => bucket.get(key).await.ok().flatten(),
        Err(_) => None,
    };
    if let Some(record) = record {
        // The task may be over.
        records.send(record).await.ok();
    }
}

/// Messages between NATS and the reactor: two seconds of chunks of 10 ms.
const RING_MESSAGES: usize = 256;

/// Requests for the time that wait; the source asks again when an answer is missing.
const MAX_REQUESTS: usize = 4;

/// How often the connection and the station's need are looked at.
const TICK: Duration = Duration::from_millis(50);

/// How long the connection may take a request; a later answer would say little about the clock.
const MAX_WAIT: Duration = Duration::from_millis(200);
