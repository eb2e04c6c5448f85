//! Finds the complete frames of a file whose writer was killed.

use aulos_core::Frames;

use super::id3::tag_length;
use super::{DECODER_DELAY, Mp3Info, Mp3Totals, crc16};
use crate::Patch;
use crate::packets::input_buffer::InputBuffer;
use crate::packets::mpeg::Header;

/// Finds the complete frames of a file of ours; its bytes are pushed in order, in pieces of any
/// size. Damaged parts in the middle are skipped: a repair removes nothing that can be played.
#[derive(Debug, Default)]
pub struct Mp3Scanner {
    input: InputBuffer,
    /// Offset of the front of the input.
    at: u64,
    is_behind_tag: bool,
    info: Option<Mp3Info>,
    totals: Mp3Totals,
    end: u64,
    damaged: u64,
    failures: u32,
    aborted: bool,
}

/// Result of a scan.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Mp3ScanReport {
    /// Frames per second.
    pub hz: u32,
    /// Number of channels.
    pub channels: usize,
    /// Length of the sound between the delays at both ends.
    pub frames: Frames,
    /// End of the last complete MP3 frame, from the start of the file.
    pub end: u64,
    /// Bytes between MP3 frames that belong to none.
    pub damaged: u64,
    /// The changes that make the Info frame state what is there; none if it does.
    pub patches: Option<[Patch; 2]>,
    /// The scan was aborted because of too much damage.
    pub aborted: bool,
}

/// Why a file has no report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mp3ScanError {
    /// It ends before its sound.
    Empty,
    /// It begins with something else.
    Unknown,
}

impl Mp3Scanner {
    /// Scans the next bytes.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.aborted {
            let taken = self.input.push(bytes);
            bytes = bytes.get(taken..).unwrap_or_default();
            self.scan();
        }
    }

    /// Ends the input and returns the result.
    ///
    /// # Errors
    /// [`Mp3ScanError`] for a file that does not begin with an Info frame as this crate writes it.
    pub fn finish(self) -> Result<Mp3ScanReport, Mp3ScanError> {
        let Self { info, totals, end, damaged, aborted, .. } = self;
        let no_info = if aborted { Mp3ScanError::Unknown } else { Mp3ScanError::Empty };
        let mut info = info.ok_or(no_info)?;
        // The sound that a decoder still holds back is lost.
        let totals = Mp3Totals { padding: DECODER_DELAY, ..totals };
        // The padding belongs to the numbers beside it.
        let stated = info.totals().unwrap_or_default();
        let same =
            info.is_intact() && (stated.frames, stated.bytes) == (totals.frames, totals.bytes);
        let padding = if same { stated.padding } else { totals.padding };
        let length = u64::from(totals.frames) * u64::from(info.frame_length());
        let cut = u64::from(info.delay()) + u64::from(padding);
        let patches = (!same).then(|| {
            info.set_totals(totals);
            info.patches()
        });
        Ok(Mp3ScanReport {
            hz: info.header().hz(),
            channels: info.header().channels(),
            frames: Frames(length.saturating_sub(cut)),
            end,
            damaged,
            patches,
            aborted,
        })
    }

    fn scan(&mut self) {
        while !self.input.bytes().is_empty() && !self.aborted {
            let bytes = self.input.bytes();
            if !self.is_behind_tag {
                if bytes.len() < TAG_HEADER {
                    return;
                }
                self.is_behind_tag = true;
                self.skip(tag_length(bytes));
                continue;
            }
            // Fewer bytes than a header has belong to no frame.
            let Some(word) = bytes.first_chunk().copied() else { return };
            let header = Header::parse(word).filter(|header| self.is_ours(header));
            let Some(header) = header else {
                self.fail();
                continue;
            };
            // At the end of the file: a frame without its end.
            let Some(frame) = bytes.get(..header.bytes()) else { return };
            if self.info.is_none() {
                self.info = Mp3Info::parse(frame, self.at);
                self.aborted = self.info.is_none();
            } else {
                self.totals.frames = self.totals.frames.saturating_add(1);
                self.totals.bytes += frame.len() as u64;
                self.totals.crc = crc16(self.totals.crc, frame);
                self.damaged += self.at - self.end;
            }
            self.skip(header.bytes() as u64);
            self.end = self.at;
        }
    }

    /// Whether a frame can be of this file.
    fn is_ours(&self, header: &Header) -> bool {
        header.is_layer_3() && self.info.as_ref().is_none_or(|info| info.is_of_frame(header))
    }

    /// Skips to the next byte that may begin a frame.
    fn fail(&mut self) {
        // Only an Info frame may be the first.
        self.aborted |= self.info.is_none();
        let bytes = self.input.bytes();
        let next = bytes.iter().skip(1).position(|byte| *byte == 0xff);
        let count = next.map_or(bytes.len(), |at| at + 1);
        self.failures += u32::from(next.is_some());
        self.aborted |= self.failures > MAX_FAILURES;
        self.skip(count as u64);
    }

    fn skip(&mut self, count: u64) {
        self.input.skip(count);
        self.at += count;
    }
}

