//! Fan-out: one chunk, many readers.
//!
//! A station pushes each chunk's handle once per reactor; each reactor keeps a bounded [`ChunkLog`]
//! that only its own thread touches, and each session is a [`ChunkCursor`] into it. A laggard finds
//! that the log has moved on; it costs no queue of its own (`docs/decisions/chunk-log.md`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use aulos_core::{Chunk, Instant, Span};
use aulos_rt::SharedPooled;
use portable_atomic::AtomicU64;

/// A chunk whose bytes live in a station's pool, on its way to the reactors.
#[derive(Clone, Debug)]
pub struct TimedChunk {
    /// The bytes that every client gets.
    pub chunk: Chunk<SharedPooled<Vec<u8>>>,
    /// The local time of its first frame, as in its wire header: never decreasing.
    pub timestamp: Instant,
    /// The stream header of a chunk that was encoded elsewhere, in the wire format of the sessions;
    /// `None` if that of the station holds for it.
    pub codec_header: Option<Arc<[u8]>>,
    /// When its audio was recorded, of a chunk that another server has encoded.
    pub origin: Option<OriginTime>,
}

/// When another server recorded the first frame of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "one moment on two clocks")]
pub struct OriginTime {
    /// On its clock, as it has written it: the same for all who receive the chunk.
    pub timestamp: Instant,
    /// The same moment on the own clock, as well as it is known.
    pub recorded: Instant,
}

impl TimedChunk {
    /// Whether a client that decodes `other` can decode this one with the same stream header.
    #[must_use]
    pub fn has_header_of(&self, other: &Self) -> bool {
        match (&self.codec_header, &other.codec_header) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
            _ => false,
        }
    }
}

/// Whether anybody listens to a rendition: shared by the reactors, which renew it, and the
/// rendition, which saves work without it.
#[derive(Clone, Debug)]
pub struct Demand(Arc<AtomicU64>);

impl Demand {
    /// None yet.
    #[must_use]
    pub fn none() -> Self {
        Self(Arc::new(AtomicU64::new(0)))
    }

    /// For a reader that does not renew it.
    #[must_use]
    pub fn always() -> Self {
        Self(Arc::new(AtomicU64::new(u64::MAX)))
    }

    /// Somebody listens, and says so again within half of the validity.
    pub fn renew(&self, now: Instant) {
        self.0.fetch_max((now + Self::VALIDITY).as_nanos(), Relaxed);
    }

    /// # Real-time
    /// Does not wait, lock, allocate or call the system.
    #[must_use]
    pub fn is_valid(&self, now: Instant) -> bool {
        now.as_nanos() < self.0.load(Relaxed)
    }

    /// Several times the interval at which reactors renew it.
    pub const VALIDITY: Span = Span::from_secs(2);
}

/// The newest chunks of one station, as one thread sees them.
#[derive(Debug)]
pub struct ChunkLog {
    chunks: VecDeque<TimedChunk>,
    /// The sequence number of `chunks[0]`.
    first: u64,
    capacity: usize,
}

