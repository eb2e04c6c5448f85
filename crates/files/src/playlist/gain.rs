//! The gain that brings a file to the playlist's loudness.

use aulos_core::{Db, Lufs};
use aulos_engine::loudness::Loudness;
use aulos_io::SourcePath;

use crate::scan::tag::{TaggedGain, limit_gain, read_gain};

/// How the files of a playlist get the same loudness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlaylistLoudness {
    /// By their tags (ReplayGain, R128); a file without is measured before it is played.
    #[default]
    Auto,
    /// By their tags; a file without keeps its own.
    Tags,
    /// Every file is measured before it is played.
    Measure,
    /// They keep their own.
    Off,
}

impl PlaylistLoudness {
    /// The gain of a file by its tags, if it has some and they count.
    pub(super) fn tagged(self, path: &SourcePath, target: Lufs) -> Option<Db> {
        match self {
            Self::Auto | Self::Tags => {
                let TaggedGain { loudness, peak } = read_gain(&mut path.open().ok()?)?;
                Some(limit_gain(target - loudness, peak, Some(CEILING)))
            }
            Self::Measure | Self::Off => None,
        }
    }

    pub(super) const fn measures(self) -> bool {
        matches!(self, Self::Auto | Self::Measure)
    }
}

/// The gain of a file that was measured. One that is too short to have a loudness keeps its own
/// below the ceiling.
pub(super) fn measured_gain(measured: Loudness, target: Lufs) -> Db {
    let peak = measured.true_peak.or(measured.sample_peak);
    let gain = measured.integrated.map_or(Db::ZERO, |own| target - own);
    limit_gain(gain, peak, Some(CEILING))
}

/// The gain of a file of which only the beginning was measured: what follows may be louder, so it
/// is not raised.
pub(super) fn partly_measured_gain(measured: Loudness, target: Lufs) -> Db {
    Db::new(measured_gain(measured, target).get().min(0.0))
}

/// No gain raises the true peak of a file above it (EBU R 128).
const CEILING: Db = Db::new(-1.0);
