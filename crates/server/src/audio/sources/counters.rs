//! The counters of all sources, by kind.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aulos_io::feed::{DjCounters, SendspinCounters, SnapcastCounters};

use crate::feeder::FeederCounters;

/// Counters that the sources of a kind share.
#[derive(Debug, Default)]
pub(crate) struct SourceCounters {
    pub(crate) djs: Arc<DjCounters>,
    pub(crate) feeders: FeederCounters,
    pub(crate) sendspin: Arc<SendspinCounters>,
    pub(crate) snapcast: Arc<SnapcastCounters>,
}

impl SourceCounters {
    /// The values for the status; their names are stable.
    pub(crate) fn values(&self) -> Vec<(&'static str, u64)> {
        let Self { djs, feeders, sendspin, snapcast } = self;
        let djs = [
            ("djs_on_air", &djs.started),
            ("djs_cut_stalled", &djs.stalled),
            ("djs_cut_unplayable", &djs.unplayable),
            ("djs_broken", &djs.broken),
        ];
        let djs = djs.map(|(name, counter)| (name, counter.load(Ordering::Relaxed)));
        let snapcast = snapcast.named().map(|(name, count)| (name, count.load(Ordering::Relaxed)));
        let sendspin = sendspin.named().map(|(name, count)| (name, count.load(Ordering::Relaxed)));
        djs.into_iter().chain(feeders.values()).chain(sendspin).chain(snapcast).collect()
    }
}
