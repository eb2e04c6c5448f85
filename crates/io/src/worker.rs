//! The threads that run stations.
//!
//! A worker reads the clock, lets each of its stations do what is due, and sleeps until the
//! earliest deadline. It wakes no other thread: the reactors take chunks on their own timers.

use std::fmt;
use std::io;
use std::thread::JoinHandle;

use aulos_core::{Instant, Span};
use aulos_engine::station::Station;
use aulos_rt::channel::{Receiver, Sender, TryRecvError, bounded};
use aulos_rt::clock::ThreadPriority;
use aulos_rt::{DropCollector, DropQueue, drop_queue};

use crate::SystemClock;

/// A fixed number of threads that share the stations.
pub struct Workers {
    threads: Vec<Thread>,
    next: usize,
}

struct Thread {
    commands: Sender<WorkerCommand>,
    /// Removed stations come back here, so that the worker does not free them.
    removed: DropCollector<Box<Station>>,
    handle: JoinHandle<()>,
}

/// Identifies a running station and its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerTaskId {
    thread: usize,
    number: u64,
}

enum WorkerCommand {
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
            let (commands, ordered) = bounded(MAX_COMMANDS);
            let (bin, removed) = drop_queue(MAX_REMOVED);
            let name = format!("aulos-station-{index}");
            let handle = std::thread::Builder::new().name(name).spawn(|| work(ordered, bin))?;
            workers.threads.push(Thread { commands, removed, handle });
        }
        Ok(workers)
    }

    /// Runs a station on one of the workers, assigned in turn. Blocks only when that
    /// worker is thousands of commands behind.
    pub fn add(&mut self, station: Station) -> WorkerTaskId {
        self.next += 1;
        let task =
            WorkerTaskId { thread: self.next % self.threads.len(), number: self.next as u64 };
        // A worker ends only after its sender has been dropped.
        drop(
            self.threads[task.thread]
                .commands
                .send(WorkerCommand::Run(task.number, Box::new(station))),
        );
        task
    }

    /// Frees the stations that were removed and have ended, and the feeders that fill them.
    pub fn free_removed(&mut self) {
        for thread in &mut self.threads {
            thread.removed.collect();
        }
    }

    /// Stops a station within one step; [`Self::free_removed`] frees it. Blocks as [`Self::add`]
    /// does.
    pub fn remove(&mut self, task: WorkerTaskId) {
        if let Some(thread) = self.threads.get(task.thread) {
            drop(thread.commands.send(WorkerCommand::End(task.number)));
        }
    }

    /// Ends every thread within a step.
    pub fn stop(&mut self) {
        for Thread { commands, removed: _removed, handle } in self.threads.drain(..) {
            drop(commands);
            // The panic message of the worker is already on standard error.
            drop(handle.join());
        }
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

fn work(mut commands: Receiver<WorkerCommand>, mut bin: DropQueue<Box<Station>>) {
    // Without permission for real-time scheduling the thread runs at normal priority. A station
    // that is late then sends what it missed; clients buffer far more than a scheduler delays.
    let _ = ThreadPriority::Fifo(PRIORITY).request();
    let mut stations: Vec<(u64, Box<Station>)> = Vec::new();
    let mut ended: Vec<Box<Station>> = Vec::with_capacity(MAX_REMOVED);
    loop {
        match commands.try_recv() {
            Ok(WorkerCommand::Run(number, station)) => stations.push((number, station)),
            Ok(WorkerCommand::End(number)) => {
                if let Some(at) = stations.iter().position(|(other, _)| *other == number) {
                    ended.push(stations.swap_remove(at).1);
                }
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Closed) => return,
        }
        // At most one station ends per step. If the drop queue is full, it waits for a later step.
        if let Some(Err(station)) = ended.pop().map(|station| bin.discard(station)) {
            ended.push(station);
        }
        let now = SystemClock::now();
        // One reading of the clock more for each station that was due, and none for the others.
        let mut last = now;
        for (_, station) in &mut stations {
            if station.poll_timeout() <= now {
                station.handle_timeout(now);
                let done = SystemClock::now();
                station.record_step(done - last);
                last = done;
            }
        }
        let idle = last + IDLE;
        let next =
            stations.iter().map(|(_, station)| station.poll_timeout()).fold(idle, Instant::min);
        SystemClock::sleep_until(next);
    }
}

/// Above everything that is not real-time, below the threads that drive sound cards.
const PRIORITY: u8 = 10;

/// Commands that wait for a worker, which takes one per step: four for each possible station.
const MAX_COMMANDS: usize = 4_096;

/// Stations that wait to be freed.
const MAX_REMOVED: usize = 64;

/// How long a worker without a deadline sleeps between two checks of its commands.
const IDLE: Span = Span::from_millis(50);

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::thread::{self, ThreadId};

    use aulos_core::{Block, Codec, SampleSpec};
    use aulos_engine::encode::make_encoder;
    use aulos_engine::input::{Input, InputConfig};
    use aulos_engine::rendition::Rendition;
    use aulos_engine::source::{Pacing, PullResult, Source};
    use aulos_engine::station::{Station, StationConfig};
    use aulos_engine::switch::SwitchConfig;

    use super::*;

    /// Counts drops on the creating thread and on other threads.
    #[derive(Clone)]
    struct DropCounter {
        here: Arc<AtomicUsize>,
        elsewhere: Arc<AtomicUsize>,
    }

    struct Silent(DropCounter, ThreadId);

    impl Source for Silent {
        fn pull(&mut self, _: Instant, _: &mut Block) -> PullResult {
            PullResult::Pending
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

    fn station(drops: &DropCounter) -> Station {
        let spec = SampleSpec::DEFAULT;
        let quantum = spec.rate.frames(Span::from_millis(5));
        let source = Box::new(Silent(drops.clone(), thread::current().id()));
        let input = Input::new(source, spec.rate, spec.layout, InputConfig::default());
        let config =
            StationConfig { quantum, switch: SwitchConfig::default(), crossfade: Span::ZERO };
        let now = SystemClock::now();
        let encoder = make_encoder(Codec::Pcm, spec, quantum).unwrap();
        let pool = aulos_rt::Pool::new(2, Vec::new);
        let main = Rendition::new(encoder, pool, vec![], |_, _, _, _| 0);
        Station::new(config, now, [input].into(), main).0
    }

    #[test]
    fn removed_values_are_freed_at_the_next_cleanup() {
        let drops = DropCounter { here: Arc::default(), elsewhere: Arc::default() };
        let mut workers = Workers::start(1).unwrap();
        let many = MAX_REMOVED + 3;
        let places: Vec<_> = (0..many).map(|_| workers.add(station(&drops))).collect();
        places.into_iter().for_each(|task| workers.remove(task));
        while workers.threads[0].commands.free() < MAX_COMMANDS {
            SystemClock::sleep_until(SystemClock::now() + Span::from_millis(1));
        }
        assert_eq!(drops.here.load(SeqCst), 0);
        while drops.here.load(SeqCst) + drops.elsewhere.load(SeqCst) < many {
            workers.free_removed();
            SystemClock::sleep_until(SystemClock::now() + Span::from_millis(1));
        }
        workers.stop();
        assert_eq!(drops.elsewhere.load(SeqCst), 0);
    }
}
