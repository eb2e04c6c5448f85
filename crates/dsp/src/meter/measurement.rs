//! The measurement of a programme, independent of the meter: to be stored, sent and merged.

use core::fmt;

use aulos_core::{Db, Lufs};

use super::gate::{self, BINS, GatedEnergies};
use super::windows::{MOMENTARY_HOPS, SHORT_TERM_HOPS};
use super::{Meter, loudness};

/// The measurement of a programme or of a piece of it.
///
/// An album is the merge of its tracks, in any order. A programme is the join of its pieces, if
/// each began with [`Meter::begin_piece`] and [`Meter::seed`]. What was not measured reads as
/// silence, or 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    blocks: GatedEnergies,
    ranges: GatedEnergies,
    /// Mean squares.
    max_momentary: f64,
    max_short_term: f64,
    /// Sample peak and true peak of each channel.
    peaks: Vec<[f64; 2]>,
    rejected: u64,
    frames: u64,
}

impl Meter {
    /// The measurement of the programme so far, to be merged, stored or sent.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a few thousand frames")]
    pub fn measurement(&self) -> Measurement {
        let maxima = self.windows.as_ref().and_then(|windows| windows.maxima()).unwrap_or_default();
        let peaks = |channel| {
            let sample = self.sample_peak(channel).unwrap_or(0.0);
            [sample, self.true_peak(channel).unwrap_or(0.0)]
        };
        Measurement {
            blocks: self.blocks.clone(),
            ranges: self.ranges.clone(),
            max_momentary: maxima.momentary / (MOMENTARY_HOPS * self.hop) as f64,
            max_short_term: maxima.short_term / (SHORT_TERM_HOPS * self.hop) as f64,
            peaks: (0..self.channels()).map(peaks).collect(),
            rejected: self.rejected,
            frames: self.frames,
        }
    }
}

impl Measurement {
    /// Adds another measurement to this one. Nothing is dropped, whatever the history's limit.
    ///
    /// # Errors
    /// [`IncompatibleHistories`] if one is exact and the other a histogram; nothing has changed
    /// then.
    pub fn merge(&mut self, other: &Self) -> Result<(), IncompatibleHistories> {
        if !self.blocks.is_compatible(&other.blocks) || !self.ranges.is_compatible(&other.ranges) {
            return Err(IncompatibleHistories);
        }
        self.blocks.merge(&other.blocks);
        self.ranges.merge(&other.ranges);
        self.max_momentary = self.max_momentary.max(other.max_momentary);
        self.max_short_term = self.max_short_term.max(other.max_short_term);
        self.peaks.resize(self.peaks.len().max(other.peaks.len()), [0.0; 2]);
        for (ours, theirs) in self.peaks.iter_mut().zip(&other.peaks) {
            *ours = [ours[0].max(theirs[0]), ours[1].max(theirs[1])];
        }
        self.rejected += other.rejected;
        self.frames += other.frames;
        Ok(())
    }

    /// Joins the pieces of a programme; `None` if there are none. In order, the history is that of
    /// the whole, and so are its sums to the last digit.
    ///
    /// # Errors
    /// [`IncompatibleHistories`] if some are exact and others histograms.
    pub fn join(
        pieces: impl IntoIterator<Item = Self>,
    ) -> Result<Option<Self>, IncompatibleHistories> {
        let mut pieces = pieces.into_iter();
        let Some(mut whole) = pieces.next() else { return Ok(None) };
        for piece in pieces {
            whole.merge(&piece)?;
        }
        Ok(Some(whole))
    }

    /// Integrated loudness; [`Lufs::SILENCE`] if nothing passes the gates.
    #[must_use]
    pub fn integrated(&self) -> Lufs {
        let energy = gate::integrated([&self.blocks].into_iter());
        energy.map_or(Lufs::SILENCE, |energy| Lufs::new(loudness(energy)))
    }

    /// The relative threshold of integrated loudness; -70 LUFS if there was only silence.
    #[must_use]
    pub fn relative_threshold(&self) -> Lufs {
        let energy = gate::relative_gate([&self.blocks].into_iter());
        Lufs::new(energy.map_or(-70.0, loudness))
    }

    /// Loudness range in LU. Allocates.
    #[must_use]
    pub fn range(&self) -> Db {
        Db::new(gate::range([&self.ranges].into_iter()))
    }

    /// The maximum momentary loudness.
    #[must_use]
    pub fn max_momentary(&self) -> Lufs {
        Lufs::new(loudness(self.max_momentary))
    }

    /// The maximum short-term loudness.
    #[must_use]
    pub fn max_short_term(&self) -> Lufs {
        Lufs::new(loudness(self.max_short_term))
    }

    /// The maximum sample of all channels, full scale being 1.0.
    #[must_use]
    pub fn sample_peak(&self) -> f64 {
        self.peaks.iter().map(|peaks| peaks[0]).fold(0.0, f64::max)
    }

    /// The maximum value at or between the samples of all channels.
    #[must_use]
    pub fn true_peak(&self) -> f64 {
        self.peaks.iter().map(|peaks| peaks[1]).fold(0.0, f64::max)
    }

