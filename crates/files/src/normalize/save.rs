//! Atomic output files: complete, or not there at all.
//!
//! The output is written under a temporary name beside its target and renamed at the end, so a
//! reader, and a killed process, find either the old or the new file.

use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use aulos_core::SampleSpec;
use aulos_dsp::Dither;
use aulos_io::disk::{NewFile, SyncedFile};
use aulos_io::replace::{ReplaceError, Replacement, create_new};
use flac_codec::encode::{FlacSampleWriter, Options};

use super::NormalizeError;
use super::container::OutputContainer;
use super::framed::FramedFile;
use super::spec::OutputSpec;

/// The target of an output: a free name, or an existing file to replace.
#[derive(Debug)]
pub(super) struct OutputTarget {
    path: PathBuf,
    existing: Option<Metadata>,
}

impl OutputTarget {
    /// Examines `path` before the work begins. For a symbolic link, its target is replaced.
    pub(super) fn new(path: &Path) -> Result<Self, NormalizeError> {
        match fs::canonicalize(path) {
            Ok(real) => {
                let before = fs::metadata(&real).map_err(NormalizeError::Save)?;
                if !before.is_file() {
                    return Err(NormalizeError::NotAFile);
                }
                Ok(Self { path: real, existing: Some(before) })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Self { path: path.to_owned(), existing: None })
            }
            Err(error) => Err(NormalizeError::Save(error)),
        }
    }

    fn create_part(&self) -> Result<PartFile, NormalizeError> {
        let Some(before) = &self.existing else {
            let new = create_new(&self.path).map_err(|error| match error {
                // The folder may be read-only, but no file that would be replaced.
                ReplaceError::ReadOnly => {
                    NormalizeError::Save(io::ErrorKind::PermissionDenied.into())
                }
                error => error.into(),
            });
            return Ok(PartFile::New(new?));
        };
        Ok(PartFile::Replace(Box::new(Replacement::create(&self.path, before.clone())?)))
    }
}

/// The file until it is complete; dropping it deletes it.
enum PartFile {
    New(NewFile),
    Replace(Box<Replacement>),
}

impl PartFile {
    fn file(&mut self) -> io::Result<File> {
        match self {
            Self::New(new) => new.file().try_clone(),
            Self::Replace(new) => new.file().try_clone(),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::New(new) => new.path(),
            Self::Replace(new) => new.path(),
        }
    }
}

/// A file that is being written.
pub(super) struct OutputFile {
    writer: Option<OutputWriter>,
    part: PartFile,
    /// A tag to append to a WAVE file.
    id3: Vec<u8>,
}

enum OutputWriter {
    Framed(Box<FramedFile>),
    Flac(Box<FlacFile>),
}

struct FlacFile {
    writer: FlacSampleWriter<BufWriter<File>>,
    bits: u16,
    dither: Dither,
    integers: Vec<i32>,
}

impl FlacFile {
    fn write(&mut self, samples: &[f32]) -> io::Result<()> {
        self.integers.resize(samples.len(), 0);
        self.dither.to_integers(self.bits, samples, &mut self.integers);
        self.writer.write(&self.integers).map_err(flac_error)
    }
}

impl OutputFile {
    pub(super) fn create(
        spot: &OutputTarget,
        form: &OutputSpec<'_>,
    ) -> Result<Self, NormalizeError> {
        let part = spot.create_part()?;
        let mut new = Self { writer: None, part, id3: form.tags.id3.clone() };
        // From here on, dropping deletes the temporary file.
        new.writer = Some(new.begin(form).map_err(NormalizeError::Save)?);
        Ok(new)
    }

    fn begin(&mut self, form: &OutputSpec<'_>) -> io::Result<OutputWriter> {
        let out = BufWriter::with_capacity(BUFFER, self.part.file()?);
        Ok(match form.container {
            OutputContainer::Wave | OutputContainer::Opus => {
                OutputWriter::Framed(Box::new(FramedFile::new(out, form)?))
            }
            OutputContainer::Flac => OutputWriter::Flac(Box::new(flac(out, form)?)),
        })
    }

    pub(super) fn write(&mut self, samples: &[f32]) -> io::Result<()> {
        match &mut self.writer {
            Some(OutputWriter::Framed(file)) => file.write(samples),
            Some(OutputWriter::Flac(flac)) => flac.write(samples),
            None => Ok(()),
        }
    }

    /// Completes the file under its temporary name.
    pub(super) fn close(&mut self) -> io::Result<()> {
        match self.writer.take() {
            Some(OutputWriter::Framed(file)) => file.finish(&self.id3),
            // Flushing its buffer overwrites the header, which has reserved room.
            Some(OutputWriter::Flac(flac)) => flac.writer.finalize().map_err(flac_error),
            None => Ok(()),
        }
    }

    /// The temporary path until [`OutputFile::commit`].
    pub(super) fn path(&self) -> &Path {
        self.part.path()
    }

    /// Renames the file to its target.
    pub(super) fn commit(self) -> Result<(), NormalizeError> {
        match self.part {
            PartFile::New(new) => {
                new.sync().and_then(SyncedFile::publish).map_err(NormalizeError::Save)
            }
            PartFile::Replace(new) => Ok(new.commit()?),
        }
    }
}

fn flac(out: BufWriter<File>, form: &OutputSpec<'_>) -> io::Result<FlacFile> {
    let SampleSpec { rate, layout, format } = form.spec;
    let bits = format.bits();
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
    let channels = u8::try_from(layout.channels()).ok().filter(|channels| *channels <= 8);
    let channels = channels.ok_or_else(|| wrong("FLAC has eight channels at most: write WAVE"))?;
    let options = form.tags.flac(Options::default());
    let writer = FlacSampleWriter::new(out, options, rate.hz(), bits.into(), channels, None)
        .map_err(|error| wrong(&format!("FLAC cannot hold it: {error}; write WAVE")))?;
    Ok(FlacFile { writer, bits, dither: Dither::default(), integers: Vec::new() })
}

fn flac_error(error: flac_codec::Error) -> io::Error {
    match error {
        flac_codec::Error::Io(error) => error,
        other => io::Error::other(other),
    }
}

const BUFFER: usize = 256 * 1024;
