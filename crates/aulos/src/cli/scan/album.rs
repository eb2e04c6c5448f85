//! Albums: the files of one folder, measured together.

use std::path::{Path, PathBuf};

use aulos_core::Lufs;
use aulos_dsp::meter::Measurement;
use aulos_files::scan::{LoudnessSummary, ScanError, ScanOptions, ScanReport};
use clap::ValueEnum;

/// The loudness from which the gain of an album is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum AlbumRule {
    /// Integrated loudness of all files together (ReplayGain, R 128)
    Energy,
    /// Integrated loudness of the loudest file (AES TD1008)
    Loudest,
}

pub(super) struct Album {
    pub(super) folder: PathBuf,
    whole: Option<Measurement>,
    loudest: Option<Lufs>,
    pub(super) rate: SharedProperty<u32>,
    pub(super) channels: SharedProperty<usize>,
    seconds: f64,
    files: usize,
    failed: usize,
    /// Measured files, for tagging.
    pub(super) tracks: Vec<(PathBuf, LoudnessSummary)>,
}

impl Album {
    /// The album of a file. Files of a folder need not be adjacent: subfolders may come between
    /// them.
    pub(super) fn of<'a>(albums: &'a mut Vec<Self>, report: &ScanReport) -> &'a mut Self {
        // A folder without audio files is reported itself.
        let is_folder =
            matches!(report.error, Some(ScanError::NothingInFolder | ScanError::Folder(_)));
        let folder = if is_folder { &*report.path } else { folder_of(&report.path) };
        let at = albums.iter().rposition(|album| album.folder == folder).unwrap_or_else(|| {
            albums.push(Self {
                folder: folder.into(),
                whole: None,
                loudest: None,
                rate: SharedProperty::Nothing,
                channels: SharedProperty::Nothing,
                seconds: 0.0,
                files: 0,
                failed: 0,
                tracks: Vec::new(),
            });
            albums.len() - 1
        });
        &mut albums[at]
    }

    pub(super) fn add(&mut self, report: &ScanReport) {
        self.files += 1;
        let (Some(part), Some(shape)) = (&report.measurement, report.shape) else {
            self.failed += 1;
            return;
        };
        self.rate.add(shape.rate.hz());
        self.channels.add(shape.layout.channels());
        self.seconds += shape.seconds;
        self.tracks.push((report.path.clone(), report.loudness));
        if let Some(lufs) = report.loudness.integrated
            && self.loudest.is_none_or(|loudest| lufs.get() > loudest.get())
        {
            self.loudest = Some(lufs);
        }
        match &mut self.whole {
            // All parts have the same kind of history.
            Some(whole) => drop(whole.merge(part)),
            None => self.whole = Some((**part).clone()),
        }
    }

    pub(super) fn loudness(&self, options: &ScanOptions) -> LoudnessSummary {
        let whole = self.whole.as_ref();
        whole.map_or_else(LoudnessSummary::default, |whole| {
            LoudnessSummary::from_measurement(whole, self.seconds, options)
        })
    }

    pub(super) fn seconds(&self) -> Option<f64> {
        self.whole.as_ref().map(|_| self.seconds)
    }

    /// The loudness from which the gain is computed.
    pub(super) fn gain_basis(&self, rule: AlbumRule, loudness: &LoudnessSummary) -> Option<Lufs> {
        match rule {
            AlbumRule::Energy => loudness.integrated,
            AlbumRule::Loudest => self.loudest,
        }
    }

    pub(super) fn error(&self) -> Option<String> {
        let (failed, files) = (self.failed, self.files);
        (failed > 0).then(|| format!("{failed} of {files} file(s) could not be measured"))
    }
}

/// The folder of a file, for display.
pub(super) fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    folder.unwrap_or_else(|| Path::new("."))
}

/// A property that is shown if all files of an album share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SharedProperty<T> {
    Nothing,
    Single(T),
    Several,
}

impl<T: Copy + PartialEq> SharedProperty<T> {
    fn add(&mut self, value: T) {
        *self = match *self {
            Self::Nothing => Self::Single(value),
            Self::Single(known) if known == value => Self::Single(known),
            _ => Self::Several,
        };
    }

    pub(super) fn common(self) -> Option<T> {
        match self {
            Self::Single(value) => Some(value),
            Self::Nothing | Self::Several => None,
        }
    }
}
