//! Loudness tags, by which players adjust the volume.
//!
//! ReplayGain 2.0 for all formats except Opus, which has tags of its own (RFC 7845 section 5.2.1):
//! gains to -23 LUFS in steps of 1/256 dB, added to the gain in the header, which is already part
//! of the measured loudness. Some players add up both systems, so an Opus file that gets its own
//! tags loses those of ReplayGain. Gains that mp3gain has left in an `APEv2` tag are updated with
//! the others. Nothing else in a file changes.
//!
//! ```text
//!  TagRequest -> changes (container: read) -> copy -> container: write -> read back -> rename
//! ```
//!
//! A library handles the containers. Own code decides which tags are written and whether they are
//! complete, and guarantees that a file is at every moment either the old or the new one.

pub(crate) mod container;
mod error;

use std::fs::File;
use std::path::Path;

use aulos_core::{Db, Lufs};
use aulos_io::replace::Replacement;

pub use container::TagChange;
pub use error::TagError;

use super::measure::LoudnessSummary;
use crate::decode::{FileDecodeOptions, FileDecoder, has_wrong_sizes};
use container::TagContainer;

/// The tags that a file should have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TagRequest {
    /// For the file itself.
    pub track: GainTags,
    /// For its album. Without it, existing album tags stay unless they have another reference.
    pub album: Option<GainTags>,
    /// The loudness that the gains lead to.
    pub reference: Lufs,
}

/// The gains for a player, and the resulting figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GainTags {
    /// To the reference.
    pub gain: Db,
    /// To -23 LUFS, for Opus.
    pub r128: Db,
    /// The peak with full scale as 1; it may be greater.
    pub peak: Option<f64>,
    /// The loudness range.
    pub range: Option<Db>,
}

impl GainTags {
    /// The gains for a programme of this loudness; empty for silence. No gain raises the peak above
    /// `ceiling`.
    #[must_use]
    pub fn from_loudness(
        loudness: &LoudnessSummary,
        rule: Lufs,
        reference: Lufs,
        ceiling: Option<Db>,
    ) -> Self {
        let peak = loudness.true_peak.or(loudness.sample_peak);
        Self {
            gain: limit_gain(reference - rule, peak, ceiling),
            r128: limit_gain(Lufs::new(R128_REFERENCE) - rule, peak, ceiling),
            peak: peak.map(Db::amplitude),
            range: loudness.range,
        }
    }
}

/// The loudness of a file by its tags.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TaggedGain {
    /// The loudness of the file.
    pub loudness: Lufs,
    /// Its true or sample peak.
    pub peak: Option<Db>,
}

/// The loudness that the track gain of `file` stands for; `None` without a valid one.
#[must_use]
pub fn read_gain(file: &mut File) -> Option<TaggedGain> {
    let container = TagContainer::read(file).ok()?;
    let number = |name| container.get(name).as_deref().and_then(parse_leading_number);
    if let Some(steps) = container.is_opus().then(|| number(R128_TRACK_TAG)).flatten() {
        let loudness = Lufs::new(R128_REFERENCE - steps / 256.0);
        return is_plausible(loudness).then_some(TaggedGain { loudness, peak: None });
    }
    let reference = number(REFERENCE_TAG).unwrap_or(REPLAYGAIN_REFERENCE);
    let loudness = Lufs::new(reference - number(TRACK_TAGS[0])?);
    let peak = number(TRACK_TAGS[1]).filter(|peak| *peak > 0.0).map(Db::from_amplitude);
    is_plausible(loudness).then_some(TaggedGain { loudness, peak })
}

/// Whether sound can have this loudness.
fn is_plausible(loudness: Lufs) -> bool {
    (-70.0..=10.0).contains(&loudness.get())
}

/// Limits a gain so that the peak stays below the ceiling.
#[must_use]
pub fn limit_gain(gain: Db, peak: Option<Db>, ceiling: Option<Db>) -> Db {
    match (peak, ceiling) {
        (Some(peak), Some(ceiling)) => Db::new(gain.get().min(ceiling.get() - peak.get())),
        _ => gain,
    }
}

/// The tags of `path` that differ from the request. Writes nothing.
///
/// # Errors
/// [`TagError`].
pub fn changes(path: &Path, request: &TagRequest) -> Result<Vec<TagChange>, TagError> {
    let container = TagContainer::read(&mut open(path)?)?;
    Ok(container.changes(request))
}