impl ChunkLog {
    /// A log of at most `capacity` chunks.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self { chunks: VecDeque::with_capacity(capacity), first: 0, capacity }
    }

    /// Appends a chunk; the oldest one returns to its pool when the log is full.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn push(&mut self, chunk: TimedChunk) {
        if self.chunks.len() == self.capacity {
            self.chunks.pop_front();
            self.first += 1;
        }
        self.chunks.push_back(chunk);
    }

    /// Removes every chunk; cursors at the end stay there, and others have lagged.
    pub fn clear(&mut self) {
        self.first += self.chunks.len() as u64;
        self.chunks.clear();
    }

    /// A cursor at the oldest chunk.
    #[must_use]
    pub const fn cursor_at_start(&self) -> ChunkCursor {
        ChunkCursor(self.first)
    }

    /// A cursor at the first chunk with a timestamp at or after `from`.
    #[must_use]
    pub fn cursor_from(&self, from: Instant) -> ChunkCursor {
        let index = self.chunks.partition_point(|stamped| stamped.timestamp < from);
        ChunkCursor(self.first + index as u64)
    }

    /// A cursor at the first of the newest chunks that have at least `bytes` together, or at the
    /// oldest chunk.
    #[must_use]
    pub fn cursor_before_end(&self, bytes: usize) -> ChunkCursor {
        let (mut sum, mut index) = (0, self.chunks.len());
        while sum < bytes && index > 0 {
            index -= 1;
            sum += self.chunks.get(index).map_or(0, |stamped| stamped.chunk.payload().len());
        }
        ChunkCursor(self.first + index as u64)
    }

    /// From the timestamp of the chunk at `cursor` to that of the newest one; zero without a chunk
    /// there.
    #[must_use]
    pub fn span_from(&self, cursor: ChunkCursor) -> Span {
        let chunks = self.get(cursor, 0).ok().flatten().zip(self.chunks.back());
        chunks.map_or(Span::ZERO, |(first, newest)| newest.timestamp - first.timestamp)
    }

    /// The timestamp of the chunk at `cursor`, which need not exist yet; `duration` is that of a
    /// chunk. `None` when the log does not tell: it is empty, or the chunk has left it.
    #[must_use]
    pub fn timestamp_at(&self, cursor: ChunkCursor, duration: Span) -> Option<Instant> {
        match self.get(cursor, 0).ok()? {
            Some(stamped) => Some(stamped.timestamp),
            None => self.chunks.back().map(|newest| newest.timestamp + duration),
        }
    }

    /// A cursor at the chunk with this timestamp, within half the `duration` of a chunk, whether it
    /// exists or is the next to come. `None` if the log begins later or has not come so far.
    #[must_use]
    pub fn cursor_at(&self, timestamp: Instant, duration: Span) -> Option<ChunkCursor> {
        let (earliest, latest) = (timestamp - duration / 2, timestamp + duration / 2);
        let begins = self.chunks.front()?.timestamp <= latest;
        let has_come = self.chunks.back()?.timestamp + duration >= earliest;
        (begins && has_come).then(|| self.cursor_from(earliest))
    }

    /// A cursor after the newest chunk: it sees only later chunks.
    #[must_use]
    pub fn cursor_at_end(&self) -> ChunkCursor {
        ChunkCursor(self.first + self.chunks.len() as u64)
    }

    /// The chunk at `cursor` plus `ahead`; `None` if it does not exist yet.
    ///
    /// # Errors
    /// [`LaggedError`] when the chunk has left the log; the cursor stays where it is.
    pub fn get(
        &self,
        cursor: ChunkCursor,
        ahead: usize,
    ) -> Result<Option<&TimedChunk>, LaggedError> {
        let wanted = cursor.0 + ahead as u64;
        let Some(index) = wanted.checked_sub(self.first) else {
            return Err(LaggedError(self.first - wanted));
        };
        Ok(usize::try_from(index).ok().and_then(|index| self.chunks.get(index)))
    }
}

/// A reader's position in a [`ChunkLog`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkCursor(u64);

impl ChunkCursor {
    /// Moves past `count` chunks.
    pub const fn advance(&mut self, count: usize) {
        self.0 += count as u64;
    }

    /// Number of chunks between here and `later`; zero when `later` is not later.
    #[must_use]
    pub const fn distance(self, later: Self) -> u64 {
        later.0.saturating_sub(self.0)
    }
}

/// The number of chunks that a reader has missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaggedError(pub u64);

#[cfg(test)]
mod tests {
    use aulos_core::{Codec, Frames, MediaTime};
    use aulos_rt::Pool;

    use super::*;

    fn chunk(pool: &Pool<Vec<u8>>, number: u64) -> TimedChunk {
        let chunk = Chunk {
            pts: MediaTime(number * 960),
            duration: Frames(960),
            codec: Codec::Pcm,
            header: 0,
            bytes: pool.take().unwrap().freeze(),
        };
        TimedChunk {
            chunk,
            timestamp: Instant::from_nanos(number * 20),
            codec_header: None,
            origin: None,
        }
    }

