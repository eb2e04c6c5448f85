//! Encoded streams: the bytes of a feeder on their way to a decoder on the codec pool.
//!
//! ```text
//!  StreamWriter --bytes--> StreamReader (of the decoder, on the codec pool)
//!  (a feeder)   --marks-->            |--StreamState--> status displays
//! ```
//!
//! Both rings are bounded, so a sender without a clock is held back to its socket, and a burst at
//! the start gives a reserve of at most [`RAW_BYTES`]. No thread waits: each polls again later.
//! This crate knows no codec; the decoder is that of `aulos-files`.

use core::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aulos_core::{ChannelLayout, SampleRate};
use aulos_proto::packets::{FormatHint, StreamFormatError};
use aulos_rt::ring::{Consumer, Producer, ring};

/// The state of an encoded stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamState {
    /// The format, once it is known.
    pub info: Option<RadioStreamInfo>,
    /// Counters over all bodies.
    pub counts: StreamCounts,
    /// Why the current body cannot be played.
    pub error: Option<StreamError>,
    /// The number of the body, which distinguishes its state from that of the previous one.
    pub body: u64,
    /// The current body ended cleanly and has been decoded to its end.
    pub finished: bool,
}

/// The format of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RadioStreamInfo {
    /// The codec's short name, for example `mp3`.
    pub codec: &'static str,
    /// Frames per second.
    pub rate: SampleRate,
    /// The channels of one frame.
    pub layout: ChannelLayout,
}

/// Counters of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// Packets, decoded or damaged.
    pub packets: u64,
    /// Damaged packets.
    pub damaged: u64,
    /// Panics of codec libraries. Each time a new decoder went on.
    pub codec_panics: u64,
    /// How often the decoder searched for the next packet.
    pub resyncs: u64,
    /// Bytes that belong to no packet.
    pub skipped: u64,
}

impl StreamCounts {
    /// The counters of both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            damaged: self.damaged + other.damaged,
            codec_panics: self.codec_panics + other.codec_panics,
            resyncs: self.resyncs + other.resyncs,
            skipped: self.skipped + other.skipped,
        }
    }
}

/// Why a stream has ended with an error. The decoder cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamError {
    /// The format cannot be streamed.
    Refused(StreamFormatError),
    /// The container is supported, but its codec or this use of it is not; holds the name of the
    /// codec.
    Unsupported(&'static str),
    /// Only damage for too long.
    Damaged,
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => write!(f, "{why}"),
            Self::Unsupported("aac") => f.write_str(
                "unsupported AAC: only AAC LC and HE-AAC (v1, v2) of one or two channels can be \
                     decoded",
            ),
            Self::Unsupported(codec) => write!(f, "this variant of {codec} is not supported"),
            Self::Damaged => f.write_str("too much of the stream is damaged"),
        }
    }
}

impl core::error::Error for StreamError {}

/// Takes the bytes of one body after another.
#[derive(Debug)]
pub struct StreamWriter {
    bytes: Producer<u8>,
    marks: Producer<PlacedMark>,
    written: u64,
    parse_only: Arc<AtomicBool>,
}

/// Gives out the bytes of one body after another.
#[derive(Debug)]
pub struct StreamReader {
    bytes: Consumer<u8>,
    marks: Consumer<PlacedMark>,
    /// Bytes taken out of the ring.
    read: u64,
    parse_only: Arc<AtomicBool>,
}

/// The boundary of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a body has two ends")]
pub enum BodyMark {
    /// A body begins. Without an end before it, the previous one broke off.
    Begin(FormatHint),
    /// The body is complete and the next one follows without a pause, unless it had an error.
    Follow(FormatHint),
    /// The body ended cleanly.
    End,
}

/// A mark, and the number of the byte that it stands before.
#[derive(Clone, Copy, Debug)]
struct PlacedMark {
    at: u64,
    mark: BodyMark,
}

/// A stream without data yet.
#[must_use]
pub fn stream_channel() -> (StreamWriter, StreamReader) {
    let (bytes, raw) = ring(RAW_BYTES);
    let (marks, placed) = ring(MAX_MARKS);
    let parse_only = Arc::<AtomicBool>::default();
    let writer = StreamWriter { bytes, marks, written: 0, parse_only: Arc::clone(&parse_only) };
    (writer, StreamReader { bytes: raw, marks: placed, read: 0, parse_only })
}

