//! Decodes an audio file block by block.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use aulos_core::{Block, ChannelLayout, Frames, Instant, MediaTime, SampleRate, SampleSpec};
use aulos_engine::source::BLOCK_SAMPLES;
use aulos_io::SourcePath;

use super::error::{FileDecodeError, OpenError};
use super::media::{MediaReader, PacketOutcome, TrackInfo};
use super::raw::RawReader;
use super::recognize::{explain_refusal, refuse_known_kinds};
use super::warning::FileWarning;
use super::wave::WaveFile;

/// Options for decoding a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileDecodeOptions {
    /// Loops without a gap.
    pub looped: bool,
    /// Treats the file as raw samples of this spec. Without it, files that end in `.raw`, `.pcm` or
    /// `.s16` are raw samples of [`SampleSpec::DEFAULT`], and other files are detected by content.
    pub raw: Option<SampleSpec>,
}

/// The format and the tags of a file.
#[derive(Clone, Debug)]
pub struct FileInfo {
    /// Frames per second.
    pub rate: SampleRate,
    /// The channels of one frame.
    pub layout: ChannelLayout,
    /// The length of the file without looping, if known; an estimate for MPEG audio and ADTS
    /// without a header that says it.
    pub frames: Option<Frames>,
    /// The codec's short name, for example `flac` or `pcm_s16le`.
    pub codec: &'static str,
    /// Bits per sample, if the codec has such a number.
    pub bits: Option<u32>,
    /// The title tag, at most 200 characters.
    pub title: Option<String>,
    /// The artist tag, at most 200 characters.
    pub artist: Option<String>,
}

/// Sample rate and channel layout.
pub type RateAndLayout = (SampleRate, ChannelLayout);

/// The result of [`FileDecoder::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileDecodeStatus {
    /// The block holds the next frames, at least one.
    Block,
    /// The file has ended.
    End,
}

/// An open audio file.
#[derive(Debug)]
pub struct FileDecoder {
    file: File,
    extension: Option<String>,
    options: FileDecodeOptions,
    source: FileReader,
    info: FileInfo,
    /// Decoded samples; those before `taken` have been returned.
    pending: Vec<f32>,
    taken: usize,
    position: MediaTime,
    damaged: u64,
    rejected: u64,
    /// Whether the current round of a loop has returned a frame; without one it must not be
    /// repeated.
    has_decoded: bool,
    decoded: DecodedLength,
    /// The length in the header and the decoded one in seconds, if they differ.
    length: Option<(f64, f64)>,
    end: Option<Result<(), FileDecodeError>>,
}

#[derive(Debug)]
enum FileReader {
    Media(Box<MediaReader>),
    Raw(RawReader),
    /// With the tags that the library finds.
    Wave(Box<WaveFile>, Box<TrackInfo>),
}

/// What has been decoded in the current round of a loop.
#[derive(Clone, Copy, Debug)]
struct DecodedLength {
    /// Frames in the current format, and seconds of those in earlier formats.
    frames: u64,
    earlier: f64,
    first: RateAndLayout,
    last: RateAndLayout,
    changes: u64,
}

impl DecodedLength {
    const fn new(shape: RateAndLayout) -> Self {
        Self { frames: 0, earlier: 0.0, first: shape, last: shape, changes: 0 }
    }

    fn add(&mut self, shape: RateAndLayout, samples: usize) {
        if shape != self.last {
            self.changes += u64::from(self.frames > 0);
            if self.changes == 0 {
                self.first = shape;
            }
            (self.earlier, self.frames, self.last) = (self.seconds(), 0, shape);
        }
        self.frames += (samples / shape.1.channels()) as u64;
    }

    fn seconds(&self) -> f64 {
        self.earlier + seconds_of(self.frames, self.last.0)
    }
}

impl FileDecoder {
    /// Opens `path` and decodes up to its first frame, so that its format is known.
    ///
    /// # Errors
    /// [`OpenError`], classified by what the user can do about it.
    pub fn open(path: &Path, options: FileDecodeOptions) -> Result<Self, OpenError> {
        Self::open_source(&path.into(), options)
    }

