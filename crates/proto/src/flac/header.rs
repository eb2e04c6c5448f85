//! Frame headers (RFC 9639, section 9.1).

/// Header of a FLAC frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// `None` when only STREAMINFO contains it.
    pub(super) hz: Option<u32>,
    pub(super) channels: u8,
    pub(super) bits: Option<u8>,
    /// Block size: samples per channel.
    pub(crate) block: u32,
    /// Number of the FLAC frame, or of its first sample.
    pub(crate) number: u64,
    /// Length of the coded number in bytes.
    pub(super) number_bytes: usize,
    /// Length of the header in bytes, with its checksum.
    pub(super) bytes: usize,
}

/// Result of parsing a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParsedFrameHeader {
    Invalid,
    Incomplete,
    Header(FrameHeader),
}

impl FrameHeader {
    /// Parses a header and verifies its checksum (RFC 9639, 9.1).
    pub(crate) fn parse(bytes: &[u8]) -> ParsedFrameHeader {
        match bytes {
            [0xff] => return ParsedFrameHeader::Incomplete,
            [0xff, 0xf8 | 0xf9, ..] => {}
            _ => return ParsedFrameHeader::Invalid,
        }
        let Some([_, _, c, d, _]) = bytes.first_chunk::<5>().copied() else {
            return ParsedFrameHeader::Incomplete;
        };
        let (block, rate) = (c >> 4, c & 15);
        let (channels, bits) = (d >> 4, d >> 1 & 7);
        if block == 0 || rate == 15 || channels > 10 || bits == 3 || d & 1 == 1 {
            return ParsedFrameHeader::Invalid;
        }
        // Length of the coded number: the number of leading ones in its first byte.
        let number = match bytes.get(4).map(|byte| byte.leading_ones()) {
            Some(0) => 1,
            Some(ones @ 2..=7) => ones as usize,
            _ => return ParsedFrameHeader::Invalid,
        };
        let at = NUMBER_AT + number;
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
            return ParsedFrameHeader::Incomplete;
        };
        if head.iter().fold(0, |crc, byte| crc8(crc ^ byte)) != *crc {
            return ParsedFrameHeader::Invalid;
        }
        let field = |from: usize, count: usize| {
            let bytes = head.get(from..from + count).unwrap_or_default();
            bytes.iter().fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte))
        };
        let block = block_size(block, field(at, block_bytes));
        let hz = sample_rate(rate, field(at + block_bytes, rate_bytes));
        let channels = if channels < 8 { channels + 1 } else { 2 };
        let bits = [0, 8, 12, 0, 16, 20, 24, 32].get(usize::from(bits)).copied();
        ParsedFrameHeader::Header(Self {
            hz,
            channels,
            bits: bits.filter(|bits| *bits > 0),
            block,
            number: coded_number(bytes.get(NUMBER_AT..at).unwrap_or_default()),
            number_bytes: number,
            bytes: end + 1,
        })
    }
}

/// Decodes a number as in section 9.1.5: like UTF-8, but with up to 36 bits.
fn coded_number(bytes: &[u8]) -> u64 {
    let Some((first, rest)) = bytes.split_first() else { return 0 };
    let head = u64::from(*first) & (0xff_u64 >> (first.leading_ones() + 1).min(8));
    rest.iter().fold(head, |number, byte| number << 6 | u64::from(byte & 0x3f))
}

/// Offset of the coded number in a header.
pub(super) const NUMBER_AT: usize = 4;

/// RFC 9639, 9.1.1.
const fn block_size(code: u8, uncommon: u32) -> u32 {
    match code {
        1 => 192,
        2..=5 => 576 << (code - 2),
        6 | 7 => uncommon + 1,
        _ => 256 << (code & 7),
    }
}

/// RFC 9639, 9.1.2; `None` when only STREAMINFO contains it.
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
pub(super) const fn crc8(mut crc: u8) -> u8 {
    let mut bit = 0;
    while bit < 8 {
        crc = crc << 1 ^ if crc & 0x80 != 0 { 0x07 } else { 0 };
        bit += 1;
    }
    crc
}

/// Sample rates of codes 1 to 11.
pub(super) const RATES: [u32; 11] =
    [88_200, 176_400, 192_000, 8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000];
