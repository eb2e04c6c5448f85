//! An audio callback notifies a user interface to redraw, without a system call.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use aulos_rt::notify::{Dispatcher, DispatcherFull, PollStrategy};
use aulos_rt::{clock, latest};

/// 256 frames at 48 kHz.
const PERIOD: Duration = Duration::from_micros(5333);

fn main() -> Result<(), DispatcherFull> {
    let (mut level, shown) = latest(0.0_f32);
    // Callbacks that stay on this thread may hold values that are not `Send`.
    let mut dispatcher = Dispatcher::<dyn FnMut()>::new(PollStrategy::PhaseLocked);
    let redraws = Rc::new(Cell::new(0));
    let (count, shown) = (Rc::clone(&redraws), RefCell::new(shown));
    let redraw = dispatcher.on(Box::new(move || {
        count.set(count.get() + 1);
        println!("level {:.3}", shown.borrow_mut().read());
    }))?;
    let mut notifier = dispatcher.notifier(Some(PERIOD))?;
    let stop = dispatcher.stop_handle();

    std::thread::scope(|scope| {
        scope.spawn(move || {
            for period in 0..100_u16 {
                std::thread::park_timeout(PERIOD);
                // Start of the audio callback ...
                notifier.prefetch();
                if period % 10 == 0 {
                    level.publish(f32::from(period) / 100.0);
                    notifier.notify(redraw);
                }
                notifier.callback_ended(clock::now());
                // ... and its end.
            }
            std::thread::park_timeout(PERIOD * 10);
            stop.stop();
        });
        // A user interface with a loop of its own calls `poll` from a timer instead.
        dispatcher.run();
    });
    println!("{} redraws", redraws.get());
    Ok(())
}
