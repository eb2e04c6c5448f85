//! A source whose sender can be exchanged while it runs.
//!
//! A station that plays another one continues when that one restarts under its name: the control
//! thread passes a new ring to this source, and gets the old one back to free it. Recreating the
//! playing station was the alternative; its clients would hear that.

use aulos_core::{Block, Instant};
use aulos_rt::Pool;
use aulos_rt::ring::Consumer;

use crate::control_port::{ControlPort, Message, PortLimits, RealTimePort, control_ports};
use crate::source::{Pacing, PullResult, Source, SourceItem};

/// Creates the control thread's handle, and the source for the playing station.
#[must_use]
pub fn swappable_source() -> (SwappableSourceHandle, SwappableSource) {
    // The next sender, the one in use and the one before it.
    let limits = PortLimits { commands: 1, reserved: 3, notices: 0 };
    let (control, port) = control_ports(limits);
    (SwappableSourceHandle(control), SwappableSource { port, sender: None, open: false })
}

/// The control thread's handle: not for a real-time thread.
#[derive(Debug)]
pub struct SwappableSourceHandle(ControlPort<SenderRing, SenderRing>);

/// The blocks of a sender. Their pool travels with them, because the playing station must not free
/// it while it plays them.
#[derive(Debug)]
struct SenderRing {
    items: Consumer<SourceItem>,
    _pool: Pool<Block>,
}

impl Message for SenderRing {}

impl SwappableSourceHandle {
    /// Plays `items`, blocks of `pool`, from now on. Returns false when the station has not taken
    /// the last exchange yet: try again.
    pub fn swap(&mut self, items: Consumer<SourceItem>, pool: Pool<Block>) -> bool {
        if !self.can_swap() {
            return false;
        }
        self.0.send(SenderRing { items, _pool: pool });
        true
    }

    /// Whether the sender can be exchanged now. Frees the one that was replaced.
    #[must_use]
    pub fn can_swap(&mut self) -> bool {
        self.0.collect();
        self.0.has_room()
    }

    /// Whether the playing station is gone.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.0.is_abandoned()
    }
}

/// The playing station's end.
#[derive(Debug)]
pub struct SwappableSource {
    port: RealTimePort<SenderRing, SenderRing>,
    sender: Option<SenderRing>,
    open: bool,
}

impl Source for SwappableSource {
    fn pull(&mut self, _now: Instant, into: &mut Block) -> PullResult {
        if let Some(sender) = self.port.next() {
            if let Some(old) = self.sender.replace(sender) {
                self.port.reply(old);
            }
            return self.end();
        }
        let Some(SenderRing { items, .. }) = &mut self.sender else { return PullResult::Pending };
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
