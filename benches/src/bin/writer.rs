//! How fast do many threads get their records into one file, and how long do they wait?
//!
//! 1,000,000 records (the decimal index and 109 bytes: 114,888,890 bytes) of four producers, to disk
//! (`$TMPDIR`) and to memory (`/dev/shm`); until all of it is in the file, without making it last.
//! Once round without a clock: allocations are counted, and each file is read: every record once,
//! whole, in its producer's order. Then `reps=` rounds, contestants in turn: one run each for the
//! total, another in which every add is timed, for the time that producers were blocked (the sum of
//! all four, clock included) and the longest add. The minimum of each. `only=` takes the contestants
//! whose names begin with one of these, with commas between; rows that miss one are left out.
//! Bad would be: more than two plain copies to the file, or a producer that does the disk's work.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use aulos_benches::{Row, argument, report};
use aulos_io::file_writer::{DiskWriter, FileWriterConfig};

const RECORDS: usize = 1_000_000;
const TAIL: usize = 109;
const TOTAL: usize = 114_888_890;
const PRODUCERS: usize = 4;
const EACH: usize = RECORDS / PRODUCERS;
/// Of a record, for capacities that are told in records.
const MEAN: usize = TOTAL / RECORDS + 1;
const BUFFER: usize = 256 * 1024;
/// Ours is compared at this one, in records of all producers together.
const CAPACITY: usize = 10_000;
const CAPACITIES: [usize; 4] = [100, 1_000, CAPACITY, 100_000];

struct Counting;

static IS_COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_COUNTING.load(Ordering::Relaxed) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promises are those of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are those of this function.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Seconds of one run, or the best of several.
#[derive(Clone, Copy)]
struct Times {
    total: f64,
    blocked: f64,
    longest: f64,
    allocations: f64,
}

const NOTHING: Times =
    Times { total: f64::MAX, blocked: f64::MAX, longest: f64::MAX, allocations: 0.0 };

/// Blocked and longest, when adds are timed.
type Waits = (f64, f64);

struct Contestant {
    name: String,
    run: Box<dyn Fn(&Path, bool) -> Waits>,
}

fn main() {
    let mut rows = Vec::new();
    for (medium, folder) in [("disk", std::env::temp_dir()), ("tmpfs", PathBuf::from("/dev/shm"))] {
        if !folder.is_dir() {
            eprintln!("{}: not here, so no rows for {medium}", folder.display());
            continue;
        }
        let path = folder.join(format!("aulos-writer-{}", std::process::id()));
        let found = compete(&path, argument("reps", 5));
        std::fs::remove_file(&path).ok();
        lines(&mut rows, medium, &found);
    }
    report(&rows);
}

fn compete(path: &Path, reps: usize) -> Vec<(String, Times)> {
    let only = std::env::args().find_map(|word| word.strip_prefix("only=").map(String::from));
    let named = |one: &Contestant, only: &String| only.split(',').any(|o| one.name.starts_with(o));
    let wanted = |one: &Contestant| only.as_ref().is_none_or(|only| named(one, only));
    let contestants: Vec<_> = contestants().into_iter().filter(wanted).collect();
    let mut best = vec![NOTHING; contestants.len()];
    for (one, best) in contestants.iter().zip(&mut best) {
        IS_COUNTING.store(true, Ordering::Relaxed);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        (one.run)(path, false);
        best.allocations = (ALLOCATIONS.load(Ordering::Relaxed) - before) as f64 / RECORDS as f64;
        IS_COUNTING.store(false, Ordering::Relaxed);
        verify(path, &one.name);
    }
    for _ in 0..reps {
        for (one, best) in contestants.iter().zip(&mut best) {
            std::fs::remove_file(path).ok();
            let start = Instant::now();
            (one.run)(path, false);
            best.total = best.total.min(start.elapsed().as_secs_f64());
            let (blocked, longest) = (one.run)(path, true);
            best.blocked = best.blocked.min(blocked);
            best.longest = best.longest.min(longest);
        }
    }
    contestants.into_iter().map(|one| one.name).zip(best).collect()
}

