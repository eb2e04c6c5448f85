//! An insert: something outside of the real-time thread, such as a program, that processes the
//! programme of a station between the switch and the loudness processing.
//!
//! ```text
//!  station:  switch -> Insert --------------------------------------> equalizer, normalizer, ...
//!                        | copies of quanta      ^ processed frames, with their positions
//!                        v                       |
//!  another thread:     InsertSession <-> the program (crate io)
//! ```
//!
//! A quantum goes out unprocessed, or *dry*, and comes back *processed* some time later. Both are
//! kept by their position in the programme, and the insert plays either with one latency, so that a
//! bypass repeats and skips nothing: a linear cross-fade leads from one to the other. The fade to
//! the dry programme begins while the processed one still has the frames for it. Waiting for the
//! program in the station was rejected: it would delay every client.
//!
//! The insert is the first stage, so that the loudness stays the same when it is bypassed, and what
//! it returns is held below the ceiling.

mod bypass;
mod config;
mod delay_line;
mod probe;
mod session;
#[cfg(test)]
mod tests;

use aulos_core::{Block, ChannelLayout, Frames, MediaTime, SampleRate, Span};
use aulos_dsp::Crossfade;
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_rt::{Pool, Pooled};

pub use config::InsertConfig;
pub use session::{InsertFault, InsertSession, SessionStatus};

use crate::loudness_processor::RealFrameHistory;
use bypass::{Arrival, Bypass, MAX_LATENCY};
use delay_line::DelayLine;

/// State of an insert; a plain copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InsertStatus {
    /// The processed programme is heard.
    pub is_processing: bool,
    /// Latency of the programme, processed or not.
    pub latency: Frames,
    /// The latency that the program would need, if it is bypassed because it has less.
    pub needed: Option<Frames>,
    /// How late the newest processed frames are, at the last quantum.
    pub lag: Option<Frames>,
    /// How often the processed programme was left because its frames were late or had ended.
    pub bypasses: u64,
    /// Frames of the processed programme that were played, fades included.
    pub processed_frames: u64,
    /// Frames of the programme that were played unprocessed.
    pub bypassed_frames: u64,
    /// Quanta that the program was not given, because it did not read.
    pub blocks_lost: u64,
}

/// Creates an insert, and the end of the thread that has the program.
#[must_use]
pub fn insert(config: InsertConfig) -> (Insert, InsertSession) {
    let InsertConfig { rate, layout, quantum, .. } = config;
    let second = rate.frames(Span::from_secs(1));
    let blocks = Frames(second.0 / quantum.0.max(1)).as_usize() + SPARE_BLOCKS;
    let samples = quantum.as_usize() * layout.channels();
    let pool = |count| Pool::new(count, || Block::with_capacity(rate, layout, samples));
    let (dry, dry_end) = ring(blocks);
    // Twice as many: pieces of a quantum have a block each.
    let (processed_end, processed) = ring(2 * blocks);
    let insert = Insert::new(config, pool(blocks), dry, processed);
    let session = InsertSession::new(config, dry_end, pool(2 * blocks), processed_end);
    (insert, session)
}

/// The station's stage.
#[derive(Debug)]
pub struct Insert {
    rate: SampleRate,
    layout: ChannelLayout,
    pool: Pool<Block>,
    to_program: Producer<Pooled<Block>>,
    from_program: Consumer<Pooled<Block>>,
    /// Position of the next quantum. It begins late enough for the latency to be subtracted.
    position: MediaTime,
    dry: DelayLine,
    processed: DelayLine,
    /// The processed frames that are kept, without a gap.
    arrived: Option<(MediaTime, MediaTime)>,
    bypass: Bypass,
    /// What is played.
    active: Tap,
    /// What is faded out.
    fade: Option<(Tap, Crossfade)>,
    /// A quantum of what is faded out.
    other: Box<[f32]>,
    /// What is before it is not played any more.
    muted_before: MediaTime,
    real_frames: RealFrameHistory,
    status: InsertStatus,
}

/// A programme with a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tap {
    is_processed: bool,
    latency: Frames,
}

impl Insert {
    fn new(
        config: InsertConfig,
        pool: Pool<Block>,
        to_program: Producer<Pooled<Block>>,
        from_program: Consumer<Pooled<Block>>,
    ) -> Self {
        let InsertConfig { rate, layout, quantum, latency, .. } = config;
        let capacity = rate.frames(MAX_LATENCY) + rate.frames(FADE_OUT) + quantum + quantum;
        let line = || DelayLine::new(capacity, layout.channels());
        let latency = latency.map(|latency| rate.frames(latency).min(rate.frames(MAX_LATENCY)));
        let bypass = Bypass::new(rate, quantum, rate.frames(FADE_OUT), latency);
        let active = Tap { is_processed: false, latency: bypass.latency() };
        Self {
            rate,
            layout,
            pool,
            to_program,
            from_program,
            position: MediaTime::ZERO + capacity,
            dry: line(),
            processed: line(),
            arrived: None,
            bypass,
            active,
            fade: None,
            other: vec![0.0; quantum.as_usize() * layout.channels()].into(),
            muted_before: MediaTime::ZERO,
            real_frames: RealFrameHistory::new(rate, quantum),
            status: InsertStatus::default(),
        }
    }

