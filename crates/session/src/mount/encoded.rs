//! Audio that is not passed: what an encoder makes of it, as frames of a source.

use aulos_core::{Codec, Frames};
use aulos_engine::encode::{AacFormat, AacFrameEncoder, Encoder};
use aulos_proto::mp3::whole_frames;
use aulos_proto::ogg::{PRE_SKIP, opus_head};
use aulos_proto::packets::{PacketFormat, adts_payloads};

use super::FrameFormat;

/// The format of what `encoder` makes; `None` for a codec that mounts do not have.
#[must_use]
pub fn encoder_format(encoder: &dyn Encoder) -> Option<FrameFormat> {
    let spec = encoder.spec();
    let (rate, layout) = (spec.rate, spec.layout);
    let packets = match encoder.codec() {
        Codec::Mp3 => PacketFormat::Mpeg { layer: 3, rate, layout },
        Codec::Aac => PacketFormat::Aac {
            config: AacFormat::new(spec).ok()?.audio_specific_config(),
            rate,
            layout: Some(layout),
            low_complexity: true,
        },
        Codec::Opus => PacketFormat::Opus { head: opus_head(layout, rate, PRE_SKIP).ok()? },
        Codec::Flac => {
            let info = *encoder.header().get(FLAC_INFO..)?.first_chunk()?;
            PacketFormat::Flac { info, rate, layout }
        }
        Codec::Pcm => return None,
    };
    Some(FrameFormat { packets, rate, layout })
}

/// The frames in a payload of an encoder, which is that of `duration`, with the duration of each.
pub fn encoded_frames(
    codec: Codec,
    payload: &[u8],
    duration: Frames,
) -> impl Iterator<Item = (&[u8], Frames)> {
    let of = |codec_of_bytes| if codec == codec_of_bytes { payload } else { &[] };
    let one = match codec {
        Codec::Mp3 | Codec::Aac => None,
        _ => (!payload.is_empty()).then_some((payload, duration)),
    };
    let units = adts_payloads(of(Codec::Aac)).map(|unit| (unit, AacFrameEncoder::FRAMES));
    whole_frames(of(Codec::Mp3)).chain(units).chain(one)
}

/// Behind `fLaC` and the header of the block.
const FLAC_INFO: usize = 8;
