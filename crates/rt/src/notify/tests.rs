use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use proptest::prelude::{Just, Strategy as Generator, prop, prop_assert_eq, prop_oneof, proptest};

use super::{CallbackId, Dispatcher, DispatcherFull, Notifier, PollStrategy};
use crate::clock;
use crate::ring::ring;

/// A dispatcher on this thread whose callbacks record their numbers.
struct TestDispatcher {
    dispatcher: Dispatcher<dyn FnMut()>,
    log: Rc<RefCell<Vec<usize>>>,
    targets: Vec<CallbackId>,
    lines: Vec<Notifier>,
}

impl TestDispatcher {
    fn new(targets: usize, lines: usize) -> Self {
        let mut dispatcher = Dispatcher::<dyn FnMut()>::new(PollStrategy::Timer);
        let log = Rc::new(RefCell::new(Vec::new()));
        let targets = (0..targets)
            .map(|number| {
                let log = Rc::clone(&log);
                dispatcher.on(Box::new(move || log.borrow_mut().push(number))).unwrap()
            })
            .collect();
        let lines = (0..lines).map(|_| dispatcher.notifier(None).unwrap()).collect();
        Self { dispatcher, log, targets, lines }
    }

    fn served(&mut self) -> Vec<usize> {
        self.dispatcher.poll(0);
        self.log.take()
    }
}

#[derive(Clone, Debug)]
enum Op {
    Notify(usize, usize),
    Poll,
    IsPending(usize),
    Cancel(usize),
    HandleNow(usize),
}

fn op() -> impl Generator<Value = Op> {
    prop_oneof![
        5 => (0..3_usize, 0..5_usize).prop_map(|(line, target)| Op::Notify(line, target)),
        1 => Just(Op::Poll),
        1 => (0..5_usize).prop_map(Op::IsPending),
        1 => (0..5_usize).prop_map(Op::Cancel),
        1 => (0..5_usize).prop_map(Op::HandleNow),
    ]
}

proptest! {
    /// The model is a list of pending callbacks, in the order of their first notification.
    #[test]
    fn callbacks_run_once_in_the_order_of_notification(
        ops in prop::collection::vec(op(), 0..80),
    ) {
        let mut desk = TestDispatcher::new(5, 3);
        let mut pending: Vec<usize> = Vec::new();
        for op in ops {
            match op {
                Op::Notify(line, number) => {
                    desk.lines[line].notify(desk.targets[number]);
                    if !pending.contains(&number) {
                        pending.push(number);
                    }
                }
                Op::Poll => prop_assert_eq!(desk.served(), std::mem::take(&mut pending)),
                Op::IsPending(number) => {
                    let is = desk.dispatcher.is_pending(desk.targets[number]);
                    prop_assert_eq!(is, pending.contains(&number));
                }
                Op::Cancel(number) => {
                    desk.dispatcher.cancel(desk.targets[number]);
                    pending.retain(|&other| other != number);
                }
                Op::HandleNow(number) => {
                    let was = pending.contains(&number);
                    prop_assert_eq!(desk.dispatcher.handle_now(desk.targets[number]), was);
                    prop_assert_eq!(desk.log.take().len(), usize::from(was));
                    pending.retain(|&other| other != number);
                }
            }
        }
        prop_assert_eq!(desk.served(), pending);
    }
}

#[test]
fn a_removed_callback_never_runs_again() {
    let mut desk = TestDispatcher::new(2, 1);
    let [old, other] = desk.targets[..] else { unreachable!() };
    desk.lines[0].notify(old);
    desk.lines[0].notify(other);
    assert!(desk.dispatcher.remove(old).is_some());
    assert!(desk.dispatcher.remove(old).is_none());
    // Another callback reuses its slot; the old id does not refer to it.
    let log = Rc::clone(&desk.log);
    let new = desk.dispatcher.on(Box::new(move || log.borrow_mut().push(7))).unwrap();
    desk.lines[0].notify(old);
    assert_eq!(desk.served(), [1]);
    desk.lines[0].notify(new);
    assert_eq!(desk.served(), [7]);
}

#[test]
fn a_dispatcher_may_go_while_something_is_pending() {
    let mut desk = TestDispatcher::new(2, 2);
    desk.lines[0].notify(desk.targets[1]);
    let TestDispatcher { dispatcher, log, targets, mut lines } = desk;
    drop(dispatcher);
    // More than a queue holds, for no callback.
    for _ in 0..1000 {
        lines.iter_mut().for_each(|line| line.notify(targets[0]));
    }
    lines[1].wake();
    assert!(log.take().is_empty());
}

