//! FLAC files: headers of files that are being written, and recovery of files whose writer was
//! killed.

use aulos_core::Frames;

use super::header::{FrameHeader, ParsedFrameHeader};
use super::info::INFO_LEN;
use super::{FrameEnd, FrameEndSearch, StreamInfo};
use crate::Patch;
use crate::bytes::put_comments;
use crate::packets::MAX_PACKET;
use crate::packets::input_buffer::InputBuffer;

/// Everything in front of the audio.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlacFileHeader {
    /// STREAMINFO. [`FlacFileHeader::stream_info_patch`] writes changes to the file.
    pub info: StreamInfo,
    /// Offset of the audio in bytes from the start of the file.
    pub audio_offset: u64,
}

impl FlacFileHeader {
    /// Begins a file: appends the header to `out`. The names in `comments` are ASCII without `=`.
    /// `room` bytes of padding behind them are reserved for later; with 0 there is no padding
    /// block.
    pub fn begin<'a>(
        info: StreamInfo,
        comments: impl ExactSizeIterator<Item = (&'a str, &'a str)>,
        room: usize,
        out: &mut Vec<u8>,
    ) -> Self {
        let start = out.len();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[STREAMINFO, 0, 0, 34]);
        out.extend_from_slice(info.bytes());
        let mut body = Vec::new();
        put_comments(&mut body, comments);
        // A block is at most 16 MiB long; comments beyond this limit are truncated.
        body.truncate(MAX_HEAD / 2);
        let [.., a, b, c] = body.len().to_be_bytes();
        let room = room.min(MAX_HEAD / 4);
        let last = if room == 0 { LAST } else { 0 };
        out.extend_from_slice(&[last | COMMENTS, a, b, c]);
        out.extend_from_slice(&body);
        if room > 0 {
            let [.., a, b, c] = room.to_be_bytes();
            out.extend_from_slice(&[LAST | PADDING, a, b, c]);
            out.resize(out.len() + room, 0);
        }
        Self { info, audio_offset: (out.len() - start) as u64 }
    }

    /// The patch that writes the current STREAMINFO to the file.
    #[must_use]
    pub fn stream_info_patch(&self) -> Patch {
        Patch::new(INFO_AT as u64, self.info.bytes())
    }

    /// Parses the front of a file up to the offset of its audio, which may be beyond the end of
    /// `bytes`. `Err` is the number of bytes needed; `None` means that the file is not FLAC, or has
    /// more than 4 MiB in front of its audio.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Result<Self, usize>> {
        if !MAGIC.iter().zip(bytes).all(|(wanted, here)| wanted == here) {
            return None;
        }
        let mut at = MAGIC.len();
        let mut info = None;
        while at <= MAX_HEAD {
            let Some(&[kind, a, b, c]) = bytes.get(at..).and_then(<[u8]>::first_chunk) else {
                return Some(Err(at + 4));
            };
            let end = at + 4 + u32::from_be_bytes([0, a, b, c]) as usize;
            if info.is_none() {
                // STREAMINFO is always the first block.
                if kind & !LAST != STREAMINFO || end != INFO_AT + INFO_LEN {
                    return None;
                }
                let Some(body) = bytes.get(at + 4..end) else { return Some(Err(end)) };
                info = Some(StreamInfo::parse(body)?);
            }
            at = end;
            if kind & LAST != 0 {
                return info.map(|info| Ok(Self { info, audio_offset: at as u64 }));
            }
        }
        None
    }
}

/// Finds the complete FLAC frames of a file; its bytes are pushed in order, in pieces of any size.
///
/// Damaged parts in the middle are skipped: a repair removes nothing that can be played.
#[derive(Debug)]
pub struct FlacScanner {
    info: StreamInfo,
    input: InputBuffer,
    scan: FrameEndSearch,
    report: FlacScanReport,
    /// Offset of the front of the input, in bytes from the start of the audio.
    at: u64,
    failures: u32,
}

/// Result of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlacScanReport {
    /// End of the last complete FLAC frame, in bytes from the start of the audio.
    pub end: u64,
    /// Duration of the audio according to the number of the last FLAC frame; missing frames in the
    /// middle count.
    pub frames: Frames,
    /// Size of the smallest FLAC frame in bytes; 0 when there is none.
    pub smallest: u32,
    /// Size of the largest FLAC frame in bytes.
    pub largest: u32,
    /// Bytes between FLAC frames that belong to none.
    pub damaged: u64,
    /// The scan was aborted because of too much damage.
    pub aborted: bool,
}

