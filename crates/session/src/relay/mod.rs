//! RTP relays: one stream, from a port to a destination.
//!
//! ```text
//!  datagram -> Packet -> RtpReceiver -> JitterBuffer -> Transcoder -> datagram
//!           -> RTCP with the sender                  RTCP with the receiver
//! ```
//!
//! A relay has no sound card and no clock of its own, so it does not play out: each incoming packet
//! leaves as soon as it is in order, with the sequence number and the timestamp of its sender.
//! Missing packets stay missing, and the receiver conceals them (`docs/decisions/rtp-delay.md`).
//!
//! [`RelayStream`] is a [`Machine`](crate::datagram::Machine): it does not block, and allocates
//! nothing per packet.

mod config;
mod egress;
mod latch;
mod red;
mod stream;
#[cfg(test)]
mod tests;
mod transcode;

pub use config::{DtmfPayloadTypes, RedConfig, RelayStreamConfig, TAKEOVER};
pub use red::MAX_RED_DISTANCE;
pub use stream::{RelayCounts, RelayReport, RelayStream, RelayStreamLabel};
pub use transcode::TranscodeError;

use transcode::Transcoder;

/// A validated configuration for the streams of a relay.
#[derive(Debug)]
pub struct RelayPlan {
    config: RelayStreamConfig,
    /// The initial transcoder of each stream.
    transcoder: Transcoder,
}

impl RelayPlan {
    /// Validates the configuration. Takes some milliseconds and a megabyte if the sample rate
    /// changes.
    ///
    /// # Errors
    /// [`TranscodeError`] when the encoding cannot be converted.
    pub fn new(config: RelayStreamConfig) -> Result<Self, TranscodeError> {
        let transcoder = Transcoder::new(&config)?;
        Ok(Self { config, transcoder })
    }
}
