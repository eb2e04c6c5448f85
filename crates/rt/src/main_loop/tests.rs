use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use super::{MainLoop, Task};
use crate::channel::{bounded, unbounded};
use crate::clock;
use crate::notify::{Dispatcher, PollStrategy};

const MS: u64 = 1_000_000;

/// A log of events, in order.
type EventLog<T> = Rc<RefCell<Vec<T>>>;

/// Polls until no work is left at `now`; returns the time of the next poll.
fn settle(main_loop: &mut MainLoop, now: u64) -> Option<u64> {
    loop {
        let next = main_loop.poll(now);
        if next.is_none_or(|at| at > now) {
            return next;
        }
    }
}

#[test]
fn items_and_futures_run_where_the_loop_is_polled() {
    let mut main_loop = MainLoop::new();
    let (sender, receiver) = unbounded();
    let diary = EventLog::default();
    let here = thread::current().id();
    let write = Rc::clone(&diary);
    let task = main_loop.local().attach(receiver, move |item: u32| {
        assert_eq!(thread::current().id(), here);
        write.borrow_mut().push(item);
    });
    let handle = main_loop.handle();
    thread::scope(|scope| {
        scope.spawn(move || {
            for item in 0..1000 {
                sender.send(item).unwrap();
            }
            let last = handle.spawn(async move { thread::current().id() });
            let quit = handle.clone();
            let check = async move {
                assert_eq!(last.await, Some(here));
                quit.quit();
            };
            handle.spawn(check).detach();
        });
        main_loop.run();
    });
    settle(&mut main_loop, 0);
    assert!(diary.borrow().iter().copied().eq(0..1000));
    assert!(task.is_finished(), "all senders are gone");
}

#[test]
fn timers_fire_in_order_and_never_early() {
    let mut main_loop = MainLoop::new();
    let diary = EventLog::default();
    for (name, at) in [("c", 30), ("a", 10), ("d", 30), ("b", 20), ("past", 0)] {
        let (handle, write) = (main_loop.handle(), Rc::clone(&diary));
        let work = async move {
            handle.sleep_until(at * MS).await;
            write.borrow_mut().push((name, handle.now() / MS));
        };
        main_loop.local().spawn(work).detach();
    }
    let mut now = 0;
    while let Some(next) = settle(&mut main_loop, now) {
        // One poll before it is due.
        assert_eq!(settle(&mut main_loop, next - 1), Some(next));
        now = next;
    }
    assert_eq!(*diary.borrow(), [("past", 0), ("a", 10), ("b", 20), ("c", 30), ("d", 30)]);
}

#[test]
fn an_interval_stays_on_its_grid() {
    let mut main_loop = MainLoop::new();
    let diary = EventLog::default();
    let (mut ticks, write) =
        (main_loop.handle().every(Duration::from_millis(10)), Rc::clone(&diary));
    let work = async move {
        while let Some(periods) = ticks.tick().await {
            write.borrow_mut().push(periods);
        }
    };
    let task = main_loop.local().spawn(work);
    let next = [100, 110, 121, 129, 130, 175, 180]
        .map(|now| settle(&mut main_loop, now * MS).map(|at| at / MS));
    assert_eq!(next, [110, 120, 130, 130, 140, 180, 190].map(Some));
    assert_eq!(*diary.borrow(), [1, 1, 1, 4, 1]);
    drop(main_loop);
    assert!(task.is_finished());
}

#[test]
fn a_sleep_is_counted_from_its_first_poll_and_can_be_awaited_anywhere() {
    let mut main_loop = MainLoop::new();
    let mut sleep = std::pin::pin!(main_loop.handle().sleep(Duration::from_millis(5)));
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(settle(&mut main_loop, 100 * MS), None);
    assert!(sleep.as_mut().poll(&mut context).is_pending());
    assert_eq!(settle(&mut main_loop, 200 * MS), Some(205 * MS));
    assert!(sleep.as_mut().poll(&mut context).is_pending());
    settle(&mut main_loop, 205 * MS);
    assert!(sleep.as_mut().poll(&mut context).is_ready());
}

#[test]
fn time_that_goes_backwards_is_clamped() {
    let mut main_loop = MainLoop::new();
    main_loop.poll(100);
    main_loop.poll(50);
    assert_eq!(main_loop.handle().now(), 100);
}

#[test]
fn cancelled_timeouts_do_not_accumulate() {
    let mut main_loop = MainLoop::new();
    let handle = main_loop.handle();
    let kept: Vec<_> = (0..10)
        .map(|_| {
            let mut sleep = Box::pin(handle.sleep_until(u64::MAX));
            assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            sleep
        })
        .collect();
    for _ in 0..10_000 {
        let mut sleep = std::pin::pin!(handle.sleep_until(u64::MAX));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        main_loop.poll(0);
    }
    assert!(main_loop.timers.len() <= 64 + 1 + kept.len(), "{:?}", main_loop.timers);
}

