//! Sources that deliver raw samples from outside; `crate::feeder` makes their feeders.

use std::path::PathBuf;

use aulos_config::SourceConfig;
use aulos_core::{Instant, SampleSpec};
use aulos_engine::source::{Pacing, RingSource};
use aulos_engine::standby::StandbyHandle;
use aulos_io::RetryTime;
use aulos_io::feed::{ByteFeed, FeedState, spawn_feeder};
use aulos_rt::LatestReader;

use super::source_monitor::{OpenedSource, SourceMonitor};
use crate::audio::state::AudioState;
use crate::feeder::make_feeder;

/// Opens a source of samples of this spec.
pub(crate) fn open(
    config: &SourceConfig,
    spec: SampleSpec,
    standby: Option<StandbyHandle>,
    inner: &mut AudioState,
) -> OpenedSource {
    let (publisher, state) = aulos_rt::latest(FeedState::Waiting);
    let (feed, items) = ByteFeed::new(spec, publisher, inner.seeds.next_u64());
    let feed = match standby {
        Some(handle) => feed.with_standby(handle),
        None => feed,
    };
    let retry = feed.retry_time();
    if let Some(feeder) = make_feeder(config, feed, &inner.source_counters.feeders) {
        if !feeder.may_block() {
            inner.context.add_feeder(feeder);
        } else if let Err(error) = spawn_feeder(feeder) {
            tracing::error!(%error, source = config.scheme(), "no thread for a device");
        }
    }
    let program = config.program().map(Into::into);
    let monitor = FeedMonitor { state, retry, program };
    (Box::new(RingSource::new(items, Pacing::Live)), Box::new(monitor))
}

#[derive(Debug)]
struct FeedMonitor {
    state: LatestReader<FeedState>,
    retry: RetryTime,
    /// The program whose output this is.
    program: Option<PathBuf>,
}

impl SourceMonitor for FeedMonitor {
    fn problem(&mut self) -> Option<String> {
        let state = self.state.read();
        match &self.program {
            Some(program) => state.program_problem(program),
            None => state.problem(),
        }
    }

    fn retry_at(&mut self) -> Option<Instant> {
        self.retry.get()
    }
}
