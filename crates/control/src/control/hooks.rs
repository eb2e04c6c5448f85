//! Feeds hooks with the state of stations; `Aulos.TestHook`.

use aulos_io::SystemClock;
use serde_json::json;

use super::context::CallContext;
use super::params::Params;
use super::rpc::{MethodResult, internal_error};
use super::{Control, ControlState};
use crate::hooks::Observation;

/// `Aulos.TestHook`.
pub(super) fn test(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let hook = params.value("hook")?;
    let (name, id) = (context.control.hooks.test(hook))
        .ok_or_else(|| internal_error(format!("there is no hook {hook}")))?;
    Ok(json!({ "hook": name, "id": id }))
}

impl Control {
    /// Evaluates a station's state and queues the events for its hooks.
    pub(super) fn observe_station(
        &self,
        inner: &mut ControlState,
        number: usize,
        seen: Observation<'_>,
    ) {
        let Some(slot) = inner.slots.get_mut(number).and_then(Option::as_mut) else { return };
        slot.watch.handle_input(SystemClock::now(), &slot.station, seen);
        while let Some(event) = slot.watch.poll_output() {
            self.log_hook_event(&slot.station.name, &event);
            self.hooks.notify(&slot.station.name, &event);
        }
    }
}