/// Two channels, one of which is never empty: the other one is served too, and so are timers.
#[test]
fn a_busy_channel_does_not_starve_other_tasks() {
    let mut main_loop = MainLoop::new();
    let (busy, receiver) = unbounded();
    let again = busy.clone();
    busy.send(()).unwrap();
    let served = Rc::new(Cell::new(0));
    let count = Rc::clone(&served);
    main_loop
        .local()
        .attach(receiver, move |()| {
            count.set(count.get() + 1);
            again.send(()).unwrap();
        })
        .detach();
    let (quiet, other) = unbounded();
    let seen = Rc::new(Cell::new(false));
    let see = Rc::clone(&seen);
    main_loop.local().attach(other, move |()| see.set(true)).detach();
    let alarm = main_loop.handle();
    let rung = Rc::new(Cell::new(false));
    let rings = Rc::clone(&rung);
    let work = async move {
        alarm.sleep_until(MS).await;
        rings.set(true);
    };
    main_loop.local().spawn(work).detach();

    assert_eq!(main_loop.poll(0), Some(0), "there is more to do");
    let before = served.get();
    quiet.send(()).unwrap();
    main_loop.poll(MS);
    assert!(seen.get() && rung.get());
    assert!(served.get() > before, "nor is it starved itself");
    assert!(served.get() - before <= 256 * 64);
}

#[test]
fn a_value_sent_without_a_wake_is_seen_at_the_next_poll() {
    let mut main_loop = MainLoop::new();
    let (sender, receiver) = bounded(10);
    let diary = EventLog::default();
    let write = Rc::clone(&diary);
    let task = main_loop.local().attach(receiver, move |item| write.borrow_mut().push(item));
    // While every sender wakes the loop, no polling is needed.
    assert_eq!(settle(&mut main_loop, 0), None);
    let realtime = sender.realtime();
    drop(sender);
    assert_eq!(settle(&mut main_loop, MS), Some(6 * MS));
    realtime.push(1).unwrap();
    assert_eq!(settle(&mut main_loop, 2 * MS), Some(6 * MS));
    assert!(diary.borrow().is_empty());
    assert_eq!(settle(&mut main_loop, 6 * MS), Some(11 * MS));
    realtime.push(2).unwrap();
    drop(realtime);
    assert_eq!(settle(&mut main_loop, 11 * MS), None);
    assert_eq!(*diary.borrow(), [1, 2]);
    assert!(task.is_finished());
}

#[test]
fn a_dispatcher_on_the_loop_wakes_a_receiver() {
    let mut main_loop = MainLoop::new();
    let (sender, receiver) = bounded(10);
    let (realtime, look) = (sender.realtime(), receiver.waker());
    let diary = EventLog::default();
    let write = Rc::clone(&diary);
    let mut dispatcher: Dispatcher = Dispatcher::new(PollStrategy::Every(Duration::from_millis(1)));
    let target = dispatcher.on(Box::new(move || look.wake())).unwrap();
    let mut notifier = dispatcher.notifier(None).unwrap();
    main_loop.local().attach(receiver, move |item| write.borrow_mut().push(item)).detach();
    main_loop.local().dispatch(dispatcher).detach();
    assert_eq!(settle(&mut main_loop, 0), Some(MS));
    realtime.push(7).unwrap();
    notifier.notify(target);
    settle(&mut main_loop, MS);
    assert_eq!(*diary.borrow(), [7]);
}

/// Sets its flag when it is dropped.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_task_that_is_dropped_is_cancelled_and_one_that_is_detached_is_not() {
    let mut main_loop = MainLoop::new();
    let dropped = Arc::new(AtomicUsize::new(0));
    let endless = |guard| async move {
        let _guard = guard;
        pending::<()>().await;
    };
    let guard = || Dropped(dropped.clone());
    let kept = main_loop.local().spawn(endless(guard()));
    let detached = main_loop.local().spawn(endless(guard()));
    detached.detach();
    settle(&mut main_loop, 0);
    drop(kept);
    settle(&mut main_loop, 0);
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
    let (sender, receiver) = bounded::<Dropped>(1);
    let closed = main_loop.local().attach(receiver, drop);
    drop(closed);
    settle(&mut main_loop, 0);
    assert!(sender.is_closed());
    drop(main_loop);
    assert_eq!(dropped.load(Ordering::Relaxed), 2);
}

#[test]
fn a_panic_is_propagated_and_the_loop_stays_usable() {
    let mut main_loop = MainLoop::new();
    let (sender, receiver) = unbounded();
    let task = main_loop.local().attach(receiver, |item: i32| assert_ne!(item, 2, "two"));
    let other = main_loop.local().spawn(async { 5 });
    (1..=3).for_each(|item| sender.send(item).unwrap());
    let panic = catch_unwind(AssertUnwindSafe(|| settle(&mut main_loop, 0))).unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap().contains("two"));
    settle(&mut main_loop, 0);
    assert_eq!(polled(other), Poll::Ready(Some(5)));
    assert_eq!(polled(task), Poll::Ready(None));
    assert!(sender.is_closed());
    assert_eq!(format!("{:?}", main_loop.tasks), "Tasks { there: 0 }");
}

