//! PES packets (ISO/IEC 13818-1, 2.4.3.6), given out in the pieces in which they arrive.

use super::TsTime;

/// Takes the payloads of one PID.
#[derive(Debug, Default)]
pub(super) struct PesReader {
    state: State,
    /// The beginning of a header; at most 264 bytes.
    header: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// Waiting for the next packet to begin.
    #[default]
    Idle,
    /// In the header.
    Header,
    /// In the payload; the bytes that are left, where their number is known.
    Payload(Option<usize>),
}

impl PesReader {
    /// The piece of a PES payload in the payload of a transport packet, which may be empty, and the
    /// presentation time of the first unit that begins in it.
    pub(super) fn push<'a>(&mut self, bytes: &'a [u8], starts: bool) -> (Option<TsTime>, &'a [u8]) {
        if starts {
            self.header.clear();
            self.state = State::Header;
        }
        let (mut time, mut rest) = (None, bytes);
        while let State::Header = self.state {
            let needed = needed_header(&self.header);
            if self.header.len() == needed {
                (self.state, time) = parse(&self.header);
                break;
            }
            let taken = rest.len().min(needed - self.header.len());
            if taken == 0 {
                return (None, &[]);
            }
            let (taken, behind) = rest.split_at_checked(taken).unwrap_or((rest, &[]));
            self.header.extend_from_slice(taken);
            rest = behind;
        }
        match &mut self.state {
            State::Payload(Some(left)) => {
                let piece = rest.get(..*left).unwrap_or(rest);
                *left -= piece.len();
                (time, piece)
            }
            State::Payload(None) => (time, rest),
            _ => (None, &[]),
        }
    }

    /// Continues after lost packets: the rest of a payload is still of use, that of a header is not.
    pub(super) const fn lost(&mut self) {
        match &mut self.state {
            State::Header => self.state = State::Idle,
            State::Payload(left) => *left = None,
            State::Idle => {}
        }
    }
}

/// Bytes of the header that begins so, as far as they are known.
fn needed_header(header: &[u8]) -> usize {
    header.get(field::HEADER_LENGTH).map_or(FIXED, |length| FIXED + usize::from(*length))
}

/// The state after a whole header, and the time in it.
fn parse(header: &[u8]) -> (State, Option<TsTime>) {
    let number = |at: core::ops::Range<usize>| {
        let bytes = header.get(at).unwrap_or_default();
        bytes.iter().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte))
    };
    let stream = header.get(field::STREAM).copied().unwrap_or(0);
    let flags = header.get(field::FLAGS).copied().unwrap_or(0);
    let is_sound = matches!(stream, PRIVATE_1 | EXTENDED | AUDIO_FIRST..=AUDIO_LAST);
    let is_mpeg_2 = number(field::MARKER) >> 6 == 2;
    if number(field::PREFIX) != 1 || !is_sound || !is_mpeg_2 {
        return (State::Idle, None);
    }
    let has_time = flags & 0x80 != 0;
    let time = header.get(field::TIME).and_then(|bytes| bytes.try_into().ok());
    let left = match number(field::LENGTH) {
        0 => None,
        length => Some((length + field::LENGTH.end).saturating_sub(header.len())),
    };
    (State::Payload(left), time.filter(|_| has_time).map(TsTime::parse))
}

mod field {
    use core::ops::Range;

    pub(super) const PREFIX: Range<usize> = 0..3;
    pub(super) const STREAM: usize = 3;
    pub(super) const LENGTH: Range<usize> = 4..6;
    pub(super) const MARKER: Range<usize> = 6..7;
    pub(super) const FLAGS: usize = 7;
    /// Bytes of the header behind this one.
    pub(super) const HEADER_LENGTH: usize = 8;
    pub(super) const TIME: Range<usize> = 9..14;
}

/// Bytes before the variable part of the header, whose length is one byte.
const FIXED: usize = 9;

/// Streams of sound, and those of codecs that MPEG does not define, or of timed metadata.
const PRIVATE_1: u8 = 0xbd;
const AUDIO_FIRST: u8 = 0xc0;
const AUDIO_LAST: u8 = 0xdf;
const EXTENDED: u8 = 0xfd;
