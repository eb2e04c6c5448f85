//! Measures the frames of a file, as a whole or in pieces on several threads.
//!
//! ```text
//!  frames   |-------- piece 0 --------|-------- piece 1 --------|--- piece 2 ---|
//!  meters     meter 0             [seed] meter 1            [seed] meter 2        -> joined
//! ```
//!
//! The boundaries of the pieces depend only on the file, so the result is the same for any number
//! of threads. The seeds cost 2 % of the work. After any irregularity in a piece the file is
//! measured as a whole, like a file that cannot be split.

use core::ops::Range;
use std::path::Path;

use aulos_core::{ChannelLayout, Frames, SampleRate};
use aulos_dsp::meter::{ChannelPosition, Measurement, Meter, MeterConfig, MeterHistory, MeterMode};
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use super::error::ScanError;
use super::options::ScanOptions;
use super::positions::positions;
use super::progress::FileProgress;
use super::sound::SoundReader;
use crate::decode::{RateAndLayout, SampleRun};

/// The measurement of a file or of a part of it.
#[derive(Debug, Default)]
pub(super) struct MeasuredPart {
    pub(super) error: Option<ScanError>,
    pub(super) measurement: Option<Measurement>,
    pub(super) seconds: f64,
    pub(super) curve: LoudnessCurve,
}

/// The course of loudness and peaks, one value per second; empty unless requested.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoudnessCurve {
    /// The maximum of momentary loudness in LUFS, read ten times per second.
    pub momentary: Vec<f32>,
    /// Short-term loudness in LUFS at the end of the second.
    pub short_term: Vec<f32>,
    /// The greatest peak of all channels, with full scale as 1: the true peak if that is measured.
    pub peak: Vec<f32>,
}

