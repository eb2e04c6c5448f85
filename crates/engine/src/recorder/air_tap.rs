//! Tells another thread which input is on air, quantum by quantum, with the station's output.
//!
//! A mount passes the encoded frames of the source on air. The frames do not go through the
//! station: only where it reads in the audio decoded from them does, in frames of the source. So a
//! change of source is at the same frame in both, and no clock is compared with another.

use aulos_core::{Block, ChannelLayout, Frames, Instant, MediaTime, SampleRate, Span, Timeline};
use aulos_rt::ring::{Consumer, Producer, ring};

use super::record_tap::{FrameRun, RecordTap, RecordTapReader, TapPoint, record_tap};
use crate::status::MAX_SOURCES;

/// What was on air in a quantum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "all that there is to know")]
pub struct AirMark {
    /// The input that was read last; `None` is the last resort, or silence.
    pub input: Option<usize>,
    /// How far each input has been read: media time of its source, in the source's own frames.
    pub positions: [MediaTime; MAX_SOURCES],
    /// The media time of the first frame on the station's clock.
    pub pts: MediaTime,
    /// Local time of that frame.
    pub stamp: Instant,
}

/// The inputs in this quantum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnAir {
    pub(crate) input: Option<usize>,
    pub(crate) positions: [MediaTime; MAX_SOURCES],
}

/// The station's end.
#[derive(Debug)]
pub struct AirTap {
    sound: RecordTap,
    marks: Producer<AirMark>,
}

/// The end of the thread that passes frames.
#[derive(Debug)]
pub struct AirTapReader {
    sound: RecordTapReader,
    marks: Consumer<AirMark>,
}

/// Creates both ends for a station of this rate and layout, for [`CAPACITY`].
///
/// Not for a real-time thread.
#[must_use]
pub fn air_tap(rate: SampleRate, layout: ChannelLayout, quantum: Frames) -> (AirTap, AirTapReader) {
    let (sound, sound_reader) = record_tap(TapPoint::Output, rate, layout, CAPACITY);
    let quanta = CAPACITY.as_nanos() / rate.span(quantum).as_nanos().max(1);
    let (marks, mark_reader) = ring(usize::try_from(quanta).unwrap_or(1).max(1));
    (AirTap { sound, marks }, AirTapReader { sound: sound_reader, marks: mark_reader })
}

impl AirTap {
    /// Whether the reader is gone.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.marks.is_abandoned()
    }

    /// Passes a quantum of the station's output. A quantum without room is lost as a whole, which
    /// shows in the media times.
    ///
    /// # Real-time
    /// Wait-free; does not allocate or call the system.
    pub(crate) fn push(&mut self, block: &Block, line: Timeline, on_air: OnAir) {
        if self.marks.free() == 0 || !self.sound.has_room(block.samples().len()) {
            return;
        }
        // The mark comes last: a reader that sees it finds the samples.
        self.sound.push_block(block, line);
        let OnAir { input, positions } = on_air;
        let mark = AirMark { input, positions, pts: block.pts, stamp: line.local_at(block.pts) };
        let _has_room = self.marks.push(mark);
    }
}

impl AirTapReader {
    /// Removes the oldest quantum, and appends its samples to `into`.
    pub fn read(&mut self, into: &mut impl Extend<f32>) -> Option<(AirMark, FrameRun)> {
        let mark = self.marks.pop()?;
        Some((mark, self.sound.read(into)?))
    }

    /// Whether the station is gone, or has dropped the other end.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.marks.is_abandoned()
    }
}

/// Twenty times the interval at which the codec pool visits its jobs.
pub const CAPACITY: Span = Span::from_secs(2);
