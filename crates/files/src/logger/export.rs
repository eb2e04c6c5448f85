//! Exports of a range of time, to the frame.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use aulos_core::{Block, ChannelLayout, Frames, SampleRate, Span};
use aulos_engine::recorder::UnixTime;
use aulos_engine::source::BLOCK_SAMPLES;
use aulos_io::SourcePath;
use aulos_proto::Patch;
use serde_json::json;

use super::catalog::LoggerCatalog;
use super::coverage::{ExportPart, FoundRange};
use super::holds::append_line;
use super::index::path_of;
use crate::decode::{FileDecodeOptions, FileDecodeStatus, FileDecoder};
use crate::record::format::{FileEncoder, FileFormat, FileMetadata, make_file_encoder};
use crate::record::wall_clock;

/// Where the bytes of an export go.
pub trait ExportOutput {
    /// Appends bytes.
    ///
    /// # Errors
    /// Errors of the destination, which end the export.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Overwrites bytes of the header. A stream ignores it: the header that was appended has the
    /// length already.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    fn patch(&mut self, patch: &Patch) -> io::Result<()>;
}

impl ExportOutput for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn patch(&mut self, patch: &Patch) -> io::Result<()> {
        self.write_all_at(patch.bytes(), patch.at())
    }
}

/// What was exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportSummary {
    /// Frames of the output.
    pub frames: Frames,
    /// Of these, silence for times without a file.
    pub silent: Frames,
    /// Of these, silence for frames that a damaged file does not have any more.
    pub damaged: Frames,
}

/// Exports `from..to`. Times without a file are silence of the same length, so that each frame of
/// the output is at its time. A format of the same bits per sample as the files is exact. Blocks.
/// A file of another format than FLAC is decoded from its start.
///
/// # Errors
/// [`ExportError`].
pub fn export_log(
    catalog: &LoggerCatalog,
    (from, to): (UnixTime, UnixTime),
    format: FileFormat,
    output: &mut impl ExportOutput,
) -> Result<ExportSummary, ExportError> {
    if !is_exportable((from, to)) {
        return Err(ExportError::Range);
    }
    let parts = catalog.export_parts(from, to);
    let first = parts.iter().find_map(|part| match part {
        ExportPart::Sound(found) => Some(found),
        ExportPart::Silence(_) => None,
    });
    let first = open(catalog, first.ok_or(ExportError::NothingFound)?)?;
    let shape = (first.info().rate, first.info().layout);
    let since = Duration::from_nanos(u64::try_from(from.as_nanos()).unwrap_or(0));
    let metadata = FileMetadata::new(shape.0, shape.1, catalog.station(), UNIX_EPOCH + since);
    let (mut header, mut patches) = (Vec::new(), Vec::new());
    let mut encoder = make_file_encoder(format, &metadata, &mut header)
        .map_err(|why| ExportError::Format(why.to_string()))?;
    encoder.announce_length(length_of(&parts), &mut patches);
    for patch in patches.drain(..) {
        let start = usize::try_from(patch.at()).unwrap_or(usize::MAX);
        let field = header.get_mut(start..start.saturating_add(patch.bytes().len()));
        field.into_iter().for_each(|field| field.copy_from_slice(patch.bytes()));
    }
    let summary = ExportSummary::default();
    let mut export = Export { encoder, shape, bytes: header, patches, output, summary };
    export.pass_on()?;
    for part in &parts {
        match part {
            ExportPart::Silence(frames) => {
                export.summary.silent += *frames;
                export.silence(*frames)?;
            }
            ExportPart::Sound(found) => export.sound(catalog, found)?,
        }
    }
    export.finish()
}

fn length_of(parts: &[ExportPart]) -> Frames {
    let frames = parts.iter().map(|part| match part {
        ExportPart::Sound(found) => found.frames.0,
        ExportPart::Silence(frames) => frames.0,
    });
    Frames(frames.sum())
}

/// Bits per sample with which an export of `from..to` is exact: 16, 24 or 32. Of files with a loss
/// it is 16. Blocks.
///
/// # Errors
/// [`ExportError`] when there is no file, or the first one cannot be read.
pub fn exact_bits(
    catalog: &LoggerCatalog,
    (from, to): (UnixTime, UnixTime),
) -> Result<u32, ExportError> {
    let found = catalog.find(from, to).into_iter().next().ok_or(ExportError::NothingFound)?;
    Ok(open(catalog, &found)?.info().bits.unwrap_or(16))
}

/// Notes who exported which range, beside the index. Blocks.
///
/// # Errors
/// Errors of the file system.
pub fn note_export(
    catalog: &LoggerCatalog,
    who: &str,
    (from, to): (UnixTime, UnixTime),
    output: &str,
) -> io::Result<()> {
    let path = path_of(catalog.folder(), catalog.station(), EXPORTS);
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let note = json!({
        "at_ns": wall_clock().utc.as_nanos(), "who": who, "from_ns": from.as_nanos(),
        "to_ns": to.as_nanos(), "output": output,
    });
    append_line(file, &note)
}

struct Export<'a, O> {
    encoder: Box<dyn FileEncoder>,
    shape: (SampleRate, ChannelLayout),
    bytes: Vec<u8>,
    patches: Vec<Patch>,
    output: &'a mut O,
    summary: ExportSummary,
}

