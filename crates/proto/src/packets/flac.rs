//! FLAC frames (RFC 9639, sections 8 and 9), out of a stream.

use aulos_core::{ChannelLayout, SampleRate};

use super::input::Input;
use super::{Event, Format, MAX_PACKET, MAX_TAG, Place, Start, Step, comment};
use crate::flac::{Header, Info, Look, Parsed, Scan};

/// Where in the stream we are.
#[derive(Debug)]
pub(super) struct Reader {
    state: State,
    info: Option<Info>,
}

#[derive(Debug)]
enum State {
    Magic,
    Blocks,
    /// At the first frame, which may say more than is known.
    First,
    Frames(Scan),
}

impl Default for Reader {
    fn default() -> Self {
        Self { state: State::Magic, info: None }
    }
}

impl Reader {
    /// A reader of a stream that was joined at a frame.
    pub(super) const fn joined() -> Self {
        Self { state: State::First, info: None }
    }

    /// The same reader, at a frame further on.
    pub(super) fn resumed(self) -> Self {
        Self { state: State::First, ..self }
    }

    pub(super) fn next(&mut self, input: &mut Input, packet: &mut Vec<u8>) -> Step {
        match &self.state {
            State::Magic => {
                input.skip(4);
                self.state = State::Blocks;
                Step::Taken
            }
            State::Blocks => self.block(input),
            State::First => self.first(input),
            State::Frames(scan) => {
                let scan = *scan;
                self.frame(scan, input, packet)
            }
        }
    }

    /// A metadata block (RFC 9639, 8.1).
    fn block(&mut self, input: &mut Input) -> Step {
        let bytes = input.bytes();
        let Some([kind, a, b, c]) = bytes.first_chunk::<4>().copied() else { return Step::More };
        let length = u64::from(a) << 16 | u64::from(b) << 8 | u64::from(c);
        let whole = 4 + length;
        let is_read = kind & 0x7f == 0 || (kind & 0x7f == COMMENT && length <= MAX_COMMENT);
        let body = bytes.get(4..usize::try_from(whole).unwrap_or(usize::MAX));
        if (is_read && body.is_none() && length <= MAX_COMMENT) || length > MAX_TAG {
            return if length > MAX_TAG { Step::Lost(4) } else { Step::More };
        }
        let mut found = Step::Taken;
        match (kind & 0x7f, body) {
            (0, Some(body)) => {
                let Some(info) = Info::parse(body) else { return Step::Lost(4) };
                let Some(start) = start(&info) else { return Step::Lost(4) };
                self.info = Some(info);
                found = Step::Found(Event::Begin(start));
            }
            (COMMENT, Some(body)) => {
                if let Some(title) = comment::title(body) {
                    found = Step::Found(Event::Title(title));
                }
            }
            _ => {}
        }
        if kind & 0x80 != 0 {
            self.state = State::First;
        }
        input.skip(whole);
        found
    }

    /// The header in front says what is to be decoded.
    fn first(&mut self, input: &Input) -> Step {
        let header = match Header::parse(input.bytes()) {
            Parsed::Header(header) => header,
            Parsed::More => return Step::More,
            Parsed::No => return Step::Lost(0),
        };
        if self.info.as_ref().is_some_and(|info| header.is_like(info)) {
            self.state = State::Frames(Scan::default());
            return Step::Taken;
        }
        let Some((info, start)) =
            Info::of(&header).and_then(|info| start(&info).map(|start| (info, start)))
        else {
            return Step::Lost(2);
        };
        self.info = Some(info);
        self.state = State::Frames(Scan::default());
        Step::Found(Event::Begin(start))
    }

    fn frame(&mut self, mut scan: Scan, input: &mut Input, packet: &mut Vec<u8>) -> Step {
        let ended = input.is_ended();
        match scan.find(input.bytes(), ended, self.info.as_ref()) {
            Look::Next => {}
            Look::Damaged(count) => return Step::Lost(count as u64),
            Look::More if ended && scan.is_whole() && scan.at == input.bytes().len() => {}
            Look::More if scan.at >= MAX_PACKET => return Step::Lost(2),
            Look::More => {
                self.state = State::Frames(scan);
                return Step::More;
            }
        }
        packet.clear();
        packet.extend(input.bytes().iter().take(scan.at));
        input.skip(scan.at as u64);
        // The next header was seen, if there is one; it may be of another kind.
        let over = input.bytes().is_empty();
        self.state = if over { State::Frames(Scan::default()) } else { State::First };
        Step::Found(Event::Packet(Place::default()))
    }
}

/// What STREAMINFO says, to a decoder.
pub(super) fn start(info: &Info) -> Option<Box<Start>> {
    let rate = SampleRate::new(info.hz()).ok()?;
    let layout = ChannelLayout::new(info.channels()).ok()?;
    let format = Format::Flac { info: *info.bytes(), rate, layout };
    Some(Box::new(Start { format, skip: 0, padding: None }))
}

/// The type of a block with comments.
const COMMENT: u8 = 4;
/// Bytes of comments that are read; longer ones are passed over.
const MAX_COMMENT: u64 = 256 * 1024;
