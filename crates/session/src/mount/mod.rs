//! Mounts: a programme whose encoded frames go from its sources to its listeners as they came.
//!
//! ```text
//!  frames of the source on air, or of an encoder -> MountStream -> chunks for every listener
//! ```
//!
//! A [`MountStream`] makes one stream of the frames of one source after the other, which decodes
//! without an error at every change:
//!
//! * MP3: a frame whose main data would lie in the frames of the source before is made silent. Its
//!   own main data stay, so that after a few frames every frame decodes.
//! * AAC: an ADTS frame needs no other one.
//! * Ogg: each source is a new link of a chained stream (RFC 3533, section 4).
//!
//! Decoding and encoding the sources anew was the alternative, as it is for a station: it costs an
//! encoder for each mount, and a generation of quality.

mod adts;
mod encoded;
mod format;
mod mp3;
mod ogg;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use aulos_core::Frames;
use aulos_proto::titles::TrackMetadata;

pub use encoded::{encoded_frames, encoder_format};
pub use format::{FrameFormat, MountCodec, MountFormat, PassObstacle, UnknownMountCodec};
pub use mp3::JoinSplice;
use mp3::Mp3Splice;
use ogg::OggLinks;

/// Makes one stream of the frames of changing sources.
///
/// Call [`MountStream::begin`] for every source that goes on air, [`MountStream::push`] for its
/// frames, and then [`MountStream::poll_output`] until it gives `None`.
#[derive(Debug)]
pub struct MountStream {
    format: MountFormat,
    writer: Writer,
    /// The bytes of the chunks that have not been polled, and where each ends.
    bytes: Vec<u8>,
    chunks: VecDeque<OpenChunk>,
    /// The bytes that the last polled chunk left behind.
    polled: usize,
    /// The header of the last polled chunk.
    last_header: Option<Arc<[u8]>>,
    stats: MountStats,
}

/// Whole frames for every listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MountChunk<'a> {
    /// What a listener needs before it: the header pages of its link of an Ogg stream. A listener
    /// gets them at the start, and wherever they differ from those of the chunk before.
    pub header: Option<&'a Arc<[u8]>>,
    /// What the frames decode to, at the rate of the mount.
    pub duration: Frames,
    /// The frames.
    pub bytes: &'a [u8],
}

/// Counters of a [`MountStream`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MountStats {
    /// Frames that were passed.
    pub frames: u64,
    /// Frames that were made silent, because their main data were not there.
    pub silenced: u64,
    /// How often a source, or a part of one, has begun.
    pub splices: u64,
}

#[derive(Debug)]
struct OpenChunk {
    header: Option<Arc<[u8]>>,
    duration: Frames,
    end: usize,
}

#[derive(Debug)]
enum Writer {
    Mp3(Mp3Splice),
    /// The header of a frame, but for its length.
    Adts([u8; 2]),
    Ogg(OggLinks),
}

impl MountStream {
    /// A stream of this format. `serial` is the serial number of the first link of an Ogg stream.
    #[must_use]
    pub fn new(format: MountFormat, serial: u32) -> Self {
        let writer = match format.codec {
            MountCodec::Mp3 => Writer::Mp3(Mp3Splice::default()),
            MountCodec::Aac => Writer::Adts([0; 2]),
            MountCodec::Opus | MountCodec::Vorbis | MountCodec::Flac => {
                Writer::Ogg(OggLinks::new(serial))
            }
        };
        let (bytes, chunks) = (Vec::new(), VecDeque::new());
        Self {
            format,
            writer,
            bytes,
            chunks,
            polled: 0,
            last_header: None,
            stats: MountStats::default(),
        }
    }

    /// What it sends.
    #[must_use]
    pub const fn format(&self) -> MountFormat {
        self.format
    }

