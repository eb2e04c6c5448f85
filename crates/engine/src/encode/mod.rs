//! From samples to bytes.

use core::fmt;

use aulos_core::{Block, Codec, SampleSpec};

/// Turns blocks into payloads, one payload per block.
///
/// An encoder is made for one spec and one block length; it keeps no clock and knows no wire.
pub trait Encoder: Send {
    /// The codec of the payloads.
    fn codec(&self) -> Codec;

    /// What a decoder of the payloads gives: rate, format and layout.
    fn spec(&self) -> SampleSpec;

    /// The codec's own stream header, empty where it has none: `fLaC` and STREAMINFO for FLAC.
    fn header(&self) -> &[u8];

    /// Appends the payload for `block` to `out`, whose spare capacity is enough after warm-up.
    ///
    /// The block has the rate and layout of [`Encoder::spec`] and the length that the encoder was
    /// made for.
    ///
    /// # Errors
    /// [`EncodeError`] when the codec refuses the block; `out` may then hold a torn payload.
    fn encode(&mut self, block: &Block, out: &mut Vec<u8>) -> Result<(), EncodeError>;
}

/// Why a block could not be encoded. Both are faults of ours, not of the sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The block has another rate, layout or length than the encoder was made for.
    Shape,
    /// The codec library refused.
    Codec,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shape => "the block does not have the encoder's shape",
            Self::Codec => "the codec refused the block",
        })
    }
}

impl core::error::Error for EncodeError {}
