//! What hangs on a running station besides its own rendition, put there and taken away while it
//! runs: taps, which give its programme to another station, more renditions, and the pickups of
//! recorders.
//!
//! Control makes and frees them; the station only holds them. They come in through a ring between
//! two quanta and go out through a bin, so that nothing is allocated or freed in between.

use aulos_core::{Block, Instant, MediaTime, Timeline};
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_rt::{Bin, Collector, Pool, bin};

use crate::input::Input;
use crate::recorder::{Pickup, Side};
use crate::rendition::Rendition;
use crate::source::Item;
use crate::status::StationStatus;

/// What one station can hold: as many other stations as there are rooms in a large house play it,
/// beside its renditions.
pub const MAX_OUTLETS: usize = 64;

/// Control's end: not for a real-time thread.
#[derive(Debug)]
pub struct Outlets {
    orders: Producer<Order>,
    gone: Collector<Outlet>,
    last: u64,
}

impl Outlets {
    /// Hangs something on the station; gives the number by which it is taken away. `None` when the
    /// station is behind with such orders: try again.
    pub fn add(&mut self, outlet: impl Into<Outlet>) -> Option<u64> {
        self.gone.collect();
        self.last += 1;
        self.orders.push(Order::Add(self.last, outlet.into())).is_ok().then_some(self.last)
    }

    /// Takes it away; false as above.
    pub fn remove(&mut self, number: u64) -> bool {
        self.gone.collect();
        self.orders.push(Order::Remove(number)).is_ok()
    }

    /// Throws away what the station's senders have sent and nobody has heard yet; false as above.
    pub fn flush(&mut self) -> bool {
        self.orders.push(Order::Flush).is_ok()
    }

    /// Frees what has been taken away.
    pub fn tidy(&mut self) {
        self.gone.collect();
    }
}

/// Something that can hang on a station.
#[derive(Debug)]
pub enum Outlet {
    /// Gives its programme to another station.
    Tap(Box<Tap>),
    /// Encodes it once more.
    Rendition(Box<Rendition>),
    /// Copies it for a recorder.
    Pickup(Box<Pickup>),
}

impl From<Pickup> for Outlet {
    fn from(pickup: Pickup) -> Self {
        Self::Pickup(Box::new(pickup))
    }
}

impl From<Tap> for Outlet {
    fn from(tap: Tap) -> Self {
        Self::Tap(Box::new(tap))
    }
}

impl From<Rendition> for Outlet {
    fn from(rendition: Rendition) -> Self {
        Self::Rendition(Box::new(rendition))
    }
}

#[derive(Debug)]
enum Order {
    Add(u64, Outlet),
    Remove(u64),
    Flush,
}

/// The two ends.
#[must_use]
pub(crate) fn outlets() -> (Outlets, Rack) {
    let (orders, told) = ring(MAX_ORDERS);
    let (bin, gone) = bin(2 * MAX_OUTLETS);
    let rack = Rack { orders: told, bin, list: Vec::with_capacity(MAX_OUTLETS), flush: false };
    (Outlets { orders, gone, last: 0 }, rack)
}

/// The station's end.
#[derive(Debug)]
pub(crate) struct Rack {
    orders: Consumer<Order>,
    bin: Bin<Outlet>,
    list: Vec<(u64, Outlet)>,
    flush: bool,
}

impl Rack {
    /// Does what control has told.
    pub(crate) fn take_orders(&mut self, inputs: &mut [Input]) {
        while let Some(order) = self.orders.pop() {
            match order {
                Order::Add(number, outlet) => self.hang(number, outlet, inputs),
                Order::Flush => self.flush = true,
                Order::Remove(number) => {
                    self.remove(|(other, _)| *other == number);
                    self.let_go(inputs, |other, _| other == number);
                }
            }
        }
        self.let_go(inputs, |_, pickup| pickup.is_abandoned());
    }

