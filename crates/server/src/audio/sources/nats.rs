//! Stations of other servers as sources, through NATS.

use std::io;

use aulos_config::StationSettings;
use aulos_config::source::NatsSource;
use aulos_core::Span;
use aulos_engine::fanout::TimedChunk;
use aulos_engine::standby::StandbyHandle;
use aulos_io::reactor::StationDescriptor;
use aulos_rt::ring::Consumer;
use aulos_session::snapcast::SnapcastInputSink;

use super::snapcast::{PassThroughHandles, station_source};
use super::snapcast_monitor::SnapcastMonitor;
use super::source_monitor::OpenedSource;
use crate::audio::state::AudioState;
use crate::nats::{PublicationState, PublishedStation};

/// Opens a source.
pub(crate) fn open(
    source: &NatsSource,
    pass: Option<PassThroughHandles>,
    standby: Option<StandbyHandle>,
    inner: &mut AudioState,
) -> OpenedSource {
    let (sink, items, state) = SnapcastInputSink::new();
    let passes = pass.is_some();
    let (sink, pass) = PassThroughHandles::attach(pass, sink.with_standby(standby));
    match inner.nats.subscribe(source, (sink, pass), inner.seeds.next_u64()) {
        Ok(feeder) => inner.context.add_feeder(Box::new(feeder)),
        Err(error) => {
            tracing::error!(%error, station = source.station, "cannot subscribe to a station");
        }
    }
    station_source(items, SnapcastMonitor::new(state, passes))
}

/// Publishes a station whose chunks come through `chunks`.
#[cfg_attr(
    not(feature = "nats"),
    expect(clippy::needless_pass_by_ref_mut, reason = "without NATS nothing is started")
)]
pub(crate) fn publish(
    config: &StationSettings,
    channel: &StationDescriptor,
    chunks: Consumer<TimedChunk>,
    inner: &mut AudioState,
) -> io::Result<PublicationState> {
    let chunk = Span::from_millis(i64::from(config.chunk_ms));
    inner.nats.publish(PublishedStation {
        name: config.name.clone(),
        codec_header: channel.codec_header.clone(),
        spec: channel.spec,
        buffer: channel.buffer,
        chunk: channel.spec.rate.frames(chunk),
        chunks,
    })
}
