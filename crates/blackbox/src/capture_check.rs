//! Comparison of captured audio with the original.
//!
//! A plain "not equal" would be useless: a client that corrects its clock by one frame, a server
//! that lost a chunk and a converter that rounds wrongly are three different faults in three
//! different programs. The comparison therefore walks along both and classifies each difference.

use std::fmt;

use crate::signal::Frame;

/// One difference, with its position in the original, in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureFault {
    /// The original is not in the capture at all.
    NotFound,
    /// Frames are missing.
    Missing {
        /// Position.
        at: usize,
        /// Number of frames.
        frames: usize,
    },
    /// Frames were inserted.
    Extra {
        /// Position.
        at: usize,
        /// Number of frames.
        frames: usize,
        /// All of them are digital silence.
        silent: bool,
    },
    /// Frames have other values.
    Altered {
        /// Position.
        at: usize,
        /// Number of frames.
        frames: usize,
    },
    /// The rest is missing, or could not be recognized.
    Ends {
        /// Position.
        at: usize,
    },
}

impl CaptureFault {
    /// Whether it is a clock correction of a Snapcast client ("soft sync"): one frame omitted, or
    /// played twice.
    #[must_use]
    pub const fn is_soft_sync(self) -> bool {
        matches!(
            self,
            Self::Missing { frames: 1, .. } | Self::Extra { frames: 1, silent: false, .. }
        )
    }
}

impl fmt::Display for CaptureFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => write!(f, "the programme is not in the capture"),
            Self::Missing { at, frames: 1 } => write!(f, "frame {at} dropped (soft sync?)"),
            Self::Missing { at, frames } => write!(f, "{frames} frames missing at {at}"),
            Self::Extra { at, frames, silent: true } => {
                write!(f, "{frames} frames of silence put in at {at}")
            }
            Self::Extra { at, frames: 1, .. } => write!(f, "a frame too many at {at} (soft sync?)"),
            Self::Extra { at, frames, .. } => write!(f, "{frames} frames put in at {at}"),
            Self::Altered { at, frames } => write!(f, "{frames} frames altered at {at}"),
            Self::Ends { at } => write!(f, "nothing of it after frame {at}"),
        }
    }
}

/// Number of frames that must agree for two positions to match.
const SAME: usize = 32;
/// Search range for the continuation: two seconds.
const REACH: usize = 96_000;
/// Number of faults after which the comparison stops.
const ENOUGH: usize = 20;

/// Compares every frame of the original with the capture. No fault means bit-exact.
///
/// The capture may contain anything before and after the programme.
#[must_use]
pub fn compare(put_in: &[Frame], captured: &[Frame]) -> Vec<CaptureFault> {
    let mut faults = Vec::new();
    let Some((mut at, mut there)) = beginning(put_in, captured) else {
        return vec![CaptureFault::NotFound];
    };
    if at > 0 {
        faults.push(CaptureFault::Missing { at: 0, frames: at });
    }
    while faults.len() < ENOUGH {
        let same = put_in[at..].iter().zip(&captured[there..]).take_while(|(a, b)| a == b).count();
        (at, there) = (at + same, there + same);
        if at == put_in.len() {
            return faults;
        }
        let Some((fault, skip_in, skip_out)) = difference(put_in, captured, at, there) else {
            faults.push(CaptureFault::Ends { at });
            return faults;
        };
        faults.push(fault);
        (at, there) = (at + skip_in, there + skip_out);
    }
    faults
}

/// The first position of the programme that is found, and its position in the capture.
fn beginning(put_in: &[Frame], captured: &[Frame]) -> Option<(usize, usize)> {
    // If the start of the programme is lost, a later position in the first two seconds is searched.
    [0, 1, 100, 1_000, 5_000, 24_000, 48_000, 96_000].into_iter().find_map(|at| {
        let wanted = put_in.get(at..at + SAME)?;
        Some((at, captured.windows(SAME).position(|window| window == wanted)?))
    })
}

