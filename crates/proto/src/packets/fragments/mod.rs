//! Reader of fragmented MP4 (ISO/IEC 14496-12, 8.8), as the segments of HLS have it, with one
//! track of AAC, FLAC or Opus.
//!
//! Each fragment names its frames in a `moof` box, which is read whole; the frames in the `mdat`
//! behind it are given out as they arrive.

mod boxes;
mod movie;
mod segment;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use super::input_buffer::InputBuffer;
use super::{
    MAX_PACKET, PacketPlacement, ReaderStep, SplitterEvent, StreamFormatError, StreamStart,
};
use boxes::BoxHeader;
use movie::Track;
use segment::Sample;

/// Reader of boxes.
#[derive(Debug, Default)]
pub(super) struct FragmentReader {
    track: Option<Track>,
    /// Frames of the last fragment that were not given out, in their order.
    samples: VecDeque<Sample>,
    /// Position of the next box while frames are read.
    media_end: Option<u64>,
}

impl FragmentReader {
    pub(super) fn next(&mut self, input: &mut InputBuffer, packet: &mut Vec<u8>) -> ReaderStep {
        loop {
            if let Some(end) = self.media_end {
                match self.next_sample(end, input, packet) {
                    Some(step) => return step,
                    None => self.media_end = None,
                }
            }
            let at = input.position();
            let Some(header) = BoxHeader::parse(input.bytes()) else { return ReaderStep::NeedMore };
            if !header.is_plausible() {
                return ReaderStep::EndOfStream;
            }
            // A box that goes on to the end of a file.
            let Some(size) = header.size else {
                return ReaderStep::Refused(StreamFormatError::Mp4);
            };
            if &header.kind == b"mdat" {
                input.skip(header.header);
                self.media_end = Some(at.saturating_add(size));
                continue;
            }
            let is_read = matches!(&header.kind, b"moov" | b"moof" | b"emsg");
            let whole = usize::try_from(size).ok().filter(|size| is_read && *size <= MAX_BOX);
            let Some(whole) = whole else {
                input.skip(size);
                continue;
            };
            let Some(bytes) = input.bytes().get(..whole) else { return ReaderStep::NeedMore };
            let content = usize::try_from(header.header).ok().and_then(|start| bytes.get(start..));
            let step = self.read_box(header.kind, content.unwrap_or_default(), at);
            input.skip(size);
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// The next frame before `end`; `None` when the rest up to it is of no use.
    fn next_sample(
        &mut self,
        end: u64,
        input: &mut InputBuffer,
        packet: &mut Vec<u8>,
    ) -> Option<ReaderStep> {
        while let Some(sample) = self.samples.front().copied() {
            let here = input.position();
            let is_inside = sample.at.saturating_add(sample.bytes) <= end;
            if is_inside && sample.at >= here && sample.bytes <= MAX_PACKET as u64 {
                input.skip(sample.at - here);
                let length = usize::try_from(sample.bytes).unwrap_or(MAX_PACKET);
                let Some(bytes) = input.bytes().get(..length) else {
                    return Some(ReaderStep::NeedMore);
                };
                packet.clear();
                packet.extend_from_slice(bytes);
                input.skip(sample.bytes);
                self.samples.pop_front();
                let time = Some(sample.time);
                let placement = PacketPlacement { time, ..PacketPlacement::default() };
                return Some(ReaderStep::Found(SplitterEvent::Packet(placement)));
            }
            self.samples.pop_front();
        }
        input.skip(end.saturating_sub(input.position()));
        None
    }

    fn read_box(&mut self, kind: [u8; 4], content: &[u8], at: u64) -> Option<ReaderStep> {
        match &kind {
            b"moov" => match Track::parse(content) {
                Ok(track) => {
                    let is_new = self.track.as_ref() != Some(&track);
                    let format = track.format.clone();
                    self.track = Some(track);
                    self.samples.clear();
                    let start = StreamStart { format, skip: 0, padding: None };
                    is_new.then(|| ReaderStep::Found(SplitterEvent::Begin(Box::new(start))))
                }
                Err(why) => Some(ReaderStep::Refused(why)),
            },
            b"moof" => {
                self.samples.clear();
                let track = self.track.as_ref()?;
                segment::samples(content, track, at, &mut self.samples);
                None
            }
            _ => {
                let title = segment::title(content)?;
                Some(ReaderStep::Found(SplitterEvent::Title(title)))
            }
        }
    }
}

/// The largest box that is read whole; a fragment of ten seconds of sound has some 10 kB.
const MAX_BOX: usize = 512 * 1_024;
