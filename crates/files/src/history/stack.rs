//! The blocks of one station that are not full yet, one of each tier.

use super::block::Block;
use super::record::HistoryRecord;
use super::tier::HistoryTier;

/// Takes records of seconds, and gives whole blocks of every tier.
#[derive(Debug, Default)]
pub(super) struct TierStack {
    open: [Option<Block>; HistoryTier::ALL.len()],
    complete: Vec<(HistoryTier, Block)>,
}

impl TierStack {
    /// Enters a record. A record outside the open block ends that block, full or not: time may make
    /// a step in either direction. The last block of Unix time in 32 bits does not exist.
    pub(super) fn push(&mut self, tier: HistoryTier, time: u32, record: HistoryRecord) {
        let start = tier.block_start(time);
        if start.checked_add(tier.block_s()).is_none() {
            return;
        }
        if self.open(tier).is_some_and(|block| block.start != start) {
            self.close(tier);
        }
        let block = self.open_mut(tier).get_or_insert_with(|| Block::empty(tier, time));
        let at = ((time - start) / tier.step_s()) as usize;
        if let Some(old) = block.records.get_mut(at) {
            *old = old.merged(record);
        }
    }

    /// Ends the blocks whose time is over.
    pub(super) fn close_ended(&mut self, now: u32) {
        for tier in HistoryTier::ALL {
            let is_over = |block: &Block| block.start.saturating_add(tier.block_s()) <= now;
            if self.open(tier).is_some_and(is_over) {
                self.close(tier);
            }
        }
    }

    /// Ends the block of seconds, full or not.
    pub(super) fn close_seconds(&mut self) {
        self.close(HistoryTier::Second);
    }

    /// Whether blocks have ended since they were taken.
    pub(super) const fn has_complete(&self) -> bool {
        !self.complete.is_empty()
    }

    /// The blocks that have ended since the last call.
    pub(super) fn take_complete(&mut self) -> Vec<(HistoryTier, Block)> {
        std::mem::take(&mut self.complete)
    }

    /// The block of seconds that has not ended.
    pub(super) fn open_seconds(&self) -> Option<&Block> {
        self.open(HistoryTier::Second).filter(|block| !block.is_empty())
    }

    /// The records of a tier that are in no complete block, those of finer open blocks included.
    pub(super) fn unfinished(&self, tier: HistoryTier) -> Vec<(u32, HistoryRecord)> {
        let own = self.open(tier).into_iter().flat_map(|block| block.present(tier));
        let mut records: Vec<_> = own.collect();
        if let Some(finer) = tier.finer() {
            records.extend(coarsen(tier, &self.unfinished(finer)));
        }
        records
    }

    fn close(&mut self, tier: HistoryTier) {
        let Some(block) = self.open_mut(tier).take().filter(|block| !block.is_empty()) else {
            return;
        };
        if let Some(coarser) = tier.coarser() {
            let records: Vec<_> = block.present(tier).collect();
            for (time, record) in coarsen(coarser, &records) {
                self.push(coarser, time, record);
            }
        }
        self.complete.push((tier, block));
    }

    fn open(&self, tier: HistoryTier) -> Option<&Block> {
        self.open[usize::from(tier.number())].as_ref()
    }

    fn open_mut(&mut self, tier: HistoryTier) -> &mut Option<Block> {
        &mut self.open[usize::from(tier.number())]
    }
}

/// The records of a tier from records of the next finer one, in the order of time.
pub(super) fn coarsen(
    tier: HistoryTier,
    finer: &[(u32, HistoryRecord)],
) -> Vec<(u32, HistoryRecord)> {
    let start = |time: u32| time - time % tier.step_s();
    let groups = finer.chunk_by(|(one, _), (next, _)| start(*one) == start(*next));
    let groups = groups.filter_map(|group| Some((start(group.first()?.0), group)));
    groups
        .map(|(at, group)| (at, HistoryRecord::combine(group.iter().map(|(_, one)| one))))
        .collect()
}
