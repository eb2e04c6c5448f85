//! The status of a mount, as its job on the codec pool reports it.

use aulos_config::StationSource;
use aulos_control::backend::PassStatus;
use aulos_engine::status::MAX_SOURCES;
use aulos_rt::LatestReader;
use aulos_session::mount::PassObstacle;

/// The status of a mount, and what the log has of it.
#[derive(Debug)]
pub(super) struct MountMonitor {
    status: LatestReader<MountStatus>,
    logged: [Option<PassObstacle>; MAX_SOURCES],
}

/// What a mount does with each of its sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MountStatus {
    /// Whether the frames of the source on air are passed.
    pub(super) is_passing: bool,
    /// The sources that have frames.
    pub(super) has_frames: [bool; MAX_SOURCES],
    /// Why the frames of a source could not be passed when it was on air last.
    pub(super) obstacles: [Option<PassObstacle>; MAX_SOURCES],
    /// Frames that were passed, and frames of the encoder.
    pub(super) passed: u64,
    pub(super) encoded: u64,
    /// Frames that were made silent at a change.
    pub(super) silenced: u64,
    /// How often the frames that follow were those of another source.
    pub(super) splices: u64,
    /// How often a source could not be passed.
    pub(super) refused: u64,
    /// Chunks that were lost: no buffer, or a reactor that does not read.
    pub(super) lost_chunks: u64,
}

impl MountMonitor {
    pub(super) const fn new(status: LatestReader<MountStatus>) -> Self {
        Self { status, logged: [None; MAX_SOURCES] }
    }

    pub(super) fn status(&mut self) -> MountStatus {
        *self.status.read()
    }

    /// Logs what keeps the sources of the mount of this name from being passed, when it changes.
    pub(super) fn log_obstacles(&mut self, mount: &str, sources: &[StationSource]) {
        let obstacles = self.status().obstacles;
        let changed = self.logged.iter_mut().zip(obstacles).zip(sources);
        for ((logged, obstacle), source) in changed.filter(|((logged, now), _)| **logged != *now) {
            *logged = obstacle;
            let source = &source.name;
            match obstacle {
                Some(reason) => {
                    tracing::warn!(mount, source, %reason, "the frames of the source are not passed");
                }
                None => tracing::info!(mount, source, "the frames of the source can be passed"),
            }
        }
    }
}

impl MountStatus {
    /// Whether the frames of this source are passed; `None` if it has none.
    pub(super) fn pass_status(&self, source: usize, is_active: bool) -> Option<PassStatus> {
        if !self.has_frames.get(source).copied().unwrap_or(false) {
            return None;
        }
        let reason = match self.obstacles.get(source).copied().flatten() {
            Some(obstacle) => obstacle.to_string(),
            None if is_active && self.is_passing => return Some(PassStatus::Passed),
            None if is_active => "no frame has arrived in time".to_owned(),
            None => "the source is not on air".to_owned(),
        };
        Some(PassStatus::Encoded(reason))
    }
}