/// Writes the tags of `path`, and returns the changes; a file without changes is not touched.
///
/// The file is replaced by a copy in the same directory, which is complete on disk before the
/// rename. The mode is kept, and the owner where the system permits. The modification time is new,
/// so that players notice; a hard link becomes a separate file. A symbolic link is followed.
///
/// # Errors
/// [`TagError`]; the file is then unchanged.
pub fn write(path: &Path, request: &TagRequest) -> Result<Vec<TagChange>, TagError> {
    write_copy(path, request).map_err(|error| match error {
        TagError::Unsupported | TagError::Damaged | TagError::VerifyFailed
            if File::open(path).is_ok_and(|file| has_wrong_sizes(&file)) =>
        {
            TagError::WrongSizes
        }
        error => error,
    })
}

fn write_copy(path: &Path, request: &TagRequest) -> Result<Vec<TagChange>, TagError> {
    let path = path.canonicalize()?;
    let mut original = open(&path)?;
    let mut container = TagContainer::read(&mut original)?;
    let changes = container.changes(request);
    if changes.is_empty() {
        return Ok(changes);
    }
    let mut copy = Replacement::create(&path, original.metadata()?)?;
    copy.copy_original()?;
    container.apply(&changes);
    container.write(copy.file())?;
    let written = TagContainer::read(copy.file())?;
    if !written.changes(request).is_empty() || !decode_to_same_format(copy.path(), &path) {
        return Err(TagError::VerifyFailed);
    }
    copy.commit()?;
    Ok(changes)
}

/// Whether both files decode to the same rate, channels, length and codec.
fn decode_to_same_format(copy: &Path, original: &Path) -> bool {
    let format = |path| {
        let decoder = FileDecoder::open(path, FileDecodeOptions::default()).ok()?;
        let info = decoder.info();
        Some((info.rate, info.layout, info.frames, info.codec))
    };
    format(copy) == format(original)
}

/// Whether `path` already has all tags that a run with these options would write, so that it need
/// not be measured.
///
/// # Errors
/// [`TagError`].
pub fn is_complete(path: &Path, album: bool, reference: Lufs) -> Result<bool, TagError> {
    let container = TagContainer::read(&mut open(path)?)?;
    let says = |name| container.get(name).is_some_and(|text| parse_leading_number(&text).is_some());
    if container.is_opus() {
        return Ok(says(R128_TRACK_TAG) && (!album || says(R128_ALBUM_TAG)));
    }
    // Files of other programs seldom name their reference; it is then that of ReplayGain.
    let named = container.get(REFERENCE_TAG).map(|text| parse_leading_number(&text));
    let same = named.map_or_else(
        || is_default(reference),
        |named| named.is_some_and(|named| (named - reference.get()).abs() < 0.01),
    );
    let track = says(TRACK_TAGS[0]) && says(TRACK_TAGS[1]);
    let same =
        same && ![TRACK_TAGS, ALBUM_TAGS].concat().iter().any(|tag| container.has_doubles(tag));
    Ok(same && track && (!album || (says(ALBUM_TAGS[0]) && says(ALBUM_TAGS[1]))))
}

fn is_default(reference: Lufs) -> bool {
    (reference.get() - REPLAYGAIN_REFERENCE).abs() < 0.01
}

fn open(path: &Path) -> Result<File, TagError> {
    Ok(File::open(path)?)
}

impl TagContainer {
    fn changes(&self, request: &TagRequest) -> Vec<TagChange> {
        let mut changes = Vec::new();
        let mut set = |name, new: Option<String>| {
            let mut old = self.get(name);
            if old != new || self.has_doubles(name) {
                if old == new {
                    old = self.ape_text(name).or(old);
                }
                changes.push(TagChange { name, old, new });
            }
        };
        if self.is_opus() {
            set(R128_TRACK_TAG, Some(q78(request.track.r128)));
            if let Some(album) = request.album {
                set(R128_ALBUM_TAG, Some(q78(album.r128)));
            }
            for name in TRACK_TAGS.into_iter().chain(ALBUM_TAGS).chain([REFERENCE_TAG]) {
                set(name, None);
            }
            return changes;
        }
        let reference = format!("{:.2} LUFS", round_to_hundredths(request.reference.get()));
        // An album gain with another reference would not match the new track gain.
        let foreign = self.get(REFERENCE_TAG).is_some_and(|old| old != reference);
        for (names, volume) in [(TRACK_TAGS, Some(request.track)), (ALBUM_TAGS, request.album)] {
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
        set(REFERENCE_TAG, Some(reference));
        changes
    }
}

fn decibels(value: Db) -> String {
    format!("{:.2} dB", round_to_hundredths(value.get()))
}

/// RFC 7845: a decimal number of 1/256 dB, -32768 to 32767.
#[allow(clippy::cast_possible_truncation, reason = "clamped")]
fn q78(gain: Db) -> String {
    let steps = (gain.get() * 256.0).round();
    (steps.clamp(f64::from(i16::MIN), f64::from(i16::MAX)) as i16).to_string()
}

/// Rounded to two decimals, without negative zero.
fn round_to_hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0 + 0.0
}

