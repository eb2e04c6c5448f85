//! Carries out what [`SharedSettings`] decides: requests to the bucket, and what it is told of it.
//!
//! The bucket is watched anew after each loss of the connection, so that everything that was missed
//! comes again; the machine ignores what it knows.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::kv::{Entry, Operation, Store, UpdateErrorKind, Watch};
use aulos_control::cluster::SettingsChange;
use aulos_core::Instant;
use aulos_io::SystemClock;
use aulos_proto::nats::{SETTINGS_BUCKET, SettingsKey, SettingsRecord};
use aulos_session::nats::{
    SettingsCounts, SettingsEvent, SettingsOperation, SettingsOutput, SettingsReply, SettingsValue,
    SharedSettings,
};
use futures_core::Stream as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::NatsCounters;
use super::lease::{BucketError, open_named_bucket};
use super::link::{Link, is_connected};
use super::origin::client;
use super::replicas::BucketReplicas;

/// The control plane's end.
pub(super) struct SettingsLink {
    changes: mpsc::Sender<SettingsChange>,
    records: Mutex<mpsc::Receiver<(SettingsKey, SettingsRecord)>>,
}

impl SettingsLink {
    /// False if there is no room.
    pub(super) fn change(&self, change: SettingsChange) -> bool {
        self.changes.try_send(change).is_ok()
    }

    pub(super) fn take(&self) -> Option<(SettingsKey, SettingsRecord)> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).try_recv().ok()
    }
}

/// The task.
pub(super) struct SettingsSharing {
    site: String,
    replicas: BucketReplicas,
    machine: SharedSettings,
    changes: mpsc::Receiver<SettingsChange>,
    records: mpsc::Sender<(SettingsKey, SettingsRecord)>,
    /// A record for which there was no room.
    held: Option<(SettingsKey, SettingsRecord)>,
    reply_sender: mpsc::Sender<(u64, SettingsReply)>,
    replies: mpsc::Receiver<(u64, SettingsReply)>,
    bucket: BucketState,
    counted: SettingsCounts,
    counters: Arc<NatsCounters>,
    has_warned: bool,
}

enum BucketState {
    /// It is to be opened then.
    Closed(Instant),
    Opening(oneshot::Receiver<Result<Box<OpenBucket>, String>>),
    Open(Box<OpenBucket>),
}

/// The bucket, and its entries as they come.
struct OpenBucket {
    store: Store,
    watch: Watch,
}

/// What has come from the bucket.
enum BucketEvent {
    Opened(Result<Box<OpenBucket>, String>),
    Entry(Option<Entry>),
}

impl SettingsSharing {
    pub(super) fn new(
        site: String,
        replicas: BucketReplicas,
        counters: Arc<NatsCounters>,
    ) -> (Self, SettingsLink) {
        let (changes, receiver) = mpsc::channel(MAX_CHANGES);
        let (records, applied) = mpsc::channel(MAX_RECORDS);
        let (reply_sender, replies) = mpsc::channel(MAX_REPLIES);
        let now = SystemClock::now();
        let sharing = Self {
            site,
            replicas,
            machine: SharedSettings::new(now),
            changes: receiver,
            records,
            held: None,
            reply_sender,
            replies,
            bucket: BucketState::Closed(now),
            counted: SettingsCounts::default(),
            counters,
            has_warned: false,
        };
        (sharing, SettingsLink { changes, records: Mutex::new(applied) })
    }

