//! Is the pipe as fast as copying, and faster than its peers?
//!
//! 600,000,000 bytes in writes of 960, 1500 or 6000 and reads of 960, 1000 or 5000 bytes. First one
//! thread that writes once and reads while it can, capacity 64 KiB: what an operation costs, in
//! seconds of processor time. Then two pinned threads, 1 MiB: what the hand-over costs, in seconds
//! of the wall clock, with ends that spin and yield, and with ends that sleep. The minimum of
//! `reps=` rounds (two threads: the median), contestants interleaved; `write=` and `read=` pick a
//! case. Every buffer is touched before the time begins. The limit "two memcpy" goes round in 64
//! KiB as every ring does; ours begins at the front again when it is empty, so a second limit stays
//! within the first-level cache.
//! Bad would be: more than a tenth above plain copying, or above rtrb.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use aulos_benches::{Row, argument, median, minimum, pin, report};
use aulos_rt::pipe::{PipeConfig, pipe};

const TOTAL: usize = 600_000_000;
const ONE_THREAD: usize = 64 * 1024;
/// Less than any first-level cache.
const HOT: usize = 16 * 1024;
const TWO_THREADS: usize = 1024 * 1024;
const SIZES: [(usize, usize); 5] =
    [(960, 960), (1500, 1000), (6000, 1000), (1500, 5000), (6000, 5000)];

fn main() {
    let reps = argument("reps", 7);
    let mut rows = Vec::new();
    let (write, read) = (argument("write", 0), argument("read", 0));
    let wanted = |&(w, r): &(usize, usize)| [0, w].contains(&write) && [0, r].contains(&read);
    for (write, read) in SIZES.into_iter().filter(wanted) {
        let times = rounds(reps, &ALONE, |run| run(write, read));
        alone_rows(&mut rows, write, read, &times.map(|values| minimum(&values)));
    }
    for (write, read) in SIZES.into_iter().filter(wanted) {
        let times = rounds(reps, &PAIR, |run| run(write, read));
        let [ours, waiting, plain, rtrb, tokio] = times.map(|mut values| median(&mut values));
        let mut row = |what: &str, ours, peer, target| {
            let case = format!("two threads w{write} r{read}, {what}");
            rows.push(Row::against("pipe", case, ours, peer, target));
        };
        row("ends that spin / rtrb", ours, rtrb, Some(1.1));
        row("ends that sleep / tokio simplex", waiting, tokio, Some(1.0));
        row("ends that spin / tokio simplex", ours, tokio, None);
        row("ends that spin / the same without mirror", ours, plain, None);
    }
    report(&rows);
}

fn rounds<F: Copy, const N: usize>(
    reps: usize,
    runs: &[F; N],
    time: impl Fn(F) -> f64,
) -> [Vec<f64>; N] {
    let mut times = [const { Vec::new() }; N];
    for _ in 0..reps {
        for (run, values) in runs.iter().zip(&mut times) {
            values.push(time(*run));
        }
    }
    times
}

fn alone_rows(rows: &mut Vec<Row>, write: usize, read: usize, times: &[f64; 14]) {
    let [hot, copy2, copy1, ours, in_place, plain, rtrb, rtrb_in_place, ringbuf, bbqueue, ..] =
        *times;
    let [.., tokio, mutex, channel, kernel] = *times;
    let mut row = |what: &str, ours, peer, target| {
        rows.push(Row::against("pipe", format!("w{write} r{read}, {what}"), ours, peer, target));
    };
    row("copy in and out / two memcpy", ours, copy2, Some(1.10));
    row("copy in and out / rtrb", ours, rtrb, Some(1.00));
    row("copy in and out / ringbuf", ours, ringbuf, Some(1.00));
    row("copy in and out / bbqueue", ours, bbqueue, None);
    row("read in place / one memcpy", in_place, copy1, Some(1.12));
    row("read in place / rtrb in place", in_place, rtrb_in_place, None);
    row("copy in and out / tokio simplex", ours, tokio, Some(0.75));
    row("copy in and out / mutex ring", ours, mutex, Some(0.80));
    row("copy in and out / crossbeam channel of Vec", ours, channel, None);
    row("copy in and out / pipe(2)", ours, kernel, Some(0.20));
    row("without mirror / two memcpy", plain, copy2, None);
    row("copy in and out / two memcpy that stay within 16 KiB", ours, hot, None);
}

