//! One file: decoded and measured.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use aulos_core::{Block, ChannelLayout, Db, Lufs, SampleRate};
use aulos_dsp::meter::{Config, History, Measurement, Meter, Mode, Position, RangeHop};
use aulos_engine::source::BLOCK_SAMPLES;

use super::error::ScanError;
use super::find::Found;
use crate::decode::{self, Decoded, FileDecoder};

/// How files are measured.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Look between the samples for peaks as well.
    pub true_peak: bool,
    /// A file of one channel is going to be heard from two loudspeakers.
    pub dual_mono: bool,
    /// How often the loudness range takes a value.
    pub range_hop: RangeHop,
    /// Keep what is needed to merge files to an album: 88 bytes for each second of sound.
    pub keep: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { true_peak: false, dual_mono: false, range_hop: RangeHop::Second, keep: false }
    }
}

/// What became of one file.
#[derive(Clone, Debug)]
pub struct Report {
    /// The file.
    pub path: PathBuf,
    /// Why it failed, if it did; figures are then those of what could be read.
    pub error: Option<ScanError>,
    /// What it is, if it could be opened.
    pub shape: Option<Shape>,
    /// What was measured; all absent if it could not be opened.
    pub loudness: Loudness,
    /// To be merged with others, when [`Options::keep`] asked for it and nothing failed.
    pub kept: Option<Box<Measurement>>,
}

/// The outer form of a file's sound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Frames per second at its beginning.
    pub rate: SampleRate,
    /// Channels at its beginning.
    pub layout: ChannelLayout,
    /// How long it is, as decoded.
    pub seconds: f64,
}

/// Figures of a file or an album; what does not exist is absent, and none is infinite.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loudness {
    /// Integrated loudness, unless nothing passes the gates.
    pub integrated: Option<Lufs>,
    /// Loudness range in LU; absent for silence and below 3 s.
    pub range: Option<Db>,
    /// The greatest loudness of any 400 ms.
    pub max_momentary: Option<Lufs>,
    /// The greatest loudness of any 3 s; absent below 3 s.
    pub max_short_term: Option<Lufs>,
    /// The greatest value at or between samples, in dBTP, if it was asked for.
    pub true_peak: Option<Db>,
    /// The greatest sample, in dBFS.
    pub sample_peak: Option<Db>,
    /// The relative gate; absent for silence, and for what was merged from several parts.
    pub relative_threshold: Option<Lufs>,
}

impl Loudness {
    /// The figures of `whole`, which is `seconds` long.
    #[must_use]
    pub fn of(whole: &Measurement, seconds: f64, options: &Options) -> Self {
        let lufs = |value: Lufs| value.get().is_finite().then_some(value);
        let peak = |value: f64| {
            let db = Db::from_amplitude(value);
            db.get().is_finite().then_some(db)
        };
        let integrated = lufs(whole.integrated());
        Self {
            integrated,
            range: integrated.filter(|_| seconds >= SHORT_TERM).map(|_| whole.range()),
            max_momentary: lufs(whole.max_momentary()).filter(|_| seconds >= MOMENTARY),
            max_short_term: lufs(whole.max_short_term()).filter(|_| seconds >= SHORT_TERM),
            true_peak: peak(whole.true_peak()).filter(|_| options.true_peak),
            sample_peak: peak(whole.sample_peak()),
            relative_threshold: None,
        }
    }
}

/// Measures one file. Whatever it is, there is a report; a panic of a codec is caught.
#[must_use]
pub fn measure(found: Found, options: &Options) -> Report {
    let Found { path, error } = found;
    let failed = |path, error| Report {
        path,
        error: Some(error),
        shape: None,
        loudness: Loudness::default(),
        kept: None,
    };
    if let Some(error) = error {
        return failed(path, error);
    }
    let tried = catch_unwind(AssertUnwindSafe(|| {
        let mut decoder = FileDecoder::open(&path, decode::Options::default())?;
        Ok(listen(&mut decoder, options))
    }));
    let heard = match tried {
        Ok(Ok(heard)) => heard,
        Ok(Err(error)) => return failed(path, ScanError::Open(error)),
        Err(_) => return failed(path, ScanError::Internal),
    };
    let Heard { error, shape, loudness, whole } = heard;
    let kept = whole.filter(|_| options.keep && error.is_none()).map(Box::new);
    Report { path, error, shape: Some(shape), loudness, kept }
}