    /// Number of frames measured.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Number of samples that were not finite.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    /// Serializes the measurement, little-endian, with a version in front.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend(self.rejected.to_le_bytes());
        bytes.extend(self.frames.to_le_bytes());
        bytes.extend(self.max_momentary.to_le_bytes());
        bytes.extend(self.max_short_term.to_le_bytes());
        bytes.extend((self.peaks.len() as u64).to_le_bytes());
        bytes.extend(self.peaks.iter().flatten().flat_map(|peak| peak.to_le_bytes()));
        for list in [&self.blocks, &self.ranges] {
            match list {
                GatedEnergies::Exact { values, .. } => {
                    bytes.push(EXACT);
                    bytes.extend((values.len() as u64).to_le_bytes());
                    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
                }
                GatedEnergies::Histogram(counts) => {
                    bytes.push(HISTOGRAM);
                    bytes.extend((counts.len() as u64).to_le_bytes());
                    bytes.extend(counts.iter().flat_map(|count| count.to_le_bytes()));
                }
            }
        }
        bytes
    }

    /// Parses the result of [`Measurement::to_bytes`].
    ///
    /// # Errors
    /// [`MalformedMeasurement`] for anything else; allocates no more memory than `bytes` are long.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MalformedMeasurement> {
        let mut reader = ByteReader { bytes };
        if reader.byte()? != VERSION {
            return Err(MalformedMeasurement);
        }
        let (rejected, frames) = (reader.count()?, reader.count()?);
        let (max_momentary, max_short_term) = (reader.magnitude()?, reader.magnitude()?);
        let channels = reader.length(16)?;
        if channels > aulos_core::MAX_CHANNELS {
            return Err(MalformedMeasurement);
        }
        let mut peaks = Vec::with_capacity(channels);
        for _ in 0..channels {
            peaks.push([reader.magnitude()?, reader.magnitude()?]);
        }
        let (blocks, ranges) = (reader.energies()?, reader.energies()?);
        if !reader.bytes.is_empty() {
            return Err(MalformedMeasurement);
        }
        Ok(Self { blocks, ranges, max_momentary, max_short_term, peaks, rejected, frames })
    }
}

impl GatedEnergies {
    fn is_compatible(&self, other: &Self) -> bool {
        matches!(self, Self::Histogram(_)) == matches!(other, Self::Histogram(_))
    }

    fn merge(&mut self, other: &Self) {
        match (self, other) {
            (Self::Exact { values, .. }, Self::Exact { values: more, .. }) => values.extend(more),
            (Self::Histogram(counts), Self::Histogram(more)) => {
                for (count, more) in counts.iter_mut().zip(more) {
                    *count = count.saturating_add(*more);
                }
            }
            // `is_compatible` was checked before.
            _ => {}
        }
    }
}

struct ByteReader<'a> {
    bytes: &'a [u8],
}

impl ByteReader<'_> {
    fn word(&mut self) -> Result<[u8; 8], MalformedMeasurement> {
        let (word, rest) = self.bytes.split_first_chunk().ok_or(MalformedMeasurement)?;
        self.bytes = rest;
        Ok(*word)
    }

    fn byte(&mut self) -> Result<u8, MalformedMeasurement> {
        let (&byte, rest) = self.bytes.split_first().ok_or(MalformedMeasurement)?;
        self.bytes = rest;
        Ok(byte)
    }

    /// A counter; limited so that sums of a few thousand cannot overflow.
    fn count(&mut self) -> Result<u64, MalformedMeasurement> {
        let count = u64::from_le_bytes(self.word()?);
        if count >= 1 << 48 { Err(MalformedMeasurement) } else { Ok(count) }
    }

    /// Number of following items of `size` bytes; an error if fewer bytes follow.
    fn length(&mut self, size: usize) -> Result<usize, MalformedMeasurement> {
        let count = usize::try_from(self.count()?).map_err(|_| MalformedMeasurement)?;
        let fits = count <= self.bytes.len() / size;
        fits.then_some(count).ok_or(MalformedMeasurement)
    }

    /// An energy or an amplitude; a peak may be infinite.
    fn magnitude(&mut self) -> Result<f64, MalformedMeasurement> {
        let value = f64::from_le_bytes(self.word()?);
        if value >= 0.0 { Ok(value) } else { Err(MalformedMeasurement) }
    }

    fn energies(&mut self) -> Result<GatedEnergies, MalformedMeasurement> {
        let kind = self.byte()?;
        let count = self.length(8)?;
        match kind {
            EXACT => {
                let values = (0..count).map(|_| self.magnitude()).collect::<Result<_, _>>()?;
                Ok(GatedEnergies::Exact { values, limit: usize::MAX })
            }
            HISTOGRAM if count == BINS => {
                let counts = (0..count).map(|_| self.count()).collect::<Result<_, _>>()?;
                Ok(GatedEnergies::Histogram(counts))
            }
            _ => Err(MalformedMeasurement),
        }
    }
}

const VERSION: u8 = 1;
const EXACT: u8 = 0;
const HISTOGRAM: u8 = 1;

/// Error: an exact history and a histogram cannot be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncompatibleHistories;

impl fmt::Display for IncompatibleHistories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an exact history and a histogram cannot be merged")
    }
}

impl core::error::Error for IncompatibleHistories {}

/// Error: the bytes are not a measurement, or one of a later version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedMeasurement;

impl fmt::Display for MalformedMeasurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a loudness measurement, or one of an unsupported version")
    }
}

impl core::error::Error for MalformedMeasurement {}
