//! When a player's frames sound: its writes are put on the grid of a virtual card.
//!
//! A player that writes a file asks for a block whenever the virtual card has played one. Its
//! wake-ups are late and never early, so the most punctual writes are the card's clock. If the
//! machine has kept the player from running for so long that the card had nothing to play, the card
//! has stood still: a new grid begins.

use super::position_tone::{ToneCapture, WINDOW, distance};
use super::write_stamps::WriteStamp;
use crate::signal::RATE;

/// What a player has played, and when.
#[derive(Debug)]
pub struct Playout {
    tone: ToneCapture,
    grids: Vec<CardGrid>,
    /// Seconds of the player's own clock in a second.
    clock_rate: f64,
}

/// A stretch of frames that the virtual card has played without standing still.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CardGrid {
    /// Frame number of the first one.
    first: usize,
    /// When frame number zero would have sounded, in seconds of the player's clock.
    origin: f64,
}

/// A time at which two players are compared, in seconds since the epoch of the stamps, and by how
/// much the first one is ahead, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "a point of a series")]
pub struct Difference {
    /// The time.
    pub at: f64,
    /// By how much the content of the first player is ahead.
    pub ahead: f64,
}

impl Playout {
    /// The play-out of a 16-bit stereo file. `epoch` is the time that the result calls zero, in
    /// nanoseconds; `clock_ppm` is the drift that the player's clock was given.
    #[must_use]
    pub fn new(tone: ToneCapture, stamps: &[WriteStamp], epoch: u64, clock_ppm: i32) -> Self {
        let clock_rate = 1.0 + f64::from(clock_ppm) * 1e-6;
        Self { tone, grids: grids(stamps, epoch, clock_rate), clock_rate }
    }

    /// What was played.
    #[must_use]
    pub const fn tone(&self) -> &ToneCapture {
        &self.tone
    }

    /// How often the card stood still because the player was not run.
    #[must_use]
    pub fn stops(&self) -> usize {
        self.grids.len().saturating_sub(1)
    }

    /// When the first sound was heard; `None` if there was none.
    #[must_use]
    pub fn begin(&self) -> Option<f64> {
        let window = self.tone.positions.iter().position(Option::is_some)?;
        self.time_of(window * WINDOW)
    }

    /// Whether the card has run for `settled` seconds with sound.
    #[must_use]
    pub fn is_settled(&self, at: f64, settled: f64) -> bool {
        self.grid_at(at).is_some_and(|(grid, _)| {
            let start = (grid.origin + seconds(grid.first)) / self.clock_rate;
            at >= start.max(self.begin().unwrap_or(f64::INFINITY)) + settled
        })
    }

    /// Breaks of the content at settled times.
    #[must_use]
    pub fn settled_breaks(&self, settled: f64) -> usize {
        let times = self.tone.breaks.iter().filter_map(|frame| self.time_of(*frame));
        times.filter(|at| self.is_settled(*at, settled)).count()
    }

    /// By how much it is ahead, in seconds, of a player that plays this position of the content, in
    /// frames, at this time.
    #[must_use]
    pub fn ahead_of(&self, position: f64, at: f64) -> Option<f64> {
        Some(distance(self.position_at(at)?, position) / RATE_HZ)
    }

    /// Content position that sounds at a time, in frames of the content.
    fn position_at(&self, at: f64) -> Option<f64> {
        let (grid, frame) = self.grid_at(at)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in a grid")]
        let window = (frame / WINDOW_FRAMES) as usize;
        if window * WINDOW < grid.first {
            return None;
        }
        let middle = seconds(window * WINDOW) * RATE_HZ + (WINDOW_FRAMES - 1.0) / 2.0;
        Some(*self.tone.positions.get(window)?.as_ref()? + (frame - middle))
    }

    /// The grid of a time, and the frame that sounds then.
    fn grid_at(&self, at: f64) -> Option<(CardGrid, f64)> {
        let own = at * self.clock_rate;
        let frame = |grid: &CardGrid| (own - grid.origin) * RATE_HZ;
        let number =
            self.grids.iter().rposition(|grid| frame(grid) >= seconds(grid.first) * RATE_HZ)?;
        let (grid, frame) = (self.grids[number], frame(&self.grids[number]));
        // While the card stood still, nothing sounded.
        let next = self.grids.get(number + 1);
        next.is_none_or(|next| frame < seconds(next.first) * RATE_HZ).then_some((grid, frame))
    }

    /// When the card plays a frame of the file, in seconds since the epoch.
    #[must_use]
    pub fn time_of(&self, frame: usize) -> Option<f64> {
        let grid = self.grids.iter().rfind(|grid| grid.first <= frame)?;
        Some((grid.origin + seconds(frame)) / self.clock_rate)
    }
}

/// By how much one player is ahead of the other, every 10 ms while both sound.
#[must_use]
pub fn differences(one: &Playout, other: &Playout) -> Vec<Difference> {
    let (Some(begin), Some(end)) = (one.begin(), one.time_of(one.tone.positions.len() * WINDOW))
    else {
        return Vec::new();
    };
    let times = (0..).map(|step| begin + f64::from(step) * STEP).take_while(|at| *at < end);
    let difference = |at| {
        let ahead = distance(one.position_at(at)?, other.position_at(at)?) / RATE_HZ;
        Some(Difference { at, ahead })
    };
    times.filter_map(difference).collect()
}

