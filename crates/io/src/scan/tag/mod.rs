//! Loudness tags: what players turn the volume by.
//!
//! ReplayGain 2.0 for all formats but Opus, which has tags of its own (RFC 7845 section 5.2.1): gains
//! to -23 LUFS in steps of 1/256 dB, on top of the gain in the header, which our figures contain
//! already. Two systems in one file are added up by some players, so an Opus file that gets its own
//! tags loses those of ReplayGain; of all else in a file nothing changes.
//!
//! ```text
//!  Wish -> changes (container: read) -> copy beside -> container: write -> read back -> rename
//! ```
//!
//! Containers are a library's work. Ours: which tags, when they are complete, and that a file is
//! at every instant either the old or the new one.

pub(crate) mod container;
mod error;

use std::fs::File;
use std::path::Path;

use aulos_core::{Db, Lufs};

pub use error::TagError;

use super::measure::Loudness;
use crate::replace::Replacement;
use container::Container;

/// What a file's tags are to say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wish {
    /// Of the file by itself.
    pub track: Volume,
    /// Of the album that it is a part of; without it, what the file says of an album stays, unless
    /// it was made for another reference.
    pub album: Option<Volume>,
    /// The loudness that the gains lead to.
    pub reference: Lufs,
}

/// How a player should turn the volume, and what it then gets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Volume {
    /// To the reference.
    pub gain: Db,
    /// To -23 LUFS, for Opus.
    pub r128: Db,
    /// The greatest value, full scale being 1; not bounded by it.
    pub peak: Option<f64>,
    /// Loudness range.
    pub range: Option<Db>,
}

impl Volume {
    /// For a programme of this loudness; nothing for silence. No gain lifts the greatest peak above
    /// `ceiling`.
    #[must_use]
    pub fn of(loudness: &Loudness, rule: Lufs, reference: Lufs, ceiling: Option<Db>) -> Self {
        let peak = loudness.true_peak.or(loudness.sample_peak);
        Self {
            gain: limited(reference - rule, peak, ceiling),
            r128: limited(Lufs::new(R128) - rule, peak, ceiling),
            peak: peak.map(Db::amplitude),
            range: loudness.range,
        }
    }
}

/// A gain that leaves the peak below the ceiling.
#[must_use]
pub fn limited(gain: Db, peak: Option<Db>, ceiling: Option<Db>) -> Db {
    match (peak, ceiling) {
        (Some(peak), Some(ceiling)) => Db::new(gain.get().min(ceiling.get() - peak.get())),
        _ => gain,
    }
}

/// One tag, before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its name, as the standard spells it.
    pub name: &'static str,
    /// What it says now.
    pub old: Option<String>,
    /// What it will say; nothing when it goes.
    pub new: Option<String>,
}

/// Which tags of `path` differ from the wish. Writes nothing.
///
/// # Errors
/// [`TagError`].
pub fn changes(path: &Path, wish: &Wish) -> Result<Vec<Change>, TagError> {
    let container = Container::read(&mut open(path)?)?;
    Ok(container.changes(wish))
}

/// Writes the tags of `path`, and says which of them differ; a file that needs no change is not
/// touched.
///
/// The file is replaced by a copy in the same folder, which is complete on disk before it takes the
/// name. Mode is kept, and owner as far as the system lets us; the time of modification is new, so
/// that players notice; a hard link becomes a file of its own. A symbolic link is followed.
///
/// # Errors
/// [`TagError`]; the file is then what it was.
pub fn write(path: &Path, wish: &Wish) -> Result<Vec<Change>, TagError> {
    let path = path.canonicalize()?;
    let mut original = open(&path)?;
    let mut container = Container::read(&mut original)?;
    let changes = container.changes(wish);
    if changes.is_empty() {
        return Ok(changes);
    }
    let mut copy = Replacement::of(&path, original.metadata()?)?;
    copy.copy()?;
    container.apply(&changes);
    container.write(copy.file())?;
    let written = Container::read(copy.file())?;
    if !written.changes(wish).is_empty() || !copy.sounds_like_the_original() {
        return Err(TagError::NotKept);
    }
    copy.take_the_name()?;
    Ok(changes)
}

/// Whether the tags of `path` say all that a run with these options would write: then there is
/// nothing to be measured.
///
/// # Errors
/// [`TagError`].
pub fn is_complete(path: &Path, album: bool, reference: Lufs) -> Result<bool, TagError> {
    let container = Container::read(&mut open(path)?)?;
    let says = |name| container.get(name).is_some_and(|text| figure(&text).is_some());
    if container.is_opus() {
        return Ok(says(R128_TRACK) && (!album || says(R128_ALBUM)));
    }
    // Files of other programs seldom name their reference; ReplayGain's own is then meant.
    let named = container.get(REFERENCE).map(|text| figure(&text));
    let same = named.map_or_else(
        || is_default(reference),
        |named| named.is_some_and(|named| (named - reference.get()).abs() < 0.01),
    );
    let track = says(TRACK[0]) && says(TRACK[1]);
    Ok(same && track && (!album || (says(ALBUM[0]) && says(ALBUM[1]))))
}

fn is_default(reference: Lufs) -> bool {
    (reference.get() - REPLAYGAIN).abs() < 0.01
}

