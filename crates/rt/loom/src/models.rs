//! Models of the parts that are private to the crate.

use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};

use loom::cell::UnsafeCell;
use loom::thread;

use crate::clear::ClearRequest;
use crate::notify::{Dispatcher, PollStrategy};
use crate::shared_head::SharedHead;
use crate::spsc::{DROPPED, Positions, ReadEnd, WriteEnd};
use crate::sync::{Arc, AtomicUsize, Ordering};
use crate::wake::WaitCell;

/// A sleeping thread waits for two events, as the blocking end of a pipe does.
pub fn sleep_and_wake() {
    let world = Arc::new((WaitCell::default(), AtomicUsize::new(0)));
    let other = world.clone();
    let ringer = thread::spawn(move || {
        let (bell, count) = &*other;
        for i in 1..=2 {
            count.store(i, Ordering::Release);
            bell.wake(|| count.load(Ordering::Relaxed) >= 1);
        }
    });
    let (bell, count) = &*world;
    while count.load(Ordering::Acquire) < 1 {
        bell.sleep(None, || count.load(Ordering::Relaxed) >= 1);
    }
    ringer.join().unwrap();
}

/// Both ends wait for each other in turn.
pub fn both_sleep() {
    let world = Arc::new((WaitCell::default(), WaitCell::default(), AtomicUsize::new(0)));
    let other = world.clone();
    let thread = thread::spawn(move || {
        let (ping, pong, turn) = &*other;
        while turn.load(Ordering::Acquire) != 1 {
            ping.sleep(None, || turn.load(Ordering::Relaxed) == 1);
        }
        turn.store(2, Ordering::Release);
        pong.wake(|| true);
    });
    let (ping, pong, turn) = &*world;
    turn.store(1, Ordering::Release);
    ping.wake(|| true);
    while turn.load(Ordering::Acquire) != 2 {
        pong.sleep(None, || turn.load(Ordering::Relaxed) == 2);
    }
    thread.join().unwrap();
}

/// A task waits as the async end of a pipe does; only its waker wakes it.
pub fn task_and_wake() {
    let world = Arc::new((WaitCell::default(), AtomicUsize::new(0)));
    let other = world.clone();
    let ringer = thread::spawn(move || {
        let (bell, count) = &*other;
        count.store(1, Ordering::Release);
        bell.wake(|| count.load(Ordering::Relaxed) >= 1);
    });
    let (bell, count) = &*world;
    block_on(std::future::poll_fn(|context| {
        loop {
            if count.load(Ordering::Acquire) >= 1 {
                return Poll::Ready(());
            }
            if !bell.register_waker(context, || count.load(Ordering::Relaxed) >= 1) {
                return Poll::Pending;
            }
        }
    }));
    ringer.join().unwrap();
}

/// Runs a future on this thread of the model.
fn block_on(future: impl Future<Output = ()>) {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(std::sync::Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    while future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        thread::park();
    }
}

/// The peer of a sleeping thread goes after its last item: the thread wakes up and finds the item.
pub fn the_peer_leaves() {
    let world = Arc::new((WaitCell::default(), Positions::new(0)));
    let other = world.clone();
    let writer = thread::spawn(move || {
        let (bell, positions) = &*other;
        WriteEnd::new(0, 1).publish(positions, 1);
        positions.set_writer_exit(DROPPED);
        bell.wake(|| positions.writer_exit() != 0);
    });
    let (bell, positions) = &*world;
    while positions.writer_exit() == 0 {
        bell.sleep(None, || positions.writer_exit() != 0);
    }
    assert_eq!(ReadEnd::new(0).len_now(positions), 1);
    writer.join().unwrap();
}

/// Two clear requests: the position that the reader takes never goes back, and the last request is
/// found.
pub fn clear() {
    let request = Arc::new(ClearRequest::default());
    let other = request.clone();
    let writer = thread::spawn(move || {
        other.request(3);
        other.request(5);
    });
    let (mut seen, mut below) = (0, 0);
    for _ in 0..2 {
        if let Some(new) = request.new_request(&mut seen) {
            assert!(new >= below && (new == 3 || new == 5));
            below = new;
        }
    }
    writer.join().unwrap();
    below = request.new_request(&mut seen).unwrap_or(below);
    assert_eq!(below, 5);
}

