//! A source that can be plugged into another sender while it runs.
//!
//! A station that plays another one goes on when that one begins anew under its name: control hands
//! it another ring, and gets the old one back to free it. To make the playing station anew was the
//! alternative; its clients would hear that.

use aulos_core::{Block, Instant};
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_rt::{DropCollector, DropQueue, Pool, drop_queue};

use crate::source::{Pacing, PullResult, Source, SourceItem};

/// The two ends: control's, and the source for the station that plays.
#[must_use]
pub fn swappable_source() -> (SwappableSourceHandle, SwappableSource) {
    let (cords, plugged) = ring(1);
    // The one that is in use and the one behind it.
    let (bin, old) = drop_queue(2);
    let source = SwappableSource { new_items: plugged, items: None, bin, open: false };
    (SwappableSourceHandle { new_items: cords, replaced: old, pools: [const { None }; 2] }, source)
}

/// Control's end: not for a real-time thread.
#[derive(Debug)]
pub struct SwappableSourceHandle {
    new_items: Producer<Consumer<SourceItem>>,
    replaced: DropCollector<Consumer<SourceItem>>,
    /// While its blocks may still be given back, a pool stays: whoever plays must not free it.
    pools: [Option<Pool<Block>>; 2],
}

impl SwappableSourceHandle {
    /// Plays what comes out of `items`, blocks of `pool`, from now on. False when the station has
    /// not taken the last one yet: try again.
    pub fn swap(&mut self, items: Consumer<SourceItem>, pool: Pool<Block>) -> bool {
        self.replaced.collect();
        if self.new_items.push(items).is_err() {
            return false;
        }
        self.pools.swap(0, 1);
        self.pools[0] = Some(pool);
        true
    }

    /// Whether it can be plugged now.
    #[must_use]
    pub fn can_swap(&self) -> bool {
        self.new_items.free() > 0
    }

    /// The station that plays is gone.
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
                // Control empties the bin whenever it plugs.
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
