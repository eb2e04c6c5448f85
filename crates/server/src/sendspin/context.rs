//! What every connection needs.

use std::io;
use std::sync::Arc;

use aulos_control::Control;
use aulos_control::backend::ListenSink;
use aulos_proto::sendspin::ServerInfo;

use super::store::TrustFile;

/// What every connection needs.
#[derive(Clone)]
pub(super) struct SendspinContext {
    pub(super) control: Arc<Control>,
    pub(super) sink: Arc<dyn ListenSink>,
    pub(super) server: Arc<ServerInfo>,
    pub(super) file: Arc<TrustFile>,
}

impl SendspinContext {
    /// Saves what is known of the players now, off the runtime's thread.
    pub(super) async fn save(&self) -> io::Result<()> {
        let (file, control) = (Arc::clone(&self.file), Arc::clone(&self.control));
        let saved = tokio::task::spawn_blocking(move || file.save(|| control.sendspin.records()));
        saved.await.map_err(io::Error::other)?
    }

    /// Saves every change, until it is dropped.
    pub(super) async fn save_changes(self) {
        let mut changes = self.control.sendspin.changes();
        while changes.changed().await.is_ok() {
            if let Err(error) = self.save().await {
                tracing::error!(target: "sendspin", %error, "cannot save the Sendspin players");
            }
        }
    }
}
