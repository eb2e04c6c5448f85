//! From the frames of a file to what its meter says: as a whole, or in pieces on several threads.
//!
//! ```text
//!  frames   |-------- piece 0 --------|-------- piece 1 --------|--- piece 2 ---|
//!  heard by   meter 0             [seed] meter 1            [seed] meter 2        -> joined
//! ```
//!
//! Where a file is cut depends on the file alone, so figures are the same whatever the number of
//! threads. The seed costs 2 % of the work. Whatever is not as it should be in a piece, the file is
//! measured as a whole, in order, as one that cannot be cut.

use core::ops::Range;
use std::path::Path;

use aulos_core::{ChannelLayout, Frames};
use aulos_dsp::meter::{Config, History, Measurement, Meter, Mode, Position};
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use super::error::ScanError;
use super::measure::Options;
use super::place::positions;
use super::progress::Share;
use super::sound::Sound;
use crate::decode::{Run, Shape};

/// What was heard of a file or of a part of it.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) error: Option<ScanError>,
    pub(super) whole: Option<Measurement>,
    pub(super) seconds: f64,
    pub(super) curve: Curve,
}

/// How loudness and peaks run, one value for each second of sound; empty unless it was asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// The greatest momentary loudness in LUFS, read ten times a second.
    pub momentary: Vec<f32>,
    /// Short-term loudness in LUFS at the end of the second.
    pub short_term: Vec<f32>,
    /// The greatest peak of all channels, full scale being 1: true peak if that is measured.
    pub peak: Vec<f32>,
}

/// Listens to `sound`, the file at `path` at its beginning, up to its end.
pub(super) fn listen(
    path: &Path,
    sound: &mut Sound,
    options: &Options,
    share: &mut Share<'_>,
) -> Heard {
    share.set_length(sound.frames(), sound.shape().0);
    if let Some(heard) = in_pieces(path, sound, options, share) {
        return heard;
    }
    share.begin_again();
    let mut parts = Parts::new(options, sound.speakers());
    let end = loop {
        match sound.next(EVERYTHING) {
            Ok(Some((shape, run))) => {
                share.hear(frames_in(&run, shape), shape.0);
                if let Err(error) = parts.hear(shape, run) {
                    break Some(error);
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(ScanError::Decode(error)),
        }
    };
    let damaged = (sound.damaged() > 0).then(|| ScanError::Damaged(sound.damaged()));
    Heard { error: end.or(damaged), ..parts.end() }
}

/// `None` when the file cannot be cut, is not worth it, or is not what it says.
fn in_pieces(path: &Path, sound: &Sound, options: &Options, share: &Share<'_>) -> Option<Heard> {
    let (shape, frames) = (sound.shape(), sound.frames_to_cut()?.0);
    let piece =
        Meter::new(config(options, shape, sound.speakers())).ok()?.hop() as u64 * PIECE_HOPS;
    if frames < 2 * piece || sound.damaged() > 0 {
        return None;
    }
    let cuts = (0..frames / piece).map(|n| {
        let last = n + 1 == frames / piece;
        n * piece..if last { frames } else { (n + 1) * piece }
    });
    let hear = |cut: Range<u64>| {
        let mut own = sound.again(path).ok()?;
        hear_piece(&mut own, cut, options, share).filter(|_| own.damaged() == 0)
    };
    // Without a pool there is one thread, and it stays the only one.
    let pieces: Option<Vec<Heard>> = if rayon::current_thread_index().is_some() {
        cuts.collect::<Vec<_>>().into_par_iter().map(hear).collect()
    } else {
        cuts.map(hear).collect()
    };
    Some(Heard::join(pieces?))
}

/// Hears `cut` as a part of the whole; `None` when it is not all there.
fn hear_piece(
    sound: &mut Sound,
    cut: Range<u64>,
    options: &Options,
    share: &Share<'_>,
) -> Option<Heard> {
    let shape = sound.shape();
    let mut parts = Parts::new(options, sound.speakers());
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
            share.hear(frames, shape.0);
            parts.hear(shape, run).ok()?;
        }
        at += frames;
    }
    Some(parts.end())
}

impl Heard {
    /// Parts in order, none of which failed.
    fn join(parts: Vec<Self>) -> Self {
        let mut all = Self::default();
        let mut measured = Vec::with_capacity(parts.len());
        for mut part in parts {
            measured.extend(part.whole);
            all.seconds += part.seconds;
            all.curve.momentary.append(&mut part.curve.momentary);
            all.curve.short_term.append(&mut part.curve.short_term);
            all.curve.peak.append(&mut part.curve.peak);
        }
        // All have a history of one kind.
        all.whole = Measurement::join(measured).ok().flatten();
        all
    }
}

