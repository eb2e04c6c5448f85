//! Streams over SRT.

use aulos_config::source::{SrtMode, SrtSource};
use aulos_core::Instant;
use aulos_engine::source::{Pacing, RingSource};
use aulos_engine::standby::StandbyHandle;
use aulos_files::source::StreamParts;
use aulos_io::RetryTime;
use aulos_io::feed::FrameWriter;
use aulos_io::srt::{SrtFeeder, SrtFeederState, SrtLink, SrtLinkConfig, SrtProblem, SrtRole};
use aulos_rt::LatestReader;
use aulos_session::srt::SrtListenerConfig;

use super::source_monitor::{OpenedSource, SourceMonitor};
use crate::audio::state::AudioState;

/// Opens a stream over SRT.
pub(crate) fn open(
    config: &SrtSource,
    frames: Option<FrameWriter>,
    standby: Option<StandbyHandle>,
    inner: &mut AudioState,
) -> OpenedSource {
    let StreamParts { writer, source, items, state, .. } = StreamParts::new();
    let link = make_link(config, inner.seeds.next_u64());
    let (retry, is_caller) = (link.retry_time(), link.is_caller());
    let (feeder, state) = SrtFeeder::new(link, writer, state);
    inner.context.add_feeder(match standby {
        Some(standby) => Box::new(feeder.with_standby(standby)),
        None => Box::new(feeder),
    });
    inner.codecs.add(Box::new(source.with_frames(frames)));
    let monitor = SrtMonitor { state, retry, is_caller };
    (Box::new(RingSource::new(items, Pacing::Live)), Box::new(monitor))
}

/// The link of a source or a push.
pub(crate) fn make_link(config: &SrtSource, seed: u64) -> SrtLink {
    let role = match config.mode {
        SrtMode::Caller => SrtRole::Caller,
        SrtMode::Listener => {
            SrtRole::Listener(SrtListenerConfig { senders: config.senders.clone() })
        }
    };
    let (address, settings) = (config.address.to_string(), config.settings.clone());
    SrtLink::new(SrtLinkConfig { role, address, settings }, seed)
}

#[derive(Debug)]
struct SrtMonitor {
    state: LatestReader<SrtFeederState>,
    retry: RetryTime,
    is_caller: bool,
}

impl SourceMonitor for SrtMonitor {
    fn problem(&mut self) -> Option<String> {
        let problem = self.state.read().link.problem?;
        // That a caller has gone is no fault of the listener.
        let is_fault = self.is_caller || !matches!(problem, SrtProblem::Closed(_));
        is_fault.then(|| problem.to_string())
    }

    fn retry_at(&mut self) -> Option<Instant> {
        self.retry.get()
    }

    fn srt(&mut self) -> Option<SrtFeederState> {
        Some(*self.state.read())
    }
}
