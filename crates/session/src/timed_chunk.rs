//! When a chunk of a sender with a clock of its own goes to the station.

use aulos_core::{Frames, Instant, SampleSpec, Span};

use crate::block_sink::BlockSink;

/// A chunk on its way to the station.
pub(crate) struct DecodedChunk {
    spec: SampleSpec,
    /// When it counts as received.
    pub(crate) received: Instant,
    pub(crate) samples: Vec<f32>,
    /// How many of the samples the station has taken.
    taken: usize,
}

/// Where released audio ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReleasedEnd {
    /// On the server's clock.
    pub(crate) timestamp: Instant,
    /// When it is over, on the own clock.
    pub(crate) due: Instant,
}

/// What to do with the first chunk in the queue.
pub(crate) enum Placement {
    /// It is played, after so much silence.
    Play(Span),
    /// It is not due.
    Wait,
    Late,
    Early,
    /// What it contains was played already.
    Repeated,
}

impl DecodedChunk {
    pub(crate) const fn new() -> Self {
        let (spec, received) = (SampleSpec::DEFAULT, Instant::ZERO);
        Self { spec, received, samples: Vec::new(), taken: 0 }
    }

    /// Takes over the decoded samples, due at `due`, with silence before them.
    pub(crate) fn begin(
        &mut self,
        spec: SampleSpec,
        (now, due): (Instant, Instant),
        silence: Span,
    ) {
        let half = spec.rate.span(Frames(1)) / 2;
        let silent = spec.rate.frames(silence + half).as_usize() * spec.layout.channels();
        if silence > Span::ZERO {
            self.samples.splice(0..0, core::iter::repeat_n(0.0, silent));
        }
        // Later than a call of `handle_timeout` can be: as late as it has arrived.
        self.received = if now - due > MAX_PUNCTUAL { now } else { due };
        (self.spec, self.taken) = (spec, 0);
    }

    /// Hands the rest to the station; false if it has no room.
    pub(crate) fn hand_over(&mut self, sink: &mut BlockSink) -> bool {
        let rest = self.samples.get(self.taken..).unwrap_or_default();
        if !rest.is_empty() {
            self.taken += sink.push(self.spec, self.received, rest);
        }
        self.taken >= self.samples.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.taken >= self.samples.len()
    }

    pub(crate) fn clear(&mut self) {
        self.samples.clear();
        self.taken = 0;
    }
}

/// What has become of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkFate {
    Played,
    /// It could not be decoded.
    Damaged,
    Early,
    /// Or what it contains was played already.
    Late,
}

/// Whether the chunks of a sender are of use.
#[derive(Debug, Default)]
pub(crate) struct ChunkJudge {
    /// Since when no chunk could be played although chunks arrive.
    unusable_since: Option<Instant>,
}

impl ChunkJudge {
    /// The fate of a chunk that was placed so, and of which so many frames were decoded; and whether
    /// none has been of use for [`MAX_UNUSABLE`].
    pub(crate) fn judge(
        &mut self,
        now: Instant,
        placement: &Placement,
        frames: Frames,
    ) -> (ChunkFate, bool) {
        let fate = match placement {
            Placement::Play(_) if frames > Frames::ZERO => {
                self.unusable_since = None;
                return (ChunkFate::Played, false);
            }
            Placement::Play(_) => ChunkFate::Damaged,
            Placement::Early => ChunkFate::Early,
            Placement::Late | Placement::Repeated | Placement::Wait => ChunkFate::Late,
        };
        let since = *self.unusable_since.get_or_insert(now);
        (fate, now - since >= MAX_UNUSABLE)
    }
}

/// Where a chunk belongs that is due at `due`, which is `delay` after its timestamp.
pub(crate) fn place(
    released: Option<ReleasedEnd>,
    timestamp: Instant,
    due: Instant,
    (now, delay): (Instant, Span),
) -> Placement {
    let wait = due - now;
    if wait > delay + MAX_AHEAD {
        return Placement::Early;
    }
    if wait > Span::ZERO {
        return Placement::Wait;
    }
    // What begins, begins at its time.
    if wait < -released.map_or(MAX_PUNCTUAL, |_| MAX_LATE) {
        return Placement::Late;
    }
    let Some(end) = released else { return Placement::Play(Span::ZERO) };
    let gap = timestamp - end.timestamp;
    if gap.abs() <= MAX_JUMP {
        return Placement::Play(Span::ZERO);
    }
    // The timeline itself may have begun again, so the own clock decides.
    let missing = due - end.due;
    if missing < -MAX_JUMP {
        return Placement::Repeated;
    }
    let silence = if missing > MAX_JUMP && missing <= MAX_SILENCE { missing } else { Span::ZERO };
    Placement::Play(silence)
}

/// When chunks arrive and none can be played for so long, the connection is made anew.
pub const MAX_UNUSABLE: Span = Span::from_secs(5);

/// Interval at which chunks are looked at: a small part of one.
pub(crate) const POLL_INTERVAL: Span = Span::from_millis(5);

/// The present stream and its successor.
pub(crate) const MAX_STREAMS: usize = 2;

/// Chunks handed over per call: the longest stall that is caught up, in chunks of 20 ms.
pub(crate) const MAX_RELEASES: usize = 32;

/// A chunk may be recorded so much later than now: the clocks are not compared exactly, and some
/// servers stamp ahead.
const MAX_AHEAD: Span = Span::from_secs(2);

/// A chunk that comes later is not played: the station has already played something else for it.
const MAX_LATE: Span = Span::from_millis(300);

/// As late as the calls of `handle_timeout` of the machine make a chunk.
const MAX_PUNCTUAL: Span = Span::from_millis(25);

/// A larger difference between a timestamp and the end of the chunk before is a gap.
const MAX_JUMP: Span = Span::from_millis(2);

/// A longer gap is not filled with silence: the source has paused.
const MAX_SILENCE: Span = Span::from_millis(500);
