//! Notifying threads and a dispatcher that polls at any time.

use std::sync::{Arc, Mutex};

use aulos_rt_loom::notify::{CallbackId, Dispatcher, PollStrategy};
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

/// A dispatcher whose callbacks record their numbers. (The list is not part of the model: only the
/// dispatcher's thread uses it.)
fn desk() -> (Dispatcher, Arc<Mutex<Vec<usize>>>, Vec<CallbackId>) {
    let mut dispatcher: Dispatcher = Dispatcher::new(PollStrategy::Event);
    let log = Arc::new(Mutex::new(Vec::new()));
    let targets = (0..3)
        .map(|number| {
            let log = log.clone();
            dispatcher.on(Box::new(move || log.lock().unwrap().push(number))).unwrap()
        })
        .collect();
    (dispatcher, log, targets)
}

/// One thread notifies, then another: no poll may run the second callback first.
#[test]
fn the_order_holds_across_threads() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (mut dispatcher, log, targets) = desk();
        let mut one = dispatcher.notifier(None).unwrap();
        let mut two = dispatcher.notifier(None).unwrap();
        let done = loom::sync::Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        let (first, second) = (targets[0], targets[1]);
        let threads = [
            thread::spawn(move || {
                one.notify(first);
                done.store(true, Ordering::Release);
                true
            }),
            thread::spawn(move || {
                let after = seen.load(Ordering::Acquire);
                if after {
                    two.notify(second);
                }
                after
            }),
        ];
        dispatcher.poll(0);
        let announced = threads.map(|thread| thread.join().unwrap());
        dispatcher.poll(0);
        dispatcher.poll(0);
        let expected: &[usize] = if announced[1] { &[0, 1] } else { &[0] };
        assert_eq!(*log.lock().unwrap(), expected);
    });
}

/// More notifications than the queue holds, while the dispatcher polls: each callback runs after
/// its last notification.
#[test]
fn nothing_is_lost_when_the_line_is_full() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (mut dispatcher, log, targets) = desk();
        let mut line = dispatcher.notifier(None).unwrap();
        let thread = thread::spawn(move || targets.into_iter().for_each(|t| line.notify(t)));
        dispatcher.poll(0);
        thread.join().unwrap();
        dispatcher.poll(0);
        let mut served = log.lock().unwrap().clone();
        served.sort_unstable();
        assert_eq!(served, [0, 1, 2]);
    });
}

/// `cancel` and `handle_now` while another thread notifies: a notification is handled once or
/// cancelled, and one that comes later is handled.
#[test]
fn a_cancel_or_a_call_takes_only_earlier_notifications() {
    for handle in [false, true] {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let (mut dispatcher, log, targets) = desk();
            let mut line = dispatcher.notifier(None).unwrap();
            let target = targets[0];
            let thread = thread::spawn(move || {
                line.prefetch();
                line.notify(target);
                line
            });
            let handled = handle && dispatcher.handle_now(target);
            if !handle {
                dispatcher.cancel(target);
            }
            let mut line = thread.join().unwrap();
            dispatcher.poll(0);
            let served = log.lock().unwrap().len();
            assert!(if handle { served == 1 } else { served <= 1 }, "{served}, {handled}");
            line.notify(target);
            dispatcher.poll(0);
            assert_eq!(log.lock().unwrap().len(), served + 1);
        });
    }
}

/// A callback that is removed while it is notified does not run.
#[test]
fn a_removed_callback_is_not_called() {
    loom::model(|| {
        let (mut dispatcher, log, targets) = desk();
        let mut line = dispatcher.notifier(None).unwrap();
        let target = targets[1];
        let thread = thread::spawn(move || line.notify(target));
        assert!(dispatcher.remove(target).is_some());
        dispatcher.poll(0);
        thread.join().unwrap();
        dispatcher.poll(0);
        assert!(log.lock().unwrap().is_empty());
    });
}
