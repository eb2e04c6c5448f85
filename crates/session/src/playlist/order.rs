//! The order of the files of a list, which may change while it is played.

use std::collections::VecDeque;

use aulos_core::Rng;

/// The order of the files of a playlist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlayOrder {
    /// That of the list, again and again.
    #[default]
    Loop,
    /// That of the list, once.
    Once,
    /// Random; every file once before one is repeated.
    Shuffle,
}

/// The next files, by number.
#[derive(Debug)]
pub(super) struct TrackOrder {
    order: PlayOrder,
    no_repeat: u32,
    /// Number of files.
    len: u32,
    /// The rest of this round, and the beginning of the next one.
    upcoming: VecDeque<u32>,
    /// The last files, the newest at the end: as many as must not be repeated, at least one.
    recent: VecDeque<u32>,
    /// In order: the file after the last one.
    follows: u32,
    rng: Rng,
}

impl TrackOrder {
    pub(super) const fn new(order: PlayOrder, no_repeat: u32, seed: u64) -> Self {
        Self {
            order,
            no_repeat,
            len: 0,
            upcoming: VecDeque::new(),
            recent: VecDeque::new(),
            follows: 0,
            rng: Rng::new(seed),
        }
    }

    pub(super) fn set_files(&mut self, len: u32, renumbered: impl Fn(u32) -> Option<u32>) {
        // The first of the files after the last one that is still there.
        let before = self.follows;
        let first_kept = (before..self.len).find_map(&renumbered);
        let last_kept = (0..before).rev().find_map(&renumbered).map(|last| last + 1);
        self.follows = last_kept.or(first_kept).unwrap_or(0);
        self.recent = self.recent.iter().filter_map(|file| renumbered(*file)).collect();
        let old_len = core::mem::replace(&mut self.len, len);
        match self.order {
            PlayOrder::Loop | PlayOrder::Once => {
                self.upcoming.clear();
                self.upcoming.extend(self.follows..len);
            }
            PlayOrder::Shuffle => {
                self.upcoming = self.upcoming.iter().filter_map(|file| renumbered(*file)).collect();
                self.insert_new_files(old_len, renumbered);
            }
        }
        self.refill();
    }

    /// Puts files that were not in the list anywhere into the rest of the round.
    fn insert_new_files(&mut self, old_len: u32, renumbered: impl Fn(u32) -> Option<u32>) {
        if self.upcoming.is_empty() {
            return;
        }
        let mut is_known = vec![false; self.len as usize];
        for known in (0..old_len).filter_map(renumbered) {
            is_known[known as usize] = true;
        }
        let new: Vec<u32> = (0..self.len).filter(|file| !is_known[*file as usize]).collect();
        // Appended and then mixed, which costs the same for one file and for a hundred thousand.
        for file in new {
            self.upcoming.push_back(file);
            let (last, other) = (self.upcoming.len() - 1, self.rng.below(self.upcoming.len()));
            self.upcoming.swap(last, other);
        }
    }

    pub(super) fn next(&mut self) -> Option<u32> {
        let file = self.upcoming.pop_front()?;
        self.follows = file + 1;
        self.recent.push_back(file);
        while self.recent.len() > self.distance().max(1) {
            self.recent.pop_front();
        }
        self.refill();
        Some(file)
    }

    pub(super) fn upcoming(&self) -> impl Iterator<Item = u32> + '_ {
        self.upcoming.iter().copied()
    }

    /// The number of other files between two plays of one, in a list of this length.
    fn distance(&self) -> usize {
        self.no_repeat.min(self.len.saturating_sub(1)) as usize
    }

    /// Appends rounds until there is something to show.
    fn refill(&mut self) {
        if self.order == PlayOrder::Once || self.len == 0 {
            return;
        }
        while self.upcoming.len() <= UPCOMING {
            let from = self.upcoming.len();
            self.upcoming.extend(0..self.len);
            if self.order == PlayOrder::Shuffle {
                self.shuffle_from(from);
            }
        }
    }

    /// Mixes the files from position `from` on, at a distance from those before it.
    fn shuffle_from(&mut self, from: usize) {
        let (len, distance) = (self.upcoming.len(), self.distance());
        let before = self.recent.iter().chain(self.upcoming.range(..from));
        let skip = (self.recent.len() + from).saturating_sub(distance);
        let before: Vec<u32> = before.skip(skip).copied().collect();
        let mut is_blocked = vec![false; self.len as usize];
        before.iter().for_each(|file| is_blocked[*file as usize] = true);
        for at in from..len {
            let first = at + self.rng.below(len - at);
            // From a random one on, round the end. Fewer files are blocked than are left: at step n
            // at most `distance - n`, which is below the number of files less n.
            let mut candidates = (first..len).chain(at..first);
            let chosen = candidates.find(|other| !is_blocked[self.upcoming[*other] as usize]);
            self.upcoming.swap(at, chosen.unwrap_or(first));
            // One of those before is now far enough away.
            let oldest = (at - from).checked_sub(distance - before.len());
            if let Some(file) = oldest.and_then(|oldest| before.get(oldest)) {
                is_blocked[*file as usize] = false;
            }
        }
    }
}

/// Files that are chosen ahead of time, so that they can be shown.
pub const UPCOMING: usize = 10;
