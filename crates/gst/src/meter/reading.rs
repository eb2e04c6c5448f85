//! Readings of the meter at a fixed interval, whatever the size of buffers.

use aulos_core::{Db, Lufs, Span};
use aulos_dsp::meter::{InvalidMeterConfig, Meter, MeterConfig, MeterHistory, MeterMode};

use crate::pcm::PcmSpec;

/// What the meter shows at the end of an interval.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reading {
    pub(super) momentary: Lufs,
    pub(super) short_term: Lufs,
    pub(super) integrated: Lufs,
    pub(super) range: Db,
    /// Of each channel, since the start.
    pub(super) true_peaks: Vec<Db>,
    pub(super) sample_peaks: Vec<Db>,
    /// Time of the first frame of the interval in nanoseconds, if it is known, and length.
    pub(super) start: Option<u64>,
    pub(super) duration: Span,
}

/// The meter of a stream.
pub(super) struct IntervalMeter {
    meter: Meter,
    spec: PcmSpec,
    /// Frames in the current interval, and the time of its first one.
    filled: usize,
    start: Option<u64>,
}

impl IntervalMeter {
    pub(super) fn new(spec: PcmSpec) -> Result<Self, InvalidMeterConfig> {
        let mode =
            MeterMode::SHORT_TERM | MeterMode::INTEGRATED | MeterMode::RANGE | MeterMode::TRUE_PEAK;
        let config = MeterConfig {
            positions: spec.positions.clone(),
            // A reading then costs the same after hours.
            history: MeterHistory::Histogram,
            ..MeterConfig::new(spec.rate, spec.layout, mode)
        };
        Ok(Self { meter: Meter::new(config)?, spec, filled: 0, start: None })
    }

    pub(super) const fn spec(&self) -> &PcmSpec {
        &self.spec
    }

    /// Continues the programme in another format.
    pub(super) fn change_format(&mut self, spec: PcmSpec) -> Result<(), InvalidMeterConfig> {
        self.meter.change_format(spec.rate, &spec.positions)?;
        (self.spec, self.filled, self.start) = (spec, 0, None);
        Ok(())
    }

    pub(super) fn reset(&mut self) {
        self.meter.reset();
        (self.filled, self.start) = (0, None);
    }

    /// Measures interleaved frames, the first of which has this time in nanoseconds; reports a
    /// reading at the end of each interval.
    pub(super) fn add(
        &mut self,
        samples: &[f32],
        time: Option<u64>,
        interval: Span,
        report: &mut impl FnMut(Reading),
    ) {
        let (rate, channels) = (self.spec.rate, self.spec.layout.channels());
        let interval = rate.frames(interval).as_usize().max(1);
        let (mut rest, mut measured) = (samples, 0usize);
        while !rest.is_empty() {
            if self.filled == 0 {
                let since = u64::try_from(rate.span(measured.into()).as_nanos()).unwrap_or(0);
                self.start = time.map(|time| time.saturating_add(since));
            }
            let frames = (rest.len() / channels).min(interval.saturating_sub(self.filled).max(1));
            let (part, behind) = rest.split_at(frames * channels);
            self.meter.add(part);
            self.filled += frames;
            measured += frames;
            if self.filled >= interval {
                report(self.read());
            }
            rest = behind;
        }
    }

    /// The reading of an interval that is not complete, if there is one.
    pub(super) fn finish(&mut self) -> Option<Reading> {
        (self.filled > 0).then(|| self.read())
    }

    fn read(&mut self) -> Reading {
        let channels = 0..self.spec.layout.channels();
        let peaks = |peak: &dyn Fn(usize) -> Option<f64>| {
            channels
                .clone()
                .map(|channel| Db::from_amplitude(peak(channel).unwrap_or(0.0)))
                .collect()
        };
        let meter = &self.meter;
        let filled = core::mem::take(&mut self.filled);
        Reading {
            momentary: meter.momentary().unwrap_or(Lufs::SILENCE),
            short_term: meter.short_term().unwrap_or(Lufs::SILENCE),
            integrated: meter.integrated().unwrap_or(Lufs::SILENCE),
            range: meter.range().unwrap_or(Db::ZERO),
            true_peaks: peaks(&|channel| meter.true_peak(channel)),
            sample_peaks: peaks(&|channel| meter.sample_peak(channel)),
            start: self.start.take(),
            duration: self.spec.rate.span(filled.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aulos_core::{ChannelLayout, SampleRate};

    fn readings(size: usize, ms: i64) -> Vec<Reading> {
        let spec = PcmSpec::for_test(SampleRate::HZ_48000, ChannelLayout::STEREO);
        let mut meter = IntervalMeter::new(spec).unwrap();
        let tone: Vec<f32> = (0..2 * 48_000).map(|n| 0.1 * (0.13 * (n / 2) as f32).sin()).collect();
        let (mut out, mut time) = (Vec::new(), 0);
        for block in tone.chunks(2 * size) {
            meter.add(block, Some(time), Span::from_millis(ms), &mut |reading| out.push(reading));
            time += block.len() as u64 / 2 * 1_000_000_000 / 48_000;
        }
        out.extend(meter.finish());
        out
    }

    #[test]
    fn readings_do_not_depend_on_the_size_of_buffers() {
        let whole = readings(48_000, 100);
        assert_eq!(whole.len(), 10);
        assert_eq!(whole[9].start, Some(900_000_000));
        assert!((whole[9].integrated.get() + 20.0).abs() < 0.1, "{:?}", whole[9]);
        let small = readings(480, 100);
        assert_eq!(small.len(), 10);
        for (small, whole) in small.iter().zip(&whole) {
            assert!((small.momentary - whole.momentary).get().abs() < 1e-9);
            assert!((small.short_term - whole.short_term).get().abs() < 1e-9);
            assert_eq!(small.integrated, whole.integrated);
            assert_eq!((&small.true_peaks, small.start), (&whole.true_peaks, whole.start));
        }
    }

    #[test]
    fn the_rest_is_an_interval_of_its_own() {
        let all = readings(4_800, 300);
        let lengths: Vec<_> = all.iter().map(|reading| reading.duration.as_millis()).collect();
        assert_eq!(lengths, [300, 300, 300, 100]);
    }
}
