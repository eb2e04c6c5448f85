//! FLAC frames (RFC 9639, sections 8 and 9).
//!
//! A frame does not say how long it is. It ends where the next one begins, and that is certain when
//! the checksum over it is right; the checksum goes on with each byte, so nothing is looked at
//! twice however small the pieces are.

use aulos_core::{ChannelLayout, SampleRate};

use super::input::Input;
use super::{Event, Format, MAX_PACKET, MAX_TAG, Place, Start, Step, comment};

/// What is in front of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Absent where only STREAMINFO says it.
    hz: Option<u32>,
    channels: u8,
    bits: Option<u8>,
    block: u32,
    bytes: usize,
}

/// What bytes are as a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    No,
    More,
    Header(Header),
}

impl Header {
    /// Reads a header (RFC 9639, 9.1), its checksum too.
    pub(super) fn parse(bytes: &[u8]) -> Parsed {
        match bytes {
            [0xff] => return Parsed::More,
            [0xff, 0xf8 | 0xf9, ..] => {}
            _ => return Parsed::No,
        }
        let Some([_, _, c, d, _]) = bytes.first_chunk::<5>().copied() else { return Parsed::More };
        let (block, rate) = (c >> 4, c & 15);
        let (channels, bits) = (d >> 4, d >> 1 & 7);
        if block == 0 || rate == 15 || channels > 10 || bits == 3 || d & 1 == 1 {
            return Parsed::No;
        }
        // The number of the frame or sample, as long as its first byte has leading ones.
        let number = match bytes.get(4).map(|byte| byte.leading_ones()) {
            Some(0) => 1,
            Some(ones @ 2..=7) => ones as usize,
            _ => return Parsed::No,
        };
        let at = 4 + number;
        let block_bytes = match block {
            6 => 1,
            7 => 2,
            _ => 0,
        };
        let rate_bytes = match rate {
            12 => 1,
            13 | 14 => 2,
            _ => 0,
        };
        let end = at + block_bytes + rate_bytes;
        let (Some(head), Some(crc)) = (bytes.get(..end), bytes.get(end)) else {
            return Parsed::More;
        };
        if head.iter().fold(0, |crc, byte| crc8(crc ^ byte)) != *crc {
            return Parsed::No;
        }
        let field = |from: usize, count: usize| {
            let bytes = head.get(from..from + count).unwrap_or_default();
            bytes.iter().fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte))
        };
        let block = block_size(block, field(at, block_bytes));
        let hz = sample_rate(rate, field(at + block_bytes, rate_bytes));
        let channels = if channels < 8 { channels + 1 } else { 2 };
        let bits = [0, 8, 12, 0, 16, 20, 24, 32].get(usize::from(bits)).copied();
        Parsed::Header(Self {
            hz,
            channels,
            bits: bits.filter(|bits| *bits > 0),
            block,
            bytes: end + 1,
        })
    }

    /// Whether a stream can go on like this: `None` stands for what STREAMINFO says.
    fn is_like(&self, info: &Info) -> bool {
        self.channels == info.channels
            && self.hz.is_none_or(|hz| hz == info.hz)
            && self.bits.is_none_or(|bits| bits == info.bits)
    }
}

/// What STREAMINFO says (RFC 9639, 8.2), as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Info {
    bytes: [u8; INFO_LEN],
    hz: u32,
    channels: u8,
    bits: u8,
}

impl Info {
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = *bytes.first_chunk::<INFO_LEN>()?;
        let [_, _, _, _, _, _, _, _, _, _, a, b, c, d, ..] = bytes;
        let hz = u32::from(a) << 12 | u32::from(b) << 4 | u32::from(c >> 4);
        let info =
            Self { bytes, hz, channels: (c >> 1 & 7) + 1, bits: ((c & 1) << 4 | d >> 4) + 1 };
        SampleRate::new(hz).is_ok().then_some(info)
    }

    /// What a frame's own header says of a stream that was joined behind its STREAMINFO.
    fn of(header: &Header) -> Option<Self> {
        let (hz, bits) = (header.hz?, header.bits?);
        SampleRate::new(hz).ok()?;
        let mut bytes = [0; INFO_LEN];
        let [_, r0, r1, r2] = (hz << 4).to_be_bytes();
        let channels = header.channels - 1;
        let fields = [
            0,
            16,
            0xff,
            0xff,
            0,
            0,
            0,
            0,
            0,
            0,
            r0,
            r1,
            r2 | channels << 1 | (bits - 1) >> 4,
            (bits - 1) << 4,
        ];
        for (to, from) in bytes.iter_mut().zip(fields) {
            *to = from;
        }
        Some(Self { bytes, hz, channels: header.channels, bits })
    }

    pub(super) fn start(&self) -> Option<Box<Start>> {
        let rate = SampleRate::new(self.hz).ok()?;
        let layout = ChannelLayout::new(usize::from(self.channels)).ok()?;
        let format = Format::Flac { info: self.bytes, rate, layout };
        Some(Box::new(Start { format, skip: 0, padding: None }))
    }
}

