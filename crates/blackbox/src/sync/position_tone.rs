//! A tone whose every frame says where in the content it is, to a small part of a frame.
//!
//! Left and right are sine and cosine of 500 Hz, so the angle is the position within a period of 96
//! frames, also between frames: it survives a resampler. The radius rises over a thousand periods
//! and falls over as many, and so tells the periods apart.

use std::f64::consts::TAU;

use crate::signal::Frame;

/// Frames after which the tone repeats: 4.1 s.
pub const CYCLE: usize = 2 * HALF * PERIOD;

/// Frames of a window, which has one position: 10 ms.
pub const WINDOW: usize = 480;

/// Frames of a period of the tone.
const PERIOD: usize = 96;

/// Periods over which the radius rises, and over which it falls.
const HALF: usize = 1_024;

/// The least distance of a frame from silence.
pub(super) const LEAST_RADIUS: f64 = 8_192.0;

/// Change of the radius in a period: much more than the errors of rounding and dither, and of the
/// gain of a filter.
const SLOPE: f64 = 16.0;

/// The frame at a position.
#[must_use]
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "small numbers")]
pub fn frame(position: usize) -> Frame {
    let at = position % CYCLE;
    let height = at.min(CYCLE - at) as f64 / PERIOD as f64;
    let radius = LEAST_RADIUS + SLOPE * height;
    let angle = TAU * (at % PERIOD) as f64 / PERIOD as f64;
    [radius * angle.sin(), radius * angle.cos()].map(|sample| sample.round() as i32)
}

/// What a capture contains.
#[derive(Debug, Default)]
pub struct ToneCapture {
    /// Position in the content, in frames below [`CYCLE`], of the middle of each window: half a
    /// frame before its frame number `WINDOW / 2`. `None` for silence, fades and cuts.
    pub positions: Vec<Option<f64>>,
    /// Frames before which the content does not go on by one frame: something was omitted,
    /// repeated or cut there. Neighbours count once.
    pub breaks: Vec<usize>,
    /// Frames that are those of the content, bit by bit, and frames in all windows with a position.
    pub exact: [usize; 2],
}

impl ToneCapture {
    /// Reads the positions of all frames.
    #[must_use]
    pub fn new(frames: &[Frame]) -> Self {
        let mut capture = Self { breaks: breaks(frames), ..Self::default() };
        for window in frames.chunks_exact(WINDOW) {
            let position = window_position(window);
            capture.positions.push(position);
            if let Some(position) = position {
                capture.exact[0] += exact(window, position);
                capture.exact[1] += WINDOW;
            }
        }
        capture
    }
}

/// Distance of two positions in frames, by the shorter way round.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "200,000")]
pub fn distance(one: f64, other: f64) -> f64 {
    let cycle = CYCLE as f64;
    (one - other + cycle / 2.0).rem_euclid(cycle) - cycle / 2.0
}

/// Position within the period, and radius.
fn polar(frame: Frame) -> (f64, f64) {
    let [left, right] = frame.map(f64::from);
    (left.atan2(right).rem_euclid(TAU) / TAU * PERIOD_FRAMES, left.hypot(right))
}

/// Difference of two positions within the period, by the shorter way round.
fn turn(one: f64, other: f64) -> f64 {
    (one - other + PERIOD_FRAMES / 2.0).rem_euclid(PERIOD_FRAMES) - PERIOD_FRAMES / 2.0
}

/// The position of the middle of a window; `None` if it has no unbroken, steady tone.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn window_position(window: &[Frame]) -> Option<f64> {
    let middle = (window.len() - 1) as f64 / 2.0;
    let (first, first_radius) = polar(window[0]);
    let (mut lag, mut radius_sum, mut last_radius) = (0.0, 0.0, first_radius);
    for (number, frame) in window.iter().enumerate() {
        let (phase, radius) = polar(*frame);
        let off = turn(phase, first + number as f64);
        // 500 ppm over the window are a quarter of a frame.
        if radius < LEAST_RADIUS - SLOPE || off.abs() > 0.5 {
            return None;
        }
        lag += off;
        radius_sum += radius;
        last_radius = radius;
    }
    let count = window.len() as f64;
    let within = (first + lag / count + middle).rem_euclid(PERIOD_FRAMES);
    let rise = (last_radius - first_radius) / (SLOPE * (count - 1.0) / PERIOD_FRAMES);
    // Neither a fade nor a turning point.
    if !(0.8..1.2).contains(&rise.abs()) {
        return None;
    }
    let height = (radius_sum / count - LEAST_RADIUS) / SLOPE;
    let height = if rise > 0.0 { height } else { 2.0 * HALF as f64 - height };
    let periods = (height - within / PERIOD_FRAMES).round();
    let residue = height - within / PERIOD_FRAMES - periods;
    (residue.abs() < 0.25).then(|| (periods * PERIOD_FRAMES + within).rem_euclid(CYCLE as f64))
}

