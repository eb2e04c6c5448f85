//! Announcing threads and a dispatcher that looks at any moment.

use std::sync::{Arc, Mutex};

use aulos_rt_loom::notify::{Dispatcher, Strategy, Target};
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

/// A dispatcher whose callbacks write their number down. (The list is no part of the model: only
/// the dispatcher's thread uses it.)
fn desk() -> (Dispatcher, Arc<Mutex<Vec<usize>>>, Vec<Target>) {
    let mut dispatcher: Dispatcher = Dispatcher::new(Strategy::Event);
    let log = Arc::new(Mutex::new(Vec::new()));
    let targets = (0..3)
        .map(|number| {
            let log = log.clone();
            dispatcher.on(Box::new(move || log.lock().unwrap().push(number))).unwrap()
        })
        .collect();
    (dispatcher, log, targets)
}

/// One thread announces, then another: no look may serve the second first.
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

/// More announcements than the line holds, while the dispatcher looks: each target is served after
/// its last announcement.
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
