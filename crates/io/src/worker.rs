//! The threads on which stations run.
//!
//! A station is a machine; its worker reads the clock, lets it render what is due and sleeps until
//! the next deadline of any of its stations. It wakes nobody: the reactors come for the chunks by
//! their own timers.

use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use aulos_core::{Instant, Span};
use aulos_engine::station::Station;
use aulos_rt::clock::Urgency;

use crate::SystemClock;

/// A fixed number of threads, over which stations are spread.
pub struct Workers {
    threads: Vec<(Sender<Order>, JoinHandle<()>)>,
    next: usize,
    /// Stations that were removed come back here: to free them is not a worker's business.
    removed: (Sender<Box<Station>>, Receiver<Box<Station>>),
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
        let mut workers = Self { threads: Vec::new(), next: 0, removed: channel() };
        for index in 0..threads.max(1) {
            let (sender, receiver) = channel();
            let name = format!("aulos-station-{index}");
            let removed = workers.removed.0.clone();
            let thread =
                std::thread::Builder::new().name(name).spawn(move || work(&receiver, &removed))?;
            workers.threads.push((sender, thread));
        }
        Ok(workers)
    }

    /// Runs `station` on one of the workers, each in its turn.
    pub fn add(&mut self, station: Station) -> Place {
        self.next += 1;
        let place = Place { thread: self.next % self.threads.len(), number: self.next as u64 };
        // A worker ends only after its sender has.
        drop(self.threads[place.thread].0.send(Order::Run(place.number, Box::new(station))));
        place
    }

    /// Frees the stations that were removed and have ended; with them end the feeders that fill them.
    pub fn tidy(&mut self) {
        self.removed.1.try_iter().for_each(drop);
    }

    /// Runs a station no longer; it ends within a step, and [`Self::tidy`] frees it.
    pub fn remove(&mut self, place: Place) {
        if let Some((orders, _)) = self.threads.get(place.thread) {
            drop(orders.send(Order::End(place.number)));
        }
    }

    /// Ends every thread within a step.
    pub fn stop(&mut self) {
        for (sender, thread) in self.threads.drain(..) {
            drop(sender);
            // A worker that panicked has already said so on standard error.
            drop(thread.join());
        }
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

fn work(orders: &Receiver<Order>, removed: &Sender<Box<Station>>) {
    // Where the system does not grant it the thread runs as any other, and a station that comes
    // too late for it sends what it missed: clients buffer far more than a scheduler delays.
    let _ = Urgency::Fifo(PRIORITY).request();
    let mut stations: Vec<(u64, Box<Station>)> = Vec::new();
    loop {
        match orders.try_recv() {
            Ok(Order::Run(number, station)) => stations.push((number, station)),
            Ok(Order::End(number)) => {
                if let Some(at) = stations.iter().position(|(other, _)| *other == number) {
                    drop(removed.send(stations.swap_remove(at).1));
                }
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return,
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

/// How long a worker without a deadline sleeps before it looks for new stations.
const IDLE: Span = Span::from_millis(50);
