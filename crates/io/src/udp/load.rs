//! Assigns streams to threads.
//!
//! Streams differ in cost: one is forwarded, another one encoded. So threads are compared by their
//! CPU time and not by their number of streams. Streams that were added since the last measurement
//! count with the mean cost of a stream.

use aulos_core::{Instant, Span};

use super::stats::UdpStats;

/// The load of all threads.
#[derive(Debug)]
pub(super) struct ThreadLoads {
    threads: Vec<ThreadLoad>,
    measured: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
struct ThreadLoad {
    cpu: Span,
    /// Share of a processor at the last measurement, 0 to 1.
    busy: f64,
    streams: u64,
    /// Streams added since the measurement, minus streams removed.
    added_since: i64,
}

impl ThreadLoads {
    pub(super) fn new(threads: usize, now: Instant) -> Self {
        Self { threads: vec![ThreadLoad::default(); threads], measured: now }
    }

    /// Whether it is time for a new measurement.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now.since(self.measured) >= MEASURE_INTERVAL
    }

    pub(super) fn measure<'a>(&mut self, now: Instant, stats: impl Iterator<Item = &'a UdpStats>) {
        let passed = now.since(self.measured).as_secs_f64().max(1e-9);
        for (load, stats) in self.threads.iter_mut().zip(stats) {
            let used = (stats.cpu - load.cpu).max(Span::ZERO);
            *load = ThreadLoad {
                cpu: stats.cpu,
                busy: used.as_secs_f64() / passed,
                streams: stats.streams,
                added_since: 0,
            };
        }
        self.measured = now;
    }

    /// Chooses the thread for a new stream.
    pub(super) fn assign_stream(&mut self) -> usize {
        let each = self.mean_stream_cost();
        let load = |thread: &ThreadLoad| thread.busy + thread.added_since as f64 * each;
        let picked = (0..self.threads.len())
            .min_by(|a, b| load(&self.threads[*a]).total_cmp(&load(&self.threads[*b])))
            .unwrap_or(0);
        self.add_streams(picked, 1);
        picked
    }

    /// Records that streams were added to a thread, or removed if negative.
    pub(super) fn add_streams(&mut self, thread: usize, streams: i64) {
        if let Some(load) = self.threads.get_mut(thread) {
            load.added_since += streams;
        }
    }

    /// From which thread to which how many streams should move; `None` when that gains nothing.
    pub(super) fn imbalance(&self) -> Option<(usize, usize, usize)> {
        let each = self.mean_stream_cost();
        let load =
            |index: usize| self.threads[index].busy + self.threads[index].added_since as f64 * each;
        let order = |a: &usize, b: &usize| load(*a).total_cmp(&load(*b));
        let from = (0..self.threads.len()).max_by(order)?;
        let to = (0..self.threads.len()).min_by(order)?;
        let apart = load(from) - load(to);
        if apart < MIN_IMBALANCE || apart < load(from) * MIN_IMBALANCE_RATIO {
            return None;
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "few, and positive"
        )]
        let count = (apart / 2.0 / each) as usize;
        (count > 0).then_some((from, to, count))
    }

    /// The mean cost of a stream.
    #[allow(clippy::cast_precision_loss, reason = "there are not that many")]
    fn mean_stream_cost(&self) -> f64 {
        let busy: f64 = self.threads.iter().map(|load| load.busy).sum();
        let streams: u64 = self.threads.iter().map(|load| load.streams).sum();
        (busy / streams.max(1) as f64).max(MIN_STREAM_COST)
    }
}

const MEASURE_INTERVAL: Span = Span::from_secs(1);

/// Share of a processor: the cost of a stream of 50 packets per second that is received and
/// dropped.
const MIN_STREAM_COST: f64 = 50e-6;

/// As a share of a processor, and of the busier thread's load: a smaller imbalance is not worth a
/// move.
const MIN_IMBALANCE: f64 = 0.05;
const MIN_IMBALANCE_RATIO: f64 = 0.25;

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(cpu_ms: i64, streams: u64) -> UdpStats {
        UdpStats { cpu: Span::from_millis(cpu_ms), streams, ..UdpStats::default() }
    }

    #[test]
    fn streams_added_at_once_are_spread_before_loads_are_known() {
        let mut loads = ThreadLoads::new(4, Instant::ZERO);
        let mut counts = [0; 4];
        (0..1_000).for_each(|_| counts[loads.assign_stream()] += 1);
        assert_eq!(counts, [250; 4]);
    }

    #[test]
    fn new_streams_go_to_the_least_loaded_thread_until_it_is_balanced() {
        let mut loads = ThreadLoads::new(2, Instant::ZERO);
        let now = Instant::ZERO + MEASURE_INTERVAL;
        assert!(loads.is_due(now));
        // One thread has 100 streams that are encoded, the other 300 that are forwarded.
        loads.measure(now, [stats(600, 100), stats(200, 300)].iter());
        assert_eq!(loads.imbalance(), Some((0, 1, 100)));
        let counts = (0..250).fold([0; 2], |mut counts, _| {
            counts[loads.assign_stream()] += 1;
            counts
        });
        assert!(counts[1] >= 200 && counts[0] > 0, "{counts:?}");
    }

    #[test]
    fn a_small_difference_of_load_moves_no_stream() {
        let mut loads = ThreadLoads::new(2, Instant::ZERO);
        loads.measure(Instant::ZERO + MEASURE_INTERVAL, [stats(30, 100), stats(2, 0)].iter());
        assert_eq!(loads.imbalance(), None);
        loads.measure(
            Instant::ZERO + MEASURE_INTERVAL * 2,
            [stats(530, 100), stats(412, 100)].iter(),
        );
        assert_eq!(loads.imbalance(), None);
    }
}
