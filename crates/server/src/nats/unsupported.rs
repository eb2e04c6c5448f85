//! NATS in a build without it. The configuration refuses both uses, so nothing gets here.

use std::io;

use aulos_config::ClusterSettings;
use aulos_config::source::NatsSource;
use aulos_control::cluster::ClusterHandle;
use aulos_io::feed::SnapcastFeeder;
use aulos_session::snapcast::{PassConfig, SnapcastInputSink};

use super::{NatsCounters, PublicationState, PublishedStation};

/// Publishes nothing.
#[derive(Debug, Default)]
pub(crate) struct NatsService(NatsCounters);

impl NatsService {
    pub(crate) fn new(_: Option<&ClusterSettings>) -> Self {
        Self::default()
    }

    pub(crate) fn counters(&self) -> Vec<(&'static str, u64)> {
        self.0.named()
    }

    #[allow(clippy::unused_self, reason = "as in a build with NATS")]
    pub(crate) fn publish(&self, _: PublishedStation) -> io::Result<PublicationState> {
        Err(not_built())
    }

    #[allow(clippy::unused_self, reason = "as in a build with NATS")]
    pub(crate) fn subscribe(
        &self,
        _: &NatsSource,
        _: (SnapcastInputSink, Option<PassConfig>),
        _: u64,
    ) -> io::Result<SnapcastFeeder> {
        Err(not_built())
    }

    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as in a build with NATS")]
    pub(crate) const fn join(&self) -> io::Result<Option<ClusterHandle>> {
        Ok(None)
    }

    #[allow(clippy::unused_self, reason = "as in a build with NATS")]
    pub(crate) const fn stop(&self) {}
}

fn not_built() -> io::Error {
    io::Error::other("NATS requires a build with the feature `nats`")
}
