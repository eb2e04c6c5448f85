//! Files as sound.
//!
//! A [`FileDecoder`] gives a file's own frames as blocks, in the file's rate and layout; the input
//! behind it adapts them. A [`FileFeed`] runs one on the codec pool and fills a ring with pooled
//! blocks for a station.
//!
//! ```text
//!  file -> container -> codec -> trim -> blocks -> ring
//!          (symphonia; Opus by opus-rs; raw PCM and what of WAVE it refuses by ourselves)
//! ```
//!
//! A stream that never ends is not read but fed: a [`StreamDecoder`] takes bytes as they come and
//! gives what is whole, so that nobody waits for a network.
//!
//! Containers and codecs are a library's work. The alternative, a child process with ffmpeg, reads
//! more formats but adds a dependency, a process per file and a pipe whose end is not sample exact.
//! What is ours: frames that only the codec needed are cut off, a loop has neither gap nor lost
//! frame, damage is skipped and counted, and whatever the file says, work and memory are bounded.

mod codec;
mod edit_list;
mod error;
mod feed;
mod file;
mod media;
mod opus;
mod raw;
mod stream;
mod wave;

pub use error::{DecodeError, OUTSIDE_ROOTS, OpenError};
pub use feed::{FileFeed, FileFeedStatus};
pub use file::{FileDecodeOptions, FileDecodeStatus, FileDecoder, FileInfo, RateAndLayout};
pub use stream::{StreamCounts, StreamDecodeStatus, StreamDecoder, StreamError, StreamInfo};
pub(crate) use wave::{HeaderParse, read_header};
pub use wave::{SampleRun, WaveFile};

#[cfg(test)]
mod tests;
