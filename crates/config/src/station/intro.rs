//! The intro of a mount: the frames of a file that each listener gets before the stream.
//!
//! The file is split here, with the configuration, so that `aulos check` names a file that the
//! mount cannot send, and a reload takes a changed file over.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use aulos_core::{Block, ChannelLayout, Frames, MediaTime, SampleRate};
use aulos_engine::source::BLOCK_SAMPLES;
use aulos_files::decode::{StreamDecodeStatus, StreamDecoder};
use aulos_io::feed::{PassedFrame, StreamError, frame_channel};
use aulos_proto::packets::FormatHint;
use aulos_session::mount::{MountFormat, MountStream, PassObstacle};

/// What each listener of a mount gets first. Clones share the bytes.
#[derive(Clone, PartialEq)]
pub struct Intro(Arc<[IntroChunk]>);

/// Whole frames of an intro.
#[derive(Clone, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "what a reactor sends")]
pub struct IntroChunk {
    /// The header pages of an Ogg stream, which go before it.
    pub header: Option<Arc<[u8]>>,
    /// What it decodes to.
    pub duration: Frames,
    /// The frames.
    pub bytes: Arc<[u8]>,
}

/// Why a file cannot be an intro.
#[derive(Debug)]
pub(super) enum IntroError {
    Io(io::Error),
    NoFile,
    TooLarge,
    Damaged(StreamError),
    Obstacle(PassObstacle),
    NoSound,
}

impl Intro {
    /// Reads and splits a file.
    ///
    /// # Errors
    /// [`IntroError`].
    pub(super) fn load(path: &Path, format: MountFormat) -> Result<Self, IntroError> {
        // Opening a FIFO would wait for its writer.
        if !path.metadata().map_err(IntroError::Io)?.is_file() {
            return Err(IntroError::NoFile);
        }
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(IntroError::Io)?;
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(IntroError::Io)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(IntroError::TooLarge);
        }
        split(&bytes, format).map(|chunks| Self(chunks.into()))
    }

    /// Its parts, in order.
    #[must_use]
    pub fn chunks(&self) -> &[IntroChunk] {
        &self.0
    }
}

/// The frames of a file as the mount sends them. The decoder says what each decodes to, as for a
/// live source.
fn split(bytes: &[u8], format: MountFormat) -> Result<Vec<IntroChunk>, IntroError> {
    let (writer, mut frames) = frame_channel();
    let mut decoder =
        StreamDecoder::new(FormatHint::None).with_frames(Some(writer), MediaTime::ZERO);
    let (rate, layout) = (SampleRate::HZ_48000, ChannelLayout::STEREO);
    let mut block = Block::with_capacity(rate, layout, BLOCK_SAMPLES);
    let mut stream = MountStream::new(format, SERIAL);
    let (mut rest, mut chunks, mut known) = (bytes, Vec::new(), None);
    loop {
        let status = decoder.next(&mut block).map_err(IntroError::Damaged)?;
        while let Some(PassedFrame { begins, is_after_gap, duration, bytes }) = frames.pop() {
            if let Some(begins) = begins {
                stream.begin(&begins.0, begins.1.as_ref()).map_err(IntroError::Obstacle)?;
                known = Some(begins.0);
            } else if is_after_gap {
                stream.skip();
            }
            stream.push(bytes, duration);
        }
        match status {
            StreamDecodeStatus::Block => continue,
            StreamDecodeStatus::NeedsInput if rest.is_empty() => decoder.finish(),
            StreamDecodeStatus::NeedsInput => {
                let count = decoder.push(rest);
                rest = rest.get(count..).unwrap_or_default();
            }
            StreamDecodeStatus::End => break,
        }
        stream.end_batch();
        take_chunks(&mut stream, &mut chunks);
    }
    stream.end_batch();
    if let Some(format) = known {
        // The last link of an Ogg stream ends.
        stream.begin(&format, None).map_err(IntroError::Obstacle)?;
    }
    take_chunks(&mut stream, &mut chunks);
    if chunks.is_empty() { Err(IntroError::NoSound) } else { Ok(chunks) }
}

fn take_chunks(stream: &mut MountStream, chunks: &mut Vec<IntroChunk>) {
    while let Some(chunk) = stream.poll_output() {
        let (header, bytes) = (chunk.header.cloned(), chunk.bytes.into());
        chunks.push(IntroChunk { header, duration: chunk.duration, bytes });
    }
}

impl fmt::Debug for Intro {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.chunks()).finish()
    }
}

impl fmt::Debug for IntroChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} frames in {} bytes", self.duration.0, self.bytes.len())
    }
}

impl fmt::Display for IntroError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::NoFile => f.write_str("it is not a file"),
            Self::TooLarge => write!(f, "it is larger than {} MiB", MAX_BYTES >> 20),
            Self::Damaged(error) => write!(f, "{error}"),
            Self::Obstacle(obstacle) => write!(f, "{obstacle}"),
            Self::NoSound => f.write_str("it has no sound"),
        }
    }
}

/// Four minutes at 128 kbit/s; it is kept in memory.
const MAX_BYTES: u64 = 4 << 20;

/// The serial number of the first link of an Ogg intro. Those of the stream are random, and a link
/// ends before the next one begins.
const SERIAL: u32 = 0x6175_6C69;
