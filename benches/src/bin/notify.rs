//! How late does a watcher learn what a callback announced, and what does that cost the callback?
//!
//! A callback every 5.333 ms (256 frames at 48 kHz) with 30 us of work raises one announcement at a
//! random moment of its work. Latency: until the watcher holds it. Cost: on the announcing thread,
//! one clock read included; beside it the cost of `begin`, and of that clock read alone. CPU: of the
//! watcher. Both threads real-time where the system grants it (the first line tells). The run with
//! the lowest mean of `reps=` runs of `ms=` milliseconds counts, methods interleaved; the costs are
//! those of the run with the lowest p99.
//! Bad would be: an announcement above 50 ns, a phase-locked watcher above a 25th of a 5 ms poll.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::time::Duration;

use aulos_benches::{Row, argument, report};
use aulos_rt::clock::{ThreadPriority, now};
use aulos_rt::notify::{Dispatcher, PollStrategy};

const PERIOD: u64 = 5_333_333;
const WORK: u64 = 30_000;

fn main() {
    let (reps, millis) = (argument("reps", 5), argument("ms", 1000));
    let granted =
        std::thread::spawn(|| ThreadPriority::Fifo(50).request()).join().expect("no panic");
    match granted {
        Ok(()) => println!("real-time scheduling: granted"),
        Err(refused) => println!("real-time scheduling: {refused}"),
    }
    let mut best: Vec<Option<Outcome>> = METHODS.iter().map(|_| None).collect();
    for _ in 0..reps {
        for ((_, method), best) in METHODS.iter().zip(&mut best) {
            let outcome = method(millis as u64 * 1_000_000 / PERIOD);
            match best {
                Some(best) => best.improve(outcome),
                None => *best = Some(outcome),
            }
        }
    }
    let mut outcomes: Vec<Outcome> = best.into_iter().map(|best| best.expect("one run")).collect();
    println!(
        "{:14} {:>9} {:>9} {:>9} {:>9} | {:>8} {:>8} {:>8} {:>8} | {:>7}",
        "method", "mean us", "p50", "p99", "max", "cost ns", "p99 ns", "begin", "clock", "cpu %"
    );
    for ((name, _), outcome) in METHODS.iter().zip(&mut outcomes) {
        outcome.print(name);
    }
    let [ours, polled, _, _, flag, ..] = &outcomes[..] else { unreachable!("there are ten") };
    let mut rows = vec![
        Row::against(
            "notify",
            "mean latency us, phase-locked / 5 ms poll".into(),
            ours.mean(),
            polled.mean(),
            Some(0.04),
        ),
        Row::limit("notify", "mean latency us, phase-locked".into(), ours.mean(), 80.0),
        Row::limit("notify", "p99 latency us, phase-locked".into(), ours.latency(99), 250.0),
        Row::limit("notify", "cost ns p99, clock read included".into(), ours.cost(99), 50.0),
        Row::against(
            "notify",
            "cost ns p99 / a bare flag".into(),
            ours.cost(99),
            flag.cost(99),
            None,
        ),
        Row::figure("notify", "that clock read alone, ns p99".into(), quantile(&ours.clocks, 99)),
        Row::figure(
            "notify",
            "prefetch() of a callback, ns p99".into(),
            quantile(&ours.begins, 99),
        ),
        Row::limit("notify", "dispatcher cpu %, phase-locked".into(), ours.cpu, 0.6),
    ];
    for ((name, _), outcome) in METHODS.iter().zip(&outcomes).skip(1) {
        let case = format!("mean latency us, phase-locked / {name}");
        rows.push(Row::against("notify", case, ours.mean(), outcome.mean(), None));
    }
    report(&rows);
}

type Method = fn(u64) -> Outcome;

const METHODS: [(&str, Method); 10] = [
    ("phase-locked", |n| dispatched(n, PollStrategy::PhaseLocked, false)),
    ("poll 5 ms", |n| dispatched(n, PollStrategy::HighResolution, false)),
    ("poll 40 ms", |n| dispatched(n, PollStrategy::Timer, false)),
    ("event (ours)", |n| dispatched(n, PollStrategy::Event, true)),
    ("flag, 5 ms", |n| peer(n, &Flag::default())),
    ("futex", |n| peer(n, &Futex::default())),
    ("eventfd", |n| peer(n, &EventFd::new())),
    ("sem_post", |n| peer(n, &Semaphore::new())),
    ("condvar", |n| peer(n, &Signal::default())),
    ("spin, yield", |n| peer(n, &Spin::default())),
];

/// What a run has measured, in nanoseconds.
struct Outcome {
    latencies: Vec<u64>,
    /// Of an announcement, with the clock read that measures it.
    costs: Vec<u64>,
    /// Of what a callback does first, with the same clock read.
    begins: Vec<u64>,
    /// Of that clock read alone, at the same moment.
    clocks: Vec<u64>,
    /// Percent of one core.
    cpu: f64,
}

