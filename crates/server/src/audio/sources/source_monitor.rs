//! What the status asks of an open source; each kind answers where it is opened.

use core::fmt;

use aulos_control::backend::{PassStatus, RadioState};
use aulos_core::Instant;
use aulos_engine::ready_chunk::PassThroughState;
use aulos_engine::source::Source;
use aulos_files::playlist::PlaylistStatus;
use aulos_io::srt::SrtFeederState;
use aulos_session::rtp::RtpInputStatus;

use super::live_input::LiveInput;

/// The station's end of an open source, and its monitor.
pub(crate) type OpenedSource = (Box<dyn Source>, Box<dyn SourceMonitor>);

/// The state of an open source. The defaults are the answers of one that cannot fail.
pub(crate) trait SourceMonitor: fmt::Debug + Send {
    /// Why the source cannot be played.
    fn problem(&mut self) -> Option<String> {
        None
    }

    /// When the source is tried again, if it has failed.
    fn retry_at(&mut self) -> Option<Instant> {
        None
    }

    /// The live input, if the source is one.
    fn live_input(&mut self) -> Option<&mut LiveInput> {
        None
    }

    /// The status of web radio.
    fn radio(&mut self) -> Option<RadioState> {
        None
    }

    /// The status of a playlist.
    fn playlist(&mut self) -> Option<PlaylistStatus> {
        None
    }

    /// Skips the file that it plays; false if it has no files.
    fn skip_track(&mut self) -> bool {
        false
    }

    /// The status of an RTP source.
    fn rtp(&mut self) -> Option<RtpInputStatus> {
        None
    }

    /// The status of a source over SRT.
    fn srt(&mut self) -> Option<SrtFeederState> {
        None
    }

    /// Whether its chunks are passed, for a source that is to pass them; `state` is that of its
    /// station if it is on air.
    fn pass_status(&mut self, _state: Option<PassThroughState>) -> Option<PassStatus> {
        None
    }

    /// Logs a new reason why the chunks of this source of `station` are not passed.
    fn log_obstacle(&mut self, _station: &str) {}
}

/// The monitor of sound that is generated here or by another station.
#[derive(Debug)]
pub(crate) struct NoMonitor;

impl SourceMonitor for NoMonitor {}
