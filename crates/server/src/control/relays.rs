//! Relay methods. Relays added by a call are not written to the configuration and end with the
//! server.

use std::sync::PoisonError;

use aulos_proto::snap::control::RpcError;
use serde_json::{Value, json};

use super::methods::{MethodResult, invalid_param, text_param};
use super::rpc::internal_error;
use super::{CallContext, Control};
use crate::relay::RelayManager;

/// `Aulos.GetRelays {streams}`.
pub(super) fn get(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    let streams = match &params["streams"] {
        Value::Null => false,
        given => given.as_bool().ok_or_else(|| invalid_param("streams", "true or false"))?,
    };
    Ok(state.control.with_relays(|relays| relays.json(streams)))
}

/// `Aulos.AddRelay {name, listen, from, to, dest, ...}`.
pub(super) fn add(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    let relay =
        aulos_config::relay_from_json(params).map_err(|why| RpcError::invalid_params(&why))?;
    let listen = state
        .control
        .with_relays(|relays| relays.add(&relay))
        .map_err(|error| internal_error(error.to_string().replace("\n    hint: ", "; ")))?;
    Ok(json!({ "name": relay.name, "listen": listen, "dest": relay.dest.to_string() }))
}

/// `Aulos.RemoveRelay {name}`.
pub(super) fn remove(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    let name = text_param(params, "name")?;
    if !state.control.with_relays(|relays| relays.remove(name)) {
        return Err(internal_error("Relay not found"));
    }
    Ok(json!({ "name": name }))
}

impl Control {
    /// Takes over relays that already run.
    #[must_use]
    pub(crate) fn with_initial_relays(mut self, relays: RelayManager) -> Self {
        *self.relays.get_mut().unwrap_or_else(PoisonError::into_inner) = relays;
        self
    }

    /// Ends all relays after they have sent what they hold.
    pub(crate) fn end_relays(&self) {
        self.with_relays(RelayManager::end);
    }

    pub(super) fn with_relays<T>(&self, act: impl FnOnce(&mut RelayManager) -> T) -> T {
        act(&mut self.relays.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