impl Outcome {
    fn new(mut latencies: Vec<u64>, times: [Vec<u64>; 3], cpu: f64) -> Self {
        latencies.sort_unstable();
        let [costs, begins, clocks] = times.map(|mut times| {
            times.sort_unstable();
            times
        });
        Self { latencies, costs, begins, clocks, cpu }
    }

    /// Takes what is better in another run: the latencies and the costs are looked at apart.
    fn improve(&mut self, other: Self) {
        if other.cost(99) < self.cost(99) {
            (self.costs, self.begins, self.clocks) = (other.costs, other.begins, other.clocks);
        }
        if quantile(&other.latencies, 100) > 0.0 && mean(&other.latencies) < mean(&self.latencies) {
            (self.latencies, self.cpu) = (other.latencies, other.cpu);
        }
    }

    /// In microseconds.
    fn mean(&self) -> f64 {
        mean(&self.latencies) / 1000.0
    }

    fn latency(&self, percent: usize) -> f64 {
        quantile(&self.latencies, percent) / 1000.0
    }

    /// In nanoseconds.
    fn cost(&self, percent: usize) -> f64 {
        quantile(&self.costs, percent)
    }

    fn print(&self, name: &str) {
        let mean_cost = mean(&self.costs);
        println!(
            "{name:14} {:9.1} {:9.1} {:9.1} {:9.1} | {mean_cost:8.0} {:8.0} {:8.0} {:8.0} | {:7.2}",
            self.mean(),
            self.latency(50),
            self.latency(99),
            self.latency(100),
            self.cost(99),
            quantile(&self.begins, 99),
            quantile(&self.clocks, 99),
            self.cpu
        );
    }
}

fn mean(times: &[u64]) -> f64 {
    times.iter().sum::<u64>() as f64 / times.len().max(1) as f64
}

fn quantile(sorted: &[u64], percent: usize) -> f64 {
    sorted
        .get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1)))
        .map_or(0.0, |&v| v as f64)
}

fn sleep_until(at: u64) {
    std::thread::sleep(Duration::from_nanos(at.saturating_sub(now())));
}

fn urgent(priority: u8) {
    let _ = ThreadPriority::Fifo(priority).request();
}

fn cpu_of_this_thread() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one time.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What a callback asks of the way to notify.
#[derive(Clone, Copy)]
enum Act {
    Begin,
    Announce,
    End(u64),
}

/// Nanoseconds of an act, with the clock read that measures them. Not inlined: begin and announcement
/// run this very code, so that its own cache misses are not counted (they are some 100 ns where it is
/// run once per callback, whatever is measured).
#[inline(never)]
fn timed(act: &mut impl FnMut(Act), what: Act) -> u64 {
    let before = now();
    act(what);
    now() - before
}

/// The callback thread: raises one announcement per callback, unless the last one still waits, and
/// gives what announcing cost, what the begin cost, and what the clock alone costs.
fn callbacks(count: u64, raised: &AtomicU64, mut act: impl FnMut(Act)) -> [Vec<u64>; 3] {
    urgent(50);
    let [mut costs, mut begins, mut clocks] = [const { Vec::new() }; 3];
    for times in [&mut costs, &mut begins, &mut clocks] {
        times.resize(count as usize, 1);
        times.clear();
    }
    let mut random = 88_172_645_463_325_252_u64;
    let first = now() + 2_000_000;
    let mut nothing = |_| ();
    for i in 0..count {
        sleep_until(first + i * PERIOD);
        let begun = now();
        begins.push(timed(&mut act, Act::Begin));
        timed(&mut nothing, Act::Begin);
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        while now() - begun < random % WORK {
            spin_loop();
        }
        if raised.load(Ordering::Relaxed) == 0 {
            raised.store(now(), Ordering::Relaxed);
            costs.push(timed(&mut act, Act::Announce));
        }
        while now() - begun < WORK {
            spin_loop();
        }
        clocks.push(timed(&mut nothing, Act::Announce));
        act(Act::End(now()));
    }
    std::thread::sleep(Duration::from_millis(60));
    [costs, begins, clocks]
}

/// Takes the time of an announcement that is held now.
fn hold(raised: &AtomicU64, latencies: &mut Vec<u64>) {
    let at = raised.swap(0, Ordering::Relaxed);
    if at != 0 {
        latencies.push(now() - at);
    }
}

