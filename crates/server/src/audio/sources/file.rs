//! Files, decoded on the codec pool; those of mounts as streams, whose frames can be passed.

use aulos_config::source::PlayedFile;
use aulos_core::Instant;
use aulos_engine::source::{Pacing, RingSource};
use aulos_engine::standby::StandbyHandle;
use aulos_files::decode::FileDecodeOptions;
use aulos_files::source::{FileSource, FileState, PassedFile, PassedFileError, StreamParts};
use aulos_io::RetryTime;
use aulos_io::feed::FrameWriter;
use aulos_rt::LatestReader;

use super::source_monitor::{OpenedSource, SourceMonitor};
use crate::audio::state::AudioState;

/// Opens a file. It takes `frames` if it can pass its frames, and is always ready then: it leaves
/// `standby`.
pub(crate) fn open(
    config: &PlayedFile,
    frames: &mut Option<FrameWriter>,
    standby: &mut Option<StandbyHandle>,
    inner: &mut AudioState,
) -> OpenedSource {
    if frames.is_some() && config.spec.is_none() && PassedFile::is_stream(&config.path) {
        return open_passed(config, frames.take(), inner);
    }
    let options = FileDecodeOptions { looped: config.repeat, raw: config.spec };
    let (file, items, state) =
        FileSource::new(config.path.clone(), options, inner.seeds.next_u64());
    let file = file.with_report(crate::file_warnings::log);
    let retry = file.retry_time();
    inner.codecs.add(match standby.take() {
        Some(handle) => Box::new(file.with_standby(handle)),
        None => Box::new(file),
    });
    let source = RingSource::new(items, Pacing::OnDemand);
    (Box::new(source), Box::new(FileMonitor { state, retry }))
}

fn open_passed(
    config: &PlayedFile,
    frames: Option<FrameWriter>,
    inner: &mut AudioState,
) -> OpenedSource {
    let StreamParts { writer, source, items, state, .. } = StreamParts::new();
    let (path, seed) = (config.path.clone(), inner.seeds.next_u64());
    let (file, error) = PassedFile::new(path, config.repeat, (writer, state), seed);
    let retry = file.retry_time();
    inner.codecs.add(Box::new(file));
    inner.codecs.add(Box::new(source.with_frames(frames)));
    let source = RingSource::new(items, Pacing::OnDemand);
    (Box::new(source), Box::new(PassedFileMonitor { error, retry }))
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

#[derive(Debug)]
struct PassedFileMonitor {
    error: LatestReader<Option<PassedFileError>>,
    retry: RetryTime,
}

impl SourceMonitor for PassedFileMonitor {
    fn problem(&mut self) -> Option<String> {
        self.error.read().as_ref().map(ToString::to_string)
    }

    fn retry_at(&mut self) -> Option<Instant> {
        self.retry.get()
    }
}