/// Where in the stream we are.
#[derive(Debug)]
pub(super) struct Reader {
    state: State,
    info: Option<Info>,
}

#[derive(Debug)]
enum State {
    Magic,
    Blocks,
    /// At the first frame, which may say more than is known.
    First,
    Frames(Scan),
}

/// How far the end of the frame at the front was looked for.
#[derive(Clone, Copy, Debug, Default)]
struct Scan {
    /// Bytes that the checksum has gone over.
    at: usize,
    crc: u16,
    /// The last header behind the front, and the checksum from there on.
    later: Option<(usize, u16)>,
}

impl Default for Reader {
    fn default() -> Self {
        Self { state: State::Magic, info: None }
    }
}

impl Reader {
    /// A reader of a stream that was joined at a frame.
    pub(super) const fn joined() -> Self {
        Self { state: State::First, info: None }
    }

    /// The same reader, at a frame further on.
    pub(super) fn resumed(self) -> Self {
        Self { state: State::First, ..self }
    }

    pub(super) fn next(&mut self, input: &mut Input, packet: &mut Vec<u8>) -> Step {
        match &self.state {
            State::Magic => {
                input.skip(4);
                self.state = State::Blocks;
                Step::Taken
            }
            State::Blocks => self.block(input),
            State::First => self.first(input),
            State::Frames(scan) => {
                let scan = *scan;
                self.frame(scan, input, packet)
            }
        }
    }

    /// A metadata block (RFC 9639, 8.1).
    fn block(&mut self, input: &mut Input) -> Step {
        let bytes = input.bytes();
        let Some([kind, a, b, c]) = bytes.first_chunk::<4>().copied() else { return Step::More };
        let length = u64::from(a) << 16 | u64::from(b) << 8 | u64::from(c);
        let whole = 4 + length;
        let is_read = kind & 0x7f == 0 || (kind & 0x7f == COMMENT && length <= MAX_COMMENT);
        let body = bytes.get(4..usize::try_from(whole).unwrap_or(usize::MAX));
        if (is_read && body.is_none() && length <= MAX_COMMENT) || length > MAX_TAG {
            return if length > MAX_TAG { Step::Lost(4) } else { Step::More };
        }
        let mut found = Step::Taken;
        match (kind & 0x7f, body) {
            (0, Some(body)) => {
                let Some(info) = Info::parse(body) else { return Step::Lost(4) };
                let Some(start) = info.start() else { return Step::Lost(4) };
                self.info = Some(info);
                found = Step::Found(Event::Begin(start));
            }
            (COMMENT, Some(body)) => {
                if let Some(title) = comment::title(body) {
                    found = Step::Found(Event::Title(title));
                }
            }
            _ => {}
        }
        if kind & 0x80 != 0 {
            self.state = State::First;
        }
        input.skip(whole);
        found
    }

    /// The header in front says what is to be decoded.
    fn first(&mut self, input: &Input) -> Step {
        let header = match Header::parse(input.bytes()) {
            Parsed::Header(header) => header,
            Parsed::More => return Step::More,
            Parsed::No => return Step::Lost(0),
        };
        if self.info.as_ref().is_some_and(|info| header.is_like(info)) {
            self.state = State::Frames(Scan::default());
            return Step::Taken;
        }
        let Some((info, start)) =
            Info::of(&header).and_then(|info| info.start().map(|start| (info, start)))
        else {
            return Step::Lost(2);
        };
        self.info = Some(info);
        self.state = State::Frames(Scan::default());
        Step::Found(Event::Begin(start))
    }

