//! Recovery of files whose writer was killed.

use aulos_core::Frames;

use super::{Page, PageError, ParsedPage, parse_page};
use crate::packets::input_buffer::InputBuffer;

/// Finds the complete pages of an Ogg Opus file; its bytes are pushed in order, in pieces of any
/// size.
///
/// Damaged parts in the middle are skipped: a repair removes nothing that can be played.
#[derive(Debug, Default)]
pub struct OggScanner {
    input: InputBuffer,
    report: OggScanReport,
    serial: Option<u32>,
    /// Offset of the front of the input, and of the end of the last complete page.
    at: u64,
    scanned_end: u64,
    failures: u32,
}

/// Result of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OggScanReport {
    /// Number of channels; 0 when the headers are incomplete or not those of Opus.
    pub channels: u8,
    /// Frames that a decoder discards at the beginning.
    pub pre_skip: u16,
    /// The last page with audio on which a packet ends.
    pub last: Option<LastPage>,
    /// Bytes between pages that belong to no page.
    pub damaged: u64,
    /// The file contains another stream, in parallel or afterwards.
    pub has_other_streams: bool,
    /// The scan was aborted because of too much damage.
    pub aborted: bool,
}

/// Location of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "all that matters of it")]
pub struct LastPage {
    /// Offset in the file.
    pub at: u64,
    /// Length in bytes.
    pub length: usize,
    /// Granule position.
    pub granule: u64,
    /// It is marked as the end of the stream.
    pub ends: bool,
}

impl OggScanReport {
    /// Duration of the file in frames at 48 kHz.
    #[must_use]
    pub fn frames(&self) -> Frames {
        let granule = self.last.map_or(0, |last| last.granule);
        Frames(granule.saturating_sub(u64::from(self.pre_skip)))
    }
}

impl OggScanner {
    /// Scans the next bytes.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.report.aborted {
            let taken = self.input.push(bytes);
            bytes = bytes.get(taken..).unwrap_or_default();
            self.scan();
        }
    }

    /// Ends the input and returns the result.
    #[must_use]
    pub fn finish(mut self) -> OggScanReport {
        self.input.end();
        self.scan();
        self.report
    }

    fn scan(&mut self) {
        while !self.input.bytes().is_empty() && self.failures < MAX_FAILURES {
            let bytes = self.input.bytes();
            let length = match parse_page(bytes) {
                Ok(ParsedPage::Page(page)) => {
                    let length = page.total_len();
                    self.report.damaged += self.at - self.scanned_end;
                    record_page(&mut self.report, &mut self.serial, &page, self.at);
                    self.scanned_end = self.at + length as u64;
                    length
                }
                Ok(ParsedPage::Incomplete { .. }) if !self.input.is_ended() => return,
                Err(PageError::NotOgg) => skip_to_magic(bytes),
                Ok(ParsedPage::Incomplete { .. }) | Err(_) => {
                    self.failures += 1;
                    skip_to_magic(bytes)
                }
            };
            self.input.skip(length as u64);
            self.at += length as u64;
        }
        self.report.aborted |= self.failures >= MAX_FAILURES;
    }
}

/// Distance to the next byte that may begin a page.
fn skip_to_magic(bytes: &[u8]) -> usize {
    let next = bytes.iter().skip(1).position(|byte| *byte == b'O');
    next.map_or(bytes.len(), |at| at + 1)
}

fn record_page(report: &mut OggScanReport, serial: &mut Option<u32>, page: &Page<'_>, at: u64) {
    match *serial {
        None => {
            // RFC 7845, section 5.1.
            if let [b'O', b'p', b'u', b's', b'H', b'e', b'a', b'd', 1, channels, a, b, ..] =
                page.body
                && page.first
            {
                report.channels = *channels;
                report.pre_skip = u16::from_le_bytes([*a, *b]);
            }
            *serial = Some(page.serial);
        }
        Some(serial) if serial != page.serial || page.first => report.has_other_streams = true,
        Some(_) => {
            let sound = page.granule != 0 && page.granule < FIRST_NEGATIVE_GRANULE;
            let complete = page.segments.last().is_some_and(|length| *length < 255);
            if sound && complete {
                let (length, granule, ends) = (page.total_len(), page.granule, page.last);
                report.last = Some(LastPage { at, length, granule, ends });
            }
        }
    }
}

