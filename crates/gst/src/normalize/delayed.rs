//! The normalizer with its delay: which frames come out, and when they were.

use aulos_core::{Frames, Span};
use aulos_dsp::normalize::{LookAhead, Normalizer, NormalizerError, Settings};
use aulos_dsp::{GainRamp, mix_in};

use crate::pcm::PcmSpec;
use crate::time_map::TimeMap;

/// Frames that came out, at the end of the buffer that was processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutputSpan {
    /// First sample in the buffer.
    pub(super) start: usize,
    /// Times of the first frame and of the one behind the last, in nanoseconds.
    pub(super) times: Option<(u64, u64)>,
}

/// Output has as many frames as input and the times of the input. Nothing comes out before the
/// first frame; at the end, [`DelayedNormalizer::drain`] gives what is left.
pub(super) struct DelayedNormalizer {
    normalizer: Normalizer,
    channels: usize,
    times: TimeMap,
    /// Frames that have come out.
    position: u64,
    /// Frames to leave out until the first one comes out.
    ahead: usize,
    /// Frames that came in and have not come out.
    inside: usize,
    dry: Vec<f32>,
    wet_gain: GainRamp,
    dry_gain: GainRamp,
    bypass: bool,
    fade: Frames,
}

impl DelayedNormalizer {
    pub(super) fn new(
        mode: LookAhead,
        settings: Settings,
        spec: &PcmSpec,
        bypass: bool,
    ) -> Result<Self, NormalizerError> {
        let positions = spec.positions.clone();
        let normalizer = Normalizer::with_positions(mode, settings, spec.rate, positions)?;
        Ok(Self::with(normalizer, spec, bypass))
    }

    /// The same programme in another format. What has not come out stays here.
    pub(super) fn successor(&self, spec: &PcmSpec) -> Result<Self, NormalizerError> {
        let positions = spec.positions.clone();
        let normalizer = self.normalizer.successor_with_positions(spec.rate, positions)?;
        Ok(Self::with(normalizer, spec, self.bypass))
    }

    fn with(normalizer: Normalizer, spec: &PcmSpec, bypass: bool) -> Self {
        let (wet, dry) = if bypass { (0.0, 1.0) } else { (1.0, 0.0) };
        Self {
            ahead: normalizer.latency().as_usize(),
            normalizer,
            channels: spec.layout.channels(),
            times: TimeMap::new(spec.rate),
            position: 0,
            inside: 0,
            dry: Vec::new(),
            wet_gain: GainRamp::at(wet),
            dry_gain: GainRamp::at(dry),
            bypass,
            fade: spec.rate.frames(BYPASS_FADE),
        }
    }

    pub(super) const fn latency(&self) -> Frames {
        self.normalizer.latency()
    }

    /// Whether `time` is not that of the next frame.
    pub(super) fn is_jump(&self, time: Option<u64>) -> bool {
        self.times.is_jump(time)
    }

    /// How much audio is missing before `time`, in nanoseconds.
    pub(super) fn gap_before(&self, time: Option<u64>) -> Option<u64> {
        self.times.gap_before(time)
    }

    /// Changes the settings; the gain moves to its new value.
    pub(super) fn set_settings(&mut self, settings: &Settings) -> Result<(), NormalizerError> {
        if self.normalizer.settings() == settings {
            return Ok(());
        }
        self.normalizer.set_settings(settings.clone())
    }

    /// Fades between the input and what was made of it, which are equally late.
    pub(super) fn set_bypass(&mut self, bypass: bool) {
        if bypass != self.bypass {
            self.bypass = bypass;
            let (wet, dry) = if bypass { (0.0, 1.0) } else { (1.0, 0.0) };
            self.wet_gain.ramp_to(wet, self.fade);
            self.dry_gain.ramp_to(dry, self.fade);
        }
    }

    /// Processes whole frames in place, the first of which has this time.
    pub(super) fn process(&mut self, samples: &mut [f32], time: Option<u64>) -> OutputSpan {
        let frames = samples.len() / self.channels;
        self.times.push(time, frames);
        self.inside += frames;
        self.render(samples)
    }

    /// Fills the start of `samples` with frames that are left, and returns how many samples these
    /// are. With none left, the next frame starts a new stretch of time.
    pub(super) fn drain(&mut self, samples: &mut [f32]) -> Option<(usize, OutputSpan)> {
        while self.inside > 0 {
            let frames = (self.ahead + self.inside).min(samples.len() / self.channels);
            if frames == 0 {
                break;
            }
            let part = &mut samples[..frames * self.channels];
            part.fill(0.0);
            let out = self.render(part);
            if out.start < part.len() {
                return Some((part.len(), out));
            }
        }
        self.restart();
        None
    }

    /// Discards what has not come out. Level and gain continue.
    pub(super) fn interrupt(&mut self) {
        self.normalizer.interrupt();
        self.restart();
    }

    fn restart(&mut self) {
        self.times = TimeMap::new(self.times.rate());
        (self.position, self.inside) = (0, 0);
        self.ahead = self.normalizer.latency().as_usize();
    }

