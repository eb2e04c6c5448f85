//! Decoders of packets, with concealment of lost ones.
//!
//! ```text
//!  payload -> decode  -+
//!  nothing -> conceal -+-> f32, the same number of frames as if nothing had been lost
//! ```
//!
//! A decoder is told of every lost packet, because it alone knows the audio before. Files and web
//! radio are not decoded here: they lose nothing, and their decoders are in `io`.

mod conceal;
mod fixed_bitrate;
mod opus;
#[cfg(test)]
mod tests;

use core::fmt;

use aulos_core::SampleRate;

pub use conceal::Concealer;
pub use fixed_bitrate::{G711PacketDecoder, G722PacketDecoder, L16PacketDecoder, L24PacketDecoder};
pub use opus::OpusPacketDecoder;

/// Decodes the payloads of packets to interleaved frames.
pub trait Decoder: Send {
    /// Sample rate of the output.
    fn rate(&self) -> SampleRate;

    /// Channels per frame.
    fn channels(&self) -> usize;

    /// Delay of the output in frames.
    fn delay(&self) -> usize;

    /// Number of frames in `payload`.
    ///
    /// # Errors
    /// [`DecodeError::Damaged`] when it is not a payload of this codec.
    fn frames(&self, payload: &[u8]) -> Result<usize, DecodeError>;

    /// Decodes `payload` to the front of `out`; returns the number of frames.
    ///
    /// # Real-time
    /// Does not allocate, unless the codec's library panics.
    ///
    /// # Errors
    /// [`DecodeError`]; nothing was decoded then, and the packet should be treated as lost.
    fn decode(&mut self, payload: &[u8], out: &mut [f32]) -> Result<usize, DecodeError>;

    /// Fills all of `out`, whole frames, with a replacement for a lost packet.
    ///
    /// # Real-time
    /// Does not allocate.
    fn conceal(&mut self, out: &mut [f32]);

    /// The same when the packet `following` the lost one has arrived and may hold a redundant copy.
    /// Decode that packet next, as usual.
    ///
    /// # Real-time
    /// Does not allocate.
    fn recover(&mut self, following: &[u8], out: &mut [f32]) {
        let _unused = following;
        self.conceal(out);
    }

    /// Clears the history: the sender restarts. Opus allocates here.
    fn reset(&mut self);

    /// How often the codec's library has panicked. Each time it was replaced by a new one.
    fn panics(&self) -> u64 {
        0
    }
}

/// Why a payload was not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// It is not a payload of this codec.
    Damaged,
    /// It holds more frames than fit.
    TooLong,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Damaged => "the payload is not valid for this codec",
            Self::TooLong => "the payload is longer than the output buffer",
        })
    }
}

impl core::error::Error for DecodeError {}

/// The front of `out`, `frames` frames long.
fn output_slice(
    out: &mut [f32],
    frames: usize,
    channels: usize,
) -> Result<&mut [f32], DecodeError> {
    out.get_mut(..frames * channels).ok_or(DecodeError::TooLong)
}
