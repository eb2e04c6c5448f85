//! The history of all stations in a folder: `TIER/YYYY-MM-DD.ah` and `tail`.
//!
//! All methods wait for the disk and belong on a thread of their own. What the disk does not take
//! waits in memory and is written with the next blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::{fs, mem};

use aulos_core::Utc;
use aulos_io::disk::replace;

use super::block::{self, Block, Content};
use super::day_file::{DayFile, enter};
use super::query::{HistoryRange, Series};
use super::record::HistoryRecord;
use super::stack::{TierStack, coarsen};
use super::tier::{DAY_S, HistoryTier, expired};

/// Stations with a history at the same time; records of more are dropped and counted.
pub const MAX_HISTORY_STATIONS: usize = 2_048;

/// Blocks that wait for a disk that takes none: 8 MB, two hours of ten stations.
const MAX_PENDING: usize = 8_192;

/// A station without records for this time is forgotten in memory, not on the disk.
const FORGET_AFTER_S: u32 = 86_400;

/// Day files whose end is read at the start, in each tier.
const FILES_RECOVERED: usize = 2;

/// What happened to the store since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryStats {
    /// Bytes written into day files and tails.
    pub bytes_written: u64,
    /// Writes that failed; they are tried again.
    pub write_errors: u64,
    /// Blocks given up because the disk has not taken any for too long, and records of stations
    /// above [`MAX_HISTORY_STATIONS`].
    pub dropped: u64,
    /// Blocks that were passed over while reading because they are damaged.
    pub blocks_damaged: u64,
    /// Day files deleted because of their age.
    pub files_deleted: u64,
}

/// A record with its time and station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryPoint<'a> {
    /// Unix time of its first second.
    pub time: u32,
    /// The station.
    pub station: &'a str,
    /// What was measured.
    pub record: HistoryRecord,
}

/// The history in a folder. One process writes to it; others may read and copy it meanwhile.
#[derive(Debug)]
pub struct HistoryStore {
    dir: PathBuf,
    keep_days: u32,
    stations: BTreeMap<String, Station>,
    files: BTreeMap<(HistoryTier, u32), DayFile>,
    /// Blocks to write, in the order of time.
    pending: Vec<(HistoryTier, String, Block)>,
    /// The day for which files were deleted last.
    expired_on: Option<u32>,
    stats: HistoryStats,
}

#[derive(Debug, Default)]
struct Station {
    stack: TierStack,
    last: u32,
}

impl HistoryStore {
    /// The history in `dir`, which need not exist. The coarsest tier is kept for `keep_days`. Reads
    /// nothing.
    #[must_use]
    pub const fn new(dir: PathBuf, keep_days: u32) -> Self {
        let stats = HistoryStats {
            bytes_written: 0,
            write_errors: 0,
            dropped: 0,
            blocks_damaged: 0,
            files_deleted: 0,
        };
        Self {
            dir,
            keep_days,
            stations: BTreeMap::new(),
            files: BTreeMap::new(),
            pending: Vec::new(),
            expired_on: None,
            stats,
        }
    }

    /// Continues where the last process ended, however it ended: coarser tiers that lack blocks are
    /// rebuilt from the finer ones of the last two days, and the tail is read.
    ///
    /// # Errors
    /// The first error of the file system; what could be read is used all the same.
    pub fn recover(&mut self, now: u32) -> io::Result<()> {
        let mut result = Ok(());
        // From the coarsest tier, so that what a finer one adds to it comes in the order of time.
        for tier in HistoryTier::ALL.into_iter().rev() {
            let recovered = self.recover_tier(tier, now);
            result = result.and(recovered);
        }
        let recovered = self.recover_tail();
        result.and(recovered)
    }

    /// Takes the record of a second.
    pub fn add(&mut self, point: HistoryPoint<'_>) {
        self.push(HistoryTier::Second, point.station, point.time, point.record);
    }

