//! The audio of one input, in the format of the output and by running time.

use std::collections::VecDeque;

use aulos_core::{Frames, Instant, Ppm, SampleRate};
use aulos_dsp::silence::{SilenceConfig, SilenceDetector, SilenceVerdict};
use aulos_dsp::{Resampler, remix};

use crate::pcm::PcmSpec;

/// Converts what arrives, and keeps it until it is due. Frames are numbered by running time: frame
/// n is due at n / rate.
pub(super) struct Track {
    rate: SampleRate,
    channels: usize,
    silence: Option<SilenceConfig>,
    detector: SilenceDetector,
    converter: Option<Converter>,
    runs: VecDeque<Run>,
    ended: bool,
}

/// Frames without a gap between them.
struct Run {
    start: u64,
    /// Nothing of it was read or discarded.
    whole: bool,
    samples: VecDeque<f32>,
}

/// From the format of the input to that of the output.
struct Converter {
    spec: PcmSpec,
    resampler: Resampler,
    remixed: Vec<f32>,
    resampled: Vec<f32>,
    /// Running time of the next frame out of the resampler in nanoseconds; `None` before the first
    /// frame, and where the next one continues nothing.
    next: Option<f64>,
    /// Frames of the output that lie before the first frame of the input.
    skip: usize,
    /// Mean of how much later than its timestamp a buffer is expected, in nanoseconds.
    lag: f64,
}

impl Track {
    pub(super) fn new(rate: SampleRate, channels: usize, silence: Option<SilenceConfig>) -> Self {
        let detector = SilenceDetector::new(silence.unwrap_or_default(), rate, channels);
        let runs = VecDeque::new();
        Self { rate, channels, silence, detector, converter: None, runs, ended: false }
    }

    /// Whether audio of so many channels can be converted: others have no one meaning.
    pub(super) const fn takes(&self, channels: usize) -> bool {
        channels == self.channels || matches!(channels, 1 | 2 | 6)
    }

    /// What is pushed from now on has this format.
    pub(super) fn set_format(&mut self, spec: &PcmSpec) {
        if self.converter.as_ref().is_none_or(|converter| converter.spec != *spec) {
            self.finish_run();
            self.converter = Some(Converter {
                resampler: Resampler::new(self.channels, spec.rate, self.rate),
                spec: spec.clone(),
                remixed: Vec::new(),
                resampled: vec![0.0; RESAMPLED_FRAMES * self.channels],
                next: None,
                skip: 0,
                lag: 0.0,
            });
        }
    }

    /// Adds interleaved frames, the first of which is due at the running time `time`, in
    /// nanoseconds; without one they follow the last ones. `now` is the frame that is due next.
    /// Frames that begin more than 10 s later are discarded: such a time is an error of the sender.
    pub(super) fn push(&mut self, samples: &[f32], time: Option<u64>, now: u64) {
        self.ended = false;
        let now_ns = self.nanos(now);
        let Some(converter) = &mut self.converter else { return };
        let expected = converter.expected();
        #[allow(clippy::cast_precision_loss, reason = "exact to a microsecond for centuries")]
        let time = time.map_or_else(|| expected.unwrap_or(now_ns), |time| time as f64);
        if time > now_ns + FURTHEST_AHEAD_NS {
            return;
        }
        let frames = samples.len() / converter.spec.layout.channels();
        #[allow(clippy::cast_precision_loss, reason = "frames of a buffer")]
        let end = time + frames as f64 * 1e9 / f64::from(converter.spec.rate.hz());
        if expected.is_none_or(|expected| (expected - time).abs() > LARGEST_JITTER_NS) {
            self.finish_run();
            self.discard_from(frame_at(end, self.rate));
            self.begin_run(time);
        }
        let Some(converter) = &mut self.converter else { return };
        converter.follow(time);
        converter.remixed.resize(frames * self.channels, 0.0);
        let from = converter.spec.layout.channels();
        remix(samples, from, &mut converter.remixed, self.channels);
        self.convert();
        self.discard_before(now);
    }

    /// The sender has ended: what is inside is all there will be.
    pub(super) fn end(&mut self) {
        if !self.ended {
            self.finish_run();
            self.ended = true;
        }
    }

    pub(super) const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Discards everything.
    pub(super) fn clear(&mut self) {
        self.runs.clear();
        self.ended = false;
        if let Some(converter) = &mut self.converter {
            converter.next = None;
        }
        self.detector =
            SilenceDetector::new(self.silence.unwrap_or_default(), self.rate, self.channels);
    }

