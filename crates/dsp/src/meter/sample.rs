//! Conversion of the caller's samples to the meter's two working formats.
//!
//! Interleaved f32 and f64 are read in place; other formats are copied, a short run at a time, into
//! one of two staging buffers: 16 bit fits f32 exactly, 32 bit needs f64.

use crate::simd::{self, SimdLevel};

/// The longest run, in frames: long segments have the least overhead, and all stages of a stereo
/// run stay in the second-level cache.
pub(super) const RUN: usize = 4800;

/// The same for one of many meters, whose buffers count: a chunk of 20 ms at 48 kHz.
pub(super) const COARSE_RUN: usize = 960;

/// A sample value: `i16`, `i32` (full scale is the type's), `f32` or `f64` (full scale is 1.0).
pub trait MeterSample: Copy + sealed::Sealed {
    #[doc(hidden)]
    const WIDE: bool;
    #[doc(hidden)]
    const ALWAYS_FINITE: bool;
    #[doc(hidden)]
    fn narrow(self) -> f32;
    #[doc(hidden)]
    fn wide(self) -> f64;
    #[doc(hidden)]
    fn as_view(samples: &[Self]) -> Option<SampleView<'_>>;
}

mod sealed {
    #[allow(unnameable_types, reason = "not to be implemented outside this crate")]
    pub trait Sealed {}
    impl Sealed for i16 {}
    impl Sealed for i32 {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// Interleaved samples in one of the two working formats.
#[doc(hidden)]
#[allow(unnameable_types, reason = "only the meter calls what speaks of it")]
#[derive(Clone, Copy, Debug)]
pub enum SampleView<'a> {
    Narrow(&'a [f32]),
    Wide(&'a [f64]),
}

impl MeterSample for i16 {
    const WIDE: bool = false;
    const ALWAYS_FINITE: bool = true;
    fn narrow(self) -> f32 {
        f32::from(self) * (1.0 / 32_768.0)
    }
    fn wide(self) -> f64 {
        f64::from(self.narrow())
    }
    fn as_view(_: &[Self]) -> Option<SampleView<'_>> {
        None
    }
}

impl MeterSample for i32 {
    const WIDE: bool = true;
    const ALWAYS_FINITE: bool = true;
    #[allow(clippy::cast_possible_truncation, reason = "rounding is meant")]
    fn narrow(self) -> f32 {
        self.wide() as f32
    }
    fn wide(self) -> f64 {
        f64::from(self) * (1.0 / 2_147_483_648.0)
    }
    fn as_view(_: &[Self]) -> Option<SampleView<'_>> {
        None
    }
}

impl MeterSample for f32 {
    const WIDE: bool = false;
    const ALWAYS_FINITE: bool = false;
    fn narrow(self) -> f32 {
        self
    }
    fn wide(self) -> f64 {
        f64::from(self)
    }
    fn as_view(samples: &[Self]) -> Option<SampleView<'_>> {
        Some(SampleView::Narrow(samples))
    }
}

impl MeterSample for f64 {
    const WIDE: bool = true;
    const ALWAYS_FINITE: bool = false;
    #[allow(clippy::cast_possible_truncation, reason = "rounding is meant")]
    fn narrow(self) -> f32 {
        self as f32
    }
    fn wide(self) -> f64 {
        self
    }
    fn as_view(samples: &[Self]) -> Option<SampleView<'_>> {
        Some(SampleView::Wide(samples))
    }
}

/// The caller's samples of one call.
#[derive(Clone, Copy, Debug)]
pub(super) enum InputSamples<'a, S> {
    /// Frame after frame.
    Interleaved(&'a [S]),
    /// One slice per channel, equally long.
    Planar(&'a [&'a [S]]),
}

impl<'a, S: MeterSample> InputSamples<'a, S> {
    pub(super) fn frames(&self, channels: usize) -> usize {
        match self {
            Self::Interleaved(samples) => samples.len() / channels,
            Self::Planar(planes) => planes.iter().map(|plane| plane.len()).min().unwrap_or(0),
        }
    }

    /// The run in place, if it is in a working format already.
    pub(super) fn in_place(
        &self,
        start: usize,
        frames: usize,
        channels: usize,
    ) -> Option<SampleView<'a>> {
        match self {
            Self::Interleaved(samples) => {
                S::as_view(&samples[start * channels..(start + frames) * channels])
            }
            Self::Planar(planes) if channels == 1 => S::as_view(&planes[0][start..start + frames]),
            Self::Planar(_) => None,
        }
    }
}

/// The two staging buffers, each as long as a run.
#[derive(Clone, Debug, Default)]
pub(super) struct StagingBuffers {
    narrow: Vec<f32>,
    wide: Vec<f64>,
}

impl StagingBuffers {
    pub(super) fn new(channels: usize, run: usize) -> Self {
        Self { narrow: vec![0.0; run * channels], wide: vec![0.0; run * channels] }
    }

    /// Copies a run for [`StagingBuffers::view`].
    pub(super) fn copy<S: MeterSample>(
        &mut self,
        source: &InputSamples<'_, S>,
        start: usize,
        frames: usize,
        channels: usize,
    ) {
        if S::WIDE {
            spread(source, start, frames, channels, &mut self.wide, S::wide);
        } else {
            spread(source, start, frames, channels, &mut self.narrow, S::narrow);
        }
    }

    /// Replaces samples that are not finite, or too large to be squared, by silence; returns their
    /// number.
    pub(super) fn clean<S: MeterSample>(&mut self, count: usize) -> u64 {
        let mut rejected = 0;
        if S::WIDE {
            for sample in &mut self.wide[..count] {
                if is_absurd(*sample) {
                    *sample = 0.0;
                    rejected += 1;
                }
            }
        } else {
            for sample in &mut self.narrow[..count] {
                if !sample.is_finite() {
                    *sample = 0.0;
                    rejected += 1;
                }
            }
        }
        rejected
    }

    pub(super) fn view<S: MeterSample>(&self, count: usize) -> SampleView<'_> {
        if S::WIDE {
            SampleView::Wide(&self.wide[..count])
        } else {
            SampleView::Narrow(&self.narrow[..count])
        }
    }
}

impl SampleView<'_> {
    /// Whether every sample can be squared.
    pub(super) fn is_squarable(&self, level: SimdLevel) -> bool {
        match self {
            Self::Narrow(samples) => simd::all_finite(level, samples),
            Self::Wide(samples) => !samples.iter().any(|&x| is_absurd(x)),
        }
    }
}

/// Whether a sample is not finite, or so large that its energy would overflow.
fn is_absurd(sample: f64) -> bool {
    const LARGEST: f64 = 1e140;
    sample.is_nan() || sample.abs() > LARGEST
}

fn spread<S: MeterSample, T>(
    source: &InputSamples<'_, S>,
    start: usize,
    frames: usize,
    channels: usize,
    out: &mut [T],
    convert: impl Fn(S) -> T,
) {
    match source {
        InputSamples::Interleaved(samples) => {
            let run = &samples[start * channels..(start + frames) * channels];
            for (slot, &sample) in out.iter_mut().zip(run) {
                *slot = convert(sample);
            }
        }
        InputSamples::Planar(planes) => {
            for (channel, plane) in planes.iter().enumerate() {
                let slots = out[channel..].iter_mut().step_by(channels);
                for (slot, &sample) in slots.zip(&plane[start..start + frames]) {
                    *slot = convert(sample);
                }
            }
        }
    }
}
