//! The bit reservoir of MP3 (ISO/IEC 11172-3, 2.4.1.7 and 2.4.2.7): the main data of a frame may
//! begin in the frames before it.
//!
//! ```text
//!  header 4 | CRC 2, if protected | side information 9, 17 or 32 | main data, of this and later
//!                                   `main_data_begin`, ...         frames
//! ```
//!
//! Where another stream is spliced in, its first frames may point to main data that the decoder
//! does not have. Such a frame is made silent; its own main data stay, for the frames behind it.

use crate::packets::mpeg::Header;

/// Where a frame has its main data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MainData {
    /// How many bytes of main data before this frame it needs, at most [`MAX_RESERVOIR`].
    pub begin: usize,
    /// How many bytes of main data the frame has, for itself and for later ones.
    pub own: usize,
    version_1: bool,
    protected: bool,
    side: usize,
}

/// The greatest `main_data_begin`: nine bits.
pub const MAX_RESERVOIR: usize = 511;

impl MainData {
    /// Reads the side information of a whole MP3 frame; `None` for anything else.
    #[must_use]
    pub fn of_frame(frame: &[u8]) -> Option<Self> {
        let header = Header::parse(*frame.first_chunk()?)?;
        if !header.is_layer_3() || header.bytes() != frame.len() {
            return None;
        }
        let (end, protected) = (header.tag_at(), header.is_protected());
        let side = if protected { HEADER + CRC } else { HEADER };
        let [high, low] = *frame.get(side..end)?.first_chunk()?;
        let version_1 = header.is_version_1();
        let begin = match version_1 {
            true => usize::from(high) << 1 | usize::from(low >> 7),
            false => usize::from(high),
        };
        Some(Self { begin, own: frame.len() - end, version_1, protected, side: end - side })
    }

    /// Makes `frame`, of which this is the side information, silent. Its main data then begins
    /// `available` bytes before it, so that decoders keep these bytes for the frames behind it.
    pub fn silence(&self, frame: &mut [u8], available: usize) {
        let at = if self.protected { HEADER + CRC } else { HEADER };
        let Some(side) = frame.get_mut(at..at + self.side) else { return };
        side.fill(0);
        let most = if self.version_1 { MAX_RESERVOIR } else { usize::from(u8::MAX) };
        let begin = u16::try_from(available.min(most)).unwrap_or(0);
        let [high, low] = if self.version_1 { begin << 7 } else { begin << 8 }.to_be_bytes();
        if let Some(field) = side.first_chunk_mut() {
            *field = [high, low];
        }
        if self.protected {
            let crc = frame_crc(frame.get(2..HEADER), frame.get(at..at + self.side));
            if let Some(field) = frame.get_mut(HEADER..at) {
                field.copy_from_slice(&crc.to_be_bytes());
            }
        }
    }
}

/// The checksum of a protected frame: of the last two bytes of its header and the side information
/// (2.4.3.1; polynomial 0x8005, most significant bit first, from ones).
fn frame_crc(header: Option<&[u8]>, side: Option<&[u8]>) -> u16 {
    let bytes = header.unwrap_or_default().iter().chain(side.unwrap_or_default());
    bytes.fold(u16::MAX, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            if crc >> 15 == 1 { crc << 1 ^ 0x8005 } else { crc << 1 }
        })
    })
}

const HEADER: usize = 4;
const CRC: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by LAME at 128 kbit/s, joint stereo, with a checksum (`lame -p`): the header, the CRC
    /// and the side information.
    const PROTECTED: &[u8] = include_bytes!("../../tests/vectors/mp3_protected.bin");

    fn frames(mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while let Some(header) = bytes.first_chunk().and_then(|word| Header::parse(*word)) {
            let Some((frame, rest)) = bytes.split_at_checked(header.bytes()) else { break };
            all.push(frame.to_vec());
            bytes = rest;
        }
        all
    }

    #[test]
    fn the_checksum_is_that_of_the_encoder() {
        let frames = frames(PROTECTED);
        assert!(frames.len() > 4, "{}", frames.len());
        for frame in frames {
            let data = MainData::of_frame(&frame).unwrap();
            assert!(data.protected);
            let crc = frame_crc(frame.get(2..4), frame.get(6..6 + data.side));
            assert_eq!(frame[4..6], crc.to_be_bytes());
        }
    }

    #[test]
    fn a_silent_frame_keeps_its_main_data_and_has_a_valid_checksum() {
        for mut frame in frames(PROTECTED) {
            let data = MainData::of_frame(&frame).unwrap();
            let before = frame.clone();
            data.silence(&mut frame, 300);
            let silent = MainData::of_frame(&frame).unwrap();
            assert_eq!((silent.begin, silent.own), (300, data.own));
            assert_eq!(frame[..4], before[..4]);
            assert_eq!(frame[6 + data.side..], before[6 + data.side..]);
            assert!(frame[8..6 + data.side].iter().all(|byte| *byte == 0));
            let crc = frame_crc(frame.get(2..4), frame.get(6..6 + data.side));
            assert_eq!(frame[4..6], crc.to_be_bytes());
        }
    }

    #[test]
    fn the_reservoir_of_mpeg_2_has_eight_bits() {
        // MPEG 2, 22,050 Hz, 56 kbit/s, mono, without a checksum.
        let mut frame = vec![0; 182];
        frame[..6].copy_from_slice(&[0xff, 0xf3, 0x70, 0xc4, 200, 0x80]);
        let data = MainData::of_frame(&frame).unwrap();
        assert_eq!((data.begin, data.own), (200, 182 - 4 - 9));
        data.silence(&mut frame, 511);
        assert_eq!(MainData::of_frame(&frame).unwrap().begin, 255);
    }

    #[test]
    fn what_is_no_frame_has_none() {
        assert_eq!(MainData::of_frame(b""), None);
        assert_eq!(MainData::of_frame(b"\xff\xfb\x90\x44"), None, "cut off");
        assert_eq!(MainData::of_frame(&[0; 400]), None);
    }
}