    fn hang(&mut self, number: u64, outlet: Outlet, inputs: &mut [Input]) {
        let refused = match outlet {
            Outlet::Pickup(pickup) if let Side::Input(input) = pickup.side() => {
                match inputs.get_mut(input) {
                    Some(input) => input.hang(number, pickup),
                    None => Some(pickup),
                }
                .map(Outlet::Pickup)
            }
            outlet if self.list.len() < MAX_OUTLETS => {
                self.list.push((number, outlet));
                None
            }
            outlet => Some(outlet),
        };
        if let Some(outlet) = refused {
            self.discard(outlet);
        }
    }

    /// Takes pickups off the inputs.
    fn let_go(&mut self, inputs: &mut [Input], which: impl Fn(u64, &Pickup) -> bool) {
        for input in inputs {
            while let Some(pickup) = input.let_go(&which) {
                self.discard(Outlet::Pickup(pickup));
            }
        }
    }

    /// Whether what waits is to be thrown away; true once.
    pub(crate) const fn take_flush(&mut self) -> bool {
        core::mem::replace(&mut self.flush, false)
    }

    /// Gives the programme to who has tapped it: `block` as far as it is real.
    pub(crate) fn tap(&mut self, now: Instant, block: &Block, real: usize) {
        let mut left = false;
        for (_, outlet) in &mut self.list {
            if let Outlet::Tap(tap) = outlet {
                tap.hear(now, block, real);
                left |= tap.items.is_abandoned();
            }
        }
        if left {
            let gone =
                |outlet: &Outlet| matches!(outlet, Outlet::Tap(tap) if tap.items.is_abandoned());
            self.remove(|(_, outlet)| gone(outlet));
        }
    }

    /// Gives what goes out to the recorders; `line` is the station's.
    pub(crate) fn record(&mut self, block: &Block, line: Timeline) {
        let mut left = false;
        for (_, outlet) in &mut self.list {
            if let Outlet::Pickup(pickup) = outlet {
                pickup.hear(block, line);
                left |= pickup.is_abandoned();
            }
        }
        if left {
            let gone = |outlet: &Outlet| matches!(outlet, Outlet::Pickup(it) if it.is_abandoned());
            self.remove(|(_, outlet)| gone(outlet));
        }
    }

    /// Sends what goes out through every further rendition.
    pub(crate) fn send(
        &mut self,
        block: &Block,
        now: Instant,
        times: (MediaTime, Instant),
        status: &mut StationStatus,
    ) {
        for (_, outlet) in &mut self.list {
            if let Outlet::Rendition(rendition) = outlet {
                rendition.send(block, now, times, status);
            }
        }
    }

    fn remove(&mut self, which: impl Fn(&(u64, Outlet)) -> bool) {
        while let Some(at) = self.list.iter().position(&which) {
            let (_, outlet) = self.list.swap_remove(at);
            self.discard(outlet);
        }
    }

    fn discard(&mut self, outlet: Outlet) {
        // Control empties the bin before each order, and there is room for twice what can hang here.
        drop(self.bin.discard(outlet));
    }
}

/// Copies a station's programme into blocks for another station.
#[derive(Debug)]
pub struct Tap {
    pool: Pool<Block>,
    items: Producer<Item>,
    open: bool,
}

impl Tap {
    /// A tap that fills `items` with blocks of `pool`, which were made with
    /// [`BLOCK_SAMPLES`](crate::source::BLOCK_SAMPLES). The ring has one place more than there are
    /// blocks.
    #[must_use]
    pub const fn new(pool: Pool<Block>, items: Producer<Item>) -> Self {
        Self { pool, items, open: false }
    }

    fn hear(&mut self, now: Instant, block: &Block, real: usize) {
        if real == 0 {
            // It is silent because nobody plays there: that is an end, and no sound.
            if self.open {
                self.open = self.items.push(Item::End).is_err();
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
        drop(self.items.push(Item::Block(copy)));
    }
}

/// Orders that wait for the next quantum.
const MAX_ORDERS: usize = 16;
