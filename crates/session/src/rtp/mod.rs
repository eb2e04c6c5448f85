//! RTP sources and outputs of stations.
//!
//! ```text
//!  socket --> RtpInput:  RtpReceiver -> order -> decoder -> ring of blocks --> a station's input
//!  socket <-- RtpOutput: packets on their grid       <- ring of chunks <-- a station's rendition
//! ```
//!
//! [`RtpInput`] and [`RtpOutput`] have no socket and no clock; [`RtpSession`] makes
//! either of them a [`Machine`](crate::datagram::Machine).
//!
//! # Where the delay is
//! By default a source has no playout delay here. Its packets are put in order, a missing one is
//! concealed as soon as it is no longer expected, and the audio goes to the station's input at
//! once. The input holds some hundred milliseconds and follows the sender's clock with its
//! resampler, as for every live source. A jitter buffer with playout would add a second delay in
//! front of the first, with a second estimate of the sender's clock.
//!
//! [`RtpInputConfig::delay`] adds a playout delay that adapts to the network
//! (`docs/decisions/rtp-delay.md`). The input's buffer can then be as short as the quantum and the
//! threads allow, and its stream has no gaps: a later playout is concealed, an earlier one skips
//! silence.

mod input;
mod output;
pub(crate) mod receive;
mod session;

pub use input::{
    MAX_PLAYOUT_DELAY, PlayoutDelay, RTP_INPUT_BLOCKS, RtpInput, RtpInputConfig, RtpInputCounts,
    RtpInputSink, RtpInputStatus, UnexpectedPayloadType, UnsupportedEncoding,
};
pub use output::{OutgoingDatagram, RtpOutput, RtpOutputConfig, RtpOutputStatus, SapAnnouncement};
pub use receive::{MAX_REORDER_DELAY, RtpPayloadFormat, RtpReceiveConfig};
pub use session::RtpSession;
