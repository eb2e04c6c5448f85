//! The state file: read once at the start, written by one task whenever something changed.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aulos_control::registry::store::{self, LoadOutcome, SavedState};
use aulos_control::{Control, count, titles};
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval};

use crate::saver::Saver;
use crate::titles::store as title_store;

/// Delay of a save, to combine changes.
const SAVE_DELAY: Duration = Duration::from_secs(2);

/// Saves changes until `stop`, and then the rest. The only writer of the file.
pub(super) async fn save_changes(
    control: Arc<Control>,
    mut saver: Saver,
    mut stop: oneshot::Receiver<()>,
) {
    let dir = saver.dir().to_path_buf();
    let mut unwritten = UnwrittenTitles::default();
    let mut ticks = interval(SAVE_DELAY / 4);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut failing, mut last) = (false, false);
    while !last {
        let wait = tokio::select! {
            _ = ticks.tick() => SAVE_DELAY,
            _ = &mut stop => Duration::ZERO,
        };
        last = wait.is_zero();
        unwritten.write(&control, &mut saver).await;
        let Some(deadline) = Instant::now().checked_sub(wait) else { continue };
        let Some(snapshot) = control.take_unsaved(deadline) else { continue };
        // A disk may be slow; controllers do not wait for it.
        match saver.save(snapshot).await {
            Ok(()) => {
                if std::mem::take(&mut failing) {
                    tracing::info!(dir = %dir.display(), "saving the state works again");
                }
            }
            Err(error) => {
                // It is tried again until it succeeds, and logged once.
                control.save_failed();
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(
                        dir = %dir.display(),
                        %error,
                        hint = "free disk space, or make the directory writable for this user",
                        "cannot save groups and volumes; retrying"
                    );
                }
            }
        }
    }
}

/// Lines of titles that could not be written.
#[derive(Default)]
struct UnwrittenTitles {
    /// The next ones of a station wait in its history until these are written.
    lines: Vec<(String, String)>,
    is_failing: bool,
}

impl UnwrittenTitles {
    /// Writes what has been shown since the last call. A failure is logged once, and keeps no other
    /// station from being written.
    async fn write(&mut self, control: &Control, saver: &mut Saver) {
        let is_written = |station: &str| self.lines.iter().all(|(waiting, _)| waiting != station);
        let new = titles::take_unsaved(control, is_written);
        for (station, lines) in std::mem::take(&mut self.lines).into_iter().chain(new) {
            if let Err(error) = saver.add_titles(station.clone(), lines.clone()).await {
                count(&control.counters.titles_not_saved);
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(stream = station, %error, "cannot save titles; retrying");
                }
                self.lines.push((station, lines));
            }
        }
        self.is_failing = !self.lines.is_empty();
    }
}

pub(super) fn load_state(dir: &Path) -> SavedState {
    SavedState { titles: title_store::load(dir), ..load_state_file(dir) }
}

fn load_state_file(dir: &Path) -> SavedState {
    match store::load(dir) {
        Ok(LoadOutcome::Saved(saved)) => saved,
        Ok(LoadOutcome::Nothing) => SavedState::default(),
        Ok(LoadOutcome::Broken { why, previous }) => {
            let using = fallback_note(previous.as_ref());
            tracing::warn!(reason = %why, using, "server.json is invalid; renamed to server.json.broken");
            previous.unwrap_or_default()
        }
        Ok(LoadOutcome::Unusable { why, aside, previous }) => {
            let using = fallback_note(previous.as_ref());
            tracing::warn!(reason = %why, kept_as = %aside, using, "server.json cannot be used");
            previous.unwrap_or_default()
        }
        Err(error) => {
            tracing::warn!(%error, "server.json can be neither read nor renamed; starting without it");
            SavedState::default()
        }
    }
}

const fn fallback_note(previous: Option<&SavedState>) -> &'static str {
    if previous.is_some() { "the previous version" } else { "an empty state" }
}
