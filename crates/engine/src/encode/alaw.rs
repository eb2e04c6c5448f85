//! A-law.

use aulos_core::{Block, Codec, SampleSpec};
use aulos_dsp::g711::{self, G711Law};

use super::{EncodeError, Encoder, check_block};

/// Interleaved A-law bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct AlawEncoder {
    pub(super) spec: SampleSpec,
}

impl Encoder for AlawEncoder {
    fn codec(&self) -> Codec {
        Codec::Alaw
    }

    fn spec(&self) -> SampleSpec {
        self.spec
    }

    fn encode(&mut self, block: &Block, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        check_block(block, self.spec, block.frames())?;
        let start = out.len();
        out.resize(start + block.samples().len(), 0);
        g711::encode(G711Law::A, block.samples(), &mut out[start..]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use aulos_core::Frames;

    use crate::encode::make_encoder;

    use super::*;

    #[test]
    fn a_sample_is_a_byte() {
        let spec = SampleSpec::DEFAULT;
        let mut encoder = make_encoder(Codec::Alaw, spec, Frames(2)).unwrap();
        let mut block = Block::with_capacity(spec.rate, spec.layout, 4);
        block.resize(Frames(2));
        let mut out = Vec::new();
        encoder.encode(&block, &mut out).unwrap();
        assert_eq!(out, [G711Law::A.silence(); 4]);
    }
}