fn dispatched(count: u64, strategy: PollStrategy, wake: bool) -> Outcome {
    let raised = Arc::new(AtomicU64::new(0));
    let latencies = Arc::new(Mutex::new(Vec::with_capacity(count as usize)));
    let (stamp, list) = (Arc::clone(&raised), Arc::clone(&latencies));
    let mut dispatcher: Dispatcher = Dispatcher::new(strategy);
    let target = dispatcher
        .on(Box::new(move || hold(&stamp, &mut list.lock().expect("no panic"))))
        .expect("room");
    let notifier = dispatcher.notifier(Some(Duration::from_nanos(PERIOD))).expect("room");
    let (stop, ready) = (dispatcher.stop_handle(), &Barrier::new(2));
    std::thread::scope(|scope| {
        let watcher = scope.spawn(move || {
            urgent(40);
            ready.wait();
            let (from, cpu) = (now(), cpu_of_this_thread());
            dispatcher.run();
            (cpu_of_this_thread() - cpu) as f64 / (now() - from) as f64 * 100.0
        });
        let raised = &raised;
        let mut line = notifier;
        let caller = scope.spawn(move || {
            ready.wait();
            callbacks(count, raised, move |act| {
                // No jump table: it would be one more thing to fetch.
                if let Act::End(at) = act {
                    line.callback_ended(at);
                } else if let Act::Announce = act {
                    line.notify(target);
                    if wake {
                        line.wake();
                    }
                } else {
                    line.prefetch();
                }
            })
        });
        let times = caller.join().expect("no panic");
        stop.stop();
        let cpu = watcher.join().expect("no panic");
        Outcome::new(std::mem::take(&mut latencies.lock().expect("no panic")), times, cpu)
    })
}

/// A way to wake somebody, for comparison.
trait Wake: Sync {
    /// Whether its watcher may have a real-time class: not if it never sleeps.
    const SLEEPS: bool = true;
    fn wake(&self);
    fn wait(&self);
}

fn peer<W: Wake>(count: u64, way: &W) -> Outcome {
    let (raised, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let (raised, stop, ready) = (&raised, &stop, &Barrier::new(2));
    std::thread::scope(|scope| {
        let watcher = scope.spawn(move || {
            if W::SLEEPS {
                urgent(40);
            }
            ready.wait();
            let (from, cpu) = (now(), cpu_of_this_thread());
            let mut latencies = Vec::with_capacity(count as usize);
            while !stop.load(Ordering::Relaxed) {
                way.wait();
                hold(raised, &mut latencies);
            }
            (latencies, (cpu_of_this_thread() - cpu) as f64 / (now() - from) as f64 * 100.0)
        });
        let caller = scope.spawn(move || {
            ready.wait();
            callbacks(count, raised, move |act| {
                if let Act::Announce = act {
                    way.wake();
                }
            })
        });
        let times = caller.join().expect("no panic");
        stop.store(true, Ordering::Relaxed);
        way.wake();
        let (latencies, cpu) = watcher.join().expect("no panic");
        Outcome::new(latencies, times, cpu)
    })
}

/// The cheapest announcement that there is, and a watcher that looks now and then.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn wait(&self) {
        while !self.0.swap(false, Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[derive(Default)]
struct Futex(AtomicU32);

impl Wake for Futex {
    fn wake(&self) {
        self.0.store(1, Ordering::Release);
        // SAFETY: the kernel uses the address as a name.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                1,
            )
        };
    }

    fn wait(&self) {
        while self.0.swap(0, Ordering::Acquire) == 0 {
            // SAFETY: the word lives during the call.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.0.as_ptr(),
                    libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                    0,
                    std::ptr::null::<libc::timespec>(),
                )
            };
        }
    }
}

struct EventFd(i32);

impl EventFd {
    fn new() -> Self {
        // SAFETY: a plain request.
        Self(unsafe { libc::eventfd(0, 0) })
    }
}

impl Wake for EventFd {
    fn wake(&self) {
        let one = 1_u64;
        // SAFETY: eight bytes are there.
        unsafe { libc::write(self.0, (&raw const one).cast(), 8) };
    }

    fn wait(&self) {
        let mut count = 0_u64;
        // SAFETY: eight bytes are there.
        unsafe { libc::read(self.0, (&raw mut count).cast(), 8) };
    }
}

impl Drop for EventFd {
    fn drop(&mut self) {
        // SAFETY: it is ours.
        unsafe { libc::close(self.0) };
    }
}

struct Semaphore(Box<std::cell::UnsafeCell<libc::sem_t>>);

// SAFETY: a semaphore is made for several threads.
unsafe impl Sync for Semaphore {}

impl Semaphore {
    fn new() -> Self {
        // SAFETY: all zero is memory for a semaphore, which is made before use.
        let cell = Box::new(std::cell::UnsafeCell::new(unsafe { std::mem::zeroed() }));
        // SAFETY: as above.
        unsafe { libc::sem_init(cell.get(), 0, 0) };
        Self(cell)
    }
}

impl Wake for Semaphore {
    fn wake(&self) {
        // SAFETY: made by `new`.
        unsafe { libc::sem_post(self.0.get()) };
    }

    fn wait(&self) {
        // SAFETY: made by `new`.
        unsafe { libc::sem_wait(self.0.get()) };
    }
}

#[derive(Default)]
struct Signal(Mutex<bool>, Condvar);

impl Wake for Signal {
    fn wake(&self) {
        *self.0.lock().expect("no panic") = true;
        self.1.notify_one();
    }

    fn wait(&self) {
        let set = self.0.lock().expect("no panic");
        *self.1.wait_while(set, |set| !*set).expect("no panic") = false;
    }
}

#[derive(Default)]
struct Spin(AtomicBool);

impl Wake for Spin {
    const SLEEPS: bool = false;

    fn wake(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn wait(&self) {
        while !self.0.swap(false, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
}
