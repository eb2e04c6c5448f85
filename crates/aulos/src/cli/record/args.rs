//! The arguments of `aulos record`.

use std::path::PathBuf;

use aulos_config::units;
use aulos_core::Span;
use aulos_files::record::format::{FILE_FORMAT_NAMES, FILE_FORMATS, FileFormatInfo};
use clap::Args;

#[derive(Debug, Args)]
pub(in crate::cli) struct RecordArgs {
    /// Path of a file or FIFO, or a source URI as in the configuration; `-` reads raw samples
    /// (48000 Hz, 16 bit, stereo) from standard input
    #[arg(value_name = "SOURCE")]
    pub(super) source: String,
    #[arg(value_name = "OUT", help = out_help(), long_help = out_long_help())]
    pub(super) out: PathBuf,
    /// File format [default: that of the extension of OUT]
    #[arg(long, value_name = FILE_FORMAT_NAMES, value_parser = FILE_FORMATS.each_ref().map(|row| row.name))]
    pub(super) format: Option<String>,
    /// Bits per sample: 16, 24 or, in wav only, 32 (floating point) [default: 16]
    #[arg(long, value_name = "16|24|32", value_parser = clap::value_parser!(u32).range(16..=32))]
    pub(super) bits: Option<u32>,
    /// Bit rate: 6 to 510 kbit/s for opus [default: 160], 32 to 320 for mp3 [default: 192],
    /// 32 to 510 for m4a [default: 128]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(6..=510))]
    pub(super) kbps: Option<u32>,
    /// Maximum duration of a file: 90s, 30min, 1h; at least 1 s [default: none]
    #[arg(long, value_name = "TIME", value_parser = units::parse_span)]
    pub(super) rotate: Option<Span>,
    /// Align --rotate to the clock: 1h starts a new file at every full hour
    #[arg(long, requires = "rotate")]
    pub(super) align: bool,
    /// Maximum size of a file: 500MB, 2GiB; at least 64 KiB [default: none]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    pub(super) rotate_size: Option<u64>,
    /// Use the local time zone in file names and for --align, instead of UTC
    #[arg(long)]
    pub(super) local_time: bool,
    /// Stop after this duration of audio: 90s, 30min, 1h [default: none]
    #[arg(long = "for", value_name = "TIME", value_parser = units::parse_span)]
    pub(super) length: Option<Span>,
    /// Start on Enter or SIGUSR1, and include this much audio from before it: up to 10min
    #[arg(long, value_name = "TIME", value_parser = units::parse_span)]
    pub(super) pre_roll: Option<Span>,
    /// Fill interruptions of the source with silence, so that the file stays in time
    ///
    /// Without it the sound before and after an interruption is joined. Both are reported, and
    /// listed in the JSON file of --sidecar.
    #[arg(long)]
    pub(super) fill: bool,
    /// Write a JSON file beside each file: start time, loudness, SHA-256
    #[arg(long)]
    pub(super) sidecar: bool,
    /// Print one JSON object per complete file instead of its path
    #[arg(long)]
    pub(super) json: bool,
    /// Read a file as fast as possible instead of in real time
    #[arg(long)]
    pub(super) no_pace: bool,
}

fn out_help() -> String {
    let endings = FileFormatInfo::alternatives(|row| format!(".{}", row.name));
    format!("Output file: {endings}; may contain strftime codes, as in %Y-%m-%d")
}

fn out_long_help() -> String {
    let more = "An existing file is never overwritten. An incomplete file has the suffix `.part`.";
    format!("{}\n\n{more}", out_help())
}

/// The long description of `aulos record`.
pub(in crate::cli) fn about() -> String {
    let formats = FileFormatInfo::alternatives(|row| row.title.to_owned());
    format!(
        "Record a source into files\n\nWrites {formats}, and starts a new file after a duration, at \
         a size or at full hours, without a gap between files. After a crash at most the last half \
         second is missing; after a power failure, at most the last six seconds."
    )
}