    fn render(&mut self, samples: &mut [f32]) -> OutputSpan {
        self.dry.resize(samples.len(), 0.0);
        self.normalizer.process_with_dry(samples, &mut self.dry);
        self.apply_bypass(samples);
        let frames = samples.len() / self.channels;
        let left_out = frames.min(self.ahead);
        self.ahead -= left_out;
        let out = frames - left_out;
        let times = self.times.take(self.position, out);
        self.position += out as u64;
        self.inside -= out;
        OutputSpan { start: left_out * self.channels, times }
    }

    fn apply_bypass(&mut self, samples: &mut [f32]) {
        if self.wet_gain.is_unity() {
            return;
        }
        if self.dry_gain.is_unity() {
            samples.copy_from_slice(&self.dry);
            return;
        }
        self.wet_gain.apply(samples, self.channels);
        self.dry_gain.apply(&mut self.dry, self.channels);
        mix_in(&self.dry, 1.0, samples);
    }
}

/// Short enough to compare by ear, long enough not to click.
const BYPASS_FADE: Span = Span::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;
    use aulos_core::{ChannelLayout, SampleRate};
    use aulos_dsp::meter::ChannelPosition;

    fn normalizer(mode: LookAhead, bypass: bool) -> DelayedNormalizer {
        let spec = PcmSpec::for_test(SampleRate::HZ_48000, ChannelLayout::STEREO);
        assert_eq!(spec.positions, ChannelPosition::default_for(ChannelLayout::STEREO));
        DelayedNormalizer::new(mode, Settings::default(), &spec, bypass).unwrap()
    }

    fn tone(frames: usize) -> Vec<f32> {
        (0..2 * frames).map(|n| 0.1 * (0.05 * (n / 2) as f32).sin()).collect()
    }

    /// Everything that comes out, and its times: of each piece, start and end.
    fn run(
        stage: &mut DelayedNormalizer,
        input: &[f32],
        size: usize,
    ) -> (Vec<f32>, Vec<(u64, u64)>) {
        let (mut out, mut times, mut frames) = (Vec::new(), Vec::new(), 0);
        for block in input.chunks(2 * size) {
            let mut block = block.to_vec();
            let span = stage.process(&mut block, Some(frames * 1_000_000_000 / 48_000));
            frames += block.len() as u64 / 2;
            out.extend(&block[span.start..]);
            times.extend(span.times.filter(|_| span.start < block.len()));
        }
        let mut block = [0.0; 2 * 1_000];
        while let Some((end, span)) = stage.drain(&mut block) {
            out.extend(&block[span.start..end]);
            times.extend(span.times);
        }
        (out, times)
    }

    #[test]
    fn as_many_frames_come_out_as_went_in_and_at_their_times() {
        for mode in [LookAhead::Full, LookAhead::Mid, LookAhead::Low] {
            for frames in [1, 239, 480, 200_000] {
                let mut stage = normalizer(mode, false);
                for _ in 0..2 {
                    let (out, times) = run(&mut stage, &tone(frames), 480);
                    assert_eq!(out.len(), 2 * frames, "{mode:?}");
                    assert_eq!(times[0].0, 0);
                    let end = times[times.len() - 1].1;
                    assert_eq!(end, frames as u64 * 1_000_000_000 / 48_000);
                    let steps = times.windows(2).map(|pair| pair[1].0.abs_diff(pair[0].1));
                    assert!(steps.max().unwrap_or(0) <= 20_834);
                }
            }
        }
    }

    #[test]
    fn block_sizes_do_not_matter() {
        let input = tone(300_000);
        let (whole, _) = run(&mut normalizer(LookAhead::Full, false), &input, 480_000);
        for size in [1_024, 333, 48_000] {
            let (cut, _) = run(&mut normalizer(LookAhead::Full, false), &input, size);
            assert!(cut == whole, "{size}");
        }
    }

    #[test]
    fn bypassed_samples_are_those_of_the_input() {
        let input = tone(200_000);
        let (out, _) = run(&mut normalizer(LookAhead::Mid, true), &input, 480);
        assert!(out == input);
    }

    #[test]
    fn bypass_fades_without_a_step() {
        let mut stage = normalizer(LookAhead::Low, false);
        let mut out = Vec::new();
        for (index, block) in tone(480_000).chunks(960).enumerate() {
            stage.set_bypass(index / 100 % 2 == 1);
            let mut block = block.to_vec();
            let span = stage.process(&mut block, None);
            out.extend(block[span.start..].iter().step_by(2).copied());
        }
        // The tone alone moves by 0.005 of its amplitude of 0.1 a frame, which the gain may double.
        let step = out.windows(2).map(|pair| (pair[1] - pair[0]).abs()).fold(0.0, f32::max);
        assert!(step < 0.02, "{step}");
    }

    #[test]
    fn after_an_interruption_nothing_old_comes_out() {
        let mut stage = normalizer(LookAhead::Mid, true);
        stage.process(&mut vec![0.5; 2 * 48_000], Some(0));
        stage.interrupt();
        let (out, times) = run(&mut stage, &tone(48_000), 480);
        assert!(out == tone(48_000));
        assert_eq!(times[0].0, 0);
    }
}
