//! Decodes audio files and streams.
//!
//! A [`FileDecoder`] returns the frames of a file as blocks, in the rate and layout of the file;
//! the input of the station converts them. A [`FileFeed`] runs one on the codec pool and fills a
//! ring with pooled blocks for a station.
//!
//! ```text
//!  file -> container -> codec -> trim -> blocks -> ring
//!          (symphonia; syom for AAC, libopus for Opus; own code for raw PCM and WAVE variants)
//! ```
//!
//! A [`StreamDecoder`] decodes an endless stream: bytes are pushed into it as they arrive, so no
//! thread waits for a network.
//!
//! A library and not a child process reads containers and codecs
//! (`docs/decisions/audio-decoders.md`). Own code trims the frames that only prime the codec, loops
//! without a gap or a lost frame, skips and counts damage, and bounds work and memory for any
//! input.

mod aac;
mod codec;
mod discard_padding;
mod edit_list;
mod error;
mod feed;
mod file;
mod library;
mod media;
mod mpeg;
mod opus;
mod rate_converter;
mod raw;
mod recognize;
mod sizes;
mod stream;
mod uniform;
mod warning;
mod wave;

pub use error::{FileDecodeError, OpenError};
pub use feed::{FileFeed, FileFeedStatus};
pub use file::{FileDecodeOptions, FileDecodeStatus, FileDecoder, FileInfo, RateAndLayout};
pub(crate) use rate_converter::{RateConverter, converted_frames};
pub(crate) use sizes::has_wrong_sizes;
pub use stream::{StreamDecodeStatus, StreamDecoder};
pub(crate) use uniform::CONVERTIBLE_HZ;
pub use uniform::UniformDecoder;
pub use warning::FileWarning;
pub(crate) use wave::{HeaderParse, read_header};
pub use wave::{SampleRun, WaveFile};

#[cfg(test)]
mod tests;