    /// The same for a path that may be confined to certain directories.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_source(path: &SourcePath, options: FileDecodeOptions) -> Result<Self, OpenError> {
        // This open does not wait for the writer of a FIFO, and the file type is checked on the
        // open file.
        let file = path.open()?;
        if !file.metadata()?.is_file() {
            return Err(OpenError::NotAFile);
        }
        let extension = path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
        let named_raw = extension.as_deref().is_some_and(|e| RAW_EXTENSIONS.contains(&e));
        let options = FileDecodeOptions {
            raw: options.raw.or_else(|| named_raw.then_some(SampleSpec::DEFAULT)),
            ..options
        };
        let source = FileReader::open(&file, extension.as_deref(), options.raw)?;
        let mut decoder = Self {
            info: source.info(&file),
            file,
            extension,
            options,
            source,
            pending: Vec::new(),
            taken: 0,
            position: MediaTime::ZERO,
            damaged: 0,
            rejected: 0,
            has_decoded: false,
            decoded: DecodedLength::new((SampleRate::HZ_48000, ChannelLayout::STEREO)),
            length: None,
            end: None,
        };
        decoder.decoded = DecodedLength::new(decoder.source.shape());
        match decoder.refill_once() {
            Ok(true) => {}
            Ok(false) if decoder.options.raw.is_some() => return Err(OpenError::Empty),
            Ok(false) if decoder.damaged > 0 => return Err(OpenError::Torn),
            Ok(false) => return Err(OpenError::NoFrames),
            Err(FileDecodeError::Io(kind)) => return Err(OpenError::Io(kind)),
            Err(FileDecodeError::Torn) => return Err(OpenError::Torn),
            Err(FileDecodeError::Unsupported) => return Err(OpenError::UnsupportedCodec),
        }
        // The first packet may have changed the rate, and with it the number of frames.
        decoder.info = decoder.source.info(&decoder.file);
        Ok(decoder)
    }

    /// Fills `into` with the next frames: as many as fit, at most [`BLOCK_SAMPLES`] samples. Fewer
    /// come only at the end, before an error, and where a chained stream changes its rate or
    /// layout.
    ///
    /// Media time counts the returned frames, from 0, through all rounds of a loop.
    ///
    /// # Errors
    /// [`FileDecodeError`], after everything that could be decoded has been returned; from then on
    /// always.
    pub fn next(&mut self, into: &mut Block) -> Result<FileDecodeStatus, FileDecodeError> {
        into.pts = self.position;
        into.received = Instant::ZERO;
        let (mut rate, mut layout) = self.source.shape();
        into.reset(rate, layout);
        let mut filled = 0;
        loop {
            if self.taken == self.pending.len() {
                if !self.has_more() {
                    break;
                }
                if (rate, layout) != self.source.shape() {
                    if filled > 0 {
                        break;
                    }
                    (rate, layout) = self.source.shape();
                    into.reset(rate, layout);
                }
            }
            let room = into.capacity().as_usize().min(BLOCK_SAMPLES / layout.channels());
            let room = room * layout.channels() - filled;
            let count = room.min(self.pending.len() - self.taken);
            if count == 0 {
                break;
            }
            into.resize(Frames::from((filled + count) / layout.channels()));
            let fresh = &self.pending[self.taken..self.taken + count];
            for (to, from) in into.samples_mut()[filled..].iter_mut().zip(fresh) {
                // A file of floats may contain NaN, which must not get into the engine.
                *to = if from.is_finite() { *from } else { 0.0 };
                self.rejected += u64::from(!from.is_finite());
            }
            self.taken += count;
            filled += count;
        }
        self.position += into.frames();
        match self.end {
            Some(end) if filled == 0 => end.map(|()| FileDecodeStatus::End),
            _ => Ok(FileDecodeStatus::Block),
        }
    }

    /// Borrows the next frames, at least one and at most `most`, with their rate and layout; `None`
    /// at the end.
    ///
    /// Nothing is copied, and values that are not finite are not removed.
    ///
    /// # Errors
    /// As [`FileDecoder::next`].
    pub fn next_run(
        &mut self,
        most: Frames,
    ) -> Result<Option<(RateAndLayout, &[f32])>, FileDecodeError> {
        if self.taken == self.pending.len() && !self.has_more() {
            return match self.end {
                Some(Err(error)) => Err(error),
                _ => Ok(None),
            };
        }
        let shape = self.source.shape();
        let channels = shape.1.channels();
        let there = (self.pending.len() - self.taken) / channels;
        let count = usize::try_from(most.0).unwrap_or(usize::MAX).min(there);
        let from = self.taken;
        // An incomplete frame is dropped.
        self.taken = if count == there { self.pending.len() } else { from + count * channels };
        self.position += Frames::from(count);
        Ok(Some((shape, &self.pending[from..from + count * channels])))
    }

    /// Seeks to `frame`. Only for files that [support it](FileDecoder::seeks_exactly).
    ///
    /// # Errors
    /// [`FileDecodeError::Torn`] when the position cannot be found.
    pub fn seek(&mut self, frame: Frames) -> Result<(), FileDecodeError> {
        let FileReader::Media(media) = &mut self.source else { return Err(FileDecodeError::Torn) };
        media.seek(frame)?;
        self.pending.clear();
        self.taken = 0;
        self.end = None;
        Ok(())
    }

    /// Whether seeking is sample exact: true for a FLAC file of known length.
    #[must_use]
    pub fn seeks_exactly(&self) -> bool {
        self.info.codec == "flac" && self.info.frames.is_some() && !self.options.looped
    }

    /// The loudspeaker of each channel as a WAVE channel mask, if the file has one.
    #[must_use]
    pub fn speakers(&self) -> Option<u32> {
        match &self.source {
            FileReader::Media(media) => media.speakers(),
            FileReader::Wave(wave, _) => wave.speakers(),
            FileReader::Raw(_) => None,
        }
    }

    /// The format of the file.
    #[must_use]
    pub const fn info(&self) -> &FileInfo {
        &self.info
    }

    /// Samples that were not finite; [`FileDecoder::next`] returned them as silence.
    #[must_use]
    pub const fn rejected(&self) -> u64 {
        self.rejected
    }

    /// Packets that were skipped because of damage; a truncated file counts as one.
    #[must_use]
    pub const fn damaged(&self) -> u64 {
        self.damaged
    }

    /// What the file does otherwise than its header says; complete when it has been decoded once.
    #[must_use]
    pub fn warnings(&self) -> Vec<FileWarning> {
        let length = self.length.map(|(stated, found)| FileWarning::Length { stated, found });
        let DecodedLength { changes, first, last, .. } = self.decoded;
        let changes = (changes > 0).then_some(FileWarning::FormatChanges { changes, first, last });
        let samples = self.rejected;
        let not_finite = (samples > 0).then_some(FileWarning::NotFinite { samples });
        length.into_iter().chain(changes).chain(not_finite).collect()
    }

    /// Compares the length in the header with what has been decoded.
    fn compare_length(&mut self) {
        let Some((stated, tolerance)) = self.source.stated_frames() else { return };
        let DecodedLength { frames, first, changes, .. } = self.decoded;
        if changes > 0 || frames.abs_diff(stated) > tolerance {
            self.length = Some((seconds_of(stated, first.0), self.decoded.seconds()));
        }
    }

    /// Decodes more samples, also across the seam of a loop. `false` at the end and after an error.
    fn has_more(&mut self) -> bool {
        if self.end.is_some() {
            return false;
        }
        let more = self.refill_once().and_then(|more| {
            if more || !self.options.looped {
                return Ok(more);
            }
            self.rewind()?;
            self.refill_once()?.then_some(true).ok_or(FileDecodeError::Torn)
        });
        self.end = match more {
            Ok(true) => None,
            Ok(false) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        };
        self.end.is_none()
    }

    fn rewind(&mut self) -> Result<(), FileDecodeError> {
        if !self.has_decoded {
            return Err(FileDecodeError::Torn);
        }
        self.has_decoded = false;
        self.decoded.frames = 0;
        self.decoded.earlier = 0.0;
        let source = FileReader::open(&self.file, self.extension.as_deref(), self.options.raw);
        self.source = source.map_err(|error| match error {
            OpenError::Io(kind) => FileDecodeError::Io(kind),
            _ => FileDecodeError::Torn,
        })?;
        Ok(())
    }

    /// Decodes until there are samples. `false` at the end of the file.
    fn refill_once(&mut self) -> Result<bool, FileDecodeError> {
        self.taken = 0;
        for _ in 0..MAX_PACKETS_WITHOUT_FRAMES {
            match self.source.decode(&mut self.pending)? {
                PacketOutcome::Frames => {}
                PacketOutcome::Damaged => self.damaged += 1,
                PacketOutcome::TruncatedEnd => {
                    self.damaged += 1;
                    self.compare_length();
                    return Ok(false);
                }
                PacketOutcome::End => {
                    self.compare_length();
                    return Ok(false);
                }
            }
            if !self.pending.is_empty() {
                self.has_decoded = true;
                self.decoded.add(self.source.shape(), self.pending.len());
                return Ok(true);
            }
        }
        Err(FileDecodeError::Torn)
    }
}