#[test]
fn a_rehearsal_announces_nothing() {
    let mut desk = TestDispatcher::new(1, 2);
    for round in 0..1000 {
        desk.lines[0].prefetch();
        desk.lines[1].prefetch();
        assert!(desk.served().is_empty());
        desk.lines[round % 2].notify(desk.targets[0]);
        desk.lines[0].prefetch();
        assert_eq!(desk.served(), [0]);
    }
    // Not even with a full queue.
    for _ in 0..300 {
        desk.lines[0].notify(desk.targets[0]);
        desk.lines[0].prefetch();
    }
    desk.served();
    desk.lines[0].prefetch();
    assert!(desk.served().is_empty());
}

#[test]
fn no_announcement_is_lost_when_a_line_is_full() {
    let mut desk = TestDispatcher::new(3, 1);
    for _ in 0..1000 {
        desk.lines[0].notify(desk.targets[2]);
    }
    desk.lines[0].notify(desk.targets[1]);
    desk.lines[0].notify(desk.targets[0]);
    let mut served = desk.served();
    served.extend(desk.served());
    served.sort_unstable();
    served.dedup();
    assert_eq!(served, [0, 1, 2]);
}

#[test]
fn a_stale_id_takes_no_place_of_a_live_one_when_the_queue_is_full() {
    let mut world = TestDispatcher::new(2, 1);
    let stale = world.targets[0];
    assert!(world.dispatcher.remove(stale).is_some());
    let log = Rc::clone(&world.log);
    let live = world.dispatcher.on(Box::new(move || log.borrow_mut().push(7))).unwrap();
    for _ in 0..crate::limits::NOTIFIER_CAPACITY {
        world.lines[0].notify(world.targets[1]);
    }
    for id in [live, stale, CallbackId::from_bits(0)] {
        world.lines[0].notify(id);
    }
    assert_eq!(world.served(), [1, 7]);
    assert_eq!(world.served(), []);
}

#[test]
fn a_removed_callback_is_not_pending_and_is_not_handled() {
    let mut world = TestDispatcher::new(1, 1);
    let gone = world.targets[0];
    assert!(world.dispatcher.remove(gone).is_some());
    world.lines[0].notify(gone);
    assert!(!world.dispatcher.is_pending(gone) && !world.dispatcher.handle_now(gone));
}

#[test]
fn asking_without_polling_does_not_fill_the_memory() {
    let mut dispatcher = Dispatcher::<dyn FnMut()>::new(PollStrategy::Timer);
    let served = Rc::new(RefCell::new(0));
    let count = Rc::clone(&served);
    let each = dispatcher.on_each(Box::new(move || *count.borrow_mut() += 1)).unwrap();
    let mut line = dispatcher.notifier(None).unwrap();
    let limit = crate::limits::NOTIFIER_CAPACITY * (crate::limits::MAX_NOTIFIERS + 2);
    for _ in 0..2 * limit {
        line.notify(each);
        assert!(dispatcher.is_pending(each));
    }
    dispatcher.poll(0);
    assert!((1..=limit).contains(&*served.borrow()), "{}", served.borrow());
}

#[test]
fn what_a_dead_thread_announced_is_served() {
    let mut desk = TestDispatcher::new(2, 1);
    let mut line = desk.lines.pop().unwrap();
    (0..300).for_each(|_| line.notify(desk.targets[1]));
    line.notify(desk.targets[0]);
    drop(line);
    let mut served = desk.served();
    served.extend(desk.served());
    assert!(served.contains(&0) && served.contains(&1));
    assert!(format!("{:?}", desk.dispatcher).contains("lines: 0"));
}

#[test]
fn values_arrive_each_with_its_call_and_in_order_with_the_rest() {
    let mut desk = TestDispatcher::new(1, 2);
    let (mut values, mut there) = ring(3);
    let log = Rc::clone(&desk.log);
    let each = desk.dispatcher.on_each(Box::new(move || log.borrow_mut().extend(there.pop())));
    let each = each.unwrap();
    let [one, two] = &mut desk.lines[..] else { unreachable!() };
    assert_eq!(one.send(each, &mut values, 10), Ok(()));
    two.notify(desk.targets[0]);
    assert_eq!(one.send(each, &mut values, 11), Ok(()));
    assert_eq!(one.send(each, &mut values, 12), Ok(()));
    assert_eq!(one.send(each, &mut values, 13), Err(13));
    assert_eq!(desk.served(), [10, 0, 11, 12]);
    assert_eq!(desk.served(), []);
}

