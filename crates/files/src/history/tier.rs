//! The resolutions in which history is kept, and for how long.

use std::ops::RangeInclusive;

/// Days for which the coarsest tier is kept: from its finer neighbour's to ten years.
pub const KEEP_DAYS: RangeInclusive<u32> = 31..=3_660;

/// Two years: this year can be compared with the last.
pub const DEFAULT_KEEP_DAYS: u32 = 731;

/// A resolution of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HistoryTier {
    /// A record a second, for two days.
    Second,
    /// A record each ten seconds, for a week.
    TenSeconds,
    /// A record a minute, for a month.
    Minute,
    /// A record each quarter of an hour, for as long as is configured.
    Quarter,
}

impl HistoryTier {
    /// All tiers, the finest first.
    pub const ALL: [Self; 4] = [Self::Second, Self::TenSeconds, Self::Minute, Self::Quarter];

    /// Seconds of a record.
    #[must_use]
    pub const fn step_s(self) -> u32 {
        match self {
            Self::Second => 1,
            Self::TenSeconds => 10,
            Self::Minute => 60,
            Self::Quarter => 900,
        }
    }

    /// Records of a block. A block of the coarsest tier is half a day, so that no block crosses
    /// midnight.
    pub(super) const fn block_records(self) -> usize {
        match self {
            Self::Quarter => 48,
            _ => 60,
        }
    }

    /// Seconds of a block.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "at most 60 records")]
    pub const fn block_s(self) -> u32 {
        self.step_s() * self.block_records() as u32
    }

    /// Its number in files.
    pub(super) const fn number(self) -> u8 {
        self as u8
    }

    /// The name of its folder.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "1s",
            Self::TenSeconds => "10s",
            Self::Minute => "1min",
            Self::Quarter => "15min",
        }
    }

    /// The tier of which its records are made.
    pub(super) const fn finer(self) -> Option<Self> {
        match self {
            Self::Second => None,
            Self::TenSeconds => Some(Self::Second),
            Self::Minute => Some(Self::TenSeconds),
            Self::Quarter => Some(Self::Minute),
        }
    }

    /// The tier that is made of its records.
    pub(super) const fn coarser(self) -> Option<Self> {
        match self {
            Self::Second => Some(Self::TenSeconds),
            Self::TenSeconds => Some(Self::Minute),
            Self::Minute => Some(Self::Quarter),
            Self::Quarter => None,
        }
    }

    /// Day files that are kept, with that of today. `keep_days` is for the coarsest tier.
    pub(super) const fn files_kept(self, keep_days: u32) -> usize {
        match self {
            Self::Second => 3,
            Self::TenSeconds => 8,
            Self::Minute => 31,
            Self::Quarter => keep_days as usize + 1,
        }
    }

    /// The start of the block that contains a time.
    pub(super) const fn block_start(self, time: u32) -> u32 {
        time - time % self.block_s()
    }

    /// The coarsest tier with records no longer than `step_s`; the finest, if all are longer.
    pub(super) fn for_step(step_s: f64) -> Self {
        let fits = |tier: &&Self| f64::from(tier.step_s()) <= step_s;
        Self::ALL.iter().rev().find(fits).copied().unwrap_or(Self::Second)
    }
}

/// Seconds of a day, in Unix time.
pub(super) const DAY_S: u32 = 86_400;

/// The day files to delete: all but the newest `kept` up to `today`. Files of later days come from
/// a clock that was wrong, now or then; as many of them stay, so that a clock which starts in 1970
/// deletes nothing.
pub(super) fn expired(days: &[u32], today: u32, kept: usize) -> Vec<u32> {
    let oldest_beyond = |mut some: Vec<u32>| {
        some.sort_unstable();
        some.truncate(some.len().saturating_sub(kept));
        some
    };
    let (past, later) = days.iter().partition::<Vec<u32>, _>(|day| **day <= today);
    [oldest_beyond(past), oldest_beyond(later)].concat()
}
