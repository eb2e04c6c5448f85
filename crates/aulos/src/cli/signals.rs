//! Signals that end a command.

use tokio::signal::unix::{Signal, SignalKind, signal};

use aulos_server::exit::{Exit, Failure};

/// SIGINT, SIGTERM and SIGHUP.
pub(super) struct Signals([Signal; 3]);

impl Signals {
    /// Installs the handlers.
    pub(super) fn new() -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::new(Exit::Internal, error.to_string()));
        Ok(Self([
            listen(SignalKind::interrupt())?,
            listen(SignalKind::terminate())?,
            listen(SignalKind::hangup())?,
        ]))
    }

    /// Waits for one of the signals.
    pub(super) async fn wait(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
