//! One file of a playlist, decoded in the playlist's format.

use std::path::PathBuf;
use std::sync::Arc;

use aulos_core::{Block, Db};
use aulos_engine::source::BLOCK_SAMPLES;
use aulos_io::SourcePath;
use aulos_proto::titles::TrackMetadata;

use super::status::PlaylistTrackInfo;
use crate::decode::{
    FileDecodeError, FileDecodeOptions, FileDecodeStatus, OpenError, RateAndLayout, UniformDecoder,
    converted_frames,
};

/// An open file, decoded ahead of what is played.
pub(super) struct PlaylistTrack {
    decoder: UniformDecoder,
    block: Block,
    channels: usize,
    info: PlaylistTrackInfo,
    title: Option<Arc<TrackMetadata>>,
    /// The number of its frames in the playlist's rate, if its header says it.
    length: Option<u64>,
    gain: f32,
    /// Decoded samples, interleaved; those before `taken` have been played.
    ahead: Vec<f32>,
    taken: usize,
    decoded: u64,
    end: Option<TrackEnd>,
}

/// How a file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrackEnd {
    /// At its last frame.
    Whole,
    /// Decoding failed.
    Failed(FileDecodeError),
    /// The rest was skipped by request.
    Cut,
}

impl PlaylistTrack {
    /// Opens a file and decodes its first frames.
    ///
    /// # Errors
    /// [`OpenError`].
    pub(super) fn open(
        path: &SourcePath,
        is_jingle: bool,
        format: RateAndLayout,
    ) -> Result<Self, OpenError> {
        let decoder = UniformDecoder::open_to(path, FileDecodeOptions::default(), format)?;
        let about = decoder.info();
        let duration = about.frames.map(|frames| about.rate.span(frames));
        let length = about.frames.map(|frames| converted_frames(frames.0, about.rate, format.0));
        let title = (!is_jingle).then(|| title_of(path, about.title.clone(), about.artist.clone()));
        let path = Arc::new(PathBuf::from(&**path));
        Ok(Self {
            decoder,
            block: Block::with_capacity(format.0, format.1, BLOCK_SAMPLES),
            channels: format.1.channels(),
            info: PlaylistTrackInfo { path, is_jingle, duration, gain_db: 0.0 },
            title: title.map(|title| Arc::new(TrackMetadata { duration, ..title })),
            length,
            gain: 1.0,
            ahead: Vec::new(),
            taken: 0,
            decoded: 0,
            end: None,
        })
    }

    #[allow(clippy::cast_possible_truncation, reason = "a factor")]
    pub(super) fn set_gain(&mut self, gain: Db) {
        self.info.gain_db = gain.get();
        self.gain = gain.amplitude() as f32;
    }

    pub(super) const fn info(&self) -> &PlaylistTrackInfo {
        &self.info
    }

    pub(super) const fn title(&self) -> Option<&Arc<TrackMetadata>> {
        self.title.as_ref()
    }

    /// Whether the file has one channel.
    pub(super) fn is_mono(&self) -> bool {
        self.decoder.info().layout.channels() == 1
    }

    /// The number of its frames, if known.
    pub(super) const fn length(&self) -> Option<u64> {
        self.length
    }

    /// The frames that have not been played; of a file that still decodes by its header.
    pub(super) fn frames_left(&self) -> Option<u64> {
        let ahead = self.frames_ahead() as u64;
        match self.end {
            Some(_) => Some(ahead),
            None => self.length.map(|length| length.saturating_sub(self.decoded) + ahead),
        }
    }

    /// The end, once everything before it has been decoded.
    pub(super) const fn end(&self) -> Option<TrackEnd> {
        self.end
    }

    /// The frames that have been decoded and not played.
    pub(super) fn frames_ahead(&self) -> usize {
        (self.ahead.len() - self.taken) / self.channels
    }

    /// Decodes until `frames` are ahead, or the file ends.
    pub(super) fn fill(&mut self, frames: usize) {
        while self.end.is_none() && self.frames_ahead() < frames {
            match self.decoder.next(&mut self.block) {
                Ok(FileDecodeStatus::Block) => {
                    self.decoded += self.block.frames().0;
                    // Half of it at least is free then, so each sample is moved once.
                    if self.taken > self.ahead.len() / 2 {
                        self.ahead.drain(..self.taken);
                        self.taken = 0;
                    }
                    let samples = self.block.samples().iter();
                    self.ahead.extend(samples.map(|sample| sample * self.gain));
                }
                Ok(FileDecodeStatus::End) => self.end = Some(TrackEnd::Whole),
                Err(error) => self.end = Some(TrackEnd::Failed(error)),
            }
        }
    }

    /// Takes up to `frames` of the decoded frames.
    pub(super) fn take(&mut self, frames: usize) -> &[f32] {
        let count = frames.min(self.frames_ahead()) * self.channels;
        self.taken += count;
        &self.ahead[self.taken - count..self.taken]
    }

    /// Ends it after `frames` more.
    pub(super) fn cut(&mut self, frames: usize) {
        self.fill(frames);
        let keep = frames.min(self.frames_ahead()) * self.channels;
        self.ahead.truncate(self.taken + keep);
        self.end = Some(TrackEnd::Cut);
    }
}

/// The title by the tags, else by the name of the file.
fn title_of(path: &SourcePath, title: Option<String>, artist: Option<String>) -> TrackMetadata {
    if title.is_some() {
        return TrackMetadata { title, artist, ..TrackMetadata::default() };
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let named = TrackMetadata::from_stream_title(&stem);
    TrackMetadata { artist: artist.or(named.artist), ..named }
}