#[test]
fn the_number_of_targets_is_bounded() {
    let mut dispatcher: Dispatcher = Dispatcher::new(PollStrategy::Event);
    let targets: Vec<_> = (0..256).map(|_| dispatcher.on(Box::new(|| ())).unwrap()).collect();
    assert_eq!(dispatcher.on(Box::new(|| ())).unwrap_err(), DispatcherFull::Callbacks);
    dispatcher.remove(targets[77]);
    assert!(dispatcher.on(Box::new(|| ())).is_ok());
}

#[test]
fn each_strategy_returns_its_next_poll_time() {
    let next = |strategy, period| {
        let mut dispatcher: Dispatcher = Dispatcher::new(strategy);
        let mut line = dispatcher.notifier(period).unwrap();
        dispatcher.poll(1_000_000_000);
        line.callback_ended(1_001_000_000);
        dispatcher.poll(1_001_010_000).map(|at| at - 1_001_000_000)
    };
    assert_eq!(next(PollStrategy::Timer, None), Some(39_000_000));
    assert_eq!(next(PollStrategy::HighResolution, None), Some(4_000_000));
    assert_eq!(next(PollStrategy::Every(Duration::from_millis(9)), None), Some(8_000_000));
    assert_eq!(next(PollStrategy::Event, None), None);
    assert_eq!(next(PollStrategy::PhaseLocked, None), Some(4_000_000));
    let locked = next(PollStrategy::PhaseLocked, Some(Duration::from_millis(2))).unwrap();
    assert!((2_002_000..2_010_000).contains(&locked), "{locked}");
}

/// Three streams of different periods and one dispatcher, in simulated time: each stream's callback
/// runs shortly after the end of its period, whatever the others do, and stopped streams cost next
/// to nothing.
#[test]
fn one_dispatcher_follows_many_streams() {
    const PERIODS: [u64; 3] = [2_666_667, 5_333_333, 10_000_000];
    let mut dispatcher = Dispatcher::<dyn FnMut()>::new(PollStrategy::PhaseLocked);
    let log = Rc::new(RefCell::new(Vec::new()));
    let mut streams: Vec<_> = (0..PERIODS.len())
        .map(|stream| {
            let log = Rc::clone(&log);
            let target = dispatcher.on(Box::new(move || log.borrow_mut().push(stream))).unwrap();
            let period = Duration::from_nanos(PERIODS[stream]);
            (dispatcher.notifier(Some(period)).unwrap(), target, PERIODS[stream])
        })
        .collect();
    let (mut looks, mut late, mut served) = (0, [0; 3], [0_u32; 3]);
    let (mut now, stop_at, end) = (0, 4_000_000_000, 20_000_000_000);
    let mut ended = [0; 3];
    while now < end {
        // Everything the devices did up to now.
        for (stream, (line, target, next)) in streams.iter_mut().enumerate() {
            while *next <= now && *next < stop_at {
                line.notify(*target);
                line.callback_ended(*next);
                ended[stream] = *next;
                *next += PERIODS[stream];
            }
        }
        let next = dispatcher.poll(now).unwrap();
        for stream in log.take() {
            served[stream] += 1;
            if now > stop_at / 2 {
                late[stream] = late[stream].max(now - ended[stream]);
            }
        }
        looks += u32::from(now > stop_at + 1_000_000_000);
        now = next.max(now + 1);
    }
    for stream in 0..3 {
        let expected = u32::try_from(stop_at / PERIODS[stream]).unwrap();
        assert!(served[stream] + 10 >= expected, "{served:?}");
        assert!(late[stream] < 30_000, "{late:?}");
    }
    // Fifteen seconds of three stopped streams, each polled 20 times a second.
    assert!(looks < 15 * 3 * 25, "{looks} looks");
}