fn lines(rows: &mut Vec<Row>, medium: &str, found: &[(String, Times)]) {
    let times = |name: &str| found.iter().find(|(other, _)| other == name).map(|(_, times)| *times);
    let Some(ours) = times(&format!("ours rings {CAPACITY}")) else {
        for (name, times) in found {
            rows.push(Row::figure("writer", format!("{medium}, {name}, s"), times.total));
        }
        return;
    };
    let mut row = |what: String, ours: f64, peer: Option<f64>, target| {
        if let Some(peer) = peer {
            rows.push(Row::against("writer", format!("{medium}, {what}"), ours, peer, target));
        }
    };
    let channels = found.iter().filter(|(name, _)| name.starts_with("channel "));
    let best = channels.clone().min_by(|one, other| one.1.total.total_cmp(&other.1.total));
    let (file, buffer) = (times("Mutex<File>"), times("Mutex<BufWriter>"));
    row("total / Mutex<File>".into(), ours.total, file.map(|one| one.total), Some(0.15));
    if let Some((name, best)) = best {
        row(format!("total / best, {name}"), ours.total, Some(best.total), Some(0.75));
    }
    row("total / Mutex<BufWriter>".into(), ours.total, buffer.map(|one| one.total), Some(0.85));
    let bare = times("bare writes").map(|one| one.total);
    row("total / bare writes of 256 KiB".into(), ours.total, bare, Some(2.0));
    row("blocked / Mutex<File>".into(), ours.blocked, file.map(|one| one.blocked), Some(0.10));
    let longest = buffer.map(|one| one.longest);
    row("longest add / Mutex<BufWriter>".into(), ours.longest, longest, Some(0.25));
    let others = found.iter().filter(|(name, _)| name != &format!("ours rings {CAPACITY}"));
    for (name, peer) in others.clone() {
        row(format!("total / {name}"), ours.total, Some(peer.total), None);
    }
    for (name, peer) in others.filter(|(name, _)| !name.starts_with("bare")) {
        row(format!("blocked / {name}"), ours.blocked, Some(peer.blocked), None);
        row(format!("longest add / {name}"), ours.longest, Some(peer.longest), None);
    }
    let case = format!("{medium}, allocations per record");
    rows.push(Row::limit("writer", case, (ours.allocations * 1e3).round() / 1e3, 0.0));
}

fn contestants() -> Vec<Contestant> {
    let mut all = Vec::new();
    let mut add = |name: &str, run: Box<dyn Fn(&Path, bool) -> Waits>| {
        all.push(Contestant { name: name.into(), run });
    };
    add("bare writes", Box::new(bare));
    add("Mutex<File>", Box::new(mutex_file));
    add("Mutex<BufWriter>", Box::new(mutex_buffer));
    add("a file opened per record", Box::new(open_per_record));
    for records in CAPACITIES {
        let ours: [(&str, Run); 3] =
            [("rings", own_rings), ("shared", shared_buffer), ("real-time rings", realtime_rings)];
        // What is looked at by the clock needs room for the time between two looks.
        for (name, run) in ours.into_iter().take(if records < CAPACITY { 2 } else { 3 }) {
            let run = move |path: &Path, is_timed| run(path, is_timed, records);
            add(&format!("ours {name} {records}"), Box::new(run));
        }
        let peers: [(&str, Run); 5] = [
            ("std", std_channel),
            ("crossbeam", crossbeam),
            ("kanal", kanal),
            ("flume", flume),
            ("tokio", tokio),
        ];
        for (name, run) in peers {
            let run = move |path: &Path, is_timed| run(path, is_timed, records);
            add(&format!("channel {name} {records}"), Box::new(run));
        }
    }
    all
}

type Run = fn(&Path, bool, usize) -> Waits;

