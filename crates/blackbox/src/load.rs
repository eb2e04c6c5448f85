//! Many clients on one thread, at low cost, because the load generator shares the machine with the
//! server.
//!
//! One epoll, one buffer, and only the beginning of each message is parsed. A thread per client was
//! the alternative; five hundred of them would measure the scheduler.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::client::{ClockOffset, ListenerClient, ListenerStats, clock_us};

/// Parameters of a load test.
#[derive(Clone, Copy, Debug)]
pub struct LoadTest {
    /// The stream port.
    pub server: SocketAddr,
    /// Number of clients.
    pub clients: usize,
    /// Time after the last connect in which history arrives, and delays are not counted.
    pub settle: Duration,
    /// Duration of the measurement after that.
    pub listen: Duration,
}

/// Boundary of the measurement, for reading the server's resource usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadPhase {
    /// The settling time is over.
    Begin,
    /// The measurement is over; the clients are still connected.
    End,
}

/// Results of a load test.
#[derive(Debug)]
pub struct LoadReport {
    /// Statistics of each client.
    pub listeners: Vec<ListenerStats>,
    /// Chunks that arrived during the measurement, all clients together.
    pub chunks: u64,
    /// Duration of the measurement.
    pub elapsed: Duration,
    /// Arrival minus timestamp on the server's clock, microseconds, sorted.
    pub delays: Vec<i64>,
    /// Server's clock minus ours: from the fastest reply of all.
    pub reference: Option<ClockOffset>,
    /// CPU time of this thread during the measurement, microseconds.
    pub own_cpu_us: i64,
}

impl LoadTest {
    /// Connects all clients, receives, and reports; `mark` is called at both boundaries.
    ///
    /// # Errors
    /// If the server cannot be reached or a system call fails.
    pub fn run(self, mut mark: impl FnMut(LoadPhase)) -> io::Result<LoadReport> {
        raise_file_limit()?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut pool = ListenerPool {
            clients: Vec::with_capacity(self.clients),
            buffer: vec![0; 256 * 1024],
            arrivals: None,
            asked: 0,
            asking_since: Instant::now(),
            at_once: HISTORY_AT_ONCE,
            turn: 0,
            gone: vec![],
        };
        let mut events = Vec::with_capacity(1024);
        // Connecting can block, so another thread does it; connected clients are served meanwhile.
        let (send, connected) = channel();
        let connecting = std::thread::spawn(move || {
            (0..self.clients).all(|id| send.send(ListenerClient::connect(self.server, id)).is_ok())
        });
        while pool.clients.len() < self.clients {
            // All at once: a connected client that waits here would get its first chunk late, which
            // is not the server's fault.
            for client in connected.try_iter() {
                let client = client?;
                let data = EventData::new_u64(pool.clients.len() as u64);
                epoll::add(&epoll, client.socket(), data, EventFlags::IN)?;
                pool.clients.push(client);
            }
            pool.step(&epoll, &mut events, Duration::from_micros(100))?;
        }
        drop(connecting.join());
        pool.at_once = usize::MAX;
        pool.asking_since = Instant::now();
        pool.listen(&epoll, &mut events, self.settle)?;
        pool.arrivals = Some(Vec::with_capacity(self.clients * 64));
        let (before, cpu_before) = (pool.chunks(), thread_cpu_us());
        let start = Instant::now();
        mark(LoadPhase::Begin);
        pool.listen(&epoll, &mut events, self.listen)?;
        mark(LoadPhase::End);
        let elapsed = start.elapsed();
        let (chunks, own_cpu_us) = (pool.chunks() - before, thread_cpu_us() - cpu_before);
        Ok(pool.report(chunks, elapsed, own_cpu_us))
    }
}

/// See [`ListenerPool::at_once`]: some ten microseconds each.
const HISTORY_AT_ONCE: usize = 2;

#[derive(Debug)]
struct ListenerPool {
    clients: Vec<ListenerClient>,
    buffer: Vec<u8>,
    /// Arrival and timestamp of each chunk, after the settling time.
    arrivals: Option<Vec<(i64, i64)>>,
    /// Time requests so far; the n-th is due n/clients seconds after the first.
    asked: u64,
    asking_since: Instant,
    /// Number of clients with a first chunk that are read between two checks of those without, and
    /// the next of them.
    at_once: usize,
    turn: usize,
    /// Clients whose connection the server has just closed.
    gone: Vec<usize>,
}

