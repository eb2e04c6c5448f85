//! RIFF/WAVE: a header to write in front of endless sound, the head of a file that grows, and a
//! checked reader.
//!
//! Only what frames the samples is here; converting them is `aulos-dsp`'s, reading files is
//! `aulos-files`'s. A general RIFF tree was rejected: two chunks matter, the rest is skipped.
//!
//! Sources: Multimedia Programming Interface and Data Specifications 1.0 (RIFF, 1991), Microsoft
//! `WAVEFORMATEXTENSIBLE`, EBU Tech 3306 (RF64), EBU Tech 3285 (Broadcast Wave),
//! iXML 2.10.

mod broadcast;
mod file;
mod markers;
mod read;
mod write;

pub use broadcast::{Broadcast, BroadcastLoudness};
pub use file::{Form, Sizes, TooLong};
pub use markers::marker_chunks;
pub use read::{MAX_PREAMBLE, Parsed, Samples, WavError, Wave, parse};
pub use write::{Length, NotInWave, header};
pub(crate) use write::{RIFF_WITHOUT_DATA, RawHeader, TAG_FLOAT, TAG_PCM};
use write::{SUB_FORMAT_TAIL, TAG_EXTENSIBLE};

/// Bytes of the header that [`header`] makes.
pub const HEADER_LEN: usize = 44;
