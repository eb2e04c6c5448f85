//! Ready chunks: audio that a source has already in the station's encoding.
//!
//! ```text
//!  source -+-> blocks -------> Input -> Station -> ... -> meters, taps, other renditions
//!          +-> ReadyChunkSink =ring=> ReadyChunkQueue --> the station's own rendition
//! ```
//!
//! A source whose server encodes as the station does (another Snapcast server, a network of
//! stations) has each piece of audio twice: as samples and as encoded bytes. While nothing in the
//! station changes its samples, the station sends these bytes to its clients, and encodes nothing.
//!
//! How a source uses it:
//!
//! 1. Create the pair with [`ready_chunks`], and give the queue to the source's input with
//!    [`Input::with_ready_chunks`](crate::input::Input::with_ready_chunks). The chunks must have
//!    the codec, the sample spec and at least the duration of the station's own chunks; a source
//!    that cannot provide such chunks pushes none.
//! 2. Push each chunk once, in the order of time, before its stamp plus its duration.
//!    [`ReadyChunk::stamp`] is on the local clock: a client plays the chunk at its stamp plus the
//!    station's `buffer`, so the source decides when clients play it.
//! 3. Send the same audio decoded, as blocks. A block counts as received at the stamp of its chunk,
//!    plus its duration, minus the buffer of the input. Then the station reads a frame as sample
//!    when its chunk is due, and can change from chunks to its encoder and back in any quantum. The
//!    input corrects what is left of a difference when it goes on air.
//!
//! The station decides for each quantum; [`PassThroughState`] says what it did and why. Chunks that
//! are over before they could be passed are dropped, so a source need not know whether it is on
//! air. A source that leaves a gap between chunks is encoded meanwhile.

use std::sync::Arc;

use aulos_core::{Frames, HEADROOM, Instant, SampleRate};
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_rt::{Pool, Pooled};

use crate::fanout::OriginTime;

/// An encoded piece of audio with its time.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "a chunk and its time")]
pub struct ReadyChunk {
    /// Local time of its first frame: clients play it at this time plus the station's buffer.
    pub stamp: Instant,
    /// What it decodes to, at the station's rate.
    pub duration: Frames,
    /// The stream header that its decoder needs, in the wire format of the station's sessions;
    /// `None` for the station's own.
    pub codec_header: Option<Arc<[u8]>>,
    /// When the source recorded it.
    pub origin: Option<OriginTime>,
    /// [`HEADROOM`] bytes, and the payload.
    bytes: Pooled<Vec<u8>>,
}

impl ReadyChunk {
    /// The encoded audio.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.bytes.get(HEADROOM..).unwrap_or_default()
    }

    pub(crate) fn into_bytes(self) -> Pooled<Vec<u8>> {
        self.bytes
    }
}

/// Whether a station passes ready chunks of the source on air.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PassThroughState {
    /// The source on air has no ready chunks.
    #[default]
    NoSource,
    /// Its chunks are passed; nothing is encoded.
    Passing,
    /// A cross-fade is in progress.
    Crossfade,
    /// Gain, equalizer or normalizer change the samples.
    Processing,
    /// An announcement plays, or a pause fades the programme.
    Announcement,
    /// The chunk that is due has not arrived.
    NoChunk,
}

/// The source's end.
#[derive(Debug)]
pub struct ReadyChunkSink {
    pool: Pool<Vec<u8>>,
    chunks: Producer<ReadyChunk>,
}

/// The station's end.
#[derive(Debug)]
pub struct ReadyChunkQueue(Consumer<ReadyChunk>);

/// Creates both ends, with so many buffers for payloads of usually up to `bytes`: for each chunk
/// that waits, and for each that the station's clients can still be sent.
#[must_use]
pub fn ready_chunks(buffers: usize, bytes: usize) -> (ReadyChunkSink, ReadyChunkQueue) {
    let (chunks, queue) = ring(MAX_WAITING);
    let pool = Pool::new(buffers, || Vec::with_capacity(HEADROOM + bytes));
    (ReadyChunkSink { pool, chunks }, ReadyChunkQueue(queue))
}

impl ReadyChunkSink {
    /// Passes a chunk to the station. False if there is no room: the station does not run, or every
    /// buffer is in use.
    ///
    /// The station never frees a header: the caller keeps a clone of it until the chunks of the
    /// next header have replaced its own in the logs of the reactors.
    ///
    /// # Real-time
    /// Allocates for a payload that is longer than all before.
    #[must_use]
    pub fn push(
        &mut self,
        (stamp, duration): (Instant, Frames),
        origin: Option<OriginTime>,
        codec_header: Option<&Arc<[u8]>>,
        payload: &[u8],
    ) -> bool {
        if self.chunks.free() == 0 {
            return false;
        }
        let Some(mut bytes) = self.pool.take() else { return false };
        bytes.clear();
        bytes.resize(HEADROOM, 0);
        bytes.extend_from_slice(payload);
        let codec_header = codec_header.cloned();
        self.chunks.push(ReadyChunk { stamp, duration, codec_header, origin, bytes }).is_ok()
    }
}

impl ReadyChunkQueue {
    pub(crate) fn front(&self) -> Option<&ReadyChunk> {
        self.0.peek()
    }

    /// Takes the first chunk, as the station does.
    pub fn pop(&mut self) -> Option<ReadyChunk> {
        self.0.pop()
    }

    /// Drops the chunks that are over at `time`.
    pub(crate) fn drop_until(&mut self, time: Instant, rate: SampleRate) {
        while self.front().is_some_and(|chunk| chunk.stamp + rate.span(chunk.duration) <= time) {
            self.pop();
        }
    }

    pub(crate) fn clear(&mut self) {
        while self.pop().is_some() {}
    }
}

/// Chunks between a source and its station: more than a second of 20 ms.
pub const MAX_WAITING: usize = 64;
