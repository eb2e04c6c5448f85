//! No function with a `# Real-time` line makes a system call, even while its peer sleeps.
//!
//! The filter of `aulos_blackbox::syscalls` does not detect what needs no call: a small allocation, a
//! lock without contention; `no_alloc.rs` and `no_locks.rs` cover those. The last tests show that the
//! filter detects what it should.
#![allow(unsafe_code, reason = "calls that the filter detects")]
#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test")]

use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use aulos_blackbox::syscalls::{NONE, SyscallReport, guarded};
use aulos_rt::channel::{RealtimeSender, bounded};
use aulos_rt::main_loop::MainLoop;
use aulos_rt::notify::{Dispatcher, Notifier, PollStrategy};
use aulos_rt::pipe::{
    OverflowPolicy, PipeConfig, PipeReader, PipeWriter, SampleEncoding, UnderrunPolicy, pipe,
};
use aulos_rt::ring::ring;
use aulos_rt::writer_ring::{ConsumerWaker, writer_ring};
use aulos_rt::{Pool, clock, drop_queue, latest, rt_log};

/// Long enough for every waiting thread to be asleep.
fn wait_until_peer_sleeps() {
    std::thread::park_timeout(Duration::from_millis(20));
}

fn write_all_ways(mut writer: PipeWriter) {
    for i in 0..5_000 {
        black_box((writer.write(&[3; 150]), writer.free(), writer.is_abandoned())).0.ok();
        let n = writer.reserve(44).len();
        writer.commit(n);
        writer.stamp(i);
        black_box((writer.reader_stamp(), clock::now()));
    }
    writer.clear();
    std::mem::forget(writer);
}

#[test]
fn a_writer_whose_reader_sleeps() {
    for overflow in OverflowPolicy::ALL {
        let config =
            PipeConfig { overflow, ..PipeConfig::audio(48_000, 2, SampleEncoding::S16Le, 900) };
        let (writer, reader) = pipe(&config).unwrap();
        let monitor = reader.monitor();
        let mut reader = reader.blocking();
        std::thread::scope(|scope| {
            scope.spawn(move || reader.read_at_least(3600).map(<[u8]>::len));
            wait_until_peer_sleeps();
            assert_eq!(guarded(move || write_all_ways(writer)), NONE);
            monitor.cancel_read();
        });
    }
}

fn read_all_ways(mut reader: PipeReader) {
    let mut out = [0; 400];
    for i in 0..5_000 {
        black_box(reader.peek(44));
        reader.advance(0, 0);
        let padded = reader.read(&mut out).padded;
        black_box((padded, reader.available(), reader.end(), reader.writer_stamp()));
        reader.stamp(i);
    }
    black_box((reader.peek_all(), ()));
    reader.clear();
    std::mem::forget(reader);
}

#[test]
fn a_reader_whose_writer_sleeps() {
    for underrun in [UnderrunPolicy::Short, UnderrunPolicy::Silence, UnderrunPolicy::Repeat] {
        for mirrored in [true, false] {
            let audio = PipeConfig::audio(48_000, 2, SampleEncoding::S16Le, 900);
            let (writer, reader) = pipe(&PipeConfig { underrun, mirrored, ..audio }).unwrap();
            let monitor = reader.monitor();
            let mut writer = writer.blocking();
            std::thread::scope(|scope| {
                scope.spawn(move || writer.write(&[5; 9000]));
                wait_until_peer_sleeps();
                assert_eq!(guarded(move || read_all_ways(reader)), NONE);
                monitor.cancel_write();
            });
        }
    }
}

#[test]
fn ring_pool_latest_bin_and_log() {
    let (mut producer, mut consumer) = ring(100);
    let pool = Pool::new(3, || vec![0_u8; 1500]);
    let (mut publisher, mut reader) = latest([0_u64; 9]);
    let (mut log, _reader) = rt_log(100);
    let (mut bin, _collector) = drop_queue(100);
    let mut old = Vec::from_iter((0..100).map(|_| vec![0_u8; 100_000]));
    let work = move || {
        for i in 0..10_000 {
            let packet = pool.take().unwrap().freeze();
            assert!(producer.push(packet.clone()).is_ok());
            publisher.publish([i; 9]);
            black_box((reader.read(), consumer.pop()));
            log.push(i, i);
            old.pop().map_or(Ok(()), |old| bin.discard(old)).ok();
        }
        std::mem::forget((old, log, bin, producer, consumer, pool, publisher, reader));
    };
    assert_eq!(guarded(work), NONE);
}