/// Lets the other threads end when this one fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Two threads notify in turn, each only after the other: the callbacks must alternate. A
/// dispatcher that empties one queue after the other fails here.
#[test]
fn the_order_holds_across_threads() {
    const TURNS: u32 = 8_000;
    let (send, receive) = mpsc::channel();
    let mut dispatcher: Dispatcher = Dispatcher::new(PollStrategy::Event);
    let targets = [0, 1].map(|number| {
        let send = send.clone();
        dispatcher.on_each(Box::new(move || send.send(number).unwrap())).unwrap()
    });
    let lines = [dispatcher.notifier(None).unwrap(), dispatcher.notifier(None).unwrap()];
    let turn = AtomicU32::new(0);
    let served = AtomicU32::new(0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for ((mut line, target), number) in lines.into_iter().zip(targets).zip(0..) {
            let (turn, served, over) = (&turn, &served, &over);
            scope.spawn(move || {
                for mine in (number..TURNS).step_by(2) {
                    while turn.load(Ordering::Acquire) != mine
                        || mine - served.load(Ordering::Relaxed) > 200
                    {
                        if over.load(Ordering::Relaxed) {
                            return;
                        }
                        std::thread::yield_now();
                    }
                    line.notify(target);
                    turn.store(mine + 1, Ordering::Release);
                }
            });
        }
        let _end = SetOnDrop(&over);
        for expected in 0..TURNS {
            let number = loop {
                match receive.try_recv() {
                    Ok(number) => break number,
                    Err(_) => drop(dispatcher.poll(0)),
                }
            };
            assert_eq!(number, expected % 2, "callback {expected}");
            served.store(expected + 1, Ordering::Relaxed);
        }
    });
}

/// A callback sees what was written before its notification, even if it was one of many.
#[test]
fn a_callback_sees_writes_before_the_notification() {
    const COUNT: u64 = 100_000;
    let done = Arc::new(AtomicU64::new(0));
    let seen = Arc::new(AtomicU64::new(0));
    let (done_in, seen_in) = (Arc::clone(&done), Arc::clone(&seen));
    let mut dispatcher: Dispatcher =
        Dispatcher::new(PollStrategy::Every(Duration::from_micros(100)));
    let target = dispatcher
        .on(Box::new(move || {
            seen_in.store(done_in.load(Ordering::Relaxed), Ordering::Relaxed);
        }))
        .unwrap();
    let mut line = dispatcher.notifier(None).unwrap();
    let stop = dispatcher.stop_handle();
    std::thread::scope(|scope| {
        scope.spawn(move || dispatcher.run());
        for i in 1..=COUNT {
            done.store(i, Ordering::Relaxed);
            line.notify(target);
        }
        while seen.load(Ordering::Relaxed) < COUNT {
            std::thread::yield_now();
        }
        stop.stop();
    });
}

#[test]
fn an_event_dispatcher_sleeps_until_woken() {
    let mut dispatcher: Dispatcher = Dispatcher::new(PollStrategy::Event);
    let ran = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&ran);
    let target = dispatcher
        .on(Box::new(move || {
            count.fetch_add(1, Ordering::Release);
        }))
        .unwrap();
    let mut line = dispatcher.notifier(None).unwrap();
    let stop = dispatcher.stop_handle();
    std::thread::scope(|scope| {
        scope.spawn(move || dispatcher.run());
        for round in 1..=2000 {
            line.notify(target);
            line.wake();
            while ran.load(Ordering::Acquire) < round {
                std::thread::yield_now();
            }
        }
        stop.stop();
    });
}

/// A dispatcher on a thread follows a stream; its timing is not asserted.
#[test]
fn a_phase_locked_dispatcher_serves_a_running_stream() {
    let period = Duration::from_millis(1);
    let mut dispatcher: Dispatcher = Dispatcher::new(PollStrategy::PhaseLocked);
    let called = Arc::new(AtomicBool::new(false));
    let set_called = Arc::clone(&called);
    let target =
        dispatcher.on(Box::new(move || set_called.store(true, Ordering::Release))).unwrap();
    let mut line = dispatcher.notifier(Some(period)).unwrap();
    let stop = dispatcher.stop_handle();
    std::thread::scope(|scope| {
        scope.spawn(move || dispatcher.run());
        for _ in 0..50 {
            line.notify(target);
            line.callback_ended(clock::now());
            while !called.swap(false, Ordering::AcqRel) {
                std::thread::park_timeout(period);
                line.callback_ended(clock::now());
            }
        }
        stop.stop();
    });
}

#[test]
fn an_id_is_a_number_other_than_zero() {
    let mut dispatcher: Dispatcher = Dispatcher::new(PollStrategy::Event);
    for _ in 0..3 {
        let target = dispatcher.on(Box::new(|| ())).unwrap();
        assert_ne!(target.to_bits(), 0);
        assert_eq!(CallbackId::from_bits(target.to_bits()), target);
        // Ids that are none have no effect.
        let mut notifier = dispatcher.notifier(None).unwrap();
        for bits in [0, u64::MAX, target.to_bits() ^ 1 << 40] {
            notifier.notify(CallbackId::from_bits(bits));
        }
        dispatcher.poll(0);
        assert!(!dispatcher.is_pending(CallbackId::from_bits(u64::MAX)));
    }
}