/// The smallest step after which both continue equally: the fault, and its length in each.
fn difference(
    put_in: &[Frame],
    captured: &[Frame],
    at: usize,
    there: usize,
) -> Option<(CaptureFault, usize, usize)> {
    let goes_on = |skip_in: usize, skip_out: usize| {
        let (Some(a), Some(b)) = (put_in.get(at + skip_in..), captured.get(there + skip_out..))
        else {
            return false;
        };
        let n = SAME.min(a.len());
        n > 0 && b.len() >= n && a[..n] == b[..n]
    };
    (1..REACH).find_map(|n| {
        if goes_on(n, 0) {
            return Some((CaptureFault::Missing { at, frames: n }, n, 0));
        }
        if goes_on(0, n) {
            let silent = captured[there..there + n].iter().all(|frame| *frame == [0, 0]);
            return Some((CaptureFault::Extra { at, frames: n, silent }, 0, n));
        }
        goes_on(n, n).then_some((CaptureFault::Altered { at, frames: n }, n, n))
    })
}

/// Waveform signal-to-noise ratio in dB of a lossy copy, after finding its delay.
///
/// The signal is the original, the noise the difference, without any adjustment of gain. `None` if
/// the copy is not found.
#[must_use]
pub fn snr_db(put_in: &[Frame], captured: &[Frame]) -> Option<f64> {
    // Coarse: the start of the audio in each. Fine: the best match of a section in the middle.
    let threshold = put_in.iter().flatten().map(|s| s.abs()).max()? / 20;
    let loud = |sound: &[Frame]| sound.iter().position(|f| f.iter().any(|s| s.abs() > threshold));
    let rough = loud(captured)?.cast_signed() - loud(put_in)?.cast_signed();
    let middle = put_in.len() / 2;
    let stretch = put_in.get(middle..middle + STRETCH)?;
    let distance = |delay: isize| {
        let from = usize::try_from(middle.cast_signed() + delay).ok()?;
        let copy = captured.get(from..from + STRETCH)?;
        Some(energy(stretch.iter().zip(copy).map(|(a, b)| [a[0] - b[0], a[1] - b[1]])))
    };
    let delay = (rough - DELAY_RANGE..=rough + DELAY_RANGE)
        .filter_map(|delay| Some((distance(delay)?, delay)))
        .min_by(|a, b| a.0.total_cmp(&b.0))?
        .1;
    // The first and last moments contain the codec's start and the switch's fade; the rest counts.
    let margin = put_in.len() / 20;
    let whole = put_in.get(margin..put_in.len() - margin)?;
    let from = usize::try_from(margin.cast_signed() + delay).ok()?;
    let copy = captured.get(from..from + whole.len())?;
    let noise = energy(whole.iter().zip(copy).map(|(a, b)| [a[0] - b[0], a[1] - b[1]]));
    Some(10.0 * (energy(whole.iter().copied()) / noise.max(1.0)).log10())
}

const STRETCH: usize = 4_800;
/// Greater than the delay of any codec plus the hidden beginning of a fade.
const DELAY_RANGE: isize = 3_000;

fn energy(frames: impl Iterator<Item = Frame>) -> f64 {
    frames.map(|[l, r]| f64::from(l).powi(2) + f64::from(r).powi(2)).sum()
}

/// Share of one tone in a section: 1 for a pure tone, near 0 for anything else (Goertzel's
/// algorithm on the sum of both channels). 0 for silence.
#[must_use]
pub fn tone_share(sound: &[Frame], hz: f64, rate: f64) -> f64 {
    let coefficient = 2.0 * (std::f64::consts::TAU * hz / rate).cos();
    let (mut s1, mut s2, mut total, mut count) = (0.0, 0.0, 0.0, 0.0);
    for [left, right] in sound {
        let x = f64::from(*left) + f64::from(*right);
        (s1, s2) = (x + coefficient * s1 - s2, s1);
        total += x * x;
        count += 1.0;
    }
    let power = s1 * s1 + s2 * s2 - coefficient * s1 * s2;
    if total > 0.0 { power * 2.0 / (count * total) } else { 0.0 }
}

