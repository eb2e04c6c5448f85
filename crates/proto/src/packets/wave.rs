//! WAVE: a header, then samples.

use super::input::Input;
use super::{Event, Format, MAX_BUFFER, Place, Refusal, Start, Step};
use crate::wav::{self, Parsed};

/// Where in the file we are.
#[derive(Debug, Default)]
pub(super) enum Reader {
    #[default]
    Header,
    Sound {
        frame: usize,
        /// Bytes that are still to come, where the file says it.
        left: Option<u64>,
    },
}

impl Reader {
    pub(super) fn next(&mut self, input: &mut Input, packet: &mut Vec<u8>) -> Step {
        match self {
            Self::Header => self.header(input),
            Self::Sound { left: Some(0), .. } => Step::Over,
            Self::Sound { frame, left } => {
                let there = input.bytes().len().min(PACKET_FRAMES * *frame);
                let left_here = left.map_or(u64::MAX, |left| left);
                let there = there.min(usize::try_from(left_here).unwrap_or(usize::MAX));
                let whole = there - there % *frame;
                if whole == 0 {
                    // What is left of the length is no whole frame.
                    return if left_here < *frame as u64 { Step::Over } else { Step::More };
                }
                packet.clear();
                packet.extend(input.bytes().iter().take(whole));
                input.skip(whole as u64);
                *left = left.map(|left| left - whole as u64);
                Step::Found(Event::Packet(Place::default()))
            }
        }
    }

    fn header(&mut self, input: &mut Input) -> Step {
        match wav::parse(input.bytes()) {
            Ok(Parsed::Incomplete { needed }) if needed > MAX_BUFFER => {
                Step::Refused(Refusal::Wave)
            }
            Ok(Parsed::Incomplete { .. }) if input.is_ended() => Step::Refused(Refusal::Wave),
            Ok(Parsed::Incomplete { .. }) => Step::More,
            Ok(Parsed::Wave(wave)) => {
                input.skip(wave.start as u64);
                // Who streams writes lengths of gigabytes, and means none.
                let left = wave.length.filter(|length| *length < ENDLESS);
                *self = Self::Sound { frame: wave.frame_bytes(), left };
                let wav::Wave { samples, rate, layout, .. } = wave;
                let format = Format::Pcm { samples, rate, layout };
                Step::Found(Event::Begin(Box::new(Start { format, skip: 0, padding: None })))
            }
            Err(_) => Step::Refused(Refusal::Wave),
        }
    }
}

/// Frames that are given at once.
const PACKET_FRAMES: usize = 1_024;

/// A length that means "for ever".
const ENDLESS: u64 = 0x7fff_0000;
