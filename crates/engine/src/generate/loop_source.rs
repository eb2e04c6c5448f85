//! A sound in memory that loops without a gap: the last resort when no source has audio.

use aulos_core::{Block, ChannelLayout, Frames, Instant, SampleRate};

use crate::source::{BLOCK_SAMPLES, Pacing, PullResult, Source};

/// Samples that a [`LoopSource`] may hold: almost three minutes of stereo at 48 kHz, 64 MiB.
pub const MAX_LOOP_SAMPLES: usize = 1 << 24;

/// Plays its frames in an endless loop.
pub struct LoopSource {
    samples: Box<[f32]>,
    rate: SampleRate,
    layout: ChannelLayout,
    at: usize,
}

impl LoopSource {
    /// Takes whole interleaved frames; `None` when there is none, or more than [`MAX_LOOP_SAMPLES`]
    /// samples.
    #[must_use]
    pub fn new(samples: Vec<f32>, rate: SampleRate, layout: ChannelLayout) -> Option<Self> {
        let whole =
            samples.len() >= layout.channels() && samples.len().is_multiple_of(layout.channels());
        let fits = whole && samples.len() <= MAX_LOOP_SAMPLES;
        fits.then(|| Self { samples: samples.into(), rate, layout, at: 0 })
    }
}

impl Source for LoopSource {
    fn pull(&mut self, _now: Instant, into: &mut Block) -> PullResult {
        let channels = self.layout.channels();
        let rest = &self.samples[self.at..];
        let samples = rest.len().min(BLOCK_SAMPLES / channels * channels);
        into.reset(self.rate, self.layout);
        into.resize(Frames::from(samples / channels));
        into.samples_mut().copy_from_slice(&rest[..samples]);
        self.at = (self.at + samples) % self.samples.len();
        PullResult::Block
    }

    fn pacing(&self) -> Pacing {
        Pacing::OnDemand
    }

    fn rewind(&mut self) {
        self.at = 0;
    }
}

impl core::fmt::Debug for LoopSource {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Recording").field("rate", &self.rate).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_repeats_without_a_gap_and_restarts_on_command() {
        let samples: Vec<f32> = (0..10_001u16).map(f32::from).collect();
        let layout = ChannelLayout::MONO;
        let mut recording = LoopSource::new(samples.clone(), SampleRate::HZ_44100, layout).unwrap();
        let mut block = Block::with_capacity(SampleRate::HZ_44100, layout, BLOCK_SAMPLES);
        let mut heard = Vec::new();
        while heard.len() < 30_003 {
            assert_eq!(recording.pull(Instant::ZERO, &mut block), PullResult::Block);
            heard.extend_from_slice(block.samples());
        }
        assert_eq!(heard[..30_003], samples.repeat(3));
        recording.pull(Instant::ZERO, &mut block);
        recording.rewind();
        recording.pull(Instant::ZERO, &mut block);
        assert_eq!(block.samples()[0].to_bits(), 0);
    }

    #[test]
    fn half_a_frame_nothing_and_too_much_are_refused() {
        let made = |samples| {
            LoopSource::new(vec![0.0; samples], SampleRate::HZ_44100, ChannelLayout::STEREO)
        };
        assert!(made(0).is_none() && made(3).is_none() && made(MAX_LOOP_SAMPLES + 2).is_none());
        assert!(made(2).is_some());
    }
}
