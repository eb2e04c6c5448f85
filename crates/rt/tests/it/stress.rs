//! Both ends on separate processors, both on one, and one of them starved: whatever the scheduler
//! does, every item arrives once, whole and in order. Each case ends after an amount of data or,
//! where other threads hold the processor, after a time; `AULOS_SOAK` makes both long.
#![allow(unsafe_code, reason = "affinity and scheduling class are system calls")]
#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use aulos_rt::clock::{ThreadPriority, now};
use aulos_rt::notify::{Dispatcher, PollStrategy};
use aulos_rt::pipe::{
    BlockingReader, BlockingWriter, EndReason, PipeConfig, PipeReader, PipeWriter, pipe,
};
use aulos_rt::{latest, ring, rt_log};

/// Processor of a thread, and its starvation.
#[derive(Clone, Copy, Debug)]
struct ThreadPlacement {
    processor: usize,
    starved: Starvation,
}

#[derive(Clone, Copy, Debug)]
enum Starvation {
    No,
    /// The lowest priority of a normal thread.
    Nice,
    /// Only idle time.
    Idle,
}

const CASES: [[ThreadPlacement; 2]; 6] = {
    const fn at(processor: usize, starved: Starvation) -> ThreadPlacement {
        ThreadPlacement { processor, starved }
    }
    [
        [at(0, Starvation::No), at(1, Starvation::No)],
        [at(0, Starvation::No), at(0, Starvation::No)],
        [at(0, Starvation::Nice), at(0, Starvation::No)],
        [at(0, Starvation::No), at(0, Starvation::Nice)],
        [at(0, Starvation::Idle), at(1, Starvation::No)],
        [at(0, Starvation::No), at(1, Starvation::Idle)],
    ]
};

impl ThreadPlacement {
    fn take(self) {
        let processors = std::thread::available_parallelism().unwrap().get();
        // SAFETY: all zero is the empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the number is below the size of the set.
        unsafe { libc::CPU_SET(self.processor % processors, &mut set) };
        // SAFETY: 0 means this thread; the kernel reads as much as it is told. Where the processor
        // is not available the thread stays where it is.
        unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
        match self.starved {
            Starvation::No => {}
            Starvation::Nice => ThreadPriority::Nice(19).request().unwrap(),
            Starvation::Idle => {
                let none = libc::sched_param { sched_priority: 0 };
                // SAFETY: as above; this class needs no privilege.
                let refused =
                    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const none) };
                assert_eq!(refused, 0);
            }
        }
    }
}

fn long() -> usize {
    if std::env::var_os("AULOS_SOAK").is_some() { 200 } else { 1 }
}

/// Runs two ends in every case, each on its own thread.
fn everywhere(mut ends: impl FnMut() -> [Box<dyn FnOnce() + Send>; 2]) {
    for case in CASES {
        println!("{case:?}");
        std::thread::scope(|scope| {
            for (end, place) in ends().into_iter().zip(case) {
                scope.spawn(move || {
                    place.take();
                    end();
                });
            }
        });
    }
}

/// How much one end sends: all, or as much as it can until its time is over. A starved end may run
/// once a second, and each run moves no more than the pipe holds.
#[derive(Clone)]
struct Amount {
    most: usize,
    /// On the clock of `aulos_rt::clock::now`, in nanoseconds.
    until: u64,
    sent: Arc<AtomicUsize>,
}

impl Amount {
    fn new(most: usize) -> Self {
        let until = now() + 1_000_000_000 * long() as u64;
        Self { most, until, sent: Arc::default() }
    }

    /// What may still be sent after `sent` bytes.
    fn left(&self, sent: usize) -> usize {
        self.sent.store(sent, Ordering::Relaxed);
        if now() < self.until { self.most - sent } else { 0 }
    }

    /// What was sent, for the other end once the pipe has ended.
    fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }
}

/// Byte number `i` of a long stream without a short period.
fn byte(i: usize) -> u8 {
    let [_, byte, ..] = i.wrapping_mul(0x9E37_79B1).to_le_bytes();
    byte
}

fn stream(from: usize, n: usize) -> Vec<u8> {
    (from..from + n).map(byte).collect()
}

/// Sizes from one byte to more than half of the pipe.
fn size(at: usize) -> usize {
    at.wrapping_mul(2_654_435_761) % 700 + 1
}

const CAPACITY: usize = 1024;

fn total() -> usize {
    100_000 * long()
}

fn write_waiting(mut writer: BlockingWriter, amount: &Amount) {
    let mut at = 0;
    while let left @ 1.. = amount.left(at) {
        let data = stream(at, size(at).min(left));
        assert_eq!(writer.write(&data).unwrap().stored, data.len());
        at += data.len();
    }
    writer.finish();
}

fn read_waiting(mut reader: BlockingReader, amount: &Amount) {
    let mut at = 0;
    loop {
        let wanted = size(at + 1);
        let there = reader.read_at_least(wanted).unwrap();
        let n = wanted.min(there.len());
        assert_eq!(there[..n], stream(at, n), "at {at}");
        reader.advance(n, n);
        at += n;
        if n < wanted {
            break;
        }
    }
    assert_eq!((at, reader.into_inner().end()), (amount.sent(), Some(EndReason::Finished)));
}

fn write_without_waiting(mut writer: PipeWriter, amount: &Amount) {
    let mut at = 0;
    while let left @ 1.. = amount.left(at) {
        let data = stream(at, size(at).min(left));
        let stored = writer.write(&data).unwrap().stored;
        at += stored;
        if stored < data.len() {
            std::thread::yield_now();
        }
    }
    writer.finish();
}

