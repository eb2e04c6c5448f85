//! The state of a station's sources, by type.

use aulos_core::Instant;
use aulos_files::source::FileState;
use aulos_io::RetryTime;
use aulos_io::feed::FeedState;
use aulos_rt::LatestReader;

use super::live_input::LiveInput;
use super::snapcast_monitor::SnapcastMonitor;
use crate::audio::rtp::RtpSourceHandle;
use crate::radio::RadioStatusHandle;

/// Handle to the state of a source.
#[derive(Debug)]
pub(crate) enum SourceMonitor {
    /// Generated here or by another station; cannot fail.
    Generated,
    /// Raw samples from outside.
    Feed(LatestReader<FeedState>, RetryTime),
    /// A decoded file.
    File(LatestReader<FileState>, RetryTime),
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
    /// When the source is tried again, if it has failed.
    pub(crate) fn retry_at(&mut self) -> Option<Instant> {
        match self {
            Self::Feed(_, retry) | Self::File(_, retry) => retry.get(),
            Self::Radio(radio) => radio.state().retry_at,
            Self::Snapcast(monitor) => monitor.retry_at(),
            Self::Generated | Self::Dj(_) | Self::Rtp(_) => None,
        }
    }

    /// The live input, if the source is one.
    pub(crate) fn live_input(&mut self) -> Option<&mut LiveInput> {
        match self {
            Self::Dj(input) => Some(input),
            _ => None,
        }
    }
}
