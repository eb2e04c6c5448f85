//! Feeds hooks with the state of stations; `Aulos.TestHook`.

use aulos_io::SystemClock;
use serde_json::json;

use crate::control::context::CallContext;
use crate::control::state::{Control, ControlState};
use crate::hooks::Observation;
use crate::methods::params::Params;
use crate::methods::rpc::{MethodResult, internal_error};

/// `Aulos.TestHook`.
pub(crate) fn test(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let hook = params.value("hook")?;
    let (name, id) = (context.control.hooks.test(hook))
        .ok_or_else(|| internal_error(format!("there is no hook {hook}")))?;
    Ok(json!({ "hook": name, "id": id }))
}

impl Control {
    /// Evaluates a station's state and queues the events for its hooks.
    pub(crate) fn observe_station(
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