fn read_without_waiting(mut reader: PipeReader, amount: &Amount) {
    let (mut at, mut out) = (0, [0; CAPACITY]);
    loop {
        let read = reader.read(&mut out[..size(at)]);
        assert_eq!(out[..read.bytes], stream(at, read.bytes), "at {at}");
        at += read.bytes;
        match read.end {
            Some(end) => break assert_eq!((at, end), (amount.sent(), EndReason::Finished)),
            None if read.bytes == 0 => std::thread::yield_now(),
            None => {}
        }
    }
}

/// The two ends of a pipe with the amounts to be sent.
fn ends(mirrored: bool) -> (PipeWriter, PipeReader, [Amount; 2]) {
    let config = PipeConfig { mirrored, ..PipeConfig::bytes(CAPACITY) };
    let (writer, reader) = pipe(&config).unwrap();
    let amount = Amount::new(total());
    (writer, reader, [amount.clone(), amount])
}

#[test]
fn a_pipe_whose_ends_wait() {
    for mirrored in [true, false] {
        everywhere(|| {
            let (writer, reader, [amount, all]) = ends(mirrored);
            let (writer, reader) = (writer.blocking(), reader.blocking());
            [
                Box::new(move || write_waiting(writer, &amount)),
                Box::new(move || read_waiting(reader, &all)),
            ]
        });
    }
}

#[test]
fn a_pipe_whose_ends_never_wait() {
    for mirrored in [true, false] {
        everywhere(|| {
            let (writer, reader, [amount, all]) = ends(mirrored);
            [
                Box::new(move || write_without_waiting(writer, &amount)),
                Box::new(move || read_without_waiting(reader, &all)),
            ]
        });
    }
}

#[test]
fn a_pipe_with_one_end_of_each_kind() {
    everywhere(|| {
        let (writer, reader, [amount, all]) = ends(true);
        let reader = reader.blocking();
        [
            Box::new(move || write_without_waiting(writer, &amount)),
            Box::new(move || read_waiting(reader, &all)),
        ]
    });
    everywhere(|| {
        let (writer, reader, [amount, all]) = ends(true);
        let writer = writer.blocking();
        [
            Box::new(move || write_waiting(writer, &amount)),
            Box::new(move || read_without_waiting(reader, &all)),
        ]
    });
}

#[test]
fn a_ring() {
    everywhere(|| {
        let (mut producer, mut consumer) = ring::ring(100);
        let amount = Amount::new(total() / 10);
        let all = amount.clone();
        let push = move || {
            let mut sent = 0;
            while amount.left(sent) > 0 {
                match producer.push(Box::new(sent)) {
                    Ok(()) => sent += 1,
                    Err(_) => std::thread::yield_now(),
                }
            }
        };
        let pop = move || {
            let mut seen = 0;
            loop {
                // Checked first: what was pushed before the end is still found after it.
                let over = consumer.is_abandoned();
                while let Some(item) = consumer.pop() {
                    assert_eq!(*item, seen);
                    seen += 1;
                }
                if over {
                    break assert_eq!(seen, all.sent());
                }
                std::thread::yield_now();
            }
        };
        [Box::new(push), Box::new(pop)]
    });
}

/// Values are whole, and the last one is seen.
#[test]
fn the_latest_value() {
    everywhere(|| {
        let (mut publisher, mut reader) = latest([0; 20]);
        let last = total();
        let publish = move || (1..=last).for_each(|i| publisher.publish([i; 20]));
        let read = move || {
            let mut before = 0;
            while before < last {
                let value = reader.read();
                assert!(value.iter().all(|&part| part == value[0]) && value[0] >= before);
                before = value[0];
                std::thread::yield_now();
            }
        };
        [Box::new(publish), Box::new(read)]
    });
}

#[test]
fn a_log() {
    everywhere(|| {
        let (mut log, mut reader) = rt_log(50);
        let last = total() as u64 / 10;
        let note = move || {
            (0..last).for_each(|i| log.push(i, i));
        };
        let read = move || {
            let mut next = 0;
            loop {
                let over = reader.is_abandoned();
                for entry in reader.by_ref() {
                    next += u64::from(entry.lost_before);
                    assert_eq!((entry.nanos, entry.record), (next, next));
                    next += 1;
                }
                if over {
                    break;
                }
                std::thread::yield_now();
            }
            assert!(next <= last);
        };
        [Box::new(note), Box::new(read)]
    });
}

/// Every callback runs after its last notification.
#[test]
fn announcements() {
    everywhere(|| {
        let mut dispatcher: Dispatcher =
            Dispatcher::new(PollStrategy::Every(Duration::from_micros(50)));
        let (sender, receiver) = channel();
        let targets = [0, 1, 2].map(|number| {
            let sender = sender.clone();
            dispatcher.on(Box::new(move || sender.send(number).unwrap())).unwrap()
        });
        let mut line = dispatcher.notifier(None).unwrap();
        let stop = dispatcher.stop_handle();
        let announce = move || {
            let amount = Amount::new(total() / 1000);
            let mut round = 0;
            while amount.left(round) > 0 {
                round += 1;
                line.prefetch();
                for target in targets {
                    line.notify(target);
                }
                // No notification is pending before the next round: each callback has run again.
                let mut missing = [true; 3];
                while missing.contains(&true) {
                    let number: usize = receiver.recv().unwrap();
                    missing[number] = false;
                }
                if round % 16 == 0 {
                    std::thread::yield_now();
                }
            }
            stop.stop();
        };
        let serve = move || {
            dispatcher.run();
            drop(sender);
        };
        [Box::new(announce), Box::new(serve)]
    });
}
