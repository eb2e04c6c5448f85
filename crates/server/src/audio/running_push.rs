//! One push of a station's stream, as the running station holds it; `pushes` starts it.

use std::sync::Arc;

use aulos_config::PushSettings;
use aulos_core::Instant;
use aulos_io::reactor::{SrtPushMonitor, SrtPushProgress};
use aulos_io::srt::SrtProblem;
use aulos_io::{RetryTime, SystemClock};
use aulos_rt::channel::Receiver;
use aulos_session::push::{PushLinkQuality, PushPhase, PushState};
use aulos_session::srt::SrtCloseReason;
use tokio::sync::watch;

use crate::push::{OpenedPush, PushStatusHandle};

/// A running push.
pub(super) struct RunningPush {
    pub(super) config: PushSettings,
    pub(super) kind: RunningPushKind,
}

/// What a push needs, by the protocol of its target.
pub(super) enum RunningPushKind {
    Icecast {
        opened: Receiver<OpenedPush>,
        watch: PushStatusHandle,
        titles: watch::Sender<Arc<str>>,
    },
    Srt(Box<RunningSrtPush>),
}

/// A push over SRT, which is added to a reactor for each run of its station.
#[derive(Default)]
pub(super) struct RunningSrtPush {
    pub(super) monitor: Option<SrtPushMonitor>,
    pub(super) retry: RetryTime,
    /// Why it could not be started; reported once.
    error: Option<String>,
    progress: SrtPushProgress,
}

impl std::fmt::Debug for RunningPush {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pushed").field("config", &self.config).finish_non_exhaustive()
    }
}

impl RunningPush {
    pub(super) fn status(&mut self) -> PushState {
        match &mut self.kind {
            RunningPushKind::Icecast { watch, .. } => watch.state(),
            RunningPushKind::Srt(push) => push.state(SystemClock::now()),
        }
    }
}

impl RunningSrtPush {
    /// The progress; the last one while it does not run.
    pub(super) fn progress(&mut self) -> SrtPushProgress {
        if let Some(monitor) = &mut self.monitor {
            self.progress = monitor.progress();
        }
        self.progress
    }

    /// It has been started.
    pub(super) fn started(&mut self, monitor: SrtPushMonitor, retry: RetryTime) {
        (self.monitor, self.retry, self.error) = (Some(monitor), retry, None);
    }

    /// It could not be started; true if that is news.
    pub(super) fn has_new_error(&mut self, error: String) -> bool {
        let is_new = self.error.as_ref() != Some(&error);
        self.error = Some(error);
        is_new
    }

    fn state(&mut self, now: Instant) -> PushState {
        let SrtPushProgress { link, since, bytes, lagged, connects, failures, .. } =
            self.progress();
        let phase = match link.problem {
            _ if since.is_some() => PushPhase::Pushing,
            Some(SrtProblem::Closed(SrtCloseReason::Refused(_))) => PushPhase::Refused,
            Some(_) => PushPhase::Waiting,
            None => PushPhase::Connecting,
        };
        PushState {
            phase,
            error: link.problem.map(|problem| problem.to_string()),
            since: since.map(|since| now.since(since)),
            bytes,
            lagged,
            retry_in: self.retry.get().map(|at| at.since(now)),
            connects,
            failures,
            title_error: None,
            link: Some(PushLinkQuality {
                round_trip: link.srt.round_trip,
                packets: link.srt.sent,
                resent: link.srt.resent,
                unacknowledged: link.srt.unacknowledged,
            }),
        }
    }
}
