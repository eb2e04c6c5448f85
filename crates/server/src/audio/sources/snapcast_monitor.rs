//! The state of a Snapcast source, for the status and the log.

use aulos_control::backend::PassStatus;
use aulos_core::Instant;
use aulos_engine::ready_chunk::PassThroughState;
use aulos_rt::LatestReader;
use aulos_session::snapcast::{PassObstacle, SnapcastInputStatus};

use super::source_monitor::SourceMonitor;

/// The status of a source, and what the log has of it.
#[derive(Debug)]
pub(crate) struct SnapcastMonitor {
    state: LatestReader<SnapcastInputStatus>,
    passes: bool,
    logged: Option<PassObstacle>,
}

impl SnapcastMonitor {
    /// The monitor of a source that is to pass its chunks, or not.
    pub(crate) const fn new(state: LatestReader<SnapcastInputStatus>, passes: bool) -> Self {
        Self { state, passes, logged: None }
    }
}

impl SourceMonitor for SnapcastMonitor {
    /// Why the source cannot be played.
    fn problem(&mut self) -> Option<String> {
        self.state.read().error.as_ref().map(ToString::to_string)
    }

    fn retry_at(&mut self) -> Option<Instant> {
        self.state.read().retry_at
    }

    fn pass_status(&mut self, state: Option<PassThroughState>) -> Option<PassStatus> {
        if !self.passes {
            return None;
        }
        if let Some(obstacle) = self.state.read().pass_obstacle {
            return Some(PassStatus::Encoded(obstacle.to_string()));
        }
        let reason = match state {
            Some(PassThroughState::Passing) => return Some(PassStatus::Passed),
            None | Some(PassThroughState::NoSource) => "the source is not on air",
            Some(PassThroughState::Crossfade) => "a cross-fade is in progress",
            Some(PassThroughState::Processing) => {
                "gain, equalizer or normalizer change the samples"
            }
            Some(PassThroughState::Announcement) => "an announcement plays",
            Some(PassThroughState::NoChunk) => "no chunk has arrived in time",
        };
        Some(PassStatus::Encoded(reason.to_owned()))
    }

    fn log_obstacle(&mut self, station: &str) {
        let obstacle = self.state.read().pass_obstacle;
        if obstacle == self.logged {
            return;
        }
        self.logged = obstacle;
        match obstacle {
            Some(reason) => {
                tracing::warn!(station, %reason, "the chunks of the source are not passed");
            }
            None => tracing::info!(station, "the chunks of the source can be passed"),
        }
    }
}
