//! Live inputs: the mounts to which DJs connect.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use aulos_config::{Endpoint, Mount};
use aulos_control::backend::DjInfo;
use aulos_engine::source::{Pacing, RingSource};
use aulos_engine::standby::StandbyHandle;
use aulos_files::source::StreamParts;
use aulos_io::SystemClock;
use aulos_io::feed::{DjFeeder, DjMountPermit, FrameWriter};
use aulos_proto::titles::TrackMetadata;

use super::live_input::{LiveInput, PortStatus};
use super::source_monitor::{OpenedSource, SourceMonitor};
use crate::audio::state::AudioState;

/// Makes the source of a mount.
pub(crate) fn open(
    mount: &Mount,
    frames: Option<FrameWriter>,
    standby: Option<StandbyHandle>,
    inner: &mut AudioState,
) -> OpenedSource {
    let StreamParts { writer, source, items, state, titles } = StreamParts::new();
    let (seat, feeder, state) =
        DjFeeder::new(writer, state, Arc::clone(&inner.source_counters.djs));
    inner.context.add_feeder(match standby {
        Some(standby) => Box::new(feeder.with_standby(standby)),
        None => Box::new(feeder),
    });
    inner.codecs.add(Box::new(source.with_frames(frames)));
    // When a station is replaced, the port is already open.
    let mut ports = inner.dj_ports.iter();
    let opened =
        ports.find(|(address, _)| *address == mount.address).map(|(_, opened)| opened.clone());
    let input = LiveInput {
        mount: mount.clone(),
        seat,
        state,
        titles,
        port_status: opened,
        about: DjInfo::default(),
        since: SystemClock::now(),
        title: None,
    };
    (Box::new(RingSource::new(items, Pacing::Streamed)), Box::new(input))
}

impl SourceMonitor for LiveInput {
    /// Why the mount cannot accept a source.
    fn problem(&mut self) -> Option<String> {
        self.port_status.as_ref()?.as_ref().err().cloned()
    }

    fn live_input(&mut self) -> Option<&mut LiveInput> {
        Some(self)
    }
}

/// Records whether a port is open.
pub(crate) fn set_port_status(
    address: &Endpoint,
    opened: &Result<SocketAddr, &io::Error>,
    inner: &mut AudioState,
) {
    let opened: PortStatus = opened.as_ref().map(|at| *at).map_err(ToString::to_string);
    inner.dj_ports.retain(|(other, _)| other != address);
    inner.dj_ports.push((address.clone(), opened.clone()));
    let running = inner.stations.iter_mut().flatten();
    let sources = running.flat_map(|running| &mut running.sources);
    let inputs = sources.filter_map(|source| source.live_input());
    for input in inputs.filter(|input| input.mount.address == *address) {
        input.port_status = Some(opened.clone());
    }
}

/// Grants the right to go on air; none while the mount is taken.
pub(crate) fn take_seat(
    station: &str,
    mount: &Mount,
    info: DjInfo,
    inner: &mut AudioState,
) -> Option<DjMountPermit> {
    let input = find_input(station, mount, inner)?;
    let seat = input.seat.try_acquire()?;
    (input.about, input.since, input.title) = (info, SystemClock::now(), None);
    Some(seat)
}

/// Sets the title that the DJ sent beside the stream; false when the mount is idle.
pub(crate) fn set_title(
    station: &str,
    mount: &Mount,
    title: TrackMetadata,
    inner: &mut AudioState,
) -> bool {
    let Some(input) = find_input(station, mount, inner) else { return false };
    // libshout sends the first title as soon as it has been accepted.
    let taken = input.seat.is_occupied();
    if taken {
        input.title = Some(title);
    }
    taken
}

/// Disconnects the source client; false when the mount is idle.
pub(crate) fn disconnect(station: &str, mount: &Mount, inner: &mut AudioState) -> bool {
    let input = find_input(station, mount, inner);
    input.is_some_and(|input| input.seat.disconnect())
}

fn find_input<'a>(
    station: &str,
    mount: &Mount,
    inner: &'a mut AudioState,
) -> Option<&'a mut LiveInput> {
    let mut running = inner.stations.iter_mut().flatten();
    let running = running.find(|running| running.config.name == station)?;
    let mut inputs = running.sources.iter_mut().filter_map(|source| source.live_input());
    inputs.find(|input| input.mount.is_same_mount(mount))
}
