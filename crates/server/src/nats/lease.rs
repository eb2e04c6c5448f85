//! Carries out what a [`Lease`] decides: requests to the bucket, and what the status shows.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::context::{AccountErrorKind, GetStreamErrorKind, KeyValueErrorKind};
use async_nats::jetstream::kv::{Operation, Store, UpdateErrorKind};
use async_nats::jetstream::{self, ErrorCode, kv};
use aulos_core::Instant;
use aulos_io::SystemClock;
use aulos_proto::nats::{LeaseRecord, STREAMS_BUCKET};
use aulos_session::nats::{
    Lease, LeaseConfig, LeaseOperation, LeaseOutput, LeaseReply, LeaseRequest, LeaseState,
    LeaseValue,
};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::counters::lease_gauge;
use super::link::is_connected;
use super::replicas::{BucketReplicas, create_bucket};
use super::{NatsCounters, PublicationState};

/// The lease of a station, and the way to its bucket.
pub(super) struct LeaseDriver {
    lease: Lease,
    station: String,
    key: Arc<LeaseKey>,
    sender: mpsc::Sender<(u64, LeaseReply)>,
    replies: mpsc::Receiver<(u64, LeaseReply)>,
    state: PublicationState,
    counters: Arc<NatsCounters>,
    /// The epoch with which it has sent last.
    epoch: Option<u32>,
}

/// A key in the bucket.
struct LeaseKey {
    client: Client,
    key: String,
    bucket: Mutex<Option<Store>>,
    replicas: BucketReplicas,
}

impl LeaseDriver {
    pub(super) fn new(
        config: LeaseConfig,
        (client, station, key): (Client, String, String),
        (state, replicas): (PublicationState, BucketReplicas),
        counters: Arc<NatsCounters>,
    ) -> Self {
        let (sender, replies) = mpsc::channel(MAX_REPLIES);
        lease_gauge(&counters, &state.get()).fetch_add(1, Ordering::Relaxed);
        Self {
            lease: Lease::new(config, SystemClock::now()),
            station,
            key: Arc::new(LeaseKey { client, key, bucket: Mutex::new(None), replicas }),
            sender,
            replies,
            state,
            counters,
            epoch: None,
        }
    }

    /// Does what is due. To be called every few milliseconds on a runtime.
    pub(super) fn handle_timeout(&mut self) {
        let now = SystemClock::now();
        while let Ok((id, reply)) = self.replies.try_recv() {
            self.lease.handle_input(now, id, reply);
        }
        if self.lease.poll_timeout() <= now {
            self.lease.handle_timeout(now);
        }
        while let Some(output) = self.lease.poll_output() {
            match output {
                LeaseOutput::Changed(state) => self.show(state),
                LeaseOutput::Request(LeaseRequest { id, operation }) => {
                    let (key, sender) = (Arc::clone(&self.key), self.sender.clone());
                    tokio::spawn(async move {
                        let reply = key.execute(operation).await;
                        // The station may be over.
                        sender.send((id, reply)).await.ok();
                    });
                }
                _ => {}
            }
        }
    }

    /// The epoch with which the station may be sent at this moment.
    pub(super) fn epoch(&self, now: Instant) -> Option<u32> {
        self.lease.epoch(now)
    }

    /// Whether the epoch is that of a lease.
    pub(super) fn is_leased(&self) -> bool {
        matches!(self.state.get(), LeaseState::Holder { .. } | LeaseState::Unconfirmed { .. })
    }

    /// Whether no other origin can have the lease, so that what this one stores is not older.
    pub(super) fn is_confirmed(&self) -> bool {
        matches!(self.state.get(), LeaseState::Holder { .. } | LeaseState::Unleased { .. })
    }

    /// Gives the lease back.
    pub(super) async fn release(mut self) {
        self.lease.release(SystemClock::now());
        while let Some(output) = self.lease.poll_output() {
            if let LeaseOutput::Request(LeaseRequest { operation, .. }) = output {
                // If that fails, another origin waits for the end of the lease.
                timeout(MAX_RELEASE, self.key.execute(operation)).await.ok();
            }
        }
        lease_gauge(&self.counters, &self.state.get()).fetch_sub(1, Ordering::Relaxed);
    }

    fn show(&mut self, state: LeaseState) {
        let (counters, station) = (&*self.counters, &self.station);
        let before = self.state.get();
        lease_gauge(counters, &before).fetch_sub(1, Ordering::Relaxed);
        lease_gauge(counters, &state).fetch_add(1, Ordering::Relaxed);
        let is_held = |state: &LeaseState| {
            matches!(state, LeaseState::Holder { .. } | LeaseState::Unconfirmed { .. })
        };
        let had_lease = is_held(&before);
        match &state {
            LeaseState::Holder { epoch } => {
                let is_other = self.epoch.replace(*epoch) != Some(*epoch);
                counters.leases_acquired.fetch_add(u64::from(is_other), Ordering::Relaxed);
                tracing::info!(target: "nats", station, epoch, "this server sends the station: it has the lease");
            }
            LeaseState::Standby { holder } => {
                tracing::info!(target: "nats", station, holder, "stand-by: another server sends the station");
            }
            LeaseState::Unconfirmed { epoch } => {
                tracing::warn!(target: "nats", station, epoch, "JetStream does not confirm the lease; the station is sent until another server has it");
            }
            LeaseState::Waiting => {
                tracing::info!(target: "nats", station, "waiting for the lease of the station");
            }
            LeaseState::Unleased { epoch } => {
                tracing::warn!(target: "nats", station, epoch, "NATS has no JetStream, so every server that publishes this station sends it; start nats-server with -js, or publish it from one server only");
            }
        }
        if had_lease && !is_held(&state) {
            counters.leases_lost.fetch_add(1, Ordering::Relaxed);
        }
        self.state.set(state);
    }
}

