//! An announcement whose every edge can be found in what a player wrote, to a frame.
//!
//! The programme ([`position_tone`](super::position_tone)) is never silent and the pulses begin at
//! once, so an edge is silence and then sound. Beside a ducked programme the position of a second
//! tone cannot be read exactly.

use super::position_tone::LEAST_RADIUS;
use crate::signal::{Frame, RATE};

/// Edges of an announcement.
pub const PULSES: usize = 5;

/// A sound file: silence, and pulses of 100 ms with as much silence behind each.
#[must_use]
pub fn announcement() -> Vec<Frame> {
    let pulse = std::iter::repeat_n([LEVEL; 2], PULSE).chain(std::iter::repeat_n([0; 2], PULSE));
    std::iter::repeat_n([0; 2], 2 * SILENCE)
        .chain((0..PULSES).flat_map(|_| pulse.clone()))
        .collect()
}

/// The frames at which a pulse begins.
#[must_use]
pub fn edges(frames: &[Frame]) -> Vec<usize> {
    let peak = |frame: &Frame| frame[0].abs().max(frame[1].abs());
    let (mut silence, mut found) = (0, Vec::new());
    for (number, frame) in frames.iter().enumerate() {
        if peak(frame) < QUIET {
            silence += 1;
            continue;
        }
        // A programme that fades in takes longer.
        let is_pulse = frames.get(number + 2).is_some_and(|next| peak(next) > LEVEL / 2);
        if silence >= SILENCE && is_pulse {
            found.push(number);
        }
        silence = 0;
    }
    found
}

/// Frames of a pulse, and of the silence behind it.
const PULSE: usize = RATE / 10;

/// Frames of silence that are no zero crossing.
const SILENCE: usize = RATE / 200;

const LEVEL: i32 = 20_000;

/// Less than the programme ever is on both channels, and more than it is while it is ducked.
#[expect(clippy::cast_possible_truncation, reason = "a sample")]
const QUIET: i32 = LEAST_RADIUS as i32 / 2;

#[cfg(test)]
mod tests {
    use super::super::position_tone::frame;
    use super::*;

    #[test]
    fn each_edge_is_found_and_no_programme_is_one() {
        let programme: Vec<Frame> = (0..RATE).map(frame).collect();
        // Down within 200 ms and up within a second, as a station ducks it.
        let ramp = |from: usize, length: usize, is_down: bool| {
            (0..length).map(move |at| {
                let share = if is_down { length - at } else { at } * 1_000 / length;
                frame(from + at).map(|sample| sample * i32::try_from(share).unwrap() / 1_000)
            })
        };
        let mut frames = programme.clone();
        frames.extend(ramp(RATE, RATE / 5, true));
        let begin = frames.len() + 2 * SILENCE;
        frames.extend(announcement());
        frames.extend(ramp(0, RATE, false));
        frames.extend(programme);
        let expected: Vec<usize> = (0..PULSES).map(|number| begin + number * 2 * PULSE).collect();
        assert_eq!(edges(&frames), expected);
        assert_eq!(edges(&[]), [0; 0]);
    }
}
