//! Decodes Opus packets, which the container library does not support.

use aulos_core::{ChannelLayout, SampleRate};
use aulos_engine::codec_guard::{CodecLibrary, GuardedCodec};
use aulos_opus::{MultistreamDecoder, OpusDecoder, StreamMapping};

/// The identification header of an Opus stream (RFC 7845 section 5.1).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OpusHead {
    layout: ChannelLayout,
    /// How one- and two-channel streams are combined into more channels.
    mapping: Option<StreamMapping>,
    /// Frames at the beginning that only prime the decoder.
    pub(super) pre_skip: u16,
    gain: f32,
}

impl OpusHead {
    /// Parses `OpusHead`; `None` if it is invalid, or needs rendering (ambisonics).
    ///
    /// In MP4 the same fields are big endian and the version is 0 (Opus in ISOBMFF, section 4.3.2).
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let fields: &[u8; 11] = bytes.strip_prefix(b"OpusHead")?.first_chunk()?;
        let [version, channels, s0, s1, _, _, _, _, g0, g1, family] = *fields;
        let (pre_skip, gain) = match version {
            0 => (u16::from_be_bytes([s0, s1]), i16::from_be_bytes([g0, g1])),
            1..=15 => (u16::from_le_bytes([s0, s1]), i16::from_le_bytes([g0, g1])),
            _ => return None,
        };
        let layout = ChannelLayout::new(usize::from(channels)).ok()?;
        let mapping = match (family, channels) {
            (0 | 1, 1 | 2) => None,
            (1, 3..=8) | (255, _) => Some(parse_mapping(family, channels, bytes.get(HEAD_LEN..)?)?),
            _ => return None,
        };
        let gain = 10f32.powf(f32::from(gain) / (256.0 * 20.0));
        Some(Self { layout, mapping, pre_skip, gain })
    }
}

/// The channel mapping table (RFC 7845 section 5.1.1), with the channels in WAVE order.
fn parse_mapping(family: u8, channels: u8, tail: &[u8]) -> Option<StreamMapping> {
    let (&[streams, coupled_streams], table) = tail.split_first_chunk()?;
    let table = table.get(..usize::from(channels))?;
    // The channel order of Vorbis (section 5.1.1.2): L C R, surrounds, LFE.
    let order: &[usize] = match (family, channels) {
        (1, 3) => &[0, 2, 1],
        (1, 5) => &[0, 2, 1, 3, 4],
        (1, 6) => &[0, 2, 1, 5, 3, 4],
        (1, 7) => &[0, 2, 1, 6, 5, 3, 4],
        (1, 8) => &[0, 2, 1, 7, 5, 6, 3, 4],
        _ => &[],
    };
    let channels = match order {
        [] => table.to_vec(),
        order => order.iter().filter_map(|&at| table.get(at).copied()).collect(),
    };
    Some(StreamMapping { streams, coupled_streams, channels }).filter(StreamMapping::is_valid)
}

/// A decoder for one stream, or for several streams with more than two channels in all.
pub(super) struct OpusPacketDecoder {
    decoder: GuardedCodec<Decoder>,
    head: OpusHead,
}

enum Decoder {
    One(OpusDecoder),
    Many(MultistreamDecoder),
}

impl Decoder {
    fn new(layout: ChannelLayout, mapping: Option<&StreamMapping>) -> Option<Self> {
        match mapping {
            None => OpusDecoder::new(HZ, layout.channels()).map(Self::One),
            Some(mapping) => MultistreamDecoder::new(HZ, mapping).map(Self::Many),
        }
    }
}

impl OpusPacketDecoder {
    /// `None` when the library fails.
    pub(super) fn new(head: OpusHead) -> Option<Self> {
        let (layout, mapping) = (head.layout, head.mapping.clone());
        let make = move || Decoder::new(layout, mapping.as_ref());
        let decoder = GuardedCodec::new(CodecLibrary::UnsafeLibopus, make)?;
        Some(Self { decoder, head })
    }

    /// Always 48 kHz, whatever the input rate of the encoder was.
    pub(super) fn rate(&self) -> SampleRate {
        SampleRate::HZ_48000
    }

    pub(super) fn layout(&self) -> ChannelLayout {
        self.head.layout
    }

