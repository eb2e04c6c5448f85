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
pub(crate) type PortStatus = Result<SocketAddr, String>;

/// One mount and the live source on it.
#[derive(Debug)]
pub(crate) struct LiveInput {
    pub(crate) mount: Mount,
    pub(crate) seat: DjMountSlot,
    pub(crate) state: LatestReader<DjFeederState>,
    /// Titles from the stream itself.
    pub(crate) titles: Receiver<TrackMetadata>,
    /// Whether the mount's port is open; none until the listener has reported.
    pub(crate) port_status: Option<PortStatus>,
    pub(crate) about: DjInfo,
    pub(crate) since: Instant,
    pub(crate) title: Option<TrackMetadata>,
}

impl LiveInput {
    pub(crate) fn status(&mut self) -> DjStatus {
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
}