struct Heard {
    error: Option<ScanError>,
    shape: Shape,
    loudness: Loudness,
    whole: Option<Measurement>,
}

/// Decodes to the end, or to where it goes no further.
fn listen(decoder: &mut FileDecoder, options: &Options) -> Heard {
    let (rate, layout) = (decoder.info().rate, decoder.info().layout);
    let mut block = Block::with_capacity(rate, layout, BLOCK_SAMPLES);
    let mut parts = Parts::new(options);
    let end = loop {
        match decoder.next(&mut block) {
            Ok(Decoded::Block) => {
                if let Err(error) = parts.hear(&block) {
                    break Some(error);
                }
            }
            Ok(Decoded::End) => break None,
            Err(error) => break Some(ScanError::Decode(error)),
        }
    };
    let (whole, seconds, relative_threshold) = parts.end();
    let mut loudness = Loudness::default();
    if let Some(whole) = &whole {
        loudness = Loudness::of(whole, seconds, options);
        loudness.relative_threshold = relative_threshold.filter(|_| loudness.integrated.is_some());
    }
    let damaged = (decoder.damaged() > 0).then(|| ScanError::Damaged(decoder.damaged()));
    let short = (seconds < MOMENTARY).then_some(ScanError::Short);
    Heard {
        error: end.or(damaged).or(short),
        shape: Shape { rate, layout, seconds },
        loudness,
        whole,
    }
}

/// A file is one part, unless it is a chain of streams that differ in rate or channels: each of
/// these has a meter of its own, and what they found is merged.
struct Parts<'a> {
    options: &'a Options,
    meter: Option<Meter>,
    layout: ChannelLayout,
    before: Option<Measurement>,
    seconds: f64,
}

impl<'a> Parts<'a> {
    const fn new(options: &'a Options) -> Self {
        Self { options, meter: None, layout: ChannelLayout::MONO, before: None, seconds: 0.0 }
    }

    fn hear(&mut self, block: &Block) -> Result<(), ScanError> {
        let shape = (block.rate(), block.layout());
        let known = self.meter.as_ref().map(|meter| (meter.config().rate, self.layout));
        if known != Some(shape) {
            self.close();
            // Every rate and layout that a block can have is one that a meter takes.
            let meter = Meter::new(self.config(shape)).map_err(|_| ScanError::Internal)?;
            (self.meter, self.layout) = (Some(meter), shape.1);
        }
        if let Some(meter) = &mut self.meter {
            meter.add(block.samples());
        }
        Ok(())
    }

    fn config(&self, (rate, layout): (SampleRate, ChannelLayout)) -> Config {
        let peak = if self.options.true_peak { Mode::TRUE_PEAK } else { Mode::SAMPLE_PEAK };
        let mode = Mode::INTEGRATED | Mode::RANGE | Mode::MAXIMA | peak;
        let mut config = Config::new(rate, layout, mode);
        config.range_hop = self.options.range_hop;
        // A day's memory for a song of three minutes would be a waste, and a day is not the limit.
        config.history = History::Unbounded;
        if self.options.dual_mono && layout == ChannelLayout::MONO {
            config.positions = vec![Position::DualMono];
        }
        config
    }

    fn close(&mut self) {
        let Some(meter) = self.meter.take() else { return };
        self.seconds += seconds(&meter);
        let part = meter.measurement();
        match &mut self.before {
            // All parts have a history of one kind.
            Some(before) => drop(before.merge(&part)),
            None => self.before = Some(part),
        }
    }

    /// The whole, its length, and the relative threshold of a file of one part.
    fn end(mut self) -> (Option<Measurement>, f64, Option<Lufs>) {
        let alone = self.before.is_none();
        let threshold = self.meter.as_ref().filter(|_| alone).and_then(Meter::relative_threshold);
        self.close();
        (self.before, self.seconds, threshold)
    }
}

#[allow(clippy::cast_precision_loss, reason = "below 2^53 frames")]
fn seconds(meter: &Meter) -> f64 {
    meter.frames().0 as f64 / f64::from(meter.config().rate.hz())
}

/// The windows of BS.1770 and R 128, in seconds.
const MOMENTARY: f64 = 0.4;
const SHORT_TERM: f64 = 3.0;
