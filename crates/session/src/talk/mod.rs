//! A microphone that speaks to rooms while a button is held (push to talk).
//!
//! ```text
//!  frames as they are spoken -> Talk -> blocks -> an announcement, as it arrives
//! ```
//!
//! No frame is dropped: what has arrived is played to its end, however the talk ends. Playback
//! starts once the programme is ducked, and what has been said meanwhile is the jitter buffer. A
//! longer pause of the network is silence in the rooms, and then a longer buffer. To catch up by
//! dropping sound was rejected: a listener misses a word more than a tenth of a second.

mod error;
mod format;
mod limits;
#[cfg(test)]
mod tests;

use core::fmt;

use aulos_core::{Frames, Instant, Span};
use aulos_engine::decode::{Decoder as _, OpusPacketDecoder};
use aulos_engine::source::SourceItem;
use aulos_rt::ring::Consumer;
use aulos_rt::{LatestPublisher, LatestReader};

pub use error::TalkError;
pub use format::{MAX_RATE, MIN_RATE, TalkFormat};
pub use limits::{MAX_AHEAD, MAX_FRAME_BYTES, MAX_HELD, MAX_LATE, MAX_TALK};

use crate::block_sink::BlockSink;

/// A talk from its first frame until its sound has been handed over.
pub struct Talk {
    format: TalkFormat,
    opus: Option<OpusPacketDecoder>,
    sink: TalkSink,
    /// The samples of one frame.
    decoded: Vec<f32>,
    /// Samples for which the ring has no room, in whole frames.
    held: Vec<f32>,
    state: TalkState,
    /// When the first sample was spoken, as far as that is known; until then, when the talk began.
    begun: Instant,
    /// The length of what has arrived.
    arrived: Span,
    last_frame: Option<Instant>,
    damaged: u32,
    problem: Option<TalkError>,
}

/// What a talk waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TalkState {
    /// The next frame.
    Speaking,
    /// Room in the ring for the rest, which is offered at this time.
    Draining(Instant),
    /// Nothing: all has been handed over, or the announcement has ended.
    Over,
}

/// The output of a talk.
#[derive(Debug)]
pub struct TalkSink {
    blocks: BlockSink,
    problem: LatestPublisher<Option<TalkError>>,
}

/// What an announcement plays of a talk.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "the ends of a source")]
pub struct TalkSound {
    /// The blocks, paced on demand.
    pub items: Consumer<SourceItem>,
    /// Why it has ended early, if it has.
    pub problem: LatestReader<Option<TalkError>>,
}

impl TalkSink {
    /// A sink, and its other end.
    #[must_use]
    pub fn new() -> (Self, TalkSound) {
        let (blocks, items) = BlockSink::new();
        let (publisher, problem) = aulos_rt::latest(None);
        (Self { blocks, problem: publisher }, TalkSound { items, problem })
    }
}

impl Talk {
    /// A talk in this format, whose first frame is awaited from now on.
    #[must_use]
    pub fn new(sink: TalkSink, format: TalkFormat, now: Instant) -> Self {
        let opus = match format {
            TalkFormat::Opus { channels } => {
                OpusPacketDecoder::new(format.rate(), usize::from(channels))
            }
            TalkFormat::Pcm { .. } => None,
        };
        Self {
            format,
            opus,
            sink,
            decoded: Vec::new(),
            held: Vec::new(),
            state: TalkState::Speaking,
            begun: now,
            arrived: Span::ZERO,
            last_frame: None,
            damaged: 0,
            problem: None,
        }
    }

    /// Takes a frame: PCM or one packet of Opus. After the end it is ignored.
    pub fn handle_frame(&mut self, now: Instant, frame: &[u8]) {
        if self.state != TalkState::Speaking {
            return;
        }
        self.decoded.clear();
        let length = match self.decode(frame) {
            Ok(length) => length,
            Err(problem) => return self.end(now, Some(problem)),
        };
        if self.last_frame.is_none() {
            self.begun = now;
        }
        self.last_frame = Some(now);
        // Frames without sound must not come as fast as a network can carry them.
        self.arrived += length.max(MIN_FRAME);
        self.hand_over(now);
        let ahead = self.begun + self.arrived - now - length;
        if ahead > MAX_AHEAD {
            self.end(now, Some(TalkError::TooFast));
        } else if self.arrived > MAX_TALK {
            self.end(now, Some(TalkError::TooLong));
        } else {
            self.handle_timeout(now);
        }
    }