impl FlacScanner {
    /// A scanner for the audio of a file with this STREAMINFO.
    #[must_use]
    pub fn new(info: StreamInfo) -> Self {
        Self {
            info,
            input: InputBuffer::default(),
            scan: FrameEndSearch::default(),
            report: FlacScanReport::default(),
            at: 0,
            failures: 0,
        }
    }

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
    pub fn finish(mut self) -> FlacScanReport {
        self.input.end();
        self.scan();
        self.report
    }

    fn scan(&mut self) {
        while !self.input.bytes().is_empty() && self.failures < MAX_FAILURES {
            let (bytes, ended) = (self.input.bytes(), self.input.is_ended());
            let header = match FrameHeader::parse(bytes) {
                ParsedFrameHeader::Header(header) if self.info.fits(&header) => header,
                ParsedFrameHeader::Incomplete if !ended => return,
                _ => {
                    let next = bytes.iter().skip(1).position(|byte| *byte == 0xff);
                    self.skip(next.map_or(bytes.len(), |at| at + 1));
                    continue;
                }
            };
            let length = match self.scan.find(bytes, ended, Some(&self.info)) {
                FrameEnd::Found => Some(self.scan.at),
                FrameEnd::Damaged(count) => {
                    self.fail(count);
                    continue;
                }
                FrameEnd::NeedMore if ended => self.scan.end_before_zeros(),
                FrameEnd::NeedMore if self.scan.at >= MAX_PACKET => None,
                FrameEnd::NeedMore => return,
            };
            match length {
                Some(length) => self.record_frame(header, length),
                None => self.fail(1),
            }
        }
        self.report.aborted |= self.failures >= MAX_FAILURES;
    }

    fn record_frame(&mut self, header: FrameHeader, length: usize) {
        let bytes = u32::try_from(length).unwrap_or(0);
        let report = &mut self.report;
        report.damaged += self.at - report.end;
        report.smallest = if report.smallest == 0 { bytes } else { report.smallest.min(bytes) };
        report.largest = report.largest.max(bytes);
        // With a fixed block size, FLAC frames are numbered; otherwise the number is that of the
        // first sample.
        let block = self.info.block_size().map_or(1, u64::from);
        let frames = header.number.saturating_mul(block).saturating_add(u64::from(header.block));
        report.frames = report.frames.max(Frames(frames));
        self.skip(length);
        self.report.end = self.at;
    }

    /// Handles a false frame header.
    fn fail(&mut self, skip: usize) {
        self.failures += 1;
        self.skip(skip);
    }

    fn skip(&mut self, count: usize) {
        self.input.skip(count as u64);
        self.at += count as u64;
        self.scan = FrameEndSearch::default();
    }
}

