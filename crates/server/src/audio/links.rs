//! Stations that play others: who is plugged into whom.
//!
//! A link goes by the other station's name. Whenever a station begins, ends or begins anew, and a few
//! times a second where a station had no time for it, every link is brought to whoever runs under
//! its name. That both were made from one source instead was rejected: a source has one owner and one
//! clock, and what a station plays is more than its source.

use aulos_core::{Block, ChannelLayout, SampleRate};
use aulos_engine::outlet::Tap;
use aulos_engine::patch::Patch;
use aulos_engine::source::BLOCK_SAMPLES;
use aulos_rt::Pool;
use aulos_rt::ring::ring;

use super::{Inner, Running};

/// One source that is another station.
#[derive(Debug)]
pub(super) struct Link {
    from: String,
    patch: Patch,
    /// The station that it is plugged into, of all that ever ran.
    plugged: Option<u64>,
}

impl Link {
    pub(super) fn new(from: &str, patch: Patch) -> Self {
        Self { from: from.to_owned(), patch, plugged: None }
    }

    fn follow(&mut self, running: &mut Running) {
        if self.plugged == Some(running.run) || !self.patch.is_free() {
            return;
        }
        let block =
            || Block::with_capacity(SampleRate::STUDIO, ChannelLayout::STEREO, BLOCK_SAMPLES);
        let (pool, (items, consumer)) = (Pool::new(LINK_BLOCKS, block), ring(LINK_BLOCKS + 1));
        if running.outlets.add(Tap::new(pool.clone(), items)).is_some()
            && self.patch.plug(consumer, pool)
        {
            self.plugged = Some(running.run);
        }
    }
}

/// Brings every link to the station of its name.
pub(super) fn follow(inner: &mut Inner) {
    let Inner { links, stations, .. } = inner;
    links.retain(|link| !link.patch.is_abandoned());
    for link in links {
        let mut running = stations.iter_mut().flatten();
        if let Some(running) = running.find(|running| running.config.name == link.from) {
            link.follow(running);
        }
    }
}

/// Quanta between two stations: a third of a second at 20 ms, and both come by in every quantum.
const LINK_BLOCKS: usize = 16;
