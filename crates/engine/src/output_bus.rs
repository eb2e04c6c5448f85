//! Outputs that are attached to and detached from a running station besides its own rendition:
//! taps, which pass its programme to another station, further renditions, and record taps.
//!
//! The control thread creates and frees them; the station only holds them. They arrive through a
//! ring between two quanta and leave through a drop queue, so that the station allocates and frees
//! nothing.

use aulos_core::{Block, Instant, MediaTime, Timeline};
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_rt::{DropCollector, DropQueue, Pool, drop_queue};

use crate::input::Input;
use crate::recorder::{RecordTap, TapPoint};
use crate::rendition::Rendition;
use crate::source::SourceItem;
use crate::status::StationStatus;

/// Maximum number of outputs on one station: a tap for each other station of a large installation,
/// and the renditions.
pub const MAX_BUS_OUTPUTS: usize = 64;

/// The control thread's end: not for a real-time thread.
#[derive(Debug)]
pub struct OutputBusHandle {
    commands: Producer<BusCommand>,
    removed: DropCollector<BusOutput>,
    last: u64,
}

impl OutputBusHandle {
    /// Attaches an output; returns the number for [`OutputBusHandle::remove`]. `None` when the
    /// command ring is full: try again.
    pub fn add(&mut self, output: impl Into<BusOutput>) -> Option<u64> {
        self.removed.collect();
        self.last += 1;
        self.commands.push(BusCommand::Add(self.last, output.into())).is_ok().then_some(self.last)
    }

    /// Detaches an output; returns false when the command ring is full.
    pub fn remove(&mut self, number: u64) -> bool {
        self.removed.collect();
        self.commands.push(BusCommand::Remove(number)).is_ok()
    }

    /// Discards the audio that the station's senders have sent and that has not been played yet;
    /// returns false when the command ring is full.
    pub fn flush(&mut self) -> bool {
        self.commands.push(BusCommand::Flush).is_ok()
    }

    /// Frees detached outputs.
    pub fn tidy(&mut self) {
        self.removed.collect();
    }
}

/// Something that can be attached to a station.
#[derive(Debug)]
pub enum BusOutput {
    /// Passes its programme to another station.
    Tap(Box<StationTap>),
    /// Encodes it once more.
    Rendition(Box<Rendition>),
    /// Copies it for a recorder.
    RecordTap(Box<RecordTap>),
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

impl From<Rendition> for BusOutput {
    fn from(rendition: Rendition) -> Self {
        Self::Rendition(Box::new(rendition))
    }
}

#[derive(Debug)]
enum BusCommand {
    Add(u64, BusOutput),
    Remove(u64),
    Flush,
}

/// Creates both ends.
#[must_use]
pub(crate) fn output_bus() -> (OutputBusHandle, OutputBus) {
    let (command_sender, command_receiver) = ring(MAX_COMMANDS);
    let (bin, removed) = drop_queue(2 * MAX_BUS_OUTPUTS);
    let bus = OutputBus {
        commands: command_receiver,
        bin,
        outputs: Vec::with_capacity(MAX_BUS_OUTPUTS),
        flush: false,
    };
    (OutputBusHandle { commands: command_sender, removed, last: 0 }, bus)
}

/// The station's end.
#[derive(Debug)]
pub(crate) struct OutputBus {
    commands: Consumer<BusCommand>,
    bin: DropQueue<BusOutput>,
    outputs: Vec<(u64, BusOutput)>,
    flush: bool,
}

impl OutputBus {
    /// Carries out the commands of the control thread.
    pub(crate) fn handle_commands(&mut self, inputs: &mut [Input]) {
        while let Some(command) = self.commands.pop() {
            match command {
                BusCommand::Add(number, output) => self.attach(number, output, inputs),
                BusCommand::Flush => self.flush = true,
                BusCommand::Remove(number) => {
                    self.remove(|(other, _)| *other == number);
                    self.detach_input_taps(inputs, |other, _| other == number);
                }
            }
        }
        self.detach_input_taps(inputs, |_, tap| tap.is_abandoned());
    }

