//! Interrupts a run by a signal: unfinished files are removed first.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use aulos_server::exit::{Exit, Failure};

/// Set when a signal asks the run to end.
pub(super) struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Installs the signal handlers. A second signal exits at once, unless it is the same one that
    /// has come by two ways: `timeout` signals its child and then the whole group.
    pub(super) fn new() -> Result<Self, Failure> {
        let internal = |error: std::io::Error| Failure::new(Exit::Internal, error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(internal)?;
        let mut signals = {
            let _context = runtime.enter();
            let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
            let [interrupt, terminate, hangup] = kinds.map(|kind| signal(kind).map_err(internal));
            [interrupt?, terminate?, hangup?]
        };
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let listen = move || {
            runtime.block_on(async {
                let [interrupt, terminate, hangup] = &mut signals;
                let mut first = None;
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                        _ = hangup.recv() => {}
                    }
                    let first = *first.get_or_insert_with(Instant::now);
                    if flag.swap(true, Ordering::Relaxed) && first.elapsed() > SAME_SIGNAL {
                        process::exit(Exit::Stopped as i32);
                    }
                }
            });
        };
        thread::Builder::new().name("aulos-signals".into()).spawn(listen).map_err(internal)?;
        Ok(Self(stop))
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The longest time between the two arrivals of one signal on a busy machine. No hand presses
/// Ctrl-C twice in less.
const SAME_SIGNAL: Duration = Duration::from_millis(100);