/// How many frames of a window are those of the content.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "small numbers"
)]
fn exact(window: &[Frame], position: f64) -> usize {
    let first = (position - (window.len() - 1) as f64 / 2.0).rem_euclid(CYCLE as f64).round();
    let expected = (first as usize..).map(frame);
    window.iter().zip(expected).filter(|(heard, expected)| *heard == expected).count()
}

fn breaks(frames: &[Frame]) -> Vec<usize> {
    let mut found: Vec<usize> = Vec::new();
    let mut before: Option<f64> = None;
    for (number, frame) in frames.iter().enumerate() {
        let (phase, radius) = polar(*frame);
        let is_tone = radius > LEAST_RADIUS - SLOPE;
        let is_broken =
            is_tone && before.is_some_and(|before| (turn(phase, before) - 1.0).abs() > MAX_STEP);
        if is_broken && found.last().is_none_or(|last| number - last > MERGED) {
            found.push(number);
        }
        before = is_tone.then_some(phase);
    }
    found
}

const PERIOD_FRAMES: f64 = PERIOD as f64;

/// By how much a step may differ from a frame: more than a resampler and dither change it.
const MAX_STEP: f64 = 0.1;

/// Breaks at this distance are one.
const MERGED: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(from: usize, count: usize) -> Vec<Frame> {
        (from..from + count).map(frame).collect()
    }

    #[test]
    fn every_window_of_a_cycle_has_its_position() {
        let capture = ToneCapture::new(&tone(1_234, CYCLE + 10_000));
        let found = capture.positions.iter().flatten().count();
        // Windows at the turning points have none.
        assert!(capture.positions.len() - found <= 6, "{found}");
        for (number, position) in capture.positions.iter().enumerate() {
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let expected = (1_234 + number * WINDOW) as f64 + 239.5;
            assert!(position.is_none_or(|at| distance(at, expected).abs() < 0.001), "{number}");
        }
        assert!(capture.breaks.is_empty(), "{:?}", capture.breaks);
        assert_eq!(capture.exact, [found * WINDOW; 2]);
    }

    #[test]
    fn a_resampled_tone_keeps_its_position_and_has_no_breaks() {
        // 300 ppm faster, by evaluating the formula between frames.
        let frames: Vec<Frame> = (0..20_000)
            .map(|number| {
                let at = 5_000.0 + f64::from(number) * 1.0003;
                let angle = TAU * at / PERIOD_FRAMES;
                let radius = LEAST_RADIUS + SLOPE * at / PERIOD_FRAMES;
                #[expect(clippy::cast_possible_truncation, reason = "16 bits")]
                [radius * angle.sin(), radius * angle.cos()].map(|sample| sample.round() as i32)
            })
            .collect();
        let capture = ToneCapture::new(&frames);
        for (number, position) in capture.positions.iter().enumerate() {
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let expected = 5_000.0 + ((number * WINDOW) as f64 + 239.5) * 1.0003;
            assert!(distance(position.unwrap(), expected).abs() < 0.002, "{number}");
        }
        assert!(capture.breaks.is_empty(), "{:?}", capture.breaks);
        assert!(capture.exact[0] < capture.exact[1] / 2);
    }

    #[test]
    fn omitted_repeated_and_cut_frames_are_found() {
        let parts = [tone(0, 1_000), tone(1_001, 999), tone(1_999, 1_000), tone(9_000, 1_000)];
        let capture = ToneCapture::new(&parts.concat());
        assert_eq!(capture.breaks, [1_000, 1_999, 2_999]);
        let silence = vec![[0, 0]; 960];
        let capture = ToneCapture::new(&[silence.clone(), tone(7, 960), silence].concat());
        assert!(capture.breaks.is_empty(), "{:?}", capture.breaks);
        let heard: Vec<bool> = capture.positions.iter().map(Option::is_some).collect();
        assert_eq!(heard, [false, false, true, true, false, false]);
    }
}
