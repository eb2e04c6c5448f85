//! Finds the delay of a program's sound by a burst of noise in front of the programme.
//!
//! The delay between two programmes could be found in their sound as well, but not in silence or in
//! a tone, and not before the processed one is heard. The first frame of the output alone shows
//! nothing: some programs send silence first, others wait.
//!
//! The burst is found where its correlation with the output is greatest, whatever its level and
//! sign. A program whose output has nothing of it in common with its input is not recognized.

use aulos_core::{Frames, Rng, SampleRate, Span};

/// Silence, a burst of noise, and the search for it.
#[derive(Debug)]
pub(super) struct LatencyProbe {
    burst: Box<[f32]>,
    /// Silence before the burst, in frames.
    lead: usize,
    /// The first channel of the output from `lead - EARLIEST` on.
    output: Vec<f32>,
    /// Frames of the output before these.
    skip: usize,
    /// The next offset in `output` to be compared.
    next: usize,
    /// Offsets to be compared at most.
    end: usize,
    best: Option<(usize, f32)>,
    result: Option<ProbeResult>,
}

/// What the search has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeResult {
    /// Frame n of the input is frame n + `delay` of the output.
    Delay(i64),
    /// The output has nothing in common with the burst.
    Unrecognized,
}

impl LatencyProbe {
    pub(super) fn new(rate: SampleRate) -> Self {
        let mut noise = Rng::new(SEED);
        let burst = (0..BURST).map(|_| if noise.chance(0.5) { LEVEL } else { -LEVEL }).collect();
        let lead = rate.frames(LEAD).as_usize().max(EARLIEST);
        let end = rate.frames(MAX_DELAY).as_usize() + EARLIEST;
        Self {
            burst,
            lead,
            output: Vec::with_capacity(end + BURST),
            skip: lead - EARLIEST,
            next: 0,
            end,
            best: None,
            result: None,
        }
    }

    /// Length of the silence and the burst.
    pub(super) fn frames(&self) -> Frames {
        Frames::from(self.lead + self.burst.len())
    }

    /// The sample of every channel of this frame; 0 behind the burst.
    pub(super) fn sample(&self, frame: usize) -> f32 {
        let at = frame.checked_sub(self.lead);
        at.and_then(|at| self.burst.get(at)).copied().unwrap_or_default()
    }

    /// Compares further output, interleaved, as far as [`MAX_COMPARED`] allows: the rest is
    /// compared with what comes next. The result stays the same once there is one.
    pub(super) fn push(&mut self, samples: &[f32], channels: usize) -> Option<ProbeResult> {
        for frame in samples.chunks_exact(channels) {
            if self.skip > 0 {
                self.skip -= 1;
            } else if self.output.len() < self.end + BURST {
                self.output.extend(frame.first());
            }
        }
        for _ in 0..MAX_COMPARED {
            if self.result.is_some() || self.next + BURST > self.output.len() {
                break;
            }
            self.compare();
        }
        self.result
    }

    fn compare(&mut self) {
        let window = &self.output[self.next..self.next + BURST];
        let energy: f32 = window.iter().map(|sample| sample * sample).sum();
        if energy > QUIET {
            let product: f32 = window.iter().zip(&self.burst).map(|(a, b)| a * b).sum();
            #[allow(clippy::cast_precision_loss, reason = "about a thousand")]
            let whole = (energy * LEVEL * LEVEL * BURST as f32).sqrt();
            let likeness = (product / whole).abs();
            if likeness > self.best.map_or(RECOGNIZED, |(_, best)| best) {
                self.best = Some((self.next, likeness));
            }
        }
        self.next += 1;
        self.result = match self.best {
            Some((at, _)) if self.next > at + SPREAD || self.next >= self.end => {
                let delay = i64::try_from(at).unwrap_or(i64::MAX);
                Some(ProbeResult::Delay(delay - i64::try_from(EARLIEST).unwrap_or(0)))
            }
            None if self.next >= self.end => Some(ProbeResult::Unrecognized),
            _ => None,
        };
    }
}

