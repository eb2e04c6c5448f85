//! Opus packets, which the container library does not decode.

use aulos_core::{ChannelLayout, SampleRate};
use opus_rs::OpusDecoder;

/// What stands in front of an Opus stream (RFC 7845 section 5.1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Head {
    layout: ChannelLayout,
    /// Frames at the beginning that only the decoder needs.
    pub(super) pre_skip: u16,
    gain: f32,
}

impl Head {
    /// Reads `OpusHead`; `None` for what is not one, or has more than two channels.
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
        let layout = match (family, channels) {
            (0 | 1, 1) => ChannelLayout::MONO,
            (0 | 1, 2) => ChannelLayout::STEREO,
            _ => return None,
        };
        Some(Self { layout, pre_skip, gain: 10f32.powf(f32::from(gain) / (256.0 * 20.0)) })
    }
}

/// A decoder for one stream.
pub(super) struct Opus {
    decoder: Box<OpusDecoder>,
    head: Head,
}

impl Opus {
    /// `None` when the library refuses.
    pub(super) fn new(head: Head) -> Option<Self> {
        let decoder = OpusDecoder::new(48_000, head.layout.channels()).ok()?;
        Some(Self { decoder: Box::new(decoder), head })
    }

    /// Always 48 kHz, whatever the encoder was given.
    pub(super) fn rate(&self) -> SampleRate {
        SampleRate::STUDIO
    }

    pub(super) fn layout(&self) -> ChannelLayout {
        self.head.layout
    }

    /// Replaces `out` with the frames of a packet. `false`: the packet is damaged.
    pub(super) fn decode(&mut self, packet: &[u8], out: &mut Vec<f32>) -> bool {
        let channels = self.head.layout.channels();
        out.resize(LONGEST_PACKET * channels, 0.0);
        let frames = self.decoder.decode(packet, LONGEST_PACKET, out);
        out.truncate(frames.unwrap_or(0) * channels);
        for sample in out.iter_mut() {
            *sample *= self.head.gain;
        }
        frames.is_ok()
    }
}

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
        let wanted = Head { layout: ChannelLayout::STEREO, pre_skip: 312, gain: 1.0 };
        assert_eq!(Head::parse(ogg), Some(wanted));
        assert_eq!(Head::parse(mp4), Some(wanted));
    }

    proptest! {
        #[test]
        fn any_head_and_any_packet_are_survived(
            head in proptest::collection::vec(any::<u8>(), 0..30),
            packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 1..8),
        ) {
            Head::parse(&head);
            let good = Head { layout: ChannelLayout::STEREO, pre_skip: 0, gain: 1.0 };
            let mut opus = Opus::new(good).unwrap();
            let mut out = Vec::new();
            for packet in packets {
                opus.decode(&packet, &mut out);
                prop_assert!(out.len() <= 2 * LONGEST_PACKET);
            }
        }
    }
}
