//! One day of one tier in a file that only grows.
//!
//! No descriptor is kept: a folder that was deleted or replaced would take writes without a word.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::block::{self, Block, Content, HEAD};
use super::record::HistoryRecord;
use super::tier::HistoryTier;

/// Blocks that are read at once while a file is indexed.
const BLOCKS_PER_READ: usize = 64;

/// What is known of a file: where the blocks of its stations are.
#[derive(Debug)]
pub(super) struct DayFile {
    path: PathBuf,
    tier: HistoryTier,
    /// Length up to the end of the last valid block; 0 without a file.
    length: u64,
    names: BTreeMap<String, u16>,
    /// Start and number of the blocks of each station, in the order of the file.
    blocks: BTreeMap<u16, Vec<(u32, u32)>>,
    /// Blocks that were passed over because they are damaged.
    damaged: u64,
}

impl DayFile {
    pub(super) const fn new(path: PathBuf, tier: HistoryTier) -> Self {
        Self { path, tier, length: 0, names: BTreeMap::new(), blocks: BTreeMap::new(), damaged: 0 }
    }

    /// Appends blocks of stations, whose names are storable, with one write and one sync; returns
    /// the bytes written. What lies behind the last valid block is cut off.
    ///
    /// # Errors
    /// Errors of the file system; nothing has been appended then.
    pub(super) fn append(&mut self, blocks: &[(String, Block)]) -> io::Result<u64> {
        if let Err(error) = self.refresh() {
            if error.kind() != io::ErrorKind::InvalidData {
                return Err(error);
            }
            // Not a file of this program: kept for its owner.
            fs::rename(&self.path, self.path.with_extension("ah.broken"))?;
            self.forget();
        }
        let (mut bytes, mut names) = (Vec::new(), self.names.clone());
        if self.length == 0 {
            bytes.extend(block::head(self.tier));
        }
        for (name, block) in blocks {
            let station = match names.get(name) {
                Some(station) => *station,
                None => {
                    let last = names.values().max().copied();
                    // More names than a file has numbers in a day have no history.
                    let Some(next) = last.map_or(Some(0), |last| last.checked_add(1)) else {
                        continue;
                    };
                    block::push_name(&mut bytes, self.tier, next, name);
                    names.insert(name.clone(), next);
                    next
                }
            };
            block::push_records(&mut bytes, self.tier, station, block);
        }
        self.write(&bytes)?;
        self.index(self.length, &bytes);
        Ok(bytes.len() as u64)
    }

    /// Adds the records of a station with times from `from` to before `to`.
    ///
    /// # Errors
    /// Errors of the file system. A damaged block has no records.
    pub(super) fn read(
        &mut self,
        station: &str,
        (from, to): (u32, u32),
        records: &mut BTreeMap<u32, HistoryRecord>,
    ) -> io::Result<()> {
        self.refresh()?;
        let Some(number) = self.names.get(station) else { return Ok(()) };
        let overlaps = |start: u32| start < to && start.saturating_add(self.tier.block_s()) > from;
        let blocks = self.blocks.get(number).into_iter().flatten();
        let wanted: Vec<_> = blocks.filter(|(start, _)| overlaps(*start)).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let file = File::open(&self.path)?;
        let mut bytes = vec![0; block::block_bytes(self.tier)];
        for (_, at) in wanted {
            let offset = HEAD as u64 + u64::from(*at) * bytes.len() as u64;
            file.read_exact_at(&mut bytes, offset)?;
            match block::parse(&bytes, self.tier) {
                Some((one, Content::Records(block))) if one == *number => {
                    enter(records, block.present(self.tier), (from, to));
                }
                _ => self.damaged += 1,
            }
        }
        Ok(())
    }

    /// The stations in the file, each with the end of its last block.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn stations(&mut self) -> io::Result<BTreeMap<String, u32>> {
        self.refresh()?;
        let end = |number: &u16| {
            let starts = self.blocks.get(number)?.iter().map(|(start, _)| *start);
            Some(starts.max()?.saturating_add(self.tier.block_s()))
        };
        let ends =
            self.names.iter().filter_map(|(name, number)| Some((name.clone(), end(number)?)));
        Ok(ends.collect())
    }

    /// Whether it has no block, as far as is known.
    pub(super) const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The number of damaged blocks since the last call.
    pub(super) const fn take_damaged(&mut self) -> u64 {
        std::mem::replace(&mut self.damaged, 0)
    }

    /// Brings the index up to date with the file, which may have been deleted or replaced.
    fn refresh(&mut self) -> io::Result<()> {
        let found = match fs::metadata(&self.path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        if found < self.length {
            self.forget();
        }
        if found == self.length || found < HEAD as u64 {
            return Ok(());
        }
        let file = File::open(&self.path)?;
        let mut head = [0; HEAD];
        file.read_exact_at(&mut head, 0)?;
        if head != block::head(self.tier) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a history file"));
        }
        let mut at = self.length.max(HEAD as u64);
        let mut bytes = vec![0; block::block_bytes(self.tier) * BLOCKS_PER_READ];
        loop {
            let read = read_up_to(&file, &mut bytes, at)?;
            let whole = read - read % block::block_bytes(self.tier);
            if whole == 0 {
                break;
            }
            self.index(at, &bytes[..whole]);
            at += whole as u64;
        }
        // A file with a head alone needs no second one.
        self.length = self.length.max(HEAD as u64);
        Ok(())
    }

    /// Indexes bytes of the file at an offset.
    fn index(&mut self, offset: u64, bytes: &[u8]) {
        let size = block::block_bytes(self.tier);
        let head = if offset == 0 { HEAD } else { 0 };
        let mut at = offset + head as u64;
        for bytes in bytes.get(head..).unwrap_or_default().chunks_exact(size) {
            let number = u32::try_from((at - HEAD as u64) / size as u64).unwrap_or(u32::MAX);
            at += size as u64;
            match block::parse(bytes, self.tier) {
                Some((station, Content::Name(name))) => drop(self.names.insert(name, station)),
                Some((station, Content::Records(block))) => {
                    self.blocks.entry(station).or_default().push((block.start, number));
                }
                None => {
                    self.damaged += 1;
                    continue;
                }
            }
            self.length = at;
        }
        self.length = self.length.max(head as u64);
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let is_new = self.length == 0;
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o640).open(&self.path)?;
        if file.metadata()?.len() != self.length {
            file.set_len(self.length)?;
        }
        let written = file.write_all_at(bytes, self.length).and_then(|()| file.sync_data());
        if let Err(error) = written {
            // Part of a block on a full disk; if this fails too, the next append cuts it off.
            file.set_len(self.length).ok();
            return Err(error);
        }
        if is_new {
            sync_folder(&self.path)?;
        }
        Ok(())
    }

    fn forget(&mut self) {
        (self.length, self.names, self.blocks) = (0, BTreeMap::new(), BTreeMap::new());
    }
}

/// Enters records within a range; of two with the same time the better one stays.
pub(super) fn enter(
    records: &mut BTreeMap<u32, HistoryRecord>,
    new: impl IntoIterator<Item = (u32, HistoryRecord)>,
    (from, to): (u32, u32),
) {
    for (time, record) in new.into_iter().filter(|(time, _)| (from..to).contains(time)) {
        records.entry(time).and_modify(|old| *old = old.merged(record)).or_insert(record);
    }
}

fn read_up_to(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or_else(|| Path::new(".")))?.sync_all()
}