    /// Discards the frames before `frame`.
    pub(super) fn discard_before(&mut self, frame: u64) {
        while let Some(run) = self.runs.front_mut() {
            let frames = (run.samples.len() / self.channels) as u64;
            let old = frame.saturating_sub(run.start).min(frames);
            // `old` frames are in memory, so their number fits.
            let samples = usize::try_from(old).unwrap_or(usize::MAX) * self.channels;
            run.samples.drain(..samples.min(run.samples.len()));
            run.start += old;
            run.whole &= old == 0;
            let is_last = self.runs.len() == 1;
            match self.runs.front() {
                Some(run) if run.samples.is_empty() && !is_last => drop(self.runs.pop_front()),
                _ => return,
            }
        }
    }

    /// Discards what lies behind a newer buffer: its time was wrong, or is no longer true.
    fn discard_from(&mut self, frame: u64) {
        while self.runs.back().is_some_and(|run| run.start >= frame) {
            self.runs.pop_back();
        }
    }

    /// Fills `out` from `frame` on; returns the number of frames that there are without a gap.
    pub(super) fn read(&self, frame: u64, out: &mut [f32]) -> usize {
        let wanted = out.len() / self.channels;
        let Some((run, offset)) = self.run_at(frame) else { return 0 };
        let frames = (run.samples.len() / self.channels - offset).min(wanted);
        let range = offset * self.channels..(offset + frames) * self.channels;
        for (out, sample) in out.iter_mut().zip(run.samples.range(range)) {
            *out = *sample;
        }
        frames
    }

    /// How many frames there are from `frame` on without a gap.
    pub(super) fn buffered(&self, frame: u64) -> Frames {
        let run = self.run_at(frame);
        Frames::from(run.map_or(0, |(run, offset)| run.samples.len() / self.channels - offset))
    }

    /// Whether frames that are due at `frame` or later may be pushed.
    pub(super) fn has_room(&self, frame: u64) -> bool {
        self.nanos(self.end_frame()) < self.nanos(frame) + FURTHEST_AHEAD_NS
    }

    /// Whether there are frames after the gap that `frame` is in or before.
    pub(super) fn reaches_beyond(&self, frame: u64) -> bool {
        self.runs.back().is_some_and(|run| run.start > frame)
    }

    /// Whether the audio begins with `frame`.
    pub(super) fn begins_at(&self, frame: u64) -> bool {
        self.run_at(frame).is_some_and(|(run, offset)| run.whole && offset == 0)
    }

    /// Behind the last frame that has arrived.
    pub(super) fn end_frame(&self) -> u64 {
        self.runs.back().map_or(0, |run| run.start + (run.samples.len() / self.channels) as u64)
    }

    /// When the last frame is due.
    pub(super) fn last_arrival(&self) -> Option<Instant> {
        let end = self.rate.span(Frames(self.end_frame()));
        self.runs.back().map(|_| Instant::ZERO + end)
    }

    pub(super) const fn verdict(&self) -> SilenceVerdict {
        match self.silence {
            Some(_) => self.detector.verdict(),
            None => SilenceVerdict::Sound,
        }
    }

    fn run_at(&self, frame: u64) -> Option<(&Run, usize)> {
        self.runs.iter().find_map(|run| {
            let offset = usize::try_from(frame.checked_sub(run.start)?).ok()?;
            (offset < run.samples.len() / self.channels).then_some((run, offset))
        })
    }

    /// Ends what continues: the rest comes out of the resampler.
    fn finish_run(&mut self) {
        let Some(converter) = &mut self.converter else { return };
        if let Some(end) = converter.expected() {
            let rest = converter.resampler.latency().as_usize() * self.channels;
            converter.remixed.clear();
            converter.remixed.resize(rest, 0.0);
            self.convert();
            self.cut(frame_at(end, self.rate));
        }
        if let Some(converter) = &mut self.converter {
            converter.next = None;
        }
    }

    /// Removes what the filter adds behind the last frame.
    fn cut(&mut self, end: u64) {
        let excess = usize::try_from(self.end_frame().saturating_sub(end)).unwrap_or(0);
        if let Some(run) = self.runs.back_mut() {
            let kept = run.samples.len().saturating_sub(excess * self.channels);
            run.samples.truncate(kept);
        }
    }

