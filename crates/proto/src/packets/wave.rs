//! Reader of WAVE streams: a header, then samples.

use super::input_buffer::InputBuffer;
use super::{
    MAX_BUFFER, PacketFormat, PacketPlacement, ReaderStep, SplitterEvent, StreamFormatError,
    StreamStart,
};
use crate::wav::{self, ParseOutcome};

/// State of the reader.
#[derive(Debug, Default)]
pub(super) enum Reader {
    #[default]
    Header,
    Samples {
        frame: usize,
        /// Remaining bytes, when the header has a length.
        left: Option<u64>,
    },
}

impl Reader {
    pub(super) fn next(&mut self, input: &mut InputBuffer, packet: &mut Vec<u8>) -> ReaderStep {
        match self {
            Self::Header => self.header(input),
            Self::Samples { left: Some(0), .. } => ReaderStep::EndOfStream,
            Self::Samples { frame, left } => {
                let there = input.bytes().len().min(PACKET_FRAMES * *frame);
                let left_here = left.map_or(u64::MAX, |left| left);
                let there = there.min(usize::try_from(left_here).unwrap_or(usize::MAX));
                let whole = there - there % *frame;
                if whole == 0 {
                    // The rest is less than a frame.
                    return if left_here < *frame as u64 {
                        ReaderStep::EndOfStream
                    } else {
                        ReaderStep::NeedMore
                    };
                }
                packet.clear();
                packet.extend(input.bytes().iter().take(whole));
                input.skip(whole as u64);
                *left = left.map(|left| left - whole as u64);
                ReaderStep::Found(SplitterEvent::Packet(PacketPlacement::default()))
            }
        }
    }

    fn header(&mut self, input: &mut InputBuffer) -> ReaderStep {
        match wav::parse(input.bytes()) {
            Ok(ParseOutcome::Incomplete { needed }) if needed > MAX_BUFFER => {
                ReaderStep::Refused(StreamFormatError::Wave)
            }
            Ok(ParseOutcome::Incomplete { .. }) if input.is_ended() => {
                ReaderStep::Refused(StreamFormatError::Wave)
            }
            Ok(ParseOutcome::Incomplete { .. }) => ReaderStep::NeedMore,
            Ok(ParseOutcome::Complete(wave)) => {
                input.skip(wave.data_offset as u64);
                // Live encoders write a length of gigabytes as a placeholder.
                let left = wave.data_bytes.filter(|length| *length < ENDLESS);
                *self = Self::Samples { frame: wave.frame_bytes(), left };
                let wav::WaveInfo { sample_format, rate, layout, .. } = wave;
                let format = PacketFormat::Pcm { samples: sample_format, rate, layout };
                ReaderStep::Found(SplitterEvent::Begin(Box::new(StreamStart {
                    format,
                    skip: 0,
                    padding: None,
                })))
            }
            Err(_) => ReaderStep::Refused(StreamFormatError::Wave),
        }
    }
}

/// Maximum number of frames per packet.
const PACKET_FRAMES: usize = 1_024;

/// Lengths from here on mean an endless stream.
const ENDLESS: u64 = 0x7fff_0000;
