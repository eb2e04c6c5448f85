//! `meta:` sources: stations that play other stations.
//!
//! A link refers to the other station by name. It is connected again whenever a station starts,
//! ends or is replaced, and several times a second while a station has no free slot. Opening
//! the same source twice was rejected: a source has one owner and one clock, and a station's
//! programme is more than its source.

use aulos_config::source::PlayedStation;
use aulos_core::{Block, ChannelLayout, SampleRate};
use aulos_engine::output_bus::StationTap;
use aulos_engine::source::BLOCK_SAMPLES;
use aulos_engine::swappable_source::swappable_source;
use aulos_rt::Pool;
use aulos_rt::ring::ring;

use super::source_monitor::{NoMonitor, OpenedSource};
use super::station_link::StationLink;
use crate::audio::state::{AudioState, RunningStation};

impl StationLink {
    fn connect(&mut self, running: &mut RunningStation) {
        if self.connected_run == Some(running.run) || !self.source.can_swap() {
            return;
        }
        let block =
            || Block::with_capacity(SampleRate::HZ_48000, ChannelLayout::STEREO, BLOCK_SAMPLES);
        let (pool, (items, consumer)) = (Pool::new(LINK_BLOCKS, block), ring(LINK_BLOCKS + 1));
        if running.handle.add_output(StationTap::new(pool.clone(), items)).is_ok()
            && self.source.swap(consumer, pool)
        {
            self.connected_run = Some(running.run);
        }
    }
}

/// Opens a source that is a station; it is silent until it is connected.
pub(crate) fn open(played: &PlayedStation, inner: &mut AudioState) -> OpenedSource {
    let (patch, source) = swappable_source();
    inner.links.push(StationLink::new(&played.name, patch));
    (Box::new(source), Box::new(NoMonitor))
}

/// Connects every link to the running station of its name.
pub(crate) fn connect_all(inner: &mut AudioState) {
    let AudioState { links, stations, .. } = inner;
    links.retain(|link| !link.source.is_abandoned());
    for link in links {
        let mut running = stations.iter_mut().flatten();
        if let Some(running) = running.find(|running| running.config.name == link.from) {
            link.connect(running);
        }
    }
}

/// Blocks between two stations: a third of a second at 20 ms. Both stations run once per quantum.
const LINK_BLOCKS: usize = 16;
