//! Ctrl-C, and what else asks a run to end: the files that are under way are taken back first.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tokio::signal::unix::{SignalKind, signal};

use aulos_server::exit::{Exit, Failure};

/// Whether somebody wants the run to end.
pub(super) struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Listens from now on. Who asks twice does not wait for anything.
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
        let wished = Arc::new(AtomicBool::new(false));
        let wish = Arc::clone(&wished);
        let listen = move || {
            runtime.block_on(async {
                let [interrupt, terminate, hangup] = &mut signals;
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                        _ = hangup.recv() => {}
                    }
                    if wish.swap(true, Ordering::Relaxed) {
                        process::exit(Exit::Stopped as i32);
                    }
                }
            });
        };
        thread::Builder::new().name("aulos-signals".into()).spawn(listen).map_err(internal)?;
        Ok(Self(wished))
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