/// The grids of a series of writes.
fn grids(stamps: &[WriteStamp], epoch: u64, clock_rate: f64) -> Vec<CardGrid> {
    let mut first = 0;
    let mut origins = Vec::new();
    // The last block may be a fade that does not wait for its time.
    for stamp in stamps.iter().take(stamps.len().saturating_sub(1)) {
        #[expect(clippy::cast_precision_loss, reason = "minutes")]
        let at = stamp.nanos.wrapping_sub(epoch).cast_signed() as f64 * 1e-9;
        origins.push((first, at * clock_rate - seconds(first)));
        first += usize::try_from(stamp.bytes / FRAME_BYTES).unwrap_or(0);
    }
    let mut grids: Vec<CardGrid> = Vec::new();
    for (number, (first, origin)) in origins.iter().copied().enumerate() {
        let next_second = origins[number..].iter().take(LOOK_AHEAD);
        let soonest = next_second.map(|(_, origin)| *origin).fold(f64::INFINITY, f64::min);
        match grids.last_mut() {
            Some(grid) if soonest < grid.origin + SLIP => grid.origin = grid.origin.min(origin),
            _ => grids.push(CardGrid { first, origin }),
        }
    }
    grids
}

#[expect(clippy::cast_precision_loss, reason = "minutes of frames")]
fn seconds(frames: usize) -> f64 {
    frames as f64 / RATE_HZ
}

/// The value below which a share of the sorted `values` lies.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index"
)]
pub fn percentile(values: &[f64], share: f64) -> f64 {
    let at = (values.len().saturating_sub(1)) as f64 * share;
    values.get(at.round() as usize).copied().unwrap_or(f64::NAN)
}

/// Bytes of a frame of 16-bit stereo.
const FRAME_BYTES: u64 = 4;

#[expect(clippy::cast_precision_loss, reason = "48,000")]
const RATE_HZ: f64 = RATE as f64;
#[expect(clippy::cast_precision_loss, reason = "480")]
const WINDOW_FRAMES: f64 = WINDOW as f64;

/// Between two comparisons.
const STEP: f64 = 0.01;

/// Writes that are all later than this have a grid of their own. A card stands still when a block
/// of 50 ms or more is missing.
const SLIP: f64 = 0.045;

/// Writes of a second.
const LOOK_AHEAD: usize = 20;

#[cfg(test)]
mod tests {
    use super::super::position_tone::frame;
    use super::*;

    /// The writes of blocks of 50 ms from `begin` on, each late by what `late` says of its number.
    fn stamps(begin: f64, count: usize, late: impl Fn(usize) -> f64) -> Vec<WriteStamp> {
        let nanos = |number: usize| (begin + seconds(number * 2_400) + late(number)) * 1e9;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds")]
        (0..count).map(|n| WriteStamp { nanos: nanos(n) as u64, bytes: 9_600 }).collect()
    }

    fn playout(begin: f64, position: usize, late: impl Fn(usize) -> f64, ppm: i32) -> Playout {
        let frames: Vec<_> = (position..position + 100 * 2_400).map(frame).collect();
        let stamps: Vec<_> = stamps(begin, 101, late)
            .into_iter()
            .map(|stamp| {
                // The player's clock is fast, so its blocks come early.
                #[expect(
                    clippy::cast_precision_loss,
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "seconds"
                )]
                let nanos = (stamp.nanos as f64 / (1.0 + f64::from(ppm) * 1e-6)).round() as u64;
                WriteStamp { nanos, ..stamp }
            })
            .collect();
        Playout::new(ToneCapture::new(&frames), &stamps, 0, ppm)
    }

    #[test]
    fn wake_ups_that_are_late_do_not_change_the_time() {
        let late = |number: usize| if number.is_multiple_of(7) { 0.0 } else { 0.03 };
        let one = playout(10.0, 0, late, 0);
        // 100 frames later content, 2 ms later: 4 frames too late.
        let other = playout(10.002, 100, |_| 0.0, 0);
        let found = differences(&one, &other);
        assert!(found.len() > 480, "{}", found.len());
        let expected = -4.0 / 48_000.0;
        assert!(found.iter().all(|point| (point.ahead - expected).abs() < 1e-7), "{found:?}");
        assert_eq!((one.stops(), other.stops()), (0, 0));
    }

    #[test]
    fn a_card_that_stood_still_begins_a_new_grid() {
        let late = |number| if number < 50 { 0.0 } else { 0.06 };
        let one = playout(10.0, 0, late, 0);
        let other = playout(10.0, 0, |_| 0.0, 0);
        assert_eq!(one.stops(), 1);
        let found = differences(&one, &other);
        let ahead = |at: f64| found.iter().find(|point| point.at >= at).unwrap().ahead;
        assert!(ahead(11.0).abs() < 1e-7);
        assert!((ahead(14.0) + 0.06).abs() < 1e-7);
        assert!(one.is_settled(12.4, 2.0) && !one.is_settled(13.0, 2.0));
        assert!(one.is_settled(14.7, 2.0));
        // A single late block is no such thing.
        let once = playout(10.0, 0, |number| if number == 50 { 0.3 } else { 0.0 }, 0);
        assert_eq!(once.stops(), 0);
    }

    #[test]
    fn a_clock_that_drifts_is_known() {
        let one = playout(10.0, 0, |_| 0.0, 50);
        let other = playout(10.0, 0, |_| 0.0, 0);
        let found = differences(&one, &other);
        // By the definition of the stamps the epoch is where the clocks agree: 10 s of 50 ppm.
        let expected = |at: f64| at * 50e-6;
        assert!(found.iter().all(|point| (point.ahead - expected(point.at)).abs() < 1e-6));
    }
}