type Run = fn(usize, usize) -> f64;

const ALONE: [Run; 14] = [
    |w, r| alone_copy_twice(w, r, HOT),
    |w, r| alone_copy_twice(w, r, ONE_THREAD),
    alone_copy_once,
    |w, r| alone_ours(w, r, true),
    alone_ours_in_place,
    |w, r| alone_ours(w, r, false),
    alone_rtrb,
    alone_rtrb_in_place,
    alone_ringbuf,
    alone_bbqueue,
    alone_tokio,
    alone_mutex,
    alone_channel,
    alone_kernel,
];

const PAIR: [Run; 5] = [
    |w, r| pair_ours(w, r, true),
    pair_ours_waiting,
    |w, r| pair_ours(w, r, false),
    pair_rtrb,
    pair_tokio,
];

/// Writes one block, reads while there is enough, until everything is through.
fn alternate(
    w: usize,
    r: usize,
    mut write: impl FnMut(&[u8]),
    mut read: impl FnMut(&mut [u8]),
) -> f64 {
    let (mut from, mut to) = (vec![7; w], vec![1; r]);
    let (mut inside, mut done) = (0, 0);
    let start = own_time();
    while done < TOTAL {
        write(black_box(&mut from));
        inside += w;
        while inside >= r {
            read(&mut to);
            black_box(&mut to);
            inside -= r;
            done += r;
        }
    }
    own_time() - start
}

