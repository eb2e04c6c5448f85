//! Every real-time path between "enter" and "exit" of LLVM's RealtimeSanitizer, which ends the
//! program with code 43 if anything in between allocates, frees or makes a known blocking call.
//!
//! With an argument the program makes such a call on purpose, so that `scripts/rtsan` can check the
//! detection. The sanitizer does not detect locks without contention (`tests/it/no_locks.rs`
//! searches for those).

use std::hint::black_box;

use aulos_rt::notify::{Dispatcher, PollStrategy};
use aulos_rt::pipe::{OverflowPolicy, PipeConfig, SampleEncoding, UnderrunPolicy, pipe};
use aulos_rt::writer_ring::{ConsumerWaker, writer_ring};
use aulos_rt::{Pool, clock, drop_queue, latest, ring::ring, rt_log};

unsafe extern "C" {
    fn __rtsan_ensure_initialized();
    fn __rtsan_realtime_enter();
    fn __rtsan_realtime_exit();
}

/// Runs `work` in the sanitizer's real-time context.
fn real_time(work: impl FnOnce()) {
    // SAFETY: calls without arguments, which the sanitizer's library has.
    unsafe {
        __rtsan_ensure_initialized();
        __rtsan_realtime_enter();
    }
    work();
    // SAFETY: as above.
    unsafe { __rtsan_realtime_exit() };
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        None => {
            pipes();
            announcements();
            cells();
            records();
            println!("pipe, notifier, ring, writer ring, pool, latest, bin and log: nothing found");
        }
        Some("allocation") => real_time(|| drop(black_box(Box::new(1)))),
        Some("write") => real_time(|| {
            // SAFETY: no byte of an existing string.
            unsafe { libc::write(2, c"".as_ptr().cast(), 0) };
        }),
        Some("free") => {
            let old = black_box(Box::new(1));
            real_time(|| drop(old));
        }
        Some("wake") => woken(),
        Some(other) => {
            eprintln!("{other}: not one of allocation, free, write, wake");
            std::process::exit(2);
        }
    }
}

fn pipes() {
    let underrun = UnderrunPolicy::ALL.into_iter().cycle();
    for (overflow, underrun) in OverflowPolicy::ALL.into_iter().zip(underrun) {
        for mirrored in [true, false] {
            let audio = PipeConfig::audio(48_000, 2, SampleEncoding::S16Le, 1000);
            let (mut writer, mut reader) =
                pipe(&PipeConfig { overflow, underrun, mirrored, ..audio }).expect("a pipe");
            let (data, mut out) = ([3; 1500], [0; 1000]);
            real_time(|| {
                for i in 0..1000 {
                    black_box(writer.write(&data)).ok();
                    let n = writer.reserve(401).len();
                    writer.commit(n);
                    writer.stamp(i);
                    black_box((reader.peek(30), ()));
                    reader.advance(4, 30);
                    black_box(reader.read(&mut out).bytes);
                    reader.stamp(i);
                    black_box((reader.end(), reader.available(), writer.free()));
                    black_box((writer.reader_stamp(), reader.writer_stamp()));
                    if i % 100 == 0 {
                        writer.clear();
                    }
                    if i % 170 == 0 {
                        reader.clear();
                    }
                }
            });
        }
    }
}

fn announcements() {
    let mut dispatcher: Dispatcher = Dispatcher::new(PollStrategy::Event);
    let target = dispatcher.on(Box::new(|| ())).expect("room");
    let (mut values, _there) = ring(50);
    let mut line = dispatcher.notifier(None).expect("room");
    real_time(|| {
        for i in 0..1000 {
            line.prefetch();
            line.notify(target);
            line.send(target, &mut values, i).ok();
            line.callback_ended(clock::now());
        }
    });
}

fn cells() {
    let pool = Pool::new(3, || vec![0_u8; 1500]);
    let (mut publisher, mut reader) = latest([0_u64; 9]);
    let (mut producer, mut consumer) = ring(100);
    let (mut log, mut told) = rt_log(100);
    let (mut bin, mut collector) = drop_queue(100);
    let mut old: Vec<_> = (0..100).map(|_| vec![0_u8; 100]).collect();
    real_time(|| {
        for i in 0..1000 {
            let packet = pool.take().map(aulos_rt::Pooled::freeze);
            producer.push(packet.clone()).ok();
            publisher.publish([i; 9]);
            black_box((reader.read(), ()));
            black_box(consumer.pop());
            log.push(i, i);
            black_box(told.next());
            old.pop().map_or(Ok(()), |old| bin.discard(old)).ok();
        }
    });
    assert_eq!(collector.collect(), 100);
}

fn records() {
    let (mut producer, mut consumer) =
        writer_ring(50_000, &ConsumerWaker::default()).expect("memory");
    real_time(|| {
        for i in 0..1000 {
            black_box((producer.push(&[3; 150]), producer.push(&[3; 50_001]))).0.ok();
            black_box((consumer.is_wake_due(1), consumer.available()));
            if i == 900 {
                consumer.watch().close();
            }
        }
    });
}

/// The only function of a notifier that is not real-time safe, with a sleeping dispatcher.
fn woken() {
    let mut dispatcher: Dispatcher = Dispatcher::new(PollStrategy::Event);
    let target = dispatcher.on(Box::new(|| ())).expect("room");
    let mut line = dispatcher.notifier(None).expect("room");
    std::thread::spawn(move || dispatcher.run());
    std::thread::sleep(std::time::Duration::from_millis(100));
    real_time(|| {
        line.notify(target);
        line.wake();
    });
}