    /// Writes the blocks that have ended: one write and one sync for each tier that has any, so one
    /// a minute and at times more. Deletes files of days that are not kept.
    ///
    /// # Errors
    /// The first error of the file system; what was not written stays for the next call.
    pub fn write(&mut self, now: u32) -> io::Result<()> {
        self.stations.retain(|_, station| {
            station.stack.close_ended(now);
            station.stack.has_complete() || now.saturating_sub(station.last) < FORGET_AFTER_S
        });
        self.take_complete();
        // Only where something can be written, so that a disk in trouble is left alone.
        if self.write_pending()? || self.expired_on != Some(now / DAY_S) {
            self.expired_on = Some(now / DAY_S);
            self.expire(now / DAY_S)?;
        }
        Ok(())
    }

    /// Writes the seconds that are in no file, which the next [`recover`](Self::recover) reads.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write_tail(&mut self) -> io::Result<()> {
        let tier = HistoryTier::Second;
        let mut bytes = block::head(tier).to_vec();
        let open = self.stations.iter().filter_map(|(name, station)| {
            Some((name, station.stack.open_seconds()?)).filter(|(name, _)| is_storable(name))
        });
        for (number, (name, open)) in (0..=u16::MAX).zip(open) {
            block::push_name(&mut bytes, tier, number, name);
            block::push_records(&mut bytes, tier, number, open);
        }
        let written = fs::create_dir_all(&self.dir)
            .and_then(|()| replace(&self.dir.join(TAIL), 0o640, &bytes));
        match &written {
            Ok(()) => self.stats.bytes_written += bytes.len() as u64,
            Err(_) => self.stats.write_errors += 1,
        }
        written
    }

    /// Writes all seconds into day files and deletes the tail, at the end of the process.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn finish(&mut self, now: u32) -> io::Result<()> {
        for station in self.stations.values_mut() {
            // The coarser blocks are made of these at the next start.
            station.stack.close_seconds();
        }
        self.write(now)?;
        match fs::remove_file(self.dir.join(TAIL)) {
            Err(error) if !is_harmless(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// What was measured of a station in a span of time, with what is not on the disk yet.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn query(&mut self, station: &str, range: &HistoryRange) -> io::Result<Series> {
        let mut days = BTreeMap::new();
        for tier in HistoryTier::ALL {
            days.insert(tier, self.days(tier)?);
        }
        let oldest = |tier| days.get(&tier)?.first().map(|day| day.saturating_mul(DAY_S));
        let tier = range.tier(oldest);
        let records = self.records(tier, station, (range.start(tier), range.to()))?;
        Ok(Series::new(range, tier, &records))
    }

    /// The records of a tier by their times, from `from` to before `to`.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn records(
        &mut self,
        tier: HistoryTier,
        station: &str,
        span: (u32, u32),
    ) -> io::Result<BTreeMap<u32, HistoryRecord>> {
        let mut records = BTreeMap::new();
        let days = span.0 / DAY_S..=span.1 / DAY_S;
        for day in self.days(tier)?.into_iter().filter(|day| days.contains(day)) {
            let read = self.file(tier, day).read(station, span, &mut records);
            match read {
                // Not of this program, or deleted meanwhile: there is no history in it.
                Err(error) if is_harmless(&error) => {}
                other => other?,
            }
            self.stats.blocks_damaged += self.file(tier, day).take_damaged();
        }
        let pending = self.pending.iter().filter(|(of, name, _)| *of == tier && name == station);
        for (_, _, block) in pending {
            enter(&mut records, block.present(tier), span);
        }
        if let Some(Station { stack, .. }) = self.stations.get(station) {
            enter(&mut records, stack.unfinished(tier), span);
        }
        Ok(records)
    }

    /// The stations that have records of a tier on the disk.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn stations(&mut self, tier: HistoryTier) -> io::Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for day in self.days(tier)? {
            match self.file(tier, day).stations() {
                Ok(found) => names.extend(found.into_keys()),
                Err(error) if is_harmless(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(names)
    }

    /// What happened since the store was opened.
    #[must_use]
    pub const fn stats(&self) -> HistoryStats {
        self.stats
    }

    fn push(&mut self, tier: HistoryTier, name: &str, time: u32, record: HistoryRecord) {
        if !self.stations.contains_key(name) {
            if self.stations.len() >= MAX_HISTORY_STATIONS || !is_storable(name) {
                self.stats.dropped += 1;
                return;
            }
            self.stations.insert(name.to_owned(), Station::default());
        }
        if let Some(station) = self.stations.get_mut(name) {
            station.stack.push(tier, time, record);
            station.last = time;
        }
    }

    fn take_complete(&mut self) {
        for (name, station) in &mut self.stations {
            let complete = station.stack.take_complete();
            self.pending.extend(complete.into_iter().map(|(tier, one)| (tier, name.clone(), one)));
        }
        let surplus = self.pending.len().saturating_sub(MAX_PENDING);
        self.pending.drain(..surplus);
        self.stats.dropped += surplus as u64;
    }

    /// Whether a file was begun.
    fn write_pending(&mut self) -> io::Result<bool> {
        let mut groups: BTreeMap<(HistoryTier, u32), Vec<(String, Block)>> = BTreeMap::new();
        for (tier, name, block) in mem::take(&mut self.pending) {
            groups.entry((tier, block.start / DAY_S)).or_default().push((name, block));
        }
        let mut result = Ok(false);
        for ((tier, day), blocks) in groups {
            let is_new = self.file(tier, day).is_empty();
            let written = fs::create_dir_all(self.dir.join(tier.name()))
                .and_then(|()| self.file(tier, day).append(&blocks));
            match written {
                Ok(bytes) => {
                    self.stats.bytes_written += bytes;
                    result = result.map(|begun| begun || is_new);
                }
                Err(error) => {
                    self.stats.write_errors += 1;
                    let kept = blocks.into_iter().map(|(name, block)| (tier, name, block));
                    self.pending.extend(kept);
                    result = result.and(Err(error));
                }
            }
            self.stats.blocks_damaged += self.file(tier, day).take_damaged();
        }
        result
    }

    fn expire(&mut self, today: u32) -> io::Result<()> {
        for tier in HistoryTier::ALL {
            for day in expired(&self.days(tier)?, today, tier.files_kept(self.keep_days)) {
                self.files.remove(&(tier, day));
                match fs::remove_file(self.path(tier, day)) {
                    Ok(()) => self.stats.files_deleted += 1,
                    Err(error) if is_harmless(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        // An index is made again when a query needs it.
        self.files.retain(|(_, day), _| day.abs_diff(today) < 2);
        Ok(())
    }

    /// Completes a tier from the next finer one; the finest continues its last block.
    fn recover_tier(&mut self, tier: HistoryTier, now: u32) -> io::Result<()> {
        let mut ends: BTreeMap<String, u32> = BTreeMap::new();
        for (_, found) in self.newest(tier, now)? {
            for (name, end) in found {
                let known = ends.entry(name).or_default();
                *known = end.max(*known);
            }
        }
        let Some(finer) = tier.finer() else {
            for name in ends.into_keys() {
                let span = (tier.block_start(now), now.saturating_add(1));
                for (time, record) in self.disk_records(tier, &name, span)? {
                    self.push(tier, &name, time, record);
                }
            }
            return Ok(());
        };
        let files = self.newest(finer, now)?;
        let first = files.iter().map(|(day, _)| day.saturating_mul(DAY_S)).min().unwrap_or(now);
        let names: BTreeSet<String> =
            files.into_iter().flat_map(|(_, found)| found.into_keys()).collect();
        for name in names {
            let from = ends.get(&name).copied().unwrap_or(0).max(first);
            let missing = self.disk_records(finer, &name, (from, now.saturating_add(1)))?;
            for (time, record) in coarsen(tier, &missing) {
                self.push(tier, &name, time, record);
            }
        }
        Ok(())
    }

    /// The newest day files of a tier, each with its stations and the end of their last block.
    fn newest(
        &mut self,
        tier: HistoryTier,
        now: u32,
    ) -> io::Result<Vec<(u32, BTreeMap<String, u32>)>> {
        let days = self.days(tier)?.into_iter().filter(|day| *day <= now / DAY_S);
        let days: Vec<u32> = days.collect();
        let mut found = Vec::new();
        for day in days.into_iter().rev().take(FILES_RECOVERED) {
            match self.file(tier, day).stations() {
                Ok(stations) => found.push((day, stations)),
                Err(error) if is_harmless(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    fn disk_records(
        &mut self,
        tier: HistoryTier,
        name: &str,
        span: (u32, u32),
    ) -> io::Result<Vec<(u32, HistoryRecord)>> {
        if span.0 >= span.1 {
            return Ok(Vec::new());
        }
        Ok(self.records(tier, name, span)?.into_iter().collect())
    }

    fn recover_tail(&mut self) -> io::Result<()> {
        let tier = HistoryTier::Second;
        let bytes = match fs::read(self.dir.join(TAIL)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            read => read?,
        };
        let mut names = BTreeMap::new();
        let blocks = bytes.strip_prefix(&block::head(tier)).unwrap_or_default();
        for bytes in blocks.chunks_exact(block::block_bytes(tier)) {
            match block::parse(bytes, tier) {
                Some((number, Content::Name(name))) => drop(names.insert(number, name)),
                Some((number, Content::Records(block))) => {
                    let Some(name) = names.get(&number).cloned() else { continue };
                    let end = block.start.saturating_add(tier.block_s());
                    let known = self.disk_records(tier, &name, (block.start, end))?;
                    let missing = |(time, record): &(u32, HistoryRecord)| {
                        let on_disk = known.iter().find(|(at, _)| at == time);
                        on_disk.is_none_or(|(_, known)| known.parts < record.parts)
                    };
                    for (time, record) in block.present(tier).filter(missing) {
                        self.push(tier, &name, time, record);
                    }
                }
                None => self.stats.blocks_damaged += 1,
            }
        }
        Ok(())
    }

    fn file(&mut self, tier: HistoryTier, day: u32) -> &mut DayFile {
        let path = self.path(tier, day);
        self.files.entry((tier, day)).or_insert_with(|| DayFile::new(path, tier))
    }

    fn path(&self, tier: HistoryTier, day: u32) -> PathBuf {
        self.dir.join(tier.name()).join(file_name(day))
    }

    /// The days that have a file in a tier, in order.
    fn days(&self, tier: HistoryTier) -> io::Result<Vec<u32>> {
        let entries = match fs::read_dir(self.dir.join(tier.name())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut days = Vec::new();
        for entry in entries {
            days.extend(day_of(Path::new(&entry?.file_name())));
        }
        days.sort_unstable();
        Ok(days)
    }
}

/// The name of the file with the seconds that are in no day file.
const TAIL: &str = "tail";

fn file_name(day: u32) -> String {
    let date = Utc::from_unix(u64::from(day) * u64::from(DAY_S)).to_string();
    format!("{}.ah", date.split('T').next().unwrap_or_default())
}

/// The day of a file name; `None` for the name of another file.
fn day_of(name: &Path) -> Option<u32> {
    let date: jiff::civil::Date = name.file_stem()?.to_str()?.parse().ok()?;
    let since = date.duration_since(jiff::civil::date(1970, 1, 1));
    let day = u32::try_from(since.as_hours() / 24).ok()?;
    (Path::new(&file_name(day)) == name).then_some(day)
}

fn is_harmless(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData)
}

/// Whether a name fits a block.
const fn is_storable(name: &str) -> bool {
    name.len() <= block::MAX_NAME
}
