//! Stations over RTP: packets that become the sound of a source, and a station's sound that becomes
//! packets.
//!
//! ```text
//!  socket --> Intake:  Receiver -> order -> decoder -> ring of blocks --> a station's input
//!  socket <-- Output:  packets on their grid       <- ring of chunks <-- a station's rendition
//! ```
//!
//! [`Intake`] and [`Output`] are without a socket and a clock, and [`Session`] runs them on the shared
//! threads of [`crate::udp`].
//!
//! # One delay, and where it is
//! A source is not played out here, unless [`IntakeConfig::delay`] says so. Its packets are put in order, what is missing is concealed as soon
//! as it can be expected no more, and all of it goes to the station's input, which holds some hundred
//! milliseconds and follows the sender's clock with its resampler, as it does for every live source. A
//! jitter buffer that plays out in its own time was the alternative: it would be a second delay in
//! front of the first, with a second opinion about the sender's clock.
//!
//! [`IntakeConfig::delay`] asks for that all the same, because the input's delay never changes and has to
//! be as long as the worst network is late. A play-out delay follows the network, and is shorter where
//! the network is good. The input's buffer is then as short as the quantum and the threads allow, and
//! gets an unbroken stream: where play-out becomes later, as much is concealed; where it becomes
//! earlier, as much of a silence is left out; the input's resampler follows the rest.

mod input;
mod interface;
mod output;
mod session;

pub use input::{
    MAX_PLAYOUT_DELAY, PlayoutDelay, RTP_INPUT_BLOCKS, RtpInput, RtpInputConfig, RtpInputCounts,
    RtpInputSink, RtpInputStatus, UnsupportedEncoding,
};
pub use interface::{Interface, find_interface, source_address_for};
pub use output::{OutgoingDatagram, RtpOutput, RtpOutputConfig, RtpOutputStatus, SapAnnouncement};
pub use session::RtpSession;