    /// The next frames are those of another source, of another part of the same one, or of an
    /// encoder. `title` goes into the header of an Ogg stream.
    ///
    /// # Errors
    /// [`PassObstacle`] if frames of this format cannot be passed; nothing has changed then.
    pub fn begin(
        &mut self,
        format: &FrameFormat,
        title: Option<&TrackMetadata>,
    ) -> Result<(), PassObstacle> {
        self.format.accepts(format)?;
        match &mut self.writer {
            Writer::Mp3(splice) => splice.restart(),
            Writer::Adts(config) => *config = adts::config(&format.packets),
            Writer::Ogg(links) => {
                let (before, header) = (self.bytes.len(), links.header());
                links.end(&mut self.bytes);
                if self.bytes.len() > before {
                    Self::add(&mut self.chunks, header, Frames::ZERO, self.bytes.len());
                }
                links.begin(&format.packets, title);
            }
        }
        self.stats.splices += 1;
        Ok(())
    }

    /// Frames of the source are missing before the next one.
    pub const fn skip(&mut self) {
        if let Writer::Mp3(splice) = &mut self.writer {
            splice.restart();
        }
    }

    /// Adds a frame of the source, which decodes to `duration`: a whole MPEG frame, an AAC frame
    /// without its ADTS header, or a packet of an Ogg stream.
    pub fn push(&mut self, frame: &[u8], duration: Frames) {
        let start = self.bytes.len();
        let header = match &mut self.writer {
            Writer::Mp3(splice) => {
                self.stats.silenced += u64::from(splice.write(frame, &mut self.bytes));
                None
            }
            Writer::Adts(config) => {
                adts::write(*config, frame, &mut self.bytes);
                None
            }
            Writer::Ogg(links) => {
                let Some(header) = links.header() else { return };
                links.write(frame, duration, &mut self.bytes);
                Some(header)
            }
        };
        self.stats.frames += 1;
        if self.bytes.len() > start || duration > Frames::ZERO {
            Self::add(&mut self.chunks, header, duration, self.bytes.len());
        }
    }

    /// Ends a batch of frames: a page of an Ogg stream ends here.
    pub fn end_batch(&mut self) {
        let Writer::Ogg(links) = &mut self.writer else { return };
        let before = self.bytes.len();
        links.page(&mut self.bytes);
        if self.bytes.len() > before {
            Self::add(&mut self.chunks, links.header(), Frames::ZERO, self.bytes.len());
        }
    }

    /// The next chunk; each frame is in one.
    pub fn poll_output(&mut self) -> Option<MountChunk<'_>> {
        // A chunk without bytes is of a page that has not ended.
        let is_whole = |end: usize| end > self.polled;
        let Some(chunk) = self.chunks.front().filter(|chunk| is_whole(chunk.end)) else {
            self.bytes.drain(..self.polled);
            self.chunks.iter_mut().for_each(|chunk| chunk.end -= self.polled);
            self.polled = 0;
            return None;
        };
        let start = core::mem::replace(&mut self.polled, chunk.end);
        let OpenChunk { header, duration, end } = self.chunks.pop_front()?;
        self.last_header = header;
        Some(MountChunk {
            header: self.last_header.as_ref(),
            duration,
            bytes: self.bytes.get(start..end).unwrap_or_default(),
        })
    }

    /// The counters.
    #[must_use]
    pub const fn stats(&self) -> MountStats {
        self.stats
    }

    /// Adds what has been written to the last chunk, or to a new one if its header is another.
    fn add(
        chunks: &mut VecDeque<OpenChunk>,
        header: Option<Arc<[u8]>>,
        duration: Frames,
        end: usize,
    ) {
        let is_like = |chunk: &&mut OpenChunk| match (&chunk.header, &header) {
            (Some(own), Some(new)) => Arc::ptr_eq(own, new),
            (own, new) => own.is_none() == new.is_none(),
        };
        match chunks.back_mut().filter(is_like) {
            Some(chunk) => {
                chunk.duration += duration;
                chunk.end = end;
            }
            None => chunks.push_back(OpenChunk { header, duration, end }),
        }
    }
}
