//! The order in which the files of a playlist are played.
//!
//! ```text
//!  list of files --len, changes--> PlaylistQueue --TrackRef--> the job that opens and decodes
//!  local time ------------------>  (order, jingles)
//! ```
//!
//! Files are numbers here; the list that gives them names and the clock are the caller's.

mod jingles;
mod order;

pub use jingles::JingleRule;
pub use order::{PlayOrder, UPCOMING};

use jingles::JingleTimer;
use order::TrackOrder;

/// What a playlist plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TrackRef {
    /// The file with this number.
    Track(u32),
    /// The jingle with this number.
    Jingle(u32),
}

/// How a playlist is played.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlaylistConfig {
    /// The order of the files.
    pub order: PlayOrder,
    /// The number of other files between two plays of one; less if there are not as many.
    pub no_repeat: u32,
    /// When a jingle is played.
    pub jingles: JingleRule,
}

/// Chooses the next file of a playlist.
///
/// Memory is 8 bytes per file at most, however long it runs.
#[derive(Debug)]
pub struct PlaylistQueue {
    tracks: TrackOrder,
    jingles: TrackOrder,
    timer: JingleTimer,
}

impl PlaylistQueue {
    /// A queue of no files yet. `seed` determines the random order.
    #[must_use]
    pub fn new(config: &PlaylistConfig, seed: u64) -> Self {
        let PlaylistConfig { order, no_repeat, jingles } = config;
        Self {
            tracks: TrackOrder::new(*order, *no_repeat, seed),
            jingles: TrackOrder::new(PlayOrder::Loop, 0, seed),
            timer: JingleTimer::new(jingles.clone()),
        }
    }

    /// The list of files has changed: it has `len` files, and `renumbered` gives the new number of
    /// an old one that is still there.
    pub fn set_tracks(&mut self, len: u32, renumbered: impl Fn(u32) -> Option<u32>) {
        self.tracks.set_files(len, renumbered);
    }

    /// The same for jingles.
    pub fn set_jingles(&mut self, len: u32, renumbered: impl Fn(u32) -> Option<u32>) {
        self.jingles.set_files(len, renumbered);
    }

    /// The next file to play; `None` at the end of a list that is played once, and for an empty
    /// one. `local_minute` is the local time in minutes since any midnight.
    pub fn next(&mut self, local_minute: i64) -> Option<TrackRef> {
        if self.timer.is_due(local_minute)
            && let Some(jingle) = self.jingles.next()
        {
            self.timer.jingle_begins();
            return Some(TrackRef::Jingle(jingle));
        }
        let track = self.tracks.next()?;
        self.timer.track_begins();
        Some(TrackRef::Track(track))
    }

    /// The files that follow, without jingles; at least [`UPCOMING`] of a list that is that long
    /// and does not end.
    pub fn upcoming(&self) -> impl Iterator<Item = u32> + '_ {
        self.tracks.upcoming()
    }
}

#[cfg(test)]
mod tests;