    #[test]
    fn a_cursor_sees_every_chunk_once() {
        let pool = Pool::new(8, Vec::new);
        let mut log = ChunkLog::new(4);
        let mut cursor = log.cursor_at_end();
        for number in 0..20 {
            log.push(chunk(&pool, number));
            assert_eq!(log.get(cursor, 0).unwrap().unwrap().chunk.pts, MediaTime(number * 960));
            cursor.advance(1);
            assert!(log.get(cursor, 0).unwrap().is_none());
        }
    }

    #[test]
    fn a_lagging_cursor_gets_its_loss_count_and_the_first_playable_chunk() {
        let pool = Pool::new(8, Vec::new);
        let mut log = ChunkLog::new(4);
        let cursor = log.cursor_at_end();
        for number in 0..10 {
            log.push(chunk(&pool, number));
        }
        assert_eq!(log.get(cursor, 0).unwrap_err(), LaggedError(6));
        let playable = log.cursor_from(Instant::from_nanos(141));
        assert_eq!(log.get(playable, 0).unwrap().unwrap().chunk.pts, MediaTime(8 * 960));
        assert_eq!(cursor.distance(playable), 8);
        assert_eq!(log.span_from(playable), Span::from_nanos(20));
        assert_eq!(log.span_from(log.cursor_at_start()), Span::from_nanos(60));
        assert_eq!(log.span_from(cursor), Span::ZERO);
        assert_eq!(log.span_from(log.cursor_at_end()), Span::ZERO);
    }

    #[test]
    fn a_reader_continues_in_another_log_with_the_next_chunk() {
        let pool = Pool::new(32, Vec::new);
        let (duration, at) = (Span::from_nanos(20), Instant::from_nanos);
        let mut logs = [ChunkLog::new(8), ChunkLog::new(8)];
        for number in 0..6 {
            logs[0].push(chunk(&pool, number));
        }
        let [from, to] = &mut logs;
        assert_eq!(to.cursor_at(at(100), duration), None, "an empty log");
        // The second log begins with chunk 3.
        for number in 3..5 {
            to.push(chunk(&pool, number));
        }
        let mut cursor = from.cursor_from(at(40));
        assert_eq!(from.timestamp_at(cursor, duration), Some(at(40)));
        assert_eq!(to.cursor_at(at(40), duration), None, "chunk 2 is not there");
        cursor.advance(1);
        let next = to.cursor_at(at(60), duration).unwrap();
        assert_eq!(to.get(next, 0).unwrap().unwrap().chunk.pts, MediaTime(3 * 960));
        // At the end of the first log: chunk 6 is the next one of both only once 5 has come.
        cursor.advance(3);
        assert_eq!(from.timestamp_at(cursor, duration), Some(at(120)));
        assert_eq!(to.cursor_at(at(120), duration), None, "chunk 5 would come twice");
        to.push(chunk(&pool, 5));
        assert_eq!(to.cursor_at(at(120), duration), Some(to.cursor_at_end()));
        from.clear();
        assert_eq!(from.timestamp_at(from.cursor_at_end(), duration), None);
    }

    #[test]
    fn demand_ends_some_time_after_the_last_renewal() {
        let (demand, at) = (Demand::none(), |ms| Instant::ZERO + Span::from_millis(ms));
        assert!(!demand.is_valid(at(0)));
        demand.renew(at(1_000));
        demand.renew(at(900));
        assert!(demand.is_valid(at(2_999)) && !demand.is_valid(at(3_000)));
        let always = Demand::always();
        always.renew(at(1_000));
        assert!(always.is_valid(at(1 << 40)));
    }

    #[test]
    fn chunks_go_back_to_the_pool() {
        let pool = Pool::new(4, Vec::new);
        let mut log = ChunkLog::new(3);
        for number in 0..100 {
            log.push(chunk(&pool, number));
        }
        assert_eq!(pool.available(), 1);
        drop(log);
        assert_eq!(pool.available(), 4);
    }
}
