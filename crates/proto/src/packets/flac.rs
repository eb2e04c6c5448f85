//! Reader of FLAC streams (RFC 9639, sections 8 and 9).

use aulos_core::{ChannelLayout, SampleRate};

use super::input_buffer::InputBuffer;
use super::{
    MAX_PACKET, MAX_TAG, PacketFormat, PacketPlacement, ReaderStep, SplitterEvent, StreamStart,
    vorbis_comment,
};
use crate::flac::{FrameEnd, FrameEndSearch, FrameHeader, ParsedFrameHeader, StreamInfo};

/// Reader of FLAC blocks and frames.
#[derive(Debug)]
pub(super) struct Reader {
    state: State,
    info: Option<StreamInfo>,
}

#[derive(Debug)]
enum State {
    Magic,
    Blocks,
    /// At a frame whose header may differ from the last one.
    FirstHeader,
    Frames(FrameEndSearch),
}

impl Default for Reader {
    fn default() -> Self {
        Self { state: State::Magic, info: None }
    }
}

impl Reader {
    /// A reader for a stream that was joined at a frame.
    pub(super) const fn joined_midstream() -> Self {
        Self { state: State::FirstHeader, info: None }
    }

    /// Continues at a later frame.
    pub(super) fn resume(self) -> Self {
        Self { state: State::FirstHeader, ..self }
    }

    pub(super) fn next(&mut self, input: &mut InputBuffer, packet: &mut Vec<u8>) -> ReaderStep {
        match &self.state {
            State::Magic => {
                input.skip(4);
                self.state = State::Blocks;
                ReaderStep::Consumed
            }
            State::Blocks => self.block(input),
            State::FirstHeader => self.read_first_header(input),
            State::Frames(scan) => {
                let scan = *scan;
                self.frame(scan, input, packet)
            }
        }
    }

    /// A metadata block (RFC 9639, 8.1).
    fn block(&mut self, input: &mut InputBuffer) -> ReaderStep {
        let bytes = input.bytes();
        let Some([kind, a, b, c]) = bytes.first_chunk::<4>().copied() else {
            return ReaderStep::NeedMore;
        };
        let length = u64::from(a) << 16 | u64::from(b) << 8 | u64::from(c);
        let whole = 4 + length;
        let is_read = kind & 0x7f == 0 || (kind & 0x7f == COMMENT && length <= MAX_COMMENT);
        let body = bytes.get(4..usize::try_from(whole).unwrap_or(usize::MAX));
        if (is_read && body.is_none() && length <= MAX_COMMENT) || length > MAX_TAG {
            return if length > MAX_TAG { ReaderStep::Lost(4) } else { ReaderStep::NeedMore };
        }
        let mut found = ReaderStep::Consumed;
        match (kind & 0x7f, body) {
            (0, Some(body)) => {
                let Some(info) = StreamInfo::parse(body) else { return ReaderStep::Lost(4) };
                let Some(start) = stream_start(&info) else { return ReaderStep::Lost(4) };
                self.info = Some(info);
                found = ReaderStep::Found(SplitterEvent::Begin(start));
            }
            (COMMENT, Some(body)) => {
                if let Some(title) = vorbis_comment::parse_title(body) {
                    found = ReaderStep::Found(SplitterEvent::Title(title));
                }
            }
            _ => {}
        }
        if kind & 0x80 != 0 {
            self.state = State::FirstHeader;
        }
        input.skip(whole);
        found
    }

    /// Reads a frame header, which may change the format.
    fn read_first_header(&mut self, input: &InputBuffer) -> ReaderStep {
        let header = match FrameHeader::parse(input.bytes()) {
            ParsedFrameHeader::Header(header) => header,
            ParsedFrameHeader::Incomplete => return ReaderStep::NeedMore,
            ParsedFrameHeader::Invalid => return ReaderStep::Lost(0),
        };
        if self.info.as_ref().is_some_and(|info| info.fits(&header)) {
            self.state = State::Frames(FrameEndSearch::default());
            return ReaderStep::Consumed;
        }
        let Some((info, start)) = StreamInfo::from_frame_header(&header)
            .and_then(|info| stream_start(&info).map(|start| (info, start)))
        else {
            return ReaderStep::Lost(2);
        };
        self.info = Some(info);
        self.state = State::Frames(FrameEndSearch::default());
        ReaderStep::Found(SplitterEvent::Begin(start))
    }

    fn frame(
        &mut self,
        mut scan: FrameEndSearch,
        input: &mut InputBuffer,
        packet: &mut Vec<u8>,
    ) -> ReaderStep {
        let ended = input.is_ended();
        match scan.find(input.bytes(), ended, self.info.as_ref()) {
            FrameEnd::Found => {}
            FrameEnd::Damaged(count) => return ReaderStep::Lost(count as u64),
            FrameEnd::NeedMore if ended && scan.is_whole() && scan.at == input.bytes().len() => {}
            FrameEnd::NeedMore if scan.at >= MAX_PACKET => return ReaderStep::Lost(2),
            FrameEnd::NeedMore => {
                self.state = State::Frames(scan);
                return ReaderStep::NeedMore;
            }
        }
        packet.clear();
        packet.extend(input.bytes().iter().take(scan.at));
        input.skip(scan.at as u64);
        // The next header was checked, but it may be that of another stream.
        let over = input.bytes().is_empty();
        self.state =
            if over { State::Frames(FrameEndSearch::default()) } else { State::FirstHeader };
        ReaderStep::Found(SplitterEvent::Packet(PacketPlacement::default()))
    }
}

/// The start event for a STREAMINFO block.
pub(super) fn stream_start(info: &StreamInfo) -> Option<Box<StreamStart>> {
    let rate = SampleRate::new(info.hz()).ok()?;
    let layout = ChannelLayout::new(info.channels()).ok()?;
    let format = PacketFormat::Flac { info: *info.bytes(), rate, layout };
    Some(Box::new(StreamStart { format, skip: 0, padding: None }))
}

/// Type of a comment block.
const COMMENT: u8 = 4;
/// Maximum size of a comment block in bytes; larger ones are skipped.
const MAX_COMMENT: u64 = 256 * 1024;
