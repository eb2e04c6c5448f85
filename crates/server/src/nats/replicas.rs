//! How many servers of a NATS cluster keep the records and leases.
//!
//! A bucket on one server is lost with it, and then no origin can renew its lease. NATS refuses
//! more copies than the cluster has servers, and its answer is the only sure sign of their number:
//! so the number that is wanted is tried first.

use async_nats::Client;
use async_nats::jetstream::context::CreateKeyValueError;
use async_nats::jetstream::kv::{self, Store};
use async_nats::jetstream::{self, stream};

/// The number that is configured; none means as many as the cluster permits, up to
/// [`WANTED_REPLICAS`].
#[derive(Clone, Copy, Debug)]
pub(super) struct BucketReplicas(pub(super) Option<u32>);

impl BucketReplicas {
    const fn wanted(self) -> usize {
        match self.0 {
            Some(number) => number as usize,
            None => WANTED_REPLICAS,
        }
    }
}

/// Creates a bucket.
pub(super) async fn create_bucket(
    context: &jetstream::Context,
    config: kv::Config,
    replicas: BucketReplicas,
) -> Result<Store, CreateKeyValueError> {
    let with = |num_replicas| kv::Config { num_replicas, ..config.clone() };
    let created = context.create_key_value(with(replicas.wanted())).await;
    if created.is_err() && replicas.0.is_none() {
        return context.create_key_value(with(1)).await;
    }
    created
}

/// Raises the number of copies of a bucket that was made with fewer: by an earlier version, before
/// the cluster had so many servers, or while one of them was down.
pub(super) async fn raise_replicas(client: Client, bucket: &Store, replicas: BucketReplicas) {
    let info = bucket.stream.cached_info();
    // Without a cluster there can be one copy only.
    if info.cluster.is_none() && replicas.0.is_none()
        || info.config.num_replicas >= replicas.wanted()
    {
        return;
    }
    let config = stream::Config { num_replicas: replicas.wanted(), ..info.config.clone() };
    match jetstream::new(client).update_stream(config).await {
        Ok(_) => {
            tracing::info!(target: "nats", replicas = replicas.wanted(), "the records and leases have more replicas");
        }
        Err(error) if replicas.0.is_some() => {
            tracing::warn!(target: "nats", %error, replicas = replicas.wanted(), "cannot raise the replicas of the records and leases");
        }
        Err(error) => {
            tracing::debug!(target: "nats", %error, "the cluster has too few servers for more replicas");
        }
    }
}

/// With three, one server may be lost.
const WANTED_REPLICAS: usize = 3;
