//! The start of announcements and plays: between two ticks of the control plane, so that a
//! doorbell does not wait a tenth of a second for the next one.

use std::time::Duration;

use aulos_core::Span;

use super::sessions;
use crate::backend::AudioBackend;
use crate::control::state::Control;

/// Carries on with announcements and plays that are about to start: what [`Control::tick`] does for
/// them, which comes too seldom for a sound that is waited for.
pub fn start_sounds(control: &Control) {
    control.change(|subjects| {
        let registry = &subjects.clients.registry;
        control.backend.move_announced(&|number, target| sessions(registry, number, target));
        control.handle_audio(subjects);
    });
    spawn_tasks(&*control.backend);
}

/// Spawns the tasks that the audio side has for the control runtime.
pub(crate) fn spawn_tasks(backend: &dyn AudioBackend) {
    for task in backend.take_background_tasks() {
        tokio::spawn(task);
    }
}

/// Interval of [`start_sounds`]: shorter than a chunk.
pub const SOUND_START_STEP: Duration = Duration::from_millis(10);

/// For how long after a call: a sound from the network, or for clients with filters, takes most of
/// it.
pub const SOUND_START_TIME: Span = Span::from_secs(1);
