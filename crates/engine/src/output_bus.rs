//! Outputs that are attached to and detached from a running station besides its own rendition:
//! taps, which pass its programme to another station, further renditions, overlays, record taps
//! and air taps.
//!
//! The control thread creates and frees them; the station only holds them. They arrive as commands
//! between two quanta and leave as events, so that the station allocates and frees nothing.

use core::fmt;

use aulos_core::{Block, Instant, MediaTime, Timeline};
use aulos_dsp::sound::SoundProgram;
use aulos_rt::Pool;
use aulos_rt::ring::Producer;

use crate::announce::MixerReport;
use crate::input::Input;
use crate::overlay::{MAX_OVERLAYS, Overlay};
use crate::recorder::{AirTap, OnAir, RecordTap, TapPoint};
use crate::rendition::Rendition;
use crate::source::SourceItem;
use crate::status::StationStatus;

/// Maximum number of outputs on one station: a tap for each other station of a large installation,
/// and the renditions.
pub const MAX_BUS_OUTPUTS: usize = 64;

/// The station already has [`MAX_BUS_OUTPUTS`], or [`MAX_OVERLAYS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyOutputs;

impl fmt::Display for TooManyOutputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the station has no free slot for another output ({MAX_BUS_OUTPUTS} at most, \
             {MAX_OVERLAYS} of them overlays)"
        )
    }
}

impl core::error::Error for TooManyOutputs {}

/// Something that can be attached to a station.
#[derive(Debug)]
pub enum BusOutput {
    /// Passes its programme to another station.
    Tap(Box<StationTap>),
    /// Encodes it once more.
    Rendition(Box<Rendition>),
    /// Encodes it with announcements of its own.
    Overlay(Box<Overlay>),
    /// Copies it for a recorder.
    RecordTap(Box<RecordTap>),
    /// Copies it for a mount, with what is on air.
    AirTap(Box<AirTap>),
}

impl From<AirTap> for BusOutput {
    fn from(tap: AirTap) -> Self {
        Self::AirTap(Box::new(tap))
    }
}

impl From<RecordTap> for BusOutput {
    fn from(tap: RecordTap) -> Self {
        Self::RecordTap(Box::new(tap))
    }
}

impl From<StationTap> for BusOutput {
    fn from(tap: StationTap) -> Self {
        Self::Tap(Box::new(tap))
    }
}

impl From<Overlay> for BusOutput {
    fn from(overlay: Overlay) -> Self {
        Self::Overlay(Box::new(overlay))
    }
}

impl From<Rendition> for BusOutput {
    fn from(rendition: Rendition) -> Self {
        Self::Rendition(Box::new(rendition))
    }
}

/// The outputs of a running station.
#[derive(Debug)]
pub(crate) struct OutputBus {
    outputs: Vec<(u64, BusOutput)>,
}

impl OutputBus {
    pub(crate) fn new() -> Self {
        Self { outputs: Vec::with_capacity(MAX_BUS_OUTPUTS) }
    }

    /// Attaches an output; the handle limits their number. Passes one that cannot be attached, a
    /// recorder of an unknown input, to `discard`.
    pub(crate) fn attach(
        &mut self,
        number: u64,
        output: BusOutput,
        inputs: &mut [Input],
        discard: &mut impl FnMut(u64, BusOutput),
    ) {
        let refused = match output {
            BusOutput::RecordTap(tap) => match tap.side() {
                TapPoint::Input(input) => match inputs.get_mut(input) {
                    Some(input) => input.attach_record_tap(number, tap),
                    None => Some(tap),
                },
                TapPoint::Output => {
                    return self.outputs.push((number, BusOutput::RecordTap(tap)));
                }
            },
            output => return self.outputs.push((number, output)),
        };
        if let Some(tap) = refused {
            discard(number, BusOutput::RecordTap(tap));
        }
    }

    /// Detaches the output of this number, and those whose reader is gone.
    pub(crate) fn detach(
        &mut self,
        number: Option<u64>,
        inputs: &mut [Input],
        discard: &mut impl FnMut(u64, BusOutput),
    ) {
        let is_over = |(other, output): &(u64, BusOutput)| {
            Some(*other) == number
                || match output {
                    BusOutput::Tap(tap) => tap.items.is_abandoned(),
                    BusOutput::RecordTap(tap) => tap.is_abandoned(),
                    BusOutput::AirTap(tap) => tap.is_abandoned(),
                    BusOutput::Rendition(_) | BusOutput::Overlay(_) => false,
                }
        };
        while let Some(at) = self.outputs.iter().position(is_over) {
            let (number, output) = self.outputs.swap_remove(at);
            discard(number, output);
        }
        let is_over = |other, tap: &RecordTap| Some(other) == number || tap.is_abandoned();
        for input in inputs {
            while let Some((number, tap)) = input.detach_record_tap(&is_over) {
                discard(number, BusOutput::RecordTap(tap));
            }
        }
    }

