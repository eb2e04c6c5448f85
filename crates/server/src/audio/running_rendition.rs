//! A running rendition of a station, and the sessions that wait for it; `renditions` makes it.

use std::sync::Arc;

use aulos_core::{ChannelMap, Instant};
use aulos_engine::encode::CodecConfig;
use aulos_io::reactor::{SessionId, StationDescriptor};

/// A running rendition.
#[derive(Debug)]
pub(super) struct RunningRendition {
    /// The number of its station.
    pub(super) station: usize,
    pub(super) kind: RenditionKind,
    /// Its number in the reactors.
    pub(super) number: usize,
    /// Its number on the station's output bus.
    pub(super) output_id: u64,
    pub(super) channel: StationDescriptor,
    pub(super) since: Instant,
    pub(super) unused_since: Option<Instant>,
    /// Every web listener holds a clone.
    pub(super) listeners: Arc<()>,
}

impl RunningRendition {
    pub(super) fn matches(&self, station: usize, kind: RenditionKind) -> bool {
        self.station == station && self.kind == kind
    }
}

/// How it differs from its station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RenditionKind {
    /// A channel map.
    Map(ChannelMap),
    /// Another codec or other encoder settings.
    Codec(CodecConfig),
}

/// A session that moves to a rendition once that has enough history.
#[derive(Debug)]
pub(super) struct PendingMove {
    pub(super) session: SessionId,
    pub(super) station: usize,
    pub(super) map: ChannelMap,
}

impl PendingMove {
    pub(super) const fn session(&self) -> SessionId {
        self.session
    }
}