/// From here on positions are negative, which means that no packet ends on a page.
const FIRST_NEGATIVE_GRANULE: u64 = 1 << 63;
/// Maximum number of false page starts, each of which costs the checksum of 64 kB.
const MAX_FAILURES: u32 = 1_000;

#[cfg(test)]
mod tests {
    use aulos_core::{ChannelLayout, SampleRate};
    use proptest::prelude::*;

    use super::super::{OpusFile, mark_last_page};
    use super::*;

    /// A file with two packets per page, and its writer.
    fn file(pages: usize) -> (Vec<u8>, OpusFile) {
        let mut out = Vec::new();
        let comments = [("TITLE", "Hall")].into_iter();
        let (layout, rate) = (ChannelLayout::STEREO, SampleRate::HZ_48000);
        let mut file = OpusFile::begin(1, layout, rate, 120, comments, &mut out).unwrap();
        for page in 0..pages {
            for packet in 0..2 {
                file.write(&vec![7; 100 * page + packet], Frames(960), &mut out);
            }
            file.page(&mut out);
        }
        (out, file)
    }

    fn scan(bytes: &[u8], piece: usize) -> OggScanReport {
        let mut scan = OggScanner::default();
        bytes.chunks(piece.max(1)).for_each(|piece| scan.push(piece));
        scan.finish()
    }

    #[test]
    fn a_file_without_its_end_is_whole_up_to_its_last_page() {
        let (mut bytes, _) = file(3);
        let found = scan(&bytes, 11);
        let last = found.last.unwrap();
        assert_eq!((found.channels, found.pre_skip, found.damaged), (2, 120, 0));
        assert_eq!((last.granule, last.ends, found.frames()), (5_760, false, Frames(5_640)));
        assert_eq!(last.at + last.length as u64, bytes.len() as u64);
        let torn = &bytes[..bytes.len() - 1];
        assert_eq!(scan(torn, 11).last.unwrap().granule, 3_840);
        // When its last page is marked as the end, the scan reports it.
        let at = usize::try_from(last.at).unwrap();
        let patch = mark_last_page(&bytes[at..], last.at).unwrap();
        bytes[at..at + patch.bytes().len()].copy_from_slice(patch.bytes());
        assert_eq!(scan(&bytes, 11).last, Some(LastPage { ends: true, ..last }));
        assert_eq!(mark_last_page(&bytes[at + 1..], 0), None);
    }

    #[test]
    fn damage_and_other_streams_are_distinguished_from_audio() {
        let (bytes, file) = file(3);
        let first = scan(&bytes[..bytes.len() - 1], 64);
        let mut hurt = bytes.clone();
        let length = first.last.unwrap().length;
        hurt[usize::try_from(first.last.unwrap().at).unwrap() + 40] ^= 1;
        let found = scan(&hurt, 64);
        assert_eq!((found.damaged, found.frames()), (length as u64, Frames(5_640)));
        assert!(scan(&[&bytes[..], &bytes].concat(), 64).has_other_streams);
        assert_eq!(scan(&[0; 70_000], 64), OggScanReport::default());
        assert!(scan(&b"OggS\0\0..".repeat(30_000), 4_096).aborted);
        let mut end = bytes;
        file.finish(Frames(5_700), &mut end);
        assert!(!scan(&end, 64).has_other_streams);
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(pages in 0..5_usize, junk: Vec<u8>, piece in 1..90_usize) {
            let (mut bytes, _) = file(pages);
            bytes.extend(junk);
            prop_assert_eq!(scan(&bytes, piece), scan(&bytes, bytes.len()));
        }
    }
}