impl LeaseKey {
    /// Carries out an operation; the machine gives up earlier than the client's own time-outs.
    async fn execute(&self, operation: LeaseOperation) -> LeaseReply {
        if !is_connected(&self.client) {
            return LeaseReply::Failed;
        }
        let reply = timeout(MAX_REQUEST, self.try_execute(operation)).await;
        let reply = reply.unwrap_or(LeaseReply::Failed);
        if reply == LeaseReply::Failed {
            // The bucket may be another one.
            self.set_bucket(None);
        }
        reply
    }

    async fn try_execute(&self, operation: LeaseOperation) -> LeaseReply {
        let known = self.bucket.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let bucket = match known {
            Some(bucket) => bucket,
            None => match open_bucket(self.client.clone(), self.replicas).await {
                Ok(bucket) => bucket,
                Err(BucketError::NoJetStream) => return LeaseReply::Unsupported,
                Err(BucketError::Failed(error)) => {
                    tracing::debug!(target: "nats", %error, "cannot open the bucket of the leases");
                    return LeaseReply::Failed;
                }
            },
        };
        self.set_bucket(Some(bucket.clone()));
        match operation {
            LeaseOperation::Read => match bucket.entry(&self.key).await {
                Ok(None) => LeaseReply::Entry { revision: 0, value: LeaseValue::Absent },
                Ok(Some(entry)) => {
                    let value = match (entry.operation, LeaseRecord::parse(&entry.value)) {
                        (Operation::Delete | Operation::Purge, _) => LeaseValue::Absent,
                        (Operation::Put, Ok(lease)) => LeaseValue::Lease(lease),
                        (Operation::Put, Err(_)) => LeaseValue::Unreadable,
                    };
                    LeaseReply::Entry { revision: entry.revision, value }
                }
                Err(_) => LeaseReply::Failed,
            },
            LeaseOperation::Write { revision, lease } => {
                let mut bytes = Vec::new();
                lease.write(&mut bytes);
                match bucket.update(&self.key, bytes.into(), revision).await {
                    Ok(revision) => LeaseReply::Written { revision },
                    Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => {
                        LeaseReply::Conflict
                    }
                    Err(_) => LeaseReply::Failed,
                }
            }
        }
    }

    fn set_bucket(&self, bucket: Option<Store>) {
        *self.bucket.lock().unwrap_or_else(PoisonError::into_inner) = bucket;
    }
}

/// Why there is no bucket.
#[derive(Debug)]
pub(super) enum BucketError {
    /// The server, or the account, has no `JetStream`.
    NoJetStream,
    /// Anything that may be over soon.
    Failed(io::Error),
}

/// The bucket of the streams and leases, which is made if there is none.
pub(super) async fn open_bucket(
    client: Client,
    replicas: BucketReplicas,
) -> Result<Store, BucketError> {
    open_named_bucket(client, STREAMS_BUCKET, replicas).await
}

/// A bucket that keeps the last value of each key, which is made if there is none.
pub(super) async fn open_named_bucket(
    client: Client,
    name: &str,
    replicas: BucketReplicas,
) -> Result<Store, BucketError> {
    let context = jetstream::new(client);
    let failed = |error| BucketError::Failed(error);
    match context.get_key_value(name).await {
        Ok(bucket) => return Ok(bucket),
        Err(error) if error.kind() == KeyValueErrorKind::GetBucket => {
            let source = std::error::Error::source(&error);
            let stream =
                source.and_then(|error| error.downcast_ref::<jetstream::context::GetStreamError>());
            if let Some(GetStreamErrorKind::Request) = stream.map(|error| error.kind()) {
                // Without an answer it is not known whether there is one.
                has_jetstream(&context).await?;
                return Err(failed(io::Error::other(error)));
            }
        }
        Err(_) => {}
    }
    has_jetstream(&context).await?;
    let config = kv::Config { bucket: name.to_owned(), history: 1, ..kv::Config::default() };
    create_bucket(&context, config, replicas).await.map_err(|error| failed(io::Error::other(error)))
}

async fn has_jetstream(context: &jetstream::Context) -> Result<(), BucketError> {
    let Err(error) = context.query_account().await else { return Ok(()) };
    let is_off = match error.kind() {
        AccountErrorKind::JetStreamUnavailable => true,
        AccountErrorKind::JetStream(error) => {
            [ErrorCode::JETSTREAM_NOT_ENABLED, ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT]
                .contains(&error.error_code())
        }
        _ => false,
    };
    Err(if is_off {
        BucketError::NoJetStream
    } else {
        BucketError::Failed(io::Error::other(error))
    })
}

/// Answers that wait; the machine has one request under way, and forgets those that are late.
const MAX_REPLIES: usize = 16;

/// How long an operation may take; the machine asks again before.
const MAX_REQUEST: Duration = Duration::from_secs(2);

/// How long the end of a station waits for its lease to be given back.
const MAX_RELEASE: Duration = Duration::from_millis(300);
