//! A source whose sender can be exchanged while it runs.
//!
//! A station that plays another one continues when that one restarts under its name: the control
//! thread passes a new ring to this source, and gets the old one back to free it. Recreating the
//! playing station was the alternative; its clients would hear that.

use aulos_core::{Block, Instant};
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_rt::{DropCollector, DropQueue, Pool, drop_queue};

use crate::source::{Pacing, PullResult, Source, SourceItem};

/// Creates the control thread's handle, and the source for the playing station.
#[must_use]
pub fn swappable_source() -> (SwappableSourceHandle, SwappableSource) {
    let (cords, plugged) = ring(1);
    // The ring in use and the one before it.
    let (bin, old) = drop_queue(2);
    let source = SwappableSource { new_items: plugged, items: None, bin, open: false };
    (SwappableSourceHandle { new_items: cords, replaced: old, pools: [const { None }; 2] }, source)
}

/// The control thread's handle: not for a real-time thread.
#[derive(Debug)]
pub struct SwappableSourceHandle {
    new_items: Producer<Consumer<SourceItem>>,
    replaced: DropCollector<Consumer<SourceItem>>,
    /// A pool stays as long as its blocks may still be returned: the playing station must not free
    /// it.
    pools: [Option<Pool<Block>>; 2],
}

impl SwappableSourceHandle {
    /// Plays `items`, blocks of `pool`, from now on. Returns false when the station has not taken
    /// the last exchange yet: try again.
    pub fn swap(&mut self, items: Consumer<SourceItem>, pool: Pool<Block>) -> bool {
        self.replaced.collect();
        if self.new_items.push(items).is_err() {
            return false;
        }
        self.pools.swap(0, 1);
        self.pools[0] = Some(pool);
        true
    }

    /// Whether the sender can be exchanged now.
    #[must_use]
    pub fn can_swap(&self) -> bool {
        self.new_items.free() > 0
    }

    /// Whether the playing station is gone.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.new_items.is_abandoned()
    }
}

/// The playing station's end.
#[derive(Debug)]
pub struct SwappableSource {
    new_items: Consumer<Consumer<SourceItem>>,
    items: Option<Consumer<SourceItem>>,
    bin: DropQueue<Consumer<SourceItem>>,
    open: bool,
}

impl Source for SwappableSource {
    fn pull(&mut self, _now: Instant, into: &mut Block) -> PullResult {
        if let Some(items) = self.new_items.pop() {
            if let Some(old) = self.items.replace(items) {
                // The control thread empties the drop queue with every exchange.
                drop(self.bin.discard(old));
            }
            return self.end();
        }
        let Some(items) = &mut self.items else { return PullResult::Pending };
        match items.pop() {
            Some(SourceItem::Block(mut block)) => {
                core::mem::swap(into, &mut block);
                self.open = true;
                PullResult::Block
            }
            Some(SourceItem::End | SourceItem::Lost) => self.end(),
            None if items.is_abandoned() => self.end(),
            None => PullResult::Pending,
        }
    }

    fn pacing(&self) -> Pacing {
        Pacing::LocalClock
    }
}

impl SwappableSource {
    /// Each sender ends once.
    const fn end(&mut self) -> PullResult {
        if core::mem::replace(&mut self.open, false) {
            PullResult::Ended
        } else {
            PullResult::Pending
        }
    }
}