impl FileReader {
    fn open(
        file: &File,
        extension: Option<&str>,
        raw: Option<SampleSpec>,
    ) -> Result<Self, OpenError> {
        Ok(match raw {
            Some(spec) => {
                let mut file = file.try_clone()?;
                file.seek(SeekFrom::Start(0))?;
                Self::Raw(RawReader::new(file, spec))
            }
            // The library does not support RF64, and may take its samples for MP3.
            None => match WaveFile::from_file(file.try_clone()?)? {
                Some(wave) => {
                    let tags = MediaReader::open(file, extension).map(|media| media.track_info);
                    Self::Wave(Box::new(wave), Box::new(tags.unwrap_or_default()))
                }
                None if is_rf64(file)? => return Err(OpenError::Torn),
                None => {
                    refuse_known_kinds(file)?;
                    let media = MediaReader::open(file, extension);
                    Self::Media(Box::new(media.map_err(|why| explain_refusal(file, why))?))
                }
            },
        })
    }

    fn decode(&mut self, out: &mut Vec<f32>) -> Result<PacketOutcome, FileDecodeError> {
        match self {
            Self::Media(media) => media.decode(out),
            Self::Raw(raw) => raw.decode(out),
            Self::Wave(wave, _) => wave.decode(out),
        }
    }