fn polled<T>(task: Task<T>) -> Poll<Option<T>> {
    std::pin::pin!(task).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_dropped_loop_drops_its_futures_and_ends_all_waits() {
    struct Here(#[allow(dead_code, reason = "its drop counts")] Rc<()>, thread::ThreadId);
    impl Drop for Here {
        fn drop(&mut self) {
            assert_eq!(thread::current().id(), self.1);
        }
    }
    let alive = Rc::new(());
    let mut main_loop = MainLoop::new();
    let handle = main_loop.handle();
    let here = || Here(Rc::clone(&alive), thread::current().id());
    // One that waits for a timer, one that is never woken, one that never ran.
    for wait in [true, false] {
        let (guard, handle) = (here(), main_loop.handle());
        let work = async move {
            let _guard = guard;
            if wait { handle.sleep_until(u64::MAX).await } else { pending().await }
        };
        main_loop.local().spawn(work).detach();
    }
    settle(&mut main_loop, 0);
    let guard = here();
    main_loop.local().spawn(async move { drop(guard) }).detach();
    let mut sleep = std::pin::pin!(handle.sleep_until(u64::MAX));
    let mut context = Context::from_waker(Waker::noop());
    assert!(sleep.as_mut().poll(&mut context).is_pending());

    drop(main_loop);
    assert_eq!(Rc::strong_count(&alive), 1);
    assert!(sleep.poll(&mut context).is_ready());
    assert!(std::pin::pin!(handle.sleep(Duration::MAX)).poll(&mut context).is_ready());
    let mut ticks = handle.every(Duration::from_millis(1));
    assert_eq!(ticks.poll_tick(&mut context), Poll::Ready(None));
    assert_eq!(polled(handle.spawn(async { 1 })), Poll::Ready(None));
    handle.call(|| panic!("there is no loop"));
    handle.quit();
}

/// Wakers on other threads are called continuously while loops are created and dropped.
#[test]
fn a_loop_can_be_dropped_while_its_tasks_are_woken() {
    for round in 0..200 {
        let mut main_loop = MainLoop::new();
        let (tell, wakers) = std::sync::mpsc::channel::<Waker>();
        let local = Rc::new(());
        let inside = Rc::clone(&local);
        let work = poll_fn(move |context| -> Poll<()> {
            let _inside = &inside;
            drop(tell.send(context.waker().clone()));
            Poll::Pending
        });
        main_loop.local().spawn(work).detach();
        thread::scope(|scope| {
            scope.spawn(move || wakers.into_iter().for_each(Waker::wake));
            for _ in 0..round % 7 {
                main_loop.poll(0);
            }
            drop(main_loop);
        });
        assert_eq!(Rc::strong_count(&local), 1);
    }
}

#[test]
fn quit_takes_effect_at_any_time() {
    let mut main_loop = MainLoop::new();
    main_loop.handle().quit();
    assert!(main_loop.handle().is_quitting());
    main_loop.run();
    assert!(!main_loop.handle().is_quitting());
    for _ in 0..200 {
        let handle = main_loop.handle();
        thread::scope(|scope| {
            scope.spawn(move || handle.quit());
            main_loop.run();
        });
    }
}

/// Real time: a timer on the system's clock ends a run that has no other work.
#[test]
fn run_keeps_the_time() {
    let mut main_loop = MainLoop::new();
    let handle = main_loop.handle();
    let at = clock::now() + 3 * MS;
    let work = async move {
        handle.sleep_until(at).await;
        handle.quit();
    };
    main_loop.local().spawn(work).detach();
    main_loop.run();
    assert!(clock::now() >= at);
}

/// Many threads that spawn, call and send at once.
#[test]
fn each_request_is_executed_once() {
    const EACH: usize = 500;
    let mut main_loop = MainLoop::new();
    let done = Arc::new(AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            let (handle, done) = (main_loop.handle(), done.clone());
            scope.spawn(move || {
                for _ in 0..EACH {
                    let (count, sleep) = (done.clone(), handle.sleep(Duration::from_micros(10)));
                    let work = async move {
                        sleep.await;
                        count.fetch_add(1, Ordering::Relaxed)
                    };
                    handle.spawn(work).detach();
                    let count = done.clone();
                    handle.call(move || {
                        count.fetch_add(1, Ordering::Relaxed);
                    });
                }
            });
        }
        let (handle, done) = (main_loop.handle(), done.clone());
        let watch = async move {
            let mut ticks = handle.every(Duration::from_millis(1));
            while done.load(Ordering::Relaxed) < 4 * EACH * 2 {
                ticks.tick().await;
            }
            handle.quit();
        };
        main_loop.local().spawn(watch).detach();
        main_loop.run();
    });
    assert_eq!(done.load(Ordering::Relaxed), 4 * EACH * 2);
}