/// Four threads that add their records, and how long that took them.
fn produce<F: FnMut(&[u8]) + Send>(is_timed: bool, mut make: impl FnMut() -> F) -> Waits {
    let waits: Vec<Waits> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..PRODUCERS)
            .map(|number| {
                let mut add = make();
                scope.spawn(move || {
                    let mut record = [b'.'; 20 + TAIL];
                    let (mut sum, mut longest) = (0.0_f64, 0.0_f64);
                    for index in number * EACH..(number + 1) * EACH {
                        let record = fill(&mut record, index);
                        if is_timed {
                            let start = Instant::now();
                            add(record);
                            let span = start.elapsed().as_secs_f64();
                            sum += span;
                            longest = longest.max(span);
                        } else {
                            add(record);
                        }
                    }
                    (sum, longest)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    waits.into_iter().fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1.max(one.1)))
}

/// The record: its index in digits, dots, and the end of the line.
fn fill(record: &mut [u8; 20 + TAIL], index: usize) -> &[u8] {
    let digits = index.max(1).ilog10() as usize + 1;
    let mut rest = index;
    for place in record[..digits].iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    record[digits..digits + TAIL - 1].fill(b'.');
    record[digits + TAIL - 1] = b'\n';
    &record[..digits + TAIL]
}

/// Every record once, whole, and in the order of its producer.
fn verify(path: &Path, name: &str) {
    let bytes = std::fs::read(path).expect("the file is there");
    assert_eq!(bytes.len(), TOTAL, "{name}: length");
    let (mut next, mut record) = ([0; PRODUCERS], [0; 20 + TAIL]);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let digits = line.iter().position(|byte| *byte == b'.').expect("a record has dots");
        let index = line[..digits].iter().fold(0, |sum, c| sum * 10 + usize::from(c - b'0'));
        assert_eq!(line, fill(&mut record, index), "{name}: a torn record");
        let producer = index / EACH;
        assert_eq!(index % EACH, next[producer], "{name}: order of producer {producer}");
        next[producer] += 1;
    }
    assert_eq!(next, [EACH; PRODUCERS], "{name}: records are missing");
}

fn create(path: &Path) -> File {
    std::fs::remove_file(path).ok();
    OpenOptions::new().create(true).append(true).open(path).expect("a file can be made")
}

/// The floor: the same bytes, made before, in pieces of 256 KiB by one thread.
fn bare(path: &Path, _: bool) -> Waits {
    static BYTES: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    let mut bytes = BYTES.lock().expect("no panic inside");
    if bytes.is_empty() {
        let mut record = [0; 20 + TAIL];
        (0..RECORDS).for_each(|index| bytes.extend_from_slice(fill(&mut record, index)));
    }
    let mut file = create(path);
    bytes.chunks(BUFFER).for_each(|piece| file.write_all(piece).expect("room"));
    (0.0, 0.0)
}

fn mutex_file(path: &Path, is_timed: bool) -> Waits {
    let file = &Mutex::new(create(path));
    produce(is_timed, || {
        move |record: &[u8]| file.lock().expect("no panic").write_all(record).expect("room")
    })
}

fn mutex_buffer(path: &Path, is_timed: bool) -> Waits {
    let file = &Mutex::new(BufWriter::with_capacity(BUFFER, create(path)));
    let waits = produce(is_timed, || {
        move |record: &[u8]| file.lock().expect("no panic").write_all(record).expect("room")
    });
    file.lock().expect("no panic").flush().expect("room");
    waits
}

fn open_per_record(path: &Path, is_timed: bool) -> Waits {
    drop(create(path));
    produce(is_timed, || {
        move |record: &[u8]| {
            let mut file = OpenOptions::new().append(true).open(path).expect("it is there");
            file.write_all(record).expect("room");
        }
    })
}

/// The threads of ours, which a program starts once.
fn disk() -> DiskWriter {
    static DISK: Mutex<Option<DiskWriter>> = Mutex::new(None);
    let mut disk = DISK.lock().expect("no panic inside");
    disk.get_or_insert_with(|| DiskWriter::start().expect("threads")).clone()
}

fn settings(shared_bytes: usize) -> FileWriterConfig {
    FileWriterConfig { shared_bytes, sync_at_end: false, ..FileWriterConfig::default() }
}

fn own_rings(path: &Path, is_timed: bool, records: usize) -> Waits {
    let file = Box::new(create(path));
    let writer = disk().writer("bench", file, &settings(MEAN)).expect("a descriptor");
    let waits = produce(is_timed, || {
        let mut producer = writer.producer(records * MEAN / PRODUCERS).expect("memory");
        move |record: &[u8]| producer.add(record).expect("a file")
    });
    writer.close().wait().expect("room");
    waits
}

