//! RIFF/WAVE: a header in front of an endless stream, the header of a file that grows, and a
//! checked parser.
//!
//! This module has only the container; `aulos-dsp` converts samples, `aulos-files` reads files. A
//! general RIFF tree was rejected: two chunks matter, the rest is skipped.
//!
//! Sources: Multimedia Programming Interface and Data Specifications 1.0 (RIFF, 1991), Microsoft
//! `WAVEFORMATEXTENSIBLE`, EBU Tech 3306 (RF64), EBU Tech 3285 (Broadcast Wave), iXML 2.10.

mod bext;
mod markers;
mod parser;
mod size_fields;
mod stream_header;

pub use bext::{BroadcastExtension, BroadcastLoudness};
pub use markers::marker_chunks;
pub use parser::{MAX_PREAMBLE, ParseOutcome, WavError, WavSampleFormat, WaveInfo, parse};
pub use size_fields::{FileTooLong, SizeFields, WavFileHeader};
pub use stream_header::{DataLength, HEADER_LEN, UnsupportedWavFormat, header};
pub(crate) use stream_header::{RIFF_SIZE_WITHOUT_DATA, RawHeader, TAG_FLOAT, TAG_PCM};
use stream_header::{SUB_FORMAT_TAIL, TAG_EXTENSIBLE};
