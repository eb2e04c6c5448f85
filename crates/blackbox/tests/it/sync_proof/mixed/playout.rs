//! What a Sendspin player has played, and when by its own clock filter.

use std::collections::HashMap;

use aulos_blackbox::sendspin::Received;
use aulos_blackbox::signal::{Frame, RATE};
use aulos_blackbox::sync::playout::{Difference, Playout};
use aulos_blackbox::sync::position_tone::{ToneCapture, WINDOW};
use aulos_blackbox::sync::pulses::edges;

/// What a player writes to a file at a time sounds so much later, in seconds: the latency of the card
/// of snapclient's file player, which ours has too.
const FILE_DELAY: f64 = 0.010;

/// After the start: both kinds of players correct their first estimates of the clock.
pub(super) const SETTLED: f64 = 6.0;

/// The decoded sound of a player, as if it had written it to a file.
#[derive(Debug)]
pub(super) struct SendspinPlayout {
    tone: ToneCapture,
    /// In the order of the frames.
    chunks: Vec<PlayedChunk>,
    /// When pulses of announcements begin.
    pub(super) edges: Vec<f64>,
}

/// A chunk of which the player has said when it sounds.
#[derive(Clone, Copy, Debug)]
struct PlayedChunk {
    first_frame: usize,
    /// When the others write what sounds with its first frame, in seconds since the epoch.
    at: f64,
}

impl SendspinPlayout {
    /// `epoch` is the time from which play-outs count, in nanoseconds.
    pub(super) fn new(received: &Received, frames: &[Frame], epoch: u64) -> Self {
        // The last estimate before it sounds.
        let plays: HashMap<i64, i64> =
            received.plays.iter().map(|play| (play.server_us, play.play_us)).collect();
        let (mut first_frame, mut chunks) = (0, Vec::new());
        for chunk in &received.chunks {
            if let Some(play_us) = plays.get(&chunk.server_us) {
                let sounds_at = (seconds_of(*play_us) - seconds_of_nanos(epoch)) - FILE_DELAY;
                chunks.push(PlayedChunk { first_frame, at: sounds_at });
            }
            first_frame += usize::try_from(chunk.frames).unwrap();
        }
        let mut playout = Self { tone: ToneCapture::new(frames), chunks, edges: Vec::new() };
        playout.edges = edges(frames).into_iter().filter_map(|at| playout.time_of(at)).collect();
        playout
    }

    /// By how much the other player is ahead, at each chunk where both are settled.
    #[expect(clippy::cast_precision_loss, reason = "a window")]
    pub(super) fn differences(&self, other: &Playout) -> Vec<Difference> {
        let whole = self.chunks.iter().filter(|chunk| chunk.first_frame % WINDOW == 0);
        whole
            .filter_map(|chunk| {
                let middle = (*self.tone.positions.get(chunk.first_frame / WINDOW)?)?;
                let start = middle - (WINDOW as f64 - 1.0) / 2.0;
                let ahead = other.ahead_of(start, chunk.at)?;
                Some(Difference { at: chunk.at, ahead })
            })
            .filter(|point| other.is_settled(point.at, SETTLED))
            .collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "frames of a chunk")]
    fn time_of(&self, frame: usize) -> Option<f64> {
        let behind = self.chunks.partition_point(|chunk| chunk.first_frame <= frame);
        let chunk = self.chunks.get(behind.checked_sub(1)?)?;
        Some(chunk.at + (frame - chunk.first_frame) as f64 / RATE as f64)
    }
}

#[expect(clippy::cast_precision_loss, reason = "days of microseconds")]
fn seconds_of(micros: i64) -> f64 {
    micros as f64 / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "days of nanoseconds")]
pub(super) fn seconds_of_nanos(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}