/// Seconds that this thread had a processor: what other programs take away is not counted.
fn own_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one time.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// The limit: a buffer that is twice as long, so that nothing wraps, and two positions that go round
/// in `size` bytes.
fn alone_copy_twice(w: usize, r: usize, size: usize) -> f64 {
    let mut buffer = vec![1; 2 * size];
    let (mut head, mut tail) = (0, 0);
    let (base, mask) = (buffer.as_mut_ptr(), size - 1);
    alternate(
        w,
        r,
        |from| {
            // SAFETY: within the doubled buffer, and a block is shorter than its half.
            unsafe { base.add(tail & mask).copy_from_nonoverlapping(from.as_ptr(), from.len()) };
            tail += from.len();
            black_box(base);
        },
        |to| {
            // SAFETY: as above.
            unsafe { base.add(head & mask).copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
            head += to.len();
        },
    )
}

fn alone_copy_once(w: usize, r: usize) -> f64 {
    let mut buffer = vec![1; 2 * ONE_THREAD];
    let (mut head, mut tail) = (0, 0);
    let (base, mask) = (buffer.as_mut_ptr(), ONE_THREAD - 1);
    alternate(
        w,
        r,
        |from| {
            // SAFETY: within the doubled buffer, and a block is shorter than its half.
            unsafe { base.add(tail & mask).copy_from_nonoverlapping(from.as_ptr(), from.len()) };
            tail += from.len();
            black_box(base);
        },
        |to| {
            black_box(base.wrapping_add(head & mask));
            head += to.len();
        },
    )
}

fn config(capacity: usize, mirrored: bool) -> PipeConfig {
    PipeConfig { mirrored, ..PipeConfig::bytes(capacity) }
}

fn alone_ours(w: usize, r: usize, mirrored: bool) -> f64 {
    let (mut writer, mut reader) = pipe(&config(ONE_THREAD, mirrored)).expect("a pipe");
    alternate(
        w,
        r,
        |from| assert_eq!(writer.write(from).expect("room").stored, from.len()),
        |to| assert_eq!(reader.read(to).bytes, to.len()),
    )
}

fn alone_ours_in_place(w: usize, r: usize) -> f64 {
    let (mut writer, mut reader) = pipe(&config(ONE_THREAD, true)).expect("a pipe");
    alternate(
        w,
        r,
        |from| assert_eq!(writer.write(from).expect("room").stored, from.len()),
        |to| {
            black_box(reader.peek(to.len()).expect("enough"));
            reader.advance(to.len(), to.len());
        },
    )
}

fn alone_rtrb(w: usize, r: usize) -> f64 {
    let (mut producer, mut consumer) = rtrb::RingBuffer::<u8>::new(ONE_THREAD);
    alternate(
        w,
        r,
        |from| producer.push_entire_slice(from).expect("room"),
        |to| consumer.pop_entire_slice(to).expect("enough"),
    )
}

fn alone_rtrb_in_place(w: usize, r: usize) -> f64 {
    let (mut producer, mut consumer) = rtrb::RingBuffer::<u8>::new(ONE_THREAD);
    alternate(
        w,
        r,
        |from| producer.push_entire_slice(from).expect("room"),
        |to| {
            let chunk = consumer.read_chunk(to.len()).expect("enough");
            black_box(chunk.as_slices());
            chunk.commit_all();
        },
    )
}

fn alone_ringbuf(w: usize, r: usize) -> f64 {
    use ringbuf::traits::{Consumer, Producer, Split};
    let (mut producer, mut consumer) = ringbuf::HeapRb::<u8>::new(ONE_THREAD).split();
    alternate(
        w,
        r,
        |from| assert_eq!(producer.push_slice(from), from.len()),
        |to| assert_eq!(consumer.pop_slice(to), to.len()),
    )
}

fn alone_bbqueue(w: usize, r: usize) -> f64 {
    use bbqueue::{nicknames::YakiNiku, traits::storage::BoxedSlice};
    let queue: YakiNiku = bbqueue::BBQueue::new_with_storage(BoxedSlice::new(ONE_THREAD));
    let (producer, consumer) = (queue.stream_producer(), queue.stream_consumer());
    alternate(
        w,
        r,
        |from| {
            let mut grant = producer.grant_exact(from.len()).expect("room");
            grant.copy_from_slice(from);
            grant.commit(from.len());
        },
        |to| {
            let mut done = 0;
            while done < to.len() {
                let grant = consumer.read().expect("enough");
                let n = grant.len().min(to.len() - done);
                to[done..done + n].copy_from_slice(&grant[..n]);
                grant.release(n);
                done += n;
            }
        },
    )
}

fn alone_tokio(w: usize, r: usize) -> f64 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let (mut reader, mut writer) = tokio::io::simplex(ONE_THREAD);
        let (mut from, mut to) = (vec![7; w], vec![1; r]);
        let (mut inside, mut done) = (0, 0);
        let start = own_time();
        while done < TOTAL {
            writer.write_all(black_box(&mut from)).await.expect("room");
            inside += w;
            while inside >= r {
                reader.read_exact(&mut to).await.expect("enough");
                black_box(&mut to);
                inside -= r;
                done += r;
            }
        }
        own_time() - start
    })
}

/// One lock, one array, copies in and out: what a managed wave buffer does.
fn alone_mutex(w: usize, r: usize) -> f64 {
    struct Ring {
        bytes: Vec<u8>,
        head: usize,
        len: usize,
    }
    let ring = Mutex::new(Ring { bytes: vec![0; ONE_THREAD], head: 0, len: 0 });
    alternate(
        w,
        r,
        |from| {
            let mut ring = ring.lock().expect("no panic inside");
            let tail = (ring.head + ring.len) % ONE_THREAD;
            let run = from.len().min(ONE_THREAD - tail);
            ring.bytes[tail..tail + run].copy_from_slice(&from[..run]);
            ring.bytes[..from.len() - run].copy_from_slice(&from[run..]);
            ring.len += from.len();
        },
        |to| {
            let mut ring = ring.lock().expect("no panic inside");
            let head = ring.head;
            let run = to.len().min(ONE_THREAD - head);
            to[..run].copy_from_slice(&ring.bytes[head..head + run]);
            let rest = to.len() - run;
            to[run..].copy_from_slice(&ring.bytes[..rest]);
            ring.head = (head + to.len()) % ONE_THREAD;
            ring.len -= to.len();
        },
    )
}