/// What tells the length of a tag.
const TAG_HEADER: usize = 10;

/// Maximum number of false frame starts: a file with more is not one of ours.
const MAX_FAILURES: u32 = 1_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::id3_tag;
    use super::*;

    /// A file of `count` frames of 128 kbit/s, and the offsets of the Info frame and of the first.
    fn file(count: usize, totals: Mp3Totals) -> (Vec<u8>, usize, usize) {
        let mut bytes = Vec::new();
        id3_tag([("TIT2", "Hall")].into_iter(), &mut bytes);
        let info_at = bytes.len();
        let mut info = Mp3Info::new(48_000, 2, 128, 528, info_at as u64).unwrap();
        info.set_totals(totals);
        bytes.extend_from_slice(info.bytes());
        let audio = bytes.len();
        for number in 0..count {
            let mut frame = [u8::try_from(number % 200).unwrap(); 384];
            frame[..4].copy_from_slice(&[0xff, 0xfb, 0x94, 0x44]);
            bytes.extend_from_slice(&frame);
        }
        (bytes, info_at, audio)
    }

    fn scan(bytes: &[u8], piece: usize) -> Result<Mp3ScanReport, Mp3ScanError> {
        let mut scan = Mp3Scanner::default();
        bytes.chunks(piece.max(1)).for_each(|piece| scan.push(piece));
        scan.finish()
    }

    fn apply(bytes: &mut [u8], patches: &[Patch]) {
        for patch in patches {
            let at = usize::try_from(patch.at()).unwrap();
            bytes[at..at + patch.bytes().len()].copy_from_slice(patch.bytes());
        }
    }

    #[test]
    fn an_info_frame_is_within_a_sector_and_has_the_fields_of_lame() {
        let totals = Mp3Totals { frames: 3, bytes: 1_152, padding: 0x5a7, crc: 0 };
        let (bytes, info_at, audio) = file(3, totals);
        assert_eq!((info_at % 512, audio - info_at), (0, 384));
        let tag = &bytes[info_at + 36..audio];
        assert_eq!(tag[..16], *b"Info\0\0\0\x0f\0\0\0\x03\0\0\x06\0");
        assert_eq!((tag[16], tag[16 + 50], tag[16 + 99]), (0, 128, 253));
        assert_eq!(tag[120..130], *b"LAMEaulos\x01");
        // 528 and 0x5a7 in 12 bits each.
        assert_eq!(tag[141..144], [0x21, 0x05, 0xa7]);
        assert_eq!(crc16(0, &bytes[info_at..info_at + 36 + 154]).to_be_bytes(), tag[154..156]);
        let patches = Mp3Info::parse(&bytes[info_at..audio], info_at as u64).unwrap().patches();
        assert!(patches.iter().all(|patch| patch.is_applied_to(&bytes)));
        // At 32 kbit/s a frame is too short for the tag.
        for (hz, channels) in [(48_000, 2), (44_100, 1), (24_000, 2), (16_000, 1)] {
            let info = Mp3Info::new(hz, channels, 32, 528, 0).unwrap();
            assert!(info.bytes().len() >= 156 + 13, "{}", info.bytes().len());
            assert_eq!(Mp3Info::parse(info.bytes(), 0).unwrap(), info);
        }
        assert_eq!(Mp3Info::new(48_000, 2, 100, 528, 0), None);
        assert_eq!(Mp3Info::new(96_000, 2, 128, 528, 0), None);
    }

    #[test]
    fn the_checksum_is_that_of_arc() {
        assert_eq!(crc16(0, b"123456789"), 0xbb3d);
    }

    #[test]
    fn a_complete_file_is_consistent_and_an_incomplete_one_is_put_right() {
        let totals = Mp3Totals { frames: 3, bytes: 1_152, padding: 1_000, crc: 1 };
        let (bytes, ..) = file(3, totals);
        for piece in [1, 7, 4_096] {
            let found = scan(&bytes, piece).unwrap();
            assert!(found.patches.is_none() && !found.aborted);
            assert_eq!((found.hz, found.channels, found.damaged), (48_000, 2, 0));
            assert_eq!(found.frames, Frames(3 * 1_152 - 528 - 1_000));
            assert_eq!(found.end, bytes.len() as u64);
        }
        // Killed behind the last flush, in the middle of a frame.
        let (mut torn, ..) = file(6, totals);
        torn.truncate(torn.len() - 1);
        let found = scan(&torn, 100).unwrap();
        assert_eq!(found.frames, Frames(5 * 1_152 - 528 - 529));
        assert_eq!(found.end, torn.len() as u64 - 383);
        apply(&mut torn, &found.patches.unwrap());
        torn.truncate(usize::try_from(found.end).unwrap());
        let again = scan(&torn, 100).unwrap();
        assert!(again.patches.is_none());
        // One of two patches was written: the padding is not that of these numbers.
        let (mut half, info_at, _) = file(3, Mp3Totals { frames: 2, bytes: 768, ..totals });
        half[info_at + 36 + 8..][..8].copy_from_slice(&bytes[info_at + 36 + 8..][..8]);
        let found_half = scan(&half, 100).unwrap();
        assert_eq!((found_half.patches.is_some(), found_half.frames.0), (true, 3 * 1_152 - 1_057));
        assert_eq!((again.frames, again.damaged), (found.frames, 0));
    }

    #[test]
    fn zeros_of_a_power_failure_are_no_sound() {
        let (mut bytes, _, audio) = file(10, Mp3Totals::default());
        bytes[audio + 384 * 4..audio + 384 * 6].fill(0);
        bytes.extend_from_slice(&[0; 50_000]);
        let found = scan(&bytes, 1_000).unwrap();
        assert_eq!((found.damaged, found.end), (768, audio as u64 + 3_840));
        assert_eq!(found.frames, Frames(8 * 1_152 - 528 - 529));
        for other in [&[0; 5_000], &bytes[audio..]] {
            assert_eq!(scan(other, 100).unwrap_err(), Mp3ScanError::Unknown);
        }
        for end in [0, 9, 511, audio - 1] {
            assert_eq!(scan(&bytes[..end], 100).unwrap_err(), Mp3ScanError::Empty, "{end}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_stop_a_scan(
            damage in prop::collection::vec((any::<usize>(), any::<u8>()), 0..40),
            cut in any::<prop::sample::Index>(),
            piece in 1..5_000usize,
        ) {
            let (mut bytes, ..) = file(20, Mp3Totals::default());
            for (at, byte) in damage {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            bytes.truncate(cut.index(bytes.len()) + 1);
            if let Ok(found) = scan(&bytes, piece) {
                prop_assert!(found.end <= bytes.len() as u64 && found.frames < Frames(30_000));
            }
        }
    }
}
