//! Web radio; `crate::radio` connects to it.

use aulos_config::source::HttpSource;
use aulos_control::backend::RadioState;
use aulos_core::Instant;
use aulos_engine::source::{Pacing, RingSource};
use aulos_engine::standby::StandbyHandle;

use aulos_io::feed::FrameWriter;

use super::source_monitor::{OpenedSource, SourceMonitor};
use crate::audio::state::AudioState;
use crate::radio::{RadioHandles, RadioStatusHandle};

/// Opens a stream.
pub(crate) fn open(
    config: &HttpSource,
    frames: Option<FrameWriter>,
    standby: Option<StandbyHandle>,
    inner: &mut AudioState,
) -> OpenedSource {
    let seed = inner.seeds.next_u64();
    let radio = inner.radio_client.open(
        config.url.clone(),
        (config.charset, config.variant),
        standby,
        seed,
    );
    let RadioHandles { feed, source, items, status, task } = radio;
    inner.context.add_feeder(Box::new(feed));
    inner.codecs.add(Box::new(source.with_frames(frames)));
    inner.background_tasks.push(task);
    (Box::new(RingSource::new(items, Pacing::Streamed)), Box::new(status))
}

impl SourceMonitor for RadioStatusHandle {
    fn problem(&mut self) -> Option<String> {
        self.state().reason
    }

    fn retry_at(&mut self) -> Option<Instant> {
        self.state().retry_at
    }

    fn radio(&mut self) -> Option<RadioState> {
        Some(self.state())
    }
}
