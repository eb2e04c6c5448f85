//! Sections of tables over several packets (ISO/IEC 13818-1, 2.4.4).

use crate::crc::crc32;

/// Collects the sections of one PID.
#[derive(Debug, Default)]
pub(super) struct SectionAssembler {
    /// The beginning of a section; at most [`MAX_SECTION`] bytes and a packet.
    bytes: Vec<u8>,
}

impl SectionAssembler {
    /// Takes the payload of a packet, and calls `each` for every whole section with its checksum
    /// right, without the checksum.
    pub(super) fn push(&mut self, payload: &[u8], starts: bool, mut each: impl FnMut(&[u8])) {
        let mut rest = payload;
        if starts {
            // The end of the last section stands before the first that begins here.
            let Some((pointer, behind)) = payload.split_first() else { return };
            let Some((end, begin)) = behind.split_at_checked(usize::from(*pointer)) else {
                return self.lost();
            };
            if !self.bytes.is_empty() {
                self.bytes.extend_from_slice(end);
                self.take_whole(&mut each);
            }
            self.bytes.clear();
            rest = begin;
        } else if self.bytes.is_empty() {
            return;
        }
        self.bytes.extend_from_slice(rest);
        self.take_whole(&mut each);
    }

    /// Forgets the section whose rest is lost.
    pub(super) fn lost(&mut self) {
        self.bytes.clear();
    }

    fn take_whole(&mut self, each: &mut impl FnMut(&[u8])) {
        while let Some([table, high, low]) = self.bytes.first_chunk() {
            let length = 3 + (usize::from(high & 0x0f) << 8 | usize::from(*low));
            if *table == STUFFING || length > MAX_SECTION {
                return self.bytes.clear();
            }
            let Some(section) = self.bytes.get(..length) else { return };
            if crc32(u32::MAX, section.iter().copied()) == 0
                && let Some(table) = section.get(..length - CRC)
            {
                each(table);
            }
            self.bytes.drain(..length);
        }
    }
}

/// Greatest length of a section of the tables that are read.
const MAX_SECTION: usize = 1_024;

/// Fills the rest of a packet behind the last section.
const STUFFING: u8 = 0xff;

/// Bytes of the checksum at the end of a section.
const CRC: usize = 4;