/// A ring that is full is asked again: a thread with a deadline would go without the record.
fn realtime_rings(path: &Path, is_timed: bool, records: usize) -> Waits {
    let file = Box::new(create(path));
    let writer = disk().writer("bench", file, &settings(MEAN)).expect("a descriptor");
    let waits = produce(is_timed, || {
        let bytes = records * MEAN / PRODUCERS;
        let mut producer = writer.realtime_producer(bytes).expect("memory");
        move |record: &[u8]| {
            while producer.add(record).is_err() {
                std::thread::yield_now();
            }
        }
    });
    writer.close().wait().expect("room");
    waits
}

fn shared_buffer(path: &Path, is_timed: bool, records: usize) -> Waits {
    let file = Box::new(create(path));
    let writer = disk().writer("bench", file, &settings(records * MEAN)).expect("a descriptor");
    let waits = produce(is_timed, || {
        let producer = writer.shared_producer();
        move |record: &[u8]| producer.add(record).expect("a file")
    });
    writer.close().wait().expect("room");
    waits
}

/// A thread that takes records out of a channel into a buffer in front of the file.
fn drain<R: Send>(
    path: &Path,
    receiver: R,
    next: impl Fn(&mut R) -> Option<Vec<u8>> + Send,
    produce: impl FnOnce() -> Waits,
) -> Waits {
    let mut file = BufWriter::with_capacity(BUFFER, create(path));
    std::thread::scope(|scope| {
        let drained = scope.spawn(move || {
            let mut receiver = receiver;
            while let Some(record) = next(&mut receiver) {
                file.write_all(&record).expect("room");
            }
            file.flush().expect("room");
        });
        let waits = produce();
        drained.join().expect("no panic");
        waits
    })
}

fn std_channel(path: &Path, is_timed: bool, records: usize) -> Waits {
    let (sender, receiver) = std::sync::mpsc::sync_channel(records);
    drain(
        path,
        receiver,
        |receiver| receiver.recv().ok(),
        || {
            let sender = sender;
            produce(is_timed, || {
                let sender = sender.clone();
                move |record: &[u8]| sender.send(record.to_vec()).expect("a receiver")
            })
        },
    )
}

fn crossbeam(path: &Path, is_timed: bool, records: usize) -> Waits {
    let (sender, receiver) = crossbeam_channel::bounded(records);
    drain(
        path,
        receiver,
        |receiver| receiver.recv().ok(),
        || {
            let sender = sender;
            produce(is_timed, || {
                let sender = sender.clone();
                move |record: &[u8]| sender.send(record.to_vec()).expect("a receiver")
            })
        },
    )
}

fn kanal(path: &Path, is_timed: bool, records: usize) -> Waits {
    let (sender, receiver) = kanal::bounded(records);
    drain(
        path,
        receiver,
        |receiver| receiver.recv().ok(),
        || {
            let sender = sender;
            produce(is_timed, || {
                let sender = sender.clone();
                move |record: &[u8]| sender.send(record.to_vec()).expect("a receiver")
            })
        },
    )
}

fn flume(path: &Path, is_timed: bool, records: usize) -> Waits {
    let (sender, receiver) = flume::bounded(records);
    drain(
        path,
        receiver,
        |receiver| receiver.recv().ok(),
        || {
            let sender = sender;
            produce(is_timed, || {
                let sender = sender.clone();
                move |record: &[u8]| sender.send(record.to_vec()).expect("a receiver")
            })
        },
    )
}

fn tokio(path: &Path, is_timed: bool, records: usize) -> Waits {
    let (sender, receiver) = tokio::sync::mpsc::channel(records);
    drain(
        path,
        receiver,
        |receiver| receiver.blocking_recv(),
        || {
            let sender = sender;
            produce(is_timed, || {
                let sender = sender.clone();
                move |record: &[u8]| sender.blocking_send(record.to_vec()).expect("a receiver")
            })
        },
    )
}