    /// Replaces a quantum, interleaved, of which the first `real` frames come from a source, by the
    /// one that is due; returns how many of its frames come from a source.
    ///
    /// # Real-time
    /// Does not wait, allocate or free, and does not call the system.
    pub(crate) fn process(&mut self, block: &mut [f32], real: usize) -> usize {
        self.real_frames.push(real);
        self.dry.write(self.position, block);
        self.send(block);
        let arrival = self.receive();
        let may_begin = self.fade.is_none();
        if self.bypass.handle_quantum(self.position, arrival, may_begin) {
            self.status.bypasses += 1;
        }
        self.follow_decision();
        self.render(block);
        let frames = Frames::from(block.len() / self.layout.channels());
        self.position += frames;
        self.count(frames, arrival);
        self.real_frames.real(self.active.latency.as_usize())
    }

    /// Discards what has come in so far, because playback was paused.
    ///
    /// # Real-time
    /// Does not allocate.
    pub(crate) fn flush(&mut self) {
        self.muted_before = self.position;
        self.real_frames.clear();
    }

    /// Its state.
    #[must_use]
    pub const fn status(&self) -> InsertStatus {
        self.status
    }

    fn send(&mut self, block: &[f32]) {
        let Some(mut copy) = self.pool.take() else {
            self.status.blocks_lost += 1;
            return;
        };
        copy.reset(self.rate, self.layout);
        copy.resize(Frames::from(block.len() / self.layout.channels()));
        copy.samples_mut().copy_from_slice(block);
        copy.pts = self.position;
        if self.to_program.push(copy).is_err() {
            self.status.blocks_lost += 1;
        }
    }

    fn receive(&mut self) -> Arrival {
        let mut is_broken = false;
        while let Some(block) = self.from_program.pop() {
            let (start, end) = (block.pts, block.pts + block.frames());
            let known = self.arrived.filter(|(_, known)| *known == start);
            if known.is_none() && self.is_audible() {
                // The frames before the gap are needed for the fade that follows.
                continue;
            }
            is_broken |= known.is_none();
            self.processed.write(start, block.samples());
            let oldest = MediaTime(end.0.saturating_sub(self.processed.capacity().0));
            let first = known.map_or(start, |(first, _)| first);
            self.arrived = Some((first.max(oldest), end));
        }
        Arrival { end: self.arrived.map(|(_, end)| end), is_broken }
    }

    /// Whether processed frames are played, if only in a fade.
    fn is_audible(&self) -> bool {
        self.active.is_processed || self.fade.as_ref().is_some_and(|(from, _)| from.is_processed)
    }

    /// Begins the fade that leads to what has been decided, unless one is under way.
    fn follow_decision(&mut self) {
        let to = Tap { is_processed: self.bypass.is_processing(), latency: self.bypass.latency() };
        if to == self.active {
            return;
        }
        let length = if to.is_processed { FADE_IN } else { FADE_OUT };
        let fade = Crossfade::linear(self.rate.frames(length));
        let fade = match &self.fade {
            None => fade,
            // A fade that turns back, from the gain that it has reached.
            Some((from, current)) if *from == to => fade.from_gain(current.current_gains().0),
            Some(_) => return,
        };
        let from = core::mem::replace(&mut self.active, to);
        self.fade = Some((from, fade));
    }

    fn render(&mut self, block: &mut [f32]) {
        self.read(self.active, block);
        let Some((from, mut curve)) = self.fade.take() else { return };
        let mut other = core::mem::take(&mut self.other);
        let outgoing = &mut other[..block.len()];
        self.read(from, outgoing);
        curve.mix(outgoing, block, self.layout.channels());
        self.other = other;
        self.fade = (curve.remaining() > Frames::ZERO).then_some((from, curve));
    }

    /// Reads a programme; what is not there is silence.
    fn read(&self, tap: Tap, out: &mut [f32]) {
        let channels = self.layout.channels();
        let at = MediaTime(self.position.0.saturating_sub(tap.latency.0));
        let end = at + Frames::from(out.len() / channels);
        let (first, last) = match self.arrived {
            _ if !tap.is_processed => (at, end),
            Some((first, last)) => (first, last),
            None => (end, end),
        };
        let line = if tap.is_processed { &self.processed } else { &self.dry };
        line.read(at, out);
        let silent_before = first.max(self.muted_before).since(at).as_usize() * channels;
        let silent_from = last.since(at).as_usize() * channels;
        let length = out.len();
        out[..silent_before.min(length)].fill(0.0);
        out[silent_from.min(length)..].fill(0.0);
    }

    fn count(&mut self, frames: Frames, arrival: Arrival) {
        if self.is_audible() {
            self.status.processed_frames += frames.0;
        } else {
            self.status.bypassed_frames += frames.0;
        }
        self.status.is_processing = self.active.is_processed;
        self.status.latency = self.active.latency;
        self.status.needed = self.bypass.refused();
        self.status.lag = arrival.end.map(|end| self.position.since(end));
    }
}

/// The fade to the dry programme, for which processed frames are held in reserve.
const FADE_OUT: Span = Span::from_millis(10);
/// The fade to the processed programme, which has no haste.
const FADE_IN: Span = Span::from_millis(50);
/// Blocks beside those of a second.
const SPARE_BLOCKS: usize = 8;
