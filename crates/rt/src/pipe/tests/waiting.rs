//! The ends of a pipe as threads and as tasks.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::{pipe, stream};
use crate::pipe::*;

const LONG: usize = 1_000_000;

#[test]
fn threads_that_wait_pass_everything_on() {
    let thresholds = [(None, None), (Some(300), Some(0)), (Some(1), Some(0)), (None, Some(999))];
    for (pause_frames, resume_frames) in thresholds {
        let backpressure = Backpressure { pause_frames, resume_frames };
        let config = PipeConfig { backpressure, ..PipeConfig::bytes(1000) };
        let (writer, reader) = pipe(&config).unwrap();
        let (mut writer, mut reader) = (writer.blocking(), reader.blocking());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut at = 0;
                while at < LONG / 5 {
                    let data = stream(at, (at * 7 % 2500 + 1).min(LONG / 5 - at));
                    assert_eq!(writer.write(&data).unwrap().stored, data.len());
                    at += data.len();
                }
                writer.finish();
            });
            let mut at = 0;
            loop {
                // Demands above the pause threshold lift it.
                let wanted = at * 3 % 1000 + 1;
                let there = reader.read_at_least(wanted).unwrap().to_vec();
                assert_eq!(there, stream(at, there.len()));
                let n = wanted.min(there.len());
                reader.advance(n, n);
                at += n;
                if there.len() < wanted {
                    break;
                }
            }
            assert_eq!(at, LONG / 5);
            assert_eq!(reader.into_inner().end(), Some(EndReason::Finished));
        });
    }
}

/// A waiting end with a peer that never wakes it: it polls.
#[test]
fn a_waiting_end_needs_no_peer_that_wakes() {
    let (mut writer, reader) = pipe(&PipeConfig::bytes(4096)).unwrap();
    let mut reader = reader.blocking();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for at in 0..20 {
                std::thread::park_timeout(Duration::from_millis(1));
                assert_eq!(writer.write(&[at]).unwrap().stored, 1);
            }
            // Dropping an end does wake its peer.
        });
        let mut all = Vec::new();
        let mut out = [0; 64];
        loop {
            let read = reader.read(&mut out).unwrap();
            all.extend_from_slice(&out[..read.bytes]);
            if let Some(end) = read.end {
                assert_eq!(end, EndReason::Dropped);
                break;
            }
        }
        assert!(all.iter().copied().eq(0..20));
    });
}

/// Dropped data is missing in one piece and counted; what arrives is whole and in order.
#[test]
fn a_writer_that_drops_the_oldest_never_tears_a_frame() {
    let config = PipeConfig {
        overflow: OverflowPolicy::DropOldest,
        ..PipeConfig::audio(48_000, 2, SampleEncoding::S32Le, 61)
    };
    let (mut writer, mut reader) = pipe(&config).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut frame = 0_u64;
            while frame < 300_000 {
                let data: Vec<u8> = (frame..frame + 7).flat_map(u64::to_le_bytes).collect();
                frame += writer.write(&data).unwrap().stored as u64 / 8;
            }
            writer.finish();
        });
        let mut out = [0; 40];
        loop {
            let read = reader.read(&mut out);
            let first = reader.position() - read.bytes as u64 / 8;
            for (frame, number) in out[..read.bytes].as_chunks().0.iter().zip(first..) {
                // Frames dropped as the newest are not counted in the writer's numbers.
                assert_eq!(u64::from_le_bytes(*frame), number);
            }
            if read.end.is_some() {
                break;
            }
        }
    });
}

#[test]
fn a_wait_can_be_cancelled_from_outside() {
    let (writer, reader) = pipe(&PipeConfig::bytes(4)).unwrap();
    let monitor = writer.monitor();
    let (mut writer, mut reader) = (writer.blocking(), reader.blocking());
    // Cancels the next wait if there is none now, and only one.
    monitor.cancel_read();
    assert_eq!(reader.read_at_least(1), Err(PipeReadError::Cancelled));
    assert_eq!(writer.write(b"abc").unwrap().stored, 3);
    assert_eq!(reader.read_at_least(1), Ok(&b"abc"[..]));
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || writer.write(b"defg"));
        while monitor.fill().bytes < 4 {
            std::thread::yield_now();
        }
        monitor.cancel_write();
        assert_eq!(writer.join().unwrap(), Err(PipeWriteError::Cancelled { stored: 1 }));
    });
}