    /// Ends the talk: the button is released, or there is this reason to end it.
    pub fn end(&mut self, now: Instant, problem: Option<TalkError>) {
        if self.state != TalkState::Speaking {
            return;
        }
        if problem.is_some() {
            self.problem = problem;
            self.sink.problem.publish(problem);
        }
        self.state = TalkState::Draining(now);
        self.handle_timeout(now);
    }

    /// Ends a talk that is late, and offers what is held. To be called at
    /// [`Talk::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.sink.blocks.is_abandoned() {
            self.state = TalkState::Over;
        }
        match self.state {
            TalkState::Speaking if now >= self.latest_frame() => {
                let is_silent = self.last_frame.is_none_or(|last| now.since(last) >= MAX_LATE);
                let problem = if is_silent { TalkError::Stalled } else { TalkError::Late };
                self.end(now, Some(problem));
            }
            TalkState::Draining(at) if now >= at => {
                self.hand_over(now);
                self.state = if self.held.is_empty() {
                    self.sink.blocks.mark_ended();
                    TalkState::Over
                } else {
                    TalkState::Draining(now + DRAIN_INTERVAL)
                };
            }
            _ => {}
        }
    }

    /// When to call [`Talk::handle_timeout`]; `None` once the talk is over.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            TalkState::Speaking => Some(self.latest_frame()),
            TalkState::Draining(at) => Some(at),
            TalkState::Over => None,
        }
    }

    /// Whether frames are still taken.
    #[must_use]
    pub fn is_speaking(&self) -> bool {
        self.state == TalkState::Speaking
    }

    /// Why it has ended early, if it has.
    #[must_use]
    pub const fn problem(&self) -> Option<TalkError> {
        self.problem
    }

    /// Whether the announcement has ended before the talk.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.sink.blocks.is_abandoned()
    }

    /// When the next frame is too late.
    fn latest_frame(&self) -> Instant {
        self.begun + self.arrived + MAX_LATE
    }

    /// Decodes a frame; returns its length.
    fn decode(&mut self, frame: &[u8]) -> Result<Span, TalkError> {
        if frame.len() > MAX_FRAME_BYTES {
            return Err(TalkError::FrameTooLong);
        }
        let channels = self.format.channels();
        match &mut self.opus {
            None => {
                let size = 2 * channels;
                if !frame.len().is_multiple_of(size) {
                    return Err(TalkError::PartialFrame { bytes: frame.len(), size });
                }
                let samples =
                    frame.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]]));
                self.decoded.extend(samples.map(|sample| f32::from(sample) / FULL_SCALE));
            }
            Some(opus) => {
                self.decoded.resize(MAX_OPUS_FRAMES * channels, 0.0);
                let frames = opus.decode(frame, &mut self.decoded).unwrap_or(0);
                self.decoded.truncate(frames * channels);
                if frames == 0 {
                    // The connection loses nothing, so the sender does not send Opus.
                    self.damaged += 1;
                    if self.damaged > MAX_DAMAGED {
                        return Err(TalkError::Damaged { packets: self.damaged });
                    }
                }
            }
        }
        Ok(self.format.rate().span(Frames::from(self.decoded.len() / channels)))
    }

    /// Hands over what there is room for, the older samples first.
    fn hand_over(&mut self, now: Instant) {
        let (spec, blocks) = (self.format.spec(), &mut self.sink.blocks);
        let taken = blocks.push(spec, now, &self.held);
        self.held.drain(..taken);
        let fresh = if self.held.is_empty() { blocks.push(spec, now, &self.decoded) } else { 0 };
        self.held.extend_from_slice(self.decoded.get(fresh..).unwrap_or_default());
        self.decoded.clear();
        let most = self.format.rate().frames(MAX_HELD).as_usize() * self.format.channels();
        if self.held.len() > most {
            self.end(now, Some(TalkError::Busy));
        }
    }
}

impl fmt::Debug for Talk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { format, state, arrived, problem, .. } = self;
        let mut talk = f.debug_struct("Talk");
        talk.field("format", format).field("state", state).field("arrived", arrived);
        talk.field("problem", problem).finish_non_exhaustive()
    }
}

/// Packets of a talk that are no Opus until it is ended.
const MAX_DAMAGED: u32 = 4;

/// What the shortest frame counts as: the shortest one of Opus.
const MIN_FRAME: Span = Span::from_micros(2_500);

/// The interval at which a full ring is offered the rest.
const DRAIN_INTERVAL: Span = Span::from_millis(20);

/// 120 ms at 48 kHz, the longest packet of Opus.
const MAX_OPUS_FRAMES: usize = 5_760;

const FULL_SCALE: f32 = 32_768.0;