    fn attach(&mut self, number: u64, output: BusOutput, inputs: &mut [Input]) {
        let refused = match output {
            BusOutput::RecordTap(tap) if let TapPoint::Input(input) = tap.side() => {
                match inputs.get_mut(input) {
                    Some(input) => input.attach_record_tap(number, tap),
                    None => Some(tap),
                }
                .map(BusOutput::RecordTap)
            }
            output if self.outputs.len() < MAX_BUS_OUTPUTS => {
                self.outputs.push((number, output));
                None
            }
            output => Some(output),
        };
        if let Some(output) = refused {
            self.discard(output);
        }
    }

    /// Detaches record taps from the inputs.
    fn detach_input_taps(&mut self, inputs: &mut [Input], which: impl Fn(u64, &RecordTap) -> bool) {
        for input in inputs {
            while let Some(tap) = input.detach_record_tap(&which) {
                self.discard(BusOutput::RecordTap(tap));
            }
        }
    }

    /// Whether the buffered audio is to be discarded; true once.
    pub(crate) const fn take_flush(&mut self) -> bool {
        core::mem::replace(&mut self.flush, false)
    }

    /// Passes the programme to the station taps: the first `real` frames of `block`.
    pub(crate) fn feed_station_taps(&mut self, now: Instant, block: &Block, real: usize) {
        let mut left = false;
        for (_, output) in &mut self.outputs {
            if let BusOutput::Tap(tap) = output {
                tap.push(now, block, real);
                left |= tap.items.is_abandoned();
            }
        }
        if left {
            let gone = |output: &BusOutput| matches!(output, BusOutput::Tap(tap) if tap.items.is_abandoned());
            self.remove(|(_, output)| gone(output));
        }
    }

    /// Passes the output to the record taps; `line` is the station's timeline.
    pub(crate) fn feed_record_taps(&mut self, block: &Block, line: Timeline) {
        let mut left = false;
        for (_, output) in &mut self.outputs {
            if let BusOutput::RecordTap(tap) = output {
                tap.push_block(block, line);
                left |= tap.is_abandoned();
            }
        }
        if left {
            let gone = |output: &BusOutput| matches!(output, BusOutput::RecordTap(it) if it.is_abandoned());
            self.remove(|(_, output)| gone(output));
        }
    }

    /// Sends the output through every further rendition.
    pub(crate) fn send_renditions(
        &mut self,
        block: &Block,
        now: Instant,
        times: (MediaTime, Instant),
        status: &mut StationStatus,
    ) {
        for (_, output) in &mut self.outputs {
            if let BusOutput::Rendition(rendition) = output {
                rendition.send(block, now, times, status);
            }
        }
    }

    fn remove(&mut self, which: impl Fn(&(u64, BusOutput)) -> bool) {
        while let Some(at) = self.outputs.iter().position(&which) {
            let (_, output) = self.outputs.swap_remove(at);
            self.discard(output);
        }
    }

    fn discard(&mut self, output: BusOutput) {
        // The control thread empties the drop queue before each command, and it has room for twice
        // the outputs that can be attached.
        drop(self.bin.discard(output));
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

    fn push(&mut self, now: Instant, block: &Block, real: usize) {
        if real == 0 {
            // Silence because no source plays: that is an end, and no audio.
            if self.open {
                self.open = self.items.push(SourceItem::End).is_err();
            }
            return;
        }
        // A station that does not read in time misses audio, and continues when it is back.
        let Some(mut copy) = self.pool.take() else { return };
        let samples = real * block.layout().channels();
        copy.reset(block.rate(), block.layout());
        copy.resize(aulos_core::Frames::from(real));
        copy.samples_mut().copy_from_slice(&block.samples()[..samples]);
        (copy.pts, copy.received) = (block.pts, now);
        self.open = true;
        drop(self.items.push(SourceItem::Block(copy)));
    }
}

/// Commands that wait for the next quantum.
const MAX_COMMANDS: usize = 16;
