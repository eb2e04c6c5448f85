//! What the status asks of an open source; each kind answers where it is opened.

use core::fmt;

use aulos_control::backend::{PassStatus, RadioState};
use aulos_core::{Instant, Span};
use aulos_engine::ready_chunk::PassThroughState;
use aulos_engine::source::Source;
use aulos_files::playlist::PlaylistStatus;
use aulos_io::srt::SrtFeederState;
use aulos_proto::sendspin::TransportCommand;
use aulos_session::rtp::RtpInputStatus;
use aulos_session::sendspin::SendspinInputStatus;

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

    /// The status of a Sendspin source.
    fn sendspin(&mut self) -> Option<SendspinInputStatus> {
        None
    }

    /// Tells the programme of the source to play, pause or skip; false if that is not possible.
    fn control(&mut self, _command: TransportCommand) -> bool {
        false
    }

    /// How long sound is on its way from the input to the loudspeakers.
    fn set_downstream(&mut self, _delay: Span) {}

    /// Whether its chunks are passed, for a source that is to pass them; `state` is that of its
    /// station if it is on air.
    fn pass_status(&mut self, _state: Option<PassThroughState>) -> Option<PassStatus> {
        None
    }

    /// Logs what has changed about this source of `station`, such as a new reason why its chunks are
    /// not passed.
    fn log_obstacle(&mut self, _station: &str) {}
}

/// The monitor of sound that is generated here or by another station.
#[derive(Debug)]
pub(crate) struct NoMonitor;

impl SourceMonitor for NoMonitor {}
