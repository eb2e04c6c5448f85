//! What to measure.

use aulos_dsp::meter::RangeHop;

/// Options of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct ScanOptions {
    /// Measure true peaks as well.
    pub true_peak: bool,
    /// Treat one channel as played through two loudspeakers.
    pub dual_mono: bool,
    /// The interval of values for the loudness range.
    pub range_hop: RangeHop,
    /// Keep the data for merging files to an album: 88 bytes per second of audio.
    pub keep_measurement: bool,
    /// Keep the course of loudness and peaks: 12 bytes per second of audio.
    pub curve: bool,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            true_peak: false,
            dual_mono: false,
            range_hop: RangeHop::Second,
            keep_measurement: false,
            curve: false,
        }
    }
}