    /// Runs until the control plane has dropped its end.
    pub(super) async fn run(mut self, link: Arc<Link>) {
        let client = client(&link).await;
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                change = self.changes.recv() => {
                    let Some(SettingsChange { key, before, after }) = change else { return };
                    self.machine.handle_change(SystemClock::now(), key, before, after);
                }
                reply = self.replies.recv() => if let Some((id, reply)) = reply {
                    self.handle(SettingsEvent::Reply { id, reply });
                },
                event = next_event(&mut self.bucket) => self.handle_bucket(event),
                _ = tick.tick() => self.handle_timeout(&client),
            }
            self.drain();
        }
    }

    fn handle(&mut self, event: SettingsEvent) {
        self.machine.handle_input(SystemClock::now(), event);
    }

    fn handle_timeout(&mut self, client: &Client) {
        let now = SystemClock::now();
        if self.machine.poll_timeout().is_some_and(|at| at <= now) {
            self.machine.handle_timeout(now);
        }
        match &self.bucket {
            BucketState::Closed(at) if *at <= now && is_connected(client) => {
                let (replicas, (sender, receiver)) = (self.replicas, oneshot::channel());
                let (client, keys) = (client.clone(), SettingsKey::all_of(&self.site));
                tokio::spawn(async move {
                    let opened = timeout(OPEN_TIMEOUT, open(client, &keys, replicas)).await;
                    let opened = opened.unwrap_or_else(|_| Err("no answer in time".to_owned()));
                    // The server may be over.
                    sender.send(opened).ok();
                });
                self.bucket = BucketState::Opening(receiver);
            }
            BucketState::Open(_) if !is_connected(client) => self.close("disconnected"),
            _ => {}
        }
    }

    fn handle_bucket(&mut self, event: BucketEvent) {
        match event {
            BucketEvent::Opened(Ok(bucket)) => {
                tracing::info!(target: "nats", "the settings of clients are shared");
                self.has_warned = false;
                self.bucket = BucketState::Open(bucket);
                self.handle(SettingsEvent::Opened);
            }
            BucketEvent::Opened(Err(error)) => self.close(&error),
            BucketEvent::Entry(None) => self.close("the watch has ended"),
            BucketEvent::Entry(Some(entry)) => {
                if let Some(key) = SettingsKey::parse(&self.site, &entry.key) {
                    let (revision, value) = (entry.revision, value(&entry));
                    self.handle(SettingsEvent::Entry { key, revision, value });
                }
            }
        }
    }

    fn close(&mut self, error: &str) {
        if !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!(target: "nats", error, "the settings of clients cannot be shared now; changes wait");
        }
        self.bucket = BucketState::Closed(SystemClock::now() + OPEN_RETRY);
        self.handle(SettingsEvent::Closed);
    }

    fn drain(&mut self) {
        while self.held.is_none() || self.pass_held() {
            match self.machine.poll_output() {
                Some(SettingsOutput::Request { id, key, operation }) => {
                    self.request(id, &key, operation);
                }
                Some(SettingsOutput::Apply { key, record }) => self.held = Some((key, record)),
                _ => break,
            }
        }
        let counts = self.machine.counts();
        let before = std::mem::replace(&mut self.counted, counts);
        self.counters.add_settings(counts, before);
        self.counters.settings_waiting.store(self.machine.waiting() as u64, Ordering::Relaxed);
    }

    /// Passes the held record on; false if there is still no room.
    fn pass_held(&mut self) -> bool {
        let Some(record) = self.held.take() else { return true };
        match self.records.try_send(record) {
            Ok(()) => true,
            Err(error) => {
                self.held = Some(error.into_inner());
                false
            }
        }
    }

    fn request(&self, id: u64, key: &SettingsKey, operation: SettingsOperation) {
        let sender = self.reply_sender.clone();
        let (BucketState::Open(bucket), Some(key)) = (&self.bucket, key.to_key(&self.site)) else {
            // Its time-out follows.
            sender.try_send((id, SettingsReply::Failed)).ok();
            return;
        };
        let store = bucket.store.clone();
        tokio::spawn(async move {
            let reply = execute(&store, &key, operation).await;
            sender.send((id, reply)).await.ok();
        });
    }
}

/// The next event of the bucket; never one while it is closed.
async fn next_event(bucket: &mut BucketState) -> BucketEvent {
    match bucket {
        BucketState::Closed(_) => std::future::pending().await,
        BucketState::Opening(receiver) => BucketEvent::Opened(
            receiver.await.unwrap_or_else(|_| Err("the attempt has ended".to_owned())),
        ),
        BucketState::Open(bucket) => {
            let entry = std::future::poll_fn(|context| {
                std::pin::Pin::new(&mut bucket.watch).poll_next(context)
            });
            BucketEvent::Entry(entry.await.and_then(Result::ok))
        }
    }
}

async fn open(
    client: Client,
    keys: &str,
    replicas: BucketReplicas,
) -> Result<Box<OpenBucket>, String> {
    let store = match open_named_bucket(client, SETTINGS_BUCKET, replicas).await {
        Ok(store) => store,
        Err(BucketError::NoJetStream) => {
            return Err("NATS has no JetStream; start nats-server with -js".to_owned());
        }
        Err(BucketError::Failed(error)) => return Err(error.to_string()),
    };
    let watch = store.watch_with_history(keys).await.map_err(|error| error.to_string())?;
    Ok(Box::new(OpenBucket { store, watch }))
}

async fn execute(store: &Store, key: &str, operation: SettingsOperation) -> SettingsReply {
    match operation {
        SettingsOperation::Read => match store.entry(key).await {
            Ok(Some(entry)) => {
                SettingsReply::Entry { revision: entry.revision, value: value(&entry) }
            }
            Ok(None) => SettingsReply::Entry { revision: 0, value: SettingsValue::Absent },
            Err(_) => SettingsReply::Failed,
        },
        SettingsOperation::Write { revision, record } => {
            let mut bytes = Vec::new();
            record.write(&mut bytes);
            match store.update(key, bytes.into(), revision).await {
                Ok(revision) => SettingsReply::Written { revision },
                Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => {
                    SettingsReply::Conflict
                }
                Err(_) => SettingsReply::Failed,
            }
        }
    }
}

fn value(entry: &Entry) -> SettingsValue {
    match (entry.operation, SettingsRecord::parse(&entry.value)) {
        (Operation::Delete | Operation::Purge, _) => SettingsValue::Absent,
        (Operation::Put, Ok(record)) => SettingsValue::Record(record),
        (Operation::Put, Err(_)) => SettingsValue::Unreadable,
    }
}

/// How often the machine and the connection are looked at.
const TICK: Duration = Duration::from_millis(50);

/// Changes that wait for the task; more wait in the control plane.
const MAX_CHANGES: usize = 256;

/// Records that wait for the control plane; more wait in the machine.
const MAX_RECORDS: usize = 1_024;

/// Answers that wait; the machine has eight requests under way.
const MAX_REPLIES: usize = 64;

/// How long it may take to open the bucket.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Until the bucket is opened again.
const OPEN_RETRY: aulos_core::Span = aulos_core::Span::from_secs(1);
