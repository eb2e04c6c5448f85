//! No encoder: a mount has no clients, and its frames are made elsewhere.

use aulos_core::{Block, Codec, SampleSpec};

use super::encoder::{EncodeError, Encoder};

/// Makes no payload of any block.
#[derive(Clone, Copy, Debug)]
pub struct NoEncoder(pub SampleSpec);

impl Encoder for NoEncoder {
    fn codec(&self) -> Codec {
        Codec::Pcm
    }

    fn spec(&self) -> SampleSpec {
        self.0
    }

    fn encode(&mut self, _block: &Block, _out: &mut Vec<u8>) -> Result<(), EncodeError> {
        Ok(())
    }
}
