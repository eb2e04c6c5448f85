//! Reports panics of codec libraries: each library once, because a bug that every packet hits must
//! not fill the log. Counters have the rest.

use std::time::Duration;

use aulos_engine::codec_guard::{CodecLibrary, PanicReport, all_panic_reports};
use tokio::time::{MissedTickBehavior, interval};

/// Logs the first panic of each library, until it is aborted.
pub(crate) async fn log_first_panics() {
    let mut is_logged = [false; CodecLibrary::ALL.len()];
    let mut ticks = interval(LOG_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for (is_logged, report) in is_logged.iter_mut().zip(all_panic_reports()) {
            if report.count > 0 && !core::mem::replace(is_logged, true) {
                let PanicReport { library, first, .. } = report;
                tracing::error!(
                    library = library.name(),
                    panic = first.unwrap_or("unknown"),
                    "a codec library panicked; its stream goes on with a new decoder or encoder"
                );
            }
        }
    }
}

/// The panics of each library, with the names of their counters.
pub(crate) fn counters() -> impl Iterator<Item = (&'static str, u64)> {
    let names = CodecLibrary::COUNTERS.iter().map(|(name, _)| *name);
    names.zip(all_panic_reports().map(|report| report.count))
}

/// A bug of a library is reported and not acted on.
const LOG_INTERVAL: Duration = Duration::from_secs(1);