/// A sleeping dispatcher and one notifying thread.
fn with_sleeping_dispatcher(
    strategy: PollStrategy,
    work: impl FnOnce(Notifier, aulos_rt::notify::CallbackId) + Send + 'static,
) -> SyscallReport {
    let mut dispatcher: Dispatcher = Dispatcher::new(strategy);
    let target = dispatcher.on(Box::new(|| ())).unwrap();
    let notifier = dispatcher.notifier(None).unwrap();
    let stop = dispatcher.stop_handle();
    std::thread::scope(|scope| {
        scope.spawn(move || dispatcher.run());
        wait_until_peer_sleeps();
        let verdict = guarded(move || work(notifier, target));
        stop.stop();
        verdict
    })
}

#[test]
fn announcements_to_a_sleeping_dispatcher() {
    let verdict = with_sleeping_dispatcher(PollStrategy::Event, |mut notifier, target| {
        let (mut values, there) = ring(50);
        for i in 0..1_000 {
            notifier.prefetch();
            notifier.notify(target);
            black_box(notifier.send(target, &mut values, i)).ok();
            notifier.callback_ended(clock::now());
        }
        std::mem::forget((notifier, values, there));
    });
    assert_eq!(verdict, NONE);
}

fn push_all(realtime: RealtimeSender<u32>) {
    for i in 0..1_000 {
        black_box((realtime.push(i), realtime.free(), realtime.is_closed())).0.ok();
    }
    std::mem::forget(realtime);
}

#[test]
fn items_to_a_thread_that_sleeps() {
    let (sender, mut receiver) = bounded(50);
    let realtime = sender.realtime();
    std::thread::scope(|scope| {
        scope.spawn(move || while receiver.recv() != Some(u32::MAX) {});
        wait_until_peer_sleeps();
        assert_eq!(guarded(move || push_all(realtime)), NONE);
        sender.send(u32::MAX).unwrap();
    });
}

#[test]
fn items_to_a_loop_and_to_a_descriptor_that_sleep() {
    let (sender, receiver) = bounded(50);
    let (other, another) = bounded(50);
    let (realtime, to_descriptor) = (sender.realtime(), other.realtime());
    let (give, handle) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut main_loop = MainLoop::new();
            main_loop.local().attach(receiver, |item| drop(black_box(Box::new(item)))).detach();
            give.send(main_loop.handle()).unwrap();
            main_loop.run();
        });
        let mut another = another.into_fd().unwrap();
        assert!(another.try_recv().is_err());
        let handle = handle.recv().unwrap();
        wait_until_peer_sleeps();
        assert_eq!(guarded(move || push_all(realtime)), NONE);
        assert_eq!(guarded(move || push_all(to_descriptor)), NONE);
        assert_eq!(another.try_recv(), Ok(0));
        handle.quit();
    });
}

/// The writer sleeps until the first byte, and nothing takes records, so the ring is soon full.
#[test]
fn records_to_a_writer_that_sleeps() {
    let waker = ConsumerWaker::default();
    let (mut producer, consumer) = writer_ring(50_000, &waker).unwrap();
    let watch = producer.watch();
    std::thread::scope(|scope| {
        scope.spawn(|| waker.sleep(1, None, || false));
        wait_until_peer_sleeps();
        let work = move || {
            for _ in 0..5_000 {
                black_box((producer.push(&[3; 150]), producer.push(&[]))).0.ok();
                black_box(producer.push(&[3; 50_001])).ok();
            }
            consumer.watch().close();
            black_box(producer.push(&[3; 150])).ok();
            std::mem::forget((producer, consumer));
        };
        assert_eq!(guarded(work), NONE);
        waker.wake();
    });
    assert_eq!(watch.accepted(), 49_950);
}

