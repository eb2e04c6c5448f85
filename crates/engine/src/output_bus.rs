//! What hangs on a running station besides its own rendition, put there and taken away while it
//! runs: taps, which give its programme to another station, more renditions, and the pickups of
//! recorders.
//!
//! Control makes and frees them; the station only holds them. They come in through a ring between
//! two quanta and go out through a bin, so that nothing is allocated or freed in between.

use aulos_core::{Block, Instant, MediaTime, Timeline};
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_rt::{DropCollector, DropQueue, Pool, drop_queue};

use crate::input::Input;
use crate::recorder::{RecordTap, TapPoint};
use crate::rendition::Rendition;
use crate::source::SourceItem;
use crate::status::StationStatus;

/// What one station can hold: as many other stations as there are rooms in a large house play it,
/// beside its renditions.
pub const MAX_BUS_OUTPUTS: usize = 64;

/// Control's end: not for a real-time thread.
#[derive(Debug)]
pub struct OutputBusHandle {
    commands: Producer<BusCommand>,
    removed: DropCollector<BusOutput>,
    last: u64,
}

impl OutputBusHandle {
    /// Hangs something on the station; gives the number by which it is taken away. `None` when the
    /// station is behind with such orders: try again.
    pub fn add(&mut self, outlet: impl Into<BusOutput>) -> Option<u64> {
        self.removed.collect();
        self.last += 1;
        self.commands.push(BusCommand::Add(self.last, outlet.into())).is_ok().then_some(self.last)
    }

    /// Takes it away; false as above.
    pub fn remove(&mut self, number: u64) -> bool {
        self.removed.collect();
        self.commands.push(BusCommand::Remove(number)).is_ok()
    }

    /// Throws away what the station's senders have sent and nobody has heard yet; false as above.
    pub fn flush(&mut self) -> bool {
        self.commands.push(BusCommand::Flush).is_ok()
    }

    /// Frees what has been taken away.
    pub fn tidy(&mut self) {
        self.removed.collect();
    }
}

/// Something that can hang on a station.
#[derive(Debug)]
pub enum BusOutput {
    /// Gives its programme to another station.
    Tap(Box<StationTap>),
    /// Encodes it once more.
    Rendition(Box<Rendition>),
    /// Copies it for a recorder.
    RecordTap(Box<RecordTap>),
}

impl From<RecordTap> for BusOutput {
    fn from(pickup: RecordTap) -> Self {
        Self::RecordTap(Box::new(pickup))
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

/// The two ends.
#[must_use]
pub(crate) fn output_bus() -> (OutputBusHandle, OutputBus) {
    let (orders, told) = ring(MAX_COMMANDS);
    let (bin, gone) = drop_queue(2 * MAX_BUS_OUTPUTS);
    let rack = OutputBus {
        commands: told,
        bin,
        outputs: Vec::with_capacity(MAX_BUS_OUTPUTS),
        flush: false,
    };
    (OutputBusHandle { commands: orders, removed: gone, last: 0 }, rack)
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
    /// Does what control has told.
    pub(crate) fn handle_commands(&mut self, inputs: &mut [Input]) {
        while let Some(order) = self.commands.pop() {
            match order {
                BusCommand::Add(number, outlet) => self.attach(number, outlet, inputs),
                BusCommand::Flush => self.flush = true,
                BusCommand::Remove(number) => {
                    self.remove(|(other, _)| *other == number);
                    self.detach_input_taps(inputs, |other, _| other == number);
                }
            }
        }
        self.detach_input_taps(inputs, |_, pickup| pickup.is_abandoned());
    }

    fn attach(&mut self, number: u64, outlet: BusOutput, inputs: &mut [Input]) {
        let refused = match outlet {
            BusOutput::RecordTap(pickup) if let TapPoint::Input(input) = pickup.side() => {
                match inputs.get_mut(input) {
                    Some(input) => input.attach_record_tap(number, pickup),
                    None => Some(pickup),
                }
                .map(BusOutput::RecordTap)
            }
            outlet if self.outputs.len() < MAX_BUS_OUTPUTS => {
                self.outputs.push((number, outlet));
                None
            }
            outlet => Some(outlet),
        };
        if let Some(outlet) = refused {
            self.discard(outlet);
        }
    }

    /// Takes pickups off the inputs.
    fn detach_input_taps(&mut self, inputs: &mut [Input], which: impl Fn(u64, &RecordTap) -> bool) {
        for input in inputs {
            while let Some(pickup) = input.detach_record_tap(&which) {
                self.discard(BusOutput::RecordTap(pickup));
            }
        }
    }

    /// Whether what waits is to be thrown away; true once.
    pub(crate) const fn take_flush(&mut self) -> bool {
        core::mem::replace(&mut self.flush, false)
    }

    /// Gives the programme to who has tapped it: `block` as far as it is real.
    pub(crate) fn feed_station_taps(&mut self, now: Instant, block: &Block, real: usize) {
        let mut left = false;
        for (_, outlet) in &mut self.outputs {
            if let BusOutput::Tap(tap) = outlet {
                tap.push(now, block, real);
                left |= tap.items.is_abandoned();
            }
        }
        if left {
            let gone = |outlet: &BusOutput| matches!(outlet, BusOutput::Tap(tap) if tap.items.is_abandoned());
            self.remove(|(_, outlet)| gone(outlet));
        }
    }

    /// Gives what goes out to the recorders; `line` is the station's.
    pub(crate) fn feed_record_taps(&mut self, block: &Block, line: Timeline) {
        let mut left = false;
        for (_, outlet) in &mut self.outputs {
            if let BusOutput::RecordTap(pickup) = outlet {
                pickup.push_block(block, line);
                left |= pickup.is_abandoned();
            }
        }
        if left {
            let gone = |outlet: &BusOutput| matches!(outlet, BusOutput::RecordTap(it) if it.is_abandoned());
            self.remove(|(_, outlet)| gone(outlet));
        }
    }

    /// Sends what goes out through every further rendition.
    pub(crate) fn send_renditions(
        &mut self,
        block: &Block,
        now: Instant,
        times: (MediaTime, Instant),
        status: &mut StationStatus,
    ) {
        for (_, outlet) in &mut self.outputs {
            if let BusOutput::Rendition(rendition) = outlet {
                rendition.send(block, now, times, status);
            }
        }
    }

    fn remove(&mut self, which: impl Fn(&(u64, BusOutput)) -> bool) {
        while let Some(at) = self.outputs.iter().position(&which) {
            let (_, outlet) = self.outputs.swap_remove(at);
            self.discard(outlet);
        }
    }

    fn discard(&mut self, outlet: BusOutput) {
        // Control empties the bin before each order, and there is room for twice what can hang here.
        drop(self.bin.discard(outlet));
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
    /// [`BLOCK_SAMPLES`](crate::source::BLOCK_SAMPLES). The ring has one place more than there are
    /// blocks.
    #[must_use]
    pub const fn new(pool: Pool<Block>, items: Producer<SourceItem>) -> Self {
        Self { pool, items, open: false }
    }

    fn push(&mut self, now: Instant, block: &Block, real: usize) {
        if real == 0 {
            // It is silent because nobody plays there: that is an end, and no sound.
            if self.open {
                self.open = self.items.push(SourceItem::End).is_err();
            }
            return;
        }
        // A station that does not take it in time misses it, and goes on when it is back.
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

/// Orders that wait for the next quantum.
const MAX_COMMANDS: usize = 16;
