//! MPEG audio frames (ISO/IEC 11172-3, 2.4.1.3, and 13818-3), including MPEG 2.5.

use aulos_core::{ChannelLayout, SampleRate};

use super::input_buffer::InputBuffer;
use super::{PacketFormat, PacketPlacement, ReaderStep, SplitterEvent, StreamStart};
use crate::bytes;

/// The four-byte header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// 1, 2, or 25 for MPEG 2.5.
    version: u8,
    layer: u8,
    bits_per_second: u32,
    hz: u32,
    padded: bool,
    protected: bool,
    mono: bool,
}

impl Header {
    /// Parses a header; `None` for invalid ones and for free format.
    pub(crate) fn parse([a, b, c, d]: [u8; 4]) -> Option<Self> {
        if a != 0xff || b & 0xe0 != 0xe0 {
            return None;
        }
        let version = match b >> 3 & 3 {
            0 => 25,
            2 => 2,
            3 => 1,
            _ => return None,
        };
        let layer = 4_u8.checked_sub(b >> 1 & 3).filter(|layer| *layer < 4)?;
        let row = match (version, layer) {
            (1, 1) => &RATES_1_1,
            (1, 2) => &RATES_1_2,
            (1, _) => &RATES_1_3,
            (_, 1) => &RATES_2_1,
            _ => &RATES_2_23,
        };
        let index = usize::from(c >> 4).checked_sub(1)?;
        let kilobits = *row.get(index)?;
        let hz: u32 = *[44_100, 48_000, 32_000].get(usize::from(c >> 2 & 3))?;
        let hz = match version {
            1 => hz,
            2 => hz / 2,
            _ => hz / 4,
        };
        Some(Self {
            version,
            layer,
            bits_per_second: u32::from(kilobits) * 1_000,
            hz,
            padded: c & 2 != 0,
            protected: b & 1 == 0,
            mono: d >> 6 == 3,
        })
    }

    /// Whether these bytes are a header of free format, without the length of the frame.
    pub(super) fn is_free_format([a, b, c, d]: [u8; 4]) -> bool {
        c >> 4 == 0 && Self::parse([a, b, c | 0x10, d]).is_some()
    }

    /// Length of the frame in bytes, including the header.
    pub(crate) const fn bytes(&self) -> usize {
        let padding = self.padded as u32;
        let bytes = match self.layer {
            1 => (12 * self.bits_per_second / self.hz + padding) * 4,
            2 => 144 * self.bits_per_second / self.hz + padding,
            _ if self.version == 1 => 144 * self.bits_per_second / self.hz + padding,
            _ => 72 * self.bits_per_second / self.hz + padding,
        };
        bytes as usize
    }

    /// Whether both headers belong to the same stream; bit rate and channel coding may differ.
    pub(crate) const fn is_like(&self, other: &Self) -> bool {
        self.version == other.version
            && self.layer == other.layer
            && self.hz == other.hz
            && self.mono == other.mono
    }

    /// Its bit rate.
    pub(crate) const fn bits_per_second(&self) -> u32 {
        self.bits_per_second
    }

    /// Whether the frame has a checksum.
    pub(crate) const fn is_protected(&self) -> bool {
        self.protected
    }

    /// Whether it is that of MPEG 1, with two granules in a frame.
    pub(crate) const fn is_version_1(&self) -> bool {
        self.version == 1
    }

    /// Whether it is that of an MP3 frame.
    pub(crate) const fn is_layer_3(&self) -> bool {
        self.layer == 3
    }

    /// Number of channels.
    pub(crate) const fn channels(&self) -> usize {
        if self.mono { 1 } else { 2 }
    }

    /// Frames per second.
    pub(crate) const fn hz(&self) -> u32 {
        self.hz
    }

    /// The header of an MP3 frame without checksum and padding; `None` for rates that MPEG 1 and 2
    /// do not have.
    pub(crate) fn layer_3(hz: u32, mono: bool, kbps: u32) -> Option<[u8; 4]> {
        let rates =
            [0xfb, 0xf3].into_iter().flat_map(|version| (0..3).map(move |at| (version, at)));
        let mut words = rates.flat_map(|(version, rate)| {
            (1..15).map(move |bits| {
                [0xff, version, bits << 4 | rate << 2, if mono { 0xc4 } else { 0x44 }]
            })
        });
        words.find(|word| {
            Self::parse(*word)
                .is_some_and(|header| header.hz == hz && header.bits_per_second == kbps * 1_000)
        })
    }

    /// Number of frames (samples of every channel) in it.
    pub(crate) const fn frames(&self) -> u32 {
        match (self.layer, self.version) {
            (1, _) => 384,
            (3, 2 | 25) => 576,
            _ => 1_152,
        }
    }

    /// Offset of the encoder's tag, behind the side information.
    pub(crate) const fn tag_at(&self) -> usize {
        let side = match (self.version, self.mono) {
            (1, false) => 32,
            (1, true) | (_, false) => 17,
            (_, true) => 9,
        };
        4 + side + if self.protected { 2 } else { 0 }
    }