fn alone_channel(w: usize, r: usize) -> f64 {
    let (sender, receiver) = crossbeam_channel::bounded::<Vec<u8>>(64);
    let (mut current, mut used) = (Vec::new(), 0);
    alternate(
        w,
        r,
        |from| sender.send(from.to_vec()).expect("room"),
        |to| {
            let mut done = 0;
            while done < to.len() {
                if used == current.len() {
                    (current, used) = (receiver.recv().expect("enough"), 0);
                }
                let n = (current.len() - used).min(to.len() - done);
                to[done..done + n].copy_from_slice(&current[used..used + n]);
                (used, done) = (used + n, done + n);
            }
        },
    )
}

fn alone_kernel(w: usize, r: usize) -> f64 {
    use std::io::{Read, Write};
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    alternate(
        w,
        r,
        |from| writer.write_all(from).expect("room"),
        |to| reader.read_exact(to).expect("enough"),
    )
}

/// One pinned thread writes everything, the other reads everything.
fn pair(
    w: usize,
    r: usize,
    mut write: impl FnMut(&[u8]) -> bool + Send,
    mut read: impl FnMut(&mut [u8]) -> bool,
) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            let from = vec![7; w];
            for _ in 0..TOTAL / w {
                patiently(|| write(black_box(&from)));
            }
        });
        pin(0);
        let mut to = vec![1; r];
        for _ in 0..TOTAL / r {
            patiently(|| read(&mut to));
            black_box(&mut to);
        }
    });
    start.elapsed().as_secs_f64()
}

/// Spins for a moment, then lets others run.
fn patiently(mut done: impl FnMut() -> bool) {
    let mut tries = 0;
    while !done() {
        tries += 1;
        if tries < 200 { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
}

fn pair_ours(w: usize, r: usize, mirrored: bool) -> f64 {
    let (mut writer, mut reader) = pipe(&config(TWO_THREADS, mirrored)).expect("a pipe");
    pair(
        w,
        r,
        move |from| {
            let place = writer.reserve(from.len());
            let fits = place.len() == from.len();
            if fits {
                place.copy_from_slice(from);
                writer.commit(from.len());
            }
            fits
        },
        move |to| {
            let Some(there) = reader.peek(to.len()) else { return false };
            to.copy_from_slice(there);
            reader.advance(to.len(), to.len());
            true
        },
    )
}

/// Threads that sleep when there is nothing to do, as tokio's tasks do.
fn pair_ours_waiting(w: usize, r: usize) -> f64 {
    let (writer, reader) = pipe(&config(TWO_THREADS, true)).expect("a pipe");
    let (mut writer, mut reader) = (writer.blocking(), reader.blocking());
    pair(
        w,
        r,
        move |from| writer.write(from).is_ok(),
        move |to| {
            to.copy_from_slice(&reader.read_at_least(to.len()).expect("enough")[..to.len()]);
            reader.advance(to.len(), to.len());
            true
        },
    )
}

fn pair_rtrb(w: usize, r: usize) -> f64 {
    let (mut producer, mut consumer) = rtrb::RingBuffer::<u8>::new(TWO_THREADS);
    pair(
        w,
        r,
        move |from| producer.push_entire_slice(from).is_ok(),
        move |to| consumer.pop_entire_slice(to).is_ok(),
    )
}

fn pair_tokio(w: usize, r: usize) -> f64 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let next = AtomicUsize::new(0);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .on_thread_start(move || pin(next.fetch_add(1, Ordering::Relaxed) % 2))
        .build()
        .expect("a runtime");
    let start = Instant::now();
    runtime.block_on(async move {
        let (mut reader, mut writer) = tokio::io::simplex(TWO_THREADS);
        let writing = tokio::spawn(async move {
            let from = vec![7; w];
            for _ in 0..TOTAL / w {
                writer.write_all(black_box(&from)).await.expect("a reader");
            }
        });
        let reading = tokio::spawn(async move {
            let mut to = vec![1; r];
            for _ in 0..TOTAL / r {
                reader.read_exact(&mut to).await.expect("enough");
                black_box(&mut to);
            }
        });
        writing.await.expect("no panic");
        reading.await.expect("no panic");
    });
    start.elapsed().as_secs_f64()
}