/// Level of a section relative to full scale (a square wave is 0 dB); -200 for silence.
#[must_use]
pub fn level_dbfs(sound: &[Frame], full_scale: i32) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a count of frames")]
    let samples = (2 * sound.len()).max(1) as f64;
    let mean = energy(sound.iter().copied()) / samples;
    (10.0 * (mean / f64::from(full_scale).powi(2)).log10()).max(-200.0)
}

/// The peaks of each 10 ms of a recording of 16 bits, stereo, 48 kHz, without a header.
#[must_use]
pub fn peaks_of_10_ms(recording: &[u8]) -> Vec<u16> {
    let samples = recording.as_chunks::<2>().0.iter().map(|two| i16::from_le_bytes(*two));
    let samples: Vec<u16> = samples.map(i16::unsigned_abs).collect();
    samples.chunks(960).map(|piece| piece.iter().copied().max().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::{SampleWidth, programme, tonal};

    fn capture(sound: &[Frame]) -> Vec<Frame> {
        let silence = vec![[0, 0]; 1_000];
        [&silence, sound, &silence].concat()
    }

    #[test]
    fn each_fault_has_its_name() {
        let sound = programme(30_000, SampleWidth::B16, 7);
        let judge = |change: fn(&mut Vec<Frame>)| {
            let mut copy = sound.clone();
            change(&mut copy);
            compare(&sound, &capture(&copy))
        };
        assert_eq!(judge(|_| ()), []);
        assert_eq!(judge(Vec::clear), [CaptureFault::NotFound]);
        assert_eq!(
            judge(|s| s[9_000][1] ^= 1),
            [CaptureFault::Altered { at: 9_000, frames: 1 }],
            "one bit of one sample"
        );
        let one = judge(|s| _ = s.remove(9_000));
        assert_eq!(one, [CaptureFault::Missing { at: 9_000, frames: 1 }]);
        assert!(one[0].is_soft_sync());
        let twice = judge(|s| s.insert(9_001, s[9_000]));
        assert_eq!(twice, [CaptureFault::Extra { at: 9_001, frames: 1, silent: false }]);
        assert!(twice[0].is_soft_sync());
        let chunk = judge(|s| drop(s.drain(9_600..10_560)));
        assert_eq!(chunk, [CaptureFault::Missing { at: 9_600, frames: 960 }]);
        assert!(!chunk[0].is_soft_sync());
        assert_eq!(
            judge(|s| drop(s.splice(500..500, vec![[0, 0]; 77]))),
            [CaptureFault::Extra { at: 500, frames: 77, silent: true }]
        );
        assert_eq!(
            judge(|s| drop(s.drain(..24_000))),
            [CaptureFault::Missing { at: 0, frames: 24_000 }]
        );
        assert_eq!(judge(|s| s.truncate(20_000)), [CaptureFault::Ends { at: 20_000 }]);
    }

    #[test]
    fn a_copy_with_noise_of_a_tenth_has_twenty_decibels() {
        let sound = tonal(48_000, SampleWidth::B16);
        let noisy: Vec<Frame> = sound.iter().map(|f| f.map(|s| s + s / 10)).collect();
        let snr = snr_db(&sound, &capture(&noisy)).unwrap();
        assert!((19.5..20.5).contains(&snr), "{snr}");
        let other = programme(48_000, SampleWidth::B16, 1).split_off(20_000);
        assert!(snr_db(&sound, &capture(&other)).is_none_or(|snr| snr < 3.0));
    }

    #[test]
    fn a_tone_is_distinguished_from_music() {
        let tone: Vec<Frame> = (0..4_800)
            .map(|n| {
                let x = (std::f64::consts::TAU * 1000.0 * f64::from(n) / 48_000.0).sin();
                #[expect(clippy::cast_possible_truncation, reason = "within 10,000")]
                let x = (10_000.0 * x) as i32;
                [x, x]
            })
            .collect();
        assert!(tone_share(&tone, 1000.0, 48_000.0) > 0.99);
        assert!(tone_share(&tone, 700.0, 48_000.0) < 0.01);
        assert!(tone_share(&tonal(4_800, SampleWidth::B16), 1000.0, 48_000.0) < 0.5);
        let level = level_dbfs(&tone, 32_767);
        assert!((-13.4..-13.2).contains(&level), "{level}");
    }
}
