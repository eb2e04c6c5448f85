//! A source that can be plugged into another sender while it runs.
//!
//! A station that plays another one goes on when that one begins anew under its name: control hands
//! it another ring, and gets the old one back to free it. To make the playing station anew was the
//! alternative; its clients would hear that.

use aulos_core::{Block, Instant};
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_rt::{Bin, Collector, Pool, bin};

use crate::source::{Item, Pacing, Pulled, Source};

/// The two ends: control's, and the source for the station that plays.
#[must_use]
pub fn patch() -> (Patch, PatchSource) {
    let (cords, plugged) = ring(1);
    // The one that is in use and the one behind it.
    let (bin, old) = bin(2);
    let source = PatchSource { cords: plugged, items: None, bin, open: false };
    (Patch { cords, old, pools: [const { None }; 2] }, source)
}

/// Control's end: not for a real-time thread.
#[derive(Debug)]
pub struct Patch {
    cords: Producer<Consumer<Item>>,
    old: Collector<Consumer<Item>>,
    /// While its blocks may still be given back, a pool stays: whoever plays must not free it.
    pools: [Option<Pool<Block>>; 2],
}

impl Patch {
    /// Plays what comes out of `items`, blocks of `pool`, from now on. False when the station has
    /// not taken the last one yet: try again.
    pub fn plug(&mut self, items: Consumer<Item>, pool: Pool<Block>) -> bool {
        self.old.collect();
        if self.cords.push(items).is_err() {
            return false;
        }
        self.pools.swap(0, 1);
        self.pools[0] = Some(pool);
        true
    }

    /// Whether it can be plugged now.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.cords.free() > 0
    }

    /// The station that plays is gone.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.cords.is_abandoned()
    }
}

/// The playing station's end.
#[derive(Debug)]
pub struct PatchSource {
    cords: Consumer<Consumer<Item>>,
    items: Option<Consumer<Item>>,
    bin: Bin<Consumer<Item>>,
    open: bool,
}

impl Source for PatchSource {
    fn pull(&mut self, _now: Instant, into: &mut Block) -> Pulled {
        if let Some(items) = self.cords.pop() {
            if let Some(old) = self.items.replace(items) {
                // Control empties the bin whenever it plugs.
                drop(self.bin.discard(old));
            }
            return self.end();
        }
        let Some(items) = &mut self.items else { return Pulled::Pending };
        match items.pop() {
            Some(Item::Block(mut block)) => {
                core::mem::swap(into, &mut block);
                self.open = true;
                Pulled::Block
            }
            Some(Item::End | Item::Lost) => self.end(),
            None if items.is_abandoned() => self.end(),
            None => Pulled::Pending,
        }
    }

    fn pacing(&self) -> Pacing {
        Pacing::House
    }
}

impl PatchSource {
    /// Each sender ends once.
    const fn end(&mut self) -> Pulled {
        if core::mem::replace(&mut self.open, false) { Pulled::Ended } else { Pulled::Pending }
    }
}
