//! What a publication reports: its state, and a line in the log when that changes.

use std::sync::{Arc, Mutex, PoisonError};

use aulos_control::backend::{HlsTargetKind, HlsTargetState};
use aulos_session::hls::PublisherStatus;

/// Both ends.
#[derive(Clone, Debug)]
pub(in crate::hls) struct PublishReporter {
    station: Arc<str>,
    state: Arc<Mutex<HlsTargetState>>,
}

impl PublishReporter {
    pub(super) fn new(station: &str, kind: HlsTargetKind, target: String) -> Self {
        let state = HlsTargetState { kind, target, status: PublisherStatus::default() };
        Self { station: Arc::from(station), state: Arc::new(Mutex::new(state)) }
    }

    /// Takes the status; the first failure, another one and the end of it are logged.
    pub(super) fn report(&self, status: &PublisherStatus) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut state.status, status.clone());
        let target = state.target.clone();
        drop(state);
        let station = &*self.station;
        match &status.error {
            Some(error) if before.error.as_ref() != Some(error) => {
                tracing::warn!(station, target, %error, "HLS cannot be written; retrying");
            }
            None if before.error.is_some() => {
                let dropped = status.dropped;
                tracing::info!(station, target, dropped, "HLS is written again");
            }
            _ => {}
        }
    }

    /// The state.
    pub(in crate::hls) fn state(&self) -> HlsTargetState {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