/// The number at the beginning of a tag.
fn parse_leading_number(text: &str) -> Option<f64> {
    let number: f64 = text.split_whitespace().next()?.parse().ok()?;
    number.is_finite().then_some(number)
}

/// Gain, peak, range.
const TRACK_TAGS: [&str; 3] =
    ["REPLAYGAIN_TRACK_GAIN", "REPLAYGAIN_TRACK_PEAK", "REPLAYGAIN_TRACK_RANGE"];
const ALBUM_TAGS: [&str; 3] =
    ["REPLAYGAIN_ALBUM_GAIN", "REPLAYGAIN_ALBUM_PEAK", "REPLAYGAIN_ALBUM_RANGE"];
const REFERENCE_TAG: &str = "REPLAYGAIN_REFERENCE_LOUDNESS";
const R128_TRACK_TAG: &str = "R128_TRACK_GAIN";
const R128_ALBUM_TAG: &str = "R128_ALBUM_GAIN";

/// The reference loudness of R128 tags (RFC 7845) and of ReplayGain 2.0.
const R128_REFERENCE: f64 = -23.0;
const REPLAYGAIN_REFERENCE: f64 = -18.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn loudness(integrated: f64, true_peak: Option<f64>) -> LoudnessSummary {
        LoudnessSummary {
            integrated: Some(Lufs::new(integrated)),
            sample_peak: Some(Db::new(-3.0)),
            true_peak: true_peak.map(Db::new),
            ..LoudnessSummary::default()
        }
    }

    fn gains(integrated: f64, true_peak: Option<f64>, ceiling: Option<f64>) -> [f64; 2] {
        let it = loudness(integrated, true_peak);
        let volume = GainTags::from_loudness(
            &it,
            Lufs::new(integrated),
            Lufs::new(REPLAYGAIN_REFERENCE),
            ceiling.map(Db::new),
        );
        [volume.gain.get(), volume.r128.get()]
    }

    #[test]
    fn gains_keep_peaks_below_the_ceiling_and_are_never_raised_to_it() {
        let near =
            |[a, b]: [f64; 2], [c, d]: [f64; 2]| (a - c).abs() < 1e-9 && (b - d).abs() < 1e-9;
        assert!(near(gains(-28.0, Some(-4.0), None), [10.0, 5.0]));
        assert!(near(gains(-28.0, Some(-4.0), Some(-1.0)), [3.0, 3.0]));
        assert!(near(gains(-28.0, Some(1.0), Some(-1.0)), [-2.0, -2.0]));
        assert!(near(gains(-10.0, Some(-4.0), Some(-1.0)), [-8.0, -13.0]));
        // Without true peaks the sample peaks count.
        assert!(near(gains(-28.0, None, Some(-1.0)), [2.0, 2.0]));
    }

    #[test]
    fn values_are_formatted_as_the_standards_require() {
        assert_eq!(decibels(Db::new(-0.001)), "0.00 dB");
        assert_eq!(decibels(Db::new(-7.126)), "-7.13 dB");
        assert_eq!(
            [-7.5625, 0.0, 300.0, -300.0].map(|db| q78(Db::new(db))),
            ["-1936", "0", "32767", "-32768"]
        );
        assert_eq!(parse_leading_number("-18.00 LUFS"), Some(-18.0));
        assert_eq!(
            [
                parse_leading_number(""),
                parse_leading_number("loud"),
                parse_leading_number("NaN dB")
            ],
            [None; 3]
        );
    }
}
