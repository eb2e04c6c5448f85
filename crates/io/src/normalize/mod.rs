//! A file brought to a loudness: what `aulos normalize` does, apart from what it prints.
//!
//! ```text
//!  linear:  file -> meter;  file -> one gain ----> meter -> new file
//!  live:    file -> meter, Normaliser (look-ahead) -> meter -> new file
//! ```

mod save;

use core::fmt;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use aulos_core::{Block, Db, Frames, SampleSpec};
use aulos_dsp::meter::{self, Meter, Position};
use aulos_dsp::normalize::{CannotNormalise, Linear, Mode, Normaliser, Settings};
use aulos_engine::source::BLOCK_SAMPLES;

pub use save::Container;

use crate::decode::{DecodeError, Decoded, FileDecoder, Info, OpenError, Options};
use crate::scan::{Loudness, positions};
use save::{Form, SoundFile};

/// What is wanted.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "who calls says everything")]
pub struct Wishes {
    /// Loudness, ceiling and the rest.
    pub settings: Settings,
    /// With a live mode, or, if `None`, with one gain for all of it.
    pub mode: Option<Mode>,
}

/// What was done.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// Of the file.
    pub before: Loudness,
    /// Of the new file.
    pub after: Loudness,
    /// The gain, when there was one for all.
    pub linear: Option<Linear>,
    /// Samples that were not finite, or absurdly great, and became silence.
    pub rejected: u64,
    /// Packets of the file that were damaged.
    pub damaged: u64,
    /// How long it is.
    pub seconds: f64,
}

/// Normalises the file `from` and writes it to `to`, which is replaced once all is well. `progress`
/// hears which part of all work is done, where that can be known, and can stop it.
///
/// # Errors
/// [`NormalizeError`]; nothing has been written then, and what was there is as it was.
pub fn file(
    from: &Path,
    to: &Path,
    wishes: &Wishes,
    mut progress: impl FnMut(f64) -> ControlFlow<()>,
) -> Result<Outcome, NormalizeError> {
    let container = Container::of(to).ok_or(NormalizeError::Container)?;
    if std::fs::canonicalize(from)
        .ok()
        .is_some_and(|from| std::fs::canonicalize(to).ok() == Some(from))
    {
        return Err(NormalizeError::SameFile);
    }
    wishes.settings.check().map_err(CannotNormalise::from).map_err(NormalizeError::Settings)?;
    let mut work = Work { from, wishes, passes: 1, pass: 0 };
    let linear = if wishes.mode.is_none() {
        work.passes = 2;
        let before = work.measure(&mut progress)?;
        work.pass = 1;
        let peak = before.true_peak.unwrap_or(Db::SILENCE);
        let integrated = before.integrated.unwrap_or(aulos_core::Lufs::SILENCE);
        Some(Linear::plan(integrated, peak, &wishes.settings))
    } else {
        None
    };
    work.write(to, container, linear, &mut progress)
}

struct Work<'a> {
    from: &'a Path,
    wishes: &'a Wishes,
    passes: u32,
    pass: u32,
}

impl Work<'_> {
    fn measure(
        &self,
        progress: &mut impl FnMut(f64) -> ControlFlow<()>,
    ) -> Result<Loudness, NormalizeError> {
        let mut input = Input::open(self.from)?;
        let mut meter = self.meter(&input)?;
        while input.next()? {
            meter.add(input.block.samples());
            self.tell(&input, progress)?;
        }
        Ok(figures(&meter))
    }

    fn write(
        &self,
        to: &Path,
        container: Container,
        linear: Option<Linear>,
        progress: &mut impl FnMut(f64) -> ControlFlow<()>,
    ) -> Result<Outcome, NormalizeError> {
        let mut input = Input::open(self.from)?;
        let Info { rate, layout, codec, bits, .. } = *input.decoder.info();
        let spec = SampleSpec { rate, layout, format: container.format(codec, bits) };
        let changed = linear.is_none_or(|plan| plan.gain != Db::ZERO);
        let speakers = input.decoder.speakers();
        let form = Form { container, spec, speakers, dither: changed };
        let (mut before, mut after) = (self.meter(&input)?, self.meter(&input)?);
        let mut live = match self.wishes.mode {
            Some(mode) => Some(Live::new(mode, &self.wishes.settings, &input)?),
            None => None,
        };
        let mut out = SoundFile::create(to, &form).map_err(NormalizeError::Save)?;
        let mut put = |samples: &[f32]| {
            after.add(samples);
            out.write(samples).map_err(NormalizeError::Save)
        };
        while input.next()? {
            before.add(input.block.samples());
            match (&mut live, linear) {
                (Some(live), _) => live.process(input.block.samples_mut(), &mut put)?,
                (None, Some(plan)) => {
                    plan.apply(input.block.samples_mut());
                    put(input.block.samples())?;
                }
                (None, None) => put(input.block.samples())?,
            }
            self.tell(&input, progress)?;
        }
        if let Some(live) = &mut live {
            live.drain(&mut put)?;
        }
        out.finish().map_err(NormalizeError::Save)?;
        let rejected = live.map_or(0, |live| live.normaliser.statistics().rejected);
        Ok(Outcome {
            before: figures(&before),
            after: figures(&after),
            linear,
            rejected: rejected + before.rejected(),
            damaged: input.decoder.damaged(),
            seconds: rate.span(Frames(before.frames().0)).as_secs_f64(),
        })
    }

    fn meter(&self, input: &Input) -> Result<Meter, NormalizeError> {
        let Info { rate, layout, .. } = *input.decoder.info();
        let mode = meter::Mode::INTEGRATED | meter::Mode::RANGE | meter::Mode::TRUE_PEAK;
        let mut config = meter::Config::new(rate, layout, mode | meter::Mode::MAXIMA);
        config.positions = input.positions();
        if self.wishes.settings.dual_mono {
            config.positions.fill(Position::DualMono);
        }
        Meter::new(config).map_err(|error| NormalizeError::Settings(CannotNormalise::Meter(error)))
    }

    #[allow(clippy::cast_precision_loss, reason = "a part of all")]
    fn tell(
        &self,
        input: &Input,
        progress: &mut impl FnMut(f64) -> ControlFlow<()>,
    ) -> Result<(), NormalizeError> {
        let Some(all) = input.decoder.info().frames.filter(|all| all.0 > 0) else { return Ok(()) };
        let part = (input.frames as f64 / all.0 as f64).min(1.0);
        let done = (f64::from(self.pass) + part) / f64::from(self.passes);
        match progress(done) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(NormalizeError::Stopped),
        }
    }
}

