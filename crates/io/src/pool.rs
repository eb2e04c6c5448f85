//! Threads for blocking work such as decoding files.
//!
//! A decoder reads from disk and may block for an unbounded time, so it never runs on a station's
//! thread. It fills a ring that holds more than a second. The pool's thread visits each job several
//! times a second, so the station need not wake it.

use std::fmt;
use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use aulos_rt::channel::{Receiver, TryRecvError, UnboundedSender, unbounded};

type JobThread = (UnboundedSender<Box<dyn Job>>, JoinHandle<()>);

/// Work that proceeds in small steps.
pub trait Job: Send {
    /// Does the work that is possible now, waiting for nothing but the disk.
    fn step(&mut self) -> JobStatus;
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobStatus {
    /// More work remains for when the station has consumed what is there.
    Pending,
    /// The job is complete.
    Done,
}

/// A fixed number of threads that share the jobs.
pub struct CodecPool {
    threads: Vec<JobThread>,
    next: usize,
}

impl CodecPool {
    /// Starts `threads` threads.
    ///
    /// # Errors
    /// When the system gives no more threads.
    pub fn start(threads: usize) -> io::Result<Self> {
        let mut pool = Self { threads: Vec::new(), next: 0 };
        for index in 0..threads.max(1) {
            let (sender, jobs) = unbounded();
            let name = format!("aulos-codec-{index}");
            let thread = std::thread::Builder::new().name(name).spawn(move || run_jobs(jobs))?;
            pool.threads.push((sender, thread));
        }
        Ok(pool)
    }

    /// Runs `job` until it is done.
    pub fn add(&mut self, job: Box<dyn Job>) {
        self.next = (self.next + 1) % self.threads.len();
        // A thread ends only after its sender has been dropped.
        drop(self.threads[self.next].0.send(job));
    }

    /// Ends every thread after its current step.
    pub fn stop(&mut self) {
        for (sender, thread) in self.threads.drain(..) {
            drop(sender);
            // The panic message of the thread is already on standard error.
            drop(thread.join());
        }
    }
}

impl fmt::Debug for CodecPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CodecPool").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

fn run_jobs(mut arrivals: Receiver<Box<dyn Job>>) {
    let mut jobs: Vec<Box<dyn Job>> = Vec::new();
    loop {
        let arrival = if jobs.is_empty() {
            arrivals.recv().ok_or(TryRecvError::Closed)
        } else {
            arrivals.recv_timeout(JOB_INTERVAL)
        };
        match arrival {
            Ok(job) => jobs.push(job),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Closed) => return,
        }
        jobs.retain_mut(|job| job.step() == JobStatus::Pending);
    }
}

/// A tenth of what the rings hold.
const JOB_INTERVAL: Duration = Duration::from_millis(100);