pub(super) const MAGIC: &[u8; 4] = b"fLaC";
/// Types of metadata blocks, and the flag of the last one (RFC 9639, section 8.1).
const STREAMINFO: u8 = 0;
pub(super) const PADDING: u8 = 1;
pub(super) const COMMENTS: u8 = 4;
pub(super) const LAST: u8 = 0x80;
/// Offset of the body of STREAMINFO in every file.
const INFO_AT: usize = 8;
/// Maximum offset of the audio, as with WAVE.
pub(super) const MAX_HEAD: usize = crate::wav::MAX_PREAMBLE;
/// Maximum number of frame headers without an end: each costs a search of half a megabyte, so a
/// file full of them would take days.
const MAX_FAILURES: u32 = 1_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::frame_end::crc16;
    use super::super::header::crc8;
    use super::*;

    /// Stereo, 48 kHz, 16 bits, blocks of 4,096.
    fn info() -> StreamInfo {
        let mut bytes = [0; 34];
        bytes[..4].copy_from_slice(&[0x10, 0, 0x10, 0]);
        bytes[10..14].copy_from_slice(&[0x0b, 0xb8, 0x02, 0xf0]);
        StreamInfo::parse(&bytes).unwrap()
    }

    /// Arbitrary data with the header and the checksum of a frame.
    fn frame(number: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0xff, 0xf8, 0xca, 0x18, number];
        let check = bytes.iter().fold(0, |crc, byte| crc8(crc ^ byte));
        bytes.push(check);
        bytes.extend_from_slice(body);
        let check = bytes.iter().fold(0, |crc, byte| crc16(crc, *byte));
        bytes.extend(check.to_be_bytes());
        bytes
    }

    fn scan(bytes: &[u8], piece: usize) -> FlacScanReport {
        let mut scan = FlacScanner::new(info());
        bytes.chunks(piece.max(1)).for_each(|piece| scan.push(piece));
        scan.finish()
    }

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let mut bytes = Vec::new();
        let mut head =
            FlacFileHeader::begin(info(), [("TITLE", "Hall")].into_iter(), 0, &mut bytes);
        assert_eq!(head.audio_offset, bytes.len() as u64);
        let mut roomy = Vec::new();
        let padded =
            FlacFileHeader::begin(info(), [("TITLE", "Hall")].into_iter(), 100, &mut roomy);
        assert_eq!(
            (roomy.len(), padded.audio_offset),
            (bytes.len() + 104, head.audio_offset + 104)
        );
        assert_eq!(FlacFileHeader::parse(&roomy), Some(Ok(padded)));
        for length in 0..bytes.len() {
            match FlacFileHeader::parse(&bytes[..length]) {
                Some(Err(needed)) => assert!(needed > length && needed <= bytes.len()),
                // The content of the comments does not matter.
                found => assert_eq!(found, Some(Ok(head.clone())), "{length}"),
            }
        }
        assert_eq!(FlacFileHeader::parse(&bytes), Some(Ok(head.clone())));
        assert!(head.stream_info_patch().is_applied_to(&bytes));
        head.info.set_totals(0xf_1234_5678, 14, 0x10_2030);
        let patch = head.stream_info_patch();
        bytes[8..42].copy_from_slice(patch.bytes());
        assert_eq!((patch.at(), FlacFileHeader::parse(&bytes)), (8, Some(Ok(head.clone()))));
        let info = head.info;
        assert_eq!((info.frames(), info.hz(), info.bits()), (0xf_1234_5678, 48_000, 16));
        assert_eq!((info.channels(), info.block_size()), (2, Some(4_096)));
        assert_eq!(bytes[12..18], [0, 0, 14, 0x10, 0x20, 0x30]);
    }

    #[test]
    fn a_file_without_its_end_is_whole_up_to_its_last_frame() {
        let frames = [frame(0, &[1; 100]), frame(1, &[2; 50]), frame(2, &[3; 70])].concat();
        let whole = scan(&frames, 7);
        assert_eq!((whole.end, whole.frames), (frames.len() as u64, Frames(3 * 4_096)));
        assert_eq!((whole.smallest, whole.largest, whole.damaged), (58, 108, 0));
        for cut in 108 + 58..frames.len() {
            let found = scan(&frames[..cut], 1_000);
            assert_eq!((found.end, found.frames), (108 + 58, Frames(2 * 4_096)), "{cut}");
        }
    }

    #[test]
    fn zeros_and_damage_are_distinguished_from_frames() {
        let frames = [frame(0, &[1; 100]), frame(1, &[2; 50]), frame(2, &[3; 70])].concat();
        let padded = [&frames[..], &[0; 5_000]].concat();
        assert_eq!(scan(&padded, 512), scan(&frames, 512));
        let mut hurt = frames.clone();
        hurt[120] ^= 1;
        let found = scan(&hurt, 512);
        assert_eq!((found.end, found.damaged), (frames.len() as u64, 58));
        assert_eq!(found.frames, Frames(3 * 4_096));
        assert_eq!(scan(&[0xff; 100_000], 512).frames, Frames(0));
    }

    #[test]
    fn a_file_of_repeated_frame_starts_is_aborted() {
        let beginning = &frame(0, &[])[..6];
        let found = scan(&beginning.repeat(3_000), 4_096);
        assert!(found.aborted, "{found:?}");
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..60), 0..8),
            junk: Vec<u8>,
            piece in 1..50_usize,
        ) {
            let mut bytes: Vec<u8> =
                frames.iter().zip(0..).flat_map(|(body, number)| frame(number, body)).collect();
            let sound = bytes.len() as u64;
            prop_assert_eq!(scan(&bytes, piece).end, sound);
            bytes.extend(junk);
            prop_assert_eq!(scan(&bytes, piece), scan(&bytes, bytes.len()));
        }
    }
}