/// A file is one part, unless it is a chain of streams that differ in rate or channels: each of
/// these has a meter of its own, and what they found is joined.
struct Parts<'a> {
    options: &'a Options,
    speakers: Option<u32>,
    meter: Option<(Meter, Shape)>,
    before: Vec<Heard>,
    curve: Curve,
    /// Frames until the curve is read again, and times it was read in this second.
    until_read: usize,
    reads: usize,
}

impl<'a> Parts<'a> {
    fn new(options: &'a Options, speakers: Option<u32>) -> Self {
        let (before, curve) = (Vec::new(), Curve::default());
        Self { options, speakers, meter: None, before, curve, until_read: 0, reads: 0 }
    }

    fn hear(&mut self, shape: Shape, run: Run<'_>) -> Result<(), ScanError> {
        let curve = self.options.curve;
        let meter = self.meter(shape)?;
        if !curve {
            match run {
                Run::Narrow(run) => meter.add(run),
                Run::Long(run) => meter.add(run),
                Run::Wide(run) => meter.add(run),
            }
            return Ok(());
        }
        match run {
            Run::Narrow(run) => self.trace(run, shape.1),
            Run::Long(run) => self.trace(run, shape.1),
            Run::Wide(run) => self.trace(run, shape.1),
        }
        Ok(())
    }

    /// The meter for this shape; if there is one of another, it is done.
    fn meter(&mut self, shape: Shape) -> Result<&mut Meter, ScanError> {
        if self.meter.as_ref().is_none_or(|(_, known)| *known != shape) {
            self.close();
            // Every rate and layout that a file can have is one that a meter takes.
            let meter = Meter::new(config(self.options, shape, self.speakers));
            let meter = meter.map_err(|_| ScanError::Internal)?;
            (self.until_read, self.reads) = (meter.hop(), 0);
            self.meter = Some((meter, shape));
        }
        self.meter.as_mut().map(|(meter, _)| meter).ok_or(ScanError::Internal)
    }

    /// Hears in steps of 100 ms and looks at the meter after each.
    #[allow(clippy::cast_possible_truncation, reason = "a curve is drawn in pixels")]
    fn trace<S: aulos_dsp::meter::Sample>(&mut self, mut run: &[S], layout: ChannelLayout) {
        let Some((meter, _)) = &mut self.meter else { return };
        let Curve { momentary, short_term, peak } = &mut self.curve;
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
            self.reads = if self.reads == READS { 0 } else { self.reads + 1 };
        }
    }

    fn close(&mut self) {
        let Some((meter, _)) = self.meter.take() else { return };
        let whole = Some(meter.measurement());
        let (seconds, curve) = (seconds(&meter), core::mem::take(&mut self.curve));
        self.before.push(Heard { error: None, whole, seconds, curve });
    }

    fn end(mut self) -> Heard {
        self.close();
        Heard::join(self.before)
    }
}

fn config(options: &Options, (rate, layout): Shape, speakers: Option<u32>) -> Config {
    let peak = if options.true_peak { Mode::TRUE_PEAK } else { Mode::SAMPLE_PEAK };
    let mode = Mode::INTEGRATED | Mode::RANGE | Mode::MAXIMA | peak;
    let mut config = Config::new(rate, layout, mode);
    config.range_hop = options.range_hop;
    // A day's memory for a song of three minutes would be a waste, and a day is not the limit.
    config.history = History::Unbounded;
    config.call_peaks = options.curve && options.true_peak;
    config.positions = if options.dual_mono && layout == ChannelLayout::MONO {
        vec![Position::DualMono]
    } else {
        positions(layout, speakers)
    };
    config
}

fn frames_in(run: &Run<'_>, (_, layout): Shape) -> u64 {
    (run.samples() / layout.channels()) as u64
}

fn seed_with(meter: &mut Meter, run: Run<'_>) {
    match run {
        Run::Narrow(run) => meter.seed(run),
        Run::Long(run) => meter.seed(run),
        Run::Wide(run) => meter.seed(run),
    }
}

#[allow(clippy::cast_precision_loss, reason = "below 2^53 frames")]
fn seconds(meter: &Meter) -> f64 {
    meter.frames().0 as f64 / f64::from(meter.config().rate.hz())
}

const EVERYTHING: Frames = Frames(u64::MAX);

/// A piece is three minutes: enough of them in an hour for any desk, and a seed of 3.4 s does not
/// count.
const PIECE_HOPS: u64 = 1_800;

/// The curve is read so many times a second.
const READS: usize = 10;
