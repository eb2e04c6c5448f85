//! Feeders of sources that deliver raw samples: FIFO, standard input, TCP, program, device.

mod capture;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aulos_config::source::{CaptureApi, ProcessSource, TcpMode};
use aulos_config::{SourceConfig, TitleFifo, TitleFormat};
use aulos_io::feed::{
    ByteFeed, Feeder, FifoCounters, FifoFeeder, LogLine, ProcessConfig, ProcessFeeder, StdinFeeder,
    TcpClientFeeder, TcpServerFeeder, split_arguments,
};
use aulos_player::CaptureConfig;

use capture::CaptureFeeder;

/// Counters that feeders share.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct FeederCounters {
    /// What happened to FIFOs.
    pub fifos: Arc<FifoCounters>,
    /// TCP connections that were closed because they began like a request of a browser.
    pub refused: Arc<AtomicU64>,
    /// How often devices have lost samples that were not read in time.
    pub overruns: Arc<AtomicU64>,
}

impl FeederCounters {
    /// The values for the status; their names are stable.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let Self { fifos, refused, overruns } = self;
        [
            ("source_connections_refused_request", &**refused),
            ("source_device_overruns", overruns),
            ("fifos_recreated", &fifos.recreated),
            ("fifos_reopened", &fifos.reopened),
            ("fifos_blocked", &fifos.blocked),
        ]
        .into_iter()
        .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
    }
}

/// The feeder of a source into `feed`, which has the spec that a device is asked for; `None` for a
/// source that does not deliver raw samples.
#[must_use]
pub fn make_feeder(
    source: &SourceConfig,
    feed: ByteFeed,
    counters: &FeederCounters,
) -> Option<Box<dyn Feeder>> {
    Some(match source {
        SourceConfig::Stdin(_) => Box::new(StdinFeeder::new(feed)),
        SourceConfig::Pipe(pipe) => {
            let fifos = Arc::clone(&counters.fifos);
            Box::new(FifoFeeder::new(pipe.path.clone(), pipe.mode, feed).with_counters(fifos))
        }
        SourceConfig::Process(process) => {
            Box::new(ProcessFeeder::new(process_config(process), process.timeout, feed))
        }
        SourceConfig::Tcp(tcp) => {
            let (address, timeout) = (tcp.address.to_string(), tcp.timeout);
            match tcp.mode {
                TcpMode::Client => Box::new(TcpClientFeeder::new(address, timeout, feed)),
                TcpMode::Server => {
                    let server = TcpServerFeeder::new(address, timeout, feed);
                    Box::new(server.with_refusal_counter(Arc::clone(&counters.refused)))
                }
            }
        }
        SourceConfig::Capture(capture) => {
            let api = match capture.api {
                CaptureApi::Pulse => aulos_player::CaptureBackend::Pulse,
                CaptureApi::Alsa => aulos_player::CaptureBackend::Alsa,
            };
            let config = CaptureConfig { api, device: capture.device.clone(), spec: feed.spec() };
            Box::new(CaptureFeeder::new(config, feed, Arc::clone(&counters.overruns)))
        }
        _ => return None,
    })
}

/// Logs a line of a program's standard error.
pub(crate) fn log_line(program: &Path, line: &str) {
    tracing::info!(target: "source", program = %program.display(), "{line}");
}

fn process_config(source: &ProcessSource) -> ProcessConfig {
    let mut process = ProcessConfig {
        program: source.path.clone(),
        arguments: split_arguments(&source.params),
        log_line: source.log_stderr.then_some(log_line as LogLine),
        log_to: None,
    };
    match &source.titles {
        // Empty while the source does not belong to a station.
        Some(TitleFifo { fifo, .. }) if fifo.as_os_str().is_empty() => {}
        Some(TitleFifo { kind: TitleFormat::Librespot, fifo }) => {
            process.log_to = Some(fifo.clone());
        }
        Some(TitleFifo { kind: TitleFormat::Airplay, fifo }) => {
            let pipe = format!("--metadata-pipename={}", fifo.display());
            let enable = ["--metadata-enable".to_owned(), "--get-coverart".to_owned(), pipe];
            process.arguments.extend(enable);
        }
        None => {}
    }
    process
}