/// A file, block by block, all of one rate and layout.
struct Input {
    decoder: FileDecoder,
    block: Block,
    frames: u64,
}

impl Input {
    fn open(path: &Path) -> Result<Self, NormalizeError> {
        let decoder = FileDecoder::open(path, Options::default()).map_err(NormalizeError::Open)?;
        let Info { rate, layout, .. } = *decoder.info();
        Ok(Self { decoder, block: Block::with_capacity(rate, layout, BLOCK_SAMPLES), frames: 0 })
    }

    /// Whether there are more frames, in the block then.
    fn next(&mut self) -> Result<bool, NormalizeError> {
        let more = self.decoder.next(&mut self.block).map_err(NormalizeError::Decode)?;
        if more == Decoded::End {
            return Ok(false);
        }
        let info = self.decoder.info();
        if (self.block.rate(), self.block.layout()) != (info.rate, info.layout) {
            return Err(NormalizeError::Changes);
        }
        self.frames += self.block.frames().0;
        Ok(true)
    }

    fn positions(&self) -> Vec<Position> {
        positions(self.decoder.info().layout, self.decoder.speakers())
    }
}

/// A normaliser whose output begins where its input began.
struct Live {
    normaliser: Normaliser,
    channels: usize,
    /// Samples of silence that have yet to be left out.
    early: usize,
}

impl Live {
    fn new(mode: Mode, settings: &Settings, input: &Input) -> Result<Self, NormalizeError> {
        let Info { rate, layout, .. } = *input.decoder.info();
        let positions = input.positions();
        let normaliser = Normaliser::with_positions(mode, settings.clone(), rate, positions)
            .map_err(NormalizeError::Settings)?;
        let channels = layout.channels();
        let early = normaliser.latency().as_usize() * channels;
        Ok(Self { normaliser, channels, early })
    }

    fn process(
        &mut self,
        samples: &mut [f32],
        put: &mut impl FnMut(&[f32]) -> Result<(), NormalizeError>,
    ) -> Result<(), NormalizeError> {
        self.normaliser.process(samples);
        self.pass_on(samples, put)
    }

    fn drain(
        &mut self,
        put: &mut impl FnMut(&[f32]) -> Result<(), NormalizeError>,
    ) -> Result<(), NormalizeError> {
        let mut block = vec![0.0; BLOCK_SAMPLES / self.channels * self.channels];
        loop {
            let frames = self.normaliser.drain(&mut block).as_usize();
            if frames == 0 {
                return Ok(());
            }
            self.pass_on(&block[..frames * self.channels], put)?;
        }
    }

    fn pass_on(
        &mut self,
        samples: &[f32],
        put: &mut impl FnMut(&[f32]) -> Result<(), NormalizeError>,
    ) -> Result<(), NormalizeError> {
        let left_out = samples.len().min(self.early);
        self.early -= left_out;
        if left_out < samples.len() { put(&samples[left_out..]) } else { Ok(()) }
    }
}

fn figures(meter: &Meter) -> Loudness {
    let seconds = meter.config().rate.span(meter.frames()).as_secs_f64();
    let options = crate::scan::Options { true_peak: true, ..Default::default() };
    Loudness::of(&meter.measurement(), seconds, &options)
}

/// Why there is no new file.
#[derive(Debug)]
#[non_exhaustive]
pub enum NormalizeError {
    /// The file cannot be read as sound.
    Open(OpenError),
    /// The file is sound at first, but not to its end.
    Decode(DecodeError),
    /// Its rate or its channels change in the middle: cut it there.
    Changes,
    /// What is wanted cannot be.
    Settings(CannotNormalise),
    /// The new name says a format that is not written here.
    Container,
    /// The new file would be the old one.
    SameFile,
    /// The new file cannot be written.
    Save(io::Error),
    /// Whoever hears of the progress wanted no more.
    Stopped,
}

impl fmt::Display for NormalizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Decode(error) => error.fmt(f),
            Self::Changes => {
                f.write_str("its rate or its channels change in the middle: cut it there")
            }
            Self::Settings(error) => error.fmt(f),
            Self::Container => f.write_str("the name must end in .wav or .flac"),
            Self::SameFile => f.write_str("it is the file that is read: give it another name"),
            Self::Save(error) => write!(f, "cannot be written: {error}"),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

impl core::error::Error for NormalizeError {}