    fn begin_run(&mut self, time: f64) {
        let rate = f64::from(self.rate.hz());
        let Some(converter) = &mut self.converter else { return };
        converter.resampler.reset();
        let ahead = converter.resampler.pending() * 1e9 / f64::from(converter.spec.rate.hz());
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some frames")]
        let skip = (ahead * rate / 1e9).round() as usize;
        (converter.next, converter.skip, converter.lag) = (Some(time - ahead), skip, 0.0);
        let start = frame_at(time, self.rate);
        // In another format, the same audio goes on.
        if self.runs.is_empty() || self.end_frame().abs_diff(start) > ROUNDING_FRAMES {
            self.runs.push_back(Run { start, whole: true, samples: VecDeque::new() });
        }
    }

    /// Resamples what is in `remixed` and adds it to the last run.
    fn convert(&mut self) {
        let before = self.runs.iter().rev().nth(1);
        let earliest =
            before.map_or(0, |run| run.start + (run.samples.len() / self.channels) as u64);
        let Some((converter, run)) = self.converter.as_mut().zip(self.runs.back_mut()) else {
            return;
        };
        let Converter { resampler, remixed, resampled, next, skip, .. } = converter;
        let mut rest = &remixed[..];
        loop {
            let step = resampler.process(rest, resampled);
            rest = &rest[step.consumed.as_usize() * self.channels..];
            let produced = step.produced.as_usize();
            if let Some(next) = next {
                *next += f64::from(u32::try_from(produced).unwrap_or(0)) * 1e9
                    / f64::from(self.rate.hz());
            }
            let left_out = produced.min(*skip);
            *skip -= left_out;
            let frames = &resampled[left_out * self.channels..produced * self.channels];
            self.detector.update(frames, self.channels);
            run.samples.extend(frames);
            if step.consumed == Frames::ZERO && step.produced == Frames::ZERO {
                break;
            }
        }
        // Time that was there already: the sender's clock was set back a little.
        let again = earliest.saturating_sub(run.start);
        let again = usize::try_from(again).unwrap_or(usize::MAX).saturating_mul(self.channels);
        let again = again.min(run.samples.len());
        run.samples.drain(..again);
        run.start += (again / self.channels) as u64;
    }

    #[allow(clippy::cast_precision_loss, reason = "exact to a microsecond for centuries")]
    fn nanos(&self, frame: u64) -> f64 {
        self.rate.span(Frames(frame)).as_nanos() as f64
    }
}

impl Converter {
    /// Running time at which the next frame of the input is expected.
    fn expected(&self) -> Option<f64> {
        let inside = self.resampler.pending() * 1e9 / f64::from(self.spec.rate.hz());
        self.next.map(|next| next + inside)
    }

    /// Follows a sender whose clock is not that of the pipeline, so that the difference never grows
    /// into a gap. Timestamps are only taken seriously when they differ for long and by more than
    /// their own errors.
    fn follow(&mut self, time: f64) {
        let Some(expected) = self.expected() else { return };
        self.lag += (expected - time - self.lag) * LAG_WEIGHT;
        #[allow(clippy::cast_possible_truncation, reason = "40 ms at most")]
        let drift = match self.lag.abs() {
            lag if lag > DRIFTING_NS => Some(Ppm::from_ppb((self.lag / CATCH_UP_S) as i32)),
            lag if lag < DRIFTING_NS / 4.0 => Some(Ppm::from_ppb(0)),
            _ => None,
        };
        if let Some(drift) = drift {
            self.resampler.set_drift(drift);
        }
    }
}

/// The frame that is due at this running time in nanoseconds.
fn frame_at(time: f64, rate: SampleRate) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let frame = (time * f64::from(rate.hz()) / 1e9).round() as u64;
    frame
}