    /// Replaces `out` with the frames of a packet. `false` if the packet is damaged.
    pub(super) fn decode(&mut self, packet: &[u8], out: &mut Vec<f32>) -> bool {
        let channels = self.head.layout.channels();
        out.resize(LONGEST_PACKET * channels, 0.0);
        let frames = self.decoder.call(|decoder| match decoder {
            Decoder::One(decoder) => decoder.decode(packet, out),
            Decoder::Many(decoder) => decoder.decode(packet, out),
        });
        let frames = frames.ok().flatten();
        out.truncate(frames.unwrap_or(0) * channels);
        for sample in out.iter_mut() {
            *sample *= self.head.gain;
        }
        frames.is_some()
    }

    /// Replaces `out` with `frames` of concealment for a missing packet.
    pub(super) fn conceal(&mut self, frames: usize, out: &mut Vec<f32>) -> bool {
        let frames = frames.min(LONGEST_PACKET);
        out.resize(frames * self.head.layout.channels(), 0.0);
        let made = self.decoder.call(|decoder| match decoder {
            Decoder::One(decoder) => decoder.conceal(out),
            Decoder::Many(decoder) => decoder.conceal(out),
        });
        let made = made.ok().flatten().unwrap_or(0);
        out.truncate(made * self.head.layout.channels());
        for sample in out.iter_mut() {
            *sample *= self.head.gain;
        }
        made > 0
    }

    /// Panics of the library.
    pub(super) const fn panics(&self) -> u64 {
        self.decoder.panics()
    }
}

const HZ: u32 = 48_000;

/// `OpusHead` up to the mapping table.
const HEAD_LEN: usize = 19;

/// 120 ms (RFC 6716 section 3.2.5).
const LONGEST_PACKET: usize = 5_760;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_byte_orders() {
        let ogg = b"OpusHead\x01\x02\x38\x01\x80\xbb\0\0\0\0\0";
        let mp4 = b"OpusHead\x00\x02\x01\x38\0\0\xbb\x80\0\0\0";
        let wanted =
            OpusHead { layout: ChannelLayout::STEREO, mapping: None, pre_skip: 312, gain: 1.0 };
        assert_eq!(OpusHead::parse(ogg), Some(wanted.clone()));
        assert_eq!(OpusHead::parse(mp4), Some(wanted));
    }

    #[test]
    fn six_channels_have_the_order_of_wave_and_invalid_heads_are_rejected() {
        let head = |tail: &[u8]| {
            let fixed = b"OpusHead\x01\x06\x38\x01\x80\xbb\0\0\0\0\x01";
            OpusHead::parse(&[&fixed[..], tail].concat())
        };
        let mapping = head(&[4, 2, 0, 4, 1, 2, 3, 5]).and_then(|head| head.mapping).unwrap();
        assert_eq!(mapping.channels, [0, 1, 4, 5, 2, 3]);
        assert!(head(&[4, 2, 0, 4, 1, 2, 3, 6]).is_none(), "a channel that is in no stream");
        assert!(head(&[2, 3, 0, 4, 1, 2, 3, 4]).is_none(), "more pairs than streams");
        assert!(head(&[4, 2, 0, 4]).is_none(), "cut off");
    }

    proptest! {
        /// Packets begin with any mode, bandwidth, duration and channel count, and a number of
        /// frames that may be valid; an empty one stands for a gap.
        #[test]
        fn any_head_and_any_packet_are_survived(
            head in proptest::collection::vec(any::<u8>(), 0..30),
            packets in proptest::collection::vec(
                proptest::collection::vec(prop_oneof![0..8_u8, any::<u8>()], 0..300), 1..16,
            ),
        ) {
            OpusHead::parse(&head);
            let plain = |layout| OpusHead { layout, mapping: None, pre_skip: 0, gain: 1.0 };
            let six = b"OpusHead\x01\x06\0\0\x80\xbb\0\0\0\0\x01\x04\x02\0\x04\x01\x02\x03\x05";
            let [mono, stereo] = [ChannelLayout::MONO, ChannelLayout::STEREO].map(plain);
            for head in [mono, stereo, OpusHead::parse(six).unwrap()] {
                let channels = head.layout.channels();
                let mut opus = OpusPacketDecoder::new(head).unwrap();
                let mut out = Vec::new();
                for packet in &packets {
                    if packet.is_empty() {
                        opus.conceal(960, &mut out);
                    } else {
                        opus.decode(packet, &mut out);
                    }
                    prop_assert!(out.len() <= channels * LONGEST_PACKET);
                }
                prop_assert_eq!(opus.panics(), 0, "a bug of the library, to be reported");
            }
        }
    }
}
