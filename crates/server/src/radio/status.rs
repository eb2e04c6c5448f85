//! The status and the counters of web radio sources.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use aulos_io::feed::StreamInfo;
use aulos_proto::titles::TrackMetadata;
use aulos_session::radio::{RADIO_FAILURE_NAMES, RadioError, RadioInfo};

/// State of a web radio source, for users to read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RadioState {
    /// What it is doing.
    pub phase: RadioPhase,
    /// Why it does not play, while it does not.
    pub reason: Option<String>,
    /// Whether an early retry is pointless: the stream does not exist, or cannot be decoded.
    pub is_permanent: bool,
    /// What the station reports about itself.
    pub station_info: RadioInfo,
    /// The current title, if known.
    pub title: Option<TrackMetadata>,
    /// Format of the audio.
    pub info: Option<StreamInfo>,
    /// Number of connections that delivered a body.
    pub connects: u64,
    /// Number of failed or broken connections.
    pub failures: u64,
    /// Number of redirects followed.
    pub redirects: u64,
    /// Number of times the packet parser had to resynchronize.
    pub resyncs: u64,
    /// Number of damaged packets.
    pub damaged: u64,
}

/// Phase of a web radio source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RadioPhase {
    /// It connects to the stream.
    #[default]
    Connecting,
    /// It plays.
    Playing,
    /// It could not be reached, or broke off, and is tried again.
    Waiting,
    /// It was a file, and has ended.
    Finished,
    /// It is not needed, and is on cold stand-by.
    Standby,
}

impl RadioPhase {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Playing => "playing",
            Self::Waiting => "waiting",
            Self::Finished => "finished",
            Self::Standby => "resting",
        }
    }
}

/// Counters of all web radio sources; never reset.
#[derive(Debug, Default)]
pub struct RadioCounters {
    pub(super) connects: AtomicU64,
    pub(super) redirects: AtomicU64,
    failures: [AtomicU64; RADIO_FAILURE_NAMES.len()],
}

impl RadioCounters {
    /// The counters, under stable names.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut all = vec![
            ("radio_connects", read(&self.connects)),
            ("radio_redirects", read(&self.redirects)),
        ];
        all.extend(RADIO_FAILURE_NAMES.into_iter().zip(self.failures.iter().map(read)));
        all
    }

    pub(super) fn count_failure(&self, failure: &RadioError) {
        if let Some(count) = self.failures.get(failure.counter_index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Handle to the state of one source.
#[derive(Clone, Debug, Default)]
pub struct RadioStatusHandle(Arc<Mutex<RadioState>>);

impl RadioStatusHandle {
    /// The current state.
    #[must_use]
    pub fn state(&self) -> RadioState {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut RadioState)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
