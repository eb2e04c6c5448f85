//! Feeds hooks with the state of stations; `Aulos.TestHook`.

use aulos_io::SystemClock;
use serde_json::{Value, json};

use super::methods::{MethodResult, invalid_param};
use super::rpc::internal_error;
use super::{CallContext, Control, ControlState};
use crate::hooks::Observation;

/// `Aulos.TestHook {hook}`: its name, or its index from 0.
pub(super) fn test(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    let which = &params["hook"];
    if !which.is_string() && !which.is_u64() {
        return Err(invalid_param("hook", "a hook's name or its number from 0"));
    }
    let sent = state.control.hooks.test(which);
    let (name, id) = sent.ok_or_else(|| internal_error("Hook not found".to_owned()))?;
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
            self.hooks.notify(&slot.station.name, &event);
        }
    }
}
