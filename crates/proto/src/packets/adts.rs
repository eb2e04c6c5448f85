//! AAC in ADTS frames (ISO/IEC 13818-7, 6.2).

use aulos_core::{ChannelLayout, SampleRate};

use super::input_buffer::InputBuffer;
use super::{PacketFormat, PacketPlacement, ReaderStep, SplitterEvent, StreamStart};

/// The seven-byte header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    profile: u8,
    rate: u8,
    channels: u8,
    length: u16,
    protected: bool,
    /// Number of raw data blocks in the frame.
    blocks: u8,
}

impl Header {
    /// Whether these bytes may be the start of a header.
    pub(super) const fn is_sync([a, b, ..]: [u8; 4]) -> bool {
        a == 0xff && b & 0xf6 == 0xf0
    }

    pub(super) fn parse([a, b, c, d, e, f, g]: [u8; 7]) -> Option<Self> {
        if !Self::is_sync([a, b, c, d]) {
            return None;
        }
        let header = Self {
            profile: c >> 6,
            rate: c >> 2 & 15,
            channels: (c & 1) << 2 | d >> 6,
            length: u16::from(d & 3) << 11 | u16::from(e) << 3 | u16::from(f >> 5),
            protected: b & 1 == 0,
            blocks: (g & 3) + 1,
        };
        let whole = usize::from(header.length) > header.head();
        (whole && usize::from(header.rate) < RATES.len()).then_some(header)
    }

    /// Length of the frame in bytes, including the header.
    pub(super) const fn bytes(&self) -> usize {
        self.length as usize
    }

    /// Whether both headers belong to the same stream.
    pub(super) const fn is_like(&self, other: &Self) -> bool {
        self.profile == other.profile
            && self.rate == other.rate
            && self.channels == other.channels
            && self.protected == other.protected
    }

    const fn head(&self) -> usize {
        if self.protected { 9 } else { 7 }
    }

    /// The `AudioSpecificConfig` (ISO/IEC 14496-3, 1.6.2.1): object type, rate, channels.
    fn format(&self) -> Option<PacketFormat> {
        let hz = *RATES.get(usize::from(self.rate))?;
        let object = self.profile + 1;
        let channels = match self.channels {
            7 => 8,
            count => usize::from(count),
        };
        Some(PacketFormat::Aac {
            config: [object << 3 | self.rate >> 1, self.rate << 7 | self.channels << 3],
            rate: SampleRate::new(hz).ok()?,
            layout: ChannelLayout::new(channels).ok(),
            low_complexity: object == 2,
        })
    }
}

/// The payloads of the whole ADTS frames at the front of `bytes`, one raw data block each, as an
/// encoder writes them.
pub fn adts_payloads(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        let header = Header::parse(*rest.first_chunk()?)?;
        let (frame, behind) = rest.split_at_checked(header.bytes())?;
        rest = behind;
        frame.get(header.head()..)
    })
}

/// Reader of ADTS frames; `reference` is the header of the current stream.
#[derive(Debug, Default)]
pub(super) struct Reader {
    reference: Option<Header>,
}

impl Reader {
    pub(super) fn next(&mut self, input: &mut InputBuffer, packet: &mut Vec<u8>) -> ReaderStep {
        let bytes = input.bytes();
        let Some(head) = bytes.first_chunk() else { return ReaderStep::NeedMore };
        let Some(header) = Header::parse(*head) else { return ReaderStep::Lost(0) };
        let Some(frame) = bytes.get(..header.bytes()) else { return ReaderStep::NeedMore };
        let same = self.reference.is_some_and(|reference| reference.is_like(&header));
        if self.reference.is_some() && !same {
            self.reference = None;
            return ReaderStep::Lost(0);
        }
        if !same {
            self.reference = Some(header);
            let Some(format) = header.format() else { return ReaderStep::Lost(0) };
            return ReaderStep::Found(SplitterEvent::Begin(Box::new(StreamStart {
                format,
                skip: 0,
                padding: None,
            })));
        }
        packet.clear();
        packet.extend_from_slice(frame.get(header.head()..).unwrap_or_default());
        input.skip(header.bytes() as u64);
        // A frame with several blocks does not contain their lengths; none are in use.
        if header.blocks > 1 {
            return ReaderStep::Found(SplitterEvent::Lost(header.bytes() as u64));
        }
        ReaderStep::Found(SplitterEvent::Packet(PacketPlacement::default()))
    }
}

/// Sample rates by sampling frequency index.
pub(super) const RATES: [u32; 13] = [
    96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000,
    7_350,
];