impl StreamWriter {
    /// Begins a new body; if the previous one has not ended, it broke off. `false` if there is no
    /// room now: try again.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn begin(&mut self, hint: FormatHint) -> bool {
        self.mark(BodyMark::Begin(hint))
    }

    /// Begins a new body that follows the previous one, which is complete, without a pause. After a
    /// body with an error nothing is played until [`StreamWriter::begin`]. `false` if there is no
    /// room now: try again.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn follow(&mut self, hint: FormatHint) -> bool {
        self.mark(BodyMark::Follow(hint))
    }

    /// Ends the body cleanly: what is left is played, and the station gets the end mark. `false` if
    /// there is no room now: try again.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn end(&mut self) -> bool {
        self.mark(BodyMark::End)
    }

    /// Takes as many bytes of the body as there is room for, and returns their number.
    ///
    /// # Real-time
    /// Wait-free.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let taken = self.bytes.write(bytes);
        self.written += taken as u64;
        taken
    }

    /// How many bytes [`StreamWriter::write`] accepts now.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn room(&self) -> usize {
        self.bytes.free()
    }

    /// Whether the stream is only parsed and not decoded, while it is not needed.
    ///
    /// # Real-time
    /// Wait-free.
    pub fn set_parse_only(&self, parse_only: bool) {
        self.parse_only.store(parse_only, Ordering::Relaxed);
    }

    /// Whether the station is gone, so that nothing will be taken any more.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.bytes.is_abandoned()
    }

    fn mark(&mut self, mark: BodyMark) -> bool {
        self.marks.push(PlacedMark { at: self.written, mark }).is_ok()
    }
}

impl StreamReader {
    /// Whether packets are only to be parsed, because the station needs no audio.
    #[must_use]
    pub fn is_parse_only(&self) -> bool {
        self.parse_only.load(Ordering::Relaxed)
    }

    /// Offers bytes of the current body to `take`, which returns how many of them it has taken.
    /// Returns the same number; 0 also when there are none.
    pub fn read(&mut self, take: impl FnOnce(&[u8]) -> usize) -> usize {
        let (bytes, _) = self.bytes.as_slices();
        let taken = take(&bytes[..bytes.len().min(self.bytes_before_mark())]);
        self.skip(taken)
    }

    /// Whether the writer is gone, so that nothing more will come.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.bytes.is_abandoned()
    }

    /// Drops the bytes of the current body that have arrived.
    pub fn discard(&mut self) {
        let arrived = self.bytes.len();
        self.skip(arrived.min(self.bytes_before_mark()));
    }

    /// Takes the next mark, once every byte before it has been taken.
    pub fn next_mark(&mut self) -> Option<BodyMark> {
        if self.marks.peek()?.at != self.read {
            return None;
        }
        self.marks.pop().map(|placed| placed.mark)
    }

    /// How many bytes belong to the current body, as far as marks are known. To be asked after the
    /// bytes have been looked at: a mark is placed before the bytes behind it are written.
    fn bytes_before_mark(&self) -> usize {
        let next = self.marks.peek().map_or(u64::MAX, |next| next.at);
        usize::try_from(next.saturating_sub(self.read)).unwrap_or(usize::MAX)
    }

    fn skip(&mut self, bytes: usize) -> usize {
        let taken = self.bytes.advance(bytes);
        self.read += taken as u64;
        taken
    }
}

/// Encoded bytes in the ring: four seconds of MP3 at 128 kb/s, or half a second of FLAC.
pub const RAW_BYTES: usize = 64 * 1024;

/// Marks in the ring.
const MAX_MARKS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written behind a mark while the reader looks must not count as written before it.
    #[test]
    fn each_body_has_the_bytes_between_its_marks_however_the_threads_run() {
        const BODIES: u32 = 30_000;
        let (mut writer, mut reader) = stream_channel();
        let thread = std::thread::spawn(move || {
            for body in 0..BODIES {
                while !writer.begin(FormatHint::None) {
                    std::thread::yield_now();
                }
                let (bytes, mut written) = (body.to_le_bytes(), 0);
                while written < bytes.len() {
                    written += writer.write(&bytes[written..]);
                }
            }
            while !writer.end() {
                std::thread::yield_now();
            }
        });
        let (mut bodies, mut body) = (0, Vec::new());
        loop {
            let taken = reader.read(|bytes| {
                body.extend_from_slice(bytes);
                bytes.len()
            });
            if taken > 0 {
                continue;
            }
            match reader.next_mark() {
                None => std::thread::yield_now(),
                Some(mark) => {
                    if bodies > 0 {
                        assert_eq!(body, (bodies - 1_u32).to_le_bytes());
                    }
                    body.clear();
                    if mark == BodyMark::End {
                        break;
                    }
                    bodies += 1;
                }
            }
        }
        assert_eq!(bodies, BODIES);
        thread.join().unwrap();
    }
}