    const fn shape(&self) -> RateAndLayout {
        match self {
            Self::Media(media) => (media.rate(), media.layout()),
            Self::Raw(raw) => (raw.spec().rate, raw.spec().layout),
            Self::Wave(wave, _) => (wave.rate(), wave.layout()),
        }
    }

    /// The length in the header, in frames, if it is exact; and the usual deviation from it.
    fn stated_frames(&self) -> Option<(u64, u64)> {
        match self {
            Self::Media(media) => media.stated_frames(),
            Self::Raw(_) => None,
            Self::Wave(wave, _) => Some((wave.contradicted_frames()?.0, 0)),
        }
    }

    fn info(&self, file: &File) -> FileInfo {
        let (rate, layout) = self.shape();
        let about = match self {
            Self::Media(media) => media.track_info.clone(),
            Self::Raw(raw) => TrackInfo {
                codec: "raw",
                bits: Some(raw.spec().format.bits().into()),
                frames: file.metadata().ok().map(|m| m.len() / raw.spec().frame_bytes() as u64),
                ..TrackInfo::default()
            },
            Self::Wave(wave, tags) => TrackInfo {
                codec: wave.codec(),
                bits: Some(wave.bits()),
                frames: Some(wave.frames().0),
                title: tags.title.clone(),
                artist: tags.artist.clone(),
            },
        };
        let TrackInfo { codec, bits, frames, title, artist } = about;
        FileInfo { rate, layout, frames: frames.map(Frames), codec, bits, title, artist }
    }
}

#[allow(clippy::cast_precision_loss, reason = "below 2^53 frames")]
fn seconds_of(frames: u64, rate: SampleRate) -> f64 {
    frames as f64 / f64::from(rate.hz())
}

/// Whether the file begins as RF64, which is used beyond 4 GiB (EBU Tech 3306).
fn is_rf64(file: &File) -> io::Result<bool> {
    let mut front = [0; 4];
    let read = file.read_at(&mut front, 0)?;
    Ok(read == front.len() && [b"RF64", b"BW64"].contains(&&front))
}

/// Extensions of files without a header.
const RAW_EXTENSIONS: [&str; 3] = ["raw", "pcm", "s16"];

/// Consecutive packets that may return no frame: damage, pictures, other tracks. A film has some
/// hundred video packets between two of audio; a file of garbage must not occupy a thread for
/// minutes.
const MAX_PACKETS_WITHOUT_FRAMES: u32 = 4_096;
