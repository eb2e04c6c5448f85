//! The encoded frames of a source, on their way from its decoder to a mount.
//!
//! ```text
//!  bytes -> StreamSource (codec pool) --blocks--> Input -> Station --AirMark--> mount (codec pool)
//!                            '--------frames, with their media time---------------'
//! ```
//!
//! The audio of a frame is in the buffers between the decoder and the station for a second or
//! more, so the frames wait here for as long. When the ring is full, because nothing reads, frames
//! are dropped, and the reader learns that some are missing.

use aulos_core::{ChannelLayout, Frames, MediaTime, SampleRate};
use aulos_proto::packets::PacketFormat;
use aulos_proto::titles::TrackMetadata;
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_session::mount::FrameFormat;

/// Takes the frames; held by the decoder.
#[derive(Debug)]
pub struct FrameWriter {
    bytes: Producer<u8>,
    frames: Producer<QueuedFrame>,
    /// What the next frame begins.
    begins: Option<(PacketFormat, Option<TrackMetadata>)>,
    /// Frames are missing before the next one.
    is_after_gap: bool,
}

/// Gives them out; held by the mount.
#[derive(Debug)]
pub struct FrameReader {
    bytes: Consumer<u8>,
    frames: Consumer<QueuedFrame>,
    scratch: Vec<u8>,
}

/// A frame that has been taken out.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "it is there to be taken apart")]
pub struct PassedFrame<'a> {
    /// The format and title of the stream, if one begins with this frame.
    pub begins: Option<Box<(FrameFormat, Option<TrackMetadata>)>>,
    /// Whether frames of the stream are missing before this one.
    pub is_after_gap: bool,
    /// What it decodes to.
    pub duration: Frames,
    /// The frame, as the splitter has it.
    pub bytes: &'a [u8],
}

#[derive(Debug)]
struct QueuedFrame {
    begins: Option<Box<(FrameFormat, Option<TrackMetadata>)>>,
    is_after_gap: bool,
    /// Media time of its first decoded frame.
    start: MediaTime,
    duration: Frames,
    length: usize,
}

/// Both ends.
#[must_use]
pub fn frame_channel() -> (FrameWriter, FrameReader) {
    let (bytes, byte_reader) = ring(MAX_BYTES);
    let (frames, frame_reader) = ring(MAX_FRAMES);
    let writer = FrameWriter { bytes, frames, begins: None, is_after_gap: false };
    (writer, FrameReader { bytes: byte_reader, frames: frame_reader, scratch: Vec::new() })
}

impl FrameWriter {
    /// A stream of this format begins.
    pub fn begin(&mut self, format: &PacketFormat) {
        self.begins = Some((format.clone(), None));
    }

    /// The title of the stream that has begun, unless frames have come already.
    pub fn set_title(&mut self, title: &TrackMetadata) {
        if let Some((_, known)) = &mut self.begins {
            *known = Some(title.clone());
        }
    }

    /// Frames of the stream are missing here.
    pub const fn skip(&mut self) {
        self.is_after_gap = true;
    }

    /// Takes a frame, whose decoded audio has this rate and layout, begins at this media time and
    /// has this duration.
    pub fn push(
        &mut self,
        (rate, layout): (SampleRate, ChannelLayout),
        (start, duration): (MediaTime, Frames),
        frame: &[u8],
    ) {
        if self.frames.free() == 0 || self.bytes.free() < frame.len() {
            self.is_after_gap = true;
            return;
        }
        let begins = self
            .begins
            .take()
            .map(|(packets, title)| Box::new((FrameFormat { packets, rate, layout }, title)));
        let is_after_gap = core::mem::take(&mut self.is_after_gap);
        let length = self.bytes.write(frame);
        let frame = QueuedFrame { begins, is_after_gap, start, duration, length };
        // There is room, as was found above.
        drop(self.frames.push(frame));
    }
}

impl FrameReader {
    /// Media time of the first frame that the next one decodes to.
    #[must_use]
    pub fn next_start(&self) -> Option<MediaTime> {
        self.frames.peek().map(|frame| frame.start)
    }

    /// Takes the next frame.
    pub fn pop(&mut self) -> Option<PassedFrame<'_>> {
        let QueuedFrame { begins, is_after_gap, duration, length, .. } = self.frames.pop()?;
        self.scratch.resize(length, 0);
        self.bytes.read(&mut self.scratch);
        Some(PassedFrame { begins, is_after_gap, duration, bytes: &self.scratch })
    }
}

/// Frames that wait: ten seconds of Opus with 20 ms, two and a half of one with 5 ms.
const MAX_FRAMES: usize = 512;

/// Their bytes: ten seconds of FLAC at 800 kbit/s.
const MAX_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn format() -> PacketFormat {
        let (rate, layout) = (SampleRate::HZ_44100, ChannelLayout::STEREO);
        PacketFormat::Mpeg { layer: 3, rate, layout }
    }

    fn push(writer: &mut FrameWriter, number: u64) {
        let shape = (SampleRate::HZ_44100, ChannelLayout::STEREO);
        writer.push(shape, (MediaTime(number * 1_152), Frames(1_152)), &number.to_le_bytes());
    }

    #[test]
    fn frames_come_out_as_they_went_in() {
        let (mut writer, mut reader) = frame_channel();
        writer.begin(&format());
        let title = TrackMetadata::from_stream_title("a - b");
        writer.set_title(&title);
        (0..3).for_each(|number| push(&mut writer, number));
        writer.skip();
        push(&mut writer, 4);
        assert_eq!(reader.next_start(), Some(MediaTime(0)));
        let first = reader.pop().unwrap();
        let (begun, known) = *first.begins.unwrap();
        assert_eq!((begun.packets, known), (format(), Some(title)));
        assert_eq!(first.bytes, 0_u64.to_le_bytes());
        assert!(reader.pop().unwrap().begins.is_none());
        assert!(!reader.pop().unwrap().is_after_gap);
        assert_eq!(reader.next_start(), Some(MediaTime(4 * 1_152)));
        assert!(reader.pop().unwrap().is_after_gap);
        assert!(reader.pop().is_none());
    }

    #[test]
    fn what_has_no_room_is_missing_and_the_reader_learns_it() {
        let (mut writer, mut reader) = frame_channel();
        writer.begin(&format());
        (0..600).for_each(|number| push(&mut writer, number));
        for _ in 0..MAX_FRAMES {
            assert!(!reader.pop().unwrap().is_after_gap);
        }
        assert!(reader.pop().is_none());
        push(&mut writer, 600);
        assert!(reader.pop().unwrap().is_after_gap);
    }
}
