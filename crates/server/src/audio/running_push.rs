//! One push of a station's stream, as the running station holds it; `pushes` starts it.

use std::sync::Arc;

use aulos_config::PushSettings;
use aulos_rt::channel::Receiver;
use aulos_session::push::PushState;
use tokio::sync::watch;

use crate::push::{OpenedPush, PushStatusHandle};

/// A running push.
pub(super) struct RunningPush {
    pub(super) config: PushSettings,
    pub(super) opened: Receiver<OpenedPush>,
    pub(super) watch: PushStatusHandle,
    pub(super) titles: watch::Sender<Arc<str>>,
}

impl std::fmt::Debug for RunningPush {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pushed").field("config", &self.config).finish_non_exhaustive()
    }
}

impl RunningPush {
    pub(super) fn status(&self) -> PushState {
        self.watch.state()
    }
}