    fn frame(&mut self, mut scan: Scan, input: &mut Input, packet: &mut Vec<u8>) -> Step {
        let ended = input.is_ended();
        match scan.find(input.bytes(), ended, self.info.as_ref()) {
            Look::Next => {}
            Look::Damaged(count) => return Step::Lost(count as u64),
            Look::More if ended && scan.is_whole() && scan.at == input.bytes().len() => {}
            Look::More if scan.at >= MAX_PACKET => return Step::Lost(2),
            Look::More => {
                self.state = State::Frames(scan);
                return Step::More;
            }
        }
        packet.clear();
        packet.extend(input.bytes().iter().take(scan.at));
        input.skip(scan.at as u64);
        // The next header was seen, if there is one; it may be of another kind.
        let over = input.bytes().is_empty();
        self.state = if over { State::Frames(Scan::default()) } else { State::First };
        Step::Found(Event::Packet(Place::default()))
    }
}

impl Scan {
    /// Goes on over `bytes` to the end of the frame.
    fn find(&mut self, bytes: &[u8], ended: bool, info: Option<&Info>) -> Look {
        while let Some(byte) =
            bytes.get(self.at..MAX_PACKET.min(bytes.len())).and_then(<[u8]>::first)
        {
            let here = bytes.get(self.at..).unwrap_or_default();
            if self.is_whole() && AFTER.iter().any(|magic| here.starts_with(magic)) {
                return Look::Next;
            }
            match Header::parse(here) {
                Parsed::More if !ended => return Look::More,
                Parsed::Header(_) if self.is_whole() => return Look::Next,
                Parsed::Header(header) if info.is_none_or(|info| header.is_like(info)) => {
                    match self.later {
                        // A whole frame behind the one at the front, which is none then.
                        Some((at, 0)) if self.at > at + SMALLEST => return Look::Damaged(at),
                        _ if self.at > 0 => self.later = Some((self.at, 0)),
                        _ => {}
                    }
                }
                _ => {}
            }
            self.crc = crc16(self.crc, *byte);
            if let Some((_, crc)) = &mut self.later {
                *crc = crc16(*crc, *byte);
            }
            self.at += 1;
        }
        Look::More
    }

    /// The checksum over a frame and its own checksum is zero.
    const fn is_whole(&self) -> bool {
        self.crc == 0 && self.at > SMALLEST
    }
}

/// What a scan came to.
enum Look {
    /// The end of the bytes.
    More,
    /// The next frame.
    Next,
    /// A whole frame so many bytes further on, while this one has no end.
    Damaged(usize),
}

/// RFC 9639, 9.1.1.
const fn block_size(code: u8, uncommon: u32) -> u32 {
    match code {
        1 => 192,
        2..=5 => 576 << (code - 2),
        6 | 7 => uncommon + 1,
        _ => 256 << (code & 7),
    }
}

/// RFC 9639, 9.1.2; `None` where only STREAMINFO says it.
fn sample_rate(code: u8, uncommon: u32) -> Option<u32> {
    match code {
        0 => None,
        12 => Some(uncommon * 1_000),
        13 => Some(uncommon),
        14 => Some(uncommon * 10),
        code => RATES.get(usize::from(code) - 1).copied(),
    }
}

/// Polynomial x^8 + x^2 + x + 1.
const fn crc8(mut crc: u8) -> u8 {
    let mut bit = 0;
    while bit < 8 {
        crc = crc << 1 ^ if crc & 0x80 != 0 { 0x07 } else { 0 };
        bit += 1;
    }
    crc
}

/// Polynomial x^16 + x^15 + x^2 + 1.
fn crc16(crc: u16, byte: u8) -> u16 {
    let [high, low] = crc.to_be_bytes();
    u16::from_be_bytes([low, 0]) ^ CRC16.get(usize::from(high ^ byte)).copied().unwrap_or(0)
}

#[allow(clippy::cast_possible_truncation, clippy::indexing_slicing, reason = "256 constants")]
const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            value = value << 1 ^ if value >> 15 == 1 { 0x8005 } else { 0 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
};

/// What else than a frame may follow a frame.
const AFTER: [&[u8]; 3] = [b"fLaC", b"OggS", b"ID3"];
/// Bytes of STREAMINFO.
const INFO_LEN: usize = 34;
/// The type of a block with comments.
const COMMENT: u8 = 4;
/// Bytes of comments that are read; longer ones are passed over.
const MAX_COMMENT: u64 = 256 * 1024;
/// A frame has a header of six bytes, a subframe and two bytes of checksum.
const SMALLEST: usize = 8;
/// Codes 1 to 11.
const RATES: [u32; 11] =
    [88_200, 176_400, 192_000, 8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000];
