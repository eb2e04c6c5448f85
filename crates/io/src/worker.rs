//! The threads on which stations run.
//!
//! A station is a machine; its worker reads the clock, lets it render what is due and sleeps until
//! the next deadline of any of its stations. It wakes nobody: the reactors come for the chunks by
//! their own timers.

use std::fmt;
use std::io;
use std::thread::JoinHandle;

use aulos_core::{Instant, Span};
use aulos_engine::station::Station;
use aulos_rt::channel::{Receiver, Sender, TryRecvError, bounded};
use aulos_rt::clock::Urgency;
use aulos_rt::{Bin, Collector, bin};

use crate::SystemClock;

/// A fixed number of threads, over which stations are spread.
pub struct Workers {
    threads: Vec<Thread>,
    next: usize,
}

struct Thread {
    orders: Sender<Order>,
    /// Stations that were removed come back here: to free them is not a worker's business.
    removed: Collector<Box<Station>>,
    handle: JoinHandle<()>,
}

/// Where a station runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    thread: usize,
    number: u64,
}

enum Order {
    Run(u64, Box<Station>),
    End(u64),
}

impl Workers {
    /// Starts `threads` workers.
    ///
    /// # Errors
    /// When the system gives no more threads.
    pub fn start(threads: usize) -> io::Result<Self> {
        let mut workers = Self { threads: Vec::new(), next: 0 };
        for index in 0..threads.max(1) {
            let (orders, ordered) = bounded(MAX_ORDERS);
            let (bin, removed) = bin(MAX_REMOVED);
            let name = format!("aulos-station-{index}");
            let handle = std::thread::Builder::new().name(name).spawn(|| work(ordered, bin))?;
            workers.threads.push(Thread { orders, removed, handle });
        }
        Ok(workers)
    }

    /// Runs `station` on one of the workers, each in its turn. Waits only when that one is thousands
    /// of orders behind.
    pub fn add(&mut self, station: Station) -> Place {
        self.next += 1;
        let place = Place { thread: self.next % self.threads.len(), number: self.next as u64 };
        // A worker ends only after its sender has.
        drop(self.threads[place.thread].orders.send(Order::Run(place.number, Box::new(station))));
        place
    }

    /// Frees the stations that were removed and have ended; with them end the feeders that fill them.
    pub fn tidy(&mut self) {
        for thread in &mut self.threads {
            thread.removed.collect();
        }
    }

    /// Runs a station no longer; it ends within a step, and [`Self::tidy`] frees it. Waits as
    /// [`Self::add`] does.
    pub fn remove(&mut self, place: Place) {
        if let Some(thread) = self.threads.get(place.thread) {
            drop(thread.orders.send(Order::End(place.number)));
        }
    }

    /// Ends every thread within a step.
    pub fn stop(&mut self) {
        for Thread { orders, removed: _removed, handle } in self.threads.drain(..) {
            drop(orders);
            // A worker that panicked has already said so on standard error.
            drop(handle.join());
        }
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

fn work(mut orders: Receiver<Order>, mut bin: Bin<Box<Station>>) {
    // Where the system does not grant it the thread runs as any other, and a station that comes
    // too late for it sends what it missed: clients buffer far more than a scheduler delays.
    let _ = Urgency::Fifo(PRIORITY).request();
    let mut stations: Vec<(u64, Box<Station>)> = Vec::new();
    let mut ended: Vec<Box<Station>> = Vec::with_capacity(MAX_REMOVED);
    loop {
        match orders.try_recv() {
            Ok(Order::Run(number, station)) => stations.push((number, station)),
            Ok(Order::End(number)) => {
                if let Some(at) = stations.iter().position(|(other, _)| *other == number) {
                    ended.push(stations.swap_remove(at).1);
                }
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Closed) => return,
        }
        // At most one comes in a step. What finds no room in the bin waits for a later one.
        if let Some(Err(station)) = ended.pop().map(|station| bin.discard(station)) {
            ended.push(station);
        }
        let now = SystemClock::now();
        for (_, station) in &mut stations {
            if station.poll_timeout() <= now {
                station.handle_timeout(now);
            }
        }
        let idle = SystemClock::now() + IDLE;
        let next =
            stations.iter().map(|(_, station)| station.poll_timeout()).fold(idle, Instant::min);
        SystemClock::sleep_until(next);
    }
}

/// Above everything that is not real-time, below what drives a sound card.
const PRIORITY: u8 = 10;

/// Orders that wait for a worker, which takes one in a step: four for each station there may be.
const MAX_ORDERS: usize = 4_096;

/// Stations that wait to be freed.
const MAX_REMOVED: usize = 64;

/// How long a worker without a deadline sleeps before it looks for new stations.
const IDLE: Span = Span::from_millis(50);

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::thread::{self, ThreadId};

    use aulos_core::{Block, Codec, SampleSpec};
    use aulos_engine::encode::make;
    use aulos_engine::input::{self, Input};
    use aulos_engine::source::{Pacing, Pulled, Source};
    use aulos_engine::station::Config;
    use aulos_engine::status::StationStatus;
    use aulos_engine::switch;

    use super::*;

    /// Counts where it is dropped: on the thread that made it, and elsewhere.
    #[derive(Clone)]
    struct Drops {
        here: Arc<AtomicUsize>,
        elsewhere: Arc<AtomicUsize>,
    }

    struct Silent(Drops, ThreadId);

    impl Source for Silent {
        fn pull(&mut self, _: Instant, _: &mut Block) -> Pulled {
            Pulled::Pending
        }

        fn pacing(&self) -> Pacing {
            Pacing::Live
        }
    }

    impl Drop for Silent {
        fn drop(&mut self) {
            let at_home = thread::current().id() == self.1;
            if at_home { &self.0.here } else { &self.0.elsewhere }.fetch_add(1, SeqCst);
        }
    }

    fn station(drops: &Drops) -> Station {
        let spec = SampleSpec::DEFAULT;
        let quantum = spec.rate.frames(Span::from_millis(5));
        let source = Box::new(Silent(drops.clone(), thread::current().id()));
        let input = Input::new(source, spec.rate, spec.layout, input::Config::default());
        let config = Config {
            quantum,
            switch: switch::Config::default(),
            crossfade: Span::ZERO,
            write_header: |_, _, _, _| 0,
        };
        let now = SystemClock::now();
        let (published, _) = aulos_rt::latest(StationStatus::new(now));
        let encoder = make(Codec::Pcm, spec, quantum).unwrap();
        let pool = aulos_rt::Pool::new(2, Vec::new);
        Station::new(config, now, [input].into(), encoder, pool, vec![], published)
    }

    #[test]
    fn what_is_removed_is_freed_by_whoever_tidies_even_if_late() {
        let drops = Drops { here: Arc::default(), elsewhere: Arc::default() };
        let mut workers = Workers::start(1).unwrap();
        let many = MAX_REMOVED + 3;
        let places: Vec<_> = (0..many).map(|_| workers.add(station(&drops))).collect();
        places.into_iter().for_each(|place| workers.remove(place));
        while workers.threads[0].orders.free() < MAX_ORDERS {
            SystemClock::sleep_until(SystemClock::now() + Span::from_millis(1));
        }
        assert_eq!(drops.here.load(SeqCst), 0);
        while drops.here.load(SeqCst) + drops.elsewhere.load(SeqCst) < many {
            workers.tidy();
            SystemClock::sleep_until(SystemClock::now() + Span::from_millis(1));
        }
        workers.stop();
        assert_eq!(drops.elsewhere.load(SeqCst), 0);
    }
}
