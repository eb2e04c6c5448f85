//! Where a frame ends.
//!
//! A frame does not say how long it is. It ends where the next one begins, and that is certain when
//! the checksum over it is right; the checksum goes on with each byte, so nothing is looked at
//! twice however small the pieces are.

use super::StreamInfo;
use super::header::{FrameHeader, ParsedFrameHeader};
use crate::packets::MAX_PACKET;

/// How far the end of the frame at the front was looked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FrameEndSearch {
    /// Bytes that the checksum has gone over.
    pub(crate) at: usize,
    crc: u16,
    /// The last header behind the front, and the checksum from there on.
    later: Option<(usize, u16)>,
    /// Where the checksum became right; zeros leave it so.
    right: usize,
}

impl FrameEndSearch {
    /// Goes on over `bytes` to the end of the frame.
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
                // Of the next frame, there may be no more than the beginning of its header.
                ParsedFrameHeader::Header(_) | ParsedFrameHeader::Incomplete if self.is_whole() => {
                    return FrameEnd::Found;
                }
                ParsedFrameHeader::Header(header)
                    if info.is_none_or(|info| header.is_like(info)) =>
                {
                    match self.later {
                        // A whole frame behind the one at the front, which is none then.
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

    /// Where the frame ends when nothing follows it but zeros, as a file may have whose last blocks
    /// never came to the disk. Two of them may be its checksum.
    pub(crate) const fn end_before_zeros(&self) -> Option<usize> {
        if !self.is_whole() {
            return None;
        }
        let zeros = self.at - self.right;
        Some(if zeros <= 2 { self.at } else { self.right })
    }

    /// The checksum over a frame and its own checksum is zero.
    pub(crate) const fn is_whole(&self) -> bool {
        self.crc == 0 && self.at > SMALLEST
    }
}

/// What a scan came to.
pub(crate) enum FrameEnd {
    /// The end of the bytes.
    NeedMore,
    /// The next frame.
    Found,
    /// A whole frame so many bytes further on, while this one has no end.
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

/// What else than a frame may follow a frame.
const AFTER: [&[u8]; 3] = [b"fLaC", b"OggS", b"ID3"];
/// A frame has a header of six bytes, a subframe and two bytes of checksum.
const SMALLEST: usize = 8;
