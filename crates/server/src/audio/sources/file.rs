//! Files, decoded on the codec pool.

use aulos_config::source::PlayedFile;
use aulos_core::Instant;
use aulos_engine::source::{Pacing, RingSource};
use aulos_engine::standby::StandbyHandle;
use aulos_files::decode::FileDecodeOptions;
use aulos_files::source::{FileSource, FileState};
use aulos_io::RetryTime;
use aulos_rt::LatestReader;

use super::source_monitor::{OpenedSource, SourceMonitor};
use crate::audio::state::AudioState;

/// Opens a file.
pub(crate) fn open(
    config: &PlayedFile,
    standby: Option<StandbyHandle>,
    inner: &mut AudioState,
) -> OpenedSource {
    let options = FileDecodeOptions { looped: config.repeat, raw: config.spec };
    let (file, items, state) =
        FileSource::new(config.path.clone(), options, inner.seeds.next_u64());
    let file = file.with_report(crate::file_warnings::log);
    let retry = file.retry_time();
    inner.codecs.add(match standby {
        Some(handle) => Box::new(file.with_standby(handle)),
        None => Box::new(file),
    });
    let source = RingSource::new(items, Pacing::OnDemand);
    (Box::new(source), Box::new(FileMonitor { state, retry }))
}

#[derive(Debug)]
struct FileMonitor {
    state: LatestReader<FileState>,
    retry: RetryTime,
}

impl SourceMonitor for FileMonitor {
    fn problem(&mut self) -> Option<String> {
        self.state.read().problem()
    }

    fn retry_at(&mut self) -> Option<Instant> {
        self.retry.get()
    }
}
