//! The real-time side of a recorder: copies frames into a ring, and never waits.
//!
//! A ring of pooled blocks was the alternative. A ring of samples with a ring of their descriptions
//! beside it holds seconds of audio without a thousand small buffers, and takes blocks of any size.

use aulos_core::{Block, ChannelLayout, Frames, Instant, MediaTime, SampleRate, Span, Timeline};
use aulos_rt::ring::{Consumer, Producer, ring};

/// Description of a run of frames in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRun {
    /// The media time of its first frame. It is greater than the end of the previous run where
    /// blocks did not fit, or where the source sent nothing.
    pub pts: MediaTime,
    /// Number of frames.
    pub frames: Frames,
    /// Mapping of their media time to local time; it has their rate.
    pub timeline: Timeline,
    /// For how long the station stood still before them; its media time did as well.
    pub stall: Span,
    /// The frames directly before it that the source did not send: it was interrupted.
    pub interrupted: Frames,
}

impl FrameRun {
    /// The media time after its last frame.
    #[must_use]
    pub fn end(&self) -> MediaTime {
        self.pts + self.frames
    }
}

/// Where in a station a recorder is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TapPoint {
    /// At the output, as listeners hear it.
    Output,
    /// At one source, before the switch: in the station's channels, at the source's rate, before
    /// its gain and its normalizer. A pause of the sender becomes silence of that length.
    Input(usize),
}

/// Creates both ends for a station of `layout`: the tap for
/// [`StationHandle::add_output`](crate::station::StationHandle::add_output), and its reader. The
/// ring holds `room` of audio at `rate`, by default [`DEFAULT_CAPACITY`].
///
/// Not for a real-time thread: allocates, and touches all memory that it has allocated, so that the
/// real-time side causes no page faults.
#[must_use]
pub fn record_tap(
    side: TapPoint,
    rate: SampleRate,
    layout: ChannelLayout,
    room: Span,
) -> (RecordTap, RecordTapReader) {
    let room = room.max(MIN_CAPACITY).min(MAX_CAPACITY);
    let samples = rate.frames(room).as_usize() * layout.channels();
    let (mut sound, sound_reader) = ring(samples.next_power_of_two());
    // `reserve` zeroes what it hands out.
    let _ = sound.reserve(sound.capacity());
    let blocks = usize::try_from(room.as_nanos() / SHORT_BLOCK.as_nanos()).unwrap_or(usize::MAX);
    let (mut runs, mut run_reader) = ring(blocks);
    let line = Timeline::new(MediaTime::ZERO, Instant::ZERO, rate);
    let none = FrameRun {
        pts: MediaTime::ZERO,
        frames: Frames::ZERO,
        timeline: line,
        stall: Span::ZERO,
        interrupted: Frames::ZERO,
    };
    while runs.push(none).is_ok() {}
    run_reader.advance(blocks);
    let next = MediaTime::ZERO;
    let tap = RecordTap { side, layout, sound, runs, next, timeline: None };
    (tap, RecordTapReader { rate, layout, sound: sound_reader, runs: run_reader })
}

/// The end that is attached to a station.
#[derive(Debug)]
pub struct RecordTap {
    side: TapPoint,
    layout: ChannelLayout,
    sound: Producer<f32>,
    runs: Producer<FrameRun>,
    /// The media time of an input, which has none of its own.
    next: MediaTime,
    /// The station's timeline of the last block.
    timeline: Option<Timeline>,
}

impl RecordTap {
    pub(crate) const fn side(&self) -> TapPoint {
        self.side
    }