    fn format(&self) -> Option<PacketFormat> {
        let rate = SampleRate::new(self.hz).ok()?;
        let layout = if self.mono { ChannelLayout::MONO } else { ChannelLayout::STEREO };
        Some(PacketFormat::Mpeg { layer: self.layer, rate, layout })
    }
}

/// Reader of MPEG frames; `reference` is the header of the current stream.
#[derive(Debug, Default)]
pub(super) struct Reader {
    reference: Option<Header>,
}

impl Reader {
    pub(super) fn next(&mut self, input: &mut InputBuffer, packet: &mut Vec<u8>) -> ReaderStep {
        let bytes = input.bytes();
        let Some(word) = bytes.first_chunk() else { return ReaderStep::NeedMore };
        let Some(header) = Header::parse(*word) else { return ReaderStep::Lost(0) };
        let Some(frame) = bytes.get(..header.bytes()) else { return ReaderStep::NeedMore };
        let same = self.reference.is_some_and(|reference| reference.is_like(&header));
        // A frame of another format must be confirmed by the following one.
        if self.reference.is_some() && !same {
            self.reference = None;
            return ReaderStep::Lost(0);
        }
        let Some(format) = header.format() else { return ReaderStep::Lost(0) };
        match EncoderTag::detect(&header, frame) {
            Some(tag) => {
                input.skip(header.bytes() as u64);
                self.reference = Some(header);
                let EncoderTag { skip, padding } = tag;
                ReaderStep::Found(SplitterEvent::Begin(Box::new(StreamStart {
                    format,
                    skip,
                    padding,
                })))
            }
            None if !same => {
                self.reference = Some(header);
                ReaderStep::Found(SplitterEvent::Begin(Box::new(StreamStart {
                    format,
                    skip: 0,
                    padding: None,
                })))
            }
            None => {
                packet.clear();
                packet.extend_from_slice(frame);
                input.skip(header.bytes() as u64);
                ReaderStep::Found(SplitterEvent::Packet(PacketPlacement::default()))
            }
        }
    }
}

/// Encoder's tag in a first frame without audio (`Xing`, `Info`, `VBRI`).
struct EncoderTag {
    skip: u64,
    padding: Option<(u64, u64)>,
}

impl EncoderTag {
    fn detect(header: &Header, frame: &[u8]) -> Option<Self> {
        if header.layer != 3 {
            return None;
        }
        let nothing = Self { skip: 0, padding: None };
        if frame.get(VBRI_AT..VBRI_AT + 4) == Some(b"VBRI") {
            return Some(nothing);
        }
        let tag = frame.get(header.tag_at()..)?;
        if !tag.starts_with(b"Xing") && !tag.starts_with(b"Info") {
            return None;
        }
        Some(Self::lame_delays(header, tag).unwrap_or(nothing))
    }

    /// LAME's delay and padding, 12 bits each, after the optional fields.
    fn lame_delays(header: &Header, tag: &[u8]) -> Option<Self> {
        let mut fields = bytes::Reader::new(tag.get(4..)?);
        let [_, _, _, set] = fields.array()?;
        let count = if set & 1 != 0 { fields.array().map(u32::from_be_bytes) } else { None };
        fields.take(if set & 2 != 0 { 4 } else { 0 })?;
        fields.take(if set & 4 != 0 { 100 } else { 0 })?;
        fields.take(if set & 8 != 0 { 4 } else { 0 })?;
        // The encoder's name and nine unused fields.
        fields.take(21)?;
        let [a, b, c] = fields.array()?;
        let delay = u64::from(a) << 4 | u64::from(b >> 4);
        let padding = u64::from(b & 15) << 8 | u64::from(c);
        if delay == 0 && padding == 0 {
            return None;
        }
        let whole = count.map(|count| u64::from(count) * u64::from(header.frames()));
        // The decoder's delay moves the end of the audio behind the last packet.
        let padding = padding.saturating_sub(DECODER_DELAY);
        let at = whole.and_then(|whole| whole.checked_sub(padding));
        Some(Self {
            skip: delay + DECODER_DELAY,
            padding: at.filter(|_| padding > 0).map(|at| (at, padding)),
        })
    }
}

/// Delay of every layer III decoder in frames.
const DECODER_DELAY: u64 = 529;

/// Offset of Fraunhofer's tag.
const VBRI_AT: usize = 36;

/// Kilobits per second by version and layer (ISO/IEC 11172-3, 2.4.2.3; 13818-3, 2.4.2.3).
const RATES_1_1: [u16; 14] = [32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448];
const RATES_1_2: [u16; 14] = [32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384];
const RATES_1_3: [u16; 14] = [32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320];
const RATES_2_1: [u16; 14] = [32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256];
const RATES_2_23: [u16; 14] = [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160];
