//! One live input of a station: the mount to which a DJ connects, and its state; `djs` opens it.

use std::net::SocketAddr;

use aulos_config::Mount;
use aulos_control::backend::{DjInfo, DjStatus};
use aulos_core::Instant;
use aulos_io::SystemClock;
use aulos_io::feed::{DjFeederState, DjMountSlot};
use aulos_proto::titles::TrackMetadata;
use aulos_rt::LatestReader;
use aulos_rt::channel::Receiver;

/// The address on which a mount's port is open, or the error that keeps it closed.
pub(super) type PortStatus = Result<SocketAddr, String>;

/// One mount and the live source on it.
#[derive(Debug)]
pub(super) struct LiveInput {
    pub(super) mount: Mount,
    pub(super) seat: DjMountSlot,
    pub(super) state: LatestReader<DjFeederState>,
    /// Titles from the stream itself.
    pub(super) titles: Receiver<TrackMetadata>,
    /// Whether the mount's port is open; none until the listener has reported.
    pub(super) port_status: Option<PortStatus>,
    pub(super) about: DjInfo,
    pub(super) since: Instant,
    pub(super) title: Option<TrackMetadata>,
}

impl LiveInput {
    pub(super) fn status(&mut self) -> DjStatus {
        let state = *self.state.read();
        while let Ok(title) = self.titles.try_recv() {
            self.title = Some(title);
        }
        if !self.seat.is_occupied() {
            self.title = None;
        }
        let now = SystemClock::now();
        DjStatus {
            address: self.port_status.as_ref().and_then(|opened| opened.as_ref().ok()).copied(),
            on_air: state.on_air,
            client_info: self.about.clone(),
            since: state.on_air.then(|| now.since(self.since)),
            bytes: state.bytes,
            info: state.info.filter(|_| state.on_air),
            title: self.title.clone(),
            left: state.last_end,
        }
    }

    /// Why the mount cannot accept a source.
    pub(super) fn problem(&self) -> Option<String> {
        self.port_status.as_ref()?.as_ref().err().cloned()
    }
}
