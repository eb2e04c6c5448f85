//! The signals that end a command which runs until it is told to.

use tokio::signal::unix::{Signal, SignalKind, signal};

use aulos_server::exit::{Exit, Failure};

/// What asks a program to end.
pub(super) struct Signals([Signal; 3]);

impl Signals {
    /// Listens from now on.
    pub(super) fn new() -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::new(Exit::Internal, error.to_string()));
        Ok(Self([
            listen(SignalKind::interrupt())?,
            listen(SignalKind::terminate())?,
            listen(SignalKind::hangup())?,
        ]))
    }

    /// Waits for one of them.
    pub(super) async fn wait(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