#[test]
fn a_demand_that_cannot_be_met_is_an_error() {
    let (writer, reader) = pipe(&PipeConfig::bytes(4)).unwrap();
    let (mut writer, mut reader) = (writer, reader.blocking());
    assert_eq!(reader.read_at_least(5), Err(PipeReadError::TooMuch { capacity: 4 }));
    assert_eq!(writer.write(b"abcd").unwrap().stored, 4);
    reader.advance(0, 4);
    assert_eq!(reader.read_at_least(1), Err(PipeReadError::TooMuch { capacity: 4 }));
    reader.advance(1, 1);
    assert_eq!(writer.write(b"e").unwrap().stored, 1);
    assert_eq!(reader.read_at_least(1), Ok(&b"bcde"[..]));
}

/// Runs one future to completion on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn tasks_pass_everything_on() {
    let config = PipeConfig::bytes(777);
    let (writer, reader) = pipe(&config).unwrap();
    let (mut writer, mut reader) = (writer.into_async(), reader.into_async());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            block_on(async move {
                let mut at = 0;
                while at < LONG {
                    let data = stream(at, (at * 7 % 2500 + 1).min(LONG - at));
                    assert_eq!(writer.write(&data).await.unwrap().stored, data.len());
                    at += data.len();
                }
                writer.flush().await.unwrap();
                writer.finish();
            });
        });
        block_on(async move {
            let (mut at, mut out) = (0, [0; 100]);
            loop {
                let wanted = at % 777 + 1;
                let there = reader.read_at_least(wanted).await.unwrap();
                assert_eq!(there, stream(at, there.len()));
                let n = wanted.min(there.len());
                reader.advance(n, n);
                at += n;
                let read = reader.read(&mut out).await.unwrap();
                assert_eq!(out[..read.bytes], stream(at, read.bytes));
                at += read.bytes;
                if read.end.is_some() {
                    break;
                }
            }
            assert_eq!(at, LONG);
        });
    });
}

/// Writing in place wakes the reader, and reading without a wait wakes the writer.
#[test]
fn in_place_and_without_a_wait_as_tasks() {
    let (writer, reader) = pipe(&PipeConfig::bytes(6)).unwrap();
    let (mut writer, mut reader) = (writer.into_async(), reader.into_async());
    let mut out = [0; 6];
    assert_eq!(reader.try_read(&mut out).bytes, 0);
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || {
            let there = block_on(reader.read_at_least(3)).unwrap().to_vec();
            reader.advance(0, 3);
            (reader, there)
        });
        let place = block_on(writer.reserve(4)).unwrap();
        place.copy_from_slice(b"abcd");
        writer.commit(4);
        let (mut reader, there) = reading.join().unwrap();
        assert_eq!(there, b"abcd");
        assert_eq!(block_on(writer.write(b"ef")).unwrap().stored, 2);
        let writing = scope.spawn(move || {
            let room = block_on(writer.reserve(2)).unwrap().len();
            writer.commit(0);
            room
        });
        while reader.try_read(&mut out).bytes == 0 {}
        assert_eq!((writing.join().unwrap(), &out), (2, b"abcdef"));
    });
}

#[test]
fn one_thread_can_run_both_tasks() {
    let (writer, reader) = pipe(&PipeConfig::bytes(10)).unwrap();
    let (mut writer, mut reader) = (writer.into_async(), reader.into_async());
    let mut out = [0; 10];
    let mut context = Context::from_waker(Waker::noop());
    let mut write = pin!(writer.write(b"0123456789abc"));
    assert!(write.as_mut().poll(&mut context).is_pending());
    assert_eq!(block_on(reader.read(&mut out)).unwrap().bytes, 10);
    let Poll::Ready(Ok(written)) = write.as_mut().poll(&mut context) else { panic!("waits") };
    assert_eq!(written.stored, 13);
    assert_eq!(block_on(reader.read_at_least(3)), Ok(&b"abc"[..]));
}