#[test]
fn the_guard_sees_a_record_that_is_announced() {
    let waker = ConsumerWaker::default();
    let (mut producer, consumer) = writer_ring(100, &waker).unwrap();
    std::thread::scope(|scope| {
        // The wake is refused, so this thread needs a time limit.
        scope.spawn(|| waker.sleep(1, Some(Duration::from_millis(300)), || false));
        wait_until_peer_sleeps();
        let work = move || {
            producer.push(&[3]).ok();
            producer.wake_consumer();
            std::mem::forget((producer, consumer));
        };
        assert_eq!(guarded(work), (1, i32::try_from(libc::SYS_futex).unwrap()));
    });
}

/// A call that the filter detects.
fn make_syscall() -> libc::c_long {
    // SAFETY: a question without arguments; the filter refuses it anyway.
    unsafe { libc::syscall(libc::SYS_getppid) }
}

#[allow(clippy::cast_possible_truncation, reason = "the number of a call is small")]
const ONE_CALL: SyscallReport = (1, libc::SYS_getppid as i32);

/// A task whose waker makes a system call: nothing else about its wake does.
struct SyscallWaker;

impl Wake for SyscallWaker {
    fn wake(self: Arc<Self>) {
        make_syscall();
    }
}

#[test]
fn the_guard_sees_a_channel_that_wakes() {
    let (sender, mut receiver) = bounded(50);
    let mut next = pin!(receiver.next());
    let waker = Waker::from(Arc::new(SyscallWaker));
    assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let work = move || {
        sender.try_send(1).ok();
        std::mem::forget(sender);
    };
    assert_eq!(guarded(work), ONE_CALL);
}

#[test]
fn the_guard_sees_a_wake() {
    // The wake is refused, so this thread needs an interval.
    let sleepy = PollStrategy::Every(Duration::from_millis(300));
    let (calls, last) = with_sleeping_dispatcher(sleepy, |mut notifier, target| {
        notifier.notify(target);
        notifier.wake();
        std::mem::forget(notifier);
    });
    assert_eq!((calls, last), (1, i32::try_from(libc::SYS_futex).unwrap()));
}

#[test]
fn the_guard_sees_a_pipe_that_wakes() {
    let (writer, reader) = pipe(&PipeConfig::bytes(100)).unwrap();
    let (mut writer, mut reader) = (writer.blocking(), reader.into_async());
    let mut read = pin!(reader.read_at_least(1));
    let waker = Waker::from(Arc::new(SyscallWaker));
    assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let work = move || {
        writer.write(b"a").ok();
        std::mem::forget(writer);
    };
    assert_eq!(guarded(work), ONE_CALL);
}

#[test]
fn the_guard_sees_a_call_within_latest_and_log() {
    let (mut publisher, reader) = latest(0);
    let work = move || {
        publisher.update(|value| *value = make_syscall());
        std::mem::forget((publisher, reader));
    };
    assert_eq!(guarded(work), ONE_CALL);
    let (mut log, reader) = rt_log(1);
    let work = move || {
        log.push(0, make_syscall());
        std::mem::forget((log, reader));
    };
    assert_eq!(guarded(work), ONE_CALL);
}

#[test]
fn the_guard_sees_a_big_allocation_and_a_print() {
    let print = || {
        let text = b"x";
        // SAFETY: one byte of a string; the filter refuses it anyway.
        unsafe { libc::write(2, text.as_ptr().cast(), 0) };
    };
    assert_eq!(guarded(print), (1, i32::try_from(libc::SYS_write).unwrap()));
    let map = || {
        // SAFETY: asks for a page at no particular place.
        unsafe { libc::mmap(std::ptr::null_mut(), 4096, 0, libc::MAP_PRIVATE, -1, 0) };
    };
    assert_eq!(guarded(map), (1, i32::try_from(libc::SYS_mmap).unwrap()));
}
