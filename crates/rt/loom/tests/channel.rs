//! Many senders, one receiver: who sleeps, who wakes, and what a close cuts.
//! One test at a time may take the fences out, so the models that depend on them are in one.

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

/// A receiver that sleeps, and two senders.
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

/// One place, two senders that wait for it.
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

/// A sender waits for room, and the receiver makes it once.
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

/// The last sender goes.
fn the_receiver_sees_the_end() {
    let (sender, mut receiver) = bounded(1);
    let other = sender.clone();
    let thread = thread::spawn(move || other.try_send(1).unwrap());
    drop(sender);
    assert_eq!(receiver.recv(), Some(1));
    assert_eq!(receiver.recv(), None);
    thread.join().unwrap();
}

/// A sender waits for room and the receiver goes instead.
fn senders_see_the_end() {
    let (sender, receiver) = bounded(1);
    sender.try_send(1).unwrap();
    let thread = thread::spawn(move || sender.send(2).unwrap_err().0);
    drop(receiver);
    assert_eq!(thread.join().unwrap(), 2);
}

/// A task that sleeps: polled again only when its waker was called.
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
    // In these the sleeper is the model's main thread, the only one that can be cleaned up after.
    let on_both_sides = [every_item_wakes_the_receiver, a_place_wakes_the_sender];
    let lost = on_both_sides.map(|run| catch_unwind(|| model(run)).is_err());
    WITHOUT_FENCES.store(false, Ordering::Relaxed);
    assert_eq!(lost, [true, true], "the models do not see what the fences are for");
}

/// More items than places. Loom's cells report a slot that two threads use at a time, and loom
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

/// What one thread sent before it told another comes before what that one sends then.
#[test]
fn what_was_before_stays_before() {
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

/// A close and two senders at once: accepted is received, refused is given back, nothing else.
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

/// The receiver goes while somebody sends: the item is dropped once, by one of the two.
#[test]
fn a_dropped_receiver_drops_what_was_accepted() {
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

/// A sender that wakes nobody, and a receiver that looks at any moment: also the last item and the
/// end are found by looking.
#[test]
fn what_wakes_nobody_is_found() {
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

/// It sleeps without limit only while every sender would wake it: the one that does not may come and
/// go meanwhile.
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