/// As GStreamer's own elements for audio: larger differences are gaps.
const LARGEST_JITTER_NS: f64 = 40e6;
/// More than any queue holds; it limits the memory too.
const FURTHEST_AHEAD_NS: f64 = 10e9;
/// Weight of a new buffer in the mean of the differences.
const LAG_WEIGHT: f64 = 0.05;
/// A difference that is more than jitter.
const DRIFTING_NS: f64 = 2e6;
/// Time in which a difference is made up for: 2 ms at 200 ppm.
const CATCH_UP_S: f64 = 10.0;
/// Two resamplers round to frames.
const ROUNDING_FRAMES: u64 = 2;
const RESAMPLED_FRAMES: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;
    use aulos_core::ChannelLayout;

    fn track() -> Track {
        Track::new(SampleRate::HZ_48000, 1, None)
    }

    fn spec(hz: u32, channels: usize) -> PcmSpec {
        let (rate, layout) = (SampleRate::new(hz), ChannelLayout::new(channels));
        PcmSpec::for_test(rate.unwrap(), layout.unwrap())
    }

    fn ramp(start: u32, frames: u32) -> Vec<f32> {
        (start..start + frames).map(|n| n as f32).collect()
    }

    #[test]
    fn frames_are_read_at_their_running_time() {
        let mut track = track();
        track.set_format(&spec(48_000, 1));
        for block in 0..10 {
            let time = 1_000_000_000 + u64::from(block) * 10_000_000;
            track.push(&ramp(block * 480, 480), Some(time), 0);
        }
        let mut out = [-1.0; 480];
        assert_eq!(track.read(47_999, &mut out), 0);
        assert_eq!(track.read(48_100, &mut out), 480);
        assert_eq!(out.as_slice(), ramp(100, 480));
        assert_eq!(track.buffered(48_000), Frames(4_800 - 40), "the resampler looks ahead");
        track.end();
        assert_eq!(track.buffered(48_000), Frames(4_800));
        track.discard_before(48_000 + 4_000);
        assert_eq!((track.buffered(51_999), track.buffered(52_000)), (Frames(0), Frames(800)));
    }

    #[test]
    fn every_rate_has_its_frames_at_the_same_time() {
        for hz in [8_000, 44_100, 48_000, 96_000, 192_000] {
            let mut track = track();
            track.set_format(&spec(hz, 2));
            // A step from 0 to 0.5 at 500 ms.
            let step: Vec<f32> =
                (0..2 * hz).map(|n| if n / 2 < hz / 2 { 0.0 } else { 0.5 }).collect();
            for (index, block) in step.chunks(2 * hz as usize / 100).enumerate() {
                track.push(block, Some(10_000_000 * index as u64), 0);
            }
            track.end();
            let mut out = vec![0.0; 48_000];
            assert_eq!(track.read(0, &mut out), 48_000, "{hz}");
            let middle = out.iter().position(|sample| *sample > 0.25).unwrap();
            assert!(middle.abs_diff(24_000) <= 4, "{hz}: {middle}");
        }
    }

    #[test]
    fn a_jump_leaves_a_gap_and_what_comes_twice_is_left_out() {
        let mut track = track();
        track.set_format(&spec(48_000, 1));
        track.push(&ramp(0, 4_800), Some(0), 0);
        track.push(&ramp(4_800, 4_800), Some(200_000_000), 0);
        assert_eq!(track.buffered(0), Frames(4_800));
        assert_eq!(track.buffered(4_800), Frames(0));
        assert_eq!(track.buffered(9_600), Frames(4_760));
        track.push(&ramp(9_600, 9_600), Some(150_000_000), 0);
        track.end();
        assert_eq!(track.buffered(9_600), Frames(4_800));
        assert_eq!(track.buffered(14_400), Frames(2_400));
    }

    #[test]
    fn a_clock_that_runs_away_is_followed_without_a_gap() {
        for drift in [300i64, -300] {
            let mut track = track();
            track.set_format(&spec(48_000, 1));
            let tone: Vec<f32> = (0..480).map(|n| (n as f32 * 0.13).sin()).collect();
            for block in 0..60_000i64 {
                let time = block * 10_000_000 + block * 10 * drift;
                track.push(
                    &tone,
                    Some(time.try_into().unwrap()),
                    u64::try_from(block).unwrap() * 480,
                );
                assert!(track.runs.len() == 1, "a gap after {block} blocks");
            }
        }
    }

    #[test]
    fn hostile_times_take_no_memory() {
        let mut track = track();
        track.set_format(&spec(48_000, 1));
        for time in [u64::MAX - 1, 0, u64::MAX / 2, 5, u64::MAX - 2] {
            track.push(&ramp(0, 48), Some(time), 0);
        }
        track.push(&[], None, 1_000);
        assert!(track.runs.iter().map(|run| run.samples.len()).sum::<usize>() <= 5 * 48);
    }
}
