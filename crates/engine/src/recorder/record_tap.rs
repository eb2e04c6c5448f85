//! The real-time side of a recorder: copies what goes by into a ring, and never waits.
//!
//! A ring of blocks from a pool was the alternative; a ring of samples with a ring of marks beside
//! it holds seconds of sound without a thousand small buffers, and a block of any size fits.

use aulos_core::{Block, ChannelLayout, Frames, Instant, MediaTime, SampleRate, Span, Timeline};
use aulos_rt::ring::{Consumer, Producer, ring};

/// What a run of frames in the ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRun {
    /// The media time of its first frame. It is more than the end of the last one where blocks found
    /// no room.
    pub pts: MediaTime,
    /// How many there are.
    pub frames: Frames,
    /// How their media time becomes local time; it has their rate.
    pub timeline: Timeline,
}

impl FrameRun {
    /// The media time behind its last frame.
    #[must_use]
    pub fn end(&self) -> MediaTime {
        self.pts + self.frames
    }
}

/// Where in a station it listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TapPoint {
    /// What goes out, as its listeners hear it.
    Output,
    /// What one source sends, before the switch: in the station's channels, at the source's rate,
    /// before its gain and its normaliser. A pause of the sender is silence of that length.
    Input(usize),
}

/// The two ends for a station of `layout`: one to hang on it with
/// [`Outlets::add`](crate::outlet::Outlets::add), and one to take from. `room` of sound at `rate`
/// waits between them, [`DEFAULT_ROOM`] by default.
///
/// Not for a real-time thread: allocates, and walks through all that it has allocated, so that the
/// other side never meets memory that was not touched before.
#[must_use]
pub fn record_tap(
    side: TapPoint,
    rate: SampleRate,
    layout: ChannelLayout,
    room: Span,
) -> (RecordTap, RecordTapReader) {
    let room = room.max(MIN_CAPACITY).min(MAX_CAPACITY);
    let samples = rate.frames(room).as_usize() * layout.channels();
    let (mut sound, heard) = ring(samples.next_power_of_two());
    // It sets what it hands out to zero.
    let _ = sound.reserve(sound.capacity());
    let blocks = usize::try_from(room.as_nanos() / SHORT_BLOCK.as_nanos()).unwrap_or(usize::MAX);
    let (mut marks, mut marked) = ring(blocks);
    let line = Timeline::new(MediaTime::ZERO, Instant::ZERO, rate);
    let none = FrameRun { pts: MediaTime::ZERO, frames: Frames::ZERO, timeline: line };
    while marks.push(none).is_ok() {}
    marked.advance(blocks);
    let pickup = RecordTap { side, layout, sound, marks, next: MediaTime::ZERO };
    (pickup, RecordTapReader { rate, layout, sound: heard, marks: marked })
}

/// The end that hangs on a station.
#[derive(Debug)]
pub struct RecordTap {
    side: TapPoint,
    layout: ChannelLayout,
    sound: Producer<f32>,
    marks: Producer<FrameRun>,
    /// The media time of an input, which has none of its own.
    next: MediaTime,
}

impl RecordTap {
    pub(crate) const fn side(&self) -> TapPoint {
        self.side
    }

    /// Nobody takes anything from the other end any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.marks.is_abandoned()
    }

    /// Copies what a station gives out.
    ///
    /// # Real-time
    /// Wait-free; allocates nothing and calls nobody.
    pub(crate) fn push_block(&mut self, block: &Block, line: Timeline) {
        self.copy_in(block.samples(), block.pts, line);
    }

    /// Whether so many samples would find room now. For who may wait: a station never asks.
    #[must_use]
    pub fn has_room(&mut self, samples: usize) -> bool {
        self.sound.free() >= samples && self.marks.free() > 0
    }

    /// Copies what a source has sent: `samples` at `rate`, the last of which came at `received`.
    /// `pause` says that the ones before them are of another time.
    ///
    /// # Real-time
    /// Wait-free; allocates nothing and calls nobody.
    pub fn push_samples(
        &mut self,
        samples: &[f32],
        rate: SampleRate,
        received: Instant,
        pause: Option<Span>,
    ) {
        let frames = Frames::from(samples.len() / self.layout.channels());
        if let Some(pause) = pause {
            self.next += rate.frames(pause) - frames;
        }
        let line = Timeline::new(self.next, received - rate.span(frames), rate);
        self.copy_in(samples, self.next, line);
        self.next += frames;
    }

    fn copy_in(&mut self, samples: &[f32], pts: MediaTime, line: Timeline) {
        let frames = Frames::from(samples.len() / self.layout.channels());
        // What finds no room is missing between two marks, and so counted.
        if self.sound.free() < samples.len() || self.marks.free() == 0 {
            return;
        }
        // The mark comes last: who sees it finds the samples.
        self.sound.write(samples);
        let _ = self.marks.push(FrameRun { pts, frames, timeline: line });
    }
}

/// The end from which a recorder takes.
#[derive(Debug)]
pub struct RecordTapReader {
    rate: SampleRate,
    layout: ChannelLayout,
    sound: Consumer<f32>,
    marks: Consumer<FrameRun>,
}

impl RecordTapReader {
    /// Frames per second, as far as was known when it was made; each [`Mark`] has its own.
    #[must_use]
    pub const fn rate(&self) -> SampleRate {
        self.rate
    }

    /// The channels of a frame.
    #[must_use]
    pub const fn layout(&self) -> ChannelLayout {
        self.layout
    }

    /// What the oldest run is, if there is one.
    #[must_use]
    pub fn peek(&self) -> Option<&FrameRun> {
        self.marks.peek()
    }

    /// Takes the oldest run out and puts its samples behind `into`.
    pub fn read(&mut self, into: &mut impl Extend<f32>) -> Option<FrameRun> {
        let mark = self.marks.pop()?;
        let mut left = mark.frames.as_usize() * self.layout.channels();
        let mut piece = [0.0; COPY_SAMPLES];
        while left > 0 {
            let wanted = left.min(COPY_SAMPLES);
            let read = self.sound.read(&mut piece[..wanted]);
            debug_assert_eq!(read, wanted, "the samples are there before their mark");
            into.extend(piece[..wanted].iter().copied());
            left -= wanted;
        }
        Some(mark)
    }

    /// The station is gone, or has let go of the other end. Asked before [`Spool::peek`], it tells
    /// that nothing follows what is found there.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.marks.is_abandoned()
    }

    /// The frames that wait.
    #[must_use]
    pub fn buffered(&self) -> Frames {
        Frames::from(self.sound.len() / self.layout.channels())
    }
}

/// What the ring holds by default: a disk that stands still for ten seconds costs nothing.
pub const DEFAULT_CAPACITY: Span = Span::from_secs(12);

/// The least that is worth having.
const MIN_CAPACITY: Span = Span::from_secs(1);

/// The most: 115 MB of stereo at 48 kHz.
const MAX_CAPACITY: Span = Span::from_secs(300);

/// No station has shorter quanta; packets of a source may be as short.
const SHORT_BLOCK: Span = Span::from_millis(1);

/// Samples that are copied at once.
const COPY_SAMPLES: usize = 1_024;