/// Frames of the burst: it stands out of any programme behind it, and lasts 21 ms.
const BURST: usize = 1_024;
/// -12 dBFS: no processor has to limit it, and no gate closes.
const LEVEL: f32 = 0.25;
/// Silence before the burst, in which a program that fades in or adapts begins.
const LEAD: Span = Span::from_millis(100);
/// A program may omit so many frames at its start.
const EARLIEST: usize = 2_048;
/// The greatest delay of a program's sound.
pub(super) const MAX_DELAY: Span = Span::from_secs(1);
/// A normalized correlation that is not due to chance: that of independent noise is 0.03, and
/// reaches 0.16 once in a million offsets.
const RECOGNIZED: f32 = 0.25;
/// A better match must follow within so many frames: filters spread a burst.
const SPREAD: usize = 2_048;
/// Offsets compared at once: some milliseconds of work, on a thread that has more to do.
const MAX_COMPARED: usize = 2_048;
/// Energy of a window that is taken for silence: 50 dB below the burst.
const QUIET: f32 = 1e-5 * LEVEL * LEVEL * 1_024.0;
const SEED: u64 = 0x1770;

#[cfg(test)]
mod tests {
    use super::*;

    /// The result for a program that makes `output` of the whole input.
    fn result(program: impl Fn(&[f32]) -> Vec<f32>) -> Option<ProbeResult> {
        let mut probe = LatencyProbe::new(SampleRate::HZ_48000);
        let mut noise = Rng::new(1);
        let probed = probe.frames().as_usize();
        #[allow(clippy::cast_possible_truncation, reason = "a sample")]
        let input: Vec<f32> = (0..60_000)
            .map(|at| if at < probed { probe.sample(at) } else { noise.next_f64() as f32 - 0.5 })
            .collect();
        let stereo: Vec<f32> = program(&input).into_iter().flat_map(|x| [x, 0.0]).collect();
        stereo.chunks(962).find_map(|piece| probe.push(piece, 2))
    }

    #[test]
    fn the_delay_is_exact_for_any_gain_and_sign_and_behind_filters() {
        for delay in [0, 1, 4_096, 40_000] {
            for gain in [1.0, -1.0, 0.05, 4.0] {
                let late = |input: &[f32]| -> Vec<f32> {
                    let padded = std::iter::repeat_n(0.0, delay).chain(input.iter().copied());
                    padded.map(|x| (gain * x).clamp(-0.9, 0.9)).collect()
                };
                let expected = i64::try_from(delay).unwrap();
                assert_eq!(result(late), Some(ProbeResult::Delay(expected)), "{delay} {gain}");
            }
        }
        // The mean of two frames: half a frame late, so either is right.
        let smooth =
            |input: &[f32]| input.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0).collect();
        let found = result(smooth);
        assert!(matches!(found, Some(ProbeResult::Delay(-1 | 0))), "{found:?}");
        let cut = |input: &[f32]| input[700..].to_vec();
        assert_eq!(result(cut), Some(ProbeResult::Delay(-700)));
    }

    #[test]
    fn what_is_no_version_of_the_input_is_not_recognized() {
        #[allow(clippy::cast_possible_truncation, reason = "a sample")]
        let noise = |input: &[f32]| {
            let mut noise = Rng::new(9);
            input.iter().map(|_| noise.next_f64() as f32 - 0.5).collect()
        };
        assert_eq!(result(noise), Some(ProbeResult::Unrecognized));
        #[allow(clippy::cast_precision_loss, reason = "a few thousand")]
        let tone = |input: &[f32]| (0..input.len()).map(|n| (n as f32 * 0.13).sin()).collect();
        assert_eq!(result(tone), Some(ProbeResult::Unrecognized));
        assert_eq!(result(|input| vec![0.0; input.len()]), Some(ProbeResult::Unrecognized));
        assert_eq!(result(|_| vec![0.0; 30_000]), None, "too little to decide");
    }
}