/// A cancellation ends the wait although no event occurred.
pub fn cancel() {
    let bell = Arc::new(WaitCell::default());
    let other = bell.clone();
    let thread = thread::spawn(move || other.cancel());
    while !bell.take_cancel() {
        bell.sleep(None, || false);
    }
    thread.join().unwrap();
}

/// Two slots; the writer writes three items and drops the oldest, the reader reads twice. Loom's
/// cells report a slot that is written while it is read.
pub fn drop_the_oldest() {
    struct World {
        positions: Positions,
        turn: SharedHead,
        slots: [UnsafeCell<usize>; 2],
    }
    let slots = [UnsafeCell::new(0), UnsafeCell::new(0)];
    let world = Arc::new(World { positions: Positions::new(0), turn: SharedHead::new(0), slots });
    let other = world.clone();
    let writer = thread::spawn(move || {
        let mut end = WriteEnd::new(0, 2);
        for item in 0..3 {
            let tail = end.position();
            if end.assume_head(other.turn.head(tail)) == 0 {
                match other.turn.drop_oldest(tail, 1) {
                    Some((head, _)) => assert!(end.assume_head(head) > 0),
                    None => continue,
                }
            }
            other.slots[tail & 1].with_mut(|slot| unsafe { *slot = item });
            end.publish(&other.positions, 1);
        }
    });
    let mut end = ReadEnd::new(0);
    let mut last = None;
    for _ in 0..2 {
        let pushed_out = world.turn.begin_read(end.position());
        end.skip(&world.positions, pushed_out);
        let n = end.len_now(&world.positions);
        assert!(n <= 2);
        for i in 0..n {
            let item = world.slots[(end.position() + i) & 1].with(|slot| unsafe { *slot });
            assert!(last < Some(item));
            last = Some(item);
        }
        end.release(&world.positions, n);
        world.turn.end_read(end.position());
    }
    writer.join().unwrap();
}

/// Two slots; the writer rewinds to the first slot whenever the pipe is empty. Loom's cells report
/// a slot that is written while it is read; items arrive in order.
pub fn begin_at_the_front_again() {
    struct World {
        positions: Positions,
        slots: [UnsafeCell<usize>; 2],
    }
    let slots = [UnsafeCell::new(0), UnsafeCell::new(0)];
    // Starts at 1, so that the first slot differs from the next one.
    let world = Arc::new(World { positions: Positions::new(1), slots });
    let other = world.clone();
    let writer = thread::spawn(move || {
        let mut end = WriteEnd::new(1, 2);
        let mut item = 0;
        for _ in 0..3 {
            end.rewind(&other.positions);
            if end.free(&other.positions, 1) > 0 {
                item += 1;
                other.slots[end.place() & 1].with_mut(|slot| unsafe { *slot = item });
                end.publish(&other.positions, 1);
            }
        }
    });
    let mut end = ReadEnd::new(1);
    let mut last = 0;
    for _ in 0..3 {
        if end.len(&world.positions, 1) > 0 {
            let item = world.slots[end.place() & 1].with(|slot| unsafe { *slot });
            assert_eq!(item, last + 1);
            last = item;
            end.release(&world.positions, 1);
        }
    }
    writer.join().unwrap();
}

/// A dispatcher that sleeps until it is woken: neither the wake nor the stop is lost.
pub fn event_dispatcher() {
    let mut dispatcher: Dispatcher = Dispatcher::new(PollStrategy::Event);
    let stop = dispatcher.stop_handle();
    let target = dispatcher.on(Box::new(move || stop.stop())).unwrap();
    let mut line = dispatcher.notifier(None).unwrap();
    let thread = thread::spawn(move || {
        line.notify(target);
        line.wake();
        // The notifier is kept, so that dropping it does not act as a wake.
        line
    });
    dispatcher.run();
    drop(thread.join().unwrap());
}
