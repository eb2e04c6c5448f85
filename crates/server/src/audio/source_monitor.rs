//! The state of a station's sources, by type.

use aulos_files::source::FileState;
use aulos_io::feed::FeedState;
use aulos_rt::LatestReader;

use super::live_input::LiveInput;
use super::rtp::RtpSourceHandle;
use super::snapcast_monitor::SnapcastMonitor;
use crate::radio::RadioStatusHandle;

/// Handle to the state of a source.
#[derive(Debug)]
pub(super) enum SourceMonitor {
    /// Generated here or by another station; cannot fail.
    Generated,
    /// Raw samples from outside.
    Feed(LatestReader<FeedState>),
    /// A decoded file.
    File(LatestReader<FileState>),
    /// Web radio.
    Radio(RadioStatusHandle),
    /// A mount for live sources.
    Dj(Box<LiveInput>),
    /// Another Snapcast server.
    Snapcast(Box<SnapcastMonitor>),
    /// RTP packets.
    Rtp(Box<RtpSourceHandle>),
}

impl SourceMonitor {
    /// The live input, if the source is one.
    pub(super) fn live_input(&mut self) -> Option<&mut LiveInput> {
        match self {
            Self::Dj(input) => Some(input),
            _ => None,
        }
    }
}
