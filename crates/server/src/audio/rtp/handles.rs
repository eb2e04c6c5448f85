//! What a running station holds of its RTP sources and outputs: their state and their errors.

use std::sync::{Arc, Mutex, PoisonError};

use aulos_config::RtpOutputSettings;
use aulos_control::backend::RtpDestinationStatus;
use aulos_core::Backoff;
use aulos_io::udp::{Interface, StreamId};
use aulos_rt::LatestReader;
use aulos_session::rtp::{RtpInputStatus, RtpOutputStatus};

/// State of an RTP source, as the station's status reads it.
#[derive(Debug)]
pub(super) struct RtpSourceHandle {
    pub(super) state: LatestReader<RtpInputStatus>,
    pub(super) problem: SharedError,
}

/// An RTP output of a station.
#[derive(Debug)]
pub(in crate::audio) struct StationRtpOutput {
    pub(super) config: RtpOutputSettings,
    /// None while it is not open.
    pub(super) open_output: Option<OpenRtpOutput>,
    pub(super) problem: SharedError,
    pub(super) backoff: Backoff,
    /// SSRC and SDP session id; constant for the life of the output.
    pub(super) ssrc: u32,
    pub(super) id: u64,
}

/// The stream of an open output.
#[derive(Debug)]
pub(super) struct OpenRtpOutput {
    pub(super) stream: StreamId,
    pub(super) output_id: u64,
    /// The interface and the address from which it sends.
    pub(super) interface: Interface,
    pub(super) state: LatestReader<RtpOutputStatus>,
    pub(super) sdp: String,
}

impl StationRtpOutput {
    pub(in crate::audio) fn status(&mut self) -> RtpDestinationStatus {
        RtpDestinationStatus {
            state: self.open_output.as_mut().map(|sending| *sending.state.read()),
            problem: self.problem.text(),
        }
    }

    pub(in crate::audio) fn description(&self) -> Option<&str> {
        self.open_output.as_ref().map(|sending| sending.sdp.as_str())
    }
}

/// An error text for the status, shared by the retry loop and the status.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedError(Arc<Mutex<Option<String>>>);

impl SharedError {
    pub(super) fn text(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, text: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}