impl<O: ExportOutput> Export<'_, O> {
    /// Encodes the frames of a file; what a damaged file does not have is silence.
    fn sound(&mut self, catalog: &LoggerCatalog, found: &FoundRange) -> Result<(), ExportError> {
        let mut decoder = open(catalog, found)?;
        let (rate, layout) = self.shape;
        if (decoder.info().rate, decoder.info().layout) != self.shape {
            return Err(ExportError::ShapeChanged(found.file.clone()));
        }
        let channels = layout.channels();
        let mut block = Block::with_capacity(rate, layout, BLOCK_SAMPLES);
        let (mut skip, mut left) = (found.position.as_usize(), found.frames.as_usize());
        if decoder.seeks_exactly() && skip > 0 {
            match decoder.seek(found.position) {
                Ok(()) => skip = 0,
                // A damaged file is decoded from its start.
                Err(_) => decoder = open(catalog, found)?,
            }
        }
        while left > 0 {
            match decoder.next(&mut block) {
                Ok(FileDecodeStatus::Block) => {}
                Ok(FileDecodeStatus::End) | Err(_) => break,
            }
            let frames = block.frames().as_usize();
            let skipped = skip.min(frames);
            let taken = (frames - skipped).min(left);
            (skip, left) = (skip - skipped, left - taken);
            let samples = block.samples().get(skipped * channels..(skipped + taken) * channels);
            self.write(samples.unwrap_or_default())?;
        }
        let missing = Frames::from(left);
        self.summary.damaged += missing;
        self.silence(missing)
    }

    fn silence(&mut self, frames: Frames) -> Result<(), ExportError> {
        let piece = vec![0.0; PIECE_FRAMES * self.shape.1.channels()];
        let mut left = frames.as_usize();
        while left > 0 {
            let now = left.min(PIECE_FRAMES);
            self.write(&piece[..now * self.shape.1.channels()])?;
            left -= now;
        }
        Ok(())
    }

    fn write(&mut self, samples: &[f32]) -> Result<(), ExportError> {
        self.summary.frames += Frames::from(samples.len() / self.shape.1.channels());
        self.encoder.write(samples, &mut self.bytes).map_err(|_| ExportError::Encoder)?;
        if self.bytes.len() >= PIECE_BYTES { self.pass_on() } else { Ok(()) }
    }

    fn pass_on(&mut self) -> Result<(), ExportError> {
        self.output.append(&self.bytes).map_err(ExportError::Output)?;
        self.bytes.clear();
        for patch in self.patches.drain(..) {
            self.output.patch(&patch).map_err(ExportError::Output)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<ExportSummary, ExportError> {
        let mut rest = Vec::new();
        self.pass_on()?;
        self.encoder.finish(&mut rest, &mut self.patches).map_err(|_| ExportError::Encoder)?;
        self.output.append(&rest).map_err(ExportError::Output)?;
        for patch in &self.patches {
            self.output.patch(patch).map_err(ExportError::Output)?;
        }
        Ok(self.summary)
    }
}

/// Opens a file of the log; its name comes from an index that may have been changed.
fn open(catalog: &LoggerCatalog, found: &FoundRange) -> Result<FileDecoder, ExportError> {
    let refused = |why: String| ExportError::File(found.file.clone(), why);
    let folder = catalog.folder().canonicalize().map_err(|error| refused(error.to_string()))?;
    let path: &Path = &folder.join(&found.file);
    let path = SourcePath::from(path).confined_to(core::slice::from_ref(&folder));
    FileDecoder::open_source(&path, FileDecodeOptions::default())
        .map_err(|error| refused(error.to_string()))
}

/// Why a range was not exported.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExportError {
    /// The range is empty or longer than [`MAX_EXPORT`].
    Range,
    /// No file has a frame of the range.
    NothingFound,
    /// A file cannot be read; with its name and the reason.
    File(String, String),
    /// The rate or the channels of this file differ from those before it.
    ShapeChanged(String),
    /// The format cannot store the sound; with the reason.
    Format(String),
    /// The encoder failed.
    Encoder,
    /// The output cannot be written.
    Output(io::Error),
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range => f.write_str("the range is empty or longer than 31 days"),
            Self::NothingFound => f.write_str("no complete file has sound of that time"),
            Self::File(file, why) => write!(f, "{file}: {why}"),
            Self::ShapeChanged(file) => write!(
                f,
                "{file} has another rate or other channels than the file before it: export up to it \
                 and from it on"
            ),
            Self::Format(why) => f.write_str(why),
            Self::Encoder => f.write_str("the encoder failed"),
            Self::Output(error) => write!(f, "cannot write the export: {error}"),
        }
    }
}

impl std::error::Error for ExportError {}

/// Whether a range is not empty and not longer than [`MAX_EXPORT`].
#[must_use]
pub fn is_exportable((from, to): (UnixTime, UnixTime)) -> bool {
    from < to && to.as_nanos().saturating_sub(from.as_nanos()) <= MAX_EXPORT.as_nanos()
}

/// Longest range of one export: 31 days.
pub const MAX_EXPORT: Span = Span::from_secs(31 * 86_400);

/// Frames of silence that are written at once.
const PIECE_FRAMES: usize = 4_096;

/// Bytes that are passed on at once.
const PIECE_BYTES: usize = 64 << 10;

/// Behind the recorder's name in the name of the file of exports.
const EXPORTS: &str = ".exports.jsonl";