fn open(path: &Path) -> Result<File, TagError> {
    Ok(File::open(path)?)
}

impl Container {
    fn changes(&self, wish: &Wish) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut set = |name, new: Option<String>| {
            let old = self.get(name);
            if old != new || self.has_doubles(name) {
                changes.push(Change { name, old, new });
            }
        };
        if self.is_opus() {
            set(R128_TRACK, Some(q78(wish.track.r128)));
            if let Some(album) = wish.album {
                set(R128_ALBUM, Some(q78(album.r128)));
            }
            for name in TRACK.into_iter().chain(ALBUM).chain([REFERENCE]) {
                set(name, None);
            }
            return changes;
        }
        let reference = format!("{:.2} LUFS", tidy(wish.reference.get()));
        // An album gain to another reference would be wrong beside the new track gain.
        let foreign = self.get(REFERENCE).is_some_and(|old| old != reference);
        for (names, volume) in [(TRACK, Some(wish.track)), (ALBUM, wish.album)] {
            let Some(volume) = volume else {
                if foreign {
                    names.into_iter().for_each(|name| set(name, None));
                }
                continue;
            };
            set(names[0], Some(decibels(volume.gain)));
            set(names[1], volume.peak.map(|peak| format!("{peak:.6}")));
            set(names[2], volume.range.map(decibels));
        }
        set(REFERENCE, Some(reference));
        changes
    }
}

fn decibels(value: Db) -> String {
    format!("{:.2} dB", tidy(value.get()))
}

/// RFC 7845: a decimal number of 1/256 dB, -32768 to 32767.
#[allow(clippy::cast_possible_truncation, reason = "clamped")]
fn q78(gain: Db) -> String {
    let steps = (gain.get() * 256.0).round();
    (steps.clamp(f64::from(i16::MIN), f64::from(i16::MAX)) as i16).to_string()
}

/// To two places, with one zero.
fn tidy(value: f64) -> f64 {
    (value * 100.0).round() / 100.0 + 0.0
}

/// The number that a tag begins with.
fn figure(text: &str) -> Option<f64> {
    let number: f64 = text.split_whitespace().next()?.parse().ok()?;
    number.is_finite().then_some(number)
}

/// Gain, peak, range.
const TRACK: [&str; 3] =
    ["REPLAYGAIN_TRACK_GAIN", "REPLAYGAIN_TRACK_PEAK", "REPLAYGAIN_TRACK_RANGE"];
const ALBUM: [&str; 3] =
    ["REPLAYGAIN_ALBUM_GAIN", "REPLAYGAIN_ALBUM_PEAK", "REPLAYGAIN_ALBUM_RANGE"];
const REFERENCE: &str = "REPLAYGAIN_REFERENCE_LOUDNESS";
const R128_TRACK: &str = "R128_TRACK_GAIN";
const R128_ALBUM: &str = "R128_ALBUM_GAIN";

/// What R128 tags lead to (RFC 7845), and ReplayGain 2.0.
const R128: f64 = -23.0;
const REPLAYGAIN: f64 = -18.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn loudness(integrated: f64, true_peak: Option<f64>) -> Loudness {
        Loudness {
            integrated: Some(Lufs::new(integrated)),
            sample_peak: Some(Db::new(-3.0)),
            true_peak: true_peak.map(Db::new),
            ..Loudness::default()
        }
    }

    fn gains(integrated: f64, true_peak: Option<f64>, ceiling: Option<f64>) -> [f64; 2] {
        let it = loudness(integrated, true_peak);
        let volume =
            Volume::of(&it, Lufs::new(integrated), Lufs::new(REPLAYGAIN), ceiling.map(Db::new));
        [volume.gain.get(), volume.r128.get()]
    }

    #[test]
    fn no_gain_lifts_a_peak_above_the_ceiling_and_none_is_raised_to_it() {
        let near =
            |[a, b]: [f64; 2], [c, d]: [f64; 2]| (a - c).abs() < 1e-9 && (b - d).abs() < 1e-9;
        assert!(near(gains(-28.0, Some(-4.0), None), [10.0, 5.0]));
        assert!(near(gains(-28.0, Some(-4.0), Some(-1.0)), [3.0, 3.0]));
        assert!(near(gains(-28.0, Some(1.0), Some(-1.0)), [-2.0, -2.0]));
        assert!(near(gains(-10.0, Some(-4.0), Some(-1.0)), [-8.0, -13.0]));
        // Without true peaks, samples are the peaks that there are.
        assert!(near(gains(-28.0, None, Some(-1.0)), [2.0, 2.0]));
    }

    #[test]
    fn figures_are_written_as_the_standards_say() {
        assert_eq!(decibels(Db::new(-0.001)), "0.00 dB");
        assert_eq!(decibels(Db::new(-7.126)), "-7.13 dB");
        assert_eq!(
            [-7.5625, 0.0, 300.0, -300.0].map(|db| q78(Db::new(db))),
            ["-1936", "0", "32767", "-32768"]
        );
        assert_eq!(figure("-18.00 LUFS"), Some(-18.0));
        assert_eq!([figure(""), figure("loud"), figure("NaN dB")], [None; 3]);
    }
}