/// Measures `sound`, the file at `path` from its beginning to its end.
pub(super) fn measure_sound(
    path: &Path,
    sound: &mut SoundReader,
    options: &ScanOptions,
    share: &mut FileProgress<'_>,
) -> MeasuredPart {
    share.set_length(sound.frames(), sound.shape().0);
    if let Some(heard) = measure_in_pieces(path, sound, options, share) {
        return heard;
    }
    share.restart();
    let mut parts = PartMeter::new(options, sound.speakers());
    let end = loop {
        match sound.next(ALL_FRAMES) {
            Ok(Some((shape, run))) => {
                share.add_frames(frames_in(&run, shape), shape.0);
                if let Err(error) = parts.push(shape, run) {
                    break Some(error);
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(ScanError::Decode(error)),
        }
    };
    let damaged = (sound.damaged() > 0).then(|| ScanError::Damaged(sound.damaged()));
    MeasuredPart { error: end.or(damaged), ..parts.finish() }
}

/// `None` when the file cannot be split, is too short for it, or does not match its header.
fn measure_in_pieces(
    path: &Path,
    sound: &SoundReader,
    options: &ScanOptions,
    share: &FileProgress<'_>,
) -> Option<MeasuredPart> {
    measure_cuts(path, sound, piece_cuts(sound, options)?, options, share)
}

/// The pieces of a file, which depend on nothing but the file; `None` when it cannot be split or is
/// too short for it.
pub(super) fn piece_cuts(sound: &SoundReader, options: &ScanOptions) -> Option<Vec<Range<u64>>> {
    let (shape, frames) = (sound.shape(), sound.splittable_frames()?.0);
    let piece =
        Meter::new(meter_config(options, shape, sound.speakers())).ok()?.hop() as u64 * PIECE_HOPS;
    if frames < 2 * piece || sound.damaged() > 0 {
        return None;
    }
    let cuts = (0..frames / piece).map(|n| {
        let last = n + 1 == frames / piece;
        n * piece..if last { frames } else { (n + 1) * piece }
    });
    Some(cuts.collect())
}

/// Measures successive pieces; `None` when some frames are missing.
pub(super) fn measure_cuts(
    path: &Path,
    sound: &SoundReader,
    cuts: Vec<Range<u64>>,
    options: &ScanOptions,
    share: &FileProgress<'_>,
) -> Option<MeasuredPart> {
    let frames = cuts.iter().map(|cut| cut.end - cut.start).sum();
    let end = sound.splittable_frames().map(|frames| frames.0);
    let hear = |cut: Range<u64>| {
        let mut own = sound.reopen(path).ok()?;
        let is_last = Some(cut.end) == end;
        let piece = measure_piece(&mut own, cut, options, share)?;
        // The file may be longer than its header says.
        let is_whole = !is_last || matches!(own.next(Frames(1)), Ok(None));
        (is_whole && own.damaged() == 0).then_some(piece)
    };
    // Without a pool only the calling thread is used.
    let pieces: Option<Vec<MeasuredPart>> = if rayon::current_thread_index().is_some() {
        cuts.into_par_iter().map(hear).collect()
    } else {
        cuts.into_iter().map(hear).collect()
    };
    // Of the frames, because a sum of the pieces' durations depends on how they are grouped.
    let seconds = seconds_of(frames, sound.shape().0);
    Some(MeasuredPart { seconds, ..MeasuredPart::join(pieces?) })
}

/// Measures the frames `cut`; `None` when some are missing.
fn measure_piece(
    sound: &mut SoundReader,
    cut: Range<u64>,
    options: &ScanOptions,
    share: &FileProgress<'_>,
) -> Option<MeasuredPart> {
    let shape = sound.shape();
    let mut parts = PartMeter::new(options, sound.speakers());
    let mut at = parts.meter(shape).ok()?.begin_piece(Frames(cut.start)).0;
    if at > 0 {
        sound.seek(Frames(at)).ok()?;
    }
    while at < cut.end {
        let until = if at < cut.start { cut.start } else { cut.end };
        let (found, run) = sound.next(Frames(until - at)).ok()??;
        if found != shape {
            return None;
        }
        let frames = frames_in(&run, shape);
        if at < cut.start {
            seed_with(parts.meter(shape).ok()?, run);
        } else {
            share.add_frames(frames, shape.0);
            parts.push(shape, run).ok()?;
        }
        at += frames;
    }
    Some(parts.finish())
}

impl MeasuredPart {
    /// Joins successive parts, none of which failed.
    fn join(parts: Vec<Self>) -> Self {
        let mut all = Self::default();
        let mut measured = Vec::with_capacity(parts.len());
        for mut part in parts {
            measured.extend(part.measurement);
            all.seconds += part.seconds;
            all.curve.momentary.append(&mut part.curve.momentary);
            all.curve.short_term.append(&mut part.curve.short_term);
            all.curve.peak.append(&mut part.curve.peak);
        }
        // All histories are of the same kind.
        all.measurement = Measurement::join(measured).ok().flatten();
        all
    }
}

/// A file is one part, unless it is a chain of streams with different rates or channels: each of
/// these has a meter of its own, and the results are joined.
struct PartMeter<'a> {
    options: &'a ScanOptions,
    speakers: Option<u32>,
    meter: Option<(Meter, RateAndLayout)>,
    finished_parts: Vec<MeasuredPart>,
    curve: LoudnessCurve,
    /// Frames until the next reading of the curve, and readings in this second.
    until_read: usize,
    reads: usize,
}

impl<'a> PartMeter<'a> {
    fn new(options: &'a ScanOptions, speakers: Option<u32>) -> Self {
        let (finished_parts, curve) = (Vec::new(), LoudnessCurve::default());
        Self { options, speakers, meter: None, finished_parts, curve, until_read: 0, reads: 0 }
    }

    fn push(&mut self, shape: RateAndLayout, run: SampleRun<'_>) -> Result<(), ScanError> {
        let curve = self.options.curve;
        let meter = self.meter(shape)?;
        if !curve {
            match run {
                SampleRun::F32(run) => meter.add(run),
                SampleRun::I32(run) => meter.add(run),
                SampleRun::F64(run) => meter.add(run),
            }
            return Ok(());
        }
        match run {
            SampleRun::F32(run) => self.push_with_curve(run, shape.1),
            SampleRun::I32(run) => self.push_with_curve(run, shape.1),
            SampleRun::F64(run) => self.push_with_curve(run, shape.1),
        }
        Ok(())
    }

    /// The meter for this rate and layout; finishes the current part if it has another.
    fn meter(&mut self, shape: RateAndLayout) -> Result<&mut Meter, ScanError> {
        if self.meter.as_ref().is_none_or(|(_, known)| *known != shape) {
            self.finish_part();
            // A meter accepts every rate and layout that a file can have.
            let meter = Meter::new(meter_config(self.options, shape, self.speakers));
            let meter = meter.map_err(|_| ScanError::Internal)?;
            (self.until_read, self.reads) = (meter.hop(), 0);
            self.meter = Some((meter, shape));
        }
        self.meter.as_mut().map(|(meter, _)| meter).ok_or(ScanError::Internal)
    }

    /// Measures in steps of 100 ms and reads the meter after each.
    #[allow(clippy::cast_possible_truncation, reason = "a curve is drawn in pixels")]
    fn push_with_curve<S: aulos_dsp::meter::MeterSample>(
        &mut self,
        mut run: &[S],
        layout: ChannelLayout,
    ) {
        let Some((meter, _)) = &mut self.meter else { return };
        let LoudnessCurve { momentary, short_term, peak } = &mut self.curve;
        while !run.is_empty() {
            let step = run.len().min(self.until_read * layout.channels());
            let (now, later) = run.split_at(step);
            meter.add(now);
            run = later;
            if self.reads == 0 {
                momentary.push(f32::NEG_INFINITY);
                short_term.push(f32::NEG_INFINITY);
                peak.push(0.0);
                self.reads = 1;
            }
            let of =
                |channel| meter.last_true_peak(channel).or_else(|| meter.last_sample_peak(channel));
            let loudest = (0..layout.channels()).filter_map(of).fold(0.0, f64::max) as f32;
            peak.last_mut().into_iter().for_each(|peak| *peak = peak.max(loudest));
            self.until_read -= step / layout.channels();
            if self.until_read > 0 {
                continue;
            }
            self.until_read = meter.hop();
            let [m, s] = [meter.momentary(), meter.short_term()]
                .map(|lufs| lufs.map_or(f32::NEG_INFINITY, |lufs| lufs.get() as f32));
            momentary.last_mut().into_iter().for_each(|most| *most = most.max(m));
            short_term.last_mut().into_iter().for_each(|last| *last = s);
            self.reads = if self.reads == CURVE_READS_PER_SECOND { 0 } else { self.reads + 1 };
        }
    }

    fn finish_part(&mut self) {
        let Some((meter, _)) = self.meter.take() else { return };
        let whole = Some(meter.measurement());
        let seconds = seconds_of(meter.frames().0, meter.config().rate);
        let curve = core::mem::take(&mut self.curve);
        self.finished_parts.push(MeasuredPart { error: None, measurement: whole, seconds, curve });
    }

    fn finish(mut self) -> MeasuredPart {
        self.finish_part();
        MeasuredPart::join(self.finished_parts)
    }
}

fn meter_config(
    options: &ScanOptions,
    (rate, layout): RateAndLayout,
    speakers: Option<u32>,
) -> MeterConfig {
    let peak = if options.true_peak { MeterMode::TRUE_PEAK } else { MeterMode::SAMPLE_PEAK };
    let mode = MeterMode::INTEGRATED | MeterMode::RANGE | MeterMode::MAXIMA | peak;
    let mut config = MeterConfig::new(rate, layout, mode);
    config.range_hop = options.range_hop;
    // A history for a whole day would waste memory on a song of three minutes, and a file may be
    // longer than a day.
    config.history = MeterHistory::Unbounded;
    config.call_peaks = options.curve && options.true_peak;
    config.positions = if options.dual_mono && layout == ChannelLayout::MONO {
        vec![ChannelPosition::DualMono]
    } else {
        positions(layout, speakers)
    };
    config
}

fn frames_in(run: &SampleRun<'_>, (_, layout): RateAndLayout) -> u64 {
    (run.samples() / layout.channels()) as u64
}

fn seed_with(meter: &mut Meter, run: SampleRun<'_>) {
    match run {
        SampleRun::F32(run) => meter.seed(run),
        SampleRun::I32(run) => meter.seed(run),
        SampleRun::F64(run) => meter.seed(run),
    }
}

#[allow(clippy::cast_precision_loss, reason = "below 2^53 frames")]
pub(super) fn seconds_of(frames: u64, rate: SampleRate) -> f64 {
    frames as f64 / f64::from(rate.hz())
}

const ALL_FRAMES: Frames = Frames(u64::MAX);

/// Three minutes per piece: an hour has enough pieces for any number of processors, and the seed of
/// 3.4 s hardly matters.
const PIECE_HOPS: u64 = 1_800;

/// Readings of the curve per second.
const CURVE_READS_PER_SECOND: usize = 10;
