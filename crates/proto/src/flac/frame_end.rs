//! Search for the end of a frame.
//!
//! A frame does not contain its length. It ends where the next one begins, which is certain when
//! its checksum is correct. The checksum is continued with each byte, so no byte is examined twice,
//! however small the pieces are.

use super::StreamInfo;
use super::header::{FrameHeader, ParsedFrameHeader};
use crate::packets::MAX_PACKET;

/// State of the search for the end of the frame at the front.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FrameEndSearch {
    /// Number of bytes in the checksum.
    pub(crate) at: usize,
    crc: u16,
    /// Offset of the last header found after the front, and the checksum from there on.
    later: Option<(usize, u16)>,
    /// Offset at which the checksum became zero; zero bytes leave it zero.
    right: usize,
}

impl FrameEndSearch {
    /// Continues the search in `bytes`.
    pub(crate) fn find(
        &mut self,
        bytes: &[u8],
        ended: bool,
        info: Option<&StreamInfo>,
    ) -> FrameEnd {
        while let Some(byte) =
            bytes.get(self.at..MAX_PACKET.min(bytes.len())).and_then(<[u8]>::first)
        {
            let here = bytes.get(self.at..).unwrap_or_default();
            if self.is_whole() && AFTER.iter().any(|magic| here.starts_with(magic)) {
                return FrameEnd::Found;
            }
            match FrameHeader::parse(here) {
                ParsedFrameHeader::Incomplete if !ended => return FrameEnd::NeedMore,
                // At the end of the input, the header of the next frame may be incomplete.
                ParsedFrameHeader::Header(_) | ParsedFrameHeader::Incomplete if self.is_whole() => {
                    return FrameEnd::Found;
                }
                ParsedFrameHeader::Header(header) if info.is_none_or(|info| info.fits(&header)) => {
                    match self.later {
                        // A later frame is complete, so the one at the front is not a frame.
                        Some((at, 0)) if self.at > at + SMALLEST => return FrameEnd::Damaged(at),
                        _ if self.at > 0 => self.later = Some((self.at, 0)),
                        _ => {}
                    }
                }
                _ => {}
            }
            let before = self.crc;
            self.crc = crc16(before, *byte);
            if let Some((_, crc)) = &mut self.later {
                *crc = crc16(*crc, *byte);
            }
            self.at += 1;
            if before != 0 {
                self.right = self.at;
            }
        }
        FrameEnd::NeedMore
    }

    /// End of the frame when only zeros follow, as in a file whose last blocks were not written to
    /// disk. Two of the zeros may be its checksum.
    pub(crate) const fn end_before_zeros(&self) -> Option<usize> {
        if !self.is_whole() {
            return None;
        }
        let zeros = self.at - self.right;
        Some(if zeros <= 2 { self.at } else { self.right })
    }

    /// Whether the checksum over the frame, including its own checksum, is zero.
    pub(crate) const fn is_whole(&self) -> bool {
        self.crc == 0 && self.at > SMALLEST
    }
}

/// Result of a search.
pub(crate) enum FrameEnd {
    /// The bytes are exhausted.
    NeedMore,
    /// The next frame begins.
    Found,
    /// A later frame is complete while this one has no end; the offset of the later frame.
    Damaged(usize),
}

/// Polynomial x^16 + x^15 + x^2 + 1.
pub(super) fn crc16(crc: u16, byte: u8) -> u16 {
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

/// Data other than a frame that may follow a frame.
const AFTER: [&[u8]; 3] = [b"fLaC", b"OggS", b"ID3"];
/// Minimum size of a frame: a header of six bytes, a subframe and two bytes of checksum.
const SMALLEST: usize = 8;
