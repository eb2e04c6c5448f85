//! Many senders, one receiver: sleeping, waking and closing. Only one test at a time may remove the
//! fences, so the models that depend on them share one test.

use std::panic::catch_unwind;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};

use aulos_rt_loom::channel::{SendError, TryRecvError, bounded, unbounded};
use aulos_rt_loom::foreign;
use aulos_rt_loom::sync::WITHOUT_FENCES;
use loom::sync::atomic::AtomicBool;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(run);
}

/// A sleeping receiver and two senders.
fn every_item_wakes_the_receiver() {
    let (sender, mut receiver) = bounded(2);
    let threads = [1, 2].map(|item| {
        let sender = sender.clone();
        thread::spawn(move || sender.try_send(item).unwrap())
    });
    let mut got = [receiver.recv(), receiver.recv()];
    got.sort_unstable();
    assert_eq!(got, [Some(1), Some(2)]);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// One free slot and two senders that wait for it.
fn every_place_wakes_a_sender() {
    let (sender, mut receiver) = bounded(1);
    let threads = [1, 2].map(|item| {
        let sender = sender.clone();
        thread::spawn(move || sender.send(item).unwrap())
    });
    let mut got = [receiver.recv(), receiver.recv()];
    got.sort_unstable();
    assert_eq!(got, [Some(1), Some(2)]);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// A sender waits for a free slot, and the receiver frees one.
fn a_place_wakes_the_sender() {
    let (sender, mut receiver) = bounded(1);
    sender.try_send(1).unwrap();
    let thread = thread::spawn(move || {
        assert_eq!(receiver.try_recv(), Ok(1));
        receiver
    });
    sender.send(2).unwrap();
    assert_eq!(thread.join().unwrap().try_recv(), Ok(2));
}

/// The last sender is dropped.
fn the_receiver_sees_the_end() {
    let (sender, mut receiver) = bounded(1);
    let other = sender.clone();
    let thread = thread::spawn(move || other.try_send(1).unwrap());
    drop(sender);
    assert_eq!(receiver.recv(), Some(1));
    assert_eq!(receiver.recv(), None);
    thread.join().unwrap();
}

/// A sender waits for a free slot, and the receiver is dropped instead.
fn senders_see_the_end() {
    let (sender, receiver) = bounded(1);
    sender.try_send(1).unwrap();
    let thread = thread::spawn(move || sender.send(2).unwrap_err().0);
    drop(receiver);
    assert_eq!(thread.join().unwrap(), 2);
}

/// A sleeping task is polled again only when its waker was called.
fn a_task_is_woken() {
    struct Bed(Mutex<bool>, Condvar);
    impl Wake for Bed {
        fn wake(self: std::sync::Arc<Self>) {
            *self.0.lock().unwrap() = true;
            self.1.notify_one();
        }
    }
    let (sender, mut receiver) = unbounded();
    let thread = thread::spawn(move || sender.send(5).unwrap());
    let bed = std::sync::Arc::new(Bed(Mutex::new(false), Condvar::new()));
    let waker = Waker::from(bed.clone());
    let mut context = Context::from_waker(&waker);
    let mut got = Vec::new();
    loop {
        match receiver.poll_recv(&mut context) {
            Poll::Ready(Some(item)) => got.push(item),
            Poll::Ready(None) => break,
            Poll::Pending => {
                let mut woken = bed.0.lock().unwrap();
                while !std::mem::take(&mut *woken) {
                    woken = bed.1.wait(woken).unwrap();
                }
            }
        }
    }
    assert_eq!(got, [5]);
    thread.join().unwrap();
}

#[test]
fn no_wake_is_lost_with_the_fences_and_one_is_without() {
    model(every_item_wakes_the_receiver);
    model(a_place_wakes_the_sender);
    model(every_place_wakes_a_sender);
    model(the_receiver_sees_the_end);
    model(senders_see_the_end);
    model(a_task_is_woken);
    model(foreign::a_descriptor_is_raised);

    WITHOUT_FENCES.store(true, Ordering::Relaxed);
    // In these models the sleeping thread is the model's main thread, the only one that can be
    // cleaned up.
    let on_both_sides = [every_item_wakes_the_receiver, a_place_wakes_the_sender];
    let lost = on_both_sides.map(|run| catch_unwind(|| model(run)).is_err());
    WITHOUT_FENCES.store(false, Ordering::Relaxed);
    assert_eq!(lost, [true, true], "the models do not see what the fences are for");
}

/// More items than slots. Loom's cells report a slot that two threads use at a time, and loom
/// reports items that are not dropped.
#[test]
fn items_arrive_whole_and_in_each_senders_order() {
    model(|| {
        let (sender, mut receiver) = bounded(2);
        let threads = [10, 20].map(|first| {
            let sender = sender.clone();
            thread::spawn(move || {
                let items = first..first + 2;
                items.take_while(|&item| sender.try_send(Arc::new(item)).is_ok()).count()
            })
        });
        drop(sender);
        let mut got = Vec::from_iter((0..2).filter_map(|_| receiver.try_recv().ok()));
        let sent = threads.map(|thread| thread.join().unwrap());
        got.extend(std::iter::from_fn(|| receiver.try_recv().ok()));
        for (first, sent) in [10, 20].into_iter().zip(sent) {
            let its =
                got.iter().map(|item| **item).filter(|item| (first..first + 2).contains(item));
            assert!(its.eq(first..first + sent));
        }
        assert_eq!(got.len(), sent[0] + sent[1]);
        assert!(matches!(receiver.try_recv(), Err(TryRecvError::Closed)));
    });
}

/// An item that was sent before another thread was signalled arrives before that thread's items.
#[test]
fn values_keep_their_order() {
    model(|| {
        let (sender, mut receiver) = unbounded();
        let (other, told) = (sender.clone(), Arc::new(AtomicBool::new(false)));
        let seen = told.clone();
        let thread = thread::spawn(move || {
            sender.send(1).unwrap();
            told.store(true, loom::sync::atomic::Ordering::Release);
        });
        let follower = thread::spawn(move || {
            let after = seen.load(loom::sync::atomic::Ordering::Acquire);
            other.send(2).unwrap();
            after
        });
        let mut got = Vec::from_iter(receiver.try_recv());
        let after = follower.join().unwrap();
        thread.join().unwrap();
        got.extend(std::iter::from_fn(|| receiver.try_recv().ok()));
        assert!(got == [1, 2] || !after && got == [2, 1], "{got:?}");
    });
}

/// A close and two senders at once: accepted items are received, refused ones are returned, nothing
/// else.
#[test]
fn a_close_cuts_cleanly() {
    fn check(accepted: [bool; 2], got: &[i32]) {
        for (item, accepted) in [1, 2].into_iter().zip(accepted) {
            assert_eq!(got.contains(&item), accepted);
        }
    }
    model(|| {
        let (sender, mut receiver) = bounded(2);
        let threads = [1, 2].map(|item| {
            let sender = sender.clone();
            thread::spawn(move || match sender.try_send(item) {
                Err(SendError::Full(_)) => panic!("there is room for both"),
                sent => sent.is_ok(),
            })
        });
        receiver.close();
        let got = Vec::from_iter(std::iter::from_fn(|| receiver.recv()));
        check(threads.map(|thread| thread.join().unwrap()), &got);
    });
    model(|| {
        let (sender, mut receiver) = unbounded();
        let threads = [1, 2].map(|item| {
            let sender = sender.clone();
            thread::spawn(move || sender.send(item).is_ok())
        });
        receiver.close();
        let got = Vec::from_iter(std::iter::from_fn(|| receiver.recv()));
        check(threads.map(|thread| thread.join().unwrap()), &got);
    });
}

/// The receiver is dropped during a send: the item is dropped exactly once.
#[test]
fn a_dropped_receiver_drops_accepted_values() {
    model(|| {
        let (sender, receiver) = bounded(1);
        let thread = thread::spawn(move || sender.try_send(Arc::new(1)).is_ok());
        drop(receiver);
        thread.join().unwrap();
    });
    model(|| {
        let (sender, receiver) = unbounded();
        let other = sender.clone();
        let thread = thread::spawn(move || sender.send(Arc::new(1)).is_ok());
        drop(receiver);
        assert!(other.is_closed());
        thread.join().unwrap();
    });
}

/// A sender that does not wake the receiver, and a receiver that polls at any time: the last item
/// and the end are found by polling too.
#[test]
fn a_value_sent_without_a_wake_is_found_by_polling() {
    model(|| {
        let (sender, mut receiver) = bounded(1);
        let realtime = sender.realtime();
        drop(sender);
        let thread = thread::spawn(move || {
            let mut sent = 0;
            for _ in 0..2 {
                sent += i32::from(realtime.push(sent).is_ok());
            }
            sent
        });
        let mut got = Vec::from_iter((0..2).filter_map(|_| receiver.try_recv().ok()));
        let sent = thread.join().unwrap();
        got.extend(receiver.recv());
        assert!(got.into_iter().eq(0..sent));
        assert_eq!(receiver.recv(), None);
    });
}

/// The receiver sleeps without limit only while every sender would wake it; a real-time sender may
/// come and go meanwhile.
#[test]
fn nobody_sleeps_for_ever_when_the_silent_one_was_the_last() {
    model(|| {
        let (sender, mut receiver) = bounded(1);
        let thread = thread::spawn(move || {
            let realtime = sender.realtime();
            drop(sender);
            realtime.push(1).unwrap();
        });
        assert_eq!(receiver.recv(), Some(1));
        assert_eq!(receiver.recv(), None);
        thread.join().unwrap();
    });
}
