//! What is kept of a span of time.

/// A level or loudness in hundredths; the least value is silence, or that there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HistoryFigure(i16);

impl HistoryFigure {
    /// Silence, or no value.
    pub const NONE: Self = Self(i16::MIN);

    /// A value in LUFS, LU or dB, limited to ±327.67; what is not finite is none.
    #[must_use]
    pub fn new(value: Option<f64>) -> Self {
        // The value is limited to the range of the type.
        #[allow(clippy::cast_possible_truncation, reason = "see above")]
        let hundredths = |value: f64| (value * 100.0).round().clamp(-32_767.0, 32_767.0) as i16;
        value.filter(|value| value.is_finite()).map_or(Self::NONE, |value| Self(hundredths(value)))
    }

    /// The value; `None` is silence, or none.
    #[must_use]
    pub fn get(self) -> Option<f64> {
        (self != Self::NONE).then(|| f64::from(self.0) / 100.0)
    }

    /// Its bytes in a record.
    pub(super) const fn to_bytes(self) -> [u8; 2] {
        self.0.to_le_bytes()
    }

    /// The figure of these bytes.
    pub(super) const fn from_bytes(bytes: [u8; 2]) -> Self {
        Self(i16::from_le_bytes(bytes))
    }
}

/// What happened in a span of time, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryFlags(pub u8);

impl HistoryFlags {
    /// Another source than the first choice was on air.
    pub const FALLBACK: Self = Self(1);
    /// No source had sound; the last resort was on air.
    pub const LAST_RESORT: Self = Self(1 << 1);
    /// The station sent silence.
    pub const SILENT: Self = Self(1 << 2);
    /// The station did not run.
    pub const STOPPED: Self = Self(1 << 3);
    /// The true peak was above the station's ceiling.
    pub const OVER: Self = Self(1 << 4);
    /// A recorder of the station wrote a file.
    pub const RECORDING: Self = Self(1 << 5);

    /// Every flag with its name, in the order of the bits.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("fallback", Self::FALLBACK),
        ("last_resort", Self::LAST_RESORT),
        ("silent", Self::SILENT),
        ("stopped", Self::STOPPED),
        ("over", Self::OVER),
        ("recording", Self::RECORDING),
    ];

    /// These flags, and `other` if `is_set`.
    #[must_use]
    pub const fn with(self, other: Self, is_set: bool) -> Self {
        if is_set { Self(self.0 | other.0) } else { self }
    }

    /// Whether all flags of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The measurements of one station during a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryRecord {
    /// Highest momentary loudness, in LUFS.
    pub momentary_max: HistoryFigure,
    /// Lowest momentary loudness, in LUFS; none is silence.
    pub momentary_min: HistoryFigure,
    /// Mean energy of short-term loudness, in LUFS.
    pub short_term: HistoryFigure,
    /// Last integrated loudness, in LUFS.
    pub integrated: HistoryFigure,
    /// Last loudness range, in LU.
    pub range: HistoryFigure,
    /// Highest true peak, in dBTP.
    pub true_peak: HistoryFigure,
    /// Mean gain of the normalizer, in dB.
    pub gain: HistoryFigure,
    /// Everything that happened.
    pub flags: HistoryFlags,
    /// Number of parts that were measured: samples of a second, else records of the finer tier.
    /// 0 is a span without a measurement.
    pub parts: u8,
}

impl HistoryRecord {
    /// Bytes of a record.
    pub(super) const BYTES: usize = 16;

    /// A span in which nothing was measured.
    pub const ABSENT: Self = Self {
        momentary_max: HistoryFigure::NONE,
        momentary_min: HistoryFigure::NONE,
        short_term: HistoryFigure::NONE,
        integrated: HistoryFigure::NONE,
        range: HistoryFigure::NONE,
        true_peak: HistoryFigure::NONE,
        gain: HistoryFigure::NONE,
        flags: HistoryFlags(0),
        parts: 0,
    };

    /// Whether something was measured.
    #[must_use]
    pub const fn is_present(&self) -> bool {
        self.parts > 0
    }

    /// The record of a span from those of its parts, in their order. Parts count by how much of
    /// them was measured.
    #[must_use]
    pub fn combine<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all = Self::ABSENT;
        let (mut energy, mut measured) = (0.0, 0.0);
        let (mut gain, mut gained) = (0.0, 0.0);
        for part in parts.into_iter().filter(|part| part.is_present()) {
            let weight = f64::from(part.parts);
            measured += weight;
            energy += weight * part.short_term.get().map_or(0.0, |s| 10f64.powf(s / 10.0));
            if let Some(db) = part.gain.get() {
                gain += weight * db;
                gained += weight;
            }
            let is_first = !all.is_present();
            all.momentary_min = match is_first {
                true => part.momentary_min,
                false => all.momentary_min.min(part.momentary_min),
            };
            all.momentary_max = all.momentary_max.max(part.momentary_max);
            all.true_peak = all.true_peak.max(part.true_peak);
            (all.integrated, all.range) = (part.integrated, part.range);
            all.flags = all.flags.with(part.flags, true);
            all.parts = all.parts.saturating_add(1);
        }
        if measured > 0.0 {
            // Silence has no logarithm and becomes none.
            all.short_term = HistoryFigure::new(Some(10.0 * (energy / measured).log10()));
        }
        all.gain = HistoryFigure::new((gained > 0.0).then(|| gain / gained));
        all
    }

    /// Of two records of the same span the one that knows more; of equal ones the later, `other`.
    #[must_use]
    pub const fn merged(self, other: Self) -> Self {
        if other.parts >= self.parts && other.parts > 0 { other } else { self }
    }

    /// The record as bytes: seven figures, flags, parts.
    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (word, figure) in bytes.chunks_exact_mut(2).zip(self.figures()) {
            word.copy_from_slice(&figure.to_bytes());
        }
        bytes[14..].copy_from_slice(&[self.flags.0, self.parts]);
        bytes
    }

    /// The record of these bytes; all of them are valid.
    pub(super) fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| HistoryFigure::from_bytes([bytes[2 * at], bytes[2 * at + 1]]);
        Self {
            momentary_max: word(0),
            momentary_min: word(1),
            short_term: word(2),
            integrated: word(3),
            range: word(4),
            true_peak: word(5),
            gain: word(6),
            flags: HistoryFlags(bytes[14]),
            parts: bytes[15],
        }
    }

    /// The figures, in the order of [`FIGURE_NAMES`](Self::FIGURE_NAMES).
    #[must_use]
    pub const fn figures(&self) -> [HistoryFigure; 7] {
        [
            self.momentary_max,
            self.momentary_min,
            self.short_term,
            self.integrated,
            self.range,
            self.true_peak,
            self.gain,
        ]
    }

    /// The names of the figures, with their units.
    pub const FIGURE_NAMES: [&'static str; 7] = [
        "momentary_max_lufs",
        "momentary_min_lufs",
        "short_term_lufs",
        "integrated_lufs",
        "loudness_range_lu",
        "true_peak_dbtp",
        "gain_db",
    ];
}