    /// Passes the programme to the station taps: the first `real` frames of `block`. Returns the
    /// number of taps that have lost it.
    pub(crate) fn feed_station_taps(&mut self, now: Instant, block: &Block, real: usize) -> u64 {
        let taps = self.outputs.iter_mut().filter_map(|(_, output)| match output {
            BusOutput::Tap(tap) => Some(tap),
            _ => None,
        });
        taps.map(|tap| u64::from(!tap.push(now, block, real))).sum()
    }

    /// Passes the output to the record taps and air taps; `line` is the station's timeline.
    pub(crate) fn feed_record_taps(&mut self, block: &Block, line: Timeline, on_air: OnAir) {
        for (_, output) in &mut self.outputs {
            match output {
                BusOutput::RecordTap(tap) => tap.push_block(block, line),
                BusOutput::AirTap(tap) => tap.push(block, line, on_air),
                BusOutput::Tap(_) | BusOutput::Rendition(_) | BusOutput::Overlay(_) => {}
            }
        }
    }

    /// Sends the output through every further rendition and overlay. Passes what happens to the
    /// announcements of overlays to `report`.
    pub(crate) fn send_renditions(
        &mut self,
        block: &Block,
        now: Instant,
        times: (MediaTime, Instant),
        status: &mut StationStatus,
        report: &mut impl FnMut(MixerReport),
    ) {
        for (_, output) in &mut self.outputs {
            match output {
                BusOutput::Rendition(rendition) => rendition.send(block, now, times, status),
                BusOutput::Overlay(overlay) => overlay.send(block, now, times, status, report),
                BusOutput::Tap(_) | BusOutput::RecordTap(_) | BusOutput::AirTap(_) => {}
            }
        }
    }

    /// Changes the sound of the rendition of this number.
    pub(crate) fn set_sound(&mut self, number: u64, program: &SoundProgram) {
        for (other, output) in &mut self.outputs {
            if let BusOutput::Rendition(rendition) = output
                && *other == number
            {
                rendition.set_sound(program);
            }
        }
    }

    /// The overlay of this number.
    pub(crate) fn overlay(&mut self, number: u64) -> Option<&mut Overlay> {
        self.overlays().find(|(other, _)| *other == number).map(|(_, overlay)| overlay)
    }

    /// Cancels an announcement on the overlay that plays it.
    pub(crate) fn cancel(&mut self, id: u64, report: &mut impl FnMut(MixerReport)) {
        self.overlays().for_each(|(_, overlay)| overlay.cancel(id, report));
    }

    fn overlays(&mut self) -> impl Iterator<Item = (u64, &mut Overlay)> {
        self.outputs.iter_mut().filter_map(|(number, output)| match output {
            BusOutput::Overlay(overlay) => Some((*number, &mut **overlay)),
            _ => None,
        })
    }
}

/// Copies a station's programme into blocks for another station.
#[derive(Debug)]
pub struct StationTap {
    pool: Pool<Block>,
    items: Producer<SourceItem>,
    open: bool,
}

impl StationTap {
    /// A tap that fills `items` with blocks of `pool`, which were made with
    /// [`BLOCK_SAMPLES`](crate::source::BLOCK_SAMPLES). The ring has one slot more than there are
    /// blocks.
    #[must_use]
    pub const fn new(pool: Pool<Block>, items: Producer<SourceItem>) -> Self {
        Self { pool, items, open: false }
    }

    /// False if the block is lost: a station that does not read in time misses audio, and continues
    /// when it is back.
    fn push(&mut self, now: Instant, block: &Block, real: usize) -> bool {
        if real == 0 {
            // Silence because no source plays: that is an end, and no audio.
            if self.open {
                self.open = self.items.push(SourceItem::End).is_err();
            }
            return true;
        }
        let Some(mut copy) = self.pool.take() else { return false };
        let samples = real * block.layout().channels();
        copy.reset(block.rate(), block.layout());
        copy.resize(aulos_core::Frames::from(real));
        copy.samples_mut().copy_from_slice(&block.samples()[..samples]);
        (copy.pts, copy.received) = (block.pts, now);
        self.open = true;
        self.items.push(SourceItem::Block(copy)).is_ok()
    }
}
