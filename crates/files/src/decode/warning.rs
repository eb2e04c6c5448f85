//! What a file does not do as its header says; it is decoded nevertheless.

use core::fmt;

use aulos_core::{ChannelLayout, SampleRate};

/// A remark about a file that was decoded to its end, to be given once per file.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum FileWarning {
    /// The header states another length than the file has; both in seconds.
    Length {
        /// In the header.
        stated: f64,
        /// Decoded.
        found: f64,
    },
    /// The sample rate or the channels change within the file.
    FormatChanges {
        /// How often.
        changes: u64,
        /// The format at the beginning.
        first: (SampleRate, ChannelLayout),
        /// The format behind the last change.
        last: (SampleRate, ChannelLayout),
    },
    /// Nothing is loud enough to pass the absolute gate, so the file has no loudness.
    Silent,
    /// Samples are NaN or infinite, and count as silence.
    NotFinite {
        /// How many.
        samples: u64,
    },
}

impl FileWarning {
    /// A word for programs.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Length { .. } => "length",
            Self::FormatChanges { .. } => "format_changes",
            Self::Silent => "silent",
            Self::NotFinite { .. } => "not_finite",
        }
    }
}

impl fmt::Display for FileWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { stated, found } => {
                write!(f, "the header says {stated:.3} s, the file has {found:.3} s")
            }
            Self::FormatChanges { changes, first, last } => {
                let name = |(rate, layout): &(SampleRate, ChannelLayout)| {
                    let channels = layout.channels();
                    let plural = if channels == 1 { "" } else { "s" };
                    format!("{} Hz with {channels} channel{plural}", rate.hz())
                };
                let times = if *changes == 1 { "once" } else { "several times" };
                let (first, last) = (name(first), name(last));
                write!(f, "the format changes {times}, from {first} to {last}")
            }
            Self::Silent => f.write_str("silent (nothing above -70 LUFS), so it has no loudness"),
            Self::NotFinite { samples: 1 } => f.write_str("1 sample is NaN or infinite"),
            Self::NotFinite { samples } => write!(f, "{samples} samples are NaN or infinite"),
        }
    }
}