impl ListenerPool {
    fn listen(
        &mut self,
        epoll: &impl std::os::fd::AsFd,
        events: &mut Vec<epoll::Event>,
        time: Duration,
    ) -> io::Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.step(epoll, events, Duration::from_millis(5))?;
            self.request_times();
        }
        Ok(())
    }

    fn step(
        &mut self,
        epoll: &impl std::os::fd::AsFd,
        events: &mut Vec<epoll::Event>,
        wait: Duration,
    ) -> io::Result<()> {
        events.clear();
        let wait = rustix::time::Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
        match epoll::wait(epoll, rustix::buffer::spare_capacity(events), Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let id = |event: &epoll::Event| usize::try_from({ event.data }.u64()).unwrap_or(usize::MAX);
        // While clients connect, a hundred megabytes of history would otherwise be read before some
        // first chunks.
        events.retain(|event| {
            let new = self.clients.get(id(event)).is_some_and(|c| c.stats.first_chunk_us.is_none());
            if new {
                self.read(id(event));
            }
            !new
        });
        let from = self.turn % events.len().max(1);
        for event in events[from..].iter().chain(&events[..from]).take(self.at_once) {
            self.read(id(event));
        }
        self.turn = from.wrapping_add(self.at_once);
        while let Some(gone) = self.gone.pop() {
            epoll::delete(epoll, self.clients[gone].socket())?;
        }
        Ok(())
    }

    fn read(&mut self, id: usize) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let arrivals = &mut self.arrivals;
        client.read(&mut self.buffer, &mut |now, stamp| {
            if let Some(arrivals) = arrivals {
                arrivals.push((now, stamp));
            }
        });
        if client.stats.cut {
            self.gone.push(id);
        }
    }

    /// Sends the Time requests that are due: one per client and second, evenly spread.
    fn request_times(&mut self) {
        let count = self.clients.len() as u64;
        let due = self.asking_since.elapsed().as_micros() * u128::from(count) / 1_000_000;
        while u128::from(self.asked) <= due {
            if let Ok(turn) = usize::try_from(self.asked % count.max(1))
                && let Some(client) = self.clients.get_mut(turn)
            {
                client.request_time();
            }
            self.asked += 1;
        }
    }

    fn chunks(&self) -> u64 {
        self.clients.iter().map(|client| client.stats.chunks).sum()
    }

    fn report(self, chunks: u64, elapsed: Duration, own_cpu_us: i64) -> LoadReport {
        let heard: Vec<ListenerStats> =
            self.clients.into_iter().map(|client| client.stats).collect();
        let reference = heard.iter().flat_map(|h| &h.offsets).min_by_key(|o| o.round_trip).copied();
        let offset = reference.map_or(0, |o| o.offset);
        let mut delays: Vec<i64> = self
            .arrivals
            .into_iter()
            .flatten()
            .map(|(arrived, stamp)| arrived + offset - stamp)
            .collect();
        delays.sort_unstable();
        LoadReport { listeners: heard, chunks, elapsed, delays, reference, own_cpu_us }
    }
}

impl LoadReport {
    /// Gaps of all clients.
    #[must_use]
    pub fn gaps(&self) -> u64 {
        self.listeners.iter().map(|h| h.gaps).sum()
    }

    /// Number of clients that the server has disconnected.
    #[must_use]
    pub fn cut(&self) -> usize {
        self.listeners.iter().filter(|h| h.cut).count()
    }

    /// Clock error of each client, microseconds, sorted: the median of its computed offsets (as in
    /// snapclient) compared with the reference.
    #[must_use]
    pub fn clock_errors(&self) -> Vec<i64> {
        let reference = self.reference.map_or(0, |o| o.offset);
        let mut errors: Vec<i64> = self
            .listeners
            .iter()
            .filter_map(|h| {
                let mut offsets: Vec<i64> = h.offsets.iter().map(|o| o.offset).collect();
                offsets.sort_unstable();
                Some((offsets.get(offsets.len() / 2)? - reference).abs())
            })
            .collect();
        errors.sort_unstable();
        errors
    }

    /// The results as a JSON object, times in microseconds.
    #[must_use]
    pub fn json(&self) -> Value {
        let spread = |sorted: &[i64]| json!({ "p50": percentile(sorted, 50), "p99": percentile(sorted, 99), "max": sorted.last() });
        let mut first: Vec<i64> = self.listeners.iter().filter_map(|h| h.first_chunk_us).collect();
        first.sort_unstable();
        let mut connects: Vec<i64> = self.listeners.iter().map(|h| h.connect_us).collect();
        connects.sort_unstable();
        let sum = |f: fn(&ListenerStats) -> u64| self.listeners.iter().map(f).sum::<u64>();
        let silent = self.listeners.iter().filter(|h| h.chunks == 0).count();
        json!({
            "clients": self.listeners.len(),
            "codec": self.listeners.first().map(|h| h.codec),
            "seconds": self.elapsed.as_secs_f64(),
            "chunks": self.chunks,
            "bytes": sum(|h| h.bytes),
            "gaps": self.gaps(),
            "largest_gap_us": self.listeners.iter().map(|h| h.largest_gap_us).max_by_key(|g| g.abs()),
            "early": sum(|h| h.early),
            "strange": sum(|h| h.strange),
            "silent": silent,
            "cut": self.cut(),
            "delay_us": spread(&self.delays),
            "connect_us": spread(&connects),
            "first_chunk_us": spread(&first),
            "clock_error_us": spread(&self.clock_errors()),
            "clock_offset_us": self.reference.map(|o| o.offset),
            "round_trip_us": self.reference.map(|o| o.round_trip),
            "time_unanswered": sum(|h| h.unanswered),
            "own_cpu_us": self.own_cpu_us,
        })
    }
}

/// The value below which `percent` of the sorted values lie.
#[must_use]
pub fn percentile(sorted: &[i64], percent: usize) -> Option<i64> {
    sorted.get(sorted.len() * percent / 100).or_else(|| sorted.last()).copied()
}

/// Time until a moment on [`clock_us`]; for callers that pace by it.
#[must_use]
pub fn time_until(moment_us: i64) -> Duration {
    Duration::from_micros(u64::try_from(moment_us - clock_us()).unwrap_or(0))
}

fn thread_cpu_us() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}

pub(crate) fn raise_file_limit() -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}
