//! The meter between its ports; the sound passes unchanged.

use aulos_core::{ChannelLayout, Db, SampleRate};
use aulos_dsp::meter::{InvalidMeterConfig, Meter, MeterConfig, MeterHistory, MeterMode};

use crate::Processor;
use crate::normalizer::{ReportClock, to_port};

#[derive(Debug)]
pub(crate) struct MeterProcessor {
    meter: Meter,
    channels: usize,
    was_reset: bool,
    reports: ReportClock,
    levels: [f32; 7],
}

impl MeterProcessor {
    pub(crate) fn new(rate: SampleRate, layout: ChannelLayout) -> Result<Self, InvalidMeterConfig> {
        let mut config = MeterConfig::new(rate, layout, MeterMode::ALL);
        // Of constant size, however long the programme is.
        config.history = MeterHistory::Histogram;
        let (meter, channels) = (Meter::new(config)?, layout.channels());
        let reports = ReportClock::new(rate);
        Ok(Self { meter, channels, was_reset: false, reports, levels: [0.0; 7] })
    }
}

impl Processor for MeterProcessor {
    fn reset(&mut self) {
        self.meter.reset();
        self.reports.reset();
    }

    fn set_controls(&mut self, controls: &[f32]) {
        let reset = controls[0] > 0.0;
        if reset && !self.was_reset {
            Processor::reset(self);
        }
        self.was_reset = reset;
    }

    fn process(&mut self, block: &mut [f32]) {
        self.meter.add(block);
        self.reports.advance(block.len() / self.channels);
    }

    fn report(&mut self, outputs: &mut [f32]) {
        if self.reports.is_due() {
            let meter = &self.meter;
            let level =
                |level: Option<aulos_core::Lufs>| level.map_or(SILENCE, |level| level.get());
            let peaks = (0..self.channels).filter_map(|channel| meter.true_peak(channel));
            self.levels = [
                level(meter.momentary()),
                level(meter.short_term()),
                level(meter.integrated()),
                meter.range().map_or(0.0, Db::get),
                Db::from_amplitude(peaks.fold(0.0, f64::max)).get(),
                level(meter.max_momentary()),
                level(meter.max_short_term()),
            ]
            .map(to_port);
        }
        for (output, value) in outputs.iter_mut().zip(self.levels) {
            *output = value;
        }
    }
}

const SILENCE: f64 = f64::NEG_INFINITY;