    /// The reader is gone.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.runs.is_abandoned()
    }

    /// Copies a block of the station's output.
    ///
    /// # Real-time
    /// Wait-free; does not allocate or call the system.
    pub(crate) fn push_block(&mut self, block: &Block, line: Timeline) {
        let stall = self.timeline.map_or(Span::ZERO, |last| {
            if last.rate() != line.rate() {
                return Span::ZERO;
            }
            line.local_at(block.pts).since(last.local_at(block.pts))
        });
        let run = FrameRun {
            pts: block.pts,
            frames: block.frames(),
            timeline: line,
            stall,
            interrupted: Frames::ZERO,
        };
        if self.copy_in(block.samples(), run) {
            self.timeline = Some(line);
        }
    }

    /// Whether this many samples fit now. For callers that can wait: a station does not call this.
    #[must_use]
    pub fn has_room(&mut self, samples: usize) -> bool {
        self.sound.free() >= samples && self.runs.free() > 0
    }

    /// Copies what a source has sent: `samples` at `rate`, the last of which arrived at `received`.
    /// Before them it sent nothing for as long as `interrupted` frames last.
    ///
    /// # Real-time
    /// Wait-free; does not allocate or call the system.
    pub fn push_samples(
        &mut self,
        samples: &[f32],
        rate: SampleRate,
        received: Instant,
        interrupted: Frames,
    ) {
        let frames = Frames::from(samples.len() / self.layout.channels());
        self.next += interrupted;
        let line = Timeline::new(self.next, received - rate.span(frames), rate);
        let stall = Span::ZERO;
        let run = FrameRun { pts: self.next, frames, timeline: line, stall, interrupted };
        self.copy_in(samples, run);
        self.next += frames;
    }

    /// False if there was no room.
    fn copy_in(&mut self, samples: &[f32], run: FrameRun) -> bool {
        // Frames that do not fit show as a gap between two runs, and are counted by it.
        if self.sound.free() < samples.len() || self.runs.free() == 0 {
            return false;
        }
        // The description comes last: a reader that sees it finds the samples.
        self.sound.write(samples);
        self.runs.push(run).is_ok()
    }
}

/// The end from which a recorder reads.
#[derive(Debug)]
pub struct RecordTapReader {
    rate: SampleRate,
    layout: ChannelLayout,
    sound: Consumer<f32>,
    runs: Consumer<FrameRun>,
}

impl RecordTapReader {
    /// Frames per second, as known at creation; each [`FrameRun`] has its own.
    #[must_use]
    pub const fn rate(&self) -> SampleRate {
        self.rate
    }

    /// The channels of a frame.
    #[must_use]
    pub const fn layout(&self) -> ChannelLayout {
        self.layout
    }

    /// The oldest run, if there is one.
    #[must_use]
    pub fn peek(&self) -> Option<&FrameRun> {
        self.runs.peek()
    }

    /// Removes the oldest run and appends its samples to `into`.
    pub fn read(&mut self, into: &mut impl Extend<f32>) -> Option<FrameRun> {
        let run = self.runs.pop()?;
        let mut left = run.frames.as_usize() * self.layout.channels();
        let mut piece = [0.0; COPY_SAMPLES];
        while left > 0 {
            let wanted = left.min(COPY_SAMPLES);
            let read = self.sound.read(&mut piece[..wanted]);
            debug_assert_eq!(read, wanted, "the samples are there before their mark");
            into.extend(piece[..wanted].iter().copied());
            left -= wanted;
        }
        Some(run)
    }

    /// The station is gone, or has dropped the other end. When this is checked before
    /// [`RecordTapReader::peek`] and is true, nothing follows the runs found there.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.runs.is_abandoned()
    }

    /// Buffered frames.
    #[must_use]
    pub fn buffered(&self) -> Frames {
        Frames::from(self.sound.len() / self.layout.channels())
    }
}

/// Default capacity of the ring: it covers a disk that stalls for ten seconds.
pub const DEFAULT_CAPACITY: Span = Span::from_secs(12);

/// The least useful capacity.
const MIN_CAPACITY: Span = Span::from_secs(1);

/// Maximum capacity: 115 MB of stereo at 48 kHz.
const MAX_CAPACITY: Span = Span::from_secs(300);

/// No station has shorter quanta; packets of a source may be as short.
const SHORT_BLOCK: Span = Span::from_millis(1);

/// Samples that are copied at once.
const COPY_SAMPLES: usize = 1_024;
