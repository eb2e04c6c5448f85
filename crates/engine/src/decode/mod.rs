//! From packets to samples, and from no packet to something that is not heard as a hole.
//!
//! ```text
//!  payload -> decode  -+
//!  nothing -> conceal -+-> f32, the same number of frames as if nothing had been lost
//! ```
//!
//! A decoder is told of every hole, because it alone knows what came before. Files and web radio
//! do not come through here: there nothing is missing, and their decoders are `io`'s.

mod conceal;
mod opus;
mod telephone;
#[cfg(test)]
mod tests;

use core::fmt;

use aulos_core::SampleRate;

pub use conceal::Concealer;
pub use opus::OpusPacketDecoder;
pub use telephone::{G711Decoder, G722Decoder, L16Decoder, L24Decoder};

/// Turns the payloads of packets into interleaved frames.
pub trait Decoder: Send {
    /// The rate of what comes out.
    fn rate(&self) -> SampleRate;

    /// The samples of a frame.
    fn channels(&self) -> usize;

    /// How many frames later than decoded everything comes out.
    fn delay(&self) -> usize;

    /// How many frames are in `payload`.
    ///
    /// # Errors
    /// [`DecodeError::Damaged`] when it is no payload of this codec.
    fn frames(&self, payload: &[u8]) -> Result<usize, DecodeError>;

    /// Decodes `payload` to the front of `out`; returns how many frames.
    ///
    /// # Real-time
    /// Does not allocate.
    ///
    /// # Errors
    /// [`DecodeError`]; nothing was decoded then, and the packet is best treated as a missing one.
    fn decode(&mut self, payload: &[u8], out: &mut [f32]) -> Result<usize, DecodeError>;

    /// Fills all of `out`, whole frames, with what is to be heard while a packet is missing.
    ///
    /// # Real-time
    /// Does not allocate.
    fn conceal(&mut self, out: &mut [f32]);

    /// The same when the packet `following` the missing one is there, and may hold a copy of it. That
    /// packet is to be decoded next, as always.
    ///
    /// # Real-time
    /// Does not allocate.
    fn recover(&mut self, following: &[u8], out: &mut [f32]) {
        let _unused = following;
        self.conceal(out);
    }

    /// Forgets what came before: the sender begins anew. Opus allocates here.
    fn reset(&mut self);
}

/// Why a payload was not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// It is no payload of this codec.
    Damaged,
    /// It holds more frames than there is room for.
    TooLong,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Damaged => "the payload is not one of this codec",
            Self::TooLong => "the payload holds more than there is room for",
        })
    }
}

impl core::error::Error for DecodeError {}

/// The part of `out` that `frames` frames take.
fn output_slice(
    out: &mut [f32],
    frames: usize,
    channels: usize,
) -> Result<&mut [f32], DecodeError> {
    out.get_mut(..frames * channels).ok_or(DecodeError::TooLong)
}
